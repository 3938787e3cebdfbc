"""The build context: the files of a component folder that go into its image."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from podwright import blueprints
from podwright.blueprints.mcp_tools import mcp_servers
from podwright.blueprints.texts import text_files
from podwright.data.text import os_error_reason, truncate
from podwright.errors import ConfigurationError, PodwrightError
from podwright.folders.folder import EVALUATION_FOLDER, Folder
from podwright.folders.folder_code import read_project
from podwright_service.images.credentials import (
    has_credentials,
    is_folder_of_credentials,
    is_hidden_credentials,
)

LOCK = "requirements.lock"
"""The file with the locked dependencies of a component folder."""

_FOLDER = Path(__file__).parent
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


def stage_mcp(target: Path) -> bool:
    """Add the package `mcp`, as this release has locked it, if a blueprint in a build context names MCP tools.

    Args:
        target: The folder that `stage` has filled; the package's requirement and lock are placed in `wanted/mcp/`.

    Returns:
        Whether it was added.
    """
    if not _names_mcp_tools(Folder(target / "component")):
        return False
    wanted = target / "wanted" / "mcp"
    wanted.mkdir(parents=True)
    shutil.copyfile(
        _FOLDER / "requirements-mcp.txt", wanted / "requirements.txt"
    )
    shutil.copyfile(_FOLDER / "requirements-mcp.lock", wanted / LOCK)
    return True


def _names_mcp_tools(folder: Folder) -> bool:
    for file in folder.blueprint_files():
        # the check in the build reports what is wrong with it
        with contextlib.suppress(PodwrightError):
            if mcp_servers(blueprints.read_source(file)):
                return True
    return False


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
    for place, source in _sources(folder, remotes).items():
        destination = target / place
        destination.mkdir(parents=True, exist_ok=True)
        for file in component_files(source):
            _copy(source / file, destination / file)


def _sources(folder: Folder, remotes: Collection[str]) -> dict[Path, Path]:
    """The folders that a component needs, by their places in a copy of its own folder."""
    sources = {Path(): folder.path}
    agents = _sibling_agents(folder, remotes)
    for name, agent in agents.items():
        sources[Path("agents", name)] = agent.path
    for name, package in shared_packages([folder, *agents.values()]).items():
        sources[Path(name)] = package
    return sources


def files_with_credentials(
    folder: Folder, remotes: Collection[str]
) -> list[str]:
    """The files and hidden folders with credentials that a copy of a component is without, by their places in it.

    Args:
        folder: The component folder.
        remotes: Names of agents that run in other containers.

    Raises:
        ConfigurationError: A file cannot be read.
    """
    try:
        return [
            str(place / file)
            for place, source in _sources(folder, remotes).items()
            for file in credentials_below(source)
        ]
    except OSError as error:
        raise _copy_error(folder, error) from error


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
        for part in (folder, *folder.agent_folders()):
            for name, path in part.shared_packages().items():
                if path.is_relative_to(folder.path):
                    continue
                if packages.setdefault(name, path) != path:
                    raise ConfigurationError(
                        f"Two shared packages are called '{name}', but an image has one place for them.",
                        suggestion="Rename one of them.",
                    )
    return packages


def component_files(folder: Path) -> Iterator[Path]:
    """The paths of the files that a component needs at run time, relative to its folder, sorted.

    Hidden files, credentials, byte code, virtual environments, tests, evaluations and the lists of dependencies are
    left out, unless a blueprint has a text in them.

    Raises:
        ConfigurationError: There is a link or a special file.
        OSError: A folder cannot be read.
    """
    files = {*_files(folder), *existing_texts(folder)}
    for path in sorted(files):
        _check_regular(path)
        yield path.relative_to(folder)


def files_below(
    folder: Path, on_error: Callable[[OSError], Any] | None = None
) -> Iterator[Path]:
    """The paths of files and links below a folder that may be a part of it; see `component_files`.

    Files with credentials are among them.

    Args:
        folder: The folder of a component or a package.
        on_error: Called if a folder cannot be read; by default, what it has is left out.
    """
    for parent, folders, files in _walk(folder, on_error):
        links = [name for name in folders if (parent / name).is_symlink()]
        for name in (*files, *links):
            if not _is_excluded(name):
                yield parent / name


def _walk(
    folder: Path, on_error: Callable[[OSError], Any] | None = None
) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Each folder that may have files of a component, with the names of all folders and files in it."""
    for path, folders, files in os.walk(folder, onerror=on_error):
        parent = Path(path)
        yield parent, list(folders), files
        folders[:] = [name for name in folders if _is_part(parent / name)]


def credentials_below(folder: Path) -> Iterator[Path]:
    """The paths of files and folders with credentials that are left out of copies of a folder, relative to it, sorted.

    Raises:
        OSError: A file cannot be read.
    """
    own = set(Folder(folder).blueprint_files())
    found = {path for path in files_below(folder) if _is_left_out(path, own)}
    for parent, folders, files in _walk(folder):
        for name in (*folders, *files):
            if is_hidden_credentials(name):
                found.add(parent / name)
        for name in filter(is_folder_of_credentials, folders):
            found.add(parent / name)
    for path in sorted(found.difference(existing_texts(folder))):
        yield path.relative_to(folder)


