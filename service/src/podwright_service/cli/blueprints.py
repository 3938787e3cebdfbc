"""The commands that inspect blueprints: `validate`, `diff`, `schema` and `graph`."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from podwright import blueprints
from podwright.blueprints.diff import Change, blueprint_changes
from podwright.blueprints.flowchart import mermaid
from podwright.blueprints.validation import Blueprint
from podwright.components import Component
from podwright.components.folder import Folder
from podwright.components.template_names import check_names, instructions_of
from podwright.conditions import BUILT_IN
from podwright.conditions import problems as condition_problems
from podwright.errors import (
    BlueprintValidationError,
    ConfigurationError,
    PodwrightError,
    Problem,
)
from podwright.json_data import as_array, as_object, walk_json
from podwright.text import did_you_mean, short_repr, truncate
from podwright_service.cli.console import print_json, print_text
from podwright_service.http.auth import ApiKeys
from podwright_service.model_checks import clients_of, model_errors, price_warnings
from podwright_service.remotes import remotes_of
from podwright_service.settings import Settings, adopt_secrets, read_settings
from podwright_service.source import is_folder, load_component

_MODEL = re.compile(r"(/(skills|steps)/\d+)?/config/(model|fallback/\d+)")
"""Where a blueprint names models."""


def validate(paths: list[str], as_json: bool) -> int:
    """Check blueprints, and print every problem.

    Returns:
        The exit code: 0 if all are valid, else 1.

    Raises:
        ConfigurationError: The settings are invalid.
    """
    settings = read_settings()
    ApiKeys(settings)
    adopt_secrets()
    reports = [_report(path, settings) for path in paths]
    if as_json:
        print_json(reports)
    for report in () if as_json else reports:
        for label, problems in (
            ("", report["problems"]),
            ("warning: ", report["warnings"]),
        ):
            for problem in problems:
                place = f"{report['path']}:{problem['pointer'] or '/'}"
                print_text(
                    f"{place}: {label}{problem['detail']} {problem['suggestion']}".rstrip()
                )
        if report["valid"]:
            print_text(
                f"{report['path']}: valid {report['kind']} '{report['name']}', {report['digest']}"
            )
            for name, choice in report["clients"].items():
                print_text(
                    f"{report['path']}: {name}: client '{choice['client']}', because {choice['reason']}"
                )
    return 0 if all(report["valid"] for report in reports) else 1


def _report(path: str, settings: Settings) -> dict[str, Any]:
    problems: list[Problem] = []
    warnings: list[Problem] = []
    facts: dict[str, Any] = {}
    component: Component | None = None
    try:
        blueprint = _read(path)
        warnings = blueprints.warnings(blueprint)
        problems = blueprints.problems(blueprint)
        if not problems:
            component = (
                load_component(path, remotes_of(settings)) if is_folder(path) else None
            )
            found = check_names(blueprint, instructions_of(component))
            problems = [
                *_problems_in_context(component, blueprint, settings),
                *found.problems,
            ]
            warnings += found.warnings
        if not problems:
            facts = {"kind": blueprints.kind_of(blueprint), "name": blueprint["name"]}
            facts["digest"] = blueprints.digest(blueprint)
            models = (
                [settings.model] if settings.model else _models_in(component, blueprint)
            )
            warnings += price_warnings(models)
            facts["clients"] = {
                name: choice.model_dump() for name, choice in clients_of(models).items()
            }
    except BlueprintValidationError as error:
        problems = list(error.problems)
    except PodwrightError as error:
        problems = [Problem("", error.message, error.suggestion)]
    lists = {
        "problems": [asdict(problem) for problem in problems],
        "warnings": [asdict(item) for item in warnings],
    }
    return {"path": path, "valid": not problems, **facts, **lists}


def _problems_in_context(
    component: Component | None, blueprint: Blueprint, settings: Settings
) -> list[Problem]:
    """What the data alone do not show: a folder's code and agents, a file's built-in conditions, keys of models."""
    models = _models_in(component, blueprint)
    problems: list[Problem] = []
    for name, pointer in ({settings.model: ""} if settings.model else models).items():
        problems += [
            Problem(pointer, error.message, error.suggestion)
            for error in model_errors([name])
        ]
    for pointer, step in blueprints.walk_steps(blueprint.get("steps")):
        for key in ("condition", "until"):
            if as_object(step.get(key)).get("name") in BUILT_IN:
                custom = {
                    name: bool for name in _names(step[key]) if name not in BUILT_IN
                }
                problems += condition_problems(step[key], f"{pointer}/{key}", custom)
    return problems


def _models_in(component: Component | None, blueprint: Blueprint) -> dict[str, str]:
    """The names of the models, and where the blueprint has them."""
    named = {
        value: at
        for at, value, _ in walk_json(blueprint)
        if isinstance(value, str) and _MODEL.fullmatch(at)
    }
    others = [] if component is None else component.models()
    return {**dict.fromkeys(others, ""), **named}


def _names(value: object) -> list[str]:
    """Every string with the key "name": the names of conditions, nested ones included."""
    name = as_object(value).get("name")
    children = [*as_object(value).values(), *as_array(value)]
    return [
        *([name] if isinstance(name, str) else []),
        *(name for child in children for name in _names(child)),
    ]


def _read(path: str) -> Blueprint:
    return (
        Folder(Path(path)).blueprint()
        if is_folder(path)
        else blueprints.read_file(path)
    )


def _read_valid(path: str) -> Blueprint:
    blueprint = _read(path)
    if problems := blueprints.problems(blueprint):
        raise blueprints.invalid(problems, f"The blueprint '{path}'")
    return blueprint


def print_diff(old: str, new: str, as_json: bool) -> bool:
    """Print the changes between two blueprints, and return whether one of them is breaking.

    Raises:
        PodwrightError: One of the two is not a valid blueprint.
    """
    changes = blueprint_changes(_read_valid(old), _read_valid(new))
    if as_json:
        print_json(changes)
    else:
        for change in changes:
            print_text(describe_change(change))
    return any(change.breaking for change in changes)


def describe_change(change: Change) -> str:
    """A change with its values, on one line."""
    old = short_repr(change.old)
    new = short_repr(change.new)
    values = {"added": new, "removed": old, "changed": f"{old} -> {new}"}[change.op]
    return f"{change}: {values}"


def print_schema(kind: str | None) -> None:
    """Print the JSON Schema of a kind, or of all kinds by name.

    Raises:
        ConfigurationError: The kind is unknown.
    """
    schemas = blueprints.json_schema()
    if kind is not None and kind.lower() not in schemas:
        suggestion = did_you_mean(kind.lower(), schemas)
        raise ConfigurationError(
            f"Unknown kind '{truncate(kind, 60)}'.", suggestion=suggestion
        )
    print_json(schemas[kind.lower()] if kind is not None else schemas)


def print_graph(path: str) -> None:
    """Print a blueprint as a Mermaid flowchart.

    Raises:
        PodwrightError: It is not a valid blueprint.
    """
    print_text(mermaid(_read_valid(path)).rstrip("\n"))
