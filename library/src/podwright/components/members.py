"""The agents inside a conductor or a pipeline: their blueprint entries, and the way back (spec §§2.3, 2.4)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import (
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import TYPE_CHECKING, Any, Self

from podwright.blueprints.mcp_tools import MCPToolName, mcp_tools
from podwright.blueprints.named_parts import HOOKS
from podwright.blueprints.validation import Blueprint
from podwright.components.agent import Agent
from podwright.components.handoffs import handoff_problems
from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_array,
    as_object,
)
from podwright.errors import ConfigurationError, Problem
from podwright.kinds import TRAITS, Kind
from podwright.mcp.attach import attach_mcp
from podwright.models import Model
from podwright.run.component import Component, PromptComponent, Supplied
from podwright.run.options import (
    ParsedBlueprint,
    named_map,
    parse_with_overrides,
)
from podwright.tools.entries import (
    attach,
    attach_hooks,
    functions_by_name,
    tools_by_name,
)
from podwright.tools.tool import Tool
from podwright.workflows.agent_map import AgentMap, agent_map
from podwright.workflows.template_names import name_problems

if TYPE_CHECKING:
    from podwright.mcp.entries import MCPSource
    from podwright.mcp.server import MCPServer

_OWN_KEYS = ("instructions", "config", "tools", "mcp", "handoffs", *HOOKS)
"""An entry with one of these keys defines an agent; without them, it names one that the caller supplies."""
_FALLBACK_KEYS = ("fallback", "fallback_wait")


def entries_of(components: object, what: str) -> list[Blueprint]:
    """The blueprint entries of live members: all fields of an agent, only the name of any other component.

    Raises:
        ConfigurationError: A member is not a component.
    """
    if not isinstance(components, Iterable):
        raise ConfigurationError(
            f"Expected a list of agents, not {components!r}."
        )
    entries: list[Blueprint] = []
    for component in components:  # pyright: ignore[reportUnknownVariableType] - a caller's iterable
        if not isinstance(component, Component):
            raise ConfigurationError(
                f"A {what} must be a component such as Agent(…), not {component!r}."
            )
        entry: Blueprint = {"type": "Agent"}
        if isinstance(component, Agent):
            entry.update(component.to_blueprint())
        else:
            entry["name"] = component.name
        entries.append(entry)
    return entries


class TeamComponent(PromptComponent):
    """A component whose blueprint defines its members, or names them: conductor and pipeline."""

    @classmethod
    def from_blueprint(
        cls,
        blueprint: Mapping[str, Any],
        tools: Sequence[Callable[..., Any]] = [],
        validate: bool = True,
        *,
        agents: Mapping[str, Component] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Rebuild a component with members.

        Args:
            blueprint: What `to_blueprint` returned.
            tools: The functions behind its tools and those of its members.
            validate: If false, unknown keys are dropped, and missing tools and tools that no longer fit are allowed.
            agents: Components for the members that are only names.
            **kwargs: `mcp`, the MCP servers by the names that it and its members use; `functions`, those before and
                after its work and that of its members, by name; values that override the blueprint's, such as `name`
                or `model`.

        Raises:
            BlueprintValidationError: The blueprint is invalid; with all problems.
            ConfigurationError: A keyword is unknown.
        """
        mcp = kwargs.pop("mcp", None)
        functions = functions_by_name(
            named_map(kwargs.pop("functions", None), "functions")
        )
        parsed, members = _parse_team(
            cls.kind,
            blueprint,
            tools,
            functions=functions,
            validate=validate,
            agents=agents,
            mcp=mcp,
            overrides=kwargs,
        )
        own_tools, problems = attach(
            parsed.data.get("tools"), tools_by_name(tools), "/tools"
        )
        from_servers, more = attach_mcp(_own_names(parsed), mcp)
        own_tools |= from_servers
        problems += more
        hooks, more = attach_hooks(parsed.data, functions, own_tools)
        problems += more
        self = cls._from_parsed(parsed, problems if validate else ())
        self._hook_functions = hooks
        self._set_members(members)
        self._set_tools(own_tools)
        return self

    @classmethod
    def assemble(
        cls, blueprint: JsonMapping, supplied: Supplied, **options: Any
    ) -> Self:
        """Rebuild a component with members, with what is supplied for any kind; see `from_blueprint`."""
        return cls.from_blueprint(
            blueprint,
            supplied.tools,
            supplied.validate,
            agents=supplied.agents,
            mcp=supplied.mcp,
            functions=supplied.functions,
            **supplied.with_model(options),
        )

    @abstractmethod
    def _set_members(self, members: Sequence[Component]) -> None:
        """Keep the members, in the order of the blueprint."""

    def _set_tools(self, tools: Mapping[str, Tool]) -> None:
        """Keep the tools of its own model."""


