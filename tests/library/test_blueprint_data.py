"""Blueprints as data: their digest, what changed between two, and their text."""

import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.library.shapes import (
    AGENT,
    CONDUCTOR,
    DROP,
    EVERY_STEP,
    PIPELINE,
    TOOL,
    WORKFLOW,
    Json,
    edited,
    refused,
)
from tests.library.strategies import valid

from podwright import (
    BlueprintValidationError,
    blueprints,
)
from podwright.text import short_repr

# --- digest


def test_a_digest_is_of_the_content() -> None:
    """The digest is a sha256 that neither the order of keys nor the way a number is written changes."""
    digest = blueprints.digest(AGENT)
    assert digest.startswith("sha256:")
    assert len(digest) == len("sha256:") + 64
    assert digest == blueprints.digest(dict(reversed(AGENT.items())))
    one, same = ({"config": {"temperature": number}} for number in (1, 1.0))
    assert blueprints.digest(one) == blueprints.digest(same)
    assert blueprints.digest({"a": 0.0}) == blueprints.digest({"a": -0.0})
    assert blueprints.digest({"a": "é"}) != blueprints.digest({"a": "e\u0301"}), "no normalisation"
    assert blueprints.digest({"a": 1}) != blueprints.digest({"a": True})
    assert blueprints.digest({"a": 1}) != blueprints.digest({"a": "1"})
    assert blueprints.digest({"a": [1, 2]}) != blueprints.digest({"a": [2, 1]})
    assert blueprints.digest({"a": None}) != blueprints.digest({})


def test_digests_are_frozen() -> None:
    """Deployments compare digests, so the digest of a blueprint stays what it was."""
    known = "sha256:015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862"
    assert blueprints.digest({"a": 1}) == known
    assert blueprints.digest({"é": ["🚀", 1.0, 0.1, None, True]}) == (
        "sha256:6c58be3334300bcf3f32266548dddfc9f2f77bdbf4b949f3b39dd3e13fa6fa56"
    )


# --- diff

