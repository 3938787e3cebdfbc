"""A component folder: a blueprint with the code and the agents that belong to it.

    my_component/
        blueprint.json      or .yaml, .yml
        providers.py        registers its own model providers; imported first
        tools.py            functions for its tools, by name
        functions.py        functions for its function steps, by name; those that it lacks are taken from tools.py
        conditions.py       functions for its conditions, by name
        schemas.py          types that write its JSON Schemas, by the titles of these
        agents.py           agents in Python that it names: components, or functions
        mcp.lock.json       the definitions of the tools of MCP servers that it and agents/name.json name
        agents/             name.json, or a folder name/, for each agent that it names
        evals/              what belongs to its evaluation; no image has it

A fleet keeps its components side by side, so agents are also looked up in the folders beside this one. A folder in
`agents/` that lacks an agent looks where the component around it looks. Code that components share is a package beside
them, `shared/`, or what a `pyproject.toml` lists; see `folder_code`.
"""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Callable, Collection, Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from podwright import blueprints
from podwright.blueprints.named_parts import agent_names, handing_over
from podwright.blueprints.validation import Blueprint
from podwright.data.json_data import JsonMapping
from podwright.data.text import did_you_mean, most_similar, short_repr
from podwright.errors import ConfigurationError
from podwright.folders.folder_code import import_file, shared_packages, use_code
from podwright.run.component import Component
from podwright.tools.tool import Tool

if TYPE_CHECKING:
    from podwright.mcp.lock import MCPLock

AGENTS_FILE = "agents.py"
"""The file of a folder with its agents in Python."""
TYPES_FILE = "schemas.py"
"""The file of a folder with the types that write its JSON Schemas."""
EVALUATION_FOLDER = "evals"
"""The folder inside a component's with its suite, which copies of the component are without."""
_MAX_NAME_BYTES = 240


