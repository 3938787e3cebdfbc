"""Text for people: shortened values, safe terminal output, suggestions for misspelt names."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator


def truncate(text: str, length: int) -> str:
    """The text, cut to at most `length` characters with an ellipsis."""
    return text if len(text) <= length else text[: length - 1] + "…"


def short_repr(value: object, length: int = 60) -> str:
    """The `repr` of a value of any type, cut to `length` characters; never raises."""
    return truncate(_convert(repr, value) or f"({type(value).__name__})", length)


def describe_error(error: BaseException) -> str:
    """The type and the message of an exception, even if its `__str__` raises."""
    message = _convert(str, error)
    return (
        type(error).__name__
        if message is None
        else f"{type(error).__name__}: {message}"
    )


def _convert(function: Callable[[object], str], value: object) -> str | None:
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
    return "".join(
        char if char.isprintable() or char in "\n\t" else "\ufffd" for char in text
    )


def did_you_mean(word: str, options: Iterable[str]) -> str:
    """A sentence that suggests the closest of the options, or lists them; empty without options."""
    known = list(dict.fromkeys(options))[:200]  # comparing more takes seconds
    if close := difflib.get_close_matches(word, known, n=1, cutoff=0.6):
        return f"Did you mean '{close[0]}'?"
    if known:
        return (
            f"Known names: {', '.join(known[:12])}{', …' if len(known) > 12 else ''}."
        )
    return ""
