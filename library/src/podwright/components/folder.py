"""A component folder: a blueprint with the code and the agents that belong to it.

    my_component/
        blueprint.json      or .yaml, .yml
        tools.py            functions for its tools, by name
        conditions.py       functions for its conditions, by name
        agents/             name.json, or a folder name/, for each agent that it names

A fleet keeps its components side by side, so agents are also looked up in the folders beside this one.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from podwright import blueprints
from podwright.blueprints.schema import TOOL_NAME
from podwright.blueprints.validation import Blueprint
from podwright.errors import ConfigurationError
from podwright.json_data import as_array, as_object, walk_json
from podwright.text import describe_error, did_you_mean

_MAX_NAME_BYTES = 240


class Folder:
    """One component folder."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self._modules: dict[str, ModuleType | None] = {}

    def blueprint(self) -> Blueprint:
        """The data of its blueprint file.

        Raises:
            ConfigurationError: There is none, or more than one, or the folder cannot be read.
        """
        names = [f"blueprint{suffix}" for suffix in blueprints.SUFFIXES]
        try:
            files = [self.path / name for name in names if (self.path / name).is_file()]
        except OSError as error:
            raise ConfigurationError(
                f"Cannot read the folder '{self.path.name}': {error.strerror}."
            ) from error
        if len(files) == 1:
            return blueprints.read_file(files[0])
        if files:
            listed = ", ".join(file.name for file in files)
            raise ConfigurationError(
                f"The folder '{self.path.name}' has more than one blueprint: {listed}."
            )
        if not self.path.is_dir():
            siblings = (
                path.name
                for path in sorted(self.path.parent.glob("[!.]*"))
                if path.is_dir()
            )
            hint = did_you_mean(self.path.name, siblings) or None
            raise ConfigurationError(
                f"The folder '{self.path.name}' does not exist.", suggestion=hint
            )
        inside = sorted(
            {file.parent.name for name in names for file in self.path.glob(f"*/{name}")}
        )
        hint = (
            f"It contains components: {', '.join(inside[:10])}."
            if inside
            else "Add a blueprint.json."
        )
        raise ConfigurationError(
            f"The folder '{self.path.name}' has no blueprint.", suggestion=hint
        )

    def agent(self, name: str, within: Iterable[Path]) -> Folder | Path | None:
        """The folder or the blueprint file of an agent; None if there is none.

        Args:
            name: The name that a blueprint has for it.
            within: The folders that it is loaded for.

        Raises:
            ConfigurationError: The agent is one of these folders.
        """
        if (
            Path(name).name != name
            or name == ".."
            or len(name.encode(errors="replace")) > _MAX_NAME_BYTES
        ):
            return None  # a path could lead anywhere
        for suffix in blueprints.SUFFIXES:
            file = self.path / "agents" / f"{name}{suffix}"
            if file.is_file():
                return file
        for parent in (self.path / "agents", self.path.parent):
            if (parent / name).is_dir():
                folder = Folder(parent / name)
                if folder.path in within:
                    message = f"The component '{name}' is an agent of itself."
                    raise ConfigurationError(
                        message, suggestion="Remove the circular reference."
                    )
                return folder
        return None

    def functions(self, file: str, names: set[str]) -> dict[str, Callable[..., Any]]:
        """The functions of these names in a module of the folder.

        For a name that does not exist, the function with the most similar name is included, so that an error can
        suggest it.
        """
        module = self._module(file) if names else None
        if module is None:
            return {}
        functions: dict[str, Callable[..., Any]] = {}
        for name in names:
            exists = callable(getattr(module, name, None))
            chosen = (
                [name]
                if exists
                else difflib.get_close_matches(name, _public_functions(module), n=1)
            )
            functions |= {choice: getattr(module, choice) for choice in chosen}
        return functions

    def _module(self, file: str) -> ModuleType | None:
        if file not in self._modules:
            path = self.path / file
            self._modules[file] = _import_file(path) if path.is_file() else None
        return self._modules[file]


def tool_names(blueprint: Mapping[str, Any]) -> set[str]:
    """The tools that a blueprint and its members name; a name that no tool can have is a problem of the blueprint."""
    lists = [
        value
        for pointer, value, _ in walk_json(dict(blueprint))
        if pointer.endswith("/tools")
    ]
    names = [
        as_object(entry).get("name") for entries in lists for entry in as_array(entries)
    ]
    return {
        name for name in names if isinstance(name, str) and TOOL_NAME.fullmatch(name)
    }


def condition_names(blueprint: Mapping[str, Any]) -> set[str]:
    """The conditions that a workflow's blueprint names, those in arguments of other conditions included."""
    names: set[str] = set()
    for _, step in blueprints.walk_steps(blueprint.get("steps")):
        for key in ("condition", "until"):
            for _, value, _ in walk_json(step.get(key)):
                name = as_object(value).get("name")
                names |= {name} if isinstance(name, str) else set()
    return names


def agent_names(blueprint: Mapping[str, Any]) -> list[str]:
    """The agents that a blueprint refers to by name only, each once."""
    names = [
        step.get("agent") for _, step in blueprints.walk_steps(blueprint.get("steps"))
    ]
    reference_keys = {"type", "name", "version", "description"}
    for key in ("skills", "steps"):
        members = [as_object(member) for member in as_array(blueprint.get(key))]
        names += [
            one.get("name")
            for one in members
            if one.get("type") == "Agent" and set(one) <= reference_keys
        ]
    return list(dict.fromkeys(name for name in names if isinstance(name, str)))


def _public_functions(module: ModuleType) -> list[str]:
    return [
        name
        for name, value in vars(module).items()
        if inspect.isfunction(value)
        and value.__module__ == module.__name__
        and not name.startswith("_")
    ]


def _import_file(path: Path) -> ModuleType:
    """Import a file as a module of its own name: the `tools.py` of two folders are two modules.

    Raises:
        ConfigurationError: It cannot be imported.
    """
    name = f"podwright_component_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigurationError(f"Cannot import '{path}'.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        hint = f"Run `python {path.name}` in that folder to see the whole traceback."
        if isinstance(error, ModuleNotFoundError) and error.name:
            hint = f"Install the package that provides '{error.name}', and add it to requirements.txt there."
        message = f"Cannot import '{path.name}' of '{path.parent.name}': {describe_error(error).rstrip('.')}."
        raise ConfigurationError(message, suggestion=hint) from error
    finally:
        sys.path.remove(str(path.parent))
    return module
