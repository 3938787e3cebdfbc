"""The LiteLLM client, through LiteLLM's own code, against real sockets."""

import asyncio
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
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
    server_context,
    sse,
    streamed,
    upstream,
)

from podwright import Agent, errors
from podwright.messages import Message, ModelRequest, ModelResponse, ModelSettings, OutputSchema, ToolCall
from podwright.models import Connection, litellm_loader
from podwright.models.litellm import LiteLLMModel
from podwright.models.pricing import lookup
from podwright.models.retries import Retries, Timeouts

pytestmark = pytest.mark.filterwarnings("ignore")  # LiteLLM and what it imports warn about their own code

KEY = "sk-0123456789-top-secret"
VENDOR = "VENDOR-WORDS"
OPENAI, VLLM, ANTHROPIC = "openai/gpt-4o-mini", "hosted_vllm/qwen", "anthropic/claude-haiku-4-5"
WEATHER: Any = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}


def model_at(provider: Upstream, name: str = OPENAI, timeouts: Timeouts | None = None) -> LiteLLMModel:
    url = provider.url.removesuffix("/v1") if name == ANTHROPIC else provider.url
    model = LiteLLMModel(name, Connection(KEY, url))
    model.timeouts, model.retries = timeouts or Timeouts(), Retries(first_wait=0.001)
    return model


@pytest.fixture(scope="module", autouse=True)
def warmed_up() -> None:
    """LiteLLM's first calls of a process take longer than the time-outs of the tests."""

    async def warm_up() -> None:
        async with upstream() as provider:
            for name in (OPENAI, VLLM):
                provider.answers([reply(completion())], streamed(STORY))
                await model_at(provider, name).complete(asking(tools=(WEATHER,)))
                await stream(model_at(provider, name))

    asyncio.run(warm_up())


def asking(text: str = "Hello?", **options: Any) -> ModelRequest:
    return ModelRequest("any", (Message("system", "Be short."), Message("user", text)), **options)


async def stream(model: LiteLLMModel, request: ModelRequest | None = None) -> tuple[ModelResponse, list[str]]:
    tokens: list[str] = []
    return await model.complete(request or asking(), tokens.append), tokens


def test_missing_keys_are_found_before_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key is required where LiteLLM knows its variable, unless the component has a key or a base URL."""
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(errors.ModelAuthenticationError) as missing:
        LiteLLMModel(ANTHROPIC, Connection()).check()
    assert "ANTHROPIC_API_KEY" in missing.value.suggestion
    for name in ("bedrock/anthropic.claude", "vertex_ai/gemini-pro", "azure/gpt", "ollama/llama3", VLLM):
        LiteLLMModel(name, Connection()).check()
    for usable in (Connection("key"), Connection("", "http://localhost")):
        LiteLLMModel(ANTHROPIC, usable).check()
    with pytest.raises(errors.UnknownModelError):
        LiteLLMModel("nobody/m", Connection()).check()


@pytest.mark.parametrize("name", [OPENAI, VLLM])
async def test_a_request_and_its_response(provider: Upstream, name: str) -> None:
    """A response has text, all token counts, model and id; the request has the settings and the key."""
    details = {"prompt_tokens_details": {"cached_tokens": 32}, "completion_tokens_details": {"reasoning_tokens": 5}}
    usage = {"prompt_tokens": 50, "completion_tokens": 9, "total_tokens": 59, **details}
    provider.answers([reply(completion("Hi.", usage))])
    settings: ModelSettings = {"temperature": 0.5, "max_tokens": 20, "stop": ["x"]}
    response = await model_at(provider, name).complete(asking(settings=settings))
    assert (response.text, response.finish_reason, response.model, response.id) == ("Hi.", "stop", "m-1", "c1")
    counts = response.usage
    assert (counts.input_tokens, counts.output_tokens) == (50, 9)
    assert (counts.cached_input_tokens, counts.reasoning_tokens) == (32, 5)
    sent = provider.requests[0]
    assert sent["messages"] == [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hello?"}]
    assert settings.items() <= sent.items()
    assert "timeout" not in sent
    assert provider.headers[0]["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("name", [OPENAI, VLLM])
async def test_a_stream(provider: Upstream, name: str) -> None:
    """Each piece reaches the callback in order; the response has the usage that the provider sent last."""
    provider.answers(streamed(*(STORY[start : start + 97] for start in range(0, len(STORY), 97))))
    response, tokens = await stream(model_at(provider, name))
    assert tokens == STORY_TOKENS
    assert response.text == "".join(STORY_TOKENS)
    assert (response.usage.input_tokens, response.usage.output_tokens) == (20, 4)
    assert provider.requests[0]["stream_options"] == {"include_usage": True}


async def test_a_response_without_usage_has_no_price(provider: Upstream) -> None:
    """Without the provider's counts tokens are estimated, and the price is unknown."""
    provider.answers([reply(completion("Hi.", None))])
    usage = (await model_at(provider).complete(asking())).usage
    assert (usage.cost, usage.unpriced_model_calls) == (None, 1)
    assert usage.input_tokens > 0


