"""The Anthropic client, against a strict fake of the Messages API."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel
from tests.library.claude import (
    MODEL,
    Claude,
    error,
    events,
    framed,
    message,
    text,
    thinking,
    tool_use,
)
from tests.library.model_clients import LOOK_UP, question
from tests.library.upstream import (
    HOUR,
    STREAM,
    chunk,
    pass_time,
    reply,
    streamed,
    upstream,
)

from podwright import Agent, RunLimits, errors
from podwright.messages.messages import Message, ToolCall
from podwright.models import Connection
from podwright.models.http.client import Response
from podwright.models.protocols.anthropic import MessagesModel
from podwright.models.providers import ENDPOINTS
from podwright.models.retries import Timeouts

streaming_or_not = pytest.mark.parametrize(
    "streaming", [False, True], ids=["plain", "streaming"]
)


@pytest.fixture
async def claude() -> AsyncGenerator[Claude]:
    serving = Claude()
    async with upstream(serving=serving):
        yield serving


def look(word: str) -> str:
    """Look a word up."""
    return f"{word}: found"


# --- why the model stopped


@streaming_or_not
@pytest.mark.parametrize(
    "stop", ["end_turn", "stop_sequence", "a_word_to_come"]
)
async def test_an_answer_that_ended(
    claude: Claude, stop: str, streaming: bool
) -> None:
    """The model has said what it wanted to say."""
    claude.says(message(text("Ciao, "), text("bella."), stop=stop))
    assert (
        await claude.agent().arun("Hello?", stream=streaming) == "Ciao, bella."
    )


@streaming_or_not
@pytest.mark.parametrize(
    ("stop", "content", "expected"),
    [
        ("max_tokens", [text("Once upon")], errors.ModelError),
        (
            "model_context_window_exceeded",
            [text("Once upon")],
            errors.ModelError,
        ),
        ("max_tokens", [thinking("Hm")], errors.ModelError),
        ("refusal", [text("I")], errors.ModelRefusedError),
        ("refusal", [], errors.ModelRefusedError),
        ("end_turn", [], errors.ModelResponseError),
    ],
)
async def test_an_answer_that_is_none(
    claude: Claude,
    stop: str,
    content: list[Any],
    expected: type[errors.ModelError],
    streaming: bool,
) -> None:
    """An answer that was cut off, refused or left empty is no success."""
    claude.says(message(*content, stop=stop))
    with pytest.raises(errors.ModelError) as caught:
        await claude.agent().arun("Hello?", stream=streaming)
    assert type(caught.value) is expected


@streaming_or_not
async def test_a_paused_answer_goes_on(claude: Claude, streaming: bool) -> None:
    """What the provider has paused is sent back as it came, and the parts are one answer, with all of their tokens."""
    search = {
        "type": "server_tool_use",
        "id": "srvtoolu_1",
        "name": "web_search",
        "input": {"query": "Rome"},
    }
    claude.says(
        message(text("Let me see. "), search, stop="pause_turn"),
        message(text("Rome.")),
    )
    result = await claude.agent().arun("Where?", stream=streaming, trace=True)
    assert result.value == "Let me see. Rome."
    assert (
        result.usage.input_tokens,
        result.usage.output_tokens,
        result.usage.model_calls,
    ) == (
        20,
        14,
        1,
    )
    assert claude.requests[1]["messages"][-1] == {
        "role": "assistant",
        "content": [text("Let me see. "), search],
    }


async def test_thoughts_that_are_refused_after_a_pause(claude: Claude) -> None:
    """They are an error of the provider, with what the paused part has used."""
    refused = error(
        400, "invalid_request_error", "Invalid `signature` in `thinking` block"
    )
    claude.says(message(text("Hm… "), stop="pause_turn"), [refused])
    with pytest.raises(
        errors.ModelRequestError, match="answered 400"
    ) as caught:
        await claude.model().complete(question(MODEL))
    assert caught.value.attempt_usage
    assert caught.value.attempt_usage.output_tokens == 7


@pytest.mark.usefixtures("list_prices")
@pytest.mark.parametrize("leaves", [False, True])
async def test_what_is_paid_for_a_paused_answer(
    claude: Claude, leaves: bool
) -> None:
    """The part that was paused is, also if the next request is refused, or the caller leaves during it."""
    refused = error(400, "invalid_request_error", "No.")
    asked_again = asyncio.Event()
    claude.says(
        message(text("Hm… "), stop="pause_turn"),
        [asked_again.set, "hang"] if leaves else [refused],
    )
    agent = claude.agent()
    running = asyncio.create_task(agent.arun("?"))
    if leaves:
        await asked_again.wait()
        running.cancel()
    with pytest.raises((errors.ModelRequestError, asyncio.CancelledError)):
        await running
    assert agent.last_usage
    assert agent.last_usage.output_tokens == 7
    assert agent.last_usage.uncounted_model_calls == (1 if leaves else 0)
    assert agent.last_usage.known_cost > 0


async def test_an_answer_that_is_paused_for_ever(claude: Claude) -> None:
    """A provider that never goes on is an error, with the tokens that it took."""
    claude.says(message(text("…"), stop="pause_turn"))
    with pytest.raises(errors.ModelResponseError, match="too often") as caught:
        await claude.model().complete(question(MODEL))
    assert caught.value.attempt_usage
    assert caught.value.attempt_usage.output_tokens == 7 * len(claude.requests)


# --- tools and structured answers


@streaming_or_not
async def test_tools(claude: Claude, streaming: bool) -> None:
    """Several calls are answered in one turn, and an answer without arguments is a call without arguments."""
    calls = (
        tool_use("toolu_1", "look", word="Rome"),
        tool_use("toolu_2", "look", word="Oslo"),
        tool_use("t3", "now"),
    )

    def now() -> str:
        """Tell the time."""
        return ""

    claude.says(
        message(text("I look."), *calls, stop="tool_use"),
        message(text("Found.")),
    )
    assert (
        await claude.agent(tools=[look, now]).arun("Where?", stream=streaming)
        == "Found."
    )
    asked, answered = claude.requests[1]["messages"][1:]
    assert asked == {"role": "assistant", "content": [text("I look."), *calls]}
    results = [
        (block["tool_use_id"], block.get("content"))
        for block in answered["content"]
    ]
    assert results == [
        ("toolu_1", "Rome: found"),
        ("toolu_2", "Oslo: found"),
        ("t3", None),
    ]
    assert claude.requests[0]["tools"][0]["input_schema"]["properties"] == {
        "word": {"type": "string"}
    }


class City(BaseModel):
    """A city."""

    name: str
    people: dict[str, int]
    """By year."""


@streaming_or_not
async def test_a_response_model_beside_tools(
    claude: Claude, streaming: bool
) -> None:
    """The agent's own tools are called before the answer, no tool is forced, and a map keeps its entries."""
    answer = {"name": "Rome", "people": {"2020": 2_800_000}}
    claude.says(
        message(tool_use("t1", "look", word="Rome"), stop="tool_use"),
        message(tool_use("t2", "final_answer", **answer), stop="tool_use"),
    )
    agent = claude.agent(tools=[look])
    assert await agent.arun(
        "How many?", stream=streaming, response_model=City
    ) == City(**answer)
    names = [tool["name"] for tool in claude.requests[0]["tools"]]
    assert names == ["look", "final_answer"]
    assert all("tool_choice" not in request for request in claude.requests)


