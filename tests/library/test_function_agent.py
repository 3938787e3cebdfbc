"""Agents that are functions: what they are given and return, and how a run counts, limits and records them."""

from __future__ import annotations

import asyncio
import logging
import math
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from functools import partial
from typing import Any

import pytest
from pydantic import BaseModel
from tests.helpers import until
from tests.library.conftest import Recorder
from tests.library.shapes import events

from podwright import (
    Agent,
    AgentStep,
    ApprovalRequired,
    ApprovalStep,
    BlueprintValidationError,
    Conductor,
    FunctionAgent,
    FunctionModel,
    ParallelStep,
    Pipeline,
    ReplayModel,
    RunContext,
    RunLimits,
    ScriptedModel,
    TryStep,
    Workflow,
    load,
    tool,
)
from podwright.errors import (
    ConfigurationError,
    InputsError,
    LimitExceededError,
    ModelResponseError,
    OutputError,
    RunCancelledError,
    ToolError,
)
from podwright.events import Event, Token, adapter
from podwright.messages.usage import Usage
from podwright.models import litellm_loader
from podwright.run import function_context
from podwright.testing import ModelResponse, ToolCall

MODEL = "openai/gpt-4o-mini"
"""A model of known price."""
PNG = "data:image/png;base64,iVBORw0KGgo="


class Moon(BaseModel):
    """A structured answer."""

    distance: int
    unit: str = "km"


