"""The wide lane: LiteLLM against real sockets, kept to our time-outs, our tries and our words."""

import asyncio
import importlib
import json
import logging
import math
import ssl
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.library.upstream import (
    STORY,
    STORY_TEXT,
    STREAM,
    Pass,
    Script,
    Upstream,
    call,
    chunk,
    completion,
    delta,
    reply,
    sse,
    streamed,
    upstream,
)

from podwright import Agent, EventManager, errors
from podwright.messages import Message, ModelRequest, ModelResponse, ModelSettings, OutputSchema, ToolCall
from podwright.models import Connection
from podwright.models import litellm as lane
from podwright.models.litellm import LiteLLMModel
from podwright.models.pricing import lookup
from podwright.models.retries import Retries, Timeouts
from podwright.testing import events_of

pytestmark = [
    # pydantic's, about what LiteLLM does with each piece of a stream
    pytest.mark.filterwarnings("ignore:Accessing the:DeprecationWarning"),
    # which the lane ignores itself, where pytest does not put its own filters before
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning"),
]

KEY = "sk-0123456789-top-secret"
VENDOR = "VENDOR-WORDS"
OPENAI, VLLM, ANTHROPIC = "openai/gpt-4o-mini", "hosted_vllm/qwen", "anthropic/claude-haiku-4-5"
LATE = (Pass(90.0), "hang")
"""Longer than the limits below; those, a busy machine does not come to."""
LIMITS = Timeouts(connect=60.0, first_byte=60.0, idle=60.0, total=600.0)
WEATHER: Any = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}


@pytest.fixture(scope="module", autouse=True)
def rehearsed() -> None:
    """The first calls of a process take long; those of the tests are measured."""

    async def ask() -> None:
        async with upstream() as provider:
            for name in (OPENAI, VLLM, ANTHROPIC):
                model = model_at(provider, name)
                model.timeouts = Timeouts()
                provider.answers([reply(MESSAGE if name == ANTHROPIC else completion())])
                await model.complete(asking())
            provider.answers(streamed(sse(delta(content="Hi."), delta("stop"))))
            await told(model_at(provider))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        asyncio.run(ask())


def model_at(provider: Upstream, name: str = OPENAI) -> LiteLLMModel:
    url = provider.url.removesuffix("/v1") if name == ANTHROPIC else provider.url
    model = LiteLLMModel(name, Connection(KEY, url))
    model.timeouts, model.retries = LIMITS, Retries(first_wait=0.01)
    return model


def asking(text: str = "Hello?", **options: Any) -> ModelRequest:
    return ModelRequest("any", (Message("system", "Be short."), Message("user", text)), **options)


async def told(model: LiteLLMModel, request: ModelRequest | None = None) -> tuple[ModelResponse, list[str]]:
    pieces: list[str] = []
    return await model.complete(request or asking(), pieces.append), pieces


