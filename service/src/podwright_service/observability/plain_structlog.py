"""structlog without rich, with which it would draw tracebacks: no line of a log has such a drawing.

Where rich is there, structlog imports it: a tenth of the service's start, and 4 MB of every process.
"""

from __future__ import annotations

import sys

_absent = "rich" not in sys.modules
if _absent:
    sys.modules["rich"] = None  # pyright: ignore[reportArgumentType] - the import system's own mark for "there is none"
try:
    import structlog
finally:
    if _absent:
        del sys.modules["rich"]

__all__ = ["structlog"]
