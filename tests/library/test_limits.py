"""Limits hold over parallel branches, nested components and failed calls."""

import asyncio
import contextlib
from typing import Any

import pytest
from tests.library.shapes import says
from tests.library.upstream import Upstream, completion, reply

from podwright import Agent, RunLimits, Workflow
from podwright.components import AgentStep, ParallelStep
from podwright.errors import (
    ConfigurationError,
    LimitExceededError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelError,
    ModelResponseError,
)
from podwright.models import Connection, registry
from podwright.models.offline.offline import estimate_input
from podwright.models.protocols.openai_compatible import ChatModel
from podwright.models.providers import ENDPOINTS
from podwright.models.retries import Retries
from podwright.run.budget import Budget, CallReservation
from podwright.testing import (
    FunctionModel,
    ModelRequest,
    ModelResponse,
    ScriptedModel,
    ToolCall,
    Usage,
)

BRANCHES = 8
PER_TOKEN = 1e-6
INPUT = 3 + (4 + 2) + (4 + 1)
"""Estimated input tokens of each request: 3, 4 a message, and 1 for four letters."""


class MeteredModel(FunctionModel):
    """Uses the output tokens that it may use, or fewer; counts the most tokens that were used or reserved at once."""

    def __init__(self, output: int | None = None, priced: bool = True) -> None:
        super().__init__(self.answer, name="offline/metered")
        self.output = output
        self.priced = priced
        self.allowed: list[int] = []
        self.reserved = 0
        self.most = 0

    def cost(self, usage: Usage) -> float | None:
        return (
            (usage.input_tokens + 2 * usage.output_tokens) * PER_TOKEN
            if self.priced
            else None
        )

    async def answer(self, request: ModelRequest) -> ModelResponse:
        allowed = request.settings.get("max_tokens", 0)
        needed = estimate_input(request)
        self.allowed.append(allowed)
        self.reserved += needed + allowed
        self.most = max(self.most, self.reserved)
        await asyncio.sleep(0)  # so that parallel calls overlap
        output = allowed if self.output is None else min(self.output, allowed)
        self.reserved -= allowed - output
        used = Usage(needed, output)
        cut = allowed < 100 and output == allowed
        usage = Usage(needed, output, cost=self.cost(used))
        return ModelResponse(
            "x", usage=usage, finish_reason="length" if cut else "stop"
        )


def parallel(
    model: FunctionModel, limits: RunLimits, **options: Any
) -> Workflow:
    """Eight parallel branches, each with an agent that asks for 100 output tokens."""
    branches = [
        [Agent(f"agent{number}", "Work.", model, max_tokens=100)]
        for number in range(BRANCHES)
    ]
    return Workflow(
        "parallel", [ParallelStep(branches)], limits=limits, **options
    )


def stopped(component: Any) -> LimitExceededError:
    with pytest.raises(LimitExceededError) as caught:
        component.run("?")
    return caught.value


OVER_BRANCHES: dict[str, tuple[RunLimits, list[int]]] = {
    # the limit, and the output tokens that each call may use: the last call gets what is left
    "model_calls": (RunLimits(model_calls=3), [100, 100, 100]),
    "tokens": (
        RunLimits(tokens=3 * (INPUT + 100) + INPUT + 40),
        [100, 100, 100, 40],
    ),
    "cost": (
        RunLimits(
            cost=2 * (INPUT + 200) * PER_TOKEN + (INPUT + 101) * PER_TOKEN
        ),
        [100, 100, 50],
    ),
}


@pytest.mark.parametrize("name", OVER_BRANCHES)
def test_a_limit_holds_over_branches(
    name: str, recorder: Any, assert_sound: Any
) -> None:
    """Of eight parallel branches as many calls begin as the limit allows, and use it up to the last token."""
    limits, allowed = OVER_BRANCHES[name]
    model = MeteredModel()
    error = stopped(parallel(model, limits, event_manager=recorder.manager))
    assert error.limit == name
    assert model.allowed == allowed
    assert error.usage is not None
    assert error.usage.total_tokens == sum(INPUT + output for output in allowed)
    assert (
        error.usage.model_calls
        == len(recorder.of("model_call_started"))
        == len(allowed)
    )
    assert_sound(recorder.events)


