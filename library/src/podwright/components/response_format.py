"""Structured output: the type that an answer must have, its JSON Schema, and the check."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from importlib import import_module
from typing import Annotated, Any, cast

from pydantic import AfterValidator, PydanticUserError, TypeAdapter, ValidationError

from podwright.callables import compute
from podwright.components.map_items import after_thoughts
from podwright.errors import InputError
from podwright.json_data import as_object, json_pointer
from podwright.json_schema import SchemaTooComplexError, measure, object_root
from podwright.messages import OutputSchema
from podwright.text import short_repr, truncate
from podwright.validation_errors import to_problems

MAX_REFERENCES = 20_000
"""References of a JSON Schema that the check of one answer follows."""
_SMALL_CHECK = 4_000
"""Visits of a schema, times characters of an answer, that are checked on the event loop."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class ResponseFormat:
    """The type of a structured answer.

    Args:
        response_model: A pydantic model, or any type with a JSON Schema.
        schema: The JSON Schema that the model sees; by default that of the type.
        visits: How much a check of an answer may take; see `podwright.json_schema.measure`.

    Raises:
        InputError: The type has no JSON Schema.
    """

    def __init__(
        self,
        response_model: Any,
        schema: Mapping[str, Any] | None = None,
        visits: int = 0,
    ) -> None:
        self._visits = visits
        try:
            self._adapter: TypeAdapter[Any] = TypeAdapter(response_model)
            schema = self._adapter.json_schema() if schema is None else dict(schema)
        except (PydanticUserError, TypeError) as error:
            message = f"{response_model!r} cannot be a response model: {str(error).splitlines()[0]}"
            hint = "Use a pydantic model, a dataclass, another type that has a JSON Schema, or a JSON Schema."
            raise InputError(message, suggestion=hint) from error
        shown = object_root(schema)
        self._wrapped = shown is None
        name = str((shown or schema).get("title", "answer"))
        self.schema = OutputSchema(
            name if _NAME.fullmatch(name) else "answer", shown or _wrap(schema)
        )

    async def read(self, text: str) -> Any:
        """As `parse`; what may take long is done in a thread."""
        is_small = self._visits * len(text) <= _SMALL_CHECK
        return self.parse(text) if is_small else await compute(self.parse, text)

    def parse(self, text: str) -> Any:
        """The value in a model's answer: JSON, which may be in a Markdown code fence.

        Raises:
            ValueError: The text is not JSON, or does not fit the type; the message is for the model.
        """
        try:
            answer = after_thoughts(text)
            data: Any = json.loads(
                answer if answer.lstrip().startswith("{") else _inside_fence(answer)
            )
            json.dumps(data, allow_nan=False)
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
            reasons = [
                f"{problem.pointer} {problem.detail}".strip() for problem in problems
            ]
            raise ValueError("; ".join(reasons)) from error


def _wrap(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of an object with an answer, because providers require an object at the top level."""
    answer = dict(schema)
    definitions = {
        key: answer.pop(key) for key in ("$defs", "definitions") if key in answer
    }
    wrapped = {
        "type": "object",
        "properties": {"answer": answer},
        "required": ["answer"],
        **definitions,
    }
    return cast("dict[str, Any]", _with_moved_references(wrapped))


def _with_moved_references(value: Any) -> Any:
    """A wrapped JSON Schema in which the references to other parts than definitions follow what they name."""
    if isinstance(value, list):
        return [_with_moved_references(item) for item in cast("list[Any]", value)]
    moved = {
        key: _with_moved_references(item) for key, item in as_object(value).items()
    }
    reference = moved.get("$ref")
    if isinstance(reference, str) and not reference.startswith(
        ("#/$defs/", "#/definitions/")
    ):
        moved["$ref"] = f"#/properties/answer{reference.removeprefix('#')}"
    return moved if isinstance(value, dict) else value


def _inside_fence(text: str) -> str:
    """What is between the first and the last Markdown code fence of a text; the text if there are no two."""
    inside, fence, _ = text.partition("```")[2].rpartition("```")
    return inside.removeprefix("json") if fence else text


def _type_of(schema: dict[str, Any]) -> Any:
    """The type of the JSON data that fits a JSON Schema, which is read as one of the draft 2020-12.

    Args:
        schema: A schema that `podwright.json_schema.measure` has found to be small enough.
    """
    # imported late, because few programs need them
    import referencing

    jsonschema: Any = import_module("jsonschema")  # without type hints
    base = jsonschema.Draft202012Validator
    try:
        base.check_schema(schema)
    except jsonschema.SchemaError as error:
        place = json_pointer(*error.absolute_path)
        raise _invalid(
            f"{place or 'the whole'} is wrong: {truncate(error.message, 200)}"
        ) from error
    registry = referencing.Registry[Any]()  # loads no remote schemas
    followed = _Followed(base.VALIDATORS["$ref"])
    validator = jsonschema.validators.extend(base, {"$ref": followed})(
        schema, registry=registry
    )

    def check(data: Any) -> Any:
        followed.count = 0
        try:
            error = jsonschema.exceptions.best_match(validator.iter_errors(data))
        except RecursionError:
            raise _too_complex("an answer follows its $refs too often") from None
        if error:
            place = json_pointer(*error.absolute_path)
            expected = short_repr(error.validator_value)
            raise ValueError(
                f"{place or 'the answer'} does not fit {error.validator} {expected}"
            )
        return data

    return Annotated[Any, AfterValidator(check)]


def _invalid(reason: str) -> InputError:
    hint = "Parts of the schema are named by '$ref' with a JSON pointer, such as '#/$defs/city'; no other is loaded."
    return InputError(
        f"The response model cannot be used as a JSON Schema: {reason}.",
        suggestion=hint,
    )


class _Followed:
    """The keyword `$ref`, which stops after many references: a short schema can hold more than a lifetime's work."""

    def __init__(self, follow: Callable[..., Iterable[Any]]) -> None:
        self._follow = follow
        self.count = 0

    def __call__(
        self, validator: Any, reference: str, instance: Any, schema: Any
    ) -> Iterable[Any]:
        self.count += 1
        if self.count > MAX_REFERENCES:
            raise RecursionError
        return self._follow(validator, reference, instance, schema)


def _too_complex(reason: str) -> InputError:
    return InputError(
        f"The response model is too complex: {reason}.",
        suggestion="Let a part of the schema refer to itself only through a property or an item, and to others once.",
    )


_cached_format = lru_cache(maxsize=256)(ResponseFormat)


async def response_format(response_model: Any) -> ResponseFormat | None:
    """The format for a run's `response_model`; None for text.

    Args:
        response_model: A type, or a JSON Schema as a dictionary.

    Raises:
        InputError: The type has no JSON Schema, or the JSON Schema is invalid or too complex.
    """
    if isinstance(response_model, dict):
        return await _format_of_schema(cast("dict[str, Any]", response_model))
    if response_model is None or response_model is str:
        return None
    try:
        return _cached_format(response_model)
    except TypeError:  # not hashable
        return ResponseFormat(response_model)


async def _format_of_schema(response_model: dict[str, Any]) -> ResponseFormat:
    schema = {key: value for key, value in response_model.items() if key != "$schema"}

    def make() -> ResponseFormat:
        try:
            visits = measure(schema)
        except SchemaTooComplexError as error:
            raise _too_complex(str(error)) from None
        except ValueError as error:
            raise _invalid(str(error)) from None
        return ResponseFormat(_type_of(schema), schema, visits)

    return await compute(make)  # which takes milliseconds for a small schema, too
