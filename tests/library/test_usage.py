"""What a run used, summed exactly, and what it may use."""

import asyncio
import functools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from podwright import Agent, FunctionModel, Pipeline, RunLimits, Usage
from podwright.errors import ConfigurationError
from podwright.result import parse_usage
from podwright.testing import ModelResponse

STEP = 10**12
TOP = 1000 * STEP
"""1000 USD in steps of 1e-12."""

steps = st.integers(0, TOP)
counts = st.integers(0, 10**9)


def calls(cost: st.SearchStrategy[float | None]) -> st.SearchStrategy[Usage]:
    """Usages of single calls to one of three models."""
    used = st.builds(
        Usage, counts, counts, cached_input_tokens=counts, reasoning_tokens=counts, cost=cost
    )  # fmt: skip
    return st.builds(Usage.as_call, used, st.sampled_from(["a/x", "b/y", "c/z"]))


priced = calls(steps.map(lambda number: number / STEP))
any_calls = calls(st.none() | steps.map(lambda number: number / STEP))


@given(any_calls, any_calls, any_calls)
def test_a_sum_is_the_same_in_every_order(a: Usage, b: Usage, c: Usage) -> None:
    """Adding usages is associative and commutative, to the last 1e-12 USD, for each model too."""
    assert (a + b) + c == a + (b + c) == (c + a) + b
    assert a + b == b + a
    assert a + Usage() == Usage() + a == a


