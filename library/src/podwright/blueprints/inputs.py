"""The inputs that a component declares: their defaults, and the check of a run's named inputs."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Container, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_array,
    copy_json,
    describe_value,
    json_pointer,
)
from podwright.data.names import INPUT, find_name
from podwright.data.text import did_you_mean
from podwright.errors import InputsError, Problem
from podwright.schemas.json_schema import (
    SchemaTooComplexError,
    with_moved_references,
)
from podwright.schemas.keywords import CheckBudget
from podwright.schemas.validator import SchemaValidator
from podwright.threads import compute


class DeclaredInputs:
    """The `inputs` of a blueprint.

    Args:
        component: The name of the component.
        schemas: The JSON Schemas of its inputs by name; none if it takes any input.
    """

    def __init__(
        self, component: str, schemas: Mapping[str, JsonMapping]
    ) -> None:
        self._component = component
        self.schemas = schemas

    def __bool__(self) -> bool:
        return bool(self.schemas)

    @cached_property
    def _validators(self) -> Mapping[str, SchemaValidator]:
        return {
            name: SchemaValidator(schema)
            for name, schema in self.schemas.items()
        }

    def complete(
        self, given: JsonMapping, also_known: Container[str] = ()
    ) -> JsonMapping:
        """The named inputs with the defaults of those that are missing; as they are if nothing is declared.

        Args:
            given: The named inputs.
            also_known: Further names that are no mistake.

        Raises:
            InputsError: An input is missing, unknown or has a wrong value; with all problems.
        """
        if not self.schemas:
            return given
        complete = self._as_declared(given)
        for name, value in self.defaults.items():
            complete.setdefault(name, value)
        budget = CheckBudget()
        self._refuse(list(self._problems(complete, also_known, budget)))
        return complete

    def check_values(
        self,
        context: JsonMapping,
        edits: Mapping[str, Sequence[JsonMapping]],
    ) -> None:
        """Check the declared inputs that the context of a stopped run has, together with any other names.

        Args:
            context: The context.
            edits: JSON Schemas of what persons may have made of them, by name.

        Raises:
            InputsError: A value fits neither its own schema nor one of these.
        """
        budget = CheckBudget()
        problems: list[Problem] = []
        for name, value in self.select(context).items():
            found = list(self._value_problems(name, value, budget))
            if found and not _fits(value, edits.get(name, ()), budget):
                problems += found
        self._refuse(problems)

    def _refuse(self, problems: Sequence[Problem]) -> None:
        """Raise the error about the problems, if there are any."""
        if not problems:
            return
        count = f"{len(problems)} problems"
        if len(problems) == 1:
            count = "1 problem"
        raise InputsError(
            f"The inputs of '{self._component}' are invalid: {count}.",
            problems=problems,
        )

    async def complete_in_thread(
        self, given: JsonMapping, also_known: Container[str] = ()
    ) -> JsonMapping:
        """As `complete`; the event loop stays free while the values are checked."""
        if not self.schemas:
            return given
        return await compute(self.complete, given, also_known)

    @property
    def defaults(self) -> JsonObject:
        """The values of the inputs that are optional."""
        return {
            name: copy_json(schema["default"])
            for name, schema in self.schemas.items()
            if "default" in schema
        }

    @property
    def required(self) -> list[str]:
        """The names of the inputs that have no default; without `input`, which every run has."""
        return [
            name
            for name, schema in self.schemas.items()
            if "default" not in schema and name != INPUT
        ]

    def parameters(self, known: Container[str] = ()) -> JsonObject:
        """Return the JSON Schema of an object with the inputs as its properties, for the parameters of a tool.

        Args:
            known: The names of inputs that have their values already, and are left out.
        """
        asked = {
            name: with_moved_references(
                schema, "#/properties" + json_pointer(name)
            )
            for name, schema in self.schemas.items()
            if name not in known
        }
        return {
            "type": "object",
            "properties": asked,
            "required": [
                name for name in asked if "default" not in self.schemas[name]
            ],
            "additionalProperties": False,
        }

    @property
    def may_be_left_out(self) -> bool:
        """Whether a run may be given no input at all: there are declared ones, and all have defaults."""
        return bool(self.schemas) and all(
            "default" in schema for schema in self.schemas.values()
        )

    def convert_texts(self, given: JsonMapping) -> JsonObject:
        """Named inputs from where all values are texts: `{"count": "3"}` becomes `{"count": 3}` if that is an integer.

        A text that its schema takes stays as it is. Another one becomes the data in it, if it is JSON; and so does one
        whose check takes too long, of which `complete` says so.
        """
        converted = self._as_declared(given)
        budget = CheckBudget()
        for name, value in list(converted.items()):
            if name in self.schemas and isinstance(value, str):
                with contextlib.suppress(SchemaTooComplexError):
                    converted[name] = self._data_in(name, value, budget)
        return converted

    def _data_in(self, name: str, text: str, budget: CheckBudget) -> Any:
        validator = self._validators[name]
        if validator.problem(text, budget) is None:
            return text
        try:
            data = json.loads(text)
            # JSON has neither NaN nor infinities
            json.dumps(data, allow_nan=False)
        except (ValueError, RecursionError):
            return text
        types = self.schemas[name].get("type")
        is_text = types == "string" or "string" in as_array(types)
        if is_text and validator.problem(data, budget) is not None:
            # what is wrong is the text, such as its length
            return text
        return data

    def _as_declared(self, given: JsonMapping) -> JsonObject:
        """Named inputs under the names as they are declared, which may be in another normal form."""
        renamed: JsonObject = {}
        for name, value in given.items():
            declared = find_name(name, self.schemas) or name
            if declared != name and declared in given:
                declared = name
            renamed[declared] = value
        return renamed

    def select(self, values: JsonMapping) -> JsonObject:
        """The declared inputs among some values."""
        return {name: values[name] for name in self.schemas if name in values}

    def _problems(
        self,
        inputs: JsonMapping,
        also_known: Container[str],
        budget: CheckBudget,
    ) -> Iterator[Problem]:
        for name in self.schemas:
            if name not in inputs:
                yield Problem(
                    json_pointer(name),
                    detail=f"Missing input '{name}'.",
                    suggestion=self._describe(name),
                )
        for name, value in inputs.items():
            if name in self.schemas:
                # of the input that has spent it there is a problem
                if not budget.is_spent:
                    yield from self._value_problems(name, value, budget)
            elif name != INPUT and name not in also_known:
                yield Problem(
                    json_pointer(name),
                    detail=f"Unknown input '{name}'.",
                    suggestion=did_you_mean(name, self.schemas),
                )

    def _value_problems(
        self, name: str, value: Any, budget: CheckBudget
    ) -> Iterator[Problem]:
        try:
            problem = self._validators[name].problem(value, budget)
        except SchemaTooComplexError as error:
            yield Problem(
                json_pointer(name),
                detail=f"The input '{name}' cannot be checked: {error}.",
            )
            return
        if problem is None:
            return
        got = describe_value(value)
        yield Problem(
            json_pointer(name) + problem.pointer,
            detail=f"The input '{name}' {problem.detail}, got {got}.",
            suggestion=self._describe(name),
        )

    def _describe(self, name: str) -> str:
        """The description of an input; may be empty."""
        return str(self.schemas[name].get("description", ""))


def _fits(
    value: Any, schemas: Sequence[JsonMapping], budget: CheckBudget
) -> bool:
    """Whether a value fits one of some JSON Schemas."""
    with contextlib.suppress(SchemaTooComplexError):
        return any(
            SchemaValidator(schema).problem(value, budget) is None
            for schema in schemas
        )
    return False
