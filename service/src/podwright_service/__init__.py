"""One podwright component behind HTTP, made to run as one container.

The public names are listed in `__init__.pyi` and imported on first use: `podwright --help` need not load a web
framework.
"""

# pyright: basic
# lazy_loader has no type hints; type checkers of users read the stub
import lazy_loader

from podwright import __version__ as __version__

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
