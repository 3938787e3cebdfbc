"""Recorded answers that are paid from one budget, as fast as the providers allow."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path

from podwright.errors import (
    LimitExceededError,
    ModelError,
    ModelRateLimitError,
)
from podwright.messages.messages import ModelRequest, ModelResponse
from podwright.messages.usage import RunLimits, Usage
from podwright.models.base import Model, TokenCallback, noted_attempt
from podwright.models.recorded_answers import RecordedAnswers, Sample
from podwright.run.budget import Budget, CallReservation

DEFAULT_BUDGET = 1.0
"""USD that an evaluation may pay, if nobody says."""

_MOST_CALLS = 64
"""Calls of a provider at once, if it allows so many."""


class Pace:
    """How many calls a provider is sent at once: half as many after it has refused one, and slowly more again."""

    def __init__(self, most: int = _MOST_CALLS) -> None:
        self._most = most
        self._allowed: float = most
        self._running = 0
        self._changed = asyncio.Condition()

    @property
    def allowed(self) -> int:
        """How many calls may run at once."""
        return max(1, int(self._allowed))

    @asynccontextmanager
    async def call(self) -> AsyncGenerator[None]:
        """Wait until a call may be sent, and learn from its end."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._running < self.allowed)
            self._running += 1
        try:
            yield
        except ModelRateLimitError:
            self._allowed = max(1.0, self._running / 2)
            raise
        else:
            self._allowed = min(self._most, self._allowed + 1 / self.allowed)
        finally:
            self._running -= 1
            async with self._changed:
                self._changed.notify_all()


class PaidAnswers(RecordedAnswers):
    """Recorded answers of the runs of an evaluation: what is missing is paid from one budget.

    A call that may cost more than is left is not made. The budget cuts no answer, which would be measured as the
    model's. Calls of unknown price are made as long as something is left.

    Args:
        folder: The folder of the answers.
        budget: USD; None for any amount.
        fresh: Whether no answer is taken that was recorded before.
        max_age: Seconds after which a recorded answer is not taken any more; None takes all.
    """

    def __init__(
        self,
        folder: Path,
        budget: float | None,
        *,
        fresh: bool = False,
        max_age: float | None = None,
    ) -> None:
        super().__init__(folder)
        self._budget = Budget(RunLimits(cost=budget))
        self._paces: defaultdict[str, Pace] = defaultdict(Pace)
        self._not_before = 0.0
        if fresh:
            # answers of this evaluation are shared by its variants
            self._not_before = time.time()
        elif max_age is not None:
            self._not_before = time.time() - max_age

    def sample_of(
        self, payer: str, repeat: int
    ) -> AbstractContextManager[Sample]:
        """Count the model calls of the code within this context.

        Args:
            payer: The run, as a text.
            repeat: The number of its repetition.
        """
        return self.sample(
            repeat, max_age=time.time() - self._not_before, payer=payer
        )

    def count_elsewhere(self, sample: Sample, usage: Usage) -> None:
        """Count what a run has used whose models are called by a service."""
        sample.live += usage.model_calls
        sample.asked += usage.model_calls
        sample.pay(usage)
        self._budget.count(usage)

    def is_used_up(self) -> bool:
        """Whether nothing is left of the budget."""
        try:
            self._budget.check_left()
        except LimitExceededError:
            return True
        return False

    async def ask(
        self,
        model: Model,
        request: ModelRequest,
        on_token: TokenCallback | None,
        on_reasoning: TokenCallback | None,
    ) -> ModelResponse:
        """Ask a model, if the budget allows it; see `RecordedAnswers.ask`.

        Raises:
            LimitExceededError: It does not.
        """
        provider = model.name.partition("/")[0]
        async with self._paces[provider].call():
            await model.prepare()
            if model.cost(Usage(1, 1)) is None:
                # its price is unknown, or only its answers say it
                self._budget.check_left()
                response = await super().ask(
                    model, request, on_token, on_reasoning
                )
                self._budget.count(model.with_cost(response.usage))
                return response
            reservation = CallReservation([self._budget])
            async with reservation.hold(model, request) as allowed:
                if allowed is not request:
                    raise self._too_little_left(reservation)
                return await self._ask_within(
                    reservation, model, request, on_token, on_reasoning
                )

    async def _ask_within(
        self,
        reservation: CallReservation,
        model: Model,
        request: ModelRequest,
        on_token: TokenCallback | None,
        on_reasoning: TokenCallback | None,
    ) -> ModelResponse:
        try:
            response = await super().ask(model, request, on_token, on_reasoning)
        except ModelError as error:
            if error.attempt_usage is not None:
                reservation.use(model.with_cost(error.attempt_usage))
            raise
        except asyncio.CancelledError as error:
            used = noted_attempt(error)
            if used is not None:
                reservation.use(model.with_cost(used))
            raise
        reservation.use(model.with_cost(response.usage))
        return response

    def _too_little_left(
        self, reservation: CallReservation
    ) -> LimitExceededError:
        return LimitExceededError(
            "The next model call may cost more than is left of the evaluation's budget.",
            limit=reservation.limit or "cost",
            source=self._budget,
        )
