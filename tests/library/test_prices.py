"""The price of a model call: as the sources say it, to the last digit, and unknown where they do not."""

import json
import subprocess
import sys
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import genai_prices
import pytest

from podwright.errors import ConfigurationError
from podwright.messages import ModelRequest
from podwright.models import Connection, pricing
from podwright.models.litellm import LiteLLMModel
from podwright.models.openai_compatible import ChatModel
from podwright.models.pricing import Cost, lookup
from podwright.usage import Usage

FIREWORKS = "fireworks_ai/accounts/fireworks/models/llama-v3p1-8b-instruct"
BY_GENAI = {
    "openai/gpt-4o": ("openai", "gpt-4o"),
    "openai/gpt-4o-mini": ("openai", "gpt-4o-mini"),
    "openai/gpt-4.1": ("openai", "gpt-4.1"),
    "openai/gpt-5": ("openai", "gpt-5"),
    "openai/gpt-5-mini": ("openai", "gpt-5-mini"),
    "openai/o3": ("openai", "o3"),
    "openai/responses/gpt-5-nano": ("openai", "gpt-5-nano"),
    "anthropic/claude-sonnet-4-5": ("anthropic", "claude-sonnet-4-5"),
    "anthropic/claude-haiku-4-5": ("anthropic", "claude-haiku-4-5"),
    "anthropic/claude-opus-4-1": ("anthropic", "claude-opus-4-1"),
    "gemini/gemini-2.5-pro": ("google", "gemini-2.5-pro"),
    "gemini/gemini-2.5-flash": ("google", "gemini-2.5-flash"),
    "vertex_ai/gemini-2.0-flash": ("google", "gemini-2.0-flash"),
    "vertex_ai/claude-sonnet-4-5@20250929": ("google", "claude-sonnet-4-5@20250929"),
    "bedrock/anthropic.claude-3-5-sonnet-20241022-v2:0": ("aws", "anthropic.claude-3-5-sonnet-20241022-v2:0"),
    "bedrock/run_chat/us.amazon.nova-pro-v1:0": ("aws", "us.amazon.nova-pro-v1:0"),
    "azure/gpt-4o": ("azure", "gpt-4o"),
    "azure_ai/gpt-4.1-mini": ("azure", "gpt-4.1-mini"),
    "mistral/mistral-large-latest": ("mistral", "mistral-large-latest"),
    "groq/llama-3.3-70b-versatile": ("groq", "llama-3.3-70b-versatile"),
    "deepseek/deepseek-chat": ("deepseek", "deepseek-chat"),
    "xai/grok-4": ("x-ai", "grok-4"),
    "together_ai/meta-llama/Llama-3.3-70B-Instruct-Turbo": ("together", "meta-llama/Llama-3.3-70B-Instruct-Turbo"),
    FIREWORKS: ("fireworks", FIREWORKS.partition("/")[2]),
    "openrouter/anthropic/claude-3.5-sonnet": ("openrouter", "anthropic/claude-3.5-sonnet"),
    "openrouter/openai/gpt-4o": ("openrouter", "openai/gpt-4o"),
    "perplexity/sonar": ("perplexity", "sonar"),
    "perplexity/sonar-deep-research": ("perplexity", "sonar-deep-research"),
    "cohere/command-r-plus": ("cohere", "command-r-plus"),
    "cerebras/llama3.1-8b": ("cerebras", "llama3.1-8b"),
    "moonshot/kimi-k2-thinking": ("moonshotai", "kimi-k2-thinking"),
}
BY_LITELLM = [
    "deepinfra/meta-llama/Llama-3.3-70B-Instruct",
    "dashscope/qwen-plus-latest",
    "dashscope/qwen-flash",
    "hyperbolic/meta-llama/Llama-3.3-70B-Instruct",
    "sambanova/Meta-Llama-3.3-70B-Instruct",
    "lambda_ai/llama3.3-70b-instruct-fp8",
    "nscale/meta-llama/Llama-3.3-70B-Instruct",
    "azure/eu/gpt-4o-2024-08-06",
    "oci/xai.grok-4",
    "snowflake/claude-3-5-sonnet",
    "watsonx/ibm/granite-3-8b-instruct",
]
USAGES = [
    Usage(1_000, 200, 0, 0),
    Usage(12_345, 6_789, 2_345, 789),
    Usage(300_001, 999, 250_000, 998),
    Usage(7, 0, 7, 0),
]


def genai(provider: str, name: str, usage: Usage) -> Decimal:
    counts = genai_prices.Usage(
        input_tokens=usage.input_tokens,
        cache_read_tokens=usage.cached_input_tokens,
        output_tokens=usage.output_tokens,
        output_reasoning_tokens=usage.reasoning_tokens,
    )
    return genai_prices.calc_price(counts, name, provider_id=provider).total_price


