"""Time-outs and retries: one policy for all models and remote components.

A `Model` makes one attempt and raises a typed error. The caller repeats it through `with_retries`, so every model is
treated alike, those of `register_provider` included, and retries are not nested.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

from podwright.errors import ModelError, ModelTimeoutError, RemoteError

T = TypeVar("T")


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
    chance: Callable[[], float] = random.random
    """Returns a number from 0 to 1, which spreads callers that failed together."""

    def wait(self, error: ModelError | RemoteError, tries: int) -> float:
        """Seconds to wait after `tries` attempts; at least what the server asked for."""
        ceiling = min(self.first_wait * 2 ** (tries - 1), self.longest_wait)
        return max(error.retry_after or 0.0, ceiling * self.chance())


async def with_retries(
    attempt: Callable[[], Awaitable[T]],
    total: float,
    policy: Retries,
    *,
    who: str = "The model",
    left: Callable[[], float] = lambda: math.inf,
    on_retry: Callable[[int, Any, float], object] | None = None,
) -> T:
    """Call `attempt` until it succeeds, within a time, where another attempt can help.

    An attempt is repeated if its error is `transient`, attempts are left, and the wait ends within the time left.

    Args:
        attempt: Makes one attempt. Once it has handed out a part of the answer, its errors must not be transient.
        total: Seconds for all attempts and waits together.
        policy: How often, and after which wait.
        who: Name of the model, for the error message.
        left: Returns the seconds that the caller has left; called after a failed attempt.
        on_retry: Called before each wait with the number of the failed attempt from 1, its error, and the wait in
            seconds.

    Raises:
        ModelError, RemoteError: The error of the last attempt; ModelTimeoutError if `total` has passed.
    """
    loop, tries = asyncio.get_running_loop(), 0
    end = loop.time() + total
    timeout = asyncio.timeout_at(end if end < math.inf else None)
    try:
        async with timeout:
            while True:
                tries += 1
                try:
                    return await attempt()
                except (ModelError, RemoteError) as error:
                    wait = policy.wait(error, tries)
                    if not error.transient or tries >= policy.tries or wait >= min(end - loop.time(), left()):
                        raise
                    if on_retry is not None:
                        on_retry(tries, error, wait)
                await asyncio.sleep(wait)
    except TimeoutError as error:
        if not timeout.expired():
            raise
        final = ModelTimeoutError(f"{who} gave no complete answer within {total:g} s (tries: {tries}).")
        final.transient = False
        raise final from error


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait from `Retry-After` (RFC 9110, section 10.2.3: seconds or a date); None without a valid one.

    Args:
        headers: The response headers; names in lower case, or a mapping that ignores case.
    """
    value = headers.get("retry-after", "").strip()
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
