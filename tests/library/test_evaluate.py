"""`evaluate`: what it asks and pays, what it keeps, what it does not score, and what judges say."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests import evaluated_components
from tests.evaluated_components import JUDGE, LARGE, SHORT, SMALL, desk, writer
from tests.evaluation_models import Provider, desk_answer, provider
from tests.helpers import ROOT, environment

from podwright.errors import ConfigurationError
from podwright.evaluation import Report, Row, Suite, evaluate
from podwright.evaluation.reports.junit import to_junit
from podwright.evaluation.reports.markdown import to_markdown
from podwright.messages.messages import ModelRequest

Json = dict[str, Any]
TIMES = {"made_at", "seconds", "p50", "p95", "is_timed", "oldest_answer"}


@pytest.fixture(autouse=True)
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The database of the desk."""
    file = tmp_path / "desk.db"
    monkeypatch.setenv("DESK_DATABASE", str(file))
    return file


def rows_of(report: Report, **like: Any) -> list[Row]:
    """The rows of a report that have these attributes."""
    return [
        row
        for row in report.rows
        if all(getattr(row, name) == value for name, value in like.items())
    ]


def without_times(data: Any) -> Any:
    """JSON data without what differs between two evaluations that find the same."""
    if isinstance(data, dict):
        return {
            key: without_times(value)
            for key, value in data.items()
            if key not in TIMES
        }
    if isinstance(data, list):
        return [without_times(entry) for entry in data]
    return data


def said(*texts: str) -> Callable[..., str]:
    """Answers that the provider gives in this order, and the last one for ever."""
    left = list(texts)

    def answer(request: ModelRequest, size: str, chance: Random) -> str:
        return left.pop(0) if len(left) > 1 else left[0]

    return answer


# --- What is paid


def test_paid_is_what_the_provider_counts(tmp_path: Path) -> None:
    """To the digit, with variants that share answers, and with the judge's part."""
    suite = Suite.load(desk(tmp_path))
    with provider(desk_answer) as fake:
        report = evaluate(suite, repeat=2)
    assert len(report.rows) == 24
    assert all(row.is_scored for row in report.rows)
    assert round(report.paid, 12) == round(fake.paid, 12)
    assert report.live_calls == len(fake.log)
    assert report.replayed_calls > 0
    assert 0 < report.paid_judges < report.paid
    assert report[LARGE].cost is not None
    assert report[SMALL].cost is not None
    assert report[LARGE].cost > 5 * report[SMALL].cost
    assert report.compare(LARGE).cost is not None


def test_known_runs_are_not_made_again(tmp_path: Path) -> None:
    folder = desk(tmp_path)
    with provider(desk_answer) as fake:
        first = evaluate(Suite.load(folder))
        fake.log.clear()
        second = evaluate(Suite.load(folder))
        assert fake.log == []
    assert without_times(second.to_dict()) == without_times(first.to_dict())


def test_an_edited_prompt_asks_no_earlier_step(tmp_path: Path) -> None:
    folder = desk(tmp_path)
    with provider(desk_answer) as fake:
        evaluate(Suite.load(folder), repeat=2)
        fake.log.clear()
        (folder / "evals/prompts/short.md").write_text("Two lines at most.")
        report = evaluate(Suite.load(folder), repeat=2)
    assert fake.calls_of("intake") == 0
    assert fake.calls_of("writer") > 0
    for row in report.rows:
        # those of the other variants are known
        assert (row.variant.endswith("short")) or row.key in _keys(first := report)
    assert first is report


def _keys(report: Report) -> set[str]:
    return {row.key for row in report.rows}


def test_repetitions_differ_and_are_kept(tmp_path: Path) -> None:
    """Three answers of a random model; the same three at the second start, also if all runs are made again."""
    folder = writer(tmp_path)
    with provider(lambda request, size, chance: str(chance.random())) as fake:
        first = evaluate(Suite.load(folder), repeat=3)
        outputs = [row.output for row in first.rows]
        assert len({*outputs}) == 3
        (folder / "evals/.recorded/rows.jsonl").unlink()
        second = evaluate(Suite.load(folder), repeat=3)
        assert [row.output for row in second.rows] == outputs
        fresh = evaluate(Suite.load(folder), repeat=3, fresh=True)
        assert not {row.output for row in fresh.rows} & {*outputs}
    assert len(fake.log) == 6


