"""The limits of a run: the operator's settings, lowered by what the calling container has left."""

from __future__ import annotations

from typing import TypeVar

from starlette.datastructures import Headers

from podwright.headers import BUDGET, HOPS, parse_budget
from podwright.usage import RunLimits
from podwright_service.http.problems import RequestError
from podwright_service.settings import Settings

Number = TypeVar("Number", int, float)


def granted_limits(headers: Headers, settings: Settings) -> tuple[RunLimits, int]:
    """The limits and the hops of a run: the smaller ones of the settings and of the request's headers.

    Raises:
        RequestError: 400: a header is malformed.
    """
    return _limits(headers.getlist(BUDGET), settings.run_limits), _hops(
        headers.getlist(HOPS), settings.max_hops
    )


def _limits(values: list[str], limits: RunLimits) -> RunLimits:
    if not values:
        return limits
    try:
        budget = parse_budget(", ".join(values))
    except ValueError as error:
        raise _malformed(BUDGET, str(error)) from error
    return RunLimits(
        _smaller(limits.wall_time, budget.wall_time),
        _smaller(limits.model_calls, budget.model_calls),
        _smaller(limits.tokens, budget.tokens),
        _smaller(limits.cost, budget.cost),
    )


def _hops(values: list[str], max_hops: int) -> int:
    if not values:
        return max_hops
    if not (
        len(values) == 1
        and values[0].isascii()
        and values[0].isdecimal()
        and len(values[0]) < 16
    ):
        raise _malformed(HOPS, "expected one integer, 0 or more")
    return min(max_hops, int(values[0]))


def _smaller(own: Number | None, sent: Number | None) -> Number | None:
    return sent if own is None else own if sent is None else min(own, sent)


def _malformed(header: str, reason: str) -> RequestError:
    detail = f"Invalid header '{header}': {reason}."
    return RequestError(
        400, "header_invalid", detail, "Correct the header, or leave it out."
    )
