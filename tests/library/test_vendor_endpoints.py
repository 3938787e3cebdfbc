"""Gemini, Azure and Cohere at their own OpenAI-compatible endpoints, with the rules that each of them has.

Sources, in our words: https://ai.google.dev/gemini-api/docs/openai,
https://learn.microsoft.com/azure/foundry/openai/api-version-lifecycle and …/concepts/content-filter,
https://docs.cohere.com/docs/compatibility-api.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel
from tests.library.upstream import (
    USAGE,
    Upstream,
    call,
    completion,
    delta,
    reply,
    sse,
    streamed,
)

from podwright import Agent, RunLimits, errors
from podwright.models import Connection, Model, resolve
from podwright.models.retries import Retries

streaming_or_not = pytest.mark.parametrize(
    "streaming", [False, True], ids=["plain", "streaming"]
)
SIGNED = {"google": {"thought_signature": "EjQKMg=="}}
UNSIGNED = {"google": {"thought_signature": "skip_thought_signature_validator"}}
"""What Google wants with calls that another model has made."""


def look(word: str) -> str:
    """Look a word up."""
    return f"{word}: found"


class City(BaseModel):
    """A city."""

    name: str
    people: dict[str, int]


@dataclass(frozen=True)
class Vendor:
    """A vendor, and what it refuses."""

    model: str
    path: str
    key: tuple[str, str]
    broken_rules: Callable[[dict[str, Any]], Iterator[str]]
    error: Callable[[str], object]
    """The body of a refusal with these words."""
    extra: dict[str, Any]
    """Further fields of a tool call."""

    def model_at(self, provider: Upstream) -> Model:
        model = resolve(
            self.model,
            None,
            Connection("secret", provider.url.removesuffix("/v1")),
        )
        model.retries = Retries(first_wait=0.001)
        return model

    def serve(self, provider: Upstream, *messages: dict[str, Any]) -> None:
        """Answer requests that follow the rules, each with the next of these messages."""

        def respond() -> list[Any]:
            body = provider.requests[-1]
            path, (header, value) = (
                provider.headers[-1][":line"].split()[1],
                self.key,
            )
            broken = [*self.broken_rules(body)]
            broken += [] if path == self.path else [f"no {path}"]
            broken += (
                []
                if provider.headers[-1].get(header) == value
                else [f"no key in {header}"]
            )
            if broken:
                return [reply(self.error("; ".join(broken)), 400)]
            message = messages[min(len(provider.requests), len(messages)) - 1]
            if not body.get("stream"):
                return [
                    reply(
                        completion(
                            message.get("content"),
                            **{**message, "content": message.get("content")},
                        )
                    )
                ]
            reason = "tool_calls" if message.get("tool_calls") else "stop"
            calls = [
                {"index": index, **called}
                for index, called in enumerate(message.get("tool_calls", []))
            ]
            part = {**message, "tool_calls": calls} if calls else message
            counts = {"id": "c", "choices": [], "usage": USAGE}
            return streamed(
                sse(
                    delta(role="assistant"),
                    delta(**part),
                    delta(reason),
                    counts,
                )
            )

        provider.answers([respond])


def _of_gemini(body: dict[str, Any]) -> Iterator[str]:
    if body.get("response_format") and body.get("tools"):
        yield "Function calling with a response mime type: 'application/json' is unsupported"
    for message in body["messages"]:
        for called in message.get("tool_calls", []):
            if called.get("extra_content") not in (SIGNED, UNSIGNED):
                yield "Function call is missing a thought_signature in functionCall parts"


def _of_cohere(body: dict[str, Any]) -> Iterator[str]:
    if "stream_options" in body:
        yield "unknown field: parameter 'stream_options' is not a valid field"


def _of_azure(body: dict[str, Any]) -> Iterator[str]:
    if "max_tokens" in body:
        yield "Unsupported parameter: 'max_tokens' is not supported with this model"
    if body["model"] != "my-deployment":
        yield "DeploymentNotFound"


VENDORS = {
    "gemini": Vendor(
        "gemini/gemini-3-pro",
        "/v1beta/openai/chat/completions",
        ("authorization", "Bearer secret"),
        _of_gemini,
        lambda words: [
            {
                "error": {
                    "code": 400,
                    "message": words,
                    "status": "INVALID_ARGUMENT",
                }
            }
        ],
        {"extra_content": SIGNED},
    ),
    "azure": Vendor(
        "azure/my-deployment",
        "/openai/v1/chat/completions",
        ("api-key", "secret"),
        _of_azure,
        lambda words: {"error": {"code": "invalid_request", "message": words}},
        {},
    ),
    "cohere": Vendor(
        "cohere/command-a-03-2025",
        "/compatibility/v1/chat/completions",
        ("authorization", "Bearer secret"),
        _of_cohere,
        lambda words: {"message": words},
        {},
    ),
}


@pytest.fixture(params=VENDORS.values(), ids=[*VENDORS])
def vendor(request: pytest.FixtureRequest) -> Vendor:
    return request.param


@streaming_or_not
async def test_a_tool_loop(
    provider: Upstream, vendor: Vendor, streaming: bool
) -> None:
    """A tool is called, with all that the vendor wants back, and the answer has its tokens."""
    calls = [
        {
            **call(id="call_1", name="look", arguments='{"word": "Rome"}'),
            **vendor.extra,
        }
    ]
    vendor.serve(
        provider, {"content": None, "tool_calls": calls}, {"content": "Found."}
    )
    agent = Agent("guide", "Help.", vendor.model_at(provider), tools=[look])
    result = await agent.arun("Where?", stream=streaming, trace=True)
    assert result.value == "Found."
    assert (result.usage.input_tokens, result.usage.output_tokens) == (40, 8)


@streaming_or_not
async def test_a_response_model_beside_tools(
    provider: Upstream, vendor: Vendor, streaming: bool
) -> None:
    """Tools come first; the answer fits the response model, its map included."""
    answer = {"name": "Rome", "people": {"2020": 3}}
    if vendor.model.startswith("azure"):
        final: dict[str, Any] = {"content": json.dumps(answer)}
    else:
        written = call(
            id="call_2", name="final_answer", arguments=json.dumps(answer)
        )
        final = {"content": None, "tool_calls": [written]}
    calls = [
        {
            **call(id="call_1", name="look", arguments='{"word": "Rome"}'),
            **vendor.extra,
        }
    ]
    vendor.serve(provider, {"content": None, "tool_calls": calls}, final)
    agent = Agent("guide", "Help.", vendor.model_at(provider), tools=[look])
    assert await agent.arun(
        "How many?", stream=streaming, response_model=City
    ) == City(**answer)


async def test_within_limits(provider: Upstream, vendor: Vendor) -> None:
    """A limit of tokens is one of the answer, in the words of the vendor."""
    vendor.serve(provider, {"content": "Ciao."})
    agent = Agent(
        "guide",
        "Help.",
        vendor.model_at(provider),
        limits=RunLimits(tokens=1000),
    )
    assert await agent.arun("Hello?") == "Ciao."


async def test_the_loop_of_another_model_goes_on(
    provider: Upstream, vendor: Vendor
) -> None:
    """Tool calls of another provider's model are taken, as after a fallback."""
    vendor.serve(provider, {"content": "Found."})
    history = [
        {"role": "user", "content": "Where?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                call(id="call_1", type="function", name="look", arguments="{}")
            ],
            "podwright_provider": "openai",
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "x"},
    ]
    agent = Agent("guide", "Help.", vendor.model_at(provider), tools=[look])
    assert await agent.arun("And?", messages=history) == "Found."


