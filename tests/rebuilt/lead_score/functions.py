"""What the flow does without a model."""

import csv
import os
import re
from pathlib import Path
from typing import Any

LEADS = Path(__file__).parent / "leads.csv"


def load_leads() -> list[dict[str, str]]:
    """Return the candidates of leads.csv."""
    with LEADS.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def rank(
    leads: list[dict[str, str]], scores: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return the candidates with their scores, the best first, of whom three are invited."""
    candidates = [
        lead | score for lead, score in zip(leads, scores, strict=True)
    ]
    candidates.sort(key=lambda candidate: candidate["score"], reverse=True)
    for place, candidate in enumerate(candidates):
        candidate["invited"] = place < 3
    lines = ["{name}, {score}: {reason}".format(**c) for c in candidates[:3]]
    return {"shortlist": "\n".join(lines), "candidates": candidates}


def save_email(name: str, text: str) -> str:
    """Write an email to a file, and return its name."""
    emails = Path(os.environ.get("EMAILS", "email_responses"))
    emails.mkdir(exist_ok=True)
    file = emails / (re.sub(r"[^\w -]", "", name) + ".txt")
    file.write_text(text, encoding="utf-8")
    return file.name
