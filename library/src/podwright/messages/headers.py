"""The HTTP headers between containers: what a run may use and what it used, as structured fields (RFC 9651)."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from decimal import Decimal
from typing import Any, Literal, cast

import http_sf

from podwright.errors import ConfigurationError
from podwright.messages.usage import RunLimits, Usage

BUDGET = "Podwright-Budget"
"""Request header: what is left of the caller's limits. Example: `wall_time=12.5, tokens=1000, cost="0.5"`."""
CALLER = "Podwright-Caller"
"""Request header: the name of the outermost caller's API key; empty if it has none. Example: `shop`."""
IDEMPOTENCY_KEY = "Idempotency-Key"
"""Request header: the request with this key runs once. Example: `order-7`."""
REPLAYED = "Idempotency-Replayed"
"""Response header: `true` if an earlier request with the same key was answered with this response."""
HOPS = "Podwright-Hops"
"""Request header: how many more containers the run may pass through. Example: `2`."""
ROOT = "Podwright-Root"
"""Request header: the outermost component of the run, percent-encoded. Example: `newsroom`."""
UNFINISHED_CALLS = "Podwright-Unfinished-Calls"
"""Request header, with an `Idempotency-Key`: an earlier request with that key may have been cut off during its run.
`interrupt` refuses the request unless its response is stored; `repeat` runs it again although that run called tools."""
UnfinishedCalls = Literal["interrupt", "repeat"]
"""Its values."""
RUN_ID = "Podwright-Run-Id"
"""Response header: the id of the run."""
USAGE = "Podwright-Usage"
"""Response header: what the run used. Example: `input_tokens=24, output_tokens=8, cost="0.0000084"`."""
FINISH_REASON = "Podwright-Finish-Reason"
"""Response header: how the answer of the model ended, unless it is `stop`. Example: `refusal`."""

_LARGEST_INTEGER = 10**15 - 1
_LARGEST_DECIMAL = 10**12 - 1


def format_usage(usage: Usage) -> str:
    """The value of `Podwright-Usage`; an unknown cost is left out."""
    members = {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cost": usage.cost,
    }
    return _format(members)


def format_budget(limits: RunLimits) -> str:
    """The value of `Podwright-Budget`; limits that are None are left out, so it may be empty."""
    return _format(asdict(limits))


def parse_budget(value: str) -> RunLimits:
    """The limits in a `Podwright-Budget` header; unknown members are ignored.

    Raises:
        ValueError: The value is not a dictionary of structured fields, or a member has the wrong type.
    """
    parsed = http_sf.parse(value.encode(), tltype="dictionary")
    members = cast("dict[str, tuple[Any, object]]", parsed)
    values = {name: item for name, (item, _) in members.items()}
    cost = None
    if "cost" in values:
        cost = _parse_amount(values["cost"])
    wall_time = values.get("wall_time")
    if isinstance(wall_time, Decimal):
        wall_time = float(wall_time)
    try:
        return RunLimits(
            wall_time=wall_time,
            model_calls=values.get("model_calls"),
            tokens=values.get("tokens"),
            cost=cost,
        )
    except ConfigurationError as error:
        raise ValueError(error.message) from error


def parse_usage(value: str) -> Usage:
    """The usage in a `Podwright-Usage` header; what is missing or malformed stays 0, and a cost unknown."""
    try:
        parsed = http_sf.parse(value.encode(), tltype="dictionary")
    except ValueError:
        return Usage(cost=None)
    members = cast("dict[str, tuple[Any, object]]", parsed)
    values = {name: item for name, (item, _) in members.items()}
    cost = None
    with contextlib.suppress(ValueError):
        cost = _parse_amount(values.get("cost"))
    return Usage(
        input_tokens=_count(values.get("input_tokens")),
        output_tokens=_count(values.get("output_tokens")),
        cost=cost,
    )


def _count(value: object) -> int:
    return value if type(value) is int and value > 0 else 0


def _parse_amount(value: object) -> float:
    if isinstance(value, str) and value.isascii():
        digits = value.replace(".", "", 1)
        if digits.isdecimal():
            return float(value)
    raise ValueError(
        "'cost' is not a string with an amount in USD, such as \"0.5\""
    )


def _format(members: dict[str, int | float | None]) -> str:
    """A dictionary of structured fields; numbers that it cannot hold become the largest that it can."""
    return ", ".join(
        f"{name}={_format_item(name, value)}"
        for name, value in members.items()
        if value is not None
    )


def _format_item(name: str, value: float) -> str:
    # a string: one call may cost less than the 0.001 that a decimal can express
    if name == "cost":
        amount = f"{value:.12f}".rstrip("0").rstrip(".")
        return f'"{amount}"'
    if isinstance(value, int):
        return str(min(value, _LARGEST_INTEGER))
    thousandths = int(min(value, _LARGEST_DECIMAL) * 1000)
    return str(thousandths / 1000)
