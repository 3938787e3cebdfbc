"""Names for people as names of tools, which providers and protocols restrict to ASCII."""

from __future__ import annotations

import re
import unicodedata

_NOT_IN_TOOL_NAME = re.compile(r"[^a-zA-Z0-9_-]+")
_LETTERS = {
    "ß": "ss",
    "æ": "ae",
    "Æ": "Ae",
    "ø": "o",
    "Ø": "O",
    "œ": "oe",
    "Œ": "Oe",
    "ł": "l",
    "Ł": "L",
}
"""Letters of Latin scripts that Unicode does not take apart into a letter of ASCII and an accent."""


def to_tool_name(name: str) -> str:
    """Return a name without accents, and with `_` for what a tool's name cannot have.

    Args:
        name: The name of a component, in any alphabet.

    Returns:
        Letters and digits of ASCII, `_` and `-`, of any length; empty if nothing of the name is left.
    """
    letters = "".join(_LETTERS.get(letter, letter) for letter in name)
    decomposed = unicodedata.normalize("NFKD", letters)
    plain = "".join(
        char for char in decomposed if not unicodedata.combining(char)
    )
    return _NOT_IN_TOOL_NAME.sub("_", plain).strip("_-")
