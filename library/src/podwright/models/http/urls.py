"""URLs and header values for requests to model providers and remote components."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

_NOT_IN_URL = frozenset(" #@\\")


def join_url(base_url: str, path: str) -> str:
    """The URL of `path` below a base URL.

    Raises:
        ValueError: The base URL is not http or https, or has a user, a query or a fragment. The message does not
            repeat it, because it may hold a secret.
    """
    if not _takes_path(base_url):
        raise ValueError("not an http or https URL that a path can follow")
    return base_url.rstrip("/") + path


def _takes_path(base_url: str) -> bool:
    """Whether a path can follow this URL."""
    return "?" not in base_url and is_request_url(base_url)


def is_request_url(url: str) -> bool:
    """Whether a text is an http or https URL without a user and a fragment."""
    if not url.isprintable():
        return False
    if not _NOT_IN_URL.isdisjoint(url):
        return False
    parts = split_url(url)
    return parts is not None and parts.scheme in ("http", "https")


def split_url(url: str) -> SplitResult | None:
    """The parts of a URL; None if it has no host, or its port is not a port."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:  # its message quotes the URL
        return None
    if port == 0 or not parts.hostname:
        return None
    return parts


def host_and_port(url: str) -> tuple[str, int]:
    """Host and port of an http or https URL."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.port:
        return host, parts.port
    if parts.scheme == "https":
        return host, 443
    return host, 80


def is_header_value(text: str) -> bool:
    """Whether a text can stand in an HTTP header: printable ASCII."""
    return text.isascii() and text.isprintable()
