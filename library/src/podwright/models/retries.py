"""What can go wrong between here and a provider, and what is done about it: one policy for all models.

A `Model` makes one try and raises a typed error. Whoever asks it, the loop of a component, tries again through
`with_retries`, so every model is treated alike, those of `register_provider` too, and tries never multiply.
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

from podwright.deadlines import Deadline
from podwright.errors import (
    ContentFilterError,
    ContextWindowError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelError,
    ModelRateLimitError,
    ModelRequestError,
    ModelResponseError,
    ModelTimeoutError,
    ModelUnavailableError,
    RemoteError,
)

T = TypeVar("T")

LONGEST_ANSWER = 16 * 2**20
"""Bytes that an answer may have, decompressed."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a model may take, in seconds."""

    connect: float = 5.0
    """To take a connection, name look-up and TLS included."""
    first_byte: float = 60.0
    """From the request to the answer's first byte. An answer that is not streamed comes as a whole, so a
    model setting `timeout` replaces this one too there."""
    idle: float = 30.0
    """Between two pieces of an answer."""
    total: float = 300.0
    """For a whole model call, its repetitions and waits included; a model setting `timeout` replaces it."""


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a failed try is repeated, and after which wait."""

    tries: int = 3
    """The most tries of one call, the first included."""
    first_wait: float = 0.5
    """Seconds: the wait is random between 0 and this after the first try, and doubles with each."""
    longest_wait: float = 8.0
    """Seconds that it does not exceed, unless the provider asks for more."""
    chance: Callable[[], float] = random.random
    """A number from 0 to 1, which spreads the callers that failed together."""

    def wait(self, error: ModelError | RemoteError, tries: int) -> float:
        """Seconds to wait after so many tries: at least what the provider asked for."""
        ceiling = min(self.first_wait * 2 ** (tries - 1), self.longest_wait)
        return max(error.retry_after or 0.0, ceiling * self.chance())


def _unlimited() -> float:
    return math.inf


async def with_retries(
    attempt: Callable[[], Awaitable[T]],
    total: float,
    policy: Retries,
    *,
    who: str = "The model",
    left: Callable[[], float] = _unlimited,
    on_retry: Callable[[int, Any, float], object] | None = None,
) -> T:
    """Try until it succeeds, within a time, where trying again can help.

    A try is repeated if its error is `transient`, tries are left, and the wait ends within the time that is left.

    Args:
        attempt: Makes one try. If it has handed something out already, it must not raise a transient error.
        total: Seconds for all tries and waits together.
        policy: How often, and after which wait.
        who: The model, for the message of a time-out.
        left: Seconds that the caller itself has left; asked when a try has failed.
        on_retry: Is told of each repetition before its wait: the number of the failed try from 1, its error,
            and the seconds of the wait.

    Raises:
        ModelError, RemoteError: The error of the last try; ModelTimeoutError if the time was over.
    """
    deadline = Deadline(total)
    tries = 0
    try:
        with deadline:
            while True:
                tries += 1
                try:
                    return await attempt()
                except (ModelError, RemoteError) as error:
                    wait = policy.wait(error, tries)
                    remaining = min(deadline.when - asyncio.get_running_loop().time(), left())
                    if not error.transient or tries >= policy.tries or wait >= remaining:
                        raise
                    if on_retry is not None:
                        on_retry(tries, error, wait)
                await asyncio.sleep(wait)
    except TimeoutError as error:
        if not deadline.expired:
            raise
        fault = ModelTimeoutError(f"{who} gave no whole answer within {total:g} s ({_tries(tries)}).")
        raise _final(fault) from error


def _tries(count: int) -> str:
    return "1 try" if count == 1 else f"{count} tries"


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a provider asks to wait, from `Retry-After` (RFC 9110, seconds or a date); None if it does not.

    Args:
        headers: The answer's headers; names in lower case, or a mapping that does not mind.
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


_NO_CREDIT = ("insufficient_quota", "insufficient quota", "insufficient balance", "billing_hard_limit", "out of credit")
_TOO_LONG = (
    "context_length_exceeded", "context length", "context window", "context size", "context limit",
    "prompt is too long", "maximum number of tokens", "too many input tokens", "while limit is", "`inputs` tokens",
)  # fmt: skip
_FILTERED = (
    "content_filter", "content_policy", "content policy", "responsibleaipolicy", "safety system",
    "content management policy", "requires moderation", "flagged",
)  # fmt: skip


def refusal(model: str, status: int, said: str = "", headers: Mapping[str, str] | None = None) -> ModelError:
    """The error for an answer that is a refusal.

    Its message has our words only: a provider's own may repeat the request, or a part of the key.

    Args:
        model: The model's name, "<provider>/<model_name>".
        status: The HTTP status, or what an error object within an answer amounts to.
        said: Code, type and message of the provider's error; searched, never shown.
        headers: The answer's headers, for `Retry-After`.
    """
    said = said.lower()
    error = _refusal(f"'{model}' answered {status}", status, said)
    if error.transient and headers is not None:
        error.retry_after = retry_after(headers)
    return error


def _refusal(who: str, status: int, said: str) -> ModelError:
    def has(marks: tuple[str, ...]) -> bool:
        return any(mark in said for mark in marks)

    if status in (400, 403, 413, 422) and has(_FILTERED):
        return ContentFilterError(f"{who}: its content filter stopped the request.")
    if status == 413 or (400 <= status < 500 and status != 429 and has(_TOO_LONG)):
        return ContextWindowError(f"{who}: the request is too long for the model.")
    if status == 402 or (status == 429 and has(_NO_CREDIT)):
        hint = "Add credit to the account, or use another one."
        return _final(ModelRateLimitError(f"{who}: the account has no credit left.", suggestion=hint))
    match status:
        case 401 | 403:
            return ModelAuthenticationError(f"{who}: it does not accept the key for this model.")
        case 404:
            message = f"{who}: it does not know this model, or has no chat completions at this address."
            return ModelRequestError(message, suggestion="Check the model's name and the base URL.")
        case 408:
            return ModelTimeoutError(f"{who}: it took too long there.")
        case 409 | 425:
            return ModelUnavailableError(f"{who}: it is busy with something else.")
        case 429:
            return ModelRateLimitError(f"{who}: too many requests or tokens for now.")
        case _:
            return _refusal_of_class(who, status)


def _refusal_of_class(who: str, status: int) -> ModelError:
    match status // 100:
        case 3:
            hint = "Set the base URL to the address that the provider documents."
            message = f"{who}, a redirect, which is never followed with the key."
            return _final(ModelResponseError(message, suggestion=hint))
        case 4:
            return ModelRequestError(f"{who}: it refuses the request.")
        case 5:
            return ModelUnavailableError(f"{who}: it cannot serve now.")
        case _:
            return ModelResponseError(f"{who}, which means nothing in this protocol.")


def insecure(model: str) -> ModelError:
    """What is told of a model that cannot be reached in secret; it stays so."""
    return _final(ModelConnectionError(f"'{model}': no secure connection: the certificate or TLS is at fault."))


def too_long(model: str) -> ModelError:
    """What is told of an answer beyond `LONGEST_ANSWER`; another would be no shorter."""
    return _final(ModelResponseError(f"'{model}': the answer is longer than {LONGEST_ANSWER} bytes."))


def _final(error: ModelError) -> ModelError:
    error.transient = False
    return error
