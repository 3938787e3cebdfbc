"""What a component consists of: all its parts, their models and tools, and the remote components among them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from podwright.approvals import Decision, Question
from podwright.components.agent import Agent
from podwright.components.base import Component, ModelComponent
from podwright.components.call_approvals import check_decision
from podwright.components.folder import function_names
from podwright.components.pipeline import Pipeline
from podwright.components.remote import Remote
from podwright.components.workflow import Workflow
from podwright.json_data import JsonObject
from podwright.models import Model
from podwright.tools import Tool


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


def reported_models_of(component: Component) -> list[str]:
    """Names of the models that the functions of a component and its parts call by themselves, each once."""
    names: dict[str, None] = {}
    for part in walk(component):
        names |= dict.fromkeys(part.reported_models)
    return list(names)


def tools_of(component: Component) -> dict[str, Tool]:
    """The tools of a component and its parts, and the functions of their function steps, by name.

    A name that stands for several functions is left out.
    """
    tools: dict[str, Tool] = {}
    ambiguous: set[str] = set()
    for part in walk(component):
        for name, tool in own_tools_of(part).items():
            if tools.setdefault(name, tool).function is not tool.function:
                ambiguous.add(name)
    return {name: tool for name, tool in tools.items() if name not in ambiguous}


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
        tools = own_tools_of(part)
        if part.name == agent and name in tools:
            return tools[name]
    return None


def own_tools_of(part: Component) -> Mapping[str, Tool]:
    """The tools of a component without those of its members, or the functions of its function steps, by name."""
    if isinstance(part, Agent):
        return part.tools
    if not isinstance(part, Workflow):
        return {}
    named = function_names(part.to_blueprint())
    return {
        name: tool for name, tool in part.functions.items() if name in named
    }


def response_schema_of(component: Component) -> JsonObject | None:
    """The JSON Schema of a component's answers; None if they are texts, or if that is not known."""
    if isinstance(component, Pipeline):
        return response_schema_of(component.steps[-1])
    return component.config.get("response_schema")


def remotes_in(*components: Component) -> list[str]:
    """The names of the remote components among some components and their parts, each once."""
    names: dict[str, None] = {}
    for component in components:
        for part in walk(component):
            if isinstance(part, Remote):
                names[part.name] = None
    return list(names)
