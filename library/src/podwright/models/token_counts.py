"""The token counts of a response, from all places where providers put them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from podwright.json_data import as_object, to_text
from podwright.models.pricing import Terms
from podwright.usage import Usage

MAX_TOKENS = 10**12
"""A larger count is an error of the provider; sums of it would not fit the 64 bits that telemetry has."""

MAX_AMOUNT = 10**9
"""USD: a larger cost of one call is an error of the provider."""

_KINDS = {
    "prompt_tokens": "input", "input_tokens": "input",
    "completion_tokens": "output", "output_tokens": "output",
    "total_tokens": "total",
    "cached_tokens": "cached", "prompt_cache_hit_tokens": "cached", "cache_read_input_tokens": "cached",
    "cache_write_tokens": "written", "cache_creation_tokens": "written", "cache_creation_input_tokens": "written",
    "ephemeral_1h_input_tokens": "written_1h",
    "reasoning_tokens": "reasoning",
    "web_search_requests": "searches", "num_search_queries": "searches", "num_sources_used": "searches",
}  # fmt: skip
"""What providers call the kinds of tokens, in the usage and in the objects inside it."""
_DETAILS = {
    "prompt_tokens_details": "input", "input_tokens_details": "input",
    "completion_tokens_details": "output", "output_tokens_details": "output",
    "cache_creation": "input", "cache_creation_token_details": "input",
    "server_tool_use": "",
}  # fmt: skip
"""The objects inside the usage that have further counts, and what their audio is a part of."""


@dataclass(slots=True)
class TokenCounts:
    """The counts of one response; of each kind the largest that any of its chunks and places has."""

    counts: dict[str, int] = field(default_factory=dict[str, int])
    cost: float | None = None
    """The cost in USD that the provider reports."""
    service_tier: str = ""
    """The service tier that the provider reports."""
    speed: str = ""
    """The speed that the provider reports."""
    region: str = ""
    """The region of the inference that the provider reports."""

    def add(self, data: Mapping[str, Any]) -> None:
        """Add the counts of a response, a chunk or a choice; what is null, 0 or impossible changes nothing."""
        self._add_terms(data)
        if usage := data.get("usage"):
            self._add_usage(as_object(usage))
        if more := data.get("x_groq"):
            self._add_usage(as_object(as_object(more).get("usage")))
        if more := as_object(data.get("delta") or data.get("message")).get(
            "provider_metadata"
        ):
            self._add_cost(as_object(as_object(more).get("gateway")))

    def _add_usage(self, usage: Mapping[str, Any]) -> None:
        self._add_terms(usage)
        self._add_counts(usage)
        self._add_cost(usage)

    def _add_counts(self, counts: Mapping[str, Any], part_of: str = "") -> None:
        for key, value in counts.items():
            kind = (
                f"{part_of}_audio"
                if key == "audio_tokens" and part_of
                else _KINDS.get(key)
            )
            if kind:
                self.counts[kind] = max(self.counts.get(kind, 0), read_count(value))
            elif key in _DETAILS:
                self._add_counts(as_object(value), _DETAILS[key])

    def _add_terms(self, data: Mapping[str, Any]) -> None:
        self.service_tier = to_text(
            data.get("service_tier") or self.service_tier
        ).lower()
        self.speed = to_text(data.get("speed") or self.speed).lower()
        self.region = to_text(data.get("inference_geo") or self.region).lower()

    def _add_cost(self, usage: Mapping[str, Any]) -> None:
        cost = read_amount(
            as_object(usage.get("cost")).get("total_cost", usage.get("cost"))
        )
        if cost is None:
            return
        # OpenRouter's own fee; the provider behind it bills the owner of the key
        if usage.get("is_byok"):
            upstream = read_amount(
                as_object(usage.get("cost_details")).get("upstream_inference_cost")
            )
            cost = None if upstream is None else cost + upstream
        if cost is not None:
            self.cost = max(self.cost or 0.0, cost)

    def usage(self, estimate: Callable[[], Usage]) -> Usage:
        """The usage of the response.

        What a total has more than its parts is output: thoughts that the provider counts for themselves. A count that
        is missing is that of the estimate, and then the price is unknown: a bill must not rest on an estimate.

        Args:
            estimate: Returns estimated input and output tokens; called if a count is missing.
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
        return self._usage(sent, produced, thoughts, is_complete=is_complete)

    def _usage(
        self, sent: int, produced: int, thoughts: int, *, is_complete: bool
    ) -> Usage:
        cached = min(self.counts.get("cached", 0), sent)
        written = min(self.counts.get("written", 0), sent - cached)
        reasoning = min(max(self.counts.get("reasoning", 0), thoughts), produced)
        usage = Usage(
            sent,
            produced,
            cached,
            reasoning,
            cost=None,
            cache_write_tokens=written,
            cache_write_1h_tokens=min(self.counts.get("written_1h", 0), written),
        )
        return usage if is_complete else as_uncounted(usage)

    def terms(self, model: str) -> Terms:
        """What the price depends on besides.

        Args:
            model: The model that answered, in the provider's words.
        """
        sent = (
            self.counts.get("input", 0)
            - self.counts.get("cached", 0)
            - self.counts.get("written", 0)
        )
        produced = self.counts.get("output", 0) - self.counts.get("reasoning", 0)
        return Terms(
            model,
            service_tier=self.service_tier,
            speed=self.speed,
            region=self.region,
            searches=self.counts.get("searches", 0),
            input_audio=max(0, min(self.counts.get("input_audio", 0), sent)),
            output_audio=max(0, min(self.counts.get("output_audio", 0), produced)),
        )


def as_uncounted(usage: Usage) -> Usage:
    """The usage of a call whose tokens are estimated: its cost is unknown, because a bill must not rest on one."""
    return replace(usage, cost=None, unpriced_model_calls=1, uncounted_model_calls=1)


def read_amount(value: Any) -> float | None:
    """An amount of money as a provider writes it, which may be a text; None if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    with suppress(ValueError, OverflowError):
        amount = float(value)
        return amount if 0 <= amount < MAX_AMOUNT else None
    return None


def read_count(value: Any) -> int:
    """A count as a provider writes it; 0 if it is none, or an impossible one."""
    try:
        count = int(value or 0)
    except (TypeError, ValueError, OverflowError):
        return 0
    return count if 0 <= count <= MAX_TOKENS else 0
