"""The policy of retries and time-outs, which holds for every model, and is proved without a provider."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
from tests.library.upstream import HOUR, pass_time

from podwright import Agent, FunctionModel, RunLimits, errors
from podwright.models.retries import (
    Retries,
    Timeouts,
    retry_after,
    with_retries,
)

SOON = Retries(first_wait=0.001)


def busy(seconds: float | None = None) -> errors.ModelError:
    """The error of a provider that asks to wait."""
    error = errors.ModelRateLimitError("Busy.")
    error.retry_after = seconds
    return error


def model_of(
    *answers: Any, retries: Retries = SOON, timeouts: Timeouts | None = None
) -> FunctionModel:
    """A model that gives these answers in order: errors are raised, functions called."""
    left = list(answers)

    async def answer(_: Any) -> Any:
        following: Any = left.pop(0)
        if isinstance(following, Exception):
            raise following
        if callable(following):
            return await cast("Any", following())
        return following

    model = FunctionModel(answer)
    model.retries = retries
    model.timeouts = timeouts or Timeouts()
    return model


def agent_of(model: FunctionModel, **options: Any) -> Agent:
    return Agent("guide", "Help.", model, **options)


async def test_any_model_is_repeated_after_a_transient_error() -> None:
    """A model of the user's own that raises a transient error is called again; after another error it is not."""
    assert await agent_of(model_of(busy(), "Here.")).arun("Hello?") == "Here."
    with pytest.raises(errors.ModelError, match="Broken"):
        await agent_of(model_of(errors.ModelError("Broken."), "Never.")).arun(
            "Hello?"
        )


async def test_the_total_time_is_that_of_all_attempts(
    outlast: Callable[[], Any],
) -> None:
    """Attempts and waits together end at the total time-out; nothing is repeated after it."""
    policy = Retries(tries=9, first_wait=0.0)
    model = model_of(
        busy(),
        busy(),
        outlast,
        "Never.",
        retries=policy,
        timeouts=Timeouts(total=300.0),
    )
    with pytest.raises(
        errors.ModelTimeoutError, match=r"300 s \(tries: 3\)"
    ) as caught:
        await agent_of(model).arun("Hello?")
    assert not caught.value.transient


async def test_a_wait_longer_than_the_run_is_not_begun() -> None:
    """`Retry-After` beyond the run's own time ends the call at once, with its own error."""
    model = model_of(busy(3600.0), "Never.", timeouts=Timeouts(total=9000.0))
    async with asyncio.timeout(60):
        with pytest.raises(errors.ModelRateLimitError) as caught:
            await agent_of(model, limits=RunLimits(wall_time=600.0)).arun(
                "Hello?"
            )
    assert caught.value.retry_after == 3600.0


async def test_the_next_attempt_begins_after_the_wait() -> None:
    """A wait is as long as the provider asks."""
    attempts: list[str] = []
    failed = asyncio.Event()

    async def attempt() -> str:
        attempts.append("begun")
        if len(attempts) == 1:
            raise busy(2 * HOUR)
        return "Done."

    retrying = asyncio.create_task(
        with_retries(attempt, 9 * HOUR, SOON, on_retry=lambda *_: failed.set())
    )
    await failed.wait()
    asyncio.get_running_loop().call_soon(pass_time, HOUR)
    await asyncio.sleep(HOUR / 2)  # ends when the hour has passed
    assert len(attempts) == 1
    pass_time(HOUR)
    assert await retrying == "Done."


async def test_waits_grow_and_are_spread() -> None:
    """The wait is random below a ceiling that doubles up to a maximum."""
    waits: list[float] = []

    async def fail() -> None:
        raise errors.ModelUnavailableError("No.")

    policy = Retries(
        tries=5, first_wait=0.01, longest_wait=0.03, jitter=lambda: 1.0
    )
    with pytest.raises(errors.ModelUnavailableError):
        await with_retries(
            fail,
            9.0,
            policy,
            on_retry=lambda _tries, _error, wait: waits.append(wait),
        )
    assert waits == [0.01, 0.02, 0.03, 0.03]
    assert replace(policy, jitter=lambda: 0.0).wait(busy(), 1) == 0.0
    assert policy.wait(busy(7.0), 1) == 7.0


async def test_a_timeout_of_an_attempt_is_its_own() -> None:
    """A TimeoutError that an attempt raises is not taken for the total time-out."""

    async def fail() -> None:
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        await with_retries(fail, 9.0, SOON)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("3", 3.0),
        (" 0.5 ", 0.5),
        ("-1", 0.0),
        ("", None),
        ("soon", None),
        ("nan", None),
        ("inf", None),
        ("Tue, 14 Nov 2023 22:13:50 GMT", 30.0),
        ("Tue, 14 Nov 2023 22:12:50 GMT", 0.0),
    ],
)
def test_retry_after(
    value: str, seconds: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a finite number or a date counts; a date is as far away as the clock says, or now if it has passed."""
    with monkeypatch.context() as clock:
        clock.setattr(time, "time", lambda: 1_700_000_000.0)  # 22:13:20
        assert retry_after({"retry-after": value}) == seconds
