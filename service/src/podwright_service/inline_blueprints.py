"""Blueprints from outside: safe by construction. They may name what the operator allows, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from podwright import blueprints
from podwright.components import Agent, Component, Conductor, Pipeline, Workflow
from podwright.components.base import ModelComponent
from podwright.errors import BlueprintValidationError, ConfigurationError, PodwrightError, Problem
from podwright.events import Kind
from podwright.json_data import as_array, as_object, json_pointer
from podwright.models import Model
from podwright.text import did_you_mean
from podwright.tools import FunctionTool, to_tool
from podwright_service.remotes import everything_in, remotes_of
from podwright_service.settings import Settings
from podwright_service.sizes import entries, in_order, members, too_large

_STAND_IN = Agent("unbuilt", "", "offline/echo")


@dataclass(frozen=True, slots=True)
class Allowed:
    """What a posted blueprint may name, and how large it may be."""

    models: tuple[str, ...]
    tools: Mapping[str, FunctionTool]
    agents: Mapping[str, Component]
    conditions: Mapping[str, Callable[..., Any]]
    settings: Settings
    """For the sizes."""


InlinePolicy = Allowed


def allowed_by(component: Component, settings: Settings) -> Allowed:
    """What blueprints posted to the service of a component may name.

    Raises:
        ConfigurationError: The settings allow a tool that the component does not have.
    """
    inside = list(everything_in(component))
    tools = tools_of(component)
    wanted = list(tools) if settings.allowed_tools is None else settings.allowed_tools
    for name in wanted:
        if name not in tools:
            raise ConfigurationError(
                f"PODWRIGHT_ALLOWED_TOOLS names '{name}', which '{component.name}' does not have.",
                suggestion=did_you_mean(name, tools) or "It has no tools; unset PODWRIGHT_ALLOWED_TOOLS.",
            )
    models = settings.allowed_models
    if models is None:
        models = [*component.models(), *([settings.model] if settings.model else [])]
    elif wrong := [name for name in models if not all(name.partition("/"))]:
        raise ConfigurationError(
            f"PODWRIGHT_ALLOWED_MODELS names '{wrong[0]}', which is no model's name.",
            suggestion="Write <provider>/<model_name>, such as openai/gpt-4o-mini.",
        )
    conditions = {name: one for part in inside if isinstance(part, Workflow) for name, one in part.conditions.items()}
    agents = {part.name: part for part in reversed(inside) if part is not component or isinstance(part, Agent)}
    agents = {**remotes_of(settings), **agents}
    return Allowed(tuple(models), {name: tools[name] for name in wanted}, agents, conditions, settings)


def models_of(component: Component) -> list[Model]:
    """The models that a component and all inside it call, each once.

    Raises:
        UnknownModelError: Nobody here provides one of them.
    """
    return list(dict.fromkeys(part.model for part in everything_in(component) if isinstance(part, ModelComponent)))


def tools_of(component: Component) -> dict[str, FunctionTool]:
    """The tools of a component, and of all inside it, by name."""
    found: dict[str, FunctionTool] = {}
    clashing: set[str] = set()
    for part in everything_in(component):
        for name, tool in part.tools.items() if isinstance(part, Agent) else ():
            if found.setdefault(name, tool).function is not tool.function:
                clashing.add(name)
    # a name that stands for two functions would be a guess
    return {name: tool for name, tool in found.items() if name not in clashing}


def build(
    allowed: Allowed, kind: Kind | None, blueprint: Mapping[str, Any], agents: Mapping[str, Mapping[str, Any]]
) -> Component:
    """The component of a posted blueprint.

    Args:
        allowed: What it may name.
        kind: What it was said to be; None is whatever it says.
        blueprint: The blueprint.
        agents: Blueprints of agents that it names. Those of teams and workflows may name the others.

    Raises:
        BlueprintValidationError: Every problem, with pointers into the request's body.
    """
    if found := too_large(allowed.settings, blueprint, agents):
        raise blueprints.invalid(found, "The posted blueprint")
    supplied = dict(allowed.agents)
    for name in in_order(agents):
        made, wrong = _built(allowed, None, agents[name], supplied, json_pointer("agents", name))
        supplied[name] = made or _STAND_IN
        found += wrong
    component, wrong = _built(allowed, kind, blueprint, supplied, "/blueprint")
    found = wrong + found
    if found or component is None:
        raise blueprints.invalid(found, "The posted blueprint")
    return component


def _built(
    allowed: Allowed,
    kind: Kind | None,
    blueprint: Mapping[str, Any],
    agents: Mapping[str, Component],
    at: str,
) -> tuple[Component | None, list[Problem]]:
    found = list(_refused(allowed, blueprint))
    foreign = list(_foreign_tools(allowed, blueprint))
    if foreign:  # what a stranger wrote as a tool's schema is not looked at any closer
        return None, [Problem(at + one.pointer, one.detail, one.suggestion) for one in found + foreign]
    component: Component | None = None
    try:
        said = kind or blueprints.kind_of(blueprint)
        tools = [tool.function for tool in allowed.tools.values()]
        if said == "workflow":
            component = Workflow.from_blueprint(blueprint, agents, allowed.conditions)
        elif said == "agent":
            component = Agent.from_blueprint(blueprint, tools)
        else:
            team = Conductor if said == "conductor" else Pipeline
            component = team.from_blueprint(blueprint, tools, agents=agents)
    except BlueprintValidationError as error:
        told = {problem.pointer for problem in found}
        found += [problem for problem in error.problems if problem.pointer not in told]
    except PodwrightError as error:
        found.append(Problem("", error.message, error.suggestion))
    return component, [Problem(at + one.pointer, one.detail, one.suggestion) for one in found]


def _agents(blueprint: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """The blueprint and its members, each with its place: wherever a model and tools may be named."""
    return [("", blueprint), *members(blueprint)]


def _refused(allowed: Allowed, blueprint: Mapping[str, Any]) -> Iterator[Problem]:
    """What a blueprint names and may not, and where it goes further than it may. Its shape is checked elsewhere."""
    for at, one in _agents(blueprint):
        yield from _refused_names(allowed, one, at)
    yield from _refused_steps(allowed.settings, blueprint.get("steps"))


def _refused_names(allowed: Allowed, agent: Mapping[str, Any], at: str) -> Iterator[Problem]:
    settings = as_object(agent.get("config"))
    model = settings.get("model")
    if isinstance(model, str) and model not in allowed.models:
        hint = did_you_mean(model, allowed.models)
        yield Problem(f"{at}/config/model", f"the model '{model}' is not allowed here.", hint)
    loops, most = settings.get("max_loops", 10 if "instructions" in agent else 0), allowed.settings.max_loops
    if isinstance(loops, int) and loops > most:
        yield Problem(f"{at}/config/max_loops", f"max_loops is {loops}; at most {most} is allowed.", f"Say {most}.")
    for number, tool in entries(agent.get("tools")):
        name = tool.get("name")
        if isinstance(name, str) and name not in allowed.tools:
            hint = did_you_mean(name, allowed.tools) or "No tools are allowed here."
            yield Problem(f"{at}/tools/{number}", f"the tool '{name}' is not allowed here.", hint)


def _foreign_tools(allowed: Allowed, blueprint: Mapping[str, Any]) -> Iterator[Problem]:
    """Where a tool's entry is not the served tool's own, but for its texts."""
    for at, one in _agents(blueprint):
        for number, entry in entries(one.get("tools")):
            match entry:
                case {"name": str(name), "schema": {"function": {"parameters": dict()} as function}}:
                    tool = allowed.tools.get(name)
                case _:
                    continue
            own = (tool.schema, to_tool(tool.function).schema) if tool else ()
            if own and _contract(function) not in [_contract(one["function"]) for one in own]:
                detail = f"the parameters are not those of the tool '{name}' that is served here."
                yield Problem(f"{at}/tools/{number}/schema/function", detail, "Only descriptions may differ.")


def _contract(function: Mapping[str, Any]) -> str:
    """A tool's parameters without their descriptions, as text."""

    def bare(whole: dict[str, Any]) -> dict[str, Any]:
        return {key: one for key, one in whole.items() if key != "description" or not isinstance(one, str)}

    text = json.dumps([function["parameters"], function.get("strict", False)])
    return json.dumps(json.loads(text, object_hook=bare), sort_keys=True)


def _refused_steps(settings: Settings, steps: object) -> Iterator[Problem]:
    walked = list(blueprints.walk_steps(steps))
    caps = {"max_iterations": settings.max_loops, "max_concurrency": settings.max_branches}
    for at, step in walked:
        around = sum(at.startswith(f"{other}/") for other, _ in walked)
        if around == settings.max_nesting:  # of a nest that is too deep, the first step tells
            yield Problem(at, f"steps are nested deeper than {settings.max_nesting}.", "Flatten them.")
        count = len(as_array(step.get("branches")))
        if count > settings.max_branches:
            detail = f"{count} branches are too many; {settings.max_branches} are allowed."
            yield Problem(f"{at}/branches", detail, "Do some of them one after the other.")
        for key, most in caps.items():
            value = step.get(key)
            if isinstance(value, int) and value > most:
                yield Problem(f"{at}/{key}", f"{key} is {value}; at most {most} is allowed.", f"Say {most}.")
