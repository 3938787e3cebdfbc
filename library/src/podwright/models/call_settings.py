"""What the environment sets of model calls, in place of the defaults: time-outs, retries, unknown finish reasons."""

from __future__ import annotations

import os
from dataclasses import fields, replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from podwright.errors import ConfigurationError
from podwright.models.base import Model
from podwright.models.retries import Retries, Timeouts
from podwright.validation_errors import to_problems

_Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Wait = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class CallSettings(BaseModel):
    """The values of the variables; those in `Timeouts` and `Retries` have the names there, and are None if not set."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    connect: _Seconds | None = Field(
        default=None, alias="PODWRIGHT_MODEL_CONNECT_TIMEOUT"
    )
    first_byte: _Seconds | None = Field(
        default=None, alias="PODWRIGHT_MODEL_FIRST_BYTE_TIMEOUT"
    )
    idle: _Seconds | None = Field(
        default=None, alias="PODWRIGHT_MODEL_IDLE_TIMEOUT"
    )
    total: _Seconds | None = Field(
        default=None, alias="PODWRIGHT_MODEL_TIMEOUT"
    )
    tries: Annotated[int, Field(ge=1)] | None = Field(
        default=None, alias="PODWRIGHT_MODEL_TRIES"
    )
    first_wait: _Wait | None = Field(
        default=None, alias="PODWRIGHT_MODEL_FIRST_WAIT"
    )
    longest_wait: _Wait | None = Field(
        default=None, alias="PODWRIGHT_MODEL_LONGEST_WAIT"
    )
    longest_retry_after: _Wait | None = Field(
        default=None, alias="PODWRIGHT_MODEL_LONGEST_RETRY_AFTER"
    )

    unknown_finish_reason: Literal["warn", "fail"] = Field(
        default="warn", alias="PODWRIGHT_MODEL_UNKNOWN_FINISH_REASON"
    )

    def apply(self, model: Model) -> None:
        """Set what the environment sets on a model, and leave the rest to its class."""
        timeouts = self._values_for(Timeouts)
        if timeouts:
            model.timeouts = replace(model.timeouts, **timeouts)
        retries = self._values_for(Retries)
        if retries:
            model.retries = replace(model.retries, **retries)

    def _values_for(self, kind: type[Timeouts | Retries]) -> dict[str, Any]:
        names = {field.name for field in fields(kind)}
        return self.model_dump(include=names, exclude_none=True)


def read_call_settings() -> CallSettings:
    """The settings of the environment; an empty variable counts as unset.

    Raises:
        ConfigurationError: A value is invalid; with all that are.
    """
    values = {name: value for name, value in os.environ.items() if value}
    try:
        return CallSettings.model_validate(values)
    except ValidationError as error:
        problems = to_problems(error.errors(include_url=False), values)
        lines: list[str] = []
        for problem in problems:
            variable = problem.pointer.removeprefix("/")
            lines.append(f"{variable}: {problem.detail}")
        raise ConfigurationError(
            "\n".join(lines), suggestion="Correct or unset it."
        ) from None
