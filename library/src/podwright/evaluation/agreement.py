"""Agreement of a judge with persons: how far its verdicts may be believed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace

from podwright.data.json_data import JsonObject, to_text
from podwright.data.text import truncate
from podwright.evaluation.past_runs.labels import Label
from podwright.evaluation.reports.statistics import Interval, Rate, rate_of
from podwright.evaluation.runs.answers import PaidAnswers
from podwright.evaluation.runs.judges import JudgeError, Judges, Opinion

_CONCURRENCY = 8
_SHOWN = 3
"""Disagreements that are told."""
_SHOWN_OUTPUT = 80
"""Characters of an answer that are shown."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often a judge and persons agree."""

    labels: int
    """The labels of which the judge has said something."""
    agreed: Rate
    """The share of labels of which both say the same."""
    kappa: Interval | None
    """Cohen's kappa: 0 is what chance alone would give, 1 is full agreement; None if both always say the same one."""
    base_rate: float
    """The share of labels that are good."""
    sensitivity: Rate | None
    """The share of the good answers that the judge finds good; None if there are none."""
    specificity: Rate | None
    """The share of the others that the judge finds not good; None if there are none."""
    consistency: Rate
    """The share of labels of which the judge, asked twice, says the same."""
    cost: float | None
    """The mean cost of a verdict in USD, replayed ones included; None if one is unknown."""
    paid: float = 0.0
    """USD that was paid now."""
    disagreements: Sequence[str] = ()
    """Some of those of which they say something else."""
    without_verdict: Sequence[str] = ()
    """Why the judge has said nothing of some labels, which are not counted."""

    def to_dict(self) -> JsonObject:
        """The agreement as JSON data."""
        return asdict(self)


async def measure_agreement(
    judges: Judges, answers: PaidAnswers, name: str, labels: Sequence[Label]
) -> Agreement:
    """Ask a judge of each label twice, and compare what it says with what persons have said.

    Both answers are recorded, so they are paid for once.

    Args:
        judges: The judges, whose models have the recorded answers.
        answers: The recorded answers.
        name: The judge.
        labels: At least one label.

    Raises:
        JudgeError: It gave no verdict on any label.
    """
    limit = asyncio.Semaphore(_CONCURRENCY)
    paid = [0.0] * len(labels)

    async def ask(number: int) -> tuple[Opinion, Opinion] | JudgeError:
        given = labels[number].judge_inputs()
        async with limit:
            # equal requests of one sample have answers of their own
            with answers.sample_of("", 0) as sample:
                try:
                    first = await judges.opinion(name, given)
                    return first, await judges.opinion(name, given)
                except JudgeError as error:
                    return error
                finally:
                    paid[number] = sample.paid

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ask(each)) for each in range(len(labels))]
    outcomes = [task.result() for task in tasks]
    judged: list[Label] = []
    opinions: list[tuple[Opinion, Opinion]] = []
    errors: list[JudgeError] = []
    for label, outcome in zip(labels, outcomes, strict=True):
        if isinstance(outcome, JudgeError):
            errors.append(outcome)
        else:
            judged.append(label)
            opinions.append(outcome)
    if not judged:
        raise errors[0]
    return replace(
        compare(judged, opinions),
        paid=sum(paid),
        without_verdict=[str(error) for error in errors],
    )


def compare(
    labels: Sequence[Label], opinions: Sequence[tuple[Opinion, Opinion]]
) -> Agreement:
    """Return how far labels and the opinions on them agree.

    Args:
        labels: At least one label.
        opinions: For each label, what the judge has said the first and the second time. The first one is compared.
    """
    pairs = [
        (label.good, first.good)
        for label, (first, _) in zip(labels, opinions, strict=True)
    ]
    of_good = [verdict for good, verdict in pairs if good]
    of_others = [not verdict for good, verdict in pairs if not good]
    disagreements = [
        _disagreement(label, first)
        for label, (first, _) in zip(labels, opinions, strict=True)
        if label.good != first.good
    ]
    agreed = _rate(good == verdict for good, verdict in pairs)
    return Agreement(
        len(labels),
        agreed,
        _kappa(pairs, agreed),
        base_rate=len(of_good) / len(labels),
        sensitivity=_rate(of_good) if of_good else None,
        specificity=_rate(of_others) if of_others else None,
        consistency=_rate(
            first.good == second.good for first, second in opinions
        ),
        cost=_mean_cost(opinions),
        disagreements=disagreements[:_SHOWN],
    )


def _disagreement(label: Label, opinion: Opinion) -> str:
    person = "good" if label.good else "not good"
    if label.comment:
        person += f" ({label.comment})"
    judge = "good" if opinion.good else "not good"
    if opinion.reason:
        judge += f" ({opinion.reason})"
    shown = truncate(to_text(label.output), _SHOWN_OUTPUT)
    return f"{person} for a person, {judge} for the judge: {shown}"


def _rate(verdicts: Iterable[bool]) -> Rate:
    return rate_of([[verdict] for verdict in verdicts])


def _mean_cost(opinions: Sequence[tuple[Opinion, Opinion]]) -> float | None:
    costs = [each.cost for pair in opinions for each in pair]
    known = [cost for cost in costs if cost is not None]
    if len(known) < len(costs):
        return None
    return sum(known) / len(known)


def _kappa(pairs: Sequence[tuple[bool, bool]], agreed: Rate) -> Interval | None:
    """Return Cohen's kappa with the interval of the agreement, less what chance gives.

    In simulated samples of 30 and of 100 labels, at least 94 of 100 of these intervals hold the true value; of those by
    the usual standard error, 71 to 95 do. It has a width if all agree, too.
    """
    count = len(pairs)
    good = sum(good for good, _ in pairs) / count
    said = sum(verdict for _, verdict in pairs) / count
    by_chance = good * said + (1 - good) * (1 - said)
    if by_chance == 1:
        return None

    def beyond_chance(rate: float) -> float:
        return max(-1.0, (rate - by_chance) / (1 - by_chance))

    return Interval(
        beyond_chance(agreed.value),
        beyond_chance(agreed.low),
        beyond_chance(agreed.high),
    )
