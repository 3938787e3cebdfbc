"""The code of component folders: their files, and the modules and packages that those import in turn."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from podwright.data.json_data import JsonObject, as_array, as_object
from podwright.data.redaction import without_url_secrets
from podwright.data.text import describe_error, did_you_mean, os_error_reason
from podwright.errors import ConfigurationError

_SHARED = "shared"
"""The folder beside components with code that they share."""
_NAMES_OF_EVERY_FOLDER = {
    "tools",
    "functions",
    "conditions",
    "agents",
    "providers",
}


def shared_packages(folder: Path) -> dict[str, Path]:
    """The folders outside of a component folder with code that it may import, by the name of the package.

    They are those that its `pyproject.toml` lists under `[tool.podwright] shared`, relative to the folder; without such
    a list, `shared` beside the folder, if there is one. A package of the same name in the folder itself comes before.

    Raises:
        ConfigurationError: The list or a folder in it is not valid.
    """
    paths = _listed_packages(folder)
    if paths is None:
        beside = folder.parent / _SHARED
        if not any(beside.glob("*.py")):
            return {}
        paths = [beside]
    packages: dict[str, Path] = {}
    for path in paths:
        if (folder / path.name).is_dir():
            continue
        if not path.is_dir():
            names = [each.name for each in path.parent.glob("[!.]*/")]
            raise ConfigurationError(
                f"The shared folder '{path.name}' of '{folder.name}' does not exist.",
                suggestion=did_you_mean(path.name, names)
                or "Correct [tool.podwright] shared in its pyproject.toml.",
            )
        if not path.name.isidentifier():
            raise ConfigurationError(
                f"The shared folder '{path.name}' of '{folder.name}' has no name that can be imported.",
                suggestion="Name it as a Python package, with letters, digits and underscores.",
            )
        packages[path.name] = path
    return packages


def read_project(folder: Path) -> JsonObject:
    """The data of the `pyproject.toml` of a component folder; empty if it has none.

    Raises:
        ConfigurationError: It cannot be read, or is not valid TOML.
    """
    project = folder / "pyproject.toml"
    if not project.is_file():
        return {}
    try:
        return tomllib.loads(project.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(
            f"Cannot read '{project.name}' of '{folder.name}': {os_error_reason(error)}."
        ) from error
    except ValueError as error:
        raise ConfigurationError(
            f"Invalid TOML in '{project.name}' of '{folder.name}': {error}."
        ) from error


def _listed_packages(folder: Path) -> list[Path] | None:
    tool = as_object(read_project(folder).get("tool"))
    listed = as_object(tool.get("podwright")).get("shared")
    if listed is None:
        return None
    names = [path for path in as_array(listed) if isinstance(path, str)]
    if names != listed:
        raise ConfigurationError(
            f"[tool.podwright] shared in 'pyproject.toml' of '{folder.name}' is not a list of paths.",
            suggestion='Write it as shared = ["../shared"].',
        )
    try:
        return [(folder / name).resolve() for name in names]
    # Python 3.11 raises RuntimeError for a link to itself
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigurationError(
            f"Invalid path in [tool.podwright] shared of '{folder.name}': {os_error_reason(error)}.",
            suggestion='Write it as shared = ["../shared"].',
        ) from error


class _FolderFinder(MetaPathFinder):
    """Finds modules in component folders, as Python finds those beside a script, also when functions import them later.

    The folder that was used last comes first. A file that any folder may have is found after an installed package:
    `import agents` in an `agents.py` is the package of that name.
    """

    def __init__(self) -> None:
        self.folders: list[Path] = []
        self.packages: dict[str, Path] = {}

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """The spec of a top-level module in a folder; None for others."""
        if path is not None or fullname in sys.stdlib_module_names:
            return None
        spec = self._local_spec(fullname)
        if spec is None:
            return None
        # a folder that is no package must not hide an installed one
        if fullname in _NAMES_OF_EVERY_FOLDER or spec.loader is None:
            return PathFinder.find_spec(fullname) or spec
        return spec

    def _local_spec(self, name: str) -> ModuleSpec | None:
        for folder in self.folders:
            spec = _spec_in(name, folder)
            if spec is not None:
                return spec
        if name in self.packages:
            return _spec_in(name, self.packages[name].parent)
        return None

    def use(self, folder: Path, packages: Mapping[str, Path]) -> None:
        """Make the modules of a folder importable, before those of other folders."""
        if folder in self.folders:
            self.folders.remove(folder)
        self.folders.insert(0, folder)
        self.packages.update(packages)
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)


_finder = _FolderFinder()


class _SourceLoader(SourceFileLoader):
    """Loads what is in the file now: byte code counts as current if the source has the same second and size."""

    def get_code(self, fullname: str) -> CodeType | None:
        """The code of the source."""
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def use_code(folder: Path) -> dict[str, Path]:
    """Let the code of a component folder, and of the agents in it, import the modules in it and those that it shares.

    Returns:
        Its `shared_packages`.

    Raises:
        ConfigurationError: See `shared_packages`.
    """
    packages = shared_packages(folder)
    _finder.use(folder, packages)
    return packages


def import_file(path: Path) -> ModuleType:
    """Import a file of a component folder as a module of its own name: the `tools.py` of two folders are two modules.

    Raises:
        ConfigurationError: It cannot be imported.
    """
    name = _module_name(path)
    if name in sys.modules:
        return sys.modules[name]
    loader = _SourceLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if spec is None or spec.loader is None:
        raise ConfigurationError(f"Cannot import '{path}'.")
    packages = use_code(path.parent)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        _check_modules(path, packages)
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        if isinstance(error, ConfigurationError):
            raise
        raise _import_error(path, error) from error
    return module


def imported_names(path: Path) -> Iterator[str]:
    """The top-level names of the modules that a file imports, in functions too; none if it is not Python."""
    try:
        tree = ast.parse(path.read_bytes(), path.name)
    # Python 3.11 raises ValueError for null bytes
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield (node.module or "").partition(".")[0]


def _check_modules(path: Path, packages: Mapping[str, Path]) -> None:
    """Refuse to use a module of another folder in place of the folder's own one, since Python has only one of a name.

    Raises:
        ConfigurationError: That would happen.
    """
    folder = path.parent
    pending = [path]
    seen: set[str] = set()
    while pending:
        file = pending.pop()
        for name in set(imported_names(file)) - seen:
            seen.add(name)
            own = folder
            if name in packages and not _spec_in(name, folder):
                own = packages[name].parent
            spec = _spec_in(name, own)
            if spec is None:
                continue
            loaded = sys.modules.get(name)
            place = _folder_of(loaded)
            if place in {None, own} or place not in _known_folders():
                pending += _files_of(spec)
            elif not _is_copy(loaded, spec):
                raise _clash_error(file, name, folder, other=place)


def _clash_error(
    file: Path, name: str, folder: Path, other: Path
) -> ConfigurationError:
    return ConfigurationError(
        f"'{file.name}' of '{folder.name}' imports '{name}', but that of '{other.name}' is imported already.",
        suggestion="Rename one of them, or keep it once, in a package that both share.",
    )


def _files_of(spec: ModuleSpec) -> Iterator[Path]:
    """The Python files of a module or a package."""
    if spec.submodule_search_locations:
        for folder in spec.submodule_search_locations:
            yield from Path(folder).rglob("*.py")
    elif spec.origin is not None and spec.origin.endswith(".py"):
        yield Path(spec.origin)


def _is_copy(loaded: ModuleType | None, spec: ModuleSpec) -> bool:
    """Whether a module in one file has the same text as the one that is loaded."""
    file = getattr(loaded, "__file__", None)
    if file is None or spec.origin is None or spec.submodule_search_locations:
        return False
    return Path(file).read_bytes() == Path(spec.origin).read_bytes()


def _known_folders() -> set[Path]:
    shared = {package.parent for package in _finder.packages.values()}
    return {*_finder.folders, *shared}


def _folder_of(module: ModuleType | None) -> Path | None:
    """The folder in which a top-level module or package lies."""
    if module is None:
        return None
    paths = getattr(module, "__path__", None)
    if paths:
        return Path(next(iter(paths))).parent
    file = getattr(module, "__file__", None)
    if isinstance(file, str):
        return Path(file).parent
    return None


def _spec_in(name: str, folder: Path) -> ModuleSpec | None:
    return PathFinder.find_spec(name, [str(folder)])


def _module_name(path: Path) -> str:
    encoded = str(path).encode()
    digest = hashlib.sha256(encoded).hexdigest()
    return f"podwright_component_{path.stem}_{digest[:16]}"


def _import_error(path: Path, error: BaseException) -> ConfigurationError:
    hint = (
        f"Run `python {path.name}` in that folder to see the whole traceback."
    )
    if isinstance(error, ModuleNotFoundError) and error.name:
        hint = f"Install the package that provides '{error.name}', and add it to requirements.txt there."
    reason = without_url_secrets(describe_error(error)).rstrip(".")
    return ConfigurationError(
        f"Cannot import '{path.name}' of '{path.parent.name}': {reason}.",
        suggestion=hint,
    )
