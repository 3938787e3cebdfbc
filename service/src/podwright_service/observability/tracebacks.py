"""Tracebacks for the operator: of which errors they are, and what is left out of them."""

from __future__ import annotations

import sys
import traceback

from podwright.data.redaction import without_url_secrets
from podwright.errors import ConditionError, ToolError, help_page
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


def traceback_of(error: BaseException) -> str:
    """The traceback of an error and of its causes, without what may be secret in URLs."""
    return without_secrets("".join(traceback.format_exception(error)))


def without_secrets(text: str) -> str:
    """A text of a library or an exception, without what may be secret in URLs; links to the documentation stay."""
    return without_url_secrets(text, keep=help_page(""))
