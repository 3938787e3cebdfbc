"""A measured figure, and the table that lists figures."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
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
        return self.value <= self.limit if self.kind == "≤" else self.value >= self.limit

    @property
    def row(self) -> str:
        limit = "" if self.limit is None else f"{self.kind} {self.limit:g} {self.unit}"
        return f"| {self.title} | {self.value:.3g} {self.unit} | {limit.strip()} | {self.detail} |"


def table(figures: Iterable[Figure]) -> str:
    """The figures as a Markdown table."""
    return "\n".join(["| figure | measured | limit | details |", "|---|--:|--:|---|", *(f.row for f in figures)])


def median_ratio(values: Iterable[float], references: Iterable[float]) -> float:
    """The median of the ratios of values that were measured in turns."""
    return statistics.median(value / reference for value, reference in zip(values, references, strict=True))
