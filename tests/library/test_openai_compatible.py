"""The OpenAI-compatible client on real sockets: requests as providers expect them, and the responses they send."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.library.upstream import (
    STORY,
    STORY_TOKENS,
    STREAM,
    USAGE,
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
from podwright.messages import Message, ModelRequest, OutputSchema, ToolCall, ToolSchema
from podwright.models import Connection, Model, resolve
from podwright.models.offline import estimate_input, estimate_tokens
from podwright.models.openai_compatible import ChatModel
from podwright.models.providers import ANY, ENDPOINTS
from podwright.usage import Usage

ASK = ModelRequest("openai/m", (Message("system", "Help."), Message("user", "Hello?")))
TOOL: ToolSchema = {
    "type": "function",
    "function": {"name": "look_up", "parameters": {"type": "object", "properties": {"word": {"type": "string"}}}},
}


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No provider's variable of this machine counts."""
    for variable in list(os.environ):
        if variable.startswith("PODWRIGHT_MODEL") or variable.endswith(("_API_KEY", "_API_BASE", "_BASE_URL")):
            monkeypatch.delenv(variable)


def model_at(provider: Upstream, name: str = "openai/m") -> ChatModel:
    return ChatModel(name, Connection("key", provider.url), ENDPOINTS.get(name.partition("/")[0], ANY))


async def stream(model: Model, request: ModelRequest = ASK) -> tuple[list[str], Any]:
    tokens: list[str] = []
    return tokens, await model.complete(request, tokens.append)


async def test_a_request_and_its_response(provider: Upstream) -> None:
    """The request has what was asked and nothing else; the response has text, usage, model and id."""
    provider.answers([reply(completion("Hello."))])
    response = await model_at(provider, "openai/gpt-4o").complete(ASK)
    assert (response.text, response.finish_reason, response.model, response.id) == ("Hello.", "stop", "m-1", "c1")
    assert (response.usage.input_tokens, response.usage.output_tokens) == (20, 4)
    messages = [{"role": "system", "content": "Help."}, {"role": "user", "content": "Hello?"}]
    assert provider.requests == [{"model": "gpt-4o", "messages": messages}]
    assert provider.headers[0][":line"] == "POST /v1/chat/completions HTTP/1.1"
    assert provider.headers[0]["authorization"] == "Bearer key"


async def test_a_request_with_everything(provider: Upstream) -> None:
    """Settings, tools, a forced tool, the schema and a past tool call have the protocol's form."""
    provider.answers([reply(completion())])
    messages = (
        Message("user", "The sea?"),
        Message("assistant", "", (ToolCall("c9", "look_up", ""),)),
        Message("tool", "Salty.", tool_call_id="c9"),
    )
    settings: Any = {
        "temperature": 0.5, "top_p": 0.9, "max_tokens": 50, "seed": 7, "stop": ["END"], "presence_penalty": 0.1,
        "frequency_penalty": 0.2, "parallel_tool_calls": False, "reasoning_effort": "low",
    }  # fmt: skip
    schema = OutputSchema("answer", {"type": "object"})
    with_timeout: Any = {**settings, "timeout": 9.0}
    await model_at(provider).complete(ModelRequest("openai/m", messages, (TOOL,), with_timeout, schema, "look_up"))
    (sent,) = provider.requests
    assert settings.items() <= sent.items()
    assert "timeout" not in sent
    assert sent["tools"] == [TOOL]
    assert sent["tool_choice"] == {"type": "function", "function": {"name": "look_up"}}
    json_schema = {"name": "answer", "schema": {"type": "object"}}
    assert sent["response_format"] == {"type": "json_schema", "json_schema": json_schema}
    function = {"name": "look_up", "arguments": "{}"}
    tool_calls = [{"id": "c9", "type": "function", "function": function}]
    assert sent["messages"][1:] == [
        {"role": "assistant", "content": None, "tool_calls": tool_calls},
        {"role": "tool", "content": "Salty.", "tool_call_id": "c9"},
    ]


