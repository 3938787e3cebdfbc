"""The public names of the package; `__init__.py` imports each of them on first use."""

from .app import create_app, lifespan
from .execution import run_component
from .observability.logging import configure_logging
from .observability.recording import record_spans
from .serving.server import Service
from .settings import Settings, read_settings

__all__ = [
    "Service",
    "Settings",
    "__version__",
    "configure_logging",
    "create_app",
    "lifespan",
    "read_settings",
    "record_spans",
    "run_component",
]

__version__: str
