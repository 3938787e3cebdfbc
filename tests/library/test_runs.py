"""The run machinery: where runs start, how they nest, who hears them, and what ends them."""

import asyncio
import contextlib
import json
import logging
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel, Field

from podwright import (
    Agent,
    AgentStep,
    Event,
    EventManager,
    FunctionModel,
    LimitExceededError,
    ParallelStep,
    Pipeline,
    PodwrightError,
    RunCancelledError,
    RunLimits,
    ScriptedModel,
    Usage,
    Workflow,
)
from podwright.errors import (
    BlockingCallError,
    ContextError,
    InputError,
    LoopLimitError,
    ModelError,
    OutputError,
    ToolArgumentsError,
    ToolError,
)
from podwright.testing import ModelRequest, ModelResponse, ToolCall, assert_events, events_of

Sound = Callable[[list[Event]], None]


def says(text: str) -> FunctionModel:
    return FunctionModel(lambda _: text)


def number_of(request: ModelRequest) -> int:
    return int(request.messages[-1].content)


# --- where a run may be started -----------------------------------------------------------------------


async def test_run_inside_a_running_loop() -> None:
    """`run()` works where an event loop is already running, as in a notebook."""
    assert asyncio.get_running_loop().is_running()
    assert Agent("a", "Help.", says("yes")).run("?") == "yes"
    assert [event.type for event in Agent("a", "Help.", says("yes")).stream("?")][-1] == "run_finished"


