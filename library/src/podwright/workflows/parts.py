"""Sequences of steps that run at once: the branches of a parallel step, or the steps for each item of a map."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING

from podwright.data.json_data import JsonMapping, JsonObject
from podwright.errors import ApprovalRequired
from podwright.run.tasks import gather_or_cancel
from podwright.workflows.frames import SequenceFrame, StepFrame

if TYPE_CHECKING:
    from podwright.steps.base import Steps

    RunSequence = Callable[[Steps, SequenceFrame], Awaitable[None]]
    """Runs the steps of a sequence."""


class Parts:
    """Sequences of steps that run at once, each on its own copy of the context.

    A failure cancels the others; an approval step lets them go on to their own end or pause.

    Args:
        run_sequence: Runs one of them.
        frame: The step that they are parts of; its context is not changed.
    """

    def __init__(self, run_sequence: RunSequence, frame: StepFrame) -> None:
        self._run_sequence = run_sequence
        self._frame = frame
        self._sequences: list[Steps] = []
        self._own_values: list[JsonMapping] = []
        self._written: dict[int, JsonObject] = {}
        self._finished: set[int] = set()
        self._failed: dict[int, Exception] = {}
        self._paused: dict[int, ApprovalRequired] = {}
        """The first pause: its message may be long, and the others are asked later."""
        self._needs_replay = False
        """Whether one of them paused where only its replay can go on."""

    def add(self, sequence: Steps, own_values: JsonMapping) -> None:
        """Add a sequence, and the values that only its steps see."""
        self._sequences.append(sequence)
        self._own_values.append(own_values)

    async def run(self, concurrency: int) -> list[JsonObject]:
        """Run the sequences, so many at once; returns what each of them wrote."""
        progress = self._frame.progress
        progress.setdefault("at", 0)
        progress.setdefault("parts", {})
        numbers = range(len(self._sequences))
        waiting = iter(numbers)
        workers = min(concurrency, len(numbers))
        try:
            # each error is in `_failed`: that of the first sequence is raised below
            with contextlib.suppress(Exception):
                await gather_or_cancel(
                    self._work(waiting) for _ in range(workers)
                )
        finally:
            progress["at"] = self._first_unfinished()
        stopped = self._failed or self._paused
        if stopped:
            first = min(stopped)
            progress["at"] = first
            error = stopped[first]
            if isinstance(error, ApprovalRequired) and self._needs_replay:
                error.needs_replay = True
            raise error
        return [self._written[number] for number in numbers]

    async def _work(self, waiting: Iterator[int]) -> None:
        for number in waiting:
            try:
                await self._run_part(number)
                self._finished.add(number)
            except ApprovalRequired as pause:
                self._keep_first_pause(number, pause)
            except Exception as error:
                self._failed[number] = error
                raise

    async def _run_part(self, number: int) -> None:
        frame = self._frame.part(number, self._own_values[number])
        self._written[number] = frame.scope.written
        await self._run_sequence(self._sequences[number], frame)

    def _keep_first_pause(self, number: int, pause: ApprovalRequired) -> None:
        self._needs_replay = self._needs_replay or pause.needs_replay
        if not self._paused or number < min(self._paused):
            self._paused = {number: pause}

    def _first_unfinished(self) -> int:
        """The number of the first sequence that has not finished; 0 if all have."""
        for number in range(len(self._sequences)):
            if number not in self._finished:
                return number
        return 0
