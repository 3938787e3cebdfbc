"""Names for people as names of tools, which providers and protocols restrict to ASCII."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container, Iterable, Sequence

TOOL_NAME = re.compile(r"^[a-zA-Z0-9_-]{1,64}$")
"""The names of tools that OpenAI, Anthropic and most other providers take."""
REVISE_PLAN = "revise_plan"
"""Name of the tool by which the model of a conductor replaces its plan."""
TRANSFER_PREFIX = "transfer_to_"
"""Begins the names of the tools by which the model of an agent hands the conversation over."""
_MAX_BASE_NAME = 60
"""Characters of a skill's name in the name of its tool, so that a number after it fits into 64."""
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


def skill_tool_names(skills: Sequence[str]) -> list[str]:
    """Return the names by which a model calls the skills of a conductor, in their order, each once.

    Args:
        skills: The names of the skills, in any alphabet.
    """
    own = set(filter(TOOL_NAME.fullmatch, skills))
    taken = {*own, REVISE_PLAN}
    names: list[str] = []
    for number, skill in enumerate(skills, 1):
        name = skill
        if name not in own or name in names or name == REVISE_PLAN:
            base = to_tool_name(skill)[:_MAX_BASE_NAME] or f"skill_{number}"
            name = free_name(base, taken)
        taken.add(name)
        names.append(name)
    return names


def transfer_tool_names(
    agents: Iterable[str], taken: Iterable[str]
) -> list[str]:
    """Return the names by which a model hands its conversation over to agents, in their order, each once.

    Args:
        agents: The names of the agents, in any alphabet.
        taken: The names of the other tools of the model.
    """
    most = _MAX_BASE_NAME - len(TRANSFER_PREFIX)
    used = set(taken)
    names: list[str] = []
    for number, agent in enumerate(agents, 1):
        base = to_tool_name(agent)[:most] or f"agent_{number}"
        name = free_name(TRANSFER_PREFIX + base, used)
        used.add(name)
        names.append(name)
    return names


def free_name(base: str, taken: Container[str]) -> str:
    """Return a name, with a number from 2 on after it if it is taken."""
    name = base
    number = 2
    while name in taken:
        name = f"{base}_{number}"
        number += 1
    return name
