"""What a component consists of: all its parts, their models and tools, and the remote components among them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from podwright.blueprints import digest, walk_steps
from podwright.blueprints.mcp_tools import all_mcp_tools
from podwright.chats.call_approvals import check_decision
from podwright.data.json_data import JsonMapping, JsonObject, as_array
from podwright.data.names import Expression, path_expression
from podwright.kinds import TRAITS
from podwright.messages.approvals import Decision, Question
from podwright.messages.templates import expressions_in
from podwright.models import Model
from podwright.run.component import Component, ModelComponent
from podwright.steps.registry import step_class
from podwright.tools.tool import Tool

LOCKED = "mcp.lock"
"""The key, which no blueprint has, under which the locked definitions count in the digest of a component."""


def walk(component: Component) -> Iterator[Component]:
    """The component and all its parts, each before its own parts; one that is used twice comes twice."""
    yield component
    for member in component.members().values():
        yield from walk(member)


def models_of(component: Component) -> list[Model]:
    """The models that a component and its parts call, each once.

    Raises:
        UnknownModelError: No installed provider serves one of them.
    """
    models: dict[Model, None] = {}
    for part in walk(component):
        if isinstance(part, ModelComponent):
            models |= dict.fromkeys(part.chat_models.all())
    return list(models)


def first_models_of(component: Component) -> dict[str, set[str]]:
    """Names of the models that a component and its parts ask first, by the name of the component that asks."""
    names: dict[str, set[str]] = {}
    for part in walk(component):
        if isinstance(part, ModelComponent):
            names.setdefault(part.name, set()).add(part.chat_models.first.name)
    return names


def reported_models_of(component: Component) -> list[str]:
    """Names of the models that the functions of a component and its parts call by themselves, each once."""
    names: dict[str, None] = {}
    for part in walk(component):
        names |= dict.fromkeys(part.reported_models)
    return list(names)


def component_digest(component: Component) -> str:
    """The digest of a component: of its blueprint, and of the locked definitions of the MCP tools that it names."""
    return locked_digest(component.to_blueprint(), _locked(component))


def comparable_blueprint(component: Component) -> JsonObject:
    """The blueprint of a component, with the digests of its locked definitions as a further key, by `server/tool`."""
    digests: JsonObject = {}
    for server, tool, of_definition in sorted(_locked(component)):
        digests.setdefault(f"{server}/{tool}", []).append(of_definition)
    blueprint = component.to_blueprint()
    if digests:
        blueprint[LOCKED] = digests
    return blueprint


def _locked(component: Component) -> set[tuple[str, str, str]]:
    return {
        (tool.mcp_server, tool.mcp_tool, tool.mcp_digest)
        for part in _parts_in(component)
        for tool in part.own_tools().values()
        if tool.mcp_digest
    }


def _parts_in(component: Component) -> Iterator[Component]:
    """The component, and those members of which its blueprint names the MCP tools; others may have another lock."""
    yield component
    members = as_array(
        component.to_blueprint().get(TRAITS[component.kind].member_key)
    )
    named = {entry["name"] for entry in members if "mcp" in entry}
    for name, member in component.members().items():
        if name in named:
            yield member


def locked_digest(
    blueprint: JsonMapping, locked: Iterable[tuple[str, str, str]]
) -> str:
    """The digest of the component of a blueprint, without loading it.

    Args:
        blueprint: The blueprint.
        locked: Server, tool and digest of each locked definition; those that the blueprint does not name do not count.
    """
    named = {(tool.server, tool.tool) for tool in all_mcp_tools(blueprint)}
    definitions = [
        list(entry) for entry in sorted(locked) if entry[:2] in named
    ]
    if definitions:
        blueprint = {**blueprint, LOCKED: definitions}
    return digest(blueprint)


def mcp_tools_of(component: Component) -> list[Tool]:
    """The tools of MCP servers that the models and the function steps of a component and its parts call."""
    return [
        tool
        for part in walk(component)
        for tool in part.own_tools().values()
        if tool.mcp_server
    ]


def tools_of(component: Component) -> dict[str, Tool]:
    """The tools of a component and its parts, and the functions of their function steps, by name; without MCP tools.

    A name that stands for several functions is left out.
    """
    tools: dict[str, Tool] = {}
    ambiguous: set[str] = set()
    for part in walk(component):
        for name, tool in part.own_tools().items():
            if tool.mcp_server:
                continue
            if not tools.setdefault(name, tool).is_same_as(tool):
                ambiguous.add(name)
    return {name: tool for name, tool in tools.items() if name not in ambiguous}


def tool_names_of(component: Component) -> list[str]:
    """The names of the tools of a component and its parts, those of MCP servers last, each once."""
    of_servers = [tool.name for tool in mcp_tools_of(component)]
    return list(dict.fromkeys([*tools_of(component), *of_servers]))


def check_decision_on(
    component: Component, question: Question, decision: Decision
) -> None:
    """Check a decision about a run of a component, by the validation of the tool if it is about a tool call.

    Raises:
        InputsError: It does not fit the question, with pointers into the decision.
    """
    tool = _tool_of_agent(component, question.component, question.tool)
    if tool is None:
        question.check(decision)
    else:
        check_decision(question, decision, tool)


def _tool_of_agent(component: Component, agent: str, name: str) -> Tool | None:
    """A tool of an agent among the parts of a component; None if no part of the name has it."""
    for part in walk(component):
        tools = part.own_tools()
        if part.name == agent and name in tools:
            return tools[name]
    return None


def conditions_of(component: Component) -> dict[str, Callable[..., Any]]:
    """The conditions that a component and its parts refer to, by name."""
    conditions: dict[str, Callable[..., Any]] = {}
    for part in walk(component):
        conditions |= part.conditions
    return conditions


def values_read(
    blueprint: JsonMapping, known: Collection[str] = ()
) -> list[Expression]:
    """The values that the templates and the map steps of a blueprint read, apart from those of the run itself.

    Args:
        blueprint: A valid blueprint of any kind.
        known: See `podwright.messages.templates.expressions`.
    """
    values = [
        expression
        for expression in expressions_in(blueprint, known)
        if not expression.is_of_run
    ]
    for _, step in walk_steps(blueprint.get("steps")):
        keys = step_class(step).expression_keys
        values += [path_expression(step[key]) for key in keys]
    return values


def remotes_in(*components: Component) -> list[str]:
    """The names of the remote components among some components and their parts, each once."""
    names: dict[str, None] = {}
    for component in components:
        for part in walk(component):
            if part.is_remote:
                names[part.name] = None
    return list(names)
