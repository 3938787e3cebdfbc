"""What an image tells of its component. It runs inside the build: `python -m … describe FOLDER FILE`.

By the image's own release and with its dependencies: what is wrong with blueprint, tools or agents is found here.
"""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path
from typing import Any

from podwright import __version__, blueprints
from podwright.components import Agent, Component
from podwright.components.base import ModelComponent
from podwright.errors import BlueprintValidationError, PodwrightError, UnknownModelError
from podwright.json_data import as_object
from podwright_service.inline_blueprints import tools_of
from podwright_service.remotes import everything_in, remotes_in, remotes_of
from podwright_service.settings import Settings, read_settings
from podwright_service.source import load_component

_LIMITS = {name for name in Settings.model_fields if name.startswith("run_")}

MARK = "podwright-error "
"""What a line of the build begins with that holds an error, as JSON."""


def facts_of(component: Component, limits: dict[str, Any]) -> dict[str, Any]:
    """What `/info` would say of a component, without its blueprint, and whom else it is made of.

    Args:
        component: The component.
        limits: What the service sets for its runs.
    """
    blueprint = component.to_blueprint()
    parts = list(everything_in(component))
    agents = [part.name for part in parts[1:] if isinstance(part, Agent)]
    return {
        "name": component.name,
        "kind": component.kind,
        "description": component.description,
        "digest": blueprints.digest(blueprint),
        "models": component.models(),
        "tools": list(tools_of(component)),
        "agents": list(dict.fromkeys(agents)),
        "remotes": remotes_in(component),
        "limits": {**limits, **_own_limits(blueprint)},
        "versions": {"podwright": __version__, "blueprint": blueprints.VERSION, "python": platform.python_version()},
        "unserved": _unserved(component),
    }


def _own_limits(blueprint: blueprints.Blueprint) -> dict[str, Any]:
    loops = as_object(blueprint.get("config")).get("max_loops")
    return {} if loops is None else {"max_loops": loops}


def _unserved(component: Component) -> list[str]:
    """Models that nobody in this image provides."""
    missing: list[str] = []
    for part in everything_in(component):
        try:
            _ = part.model if isinstance(part, ModelComponent) else None
        except UnknownModelError:
            missing += part.models()
    return list(dict.fromkeys(missing))


def main(folder: str, to: str) -> int:
    """Write the facts of a component folder to a file; or an error to standard error, and give 1."""
    try:
        settings = read_settings()
        component = load_component(folder, remotes_of(settings))
        facts = facts_of(component, settings.model_dump(include=_LIMITS, exclude_none=True))
    except PodwrightError as error:
        problems = error.problems if isinstance(error, BlueprintValidationError) else ()
        told = {
            "message": error.message,
            "suggestion": error.suggestion,
            "problems": [(one.pointer, one.detail, one.suggestion) for one in problems],
        }
        sys.stderr.write(f"\n{MARK}{json.dumps(told)}\n")
        return 1
    Path(to).write_text(json.dumps(facts, ensure_ascii=False), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
