"""Runs: where they may be started, how they nest, and how they end."""

import asyncio
import gc
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest
from tests.library.shapes import events, says

from podwright import Agent, Workflow
from podwright.components import ParallelStep
from podwright.errors import BlockingCallError, ModelError, RunCancelledError
from podwright.testing import (
    FunctionModel,
    ModelRequest,
    ModelResponse,
    ScriptedModel,
    ToolCall,
    Usage,
    assert_events,
)


class BlockingModel(FunctionModel):
    """Never answers; `started` is set when it is called."""

    def __init__(self) -> None:
        super().__init__(self.answer)
        self.started = asyncio.Event()

    async def answer(self, _: ModelRequest) -> str:
        self.started.set()
        await asyncio.Event().wait()
        raise AssertionError


async def test_run_works_inside_a_running_loop() -> None:
    """`run` and `stream` work where an event loop is running already, as in a notebook."""
    agent = Agent("a", "Help.", says("yes"))
    assert agent.run("?") == "yes"
    assert [event.type for event in agent.stream("?")][-1] == "run_finished"


async def test_a_failed_run_waits_for_no_garbage_collection(
    request: pytest.FixtureRequest,
) -> None:
    """What a run held, such as its messages, is freed with its error, although the collector runs rarely."""
    alive = weakref.WeakSet[Exception]()

    class TrackedError(Exception):
        def __init__(self) -> None:
            alive.add(self)

    def fail(_: ModelRequest) -> str:
        raise TrackedError

    request.addfinalizer(gc.enable)
    gc.disable()
    with pytest.raises(ModelError, match="TrackedError"):
        await Agent("a", "", FunctionModel(fail)).arun("x")
    assert not alive


def test_synchronous_runs_share_one_loop() -> None:
    """All synchronous calls of a process use the same event loop, so that connections can be pooled."""
    loops: list[asyncio.AbstractEventLoop] = []

    def answer(_: ModelRequest) -> str:
        loops.append(asyncio.get_running_loop())
        return "ok"

    agent = Agent("a", "Help.", FunctionModel(answer))
    agent.run("1")
    list(agent.stream("2"))
    thread = threading.Thread(target=agent.run, args=("3",))
    thread.start()
    thread.join()
    assert len(loops) == 3
    assert len(set(loops)) == 1


async def test_concurrent_runs_of_one_component_are_separate(
    assert_sound: Any,
) -> None:
    """A thousand runs at the same time mix neither values nor usage nor events."""
    turn = asyncio.Barrier(1000)

    async def answer(request: ModelRequest) -> ModelResponse:
        number = int(request.messages[1].text)
        result = request.messages[-1]
        used = Usage(input_tokens=number + 1, output_tokens=1)
        if result.role == "tool":
            return ModelResponse(result.text, usage=used)
        return ModelResponse(
            tool_calls=(ToolCall.of("double", number=number),), usage=used
        )

    async def double(number: int) -> int:
        """Double a number."""
        await turn.wait()
        return 2 * number

    agent = Agent("calculator", "Count.", FunctionModel(answer), tools=[double])
    async with asyncio.timeout(60):
        results = await asyncio.gather(
            *(agent.arun(str(number), trace=True) for number in range(1000))
        )
    assert len({result.events[0].run_id for result in results}) == 1000
    for number, result in enumerate(results):
        assert (result.value, result.usage.input_tokens) == (
            str(2 * number),
            2 * (number + 1),
        )
        assert [
            event.arguments for event in events(result, "tool_call_started")
        ] == [{"number": number}]
        assert_sound(result.events)


async def test_a_blocking_tool_delays_its_own_run_only() -> None:
    """Fifty tools that block their threads do not delay another run."""
    release = threading.Event()

    def wait(block: bool) -> str:
        """Wait."""
        assert not block or release.wait(30)
        return "done"

    def agent(block: bool) -> Agent:
        return Agent(
            "waits",
            "",
            ScriptedModel(ToolCall.of("wait", block=block), "ok"),
            tools=[wait],
        )

    blocked = [
        asyncio.create_task(agent(block=True).arun("?")) for _ in range(50)
    ]
    try:
        assert await agent(block=False).arun("?") == "ok"
        assert not any(task.done() for task in blocked)
    finally:
        release.set()
    assert await asyncio.gather(*blocked) == ["ok"] * 50


