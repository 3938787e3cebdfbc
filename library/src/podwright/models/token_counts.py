"""The token counts of a response, from all places where providers put them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from podwright.data.json_data import JsonMapping, as_object, to_text
from podwright.messages.usage import Usage
from podwright.models.prices.pricing import Terms

MAX_TOKENS = 10**12
"""A larger count is an error of the provider; sums of it would not fit the 64 bits that telemetry has."""

MAX_AMOUNT = 10**9
"""USD: a larger cost of one call is an error of the provider."""

_KINDS = {
    "prompt_tokens": "input",
    "input_tokens": "input",
    "completion_tokens": "output",
    "output_tokens": "output",
    "total_tokens": "total",
    "cached_tokens": "cached",
    "prompt_cache_hit_tokens": "cached",
    "cache_read_input_tokens": "cached",
    "cache_write_tokens": "written",
    "cache_creation_tokens": "written",
    "cache_creation_input_tokens": "written",
    "ephemeral_1h_input_tokens": "written_1h",
    "reasoning_tokens": "reasoning",
    "web_search_requests": "searches",
    "num_search_queries": "searches",
    "num_sources_used": "searches",
}
"""What providers call the kinds of tokens, in the usage and in the objects inside it."""
_DETAILS = {
    "prompt_tokens_details": "input",
    "input_tokens_details": "input",
    "completion_tokens_details": "output",
    "output_tokens_details": "output",
    "cache_creation": "input",
    "cache_creation_token_details": "input",
    "server_tool_use": "",
}
"""The objects inside the usage that have further counts, and what their audio is a part of."""


@dataclass(slots=True)
class TokenCounts:
    """The counts of one response; of each kind the largest that any of its chunks and places has."""

    counts: defaultdict[str, int] = field(
        default_factory=lambda: defaultdict(int)
    )
    cost: float | None = None
    """The cost in USD that the provider reports."""
    service_tier: str = ""
    """The service tier that the provider reports."""
    speed: str = ""
    """The speed that the provider reports."""
    region: str = ""
    """The region of the inference that the provider reports."""

    def add(self, data: JsonMapping) -> None:
        """Add the counts of a response, a chunk or a choice; what is null, 0 or impossible changes nothing."""
        self._add_terms(data)
        if data.get("usage"):
            self._add_usage(as_object(data["usage"]))
        groq = as_object(data.get("x_groq"))
        if groq:
            self._add_usage(as_object(groq.get("usage")))
        part = data.get("delta") or data.get("message")
        message = as_object(part)
        metadata = as_object(message.get("provider_metadata"))
        if metadata:
            self._add_cost(as_object(metadata.get("gateway")))

    def _add_usage(self, usage: JsonMapping) -> None:
        self._add_terms(usage)
        self._add_counts(usage)
        self._add_cost(usage)

    def _add_counts(self, counts: JsonMapping, part_of: str = "") -> None:
        for key, value in counts.items():
            kind = _KINDS.get(key)
            if key == "audio_tokens" and part_of:
                kind = f"{part_of}_audio"
            if kind:
                count = read_count(value)
                self.counts[kind] = max(self.counts[kind], count)
            elif key in _DETAILS:
                self._add_counts(as_object(value), _DETAILS[key])

    def _add_terms(self, data: JsonMapping) -> None:
        if tier := data.get("service_tier"):
            self.service_tier = to_text(tier).lower()
        if speed := data.get("speed"):
            self.speed = to_text(speed).lower()
        if region := data.get("inference_geo"):
            self.region = to_text(region).lower()

    def _add_cost(self, usage: JsonMapping) -> None:
        cost = usage.get("cost")
        total = as_object(cost).get("total_cost", cost)
        amount = read_amount(total)
        if amount is None:
            return
        # OpenRouter's own fee; the provider behind it bills the owner of the key
        if usage.get("is_byok"):
            details = as_object(usage.get("cost_details"))
            upstream = read_amount(details.get("upstream_inference_cost"))
            if upstream is None:
                return
            amount += upstream
        self.cost = max(self.cost or 0.0, amount)

    def usage(self, estimate: Callable[[], Usage]) -> Usage:
        """The usage of the response.

        What a total has more than its parts is output: thoughts that the provider counts for themselves. A count that
        is missing is that of the estimate, and then the price is unknown: a bill must not rest on an estimate.

        Args:
            estimate: Returns estimated input and output tokens; called if a count is missing.
        """
        sent = self.counts["input"]
        produced = self.counts["output"]
        is_complete = sent > 0
        if not sent:
            sent = self._missing_input(estimate)
        thoughts = 0
        more = self.counts["total"] - sent - produced
        if more > 0:
            if produced:
                thoughts = more
            produced += more
        if not produced:
            produced = estimate().output_tokens
            is_complete = is_complete and produced == 0
        usage = self._usage(sent, produced, thoughts)
        if not is_complete:
            return as_uncounted(usage)
        return usage

    def _missing_input(self, estimate: Callable[[], Usage]) -> int:
        produced = self.counts["output"]
        total = self.counts["total"]
        if produced and total > produced:
            return total - produced  # which may hold thoughts, too
        estimated = estimate().input_tokens
        if total:
            return min(estimated, total)
        return estimated

    def _usage(self, sent: int, produced: int, thoughts: int) -> Usage:
        cached = min(self.counts["cached"], sent)
        uncached = sent - cached
        written = min(self.counts["written"], uncached)
        reasoning = max(self.counts["reasoning"], thoughts)
        return Usage(
            input_tokens=sent,
            output_tokens=produced,
            cached_input_tokens=cached,
            reasoning_tokens=min(reasoning, produced),
            cost=None,
            cache_write_tokens=written,
            cache_write_1h_tokens=min(self.counts["written_1h"], written),
            input_audio_tokens=min(self.counts["input_audio"], sent),
            output_audio_tokens=min(self.counts["output_audio"], produced),
        )

    def terms(self, model: str) -> Terms:
        """What the price depends on besides.

        Args:
            model: The model that answered, in the provider's words.
        """
        return Terms(
            model,
            service_tier=self.service_tier,
            speed=self.speed,
            region=self.region,
            searches=self.counts["searches"],
        )


def as_uncounted(usage: Usage) -> Usage:
    """The usage of a call whose tokens are estimated: its cost is unknown, because a bill must not rest on one."""
    return replace(
        usage, cost=None, unpriced_model_calls=1, uncounted_model_calls=1
    )


def read_amount(value: Any) -> float | None:
    """An amount of money as a provider writes it, which may be a text; None if it is none."""
    if isinstance(value, bool):
        return None
    if not isinstance(value, int | float | str):
        return None
    try:
        amount = float(value)
    except (ValueError, OverflowError):
        return None
    if 0 <= amount < MAX_AMOUNT:
        return amount
    return None


def read_count(value: Any) -> int:
    """A count as a provider writes it; 0 if it is none, or an impossible one."""
    try:
        count = int(value or 0)
    except (TypeError, ValueError, OverflowError):
        return 0
    if 0 <= count <= MAX_TOKENS:
        return count
    return 0
