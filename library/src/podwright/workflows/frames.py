"""Where a step of a running workflow stands: the context that it sees, its progress, and its position."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from podwright.blueprints.inputs import DeclaredInputs
from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_object,
    to_text,
)
from podwright.messages.approvals import Decision
from podwright.steps.loop_step import ITERATION
from podwright.steps.try_step import ERROR
from podwright.workflows.resume import SequenceProgress, StepProgress
from podwright.workflows.turn import TURN, AgentAnswer

Path = tuple[int, ...]

DECISIONS = "_decisions"
"""Name in the context under which decisions are kept, by the names of their steps; templates read them."""
EDITS = "_edits"
"""Name in what a part has written under which the values are that people have changed."""


@dataclass(frozen=True, slots=True)
class Decided:
    """What a person has decided who lets a stopped run go on."""

    path: Path
    """The approval step."""
    decision: Decision

    def on(self, path: Path) -> Decision | None:
        """The decision, if it is about the step at a path."""
        if self.path != path:
            return None
        return self.decision

    def below(self, path: Path) -> Decided:
        """The same as seen from the workflow around the one that is at a path."""
        return Decided((*path, *self.path), self.decision)

    def inside(self, path: Path) -> Decided | None:
        """The same as seen from the workflow inside the step at a path; None if the decision is about another step."""
        if self.path[: len(path)] != path:
            return None
        return Decided(self.path[len(path) :], self.decision)


class Scope:
    """The context as a sequence of steps sees it, and what the sequence wrote.

    Args:
        context: The context, which the sequence changes.
        written: What the sequence wrote before, and what it writes is added; None for nothing.
        iteration: Number of the iteration of the innermost loop, from 1; None outside of loops.
        error: What failed, in the `catch` of a try step; None outside.
    """

    def __init__(
        self,
        context: JsonObject,
        written: JsonObject | None = None,
        iteration: int | None = None,
        error: JsonMapping | None = None,
    ) -> None:
        self.context = context
        self.written: JsonObject = {}
        if written is not None:
            self.written = written
        self.iteration = iteration
        self.error = error

    @property
    def shown(self) -> JsonObject:
        """What agents and functions are given: the context, and what failed."""
        if self.error is None:
            return self.context
        return {**self.context, ERROR: self.error}

    @property
    def values(self) -> JsonMapping:
        """What templates read: what is shown, and the number of the iteration if the context lacks that name."""
        decisions = as_object(self.context.get(DECISIONS))
        loop_values: JsonObject = {}
        if self.iteration is not None:
            loop_values[ITERATION] = self.iteration
        if not decisions and not loop_values:
            return self.shown
        return ChainMap(decisions, self.shown, loop_values)

    def in_iteration(self, number: int) -> Scope:
        """The same context inside an iteration of a loop."""
        return Scope(self.context, self.written, number, error=self.error)

    def after_failure(self, error: JsonMapping) -> Scope:
        """The same context inside the `catch` of a try step."""
        return Scope(self.context, self.written, self.iteration, error=error)

    def part(self, own_values: JsonMapping, written: JsonObject) -> Scope:
        """A copy of the context for one of several sequences that run at once.

        Args:
            own_values: Values that only this sequence sees.
            written: What the sequence has written before, and will write.
        """
        edits = as_object(written.get(EDITS))
        context = {**self.context, **own_values, **written, **edits}
        context.pop(EDITS, None)
        decisions = as_object(self.context.get(DECISIONS))
        own_decisions = as_object(written.get(DECISIONS))
        if decisions or own_decisions:
            context[DECISIONS] = {**decisions, **own_decisions}
        return Scope(context, written, self.iteration, error=self.error)

    async def complete(self, inputs: DeclaredInputs) -> None:
        """Put the defaults of declared inputs in front of the context, which may have any other names.

        The event loop stays free while the values are checked.

        Raises:
            InputsError: A declared input is missing or has a wrong value.
        """
        given = dict(self.context)
        complete = await inputs.complete_in_thread(given, also_known=given)
        missing = {
            name: value for name, value in complete.items() if name not in given
        }
        for name in reversed(missing):
            _put_first(self.context, name, missing[name])

    def write(
        self, key: str, value: Any, turn: JsonMapping | None = None
    ) -> None:
        """Put a value at the end of the context: the last one is the answer of the workflow.

        Args:
            key: Its name.
            value: The value.
            turn: How an agent has come to it; see `podwright.workflows.turn`.
        """
        for values in (self.context, self.written):
            _put_last(values, key, value)
            values.pop(TURN, None)
            if turn:
                values[TURN] = turn
            for hidden in (DECISIONS, EDITS):
                earlier = as_object(values.get(hidden))
                if key in earlier:
                    values[hidden] = _without(earlier, key)

    def write_answer(self, key: str, answer: AgentAnswer) -> None:
        """Put the answer of an agent at the end of the context, with its turn if that says more."""
        turn: JsonObject | None = None
        if answer.messages or answer.finish_reason != "stop":
            turn = {
                "output": key,
                "text": to_text(answer.value),
                "messages": answer.messages,
                "finish_reason": answer.finish_reason,
            }
        self.write(key, answer.value, turn)

    def edit(self, key: str, value: Any) -> None:
        """Give a name of the context the value that a person has chosen, in its place."""
        self.context[key] = value
        if key in self.written:
            # an output of this sequence, of which it is the value now
            self.written[key] = value
            return
        edits = as_object(self.written.get(EDITS))
        self.written[EDITS] = {**edits, key: value}

    def write_decision(
        self, name: str, decision: JsonMapping, *, is_shown: bool
    ) -> None:
        """Write what a person has decided, in front: it is not the answer of the workflow.

        The name of a step that only asks is a label: if the context has a value of that name, it stays.

        Args:
            name: The name of the approval step.
            decision: The decision and the comment.
            is_shown: Whether it is a part of the context in any case; if not, only with a comment.
        """
        earlier = as_object(self.context.get(DECISIONS))
        if name in self.context and name not in earlier and not is_shown:
            return
        has_comment = bool(decision.get("comment"))
        is_shown = is_shown or has_comment or name in self.context
        for values in (self.context, self.written):
            known = as_object(values.get(DECISIONS))
            _put_first(values, DECISIONS, {**known, name: decision})
            if is_shown:
                _put_first(values, name, decision)

    def write_all(
        self, written: JsonMapping, leave_out: Collection[str] = ()
    ) -> None:
        """Write what a part of the step has written: decisions in front, edits in place, outputs at the end.

        Args:
            written: What the part has written.
            leave_out: Names of outputs and decisions that are not written.
        """
        decisions = as_object(written.get(DECISIONS))
        for name, decision in decisions.items():
            if name not in leave_out:
                self.write_decision(
                    name, as_object(decision), is_shown=name in written
                )
        edits = as_object(written.get(EDITS))
        for name, value in edits.items():
            self.edit(name, value)
        turn = as_object(written.get(TURN))
        for name, value in written.items():
            is_output = name not in (DECISIONS, EDITS, TURN, *leave_out)
            if is_output and name not in decisions:
                own_turn = turn if turn.get("output") == name else None
                self.write(name, value, own_turn)

    @staticmethod
    def edited_names(written: JsonMapping) -> set[str]:
        """Return the names whose values people have changed in a part, given what it has written."""
        return set(as_object(written.get(EDITS)))


def _without(values: JsonObject, key: str) -> JsonObject:
    return {name: value for name, value in values.items() if name != key}


def _put_first(values: JsonObject, key: str, value: Any) -> None:
    others = {name: value for name, value in values.items() if name != key}
    values.clear()
    values[key] = value
    values.update(others)


def _put_last(values: JsonObject, key: str, value: Any) -> None:
    values.pop(key, None)
    values[key] = value


@dataclass(frozen=True, slots=True)
class StepFrame:
    """Where a step stands."""

    scope: Scope
    progress: StepProgress
    """Updated in place."""
    path: Path
    """The position of the step."""

    def sequence(
        self, number: int | None = None, scope: Scope | None = None
    ) -> SequenceFrame:
        """The frame of the sequence inside the step.

        Args:
            number: The number of the branch, the iteration or the attempt; None for steps that have one sequence.
            scope: The context of the sequence; by default that of the step.
        """
        path = self.path
        if number is not None:
            path = (*path, number)
        return SequenceFrame(
            scope or self.scope, self.progress.setdefault("in", {}), path
        )

    def part(self, number: int, own_values: JsonMapping) -> SequenceFrame:
        """The frame of a sequence inside the step that works on its own copy of the context.

        Args:
            number: Its number among those of the step.
            own_values: Values that only this sequence sees.
        """
        parts = self.progress.setdefault("parts", {})
        part = parts.setdefault(str(number), {})
        scope = self.scope.part(own_values, part.setdefault("set", {}))
        progress = part.setdefault("in", {})
        return SequenceFrame(scope, progress, (*self.path, number))


@dataclass(frozen=True, slots=True)
class SequenceFrame:
    """Where a sequence of steps stands."""

    scope: Scope
    progress: SequenceProgress
    """Updated in place."""
    path: Path
    """The position of the sequence."""

    def step(self, index: int) -> StepFrame:
        """The frame of one of its steps."""
        inner = self.progress.setdefault("in", {})
        return StepFrame(self.scope, inner, (*self.path, index))
