"""The model stub, as the library's own client and components see it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import httpx
import pytest
from pydantic import BaseModel
from tests.helpers import NO_AUTHORITIES, plain_http

from podwright import Agent
from podwright.errors import (
    ConfigurationError,
    ContentFilterError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelError,
    ModelRateLimitError,
    ModelRequestError,
    ModelResponseError,
    ModelTimeoutError,
    ModelUnavailableError,
)
from podwright.messages.messages import (
    Message,
    ModelRequest,
    ModelResponse,
    OutputSchema,
    ToolCall,
)
from podwright.messages.usage import Usage
from podwright.models import Connection, ScriptedModel
from podwright.models.protocols.openai_compatible import ChatModel
from podwright.models.retries import Timeouts
from podwright_service.testing import Fault, ModelStub
from podwright_service.testing.model_stub import SCRIPT

HELLO = ModelRequest(
    "openai/gpt-4o-mini",
    (Message("system", "Be kind."), Message("user", "Hello")),
)
LOOK_UP: Any = {
    "type": "function",
    "function": {
        "name": "look_up",
        "parameters": {"type": "object", "properties": {}},
    },
}
USAGE = Usage(
    600,
    400,
    cached_input_tokens=100,
    reasoning_tokens=40,
    cost=None,
    cache_write_tokens=200,
)

streamed = pytest.mark.parametrize(
    "streamed", [False, True], ids=["complete", "streamed"]
)


@pytest.fixture
def stub() -> Iterator[ModelStub]:
    with ModelStub() as started:
        yield started


def client_of(stub: ModelStub, first_byte: float = 20.0) -> ChatModel:
    model = ChatModel(
        "openai/gpt-4o-mini", Connection("a key", f"{stub.url}/v1")
    )
    model.timeouts = Timeouts(first_byte=first_byte)
    return model


def call(
    stub: ModelStub,
    request: ModelRequest = HELLO,
    tokens: list[str] | None = None,
) -> ModelResponse:
    return asyncio.run(
        client_of(stub).complete(
            request, None if tokens is None else tokens.append
        )
    )


async def later(request: ModelRequest) -> str:
    await asyncio.sleep(0)
    return f"later: {request.messages[-1].text}"


class Later:
    """An object that is called like an async function."""

    async def __call__(self, request: ModelRequest) -> str:
        return await later(request)


def prefixed(prefix: str, request: ModelRequest) -> Any:
    del prefix
    return later(request)


@pytest.mark.parametrize(
    "function",
    [
        later,
        Later(),
        partial(later),
        partial(prefixed, "a prefix"),
        lambda request: later,
    ],
)
def test_an_async_function_responds(
    stub: ModelStub, function: Callable[[ModelRequest], Any]
) -> None:
    """What a function returns is awaited, as in a `ScriptedModel`; it responds to all further requests."""
    stub.respond_with(function)
    for _ in range(2):
        assert call(stub).text == "later: Hello"
    stub.respond_with("unused").when("Hello", function)
    assert call(stub).text == "later: Hello"
    stub.verify()
    scripted = ScriptedModel(function)
    assert asyncio.run(scripted.complete(HELLO)).text == "later: Hello"


def test_an_async_function_gives_any_response(stub: ModelStub) -> None:
    """It may return data, tool calls and faults."""
    responses: list[Any] = [
        {"city": "Rome"},
        ToolCall.of("look_up"),
        Fault(503),
    ]

    async def respond(request: ModelRequest) -> Any:
        return responses.pop(0)

    stub.respond_with(respond)
    assert call(stub).text == '{"city": "Rome"}'
    assert [made.name for made in call(stub).tool_calls] == ["look_up"]
    with pytest.raises(ModelUnavailableError):
        call(stub)


@streamed
def test_a_text_is_streamed_word_by_word(
    stub: ModelStub, streamed: bool
) -> None:
    """A text arrives unchanged, with estimated tokens."""
    text = "Grüße, Welt 🌍 and\n  all the rest."
    stub.respond_with(text)
    tokens: list[str] = []
    response = call(stub, tokens=tokens if streamed else None)
    assert (response.text, response.finish_reason, response.model) == (
        text,
        "stop",
        "gpt-4o-mini",
    )
    assert "".join(tokens) == (text if streamed else "")
    assert len(tokens) == (7 if streamed else 0)
    assert response.usage.output_tokens == (len(text.encode()) + 3) // 4
    assert response.usage.input_tokens > 0


@streamed
def test_a_complete_response_is_unchanged(
    stub: ModelStub, streamed: bool
) -> None:
    """A response arrives with its tool calls, usage, finish reason, names, thoughts and signatures."""
    calls = (
        ToolCall.of("add", id="one", numbers=[1, 2]),
        ToolCall("two", "look", '{"at": "the moon"}', {"signature": "s1"}),
    )
    response = ModelResponse(
        "Let me see.",
        calls,
        USAGE,
        finish_reason="tool_calls",
        model="gpt-4o-mini-2024",
        id="chatcmpl-7",
        reasoning="Hm.",
        provider_fields={"reasoning_content": "Hm."},
        provider="openai",
    )
    stub.respond_with(response)
    assert call(stub, tokens=[] if streamed else None) == response


@pytest.mark.parametrize(
    ("response", "calls", "reason"),
    [(ToolCall.of("add"), 1, "tool_calls"), ([ToolCall.of("add", id="1"), ToolCall.of("add", id="2")], 2, "tool_calls"),
     (ModelResponse("cut", finish_reason="length"), 0, "length")],
)  # fmt: skip
def test_short_forms(
    stub: ModelStub, response: Any, calls: int, reason: str
) -> None:
    """A tool call, a list of tool calls, and a truncated response are responses too."""
    stub.respond_with(response)
    received = call(stub)
    assert (len(received.tool_calls), received.finish_reason) == (calls, reason)


def test_requests_are_kept(stub: ModelStub) -> None:
    """A request is kept as a model request, with its body and its headers."""
    stub.respond_with("yes", "yes")
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    tool: Any = {
        "type": "function",
        "function": {
            "name": "add",
            "parameters": {"type": "object", "properties": {}},
        },
    }
    messages = (
        Message("system", "Add."),
        Message("user", "1 + 1"),
        Message("assistant", "", (ToolCall.of("add", a=1),)),
        Message("tool", "2", tool_call_id="call_1"),
    )
    settings: Any = {"temperature": 0.5, "max_tokens": 9, "seed": 1}
    content: Any = (
        messages,
        (tool,),
        settings,
        OutputSchema("sum", schema),
        "add",
    )
    call(stub, ModelRequest("openai/gpt-4o-mini", *content))
    call(stub, tokens=[])
    assert stub.requests[0] == ModelRequest("gpt-4o-mini", *content)
    assert stub.requests[1].messages == HELLO.messages
    assert stub.received[0].headers["authorization"] == "Bearer a key"
    assert stub.received[1].body["stream_options"] == {"include_usage": True}


def test_texts_and_images_are_kept(stub: ModelStub) -> None:
    """Images are kept as they are sent, texts in parts are one text; responses by text find both."""
    stub.when("this", "A pixel.", "Still one.")
    image: Any = {
        "type": "image_url",
        "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="},
    }
    contents: list[Any] = [
        ({"type": "text", "text": "What is this?"}, image),
        ({"type": "text", "text": "And this?"},),
    ]
    answers = [
        call(stub, ModelRequest("m/m", (Message("user", content),))).text
        for content in contents
    ]
    assert answers == ["A pixel.", "Still one."]
    assert [request.messages[0].content for request in stub.requests] == [
        contents[0],
        "And this?",
    ]


@streamed
@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault(401), ModelAuthenticationError),
        (Fault(400), ModelRequestError),
        (Fault(400, "content_filter"), ContentFilterError),
        (Fault(429, retry_after=7.0), ModelRateLimitError),
        (Fault(503), ModelUnavailableError),
        (Fault("malformed"), ModelResponseError),
        (Fault("cut"), ModelError),
        (Fault("cut", "Half an"), ModelResponseError),
        (Fault("reset"), ModelError),
        (Fault("reset", "Half an"), ModelError),
    ],
    ids=str,
)
def test_faults(
    stub: ModelStub, fault: Fault, error: type[ModelError], streamed: bool
) -> None:
    """Each fault raises the error that it would raise at a provider; the next response is complete."""
    stub.respond_with(fault, "complete")
    tokens: list[str] = []
    with pytest.raises(error) as raised:
        call(stub, tokens=tokens if streamed else None)
    assert "".join(tokens) == (
        fault.text if streamed and isinstance(fault.kind, str) else ""
    )
    assert raised.value.retry_after == fault.retry_after
    assert call(stub).text == "complete"


def test_silence_lasts_until_the_client_gives_up(stub: ModelStub) -> None:
    """Silence ends with the client's time-out, and does not keep the stub from stopping."""
    stub.respond_with(Fault("silence"))
    with pytest.raises(ModelTimeoutError):
        asyncio.run(client_of(stub, first_byte=0.1).complete(HELLO))

    async def stop_while_a_client_waits() -> None:
        waiting = asyncio.create_task(
            client_of(stub.respond_with(Fault("silence"))).complete(HELLO)
        )
        while not stub.received:  # noqa: ASYNC110 - the stub's thread fills it
            await asyncio.sleep(0.01)
        await asyncio.to_thread(stub.stop)
        with pytest.raises(ModelConnectionError):
            await waiting

    asyncio.run(stop_while_a_client_waits())


