"""Docstrings of tools: the descriptions of the parameters by name, and all the rest as the description of the tool."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

_TITLES = (
    r"Args|Arguments|Params|Parameters|Attributes|Kwargs"
    r"|Keyword [Aa]rg(ument)?s|Keyword [Pp]aram(eter)?s"
    r"|Other [Aa]rg(ument)?s|Other [Pp]aram(eter)?s"
)
"""Titles of the sections that describe parameters."""
_GOOGLE = re.compile(rf"({_TITLES}):\s*")
_NUMPY = re.compile(rf"({_TITLES})\s*")
_UNDERLINE = re.compile(r"-{3,}\s*")
_NUMPY_ENTRY = re.compile(r"\*{0,2}\w+(\s*,\s*\*{0,2}\w+)*\s*(:.*\S.*)?")
_FIELD = re.compile(
    r"([:@])(?:param|parameter|arg|argument|key|keyword|kwarg|type)\s+[^:]*?\*{0,2}(\w+)\s*:"
)
"""A field that describes a parameter, or its type, in reStructuredText or Epytext."""


class Entry(NamedTuple):
    """The description of one parameter, or of several."""

    names: tuple[str, ...]
    text: str


@dataclass(slots=True)
class Docstring:
    """A docstring in its parts."""

    description: str = ""
    """All that describes no parameter of the function."""
    parameters: dict[str, str] = field(default_factory=dict[str, str])
    """The descriptions of the parameters by name."""


def parse_docstring(text: str, names: Collection[str]) -> Docstring:
    """Take a docstring apart, in the style of Google, NumPy, reStructuredText (Sphinx) or Epytext.

    Args:
        text: The docstring without its indentation.
        names: The parameters of the function. What is said of others stays in the description.
    """
    docstring = Docstring()
    parts: list[str] = []
    lines = text.splitlines()
    kept: list[str] = []
    at = 0
    while at < len(lines):
        section = _section_at(lines, at)
        if section is None:
            kept.append(lines[at])
            at += 1
            continue
        parts.append("\n".join(kept))
        parts.append(section.take(docstring.parameters, names))
        kept = []
        at = section.end
    parts.append("\n".join(kept))
    docstring.description = _join(parts)
    return docstring


def _join(parts: Sequence[str]) -> str:
    """The parts of a description, with an empty line between them, and one at most after the first line."""
    shown = [part.strip("\n") for part in parts if part.strip()]
    first, _, rest = "\n\n".join(shown).partition("\n")
    if rest.startswith("\n"):
        rest = "\n" + rest.strip()
    return f"{first}\n{rest}".strip()


@dataclass(frozen=True, slots=True)
class _Section:
    """Lines of a docstring that describe parameters."""

    entries: Sequence[Entry]
    text: str
    """The lines as they are."""
    title: str
    """The first lines, which are no entries; empty for fields."""
    end: int
    """The number of the line after them."""

    def take(self, parameters: dict[str, str], names: Collection[str]) -> str:
        """Add the descriptions of known parameters, and return what is left of the section."""
        unknown: list[Entry] = []
        for entry in self.entries:
            known = [name for name in entry.names if name in names]
            for name in known:
                parameters[name] = entry.text or parameters.get(name, "")
            others = tuple(name for name in entry.names if name not in names)
            if others:
                unknown.append(Entry(others, entry.text))
        if unknown == self.entries:
            return self.text
        lines = [self.title]
        for entry in unknown:
            indented = entry.text.replace("\n", "\n        ")
            lines.append(f"    {', '.join(entry.names)}: {indented}")
        if not unknown:
            return ""
        return "\n".join(lines)


def _section_at(lines: Sequence[str], at: int) -> _Section | None:
    """The section that begins with a line; None if none does, or if it cannot be read."""
    line = lines[at]
    if _FIELD.match(line):
        end = _end_of_field(lines, at + 1)
        body = lines[at:end]
        return _read("fields", body, "", body, end)
    if _GOOGLE.fullmatch(line):
        end = _end_of_block(lines, at + 1)
        body = lines[at + 1 : end]
        if at == 0 and not body:
            # the indentation of a docstring that is this section alone is removed
            end = len(lines)
            body = [f"    {other}" for other in lines[1:]]
        return _read("google", body, line.strip(), lines[at:end], end)
    is_underlined = at + 1 < len(lines) and _UNDERLINE.fullmatch(lines[at + 1])
    if is_underlined and _NUMPY.fullmatch(line):
        end = _end_of_entries(lines, at + 2)
        body = lines[at + 2 : end]
        return _read("numpy", body, f"{line.strip()}:", lines[at:end], end)
    return None


def _end_of_block(lines: Sequence[str], at: int) -> int:
    """The end of the lines that are indented."""
    while at < len(lines) and (not lines[at] or lines[at][0].isspace()):
        at += 1
    return at


def _end_of_field(lines: Sequence[str], at: int) -> int:
    """The end of a field: it may go on in further lines, and in indented ones after an empty line."""
    while at < len(lines) and lines[at].strip() and lines[at][0] not in ":@":
        at += 1
    after = at
    while after < len(lines) and not lines[after].strip():
        after += 1
    if at < after < len(lines) and lines[after][0].isspace():
        return _end_of_field(lines, after)
    return at


def _end_of_entries(lines: Sequence[str], at: int) -> int:
    """The end of entries of NumPy's style: at the next title, or at a sentence."""
    while at < len(lines):
        at = _end_of_block(lines, at)
        if at == len(lines) or not _NUMPY_ENTRY.fullmatch(lines[at]):
            break
        if at + 1 < len(lines) and _UNDERLINE.fullmatch(lines[at + 1]):
            break
        at += 1
    return at


def _read(
    style: str, body: Sequence[str], title: str, lines: Sequence[str], end: int
) -> _Section | None:
    """A section with its entries; None if the body has none."""
    entries = list(_entries(style, "\n".join(body)))
    if not entries:
        return None
    return _Section(entries, "\n".join(lines), title, end)


def _entries(style: str, body: str) -> Iterator[Entry]:
    """The descriptions in the body of a section."""
    import docstring_parser  # a fifth of the library's import time

    styles = docstring_parser.DocstringStyle
    match = _FIELD.match(body)
    if (
        match is not None
        and body[: match.end()].split(maxsplit=1)[0][1:] == "type"
    ):
        # the schema has the type
        yield Entry((match[2],), "")
        return
    if style == "google":
        kind = styles.GOOGLE
        body = f"Args:\n{body}"
    elif style == "numpy":
        kind = styles.NUMPYDOC
        body = f"Parameters\n----------\n{body}"
    elif body.startswith(":"):
        kind = styles.REST
    else:
        kind = styles.EPYDOC
    try:
        # after a first line that is not indented, so that the others keep their indentation
        parsed = docstring_parser.parse(f"-\n\n{body}", style=kind)
    except docstring_parser.ParseError:
        return
    for parameter in parsed.params:
        names = [
            name.strip().lstrip("*") for name in parameter.arg_name.split(",")
        ]
        yield Entry(tuple(names), parameter.description or "")
