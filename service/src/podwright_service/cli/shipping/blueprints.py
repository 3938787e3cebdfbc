"""The commands that inspect blueprints: `validate`, `diff`, `schema` and `graph`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from podwright import blueprints
from podwright.blueprints.diff import (
    blueprint_changes,
    describe_change,
    lock_changes,
)
from podwright.blueprints.flowchart import mermaid
from podwright.blueprints.members import members_of
from podwright.blueprints.named_parts import agent_names, names_in_condition
from podwright.blueprints.validation import Blueprint
from podwright.components import Component
from podwright.conditions import BUILT_IN
from podwright.conditions import problems as condition_problems
from podwright.data.json_data import as_object, walk_json
from podwright.data.text import did_you_mean, truncate
from podwright.errors import (
    BlueprintValidationError,
    ConfigurationError,
    PodwrightError,
    Problem,
)
from podwright.folders.error_codes import misspelt_codes
from podwright.folders.folder import EVALUATION_FOLDER, Folder
from podwright.folders.loader import unknown_agent_error
from podwright.folders.typed_schemas import outdated_schemas
from podwright.folders.walks import (
    component_digest,
    reported_models_of,
    tools_of,
    walk,
)
from podwright.kinds import TRAITS
from podwright.models import EVERY
from podwright.steps.registry import step_class
from podwright.tools.entries import outdated_texts
from podwright.tools.tool import Tool
from podwright.workflows.template_names import blueprints_of, check_names
from podwright_service.cli.console import print_json, print_text
from podwright_service.http.access.auth import ApiKeys
from podwright_service.mcp_servers import servers_of
from podwright_service.model_checks import (
    agents_with_models,
    clients_of,
    model_errors,
    price_warnings,
)
from podwright_service.remotes import remotes_of
from podwright_service.settings import Settings, adopt_secrets, read_settings
from podwright_service.source import (
    is_folder,
    load_component,
    names_module,
    read_blueprint,
    whole,
)

_MODEL = re.compile(
    r"(/(?P<list>skills|steps)/(?P<number>\d+))?/config/(model|fallback/\d+)"
)
"""Where a blueprint names models."""
_SUITES = "evals"
"""The name of the JSON Schema of suites, beside those of the kinds of blueprints."""


def validate(paths: list[str], as_json: bool, model: str | None = None) -> int:
    """Check blueprints, and print every problem.

    Args:
        paths: Blueprint files and component folders.
        as_json: Whether to print JSON.
        model: Models in place of those in the blueprints, as in the setting `model`.

    Returns:
        The exit code: 0 if all are valid, else 1.

    Raises:
        ConfigurationError: The settings are invalid, or have a model for an agent that is in no valid blueprint.
    """
    settings = read_settings(model=model)
    ApiKeys(settings)
    adopt_secrets()
    agents: set[str] = set()
    reports: list[dict[str, Any]] = []
    for path in paths:
        report, own_agents = _report(path, settings)
        reports.append(_with_suite(report))
        agents |= own_agents
    if all(report["valid"] for report in reports):
        for name in settings.models.keys() - {EVERY} - agents:
            raise unknown_agent_error(name, settings.place_of("model"), agents)
    if as_json:
        print_json(reports)
    else:
        for report in reports:
            _print_report(report)
    if all(report["valid"] for report in reports):
        return 0
    return 1


def _print_report(report: Mapping[str, Any]) -> None:
    path = report["path"]
    for problem in report["problems"]:
        _print_problem(path, "", problem)
    for warning in report["warnings"]:
        _print_problem(path, "warning: ", warning)
    if not report["valid"]:
        return
    print_text(
        f"{path}: valid {report['kind']} '{report['name']}', {report['digest']}"
    )
    for name, choice in report["clients"].items():
        client = choice["client"]
        print_text(
            f"{path}: {name}: client '{client}', because {choice['reason']}"
        )


def _print_problem(path: str, label: str, problem: Mapping[str, str]) -> None:
    file = str(Path(path, problem["file"])) if "file" in problem else path
    place = f"{file}:{problem['pointer'] or '/'}"
    text = f"{place}: {label}{problem['detail']} {problem['suggestion']}"
    print_text(text.rstrip())


def _report(path: str, settings: Settings) -> tuple[dict[str, Any], set[str]]:
    """What is wrong with a blueprint, and what is known of it; and the names of its agents.

    Args:
        path: The blueprint.
        settings: The models that replace its own.
    """
    own_agents: set[str] = set()
    problems: list[Problem] = []
    warnings: list[Problem] = []
    facts: dict[str, Any] = {}
    try:
        blueprint = read_blueprint(path)
        warnings = blueprints.warnings(blueprint)
        problems = blueprints.problems(blueprint)
        models: Mapping[str, str] = {}
        component = None
        if not problems:
            if is_folder(path) or names_module(path):
                component = whole(
                    load_component(
                        path, remotes_of(settings), servers_of(settings) or None
                    )
                )
                warnings += outdated_texts(blueprint, tools_of(component))
            if is_folder(path):
                folder = Folder(Path(path))
                warnings += outdated_schemas(folder, blueprint)
                warnings += misspelt_codes(folder, blueprint)
            own_agents = _agents_in(component, blueprint)
            replaced = {
                name: model
                for name, model in settings.models.items()
                if name in own_agents or name == EVERY
            }
            models = _models_in(component, blueprint, replaced)
            functions: Mapping[str, Tool] = {}
            if component is not None:
                functions = component.own_tools()
            found = check_names(blueprint, blueprints_of(component), functions)
            problems = [
                *_problems_in_context(models, blueprint),
                *found.problems,
            ]
            warnings += found.warnings
        if not problems:
            facts = {
                "kind": blueprints.kind_of(blueprint),
                "name": blueprint["name"],
                "digest": blueprints.digest(blueprint),
            }
            if component is not None:
                facts["digest"] = component_digest(component)
            reported: list[str] = []
            if component is not None:
                reported = reported_models_of(component)
            warnings += price_warnings(models, reported=reported)
            choices = clients_of(models)
            facts["clients"] = {
                name: choices[name].model_dump() for name in choices
            }
    except BlueprintValidationError as error:
        problems = list(error.problems)
    except PodwrightError as error:
        problems = [Problem("", error.message, error.suggestion)]
    report = {
        "path": path,
        "valid": not problems,
        **facts,
        "problems": [asdict(problem) for problem in problems],
        "warnings": [asdict(warning) for warning in warnings],
    }
    return report, own_agents


def _with_suite(report: dict[str, Any]) -> dict[str, Any]:
    """The report on a valid component folder, with the problems of its suite, each with the suite's file."""
    path = report["path"]
    if not report["valid"] or not is_folder(path):
        return report
    folder = Path(path)
    place = EVALUATION_FOLDER
    if not (folder / place).is_dir():
        return report
    from podwright.evaluation.suite_reading.reader import (
        read_suite,
        suite_file_in,
    )

    try:
        file = suite_file_in(folder)
        if file is None:
            return report
        place = file.relative_to(folder).as_posix()
        read_suite(file)
    except BlueprintValidationError as error:
        problems = error.problems
    except PodwrightError as error:
        problems = (Problem("", error.message, error.suggestion),)
    else:
        return report
    listed = [{**asdict(problem), "file": place} for problem in problems]
    return {**report, "valid": False, "problems": listed}


