"""What a model call costs: one source for every lane, so the same tokens cost the same whoever carried them.

An operator's file stands over all (`PODWRIGHT_PRICES`), then genai-prices, then the price map that LiteLLM brings,
read as a file, without importing LiteLLM. A price that none of them knows is unknown, never 0.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import sys
import time
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, cast

from annotated_types import Ge
from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from podwright.blueprints import from_json, from_yaml, read_bytes
from podwright.errors import BlueprintValidationError, ConfigurationError
from podwright.json_data import json_pointer
from podwright.text import os_error_reason
from podwright.usage import Usage

Source = Literal["override", "genai-prices", "litellm", "provider"]

VARIABLE = "PODWRIGHT_PRICES"
"""The environment variable that names the operator's file; it is looked at again every minute."""

_IDS: Mapping[str, str] = {
    "azure_ai": "azure",
    "bedrock": "aws",
    "bedrock_converse": "aws",
    "cohere_chat": "cohere",
    "fireworks_ai": "fireworks",
    "gemini": "google",
    "meta_llama": "meta",
    "moonshot": "moonshotai",
    "together_ai": "together",
    "vertex_ai": "google",
    "voyage": "voyageai",
    "xai": "x-ai",
}
"""Providers whose name in a blueprint differs from their id in genai-prices."""

_ROUTES = re.compile(r"^(run_chat|invoke|responses)/")
"""How a call travels, which some names begin with; it does not change the price."""

_PICO = 10**12

_FILE = "model_prices_and_context_window_backup.json"
_ABOVE = re.compile(r"^(?:input_cost_per_token|output_cost_per_token|cache_read_input_token_cost)_above_(\d+)k_tokens$")
_NOT_BY_TOKEN = ("off_peak_pricing", "input_cost_per_request", "citation_cost_per_token")


@dataclass(frozen=True, slots=True)
class Cost:
    """What one model call costs."""

    amount: float
    """USD, exact to 1e-12."""
    source: Source
    """Who says so: `override` (the operator's file), `genai-prices`, `litellm`, or the `provider` in its answer."""


class _Rates(NamedTuple):
    """USD per million tokens; a part without a price of its own costs what the whole does."""

    input: Decimal | None
    cached_input: Decimal | None
    output: Decimal | None
    reasoning: Decimal | None
    thousand_calls: Decimal | None = None

    def exact(self) -> _Exact:
        """What is counted with."""
        cached = self.input if self.cached_input is None else self.cached_input
        reasoning = self.output if self.reasoning is None else self.reasoning
        tokens = (_whole(rate, 6) for rate in (self.input, cached, self.output, reasoning))
        return _Exact(_whole(self.thousand_calls, 9) or 0, *tokens)


class _Exact(NamedTuple):
    """1e-12 USD for the call, and for each token: whole numbers, where the price is one, for Decimal takes longer."""

    call: int | Decimal
    input: int | Decimal | None
    cached_input: int | Decimal | None
    output: int | Decimal | None
    reasoning: int | Decimal | None


def _whole(rate: Decimal | None, by: int) -> int | Decimal | None:
    if rate is None:
        return None
    scaled = rate.scaleb(by)
    return int(scaled) if scaled == int(scaled) else scaled


_Tiers = tuple[tuple[int, _Exact], ...]
"""The rates of a call with more input tokens than the number beside them; the highest tier first, the last from -1."""


