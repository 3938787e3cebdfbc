"""A component folder: a blueprint with the code and the agents that stand beside it.

    my_component/
        blueprint.json      or .yaml, .yml
        tools.py            functions for its tools, by name
        conditions.py       functions for its conditions, by name
        agents/             name.json, or a folder name/, for each agent that it names

A fleet keeps its components side by side, so an agent is also looked for in the folders beside this one.
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
from podwright.errors import ConfigurationError
from podwright.json_data import as_array, as_object
from podwright.text import describe_error, did_you_mean

_LONGEST = 240
"""Bytes in a file's name, without its suffix."""


class Folder:
    """One component folder."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self._modules: dict[str, ModuleType | None] = {}

    def blueprint(self) -> blueprints.Blueprint:
        """The data of its blueprint file.

        Raises:
            ConfigurationError: There is none, or more than one, or the folder cannot be read.
        """
        files = [self.path / f"blueprint{suffix}" for suffix in blueprints.SUFFIXES]
        try:
            found = [file for file in files if file.is_file()]
        except OSError as error:
            raise ConfigurationError(
                f"The folder '{self.path.name}' cannot be read: {error.strerror}.", suggestion="Let this user read it."
            ) from error
        if not found and not self.path.is_dir():
            raise ConfigurationError(f"There is no folder '{self.path.name}'.", suggestion=self._nearest())
        if len(found) != 1:
            what = "no blueprint" if not found else "more than one blueprint: " + ", ".join(file.name for file in found)
            hint = "Keep one blueprint.json or blueprint.yaml in it."
            inside = sorted({file.parent.name for kind in files for file in self.path.glob(f"*/{kind.name}")})
            if inside and not found:
                hint = f"Name one of the components in it: {', '.join(inside[:10])}."
            raise ConfigurationError(f"The folder '{self.path.name}' has {what}.", suggestion=hint)
        return blueprints.read_file(found[0])

    def _nearest(self) -> str:
        """The folder beside it whose name is nearest."""
        beside = sorted(self.path.parent.glob("*"))
        names = [one.name for one in beside if one.is_dir() and not one.name.startswith(".")]
        return did_you_mean(self.path.name, names) or "Name a component folder."

    def tool_names(self, blueprint: Mapping[str, Any]) -> set[str]:
        """The tools that a blueprint names, its members' too."""
        return set(_tool_names(dict(blueprint)))

    def condition_names(self, blueprint: Mapping[str, Any]) -> set[str]:
        """The conditions that a workflow's blueprint names."""
        found: set[str] = set()
        for _, step in blueprints.walk_steps(blueprint.get("steps")):
            for key in ("condition", "until"):
                found.update(_condition_names(step.get(key)))
        return found

    def agent_names(self, blueprint: Mapping[str, Any]) -> list[str]:
        """The agents that a blueprint refers to by name only, each once."""
        names = [step.get("agent") for _, step in blueprints.walk_steps(blueprint.get("steps"))]
        by_name = {"type", "name", "version", "description"}
        for key in ("skills", "steps"):
            members = [as_object(one) for one in as_array(blueprint.get(key))]
            names += [one.get("name") for one in members if one.get("type") == "Agent" and set(one) <= by_name]
        return list(dict.fromkeys(name for name in names if isinstance(name, str)))

    def agent(self, name: str, within: Iterable[Path]) -> Folder | Path | None:
        """Where the agent of that name is: a folder, a blueprint file, or nowhere.

        Raises:
            ConfigurationError: The agent is the component itself, or one that it is loaded for.
        """
        if Path(name).name != name or name == ".." or len(name.encode(errors="replace")) > _LONGEST:
            return None  # a path may lead anywhere, and what is too long is no file
        for suffix in (".json", ".yaml", ".yml"):
            file = self.path / "agents" / f"{name}{suffix}"
            if file.is_file():
                return file
        for parent in (self.path / "agents", self.path.parent):
            folder = parent / name
            if folder.is_dir():
                found = Folder(folder)
                if found.path in within:
                    raise ConfigurationError(
                        f"The component '{name}' is an agent of itself.", suggestion="Break the circle."
                    )
                return found
        return None

    def functions(self, file: str, names: set[str]) -> list[Callable[..., Any]]:
        """The functions of these names in a module of the folder.

        In place of a name that it lacks comes the nearest that it has, so that whoever misses the one can suggest it.
        """
        return list(self.named(file, names).values())

    def named(self, file: str, names: set[str]) -> dict[str, Callable[..., Any]]:
        """As `functions`, by name."""
        if not names or (module := self._module(file)) is None:
            return {}
        found: dict[str, Callable[..., Any]] = {}
        for name in names:
            there = callable(getattr(module, name, None))
            known = [name] if there else difflib.get_close_matches(name, _own(module), n=1)
            found |= {one: getattr(module, one) for one in known}
        return found

    def _module(self, file: str) -> ModuleType | None:
        if file not in self._modules:
            path = self.path / file
            self._modules[file] = _imported(path) if path.is_file() else None
        return self._modules[file]


def _own(module: ModuleType) -> list[str]:
    """The functions that a module defines for others."""
    return [
        name
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
    ]


def _imported(path: Path) -> ModuleType:
    # a name of its own: the tools.py of two folders are two modules
    name = f"podwright_component_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigurationError(f"'{path}' cannot be imported.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, KeyboardInterrupt):
            raise
        raise ConfigurationError(
            f"'{path.name}' of '{path.parent.name}' cannot be imported: {describe_error(error).rstrip('.')}.",
            suggestion=_remedy(path, error),
        ) from error
    finally:
        sys.path.remove(str(path.parent))
    return module


def _remedy(path: Path, error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"Install the package that has '{error.name}', and name it in requirements.txt beside {path.name}."
    return f"Try `python {path.name}` in that folder."


def _tool_names(data: object) -> Iterable[str]:
    """The names in every list under `tools`, at any depth."""
    for item in as_array(data):
        yield from _tool_names(item)
    for key, item in as_object(data).items():
        if key == "tools":
            names = (as_object(one).get("name") for one in as_array(item))
            yield from (name for name in names if isinstance(name, str))
        else:
            yield from _tool_names(item)


def _condition_names(ref: object) -> Iterable[str]:
    known = as_object(ref)
    if isinstance(known.get("name"), str):
        yield known["name"]
    for value in as_object(known.get("args")).values():
        for one in as_array(value) or [value]:
            yield from _condition_names(one)
