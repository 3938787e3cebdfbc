"""`podwright eval`: its exit codes, its options, what it writes, and components that are served."""

from __future__ import annotations

import asyncio
import re
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.evaluated_components import desk, letters, writer
from tests.evaluation_models import desk_answer
from tests.service.support import Command, Shell

from podwright.client import AsyncClient
from podwright.evaluation import Evaluation, Report, Row, Suite, evaluate
from podwright.models.retries import Retries
from podwright.testing import ModelRequest
from podwright_service.testing import (
    ComponentContainer,
    ComponentProcess,
    ModelStub,
)
from podwright_service.testing.script import Fault
from podwright_service.testing.served import Served

Json = dict[str, Any]
MODEL = "openai/gpt-4o-mini"


def suite_of(*names: str, **keys: Any) -> Json:
    """A suite with cases of these names; the answer has to be that of the case."""
    check = {"name": "contains", "args": {"value": "{output}", "text": "good"}}
    cases = [{"name": name, "inputs": f"Say {name}."} for name in names]
    return {"cases": cases, "checks": [check], **keys}


VARIANTS: Json = {
    "variants": {"plain": {}, "bad": {"writer.instructions": "Be bad."}},
    "baseline": "plain",
}


def answer(request: ModelRequest) -> str:
    """A good answer, unless the instructions say otherwise."""
    return "bad" if "bad" in request.messages[0].text else "good"


@pytest.fixture
def stub() -> Iterator[ModelStub]:
    """The provider of `gpt-4o-mini`."""
    with ModelStub(answer) as stub:
        yield stub


Run = Callable[..., Any]


@pytest.fixture
def run(shell: Shell, stub: ModelStub) -> Run:
    """Runs `podwright eval` with the stub as its provider."""

    def call(*arguments: str, **variables: str) -> Any:
        return shell(
            "eval", *arguments, **{**stub.variables(stub.url), **variables}
        )

    return call


# --- Exit codes


def test_all_gates_hold(run: Run, stub: ModelStub, tmp_path: Path) -> None:
    """A table on standard output, all else on standard error, and three files."""
    folder = writer(tmp_path, suite_of("one", "two", repeat=2), model=MODEL)
    files = ("--json", "r.json", "--junit", "r.xml", "--markdown", "r.md")
    done = run("writer", *files)
    assert done.returncode == 0, done.stderr
    header, row, *rest = done.stdout.splitlines()
    assert header.split()[:2] == ["variant", "passed"]
    assert row.split()[:3] == ["as", "it", "is"]
    assert "100%" in row
    assert any("4 model calls live, 0 replayed" in line for line in rest)
    assert "= 4 runs, of which 0 are known" in done.stderr
    report = Report.load(tmp_path / "r.json")
    assert (report.exit_code(), len(report.rows)) == (0, 4)
    assert report.paid > 0
    assert 'tests="2"' in (tmp_path / "r.xml").read_text()
    assert "### Evaluation of writer" in (tmp_path / "r.md").read_text()
    assert (folder / "evals/.recorded").stat().st_mode & 0o077 == 0
    again = run("writer", "--json", "again.json")
    assert len(stub.received) == 4
    assert "of which 4 are known" in again.stderr
    assert Report.load(tmp_path / "again.json").rows == report.rows


def test_a_gate_fails(run: Run, tmp_path: Path) -> None:
    gates = {"pass_rate": {"at_least": 0.99}}
    suite = suite_of(*map(str, range(12)), gates=gates, **VARIANTS)
    writer(tmp_path, suite, model=MODEL)
    done = run("writer")
    assert done.returncode == 1
    assert "pass_rate >= 99% of bad: fails" in done.stdout
    assert "worse than before" in done.stdout


def test_an_undecided_gate(run: Run, tmp_path: Path) -> None:
    """It fails nothing, unless that is wanted."""
    gates = {"pass_rate": {"at_least": 0.99}}
    writer(tmp_path, suite_of("one", gates=gates), model=MODEL)
    assert run("writer").returncode == 0
    strict = run("writer", "--strict")
    assert (strict.returncode, "undecided" in strict.stdout) == (1, True)


def test_a_case_that_must_pass(run: Run, tmp_path: Path) -> None:
    suite = suite_of("one", "two", **VARIANTS)
    suite["cases"][0]["must"] = True
    writer(tmp_path, suite, model=MODEL)
    assert run("writer").returncode == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], ["nowhere"]),
        (["writer", "--only", "onee"], ["onee", "one"]),
        (["writer", "--variant", "plian"], ["plian", "plain"]),
        (["writer", "--max-age", "soon"], ["soon", "7d"]),
        (["writer", "--against", "./none"], ["./none"]),
        (["writer", "--json", "no/where.json"], ["no/where.json"]),
        (["writer", "--budget", "-1"], ["--budget"]),
        (["writer", "--repeat", "0"], ["--repeat"]),
        (["made:writer"], ["made:writer"]),
    ],
)
def test_wrong_usage(
    run: Run,
    stub: ModelStub,
    tmp_path: Path,
    arguments: list[str],
    words: list[str],
) -> None:
    """It is said before anything is paid."""
    writer(tmp_path, suite_of("one", **VARIANTS), model=MODEL)
    done = run(*arguments)
    assert done.returncode == 2, done.stdout
    assert all(word in done.stderr for word in words), done.stderr
    assert "Traceback" not in done.stderr
    assert stub.received == []