@pytest.mark.parametrize("name", [OPENAI, VLLM])
async def test_an_answer_has_its_text_and_its_usage(provider: Upstream, name: str) -> None:
    """A plain answer brings text, tokens, cached and reasoning ones too, and what the provider calls itself."""
    usage = {
        "prompt_tokens": 50,
        "completion_tokens": 9,
        "total_tokens": 59,
        "prompt_tokens_details": {"cached_tokens": 32},
        "completion_tokens_details": {"reasoning_tokens": 5},
    }
    provider.answers([reply(completion("Hi.", usage))])
    settings: ModelSettings = {"temperature": 0.5, "max_tokens": 20, "stop": ["x"]}
    response = await model_at(provider, name).complete(asking(settings=settings))
    assert (response.text, response.finish_reason, response.model, response.id) == ("Hi.", "stop", "m-1", "c1")
    counts = response.usage
    assert (counts.input_tokens, counts.output_tokens) == (50, 9)
    assert (counts.cached_input_tokens, counts.reasoning_tokens) == (32, 5)
    sent = provider.requests[0]
    assert sent["messages"] == [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hello?"}]
    assert (sent["temperature"], sent["max_tokens"], sent["stop"]) == (0.5, 20, ["x"])
    assert "timeout" not in sent
    assert provider.headers[0]["authorization"] == f"bearer {KEY}"


@pytest.mark.parametrize("name", [OPENAI, VLLM])
async def test_a_stream_is_handed_out_in_order(provider: Upstream, name: str) -> None:
    """Each piece reaches the callback as it comes; the whole has the usage that the provider sent last."""
    provider.answers(streamed(STORY, *range(40, len(STORY), 97)))
    response, pieces = await told(model_at(provider, name))
    assert "".join(pieces) == response.text == STORY_TEXT
    assert len(pieces) > 3
    assert (response.usage.input_tokens, response.usage.output_tokens) == (20, 4)
    assert provider.requests[0]["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("sent", [None, -50])
async def test_without_usage_the_price_is_unknown(provider: Upstream, streams: bool, sent: int | None) -> None:
    """Where the provider counts no tokens, or fewer than none, they are estimated: no estimate passes for a bill."""
    usage = sent and {"prompt_tokens": sent, "completion_tokens": 4, "total_tokens": sent + 4}
    if streams:
        provider.answers(streamed(sse(delta(content="Hi."), delta("stop"), {"choices": [], "usage": usage})))
        response, _ = await told(model_at(provider))
    else:
        provider.answers([reply(completion("Hi.", usage=usage))])
        response = await model_at(provider).complete(asking())
    assert response.usage.unpriced_model_calls == 1
    assert response.usage.cost is None
    assert response.usage.input_tokens > 0


@pytest.mark.parametrize("name", [OPENAI, VLLM])
@pytest.mark.parametrize("streams", [False, True])
async def test_tools_are_called(provider: Upstream, name: str, streams: bool) -> None:
    """Tool calls come whole and in pieces, several in one turn; their answers go back under their ids."""
    if streams:
        pieces = (
            [call(index=0, id="a", type="function", name="weather", arguments="")],
            [call(index=0, arguments='{"city": ')],
            [call(index=1, id="b", type="function", name="weather", arguments='{"city": "Rom"}')],
            [call(index=0, arguments='"Köln"}')],
        )
        provider.answers(streamed(sse(*(delta(tool_calls=piece) for piece in pieces), delta("tool_calls"))))
    else:
        calls = [
            call(id="a", type="function", name="weather", arguments='{"city": "Köln"}'),
            call(id="b", type="function", name="weather", arguments='{"city": "Rom"}'),
        ]
        provider.answers([reply(completion(None, tool_calls=calls))])
    earlier = (
        Message("assistant", "", (ToolCall("z", "weather", "{}"),)),
        Message("tool", "rain", tool_call_id="z"),
    )
    request = asking(tools=(WEATHER,), tool_choice="weather")
    request = replace(request, messages=request.messages + earlier)
    model = model_at(provider, name)
    response = (await told(model, request))[0] if streams else await model.complete(request)
    assert response.finish_reason == "tool_calls"
    assert [(one.id, json.loads(one.arguments)["city"]) for one in response.tool_calls] == [("a", "Köln"), ("b", "Rom")]
    sent = provider.requests[0]
    assert sent["tools"] == [WEATHER]
    assert sent["tool_choice"] == {"type": "function", "function": {"name": "weather"}}
    assert sent["messages"][-1] == {"role": "tool", "content": "rain", "tool_call_id": "z"}


class City(BaseModel):
    name: str
    people: int


async def test_structured_output_is_asked_for_by_schema(provider: Upstream) -> None:
    """Where LiteLLM knows of a JSON-schema mode, the answer is asked for by its schema."""
    provider.answers([reply(completion('{"name": "Rom", "people": 3}'))])
    response = await model_at(provider).complete(asking(output=OutputSchema("City", City.model_json_schema())))
    assert City.model_validate_json(response.text) == City(name="Rom", people=3)
    asked = provider.requests[0]["response_format"]
    assert (asked["type"], asked["json_schema"]["name"]) == ("json_schema", "City")


async def test_structured_output_is_a_tool_elsewhere(provider: Upstream) -> None:
    """Where it knows of none, an agent gets its answer through a tool, beside its other tools."""
    answers = [
        completion(None, tool_calls=[call(id="a", type="function", name="count", arguments="{}")]),
        completion(
            None, tool_calls=[call(id="b", type="function", name="final_answer", arguments='{"name":"Rom","people":3}')]
        ),
    ]
    provider.answers(*[[reply(answer)] for answer in answers])

    def count() -> int:
        """Count."""
        return 3

    agent = Agent("counter", "Count.", model_at(provider, VLLM), tools=[count])
    assert await agent.arun("Rom", response_model=City) == City(name="Rom", people=3)
    offered = [tool["function"]["name"] for tool in provider.requests[0]["tools"]]
    assert offered == ["count", "final_answer"]
    assert "response_format" not in provider.requests[0]


MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-haiku-4-5",
    "content": [{"type": "text", "text": "Ciao."}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 10, "cache_read_input_tokens": 30, "cache_creation_input_tokens": 0, "output_tokens": 6},
}


def named(*events: dict[str, Any]) -> bytes:
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()


async def test_a_provider_with_its_own_protocol_answers(provider: Upstream) -> None:
    """A provider that speaks no Chat Completions is reached too, at the same price as in a look-up."""
    provider.answers([reply(MESSAGE)])
    heard: list[Any] = []
    manager = EventManager()
    manager.subscribe(heard.append)
    agent = Agent("poet", "Be short.", model_at(provider, ANTHROPIC), max_tokens=20, event_manager=manager)
    assert await agent.arun("Hello?") == "Ciao."
    finished: Any = events_of(heard, "model_call_finished")[0]
    usage = finished.response.usage
    assert (usage.input_tokens, usage.cached_input_tokens, usage.output_tokens) == (40, 30, 6)
    expected = lookup(ANTHROPIC, usage)
    assert expected
    assert usage.cost == expected.amount
    assert provider.headers[0][":line"].startswith("POST /v1/messages")
    assert provider.headers[0]["x-api-key"] == KEY
    assert provider.requests[0]["max_tokens"] == 20


async def test_a_stream_of_its_own_protocol_answers(provider: Upstream) -> None:
    """Its stream is handed out as any other, with tool calls and usage."""
    block = {"type": "content_block_delta", "index": 1}
    events = named(
        {"type": "message_start", "message": {**MESSAGE, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Let me "}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "see."}},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "content_block_start",
            "index": 1,
            "content_block": {"type": "tool_use", "id": "t1", "name": "weather", "input": {}},
        },
        {**block, "delta": {"type": "input_json_delta", "partial_json": '{"city":'}},
        {**block, "delta": {"type": "input_json_delta", "partial_json": ' "Rom"}'}},
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 12}},
        {"type": "message_stop"},
    )
    provider.answers([STREAM, chunk(events), chunk(b"")])
    response, pieces = await told(model_at(provider, ANTHROPIC), asking(tools=(WEATHER,)))
    assert pieces == ["Let me ", "see."]
    assert response.tool_calls == (ToolCall("t1", "weather", '{"city": "Rom"}'),)
    assert response.finish_reason == "tool_calls"
    assert (response.usage.input_tokens, response.usage.output_tokens) == (40, 12)


