"""Templates, and how values become text: `{name}` only, replaced in one pass.

No attributes, no indexes, no format specs, no second expansion: a value that looks like a template is text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from podwright.errors import ContextError
from podwright.json_data import to_text
from podwright.text import did_you_mean

_NAME = re.compile(r"\{([A-Za-z_][A-Za-z0-9_-]*)\}")


_LONGEST = 50_000_000
"""Characters that a template may be filled with: one that names a long text often could fill the memory."""


def names(template: str) -> list[str]:
    """The names that a template asks for, in order, each once."""
    return list(dict.fromkeys(_NAME.findall(template)))


def fill(template: str, context: Mapping[str, Any]) -> str:
    """Replace every `{name}` that the context has; leave all other braces as they are.

    Raises:
        ContextError: The text would be far too long.
    """
    if "{" not in template:
        return template
    length = 0

    def value(match: re.Match[str]) -> str:
        nonlocal length
        if match[1] not in context:
            return match[0]
        text = to_text(context[match[1]])
        length += len(text)
        if length > _LONGEST:
            raise ContextError(
                f"A text of more than {_LONGEST} characters would be filled in at '{match[0]}'.",
                suggestion="Name a long value once, or have a step before shorten it.",
            )
        return text

    return _NAME.sub(value, template)


def fill_all(template: str, context: Mapping[str, Any], where: str) -> str:
    """As `fill`, but a name that the context lacks is an error.

    Raises:
        ContextError: The template names something that is not there.
    """
    for name in names(template):
        if name not in context:
            raise ContextError(
                f"{where} asks for '{{{name}}}', which the context does not have.",
                suggestion=did_you_mean(name, visible(context)) or None,
            )
    return fill(template, context)


def visible(context: Mapping[str, Any]) -> Iterable[str]:
    """The names of a context that are for models and people; those with a leading underscore are not."""
    return [name for name in context if not name.startswith("_")]


def sections(context: Mapping[str, Any], leave_out: Iterable[str] = ()) -> str:
    """A context as text for a model: the bare value if there is one, else each under its name."""
    skip = set(leave_out)
    shown = [name for name in visible(context) if name not in skip]
    if len(shown) == 1:
        return to_text(context[shown[0]])
    return "\n\n".join(f"## {name}\n{to_text(context[name])}" for name in shown)
