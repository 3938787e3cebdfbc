"""Text for people: shortened values, safe terminal output, suggestions for misspelled names."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from typing import cast

MAX_GROUP = 5
"""Exceptions of a group that are described."""


def truncate(text: str, length: int) -> str:
    """The text, cut to at most `length` characters with an ellipsis."""
    if len(text) <= length:
        return text
    return text[: length - 1] + "…"


def short_repr(value: object, length: int = 60) -> str:
    """The `repr` of a value of any type, cut to `length` characters; never raises."""
    shown = _try_text(repr, value)
    if not shown:
        shown = f"({type(value).__name__})"
    return truncate(shown, length)


def describe_error(error: BaseException) -> str:
    """The type and the message of an exception, even if its `__str__` raises; of a group also those inside."""
    name = type(error).__name__
    message = _try_text(str, error)
    if not message:
        return name
    if not isinstance(error, BaseExceptionGroup):
        return f"{name}: {message}"
    group = cast("BaseExceptionGroup[BaseException]", error)
    inner = map(describe_error, group.exceptions[:MAX_GROUP])
    return f"{name}: {message}: {'; '.join(inner)}"


def _try_text(function: Callable[[object], str], value: object) -> str | None:
    """What `repr` or `str` makes of a value; None if the value's own method raises."""
    try:
        return function(value)
    except Exception:  # noqa: BLE001 - the methods of a caller's class may raise anything
        return None


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An exception, what caused it, what caused that, and so on."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def os_error_reason(error: Exception) -> str:
    """The reason of an operating system error, without its number and file name."""
    return getattr(error, "strerror", None) or str(error)


def printable(text: str) -> str:
    """The text with control characters replaced, so that it cannot control a terminal."""
    characters = list(text)
    for position, char in enumerate(characters):
        if not char.isprintable() and char not in "\n\t":
            characters[position] = "\ufffd"
    return "".join(characters)


def most_similar(word: str, options: Iterable[str]) -> str | None:
    """The option that the word misspells; None if it resembles none."""
    known = list(dict.fromkeys(options))[:200]  # comparing more takes seconds
    closest = difflib.get_close_matches(word, known, n=1)
    return next(iter(closest), None)


def did_you_mean(
    word: str, options: Iterable[str], *, otherwise: str | None = None
) -> str:
    """Return a sentence that suggests the most similar of the options.

    Args:
        word: What was written.
        options: What may be written.
        otherwise: The sentence if none is similar; by default a list of the options, which is empty without options.
    """
    known = list(dict.fromkeys(options))
    similar = most_similar(word, known)
    if similar is not None:
        return f"Did you mean '{similar}'?"
    if otherwise is not None:
        return otherwise
    if not known:
        return ""
    listed = ", ".join(known[:12])
    if len(known) > 12:
        listed += ", …"
    return f"Known names: {listed}."
