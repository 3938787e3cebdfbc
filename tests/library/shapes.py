"""Example blueprints with the fields of the specification, and helpers that several test files use."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from podwright import (
    Agent,
    BlueprintValidationError,
    Conductor,
    FunctionModel,
    Pipeline,
    ScriptedModel,
    Workflow,
    load,
)
from podwright.errors import Problem
from podwright.testing import events_of

Json = dict[str, Any]


def forecast(city: str, days: int = 1) -> str:
    """Forecast the weather."""
    return f"{city}: sun for {days} days"


_PROPERTIES = {"city": {"type": "string"}, "days": {"type": "integer"}}
_FUNCTION = {
    "name": "forecast",
    "parameters": {
        "type": "object",
        "properties": _PROPERTIES,
        "required": ["city"],
    },
}
TOOL: Json = {
    "name": "forecast",
    "schema": {"type": "function", "function": _FUNCTION},
}
# only the fields of spec §§2.1 to 2.4
AGENT: Json = {
    "name": "guide",
    "instructions": "You are a guide.",
    "config": {"model": "openai/gpt-4o-mini", "max_loops": 5},
    "tools": [TOOL],
}


def agent_step(name: str, agent: str = "writer", **more: Any) -> Json:
    return {"type": "agent_step", "agent": agent, "name": name, **more}


WORKFLOW: Json = {
    "name": "newsroom",
    "steps": [agent_step("write"), agent_step("review", "reviewer")],
}
CONDUCTOR: Json = {
    "name": "desk",
    "type": "Conductor",
    "instructions": "Lead the team.",
    "skills": [{"type": "Agent", "name": "writer", "instructions": "Write."}],
    "config": {"model": "openai/gpt-4o-mini", "planning": True},
}
PIPELINE: Json = {
    "name": "line",
    "type": "Pipeline",
    "steps": [
        {"type": "Agent", "name": "writer", "instructions": "Write."},
        {
            "type": "Agent",
            "name": "reviewer",
            "instructions": "Review.",
            "tools": [TOOL],
        },
    ],
    "config": {"model": "openai/gpt-4o-mini"},
}
EVERY_STEP: Json = {
    "name": "all",
    "inputs": {"tone": {"type": "string", "default": "dry"}},
    "limits": {"model_calls": 100, "tokens": 10_000, "cost": 1.5, "seconds": 60},
    "steps": [
        agent_step("write", input="{input}", output="draft"),
        {
            "type": "condition_step", "name": "check", "condition": {"name": "is_empty", "args": {"value": "{draft}"}},
            "then": [
                {
                    "type": "approval_step", "name": "ask", "message": "Go on?", "options": ["approve", "reject"],
                    "edit": {"draft": {"type": "string"}}, "on_reject": [agent_step("apology")],
                },
            ],
            "else": [agent_step("again")],
        },
        {"type": "parallel_step", "name": "both", "branches": [[agent_step("w")]]},
        {
            "type": "loop_step", "name": "loop", "steps": [agent_step("w")],
            "until": {"name": "is_empty", "args": {"value": ""}}, "max_iterations": 2,
        },
        {
            "type": "map_step", "name": "map", "over": "input", "as": "item", "max_concurrency": 2,
            "steps": [agent_step("w")],
        },
        {"type": "workflow_step", "name": "nest", "workflow": {"name": "inner", "steps": [agent_step("w")]}},
        {
            "type": "function_step", "name": "call", "function": "forecast",
            "arguments": {"city": "{draft}", "days": 2}, "output": "weather",
        },
        {
            "type": "try_step", "name": "try", "steps": [agent_step("w")], "retries": 2, "catch": [
                agent_step(
                    "mend", input={"input": "{error.message}", "tones": ["{tone}"]},
                    response_schema={"type": "object", "properties": {"text": {"type": "string"}}},
                    limits={"tokens": 100},
                ),
            ],
        },
    ],
}  # fmt: skip
"""Every type of step, with every key."""
_SCHEMA: Json = {"type": "object", "properties": {"text": {"type": "string"}}}
EVERY_KEY: dict[str, Json] = {
    kind: {
        **blueprint,
        "version": "1",
        "description": "All keys.",
        "metadata": {"author": "x"},
        "inputs": {"tone": {"type": "string", "default": "dry"}},
        "limits": {"model_calls": 3, "tokens": 10, "cost": 0.5, "seconds": 1},
    }
    for kind, blueprint in {
        "agent": {
            **AGENT,
            "type": "Agent",
            "config": {**AGENT["config"], "response_schema": _SCHEMA},
            "before": "forecast",
            "after": ["forecast"],
        },
        "workflow": {**EVERY_STEP, "type": "Workflow"},
        "conductor": {
            **CONDUCTOR,
            "config": {**CONDUCTOR["config"], "response_schema": _SCHEMA},
            "before": ["forecast"],
            "after": "forecast",
        },
        "pipeline": {**PIPELINE, "before": "forecast", "after": ["forecast"]},
    }.items()
}
"""A blueprint of each kind with the keys that are not in the specification."""
BLUEPRINTS = {
    "agent": AGENT,
    "workflow": WORKFLOW,
    "conductor": CONDUCTOR,
    "pipeline": PIPELINE,
}
CLASSES: dict[str, Any] = {
    "agent": Agent,
    "workflow": Workflow,
    "conductor": Conductor,
    "pipeline": Pipeline,
}
KINDS = list(CLASSES)
AGENTS = {
    name: Agent(name, "", ScriptedModel()) for name in ("writer", "reviewer")
}
"""The agents that the examples name."""
REMOVED: Any = object()


def edited(blueprint: Json, pointer: str, value: Any) -> Any:
    """A copy of the blueprint with another value at a JSON pointer; `REMOVED` removes it."""
    if not pointer:
        return value
    data = copy.deepcopy(blueprint)
    *parents, last = pointer.split("/")[1:]
    parent: Any = data
    for part in parents:
        parent = parent[int(part)] if isinstance(parent, list) else parent[part]
    key: Any = int(last) if isinstance(parent, list) else last
    if value is REMOVED:
        del parent[key]
    elif isinstance(parent, list) and key == len(parent):
        parent.append(value)
    else:
        parent[key] = value
    return data


def load_example(blueprint: Any, **options: Any) -> Any:
    """The component of an example, edited or not, with all that the examples name."""
    return load(
        blueprint,
        tools=[forecast],
        agents=AGENTS,
        functions={"forecast": forecast},
        **options,
    )


def problems_of(make: Callable[[], object]) -> list[Problem]:
    """The problems of the `BlueprintValidationError` that `make` raises."""
    with pytest.raises(BlueprintValidationError) as caught:
        make()
    assert caught.value.problems
    return list(caught.value.problems)


def events(trace: Any, *types: str) -> list[Any]:
    """`events_of`, for type checkers that cannot know which types the events have."""
    return list(events_of(trace, *types))


def says(text: str) -> FunctionModel:
    """A model with one answer."""
    return FunctionModel(lambda _: text)