def test_a_forked_child_can_run_components() -> None:
    """After a fork `run` works in the child, also if a tool forked it."""
    code = """
        import os
        from podwright.testing import *
        from podwright import *
        plain = Agent("plain", "Help.", FunctionModel(lambda request: "answer"))

        def in_child() -> str:
            "Run an agent in a child process."
            child = os.fork()
            if child == 0:
                os._exit(0 if plain.run("?") == "answer" else 1)
            return str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

        plain.run("?")
        print(in_child())
        agent = Agent("forks", "Help.", ScriptedModel(ToolCall.of("in_child"), "done"), tools=[in_child])
        print(events_of(agent.run("?", trace=True), "tool_call_finished")[0].output)
        """
    command = [
        sys.executable,
        "-W",
        "error",
        "-W",
        "ignore::DeprecationWarning",
        "-c",
        textwrap.dedent(code),
    ]
    process = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False
    )
    assert (process.stderr, process.stdout.split()) == ("", ["0", "0"])


def asking_tool(way: str, helper: Agent) -> Callable[..., Any]:
    """A tool `ask` that runs the helper in one of the four ways."""

    def run(question: str) -> str:
        return helper.run(question)

    async def arun(question: str) -> str:
        return await helper.arun(question)

    def stream(question: str) -> str:
        return events(helper.stream(question), "run_finished")[-1].value

    async def astream(question: str) -> str:
        return events(
            [event async for event in helper.astream(question)], "run_finished"
        )[-1].value

    tool = {"run": run, "arun": arun, "stream": stream, "astream": astream}[way]
    tool.__name__ = "ask"
    return tool


def asker(tool: Callable[..., Any], *answers: Any, **options: Any) -> Agent:
    """An agent that calls the tool `ask`, and then answers."""
    answers = answers or (ToolCall.of("ask", question="much?"), "It is 42.")
    return Agent(
        "asker", "Ask.", ScriptedModel(*answers), tools=[tool], **options
    )


@pytest.mark.parametrize("way", ["run", "arun", "stream", "astream"])
@pytest.mark.parametrize("outer", ["run", "arun"])
def test_an_agent_that_a_tool_runs_is_a_nested_run(
    way: str, outer: str, assert_sound: Any
) -> None:
    """A run started by a tool is in the same trace, and its usage counts towards the outer run."""
    helper = Agent("helper", "Help.", says("42"))
    agent = asker(asking_tool(way, helper))
    result: Any = (
        agent.run("?", trace=True)
        if outer == "run"
        else asyncio.run(agent.arun("?", trace=True))
    )
    assert_sound(result.events)
    started = {
        event.component: event for event in events(result, "run_started")
    }
    assert started["helper"].parent_id == started["asker"].run_id
    assert_events(
        result,
        "tool_call_started tool=ask",
        "run_started component=helper input=much?",
        "run_finished component=helper value=42",
        "tool_call_finished tool=ask output=42",
        "run_finished component=asker",
    )
    assert (result.usage.model_calls, helper.last_usage.model_calls) == (3, 1)


def test_a_nested_run_streams_if_it_or_the_outer_run_does() -> None:
    """Tokens of an agent that a tool runs arrive if the outer run streams, and if the tool streams it."""
    tokens: list[str] = []
    helper = Agent("helper", "Help.", says("forty two"), on_token=tokens.append)
    asker(asking_tool("arun", helper)).run("?", stream=True)
    asker(asking_tool("stream", helper)).run("?")
    assert tokens == ["forty", " two"] * 2
    asker(asking_tool("arun", helper)).run("?")
    assert len(tokens) == 4


@pytest.mark.parametrize("way", ["run", "stream"])
def test_a_synchronous_call_in_an_asynchronous_tool_is_refused(
    way: str,
) -> None:
    """`run` and `stream` on the run's own event loop would wait for themselves: a BlockingCallError."""
    blocking = asking_tool(way, Agent("helper", "Help.", says("42")))

    async def ask(question: str) -> str:
        """Ask."""
        return blocking(question)

    with pytest.raises(BlockingCallError) as caught:
        asker(ask).run("?")
    assert caught.value.component == "asker"
    assert "arun" in caught.value.suggestion


