"""Ports of this machine that a test reserves before a process listens on them."""

from __future__ import annotations

import socket

_reserved: list[socket.socket] = []


def free_port() -> int:
    """A port that no other process gets while this one lives, and on which a given process can listen."""
    reservation = socket.socket()
    # so that another socket can listen on it
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reservation.bind(("127.0.0.1", 0))
    _reserved.append(reservation)
    return reservation.getsockname()[1]
