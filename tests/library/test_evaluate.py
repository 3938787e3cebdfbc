"""`evaluate`: what it asks and pays, what it keeps, what it does not score, and what judges say."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests import evaluated_components
from tests.evaluated_components import JUDGE, LARGE, SMALL, desk, writer
from tests.evaluation_models import Provider, desk_answer, provider
from tests.helpers import NEWSROOM, ROOT, environment, write_files
from tests.library.mcp_server import ServerDouble, definition, lock_of

from podwright.errors import ConfigurationError, ModelRateLimitError
from podwright.evaluation import (
    Report,
    Row,
    Suite,
    Variant,
    aevaluate,
    evaluate,
)
from podwright.evaluation.reports.junit import to_junit
from podwright.evaluation.reports.markdown import to_markdown
from podwright.mcp.lock import LOCK_FILE
from podwright.messages.messages import ModelRequest, ToolCall
from podwright.testing import EchoModel, use_model

Json = dict[str, Any]
READ = definition("read_file")
LARGE_ONLY = "large"
TWO: Json = {
    "matrix": {"*.model": {"small": "fake/small", "large": "fake/large"}},
    "baseline": {"*.model": "small"},
}
"""Keys of a suite with two models, and with the prompts as they are."""
TIMES = {
    *("made_at", "seconds", "p50", "p95", "is_timed", "timed_runs"),
    "oldest_answer",
}


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
    with provider(desk_answer, fresh=False) as fake:
        report = evaluate(suite, repeat=2)
    assert len(report.rows) == 24
    assert all(row.is_scored for row in report.rows)
    assert round(report.paid, 12) == round(fake.paid, 12)
    assert report.live_calls == len(fake.log)
    assert report.replayed_calls > 0
    assert 0 < report.paid_judges < report.paid
    ratio = report.compare(LARGE).cost
    assert ratio is not None
    assert ratio.value > 5


def test_known_runs_are_not_made_again(tmp_path: Path) -> None:
    folder = desk(tmp_path)
    with provider(desk_answer, fresh=False) as fake:
        first = evaluate(Suite.load(folder))
        fake.log.clear()
        second = evaluate(Suite.load(folder))
        assert fake.log == []
    assert without_times(second.to_dict()) == without_times(first.to_dict())


def test_an_edited_prompt_asks_no_earlier_step(tmp_path: Path) -> None:
    folder = desk(tmp_path)
    with provider(desk_answer, fresh=False) as fake:
        first = evaluate(Suite.load(folder))
        fake.log.clear()
        (folder / "evals/prompts/short.md").write_text("Two lines at most.")
        second = evaluate(Suite.load(folder))
    assert fake.calls_of("intake") == 0
    assert fake.calls_of("writer") > 0
    keys = {row.key for row in first.rows}
    known = {row.variant for row in second.rows if row.key in keys}
    assert known == {SMALL, LARGE}


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
        expected = evaluate(Suite.load(desk(whole, **TWO)), concurrency=1)
    folder = desk(killed, **TWO)
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
    with provider(desk_answer, fresh=False):
        report = evaluate(
            Suite.load(desk(tmp_path)), variants=[SMALL], budget=0.0004
        )
    assert report.exit_code() == 4
    left_out = rows_of(report, status="budget")
    assert left_out
    for row in left_out:
        assert (row.checks, row.passed) == ([], False)
    assert [row for row in report.rows if row.is_scored] == []


# --- Failures of providers


def refusing(*names: str) -> Callable[..., Any]:
    """Answers of the desk's models, but the calls of these components are refused with a 429."""

    def answer(request: ModelRequest, size: str, chance: Random) -> Any:
        if request.component in names:
            error = ModelRateLimitError("429: too many requests")
            error.transient = False
            raise error
        return desk_answer(request, size, chance)

    return answer


@pytest.mark.parametrize("name", ["intake", "critic", "kind"])
def test_a_refused_call_is_not_the_components_fault(
    tmp_path: Path, name: str
) -> None:
    """At the first step, behind the standard letter of the desk, and of a judge."""
    folder = desk(tmp_path, **TWO, gates=None)
    with provider(refusing(name), fresh=False) as fake:
        report = evaluate(Suite.load(folder))
        assert fake.calls_of(name) >= 3 * len(rows_of(report, status="error"))
        refused = report.rows
        if name == "kind":
            refused = rows_of(report, case="broken cup")
        for row in refused:
            assert (row.status, row.checks) == ("error", [])
            assert row.error_code == "model_rate_limited"
        assert len(rows_of(report, status="error")) == len(refused)
        assert report.exit_code() == 4
        assert report[LARGE_ONLY].errors > 0
        if name != "kind":
            assert report[LARGE_ONLY].passed is None
        fake.answer = desk_answer
        again = evaluate(Suite.load(folder))
    assert again.incomplete == []
    assert again.exit_code() == 0