def test_latency_and_pace() -> None:
    """The first byte waits for the latency, and each further chunk for the pace."""
    times: list[float] = []
    with ModelStub("one two three", latency=0.2, pace=0.1) as stub:
        start = time.monotonic()
        asyncio.run(
            client_of(stub).complete(
                HELLO, lambda _: times.append(time.monotonic() - start)
            )
        )
    assert times[0] >= 0.2
    # since the start, because the first may have been read late
    assert times[-1] >= 0.4


def test_responses_by_text(stub: ModelStub) -> None:
    """Concurrent agents get their own responses, by a text in their instructions."""
    stub.when("You research", "a fact", "another").when("You write", "a line")

    async def call_concurrently() -> list[ModelResponse]:
        model = client_of(stub)
        instructions = ["You research.", "You write.", "You research."]
        requests = [
            ModelRequest("m/m", (Message("system", text),))
            for text in instructions
        ]
        return await asyncio.gather(*map(model.complete, requests))

    first, second, third = [
        response.text for response in asyncio.run(call_concurrently())
    ]
    assert second == "a line"
    assert {first, third} == {"a fact", "another"}


def test_a_function_responds_to_all_further_requests(stub: ModelStub) -> None:
    """A function of the request is not used up."""
    stub.respond_with(
        "first", lambda request: f"{len(request.messages)} messages"
    )
    assert [call(stub).text for _ in range(3)] == [
        "first",
        "2 messages",
        "2 messages",
    ]


