"""Blueprints as data: digests, differences, JSON and YAML text, files."""

import copy
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.library.shapes import (
    AGENT,
    CONDUCTOR,
    EVERY_STEP,
    PIPELINE,
    REMOVED,
    TOOL,
    WORKFLOW,
    Json,
    edited,
    problems_of,
)
from tests.library.strategies import valid

from podwright import BlueprintValidationError, blueprints
from podwright.text import short_repr


def test_a_digest_depends_on_the_content_only() -> None:
    """The digest ignores the order of keys and the notation of numbers, and nothing else."""
    assert blueprints.digest(AGENT) == blueprints.digest(dict(reversed(AGENT.items())))
    assert blueprints.digest({"config": {"temperature": 1}}) == blueprints.digest({"config": {"temperature": 1.0}})
    different = [{"a": 1}, {"a": True}, {"a": "1"}, {"a": [1, 2]}, {"a": [2, 1]}, {"a": None}, {}]
    different += [{"a": "é"}, {"a": "e\u0301"}]
    assert len({blueprints.digest(blueprint) for blueprint in different}) == len(different)


def test_digests_stay_the_same_over_releases() -> None:
    """Deployments compare digests, so the digest of a blueprint never changes."""
    assert blueprints.digest({"é": ["🚀", 1.0, 0.1, None, True]}) == (
        "sha256:6c58be3334300bcf3f32266548dddfc9f2f77bdbf4b949f3b39dd3e13fa6fa56"
    )


COMPATIBLE, BREAKING = False, True
FUNCTION = "/tools/0/schema/function"
PARAMETERS = f"{FUNCTION}/parameters/properties"
APPROVAL: Json = {"type": "approval_step", "name": "ask", "message": ""}
CHANGES: list[tuple[Json, str, Any, str, bool]] = [
    # blueprint, what is changed there, pointer of the change (empty for none), whether it breaks callers
    (AGENT, "/name", "other", "/name", BREAKING),
    (AGENT, "/instructions", "Else.", "/instructions", COMPATIBLE),
    (AGENT, "/description", "New.", "/description", COMPATIBLE),
    (AGENT, "/type", "Agent", "", COMPATIBLE),
    (AGENT, "/version", "1", "", COMPATIBLE),
    (AGENT, "/config/max_loops", REMOVED, "/config/max_loops", COMPATIBLE),
    (AGENT, "/config/max_loops", 5.0, "", COMPATIBLE),
    (AGENT, "/tools", REMOVED, "/tools/forecast", COMPATIBLE),
    ({**AGENT, "tools": []}, "/tools", REMOVED, "", COMPATIBLE),
    (AGENT, "/tools/1", {**TOOL, "name": "title"}, "/tools/title", BREAKING),
    (AGENT, f"{FUNCTION}/description", "d", "/tools/forecast/schema/function/description", COMPATIBLE),
    (AGENT, f"{PARAMETERS}/city/type", "integer", PARAMETERS.replace("0", "forecast") + "/city/type", BREAKING),
    (AGENT, f"{PARAMETERS}/days/examples", [1], PARAMETERS.replace("0", "forecast") + "/days/examples", COMPATIBLE),
    (AGENT, f"{PARAMETERS}/title", {}, PARAMETERS.replace("0", "forecast") + "/title", BREAKING),
    (WORKFLOW, "/steps/1", REMOVED, "/steps/review", BREAKING),
    (WORKFLOW, "/steps", [APPROVAL, *WORKFLOW["steps"]], "/steps/ask", BREAKING),
    (WORKFLOW, "/steps", WORKFLOW["steps"][::-1], "/steps", BREAKING),
    (WORKFLOW, "/steps/0/agent", "poet", "/steps/write/agent", BREAKING),
    (WORKFLOW, "/steps/0/output", "draft", "/steps/write/output", BREAKING),
    (WORKFLOW, "/steps/0/input", "{input}", "/steps/write/input", COMPATIBLE),
    (WORKFLOW, "/steps/0/type", "approval_step", "/steps/write/type", BREAKING),
    (EVERY_STEP, "/steps/1/condition/name", "x", "/steps/check/condition/name", BREAKING),
    (EVERY_STEP, "/steps/1/then/0/message", "Really?", "/steps/check/then/ask/message", COMPATIBLE),
    (EVERY_STEP, "/steps/1/else", [], "/steps/check/else/again", BREAKING),
    (EVERY_STEP, "/steps/2/branches/1", [APPROVAL], "/steps/both/branches/1", BREAKING),
    (EVERY_STEP, "/steps/3/max_iterations", 9, "/steps/loop/max_iterations", COMPATIBLE),
    (EVERY_STEP, "/steps/4/over", "lines", "/steps/map/over", BREAKING),
    (EVERY_STEP, "/steps/5/workflow/steps/0/agent", "poet", "/steps/nest/workflow/steps/w/agent", BREAKING),
    (CONDUCTOR, "/skills/1", {"type": "Agent", "name": "b"}, "/skills/b", BREAKING),
    (CONDUCTOR, "/skills/0/tools", [TOOL], "/skills/writer/tools/forecast", BREAKING),
    (CONDUCTOR, "/skills/0/instructions", "Else.", "/skills/writer/instructions", COMPATIBLE),
    (PIPELINE, "/steps/0", REMOVED, "/steps/writer", BREAKING),
    (PIPELINE, "/config", REMOVED, "/config", COMPATIBLE),
]