# --- Interruptions

KILLED = """
import asyncio, os, signal, sys
from tests.evaluation_models import FakeModel, desk_answer, provider
from podwright.evaluation import Suite, evaluate

folder, log, every, report = sys.argv[1:]
asked = 0
complete = FakeModel.complete

async def counted(self, request, on_token=None):
    global asked
    asked += 1
    with open(log, "a") as file:
        file.write(request.component + chr(10))
    response = await complete(self, request, on_token)
    if asked == int(every):
        os.kill(os.getpid(), signal.SIGKILL)
    return response

FakeModel.complete = counted
with provider(desk_answer, fresh=False):
    evaluate(Suite.load(folder), concurrency=1).save(report)
"""


def test_killed_at_each_tenth_answer(tmp_path: Path) -> None:
    """Each start asks only what is missing, and the last report is that of an evaluation without an end."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    with provider(desk_answer, fresh=False) as fake:
        expected = evaluate(Suite.load(desk(whole)), concurrency=1)
    folder = desk(killed)
    log, report = killed / "log", killed / "report.json"
    starts = 0
    while not report.exists():
        starts += 1
        done = subprocess.run(
            [sys.executable, "-c", KILLED, folder, log, "10", report],
            cwd=ROOT,
            env=environment(DESK_DATABASE=str(killed / "desk.db")),
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
    assert starts > 3
    asked = log.read_text().split()
    assert len(asked) == len(fake.log) + starts - 1
    found = json.loads(report.read_text())
    wanted = json.loads(json.dumps(expected.to_dict()))
    assert without_times(found) == without_times(wanted)


# --- The budget


def test_no_budget_is_exceeded(tmp_path: Path) -> None:
    """With 8 runs at once and 50 budgets; no answer is cut, and a later start with more goes on."""
    cases = [{"name": f"case {n}", "inputs": f"Hello {n}"} for n in range(6)]
    suite = {"cases": cases, "repeat": 2}

    def answer(request: ModelRequest, size: str, chance: Random) -> str:
        assert "max_tokens" not in request.settings
        return "word " * chance.randint(50, 150)

    with provider(answer, fresh=False) as fake:
        whole = evaluate(Suite.load(writer(tmp_path / "whole", suite)))
        everything = fake.paid
        for number in range(50):
            budget = everything * number / 40
            fake.paid = 0.0
            folder = writer(tmp_path / str(number), suite)
            report = evaluate(Suite.load(folder), budget=budget)
            assert fake.paid <= budget
            assert round(report.paid, 12) == round(fake.paid, 12)
            left_out = rows_of(report, status="budget")
            assert report.exit_code() == (4 if left_out else 0)
            assert left_out or number > 39
            assert all(row.passed for row in report.rows if row.is_scored)
        fake.log.clear()
        folder = tmp_path / "20" / "writer"
        report = evaluate(Suite.load(folder))
        assert report.exit_code() == 0
        assert 0 < len(fake.log) < len(whole.rows)
        assert round(report.paid, 12) == round(whole.paid, 12)


def test_a_budget_hidden_by_the_component(tmp_path: Path) -> None:
    """The desk would go on with its standard letter: that says nothing about it."""
    with provider(desk_answer):
        report = evaluate(Suite.load(desk(tmp_path)), budget=0.0004)
    assert report.exit_code() == 4
    assert {row.status for row in report.rows} == {"ok", "paused", "budget"} - (
        set() if rows_of(report, status="ok") else {"ok"}
    )
    for row in rows_of(report, status="budget"):
        assert (row.checks, row.passed) == ([], False)


# --- Failures of providers


def refuse(fake: Provider, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let the provider refuse the calls of these components with a 429."""
    answer = fake.answer

    def refusing(request: ModelRequest, size: str, chance: Random) -> Any:
        if request.component in names:
            from podwright.errors import ModelRateLimitError

            error = ModelRateLimitError("429: too many requests")
            error.transient = False
            raise error
        return answer(request, size, chance)

    fake.answer = refusing