COMPATIBLE, BREAKING = False, True
CHANGES: list[tuple[Json, str, Any, list[tuple[str, str, bool]]]] = [
    # blueprint, place, value there, the changes: where, what, breaking
    (AGENT, "/name", "other", [("/name", "changed", BREAKING)]),
    (AGENT, "/instructions", "Else.", [("/instructions", "changed", COMPATIBLE)]),
    (AGENT, "/description", "New.", [("/description", "added", COMPATIBLE)]),
    (AGENT, "/type", "Agent", []),
    (AGENT, "/version", "1", []),
    (AGENT, "/config/model", "a/b", [("/config/model", "changed", COMPATIBLE)]),
    (AGENT, "/config/max_loops", DROP, [("/config/max_loops", "removed", COMPATIBLE)]),
    (AGENT, "/config/max_loops", 5.0, []),
    (AGENT, "/config/temperature", 0.5, [("/config/temperature", "added", COMPATIBLE)]),
    (AGENT, "/tools", [], [("/tools/forecast", "removed", COMPATIBLE)]),
    (AGENT, "/tools", DROP, [("/tools/forecast", "removed", COMPATIBLE)]),
    ({**AGENT, "tools": []}, "/tools", DROP, []),
    (AGENT, "/tools/1", {**TOOL, "name": "other"}, [("/tools/other", "added", BREAKING)]),
    (AGENT, "/tools/1", {**TOOL, "name": "title"}, [("/tools/title", "added", BREAKING)]),
    (AGENT, "/tools/0/schema/function/description", "d",
     [("/tools/forecast/schema/function/description", "added", COMPATIBLE)]),
    (AGENT, "/tools/0/schema/function/parameters/properties/city/type", "integer",
     [("/tools/forecast/schema/function/parameters/properties/city/type", "changed", BREAKING)]),
    (AGENT, "/tools/0/schema/function/parameters/properties/city/description", "Where.",
     [("/tools/forecast/schema/function/parameters/properties/city/description", "added", COMPATIBLE)]),
    (AGENT, "/tools/0/schema/function/parameters/properties/days/examples", [1],
     [("/tools/forecast/schema/function/parameters/properties/days/examples", "added", COMPATIBLE)]),
    (AGENT, "/tools/0/schema/function/parameters/properties/days", DROP,
     [("/tools/forecast/schema/function/parameters/properties/days", "removed", BREAKING)]),
    (AGENT, "/tools/0/schema/function/parameters/properties/title", {"type": "string"},
     [("/tools/forecast/schema/function/parameters/properties/title", "added", BREAKING)]),
    (AGENT, "/tools/0/schema/function/parameters/properties/else", {"type": "string"},
     [("/tools/forecast/schema/function/parameters/properties/else", "added", BREAKING)]),
    (AGENT, "/tools/0/schema/function/parameters/properties/description", {"type": "string"},
     [("/tools/forecast/schema/function/parameters/properties/description", "added", BREAKING)]),
    (AGENT, "/tools/0/schema/function/parameters/required", ["city", "days"],
     [("/tools/forecast/schema/function/parameters/required/1", "added", BREAKING)]),
    (WORKFLOW, "/steps/1", DROP, [("/steps/review", "removed", BREAKING)]),
    (WORKFLOW, "/steps", [{"type": "approval_step", "name": "ask", "message": ""}, *WORKFLOW["steps"]],
     [("/steps/ask", "added", BREAKING)]),
    (WORKFLOW, "/steps", [{"type": "approval_step", "name": "description", "message": ""}, *WORKFLOW["steps"]],
     [("/steps/description", "added", BREAKING)]),
    (WORKFLOW, "/steps", WORKFLOW["steps"][::-1], [("/steps", "changed", BREAKING)]),
    (WORKFLOW, "/steps/0/agent", "poet", [("/steps/write/agent", "changed", BREAKING)]),
    (WORKFLOW, "/steps/0/output", "draft", [("/steps/write/output", "added", BREAKING)]),
    (WORKFLOW, "/steps/0/input", "{input}", [("/steps/write/input", "added", COMPATIBLE)]),
    (WORKFLOW, "/steps/0/type", "approval_step", [("/steps/write/type", "changed", BREAKING)]),
    (EVERY_STEP, "/steps/1/condition/name", "x", [("/steps/check/condition/name", "changed", BREAKING)]),
    (EVERY_STEP, "/steps/1/then/0/message", "Really?", [("/steps/check/then/ask/message", "changed", COMPATIBLE)]),
    (EVERY_STEP, "/steps/1/else", DROP, [("/steps/check/else/again", "removed", BREAKING)]),
    (EVERY_STEP, "/steps/1/else", [], [("/steps/check/else/again", "removed", BREAKING)]),
    (EVERY_STEP, "/steps/2/branches/1", [{"type": "approval_step", "name": "b", "message": ""}],
     [("/steps/both/branches/1", "added", BREAKING)]),
    (EVERY_STEP, "/steps/2/branches/0/1", {"type": "approval_step", "name": "b", "message": ""},
     [("/steps/both/branches/0/b", "added", BREAKING)]),
    (EVERY_STEP, "/steps/3/until/args/value", "x", [("/steps/loop/until/args/value", "changed", BREAKING)]),
    (EVERY_STEP, "/steps/3/max_iterations", 9, [("/steps/loop/max_iterations", "changed", COMPATIBLE)]),
    (EVERY_STEP, "/steps/4/over", "lines", [("/steps/map/over", "changed", BREAKING)]),
    (EVERY_STEP, "/steps/4/max_concurrency", 9, [("/steps/map/max_concurrency", "changed", COMPATIBLE)]),
    (EVERY_STEP, "/steps/5/workflow/steps/0/agent", "poet",
     [("/steps/nest/workflow/steps/w/agent", "changed", BREAKING)]),
    (CONDUCTOR, "/config/planning", False, [("/config/planning", "changed", COMPATIBLE)]),
    (CONDUCTOR, "/skills/1", {"type": "Agent", "name": "b"}, [("/skills/b", "added", BREAKING)]),
    (CONDUCTOR, "/skills/0/instructions", "Else.", [("/skills/writer/instructions", "changed", COMPATIBLE)]),
    (CONDUCTOR, "/skills/0/tools", [], []),
    (CONDUCTOR, "/skills/0/tools", [TOOL], [("/skills/writer/tools/forecast", "added", BREAKING)]),
    (PIPELINE, "/steps/0", DROP, [("/steps/writer", "removed", BREAKING)]),
    (PIPELINE, "/steps", PIPELINE["steps"][::-1], [("/steps", "changed", BREAKING)]),
    (PIPELINE, "/steps/1/tools/1", {**TOOL, "name": "other"}, [("/steps/reviewer/tools/other", "added", BREAKING)]),
    (PIPELINE, "/config", DROP, [("/config", "removed", COMPATIBLE)]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "place", "value", "expected"),
    CHANGES,
    ids=[f"{number}-{row[0]['name']}{row[1]}" for number, row in enumerate(CHANGES)],
)
def test_a_change_is_breaking_or_compatible(
    old: Json, place: str, value: Any, expected: list[tuple[str, str, bool]]
) -> None:
    """Each change is told once, with its place by name, and whether those who deploy or call must act."""
    new = edited(old, place, value)
    before = copy.deepcopy((old, new))
    changes = blueprints.diff(old, new)
    assert [(one.pointer, one.op, one.breaking) for one in changes] == expected
    assert [str(one) for one in changes] == [
        f"{'breaking' if breaking else 'compatible'}: {pointer} {op}" for pointer, op, breaking in expected
    ]
    assert (old, new) == before
    back = {"added": "removed", "removed": "added", "changed": "changed"}
    assert [(one.pointer, one.op) for one in blueprints.diff(new, old)] == [(at, back[op]) for at, op, _ in expected]


