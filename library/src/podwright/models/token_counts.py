"""The token counts of a response, from all places where providers put them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from podwright.json_data import as_object
from podwright.usage import Usage

MAX_TOKENS = 10**12
"""A larger count is an error of the provider; sums of it would not fit the 64 bits that telemetry has."""

_KINDS = {
    "prompt_tokens": "input", "input_tokens": "input",
    "completion_tokens": "output", "output_tokens": "output",
    "total_tokens": "total",
    "cached_tokens": "cached", "prompt_cache_hit_tokens": "cached", "cache_read_input_tokens": "cached",
    "cache_write_tokens": "written", "cache_creation_tokens": "written", "cache_creation_input_tokens": "written",
    "ephemeral_1h_input_tokens": "written_1h",
    "reasoning_tokens": "reasoning",
}  # fmt: skip
"""What providers call the kinds of tokens, in the usage and in the objects inside it."""
_DETAILS = (
    "prompt_tokens_details", "input_tokens_details", "completion_tokens_details", "output_tokens_details",
    "cache_creation", "cache_creation_token_details",
)  # fmt: skip
"""The objects inside the usage that have further counts."""


@dataclass(slots=True)
class TokenCounts:
    """The counts of one response; of each kind the largest that any of its chunks and places has."""

    counts: dict[str, int] = field(default_factory=dict[str, int])
    cost: float | None = None
    """The cost in USD that the provider reports."""

    def add(self, data: Mapping[str, Any]) -> None:
        """Add the counts of a response, a chunk or a choice; what is null, 0 or impossible changes nothing."""
        if usage := data.get("usage"):
            self._add_usage(as_object(usage))
        if more := data.get("x_groq"):
            self._add_usage(as_object(as_object(more).get("usage")))

    def _add_usage(self, usage: Mapping[str, Any]) -> None:
        for key, value in usage.items():
            if kind := _KINDS.get(key):
                self.counts[kind] = max(self.counts.get(kind, 0), read_count(value))
            elif key in _DETAILS:
                self._add_usage(as_object(value))
        cost = read_amount(as_object(usage.get("cost")).get("total_cost", usage.get("cost")))
        if cost is None:
            return
        if usage.get("is_byok"):  # OpenRouter's own fee; the provider behind it bills the owner of the key
            upstream = read_amount(as_object(usage.get("cost_details")).get("upstream_inference_cost"))
            cost = None if upstream is None else cost + upstream
        if cost is not None:
            self.cost = max(self.cost or 0.0, cost)

    def usage(self, estimate: Callable[[], Usage], *, reports_cost: bool) -> Usage:
        """The usage of the response.

        What a total has more than its parts is output: thoughts that the provider counts for themselves. A count that
        is missing is that of the estimate, and then the price is unknown: a bill must not rest on an estimate.

        Args:
            estimate: Returns estimated input and output tokens; called if a count is missing.
            reports_cost: Whether the provider's cost is the cost of the call.
        """
        sent = self.counts.get("input", 0)
        produced = self.counts.get("output", 0)
        total = self.counts.get("total", 0)
        is_complete = sent > 0
        if not sent and produced and total > produced:
            sent = total - produced  # which may hold thoughts, too
        elif not sent:
            estimated = estimate().input_tokens
            sent = min(estimated, total or estimated)
        more = max(0, total - sent - produced)
        thoughts = more if produced else 0
        produced += more
        if not produced:
            produced = estimate().output_tokens
            is_complete = is_complete and produced == 0
        return self._usage(sent, produced, thoughts, is_complete=is_complete, reports_cost=reports_cost)

    def _usage(self, sent: int, produced: int, thoughts: int, *, is_complete: bool, reports_cost: bool) -> Usage:
        cached = min(self.counts.get("cached", 0), sent)
        written = min(self.counts.get("written", 0), sent - cached)
        reasoning = min(max(self.counts.get("reasoning", 0), thoughts), produced)
        is_priced = is_complete or (reports_cost and self.cost is not None)
        return Usage(
            sent,
            produced,
            cached,
            reasoning,
            cost=self.cost if reports_cost else None,
            unpriced_model_calls=0 if is_priced else 1,
            cache_write_tokens=written,
            cache_write_1h_tokens=min(self.counts.get("written_1h", 0), written),
        )


def read_amount(value: Any) -> float | None:
    """An amount of money as a provider writes it, which may be a text; None if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    with suppress(ValueError, OverflowError):
        amount = float(value)
        return amount if 0 <= amount < math.inf else None
    return None


def read_count(value: Any) -> int:
    """A count as a provider writes it; 0 if it is none, or an impossible one."""
    try:
        count = int(value or 0)
    except (TypeError, ValueError, OverflowError):
        return 0
    return count if 0 <= count <= MAX_TOKENS else 0
