"""The changes between two blueprints."""

import copy
from typing import Any

import pytest
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
)

from podwright.blueprints.diff import blueprint_changes

COMPATIBLE = False
BREAKING = True
FUNCTION = "/tools/0/schema/function"
PARAMETERS = f"{FUNCTION}/parameters/properties"
APPROVAL: Json = {"type": "approval_step", "name": "ask", "message": ""}
WORD: Json = {"type": "string", "description": "A word."}
TAKES: Json = {
    **AGENT,
    "inputs": {"word": {**WORD}, "tone": {**WORD, "default": "dry"}},
    "limits": {"tokens": 100},
    "config": {
        **AGENT["config"],
        "response_schema": {
            "type": "object",
            "properties": {"title": {**WORD}},
        },
    },
}
CALLS: Json = {
    "name": "calls",
    "steps": [
        {
            "type": "try_step",
            "name": "try",
            "steps": [
                {
                    "type": "function_step",
                    "name": "look",
                    "function": "look",
                    "arguments": {"output": "{input}", "title": {"a": 1}},
                },
            ],
            "catch": [APPROVAL],
        },
    ],
}
ASKS: Json = {
    "name": "asks",
    "steps": [
        {
            **APPROVAL,
            "options": ["approve", "reject", "later"],
            "edit": {"title": {**WORD}},
            "on_reject": [{**APPROVAL, "name": "title"}],
        }
    ],
}
TRIED = "/steps/try/steps/look"
CHANGES: list[tuple[Json, str, Any, str, bool]] = [
    # blueprint, what is changed there, pointer of the change (empty for none), whether it breaks callers
    (AGENT, "/description", "New.", "/description", COMPATIBLE),
    (AGENT, "/version", "1", "", COMPATIBLE),
    (AGENT, "/config/max_loops", 5.0, "", COMPATIBLE),
    (AGENT, "/metadata", {"type": 1}, "/metadata", COMPATIBLE),
    (
        {**AGENT, "metadata": {"type": 1}},
        "/metadata/type",
        2,
        "/metadata/type",
        COMPATIBLE,
    ),
    (
        {**AGENT, "config": {"x": {"until": 1}}},
        "/config/x/until",
        2,
        "/config/x/until",
        COMPATIBLE,
    ),
    (AGENT, "/tools", REMOVED, "/tools/forecast", COMPATIBLE),
    (AGENT, "/tools/0/on_error", "fail", "/tools/forecast/on_error", BREAKING),
    (AGENT, "/tools/0/timeout", 5, "/tools/forecast/timeout", COMPATIBLE),
    ({**AGENT, "tools": []}, "/tools", REMOVED, "", COMPATIBLE),
    (AGENT, "/tools/1", {**TOOL, "name": "title"}, "/tools/title", BREAKING),
    (
        AGENT,
        f"{FUNCTION}/description",
        "d",
        "/tools/forecast/schema/function/description",
        COMPATIBLE,
    ),
    (
        AGENT,
        f"{PARAMETERS}/city/type",
        "integer",
        PARAMETERS.replace("0", "forecast") + "/city/type",
        BREAKING,
    ),
    (
        AGENT,
        f"{PARAMETERS}/days/examples",
        [1],
        PARAMETERS.replace("0", "forecast") + "/days/examples",
        COMPATIBLE,
    ),
    (
        edited(AGENT, f"{PARAMETERS}/title", {}),
        f"{PARAMETERS}/title",
        REMOVED,
        PARAMETERS.replace("0", "forecast") + "/title",
        BREAKING,
    ),
    (
        WORKFLOW,
        "/steps",
        [APPROVAL, *WORKFLOW["steps"]],
        "/steps/ask",
        BREAKING,
    ),
    (WORKFLOW, "/steps", WORKFLOW["steps"][::-1], "/steps", BREAKING),
    (WORKFLOW, "/steps/0/agent", "poet", "/steps/write/agent", BREAKING),
    (WORKFLOW, "/steps/0/input", "{input}", "/steps/write/input", COMPATIBLE),
    (WORKFLOW, "/steps/0/type", "approval_step", "/steps/write/type", BREAKING),
    (
        EVERY_STEP,
        "/steps/1/condition/name",
        "x",
        "/steps/check/condition/name",
        BREAKING,
    ),
    (EVERY_STEP, "/steps/1/else", [], "/steps/check/else/again", BREAKING),
    (
        EVERY_STEP,
        "/steps/2/branches/1",
        [APPROVAL],
        "/steps/both/branches/1",
        BREAKING,
    ),
    (
        EVERY_STEP,
        "/steps/3/max_iterations",
        3,
        "/steps/loop/max_iterations",
        COMPATIBLE,
    ),
    (
        EVERY_STEP,
        "/steps/3/on_exhausted",
        "fail",
        "/steps/loop/on_exhausted",
        BREAKING,
    ),
    (
        EVERY_STEP,
        "/steps/5/workflow/steps/0/agent",
        "poet",
        "/steps/nest/workflow/steps/w/agent",
        BREAKING,
    ),
    # inputs
    (AGENT, "/inputs", {"word": WORD}, "/inputs", BREAKING),
    (TAKES, "/inputs/new", WORD, "/inputs/new", BREAKING),
    (TAKES, "/inputs/title", WORD, "/inputs/title", BREAKING),
    (
        TAKES,
        "/inputs/output",
        {**WORD, "default": ""},
        "/inputs/output",
        COMPATIBLE,
    ),
    (TAKES, "/inputs/tone", REMOVED, "/inputs/tone", BREAKING),
    (TAKES, "/inputs/word/type", "number", "/inputs/word/type", BREAKING),
    (TAKES, "/inputs/word/maxLength", 9, "/inputs/word/maxLength", BREAKING),
    (TAKES, "/inputs/word/default", "", "/inputs/word/default", COMPATIBLE),
    (
        TAKES,
        "/inputs/tone/default",
        REMOVED,
        "/inputs/tone/default",
        BREAKING,
    ),
    (
        TAKES,
        "/inputs/tone/default",
        "wry",
        "/inputs/tone/default",
        COMPATIBLE,
    ),
    (
        TAKES,
        "/inputs/tone/description",
        "A tone.",
        "/inputs/tone/description",
        COMPATIBLE,
    ),
    # the form of the answer
    (
        AGENT,
        "/config/response_schema",
        {"type": "object"},
        "/config/response_schema",
        BREAKING,
    ),
    (
        TAKES,
        "/config/response_schema",
        REMOVED,
        "/config/response_schema",
        BREAKING,
    ),
    (
        TAKES,
        "/config/response_schema/properties/title/type",
        "integer",
        "/config/response_schema/properties/title/type",
        BREAKING,
    ),
    (
        TAKES,
        "/config/response_schema/properties/title",
        REMOVED,
        "/config/response_schema/properties/title",
        BREAKING,
    ),
    (
        TAKES,
        "/config/response_schema/properties/title/description",
        "It.",
        "/config/response_schema/properties/title/description",
        COMPATIBLE,
    ),
    (
        WORKFLOW,
        "/steps/0/response_schema",
        {"type": "object"},
        "/steps/write/response_schema",
        BREAKING,
    ),
    (
        PIPELINE,
        "/steps/0/config",
        {"response_schema": {"type": "object"}},
        "/steps/writer/config/response_schema",
        BREAKING,
    ),
    (
        CONDUCTOR,
        "/skills/0/config",
        {"response_schema": {"type": "object"}},
        "/skills/writer/config/response_schema",
        COMPATIBLE,
    ),
    # decisions
    (ASKS, "/steps/0/options/3", "never", "/steps/ask/options/3", COMPATIBLE),
    (ASKS, "/steps/0/options", REMOVED, "/steps/ask/options/2", BREAKING),
    (ASKS, "/steps/0/options/2", "never", "/steps/ask/options/2", BREAKING),
    (ASKS, "/steps/0/edit/note", WORD, "/steps/ask/edit/note", COMPATIBLE),
    (ASKS, "/steps/0/edit", REMOVED, "/steps/ask/edit/title", BREAKING),
    (
        ASKS,
        "/steps/0/edit/title/type",
        "number",
        "/steps/ask/edit/title/type",
        BREAKING,
    ),
    (
        ASKS,
        "/steps/0/edit/title/description",
        "It.",
        "/steps/ask/edit/title/description",
        COMPATIBLE,
    ),
    (
        ASKS,
        "/steps/0/on_reject",
        REMOVED,
        "/steps/ask/on_reject",
        BREAKING,
    ),
    (
        ASKS,
        "/steps/0/on_reject/0/message",
        "Why?",
        "/steps/ask/on_reject/title/message",
        COMPATIBLE,
    ),
    (
        AGENT,
        f"{PARAMETERS}/scale",
        {"type": "string", "default": "celsius"},
        PARAMETERS.replace("0", "forecast") + "/scale",
        COMPATIBLE,
    ),
    (
        AGENT,
        f"{PARAMETERS}/days/default",
        9,
        PARAMETERS.replace("0", "forecast") + "/days/default",
        COMPATIBLE,
    ),
    (
        AGENT,
        f"{FUNCTION}/parameters/required",
        ["days", "city"],
        f"{FUNCTION.replace('0', 'forecast')}/parameters/required/days",
        BREAKING,
    ),
    (
        AGENT,
        f"{FUNCTION}/parameters/required",
        REMOVED,
        f"{FUNCTION.replace('0', 'forecast')}/parameters/required/city",
        COMPATIBLE,
    ),
    (AGENT, "/tools/0/approval", True, "/tools/forecast/approval", BREAKING),
    # limits
    (AGENT, "/limits", {"cost": 1}, "/limits/cost", BREAKING),
    (TAKES, "/limits", REMOVED, "/limits/tokens", COMPATIBLE),
    (TAKES, "/limits/tokens", 99, "/limits/tokens", BREAKING),
    (TAKES, "/limits/tokens", 101, "/limits/tokens", COMPATIBLE),
    (
        WORKFLOW,
        "/steps/0/limits",
        {"seconds": 5},
        "/steps/write/limits/seconds",
        BREAKING,
    ),
    # functions and failures
    (
        CALLS,
        "/steps/0/steps/0/function",
        "see",
        f"{TRIED}/function",
        BREAKING,
    ),
    (CALLS, "/steps/0/steps/0/output", "x", f"{TRIED}/output", BREAKING),
    (
        CALLS,
        "/steps/0/steps/0/arguments/type",
        "x",
        f"{TRIED}/arguments/type",
        BREAKING,
    ),
    (
        CALLS,
        "/steps/0/steps/0/arguments/title",
        REMOVED,
        f"{TRIED}/arguments/title",
        BREAKING,
    ),
    (
        CALLS,
        "/steps/0/steps/0/arguments/output",
        "x",
        f"{TRIED}/arguments/output",
        COMPATIBLE,
    ),
    (
        CALLS,
        "/steps/0/steps/0/arguments/title/b",
        "x",
        f"{TRIED}/arguments/title/b",
        COMPATIBLE,
    ),
    (CALLS, "/steps/0/retries", 2, "/steps/try/retries", COMPATIBLE),
    (CALLS, "/steps/0/catch", REMOVED, "/steps/try/catch/ask", BREAKING),
    (
        CALLS,
        "/steps/0/catch/0/message",
        "Go on?",
        "/steps/try/catch/ask/message",
        COMPATIBLE,
    ),
    (
        CALLS,
        "/steps/0/catch/0",
        {**APPROVAL, "type": "agent_step"},
        "/steps/try/catch/ask/type",
        BREAKING,
    ),
    (
        CONDUCTOR,
        "/skills/1",
        {"type": "Agent", "name": "b"},
        "/skills/b",
        BREAKING,
    ),
    (
        CONDUCTOR,
        "/skills/0/tools",
        [TOOL],
        "/skills/writer/tools/forecast",
        BREAKING,
    ),
]


