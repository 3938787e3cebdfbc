"""A container registry on this machine."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator

import httpx
from tests.helpers import plain_http, tool, until
from tests.ports import free_port


@contextlib.contextmanager
def running_registry() -> Iterator[str]:
    """The address of a registry without TLS, which keeps images in memory."""
    port = free_port()
    address = f"127.0.0.1:{port}"

    def is_ready() -> bool:
        with contextlib.suppress(httpx.TransportError):
            return plain_http.get(f"http://{address}/v2/").is_success
        return False

    with subprocess.Popen(
        [tool("registry"), f"-port={port}"], stderr=subprocess.DEVNULL
    ) as process:
        try:
            until(is_ready)
            yield address
        finally:
            process.terminate()