def test_calls_take_turns_when_only_their_worst_cases_do_not_fit() -> None:
    """Calls wait for what others reserved, and all succeed if they use less."""
    limit = BRANCHES * (INPUT + 10) + 90
    model = MeteredModel(output=10)
    result = parallel(model, RunLimits(tokens=limit)).run("?", trace=True)
    assert result.usage.total_tokens == BRANCHES * (INPUT + 10)
    assert model.allowed == [100] * BRANCHES
    assert model.most <= limit


@pytest.mark.parametrize(
    ("limit", "value"), [("tokens", INPUT), ("model_calls", 0), ("cost", 0)]
)
def test_a_call_without_anything_left_does_not_begin(
    limit: str, value: int
) -> None:
    """A call that cannot have even one output token is refused; with one token it begins."""
    model = MeteredModel()
    error = stopped(
        Workflow(
            "flow",
            [Agent("a", "Work.", model)],
            limits=RunLimits(**{limit: value}),
        )
    )
    assert (error.limit, error.usage, model.allowed) == (limit, Usage(), [])
    stopped(Agent("a", "Work.", model, limits=RunLimits(tokens=INPUT + 1)))
    assert model.allowed == [1]


def test_a_limit_of_cost_needs_a_known_price() -> None:
    """A model of unknown price is refused with a limit of cost, a free one allowed; without it the cost is unknown."""
    model = MeteredModel(output=10, priced=False)
    assert (
        stopped(Agent("a", "Work.", model, limits=RunLimits(cost=100))).limit
        == "cost"
    )
    assert model.allowed == []
    result = Agent("a", "Work.", model, max_tokens=100).run("?", trace=True)
    assert (result.usage.cost, result.usage.unpriced_model_calls) == (None, 1)
    assert (
        Agent("a", "Work.", ScriptedModel("yes"), limits=RunLimits(cost=0)).run(
            "?"
        )
        == "yes"
    )


@pytest.mark.parametrize(("outer", "inner"), [(2, 9), (9, 2)])
def test_the_tighter_of_nested_limits_holds(outer: int, inner: int) -> None:
    """The limits of a nested component hold besides those of the run around it."""

    def ping() -> str:
        """Ping."""
        return "pong"

    model = FunctionModel(lambda _: ToolCall.of("ping"))
    agent = Agent(
        "inner",
        "Work.",
        model,
        tools=[ping],
        limits=RunLimits(model_calls=inner),
    )
    error = stopped(
        Workflow("outer", [agent], limits=RunLimits(model_calls=outer))
    )
    assert error.usage is not None
    assert error.usage.model_calls == 2


def test_each_run_of_a_component_has_its_own_limits() -> None:
    """A component's own limits begin anew with each of its runs, nested or not."""
    agent = Agent("a", "Work.", says("ok"), limits=RunLimits(model_calls=1))
    flow = Workflow(
        "flow",
        [AgentStep(agent, "one"), AgentStep(agent, "two", output="other")],
    )
    assert set(flow.run("?")) == {"input", "a_output", "other"}
    assert agent.run("?") == agent.run("?") == "ok"


def test_a_limit_of_wall_time_stops_a_nested_component(
    recorder: Any, assert_sound: Any, outlast: Any
) -> None:
    """A nested component that takes too long fails, and so does the run around it."""
    slow = Agent(
        "slow",
        "Work.",
        FunctionModel(lambda _: outlast()),
        limits=RunLimits(wall_time=60),
    )
    error = stopped(
        Workflow(
            "flow",
            [slow],
            limits=RunLimits(wall_time=7200),
            event_manager=recorder.manager,
        )
    )
    assert (error.limit, error.component) == ("wall_time", "slow")
    assert_sound(recorder.events)


