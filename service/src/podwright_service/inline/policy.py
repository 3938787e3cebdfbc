"""Inline blueprints, from the body of a request: they may name only what the operator allows, within size limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from podwright import blueprints
from podwright.components import Agent, Component, Conductor, Pipeline, Workflow
from podwright.components.template_names import Findings, check_names
from podwright.components.walks import tools_of, walk
from podwright.errors import (
    BlueprintValidationError,
    ConfigurationError,
    PodwrightError,
    Problem,
)
from podwright.events import Kind
from podwright.json_data import as_object, json_pointer
from podwright.text import did_you_mean
from podwright.tools import Tool
from podwright.validation_errors import MAX_PROBLEMS
from podwright_service.inline.inspection import Inspection, Objects
from podwright_service.remotes import remotes_of
from podwright_service.settings import Settings

_STAND_IN = Agent("invalid", "", "offline/echo")
"""Takes the place of an invalid agent, so that the blueprints that name it are checked too."""


@dataclass(frozen=True, slots=True)
class InlinePolicy:
    """What an inline blueprint may name, and how large it may be."""

    models: tuple[str, ...]
    tools: Mapping[str, Tool]
    agents: Mapping[str, Component]
    conditions: Mapping[str, Callable[..., Any]]
    settings: Settings

    def build(
        self, kind: Kind | None, blueprint: Mapping[str, Any], agents: Objects
    ) -> Component:
        """The component of an inline blueprint.

        Args:
            kind: The kind that the request names; None accepts any kind.
            blueprint: The blueprint.
            agents: Blueprints of agents by name. Those of teams and workflows may name the others.

        Raises:
            BlueprintValidationError: All problems, with pointers into the body of the request.
        """
        inspection = Inspection(self.models, self.tools, self.settings)
        order = inspection.inspect(blueprint, agents, self.agents.keys())
        problems = inspection.problems
        component: Component | None = None
        if not inspection.unsafe_to_build:
            available = dict(self.agents)
            for name in order:
                built, more = self._build(
                    None, agents[name], available, json_pointer("agents", name)
                )
                available[name] = built or _STAND_IN
                problems += more
            component, more = self._build(kind, blueprint, available, "/blueprint")
            problems += more
        if problems or component is None:
            first_at: dict[str, Problem] = {}
            # a disallowed name is reported once, although building it fails too
            for problem in problems:
                first_at.setdefault(problem.pointer, problem)
            raise blueprints.invalid(list(first_at.values()), "The inline blueprint")
        return component

    def _build(
        self,
        kind: Kind | None,
        blueprint: Mapping[str, Any],
        agents: Mapping[str, Component],
        pointer: str,
    ) -> tuple[Component | None, list[Problem]]:
        tools = [tool.function for tool in self.tools.values()]
        try:
            kind = kind or blueprints.kind_of(blueprint)
            if kind == "workflow":
                return Workflow.from_blueprint(blueprint, agents, self.conditions), []
            if kind == "agent":
                return Agent.from_blueprint(blueprint, tools), []
            team = Conductor if kind == "conductor" else Pipeline
            return team.from_blueprint(blueprint, tools, agents=agents), []
        except BlueprintValidationError as error:
            return None, [
                Problem(pointer + p.pointer, p.detail, p.suggestion)
                for p in error.problems
            ]
        except PodwrightError as error:
            return None, [Problem(pointer, error.message, error.suggestion)]


def inline_warnings(blueprint: Mapping[str, Any], agents: Objects) -> list[Problem]:
    """The warnings of an inline blueprint, at most 100, with pointers into the body of the request."""
    parts = {
        "/blueprint": blueprint,
        **{json_pointer("agents", name): agents[name] for name in agents},
    }
    found = [
        (at, warning)
        for at, part in parts.items()
        for warning in blueprints.warnings(part)
    ]
    return [
        replace(warning, pointer=at + warning.pointer)
        for at, warning in found[:MAX_PROBLEMS]
    ]


def check_inline_names(blueprint: Mapping[str, Any], agents: Objects) -> Findings:
    """What nothing fills in the templates of a valid inline blueprint, with pointers into the body of the request."""
    instructions = {
        name: as_object(agent).get("instructions", "") for name, agent in agents.items()
    }
    found = check_names(blueprint, instructions)
    return Findings(
        [
            replace(problem, pointer=f"/blueprint{problem.pointer}")
            for problem in found.problems
        ],
        [
            replace(warning, pointer=f"/blueprint{warning.pointer}")
            for warning in found.warnings
        ],
    )


def inline_policy(component: Component, settings: Settings) -> InlinePolicy:
    """The policy of the service of a component.

    Raises:
        ConfigurationError: The settings allow a tool that the component does not have, or an invalid model name.
    """
    tools = tools_of(component)
    allowed_tools = (
        list(tools) if settings.allowed_tools is None else settings.allowed_tools
    )
    for name in allowed_tools:
        if name not in tools:
            raise ConfigurationError(
                f"PODWRIGHT_ALLOWED_TOOLS names '{name}', which '{component.name}' does not have.",
                suggestion=did_you_mean(name, tools)
                or "It has no tools; unset PODWRIGHT_ALLOWED_TOOLS.",
            )
    models = settings.allowed_models
    if models is None:
        models = [*component.models(), *([settings.model] if settings.model else [])]
    elif invalid := [name for name in models if not all(name.partition("/"))]:
        raise ConfigurationError(
            f"PODWRIGHT_ALLOWED_MODELS has the invalid model name '{invalid[0]}'.",
            suggestion="Write <provider>/<model_name>, such as openai/gpt-4o-mini.",
        )
    parts = list(walk(component))
    workflows = [part for part in parts if isinstance(part, Workflow)]
    conditions = {
        name: condition
        for workflow in workflows
        for name, condition in workflow.conditions.items()
    }
    agents = {
        part.name: part
        for part in reversed(parts)
        if part is not component or isinstance(part, Agent)
    }
    return InlinePolicy(
        tuple(models),
        {name: tools[name] for name in allowed_tools},
        {**remotes_of(settings), **agents},
        conditions,
        settings,
    )
