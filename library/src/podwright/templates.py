"""Templates: `{name}`, replaced in one pass; `{{name}}` is the text `{name}`.

Templates have no attributes, indexes or format specifications; a value that looks like a template stays text. Braces
that are not around a name stay as they are, because prompts have JSON, code and LaTeX in them. The exception is JSON
whose braces are all doubled, as in a format string of Python: `{{"city": "{name}"}}` is `{"city": "…"}`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterator, Mapping
from typing import Any

from podwright.errors import ContextError
from podwright.json_data import to_text
from podwright.text import did_you_mean

Context = Mapping[str, Any]
"""Values by name."""
_Match = re.Match[str]

_NAME = re.compile(r"(?<!\{)(\{++)([A-Za-z_][A-Za-z0-9_-]*+)(\}++)")
"""A name with all braces around it. An odd number of pairs is a value; each two pairs are one pair of braces."""
_BRACES = re.compile(rf"{_NAME.pattern}|\{{++|\}}++")
"""A name, or braces that are not around a name."""
_DOUBLED_OBJECT = re.compile(r'(?<!\{)\{\{\s*+"[^"\n]*+"\s*+:')
"""The start of a JSON object with doubled braces."""

_LATEX = re.compile(
    r"(?:\\[A-Za-z]++\*?(?:\[[^\]\n]*\])?(?:\{[^{}\n]*+\})*_?|(?<![A-Za-z0-9_])[A-Za-z]_)$"
)
"""What stands before the braces of an argument or an index in LaTeX: `\\frac{a}{b}`, `\\sum_{i}`, `x_{i}`."""
_CODE_LENGTH = 60
"""Characters before a name in which such code is looked for."""

_MAX_CHARACTERS = 4_000_000
"""Limit of the filled-in text."""
_MAX_REPEATED = 100_000
"""Characters that may be filled in again: a template that repeats a long value could use up the memory."""


def names(template: str) -> list[str]:
    """The names of the values in a template, in order, each once."""
    found = [match[2] for match in _NAME.finditer(template) if _is_value(match)]
    return list(dict.fromkeys(found))


def missing_names(template: str, known: Container[str]) -> Iterator[str]:
    """The names in a template that are not known, in order, each once.

    Those of `${HOME}` and of LaTeX are left out: they stay text if they have no value.
    """
    found = set[str]()
    for match in _NAME.finditer(template):
        name = match[2]
        if name in known or name in found:
            continue
        if _is_value(match) and not _is_code(template, match.start()):
            found.add(name)
            yield name


def _is_code(template: str, start: int) -> bool:
    """Whether what stands before the braces at a position shows that they are not those of a template."""
    before = template[max(0, start - _CODE_LENGTH) : start]
    if before.endswith(("$", "^")):
        return True
    return _LATEX.search(before) is not None


def fill(template: str, context: Context) -> str:
    """Replace each `{name}` that the context has, and undouble literal braces; all other braces stay.

    Raises:
        ContextError: The text would exceed 4 million characters, or repeat values of more than 100 000.
    """
    if "{" not in template:
        return template
    filler = _Filler(context)
    return _NAME.sub(filler.replace, _undouble_objects(template))


class _Filler:
    """Replaces the names of one template, and limits the characters of their values."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._length = 0
        self._repeated = 0
        self._seen = set[str]()

    def replace(self, match: _Match) -> str:
        name = match[2]
        if not _is_value(match):
            return _inside_braces(match, name)
        if name not in self._context:
            return _inside_braces(match, f"{{{name}}}")
        text = to_text(self._context[name])
        self._count(name, len(text))
        return _inside_braces(match, text)

    def _count(self, name: str, length: int) -> None:
        self._length += length
        if name in self._seen:
            self._repeated += length
        self._seen.add(name)
        if self._length > _MAX_CHARACTERS or self._repeated > _MAX_REPEATED:
            raise ContextError(
                f"The template would exceed {_MAX_CHARACTERS} characters, or repeat {_MAX_REPEATED}, at '{{{name}}}'.",
                suggestion="Use a long value only once, or let a step before shorten it.",
            )


def _is_value(match: _Match) -> bool:
    """Whether a name with its braces is a value, not a literal text."""
    return _pairs(match) % 2 == 1


def _pairs(match: _Match) -> int:
    """How many pairs of braces a name has around it."""
    return min(len(match[1]), len(match[3]))


