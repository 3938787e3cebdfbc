"""Loading a component from a path, or from a Python module."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import podwright
from podwright import blueprints
from podwright.blueprints.validation import Blueprint
from podwright.components import Component, Pipeline
from podwright.data.text import describe_error, did_you_mean, truncate
from podwright.errors import ConfigurationError, PodwrightError
from podwright.folders.folder import Folder
from podwright.folders.loader import has_blueprint, log_warnings
from podwright.folders.walks import walk

if TYPE_CHECKING:
    from podwright.mcp.server import MCPServer


def load_component(
    source: str,
    agents: Mapping[str, Component] | None = None,
    mcp: Mapping[str, MCPServer] | None = None,
) -> Component:
    """Load a component.

    Args:
        source: The path of a blueprint file or a component folder, or `module:attribute`.
        agents: Components for the agents that the blueprint names.
        mcp: The MCP servers that it names; without them, a folder with a lock can be loaded, but not run.

    Raises:
        PodwrightError: It cannot be loaded.
    """
    path = Path(source)
    if _is(path, Path.exists):
        try:
            with _printing_to_stderr():
                return podwright.load(path, agents=agents, mcp=mcp)
        except OSError as error:
            raise ConfigurationError(
                f"Cannot read '{error.filename}': {error.strerror}.",
                suggestion="Let this user read it.",
            ) from error
    check_source(source)
    component, _ = load_from_module(source)
    return component


def check_source(source: str) -> None:
    """Check that a component may be there: that the path exists, or has the form `module:attribute`.

    Raises:
        ConfigurationError: There is none.
    """
    path = Path(source)
    if _is(path, Path.exists) or names_module(source):
        return
    hint = did_you_mean(path.name, _names_beside(path))
    raise ConfigurationError(
        f"There is no component at '{truncate(source, 200)}'.",
        suggestion=hint
        or "Give a blueprint file, a component folder, or module:attribute.",
    )


def _printing_to_stderr() -> AbstractContextManager[object]:
    """What code prints while it is imported is no result of a command."""
    return redirect_stdout(sys.stderr)


def names_module(source: str) -> bool:
    """Whether this is `module:attribute`, and not the path of a file or a folder."""
    module, _, attribute = source.partition(":")
    if not module or not attribute or "/" in module:
        return False
    return not _is(Path(source), Path.exists)


def read_blueprint(source: str) -> Blueprint:
    """The blueprint of a source as `load_component` takes it; of a file or a folder only data is read.

    Raises:
        PodwrightError: It cannot be read, or not loaded from a module.
    """
    if names_module(source):
        return whole(load_component(source)).to_blueprint()
    if is_folder(source):
        return Folder(Path(source)).blueprint()
    return blueprints.read_file(source)


def whole(component: Component) -> Component:
    """A component that has a blueprint of its own: one that blueprints only name becomes a pipeline of one."""
    if has_blueprint(component):
        return component
    return Pipeline(component.name, [component])


def is_folder(source: str) -> bool:
    """Whether this is the path of a folder."""
    return _is(Path(source), Path.is_dir)


def _is(path: Path, question: Callable[[Path], bool]) -> bool:
    try:
        return question(path)
    except (OSError, ValueError):
        # the name is too long, or the folder may not be read
        return False


def _names_beside(path: Path) -> list[str]:
    try:
        names = sorted(file.name for file in path.parent.iterdir())
    except (OSError, ValueError):
        return []
    return [name for name in names if not name.startswith(".")]


def load_from_module(source: str) -> tuple[Component, ModuleType]:
    """The component that `module:attribute` names, and the module.

    Raises:
        PodwrightError: The module cannot be imported, or has no such component.
    """
    name, _, attribute = source.partition(":")
    folder = str(Path.cwd())
    # the path of a console script does not include its working directory
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        with _printing_to_stderr():
            module = importlib.import_module(name)
    except (PodwrightError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise ConfigurationError(
            f"The module '{name}' cannot be imported: {describe_error(error)}",
            suggestion=f"Try `python -c 'import {name}'` in this folder.",
        ) from error
    value = getattr(module, attribute, None)
    if isinstance(value, Component):
        for part in walk(value):
            log_warnings(part)
        return value, module
    if hasattr(module, attribute):
        message = f"'{name}:{attribute}' is a {type(value).__name__}, not a component."
    else:
        message = f"The module '{name}' has no attribute '{truncate(attribute, 100)}'."
    components: list[str] = []
    for key, item in vars(module).items():
        if isinstance(item, Component):
            components.append(key)
    hint = did_you_mean(attribute, components)
    raise ConfigurationError(
        message, suggestion=hint or f"Make an Agent, a Workflow, … in '{name}'."
    )
