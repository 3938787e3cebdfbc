"""URLs and header values for requests to model providers and remote components."""

from __future__ import annotations

from urllib.parse import urlsplit


def join_url(base_url: str, path: str) -> str:
    """The URL of `path` below a base URL.

    Raises:
        ValueError: The base URL is not http or https, or has a user, a query or a fragment. The message does not
            repeat it, because it may hold a secret.
    """
    parts = urlsplit(base_url)
    wrong = not base_url.isprintable() or any(char in base_url for char in " ?#@\\")
    if (
        wrong
        or parts.scheme not in ("http", "https")
        or not parts.hostname
        or parts.port == 0
    ):
        raise ValueError("not an http or https URL that a path can follow")
    return base_url.rstrip("/") + path


def host_and_port(url: str) -> tuple[str, int]:
    """Host and port of an http or https URL."""
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


def is_header_value(text: str) -> bool:
    """Whether a text can stand in an HTTP header: printable ASCII."""
    return text.isascii() and text.isprintable()
