"""Reports of evaluations: what rows say, gates, exit codes, files, another report as the baseline."""

import json
import random
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from tests.evaluation_rows import MADE_AT, report_of, row, rows_of

from podwright.errors import ConfigurationError
from podwright.evaluation.reports.report import Report
from podwright.evaluation.suite import Gates

CASES = [f"case {number}" for number in range(24)]
BOTH = ["small", "large"]


def large_is_worse(variant: str, case: str, repeat: int) -> bool:
    """The large variant loses every other case, and one more at times."""
    number = int(case.split()[1])
    if variant == "small":
        return True
    return number % 2 == 0 and (number > 0 or repeat > 0)


@pytest.fixture
def worse() -> Report:
    rows = rows_of(CASES, BOTH, 3, large_is_worse)
    gates = Gates(pass_rate=0.9, pass_rate_drop=0.05)
    return report_of(rows, cases=CASES, repeat=3, gates=gates)


# --- What is said of variants


def test_a_variant_has_a_rate_a_cost_and_times(worse: Report) -> None:
    large = worse["large"]
    assert large.passed is not None
    assert large.passed.value == pytest.approx(35 / 72)
    assert large.passed.low < 35 / 72 < large.passed.high
    assert (large.passed.runs, large.passed.cases) == (72, 24)
    assert (large.runs, large.errors) == (72, 0)
    assert large.cost == pytest.approx(0.001)
    assert (large.p50, large.p95) == (1, 1)
    assert large.digest == "digest of large"


def test_an_unknown_variant_is_refused(worse: Report) -> None:
    with pytest.raises(ConfigurationError) as caught:
        worse["lagre"]
    assert "large" in (caught.value.suggestion or "")


def test_a_loss_is_compared_case_by_case(worse: Report) -> None:
    found = worse.compare("large")
    assert found.passed is not None
    assert found.passed.verdict == "worse"
    assert found.cost is not None
    assert found.cost.value == pytest.approx(1)
    assert found.p95 == 1


def test_cases_that_are_lost_or_flaky_are_named(worse: Report) -> None:
    lost = worse.worse_cases()
    assert len(lost) == 12
    assert "case 1 3/3 → 0/3 (large): kind: no apology" in lost
    assert worse.flaky_cases() == ["case 0 2/3 (large)"]


def test_runs_that_say_nothing_are_left_out() -> None:
    rows = [
        row("small", "a", passes=True),
        row("large", "a", passes=False, status="error", error="429"),
        row("small", "b", passes=True),
        row("large", "b", passes=True),
        row("small", "c", status="budget", passes=False),
        row("large", "c", passes=False),
    ]
    report = report_of(rows, cases=["a", "b", "c"])
    assert report["small"].passed is not None
    assert report["small"].passed.value == 1
    assert report["large"].passed is not None
    assert report["large"].passed.value == 0.5
    assert report["large"].errors == 1
    difference = report.compare("large").passed
    # only b is scored in both
    assert difference is not None
    assert (difference.value, difference.cases) == (0, 1)
    assert not report.worse_cases()


def test_a_variant_without_a_scored_run_has_no_figures() -> None:
    rows = [
        row("small", "a"),
        row("large", "a", status="error", cost=None, error="refused"),
    ]
    gates = Gates(pass_rate=0.5, pass_rate_drop=0.1, cost_ratio=1, p95_ratio=1)
    report = report_of(rows, cases=["a"], gates=gates)
    large = report["large"]
    assert (large.passed, large.cost, large.p50, large.p95) == (None,) * 4
    verdicts = {
        gate.verdict for gate in report.gates if gate.variant == "large"
    }
    assert verdicts == {"undecided"}
    assert report.exit_code() == 4


def test_replayed_runs_have_no_times() -> None:
    rows = [
        row("small", "a", seconds=2.0),
        row("large", "a", seconds=0.01, is_timed=False, replayed_calls=1),
    ]
    gates = Gates(p95_ratio=1.0)
    report = report_of(rows, cases=["a"], gates=gates)
    assert report["large"].p95 is None
    assert report.compare("large").p95 is None
    assert [gate.verdict for gate in report.gates] == ["undecided"]


@pytest.mark.parametrize(
    ("count", "verdict"), [(19, "undecided"), (20, "fails")]
)
def test_few_live_runs_decide_nothing_about_times(
    count: int, verdict: str
) -> None:
    cases = CASES[:count]
    rows = [row("small", case, seconds=1.0) for case in cases]
    rows += [row("large", case, seconds=9.0) for case in cases]
    report = report_of(rows, cases=cases, gates=Gates(p95_ratio=1.5))
    assert [gate.verdict for gate in report.gates] == [verdict]


# --- Costs


def test_one_unknown_price_makes_a_cost_unknown_everywhere() -> None:
    rows = [row("small", case, cost=0.001) for case in CASES]
    rows += [row("large", case, cost=0.1) for case in CASES[1:]]
    rows.append(row("large", CASES[0], cost=None))
    report = report_of(rows, cases=CASES, gates=Gates(cost_ratio=1.2))
    assert report["large"].cost is None
    assert report.compare("large").cost is None
    (gate,) = report.gates
    assert gate.verdict == "undecided"
    assert report.exit_code() == 0
    assert report.exit_code(strict=True) == 1
    data = report.to_dict()
    assert data["variants"]["large"]["cost"] is None
    assert data["comparisons"]["large"]["cost"] is None


