"""Inline blueprints, from the body of a request: they may name only what the operator allows, within size limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from podwright import blueprints
from podwright.blueprints.members import handoffs_of
from podwright.blueprints.named_parts import member_names
from podwright.components import Agent, Component, Pipeline
from podwright.components.handoffs import handoff_problems
from podwright.data.json_data import json_pointer
from podwright.data.text import did_you_mean
from podwright.errors import (
    BlueprintValidationError,
    ConfigurationError,
    PodwrightError,
    Problem,
)
from podwright.folders.loader import KINDS
from podwright.folders.walks import conditions_of, tools_of, walk
from podwright.kinds import Kind
from podwright.run.component import Supplied
from podwright.schemas.validation_errors import MAX_PROBLEMS
from podwright.threads import check_cancelled
from podwright.tools.tool import Tool
from podwright.workflows.agent_map import AgentMap
from podwright.workflows.template_names import check_names
from podwright_service.inline.allowed_mcp import AllowedMCP, allowed_mcp
from podwright_service.inline.inspection import Blueprints, Inspection
from podwright_service.remotes import remotes_of
from podwright_service.settings import Settings

if TYPE_CHECKING:
    from podwright.mcp.entries import MCPSource
    from podwright.mcp.server import MCPServer

_STAND_IN = Pipeline("invalid", [Agent("invalid", "", "offline/echo")])
"""Takes the place of an invalid agent, so that the blueprints that name it are checked too: it takes any inputs, and
nothing is known of its answer."""


@dataclass(frozen=True, slots=True)
class InlinePolicy:
    """What an inline blueprint may name, and how large it may be."""

    models: tuple[str, ...]
    tools: Mapping[str, Tool]
    agents: Mapping[str, Component]
    conditions: Mapping[str, Callable[..., Any]]
    mcp: AllowedMCP
    settings: Settings

    def build(
        self,
        kind: Kind | None,
        blueprint: Mapping[str, Any],
        agents: Blueprints,
    ) -> Component:
        """The component of an inline blueprint.

        Args:
            kind: The kind that the request names; None accepts any kind.
            blueprint: The blueprint.
            agents: Blueprints of agents by name. Those of teams and workflows may name the others.

        Raises:
            BlueprintValidationError: All problems, with pointers into the body of the request.
        """
        inspection = Inspection(
            self.models, self.tools, self.settings, self.mcp
        )
        order = inspection.inspect(blueprint, agents, self.agents.keys())
        refused = {problem.pointer for problem in inspection.problems}
        problems: list[Problem] = []
        component: Component | None = None
        mcp = self.mcp.source()
        if not inspection.unsafe_to_build:
            handing_over, problems = self._build_handing_over(agents, mcp)
            available = {**self.agents, **handing_over}
            members = _members_of_any(blueprint, agents)
            for name in order:
                check_cancelled()
                pointer = json_pointer("agents", name)
                if name in handing_over:
                    # the agent that a run begins with supplies what the others lack
                    if name not in members:
                        continue
                    built, more = _complete(
                        handing_over[name], available, pointer
                    )
                else:
                    built, more = self._build(
                        None, agents[name], available, pointer, mcp
                    )
                available[name] = built or _STAND_IN
                problems += more
            component, more = self._build(
                kind, blueprint, available, "/blueprint", mcp
            )
            problems += more
        # a disallowed name is reported once, although building it fails too
        found = [
            *inspection.problems,
            *(each for each in problems if each.pointer not in refused),
        ]
        if found or component is None:
            raise blueprints.invalid(found, "The inline blueprint")
        return component

    def _build_handing_over(
        self, agents: Blueprints, mcp: MCPSource | None
    ) -> tuple[dict[str, Component], list[Problem]]:
        """The agents that hand off to others, as far as they are known without these; circles are allowed."""
        built: dict[str, Component] = {}
        problems: list[Problem] = []
        for name, blueprint in agents.items():
            awaited = handoffs_of(blueprint)
            if not awaited:
                continue
            check_cancelled()
            pointer = json_pointer("agents", name)
            agent, more = self._build(
                None, blueprint, AgentMap(awaited=awaited), pointer, mcp
            )
            built[name] = agent or _STAND_IN
            problems += more
        return built, problems

    def _build(
        self,
        kind: Kind | None,
        blueprint: Mapping[str, Any],
        agents: Mapping[str, Component],
        pointer: str,
        mcp: MCPSource | None,
    ) -> tuple[Component | None, list[Problem]]:
        supplied = Supplied(
            tools=self._served_tools(),
            agents=agents,
            conditions=self.conditions,
            functions=self.tools,
            mcp=mcp,
        )
        try:
            kind = kind or blueprints.kind_of(blueprint)
            return KINDS[kind].assemble(blueprint, supplied), []
        except BlueprintValidationError as error:
            return None, _below(pointer, error.problems)
        except PodwrightError as error:
            return None, [Problem(pointer, error.message, error.suggestion)]

    def _served_tools(self) -> list[Tool]:
        """The tools by the schemas of their code, with what the operator's blueprint says of their calls."""
        return [
            tool.with_schema(tool.own_schema).renamed(name)
            for name, tool in self.tools.items()
        ]