def test_problems_of_a_suite(run: Run, stub: ModelStub, tmp_path: Path) -> None:
    """All at once, with pointers."""
    suite = suite_of("one", "one", gatse={}, repeat=0)
    writer(tmp_path, suite, model=MODEL)
    done = run("writer")
    assert done.returncode == 2
    assert all(word in done.stderr for word in ("/gatse", "/repeat"))
    assert stub.received == []


def test_a_provider_that_refuses(
    run: Run, stub: ModelStub, tmp_path: Path
) -> None:
    """The evaluation is incomplete, and goes on at the next start."""
    stub.respond_with(lambda request: Fault(401, "no key"))
    writer(tmp_path, suite_of("one"), model=MODEL)
    done = run("writer")
    assert done.returncode == 4, done.stdout + done.stderr
    assert "incomplete" in done.stdout
    assert "not run" in done.stdout
    stub.respond_with(answer)
    assert run("writer").returncode == 0


# --- The budget


def test_a_budget_that_will_not_be_enough(
    run: Run, stub: ModelStub, tmp_path: Path
) -> None:
    """Without a terminal nobody can be asked, so it does not begin; or it begins, and is incomplete."""
    writer(tmp_path, suite_of("one", "two"), model=MODEL, max_tokens=100)
    done = run("writer", "--budget", "0.000001")
    assert (done.returncode, stub.received) == (2, [])
    assert "--yes" in done.stderr
    begun = run("writer", "--budget", "0.000001", "--yes")
    assert (begun.returncode, stub.received) == (4, [])
    assert run("writer", "--budget", "0.01").returncode == 0
    known = run("writer", "--budget", "0")
    assert known.returncode == 0, known.stderr


def test_models_without_a_price(
    run: Run, stub: ModelStub, tmp_path: Path
) -> None:
    """The budget does not count them, which is said."""
    writer(tmp_path, suite_of("one"), model="openai/nobody-knows")
    done = run("writer", PODWRIGHT_PRICES="{}")
    assert done.returncode == 0, done.stderr
    assert "The price is unknown of openai/nobody-knows" in done.stderr
    row = done.stdout.splitlines()[1]
    assert "unknown" in row
    assert "unknown amount for 1 calls" in done.stdout


def test_the_model_of_the_environment(
    run: Run, stub: ModelStub, tmp_path: Path
) -> None:
    """The variants win, and it is said."""
    writer(tmp_path, suite_of("one"), model=MODEL)
    done = run("writer", PODWRIGHT_MODEL="offline/echo")
    assert done.returncode == 0
    assert "PODWRIGHT_MODEL is not used" in done.stderr
    assert len(stub.received) == 1


# --- What is run


def test_some_cases_and_variants(
    run: Run, stub: ModelStub, tmp_path: Path
) -> None:
    """The baseline is always one of them."""
    writer(tmp_path, suite_of("one", "two", **VARIANTS), model=MODEL)
    run("writer", "--only", "two", "--variant", "bad", "--json", "r.json")
    report = Report.load(tmp_path / "r.json")
    found = {(row.case, row.variant) for row in report.rows}
    assert found == {("two", "plain"), ("two", "bad")}
    assert len(stub.received) == 2


def test_nothing_that_is_recorded(
    run: Run, stub: ModelStub, tmp_path: Path
) -> None:
    writer(tmp_path, suite_of("one"), model=MODEL)
    for options, calls in (
        ([], 1),
        (["--max-age", "1h"], 1),
        (["--fresh"], 2),
        (["--repeat", "3"], 4),
        (["--max-age", "0s"], 5),
    ):
        assert run("writer", *options).returncode == 0
        assert len(stub.received) == calls


def test_against_a_report(run: Run, stub: ModelStub, tmp_path: Path) -> None:
    """Its baseline is the one of this evaluation, and is not asked again."""
    gates = {"against_baseline": {"pass_rate_drop": 0.05}}
    suite = suite_of(*map(str, range(12)), gates=gates)
    folder = writer(tmp_path, suite, model=MODEL)
    run("writer", "--json", "old.json")
    blueprint = folder / "blueprint.json"
    blueprint.write_text(blueprint.read_text().replace("Write.", "Be bad."))
    done = run("writer", "--against", "old.json", "--json", "new.json")
    assert (done.returncode, len(stub.received)) == (1, 24)
    report = Report.load(tmp_path / "new.json")
    difference = report.compare("as it is").passed
    assert difference is not None
    assert difference.verdict == "worse"


