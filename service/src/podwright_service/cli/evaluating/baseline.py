"""The blessed report: what later evaluations of a component are compared with."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from podwright.data.text import printable, truncate
from podwright.errors import ConfigurationError
from podwright.evaluation.reports.report import Report, changed_cases
from podwright.evaluation.suite import Suite
from podwright_service.cli.console import print_text

_SHOWN = 5
"""Cases of each kind that are named."""


def baseline_file(suite: Suite) -> Path:
    """Return where the blessed report of a suite is."""
    return suite.folder / "baseline.json"


def last_report_file(suite: Suite) -> Path:
    """Return where the last report of a suite is."""
    return suite.recorded / "report.json"


def blessed_report(suite: Suite) -> Report | None:
    """Return the blessed report that a suite is compared with if nobody says otherwise; None if there is none.

    A suite with several variants has its own baseline.

    Raises:
        ConfigurationError: It cannot be read.
    """
    file = baseline_file(suite)
    if len(suite.variants) > 1 or not file.is_file():
        return None
    return Report.load(file)


def print_baseline(report: Report, suite: Suite) -> None:
    """Say on standard error what a suite is compared with, and which cases are not."""
    rate = report[report.baseline].passed
    passed = "" if rate is None else f": {rate.value:.0%} passed"
    print_text(
        f"Compared with '{report.baseline}' of {report.made_at[:10]}{passed}.",
        sys.stderr,
    )
    for line in _differences(report, suite):
        print_text(line, sys.stderr)


def _differences(report: Report, suite: Suite) -> Iterator[str]:
    """Say which cases cannot be compared with a report."""
    digests = {case.name: suite.digest_of(case) for case in suite.cases}
    found = {
        "new": [name for name in digests if name not in report.cases],
        "changed": changed_cases(report, digests),
        "missing now": [name for name in report.cases if name not in digests],
    }
    parts = [
        f"{what}: {_listed(names)}" for what, names in found.items() if names
    ]
    if parts:
        yield f"The baseline has other cases: {'; '.join(parts)}. `podwright eval bless` writes a new one."


def _listed(names: list[str]) -> str:
    shown = ", ".join(printable(truncate(name, 60)) for name in names[:_SHOWN])
    if len(names) > _SHOWN:
        shown += f" and {len(names) - _SHOWN} more"
    return shown


def bless(path: str | None, variant: str | None, component: str) -> None:
    """Write the results of a variant as the baseline of later evaluations.

    Args:
        path: A saved report, or a component folder or suite, whose last report is taken; None takes the last one of
            `component`.
        variant: The variant; by default the report's baseline, or the suite's if something else was compared with.
        component: The component folder, or the suite, that gets the baseline.

    Raises:
        ConfigurationError: There is no such report, it is of another component, or the variant is incomplete.
    """
    file: Path | None = None
    if path is not None:
        if Path(path).is_dir():
            component = path
        else:
            file = Path(path)
    suite = Suite.load(component)
    if file is None:
        file = last_report_file(suite)
        if not file.is_file():
            raise ConfigurationError(
                f"'{suite.name}' has no report to bless.",
                suggestion="Run `podwright eval` first, or name a report.",
            )
    report = Report.load(file)
    if report.suite != suite.name:
        raise ConfigurationError(
            f"The report '{file}' is of '{truncate(report.suite, 60)}', not of '{suite.name}'.",
            suggestion="Name the component's folder with --component.",
        )
    if variant is None and report.baseline not in suite.variants:
        variant = suite.baseline or next(iter(suite.variants))
    blessed = report.blessed(variant)
    target = baseline_file(suite)
    blessed.save(target)
    passed = blessed[blessed.baseline].passed
    rate = "" if passed is None else f", {passed.value:.0%} passed"
    print_text(
        f"{target}: '{blessed.baseline}' of {blessed.made_at[:10]}, "
        f"{len(blessed.cases)} cases x {blessed.repeat}{rate}"
    )
    left_out = [
        case.name for case in suite.cases if case.name not in blessed.cases
    ]
    if left_out:
        print_text(
            f"The report is without these cases: {_listed(left_out)}.",
            sys.stderr,
        )