@pytest.mark.parametrize(
    "model",
    [
        "claude-3-haiku-20240307",
        "claude-sonnet-4-20250514",
        "claude-opus-5-5",
        "own",
    ],
)
async def test_a_response_model_alone(claude: Claude, model: str) -> None:
    """A structured answer comes through a tool, with each model; an answer in JSON text is read as well."""
    answer = {"name": "Rome", "people": {}}
    for said in (
        tool_use("t", "final_answer", **answer),
        text(json.dumps(answer)),
    ):
        claude.says(message(said))
        assert await claude.agent(model).arun(
            "How many?", response_model=City
        ) == City(**answer)


@streaming_or_not
async def test_arguments_that_are_no_json(
    claude: Claude, streaming: bool
) -> None:
    """The model is told what is wrong with its arguments, and sees them as it wrote them."""
    *begun, last_piece, stop, end, over = events(
        message(tool_use("t1", "look", word="Rome"), stop="tool_use")
    )
    assert last_piece["delta"]["partial_json"] == "}"
    claude.says(
        streamed(framed(*begun, stop, end, over)), message(text("Sorry."))
    )
    agent = claude.agent(tools=[look])
    assert await agent.arun("Where?", stream=streaming) == "Sorry."
    (call,) = claude.requests[1]["messages"][1]["content"]
    assert call["input"] == {"INVALID_JSON": '{"word": "Rome"'}


# --- thoughts


THOUGHTS = [
    thinking("The word is Rome."),
    thinking("", signature="of-a-thought-that-is-not-shown"),
    {"type": "redacted_thinking", "data": "EmwKAhgB"},
]


