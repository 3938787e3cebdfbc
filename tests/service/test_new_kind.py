"""A kind of component that is added at run time, where CONTRIBUTING says that a kind is added, and nowhere else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = """
import json
import sys
from contextlib import redirect_stdout
from io import StringIO
from typing import Literal

from pydantic import with_config
from typing_extensions import NotRequired, TypedDict

from podwright import kinds

kinds.Kind = Literal["agent", "workflow", "conductor", "pipeline", "repeater"]
kinds.TRAITS["repeater"] = kinds.Traits()

from podwright.blueprints import schema
from podwright.messages.messages import CLOSED


@with_config(CLOSED)
class RepeaterBlueprint(TypedDict):
    type: Literal["Repeater"]
    name: schema.Name
    description: NotRequired[str]
    version: NotRequired[str]


schema.SHAPES["repeater"] = RepeaterBlueprint

from podwright.components import PromptComponent
from podwright.folders.loader import KINDS
from podwright.run.options import parse_with_overrides


class Repeater(PromptComponent):
    kind = "repeater"

    @classmethod
    def assemble(cls, blueprint, supplied, **options):
        parsed = parse_with_overrides(blueprint, cls.kind, supplied.validate, options)
        return cls(parsed)

    async def perform(self, run, task):
        return task.input


KINDS["repeater"] = Repeater

from fastapi.testclient import TestClient

import podwright
from podwright.blueprints import json_schema
from podwright.blueprints.diff import blueprint_changes
from podwright.blueprints.flowchart import mermaid
from podwright_service.app import create_app
from podwright_service.cli.shipping.blueprints import validate
from podwright_service.cli.shipping.deploy import render_values
from podwright_service.settings import Settings

folder = sys.argv[1]
component = podwright.load(folder)
blueprint = component.to_blueprint()


def printed(function, *args, **options):
    output = StringIO()
    with redirect_stdout(output):
        function(*args, **options)
    return output.getvalue()


with TestClient(create_app(Settings(), component)) as client:
    model = {"model": component.name}
    inline = {"type": "repeater", "blueprint": blueprint}
    responses = {
        "run": client.post("/run", json={"input": "the moon"}),
        "resume": client.post("/run", json={"input": "x", "start_step": 1}),
        "stream": client.post("/run/stream", json={"input": "the moon"}),
        "estimate": client.post("/estimate", json={"input": "the moon"}),
        "info": client.get("/info"),
        "openapi": client.get("/openapi.json"),
        "chat": client.post(
            "/v1/chat/completions",
            json={**model, "messages": [{"role": "user", "content": "the moon"}]},
        ),
        "settings": client.post(
            "/v1/responses", json={**model, "input": "x", "temperature": 1}
        ),
        "validate": client.post("/validate-blueprint", json=inline),
        "inline": client.post("/run-blueprint", json={**inline, "input": "x"}),
        "invalid": client.post(
            "/validate-blueprint",
            json={"blueprint": {**blueprint, "steps": []}},
        ),
        "metrics": client.get("/metrics"),
    }
result = {
    "responses": {name: [r.status_code, r.text] for name, r in responses.items()},
    "schemas": list(json_schema()),
    "changes": [c.pointer for c in blueprint_changes(blueprint, {**blueprint, "name": "b"})],
    "flowchart": mermaid(blueprint),
    "validation": json.loads(printed(validate, [folder], True)),
    "values": printed(render_values, [folder], None, None, size=None, images=[], keep=None),
}
print(json.dumps(result))
"""


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the commands and the routes answer about a component of the new kind."""
    folder = tmp_path_factory.mktemp("new") / "echo"
    folder.mkdir()
    blueprint = {"type": "Repeater", "name": "echo", "description": "Repeats."}
    (folder / "blueprint.json").write_text(json.dumps(blueprint))
    # a process of its own: the models of bodies and events have the kinds from their import on
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(folder),
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def answer(result: Any, name: str, status: int = 200) -> Any:
    code, text = result["responses"][name]
    assert code == status, text
    return json.loads(text)


def test_it_runs(result: Any) -> None:
    assert answer(result, "run") == {"output": "the moon"}
    assert answer(result, "inline") == {"output": "x"}
    status, text = result["responses"]["stream"]
    assert status == 200
    last = text.strip().splitlines()[-1]
    assert json.loads(last.removeprefix("data: ")) == {"output": "the moon"}


def test_what_it_does_not_take_is_refused(result: Any) -> None:
    problem = answer(result, "resume", 422)
    assert [each["pointer"] for each in problem["errors"]] == ["/start_step"]
    assert answer(result, "settings", 400)["error"]["param"] == "temperature"


def test_the_openai_routes_answer(result: Any) -> None:
    [choice] = answer(result, "chat")["choices"]
    assert choice["message"]["content"] == "the moon"
    assert choice["finish_reason"] == "stop"


def test_it_is_described(result: Any) -> None:
    info = answer(result, "info")
    assert (info["kind"], info["name"]) == ("repeater", "echo")
    document = answer(result, "openapi")
    schemas = document["components"]["schemas"]
    inline = schemas["InlineRunRequest"]["properties"]["blueprint"]["anyOf"]
    reference = {"$ref": "#/components/schemas/RepeaterBlueprint"}
    assert reference in inline
    assert schemas["RepeaterBlueprint"]["required"] == ["type", "name"]
    assert "repeater" in result["schemas"]


def test_nobody_knows_what_it_needs(result: Any) -> None:
    """It says nothing of that itself, so nothing is taken for free."""
    found = answer(result, "estimate")
    assert found["at_least"]["model_calls"] == 0
    assert found["at_most"]["cost"] is None
    limits = {name: found["at_most"][name] for name in found["limits"]}
    assert found["limits"] == limits
    assert found["unknown"] == ["the repeater 'echo'"]


def test_its_blueprints_are_validated(result: Any) -> None:
    assert answer(result, "validate")["valid"] is True
    invalid = answer(result, "invalid")
    assert invalid["valid"] is False
    assert [each["pointer"] for each in invalid["errors"]] == [
        "/blueprint/steps"
    ]
    [report] = result["validation"]
    assert (report["valid"], report["kind"]) == (True, "repeater")


def test_its_blueprints_are_compared_drawn_and_deployed(result: Any) -> None:
    assert result["changes"] == ["/name"]
    assert '"echo' in result["flowchart"]
    assert "type: Repeater" in result["values"]


def test_its_runs_are_counted(result: Any) -> None:
    _, text = result["responses"]["metrics"]
    assert 'kind="repeater"' in text