def test_a_dear_variant_fails_the_gate_of_costs() -> None:
    rows = [row("small", case, cost=0.001) for case in CASES]
    rows += [row("large", case, cost=0.002) for case in CASES]
    report = report_of(rows, cases=CASES, gates=Gates(cost_ratio=1.2))
    assert [gate.verdict for gate in report.gates] == ["fails"]
    assert report.exit_code() == 1


def test_payments_and_calls_are_summed_exactly() -> None:
    paid = [0.1, 0.2, 0.3, 0.0000000001]
    rows = [
        row("small", str(number), paid=each, paid_judges=each / 2)
        for number, each in enumerate(paid)
    ]
    rows[0] = replace(rows[0], replayed_calls=2, oldest_answer=50.0)
    report = report_of(rows, cases=["0", "1", "2", "3"], variants=["small"])
    assert report.paid == 0.6000000001
    assert report.paid_judges == 0.30000000005
    assert (report.live_calls, report.replayed_calls) == (4, 2)
    assert report.oldest_answer == 50


# --- Gates and exit codes


def test_gates_that_hold_end_with_0() -> None:
    cases = [f"case {number}" for number in range(100)]
    gates = Gates(0.9, 0.1, 1.2, 1.5)
    report = report_of(rows_of(cases, BOTH), cases=cases, gates=gates)
    assert {gate.verdict for gate in report.gates} == {"holds"}
    assert len(report.gates) == 5
    assert report.exit_code(strict=True) == 0
    report.assert_gates(strict=True)


def test_a_gate_that_fails_ends_with_1(worse: Report) -> None:
    verdicts = {(gate.name, gate.variant): gate.verdict for gate in worse.gates}
    assert verdicts["pass_rate", "large"] == "fails"
    assert verdicts["pass_rate_drop", "large"] == "fails"
    assert ("pass_rate_drop", "small") not in verdicts
    assert worse.exit_code() == 1
    with pytest.raises(AssertionError, match="pass_rate_drop"):
        worse.assert_gates()


def test_an_undecided_gate_says_how_many_cases_would_decide() -> None:
    rows = rows_of(CASES, ["small"], 1, lambda v, c, r: not c.endswith("3"))
    gates = Gates(pass_rate=0.95)
    report = report_of(rows, cases=CASES, variants=["small"], gates=gates)
    (gate,) = report.gates
    assert gate.verdict == "undecided"
    assert "more cases" in gate.sentence
    assert report.exit_code() == 0
    assert report.exit_code(strict=True) == 1
    with pytest.raises(AssertionError):
        report.assert_gates(strict=True)


@pytest.mark.parametrize("variant", BOTH)
def test_one_failed_run_of_a_case_that_must_pass_fails_the_evaluation(
    variant: str,
) -> None:
    rows = rows_of(
        CASES, BOTH, 3, lambda v, c, r: (v, c, r) != (variant, CASES[5], 1)
    )
    report = report_of(rows, cases=CASES, repeat=3, must=[CASES[5]])
    (sentence,) = report.failed_must()
    assert CASES[5] in sentence
    assert "no apology" in sentence
    assert report.exit_code() == 1


@pytest.mark.parametrize("status", ["error", "budget"])
def test_runs_that_were_not_made_are_incomplete(status: str) -> None:
    rows = rows_of(CASES, BOTH)
    rows[0] = replace(rows[0], status=status, error="")
    report = report_of(rows, cases=CASES)
    assert report.incomplete == [f"1 runs: {status}"]
    assert report.exit_code() == 4
    with pytest.raises(AssertionError, match=status):
        report.assert_gates()


def test_rows_that_are_missing_are_incomplete() -> None:
    report = report_of(rows_of(CASES, BOTH, 2)[:-3], cases=CASES, repeat=2)
    (reason,) = report.incomplete
    assert reason.startswith("3 ")
    assert report.exit_code() == 4


def test_a_failed_gate_counts_before_incomplete(worse: Report) -> None:
    report = replace(worse, rows=worse.rows[:-1])
    assert report.incomplete
    assert report.exit_code() == 1


# --- Files


def test_a_report_is_the_same_after_it_was_saved(
    worse: Report, tmp_path: Path
) -> None:
    file, again = tmp_path / "report.json", tmp_path / "again.json"
    worse.save(file)
    loaded = Report.load(file)
    loaded.save(again)
    assert again.read_bytes() == file.read_bytes()
    assert loaded.gates == worse.gates
    assert loaded["large"] == worse["large"]
    assert json.loads(file.read_bytes())["format"] == "podwright.evaluation/1"


