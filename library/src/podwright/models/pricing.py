"""What model calls cost, with either client.

The operator's file (`PODWRIGHT_PRICES`) comes first, then genai-prices, then LiteLLM's own price list if LiteLLM is
installed and genai-prices does not know the model. A price that none of them knows is unknown, never 0. On servers of
the operator's own only the file counts.
"""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, Literal, NamedTuple, cast, get_args

from podwright.models import litellm_loader
from podwright.models.price_file import (
    VARIABLE,
    Entry,
    PriceFile,
    Rates,
    TieredRates,
    read_prices,
)
from podwright.models.providers import PRICE_NAMES
from podwright.usage import Usage

Source = Literal["override", "genai-prices", "litellm"]
SOURCES: tuple[Source, ...] = get_args(Source)
"""The lists, in the order in which they count."""
_LISTS: tuple[Source, ...] = ("genai-prices", "litellm")
"""Those that are published."""

_API = re.compile(r"^(converse|invoke|responses)/")
"""The provider's API, with which some model names begin; it does not change the price."""
_USUAL = ("", "auto", "default", "global", "not_available", "on_demand", "standard")
"""Conditions under which the usual price holds."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a model call costs."""

    amount: float
    """USD."""
    source: Source
    """`override` (the operator's file), `genai-prices` or `litellm`."""
    is_complete: bool = True
    """Whether it is all of the cost: otherwise something that the call used has no known price."""


class Tokens(NamedTuple):
    """The tokens of one call."""

    input: int
    cached: int
    """The cached part of `input`."""
    output: int
    reasoning: int
    """The reasoning part of `output`."""
    cache_write: int
    """The part of `input` that is written to the cache; no token is both read and written."""
    cache_write_1h: int
    """The part of `cache_write` that is kept for an hour."""


class Terms(NamedTuple):
    """What the price of a call depends on, besides the tokens and the model that was asked for."""

    model: str = ""
    """The model that answered, in the provider's words; empty if it is not known."""
    service_tier: str = ""
    """The service tier that served it, such as `priority` or `flex`."""
    speed: str = ""
    """The speed that served it: `fast` has another price at Anthropic."""
    region: str = ""
    """The region of the inference: `us` has another price at Anthropic."""
    searches: int = 0
    """Searches of the web that the provider made."""
    input_audio: int = 0
    """Part of the input tokens: audio."""
    output_audio: int = 0
    """Part of the output tokens: audio."""


PLAIN = Terms()
"""A call at the usual price."""


class _Call(NamedTuple):
    tokens: Tokens
    terms: Terms
    at: datetime
    """When it began."""

    def conditions(self) -> dict[str, str]:
        """The conditions that have a price of their own."""
        named = {
            "service_tier": self.terms.service_tier,
            "speed": self.terms.speed,
            "inference_geo": self.terms.region,
        }
        return {name: value for name, value in named.items() if value not in _USUAL}


class _Amount(NamedTuple):
    usd: float
    is_complete: bool