@pytest.mark.parametrize(
    ("name", "settings", "sent"),
    [
        ("openai/gpt-4o", {"max_tokens": 9}, {"max_tokens": 9}),
        ("openai/o3-mini", {"max_tokens": 9}, {"max_completion_tokens": 9}),
        ("openai/gpt-5-nano", {"max_tokens": 9}, {"max_completion_tokens": 9}),
        ("mistral/m", {"seed": 1}, {"random_seed": 1}),
        ("openai/m", {"parallel_tool_calls": True}, {}),
    ],
)
async def test_settings_have_the_names_of_the_provider(
    name: str, settings: Any, sent: dict[str, Any], provider: Upstream
) -> None:
    """A setting has the name that the model knows, and is left out where it has no meaning."""
    provider.answers([reply(completion())])
    await model_at(provider, name).complete(ModelRequest(name, ASK.messages, settings=settings))
    assert {key: value for key, value in provider.requests[0].items() if key not in ("model", "messages")} == sent


async def test_any_text_can_be_sent(provider: Upstream) -> None:
    """A lone surrogate and a megabyte of text are sent as JSON."""
    provider.answers([reply(completion())])
    await model_at(provider).complete(ModelRequest("openai/m", (Message("user", "\ud83d" + "x" * 2**20),)))
    assert provider.requests[0]["messages"][0]["content"] == "\ud83d" + "x" * 2**20


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50, 10_000])
async def test_a_stream_in_pieces(size: int, provider: Upstream) -> None:
    """Wherever the network cuts a stream, even within a character, tokens, text and usage are the same."""
    provider.answers(streamed(*(STORY[start : start + size] for start in range(0, len(STORY), size))))
    tokens, response = await stream(model_at(provider))
    assert (tokens, response.text) == (STORY_TOKENS, "".join(STORY_TOKENS))
    assert (response.usage.input_tokens, response.usage.output_tokens) == (20, 4)
    assert provider.requests[0]["stream_options"] == {"include_usage": True}


async def test_tokens_reach_the_caller_as_they_arrive(provider: Upstream) -> None:
    """The second token is sent only after the first one was handed out."""
    first = asyncio.Event()
    pieces = [sse(delta(content="one"), done=False), sse(delta(content=" two"), delta("stop"))]
    provider.answers([STREAM, chunk(pieces[0]), first, chunk(pieces[1]), chunk(b"")])
    agent = Agent("a", "", model_at(provider), on_token=lambda _: first.set())
    async with asyncio.timeout(30):
        assert await agent.arun("Hello?", stream=True) == "one two"


def pieces(*groups: Any) -> list[Any]:
    return [delta(tool_calls=list(group) if isinstance(group, tuple) else [group]) for group in groups]


