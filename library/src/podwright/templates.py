"""Templates: `{name}`, replaced in one pass; `{{name}}` is the text `{name}`.

There are no attributes, indexes or format specifications, and a value that looks like a template stays text. Braces
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
    return list(
        dict.fromkeys(
            match[2] for match in _NAME.finditer(template) if _pairs(match) % 2
        )
    )


def missing_names(template: str, known: Container[str]) -> Iterator[str]:
    """The names in a template that are not known, in order, each once.

    Those of `${HOME}` and of LaTeX are left out: they stay text if they have no value.
    """
    found = set[str]()
    for match in _NAME.finditer(template):
        name = match[2]
        if _pairs(match) % 2 == 0 or name in known or name in found:
            continue
        if not _is_code(template, match.start()):
            found.add(name)
            yield name


def _is_code(template: str, start: int) -> bool:
    """Whether what stands before the braces at a position shows that they are not those of a template."""
    before = template[max(0, start - _CODE_LENGTH) : start]
    return before.endswith(("$", "^")) or _LATEX.search(before) is not None


def fill(template: str, context: Mapping[str, Any]) -> str:
    """Replace each `{name}` that the context has, and undouble literal braces; all other braces stay.

    Raises:
        ContextError: The text would exceed 4 million characters, or repeat values of more than 100 000.
    """
    if "{" not in template:
        return template
    length = 0
    repeated = 0
    seen = set[str]()

    def value(match: re.Match[str]) -> str:
        nonlocal length, repeated
        pairs = _pairs(match)
        name = match[2]
        if pairs % 2 == 0:
            return _inside_braces(match, name)
        if name not in context:
            return _inside_braces(match, f"{{{name}}}")
        text = to_text(context[name])
        length += len(text)
        repeated += len(text) if name in seen else 0
        seen.add(name)
        if length > _MAX_CHARACTERS or repeated > _MAX_REPEATED:
            raise ContextError(
                f"The template would exceed {_MAX_CHARACTERS} characters, or repeat {_MAX_REPEATED}, at '{{{name}}}'.",
                suggestion="Use a long value only once, or let a step before shorten it.",
            )
        return _inside_braces(match, text)

    return _NAME.sub(value, _undouble_objects(template))


def _pairs(match: re.Match[str]) -> int:
    """How many pairs of braces a name has around it."""
    return min(len(match[1]), len(match[3]))


def _inside_braces(match: re.Match[str], text: str) -> str:
    """A text with the literal braces of a name around it; braces of one side only stay."""
    opening, _, closing = match.groups()
    pairs = _pairs(match)
    literal = pairs // 2
    before = "{" * (len(opening) - pairs + literal)
    after = "}" * (len(closing) - pairs + literal)
    return f"{before}{text}{after}"


def _undouble_objects(template: str) -> str:
    """Undouble the braces of each JSON object all of whose braces are doubled."""
    objects = {match.start() for match in _DOUBLED_OBJECT.finditer(template)}
    if not objects:
        return template
    redundant = _redundant_braces(template, objects)
    if not redundant:
        return template
    return "".join(
        char for position, char in enumerate(template) if position not in redundant
    )


def _redundant_braces(template: str, objects: Collection[int]) -> set[int]:
    """The positions of the second brace of each pair inside the objects with doubled braces.

    Args:
        template: The template.
        objects: Where such an object may start.
    """
    redundant = set[int]()
    unclosed: list[int] = []
    closed: list[tuple[int, int]] = []
    for start, brace, length in _brace_runs(template):
        if brace == "{":
            unclosed += range(start, start + length - 1, 2)
            is_odd = length % 2 == 1
        else:
            used = 0
            while unclosed and length - used >= 2:
                opening = unclosed.pop()
                closed.append((opening, start + used))
                used += 2
                while opening in objects and closed and closed[-1][0] >= opening:
                    redundant.update(closed.pop())
            is_odd = length - used == 1
        # a single brace inside an object shows that its braces are not doubled
        if is_odd or not unclosed:
            unclosed.clear()
            closed.clear()
    return redundant


def _brace_runs(template: str) -> Iterator[tuple[int, str, int]]:
    """The runs of equal braces that belong to no name: position, brace and length."""
    for match in _BRACES.finditer(template):
        if match[2] is None:
            yield match.start(), match[0][0], len(match[0])
            continue
        pairs = _pairs(match)
        if before := len(match[1]) - pairs:
            yield match.start(), "{", before
        if after := len(match[3]) - pairs:
            yield match.end() - after, "}", after


def fill_all(template: str, context: Mapping[str, Any], where: str) -> str:
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
    is_misspelt = hint.startswith("Did you mean")
    return (
        hint
        if is_misspelt
        else f"{hint} For the text '{{{name}}}', write '{{{{{name}}}}}'.".lstrip()
    )


def visible(
    context: Mapping[str, Any], leave_out: Collection[str] = ()
) -> dict[str, Any]:
    """The part of a context that models and people see: names without a leading underscore."""
    return {
        name: value
        for name, value in context.items()
        if not name.startswith("_") and name not in leave_out
    }


def sections(context: Mapping[str, Any], leave_out: Collection[str] = ()) -> str:
    """A context as text for a model: a single value as it is, several with a heading each."""
    shown = visible(context, leave_out)
    if len(shown) == 1:
        return to_text(next(iter(shown.values())))
    return "\n\n".join(f"## {name}\n{to_text(value)}" for name, value in shown.items())
