"""Rows and reports of evaluations that nobody ran, for the tests of reports."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from podwright.evaluation.reports.report import Report
from podwright.evaluation.reports.row import Row
from podwright.evaluation.suite import Case, Gates, Suite, Variant

MADE_AT = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
NO_GATES = Gates()


def suite_of(
    cases: Sequence[str],
    variants: Sequence[str],
    *,
    gates: Gates = NO_GATES,
    must: Sequence[str] = (),
) -> Suite:
    return Suite(
        Path("desk"),
        Path("desk/evals/evals.yaml"),
        [Case(name, "Hello", must=name in must) for name in cases],
        {name: Variant(name) for name in variants},
        baseline=variants[0],
        gates=gates,
    )


def row(
    variant: str,
    case: str,
    repeat: int = 0,
    *,
    passes: bool = True,
    cost: float | None = 0.001,
    seconds: float = 1.0,
    **values: object,
) -> Row:
    check = {
        "label": "kind",
        "passed": passes,
        "reason": "" if passes else "no apology",
    }
    return Row.from_dict(
        {
            "key": f"{variant} {case} {repeat}",
            "variant": variant,
            "case": case,
            "repeat": repeat,
            "status": "ok",
            "cost": cost,
            "seconds": seconds,
            "paid": 0.0001,
            "live_calls": 1,
            "checks": [check],
            **values,
        }
    )


def rows_of(
    cases: Sequence[str],
    variants: Sequence[str],
    repeat: int = 1,
    passes: Callable[[str, str, int], bool] = lambda variant, case, repeat: (
        True
    ),
) -> list[Row]:
    return [
        row(variant, case, number, passes=passes(variant, case, number))
        for case in cases
        for variant in variants
        for number in range(repeat)
    ]


def report_of(
    rows: Sequence[Row],
    *,
    cases: Sequence[str],
    variants: Sequence[str] = ("small", "large"),
    repeat: int = 1,
    gates: Gates = NO_GATES,
    must: Sequence[str] = (),
    made_at: datetime = MADE_AT,
) -> Report:
    suite = suite_of(cases, variants, gates=gates, must=must)
    return Report.of(
        suite,
        rows,
        digests={name: f"digest of {name}" for name in variants},
        baseline=variants[0],
        repeat=repeat,
        made_at=made_at,
    )