FILTERED = [
    sse(
        delta(content="When in the course of"),
        delta("content_filter: RECITATION"),
    ),
    {
        "id": "c",
        "choices": [
            {"index": 0, "finish_reason": "content_filter: PROHIBITED_CONTENT"}
        ],
    },
]


@pytest.mark.parametrize(
    "body", FILTERED, ids=["streamed", "whole, without a message"]
)
async def test_the_content_filter_of_google(
    provider: Upstream, body: Any
) -> None:
    """It names its reason, and may leave out the message."""
    provider.answers(
        streamed(body) if isinstance(body, bytes) else [reply(body)]
    )
    with pytest.raises(errors.ContentFilterError):
        await Agent("guide", "", VENDORS["gemini"].model_at(provider)).arun(
            "Hi", stream=isinstance(body, bytes)
        )
    assert len(provider.requests) == 1


async def test_an_error(provider: Upstream, vendor: Vendor) -> None:
    """The vendor's own words reach the operator, and a wrong request is not repeated."""
    provider.answers([reply(vendor.error("the field is unknown"), 400)])
    with pytest.raises(errors.ModelRequestError) as caught:
        await Agent("guide", "Help.", vendor.model_at(provider)).arun("Hello?")
    assert "the field is unknown" in str(caught.value.provider_error)
    assert len(provider.requests) == 1


