"""Checking JSON data against a JSON Schema (draft 2020-12) of a blueprint or a caller."""

from __future__ import annotations

from importlib import import_module
from itertools import islice
from typing import Any

from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    copy_json,
    json_pointer,
)
from podwright.data.text import short_repr, truncate
from podwright.errors import Problem
from podwright.schemas.brief_values import brief
from podwright.schemas.formats import format_checker
from podwright.schemas.json_schema import (
    SchemaTooComplexError,
    measure,
    parts_under_unknown_keywords,
    without_dialects,
)
from podwright.schemas.keywords import (
    Check,
    CheckBudget,
    current_check,
    validator_type,
)
from podwright.schemas.patterns import without_patterns
from podwright.threads import check_cancelled

MAX_ERRORS = 100
"""Errors of which the most telling one is chosen."""
_MAX_REASON = 200
"""Characters of the reason why a schema is invalid."""


class InvalidSchemaError(ValueError):
    """A JSON Schema is invalid; the message says where, and what is wrong there."""


class SchemaValidator:
    """Checks data against a JSON Schema. References lead to other parts of the schema only, so nothing is loaded.

    Threads may share one.

    Args:
        schema: The schema; each `$schema` in it is ignored.
        formats: Whether texts have to fit `format`; see `podwright.schemas.formats`. If not, it is an annotation.
        patterns: Whether regular expressions are evaluated, for schemas of trusted authors only; see
            `podwright.schemas.patterns`. If not, they are annotations, and need not be valid in Python.

    Raises:
        InvalidSchemaError: It is no JSON Schema, or refers to something that is not a part of it.
        SchemaTooComplexError: A check of it could take too long.
    """

    def __init__(
        self,
        schema: JsonMapping,
        *,
        formats: bool = False,
        patterns: bool = True,
    ) -> None:
        check_cancelled()
        own_schema: JsonObject = dict(schema)
        own_schema.pop("$schema", None)
        self.schema = own_schema
        """The schema, without the name of its dialect."""
        self._visits = _measure(own_schema)
        _check_schema(own_schema, patterns=patterns)
        for part in parts_under_unknown_keywords(own_schema):
            _check_schema(part, patterns=patterns)
        if not patterns:
            own_schema = without_patterns(own_schema)
        # imported late, because few programs need it
        import referencing

        # an empty registry: no remote schemas are loaded
        self._validator = validator_type()(
            brief(without_dialects(own_schema)),
            registry=referencing.Registry[Any](),
            format_checker=format_checker() if formats else None,
        )

    def problem(
        self, data: object, budget: CheckBudget | None = None
    ) -> Problem | None:
        """What is wrong with the data, at its JSON pointer: the most telling of the first errors; None if it fits.

        Args:
            data: JSON data.
            budget: What the check may cost, if several share it; by default as much as one may.

        Raises:
            SchemaTooComplexError: The check takes too long, or the data is nested too deeply for it.
            asyncio.CancelledError: It is a part of a computation that nobody awaits any more.
        """
        check = Check(budget or CheckBudget(), self._visits)
        token = current_check.set(check)
        try:
            error = self._most_telling_error(data)
        except RecursionError:
            raise SchemaTooComplexError(
                "the data is nested too deeply for a check; use fewer levels"
            ) from None
        finally:
            current_check.reset(token)
        if error is None:
            return None
        pointer = json_pointer(*error.absolute_path)
        expected = short_repr(copy_json(error.validator_value))
        return Problem(
            pointer,
            detail=f"does not fit {error.validator} {expected}",
        )

    def _most_telling_error(self, data: object) -> Any:
        # without type hints
        exceptions: Any = import_module("jsonschema.exceptions")
        errors = self._validator.iter_errors(brief(data))
        return exceptions.best_match(islice(errors, MAX_ERRORS))


def _measure(schema: JsonMapping) -> int:
    try:
        return measure(schema)
    except SchemaTooComplexError:
        raise
    except ValueError as error:
        raise InvalidSchemaError(str(error)) from None


def _check_schema(schema: JsonMapping, *, patterns: bool) -> None:
    jsonschema: Any = import_module("jsonschema")
    draft = jsonschema.Draft202012Validator
    formats = draft.FORMAT_CHECKER
    if not patterns:
        # without the format of regular expressions, which compiles them
        formats = jsonschema.FormatChecker(())
    try:
        draft.check_schema(schema, format_checker=formats)
    except jsonschema.SchemaError as error:
        place = json_pointer(*error.absolute_path) or "the whole"
        reason = truncate(error.message, _MAX_REASON)
        raise InvalidSchemaError(f"{place} is wrong: {reason}") from error