@streaming_or_not
@pytest.mark.parametrize(
    "thought", THOUGHTS, ids=["shown", "omitted", "redacted"]
)
async def test_thoughts_go_back_as_they_came(
    claude: Claude, thought: dict[str, Any], streaming: bool
) -> None:
    """In the tool loop, and in a later turn of the conversation, each block is where it was."""
    first = [thought, text("I look."), tool_use("t1", "look", word="Rome")]
    second = [thought, text("Found.")]
    claude.says(message(*first, stop="tool_use"), message(*second))
    agent = claude.agent(tools=[look])
    result = await agent.arun("Where?", stream=streaming, trace=True)
    assert result.value == "Found."
    assert claude.requests[1]["messages"][1]["content"] == first
    messages = json.loads(json.dumps(result.messages))
    await agent.arun("Sure?", stream=streaming, messages=messages)
    said = [
        turn["content"]
        for turn in claude.requests[2]["messages"]
        if turn["role"] == "assistant"
    ]
    assert said == [first, second]


@streaming_or_not
async def test_a_structured_answer_after_thoughts(
    claude: Claude, streaming: bool
) -> None:
    """It is a text of the conversation, in the place of the tool call that it came through."""
    answer = {"name": "Rome", "people": {}}
    claude.says(
        message(thinking("Hm"), tool_use("t1", "final_answer", **answer)),
        message(text("Yes.")),
    )
    agent = claude.agent()
    result = await agent.arun(
        "How many?", stream=streaming, response_model=City, trace=True
    )
    assert result.value == City(**answer)
    assert (
        await agent.arun("Sure?", stream=streaming, messages=result.messages)
        == "Yes."
    )
    said = claude.requests[1]["messages"][1]["content"]
    assert said == [thinking("Hm"), text(json.dumps(answer))]


async def test_thoughts_with_an_id_of_another_provider(claude: Claude) -> None:
    """A gateway's id that the protocol does not take is changed in the call and in its result."""
    call = tool_use("functions.look:0", "look", word="Rome")
    claude.says(
        message(thinking("Hm"), call, stop="tool_use"), message(text("Rome."))
    )
    assert await claude.agent(tools=[look]).arun("Where?") == "Rome."


async def test_thoughts_are_shown(claude: Claude, recorder: Any) -> None:
    """The text of thoughts is streamed, and in the response, apart from the answer."""
    claude.says(message(thinking("Hm, Rome?"), text("Rome.")))
    agent = Agent("guide", "", claude.model(), event_manager=recorder.manager)
    assert await agent.arun("Where?", stream=True) == "Rome."
    assert (
        "".join(event.text for event in recorder.of("reasoning")) == "Hm, Rome?"
    )
    assert (
        recorder.of("model_call_finished")[0].response.reasoning == "Hm, Rome?"
    )


async def test_thoughts_of_another_model_stay_away(claude: Claude) -> None:
    """A signature is valid for its model only: another one gets the text and the tool calls."""
    claude.says(
        message(
            thinking("Hm"), tool_use("t1", "look", word="Rome"), stop="tool_use"
        ),
        message(text("Rome.")),
    )
    result = await claude.agent(tools=[look]).arun("Where?", trace=True)
    await claude.agent("claude-opus-4-6", tools=[look]).arun(
        "Sure?", messages=result.messages
    )
    kinds = [
        block["type"]
        for turn in claude.requests[-1]["messages"]
        for block in turn["content"]
    ]
    assert kinds == ["text", "tool_use", "tool_result", "text", "text"]


@pytest.mark.parametrize(
    "refusal",
    [
        "messages.1.content.0: Invalid `signature` in `thinking` block",
        "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified.",
        "messages.1.content.0.thinking.signature: Field required",
    ],
)
async def test_thoughts_that_are_refused(claude: Claude, refusal: str) -> None:
    """A conversation with thoughts that the provider does not take any more goes on without them."""
    refused = error(400, "invalid_request_error", refusal)
    claude.says(
        [refused],
        message(text("Hm… "), stop="pause_turn"),
        message(text("Ciao.")),
    )
    history = [
        {"role": "user", "content": "Hello?"},
        {"role": "assistant", "content": [thinking("Hm"), text("Hi.")]},
    ]
    assert (
        await claude.agent().arun("And now?", messages=history) == "Hm… Ciao."
    )
    assert [
        len(request["messages"][1]["content"]) for request in claude.requests
    ] == [
        2,
        1,
        1,
    ]
    claude.says([refused])
    with pytest.raises(errors.ModelRequestError):
        await claude.agent().arun("And now?")
    assert len(claude.requests) == 1


