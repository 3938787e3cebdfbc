"""Checking JSON data against a JSON Schema (draft 2020-12) of a blueprint or a caller."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

from podwright.errors import Problem
from podwright.json_data import JsonMapping, JsonObject, json_pointer
from podwright.json_schema import SchemaTooComplexError, measure
from podwright.text import short_repr, truncate

MAX_REFERENCES = 20_000
"""References of a JSON Schema that one check follows."""
_MAX_REASON = 200
"""Characters of the reason why a schema is invalid."""


class InvalidSchemaError(ValueError):
    """A JSON Schema is invalid; the message says where, and what is wrong there."""


class SchemaValidator:
    """Checks data against a JSON Schema. References lead to other parts of the schema only, so nothing is loaded.

    Args:
        schema: The schema; its `$schema` is ignored.

    Raises:
        InvalidSchemaError: It is no JSON Schema, or refers to something that is not a part of it.
        SchemaTooComplexError: A check of it could take too long.
    """

    def __init__(self, schema: JsonMapping) -> None:
        own_schema: JsonObject = dict(schema)
        own_schema.pop("$schema", None)
        self.schema = own_schema
        self.visits = _measure(own_schema)
        """How much a check may take; see `podwright.json_schema.measure`."""
        # imported late, because few programs need them
        import referencing

        # without type hints
        self._jsonschema: Any = import_module("jsonschema")
        draft = self._jsonschema.Draft202012Validator
        try:
            draft.check_schema(own_schema)
        except self._jsonschema.SchemaError as error:
            place = json_pointer(*error.absolute_path) or "the whole"
            reason = truncate(error.message, _MAX_REASON)
            raise InvalidSchemaError(f"{place} is wrong: {reason}") from error
        self._references = _CountedReferences(draft.VALIDATORS["$ref"])
        validator_type = self._jsonschema.validators.extend(
            draft, {"$ref": self._references}
        )
        # an empty registry: no remote schemas are loaded
        self._validator = validator_type(
            own_schema, registry=referencing.Registry[Any]()
        )

    def problem(self, data: object) -> Problem | None:
        """What is wrong with the data, at its JSON pointer: the most telling of all errors; None if it fits.

        Raises:
            SchemaTooComplexError: The check follows too many references.
        """
        self._references.count = 0
        try:
            errors = self._validator.iter_errors(data)
            error = self._jsonschema.exceptions.best_match(errors)
        except RecursionError:
            raise SchemaTooComplexError(
                "an answer follows its $refs too often"
            ) from None
        if error is None:
            return None
        pointer = json_pointer(*error.absolute_path)
        expected = short_repr(error.validator_value)
        return Problem(
            pointer,
            detail=f"does not fit {error.validator} {expected}",
        )


def _measure(schema: JsonMapping) -> int:
    try:
        return measure(schema)
    except SchemaTooComplexError:
        raise
    except ValueError as error:
        raise InvalidSchemaError(str(error)) from None


class _CountedReferences(threading.local):
    """The keyword `$ref`, which stops after many: those of a short schema can be too many to follow.

    Each thread counts its own check.
    """

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
