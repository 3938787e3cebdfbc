"""Providers with protocols of their own, through LiteLLM: what it hides is taken from the response itself.

Sources, in our words: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html and
…_ConverseStream.html, https://docs.cohere.com/reference/chat, https://docs.ollama.com/api/chat,
https://ai.google.dev/api/generate-content.
"""

from __future__ import annotations

import base64
import binascii
import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import BaseModel
from tests.library.claude import events, framed, message
from tests.library.claude import text as text_block
from tests.library.model_clients import KEY, question
from tests.library.upstream import (
    STREAM,
    Part,
    Upstream,
    chunk,
    delta,
    reply,
    sse,
    streamed,
)

from podwright import Agent, errors
from podwright.models import Connection
from podwright.models.http.client import MAX_RESPONSE
from podwright.models.litellm.model import LiteLLMModel
from podwright.models.retries import Retries

# LiteLLM and what it imports warn about their own code
pytestmark = pytest.mark.filterwarnings("ignore")

streaming_or_not = pytest.mark.parametrize(
    "streaming", [False, True], ids=["plain", "streaming"]
)

ENDED = "Ciao."
"""The answer is a success."""
CUT_OFF = errors.ModelError
REFUSED = errors.ContentFilterError
FAILED = errors.ModelUnavailableError


@dataclass(frozen=True)
class Protocol:
    """How a provider answers."""

    model: str
    answer: Callable[[str], object]
    """The body of a whole answer, by its stop reason."""
    stream: Callable[[str], Iterator[bytes]]
    """The pieces of a streamed answer."""
    reasons: dict[str, Any] = field(default_factory=dict[str, Any])
    """Stop reasons, and what they mean."""
    content_type: str = "application/json"
    """That of a stream."""

    def model_at(self, provider: Upstream) -> LiteLLMModel:
        model = LiteLLMModel(
            self.model, Connection("key", provider.url.removesuffix("/v1"))
        )
        model.retries = Retries(first_wait=0.001)
        return model

    def script(
        self, reason: str, *, streaming: bool, pieces: int | None = None
    ) -> list[Part]:
        """A response; of a stream, perhaps only the first pieces."""
        if not streaming:
            return [reply(self.answer(reason))]
        head = STREAM.replace(
            b"text/event-stream; charset=utf-8", self.content_type.encode()
        )
        found = list(self.stream(reason))[:pieces]
        return [head, *streamed(*found)[1:]]


def bedrock_frame(kind: str, payload: object) -> bytes:
    """A message of AWS's event stream: prelude, headers, payload and two checksums."""
    fields = {
        ":event-type": kind,
        ":content-type": "application/json",
        ":message-type": "event",
    }
    headers = b"".join(
        bytes([len(name)])
        + name.encode()
        + b"\x07"
        + struct.pack(">H", len(value))
        + value.encode()
        for name, value in fields.items()
    )
    data = json.dumps(payload).encode()
    prelude = struct.pack(">II", len(headers) + len(data) + 16, len(headers))
    whole = (
        prelude + struct.pack(">I", binascii.crc32(prelude)) + headers + data
    )
    return whole + struct.pack(">I", binascii.crc32(whole))


def bedrock_stream(reason: str) -> Iterator[bytes]:
    yield bedrock_frame("messageStart", {"role": "assistant"})
    for text in ("Ci", "ao."):
        yield bedrock_frame(
            "contentBlockDelta",
            {"contentBlockIndex": 0, "delta": {"text": text}},
        )
    yield bedrock_frame("contentBlockStop", {"contentBlockIndex": 0})
    yield bedrock_frame("messageStop", {"stopReason": reason})
    usage = {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15}
    yield bedrock_frame(
        "metadata", {"usage": usage, "metrics": {"latencyMs": 9}}
    )


def bedrock_answer(reason: str) -> object:
    return {
        "output": {
            "message": {"role": "assistant", "content": [{"text": "Ciao."}]}
        },
        "stopReason": reason,
        "usage": {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15},
        "metrics": {"latencyMs": 9},
    }


def cohere_answer(reason: str) -> object:
    return {
        "id": "c1",
        "finish_reason": reason,
        "message": {
            "role": "assistant",
            "content": [{"type": "text", "text": "Ciao."}],
        },
        "usage": {
            "tokens": {"input_tokens": 10, "output_tokens": 5},
            "billed_units": {"input_tokens": 10},
        },
    }