def texts_of(blueprint_file: Path) -> list[Path]:
    """The paths of the files with the texts of a blueprint file, whether they exist or not.

    Raises:
        PodwrightError: The blueprint file cannot be read.
    """
    folder = blueprint_file.parent
    names = text_files(blueprints.read_source(blueprint_file))
    return [Path(os.path.normpath(folder / name)) for name in names]


def existing_texts(folder: Path) -> Iterator[Path]:
    """The paths of the files in which the blueprints in a folder have texts."""
    for file in Folder(folder).blueprint_files():
        # whoever loads the blueprint reports what is wrong with it
        with contextlib.suppress(PodwrightError):
            for path in texts_of(file):
                if path.is_relative_to(file.parent) and path.is_file():
                    yield path


def requirements(folder: Path) -> str | None:
    """The name of the file that lists a folder's dependencies: requirements.txt, or a project's pyproject.toml.

    Raises:
        ConfigurationError: The pyproject.toml cannot be read, or is not valid TOML.
    """
    if (folder / "requirements.txt").is_file():
        return "requirements.txt"
    if "project" in read_project(folder):
        return "pyproject.toml"
    return None


def _sibling_agents(
    folder: Folder, remotes: Collection[str]
) -> dict[str, Folder]:
    """The agents in folders next to a component, and the agents that those need.

    Raises:
        ConfigurationError: One is a file that has the code of a folder around the component; or an agent in the
            component has the name of another that one of these needs.
    """
    agents: dict[str, Folder] = {}
    pending = [folder]
    while pending:
        current = pending.pop()
        for name, agent in _agents_beside(current, {*remotes, *agents}):
            if agent.path != folder.path:
                own = folder.agent_in_files(name)
                if current is not folder and own is not None:
                    raise _ambiguous_agent_error(name, current, folder)
                agents[name] = agent
                pending.append(agent)
    return agents


def _ambiguous_agent_error(
    name: str, needed_by: Folder, folder: Folder
) -> ConfigurationError:
    return ConfigurationError(
        f"'{needed_by.path.name}' needs another agent '{name}' than '{folder.path.name}', but a copy of the component "
        "has one place for them.",
        suggestion="Rename one of them.",
    )


def _agents_beside(
    folder: Folder, known: Collection[str]
) -> Iterator[tuple[str, Folder]]:
    sources = folder.outside_agents(
        folder.blueprint(), without=known, import_code=False
    )
    for source in sources:
        if source.place == "missing" or _is_in_code(folder, source.name):
            continue
        if isinstance(source.value, Path):
            raise ConfigurationError(
                f"The agent '{source.name}' of '{folder.path.name}' is a file of the component "
                f"'{source.owner.path.name}', whose code it has.",
                suggestion=f"Use '{source.owner.path.name}' as a whole, or make that agent a folder.",
            )
        if not isinstance(source.value, Folder):
            continue
        around = source.owner.path
        if source.place == "inside":
            around /= "agents"
        else:
            around = around.parent
        # the resolved path of a link may have another parent
        if source.value.path.parent == around:
            yield source.name, source.value


def _is_in_code(folder: Folder, agent: str) -> bool:
    """Whether the folder's `agents.py` supplies an agent, as far as this machine has the packages that it imports."""
    try:
        return folder.python_agent(agent) is not None
    except ConfigurationError:
        return False


def _files(folder: Path) -> Iterator[Path]:
    own = set(Folder(folder).blueprint_files())
    for path in files_below(folder, on_error=_raise):
        is_list = path.name in _DEPENDENCIES and (
            path.parent == folder or Folder(path.parent).has_blueprint()
        )
        if not is_list and not _is_left_out(path, own):
            yield path


def _is_left_out(path: Path, blueprint_files: Collection[Path]) -> bool:
    """Whether a file has credentials and is not a blueprint, such as that of an agent called `token`."""
    if not has_credentials(path):
        return False
    return path not in blueprint_files or not _is_blueprint(path)


def _is_blueprint(path: Path) -> bool:
    if path.stem == "blueprint":
        return True
    try:
        return not blueprints.problems(blueprints.read_file(path))
    except PodwrightError:
        return False


def _raise(error: OSError) -> None:
    raise error


def _is_part(folder: Path) -> bool:
    """Whether a folder inside that of a component belongs to it, unlike a virtual environment or an evaluation."""
    if _is_excluded(folder.name) or is_folder_of_credentials(folder.name):
        return False
    # a package may have this name, too
    if (
        folder.name == EVALUATION_FOLDER
        and Folder(folder.parent).has_blueprint()
    ):
        return False
    return not (folder / "pyvenv.cfg").exists()


def _is_excluded(name: str) -> bool:
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