def _members_of_any(
    blueprint: Mapping[str, Any], agents: Blueprints
) -> set[str]:
    """The agents that any of the blueprints names as a member or in a step."""
    names: set[str] = set()
    for each in (blueprint, *agents.values()):
        names.update(member_names(each))
    return names


def _complete(
    agent: Component, agents: Mapping[str, Component], pointer: str
) -> tuple[Component, list[Problem]]:
    """An agent with those that it reaches by handoffs, and the problems of those that are missing."""
    if not isinstance(agent, Agent):
        return agent, []
    try:
        problems = handoff_problems(agent.to_blueprint(), AgentMap(agents))
        return agent.with_agents(agents), _below(pointer, problems)
    except PodwrightError as error:
        return agent, [Problem(pointer, error.message, error.suggestion)]


def _below(pointer: str, problems: Iterable[Problem]) -> list[Problem]:
    """Problems of a blueprint that is at a pointer of the body."""
    return [
        replace(problem, pointer=pointer + problem.pointer)
        for problem in problems
    ]


def inline_warnings(
    blueprint: Mapping[str, Any], agents: Blueprints
) -> list[Problem]:
    """The warnings of a valid inline blueprint, at most 100, with pointers into the body of the request."""
    found = _below("/blueprint", _warnings(blueprint))
    for name, agent in agents.items():
        found += _below(json_pointer("agents", name), _warnings(agent))
    return found[:MAX_PROBLEMS]


def _warnings(blueprint: Mapping[str, Any]) -> list[Problem]:
    return [
        *blueprints.warnings(blueprint),
        *check_names(blueprint).warnings,
    ]


def inline_policy(
    component: Component, settings: Settings, servers: Mapping[str, MCPServer]
) -> InlinePolicy:
    """The policy of the service of a component.

    Args:
        component: The component.
        settings: The settings.
        servers: The MCP servers of the service.

    Raises:
        ConfigurationError: The settings allow a tool that the component does not have, an MCP server that the service
            does not have, or an invalid model name.
    """
    tools = _allowed_tools(component, settings)
    models = _allowed_models(component, settings)
    parts = list(walk(component))
    agents = remotes_of(settings)
    for part in reversed(parts):
        if part is not component or isinstance(part, Agent):
            agents[part.name] = part
    return InlinePolicy(
        models,
        tools,
        agents={
            name: part.with_agents(agents) if isinstance(part, Agent) else part
            for name, part in agents.items()
        },
        conditions=conditions_of(component),
        mcp=allowed_mcp(component, servers, settings.allowed_mcp),
        settings=settings,
    )


def _allowed_tools(component: Component, settings: Settings) -> dict[str, Tool]:
    """The tools that inline blueprints may name, by name."""
    tools = tools_of(component)
    if settings.allowed_tools is None:
        return tools
    for name in settings.allowed_tools:
        if name not in tools:
            hint = did_you_mean(name, tools)
            raise ConfigurationError(
                f"PODWRIGHT_ALLOWED_TOOLS names '{name}', which '{component.name}' does not have.",
                suggestion=hint
                or "It has no tools; unset PODWRIGHT_ALLOWED_TOOLS.",
            )
    return {name: tools[name] for name in settings.allowed_tools}


def _allowed_models(
    component: Component, settings: Settings
) -> tuple[str, ...]:
    """The models that inline blueprints may name."""
    if settings.allowed_models is None:
        return (*component.models(), *settings.models.values())
    for name in settings.allowed_models:
        if not all(name.partition("/")):
            raise ConfigurationError(
                f"PODWRIGHT_ALLOWED_MODELS has the invalid model name '{name}'.",
                suggestion="Write <provider>/<model_name>, such as openai/gpt-4o-mini.",
            )
    return tuple(settings.allowed_models)
