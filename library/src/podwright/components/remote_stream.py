"""The response of a remote component: its events, its value or its error, and what the run there used."""

from __future__ import annotations

import math
import re
from typing import Any, TypeVar

import orjson
from pydantic import ValidationError

from podwright import errors
from podwright.events import (
    Event,
    ModelCallFailed,
    ModelCallFinished,
    ModelCallKey,
    ModelCallStarted,
    RunEnded,
    RunStarted,
    Token,
    adapter,
    model_call_key,
)
from podwright.json_data import JsonMapping, JsonObject, as_array, as_object
from podwright.kinds import Kind
from podwright.models.http import (
    NO_CONNECTION,
    Fault,
    Response,
    TransportError,
)
from podwright.models.offline import estimate_input
from podwright.models.retries import retry_after
from podwright.models.sse import EventParser
from podwright.models.token_counts import as_uncounted
from podwright.run import Run
from podwright.text import truncate
from podwright.usage import NO_USAGE, Usage

E = TypeVar("E", bound=errors.RemoteError)

MAX_EVENT = 8 * 2**20
"""Bytes of the longest event."""
_MAX_TEXT = 2000
"""Characters of a text in a problem document."""
_CODE = re.compile(r"[a-z][a-z0-9_]{0,63}")
_EMPTY: JsonMapping = {}

_TRANSPORT_ERRORS: dict[Fault, type[errors.RemoteError]] = {
    "connect_timeout": errors.RemoteTimeoutError,
    "timeout": errors.RemoteTimeoutError,
    "not_http": errors.RemoteResponseError,
    "too_large": errors.RemoteResponseError,
}
"""The others are `RemoteConnectionError`."""
_ERRORS_OF_RUNS: dict[str, type[errors.RemoteError]] = {
    "remote_hops_exceeded": errors.RemoteHopsError,
    "remote_interrupted": errors.RemoteInterruptedError,
    "run_cancelled": errors.RemoteUnavailableError,
}
"""Of a run that failed there, by the code of its problem; the others are `RemoteError`, with that code."""
_REPEATABLE: tuple[Fault, ...] = (*NO_CONNECTION, "disconnected")
"""Faults before any response: the request has an Idempotency-Key, so the remote runs it once."""


