"""The shapes of `provider_shapes.py`, with each client, streamed and not."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from tests.library.model_clients import CLIENTS, KEY, Client, openai_compatible
from tests.library.provider_shapes import (
    CALLS,
    COUNTS,
    ENDS,
    FRAMINGS,
    NATIVE_THOUGHTS,
    REFUSALS,
    THOUGHTS,
    Calls,
    Counts,
    End,
    Framing,
    Json,
    NativeThought,
    Refusal,
    Shape,
    Thought,
)
from tests.library.upstream import (
    Script,
    Upstream,
    completion,
    delta,
    reply,
    sse,
    streamed,
)

from podwright import Agent, errors
from podwright.messages.messages import ModelResponse
from podwright.models import Connection, Model
from podwright.models.litellm.model import LiteLLMModel

SHAPES: Sequence[Shape] = [
    *THOUGHTS,
    *NATIVE_THOUGHTS,
    *ENDS,
    *REFUSALS,
    *FRAMINGS,
    *CALLS,
    *COUNTS,
]
MODES = {False: "plain", True: "streaming"}


def is_for(client: str, shape: Shape, streaming: bool) -> bool:
    """Whether a row is for a client, in this way."""
    return not shape.without.keys() & {client, f"{client}-{MODES[streaming]}"}


def for_each_client(
    shapes: Iterable[Any], modes: Callable[[Any], Iterable[bool]]
) -> pytest.MarkDecorator:
    """Parametrises a test with each row, with the clients that it is for, and with its ways: streamed or not."""
    return pytest.mark.parametrize(
        ("client", "shape", "streaming"),
        [
            pytest.param(
                client.values[0],
                shape,
                streaming,
                id=f"{client.id}-{shape.id}-{MODES[streaming]}",
                marks=client.marks,
            )
            for shape in shapes
            for streaming in modes(shape)
            for client in CLIENTS
            if is_for(str(client.id), shape, streaming)
        ],
    )


def is_litellm(client: Client) -> bool:
    return client.make is LiteLLMModel


async def ask(
    client: Client, provider: Upstream, *, streaming: bool
) -> ModelResponse:
    if not streaming:
        return await client.ask(provider)
    response, tokens = await client.stream(provider)
    assert "".join(tokens) == response.text
    return response


def test_the_table() -> None:
    """Each row has a name of its own and says where its shape comes from."""
    assert len(SHAPES) >= 80
    names = Counter((type(shape), shape.id) for shape in SHAPES)
    assert not [name for name, times in names.items() if times > 1]
    for shape in SHAPES:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+#\d+|https://\S+", shape.source), (
            shape
        )


# --- thoughts


def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word}: found"


def dated(*chunks: Json) -> Script:
    """A stream of chunks with the time, without which LiteLLM refuses those of OpenRouter."""
    return streamed(sse(*({**chunk, "created": 1} for chunk in chunks)))


def answers(shape: Thought, streaming: bool) -> list[Script]:
    """The responses of two model calls: one with thoughts and a tool call, one with a text."""
    if streaming:
        first = dated(
            *(delta(**part) for part in shape.deltas), delta("tool_calls")
        )
        return [first, dated(delta(content="Done."), delta("stop"))]
    body = completion("")
    body["choices"] = [
        {"index": 0, "message": shape.message, "finish_reason": "tool_calls"}
    ]
    return [[reply(body)], [reply(completion("Done."))]]


@pytest.mark.parametrize(
    ("make", "shape", "streaming"),
    [
        pytest.param(
            make,
            shape,
            streaming,
            id=f"{name}-{shape.id}-{MODES[streaming]}",
            marks=CLIENTS[1].marks,
        )
        for name, make in {
            "openai-compatible": openai_compatible,
            "litellm": LiteLLMModel,
        }.items()
        for shape in THOUGHTS
        for streaming in MODES
        if is_for(name, shape, streaming)
    ],
)
async def test_what_a_model_said_goes_back_as_it_came(
    make: Callable[[str, Connection], Model],
    shape: Thought,
    streaming: bool,
    provider: Upstream,
    recorder: Any,
) -> None:
    """The second request has the message of the first answer as it came; no text of it is one of its thoughts."""
    provider.answers(*answers(shape, streaming))
    model = make(shape.model, Connection(KEY, provider.url))
    agent = Agent(
        "guide", "Help.", model, tools=[look_up], event_manager=recorder.manager
    )
    assert await agent.arun("The sea?", stream=streaming) == "Done."
    _, _, said, result = provider.requests[1]["messages"]
    assert {"content": None, **said} == shape.message
    assert result["tool_call_id"] == "call_1"
    first = recorder.of("model_call_finished")[0].response
    if shape.reasoning:
        assert first.reasoning == shape.reasoning
        assert shape.reasoning not in first.text
    if shape.reasoning and streaming:
        assert (
            "".join(event.text for event in recorder.of("reasoning"))
            == shape.reasoning
        )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("streaming", MODES, ids=MODES.values())
@pytest.mark.parametrize(
    "shape", NATIVE_THOUGHTS, ids=[shape.id for shape in NATIVE_THOUGHTS]
)
async def test_what_a_model_said_goes_back_in_its_own_protocol(
    shape: NativeThought, streaming: bool, provider: Upstream
) -> None:
    """The second request has each part of the first answer, with its signature."""
    provider.answers(
        shape.stream if streaming else [reply(shape.body)], [reply({}, 400)]
    )
    model = LiteLLMModel(
        shape.model, Connection(KEY, provider.url.removesuffix("/v1"))
    )
    agent = Agent(
        "guide", "Help.", model, tools=[look_up], reasoning_effort="low"
    )
    with pytest.raises(errors.ModelRequestError):
        await agent.arun("The sea?", stream=streaming)
    sent = provider.requests[1][shape.path][1]
    assert named_alike(sent.get("content") or sent["parts"]) == named_alike(
        shape.parts
    )


def named_alike(data: Any) -> Any:
    """JSON data with one of the two names that Google has for each key, and without the ids that LiteLLM gives."""
    text = (
        json.dumps(data)
        .replace("function_call", "functionCall")
        .replace("thought_s", "thoughtS")
    )
    return json.loads(re.sub(r', "id": "call_\w{9,}"', "", text))


# --- the end of an answer


def ways_to_end(shape: End) -> list[bool]:
    return [False, True] if shape.plain is not None else [True]


@for_each_client(ENDS, ways_to_end)
async def test_the_end_of_an_answer(
    client: Client,
    shape: End,
    streaming: bool,
    provider: Upstream,
    recorder: Any,
) -> None:
    """An answer ends with its finish reason. What has none is an error, which is counted, and no tool is called.

    The call is repeated only if nothing of the answer was shown.
    """
    provider.answers(shape.stream if streaming else shape.plain or ())
    called: list[str] = []

    def look_up(word: str) -> str:
        """Look a word up."""
        called.append(word)
        return word

    agent = Agent(
        "a",
        "",
        client.model_at(provider.url),
        tools=[look_up],
        event_manager=recorder.manager,
    )
    if shape.error is None:
        assert await agent.arun("Hello?", stream=streaming) == "Hi."
        assert len(provider.requests) == 1
        return
    with pytest.raises(errors.ModelError) as caught:
        await agent.arun("Hello?", stream=streaming)
    assert type(caught.value) in client.errors_for(shape.error)
    assert not called
    is_repeated = shape.error.transient and not recorder.of("token")
    assert len(provider.requests) == (3 if is_repeated else 1)
    assert agent.last_usage.total_tokens > 0
    if shape.tokens is not None:
        assert agent.last_usage.total_tokens == shape.tokens


# --- errors


@for_each_client(REFUSALS, lambda _: [False, True])
async def test_an_error_is_read(
    client: Client, shape: Refusal, streaming: bool, provider: Upstream
) -> None:
    """Kind, code, parameter, message and wait are found in whatever a provider writes."""
    headers = {
        name.replace("-", "_"): value for name, value in shape.headers.items()
    }
    provider.answers(
        [
            reply(
                shape.body,
                shape.status,
                shape.content_type,
                zipped=False,
                **headers,
            )
        ]
    )
    with pytest.raises(errors.ModelError) as caught:
        await ask(client, provider, streaming=streaming)
    error = caught.value
    assert type(error) is shape.error
    assert (error.transient, error.retry_after) == (
        shape.transient,
        shape.retry_after,
    )
    if isinstance(error, errors.ModelToolCallError):
        assert error.failed_generation == shape.generation
    if not is_litellm(client):
        assert [
            words
            for words in shape.words
            if words not in (error.provider_error or "")
        ] == []


# --- framings


@for_each_client(FRAMINGS, lambda shape: shape.streaming)
async def test_a_framing_is_read(
    client: Client, shape: Framing, streaming: bool, provider: Upstream
) -> None:
    """What is certain is read; of what cannot be read the error has status, type and first words."""
    provider.answers(shape.script)
    if shape.text is not None:
        response = await ask(client, provider, streaming=streaming)
        assert (response.text, response.finish_reason) == (shape.text, "stop")
        return
    with pytest.raises(errors.ModelResponseError) as caught:
        await ask(client, provider, streaming=streaming)
    if not is_litellm(client):
        assert [
            words
            for words in shape.words
            if words not in f"{caught.value} {caught.value.provider_error}"
        ] == []


# --- tool calls


def ways_to_call(shape: Calls) -> list[bool]:
    """Not streamed only if each piece is a whole call."""
    pieces = whole_calls(shape)
    is_whole = len(pieces) == len(shape.calls) and all(
        piece["function"].get("name") for piece in pieces
    )
    return [False, True] if is_whole else [True]


def whole_calls(shape: Calls) -> list[Json]:
    return [
        piece
        for pieces in shape.pieces
        for piece in (pieces if isinstance(pieces, tuple) else [pieces])
    ]


@for_each_client(CALLS, ways_to_call)
async def test_tool_calls_are_put_together(
    client: Client, shape: Calls, streaming: bool, provider: Upstream
) -> None:
    """Whatever their pieces, the calls are those that the model wrote, each with an id of its own."""
    provider.answers(
        shape.script
        if streaming
        else [reply(completion(None, tool_calls=whole_calls(shape)))]
    )
    response = await ask(client, provider, streaming=streaming)
    made = [
        (call.name, json.loads(call.arguments)) for call in response.tool_calls
    ]
    assert made == list(shape.calls)
    assert len({call.id for call in response.tool_calls} - {""}) == len(made)
    assert (response.text, response.finish_reason) == ("", "tool_calls")


# --- token counts


def ways_to_count(shape: Counts) -> list[bool]:
    return [True] if shape.streams else [False, True]


@for_each_client(COUNTS, ways_to_count)
async def test_tokens_are_counted(
    client: Client, shape: Counts, streaming: bool, provider: Upstream
) -> None:
    """The largest count of each kind holds, a count that is missing is an estimate, and then the price is unknown."""
    *first, last = shape.chunks
    chunks = [{**delta(content=""), **part} for part in first]
    stream = streamed(
        sse(
            delta(content="Hi."),
            *chunks,
            delta("stop"),
            {"choices": [], **last},
        )
    )
    provider.answers(
        stream if streaming else [reply({**completion("Hi.", None), **last})]
    )
    usage = (await ask(client, provider, streaming=streaming)).usage
    assert usage.input_tokens == shape.input or (
        shape.input is None and usage.input_tokens > 0
    )
    assert usage.output_tokens == shape.output or (
        shape.output is None and usage.output_tokens > 0
    )
    assert (usage.cached_input_tokens, usage.reasoning_tokens) == (
        shape.cached,
        shape.reasoning,
    )
    assert usage.unpriced_model_calls == (0 if shape.priced else 1)