def refused(status: int, message: str = VENDOR, **more: Any) -> Script:
    error = {"message": f"{message} {VENDOR} {KEY}", "type": "some_error", **more}
    return [reply({"error": error, "type": "error"}, status)]


STARTED = sse(delta(content="Hi"), done=False)
TOO_LONG = "This model's maximum context length is 10 tokens; prompt is too long: 20 tokens > 10 maximum"
FAULTS: dict[str, tuple[Script, type[errors.ModelError], int]] = {
    "401": (refused(401), errors.ModelAuthenticationError, 1),
    "403": (refused(403), errors.ModelAuthenticationError, 1),
    "404": (refused(404), errors.ModelRequestError, 1),
    "400": (refused(400), errors.ModelRequestError, 1),
    "422": (refused(422), errors.ModelRequestError, 1),
    "402": (refused(402), errors.ModelRateLimitError, 1),
    "429": (refused(429), errors.ModelRateLimitError, 3),
    "429 no credit": (refused(429, code="insufficient_quota"), errors.ModelRateLimitError, 1),
    "429 too far": ([reply({"error": {}}, 429, Retry_After="3600")], errors.ModelRateLimitError, 1),
    "500": (refused(500), errors.ModelUnavailableError, 3),
    "503": (refused(503), errors.ModelUnavailableError, 3),
    "529": (refused(529), errors.ModelUnavailableError, 3),
    "too long": (refused(400, TOO_LONG, code="context_length_exceeded"), errors.ContextWindowError, 1),
    "filtered": (refused(400, code="content_filter"), errors.ContentFilterError, 1),
    "redirect": ([reply(b"", 307, Location="/elsewhere")], errors.ModelResponseError, 1),
    "no JSON": ([reply(b"<html>" + VENDOR.encode())], errors.ModelResponseError, 3),
    "list": ([reply([VENDOR])], errors.ModelResponseError, 3),
    "null": ([reply(None)], errors.ModelResponseError, 3),
    "no text": ([reply(b'{"choices": [{"message": {"content": "\xff"}}]}')], errors.ModelResponseError, 3),
    "not a number": ([reply(completion(VENDOR, {"prompt_tokens": math.nan}))], errors.ModelResponseError, 3),
    "no choices": ([reply({"choices": 7, "id": VENDOR})], errors.ModelResponseError, 3),
    "truncated": ([reply(completion())[:-30], "close"], errors.ModelResponseError, 3),
    "reset": (["reset"], errors.ModelConnectionError, 3),
    "closed": (["close"], errors.ModelConnectionError, 3),
    "silent": (LATE, errors.ModelTimeoutError, 3),
}
STREAM_FAULTS: dict[str, tuple[Script, type[errors.ModelError], int]] = {
    "500": (refused(500), errors.ModelUnavailableError, 3),
    "ends early": ([STREAM, chunk(STARTED), chunk(b"")], errors.ModelResponseError, 1),
    "cut": ([STREAM, chunk(STARTED), "close"], errors.ModelResponseError, 1),
    "cut before": ([STREAM, "close"], errors.ModelResponseError, 3),
    "stalls": ([STREAM, chunk(STARTED), *LATE], errors.ModelTimeoutError, 1),
    "error within": (
        [STREAM, chunk(STARTED), chunk(sse({"error": {"message": VENDOR, "code": 500}}, done=False)), chunk(b"")],
        errors.ModelUnavailableError,
        1,
    ),
}


