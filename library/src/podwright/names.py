"""Names, and the expressions that lead from a name to a field of its value: `ticket.category`, `ticket["a key"]`.

A name is a Unicode identifier that may have `-` inside. A field follows a dot if it consists of the characters of a
name; else it is in brackets: any key in quotes, or the index of a list. A name that is no identifier is in brackets as
well: `["my answer"].category`. Names are compared in the normal form NFC, so that it does not matter how an editor
stores the accent of a letter.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

_START = r"[A-Za-z_\x80-\U0010ffff]"
_CHARACTER = r"[A-Za-z0-9_\-\x80-\U0010ffff]"
_QUOTED = r""""(?:[^"\\\n]|\\["'\\])*+"|'(?:[^'\\\n]|\\["'\\])*+'"""
_FIELD = rf"\.{_CHARACTER}++|\[(?:-?[0-9]++|{_QUOTED})\]"
EXPRESSION = rf"(?:{_START}{_CHARACTER}*+|\[(?:{_QUOTED})\])(?:{_FIELD})*+"
"""A pattern of expressions, without groups. It takes every character outside of ASCII for a letter: `parse_expression`
decides."""

_WHOLE = re.compile(EXPRESSION)
_PART = re.compile(rf"\.?({_CHARACTER}++)|\[(-?[0-9]++)\]|\[({_QUOTED})\]")
_ESCAPED = re.compile(r"""\\(["'\\])""")

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


def is_name(text: str) -> bool:
    """Whether a text is a Unicode identifier, in which `-` may stand after the first letter."""
    return not text.startswith("-") and text.replace("-", "_").isidentifier()


def is_declarable(text: str) -> bool:
    """Whether a text may be the name of an input: a name that begins with a letter."""
    return not text.startswith("_") and is_name(text)


def _is_field(text: str) -> bool:
    """Whether a key may follow a dot: it may also begin with a digit, or with `-`."""
    return is_name(f"a{text}")


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
            parts.append(_ESCAPED.sub(r"\1", quoted[1:-1]))
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

_WORDS = re.compile(r"[^\x00-\x1f!-,/:-@\[-\^`{-\x7f]++")
"""Fields after dots as people write them who do not know the brackets: words, not code."""

_MAX_SEPARATORS = 8
"""Dots and brackets in a text at which a name is looked for."""


def literal_readings(text: str) -> list[tuple[Expression, bool]]:
    """The expressions that a text in braces may be meant as, although it is written otherwise, longest name first.

    Returns:
        Each with whether it is meant if its name is known; if not, its fields must exist too. `o.a key` is meant as
        `o["a key"]`, and `my answer` as `["my answer"]`; `o.map(f)` is code, unless there is such a field.
    """
    readings: list[tuple[Expression, bool]] = []
    visible = "".join(
        char for char in text if unicodedata.category(char) != "Cf"
    )
    parsed = parse_expression(visible)
    if visible != text and parsed is not None:
        readings.append((parsed, True))
    readings.append((Expression(text), True))
    separators = list(re.finditer(r"[.\[]", text))[:_MAX_SEPARATORS]
    for match in reversed(separators):
        name = text[: match.start()]
        rest = text[match.end() :]
        if not name or not rest:
            continue
        if match[0] == "[":
            key = rest.removesuffix("]").strip("\"'")
            readings.append((Expression(name, (key,)), False))
            continue
        fields = tuple(rest.split("."))
        is_words = all(fields) and _WORDS.fullmatch(rest) is not None
        readings.append((Expression(name, fields), is_words))
    return readings