@pytest.fixture(autouse=True)
def _no_litellm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing it takes seconds, and it knows no price of the model that nobody knows either."""
    monkeypatch.setattr(litellm_loader, "installed", lambda: False)


def answers(text: str) -> Callable[[str], str]:
    """A function that answers every task with a text."""

    def answer(task: str) -> str:
        return text

    return answer


def reports(
    *calls: tuple[int, int], model: str = MODEL, **more: Any
) -> Callable[[str, RunContext], str]:
    """A function that reports model calls with these input and output tokens."""

    def answer(task: str, context: RunContext) -> str:
        for input_tokens, output_tokens in calls:
            context.report_usage(
                model,
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                **more,
            )
        return "done"

    return answer


# --- What a function is given, and what it returns ----------------------------------------------------------------


async def _async(task: str) -> str:
    return f"async {task}"


def _blocking(task: str) -> str:
    return f"blocking {task} {threading.current_thread().name}"


async def _async_pieces(task: str) -> AsyncGenerator[str]:
    yield "async "
    yield task


def _pieces(task: str) -> Generator[str]:
    yield "pieces "
    yield task


class _Callable:
    async def __call__(self, task: str) -> str:
        return f"object {task}"


def _prefixed(prefix: str, task: str) -> str:
    return f"{prefix} {task}"


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (_async, "async x"),
        (_blocking, "blocking x podwright-tool"),
        (_async_pieces, "async x"),
        (_pieces, "pieces x"),
        (_Callable(), "object x"),
        (partial(_prefixed, "partial"), "partial x"),
        (str.upper, "X"),
    ],
    ids=["async", "blocking", "async pieces", "pieces", "object", "partial", "builtin"],
)  # fmt: skip
def test_any_function_is_an_agent(
    function: Callable[..., Any], expected: str
) -> None:
    """Async and blocking functions, generators and other callables answer; a blocking one runs in a thread."""
    assert FunctionAgent("helper", function).run("x") == expected


def _named(task: str, style: str = "plain", *, context: Any) -> str:
    return f"{task} {context.component} {style}"


def _annotated(task: str, style: str = "plain", *, run: RunContext) -> str:
    return f"{task} {run.component} {style}"


def _first(run: RunContext, task: str) -> str:
    return f"{task} {run.component} plain"


def _positional(task: str, run: RunContext, /) -> str:
    return f"{task} {run.component} plain"


def _pieces_first(context: RunContext, task: str, /) -> Generator[str]:
    yield f"{task} {context.component} "
    yield "plain"


@pytest.mark.parametrize(
    "function",
    [
        *(_named, _annotated, _first, _positional, _pieces_first),
        lambda task, context: f"{task} {context.component} plain",
        lambda task, style="helper plain": f"{task} {style}",
    ],
    ids=["named", "annotated", "first", "positional", "pieces", "untyped", "none"],
)  # fmt: skip
def test_the_context_is_given_by_annotation_or_name(
    function: Callable[..., Any],
) -> None:
    """A parameter with the annotation `RunContext` is given it, or one called `context`; others keep defaults."""
    assert FunctionAgent("helper", function).run("x") == "x helper plain"


def _of_a_text(task: str, context: str) -> str:
    return f"{context} {task}"


@pytest.mark.parametrize(
    "function",
    [
        *(lambda: "", lambda context: "", lambda task, history: ""),
        *(lambda task, context, more: "", _of_a_text),
        *("text", {"name": 1}, None),
    ],
    ids=[
        "no task",
        "context",
        "history",
        "more",
        "a text",
        "text",
        "data",
        "none",
    ],
)
def test_a_function_with_other_parameters_is_refused(function: Any) -> None:
    """What takes no task, needs more than the context, or cannot be called is an error when the agent is made."""
    with pytest.raises(ConfigurationError, match="'helper'"):
        FunctionAgent("helper", function)


@pytest.mark.parametrize("models", ["openai/gpt-5", ["gpt-5"], [1], None])
def test_models_are_names(models: Any) -> None:
    """`models` is a sequence of names with a provider."""
    with pytest.raises(ConfigurationError, match="names of models"):
        FunctionAgent("helper", answers("x"), models=models)


@pytest.mark.parametrize(
    ("name", "options", "pointer"),
    [
        ("a/b", {}, "/name"),
        ("", {}, "/name"),
        ("helper", {"inputs": {"no name!": {}}}, "/inputs"),
        ("helper", {"inputs": {"days": {"type": 3}}}, "/inputs/days"),
        ("helper", {"description": 3}, "/description"),
    ],
)
def test_invalid_options_are_problems_with_pointers(
    name: str, options: Any, pointer: str
) -> None:
    """Name, inputs and description are validated as those of every agent."""
    with pytest.raises(BlueprintValidationError) as caught:
        FunctionAgent(name, answers("x"), **options)
    assert caught.value.problems[0].pointer.startswith(pointer)


def test_an_unknown_option_is_refused() -> None:
    """Settings of a model are not those of a function."""
    options: Any = {"temperature": 1}
    with pytest.raises(ConfigurationError, match="temperature"):
        FunctionAgent("helper", answers("x"), **options)


def test_the_conversation_and_the_images_are_given() -> None:
    """Earlier turns are in `context.messages`, and a task with images is a list of parts; the result has both."""
    given: list[Any] = []

    def answer(task: Any, context: RunContext) -> str:
        given.append((task, context.messages))
        return f"answer {len(given)}"

    agent = FunctionAgent("helper", answer)
    first = agent.run("one", trace=True)
    assert first.messages == [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "answer 1"},
    ]
    image = {"type": "image_url", "image_url": {"url": PNG}}
    parts: list[Any] = [{"type": "text", "text": "two"}, image]
    second = agent.run(parts, trace=True, messages=first.messages)
    assert given[0] == ("one", ())
    task, earlier = given[1]
    assert [part["type"] for part in task] == ["text", "image_url"]
    assert task[1]["image_url"]["url"] == PNG
    assert list(earlier) == first.messages
    assert len(second.messages) == 4


def test_declared_inputs_are_given() -> None:
    """Named inputs are completed and checked as those of every agent, and are in `context.inputs`."""
    given: list[Any] = []

    def answer(task: str, context: RunContext) -> str:
        given.append((task, dict(context.inputs)))
        return "done"

    inputs = {"days": {"type": "integer", "default": 2}, "city": {}}
    agent = FunctionAgent("helper", answer, inputs=inputs)
    agent.run({"input": "Plan.", "city": "Rome"})
    ((task, values),) = given
    assert values == {"input": "Plan.", "city": "Rome", "days": 2}
    assert "Rome" in task
    with pytest.raises(InputsError):
        agent.run({"input": "Plan.", "city": "Rome", "days": "many"})


def test_an_answer_that_is_data() -> None:
    """JSON data is the value, its text is in the conversation, and the next agent is given it."""
    agent = FunctionAgent("helper", lambda task: {"task": task, "days": [1]})
    result = agent.run("x", trace=True)
    assert result.value == {"task": "x", "days": [1]}
    assert result.messages[-1]["content"] == '{"task": "x", "days": [1]}'
    line = Pipeline("line", steps=[agent, FunctionAgent("echo", str.strip)])
    assert line.run("x") == '{"task": "x", "days": [1]}'


@pytest.mark.parametrize(
    "answer",
    [{"distance": 3}, '{"distance": 3}', Moon(distance=3)],
    ids=["data", "text", "model"],
)
def test_an_answer_of_a_response_model(answer: Any) -> None:
    """Data, a text in JSON and a pydantic model become the type that the caller asks for."""
    agent = FunctionAgent("helper", lambda task: answer)
    result = agent.run("x", Moon, trace=True)
    assert result.value == Moon(distance=3)
    assert agent.run("x", {"type": "object"})["distance"] == 3


@pytest.mark.parametrize("answer", ["far", {"unit": "km"}])
def test_an_answer_that_does_not_fit_is_an_error(answer: Any) -> None:
    """An answer of another type than the caller asks for is an OutputError."""
    agent = FunctionAgent("helper", lambda task: answer)
    with pytest.raises(OutputError, match="'helper'"):
        agent.run("x", Moon)


@pytest.mark.parametrize("answer", [object(), {1, object()}, float("nan")])
def test_an_answer_that_is_not_json_is_an_error(answer: Any) -> None:
    """What has no JSON form could not be stored."""
    with pytest.raises(ToolError, match="not JSON"):
        FunctionAgent("helper", lambda task: answer).run("x")


async def nothing(task: str) -> None:
    """Return nothing."""


def no_pieces(task: str) -> Generator[str]:
    """Yield nothing."""
    yield from ()


async def no_pieces_later(task: str) -> AsyncGenerator[str]:
    """Yield nothing."""
    for piece in ():
        yield piece


async def empty_pieces(task: str) -> AsyncGenerator[str]:
    """Yield empty texts."""
    yield ""
    yield ""


def passed_on(function: Callable[[str], Any], task: str) -> Any:
    """Return what an async function does, without awaiting it."""
    return function(task)


@pytest.mark.parametrize(
    "function",
    [
        nothing,
        no_pieces,
        no_pieces_later,
        empty_pieces,
        pytest.param(lambda task: None, id="returns None"),
        pytest.param(lambda task: "", id="returns an empty text"),
        partial(passed_on, nothing),
    ],
)
async def test_an_empty_answer_is_an_error(function: Any) -> None:
    """Nothing, and no text, are the error of a model with an empty answer, streamed or not, also in a workflow."""
    agent = FunctionAgent("helper", function)
    runs = [
        partial(agent.arun, "x"),
        partial(agent.arun, "x", stream=True),
        partial(Workflow("flow", [agent]).arun, "x"),
        partial(Pipeline("line", [agent]).arun, "x"),
    ]
    for run in runs:
        with pytest.raises(ModelResponseError, match="'helper'") as caught:
            await run()
        assert caught.value.code == "model_response_invalid"


@pytest.mark.parametrize("answer", [0, 0.0, False, [], {}, " ", "0"], ids=repr)
def test_an_answer_may_be_false(answer: Any) -> None:
    """Data that Python takes for false is an answer."""
    assert FunctionAgent("helper", lambda task: answer).run("x") == answer


# --- A person -----------------------------------------------------------------------------------------------------


def test_a_function_asks_a_person_in_a_nested_run() -> None:
    """The function is called again after each decision; earlier questions are answered without the person."""
    asking = Workflow(
        "asking",
        [ApprovalStep("{value}", "check", edit={"value": {}}, on_reject=[])],
    )
    keys: list[str | None] = []

    async def helper(task: str, context: RunContext) -> str:
        keys.append(context.call_key)
        replies: list[str] = []
        for question in ("first", "second"):
            result = await asking.arun({"value": question}, trace=True)
            assert result.data is not None
            check = result.data["check"]
            replies.append(f"{check['decision']} {result.data['value']}")
        return ", ".join(replies)

    agent = FunctionAgent("helper", helper)
    with pytest.raises(ApprovalRequired) as first:
        agent.run("x")
    assert first.value.message == "first"
    with pytest.raises(ApprovalRequired) as second:
        agent.run(first.value.decide("approve", values={"value": "changed"}))
    assert second.value.message == "second"
    answer = agent.run(second.value.decide("reject", "no"))
    assert answer == "approve changed, reject second"
    assert len(keys) == 3
    assert len(set(keys)) == 1


# --- Streams ------------------------------------------------------------------------------------------------------


async def test_pieces_are_streamed_as_they_come() -> None:
    """The pieces of generators are tokens before the function ends; without a stream there are none."""
    seen: list[str] = []

    async def slow(task: str) -> AsyncGenerator[str]:
        yield "one "
        await asyncio.to_thread(until, lambda: seen == ["one "])
        yield "two"

    def slow_too(task: str) -> Generator[str]:
        yield "one "
        until(lambda: seen == ["one "])
        yield "two"

    for function in (slow, slow_too):
        seen.clear()
        stream = FunctionAgent("helper", function).astream("x")
        async for event in stream:
            seen += [event.text] if isinstance(event, Token) else []
        assert seen == ["one ", "two"]
    result = await FunctionAgent("helper", _pieces).arun("x", trace=True)
    assert not events(result, "token")


async def test_a_caller_who_leaves_ends_a_generator() -> None:
    """Generators are closed, those in threads at their next piece, and nothing is emitted after the end of the run."""
    closed: list[str] = []
    left = threading.Event()

    async def pieces(task: str) -> AsyncGenerator[str]:
        try:
            yield "one"
            await asyncio.Event().wait()
        finally:
            closed.append("async")

    def pieces_too(task: str) -> Generator[str]:
        try:
            yield "one"
            left.wait()
            yield "two"
        finally:
            closed.append("blocking")

    for function in (pieces, pieces_too):
        recorder = Recorder()
        agent = FunctionAgent(
            "helper", function, event_manager=recorder.manager
        )
        stream = agent.astream("x")
        async for event in stream:
            if isinstance(event, Token):
                break
        await stream.aclose()
        left.set()
        await asyncio.to_thread(until, lambda: closed)
        assert recorder.types()[-1] == "run_cancelled"
        closed.clear()


@pytest.mark.parametrize("kind", ["async", "blocking"])
def test_pieces_are_texts(kind: str) -> None:
    """A generator that yields something else is an error that says what."""

    async def pieces(task: str) -> AsyncGenerator[Any]:
        yield 3

    def pieces_too(task: str) -> Generator[Any]:
        yield 3

    function = {"async": pieces, "blocking": pieces_too}[kind]
    with pytest.raises(ToolError, match="yielded 3"):
        FunctionAgent("helper", function).run("x")


# --- Errors, time limits and cancellation -------------------------------------------------------------------------


def test_an_exception_of_the_function_is_a_tool_error(
    recorder: Recorder, assert_sound: Callable[[list[Event]], None]
) -> None:
    """The run fails with the exception as the cause, and with the events of a failed call."""

    def fail(task: str) -> str:
        raise OSError("no network")

    agent = FunctionAgent("helper", fail, event_manager=recorder.manager)
    with pytest.raises(ToolError, match=r"'helper'.*no network") as caught:
        agent.run("x")
    assert isinstance(caught.value.__cause__, OSError)
    assert recorder.types() == [
        "run_started",
        "tool_call_started",
        "tool_call_failed",
        "run_failed",
    ]
    assert_sound(recorder.events)


async def test_a_function_is_cancelled_with_its_run() -> None:
    """An async function gets the cancellation; a blocking one can ask, and may report nothing more."""
    begun = threading.Event()
    ended: list[str] = []

    async def wait(task: str) -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("async")
        return ""

    def wait_too(task: str, context: RunContext) -> str:
        begun.set()
        until(lambda: context.is_cancelled)
        context.report_usage(MODEL, input_tokens=10**9)
        ended.append("blocking")
        return ""

    for function in (wait, wait_too):
        begun.clear()
        ended.clear()
        agent = FunctionAgent("helper", function)
        running = asyncio.create_task(agent.arun("x"))
        await asyncio.to_thread(begun.wait)
        running.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await running
        assert isinstance(caught.value.__cause__, RunCancelledError)
        await asyncio.to_thread(until, lambda: ended)
        assert agent.last_usage.model_calls == 0


def test_a_report_after_the_end_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A call that is reported when its run has ended is not counted, and the log says so."""
    kept: list[RunContext] = []

    def keep(task: str, context: RunContext) -> str:
        kept.append(context)
        return "done"

    agent = FunctionAgent("helper", keep)
    agent.run("x")
    with caplog.at_level(logging.WARNING, "podwright.functions"):
        kept[0].report_usage(MODEL, input_tokens=1)
    assert MODEL in caplog.text
    assert agent.last_usage.model_calls == 0


