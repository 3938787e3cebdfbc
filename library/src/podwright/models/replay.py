"""Answers of recorded runs: a model that gives them again, and one that records them."""

from __future__ import annotations

import difflib
import json
import os
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel, ConfigDict, ValidationError

from podwright.data.json_data import JsonObject, to_json_bytes, to_json_data
from podwright.data.text import os_error_reason, truncate
from podwright.errors import ModelError, ReplayMismatchError, TraceError
from podwright.events import (
    TRACE_FORMAT,
    Event,
    ModelCallFailed,
    ModelCallFinished,
    ModelCallKey,
    ModelCallStarted,
    RunStarted,
    TraceFormat,
    model_call_key,
)
from podwright.functions.run_start import RunStart
from podwright.location import current
from podwright.messages.messages import ModelRequest, ModelResponse
from podwright.messages.usage import NO_USAGE, Usage
from podwright.models.base import Model, TokenCallback, WrappingModel
from podwright.models.offline.offline import OfflineModel
from podwright.models.output_files import check_writable
from podwright.models.registry import resolve
from podwright.schemas.validation_errors import to_problems

if TYPE_CHECKING:
    from podwright.run.result import ExecutionResult

    Trace = ExecutionResult | str | os.PathLike[str]


class ReplayModel(OfflineModel):
    """Gives the answers of recorded runs, so that components run again without a model.

    Give it to every component of the run, for example by `podwright.load(path, model=ReplayModel("trace.json"))`. A
    request is matched by its content with the recorded ones of the same component at the same place. One that differs
    is an error, so a trace from production is a regression test.

    Args:
        *traces: The `ExecutionResult` of a traced run, or a file that `podwright run --trace` or a `RecordingModel`
            wrote; several for a test of several runs.

    Raises:
        TraceError: A file is not a trace, or has the end of a model call without its start.
    """

    name = "offline/replay"

    def __init__(self, *traces: Trace) -> None:
        self._recorded: defaultdict[_Place, list[_Call]] = defaultdict(list)
        self._starts: list[RunStarted] = []
        count = 0
        for trace in traces:
            recorded = _events_of(trace)
            self._starts += _starts_in(recorded)
            for call in _calls_in(recorded):
                call.number = count
                count += 1
                place = (call.request.component, call.request.path)
                self._recorded[place].append(call)

    def recorded_start(self, component: str) -> RunStart | None:
        """See `Model.recorded_start`; each start is given once."""
        for start in self._starts:
            if start.component == component:
                self._starts.remove(start)
                return RunStart.of(start)
        return None

    @property
    def left(self) -> list[ModelRequest]:
        """Recorded requests that were not made again; empty after a complete replay."""
        requests: list[ModelRequest] = []
        for calls in self._recorded.values():
            requests += [call.request for call in calls]
        return requests

    async def complete(
        self, request: ModelRequest, on_token: TokenCallback | None = None
    ) -> ModelResponse:
        """Give the recorded answer.

        Raises:
            ReplayMismatchError: No such request is left at this place.
            ModelError: The recorded call failed.
        """
        call = self._take(request)
        if isinstance(call.end, ModelCallFinished):
            return self.finish(request, call.end.response, on_token)
        if call.end is None:
            raise ModelError("Recorded: the call did not finish.")
        reason = call.end.error.get("message")
        raise ModelError(f"Recorded: {reason}")

    def _take(self, request: ModelRequest) -> _Call:
        """The first recorded call with this request, which is used up."""
        calls = self._recorded[request.component, request.path]
        who = f"'{request.component}'"
        if request.path:
            who += f" at {list(request.path)}"
        if not calls:
            raise ReplayMismatchError(
                f"{who} made a model call that is not in the trace."
            )
        for call in calls:
            if _lines(call.request) == _lines(request):
                calls.remove(call)
                return call
        nearest = calls[0]
        difference = differences(nearest.request, request)
        raise ReplayMismatchError(
            f"Model call {nearest.number} of the trace, by {who}, differs: {difference}."
        )


