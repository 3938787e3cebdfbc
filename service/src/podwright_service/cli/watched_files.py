"""The files of a component that is being developed, and what changes in them.

Their times and sizes are compared instead of listening to the file system: that misses nothing that is saved while a
version starts or by an editor that replaces files, works on network drives and in containers, and a component has few
files.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from podwright.blueprints import read_source
from podwright.blueprints.texts import text_files
from podwright.components.folder import Folder, agent_names
from podwright.errors import PodwrightError
from podwright_service.images.context import is_excluded

INTERVAL = 0.1
"""Seconds between two looks at the files."""
_QUIET = 0.05
"""Seconds without a further change after which what was saved counts as complete."""
_SHARE = 20
"""Times longer than a look takes that the pause after it lasts, so that many files cost little CPU."""
_WRITTEN = re.compile(r".*(~|\.(db|sqlite3?|log|tmp|sw[a-p])(-\w+)?)")
"""Files that programs and editors write besides those of a component: databases, logs, backups."""

Stamp = tuple[int, int]
"""When a file was changed, in nanoseconds, and its size in bytes."""


class WatchedFiles:
    """The files of a component: of its folder, of agents beside it, of packages that they share, and imported modules.

    Args:
        source: The component: a blueprint file, a component folder, or `module:attribute`.
        further: Other files that belong to it.
    """

    def __init__(self, source: str, further: Iterable[Path] = ()) -> None:
        self._source = source
        self._further = {path.resolve() for path in further}
        self._path = Path(source).resolve()
        self._folders = [self._path]
        self._texts: list[Path] = []
        self._seen: dict[Path, Stamp] = {}

    def begin(self) -> None:
        """Take the files as they are now for those of the next version."""
        # of a broken blueprint, what it named before
        with contextlib.suppress(PodwrightError, OSError):
            if self._path.is_dir():
                self._folders = list(_folders_of(self._path))
            elif self._path.is_file():
                self._texts = _texts_of(self._path)
        self._seen = self._stamps()

    def add(self, files: Iterable[str]) -> None:
        """Watch further files too, such as modules that the component has imported."""
        self._further.update(map(Path, files))
        self._seen = {**self._stamps(), **self._seen}

    def changes(self) -> list[Path]:
        """The files that were changed, added or removed since the version began."""
        now = self._stamps()
        paths = sorted({*self._seen, *now})
        return [path for path in paths if self._seen.get(path) != now.get(path)]

    def wait(self) -> Iterator[None]:
        """Wait until files have changed, and nothing further does; yields between two looks."""
        before = self._seen
        while True:
            started = time.monotonic()
            now = self._stamps()
            duration = time.monotonic() - started
            if now != before:
                before = now
                time.sleep(_QUIET)
            elif now != self._seen:
                return
            else:
                yield
                time.sleep(max(INTERVAL, _SHARE * duration))

    def _stamps(self) -> dict[Path, Stamp]:
        stamps: dict[Path, Stamp] = {}
        for path in self._files():
            # it may be replaced just now
            with contextlib.suppress(OSError):
                status = path.stat()
                stamps[path] = (status.st_mtime_ns, status.st_size)
        return stamps

    def _files(self) -> Iterator[Path]:
        yield from self._further
        if ":" in self._source and not self._path.exists():
            yield from _module_files(self._source)
            return
        if self._path.is_file():
            yield self._path
        yield from self._texts
        for folder in self._folders:
            yield from _files_below(folder)


def _folders_of(path: Path) -> dict[Path, None]:
    """The folders of a component, its agents beside it and their shared packages, also those that are still missing."""
    folders: dict[Path, None] = {}
    pending = [Folder(path)]
    while pending:
        folder = pending.pop()
        if folder.path in folders:
            continue
        folders[folder.path] = None
        folders[folder.path.parent / "shared"] = None
        folders.update(dict.fromkeys(folder.shared_packages().values()))
        for name in agent_names(folder.blueprint()):
            agent = folder.agent(name, ())
            if isinstance(agent, Folder):
                pending.append(agent)
            elif agent is None and Path(name).name == name:
                folders[folder.path.parent / name] = None
    return folders


def _files_below(folder: Path) -> Iterator[Path]:
    for path, folders, files in os.walk(folder):
        parent = Path(path)
        folders[:] = [name for name in folders if _is_part(parent / name)]
        for name in files:
            if not is_excluded(name) and not _WRITTEN.fullmatch(name):
                yield parent / name


def _is_part(folder: Path) -> bool:
    """Whether a folder inside that of a component belongs to it, unlike a virtual environment."""
    return not is_excluded(folder.name) and not (folder / "pyvenv.cfg").exists()


def _texts_of(path: Path) -> list[Path]:
    """The files with the texts of a blueprint file."""
    return [path.parent / name for name in text_files(read_source(path))]


def _module_files(source: str) -> Iterator[Path]:
    """The files of the package that has a module, or for a module without one, those beside it."""
    module, _, _ = source.partition(":")
    package, _, _ = module.partition(".")
    folder = Path.cwd() / package
    if folder.is_dir():
        yield from _files_below(folder)
    else:
        yield from Path.cwd().glob("*.py")