async def test_a_report_after_the_end_of_the_loop_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A thread that outlives the event loop of the run does not fail, and its call is not counted."""
    may_report = threading.Event()
    reported: list[threading.Thread] = []

    def keep(task: str, context: RunContext) -> str:
        def report() -> None:
            may_report.wait()
            context.report_usage(MODEL, input_tokens=1)

        thread = threading.Thread(target=report)
        thread.start()
        reported.append(thread)
        return "done"

    agent = FunctionAgent("helper", keep)

    def run_alone() -> None:
        asyncio.run(agent.arun("x"))

    with caplog.at_level(logging.WARNING, "podwright.functions"):
        await asyncio.to_thread(run_alone)
        may_report.set()
        await asyncio.to_thread(reported[0].join)
    assert MODEL in caplog.text
    assert agent.last_usage.model_calls == 0


async def test_a_report_that_the_loop_drops_is_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop that is closed before it counts what a thread has reported does not hold the thread up."""
    loop = asyncio.new_event_loop()
    kept: list[RunContext] = []

    def keep(task: str, context: RunContext) -> str:
        kept.append(context)
        return task

    agent = FunctionAgent("helper", keep)

    def run_and_report() -> threading.Thread:
        loop.run_until_complete(agent.arun("x"))
        scheduled = threading.Event()
        schedule = loop.call_soon_threadsafe

        def schedule_and_tell(*args: Any, **kwargs: Any) -> Any:
            handle = schedule(*args, **kwargs)
            scheduled.set()
            return handle

        monkeypatch.setattr(loop, "call_soon_threadsafe", schedule_and_tell)
        thread = threading.Thread(
            target=kept[0].report_usage, args=(MODEL,), daemon=True
        )
        thread.start()
        scheduled.wait()
        loop.close()
        return thread

    with caplog.at_level(logging.WARNING, "podwright.functions"):
        thread = await asyncio.to_thread(run_and_report)
        await asyncio.to_thread(thread.join, 60)
    assert not thread.is_alive()
    assert MODEL in caplog.text


