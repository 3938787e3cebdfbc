"""Reading a suite from a component folder or a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podwright import blueprints
from podwright.blueprints.files import SUFFIXES, read_data
from podwright.blueprints.validation import MAX_DEPTH, json_problems
from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_array,
    as_object,
    describe_value,
    walk_json,
)
from podwright.data.text import truncate
from podwright.errors import (
    BlueprintValidationError,
    ConfigurationError,
    Problem,
)
from podwright.evaluation.suite_reading.cases import (
    check_decisions,
    check_inputs,
    read_cases,
)
from podwright.evaluation.suite_reading.checks import (
    SuiteChecks,
    judges_in,
    read_fakes,
)
from podwright.evaluation.suite_reading.component_parts import ComponentParts
from podwright.evaluation.suite_reading.source import SuiteSource
from podwright.evaluation.suite_reading.variants import (
    ReadVariant,
    VariantReader,
)
from podwright.evaluation.suite_schema import shape_problems
from podwright.folders.folder import EVALUATION_FOLDER, Folder
from podwright.schemas.validation_errors import MAX_PROBLEMS

_MAX_VALUES = 200_000
"""Values in a file: aliases of YAML can stand for many more of them than it has bytes."""
_SUGGESTION = "Correct the listed problems; `podwright schema evals` prints the JSON Schema of suites."


@dataclass(frozen=True, slots=True)
class ReadSuite:
    """A valid suite, with its cases, variants and gates as data."""

    component: Path
    file: Path
    data: JsonMapping
    """What the file says."""
    cases: Sequence[JsonMapping]
    variants: Mapping[str, ReadVariant]
    baseline: str
    fakes: Mapping[str, Any]
    judges: Mapping[str, Path]
    conditions: Mapping[str, Callable[..., Any]]


def suite_file_in(folder: Path) -> Path | None:
    """Return the suite's file of a component folder; None if it has none.

    Raises:
        ConfigurationError: There is more than one.
    """
    paths = [
        folder / EVALUATION_FOLDER / f"evals{suffix}" for suffix in SUFFIXES
    ]
    files = [path for path in paths if path.is_file()]
    if len(files) > 1:
        listed = ", ".join(file.name for file in files)
        raise ConfigurationError(
            f"The folder '{folder.name}' has more than one suite: {listed}.",
            suggestion="Give the path of one of them, or remove the others.",
        )
    return next(iter(files), None)


def read_suite(path: Path) -> ReadSuite:
    """Read a suite, and check all that can be checked without a run.

    Args:
        path: A component folder, or the file of a suite.

    Raises:
        BlueprintValidationError: The suite is invalid; with all problems. Or a blueprint of the component is.
        ConfigurationError: There is no suite, or a file cannot be read.
    """
    file = path
    if not _exists(path):
        raise ConfigurationError(
            f"There is no file or folder '{truncate(str(path), 200)}'.",
            suggestion="Give the component's folder, or the path of its suite.",
        )
    if path.is_dir():
        own = suite_file_in(path)
        if own is None:
            raise ConfigurationError(
                f"The folder '{path.name}' has no suite.",
                suggestion=f"Write {EVALUATION_FOLDER}/evals.yaml in it, or give the path of a suite.",
            )
        file = own
    data = _read_object(file)
    found = shape_problems(data)
    component = file.absolute().parent.parent
    at = ""
    if isinstance(data.get("component"), str):
        component = file.parent / data["component"]
        at = "/component"
    if not _is_component(component):
        name = truncate(str(component), 200)
        detail = f"'{name}' is no component folder."
        hint = "Let 'component' be the path of one from the suite's file."
        found.append(Problem(at, detail, hint))
    if found:
        raise _suite_error(file, found)
    parts = ComponentParts.of(Folder(component))
    source = SuiteSource(component, file, parts)
    suite = _read(data, source)
    if source.problems:
        raise _suite_error(file, source.problems)
    return suite


def _is_component(path: Path) -> bool:
    try:
        return Folder(path).has_blueprint()
    # Python 3.11 raises RuntimeError for a link to itself
    except (OSError, ValueError, RuntimeError):
        return False


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    # such as a name that is too long
    except (OSError, ValueError):
        return False


def _read(data: JsonObject, source: SuiteSource) -> ReadSuite:
    cases = read_cases(data["cases"], source)
    variants = VariantReader(data, source)
    variants.read()
    baseline = variants.baseline()
    check_inputs(cases, source)
    check_decisions(as_array(data.get("decisions")), cases, source)
    fakes = read_fakes(as_object(data.get("fakes")), source)
    judges = judges_in(source.folder)
    checks = SuiteChecks(as_array(data.get("checks")), cases, source)
    conditions = checks.conditions()
    checks.check(conditions, judges)
    return ReadSuite(
        component=source.component,
        file=source.file,
        data=data,
        cases=[case.data for case in cases],
        variants=variants.variants,
        baseline=baseline,
        fakes=fakes,
        judges=judges,
        conditions=conditions,
    )


def _suite_error(
    file: Path, problems: Sequence[Problem]
) -> BlueprintValidationError:
    listed = list(problems[:MAX_PROBLEMS])
    name = truncate(str(file), 200)
    error = blueprints.invalid(listed, f"The suite '{name}'")
    return BlueprintValidationError(
        error.message, problems=listed, suggestion=_SUGGESTION
    )


def _read_object(file: Path) -> JsonObject:
    if file.suffix.lower() not in SUFFIXES:
        raise ConfigurationError(
            f"'{truncate(str(file), 200)}' is not a suite: the name of one ends in .json, .yaml or .yml.",
            suggestion="Give the component's folder, or the path of its suite.",
        )
    data = read_data(file)
    for number, (_, _, depth) in enumerate(walk_json(data)):
        if number > _MAX_VALUES:
            detail = f"It has more than {_MAX_VALUES} values."
            raise _suite_error(file, [Problem("", detail)])
        # an alias of what it is in has no end
        if depth > MAX_DEPTH:
            break
    found = list(json_problems(data))
    if not found and data != as_object(data):
        detail = f"A suite must be an object, not {describe_value(data)}."
        found = [Problem("", detail)]
    if found:
        raise _suite_error(file, found)
    contents = as_object(data)
    contents.pop("$schema", None)
    return contents
