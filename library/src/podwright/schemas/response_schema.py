"""The JSON Schema of a `response_model`: of a Python type, or given as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pydantic import PydanticUserError, TypeAdapter

from podwright.data.json_data import JsonMapping
from podwright.errors import InputError


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
