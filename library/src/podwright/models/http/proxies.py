"""The proxy of a request: one that is named, or that of the environment."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Final
from urllib.parse import urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

from podwright.models.http.urls import split_url
from podwright.settings import current_settings


class ByEnvironment(Enum):
    """In the place of a proxy's URL."""

    BY_ENVIRONMENT = "by environment"
    """The proxy that the environment names, if `PODWRIGHT_TRUST_ENV` is true."""


BY_ENVIRONMENT: Final = ByEnvironment.BY_ENVIRONMENT
_SCHEMES = ("http", "https", "ws", "wss", "all")
"""The variables of proxies that clients read, without `_PROXY`."""


def trusts_environment() -> bool:
    """Whether requests go through the proxies of the environment."""
    return current_settings().trust_env


def environment_proxy(url: str) -> str | None:
    """The proxy of the environment for a URL, without credentials; None if a request goes there directly.

    `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY` are read as aiohttp reads them, and only if they are trusted.

    Raises:
        ValueError: A variable has no URL. The message does not quote it.
    """
    proxy = environment_proxy_with_credentials(url)
    if proxy is None:
        return None
    return without_credentials(proxy)


def environment_proxy_with_credentials(url: str) -> str | None:
    """As `environment_proxy`, with user and password, for requests and not for messages."""
    proxy = _variable_for(url, "")
    # aiohttp ignores others
    if proxy is None or not proxy.startswith("http:"):
        return None
    return proxy


def environment_proxy_of_litellm(url: str) -> str | None:
    """As `environment_proxy`, for LiteLLM: proxies may be https, `ALL_PROXY` counts, and `http://` may be missing."""
    proxy = _variable_for(url, "all")
    if proxy is None:
        return None
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    return without_credentials(proxy)


def _variable_for(url: str, default_scheme: str) -> str | None:
    """What the environment names as the proxy of a URL, if it is trusted and the host is not excepted."""
    if not trusts_environment():
        return None
    # the clients read all variables, and quote the text of one that is invalid
    for name in invalid_proxies():
        raise ValueError(f"the proxy in {name} is not a URL")
    parts = urlsplit(url)
    if proxy_bypass(parts.hostname or ""):
        return None
    proxies = getproxies()
    return proxies.get(parts.scheme) or proxies.get(default_scheme)


def invalid_proxies() -> Iterator[str]:
    """The variables of the environment whose proxy is not a URL, if they are trusted."""
    if not trusts_environment():
        return
    for scheme, proxy in getproxies().items():
        if scheme in _SCHEMES and not _is_url(proxy):
            yield f"{scheme.upper()}_PROXY"


def _is_url(proxy: str) -> bool:
    """Whether a text is a URL, or such a text without its scheme."""
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    parts = split_url(proxy)
    return parts is not None and not parts.fragment


def via(proxy: str | None) -> str:
    """The way of a response, for messages: ` through the proxy http://proxy:3128`; empty without a proxy."""
    if proxy is None:
        return ""
    return f" through the proxy {proxy}"


def is_proxy(url: str) -> bool:
    """Whether a text is the URL of a proxy: http or https and a host, perhaps with a port, a user and a password."""
    if not url.isprintable() or " " in url:
        return False
    parts = split_url(url)
    if parts is None or parts.scheme not in ("http", "https"):
        return False
    return not (parts.path.strip("/") or parts.query or parts.fragment)


def without_credentials(url: str) -> str:
    """The URL of a proxy without its user and password."""
    parts = urlsplit(url)
    address = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, address, "", "", ""))
