"""API keys with scopes, and the middleware that requires one before the body of a request is read."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
import re
import time
from pathlib import Path
from typing import NamedTuple

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from podwright.blueprints.content import read_bytes
from podwright.data.text import os_error_reason
from podwright.errors import ConfigurationError
from podwright_service.http.errors.problems import RequestError
from podwright_service.http.paths import (
    OPEN_PATHS,
    RELAY,
    SCOPES,
    path_in,
    scopes_of,
)
from podwright_service.origin import is_key_name
from podwright_service.settings import Settings

MIN_KEY_LENGTH = 16
"""Fewest characters of an API key."""

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""What the header can carry (RFC 6750, section 2.1)."""
_CHECK_INTERVAL = 1.0
_CHALLENGE = 'Bearer realm="podwright"'
_NEW_KEY = "Make a key with `openssl rand -hex 32`."
_FORM = (
    "Write SCOPES@NAME:KEY, such as run+read@alice:KEY. "
    f"Known scopes: {', '.join(SCOPES)}. A key contains no colon and no '@'."
)

_log = logging.getLogger("podwright.service")

_ALL_SCOPES = frozenset(SCOPES)


class Caller(NamedTuple):
    """Who has a key; several keys may have one name, as while they are rotated."""

    name: str
    """Empty if the key has none."""
    scopes: frozenset[str]

    def owner_with(self, key_digest: bytes) -> str:
        """What identifies the caller as the owner of runs: the name of its keys, else its key.

        Args:
            key_digest: SHA-256 digest of the key.
        """
        if self.name:
            return f"name:{self.name}"
        return f"key:{key_digest.hex()[:32]}"


_Digests = dict[bytes, Caller]
"""The caller by the SHA-256 digest of its key; the keys themselves are not kept."""


class ApiKeys:
    """The API keys of a service, from its settings and from a file that is read again when it changes.

    Raises:
        ConfigurationError: The file cannot be read, or an entry is invalid. The message never contains the entry.
    """

    def __init__(self, settings: Settings) -> None:
        self._from_settings: _Digests = {}
        for number, key in enumerate(settings.api_keys, 1):
            place = f"Entry {number} of PODWRIGHT_API_KEYS"
            _add_entry(self._from_settings, place, key.get_secret_value())
        self._file: Path | None = None
        if settings.api_keys_file:
            self._file = Path(settings.api_keys_file)
        self._checked_at = time.monotonic()
        self._file_state = self._stat()
        self._keys = self._load()

    @property
    def required(self) -> bool:
        """Whether the service has any keys."""
        return bool(self._keys)

    @property
    def names(self) -> frozenset[str]:
        """The names of the callers that have one."""
        names = {caller.name for caller in self._keys.values()}
        return frozenset(names - {""})

    @property
    def callers(self) -> list[Caller]:
        """The caller of each key."""
        return list(self._keys.values())

    def authenticate(self, headers: Headers) -> tuple[Caller, str]:
        """The caller whose API key a request has, and what identifies it as the owner of runs.

        Raises:
            RequestError: 401: no known key.
        """
        key = _key_in(headers).encode("latin-1")
        digest = hashlib.sha256(key).digest()
        caller = self._caller(digest)
        if caller is None:
            raise _key_required_error(
                "Unknown API key.", ', error="invalid_token"'
            )
        return caller, caller.owner_with(digest)

    def _caller(self, digest: bytes) -> Caller | None:
        self._reload_if_changed()
        caller = None
        # no early exit, so that the time reveals nothing
        for known, known_caller in self._keys.items():
            if hmac.compare_digest(known, digest):
                caller = known_caller
        return caller

    def _reload_if_changed(self) -> None:
        if (
            self._file is None
            or time.monotonic() - self._checked_at < _CHECK_INTERVAL
        ):
            return
        self._checked_at = time.monotonic()
        state = self._stat()
        if state == self._file_state:
            return
        self._file_state = state
        try:
            self._keys = self._load()
        except ConfigurationError as error:
            # a mistake in the file must not lock all callers out
            _log.error("%s The previous keys stay valid.", error.message)
        else:
            _log.info("Reloaded the API keys: %d keys.", len(self._keys))

    def _stat(self) -> tuple[int, int, int] | None:
        if self._file is None:
            return None
        try:
            status = self._file.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino, status.st_size

    def _load(self) -> _Digests:
        if self._file is None:
            return self._from_settings
        return _with_keys_of(self._file, self._from_settings)


