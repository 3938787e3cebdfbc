"""Maps error responses of providers, and faults of the transport, to subclasses of `ModelError`."""

from __future__ import annotations

from collections.abc import Mapping

from podwright import errors
from podwright.models.api_keys import ApiKey, key_error
from podwright.models.http.client import Fault, TransportError
from podwright.models.http.error_body import ErrorBody
from podwright.models.retries import retry_after

_TRANSPORT_ERRORS: dict[Fault, type[errors.ModelError]] = {
    "connect_timeout": errors.ModelTimeoutError,
    "timeout": errors.ModelTimeoutError,
    "truncated": errors.ModelResponseError,
    "not_http": errors.ModelResponseError,
    "too_large": errors.ModelResponseError,
}
"""The others are `ModelConnectionError`."""
# phrases have spaces for underscores, as `ErrorBody.search_text` has
_NO_CREDIT = (
    "insufficient quota", "insufficient user quota", "insufficient balance", "insufficient account balance",
    "insufficient credit", "billing hard limit", "credit balance is too low", "out of credit",
    "exceeded current quota", "api usage limits", "extra usage is required", "余额",
)  # fmt: skip
_TOO_LONG = (
    "context length", "context window", "context size", "context limit", "prompt is too long",
    "maximum number of tokens", "too many input tokens", "while limit is", "`inputs` tokens", "input is too long",
)  # fmt: skip
_FILTERED = (
    "content filter", "content policy", "responsibleaipolicy", "safety system", "content management policy",
    "requires moderation", "flagged",
)  # fmt: skip
_BAD_KEY = (
    "invalid api key", "api key invalid", "api key not valid", "incorrect api key", "api key expired",
    "authentication fail", "invalid authentication", "api key could not be found",
)  # fmt: skip
_BAD_TOOL_CALL = (
    "tool use failed", "malformed function call", "failed to call a function", "tool call validation failed",
    "parsing tool call", "parse tool call", "parse function call",
)  # fmt: skip
"""The provider refuses what its own model wrote: Groq, Gemini, Ollama, llama.cpp."""


class RefusedError(Exception):
    """A provider refused a request.

    Args:
        error: Its error.
        status: The HTTP status; by default the one that an error in a response with status 200 stands for.
        headers: The response headers.
    """

    def __init__(
        self,
        error: ErrorBody,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.error = error
        self.status = status or error.status or 500
        self.headers = headers


def refusal(
    model: str,
    error: ErrorBody,
    status: int,
    headers: Mapping[str, str] | None = None,
    *,
    key: ApiKey,
    via: str = "",
) -> errors.ModelError:
    """The error for a refused request.

    Its message has none of the provider's words, which may repeat the request or a part of the key; its
    `provider_error` is left to the caller.

    Args:
        model: The model's name, "<provider>/<model_name>".
        error: The provider's error.
        status: The HTTP status.
        headers: The response headers, for `Retry-After`.
        key: The key of the request.
        via: The way of the response; see `Response.via`.
    """
    prefix = f"'{model}' answered {status}{via}"
    model_error = _error_by_text(prefix, status, error.search_text, key=key)
    if model_error.transient:
        model_error.retry_after = _seconds_to_wait(error, headers)
    if isinstance(model_error, errors.ModelToolCallError):
        model_error.failed_generation = error.failed_generation
    return model_error


def _seconds_to_wait(
    error: ErrorBody, headers: Mapping[str, str] | None
) -> float | None:
    """What the headers say, else what the error says."""
    if headers is None:
        return error.retry_after
    seconds = retry_after(headers)
    if seconds is None:
        return error.retry_after
    return seconds


def _error_by_text(
    prefix: str, status: int, text: str, *, key: ApiKey
) -> errors.ModelError:
    if status in (400, 422, 500) and _mentions(text, _BAD_TOOL_CALL):
        return errors.ModelToolCallError(
            f"{prefix}: it cannot read a tool call that its own model wrote."
        )
    if status >= 400 and _mentions(text, _BAD_KEY):
        return key_error(prefix, status, key)
    if status == 402 or (status >= 400 and _mentions(text, _NO_CREDIT)):
        return _no_credit_error(prefix)
    if status in (400, 403, 413, 422) and _mentions(text, _FILTERED):
        return errors.ContentFilterError(
            f"{prefix}: the content filter stopped the request."
        )
    may_be_too_long = 400 <= status <= 500 and status != 429
    if status == 413 or (may_be_too_long and _mentions(text, _TOO_LONG)):
        return errors.ContextWindowError(
            f"{prefix}: the request is too long for the model."
        )
    if status in (401, 403):
        return key_error(prefix, status, key)
    return _error_by_status(prefix, status)


def _mentions(text: str, phrases: tuple[str, ...]) -> bool:
    return any(phrase in text for phrase in phrases)


def _no_credit_error(prefix: str) -> errors.ModelRateLimitError:
    error = errors.ModelRateLimitError(
        f"{prefix}: the account has no credit left.",
        suggestion="Add credit to the account, or use another one.",
    )
    error.transient = False
    return error


_Meaning = tuple[type[errors.ModelError], str]
"""The class of the error, and its message."""
_BY_STATUS: dict[int, _Meaning] = {
    404: (errors.ModelRequestError, "unknown model, or wrong base URL."),
    408: (errors.ModelTimeoutError, "time-out at the provider."),
    409: (errors.ModelUnavailableError, "temporary conflict at the provider."),
    424: (errors.ModelUnavailableError, "a part of the provider failed."),
    425: (errors.ModelUnavailableError, "temporary conflict at the provider."),
    429: (errors.ModelRateLimitError, "too many requests or tokens."),
}
_BY_CLASS: dict[int, _Meaning] = {
    3: (
        errors.ModelResponseError,
        "redirects are not followed, because the API key would go along.",
    ),
    4: (errors.ModelRequestError, "the provider refused the request."),
    5: (
        errors.ModelUnavailableError,
        "the provider cannot serve requests now.",
    ),
}
"""By the first digit of the status."""


def _error_by_status(prefix: str, status: int) -> errors.ModelError:
    status_class = status // 100
    meaning = _BY_STATUS.get(status) or _BY_CLASS.get(status_class)
    if meaning is None:
        return errors.ModelResponseError(f"{prefix}: unexpected status.")
    kind, reason = meaning
    error = kind(f"{prefix}: {reason}")
    if status_class == 3:
        error.transient = False
    return error


def transport_error(model: str, error: TransportError) -> errors.ModelError:
    """The error for a request of a model without a complete response."""
    kind = _TRANSPORT_ERRORS.get(error.fault, errors.ModelConnectionError)
    model_error = kind(f"'{model}': {error}.", suggestion=error.suggestion)
    # another attempt would meet them again
    model_error.transient = error.fault not in ("tls", "too_large")
    model_error.has_connected = error.has_connected
    return model_error