@pytest.mark.parametrize(
    ("model", "effort", "expected"),
    [
        (
            "claude-3-7-sonnet-latest",
            "low",
            {"thinking": {"type": "enabled", "budget_tokens": 2048}},
        ),
        (
            "claude-haiku-4-5-20251001",
            "xhigh",
            {"thinking": {"type": "enabled", "budget_tokens": 16_000}},
        ),
        ("claude-sonnet-4-5", "none", {}),
        ("claude-opus-4-6", "minimal", {"effort": "low"}),
        ("claude-sonnet-5", "high", {"effort": "high"}),
        ("claude-fable-5-1", "xhigh", {"effort": "xhigh"}),
        ("own-name-of-a-gateway", "low", {"effort": "low"}),
        ("claude-sonnet-5", "none", {"thinking": {"type": "disabled"}}),
        ("claude-sonnet-5-5", "none", {"thinking": {"type": "between_tools"}}),
        ("claude-haiku-5-5", "none", {"thinking": {"type": "disabled"}}),
        ("kimi-k2-thinking", "low", {"effort": "low"}),
    ],
)
async def test_the_effort_of_thinking(
    claude: Claude, model: str, effort: Any, expected: dict[str, Any]
) -> None:
    """Models before 4.6 take a budget of tokens, later ones an effort."""
    await claude.agent(model, reasoning_effort=effort).arun("Hello?")
    body = claude.requests[0]
    if "effort" in expected:
        assert body["thinking"] == {"type": "adaptive", "display": "summarized"}
        assert body["output_config"] == expected
    else:
        assert {
            key: body[key]
            for key in ("thinking", "output_config")
            if key in body
        } == expected


# --- requests


async def test_settings(claude: Claude) -> None:
    """Each setting has the protocol's name."""
    options = {
        "temperature": 0.2,
        "top_p": 0.9,
        "max_tokens": 50,
        "stop": "END",
        "parallel_tool_calls": False,
    }
    await claude.agent(tools=[look], **options).arun("Hello?")
    body = claude.requests[0]
    assert {
        key: body[key] for key in ("temperature", "top_p", "max_tokens")
    } == {
        "temperature": 0.2,
        "top_p": 0.9,
        "max_tokens": 50,
    }
    assert body["stop_sequences"] == ["END"]
    assert body["tool_choice"] == {
        "type": "auto",
        "disable_parallel_tool_use": True,
    }
    assert body["system"] == "Help."


@pytest.mark.parametrize(
    "setting",
    [{"seed": 1}, {"presence_penalty": 0.1}, {"frequency_penalty": 0.1}],
)
async def test_a_setting_that_the_protocol_has_not(
    claude: Claude, setting: dict[str, Any]
) -> None:
    """It is an error that names it, before any request, and never dropped."""
    with pytest.raises(
        errors.ModelRequestError, match=f"'{next(iter(setting))}'"
    ):
        await claude.agent(**setting).arun("Hello?")
    assert not claude.requests


@pytest.mark.parametrize(
    ("model", "most"),
    [
        ("claude-3-haiku-20240307", 4096),
        ("claude-3-5-haiku-latest", 8192),
        ("claude-sonnet-5-5", 32_000),
    ],
)
async def test_the_length_of_an_answer(
    claude: Claude, model: str, most: int
) -> None:
    """The protocol wants a limit: what each model can, at most; a limit of the run is one of the answer, too."""
    await claude.agent(model).arun("Hello?")
    await claude.agent(model, limits=RunLimits(tokens=1000)).arun("Hello?")
    without, within = (request["max_tokens"] for request in claude.requests)
    assert without == most
    assert within < 1000


async def test_images(claude: Claude) -> None:
    """An image in a data URL is sent as its bytes, one at an https URL as the URL."""
    await claude.agent().arun(
        [
            {"type": "text", "text": "What is this?"},
            {
                "type": "image_url",
                "image_url": {"url": "data:image/png;base64,aGk="},
            },
            {
                "type": "image_url",
                "image_url": {"url": "data:image/jpg;base64,aGk="},
            },
            {
                "type": "image_url",
                "image_url": {"url": "https://example.com/cat.png"},
            },
        ]
    )
    sources = [
        block.get("source")
        for block in claude.requests[0]["messages"][0]["content"]
    ]
    assert sources == [
        None,
        {"type": "base64", "media_type": "image/png", "data": "aGk="},
        {"type": "base64", "media_type": "image/jpeg", "data": "aGk="},
        {"type": "url", "url": "https://example.com/cat.png"},
    ]


