"""Who may call: the operator's API keys, and the door that asks for one before a body is read."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from podwright.blueprints import read_bytes
from podwright.errors import ConfigurationError
from podwright.text import did_you_mean, os_error_reason
from podwright_service.problems import RequestError, answer
from podwright_service.settings import Settings

SCOPES: Mapping[str, tuple[str, ...]] = {
    "run": ("/run", "/run/stream"),
    "blueprint": ("/run-blueprint", "/validate-blueprint"),
    "read": ("/info", "/metrics", "/openapi.json"),
}
"""What a key may be for, and the paths that each is."""

OPEN = ("/health", "/ready", "/docs")
"""The paths that need no key; all but these need one, also those that do not exist."""

PATHS = (*OPEN, *(path for paths in SCOPES.values() for path in paths))
"""All paths that there are."""

SHORTEST = 16
"""Fewest characters of a key."""

CALLER = "caller"
"""Where a request's state has who sends it."""

_NEEDED = {path: scope for scope, paths in SCOPES.items() for path in paths}
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""What the header can carry (RFC 6750, section 2.1)."""
_LOOK_EVERY = 1.0
_NO_FILE = "Name a file that this user can read, or unset the variable."
_NEW_KEY = "Make a key with `openssl rand -hex 32`."

_log = logging.getLogger("podwright.service")

_Known = dict[bytes, frozenset[str]]
"""The scopes of each key, by its digest: the key itself is not kept."""


class Keys:
    """The keys that callers must send one of.

    Args:
        settings: Where they stand.

    Raises:
        ConfigurationError: The file cannot be read, or an entry is no key. The message never has the entry.
    """

    def __init__(self, settings: Settings) -> None:
        given = [(f"Entry {n} of PODWRIGHT_API_KEYS", key) for n, key in enumerate(settings.api_keys, 1)]
        self._given = _merged((where, key.get_secret_value()) for where, key in given)
        self._path = Path(settings.api_keys_file) if settings.api_keys_file else None
        self._looked, self._stamp = time.monotonic(), self._stamped()
        self._known = self._all()

    @property
    def needed(self) -> bool:
        """Whether there are keys at all."""
        return bool(self._known)

    def scopes(self, key: bytes) -> tuple[str, frozenset[str]] | None:
        """Who sends a key, as a short name that tells nothing of it, and what the key is for; None if it is unknown."""
        self._renew()
        digest, found = hashlib.sha256(key).digest(), None
        for known, scopes in self._known.items():  # all of them: the time must not tell which one was nearly right
            if hmac.compare_digest(known, digest):
                found = scopes
        return None if found is None else (digest.hex()[:12], found)

    def caller(self, scope: Scope) -> str | RequestError | None:
        """Who sends a request, or why it is refused; None where no key is needed."""
        if scope["path"] in OPEN:
            return None
        sent = [value for name, value in scope["headers"] if name == b"authorization"]
        kind, _, key = (sent[0] if len(sent) == 1 else b"").partition(b" ")
        if kind.lower() != b"bearer" or not key.strip():
            said = "The header 'Authorization' does not say 'Bearer KEY'." if sent else "The request has no API key."
            return _refused(401, said)
        if (found := self.scopes(key.strip())) is None:
            hint = "Check it, or ask the operator for one."
            return _refused(401, "The API key is not known here.", 'error="invalid_token"', hint)
        caller, scopes = found
        needed = _NEEDED.get(scope["path"])
        if needed and needed not in scopes:
            why = f'error="insufficient_scope", scope="{needed}"'
            return _refused(403, f"The API key is not for the scope '{needed}'.", why)
        return caller

    def _renew(self) -> None:
        """Read the file again if it changed. What is wrong in it must not lock everybody out."""
        if self._path is None or time.monotonic() - self._looked < _LOOK_EVERY:
            return
        self._looked = time.monotonic()
        if (stamp := self._stamped()) == self._stamp:
            return
        self._stamp = stamp
        try:
            self._known = self._all()
        except ConfigurationError as error:
            _log.error("%s The keys that were read before stay valid.", error.message)
        else:
            _log.info("API keys were read again: there are %d.", len(self._known))

    def _stamped(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat() if self._path else None
        except OSError:
            return None
        return (found.st_mtime_ns, found.st_ino, found.st_size) if found else None

    def _all(self) -> _Known:
        return self._given | {
            digest: scopes | self._given.get(digest, frozenset()) for digest, scopes in self._filed().items()
        }

    def _filed(self) -> _Known:
        if self._path is None:
            return {}
        try:
            lines = read_bytes(self._path).decode().splitlines()
        except (OSError, ValueError) as error:
            # the error of a decoder has the bytes that it could not read, which may be a key's
            reason = "it is not UTF-8" if isinstance(error, UnicodeError) else os_error_reason(error)
            raise ConfigurationError(
                f"PODWRIGHT_API_KEYS_FILE: '{self._path}' cannot be read: {reason}.", suggestion=_NO_FILE
            ) from None
        numbered = ((f"Line {number} of '{self._path}'", line.strip()) for number, line in enumerate(lines, 1))
        found = _merged((where, line) for where, line in numbered if line and not line.startswith("#"))
        if not found:
            raise ConfigurationError(f"PODWRIGHT_API_KEYS_FILE: '{self._path}' has no keys.", suggestion=_NEW_KEY)
        return found


def _merged(entries: Iterable[tuple[str, str]]) -> _Known:
    found: _Known = {}
    for where, entry in entries:
        digest, scopes = _read(where, entry)
        found[digest] = scopes | found.get(digest, frozenset())
    return found


def _read(where: str, entry: str) -> tuple[bytes, frozenset[str]]:
    prefix, colon, key = entry.rpartition(":")
    scopes = frozenset(one.strip() for one in prefix.split("+")) if colon else frozenset(SCOPES)
    for one in sorted(scopes - set(SCOPES)):
        # what stands before the colon may be half a key, so it is shown only where it looks like a scope
        hint = did_you_mean(one, SCOPES) if len(one) < SHORTEST else ""
        near = hint.startswith("Did you mean")
        raise ConfigurationError(
            f"{where} names {repr(one) if near else 'something'} that is no scope.",
            suggestion=hint
            if near
            else f"Write KEY, or SCOPES:KEY with scopes of {', '.join(SCOPES)} and '+' between them.",
        )
    if not _TOKEN.fullmatch(key):
        raise ConfigurationError(
            f"{where} has characters that the header 'Authorization' cannot carry.", suggestion=_NEW_KEY
        )
    if len(key) < SHORTEST:
        raise ConfigurationError(f"{where} is shorter than {SHORTEST} characters.", suggestion=_NEW_KEY)
    return hashlib.sha256(key.encode()).digest(), scopes


class AuthenticationMiddleware:
    """ASGI middleware that lets in who sends a key; who that is stands in the request's state as `caller`."""

    def __init__(self, app: ASGIApp, keys: Keys) -> None:
        self._app, self._keys = app, keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve, or refuse."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        if CALLER not in state:  # the server has not asked yet
            state[CALLER] = self._keys.caller(scope)
        if isinstance(error := state[CALLER], RequestError):
            await answer(Request(scope), error)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def _refused(
    status: int, detail: str, why: str = "", hint: str = "Send the header 'Authorization: Bearer KEY'."
) -> RequestError:
    code = "key_required"
    if status == 403:
        code, hint = "scope_missing", "Ask the operator for a key with this scope."
    challenge = 'Bearer realm="podwright"' + (f", {why}" if why else "")
    return RequestError(status, code, detail, hint, {"www-authenticate": challenge})


def warn_if_open(settings: Settings) -> None:
    """Say once that everybody may call, where others than this machine can."""
    if settings.api_keys or settings.api_keys_file or _is_loopback(settings.host):
        return
    _log.warning(
        "There are no API keys, and the service listens on %s: whoever reaches it can run the component, and "
        "blueprints within the allow-lists. Set PODWRIGHT_API_KEYS, or listen on 127.0.0.1.",
        settings.host,
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def secure(document: dict[str, Any], refusals: Mapping[str, Any]) -> None:
    """Have an OpenAPI document say that keys are needed, and with which answers a request without one is refused."""
    document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    for path, operations in document["paths"].items():
        for operation in () if path in OPEN else operations.values():
            operation["security"] = [{"key": [_NEEDED[path]] if path in _NEEDED else []}]
            operation["responses"] = dict(sorted((operation["responses"] | refusals).items()))
