"""The agents inside a conductor or a pipeline: their blueprint entries, and the way back (spec §§2.3, 2.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from podwright.blueprints.validation import Blueprint
from podwright.components.agent import Agent
from podwright.components.base import Component
from podwright.components.options import (
    ParsedBlueprint,
    named_map,
    parse_with_overrides,
)
from podwright.errors import ConfigurationError, Problem
from podwright.json_data import as_array, as_object
from podwright.models import Model
from podwright.text import did_you_mean
from podwright.tools import Tool, attach, tools_by_name

_OWN_KEYS = ("instructions", "config", "tools")
_FALLBACK_KEYS = ("fallback", "fallback_wait")
"""An entry with one of these keys defines an agent; without them, it names one that the caller supplies."""


def entries_of(components: object, what: str) -> list[Blueprint]:
    """The blueprint entries of live members: all fields of an agent, only the name of any other component.

    Raises:
        ConfigurationError: A member is not a component.
    """
    if not isinstance(components, Iterable):
        raise ConfigurationError(f"Expected a list of agents, not {components!r}.")
    entries: list[Blueprint] = []
    for component in components:  # pyright: ignore[reportUnknownVariableType] - a caller's iterable
        if not isinstance(component, Component):
            raise ConfigurationError(
                f"A {what} must be a component such as Agent(…), not {component!r}."
            )
        data = (
            component.to_blueprint()
            if isinstance(component, Agent)
            else {"name": component.name}
        )
        entries.append({"type": "Agent", **data})
    return entries


def parse_team(
    kind: Literal["conductor", "pipeline"],
    blueprint: object,
    tools: Sequence[Callable[..., Any]],
    validate: bool,
    agents: object,
    overrides: Mapping[str, Any],
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
        parsed.model or config.get("model"),
        named_map(agents, "agents"),
        tools,
        fallback=fallback,
    )
    key = "skills" if kind == "conductor" else "steps"
    problems: list[Problem] = []
    for number, entry in enumerate(as_array(parsed.data.get(key))):
        problems += team.problems(as_object(entry), f"/{key}/{number}", validate)
    parsed.check(problems)
    return parsed, [team.member(entry, validate) for entry in parsed.data[key]]


class _Team:
    """What the members of one blueprint are built from.

    Args:
        model: The model of members that name none: an object, or a name.
        agents: Components for entries that are only names.
        tools: The functions behind the tools of all members.
        fallback: The settings of fallback models of members that name no model.
    """

    def __init__(
        self,
        model: Model | str | None,
        agents: Mapping[str, Component],
        tools: Sequence[Callable[..., Any]],
        *,
        fallback: Mapping[str, Any],
    ) -> None:
        self._model = model
        self._fallback = fallback
        self._agents = agents
        self._functions = tools
        self._tools: Mapping[str, Tool] = tools_by_name(tools)

    def problems(
        self, entry: Mapping[str, Any], at: str, validate: bool
    ) -> list[Problem]:
        """What is wrong with an entry beyond its shape."""
        name = entry.get("name")
        if not isinstance(name, str):
            return []
        if not any(key in entry for key in _OWN_KEYS):
            hint = (
                did_you_mean(name, self._agents)
                or "Pass it in agents={…}, or add its instructions."
            )
            return (
                []
                if name in self._agents
                else [Problem(at, f"Missing agent '{name}'.", hint)]
            )
        found = (
            attach(entry.get("tools"), self._tools, f"{at}/tools")[1]
            if validate
            else []
        )
        if self._model is None and "model" not in as_object(entry.get("config")):
            found.append(
                Problem(
                    at, f"The agent '{name}' has no model.", "Add it under 'config'."
                )
            )
        return found

    def member(self, entry: Blueprint, validate: bool) -> Component:
        """The component of a valid entry."""
        if not any(key in entry for key in _OWN_KEYS):
            return self._agents[entry["name"]]
        options = {"model": self._model} if isinstance(self._model, Model) else {}
        model_name = self._model.name if isinstance(self._model, Model) else self._model
        own = entry.get("config", {})
        # the fallback models answer for the model that they were chosen for
        inherited = {"model": model_name} if model_name else {}
        if "model" not in own:
            inherited |= self._fallback
        config = {**inherited, **own}
        whole = {"instructions": "", **entry, "config": config}
        return Agent.from_blueprint(whole, self._functions, validate, **options)
