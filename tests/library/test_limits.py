"""Limits hold exactly, whatever runs at once: reserve the worst case, call, settle."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, cast

import pytest

from podwright import (
    Agent,
    AgentStep,
    Event,
    FunctionModel,
    LimitExceededError,
    ParallelStep,
    RunLimits,
    ScriptedModel,
    Usage,
    Workflow,
)
from podwright.budget import Budget
from podwright.errors import ConfigurationError, ModelError
from podwright.models.offline import estimate_input
from podwright.testing import ModelRequest, ModelResponse, ToolCall

Sound = Callable[[list[Event]], None]

BRANCHES = 8
PER_TOKEN = 1e-6


class Meter(FunctionModel):
    """Uses just what it is allowed, or less; knows how many tokens were ever used or under way at once."""

    def __init__(self, output: int | None = None, priced: bool = True) -> None:
        super().__init__(self.answer, name="offline/meter")
        self.output = output
        self.priced = priced
        self.allowed: list[int] = []
        self.worst = 0
        self.most = 0

    def price(self, usage: Usage) -> float | None:
        return (usage.input_tokens + 2 * usage.output_tokens) * PER_TOKEN if self.priced else None

    async def answer(self, request: ModelRequest) -> ModelResponse:
        allowed = request.settings.get("max_tokens", 0)
        needed = estimate_input(request)
        self.allowed.append(allowed)
        self.worst += needed + allowed
        self.most = max(self.most, self.worst)
        for _ in range(3):
            await asyncio.sleep(0)
        output = allowed if self.output is None else min(self.output, allowed)
        self.worst -= allowed - output
        used = Usage(needed, output)
        cut = allowed < 100 and output == allowed
        usage = Usage(needed, output, cost=self.price(used))
        return ModelResponse("x", usage=usage, finish_reason="length" if cut else "stop")


def wide(model: FunctionModel, limits: RunLimits | None = None, **options: Any) -> Workflow:
    """A workflow of eight parallel branches, an agent each."""
    branches = [[AgentStep(Agent(f"agent{number}", "Work.", model, max_tokens=100))] for number in range(BRANCHES)]
    return Workflow("wide", [ParallelStep(branches)], limits=limits, **options)


INPUT = 3 + (4 + 2) + (4 + 1)
"""What the request of one branch has: three, and four a message, and a token for four letters."""


def test_model_calls_across_branches(heard: Any, assert_sound: Sound) -> None:
    """Of eight parallel branches with three model calls allowed, exactly three calls begin."""
    model = Meter()
    flow = wide(model, RunLimits(model_calls=3), event_manager=heard.manager)
    with pytest.raises(LimitExceededError) as caught:
        flow.run("?")
    assert caught.value.limit == "model_calls"
    assert len(model.allowed) == 3
    assert len(heard.of("model_call_started")) == 3
    assert_sound(heard.events)
    assert wide(Meter(), RunLimits(model_calls=BRANCHES)).run("?")["agent7_output"] == "x"


def test_tokens_across_branches(heard: Any, assert_sound: Sound) -> None:
    """Three calls fit whole, the fourth is allowed just what is left, and the limit is met to the token."""
    limit = 3 * (INPUT + 100) + INPUT + 40
    model = Meter()
    flow = wide(model, RunLimits(tokens=limit), event_manager=heard.manager)
    with pytest.raises(LimitExceededError) as caught:
        flow.run("?")
    assert caught.value.limit == "tokens"
    assert model.allowed == [100, 100, 100, 40]
    assert model.most == limit
    assert caught.value.usage is not None
    assert caught.value.usage.total_tokens == limit
    assert_sound(heard.events)


def test_waiting_calls_go_on_when_a_call_needed_less(heard: Any) -> None:
    """Where the worst cases do not fit together but the real ones do, the calls take turns and all succeed."""
    limit = BRANCHES * (INPUT + 10) + 90
    model = Meter(output=10)
    result = wide(model, RunLimits(tokens=limit), event_manager=heard.manager).run("?", trace=True)
    assert result.usage.total_tokens == BRANCHES * (INPUT + 10)
    assert model.allowed == [100] * BRANCHES
    assert model.most <= limit


def test_cost_across_branches() -> None:
    """A cost limit is never exceeded by parallel branches, and names itself."""
    whole = (INPUT + 200) * PER_TOKEN
    model = Meter()
    limit = 2 * whole + (INPUT + 101) * PER_TOKEN
    with pytest.raises(LimitExceededError) as caught:
        wide(model, RunLimits(cost=limit)).run("?")
    assert caught.value.limit == "cost"
    assert model.allowed == [100, 100, 50]
    assert caught.value.usage is not None
    assert caught.value.usage.cost == pytest.approx(limit - PER_TOKEN, abs=1e-11)


def test_a_call_that_nothing_is_left_for() -> None:
    """A call that not even one output token is left for is refused before it begins."""
    model = Meter()
    agent = Agent("a", "Work.", model)
    with pytest.raises(LimitExceededError, match=f"{INPUT} input tokens") as caught:
        Workflow("flow", [agent], limits=RunLimits(tokens=INPUT)).run("?")
    assert caught.value.limit == "tokens"
    assert model.allowed == []
    assert caught.value.usage == Usage()
    with pytest.raises(LimitExceededError):
        Workflow("flow", [agent], limits=RunLimits(model_calls=0)).run("?")
    with pytest.raises(LimitExceededError) as caught:
        Workflow("flow", [agent], limits=RunLimits(cost=0)).run("?")
    assert caught.value.limit == "cost"
    assert model.allowed == []


def test_one_token_is_enough() -> None:
    """A call is allowed as few as one output token, where that is what is left."""
    model = Meter()
    with pytest.raises(LimitExceededError):
        Agent("a", "Work.", model, limits=RunLimits(tokens=INPUT + 1)).run("?")
    assert model.allowed == [1]


def test_an_unknown_price_is_refused_with_a_cost_limit() -> None:
    """With a cost limit a model of unknown price is not called; without one its cost is unknown, not 0."""
    model = Meter(output=10, priced=False)
    with pytest.raises(LimitExceededError, match="unknown") as caught:
        Agent("a", "Work.", model, limits=RunLimits(cost=100)).run("?")
    assert caught.value.limit == "cost"
    assert model.allowed == []
    result = Agent("a", "Work.", model, max_tokens=100).run("?", trace=True)
    assert result.usage.cost is None
    assert result.usage.unpriced_model_calls == 1


def test_a_free_model_within_a_cost_limit_of_zero() -> None:
    """A model that costs nothing may be called with a cost limit of 0."""
    assert Agent("a", "Work.", ScriptedModel("yes"), limits=RunLimits(cost=0)).run("?") == "yes"


@pytest.mark.parametrize("tight", ["outer", "inner"])
def test_a_nested_component_keeps_its_own_limits(tight: str) -> None:
    """A nested component's limits hold besides those of the run around it; the tighter one decides."""
    limits = {"outer": RunLimits(model_calls=9), "inner": RunLimits(model_calls=9), tight: RunLimits(model_calls=2)}
    model = FunctionModel(lambda _: ToolCall.of("ping"))
    inner = Agent("inner", "Work.", model, tools=[ping], limits=limits["inner"])
    outer = Workflow("outer", [inner], limits=limits["outer"])
    with pytest.raises(LimitExceededError) as caught:
        outer.run("?")
    assert caught.value.usage is not None
    assert caught.value.usage.model_calls == 2


