"""Moving a run to the served blueprint, if that is the same in all that the run has done already."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from podwright.blueprints import kind_of, walk_steps
from podwright.blueprints.diff import (
    Change,
    blueprint_changes,
    describe_values,
)
from podwright.blueprints.mcp_tools import all_mcp_tools
from podwright.data.json_data import (
    JsonMapping,
    as_array,
    as_object,
    copy_json,
)
from podwright.errors import (
    InputsError,
    PodwrightError,
    Problem,
    RunCancelledError,
)
from podwright.events import ToolCallFailed, adapter
from podwright.folders.walks import LOCKED, comparable_blueprint
from podwright.journal.call_record import is_reported_to_model
from podwright.kinds import TRAITS
from podwright.steps.registry import step_class
from podwright_service.background.caller_runs import CallerRuns, StoredRun
from podwright_service.background.worker import BackgroundWorker
from podwright_service.execution import task_of
from podwright_service.http.errors.problems import RequestError
from podwright_service.http.schemas import RunRequest

StepPath = tuple[int, ...]
"""The position of a step: its index in each list of steps around it."""
_WITHOUT_RESULT = (
    "run_started",
    "run_failed",
    "run_cancelled",
    "run_paused",
    "step_started",
    "model_call_failed",
    "model_call_retried",
    "model_call_fell_back",
)
"""Types of events that tell of nothing which a new attempt takes over."""
_TOOL_CALLS = ("tool_call_started", "tool_call_finished", "tool_call_failed")
"""Types of events of a tool call."""
_WENT_ON = ("ok", "exhausted", "caught")
"""The outcomes of a step after which the run went on."""
_MAY_CHANGE = ("description", "metadata", "limits")
"""Keys of a blueprint that describe, or limit what is still to be done."""


@dataclass(frozen=True, slots=True)
class Move:
    """A run that was moved, or may be."""

    run: StoredRun
    """The run as it is now."""
    changes: Sequence[Change]
    """All changes from the blueprint that it had to the served one."""
    is_done: bool = False
    """Whether it was moved now."""


async def move_run(
    worker: BackgroundWorker,
    own_runs: CallerRuns,
    run: StoredRun,
    *,
    caller: str,
    only_check: bool,
) -> Move | None:
    """Have a run go on with the served blueprint.

    Args:
        worker: The worker of the service.
        own_runs: The runs that the caller may change.
        run: The run, which no process performs.
        caller: Who moves it; empty if that has no name.
        only_check: Whether to find out only whether the run can be moved.

    Returns:
        The run; None if it has changed meanwhile.

    Raises:
        RequestError: 409: it cannot; with the changes that stand in the way.
    """
    if run["digest"] == worker.digest:
        return Move(run, ())
    old = await worker.blueprint(run["digest"])
    if old is None:
        raise _refusal(
            f"Its blueprint {run['digest']} is not known here, so nobody can tell what has changed.",
            suggestion="Put the blueprint into the folder PODWRIGHT_PREVIOUS of this service.",
        )
    new = comparable_blueprint(worker.component)
    events = await own_runs.events(run["id"])
    obstacles = _obstacles(run, (event for _, event in events), old, new)
    if obstacles:
        problems = [
            Problem(change.pointer, f"{change.op}: {describe_values(change)}")
            for change in obstacles
        ]
        raise _refusal(
            "The new blueprint differs in what the run has done already.",
            suggestion="Put its blueprint into the folder PODWRIGHT_PREVIOUS of this service to finish it with that, "
            "or cancel it.",
            problems=problems,
        )
    try:
        body = RunRequest.model_validate(run["request"]["body"])
        await task_of(worker.component, body)
    except InputsError as error:
        raise _refusal(
            error.message, error.suggestion, problems=error.problems
        ) from error
    except (PodwrightError, RequestError) as error:
        raise _refusal(str(error), "Start another run.") from error
    changes = blueprint_changes(old, new)
    if only_check:
        return Move(run, changes)
    moved = await own_runs.move(run, worker.digest, caller)
    if moved is None:
        return None
    worker.wake()
    return Move(moved.run, changes, is_done=True)


def _refusal(
    detail: str, suggestion: str, problems: Sequence[Problem] = ()
) -> RequestError:
    return RequestError(
        409,
        "run_not_movable",
        f"The run cannot be moved to the blueprint of this service. {detail}",
        suggestion=suggestion,
        problems=problems,
    )


def _obstacles(
    run: StoredRun,
    events: Iterable[Mapping[str, Any]],
    old: JsonMapping,
    new: JsonMapping,
) -> Sequence[Change]:
    """The changes of a blueprint because of which a run cannot go on with the new one.

    A new attempt performs the new blueprint, and takes over what the run has recorded by its position. So the steps up
    to the last one that has recorded something must be the same, except for the questions of approvals.

    Args:
        run: The row of the run.
        events: Its stored events.
        old: The blueprint that it has.
        new: The blueprint that it is to have.

    Returns:
        The changes; empty if it can.
    """
    recorded = set(_recorded_paths(run, events))
    if TRAITS[kind_of(old)].has_steps:
        # nothing is recorded of the run itself, only of its steps
        recorded.discard(())
    body: Mapping[str, Any] = run["request"]["body"]
    # the numbers of the request must lead to the same steps
    start = body.get("start_step", 0)
    if body.get("resume_path"):
        start = body["resume_path"][0]
    if not recorded and start == 0:
        return ()
    last = max((path[0] for path in recorded if path), default=start)
    return blueprint_changes(_begin(old, last), _begin(new, last))


def _recorded_paths(
    run: StoredRun, events: Iterable[Mapping[str, Any]]
) -> Iterator[StepPath]:
    """The positions for which a new attempt takes something over."""
    tool_calls: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    for event in events:
        path = tuple(event["path"])
        if event["type"] in _TOOL_CALLS:
            # how it ended last
            tool_calls[event["run_id"], path, event["call"]] = event
        elif _is_taken_over(event, run["status"]):
            yield path
    for event in tool_calls.values():
        if not _is_made_again(event):
            yield tuple(event["path"])
    questions = list(run["decisions"])
    if run["status"] == "waiting_for_approval":
        questions.append(run["approval"])
    for question in questions:
        yield tuple(question["path"])


def _is_made_again(event: Mapping[str, Any]) -> bool:
    """Whether a new attempt makes a tool call again, because it failed and no model was told.

    Args:
        event: Its last event.
    """
    ended = adapter().validate_python(event)
    if not isinstance(ended, ToolCallFailed) or ended.remote is not None:
        return False
    # what a call did that was cancelled is not known
    is_cancelled = ended.error.get("code") == RunCancelledError.code
    return not is_cancelled and not is_reported_to_model(ended)


def _is_taken_over(event: Mapping[str, Any], status: str) -> bool:
    if event["type"] == "step_finished":
        return event["outcome"] in _WENT_ON
    if event.get("remote") is not None:
        return True
    if event["type"] == "run_started" and event["parent_id"]:
        # what a nested run has begun in another container is known only once it has failed
        return status != "failed"
    return event["type"] not in _WITHOUT_RESULT


def _begin(blueprint: JsonMapping, last: int) -> dict[str, Any]:
    """The part of a blueprint that must stay the same.

    Args:
        blueprint: The blueprint.
        last: Index of the last step that must.
    """
    part: dict[str, Any] = copy_json(dict(blueprint))
    for key in _MAY_CHANGE:
        part.pop(key, None)
    if TRAITS[kind_of(blueprint)].has_steps:
        part["steps"] = as_array(part.get("steps"))[: last + 1]
        for _, step in walk_steps(part["steps"]):
            for key in step_class(step).keys_of_questions:
                step.pop(key, None)
    named = {f"{tool.server}/{tool.tool}" for tool in all_mcp_tools(part)}
    locked = as_object(part.get(LOCKED))
    part[LOCKED] = {name: locked[name] for name in locked if name in named}
    return part
