"""The JSON Schemas of a blueprint that types in `schemas.py` of its folder write: their titles are the names of these.

A blueprint begins with the name, `"response_schema": {"title": "Answer"}`, and `podwright sync` writes the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from podwright import blueprints
from podwright.blueprints.members import parts_of
from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_object,
    json_pointer,
)
from podwright.data.text import did_you_mean
from podwright.errors import ConfigurationError, Problem
from podwright.folders.folder import TYPES_FILE, Folder
from podwright.schemas.response_schema import schema_of_type
from podwright.steps.registry import step_class, walk_steps

_PLACES = ("/config/response_schema", "/inputs/*", "/workflow/inputs/*")
"""Where a component or a step has JSON Schemas, besides those of its kind of step."""
_OF_THE_BLUEPRINT = ("title", "description", "default", "examples")
"""Keywords that a blueprint may have of its own: they say nothing of the values that fit."""
_HOW_TO_WRITE = "Run `podwright sync`."


@dataclass(frozen=True, slots=True)
class TypedSchema:
    """A JSON Schema in a blueprint that a type writes."""

    pointer: str
    stored: JsonObject
    """The schema as the blueprint has it."""
    own: JsonObject
    """The schema of the type, with what only the blueprint says."""

    @property
    def is_written(self) -> bool:
        """Whether the blueprint has more of it than the name of the type."""
        return _is_written(self.stored)

    @property
    def is_current(self) -> bool:
        """Whether both mean the same; titles of fields, which pydantic writes by default, mean nothing."""
        return _without_titles(self.stored) == _without_titles(self.own)


def typed_schemas(
    folder: Folder, blueprint: JsonMapping
) -> tuple[list[TypedSchema], list[Problem]]:
    """Return the JSON Schemas of a blueprint that types of a folder write, and the problems of those that have none.

    Where a folder has types, the title of each schema names one.

    Args:
        folder: The folder with the code of the blueprint.
        blueprint: A blueprint of any kind, valid or not.

    Raises:
        ConfigurationError: The types cannot be imported.
    """
    typed: list[TypedSchema] = []
    problems: list[Problem] = []
    titled = list(_titled_schemas(blueprint))
    types = folder.types([name for _, name, _ in titled])
    for pointer, name, stored in titled:
        if name in types:
            try:
                own = schema_of_type(name, types[name])
            except ConfigurationError as error:
                detail = f"{TYPES_FILE}: {error.message}"
                problems.append(Problem(pointer, detail, error.suggestion))
                continue
            typed.append(TypedSchema(pointer, stored, _merged(stored, own)))
        elif folder.has_types:
            hint = did_you_mean(
                name, types, otherwise="Define it there, or remove the title."
            )
            detail = f"{TYPES_FILE} has no type '{name}'."
            problems.append(Problem(f"{pointer}/title", detail, hint))
    return typed, problems


def outdated_schemas(folder: Folder, blueprint: JsonMapping) -> list[Problem]:
    """Return where the schemas of a blueprint are not those of the types that they name; `sync` writes them.

    Args:
        folder: The folder with the code of the blueprint.
        blueprint: A valid blueprint.

    Raises:
        BlueprintValidationError: One has nothing but a title, whether it names a type or not, so that every value
            would fit.
        ConfigurationError: The types cannot be imported.
    """
    typed, problems = typed_schemas(folder, blueprint)
    empty = {
        pointer
        for pointer, _, stored in _titled_schemas(blueprint)
        if not _is_written(stored)
    }
    unwritten = [
        problem
        for problem in problems
        if problem.pointer.removesuffix("/title") in empty
    ]
    unwritten += [
        Problem(
            schema.pointer,
            detail=f"The schema of the type '{schema.own['title']}' is not written yet.",
            suggestion=_HOW_TO_WRITE,
        )
        for schema in typed
        if not schema.is_written
    ]
    if unwritten:
        raise blueprints.invalid(unwritten)
    return [
        Problem(
            schema.pointer,
            detail=f"The schema is not that of the type '{schema.own['title']}' in {TYPES_FILE}.",
            suggestion="Run `podwright sync`, or change the type back.",
        )
        for schema in typed
        if not schema.is_current
    ]


def _is_written(schema: JsonMapping) -> bool:
    return not schema.keys() <= set(_OF_THE_BLUEPRINT)


def _titled_schemas(
    blueprint: JsonMapping,
) -> Iterator[tuple[str, str, JsonObject]]:
    """Yield the schemas that have a title, each with its JSON pointer and the title."""
    parts = dict(parts_of(blueprint))
    parts.update(walk_steps(blueprint.get("steps")))
    for at, part in parts.items():
        for place in (*_PLACES, *step_class(part).schemas):
            for pointer, schema in _objects_at(part, place[1:].split("/"), at):
                title = schema.get("title")
                if isinstance(title, str):
                    yield pointer, title, schema


def _objects_at(
    value: object, keys: Sequence[str], pointer: str
) -> Iterator[tuple[str, JsonObject]]:
    fields = as_object(value)
    if not keys:
        yield pointer, fields
        return
    key, *rest = keys
    for name in fields if key == "*" else [key]:
        if name in fields:
            inner = pointer + json_pointer(name)
            yield from _objects_at(fields[name], rest, inner)


def _merged(stored: JsonMapping, own: JsonMapping) -> JsonObject:
    """Return the schema of a type with what only the blueprint says, such as a default."""
    kept = {
        key: stored[key]
        for key in _OF_THE_BLUEPRINT
        if key in stored and key not in own
    }
    return {"title": own["title"], **kept, **own}


def _without_titles(schema: Any, *, are_names: bool = False) -> Any:
    """Return a schema without titles; `are_names` says that the keys are names of properties or definitions."""
    if isinstance(schema, list):
        return [_without_titles(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    fields = cast("JsonObject", schema)
    return {
        key: _without_titles(
            value,
            are_names=not are_names and key in ("properties", "$defs"),
        )
        for key, value in fields.items()
        if are_names or key != "title"
    }