@pytest.mark.parametrize("name", [OPENAI, VLLM])
@pytest.mark.parametrize("streaming", [False, True])
async def test_tool_calls(provider: Upstream, name: str, streaming: bool) -> None:
    """Tool calls arrive whole and in pieces, several in one turn; their results go back with their ids."""
    if streaming:
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
    response = (await stream(model, request))[0] if streaming else await model.complete(request)
    assert response.finish_reason == "tool_calls"
    cities = [(made.id, json.loads(made.arguments)["city"]) for made in response.tool_calls]
    assert cities == [("a", "Köln"), ("b", "Rom")]
    sent = provider.requests[0]
    assert sent["tools"] == [WEATHER]
    assert sent["tool_choice"] == {"type": "function", "function": {"name": "weather"}}
    assert sent["messages"][-1] == {"role": "tool", "content": "rain", "tool_call_id": "z"}


class City(BaseModel):
    name: str
    people: int


async def test_structured_output_by_schema(provider: Upstream) -> None:
    """If LiteLLM knows a JSON Schema mode of the model, the schema is sent."""
    provider.answers([reply(completion('{"name": "Rom", "people": 3}'))])
    response = await model_at(provider).complete(asking(output=OutputSchema("City", City.model_json_schema())))
    assert City.model_validate_json(response.text) == City(name="Rom", people=3)
    sent = provider.requests[0]["response_format"]
    assert (sent["type"], sent["json_schema"]["name"]) == ("json_schema", "City")


async def test_structured_output_by_tool(provider: Upstream) -> None:
    """Otherwise an agent gets its answer through a tool, beside its other tools."""
    answer = call(id="b", type="function", name="final_answer", arguments='{"name":"Rom","people":3}')
    calls = [[call(id="a", type="function", name="count", arguments="{}")], [answer]]
    provider.answers(*[[reply(completion(None, tool_calls=tool_calls))] for tool_calls in calls])

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


async def test_a_provider_with_its_own_protocol(provider: Upstream, recorder: Any) -> None:
    """A provider that does not offer Chat Completions is called too, at the same price as in a look-up."""
    provider.answers([reply(MESSAGE)])
    agent = Agent("poet", "Be short.", model_at(provider, ANTHROPIC), max_tokens=20, event_manager=recorder.manager)
    assert await agent.arun("Hello?") == "Ciao."
    usage = recorder.of("model_call_finished")[0].response.usage
    assert (usage.input_tokens, usage.cached_input_tokens, usage.output_tokens) == (40, 30, 6)
    cost = lookup(ANTHROPIC, usage)
    assert cost
    assert usage.cost == cost.amount
    assert provider.headers[0][":line"].startswith("POST /v1/messages")
    assert provider.headers[0]["x-api-key"] == KEY
    assert provider.requests[0]["max_tokens"] == 20


CACHED = {"input_tokens": 500, "cache_read_input_tokens": 200, "cache_creation_input_tokens": 300, "output_tokens": 10}
ONE_HOUR = {**CACHED, "cache_creation": {"ephemeral_5m_input_tokens": 300, "ephemeral_1h_input_tokens": 0}}


