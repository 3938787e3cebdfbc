"""The response of a remote component: its events, its value or its error, and what the run there used."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import orjson
from pydantic import ValidationError

from podwright import errors
from podwright.events import (
    Event,
    Kind,
    ModelCallFailed,
    ModelCallFinished,
    ModelCallStarted,
    RunEnded,
    RunStarted,
    Token,
    adapter,
)
from podwright.json_data import as_array, as_object
from podwright.models.http import Fault, Response, TransportError
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
_CODE = re.compile(r"[a-z][a-z_]{0,63}")
_EMPTY: Mapping[str, Any] = {}

_TRANSPORT_ERRORS: dict[Fault, type[errors.RemoteError]] = {
    "connect_timeout": errors.RemoteTimeoutError,
    "timeout": errors.RemoteTimeoutError,
    "not_http": errors.RemoteResponseError,
    "too_large": errors.RemoteResponseError,
}
"""The others are `RemoteConnectionError`."""
_REPEATABLE: tuple[Fault, ...] = ("dns", "connect", "connect_timeout", "disconnected")
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
        self._open: dict[tuple[str, int], ModelCallStarted] = {}
        """Model calls that have not ended."""
        self.calls = 0
        """Model calls that were started."""

    @property
    def usage(self) -> Usage:
        """What the remote run used: its own report, before that what is known of its model calls so far."""
        if self._reported is not None:
            return self._reported
        usage = self._counted
        for event in self._open.values():
            usage += as_uncounted(Usage(estimate_input(event.request))).as_failed_call(
                event.request.model
            )
        return usage

    async def read(self, response: Response) -> Any:
        """Read the response to its end and return the value of the run.

        Raises:
            PodwrightError: The run failed or was refused, or the response is invalid.
        """
        if response.status != 200 or response.media_type != "text/event-stream":
            raise await self._refused(response)
        parser = EventParser()
        while chunk := await response.read_chunk():
            for event in parser.feed(chunk):
                if event.name == "result":
                    await response.drain()
                    return self._value(as_object(_json(event.data)))
                if event.name == "problem":
                    raise self._failed(as_object(_json(event.data)))
                self._relay(event.data)
            if parser.pending > MAX_EVENT:
                raise self._error(
                    errors.RemoteResponseError,
                    f"sent an event of more than {MAX_EVENT} bytes.",
                )
        raise self._error(
            errors.RemoteConnectionError, "closed the stream before the end of its run."
        )

    def transport_error(self, error: TransportError) -> errors.RemoteError:
        """The error for a request without a complete response."""
        kind = _TRANSPORT_ERRORS.get(error.fault, errors.RemoteConnectionError)
        remote_error = self._error(
            kind, f"did not answer: {error}.", {"suggestion": error.suggestion}
        )
        remote_error.transient = error.fault in _REPEATABLE
        return remote_error

    def _relay(self, data: bytes) -> None:
        try:
            event = adapter().validate_json(data)
        except ValidationError as error:
            # a type of a newer release
            if error.errors(include_url=False)[0]["type"] == "union_tag_invalid":
                return
            raise self._error(
                errors.RemoteResponseError, "sent an invalid event."
            ) from None
        self._count(event)
        if self._run.streaming or not isinstance(event, Token):
            self._run.relay(event, self._name)

    def _count(self, event: Event) -> None:
        if isinstance(event, RunStarted) and self._kind is None:
            self._outermost = event.run_id
            self._kind = event.kind
        elif isinstance(event, ModelCallStarted):
            self.calls += 1
            self._open[event.run_id, event.call] = event
        elif isinstance(event, ModelCallFinished):
            self._open.pop((event.run_id, event.call), None)
            self._counted += event.failed_usage + event.response.usage.as_call(
                event.model
            )
        elif isinstance(event, ModelCallFailed):
            self._open.pop((event.run_id, event.call), None)
            self._counted += event.usage
        elif isinstance(event, RunEnded) and event.run_id == self._outermost:
            self._reported = event.usage

    def _value(self, result: dict[str, Any]) -> Any:
        if self._kind == "workflow" and result:
            return result
        if "output" not in result:
            raise self._error(errors.RemoteResponseError, "sent an invalid result.")
        return result["output"]

    def _failed(self, problem: Mapping[str, Any]) -> errors.PodwrightError:
        """The error for a run that failed there, from its problem document (RFC 9457)."""
        failed = f"failed: {_text(problem, 'detail')}"
        match code := _text(problem, "code"):
            case "limit_exceeded":
                limit = _text(problem, "limit")
                hint = _text(problem, "suggestion") or None
                limit_error = errors.LimitExceededError(
                    f"The remote '{self._name}' {failed}", limit=limit, suggestion=hint
                )
                limit_error.component = _text(problem, "component") or None
                return limit_error
            case "approval_required":
                waits = f"waits for approval: {_text(problem, 'detail')}"
                paused = self._error(
                    errors.RemotePausedError, waits, {**problem, "suggestion": ""}
                )
                paused.paused_context = as_object(problem.get("context"))
                paused.paused_path = as_array(problem.get("resume_path"))
                return paused
            case "remote_hops_exceeded":
                return self._error(errors.RemoteHopsError, failed, problem)
            case "remote_interrupted":
                return self._error(errors.RemoteInterruptedError, failed, problem)
            case "run_cancelled":
                return self._error(errors.RemoteUnavailableError, failed, problem)
            case _:
                return self._error(
                    errors.RemoteError,
                    failed,
                    problem,
                    code if _CODE.fullmatch(code) else None,
                )

    async def _refused(self, response: Response) -> errors.RemoteError:
        """The error for a response that is no stream of events; only a problem document is quoted."""
        problem: dict[str, Any] = {}
        if response.media_type == "application/problem+json":
            problem = as_object(_json(await response.read()))
        answered = f"answered {response.status}: {_text(problem, 'detail') or 'no problem document.'}"
        wait = retry_after(response.headers)
        match response.status // 100:
            case 5:
                error = self._error(errors.RemoteUnavailableError, answered, problem)
                error.transient = response.status == 503 and wait is not None
            case 4 if _text(problem, "code") == "run_interrupted":
                error = self._error(errors.RemoteInterruptedError, answered, problem)
            case 4:
                error = self._error(errors.RemoteRejectedError, answered, problem)
                # an earlier attempt, whose connection was lost, still runs there
                error.transient = (
                    error.remote_code == "idempotency_in_progress" and wait is not None
                )
            case 3:
                error = self._error(
                    errors.RemoteResponseError,
                    f"answered {response.status}: redirects are not followed.",
                )
            case _:
                error = self._error(
                    errors.RemoteResponseError,
                    f"answered {response.status} without a stream of events.",
                )
        error.retry_after = wait if error.transient else None
        error.status = response.status
        return error

    def _error(
        self,
        kind: type[E],
        text: str,
        problem: Mapping[str, Any] = _EMPTY,
        code: str | None = None,
    ) -> E:
        return remote_error(kind, self._name, text, problem, code)


def remote_error(
    kind: type[E],
    name: str,
    text: str,
    problem: Mapping[str, Any] = _EMPTY,
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
    remote_code = _text(problem, "code")
    error = kind(
        f"The remote '{name}' {text}",
        suggestion=_text(problem, "suggestion") or None,
        code=code,
    )
    error.remote = name
    error.remote_code = remote_code if _CODE.fullmatch(remote_code) else None
    error.component = _text(problem, "component") or None
    return error


def _json(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return None


def _text(problem: Mapping[str, Any], key: str) -> str:
    value = problem.get(key)
    return truncate(value, _MAX_TEXT) if isinstance(value, str) else ""