async def test_a_wait_of_google(provider: Upstream) -> None:
    """Google says in the error how long to wait."""
    detail = {
        "@type": "type.googleapis.com/google.rpc.RetryInfo",
        "retryDelay": "3600s",
    }
    error = {
        "code": 429,
        "message": "Quota exceeded",
        "status": "RESOURCE_EXHAUSTED",
        "details": [detail],
    }
    provider.answers([reply([{"error": error}], 429)])
    with pytest.raises(errors.ModelRateLimitError) as caught:
        await Agent(
            "guide", "Help.", VENDORS["gemini"].model_at(provider)
        ).arun("Hello?")
    assert (caught.value.retry_after, len(provider.requests)) == (3600, 1)


@streaming_or_not
async def test_the_content_filter_of_azure(
    provider: Upstream, streaming: bool
) -> None:
    """A request that it stops is an error, and so is an answer that it stops; its notes on others are no answer."""
    model = VENDORS["azure"].model_at(provider)
    inner = {
        "code": "ResponsibleAIPolicyViolation",
        "content_filter_result": {"hate": {"filtered": True}},
    }
    refused = {
        "error": {
            "code": "content_filter",
            "param": "prompt",
            "message": "The response was filtered",
            "innererror": inner,
        }
    }
    notes = {
        "id": "",
        "choices": [],
        "prompt_filter_results": [
            {"prompt_index": 0, "content_filter_results": {}}
        ],
    }
    stopped = sse(notes, delta(content="Once"), delta("content_filter"))
    whole = completion("Once")
    whole["choices"][0]["finish_reason"] = "content_filter"
    for script in (
        [reply(refused, 400)],
        streamed(stopped) if streaming else [reply(whole)],
    ):
        provider.answers(script)
        with pytest.raises(errors.ContentFilterError):
            await Agent("guide", "Help.", model).arun(
                "Hello?", stream=streaming
            )
    fine = sse(
        notes,
        delta(content="Ciao."),
        delta("stop"),
        {"id": "c", "choices": [], "usage": USAGE},
    )
    provider.answers(
        streamed(fine)
        if streaming
        else [
            reply(
                {
                    **completion("Ciao."),
                    **notes,
                    "choices": completion("Ciao.")["choices"],
                }
            )
        ]
    )
    assert (
        await Agent("guide", "Help.", model).arun("Hello?", stream=streaming)
        == "Ciao."
    )


@pytest.mark.parametrize("name", ["azure", "gemini"])
async def test_a_key_is_needed_at_every_url(
    name: str, provider: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No server of one's own speaks for these two: without a key nothing is sent, unless an empty one is given."""
    for variable in (
        "AZURE_API_KEY",
        "AZURE_OPENAI_API_KEY",
        "GEMINI_API_KEY",
        "GOOGLE_API_KEY",
    ):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(errors.ModelAuthenticationError):
        await Agent("guide", "", f"{name}/m", base_url=provider.url).arun(
            "Hello?"
        )
    assert not provider.requests
    provider.answers([reply(completion())])
    assert (
        await Agent(
            "guide", "", f"{name}/m", base_url=provider.url, api_key=""
        ).arun("Hello?")
        == "Hi."
    )


def test_an_identity_of_azure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where an identity stands for the key, LiteLLM is asked, which knows how to use it."""
    for variable in ("AZURE_API_KEY", "AZURE_OPENAI_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("AZURE_CLIENT_ID", "an-identity")
    assert type(resolve("azure/with-an-identity")).__name__ == "LiteLLMModel"
    assert (
        type(resolve("azure/with-a-key", None, Connection("key"))).__name__
        == "ChatModel"
    )
