"""The start of a run: when it began, and for whom; each attempt of it, and all that is nested in it, has the same."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from time import time
from typing import TYPE_CHECKING

from podwright.data.json_data import JsonMapping, JsonObject
from podwright.functions.run_context import (
    NO_ATTRIBUTES,
    RunAttributes,
    current_attributes,
)

if TYPE_CHECKING:
    from podwright.events import RunStarted


@dataclass(frozen=True, slots=True)
class RunStart:
    """When the outermost run began, and what its caller said of it."""

    began: float = 0.0
    """Unix time in seconds."""
    attributes: RunAttributes = NO_ATTRIBUTES

    @classmethod
    def now(cls) -> RunStart:
        """The start of a run that begins here."""
        return cls(time(), current_attributes())

    @classmethod
    def of(cls, event: RunStarted) -> RunStart:
        """The start that the event of an outermost run tells."""
        attributes = RunAttributes(event.user, event.session, event.metadata)
        # events of older releases have no other time
        return cls(event.began or event.at, attributes)

    def or_else(self, other: RunStart) -> RunStart:
        """The same, with what is said in the other start if nothing is said in this one."""
        if self.attributes == NO_ATTRIBUTES:
            return replace(self, attributes=other.attributes)
        return self

    def to_dict(self) -> JsonObject:
        """The start as JSON data: the fields of the event `run_started`."""
        return {"began": self.began, **self.attributes.to_dict()}

    @classmethod
    def from_dict(cls, data: JsonMapping) -> RunStart:
        """Read what `to_dict` wrote.

        Raises:
            ConfigurationError, KeyError, OSError, OverflowError, TypeError, ValueError: The data is something else.
        """
        start = cls(
            float(data["began"]),
            RunAttributes(
                str(data.get("user", "")),
                str(data.get("session", "")),
                dict(data.get("metadata", {})),
            ),
        )
        start.check()
        return start

    def check(self) -> None:
        """Check what a caller has carried of a run.

        Raises:
            ConfigurationError, OSError, OverflowError, ValueError: It is no start that a run can have.
        """
        self.attributes.check()
        template_values(self.began, self.attributes)


def template_values(began: float, attributes: RunAttributes) -> JsonObject:
    """What templates read of a run.

    Args:
        began: When the outermost run began.
        attributes: What is said of the run.
    """
    moment = datetime.fromtimestamp(began, UTC)
    return {
        "date": moment.date().isoformat(),
        "time": f"{moment:%H:%M:%S}Z",
        "user": attributes.user,
        "session": attributes.session,
        "metadata": dict(attributes.metadata),
    }