@pytest.mark.parametrize("usage", [CACHED, ONE_HOUR])
@pytest.mark.parametrize("streaming", [False, True])
async def test_writing_to_the_cache_is_counted_and_priced(provider: Upstream, streaming: bool, usage: Any) -> None:
    """Input that Anthropic writes to its cache is part of the input, and costs a quarter more."""
    start = {"type": "message_start", "message": {**MESSAGE, "content": [], "stop_reason": None, "usage": usage}}
    stream_of_answer = [
        start,
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Ciao."}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 10}},
        {"type": "message_stop"},
    ]
    text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in stream_of_answer)
    provider.answers(streamed(text.encode()) if streaming else [reply({**MESSAGE, "usage": usage})])
    agent = Agent("poet", "Be short.", model_at(provider, ANTHROPIC))
    counted = (await agent.arun("Hello?", stream=streaming, trace=True)).usage
    assert (counted.input_tokens, counted.output_tokens) == (1000, 10)
    assert (counted.cached_input_tokens, counted.cache_write_tokens) == (200, 300)
    assert counted.cost == pytest.approx((500 * 1 + 200 * 0.1 + 300 * 1.25 + 10 * 5) / 10**6)


PIXEL = "data:image/png;base64,iVBORw0KGgo="


@pytest.mark.parametrize("name", [OPENAI, ANTHROPIC])
async def test_images_are_passed_on(provider: Upstream, name: str) -> None:
    """An image reaches the provider as the URL, or the data, that it is; nobody here fetches it."""
    url = f"https://127.0.0.1:{provider.port}/a.png"
    parts: Any = [{"type": "image_url", "image_url": {"url": address}} for address in (url, PIXEL)]
    provider.answers([reply(MESSAGE if name == ANTHROPIC else completion("Ciao."))])
    agent = Agent("guide", "Be short.", model_at(provider, name), max_tokens=9)
    assert await agent.arun([{"type": "text", "text": "What is this?"}, *parts]) == "Ciao."
    sent = provider.requests[0]["messages"][-1]["content"][1:]
    if name == OPENAI:
        assert sent == parts
    else:
        assert [part["source"] for part in sent] == [
            {"type": "url", "url": url},
            {"type": "base64", "media_type": "image/png", "data": PIXEL.partition(",")[2]},
        ]
    assert [headers[":line"].split()[0] for headers in provider.headers] == ["POST"]


async def test_images_are_not_fetched_for_providers_that_take_no_urls(provider: Upstream) -> None:
    """An image that LiteLLM would have to fetch is an error, which is not repeated, and nothing is sent."""
    part: Any = {"type": "image_url", "image_url": {"url": f"https://127.0.0.1:{provider.port}/a"}}
    provider.answers([reply(completion("never"))])
    with pytest.raises(errors.ModelRequestError, match="data URL"):
        await Agent("guide", "", model_at(provider, "gemini/gemini-2.5-flash")).arun([part])
    assert provider.connections == 0


async def test_a_stream_of_its_own_protocol(provider: Upstream) -> None:
    """Its stream is handed out as any other, with tool calls and usage."""
    block = {"type": "content_block_delta", "index": 1}
    tool = {"type": "tool_use", "id": "t1", "name": "weather", "input": {}}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**MESSAGE, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Let me "}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "see."}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": tool},
        {**block, "delta": {"type": "input_json_delta", "partial_json": '{"city":'}},
        {**block, "delta": {"type": "input_json_delta", "partial_json": ' "Rom"}'}},
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 12}},
        {"type": "message_stop"},
    ]
    text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    provider.answers(streamed(text.encode()))
    response, tokens = await stream(model_at(provider, ANTHROPIC), asking(tools=(WEATHER,)))
    assert tokens == ["Let me ", "see."]
    assert response.tool_calls == (ToolCall("t1", "weather", '{"city": "Rom"}'),)
    assert response.finish_reason == "tool_calls"
    assert (response.usage.input_tokens, response.usage.output_tokens) == (40, 12)


def refused(status: int, message: str = VENDOR, **more: Any) -> Script:
    error = {"message": f"{message} {VENDOR} {KEY}", "type": "some_error", **more}
    return [reply({"error": error, "type": "error"}, status)]


