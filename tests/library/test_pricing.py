"""The price of a model call: as the sources say it, and unknown where they do not."""

import asyncio
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import genai_prices
import pytest
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import TimeOfDateConstraint
from tests.library.price_table import prices

from podwright.errors import ConfigurationError
from podwright.messages.usage import Usage
from podwright.models import Connection, litellm_loader, resolve
from podwright.models.litellm.model import LiteLLMModel
from podwright.models.prices import pricing
from podwright.models.prices.price_file import VARIABLE
from podwright.models.prices.price_lists import listed_prices
from podwright.models.prices.pricing import PLAIN, Cost, Terms, lookup
from podwright.models.protocols.openai_compatible import ChatModel
from podwright.models.providers import ENDPOINTS, is_vendors
from podwright.settings import forget_settings

FIREWORKS = "fireworks_ai/accounts/fireworks/models/llama-v3p1-8b-instruct"
BY_GENAI_PRICES = {
    "openai/gpt-4o": ("openai", "gpt-4o"),
    "openai/responses/gpt-5-nano": ("openai", "gpt-5-nano"),
    "anthropic/claude-sonnet-4-5": ("anthropic", "claude-sonnet-4-5"),
    "gemini/gemini-2.5-pro": ("google", "gemini-2.5-pro"),
    "vertex_ai/claude-sonnet-4-5@20250929": (
        "google",
        "claude-sonnet-4-5@20250929",
    ),
    "bedrock/converse/us.amazon.nova-pro-v1:0": (
        "aws",
        "us.amazon.nova-pro-v1:0",
    ),
    "azure/gpt-4o": ("azure", "gpt-4o"),
    "azure_ai/gpt-4.1-mini": ("azure", "gpt-4.1-mini"),
    "mistral/mistral-large-latest": ("mistral", "mistral-large-latest"),
    "groq/llama-3.3-70b-versatile": ("groq", "llama-3.3-70b-versatile"),
    "deepseek/deepseek-chat": ("deepseek", "deepseek-chat"),
    "xai/grok-4": ("x-ai", "grok-4"),
    "together_ai/meta-llama/Llama-3.3-70B-Instruct-Turbo": (
        "together",
        "meta-llama/Llama-3.3-70B-Instruct-Turbo",
    ),
    FIREWORKS: ("fireworks", FIREWORKS.partition("/")[2]),
    "openrouter/anthropic/claude-3.5-sonnet": (
        "openrouter",
        "anthropic/claude-3.5-sonnet",
    ),
    "perplexity/sonar-deep-research": ("perplexity", "sonar-deep-research"),
    "cohere/command-r-plus": ("cohere", "command-r-plus"),
    "moonshot/kimi-k2-thinking": ("moonshotai", "kimi-k2-thinking"),
}
BY_LITELLM = [
    "deepinfra/meta-llama/Llama-3.3-70B-Instruct",
    "dashscope/qwen-flash",
    "hyperbolic/meta-llama/Llama-3.3-70B-Instruct",
    "sambanova/Meta-Llama-3.3-70B-Instruct",
]
USAGES = [
    Usage(1_000, 200, 0, 0),
    Usage(12_345, 6_789, 2_345, 789),
    Usage(300_001, 999, 250_000, 998),
    Usage(7, 0, 7, 0),
    Usage(12_345, 678, 2_345, 0, cache_write_tokens=9_999),
]
"""With cached, cache write and reasoning tokens, and above the thresholds of long requests."""


def genai(provider: str, name: str, usage: Usage) -> float:
    counts = genai_prices.Usage(
        input_tokens=usage.input_tokens,
        cache_read_tokens=usage.cached_input_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        output_tokens=usage.output_tokens,
        output_reasoning_tokens=usage.reasoning_tokens,
    )
    return float(
        genai_prices.calc_price(counts, name, provider_id=provider).total_price
    )


@pytest.mark.parametrize("model", BY_GENAI_PRICES)
def test_the_cost_is_that_of_genai_prices(model: str) -> None:
    """A model that genai-prices knows costs what it says, tiers and cached tokens included."""
    for usage in USAGES:
        assert lookup(model, usage) == Cost(
            genai(*BY_GENAI_PRICES[model], usage), "genai-prices"
        )


