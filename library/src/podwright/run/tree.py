"""The tree of a run and of all runs nested in it, and what these share."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import count

from podwright.functions.run_start import RunStart
from podwright.journal.journal import Journal
from podwright.messages.shared_state import SharedState

MAX_HOPS = 3
"""Default number of further containers that a run may pass through."""


@dataclass(slots=True)
class RunTree:
    """The state that a run shares with all runs nested in it."""

    loop: asyncio.AbstractEventLoop
    journal: Journal
    hops: int = MAX_HOPS
    """Further containers that the run may pass through."""
    idempotency_key: str | None = None
    """Seed of the `Idempotency-Key` of requests to remote components; None takes the id of the outermost run."""
    sequence: count[int] = field(default_factory=count)
    """Numbers of the events."""
    failed_subscribers: set[int] = field(default_factory=set[int])
    """By identity: a callable need not be hashable."""
    steps: int = 0
    text: int = 0
    """Characters of filled templates."""
    start: RunStart = field(default_factory=RunStart)
    """The start of the outermost run, in its first attempt."""
    state: SharedState = field(default_factory=SharedState)
    """What the functions of its runs share."""