@pytest.mark.parametrize("model", BY_GENAI)
def test_a_cost_is_that_of_genai_prices(model: str) -> None:
    """Where genai-prices knows a model, our cost is its own, with cached and reasoning tokens and above thresholds."""
    for usage in USAGES:
        found = lookup(model, usage)
        assert found
        assert found.source == "genai-prices"
        assert found.amount == pytest.approx(float(genai(*BY_GENAI[model], usage)), abs=1e-9, rel=0)


@pytest.fixture(scope="module")
def litellm() -> Any:
    from podwright.models import litellm as lane

    return lane._litellm()


@pytest.mark.parametrize("model", BY_LITELLM)
def test_a_cost_is_that_of_litellm(model: str, litellm: Any) -> None:
    """Where only LiteLLM's map knows a model, our cost is LiteLLM's own, though LiteLLM was not asked."""
    for usage in USAGES:
        counts = litellm.Usage(
            prompt_tokens=usage.input_tokens,
            completion_tokens=usage.output_tokens,
            total_tokens=usage.total_tokens,
            prompt_tokens_details={"cached_tokens": usage.cached_input_tokens},
            completion_tokens_details={"reasoning_tokens": usage.reasoning_tokens},
        )
        theirs = sum(litellm.cost_per_token(model=model, usage_object=counts))
        found = lookup(model, usage)
        assert found
        assert found.source == "litellm"
        assert found.amount == pytest.approx(theirs, abs=1e-9, rel=0)


def test_the_table_has_forty_models() -> None:
    """The two tests above cover at least 40 models."""
    assert len(BY_GENAI) + len(BY_LITELLM) >= 40


@pytest.mark.parametrize("model", ["openai/gpt-5", "mistral/mistral-large-latest", "openai/nobody-knows-it"])
def test_both_lanes_give_the_same_cost(model: str) -> None:
    """A model costs the same through the direct lane, through LiteLLM, and in a look-up."""
    usage = Usage(12_345, 6_789, 2_345, 789)
    found = lookup(model, usage)
    direct, wide = (kind(model, Connection("key")).price(usage) for kind in (ChatModel, LiteLLMModel))
    assert direct == wide == (found and found.amount)


@pytest.mark.parametrize(
    "model",
    [
        "openai/no-such-model", "nobody/gpt-4o", "hosted_vllm/gpt-4o", "offline/echo", "gpt-4o", "", "/", "openai/",
        "litellm/gpt-4o", "ollama/llama3", "gigachat/GigaChat-2",
    ],
)  # fmt: skip
def test_an_unknown_price_is_none(model: str) -> None:
    """A model that no source prices costs None, never 0; neither does one whose price LiteLLM gives as 0."""
    assert lookup(model, Usage(1000, 1000)) is None


def test_the_sum_of_costs_is_exact() -> None:
    """Costs are whole steps of 1e-12 USD, so sums agree in every order."""
    costs = [lookup("openai/gpt-4o", Usage(n * 7919 % 10**6, n * 104729 % 10**5)) for n in range(200)]
    usages = [Usage(cost=cost.amount) for cost in costs if cost]
    exact = sum((Decimal(str(usage.cost)) for usage in usages), Decimal(0))
    for order in (usages, usages[::-1], sorted(usages, key=lambda usage: usage.cost or 0)):
        assert Decimal(str(sum(order, Usage()).cost)) == exact