def ollama_stream(reason: str) -> Iterator[bytes]:
    for text in ("Ci", "ao."):
        yield (
            json.dumps(
                {
                    "model": "llama3.2",
                    "message": {"role": "assistant", "content": text},
                    "done": False,
                }
            ).encode()
            + b"\n"
        )
    yield (
        json.dumps(
            {
                **ollama_answer(reason),
                "message": {"role": "assistant", "content": ""},
            }
        ).encode()
        + b"\n"
    )


def ollama_answer(reason: str) -> dict[str, Any]:
    return {
        "model": "llama3.2",
        "created_at": "2026-01-01T00:00:00Z",
        "message": {"role": "assistant", "content": "Ciao."},
        "done": True,
        "done_reason": reason,
        "prompt_eval_count": 10,
        "eval_count": 5,
    }


def gemini_answer(reason: str, text: str = "Ciao.") -> dict[str, Any]:
    candidate: dict[str, Any] = {
        "content": {"role": "model", "parts": [{"text": text}]},
        "index": 0,
    }
    usage = {
        "promptTokenCount": 10,
        "candidatesTokenCount": 5,
        "totalTokenCount": 15,
    }
    return {
        "candidates": [{**candidate, "finishReason": reason}],
        "usageMetadata": usage,
        "modelVersion": "m",
    }


def gemini_stream(reason: str) -> Iterator[bytes]:
    begun = gemini_answer("", "Ci")
    del begun["candidates"][0]["finishReason"]
    for event in (begun, gemini_answer(reason, "ao.")):
        yield f"data: {json.dumps(event)}\r\n\r\n".encode()


PROTOCOLS = {
    "bedrock": Protocol(
        "bedrock/converse/amazon.nova-lite-v1:0",
        bedrock_answer,
        bedrock_stream,
        {
            "end_turn": ENDED,
            "stop_sequence": ENDED,
            "max_tokens": CUT_OFF,
            "model_context_window_exceeded": CUT_OFF,
            "guardrail_intervened": REFUSED,
            "content_filtered": REFUSED,
            "malformed_model_output": FAILED,
            "malformed_tool_use": FAILED,
        },
        "application/vnd.amazon.eventstream",
    ),
    "ollama": Protocol(
        "ollama_chat/llama3.2",
        ollama_answer,
        ollama_stream,
        {"stop": ENDED, "length": CUT_OFF},
        "application/x-ndjson",
    ),
    "gemini": Protocol(
        "gemini/gemini-2.5-flash",
        gemini_answer,
        gemini_stream,
        {
            "STOP": ENDED,
            "MAX_TOKENS": CUT_OFF,
            "SAFETY": REFUSED,
            "RECITATION": REFUSED,
            "PROHIBITED_CONTENT": REFUSED,
            "MALFORMED_FUNCTION_CALL": errors.ModelToolCallError,
            "UNEXPECTED_TOOL_CALL": FAILED,
        },
        "text/event-stream",
    ),
}
REASONS = [
    pytest.param(protocol, reason, meaning, id=f"{name}-{reason}")
    for name, protocol in PROTOCOLS.items()
    for reason, meaning in protocol.reasons.items()
]
by_protocol = pytest.mark.parametrize(
    "protocol", PROTOCOLS.values(), ids=PROTOCOLS
)


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "of-a-test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@streaming_or_not
@pytest.mark.parametrize(("protocol", "reason", "meaning"), REASONS)
async def test_why_the_model_stopped(
    provider: Upstream,
    protocol: Protocol,
    reason: str,
    meaning: Any,
    streaming: bool,
) -> None:
    """The stop reason is the provider's own, also where LiteLLM takes it for "stop"."""
    provider.answers(protocol.script(reason, streaming=streaming))
    agent = Agent("guide", "Help.", protocol.model_at(provider))
    if meaning is ENDED:
        result = await agent.arun("Hello?", stream=streaming, trace=True)
        assert result.value == "Ciao."
        assert (result.usage.input_tokens, result.usage.output_tokens) == (
            10,
            5,
        )
        return
    with pytest.raises(errors.ModelError) as caught:
        await agent.arun("Hello?", stream=streaming)
    assert type(caught.value) is meaning