def call(
    id_: str, name: str = "look", arguments: str = '{"word": "a"}'
) -> dict[str, Any]:
    return {
        "id": id_,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


HISTORIES: dict[str, list[dict[str, Any]]] = {
    "begins with the assistant": [{"role": "assistant", "content": "Welcome!"}],
    "two user messages": [
        {"role": "user", "content": "One"},
        {"role": "user", "content": "Two"},
    ],
    "white space": [
        {"role": "user", "content": " \n"},
        {"role": "assistant", "content": "Hm?"},
    ],
    "ids of other providers": [
        {"role": "user", "content": "Go"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [call("functions.look:0"), call("call|2")],
        },
        {"role": "tool", "tool_call_id": "functions.look:0", "content": "x"},
        {"role": "tool", "tool_call_id": "call|2", "content": ""},
    ],
    "arguments that are no object": [
        {"role": "user", "content": "Go"},
        {
            "role": "assistant",
            "content": "Hm",
            "tool_calls": [call("a", arguments="[1"), call("b", arguments="2")],
        },
        {"role": "tool", "tool_call_id": "a", "content": "x"},
        {"role": "tool", "tool_call_id": "b", "content": "x"},
    ],
    "thoughts as another client keeps them": [
        {"role": "user", "content": "Go"},
        {
            "role": "assistant",
            "content": "Hm",
            "reasoning_content": "So",
            "thinking_blocks": [thinking("So")],
        },
    ],
    "ids that begin again in each turn": [
        turn
        for _ in range(2)
        for turn in (
            {"role": "user", "content": "Go"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [call("look:0")],
            },
            {"role": "tool", "tool_call_id": "look:0", "content": "x"},
        )
    ],
    "thoughts without a signature": [
        {"role": "user", "content": "Go"},
        {
            "role": "assistant",
            "content": "Hm",
            "thinking_blocks": [{"type": "thinking", "thinking": "So"}],
        },
    ],
    "parts of another provider": [
        {"role": "user", "content": "Go"},
        {
            "role": "assistant",
            "content": [
                {
                    "type": "thinking",
                    "thinking": [{"type": "text", "text": "So"}],
                },
                {"type": "text", "text": "Hm", "annotations": []},
                {"type": "refusal", "refusal": "no"},
            ],
        },
    ],
    "thoughts of another provider": [
        {"role": "user", "content": "Go"},
        {
            "role": "assistant",
            "content": "Hm",
            "reasoning_details": [{"text": "So"}],
            "podwright_provider": "xai",
        },
    ],
}


@streaming_or_not
@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
async def test_histories_of_other_clients(
    claude: Claude, history: list[dict[str, Any]], streaming: bool
) -> None:
    """A conversation that came from elsewhere follows the rules of the protocol."""
    assert (
        await claude.agent(tools=[look]).arun(
            "And?", messages=history, stream=streaming
        )
        == "Ciao."
    )


async def test_tools_that_the_agent_has_no_more(claude: Claude) -> None:
    """A conversation with tool calls goes on without tools; the model cannot call those of the past."""
    history = [
        {"role": "user", "content": "Go"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [call("a"), call("b")],
        },
        {"role": "tool", "tool_call_id": "a", "content": "x"},
        {"role": "tool", "tool_call_id": "b", "content": "x"},
    ]
    assert await claude.agent().arun("And?", messages=history) == "Ciao."
    assert claude.requests[0]["tools"] == [
        {"name": "look", "input_schema": {"type": "object"}}
    ]
    assert claude.requests[0]["tool_choice"] == {"type": "none"}


async def test_a_budget_of_thoughts_within_the_loop_of_another_model(
    claude: Claude,
) -> None:
    """A loop that began without thoughts ends without them, because the protocol wants them from its begin."""
    other = Claude()
    async with upstream(serving=other):
        first = other.model("claude-opus-4-1")
        other.says(
            message(tool_use("t1", "look", word="Rome"), stop="tool_use")
        )
        request = question(
            MODEL, tools=(LOOK_UP,), settings={"reasoning_effort": "low"}
        )
        begun = await first.complete(request)
        messages = (
            *request.messages,
            begun.message(),
            Message("tool", "x", tool_call_id="t1"),
        )
        await claude.model("claude-haiku-4-5").complete(
            replace(request, messages=messages)
        )
        assert "thinking" not in claude.requests[0]
        assert other.requests[0]["thinking"]["type"] == "enabled"


async def test_key_version_and_url(
    claude: Claude, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key is in the header of the protocol, of the environment as well; a base URL may lack the version."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "of-the-environment")
    for url in (claude.url, claude.url + "/", claude.url.removesuffix("/v1")):
        model = MessagesModel(
            f"anthropic/{MODEL}", Connection(None, url), ENDPOINTS["anthropic"]
        )
        await model.complete(question(MODEL))
        headers = claude.headers[-1]
        assert headers[":line"] == "POST /v1/messages HTTP/1.1"
        assert headers["x-api-key"] == "of-the-environment"
        assert headers["anthropic-version"] == "2023-06-01"
        assert "authorization" not in headers


# --- errors


@pytest.mark.parametrize(
    ("status", "kind", "words", "expected", "requests"),
    [
        (
            400,
            "invalid_request_error",
            "messages.0: oh",
            errors.ModelRequestError,
            1,
        ),
        (
            400,
            "invalid_request_error",
            "prompt is too long: 250000 tokens > 200000",
            errors.ContextWindowError,
            1,
        ),
        (
            400,
            "invalid_request_error",
            "Your credit balance is too low",
            errors.ModelRateLimitError,
            1,
        ),
        (
            401,
            "authentication_error",
            "invalid x-api-key",
            errors.ModelAuthenticationError,
            1,
        ),
        (
            402,
            "billing_error",
            "There is an issue with your billing",
            errors.ModelRateLimitError,
            1,
        ),
        (
            403,
            "permission_error",
            "Not allowed",
            errors.ModelAuthenticationError,
            1,
        ),
        (
            400,
            "invalid_request_error",
            "You have reached your specified API usage limits. You will regain access on 2026-12-01",
            errors.ModelRateLimitError,
            1,
        ),
        (
            429,
            "rate_limit_error",
            "Extra usage is required for long context",
            errors.ModelRateLimitError,
            1,
        ),
        (
            404,
            "not_found_error",
            "model: claude-9",
            errors.ModelRequestError,
            1,
        ),
        (
            413,
            "request_too_large",
            "Request exceeds the maximum size",
            errors.ContextWindowError,
            1,
        ),
        (
            429,
            "rate_limit_error",
            "Number of request tokens",
            errors.ModelRateLimitError,
            3,
        ),
        (
            500,
            "api_error",
            "Internal server error",
            errors.ModelUnavailableError,
            3,
        ),
        (504, "timeout_error", "Timed out", errors.ModelUnavailableError, 3),
        (
            529,
            "overloaded_error",
            "Overloaded",
            errors.ModelUnavailableError,
            3,
        ),
    ],
)
async def test_errors(
    claude: Claude,
    status: int,
    kind: str,
    words: str,
    expected: type[errors.ModelError],
    requests: int,
) -> None:
    """Each kind of error has its class and its status, and is repeated only if that can help."""
    claude.says([error(status, kind, words)])
    with pytest.raises(errors.ModelError, match=f"answered {status}") as caught:
        await claude.agent().arun("Hello?")
    assert (type(caught.value), len(claude.requests)) == (expected, requests)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("overloaded_error", errors.ModelUnavailableError),
        ("rate_limit_error", errors.ModelRateLimitError),
        ("api_error", errors.ModelUnavailableError),
        ("timeout_error", errors.ModelUnavailableError),
        ("invalid_request_error", errors.ModelRequestError),
    ],
)
@pytest.mark.parametrize(
    "shown", [False, True], ids=["before the text", "after text"]
)
async def test_errors_within_a_stream(
    claude: Claude, kind: str, expected: type[errors.ModelError], shown: bool
) -> None:
    """An error in a stream is one, and repeated only as long as nobody has seen a part of the answer."""
    sent = events(message(text("Once upon a time")))[: 4 if shown else 2]
    broken = {"type": "error", "error": {"type": kind, "message": "Oh"}}
    claude.says(streamed(framed(*sent), framed(broken)))
    with pytest.raises(errors.ModelError) as caught:
        await claude.agent().arun("Hello?", stream=True)
    assert type(caught.value) is expected
    repeated = expected is not errors.ModelRequestError and not shown
    assert len(claude.requests) == (3 if repeated else 1)


