"""What is particular to the LiteLLM client: providers with a protocol of their own, and LiteLLM's ways."""

import json
import subprocess
import sys
from typing import Any

import pytest
from tests.library.model_clients import KEY, LOOK_UP, question, stream
from tests.library.upstream import Script, Upstream, completion, reply, streamed

from podwright import Agent, errors
from podwright.messages.messages import ToolCall
from podwright.models import Connection, litellm_loader
from podwright.models.litellm.model import LiteLLMModel
from podwright.models.prices.pricing import lookup

# LiteLLM and what it imports warn about their own code
pytestmark = pytest.mark.filterwarnings("ignore")

OPENAI = "openai/gpt-4o-mini"
ANTHROPIC = "anthropic/claude-haiku-4-5"


def model_at(provider: Upstream, name: str) -> LiteLLMModel:
    url = (
        provider.url.removesuffix("/v1") if name == ANTHROPIC else provider.url
    )
    return LiteLLMModel(name, Connection(KEY, url))


def anthropic_stream(*events: dict[str, Any]) -> Script:
    """A whole stream of Anthropic's protocol."""
    text = "".join(
        f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
        for event in events
    )
    return streamed(text.encode())


# --- keys, names and settings


async def test_a_missing_key_is_found_before_a_request(
    provider: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check names the variable of a missing key, and a call sends nothing."""
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(errors.ModelAuthenticationError) as missing:
        LiteLLMModel(ANTHROPIC, Connection()).check()
    assert "ANTHROPIC_API_KEY" in missing.value.suggestion
    with pytest.raises(errors.ModelAuthenticationError):
        await LiteLLMModel(ANTHROPIC, Connection(None, provider.url)).complete(
            question(ANTHROPIC)
        )
    assert not provider.requests


@pytest.mark.parametrize(
    ("name", "connection"),
    [
        *(
            (name, Connection())
            for name in (
                "bedrock/anthropic.claude",
                "vertex_ai/gemini-pro",
                "azure/gpt",
            )
        ),
        *(
            (name, Connection())
            for name in ("ollama/llama3", "hosted_vllm/qwen")
        ),
        (ANTHROPIC, Connection("key")),
        (ANTHROPIC, Connection("", "http://localhost")),
    ],
)
def test_a_key_is_not_always_required(
    name: str, connection: Connection
) -> None:
    """A check asks for a key where LiteLLM knows its variable, unless the component has a key or a base URL."""
    LiteLLMModel(name, connection).check()


async def test_an_empty_key_is_not_replaced(
    provider: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty key of the connection is not replaced by the environment's."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    provider.answers([reply(completion())])
    await LiteLLMModel(OPENAI, Connection("", provider.url)).complete(
        question(OPENAI)
    )
    assert KEY not in str(provider.headers)


async def test_an_unsupported_setting_is_named(provider: Upstream) -> None:
    """A setting is never dropped: one that the provider does not support is an error before any request."""
    request = question(ANTHROPIC, settings={"seed": 1, "temperature": 0.1})
    with pytest.raises(errors.ModelRequestError, match="'seed'"):
        await model_at(provider, ANTHROPIC).complete(request)
    assert not provider.requests


async def test_parameters_are_passed_on(provider: Upstream) -> None:
    """LiteLLM passes on what it does not know, and an option of its own is an error before any request."""
    provider.answers([reply(MESSAGE)])
    model = model_at(provider, ANTHROPIC)
    passed = question(ANTHROPIC, settings={"parameters": {"top_k": 3}})
    await model.complete(passed)
    assert provider.requests[0]["top_k"] == 3
    own = question(ANTHROPIC, settings={"parameters": {"caching": True}})
    with pytest.raises(errors.ModelRequestError, match="'caching'"):
        await model.complete(own)
    assert len(provider.requests) == 1


async def test_an_unknown_provider_is_named() -> None:
    """A provider that LiteLLM does not know is an unknown model."""
    model = LiteLLMModel("nobody/knows", Connection())
    with pytest.raises(errors.UnknownModelError, match="nobody/knows"):
        model.check()
    with pytest.raises(errors.UnknownModelError, match="nobody/knows"):
        await model.complete(question("nobody/knows"))


def test_a_vendor_is_named_as_its_providers_are() -> None:
    """Who writes the name of the vendor is told those of its providers."""
    with pytest.raises(errors.UnknownModelError) as caught:
        LiteLLMModel("google/gemini-2.0-flash", Connection()).check()
    assert "'gemini/…'" in caught.value.suggestion


# --- Anthropic's protocol


MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-haiku-4-5",
    "content": [{"type": "text", "text": "Ciao."}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {
        "input_tokens": 10,
        "cache_read_input_tokens": 30,
        "cache_creation_input_tokens": 0,
        "output_tokens": 6,
    },
}


@pytest.mark.usefixtures("list_prices")
async def test_a_provider_with_its_own_protocol(
    provider: Upstream, recorder: Any
) -> None:
    """A provider that does not offer Chat Completions is called too, at the same price as in a look-up."""
    provider.answers([reply(MESSAGE)])
    agent = Agent(
        "poet",
        "Be short.",
        model_at(provider, ANTHROPIC),
        max_tokens=20,
        event_manager=recorder.manager,
    )
    assert await agent.arun("Hello?") == "Ciao."
    usage = recorder.of("model_call_finished")[0].response.usage
    assert (
        usage.input_tokens,
        usage.cached_input_tokens,
        usage.output_tokens,
    ) == (
        40,
        30,
        6,
    )
    cost = lookup(ANTHROPIC, usage)
    assert cost
    assert usage.cost == cost.amount
    assert provider.headers[0][":line"].startswith("POST /v1/messages")
    assert provider.headers[0]["x-api-key"] == KEY
    assert provider.requests[0]["max_tokens"] == 20


CACHED = {
    "input_tokens": 500,
    "cache_read_input_tokens": 200,
    "cache_creation_input_tokens": 300,
    "output_tokens": 10,
}
ONE_HOUR = {
    **CACHED,
    "cache_creation": {
        "ephemeral_5m_input_tokens": 300,
        "ephemeral_1h_input_tokens": 0,
    },
}


@pytest.mark.parametrize("usage", [CACHED, ONE_HOUR])
@pytest.mark.usefixtures("list_prices")
@pytest.mark.parametrize("streaming", [False, True])
async def test_writing_to_the_cache_is_counted_and_priced(
    provider: Upstream, streaming: bool, usage: Any
) -> None:
    """Input that Anthropic writes to its cache is part of the input, and costs a quarter more."""
    events = anthropic_stream(
        {
            "type": "message_start",
            "message": {
                **MESSAGE,
                "content": [],
                "stop_reason": None,
                "usage": usage,
            },
        },
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
            "usage": {"output_tokens": 10},
        },
        {"type": "message_stop"},
    )
    provider.answers(
        events if streaming else [reply({**MESSAGE, "usage": usage})]
    )
    agent = Agent("poet", "Be short.", model_at(provider, ANTHROPIC))
    counted = (await agent.arun("Hello?", stream=streaming, trace=True)).usage
    assert (counted.input_tokens, counted.output_tokens) == (1000, 10)
    assert (counted.cached_input_tokens, counted.cache_write_tokens) == (
        200,
        300,
    )
    assert counted.cost == pytest.approx(
        (500 * 1 + 200 * 0.1 + 300 * 1.25 + 10 * 5) / 10**6
    )


async def test_a_stream_of_its_own_protocol(provider: Upstream) -> None:
    """Its stream is handed out as any other, with tool calls and usage."""
    block = {"type": "content_block_delta", "index": 1}
    tool = {"type": "tool_use", "id": "t1", "name": "look_up", "input": {}}
    events = anthropic_stream(
        {
            "type": "message_start",
            "message": {**MESSAGE, "content": [], "stop_reason": None},
        },
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "text", "text": ""},
        },
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": "Let me "},
        },
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": "see."},
        },
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": tool},
        {
            **block,
            "delta": {"type": "input_json_delta", "partial_json": '{"word":'},
        },
        {
            **block,
            "delta": {"type": "input_json_delta", "partial_json": ' "sea"}'},
        },
        {"type": "content_block_stop", "index": 1},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use"},
            "usage": {"output_tokens": 12},
        },
        {"type": "message_stop"},
    )
    provider.answers(events)
    response, tokens = await stream(
        model_at(provider, ANTHROPIC), question(ANTHROPIC, tools=(LOOK_UP,))
    )
    assert tokens == ["Let me ", "see."]
    assert response.tool_calls == (
        ToolCall("t1", "look_up", '{"word": "sea"}'),
    )
    assert response.finish_reason == "tool_calls"
    assert (response.usage.input_tokens, response.usage.output_tokens) == (
        40,
        12,
    )


# --- images


PIXEL = "data:image/png;base64,iVBORw0KGgo="


@pytest.mark.parametrize("name", [OPENAI, ANTHROPIC])
async def test_images_are_passed_on(provider: Upstream, name: str) -> None:
    """An image reaches the provider as the URL, or the data, that it is; nobody here fetches it."""
    url = f"https://127.0.0.1:{provider.port}/a.png"
    parts: Any = [
        {"type": "image_url", "image_url": {"url": address}}
        for address in (url, PIXEL)
    ]
    provider.answers(
        [reply(MESSAGE if name == ANTHROPIC else completion("Ciao."))]
    )
    agent = Agent("guide", "Be short.", model_at(provider, name), max_tokens=9)
    assert (
        await agent.arun([{"type": "text", "text": "What is this?"}, *parts])
        == "Ciao."
    )
    sent = provider.requests[0]["messages"][-1]["content"][1:]
    if name == OPENAI:
        assert sent == parts
    else:
        assert [part["source"] for part in sent] == [
            {"type": "url", "url": url},
            {
                "type": "base64",
                "media_type": "image/png",
                "data": PIXEL.partition(",")[2],
            },
        ]
    assert [headers[":line"].split()[0] for headers in provider.headers] == [
        "POST"
    ]


async def test_images_are_not_fetched_for_providers_that_take_no_urls(
    provider: Upstream,
) -> None:
    """An image that LiteLLM would have to fetch is an error, which is not repeated, and nothing is sent."""
    part: Any = {
        "type": "image_url",
        "image_url": {"url": f"https://127.0.0.1:{provider.port}/a"},
    }
    provider.answers([reply(completion("never"))])
    with pytest.raises(errors.ModelRequestError, match="data URL"):
        await Agent(
            "guide", "", model_at(provider, "gemini/gemini-2.5-flash")
        ).arun([part])
    assert provider.connections == 0


# --- the import of LiteLLM

LOOP = """
import asyncio, sys, threading
from podwright.errors import ModelError
from podwright.messages.messages import Message, ModelRequest
from podwright.models import Connection
from podwright.models.litellm.model import LiteLLMModel
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
    process = subprocess.run(
        [sys.executable, "-c", LOOP], capture_output=True, text=True
    )
    assert (process.returncode, process.stderr) == (0, "")
    assert process.stdout == "model_unreachable\n"


def test_without_litellm_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without LiteLLM, a model that needs it is an error that says what to install."""
    monkeypatch.setattr(litellm_loader, "installed", lambda: False)
    with pytest.raises(errors.UnknownModelError, match="bedrock/") as caught:
        Agent("a", "b", "bedrock/amazon.nova-pro-v1:0").run("x")
    assert "podwright[litellm]" in caught.value.suggestion
