"""The sockets that the service listens on, opened before anything is started, so that an error is told in words."""

from __future__ import annotations

import contextlib
import errno
import socket

from podwright.errors import ConfigurationError

BACKLOG = 2048
"""Connections that the kernel keeps until they are accepted."""

_NOT_HERE = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}
_ANOTHER = "set another one with --port or PODWRIGHT_PORT."
_HOST = "Set --host or PODWRIGHT_HOST; 0.0.0.0 is all addresses of this machine."


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
            why, suggestion = _words(error, port)
            raise ConfigurationError(f"Cannot listen on {host}:{port}: {why}.", suggestion=suggestion) from error
        stack.pop_all()
    return listening


def url(listening: list[socket.socket]) -> str:
    """Where a browser finds it."""
    host, port = listening[0].getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _words(fault: OSError | UnicodeError, port: int) -> tuple[str, str]:
    if isinstance(fault, socket.gaierror | UnicodeError):
        return "no such host is known", _HOST
    match fault.errno:
        case errno.EADDRINUSE:
            return "address already in use", f"Stop what listens on port {port}, or {_ANOTHER}"
        case errno.EACCES:
            return "this user may not", f"Ports below 1024 are for root; {_ANOTHER}"
        case errno.EADDRNOTAVAIL:
            return "this machine has no such address", _HOST
        case _:
            return fault.strerror or str(fault), _HOST


def _addresses(host: str, port: int) -> list[tuple[socket.AddressFamily, str]]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    # IPv4 first: where a machine has no IPv6, that is no error
    return sorted({(family, str(address[0])) for family, _, _, _, address in found})
