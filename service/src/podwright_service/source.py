"""From the name of a component, as an operator gives it, to the component."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import podwright
from podwright.components import Component
from podwright.errors import ConfigurationError, PodwrightError
from podwright.text import describe_error, did_you_mean, truncate


def load_component(source: str, agents: Mapping[str, Component] | None = None) -> Component:
    """The component behind a name.

    Args:
        source: The path of a blueprint file or a component folder, or `module:attribute`.
        agents: Components for the agents that a blueprint names.

    Raises:
        PodwrightError: It cannot be loaded; the message says why.
    """
    path = Path(source)
    if _is(path, Path.exists):
        try:
            return podwright.load(path, agents=agents)
        except OSError as error:
            raise ConfigurationError(
                f"Cannot read '{error.filename}': {error.strerror}.", suggestion="Let this user read it."
            ) from error
    module, colon, attribute = source.partition(":")
    if colon and module and attribute and "/" not in module:
        return _from_module(module, attribute)
    raise ConfigurationError(
        f"There is no component at '{truncate(source, 200)}'.",
        suggestion=did_you_mean(path.name, (name for name in _beside(path) if not name.startswith(".")))
        or "Give a blueprint file, a component folder, or module:attribute.",
    )


def is_folder(source: str) -> bool:
    """Whether this is the path of a folder."""
    return _is(Path(source), Path.is_dir)


def _is(path: Path, question: Callable[[Path], bool]) -> bool:
    try:
        return question(path)
    except (OSError, ValueError):  # a name that is too long, a folder that may not be read, a NUL
        return False


def _beside(path: Path) -> list[str]:
    try:
        return sorted(one.name for one in path.parent.iterdir())
    except (OSError, ValueError):
        return []


def _from_module(name: str, attribute: str) -> Component:
    here = str(Path.cwd())
    if here not in sys.path:  # a console script does not look in its working directory
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(name)
        found = getattr(module, attribute, None)
    except (PodwrightError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise ConfigurationError(
            f"The module '{name}' cannot be imported: {describe_error(error)}",
            suggestion=f"Try `python -c 'import {name}'` in this folder.",
        ) from error
    if not isinstance(found, Component):
        there = attribute in vars(module)
        what = f"'{name}:{attribute}' is a {type(found).__name__}, not a component."
        components = [key for key, value in vars(module).items() if isinstance(value, Component)]
        raise ConfigurationError(
            what if there else f"The module '{name}' has no '{attribute[:100]}'.",
            suggestion=did_you_mean(attribute, components) or f"Make an Agent, Workflow, and so on in '{name}'.",
        )
    return found
