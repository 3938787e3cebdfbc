"""The connections of servers; importing this module imports the package `mcp`, which takes a second."""

from __future__ import annotations

import logging

from podwright.mcp.wire.connection import Connection
from podwright.mcp.wire.http_connection import HTTPConnection
from podwright.mcp.wire.stdio_connection import StdioConnection

__all__ = ["Connection", "HTTPConnection", "StdioConnection"]


def _is_elsewhere(record: logging.LogRecord) -> bool:
    """Return whether a record is of another package, which may have a logger of the name `client` too."""
    return "/mcp/client/" not in record.pathname.replace("\\", "/")


# the package's loggers log what servers send, and faults that are errors here
logging.getLogger("mcp").setLevel(logging.CRITICAL)
logging.getLogger("client").addFilter(_is_elsewhere)
# at lower levels these log URLs of requests
logging.getLogger("httpx2").setLevel(logging.WARNING)
logging.getLogger("httpcore2").setLevel(logging.WARNING)