async def fails(provider: Upstream, name: str, script: Script, streams: bool) -> tuple[errors.ModelError, int]:
    provider.answers(script)
    agent = Agent("poet", "Be short.", model_at(provider, name))

    async def ask() -> None:
        if streams:
            async for _ in agent.astream("Hello?"):
                pass
        else:
            await agent.arun("Hello?")

    with pytest.raises(errors.ModelError) as caught:
        await ask()
    seen: BaseException | None = caught.value
    while seen is not None:
        assert VENDOR not in f"{seen!r} {seen} {seen.__dict__}"
        assert KEY not in f"{seen!r} {seen} {seen.__dict__}"
        seen = seen.__cause__ or seen.__context__
    return caught.value, len(provider.requests)


@pytest.mark.parametrize("name", [OPENAI, VLLM])
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_is_a_typed_error(
    provider: Upstream, name: str, fault: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each fault has its error and its number of requests; neither error, log nor output quote the provider."""
    script, kind, tries = FAULTS[fault]
    error, requests = await fails(provider, name, script, streams=False)
    assert (type(error), requests) == (kind, tries)
    out = "".join(capfd.readouterr()) + caplog.text
    assert VENDOR not in out
    assert KEY not in out


@pytest.mark.parametrize("name", [OPENAI, VLLM])
@pytest.mark.parametrize("fault", STREAM_FAULTS)
async def test_a_fault_in_a_stream_is_a_typed_error(provider: Upstream, name: str, fault: str) -> None:
    """A stream that breaks is an error, repeated only while no token was handed out."""
    script, kind, tries = STREAM_FAULTS[fault]
    error, requests = await fails(provider, name, script, streams=True)
    assert (type(error), requests) == (kind, tries)


@pytest.mark.parametrize("name", [OPENAI, VLLM])
@pytest.mark.parametrize("reason", ["error", "insufficient_system_resource", "network_error"])
@pytest.mark.parametrize("streams", [False, True])
async def test_an_answer_that_broke_off_is_no_success(
    provider: Upstream, name: str, reason: str, streams: bool
) -> None:
    """A provider's word that the answer is not whole is an error of the provider, as in the direct lane."""
    whole = completion("Half an ans")
    whole["choices"][0]["finish_reason"] = reason
    provider.answers(streamed(sse(delta(content="Half"), delta(reason))) if streams else [reply(whole)])
    with pytest.raises(errors.ModelUnavailableError) as caught:
        await (told(model_at(provider, name)) if streams else model_at(provider, name).complete(asking()))
    assert caught.value.transient


async def test_so_it_is_in_another_protocol(provider: Upstream) -> None:
    """A provider with another word for it is understood, too."""
    said = {"content": {"parts": [{"text": "Half"}], "role": "model"}, "finishReason": "MALFORMED_RESPONSE", "index": 0}
    counts = {"promptTokenCount": 2, "candidatesTokenCount": 1, "totalTokenCount": 3}
    provider.answers([reply({"candidates": [said], "usageMetadata": counts})])
    with pytest.raises(errors.ModelUnavailableError):
        await LiteLLMModel("gemini/gemini-3-flash", Connection(KEY, provider.url)).complete(asking())


MUCH = "x" * 17 * 2**20
LONG: dict[str, Script] = {
    "plain": [reply(completion(MUCH))],
    "compressed": [reply(completion(MUCH * 2), zipped=True)],
    "refusal": [reply({"error": {"message": MUCH}}, 400)],
}


@pytest.mark.parametrize("name", [OPENAI, VLLM])
@pytest.mark.parametrize("kind", LONG)
async def test_an_answer_that_is_too_long_is_not_taken(provider: Upstream, name: str, kind: str) -> None:
    """What is longer than 16 MiB, decompressed, is a final error."""
    error, requests = await fails(provider, name, LONG[kind], streams=False)
    if kind != "refusal" or name != VLLM:  # where the status alone says enough
        assert isinstance(error, errors.ModelResponseError)
        assert "longer than 16777216 bytes" in error.message
    assert requests == 1


@pytest.mark.parametrize("name", [OPENAI, VLLM])
async def test_a_stream_that_is_too_long_is_not_taken(provider: Upstream, name: str) -> None:
    """A stream that does not end is cut off at the same length."""
    piece = chunk(sse(delta(content=MUCH[: 2**20]), done=False))
    provider.answers([STREAM, *[piece] * 17, chunk(sse(delta("stop"))), chunk(b"")])
    pieces: list[str] = []
    with pytest.raises(errors.ModelResponseError, match="longer than 16777216 bytes") as caught:
        await model_at(provider, name).complete(asking(), pieces.append)
    assert not caught.value.transient
    assert 2**23 < sum(map(len, pieces)) < 2**24


@pytest.mark.parametrize("name", [OPENAI, VLLM])
async def test_a_compressed_answer_is_read(provider: Upstream, name: str) -> None:
    """Compression is not asked for; what is compressed all the same is read if its size can be bounded."""
    provider.answers([reply(completion(), zipped=True)])
    assert (await model_at(provider, name).complete(asking())).text == "Hi."
    assert provider.headers[0]["accept-encoding"] == "identity"
    for script in ([reply(completion(), Content_Encoding="br")], [reply(completion(), Content_Encoding="gzip")]):
        provider.answers(script)
        with pytest.raises(errors.ModelResponseError, match="no chat completion"):
            await model_at(provider, name).complete(asking())


@pytest.mark.parametrize(
    ("status", "kind"), [(401, errors.ModelAuthenticationError), (529, errors.ModelUnavailableError)]
)
async def test_a_fault_of_its_own_protocol_is_a_typed_error(
    provider: Upstream, status: int, kind: type[errors.ModelError]
) -> None:
    """A provider with its own protocol fails in the same words."""
    error, _ = await fails(provider, ANTHROPIC, refused(status), streams=False)
    assert type(error) is kind


async def test_no_connection_is_a_typed_error(provider: Upstream) -> None:
    """An address where nobody listens is an unreachable model."""
    model = LiteLLMModel(OPENAI, Connection(KEY, "http://127.0.0.1:1/v1"))
    with pytest.raises(errors.ModelConnectionError):
        await model.complete(asking())


@pytest.mark.parametrize("name", [OPENAI, VLLM])
async def test_a_certificate_at_fault_is_told_once(name: str, tmp_path: Path) -> None:
    """A certificate that nobody vouches for is not asked for again, and the error says what is at fault."""
    made, key = tmp_path / "made.pem", tmp_path / "key.pem"
    subject = ["-subj", "/CN=nobody", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(made)]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *subject, *files], check=True, capture_output=True
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(made, key)
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    async with server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        with pytest.raises(errors.ModelConnectionError, match="certificate or TLS") as caught:
            await LiteLLMModel(name, Connection(KEY, url)).complete(asking())
    assert not caught.value.transient


