"""What a caller in another container grants a run: it can lower the limits that are set here, and never raise them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from starlette.datastructures import Headers

from podwright.usage import RunLimits
from podwright_service.problems import RequestError
from podwright_service.settings import Settings

T = TypeVar("T", int, float)

# a dictionary of structured fields (RFC 9651) whose values are numbers and strings, which may have parameters
_KEY = r"[a-z*][a-z0-9_\-.*]*"
_BARE = r'-?\d{1,12}\.\d{1,3}|-?\d{1,15}|"(?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*"|\?[01]'
_MEMBER = re.compile(rf"({_KEY})(?:=({_BARE}))?(?:;[ ]*{_KEY}(?:=(?:{_BARE}))?)*")
_COMMA = re.compile(r"[ \t]*,[ \t]*(?=[a-z*])")
BUDGET = rf"^[ \t]*({_MEMBER.pattern}([ \t]*,[ \t]*{_MEMBER.pattern})*)?[ \t]*$"
"""What a `Podwright-Budget` looks like; the values of its members are looked at one by one."""
HOPS = r"^[ \t]*[0-9]{0,15}[ \t]*$"
"""What `Podwright-Hops` looks like."""
_COST = re.compile(r"\d{1,12}(\.\d{1,12})?")


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
    if told := ",".join(headers.getlist("podwright-hops")).strip():
        if not re.fullmatch(r"\d{1,15}", told, re.ASCII):
            raise _malformed("Podwright-Hops", "a whole number, 0 or more")
        hops = min(hops, int(told))
    # lines of one name are one dictionary: a second one must not be passed over
    members = _dictionary(",".join(headers.getlist("podwright-budget")))
    return Granted(
        RunLimits(
            _least(own.wall_time, _number(members, "wall_time", r"\d+(\.\d+)?", float)),
            _least(own.model_calls, _number(members, "model_calls", r"\d+", int)),
            _least(own.tokens, _number(members, "tokens", r"\d+", int)),
            _least(own.cost, _money(members)),
        ),
        hops,
    )


def _dictionary(text: str) -> dict[str, str]:
    members: dict[str, str] = {}
    text, at = text.strip(" "), 0
    while at < len(text):
        found = _MEMBER.match(text, at)
        comma = _COMMA.match(text, found.end()) if found else None
        if not found or (found.end() < len(text) and not comma):
            raise _malformed("Podwright-Budget", "a dictionary of structured fields (RFC 9651)")
        members[found[1]] = found[2] or "?1"
        at = comma.end() if comma else found.end()
    return members


def _number(members: Mapping[str, str], name: str, form: str, kind: type[T]) -> T | None:
    value = members.get(name)
    if value is not None and not re.fullmatch(form, value, re.ASCII):
        raise _malformed("Podwright-Budget", f"a number of {name}, 0 or more")
    return None if value is None else kind(value)


def _money(members: Mapping[str, str]) -> float | None:
    value = members.get("cost")
    if value is not None and not (value[:1] == '"' and _COST.fullmatch(value[1:-1])):
        raise _malformed("Podwright-Budget", 'a cost in USD as a string, such as cost="0.5"')
    return None if value is None else float(value[1:-1])


def _least(own: T | None, told: T | None) -> T | None:
    return told if own is None else own if told is None else min(own, told)


def _malformed(header: str, wanted: str) -> RequestError:
    hint = f"Send {header} as docs/service.md has it, or not at all."
    return RequestError(400, "header_invalid", f"The header {header} is not {wanted}.", hint)