def lookup(model: str, usage: Usage) -> Cost | None:
    """What `usage` costs with a model; None if that is not known.

    A look-up takes a few microseconds, but the first one of a process reads the tables: see `warm`.

    Args:
        model: As a blueprint names it, "<provider>/<model_name>".
        usage: The tokens of one call; cached input is a part of the input, reasoning a part of the output.

    Raises:
        ConfigurationError: The operator's file cannot be read, or something in it is wrong.
    """
    priced = _price(model, os.environ.get(VARIABLE, ""), int(time.time() // 60))
    if priced is None:
        return None
    source, tiers = priced
    sent, made = usage.input_tokens, usage.output_tokens
    tier = 0
    while sent <= tiers[tier][0]:
        tier += 1
    call, uncached, cached, plain, thought = tiers[tier][1]
    read, reasoned = min(usage.cached_input_tokens, sent), min(usage.reasoning_tokens, made)
    total = call
    for tokens, rate in ((sent - read, uncached), (read, cached), (made - reasoned, plain), (reasoned, thought)):
        if tokens:
            if rate is None:
                return None
            total += tokens * rate
    return Cost(round(total) / _PICO, source)


def warm(model: str) -> None:
    """Read the price of a model, so that `lookup` is quick from now on.

    The first call of a process imports tables, which takes about 0.2 s: on an event loop, call it in a thread.

    Raises:
        ConfigurationError: As `lookup`.
    """
    lookup(model, Usage())


def version() -> dict[str, str]:
    """The price sources in the order in which they are asked, each with its version; a file's is its digest."""
    found: dict[str, str] = {}
    path = os.environ.get(VARIABLE)
    if path:
        found["override"] = f"sha256:{hashlib.sha256(_read(path)).hexdigest()}"
    for source, package in (("genai-prices", "genai-prices"), ("litellm", "litellm")):
        try:
            found[source] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


# Some prices hold at some hours only, and a file may change: what is known is known for one minute of the clock.
@lru_cache(maxsize=512)
def _price(model: str, path: str, minute: int) -> tuple[Source, _Tiers] | None:
    if path:
        tiers = _overrides(path, _read(path)).get(model)
        if tiers:
            return "override", tiers
    provider, _, name = model.partition("/")
    name = _ROUTES.sub("", name)
    if not name:
        return None
    tiers = _from_genai_prices(_IDS.get(provider, provider), name, datetime.fromtimestamp(minute * 60, UTC))
    if tiers:
        return "genai-prices", tiers
    tiers = _from_litellm(provider, model, name)
    return ("litellm", tiers) if tiers else None


@with_config(ConfigDict(extra="forbid"))
class _Entry(TypedDict):
    """A model in the operator's file, in USD per million tokens."""

    input: Annotated[Decimal, Ge(0)]
    output: Annotated[Decimal, Ge(0)]
    cached_input: NotRequired[Annotated[Decimal, Ge(0)]]
    reasoning: NotRequired[Annotated[Decimal, Ge(0)]]


def _read(path: str) -> bytes:
    try:
        return read_bytes(path)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"Cannot read the price file '{path}' of {VARIABLE}: {os_error_reason(error)}."
        ) from error


@lru_cache(maxsize=1)
def _overrides(path: str, text: bytes) -> Mapping[str, _Tiers]:
    try:
        data = from_json(text) if path.lower().endswith(".json") else from_yaml(text)
        entries = TypeAdapter(dict[str, _Entry]).validate_python(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place, wrong = json_pointer(*first["loc"]), f"{first['msg']}."
    except BlueprintValidationError as error:
        place, wrong = "", error.problems[0].detail
    else:
        keys = ("input", "cached_input", "output", "reasoning")
        return {model: ((-1, _Rates(*(entry.get(key) for key in keys)).exact()),) for model, entry in entries.items()}
    raise ConfigurationError(
        f"The price file '{path}' of {VARIABLE} is wrong at '{place}': {wrong}",
        suggestion="Write {model: {input, output, cached_input?, reasoning?}} in USD per million tokens.",
    )


def _from_genai_prices(provider: str, name: str, now: datetime) -> _Tiers | None:
    # a third of this library's import time, and models without a price do without it
    with _on_first_use("httpx2"):  # a client that could fetch newer prices, and takes as long again; nobody asks it to
        import genai_prices
    from genai_prices.types import TieredPrices

    try:
        prices = genai_prices.calc_price(genai_prices.Usage(), name, provider_id=provider, genai_request_timestamp=now)
    except LookupError:
        return None
    if prices.provider.id != provider:  # its search also takes names that only resemble an id
        return None
    found = prices.model_price
    keys = ("input_mtok", "cache_read_mtok", "output_mtok", "output_reasoning_mtok", "requests_kcount")
    values = [cast("Decimal | TieredPrices | None", getattr(found, key)) for key in keys]
    starts = {tier.start for value in values if isinstance(value, TieredPrices) for tier in value.tiers}

    def at(value: Decimal | TieredPrices | None, start: int) -> Decimal | None:
        if not isinstance(value, TieredPrices):
            return value
        return next((tier.price for tier in reversed(value.tiers) if tier.start <= start), value.base)

    return _tiers((start, _Rates(*(at(value, start) for value in values))) for start in (-1, *starts))


class _OnFirstUse(ModuleType):
    """Stands for a module until something in it is used."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


@contextlib.contextmanager
def _on_first_use(name: str) -> Generator[None]:
    """What is imported meanwhile gets a module that is imported when it is used, and not before."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = _OnFirstUse(name)
    try:
        yield
    finally:
        del sys.modules[name]


def _tiers(tiers: Iterable[tuple[int, _Rates]]) -> _Tiers:
    return tuple(sorted(((start, rates.exact()) for start, rates in tiers), key=lambda tier: tier[0], reverse=True))


@lru_cache(maxsize=1)
def _litellm_map() -> Mapping[str, dict[str, Any]]:
    found = importlib.util.find_spec("litellm")
    for folder in (found and found.submodule_search_locations) or ():
        file = Path(folder, _FILE)
        if file.is_file():
            # as they are written, not as the nearest float
            entries: dict[str, dict[str, Any]] = json.loads(file.read_bytes(), parse_float=Decimal)
            return {name: entry for name, entry in entries.items() if "tiered_pricing" in entry or _charges(entry)}
    return {}


def _charges(entry: Mapping[str, Any]) -> bool:
    """Whether an entry asks for money: with LiteLLM, 0 may mean free and may mean unknown."""
    return bool(entry.get("input_cost_per_token") or entry.get("output_cost_per_token"))


def _from_litellm(provider: str, model: str, name: str) -> _Tiers | None:
    known = _litellm_map()
    entry = known.get(model) or known.get(f"{provider}/{name}")
    if entry is None:
        entry = known.get(name)
        if entry is None or not re.match(re.escape(provider) + r"([_-]|$)", str(entry.get("litellm_provider"))):
            return None
    if any(entry.get(key) for key in _NOT_BY_TOKEN):
        return None

    def rate(tier: Mapping[str, Any], key: str, below: Any = None) -> Decimal | None:
        value = tier.get(key, below)
        return None if value is None else Decimal(value).scaleb(6)

    def rates(tier: Mapping[str, Any], suffix: str = "") -> _Rates:
        each, cached, output = (
            rate(tier, key + suffix, tier.get(key))
            for key in ("input_cost_per_token", "cache_read_input_token_cost", "output_cost_per_token")
        )
        return _Rates(each, cached, output, rate(tier, "output_cost_per_reasoning_token"))

    by_tier = cast("list[dict[str, Any]]", entry.get("tiered_pricing") or [])
    if by_tier:
        ordered = sorted(by_tier, key=lambda tier: tier["range"][0])
        starts = [-1, *(int(tier["range"][0]) for tier in ordered[1:])]
        whole = {"output_cost_per_token": entry.get("output_cost_per_token")}
        return _tiers((start, rates({**whole, **tier})) for start, tier in zip(starts, ordered, strict=True))
    above = {int(found[1]) for key in entry if (found := _ABOVE.match(key))}
    # xAI alone charges the higher rate from the very threshold on
    reached = 1 if provider == "xai" else 0
    return _tiers([(-1, rates(entry)), *((k * 1000 - reached, rates(entry, f"_above_{k}k_tokens")) for k in above)])
