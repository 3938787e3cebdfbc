"""A component in a process that does not come up: told in time, whatever it does instead."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from podwright_service.testing import ComponentProcess, SpanCollector, StartError


def starts(patch: pytest.MonkeyPatch, at: Path, script: str, startup: float) -> ComponentProcess:
    """A process that runs a shell script in place of the service."""
    at.write_text(f"#!/bin/sh\n{script}\n")
    at.chmod(0o755)
    patch.setattr(sys, "executable", str(at))
    return ComponentProcess("calculator", startup=startup)


def test_one_that_is_never_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that listens and is not ready is waited for only so long, and its log is told."""
    with SpanCollector(status=503) as unready:
        process = starts(monkeypatch, tmp_path / "python", f"echo running on {unready.url}; exec sleep 600", 3)
        with pytest.raises(StartError, match=r"did not become ready.(\n|.)*running on"):
            process.start()
        assert unready.requests


def test_one_that_ends_as_it_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that ends after it has listened is told as one that ended before, not as a lost connection."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = starts(monkeypatch, tmp_path / "python", f"echo running on http://127.0.0.1:{port}; exit 3", 60)
    with pytest.raises(StartError, match=r"did not become ready.(\n|.)*running on"):
        process.start()