async def test_a_time_limit_ends_the_function(outlast: Any) -> None:
    """The function knows its deadline, and is cancelled then."""
    deadlines: list[Any] = []

    async def wait(task: str, context: RunContext) -> str:
        deadlines.append((context.deadline, context.time_left))
        await outlast()
        return ""

    limits = RunLimits(wall_time=100)
    with pytest.raises(LimitExceededError) as caught:
        await FunctionAgent("helper", wait, limits=limits).arun("x")
    assert caught.value.limit == "wall_time"
    ((deadline, left),) = deadlines
    assert deadline is not None
    assert 0 < left <= 100


# --- Usage and limits ---------------------------------------------------------------------------------------------


def test_reported_calls_are_the_usage_of_the_run(
    recorder: Recorder, assert_sound: Callable[[list[Event]], None]
) -> None:
    """Tokens and price of each call are in the usage, by model, and each has its events within the call's."""
    usage = {
        "cached_input_tokens": 40,
        "reasoning_tokens": 3,
        "seconds": 1000.0,
    }
    agent = FunctionAgent(
        "helper",
        reports((100, 10), (50, 5), **usage),
        event_manager=recorder.manager,
    )
    result = agent.run("x", trace=True)
    used = result.usage
    assert (used.input_tokens, used.output_tokens) == (150, 15)
    assert (used.cached_input_tokens, used.reasoning_tokens) == (80, 6)
    assert (used.model_calls, used.tool_calls) == (2, 1)
    assert list(used.by_model) == [MODEL]
    # 0.15 USD for a million of input, 0.075 of cached input, 0.6 of output
    expected = (70 * 0.15 + 80 * 0.075 + 15 * 0.6) / 1e6
    assert used.cost == pytest.approx(expected)
    assert recorder.types() == [
        "run_started",
        "tool_call_started",
        *["model_call_started", "model_call_finished"] * 2,
        "tool_call_finished",
        "run_finished",
    ]
    finished = recorder.of("model_call_finished")
    assert [event.call for event in finished] == [0, 1]
    assert {event.tool_call for event in finished} == {0}
    assert {event.duration_ms for event in finished} == {1_000_000}
    for event in recorder.of("model_call_started"):
        assert event.is_reported
        assert recorder.events[0].at - event.at == pytest.approx(1000, abs=100)
    assert_sound(recorder.events)
    for event in recorder.events:
        assert adapter().validate_python(event.to_dict()) == event


