"""What model calls cost, with either client.

The operator's file (`PODWRIGHT_PRICES`) comes first, then genai-prices, then LiteLLM's own price list if LiteLLM is
installed and genai-prices does not know the model. A price that none of them knows is unknown, never 0. On servers of
the operator's own only the file counts.

`load` reads files and imports packages, which takes up to seconds; the other functions use what is loaded.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast, get_args

from podwright.data.json_data import JsonObject
from podwright.messages.usage import Usage
from podwright.models import litellm_loader
from podwright.models.prices.price_file import (
    EMPTY,
    Entry,
    PriceFile,
    Rates,
    TieredRates,
    current_prices,
    is_current,
    refresh_prices,
)
from podwright.models.providers import PRICE_NAMES
from podwright.settings import current_settings

if TYPE_CHECKING:
    from genai_prices.types import PriceCalculation

Source = Literal["override", "genai-prices", "litellm"]
SOURCES: tuple[Source, ...] = get_args(Source)
"""The lists, in the order in which they count."""
_LISTS: tuple[Source, ...] = ("genai-prices", "litellm")
"""The published lists."""
_ONE_CALL = Usage(input_tokens=1, output_tokens=1)

_API = re.compile(r"^(converse|invoke|responses)/")
"""The provider's API, with which some model names begin; it does not change the price."""
_USUAL = (
    "",
    "auto",
    "default",
    "global",
    "not_available",
    "on_demand",
    "standard",
)
"""Conditions under which the usual price holds."""
_FREE = Decimal(0)


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

    input: int = 0
    cached: int = 0
    """The cached part of `input`."""
    output: int = 0
    reasoning: int = 0
    """The reasoning part of `output`."""
    cache_write: int = 0
    """The part of `input` that is written to the cache; no token is both read and written."""
    cache_write_1h: int = 0
    """The part of `cache_write` that is kept for an hour."""
    input_audio: int = 0
    """The part of `input` that is audio, and neither read from the cache nor written to it."""
    output_audio: int = 0
    """The part of `output` that is audio, and no reasoning."""


class Terms(NamedTuple):
    """What the price of a call depends on, besides the counts of text and the model that was asked for."""

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
        return {
            name: value for name, value in named.items() if value not in _USUAL
        }


