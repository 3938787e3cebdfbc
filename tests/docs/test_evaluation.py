"""docs/evaluation.md, and the last chapter of the tutorial, as a reader follows them."""

from __future__ import annotations

import re
import shutil
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.docs.test_docs import blocks
from tests.evaluation_models import desk_answer, provider
from tests.forked import complete
from tests.helpers import ROOT, environment, write_files

from podwright.evaluation import Report, Suite, evaluate
from podwright.messages.messages import ModelRequest
from podwright.testing import ToolCall
from podwright_service.cli.developing.new import create_component

PAGE = ROOT / "docs" / "evaluation.md"
TUTORIAL = ROOT / "docs" / "desk.md"
DESK = ROOT / "service/src/podwright_service/scaffold/examples/desk"


def titled(page: Path) -> dict[str, str]:
    """The blocks of a page that have a title, by their titles."""
    found = re.findall(
        r'^```\w+ title="([^"]*)"\n(.*?)^```',
        page.read_text(),
        re.MULTILINE | re.DOTALL,
    )
    return dict(found)


def words(text: str) -> list[list[str]]:
    """The words of each line, without what each run has others of: times and the day."""
    same = re.sub(r"\d+\.\d\d s\b", "0.00 s", text)
    same = re.sub(r"\d{4}-\d\d-\d\d", "today", same)
    return [line.split() for line in same.splitlines()]


@pytest.fixture
def calculator(tmp_path: Path) -> Path:
    """The folder with the agent and the suite of the page."""
    create_component(str(tmp_path / "calculator"), "offline/echo")
    name = "calculator/evals/evals.yaml"
    write_files(tmp_path, {name: titled(PAGE)[name]})
    return tmp_path


def test_a_first_evaluation(
    calculator: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The suite of the page has the result of the page, and is known when it is started again."""
    streams = tmp_path_factory.mktemp("streams")
    command = "podwright eval calculator"
    arguments = tuple(command.split()[1:])
    done = complete(arguments, calculator, environment(), streams)
    assert done.returncode == 1
    printed = words(done.stderr) + words(done.stdout)
    assert sorted(printed) == sorted(words(titled(PAGE)[command]))
    again = complete(arguments, calculator, environment(), streams)
    assert again.returncode == 1
    assert "18 runs, of which 18 are known" in again.stderr
    recorded = calculator / "calculator/evals/.recorded"
    assert stat.S_IMODE(recorded.stat().st_mode) == 0o700
    assert (recorded / ".gitignore").read_text() == "*\n"


def test_against_a_copy(
    calculator: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """What is the same has the same results, from the first start on."""
    streams = tmp_path_factory.mktemp("streams")
    shutil.copytree(calculator / "calculator", calculator / "copy")
    report = calculator / "report.json"
    arguments = ("eval", "calculator", "--variant", "as it is")
    arguments = (*arguments, "--against", "copy", "--json", str(report))
    for _ in range(2):
        complete(arguments, calculator, environment(), streams)
        found = Report.load(report)
        assert [each.runs for each in found.variants.values()] == [9, 9]
        difference = found.compare("as it is").passed
        assert difference is not None
        assert (difference.value, found.incomplete) == (0, [])


def test_an_evaluation_in_pytest(calculator: Path) -> None:
    """The tests of the page pass with the suite of the page."""
    write_files(calculator, {"test_page.py": "\n".join(blocks(PAGE, "python"))})
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "test_page.py"],
        cwd=calculator,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def answer(request: ModelRequest, size: str, chance: Random) -> Any:
    """Answer as the models of the desk, without the search in its policies."""
    if request.component == "kind":
        return {"reason": "", "good": chance.random() < 0.9}
    found = desk_answer(request, size, chance)
    while isinstance(found, ToolCall):
        found = desk_answer(request, size, chance)
    return found


def test_the_desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The suite of the tutorial runs with the desk, sends no letter, and pays no intake for another prompt."""
    database = tmp_path / "desk.db"
    monkeypatch.setenv("DESK_DATABASE", str(database))
    shutil.copytree(DESK, tmp_path / "desk")
    files = {
        name: text.replace("openai/gpt-4o-mini", "fake/small")
        .replace("openai/gpt-4.1-nano", "fake/large")
        .replace("openai/gpt-4.1-mini", "fake/judge")
        for name, text in titled(TUTORIAL).items()
    }
    assert len(files) == 3
    write_files(tmp_path, files)
    suite = Suite.load(tmp_path / "desk")
    with provider(answer) as models:
        report = evaluate(suite)
        assert [*report.variants] == [
            "small, as it is",
            "small, short",
            "large, as it is",
            "large, short",
        ]
        assert report.incomplete == []
        labels = {check.label for row in report.rows for check in row.checks}
        assert {"kind", "not Bob's order", "sent once approved"} <= labels
        paid_intakes = models.calls_of("intake")
        prompt = tmp_path / "desk/evals/prompts/short.md"
        prompt.write_text("Write to {customer}, briefly.")
        assert evaluate(Suite.load(tmp_path / "desk")).incomplete == []
        assert models.calls_of("intake") == paid_intakes > 0
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("SELECT * FROM letters").fetchall() == []


def test_the_judge_of_the_page(tmp_path: Path) -> None:
    """The judge of the page is one, and needs the input that the page gives it."""
    shutil.copytree(DESK, tmp_path / "desk")
    check = {"judge": "kind", "input": {"about": "a late order"}}
    case = {"name": "late", "inputs": {"input": "Late.", "customer": "Ann"}}
    name = "desk/evals/judges/kind.json"
    files = {
        name: titled(PAGE)[name],
        "desk/evals/evals.yaml": {"checks": [check], "cases": [case]},
    }
    write_files(tmp_path, files)
    assert [*Suite.load(tmp_path / "desk").judges] == ["kind"]
