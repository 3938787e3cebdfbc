"""The contract of every kind, in every way to run it: ok, failure, cancellation, limit."""

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from podwright import (
    Event,
    ExecutionResult,
    LimitExceededError,
    PodwrightError,
    RunCancelledError,
    RunLimits,
    Usage,
)
from podwright.errors import ModelError

Stage = Callable[..., Any]
Sound = Callable[[list[Event]], None]

pytestmark = [
    pytest.mark.parametrize("kind", ["agent", "workflow", "conductor", "pipeline"]),
    pytest.mark.parametrize("way", ["run", "arun", "stream", "astream"]),
]


@dataclass
class Outcome:
    """What the caller saw."""

    value: Any = None
    usage: Usage | None = None
    events: list[Event] = field(default_factory=list)
    error: BaseException | None = None


def drive(way: str, component: Any) -> Outcome:
    """Run a component in one of the four ways."""
    seen = Outcome()

    def took(result: ExecutionResult) -> None:
        seen.value, seen.usage, seen.events = result.value, result.usage, result.events

    async def astream() -> None:
        async for event in component.astream("hello"):
            seen.events.append(event)

    async def arun() -> None:
        took(await component.arun("hello", trace=True))

    try:
        match way:
            case "run":
                took(component.run("hello", trace=True))
            case "arun":
                asyncio.run(arun())
            case "stream":
                for event in component.stream("hello"):
                    seen.events.append(event)
            case _:
                asyncio.run(astream())
    except (PodwrightError, asyncio.CancelledError) as error:
        seen.error = error
    return seen


def test_ok(kind: str, way: str, stage: Stage, assert_sound: Sound) -> None:
    """A run gives its value, a sound trace, and the same usage wherever it is told."""
    staged = stage(kind)
    seen = drive(way, staged.component)
    assert seen.error is None
    assert seen.events == staged.heard.events
    assert_sound(seen.events)
    last = seen.events[-1]
    assert last.type == "run_finished"
    assert last.value == staged.value
    assert last.usage.model_calls == staged.calls
    assert last.usage.total_tokens == staged.calls * 1000
    assert last.usage.by_model["offline/double"].model_calls == staged.calls
    assert staged.component.last_usage == last.usage
    if way in ("run", "arun"):
        assert seen.value == staged.value
        assert seen.usage == last.usage
    else:
        assert [event.text for event in staged.heard.of("token")], "a streamed run has tokens"


def test_untraced(kind: str, way: str, stage: Stage) -> None:
    """Without `trace` a run returns the bare value, and a stream yields no less."""
    staged = stage(kind)
    match way:
        case "run":
            assert staged.component.run("hello") == staged.value
        case "arun":
            assert asyncio.run(staged.component.arun("hello")) == staged.value
        case _:
            drive(way, staged.component)
            assert staged.heard.of("run_finished")[-1].value == staged.value


def assert_stopped(staged: Any, seen: Outcome, error: PodwrightError, sound: Sound, end: str) -> None:
    """Assert what holds of every run that did not come to its end."""
    events = staged.heard.events
    sound(events)
    if seen.events:  # a stream
        assert seen.events == events
    last = events[-1]
    assert last.type == end
    assert error.run_id == events[0].run_id
    assert error.usage == last.usage == staged.component.last_usage
    assert last.usage.model_calls == 1, "the first call was answered and has cost money"
    assert last.usage.total_tokens == 1000
    if staged.component.kind == "workflow":
        assert error.context is not None
        assert error.context["first_output"] == "first answers"
        assert error.resume_path == [1]


def test_failure(kind: str, way: str, stage: Stage, assert_sound: Sound) -> None:
    """A failing model gives the typed error, with the facts of the run, its cause, and a sound trace."""
    staged = stage(kind)

    async def fail() -> None:
        raise ValueError("no luck")

    staged.model.second = fail
    seen = drive(way, staged.component)
    error = seen.error
    assert isinstance(error, ModelError)
    assert isinstance(error.__cause__, ValueError)
    assert error.component == staged.at_second
    assert_stopped(staged, seen, error, assert_sound, "run_failed")
    assert staged.heard.events[-1].error["code"] == "model_failed"
    assert bool(seen.events) is (way in ("stream", "astream"))


