"""Names, and the expressions that lead from a name to a field of its value: `ticket.category`, `ticket["a key"]`.

A name is a Unicode identifier that may have `-` inside. A field follows a dot if it consists of the characters of a
name; else it is in brackets: any key in quotes, or the index of a list. A name that is no identifier is in brackets as
well: `["my answer"].category`. Names are compared in the normal form NFC, so that it does not matter how an editor
stores the accent of a letter.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

INPUT = "input"
"""The name of an input that every component takes, declared or not: the text of a run."""
RUN = "run"
"""The first word of what templates read of their run: `run.date`."""
RUN_FIELDS = ("date", "time", "user", "session", "metadata")
"""What follows that word."""

_START = r"[A-Za-z_\x80-\U0010ffff]"
_CHARACTER = r"[A-Za-z0-9_\-\x80-\U0010ffff]"
_QUOTED = r""""(?:[^"\\]|\\["'\\])*+"|'(?:[^'\\]|\\["'\\])*+'"""
_FIELD = rf"\.{_CHARACTER}++|\[(?:-?[0-9]++|{_QUOTED})\]"
EXPRESSION = rf"(?:{_START}{_CHARACTER}*+|\[(?:{_QUOTED})\])(?:{_FIELD})*+"
"""A pattern of expressions, without groups. It takes every character outside of ASCII for a letter: `parse_expression`
decides."""

_WHOLE = re.compile(EXPRESSION)
_PART = re.compile(rf"\.?({_CHARACTER}++)|\[(-?[0-9]++)\]|\[({_QUOTED})\]")
_JOINS = dict.fromkeys(map(ord, "-\u200c\u200d"), "_")
"""What may stand inside a name: `-`, and the two joiners without width of Persian and Indic words, which Unicode counts
to its identifiers since 15.1, and Python since 3.13."""
_ESCAPED = re.compile(r"""\\(["'\\])""")

_OF_RUN = [(field,) for field in RUN_FIELDS]

INPUT_NAME = r"^[^\x00-@\[-`{-\x7f][^\x00-,./:-@\[-\^`{-\x7f]*$"
"""The part of the rule for declared names that pydantic and JSON Schema can check: the characters of ASCII."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A name, and the keys and indices that lead into its value."""

    name: str
    fields: tuple[str, ...] = ()
    text: str = ""
    """As it is written; by default as `write_expression` writes it."""

    def __post_init__(self) -> None:
        if not self.text:
            text = write_expression(self.name, self.fields)
            object.__setattr__(self, "text", text)

    @property
    def is_indexed(self) -> bool:
        """Whether brackets follow its name, as in the code of many languages."""
        return "[" in self.text[1:] and not self.text.startswith("[")

    @property
    def is_of_run(self) -> bool:
        """Whether it is about the run; `{["run"].date}` is a field of a value that is called `run`."""
        is_quoted = self.text.startswith("[")
        return self.name == RUN and self.fields[:1] in _OF_RUN and not is_quoted


def is_name(text: str) -> bool:
    """Whether a text is a Unicode identifier, in which `-` may stand after the first letter."""
    begins_well = text[:1].isidentifier()
    return begins_well and text.translate(_JOINS).isidentifier()


def is_declarable(text: str) -> bool:
    """Whether a text may be the name of an input: a name that begins with a letter."""
    return not text.startswith("_") and is_name(text)


def _is_field(text: str) -> bool:
    """Whether a key may follow a dot: it may also begin with a digit, or with `-`."""
    return text != "" and is_name(f"a{text}")


def parse_expression(text: str) -> Expression | None:
    """The expression that a text is, without braces; None if it is none."""
    if _WHOLE.fullmatch(text) is None:
        return None
    parts: list[str] = []
    for match in _PART.finditer(text):
        plain, index, quoted = match.groups()
        if plain is not None:
            is_valid = _is_field(plain) if parts else is_name(plain)
            if not is_valid:
                return None
            parts.append(plain)
        elif index is not None:
            parts.append(index)
        else:
            parts.append(_unquoted(quoted))
    return Expression(parts[0], tuple(parts[1:]), text)


def path_expression(text: str) -> Expression:
    """The expression in a key whose value is one, such as `over` of a map; other texts are split at their dots."""
    parsed = parse_expression(text)
    if parsed is not None:
        return parsed
    name, *fields = text.split(".")
    return Expression(name, tuple(fields), text)


def write_expression(name: str, fields: Iterable[str] = ()) -> str:
    """An expression as text, with brackets where they are needed."""
    text = name
    if not is_name(name):
        text = _in_brackets(name)
    for field in fields:
        if _is_field(field):
            text += f".{field}"
        else:
            text += _in_brackets(field)
    return text


def _in_brackets(key: str) -> str:
    escaped = re.sub(r'(["\\])', r"\\\1", key)
    return f'["{escaped}"]'


def normal_form(name: str) -> str:
    """A name in the form in which names are compared."""
    return unicodedata.normalize("NFC", name)


def find_name(name: str, known: Iterable[str]) -> str | None:
    """The spelling of a name among known ones, whose normal form may be another one; None if it is not among them.

    Args:
        name: The name.
        known: A mapping or another collection of names.
    """
    if name in known:
        return name
    if name.isascii():
        return None
    wanted = normal_form(name)
    for other in known:
        if not other.isascii() and normal_form(other) == wanted:
            return other
    return None


# --- Texts in braces that only look like names ------------------------------------------------------------------------

_WORDS = re.compile(r"[^\x00-\x1f!-,./:-@\[-\^`{-\x7f]++")
"""Fields after dots as people write them who do not know the brackets: words, not code."""

_INVISIBLE = re.compile(
    r"[\xad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]"
)
"""Characters without width: those that direct text from right to left, and those that join or separate letters."""
_LOOSE_FIELD = re.compile(rf"\.([^.\[\]]++)|\[(-?[0-9]++)\]|\[({_QUOTED})\]")
_SEPARATOR = re.compile(r"[.\[]")
_MAX_SEPARATORS = 8
"""Dots and brackets in a text at which a name is looked for."""


def read_literally(
    text: str,
    known: Mapping[str, str],
    has_fields: Callable[[Expression], bool],
) -> Expression | None:
    """The expression that a text in braces is meant as, although it is written otherwise; None if it is other text.

    `o.a key` is meant as `o["a key"]`, and `my answer` as `["my answer"]`; `o.map(f)` is code, unless there is such a
    field.

    Args:
        text: The text.
        known: The known names by their normal forms.
        has_fields: Whether the value of a known name certainly has the fields of an expression.
    """
    visible = _INVISIBLE.sub("", text)
    if visible != text:
        parsed = parse_expression(visible)
        if parsed is not None and normal_form(parsed.name) in known:
            return parsed
    form = normal_form(text)
    if form in known:
        return Expression(known[form])
    for end in reversed(_ends_of_names(form)[:-1]):
        name = known.get(form[:end])
        if name is None:
            continue
        rest = form[end:]
        reading = _read_keys(Expression(name), rest, has_fields)
        if reading is None:
            reading = _read_words(name, rest)
        if reading is not None:
            return reading
    return None


def _ends_of_names(text: str) -> list[int]:
    """Where a name or a key at the start of a text may end: at its first dots and brackets, and at its end."""
    separators = list(_SEPARATOR.finditer(text))[:_MAX_SEPARATORS]
    return [*(match.start() for match in separators), len(text)]


def _read_keys(
    start: Expression, rest: str, has_fields: Callable[[Expression], bool]
) -> Expression | None:
    """The expression to the keys that a text after another expression consists of; None if there are no such keys."""
    if not rest:
        return start
    keys: list[tuple[str, int]] = []
    match = _LOOSE_FIELD.match(rest)
    if match is not None and match[1] is None:
        keys.append((match[2] or _unquoted(match[3]), match.end()))
    elif rest[0] == "[":
        keys.append((rest[1:].removesuffix("]").strip("\"'"), len(rest)))
    else:
        ends = reversed(_ends_of_names(rest[1:]))
        keys += [(rest[1 : end + 1], end + 1) for end in ends]
    for key, end in keys:
        reading = Expression(start.name, (*start.fields, key))
        if key and has_fields(reading):
            whole = _read_keys(reading, rest[end:], has_fields)
            if whole is not None:
                return whole
    return None


def _read_words(name: str, rest: str) -> Expression | None:
    """The expression to fields that are words, or in brackets; None if they may be code."""
    fields: list[str] = []
    position = 0
    while position < len(rest):
        match = _LOOSE_FIELD.match(rest, position)
        if match is None:
            return None
        words, index, quoted = match.groups()
        if words is not None and _WORDS.fullmatch(words) is None:
            return None
        fields.append(words or index or _unquoted(quoted))
        position = match.end()
    return Expression(name, tuple(fields))


def _unquoted(quoted: str) -> str:
    return _ESCAPED.sub(r"\1", quoted[1:-1])
