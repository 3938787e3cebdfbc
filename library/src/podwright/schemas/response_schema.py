"""The JSON Schemas of Python types: of a `response_model`, or of a type that a blueprint names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pydantic import PydanticUserError, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind

from podwright.data.json_data import JsonMapping, JsonObject
from podwright.errors import ConfigurationError, InputError


class SchemaWithoutTitles(GenerateJsonSchema):
    """Titles of fields only repeat names, and models are billed per token."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Return that none is set."""
        return False

    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        """Ignore defaults without a JSON form: they are left out of the schema."""


def schema_of_type(name: str, named: Any) -> JsonObject:
    """Return the JSON Schema of a type, for a blueprint that names it in the title.

    Args:
        name: The name of the type, which becomes the title.
        named: The type: all that pydantic takes.

    Raises:
        ConfigurationError: It has no JSON Schema.
    """
    try:
        own = TypeAdapter(named).json_schema(
            schema_generator=SchemaWithoutTitles
        )
    # a name of the module may stand for anything, such as a number
    except (PydanticUserError, TypeError, NameError, ValueError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise ConfigurationError(
            f"'{name}' has no JSON Schema: {reason}.",
            suggestion="Define a pydantic model, a dataclass, or another type that has one.",
        ) from error
    schema = {"title": name, **own}
    schema["title"] = name
    if "$defs" in schema:
        # people read the fields first
        schema["$defs"] = schema.pop("$defs")
    return schema


def response_schema_of(response_model: Any) -> JsonMapping:
    """Return the JSON Schema of a `response_model`, for a blueprint.

    Raises:
        InputError: The type has no JSON Schema.
    """
    if isinstance(response_model, Mapping):
        return dict(cast("JsonMapping", response_model))
    try:
        return TypeAdapter(response_model).json_schema()
    except (PydanticUserError, TypeError) as error:
        raise no_response_model_error(response_model, error) from error


def no_response_model_error(
    response_model: object, error: Exception
) -> InputError:
    """Return the error for a type that has no JSON Schema."""
    reason = str(error).splitlines()[0]
    return InputError(
        f"{response_model!r} cannot be a response model: {reason}",
        suggestion="Use a pydantic model, a dataclass, another type that has a JSON Schema, or a JSON Schema.",
    )
