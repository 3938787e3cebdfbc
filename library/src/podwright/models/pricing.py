"""What model calls cost, with either client.

The operator's file (`PODWRIGHT_PRICES`) comes first, then genai-prices, then LiteLLM's own price list if LiteLLM is
loaded. A price that none of them knows is unknown, never 0.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, get_args

from annotated_types import Ge
from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from podwright.blueprints.files import read_data
from podwright.errors import ConfigurationError
from podwright.models import litellm_loader
from podwright.models.providers import ANY, ENDPOINTS, PRICE_NAMES
from podwright.usage import Usage
from podwright.validation_errors import to_problems

VARIABLE = "PODWRIGHT_PRICES"
"""The environment variable that names the operator's file, which is read again every minute."""
_log = logging.getLogger("podwright.models")
_valid_rates: dict[str, Mapping[str, _Rates]] = {}
"""The last valid content of each price file."""

Source = Literal["override", "genai-prices", "litellm"]
SOURCES: tuple[Source, ...] = get_args(Source)
"""The lists, in the order in which they count."""

_API = re.compile(r"^(converse|invoke|responses)/")
"""The provider's API, with which some model names begin; it does not change the price."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a model call costs."""

    amount: float
    """USD."""
    source: Source
    """`override` (the operator's file), `genai-prices` or `litellm`."""


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