def ping() -> str:
    """Ping."""
    return "pong"


def test_each_run_of_a_component_has_its_own_budget() -> None:
    """A component's own limits begin anew with each of its runs, nested or not."""
    agent = Agent("a", "Work.", FunctionModel(lambda _: "ok"), limits=RunLimits(model_calls=1))
    flow = Workflow("flow", [AgentStep(agent, "one"), AgentStep(agent, "two", output="other")])
    assert set(flow.run("?")) == {"input", "a_output", "other"}
    assert agent.run("?") == agent.run("?") == "ok"


def test_the_wall_time_of_a_nested_component(heard: Any, assert_sound: Sound, outlast: Callable[[], Any]) -> None:
    """A nested component that takes too long fails, and so does the run around it; the time names the component."""
    slow = Agent("slow", "Work.", FunctionModel(lambda _: outlast()), limits=RunLimits(wall_time=60))
    flow = Workflow("flow", [slow], limits=RunLimits(wall_time=7200), event_manager=heard.manager)
    with pytest.raises(LimitExceededError, match="'slow' ran for longer than 60 s") as caught:
        flow.run("?")
    assert caught.value.limit == "wall_time"
    assert_sound(heard.events)


def test_a_timeout_of_the_model_is_not_the_runs() -> None:
    """A TimeoutError that a model raises itself is a failed model call, also with a wall time."""
    agent = Agent("a", "Work.", ScriptedModel(TimeoutError("upstream")), limits=RunLimits(wall_time=60))
    with pytest.raises(ModelError, match="upstream"):
        agent.run("?")


def test_a_failed_call_counts_and_holds_nothing() -> None:
    """A failed model call counts as a call, and gives back the tokens that were set aside for it."""
    script = ScriptedModel(ValueError("no"), "yes", "never")
    helper = Agent("helper", "Work.", script)

    async def ask() -> str:
        """Ask, and again if it fails."""
        for _ in range(3):
            with contextlib.suppress(ModelError):
                return await helper.arun("?")
        raise AssertionError

    model = ScriptedModel(ToolCall.of("ask"), "end")
    limits = RunLimits(model_calls=4, tokens=4400)
    assert Agent("a", "Work.", model, tools=[ask], limits=limits).run("?") == "end"
    script = ScriptedModel(ValueError("no"), "yes")
    helper = Agent("helper", "Work.", script)
    model = ScriptedModel(ToolCall.of("ask"), "end")
    with pytest.raises(LimitExceededError):
        Agent("a", "Work.", model, tools=[ask], limits=RunLimits(model_calls=3)).run("?")