@settings(max_examples=60)
@given(st.lists(st.integers(0, TOP // 20), max_size=20), st.randoms())
def test_money_is_exact(amounts: list[int], random: Any) -> None:
    """A sum of amounts in steps of 1e-12 USD is exact, in whatever order."""
    usages = [Usage(cost=amount / STEP) for amount in amounts]
    random.shuffle(usages)
    assert functools.reduce(Usage.__add__, usages, Usage()).cost == sum(amounts) / STEP


def test_a_hundred_thousand_cents_make_a_thousand_dollars() -> None:
    """Small amounts do not get lost in a large sum, as they do with plain floats."""
    small, total = Usage(cost=0.01), Usage(cost=0.0)
    for _ in range(100_000):
        total += small
    assert total.cost == 1000.0
    assert sum([0.01] * 100_000) != 1000.0


@given(st.lists(any_calls, max_size=6))
def test_the_models_add_up_to_the_whole(used: list[Usage]) -> None:
    """The entries by model sum to the total, and a total cost is unknown exactly if that of some model is."""
    total = functools.reduce(Usage.__add__, used, Usage())
    apart = functools.reduce(Usage.__add__, total.by_model.values(), Usage())
    assert Usage(**{**fields(total), "by_model": {}}) == apart
    assert total.model_calls == len(used)
    assert total.unpriced_model_calls == sum(one.cost is None for one in used)
    assert (total.cost is None) == (total.unpriced_model_calls > 0)
    assert all(not one.by_model for one in total.by_model.values())
    assert total.total_tokens == total.input_tokens + total.output_tokens


def fields(usage: Usage) -> dict[str, Any]:
    return {name: getattr(usage, name) for name in Usage.__dataclass_fields__}


@given(st.lists(any_calls, max_size=6))
def test_usage_goes_through_json_and_back(used: list[Usage]) -> None:
    """A usage written as JSON is read back the same, to the last digit."""
    total = functools.reduce(Usage.__add__, used, Usage(tool_calls=2))
    data = total.to_dict()
    assert parse_usage(json.loads(json.dumps(data, allow_nan=False))) == total
    assert ("by_model" in data) == bool(used)


def test_usage_says_all_it_knows() -> None:
    """The JSON of a usage has every field, so that a reader need not guess what an absent one means."""
    assert Usage().to_dict() == {
        "input_tokens": 0,
        "output_tokens": 0,
        "cached_input_tokens": 0,
        "reasoning_tokens": 0,
        "model_calls": 0,
        "tool_calls": 0,
        "unpriced_model_calls": 0,
        "cost": 0.0,
    }


@pytest.mark.parametrize(
    "data", [None, 5, [], {"input_tokens": "many"}, {"cost": "1 USD"}, {"by_model": {"a/x": 5}}, {"by_model": []}]
)
def test_what_is_no_usage_is_refused(data: Any) -> None:
    """Data that is no usage is refused by the reader; a trace with it is an error of the trace."""
    with pytest.raises(ValidationError):
        parse_usage(data)


def test_usage_cannot_be_changed() -> None:
    """A usage is a fact: adding makes a new one, and nothing is shared that could be changed."""
    one = Usage(input_tokens=1).as_call("a/x")
    both = one + Usage(input_tokens=2).as_call("a/x")
    assert one.by_model["a/x"].input_tokens == 1
    assert both.by_model["a/x"].input_tokens == 3
    with pytest.raises(AttributeError):
        one.input_tokens = 5  # pyright: ignore[reportAttributeAccessIssue]


def test_an_unknown_price_is_unknown() -> None:
    """A call of unknown price makes the cost of the run unknown, never 0, and is counted."""
    prices = iter([0.5, None, 0.25])

    class Priced(FunctionModel):
        def price(self, usage: Usage) -> float | None:
            return None

    def answer(request: Any) -> ModelResponse:
        return ModelResponse("x", usage=Usage(input_tokens=3, output_tokens=1, cost=next(prices)))

    model = Priced(answer, name="vendor/model")
    line = Pipeline("line", [Agent(name, "", model) for name in "abc"])
    result = line.run("x", trace=True)
    assert result.usage.cost is None
    assert line.last_usage.cost is None
    assert (result.usage.model_calls, result.usage.unpriced_model_calls) == (3, 1)
    assert result.usage.total_tokens == 12
    assert [event.usage.cost for event in result.events if event.type == "run_finished"] == [0.5, None, 0.25, None]


def test_last_usage_has_a_cost() -> None:
    """After a run, an agent's `last_usage` has a numeric `cost` (spec §2.6); before one it is nothing used."""
    agent = Agent("guide", "", "offline/echo")
    assert agent.last_usage == Usage()
    agent.run("x")
    assert agent.last_usage.cost == 0.0
    assert agent.last_usage.model_calls == 1
    assert list(agent.last_usage.by_model) == ["offline/echo"]


# --- limits


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"tokens": -1}, "RunLimits.tokens is a whole number, 0 or more, not -1."),
        ({"tokens": 1.5}, "RunLimits.tokens is a whole number, 0 or more, not 1.5."),
        ({"tokens": "100"}, "RunLimits.tokens is a whole number, 0 or more, not '100'."),
        ({"model_calls": True}, "RunLimits.model_calls is a whole number, 0 or more, not True."),
        ({"model_calls": []}, "RunLimits.model_calls is a whole number, 0 or more, not []."),
        ({"cost": -0.01}, "RunLimits.cost is a number, 0 or more, not -0.01."),
        ({"cost": float("nan")}, "RunLimits.cost is a number, 0 or more, not nan."),
        ({"cost": False}, "RunLimits.cost is a number, 0 or more, not False."),
        ({"wall_time": "1 min"}, "RunLimits.wall_time is a number, 0 or more, not '1 min'."),
        ({"wall_time": -5}, "RunLimits.wall_time is a number, 0 or more, not -5."),
    ],
)
def test_a_limit_is_a_number(limits: dict[str, Any], message: str) -> None:
    """A limit that is no number of the right kind, or below 0, is one clear error."""
    with pytest.raises(ConfigurationError) as caught:
        RunLimits(**limits)
    assert caught.value.message == message
    assert caught.value.suggestion


def test_limits_may_be_anything_from_nothing_to_endless() -> None:
    """0 allows nothing, None and infinity everything; whole numbers will do for seconds and money."""
    assert RunLimits() == RunLimits(None, None, None, None)
    assert RunLimits(wall_time=1, model_calls=0, tokens=10**12, cost=0).cost == 0
    endless = RunLimits(wall_time=float("inf"), cost=float("inf"))
    assert asyncio.run(Agent("guide", "", "offline/echo", limits=endless).arun("x")) == "Echo: x"


@pytest.mark.parametrize("limits", [{"tokens": 5}, 5, "all"])
def test_limits_are_an_object(limits: Any) -> None:
    """What is given as `limits` but is none is refused when the component is made."""
    with pytest.raises(ConfigurationError, match="'limits' takes an object of class RunLimits"):
        Agent("guide", "", "offline/echo", limits=limits)
