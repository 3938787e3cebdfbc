"""A provider for tests of evaluations: scripted by who asks, with prices, and with a log of what it was asked."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from podwright.errors import ModelRateLimitError
from podwright.messages.messages import ModelRequest, ModelResponse, ToolCall
from podwright.messages.usage import Usage
from podwright.models import Connection, Model, register_provider
from podwright.models.base import TokenCallback
from podwright.models.offline.offline import estimate_input, estimate_tokens

PRICES = {"small": (0.15, 0.6), "large": (2.5, 10.0), "judge": (0.25, 2.0)}
"""USD per million input and output tokens, by model; others have no price."""

Answer = Callable[[ModelRequest, str, Random], Any]
"""Returns a text, JSON data or tool calls: of the request, the model and a source of chance."""


@dataclass
class Provider:
    """What is asked of the models `fake/…`, and how they answer."""

    answer: Answer
    chance: Random = field(default_factory=lambda: Random(1))
    seconds: float = 0.0
    """How long an answer takes."""
    refused: float = 0.0
    """The share of calls that are refused with a 429."""
    log: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """The component and the model of each call."""
    paid: float = 0.0
    """USD of all answers."""
    fresh: bool = True
    """Whether answers vary by chance; else they follow from the request."""

    def calls_of(self, component: str) -> int:
        """How often a component has asked."""
        return sum(name == component for name, _ in self.log)


class FakeModel(Model):
    """A model of the provider."""

    def __init__(self, provider: Provider, size: str) -> None:
        self.provider = provider
        self.size = size
        self.name = f"fake/{size}"

    async def complete(
        self, request: ModelRequest, on_token: TokenCallback | None = None
    ) -> ModelResponse:
        """Answer as the provider's function says."""
        provider = self.provider
        provider.log.append((request.component, self.name))
        if provider.refused and provider.chance.random() < provider.refused:
            error = ModelRateLimitError("429: too many requests")
            error.transient = False
            raise error
        await asyncio.sleep(provider.seconds)
        chance = provider.chance
        if not provider.fresh:
            texts = "".join(message.text for message in request.messages)
            digest = hashlib.sha256(f"{self.name}{texts}".encode()).hexdigest()
            chance = Random(digest)
        answer = provider.answer(request, self.size, chance)
        calls: tuple[ToolCall, ...] = ()
        if isinstance(answer, ToolCall):
            calls, text = (answer,), ""
        else:
            text = answer if isinstance(answer, str) else json.dumps(answer)
        output = estimate_tokens(text) + 8 * len(calls) + 1
        usage = Usage(estimate_input(request), output, cost=None)
        usage = self.with_cost(usage)
        provider.paid += usage.known_cost
        reason = "tool_calls" if calls else "stop"
        return ModelResponse(
            text, calls, usage, finish_reason=reason, model=self.name
        )

    def cost(self, usage: Usage) -> float | None:
        """The cost in USD."""
        if self.size not in PRICES:
            return None
        of_input, of_output = PRICES[self.size]
        return (
            usage.input_tokens * of_input + usage.output_tokens * of_output
        ) / 1e6

    def max_output_tokens(self) -> int | None:
        """The most tokens of an answer."""
        return 400


@contextmanager
def provider(answer: Answer, **options: Any) -> Iterator[Provider]:
    """Register the models `fake/…`, which answer as a function says."""
    made = Provider(answer, **options)

    def make(name: str, connection: Connection) -> Model:
        return FakeModel(made, name)

    register_provider("fake", make)
    yield made


def desk_answer(request: ModelRequest, size: str, chance: Random) -> Any:
    """Answer as the models of the desk: the large one is better, and a short prompt makes worse letters."""
    system = request.messages[0].text
    said = [message for message in request.messages if message.role != "system"]
    whole = " ".join(message.text for message in said)
    skill = 0.95 if size == "large" else 0.75
    luck = chance.random()
    who = request.component
    if who == "intake":
        category = "question"
        for word, kind in (
            ("broken", "refund"),
            ("late", "delivery"),
            ("money", "refund"),
        ):
            if word in whole:
                category = kind
        if luck > skill:
            category = "other"
        digits = [word.strip(".?!,") for word in whole.split()]
        numbers = [int(word) for word in digits if word.isdigit()]
        return {
            "category": category,
            "order": numbers[0] if numbers else None,
            "summary": "s",
        }
    if who in ("critic", "kind"):
        good = "Dear" in whole and luck < 0.9
        return {"good": good, "advice": "" if good else "Address the customer."}
    if request.tools and said[-1].role == "user" and luck < 0.8:
        return ToolCall.of("search_policies", topic="broken items")
    if "Two lines at most" in system:
        skill -= 0.35
    words = "we are sorry, and will see to it at once. " * chance.randint(3, 12)
    name = "Ann" if "Ann" in system else "Bob"
    return f"{'Dear' if chance.random() < skill else 'Hello,'} customer {name}, {words}"
