"""The connections of servers; importing this module imports the package `mcp`, which takes a second."""

from __future__ import annotations

import logging

from podwright.mcp.wire.connection import Connection
from podwright.mcp.wire.http_connection import HTTPConnection
from podwright.mcp.wire.stdio_connection import StdioConnection

__all__ = ["Connection", "HTTPConnection", "StdioConnection"]

_SILENT = ("mcp", "client")
"""The package's loggers. They log what servers send, with their words, and faults that are errors here."""
_WARNINGS = ("httpx2", "httpcore2")
"""Loggers that log URLs of requests."""


def _is_elsewhere(record: logging.LogRecord) -> bool:
    """Whether a record is of another package; the name `client` may be in use."""
    return "/mcp/client/" not in record.pathname.replace("\\", "/")


logging.getLogger("mcp").setLevel(logging.CRITICAL)
logging.getLogger("client").addFilter(_is_elsewhere)
for _name in _WARNINGS:
    logging.getLogger(_name).setLevel(logging.WARNING)
