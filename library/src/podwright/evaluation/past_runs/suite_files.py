"""Adding a case to the files of a suite."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from podwright.blueprints import from_json, from_yaml, read_file, to_json
from podwright.data.files import replace_file
from podwright.data.json_data import (
    JsonMapping,
    as_array,
    as_object,
    to_json_bytes,
)
from podwright.data.text import os_error_reason, short_repr, truncate
from podwright.errors import (
    BlueprintValidationError,
    ConfigurationError,
    PodwrightError,
)
from podwright.evaluation.past_runs.cases import PastCase
from podwright.evaluation.suite import Suite
from podwright.evaluation.suite_reading.reader import suite_file_in
from podwright.folders.folder import EVALUATION_FOLDER, Folder

CASES_FILE = "cases.jsonl"
"""The file beside a suite to which cases are added."""
_ENTRY = {"file": CASES_FILE}
_LINE = f"- file: {CASES_FILE}"
_SCHEMA = ".podwright/evals.schema.json"
"""The schema that `podwright new` writes for editors."""


@dataclass(frozen=True, slots=True)
class AddedCase:
    """A case that was added to a suite."""

    name: str
    suite_file: Path
    cases_file: Path
    is_begun: bool
    """Whether there was no suite before."""
    missing_line: str = ""
    """The line that `cases` of the suite lacks, because adding it might have destroyed something; empty if none."""


def add_case(path: Path, case: PastCase, name: str = "") -> AddedCase:
    """Add a case to a suite; nothing that is there is changed, but for the line that names the file of cases.

    Args:
        path: A component folder, where a suite is begun if there is none, or the file of a suite.
        case: The case, whose name is changed if there is one of its name.
        name: The name that it gets instead.

    Raises:
        BlueprintValidationError: The case does not fit the component, or the suite is invalid; nothing was written.
        ConfigurationError: There is a case of this name, no component or another one, or a file cannot be written.
    """
    suite_file = suite_file_in(path) if path.is_dir() else path
    is_begun = suite_file is None
    component = path
    names: set[str] = set()
    if suite_file is None:
        suite_file = path / EVALUATION_FOLDER / "evals.yaml"
    else:
        suite = Suite.load(suite_file)
        component = suite.component
        names |= {each.name for each in suite.cases}
    _check_component(component, case.component)
    cases_file = suite_file.parent / CASES_FILE
    names |= {*_names_in(cases_file)}
    own_name = str(case.data["name"])
    named = {**case.data, "name": name or _unique(own_name, names)}
    if name in names:
        raise ConfigurationError(
            f"The suite has a case {short_repr(name)} already.",
            suggestion="Give another --name.",
        )
    before = {file: _content(file) for file in (suite_file, cases_file)}
    try:
        missing = _write(suite_file, cases_file, named, is_begun=is_begun)
        Suite.load(suite_file)
    except OSError as error:
        _restore(before)
        raise ConfigurationError(
            f"Cannot write '{error.filename}': {os_error_reason(error)}."
        ) from error
    except PodwrightError:
        _restore(before)
        raise
    return AddedCase(named["name"], suite_file, cases_file, is_begun, missing)


def _check_component(folder: Path, name: str) -> None:
    """Check that a folder has the component of this name.

    Raises:
        ConfigurationError: It has another one, or none.
    """
    if not Folder(folder).has_blueprint():
        raise ConfigurationError(
            f"'{truncate(str(folder), 200)}' is no component folder.",
            suggestion="Give the folder of the component that the case is for.",
        )
    blueprint = read_file(Folder(folder).blueprint_file())
    if blueprint.get("name") != name:
        raise ConfigurationError(
            f"The run is of {short_repr(name)}, not of {short_repr(blueprint.get('name'))}.",
            suggestion="Give the folder of that component.",
        )


def _names_in(file: Path) -> Iterator[str]:
    """Yield the names of the cases in a file of cases, which the suite may not name yet."""
    for line in (_content(file) or b"").splitlines():
        try:
            name = as_object(from_json(line)).get("name")
        except BlueprintValidationError:
            continue
        if isinstance(name, str):
            yield name


def _unique(name: str, names: set[str]) -> str:
    found = name
    number = 2
    while found in names:
        found = f"{name}-{number}"
        number += 1
    return found


def _content(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None


def _restore(contents: dict[Path, bytes | None]) -> None:
    """Give files the contents that they had; None is a file that was missing."""
    for file, content in contents.items():
        if content is None:
            file.unlink(missing_ok=True)
            # the folder may be new, too
            with contextlib.suppress(OSError):
                file.parent.rmdir()
        elif file.read_bytes() != content:
            file.write_bytes(content)


def _write(
    suite_file: Path, cases_file: Path, case: JsonMapping, *, is_begun: bool
) -> str:
    """Write the case, and name its file in the suite; return the line that had to be left out, or nothing."""
    cases_file.parent.mkdir(exist_ok=True)
    content = _content(cases_file) or b""
    end = b"" if not content or content.endswith(b"\n") else b"\n"
    with cases_file.open("ab") as file:
        file.write(end + to_json_bytes(case) + b"\n")
    if is_begun:
        suite_file.write_text(_first_suite(suite_file), encoding="utf-8")
        return ""
    # with the line ends that it has
    text = suite_file.read_bytes().decode("utf-8")
    is_json = suite_file.suffix.lower() == ".json"
    changed = _in_json(text) if is_json else _in_yaml(text)
    if changed is None:
        return json.dumps(_ENTRY) if is_json else _LINE
    if changed != text:
        replace_file(suite_file, changed)
    return ""


def _first_suite(file: Path) -> str:
    schema = ""
    if (file.parent.parent / _SCHEMA).is_file():
        schema = f"# yaml-language-server: $schema=../{_SCHEMA}\n"
    return f"{schema}cases:\n  {_LINE}\n"


def _in_json(text: str) -> str | None:
    """Return a suite in JSON with the file of cases; None if that would lay it out anew."""
    data = as_object(from_json(text))
    if _has_entry(data):
        return text
    if to_json(data).strip() != text.strip():
        return None
    return to_json({**data, "cases": [*as_array(data.get("cases")), _ENTRY]})


def _in_yaml(text: str) -> str | None:
    """Return a suite in YAML with the file of cases as the first entry of `cases`; None if it is not written in lines.

    So comments stay, and stay with what they are about.
    """
    data = as_object(from_yaml(text))
    if _has_entry(data):
        return text
    place = _first_entry(text)
    if place is None:
        return None
    number, column = place
    lines = text.splitlines(keepends=True)
    end = "\r\n" if lines[number - 1].endswith("\r\n") else "\n"
    lines.insert(number, f"{' ' * column}{_LINE}{end}")
    changed = "".join(lines)
    wanted = {**data, "cases": [_ENTRY, *as_array(data.get("cases"))]}
    try:
        return changed if from_yaml(changed) == wanted else None
    except BlueprintValidationError:
        return None


def _first_entry(text: str) -> tuple[int, int] | None:
    """Return where a first entry of `cases` belongs, as line and column from 0; None if `cases` is in brackets."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode):
        return None
    pairs: list[tuple[yaml.Node, yaml.Node]] = root.value
    for key, value in pairs:
        if key.value != "cases":
            continue
        if not isinstance(value, yaml.SequenceNode) or value.flow_style:
            return None
        line = key.end_mark.line + 1
        if value.start_mark.line < line:
            return None
        return line, value.start_mark.column
    return None


def _has_entry(data: JsonMapping) -> bool:
    entries: list[Any] = list(as_array(data.get("cases")))
    return any(
        isinstance(file := as_object(entry).get("file"), str)
        and Path(file) == Path(CASES_FILE)
        for entry in entries
    )