@pytest.mark.parametrize("what", ["blueprint", "folder"])
def test_against_a_blueprint_or_a_folder(
    run: Run, tmp_path: Path, what: str
) -> None:
    """It is one more variant, and the baseline."""
    suite = suite_of(*map(str, range(12)))
    old = writer(tmp_path / "old", suite, model=MODEL)
    folder = writer(tmp_path, suite, model=MODEL)
    blueprint = folder / "blueprint.json"
    blueprint.write_text(blueprint.read_text().replace("Write.", "Be bad."))
    against = old if what == "folder" else old / "blueprint.json"
    done = run("writer", "--against", str(against), "--json", "r.json")
    assert done.returncode == 0, done.stderr
    report = Report.load(tmp_path / "r.json")
    assert report.baseline == "against"
    rates = [report[name].passed for name in report.digests]
    assert [rate and rate.value for rate in rates] == [1.0, 0.0]


def test_against_a_url(run: Run, stub: ModelStub, tmp_path: Path) -> None:
    """A service is one more variant, whose runs are never known."""
    folder = writer(tmp_path, suite_of("one", "two"), model=MODEL)
    with ComponentProcess(folder, model=stub) as service:
        done = run("writer", "--against", service.url, "--json", "r.json")
        assert done.returncode == 0, done.stderr
        again = run("writer", "--against", service.url)
        assert "of which 2 are known" in again.stderr
        stub.respond_with(lambda request: Fault(401, "no key"))
        refused = run("writer", "--against", service.url)
    assert refused.returncode == 4, refused.stdout
    report = Report.load(tmp_path / "r.json")
    assert report["against"].cost == report["as it is"].cost
    assert report["against"].digest == report["as it is"].digest
    gone = run("writer", "--against", service.url)
    assert (gone.returncode, "remote_unreachable" in gone.stderr) == (2, True)


def test_a_service_that_refuses_the_key(
    run: Run, stub: ModelStub, tmp_path: Path
) -> None:
    """That is said before anything is paid."""
    folder = writer(tmp_path, suite_of("one"), model=MODEL)
    with ComponentProcess(folder, model=stub, api_key="secret" * 4) as service:
        done = run("writer", "--against", service.url)
    assert done.returncode == 2, done.stdout
    assert stub.received == []


def test_a_service_that_goes_away(stub: ModelStub, tmp_path: Path) -> None:
    """The runs that it has not answered are missing, and are no failures."""
    folder = writer(tmp_path, suite_of(*map(str, range(4))), model=MODEL)
    service = ComponentProcess(folder, model=stub).start()
    client = AsyncClient(service.url, retries=Retries(connect_time=0))
    evaluation = Evaluation(Suite.load(folder), targets={"as it is": client})

    def stop(row: Row) -> None:
        if row.case == "1":
            service.stop()

    report = asyncio.run(evaluation.run(stop, concurrency=1))
    assert [row.status for row in report.rows] == ["ok"] * 2 + ["error"] * 2
    assert report.rows[-1].error_code == "remote_unreachable"
    assert report.exit_code() == 4


# --- Interruption


def test_an_interrupted_evaluation_goes_on(
    command: Command, run: Run, stub: ModelStub, tmp_path: Path
) -> None:
    """After SIGINT it has the rows so far; the same command asks only what is missing."""
    asked = threading.Event()

    async def slow(request: ModelRequest) -> str:
        if len(stub.received) == 5:
            asked.set()
            await asyncio.Event().wait()
        return answer(request)

    stub.respond_with(slow)
    writer(tmp_path, suite_of(*map(str, range(10))), model=MODEL)
    process = command(
        "eval", "writer", "--concurrency", "1",
        cwd=tmp_path, **stub.variables(stub.url),
    )  # fmt: skip
    assert asked.wait(60)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert "the same command goes on" in output
    rows = tmp_path / "writer/evals/.recorded/rows.jsonl"
    assert len(rows.read_text().splitlines()) == 4
    stub.respond_with(answer)
    done = run("writer")
    assert done.returncode == 0
    assert "of which 4 are known" in done.stderr
    assert len(stub.received) == 6


# --- Names


