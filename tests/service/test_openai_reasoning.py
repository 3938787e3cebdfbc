"""The thoughts of models in the conversations and answers of the OpenAI-compatible routes."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from tests.service import open_responses
from tests.service.openai_support import (
    SIGNED,
    Thinker,
    events_of,
    post,
    sdk,
    search,
    user,
)
from tests.service.support import Serve

from podwright import Agent, AgentStep, Conductor, Workflow


@pytest.fixture
def thinker() -> Thinker:
    return Thinker()


@pytest.fixture
def service(serve: Serve, thinker: Thinker) -> httpx.Client:
    return serve(
        Agent("helper", "Help.", thinker, tools=[search]), show_reasoning=True
    )


THOUGHTS = "I should look.\n\nI should answer."


def test_thoughts_in_chat_completions(service: httpx.Client) -> None:
    """The thoughts of all calls are beside the answer, whole and streamed; the answer is the same without them."""
    message = post(service, "chat", {"messages": [user("search")]}).json()[
        "choices"
    ][0]["message"]
    assert (message["reasoning_content"], message["content"]) == (
        THOUGHTS,
        "Found.",
    )
    deltas = [
        chunk["choices"][0]["delta"]
        for chunk in events_of(
            post(
                service, "chat", {"messages": [user("search")], "stream": True}
            )
        )
    ]
    assert (
        "".join(delta.get("reasoning_content", "") for delta in deltas)
        == THOUGHTS
    )
    assert (
        "".join(delta.get("content", "") for delta in deltas)
        == "Let me look.\n\nFound."
    )
    assert [next(iter(delta), "") for delta in deltas[1:4]] == [
        "reasoning_content",
        "reasoning_content",
        "content",
    ]


@pytest.mark.parametrize(
    ("question", "kinds"),
    [
        ("quiet", ["reasoning", "message"]),
        ("search", ["reasoning", "message"] * 2),
    ],
)
def test_thoughts_in_responses(
    service: httpx.Client, question: str, kinds: list[str]
) -> None:
    """Thoughts are an item before the message that they led to, with a part for each call of the model."""
    whole = post(service, "responses", {"input": question}).json()
    open_responses.check_response(whole)
    assert [item["type"] for item in whole["output"]] == [
        "reasoning",
        "message",
    ]
    assert [part["text"] for part in whole["output"][0]["summary"]] == [
        "I should look.",
        "I should answer.",
    ]
    events = events_of(
        post(service, "responses", {"input": question, "stream": True})
    )
    open_responses.check_events(events)
    output = events[-1]["response"]["output"]
    assert [item["type"] for item in output] == kinds
    thoughts = [
        part["text"]
        for item in output
        if item["type"] == "reasoning"
        for part in item["summary"]
    ]
    assert thoughts == ["I should look.", "I should answer."]
    deltas = [
        event["delta"]
        for event in events
        if event["type"] == "response.reasoning_summary_text.delta"
    ]
    assert "".join(deltas) == "".join(thoughts)
    with (
        sdk(service) as client,
        client.responses.stream(model="helper", input=question) as stream,
    ):
        text = stream.get_final_response().output_text
    assert text == (
        "Found." if question == "quiet" else "Let me look.\n\nFound."
    )


def test_thoughts_are_not_shown_unasked(serve: Serve, thinker: Thinker) -> None:
    """Without the setting, no answer has thoughts; with it, those of plans and of other components are left out."""
    hidden = serve(Agent("helper", "Help.", thinker, tools=[search]))
    for protocol in ("chat", "responses"):
        for stream in (False, True):
            response = post(hidden, protocol, {"stream": stream})
            assert response.status_code == 200
            assert "I should" not in response.text
    flow = serve(
        Workflow("flow", [AgentStep(Agent("writer", "", thinker))]),
        show_reasoning=True,
    )
    assert "I should" not in post(flow, "chat", {"model": "flow"}).text
    member = Agent("member", "", thinker)
    lead = serve(
        Conductor("lead", "Lead.", "offline/echo", [member], planning=True),
        show_reasoning=True,
    )
    assert (
        "I should"
        not in post(lead, "chat", {"model": "lead", "stream": True}).text
    )


def test_a_structured_answer_has_its_thoughts(service: httpx.Client) -> None:
    """Thoughts before JSON are shown too, and are no part of it."""
    change = {"response_format": {"type": "json_object"}, "stream": True}
    deltas = [
        chunk["choices"][0]["delta"]
        for chunk in events_of(post(service, "chat", change))
    ]
    assert (
        "".join(delta.get("reasoning_content", "") for delta in deltas)
        == "I should look."
    )
    assert "".join(delta.get("content", "") for delta in deltas) == '{"a": 1}'


FIELDS: dict[str, dict[str, Any]] = {
    "Moonshot, DeepSeek": {"reasoning_content": "Hm."},
    "an empty text, which DeepSeek wants": {"reasoning_content": ""},
    "OpenRouter": {"reasoning": "Hm.", "reasoning_details": SIGNED},
    "LiteLLM for Anthropic": {
        "thinking_blocks": [
            {"type": "thinking", "thinking": "Hm.", "signature": "s" * 900}
        ]
    },
    "Mistral": {
        "content": [
            {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]},
            {"type": "text", "text": "b"},
        ]
    },
    "a provider of tomorrow": {"mind": {"state": [1, 2.5, None, True]}},
}


@pytest.mark.parametrize("fields", FIELDS.values(), ids=FIELDS)
def test_thoughts_of_a_conversation_reach_the_model(
    service: httpx.Client, thinker: Thinker, fields: dict[str, Any]
) -> None:
    """What a client kept of an earlier answer goes to the model unchanged, in the message and in its tool calls."""
    signed = {"extra_content": {"google": {"thought_signature": "x" * 1500}}}
    call = {
        "id": "c" * 300,
        "type": "function",
        "function": {"name": "search", "arguments": "{}"},
        **signed,
    }
    messages = [
        user("a"),
        {"role": "assistant", "content": None, "tool_calls": [call], **fields},
        {"role": "tool", "tool_call_id": "c" * 300, "content": "found"},
        {
            "role": "assistant",
            "content": "b",
            "refusal": None,
            "annotations": [],
            "audio": None,
            "id": 7,
            **fields,
        },
        user("c"),
    ]
    response = post(service, "chat", {"messages": messages})
    assert response.status_code == 200, response.text
    _, _, caller, _, answer, _ = thinker.requests[-1].messages
    assert caller.provider_fields == answer.provider_fields == fields
    assert caller.tool_calls[0].provider_fields == signed


BOOKKEEPING = {
    "refusal": "No.", "audio": {"id": "a"}, "function_call": {"name": "f", "arguments": "{}"}, "parsed": {"a": 1},
    "annotations": [{"type": "url_citation"}], "name": "helper", "id": "msg_1", "timestamp": 1712.5, "done": True,
    "cache_control": {"type": "ephemeral"}, "tool_calls": None, "reasoning_details": [], "extra": {},
}  # fmt: skip


def test_bookkeeping_of_clients_is_not_sent(
    service: httpx.Client, thinker: Thinker
) -> None:
    """Keys of OpenAI's own messages, numbers and empty values are left out, for strict providers would refuse them."""
    messages = [
        user("a"),
        {"role": "assistant", "content": "b", **BOOKKEEPING},
        user("c"),
    ]
    assert post(service, "chat", {"messages": messages}).status_code == 200
    assert thinker.requests[-1].messages[2].provider_fields == {}


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_reasoning_items_come_back(
    service: httpx.Client, thinker: Thinker, streamed: bool
) -> None:
    """A client that keeps the items of an answer gives the model its own thoughts back, and those of others not."""
    asked = {
        "input": [user("a")],
        "include": ["reasoning.encrypted_content"],
        "store": False,
    }
    response = post(service, "responses", {**asked, "stream": streamed})
    answer = (
        events_of(response)[-1]["response"] if streamed else response.json()
    )
    items = [user("a"), *answer["output"], user("b")]
    assert post(service, "responses", {"input": items}).status_code == 200
    message = thinker.requests[-1].messages[2]
    assert (message.text, message.provider) == ("Found.", "offline")
    assert message.provider_fields == {"reasoning_details": SIGNED}
    reasoning = answer["output"][0]
    assert reasoning["type"] == "reasoning"
    for foreign in (
        {"encrypted_content": "gAAAA"},
        {"encrypted_content": None},
        {"encrypted_content": "podwright.1.!"},
    ):
        changed = [
            user("a"),
            {**reasoning, **foreign},
            *answer["output"][1:],
            user("b"),
        ]
        assert post(service, "responses", {"input": changed}).status_code == 200
        assert thinker.requests[-1].messages[2].provider_fields == {}
    assert (
        post(
            service, "responses", {"input": [reasoning, user("b")]}
        ).status_code
        == 200
    )
    assert [message.role for message in thinker.requests[-1].messages] == [
        "system",
        "user",
    ]