def lookup(
    model: str,
    usage: Usage,
    terms: Terms = PLAIN,
    *,
    at_vendor: bool = True,
    at: float | None = None,
) -> Cost | None:
    """What `usage` costs; None if the price is unknown. Call `load` before.

    LiteLLM's list counts only if neither the file nor genai-prices knows the model that was asked for, whatever the
    name of the one that answered.

    Args:
        model: "<provider>/<model_name>", as a blueprint names it. The price of the model that answered counts more.
        usage: The tokens of one call; cached input is a part of the input, reasoning a part of the output.
        terms: What else the price depends on.
        at_vendor: Whether the vendor itself was called, for which list prices hold.
        at: When the call began, as Unix time in seconds; by default now.

    Raises:
        ConfigurationError: The operator's file cannot be read, or is invalid.
    """
    if at is None:
        at = time.time()
    prices = operators_file()
    lists = _LISTS[:1]
    if litellm_loader.loaded() and _needs_litellm(model, prices, at_vendor):
        lists = _LISTS
    return _lookup(
        model,
        _tokens(usage),
        terms,
        prices=prices,
        lists=lists,
        minute=int(at // 60),
        at_vendor=at_vendor,
    )


async def prepare(model: str = "", *, at_vendor: bool = True) -> None:
    """Call `load` in a thread, unless it has nothing to do.

    Raises:
        ConfigurationError: As `load`.
    """
    if not _is_loaded(model, at_vendor=at_vendor):
        await asyncio.to_thread(load, model, at_vendor=at_vendor)


def load(model: str = "", *, at_vendor: bool = True) -> None:
    """Load what `lookup` needs, and read the operator's file again if a minute has passed.

    Takes up to seconds for the first model that genai-prices does not know, because LiteLLM is imported: on an event
    loop, call `prepare`.

    Args:
        model: "<provider>/<model_name>"; empty for all that genai-prices knows.
        at_vendor: As in `lookup`.

    Raises:
        ConfigurationError: As `lookup`.
    """
    refresh_operators_file()
    prices = operators_file()
    entry, _ = _in_file(prices, model)
    if prices.has_aliases or (at_vendor and entry is None):
        # the first look-up imports the tables
        _from_genai_prices("openai/gpt-4o", _usual_call())
    if _needs_litellm(model, prices, at_vendor) and litellm_loader.installed():
        litellm_loader.load()
    _loaded[model, at_vendor] = prices


_loaded: dict[tuple[str, bool], PriceFile] = {}
"""The content of the operator's file with which `load` was called last, by its arguments."""


def _is_loaded(model: str, *, at_vendor: bool) -> bool:
    """Whether `load` has nothing to do."""
    if not is_current(current_settings().prices):
        return False
    prices = operators_file()
    if prices is EMPTY and not at_vendor:
        return True
    return _loaded.get((model, at_vendor)) is prices


@lru_cache(maxsize=4096)
def _needs_litellm(model: str, prices: PriceFile, at_vendor: bool) -> bool:
    """Whether a list may have the price of a model, and genai-prices does not."""
    if "/" not in model:
        return False
    entry, names = _in_file(prices, model)
    if not names:
        if entry is not None or not at_vendor:
            return False
        names = [model]
    return _from_lists(_LISTS[:1], names, _usual_call()) is None


def _usual_call() -> _Call:
    """A call at the usual price, now."""
    now = datetime.fromtimestamp(time.time(), UTC)
    return _Call(_tokens(_ONE_CALL), PLAIN, now)


def _tokens(usage: Usage) -> Tokens:
    """The counts of one call; none is larger than the count that it is a part of."""
    sent = usage.input_tokens
    produced = usage.output_tokens
    cached = min(usage.cached_input_tokens, sent)
    written = min(usage.cache_write_tokens, sent - cached)
    reasoning = min(usage.reasoning_tokens, produced)
    return Tokens(
        input=sent,
        cached=cached,
        output=produced,
        reasoning=reasoning,
        cache_write=written,
        cache_write_1h=min(usage.cache_write_1h_tokens, written),
        input_audio=min(usage.input_audio_tokens, sent - cached - written),
        output_audio=min(usage.output_audio_tokens, produced - reasoning),
    )


def cost(model: str, usage: Usage, *, at_vendor: bool = True) -> float | None:
    """What `usage` costs in USD at the usual price; None if the price is unknown. Otherwise as `lookup`."""
    priced = lookup(model, usage, at_vendor=at_vendor)
    if priced is None:
        return None
    return priced.amount


@lru_cache(maxsize=4096)
def context_window(model: str) -> int | None:
    """Return the tokens that a request and its answer may have together, as genai-prices knows them; None if unknown.

    Args:
        model: "<provider>/<model_name>", as a blueprint names it.
    """
    # see `_from_genai_prices`
    import genai_prices

    provider, _, name = model.partition("/")
    provider = PRICE_NAMES.get(provider, provider)
    try:
        result = genai_prices.calc_price(
            genai_prices.Usage(), _API.sub("", name), provider_id=provider
        )
    except LookupError:
        return None
    if result.provider.id != provider:
        return None
    return result.model.context_window


def own_price(model: str, usage: Usage, terms: Terms, at: float) -> Cost | None:
    """What `usage` costs by the operator's file, where that counts more than what a provider reports.

    That is for models whose rates it has, and for aliases that are not patterns. Otherwise as `lookup`.
    """
    names = _names(model, terms)
    match = next(operators_file().find(*names), None)
    if match is None:
        return None
    if match.entry is None and not match.is_exact:
        return None
    return lookup(model, usage, terms, at_vendor=False, at=at)


def operators_file() -> PriceFile:
    """The content of the operator's file when it was last read; empty if there is none.

    Raises:
        ConfigurationError: As `lookup`.
    """
    return current_prices(current_settings().prices)


def refresh_operators_file() -> None:
    """Read the operator's price file again if a minute has passed; on an event loop, call this in a thread.

    Raises:
        ConfigurationError: As `lookup`.
    """
    refresh_prices(current_settings().prices)


# Some prices depend on the time of day, so a result is valid for one minute.
@lru_cache(maxsize=4096)
def _lookup(
    model: str,
    tokens: Tokens,
    terms: Terms,
    prices: PriceFile,
    lists: Sequence[Source],
    minute: int,
    at_vendor: bool,
) -> Cost | None:
    began = datetime.fromtimestamp(minute * 60, UTC)
    call = _Call(tokens, terms, began)
    names = _names(model, terms)
    cost = _from_file(prices, names, lists, call)
    if cost is None and at_vendor:
        cost = _from_lists(lists, names, call)
    return cost


def _names(model: str, terms: Terms) -> tuple[str, ...]:
    """The names of a model, that of the one that answered first."""
    if not terms.model:
        return (model,)
    # some providers name the model with themselves in front of it
    provider = model.partition("/")[0]
    answered = terms.model
    if not answered.startswith(f"{provider}/"):
        answered = f"{provider}/{answered}"
    if answered == model:
        return (model,)
    return answered, model


def _in_file(prices: PriceFile, *names: str) -> tuple[Entry | None, list[str]]:
    """The first rates that the operator's file has of these names, and the aliases that count before them."""
    aliases: list[str] = []
    for match in prices.find(*names):
        if match.entry is not None:
            return match.entry, aliases
        aliases.append(match.alias)
    return None, aliases


def _from_file(
    prices: PriceFile,
    names: Sequence[str],
    lists: Sequence[Source],
    call: _Call,
) -> Cost | None:
    """What a call costs by the operator's file, which may send it on to the lists."""
    entry, aliases = _in_file(prices, *names)
    cost = _from_lists(lists, aliases, call)
    if cost is None and entry is not None:
        return _from_entry(entry, call)
    return cost


def _from_lists(
    lists: Sequence[Source], names: Sequence[str], call: _Call
) -> Cost | None:
    """What a call costs by these lists, of the first of these names that one knows."""
    for source in lists:
        for name in names:
            cost = _from_list(source, name, call)
            if cost is not None:
                return cost
    return None


def _from_list(source: Source, name: str, call: _Call) -> Cost | None:
    if source == "genai-prices":
        return _from_genai_prices(name, call)
    return _from_litellm(name, call)


def cost_in_list(
    source: Source,
    model: str,
    tokens: Tokens,
    now: datetime,
) -> float | None:
    """What tokens cost by one of the lists, in USD; None if it does not know the model, or is not loaded.

    Args:
        source: The list.
        model: As in `lookup`.
        tokens: The tokens of one call.
        now: The time of the call: some prices depend on it.

    Raises:
        ConfigurationError: As `lookup`.
    """
    call = _Call(tokens, PLAIN, now)
    if source == "override":
        cost = _from_file(operators_file(), [model], _LISTS, call)
    else:
        cost = _from_list(source, model, call)
    if cost is None:
        return None
    return cost.amount


def _from_entry(entry: Entry, call: _Call) -> Cost:
    """What a call costs by the operator's file."""
    tokens = call.tokens
    terms = call.terms
    conditions = call.conditions()
    tier_name = conditions.pop("service_tier", "")
    service_tier = entry.get("service_tiers", {}).get(tier_name)
    is_complete = not conditions
    if tier_name and service_tier is None:
        is_complete = False
    rates = _long_rates(entry, tokens.input)
    if service_tier is not None:
        is_long = rates != {**entry}
        if is_long and "tiers" not in service_tier:
            is_complete = False
        rates |= _long_rates(service_tier, tokens.input)
    if terms.searches and "searches" not in rates:
        is_complete = False
    amount = _by_rates(cast("Rates", rates), tokens, terms)
    return Cost(float(amount), "override", is_complete)


def _long_rates(rates: TieredRates, input_tokens: int) -> JsonObject:
    """The rates that hold for a request of this length."""
    found = cast("JsonObject", {**rates})
    for tier in sorted(rates.get("tiers", ()), key=itemgetter("above")):
        if input_tokens > tier["above"]:
            found |= tier
    return found


def _by_rates(rates: Rates, tokens: Tokens, terms: Terms) -> Decimal:
    """USD; a kind of tokens without a rate of its own has that of the input, or of the output."""
    input_rate = rates.get("input", _FREE)
    output_rate = rates.get("output", _FREE)
    cache_write = rates.get("cache_write", input_rate)
    cache_write_1h = rates.get("cache_write_1h", cache_write)
    cached_input = rates.get("cached_input", input_rate)
    input_audio = rates.get("input_audio", input_rate)
    reasoning = rates.get("reasoning", output_rate)
    output_audio = rates.get("output_audio", output_rate)
    searches = rates.get("searches", _FREE)

    plain_input = (
        tokens.input - tokens.cached - tokens.cache_write - tokens.input_audio
    )
    plain_output = tokens.output - tokens.reasoning - tokens.output_audio
    short_cache_write = tokens.cache_write - tokens.cache_write_1h
    per_million = plain_input * input_rate
    per_million += short_cache_write * cache_write
    per_million += tokens.cache_write_1h * cache_write_1h
    per_million += tokens.cached * cached_input
    per_million += tokens.input_audio * input_audio
    per_million += plain_output * output_rate
    per_million += tokens.reasoning * reasoning
    per_million += tokens.output_audio * output_audio
    per_thousand = terms.searches * searches
    return per_million / 1_000_000 + per_thousand / 1_000


def _from_genai_prices(model: str, call: _Call) -> Cost | None:
    # takes a third of a second, which models without a price do not need
    import genai_prices

    provider, _, name = model.partition("/")
    provider = PRICE_NAMES.get(provider, provider)
    try:
        result = genai_prices.calc_price(
            genai_prices.Usage(**_genai_counts(call)),
            _API.sub("", name),
            provider_id=provider,
            genai_request_timestamp=call.at,
            price_context=call.conditions(),
        )
    except LookupError:
        return None
    except ValueError:
        # a combination of counts that it cannot take apart, such as audio and cached input
        if not (call.tokens.input_audio or call.tokens.output_audio):
            raise
        return _from_genai_prices_without_audio(model, call)
    # its search also accepts names that only resemble a provider's id
    if result.provider.id != provider:
        return None
    rates = result.model_price
    if rates.input_mtok is None or rates.output_mtok is None:
        return None
    is_complete = _has_conditions(result, call) and _has_rates(result, call)
    return Cost(float(result.total_price), "genai-prices", is_complete)


def _from_genai_prices_without_audio(model: str, call: _Call) -> Cost | None:
    tokens = call.tokens._replace(input_audio=0, output_audio=0)
    cost = _from_genai_prices(model, call._replace(tokens=tokens))
    if cost is None:
        return None
    return replace(cost, is_complete=False)


def _genai_counts(call: _Call) -> dict[str, int]:
    """The counts as genai-prices names them."""
    tokens = call.tokens
    terms = call.terms
    counts = {
        "input_tokens": tokens.input,
        "cache_read_tokens": tokens.cached,
        "cache_write_tokens": tokens.cache_write,
        "output_tokens": tokens.output,
        "output_reasoning_tokens": tokens.reasoning,
    }
    # most providers have no price of these
    rare = {
        "cache_write_1h_tokens": tokens.cache_write_1h,
        "input_audio_tokens": tokens.input_audio,
        "output_audio_tokens": tokens.output_audio,
        "web_searches": terms.searches,
    }
    used = {name: count for name, count in rare.items() if count}
    return counts | used


def _has_conditions(result: PriceCalculation, call: _Call) -> bool:
    """Whether genai-prices has prices for all conditions of a call."""
    variants = [variant.when for variant in result.model.price_variants or ()]
    for name, value in call.conditions().items():
        if not any(when.get(name) == value for when in variants):
            return False
    return True


def _has_rates(result: PriceCalculation, call: _Call) -> bool:
    """Whether genai-prices has the rates of all that few calls use."""
    rates = result.model_price
    tokens = call.tokens
    used = (
        (call.terms.searches, rates.web_searches_kcount),
        (tokens.input_audio, rates.input_audio_mtok),
        (tokens.output_audio, rates.output_audio_mtok),
    )
    for count, rate in used:
        if count and rate is None:
            return False
    return True


def _from_litellm(model: str, call: _Call) -> Cost | None:
    litellm = litellm_loader.loaded()
    if "/" not in model or litellm is None:
        return None
    conditions = call.conditions()
    tier = conditions.pop("service_tier", "")
    usage = _litellm_usage(litellm, call)
    try:
        facts: JsonObject = {**litellm.get_model_info(model)}
        parts = litellm.cost_per_token(
            model=model,
            prompt_tokens=call.tokens.input,
            completion_tokens=call.tokens.output,
            usage_object=usage,
            service_tier=tier or None,
        )
    except Exception:  # noqa: BLE001 - LiteLLM raises several classes for a model that it does not know
        return None
    amount = float(sum(parts))
    has_rate = facts.get("input_cost_per_token") or facts.get(
        "output_cost_per_token"
    )
    if not amount and not has_rate:
        return None  # with LiteLLM, 0 may also mean that the price is unknown
    is_complete = not conditions and not call.terms.searches
    if tier and facts.get(f"input_cost_per_token_{tier}") is None:
        is_complete = False
    return Cost(amount, "litellm", is_complete)


def _litellm_usage(litellm: Any, call: _Call) -> Any:
    """The counts as LiteLLM takes them."""
    tokens = call.tokens
    return litellm.Usage(
        prompt_tokens=tokens.input,
        completion_tokens=tokens.output,
        total_tokens=tokens.input + tokens.output,
        prompt_tokens_details={
            "cached_tokens": tokens.cached,
            "cache_creation_tokens": tokens.cache_write,
            "audio_tokens": tokens.input_audio,
            "cache_creation_token_details": {
                "ephemeral_5m_input_tokens": tokens.cache_write
                - tokens.cache_write_1h,
                "ephemeral_1h_input_tokens": tokens.cache_write_1h,
            },
        },
        completion_tokens_details={
            "reasoning_tokens": tokens.reasoning,
            "audio_tokens": tokens.output_audio,
        },
        cache_read_input_tokens=tokens.cached,
        cache_creation_input_tokens=tokens.cache_write,
    )
