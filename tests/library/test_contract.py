"""The contract of every kind, in every way to run it: success, failure, limit, cancellation, a reader who leaves."""

import asyncio
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.library.shapes import KINDS

from podwright import (
    Event,
    LimitExceededError,
    PodwrightError,
    RunCancelledError,
    RunLimits,
)
from podwright.errors import ModelError

pytestmark = [
    pytest.mark.parametrize("kind", KINDS),
    pytest.mark.parametrize("way", ["run", "arun", "stream", "astream"]),
]


def execute(
    way: str, component: Any
) -> tuple[Any, list[Event], BaseException | None]:
    """Run a component in one of the four ways: its result, the events that a stream yielded, its error."""
    result = None
    seen = list[Event]()

    async def astream() -> None:
        async for event in component.astream("hello"):
            seen.append(event)

    try:
        match way:
            case "run":
                result = component.run("hello", trace=True)
            case "arun":
                result = asyncio.run(component.arun("hello", trace=True))
            case "stream":
                for event in component.stream("hello"):
                    seen.append(event)
            case _:
                asyncio.run(astream())
    except (PodwrightError, asyncio.CancelledError) as error:
        return result, seen, error
    return result, seen, None


def test_a_run_returns_its_value_and_usage(
    kind: str, way: str, make_example: Any, assert_sound: Any
) -> None:
    """A run returns its value and has a sound trace; its usage is the same in the result, the events, `last_usage`."""
    example = make_example(kind)
    result, seen, error = execute(way, example.component)
    assert error is None
    assert_sound(example.recorder.events)
    last = example.recorder.events[-1]
    assert (last.type, last.value) == ("run_finished", example.value)
    assert (last.usage.model_calls, last.usage.total_tokens) == (
        example.calls,
        example.calls * 1000,
    )
    assert last.usage.by_model["offline/example"].model_calls == example.calls
    assert example.component.last_usage == last.usage
    if result:
        assert (result.value, result.usage, result.events) == (
            example.value,
            last.usage,
            example.recorder.events,
        )
        assert example.component.run("hello") == example.value, "without trace"
    else:
        assert seen == example.recorder.events
        assert example.recorder.of("token"), "a streamed run has tokens"


def assert_stopped(
    example: Any,
    seen: list[Event],
    error: PodwrightError,
    assert_sound: Any,
    end: str,
) -> None:
    """Assert what holds of every run that is stopped in its second model call."""
    events = example.recorder.events
    assert seen in ([], events), "a stream yields all events before it raises"
    assert_sound(events)
    last = events[-1]
    assert last.type == end
    assert error.run_id == events[0].run_id
    assert error.usage == last.usage == example.component.last_usage
    assert (last.usage.model_calls, last.usage.total_tokens) == (1, 1000), (
        "the first call has been paid for"
    )
    if example.component.kind == "workflow":
        assert error.context is not None
        assert (error.context["first_output"], error.resume_path) == (
            "first answers",
            [1],
        )


def test_a_failure_is_a_typed_error(
    kind: str, way: str, make_example: Any, assert_sound: Any
) -> None:
    """A failing model is a ModelError with its cause and the facts of the run."""
    example = make_example(kind)

    async def fail() -> None:
        raise ValueError("no luck")

    example.model.in_second_call = fail
    _, seen, error = execute(way, example.component)
    assert isinstance(error, ModelError)
    assert isinstance(error.__cause__, ValueError)
    assert error.component == example.second
    assert_stopped(example, seen, error, assert_sound, "run_failed")
    assert example.recorder.events[-1].error["code"] == "model_failed"


LIMITS = {
    "wall_time": RunLimits(wall_time=600),
    "model_calls": RunLimits(model_calls=1),
    "tokens": RunLimits(tokens=900),
    "cost": RunLimits(cost=0.0001),
}


@pytest.mark.parametrize("limit", LIMITS)
def test_a_limit_stops_the_run_before_the_next_model_call(
    kind: str,
    way: str,
    limit: str,
    make_example: Any,
    assert_sound: Any,
    outlast: Any,
) -> None:
    """A limit that is reached ends the run with an error that names it."""
    example = make_example(kind, limits=LIMITS[limit])
    in_time = limit == "wall_time"
    example.model.in_second_call = outlast if in_time else None
    _, seen, error = execute(way, example.component)
    assert isinstance(error, LimitExceededError)
    assert error.limit == limit
    assert_stopped(example, seen, error, assert_sound, "run_failed")
    assert example.recorder.events[-1].error["limit"] == limit
    assert (len(example.model.begun), len(example.model.cancelled)) == (
        (2, 1) if in_time else (1, 0)
    )


def test_a_cancelled_run_cancels_its_model_call(
    kind: str, way: str, make_example: Any, assert_sound: Any
) -> None:
    """Cancelling the task of a run cancels its model call; the caller gets a RunCancelledError with all facts."""
    example = make_example(kind)
    tasks: list[Any] = []

    def remember_task(event: Event) -> None:
        if event.parent_id is None:
            tasks.append(asyncio.current_task())

    async def cancel() -> None:
        asyncio.get_running_loop().call_soon(tasks[0].cancel)
        await example.model.block()

    example.recorder.manager.subscribe(remember_task, "run_started")
    example.model.in_second_call = cancel
    _, seen, error = execute(way, example.component)
    if way in ("arun", "astream"):
        assert type(error) is asyncio.CancelledError
        error = error.__cause__
    assert isinstance(error, RunCancelledError)
    assert example.model.cancelled == [example.second]
    assert_stopped(example, seen, error, assert_sound, "run_cancelled")


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Interrupts raise KeyboardInterrupt, also where a shell started the tests in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_a_caller_who_leaves_cancels_the_run(
    kind: str, way: str, make_example: Any, assert_sound: Any
) -> None:
    """Closing a stream, cancelling `arun` and interrupting `run` cancel the run; it has ended when they return."""
    example = make_example(kind)
    example.model.in_second_call = example.model.block

    def in_second_call(event: Event) -> bool:
        return (
            event.type == "model_call_started"
            and len(example.recorder.of(event.type)) == 2
        )

    async def close_astream() -> None:
        stream = example.component.astream("hello")
        async for event in stream:
            if in_second_call(event):
                break
        await stream.aclose()

    async def cancel_arun() -> None:
        second_call = asyncio.Event()
        example.recorder.manager.subscribe(
            lambda event: second_call.set() if in_second_call(event) else None
        )
        task = asyncio.create_task(example.component.arun("hello"))
        await second_call.wait()
        task.cancel()
        await asyncio.wait([task])

    async def interrupt() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        await example.model.block()

    match way:
        case "run":
            example.model.in_second_call = interrupt
            with pytest.raises(KeyboardInterrupt):
                example.component.run("hello")
        case "arun":
            asyncio.run(cancel_arun())
        case "stream":
            stream = example.component.stream("hello")
            assert any(in_second_call(event) for event in stream)
            stream.close()
        case _:
            asyncio.run(close_astream())
    assert example.model.cancelled == [example.second]
    assert_sound(example.recorder.events)
    assert example.recorder.types()[-1] == "run_cancelled"
    assert example.component.last_usage.model_calls == 1
