"""A blueprint of each kind as the spec has it, and what tests of blueprints do with them."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from podwright import Agent, BlueprintValidationError, Conductor, Pipeline, ScriptedModel, Workflow, load
from podwright.errors import Problem

Json = dict[str, Any]


def forecast(city: str, days: int = 1) -> str:
    """Say what the weather will be."""
    return f"{city}: sun for {days} days"


TOOL: Json = {
    "name": "forecast",
    "schema": {
        "type": "function",
        "function": {
            "name": "forecast",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                "required": ["city"],
            },
        },
    },
}
# just the fields of spec §§2.1 to 2.4, and none of ours
AGENT: Json = {
    "name": "guide",
    "instructions": "You are a guide.",
    "config": {"model": "openai/gpt-4o-mini", "max_loops": 5},
    "tools": [TOOL],
}
WORKFLOW: Json = {
    "name": "newsroom",
    "steps": [
        {"type": "agent_step", "agent": "writer", "name": "write"},
        {"type": "agent_step", "agent": "reviewer", "name": "review"},
    ],
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
        {"type": "Agent", "name": "reviewer", "instructions": "Review.", "tools": [TOOL]},
    ],
    "config": {"model": "openai/gpt-4o-mini"},
}
EVERY_STEP: Json = {
    "name": "all",
    "steps": [
        {"type": "agent_step", "agent": "writer", "name": "write", "input": "{input}", "output": "draft"},
        {
            "type": "condition_step", "name": "check", "condition": {"name": "is_empty", "args": {"value": "{draft}"}},
            "then": [{"type": "approval_step", "name": "ask", "message": "Go on?"}],
            "else": [{"type": "agent_step", "agent": "writer", "name": "again"}],
        },
        {
            "type": "parallel_step", "name": "both",
            "branches": [[{"type": "agent_step", "agent": "writer", "name": "w"}]],
        },
        {
            "type": "loop_step", "name": "loop", "steps": [{"type": "agent_step", "agent": "writer", "name": "w"}],
            "until": {"name": "is_empty", "args": {"value": ""}}, "max_iterations": 2,
        },
        {
            "type": "map_step", "name": "map", "over": "input", "as": "item", "max_concurrency": 2,
            "steps": [{"type": "agent_step", "agent": "writer", "name": "w"}],
        },
        {
            "type": "workflow_step", "name": "nest",
            "workflow": {"name": "inner", "steps": [{"type": "agent_step", "agent": "writer", "name": "w"}]},
        },
    ],
}  # fmt: skip
SHAPES = {"agent": AGENT, "workflow": WORKFLOW, "conductor": CONDUCTOR, "pipeline": PIPELINE}
CLASSES: dict[str, Any] = {"agent": Agent, "workflow": Workflow, "conductor": Conductor, "pipeline": Pipeline}
STAND_INS = {name: Agent(name, "", ScriptedModel()) for name in ("writer", "reviewer")}
BY_NAME: Json = {"type": "Agent", "name": "writer"}
DROP: Any = object()


def edited(blueprint: Json, pointer: str, value: Any) -> Any:
    """The blueprint with another value at a place; `DROP` removes what is there."""
    whole = copy.deepcopy(blueprint)
    if not pointer:
        return value
    *parents, last = pointer.split("/")[1:]
    here: Any = whole
    for part in parents:
        here = here[int(part)] if isinstance(here, list) else here[part]
    key: Any = int(last) if isinstance(here, list) else last
    if value is DROP:
        del here[key]
    elif isinstance(here, list) and key == len(here):
        here.append(value)
    else:
        here[key] = value
    return whole


def rebuilt(blueprint: Any, **options: Any) -> Any:
    return load(blueprint, tools=[forecast], agents=STAND_INS, **options)


def refused(make: Callable[[], object]) -> list[Problem]:
    """The problems for which something is refused."""
    with pytest.raises(BlueprintValidationError) as caught:
        make()
    error = caught.value
    assert error.problems
    count = len(error.problems)
    assert f"{count} problem{'s' if count > 1 else ''}" in error.message
    return list(error.problems)