HALF = sse(delta(content="Hi"), done=False)
TOO_LONG = "This model's maximum context length is 10 tokens; prompt is too long: 20 tokens > 10 maximum"
FAULTS: dict[str, tuple[Script, type[errors.ModelError], int]] = {
    "400": (refused(400), errors.ModelRequestError, 1),
    "401": (refused(401), errors.ModelAuthenticationError, 1),
    "402": (refused(402), errors.ModelRateLimitError, 1),
    "403": (refused(403), errors.ModelAuthenticationError, 1),
    "404": (refused(404), errors.ModelRequestError, 1),
    "422": (refused(422), errors.ModelRequestError, 1),
    "429": (refused(429), errors.ModelRateLimitError, 3),
    "429 for an hour": ([reply({"error": {}}, 429, Retry_After="3600")], errors.ModelRateLimitError, 1),
    "500": (refused(500), errors.ModelUnavailableError, 3),
    "529": (refused(529), errors.ModelUnavailableError, 3),
    "too long": (refused(400, TOO_LONG, code="context_length_exceeded"), errors.ContextWindowError, 1),
    "no choices": ([reply({"id": VENDOR, "choices": []})], errors.ModelResponseError, 3),
    "no answer": ([reply(completion(None))], errors.ModelResponseError, 3),
    "no message": ([reply({"choices": [{"message": None}]})], errors.ModelResponseError, 3),
    "no name": ([reply(completion(None, tool_calls=[call(id="a", type="function", name="", arguments="{}")]))],
                errors.ModelResponseError, 3),
    "429 in a 200": ([reply({"error": {"message": VENDOR, "code": 429}})], errors.ModelRateLimitError, 3),
    "silent": (["hang"], errors.ModelTimeoutError, 3),
}  # fmt: skip
STREAM_FAULTS: dict[str, tuple[Script, type[errors.ModelError], int]] = {
    "500": (refused(500), errors.ModelUnavailableError, 3),
    "silent": (["hang"], errors.ModelTimeoutError, 3),
    "no answer": (streamed(sse(delta("stop"))), errors.ModelResponseError, 3),
    "ended early": ([STREAM, chunk(HALF), chunk(b"")], errors.ModelResponseError, 1),
    "idle": ([STREAM, chunk(HALF), "hang"], errors.ModelTimeoutError, 1),
}