@pytest.mark.parametrize(("calls", "enough"), [(4, True), (3, False)])
def test_a_failed_call_counts_as_a_call_and_uses_no_tokens(
    calls: int, enough: bool
) -> None:
    """A failed call counts towards the model calls; the tokens reserved for it are free again."""
    helper = Agent("helper", "Work.", ScriptedModel(ValueError("no"), "yes"))

    async def ask() -> str:
        """Ask, and again after a failure."""
        with contextlib.suppress(ModelError):
            return await helper.arun("?")
        return await helper.arun("?")

    model = ScriptedModel(ToolCall.of("ask"), "end")
    agent = Agent(
        "a",
        "Work.",
        model,
        tools=[ask],
        limits=RunLimits(model_calls=calls, tokens=4400),
    )
    assert (
        agent.run("?") == "end"
        if enough
        else stopped(agent).limit == "model_calls"
    )


def test_a_call_that_inner_limits_refuse_does_not_count() -> None:
    """A call that was refused by the limits of a nested component was not made."""
    helper = Agent(
        "helper", "Work.", ScriptedModel("never"), limits=RunLimits(tokens=1)
    )

    async def ask() -> str:
        """Ask, and ignore the limit."""
        with contextlib.suppress(LimitExceededError):
            await helper.arun("?")
        return "done"

    model = ScriptedModel(ToolCall.of("ask"), "end")
    assert (
        Agent(
            "a", "Work.", model, tools=[ask], limits=RunLimits(model_calls=2)
        ).run("?")
        == "end"
    )


@pytest.mark.parametrize(
    "limits",
    [
        {"tokens": -1}, {"tokens": 1.5}, {"tokens": "100"}, {"model_calls": True}, {"cost": -0.01},
        {"cost": float("nan")}, {"cost": False}, {"wall_time": "1 min"}, {"wall_time": -5},
    ],
    ids=str,
)  # fmt: skip
def test_a_limit_is_a_number_of_at_least_0(limits: dict[str, Any]) -> None:
    """Any other value is a ConfigurationError that names the limit."""
    with pytest.raises(ConfigurationError, match=next(iter(limits))):
        RunLimits(**limits)


def test_limits_may_be_infinite_but_not_a_dictionary() -> None:
    """Infinity and None are no limit; `limits` takes only a RunLimits object."""
    assert RunLimits(wall_time=float("inf"), cost=float("inf")) == RunLimits()
    with pytest.raises(ConfigurationError, match="limits"):
        Agent("guide", "", "offline/echo", limits={"tokens": 5})  # pyright: ignore[reportArgumentType]


REJECTED = completion(
    "",
    usage={
        "prompt_tokens": 1000,
        "completion_tokens": 4000,
        "total_tokens": 5000,
    },
)


@pytest.mark.parametrize(
    ("limits", "answers"),
    [
        ({"model_calls": 1}, 1),
        ({"model_calls": 2}, 2),
        ({"tokens": 5000}, 1),
        ({"tokens": 10_000}, 2),
        ({"cost": 0.06}, 2),
        ({}, 3),
    ],
    ids=str,
)
@pytest.mark.usefixtures("list_prices")
async def test_answers_that_are_rejected_count(
    provider: Upstream, limits: dict[str, Any], answers: int
) -> None:
    """An answer that cannot be used is billed: it counts, and another attempt needs what is left for it."""
    provider.answers([reply(REJECTED)])
    model = ChatModel(
        "openai/gpt-4o", Connection("k", provider.url), ENDPOINTS["openai"]
    )
    model.retries = Retries(first_wait=0.001)
    model.load_prices()
    expected = LimitExceededError if limits else ModelResponseError
    agent = Agent("guide", "", model, limits=RunLimits(**limits))
    with pytest.raises(expected):
        await agent.arun("Hello?")
    assert len(provider.requests) == answers
    assert agent.last_usage
    assert agent.last_usage.total_tokens == 5000 * answers
    assert agent.last_usage.cost == pytest.approx(0.0425 * answers)


