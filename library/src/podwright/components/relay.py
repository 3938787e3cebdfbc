"""What a remote component tells, handed on and counted."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter, time
from typing import Any, cast

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
    StepFinished,
    StepStarted,
    Token,
    ToolCallFailed,
    ToolCallFinished,
    ToolCallStarted,
    adapter,
)
from podwright.run import Run
from podwright.usage import Usage

_First = RunStarted | StepStarted | ModelCallStarted | ToolCallStarted

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
    parent_id: str | None
    usage: Usage


@dataclass(slots=True)
class _Begun:
    """The first event of something that has not ended."""

    event: _First
    path: tuple[int, ...]
    """As the remote stamped it."""
    at: float


class Relay:
    """Hands a remote's events on, and keeps count of what they tell: however it ends, that is known."""

    def __init__(self, run: Run, name: str) -> None:
        self._run, self._name = run, name
        self._runs: dict[str, _OpenRun] = {}
        self._begun: dict[tuple[object, ...], _Begun] = {}
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
        key = _key(event)
        match event:
            case RunStarted():
                self.kind = self.kind or event.kind
                self._runs[event.run_id] = _OpenRun(event.parent_id, Usage())
            case _ if event.run_id not in self._runs:
                return False
            case ModelCallStarted():
                self.calls += 1
            case ModelCallFinished():
                begun = self._begun.get(key)
                if begun is None or not _sound(event.response.usage):
                    return False
                self._add(
                    event.run_id, event.response.usage.of_call(cast("ModelCallStarted", begun.event).request.model)
                )
            case ToolCallStarted():
                self._add(event.run_id, Usage(tool_calls=1))
            case _ if isinstance(event, RUN_ENDS):
                del self._runs[event.run_id]
            case _:
                pass
        if isinstance(event, _First):
            self._begun[key] = _Begun(event, event.path, perf_counter())
        else:
            self._begun.pop(key, None)
        self._run.relay(event, self._name)
        return True

    def _add(self, run_id: str | None, usage: Usage) -> None:
        self.usage += usage
        self._run.add_usage(usage)
        while run_id is not None and (one := self._runs.get(run_id)):
            one.usage += usage
            run_id = one.parent_id

    def abort(self, error: PodwrightError | None) -> None:
        """End what the remote began and did not tell the end of; no error is a cancellation."""
        facts = error.to_dict() if error else {"code": "run_cancelled", "message": "The run was cancelled."}
        for begun in reversed(self._begun.values()):
            if run := self._runs.get(begun.event.run_id):
                last = _last(begun, facts, error is None, run.usage)
                for name, value in {**_common(begun.event), "path": begun.path, "at": time()}.items():
                    object.__setattr__(last, name, value)
                self._run.relay(last, self._name)
        self._begun, self._runs = {}, {}


def _key(event: Event) -> tuple[object, ...]:
    """What the first and the last event of something have in common, and no others."""
    match event:
        case ModelCallStarted() | ModelCallFinished() | ModelCallFailed():
            return event.run_id, "model call", event.call
        case ToolCallStarted() | ToolCallFinished() | ToolCallFailed():
            return event.run_id, "tool call", event.call_id
        case StepStarted() | StepFinished():
            return event.run_id, "step", event.step, event.path
        case _:
            return (event.run_id, "run") if isinstance(event, (RunStarted, *RUN_ENDS)) else ()


def _last(begun: _Begun, error: Mapping[str, Any], cancelled: bool, usage: Usage) -> Event:
    took = round((perf_counter() - begun.at) * 1000, 3)
    match event := begun.event:
        case ModelCallStarted():
            return ModelCallFailed(call=event.call, model=event.request.model, error=error, duration_ms=took)
        case ToolCallStarted():
            return ToolCallFailed(tool=event.tool, call_id=event.call_id, error=error, duration_ms=took)
        case StepStarted():
            outcome = "cancelled" if cancelled else "failed"
            return StepFinished(step=event.step, step_type=event.step_type, outcome=outcome, duration_ms=took)
        case RunStarted() if cancelled:
            return RunCancelled(usage=usage, duration_ms=took)
        case RunStarted():
            return RunFailed(error=error, usage=usage, duration_ms=took)


def _common(event: Event) -> dict[str, Any]:
    return {name: getattr(event, name) for name in ("run_id", "parent_id", "component", "kind")}


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
