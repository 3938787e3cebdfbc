"""What both model clients send, and what becomes of the answer; `test_model_failures.py` has what fails."""

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel
from tests.library.model_clients import (
    DEEPSEEK,
    KEY,
    LITELLM_OPENAI,
    LITELLM_VLLM,
    LOOK_UP,
    OPENAI,
    Client,
)
from tests.library.upstream import (
    STORY,
    STORY_TOKENS,
    STREAM,
    Script,
    Upstream,
    call,
    chunk,
    completion,
    delta,
    reply,
    sse,
    streamed,
)

from podwright import Agent, errors
from podwright.messages.messages import Message, ModelResponse, ToolCall
from podwright.messages.usage import Usage

streaming_or_not = pytest.mark.parametrize(
    "streaming", [False, True], ids=["plain", "streaming"]
)
SEA = '{"word": "sea"}'
SKY = '{"word": "Köln"}'


async def answer(
    client: Client, provider: Upstream, *, streaming: bool, **fields: Any
) -> ModelResponse:
    if not streaming:
        return await client.ask(provider, **fields)
    response, _ = await client.stream(provider, **fields)
    return response


# --- requests


async def test_a_request_and_its_response(
    client: Client, provider: Upstream
) -> None:
    """The request has what was asked and nothing else; the response has text, all token counts, model and id."""
    details = {
        "prompt_tokens_details": {"cached_tokens": 32},
        "completion_tokens_details": {"reasoning_tokens": 5},
    }
    usage = {
        "prompt_tokens": 50,
        "completion_tokens": 9,
        "total_tokens": 59,
        **details,
    }
    provider.answers([reply(completion("Hello.", usage))])
    response = await client.ask(provider)
    assert (
        response.text,
        response.finish_reason,
        response.model,
        response.id,
    ) == (
        "Hello.",
        "stop",
        "m-1",
        "c1",
    )
    assert response.usage == Usage(
        50, 9, cached_input_tokens=32, reasoning_tokens=5, cost=None
    )
    messages = [
        {"role": "system", "content": "Help."},
        {"role": "user", "content": "Hello?"},
    ]
    assert provider.requests == [
        {"model": client.name.partition("/")[2], "messages": messages}
    ]
    assert provider.headers[0][":line"] == "POST /v1/chat/completions HTTP/1.1"
    assert provider.headers[0]["authorization"] == f"Bearer {KEY}"


async def test_a_request_with_everything(
    client: Client, provider: Upstream
) -> None:
    """Settings, tools, a forced tool and a past tool call have the protocol's form; `timeout` is for the client."""
    provider.answers([reply(completion())])
    messages = (
        Message("user", "The sea?"),
        Message("assistant", "", (ToolCall("c9", "look_up", ""),)),
        Message("tool", "Salty.", tool_call_id="c9"),
    )
    settings: Any = {
        "temperature": 0.5, "top_p": 0.9, "max_tokens": 50, "seed": 7, "stop": ["END"], "presence_penalty": 0.1,
        "frequency_penalty": 0.2, "parallel_tool_calls": False,
    }  # fmt: skip
    fields: Any = {
        "messages": messages,
        "settings": {**settings, "timeout": 9.0},
    }
    await client.ask(
        provider, tools=(LOOK_UP,), tool_choice="look_up", **fields
    )
    (sent,) = provider.requests
    assert sent.keys() == {
        "model",
        "messages",
        "tools",
        "tool_choice",
        *settings,
    }
    assert settings.items() <= sent.items()
    assert sent["tools"] == [LOOK_UP]
    assert sent["tool_choice"] == {
        "type": "function",
        "function": {"name": "look_up"},
    }
    function = {"name": "look_up", "arguments": "{}"}
    _, called, result = sent["messages"]
    assert called["role"] == "assistant"
    assert called.get("content") is None
    assert called["tool_calls"] == [
        {"id": "c9", "type": "function", "function": function}
    ]
    assert result == {"role": "tool", "content": "Salty.", "tool_call_id": "c9"}


# --- streams


@pytest.mark.parametrize("size", [1, 7, 10_000])
async def test_a_stream_in_pieces(
    client: Client, size: int, provider: Upstream
) -> None:
    """Wherever the network cuts a stream, even within a character, tokens, text and usage are the same."""
    provider.answers(
        streamed(
            *(
                STORY[start : start + size]
                for start in range(0, len(STORY), size)
            )
        )
    )
    response, tokens = await client.stream(provider)
    assert (tokens, response.text) == (STORY_TOKENS, "".join(STORY_TOKENS))
    assert (response.usage.input_tokens, response.usage.output_tokens) == (
        20,
        4,
    )
    assert provider.requests[0]["stream_options"] == {"include_usage": True}


async def test_tokens_reach_the_caller_as_they_arrive(
    client: Client, provider: Upstream
) -> None:
    """The second token is sent only after the first one was handed out."""
    first = asyncio.Event()
    pieces = [
        sse(delta(content="one"), done=False),
        sse(delta(content=" two"), delta("stop")),
    ]
    provider.answers(
        [STREAM, chunk(pieces[0]), first, chunk(pieces[1]), chunk(b"")]
    )
    agent = Agent(
        "a", "", client.model_at(provider.url), on_token=lambda _: first.set()
    )
    async with asyncio.timeout(60):
        assert await agent.arun("Hello?", stream=True) == "one two"


# --- tool calls


