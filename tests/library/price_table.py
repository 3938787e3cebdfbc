"""What the models that people use cost: as their vendors say it, and as we do.

    .venv/bin/python -m tests.library.price_table

prints the table. `prices_by_hand.csv` has the vendors' prices, and why ours differ, where they do.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

from podwright.messages.usage import Usage
from podwright.models.prices.pricing import lookup
from podwright.models.providers import ANY, ENDPOINTS

BY_HAND = Path(__file__).with_name("prices_by_hand.csv")
COUNT = 1_000
"""Tokens of a request that no list takes for a long one."""


class Price(NamedTuple):
    """USD for a million input and output tokens; None if the price is unknown."""

    model: str
    by_hand: tuple[float, float] | None
    ours: tuple[float, float] | None
    source: str
    why: str
    """Why ours differs; empty if it does not."""

    @property
    def differs(self) -> bool:
        return self.by_hand != self.ours


def prices() -> list[Price]:
    """The table."""
    with BY_HAND.open(encoding="utf-8", newline="") as file:
        return [_price(row) for row in csv.DictReader(file)]


def _price(row: dict[str, str]) -> Price:
    model = row["model"]
    by_hand = (
        (float(row["input"]), float(row["output"])) if row["input"] else None
    )
    at_vendor = not ENDPOINTS.get(model.partition("/")[0], ANY).self_hosted
    sent = lookup(model, Usage(COUNT, 0), at_vendor=at_vendor)
    both = lookup(model, Usage(COUNT, COUNT), at_vendor=at_vendor)
    if sent is None or both is None:
        return Price(model, by_hand, None, "", row["why"])
    rates = (sent.amount, both.amount - sent.amount)
    per_million = (
        round(rates[0] / COUNT * 1e6, 6),
        round(rates[1] / COUNT * 1e6, 6),
    )
    return Price(model, by_hand, per_million, sent.source, row["why"])


def main() -> None:
    """Print the table."""
    print(
        "| model | by hand | ours | source | why they differ |\n|---|---|---|---|---|"
    )
    for price in prices():
        shown = [
            f"{rates[0]:g}, {rates[1]:g}" if rates else "unknown"
            for rates in (price.by_hand, price.ours)
        ]
        print(
            f"| {price.model} | {' | '.join(shown)} | {price.source} | {price.why} |"
        )


if __name__ == "__main__":
    main()
