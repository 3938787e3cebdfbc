"""Agents inside a conductor or a pipeline: to their blueprint entries, and back (spec §§2.3, 2.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from podwright import blueprints
from podwright.components.agent import Agent
from podwright.components.base import Component, Options, overridden
from podwright.errors import ConfigurationError, Problem
from podwright.json_data import as_array, as_object
from podwright.models import Model
from podwright.text import did_you_mean, short_repr
from podwright.tools import FunctionTool, attach, tools_by_name

_OWN = ("instructions", "config", "tools")
"""Keys one of which makes an entry an agent of its own; without any, it stands for one that the caller supplies."""


def entries_for(components: Iterable[Component], what: str) -> list[blueprints.Blueprint]:
    """The entries of live members: an agent with all its fields, any other component by its name.

    Raises:
        ConfigurationError: Something given is no component.
    """
    found: list[blueprints.Blueprint] = []
    if not isinstance(components, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance] - it comes from a caller
        raise ConfigurationError(f"The agents are a list, not {components!r}.", suggestion=f"Write [{components!r}].")
    for one in components:
        if not isinstance(one, Component):  # pyright: ignore[reportUnnecessaryIsInstance] - it comes from a caller
            raise ConfigurationError(
                f"A {what} is a component, not {one!r}.", suggestion="Give agents, such as Agent(…)."
            )
        whole = one.to_blueprint() if isinstance(one, Agent) else {"name": one.name}
        found.append({"type": "Agent", **whole})
    return found


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What a blueprint with members came to."""

    blueprint: blueprints.Blueprint
    options: Options | None
    model: Model | None
    members: list[Component]


def rebuilt(
    kind: Literal["conductor", "pipeline"],
    blueprint: Mapping[str, Any],
    tools: Sequence[Callable[..., Any]],
    validate: bool,
    agents: Mapping[str, Component],
    changes: Mapping[str, Any],
) -> Rebuilt:
    """Check a blueprint with members, and build them.

    Raises:
        BlueprintValidationError: The blueprint is invalid; all problems at once.
        ConfigurationError: A keyword is no value of this kind.
    """
    whole, options, model = overridden(blueprint, kind, changes)
    key = "skills" if kind == "conductor" else "steps"
    shared: Any = model
    match whole.get("config"):
        case {"model": str(name)} if model is None:
            shared = name
        case _:
            pass
    supplied = tools_by_name(tools)
    found = blueprints.problems(whole, kind) if validate else []
    for number, entry in enumerate(as_array(whole.get(key))):
        found += _member_problems(as_object(entry), f"/{key}/{number}", supplied, agents, shared, validate)
    if found:
        raise blueprints.invalid(found, f"The blueprint of {kind} {short_repr(whole.get('name'))}")
    whole = blueprints.check(whole, kind, validate)
    members = [_member(entry, tools, agents, shared, validate) for entry in whole[key]]
    return Rebuilt(whole, options or None, model, members)


def _member_problems(
    entry: Mapping[str, Any],
    at: str,
    supplied: Mapping[str, FunctionTool],
    agents: Mapping[str, Component],
    shared: Model | str | None,
    validate: bool,
) -> list[Problem]:
    """What is wrong with an entry beyond its shape."""
    name = entry.get("name")
    if not isinstance(name, str):
        return []
    if not any(key in entry for key in _OWN):
        hint = did_you_mean(name, agents) or "Give it in agents={…}, or add its instructions."
        return [] if name in agents else [Problem(at, f"no agent called '{name}' was given.", hint)]
    found = attach(entry.get("tools"), supplied, f"{at}/tools")[1] if validate else []
    if shared is None and "model" not in as_object(entry.get("config")):
        found.append(Problem(at, f"the agent '{name}' has no model.", "Add it under 'config'."))
    return found


def _member(
    entry: blueprints.Blueprint,
    tools: Sequence[Callable[..., Any]],
    agents: Mapping[str, Component],
    shared: Model | str | None,
    validate: bool,
) -> Component:
    if not any(key in entry for key in _OWN):
        return agents[entry["name"]]
    given = {"model": shared} if isinstance(shared, Model) else {}
    named = shared.name if isinstance(shared, Model) else shared
    config = {**({"model": named} if named else {}), **entry.get("config", {})}
    return Agent.from_blueprint({"instructions": "", **entry, "config": config}, tools, validate, **given)
