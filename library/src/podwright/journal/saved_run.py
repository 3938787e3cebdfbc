"""A run that waits for a person inside a tool call, as JSON data that its caller keeps.

A workflow that pauses between its steps is saved as a context and a path. A chat that pauses has no such place: what
it has done so far is saved, and a new attempt of the run performs it again from that, as a background run does from
its journal. If that attempt fails, it is saved too: what persons have decided, and what was called then, holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from podwright import events
from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_array,
    as_object,
    to_json_data,
)
from podwright.errors import ConfigurationError, InputError
from podwright.events import Event, adapter
from podwright.functions.run_start import RunStart
from podwright.journal.journal import Journal, JournalStore
from podwright.messages.approvals import ApprovalId, Decision

SAVED_RUN = "_run"
"""Name in the context of a stopped run under which it is saved."""

_RUN_ID = re.compile(r"[0-9a-f]{32}")
_NOT_NEEDED = (
    events.Token,
    events.Reasoning,
    events.ModelCallStarted,
    events.Progress,
)


class ContextStore(JournalStore):
    """Keeps the events of a run for its context, which the caller carries if the run stops.

    Args:
        recorded: The events of earlier attempts.
    """

    def __init__(self, recorded: Iterable[Event] = ()) -> None:
        self._events = list(recorded)

    @property
    def carried_events(self) -> Sequence[Event]:
        """The events of all attempts so far."""
        return self._events

    def add(self, event: Event) -> None:
        """Keep an event if a new attempt needs it."""
        if not isinstance(event, _NOT_NEEDED):
            self._events.append(event)


@dataclass(frozen=True, slots=True)
class SavedRun:
    """What a run has done before it stopped."""

    run_id: str
    given: JsonMapping
    """What its task was made from; see `Task.given`."""
    asked: ApprovalId | None
    """The place of the question that it waits for; None if it failed or was cancelled."""
    about: str | None = None
    """Digest of that question; None in states of older releases."""
    events: tuple[Event, ...] = ()
    decisions: Mapping[ApprovalId, Decision] = field(
        default_factory=dict[ApprovalId, Decision]
    )
    """Earlier decisions."""

    def journal(self) -> Journal:
        """The journal for the attempt that goes on, whose events are carried too."""
        return Journal(
            self.events, self.decisions, store=ContextStore(self.events)
        )

    def with_decision(self, decision: Decision) -> SavedRun:
        """The same run with the decision that it waits for, if it does."""
        if self.asked is None:
            return self
        decision = replace(decision, about=self.about)
        return replace(self, decisions={**self.decisions, self.asked: decision})

    def to_dict(self) -> JsonObject:
        """The run as JSON data."""
        decisions = [
            {
                **about_call.to_dict(),
                **decision.to_dict(),
                "about": decision.about,
            }
            for about_call, decision in self.decisions.items()
        ]
        asked: JsonObject | None = None
        if self.asked is not None:
            asked = self.asked.to_dict()
        return {
            "run_id": self.run_id,
            "given": to_json_data(dict(self.given)),
            "asked": asked,
            "about": self.about,
            "events": [event.to_dict() for event in self.events],
            "decisions": decisions,
        }

    @classmethod
    def from_dict(cls, data: object) -> SavedRun:
        """Read what `to_dict` wrote.

        Raises:
            InputError: The data is something else.
        """
        saved = as_object(data)
        try:
            recorded = [
                adapter().validate_python(event)
                for event in as_array(saved.get("events"))
            ]
            for event in recorded:
                if isinstance(event, events.RunStarted):
                    RunStart.of(event).check()
            decisions: dict[ApprovalId, Decision] = {}
            for entry in map(as_object, as_array(saved.get("decisions"))):
                decision = Decision(
                    decision=str(entry["decision"]),
                    comment=str(entry["comment"]),
                    values=as_object(entry.get("values")),
                    about=_text_or_none(entry.get("about")),
                )
                decisions[ApprovalId.from_dict(entry)] = decision
            asked: ApprovalId | None = None
            if saved["asked"] is not None:
                asked = ApprovalId.from_dict(as_object(saved["asked"]))
            return cls(
                run_id=_checked_id(saved["run_id"]),
                given=as_object(saved["given"]),
                asked=asked,
                about=_text_or_none(saved.get("about")),
                events=tuple(recorded),
                decisions=decisions,
            )
        except (
            ConfigurationError,
            KeyError,
            OSError,
            OverflowError,
            TypeError,
            ValueError,
        ) as error:
            raise InputError(
                f"Expected the state of a paused run under '{SAVED_RUN}' of the context.",
                suggestion="Use the `context` of the error that paused the run, unchanged.",
            ) from error


def _checked_id(run_id: object) -> str:
    if not isinstance(run_id, str) or not _RUN_ID.fullmatch(run_id):
        raise ValueError("a run has an id of 32 hexadecimal digits")
    return run_id


def _text_or_none(value: object) -> str | None:
    if value is None:
        return None
    return str(value)
