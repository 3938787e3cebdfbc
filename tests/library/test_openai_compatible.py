"""What is particular to the OpenAI-compatible client: how providers differ, and what it makes of that."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.library.model_clients import openai_compatible, question, stream
from tests.library.upstream import (
    STREAM,
    USAGE,
    Script,
    Upstream,
    call,
    chunk,
    completion,
    delta,
    pass_time,
    reply,
    sse,
    streamed,
)

from podwright import Agent, errors
from podwright.messages.messages import Message, ModelResponse
from podwright.messages.usage import Usage
from podwright.models import Connection, Model
from podwright.models.http.client import MAX_RESPONSE
from podwright.models.offline.offline import estimate_input, estimate_tokens
from podwright.models.retries import Timeouts

streaming_or_not = pytest.mark.parametrize(
    "streaming", [False, True], ids=["plain", "streaming"]
)
ASK = question("openai/m")


def model_at(provider: Upstream, name: str = "openai/m") -> Model:
    return openai_compatible(name, Connection("key", provider.url))


async def answer(provider: Upstream, *, streaming: bool) -> ModelResponse:
    model = model_at(provider)
    if not streaming:
        return await model.complete(ASK)
    response, _ = await stream(model, ASK)
    return response


@pytest.mark.parametrize(
    ("name", "settings", "sent"),
    [
        ("openai/gpt-4o", {"max_tokens": 9}, {"max_tokens": 9}),
        ("openai/o3-mini", {"max_tokens": 9}, {"max_completion_tokens": 9}),
        ("openai/gpt-5-nano", {"max_tokens": 9}, {"max_completion_tokens": 9}),
        (
            "openai/gpt-5-nano",
            {"reasoning_effort": "low"},
            {"reasoning_effort": "low"},
        ),
        ("mistral/m", {"seed": 1}, {"random_seed": 1}),
        ("openai/m", {"parallel_tool_calls": True}, {}),
    ],
)
async def test_settings_have_the_names_of_the_provider(
    name: str, settings: Any, sent: dict[str, Any], provider: Upstream
) -> None:
    """A setting has the name that the model knows, and is left out where it has no meaning."""
    provider.answers([reply(completion())])
    await model_at(provider, name).complete(question(name, settings=settings))
    assert {
        key: value
        for key, value in provider.requests[0].items()
        if key not in ("model", "messages")
    } == sent


async def test_any_text_can_be_sent(provider: Upstream) -> None:
    """NUL, a character outside of the basic plane and a megabyte of text are sent as JSON."""
    provider.answers([reply(completion())])
    text = "\x00\U0001f600" + "x" * 2**20
    await model_at(provider).complete(
        question("openai/m", messages=(Message("user", text),))
    )
    assert provider.requests[0]["messages"][0]["content"] == text


# --- tool calls in pieces


def pieces(*groups: Any) -> list[Any]:
    return [
        delta(tool_calls=list(group) if isinstance(group, tuple) else [group])
        for group in groups
    ]


SEA = '{"word": "sea"}'
SKY = '{"word": "sky"}'
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
async def test_two_calls_with_one_id_in_pieces(
    name: str, provider: Upstream
) -> None:
    """Pieces with the same id belong to two calls if their indices or their order say so."""
    provider.answers(streamed(sse(*ONE_ID[name], END)))
    response, _ = await stream(model_at(provider), ASK)
    assert [made.arguments for made in response.tool_calls] == [SEA, SKY]
    assert len({made.id for made in response.tool_calls}) == 2


# --- answers that differ


BODIES = {
    "extra fields": (
        {
            **completion("Hi."),
            "object": 1,
            "x": {"y": []},
            "service_tier": None,
            "error": None,
        },
        "Hi.",
    ),
    "content in parts": (
        completion(
            [
                {"type": "thinking", "thinking": []},
                {"type": "text", "text": "Hi."},
            ]
        ),
        "Hi.",
    ),
    "a refusal": (completion(None, refusal="No."), "No."),
    "no reason": (
        {"choices": [{"message": {"content": "Hi."}}], "usage": USAGE},
        "Hi.",
    ),
    "its own reason": (
        {
            "choices": [
                {"message": {"content": "Hi."}, "finish_reason": "eos"}
            ],
            "usage": USAGE,
        },
        "Hi.",
    ),
    "null tool calls": (
        completion("Hi.", tool_calls=None, function_call=None, audio=None),
        "Hi.",
    ),
    "numbers for names": ({**completion("Hi."), "id": 7, "model": None}, "Hi."),
}


@pytest.mark.parametrize("name", BODIES)
async def test_responses_vary(name: str, provider: Upstream) -> None:
    """What a provider omits or adds does not break a response."""
    body, text = BODIES[name]
    reasons = {"a refusal": "refusal", "no reason": "unknown"}
    provider.answers([reply(b"\n \n" + json.dumps(body).encode())])
    response = await model_at(provider).complete(ASK)
    assert (
        response.text,
        response.finish_reason,
        response.usage.total_tokens,
    ) == (
        text,
        reasons.get(name, "stop"),
        24,
    )


END = delta("stop")
SERVER_SENT = {
    "DONE without an empty line": sse(delta(content="Hi."), END)[:-2],
    "a first chunk without choices": sse(
        {"choices": [], "prompt_filter_results": []}, delta(content="Hi."), END
    ),
    "null choices and delta": sse(
        {"choices": None},
        delta(content="Hi."),
        {"choices": [{"delta": None}]},
        END,
    ),
    "a message at the end": sse(
        delta(content="Hi."),
        {"choices": [{"message": {}, "finish_reason": "stop"}]},
    ),
    "reason with the text": sse(delta("stop", content="Hi.")),
    "empty and null texts": sse(
        delta(content=""), delta(content="Hi."), delta(content=None), END
    ),
    "reasoning beside the text": sse(
        delta(reasoning_content="Hm."), delta(content="Hi."), END
    ),
    "after DONE": sse(delta(content="Hi."), END) + sse(delta(content="more")),
}


STREAMS = {name: streamed(data) for name, data in SERVER_SENT.items()}


@pytest.mark.parametrize("script", STREAMS.values(), ids=STREAMS)
async def test_streams_vary(script: Script, provider: Upstream) -> None:
    """What a provider omits or adds does not break a stream."""
    provider.answers(script)
    response, tokens = await stream(model_at(provider), ASK)
    assert (tokens, response.text, response.finish_reason) == (
        ["Hi."],
        "Hi.",
        "stop",
    )


BOMB = b'{"choices": "' + b" " * (MAX_RESPONSE + 1) + b'"}'


@pytest.mark.parametrize(
    "media_type", ["application/json", "text/event-stream"]
)
async def test_the_size_of_a_response_is_limited(
    media_type: str, provider: Upstream
) -> None:
    """A response of more than 16 MiB, decompressed, is an error that is not repeated."""
    provider.answers([reply(BOMB, 200, media_type, zipped=True)])
    with pytest.raises(errors.ModelResponseError) as caught:
        await answer(provider, streaming=media_type == "text/event-stream")
    assert not caught.value.transient


NOT_ENDED = {
    "null as a text": sse(
        delta("null", content="Half"), delta("null", content="Half")
    ),
    "None as a text": sse(
        delta(
            "None", tool_calls=[call(index=0, id="a", name="f", arguments="{}")]
        )
    ),
    "cancelled": sse(delta(content="Half"), delta("cancelled")),
    "in progress": sse(delta(content="Half"), delta("in_progress")),
    "events with whole messages": sse(
        {"choices": [{"message": {"content": "Half"}, "finish_reason": None}]}
    ),
}


@pytest.mark.parametrize("name", NOT_ENDED)
async def test_what_stands_for_a_finish_reason_ends_no_answer(
    name: str, provider: Upstream
) -> None:
    """Words for "not yet" and for failures are no ends, whatever the framing says."""
    provider.answers(streamed(NOT_ENDED[name]))
    with pytest.raises(errors.ModelError):
        await stream(model_at(provider), ASK)


async def test_characters_in_two_halves_are_whole(provider: Upstream) -> None:
    """An emoji whose two halves come in two chunks, and a half without its other, are read."""
    halves = [
        json.dumps(delta(content="x")).replace('"x"', half)
        for half in ('"\\ud83d"', '"\\ude00 "', '"\\ud83d"')
    ]
    provider.answers(streamed(sse(*halves, END)))
    response, _ = await stream(model_at(provider), ASK)
    assert response.text == "\U0001f600 \ufffd"


async def test_an_answer_without_the_end_of_its_stream(
    provider: Upstream,
) -> None:
    """After the finish reason, a server that keeps the connection open and silent has answered."""
    events = sse(delta(content="Hi."), END, done=False)
    provider.answers([STREAM, chunk(events), "hang"])
    model = model_at(provider)
    model.timeouts = Timeouts(first_byte=60.0, idle=60.0)
    response = await model.complete(ASK, lambda _: pass_time())
    assert response.text == "Hi."


@pytest.mark.parametrize(
    "white",
    [b"\n" * 15, b"\n" * 16, b"\r\n" * 40, b"\xef\xbb\xbf"],
    ids=["15", "16", "80", "BOM"],
)
async def test_blank_lines_before_a_stream(
    white: bytes, provider: Upstream
) -> None:
    """Gateways send blank lines while they wait for the first token."""
    provider.answers(
        [
            STREAM,
            chunk(white),
            chunk(sse(delta(content="Hi."), END)),
            chunk(b""),
        ]
    )
    response, _ = await stream(model_at(provider), ASK)
    assert response.text == "Hi."


async def test_a_tool_of_the_users_is_not_the_answer(
    provider: Upstream,
) -> None:
    """A tool that is called like our own one is called; the answer has another name then."""

    def final_answer(x: int) -> str:
        """Hand it in."""
        return f"handed in {x}"

    made = {
        "id": "c1",
        "type": "function",
        "function": {"name": "final_answer", "arguments": '{"x": 1}'},
    }
    answered = {
        **made,
        "function": {"name": "final_answer_2", "arguments": '{"answer": 5}'},
    }
    provider.answers(
        [reply(completion(None, tool_calls=[made]))],
        [reply(completion(None, tool_calls=[answered]))],
    )
    agent = Agent(
        "a", "Help.", model_at(provider, "deepseek/m"), tools=[final_answer]
    )
    assert await agent.arun("?", response_model=int) == 5
    assert provider.requests[1]["messages"][-1]["content"] == "handed in 1"
    provider.answers(
        [reply(completion(None, tool_calls=[made]))],
        [reply(completion("Done."))],
    )
    assert (
        await Agent("a", "", model_at(provider), tools=[final_answer]).arun("?")
        == "Done."
    )


async def test_an_answer_by_tool_that_was_stopped_is_none(
    provider: Upstream,
) -> None:
    """Arguments that were cut off, or stopped by a filter, are no answer although they can be read."""
    made = {
        "id": "c1",
        "type": "function",
        "function": {"name": "final_answer", "arguments": '{"answer": 5}'},
    }
    body = completion(None, tool_calls=[made])
    body["choices"][0]["finish_reason"] = "content_filter"
    provider.answers([reply(body)])
    with pytest.raises(errors.ContentFilterError):
        await Agent("a", "", model_at(provider, "deepseek/m")).arun(
            "?", response_model=int
        )


# --- usage


@streaming_or_not
@pytest.mark.parametrize("usage", [None, "none"])
async def test_missing_usage_is_estimated_and_has_no_price(
    usage: Any, streaming: bool, provider: Upstream
) -> None:
    """Without counts, tokens are estimated, and the cost is unknown even if the price is known."""
    text = "Hello, you!"
    script = streamed(
        sse(delta(content=text), delta("stop"), {"choices": [], "usage": usage})
    )
    provider.answers(script if streaming else [reply(completion(text, usage))])
    agent = Agent("a", "Help.", model_at(provider, "openai/gpt-4o"))
    result = await agent.arun("Hello?", stream=streaming, trace=True)
    sent = estimate_input(question("openai/gpt-4o"))
    assert (result.usage.input_tokens, result.usage.output_tokens) == (
        sent,
        estimate_tokens(text),
    )
    assert (result.usage.cost, result.usage.unpriced_model_calls) == (None, 1)


@pytest.mark.parametrize(
    ("name", "fields", "usage"),
    [
        (
            "openai/m",
            {"prompt_tokens_details": {"cached_tokens": -8}},
            Usage(20, 4, cost=None),
        ),
        (
            "openai/m",
            {"prompt_tokens_details": None, "completion_tokens_details": None},
            Usage(20, 4, cost=None),
        ),
        (
            "openrouter/m",
            {
                "prompt_tokens_details": {
                    "cached_tokens": 8,
                    "cache_write_tokens": 7,
                }
            },
            Usage(20, 4, 8, cost=None, cache_write_tokens=7),
        ),
        (
            "litellm_proxy/m",
            {
                "prompt_tokens_details": {
                    "cached_tokens": 0,
                    "cache_creation_tokens": 7,
                },
                "cache_creation_input_tokens": 7,
            },
            Usage(20, 4, cost=None, cache_write_tokens=7),
        ),
        (
            "anthropic/m",
            {"cache_creation_input_tokens": 7},
            Usage(20, 4, cost=None, cache_write_tokens=7),
        ),
        (
            "openrouter/m",
            {
                "prompt_tokens_details": {
                    "cached_tokens": 15,
                    "cache_write_tokens": 10**9,
                }
            },
            Usage(20, 4, 15, cost=None, cache_write_tokens=5),
        ),
        (
            "openrouter/m",
            {"prompt_tokens_details": {"cache_write_tokens": -7}},
            Usage(20, 4, cost=None),
        ),
        (
            "openrouter/m",
            {"cost": 0.25},
            Usage(20, 4, cost=0.25, cost_source="provider"),
        ),
        (
            "openrouter/m",
            {"cost": "0.25"},
            Usage(20, 4, cost=0.25, cost_source="provider"),
        ),
        ("openrouter/m", {"cost": "free"}, Usage(20, 4, cost=None)),
        (
            "openrouter/m",
            {"cost": 0.25, "cost_details": {"upstream_inference_cost": 0.2}},
            Usage(20, 4, cost=0.25, cost_source="provider"),
        ),
        (
            "openrouter/m",
            {
                "cost": 0.25,
                "is_byok": True,
                "cost_details": {"upstream_inference_cost": "0.5"},
            },
            Usage(20, 4, cost=0.75, cost_source="provider"),
        ),
        (
            "openrouter/m",
            {"cost": 0.01, "is_byok": True, "cost_details": None},
            Usage(20, 4, cost=None),
        ),
        (
            "perplexity/m",
            {"cost": {"total_cost": 0.5}},
            Usage(20, 4, cost=0.5, cost_source="provider"),
        ),
        ("openai/m", {"cost": 0.25}, Usage(20, 4, cost=None)),
    ],
)
async def test_usage_fields_vary(
    name: str, fields: Any, usage: Usage, provider: Upstream
) -> None:
    """Cached, cache write and reasoning tokens are found wherever they are; a reported cost counts if it is in USD."""
    provider.answers([reply(completion(usage={**USAGE, **fields}))])
    assert (await model_at(provider, name).complete(ASK)).usage == usage


async def test_the_price_file_wins(
    provider: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the operator has a price, it counts, and not the cost that a provider reports."""
    (tmp_path / "prices.json").write_text(
        '{"openrouter/m": {"input": 1, "output": 2}}'
    )
    monkeypatch.setenv("PODWRIGHT_PRICES", str(tmp_path / "prices.json"))
    provider.answers([reply(completion(usage={**USAGE, "cost": 0.25}))])
    costs = [
        (
            await Agent("a", "", model_at(provider, name)).arun(
                "Hello?", trace=True
            )
        ).usage.cost
        for name in ("openrouter/m", "openrouter/other")
    ]
    assert costs == [pytest.approx(28e-6), 0.25]


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
