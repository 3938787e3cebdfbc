"""Components with suites, for the tests of evaluations: the desk of the examples, and an agent alone."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.helpers import DESK, write_files

SMALL, SHORT = "small, as it is", "small, short"
LARGE, LARGE_SHORT = "large, as it is", "large, short"
JUDGE: dict[str, Any] = {
    "type": "Agent",
    "version": "1",
    "name": "kind",
    "instructions": "You judge letters of a shop. Look at: {about}",
    "inputs": {"about": {"type": "string"}, "output": {"type": "string"}},
    "config": {
        "model": "fake/judge",
        "response_schema": {
            "type": "object",
            "properties": {
                "good": {"type": "boolean"},
                "advice": {"type": "string"},
            },
            "required": ["good", "advice"],
        },
    },
    "tools": [],
}
"""A judge who says whether a letter is kind."""


def _equals(value: str, to: Any, label: str) -> dict[str, Any]:
    return {
        "name": "equals",
        "args": {"value": value, "to": to},
        "label": label,
    }


DESK_SUITE: dict[str, Any] = {
    "matrix": {
        "*.model": {"small": "fake/small", "large": "fake/large"},
        "writer.instructions": {
            "as it is": None,
            "short": {"file": "prompts/short.md"},
        },
    },
    "baseline": {"*.model": "small", "writer.instructions": "as it is"},
    "checks": [
        {
            "name": "contains",
            "args": {"value": "{draft}", "text": "{customer}"},
            "label": "by name",
        }
    ],
    "cases": [
        {
            "name": "broken cup",
            "inputs": {
                "input": "My blue cup from order 7 is broken.",
                "customer": "Ann",
            },
            "checks": [
                _equals("{ticket.category}", "refund", "a refund"),
                {"judge": "kind", "input": {"about": "apologies"}},
            ],
        },
        {
            "name": "late plates",
            "inputs": {
                "input": "Where are my plates of order 8? They are late.",
                "customer": "Bob",
            },
        },
        {
            "name": "approved",
            "inputs": {"input": "My order 7 is late.", "customer": "Ann"},
            "decisions": [
                {"decision": "reject", "comment": "Too long."},
                {"decision": "approve"},
            ],
        },
    ],
    "fakes": {"send_letter": {"letter": "not sent"}},
    "gates": {
        "pass_rate": {"at_least": 0.5},
        "against_baseline": {"cost_ratio": 1.2},
    },
}
"""Two models by two prompts; the judge is asked of one case, and one case is sent."""


def desk(folder: Path, **changes: Any) -> Path:
    """Write the desk with a suite, and return its folder.

    Args:
        folder: Where.
        **changes: Keys of the suite in place of its own; None removes one.
    """
    target = folder / "desk"
    shutil.copytree(
        DESK, target, ignore=shutil.ignore_patterns("evals", "__pycache__")
    )
    suite = {
        key: value
        for key, value in (DESK_SUITE | changes).items()
        if value is not None
    }
    return write_files(
        target,
        {
            "evals/evals.yaml": suite,
            "evals/judges/kind.json": JUDGE,
            "evals/prompts/short.md": "Write to {customer}. Two lines at most. {order}",
        },
    )


def letters(database: Path) -> int:
    """Return how many letters the desk has sent."""
    if not database.exists():
        return 0
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute("SELECT count(*) FROM letters").fetchone()[0]


def writer(
    folder: Path,
    suite: dict[str, Any] | None = None,
    files: dict[str, Any] | None = None,
    **config: Any,
) -> Path:
    """Write an agent with a suite of one case, and return its folder.

    Args:
        folder: Where.
        suite: Keys of the suite in place of its own.
        files: Further files.
        **config: The agent's configuration.
    """
    blueprint = {
        "type": "Agent",
        "version": "1",
        "name": "writer",
        "instructions": "Write.",
        "config": {"model": "fake/small", **config},
        "tools": [],
    }
    own = {
        "variants": {"as it is": {}},
        "cases": [{"name": "one", "inputs": "Hello"}],
        **(suite or {}),
    }
    return write_files(
        folder / "writer",
        {"blueprint.json": blueprint, "evals/evals.yaml": own, **(files or {})},
    )
