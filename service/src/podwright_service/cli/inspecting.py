"""The commands that look at blueprints, and run nothing: `validate`, `diff`, `schema` and `graph`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from podwright import blueprints
from podwright.blueprints import Blueprint
from podwright.components import Component
from podwright.components.folder import Folder
from podwright.conditions import BUILT_IN
from podwright.conditions import problems as condition_problems
from podwright.errors import BlueprintValidationError, ConfigurationError, PodwrightError, Problem
from podwright.json_data import as_array, as_object
from podwright.text import did_you_mean, short_repr
from podwright_service.cli.console import hint, say, say_json
from podwright_service.remotes import remotes_of
from podwright_service.settings import read_settings
from podwright_service.source import is_folder, load_component


def validate_all(paths: list[str], as_json: bool) -> int:
    """Check each, print what is wrong or that nothing is, and give the exit code.

    Raises:
        ConfigurationError: The settings are wrong, whatever the blueprints are.
    """
    remotes = remotes_of(read_settings()) if any(map(is_folder, paths)) else {}
    reports = [_report(path, remotes) for path in paths]
    if as_json:
        say_json(reports)
    else:
        for one in reports:
            for problem in one["problems"]:
                extra = f" {problem['suggestion']}" if problem["suggestion"] else ""
                say(f"{one['path']}:{problem['pointer'] or '/'}: {problem['detail']}{extra}")
            if one["valid"]:
                say(f"{one['path']}: valid {one['kind']} '{one['name']}', {one['digest']}")
    return 0 if all(one["valid"] for one in reports) else 1


def _report(path: str, remotes: Mapping[str, Component]) -> dict[str, Any]:
    found: list[Problem] = []
    facts: dict[str, Any] = {}
    try:
        blueprint = _blueprint(path)
        found = blueprints.problems(blueprint) or _unfit(path, blueprint, remotes)
        if not found:
            facts = {"kind": blueprints.kind_of(blueprint), "name": blueprint["name"]}
            facts["digest"] = blueprints.digest(blueprint)
    except BlueprintValidationError as error:
        found = list(error.problems)
    except PodwrightError as error:
        found = [Problem("", error.message, error.suggestion)]
    listed = [{"pointer": one.pointer, "detail": one.detail, "suggestion": one.suggestion} for one in map(hint, found)]
    return {"path": path, "valid": not found, **facts, "problems": listed}


def _unfit(path: str, blueprint: Blueprint, remotes: Mapping[str, Component]) -> list[Problem]:
    """What is wrong beyond the data: in a folder with code and agents beside it, in a file with built-in conditions."""
    if is_folder(path):
        load_component(path, remotes)
        return []
    found: list[Problem] = []
    for at, step in blueprints.walk_steps(blueprint.get("steps")):
        for key in ("condition", "until"):
            if as_object(step.get(key)).get("name") in BUILT_IN:
                theirs = {name: bool for name in _names(step[key]) if name not in BUILT_IN}
                found += condition_problems(step[key], f"{at}/{key}", theirs)
    return found


def _names(value: object) -> list[str]:
    """Every text under a "name": among a condition's arguments, those that a caller may give are known nowhere else."""
    within = [*as_object(value).values(), *as_array(value)]
    own = as_object(value).get("name")
    return [*([own] if isinstance(own, str) else []), *(name for one in within for name in _names(one))]


def _blueprint(path: str) -> Blueprint:
    return Folder(Path(path)).blueprint() if is_folder(path) else blueprints.read_file(path)


def _valid(path: str) -> Blueprint:
    blueprint = _blueprint(path)
    if found := blueprints.problems(blueprint):
        raise blueprints.invalid(found, f"The blueprint '{path}'")
    return blueprint


def print_diff(old: str, new: str, as_json: bool) -> bool:
    """Print the changes, and tell whether one of them is breaking.

    Raises:
        PodwrightError: One of the two is no blueprint.
    """
    changes = blueprints.diff(_valid(old), _valid(new))
    if as_json:
        say_json(changes)
    for change in () if as_json else changes:
        was, now = short_repr(change.old), short_repr(change.new)
        values = {"added": now, "removed": was, "changed": f"{was} -> {now}"}[change.op]
        say(f"{change}: {values}")
    return any(change.breaking for change in changes)


def print_schema(kind: str | None) -> None:
    """Print one kind's JSON Schema, or those of all by name.

    Raises:
        ConfigurationError: There is no such kind.
    """
    schemas = blueprints.json_schema()
    if kind is not None and kind.lower() not in schemas:
        raise ConfigurationError(f"There is no kind '{kind[:60]}'.", suggestion=did_you_mean(kind.lower(), schemas))
    say_json(schemas[kind.lower()] if kind is not None else schemas)


def print_graph(path: str) -> None:
    """Print a blueprint as a flowchart.

    Raises:
        PodwrightError: It is no blueprint.
    """
    say(blueprints.mermaid(_valid(path)).rstrip("\n"))
