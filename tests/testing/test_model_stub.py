"""The model stub, as the library's own client and components see it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

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
from podwright.messages import Message, ModelRequest, ModelResponse, OutputSchema, ToolCall
from podwright.models import Connection
from podwright.models.openai_compatible import ChatModel
from podwright.models.retries import Timeouts
from podwright.usage import Usage
from podwright_service.testing import Fault, ModelStub

HELLO = ModelRequest(
    "openai/gpt-4o-mini",
    (
        Message("system", "Be kind."),
        Message("user", "Hello"),
    ),
)
USED = Usage(input_tokens=600, output_tokens=400, cached_input_tokens=100, reasoning_tokens=40, cost=None)


@pytest.fixture
def stub() -> Iterator[ModelStub]:
    with ModelStub() as started:
        yield started


def connected(stub: ModelStub, **timeouts: float) -> ChatModel:
    model = ChatModel("openai/gpt-4o-mini", Connection("a key", f"{stub.url}/v1"))
    model.timeouts = Timeouts(**{"first_byte": 20.0, **timeouts})
    return model


def ask(stub: ModelStub, request: ModelRequest = HELLO, tokens: list[str] | None = None) -> ModelResponse:
    return asyncio.run(connected(stub).complete(request, None if tokens is None else tokens.append))


streamed = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


@streamed
def test_a_text(stub: ModelStub, streamed: bool) -> None:
    """A text arrives as it was given, streamed word by word, with about as many tokens as it has."""
    text = "Grüße, Welt 🌍 and\n  all the rest."
    stub.answers(text)
    tokens: list[str] = []
    answer = ask(stub, tokens=tokens if streamed else None)
    assert (answer.text, answer.finish_reason, answer.model) == (text, "stop", "gpt-4o-mini")
    assert "".join(tokens) == (text if streamed else "")
    assert len(tokens) == (7 if streamed else 0)
    assert answer.usage.output_tokens == (len(text.encode()) + 3) // 4
    assert answer.usage.input_tokens > 0


@streamed
def test_a_response(stub: ModelStub, streamed: bool) -> None:
    """A response arrives with its calls, its usage, its reason and its names."""
    calls = (ToolCall.of("add", id="one", numbers=[1, 2]), ToolCall("two", "look", '{"at": "the moon"}'))
    said = ModelResponse("Let me see.", calls, USED, "tool_calls", "gpt-4o-mini-2024", "chatcmpl-7")
    stub.answers(said)
    assert ask(stub, tokens=[] if streamed else None) == said


@pytest.mark.parametrize(
    ("answer", "calls", "reason"),
    [(ToolCall.of("add"), 1, "tool_calls"), ([ToolCall.of("add", id="1"), ToolCall.of("add", id="2")], 2, "tool_calls"),
     (ModelResponse("cut", finish_reason="length"), 0, "length")],
)  # fmt: skip
def test_short_forms(stub: ModelStub, answer: Any, calls: int, reason: str) -> None:
    """One call, a list of calls, and a response that was cut off are answers too."""
    stub.answers(answer)
    got = ask(stub)
    assert (len(got.tool_calls), got.finish_reason) == (calls, reason)


def test_what_it_is_asked(stub: ModelStub) -> None:
    """Requests are kept with their meaning, their body and their headers."""
    stub.answers("yes", "yes")
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    tool: Any = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
    messages = (
        Message("system", "Add."),
        Message("user", "1 + 1"),
        Message("assistant", "", (ToolCall.of("add", a=1),)),
        Message("tool", "2", tool_call_id="call_1"),
    )
    request = ModelRequest(
        "openai/gpt-4o-mini", messages, (tool,), {"temperature": 0.5, "max_tokens": 9, "seed": 1},
        OutputSchema("sum", schema), "add",
    )  # fmt: skip
    ask(stub, request)
    ask(stub, tokens=[])
    [one, other] = stub.requests
    assert one == ModelRequest("gpt-4o-mini", *[getattr(request, name) for name in (
        "messages", "tools", "settings", "output", "tool_choice")])  # fmt: skip
    assert other.messages == HELLO.messages
    assert stub.asked[0].headers["authorization"] == "Bearer a key"
    assert stub.asked[1].body["stream_options"] == {"include_usage": True}


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
def test_faults(stub: ModelStub, fault: Fault, error: type[ModelError], streamed: bool) -> None:
    """Each fault is the error that it would be at a vendor, after what it had said; the next answer is whole."""
    stub.answers(fault, "whole")
    tokens: list[str] = []
    with pytest.raises(error) as caught:
        ask(stub, tokens=tokens if streamed else None)
    assert "".join(tokens) == (fault.text if streamed and isinstance(fault.what, str) else "")
    assert caught.value.retry_after == fault.retry_after
    assert ask(stub).text == "whole"


def test_silence(stub: ModelStub) -> None:
    """Silence lasts until the caller's own time-out, and does not keep the stub from stopping."""
    stub.answers(Fault("silence"))
    with pytest.raises(ModelTimeoutError):
        asyncio.run(connected(stub, first_byte=0.1).complete(HELLO))

    async def left_waiting() -> None:
        waiting = asyncio.create_task(connected(stub.answers(Fault("silence"))).complete(HELLO))
        while not stub.asked:  # noqa: ASYNC110 - a thread fills it
            await asyncio.sleep(0.01)
        await asyncio.to_thread(stub.stop)
        with pytest.raises(ModelConnectionError):
            await waiting

    asyncio.run(left_waiting())


