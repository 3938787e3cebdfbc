"""The inputs that a component declares: their defaults, and the check of a run's named inputs."""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Mapping
from functools import cached_property
from typing import Any

from podwright.errors import InputsError, Problem
from podwright.json_data import (
    JsonMapping,
    JsonObject,
    as_array,
    copy_json,
    json_pointer,
)
from podwright.schema_validator import SchemaValidator
from podwright.text import did_you_mean
from podwright.validation_errors import describe_value

INPUT = "input"
"""The name of an input that every component takes, declared or not: the text of a run."""


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
        complete: JsonObject = {**given}
        for name, value in self.defaults.items():
            complete.setdefault(name, value)
        problems = list(self._problems(complete, also_known))
        if problems:
            count = f"{len(problems)} problems"
            if len(problems) == 1:
                count = "1 problem"
            raise InputsError(
                f"The inputs of '{self._component}' are invalid: {count}.",
                problems=problems,
            )
        return complete

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

    def convert_texts(self, given: JsonMapping) -> JsonObject:
        """Named inputs from where all values are texts: `{"count": "3"}` becomes `{"count": 3}` if that is an integer.

        A text that its schema takes stays as it is. Another one becomes the data in it, if it is JSON.
        """
        converted: JsonObject = {**given}
        for name, value in given.items():
            if name in self.schemas and isinstance(value, str):
                converted[name] = self._data_in(name, value)
        return converted

    def _data_in(self, name: str, text: str) -> Any:
        validator = self._validators[name]
        if validator.problem(text) is None:
            return text
        try:
            data = json.loads(text)
            # JSON has neither NaN nor infinities
            json.dumps(data, allow_nan=False)
        except (ValueError, RecursionError):
            return text
        types = self.schemas[name].get("type")
        is_text = types == "string" or "string" in as_array(types)
        if is_text and validator.problem(data) is not None:
            # what is wrong is the text, such as its length
            return text
        return data

    def select(self, values: JsonMapping) -> JsonObject:
        """The declared inputs among some values."""
        return {name: values[name] for name in self.schemas if name in values}

    def _problems(
        self, inputs: JsonMapping, also_known: Container[str]
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
                yield from self._value_problems(name, value)
            elif name != INPUT and name not in also_known:
                yield Problem(
                    json_pointer(name),
                    detail=f"Unknown input '{name}'.",
                    suggestion=did_you_mean(name, self.schemas),
                )

    def _value_problems(self, name: str, value: Any) -> Iterator[Problem]:
        problem = self._validators[name].problem(value)
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
