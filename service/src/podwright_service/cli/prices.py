"""The command `prices`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from podwright.models.price_lists import ListedPrice, listed_prices
from podwright.text import printable
from podwright_service.cli.console import print_json
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
        print_json(
            {
                model: [asdict(price) for price in listed]
                for model, listed in prices.items()
            }
        )
    else:
        _print_table(prices)
    return (
        0 if all(listed or _is_free(model) for model, listed in prices.items()) else 1
    )


def _is_free(model: str) -> bool:
    return model.startswith("offline/")


def _print_table(prices: dict[str, list[ListedPrice]]) -> None:
    from rich.console import Console
    from rich.table import Table

    terminal = sys.stdout.isatty()
    table = Table(
        "model",
        "list",
        "USD per million tokens",
        "note",
        box=Table().box if terminal else None,
    )
    for model, listed in prices.items():
        for number, price in enumerate(listed):
            note = "counts" if number == 0 else _difference(listed[0], price)
            name = f"{price.source} {price.version}"
            table.add_row(printable(model), printable(name), _text(price), note)
        if not listed:
            note = (
                "it costs nothing"
                if _is_free(model)
                else "no price is known: add it to PODWRIGHT_PRICES"
            )
            table.add_row(printable(model), "", "", note)
    Console(
        width=None if terminal else 2000, highlight=False, markup=False, emoji=False
    ).print(table)


def _text(price: ListedPrice) -> str:
    parts = [f"{kind} {rate:g}" for kind, rate in price.rates.items()]
    if price.long_rates:
        long_rates = ", ".join(
            f"{kind} {rate:g}" for kind, rate in price.long_rates.items()
        )
        parts.append(f"long requests: {long_rates}")
    return ", ".join(parts)


def _difference(used: ListedPrice, other: ListedPrice) -> str:
    def differs(kind: str) -> bool:
        rate: Any = used.rates[kind]
        return abs(other.rates[kind] - rate) > _DIFFERENCE * max(
            rate, other.rates[kind]
        )

    kinds = [kind for kind in used.rates if differs(kind)]
    return f"differs in {', '.join(kinds)}" if kinds else "the same within 5 %"
