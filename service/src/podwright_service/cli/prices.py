"""The command `prices`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from podwright.data.text import printable
from podwright.models.prices.price_lists import ListedPrice, listed_prices
from podwright_service.cli.console import print_json, print_table, table_of
from podwright_service.settings import adopt_secrets

_DIFFERENCE = 0.05
"""By what part a rate of another list differs that is worth a note."""


def print_prices(models: Sequence[str], as_json: bool) -> int:
    """Print what the price lists say of models, in USD per million tokens.

    Returns:
        The exit code: 1 if no list knows one of them.

    Raises:
        ConfigurationError: The operator's file cannot be read, or is invalid.
    """
    adopt_secrets()
    prices = {model: listed_prices(model) for model in models}
    if as_json:
        data: dict[str, Any] = {}
        for model, listed in prices.items():
            data[model] = [asdict(price) for price in listed]
        print_json(data)
    else:
        _print_table(prices)
    if all(listed or _is_free(model) for model, listed in prices.items()):
        return 0
    return 1


def _is_free(model: str) -> bool:
    return model.startswith("offline/")


def _print_table(prices: dict[str, list[ListedPrice]]) -> None:
    table = table_of("model", "list", "USD per million tokens", "note")
    for model, listed in prices.items():
        for number, price in enumerate(listed):
            note = "counts"
            if number > 0:
                note = _difference(listed[0], price)
            name = f"{price.source} {price.version}"
            table.add_row(printable(model), printable(name), _text(price), note)
        if not listed:
            note = "no price is known: add it to PODWRIGHT_PRICES"
            if _is_free(model):
                note = "it costs nothing"
            table.add_row(printable(model), "", "", note)
    print_table(table)


def _text(price: ListedPrice) -> str:
    text = _rates_text(price.rates)
    if price.long_rates:
        text += f", long requests: {_rates_text(price.long_rates)}"
    return text


def _rates_text(rates: Mapping[str, float]) -> str:
    return ", ".join(f"{kind} {rate:g}" for kind, rate in rates.items())


def _difference(used: ListedPrice, other: ListedPrice) -> str:
    kinds: list[str] = []
    for kind, rate in used.rates.items():
        other_rate = other.rates[kind]
        if abs(other_rate - rate) > _DIFFERENCE * max(rate, other_rate):
            kinds.append(kind)
    if not kinds:
        return "the same within 5 %"
    return f"differs in {', '.join(kinds)}"
