"""The proxy of a request: one that is named, or that of the environment."""

from __future__ import annotations

import os
from urllib.parse import urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

BY_ENVIRONMENT = "environment"
"""In the place of a proxy's URL: the proxy that the environment names, if `PODWRIGHT_TRUST_ENV` is true."""
_TRUE = ("1", "true", "t", "yes", "y", "on")
"""Values of `PODWRIGHT_TRUST_ENV` that honour the proxy variables."""


def trusts_environment() -> bool:
    """Whether requests go through the proxies of the environment."""
    return os.environ.get("PODWRIGHT_TRUST_ENV", "").lower() in _TRUE


def environment_proxy(url: str) -> str | None:
    """The proxy of the environment for a URL, without credentials; None if a request goes there directly.

    `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY` are read as the HTTP clients read them, and only if they are trusted.
    """
    if not trusts_environment():
        return None
    parts = urlsplit(url)
    proxy = getproxies().get(parts.scheme)
    # aiohttp ignores others
    if proxy is None or not proxy.startswith("http:"):
        return None
    if proxy_bypass(parts.hostname or ""):
        return None
    return without_credentials(proxy)


def via(proxy: str | None) -> str:
    """The way of a response, for messages: ` through the proxy http://proxy:3128`; empty without a proxy."""
    if proxy is None:
        return ""
    return f" through the proxy {proxy}"


def is_proxy(url: str) -> bool:
    """Whether a text is the URL of a proxy: http or https, a host and a port, perhaps with a user and a password."""
    if not url.isprintable() or " " in url:
        return False
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:  # its message quotes the URL
        return False
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return False
    return port != 0 and not (parts.path.strip("/") or parts.query)


def without_credentials(url: str) -> str:
    """The URL of a proxy without its user and password."""
    parts = urlsplit(url)
    address = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, address, "", "", ""))
