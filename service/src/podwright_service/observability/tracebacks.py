"""The errors whose traceback the operator needs: those of the component's own code."""

from __future__ import annotations

import sys

from podwright.errors import ConditionError, ToolError
from podwright.events import RunEvent, RunFailed, ToolCallFailed


def error_of_own_code(event: RunEvent) -> BaseException | None:
    """The error of a tool or a condition that an event reports, while a subscriber handles the event; else None.

    Errors of models are left out: the text of a provider's client may quote a key.
    """
    if event.remote is not None or not isinstance(
        event, RunFailed | ToolCallFailed
    ):
        return None
    error = sys.exception()
    if type(error) in (ToolError, ConditionError):
        return error
    return None