class RemoteStream:
    """Relays the events of a remote run, and counts what they report.

    Args:
        run: The run that calls the remote.
        name: Name of the remote component.
    """

    def __init__(self, run: Run, name: str) -> None:
        self._run = run
        self._name = name
        self._outermost = ""
        self._kind: Kind | None = None
        self._reported: Usage | None = None
        """What the remote run used, as it has reported at its end."""
        self._counted = NO_USAGE
        """What the model calls used that have ended so far."""
        self._open: dict[ModelCallKey, ModelCallStarted] = {}
        """Model calls that have not ended."""
        self.calls = 0
        """Model calls that were started."""
        self.data: Any = None
        """The result of the remote run as data; see `Run.data`."""
        self.finish_reason = "stop"
        """How the answer of the remote run ended; see `ExecutionResult.finish_reason`."""

    @property
    def usage(self) -> Usage:
        """What the remote run used: its own report, before that what is known of its model calls so far."""
        if self._reported is not None:
            return self._reported
        usage = self._counted
        for event in self._open.values():
            input_tokens = estimate_input(event.request)
            uncounted = as_uncounted(Usage(input_tokens))
            usage += uncounted.as_failed_call(event.request.model)
        return usage

    async def read(self, response: Response) -> Any:
        """Read the response to its end and return the value of the run.

        Raises:
            PodwrightError: The run failed or was refused, or the response is invalid.
        """
        if response.status != 200 or response.media_type != "text/event-stream":
            raise await self._refused_error(response)
        parser = EventParser()
        while chunk := await response.read_chunk():
            for event in parser.feed(chunk):
                if event.name == "result":
                    await response.drain()
                    result = as_object(_json(event.data))
                    return self._value_of(result)
                if event.name == "problem":
                    problem = as_object(_json(event.data))
                    raise self._failed_error(problem)
                self._relay(event.data)
            if parser.pending > MAX_EVENT:
                raise self._error(
                    errors.RemoteResponseError,
                    f"sent an event of more than {MAX_EVENT} bytes.",
                )
        raise self._error(
            errors.RemoteConnectionError,
            "closed the stream before the end of its run.",
        )

    def _relay(self, data: bytes) -> None:
        try:
            event = adapter().validate_json(data)
        except ValidationError as error:
            details = error.errors(include_url=False)
            # a type of a newer release
            if details[0]["type"] == "union_tag_invalid":
                return
            raise self._error(
                errors.RemoteResponseError, "sent an invalid event."
            ) from None
        self._count(event)
        if self._run.streaming or not isinstance(event, Token):
            self._run.relay(event, self._name)

    def _count(self, event: Event) -> None:
        match event:
            case RunStarted() if self._kind is None:
                self._outermost = event.run_id
                self._kind = event.kind
            case ModelCallStarted():
                self.calls += 1
                self._open[model_call_key(event)] = event
            case ModelCallFinished():
                self._open.pop(model_call_key(event), None)
                usage = event.response.usage.as_call(event.model)
                self._counted += event.failed_usage + usage
            case ModelCallFailed():
                self._open.pop(model_call_key(event), None)
                self._counted += event.usage
            case RunEnded() if event.run_id == self._outermost:
                self._reported = event.usage
                self.data = getattr(event, "data", None)
                self.finish_reason = getattr(event, "finish_reason", "stop")
            case _:
                pass

    def _value_of(self, result: JsonObject) -> Any:
        if self._kind == "workflow" and result:
            return result
        if "output" not in result:
            raise self._error(
                errors.RemoteResponseError, "sent an invalid result."
            )
        value = result.get("data", result["output"])
        is_answer = self._kind in ("agent", "conductor")
        if is_answer and self.data is None and not isinstance(value, str):
            # a service of an older release, whose output was the data
            self.data = value
        return value

    def _failed_error(self, problem: JsonMapping) -> errors.PodwrightError:
        """The error for a run that failed there, from its problem document (RFC 9457)."""
        code = _text(problem, "code")
        if code == "limit_exceeded":
            return self._limit_error(problem)
        if code == "approval_required":
            return self._paused_error(problem)
        if code == errors.ModelRefusedError.code:
            return self._refusal_error(problem)
        detail = _text(problem, "detail")
        error_class = _ERRORS_OF_RUNS.get(code)
        if error_class is not None:
            error = self._error(error_class, f"failed: {detail}", problem)
        else:
            error = self._error(
                errors.RemoteError,
                f"failed: {detail}",
                problem,
                code=_code_of(problem),
            )
        wait = _seconds_to_wait(problem)
        if wait is not None:
            # the caller may send its request again later; it is not repeated here, because the run has been paid
            error.status = 503
            error.retry_after = wait
        return error

    def _limit_error(self, problem: JsonMapping) -> errors.LimitExceededError:
        detail = _text(problem, "detail")
        error = errors.LimitExceededError(
            f"The remote '{self._name}' failed: {detail}",
            limit=_text(problem, "limit"),
            suggestion=_text(problem, "suggestion") or None,
        )
        error.component = _text(problem, "component") or None
        return error

    def _refusal_error(self, problem: JsonMapping) -> errors.ModelRefusedError:
        """The error for a refusal of a model there, which is no failure of the remote."""
        error = errors.ModelRefusedError(
            f"The remote '{self._name}': {_text(problem, 'detail')}",
            refusal=str(problem.get("refusal") or ""),
        )
        error.component = _text(problem, "component") or None
        return error

    def _paused_error(self, problem: JsonMapping) -> errors.RemotePausedError:
        detail = _text(problem, "detail")
        error = self._error(
            errors.RemotePausedError,
            f"waits for approval: {detail}",
            problem={**problem, "suggestion": ""},
        )
        error.paused_context = as_object(problem.get("context"))
        error.paused_path = as_array(problem.get("resume_path"))
        return error

    async def _refused_error(self, response: Response) -> errors.RemoteError:
        """The error for a response that is not a stream of events; only a problem document is quoted."""
        problem: JsonObject = {}
        if response.media_type == "application/problem+json":
            problem = as_object(_json(await response.read()))
        wait = retry_after(response.headers)
        error = self._error_of_status(
            response.status, problem, via=response.via
        )
        if wait is not None and _is_repeatable(error, response.status):
            error.transient = True
            error.retry_after = wait
        error.status = response.status
        return error

    def _error_of_status(
        self, status: int, problem: JsonMapping, via: str
    ) -> errors.RemoteError:
        answered = f"answered {status}{via}"
        detail = _text(problem, "detail") or "no problem document."
        match status // 100:
            case 5:
                error_class = errors.RemoteUnavailableError
            case 4 if _text(problem, "code") == "run_interrupted":
                error_class = errors.RemoteInterruptedError
            case 4:
                error_class = errors.RemoteRejectedError
            case 3:
                return self._error(
                    errors.RemoteResponseError,
                    f"{answered}: redirects are not followed.",
                )
            case _:
                return self._error(
                    errors.RemoteResponseError,
                    f"{answered} without a stream of events.",
                )
        return self._error(error_class, f"{answered}: {detail}", problem)

    def _error(
        self,
        kind: type[E],
        text: str,
        problem: JsonMapping = _EMPTY,
        code: str | None = None,
    ) -> E:
        return remote_error(kind, self._name, text, problem=problem, code=code)


