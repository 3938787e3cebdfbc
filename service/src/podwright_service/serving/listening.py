"""The sockets of a service: one for each address that it listens on.

IPv4 and IPv6 have sockets of their own: on a shared one, the addresses of IPv4 clients would be written as IPv6, and
`FORWARDED_ALLOW_IPS` would not know them.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import logging
import socket
from collections.abc import Iterable, Sequence
from typing import Any

from podwright.data.text import os_error_reason
from podwright.errors import ConfigurationError

BACKLOG = 2048
"""Connections that may wait to be accepted; as many as uvicorn and gunicorn let wait."""
EVERY_HOST = ("*", "::")
"""The hosts that stand for all addresses of both families."""
_Address = tuple[int, str, Sequence[int]]
"""The family of an address, its text, and what else a socket of that family takes: of a link-local one, its link."""
_EVERY_ADDRESS: Sequence[_Address] = (
    (socket.AF_INET, "0.0.0.0", ()),  # noqa: S104 - a container is reached from outside (spec §4.1)
    (socket.AF_INET6, "::", ()),
)
_ATTEMPTS = 10
"""How often a free port is looked for that all addresses have free."""


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
            sockets = _bind_all(_addresses(host, port), port, opened)
        # getaddrinfo raises a UnicodeError for 'a..b', and for long labels
        except (OSError, UnicodeError) as error:
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
    addresses: Sequence[_Address],
    port: int,
    opened: contextlib.ExitStack,
) -> list[socket.socket]:
    attempts = 1
    if port == 0:
        attempts = _ATTEMPTS
    while True:
        attempts -= 1
        with contextlib.ExitStack() as opened_now:
            try:
                sockets = _bind_same_port(addresses, port, opened_now)
            except OSError as error:
                # a port that is free for one address may be in use for another
                if error.errno != errno.EADDRINUSE or attempts == 0:
                    raise
                continue
            opened.enter_context(opened_now.pop_all())
            return sockets


def _bind_same_port(
    addresses: Sequence[_Address],
    port: int,
    opened: contextlib.ExitStack,
) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    failure: OSError | None = None
    for family, address, scope in addresses:
        try:
            listening = _bind_one(family, (address, port, *scope))
        except OSError as error:
            if not _lacks_family(error, address):
                raise
            failure = error
            continue
        opened.enter_context(listening)
        sockets.append(listening)
        port = listening.getsockname()[1]
    if failure is not None and not sockets:
        raise failure
    return sockets


def _lacks_family(error: OSError, address: str) -> bool:
    """Whether an address cannot be used because the kernel lacks its family, or that is turned off."""
    if error.errno == errno.EAFNOSUPPORT:
        return True
    # every machine has these if it has the family; another one may be that of another machine
    known = ipaddress.ip_address(address)
    is_of_each_machine = known.is_loopback or known.is_unspecified
    return error.errno == errno.EADDRNOTAVAIL and is_of_each_machine


def _addresses(host: str, port: int) -> Sequence[_Address]:
    """The address of each socket."""
    if host in EVERY_HOST:
        return _EVERY_ADDRESS
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    # a name may have an address twice
    addresses: dict[_Address, None] = {}
    for family, *_, (address, _, *scope) in found:
        addresses[family, str(address), tuple(scope)] = None
    return list(addresses)


def _bind_one(family: int, address: tuple[Any, ...]) -> socket.socket:
    with contextlib.ExitStack() as opened:
        listening = opened.enter_context(socket.socket(family))
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # otherwise it would take the port of IPv4 too
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(address)
        opened.pop_all()
    return listening
