"""A measured figure, and the table that lists figures."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Figure:
    """A measured value and its limit."""

    title: str
    value: float
    unit: str
    detail: str
    limit: float | None = None
    kind: Literal["≤", "≥"] = "≤"

    @property
    def ok(self) -> bool:
        if self.limit is None:
            return True
        return (
            self.value <= self.limit
            if self.kind == "≤"
            else self.value >= self.limit
        )

    @property
    def row(self) -> str:
        limit = (
            ""
            if self.limit is None
            else f"{self.kind} {self.limit:g} {self.unit}"
        )
        return f"| {self.title} | {self.value:.3g} {self.unit} | {limit} | {self.detail} |"


def ratio(
    title: str,
    values: Sequence[float],
    references: Sequence[float],
    unit: str,
    limit: float | None = None,
    kind: Literal["≤", "≥"] = "≤",
) -> Figure:
    """The ratio of values to references that were measured in turns with them."""
    detail = f"{statistics.median(values):.4g} {unit} against {statistics.median(references):.4g} {unit}"
    return Figure(
        title, median_ratio(values, references), "×", detail, limit, kind
    )


def median_ratio(values: Iterable[float], references: Iterable[float]) -> float:
    return statistics.median(
        value / reference
        for value, reference in zip(values, references, strict=True)
    )


def table(figures: Iterable[Figure]) -> str:
    """The figures as a Markdown table."""
    return "\n".join(
        [
            "| figure | measured | limit | details |",
            "|---|--:|--:|---|",
            *(f.row for f in figures),
        ]
    )
