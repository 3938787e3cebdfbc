"""What responses say of their cost and its terms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.library.model_clients import SOON, question
from tests.library.upstream import (
    Upstream,
    completion,
    delta,
    reply,
    sse,
    streamed,
)

from podwright import Agent
from podwright.errors import ModelError, ModelResponseError
from podwright.messages.usage import Usage
from podwright.models import Connection
from podwright.models.http import client as model_http
from podwright.models.prices.pricing import Terms
from podwright.models.protocols.openai_compatible import ChatModel
from podwright.models.providers import ENDPOINTS
from podwright.models.token_counts import TokenCounts

COUNTS = {"prompt_tokens": 100, "completion_tokens": 10}


def model_at(provider: Upstream, name: str) -> ChatModel:
    model = ChatModel(
        name, Connection("key", provider.url), ENDPOINTS[name.partition("/")[0]]
    )
    model.retries = SOON
    return model


@pytest.mark.parametrize(
    ("data", "terms"),
    [
        (
            {"service_tier": "Priority", "usage": COUNTS},
            Terms("m", service_tier="priority"),
        ),
        (
            {
                "service_tier": None,
                "usage": {**COUNTS, "service_tier": "batch"},
            },
            Terms("m", service_tier="batch"),
        ),
        ({"usage": {**COUNTS, "speed": "fast"}}, Terms("m", speed="fast")),
        (
            {"usage": {**COUNTS, "num_search_queries": 2}},
            Terms("m", searches=2),
        ),
        ({"usage": {**COUNTS, "num_sources_used": 4}}, Terms("m", searches=4)),
        (
            {
                "usage": {
                    **COUNTS,
                    "server_tool_use": {"web_search_requests": 3},
                }
            },
            Terms("m", searches=3),
        ),
    ],
    ids=str,
)
def test_terms(data: dict[str, Any], terms: Terms) -> None:
    """Service tier, speed and searches are read wherever providers put them."""
    counts = TokenCounts()
    counts.add(data)
    assert counts.terms("m") == terms


@pytest.mark.parametrize(
    ("usage", "input_audio", "output_audio"),
    [
        ({"prompt_tokens_details": {"audio_tokens": 40}}, 40, 0),
        ({"prompt_tokens_details": {"audio_tokens": 400}}, 100, 0),
        ({"completion_tokens_details": {"audio_tokens": 4}}, 0, 4),
        ({"audio_tokens": 4}, 0, 0),
    ],
    ids=str,
)
def test_audio(
    usage: dict[str, Any], input_audio: int, output_audio: int
) -> None:
    """Audio is a part of the tokens that the provider counts it among."""
    counts = TokenCounts()
    counts.add({"usage": COUNTS | usage})
    counted = counts.usage(Usage)
    assert counted.input_audio_tokens == input_audio
    assert counted.output_audio_tokens == output_audio


@pytest.mark.parametrize("streaming", [False, True], ids=["plain", "streamed"])
async def test_vercels_gateway_reports_the_cost(
    provider: Upstream, streaming: bool
) -> None:
    """It stands in the metadata of the message, as a text."""
    metadata = {"gateway": {"cost": "0.0025", "generationId": "g"}}
    usage = {"prompt_tokens": 20, "completion_tokens": 4}
    events = sse(
        delta("stop", content="Hi.", provider_metadata=metadata),
        {"choices": [], "usage": usage},
    )
    whole = reply(completion("Hi.", usage, provider_metadata=metadata))
    provider.answers(streamed(events) if streaming else [whole])
    agent = Agent(
        "a", "", model_at(provider, "vercel_ai_gateway/openai/gpt-4o")
    )
    used = (await agent.arun("?", stream=streaming, trace=True)).usage
    assert (used.cost, used.cost_source) == (0.0025, "provider")


@pytest.mark.parametrize(
    ("header", "price", "expected"),
    [
        ("0.0042", False, (0.0042, "provider")),
        ("0.0042", True, (28e-6, "override")),
        ("0.0", False, (None, "")),
        ("None", False, (None, "")),
        ("", False, (None, "")),
    ],
)
async def test_a_litellm_proxy_reports_the_cost(
    provider: Upstream,
    header: str,
    price: bool,
    expected: tuple[float | None, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a header, in which 0 may also mean that it does not know; the operator's file wins."""
    if price:
        (tmp_path / "prices.json").write_text(
            json.dumps({"litellm_proxy/*": {"input": 1, "output": 2}})
        )
        monkeypatch.setenv("PODWRIGHT_PRICES", str(tmp_path / "prices.json"))
    provider.answers([reply(completion(), x_litellm_response_cost=header)])
    used = (
        await Agent("a", "", model_at(provider, "litellm_proxy/gpt-4o")).arun(
            "?", trace=True
        )
    ).usage
    assert (
        used.cost and pytest.approx(used.cost),
        used.cost_source,
    ) == expected


async def test_a_reported_cost_needs_no_count(provider: Upstream) -> None:
    """A cost of the provider is known, also if the tokens are estimates."""
    provider.answers(
        [reply(completion(usage=None), x_litellm_response_cost="0.5")]
    )
    used = (
        await Agent("a", "", model_at(provider, "litellm_proxy/gpt-4o")).arun(
            "?", trace=True
        )
    ).usage
    assert (
        used.cost,
        used.unpriced_model_calls,
        used.uncounted_model_calls,
    ) == (
        0.5,
        0,
        0,
    )


