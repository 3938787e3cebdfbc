"""What `podwright eval` prints: a row for each variant, and what a person should look at."""

from __future__ import annotations

from datetime import UTC, datetime

from podwright.data.text import printable, truncate
from podwright.evaluation.reports.markdown import (
    difference_text,
    ratio_text,
    unpriced_text,
)
from podwright.evaluation.reports.report import (
    Report,
    VariantReport,
)
from podwright_service.cli.console import print_table, print_text, table_of

_SHOWN = 4
"""Cases of each kind that are named."""


def print_report(report: Report) -> None:
    """Print a report for a person."""
    table = table_of(
        "variant",
        "passed",
        "95 %",
        "against baseline",
        "$/run",
        "cost",
        "p50",
        "p95",
        "n",
    )
    for column in table.columns[1:]:
        column.justify = "right"
    for name, variant in report.variants.items():
        table.add_row(*_cells(report, name, variant))
    print_table(table)
    for label, lines in _lines(report).items():
        for number, line in enumerate(lines):
            shown = "" if number else label
            print_text(f"{shown:<20}{printable(line)}")


def _cells(report: Report, name: str, variant: VariantReport) -> list[str]:
    shown = printable(truncate(name, 60))
    if variant.passed is None:
        return [shown, "not run", *[""] * 7]
    passed = variant.passed
    comparison = None
    if name != report.baseline:
        comparison = report.compare(name)
    return [
        shown,
        f"{passed.value:.0%}",
        f"{_percent(passed.low)}-{_percent(passed.high)}",
        difference_text(comparison),
        cost_text(variant.cost),
        ratio_text(comparison),
        seconds_text(variant.p50),
        seconds_text(variant.p95),
        str(passed.runs),
    ]


def _percent(share: float) -> str:
    return f"{100 * share:.0f}"


def cost_text(cost: float | None) -> str:
    """Return USD for a person."""
    if cost is None:
        return "unknown"
    return f"{cost:.5f}" if cost < 1 else f"{cost:,.2f}"


def seconds_text(seconds: float | None) -> str:
    """Return seconds for a person."""
    return "-" if seconds is None else f"{seconds:.2f} s"


def _lines(report: Report) -> dict[str, list[str]]:
    """Return what a person should look at, by its label."""
    return {
        "worse than before": report.worse_cases()[:_SHOWN],
        "flaky": report.flaky_cases()[:_SHOWN],
        "must pass": report.failed_must()[:_SHOWN],
        "gates": [gate.sentence for gate in report.gates],
        "incomplete": report.incomplete[:_SHOWN],
        "paid": [_paid(report)],
    }


def _paid(report: Report) -> str:
    calls = f"{report.live_calls} model calls live, {report.replayed_calls} replayed"
    oldest = ""
    if report.oldest_answer is not None:
        day = datetime.fromtimestamp(report.oldest_answer, UTC).date()
        oldest = f", the oldest of {day}; --fresh asks the providers again"
    judges = ""
    if report.paid_judges:
        judges = f" (judges ${report.paid_judges:.4f})"
    return f"${report.paid:.4f}{judges}{unpriced_text(report)}; {calls}{oldest}"