@by_protocol
async def test_a_stream_that_is_cut_off(
    provider: Upstream, protocol: Protocol
) -> None:
    """A stream that ends before its stop reason is no success, wherever it ends."""
    reason = next(iter(protocol.reasons))
    pieces = [*protocol.stream(reason)]
    last = next(
        number
        for number, piece in enumerate(pieces)
        if reason.encode() in piece
    )
    for number in range(last):
        provider.answers(protocol.script(reason, streaming=True, pieces=number))
        with pytest.raises(errors.ModelError):
            await Agent("guide", "Help.", protocol.model_at(provider)).arun(
                "Hello?", stream=True
            )


@by_protocol
async def test_a_stream_that_ends_in_the_middle_of_its_last_piece(
    provider: Upstream, protocol: Protocol
) -> None:
    """The last piece, with the stop reason, is cut in the middle."""
    reason = next(iter(protocol.reasons))
    script = protocol.script(reason, streaming=True)
    pieces = [*protocol.stream(reason)]
    last = next(
        number
        for number, piece in enumerate(pieces)
        if reason.encode() in piece
    )
    half = pieces[last][: pieces[last].index(reason.encode())]
    provider.answers(
        [
            script[0],
            *(chunk(piece) for piece in pieces[:last]),
            chunk(half),
            chunk(b""),
        ]
    )
    with pytest.raises(errors.ModelError):
        await Agent("guide", "Help.", protocol.model_at(provider)).arun(
            "Hello?", stream=True
        )


ERRORS = [
    (401, errors.ModelAuthenticationError, 1),
    (403, errors.ModelAuthenticationError, 1),
    (424, errors.ModelUnavailableError, 3),
    (413, errors.ContextWindowError, 1),
    (429, errors.ModelRateLimitError, 3),
    (500, errors.ModelUnavailableError, 3),
    (529, errors.ModelUnavailableError, 3),
]


@by_protocol
@streaming_or_not
@pytest.mark.parametrize(
    ("status", "expected", "requests"),
    ERRORS,
    ids=[str(row[0]) for row in ERRORS],
)
async def test_errors(
    provider: Upstream,
    protocol: Protocol,
    status: int,
    expected: type[errors.ModelError],
    requests: int,
    streaming: bool,
) -> None:
    """An error has the status that the provider gave it, and is repeated only if that can help."""
    provider.answers([reply({"message": "Oh no"}, status)])
    with pytest.raises(errors.ModelError, match=f"answered {status}") as caught:
        await Agent("guide", "Help.", protocol.model_at(provider)).arun(
            "Hello?", stream=streaming
        )
    assert (type(caught.value), len(provider.requests)) == (expected, requests)
    assert "Oh no" in str(caught.value.provider_error)


@by_protocol
async def test_without_credit(provider: Upstream, protocol: Protocol) -> None:
    """An account without credit is not asked again."""
    provider.answers(
        [
            reply(
                {
                    "message": "insufficient_quota: You exceeded your current quota"
                },
                429,
            )
        ]
    )
    with pytest.raises(errors.ModelRateLimitError, match="credit"):
        await Agent("guide", "Help.", protocol.model_at(provider)).arun(
            "Hello?"
        )
    assert len(provider.requests) == 1


@by_protocol
@streaming_or_not
async def test_a_long_wait_is_not_waited_for(
    provider: Upstream, protocol: Protocol, streaming: bool
) -> None:
    """`Retry-After` counts."""
    provider.answers([reply({"message": "slow"}, 429, Retry_After="3600")])
    with pytest.raises(errors.ModelRateLimitError) as caught:
        await Agent("guide", "Help.", protocol.model_at(provider)).arun(
            "Hello?", stream=streaming
        )
    assert (caught.value.retry_after, len(provider.requests)) == (3600, 1)


@by_protocol
async def test_no_redirect_takes_the_key_along(
    provider: Upstream, protocol: Protocol
) -> None:
    """A redirect is an error, and nothing goes where it leads."""
    elsewhere = provider.url.replace("127.0.0.1", "localhost")
    provider.answers(
        [reply(b"", 307, Location=elsewhere)], [reply(protocol.answer("stop"))]
    )
    with pytest.raises(
        errors.ModelResponseError, match="redirects are not followed"
    ):
        await Agent("guide", "Help.", protocol.model_at(provider)).arun(
            "Hello?"
        )
    assert len(provider.requests) == 1


