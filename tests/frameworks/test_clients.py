"""Clients of other frameworks that want data, as they ask for it by default."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from podwright_service.testing import (
    ComponentProcess,
    ModelRequest,
    ModelResponse,
    ModelStub,
)

PROGRAMS = Path(__file__).parent / "clients"
AGENT = {
    "name": "helper",
    "instructions": "Help.",
    "config": {"model": "openai/gpt-5-mini"},
    "tools": [],
}


def respond(request: ModelRequest) -> ModelResponse:
    """A contact named after what the user says; first, until another one is wanted."""
    said = request.messages[-1].text
    name = said
    if said == "which?":
        name = "first"
    if "Another one." in said:
        name = "second"
    return ModelResponse(json.dumps({"name": name, "email": "a@b.co"}))


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ComponentProcess]:
    """An agent whose model answers with contacts."""
    (tmp_path / "blueprint.json").write_text(json.dumps(AGENT))
    with (
        ModelStub(respond) as stub,
        ComponentProcess(tmp_path, model=stub) as serving,
    ):
        yield serving


def test_output_type_of_pydantic_ai(
    service: ComponentProcess, frameworks: Path
) -> None:
    """An output tool, which is its default: over two turns, streamed, and after an answer that it has not taken."""
    program = PROGRAMS / "structured_pydantic_ai.py"
    done = subprocess.run(
        [frameworks, program, service.url],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    names = ["x", "again", "x", "second"]
    assert json.loads(done.stdout) == {"chat": names, "responses": names}