def test_the_same_rows_in_another_order_are_the_same_report(
    worse: Report,
) -> None:
    rows = list(worse.rows)
    random.Random(1).shuffle(rows)
    later = MADE_AT + timedelta(days=3)
    gates = worse.gate_values
    report = report_of(rows, cases=CASES, repeat=3, gates=gates, made_at=later)
    data, expected = report.to_dict(), worse.to_dict()
    assert data.pop("made_at") != expected.pop("made_at")
    assert json.dumps(data) == json.dumps(expected)


def test_a_name_with_half_a_character_is_saved(tmp_path: Path) -> None:
    name = "half \ud83d"
    report = report_of(rows_of([name], BOTH), cases=[name])
    report.save(tmp_path / "report.json")
    assert Report.load(tmp_path / "report.json").cases == [name]


def test_keys_of_later_versions_are_left_out(worse: Report) -> None:
    data = json.loads(json.dumps(worse.to_dict()))
    data["rows"][0]["mood"] = "calm"
    data["rows"][0]["checks"][0]["mood"] = "calm"
    assert Report.from_dict(data)["large"] == worse["large"]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        b'{"format": "podwright.evaluation/2"}',
        b'{"format": "podwright.evaluation/1"}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
    ids=["empty", "list", "no format", "newer", "damaged", "no text", "deep"],
)
def test_a_file_that_is_no_report_is_refused(
    text: bytes, tmp_path: Path
) -> None:
    file = tmp_path / "report.json"
    file.write_bytes(text)
    with pytest.raises(ConfigurationError):
        Report.load(file)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nothing\.json"):
        Report.load(tmp_path / "nothing.json")


def test_a_report_without_its_baseline_is_refused(worse: Report) -> None:
    data = {**worse.to_dict(), "baseline": "tiny"}
    with pytest.raises(ConfigurationError, match="tiny"):
        Report.from_dict(data)


# --- Another report as the baseline


def test_another_report_is_the_baseline(worse: Report) -> None:
    alone = ["large"]
    rows = rows_of(CASES, alone, 1, large_is_worse)
    gates = Gates(pass_rate_drop=0.05)
    now = report_of(rows, cases=CASES, variants=alone, gates=gates)
    report = now.with_baseline(worse)
    assert report.baseline.startswith("small")
    assert report[report.baseline].digest == "digest of small"
    found = report.compare("large").passed
    assert found is not None
    assert found.verdict == "worse"
    assert report.exit_code() == 1
    assert report.paid == now.paid
    assert report.live_calls == now.live_calls
    assert not report.incomplete


def test_errors_of_the_other_report_do_not_make_this_one_incomplete() -> None:
    alone = ["small"]
    rows = rows_of(CASES, alone)
    broken = replace(
        rows[0],
        status="error",
        error="refused",
        oldest_answer=5.0,
        checks=[],
    )
    other = report_of([broken, *rows[1:]], cases=CASES, variants=alone)
    report = report_of(rows, cases=CASES, variants=alone).with_baseline(other)
    assert other.exit_code() == 4
    assert report.exit_code() == 0
    assert report.oldest_answer is None


def test_cases_that_one_report_lacks_are_not_compared() -> None:
    alone = ["small"]
    old = report_of(
        rows_of(["a", "gone"], alone), cases=["a", "gone"], variants=alone
    )
    new = report_of(
        rows_of(["a", "new"], alone, 2),
        cases=["a", "new"],
        variants=alone,
        repeat=2,
    )
    found = new.with_baseline(old).compare("small").passed
    assert found is not None
    assert found.cases == 1
    none = new.with_baseline(
        report_of(rows_of(["x"], alone), cases=["x"], variants=alone)
    )
    assert none.compare("small").passed is None


def test_two_baselines_of_one_day_have_two_names(worse: Report) -> None:
    report = worse.with_baseline(worse).with_baseline(worse)
    assert len(report.digests) == 4
    assert len(report.from_elsewhere) == 2
    assert report.paid == worse.paid
    loaded = Report.from_dict(json.loads(json.dumps(report.to_dict())))
    assert loaded.to_dict() == report.to_dict()


def test_a_blessed_report_has_one_variant_and_no_answers(
    worse: Report,
) -> None:
    blessed = worse.blessed("large")
    assert [*blessed.digests] == ["large"]
    assert blessed["large"] == worse["large"]
    assert not any(row.output or row.trace for row in blessed.rows)
    with pytest.raises(ConfigurationError):
        report_of(
            [row("small", "a", status="error")], cases=["a"], variants=["small"]
        ).blessed()


# --- Size


def test_large_reports_read_each_row_a_few_times_only() -> None:
    """The work grows with the rows, not with rows times cases."""

    class CountingName(str):
        reads = 0

        def __hash__(self) -> int:
            CountingName.reads += 1
            return super().__hash__()

        __eq__ = str.__eq__

    cases = [CountingName(f"case {number}") for number in range(1250)]
    rows = rows_of(cases, BOTH, 4)
    other = report_of(rows, cases=cases, repeat=4)
    report = report_of(rows, cases=cases, repeat=4)
    CountingName.reads = 0
    report = report.with_baseline(other)
    data = report.to_dict()
    report.worse_cases()
    report.flaky_cases()
    assert len(data["rows"]) == 15_000
    assert CountingName.reads < 10 * len(data["rows"])