def test_names_stay_text(run: Run, tmp_path: Path) -> None:
    """Control characters, markup and tables in names change nothing of what is shown."""
    name = "a|b <b> \x1b[31m [red]&"
    suite = suite_of(name, gates={"pass_rate": {"at_least": 0.9}})
    suite["variants"] = {f"v {name}": {"writer.instructions": "Be bad."}}
    writer(tmp_path, suite, model=MODEL)
    files = ("--json", "r.json", "--junit", "r.xml", "--markdown", "r.md")
    done = run("writer", *files)
    assert done.returncode in (0, 1), done.stderr
    assert "[red]&" in done.stdout
    for text in (
        done.stdout,
        (tmp_path / "r.xml").read_text(),
        (tmp_path / "r.md").read_text(),
    ):
        assert "\x1b" not in text
    assert Report.load(tmp_path / "r.json").cases == [name]


# --- In process and served


def by_instructions(request: ModelRequest) -> Any:
    """Answers of the desk's models, which follow from the request alone."""
    system = request.messages[0].text
    component = "writer"
    if "You read letters" in system:
        component = "intake"
    elif "You judge answers" in system:
        component = "critic"
    elif "You judge letters" in system:
        component = "kind"
    texts = "".join(message.text for message in request.messages)
    named = replace(request, component=component)
    return desk_answer(named, "small", Random(texts))


def without_target(row: Row) -> Json:
    """What must be the same of a run, wherever it is made."""
    names = ("case", "repeat", "status", "checks", "cost", "tokens")
    names = (*names, "model_calls", "error_code")
    found = {name: getattr(row, name) for name in names}
    # a letter's number is another one
    return {**found, "output": re.sub(r"[0-9a-f]{32}", "", row.output)}


@pytest.mark.parametrize("where", ["process", "slim"])
def test_a_served_desk_has_the_same_verdicts(
    run: Run,
    stub: ModelStub,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    where: str,
) -> None:
    """With the same answers: also of runs that wait, fail, or are approved, and of calls that are made in them."""
    stub.respond_with(by_instructions)
    database = tmp_path / "desk.db"
    by_name = {"value": "{draft}", "text": "{customer}"}
    checks = [
        {"called": ["look_up_order"], "label": "looks it up"},
        {"name": "contains", "args": by_name, "label": "by name"},
        {"judge": "kind", "input": {"about": "apologies"}},
    ]
    cases = [
        {
            "name": "waits",
            "inputs": {"input": "Order 7 is broken.", "customer": "Ann"},
        },
        {
            "name": "sent",
            "inputs": {"input": "Order 8 is late.", "customer": "Bob"},
            "decisions": [
                {"decision": "reject", "comment": "Too long."},
                {"decision": "approve"},
            ],
        },
        {
            "name": "never sent",
            "inputs": {"input": "Teapots?", "customer": "Bob"},
            "decisions": [{"decision": "reject", "comment": "No."}] * 5,
            "expect_error": "loop_exhausted",
        },
    ]
    folder = desk(
        tmp_path,
        matrix=None,
        baseline=None,
        fakes=None,
        gates=None,
        variants={"here": {}},
        checks=checks,
        cases=cases,
    )
    judge = folder / "evals/judges/kind.json"
    judge.write_text(judge.read_text().replace("fake/judge", MODEL))
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o777)
    served_with: Json = {
        "model": stub,
        # the desk looks for a folder for temporary files, too
        "env": {"DESK_DATABASE": "/data/desk.db", "TMPDIR": "/data"},
        "volumes": [(data, "/data", "rw")],
    }
    if where == "slim":
        image = request.getfixturevalue("slim")
        service: Served = ComponentContainer(folder, image=image, **served_with)
    else:
        service = ComponentProcess(folder, **served_with)
    with service as served:
        options = ("--against", served.url, "--json", "r.json")
        done = run("desk", *options, DESK_DATABASE=str(database))
    assert done.returncode == 0, done.stdout + done.stderr
    report = Report.load(tmp_path / "r.json")
    rows = {
        name: [row for row in report.rows if row.variant == name]
        for name in report.digests
    }
    assert len(rows["against"]) == 3
    assert any(check.passed for row in report.rows for check in row.checks)
    assert report.digests["against"] == report.digests["here"]
    assert list(map(without_target, rows["against"])) == list(
        map(without_target, rows["here"])
    )
    assert {row.status for row in report.rows} == {"ok", "paused", "failed"}
    assert [letters(database), letters(data / "desk.db")] == [1, 1]


def test_a_budget_for_services(stub: ModelStub, tmp_path: Path) -> None:
    """Once it is used up, no further run is sent."""
    folder = writer(tmp_path, suite_of(*map(str, range(6))), model=MODEL)
    with ComponentProcess(folder, model=stub) as served:
        report = evaluate(
            Suite.load(folder),
            variants=(),
            targets={"as it is": served},
            budget=0.000001,
            concurrency=1,
        )
    assert [row.status for row in report.rows] == ["ok", *["budget"] * 5]
    assert report.exit_code() == 4
    assert len(stub.received) == 1
