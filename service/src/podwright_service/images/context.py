"""The build context: the files of a component folder that go into its image."""

from __future__ import annotations

import os
import shutil
import stat
import tomllib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from podwright import blueprints
from podwright.components.folder import Folder, agent_names
from podwright.errors import ConfigurationError
from podwright.text import os_error_reason, truncate

LOCK = "requirements.lock"
"""The file with the locked dependencies of a component folder."""

_DEPENDENCIES = ("requirements.txt", "pyproject.toml", LOCK)


def stage(folder: Folder, target: Path, remotes: Collection[str]) -> list[str]:
    """Copy the files for a build: `component/`, and `wanted/` if the component has dependencies.

    Args:
        folder: The component folder.
        target: An empty folder.
        remotes: Names of agents that run in other containers.

    Returns:
        The paths of the component's files, relative to `component/`.

    Raises:
        ConfigurationError: As `copy_folder`.
    """
    inside = target / "component"
    try:
        _copy_component(folder, inside, remotes)
        _copy_dependencies(folder, target / "wanted")
        # the same for every user who builds
        for path in [inside, *inside.rglob("*")]:
            if path.is_dir():
                path.chmod(0o755)
            else:
                path.chmod(0o644)
    except OSError as error:
        raise _copy_error(folder, error) from error
    files = [path for path in inside.rglob("*") if path.is_file()]
    return sorted(str(file.relative_to(inside)) for file in files)


def copy_folder(folder: Folder, target: Path, remotes: Collection[str]) -> None:
    """Copy a component with all that it needs.

    Agents in the folders next to it are copied to `agents/`, and packages that it shares with other components into the
    folder itself.

    Args:
        folder: The component folder.
        target: An empty folder.
        remotes: Names of agents that run in other containers.

    Raises:
        ConfigurationError: There is a link or a special file, a file cannot be read, or two shared packages have the
            same name.
    """
    try:
        _copy_component(folder, target, remotes)
        _copy_dependencies(folder, target)
    except OSError as error:
        raise _copy_error(folder, error) from error


def _copy_component(
    folder: Folder, target: Path, remotes: Collection[str]
) -> None:
    sources = {target: folder.path}
    agents = _sibling_agents(folder, remotes)
    for name, agent in agents.items():
        sources[target / "agents" / name] = agent.path
    for name, package in shared_packages([folder, *agents.values()]).items():
        sources[target / name] = package
    for destination, source in sources.items():
        destination.mkdir(parents=True, exist_ok=True)
        for file in component_files(source):
            _copy(source / file, destination / file)


def _copy_dependencies(folder: Folder, target: Path) -> None:
    wanted = requirements(folder.path)
    if wanted is None:
        return
    for name in (wanted, LOCK):
        if (folder.path / name).is_file():
            _copy(folder.path / name, target / name)


def _copy_error(folder: Folder, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"Cannot copy the folder '{folder.path.name}': {os_error_reason(error)}: {error.filename}.",
        suggestion="Make it readable for this user.",
    )


def shared_packages(folders: Iterable[Folder]) -> dict[str, Path]:
    """The packages outside of component folders that these and the agents in them may import, by name.

    Raises:
        ConfigurationError: Two different ones have the same name, or a folder lists one that is not valid.
    """
    packages: dict[str, Path] = {}
    for folder in folders:
        for part in (folder, *_agents_inside(folder)):
            for name, path in part.shared_packages().items():
                if path.is_relative_to(folder.path):
                    continue
                if packages.setdefault(name, path) != path:
                    raise ConfigurationError(
                        f"Two shared packages are called '{name}', but an image has one place for them.",
                        suggestion="Rename one of them.",
                    )
    return packages


def _agents_inside(folder: Folder) -> Iterator[Folder]:
    for path in sorted((folder.path / "agents").glob("*/")):
        if has_blueprint(path):
            yield Folder(path)


def has_blueprint(folder: Path) -> bool:
    """Whether a folder is that of a component."""
    for suffix in blueprints.SUFFIXES:
        if (folder / f"blueprint{suffix}").is_file():
            return True
    return False


def component_files(folder: Path) -> Iterator[Path]:
    """The paths of the files that a component needs at run time, relative to its folder.

    Hidden files, byte code, virtual environments, tests and the lists of dependencies are left out.

    Raises:
        ConfigurationError: There is a link or a special file.
        OSError: A folder cannot be read.
    """
    return _files(folder, folder)


def requirements(folder: Path) -> str | None:
    """The name of the file that lists a folder's dependencies: requirements.txt, or a project's pyproject.toml.

    Raises:
        ConfigurationError: The pyproject.toml is not valid TOML.
    """
    if (folder / "requirements.txt").is_file():
        return "requirements.txt"
    project = folder / "pyproject.toml"
    if not project.is_file():
        return None
    try:
        data = tomllib.loads(project.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigurationError(
            f"Invalid TOML in '{project.name}': {error}."
        ) from error
    if "project" in data:
        return project.name
    return None


def _sibling_agents(
    folder: Folder, remotes: Collection[str]
) -> dict[str, Folder]:
    """The agents in folders next to a component, and the agents that those need."""
    agents: dict[str, Folder] = {}
    pending = [folder]
    while pending:
        current = pending.pop()
        for name in agent_names(current.blueprint()):
            if name in remotes or name in agents:
                continue
            agent = current.agent(name, ())
            if not isinstance(agent, Folder) or agent.path == folder.path:
                continue
            # the resolved path of a link may have another parent
            if agent.path.parent == folder.path.parent:
                agents[name] = agent
                pending.append(agent)
    return agents


def _files(root: Path, folder: Path) -> Iterator[Path]:
    has_dependencies = folder == root or has_blueprint(folder)
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        path = Path(entry.path)
        if is_excluded(entry.name):
            continue
        if entry.name in _DEPENDENCIES and has_dependencies:
            continue
        if entry.is_dir(follow_symlinks=False):
            if not (path / "pyvenv.cfg").exists():
                yield from _files(root, path)
        else:
            _check_regular(path)
            yield path.relative_to(root)


def is_excluded(name: str) -> bool:
    """Whether files and folders with a name are no part of a component."""
    if name in ("__pycache__", "node_modules", "conftest.py"):
        return True
    if name.startswith("test_") and name.endswith(".py"):
        return True
    return name.startswith(".") or name.endswith(".pyc")


def _check_regular(path: Path) -> None:
    mode = path.lstat().st_mode
    if not stat.S_ISREG(mode):
        kind = "not a regular file"
        if stat.S_ISLNK(mode):
            kind = "a link, which may point outside the folder"
        raise ConfigurationError(
            f"'{truncate(path.name, 100)}' in '{path.parent.name}' is {kind}.",
            suggestion="Replace it by a file.",
        )


def _copy(source: Path, target: Path) -> None:
    _check_regular(source)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target, follow_symlinks=False)