def test_a_given_cost_comes_before_the_price_list() -> None:
    """A cost that the function knows is taken; a model without either has an unknown cost."""
    known = FunctionAgent("helper", reports((1, 1), cost=0.5))
    usage = known.run("x", trace=True).usage
    assert (usage.cost, usage.cost_source) == (0.5, "provider")
    unknown = FunctionAgent("helper", reports((1, 1), model="acme/secret"))
    usage = unknown.run("x", trace=True).usage
    assert (usage.cost, usage.unpriced_model_calls) == (None, 1)
    assert usage.total_tokens == 2


def test_a_report_on_the_event_loop_waits_for_no_import() -> None:
    """The price lists are loaded in a thread before the function is called."""
    code = """
import asyncio, sys, threading
from podwright import FunctionAgent, RunContext

imported = []
def watch(event, arguments):
    if event == "import" and threading.current_thread() is threading.main_thread():
        imported.append(arguments[0])

async def answer(task: str, context: RunContext) -> str:
    context.report_usage("openai/gpt-4o", input_tokens=1_000_000)
    return task

async def main():
    sys.addaudithook(watch)
    agent = FunctionAgent("f", answer)
    await agent.arun("x")
    print(agent.last_usage.cost, "genai_prices" in imported)

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "2.5 False\n"


def test_what_was_written_to_a_cache_costs_more() -> None:
    """Tokens that were written to the provider's cache have their own price."""
    model = "anthropic/claude-sonnet-4-5"
    plain = FunctionAgent("helper", reports((1000, 0), model=model))
    written = FunctionAgent(
        "helper", reports((1000, 0), model=model, cache_write_tokens=1000)
    )
    cost = plain.run("x", trace=True).usage.cost
    usage = written.run("x", trace=True).usage
    assert usage.cache_write_tokens == 1000
    assert usage.cost == pytest.approx(cost * 1.25)


