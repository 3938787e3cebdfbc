"""The emitter of a run: every fact leaves the run as an event, for each of its subscribers."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from time import perf_counter, time
from typing import Any

from podwright import events
from podwright.data.json_data import to_json_data
from podwright.errors import (
    ApprovalRejectedError,
    ApprovalRequired,
    PodwrightError,
    Refusal,
    RunCancelledError,
)
from podwright.events import Event, Outcome, Subscriber
from podwright.kinds import Kind
from podwright.location import ToolCallId
from podwright.messages.usage import RunLimits
from podwright.run.accounts import RunAccounts, milliseconds_since
from podwright.run.tree import RunTree

logger = logging.getLogger("podwright")


@dataclass(slots=True)
class StepResult:
    """The outcome of a step that did not raise."""

    outcome: Outcome = "ok"


class RunEvents(RunAccounts):
    """The events of one run, which tell its identity and, at its end, its accounts.

    Args:
        tree: Numbers the events of all runs of the tree.
        outer: The accounts of the run around it; None for the outermost run.
        limits: See `RunAccounts`.
        run_id: Its id.
        parent_id: The id of the run around it.
        component_name: The name of its component.
        kind: The kind of its component.
        path: Its position in the outermost workflow.
        tool_call: The tool call of the run around it that it is part of.
        subscribers: Who gets its events.
    """

    data: Any = None
    """The result as JSON data if it is more than texts: a structured answer, or the context of a workflow."""
    finish_reason: str = "stop"
    """How the answer ended; see `ExecutionResult.finish_reason`."""

    def __init__(
        self,
        tree: RunTree,
        outer: RunAccounts | None,
        limits: Iterable[RunLimits],
        *,
        run_id: str,
        parent_id: str | None,
        component_name: str,
        kind: Kind,
        path: tuple[int, ...],
        tool_call: ToolCallId | None,
        subscribers: tuple[Subscriber, ...],
    ) -> None:
        super().__init__(tree, outer, limits)
        self.id = run_id
        """32 hexadecimal digits; those of a nested run follow from the id of the run around it and the sibling key."""
        self.component_name = component_name
        self.kind: Kind = kind
        self.path = path
        """Its position in the outermost workflow."""
        self.subscribers = subscribers
        self.journal = tree.journal
        """What earlier attempts of the outermost run did."""
        self.recorded = self.journal.of(run_id)
        """What earlier attempts of this run did; empty if there were none."""
        self._parent_id = parent_id
        self._tool_call = tool_call

    def stamp(self, path: tuple[int, ...] | None = None) -> dict[str, Any]:
        """The common fields for an event that is emitted now; takes the next sequence number.

        Args:
            path: Where it happens; by default the run's own position.
        """
        if path is None:
            path = self.path
        return {
            "seq": next(self._tree.sequence),
            "at": time(),
            "run_id": self.id,
            "parent_id": self._parent_id,
            "component": self.component_name,
            "kind": self.kind,
            "path": path,
        }

    def emit(self, event: Event) -> None:
        """Deliver an event to every subscriber; one that raises is logged and gets no more events of this run."""
        if self.journal.of(event.run_id).was_emitted(event):
            return
        failed = self._tree.failed_subscribers
        for subscriber in self.subscribers:
            if failed and id(subscriber) in failed:
                continue
            try:
                subscriber(event)
            except Exception as error:
                failed.add(id(subscriber))
                # only a bug needs a traceback; a full disk or a closed pipe does not
                is_bug = not isinstance(error, OSError)
                logger.error(
                    "A subscriber of run %s gets no more events: %r",
                    self.id,
                    error,
                    exc_info=is_bug,
                )

    def relay(self, event: Event, remote: str) -> None:
        """Deliver an event of a remote component as part of this run, unless an earlier attempt did.

        Args:
            event: The event as the remote emitted it.
            remote: Name of the remote component.
        """
        if self.journal.of(event.run_id).take_relayed(event):
            return
        relayed = dataclasses.replace(
            event,
            seq=next(self._tree.sequence),
            parent_id=event.parent_id or self.id,
            path=self.path + event.path,
            remote=remote,
        )
        self.emit(relayed)

    @contextlib.contextmanager
    def step(
        self, name: str, step_type: str, path: tuple[int, ...]
    ) -> Generator[StepResult]:
        """Emit the start and the end of a step. The body may set `StepResult.outcome`, for `StepFinished`.

        Raises:
            LimitExceededError: The outermost run has done `MAX_STEPS_PER_RUN` steps.
        """
        self.count_step()
        result = StepResult()
        if self.recorded.is_step_finished(path, name):
            yield result
            return
        self.emit(
            events.StepStarted(
                **self.stamp(path), step=name, step_type=step_type
            )
        )
        outcome: Outcome = "failed"
        started = perf_counter()
        try:
            yield result
            outcome = result.outcome
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        except ApprovalRequired:
            outcome = "paused"
            raise
        except ApprovalRejectedError:
            outcome = "rejected"
            raise
        except Refusal:
            outcome = "refused"
            raise
        finally:
            finished = events.StepFinished(
                **self.stamp(path),
                step=name,
                step_type=step_type,
                outcome=outcome,
                duration_ms=milliseconds_since(started),
            )
            self.emit(finished)

    def emit_start(self, data: Any) -> None:
        """Emit the start of the run with its input."""
        start: dict[str, Any] = {}
        if self._parent_id is None:
            start = self._tree.start.to_dict()
        started = events.RunStarted(
            **self.stamp(), input=_to_trace_data(data), **start
        )
        self.emit(started)

    def emit_value(self, value: Any) -> None:
        """Emit the end of the run with its value."""
        finished = events.RunFinished(
            **self._end_stamp(),
            value=_to_trace_data(value),
            data=self.data,
            finish_reason=self.finish_reason,
        )
        self.emit(finished)

    def emit_error(self, error: BaseException) -> None:
        """Emit the end of the run with an error, which has its usage and its checkpoint."""
        stamp = self._end_stamp()
        if not isinstance(error, PodwrightError):
            details = {
                "code": "internal_error",
                "message": type(error).__name__,
            }
            self.emit(events.RunFailed(**stamp, error=details))
            return
        resume_path: tuple[int, ...] | None = None
        if error.resume_path is not None:
            resume_path = tuple(error.resume_path)
        match error:
            case RunCancelledError():
                event = events.RunCancelled(
                    **stamp, context=error.context, resume_path=resume_path
                )
            case ApprovalRequired(message=message):
                question: dict[str, Any] = {}
                if error.question is not None:
                    question = to_json_data(error.question.to_dict())
                event = events.RunPaused(
                    **stamp,
                    message=message,
                    question=question,
                    context=error.context,
                    resume_path=resume_path,
                )
            case _:
                event = events.RunFailed(**stamp, error=error.to_dict())
        self.emit(event)

    def _end_stamp(self) -> dict[str, Any]:
        """The common fields of the event that ends this run."""
        tool_call: int | None = None
        if self._tool_call is not None:
            tool_call = self._tool_call.number
        return {
            **self.stamp(),
            "usage": self.usage,
            "duration_ms": self.duration_ms,
            "tool_call": tool_call,
        }


def _to_trace_data(value: Any) -> Any:
    """A value as the trace shows it; one that has no JSON form is named by its type."""
    try:
        return to_json_data(value)
    except (ValueError, RecursionError):
        return f"({type(value).__name__}, not JSON)"