def test_a_fallback_model_is_not_scored(tmp_path: Path) -> None:
    """It says nothing about the model of the variant."""

    def answer(request: ModelRequest, size: str, chance: Random) -> str:
        if size == "small":
            return refusing("writer")(request, size, chance)
        return "Dear customer"

    folder = writer(tmp_path, fallback=["fake/large"], fallback_wait=0)
    with provider(answer):
        report = evaluate(Suite.load(folder))
    assert [row.status for row in report.rows] == ["error"]
    assert report.exit_code() == 4


def test_refusals_at_random(tmp_path: Path) -> None:
    """None of them lowers a rate: with enough tries all runs are scored, and those that are not are not failures."""
    suite = {
        "cases": [
            {"name": f"case {n}", "inputs": f"Hello {n}"} for n in range(40)
        ]
    }
    with provider(said("Hi"), refused=0.3) as fake:
        report = evaluate(Suite.load(writer(tmp_path, suite)))
        errors = rows_of(report, status="error")
        assert len(fake.log) > 40
        assert all(row.passed for row in report.rows if row.is_scored)
        assert report.exit_code() == (4 if errors else 0)
        fake.refused = 0.0
        report = evaluate(Suite.load(tmp_path / "writer"))
        assert report["as it is"].runs == 40


# --- Prices


def test_an_unknown_price_is_unknown_everywhere(tmp_path: Path) -> None:
    suite = {
        "variants": {"priced": {}, "other": {"*.model": "fake/nobody"}},
        "baseline": "priced",
        "gates": {"against_baseline": {"cost_ratio": 1.2}},
    }
    with provider(said("Hi")):
        report = evaluate(Suite.load(writer(tmp_path, suite)), budget=0.01)
    assert report["priced"].cost is not None
    assert report["other"].cost is None
    assert report.compare("other").cost is None
    assert [gate.verdict for gate in report.gates] == ["undecided"]
    data = json.loads(json.dumps(report.to_dict()))
    assert data["variants"]["other"]["cost"] is None
    assert data["unpriced_calls"] == 1
    assert (report.exit_code(), report.exit_code(strict=True)) == (0, 1)
    costs = re.findall(r'name="cost" value="([^"]*)"', to_junit(report))
    assert costs[1:] == ["unknown"]
    table, _, rest = to_markdown(report).partition("\n\n**")
    assert "unknown" in table.splitlines()[-1]
    assert "unknown amount for 1 calls" in rest


# --- Effects


@pytest.mark.parametrize(
    "fakes", [{"send_letter": {"letter": "not sent"}}, None]
)
def test_no_letter_is_sent(
    tmp_path: Path, database: Path, fakes: Json | None
) -> None:
    """With a fake, also once a person approves; without one, because nobody does."""
    changes: Json = {"fakes": fakes, **TWO}
    if fakes is None:
        cases = evaluated_components.DESK_SUITE["cases"]
        changes["cases"] = [case for case in cases if "decisions" not in case]
    with provider(desk_answer, fresh=False):
        report = evaluate(Suite.load(desk(tmp_path, **changes)))
    wanted = {"ok", "paused"} if fakes else {"paused"}
    assert {row.status for row in report.rows} == wanted
    assert database.exists()
    assert evaluated_components.letters(database) == 0


def test_letters_are_sent_by_those_who_want_it(
    tmp_path: Path, database: Path
) -> None:
    """The two tests before it can fail."""
    with provider(desk_answer, fresh=False):
        evaluate(Suite.load(desk(tmp_path, fakes=None, **TWO)))
    assert evaluated_components.letters(database) == 2


# --- Judges


def judged(check: Json) -> tuple[Json, Json]:
    """Keys of the suite, and files, of an agent with a judge: two variants, and a case that the judge is asked of."""
    blueprint = JUDGE | {
        "instructions": "Judge.",
        "inputs": {
            "output": {"type": "string"},
            "other": {"type": "string", "default": ""},
        },
    }
    suite: Json = {
        "variants": {
            "short": {},
            "long": {"writer.instructions": "Write more."},
        },
        "baseline": "short",
        "cases": [{"name": "one", "inputs": "Hello", "checks": [check]}],
    }
    return suite, {"evals/judges/kind.json": blueprint}


