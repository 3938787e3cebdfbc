"""A circuit breaker for models: one that has failed is not asked again for a while if another one can answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from podwright.models.base import Model

RECOVERY_TIME = 30.0
"""Seconds after a failure in which a model is passed over."""


@dataclass(slots=True)
class CircuitBreaker:
    """The circuits of all models of a process; models with another key or URL are others.

    A circuit is closed: the model is called. A failure opens it: the model is passed over. After `recovery_time` it is
    half open: one call tries the model, which closes the circuit or opens it again.
    """

    recovery_time: float = RECOVERY_TIME
    """Seconds that a circuit stays open."""
    clock: Callable[[], float] = time.monotonic
    _open_until: WeakKeyDictionary[Model, float] = field(
        default_factory=WeakKeyDictionary[Model, float]
    )

    def is_open(self, model: Model) -> bool:
        """Whether a model is to be passed over."""
        until = self._open_until.get(model)
        if until is None:
            return False
        return self.clock() < until

    def record_call(self, model: Model) -> None:
        """A model is called. If its circuit is half open, others pass it over until the end, or for `recovery_time`."""
        if model not in self._open_until:
            return
        if not self.is_open(model):
            self._open(model)

    def record_failure(self, model: Model) -> None:
        """A model could not answer: its circuit is open."""
        self._open(model)

    def record_success(self, model: Model) -> None:
        """A model has answered: its circuit is closed."""
        self._open_until.pop(model, None)

    def record_inconclusive(self, model: Model) -> None:
        """A call says nothing about its model: an open circuit is half open."""
        if model in self._open_until:
            self._open_until[model] = self.clock()

    def _open(self, model: Model) -> None:
        now = self.clock()
        self._open_until[model] = now + self.recovery_time


circuits = CircuitBreaker()
"""Those of this process."""
