"""What a caller in another container grants a run: it can lower the limits that are set here, and never raise them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from starlette.datastructures import Headers

from podwright import structured_fields
from podwright.usage import RunLimits
from podwright_service.problems import RequestError
from podwright_service.settings import Settings

T = TypeVar("T", int, float)

BUDGET = structured_fields.DICTIONARY
"""What a `Podwright-Budget` looks like; the values of its members are looked at one by one."""
HOPS = r"^[ \t]*[0-9]{0,15}[ \t]*$"
"""What `Podwright-Hops` looks like."""
_NAMES = (b"podwright-budget", b"podwright-hops")
_COST = re.compile(r"\d{1,12}(\.\d{1,12})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Granted:
    """What a run may use."""

    limits: RunLimits
    hops: int
    """Containers that it may still pass through."""


def granted(headers: Headers, settings: Settings) -> Granted:
    """What a request's `Podwright-Budget` and `Podwright-Hops` leave of the settings.

    Raises:
        RequestError: 400: one of them is malformed.
    """
    own, hops = settings.run_limits, settings.max_hops
    if not any(name in _NAMES for name, _ in headers.raw):
        return Granted(own, hops)
    if told := ",".join(headers.getlist("podwright-hops")).strip():
        if not re.fullmatch(r"\d{1,15}", told, re.ASCII):
            raise _malformed("Podwright-Hops", "a whole number, 0 or more")
        hops = min(hops, int(told))
    try:
        # lines of one name are one dictionary: a second one must not be passed over
        members = structured_fields.read(",".join(headers.getlist("podwright-budget")))
    except ValueError as error:
        raise _malformed("Podwright-Budget", "a dictionary of structured fields (RFC 9651)") from error
    return Granted(
        RunLimits(
            _least(own.wall_time, _number(members, "wall_time")),
            _least(own.model_calls, _count(members, "model_calls")),
            _least(own.tokens, _count(members, "tokens")),
            _least(own.cost, _money(members)),
        ),
        hops,
    )


def _number(members: Mapping[str, structured_fields.Value], name: str) -> float | None:
    value = members.get(name)
    if isinstance(value, str | bool) or (value is not None and value < 0):
        raise _malformed("Podwright-Budget", f"a number of {name}, 0 or more")
    return value


def _count(members: Mapping[str, structured_fields.Value], name: str) -> int | None:
    value = _number(members, name)
    if isinstance(value, float):
        raise _malformed("Podwright-Budget", f"a whole number of {name}, 0 or more")
    return value


def _money(members: Mapping[str, structured_fields.Value]) -> float | None:
    value = members.get("cost")
    if value is None:
        return None
    if not (isinstance(value, str) and _COST.fullmatch(value)):
        raise _malformed("Podwright-Budget", 'a cost in USD as a string, such as cost="0.5"')
    return float(value)


def _least(own: T | None, told: T | None) -> T | None:
    return told if own is None else own if told is None else min(own, told)


def _malformed(header: str, wanted: str) -> RequestError:
    hint = f"Send {header} as docs/service.md has it, or not at all."
    return RequestError(400, "header_invalid", f"The header {header} is not {wanted}.", hint)
