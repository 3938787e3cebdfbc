"""Structured output: the type that an answer must have, its JSON Schema, and the check."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, cast

from pydantic import (
    AfterValidator,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
)

from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_array,
    as_object,
    describe_value,
)
from podwright.data.model_json import UnreadableJsonError, open_text, read_json
from podwright.data.text import truncate
from podwright.errors import InputError
from podwright.messages.messages import OutputSchema
from podwright.schemas.json_schema import SchemaTooComplexError, object_root
from podwright.schemas.options import numbers_from_texts, requires_keys
from podwright.schemas.response_schema import no_response_model_error
from podwright.schemas.validation_errors import to_problems
from podwright.schemas.validator import InvalidSchemaError, SchemaValidator
from podwright.threads import compute

_DEFINITIONS = ("#/$defs/", "#/definitions/")
_MAX_WRAPPERS = 4
"""Objects of one key in one another around an answer."""
_SHOWN_CHARS = 200
"""Characters of a wrong value that the model is shown."""
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
        self._own_schema: JsonMapping = self.schema.schema
        """The schema of the value, in the whole."""
        if self._is_wrapped:
            self._own_schema = as_object(self.schema.schema["properties"])[
                "answer"
            ]

    async def read(self, text: str) -> Any:
        """As `parse`; what may take long is done in a thread."""
        if self._is_slow:
            return await compute(self.parse, text)
        return self.parse(text)

    async def convert(self, data: Any) -> Any:
        """Return the value that JSON data stands for.

        Raises:
            ValueError: It does not fit the type.
        """
        if self._is_slow:
            return await compute(self._validate, data)
        return self._validate(data)

    def parse(self, text: str) -> Any:
        """The value in a model's answer; see `podwright.data.model_json` for how JSON is found in it.

        What fits as it is, is never changed. Else the answer may be wrapped in an object with one key or encoded as
        text, and numbers may be texts, where the schema takes nothing of that kind.

        Raises:
            ValueError: The text is not JSON, or does not fit the type; the message is for the model.
        """
        try:
            data = read_json(text).data
        except UnreadableJsonError as error:
            raise ValueError(f"invalid JSON: {error}") from error
        refusal: ValueError | None = None
        for reading in self._readings(data):
            try:
                return self._validate(reading)
            except ValueError as error:
                refusal = refusal or error
        raise refusal or _no_wrapper_error(data)

    def _validate(self, data: Any) -> Any:
        try:
            # strict types take a date, for example, from JSON text only
            return self._adapter.validate_json(json.dumps(data))
        except ValidationError as error:
            details = error.errors(include_url=False)
            reasons: list[str] = []
            for problem in to_problems(details, data):
                reason = f"{problem.pointer} {problem.detail}"
                reasons.append(reason.strip().rstrip("."))
            raise ValueError("; ".join(reasons)) from error

    def _readings(self, data: Any) -> Iterator[Any]:
        """The data as it is, and as it is meant for certain if it does not fit so."""
        root = self.schema.schema
        for value in self._values(data):
            yield value
            with_numbers = numbers_from_texts(value, self._own_schema, root)
            if with_numbers is not value:
                yield with_numbers

    def _values(self, data: Any) -> Iterator[Any]:
        """The value in an answer: as the schema has it, without its wrapper, and out of another wrapper."""
        opened = open_text(data)
        if self._is_wrapped:
            wrapper = as_object(opened)
            if "answer" in wrapper:
                yield wrapper["answer"]
                yield from _opened_alone(wrapper["answer"])
            if not wrapper or requires_keys(
                self._own_schema, self.schema.schema
            ):
                yield data
                yield from _opened_alone(data)
        else:
            yield opened
        known = as_object(self.schema.schema.get("properties"))
        for _ in range(_MAX_WRAPPERS):
            opened = _unwrap(opened, known)
            if opened is None:
                return
            yield opened


def _opened_alone(data: Any) -> Iterator[Any]:
    """The object or the list that JSON data contains as JSON text."""
    opened = open_text(data)
    if opened is not data:
        yield opened


def _unwrap(data: Any, known: JsonMapping) -> Any:
    """The object or the list under the only key of an object, or that is the only item of a list.

    None if there is none, if it is empty, or if the schema knows the key.
    """
    inner: Any = None
    if isinstance(data, dict):
        fields = cast("JsonObject", data)
        if len(fields) == 1 and fields.keys().isdisjoint(known):
            inner = open_text(next(iter(fields.values())))
    elif len(as_array(data)) == 1 and isinstance(data[0], dict):
        inner = data[0]
    if isinstance(inner, dict | list) and inner:
        return cast("Any", inner)
    return None


def _no_wrapper_error(data: Any) -> ValueError:
    return ValueError(
        f"expected an object with the key 'answer', got {describe_value(data)}"
    )


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


def _type_of(validator: SchemaValidator) -> Any:
    """The type of the JSON data that fits a JSON Schema."""

    def check(data: Any) -> Any:
        try:
            problem = validator.problem(data)
        except SchemaTooComplexError as error:
            raise _too_complex_error(str(error)) from None
        if problem is not None:
            place = problem.pointer or "the answer"
            value = _value_at(data, problem.pointer)
            got = truncate(json.dumps(value, ensure_ascii=False), _SHOWN_CHARS)
            raise ValueError(f"{place} {problem.detail}, got {got}")
        return data

    return Annotated[Any, AfterValidator(check)]


def _value_at(data: Any, pointer: str) -> Any:
    """The value that a JSON pointer to a part of the data names."""
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(data, list):
            data = cast("list[Any]", data)[int(key)]
        else:
            data = as_object(data)[key]
    return data


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


def output_schema(response_model: Any) -> OutputSchema | None:
    """Return the schema that a model is given for a `response_model`; None for text. Takes milliseconds.

    Raises:
        InputError: See `response_format`.
    """
    if response_model is None or response_model is str:
        return None
    if isinstance(response_model, dict):
        text = json.dumps(response_model)
        return _cached_format_of_text(text, patterns=True).schema
    return ResponseFormat(response_model).schema


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
