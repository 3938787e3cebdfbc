"""Loading a component of any kind from a blueprint, a file or a folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from podwright import blueprints
from podwright.components.agent import Agent
from podwright.components.base import Component
from podwright.components.conductor import Conductor
from podwright.components.folder import Folder, agent_names, condition_names, tool_names
from podwright.components.options import named_map
from podwright.components.pipeline import Pipeline
from podwright.components.workflow import Workflow
from podwright.errors import BlueprintValidationError
from podwright.events import Kind
from podwright.models import Model, resolve

AnyComponent = Agent | Workflow | Conductor | Pipeline

KINDS: dict[Kind, type[AnyComponent]] = {
    "agent": Agent,
    "workflow": Workflow,
    "conductor": Conductor,
    "pipeline": Pipeline,
}
"""The class of each kind."""


def load(
    source: str | Path | Mapping[str, Any],
    *,
    tools: Sequence[Callable[..., Any]] = (),
    agents: Mapping[str, Component] | None = None,
    conditions: Mapping[str, Callable[..., Any]] | None = None,
    model: Model | str | None = None,
    validate: bool = True,
    **options: Any,
) -> AnyComponent:
    """Load a component of the kind that its blueprint describes.

    Args:
        source: A blueprint; or the path of a blueprint file, JSON or YAML; or a component folder. Of a file only data
            is read. A folder is trusted: its `tools.py` and `conditions.py` are imported, and agents that the blueprint
            names are loaded from `agents/` in it, or from the folders beside it.
        tools: The functions behind its tools.
        agents: Components for the agents that it names.
        conditions: The functions behind its conditions.
        model: A model that answers all model calls, instead of those that the blueprints name.
        validate: See `from_blueprint`.
        **options: Values that override the blueprint's, and `Options`.

    Raises:
        BlueprintValidationError: The blueprint is invalid; with all problems.
        ConfigurationError: A file or folder cannot be read.
    """
    parts = _Parts(
        tuple(tools),
        named_map(agents, "agents"),
        named_map(conditions, "conditions"),
        resolve(model) if isinstance(model, str) else model,
        validate,
    )
    if isinstance(source, Mapping):
        return _build(source, parts, options)
    if os.path.isdir(source):  # noqa: PTH112 - a name that is too long is no folder, and read_file says so
        return _load_folder(Folder(Path(source)), parts, options, ())
    return _build(blueprints.read_file(source), parts, options)


@dataclass(frozen=True, slots=True)
class _Parts:
    """What the caller supplies."""

    tools: tuple[Callable[..., Any], ...]
    agents: dict[str, Component]
    conditions: dict[str, Callable[..., Any]]
    model: Model | None
    validate: bool


def _build(
    blueprint: Mapping[str, Any], parts: _Parts, options: Mapping[str, Any]
) -> AnyComponent:
    try:
        kind = blueprints.kind_of(blueprint)
    except BlueprintValidationError:
        raise blueprints.invalid(blueprints.problems(blueprint)) from None
    if kind == "workflow":
        return Workflow.from_blueprint(
            blueprint, parts.agents, parts.conditions, parts.validate, **options
        )
    model = {} if parts.model is None else {"model": parts.model}
    if kind == "agent":
        return Agent.from_blueprint(
            blueprint, parts.tools, parts.validate, **model, **options
        )
    team = Conductor if kind == "conductor" else Pipeline
    return team.from_blueprint(
        blueprint, parts.tools, parts.validate, agents=parts.agents, **model, **options
    )


def _load_folder(
    folder: Folder, given: _Parts, options: Mapping[str, Any], within: tuple[Path, ...]
) -> AnyComponent:
    blueprint = folder.blueprint()
    agents = dict(given.agents)
    for name in agent_names(blueprint):
        source = None if name in agents else folder.agent(name, (*within, folder.path))
        if isinstance(source, Folder):
            agents[name] = _load_folder(source, given, {}, (*within, folder.path))
        elif source is not None:
            data = cast("Mapping[str, Any]", blueprints.read_file(source))
            agents[name] = _build(data, _with_functions(given, folder, data), {})
    return _build(
        blueprint,
        replace(_with_functions(given, folder, blueprint), agents=agents),
        options,
    )


def _with_functions(
    given: _Parts, folder: Folder, blueprint: Mapping[str, Any]
) -> _Parts:
    """What the caller supplies, and the functions of the folder that a blueprint names."""
    tools = folder.functions("tools.py", tool_names(blueprint)).values()
    conditions = folder.functions("conditions.py", condition_names(blueprint))
    return replace(
        given,
        tools=(*given.tools, *tools),
        conditions={**conditions, **given.conditions},
    )
