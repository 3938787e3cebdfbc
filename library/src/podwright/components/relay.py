"""What a remote component tells, handed on and counted."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter, time
from typing import Any

from pydantic import ValidationError

from podwright.errors import PodwrightError, RemoteError
from podwright.events import (
    RUN_ENDS,
    Event,
    Kind,
    ModelCallFailed,
    ModelCallFinished,
    ModelCallStarted,
    RunCancelled,
    RunFailed,
    RunStarted,
    Token,
    ToolCallStarted,
    adapter,
)
from podwright.run import Run
from podwright.usage import Usage

CODE = re.compile(r"[a-z][a-z_]{0,63}")
"""What a code of an error looks like."""


class Context(dict[str, Any]):
    """A remote workflow's answer; told apart from an object that an agent answered."""


def told(remote: str, error: RemoteError, code: str = "") -> RemoteError:
    """An error with the name of the remote, and with the code that the remote told, if it is one."""
    error.remote = remote
    error.remote_code = code if CODE.fullmatch(code) else None
    return error


@dataclass(slots=True)
class _OpenRun:
    start: Mapping[str, Any]
    """The common fields of its first event, as the remote stamped them."""
    began: float
    usage: Usage


class Relay:
    """Hands a remote's events on, and keeps count of what they tell: however it ends, that is known."""

    def __init__(self, run: Run, name: str) -> None:
        self._run, self._name = run, name
        self._runs: dict[str, _OpenRun] = {}
        self._calls: dict[tuple[str, int], str] = {}
        self.kind: Kind | None = None
        """Kind of the remote, once its run has begun."""
        self.sent = False
        """Whether the remote may have begun a run, in any try."""
        self.ended = False
        """Whether the remote told how its run ended."""
        self.usage = Usage()
        self.calls = 0
        """Model calls that were begun."""

    def take(self, data: bytes) -> bool:
        """Hand one event on; those of a newer release are passed over.

        Returns:
            Whether it was an event that fits those before it.
        """
        event = _event(data)
        if event is None or isinstance(event, Token):
            if event is not None and self._run.streaming:
                self._run.relay(event, self._name)
            return event is not None or _unknown(data)
        match event:
            case RunStarted():
                self.kind = self.kind or event.kind
                facts = {key: getattr(event, key) for key in ("run_id", "parent_id", "component", "kind", "path")}
                self._runs[event.run_id] = _OpenRun(facts, perf_counter(), Usage())
            case _ if event.run_id not in self._runs:
                return False
            case ModelCallStarted():
                self._calls[event.run_id, event.call] = event.request.model
                self.calls += 1
            case ModelCallFinished():
                model = self._calls.get((event.run_id, event.call))
                if model is None or not _sound(event.response.usage):
                    return False
                del self._calls[event.run_id, event.call]
                self._add(event.run_id, event.response.usage.of_call(model))
            case ModelCallFailed():
                self._calls.pop((event.run_id, event.call), None)
            case ToolCallStarted():
                self._add(event.run_id, Usage(tool_calls=1))
            case _ if isinstance(event, RUN_ENDS):
                del self._runs[event.run_id]
            case _:
                pass
        self._run.relay(event, self._name)
        return True

    def _add(self, run_id: str | None, usage: Usage) -> None:
        self.usage += usage
        self._run.add_usage(usage)
        while run_id is not None and (one := self._runs.get(run_id)):
            one.usage += usage
            run_id = one.start["parent_id"]

    def abort(self, error: PodwrightError | None) -> None:
        """End what the remote began and did not tell the end of; no error is a cancellation."""
        facts = error.to_dict() if error else {"code": "run_cancelled", "message": "The run was cancelled."}
        for (run_id, call), _ in reversed(self._calls.items()):
            self._close(ModelCallFailed(call=call, error=facts), self._runs[run_id])
        for one in reversed(list(self._runs.values())):
            took = round((perf_counter() - one.began) * 1000, 3)
            if error:
                self._close(RunFailed(error=facts, usage=one.usage, duration_ms=took), one)
            else:
                self._close(RunCancelled(usage=one.usage, duration_ms=took), one)
        self._calls, self._runs = {}, {}

    def _close(self, event: Event, one: _OpenRun) -> None:
        for key, value in {**one.start, "at": time()}.items():
            object.__setattr__(event, key, value)
        self._run.relay(event, self._name)


def _event(data: bytes) -> Event | None:
    try:
        return adapter().validate_json(data)
    except ValidationError as error:
        if error.errors(include_url=False, include_input=False)[0]["type"] != "json_invalid":
            return None
    try:  # half of a surrogate pair, which JSON can write, becomes what can be shown
        text = json.dumps(json.loads(data), ensure_ascii=False)
        return adapter().validate_json(text.encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


def _unknown(data: bytes) -> bool:
    """Whether an event that cannot be read is one of a type that only a newer release knows."""
    try:
        adapter().validate_json(data)
    except ValidationError as error:
        return error.errors(include_url=False, include_input=False)[0]["type"] == "union_tag_invalid"
    return False


def _sound(usage: Usage) -> bool:
    counts = (usage.input_tokens, usage.output_tokens, usage.cached_input_tokens, usage.reasoning_tokens)
    return min(counts) >= 0 and (usage.cost is None or 0 <= usage.cost < math.inf)