def lookup(model: str, usage: Usage) -> Cost | None:
    """What `usage` costs; None if the price is unknown.

    The first call of a process reads price tables: see `warm`.

    Args:
        model: "<provider>/<model_name>", as a blueprint names it.
        usage: The tokens of one call; cached input is a part of the input, reasoning a part of the output.

    Raises:
        ConfigurationError: The operator's file cannot be read, or is invalid.
    """
    sent, produced = usage.input_tokens, usage.output_tokens
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
    return _lookup(model, tokens, os.environ.get(VARIABLE, ""), int(time.time() // 60))


def is_overridden(model: str) -> bool:
    """Whether the operator's file has a price of the model, which then counts more than what a provider reports."""
    file = os.environ.get(VARIABLE, "")
    return bool(file) and model in _read_file(file, int(time.time() // 60))


def cost(model: str, usage: Usage) -> float | None:
    """What `usage` costs in USD; None if the price is unknown. Otherwise as `lookup`."""
    return priced.amount if (priced := lookup(model, usage)) else None


def warm(model: str, *, at_vendor: bool = True) -> None:
    """Read the tables that know the price of a model. Takes up to seconds; on an event loop, call it in a thread.

    LiteLLM is imported for this only if genai-prices does not know the model of a vendor.

    Args:
        model: As in `lookup`.
        at_vendor: Whether the model is called at the vendor's own endpoint, for which list prices hold.

    Raises:
        ConfigurationError: As `lookup`.
    """
    at_vendor = at_vendor and not os.environ.get("PODWRIGHT_MODEL_BASE_URL")
    endpoint = ENDPOINTS.get(model.partition("/")[0])
    has_list_price = at_vendor and endpoint is not None and not endpoint.self_hosted
    if lookup(model, Usage(1, 1)) is None and has_list_price and litellm_loader.installed():
        litellm_loader.load()
        _lookup.cache_clear()


# Some prices depend on the time of day and the file may change, so a result is valid for one minute.
@lru_cache(maxsize=4096)
def _lookup(model: str, tokens: Tokens, file: str, minute: int) -> Cost | None:
    for source in SOURCES:
        amount = cost_in_list(source, model, tokens, datetime.fromtimestamp(minute * 60, UTC), file)
        if amount is not None:
            return Cost(amount, source)
    return None


def cost_in_list(source: Source, model: str, tokens: Tokens, now: datetime, file: str | None = None) -> float | None:
    """What tokens cost by one of the lists, in USD; None if it does not know the model.

    Args:
        source: The list.
        model: As in `lookup`.
        tokens: The tokens of one call.
        now: The time of the call: some prices depend on it.
        file: The path of the operator's file; by default that of the environment.

    Raises:
        ConfigurationError: As `lookup`.
    """
    match source:
        case "override":
            path = os.environ.get(VARIABLE, "") if file is None else file
            rates = _read_file(path, int(now.timestamp() // 60)).get(model) if path else None
            return None if rates is None else _from_rates(rates, tokens)
        case "genai-prices":
            return _from_genai_prices(model, tokens, now)
        case "litellm":
            return _from_litellm(model, tokens)


@with_config(ConfigDict(extra="forbid"))
class _Rates(TypedDict):
    """A model in the operator's file, in USD per million tokens."""

    input: Annotated[Decimal, Ge(0)]
    output: Annotated[Decimal, Ge(0)]
    cached_input: NotRequired[Annotated[Decimal, Ge(0)]]
    cache_write: NotRequired[Annotated[Decimal, Ge(0)]]
    cache_write_1h: NotRequired[Annotated[Decimal, Ge(0)]]
    reasoning: NotRequired[Annotated[Decimal, Ge(0)]]


_KEYS = ", ".join([*sorted(_Rates.__required_keys__), *(f"{key}?" for key in sorted(_Rates.__optional_keys__))])


@lru_cache(maxsize=1)
def _read_file(file: str, minute: int) -> Mapping[str, _Rates]:
    try:
        _valid_rates[file] = _parse_file(file)
    except ConfigurationError as error:
        if file not in _valid_rates:
            raise
        _log.error("%s The previous prices stay valid.", error.message)
    return _valid_rates[file]


def _parse_file(file: str) -> Mapping[str, _Rates]:
    data: Any = None
    try:
        data = read_data(file)
        return TypeAdapter(dict[str, _Rates]).validate_python(data)
    except ConfigurationError as error:
        details = "; ".join([error.message, *error.details()])
    except ValidationError as error:
        problems = to_problems(error.errors(), data, lambda _: _Rates.__annotations__)
        details = "; ".join(map(str, problems))
    raise ConfigurationError(
        f"Invalid price file '{file}' ({VARIABLE}): {details}",
        suggestion=f"Write {{model: {{{_KEYS}}}}} in USD per million tokens.",
    )


def _from_rates(rates: _Rates, tokens: Tokens) -> float:
    cache_write = rates.get("cache_write", rates["input"])
    per_million = (
        (tokens.input - tokens.cached - tokens.cache_write) * rates["input"]
        + (tokens.cache_write - tokens.cache_write_1h) * cache_write
        + tokens.cache_write_1h * rates.get("cache_write_1h", cache_write)
        + tokens.cached * rates.get("cached_input", rates["input"])
        + (tokens.output - tokens.reasoning) * rates["output"]
        + tokens.reasoning * rates.get("reasoning", rates["output"])
    )
    return float(per_million / 10**6)


def _from_genai_prices(model: str, tokens: Tokens, now: datetime) -> float | None:
    import genai_prices  # takes a third of a second, which models without a price do not need

    provider, _, name = model.partition("/")
    provider = PRICE_NAMES.get(provider, provider)
    usage = genai_prices.Usage(
        input_tokens=tokens.input,
        cache_read_tokens=tokens.cached,
        cache_write_tokens=tokens.cache_write,
        # most providers have no price of it
        **({"cache_write_1h_tokens": tokens.cache_write_1h} if tokens.cache_write_1h else {}),
        output_tokens=tokens.output,
        output_reasoning_tokens=tokens.reasoning,
    )
    try:
        result = genai_prices.calc_price(usage, _API.sub("", name), provider_id=provider, genai_request_timestamp=now)
    except LookupError:
        return None
    rates = result.model_price
    # its search also accepts names that only resemble a provider's id
    unknown = result.provider.id != provider or rates.input_mtok is None or rates.output_mtok is None
    return None if unknown else float(result.total_price)


def _from_litellm(model: str, tokens: Tokens) -> float | None:
    litellm = litellm_loader.loaded()
    if litellm is None or "/" not in model or ENDPOINTS.get(model.partition("/")[0], ANY).self_hosted:
        return None
    try:
        parts = litellm.cost_per_token(
            model=model,
            prompt_tokens=tokens.input,
            completion_tokens=tokens.output,
            cache_read_input_tokens=tokens.cached,
            cache_creation_input_tokens=tokens.cache_write,
        )
    except Exception:  # noqa: BLE001 - LiteLLM raises several classes for a model that it does not know
        return None
    return float(sum(parts)) or None  # with LiteLLM, 0 may also mean that the price is unknown
