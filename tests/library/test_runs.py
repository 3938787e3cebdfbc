"""The run machinery: where runs start, how they nest, and what ends them."""

import asyncio
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest

from podwright import (
    Agent,
    AgentStep,
    Event,
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
    ModelError,
)
from podwright.testing import ModelRequest, ModelResponse, ToolCall, assert_events, events_of


def picked(trace: Any, *types: str) -> list[Any]:
    """The events of these types; a type checker cannot know which they are."""
    return events_of(trace, *types)


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
        assert [event.arguments for event in picked(result, "tool_call_started")] == [{"number": number}]
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
        import signal

        # a shell that starts a program in the background lets it ignore interrupts
        signal.signal(signal.SIGINT, signal.default_int_handler)

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
        return [event for event in helper.stream(question) if event.type == "run_finished"][-1].value

    async def ask_astreaming(question: str) -> str:
        """Ask the helper."""
        return [event async for event in helper.astream(question) if event.type == "run_finished"][-1].value

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
    result: Any = asker.run("?", trace=True) if outer == "run" else asyncio.run(asker.arun("?", trace=True))
    assert_sound(result.events)
    started = {event.component: event for event in picked(result, "run_started")}
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


async def test_a_run_that_outlives_its_starter_stands_alone(assert_sound: Sound) -> None:
    """A run that a tool left behind, and that begins when the tool's run is over, is a run and a trace of its own."""
    over, left = asyncio.Event(), list[asyncio.Task[Any]]()
    helper = Agent("helper", "Help.", says("42"))

    async def later() -> Any:
        await over.wait()
        return await helper.arun("?", trace=True)

    async def leave() -> str:
        """Leave something to be done later."""
        left.append(asyncio.create_task(later()))
        return "later"

    result = await Agent("asker", "Ask.", ScriptedModel(ToolCall.of("leave"), "end"), tools=[leave]).arun(
        "?", trace=True
    )
    over.set()
    behind = await left[0]
    assert_sound(behind.events)
    assert {event.component for event in result.events} == {"asker"}
    assert result.usage.model_calls == 2


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

    asker = Agent("asker", "Ask.", ScriptedModel(ToolCall.of("ask"), "end"), tools=[ask], event_manager=heard.manager)
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


# --- cancellation and streams --------------------------------------------------------------------------


async def test_a_timeout_around_a_run(heard: Any, outlast: Callable[[], Any]) -> None:
    """`asyncio.timeout` around `arun` raises TimeoutError and cancels the run."""
    slow = Agent("a", "", FunctionModel(lambda _: outlast()), timeout=7200)  # longer than the clock is put ahead
    flow = Workflow("flow", [ParallelStep([[slow]])], event_manager=heard.manager)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await flow.arun("?")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(flow.arun("?"), 60)
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

    async def both() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(agent.arun("?"))
            group.create_task(fail())

    with pytest.raises(ExceptionGroup) as caught:
        await both()
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
    stream: Any = agent.astream("?")
    await anext(stream)
    result = await other.arun("?", trace=True)
    assert result.events[0].parent_id is None, "the reader is not within the run that it reads"
    await stream.aclose()


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


# --- failures in parallel ------------------------------------------------------------------------------


def count_to(number: int) -> int:
    """Count."""
    return number


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


def test_the_background_loop_outlives_what_is_raised_in_it() -> None:
    """A KeyboardInterrupt that a model raises reaches its own caller; other runs, under way and later, go on."""
    going, go = threading.Event(), threading.Event()
    answers: list[str] = []

    async def slow(_: ModelRequest) -> str:
        going.set()
        await asyncio.to_thread(go.wait)
        return "slow"

    other = threading.Thread(target=lambda: answers.append(Agent("b", "", FunctionModel(slow)).run("?")))
    other.start()
    going.wait()
    with pytest.raises(KeyboardInterrupt):
        Agent("a", "", ScriptedModel(KeyboardInterrupt())).run("?")
    go.set()
    other.join()
    assert answers == ["slow"]
    assert Agent("c", "", says("yes")).run("?") == "yes"


def test_a_closed_loop_is_not_waited_for() -> None:
    """A run whose loop somebody stops and closes ends with an error, and the next one has a new loop."""

    code = """
        def closing(request):
            loop = asyncio.get_running_loop()
            loop.stop()
            loop.run_forever = loop.close
            return asyncio.Event().wait()

        try:
            Agent("a", "", FunctionModel(closing)).run("?")
        except RunError as error:
            print(error.message)
        print(Agent("b", "", FunctionModel(lambda _: "yes")).run("?"))
        """
    run = subprocess.run(
        program("from podwright.errors import RunError", code), capture_output=True, text=True, timeout=60
    )
    assert run.stdout.splitlines() == ["The event loop of the run was closed.", "yes"]