def judge_answer(good: Callable[[Json], bool]) -> Callable[..., Any]:
    """Answers of a writer, which is longer if it is told to write more, and of a judge by its inputs."""

    def answer(request: ModelRequest, size: str, chance: Random) -> Any:
        if size == "judge":
            _, output, other = re.split(
                r"## output\n|\n\n## other\n", request.messages[-1].text
            )
            inputs = {"output": output, "other": other}
            return {"good": good(inputs), "advice": "because"}
        return "long " * 30 if "more" in request.messages[0].text else "short"

    return answer


def test_a_judge_who_prefers_the_first(tmp_path: Path) -> None:
    """In both orders: so it prefers nothing."""
    suite, files = judged({"prefer": "kind"})
    suite["repeat"] = 3
    with provider(judge_answer(lambda inputs: True)) as fake:
        report = evaluate(Suite.load(writer(tmp_path, suite, files)))
    for row in rows_of(report, variant="long"):
        assert [(each.is_tie, each.passed) for each in row.checks] == [
            (True, True)
        ]
    assert all(row.checks == [] for row in rows_of(report, variant="short"))
    assert fake.calls_of("kind") == 6


@pytest.mark.parametrize("longer_is_better", [True, False])
def test_a_judge_with_a_preference(
    tmp_path: Path, longer_is_better: bool
) -> None:
    def good(inputs: Json) -> bool:
        is_longer = len(inputs["output"]) > len(inputs["other"])
        return is_longer == longer_is_better

    suite, files = judged({"prefer": "kind"})
    with provider(judge_answer(good)):
        report = evaluate(Suite.load(writer(tmp_path, suite, files)))
    verdicts = [row.checks for row in rows_of(report, variant="long")]
    assert [
        (each.passed, each.is_tie, each.judge, each.reason)
        for each in verdicts[0]
    ] == [(longer_is_better, False, "kind", "because")]


def test_a_comparison_is_made_again_with_another_baseline(
    tmp_path: Path,
) -> None:
    """The other answers are known, but not what they are compared with."""
    suite, files = judged({"prefer": "kind"})
    with provider(judge_answer(lambda inputs: True)) as fake:
        evaluate(Suite.load(writer(tmp_path, suite, files)))
        suite["variants"]["short"] = {"writer.instructions": "Write!"}
        fake.log.clear()
        evaluate(Suite.load(writer(tmp_path, suite, files)))
    assert fake.calls_of("writer") == 1
    assert fake.log[-1][0] == "writer"


def test_the_majority_of_a_judge(tmp_path: Path) -> None:
    """Each sample is another answer; two of three decide, and its reasons are those of the majority."""
    said = [True, False, False]
    suite, files = judged({"judge": "kind", "samples": 3})
    suite["variants"] = {"short": {}}
    del suite["baseline"]
    with provider(judge_answer(lambda inputs: said.pop())) as fake:
        report = evaluate(
            Suite.load(writer(tmp_path, suite, files)), concurrency=1
        )
    assert fake.calls_of("kind") == 3
    assert [each.passed for each in report.rows[0].checks] == [False]
    assert report.paid_judges > 0


def test_a_judge_of_what_a_run_has_not_come_to(tmp_path: Path) -> None:
    """Its check fails, with the reason, and the judge is not asked."""
    check = {"judge": "kind", "input": {"about": "{receipt.letter}"}}
    with provider(desk_answer, fresh=False) as fake:
        report = evaluate(
            Suite.load(
                desk(
                    tmp_path,
                    **TWO,
                    checks=[check],
                    cases=[evaluated_components.DESK_SUITE["cases"][1]],
                )
            )
        )
    assert {row.status for row in report.rows} == {"paused"}
    assert all("receipt" in row.reasons()[0] for row in report.rows)
    assert fake.calls_of("kind") == 0


# --- What goes wrong


def test_a_fixture_that_raises(tmp_path: Path) -> None:
    """Its case is not scored, and the others are."""
    fixtures = """
def around_run(case):
    if case.name == "bad":
        raise OSError("no table")
"""
    suite = {
        "cases": [
            {"name": "good", "inputs": "Hello"},
            {"name": "bad", "inputs": "Hello"},
        ]
    }
    files = {"evals/fixtures.py": fixtures}
    with provider(said("Hi")):
        report = evaluate(Suite.load(writer(tmp_path, suite, files)))
    assert [row.status for row in report.rows] == ["ok", "error"]
    assert "OSError: no table" in report.rows[1].error
    assert report.exit_code() == 4


