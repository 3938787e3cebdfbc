"""Blueprints whose steps and members leave out what their keys say: they mean the same as with it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tests.helpers import write_files
from tests.library.note_step import note, note_steps
from tests.library.shapes import (
    BLUEPRINTS,
    CONDUCTOR,
    EVERY_STEP,
    KINDS,
    PIPELINE,
    Json,
    load_example,
)

from podwright import Agent, blueprints, load
from podwright.blueprints.diff import blueprint_changes
from podwright.blueprints.flowchart import mermaid
from podwright.blueprints.members import members_of
from podwright.blueprints.named_parts import (
    agent_names,
    condition_names,
    function_names,
)
from podwright.blueprints.validation import with_types
from podwright.steps.registry import kinds, walk_steps
from podwright.workflows.template_names import check_names

TOOL_STEP: Json = {
    "type": "function_step",
    "name": "read",
    "mcp": {"server": "files", "tool": "read"},
}
NAMES = {
    "agent_step": lambda step: step["agent"],
    "function_step": lambda step: step.get("function") or step["mcp"]["tool"],
}


def with_default_names(workflow: Json) -> Json:
    """A workflow whose steps have the names that they have by default."""
    named = copy.deepcopy(workflow)
    for _, step in walk_steps(named["steps"]):
        default = step["type"].removesuffix("_step")
        step["name"] = NAMES.get(step["type"], lambda _, name=default: name)(
            step
        )
    return named


def shortened(blueprint: Json) -> Json:
    """The blueprint without the types of steps and members, and without the names of steps."""
    short = copy.deepcopy(blueprint)
    if short.get("type") in ("Conductor", "Pipeline"):
        for _, member in members_of(short):
            del member["type"]
        return short
    for _, step in walk_steps(short["steps"]):
        del step["type"], step["name"]
    return short


FULL = with_default_names(EVERY_STEP)
PAIRS = [
    pytest.param(FULL, shortened(FULL), id="workflow"),
    pytest.param(CONDUCTOR, shortened(CONDUCTOR), id="conductor"),
    pytest.param(PIPELINE, shortened(PIPELINE), id="pipeline"),
]


@pytest.mark.parametrize(("full", "short"), PAIRS)
def test_a_short_blueprint_is_the_same(full: Json, short: Json) -> None:
    """Component, digest, diff, graph, names and problems are those of the whole one; the export is explicit."""
    before = copy.deepcopy(short)
    assert with_types(short) == full
    component = load_example(short)
    assert component.to_blueprint() == load_example(full).to_blueprint()
    assert blueprints.problems(short) == []
    assert blueprints.check(short) == blueprints.check(full)
    assert blueprints.digest(short) == blueprints.digest(full)
    assert blueprint_changes(short, full) == []
    assert mermaid(short) == mermaid(full)
    for names in (agent_names, condition_names, function_names):
        assert names(short) == names(full)
    assert check_names(short) == check_names(full)
    assert short == before


@pytest.mark.parametrize(("full", "short"), PAIRS)
def test_a_short_file(full: Json, short: Json, tmp_path: Path) -> None:
    """Files may be short, in JSON and in YAML; the schema for editors allows it, that of exports does not."""
    kind = blueprints.kind_of(full)
    files = {"a.json": short, "b.yaml": short}
    for name in files:
        path = write_files(tmp_path, files) / name
        assert blueprints.read_file(path) == full
        assert load_example(path).to_blueprint() == blueprints.check(full)
        assert blueprints.read_source(path) == short
    for_editors = blueprints.file_schema()[kind]
    for blueprint in (short, full, BLUEPRINTS[kind]):
        jsonschema.validate(blueprint, for_editors)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(short, blueprints.json_schema()[kind])


def test_schemas_for_editors_find_mistakes() -> None:
    """A step with a key that its kind does not have, or without one that it needs, does not fit."""
    schema = blueprints.file_schema()["workflow"]
    jsonschema.Draft202012Validator.check_schema(schema)
    wrong_steps: list[Json] = [
        {"agent": "a", "function": "f"},
        {"agent": "a", "inpt": "x"},
        {"name": "x"},
        {"condition": {"name": "is_empty"}},
        {"type": "function_step", "agent": "a"},
    ]
    for step in wrong_steps:
        wrong = {"name": "w", "steps": [step]}
        assert not jsonschema.Draft202012Validator(schema).is_valid(wrong)
        assert blueprints.problems(wrong)


def test_each_kind_is_known_by_keys_of_its_own() -> None:
    """No key that says the kind of a step is one that steps of another kind may have."""
    shapes = blueprints.json_schema()["workflow"]["$defs"].values()
    keys = {
        shape["properties"]["type"]["const"]: shape["properties"].keys()
        for shape in shapes
        if "const" in shape.get("properties", {}).get("type", {})
    }
    for kind in kinds():
        assert kind.own_keys
        for key in kind.own_keys:
            having = [name for name, own in keys.items() if key in own]
            assert having == [kind.step_type]


def test_a_step_of_a_tool_of_a_server() -> None:
    """A function step is also known by `mcp`, and is called like the tool, if that is a name."""
    short = {"name": "w", "steps": [{"mcp": TOOL_STEP["mcp"]}]}
    assert with_types(short)["steps"] == [TOOL_STEP]
    for tool in ("a/b", "x" * 128):
        step = {"mcp": {"server": "files", "tool": tool}}
        [whole] = with_types({"name": "w", "steps": [step]})["steps"]
        assert whole["name"] == "function"
        assert blueprints.problems({"name": "w", "steps": [step]}) == []


def test_a_kind_of_ones_own_needs_its_type() -> None:
    """A kind that names no keys of its own is known by its type alone, and the steps in it by theirs."""
    inner = {"agent": "a"}
    with note_steps():
        whole = with_types({"name": "w", "steps": [note("x", inner)]})
        assert whole["steps"][0]["details"] == [
            {"type": "agent_step", "name": "a", "agent": "a"}
        ]
        untyped = note("x")
        del untyped["type"]
        [problem] = blueprints.problems({"name": "w", "steps": [untyped]})
        assert (problem.pointer, problem.detail) == (
            "/steps/0",
            "Missing key 'type'.",
        )


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ({"agent": "a", "over": "x"}, ["'agent'", "'over'", "different kinds"]),
        (
            {"steps": [], "until": {"name": "x"}, "retries": 1},
            ["'until'", "'retries'"],
        ),
        ({"steps": []}, ["Missing key 'type'"]),
        ({"type": None, "agent": "a"}, ["None"]),
        ({"type": "agent", "agent": "a"}, ["Unknown type 'agent'"]),
    ],
)
def test_what_is_not_known(step: Json, words: list[str]) -> None:
    """Keys of two kinds, of none, and a wrong type are problems with the pointer of the step."""
    blueprint = {"name": "w", "steps": [{"agent": "a"}, step]}
    found = blueprints.problems(blueprint)
    assert {problem.pointer for problem in found} <= {
        "/steps/1",
        "/steps/1/type",
    }
    assert [word for word in words if word not in str(found[0])] == []


@pytest.mark.parametrize("data", [None, 5, [], "x", {}, [5], [{"agent": 5}]])
@pytest.mark.parametrize("key", ["steps", "skills"])
@pytest.mark.parametrize("kind", [None, "Conductor", "Pipeline", 7, [], {}])
def test_anything_is_refused_or_known(kind: Any, key: str, data: Any) -> None:
    """Data of any form at the places of steps and members is a problem, and no error of another kind."""
    blueprint = {"name": "x", "type": kind, key: data}
    assert with_types(blueprint).keys() == blueprint.keys()
    assert blueprints.problems(blueprint)


def test_members_that_are_only_names(tmp_path: Path) -> None:
    """A member with nothing but its name stands for the agent of that name, in a folder too."""
    writer = {
        "name": "writer",
        "instructions": "Write.",
        "config": {"model": "offline/echo"},
    }
    team = {"name": "line", "type": "Pipeline", "steps": [{"name": "writer"}]}
    files = {"line/blueprint.json": team, "line/agents/writer.json": writer}
    assert load(write_files(tmp_path, files) / "line").run("x") == "Echo: x"
    agents = {"writer": Agent("writer", "Write.", "offline/echo")}
    loaded = load(team, agents=agents)
    assert loaded.to_blueprint()["steps"] == [
        {"type": "Agent", "name": "writer"}
    ]


def _places(value: Any) -> Iterator[Any]:
    yield value
    for inner in value.values() if isinstance(value, dict) else ():
        yield from _places(inner)
    for inner in value if isinstance(value, list) else ():
        yield from _places(inner)


def test_data_keeps_its_form() -> None:
    """Arguments, inputs and notes that look like steps are data, and nothing is added to them."""
    looks = {"agent": "a", "steps": [{"agent": "b"}]}
    step = {"function": "f", "arguments": looks}
    blueprint = {"name": "w", "metadata": looks, "steps": [step]}
    whole = with_types(blueprint)
    assert whole["metadata"] == looks
    assert whole["steps"][0]["arguments"] == looks
    assert sum("type" in place for place in _places(whole) if place) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_an_explicit_blueprint_stays(kind: str) -> None:
    """Nothing is added to a blueprint as the specification has it, and its digest is as before."""
    assert with_types(BLUEPRINTS[kind]) == BLUEPRINTS[kind]