async def test_what_is_propagated_to_models(
    provider: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The headers of propagators are those of each request."""
    monkeypatch.setattr(
        model_http, "PROPAGATORS", [lambda: {"traceparent": "00-a-b-01"}]
    )
    provider.answers([reply(completion())])
    await model_at(provider, "openai/m").complete(question("openai/m"))
    assert provider.headers[0]["traceparent"] == "00-a-b-01"


def test_sums_of_usages() -> None:
    """What is known of a sum is known, and each kind of what is not is counted."""
    known = Usage(10, 1, cost=0.5, cost_source="override").as_call("a/b")
    uncounted = Usage(
        10, cost=None, unpriced_model_calls=1, uncounted_model_calls=1
    ).as_failed_call("a/b")
    partly = Usage(
        10,
        cost=None,
        known_cost=0.25,
        unpriced_model_calls=1,
        incomplete_model_calls=1,
    ).as_call("a/c")
    total = known + uncounted + partly
    assert (total.cost, total.known_cost, total.cost_source) == (
        None,
        0.75,
        "override",
    )
    assert (
        total.unpriced_model_calls,
        total.uncounted_model_calls,
        total.incomplete_model_calls,
    ) == (2, 1, 1)
    assert total.by_model["a/b"].known_cost == 0.5
    assert (
        known + Usage(cost=1.0, cost_source="provider")
    ).cost_source == "mixed"
    assert Usage(cost=2.0).known_cost == 2.0


async def test_a_propagated_header_is_that_of_its_own_request(
    provider: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trace of one caller does not go on in the request of the next one, who has none."""
    traces = [{"traceparent": "00-a-b-01"}, {}]
    monkeypatch.setattr(model_http, "PROPAGATORS", [lambda: traces.pop(0)])
    provider.answers([reply(completion())])
    model = model_at(provider, "openai/m")
    for _ in range(2):
        await model.complete(question("openai/m"))
    assert ["traceparent" in headers for headers in provider.headers] == [
        True,
        False,
    ]


async def test_impossible_amounts_and_names(provider: Upstream) -> None:
    """A provider's nonsense costs no answer: it is not kept, or cut."""
    usage = {"prompt_tokens": 20, "completion_tokens": 4, "cost": 1e300}
    provider.answers(
        [
            reply(
                {
                    **completion("Hi.", usage),
                    "model": "\ud800" + "m" * 10**5,
                    "id": "i" * 10**5,
                }
            )
        ]
    )
    result = await Agent("a", "", model_at(provider, "openrouter/m")).arun(
        "?", trace=True
    )
    (finished,) = [
        event for event in result.events if event.type == "model_call_finished"
    ]
    assert (result.usage.cost, result.usage.input_tokens) == (None, 20)
    assert len(finished.response.model) <= 200
    finished.response.model.encode()
    assert len(finished.response.id) <= 200


async def test_a_number_that_python_does_not_read(provider: Upstream) -> None:
    """It is an answer that cannot be read, which may be billed."""
    body = json.dumps(completion()).replace(
        '"prompt_tokens": 20', '"prompt_tokens": ' + "9" * 5000
    )
    provider.answers([reply(body.encode())])
    agent = Agent("a", "", model_at(provider, "openai/m"))
    with pytest.raises(ModelResponseError):
        await agent.arun("?")
    assert agent.last_usage
    assert agent.last_usage.uncounted_model_calls == 3


@pytest.mark.parametrize(
    "price", [{"input": 1, "output": 1}, {"as": "openai/gpt-4o"}]
)
async def test_the_file_comes_before_a_reported_cost(
    provider: Upstream,
    price: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also for the model that answered, and for an alias of its name; not for a pattern of aliases."""
    (tmp_path / "prices.json").write_text(
        json.dumps(
            {"openrouter/acme/m": price, "openrouter/*": {"as": "openai/*"}}
        )
    )
    monkeypatch.setenv("PODWRIGHT_PRICES", str(tmp_path / "prices.json"))
    usage = {"prompt_tokens": 20, "completion_tokens": 4, "cost": 9.0}
    sources: list[str] = []
    for model in ("acme/m", "other/m"):
        provider.answers([reply({**completion("Hi.", usage), "model": model})])
        agent = Agent("a", "", model_at(provider, "openrouter/auto"))
        sources.append((await agent.arun("?", trace=True)).usage.cost_source)
    assert sources == [
        "genai-prices" if "as" in price else "override",
        "provider",
    ]


async def test_a_cost_that_grows_with_an_answer_that_is_cut_off(
    provider: Upstream,
) -> None:
    """It is that of a part, and not shown as known."""
    usage = {"prompt_tokens": 20, "completion_tokens": 2, "cost": 0.5}
    begun = sse({**delta(content="Half"), "usage": usage}, done=False)
    provider.answers([*streamed(begun)[:-1], "close"])
    agent = Agent("a", "", model_at(provider, "openrouter/m"))
    with pytest.raises(ModelError):
        await agent.arun("?", stream=True)
    assert agent.last_usage
    assert (agent.last_usage.cost, agent.last_usage.uncounted_model_calls) == (
        None,
        1,
    )