@pytest.mark.parametrize(
    "limits",
    [
        RunLimits(tokens=100),
        RunLimits(cost=0.00002),
        RunLimits(model_calls=1),
    ],
    ids=["tokens", "cost", "model calls"],
)
@pytest.mark.parametrize("catches", [False, True])
def test_a_limit_ends_a_run_whose_function_exceeds_it(
    limits: RunLimits, catches: bool
) -> None:
    """The report that exceeds a limit raises, and the run fails even if the function catches it as frameworks do."""
    made: list[int] = []

    def work(task: str, context: RunContext) -> str:
        for number in range(3):
            try:
                context.report_usage(MODEL, input_tokens=60, output_tokens=10)
            except LimitExceededError:
                if not catches:
                    raise
                break
            made.append(number)
        return "done"

    agent = FunctionAgent("helper", work, limits=limits)
    with pytest.raises(LimitExceededError) as caught:
        agent.run("x")
    assert limits.to_dict()[caught.value.limit] is not None
    assert made == [0]
    assert agent.last_usage.model_calls == 2


def test_a_limit_of_cost_needs_a_price() -> None:
    """A call of unknown price ends a run whose cost is limited, because the limit could not hold."""
    agent = FunctionAgent(
        "helper",
        reports((1, 1), model="acme/secret"),
        limits=RunLimits(cost=1.0),
    )
    with pytest.raises(LimitExceededError, match="price is unknown") as caught:
        agent.run("x")
    assert caught.value.limit == "cost"


def test_nothing_is_called_when_nothing_is_left() -> None:
    """What a function has used is missing for the next agent: its call is refused before it begins."""
    called: list[str] = []

    def work(task: str) -> str:
        called.append(task)
        return "done"

    spend = FunctionAgent("spend", reports((90, 10)))
    limits = RunLimits(tokens=100)
    agent = Agent("agent", "Do.", ScriptedModel("answer"))
    calls_models = FunctionAgent("function", work, models=(MODEL,))
    for last in (agent, calls_models):
        line = Pipeline("line", steps=[spend, last], limits=limits)
        with pytest.raises(LimitExceededError) as caught:
            line.run("x")
        assert caught.value.limit == "tokens"
    assert called == []
    calls_none = FunctionAgent("function", work)
    line = Pipeline("line", steps=[spend, calls_none], limits=limits)
    assert line.run("x") == "done"


def test_a_limit_holds_over_branches_that_report() -> None:
    """Branches share one budget, whichever of them report and from wherever."""
    agents = [
        FunctionAgent(f"agent{number}", reports(*[(20, 5)] * 4))
        for number in range(4)
    ]
    flow = Workflow(
        "flow",
        steps=[ParallelStep([[AgentStep(agent)] for agent in agents])],
        limits=RunLimits(tokens=200),
    )
    with pytest.raises(LimitExceededError):
        flow.run("x")
    # each of the others may have reported one call at the same moment
    assert 200 < flow.last_usage.total_tokens <= 200 + 4 * 25


