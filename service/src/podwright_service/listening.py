"""The sockets that the service listens on, opened before anything is started, so that an error is told in words."""

from __future__ import annotations

import contextlib
import errno
import os
import socket

from podwright.errors import ConfigurationError

BACKLOG = 2048
"""Connections that the kernel keeps until they are accepted."""

_NOT_HERE = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}


def listen(host: str, port: int) -> list[socket.socket]:
    """Listen on each address of a host; port 0 takes a free one, the same for all of them.

    Raises:
        ConfigurationError: It cannot be listened on; the message says why.
    """
    listening: list[socket.socket] = []
    with contextlib.ExitStack() as stack:
        try:
            for family, address in _addresses(host, port):
                chosen = listening[0].getsockname()[1] if listening else port
                try:
                    one = socket.create_server((address, chosen), family=family, backlog=BACKLOG)
                except OSError as error:
                    if error.errno in _NOT_HERE and listening:  # `localhost`, where there is no IPv6
                        continue
                    raise
                listening.append(stack.enter_context(one))
        except (OSError, UnicodeError) as error:
            raise ConfigurationError(
                f"Cannot listen on {host}:{port}: {_said(error)}.",
                suggestion="Stop what listens there, or set another host or port.",
            ) from error
        stack.pop_all()
    return listening


def url(listening: list[socket.socket]) -> str:
    """Where a browser finds it."""
    host, port = listening[0].getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _said(error: OSError | UnicodeError) -> str:
    number = error.errno if isinstance(error, OSError) else None
    said = os.strerror(number) if number and number > 0 else getattr(error, "strerror", None) or str(error)
    return said[:1].lower() + said[1:]


def _addresses(host: str, port: int) -> list[tuple[socket.AddressFamily, str]]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    # IPv4 first: where a machine has no IPv6, that is no error
    return sorted({(family, str(address[0])) for family, _, _, _, address in found})
