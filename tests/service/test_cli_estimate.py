"""`podwright estimate`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.service.support import Shell

MODULE = """
from podwright import Agent, Workflow
def search(word: str) -> str:
    return word
writer = Agent('writer', 'Write {input}.', 'openai/gpt-4o-mini', max_tokens=100)
finder = Agent('finder', 'Find.', 'openai/gpt-4o-mini', [search], max_tokens=100)
flow = Workflow('flow', [writer, finder])
typed = Agent('typed', 'Be {tone}.', 'openai/gpt-4o-mini',
              inputs={'tone': {'type': 'string'}, 'count': {'type': 'integer', 'default': 2}})
"""


@pytest.fixture(autouse=True)
def _module(tmp_path: Path) -> None:
    (tmp_path / "made.py").write_text(MODULE)


def test_a_table(shell: Shell) -> None:
    """Three bounds of each number, and in words what dominates, what helps and what is not counted."""
    done = shell("estimate", "made:flow", "the moon")
    assert (done.returncode, done.stderr) == (0, "")
    header, calls, *_ = done.stdout.splitlines()
    assert header.split() == ["flow", "at", "least", "usually", "at", "most"]
    assert calls.split() == ["model", "calls", "2", "3", "11"]
    assert "$0.00" in done.stdout
    assert "usually: assumed" in done.stdout
    assert "at most, before limits: finder" in done.stdout
    assert "mostly results of tools" in done.stdout
    assert "not counted: what the tool 'search' runs or reports" in done.stdout


def test_json(shell: Shell) -> None:
    done = shell("estimate", "made:writer", "the moon", "--json", "--runs", "3")
    found = json.loads(done.stdout)
    assert found["runs"] == 3
    assert found["at_least"]["model_calls"] == 3
    assert found["at_most"]["output_tokens"] == 300


def test_each_input_is_a_run(shell: Shell) -> None:
    one = json.loads(shell("estimate", "made:writer", "a", "--json").stdout)
    two = json.loads(shell("estimate", "made:writer", "b", "--json").stdout)
    both = shell("estimate", "made:writer", "a", "b", "--json", "--runs", "2")
    found = json.loads(both.stdout)
    assert found["runs"] == 4
    tokens = one["at_most"]["tokens"] + two["at_most"]["tokens"]
    assert found["at_most"]["tokens"] == 2 * tokens


def test_an_input_that_is_not_known(shell: Shell) -> None:
    """Standard input is not read, unless it is named."""
    done = shell("estimate", "made:writer", stdin="the moon")
    assert "assumed: the input" in done.stdout
    piped = shell("estimate", "made:writer", "-", stdin="the moon")
    assert "assumed: the input" not in piped.stdout


def test_named_inputs(shell: Shell) -> None:
    """They are checked as those of a run; a wrong one is an error that says what the component takes."""
    arguments = ("estimate", "made:typed", "hi")
    done = shell(*arguments, "-i", "tone=dry", "-i", "count=3", "--json")
    assert json.loads(done.stdout)["at_least"]["model_calls"] == 1
    wrong = shell(*arguments, "-i", "tone=dry", "-i", "count=many")
    assert wrong.returncode == 1
    assert "count (integer, default 2)" in wrong.stderr


def test_models_and_limits_of_the_environment(shell: Shell) -> None:
    """They are those with which `podwright run` would run it."""
    free = shell(
        "estimate", "made:writer", "x", "--model", "offline/echo", "--json"
    )
    assert json.loads(free.stdout)["at_most"]["cost"] == 0
    done = shell("estimate", "made:flow", "x", PODWRIGHT_RUN_TOKENS="90")
    assert "limits: tokens 90" in done.stdout


def test_traces_say_what_is_usual(shell: Shell, tmp_path: Path) -> None:
    """The median of recorded runs; those of another component are refused, and files that are none."""
    for name in ("a", "b"):
        shell(
            "run", "made:writer", "x", "--model", "offline/echo", "-q",
            "--trace", f"{name}.json",
        )  # fmt: skip
    traces = ("--traces", "a.json", "--traces", "b.json")
    done = shell("estimate", "made:writer", "x", *traces)
    assert "usually: the median of 2 recorded runs" in done.stdout
    assert "9 of 10" in done.stdout
    other = shell("estimate", "made:finder", "x", *traces)
    assert other.returncode == 1
    assert "not of 'finder'" in other.stderr
    (tmp_path / "broken.json").write_text("{")
    broken = shell("estimate", "made:writer", "x", "--traces", "broken.json")
    assert (broken.returncode, "trace_invalid" in broken.stderr) == (1, True)


def test_numbers_of_runs(shell: Shell) -> None:
    assert shell("estimate", "made:writer", "--runs", "0").returncode == 2
