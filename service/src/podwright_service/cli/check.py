"""The command `check`. It imports little, because containers run it every few seconds."""

from __future__ import annotations

import http.client
import os
import sys
from collections.abc import Mapping
from types import MappingProxyType
from urllib.parse import urlsplit

from podwright.data.redaction import shown_url, without_url_secrets

TIMEOUT = 2.0
"""Seconds to wait for the service."""


def check(url: str | None = None, timeout: float = TIMEOUT) -> int:
    """Ask a service whether it is ready, and print the response.

    Args:
        url: The address; without a path, `/ready`. By default the service on this machine.
        timeout: Seconds to wait.

    Returns:
        The exit code: 0 if the status is 200, else 1.
    """
    url = url or default_url()
    try:
        status, body = get(url, timeout)
    except TimeoutError:
        status = 0
        body = f"no response within {timeout:g} s"
    except (OSError, ValueError, http.client.HTTPException) as error:
        status = 0
        body = (
            getattr(error, "strerror", None)
            or str(error)
            or type(error).__name__
        )
    line = (
        f"{shown_url(url)}: {status or ''} {without_url_secrets(body)}".replace(
            "  ", " "
        )
    )
    line = _printable(line)
    if status != 200:
        print(line, file=sys.stderr)
        return 1
    print(line)
    return 0


def _printable(line: str) -> str:
    # without the function of the library, whose import takes time
    characters = list(line)
    for position, character in enumerate(characters):
        if not character.isprintable():
            characters[position] = " "
    return "".join(characters)


def default_url() -> str:
    """The address of the service on this machine, by `PODWRIGHT_HOST` and `PODWRIGHT_PORT`."""
    port = os.environ.get("PODWRIGHT_PORT", "")
    host = os.environ.get("PODWRIGHT_HOST", "")
    # Kubernetes sets tcp://… next to a Service named "podwright"
    if not port.isdecimal():
        port = "8000"
    host = host.strip("[]")
    # a service on all addresses is also on this one
    if host in ("", "*", "0.0.0.0", "::"):  # noqa: S104
        host = "127.0.0.1"
    if ":" in host:
        host = f"[{host}]"
    return f"http://{host}:{port}/ready"


def get(
    url: str,
    timeout: float,
    headers: Mapping[str, str] = MappingProxyType({}),
    max_bytes: int = 200,
) -> tuple[int, str]:
    """The status and the start of the body at a URL; redirects and proxies are not followed.

    Args:
        url: The address; without a path, `/ready`.
        timeout: Seconds to wait for each network operation.
        headers: Headers of the request.
        max_bytes: How much of the body to read.

    Raises:
        OSError, ValueError, http.client.HTTPException: There is no response, or the address is none.
    """
    if "://" not in url:
        url = f"http://{url}"
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("not an http or https URL")
    connect = http.client.HTTPConnection
    if parts.scheme == "https":
        connect = http.client.HTTPSConnection
    connection = connect(parts.hostname, parts.port, timeout=timeout)
    target = parts.path
    if parts.query:
        target = f"{target}?{parts.query}"
    elif target in ("", "/"):
        target = "/ready"
    try:
        connection.request("GET", target, headers=dict(headers))
        response = connection.getresponse()
        body = response.read(max_bytes)
        return response.status, body.decode(errors="replace")
    finally:
        connection.close()
