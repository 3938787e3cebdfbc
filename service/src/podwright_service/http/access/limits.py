"""The limits of a run: the operator's settings, lowered by what the calling container has left."""

from __future__ import annotations

from typing import TypeVar

from starlette.datastructures import Headers

from podwright.messages.headers import BUDGET, HOPS, parse_budget
from podwright.messages.usage import RunLimits
from podwright_service.http.errors.problems import RequestError
from podwright_service.settings import Settings

Number = TypeVar("Number", int, float)


def granted_limits(
    headers: Headers, settings: Settings
) -> tuple[RunLimits, int]:
    """The limits and the hops of a run: the smaller ones of the settings and of the request's headers.

    Raises:
        RequestError: 400: a header is malformed.
    """
    limits = _limits(headers.getlist(BUDGET), settings.run_limits)
    hops = _hops(headers.getlist(HOPS), settings.max_hops)
    return limits, hops


def _limits(values: list[str], limits: RunLimits) -> RunLimits:
    if not values:
        return limits
    try:
        budget = parse_budget(", ".join(values))
    except ValueError as error:
        raise _malformed_error(BUDGET, str(error)) from error
    return RunLimits(
        wall_time=_smaller(limits.wall_time, budget.wall_time),
        model_calls=_smaller(limits.model_calls, budget.model_calls),
        tokens=_smaller(limits.tokens, budget.tokens),
        cost=_smaller(limits.cost, budget.cost),
    )


def _hops(values: list[str], max_hops: int) -> int:
    if not values:
        return max_hops
    value, *others = values
    is_number = value.isascii() and value.isdecimal()
    if others or not is_number or len(value) >= 16:
        raise _malformed_error(HOPS, "expected one integer, 0 or more")
    return min(max_hops, int(value))


def _smaller(own: Number | None, sent: Number | None) -> Number | None:
    if own is None:
        return sent
    if sent is None:
        return own
    return min(own, sent)


def _malformed_error(header: str, reason: str) -> RequestError:
    detail = f"Invalid header '{header}': {reason}."
    return RequestError(
        400, "header_invalid", detail, "Correct the header, or leave it out."
    )
