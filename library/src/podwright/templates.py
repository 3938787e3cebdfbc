"""Templates: `{name}`, replaced in one pass.

There are no attributes, indexes or format specifications, and a value that looks like a template stays text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from podwright.errors import ContextError
from podwright.json_data import to_text
from podwright.text import did_you_mean

_NAME = re.compile(r"\{([A-Za-z_][A-Za-z0-9_-]*)\}")

_MAX_CHARACTERS = 4_000_000
"""Limit of the filled-in text."""
_MAX_REPEATED = 100_000
"""Characters that may be filled in again: a template that repeats a long value could use up the memory."""


def names(template: str) -> list[str]:
    """The names in a template, in order, each once."""
    return list(dict.fromkeys(_NAME.findall(template)))


def fill(template: str, context: Mapping[str, Any]) -> str:
    """Replace each `{name}` that the context has; all other braces stay.

    Raises:
        ContextError: The text would exceed 4 million characters, or repeat values of more than 100 000.
    """
    if "{" not in template:
        return template
    length = repeated = 0
    seen = set[str]()

    def value(match: re.Match[str]) -> str:
        nonlocal length, repeated
        name = match[1]
        if name not in context:
            return match[0]
        text = to_text(context[name])
        length += len(text)
        repeated += len(text) if name in seen else 0
        seen.add(name)
        if length > _MAX_CHARACTERS or repeated > _MAX_REPEATED:
            raise ContextError(
                f"The template would exceed {_MAX_CHARACTERS} characters, or repeat {_MAX_REPEATED}, at '{match[0]}'.",
                suggestion="Use a long value only once, or let a step before shorten it.",
            )
        return text

    return _NAME.sub(value, template)


def fill_all(template: str, context: Mapping[str, Any], where: str) -> str:
    """As `fill`, but a name that the context lacks is an error.

    Raises:
        ContextError: The context lacks a name, or the text is too long.
    """
    for name in names(template):
        if name not in context:
            raise ContextError(
                f"{where} uses '{{{name}}}', which is not in the context.",
                suggestion=did_you_mean(name, visible(context)) or None,
            )
    return fill(template, context)


def visible(context: Mapping[str, Any], leave_out: Collection[str] = ()) -> dict[str, Any]:
    """The part of a context that models and people see: names without a leading underscore."""
    return {name: value for name, value in context.items() if not name.startswith("_") and name not in leave_out}


def sections(context: Mapping[str, Any], leave_out: Collection[str] = ()) -> str:
    """A context as text for a model: a single value as it is, several with a heading each."""
    shown = visible(context, leave_out)
    if len(shown) == 1:
        return to_text(next(iter(shown.values())))
    return "\n\n".join(f"## {name}\n{to_text(value)}" for name, value in shown.items())