def test_latency_and_pace(stub: ModelStub) -> None:
    """An answer waits for the latency before its first byte, and for the pace between its pieces."""
    stub.answers("one two three")
    stub.script.latency, stub.script.pace = 0.2, 0.1
    times: list[float] = []
    begin = time.monotonic()
    asyncio.run(connected(stub).complete(HELLO, lambda _: times.append(time.monotonic() - begin)))
    assert times[0] >= 0.2
    assert times[-1] >= 0.4  # of the beginning: the first may have been read late


def test_answers_by_text(stub: ModelStub) -> None:
    """Agents that are asked at once each get their own answers, by a text of their instructions."""
    stub.when("You research", "a fact", "another").when("You write", "a line")

    async def all_at_once() -> list[ModelResponse]:
        model = connected(stub)
        who = ["You research.", "You write.", "You research."]
        return await asyncio.gather(*(model.complete(ModelRequest("m/m", (Message("system", one),))) for one in who))

    one, line, other = [answer.text for answer in asyncio.run(all_at_once())]
    assert line == "a line"
    assert {one, other} == {"a fact", "another"}


def test_a_function_answers(stub: ModelStub) -> None:
    """A function of the request gives all answers from its turn on."""
    stub.answers("first", lambda request: f"{len(request.messages)} messages")
    assert [ask(stub).text for _ in range(3)] == ["first", "2 messages", "2 messages"]


def test_a_script_that_has_ended(stub: ModelStub) -> None:
    """A request too many is refused once, not tried again, and told by `verify`."""
    stub.answers("only")
    agent = Agent("poet", "Rhyme.", connected(stub))
    assert agent.run("the moon") == "only"
    stub.verify()
    with pytest.raises(ModelRequestError):
        agent.run("the sun")
    with pytest.raises(AssertionError, match="no answer left for a request that ends with 'the sun'"):
        stub.verify()
    assert len(stub.asked) == 2


def test_what_it_is_not(stub: ModelStub) -> None:
    """What cannot be an answer is refused at once, other addresses are unknown, and an unstarted stub has none."""
    with pytest.raises(TypeError, match="cannot answer 5"):
        stub.answers(5)  # pyright: ignore[reportArgumentType] - that is the test
    assert httpx.get(f"{stub.url}/v1/models").status_code == 404
    with pytest.raises(ConfigurationError, match="not started"):
        _ = ModelStub().url


def test_kept_connections_end_with_it() -> None:
    """A stopped stub answers nobody any more, not even on a connection that was open before."""
    with httpx.Client(timeout=20) as client:
        with ModelStub("one", "two") as stub:
            url = f"{stub.url}/v1/chat/completions"
            asked: Callable[[], httpx.Response] = lambda: client.post(url, json={"messages": []})  # noqa: E731
            assert asked().json()["choices"][0]["message"]["content"] == "one"
        with pytest.raises(httpx.TransportError):
            asked()
    assert json.loads(json.dumps(stub.asked[0].body)) == {"messages": []}
