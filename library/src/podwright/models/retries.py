"""Time-outs and retries: one policy for all models and remote components.

A `Model` makes one attempt and raises a typed error. The caller repeats it through `with_retries`, so every model is
treated alike, those of `register_provider` included, and retries are not nested.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

from podwright.errors import (
    ModelError,
    ModelTimeoutError,
    PodwrightError,
    RemoteError,
)

T = TypeVar("T")

_RECONNECT_WAIT = 0.5
"""Seconds between the attempts to connect that are made beyond `Retries.tries`."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a model or a remote component may take, in seconds."""

    connect: float = 5.0
    """To establish a connection, DNS and TLS included."""
    first_byte: float = 60.0
    """From the request to the first byte of the response. A response that is not streamed comes as a whole, so the
    model setting `timeout` replaces this one for it."""
    idle: float = 30.0
    """Between two pieces of a response."""
    total: float = 300.0
    """For a whole model call with its retries and waits; the model setting `timeout` replaces it."""


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a failed attempt is repeated, and after which wait."""

    tries: int = 3
    """The maximum number of attempts, the first included."""
    first_wait: float = 0.5
    """Seconds: the wait is random between 0 and this after the first attempt, and doubles with each."""
    longest_wait: float = 8.0
    """The maximum of that wait in seconds, unless the server asks for more."""
    jitter: Callable[[], float] = random.random
    """Returns a number from 0 to 1, which spreads callers that failed together."""
    longest_retry_after: float = math.inf
    """Seconds that a server may ask to wait; after an error that asks for more there is no other attempt."""
    connect_time: float = 5.0
    """Seconds from the first attempt in which a refused connection, or a host name that cannot be resolved, is tried
    again however often it was, unless `tries` is 1: the network of a pod, and the server at its other end, may be ready
    a moment later than the pod."""

    def wait(self, error: PodwrightError, tries: int) -> float:
        """Seconds to wait after `tries` attempts; at least what a server asked for."""
        doublings = tries - 1
        ceiling = self.first_wait * 2**doublings
        ceiling = min(ceiling, self.longest_wait)
        asked: float | None = getattr(error, "retry_after", None)
        return max(asked or 0.0, ceiling * self.jitter())

    def next_wait(
        self, error: ModelError | RemoteError, tries: int, passed: float
    ) -> float | None:
        """Seconds to wait until the next attempt; None if there is none.

        Args:
            error: The error of the last attempt.
            tries: How many there were.
            passed: Seconds since the first one began.
        """
        if not error.transient:
            return None
        if (error.retry_after or 0.0) > self.longest_retry_after:
            return None
        if tries < self.tries:
            return self.wait(error, tries)
        if error.has_connected or self.tries < 2:
            return None
        if passed + _RECONNECT_WAIT > self.connect_time:
            return None
        return _RECONNECT_WAIT


def _no_limit() -> float:
    return math.inf


def _always(_error: Any) -> bool:
    return True


async def with_retries(
    attempt: Callable[[], Awaitable[T]],
    total: float,
    policy: Retries,
    *,
    who: str = "The model",
    left: Callable[[], float] = _no_limit,
    on_retry: Callable[[int, Any, float], object] | None = None,
    may_repeat: Callable[[Any], bool] = _always,
) -> T:
    """Call `attempt` until it succeeds, within a time, where another attempt can help.

    An attempt is repeated if its error is `transient`, attempts are left, and the wait ends within the time left. One
    that made no connection is repeated within `Retries.connect_time`, too.

    Args:
        attempt: Makes one attempt. Once it has handed out a part of the answer, its errors must not be transient.
        total: Seconds for all attempts and waits together.
        policy: How often, and after which wait.
        who: Name of the model, for the error message.
        left: Returns the seconds that the caller has left; called after a failed attempt.
        on_retry: Called before each wait with the number of the failed attempt from 1, its error, and the wait in
            seconds.
        may_repeat: Returns whether an attempt that failed with a transient error may be repeated.

    Raises:
        ModelError, RemoteError: The error of the last attempt; ModelTimeoutError if `total` has passed.
    """
    loop = asyncio.get_running_loop()
    tries = 0
    begin = loop.time()
    end = begin + total
    deadline: float | None = end
    if end == math.inf:
        deadline = None
    timeout = asyncio.timeout_at(deadline)
    try:
        async with timeout:
            while True:
                tries += 1
                try:
                    return await attempt()
                except (ModelError, RemoteError) as error:
                    passed = loop.time() - begin
                    wait = policy.next_wait(error, tries, passed)
                    if wait is None:
                        raise
                    if not may_repeat(error):
                        raise
                    time_left = min(end - loop.time(), left())
                    if wait >= time_left:
                        raise
                    if on_retry is not None:
                        on_retry(tries, error, wait)
                await asyncio.sleep(wait)
    except TimeoutError as error:
        if not timeout.expired():
            raise
        seconds = round(total, 3)
        final = ModelTimeoutError(
            f"{who} gave no complete answer within {seconds:g} s (tries: {tries})."
        )
        final.transient = False
        final.is_limit_of_call = True
        raise final from error


_DURATION = re.compile(
    r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?",
    re.ASCII,
)
_EPOCH = 10**9
"""A larger number of seconds is a time since 1970, and one that is a thousand times larger is one in milliseconds."""


def seconds_of(text: str) -> float | None:
    """Seconds from now, of a number of them, a duration such as `6m0s` or `120ms`, or a point in time.

    A point in time is a date (of HTTP or ISO 8601), or a number of seconds or milliseconds since 1970. None for other
    texts; a time in the past is 0.
    """
    text = text.strip()
    with contextlib.suppress(ValueError):
        return _seconds_of_number(float(text))
    duration = _DURATION.fullmatch(text)
    if text and duration is not None:
        return _seconds_of_duration(duration)
    for parse in (parsedate_to_datetime, datetime.fromisoformat):
        with contextlib.suppress(ValueError, OverflowError):
            return _seconds_until(parse(text).timestamp())
    return None


def _seconds_of_number(number: float) -> float | None:
    if not math.isfinite(number):
        return None
    if number >= _EPOCH * 1000:
        return _seconds_until(number / 1000)
    if number >= _EPOCH:
        return _seconds_until(number)
    return max(0.0, number)


def _seconds_of_duration(duration: re.Match[str]) -> float:
    hours, minutes, seconds, milliseconds = (
        float(part or 0) for part in duration.groups()
    )
    minutes += hours * 60
    seconds += minutes * 60
    return seconds + milliseconds / 1000


def _seconds_until(moment: float) -> float:
    return max(0.0, moment - time.time())


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a server asks to wait: `Retry-After` (RFC 9110, section 10.2.3), or what providers have besides.

    These are `retry-after-ms`, and `x-ratelimit-reset` with its like for requests and tokens (`…-reset-tokens`,
    `anthropic-ratelimit-tokens-reset`, `x-rate-limit-reset-tokens`) if nothing remains of what they limit. None
    without a valid one.

    Args:
        headers: The response headers; names in lower case, or a mapping that ignores case.
    """
    milliseconds = seconds_of(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    seconds = seconds_of(headers.get("retry-after", ""))
    if seconds is not None:
        return seconds
    return _longest_reset(headers)


def _longest_reset(headers: Mapping[str, str]) -> float | None:
    waits: list[float] = []
    for header, value in headers.items():
        name = header.lower()
        is_of_limit = "ratelimit" in name.replace("-", "")
        if not is_of_limit or "reset" not in name:
            continue
        counter = name.replace("reset", "remaining")
        remaining = headers.get(counter, "0")
        if remaining.strip() != "0":
            continue
        seconds = seconds_of(value)
        if seconds is not None:
            waits.append(seconds)
    return max(waits, default=None)
