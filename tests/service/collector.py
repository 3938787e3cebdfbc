"""Where the tests' services send their spans."""

from __future__ import annotations

import socket
from collections.abc import Generator
from contextlib import contextmanager

from podwright_service.testing import Span
from podwright_service.testing import SpanCollector as Collector

__all__ = ["Collector", "Span", "collector", "silent"]

collector = Collector


@contextmanager
def silent() -> Generator[str]:
    """The address of something that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