IN_PIECES = {
    "as documented": pieces(
        call(index=0, id="call_a", type="function", name="look_up", arguments=""),
        call(index=0, arguments='{"word"'), call(index=0, arguments=': "sea"}'),
        call(index=1, id="call_b", type="function", name="look_up", arguments=""),
        call(index=1, arguments='{"word": "sky"}'),
    ),
    "interleaved": pieces(
        call(index=0, id="call_a", name="look_up"), call(index=1, id="call_b", name="look_up"),
        (call(index=1, arguments='{"word": '), call(index=0, arguments='{"word": ')),
        (call(index=0, arguments='"sea"}'), call(index=1, arguments='"sky"}')),
    ),
    "no index": pieces(
        call(id="call_a", name="look_up", arguments='{"word": '), call(arguments='"sea"}'),
        call(id="call_b", name="look_up", arguments='{"word": '), call(arguments='"sky"}'),
    ),
    "one index for all": pieces(
        call(index=0, id="call_a", name="look_up", arguments='{"word": "sea"}'),
        call(index=0, id="call_b", name="look_up", arguments='{"word": "sky"}'),
    ),
    "id and name in each piece": pieces(
        call(index=0, id="call_a", name="look_up", arguments='{"word": '),
        call(index=1, id="call_b", name="look_up", arguments='{"word": "sky"}'),
        call(index=0, id="call_a", name="look_up", arguments='"sea"}'),
    ),
    "name in pieces": pieces(
        call(index=0, id="call_a", name="look"), call(index=0, name="_up"), call(index=0, arguments='{"word": "sea"}'),
        call(index=1, id="call_b", name="look_up", arguments='{"word": "sky"}'),
    ),
    "nulls": pieces(
        call(index=0, id="call_a", name="look_up", arguments=None), call(index=0, id=None, name=None, arguments="{"),
        call(index=0, arguments='"word": "sea"}'),
        (call(index=1, id="call_b", name="look_up", arguments='{"word": "sky"}'),),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", IN_PIECES)
async def test_tool_calls_in_pieces(name: str, provider: Upstream) -> None:
    """Two parallel calls are put together from whatever pieces a provider sends."""
    provider.answers(streamed(sse(delta(role="assistant", content=None), *IN_PIECES[name], delta("tool_calls"))))
    tokens, response = await stream(model_at(provider))
    assert response.tool_calls == (
        ToolCall("call_a", "look_up", '{"word": "sea"}'),
        ToolCall("call_b", "look_up", '{"word": "sky"}'),
    )
    assert (tokens, response.text, response.finish_reason) == ([], "", "tool_calls")


@pytest.mark.parametrize("arguments", ['{"word": "sea"}', {"word": "sea"}])
@pytest.mark.parametrize("streaming", [False, True])
async def test_tool_calls_without_ids(streaming: bool, arguments: Any, provider: Upstream) -> None:
    """A call without an id gets one, and arguments that are an object become JSON text."""
    calls = [call(name="look_up", arguments=arguments), call(name="look_up", arguments=arguments)]
    chunks = sse(delta(tool_calls=calls), delta("stop"))
    provider.answers(streamed(chunks) if streaming else [reply(completion(tool_calls=calls))])
    model = model_at(provider)
    response = (await stream(model))[1] if streaming else await model.complete(ASK)
    assert [(made.name, made.arguments) for made in response.tool_calls] == [("look_up", '{"word": "sea"}')] * 2
    assert len({made.id for made in response.tool_calls} - {""}) == 2
    assert response.finish_reason == "tool_calls"


SEA, SKY = '{"word": "sea"}', '{"word": "sky"}'
ONE_ID = {
    "indices": pieces(call(index=0, id="a", name="f", arguments=SEA), call(index=1, id="a", name="f", arguments=SKY)),
    "one index": pieces(call(index=0, id="a", name="f", arguments=SEA), call(index=0, id="a", name="f", arguments=SKY)),
    "no index": pieces((call(id="a", name="f", arguments=SEA), call(id="a", name="f", arguments=SKY))),
    "in pieces": pieces(
        (call(index=0, id="a", name="f", arguments=SEA[:5]), call(index=1, id="a", name="f", arguments=SKY[:5])),
        (call(index=0, id="a", arguments=SEA[5:]), call(index=1, id="a", arguments=SKY[5:])),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ONE_ID)
async def test_two_calls_with_one_id_are_two_calls(name: str, provider: Upstream) -> None:
    """Each call has its own arguments, and an id of its own, which its result refers to."""
    whole = [call(id="a", name="f", arguments=text) for text in (SEA, SKY)]
    provider.answers(streamed(sse(*ONE_ID[name], END)), [reply(completion(None, tool_calls=whole))])
    model = model_at(provider)
    for response in ((await stream(model))[1], await model.complete(ASK)):
        assert [made.arguments for made in response.tool_calls] == [SEA, SKY]
        assert len({made.id for made in response.tool_calls}) == 2


async def test_a_legacy_function_call_is_a_tool_call(provider: Upstream) -> None:
    """`function_call`, whole or in pieces, is a tool call with an id."""
    parts = [{"name": "f", "arguments": ""}, {"arguments": SEA[:5]}, {"arguments": SEA[5:]}]
    chunks = sse(*(delta(function_call=part) for part in parts), delta("function_call"))
    provider.answers([reply(completion(None, function_call={"name": "f", "arguments": SEA}))], streamed(chunks))
    model = model_at(provider)
    for response in (await model.complete(ASK), (await stream(model))[1]):
        (made,) = response.tool_calls
        assert (made.name, made.arguments, response.finish_reason) == ("f", SEA, "tool_calls")
        assert made.id


BODIES = {
    "extra fields": ({**completion("Hi."), "object": 1, "x": {"y": []}, "service_tier": None, "error": None}, "Hi."),
    "content in parts": (completion([{"type": "thinking", "thinking": []}, {"type": "text", "text": "Hi."}]), "Hi."),
    "a refusal": (completion(None, refusal="No."), "No."),
    "no reason": ({"choices": [{"message": {"content": "Hi."}}], "usage": USAGE}, "Hi."),
    "its own reason": ({"choices": [{"message": {"content": "Hi."}, "finish_reason": "eos"}], "usage": USAGE}, "Hi."),
    "null tool calls": (completion("Hi.", tool_calls=None, function_call=None, audio=None), "Hi."),
    "numbers for names": ({**completion("Hi."), "id": 7, "model": None}, "Hi."),
}


@pytest.mark.parametrize("name", BODIES)
async def test_responses_vary(name: str, provider: Upstream) -> None:
    """What a provider omits or adds does not break a response."""
    body, text = BODIES[name]
    provider.answers([reply(b"\n \n" + json.dumps(body).encode())])
    response = await model_at(provider).complete(ASK)
    assert (response.text, response.finish_reason, response.usage.total_tokens) == (text, "stop", 24)


END = delta("stop")
STREAMS = {
    "CRLF": sse(delta(content="Hi."), END, end="\r\n"),
    "no DONE": sse(delta(content="Hi."), END, done=False),
    "no last empty line": sse(delta(content="Hi."), END, done=False)[:-2],
    "DONE without an empty line": sse(delta(content="Hi."), END)[:-2],
    "comments": b": wait\n\n" + sse(delta(content="Hi."), done=False) + b":\n\n: OPENROUTER PROCESSING\n\n" + sse(END),
    "no reason but DONE": sse(delta(content="Hi.")),
    "a first chunk without choices": sse({"choices": [], "prompt_filter_results": []}, delta(content="Hi."), END),
    "null choices and delta": sse({"choices": None}, delta(content="Hi."), {"choices": [{"delta": None}]}, END),
    "a message at the end": sse(delta(content="Hi."), {"choices": [{"message": {}, "finish_reason": "stop"}]}),
    "reason with the text": sse(delta("stop", content="Hi.")),
    "empty and null texts": sse(delta(content=""), delta(content="Hi."), delta(content=None), END),
    "reasoning beside the text": sse(delta(reasoning_content="Hm."), delta(content="Hi."), END),
    "after DONE": sse(delta(content="Hi."), END) + sse(delta(content="more")),
}


@pytest.mark.parametrize("name", STREAMS)
async def test_streams_vary(name: str, provider: Upstream) -> None:
    """What a provider omits or adds does not break a stream."""
    provider.answers(streamed(STREAMS[name]))
    tokens, response = await stream(model_at(provider))
    assert (tokens, response.text, response.finish_reason) == (["Hi."], "Hi.", "stop")


async def test_a_server_that_does_not_stream(provider: Upstream) -> None:
    """A whole response to a request for a stream is accepted."""
    provider.answers([reply(completion("Hi."))])
    tokens, response = await stream(model_at(provider))
    assert (tokens, response.text, response.usage.total_tokens) == (["Hi."], "Hi.", 24)


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    "usage",
    [
        None,
        {"prompt_tokens": None},
        {"prompt_tokens": "many"},
        {"prompt_tokens": -50, "completion_tokens": 4},
        {"prompt_tokens": 20, "completion_tokens": 10**30},
        "none",
    ],
)
async def test_missing_usage_is_estimated_and_has_no_price(usage: Any, streaming: bool, provider: Upstream) -> None:
    """Without counts, tokens are estimated, and the cost is unknown even if the price is known."""
    text = "Hello, you!"
    script = streamed(sse(delta(content=text), delta("stop"), {"choices": [], "usage": usage}))
    provider.answers(script if streaming else [reply(completion(text, usage))])
    agent = Agent("a", "Help.", model_at(provider, "openai/gpt-4o"))
    result = await agent.arun("Hello?", stream=streaming, trace=True)
    sent = estimate_input(ModelRequest("openai/gpt-4o", ASK.messages))
    assert (result.usage.input_tokens, result.usage.output_tokens) == (sent, estimate_tokens(text))
    assert (result.usage.cost, result.usage.unpriced_model_calls) == (None, 1)


@pytest.mark.parametrize(
    ("name", "fields", "usage"),
    [
        ("openai/m", {"prompt_tokens_details": {"cached_tokens": 8}}, Usage(20, 4, 8, cost=None)),
        ("openai/m", {"completion_tokens_details": {"reasoning_tokens": 3}}, Usage(20, 4, 0, 3, cost=None)),
        ("openai/m", {"prompt_tokens_details": {"cached_tokens": -8}}, Usage(20, 4, cost=None)),
        ("openai/m", {"prompt_tokens_details": None, "completion_tokens_details": None}, Usage(20, 4, cost=None)),
        ("deepseek/m", {"prompt_cache_hit_tokens": 5, "prompt_cache_miss_tokens": 15}, Usage(20, 4, 5, cost=None)),
        (
            "openrouter/m",
            {"prompt_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 7}},
            Usage(20, 4, 8, cost=None, cache_write_tokens=7),
        ),
        (
            "litellm_proxy/m",
            {
                "prompt_tokens_details": {"cached_tokens": 0, "cache_creation_tokens": 7},
                "cache_creation_input_tokens": 7,
            },
            Usage(20, 4, cost=None, cache_write_tokens=7),
        ),
        ("anthropic/m", {"cache_creation_input_tokens": 7}, Usage(20, 4, cost=None, cache_write_tokens=7)),
        (
            "openrouter/m",
            {"prompt_tokens_details": {"cached_tokens": 15, "cache_write_tokens": 10**9}},
            Usage(20, 4, 15, cost=None, cache_write_tokens=5),
        ),
        ("openrouter/m", {"prompt_tokens_details": {"cache_write_tokens": -7}}, Usage(20, 4, cost=None)),
        (
            "xai/m",
            {"total_tokens": 33, "completion_tokens_details": {"reasoning_tokens": 9}},
            Usage(20, 13, 0, 9, cost=None),
        ),
        ("openrouter/m", {"cost": 0.25}, Usage(20, 4, cost=0.25)),
        ("perplexity/m", {"cost": {"total_cost": 0.5}}, Usage(20, 4, cost=0.5)),
        ("openai/m", {"cost": 0.25}, Usage(20, 4, cost=None)),
    ],
)
async def test_usage_fields_vary(name: str, fields: Any, usage: Usage, provider: Upstream) -> None:
    """Cached, cache write and reasoning tokens are found wherever they are; a reported cost counts if it is in USD."""
    provider.answers([reply(completion(usage={**USAGE, **fields}))])
    assert (await model_at(provider, name).complete(ASK)).usage == usage


async def test_the_usage_field_of_groq(provider: Upstream) -> None:
    """Usage in a field of the provider's own counts."""
    provider.answers(streamed(sse(delta(content="Hi."), {**delta("stop"), "x_groq": {"usage": USAGE}})))
    assert (await stream(model_at(provider, "groq/m")))[1].usage.total_tokens == 24


@pytest.mark.parametrize(
    ("reason", "kind"), [("length", errors.ModelError), ("content_filter", errors.ContentFilterError)]
)
async def test_an_incomplete_answer_fails_the_run_and_is_counted(
    reason: str, kind: type[Exception], provider: Upstream
) -> None:
    """An answer that was cut off or filtered is no success; its tokens are counted, and it is not repeated."""
    body = completion("Half an ans")
    body["choices"][0]["finish_reason"] = reason
    provider.answers([reply(body)])
    agent = Agent("a", "", model_at(provider))
    with pytest.raises(kind):
        await agent.arun("Hello?")
    assert agent.last_usage.total_tokens == 24
    assert len(provider.requests) == 1


class Place(BaseModel):
    name: str
    depth: int


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("name", ["openai/m", "deepseek/m"])
async def test_structured_output(name: str, streaming: bool, provider: Upstream) -> None:
    """A response model is sent as a JSON Schema, or as a tool if the provider takes none."""
    text = '{"name": "sea", "depth": 3}'
    by_tool = [call(id="c1", name="final_answer", arguments=text)]
    whole = completion(text) if name == "openai/m" else completion(None, tool_calls=by_tool)
    part = delta(content=text) if name == "openai/m" else delta(tool_calls=by_tool)
    provider.answers(streamed(sse(part, delta("stop"))) if streaming else [reply(whole)])
    agent = Agent("a", "", model_at(provider, name))
    assert await agent.arun("The sea?", Place, stream=streaming) == Place(name="sea", depth=3)
    (sent,) = provider.requests
    if name == "openai/m":
        assert sent["response_format"]["json_schema"]["schema"]["required"] == ["name", "depth"]
    else:
        assert sent["tools"][0]["function"]["parameters"]["required"] == ["name", "depth"]


# --- where requests go


def forget_models() -> None:
    """Forget the models of all providers, so that the environment is read again."""
    from podwright.models import registry

    registry._resolved.clear()


@pytest.mark.parametrize("name", ENDPOINTS)
async def test_variables_of_the_providers(name: str, provider: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each provider's variables set its key and base URL; its own endpoint needs a key."""
    forget_models()
    endpoint = ENDPOINTS[name]
    if endpoint.url.startswith("https://"):
        with pytest.raises(errors.ModelAuthenticationError) as missing_key:
            await resolve(f"{name}/m").complete(ASK)
        assert endpoint.keys[0] in missing_key.value.suggestion
    elif not endpoint.url:
        with pytest.raises(errors.ConfigurationError) as missing_url:
            await resolve(f"{name}/m").complete(ASK)
        assert endpoint.urls[0] in missing_url.value.suggestion
    provider.answers([reply(completion())])
    for key, url in zip(endpoint.keys, endpoint.urls * 4, strict=False):
        forget_models()
        monkeypatch.setenv(key, f"key-of-{name}\n")
        monkeypatch.setenv(url, provider.url.removesuffix(endpoint.suffix) + "/")
        assert (await resolve(f"{name}/m").complete(ASK)).text == "Hi."
        assert provider.headers[-1]["authorization"] == f"Bearer key-of-{name}"
        assert provider.headers[-1][":line"] == "POST /v1/chat/completions HTTP/1.1"
        assert provider.requests[-1]["model"] == f"{endpoint.model_prefix}m"
        monkeypatch.delenv(key)


async def test_one_endpoint_for_all_models(provider: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    """PODWRIGHT_MODEL_BASE_URL is the endpoint of every model, with its own key and never a provider's."""
    forget_models()
    monkeypatch.setenv("PODWRIGHT_MODEL_BASE_URL", provider.url)
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-openai")
    provider.answers([reply(completion())])
    for name in ("openai/m", "anthropic/m", "mistral/m", "nobody/m"):
        model = resolve(name)
        assert isinstance(model, ChatModel)
        await model.complete(ASK)
        assert "authorization" not in provider.headers[-1]
        assert provider.requests[-1]["model"] == "m"
    forget_models()
    monkeypatch.setenv("PODWRIGHT_MODEL_API_KEY", "key-for-all")
    await resolve("anthropic/m").complete(ASK)
    assert provider.headers[-1]["authorization"] == "Bearer key-for-all"
    await resolve("anthropic/m", None, Connection("my-own")).complete(ASK)
    assert provider.headers[-1]["authorization"] == "Bearer my-own"
    await resolve("anthropic/m", None, Connection("")).complete(ASK)
    assert "authorization" not in provider.headers[-1]
    assert resolve("offline/echo").name == "offline/echo"
    forget_models()


async def test_a_component_overrides_the_environment(provider: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    """`api_key` and `base_url` of a component win; `address` tells where requests go."""
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-openai")
    for variable in ("OPENAI_BASE_URL", "PODWRIGHT_MODEL_BASE_URL"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9/v1")
    provider.answers([reply(completion())])
    agent = Agent("a", "", "openai/gpt-4o", api_key="mine", base_url=provider.url)
    assert await agent.arun("Hello?") == "Hi."
    assert provider.headers[-1]["authorization"] == "Bearer mine"
    assert agent.model.address() == ("127.0.0.1", provider.port)
    assert ChatModel("openai/m", Connection("k"), ENDPOINTS["openai"]).address() == ("127.0.0.1", 9)
    assert ChatModel("mine/m", Connection("k")).address() is None


def test_the_client_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """PODWRIGHT_MODEL_CLIENT chooses the client; `openai` refuses unknown providers without a base URL."""
    forget_models()
    monkeypatch.setenv("PODWRIGHT_MODEL_CLIENT", "openai")
    assert isinstance(resolve("openai/m"), ChatModel)
    with pytest.raises(errors.UnknownModelError) as unknown:
        resolve("opneai/m")
    assert "'openai'" in unknown.value.suggestion
    assert isinstance(resolve("opneai/m", None, Connection(None, "http://localhost")), ChatModel)
    monkeypatch.setenv("PODWRIGHT_MODEL_CLIENT", "litellm")
    assert type(resolve("mistral/m")).__name__ == "LiteLLMModel"
    monkeypatch.setenv("PODWRIGHT_MODEL_CLIENT", "fast")
    with pytest.raises(errors.ConfigurationError, match="fast"):
        resolve("groq/m")
    forget_models()


@pytest.mark.parametrize("client", ["openai", "litellm"])
def test_the_shared_base_url_is_checked_before_the_first_call(client: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An invalid PODWRIGHT_MODEL_BASE_URL is refused when a model is resolved, without its secrets."""
    forget_models()
    monkeypatch.setenv("PODWRIGHT_MODEL_CLIENT", client)
    monkeypatch.setenv("PODWRIGHT_MODEL_BASE_URL", "me:pass@vendor/v1")
    with pytest.raises(errors.ConfigurationError, match="PODWRIGHT_MODEL_BASE_URL") as caught:
        resolve("openai/m")
    assert "pass" not in str(caught.value)
    assert resolve("openai/m", None, Connection("key", "http://localhost/v1")).name == "openai/m"


async def test_invalid_urls_and_keys_are_refused_and_not_shown(provider: Upstream) -> None:
    """A base URL with a password and a key with a line break are never sent."""
    with pytest.raises(errors.ConfigurationError) as invalid_url:
        await ChatModel("openai/m", Connection("key", "https://me:pass@host/v1")).complete(ASK)
    assert "pass" not in str(invalid_url.value)
    with pytest.raises(errors.ModelAuthenticationError) as invalid_key:
        await ChatModel("openai/m", Connection("key\r\nX: y", provider.url)).complete(ASK)
    assert "X: y" not in str(invalid_key.value)
    assert "key\r" not in repr(Connection("key\r\nX: y"))


def test_a_client_is_imported_when_it_is_needed() -> None:
    """Neither the package nor an offline model imports a client or price tables, and this client not LiteLLM."""
    code = """
import sys
import podwright
podwright.Agent("a", "", "offline/echo").run("Hello?")
assert not {"aiohttp", "litellm", "genai_prices"} & set(sys.modules)
agent = podwright.Agent("a", "", "openai/gpt-4o", api_key="k", base_url="http://127.0.0.1:1/v1")
try:
    agent.run("Hello?")
except podwright.errors.ModelError as error:
    assert error.code == "model_unreachable"
assert "aiohttp" in sys.modules and "litellm" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_reference_lists_every_provider() -> None:
    """The table in the documentation is the one in the code."""
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text()
    for name, endpoint in ENDPOINTS.items():
        keys, urls = (
            ", ".join(f"`{variable}`" for variable in variables) for variables in (endpoint.keys, endpoint.urls)
        )
        assert f"| `{name}` | {keys} | {urls} | {endpoint.url or '(none)'} |" in page
