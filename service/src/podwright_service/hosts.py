"""The hosts that requests may be for: a check of the header `Host`, against DNS rebinding.

A web page can have its own host name resolve to a loopback address, and its browser then lets it read a service there.
The header `Host` of such a request has the page's name.
"""

from __future__ import annotations

import re

from starlette.types import ASGIApp, Receive, Scope, Send

from podwright.text import short_repr
from podwright_service.auth import is_loopback
from podwright_service.paths import PROBES
from podwright_service.problems import RequestError
from podwright_service.settings import Settings

_LOCAL = r"localhost|.+\.localhost|127(\.\d+){3}|\[::1\]|[\w-]+"
"""Loopback addresses and names without a dot: proxies use these, and no name of the public DNS is one."""
_ADDRESS = re.compile(r"([\d.]+|\[.+\])(:\d+)?")


class HostMiddleware:
    """ASGI middleware that refuses a request that has not one header `Host`, or one that is not allowed.

    Probes may have any `Host`, and requests for metrics any address, because Kubernetes and Prometheus call pods by
    their addresses.
    """

    def __init__(self, app: ASGIApp, settings: Settings, has_keys: bool) -> None:
        default = _LOCAL if is_loopback(settings.host) and not has_keys else ".*"
        names = [re.escape(name).replace(r"\*", ".*") for name in settings.allowed_hosts] or [default]
        self._app, self._allowed = app, re.compile(rf"({'|'.join(names)})(:\d*)?", re.IGNORECASE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request, or raise a 400."""
        if scope["type"] == "http":
            self._check(scope)
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        path, host = scope["path"], "".join(hosts)
        is_single = len(hosts) == 1 or (not hosts and scope["http_version"] == "1.0")  # RFC 9112, section 3.2
        any_host = path in PROBES or (path == "/metrics" and _ADDRESS.fullmatch(host))
        if not is_single or not (any_host or self._allowed.fullmatch(host)):
            detail = f"Expected one header 'Host' with an allowed name, got {short_repr(hosts)}."
            suggestion = "Use another name, or have the operator add this one to PODWRIGHT_ALLOWED_HOSTS."
            raise RequestError(400, "host_invalid", detail, suggestion)
