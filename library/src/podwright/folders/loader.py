"""Loading a component of any kind from a blueprint, a file or a folder."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podwright import blueprints
from podwright.blueprints.mcp_tools import mcp_servers
from podwright.blueprints.members import handoffs_of
from podwright.blueprints.named_parts import (
    agent_names,
    condition_names,
    function_names,
    handing_over,
    member_names,
    tool_names,
)
from podwright.blueprints.validation import Blueprint
from podwright.components.agent import Agent
from podwright.components.conductor import Conductor
from podwright.components.function_agent import FunctionAgent
from podwright.components.pipeline import Pipeline
from podwright.data.json_data import JsonMapping
from podwright.data.text import did_you_mean, truncate
from podwright.errors import (
    BlueprintValidationError,
    ConfigurationError,
    Problem,
)
from podwright.folders.folder import AgentSource, Folder
from podwright.folders.typed_schemas import outdated_schemas
from podwright.kinds import Kind
from podwright.models import EVERY, Model, ModelChoice
from podwright.models.registry import models_by_component
from podwright.run.component import Component, ModelComponent, Supplied
from podwright.run.options import named_map
from podwright.tools.entries import (
    outdated_texts,
    tool_functions,
    tools_by_name,
)
from podwright.workflows.agent_map import AgentMap, agent_map
from podwright.workflows.workflow import Workflow

if TYPE_CHECKING:
    from podwright.mcp.entries import MCPSource
    from podwright.mcp.server import MCPServer

_log = logging.getLogger("podwright")
_warned: set[tuple[str, str]] = set()
"""The names of blueprints and the pointers in them that were warned of in this process."""

AnyComponent = Agent | Workflow | Conductor | Pipeline

KINDS: dict[Kind, type[AnyComponent]] = {
    "agent": Agent,
    "workflow": Workflow,
    "conductor": Conductor,
    "pipeline": Pipeline,
}
"""The class of each kind."""


def has_blueprint(component: Component) -> bool:
    """Whether a blueprint is all that a component needs besides code; others, blueprints can only name."""
    return isinstance(component, tuple(KINDS.values()))


def load(
    source: str | Path | JsonMapping,
    *,
    tools: Sequence[Callable[..., Any]] = (),
    agents: Mapping[str, Component] | None = None,
    conditions: Mapping[str, Callable[..., Any]] | None = None,
    functions: Mapping[str, Callable[..., Any]] | None = None,
    mcp: Mapping[str, MCPServer] | None = None,
    model: ModelChoice | None = None,
    validate: bool = True,
    **options: Any,
) -> AnyComponent:
    """Load a component of the kind that its blueprint describes.

    Args:
        source: A blueprint; or the path of a blueprint file, JSON or YAML; or a component folder. Of a file only data
            is read. A folder is trusted: its `providers.py`, `tools.py`, `functions.py`, `conditions.py` and
            `agents.py` are imported, and agents that the blueprint names are taken from that, or loaded from `agents/`
            in it, or from the folders beside it.
        tools: The functions behind its tools.
        agents: Components for the agents that it names.
        conditions: The functions behind its conditions.
        functions: The functions that its function steps call.
        mcp: The MCP servers that it and its agents name: `{"files": MCPServer("https://…/mcp")}`. Of a folder, the
            definitions of their tools are those of its `mcp.lock.json`, and the component can be loaded without
            servers, which it needs to run; otherwise a definition is trusted as the server gives it first.
        model: A model that answers all model calls, instead of those that the blueprints name; or several by the names
            of agents, `{"writer": "openai/gpt-5"}`, where `*` stands for all others. Components that you pass keep
            their models.
        validate: See `from_blueprint`.
        **options: Values that override the blueprint's, and `Options`.

    Raises:
        BlueprintValidationError: The blueprint is invalid; with all problems.
        ConfigurationError: A file or folder cannot be read, or `model` names an agent that does not exist.
    """
    return load_changed(
        source,
        _unchanged,
        tools=tools,
        agents=agents,
        conditions=conditions,
        functions=functions,
        mcp=mcp,
        model=model,
        validate=validate,
        **options,
    )


def load_changed(
    source: str | Path | JsonMapping,
    change: Callable[[Blueprint], JsonMapping],
    *,
    tools: Sequence[Callable[..., Any]] = (),
    agents: Mapping[str, Component] | None = None,
    conditions: Mapping[str, Callable[..., Any]] | None = None,
    functions: Mapping[str, Callable[..., Any]] | None = None,
    mcp: Mapping[str, MCPServer] | None = None,
    model: ModelChoice | None = None,
    validate: bool = True,
    **options: Any,
) -> AnyComponent:
    """Load a component with other blueprints than those that are read; see `load` for what is not said here.

    Args:
        source: As in `load`.
        change: Returns the blueprint to load in place of one, which it leaves as it is. It is called with each
            blueprint before that is validated: the component's own one, and those of the files and folders of its
            agents, with one that several agents name as often. Agents in Python and those of the caller have none.
        tools: As in `load`.
        agents: As in `load`.
        conditions: As in `load`.
        functions: As in `load`.
        mcp: As in `load`.
        model: As in `load`.
        validate: As in `load`.
        **options: As in `load`.

    Raises:
        BlueprintValidationError: A blueprint is invalid; with all problems.
        ConfigurationError: As `load`.
    """
    replacements = _Replacements(model)
    supplied = _Supplied(
        tools=tool_functions(tools),
        agents=agent_map(agents),
        conditions=named_map(conditions, "conditions"),
        functions=named_map(functions, "functions"),
        mcp=_mcp_source(mcp),
        model=replacements.every,
        validate=validate,
        models=replacements,
        change=change,
    )
    component = _load(source, supplied, options)
    replacements.check()
    return component


def _unchanged(blueprint: Blueprint) -> Blueprint:
    return blueprint


def load_in_folder(
    folder: str | Path,
    blueprint: JsonMapping,
    agents: Mapping[str, Component] | None = None,
    mcp: Mapping[str, MCPServer] | None = None,
    *,
    change: Callable[[Blueprint], JsonMapping] = _unchanged,
) -> AnyComponent:
    """Load a component of another blueprint than a folder's own, such as an earlier one, with the code of the folder.

    Args:
        folder: The component folder, which is trusted; see `load`. Its agents are those that it has now.
        blueprint: The blueprint.
        agents: As in `load`.
        mcp: As in `load`.
        change: As in `load_changed`; also called with the blueprint.

    Raises:
        BlueprintValidationError: The blueprint is invalid, or the code does not fit it; with all problems.
        ConfigurationError: A file of the folder cannot be read or imported.
    """
    supplied = _Supplied(
        agents=agent_map(agents), mcp=_mcp_source(mcp), change=change
    )
    return _load_with_folder(
        Folder(Path(folder)),
        change(dict(blueprint)),
        supplied,
        options={},
        within=(),
    )


def unknown_agent_error(
    name: str, place: str, agents: Collection[str]
) -> ConfigurationError:
    """The error for a model of an agent that does not exist.

    Args:
        name: The agent.
        place: Where it is named: an argument, an option or a variable.
        agents: The names of the agents and conductors whose models may be replaced.
    """
    hint = did_you_mean(name, sorted(agents))
    return ConfigurationError(
        f"'{place}' has a model for '{truncate(name, 100)}', and there is no such agent.",
        suggestion=hint or "There is no agent whose model can be replaced.",
    )


def _load(
    source: str | Path | JsonMapping,
    supplied: _Supplied,
    options: JsonMapping,
) -> AnyComponent:
    if isinstance(source, Mapping):
        blueprint = supplied.change(dict(source))
        return _build(blueprint, supplied, options)
    if os.path.isdir(source):  # noqa: PTH112 - a name that is too long is not a folder, and read_file says so
        folder = Folder(Path(source))
        return _load_folder(folder, supplied, options, within=())
    blueprint = supplied.change(blueprints.read_file(source))
    lookups = {
        name: _hint_without_folder(Path(source), name)
        for name in agent_names(blueprint)
    }
    agents = AgentMap(supplied.agents, lookups)
    return _build(blueprint, replace(supplied, agents=agents), options)


def _hint_without_folder(file: Path, agent: str) -> str:
    """A suggestion about an agent that a blueprint file by itself names."""
    around = Folder(file.parent.parent)
    if file.parent.name == "agents" and around.has_blueprint():
        return f"A file by itself is only data: give the component folder '{around.path.name}'."
    return f"A file by itself is only data: give a component folder, of blueprint.json and agents/{agent}.json."


class _Replacements:
    """The models in place of those of the blueprints.

    Args:
        model: See `load`.

    Raises:
        UnknownModelError: No provider serves one of them.
    """

    def __init__(self, model: ModelChoice | None = None) -> None:
        self._models: dict[str, Model] = {}
        if model is not None:
            self._models = models_by_component(model)
        self._agents: set[str] = set()

    @property
    def every(self) -> Model | None:
        """The model for all agents that have none of their own here."""
        return self._models.get(EVERY)

    def use_in(self, agent: ModelComponent) -> None:
        """Replace the model of an agent or a conductor that was built of a blueprint."""
        self._agents.add(agent.name)
        model = self._models.get(agent.name)
        if model is not None:
            agent.replace_model(model)

    def check(self) -> None:
        """Check that each model was used; call it at the end.

        Raises:
            ConfigurationError: One is for an agent that does not exist.
        """
        unknown = self._models.keys() - {EVERY} - self._agents
        if unknown:
            raise unknown_agent_error(min(unknown), "model", self._agents)


@dataclass(frozen=True, slots=True)
class _Supplied(Supplied):
    """Code, components and models of the caller."""

    models: _Replacements = field(default_factory=_Replacements)
    """The models of single agents."""
    is_handoff: bool = False
    """Whether the agent is one that another hands off to, which supplies those that it hands off to itself."""
    change: Callable[[Blueprint], JsonMapping] = _unchanged
    """See `load_changed`."""


def log_warnings(component: Component, further: Iterable[Problem] = ()) -> None:
    """Log what a component does not use of its blueprint, and further warnings; each once in this process."""
    name = component.name
    for warning in (*component.warnings, *further):
        key = (name, warning.pointer)
        if key not in _warned:
            _warned.add(key)
            _log.warning(
                "Blueprint '%s': %s: %s", name, warning.pointer, warning.detail
            )


def _build(
    blueprint: JsonMapping,
    supplied: _Supplied,
    options: JsonMapping,
) -> AnyComponent:
    component = _build_kind(blueprint, supplied, options)
    functions = tools_by_name(supplied.tools)
    log_warnings(component, outdated_texts(blueprint, functions))
    given = supplied.agents.values()
    for part in (component, *component.members().values()):
        # the others keep their models, or were built before
        if isinstance(part, ModelComponent) and part not in given:
            supplied.models.use_in(part)
    return component


def _build_kind(
    blueprint: JsonMapping,
    supplied: _Supplied,
    options: JsonMapping,
) -> AnyComponent:
    try:
        kind = blueprints.kind_of(blueprint)
    except BlueprintValidationError:
        problems = blueprints.problems(blueprint)
        raise blueprints.invalid(problems) from None
    return KINDS[kind].assemble(blueprint, supplied, **options)


def _load_folder(
    folder: Folder,
    supplied: _Supplied,
    options: JsonMapping,
    *,
    within: tuple[Path, ...],
) -> AnyComponent:
    blueprint = supplied.change(folder.blueprint())
    return _load_with_folder(
        folder, blueprint, supplied, options=options, within=within
    )


def _load_with_folder(
    folder: Folder,
    blueprint: JsonMapping,
    supplied: _Supplied,
    *,
    options: JsonMapping,
    within: tuple[Path, ...],
) -> AnyComponent:
    """The component of a blueprint, with the code and the agents of a folder."""
    folder.use_code()
    folder.register_providers()
    return _build_in_folder(
        folder,
        blueprint,
        supplied,
        options=options,
        within=(*within, folder.path),
    )


def _build_in_folder(
    folder: Folder,
    blueprint: JsonMapping,
    supplied: _Supplied,
    *,
    options: JsonMapping,
    within: tuple[Path, ...],
) -> AnyComponent:
    """The component of a blueprint with the functions of a folder, and the agents that are found from there.

    Args:
        folder: The folder, whose code is in use.
        blueprint: The folder's own blueprint, or that of a file in its `agents/`.
        supplied: What the caller supplies.
        options: See `load`.
        within: The folders and the files of the component and of those around it, outermost first.
    """
    with_functions = _with_functions(supplied, folder, blueprint)
    agents = _load_agents(folder, blueprint, supplied, within)
    with_agents = replace(with_functions, agents=agents)
    component = _build(blueprint, with_agents, options)
    log_warnings(component, outdated_schemas(folder, blueprint))
    return component


def _load_agents(
    folder: Folder,
    blueprint: JsonMapping,
    supplied: _Supplied,
    within: tuple[Path, ...],
) -> AgentMap:
    """The agents that a blueprint names, and those that it reaches by handoffs, each loaded once.

    Args:
        folder: The folder from which they are found.
        blueprint: The blueprint.
        supplied: What the caller supplies.
        within: As in `_build_in_folder`.
    """
    agents: dict[str, Component] = dict(supplied.agents)
    lookups: dict[str, str] = {}
    awaited: Collection[str] = ()
    if supplied.is_handoff:
        awaited = handoffs_of(blueprint)
    members = member_names(blueprint)
    hands_over = handing_over(blueprint)
    pending = [(folder, blueprint)]
    for searched, current in pending:
        known = {*agents, *lookups, *awaited}
        if current is not blueprint:
            known |= hands_over
        for source in searched.agents(current, without=known):
            is_handoff = source.name not in members
            with _named_in_problems(source.name):
                agent = _load_agent(
                    source, replace(supplied, is_handoff=is_handoff), within
                )
            if agent is None:
                lookups[source.name] = searched.describe_lookup(source.name)
                continue
            agents[source.name] = agent
            if is_handoff and agent.handoffs:
                inside = source.value
                place = inside if isinstance(inside, Folder) else source.owner
                pending.append((place, agent.to_blueprint()))
    return AgentMap(agents, lookups, awaited)


def _load_agent(
    source: AgentSource, supplied: _Supplied, within: tuple[Path, ...]
) -> Component | None:
    """An agent that the blueprint of a folder names; None if it is missing."""
    value = source.value
    if value is None or source.place == "missing":
        return None
    if isinstance(value, Path):
        _check_circle(value, within)
        blueprint = supplied.change(blueprints.read_file(value))
        return _build_in_folder(
            source.owner,
            blueprint,
            supplied,
            options={},
            within=(*within, value),
        )
    if not isinstance(value, Folder):
        return _as_component(source.name, value)
    _check_circle(value.path, within)
    return _load_folder(value, supplied, {}, within=within)


def _check_circle(path: Path, within: tuple[Path, ...]) -> None:
    """Refuse an agent that is, or is in, what is loaded for itself.

    Raises:
        ConfigurationError: It is one.
    """
    if path not in within:
        return
    circle = [*within[within.index(path) :], path]
    names = [_component_of(each) for each in circle]
    raise ConfigurationError(
        f"The component '{names[0]}' is an agent of itself: {' → '.join(names)}.",
        suggestion="Remove the circular reference.",
    )


def _component_of(path: Path) -> str:
    """The name of the agent that a blueprint file or a folder is for."""
    if path.suffix in blueprints.SUFFIXES:
        return path.stem
    return path.name


@contextmanager
def _named_in_problems(agent: str) -> Generator[None]:
    """Say of the problems of an agent whose they are: their pointers are those of its own blueprint."""
    try:
        yield
    except BlueprintValidationError as error:
        problems = [
            replace(problem, detail=f"Agent '{agent}': {problem.detail}")
            for problem in error.problems
        ]
        raise BlueprintValidationError(
            error.message, problems=problems, suggestion=error.suggestion
        ) from error


def _as_component(
    name: str, agent: Component | Callable[..., Any]
) -> Component:
    if isinstance(agent, Component):
        return agent
    description, _, _ = (inspect.getdoc(agent) or "").partition("\n\n")
    return FunctionAgent(name, agent, description=description)


def _with_functions(
    supplied: _Supplied, folder: Folder, blueprint: JsonMapping
) -> _Supplied:
    """What the caller supplies, and the functions of the folder that a blueprint names."""
    tools = folder.functions("tools.py", tool_names(blueprint))
    conditions = folder.functions("conditions.py", condition_names(blueprint))
    named = function_names(blueprint)
    functions = folder.functions("functions.py", named)
    missing = named - functions.keys()
    from_tools = folder.functions("tools.py", missing)
    mcp = supplied.mcp
    if mcp_servers(blueprint):
        from podwright.mcp.entries import to_source

        mcp = replace(to_source(mcp), lock=folder.mcp_lock())
    return replace(
        supplied,
        tools=(*supplied.tools, *tools.values()),
        conditions={**conditions, **supplied.conditions},
        functions={**from_tools, **functions, **supplied.functions},
        mcp=mcp,
    )


def _mcp_source(
    mcp: Mapping[str, MCPServer] | None,
) -> Mapping[str, MCPServer] | MCPSource | None:
    """The MCP servers of a caller; without any, nothing of MCP is imported.

    Raises:
        ConfigurationError: They are not a map of servers.
    """
    if mcp is None or mcp == {}:
        return mcp
    from podwright.mcp.entries import to_source

    return to_source(mcp)