NO_TRUST = """
import asyncio
from podwright.errors import ModelConnectionError
from podwright.messages import Message, ModelRequest
from podwright.models import Connection
from podwright.models.litellm import LiteLLMModel
model = LiteLLMModel("openai/gpt-4o-mini", Connection("sk-x", "https://127.0.0.1:1/v1"))
for _ in range(2):
    try:
        asyncio.run(model.complete(ModelRequest("m", (Message("user", "x"),))))
    except ModelConnectionError as error:
        assert "certificate or TLS" in error.message, error
        assert not error.transient
    else:
        raise SystemExit("no error")
"""


def test_a_trust_file_at_fault_is_a_typed_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LiteLLM reads whom to trust when it is imported; what is wrong there is said as for a connection."""
    (tmp_path / "broken.pem").write_text("nothing")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "broken.pem"))
    subprocess.run([sys.executable, "-c", NO_TRUST], check=True)


async def test_a_setting_that_the_provider_lacks_is_named(provider: Upstream) -> None:
    """A setting is never left out in silence: an unsupported one is an error before any request."""
    with pytest.raises(errors.ModelRequestError, match="'seed'"):
        await model_at(provider, ANTHROPIC).complete(asking(settings=ModelSettings(seed=1, temperature=0.1)))
    assert not provider.requests


async def test_an_unknown_provider_is_named() -> None:
    """A provider that LiteLLM does not know either is an unknown model."""
    with pytest.raises(errors.UnknownModelError, match="nobody/knows"):
        await LiteLLMModel("nobody/knows", Connection()).complete(asking())


async def test_no_key_stays_no_key(provider: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    """An endpoint without a key of its own is not sent the one of the environment."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    provider.answers([reply(completion())])
    await LiteLLMModel(OPENAI, Connection("", provider.url)).complete(asking())
    assert KEY not in str(provider.headers)


