"""The end of a run that stops: what its caller is given to let it go on, and what the error says of the run.

There are two ways to go on. A *checkpoint* is the context of a workflow and the path of a step: the caller may edit it,
and the steps before are not performed again. A *replay* is the recorded events of a run that stops inside a chat, where
no step can resume: a new attempt performs it again from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from podwright.errors import ApprovalRequired, PodwrightError
from podwright.journal.saved_run import SAVED_RUN, SavedRun
from podwright.messages.approvals import ApprovalId

if TYPE_CHECKING:
    from podwright.run.run import Run, Task


@dataclass(slots=True)
class Checkpoint:
    """Where a stopped workflow can resume: the caller keeps it, and gives it to the run that goes on."""

    context: dict[str, Any]
    resume_path: list[int]


def end_with_error(run: Run, error: BaseException, task: Task) -> None:
    """Save a run that an error ends, add its id, usage, events and checkpoint to the error, and emit the event.

    Args:
        run: The run.
        error: The error, which its caller gets.
        task: What the run was to do.
    """
    _save_for_replay(run, error, task)
    if isinstance(error, PodwrightError):
        # keep the name of the innermost component
        error.component = error.component or run.component_name
        # run and checkpoint are those of the outermost run, which the caller knows
        error.run_id = run.id
        error.usage = run.usage
        error.events = run.traced_events
        error.context = None
        error.resume_path = None
        if run.checkpoint is not None:
            error.context = run.checkpoint.context
            # a component that is no workflow has no path
            error.resume_path = run.checkpoint.resume_path or None
    run.emit_error(error)


def _save_for_replay(run: Run, error: BaseException, task: Task) -> None:
    """Save an outermost run that stops where no step can resume, so that its caller can let it go on.

    It pauses inside a chat, or has gone on from there, and what a person has approved must not be done again.
    """
    asked: ApprovalId | None = None
    about: str | None = None
    needs_replay = task.saved is not None
    if isinstance(error, ApprovalRequired):
        error.needs_replay |= run.kind != "workflow"
        needs_replay = error.needs_replay and error.asked is not None
        asked = error.asked
        if error.question is not None:
            about = error.question.digest
    carried_events = run.journal.store.carried_events
    if run.parent is not None or carried_events is None or not needs_replay:
        return
    saved = SavedRun(
        run.id,
        given=task.given,
        asked=asked,
        about=about,
        events=tuple(carried_events),
        decisions=run.journal.decisions,
    )
    path: list[int] = []
    if run.checkpoint is not None:
        path = run.checkpoint.resume_path
    run.checkpoint = Checkpoint({SAVED_RUN: saved.to_dict()}, path)
