"""A component process that does not become ready is reported in time."""

from __future__ import annotations

from pathlib import Path

import pytest

from podwright_service.testing import (
    ComponentProcess,
    SpanCollector,
    StartError,
)


def test_a_process_that_is_never_ready(
    tmp_path: Path,
) -> None:
    """A service that listens and is not ready is reported after `startup` seconds, with its log."""
    program = tmp_path / "python"
    with SpanCollector(status=503) as not_ready:
        program.write_text(
            f"#!/bin/sh\necho running on {not_ready.url}; exec sleep 600\n"
        )
        program.chmod(0o755)
        with pytest.raises(StartError, match="running on"):
            ComponentProcess("calculator", startup=2, python=program).start()
        assert not_ready.requests
