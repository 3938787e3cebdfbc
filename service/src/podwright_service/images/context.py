"""What of a component folder goes into its image: regular files, and nothing from anywhere else."""

from __future__ import annotations

import os
import shutil
import stat
import tomllib
from collections.abc import Collection, Iterator
from pathlib import Path

from podwright.components.folder import Folder
from podwright.errors import ConfigurationError
from podwright.text import os_error_reason, truncate

LOCK = "requirements.lock"
"""The file in the folder that its dependencies are locked in."""

_WANTED = ("requirements.txt", "pyproject.toml")
_FOR_THE_BUILD = {*_WANTED, LOCK}


def stage(folder: Folder, to: Path, remote: Collection[str]) -> list[str]:
    """Copy what a component needs: `component/` with its files, and `wanted/` if it has dependencies.

    Agents that stand in the folders beside it come along, in `agents/`.

    Args:
        folder: The component's.
        to: An empty folder.
        remote: Names of agents that run in other containers, so are not looked for.

    Returns:
        The paths of the component's files, within `component/`.

    Raises:
        ConfigurationError: There is a link or a special file in it, or something cannot be read.
    """
    inside = to / "component"
    try:
        places = [(folder.path, inside)]
        places += [(one.path, inside / "agents" / name) for name, one in _beside(folder, remote).items()]
        for source, target in places:
            target.mkdir(parents=True, exist_ok=True)
            for file in component_files(source):
                _copy(source / file, target / file)
        if wanted := requirements(folder.path):
            for name in (wanted, LOCK):
                if (folder.path / name).is_file():
                    _copy(folder.path / name, to / "wanted" / name)
        for path in [inside, *inside.rglob("*")]:  # whoever builds
            path.chmod(0o755 if path.is_dir() else 0o644)
    except OSError as error:
        told = f"The folder '{folder.path.name}' cannot be copied: {os_error_reason(error)}: {error.filename}."
        raise ConfigurationError(told, suggestion="Let this user read it.") from error
    return sorted(str(file.relative_to(inside)) for file in inside.rglob("*") if file.is_file())


def component_files(folder: Path) -> Iterator[Path]:
    """The paths of the files that a component's folder gives to where it runs, within the folder.

    Left out are hidden files, as `.env` is one; byte code, environments and tests; and what belongs to a build.

    Raises:
        ConfigurationError: There is a link or a special file in it.
        OSError: It cannot be read.
    """
    return _files(folder, folder)


def requirements(path: Path) -> str | None:
    """The file in a folder that lists its dependencies: requirements.txt, or a pyproject.toml of a project.

    Raises:
        ConfigurationError: The pyproject.toml is no TOML.
    """
    if (path / _WANTED[0]).is_file():
        return _WANTED[0]
    project = path / _WANTED[1]
    if not project.is_file():
        return None
    try:
        known = tomllib.loads(project.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigurationError(f"'{project.name}' is no TOML: {error}.") from error
    return _WANTED[1] if "project" in known else None


def _beside(folder: Folder, remote: Collection[str]) -> dict[str, Folder]:
    """The agents' folders beside a component, and those that they need from there in turn."""
    found: dict[str, Folder] = {}
    asked = [folder]
    while asked:
        one = asked.pop()
        for name in one.agent_names(one.blueprint()):
            if name in remote or name in found or not isinstance(where := one.agent(name, ()), Folder):
                continue
            # a link beside it may lead anywhere: its folder then has another parent
            if where.path.parent == folder.path.parent and where.path != folder.path:
                found[name] = where
                asked.append(where)
    return found


def _files(root: Path, folder: Path) -> Iterator[Path]:
    for entry in sorted(os.scandir(folder), key=lambda one: one.name):
        path = Path(entry.path)
        if _left_out(entry.name) or (folder == root and entry.name in _FOR_THE_BUILD):
            continue
        if entry.is_dir(follow_symlinks=False):
            if not (path / "pyvenv.cfg").exists():
                yield from _files(root, path)
        else:
            _regular(path, entry.stat(follow_symlinks=False).st_mode)
            yield path.relative_to(root)


def _left_out(name: str) -> bool:
    tests = name == "conftest.py" or (name.startswith("test_") and name.endswith(".py"))
    return name.startswith(".") or name in ("__pycache__", "node_modules") or name.endswith(".pyc") or tests


def _regular(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        what = "a link, which may lead out of the folder" if stat.S_ISLNK(mode) else "no regular file"
        raise ConfigurationError(
            f"'{truncate(path.name, 100)}' in '{path.parent.name}' is {what}.", suggestion="Put the file itself there."
        )


def _copy(source: Path, target: Path) -> None:
    _regular(source, source.lstat().st_mode)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target, follow_symlinks=False)