@pytest.mark.parametrize(
    ("before", "after", "pointer"),
    [
        ([], {}, ""),
        ([{"name": "a"}], {"a": {"name": "a"}}, ""),
        ([{"name": ["a"]}], [{"name": ["b"]}], "/0/name/0"),
        ({"config": {}}, {}, "/config"),
        ({}, {"options": ["approve", "reject"]}, "/options"),
        ({"a": {"tools": []}}, {"a": {}}, "/a/tools"),
    ],
)
def test_data_is_compared_exactly(
    before: Any, after: Any, pointer: str
) -> None:
    """In an argument, no value stands for another one, whatever its name is."""
    place = "/steps/0/steps/0/arguments/title"
    (change,) = blueprint_changes(
        edited(CALLS, place, before), edited(CALLS, place, after)
    )
    assert change.pointer == f"{TRIED}/arguments/title{pointer}"


def test_a_parameter_called_edit() -> None:
    """A key that may be absent elsewhere is a parameter like any other."""
    place = f"{PARAMETERS}/edit"
    (change,) = blueprint_changes(AGENT, edited(AGENT, place, {}))
    assert change.op == "added"


@pytest.mark.parametrize(
    ("old", "place", "value", "pointer", "breaking"), CHANGES
)
def test_a_change_is_breaking_or_compatible(
    old: Json, place: str, value: Any, pointer: str, breaking: bool
) -> None:
    """A change is listed once, with its place by name, and whether those who call or deploy must act."""
    new = edited(old, place, value)
    before = copy.deepcopy((old, new))
    changes = blueprint_changes(old, new)
    assert [(change.pointer, change.breaking) for change in changes] == (
        [(pointer, breaking)] if pointer else []
    )
    reverse = {"added": "removed", "removed": "added", "changed": "changed"}
    assert [
        (change.pointer, reverse[change.op])
        for change in blueprint_changes(new, old)
    ] == [(change.pointer, change.op) for change in changes]
    assert (old, new) == before


def test_a_change_has_both_values() -> None:
    """A change has the value before and after, and None where there is none."""
    (change,) = blueprint_changes(AGENT, edited(AGENT, "/config/model", "a/b"))
    assert (change.op, change.old, change.new) == (
        "changed",
        "openai/gpt-4o-mini",
        "a/b",
    )
    assert str(change) == "compatible: /config/model changed"
    (change,) = blueprint_changes(AGENT, edited(AGENT, "/description", "New."))
    assert (change.op, change.old, change.new) == ("added", None, "New.")


def test_another_kind_is_one_breaking_change() -> None:
    """Blueprints of two kinds differ in their type only."""
    (change,) = blueprint_changes(AGENT, WORKFLOW)
    assert (change.pointer, change.old, change.new, change.breaking) == (
        "/type",
        "agent",
        "workflow",
        True,
    )


def test_blueprints_are_compared_in_the_current_version() -> None:
    """Both sides are migrated before they are compared."""
    old = {**CONDUCTOR, "version": "0", "config": {"model": "a/b"}}
    new = {
        **CONDUCTOR,
        "version": "1",
        "config": {"model": "a/b", "planning": False},
    }
    assert blueprint_changes(old, new) == []
