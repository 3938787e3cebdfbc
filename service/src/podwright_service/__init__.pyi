"""The public names of the package; `__init__.py` imports each of them on first use."""

from .app import create_app
from .serving.server import Service

__all__ = ["Service", "__version__", "create_app"]

__version__: str
