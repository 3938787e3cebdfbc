"""Structured output: the type that an answer must have, its JSON Schema, and the check."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, cast

from pydantic import PydanticUserError, TypeAdapter, ValidationError

from podwright.errors import InputError
from podwright.messages import OutputSchema
from podwright.validation_errors import to_problems


class ResponseFormat:
    """The type of a structured answer.

    Args:
        response_model: A pydantic model, or any type with a JSON Schema.

    Raises:
        InputError: The type has no JSON Schema.
    """

    def __init__(self, response_model: Any) -> None:
        try:
            self._adapter: TypeAdapter[Any] = TypeAdapter(response_model)
            schema = self._adapter.json_schema()
        except (PydanticUserError, TypeError) as error:
            raise InputError(
                f"{response_model!r} cannot be a response model: {str(error).splitlines()[0]}",
                suggestion="Use a pydantic model, a dataclass, or another type that has a JSON Schema.",
            ) from error
        name = getattr(response_model, "__name__", "answer")
        self._wrapped = schema.get("type") != "object" and "$ref" not in schema
        if self._wrapped:  # providers require an object at the top level
            definitions = {"$defs": schema.pop("$defs")} if "$defs" in schema else {}
            schema = {"type": "object", "properties": {"answer": schema}, "required": ["answer"], **definitions}
        self.schema = OutputSchema(name if name.isidentifier() else "answer", schema)

    def parse(self, text: str) -> Any:
        """The value in a model's answer: JSON, which may be in a Markdown code fence.

        Raises:
            ValueError: The text is not JSON, or does not fit the type; the message is for the model.
        """
        try:
            data: Any = json.loads(text if text.lstrip().startswith("{") else _inside_fence(text))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"invalid JSON: {error}") from error
        if self._wrapped:
            if not isinstance(data, dict) or "answer" not in data:
                raise ValueError("expected an object with the key 'answer'")
            data = cast("dict[str, Any]", data)["answer"]
        try:
            # strict types take a date, for example, from JSON text only
            return self._adapter.validate_json(json.dumps(data))
        except ValidationError as error:
            problems = to_problems(error.errors(include_url=False), data)
            raise ValueError(
                "; ".join(f"{problem.pointer} {problem.detail}".strip() for problem in problems)
            ) from error


def _inside_fence(text: str) -> str:
    """What is between the first and the last Markdown code fence of a text; the text if there are no two."""
    inside, fence, _ = text.partition("```")[2].rpartition("```")
    return inside.removeprefix("json") if fence else text


_cached_format = lru_cache(maxsize=256)(ResponseFormat)


def response_format(response_model: Any) -> ResponseFormat | None:
    """The format for a run's `response_model`; None for text.

    Raises:
        InputError: The type has no JSON Schema.
    """
    if response_model is None or response_model is str:
        return None
    try:
        return _cached_format(response_model)
    except TypeError:  # not hashable
        return ResponseFormat(response_model)