@pytest.mark.parametrize("model", BY_LITELLM)
def test_the_cost_is_that_of_litellm(model: str) -> None:
    """A model that only LiteLLM knows costs what it says."""
    litellm = litellm_loader.load()
    for usage in USAGES:
        cached = {
            "cache_read_input_tokens": usage.cached_input_tokens,
            "cache_creation_input_tokens": usage.cache_write_tokens,
        }
        counts = litellm.Usage(
            usage.input_tokens, usage.output_tokens, **cached
        )
        counts.completion_tokens_details = {
            "reasoning_tokens": usage.reasoning_tokens
        }
        parts = litellm.cost_per_token(model, usage_object=counts)
        assert lookup(model, usage) == Cost(sum(parts), "litellm")
        assert sum(parts) > 0


@pytest.mark.parametrize(
    ("model", "rates"),
    [
        ("anthropic/claude-haiku-4-5", (1, 0.1, 1.25, 5)),
        ("anthropic/claude-sonnet-4-5", (3, 0.3, 3.75, 15)),
        ("openai/gpt-4o", (2.5, 1.25, 2.5, 10)),
    ],
)
def test_writing_to_the_cache_has_a_price(
    model: str, rates: tuple[float, ...]
) -> None:
    """Tokens written to the cache have a rate of their own, or that of other input if the vendor has none."""
    usage = Usage(10_000, 1_000, 2_000, cache_write_tokens=3_000)
    by_hand = (
        sum(
            tokens * rate
            for tokens, rate in zip(
                (5_000, 2_000, 3_000, 1_000), rates, strict=True
            )
        )
        / 10**6
    )
    cost = lookup(model, usage)
    assert cost
    assert cost.amount == pytest.approx(by_hand)


def test_litellm_is_asked_for_vendors_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """LiteLLM is never loaded for a model on a server of the operator's own, or one that genai-prices knows."""
    monkeypatch.setattr(
        litellm_loader, "load", lambda: pytest.fail("LiteLLM was loaded")
    )
    for provider in (
        name for name, endpoint in ENDPOINTS.items() if endpoint.self_hosted
    ):
        ChatModel(
            f"{provider}/ours",
            Connection("key", "https://gw.example/v1"),
            ENDPOINTS[provider],
        ).load_prices()
    ChatModel(
        "openai/gpt-4o", Connection("key"), ENDPOINTS["openai"]
    ).load_prices()
    ChatModel(
        "openai/ours",
        Connection("key", "http://localhost/v1"),
        ENDPOINTS["openai"],
    ).load_prices()
    with monkeypatch.context() as patch:
        patch.setenv("PODWRIGHT_MODEL_BASE_URL", "http://localhost/v1")
        resolve("openai/also-ours").load_prices()
    with pytest.raises(pytest.fail.Exception):
        ChatModel(
            "openai/ours", Connection("key"), ENDPOINTS["openai"]
        ).load_prices()


@pytest.mark.parametrize("model", ["openai/gpt-5", "openai/nobody-knows-it"])
def test_both_clients_give_the_same_cost(model: str) -> None:
    """A model costs the same with either client, and in a look-up."""
    usage = Usage(12_345, 6_789, 2_345, 789)
    cost = lookup(model, usage)
    models = [
        ChatModel(model, Connection("key"), ENDPOINTS["openai"]),
        LiteLLMModel(model, Connection("key")),
    ]
    prices = [client.cost(usage) for client in models]
    assert prices == [cost and cost.amount] * 2


@pytest.mark.parametrize(
    "model",
    ["openai/no-such-model", "nobody/gpt-4o", "hosted_vllm/gpt-4o", "offline/echo", "gpt-4o", "", "/", "openai/",
     "litellm/gpt-4o", "ollama/llama3", "gigachat/GigaChat-2"],
)  # fmt: skip
def test_an_unknown_price_is_none(model: str) -> None:
    """A model that no source prices costs None, never 0; neither does one whose price LiteLLM gives as 0."""
    litellm_loader.load()
    assert lookup(model, Usage(1000, 1000)) is None