@pytest.mark.parametrize("number", range(1, 8))
async def test_a_stream_that_is_cut_off(claude: Claude, number: int) -> None:
    """Before the event with the stop reason it is no success, and what it used has no known price."""
    found = events(message(thinking("Hm"), text("Once")), piece=4)
    claude.says(streamed(framed(*found[:number])))
    with pytest.raises(errors.ModelResponseError) as caught:
        await claude.model().complete(question(MODEL), print)
    used = caught.value.attempt_usage
    assert used
    assert (used.input_tokens, used.unpriced_model_calls) == (10, 1)


async def test_a_stream_whose_end_is_lost(claude: Claude) -> None:
    """After the stop reason nothing is missing."""
    *found, _ = events(message(text("Once")))
    claude.says([STREAM, chunk(framed(*found)), "reset"])
    response = await claude.model().complete(question(MODEL), print)
    assert (response.text, response.usage.output_tokens) == ("Once", 7)


@streaming_or_not
async def test_two_calls_with_one_id(claude: Claude, streaming: bool) -> None:
    """They are two calls, each with its result."""
    calls = (
        tool_use("t", "look", word="Rome"),
        tool_use("t", "look", word="Oslo"),
    )
    claude.says(message(*calls, stop="tool_use"), message(text("Both.")))
    assert (
        await claude.agent(tools=[look]).arun("Where?", stream=streaming)
        == "Both."
    )
    results = claude.requests[1]["messages"][-1]["content"]
    assert [result["content"] for result in results] == [
        "Rome: found",
        "Oslo: found",
    ]


