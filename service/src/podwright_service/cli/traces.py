"""Traces that commands read."""

from __future__ import annotations

import json

from podwright.data.text import truncate
from podwright.errors import TraceError
from podwright.run.result import ExecutionResult
from podwright_service.cli.console import read_text


def read_trace(file: str) -> ExecutionResult:
    """Read a trace.

    Args:
        file: Its file, or `-` for standard input.

    Raises:
        ConfigurationError: It cannot be read.
        TraceError: It is not a trace.
    """
    try:
        data = json.loads(read_text(file))
    except (ValueError, RecursionError) as error:
        raise TraceError(
            f"'{truncate(file, 200)}' is not JSON: {error}.",
            suggestion="Use a file that `podwright run --trace FILE` wrote.",
        ) from error
    return ExecutionResult.from_dict(data)