def remote_error(
    kind: type[E],
    name: str,
    text: str,
    problem: JsonMapping = _EMPTY,
    code: str | None = None,
) -> E:
    """An error of a remote component.

    Args:
        kind: The class of the error.
        name: Name of the remote component.
        text: What the remote did, the predicate of the message.
        problem: The problem document that it sent.
        code: The error's own code, if it is finer than that of its class.
    """
    help_url = None
    if code is not None:
        # it may be one of the service
        help_url = errors.help_page(code)
    error = kind(
        f"The remote '{name}' {text}",
        suggestion=_text(problem, "suggestion") or None,
        help_url=help_url,
        code=code,
    )
    error.remote = name
    error.remote_code = _code_of(problem)
    error.component = _text(problem, "component") or None
    return error


def transport_error(name: str, error: TransportError) -> errors.RemoteError:
    """The error for a request to a remote without a complete response.

    Args:
        name: Name of the remote component.
        error: What failed.
    """
    remote = remote_error(
        _TRANSPORT_ERRORS.get(error.fault, errors.RemoteConnectionError),
        name,
        f"did not answer: {error}.",
        problem={"suggestion": error.suggestion},
    )
    remote.transient = error.fault in _REPEATABLE
    remote.has_connected = error.has_connected
    return remote


def _is_repeatable(error: errors.RemoteError, status: int) -> bool:
    """Whether a refused request may be repeated once the remote says when."""
    # 429 is the answer of a proxy in front of the remote
    if status in (429, 503):
        return True
    if isinstance(error, errors.RemoteRejectedError):
        # an earlier attempt, whose connection was lost, still runs there
        return error.remote_code == "idempotency_in_progress"
    return False


def _json(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return None


def _code_of(problem: JsonMapping) -> str | None:
    """The code of a problem document; None if it has none, or none that could be ours."""
    code = _text(problem, "code")
    if _CODE.fullmatch(code):
        return code
    return None


def _seconds_to_wait(problem: JsonMapping) -> float | None:
    """The seconds after which the same request may succeed, if the remote says so."""
    if problem.get("status") != 503:
        return None
    seconds = problem.get("retry_after")
    if seconds is True:
        return None
    if isinstance(seconds, int | float) and 0 <= seconds < math.inf:
        return float(seconds)
    # a service of an older release names no seconds
    if _text(problem, "code") == "model_rate_limited":
        return 1.0
    return None


def _text(problem: JsonMapping, key: str) -> str:
    value = problem.get(key)
    if not isinstance(value, str):
        return ""
    return truncate(value, _MAX_TEXT)
