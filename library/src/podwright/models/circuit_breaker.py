"""A circuit breaker for models: one that has failed is not asked again for a while if another one can answer."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

RECOVERY_TIME = 30.0
"""Seconds after a failure in which a model is passed over."""


@dataclass(slots=True)
class CircuitBreaker:
    """The circuits of all models of a process, by name.

    A circuit is closed: the model is called. A failure opens it: the model is passed over. After `recovery_time` it is
    half open: one call tries the model, which closes the circuit or opens it again.
    """

    recovery_time: float = RECOVERY_TIME
    """Seconds that a circuit stays open."""
    clock: Callable[[], float] = time.monotonic
    _open_until: dict[str, float] = field(default_factory=dict[str, float])

    def is_open(self, model: str) -> bool:
        """Whether a model is to be passed over."""
        return self.clock() < self._open_until.get(model, -math.inf)

    def asks(self, model: str) -> None:
        """Take note that a call asks a model: if its circuit is half open, others pass it over until the call ends."""
        if model in self._open_until:
            self._open_until[model] = self.clock() + self.recovery_time

    def failed(self, model: str) -> None:
        """Open the circuit of a model that could not answer."""
        self._open_until[model] = self.clock() + self.recovery_time

    def succeeded(self, model: str) -> None:
        """Close the circuit of a model that has answered."""
        self._open_until.pop(model, None)


circuits = CircuitBreaker()
"""Those of this process."""