def _inside_braces(match: _Match, text: str) -> str:
    """A text with the literal braces of a name around it; braces of one side only stay."""
    opening, _, closing = match.groups()
    pairs = _pairs(match)
    literal = pairs // 2
    removed = pairs - literal
    return opening[removed:] + text + closing[removed:]


def _undouble_objects(template: str) -> str:
    """Undouble the braces of each JSON object all of whose braces are doubled."""
    objects = {match.start() for match in _DOUBLED_OBJECT.finditer(template)}
    if not objects:
        return template
    redundant = _redundant_braces(template, objects)
    if not redundant:
        return template
    return "".join(
        char
        for position, char in enumerate(template)
        if position not in redundant
    )


def _redundant_braces(template: str, objects: Collection[int]) -> set[int]:
    """The positions of the second brace of each pair inside the objects with doubled braces.

    Args:
        template: The template.
        objects: Where such an object may start.
    """
    pairs = _DoubledPairs(objects)
    for start, brace, length in _brace_runs(template):
        if brace == "{":
            rest = pairs.open(start, length)
        else:
            rest = pairs.close(start, length)
        # a single brace inside an object shows that its braces are not doubled; outside of objects nothing is kept
        if rest == 1 or not pairs.unclosed:
            pairs.forget()
    return pairs.redundant


class _DoubledPairs:
    """The doubled braces of a template that is read from its start, by the position of their first brace."""

    def __init__(self, objects: Collection[int]) -> None:
        self.redundant = set[int]()
        self.unclosed: list[int] = []
        self._closed: list[tuple[int, int]] = []
        self._objects = objects

    def open(self, start: int, length: int) -> int:
        """Take the doubled braces of a run; returns how many braces are left over."""
        self.unclosed += range(start, start + length - 1, 2)
        return length % 2

    def close(self, start: int, length: int) -> int:
        """Close as many doubled braces as a run does; returns how many braces are left over."""
        while self.unclosed and length >= 2:
            opening = self.unclosed.pop()
            self._closed.append((opening, start))
            if opening in self._objects:
                self._undouble(opening)
            start += 2
            length -= 2
        return length

    def _undouble(self, opening: int) -> None:
        """Take the braces of an object, and those inside it, for redundant."""
        while self._closed and self._closed[-1][0] >= opening:
            self.redundant.update(self._closed.pop())

    def forget(self) -> None:
        self.unclosed.clear()
        self._closed.clear()


def _brace_runs(template: str) -> Iterator[tuple[int, str, int]]:
    """The runs of equal braces that belong to no name: position, brace and length."""
    for match in _BRACES.finditer(template):
        if match[2] is None:
            braces = match[0]
            yield match.start(), braces[0], len(braces)
            continue
        before = len(match[1]) - _pairs(match)
        if before:
            yield match.start(), "{", before
        after = len(match[3]) - _pairs(match)
        if after:
            yield match.end() - after, "}", after


def fill_all(template: str, context: Context, where: str) -> str:
    """As `fill`, but a name that is missing is an error.

    Raises:
        ContextError: The context lacks a name, or the text is too long.
    """
    for name in missing_names(template, context):
        raise ContextError(
            f"{where} uses '{{{name}}}', which is not in the context.",
            suggestion=suggest_name(name, visible(context)),
        )
    return fill(template, context)


def suggest_name(name: str, known: Collection[str]) -> str:
    """What to do about a name that nothing fills."""
    hint = did_you_mean(name, known)
    if hint.startswith("Did you mean"):
        return hint
    literal = f"For the text '{{{name}}}', write '{{{{{name}}}}}'."
    return f"{hint} {literal}".lstrip()


def visible(
    context: Context, leave_out: Collection[str] = ()
) -> dict[str, Any]:
    """The part of a context that models and people see: names without a leading underscore."""
    return {
        name: value
        for name, value in context.items()
        if not name.startswith("_") and name not in leave_out
    }


def sections(context: Context, leave_out: Collection[str] = ()) -> str:
    """A context as text for a model: a single value as it is, several with a heading each."""
    shown = visible(context, leave_out)
    if len(shown) == 1:
        return to_text(next(iter(shown.values())))
    paragraphs = [
        f"## {name}\n{to_text(value)}" for name, value in shown.items()
    ]
    return "\n\n".join(paragraphs)
