"""Ports of this machine that tests have to themselves before anything listens on them."""

from __future__ import annotations

import socket

_held: list[socket.socket] = []


def free_port() -> int:
    """A port on which whoever knows it can listen, and which nobody else is given as long as this process lives."""
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # without it nobody could listen there
    one.bind(("127.0.0.1", 0))
    _held.append(one)
    return one.getsockname()[1]
