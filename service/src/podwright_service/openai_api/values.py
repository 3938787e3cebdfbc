"""The values of requests that both protocols share, and what it means to leave one out.

A null means the same as no value: most clients send every field they know. What an unknown field asks for cannot be
known, so it is refused by name, unless it is empty and asks for nothing.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    model_validator,
)
from pydantic_core import PydanticCustomError

from podwright_service.http.schemas import RequestModel

NOT_STORED = "Nothing is stored here: send the whole conversation, and set 'store: false' in the client"


def _publish(schema: dict[str, Any]) -> None:
    """Say in the JSON Schema of a model that null is unset, and which unknown keys are taken."""
    required = schema.get("required", ())
    for name, value in schema.get("properties", {}).items():
        if name not in required:
            schema["properties"][name] = _nullable(value)
    if schema.get("additionalProperties") is False:
        schema["additionalProperties"] = {"enum": [None, "", [], {}]}


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    notes: dict[str, Any] = {}
    shape: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("title", "description", "default"):
            notes[key] = value
        else:
            shape[key] = value
    alternatives = [shape]
    if shape.keys() == {"anyOf"}:
        alternatives = shape["anyOf"]
    if not shape or {"type": "null"} in alternatives:
        return schema
    return {**notes, "anyOf": [*alternatives, {"type": "null"}]}


class Lenient(BaseModel):
    """A part of a conversation; clients send back answers with further keys that have no meaning here."""

    model_config = ConfigDict(
        extra="ignore",
        strict=True,
        use_attribute_docstrings=True,
        json_schema_extra=_publish,
    )

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        values = cast("dict[str, Any]", data)
        return {
            key: value for key, value in values.items() if value is not None
        }


class Options(RequestModel):
    """Parameters; those that are not known are refused, unless they are empty."""

    model_config = ConfigDict(json_schema_extra=_publish)

    @model_validator(mode="before")
    @classmethod
    def _without_unset(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        known = {
            field.alias or name for name, field in cls.model_fields.items()
        }
        values: dict[str, Any] = {}
        for key, value in cast("dict[str, Any]", data).items():
            if value is None:
                continue
            if key in known or not _is_empty(value):
                values[key] = value
        return values


def _is_empty(value: object) -> bool:
    return isinstance(value, str | list | dict) and not value


def only_empty(reason: str) -> AfterValidator:
    """Refuses a parameter unless it is null, false, 0 or empty."""

    def check(value: object) -> object:
        if value:
            # a ValueError would keep its traceback, and with it the body, until the next garbage collection
            raise PydanticCustomError("value_error", cast("Any", reason))
        return value

    return AfterValidator(check)


def _whole(value: object) -> object:
    """512.0 as 512: JavaScript and Lua do not tell them apart."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _limit(value: object) -> object:
    if value == -1:
        return None
    return _whole(value)


def _stops(value: object) -> object:
    if value in ("", []):
        return None
    return value


NoEffect = Any
"""A parameter that is taken and has no effect here."""
NoTools = Annotated[
    JsonValue,
    only_empty(
        "Tools of the client are not supported: the component has its own"
    ),
]
NotStored = Annotated[JsonValue, only_empty(NOT_STORED)]
NotSupported = Annotated[
    JsonValue, only_empty("This parameter is not supported")
]
Unit = Annotated[float, Field(ge=0, le=1)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Whole = Annotated[int, BeforeValidator(_whole)]
One = Annotated[Literal[1], BeforeValidator(_whole)]
_Count = Annotated[int, Field(ge=1)]
_LimitInput: TypeAlias = _Count | Literal[-1] | None
TokenLimit = Annotated[
    _Count | None, BeforeValidator(_limit, json_schema_input_type=_LimitInput)
]
"""Most output tokens; -1 for no limit, as local servers have it."""
Stops = Annotated[
    str | Annotated[list[str], Field(max_length=100)] | None,
    BeforeValidator(_stops),
]
"""Texts that end the output; an empty one is none."""
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]
