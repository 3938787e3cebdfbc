"""Conditions: the built-in ones with JSON arguments, and the caller's functions, referred to by name."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
from tests.library.shapes import Json, events, problems_of, says

from podwright import Agent, ConditionStep, Workflow
from podwright.conditions import BUILT_IN, holds, problems
from podwright.errors import (
    ConditionError,
    ConfigurationError,
    ContextError,
    LimitExceededError,
)

CONTEXT: Json = {
    "input": "  The Moon ",
    "score": "7.5",
    "empty": " \n",
    "list": ["a", "b"],
    "template": "{score}",
}
YES: Json = {"name": "is_empty", "args": {"value": ""}}
NO: Json = {"name": "is_empty", "args": {"value": "x"}}
FAILS: Json = {"name": "greater_than", "args": {"value": "x", "than": 1}}
MINE: Json = {"name": "mine"}


def negated(condition: Json) -> Json:
    return {"name": "not", "args": {"condition": condition}}


BUILT_INS: list[tuple[str, Json, bool]] = [
    ("equals", {"value": "{input}", "to": "The Moon"}, True),
    ("equals", {"value": True, "to": "true"}, True),
    ("equals", {"value": "{template}", "to": "7.5"}, False),
    ("not_equals", {"value": "{score}", "to": "7.5"}, False),
    ("contains", {"value": "{input}", "text": "moON"}, True),
    ("contains", {"value": "Straße", "text": "STRASSE"}, True),
    ("starts_with", {"value": "{input}", "text": "the"}, True),
    ("one_of", {"value": "{score}", "options": [7, "{score}"]}, True),
    ("greater_than", {"value": "{score}", "than": 7}, True),
    ("greater_than", {"value": "{score}", "than": "7.5"}, False),
    ("less_than", {"value": " 2 ", "than": 10}, True),
    ("is_empty", {"value": "{empty}"}, True),
    ("is_empty", {"value": []}, True),
    ("is_empty", {"value": {}}, True),
    ("is_empty", {"value": None}, True),
    ("all", {"conditions": [YES, YES]}, True),
    ("all", {"conditions": [YES, NO]}, False),
    ("all", {"conditions": [NO, FAILS]}, False),
    ("all", {"conditions": [YES, MINE]}, True),
    ("any", {"conditions": [YES, FAILS]}, True),
    (
        "any",
        {
            "conditions": [
                NO,
                {"name": "all", "args": {"conditions": [YES, negated(MINE)]}},
            ]
        },
        False,
    ),
    ("not", {"condition": YES}, False),
]


@pytest.mark.parametrize(("name", "args", "expected"), BUILT_INS)
async def test_a_built_in_condition_compares_its_arguments(
    name: str, args: Json, expected: bool
) -> None:
    """Arguments are filled from the context in one pass; combinations stop at the first condition that decides."""
    mine = {"mine": lambda context: True}
    assert problems({"name": name, "args": args}, "", mine) == []
    assert await holds({"name": name, "args": args}, CONTEXT, mine) is expected


def test_every_built_in_condition_has_an_example() -> None:
    """The table above has a row for each built-in condition."""
    assert {name for name, _, _ in BUILT_INS} == set(BUILT_IN)


@pytest.mark.parametrize("value", ["many", "", "{list}", True, "x" * 100])
async def test_a_value_that_is_not_a_number_cannot_be_compared(
    value: Any,
) -> None:
    """A comparison with a value that is not a number is a ConditionError with the value, shortened."""
    with pytest.raises(ConditionError, match="numbers") as caught:
        await holds(
            {"name": "less_than", "args": {"value": value, "than": 1}},
            CONTEXT,
            {},
        )
    assert len(caught.value.message) < 120


async def test_an_argument_with_an_unknown_name_is_an_error() -> None:
    """A template in an argument that names what the context lacks is a ContextError with a suggestion."""
    with pytest.raises(ContextError, match="'equals'") as caught:
        await holds(
            {"name": "equals", "args": {"value": "{scor}", "to": "x"}},
            CONTEXT,
            {},
        )
    assert caught.value.suggestion == "Did you mean 'score'?"


INVALID: list[tuple[Any, dict[str, str]]] = [
    # condition; the pointers of its problems, each with a word of the detail or the suggestion
    ({"name": "equals"}, {"/args": "'to'"}),
    (
        {"name": "is_empty", "args": {"valeu": 1}},
        {"/args": "'value'", "/args/valeu": "Did you mean 'value'?"},
    ),
    (
        {"name": "one_of", "args": {"value": "x", "options": "xyz"}},
        {"/args/options": "array"},
    ),
    (
        {"name": "isempty", "args": {"value": 1}},
        {"/name": "Did you mean 'is_empty'?"},
    ),
    ({"name": "urgnt"}, {"/name": "Did you mean 'urgent'?"}),
    (
        {"name": "all", "args": {"conditions": []}},
        {"/args/conditions": "array"},
    ),
    (
        {"name": "any", "args": {"conditions": YES}},
        {"/args/conditions": "array"},
    ),
    (
        {"name": "any", "args": {"conditions": [YES, "x", {"name": "nott"}]}},
        {
            "/args/conditions/1": "'name'",
            "/args/conditions/2/name": "Did you mean 'not'?",
        },
    ),
    (negated({"name": "is_empty", "args": [1]}), {"/args/condition": "'args'"}),
    (negated({**YES, "arg": 1}), {"/args/condition/arg": "'args'"}),
    (negated(negated(MINE)), {"/args/condition/args/condition/name": "'mine'"}),
]


@pytest.mark.parametrize(("condition", "expected"), INVALID)
def test_an_invalid_condition_is_reported_before_the_run(
    condition: Json, expected: dict[str, str]
) -> None:
    """Unknown names and arguments that do not fit are problems of the blueprint, at any depth."""
    step = ConditionStep(condition, then=[Agent("a", "", "offline/echo")])
    found = problems_of(
        lambda: Workflow(
            "flow", [step], conditions={"urgent": lambda context: True}
        )
    )
    assert {
        problem.pointer.removeprefix("/steps/0/condition") for problem in found
    } == set(expected)
    for pointer, word in expected.items():
        assert any(
            problem.pointer.endswith(pointer) and word in str(problem)
            for problem in found
        )


def fork(condition: Any, **conditions: Callable[..., Any]) -> Workflow:
    """A workflow whose context has `yes_output` if the condition holds, and else `no_output`."""
    yes, no = (Agent(name, "", says(name)) for name in ("yes", "no"))
    return Workflow(
        "flow",
        [ConditionStep(condition, then=[yes], else_=[no], name="fork")],
        conditions=conditions,
    )


def goes(context: Json) -> bool:
    return context["input"] == "go"


async def goes_async(context: Json) -> bool:
    """Also changes its copy of the context."""
    return context.pop("input") == "go"


class GoesAsync:
    async def __call__(self, context: Json) -> bool:
        return goes(context)


def matches(context: Json, word: str, options: list[str] | None = None) -> bool:
    assert options in (None, ["{input}"])
    return context["input"] == word


@pytest.mark.parametrize(
    ("args", "condition"),
    [
        (None, goes),
        (None, goes_async),
        (None, GoesAsync()),
        (None, functools.partial(matches, word="go")),
        (None, lambda context: ["truthy"] if goes(context) else ""),
        ({"word": "go", "options": ["{input}"]}, matches),
    ],
    ids=range(6),
)
def test_a_function_of_the_caller_decides(
    args: Json | None, condition: Callable[..., Any]
) -> None:
    """Any callable, async or not, gets a copy of the context, and its arguments unchanged as keywords."""
    flow = fork(
        MINE if args is None else {"name": "mine", "args": args}, mine=condition
    )
    assert flow.run("go") == {"input": "go", "yes_output": "yes"}
    result = flow.run("stop", trace=True)
    assert "no_output" in result.value
    (checked,) = events(result, "condition_checked")
    assert (checked.step, checked.condition, checked.result) == (
        "fork",
        "mine",
        False,
    )


def test_a_function_of_the_caller_replaces_a_built_in_condition() -> None:
    """A condition of the caller wins over the built-in one of the same name."""
    assert "yes_output" in fork(
        {"name": "is_empty"}, is_empty=lambda context: True
    ).run("x")


def test_a_function_is_referred_to_by_its_name() -> None:
    """A function in place of a name is exported by its own name, which must be unique."""
    flow = fork(goes)
    assert flow.to_blueprint()["steps"][0]["condition"] == {"name": "goes"}
    assert flow.conditions == {"goes": goes}
    for nameless in (lambda context: True, 5):
        with pytest.raises(ConfigurationError) as caught:
            fork(nameless)
        assert "def" in caught.value.suggestion
    with pytest.raises(ConfigurationError, match="'goes'"):
        fork(goes, goes=matches)


def test_a_condition_that_raises_ends_the_run_and_can_be_resumed() -> None:
    """An error in a condition is the cause of a ConditionError that names it; arguments that do not fit too."""
    failures: list[Exception] = [KeyError("colour")]

    def mine(context: Json) -> bool:
        if failures:
            raise failures.pop()
        return True

    flow = fork("mine", mine=mine)
    with pytest.raises(ConditionError, match=r"'mine'.*colour") as caught:
        flow.run("go")
    assert isinstance(caught.value.__cause__, KeyError)
    failures.append(LimitExceededError("Of a nested run.", limit="tokens"))
    with pytest.raises(LimitExceededError):
        flow.run("go")
    assert "yes_output" in flow.run(
        caught.value.context, resume_path=caught.value.resume_path
    )
    with pytest.raises(ConditionError, match="TypeError"):
        fork({"name": "goes", "args": {"word": 1}}, goes=goes).run("go")
