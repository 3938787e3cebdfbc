"""Where a function comes from: a file of the project, or an installed package; and what else its file imports."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import inspect
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from podwright.data.json_data import as_array, as_object
from podwright.errors import ConfigurationError
from podwright.folders.folder import Folder
from podwright.folders.folder_code import imported_names, read_project
from podwright.models.registry import Provider
from podwright_service.images.context import component_files, requirements

_OURS = ("podwright", "podwright_service")
_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)?")
"""The name at the beginning of a requirement."""
_SEPARATORS = re.compile(r"[-_.]+")


@dataclass(frozen=True)
class Named:
    """An object by the module and the name from which it can be imported."""

    module: str
    name: str

    def statement(self, alias: str) -> str:
        """The statement that imports it under another name, if that differs."""
        if alias == self.name:
            return f"from {self.module} import {self.name}"
        return f"from {self.module} import {self.name} as {alias}"


@dataclass
class LocalCode:
    """What functions need: files of the project, and installed packages."""

    files: dict[str, Path] = field(default_factory=dict[str, Path])
    """Modules and packages of the project: the path of each by its name."""
    packages: dict[str, str] = field(default_factory=dict[str, str])
    """Installed packages: the version of each by its name."""
    missing: list[str] = field(default_factory=list[str])
    """Modules that are imported and not found."""


def named(value: Any, what: str, *, beside: ModuleType | None = None) -> Named:
    """Where an object can be imported from.

    Args:
        value: A function or a component.
        what: What it is called in an error.
        beside: A module that may have it under another name than its own.

    Raises:
        ConfigurationError: No module has it under a name, as a function inside another function.
    """
    for module in _modules(value, beside):
        for name, item in vars(module).items():
            if item is value and name.isidentifier():
                return Named(module.__name__, name)
    raise ConfigurationError(
        f"{what} cannot be imported by a name, because no module has it.",
        suggestion="Define it in a module, outside of functions and classes.",
    )


def registering_module(provider: Provider, beside: ModuleType | None) -> str:
    """The module whose import registers a provider of models.

    A provider without a name, such as a lambda or a function inside another function, is registered when the module of
    the component is imported.

    Raises:
        ConfigurationError: It has no name, and the component is not from a module.
    """
    try:
        return named(provider, "The provider", beside=beside).module
    except ConfigurationError:
        if beside is None:
            raise
        return beside.__name__


def _modules(value: Any, beside: ModuleType | None) -> Iterator[ModuleType]:
    """The modules that may have an object, the likeliest first."""
    own = sys.modules.get(getattr(value, "__module__", None) or "")
    if own is not None and own.__name__ != "__main__":
        yield own
    if beside is not None:
        yield beside
    # a component, a partial or a bound method does not say in which module its name is
    if not inspect.isfunction(value):
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] not in _OURS and _is_local(module):
                yield module


def _is_local(module: object) -> bool:
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and is_in_project(Path(file))


def needed_by(modules: Iterable[str]) -> LocalCode:
    """The files and packages that modules need, those that they import included."""
    code = LocalCode()
    pending = [module.partition(".")[0] for module in modules]
    seen: set[str] = set()
    while pending:
        name = pending.pop()
        if name in seen or name in _OURS or name in sys.stdlib_module_names:
            continue
        seen.add(name)
        spec = _spec_of(name)
        if spec is None:
            code.missing.append(name)
            continue
        path = _path_of(spec)
        if path is None:
            _add_package(code, name)
            continue
        code.files[name] = path
        pending += _imports_of(path)
    # plug-ins are imported by a name that no file has
    for path in code.files.values():
        for name in _declared_packages(path):
            _add_distribution(code, name)
    return code


def _spec_of(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None


def _path_of(spec: ModuleSpec) -> Path | None:
    """The file or the folder of a top-level module of the project; None for an installed one."""
    if spec.submodule_search_locations:
        path = Path(next(iter(spec.submodule_search_locations)))
    elif spec.origin:
        path = Path(spec.origin)
    else:
        return None
    if is_in_project(path):
        return path
    return None


def is_in_project(path: Path) -> bool:
    """Whether a file is neither of the standard library nor of an installed package."""
    resolved = path.resolve()
    return not any(map(resolved.is_relative_to, _installed_folders()))


@functools.cache
def _installed_folders() -> list[Path]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return [Path(sysconfig.get_path(name)).resolve() for name in names]


def _add_package(code: LocalCode, module: str) -> None:
    for distribution in _distributions().get(module, ()):
        _add_distribution(code, distribution)


def _add_distribution(code: LocalCode, name: str) -> None:
    """Add an installed package, unless every image has it or it is a part of the project."""
    if _normalized(name) in _provided():
        return
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return
    if all(_normalized(name) != _normalized(other) for other in code.packages):
        code.packages[name] = version


def _declared_packages(file: Path) -> Iterator[str]:
    """The packages that the project of a file lists, in the nearest requirements.txt or pyproject.toml above it."""
    for folder in file.resolve().parents:
        name = requirements(folder)
        if name == "pyproject.toml":
            project = as_object(read_project(folder)["project"])
            lines = [
                str(line) for line in as_array(project.get("dependencies"))
            ]
        elif name is not None:
            lines = (folder / name).read_text(encoding="utf-8").splitlines()
        else:
            lines = []
        # options and comments have no name
        yield from filter(None, map(_name_of, lines))
        if name is not None or (folder / ".git").exists():
            return


@functools.cache
def _distributions() -> dict[str, list[str]]:
    return dict(importlib.metadata.packages_distributions())


@functools.cache
def _provided() -> set[str]:
    """The installed packages that Podwright itself needs, and so every image has."""
    provided: set[str] = set()
    pending = ["podwright", "podwright-service"]
    while pending:
        name = _normalized(pending.pop())
        if name in provided:
            continue
        provided.add(name)
        try:
            required = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        pending += [
            _name_of(requirement)
            for requirement in required
            if "extra ==" not in requirement
        ]
    return provided


def _name_of(requirement: str) -> str:
    """The name in a requirement; empty if it is none."""
    match = _NAME.match(requirement)
    if match is None:
        return ""
    return match[1] or ""


def _normalized(name: str) -> str:
    """The name of a package as indexes compare it."""
    return _SEPARATORS.sub("-", name).lower()


def _imports_of(path: Path) -> Iterator[str]:
    """The top-level names of the modules that a file, or the files of a package, import."""
    files = [path]
    if path.is_dir():
        files = [path / file for file in package_files(path)]
    for file in files:
        if file.suffix == ".py":
            yield from imported_names(file)


def package_files(package: Path) -> Iterator[Path]:
    """The files of a package that its code may need, relative to it.

    Component folders in a folder that is not a package itself, such as what `export` wrote there, are left out unless
    their code is imported.

    Raises:
        ConfigurationError: There is a link or a special file.
        OSError: A folder cannot be read.
    """
    left_out: dict[Path, bool] = {}
    for file in component_files(package):
        folder = file.parent
        if folder not in left_out:
            left_out[folder] = _is_other_component(package, folder)
        if not left_out[folder]:
            yield file


def _is_other_component(package: Path, folder: Path) -> bool:
    """Whether a folder is one, or in one, that is found on the way to it from its namespace package."""
    path = package
    name = package.name
    for part in folder.parts:
        if (path / "__init__.py").exists():
            return False
        path /= part
        name += f".{part}"
        if Folder(path).has_blueprint() and name not in sys.modules:
            return True
    return False