LIMITS = {
    "wall_time": RunLimits(wall_time=600),
    "model_calls": RunLimits(model_calls=1),
    "tokens": RunLimits(tokens=900),
    "cost": RunLimits(cost=0.0001),
}


@pytest.mark.parametrize("limit", LIMITS)
def test_limit(kind: str, way: str, limit: str, stage: Stage, assert_sound: Sound, outlast: Callable[[], Any]) -> None:
    """A limit that is reached ends the run with an error that names it, before the next model call."""
    staged = stage(kind, limits=LIMITS[limit])
    if limit == "wall_time":
        staged.model.second = outlast
    seen = drive(way, staged.component)
    error = seen.error
    assert isinstance(error, LimitExceededError)
    assert error.limit == limit
    assert_stopped(staged, seen, error, assert_sound, "run_failed")
    assert staged.heard.events[-1].error["limit"] == limit
    assert len(staged.model.begun) == (2 if limit == "wall_time" else 1)
    assert len(staged.model.cancelled) == (1 if limit == "wall_time" else 0)


def cancel_from_outside(staged: Any) -> None:
    """Let the run's own task be cancelled while its second model call is under way."""
    tasks: list[asyncio.Task[Any] | None] = []

    def remember(event: Event) -> None:
        if event.type == "run_started" and event.parent_id is None:
            tasks.append(asyncio.current_task())

    async def cancelled() -> None:
        assert tasks[0] is not None
        asyncio.get_running_loop().call_soon(tasks[0].cancel)
        await staged.model.block()

    staged.heard.manager.subscribe(remember)
    staged.model.second = cancelled


def test_cancel(kind: str, way: str, stage: Stage, assert_sound: Sound) -> None:
    """Cancelling a run cancels its model call, and tells the caller with all facts of the run."""
    staged = stage(kind)
    cancel_from_outside(staged)
    seen = drive(way, staged.component)
    error = seen.error
    if way in ("arun", "astream"):
        assert type(error) is asyncio.CancelledError
        error = error.__cause__
    assert isinstance(error, RunCancelledError)
    assert staged.model.cancelled == [staged.at_second]
    assert_stopped(staged, seen, error, assert_sound, "run_cancelled")


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Interrupts raise KeyboardInterrupt here, also where a shell started the tests in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_leaving_early(kind: str, way: str, stage: Stage, assert_sound: Sound) -> None:
    """A reader who leaves a stream, a caller who cancels, and an interrupt stop the run and its model call."""
    staged = stage(kind)
    staged.model.second = staged.model.block

    async def interrupt() -> None:
        waiting = 0.02  # until the caller's thread waits for the run
        main = threading.main_thread().ident or 0
        asyncio.get_running_loop().call_later(waiting, signal.pthread_kill, main, signal.SIGINT)
        await staged.model.block()

    def begun(event: Event) -> bool:
        return event.type == "model_call_started" and len(staged.heard.of("model_call_started")) == 2

    async def leave_astream() -> None:
        stream = staged.component.astream("hello")
        async for event in stream:
            if begun(event):
                break
        await stream.aclose()

    async def cancel_arun() -> None:
        second = asyncio.Event()
        staged.heard.manager.subscribe(lambda event: second.set() if begun(event) else None)
        task = asyncio.create_task(staged.component.arun("hello"))
        await second.wait()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    match way:
        case "run":
            staged.model.second = interrupt
            with pytest.raises(KeyboardInterrupt):
                staged.component.run("hello")
        case "arun":
            asyncio.run(cancel_arun())
        case "stream":
            stream = staged.component.stream("hello")
            assert any(begun(event) for event in stream)
            stream.close()
        case _:
            asyncio.run(leave_astream())
    assert staged.model.cancelled == [staged.at_second]
    assert_sound(staged.heard.events)
    assert staged.heard.types()[-1] == "run_cancelled"
    assert staged.component.last_usage.model_calls == 1
