"""Refusals without the application: who floods the service must cost it as little as can be.

The ASGI doors decide alike behind any server. Ours asks here first, as soon as it has read a request's head, and sends
what it is given: no task, no middleware, and JSON that is made once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from podwright_service.admission import Admission
from podwright_service.auth import CALLER, Keys
from podwright_service.problems import MEDIA_TYPE, RequestError, as_bytes, document

Told = Callable[[str, str, int, float], None]
"""Is told of a request's method, path, status and seconds."""


class Doors:
    """All the doors of a service, as its server asks them.

    Args:
        keys: Who may call.
        admission: How many may.
        paths: The paths that there are.
        told: Hears of each request that is refused.
    """

    def __init__(self, keys: Keys, admission: Admission, paths: tuple[str, ...], told: Told) -> None:
        self._keys, self._admission, self._paths, self._told = keys, admission, frozenset(paths), told

    def refusal(self, scope: Scope) -> tuple[bytes, bytes] | None:
        """What to answer instead of serving a request; None if it is for the application.

        Returns:
            The status line, and what comes after the server's headers.
        """
        method, path = scope["method"], scope["path"]
        if path not in self._paths:
            return None
        error = self._refused(scope)
        if error is None:
            return None
        self._told(method, path, error.status, 0.0)
        return STATUS_LINE[error.status], _written(
            path, error.status, error.code, error.detail, error.suggestion, *(error.headers or {}).items()
        )

    def _refused(self, scope: Scope) -> RequestError | None:
        if self._keys.needed:
            found = self._keys.caller(scope)
            if isinstance(found, RequestError):
                return found
            scope["state"][CALLER] = found
        return self._admission.refused_now(scope)


@lru_cache(256)
def _written(path: str, status: int, code: str, detail: str, suggestion: str, *headers: tuple[str, str]) -> bytes:
    body = as_bytes(document(path, status, {"detail": detail, "code": code, "suggestion": suggestion}))
    named = [*headers, ("content-length", str(len(body))), ("content-type", MEDIA_TYPE)]
    return "".join(f"{name}: {value}\r\n" for name, value in named).encode("latin-1") + b"\r\n" + body