def write_prices(
    path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_text(text)
    monkeypatch.setenv(VARIABLE, str(path))


@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_the_operators_file_comes_first(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A price in the file wins, 0 included; models that are not in it are looked up elsewhere."""
    entries = {
        "openai/gpt-4o": {
            "input": 3,
            "output": 7.5,
            "cached_input": 0.1,
            "reasoning": 9,
        },
        "anthropic/ours": {
            "input": 3,
            "output": 7.5,
            "cached_input": 0.1,
            "cache_write": 4,
        },
        "hosted_vllm/ours": {"input": 1e-6, "output": 2},
        "ollama/llama3": {"input": 0, "output": 0},
    }
    write_prices(
        tmp_path / f"prices.{suffix}", json.dumps(entries), monkeypatch
    )
    usage = Usage(1_000_000, 1_000_000, 400_000, 100_000)
    assert lookup("openai/gpt-4o", usage) == Cost(
        0.6 * 3 + 0.4 * 0.1 + 0.9 * 7.5 + 0.1 * 9, "override"
    )
    assert lookup("hosted_vllm/ours", usage) == Cost(2.000001, "override")
    usage = replace(usage, cache_write_tokens=500_000)
    assert lookup("anthropic/ours", usage) == Cost(
        0.1 * 3 + 0.4 * 0.1 + 0.5 * 4 + 7.5, "override"
    )
    assert lookup("openai/gpt-4o", usage) == Cost(
        0.6 * 3 + 0.4 * 0.1 + 0.9 * 7.5 + 0.1 * 9, "override"
    )
    assert lookup("ollama/llama3", usage) == Cost(0.0, "override")
    assert lookup("openai/gpt-4o-mini", usage) == Cost(
        genai("openai", "gpt-4o-mini", usage), "genai-prices"
    )


def test_the_file_is_read_every_minute(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A changed price is valid from the next call that begins in another minute of the clock."""
    write_prices(
        tmp_path / "prices.json",
        '{"a/b": {"input": 1, "output": 1}}',
        monkeypatch,
    )
    monkeypatch.setattr(time, "time", lambda: 6_000.0)
    assert lookup("a/b", Usage(1_000_000)) == Cost(1.0, "override")
    write_prices(
        tmp_path / "prices.json",
        '{"a/b": {"input": 2, "output": 1}}',
        monkeypatch,
    )
    pricing.load("a/b")
    assert lookup("a/b", Usage(1_000_000)) == Cost(1.0, "override")
    monkeypatch.setattr(time, "time", lambda: 6_060.0)
    assert lookup("a/b", Usage(1_000_000)) == Cost(1.0, "override")
    pricing.load("a/b")
    assert lookup("a/b", Usage(1_000_000)) == Cost(2.0, "override")
    write_prices(tmp_path / "prices.json", '{"a/b": {"inp', monkeypatch)
    monkeypatch.setattr(time, "time", lambda: 6_120.0)
    pricing.load("a/b")
    assert lookup("a/b", Usage(1_000_000)) == Cost(2.0, "override"), (
        "a file that has become invalid stops no call"
    )
    assert "The previous prices stay valid." in caplog.text


@pytest.mark.parametrize(
    ("text", "pointers"),
    [
        ("{", []),
        ("[]", []),
        ('{"a/b": 3}', ["/a~1b"]),
        ('{"a/b": {"input": 1}}', ["/a~1b"]),
        (
            '{"a/b": {"input": -1, "output": "free"}}',
            ["/a~1b/input", "/a~1b/output"],
        ),
        ('{"a/b": {"input": 1, "output": true}}', ["/a~1b/output"]),
        ('{"a/b": {"input": 1, "output": NaN}}', []),
        (
            '{"a/b": {"input": 1, "output": 1, "cached": 1}}',
            ["/a~1b/cached", "Did you mean 'cached_input'?"],
        ),
    ],
)
def test_an_invalid_file_is_an_error(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    pointers: list[str],
) -> None:
    """Everything that is wrong in the file is one error with the file, the variable and the places."""
    write_prices(tmp_path / "prices.json", text, monkeypatch)
    with pytest.raises(ConfigurationError) as caught:
        lookup("openai/gpt-4o", Usage(1))
    for part in [*pointers, str(tmp_path), VARIABLE]:
        assert part in caught.value.message


def test_prices_depend_on_the_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that is cheaper at night is charged by the clock, though prices are cached."""
    by_hour = [
        f"{provider.id}/{model.id}"
        for provider in get_snapshot().providers
        for model in provider.models
        if isinstance(model.prices, list)
        and any(
            isinstance(price.constraint, TimeOfDateConstraint)
            for price in model.prices
        )
        and provider.id in ("deepseek", "openrouter")
    ]
    real = time.time()
    costs = set[Any]()
    for hour in range(24):
        monkeypatch.setattr(time, "time", lambda hour=hour: real + hour * 3600)
        costs.add(lookup(by_hour[0], Usage(1_000_000, 1_000_000)))
    assert len(costs) > 1


def test_what_each_list_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All lists that know a model are shown, the one that counts first; rates of long requests where they differ."""
    (tmp_path / "prices.json").write_text(
        '{"openai/gpt-4o": {"input": 1, "output": 2, "cached_input": 0.5}}'
    )
    monkeypatch.setenv(VARIABLE, str(tmp_path / "prices.json"))
    own, listed, *_ = listed_prices("openai/gpt-4o")
    assert (own.source, own.version) == (
        "override",
        str(tmp_path / "prices.json"),
    )
    assert own.rates == {
        "input": 1,
        "cached_input": 0.5,
        "cache_write": 1,
        "cache_write_1h": 1,
        "output": 2,
        "reasoning": 2,
    }
    assert (listed.source, listed.rates["input"], listed.long_rates) == (
        "genai-prices",
        2.5,
        {},
    )
    claude = listed_prices("anthropic/claude-sonnet-4-5")[0]
    assert (claude.rates["cache_write"], claude.rates["cache_write_1h"]) == (
        3.75,
        6,
    )
    assert claude.long_rates["input"] == 6
    assert listed_prices("hosted_vllm/ours") == []


def test_the_prices_of_models_that_people_use() -> None:
    """Those of more than a hundred names are what their vendors say, or the difference is explained."""
    table = prices()
    assert len(table) > 100
    assert [price for price in table if price.differs != bool(price.why)] == []


TIERED = {
    "input": 1,
    "output": 10,
    "tiers": [{"above": 100_000, "input": 3}, {"above": 10_000, "input": 2}],
}


def test_names_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model has the price of its name, else of the longest pattern; an alias takes that of another model."""
    entries: dict[str, Any] = {
        "hosted_vllm/*": {"input": 1, "output": 1},
        "hosted_vllm/large-*": {"input": 2, "output": 2},
        "hosted_vllm/large-best": {"input": 3, "output": 3},
        "azure/prod": {"as": "openai/gpt-4o"},
        "gateway/*": {"as": "openai/*"},
        "mine/*": {"as": "hosted_vllm/large-*"},
        "own/a*": {"input": 4, "output": 4},
        "own/*b": {"input": 5, "output": 5},
    }
    write_prices(tmp_path / "prices.json", json.dumps(entries), monkeypatch)
    million = Usage(1_000_000)
    expected = {
        "hosted_vllm/a": Cost(1.0, "override"),
        "hosted_vllm/large-a": Cost(2.0, "override"),
        "hosted_vllm/large-best": Cost(3.0, "override"),
        "azure/prod": Cost(2.5, "genai-prices"),
        "gateway/gpt-4o-mini": Cost(0.15, "genai-prices"),
        "mine/best": Cost(3.0, "override"),
        "own/ab": Cost(5.0, "override"),
        "openai/gpt-4o-mini": None,
    }
    assert {
        model: lookup(model, million, at_vendor=False) for model in expected
    } == expected
    assert lookup("openai/gpt-4o-mini", million) == Cost(0.15, "genai-prices")
    over_reported = (
        "hosted_vllm/a",
        "azure/prod",
        "gateway/gpt-4o",
        "openai/x",
    )
    costs = [
        pricing.own_price(model, million, PLAIN, time.time())
        for model in over_reported
    ]
    assert [cost is not None for cost in costs] == [True, True, False, False], (
        "a pattern of aliases is no price"
    )


def test_tiers_and_further_rates_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long requests, service tiers, audio and searches have their rates; what has none is not shown as known."""
    further = {
        "input_audio": 5,
        "searches": 10,
        "service_tiers": {"flex": {"input": 0.5}},
    }
    write_prices(
        tmp_path / "prices.json",
        json.dumps({"a/b": TIERED | further, "a/c": TIERED}),
        monkeypatch,
    )

    def cost(
        model: str, tokens: int, audio: int = 0, **terms: Any
    ) -> Cost | None:
        usage = Usage(tokens, input_audio_tokens=audio)
        return lookup(model, usage, Terms(**terms))

    assert cost("a/b", 10_000) == Cost(0.01, "override")
    assert cost("a/b", 20_000) == Cost(0.04, "override")
    assert cost("a/b", 200_000) == Cost(0.6, "override")
    assert cost("a/b", 10_000, service_tier="flex") == Cost(0.005, "override")
    assert cost("a/b", 10_000, service_tier="default") == Cost(0.01, "override")
    assert cost("a/b", 10_000, audio=4_000) == Cost(0.026, "override")
    assert cost("a/b", 10_000, searches=2) == Cost(0.03, "override")
    assert cost("a/c", 10_000, searches=2) == Cost(
        0.01, "override", is_complete=False
    )
    assert cost("a/c", 10_000, service_tier="flex") == Cost(
        0.01, "override", is_complete=False
    )
    assert cost("a/c", 10_000, speed="fast") == Cost(
        0.01, "override", is_complete=False
    )


def test_tiers_of_the_lists() -> None:
    """Priority and flex have the rates of the lists, and a tier that they do not know is not shown as known."""
    million = Usage(1_000_000)

    def at(tier: str, model: str = "openai/gpt-5") -> Cost | None:
        return lookup(model, million, Terms(service_tier=tier))

    assert at("") == at("default") == Cost(1.25, "genai-prices")
    assert at("priority") == Cost(2.5, "genai-prices")
    assert at("flex") == Cost(0.625, "genai-prices")
    assert at("unheard-of") == Cost(1.25, "genai-prices", is_complete=False)
    flash = "dashscope/qwen-flash"
    usual = at("", flash)
    assert usual
    assert at("priority", flash) == replace(usual, is_complete=False)
    searched = lookup(
        "anthropic/claude-sonnet-4-5", Usage(1_000_000), Terms(searches=1_000)
    )
    assert searched == Cost(16.0, "genai-prices"), (
        "ten dollars for a thousand searches, six for a long request"
    )


@pytest.mark.parametrize(
    ("asked", "answered", "usd"),
    [
        ("openai/gpt-4o", "gpt-4o-2024-05-13", 5.0),
        ("openai/gpt-4o", "m-1", 2.5),
        ("openrouter/auto", "openai/gpt-4o", 2.5),
        ("openrouter/auto", "openrouter/openai/gpt-4o", 2.5),
        ("azure/our-deployment", "gpt-4.1-2025-04-14", 2.0),
        ("azure/our-deployment", "", None),
    ],
)
def test_the_model_that_answered_sets_the_price(
    asked: str, answered: str, usd: float | None
) -> None:
    """Where a list knows it; otherwise the one that was asked does."""
    cost = lookup(asked, Usage(1_000_000), Terms(model=answered))
    assert (cost and cost.amount) == usd


def test_a_name_counts_more_than_a_pattern(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The price of the model that was asked, before a pattern that fits the dated name of the one that answered."""
    entries: dict[str, Any] = {
        "openai/gpt-4o": {
            "input": 2,
            "output": 8,
            "service_tiers": {"priority": {"input": 4}},
        },
        "openai/*": {"as": "openai/*"},
        "openai/gpt-4o-2024-05-13": {"input": 7, "output": 8},
    }
    write_prices(tmp_path / "prices.json", json.dumps(entries), monkeypatch)
    million = Usage(1_000_000)
    assert lookup(
        "openai/gpt-4o", million, Terms(model="gpt-4o-2024-08-06")
    ) == Cost(2.0, "override")
    assert lookup(
        "openai/gpt-4o", million, Terms(model="gpt-4o-2024-05-13")
    ) == Cost(7.0, "override")
    routed = Terms(model="my-router-pick", service_tier="priority")
    assert lookup("openai/gpt-4o", million, routed) == Cost(4.0, "override")
    odd = lookup(
        "openai/gpt-4o",
        million,
        Terms(model="my-router-pick", service_tier="odd"),
    )
    assert odd == Cost(2.0, "override", is_complete=False)
    assert lookup(
        "openai/gpt-4.1", million, Terms(model="my-router-pick")
    ) == Cost(2.0, "genai-prices")


def test_long_requests_of_a_service_tier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service tier may have rates for long requests; without them their cost is not shown as known."""
    tiers = [{"above": 1000, "input": 20}]
    fast = {"input": 4, "tiers": [{"above": 1000, "input": 40}]}
    entry = {
        "input": 2,
        "output": 8,
        "tiers": tiers,
        "service_tiers": {"priority": {"input": 4}, "fast": fast},
    }
    write_prices(
        tmp_path / "prices.json", json.dumps({"a/b": entry}), monkeypatch
    )

    def cost(tokens: int, tier: str) -> Cost | None:
        return lookup("a/b", Usage(tokens), Terms(service_tier=tier))

    assert cost(1000, "priority") == Cost(0.004, "override")
    assert cost(2000, "priority") == Cost(0.008, "override", is_complete=False)
    assert cost(2000, "fast") == Cost(0.08, "override")


def test_audio_without_a_rate_is_not_shown_as_known() -> None:
    """Neither where a list has no rate of it, nor where it cannot take cached audio apart."""
    usage = Usage(1000, 1000, input_audio_tokens=100, output_audio_tokens=100)
    text_only = lookup("openai/gpt-4o", usage)
    assert text_only
    assert not text_only.is_complete
    cached = lookup(
        "vertex_ai/gemini-2.5-flash",
        Usage(1000, 10, 400, input_audio_tokens=100),
    )
    assert cached
    assert not cached.is_complete


@pytest.mark.parametrize(
    "terms",
    [
        Terms(speed="standard"),
        Terms(region="global"),
        Terms(service_tier="standard"),
    ],
)
def test_what_is_usual(terms: Terms) -> None:
    """It changes no price, with either list."""
    for model in ("anthropic/claude-sonnet-4-5", "dashscope/qwen-plus"):
        assert lookup(model, Usage(1000, 10), terms) == lookup(
            model, Usage(1000, 10)
        )


def test_a_region_has_a_price_of_its_own() -> None:
    """One that no list knows."""
    cost = lookup(
        "anthropic/claude-opus-4-6", Usage(1000, 10), Terms(region="us")
    )
    assert cost
    assert not cost.is_complete


@pytest.mark.parametrize(
    ("asked", "file", "is_asked"),
    [
        ("openai/gpt-4o", {"*": {"as": "*"}}, False),
        ("openai/ours", {"openai/ours": {"input": 1, "output": 1}}, False),
        ("openai/ours", {"openai/*": {"as": "openai/*"}}, True),
        ("openai/gpt-4o", {"openai/gpt-4o": {"as": "dashscope/qwen-plus"}}, True),
        ("", {"*": {"as": "*"}}, False),
    ],
)  # fmt: skip
def test_the_model_that_is_asked_for_decides_about_litellm(
    asked: str, file: Any, is_asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LiteLLM is loaded before a call if nothing else has the price of the model, and never by a look-up after it."""
    loads: list[str] = []
    monkeypatch.setattr(litellm_loader, "installed", lambda: True)
    monkeypatch.setattr(litellm_loader, "loaded", lambda: None)
    monkeypatch.setattr(litellm_loader, "load", lambda: loads.append(asked))
    monkeypatch.setenv(VARIABLE, json.dumps(file))
    pricing.load(asked)
    assert bool(loads) is is_asked
    loads.clear()
    lookup(asked, Usage(1000), Terms(model="nobody-knows-it"))
    assert not loads


def test_an_alias_of_the_file_counts_before_a_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A model costs what LiteLLM says of its alias, also if genai-prices knows the model itself."""
    litellm_loader.load()
    alias = {"openai/gpt-4o": {"as": "dashscope/qwen-plus"}}
    monkeypatch.setenv(VARIABLE, json.dumps(alias))
    cost = lookup("openai/gpt-4o", Usage(1_000_000))
    assert cost is not None
    assert cost.source == "litellm"


def test_a_model_without_prices_loads_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not even where a file has list prices for all models."""
    monkeypatch.setattr(
        litellm_loader, "load", lambda: pytest.fail("LiteLLM was loaded")
    )
    monkeypatch.setenv(VARIABLE, '{"*": {"as": "*"}}')
    model = resolve("offline/echo")
    model.load_prices()
    asyncio.run(model.prepare())
    assert model.has_price()


@pytest.mark.parametrize("loaded", [False, True])
def test_a_price_does_not_depend_on_what_is_loaded(loaded: bool) -> None:
    """A model that genai-prices knows has its price, also if LiteLLM is loaded and knows the name that answered."""
    if loaded:
        litellm_loader.load()
    cost = lookup("openai/gpt-4o", Usage(1_000_000), Terms(model="dall-e-3"))
    assert cost == Cost(2.5, "genai-prices")


@pytest.mark.parametrize(
    ("provider", "url", "expected"),
    [
        ("openai", "https://api.openai.com/v1", True),
        ("openai", "http://api.openai.com/v1", False),
        ("openai", "https://eu.api.openai.com/v1", False),
        ("openai", "https://api.openai.com.evil.example/v1", False),
        ("azure", "https://ours.openai.azure.com/openai/v1", True),
        ("azure", "https://gw.example/openai/v1", False),
        ("xai", "https://us-east-1.api.x.ai/v1", True),
        ("hosted_vllm", "https://gw.example/v1", False),
        ("mine", "https://gw.example/v1", False),
        ("openai", "", False),
    ],
)
def test_whose_server_it_is(provider: str, url: str, expected: bool) -> None:
    """List prices hold at the hosts of the vendor, and there over https."""
    assert is_vendors(provider, url) == expected


def test_prices_of_no_model_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An entry that fits no model here may be misspelt."""
    entries = {
        "openai/gtp-4o": {"input": 1, "output": 1},
        "openai/*": {"as": "openai/*"},
        "x/y": {"as": "a/b"},
        "a/b": {"input": 1, "output": 1},
    }
    write_prices(tmp_path / "prices.json", json.dumps(entries), monkeypatch)
    problems = pricing.operators_file().unused(["openai/gpt-4o"])
    assert [problem.pointer for problem in problems] == [
        "/a~1b",
        "/openai~1gtp-4o",
        "/x~1y",
    ]
    assert "gpt-4o" in problems[1].suggestion
    assert [
        problem.pointer
        for problem in pricing.operators_file().unused(["x/y", "openai/a"])
    ] == ["/openai~1gtp-4o"]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ('{"input": 1e400, "output": 1}', "prices.json"),
        ('{"input": "1e400", "output": 1}', "less than 1000000000"),
        ('{"as": "gpt-4o"}', "/a~1b/as: Expected the name of a model"),
        ('{"as": "openai/*"}', "one '*'"),
        ('{"input": 1, "outptu": 1}', "Missing key 'output'"),
        ('{"as": "a/c", "input": 1}', "no other keys"),
        (
            '{"input": 1, "output": 1, "tiers": [{"input": 2}]}',
            "/a~1b/tiers/0: Missing key 'above'",
        ),
        (
            '{"input": 1, "output": 1, "service_tiers": {"flex": {"inputs": 2}}}',
            "Did you mean 'input'?",
        ),
    ],
)
def test_what_is_wrong_in_an_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str, message: str
) -> None:
    """Each mistake has its place."""
    write_prices(tmp_path / "prices.json", f'{{"a/b": {entry}}}', monkeypatch)
    with pytest.raises(ConfigurationError) as caught:
        lookup("a/b", Usage(1))
    assert message in caught.value.message


def test_prices_in_the_variable_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no file can be mounted; mistakes have their places as well."""
    monkeypatch.setenv(VARIABLE, ' {"a/*": {"input": 1, "output": 2}}')
    assert lookup("a/b", Usage(1_000_000)) == Cost(1.0, "override")
    monkeypatch.setenv(VARIABLE, '{"a/*": {"input": 1}}')
    forget_settings()
    with pytest.raises(ConfigurationError, match="Missing key 'output'"):
        lookup("a/b", Usage(1))
