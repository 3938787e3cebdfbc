"""Gates: what decides whether an evaluation succeeds. A gate holds, fails, or is undecided."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from podwright.evaluation.reports.statistics import Interval, cases_to_decide

if TYPE_CHECKING:
    from podwright.evaluation.reports.report import Comparison, Report

GateVerdict = Literal["holds", "fails", "undecided"]

_LEAST_TIMED_RUNS = 20
"""Of fewer runs, the 95th percentile is the slowest one."""


@dataclass(frozen=True, slots=True)
class Gate:
    """What a gate says of a variant."""

    name: str
    """`pass_rate`, `pass_rate_drop`, `cost_ratio` or `p95_ratio`."""
    variant: str
    verdict: GateVerdict
    sentence: str
    """The same for a person."""


def gates_of(report: Report) -> Iterator[Gate]:
    """Yield what the gates say of each variant; the baseline is not compared with itself."""
    for name in report.digests:
        if name in report.from_elsewhere:
            continue
        yield from _rate_gate(report, name)
        if name != report.baseline:
            yield from _comparing_gates(report, name)


def _rate_gate(report: Report, name: str) -> Iterator[Gate]:
    least = report.gate_values.pass_rate
    passed = report[name].passed
    if least is None:
        return
    title = f"pass_rate >= {least:.0%} of {name}"
    if passed is None:
        yield Gate("pass_rate", name, "undecided", f"{title}: nothing was run")
        return
    yield _gate(
        "pass_rate",
        name,
        title,
        passed,
        least,
        cases=passed.cases,
        wants_more=True,
        shown=f"[{passed.low:.0%}, {passed.high:.0%}]",
    )


def _comparing_gates(report: Report, name: str) -> Iterator[Gate]:
    values = report.gate_values
    found = report.compare(name)
    if values.pass_rate_drop is not None:
        title = f"pass_rate_drop <= {values.pass_rate_drop:.0%} of {name}"
        difference = found.passed
        if difference is None:
            yield Gate(
                "pass_rate_drop", name, "undecided", f"{title}: no common cases"
            )
        else:
            yield _gate(
                "pass_rate_drop",
                name,
                title,
                difference,
                -values.pass_rate_drop,
                cases=difference.cases,
                wants_more=True,
                shown=f"[{100 * difference.low:+.0f}, {100 * difference.high:+.0f}] points",
            )
    if values.cost_ratio is not None:
        title = f"cost_ratio <= {values.cost_ratio:g} of {name}"
        ratio = found.cost
        if ratio is None:
            yield Gate(
                "cost_ratio",
                name,
                "undecided",
                f"{title}: undecided, the ratio is unknown",
            )
        else:
            yield _gate(
                "cost_ratio",
                name,
                title,
                ratio,
                values.cost_ratio,
                cases=ratio.cases,
                wants_more=False,
                shown=f"[{ratio.low:.2f}, {ratio.high:.2f}]",
            )
    if values.p95_ratio is not None:
        yield _time_gate(values.p95_ratio, found, name)


def _time_gate(most: float, comparison: Comparison, name: str) -> Gate:
    """The gate of times, of which no interval is known: those of a machine vary with what else it does."""
    title = f"p95_ratio <= {most:g} of {name}"
    ratio = comparison.p95
    runs = comparison.timed_runs
    if ratio is None:
        sentence = f"{title}: undecided, no live runs of both"
        return Gate("p95_ratio", name, "undecided", sentence)
    if runs < _LEAST_TIMED_RUNS:
        sentence = (
            f"{title}: undecided, {ratio:.2f} of {runs} live runs: "
            f"it takes {_LEAST_TIMED_RUNS} of both"
        )
        return Gate("p95_ratio", name, "undecided", sentence)
    verdict: GateVerdict = "holds" if ratio <= most else "fails"
    return Gate("p95_ratio", name, verdict, f"{title}: {verdict}, {ratio:.2f}")


def _gate(
    gate: str,
    variant: str,
    title: str,
    found: Interval,
    threshold: float,
    *,
    cases: int,
    wants_more: bool,
    shown: str,
) -> Gate:
    """Compare an interval with a threshold: a gate is decided if the whole interval is on one side of it."""
    good = found.low >= threshold
    bad = found.high < threshold
    if not wants_more:
        good = found.high <= threshold
        bad = found.low > threshold
    if good or bad:
        verdict: GateVerdict = "holds" if good else "fails"
        return Gate(gate, variant, verdict, f"{title}: {verdict}, {shown}")
    further = cases_to_decide(found, threshold, cases)
    hint = "so close that more cases would not decide"
    if further is not None:
        hint = f"about {further} more cases would decide"
    return Gate(
        gate, variant, "undecided", f"{title}: undecided, {shown}: {hint}"
    )