@pytest.mark.parametrize("name", [OPENAI, VLLM])
@pytest.mark.parametrize(
    ("fault", "streaming"), [*((name, False) for name in FAULTS), *((name, True) for name in STREAM_FAULTS)]
)
async def test_faults_are_typed_errors(
    provider: Upstream, name: str, fault: str, streaming: bool, recorder: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A fault is one of our errors, repeated as with the other client, with the provider's words but not the key."""
    caplog.set_level("DEBUG")
    script, kind, tries = (STREAM_FAULTS if streaming else FAULTS)[fault]
    provider.answers(script)
    timeouts = Timeouts(first_byte=0.5 if script == ["hang"] else 60.0, idle=0.5 if "hang" in script else 60.0)
    agent = Agent("a", "Help.", model_at(provider, name, timeouts), event_manager=recorder.manager)
    with pytest.raises(errors.ModelError) as caught:
        await agent.arun("Hello?", stream=streaming)
    assert type(caught.value) is kind
    assert 1 + len(recorder.of("model_call_retried")) == tries
    assert len(provider.requests) == tries or script == ["hang"]  # one may time out before it is sent
    shown = caught.value.message + json.dumps([event.to_dict() for event in recorder.events]) + caplog.text
    shown += str(caught.value.__cause__) + str(caught.value.__context__)
    assert VENDOR not in shown
    assert KEY not in shown + str(caught.value)
    assert (VENDOR in str(caught.value)) == (fault.isdecimal() or fault == "too long")


@pytest.mark.parametrize(
    ("script", "streaming"),
    [
        ([reply(b"<html>")], False),
        ([reply(["x"])], False),
        ([reply(completion())[:-30], "close"], False),
        ([STREAM, chunk(HALF), "close"], True),
        (["close"], False),
        (["reset"], True),
    ],
)
async def test_no_broken_answer_is_a_success(provider: Upstream, script: Script, streaming: bool) -> None:
    """What LiteLLM reports of a truncated or malformed response is a typed error that is repeated."""
    provider.answers(script)
    model = model_at(provider)
    with pytest.raises(errors.ModelError) as caught:
        await (stream(model) if streaming else model.complete(asking()))
    assert caught.value.transient


@pytest.mark.parametrize("name", [OPENAI, VLLM])
async def test_odd_tool_calls(provider: Upstream, name: str) -> None:
    """Two calls with one id are two calls with different ids; a legacy function call is a tool call."""
    twice = [call(index=index, id="a", type="function", name="f", arguments="{}") for index in range(2)]
    legacy = {"name": "f", "arguments": "{}"}
    parts: list[tuple[dict[str, Any], int]] = [({"tool_calls": twice}, 2), ({"function_call": legacy}, 1)]
    for part, count in parts:
        provider.answers([reply(completion(None, **part))], streamed(sse(delta(**part), delta("tool_calls"))))
        model = model_at(provider, name)
        for response in (await model.complete(asking()), (await stream(model))[0]):
            assert [(made.name, made.arguments) for made in response.tool_calls] == [("f", "{}")] * count
            assert len({made.id for made in response.tool_calls}) == count


async def test_an_invalid_certificate_is_named(tmp_path: Path) -> None:
    """A certificate that is not trusted is an error that names the setting, and is not repeated."""
    async with upstream(server_context(tmp_path)) as provider:
        with pytest.raises(errors.ModelConnectionError, match="self-signed") as caught:
            await model_at(provider).complete(asking())
    assert "SSL_CERT_FILE" in caught.value.suggestion
    assert not caught.value.transient


async def test_an_unsupported_setting_is_named(provider: Upstream) -> None:
    """A setting is never dropped: one that the provider does not support is an error before any request."""
    with pytest.raises(errors.ModelRequestError, match="'seed'"):
        await model_at(provider, ANTHROPIC).complete(asking(settings=ModelSettings(seed=1, temperature=0.1)))
    assert not provider.requests


async def test_an_unknown_provider_is_named() -> None:
    """A provider that LiteLLM does not know is an unknown model."""
    with pytest.raises(errors.UnknownModelError, match="nobody/knows"):
        await LiteLLMModel("nobody/knows", Connection()).complete(asking())


async def test_a_missing_key(provider: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a key there is no request; an empty key of the connection is not replaced by the environment's."""
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(errors.ModelAuthenticationError):
        await LiteLLMModel(ANTHROPIC, Connection(None, provider.url)).complete(asking())
    assert not provider.requests
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    provider.answers([reply(completion())])
    await LiteLLMModel(OPENAI, Connection("", provider.url)).complete(asking())
    assert KEY not in str(provider.headers)


@pytest.mark.parametrize("name", [OPENAI, VLLM])
@pytest.mark.parametrize("begun", [[], [STREAM, chunk(HALF)]])
async def test_cancelling_closes_the_connection(provider: Upstream, name: str, begun: list[bytes]) -> None:
    """A call that is cancelled closes its connection, streamed or not."""
    provider.answers([*begun, "hang"])
    token = asyncio.Event()
    on_token = (lambda _: token.set()) if begun else None
    task = asyncio.create_task(model_at(provider, name).complete(asking(), on_token))
    async with asyncio.timeout(60):
        await (token if begun else provider.asked).wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await provider.quiet()


LOOP = """
import asyncio, sys, threading
from podwright.errors import ModelError
from podwright.messages import Message, ModelRequest
from podwright.models import Connection
from podwright.models.litellm import LiteLLMModel
threads = []
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "litellm":
            threads.append(threading.current_thread())
sys.meta_path.insert(0, Watch())
model = LiteLLMModel("openai/gpt-4o-mini", Connection("sk-x", "http://127.0.0.1:1/v1"))
assert "litellm" not in sys.modules
async def main():
    try:
        await model.complete(ModelRequest("m", (Message("user", "x"),)))
    except ModelError as error:
        print(error.code)
asyncio.run(main())
assert threads[-1] is not threading.main_thread()
"""


def test_litellm_is_imported_in_a_thread() -> None:
    """LiteLLM is imported at the first call, away from the event loop, and prints nothing."""
    process = subprocess.run([sys.executable, "-c", LOOP], capture_output=True, text=True)
    assert (process.returncode, process.stderr) == (0, "")
    assert process.stdout in ("model_unreachable\n", "model_unavailable\n")


def test_without_litellm_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without LiteLLM, a model that needs it is an error that says what to install."""
    monkeypatch.setattr(litellm_loader, "installed", lambda: False)
    with pytest.raises(errors.UnknownModelError, match="bedrock/") as caught:
        Agent("a", "b", "bedrock/amazon.nova-pro-v1:0").run("x")
    assert "podwright[litellm]" in caught.value.suggestion
