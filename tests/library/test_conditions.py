"""Conditions: the built-in ones with JSON arguments, and the caller's functions, referred to by name."""

import functools
from collections.abc import Callable
from fractions import Fraction
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


LARGE = 2**53
NUMBERS: list[tuple[Any, Fraction | None]] = [
    # what may be compared, and the number that it is; None if it is no number
    (500, Fraction(500)),
    ("500", Fraction(500)),
    (" 7 ", Fraction(7)),
    ("7.0", Fraction(7)),
    (7.0, Fraction(7)),
    (-7, Fraction(-7)),
    ("+.5", Fraction(1, 2)),
    (0.1, Fraction(1, 10)),
    ("0.1", Fraction(1, 10)),
    (0.1 + 0.2, Fraction("0.30000000000000004")),
    (-0.0, Fraction(0)),
    (LARGE, Fraction(LARGE)),
    (LARGE + 1, Fraction(LARGE + 1)),
    (float(LARGE), Fraction(LARGE)),
    (str(LARGE + 1), Fraction(LARGE + 1)),
    (10**30, Fraction(10**30)),
    (1e30, Fraction(10**30)),
    ("1e400", Fraction(10**400)),
    ("1e-400", Fraction(1, 10**400)),
    ("1_000", Fraction(1000)),
    ("٣", Fraction(3)),
    (float("nan"), None),
    (float("inf"), None),
    ("nan", None),
    ("NaN", None),
    ("-inf", None),
    ("Infinity", None),
    ("snan1", None),
    ("1e99999999999999999999", None),
    ("0x10", None),
    ("1,5", None),
    ("", None),
    (True, None),
    (None, None),
    ([1], None),
    ({"a": 1}, None),
]


OPERANDS = {
    "equals": "to",
    "not_equals": "to",
    "one_of": "options",
    "contains": "text",
    "greater_than": "than",
    "less_than": "than",
}


async def compared(name: str, value: Any, other: Any) -> bool | None:
    """The result of a comparison of two values in a context; None if they cannot be compared."""
    operand: Any = "{other}"
    if name == "one_of":
        operand = [operand]
    args = {"value": "{value}", OPERANDS[name]: operand}
    try:
        return await holds(
            {"name": name, "args": args}, {"value": value, "other": other}, {}
        )
    except ConditionError:
        return None


@pytest.mark.parametrize(("value", "number"), NUMBERS, ids=repr)
async def test_numbers_are_compared_exactly(
    value: Any, number: Fraction | None
) -> None:
    """Every value with every other: the order is that of the exact numbers, and what is no number is an error."""
    for other, other_number in NUMBERS:
        greater = less = None
        if number is not None and other_number is not None:
            greater = number > other_number
            less = number < other_number
        assert await compared("greater_than", value, other) is greater, other
        assert await compared("less_than", value, other) is less, other


async def test_a_huge_exponent_is_compared_at_once() -> None:
    """The digits of a number are not written out."""
    order = ["-1e999999999", "1e-999999999", 5, "1e999999998", "1e999999999"]
    for place, value in enumerate(order):
        for larger in order[place + 1 :]:
            assert await compared("less_than", value, larger) is True
            assert await compared("greater_than", value, larger) is False


EQUAL: list[tuple[Any, Any, bool]] = [
    (1, 1.0, True),
    (1, "1", True),
    (1.0, "1", False),
    (1, True, False),
    (0, False, False),
    (True, "true", True),
    (None, "null", True),
    (None, False, False),
    (None, 0, False),
    ("a", " a ", True),
    ("a", "A", False),
    (0.1, "0.1", True),
    ("7.0", 7, False),
    (LARGE, LARGE + 1, False),
    (float(LARGE), LARGE + 1, False),
    (LARGE + 1, str(LARGE + 1), True),
    (1e23, 10**23, True),
    ({"a": 1, "b": [True]}, {"b": [True], "a": 1.0}, True),
    ({"a": 1}, {"a": True}, False),
    ({"a": 1}, {"a": 1, "b": 2}, False),
    ({"a": None}, {"b": None}, False),
    ([1], [True], False),
    ([1, 2], [2, 1], False),
    ([1], [1, 1], False),
    ([], {}, False),
]
"""Two values, and whether they are equal."""


def nested(value: Any, depth: int) -> Any:
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(("value", "other", "expected"), EQUAL, ids=repr)
async def test_what_is_equal_alone_is_equal_in_data(
    value: Any, other: Any, expected: bool
) -> None:
    """One rule for values alone, in lists and in objects, whichever condition asks."""
    wrappers: list[Callable[[Any], Any]] = [
        lambda inner: inner,
        lambda inner: [inner],
        lambda inner: ["x", inner],
        lambda inner: {"key": inner},
        lambda inner: {"key": [{"key": inner}]},
        lambda inner: nested(inner, 90),
    ]
    for wrap in wrappers:
        for left, right in (value, other), (other, value):
            pair = (wrap(left), wrap(right))
            assert await compared("equals", *pair) is expected
            assert await compared("not_equals", *pair) is not expected
            assert await compared("one_of", *pair) is expected
    # without regard to case
    is_contained = expected or value == "a"
    assert await compared("contains", ["x", value], other) is is_contained


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
