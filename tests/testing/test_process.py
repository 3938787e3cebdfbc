"""A component process that does not become ready is reported in time."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from podwright_service.testing import ComponentProcess, SpanCollector, StartError


def process_of(patch: pytest.MonkeyPatch, folder: Path, script: str, startup: float) -> ComponentProcess:
    """A process that runs a shell script in place of the service."""
    program = folder / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    patch.setattr(sys, "executable", str(program))
    return ComponentProcess("calculator", startup=startup)


def test_a_process_that_is_never_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that listens and is not ready is awaited for `startup` seconds."""
    with SpanCollector(status=503) as not_ready:
        script = f"echo running on {not_ready.url}; exec sleep 600"
        process = process_of(monkeypatch, tmp_path, script, startup=2)
        with pytest.raises(StartError, match="running on"):
            process.start()
        assert not_ready.requests


def test_a_process_that_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that stops while it starts is reported at once, with its log."""
    process = process_of(monkeypatch, tmp_path, "echo running on http://127.0.0.1:1; exit 3", startup=600)
    with pytest.raises(StartError, match="running on"):
        process.start()
    assert "running on" in process.logs()
