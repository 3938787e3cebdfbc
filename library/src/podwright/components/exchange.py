"""One request to a remote component and its answer: a stream of events, or a refusal, or whatever goes wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from podwright.components.relay import CODE, Context, Relay, told
from podwright.deadlines import Deadline
from podwright.errors import (
    LimitExceededError,
    PodwrightError,
    RemoteConnectionError,
    RemoteError,
    RemoteHopsError,
    RemotePausedError,
    RemoteRejectedError,
    RemoteResponseError,
    RemoteTimeoutError,
    RemoteUnavailableError,
)
from podwright.json_data import as_object, nested_deeper
from podwright.models import pool
from podwright.models.chat_completions import Events
from podwright.models.http1 import BrokenError, HttpError, LostError, NotConnectedError, Reply
from podwright.models.retries import Timeouts, retry_after
from podwright.models.target import Target

LONGEST_EVENT = 8 * 2**20
"""Bytes that one event of a remote may have."""
LONGEST_STREAM = 256 * 2**20
"""Bytes that all of a remote's answer may have."""

_LONGEST_REFUSAL = 64 * 2**10
_LONGEST_TEXT = 2000


class Exchange:
    """Asks one remote.

    Args:
        name: Its name, for errors.
        target: Where its runs begin.
        timeouts: How long to wait.
    """

    def __init__(self, name: str, target: Target, timeouts: Timeouts) -> None:
        self._name, self._target, self._timeouts = name, target, timeouts

    async def attempt(self, data: bytes, headers: Mapping[str, str], relay: Relay) -> Any:
        """Send the request once, and follow the answer.

        Raises:
            RemoteError: It is transient where the request can be sent again: it certainly began no run, or it was
                lost before any answer, and its key has the remote run it once.
        """
        patience, head = self._timeouts, self._target.head(headers)
        connections = await pool.of_loop()
        deadline = Deadline(patience.first_byte)
        before, relay.sent = relay.sent, True
        begun = False
        try:
            with deadline:
                reply = await connections.post(self._target, head, data, patience.connect)
                begun = True
                try:
                    if reply.status != 200 or reply.content_type != "text/event-stream":
                        relay.sent = before or (reply.status // 100 in (2, 5) and reply.status != 503)
                        raise self._refusal(reply, await _problem_in(reply))
                    return await self._follow(reply, relay, deadline)
                finally:
                    reply.close()  # what was not read to its end is closed, and the remote's run is cancelled
        except (HttpError, TimeoutError) as error:
            if isinstance(error, NotConnectedError):
                relay.sent = before
            raise self._told(self._lost(error, begun)) from error

    async def _follow(self, reply: Reply, relay: Relay, deadline: Deadline) -> Any:
        events = Events()
        size = pending = 0
        while True:
            chunk = await reply.more()
            size, pending = size + len(chunk), pending + len(chunk)
            deadline.renew(self._timeouts.idle)
            for name, data in events.named(chunk):
                pending = 0
                if name == b"result":
                    value = self._value(data, relay)
                    await pool.linger(reply)
                    return value
                if name == b"problem":
                    relay.ended = True
                    raise self._failure(_object(data))
                if not relay.take(data):
                    raise self._malformed("an event that is none")
            if pending > LONGEST_EVENT or size > LONGEST_STREAM:
                raise self._malformed("more than is taken")
            if not chunk:
                lost = f"The stream of the remote '{self._name}' ended before its run did."
                raise self._told(RemoteConnectionError(lost))

    def _value(self, data: bytes, relay: Relay) -> Any:
        body = _object(data)
        relay.ended = relay.kind is not None and bool(body)
        if relay.kind == "workflow" and body:
            return Context(body)
        if relay.kind is None or "output" not in body:
            raise self._malformed("a result that is none")
        return body["output"]

    def _failure(self, problem: Mapping[str, Any]) -> PodwrightError:
        """The error that a problem document of a run there amounts to here."""
        message, hint = f"The remote '{self._name}' failed: {_text(problem, 'detail')}", _text(problem, "suggestion")
        code = _text(problem, "code")
        match code:
            case "limit_exceeded":
                found = LimitExceededError(message, limit=_text(problem, "limit"), suggestion=hint or None)
                found.component = _text(problem, "component") or None
                return found
            case "approval_required":
                asked = f"The remote workflow '{self._name}' waits for approval: {_text(problem, 'detail')}"
                error = RemotePausedError(asked)
                error.paused_context = as_object(problem.get("context"))
                path = problem.get("resume_path")
                error.paused_path = cast("list[int]", path) if isinstance(path, list) else None
            case "remote_hops_exceeded":
                error = RemoteHopsError(message, suggestion=hint or None)
            case "run_cancelled":
                error = RemoteUnavailableError(message, suggestion=hint or None)
            case _:
                known = code if CODE.fullmatch(code) else None
                error = RemoteError(message, suggestion=hint or None, code=known)
        error.component = _text(problem, "component") or None
        return self._told(error, problem)

    def _refusal(self, reply: Reply, problem: Mapping[str, Any]) -> RemoteError:
        """The error for an answer that is no stream; only a problem document is quoted."""
        status, said = reply.status, _text(problem, "detail")
        who = f"The remote '{self._name}' answered {status}" + (f": {said}" if said else ".")
        hint = _text(problem, "suggestion") or None
        if status // 100 == 5:
            error = RemoteUnavailableError(who, suggestion=hint)
            error.retry_after = retry_after(reply.headers)
            error.transient = status == 503 and error.retry_after is not None
        elif status // 100 == 4:
            error = RemoteRejectedError(who, suggestion=hint)
            if _text(problem, "code") == "idempotency_in_progress":  # a lost try of ours, which ends any moment
                error.retry_after = retry_after(reply.headers)
                error.transient = error.retry_after is not None
        else:
            what = "a redirect, which is never followed" if status // 100 == 3 else "no stream of events"
            error = RemoteResponseError(f"The remote '{self._name}' answered {status}: {what}.")
        error.status = status
        return self._told(error, problem)

    def _lost(self, error: HttpError | TimeoutError, begun: bool) -> RemoteError:
        who, patience = f"The remote '{self._name}'", self._timeouts
        match error:
            case NotConnectedError(reason="time"):
                fault = RemoteTimeoutError(f"{who}: no connection within {patience.connect:g} s.")
                fault.transient = True
            case NotConnectedError(reason="tls"):
                return RemoteConnectionError(f"{who}: no secure connection: the certificate or TLS is at fault.")
            case NotConnectedError():
                what = "the host's name cannot be looked up" if error.reason == "name" else "no connection"
                fault = RemoteConnectionError(f"{who}: {what}.")
                fault.transient = True
            case TimeoutError():
                return RemoteTimeoutError(f"{who} was silent for too long.")
            case BrokenError() if not begun:
                return RemoteResponseError(f"{who} answered something that is no HTTP.")
            case _:
                fault = RemoteConnectionError(f"{who}: the connection was lost.")
                fault.transient = isinstance(error, LostError)
        return fault

    def _malformed(self, what: str) -> RemoteError:
        return self._told(RemoteResponseError(f"The remote '{self._name}' sent {what}."))

    def _told(self, error: RemoteError, problem: Mapping[str, Any] | None = None) -> RemoteError:
        return told(self._name, error, _text(problem or {}, "code"))


async def _problem_in(reply: Reply) -> Mapping[str, Any]:
    """The problem document of a refusal, if it is one."""
    if reply.content_type != "application/problem+json":
        return {}
    body = b""
    try:
        while len(body) < _LONGEST_REFUSAL and (chunk := await reply.more()):
            body += chunk
    except HttpError:
        return {}
    return _object(body)


def _object(data: bytes) -> dict[str, Any]:
    try:
        found = as_object(json.loads(data))
    except (ValueError, RecursionError):
        return {}
    return {} if nested_deeper(found) else found


def _text(problem: Mapping[str, Any], key: str) -> str:
    value = problem.get(key)
    return value[:_LONGEST_TEXT] if isinstance(value, str) else ""