def lookup(
    model: str,
    usage: Usage,
    terms: Terms = PLAIN,
    *,
    at_vendor: bool = True,
    at: float | None = None,
) -> Cost | None:
    """What `usage` costs; None if the price is unknown.

    Takes up to seconds for the first model of a process that genai-prices does not know, because LiteLLM is imported:
    on an event loop, call it in a thread.

    Args:
        model: "<provider>/<model_name>", as a blueprint names it. The price of the model that answered counts more.
        usage: The tokens of one call; cached input is a part of the input, reasoning a part of the output.
        terms: What else the price depends on.
        at_vendor: Whether the vendor itself was called, for which list prices hold.
        at: When the call began, as Unix time in seconds; by default now.

    Raises:
        ConfigurationError: The operator's file cannot be read, or is invalid.
    """
    sent = usage.input_tokens
    produced = usage.output_tokens
    cached = min(usage.cached_input_tokens, sent)
    written = min(usage.cache_write_tokens, sent - cached)
    tokens = Tokens(
        sent,
        cached,
        produced,
        min(usage.reasoning_tokens, produced),
        written,
        min(usage.cache_write_1h_tokens, written),
    )
    minute = int((time.time() if at is None else at) // 60)
    return _lookup(model, tokens, terms, operators_file(), minute, at_vendor)


def cost(model: str, usage: Usage, *, at_vendor: bool = True) -> float | None:
    """What `usage` costs in USD at the usual price; None if the price is unknown. Otherwise as `lookup`."""
    priced = lookup(model, usage, at_vendor=at_vendor)
    return priced.amount if priced else None


def own_price(model: str, usage: Usage, terms: Terms, at: float) -> Cost | None:
    """What `usage` costs by the operator's file, where that counts more than what a provider reports.

    That is for models whose rates it has, and for aliases that are no patterns. Otherwise as `lookup`.
    """
    names = _names(model, terms)
    matches = list(operators_file().find(*names))
    if not any(match.entry is not None or match.is_exact for match in matches[:1]):
        return None
    return lookup(model, usage, terms, at_vendor=False, at=at)


def operators_file() -> PriceFile:
    """The content of the operator's file now; empty if there is none.

    Raises:
        ConfigurationError: As `lookup`.
    """
    return read_prices(os.environ.get(VARIABLE, ""), int(time.time() // 60))


# Some prices depend on the time of day and the file may change, so a result is valid for one minute.
@lru_cache(maxsize=4096)
def _lookup(
    model: str,
    tokens: Tokens,
    terms: Terms,
    prices: PriceFile,
    minute: int,
    at_vendor: bool,
) -> Cost | None:
    call = _Call(tokens, terms, datetime.fromtimestamp(minute * 60, UTC))
    names = _names(model, terms)
    cost = _from_file(prices, *names, call=call)
    if cost is None and at_vendor:
        cost = _from_lists(*names, call=call)
    return cost


def _names(model: str, terms: Terms) -> tuple[str, ...]:
    """The names of a model, that of the one that answered first."""
    if not terms.model:
        return (model,)
    # some providers name the model with themselves in front of it
    provider = model.partition("/")[0]
    answered = f"{provider}/{terms.model.removeprefix(f'{provider}/')}"
    return (model,) if answered == model else (answered, model)


def _from_file(prices: PriceFile, *names: str, call: _Call) -> Cost | None:
    """What a call costs by the operator's file, which may send it on to the lists."""
    for match in prices.find(*names):
        if match.entry is not None:
            return _cost(_from_entry(match.entry, call), "override")
        cost = _from_lists(match.alias, call=call)
        if cost is not None:
            return cost
    return None


def _from_lists(*names: str, call: _Call) -> Cost | None:
    """What a call costs by the published lists, of the first of these names that one knows."""
    for source in _LISTS:
        for name in names:
            amount = _from_list(source, name, call)
            if amount is not None:
                return _cost(amount, source)
    return None


def _cost(amount: _Amount, source: Source) -> Cost:
    return Cost(amount.usd, source, amount.is_complete)


def _from_list(source: Source, name: str, call: _Call) -> _Amount | None:
    return (
        _from_genai_prices(name, call)
        if source == "genai-prices"
        else _from_litellm(name, call)
    )


def cost_in_list(
    source: Source, model: str, tokens: Tokens, now: datetime
) -> float | None:
    """What tokens cost by one of the lists, in USD; None if it does not know the model.

    Args:
        source: The list.
        model: As in `lookup`.
        tokens: The tokens of one call.
        now: The time of the call: some prices depend on it.

    Raises:
        ConfigurationError: As `lookup`.
    """
    call = _Call(tokens, PLAIN, now)
    if source != "override":
        amount = _from_list(source, model, call)
        return None if amount is None else amount.usd
    cost = _from_file(operators_file(), model, call=call)
    return None if cost is None else cost.amount


def _from_entry(entry: Entry, call: _Call) -> _Amount:
    """What a call costs by the operator's file."""
    tokens = call.tokens
    terms = call.terms
    conditions = call.conditions()
    service_tier = entry.get("service_tiers", {}).get(
        conditions.pop("service_tier", "")
    )
    is_complete = not conditions and (
        service_tier is not None or "service_tier" not in call.conditions()
    )
    rates = _long_rates(entry, tokens.input)
    if service_tier is not None:
        is_long = rates != {**entry}
        if is_long and "tiers" not in service_tier:
            is_complete = False
        rates |= _long_rates(service_tier, tokens.input)
    if terms.searches and "searches" not in rates:
        is_complete = False
    return _Amount(float(_by_rates(cast("Rates", rates), tokens, terms)), is_complete)


def _long_rates(rates: TieredRates, input_tokens: int) -> dict[str, Any]:
    """The rates that hold for a request of this length."""
    found = cast("dict[str, Any]", {**rates})
    for tier in sorted(rates.get("tiers", ()), key=lambda tier: tier["above"]):
        if input_tokens > tier["above"]:
            found |= tier
    return found


def _by_rates(rates: Rates, tokens: Tokens, terms: Terms) -> Decimal:
    sent = rates.get("input", Decimal(0))
    produced = rates.get("output", Decimal(0))
    cache_write = rates.get("cache_write", sent)
    per_million = (
        (tokens.input - tokens.cached - tokens.cache_write - terms.input_audio) * sent
        + (tokens.cache_write - tokens.cache_write_1h) * cache_write
        + tokens.cache_write_1h * rates.get("cache_write_1h", cache_write)
        + tokens.cached * rates.get("cached_input", sent)
        + terms.input_audio * rates.get("input_audio", sent)
        + (tokens.output - tokens.reasoning - terms.output_audio) * produced
        + tokens.reasoning * rates.get("reasoning", produced)
        + terms.output_audio * rates.get("output_audio", produced)
    )
    return (
        per_million / 10**6 + terms.searches * rates.get("searches", Decimal(0)) / 1000
    )


def _from_genai_prices(model: str, call: _Call) -> _Amount | None:
    # takes a third of a second, which models without a price do not need
    import genai_prices

    provider, _, name = model.partition("/")
    provider = PRICE_NAMES.get(provider, provider)
    tokens = call.tokens
    terms = call.terms
    counts = {
        "input_tokens": tokens.input,
        "cache_read_tokens": tokens.cached,
        "cache_write_tokens": tokens.cache_write,
        "output_tokens": tokens.output,
        "output_reasoning_tokens": tokens.reasoning,
    }
    rare = {
        "cache_write_1h_tokens": tokens.cache_write_1h,
        "input_audio_tokens": terms.input_audio,
        "output_audio_tokens": terms.output_audio,
        "web_searches": terms.searches,
    }
    # most providers have no price of these
    counts |= {name: count for name, count in rare.items() if count}
    conditions = call.conditions()
    try:
        result = genai_prices.calc_price(
            genai_prices.Usage(**counts),
            _API.sub("", name),
            provider_id=provider,
            genai_request_timestamp=call.at,
            price_context=conditions,
        )
    except LookupError:
        return None
    except ValueError:
        # a combination of counts that it cannot take apart, such as audio and cached input
        if not (terms.input_audio or terms.output_audio):
            raise
        plain = call._replace(terms=terms._replace(input_audio=0, output_audio=0))
        amount = _from_genai_prices(model, plain)
        return amount and amount._replace(is_complete=False)
    rates = result.model_price
    # its search also accepts names that only resemble a provider's id
    if (
        result.provider.id != provider
        or rates.input_mtok is None
        or rates.output_mtok is None
    ):
        return None
    variants = [variant.when for variant in result.model.price_variants or ()]
    is_complete = all(
        any(when.get(name) == value for when in variants)
        for name, value in conditions.items()
    )
    unpriced = (
        (rates.web_searches_kcount, terms.searches),
        (rates.input_audio_mtok, terms.input_audio),
        (rates.output_audio_mtok, terms.output_audio),
    )
    if any(count and rate is None for rate, count in unpriced):
        is_complete = False
    return _Amount(float(result.total_price), is_complete)


def _from_litellm(model: str, call: _Call) -> _Amount | None:
    if "/" not in model or not litellm_loader.installed():
        return None
    litellm = litellm_loader.load()
    tokens = call.tokens
    terms = call.terms
    conditions = call.conditions()
    tier = conditions.get("service_tier", "")
    usage = litellm.Usage(
        prompt_tokens=tokens.input,
        completion_tokens=tokens.output,
        total_tokens=tokens.input + tokens.output,
        prompt_tokens_details={
            "cached_tokens": tokens.cached,
            "cache_creation_tokens": tokens.cache_write,
            "audio_tokens": terms.input_audio,
            "cache_creation_token_details": {
                "ephemeral_5m_input_tokens": tokens.cache_write - tokens.cache_write_1h,
                "ephemeral_1h_input_tokens": tokens.cache_write_1h,
            },
        },
        completion_tokens_details={
            "reasoning_tokens": tokens.reasoning,
            "audio_tokens": terms.output_audio,
        },
        cache_read_input_tokens=tokens.cached,
        cache_creation_input_tokens=tokens.cache_write,
    )
    try:
        facts: dict[str, Any] = {**litellm.get_model_info(model)}
        parts = litellm.cost_per_token(
            model=model,
            prompt_tokens=tokens.input,
            completion_tokens=tokens.output,
            usage_object=usage,
            service_tier=tier or None,
        )
    except Exception:  # noqa: BLE001 - LiteLLM raises several classes for a model that it does not know
        return None
    amount = float(sum(parts))
    if not amount and not (
        facts.get("input_cost_per_token") or facts.get("output_cost_per_token")
    ):
        return None  # with LiteLLM, 0 may also mean that the price is unknown
    has_tier = not tier or facts.get(f"input_cost_per_token_{tier}") is not None
    has_others = bool(conditions.keys() - {"service_tier"})
    return _Amount(amount, has_tier and not has_others and not terms.searches)
