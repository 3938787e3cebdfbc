"""Halves of surrogate pairs are no part of a request, whatever they come from: providers refuse such JSON for good."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from tests.library.claude import Claude
from tests.library.model_clients import (
    CLIENTS,
    Client,
    openai_compatible,
    question,
)
from tests.library.upstream import (
    STORY,
    Upstream,
    completion,
    reply,
    streamed,
    upstream,
)

from podwright import Agent, AgentStep, FunctionStep, Workflow
from podwright.data.json_data import values_in
from podwright.data.json_forms import to_utf8_text
from podwright.messages.messages import Message, ToolCall

FILE = os.fsdecode(b"r\xe9sum\xe9.txt")
"""The name of a file that is not UTF-8."""
HALVES = {
    "a first half": ("a\ud83d", "a\ufffd"),
    "a second half": ("\ude00b", "\ufffdb"),
    "halves in the wrong order": ("\ude00\ud83d", "\ufffd\ufffd"),
    "halves that belong together": ("\ud83d\ude00", "\U0001f600"),
    "a half before a whole": ("\ud83d\U0001f600", "\ufffd\U0001f600"),
    "a mark of byte order": ("\ufeff\ud83d\ufeff", "\ufeff\ufffd\ufeff"),
    "a file name": (FILE, "r\ufffdsum\ufffd.txt"),
}

streaming_or_not = pytest.mark.parametrize(
    "streaming", [False, True], ids=["plain", "streaming"]
)


@pytest.fixture
async def claude() -> AsyncGenerator[Claude]:
    serving = Claude()
    async with upstream(serving=serving):
        yield serving


def fields_with(half: str) -> dict[str, Any]:
    """A request that has a text wherever one may be."""
    call = ToolCall("call_1", "look_up", '{"word": "sea"}')
    tool = {
        "type": "function",
        "function": {
            "name": "look_up",
            "description": half,
            "parameters": {
                "type": "object",
                "properties": {
                    "word": {"type": "string", "description": half},
                    half: {"type": "string", "enum": [half]},
                },
            },
        },
    }
    messages = (
        Message("system", half),
        Message("user", half),
        Message("assistant", half, tool_calls=(call,)),
        Message("tool", half, tool_call_id="call_1"),
        Message("user", half),
    )
    return {"messages": messages, "tools": [tool]}


def texts_in(body: object) -> list[str]:
    """All texts and keys of a body."""
    found: list[str] = []
    for value in values_in(body):
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, dict):
            found += value
    return found


def check(body: object, half: str, whole: str) -> None:
    """Check that a text has arrived in each place, and that all are UTF-8."""
    texts = texts_in(body)
    for text in texts:
        text.encode()
    assert sum(text == whole for text in texts) >= 7
    if half != whole:
        assert half not in texts


@pytest.mark.parametrize("name", HALVES)
def test_text_in_utf_8(name: str) -> None:
    """Halves that belong together become one character, others U+FFFD."""
    half, whole = HALVES[name]
    assert to_utf8_text(half) == whole
    assert to_utf8_text(whole) == whole


@streaming_or_not
@pytest.mark.parametrize("name", HALVES)
@pytest.mark.parametrize("client", CLIENTS)
async def test_no_half_is_sent(
    provider: Upstream, client: Client, name: str, streaming: bool
) -> None:
    """Every text of a request is UTF-8: messages, results of tools, and the keys and texts of schemas."""
    half, whole = HALVES[name]
    provider.answers(streamed(STORY) if streaming else [reply(completion())])
    if streaming:
        await client.stream(provider, **fields_with(half))
    else:
        await client.ask(provider, **fields_with(half))
    check(provider.requests[0], half, whole)


@streaming_or_not
@pytest.mark.parametrize("name", HALVES)
async def test_no_half_is_sent_to_claude(
    claude: Claude, name: str, streaming: bool
) -> None:
    """So it is in Anthropic's protocol."""
    half, whole = HALVES[name]
    request = question("anthropic/claude", **fields_with(half))
    tokens: list[str] = []
    await claude.model().complete(request, tokens.append if streaming else None)
    check(claude.requests[0], half, whole)


async def test_a_conversation_with_a_half_goes_on(provider: Upstream) -> None:
    """Instructions, earlier turns, returned ones too, and results in templates: what is sent has no half."""
    provider.answers([reply(completion())])
    client = Client(openai_compatible, "openai/gpt-4o-mini")
    model = client.model_at(provider.url)
    agent = Agent("guide", f"Help {FILE}.", model)
    turns = [
        {"role": "user", "content": FILE},
        {"role": "assistant", "content": "a\ud83d"},
    ]
    result = await agent.arun("And then?", messages=turns, trace=True)
    await agent.arun("And then?", messages=result.messages)

    def listing() -> dict[str, str]:
        return {FILE: FILE}

    steps = [
        FunctionStep(listing, output="files"),
        AgentStep(agent, input="Read {files}."),
    ]
    await Workflow("flow", steps).arun("x")
    assert len(provider.requests) == 3
    for body in provider.requests:
        for text in texts_in(body):
            text.encode()
        assert "r\ufffdsum\ufffd.txt" in str(body)
