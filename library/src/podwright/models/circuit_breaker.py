"""A circuit breaker for models: one that has failed is not asked again for a while if another one can answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from podwright import errors
from podwright.models.base import Model

RECOVERY_TIME = 30.0
"""Seconds after a failure in which a model is passed over."""


NO_ANSWER = (
    errors.ModelAuthenticationError,
    errors.ModelConnectionError,
    errors.ModelRateLimitError,
    errors.ModelResponseError,
    errors.ModelTimeoutError,
    errors.ModelUnavailableError,
)
"""After these another model may answer; it would refuse the same content or request as well."""


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

    @contextmanager
    def record(self, model: Model) -> Generator[None]:
        """Record how a call of a model ends, which is made while the context is open.

        If the circuit is half open, other calls pass the model over until the end, or for `recovery_time`.
        """
        if model in self._open_until and not self.is_open(model):
            self._open(model)
        try:
            yield
        except BaseException as error:
            self._record_error(model, error)
            raise
        self._close(model)

    def _record_error(self, model: Model, error: BaseException) -> None:
        """Record what the error of a call says of its model."""
        if not isinstance(error, errors.ModelError) or _is_due_to_request(
            error
        ):
            self._half_open(model)
        elif isinstance(error, NO_ANSWER):
            self._open(model)
        else:
            # to refuse a request or its content, the model must have been reached
            self._close(model)

    def _half_open(self, model: Model) -> None:
        if model in self._open_until:
            self._open_until[model] = self.clock()

    def _close(self, model: Model) -> None:
        self._open_until.pop(model, None)

    def _open(self, model: Model) -> None:
        now = self.clock()
        self._open_until[model] = now + self.recovery_time


def _is_due_to_request(error: errors.ModelError) -> bool:
    """Whether an error may be due to the request, such as an answer that cannot be read, or a short time limit."""
    if isinstance(error, errors.ModelTimeoutError):
        return error.is_limit_of_call
    return isinstance(error, errors.ModelResponseError)


circuits = CircuitBreaker()
"""Those of this process."""