async def test_a_key_that_is_missing_is_named(provider: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a key nobody is asked, and nobody is said to have answered."""
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(errors.ModelAuthenticationError, match="There is no key for") as caught:
        await LiteLLMModel(ANTHROPIC, Connection(None, provider.url)).complete(asking())
    assert caught.value.suggestion == "Set ANTHROPIC_API_KEY, or api_key."
    assert not provider.requests


@pytest.mark.parametrize("name", [OPENAI, VLLM])
@pytest.mark.parametrize("other_transport", ["False", "True"])
async def test_neither_proxies_nor_cookies(
    provider: Upstream, name: str, other_transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proxies that the environment names see no call and no key, and a cookie is not sent back to the next caller."""
    monkeypatch.setenv("DISABLE_AIOHTTP_TRANSPORT", other_transport)
    provider.answers([reply(completion(), Set_Cookie="tenant=alice; Path=/")])
    async with upstream() as proxy:
        proxy.answers([reply(completion())])
        for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(variable, proxy.url)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        # LiteLLM looks for the proxy of a host once
        elsewhere = LiteLLMModel(name, Connection(KEY, provider.url.replace("127.0.0.1", "localhost")))
        for _ in range(2):
            await elsewhere.complete(asking())
        assert not proxy.requests
    assert len(provider.requests) == 2
    assert not any("cookie" in headers for headers in provider.headers)


def test_what_is_looked_up_beside_a_call_uses_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """LiteLLM's clients that do not wait on the loop, which fetch tokens for some providers, use none either."""
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    lane._litellm()
    handler: Any = importlib.import_module("litellm.llms.custom_httpx.http_handler").HTTPHandler()
    target = importlib.import_module("httpx").URL("https://acme.example/")
    assert handler.client._transport_for_url(target) is handler.client._transport
    assert not handler.client.follow_redirects


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(500):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came to that")


@pytest.mark.parametrize("name", [OPENAI, VLLM, ANTHROPIC])
@pytest.mark.parametrize("script", [["hang"], [STREAM, chunk(STARTED), "hang"]])
async def test_cancelling_closes_the_connection(provider: Upstream, name: str, script: Script) -> None:
    """A call that is cancelled closes its connection at once, streamed or not."""
    provider.answers(script)
    model = model_at(provider, name)
    model.timeouts = Timeouts()
    streams = script[0] == STREAM
    task = asyncio.create_task(model.complete(asking(), (lambda _: None) if streams else None))
    await until(lambda: bool(provider.requests))
    await asyncio.sleep(0.1)
    assert provider.open == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not provider.open)


async def test_many_calls_at_once_keep_apart(provider: Upstream) -> None:
    """Concurrent calls share the model and mix nothing."""
    provider.answers([0.01, reply(completion("same"))])
    model = model_at(provider)
    responses = await asyncio.gather(*(model.complete(asking(str(n))) for n in range(20)))
    assert {response.text for response in responses} == {"same"}
    assert {sent["messages"][1]["content"] for sent in provider.requests} == {str(n) for n in range(20)}


