"""The formats of JSON Schema (`format`) that are checked.

| format | standard |
|---|---|
| `date`, `time`, `date-time`, `duration` | RFC 3339: times with an offset from UTC, without leap seconds |
| `email` | RFC 5321 |
| `hostname` | RFC 1123 |
| `ipv4`, `ipv6` | RFC 2673, RFC 4291 |
| `uri` | RFC 3986, with a scheme |
| `uuid` | RFC 4122 |

All of them are ASCII. Other formats are annotations, which any text fits. A value that is no text fits each format.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from email.errors import HeaderParseError
from email.headerregistry import Address
from functools import lru_cache, partial
from importlib import import_module
from typing import Any

from pydantic import AnyUrl, TypeAdapter, ValidationError

_OF_JSONSCHEMA = ("date", "ipv4", "ipv6", "uuid")
"""Formats that jsonschema checks without further packages. Its `email` is any text with an @."""
_TIME = (
    r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)"
)
_is_time = re.compile(_TIME, re.IGNORECASE).fullmatch
_is_date_time = re.compile(
    rf"\d{{4}}-\d{{2}}-\d{{2}}T{_TIME}", re.IGNORECASE
).fullmatch
_is_duration = re.compile(
    r"P(?=.)(\d+W|(\d+Y)?(\d+M)?(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+S)?)?)"
).fullmatch
_is_hostname = re.compile(
    r"(?=.{1,253}$)[a-z\d]([a-z\d-]{0,61}[a-z\d])?(\.[a-z\d]([a-z\d-]{0,61}[a-z\d])?)*",
    re.IGNORECASE,
).fullmatch
_is_address_literal = re.compile(
    r"\[(IPv6:)?([\d.:a-f]+)\]", re.IGNORECASE
).fullmatch
_CHARACTERS = r"(?:[\w.~:/?@!$&'()*+,;=-]|%[\da-f]{2})*"
_HOST_IN_BRACKETS = r"(?://(?:[^@/?#\[\]]*@)?\[[\da-f.:]+\])?"
_has_characters_of_uri = re.compile(
    rf"[a-z][a-z\d+.-]*:{_HOST_IN_BRACKETS}{_CHARACTERS}(?:#{_CHARACTERS})?",
    re.IGNORECASE,
).fullmatch
_MAX_EMAIL = 254
_URL: TypeAdapter[AnyUrl] = TypeAdapter(AnyUrl)


@lru_cache(maxsize=1)
def format_checker() -> Any:
    """The checker of these formats for jsonschema."""
    # imported late, because few programs need it; without type hints
    jsonschema: Any = import_module("jsonschema")
    library = jsonschema.FormatChecker(_OF_JSONSCHEMA)
    checks: dict[str, Callable[[str], object]] = {
        "date-time": _fits_date_time,
        "duration": _is_duration,
        "email": partial(_fits_email, library),
        "hostname": _is_hostname,
        "time": _is_time,
        "uri": _fits_uri,
    }
    for name in _OF_JSONSCHEMA:
        checks[name] = partial(_fits_library, library, name)
    checker = jsonschema.FormatChecker(())
    for name, check in checks.items():
        checker.checks(name)(partial(_fits, check))
    return checker


def _fits(check: Callable[[str], object], value: object) -> bool:
    if not isinstance(value, str):
        return True
    return value.isascii() and bool(check(value))


def _fits_library(library: Any, name: str, text: str) -> bool:
    return library.conforms(text, name)


def _fits_date_time(text: str) -> bool:
    if not _is_date_time(text):
        return False
    try:
        datetime.fromisoformat(text.upper())
    except ValueError:
        return False
    return True


def _fits_email(library: Any, text: str) -> bool:
    if len(text) > _MAX_EMAIL:
        return False
    _, _, domain = text.rpartition("@")
    literal = _is_address_literal(domain)
    if literal is None:
        has_domain = bool(_is_hostname(domain))
    else:
        version = "ipv6" if literal[1] else "ipv4"
        has_domain = library.conforms(literal[2], version)
    return has_domain and _is_address(text)


def _is_address(text: str) -> bool:
    try:
        address = Address(addr_spec=text)
    except (HeaderParseError, ValueError):
        return False
    return address.addr_spec == text


def _fits_uri(text: str) -> bool:
    if not _has_characters_of_uri(text):
        return False
    try:
        _URL.validate_python(text)
    except ValidationError:
        return False
    return True