def test_a_change_tells_both_values() -> None:
    """A change carries the value before and after, None where there was none."""
    (change,) = blueprints.diff(AGENT, edited(AGENT, "/config/model", "a/b"))
    assert (change.old, change.new) == ("openai/gpt-4o-mini", "a/b")
    (change,) = blueprints.diff(AGENT, edited(AGENT, "/description", "New."))
    assert (change.old, change.new) == (None, "New.")


def test_another_kind_is_one_breaking_change() -> None:
    """A component that becomes one of another kind has one change, of its type."""
    (change,) = blueprints.diff(AGENT, WORKFLOW)
    assert (change.pointer, change.op, change.old, change.new, change.breaking) == (
        "/type", "changed", "agent", "workflow", True,
    )  # fmt: skip


def test_a_difference_of_versions_is_none() -> None:
    """Both sides are compared in today's schema version."""
    old = {**CONDUCTOR, "version": "0", "config": {"model": "a/b"}}
    new = {**CONDUCTOR, "version": "1", "config": {"model": "a/b", "planning": False}}
    assert blueprints.diff(old, new) == []


@settings(max_examples=100)
@given(data=st.data())
def test_a_difference_looks_the_same_from_both_sides(data: st.DataObject) -> None:
    """No blueprint differs from itself, and whatever two differ in, the way back has the same places."""
    kind = data.draw(st.sampled_from(list(valid)))
    one, other = data.draw(valid[kind]), data.draw(valid[kind])
    assert blueprints.diff(one, one) == []
    there, back = blueprints.diff(one, other), blueprints.diff(other, one)
    assert sorted(change.pointer for change in there) == sorted(change.pointer for change in back)
    assert all(change.old != change.new for change in there)


