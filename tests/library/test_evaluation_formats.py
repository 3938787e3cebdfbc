"""Reports of evaluations as JUnit XML and as Markdown, whatever is in names and reasons."""

import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from tests.evaluation_rows import report_of, row, rows_of

from podwright.evaluation.reports.junit import to_junit
from podwright.evaluation.reports.markdown import MAX_LENGTH, to_markdown
from podwright.evaluation.reports.report import Report
from podwright.evaluation.suite import Gates

HOSTILE = [
    "a | b",
    "<script>alert(1)</script>",
    "two\nlines\r\n# title",
    "\x1b[31mred\x1b[0m",
    "nul \x00 bell \x07",
    "half \ud83d character",
    "\ufffe and \uffff",
    "@octocat see #12 and [this](https://example.com) or www.example.com",
    "`code` *bold* ~~no~~ $x$ \\| &amp;",
    "right \u202e to left",
    "]]> --> ${{ secrets.X }}",
]


@pytest.fixture
def report() -> Report:
    """The large variant fails case b, could not be tried with c, and is flaky with d."""
    cases = ["a", "b", "c", "d"]

    def passes(variant: str, case: str, repeat: int) -> bool:
        return (
            variant == "small" or case in "ac" or (case == "d" and not repeat)
        )

    rows = rows_of(cases, ["small", "large"], 2, passes)
    rows = [
        replace(each, status="error", error="Refused: 429", cost=None)
        if (each.variant, each.case) == ("large", "c")
        else each
        for each in rows
    ]
    gates = Gates(pass_rate=0.99, pass_rate_drop=0.05, cost_ratio=1.2)
    return report_of(rows, cases=cases, repeat=2, gates=gates)


def hostile(name: str) -> Report:
    """A report with the name as that of a case, of a variant, and as a reason."""
    variants = ["small", f"v {name}"]
    check = {"label": name, "passed": False, "reason": name}
    rows = rows_of([name], ["small"])
    rows.append(row(variants[1], name, checks=[check]))
    return report_of(
        rows, cases=[name], variants=variants, gates=Gates(pass_rate=0.5)
    )


# --- JUnit


REQUIRED = {
    "testsuites": {"name"},
    "testsuite": {
        "name",
        "tests",
        "failures",
        "errors",
        "skipped",
        "time",
        "timestamp",
    },
    "properties": set[str](),
    "property": {"name", "value"},
    "testcase": {"name", "classname", "time"},
    "failure": {"message", "type"},
    "error": {"message", "type"},
}
"""The elements of the schemas that Jenkins, GitLab and GitHub's actions share, with their attributes."""
CHILDREN = {
    "testsuites": r"(testsuite )*",
    "testsuite": r"(properties )?(testcase )*",
    "properties": r"(property )*",
    "testcase": r"(properties )?(failure |error )?",
    "property": r"",
    "failure": r"",
    "error": r"",
}
"""The order of the children."""


def test_junit_has_the_elements_of_the_common_schema(report: Report) -> None:
    for element in ET.XML(to_junit(report)).iter():
        children = [child.tag for child in element]
        assert {*element.attrib} == REQUIRED[element.tag]
        order = "".join(f"{child} " for child in children)
        assert re.fullmatch(CHILDREN[element.tag], order), element.tag
        for name in {"tests", "failures", "errors", "skipped"} & {
            *element.attrib
        }:
            assert int(element.attrib[name]) >= 0
        if "time" in element.attrib:
            assert float(element.attrib["time"]) >= 0
        if "timestamp" in element.attrib:
            assert element.attrib["timestamp"] == "2026-11-20T12:00:00"


def test_junit_has_a_test_for_each_case_of_each_variant(
    report: Report,
) -> None:
    small, large = ET.XML(to_junit(report))
    assert [test.get("name") for test in small] == ["a", "b", "c", "d"]
    counts = ("tests", "failures", "errors")
    assert [small.get(name) for name in counts] == ["4", "0", "0"]
    assert [large.get(name) for name in counts] == ["4", "2", "1"]
    failure = large.find("testcase[@name='b']/failure")
    assert failure is not None
    assert failure.text == "kind: no apology"
    error = large.find("testcase[@name='c']/error")
    assert error is not None
    assert error.text == "Refused: 429"
    assert error.get("message") == "2 of 2 runs say nothing"


