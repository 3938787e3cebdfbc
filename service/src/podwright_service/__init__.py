"""One podwright component behind HTTP, made to run as one container.

Names are imported on first use: `podwright --help` need not load a web framework.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from podwright import __version__

if TYPE_CHECKING:
    from podwright_service.app import create_app
    from podwright_service.server import Service

__all__ = ["Service", "__version__", "create_app"]

_HOME = {"Service": "podwright_service.server", "create_app": "podwright_service.app"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'podwright_service' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
