"""A report as JUnit XML, which CI systems show as tests."""

from __future__ import annotations

import re
from collections import defaultdict
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from podwright.evaluation.reports.report import Report
from podwright.evaluation.reports.row import Row

_NOT_IN_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 has no form for."""


def to_junit(report: Report) -> str:
    """Return a report as JUnit XML: a suite for each variant, and a test for each of its cases.

    A test fails if a run of the case does not pass, and has an error if one says nothing about the component.
    """
    root = Element("testsuites", name=_text(report.suite))
    by_variant: dict[str, defaultdict[str, list[Row]]] = {
        name: defaultdict(list)
        for name in report.digests
        if name not in report.from_elsewhere
    }
    for row in report.rows:
        if row.variant in by_variant:
            by_variant[row.variant][row.case].append(row)
    for name, by_case in by_variant.items():
        suite = SubElement(root, "testsuite", name=_text(name))
        for case, rows in by_case.items():
            _add_test(suite, f"{report.suite}.{name}", case, rows)
        _count(suite, by_case)
        suite.set("timestamp", report.made_at[:19])
    indent(root)
    return tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _count(suite: Element, by_case: defaultdict[str, list[Row]]) -> None:
    tests = list(suite)
    seconds = sum(row.seconds for rows in by_case.values() for row in rows)
    suite.set("tests", str(len(tests)))
    failures = sum(test.find("failure") is not None for test in tests)
    suite.set("failures", str(failures))
    errors = sum(test.find("error") is not None for test in tests)
    suite.set("errors", str(errors))
    suite.set("skipped", "0")
    suite.set("time", f"{seconds:.3f}")


def _add_test(
    suite: Element, class_name: str, case: str, rows: list[Row]
) -> None:
    test = SubElement(
        suite,
        "testcase",
        name=_text(case),
        classname=_text(class_name),
        time=f"{sum(row.seconds for row in rows):.3f}",
    )
    costs = [row.cost for row in rows if row.cost is not None]
    cost = "unknown"
    if len(costs) == len(rows):
        cost = f"{sum(costs):.8f}"
    passed = sum(row.passed for row in rows)
    values = {
        "cost": cost,
        "seconds": f"{sum(row.seconds for row in rows):.3f}",
        "passed": f"{passed}/{len(rows)}",
    }
    properties = SubElement(test, "properties")
    for name, value in values.items():
        SubElement(properties, "property", name=name, value=value)
    failed = [row for row in rows if row.is_scored and not row.passed]
    unscored = [row for row in rows if not row.is_scored]
    if failed:
        message = f"{passed} of {len(rows)} runs pass"
        _add(test, "failure", message, failed)
    elif unscored:
        message = f"{len(unscored)} of {len(rows)} runs say nothing"
        _add(test, "error", message, unscored)


def _add(test: Element, kind: str, message: str, rows: list[Row]) -> None:
    element = SubElement(test, kind, message=message, type=kind)
    lines = [line for row in rows for line in row.reasons()]
    element.text = _text("\n".join(dict.fromkeys(lines)))


def _text(text: str) -> str:
    """Return a text without what XML cannot have."""
    return _NOT_IN_XML.sub("\ufffd", text)