def test_junit_has_costs_and_seconds(report: Report) -> None:
    properties = {
        test.get("name"): {
            each.get("name"): each.get("value")
            for each in test.iter("property")
        }
        for test in ET.XML(to_junit(report))[1]
    }
    assert float(properties["a"]["cost"] or "") == pytest.approx(0.002)
    assert properties["a"]["seconds"] == "2.000"
    assert properties["c"]["cost"] == "unknown"


def test_junit_leaves_the_rows_of_another_report_out(report: Report) -> None:
    combined = report.with_baseline(report)
    assert to_junit(combined) == to_junit(report)


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_names_are_text_in_junit(name: str) -> None:
    text = to_junit(hostile(name))
    text.encode()
    root = ET.XML(text)
    assert {element.tag for element in root.iter()} <= {*REQUIRED}
    shown = re.sub(
        r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]", "\ufffd", name
    )
    tests = [*root.iter("testcase")]
    assert [test.get("name") for test in tests] == [shown] * 2


# --- Markdown


def shown(text: str) -> str:
    """The text without what escaped characters hide."""
    return re.sub(r"\\(.)", "", text)


def test_markdown_says_what_is_known_and_what_is_not(report: Report) -> None:
    text = to_markdown(report)
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len(table) == 4
    assert "baseline" in table[2]
    assert "undecided" in table[3]
    assert "d 1/2 (large)" in text.replace("\\", "")
    assert "b 2/2 → 0/2 (large): kind: no apology" in text.replace("\\", "")
    assert "2 runs: Refused: 429" in text


def test_an_unknown_price_is_unknown_in_markdown() -> None:
    rows = [row("small", "a"), row("large", "a", cost=None)]
    text = to_markdown(report_of(rows, cases=["a"]))
    large = text.splitlines()[5]
    assert large.count("unknown") == 2
    assert "0.00000" not in large


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_names_are_text_in_markdown(name: str) -> None:
    text = to_markdown(hostile(name))
    text.encode()
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", text)
    lines = text.splitlines()
    rows = [shown(line) for line in lines if line.startswith("|")]
    assert len(rows) == 4
    assert {line.count("|") for line in rows} == {10}
    visible = shown("\n".join(lines[2:]))
    assert not re.search(r"[<>`~]|\[this|\$[x{]", visible)
    assert not re.search(r"@\w|#\d|://|www\.", text)
    titles = [line for line in lines if line.startswith("#")]
    assert titles == ["### Evaluation of desk"]


@pytest.mark.parametrize("variants", [4, 64])
def test_markdown_of_many_cases_fits_into_a_comment(variants: int) -> None:
    names = [f"variant {number} {'|@<' * 80}" for number in range(variants)]
    cases = [f"case {number} {'*' * 200}" for number in range(500)]
    if variants > 4:
        cases = cases[:30]
    rows = rows_of(cases, names, 1, lambda v, c, r: v == names[0])
    gates = Gates(0.9, 0.05, 1.2, 1.5)
    text = to_markdown(
        report_of(rows, cases=cases, variants=names, gates=gates)
    )
    assert len(text) <= MAX_LENGTH
    assert re.search(r"and \d+ more|left out", text)
    assert "❌" in text


def test_gates_that_fail_are_not_left_out_for_such_that_hold() -> None:
    names = [f"variant {number}" for number in range(40)]
    cases = [f"case {number}" for number in range(60)]
    rows = rows_of(cases, names, 1, lambda v, c, r: v != names[-1])
    text = to_markdown(
        report_of(rows, cases=cases, variants=names, gates=Gates(pass_rate=0.9))
    )
    first = text.partition("**Gates**")[2].strip().splitlines()[0]
    assert "❌" in first
    assert "variant 39" in first
