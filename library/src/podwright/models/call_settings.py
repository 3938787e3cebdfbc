"""The settings of model calls, in place of the defaults of a model's class."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from podwright.models.base import Model
from podwright.settings import LibrarySettings

_TIMEOUTS = {
    "connect": "model_connect_timeout",
    "first_byte": "model_first_byte_timeout",
    "idle": "model_idle_timeout",
    "total": "model_timeout",
}
"""The settings by the field of `Timeouts`."""
_RETRIES = {
    "tries": "model_tries",
    "first_wait": "model_first_wait",
    "longest_wait": "model_longest_wait",
    "longest_retry_after": "model_longest_retry_after",
}
"""The settings by the field of `Retries`."""


def apply_call_settings(model: Model, settings: LibrarySettings) -> None:
    """Give a model the time-outs and retries that are set, and leave the others to its class."""
    timeouts = _set_values(settings, _TIMEOUTS)
    if timeouts:
        model.timeouts = replace(model.timeouts, **timeouts)
    retries = _set_values(settings, _RETRIES)
    if retries:
        model.retries = replace(model.retries, **retries)


def _set_values(
    settings: LibrarySettings, names: dict[str, str]
) -> dict[str, Any]:
    values = {field: getattr(settings, name) for field, name in names.items()}
    return {
        field: value for field, value in values.items() if value is not None
    }
