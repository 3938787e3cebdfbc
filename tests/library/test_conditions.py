"""Conditions: the built-in ones with JSON arguments, and the caller's own callables, both by name."""

import asyncio
import functools
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tests.library.shapes import Json

from podwright import Agent, ConditionStep, LoopStep, ScriptedModel, Workflow
from podwright.conditions import BUILT_IN, Condition, holds, problems
from podwright.errors import BlueprintValidationError, ConditionError, ConfigurationError, ContextError, Problem
from podwright.testing import events_of

CONTEXT: Json = {"input": "  The Moon ", "score": "7.5", "empty": " \n", "list": ["a", "b"], "sly": "{score}"}


async def check(name: str, args: Json | None = None, conditions: Mapping[str, Condition] | None = None) -> bool:
    ref: Json = {"name": name} if args is None else {"name": name, "args": args}
    assert not list(problems(ref, "", conditions or {}))
    return await holds(ref, CONTEXT, conditions or {})


BUILT_INS: list[tuple[str, Json, bool]] = [
    ("equals", {"value": "{input}", "to": "The Moon"}, True),
    ("equals", {"value": "{input}", "to": "the moon"}, False),
    ("equals", {"value": 1, "to": "1"}, True),
    ("equals", {"value": True, "to": "true"}, True),
    ("equals", {"value": ["a"], "to": '["a"]'}, True),
    ("equals", {"value": "{sly}", "to": "7.5"}, False),
    ("equals", {"value": "{sly}", "to": "{score}"}, False),
    ("not_equals", {"value": "{score}", "to": "7.5"}, False),
    ("not_equals", {"value": "{score}", "to": 7}, True),
    ("contains", {"value": "{input}", "text": "moON"}, True),
    ("contains", {"value": "{input}", "text": "sun"}, False),
    ("contains", {"value": "{input}", "text": ""}, True),
    ("contains", {"value": "Straße", "text": "STRASSE"}, True),
    ("contains", {"value": "{list}", "text": '"b"'}, True),
    ("starts_with", {"value": "{input}", "text": "the"}, True),
    ("starts_with", {"value": "{input}", "text": "moon"}, False),
    ("one_of", {"value": "{input}", "options": ["sun", "The Moon"]}, True),
    ("one_of", {"value": "{score}", "options": [7, "{score}"]}, True),
    ("one_of", {"value": "x", "options": []}, False),
    ("greater_than", {"value": "{score}", "than": 7}, True),
    ("greater_than", {"value": "{score}", "than": "7.5"}, False),
    ("greater_than", {"value": 2, "than": "10"}, False),
    ("less_than", {"value": " 2 ", "than": 10}, True),
    ("less_than", {"value": -1e3, "than": "-999.5"}, True),
    ("is_empty", {"value": "{empty}"}, True),
    ("is_empty", {"value": "{score}"}, False),
    ("is_empty", {"value": []}, False),
    ("all", {"conditions": [{"name": "is_empty", "args": {"value": ""}}]}, True),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args", "expected"), BUILT_INS, ids=range(len(BUILT_INS)))
async def test_a_built_in_condition_needs_no_code(name: str, args: Json, expected: bool) -> None:
    """Each built-in condition compares its arguments, filled from the context in one pass."""
    assert await check(name, args) is expected


def test_every_built_in_condition_is_tried() -> None:
    """The tables of this file have a row for each built-in condition."""
    assert {name for name, _, _ in BUILT_INS} | {"any", "not"} == set(BUILT_IN)


YES: Json = {"name": "is_empty", "args": {"value": ""}}
NO: Json = {"name": "is_empty", "args": {"value": "x"}}
BROKEN: Json = {"name": "greater_than", "args": {"value": "x", "than": 1}}


@pytest.mark.parametrize(
    ("ref", "expected"),
    [
        ({"name": "all", "args": {"conditions": [YES, YES]}}, True),
        ({"name": "all", "args": {"conditions": [YES, NO]}}, False),
        ({"name": "all", "args": {"conditions": [NO, BROKEN]}}, False),
        ({"name": "any", "args": {"conditions": [NO, NO]}}, False),
        ({"name": "any", "args": {"conditions": [NO, YES]}}, True),
        ({"name": "any", "args": {"conditions": [YES, BROKEN]}}, True),
        ({"name": "not", "args": {"condition": YES}}, False),
        ({"name": "not", "args": {"condition": NO}}, True),
        (
            {"name": "not", "args": {"condition": {"name": "any", "args": {"conditions": [
                NO, {"name": "all", "args": {"conditions": [YES, {"name": "not", "args": {"condition": YES}}]}},
            ]}}}},
            True,
        ),
        ({"name": "all", "args": {"conditions": [YES, {"name": "mine"}]}}, True),
    ],
    ids=range(10),
)  # fmt: skip
async def test_conditions_combine(ref: Json, expected: bool) -> None:
    """`all`, `any` and `not` nest, hold the caller's conditions too, and stop at the first that decides."""

    def mine(context: Json) -> bool:
        return True

    assert not list(problems(ref, "", {"mine": mine}))
    assert await holds(ref, CONTEXT, {"mine": mine}) is expected


@pytest.mark.parametrize("value", ["many", "", "1 point", "{list}", True, None, "x" * 100])
async def test_what_is_no_number_cannot_be_compared(value: Any) -> None:
    """A comparison of something that is no number fails with what it was given, cut to a length."""
    with pytest.raises(ConditionError, match="A condition compares numbers, but was given '") as caught:
        await check("less_than", {"value": value, "than": 1})
    assert len(caught.value.message) < 120


async def test_an_argument_may_not_ask_for_what_is_not_there() -> None:
    """A template in an argument that names what the context lacks is an error with a suggestion."""
    with pytest.raises(ContextError) as caught:
        await check("equals", {"value": "{scor}", "to": "x"})
    assert caught.value.message == "Condition 'equals' asks for '{scor}', which the context does not have."
    assert caught.value.suggestion == "Did you mean 'score'?"


AT = "/steps/0/condition"
WRONG: list[tuple[Any, list[tuple[str, str, str]]]] = [
    ({"name": "equals"}, [
        ("/args", "the condition 'equals' needs the argument 'value'.", ""),
        ("/args", "the condition 'equals' needs the argument 'to'.", ""),
    ]),
    ({"name": "is_empty", "args": {"valeu": 1}}, [
        ("/args", "the condition 'is_empty' needs the argument 'value'.", ""),
        ("/args/valeu", "the condition 'is_empty' has no argument 'valeu'.", "Did you mean 'value'?"),
    ]),
    ({"name": "is_empty", "args": {"value": 1, "a/b": 1}}, [
        ("/args/a~1b", "the condition 'is_empty' has no argument 'a/b'.", "Known names: value."),
    ]),
    ({"name": "one_of", "args": {"value": "x", "options": "xyz"}}, [("/args/options", "expected an array.", "")]),
    ({"name": "isempty", "args": {"value": 1}}, [
        ("/name", "no condition called 'isempty' was given, nor is one built in.", "Did you mean 'is_empty'?"),
    ]),
    ({"name": "all"}, [("/args", "the condition 'all' needs the argument 'conditions'.", "")]),
    ({"name": "all", "args": {"conditions": []}}, [
        ("/args/conditions", "expected an array of at least one condition.", ""),
    ]),
    ({"name": "any", "args": {"conditions": None}}, [
        ("/args/conditions", "expected an array of at least one condition.", ""),
    ]),
    ({"name": "any", "args": {"conditions": YES}}, [
        ("/args/conditions", "expected an array of at least one condition.", ""),
    ]),
    ({"name": "any", "args": {"conditions": [YES, "x", {"name": "nott"}]}}, [
        ("/args/conditions/1", "a condition is an object with a 'name'.", ""),
        ("/args/conditions/2/name", "no condition called 'nott' was given, nor is one built in.", "Did you mean"),
    ]),
    ({"name": "not", "args": {"condition": None}}, [
        ("/args/condition", "a condition is an object with a 'name'.", ""),
    ]),
    ({"name": "not", "args": {"condition": {"name": 5}}}, [
        ("/args/condition", "a condition is an object with a 'name'.", ""),
    ]),
    ({"name": "not", "args": {"condition": {"name": "is_empty", "args": [1]}}}, [
        ("/args/condition/args", "expected an object.", ""),
    ]),
    ({"name": "not", "args": {"condition": {**YES, "arg": 1}}}, [
        ("/args/condition/arg", "unknown key 'arg'.", "Did you mean 'args'?"),
    ]),
    ({"name": "not", "args": {"condition": {"name": "mine"}}}, [
        ("/args/condition/name", "no condition called 'mine' was given, nor is one built in.", "Known names: equals"),
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("ref", "expected"), WRONG, ids=range(len(WRONG)))
def test_wrong_references_are_refused_before_a_run(ref: Json, expected: list[tuple[str, str, str]]) -> None:
    """A name that nobody knows, and arguments that do not fit, are problems of the blueprint, at any depth."""
    with pytest.raises(BlueprintValidationError) as caught:
        Workflow("flow", [ConditionStep(ref, then=[Agent("a", "", "offline/echo")])])
    found = caught.value.problems
    assert [(one.pointer, one.detail) for one in found] == [(AT + at, detail) for at, detail, _ in expected]
    for problem, (_, _, suggestion) in zip(found, expected, strict=True):
        assert problem.suggestion.startswith(suggestion)
        assert bool(problem.suggestion) == bool(suggestion)


def test_a_missing_callable_is_asked_for() -> None:
    """A condition that the caller did not give is told with the nearest name, given or built in."""
    step = {"type": "condition_step", "name": "c", "condition": {"name": "urgnt"}, "then": []}
    with pytest.raises(BlueprintValidationError) as caught:
        Workflow.from_blueprint({"name": "w", "steps": [step]}, conditions={"urgent": lambda context: True})
    assert caught.value.problems == (
        Problem(f"{AT}/name", "no condition called 'urgnt' was given, nor is one built in.", "Did you mean 'urgent'?"),
    )


def flow(condition: Any, **given: Callable[..., Any]) -> Workflow:
    """A workflow that says which way it went."""
    yes, no = (Agent(name, "", ScriptedModel(*[name] * 9)) for name in ("yes", "no"))
    return Workflow("flow", [ConditionStep(condition, then=[yes], else_=[no], name="fork")], conditions=given)


def sync(context: Json) -> bool:
    return context["input"] == "go"


async def not_sync(context: Json) -> bool:
    return context["input"] == "go"


class Object:
    def __call__(self, context: Json) -> bool:
        return context["input"] == "go"


class AsyncObject:
    async def __call__(self, context: Json) -> bool:
        return context["input"] == "go"


def with_args(context: Json, word: str, options: list[str] | None = None) -> bool:
    return context["input"] == word


@pytest.mark.parametrize(
    ("args", "condition"),
    [
        (None, sync),
        (None, not_sync),
        (None, Object()),
        (None, AsyncObject()),
        (None, functools.partial(with_args, word="go")),
        (None, lambda context: ["truthy"] if context["input"] == "go" else ""),
        ({"word": "go", "options": ["{input}"]}, with_args),
    ],
    ids=range(7),
)
def test_the_callers_condition_decides(args: Json | None, condition: Callable[..., Any]) -> None:
    """A callable, blocking or async, is given the context, and its arguments as keywords; its answer is a yes or no."""
    ref: Json = {"name": "mine"} if args is None else {"name": "mine", "args": args}
    made = flow(ref, mine=condition)
    assert "yes_output" in made.run("go")
    result = made.run("stop", trace=True)
    assert "no_output" in result.value
    (checked,) = events_of(result, "condition_checked")
    assert (checked.step, checked.condition, checked.result) == ("fork", "mine", False)  # pyright: ignore[reportAttributeAccessIssue]


def test_arguments_of_a_callable_are_given_as_they_are() -> None:
    """Templates in the arguments of the caller's own condition are his own business."""
    seen: list[Any] = []

    def mine(context: Json, **args: Any) -> bool:
        seen.append(args)
        return True

    flow({"name": "mine", "args": {"a": "{input}", "b": [None, 1]}}, mine=mine).run("go")
    assert seen == [{"a": "{input}", "b": [None, 1]}]


def test_a_callable_comes_before_a_built_in_condition() -> None:
    """A condition that the caller calls as a built-in one is his."""
    assert "yes_output" in flow({"name": "is_empty"}, is_empty=lambda context: True).run("x")


def test_a_function_is_known_by_its_name() -> None:
    """A function given in place of a name is kept under its own; a lambda has none."""
    made = flow(sync)
    assert made.to_blueprint()["steps"][0]["condition"] == {"name": "sync"}
    assert made.conditions == {"sync": sync}
    assert flow("sync", sync=sync).to_blueprint() == made.to_blueprint()
    for nameless in (lambda context: True, 5):
        with pytest.raises(ConfigurationError, match="A condition is a named function") as caught:
            flow(nameless)
        assert "def" in caught.value.suggestion

    def other(context: Json) -> bool:
        return True

    other.__name__ = "sync"
    with pytest.raises(ConfigurationError, match="Two different conditions are called 'sync'"):
        flow(other, sync=sync)


def test_a_condition_that_raises_ends_the_run() -> None:
    """An error in a condition is told with its name, and is the cause; the workflow can go on from there."""
    failing = [True]

    def mine(context: Json) -> bool:
        if failing:
            raise KeyError("colour")
        return True

    made = flow("mine", mine=mine)
    with pytest.raises(ConditionError) as caught:
        made.run("go")
    error = caught.value
    assert error.message == "Condition 'mine' raised KeyError: 'colour'"
    assert isinstance(error.__cause__, KeyError)
    assert error.resume_path == [0]
    failing.clear()
    assert "yes_output" in made.run(error.context, resume_path=error.resume_path)


class SpeechlessError(Exception):
    """Its text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    "error",
    [SpeechlessError(), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError()],
    ids=repr,
)
@pytest.mark.parametrize("way", ["sync", "async"])
def test_whatever_a_condition_raises_ends_the_run(error: BaseException, way: str) -> None:
    """An exception of any class in a condition is a ConditionError, and later runs go on."""

    def mine(context: Json) -> bool:
        raise error

    async def mine_too(context: Json) -> bool:
        raise error

    made = flow("mine", mine=mine if way == "sync" else mine_too)
    for _ in range(2):
        with pytest.raises(ConditionError, match=type(error).__name__):
            made.run("go")


async def test_options_are_filled_one_by_one() -> None:
    """Of many long options, only those before the one that fits are filled in."""
    args = {"value": "{input}", "options": ["{input}", *["{missing}"] * 20_000]}
    assert await holds({"name": "one_of", "args": args}, {"input": "x"}, {})


def test_a_condition_with_other_parameters_ends_the_run() -> None:
    """Arguments that a callable does not take are an error of the condition."""
    with pytest.raises(ConditionError, match="Condition 'sync' raised TypeError"):
        flow({"name": "sync", "args": {"word": "x"}}, sync=sync).run("go")


def test_a_condition_cannot_change_the_context() -> None:
    """Whatever a condition does to the context it is given, at any depth, the workflow's own stays as it was."""

    def meddle(context: Json) -> bool:
        context["input"] = "changed"
        context["notes"]["deep"].append("changed")
        del context["other"]
        return True

    async def meddle_too(context: Json) -> bool:
        return meddle(context)

    for condition in (meddle, meddle_too):
        value = flow("mine", mine=condition).run({"input": "go", "notes": {"deep": ["x"]}, "other": "kept"})
        assert value == {"input": "go", "notes": '{"deep": ["x"]}', "other": "kept", "yes_output": "yes"}


def test_a_loop_asks_after_each_round() -> None:
    """A loop's condition sees what the round wrote, and ends the loop when it holds."""
    seen: list[str] = []

    def done(context: Json) -> bool:
        seen.append(context["writer_output"])
        return len(seen) == 3

    writer = Agent("writer", "", ScriptedModel("one", "two", "three", "four"))
    value = Workflow("flow", [LoopStep([writer], until=done)]).run("go")
    assert seen == ["one", "two", "three"]
    assert value["writer_output"] == "three"
