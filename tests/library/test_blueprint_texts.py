"""Long texts in blueprint files: as lines, or in a file of their own; and `$schema`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tests.library.shapes import EVERY_KEY

import podwright
from podwright import blueprints
from podwright.blueprints.flowchart import mermaid
from podwright.errors import BlueprintValidationError

CONFIG = {"model": "offline/echo"}
FORMS: list[Any] = [["One.", "", "Two."], {"file": "prompts/long.md"}]
TEXT = "One.\n\nTwo."


def agent(instructions: Any, **further: Any) -> dict[str, Any]:
    return {
        "name": "a",
        "instructions": instructions,
        "config": CONFIG,
        **further,
    }


def flow(message: Any, given: Any) -> dict[str, Any]:
    """A workflow with a question and an agent's input, both in nested steps."""
    ask = {"type": "approval_step", "name": "ask", "message": message}
    write = {
        "type": "agent_step",
        "name": "write",
        "agent": "writer",
        "input": given,
    }
    tried = {
        "type": "try_step",
        "name": "try",
        "steps": [ask, write],
        "retries": 1,
    }
    return {"type": "Workflow", "name": "w", "steps": [tried]}


def team(kind: str, key: str, instructions: Any) -> dict[str, Any]:
    member = {"type": "Agent", "name": "m", "instructions": instructions}
    blueprint = {"type": kind, "name": "t", key: [member], "config": CONFIG}
    if kind == "Conductor":
        blueprint["instructions"] = instructions
    return blueprint


MAKERS: dict[str, Any] = {
    "agent": agent,
    "workflow": lambda text: flow(text, "x"),
    "conductor": lambda text: team("Conductor", "skills", text),
    "pipeline": lambda text: team("Pipeline", "steps", text),
}
"""Blueprints of all kinds with a text in any form."""


def file_of(folder: Path, blueprint: object, name: str = "blueprint.json"):
    file = folder / name
    file.write_text(json.dumps(blueprint))
    return file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    prompts = tmp_path / "component" / "prompts"
    prompts.mkdir(parents=True)
    # with what an editor on Windows writes
    (prompts / "long.md").write_bytes(b"\xef\xbb\xbfOne.\r\n\r\nTwo.\r\n")
    return prompts.parent


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_text_is_read(folder: Path, make: Any, form: Any) -> None:
    """Every form of a text is the same blueprint: as data, by its digest, and in the component."""
    file = file_of(folder, make(form))
    assert blueprints.read_file(file) == make(TEXT)
    assert not blueprints.problems(blueprints.read_file(file))
    if "steps" not in make(TEXT):
        loaded = podwright.load(folder).to_blueprint()
        assert loaded["instructions"] == TEXT
        assert blueprints.digest(loaded) == blueprints.digest(
            podwright.load(make(TEXT)).to_blueprint()
        )
    assert blueprints.read_source(file) == make(form)


def test_only_line_ends_are_changed(folder: Path) -> None:
    """Other characters that separate lines or pages are part of the text; one line end at the end of it is not."""
    text = "a\u2028b\u2029c\x0cd\x85e\x1cf\n\n"
    file = folder / "prompts" / "long.md"
    for line_end in ("\n", "\r\n"):
        file.write_bytes(text.replace("\n", line_end).encode())
        path = folder / "blueprint.json"
        path.write_text(json.dumps(agent({"file": "prompts/long.md"})))
        assert blueprints.read_file(path)["instructions"] == text[:-1]


def test_the_input_of_a_step_has_lines(folder: Path) -> None:
    """An input may be lines; an object remains named inputs, also one with the name `file`."""
    file = file_of(folder, flow("Go on?", ["{a}", "{b}"]))
    assert blueprints.read_file(file) == flow("Go on?", "{a}\n{b}")
    named = flow("Go on?", {"file": "prompts/long.md"})
    assert blueprints.read_file(file_of(folder, named)) == named
    assert "Go on?" in mermaid(blueprints.read_file(file))


def test_only_texts_are_read(folder: Path) -> None:
    """Notes, schemas and tools that have such a key stay as they are."""
    notes = {"instructions": {"file": "prompts/long.md"}, "message": ["x"]}
    schema = {"properties": {"instructions": {"enum": [["x"]]}}}
    blueprint = agent(
        "Do.",
        metadata=notes,
        config={**CONFIG, "response_schema": schema},
    )
    assert blueprints.read_file(file_of(folder, blueprint)) == blueprint


