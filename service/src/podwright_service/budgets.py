"""The limits of a run: the operator's settings, lowered by what a calling container has left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from starlette.datastructures import Headers

from podwright.headers import BUDGET, HOPS, parse_budget
from podwright.usage import RunLimits
from podwright_service.problems import RequestError
from podwright_service.settings import Settings

T = TypeVar("T", int, float)


@dataclass(frozen=True, slots=True)
class Granted:
    """What a run may use."""

    limits: RunLimits
    hops: int
    """Containers that it may still pass through."""


def granted(headers: Headers, settings: Settings) -> Granted:
    """The settings' limits, lowered by the request's `Podwright-Budget` and `Podwright-Hops`; they never raise a limit.

    Raises:
        RequestError: 400: one of the headers is malformed.
    """
    limits, hops = settings.run_limits, settings.max_hops
    if sent_hops := headers.getlist(HOPS):
        if not (len(sent_hops) == 1 and sent_hops[0].isascii() and sent_hops[0].isdecimal() and len(sent_hops[0]) < 16):
            raise _malformed(HOPS, "expected one integer, 0 or more")
        hops = min(hops, int(sent_hops[0]))
    if sent_budget := headers.getlist(BUDGET):
        try:
            budget = parse_budget(", ".join(sent_budget))
        except ValueError as error:
            raise _malformed(BUDGET, str(error)) from error
        limits = RunLimits(
            _lower(limits.wall_time, budget.wall_time),
            _lower(limits.model_calls, budget.model_calls),
            _lower(limits.tokens, budget.tokens),
            _lower(limits.cost, budget.cost),
        )
    return Granted(limits, hops)


def _lower(own: T | None, sent: T | None) -> T | None:
    return sent if own is None else own if sent is None else min(own, sent)


def _malformed(header: str, reason: str) -> RequestError:
    detail = f"Invalid header '{header}': {reason}."
    return RequestError(400, "header_invalid", detail, "Send it as docs/service.md describes, or leave it out.")