@streaming_or_not
async def test_parallel_tool_calls(
    client: Client, streaming: bool, provider: Upstream
) -> None:
    """Two calls of one turn arrive with their ids and arguments, whole or in pieces that alternate."""
    calls = [
        call(id="a", type="function", name="f", arguments=SEA),
        call(id="b", type="function", name="f", arguments=SKY),
    ]
    pieces = [
        call(index=0, id="a", type="function", name="f", arguments=""),
        call(index=0, arguments=SEA[:5]),
        call(index=1, id="b", type="function", name="f", arguments=SKY),
        call(index=0, arguments=SEA[5:]),
    ]
    chunks = [delta(tool_calls=[piece]) for piece in pieces]
    provider.answers(
        streamed(sse(*chunks, delta("tool_calls")))
        if streaming
        else [reply(completion(None, tool_calls=calls))]
    )
    response = await answer(client, provider, streaming=streaming)
    assert response.tool_calls == (
        ToolCall("a", "f", SEA),
        ToolCall("b", "f", SKY),
    )
    assert (response.text, response.finish_reason) == ("", "tool_calls")


@streaming_or_not
async def test_each_tool_call_has_an_id_of_its_own(
    client: Client, streaming: bool, provider: Upstream
) -> None:
    """Of calls with the same id each gets one, which its result refers to."""
    calls = [
        call(index=0, id="a", type="function", name="f", arguments=SEA),
        call(index=1, id="a", type="function", name="f", arguments=SKY),
    ]
    chunks = sse(delta(tool_calls=calls), delta("stop"))
    provider.answers(
        streamed(chunks)
        if streaming
        else [reply(completion(None, tool_calls=calls))]
    )
    response = await answer(client, provider, streaming=streaming)
    assert [made.arguments for made in response.tool_calls] == [SEA, SKY]
    assert len({made.id for made in response.tool_calls} - {""}) == 2


@streaming_or_not
async def test_a_legacy_function_call_is_a_tool_call(
    client: Client, streaming: bool, provider: Upstream
) -> None:
    """`function_call`, whole or in pieces, is a tool call with an id."""
    parts = [
        {"name": "f", "arguments": ""},
        {"arguments": SEA[:5]},
        {"arguments": SEA[5:]},
    ]
    chunks = sse(
        *(delta(function_call=part) for part in parts), delta("function_call")
    )
    whole = completion(None, function_call={"name": "f", "arguments": SEA})
    provider.answers(streamed(chunks) if streaming else [reply(whole)])
    response = await answer(client, provider, streaming=streaming)
    (made,) = response.tool_calls
    assert (made.name, made.arguments, response.finish_reason) == (
        "f",
        SEA,
        "tool_calls",
    )
    assert made.id


# --- usage


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("length", errors.ModelError),
        ("content_filter", errors.ContentFilterError),
    ],
)
async def test_an_incomplete_answer_fails_the_run_and_is_counted(
    client: Client, reason: str, kind: type[Exception], provider: Upstream
) -> None:
    """An answer that was cut off or filtered is no success; its tokens are counted, and it is not repeated."""
    body = completion("Half an ans")
    body["choices"][0]["finish_reason"] = reason
    provider.answers([reply(body)])
    agent = Agent("a", "", client.model_at(provider.url))
    with pytest.raises(kind):
        await agent.arun("Hello?")
    assert agent.last_usage.total_tokens == 24
    assert len(provider.requests) == 1


# --- structured output


class Place(BaseModel):
    name: str
    depth: int


SEA_AS_JSON = '{"name": "sea", "depth": 3}'


@streaming_or_not
@pytest.mark.parametrize("client", [OPENAI, LITELLM_OPENAI])
async def test_structured_output_by_schema(
    client: Client, streaming: bool, provider: Upstream
) -> None:
    """If the model has a mode for it, a response model is sent as a JSON Schema."""
    chunks = sse(delta(content=SEA_AS_JSON), delta("stop"))
    provider.answers(
        streamed(chunks) if streaming else [reply(completion(SEA_AS_JSON))]
    )
    agent = Agent("a", "", client.model_at(provider.url))
    assert await agent.arun("The sea?", Place, stream=streaming) == Place(
        name="sea", depth=3
    )
    sent = provider.requests[0]["response_format"]
    assert sent["type"] == "json_schema"
    assert sent["json_schema"]["schema"]["required"] == ["name", "depth"]


@streaming_or_not
@pytest.mark.parametrize("client", [DEEPSEEK, LITELLM_VLLM])
async def test_structured_output_by_tool(
    client: Client, streaming: bool, provider: Upstream
) -> None:
    """Otherwise an agent gets its answer through a tool, beside its other tools."""

    def measure() -> int:
        """Measure the depth."""
        return 3

    def turn(name: str, arguments: str) -> Script:
        made = call(
            index=0, id="a", type="function", name=name, arguments=arguments
        )
        chunks = sse(delta(tool_calls=[made]), delta("tool_calls"))
        return (
            streamed(chunks)
            if streaming
            else [reply(completion(None, tool_calls=[made]))]
        )

    provider.answers(turn("measure", "{}"), turn("final_answer", SEA_AS_JSON))
    agent = Agent("a", "", client.model_at(provider.url), tools=[measure])
    assert await agent.arun("The sea?", Place, stream=streaming) == Place(
        name="sea", depth=3
    )
    _, answer_tool = provider.requests[0]["tools"]
    assert answer_tool["function"]["parameters"]["required"] == [
        "name",
        "depth",
    ]