@by_protocol
async def test_no_cookie_is_kept_and_no_endless_response_read(
    provider: Upstream, protocol: Protocol
) -> None:
    """A cookie of one run must not reach another one, and a response has a limit."""
    answer = json.dumps(protocol.answer(next(iter(protocol.reasons)))).encode()
    provider.answers([reply(answer, Set_Cookie="session=of-a-tenant")])
    model = protocol.model_at(provider)
    for _ in range(2):
        await model.complete(question(protocol.model))
    assert "cookie" not in provider.headers[1]
    provider.answers([reply(answer + b" " * MAX_RESPONSE)])
    with pytest.raises(errors.ModelResponseError, match="longer than"):
        await model.complete(question(protocol.model))


@by_protocol
async def test_nobody_listens(protocol: Protocol) -> None:
    """A refused connection is an error of the connection."""
    model = LiteLLMModel(
        protocol.model, Connection("key", "http://127.0.0.1:9")
    )
    model.retries = Retries(tries=1)
    with pytest.raises(errors.ModelConnectionError):
        await Agent("guide", "Help.", model).arun("Hello?")


class City(BaseModel):
    """A city."""

    name: str
    people: dict[str, int]


@by_protocol
async def test_a_response_model_with_a_map(
    provider: Upstream, protocol: Protocol
) -> None:
    """Objects with open keys are asked for through a tool, and no tool is forced; JSON in text is read as well."""
    answer = {"name": "Rome", "people": {"2020": 3}}
    body = json.dumps(protocol.answer(next(iter(protocol.reasons))))
    body = body.replace(json.dumps("Ciao."), json.dumps(json.dumps(answer)))
    provider.answers([reply(body.encode())])
    agent = Agent("guide", "Help.", protocol.model_at(provider))
    assert await agent.arun("How many?", response_model=City) == City(**answer)
    sent = json.dumps(provider.requests[0])
    assert "final_answer" in sent
    # how Bedrock and Gemini are told to call a tool
    assert not any(
        word in sent
        for word in (
            '"any": {}',
            '"tool": {"name"',
            '"mode": "ANY"',
            '"REQUIRED"',
        )
    )


@pytest.mark.parametrize("reason", ["COMPLETE", "MAX_TOKENS", "ERROR"])
async def test_a_reason_that_stays_hidden(
    provider: Upstream, reason: str
) -> None:
    """LiteLLM takes no client for Cohere, and its "stop" may be any reason: the response says so."""
    provider.answers([reply(cohere_answer(reason))])
    model = LiteLLMModel(
        "cohere_chat/command-a-03-2025", Connection("key", provider.url)
    )
    response = await model.complete(question(model.name))
    assert (response.text, response.finish_reason) == ("Ciao.", "unknown")


def invoke_stream() -> Iterator[bytes]:
    """Claude's events, encoded within those of AWS."""
    usage = {"input_tokens": 10, "output_tokens": 1}
    start = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": "m",
        "usage": usage,
    }
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": start},
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "text", "text": ""},
        },
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": "Ciao."},
        },
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 5},
        },
        {"type": "message_stop"},
    ]
    for event in events:
        yield bedrock_frame(
            "chunk",
            {"bytes": base64.b64encode(json.dumps(event).encode()).decode()},
        )


async def test_events_that_are_encoded(provider: Upstream) -> None:
    """A stop reason that is not in plain words is the one that LiteLLM has read."""
    name = "bedrock/invoke/anthropic.claude-3-haiku-20240307-v1:0"
    invoked = Protocol(name, bedrock_answer, lambda _: invoke_stream())
    script = PROTOCOLS["bedrock"].script("end_turn", streaming=True)[:1]
    provider.answers([*script, *streamed(*invoke_stream())[1:]])
    agent = Agent("guide", "Help.", invoked.model_at(provider))
    assert await agent.arun("Hello?", stream=True) == "Ciao."


async def test_a_stream_that_never_says_why(provider: Upstream) -> None:
    """Some have no stop reason at all, or none that LiteLLM passes on: it is not known, and the text is an answer."""
    pieces = [
        json.dumps({"generation": text, "stop_reason": None})
        for text in ("Ci", "ao.")
    ]
    frames = [
        bedrock_frame(
            "chunk", {"bytes": base64.b64encode(piece.encode()).decode()}
        )
        for piece in (
            *pieces,
            json.dumps(
                {
                    "generation": "",
                    "stop_reason": "stop",
                    "prompt_token_count": 10,
                }
            ),
        )
    ]
    head = PROTOCOLS["bedrock"].script("end_turn", streaming=True)[:1]
    provider.answers([*head, *streamed(*frames)[1:]])
    name = "bedrock/llama/arn:aws:bedrock:us-east-1:123:imported-model/abc"
    model = LiteLLMModel(
        name, Connection("key", provider.url.removesuffix("/v1"))
    )
    response = await model.complete(question(name), print)
    assert (response.text, response.finish_reason) == ("Ciao.", "unknown")


