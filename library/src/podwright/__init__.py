"""Podwright: agents, workflows, conductors and pipelines, from blueprint to pod.

The public names are listed in `__init__.pyi` and imported on first use, so that `import podwright` is fast.
"""

# pyright: basic
# lazy_loader has no type hints; type checkers of users read the stub
import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
