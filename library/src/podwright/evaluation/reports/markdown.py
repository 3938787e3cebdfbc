"""A report as Markdown, such as a comment on a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from podwright.evaluation.reports.report import Comparison, Report

MAX_LENGTH = 65_536
"""Characters that GitHub takes."""
_MAX_LINES = 20
"""Lines of a list that are shown."""
_MAX_TEXT = 200
"""Characters of a name or a reason that are shown."""
_UNSAFE = re.compile(r"([\\`*_{}\[\]()#+!|<>~&$-])")
_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff]+"
)
"""Characters that break a line, turn its direction, or are none."""
_REFERENCES = re.compile(r"@|#|www(?=\.)|:(?=//)", re.IGNORECASE)
"""What GitHub makes a mention or a link of; it does so with escaped characters, too."""
_SIGNS = {"fails": "❌", "undecided": "❔", "holds": "✅"}
"""By verdict, the most urgent one first."""


def to_markdown(report: Report) -> str:
    """Return a report as Markdown of at most 65 536 characters; names are text, whatever is in them."""
    sections = [
        [f"### Evaluation of {escaped(report.suite)}", ""],
        list(_table(report)),
        list(_list("Gates", _gates(report))),
        list(_list("Must pass", map(escaped, report.failed_must()))),
        list(_list("Worse than before", map(escaped, report.worse_cases()))),
        list(_list("Flaky", map(escaped, report.flaky_cases()))),
        list(_list("Incomplete", map(escaped, report.incomplete))),
        list(_end(report)),
    ]
    text = "\n".join(line for section in sections for line in section) + "\n"
    if len(text) <= MAX_LENGTH:
        return text
    note = "\n\nThe rest is left out: it is too long for a comment.\n"
    kept = text[: MAX_LENGTH - len(note)].rpartition("\n")[0]
    return kept + note


def escaped(text: str) -> str:
    """Return a text that Markdown shows as it is, in one line."""
    line = _HIDDEN.sub(" ", text)
    if len(line) > _MAX_TEXT:
        line = line[: _MAX_TEXT - 1] + "…"
    # a space of no width stands after what would else refer to something
    return _UNSAFE.sub(r"\\\1", _REFERENCES.sub("\\g<0>\u200b", line))


def _table(report: Report) -> Iterator[str]:
    yield "| variant | passed | 95 % | against the baseline | USD a run | cost | p50 | p95 | runs |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|--:|"
    for name, variant in report.variants.items():
        cells = [escaped(name)]
        if variant.passed is None:
            cells += ["not run", *[""] * 7]
        else:
            passed = variant.passed
            comparison: Comparison | None = None
            if name != report.baseline:
                comparison = report.compare(name)
            cells += [
                f"{passed.value:.0%}",
                f"{passed.low:.0%} to {passed.high:.0%}",
                difference_text(comparison),
                "unknown" if variant.cost is None else f"{variant.cost:.5f}",
                ratio_text(comparison),
                _seconds(variant.p50),
                _seconds(variant.p95),
                str(passed.runs),
            ]
        yield f"| {' | '.join(cells)} |"
    yield ""


def difference_text(comparison: Comparison | None) -> str:
    """Return the difference of two rates in points, with its interval and its verdict; None is the baseline."""
    if comparison is None:
        return "baseline"
    found = comparison.passed
    if found is None:
        return "no common cases"
    points = [
        f"{100 * each:+.0f}" for each in (found.value, found.low, found.high)
    ]
    return f"{points[0]} [{points[1]}, {points[2]}] {found.verdict}"


def ratio_text(comparison: Comparison | None) -> str:
    """Return the ratio of two costs with its interval; None is the baseline."""
    if comparison is None:
        return "-"
    found = comparison.cost
    if found is None:
        return "unknown"
    return f"x{found.value:.2f} [{found.low:.2f}, {found.high:.2f}]"


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.2f} s"


def _gates(report: Report) -> Iterator[str]:
    # a list that is cut keeps those that matter
    order = [*_SIGNS]
    for gate in sorted(
        report.gates, key=lambda gate: order.index(gate.verdict)
    ):
        yield f"{_SIGNS[gate.verdict]} {escaped(gate.sentence)}"


def _list(title: str, lines: Iterable[str]) -> Iterator[str]:
    shown: Sequence[str] = list(lines)
    if not shown:
        return
    yield f"**{title}**"
    yield ""
    for line in shown[:_MAX_LINES]:
        yield f"- {line}"
    if len(shown) > _MAX_LINES:
        yield f"- and {len(shown) - _MAX_LINES} more"
    yield ""


def _end(report: Report) -> Iterator[str]:
    loss = report.detectable_loss()
    if loss is not None:
        yield f"An evaluation of this size finds a loss of {loss:.0%} or more in four of five tries."
    judges = ""
    if report.paid_judges:
        judges = f" (judges ${report.paid_judges:.4f})"
    yield (
        f"Paid ${report.paid:.4f}{judges}{unpriced_text(report)}; {report.live_calls} model calls live, "
        f"{report.replayed_calls} replayed."
    )


def unpriced_text(report: Report) -> str:
    """Return what the sum that is paid lacks; empty if it lacks nothing."""
    if not report.unpriced_calls:
        return ""
    return f" and an unknown amount for {report.unpriced_calls} calls"
