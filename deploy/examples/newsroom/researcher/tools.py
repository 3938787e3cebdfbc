"""The researcher's tool: a full-text search in the archive that lies beside this file."""

import math
import re
from collections import Counter
from pathlib import Path

ARCHIVE = Path(__file__).with_name("archive.txt")
COMMON = set(
    "a about an and are as at be by did for from had has how in into is it its not of on or that the".split()
)
COMMON |= set(
    "their this to was were what when where which who why with write".split()
)


def search_archive(query: str, limit: int = 3) -> str:
    """Search the newsroom's archive of short factual notes.

    Args:
        query: A few words to look for.
        limit: How many notes to return at most, 1 to 10.
    """
    notes = ARCHIVE.read_text(encoding="utf-8").strip().split("\n\n")
    counted = [Counter(_words(note)) for note in notes]
    asked = set(_words(query))

    def relevance(number: int) -> float:
        return sum(
            _rarity(word, counted) * min(counted[number][word], 3)
            for word in asked
        )

    best = sorted(range(len(notes)), key=relevance, reverse=True)[
        : max(1, min(limit, 10))
    ]
    found = [notes[number] for number in best if relevance(number) > 0]
    return "\n\n".join(found) or f"NOTHING FOUND in {len(notes)} notes."


def _words(text: str) -> list[str]:
    return [
        word for word in re.findall(r"\w+", text.lower()) if word not in COMMON
    ]


def _rarity(word: str, notes: list[Counter[str]]) -> float:
    """A word in few notes tells more than one in many."""
    return math.log(
        1 + len(notes) / max(1, sum(word in note for note in notes))
    )
