"""Components whose stopped runs an earlier release recorded, and what it recorded of them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from podwright import (
    Agent,
    AgentStep,
    ApprovalStep,
    Component,
    Conductor,
    FunctionAgent,
    FunctionModel,
    FunctionStep,
    Pipeline,
    Workflow,
    WorkflowStep,
    tool,
)
from podwright.messages.usage import Usage
from podwright.testing import ModelRequest, ModelResponse, ToolCall

DATA = Path(__file__).parent / "data"
STATE_KEY = "k" * 32
"""The key with which the states in `stopped_runs.json` are sealed."""
effects: Counter[str] = Counter()
"""The calls of models and tools, by name and input."""


@tool(approval=True)
def pay(amount: int) -> str:
    """Pay."""
    effects[f"pay {amount}"] += 1
    return f"paid {amount}"


def give(item: str) -> str:
    """Give an item away."""
    effects[f"give {item}"] += 1
    return f"gave {item}"


def respond(request: ModelRequest) -> ModelResponse:
    """Call the first tool once, then answer."""
    last = request.messages[-1]
    effects[f"{request.component} {last.role}"] += 1
    usage = Usage(10, 5, cost=0.25)
    if not request.tools or last.role == "tool":
        return ModelResponse(f"{request.component}: {last.text}", usage=usage)
    call = ToolCall.of("pay", "1", amount=5)
    if request.component == "boss":
        call = ToolCall.of("clerk", "1", task="Pay five.")
    return ModelResponse(
        tool_calls=(call,), usage=usage, finish_reason="tool_calls"
    )


async def assist(task: str) -> str:
    """The function of an agent, which runs another agent."""
    return await clerk.arun(task)


MODEL = FunctionModel(respond)
clerk = Agent("clerk", "Pay what is asked.", MODEL, tools=[pay])
writer = Agent("writer", "Write.", MODEL)
COMPONENTS: dict[str, Component] = {
    component.name: component
    for component in (
        clerk,
        Pipeline("line", steps=[writer, clerk]),
        Conductor("boss", "Lead.", model=MODEL, skills=[clerk, writer]),
        FunctionAgent("assistant", assist),
        Workflow(
            "desk",
            steps=[
                AgentStep(writer, "draft"),
                ApprovalStep("Give {writer_output}?", "ask"),
                FunctionStep(give, {"item": "{input}"}, output="given"),
            ],
        ),
        Workflow(
            "office",
            steps=[
                WorkflowStep(
                    Workflow("room", steps=[AgentStep(writer, "draft")])
                ),
                AgentStep(clerk, "paid"),
            ],
        ),
    )
}


def read_data(name: str) -> Any:
    """The content of a file that an earlier release wrote."""
    return json.loads((DATA / name).read_text())
