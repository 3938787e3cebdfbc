"""Cases of runs that were made: of a trace, or of a background run of a service."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from podwright.connection.schemas import ENDED, BackgroundRun, Decision
from podwright.data.json_data import JsonObject, as_object, to_json_data
from podwright.errors import (
    ApprovalRejectedError,
    ConfigurationError,
    ContextError,
    TraceError,
)
from podwright.events import (
    Event,
    ModelCallFinished,
    ModelCallKey,
    ModelCallStarted,
    RunStarted,
    ToolCallStarted,
    model_call_key,
)
from podwright.messages.conversation import to_data
from podwright.messages.messages import ModelRequest
from podwright.messages.templates import fill_data
from podwright.models.recorded_answers import RecordedAnswers

_ID_LENGTH = 8
"""Characters of a run's id that are enough to find it."""


@dataclass(frozen=True, slots=True)
class PastCase:
    """The case of a run that was made."""

    component: str
    """The name of the component that was run."""
    data: JsonObject
    """The case as a line of a file of cases; its name is made of the id of the run."""


def name_of_run(run_id: str) -> str:
    """Return how the case of a run is called if nobody says."""
    return f"run {run_id[:_ID_LENGTH]}"


def case_of_trace(events: Sequence[Event]) -> PastCase:
    """Return the case of a traced run: its inputs, earlier turns and calls.

    A trace does not have what a person has decided.

    Args:
        events: The events of the trace.

    Raises:
        TraceError: It has no start of a run.
        ConfigurationError: Its input is none that a case can have.
    """
    starts = [event for event in events if isinstance(event, RunStarted)]
    start = next((each for each in starts if each.parent_id is None), None)
    if start is None:
        raise TraceError(
            "The trace has no start of a run.",
            suggestion="Use a file that `podwright run --trace FILE` wrote.",
        )
    case: JsonObject = {
        "name": name_of_run(start.run_id),
        "inputs": _inputs(start.input),
    }
    messages = _earlier_turns(start.run_id, events)
    if messages:
        case["messages"] = messages
    _add_calls(case, events)
    return PastCase(start.component, case)


def case_of_run(run: BackgroundRun, events: Iterable[Event]) -> PastCase:
    """Return the case of a background run: its inputs, earlier turns, decisions and calls.

    Args:
        run: The run, with its inputs.
        events: Its events.

    Raises:
        ConfigurationError: It has not ended, or its input is none that a case can have.
    """
    if run.status not in ENDED:
        raise ConfigurationError(
            f"The run '{run.id}' has the status '{run.status}', so it is no case yet.",
            suggestion="Wait until it has ended.",
        )
    if run.input_cut:
        raise ConfigurationError(
            f"The service has left out what the run '{run.id}' was asked, because it is too large.",
            suggestion="Write the case by hand.",
        )
    case: JsonObject = {
        "name": name_of_run(run.id),
        "inputs": _inputs(run.input),
    }
    if run.input_messages:
        case["messages"] = to_json_data(run.input_messages)
    if run.decisions:
        case["decisions"] = [_decision(each) for each in run.decisions]
        last = run.decisions[-1]
        if run.status == "cancelled" and not last.approved:
            case["expect_error"] = ApprovalRejectedError.code
    _add_calls(case, events)
    return PastCase(run.component, case)


def _inputs(data: Any) -> str | JsonObject:
    if isinstance(data, str):
        return data
    if isinstance(data, Mapping):
        return to_json_data(data)
    if data is None:
        raise ConfigurationError(
            "What the run was asked is not known.",
            suggestion="Use a run that began with its first step, and a key that may see its inputs.",
        )
    raise ConfigurationError(
        "The run was asked with images or files, which the inputs of a case cannot have.",
        suggestion="Use a run whose input is a text or named inputs.",
    )


def _earlier_turns(run_id: str, events: Sequence[Event]) -> list[JsonObject]:
    """Return the turns before the run, which its first model call has."""
    for event in events:
        if isinstance(event, ModelCallStarted) and event.run_id == run_id:
            request = event.request
            turns = [each for each in request.messages if each.role != "system"]
            return to_data(turns[: request.history])
    return []


def _decision(decision: Decision) -> JsonObject:
    data: JsonObject = {"decision": decision.decision}
    if decision.comment:
        data["comment"] = decision.comment
    if decision.values:
        data["values"] = to_json_data(decision.values)
    return data


def _add_calls(case: JsonObject, events: Iterable[Event]) -> None:
    """Add the check that the calls of tools and functions are made again, if there are any."""
    calls: dict[tuple[Any, ...], Any] = {}
    for event in events:
        if isinstance(event, ToolCallStarted):
            # another attempt may have repeated it
            key = (event.run_id, event.path, event.call)
            calls[key] = _call(event)
    if calls:
        check = {"called": [*calls.values()], "order": "in order"}
        case["checks"] = [check]


def _call(event: ToolCallStarted) -> str | JsonObject:
    arguments = {
        name: value
        for name, value in as_object(event.arguments).items()
        if _is_literal(value)
    }
    if not arguments:
        return event.tool
    return {"tool": event.tool, "arguments": arguments}


def _is_literal(value: Any) -> bool:
    """Whether a value means itself in a check, whose texts are templates."""
    try:
        return fill_data(value, {}, "The check") == value
    except ContextError:
        return False


def record_answers(answers: RecordedAnswers, events: Iterable[Event]) -> int:
    """Record the answers of the models in a trace, so that the same calls need not be made again.

    Args:
        answers: Where they are recorded; those that are there already stay.
        events: The events of the trace.

    Returns:
        How many are new.
    """
    requests: dict[ModelCallKey, ModelRequest] = {}
    new = 0
    with answers.sample():
        for event in events:
            # a remote component has called its model itself
            if event.remote is not None:
                continue
            if isinstance(event, ModelCallStarted):
                # what a function has asked by itself is not known
                if not event.is_reported:
                    requests[model_call_key(event)] = event.request
            elif isinstance(event, ModelCallFinished):
                request = requests.get(model_call_key(event))
                if request is not None:
                    new += answers.record(
                        event.model, request, event.response, at=event.at
                    )
    return new
