"""The hosts and the web pages that requests may come for: against DNS rebinding and forged requests.

A web page can have its own host name resolve to an address of this service, and its browser then lets it read what the
service answers. The header `Host` of such a request has the page's name. In a container the listening address says
nothing about who can reach it, because its ports may be published on a loopback address of the machine.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from podwright.data.text import short_repr
from podwright_service.http.errors.problems import RequestError
from podwright_service.http.paths import PROBES, path_in
from podwright_service.settings import Settings

_LOCAL = r"localhost|.+\.localhost|[\d.]+|\[[\da-f:.]+\]|[\w-]+"
"""Loopback names, addresses, and names without a dot: no name of the public DNS is one."""
_CLUSTER = r".+\.svc|.+\.cluster\.local|.+\.internal"
"""Names of Services in Kubernetes, and names that are reserved for private networks."""


class HostMiddleware:
    """ASGI middleware that refuses a request that has not one header `Host`, or one that is not allowed.

    Local names and those of a cluster are always allowed; any name is if the service has API keys, which a web page
    does not know, and lists no names. Probes may have any `Host`.
    """

    def __init__(
        self, app: ASGIApp, settings: Settings, has_keys: bool
    ) -> None:
        listed = [
            re.escape(name).replace(r"\*", ".*")
            for name in settings.allowed_hosts
        ]
        if has_keys and not listed:
            listed = [".*"]
        names = "|".join([_LOCAL, _CLUSTER, *listed])
        self._app = app
        self._allowed = re.compile(rf"({names})(:\d*)?", re.IGNORECASE)

    async def __call__(
        self, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Serve the request, or raise a 400."""
        if scope["type"] == "http":
            self._check(scope)
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        hosts = [
            value.decode("latin-1")
            for name, value in scope["headers"]
            if name == b"host"
        ]
        host = "".join(hosts)
        # RFC 9112, section 3.2
        is_http_1_0 = not hosts and scope["http_version"] == "1.0"
        is_single = len(hosts) == 1 or is_http_1_0
        is_allowed = (
            path_in(scope) in PROBES
            or is_http_1_0
            or self._allowed.fullmatch(host)
        )
        if not is_single or not is_allowed:
            detail = f"Expected one header 'Host' with an allowed name, got {short_repr(hosts)}."
            suggestion = "Use another name, or have the operator add this one to PODWRIGHT_ALLOWED_HOSTS."
            raise RequestError(400, "host_invalid", detail, suggestion)


async def check_origin(request: Request) -> None:
    """Refuse a request without a body that a page of another origin makes: a browser sends it without asking first.

    Raises:
        RequestError: 403: the page's origin is not in `PODWRIGHT_CORS_ORIGINS`.
    """
    settings: Settings = request.app.state.runtime.settings
    allowed = settings.cors_origins
    origin = request.headers.get("origin")
    if origin is None:
        is_foreign = request.headers.get("sec-fetch-site") == "cross-site"
    else:
        is_foreign = (
            urlsplit(origin).netloc != request.headers.get("host")
            and origin not in allowed
        )
    if is_foreign and "*" not in allowed:
        detail = (
            f"A page of another origin made this request: {short_repr(origin)}."
        )
        raise RequestError(
            403,
            "origin_refused",
            detail,
            "Have the operator add it to PODWRIGHT_CORS_ORIGINS.",
        )
