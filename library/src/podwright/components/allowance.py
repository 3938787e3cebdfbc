"""What a model call may use of the budgets of its run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from podwright.budget import ASSUMED_OUTPUT_TOKENS, Budget, Reservation
from podwright.messages import ModelRequest, ModelSettings
from podwright.models import Model
from podwright.models.offline import estimate_input
from podwright.usage import NO_USAGE, Usage


@dataclass(slots=True)
class CallSlot:
    """A model call that the limits have counted, and that has no answer yet: its next attempt needs no further one."""

    is_open: bool = False


class Allowance:
    """What is held back for the attempts of one model.

    Args:
        budgets: The budgets of the run, outermost first.
        model: The model that is asked.
        slot: That of the call, which other models may have begun.
    """

    def __init__(
        self, budgets: Sequence[Budget], model: Model, slot: CallSlot
    ) -> None:
        self._budgets = budgets
        self._model = model
        self._slot = slot
        self._reservations: list[Reservation] = []
        self._used: Usage | None = None
        """What was used since the last reservation; None before a request was sent."""
        self._has_answer = False
        self._wanted = 0
        """Output tokens that the first attempt asked for; 0 before it was reserved."""

    @property
    def limit(self) -> str:
        """The limit that left the answer fewer tokens than were asked for; empty if none did."""
        for reservation in reversed(self._reservations):
            if reservation.limit:
                return reservation.limit
        return ""

    async def reserve(self, request: ModelRequest) -> ModelRequest:
        """Prepare the model, and hold back the worst case of a request.

        Returns:
            The request with the tokens that the tightest budget allows.

        Raises:
            LimitExceededError: Not even one output token is left, or no call.
        """
        await self._model.prepare()
        if not self._budgets:
            return request
        asked = request.settings.get("max_tokens")
        if not self._wanted:
            self._wanted = asked or self._default_output_tokens()
        allowed = await self._reserve_in_all(request)
        if allowed == (asked or self._wanted):
            return request
        settings: ModelSettings = {**request.settings, "max_tokens": allowed}
        return replace(request, settings=settings)

    def _default_output_tokens(self) -> int:
        return self._model.max_output_tokens() or ASSUMED_OUTPUT_TOKENS

    async def _reserve_in_all(self, request: ModelRequest) -> int:
        """Reserve in each budget what the ones before it allow; returns the output tokens that all of them allow."""
        input_tokens = estimate_input(request)
        allowed = self._wanted
        calls = 1
        if self._slot.is_open:
            calls = 0
        for budget in self._budgets:
            reservation = await budget.reserve(
                input_tokens, allowed, self._model.cost, calls=calls
            )
            self._reservations.append(reservation)
            allowed = reservation.output_tokens
        return allowed

    async def renew(self, request: ModelRequest) -> ModelRequest:
        """Count an attempt that was made in vain, and hold back the worst case of the next one; see `reserve`."""
        self.settle()
        return await self.reserve(request)

    def begin(self) -> None:
        """A request is sent."""
        self._used = NO_USAGE

    def use(self, usage: Usage) -> None:
        """An attempt is over, and has used this; one of which nothing has arrived does not count as an answer."""
        if self._used is not None:
            self._used += usage
        else:
            self._used = usage
        if not usage.uncounted_model_calls or usage.output_tokens > 0:
            self._has_answer = True

    def settle(self) -> None:
        """Release what is held back, and count what was used: a call for each answer, and one if there is none."""
        # of some budgets nothing may be held back yet
        for budget, reservation in zip(
            self._budgets, self._reservations, strict=False
        ):
            budget.settle(reservation, self._used, reservation.calls)
        if self._used is not None:
            self._slot.is_open = not self._has_answer
        self._reservations.clear()
        self._used = None
        self._has_answer = False
