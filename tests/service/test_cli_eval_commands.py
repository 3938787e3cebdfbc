"""`podwright eval bless`, `eval add` and `eval judge`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.helpers import DESK, write_files
from tests.service.background_support import wait
from tests.service.support import AGENT, Serve, Shell

from podwright import load
from podwright.testing import ScriptedModel

SUITE = """# of the helper
cases:
- name: hello
  inputs: Hello
  checks: [{name: contains, args: {value: "{output}", text: Hello}}]
"""
JUDGE: dict[str, Any] = {
    **AGENT,
    "name": "kind",
    "instructions": "Judge.",
    "config": {
        "model": "offline/echo",
        "response_schema": {
            "type": "object",
            "properties": {"good": {"type": "boolean"}},
            "required": ["good"],
        },
    },
}


@pytest.fixture(autouse=True)
def _component(tmp_path: Path) -> None:
    files = {"blueprint.json": AGENT, "evals/evals.yaml": SUITE}
    write_files(tmp_path / "helper", files)


# --- Bless


def test_a_blessed_report_is_what_later_ones_are_compared_with(
    shell: Shell, tmp_path: Path
) -> None:
    """By default, and with a line about the cases that are others by now."""
    assert shell("eval", "bless", "helper").returncode == 1
    assert shell("eval", "helper").returncode == 0
    baseline = tmp_path / "helper" / "evals" / "baseline.json"
    assert not baseline.exists()
    done = shell("eval", "bless", "helper")
    assert done.returncode == 0, done.stderr
    assert "1 cases x 1, 100% passed" in done.stdout
    data = json.loads(baseline.read_text())
    assert (data["cases"], len(data["rows"])) == (["hello"], 1)
    assert data["rows"][0]["output"] == ""
    same = shell("eval", "helper")
    assert "Compared with 'as it is' of" in same.stderr
    assert "other cases" not in same.stderr
    assert "as it is (" in same.stdout
    changed = SUITE.replace("text: Hello", "text: Bye")
    added = f"{changed}- {{name: two, inputs: x}}\n"
    write_files(tmp_path / "helper", {"evals/evals.yaml": added})
    stale = shell("eval", "helper")
    assert "other cases: new: two; changed: hello." in stale.stderr
    assert "no common cases" in stale.stdout


def test_what_a_report_is_compared_with_can_be_chosen(
    shell: Shell, tmp_path: Path
) -> None:
    """A suite with several variants has its own baseline; a damaged file stops before anything is run."""
    shell("eval", "helper")
    shell("eval", "bless", "helper")
    write_files(
        tmp_path / "helper",
        {
            "evals/evals.yaml": SUITE
            + "variants: {a: {}, b: {writer.instructions: Hi.}}\nbaseline: a\n"
        },
    )
    own = shell("eval", "helper")
    assert "Compared with" not in own.stderr
    named = shell("eval", "helper", "--against", "helper/evals/baseline.json")
    assert "Compared with 'as it is' of" in named.stderr
    write_files(
        tmp_path / "helper",
        {"evals/evals.yaml": SUITE, "evals/baseline.json": "{}"},
    )
    damaged = shell("eval", "helper")
    assert (damaged.returncode, damaged.stdout) == (2, "")


def test_what_is_blessed(shell: Shell, tmp_path: Path) -> None:
    """A report of a file, or a variant; not one of another component."""
    write_files(
        tmp_path / "helper",
        {
            "evals/evals.yaml": SUITE
            + "variants: {a: {}, b: {writer.instructions: Hi.}}\nbaseline: a\n"
        },
    )
    shell("eval", "helper", "--json", "report.json")
    options = ("report.json", "--component", "helper", "--variant", "b")
    done = shell("eval", "bless", *options)
    assert done.returncode == 0, done.stderr
    baseline = tmp_path / "helper" / "evals" / "baseline.json"
    assert json.loads(baseline.read_text())["baseline"] == "b"
    # of what was compared with, nothing is blessed by itself
    shutil.copytree(tmp_path / "helper", tmp_path / "old")
    shell("eval", "helper", "--against", "old")
    shell("eval", "bless", "helper")
    assert json.loads(baseline.read_text())["baseline"] == "a"
    before = baseline.read_bytes()
    unknown = shell("eval", "bless", "helper", "--variant", "c")
    assert unknown.returncode == 1
    shutil.copytree(tmp_path / "helper", tmp_path / "other")
    other = shell("eval", "bless", "report.json", "--component", "other")
    assert (other.returncode, "--component" in other.stderr) == (1, True)
    assert baseline.read_bytes() == before


# --- Add


def test_a_trace_becomes_a_case(shell: Shell, tmp_path: Path) -> None:
    """Whose first evaluation replays it; a suite is begun if there is none."""
    (tmp_path / "helper" / "evals" / "evals.yaml").unlink()
    shell("run", "helper", "Good day", "--trace", "t.json", "-q")
    done = shell(
        "eval", "add", "helper", "--trace", "t.json", "--name", "greeting"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "helper/evals/cases.jsonl: greeting\n"
    assert "began helper/evals/evals.yaml" in done.stderr
    folder = tmp_path / "helper" / "evals" / ".recorded"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / ".gitignore").read_text() == "*\n"
    evaluated = shell("eval", "helper")
    assert "0 model calls live, 1 replayed" in evaluated.stdout
    taken = shell(
        "eval", "add", "helper", "--trace", "t.json", "--name", "greeting"
    )
    assert taken.returncode == 1
    lines = (tmp_path / "helper" / "evals" / "cases.jsonl").read_text()
    assert json.loads(lines) == {"name": "greeting", "inputs": "Good day"}


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--run", "x"),
        ("--url", "http://127.0.0.1:1"),
        ("--trace", "t", "--run", "x", "--url", "http://127.0.0.1:1"),
        ("--trace", "missing.json"),
        ("--trace", "helper/blueprint.json"),
    ],
)
def test_what_is_no_case(
    shell: Shell, options: tuple[str, ...], tmp_path: Path
) -> None:
    assert shell("eval", "add", "helper", *options).returncode == 1
    assert not (tmp_path / "helper" / "evals" / "cases.jsonl").exists()


def test_a_suite_in_one_line(shell: Shell, tmp_path: Path) -> None:
    """It is left as it is, and the line that it lacks is printed."""
    suite = "cases: [{name: a, inputs: x}]  # short\n"
    write_files(tmp_path / "helper", {"evals/evals.yaml": suite})
    shell("run", "helper", "Good day", "--trace", "t.json", "-q")
    done = shell("eval", "add", "helper", "--trace", "t.json")
    assert done.returncode == 0
    assert "- file: cases.jsonl" in done.stderr
    assert (tmp_path / "helper/evals/evals.yaml").read_text() == suite


# --- Judge


def test_a_judge_and_persons(shell: Shell, tmp_path: Path) -> None:
    """As a table and as JSON; a judge that is not there is an error."""
    judge = {"evals/judges/kind.json": JUDGE}
    write_files(tmp_path / "helper", judge)
    labels = '{"output": "a", "good": true}\n{"output": "b", "good": false}\n'
    write_files(tmp_path, {"labels.jsonl": labels})
    options = ("kind", "helper", "--labels", "labels.jsonl")
    done = shell("eval", "judge", *options)
    assert done.returncode == 0, done.stderr
    assert "50% of the labels are good" in done.stdout
    found = json.loads(shell("eval", "judge", *options, "--json").stdout)
    assert (found["labels"], found["agreed"]["value"]) == (2, 0.5)
    assert found["kappa"]["value"] == 0
    assert found["consistency"]["value"] == 1
    unknown = shell("eval", "judge", "kin", "helper", *options[2:])
    assert (unknown.returncode, "'kind'" in unknown.stderr) == (1, True)
    for wrong in ((), ("--labels", "missing"), (*options[2:], "--url", "x")):
        assert shell("eval", "judge", "kind", "helper", *wrong).returncode == 1


# --- A served desk


def letter(name: str) -> dict[str, Any]:
    return {"inputs": {"input": "My cup of order 7 broke.", "customer": name}}


def test_approvals_of_a_served_desk(
    serve: Serve,
    shell: Shell,
    sqlite_database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What persons have decided are labels of drafts, and decisions of cases, whose runs end as they did."""
    monkeypatch.setenv("DESK_DATABASE", str(tmp_path / "desk.db"))
    shutil.copytree(DESK, tmp_path / "desk")
    write_files(tmp_path / "desk", {"evals/judges/kind.json": JUDGE})
    client = serve(
        load(tmp_path / "desk"),
        model="offline/echo",
        runs_database=sqlite_database,
    )
    url = str(client.base_url)
    run = client.post("/runs", json=letter("Ann")).headers["location"]
    waiting = wait(client, run, "waiting_for_approval")
    early = shell("eval", "add", "desk", "--run", waiting["id"], "--url", url)
    assert (early.returncode, "status" in early.stderr) == (1, True)
    decision = {"comment": "Too cold.", "attempt": waiting["attempt"]}
    client.post(f"{run}/reject", json=decision)
    again = wait(client, run, "waiting_for_approval")
    edited = {"values": {"draft": "Dear Ann"}, "attempt": again["attempt"]}
    client.post(f"{run}/approve", json=edited)
    assert wait(client, run)["status"] == "succeeded"
    other = client.post("/runs", json=letter("Bob")).headers["location"]
    wait(client, other, "waiting_for_approval")
    client.post(f"{other}/approve", json={})
    assert wait(client, other)["status"] == "succeeded"

    done = shell("eval", "judge", "kind", "desk", "--url", url, "--json")
    found = json.loads(done.stdout)
    assert found["labels"] == 3
    assert found["base_rate"] == pytest.approx(1 / 3)

    added = shell("eval", "add", "desk", "--run", waiting["id"], "--url", url)
    assert added.returncode == 0, added.stderr
    text = (tmp_path / "desk" / "evals" / "cases.jsonl").read_text()
    case = json.loads(text)
    assert case["inputs"]["customer"] == "Ann"
    assert case["decisions"] == [
        {"decision": "reject", "comment": "Too cold."},
        {"decision": "approve", "values": {"draft": "Dear Ann"}},
    ]
    (check,) = case["checks"]
    names = [
        call if isinstance(call, str) else call["tool"]
        for call in check["called"]
    ]
    assert (names[0], names[-1]) == ("look_up_order", "send_letter")
    write_files(
        tmp_path / "desk",
        {
            "evals/evals.yaml": "cases:\n- file: cases.jsonl\n"
            "variants: {echo: {'*.model': offline/echo}}\n"
        },
    )
    evaluated = shell(
        "eval", "desk", "--json", "report.json",
        DESK_DATABASE=str(tmp_path / "desk.db"),
    )  # fmt: skip
    assert evaluated.returncode == 0, evaluated.stderr
    (row,) = json.loads((tmp_path / "report.json").read_text())["rows"]
    assert (row["status"], row["checks"][0]["passed"]) == ("ok", True), row


def test_a_run_of_an_agent_has_its_input(
    serve: Serve, shell: Shell, sqlite_database: str, tmp_path: Path
) -> None:
    """The earlier turns too; nobody has decided anything, so there are no labels."""
    agent = load(tmp_path / "helper", model=ScriptedModel("Ann."))
    client = serve(agent, runs_database=sqlite_database)
    turns = [
        {"role": "user", "content": "I am Ann."},
        {"role": "assistant", "content": "Hello."},
    ]
    body = {"input": "Who am I?", "messages": turns}
    run = client.post("/runs", json=body).headers["location"]
    run_id = wait(client, run)["id"]
    url = str(client.base_url)
    done = shell("eval", "add", "helper", "--run", run_id, "--url", url)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "helper" / "evals" / "cases.jsonl").read_text()
    assert json.loads(text) == {
        "name": f"run {run_id[:8]}",
        "inputs": "Who am I?",
        "messages": turns,
    }
    write_files(tmp_path / "helper", {"evals/judges/kind.json": JUDGE})
    none = shell("eval", "judge", "kind", "helper", "--url", url)
    assert (none.returncode, "Nobody has" in none.stderr) == (1, True)
