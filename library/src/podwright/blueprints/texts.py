"""Long texts in blueprint files: as a list of lines, or in a file of their own.

    "instructions": ["You are a critic.", "Judge the draft."]
    "instructions": {"file": "critic.md"}

The file is in the folder of the blueprint, or below it. Components, requests and exports have the text itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podwright.blueprints.content import read_bytes
from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_array,
    as_object,
    copy_json,
)
from podwright.data.text import did_you_mean, os_error_reason, short_repr
from podwright.errors import Problem
from podwright.steps.registry import step_class, walk_steps

_LINES: JsonObject = {
    "type": "array",
    "items": {"type": "string"},
    "description": "The lines of the text.",
}
_FILE: JsonObject = {
    "type": "object",
    "properties": {
        "file": {
            "type": "string",
            "description": "A path relative to the blueprint, in its folder.",
        }
    },
    "required": ["file"],
    "additionalProperties": False,
    "description": "A file with the text.",
}


def text_key(part: JsonMapping) -> str:
    """Return the key of the long text in a part of a blueprint: a component, a member or a step."""
    return step_class(part).text_key or "instructions"


def text_forms(part: JsonMapping) -> list[JsonObject]:
    """Return the JSON Schemas of the further forms that the text of a part may have in a file."""
    if step_class(part).text_may_be_file:
        return [_LINES, _FILE]
    return [_LINES]


@dataclass(frozen=True, slots=True)
class _Place:
    """A text in a blueprint."""

    pointer: str
    part: JsonObject
    """What has the text."""
    key: str

    @property
    def value(self) -> Any:
        return self.part[self.key]

    @property
    def is_file(self) -> bool:
        may_be_file = step_class(self.part).text_may_be_file
        return may_be_file and isinstance(self.value, dict)


def _places(blueprint: JsonObject) -> Iterator[_Place]:
    for pointer, part in _parts(blueprint):
        key = text_key(part)
        if key in part:
            yield _Place(f"{pointer}/{key}", part, key)


def _parts(blueprint: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    """What may have a text: the blueprint, its skills and its steps."""
    yield "", blueprint
    skills = as_array(blueprint.get("skills"))
    for index, skill in enumerate(skills):
        yield f"/skills/{index}", as_object(skill)
    yield from walk_steps(blueprint.get("steps"))


def with_texts(
    source: JsonMapping, folder: Path
) -> tuple[JsonObject, list[Problem]]:
    """A blueprint with all texts as strings, and the problems of those that cannot be read.

    Args:
        source: The data of a blueprint file, valid or not.
        folder: The folder of the file.
    """
    blueprint = copy_json(dict(source))
    problems: list[Problem] = []
    for place in _places(blueprint):
        if isinstance(place.value, list):
            problems += _join_lines(place)
        elif place.is_file:
            problems += _read_text(place, folder)
    return blueprint, problems


def text_files(source: JsonMapping) -> list[str]:
    """The files that the texts of a blueprint name, as the data of its file have them."""
    blueprint = dict(source)
    names: list[str] = []
    for place in _places(blueprint):
        name = as_object(place.value).get("file")
        if place.is_file and isinstance(name, str):
            names.append(name)
    return names


def _join_lines(place: _Place) -> Iterator[Problem]:
    lines = as_array(place.value)
    wrong = False
    for index, line in enumerate(lines):
        if not isinstance(line, str):
            wrong = True
            pointer = f"{place.pointer}/{index}"
            detail = f"Expected a line of text, got {short_repr(line)}."
            yield Problem(pointer, detail, "Put it in quotes.")
    if not wrong:
        place.part[place.key] = "\n".join(lines)


def _read_text(place: _Place, folder: Path) -> Iterator[Problem]:
    reference = as_object(place.value)
    name = reference.get("file")
    if not isinstance(name, str) or len(reference) > 1:
        yield Problem(
            place.pointer,
            detail="Expected a text, its lines, or an object with the key 'file' alone.",
            suggestion='Write {"file": "prompt.md"}.',
        )
        return
    pointer = f"{place.pointer}/file"
    try:
        file = folder / name
        if not _is_inside(file, folder):
            yield Problem(
                pointer,
                detail=f"The file {short_repr(name)} is outside the folder of the blueprint.",
                suggestion="Move it into the folder, and give its path from there.",
            )
            return
        text = read_bytes(file).decode("utf-8-sig")
    # Python 3.11 raises RuntimeError for a link to itself
    except (OSError, ValueError, RuntimeError) as error:
        reason = os_error_reason(error)
        hint = ""
        if isinstance(error, FileNotFoundError):
            hint = _similar_file(folder, name)
        yield Problem(
            pointer,
            detail=f"Cannot read the file {short_repr(name)}: {reason}.",
            suggestion=hint,
        )
        return
    text = text.replace("\r\n", "\n")
    # editors end the last line of a file
    place.part[place.key] = text.removesuffix("\n")


def _is_inside(file: Path, folder: Path) -> bool:
    """Whether a path leads to a file in a folder, also if it is a link."""
    return file.resolve().is_relative_to(folder.resolve())


def _similar_file(folder: Path, name: str) -> str:
    try:
        names = sorted(path.name for path in folder.glob("[!.]*.*"))
    except OSError:
        return ""
    return did_you_mean(Path(name).name, names)