def priced_by(path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text(text)
    monkeypatch.setenv(pricing.VARIABLE, str(path))


def test_a_file_stands_over_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A price in the operator's file wins, 0 included; the models that it leaves out are looked up elsewhere."""
    entries = {
        "openai/gpt-4o": {"input": 3, "output": 7.5, "cached_input": 0.1, "reasoning": 9},
        "hosted_vllm/ours": {"input": 1e-6, "output": 2},
        "ollama/llama3": {"input": 0, "output": 0},
    }
    for suffix, text in ((".json", json.dumps(entries)), (".yaml", json.dumps(entries))):
        priced_by(tmp_path / f"prices{suffix}", text, monkeypatch)
        usage = Usage(1_000_000, 1_000_000, 400_000, 100_000)
        assert lookup("openai/gpt-4o", usage) == Cost(0.6 * 3 + 0.4 * 0.1 + 0.9 * 7.5 + 0.1 * 9, "override")
        assert lookup("hosted_vllm/ours", usage) == Cost(2.000001, "override")
        assert lookup("ollama/llama3", usage) == Cost(0.0, "override")
        assert lookup("openai/gpt-4o-mini", usage) == Cost(float(genai("openai", "gpt-4o-mini", usage)), "genai-prices")
    assert list(pricing.version()) == ["override", "genai-prices", "litellm"]
    assert pricing.version()["override"].startswith("sha256:")


def test_a_file_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A price that changes in the file holds from the next minute of the clock."""
    priced_by(tmp_path / "prices.json", '{"a/b": {"input": 1, "output": 1}}', monkeypatch)
    monkeypatch.setattr(time, "time", lambda: 6_000.0)
    assert lookup("a/b", Usage(1_000_000)) == Cost(1.0, "override")
    priced_by(tmp_path / "prices.json", '{"a/b": {"input": 2, "output": 1}}', monkeypatch)
    assert lookup("a/b", Usage(1_000_000)) == Cost(1.0, "override")
    monkeypatch.setattr(time, "time", lambda: 6_060.0)
    assert lookup("a/b", Usage(1_000_000)) == Cost(2.0, "override")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not JSON"),
        ('{"a/b": {}, "a/b": {}}', "'a/b' stands twice"),
        ("[]", "at ''"),
        ('{"a/b": 3}', "at '/a~1b'"),
        ('{"a/b": {"input": 1}}', "at '/a~1b/output'"),
        ('{"a/b": {"input": 1, "output": -1}}', "at '/a~1b/output'"),
        ('{"a/b": {"input": 1, "output": "free"}}', "at '/a~1b/output'"),
        ('{"a/b": {"input": 1, "output": true}}', "at '/a~1b/output'"),
        ('{"a/b": {"input": 1, "output": NaN}}', "NaN"),
        ('{"a/b": {"input": 1, "output": 1, "cached": 1}}', "at '/a~1b/cached'"),
    ],
)
def test_a_wrong_file_is_refused_by_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str
) -> None:
    """Whatever is wrong in the file is one error that names the file, the variable and the place."""
    priced_by(tmp_path / "prices.json", text, monkeypatch)
    with pytest.raises(ConfigurationError) as caught:
        lookup("openai/gpt-4o", Usage(1))
    assert says in caught.value.message
    assert str(tmp_path) in caught.value.message
    assert pricing.VARIABLE in caught.value.message


def test_a_missing_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is not there is an error, not a run at other prices."""
    monkeypatch.setenv(pricing.VARIABLE, str(tmp_path / "none.json"))
    for ask in (lambda: lookup("openai/gpt-4o", Usage(1)), pricing.version):
        with pytest.raises(ConfigurationError, match=r"Cannot read .*none\.json"):
            ask()


def test_prices_change_with_the_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that is cheaper at night is charged by the clock, though prices are remembered."""
    from genai_prices.data import providers
    from genai_prices.types import TimeOfDateConstraint

    usage = Usage(1_000_000, 1_000_000)
    by_hour = [
        (provider, model)
        for provider in providers
        for model in provider.models
        if isinstance(model.prices, list)
        and any(isinstance(one.constraint, TimeOfDateConstraint) for one in model.prices)
        and provider.id in ("deepseek", "openrouter")
    ]
    assert by_hour
    provider, model = by_hour[0]
    name = f"{provider.id}/{model.id}"
    real, amounts = time.time(), set[float]()
    for hour in range(24):
        monkeypatch.setattr(time, "time", lambda hour=hour: real + hour * 3600)
        found = lookup(name, usage)
        assert found
        amounts.add(found.amount)
    assert len(amounts) > 1


def test_nothing_is_imported_before_it_is_needed() -> None:
    """The package imports no price tables, and a look-up neither LiteLLM nor a client; but who wants one has it."""
    code = """
import sys, podwright
assert "genai_prices" not in sys.modules
from podwright.models import pricing
from podwright.usage import Usage
assert pricing.lookup("deepinfra/meta-llama/Llama-3.3-70B-Instruct", Usage(1)).source == "litellm"
assert "genai_prices" in sys.modules
assert not {"litellm", "httpx2"} & set(sys.modules)
from genai_prices import UpdatePrices
assert UpdatePrices().request_timeout is not None
assert "httpx2" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_model_of_unknown_price_is_refused_under_a_cost_limit() -> None:
    """With a cost limit, a model without a price is not called at all."""
    import podwright

    asked: list[ModelRequest] = []

    class Unpriced(podwright.FunctionModel):
        def price(self, usage: Usage) -> float | None:
            cost = lookup("nobody/knows", usage)
            return cost and cost.amount

    agent = podwright.Agent(
        "poet",
        "Write.",
        model=Unpriced(lambda request: asked.append(request) or "x"),
        limits=podwright.RunLimits(cost=1),
    )
    with pytest.raises(podwright.errors.LimitExceededError, match="price is unknown"):
        agent.run("go")
    assert not asked