def _problems_in_context(
    models: Mapping[str, str], blueprint: Blueprint
) -> list[Problem]:
    """What the data alone do not show: keys of models, and the conditions that are built in."""
    problems: list[Problem] = []
    for name, pointer in models.items():
        errors = model_errors([name])
        problems += [
            Problem(pointer, each.message, each.suggestion) for each in errors
        ]
    for pointer, step in blueprints.walk_steps(blueprint.get("steps")):
        for key in step_class(step).condition_keys:
            condition = as_object(step.get(key))
            if condition.get("name") not in BUILT_IN:
                continue
            names = [
                name
                for name in names_in_condition(condition)
                if name not in BUILT_IN
            ]
            custom = dict.fromkeys(names, bool)
            problems += condition_problems(
                condition, f"{pointer}/{key}", custom
            )
    return problems


def _models_in(
    component: Component | None,
    blueprint: Blueprint,
    replaced: Mapping[str, str],
) -> dict[str, str]:
    """The names of the models, and where the blueprint has them; those that replace others are nowhere in it."""
    if EVERY in replaced:
        return dict.fromkeys(replaced.values(), "")
    models: dict[str, str] = {}
    if component is not None:
        for part in walk(component):
            if part.name not in replaced:
                models |= dict.fromkeys(part.own_models(), "")
    for pointer, value, _ in walk_json(blueprint):
        match = _MODEL.fullmatch(pointer)
        if match is None or not isinstance(value, str):
            continue
        owner = blueprint["name"]
        if match["list"]:
            owner = blueprint[match["list"]][int(match["number"])]["name"]
        # the model of a team is also that of its members without one
        has_members = bool(TRAITS[blueprints.kind_of(blueprint)].member_key)
        is_team = has_members and not match["list"]
        if is_team or owner not in replaced:
            models[value] = pointer
    return models | dict.fromkeys(replaced.values(), "")


def _agents_in(component: Component | None, blueprint: Blueprint) -> set[str]:
    """The names of the agents that a blueprint is, has and names."""
    names = {blueprint["name"], *agent_names(blueprint)}
    for _, member in members_of(blueprint):
        names.add(member.get("name", ""))
    if component is not None:
        names = agents_with_models(component)
    return names


def _read_valid(path: str) -> Blueprint:
    blueprint = read_blueprint(path)
    problems = blueprints.problems(blueprint)
    if problems:
        raise blueprints.invalid(problems, f"The blueprint '{path}'")
    return blueprint


def print_diff(old: str, new: str, as_json: bool) -> bool:
    """Print the changes between two blueprints, of folders with their locks; return whether one of them is breaking.

    Raises:
        PodwrightError: One of the two is not a valid blueprint.
    """
    changes = blueprint_changes(_read_valid(old), _read_valid(new))
    if is_folder(old) and is_folder(new):
        before = Folder(Path(old)).mcp_lock()
        after = Folder(Path(new)).mcp_lock()
        changes += lock_changes(before.to_data(), after.to_data())
    if as_json:
        print_json(changes)
    else:
        for change in changes:
            print_text(describe_change(change))
    return any(change.breaking for change in changes)


def print_schema(kind: str | None) -> None:
    """Print the JSON Schema of the blueprint files of a kind, or of all kinds by name; or that of suites, `evals`.

    Raises:
        ConfigurationError: The kind is unknown.
    """
    from podwright.evaluation.suite_schema import suite_schema

    schemas = blueprints.file_schema()
    if kind is None:
        print_json(schemas)
        return
    name = kind.lower()
    schemas[_SUITES] = suite_schema()
    if name not in schemas:
        raise ConfigurationError(
            f"Unknown kind '{truncate(kind, 60)}'.",
            suggestion=did_you_mean(name, schemas),
        )
    print_json(schemas[name])


def print_graph(path: str) -> None:
    """Print a blueprint as a Mermaid flowchart.

    Raises:
        PodwrightError: It is not a valid blueprint.
    """
    print_text(mermaid(_read_valid(path)).rstrip("\n"))
