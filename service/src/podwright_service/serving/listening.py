"""The sockets of a service: one for each address that it listens on.

IPv4 and IPv6 have sockets of their own: on a shared one, the addresses of IPv4 clients would be written as IPv6, and
`FORWARDED_ALLOW_IPS` would not know them.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
from collections.abc import Iterable, Sequence

from podwright.errors import ConfigurationError
from podwright.text import os_error_reason

BACKLOG = 2048
"""Connections that may wait to be accepted; as many as uvicorn and gunicorn let wait."""
EVERY_HOST = ("*", "::")
"""The hosts that stand for all addresses of both families."""
_EVERY_ADDRESS = (
    (socket.AF_INET, "0.0.0.0"),  # noqa: S104 - a container is reached from outside (spec §4.1)
    (socket.AF_INET6, "::"),
)
_NO_FAMILY = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
"""The kernel lacks the address family, or it is turned off."""


def bind(host: str, port: int) -> list[socket.socket]:
    """Sockets on all addresses of a host; they refuse connections until they listen.

    Args:
        host: A name, an address, or one of `EVERY_HOST`. Addresses of a family that the kernel lacks are left out.
        port: The port; 0 is a free one, the same for all addresses.

    Raises:
        ConfigurationError: An address cannot be used.
    """
    with contextlib.ExitStack() as opened:
        try:
            sockets = _bind_all(host, port, opened)
        except OSError as error:
            raise ConfigurationError(
                f"Could not listen on {host}:{port}: {os_error_reason(error)}.",
                suggestion="Use another host or port; --port 0 is any free one.",
            ) from error
        opened.pop_all()
    return sockets


def urls(sockets: Sequence[socket.socket]) -> list[str]:
    """The addresses of bound sockets as URLs, such as `http://[::]:8000`."""
    result: list[str] = []
    for listening in sockets:
        host, port, *_ = listening.getsockname()
        if ":" in host:
            host = f"[{host}]"
        result.append(f"http://{host}:{port}")
    return result


def log_addresses(addresses: Iterable[str]) -> None:
    """Write the line that says where the service can be reached."""
    logging.getLogger("uvicorn.error").info(
        "Uvicorn running on %s", ", ".join(addresses)
    )


def _bind_all(
    host: str, port: int, opened: contextlib.ExitStack
) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    failure: OSError | None = None
    for family, address in _addresses(host, port):
        try:
            listening = _bind_one(family, address, port)
        except OSError as error:
            if error.errno not in _NO_FAMILY:
                raise
            failure = error
            continue
        opened.enter_context(listening)
        sockets.append(listening)
        port = listening.getsockname()[1]
    if failure is not None and not sockets:
        raise failure
    return sockets


def _addresses(host: str, port: int) -> Sequence[tuple[int, str]]:
    """The address family and the address of each socket."""
    if host in EVERY_HOST:
        return _EVERY_ADDRESS
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    # a name may have an address twice
    return list(
        dict.fromkeys(
            (family, str(address[0])) for family, *_, address in found
        )
    )


def _bind_one(family: int, address: str, port: int) -> socket.socket:
    with contextlib.ExitStack() as opened:
        listening = opened.enter_context(socket.socket(family))
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # otherwise it would take the port of IPv4 too
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind((address, port))
        opened.pop_all()
    return listening
