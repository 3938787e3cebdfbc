"""What the parts of a suite are read from: its files and its component; and the problems that are found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from podwright.blueprints.content import read_bytes
from podwright.data.text import did_you_mean, os_error_reason, short_repr
from podwright.errors import ConfigurationError, Problem
from podwright.evaluation.suite_reading.component_parts import ComponentParts
from podwright.folders.folder import Folder


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a part of a suite is written."""

    pointer: str = ""
    """Its JSON pointer in the suite's file; of a line in another file, that of the other file's name."""
    line: str = ""
    """The other file and the line; empty if it is in the suite's file."""

    def locate(self, problem: Problem) -> Problem:
        """Return a problem with its place in the suite instead of its place in the part."""
        if not self.line:
            return replace(problem, pointer=self.pointer + problem.pointer)
        place = self.line
        if problem.pointer:
            place += f", {problem.pointer}"
        return replace(
            problem,
            pointer=self.pointer,
            detail=f"{place}: {problem.detail}",
        )


@dataclass(slots=True)
class SuiteSource:
    """The files of a suite and its component, and what is wrong in the suite."""

    component: Path
    """The component's folder."""
    file: Path
    """The suite's file."""
    parts: ComponentParts
    problems: list[Problem] = field(default_factory=list[Problem])

    def add(self, pointer: str, detail: str, suggestion: str = "") -> None:
        """Add a problem."""
        self.problems.append(Problem(pointer, detail, suggestion))

    @property
    def folder(self) -> Path:
        """The folder of the suite's file."""
        return self.file.parent

    def path(self, name: str, at: str) -> Path | None:
        """Return the path of a file of the suite; None, with a problem, if it is in neither of the two folders.

        Args:
            name: The path from the suite's file.
            at: The JSON pointer of the name.
        """
        file = self.folder / name
        try:
            resolved = file.resolve()
        # Python 3.11 raises RuntimeError for a link to itself
        except (OSError, ValueError, RuntimeError) as error:
            self.add(at, f"Invalid path {short_repr(name)}: {error}.")
            return None
        for folder in (self.folder, self.component):
            if resolved.is_relative_to(folder.resolve()):
                return file
        self.add(
            at,
            f"The file {short_repr(name)} is outside the folder of the component.",
            "Move it into the folder, and give its path from the suite's file.",
        )
        return None

    def text(self, name: str, at: str) -> str | None:
        """Return the text of a file of the suite, without the end of its last line.

        Args:
            name: The path from the suite's file.
            at: The JSON pointer of the name.

        Returns:
            None, with a problem, if it cannot be read.
        """
        file = self.path(name, at)
        if file is None:
            return None
        try:
            text = read_bytes(file).decode("utf-8-sig")
        except (OSError, ValueError) as error:
            reason = os_error_reason(error)
            hint = did_you_mean(name, self._names_beside(file), otherwise="")
            detail = f"Cannot read the file {short_repr(name)}: {reason}."
            self.add(at, detail, hint)
            return None
        return text.replace("\r\n", "\n").removesuffix("\n")

    def _names_beside(self, file: Path) -> list[str]:
        try:
            beside = sorted(file.parent.glob("[!.]*.*"))
        except OSError:
            return []
        return [
            path.relative_to(self.folder).as_posix()
            for path in beside
            if path.is_relative_to(self.folder)
        ]

    def functions(
        self, file: str, names: Sequence[str], at: str
    ) -> dict[str, Callable[..., Any]]:
        """Return the functions of a Python file in the suite's folder; see `Folder.functions`.

        Args:
            file: The name of the file.
            names: The names of the functions.
            at: The JSON pointer of what names them.

        Returns:
            None of them, with a problem, if it cannot be imported.
        """
        try:
            Folder(self.component).use_code()
            return Folder(self.folder).functions(file, names)
        except ConfigurationError as error:
            self.add(at, error.message, error.suggestion)
            return {}