def test_a_fixture_surrounds_each_run(tmp_path: Path) -> None:
    fixtures = """
import contextlib, pathlib
@contextlib.asynccontextmanager
async def around_run(case):
    file = pathlib.Path(__file__).with_name("log")
    with file.open("a") as log:
        log.write("in ")
        yield
        log.write("out ")
"""
    folder = writer(tmp_path, {"repeat": 2}, {"evals/fixtures.py": fixtures})
    with provider(said("Hi")):
        evaluate(Suite.load(folder), concurrency=1)
    assert (folder / "evals/log").read_text() == "in out in out "


def test_a_check_that_raises(tmp_path: Path) -> None:
    """It fails with its reason: what it would have said is not known."""
    suite = {"checks": [{"name": "is_fine", "args": {"value": "{output}"}}]}
    files = {
        "evals/checks.py": "def is_fine(context, value):\n    return value[99]\n"
    }
    with provider(said("Hi")):
        report = evaluate(Suite.load(writer(tmp_path, suite, files)))
    assert [row.passed for row in report.rows] == [False]
    assert "IndexError" in report.rows[0].reasons()[0]


def test_a_damaged_line(tmp_path: Path) -> None:
    """A line that the end of a process has cut is left out; another one is an error before anything is asked."""
    folder = writer(tmp_path)
    rows = folder / "evals/.recorded/rows.jsonl"
    with provider(said("Hi")) as fake:
        whole = evaluate(Suite.load(folder))
        text = rows.read_text()
        rows.write_text(text[:-20])
        again = evaluate(Suite.load(folder))
        assert len(fake.log) == 1
        assert without_times(again.to_dict()) == without_times(whole.to_dict())
        rows.write_text(text + '{"made_at": [}\n')
        with pytest.raises(ConfigurationError, match="Line 2 of"):
            evaluate(Suite.load(folder))


def test_a_damaged_answer(tmp_path: Path) -> None:
    """The run that needs it is not scored, also if the desk would go on without it."""
    folder = desk(tmp_path, **TWO)
    recorded = folder / "evals/.recorded"
    with provider(desk_answer, fresh=False) as fake:
        evaluate(Suite.load(folder))
        (recorded / "rows.jsonl").unlink()
        for answer in (recorded / "answers").glob("*.json"):
            data = json.loads(answer.read_text())
            if "advice" in data["response"]["text"]:
                answer.write_text("{")
        fake.log.clear()
        report = evaluate(Suite.load(folder))
        assert fake.log == []
    assert {row.status for row in report.rows} == {"error"}
    assert {row.error_code for row in report.rows} == {"trace_invalid"}


def test_a_budget_without_a_rest_for_the_judge(tmp_path: Path) -> None:
    """The run is not scored, and later only the judge is asked."""
    suite, files = judged({"judge": "kind"})
    suite["variants"] = {"short": {}}
    del suite["baseline"]
    folder = writer(tmp_path, suite, files, max_tokens=10)
    with provider(judge_answer(lambda inputs: True)) as fake:
        report = evaluate(Suite.load(folder), budget=0.0001)
        assert [row.status for row in report.rows] == ["budget"]
        assert fake.calls_of("kind") == 0
        report = evaluate(Suite.load(folder))
        assert [row.passed for row in report.rows] == [True]
        assert fake.log == [("writer", "fake/small"), ("kind", "fake/judge")]
    assert round(report.paid, 12) == round(fake.paid, 12)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    folder = writer(tmp_path, files={"evals/.recorded": "a file"})
    with provider(said("Hi")) as fake, pytest.raises(ConfigurationError):
        evaluate(Suite.load(folder))
    assert fake.log == []


def test_two_evaluations_at_once(tmp_path: Path) -> None:
    """In one folder: each has its report, and what they keep is whole."""
    suite = {
        "cases": [
            {"name": f"case {n}", "inputs": f"Hello {n}"} for n in range(20)
        ]
    }
    folder = writer(tmp_path, suite)

    async def both() -> tuple[Report, Report]:
        one = aevaluate(Suite.load(folder))
        two = aevaluate(Suite.load(folder))
        return await asyncio.gather(one, two)

    with provider(said("Hi"), fresh=False, seconds=0.01) as fake:
        reports = asyncio.run(both())
        assert [report.exit_code() for report in reports] == [0, 0]
        assert len(fake.log) <= 40
        fake.log.clear()
        evaluate(Suite.load(folder))
        assert fake.log == []