@pytest.mark.parametrize(("old", "place", "value", "pointer", "breaking"), CHANGES)
def test_a_change_is_breaking_or_compatible(old: Json, place: str, value: Any, pointer: str, breaking: bool) -> None:
    """A change is listed once, with its place by name, and whether those who call or deploy must act."""
    new = edited(old, place, value)
    before = copy.deepcopy((old, new))
    changes = blueprints.diff(old, new)
    assert [(change.pointer, change.breaking) for change in changes] == ([(pointer, breaking)] if pointer else [])
    reverse = {"added": "removed", "removed": "added", "changed": "changed"}
    assert [(change.pointer, reverse[change.op]) for change in blueprints.diff(new, old)] == [
        (change.pointer, change.op) for change in changes
    ]
    assert (old, new) == before


def test_a_change_has_both_values() -> None:
    """A change has the value before and after, and None where there is none."""
    (change,) = blueprints.diff(AGENT, edited(AGENT, "/config/model", "a/b"))
    assert (change.op, change.old, change.new) == ("changed", "openai/gpt-4o-mini", "a/b")
    assert str(change) == "compatible: /config/model changed"
    (change,) = blueprints.diff(AGENT, edited(AGENT, "/description", "New."))
    assert (change.op, change.old, change.new) == ("added", None, "New.")


def test_another_kind_is_one_breaking_change() -> None:
    """Blueprints of two kinds differ in their type only."""
    (change,) = blueprints.diff(AGENT, WORKFLOW)
    assert (change.pointer, change.old, change.new, change.breaking) == ("/type", "agent", "workflow", True)


def test_blueprints_are_compared_in_the_current_version() -> None:
    """Both sides are migrated before they are compared."""
    old = {**CONDUCTOR, "version": "0", "config": {"model": "a/b"}}
    new = {**CONDUCTOR, "version": "1", "config": {"model": "a/b", "planning": False}}
    assert blueprints.diff(old, new) == []


@settings(max_examples=100)
@given(data=st.data())
def test_a_difference_is_the_same_from_both_sides(data: st.DataObject) -> None:
    """A blueprint does not differ from itself; the places where two differ do not depend on their order."""
    kind = data.draw(st.sampled_from(list(valid)))
    left, right = data.draw(valid[kind]), data.draw(valid[kind])
    assert blueprints.diff(left, left) == []
    there, back = blueprints.diff(left, right), blueprints.diff(right, left)
    assert sorted(change.pointer for change in there) == sorted(change.pointer for change in back)
    assert all(change.old != change.new for change in there)


@pytest.mark.parametrize(
    "text", ["", "{", '{"a": NaN}', "{'a': 1}", '{"a": 1} {"b": 2}', b'{"a": "\xff"}', "[" * 100_000], ids=short_repr
)
def test_text_that_is_not_json_is_one_problem(text: str | bytes) -> None:
    """Invalid JSON is one problem with a suggestion."""
    (problem,) = problems_of(lambda: blueprints.from_json(text))
    assert (problem.pointer, bool(problem.suggestion)) == ("", True)
    assert "Invalid JSON" in problem.detail


@pytest.mark.parametrize(
    "text",
    [
        "a: [1", "a: !!python/object/apply:os.system [ls]", "a: !custom 1", "--- 1\n--- 2", b"a: \xff",
        "a: 2020-99-99", "? [1, 2]\n: 3", "[" * 3000, 'b: !!int ""', "b: !!bool x", "b: !!timestamp x",
    ],
    ids=short_repr,
)  # fmt: skip
def test_text_that_is_not_yaml_is_one_problem(text: str | bytes) -> None:
    """Invalid YAML is one problem with a suggestion, and so are tags: nothing in a file is executed."""
    (problem,) = problems_of(lambda: blueprints.from_yaml(text))
    assert (problem.pointer, bool(problem.suggestion)) == ("", True)
    assert "Invalid YAML" in problem.detail


@pytest.mark.parametrize(
    ("text", "pointer"),
    [("a: 2020-01-01", "/a"), ("a: .nan", "/a"), ("1: x", ""), ("a: !!binary aGk=", "/a"), ("a: !!set {x}", "/a")],
)
def test_yaml_values_without_a_json_form_are_problems(text: str, pointer: str) -> None:
    """Dates, sets, binaries and keys that are not strings are not blueprint data."""
    assert [problem.pointer for problem in blueprints.problems(blueprints.from_yaml(text))] == [pointer]


def test_text_is_readable() -> None:
    """JSON and YAML keep non-ASCII letters, and YAML repeats shared data instead of writing aliases."""
    step = {"type": "approval_step", "name": "ü", "message": ""}
    blueprint = {"name": "w", "steps": [step, step]}
    for text in (blueprints.to_json(blueprint), blueprints.to_yaml(blueprint)):
        assert text.count("ü") == 2
        assert len(text.splitlines()) > 5
    with pytest.raises(ValueError, match="nan"):
        blueprints.to_json({"a": math.nan})


@pytest.mark.parametrize("suffix", [".json", ".yaml", ".yml", ".JSON"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_file_is_read_by_its_suffix(tmp_path: Path, suffix: str, encoding: str) -> None:
    """JSON and YAML files are read, with and without a byte order mark, which some editors write."""
    write = blueprints.to_json if suffix.lower() == ".json" else blueprints.to_yaml
    file = tmp_path / f"blueprint{suffix}"
    file.write_text(write({**AGENT, "name": "ü"}), encoding=encoding)
    assert blueprints.read_file(file) == {**AGENT, "name": "ü"}


@pytest.mark.parametrize("text", ["[]", "null", "{"])
def test_a_file_without_an_object_is_invalid(tmp_path: Path, text: str) -> None:
    """A file whose data is not an object is reported with its name."""
    (tmp_path / "list.json").write_text(text)
    with pytest.raises(BlueprintValidationError, match=r"list\.json"):
        blueprints.read_file(tmp_path / "list.json")
