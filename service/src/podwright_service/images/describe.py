"""Describe a component inside the build of its image: `python -m podwright_service.images.describe FOLDER FILE`.

It runs with the release of the base image and the dependencies of the component, and so finds what is wrong with
blueprint, tools and agents.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from podwright import __version__, blueprints
from podwright.components import Agent, Component
from podwright.data.json_data import as_object
from podwright.errors import (
    BlueprintValidationError,
    PodwrightError,
    Problem,
    UnknownModelError,
)
from podwright.folders.walks import (
    component_digest,
    mcp_tools_of,
    remotes_in,
    reported_models_of,
    tool_names_of,
    walk,
)
from podwright.models import resolve
from podwright_service.remotes import remotes_of
from podwright_service.settings import Settings, read_settings
from podwright_service.source import load_component

ERROR_PREFIX = "podwright-error "
"""The start of a line of the build output with an error, as JSON."""


def describe(
    component: Component, run_limits: dict[str, Any]
) -> dict[str, Any]:
    """The description of a component for the labels of its image.

    It is what `/info` returns without the blueprint, and its agents, remotes and MCP servers.

    Args:
        component: The component.
        run_limits: The run limits of the service by setting.
    """
    blueprint = component.to_blueprint()
    max_loops = as_object(blueprint.get("config")).get("max_loops")
    agents = [
        part.name
        for part in walk(component)
        if isinstance(part, Agent) and part is not component
    ]
    limits = dict(run_limits)
    if max_loops is not None:
        limits["max_loops"] = max_loops
    return {
        "name": component.name,
        "kind": component.kind,
        "description": component.description,
        "digest": component_digest(component),
        "models": [*component.models(), *reported_models_of(component)],
        "tools": tool_names_of(component),
        "mcp": list(
            dict.fromkeys(tool.mcp_server for tool in mcp_tools_of(component))
        ),
        "agents": list(dict.fromkeys(agents)),
        "remotes": remotes_in(component),
        "limits": limits,
        "versions": {
            "podwright": __version__,
            "blueprint": blueprints.VERSION,
            "python": platform.python_version(),
        },
        "unserved": _unserved_models(component),
    }


def _unserved_models(component: Component) -> list[str]:
    """The models for which this image has no client."""
    models: list[str] = []
    for name in component.models():
        try:
            resolve(name)
        except UnknownModelError:
            models.append(name)
    return models


def main(folder: str, file: str) -> int:
    """Write the description of a component folder to a file, or its error to standard error.

    Returns:
        The exit code.
    """
    try:
        settings = read_settings()
        component = load_component(folder, remotes_of(settings))
        limits = {
            name for name in Settings.model_fields if name.startswith("run_")
        }
        run_limits = settings.model_dump(include=limits, exclude_none=True)
        facts = describe(component, run_limits)
    except PodwrightError as error:
        problems: Sequence[Problem] = ()
        if isinstance(error, BlueprintValidationError):
            problems = error.problems
        data = {
            "message": error.message,
            "suggestion": error.suggestion,
            "problems": [
                (problem.pointer, problem.detail, problem.suggestion)
                for problem in problems
            ],
        }
        sys.stderr.write(f"\n{ERROR_PREFIX}{json.dumps(data)}\n")
        return 1
    Path(file).write_text(
        json.dumps(facts, ensure_ascii=False), encoding="utf-8"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