async def test_a_run_that_starts_after_its_outer_run_stands_alone(
    assert_sound: Any,
) -> None:
    """A run that a tool left in the background, and that starts when the outer run is over, has its own trace."""
    over = asyncio.Event()
    left = list[asyncio.Task[Any]]()
    helper = Agent("helper", "Help.", says("42"))

    async def later() -> Any:
        await over.wait()
        return await helper.arun("?", trace=True)

    async def ask(question: str) -> str:
        """Leave something to be done later."""
        left.append(asyncio.create_task(later()))
        return "later"

    result = await asker(ask).arun("?", trace=True)
    over.set()
    assert_sound((await left[0]).events)
    assert {event.component for event in result.events} == {"asker"}
    assert result.usage.model_calls == 2


@pytest.mark.parametrize("way", ["run", "stream"])
async def test_cancelling_a_run_cancels_those_in_threads_of_its_tools(
    way: str, recorder: Any, assert_sound: Any
) -> None:
    """A run that a synchronous tool waits for is cancelled too, and the tool can start no other."""
    model = BlockingModel()
    in_tool = list[BaseException]()
    ended = threading.Event()
    start = asking_tool(way, Agent("helper", "Help.", model))

    def ask(question: str) -> str:
        """Ask the helper twice."""
        for _ in range(2):
            try:
                start("?")
            except RunCancelledError as error:
                in_tool.append(error)
        ended.set()
        return "too late"

    task = asyncio.create_task(
        asker(ask, event_manager=recorder.manager).arun("?")
    )
    await model.started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert isinstance(caught.value.__cause__, RunCancelledError)
    assert_sound(recorder.events)
    assert [event.component for event in recorder.of("run_cancelled")] == [
        "helper",
        "asker",
    ]
    count = len(recorder.events)
    assert await asyncio.to_thread(ended.wait, 30)
    assert (len(in_tool), len(recorder.events)) == (2, count)


async def test_context_variables_do_not_cross_a_stream() -> None:
    """A run sees the context variables of its reader; what it sets, and the run itself, stay out of the reader."""
    variable: ContextVar[str] = ContextVar("variable", default="unset")
    seen: list[str] = []

    async def answer(_: ModelRequest) -> str:
        seen.append(variable.get())
        variable.set("by the run")
        return "yes"

    variable.set("by the reader")
    async for event in Agent("a", "Help.", FunctionModel(answer)).astream("?"):
        assert variable.get() == "by the reader"
        if event.type == "run_started":
            inner = await Agent("b", "Help.", says("yes")).arun("?", trace=True)
            assert inner.events[0].parent_id is None
    assert seen == ["by the reader"]


async def test_a_failing_branch_cancels_the_others(
    recorder: Any, assert_sound: Any
) -> None:
    """The first branch that fails cancels the others; what they used counts towards the run that failed."""
    used = asyncio.Event()

    async def answer(request: ModelRequest) -> Any:
        if request.component == "fails":
            await used.wait()
            raise ValueError("no")
        if request.messages[-1].role == "tool":
            used.set()
            await asyncio.Event().wait()
        return ToolCall.of("ask", question="?")

    model = FunctionModel(answer)
    works = Agent(
        "works",
        "Help.",
        model,
        tools=[asking_tool("run", Agent("helper", "", "offline/echo"))],
    )
    flow = Workflow(
        "flow",
        [ParallelStep([[works], [Agent("fails", "", model)]])],
        event_manager=recorder.manager,
    )
    with pytest.raises(ModelError) as caught:
        await flow.arun("?")
    assert_sound(recorder.events)
    assert (caught.value.component, caught.value.resume_path) == (
        "fails",
        [0, 1, 0],
    )
    assert caught.value.usage is not None
    assert (caught.value.usage.model_calls, caught.value.usage.tool_calls) == (
        2,
        1,
    )
    assert flow.last_usage == caught.value.usage
    assert [event.component for event in recorder.of("run_cancelled")] == [
        "works"
    ]
    outcomes = {
        event.step: event.outcome for event in recorder.of("step_finished")
    }
    assert outcomes == {
        "fails": "failed",
        "works": "cancelled",
        "parallel": "failed",
    }