def test_other_models_of_a_test(tmp_path: Path) -> None:
    """`use_model` counts, and what it answers is not taken for the answer of the model that the variant names."""
    folder = writer(tmp_path)
    with provider(said("Hi")) as fake:
        with use_model(EchoModel()):
            echoed = evaluate(Suite.load(folder))
        assert (echoed.rows[0].output, fake.log) == ("Echo: Hello", [])
        report = evaluate(Suite.load(folder))
    assert report.rows[0].output == "Hi"


def test_the_code_of_another_folder(tmp_path: Path) -> None:
    """A change of it makes the runs of its variant again."""
    suite = {
        "variants": {"new": {}, "old": {"blueprint": "../old"}},
        "baseline": "old",
    }
    folder = writer(tmp_path, suite)
    old = write_files(
        tmp_path / "old",
        {
            "blueprint.json": (folder / "blueprint.json").read_text(),
            "agents.py": "A = 1",
        },
    )
    with provider(said("Hi")):
        first = evaluate(Suite.load(folder))
        (old / "agents.py").write_text("A = 2")
        second = evaluate(Suite.load(folder))
    known = {row.variant for row in second.rows} - {
        row.variant
        for row in second.rows
        if row.key not in {each.key for each in first.rows}
    }
    assert known == {"new"}


def test_the_age_of_a_row_is_that_of_its_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = writer(tmp_path)
    with provider(lambda request, size, chance: str(chance.random())) as fake:
        evaluate(Suite.load(folder))
        (answer,) = (folder / "evals/.recorded/answers").glob("*.json")
        data = json.loads(answer.read_text())
        answer.write_text(
            json.dumps({**data, "at": data["at"] - 7200, "payer": ""})
        )
        (folder / "evals/.recorded/rows.jsonl").unlink()
        evaluate(Suite.load(folder))
        assert len(fake.log) == 1
        evaluate(Suite.load(folder), max_age=86400)
        assert len(fake.log) == 1
        evaluate(Suite.load(folder), max_age=3600)
        assert len(fake.log) == 2


def test_cancelling_while_a_judge_is_asked(tmp_path: Path) -> None:
    """The run's answer is kept, and the next start asks the judge alone."""
    suite, files = judged({"judge": "kind"})
    suite["variants"] = {"short": {}}
    del suite["baseline"]
    folder = writer(tmp_path, suite, files)

    async def cancel(fake: Provider) -> None:
        asked = asyncio.Event()

        class Log(list[tuple[str, str]]):
            def append(self, call: tuple[str, str]) -> None:
                super().append(call)
                if call[0] == "kind":
                    fake.seconds = 60
                    asked.set()

        fake.log = Log()
        running = asyncio.create_task(aevaluate(Suite.load(folder)))
        await asked.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    with provider(judge_answer(lambda inputs: True)) as fake:
        asyncio.run(cancel(fake))
        fake.seconds = 0
        assert fake.log == [("writer", "fake/small"), ("kind", "fake/judge")]
        fake.log = []
        report = evaluate(Suite.load(folder))
        assert fake.log == [("kind", "fake/judge")]
    assert (report.exit_code(), report.live_calls) == (0, 2)


def test_huge_outputs(tmp_path: Path) -> None:
    """The row has the beginning; the trace has all of it."""
    folder = writer(tmp_path)
    with provider(said("x" * 3_000_000)):
        report = evaluate(Suite.load(folder), budget=None)
    assert len(report.rows[0].output) <= 500
    trace = folder / "evals/.recorded/runs" / report.rows[0].trace
    assert len(json.loads(trace.read_text())["value"]) == 3_000_000


# --- All kinds of components

REFUND: Json = {
    "name": "refund",
    "schema": {
        "type": "function",
        "function": {
            "name": "refund",
            "description": "Refund.",
            "parameters": {
                "type": "object",
                "properties": {"order": {"type": "integer"}},
                "required": ["order"],
            },
        },
    },
}


def staff(request: ModelRequest, size: str, chance: Random) -> Any:
    """Answers of the newsroom's models: facts, an approval, a plan, and pieces by chance."""
    if request.output is not None:
        return {"steps": [{"skill": "writer", "task": str(chance.random())}]}
    if request.component == "reviewer":
        return "APPROVED" if chance.random() < 0.5 else "Say who."
    tools = {tool["function"]["name"] for tool in request.tools}
    has_asked = any(message.role == "tool" for message in request.messages)
    if not has_asked:
        if "search_archive" in tools:
            return ToolCall.of("search_archive", query="bees")
        if "writer" in tools:
            return ToolCall.of("writer", input="bees")
    return f"{request.component} of {size} {chance.random()}"