def _parse_team(
    kind: Kind,
    blueprint: object,
    tools: Sequence[Callable[..., Any]],
    *,
    functions: Mapping[str, Tool],
    validate: bool,
    agents: object,
    mcp: Mapping[str, MCPServer] | MCPSource | None,
    overrides: JsonMapping,
) -> tuple[ParsedBlueprint, list[Component]]:
    """Parse a blueprint with members, and build the members.

    Raises:
        BlueprintValidationError: The blueprint is invalid; with all problems.
        ConfigurationError: A keyword is unknown.
    """
    parsed = parse_with_overrides(blueprint, kind, validate, overrides)
    config = as_object(parsed.data.get("config"))
    fallback = {name: config[name] for name in _FALLBACK_KEYS if name in config}
    team = _Team(
        model=parsed.model or config.get("model"),
        agents=agent_map(agents),
        tools=tools,
        functions=functions,
        mcp=mcp,
        fallback=fallback,
        validate=validate,
    )
    key = TRAITS[kind].member_key
    problems: list[Problem] = []
    entries = as_array(parsed.data.get(key))
    for number, entry in enumerate(entries):
        problems += team.problems(as_object(entry), f"/{key}/{number}")
    if validate:
        _, more = attach_hooks(parsed.data, functions, {})
        problems += more
        problems += name_problems(parsed)
    parsed.check(problems)
    members = [team.member(entry) for entry in entries]
    return parsed, members


class _Team:
    """What the members of one blueprint are built from.

    Args:
        model: The model of members that name none: an object, or a name.
        agents: Components for entries that are only names.
        tools: The functions behind the tools of all members.
        functions: The functions before and after the work of members, by name.
        mcp: The MCP servers, and the lock of their tools.
        fallback: The settings of fallback models of members that name no model.
        validate: Whether missing tools, and tools that no longer fit, are problems.
    """

    def __init__(
        self,
        model: Model | str | None,
        agents: AgentMap,
        tools: Sequence[Callable[..., Any]],
        *,
        functions: Mapping[str, Tool],
        mcp: Mapping[str, MCPServer] | MCPSource | None,
        fallback: JsonMapping,
        validate: bool,
    ) -> None:
        self._mcp = mcp
        self._model = model
        self._validate = validate
        self._fallback = fallback
        self._agents = agents
        self._tool_functions = tools
        self._functions = functions
        self._tools: Mapping[str, Tool] = tools_by_name(tools)

    def problems(self, entry: JsonMapping, pointer: str) -> list[Problem]:
        """What is wrong with an entry beyond its shape.

        Args:
            entry: The entry, valid or not.
            pointer: Its JSON pointer.
        """
        name = entry.get("name")
        if not isinstance(name, str):
            return []
        if not _defines_agent(entry):
            return self._agents.missing(name, pointer)
        problems = handoff_problems(entry, self._agents, pointer)
        if self._validate:
            tools = entry.get("tools")
            attached, missing = attach(tools, self._tools, f"{pointer}/tools")
            problems += missing
            _, more = attach_mcp(mcp_tools(entry, pointer), self._mcp)
            problems += more
            _, more = attach_hooks(entry, self._functions, attached, pointer)
            problems += more
        config = as_object(entry.get("config"))
        if self._model is None and "model" not in config:
            problem = Problem(
                pointer,
                detail=f"The agent '{name}' has no model.",
                suggestion="Add it under 'config'.",
            )
            problems.append(problem)
        return problems

    def member(self, entry: Blueprint) -> Component:
        """The component of a valid entry."""
        if not _defines_agent(entry):
            return self._agents[entry["name"]]
        options: JsonObject = {}
        if isinstance(self._model, Model):
            options["model"] = self._model
        config = self._config_of(entry.get("config", {}))
        whole = {"instructions": "", **entry, "config": config}
        # it says how the conductor calls its skill
        whole.pop("conversation", None)
        return Agent.from_blueprint(
            whole,
            self._tool_functions,
            self._validate,
            agents=self._agents,
            mcp=self._mcp,
            functions=self._functions,
            **options,
        )

    def _config_of(self, own: JsonMapping) -> JsonObject:
        """The `config` of a member with what it inherits."""
        config: JsonObject = {}
        if isinstance(self._model, Model):
            config["model"] = self._model.name
        elif self._model:
            config["model"] = self._model
        if "model" not in own:
            # the fallback models answer for the model that they were chosen for
            config.update(self._fallback)
        config.update(own)
        return config


def _own_names(parsed: ParsedBlueprint) -> Iterator[MCPToolName]:
    """The MCP tools of the model of a component with members."""
    if TRAITS[parsed.kind].chats:
        yield from mcp_tools(parsed.data)


def _defines_agent(entry: JsonMapping) -> bool:
    """Whether an entry defines an agent, and does not only name one."""
    return any(key in entry for key in _OWN_KEYS)