class RecordingModel(WrappingModel):
    """Asks another model, and records its answers for a `ReplayModel`.

    The file is a trace: it has what the model was sent and what it answered, and never an API key. Failed calls are not
    recorded. The first answer replaces a file of an earlier recording.

    Args:
        model: The model to ask, or its name.
        file: Where to write the recording, after each answer.

    Raises:
        ConfigurationError: The file cannot be written.
        UnknownModelError: No provider serves the model.

    Example:
        `Agent("guide", "Help.", RecordingModel("openai/gpt-4o-mini", "guide.json")).run("Hello")` once, and from then
        on `Agent("guide", "Help.", ReplayModel("guide.json")).run("Hello")`.
    """

    def __init__(
        self, model: Model | str, file: str | os.PathLike[str]
    ) -> None:
        if isinstance(model, str):
            model = resolve(model)
        check_writable(file)
        super().__init__(model)
        self._file = Path(file)
        self._run_id = uuid.uuid4().hex
        self._events: list[Event] = []
        self._runs: set[str] = set()
        """The outermost runs whose start is recorded."""
        self._calls = 0

    async def complete(
        self, request: ModelRequest, on_token: TokenCallback | None = None
    ) -> ModelResponse:
        """Ask the model, and record its answer."""
        started = time.time()
        response = await self._model.complete(request, on_token)
        self._record(request, response, started)
        return response

    async def stream(
        self,
        request: ModelRequest,
        on_token: TokenCallback,
        on_reasoning: TokenCallback,
    ) -> ModelResponse:
        """As `complete`."""
        started = time.time()
        response = await self._model.stream(request, on_token, on_reasoning)
        self._record(request, response, started)
        return response

    def _record(
        self, request: ModelRequest, response: ModelResponse, started: float
    ) -> None:
        ended = time.time()
        self._record_start()
        position = len(self._events)
        number = self._calls
        self._calls += 1
        self._events.append(
            ModelCallStarted(
                seq=position,
                at=started,
                run_id=self._run_id,
                component=request.component,
                path=request.path,
                call=number,
                request=request,
            )
        )
        self._events.append(
            ModelCallFinished(
                seq=position + 1,
                at=ended,
                run_id=self._run_id,
                component=request.component,
                path=request.path,
                call=number,
                model=self.name,
                response=response,
                duration_ms=(ended - started) * 1000,
            )
        )
        trace = {
            "format": TRACE_FORMAT,
            "value": None,
            "events": [event.to_dict() for event in self._events],
            "duration_ms": (ended - self._events[0].at) * 1000,
            "usage": self._usage().to_dict(),
        }
        self._file.write_bytes(to_json_bytes(trace))

    def _record_start(self) -> None:
        """Record when the run began whose model is asked, because templates may name it."""
        run = current()
        if run is None or run.outermost.id in self._runs:
            return
        self._runs.add(run.outermost.id)
        self._events.append(
            RunStarted(
                seq=len(self._events),
                at=run.start.began,
                run_id=run.outermost.id,
                component=run.outermost.component_name,
                kind=run.outermost.kind,
                **run.start.to_dict(),
            )
        )

    def _usage(self) -> Usage:
        usage = NO_USAGE
        for event in self._events:
            if isinstance(event, ModelCallFinished):
                usage += event.response.usage.as_call(self.name)
        return usage


_Place = tuple[str, tuple[int, ...]]
"""The component that makes a call, and its path in the run."""


@dataclass(slots=True)
class _Call:
    request: ModelRequest
    end: ModelCallFinished | ModelCallFailed | None = None
    number: int = 0


class _SavedEvents(BaseModel):
    """What is read of a file; `podwright.run.result` has all that is in it."""

    model_config = ConfigDict(extra="ignore", defer_build=True)

    format: TraceFormat
    events: list[Event]


def _events_of(trace: Trace) -> list[Event]:
    if not isinstance(trace, str | os.PathLike):
        return trace.events
    path = Path(trace)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise TraceError(
            f"There is no trace '{path}': nothing has been recorded there yet.",
            suggestion="Write it with a RecordingModel, or with `podwright run --trace FILE`.",
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise TraceError(
            f"Cannot read the trace '{path}': {os_error_reason(error)}."
        ) from error
    try:
        return _SavedEvents.model_validate(data).events
    except ValidationError as error:
        problem = to_problems(error.errors(include_url=False), data)[0]
        raise TraceError(
            f"Invalid trace '{path}' at '{problem.pointer}': {problem.detail}"
        ) from error


def _starts_in(events: list[Event]) -> Iterator[RunStarted]:
    """The starts of outermost runs."""
    for event in events:
        if isinstance(event, RunStarted) and event.parent_id is None:
            yield event


def _calls_in(events: list[Event]) -> list[_Call]:
    """The model calls of a run, in the order in which they started."""
    calls: dict[ModelCallKey, _Call] = {}
    reported: set[ModelCallKey] = set()
    for event in events:
        # a remote component made that call, and makes it again
        if event.remote is not None:
            continue
        if isinstance(event, ModelCallStarted):
            key = model_call_key(event)
            calls[key] = _Call(event.request)
            # a function made it by itself, and makes it again
            if event.is_reported:
                reported.add(key)
        elif isinstance(event, ModelCallFinished | ModelCallFailed):
            call = calls.get(model_call_key(event))
            if call is None:
                raise TraceError(
                    f"Invalid trace: model call {event.call} ended before it started."
                )
            call.end = event
    return [call for key, call in calls.items() if key not in reported]


def differences(recorded: ModelRequest, request: ModelRequest) -> str:
    """Return the lines that differ between two requests as JSON, apart from the model's name; empty if none does.

    Numbers are compared by their values: a temperature of 0 comes back from a file as 0.0.
    """
    before = _lines(recorded)
    after = _lines(request)
    lines = list(difflib.unified_diff(before, after, lineterm="", n=0))
    first = lines[3:7]  # after the headers of the files and of the first change
    return "; ".join(truncate(line, 200) for line in first)


def _lines(request: ModelRequest) -> list[str]:
    """Return the request as JSON, without the names of the model and of those that have answered before."""
    messages = tuple(
        replace(message, provider="") for message in request.messages
    )
    nameless = replace(request, model="", messages=messages)
    # the order of keys is another one after the trace was saved and read
    data = with_whole_numbers(to_json_data(nameless))
    text = json.dumps(data, indent=0, ensure_ascii=False, sort_keys=True)
    return text.splitlines()


def with_whole_numbers(data: Any) -> Any:
    """Return JSON data with 2 in place of 2.0, so that equal numbers are the same text."""
    if isinstance(data, dict):
        members = cast("JsonObject", data)
        return {
            key: with_whole_numbers(value) for key, value in members.items()
        }
    if isinstance(data, list | tuple):
        return [with_whole_numbers(item) for item in cast("list[Any]", data)]
    if isinstance(data, float) and data.is_integer():
        return int(data)
    return data
