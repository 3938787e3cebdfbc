"""Maps error responses of providers, and faults of the transport, to subclasses of `ModelError`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from podwright import errors
from podwright.json_data import as_object
from podwright.models.http import Fault, TransportError
from podwright.models.retries import retry_after

_TRANSPORT_ERRORS: dict[Fault, type[errors.ModelError]] = {
    "connect_timeout": errors.ModelTimeoutError,
    "timeout": errors.ModelTimeoutError,
    "truncated": errors.ModelResponseError,
    "not_http": errors.ModelResponseError,
    "too_large": errors.ModelResponseError,
}
"""The others are `ModelConnectionError`."""
_NO_CREDIT = ("insufficient_quota", "insufficient quota", "insufficient balance", "billing_hard_limit", "out of credit")
_TOO_LONG = (
    "context_length_exceeded", "context length", "context window", "context size", "context limit",
    "prompt is too long", "maximum number of tokens", "too many input tokens", "while limit is", "`inputs` tokens",
)  # fmt: skip
_FILTERED = (
    "content_filter", "content_policy", "content policy", "responsibleaipolicy", "safety system",
    "content management policy", "requires moderation", "flagged",
)  # fmt: skip
_STATUS_OF_CODE = {
    "invalid_api_key": 401, "authentication_error": 401, "insufficient_quota": 429, "rate_limit_exceeded": 429,
    "rate_limit_error": 429, "context_length_exceeded": 400, "invalid_request_error": 400, "content_filter": 400,
}  # fmt: skip


class RefusedError(Exception):
    """A provider refused a request.

    Args:
        error: Its error object, or a text.
        status: The HTTP status; by default the one that an error object in a response with status 200 stands for.
        headers: The response headers.
    """

    def __init__(self, error: Any, status: int | None = None, headers: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.error = error
        self.status = status or _error_status(error)
        self.headers = headers


def _error_text(error: Any) -> str:
    """Code, type and message of a provider's error object; for searching only, because it may quote the request."""
    fields = as_object(error)
    return " ".join(str(fields[key]) for key in ("code", "type", "message") if fields.get(key)) or str(error)


def _error_status(error: Any) -> int:
    """The HTTP status that an error object in a response with status 200 stands for; 500 without a known code."""
    fields = as_object(error)
    for key in ("code", "status", "type"):
        value = str(fields.get(key))
        if value.isdecimal() and 400 <= int(value) < 600:
            return int(value)
        if value in _STATUS_OF_CODE:
            return _STATUS_OF_CODE[value]
    return 500


def refusal(model: str, status: int, error: Any = "", headers: Mapping[str, str] | None = None) -> errors.ModelError:
    """The error for a refused request.

    Its message has none of the provider's words, which may repeat the request or a part of the key; its
    `provider_error` is left to the caller.

    Args:
        model: The model's name, "<provider>/<model_name>".
        status: The HTTP status.
        error: The provider's error object, or a text.
        headers: The response headers, for `Retry-After`.
    """
    model_error = _by_text(f"'{model}' answered {status}", status, _error_text(error).lower())
    if model_error.transient and headers is not None:
        model_error.retry_after = retry_after(headers)
    return model_error


def _by_text(prefix: str, status: int, text: str) -> errors.ModelError:
    def mentions(phrases: tuple[str, ...]) -> bool:
        return any(phrase in text for phrase in phrases)

    if status in (400, 403, 413, 422) and mentions(_FILTERED):
        return errors.ContentFilterError(f"{prefix}: the content filter stopped the request.")
    if status == 413 or (400 <= status < 500 and status != 429 and mentions(_TOO_LONG)):
        return errors.ContextWindowError(f"{prefix}: the request is too long for the model.")
    if status == 402 or (status == 429 and mentions(_NO_CREDIT)):
        hint = "Add credit to the account, or use another one."
        error = errors.ModelRateLimitError(f"{prefix}: the account has no credit left.", suggestion=hint)
        error.transient = False
        return error
    return _by_status(prefix, status)


_BY_STATUS: dict[int, tuple[type[errors.ModelError], str]] = {
    401: (errors.ModelAuthenticationError, "the API key is missing or not accepted for this model."),
    403: (errors.ModelAuthenticationError, "the API key is missing or not accepted for this model."),
    404: (errors.ModelRequestError, "unknown model, or no chat completions at this base URL."),
    408: (errors.ModelTimeoutError, "time-out at the provider."),
    409: (errors.ModelUnavailableError, "temporary conflict at the provider."),
    425: (errors.ModelUnavailableError, "temporary conflict at the provider."),
    429: (errors.ModelRateLimitError, "too many requests or tokens."),
}
_BY_CLASS: dict[int, tuple[type[errors.ModelError], str]] = {
    3: (errors.ModelResponseError, "redirects are not followed, because the API key would go along."),
    4: (errors.ModelRequestError, "the provider refused the request."),
    5: (errors.ModelUnavailableError, "the provider cannot serve requests now."),
}
"""By the first digit of the status."""


def _by_status(prefix: str, status: int) -> errors.ModelError:
    unexpected = errors.ModelResponseError, "unexpected status."
    kind, reason = _BY_STATUS.get(status) or _BY_CLASS.get(status // 100, unexpected)
    error = kind(f"{prefix}: {reason}")
    error.transient = error.transient and status // 100 != 3
    return error


def transport_error(model: str, error: TransportError) -> errors.ModelError:
    """The error for a request of a model without a complete response."""
    kind = _TRANSPORT_ERRORS.get(error.fault, errors.ModelConnectionError)
    model_error = kind(f"'{model}': {error}.", suggestion=error.suggestion)
    model_error.transient = error.fault not in ("tls", "too_large")  # another attempt would meet them again
    return model_error