RUN = """
import asyncio, sys, threading, warnings
before = list(warnings.filters)
threads = []
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "openai": threads.append(threading.current_thread())
        return None
sys.meta_path.insert(0, Watch())
from podwright.models import Connection
from podwright.models.litellm import LiteLLMModel
from podwright.messages import Message, ModelRequest
from podwright.errors import ModelError
model = LiteLLMModel("openai/gpt-4o-mini", Connection("sk-x", "http://127.0.0.1:1/v1"))
assert "litellm" not in sys.modules
beats = 0
async def beat():
    global beats
    while True:
        await asyncio.sleep(0.01)
        beats += 1
async def main():
    heart = asyncio.create_task(beat())
    try:
        await model.complete(ModelRequest("m", (Message("user", "x"),)))
    except ModelError as error:
        print(type(error).__name__)
    heart.cancel()
asyncio.run(main())
assert "litellm" in sys.modules
assert threads and threading.main_thread() not in threads, threads
assert beats > 5, beats
left = [(one[0], one[1].pattern, one[2]) for one in warnings.filters if one not in before]
assert left == [("ignore", "Pydantic serializer warnings", UserWarning)], left
"""


def test_the_import_leaves_the_event_loop_alone() -> None:
    """LiteLLM is imported in a thread at the first call, prints nothing, and leaves one narrow filter behind."""
    done = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ModelConnectionError\n", "")


BLOCKED = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "litellm":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Block())
import podwright
from podwright.models import Connection, resolve
try:
    podwright.Agent("a", "b", "bedrock/amazon.nova-pro-v1:0").run("x")
except podwright.errors.UnknownModelError as error:
    assert "pip install 'podwright[litellm]'" in error.suggestion, error
    assert "bedrock/amazon.nova-pro-v1:0" in error.message
else:
    raise SystemExit("no error")
"""


def test_an_installation_without_it_names_the_extra() -> None:
    """Where LiteLLM is missing, a model that needs it is an error that says what to install."""
    subprocess.run([sys.executable, "-c", BLOCKED], check=True)


DIRECT = """
import sys, podwright
assert not {"litellm", "openai", "httpx", "httpx2", "aiohttp", "genai_prices"} & set(sys.modules)
try:
    podwright.Agent("a", "b", "openai/gpt-4o-mini").run("x")
except podwright.errors.ModelError as error:
    assert "litellm" not in sys.modules
"""


def test_the_direct_lane_does_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the package nor a call in the direct lane imports LiteLLM."""
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    subprocess.run([sys.executable, "-c", DIRECT], check=True)


SAID = """
import asyncio, json, sys
from podwright.messages import Message, ModelRequest
from podwright.models import Connection
from podwright.models.litellm import LiteLLMModel
from tests.library.upstream import call, chunk, completion, delta, reply, sse, STREAM, upstream
async def main():
    calls = [call(id="a", index=0, type="function", name="look", arguments={"place": "SECRET"})]
    async with upstream() as provider:
        for name in ("openai/gpt-4o-mini", "hosted_vllm/qwen"):
            model = LiteLLMModel(name, Connection("sk-x", provider.url))
            request = ModelRequest("m", (Message("user", "x"),))
            provider.answers([reply(completion(None, tool_calls=calls))])
            assert "SECRET" in (await model.complete(request)).tool_calls[0].arguments
            provider.answers([STREAM, chunk(sse(delta(tool_calls=calls), delta("tool_calls"))), chunk(b"")])
            assert "SECRET" in (await model.complete(request, print)).tool_calls[0].arguments
            provider.answers([reply(completion([{"type": "text", "text": "SECRET"}]))])
            try:
                await model.complete(request)
            except Exception:
                pass
asyncio.run(main())
"""


def test_no_warning_quotes_an_answer() -> None:
    """Tool arguments that are an object, or a content in parts, warn nobody: a service writes warnings to its log."""
    done = subprocess.run([sys.executable, "-c", SAID], capture_output=True, text=True, check=True)
    assert "SECRET" not in done.stderr


def test_its_logging_is_quiet() -> None:
    """LiteLLM's loggers are silent: what they log are requests and answers."""
    lane._litellm()
    assert not logging.getLogger("LiteLLM").isEnabledFor(logging.CRITICAL)
