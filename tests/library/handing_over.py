"""Three agents that hand off to each other, and a model that goes where it is told."""

from __future__ import annotations

from typing import Any

from podwright import Agent, FunctionModel, Handoff, tool
from podwright.testing import ModelRequest, ToolCall

PAID: list[int] = []
"""What the tool has paid back."""


@tool(approval=True)
def refund(amount: int) -> str:
    """Pay back."""
    PAID.append(amount)
    return f"{amount} paid back"


def look(word: str) -> str:
    """Look a word up."""
    return f"{word}: found"


def route(request: ModelRequest) -> Any:
    """Follow the user's words: each is an agent to hand over to, or `refund`; at the end say who speaks."""
    turn = [message for message in request.messages if message.role != "system"]
    (*_, begin) = [
        number for number, each in enumerate(turn) if each.role == "user"
    ]
    words = turn[begin].text.split()
    done = sum(each.role == "tool" for each in turn[begin:])
    if done == len(words):
        return f"{request.component} answers"
    if words[done] == "refund":
        return [ToolCall.of("refund", f"call_{done}", amount=5)]
    return [ToolCall.of(f"transfer_to_{words[done]}", f"call_{done}")]


def desk(model: Any = None, **options: Any) -> Agent:
    """Three agents that hand off to each other in circles."""
    model = model or FunctionModel(route)
    faq = Agent("faq", "You know.", model, handoffs=["triage", "billing"])
    billing = Agent(
        "billing",
        "You bill.",
        model,
        tools=[refund],
        description="Invoices and refunds.",
        handoffs=["triage", faq],
    )
    return Agent(
        "triage",
        "You sort.",
        model,
        tools=[look],
        handoffs=[Handoff(billing, when="About money."), Handoff(faq)],
        **options,
    )
