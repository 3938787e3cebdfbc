"""What each price list says of a model, for people to compare."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version

from podwright.models import litellm_loader
from podwright.models.prices.pricing import (
    SOURCES,
    Source,
    Tokens,
    cost_in_list,
)
from podwright.settings import current_settings

_SHORT = 1_000
_LONG = 1_000_000
"""Tokens of the two requests whose rates are shown: some lists have other rates for a long request."""
_COUNTS = {
    "input": ("input",),
    "cached_input": ("input", "cached"),
    "cache_write": ("input", "cache_write"),
    "cache_write_1h": ("input", "cache_write", "cache_write_1h"),
    "output": ("output",),
    "reasoning": ("output", "reasoning"),
}
"""By kind of tokens: the counts of `Tokens` that are set for a request with no other kind."""


@dataclass(frozen=True, slots=True)
class ListedPrice:
    """What a price list says of a model."""

    source: Source
    """The list: `override` is the operator's file."""
    version: str
    """The version of the list's package, or the path of the file."""
    rates: dict[str, float]
    """USD per million tokens by kind, of a request of 1 000 tokens."""
    long_rates: dict[str, float]
    """The rates that differ for a request of a million tokens."""


def list_versions() -> dict[str, str]:
    """The versions of the price lists that are installed."""
    packages = ["genai-prices"]
    if litellm_loader.installed():
        packages.append("litellm")
    return {package: version(package) for package in packages}


def listed_prices(model: str) -> list[ListedPrice]:
    """What the lists say of a model, the one that counts first. Takes seconds if LiteLLM is installed.

    Args:
        model: "<provider>/<model_name>", as a blueprint names it.

    Raises:
        ConfigurationError: The operator's file cannot be read, or is invalid.
    """
    if litellm_loader.installed():
        litellm_loader.load()
    file = current_settings().prices
    versions = {"override": file, **list_versions()}
    now = datetime.fromtimestamp(time.time(), UTC)
    found: list[ListedPrice] = []
    for source in SOURCES:
        rates = _rates(source, model, _SHORT, now)
        if rates is None:
            continue
        price = ListedPrice(
            source=source,
            version=versions.get(source, ""),
            rates=rates,
            long_rates=_differing(_rates(source, model, _LONG, now), rates),
        )
        found.append(price)
    return found


def _differing(
    rates: Mapping[str, float] | None, others: Mapping[str, float]
) -> dict[str, float]:
    """The rates that differ from others."""
    if rates is None:
        return {}
    return {kind: rate for kind, rate in rates.items() if rate != others[kind]}


def _rates(
    source: Source, model: str, count: int, now: datetime
) -> dict[str, float] | None:
    """USD per million tokens by kind; None if the list does not know the model."""
    rates: dict[str, float] = {}
    for kind, names in _COUNTS.items():
        tokens = Tokens(**dict.fromkeys(names, count))
        amount = cost_in_list(source, model, tokens, now=now)
        if amount is None:
            return None
        rates[kind] = round(amount / count * 1_000_000, 6)
    return rates