def test_a_call_that_was_refused_further_in_does_not_count() -> None:
    """A call that an inner budget refuses was not made, so an outer one does not count it."""
    helper = Agent("helper", "Work.", ScriptedModel("never"), limits=RunLimits(tokens=1))

    async def ask() -> str:
        """Ask, whatever comes of it."""
        with contextlib.suppress(LimitExceededError):
            await helper.arun("?")
        return "done"

    model = ScriptedModel(ToolCall.of("ask"), "end")
    agent = Agent("a", "Work.", model, tools=[ask], limits=RunLimits(model_calls=2))
    assert agent.run("?") == "end"


# --- the budget itself ---------------------------------------------------------------------------------


def free(_: Usage) -> float:
    return 0.0


async def settled(task: asyncio.Task[Any]) -> bool:
    for _ in range(3):
        await asyncio.sleep(0)
    return task.done()


async def test_a_cancelled_waiter_leaks_nothing() -> None:
    """A call that is cancelled while it waits counts nothing and holds nothing."""
    budget = Budget(RunLimits(tokens=100, model_calls=2))
    hold, allowed = await budget.reserve(10, 80, free)
    assert allowed == 80
    waiter = asyncio.create_task(budget.reserve(10, 80, free))
    assert not await settled(waiter)
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    budget.settle(hold, Usage(10, 5))
    assert (budget.calls, budget.tokens) == (1, 15)
    hold, allowed = await budget.reserve(10, 80, free)
    assert allowed == 75
    assert budget.calls == 2
    budget.settle(hold, Usage(10, 75))
    assert budget.tokens == 100


async def test_waiters_take_their_turns() -> None:
    """A settled hold wakes those who wait; those that still do not fit wait on."""
    budget = Budget(RunLimits(tokens=100))
    first, _ = await budget.reserve(0, 100, free)
    waiters = [asyncio.create_task(budget.reserve(0, 60, free)) for _ in range(3)]
    budget.settle(first, Usage(0, 10))
    assert [await settled(task) for task in waiters] == [True, False, False]
    budget.settle(waiters[0].result()[0], Usage(0, 20))
    assert [await settled(task) for task in waiters] == [True, True, False]
    assert waiters[1].result()[1] == 60
    budget.settle(waiters[1].result()[0], Usage(0, 60))
    assert await settled(waiters[2])
    assert waiters[2].result()[1] == 10, "nobody else holds anything: what is left is allowed"


async def test_a_waiter_that_no_call_is_left_for() -> None:
    """A call that waits for tokens is refused as soon as the last call has been given away."""
    budget = Budget(RunLimits(tokens=100, model_calls=2))
    first, _ = await budget.reserve(0, 100, free)
    waiters = [asyncio.create_task(budget.reserve(0, 50, free)) for _ in range(2)]
    budget.settle(first, Usage(0, 10))
    assert [await settled(task) for task in waiters] == [True, True]
    assert waiters[0].result()[1] == 50
    with pytest.raises(LimitExceededError) as caught:
        waiters[1].result()
    assert caught.value.limit == "model_calls"


async def test_a_call_that_overran_leaves_nothing() -> None:
    """A model that used more than it was allowed has used the run's tokens up."""
    budget = Budget(RunLimits(tokens=100))
    hold, _ = await budget.reserve(10, 10, free)
    budget.settle(hold, Usage(10, 500))
    with pytest.raises(LimitExceededError, match="510 of 100 tokens"):
        await budget.reserve(10, 10, free)


@pytest.mark.parametrize(("limit", "used"), [("model_calls", 3), ("tokens", 300), ("cost", 3)])
async def test_a_borrower_that_overran_leaves_nothing(limit: str, used: int) -> None:
    """Who used more than it was lent has used the run's limit up, and the next one is told so at once."""
    budget = Budget(RunLimits(**{limit: 2}))
    hold = await budget.lend()
    waiter = asyncio.create_task(budget.lend())
    assert not await settled(waiter)
    budget.settle(hold, Usage(used, cost=float(used)), used)
    assert await settled(waiter)
    with pytest.raises(LimitExceededError) as caught:
        waiter.result()
    assert caught.value.limit == limit


@pytest.mark.parametrize("name", ["wall_time", "model_calls", "tokens", "cost"])
@pytest.mark.parametrize("value", [-1, float("nan")])
def test_limits_that_make_no_sense(name: str, value: float) -> None:
    """A negative limit, and one that is no number, are refused."""
    with pytest.raises(ConfigurationError, match=name):
        RunLimits(**cast("Any", {name: value}))