@dataclass(frozen=True, slots=True)
class AgentSource:
    """Where an agent comes from that a blueprint refers to by name."""

    name: str
    place: Literal["python", "file", "inside", "beside", "missing"]
    """In `agents.py` of the owner; a blueprint file or a folder in its `agents/`; a folder beside it; or nowhere."""
    value: Component | Callable[..., Any] | Path | Folder | None
    """The agent in Python, its blueprint file or its folder.

    Of one that is missing, the folder beside the component's that would be its own; None if no folder can be.
    """
    owner: Folder
    """The folder that has the agent, or the outermost one that was looked in. Its code is that of a blueprint file."""


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
        return blueprints.read_file(self.blueprint_file())

    def blueprint_file(self) -> Path:
        """The path of its blueprint file.

        Raises:
            ConfigurationError: As `blueprint`.
        """
        try:
            files = [path for path in self._blueprint_paths() if path.is_file()]
        except OSError as error:
            raise ConfigurationError(
                f"Cannot read the folder '{self.path.name}': {error.strerror}."
            ) from error
        if len(files) == 1:
            return files[0]
        if files:
            listed = ", ".join(file.name for file in files)
            raise ConfigurationError(
                f"The folder '{self.path.name}' has more than one blueprint: {listed}."
            )
        if self.path.is_dir():
            raise self._no_blueprint_error()
        raise self._no_folder_error()

    def agent_files(self) -> list[Path]:
        """The paths of the blueprint files in `agents/`, whose tools are in the modules of this folder."""
        return [
            path
            for path in sorted((self.path / "agents").glob("*"))
            if path.suffix in blueprints.SUFFIXES and path.is_file()
        ]

    def agent_folders(self) -> list[Folder]:
        """The folders in `agents/` that are component folders themselves, without links, which may lead in a circle."""
        paths = sorted((self.path / "agents").glob("*/"))
        folders = [Folder(path) for path in paths if not path.is_symlink()]
        return [folder for folder in folders if folder.has_blueprint()]

    def blueprint_files(self) -> list[Path]:
        """The paths of all blueprint files of the component: its own, and those in `agents/` and the folders there."""
        own = [path for path in self._blueprint_paths() if path.is_file()]
        files = [*own, *self.agent_files()]
        for folder in self.agent_folders():
            files += folder.blueprint_files()
        return files

    def has_blueprint(self) -> bool:
        """Whether it has a blueprint file, and so is a component folder."""
        return any(path.is_file() for path in self._blueprint_paths())

    def use_code(self) -> None:
        """Let its code, and that of the agents in it, import the modules in it and those that it shares.

        Raises:
            ConfigurationError: Its `pyproject.toml` lists a shared package that is not valid.
        """
        use_code(self.path)

    def shared_packages(self) -> dict[str, Path]:
        """The folders outside of this one with code that it may import, by the name of the package.

        Raises:
            ConfigurationError: Its `pyproject.toml` lists one that is not valid.
        """
        return shared_packages(self.path)

    def _blueprint_paths(self) -> list[Path]:
        return [
            self.path / f"blueprint{suffix}" for suffix in blueprints.SUFFIXES
        ]

    def _no_folder_error(self) -> ConfigurationError:
        siblings = sorted(self.path.parent.glob("[!.]*"))
        names = [path.name for path in siblings if path.is_dir()]
        return ConfigurationError(
            f"The folder '{self.path.name}' does not exist.",
            suggestion=did_you_mean(self.path.name, names) or None,
        )

    def _no_blueprint_error(self) -> ConfigurationError:
        components: set[str] = set()
        for path in self._blueprint_paths():
            for file in self.path.glob(f"*/{path.name}"):
                components.add(file.parent.name)
        hint = "Add a blueprint.json."
        if components:
            listed = ", ".join(sorted(components)[:10])
            hint = f"It contains components: {listed}."
        return ConfigurationError(
            f"The folder '{self.path.name}' has no blueprint.", suggestion=hint
        )

    def agents(
        self,
        blueprint: JsonMapping,
        *,
        without: Container[str] = (),
        import_code: bool = True,
    ) -> Iterator[AgentSource]:
        """Where the agents come from that the folder's blueprint refers to by name, each once.

        `agents.py` comes first, then `agents/`, then both of the component around this folder if this is one in its
        `agents/`, then the folders beside the outermost component.

        Args:
            blueprint: The folder's blueprint, valid or not.
            without: Names that are left out, since another supplies them.
            import_code: Whether to import `agents.py`; if not, what it supplies is looked up as if there were none.

        Raises:
            ConfigurationError: The `agents.py` cannot be imported, or what it has under a name is no agent.
        """
        for name in agent_names(blueprint):
            if name not in without:
                yield self._find_agent(name, import_code)

    def outside_agents(
        self,
        blueprint: JsonMapping,
        *,
        without: Container[str] = (),
        import_code: bool = True,
    ) -> Iterator[AgentSource]:
        """The agents that this component and those in its `agents/` need and that are not in the folder, each once.

        Args:
            blueprint: As in `agents`.
            without: As in `agents`.
            import_code: As in `agents`.

        Raises:
            BlueprintValidationError: The file of an agent in the folder does not contain a blueprint.
            ConfigurationError: As in `agents`, or such a file cannot be read.
        """
        hands_over = handing_over(blueprint)
        named: set[str] = set()
        inside: set[Path] = {self.path}
        pending: list[tuple[Folder, JsonMapping]] = [(self, blueprint)]
        while pending:
            folder, current = pending.pop()
            sources = folder.agents(
                current, without=without, import_code=import_code
            )
            for source in sources:
                if current is not blueprint and source.name in hands_over:
                    # back to an agent of the component itself
                    continue
                is_outside = source.owner.path not in inside
                if is_outside or source.place in ("beside", "missing"):
                    if source.name not in named:
                        named.add(source.name)
                        yield source
                    continue
                value = source.value
                if isinstance(value, Folder) and value.path not in inside:
                    inside.add(value.path)
                    pending.append((value, value.blueprint()))
                elif isinstance(value, Path) and value not in inside:
                    inside.add(value)
                    file = blueprints.read_file(value)
                    pending.append((source.owner, file))

    def describe_lookup(self, name: str) -> str:
        """A suggestion about an agent that is missing: a similar name, and where it was looked up.

        Raises:
            ConfigurationError: An `agents.py` cannot be imported.
        """
        folders = self._lookup_folders()
        outermost = folders[-1].path
        places: list[str] = []
        known: list[str] = []
        for folder in folders:
            found = [AGENTS_FILE]
            if _is_file_name(name):
                endings = " or ".join(blueprints.SUFFIXES)
                found += [f"agents/{name}{endings}", f"agents/{name}/"]
            place = os.path.relpath(folder.path, outermost)
            places += [os.path.normpath(f"{place}/{path}") for path in found]
            known += folder.agents_inside()
        if _is_file_name(name):
            places.append(f"../{name}/")
        known += _component_names_in(outermost.parent, outermost.name)
        hint = most_similar(name, known)
        listed = ", ".join(places)
        text = f"Looked for it in the folder '{outermost.name}': {listed}."
        if hint is not None:
            return f"Did you mean '{hint}'? {text}"
        return text

    def agents_inside(self) -> Iterator[str]:
        """The names of the agents in `agents.py` and `agents/`."""
        module = self._load_module(AGENTS_FILE)
        if module is not None:
            yield from _own_functions(module)
            for value in vars(module).values():
                if isinstance(value, Component):
                    yield value.name
        for file in self.agent_files():
            yield file.stem
        yield from _component_names_in(self.path / "agents", "")

    def _lookup_folders(self) -> list[Folder]:
        """This folder, and the component folders around it if it is one in the `agents/` of another."""
        folders: list[Folder] = [self]
        parent = self.path.parent
        while parent.name == "agents":
            outer = Folder(parent.parent)
            if not outer.has_blueprint():
                break
            folders.append(outer)
            parent = outer.path.parent
        return folders

    def _find_agent(self, name: str, import_code: bool) -> AgentSource:
        folders = self._lookup_folders()
        for folder in folders:
            if import_code:
                agent = folder.python_agent(name)
                if agent is not None:
                    return AgentSource(name, "python", agent, folder)
            source = folder.agent_in_files(name)
            if source is not None:
                return source
        outermost = folders[-1]
        if not _is_file_name(name):
            # a path could lead anywhere
            return AgentSource(name, "missing", None, outermost)
        beside = outermost.path.parent / name
        if beside.is_dir():
            return AgentSource(name, "beside", Folder(beside), outermost)
        return AgentSource(name, "missing", Folder(beside), outermost)

    def agent_in_files(self, name: str) -> AgentSource | None:
        """The source of an agent in `agents/`; None if there is none."""
        if not _is_file_name(name):
            return None
        agents = self.path / "agents"
        for suffix in blueprints.SUFFIXES:
            file = agents / f"{name}{suffix}"
            if file.is_file():
                return AgentSource(name, "file", file, self)
        inside = agents / name
        if inside.is_dir():
            return AgentSource(name, "inside", Folder(inside), self)
        return None

    def python_agent(self, name: str) -> Component | Callable[..., Any] | None:
        """An agent in `agents.py`: a component of this name, or a function; None if there is none.

        Raises:
            ConfigurationError: The file cannot be imported, or what it has under this name is no agent, or a component
                of another name.
        """
        module = self._load_module(AGENTS_FILE)
        if module is None:
            return None
        for value in vars(module).values():
            if isinstance(value, Component) and value.name == name:
                return value
        agent = getattr(module, name, None)
        if agent is None:
            return None
        if isinstance(agent, Component):
            raise ConfigurationError(
                f"'{name}' in {AGENTS_FILE} of '{self.path.name}' is a component whose name is '{agent.name}'.",
                suggestion=f"Write '{agent.name}' in the blueprint, or name the component '{name}'.",
            )
        if inspect.isfunction(agent):
            return agent
        raise ConfigurationError(
            f"'{name}' in {AGENTS_FILE} of '{self.path.name}' is neither a function nor a component: "
            f"{short_repr(agent)}.",
            suggestion="Define a function of this name that calls it, or a component such as FunctionAgent(…).",
        )

    def register_providers(self) -> None:
        """Import `providers.py`, which registers the model providers of the folder.

        Raises:
            ConfigurationError: It cannot be imported.
        """
        self._load_module("providers.py")

    def functions(
        self, file: str, names: Collection[str]
    ) -> dict[str, Callable[..., Any]]:
        """The functions of these names in a module of the folder.

        For a name that does not exist, the function with the most similar name is included, so that an error can
        suggest it.
        """
        if not names:
            return {}
        module = self._load_module(file)
        if module is None:
            return {}
        own = _own_functions(module)
        functions: dict[str, Callable[..., Any]] = {}
        for name in names:
            function = own.get(name) or getattr(module, name, None)
            if callable(function):
                functions[name] = function
                continue
            similar = most_similar(name, own)
            if similar is not None:
                functions[similar] = own[similar]
        return functions

    @property
    def has_types(self) -> bool:
        """Whether it has types that write JSON Schemas."""
        return (self.path / TYPES_FILE).is_file()

    def types(self, names: Collection[str]) -> dict[str, Any]:
        """The types of these names in `schemas.py`; of a name that does not exist, the class with the most similar one.

        Raises:
            ConfigurationError: The file cannot be imported.
        """
        if not names:
            return {}
        module = self._load_module(TYPES_FILE)
        if module is None:
            return {}
        own = {
            name: value
            for name, value in vars(module).items()
            if inspect.isclass(value) and not name.startswith("_")
        }
        types: dict[str, Any] = {}
        for name in names:
            known = getattr(module, name, None)
            similar = most_similar(name, own)
            if known is not None:
                types[name] = known
            elif similar is not None:
                types[similar] = own[similar]
        return types

    def mcp_lock(self) -> MCPLock:
        """Read the lock of its MCP tools; one without definitions if it has none.

        Raises:
            ConfigurationError: It cannot be read, or is not a lock.
        """
        from podwright.mcp.lock import LOCK_FILE, MCPLock

        return MCPLock.read_file(self.path / LOCK_FILE)

    def _load_module(self, file: str) -> ModuleType | None:
        """A module of the folder, imported once; None if the folder has no such file."""
        if file not in self._modules:
            module = None
            path = self.path / file
            if path.is_file():
                module = import_file(path)
            self._modules[file] = module
        return self._modules[file]


def _component_names_in(path: Path, without: str) -> list[str]:
    """The names of the component folders in a folder."""
    names: list[str] = []
    for folder in map(Folder, sorted(path.glob("[!.]*/"))):
        # beside a folder in an image are those of the system, which not every user may read
        with contextlib.suppress(PermissionError):
            if folder.path.name != without and folder.has_blueprint():
                names.append(folder.path.name)
    return names


def _is_file_name(name: str) -> bool:
    """Whether a name leads nowhere but to a file or a folder of that name."""
    if not name or name == ".." or Path(name).name != name:
        return False
    if not name.isprintable():
        return False
    encoded = name.encode(errors="replace")
    return len(encoded) <= _MAX_NAME_BYTES


def _own_functions(module: ModuleType) -> dict[str, Callable[..., Any]]:
    """The public functions that a module defines, and its tools by the names that models use."""
    own: dict[str, Callable[..., Any]] = {}
    for name, value in vars(module).items():
        if isinstance(value, Tool):
            own[value.name] = value
        elif name.startswith("_") or not inspect.isfunction(value):
            continue
        # functions that the module imports are not its own
        elif value.__module__ == module.__name__:
            own[name] = value
    return own
