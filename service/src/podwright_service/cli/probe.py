"""The probe of a container: it must be quick, so it imports nothing but a plain HTTP client."""

from __future__ import annotations

import http.client
import os
import signal
import sys
from urllib.parse import urlsplit

TIMEOUT = 2.0
"""Seconds that the service has for all of its answer."""


def check(url: str | None = None, timeout: float = TIMEOUT) -> int:
    """Ask a service whether it is ready, and print the answer.

    Args:
        url: Its address; without a path, `/ready` is asked for. By default this machine's, on `PODWRIGHT_PORT`.
        timeout: Seconds that the answer may take.

    Returns:
        The exit code: 0 if the answer is 200, else 1.
    """
    asked = url or _here()
    try:
        status, text = _get(asked, timeout)
    except (OSError, ValueError, http.client.HTTPException) as error:
        said = getattr(error, "strerror", None) or str(error) or "no answer"
        if isinstance(error, TimeoutError):
            said = f"no answer within {timeout:g} s"
        print(_shown(f"{asked}: {said}"), file=sys.stderr)
        return 1
    print(_shown(f"{asked}: {status} {text}"), file=sys.stdout if status == 200 else sys.stderr)
    return 0 if status == 200 else 1


def _shown(text: str) -> str:
    """Without what steers a terminal."""
    return "".join(char if char.isprintable() else " " for char in text)


def _here() -> str:
    port, host = os.environ.get("PODWRIGHT_PORT", ""), os.environ.get("PODWRIGHT_HOST", "")
    port = port if port.isdecimal() else "8000"  # beside a Service named "podwright", Kubernetes sets tcp://…
    if host in ("", "0.0.0.0", "::"):  # noqa: S104 - whoever listens everywhere listens here
        host = "127.0.0.1"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/ready"


def _get(url: str, timeout: float) -> tuple[int, str]:
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("this is no http address")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    path = f"{parts.path}?{parts.query}" if parts.query else parts.path
    # a time-out of the socket begins anew with each byte
    signal.signal(signal.SIGALRM, _too_late)
    signal.setitimer(signal.ITIMER_REAL, timeout)
    connection = kind(parts.hostname, parts.port, timeout=timeout)
    try:
        connection.request("GET", path if path not in ("", "/") else "/ready")
        answer = connection.getresponse()
        text = answer.read(200).decode(errors="replace")
        return answer.status, text
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        connection.close()


def _too_late(number: int, frame: object) -> None:
    raise TimeoutError