class Weather(BaseModel):
    """A structured answer."""

    city: str
    degrees: float


def test_responses_by_a_condition(stub: ModelStub) -> None:
    """A function of the request chooses a response, before those of the script."""
    stub.respond_with("plain").when(
        lambda request: bool(request.tools), "tools"
    )
    with_tools = replace(HELLO, tools=(LOOK_UP,))
    model = client_of(stub)
    assert asyncio.run(model.complete(with_tools)).text == "tools"
    assert asyncio.run(model.complete(with_tools)).text == "plain"


@pytest.mark.parametrize(
    ("answer", "response_model", "value"),
    [
        (Weather(city="Rome", degrees=21.5), Weather, None),
        ({"city": "Rome", "degrees": 21.5}, Weather, None),
        (["a", "b"], list[str], ["a", "b"]),
        (7, int, 7),
        (lambda _: {"city": "Rome", "degrees": 21.5}, Weather, None),
    ],
    ids=["model", "dictionary", "list", "number", "function"],
)
def test_structured_answers(
    stub: ModelStub, answer: Any, response_model: Any, value: Any
) -> None:
    """Data and pydantic models are structured answers, wrapped where the request wants an object."""
    stub.respond_with(answer)
    agent = Agent("guide", "Help.", client_of(stub))
    expected = value or Weather(city="Rome", degrees=21.5)
    assert agent.run("?", response_model=response_model) == expected


def test_a_script_survives_json() -> None:
    """A script that is sent to a container is the same there, structured answers included."""
    stub = ModelStub(
        "text",
        {"text": "data", "finish_reason": "stop"},
        [ToolCall.of("look", word="a")],
        ModelResponse("whole"),
        Fault(503),
        ["a", "b"],
    ).when("You write", {"id": "1", "name": "a", "arguments": "{}"})
    data = SCRIPT.dump_json(stub.script, warnings="error")
    assert SCRIPT.validate_json(data) == stub.script


def test_a_request_too_many(stub: ModelStub) -> None:
    """A request without a response fails without a retry, and `verify` reports it."""
    stub.respond_with("only")
    agent = Agent("poet", "Rhyme.", client_of(stub))
    assert agent.run("the moon") == "only"
    stub.verify()
    with pytest.raises(ModelRequestError):
        agent.run("the sun")
    with pytest.raises(AssertionError, match="'the sun'"):
        stub.verify()
    assert len(stub.received) == 2


def test_addresses(stub: ModelStub) -> None:
    """Other paths are unknown, and a stub that is not started has no address."""
    assert plain_http.get(f"{stub.url}/v1/models").status_code == 404
    with pytest.raises(ConfigurationError):
        _ = ModelStub().url


def test_stopping_closes_kept_connections() -> None:
    """A stopped stub does not respond on a connection that was open before; it can be started again."""
    stub = ModelStub("one", "two")
    with httpx.Client(verify=NO_AUTHORITIES, timeout=60) as client:
        with stub:
            url = f"{stub.url}/v1/chat/completions"
            assert client.post(url, json={"messages": []}).status_code == 200
        with pytest.raises(httpx.TransportError):
            client.post(url, json={"messages": []})
    with stub:
        assert call(stub).text == "two"