def _with_keys_of(file: Path, others: _Digests) -> _Digests:
    """Other keys, and those in a file: one on each line, besides comments."""
    try:
        text = read_bytes(file).decode()
    except UnicodeError:  # whose text contains bytes of the file
        raise _unreadable_file_error(file, "not UTF-8") from None
    except (OSError, ValueError) as error:
        raise _unreadable_file_error(file, os_error_reason(error)) from None
    keys = dict(others)
    is_empty = True
    for number, line in enumerate(text.splitlines(), 1):
        entry = line.strip()
        if entry and not entry.startswith("#"):
            _add_entry(keys, f"Line {number} of '{file}'", entry)
            is_empty = False
    if is_empty:
        raise ConfigurationError(
            f"PODWRIGHT_API_KEYS_FILE: '{file}' has no keys.",
            suggestion=_NEW_KEY,
        )
    return keys


def _unreadable_file_error(file: Path, reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"PODWRIGHT_API_KEYS_FILE: '{file}' cannot be read: {reason}.",
        suggestion="Name a file that this user can read, or unset the variable.",
    )


def _key_in(headers: Headers) -> str:
    """The API key that a request has.

    Raises:
        RequestError: 401: it has none, or more than one.
    """
    values = headers.getlist("authorization")
    if not values:
        raise _key_required_error("The API key is missing.")
    scheme, _, key = values[0].partition(" ")
    key = key.strip()
    if len(values) > 1 or scheme.lower() != "bearer" or not key:
        detail = "Expected one header 'Authorization: Bearer KEY'."
        raise _key_required_error(detail)
    return key


def _add_entry(keys: _Digests, place: str, entry: str) -> None:
    """Add the key of an entry.

    Raises:
        ConfigurationError: It is invalid, or an entry before it gives the key to another caller.
    """
    digest, caller = _parse_entry(place, entry)
    if keys.setdefault(digest, caller) != caller:
        raise ConfigurationError(
            f"{place} has the key of another entry, with another name or other scopes.",
            suggestion="Make a key for each caller with `openssl rand -hex 32`.",
        )


def _parse_entry(place: str, entry: str) -> tuple[bytes, Caller]:
    """The digest of a key, and its caller.

    An entry is `KEY`, `SCOPES:KEY`, `SCOPES@NAME:KEY` or `@NAME:KEY`; or with the name first, as the first entries with
    names were: `NAME@KEY`, `NAME@SCOPES:KEY`.
    """
    prefix, colon, key = entry.rpartition(":")
    if colon:
        caller = _parse_prefix(place, prefix)
    else:
        name, at, key = entry.rpartition("@")
        caller = Caller("", _ALL_SCOPES)
        if at:
            caller = Caller(_checked_name(place, name), _ALL_SCOPES)
    if not _TOKEN.fullmatch(key):
        raise ConfigurationError(
            f"{place} has characters that the header 'Authorization' cannot carry.",
            suggestion=_NEW_KEY,
        )
    if len(key) < MIN_KEY_LENGTH:
        raise ConfigurationError(
            f"{place} is shorter than {MIN_KEY_LENGTH} characters.",
            suggestion=_NEW_KEY,
        )
    return hashlib.sha256(key.encode()).digest(), caller


def _parse_prefix(place: str, prefix: str) -> Caller:
    """The caller of a key, from what is before its colon; errors do not show it: it may be a part of a key."""
    before, at, after = prefix.rpartition("@")
    if not at:
        return Caller("", _checked_scopes(place, prefix))
    if not before:
        return Caller(_checked_name(place, after), _ALL_SCOPES)
    if not _are_scopes(before):
        scopes = _checked_scopes(place, after)
        return Caller(_checked_name(place, before), scopes)
    if not _are_scopes(after):
        name = _checked_name(place, after)
        return Caller(name, _checked_scopes(place, before))
    raise ConfigurationError(
        f"{place} has a scope on both sides of its '@'.",
        suggestion="Give the key a name that is not the name of a scope.",
    )


