"""Why the service cannot listen where it was told to, in the words of who has to mend it."""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
from collections.abc import Generator

from podwright.errors import ConfigurationError

_ANOTHER = "set another one with --port or PODWRIGHT_PORT."
_HOST = "Set --host or PODWRIGHT_HOST; 0.0.0.0 is all addresses of this machine."


@contextlib.contextmanager
def told_why(host: str, port: int) -> Generator[None]:
    """Within this context, uvicorn's exit because of an address is one `ConfigurationError`, and no line of its own."""
    log = logging.getLogger("uvicorn.error")
    log.addFilter(_is_no_fault)
    try:
        yield
    except SystemExit as end:
        fault = end.__context__
        if not isinstance(fault, OSError):
            raise
        why, suggestion = _words(fault, port)
        raise ConfigurationError(f"Cannot listen on {host}:{port}: {why}.", suggestion=suggestion) from fault
    finally:
        log.removeFilter(_is_no_fault)


def _is_no_fault(record: logging.LogRecord) -> bool:
    return not isinstance(record.msg, OSError)


def _words(fault: OSError, port: int) -> tuple[str, str]:
    if isinstance(fault, socket.gaierror):
        return "no such host is known", _HOST
    match fault.errno:
        case errno.EADDRINUSE:
            return "address already in use", f"Stop what listens on port {port}, or {_ANOTHER}"
        case errno.EACCES:
            return "this user may not", f"Ports below 1024 are for root; {_ANOTHER}"
        case errno.EADDRNOTAVAIL:
            return "this machine has no such address", _HOST
        case _:
            return fault.strerror or str(fault), _HOST