# --- text and files


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON: Expecting value"),
        ("{", "not JSON: Expecting property name"),
        ('{"a": 1, "a": 2}', "not JSON: the key 'a' stands twice in one object."),
        ('{"x": {"b": 1, "c": 2, "b": 1}}', "not JSON: the key 'b' stands twice"),
        ('{"a": NaN}', "not JSON: NaN is not a JSON number."),
        ('{"a": -Infinity}', "not JSON: -Infinity is not a JSON number."),
        ("{'a': 1}", "not JSON: Expecting property name"),
        ('{"a": 1} {"b": 2}', "not JSON: Extra data"),
        (b'{"a": "\xff"}', "not JSON: 'utf-8' codec"),
        ('{"a": ' + "9" * 5000 + "}", "not JSON: Exceeds the limit"),
        ("[" * 100_000, "nested far too deep."),
    ],
)  # fmt: skip
def test_what_is_no_json_is_refused(text: str | bytes, reason: str) -> None:
    """A text that is no JSON, or says a thing twice, is one problem."""
    (problem,) = refused(lambda: blueprints.from_json(text))
    assert problem.detail.startswith(reason)
    assert problem.suggestion


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: [1", "not YAML: while parsing"),
        ("a: 1\na: 2", "not YAML: the key 'a' stands twice in one object."),
        ("x:\n  b: 1\n  b: 1", "not YAML: the key 'b' stands twice"),
        ("a: &x [1]\nb: *x", "not YAML: aliases (*name) are not allowed"),
        ("a: !!python/object/apply:os.system [ls]", "not YAML: could not determine a constructor"),
        ("a: !custom 1", "not YAML: could not determine a constructor"),
        ("--- 1\n--- 2", "not YAML: expected a single document"),
        (b"a: \xff", "not YAML: unacceptable character"),
        ("a: \x00", "not YAML: unacceptable character"),
        ("a: 2020-99-99", "not YAML: month must be in 1..12"),
        ("? [1, 2]\n: 3", "not YAML: while constructing a mapping"),
        ("[" * 3000, "nested far too deep."),
        ('b: !!int ""', "not YAML: "),
        ("b: !!bool x", "not YAML: "),
        ("b: !!timestamp x", "not YAML: "),
        ("a: 0x" + "f" * 6000, "not YAML: an integer has more than 4300 digits."),
        ("a: 1" + ":59" * 5000, "not YAML: an integer has more than 4300 digits."),
        ("a: 1" + ":59" * 5000 + ".5", "not YAML: "),
        ("<<: {a: 1}", "not YAML: could not determine a constructor"),
        ("a: {<<: [1], b: 2}", "not YAML: could not determine a constructor"),
    ],
    ids=short_repr,
)
def test_what_is_no_yaml_is_refused(text: str | bytes, reason: str) -> None:
    """A text that is no YAML, or more than data, is one problem; nothing in it runs."""
    (problem,) = refused(lambda: blueprints.from_yaml(text))
    assert problem.detail.startswith(reason), problem.detail
    assert problem.suggestion


@pytest.mark.parametrize(
    ("text", "pointer"),
    [("a: 2020-01-01", "/a"), ("a: .nan", "/a"), ("1: x", ""), ("a: !!binary aGk=", "/a"), ("a: !!set {x}", "/a")],
)
def test_yaml_that_is_no_json_is_refused_when_checked(text: str, pointer: str) -> None:
    """YAML's dates, sets, binaries and keys that are numbers are no blueprint data."""
    found = blueprints.problems(blueprints.from_yaml(text))
    assert [problem.pointer for problem in found] == [pointer]


def test_yaml_writes_what_it_can_read() -> None:
    """Data that holds one object twice is written out twice, for aliases are refused."""
    shared = {"type": "approval_step", "name": "ask", "message": ""}
    whole = {"name": "w", "steps": [shared, shared]}
    assert blueprints.from_yaml(blueprints.to_yaml(whole)) == whole
    assert "\n" in blueprints.to_yaml(whole)
    assert "ü" in blueprints.to_yaml({"name": "ü"})
    assert "ü" in blueprints.to_json({"name": "ü"})


@pytest.mark.parametrize("suffix", [".json", ".yaml", ".yml", ".JSON"])
def test_a_file_is_read_by_its_name(tmp_path: Path, suffix: str) -> None:
    """JSON and YAML files load, with a byte order mark or without."""
    write = blueprints.to_json if suffix.lower() == ".json" else blueprints.to_yaml
    for encoding in ("utf-8", "utf-8-sig"):
        file = tmp_path / f"blueprint{suffix}"
        file.write_text(write(AGENT), encoding=encoding)
        assert blueprints.read_file(file) == AGENT


@pytest.mark.parametrize("text", ["[]", "5", '"text"', "null"])
def test_a_file_holds_an_object(tmp_path: Path, text: str) -> None:
    """A file whose JSON is no object is refused with its name."""
    (tmp_path / "one.json").write_text(text)
    with pytest.raises(BlueprintValidationError, match=r"one\.json.*is invalid"):
        blueprints.read_file(tmp_path / "one.json")
