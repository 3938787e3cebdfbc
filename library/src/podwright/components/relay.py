"""What a remote component tells, handed on and counted."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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
    StepFinished,
    StepStarted,
    Token,
    ToolCallFailed,
    ToolCallFinished,
    ToolCallStarted,
    adapter,
)
from podwright.run import Run
from podwright.usage import NO_USAGE, Usage

_First = RunStarted | StepStarted | ModelCallStarted | ToolCallStarted

CODE = re.compile(r"[a-z][a-z_]{0,63}")
"""What a code of an error looks like."""

_MOST = 10**12
"""Most tokens or USD that one model call is believed to use: telemetry has 64 bits for the sum of all."""
_MOST_OPEN = 10_000
_DEEPEST = 100
"""Runs within each other; as many indices may be in a path."""
_MOST_MODELS = 100
_LONGEST_NAME = 500


class Context(dict[str, Any]):
    """A remote workflow's answer; told apart from an object that an agent answered."""


def told(remote: str, error: RemoteError, code: str = "") -> RemoteError:
    """An error with the name of the remote, and with the code that the remote told, if it is one."""
    error.remote = remote
    error.remote_code = code if CODE.fullmatch(code) else None
    return error


@dataclass(slots=True)
class _OpenRun:
    outer: _OpenRun | None
    depth: int = field(init=False)
    usage: Usage = field(default_factory=Usage)

    def __post_init__(self) -> None:
        self.depth = self.outer.depth + 1 if self.outer else 1


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
        self.usage = NO_USAGE
        self.calls = 0
        """Model calls that were begun."""

    def take(self, data: bytes) -> bool:
        """Hand one event on; those of a newer release are passed over.

        Returns:
            Whether it was an event that fits those before it.
        """
        event = _event(data)
        if event is None:
            return _unknown(data)
        if isinstance(event, Token):
            if self._run.streaming and _short(event):
                self._run.relay(event, self._name)
            return True
        if not (_short(event) and self._fits(event)):
            return False
        self._count(event)
        self._run.relay(event, self._name)
        return True

    def _fits(self, event: Event) -> bool:
        """Whether a remote that is sound could tell this now; what is counted must not grow without end."""
        if isinstance(event, _First) and len(self._begun) >= _MOST_OPEN:
            return False
        if isinstance(event, RunStarted):
            outer = self._runs.get(event.parent_id or "")
            within = event.parent_id is None if outer is None else outer.depth < _DEEPEST
            return within and event.run_id not in self._runs
        if event.run_id not in self._runs:
            return False
        if isinstance(event, ModelCallStarted):
            return len(event.request.model) <= _LONGEST_NAME
        if isinstance(event, ModelCallFinished):
            model, known = self._model_of(event), self.usage.by_model
            few = model in known or len(known) < _MOST_MODELS
            return model is not None and few and _sound(event.response.usage)
        return not isinstance(event, RUN_ENDS) or _sound(event.usage)

    def _model_of(self, event: ModelCallFinished) -> str | None:
        begun = self._begun.get(_key(event))
        return begun.event.request.model if begun and isinstance(begun.event, ModelCallStarted) else None

    def _count(self, event: Event) -> None:
        match event:
            case RunStarted():
                self.kind = self.kind or event.kind
                self._runs[event.run_id] = _OpenRun(self._runs.get(event.parent_id or ""))
            case ModelCallStarted():
                self.calls += 1
            case ModelCallFinished():
                self._add(event.run_id, event.response.usage.as_call(self._model_of(event) or ""))
            case ToolCallStarted():
                self._add(event.run_id, Usage(tool_calls=1))
            case _ if isinstance(event, RUN_ENDS):
                del self._runs[event.run_id]
            case _:
                pass
        if isinstance(event, _First):
            self._begun[_key(event)] = _Begun(event, event.path, perf_counter())
        else:
            self._begun.pop(_key(event), None)

    def _add(self, run_id: str, usage: Usage) -> None:
        self.usage += usage
        self._run.add_usage(usage)
        one = self._runs.get(run_id)
        while one is not None:
            one.usage += usage
            one = one.outer

    def abort(self, error: PodwrightError | None) -> None:
        """End what the remote began and did not tell the end of; no error is a cancellation."""
        facts = error.to_dict() if error else {"code": "run_cancelled", "message": "The run was cancelled."}
        for begun in reversed(self._begun.values()):
            if run := self._runs.get(begun.event.run_id):
                last = _last(begun, facts, error is None, run.usage)
                last = replace(last, **_common(begun.event), path=begun.path, at=time())
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


def _short(event: Event) -> bool:
    return max(len(event.run_id), len(event.component)) <= _LONGEST_NAME and len(event.path) <= _DEEPEST


def _sound(usage: Usage) -> bool:
    counts = (usage.input_tokens, usage.output_tokens, usage.cached_input_tokens, usage.reasoning_tokens)
    calls = (usage.model_calls, usage.tool_calls, usage.unpriced_model_calls)
    return all(0 <= one <= _MOST for one in (*counts, *calls, usage.cost or 0))
