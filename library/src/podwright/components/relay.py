"""What a remote component tells, handed on and counted."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
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
    start: Mapping[str, Any]
    """The common fields of its first event, as the remote stamped them."""
    began: float
    outer: _OpenRun | None
    depth: int = field(init=False)
    usage: Usage = field(default_factory=Usage)

    def __post_init__(self) -> None:
        self.depth = self.outer.depth + 1 if self.outer else 1


class Relay:
    """Hands a remote's events on, and keeps count of what they tell: however it ends, that is known."""

    def __init__(self, run: Run, name: str) -> None:
        self._run, self._name = run, name
        self._runs: dict[str, _OpenRun] = {}
        self._calls: dict[tuple[str, int], str] = {}
        self.kind: Kind | None = None
        """Kind of the remote, once its run has begun."""
        self.sent = False
        """Whether the remote may have begun a run."""
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
        if isinstance(event, RunStarted):
            outer = self._runs.get(event.parent_id or "")
            within = event.parent_id is None if outer is None else outer.depth < _DEEPEST
            return within and event.run_id not in self._runs and len(self._runs) < _MOST_OPEN
        if event.run_id not in self._runs:
            return False
        if isinstance(event, ModelCallStarted):
            return len(event.request.model) <= _LONGEST_NAME and len(self._calls) < _MOST_OPEN
        if isinstance(event, ModelCallFinished):
            model, known = self._calls.get((event.run_id, event.call)), self.usage.by_model
            few = model in known or len(known) < _MOST_MODELS
            return model is not None and few and _sound(event.response.usage)
        return not isinstance(event, RUN_ENDS) or _sound(event.usage)

    def _count(self, event: Event) -> None:
        match event:
            case RunStarted():
                self.kind = self.kind or event.kind
                facts = {key: getattr(event, key) for key in ("run_id", "parent_id", "component", "kind", "path")}
                self._runs[event.run_id] = _OpenRun(facts, perf_counter(), self._runs.get(event.parent_id or ""))
            case ModelCallStarted():
                self._calls[event.run_id, event.call] = event.request.model
                self.calls += 1
            case ModelCallFinished():
                self._add(event.run_id, event.response.usage.of_call(self._calls.pop((event.run_id, event.call))))
            case ModelCallFailed():
                self._calls.pop((event.run_id, event.call), None)
            case ToolCallStarted():
                self._add(event.run_id, Usage(tool_calls=1))
            case _ if isinstance(event, RUN_ENDS):
                del self._runs[event.run_id]
            case _:
                pass

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


def _short(event: Event) -> bool:
    return max(len(event.run_id), len(event.component)) <= _LONGEST_NAME and len(event.path) <= _DEEPEST


def _sound(usage: Usage) -> bool:
    counts = (usage.input_tokens, usage.output_tokens, usage.cached_input_tokens, usage.reasoning_tokens)
    calls = (usage.model_calls, usage.tool_calls, usage.unpriced_model_calls)
    return all(0 <= one <= _MOST for one in (*counts, *calls, usage.cost or 0))
