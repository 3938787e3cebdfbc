"""The four kinds, and one function that makes any of them from a blueprint, a file or a folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from podwright import blueprints
from podwright.components.agent import Agent
from podwright.components.base import Component, Options, by_name
from podwright.components.conductor import Conductor
from podwright.components.folder import Folder
from podwright.components.pipeline import Pipeline
from podwright.components.steps import (
    AgentStep,
    ApprovalStep,
    ConditionStep,
    LoopStep,
    MapStep,
    ParallelStep,
    Step,
    WorkflowStep,
)
from podwright.components.workflow import Workflow
from podwright.errors import BlueprintValidationError, ConfigurationError
from podwright.events import Kind
from podwright.models import Model, resolve

__all__ = [
    "KINDS",
    "Agent",
    "AgentStep",
    "ApprovalStep",
    "Component",
    "ConditionStep",
    "Conductor",
    "LoopStep",
    "MapStep",
    "Options",
    "ParallelStep",
    "Pipeline",
    "Step",
    "Workflow",
    "WorkflowStep",
    "load",
]

KINDS: dict[Kind, type[Agent | Workflow | Conductor | Pipeline]] = {
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
) -> Agent | Workflow | Conductor | Pipeline:
    """Make a component of whatever kind its blueprint describes.

    Args:
        source: A blueprint; or the path of one, JSON or YAML; or a component folder. From a file only data is
            read. A folder is trusted: its `tools.py` and `conditions.py` are imported, and agents that the
            blueprint names are loaded from `agents/` in it, or from the folders beside it.
        tools: The functions behind its tools.
        agents: Components for the agents that it names.
        conditions: The functions behind its conditions.
        model: A model that answers all model calls, in place of those that the blueprints name.
        validate: See `from_blueprint`.
        **options: Values that replace the blueprint's, and see `Options`.

    Raises:
        BlueprintValidationError: The blueprint is invalid; all problems at once.
        ConfigurationError: A file or folder cannot be read.
    """
    chosen = resolve(model) if isinstance(model, str) else model
    parts = _Parts(list(tools), by_name(agents, "agents"), by_name(conditions, "conditions"), chosen, validate)
    if isinstance(source, Mapping):
        return _build(source, parts, options)
    if not isinstance(source, str | Path):  # pyright: ignore[reportUnnecessaryIsInstance] - it comes from a caller
        raise ConfigurationError(f"A component is loaded from a path or a dictionary, not from {source!r}.")
    path = Path(source)
    if _is_folder(path):
        return _from_folder(Folder(path), parts, options, ())
    return _build(blueprints.read_file(path), parts, options)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # no name of anything: too long, say
        return False


class _Parts:
    """What the caller supplies."""

    def __init__(
        self,
        tools: list[Callable[..., Any]],
        agents: dict[str, Component],
        conditions: dict[str, Callable[..., Any]],
        model: Model | None,
        validate: bool,
    ) -> None:
        self.tools, self.agents, self.conditions = tools, agents, conditions
        self.model, self.validate = model, validate


def _build(
    blueprint: Mapping[str, Any], parts: _Parts, options: Mapping[str, Any]
) -> Agent | Workflow | Conductor | Pipeline:
    try:
        kind = blueprints.kind_of(blueprint)
    except BlueprintValidationError:
        raise blueprints.invalid(blueprints.problems(blueprint)) from None
    if kind == "workflow":
        return Workflow.from_blueprint(blueprint, parts.agents, parts.conditions, parts.validate, **options)
    model = {"model": parts.model} if parts.model is not None else {}
    if kind == "agent":
        return Agent.from_blueprint(blueprint, parts.tools, parts.validate, **model, **options)
    team = Conductor if kind == "conductor" else Pipeline
    return team.from_blueprint(blueprint, parts.tools, parts.validate, agents=parts.agents, **model, **options)


def _from_folder(
    folder: Folder, given: _Parts, options: Mapping[str, Any], within: tuple[Path, ...]
) -> Agent | Workflow | Conductor | Pipeline:
    blueprint = folder.blueprint()
    inside = (*within, folder.path)
    parts = _Parts(
        [*given.tools, *folder.functions("tools.py", folder.tool_names(blueprint))],
        dict(given.agents),
        {**folder.named("conditions.py", folder.condition_names(blueprint)), **given.conditions},
        given.model,
        given.validate,
    )
    for name in folder.agent_names(blueprint):
        if name not in parts.agents:
            source = folder.agent(name, inside)
            if isinstance(source, Folder):
                parts.agents[name] = _from_folder(source, given, {}, inside)
            elif source is not None:
                data = blueprints.read_file(source)
                wanted = folder.tool_names(data)
                own = _Parts([*given.tools, *folder.functions("tools.py", wanted)], {}, {}, given.model, given.validate)
                parts.agents[name] = _build(cast("Mapping[str, Any]", data), own, {})
    return _build(blueprint, parts, options)