@pytest.mark.parametrize("name", ["newsroom", "desk", "press", "researcher"])
def test_components_of_each_kind(tmp_path: Path, name: str) -> None:
    """Workflows with branches and loops, conductors, pipelines and agents: two models, three times, and known again."""
    folder = shutil.copytree(NEWSROOM, tmp_path / "newsroom") / name
    suite = {
        "variants": {
            "small": {"*.model": "fake/small"},
            "large": {"*.model": "fake/large"},
        },
        "baseline": "small",
        "repeat": 3,
        "cases": [{"name": "bees", "inputs": "Bees"}],
    }
    write_files(folder, {"evals/evals.yaml": suite})
    with provider(staff) as fake:
        first = evaluate(Suite.load(folder))
        assert [row.error for row in first.rows if not row.passed] == []
        assert round(first.paid, 12) == round(fake.paid, 12)
        assert first.live_calls == len(fake.log)
        # the last step of the newsroom says whether the piece is approved
        outputs = 1 if name == "newsroom" else 6
        assert len({row.output for row in first.rows}) == outputs
        calls = len(fake.log)
        (folder / "evals/.recorded/rows.jsonl").unlink()
        second = evaluate(Suite.load(folder))
        assert len(fake.log) == calls
    assert without_times(second.to_dict()) == without_times(first.to_dict())


def test_a_conversation_that_is_handed_over(tmp_path: Path) -> None:
    """The agent that answers is another one, whose tools can be faked too."""
    tools = "def refund(order: int) -> str:\n    raise AssertionError\n"
    billing = {
        "name": "billing",
        "instructions": "You refund.",
        "config": {"model": "fake/small"},
        "tools": [REFUND],
    }
    called = {"called": [{"tool": "refund", "arguments": {"order": 7}}]}
    suite = {
        "checks": [called],
        "fakes": {"refund": "done"},
        "cases": [{"name": "one", "inputs": "Refund order 7."}],
    }

    def answer(request: ModelRequest, size: str, chance: Random) -> Any:
        if request.component == "writer":
            name = request.tools[0]["function"]["name"]
            return ToolCall.of(name, input="refund order 7")
        if request.messages[-1].text != "done":
            return ToolCall.of("refund", order=7)
        return "It is done."

    folder = writer(
        tmp_path,
        suite,
        {
            "agents/billing/blueprint.json": billing,
            "agents/billing/tools.py": tools,
        },
    )
    blueprint = json.loads((folder / "blueprint.json").read_text())
    blueprint["handoffs"] = ["billing"]
    write_files(folder, {"blueprint.json": blueprint})
    with provider(answer):
        report = evaluate(Suite.load(folder))
    assert report.rows[0].reasons() == []
    assert report.rows[0].output == "It is done."


def test_a_faked_tool_of_an_mcp_server(tmp_path: Path) -> None:
    """Its server is not needed."""
    server = ServerDouble(READ)
    folder = writer(
        tmp_path,
        {
            "checks": [{"called": ["read_file"]}],
            "fakes": {"read_file": {"text": "of a fake"}},
        },
        {LOCK_FILE: lock_of("files", READ).to_text()},
    )
    blueprint = json.loads((folder / "blueprint.json").read_text())
    blueprint["mcp"] = [{"server": "files", "tools": ["read_file"]}]
    write_files(folder, {"blueprint.json": blueprint})

    def answer(request: ModelRequest, size: str, chance: Random) -> Any:
        if request.messages[-1].role != "tool":
            return ToolCall.of("read_file", path="/a")
        return request.messages[-1].text

    with provider(answer):
        report = evaluate(Suite.load(folder), mcp={"files": server})
    assert report.rows[0].reasons() == []
    assert "of a fake" in report.rows[0].output
    assert server.calls == []


def test_two_variants_that_are_the_same(tmp_path: Path) -> None:
    """What one has paid, the other has not."""
    suite = Suite.load(writer(tmp_path))
    same = Variant("same", blueprint=suite.component / "blueprint.json")
    suite = replace(suite, variants={**suite.variants, "same": same})
    with provider(said("Hi")) as fake:
        report = evaluate(suite)
    assert len(fake.log) == 1
    assert round(report.paid, 12) == round(fake.paid, 12)
    assert (report.live_calls, report.replayed_calls) == (1, 1)
