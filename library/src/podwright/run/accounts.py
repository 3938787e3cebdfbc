"""The accounts of a run: its usage, its limits and its time."""

from __future__ import annotations

import math
from collections.abc import Iterable
from time import perf_counter

from podwright.errors import LimitExceededError, PodwrightError
from podwright.messages.usage import NO_USAGE, RunLimits, Usage
from podwright.run.budget import Budget
from podwright.run.tree import RunTree

MAX_STEPS_PER_RUN = 100_000
"""Steps that one run may do, nested runs included: loops and maps inside each other multiply."""

MAX_TEXT_PER_RUN = 100_000_000
"""Characters of templates that one run may fill, nested runs included: a map may fill a long text for each item."""


class RunAccounts:
    """The usage, limits and time of one run.

    Args:
        tree: Counts the steps and texts of all runs of the tree.
        outer: The accounts of the run around it; None for the outermost run.
        limits: Limits of this run, besides those of the runs around it.
    """

    exceeded: LimitExceededError | None = None
    """The limit that a function of it has exceeded by what it reported."""

    def __init__(
        self,
        tree: RunTree,
        outer: RunAccounts | None,
        limits: Iterable[RunLimits],
    ) -> None:
        self._tree = tree
        self.outer = outer
        """The accounts of the run around it."""
        own_limits = tuple(limits)
        self.budgets: tuple[Budget, ...] = tuple(map(Budget, own_limits))
        """The limits that apply to it, outermost first."""
        if outer is not None:
            self.budgets = outer.budgets + self.budgets
        self.wall_time = _shortest_wall_time(own_limits)
        """Its own time limit in seconds."""
        self.usage = NO_USAGE
        """What it has used so far, nested runs included."""
        self.model_calls = 0
        """Model calls begun by this run itself."""
        self.tool_calls = 0
        """Tool calls of this run itself."""
        self.started = perf_counter()
        self._deadline = self._make_deadline()
        """When its own time is over, that of earlier attempts included; infinite without a limit."""

    def _make_deadline(self) -> float:
        if self.wall_time is None:
            return math.inf
        seconds = self.wall_time
        if self.outer is None:
            seconds -= self._tree.journal.seconds
        return self.started + max(0.0, seconds)

    @property
    def duration_ms(self) -> float:
        """Milliseconds since the start."""
        return milliseconds_since(self.started)

    @property
    def own_time_left(self) -> float | None:
        """Seconds until the time limit of this run; None without one."""
        if self.wall_time is None:
            return None
        return self._deadline - perf_counter()

    @property
    def time_left(self) -> float:
        """Seconds until the tightest time limit of this run and the runs around it; infinite without one."""
        own_time_left = self._deadline - perf_counter()
        if self.outer is None:
            return own_time_left
        return min(own_time_left, self.outer.time_left)

    def count_model_call(self) -> int:
        """Count a model call of this run itself, and return its number, from 0."""
        number = self.model_calls
        self.model_calls += 1
        return number

    def add_usage(self, usage: Usage) -> None:
        """Add usage to this run and to all runs around it."""
        accounts: RunAccounts | None = self
        while accounts is not None:
            accounts.usage += usage
            accounts = accounts.outer

    def count_usage(self, usage: Usage, failed_calls: int = 0) -> None:
        """Count usage in this run, in those around it, and against their limits.

        Args:
            usage: The usage of an earlier attempt, or of a call that a function reports.
            failed_calls: Model calls that failed: limits count them, and the reported usage does not have them.
        """
        self.add_usage(usage)
        for budget in self.budgets:
            budget.count(usage, failed_calls)

    def count_step(self) -> None:
        """Count a step.

        Raises:
            LimitExceededError: The outermost run has done `MAX_STEPS_PER_RUN` steps.
        """
        if self._tree.steps >= MAX_STEPS_PER_RUN:
            raise LimitExceededError(
                f"The run has done {MAX_STEPS_PER_RUN} steps, the maximum of one run.",
                limit="steps",
                suggestion="Lower max_iterations, or map over fewer items.",
            )
        self._tree.steps += 1

    def count_text(self, length: int) -> None:
        """Count the characters of a filled template.

        Raises:
            LimitExceededError: The outermost run has filled `MAX_TEXT_PER_RUN` of them.
        """
        self._tree.text += length
        if self._tree.text > MAX_TEXT_PER_RUN:
            raise LimitExceededError(
                f"The run has filled templates with {MAX_TEXT_PER_RUN} characters, the maximum of one run.",
                limit="text",
                suggestion="Map over fewer items, or let a step before shorten the text.",
            )

    def is_ended_by(self, error: PodwrightError) -> bool:
        """Whether an error of a run nested in this one also ends this one."""
        if isinstance(error, LimitExceededError):
            return not self._is_limit_of_inner_run(error)
        return error.ends_run

    def _is_limit_of_inner_run(self, error: LimitExceededError) -> bool:
        """Whether the limit applies to nested runs only, such as that of one step."""
        if error.source is None or error.source in self.budgets:
            return False
        accounts: RunAccounts | None = self
        while accounts is not None:
            if error.source is accounts:
                return False
            accounts = accounts.outer
        return True


def _shortest_wall_time(limits: Iterable[RunLimits]) -> float | None:
    seconds = [own.wall_time for own in limits if own.wall_time is not None]
    return min(seconds, default=None)


def milliseconds_since(started: float) -> float:
    """Milliseconds since a value of `time.perf_counter()`."""
    return round((perf_counter() - started) * 1000, 3)