async def test_counts_after_the_stop_reason(claude: Claude) -> None:
    """There may be several events with counts; a later one does not take the stop reason back."""
    *found, over = events(message(text("Once")))
    counts = {
        "type": "message_delta",
        "delta": {},
        "usage": {"output_tokens": 9},
    }
    claude.says(streamed(framed(*found, counts, over)))
    response = await claude.model().complete(question(MODEL), print)
    assert (response.text, response.usage.output_tokens) == ("Once", 9)


async def test_counts_of_0_take_none_back(claude: Claude) -> None:
    """The largest count counts, whichever event has it."""
    *found, end, over = events(
        message(text("Once"), input_tokens=100, cache_read_input_tokens=900)
    )
    end["usage"] = {
        "input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": 5,
    }
    claude.says(streamed(framed(*found, end, over)))
    usage = (await claude.model().complete(question(MODEL), print)).usage
    assert (
        usage.input_tokens,
        usage.cached_input_tokens,
        usage.output_tokens,
    ) == (
        1000,
        900,
        5,
    )


MALFORMED = [
    message({"type": "tool_use", "name": "look", "input": {}}),
    message({"type": "tool_use", "id": "t", "input": {}}),
    message({"text": "no type"}),
]


@pytest.mark.parametrize("body", MALFORMED)
async def test_malformed_answers(claude: Claude, body: dict[str, Any]) -> None:
    """They are errors of the response, and counts as texts are counts."""
    claude.says([reply(body)])
    with pytest.raises(errors.ModelResponseError):
        await claude.model().complete(question(MODEL))
    claude.says([reply(message(text("Ciao."), input_tokens="10"))])
    assert (
        await claude.model().complete(question(MODEL))
    ).usage.input_tokens == 10


async def test_too_little_room_for_thoughts(claude: Claude) -> None:
    """A budget of thoughts that the answer has no room for is an error that says so."""
    with pytest.raises(errors.ModelRequestError, match="1024"):
        await claude.agent(reasoning_effort="high", max_tokens=500).arun(
            "Hello?"
        )


async def test_what_is_not_of_the_protocol(claude: Claude) -> None:
    """A page, a completion of another protocol, or nothing is not an answer."""
    for body in (
        b"<html>",
        {"id": "c", "object": "chat.completion", "choices": []},
        {},
        {"type": "message"},
    ):
        claude.says([reply(body)])
        with pytest.raises(errors.ModelResponseError):
            await claude.model().complete(question(MODEL))