async def test_a_claude_that_is_cut_off_has_no_price(
    provider: Upstream,
) -> None:
    """The count with which Claude begins is not that of its answer, through LiteLLM either."""
    begun = events(message(text_block("Once upon a time " * 20)))[:-3]
    provider.answers(streamed(*(framed(event) for event in begun)))
    model = LiteLLMModel(
        "anthropic/claude-sonnet-4-5",
        Connection("key", provider.url.removesuffix("/v1")),
    )
    with pytest.raises(errors.ModelResponseError) as caught:
        await model.complete(question(model.name), print)
    assert caught.value.attempt_usage
    assert caught.value.attempt_usage.unpriced_model_calls == 1
    assert caught.value.attempt_usage.output_tokens > 50


MISSING = {
    "vertex_ai/gemini-2.5-flash": "google-auth",
    "vertex_ai/claude-sonnet-4-5": "google-auth",
    "bedrock/converse/amazon.nova-lite-v1:0": "credentials",
    "snowflake/llama": "API key",
}


@pytest.mark.parametrize(("name", "what"), MISSING.items(), ids=MISSING)
async def test_what_is_missing_is_named(
    provider: Upstream, name: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a key, or the package that gets one, nothing is sent or repeated."""
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(variable)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    model = LiteLLMModel(name, Connection(None, provider.url))
    with pytest.raises(errors.ModelAuthenticationError, match=what):
        await Agent("guide", "Help.", model).arun("Hello?")
    assert not provider.requests


REFUSED_KEYS: dict[str, tuple[str, dict[str, str], str, str]] = {
    "of the table": (
        "anthropic/claude-haiku-4-5",
        {"ANTHROPIC_API_KEY": KEY},
        "the API key in ANTHROPIC_API_KEY",
        "ANTHROPIC_API_KEY",
    ),
    "by its name": (
        "github/gpt-4o",
        {"GITHUB_API_KEY": KEY},
        "the API key in GITHUB_API_KEY",
        "GITHUB_API_KEY",
    ),
    "credentials": (
        "bedrock/converse/amazon.nova-lite-v1:0",
        {},
        "refused its credentials",
        "https://docs.litellm.ai",
    ),
    "no key": (
        "anthropic/claude-haiku-4-5",
        {},
        "no API key",
        "Set ANTHROPIC_API_KEY, or api_key.",
    ),
}


@pytest.mark.parametrize("case", REFUSED_KEYS)
@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_key_is_named_by_its_variable(
    case: str,
    status: int,
    provider: Upstream,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error names the variable that LiteLLM takes the key from, as far as it is known, and never the key."""
    name, variables, message, suggestion = REFUSED_KEYS[case]
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    provider.answers([reply({"message": "No."}, status)])
    url = provider.url.removesuffix("/v1")
    model = LiteLLMModel(name, Connection(None, url))
    with pytest.raises(errors.ModelAuthenticationError) as refused:
        await model.complete(question(name))
    assert message in refused.value.message
    assert suggestion in refused.value.suggestion
    assert KEY not in str(refused.value)


async def test_an_estimate_has_no_price(provider: Upstream) -> None:
    """LiteLLM counts tokens itself where the provider has not; a bill must not rest on that."""
    ollama = PROTOCOLS["ollama"]
    answer = ollama_answer("stop")
    del answer["prompt_eval_count"], answer["eval_count"]
    provider.answers([reply(answer)])
    response = await ollama.model_at(provider).complete(question(ollama.model))
    assert response.usage.unpriced_model_calls == 1


async def test_the_loop_stays_free(
    provider: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model whose name has `llama-3` is not a reason to ask another host for its tokenizer."""
    provider.answers(streamed(sse(delta(content="Hi"), delta("stop"))))
    asked: list[Any] = []
    monkeypatch.setattr(
        "socket.getaddrinfo",
        lambda *args, **_: asked.append(args[0]) or pytest.fail("asked"),
    )
    model = LiteLLMModel(
        "azure_ai/Llama-3.3-70B-Instruct", Connection("key", provider.url)
    )
    assert (
        await Agent("guide", "Help.", model).arun("Hello?", stream=True) == "Hi"
    )
    assert not asked
