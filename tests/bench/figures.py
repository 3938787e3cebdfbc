"""A measured figure, and the page that lists them."""

from __future__ import annotations

import os
import socket
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Figure:
    """A measured value, what it must keep to, and how it came about."""

    title: str
    value: float
    unit: str
    detail: str
    limit: float | None = None
    kind: Literal["at most", "at least"] = "at most"

    @property
    def ok(self) -> bool:
        if self.limit is None:
            return True
        return self.value <= self.limit if self.kind == "at most" else self.value >= self.limit

    @property
    def row(self) -> str:
        sign = "≤" if self.kind == "at most" else "≥"
        limit = "" if self.limit is None else f"{sign} {self.limit:g} {self.unit}"
        return f"| {self.title} | {self.value:.3g} {self.unit} | {limit.strip()} | {self.detail} |"


def table(figures: list[Figure]) -> str:
    return "\n".join(["| figure | measured | limit | of what |", "|---|--:|--:|---|", *(f.row for f in figures)])


def paired(one: Callable[[], float], other: Callable[[], float], rounds: int = 9) -> tuple[float, float, float]:
    """The median ratio of two measurements taken in turns, and the median of each."""
    pairs = [(one(), other()) for _ in range(rounds)]
    ratio = statistics.median(a / b for a, b in pairs)
    return ratio, statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def environment() -> dict[str, str]:
    """Ours without what would slow or change what is measured: byte code is written, as a package has it."""
    dropped = ("PYTHONDONTWRITEBYTECODE",)
    return {key: value for key, value in os.environ.items() if key not in dropped and not key.startswith("PODWRIGHT_")}
