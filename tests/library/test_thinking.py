"""Thinking models: their thoughts go back to them as they came, over tool loops, turns, traces and attempts."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from tests.library.thinking import STYLES, ThinkingProvider
from tests.library.upstream import Upstream, reply, sse, streamed, upstream

from podwright import Agent, ExecutionResult
from podwright.events import adapter
from podwright.journal.journal import Journal
from podwright.models import Connection
from podwright.models.protocols.openai_compatible import ChatModel
from podwright.models.providers import ANY, ENDPOINTS
from podwright.run.run import Task, execute

streaming_or_not = pytest.mark.parametrize(
    "streaming", [False, True], ids=["plain", "streaming"]
)


def look(word: str) -> str:
    """Look a word up."""
    return f"{word}: found"


class Strict(Upstream):
    """Serves a `ThinkingProvider`."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.provider = ThinkingProvider(STYLES[name])
        self.answers([self.respond])

    def agent(self, **options: Any) -> Agent:
        model = self.provider.style.model
        endpoint = ENDPOINTS.get(model.partition("/")[0], ANY)
        return Agent(
            "guide",
            "Help.",
            ChatModel(model, Connection("k", self.url), endpoint),
            tools=[look],
            **options,
        )

    def respond(self) -> list[Any]:
        """The response to the request that has just arrived."""
        status, body = self.provider.answer(self.requests[-1])
        return (
            streamed(sse(*body))
            if isinstance(body, list)
            else [reply(body, status)]
        )


@pytest.fixture(params=STYLES)
async def strict(request: pytest.FixtureRequest) -> AsyncGenerator[Strict]:
    serving = Strict(request.param)
    async with upstream(serving=serving):
        yield serving


def check(result: ExecutionResult, strict: Strict, number: int) -> None:
    """The answer has no thoughts; the conversation has all of them, in the books' words."""
    assert result.value == f"Answer {number}."
    said = [
        dict(message)
        for message in result.messages
        if message["role"] == "assistant"
    ]
    origins = {message.pop("podwright_provider", None) for message in said}
    assert origins <= {strict.provider.style.model.partition("/")[0], None}
    assert said[-4:] == strict.provider.books[number - 3 : number + 1]
    finished = [
        event for event in result.events if event.type == "model_call_finished"
    ]
    assert {event.response.reasoning for event in finished} == {
        strict.provider.style.reasoning
    }


@streaming_or_not
async def test_thoughts_go_back_as_they_came(
    streaming: bool, strict: Strict, recorder: Any
) -> None:
    """In a loop of three tool calls, in the next turn, and in the turn after a trace was saved and read."""
    agent = strict.agent(event_manager=recorder.manager)
    first = await agent.arun("?", stream=streaming, trace=True)
    check(first, strict, 3)
    second = await agent.arun(
        "?", stream=streaming, trace=True, messages=first.messages
    )
    check(second, strict, 7)
    saved = ExecutionResult.from_dict(json.loads(json.dumps(second.to_dict())))
    third = await strict.agent().arun(
        "?", stream=streaming, trace=True, messages=saved.messages
    )
    check(third, strict, 11)
    assert len(strict.requests) == len(strict.provider.books) == 12
    tokens = "".join(event.text for event in recorder.of("token"))
    thoughts = "".join(event.text for event in recorder.of("reasoning"))
    assert tokens == ("Answer 3.Answer 7." if streaming else "")
    assert thoughts == (
        strict.provider.style.reasoning * 8 if streaming else ""
    )


@pytest.mark.parametrize("cut", range(2, 20, 3))
async def test_a_new_attempt_gives_recorded_thoughts_back(
    cut: int, strict: Strict, recorder: Any
) -> None:
    """Whatever of the first attempt was stored, the next one goes on with the thoughts in it, and repeats no call."""
    agent = strict.agent(event_manager=recorder.manager)
    await execute(agent, Task("?"), run_id="0" * 32)
    stored = [
        adapter().validate_python(json.loads(json.dumps(event.to_dict())))
        for event in recorder.events[:cut]
    ]
    made = sum(event.type == "model_call_finished" for event in stored)
    strict.provider.books[made:] = []
    result = await execute(
        agent, Task("?"), run_id="0" * 32, journal=Journal(stored)
    )
    assert result.value == "Answer 3."
    assert len(strict.provider.books) == 4