@pytest.mark.parametrize(
    "at", [1, 4], ids=["before the text", "within the text"]
)
async def test_pings_are_signs_of_life(
    claude: Claude, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that thinks for long sends pings, and is not given up."""
    found = events(message(text("Once upon a time")))
    is_read = [asyncio.Event() for _ in range(5)]
    pings = [
        part
        for event in is_read
        for part in (event, chunk(framed({"type": "ping"})))
    ]
    claude.says(
        [
            STREAM,
            chunk(framed(*found[:at])),
            *pings,
            chunk(framed(*found[at:])),
            chunk(b""),
        ]
    )
    read_chunk = Response.read_chunk
    waiting = iter(is_read)

    async def read_slowly(response: Response) -> bytes:
        data = await read_chunk(response)
        pass_time(HOUR * 0.6)
        next(waiting, asyncio.Event()).set()
        return data

    monkeypatch.setattr(Response, "read_chunk", read_slowly)
    model = claude.model()
    model.timeouts = Timeouts(
        connect=HOUR, first_byte=HOUR, idle=HOUR, total=HOUR * 9
    )
    assert (
        await model.complete(question(MODEL), print)
    ).text == "Once upon a time"


async def test_many_equal_pieces(claude: Claude) -> None:
    """A table's rule is an answer like others."""
    rule = "---|" * 300
    claude.says(
        streamed(
            *(framed(event) for event in events(message(text(rule)), piece=4))
        )
    )
    assert await claude.agent().arun("A table", stream=True) == rule


# --- tokens and cost


@streaming_or_not
@pytest.mark.parametrize(
    ("usage", "tokens", "cost"),
    [
        ({}, (10, 0, 0, 0, 0), 10 * 3 + 7 * 15),
        (
            {"cache_read_input_tokens": 90},
            (100, 90, 0, 0, 0),
            10 * 3 + 90 * 0.3 + 7 * 15,
        ),
        (
            {"cache_creation_input_tokens": 90},
            (100, 0, 90, 0, 0),
            10 * 3 + 90 * 3.75 + 7 * 15,
        ),
        (
            {
                "cache_creation_input_tokens": 90,
                "cache_creation": {
                    "ephemeral_5m_input_tokens": 30,
                    "ephemeral_1h_input_tokens": 60,
                },
            },
            (100, 0, 90, 60, 0),
            10 * 3 + 30 * 3.75 + 60 * 6 + 7 * 15,
        ),
        (
            {
                "output_tokens": 70,
                "output_tokens_details": {"thinking_tokens": 50},
            },
            (10, 0, 0, 0, 50),
            10 * 3 + 70 * 15,
        ),
    ],
    ids=["plain", "cache read", "5 min write", "1 h write", "thinking"],
)
@pytest.mark.usefixtures("list_prices")
async def test_cost(
    claude: Claude,
    usage: dict[str, Any],
    tokens: tuple[int, ...],
    cost: float,
    streaming: bool,
) -> None:
    """Tokens and cost are those of the provider's price list, in USD per million tokens."""
    claude.says(message(text("Ciao."), **usage))
    model = claude.model()
    model.load_prices()
    result = await Agent("a", "", model).arun(
        "Hello?", stream=streaming, trace=True
    )
    used = result.usage
    found = (
        used.input_tokens,
        used.cached_input_tokens,
        used.cache_write_tokens,
        used.cache_write_1h_tokens,
        used.reasoning_tokens,
    )
    assert found == tokens
    assert used.cost == pytest.approx(cost / 1e6)


# --- the import


ALONE = f"""
import sys
from podwright import Agent
from podwright.errors import ModelError
try:
    Agent("a", "", "anthropic/{MODEL}", api_key="k", base_url="http://127.0.0.1:1").run("x")
except ModelError as error:
    print(error.code)
print([name for name in ("litellm", "anthropic", "httpx", "openai") if name in sys.modules])
"""


def test_no_other_client_is_loaded() -> None:
    """Claude needs neither LiteLLM nor a vendor's package."""
    process = subprocess.run(
        [sys.executable, "-c", ALONE], capture_output=True, text=True
    )
    assert process.stdout == "model_unreachable\n[]\n", process.stderr


async def test_a_request_in_the_words_of_the_protocol(claude: Claude) -> None:
    """A whole tool loop, as Anthropic's documentation writes it."""
    calls = (ToolCall("toolu_1", "look_up", '{"word": "Rome"}'),)
    messages = (
        Message("system", "Help."),
        Message("user", "Where is Rome?"),
        Message("assistant", "I look.", calls),
        Message("tool", "In Italy.", tool_call_id="toolu_1"),
    )
    await claude.model().complete(
        question(MODEL, messages=messages, tools=(LOOK_UP,))
    )
    assert claude.requests[0] == {
        "model": MODEL,
        "max_tokens": 32_000,
        "system": "Help.",
        "messages": [
            {"role": "user", "content": [text("Where is Rome?")]},
            {
                "role": "assistant",
                "content": [
                    text("I look."),
                    tool_use("toolu_1", "look_up", word="Rome"),
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "toolu_1",
                        "content": "In Italy.",
                    }
                ],
            },
        ],
        "tools": [
            {
                "name": "look_up",
                "input_schema": LOOK_UP["function"]["parameters"],
            }
        ],
    }
