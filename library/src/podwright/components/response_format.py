"""Structured output: the type that an answer must have, its JSON Schema, and the check."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, cast

from pydantic import (
    AfterValidator,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
)

from podwright.callables import compute
from podwright.components.map_items import after_thoughts
from podwright.components.options import no_response_model_error
from podwright.errors import InputError
from podwright.json_data import JsonMapping, JsonObject, as_object
from podwright.json_schema import SchemaTooComplexError, object_root
from podwright.messages import OutputSchema
from podwright.schema_validator import InvalidSchemaError, SchemaValidator
from podwright.validation_errors import to_problems

_DEFINITIONS = ("#/$defs/", "#/definitions/")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class ClientSchema:
    """The JSON Schema that a client wants an answer to fit, as a `response_model`.

    The model is given all of it. The answer is not checked against its regular expressions.
    """

    schema: JsonMapping


class ResponseFormat:
    """The type of a structured answer.

    Args:
        response_model: A pydantic model, or any type with a JSON Schema.
        schema: The JSON Schema that the model sees; by default that of the type.
        is_slow: Whether the check of an answer may take long.

    Raises:
        InputError: The type has no JSON Schema.
    """

    def __init__(
        self,
        response_model: Any,
        schema: JsonMapping | None = None,
        *,
        is_slow: bool = False,
    ) -> None:
        self._is_slow = is_slow
        try:
            self._adapter: TypeAdapter[Any] = TypeAdapter(response_model)
            if schema is None:
                schema = self._adapter.json_schema()
        except (PydanticUserError, TypeError) as error:
            raise no_response_model_error(response_model, error) from error
        root = object_root(schema)
        self._is_wrapped = root is None
        name = _name_of(root or schema)
        self.schema = OutputSchema(name, root or _wrap(schema))

    async def read(self, text: str) -> Any:
        """As `parse`; what may take long is done in a thread."""
        if self._is_slow:
            return await compute(self.parse, text)
        return self.parse(text)

    def parse(self, text: str) -> Any:
        """The value in a model's answer: JSON, which may be in a Markdown code fence.

        Raises:
            ValueError: The text is not JSON, or does not fit the type; the message is for the model.
        """
        data = _json_of(text)
        if self._is_wrapped:
            wrapper = as_object(data)
            if "answer" not in wrapper:
                raise ValueError("expected an object with the key 'answer'")
            data = wrapper["answer"]
        try:
            # strict types take a date, for example, from JSON text only
            return self._adapter.validate_json(json.dumps(data))
        except ValidationError as error:
            details = error.errors(include_url=False)
            reasons: list[str] = []
            for problem in to_problems(details, data):
                reason = f"{problem.pointer} {problem.detail}"
                reasons.append(reason.strip())
            raise ValueError("; ".join(reasons)) from error


def _json_of(text: str) -> Any:
    """The JSON data in a model's answer."""
    try:
        answer = after_thoughts(text)
        if not answer.lstrip().startswith("{"):
            answer = _inside_fence(answer)
        data = json.loads(answer)
        # JSON has neither NaN nor infinities
        json.dumps(data, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"invalid JSON: {error}") from error
    return data


def _name_of(schema: JsonMapping) -> str:
    """The title of a schema, if providers take it as a name."""
    title = str(schema.get("title", ""))
    if _NAME.fullmatch(title):
        return title
    return "answer"


def _wrap(schema: JsonMapping) -> JsonObject:
    """The schema of an object with an answer, because providers require an object at the top level."""
    answer = dict(schema)
    wrapped: JsonObject = {
        "type": "object",
        "properties": {"answer": answer},
        "required": ["answer"],
    }
    for key in ("$defs", "definitions"):
        if key in answer:
            wrapped[key] = answer.pop(key)
    return cast("JsonObject", _with_moved_references(wrapped))


def _with_moved_references(value: Any) -> Any:
    """A wrapped JSON Schema in which the references to other parts than definitions follow what they name."""
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return [_with_moved_references(item) for item in items]
    if not isinstance(value, dict):
        return value
    moved: JsonObject = {}
    for key, item in cast("JsonObject", value).items():
        moved[key] = _with_moved_references(item)
    reference = moved.get("$ref")
    if isinstance(reference, str):
        moved["$ref"] = _moved_reference(reference)
    return moved


def _moved_reference(reference: str) -> str:
    if reference.startswith(_DEFINITIONS):
        return reference
    path = reference.removeprefix("#")
    return f"#/properties/answer{path}"


def _inside_fence(text: str) -> str:
    """What is between the first and the last Markdown code fence of a text; the whole text if it has fewer than two."""
    inside, fence, _ = text.partition("```")[2].rpartition("```")
    if not fence:
        return text
    return inside.removeprefix("json")


def _type_of(validator: SchemaValidator) -> Any:
    """The type of the JSON data that fits a JSON Schema."""

    def check(data: Any) -> Any:
        try:
            problem = validator.problem(data)
        except SchemaTooComplexError as error:
            raise _too_complex_error(str(error)) from None
        if problem is not None:
            place = problem.pointer or "the answer"
            raise ValueError(f"{place} {problem.detail}")
        return data

    return Annotated[Any, AfterValidator(check)]


def _invalid_schema_error(reason: str) -> InputError:
    return InputError(
        f"The response model cannot be used as a JSON Schema: {reason.rstrip('.')}.",
        suggestion="Parts of the schema are named by '$ref' with a JSON pointer, such as '#/$defs/city'; "
        "no other is loaded.",
    )


def _too_complex_error(reason: str) -> InputError:
    return InputError(
        f"The response model is too complex: {reason}.",
        suggestion="Let a part of the schema refer to itself only through a property or an item, and to others once.",
    )


_cached_format = lru_cache(maxsize=256)(ResponseFormat)


async def response_format(response_model: Any) -> ResponseFormat | None:
    """The format for a run's `response_model`; None for text.

    Args:
        response_model: A type, a JSON Schema as a dictionary, or that of a client.

    Raises:
        InputError: The type has no JSON Schema, or the JSON Schema is invalid or too complex.
    """
    if isinstance(response_model, ClientSchema):
        return await _format_of_schema(response_model.schema, patterns=False)
    if isinstance(response_model, dict):
        schema = cast("JsonObject", response_model)
        return await _format_of_schema(schema, patterns=True)
    if response_model is None or response_model is str:
        return None
    try:
        return _cached_format(response_model)
    except TypeError:  # not hashable
        return ResponseFormat(response_model)


async def _format_of_schema(
    schema: JsonMapping, *, patterns: bool
) -> ResponseFormat:
    text = json.dumps(schema)
    # which takes milliseconds for a small schema, too
    return await compute(_cached_format_of_text, text, patterns)


@lru_cache(maxsize=256)
def _cached_format_of_text(text: str, patterns: bool) -> ResponseFormat:
    """The format for the JSON text of a schema; `patterns` as in `SchemaValidator`."""
    try:
        validator = SchemaValidator(json.loads(text), patterns=patterns)
    except SchemaTooComplexError as error:
        raise _too_complex_error(str(error)) from None
    except InvalidSchemaError as error:
        raise _invalid_schema_error(str(error)) from None
    return ResponseFormat(_type_of(validator), validator.schema, is_slow=True)
