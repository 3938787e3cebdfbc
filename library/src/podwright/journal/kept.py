"""What a workflow that is stopped between its steps keeps of its run, beside its context and its progress."""

from __future__ import annotations

from dataclasses import dataclass, field

from podwright.data.json_data import JsonObject, as_object
from podwright.errors import ConfigurationError, InputError
from podwright.functions.run_start import RunStart

KEPT = "_kept"
"""Name in the context of a stopped workflow under which it is kept."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The start and the state of a run that was stopped."""

    start: RunStart
    state: JsonObject = field(default_factory=dict[str, "object"])

    def to_dict(self) -> JsonObject:
        """The same as JSON data."""
        return {"start": self.start.to_dict(), "state": self.state}

    @classmethod
    def from_dict(cls, data: object) -> Kept:
        """Read what `to_dict` wrote.

        Raises:
            InputError: The data is something else.
        """
        kept = as_object(data)
        try:
            start = RunStart.from_dict(kept["start"])
            state = as_object(kept["state"])
            if state is not kept["state"]:
                raise TypeError("a state has values by name")
            return cls(start, state)
        except (
            ConfigurationError,
            KeyError,
            OSError,
            OverflowError,
            TypeError,
            ValueError,
        ) as error:
            raise InputError(
                f"Expected what a stopped run has kept under '{KEPT}' of the context.",
                suggestion="Use the `context` of the error that stopped the run, unchanged.",
            ) from error