async def test_a_rejected_answer_counts_once(provider: Upstream) -> None:
    """Of three calls, one is used up by an answer that was rejected."""
    provider.answers([reply(REJECTED)], [reply(completion("Ciao."))])
    model = ChatModel(
        "openai/gpt-4o", Connection("k", provider.url), ENDPOINTS["openai"]
    )
    model.retries = Retries(first_wait=0.001)
    agent = Agent("guide", "", model)
    workflow = Workflow(
        "two",
        [agent, AgentStep("guide")],
        agents={"guide": agent},
        limits=RunLimits(model_calls=2),
    )
    with pytest.raises(LimitExceededError):
        await workflow.arun("Hello?")
    assert len(provider.requests) == 2


@pytest.mark.usefixtures("list_prices")
@pytest.mark.parametrize(
    ("limits", "requests"),
    [
        ({"tokens": 6000}, 2),
        ({"cost": 0.05}, 2),
        ({"model_calls": 1}, 3),
        ({}, 3),
    ],
    ids=str,
)
async def test_what_was_never_counted_stays_reserved(
    provider: Upstream, limits: dict[str, Any], requests: int
) -> None:
    """Nobody knows what an attempt has used whose connection was lost: the next ones have what is left for certain."""
    provider.answers(["reset"])
    model = ChatModel(
        "openai/gpt-4o", Connection("k", provider.url), ENDPOINTS["openai"]
    )
    model.retries = Retries(first_wait=0.001)
    agent = Agent("guide", "", model, limits=RunLimits(**limits))
    with pytest.raises((LimitExceededError, ModelConnectionError)):
        await agent.arun("Hello?")
    assert len(provider.requests) == requests
    assert agent.last_usage
    assert agent.last_usage.uncounted_model_calls == requests
    assert agent.last_usage.cost is None


async def test_what_is_known_of_an_unknown_cost_counts() -> None:
    """A call of which a part has no price has used the rest, also if an earlier attempt of the run made it."""
    partly = Usage(
        10,
        cost=None,
        known_cost=0.9,
        unpriced_model_calls=1,
        incomplete_model_calls=1,
    ).as_call("a/b")
    budget = Budget(RunLimits(cost=1.0))
    budget.count(partly)
    assert budget.used_cost == 0.9
    reservation = CallReservation([budget])
    await reservation.reserve(10, 10, lambda _: 0.05)
    budget.settle(reservation, partly, 1)
    assert budget.used_cost == 1.8


async def test_thoughts_and_writes_are_reserved() -> None:
    """The dearest that an answer may be is held back, whatever makes it so."""
    rates = {"reasoning_tokens": 3.0, "cache_write_1h_tokens": 2.0}

    def cost(usage: Usage) -> float:
        return sum(rate * getattr(usage, name) for name, rate in rates.items())

    reservation = CallReservation([Budget(RunLimits(cost=1000.0))])
    await reservation.reserve(10, 10, cost)
    assert reservation.cost == 50.0


async def test_a_call_keeps_its_slot_for_the_next_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Calls that a fallback goes on with do not make room for others meanwhile."""
    begun = 0

    class Refuses(FunctionModel):
        async def complete(self, request: Any, on_token: Any = None) -> Any:
            nonlocal begun
            begun += 1
            await asyncio.sleep(0)
            error = ModelError("no")
            raise ModelAuthenticationError("no") from error

    async def answer(_: Any) -> ModelResponse:
        await asyncio.sleep(0)
        return ModelResponse("done", usage=Usage(10, 10, cost=0.0))

    models = {
        "first": Refuses(answer, name="slots/first"),
        "second": FunctionModel(answer, name="slots/second"),
    }
    monkeypatch.setitem(
        registry._providers, "slots", lambda name, _: models[name]
    )
    agents = [
        Agent(
            f"a{number}",
            "Help.",
            "slots/first",
            fallback=["slots/second"],
            max_tokens=50,
        )
        for number in range(8)
    ]
    branches = [[AgentStep(agent)] for agent in agents]
    flow = Workflow(
        "flow",
        [ParallelStep(branches, "all")],
        limits=RunLimits(model_calls=2, tokens=150),
    )
    with pytest.raises(LimitExceededError):
        await flow.arun("?")
    assert begun == 2
