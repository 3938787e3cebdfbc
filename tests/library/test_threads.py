"""The threads of blocking tools: how many there are, who waits for one, and what is left of a caller who leaves."""

import asyncio
import subprocess
import sys
import threading

import pytest

from podwright import Agent, EventManager, RunLimits, ScriptedModel
from podwright.errors import LimitExceededError
from podwright.testing import ToolCall
from podwright.threads import COMPUTING_THREADS, check_cancelled, compute


class Blocking:
    """A tool that blocks its thread until it is released."""

    def __init__(self) -> None:
        self.calls = list[str]()
        self.released = threading.Event()
        self._asked = asyncio.Semaphore(0)
        self._manager = EventManager()
        self._manager.subscribe(
            lambda event: self._asked.release(), "tool_call_started"
        )

    def wait(self) -> str:
        """Wait."""
        self.calls.append("begun")
        assert self.released.wait(60)
        return "done"

    def agent(self, wall_time: float = 60) -> Agent:
        model = ScriptedModel(ToolCall.of("wait"), "ok")
        limits = RunLimits(wall_time)
        return Agent(
            "waits",
            "",
            model,
            tools=[self.wait],
            limits=limits,
            event_manager=self._manager,
        )

    async def start(self, number: int) -> list[asyncio.Task[str]]:
        """Start runs, and wait until each has asked for a thread."""
        tasks = [
            asyncio.create_task(self.agent().arun("?")) for _ in range(number)
        ]
        for _ in tasks:
            await self._asked.acquire()
        return tasks


async def test_callers_who_leave_do_not_pile_up_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A caller who leaves or has no time left frees its place in the queue; a thread counts until its tool returns."""
    monkeypatch.setenv("PODWRIGHT_TOOL_THREADS", "4")
    tool = Blocking()
    before = set(threading.enumerate())
    left = await tool.start(150)
    for task in left:
        task.cancel()
    await asyncio.wait(left)
    with pytest.raises(LimitExceededError):
        await tool.agent(wall_time=0.1).arun("?")
    (patient,) = await tool.start(1)
    assert len(set(threading.enumerate()) - before) == 4
    tool.released.set()
    assert await patient == "ok"
    assert len(tool.calls) == 5


def test_a_nested_run_does_not_wait_for_the_thread_of_its_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With one thread, a tool can run an agent with a blocking tool, on each of several event loops."""
    monkeypatch.setenv("PODWRIGHT_TOOL_THREADS", "1")

    def look() -> str:
        """Look."""
        return "found"

    def ask() -> str:
        """Ask."""
        return Agent(
            "inner",
            "",
            ScriptedModel(ToolCall.of("look"), "seen"),
            tools=[look],
        ).run("?")

    for run in (
        Agent.run,
        lambda agent, text: asyncio.run(agent.arun(text)),
    ) * 2:
        model = ScriptedModel(ToolCall.of("ask"), "ok")
        assert (
            run(
                Agent(
                    "outer",
                    "",
                    model,
                    tools=[ask],
                    limits=RunLimits(wall_time=30),
                ),
                "?",
            )
            == "ok"
        )


def test_a_process_exits_while_a_tool_blocks() -> None:
    """A tool that never returns does not keep the process alive."""
    code = """
import threading
from podwright import Agent, RunLimits, ScriptedModel
from podwright.testing import ToolCall
model, wait = ScriptedModel(ToolCall.of("wait")), threading.Event().wait
Agent("a", "", model, tools=[wait], limits=RunLimits(wall_time=0.1)).run("?")
"""
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    )
    assert "LimitExceededError" in process.stderr


class Computation:
    """A computation without an end, of which others may leave."""

    def __init__(self) -> None:
        self.ended = 0
        self._begun = asyncio.Semaphore(0)
        self._loop = asyncio.get_running_loop()

    def go_on(self) -> None:
        self._loop.call_soon_threadsafe(self._begun.release)
        try:
            while True:
                check_cancelled()
        finally:
            self.ended += 1

    async def start(self, number: int) -> list[asyncio.Task[None]]:
        """Start as many, and wait until all threads compute."""
        tasks = [
            asyncio.create_task(compute(self.go_on)) for _ in range(number)
        ]
        for _ in range(min(number, COMPUTING_THREADS)):
            await self._begun.acquire()
        return tasks


async def test_computations_end_when_their_callers_leave() -> None:
    """Their threads are free for others, and those that still wait do not begin."""
    computation = Computation()
    tasks = await computation.start(COMPUTING_THREADS + 3)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert all(task.cancelled() for task in tasks)
    all_threads = threading.Barrier(COMPUTING_THREADS)
    async with asyncio.timeout(60):
        await asyncio.gather(
            *(compute(all_threads.wait) for _ in range(COMPUTING_THREADS))
        )
    assert computation.ended == COMPUTING_THREADS


async def test_a_computation_ends_at_its_time_limit() -> None:
    """What awaits it may stop at any time."""
    computation = Computation()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await compute(computation.go_on)
    async with asyncio.timeout(60):
        for _ in range(COMPUTING_THREADS + 1):
            assert await compute(lambda: "done") == "done"


async def test_a_computation_that_is_awaited_goes_on() -> None:
    """Its callers are apart from each other, and nothing is cancelled outside of computations."""
    check_cancelled()
    computation = Computation()
    (task,) = await computation.start(1)

    def look() -> str:
        check_cancelled()
        return "done"

    assert await compute(look) == "done"
    task.cancel()
    await asyncio.wait([task])
    assert await compute(look) == "done"
