"""Agreement of a judge with persons: how far its verdicts may be believed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from podwright.data.json_data import JsonObject, to_text
from podwright.evaluation.reports.statistics import Rate, rate_of
from podwright.evaluation.runs.judges import Judges, Opinion

_CONCURRENCY = 8
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Label:
    """What a person has said of an answer."""

    output: Any
    good: bool
    inputs: Any = ""
    """The inputs of the run that it is the answer of."""
    input: JsonObject = field(default_factory=dict[str, Any])
    """Further inputs of the judge."""
    comment: str = ""
    """Why."""

    def given(self) -> JsonObject:
        """Return the inputs of the judge."""
        return {
            "output": to_text(self.output),
            "inputs": to_text(self.inputs),
            **self.input,
        }


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often a judge and persons agree."""

    labels: int
    agreed: Rate
    """The share of labels of which both say the same."""
    kappa: float | None
    """Cohen's kappa: 0 is what chance alone would give, 1 is full agreement; None if all labels or verdicts are one."""
    base_rate: float
    """The share of labels that are good."""
    sensitivity: Rate | None
    """The share of the good answers that the judge finds good; None if there are none."""
    specificity: Rate | None
    """The share of the others that the judge finds not good; None if there are none."""
    consistency: Rate
    """The share of labels of which the judge, asked twice, says the same."""
    disagreements: Sequence[str] = ()
    """Some of those of which they say something else."""


async def agreement(
    judges: Judges, name: str, labels: Sequence[Label]
) -> Agreement:
    """Ask a judge of each label twice, and compare what it says with what persons have said.

    Args:
        judges: The judges.
        name: The judge.
        labels: At least one label.

    Raises:
        JudgeError: It gave no verdict.
    """
    limit = asyncio.Semaphore(_CONCURRENCY)

    async def ask(label: Label) -> tuple[Opinion, Opinion]:
        async with limit:
            first = await judges.opinion(name, label.given())
            return first, await judges.opinion(name, label.given())

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ask(label)) for label in labels]
    opinions = [task.result() for task in tasks]
    return compare(labels, opinions)


def compare(
    labels: Sequence[Label], opinions: Sequence[tuple[Opinion, Opinion]]
) -> Agreement:
    """Return how far labels and the opinions on them agree."""
    said = [first.good for first, _ in opinions]
    pairs = [
        (label.good, verdict)
        for label, verdict in zip(labels, said, strict=True)
    ]
    of_good = [verdict for good, verdict in pairs if good]
    of_others = [not verdict for good, verdict in pairs if not good]
    disagreements = [
        f"{'good' if label.good else 'not good'} for a person"
        f"{f' ({label.comment})' if label.comment else ''}, not so for the judge"
        f"{f' ({first.reason})' if first.reason else ''}: {to_text(label.output)[:80]}"
        for label, (first, _) in zip(labels, opinions, strict=True)
        if label.good != first.good
    ]
    return Agreement(
        len(labels),
        _rate(good == verdict for good, verdict in pairs),
        _kappa(pairs),
        base_rate=len(of_good) / len(labels),
        sensitivity=_rate(of_good) if of_good else None,
        specificity=_rate(of_others) if of_others else None,
        consistency=_rate(
            first.good == second.good for first, second in opinions
        ),
        disagreements=disagreements[:_SHOWN],
    )


def _rate(verdicts: Iterable[bool]) -> Rate:
    return rate_of([[verdict] for verdict in verdicts])


def _kappa(pairs: Sequence[tuple[bool, bool]]) -> float | None:
    count = len(pairs)
    agreed = sum(good == verdict for good, verdict in pairs) / count
    good = sum(good for good, _ in pairs) / count
    said = sum(verdict for _, verdict in pairs) / count
    by_chance = good * said + (1 - good) * (1 - said)
    if by_chance == 1:
        return None
    return (agreed - by_chance) / (1 - by_chance)
