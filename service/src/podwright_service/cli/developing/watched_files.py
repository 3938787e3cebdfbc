"""The files of a component that is being developed, and what changes in them.

Their times and sizes are compared instead of listening to the file system: that misses nothing that is saved while a
version starts or by an editor that replaces files, works on network drives and in containers, and a component has few
files.
"""

from __future__ import annotations

import contextlib
import re
import stat
import time
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from podwright.errors import PodwrightError
from podwright.folders.folder import Folder
from podwright_service.images.context import files_below, texts_of
from podwright_service.images.credentials import has_name_of_credentials

INTERVAL = 0.1
"""Seconds between two looks at the files."""
_QUIET = 0.05
"""Seconds without a further change after which what was saved counts as complete."""
_HALF_SAVED = 1.0
"""Seconds to wait for the content of a file that has become empty: some editors empty a file before they write it."""
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
        self._parts = _Parts()
        self._seen: dict[Path, Stamp] = {}
        self._written: set[Path] = set()
        self._named: set[Path] = set()

    def begin(self) -> None:
        """Take the files as they are now for those of the next version."""
        parts = _parts_of(self._path)
        if parts.is_broken:
            # what its blueprints named before
            parts.folders |= self._parts.folders
            parts.texts |= self._parts.texts
        self._parts = parts
        self._seen = self._stamps()

    def add(self, files: Iterable[str]) -> None:
        """Watch further files too, such as modules that the component has imported."""
        self._further.update(map(Path, files))
        self._seen = {**self._stamps(), **self._seen}

    def leave_out(self, files: Iterable[str]) -> None:
        """Watch some files no longer, because the component writes them."""
        self._written.update(map(Path, files))
        self._seen = {
            path: stamp
            for path, stamp in self._seen.items()
            if path not in self._written
        }

    def newly_left_out(self) -> list[Path]:
        """The files that would be watched, but are written by the component; each is returned once."""
        found = self._written.intersection(self._files()) - self._named
        self._named |= found
        return sorted(found)

    def changes(self) -> list[Path]:
        """The files that were changed, added or removed since the version began."""
        now = self._stamps()
        paths = sorted({*self._seen, *now})
        return [path for path in paths if self._seen.get(path) != now.get(path)]

    def wait(self) -> Iterator[None]:
        """Wait until files have changed, and nothing further does; yields between two looks."""
        before = self._seen
        deadline = time.monotonic()
        while True:
            started = time.monotonic()
            now = self._stamps()
            duration = time.monotonic() - started
            if now != before:
                before = now
                deadline = time.monotonic() + _HALF_SAVED
                time.sleep(_QUIET)
            elif now != self._seen and not (
                self._has_emptied(now) and time.monotonic() < deadline
            ):
                return
            else:
                yield
                time.sleep(max(INTERVAL, _SHARE * duration))

    def _has_emptied(self, now: dict[Path, Stamp]) -> bool:
        """Whether a file is empty that was not."""
        for path, (_, size) in now.items():
            _, size_before = self._seen.get(path, (0, 0))
            if size_before and not size:
                return True
        return False

    def _stamps(self) -> dict[Path, Stamp]:
        stamps: dict[Path, Stamp] = {}
        for path in self._files():
            if path in self._written:
                continue
            # it may be replaced just now, and a blueprint may name a path that no file can have
            with contextlib.suppress(OSError, ValueError):
                status = path.stat()
                # of a link to a folder, the time is that of whatever is written there
                if not stat.S_ISDIR(status.st_mode):
                    stamps[path] = (status.st_mtime_ns, status.st_size)
        return stamps

    def _files(self) -> Iterator[Path]:
        yield from self._further
        if ":" in self._source and not self._path.exists():
            yield from _module_files(self._source)
            return
        if self._path.is_file():
            yield self._path
        yield from self._parts.texts
        for folder in self._parts.folders:
            yield from _part_files(folder)


@dataclass
class _Parts:
    """What belongs to a component, as far as its blueprints can be read."""

    folders: set[Path] = field(default_factory=set[Path])
    texts: set[Path] = field(default_factory=set[Path])
    is_broken: bool = False
    """Whether something cannot be read, and may name more."""

    @contextlib.contextmanager
    def reading(self) -> Generator[None]:
        """Note that something is broken instead of raising."""
        try:
            yield
        except (PodwrightError, OSError):
            self.is_broken = True


def _parts_of(path: Path) -> _Parts:
    """The folders and texts of a component, with those that are still missing.

    Args:
        path: Its blueprint file or its folder.
    """
    parts = _Parts()
    if path.is_file():
        _add_texts(parts, [path])
        return parts
    pending = [Folder(path)]
    while pending:
        folder = pending.pop()
        if folder.path in parts.folders:
            continue
        parts.folders |= {folder.path, folder.path.parent / "shared"}
        if folder.path.is_dir():
            with parts.reading():
                parts.folders.update(folder.shared_packages().values())
            with parts.reading():
                pending += _agent_folders(folder)
            _add_texts(parts, folder.blueprint_files())
    return parts


def _agent_folders(folder: Folder) -> Iterator[Folder]:
    blueprint = folder.blueprint()
    # code that is imported here would stay as it is
    for source in (
        *folder.agents(blueprint, import_code=False),
        *folder.outside_agents(blueprint, import_code=False),
    ):
        # a file has the code of its owner
        yield source.owner
        if isinstance(source.value, Folder):
            yield source.value


def _add_texts(parts: _Parts, blueprint_files: Iterable[Path]) -> None:
    for file in blueprint_files:
        with parts.reading():
            parts.texts.update(texts_of(file))


def _part_files(folder: Path) -> Iterator[Path]:
    for path in files_below(folder):
        name = path.name
        if not _WRITTEN.fullmatch(name) and not has_name_of_credentials(name):
            yield path


def _module_files(source: str) -> Iterator[Path]:
    """The files of the package that has a module, or for a module without one, those beside it."""
    module, _, _ = source.partition(":")
    package, _, _ = module.partition(".")
    folder = Path.cwd() / package
    if folder.is_dir():
        yield from _part_files(folder)
    else:
        yield from Path.cwd().glob("*.py")