def test_reports_of_other_threads_and_loops_count(
    recorder: Recorder, assert_sound: Callable[[list[Event]], None]
) -> None:
    """A framework may report from a thread or an event loop of its own."""

    def work(task: str, context: RunContext) -> str:
        report = partial(context.report_usage, MODEL, input_tokens=10)

        async def report_from_loop() -> None:
            report()

        threads = [
            threading.Thread(target=report),
            threading.Thread(target=lambda: asyncio.run(report_from_loop())),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return "done"

    agent = FunctionAgent("helper", work, event_manager=recorder.manager)
    assert agent.run("x", trace=True).usage.input_tokens == 20
    assert_sound(recorder.events)


def test_a_thread_reports_while_the_loop_waits_for_it(
    recorder: Recorder,
    assert_sound: Callable[[list[Event]], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An async function that blocks its loop until a thread has reported does not wait for ever."""
    monkeypatch.setattr(function_context, "_PATIENCE", 0.01)

    async def work(task: str, context: RunContext) -> str:
        report = partial(context.report_usage, MODEL, input_tokens=10)
        thread = threading.Thread(target=report)
        thread.start()
        thread.join()
        return "done"

    agent = FunctionAgent("helper", work, event_manager=recorder.manager)
    assert agent.run("x", trace=True).usage.input_tokens == 10
    assert_sound(recorder.events)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model", ""),
        ("model", "a/\ud800"),
        ("model", None),
        ("input_tokens", -1),
        ("output_tokens", "12"),
        ("reasoning_tokens", 1.5),
        ("cached_input_tokens", True),
        ("cache_write_tokens", -5),
        ("cost", "0.1"),
        ("cost", -0.1),
        ("cost", math.nan),
        ("seconds", math.inf),
        ("seconds", None),
    ],
)
def test_a_report_that_is_wrong_counts_nothing(name: str, value: Any) -> None:
    """What a framework gives is checked: a text times a number would fill the memory, a negative cost lift limits."""
    found: list[ConfigurationError] = []

    def work(task: str, context: RunContext) -> str:
        report: dict[str, Any] = {"model": MODEL, name: value}
        with pytest.raises(ConfigurationError) as caught:
            context.report_usage(**report)
        found.append(caught.value)
        return "done"

    agent = FunctionAgent("helper", work)
    assert agent.run("x", trace=True).usage.model_calls == 0
    assert f"'{name}'" in found[0].message
    assert found[0].suggestion


def test_tokens_that_a_framework_does_not_know() -> None:
    """None is no tokens of a kind."""

    def work(task: str, context: RunContext) -> str:
        context.report_usage(MODEL, input_tokens=5, cached_input_tokens=None)
        return "done"

    result = FunctionAgent("helper", work).run("x", trace=True)
    assert result.usage.input_tokens == 5


def test_tools_and_steps_report_too(
    recorder: Recorder, assert_sound: Callable[[list[Event]], None]
) -> None:
    """Tools, function steps and conditions report as agents do, beside the calls of the run itself."""

    @tool
    def search(word: str, context: RunContext) -> str:
        """Search."""
        context.report_usage(MODEL, input_tokens=1)
        return word

    def shorten(text: str, context: RunContext) -> str:
        context.report_usage(MODEL, input_tokens=10)
        return text[:3]

    def is_long(state: Any, context: RunContext) -> bool:
        context.report_usage(MODEL, input_tokens=100)
        return True

    model = ScriptedModel(
        [ToolCall.of("search", word="a"), ToolCall.of("search", word="b")],
        "answer",
    )
    flow = load(
        {
            "name": "flow",
            "steps": [
                {"type": "agent_step", "agent": "searcher", "name": "search"},
                {
                    "type": "function_step",
                    "function": "shorten",
                    "name": "shorten",
                    "arguments": {"text": "{searcher_output}"},
                },
                {
                    "type": "condition_step",
                    "name": "check",
                    "condition": {"name": "is_long"},
                    "then": [],
                },
            ],
        },
        agents={"searcher": Agent("searcher", "Do.", model, tools=[search])},
        functions={"shorten": shorten},
        conditions={"is_long": is_long},
        event_manager=recorder.manager,
    )
    result = flow.run("x", trace=True)
    reported = result.usage.by_model[MODEL]
    assert (reported.input_tokens, reported.model_calls) == (112, 4)
    assert_sound(recorder.events)
    # a replay calls the functions again, which report again
    replayed = ReplayModel(result)
    again = load(
        flow.to_blueprint(),
        tools=[search],
        agents={"searcher": Agent("searcher", "Do.", replayed, tools=[search])},
        functions={"shorten": shorten},
        conditions={"is_long": is_long},
    ).run("x", trace=True)
    assert again.usage.by_model[MODEL].input_tokens == 112
    assert replayed.left == []


# --- Inside other components --------------------------------------------------------------------------------------


def _members() -> list[FunctionAgent]:
    return [
        FunctionAgent("finder", reports((10, 1)), description="Finds."),
        FunctionAgent("writer", lambda task: {"text": task}),
    ]


def test_a_step_of_a_workflow() -> None:
    """Its output is a value of the context, data included, and a failure is caught by a try step."""

    def fail(task: str) -> str:
        raise ValueError("bad")

    finder, writer = _members()
    flow = Workflow(
        "flow",
        steps=[
            finder,
            AgentStep(
                writer, "write", input="about {finder_output}", output="written"
            ),
            TryStep(
                [FunctionAgent("failing", fail)],
                catch=[AgentStep(writer, "caught", input="{error.code}")],
            ),
        ],
    )
    data = flow.run("x", trace=True).data
    assert data["finder_output"] == "done"
    assert data["written"] == {"text": "about done"}
    assert data["writer_output"] == {"text": "tool_failed"}
    assert flow.last_usage.by_model[MODEL].input_tokens == 10


def test_a_skill_of_a_conductor(
    recorder: Recorder, assert_sound: Callable[[list[Event]], None]
) -> None:
    """A conductor gives it tasks as it does to every agent, and knows its description."""
    model = ScriptedModel(
        [ToolCall.of("finder", task="a"), ToolCall.of("writer", task="b")],
        "answer",
    )
    conductor = Conductor(
        "desk", "Lead.", model, _members(), event_manager=recorder.manager
    )
    result = conductor.run("x", trace=True)
    assert result.value == "answer"
    assert result.usage.by_model[MODEL].input_tokens == 10
    skill: Any = model.requests[0].tools[0]["function"]
    assert (skill["name"], "Finds." in skill["description"]) == ("finder", True)
    assert model.requests[1].messages[-1].text == '{"text": "b"}'
    assert_sound(recorder.events)


def test_a_function_that_runs_agents() -> None:
    """A run that the function starts is nested in its own: one trace, one budget, one sum."""
    inner = Agent("inner", "Do.", FunctionModel(lambda request: ModelResponse("x", usage=Usage(5, 5))))  # fmt: skip

    async def delegate(task: str, context: RunContext) -> str:
        context.report_usage(MODEL, input_tokens=10)
        return await inner.arun(task)

    agent = FunctionAgent("outer", delegate)
    result = agent.run("x", trace=True)
    assert result.usage.total_tokens == 20
    assert result.usage.model_calls == 2
    outer, nested = events(result, "run_started")
    assert nested.parent_id == outer.run_id


@pytest.mark.parametrize("kind", ["Workflow", "Conductor", "Pipeline"])
def test_a_blueprint_refers_to_it_by_name(kind: str) -> None:
    """A blueprint has its name only, and is loaded with the agent in `agents`; without it, that is a problem."""
    agent = FunctionAgent("helper", answers("found"), description="Helps.")
    assert agent.to_blueprint() == {
        "type": "Agent",
        "name": "helper",
        "description": "Helps.",
    }
    team: Any
    if kind == "Workflow":
        team = Workflow("team", steps=[agent])
        pointer = "/steps/0/agent"
    elif kind == "Conductor":
        team = Conductor("team", "Lead.", "offline/echo", [agent])
        pointer = "/skills/0"
    else:
        team = Pipeline("team", steps=[agent])
        pointer = "/steps/0"
    blueprint = team.to_blueprint()
    loaded = load(blueprint, agents={"helper": agent})
    assert loaded.to_blueprint() == blueprint
    assert loaded.members()["helper"] is agent
    with pytest.raises(BlueprintValidationError) as caught:
        load(blueprint)
    assert [problem.pointer for problem in caught.value.problems] == [pointer]
    assert "helper" in caught.value.problems[0].detail
