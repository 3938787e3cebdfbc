"""The writer's tool: a search in the shop's policies."""

import re
from pathlib import Path

_POLICIES = Path(__file__).parents[2] / "policies.md"


def search_policies(topic: str) -> list[str]:
    """Find the shop's policies about a topic.

    Args:
        topic: A few words.
    """
    sections = _POLICIES.read_text(encoding="utf-8").split("# ")[1:]
    words = set(re.findall(r"\w+", topic.lower()))
    ranked = sorted(sections, key=lambda section: -_matches(section, words))
    return [section.strip() for section in ranked if _matches(section, words)]


def _matches(section: str, words: set[str]) -> int:
    """How many of the words a section has, in singular or plural."""
    text = section.lower()
    return sum(word.rstrip("s") in text for word in words if len(word) > 3)