def test_runs_share_one_background_loop() -> None:
    """All synchronous calls use one event loop, so that pooled connections keep theirs."""
    loops: list[asyncio.AbstractEventLoop] = []

    def note(_: ModelRequest) -> str:
        loops.append(asyncio.get_running_loop())
        return "ok"

    agent = Agent("a", "Help.", FunctionModel(note))
    agent.run("1")
    agent.run("2")
    list(agent.stream("3"))
    threads = [threading.Thread(target=agent.run, args=(str(number),)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(loops) == 7
    assert len(set(loops)) == 1


async def test_a_thousand_runs_at_once(assert_sound: Sound) -> None:
    """A thousand concurrent runs of one component mix neither their values, nor their usage, nor their events."""

    async def answer(request: ModelRequest) -> Any:
        number = number_of(request) if request.messages[-1].role == "user" else int(request.messages[1].content)
        for _ in range(number % 3):
            await asyncio.sleep(0)
        used = Usage(input_tokens=number + 1, output_tokens=1)
        if request.messages[-1].role == "user":
            return ModelResponse(tool_calls=(ToolCall.of("double", number=number),), usage=used)
        return ModelResponse(request.messages[-1].content, usage=used)

    async def double(number: int) -> int:
        """Double a number."""
        await asyncio.sleep(0)
        return 2 * number

    agent = Agent("calculator", "Count.", FunctionModel(answer), tools=[double])
    results = await asyncio.gather(*(agent.arun(str(number), trace=True) for number in range(1000)))
    assert len({result.events[0].run_id for result in results}) == 1000
    for number, result in enumerate(results):
        assert result.value == str(2 * number)
        assert result.usage.input_tokens == 2 * (number + 1)
        assert (result.usage.model_calls, result.usage.tool_calls) == (2, 1)
        assert len({event.run_id for event in result.events}) == 1
        assert [event.arguments for event in events_of(result, "tool_call_started")] == [{"number": number}]  # pyright: ignore[reportAttributeAccessIssue]
        assert_sound(result.events)


async def test_a_blocking_tool_stalls_nobody() -> None:
    """A synchronous tool that blocks holds up its own run only, however many there are."""
    release = threading.Event()

    def wait() -> str:
        """Wait."""
        assert release.wait(30)
        return "done"

    blocked = [
        asyncio.create_task(Agent("slow", "Wait.", ScriptedModel(ToolCall.of("wait"), "slow"), tools=[wait]).arun("?"))
        for _ in range(50)
    ]
    quick = Agent("quick", "Wait.", ScriptedModel(ToolCall.of("ready"), "quick"), tools=[ready])
    try:
        assert await quick.arun("?") == "quick"
        assert not any(task.done() for task in blocked)
    finally:
        release.set()
    assert await asyncio.gather(*blocked) == ["slow"] * 50


def ready() -> str:
    """Say that all is ready."""
    return "ready"


def program(*lines: str) -> list[str]:
    prelude = """
        import asyncio, os, sys
        from podwright import *
        from podwright.testing import *
        """
    return [sys.executable, "-W", "error", "-c", "\n".join(textwrap.dedent(part) for part in (prelude, *lines))]


def test_a_forked_child_has_its_own_loop() -> None:
    """After a fork, `run()` works in the child, also in a child that a tool forked."""
    code = """
        def answer(request):
            return f"answer {len(request.messages)}"

        plain = Agent("plain", "Help.", FunctionModel(answer))

        def in_child() -> str:
            "Ask another agent in a child process."
            child = os.fork()
            if child == 0:
                os._exit(0 if plain.run("?") == "answer 2" else 1)
            return str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

        assert plain.run("?") == "answer 2"
        print(in_child())
        agent = Agent("forks", "Help.", ScriptedModel(ToolCall.of("in_child"), "fine"), tools=[in_child])
        print(agent.run("?", trace=True).events[-3].request.messages[-1].content)
        """
    run = subprocess.run(
        [*program()[:2], "ignore::DeprecationWarning", *program(code)[3:]],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.stderr == ""
    assert run.stdout.split() == ["0", "0"]


def test_an_interrupt_cancels_the_run() -> None:
    """Ctrl-C while `run()` waits cancels the run before the KeyboardInterrupt reaches the caller."""
    code = """
        async def block(request):
            print("blocked", flush=True)
            try:
                await asyncio.Event().wait()
            finally:
                print("model cancelled", flush=True)

        manager = EventManager()
        manager.subscribe(lambda event: print(event.type, flush=True), "run_cancelled")
        try:
            Agent("a", "Help.", FunctionModel(block), event_manager=manager).run("?")
        except KeyboardInterrupt:
            print("interrupted")
        """
    with subprocess.Popen(program(code), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "blocked\n"
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    assert errors == ""
    assert output.splitlines() == ["model cancelled", "run_cancelled", "interrupted"]
    assert process.returncode == 0


# --- nested runs ---------------------------------------------------------------------------------------


def nesting_tool(way: str, helper: Agent) -> Callable[..., Any]:
    def ask(question: str) -> str:
        """Ask the helper."""
        return helper.run(question)

    async def ask_async(question: str) -> str:
        """Ask the helper."""
        return await helper.arun(question)

    def ask_streaming(question: str) -> str:
        """Ask the helper."""
        return [event for event in helper.stream(question) if event.type == "run_finished"][-1].value  # pyright: ignore[reportAttributeAccessIssue]

    async def ask_astreaming(question: str) -> str:
        """Ask the helper."""
        return [event async for event in helper.astream(question) if event.type == "run_finished"][-1].value  # pyright: ignore[reportAttributeAccessIssue]

    tool = {"run": ask, "arun": ask_async, "stream": ask_streaming, "astream": ask_astreaming}[way]
    tool.__name__ = "ask"
    return tool


@pytest.mark.parametrize("way", ["run", "arun", "stream", "astream"])
@pytest.mark.parametrize("outer", ["run", "arun"])
def test_a_tool_that_runs_an_agent_nests_it(way: str, outer: str, assert_sound: Sound) -> None:
    """An agent that a tool runs is a nested run: one trace, and its usage rolls up."""
    helper = Agent("helper", "Help.", says("42"))
    model = ScriptedModel(ToolCall.of("ask", question="much?"), "It is 42.")
    asker = Agent("asker", "Ask.", model, tools=[nesting_tool(way, helper)])
    result: Any = (
        asker.run("?", trace=True) if outer == "run" else asyncio.run(asker.arun("?", trace=True))  # type: ignore[arg-type]
    )
    assert_sound(result.events)
    started = {event.component: event for event in events_of(result, "run_started")}
    assert started["helper"].parent_id == started["asker"].run_id
    assert_events(
        result,
        "tool_call_started tool=ask",
        "run_started component=helper input=much?",
        "run_finished component=helper value=42",
        "tool_call_finished tool=ask output=42",
        "run_finished component=asker",
    )
    assert result.usage.model_calls == 3
    assert helper.last_usage.model_calls == 1


@pytest.mark.parametrize("way", ["run", "arun"])
def test_a_nested_run_shares_the_budget(way: str) -> None:
    """The limits of a run hold for the agents that its tools run, too."""
    asked: list[str] = []

    def answer(request: ModelRequest) -> str:
        asked.append(request.component)
        return "42"

    helper = Agent("helper", "Help.", FunctionModel(answer))
    model = ScriptedModel(ToolCall.of("ask", question="1"), ToolCall.of("ask", question="2"), "end")
    asker = Agent("asker", "Ask.", model, tools=[nesting_tool(way, helper)], limits=RunLimits(model_calls=3))
    with pytest.raises(LimitExceededError) as caught:
        asker.run("?")
    assert caught.value.limit == "model_calls"
    assert caught.value.component == "helper"
    assert caught.value.usage is not None
    assert caught.value.usage.model_calls == 3
    assert (len(model.requests), asked) == (2, ["helper"])


def test_a_nested_run_streams_with_the_outer_one() -> None:
    """Tokens of an agent that a tool runs arrive if the outer run streams, or it does itself."""
    texts: list[str] = []
    helper = Agent("helper", "Help.", says("forty two"), on_token=texts.append)
    asker = Agent(
        "asker", "Ask.", ScriptedModel(ToolCall.of("ask", question="?"), "end"), tools=[nesting_tool("arun", helper)]
    )
    asker.run("?", stream=True)
    assert texts == ["forty", " two"]
    texts.clear()
    asker = Agent(
        "asker", "Ask.", ScriptedModel(ToolCall.of("ask", question="?"), "end"), tools=[nesting_tool("stream", helper)]
    )
    asker.run("?")
    assert texts == ["forty", " two"]


def test_a_blocking_call_on_the_runs_own_loop() -> None:
    """`run()` and `stream()` in an asynchronous tool would wait for themselves, and are refused."""
    helper = Agent("helper", "Help.", says("42"))

    async def ask() -> str:
        """Ask."""
        return helper.run("?")

    async def ask_stream() -> str:
        """Ask."""
        return str(list(helper.stream("?")))

    for tool in (ask, ask_stream):
        asker = Agent("asker", "Ask.", ScriptedModel(ToolCall.of(tool.__name__), "end"), tools=[tool])
        with pytest.raises(BlockingCallError) as caught:
            asker.run("?")
        assert caught.value.component == "asker"
        assert "arun" in caught.value.suggestion


@pytest.mark.parametrize("way", ["run", "stream"])
async def test_cancelling_reaches_a_run_in_a_tools_thread(way: str, heard: Any, assert_sound: Sound) -> None:
    """A cancelled run also cancels the agent that its synchronous tool waits for."""
    began, in_tool = asyncio.Event(), list[BaseException]()

    async def block(_: ModelRequest) -> str:
        began.set()
        await asyncio.Event().wait()
        raise AssertionError

    helper = Agent("helper", "Help.", FunctionModel(block))
    ended = threading.Event()

    def ask() -> str:
        """Ask the helper, and again when it is stopped."""
        for _ in range(2):
            try:
                nesting_tool(way, helper)("?")
            except RunCancelledError as error:
                in_tool.append(error)
        ended.set()
        return "too late"

    asker = Agent(
        "asker", "Ask.", ScriptedModel(ToolCall.of("ask"), "end"), tools=[ask], event_manager=heard.manager
    )
    task = asyncio.create_task(asker.arun("?"))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert isinstance(caught.value.__cause__, RunCancelledError)
    assert_sound(heard.events)
    assert [event.component for event in heard.of("run_cancelled")] == ["helper", "asker"]
    count = len(heard.events)
    assert await asyncio.to_thread(ended.wait, 30)
    assert len(in_tool) == 2
    assert len(heard.events) == count, "nothing happens after the end"


# --- who hears a run -----------------------------------------------------------------------------------


def test_a_subscriber_that_raises_is_dropped_for_the_run(caplog: pytest.LogCaptureFixture) -> None:
    """A subscriber that raises is logged once and hears no more of that run; the run and the others go on."""
    calls: list[str] = []
    others: list[Event] = []

    def broken(event: Event) -> None:
        calls.append(event.type)
        raise ValueError("broken")

    manager = EventManager()
    manager.subscribe(broken)
    manager.subscribe(others.append)
    agent = Agent("a", "Help.", says("yes"), event_manager=manager)
    with caplog.at_level(logging.ERROR, logger="podwright"):
        assert agent.run("?") == "yes"
    assert calls == ["run_started"]
    assert [event.type for event in others] == [
        "run_started", "model_call_started", "model_call_finished", "run_finished",
    ]  # fmt: skip
    assert len(caplog.records) == 1
    assert others[0].run_id in caplog.records[0].getMessage()
    agent.run("?")
    assert calls == ["run_started", "run_started"]


def test_an_event_manager_is_shared(heard: Any) -> None:
    """A manager that a workflow and its agents share hears each event once."""
    one = Agent("one", "Help.", says("1"), event_manager=heard.manager)
    two = Agent("two", "Help.", says("2"), event_manager=heard.manager)
    flow = Workflow("flow", [one, two], event_manager=heard.manager)
    flow.run("?")
    assert [event.component for event in heard.of("run_started")] == ["flow", "one", "two"]
    assert [event.seq for event in heard.events] == list(range(len(heard.events)))
    one.run("?")
    assert [event.component for event in heard.of("run_started")] == ["flow", "one", "two", "one"]


def test_subscriptions_end_and_choose() -> None:
    """A subscription may name event types, and ends when it is told to; a run keeps those it began with."""
    manager, heard, ends = EventManager(), list[str](), list[str]()
    unsubscribe = manager.subscribe(lambda event: heard.append(event.type), "run_started", "run_finished")

    def once(event: Event) -> None:
        ends.append(event.type)
        unsubscribe()

    end_once = manager.subscribe(once)
    agent = Agent("a", "Help.", says("yes"), event_manager=manager)
    agent.run("?")
    assert heard == ["run_started", "run_finished"]
    assert len(ends) == 4
    agent.run("?")
    assert heard == ["run_started", "run_finished"]
    end_once()
    end_once()
    agent.run("?")
    assert len(ends) == 8
    assert manager.subscribers == ()


def test_verbose_prints_the_steps(capsys: pytest.CaptureFixture[str]) -> None:
    """`verbose` prints started, thinking and the final answer, a line each."""
    Agent("guide", "Help.", says("Sunny."), verbose=True).run("Weather?")
    started, thinking, answer = capsys.readouterr().out.splitlines()
    assert started == "[guide] started: Weather?"
    assert thinking == "[guide] thinking (offline/function)"
    assert answer.startswith("[guide] final answer (")
    assert answer.endswith("): Sunny.")


def test_verbose_twice_prints_once(capsys: pytest.CaptureFixture[str]) -> None:
    """A verbose component in a verbose one is printed once."""
    agent = Agent("inner", "Help.", says("yes"), verbose=True)
    Workflow("outer", [agent], verbose=True).run("?")
    lines = capsys.readouterr().out.splitlines()
    assert lines.count("  [inner] thinking (offline/function)") == 1
    assert len(lines) == 6


def test_verbose_tells_of_all_that_happens(capsys: pytest.CaptureFixture[str]) -> None:
    """Tool calls, failures and tokens are printed too, and control characters do not reach the terminal."""

    def fail() -> str:
        """Fail."""
        raise ValueError("broken\x1b[31m")

    agent = Agent("a", "Help.", ScriptedModel(ToolCall.of("fail"), "end"), tools=[fail], verbose=True)
    with pytest.raises(ToolError):
        agent.run("?")
    Agent("b", "Help.", says("one\x07 two"), verbose=True).run("?", stream=True)
    printed = capsys.readouterr().out
    assert "[a] calls fail()" in printed
    assert "[a] fail failed: Tool 'fail' raised ValueError: broken\ufffd[31m" in printed
    assert "[a] failed: Tool 'fail' raised" in printed
    assert "\none\ufffd two\n" in printed


@pytest.mark.parametrize("way", ["run", "arun", "stream", "astream"])
def test_tokens_arrive_in_order(way: str) -> None:
    """A streamed run gives each piece of text to `on_token`, in order; together they are the answer."""
    texts: list[str] = []
    agent = Agent("a", "Help.", says("one two  three"), on_token=texts.append)

    async def read() -> None:
        async for _ in agent.astream("?"):
            pass

    match way:
        case "run":
            agent.run("?", stream=True)
        case "arun":
            asyncio.run(agent.arun("?", stream=True))
        case "stream":
            list(agent.stream("?"))
        case _:
            asyncio.run(read())
    assert texts == ["one", " two", "  three"]
    texts.clear()
    agent.run("?")
    assert texts == []


# --- cancellation and streams --------------------------------------------------------------------------


async def test_a_timeout_around_a_run(heard: Any) -> None:
    """`asyncio.timeout` around `arun` raises TimeoutError and cancels the run."""

    async def block(_: ModelRequest) -> str:
        await asyncio.Event().wait()
        raise AssertionError

    flow = Workflow("flow", [ParallelStep([[Agent("a", "", FunctionModel(block))]])], event_manager=heard.manager)  # type: ignore[list-item]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await flow.arun("?")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(flow.arun("?"), 0.01)
    assert heard.types().count("run_cancelled") == 4


async def test_a_task_group_cancels_runs(heard: Any) -> None:
    """A run in a task group is cancelled when a sibling fails, and the group raises the sibling's error alone."""
    began = asyncio.Event()

    async def block(_: ModelRequest) -> str:
        began.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def fail() -> None:
        await began.wait()
        raise ValueError("sibling")

    agent = Agent("a", "", FunctionModel(block), event_manager=heard.manager)
    with pytest.raises(ExceptionGroup) as caught:
        async with asyncio.TaskGroup() as group:
            group.create_task(agent.arun("?"))
            group.create_task(fail())
    assert [type(error) for error in caught.value.exceptions] == [ValueError]
    assert heard.types()[-1] == "run_cancelled"


async def test_context_variables_stay_in_the_stream() -> None:
    """What a run puts into context variables does not leak into the reader of its stream, nor the other way."""
    variable: ContextVar[str] = ContextVar("variable", default="unset")
    seen: list[str] = []

    async def answer(_: ModelRequest) -> str:
        seen.append(variable.get())
        variable.set("by the run")
        return "yes"

    agent = Agent("a", "Help.", FunctionModel(answer))
    variable.set("by the reader")
    async for _ in agent.astream("?"):
        assert variable.get() == "by the reader"
    assert seen == ["by the reader"]
    other = Agent("b", "Help.", says("yes"))
    stream = agent.astream("?")
    await anext(stream)
    result = await other.arun("?", trace=True)
    assert result.events[0].parent_id is None, "the reader is not within the run that it reads"
    await stream.aclose()  # type: ignore[attr-defined]


async def test_a_stream_may_be_closed_by_another_task(heard: Any, assert_sound: Sound) -> None:
    """A stream that one task began may be read and closed by others."""
    began = asyncio.Event()

    async def block(_: ModelRequest) -> str:
        began.set()
        await asyncio.Event().wait()
        raise AssertionError

    stream: Any = Agent("a", "Help.", FunctionModel(block), event_manager=heard.manager).astream("?")
    assert (await asyncio.create_task(anext(stream))).type == "run_started"
    await began.wait()
    await asyncio.create_task(stream.aclose())
    assert_sound(heard.events)
    assert heard.types() == ["run_started", "model_call_started", "model_call_failed", "run_cancelled"]


async def test_leaving_a_stream_after_a_failure_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    """A reader who leaves on `run_failed` has seen the failure: nothing is logged about it."""
    stream: Any = Agent("a", "Help.", ScriptedModel(ValueError("no"))).astream("?")
    async for event in stream:
        if event.type == "run_failed":
            break
    await asyncio.sleep(0)
    await stream.aclose()
    del stream
    await asyncio.sleep(0)
    assert caplog.records == []


# --- tools ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", ["sync", "async"])
def test_a_tool_that_raises(style: str, heard: Any, assert_sound: Sound) -> None:
    """An exception in a tool is a ToolError whose cause it is."""

    def broken() -> str:
        """Break."""
        raise LookupError("nothing there")

    async def broken_async() -> str:
        """Break."""
        raise LookupError("nothing there")

    tool: Any = broken if style == "sync" else broken_async
    model = ScriptedModel(ToolCall.of(tool.__name__), "end")
    agent = Agent("a", "Help.", model, tools=[tool], event_manager=heard.manager)
    with pytest.raises(ToolError) as caught:
        agent.run("?")
    assert isinstance(caught.value.__cause__, LookupError)
    assert "nothing there" in caught.value.message
    assert_sound(heard.events)
    assert [event.error["code"] for event in heard.of("tool_call_failed")] == ["tool_failed"]
    assert heard.events[-1].usage.tool_calls == 1


def test_a_tool_whose_answer_is_no_json() -> None:
    """A tool's answer that cannot be written down is the tool's failure."""
    circle: list[Any] = []
    circle.append(circle)

    def turn() -> list[Any]:
        """Turn."""
        return circle

    with pytest.raises(ToolError, match="Circular"):
        Agent("a", "Help.", ScriptedModel(ToolCall.of("turn"), "end"), tools=[turn]).run("?")


def count_to(number: int) -> int:
    """Count."""
    return number


WRONG = {
    "a wrong type": ToolCall.of("count_to", number="many"),
    "a missing argument": ToolCall.of("count_to"),
    "an unknown argument": ToolCall.of("count_to", number=1, speed=2),
    "no JSON": ToolCall("call_1", "count_to", '{"number": '),
    "no object": ToolCall("call_1", "count_to", "[1]"),
    "an unknown tool": ToolCall.of("count_two", number=1),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_call_goes_back_once(wrong: str, assert_sound: Sound) -> None:
    """The model is told what is wrong with its call, and may do better; the second time the run fails."""
    call = WRONG[wrong]
    model = ScriptedModel(call, ToolCall.of("count_to", number=3), "three")
    result = Agent("a", "Help.", model, tools=[count_to]).run("?", trace=True)
    assert result.value == "three"
    told = model.requests[1].messages[-1]
    assert (told.role, told.tool_call_id) == ("tool", "call_1")
    assert told.content.startswith("Error: ")
    assert call.name in told.content
    assert_sound(result.events)
    assert_events(result, "tool_call_started", "tool_call_failed", "tool_call_finished output=3", "run_finished")

    model = ScriptedModel(call, call, "three")
    with pytest.raises(ToolArgumentsError) as caught:
        Agent("a", "Help.", model, tools=[count_to]).run("?")
    assert len(model.requests) == 2
    assert caught.value.code == "tool_arguments_invalid"


def test_an_unknown_tool_is_answered_with_a_suggestion() -> None:
    """A call of an unknown tool is answered with the name that is nearest."""
    model = ScriptedModel(ToolCall.of("count_two"), "end")
    Agent("a", "Help.", model, tools=[count_to]).run("?")
    assert model.requests[1].messages[-1].content == (
        "Error: Unknown tool 'count_two' in 'a'. Did you mean 'count_to'?"
    )


def test_two_wrong_calls_in_one_turn_are_told_together() -> None:
    """A model that errs twice in one turn was not told yet: both errors go back."""
    wrong = [ToolCall.of("count_to", id="1", number="x"), ToolCall.of("count_to", id="2", number="y")]
    model = ScriptedModel(wrong, "I give up.")
    assert Agent("a", "Help.", model, tools=[count_to]).run("?") == "I give up."
    assert [message.tool_call_id for message in model.requests[1].messages[-2:]] == ["1", "2"]


def test_wrong_arguments_inside_a_nested_run_are_its_failure() -> None:
    """A nested run that fails for its model's wrong calls fails the outer run, and is not told to its model."""
    wrong = ToolCall.of("count_to", number="x")
    helper = Agent("helper", "Help.", ScriptedModel(wrong, wrong), tools=[count_to])
    model = ScriptedModel(ToolCall.of("ask", question="?"), "end")
    with pytest.raises(ToolArgumentsError) as caught:
        Agent("asker", "Ask.", model, tools=[nesting_tool("arun", helper)]).run("?")
    assert caught.value.component == "helper"
    assert len(model.requests) == 1


async def test_tool_calls_of_one_turn_run_together() -> None:
    """Tool calls of one turn run concurrently, and are answered in the order of the calls."""
    gate = asyncio.Barrier(3)

    async def meet(name: str) -> str:
        """Wait for the others."""
        async with asyncio.timeout(10), gate:
            return name

    calls = [ToolCall.of("meet", id=name, name=name) for name in "abc"]
    model = ScriptedModel(calls, "met")
    assert await Agent("a", "Help.", model, tools=[meet]).arun("?") == "met"
    assert [(message.tool_call_id, message.content) for message in model.requests[1].messages[-3:]] == [
        ("a", "a"), ("b", "b"), ("c", "c"),
    ]  # fmt: skip


async def test_a_failing_tool_cancels_the_others(heard: Any, assert_sound: Sound) -> None:
    """When one of several tool calls fails, the others are cancelled, and the run waits until they have ended."""
    waiting, ended = asyncio.Event(), list[str]()

    async def wait() -> str:
        """Wait."""
        waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("wait")
        raise AssertionError

    async def fail() -> str:
        """Fail."""
        await waiting.wait()
        raise ValueError("no")

    model = ScriptedModel([ToolCall.of("wait", id="1"), ToolCall.of("fail", id="2")])
    with pytest.raises(ToolError, match="no"):
        await Agent("a", "Help.", model, tools=[wait, fail], event_manager=heard.manager).arun("?")
    assert ended == ["wait"]
    assert_sound(heard.events)
    failed = {event.tool: event.error["code"] for event in heard.of("tool_call_failed")}
    assert failed == {"fail": "tool_failed", "wait": "run_cancelled"}


def test_max_loops() -> None:
    """A model that never stops calling tools is stopped after `max_loops` calls."""
    model = FunctionModel(lambda _: ToolCall.of("count_to", number=1))
    agent = Agent("a", "Help.", model, tools=[count_to], max_loops=3)
    with pytest.raises(LoopLimitError) as caught:
        agent.run("?")
    assert caught.value.usage is not None
    assert caught.value.usage.model_calls == 3


def test_an_answer_that_was_cut_off() -> None:
    """An answer cut off at `max_tokens` is a failure, never a success."""
    model = ScriptedModel(ModelResponse("It was a dark and", finish_reason="length"))
    with pytest.raises(ModelError, match="cut off at 4 output tokens") as caught:
        Agent("a", "Help.", model, max_tokens=4).run("?")
    assert caught.value.usage is not None
    assert caught.value.usage.model_calls == 1


# --- structured output ---------------------------------------------------------------------------------


class Place(BaseModel):
    """A place."""

    name: str
    population: int = Field(ge=0)


@dataclass
class Point:
    x: int
    y: int


class ToolOnly(ScriptedModel):
    """A scripted model whose provider has no JSON mode."""

    json_output = False


STRUCTURED: dict[str, tuple[Any, Any, Any]] = {
    "model": (Place, {"name": "Paris", "population": 2}, Place(name="Paris", population=2)),
    "list": (list[int], {"answer": [1, 2]}, [1, 2]),
    "dataclass": (Point, {"x": 1, "y": 2}, Point(1, 2)),
    "union": (Place | int, {"answer": 3}, 3),
    "object": (dict[str, int], {"a": 1}, {"a": 1}),
}


@pytest.mark.parametrize("by_tool", [False, True], ids=["json", "tool"])
@pytest.mark.parametrize("which", STRUCTURED)
def test_structured_output(which: str, by_tool: bool, assert_sound: Sound) -> None:
    """`response_model` gives a validated value, whether the model has a JSON mode or not."""
    response_model, data, value = STRUCTURED[which]
    good: Any = ToolCall.of("final_answer", **data) if by_tool else json.dumps(data)
    bad: Any = ToolCall.of("final_answer", wrong="x", name=1) if by_tool else '{"wrong": "x", "name": 1}'
    model = (ToolOnly if by_tool else ScriptedModel)(bad, good)
    result = Agent("a", "Help.", model).run("?", response_model=response_model, trace=True)
    assert result.value == value
    assert type(result.value) is type(value)
    assert_sound(result.events)
    first, second = model.requests
    assert (first.output is None) is by_tool
    assert [tool["function"]["name"] for tool in first.tools] == (["final_answer"] if by_tool else [])
    complaint = second.messages[-1]
    assert complaint.role == ("tool" if by_tool else "user")
    assert "does not fit" in complaint.content


@pytest.mark.parametrize("answer", ["no JSON", "[1]", '{"name": "Paris", "population": -1}', '{"name": 1, "name": 2}'])
def test_output_that_never_fits(answer: str) -> None:
    """An answer that never fits the response model within `max_loops` is an OutputError that says why."""
    model = ScriptedModel(answer, answer, answer)
    with pytest.raises(OutputError) as caught:
        Agent("a", "Help.", model, max_loops=2).run("?", response_model=Place)
    assert len(model.requests) == 2
    assert "2 tries" in caught.value.message


def test_structured_output_after_tools() -> None:
    """Tools come first, then the structured answer; text is one of the types."""
    model = ScriptedModel(ToolCall.of("count_to", number=3), '{"x": 3, "y": 4}')
    assert Agent("a", "Help.", model, tools=[count_to]).run("?", response_model=Point) == Point(3, 4)
    assert Agent("a", "Help.", says("text")).run("?", response_model=str) == "text"


def test_a_type_that_cannot_be_a_response_model() -> None:
    """A response model without a schema is refused before any model call."""
    model = ScriptedModel("never")
    with pytest.raises(InputError):
        Agent("a", "Help.", model).run("?", response_model=threading.Lock)
    assert model.requests == []


# --- input ---------------------------------------------------------------------------------------------


def circular() -> list[Any]:
    circle: list[Any] = []
    circle.append(circle)
    return circle


@pytest.mark.parametrize(
    "given",
    [5, None, [1], b"bytes", {}, {1: "x"}, {"a": "\ud800"}, {"a": circular()}, {"a": b"\xff"}, {"a": 10**5000}],
    ids=["int", "none", "list", "bytes", "empty", "key", "surrogate", "circle", "binary", "huge"],
)
@pytest.mark.parametrize("kind", ["agent", "workflow", "conductor", "pipeline"])
def test_wrong_input(kind: str, given: Any, stage: Callable[..., Any]) -> None:
    """Whatever is no text and no object of JSON values is one ContextError, before any model call."""
    staged = stage(kind)
    if kind == "workflow" and given is None:
        staged.component.run(given)
        return
    with pytest.raises(ContextError):
        staged.component.run(given)
    assert staged.model.begun == []
    if staged.heard.events:
        assert staged.heard.types()[0] == "run_started"
        assert staged.heard.types()[-1] == "run_failed"


def test_named_inputs_fill_the_instructions() -> None:
    """Named inputs fill `{name}` in the instructions; the others are given as labelled sections."""
    model = ScriptedModel("ok", "ok", "ok")
    agent = Agent("a", "Answer in {language}, {unknown}.", model)
    agent.run({"language": "French", "query": "moon?", "style": {"tone": "dry"}})
    system, user = model.requests[0].messages
    assert system.content == "Answer in French, {unknown}."
    assert user.content == '## query\nmoon?\n\n## style\n{"tone": "dry"}'
    agent.run({"language": "{query}", "query": "moon?"})
    system, user = model.requests[1].messages
    assert system.content == "Answer in {query}, {unknown}."
    assert user.content == "moon?"
    agent.run("text")
    assert [message.content for message in model.requests[2].messages] == ["Answer in {language}, {unknown}.", "text"]


# --- failures in parallel ------------------------------------------------------------------------------


async def test_usage_of_a_cancelled_sibling_counts(heard: Any, assert_sound: Sound) -> None:
    """What a cancelled branch has used before it was cancelled counts to the run that failed."""
    used = asyncio.Event()

    async def answer(request: ModelRequest) -> Any:
        if request.component == "fails":
            await used.wait()
            raise ValueError("no")
        if request.messages[-1].role == "tool":
            used.set()
            await asyncio.Event().wait()
        return ToolCall.of("count_to", number=1)

    model = FunctionModel(answer)
    worker = Agent("works", "Help.", model, tools=[count_to])
    fails = Agent("fails", "Help.", model)
    flow = Workflow("flow", [ParallelStep([[AgentStep(worker)], [AgentStep(fails)]])], event_manager=heard.manager)
    with pytest.raises(ModelError) as caught:
        await flow.arun("?")
    assert_sound(heard.events)
    assert caught.value.component == "fails"
    assert caught.value.usage is not None
    assert (caught.value.usage.model_calls, caught.value.usage.tool_calls) == (1, 1)
    assert flow.last_usage == caught.value.usage
    assert_events(
        heard.events,
        "run_failed component=fails",
        "run_cancelled component=works",
        "step_finished step=parallel outcome=failed",
        "run_failed component=flow",
    )


def test_an_error_keeps_the_outermost_run_and_the_innermost_component(heard: Any) -> None:
    """An error that went through several runs names the outermost run and the innermost component."""
    inner = Pipeline("line", [Agent("deep", "Help.", ScriptedModel(ValueError("no")))])
    flow = Workflow("flow", [inner], event_manager=heard.manager)
    with pytest.raises(PodwrightError) as caught:
        flow.run("?")
    assert caught.value.component == "deep"
    assert caught.value.run_id == heard.events[0].run_id
    assert [event.component for event in heard.of("run_failed")] == ["deep", "line", "flow"]
    with contextlib.suppress(PodwrightError):
        raise caught.value