def test_agents_in_files_have_their_own_folder(folder: Path) -> None:
    """The path is relative to the blueprint that has it."""
    agents = folder / "agents"
    agents.mkdir()
    (agents / "writer.md").write_text("Write.\n")
    file_of(
        agents,
        {**agent({"file": "writer.md"}), "name": "writer"},
        "writer.json",
    )
    (folder / "blueprint.yaml").write_text(
        blueprints.to_yaml(flow({"file": "prompts/long.md"}, "x"))
    )
    loaded = podwright.load(folder)
    writer = loaded.members()["writer"]
    assert writer.to_blueprint()["instructions"] == "Write."


@pytest.mark.parametrize(
    ("instructions", "pointer"),
    [
        ({"file": "prompts/logn.md"}, "/instructions/file"),
        ({"file": "../secret.md"}, "/instructions/file"),
        ({"file": "link.md"}, "/instructions/file"),
        ({"file": "/etc/hostname"}, "/instructions/file"),
        ({"file": "prompts"}, "/instructions/file"),
        ({"file": "binary.md"}, "/instructions/file"),
        ({"file": "loop"}, "/instructions/file"),
        ({"file": "a\0b"}, "/instructions/file"),
        ({"file": 5}, "/instructions"),
        ({}, "/instructions"),
        ({"file": "x.md", "lines": []}, "/instructions"),
        (["a", 5, "b", None], "/instructions/1 /instructions/3"),
    ],
)
def test_a_text_that_cannot_be_read(
    folder: Path, instructions: Any, pointer: str
) -> None:
    """It is a problem at its place; no file outside the blueprint's folder is read, through a link neither."""
    secret = folder.parent / "secret.md"
    secret.write_text("Secret.")
    (folder / "link.md").symlink_to(secret)
    (folder / "binary.md").write_bytes(b"\xff\xfe\x00")
    (folder / "loop").symlink_to("loop")
    file = file_of(folder, agent(instructions))
    with pytest.raises(BlueprintValidationError) as caught:
        blueprints.read_file(file)
    problems = caught.value.problems
    assert " ".join(problem.pointer for problem in problems) == pointer
    assert "Secret." not in str(caught.value)
    # the file itself is no suggestion
    assert not any("binary" in problem.suggestion for problem in problems)


def test_a_similar_name_is_suggested(folder: Path) -> None:
    """All texts that cannot be read are problems at once, and a misspelt name has a suggestion."""
    (folder / "critic.md").write_text("Judge.")
    blueprint = team("Conductor", "skills", {"file": "crtic.md"})
    with pytest.raises(BlueprintValidationError) as caught:
        podwright.load(file_of(folder, blueprint))
    pointers = [problem.pointer for problem in caught.value.problems]
    assert pointers == ["/instructions/file", "/skills/0/instructions/file"]
    assert "critic.md" in caught.value.problems[0].suggestion


@pytest.mark.parametrize("form", FORMS)
def test_data_have_the_text_itself(form: Any) -> None:
    """In a mapping or a request, these forms are problems: no file is read."""
    for blueprint, pointer in (
        (agent(form), "/instructions"),
        (flow(form, "x"), "/steps/0/steps/0/message"),
    ):
        [problem] = blueprints.problems(blueprint)
        assert problem.pointer == pointer
        assert "file" in problem.detail


def test_the_schema_of_files() -> None:
    """Editors accept what `read_file` accepts: all keys, `$schema`, and each form of a text."""
    schemas = blueprints.file_schema()
    for kind, blueprint in EVERY_KEY.items():
        jsonschema.Draft202012Validator.check_schema(schemas[kind])
        jsonschema.validate({"$schema": "./x.json", **blueprint}, schemas[kind])
    for form in FORMS:
        jsonschema.validate(agent(form), schemas["agent"])
        jsonschema.validate(flow(form, FORMS[0]), schemas["workflow"])
        jsonschema.validate(
            team("Conductor", "skills", form), schemas["conductor"]
        )
        jsonschema.validate(
            team("Pipeline", "steps", form), schemas["pipeline"]
        )
    for wrong in ({"file": 5}, {"path": "x"}, [5], 5):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(agent(wrong), schemas["agent"])


def test_the_schema_of_an_editor_is_no_part(folder: Path) -> None:
    """`$schema` is allowed in files and data; the component and the digest do not have it."""
    plain = agent("Do.")
    marked = {"$schema": "./.podwright/agent.schema.json", **plain}
    assert blueprints.problems(marked) == []
    assert "$schema" not in podwright.load(marked).to_blueprint()
    assert blueprints.digest(marked) == blueprints.digest(plain)
    file = file_of(folder, marked)
    assert blueprints.read_file(file) == plain
    inner = flow("Go on?", "x")
    inner["steps"][0]["$schema"] = "x"
    [problem] = blueprints.problems(inner)
    assert problem.pointer == "/steps/0/$schema"