def _are_scopes(text: str) -> bool:
    return _scopes_in(text) <= _ALL_SCOPES


def _scopes_in(text: str) -> frozenset[str]:
    return frozenset(scope.strip() for scope in text.split("+"))


def _checked_scopes(place: str, text: str) -> frozenset[str]:
    scopes = _scopes_in(text)
    if not scopes <= _ALL_SCOPES:
        raise ConfigurationError(
            f"{place} has an unknown scope before its colon.", suggestion=_FORM
        )
    return scopes


def _checked_name(place: str, name: str) -> str:
    if not is_key_name(name):
        raise ConfigurationError(
            f"{place} has an invalid name beside its '@'.",
            suggestion="Use 1 to 64 letters, digits, '.', '_' and '-'. A key contains no '@'.",
        )
    # whoever writes `run@KEY` means a scope, and would get all of them
    if _are_scopes(name):
        raise ConfigurationError(
            f"{place} has the name of a scope as the name of the key.",
            suggestion=_FORM,
        )
    return name


def scope_missing(scope: str) -> RequestError:
    """The 403 for an API key without a scope."""
    error = f', error="insufficient_scope", scope="{scope}"'
    return RequestError(
        403,
        "scope_missing",
        f"The API key lacks the scope '{scope}'.",
        suggestion="Ask the operator for a key with this scope.",
        headers={"www-authenticate": _CHALLENGE + error},
    )


def _key_required_error(detail: str, error: str = "") -> RequestError:
    return RequestError(
        401,
        "key_required",
        detail,
        suggestion="Send the header 'Authorization: Bearer KEY' with a key from the operator.",
        headers={"www-authenticate": _CHALLENGE + error},
    )


class AuthenticationMiddleware:
    """ASGI middleware that requires an API key for every path except the open ones.

    The scopes of the key are `key_scopes` in the state of the request, its name is `caller`, `owner` identifies the
    caller, and `relays` is whether the caller may say for whom it calls.
    """

    def __init__(self, app: ASGIApp, keys: ApiKeys) -> None:
        self._app = app
        self._keys = keys

    async def __call__(
        self, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Serve the request, or raise a 401 or 403."""
        if scope["type"] == "http":
            self._check(scope)
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        path = path_in(scope)
        if path in OPEN_PATHS or path.startswith("/docs/"):
            return
        caller, owner = self._keys.authenticate(Headers(scope=scope))
        state = scope.setdefault("state", {})
        state["key_scopes"] = caller.scopes
        state["caller"] = caller.name
        state["owner"] = owner
        state["relays"] = RELAY in caller.scopes
        required = scopes_of(scope["method"], path)
        if required and caller.scopes.isdisjoint(required):
            raise scope_missing(required[0])


def has_scope(request: Request, scope: str) -> bool:
    """Whether the API key of a request has a scope; without keys, each caller has all of them."""
    scopes: frozenset[str] | None = getattr(request.state, "key_scopes", None)
    return scopes is None or scope in scopes


def owner_of(request: Request) -> str:
    """What identifies the caller of a request as the owner of runs; empty without API keys."""
    return getattr(request.state, "owner", "")


def warn_if_open(settings: Settings) -> None:
    """Log a warning if a service without API keys listens on more than a loopback address."""
    if not (
        settings.api_keys
        or settings.api_keys_file
        or is_loopback(settings.host)
    ):
        _log.warning(
            "No API keys are configured, and the service listens on %s: every client that can reach it may run the "
            "component, and inline blueprints. Set PODWRIGHT_API_KEYS, or listen on 127.0.0.1.",
            settings.host,
        )


def is_loopback(host: str) -> bool:
    """Whether an address to listen on is reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
