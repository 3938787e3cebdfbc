"""`podwright run` and `replay`, as a shell sees them."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from podwright import ExecutionResult
from podwright.testing import assert_events

Shell = Callable[..., subprocess.CompletedProcess[str]]
Command = Callable[..., subprocess.Popen[str]]

FLOW = (
    "import asyncio\n"
    "from podwright import Agent, ApprovalStep, FunctionModel, ScriptedModel, Workflow\n"
    "first = Agent('first', 'Do.', 'offline/echo')\n"
    "last = Agent('last', 'Do.', 'offline/echo')\n"
    "broken = Agent('broken', 'Do.', FunctionModel(lambda request: 1 / 0))\n"
    "async def wait(request):\n    print('asked', flush=True)\n    await asyncio.sleep(60)\n"
    "slow = Agent('slow', 'Do.', FunctionModel(wait))\n"
    "gated = Workflow('gated', [first, ApprovalStep('Publish?', 'ask'), last])\n"
    "failing = Workflow('failing', [first, broken])\n"
    "waiting = Workflow('waiting', [first, slow])\n"
)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A folder with a module of components."""
    (tmp_path / "made.py").write_text(FLOW)
    return tmp_path


def test_the_answer_alone_is_on_standard_output(shell: Shell, made: Path) -> None:
    """An agent's answer is standard output, bare of colours and steps, which are told on standard error."""
    done = shell("run", "made:first", "the moon")
    assert (done.returncode, done.stdout) == (0, "Echo: the moon\n")
    assert "[first] started: the moon" in done.stderr
    assert "final answer" in done.stderr
    assert "\x1b" not in done.stderr
    assert shell("run", "made:first", "the moon", "--quiet").stderr == ""


@pytest.mark.parametrize("arguments", [[], ["-"]])
def test_the_input_from_a_pipe(shell: Shell, made: Path, arguments: list[str]) -> None:
    """Without INPUT, or with `-`, standard input is what to work on."""
    assert shell("run", "made:first", *arguments, "-q", given="from a pipe\n").stdout == "Echo: from a pipe\n"


def test_named_inputs(shell: Shell, made: Path) -> None:
    """`--inputs` takes an object or a file of one, beside INPUT; a workflow prints its context as JSON."""
    context = json.loads(shell("run", "made:gated", "--inputs", '{"input": "a"}', "--resume-path", "2", "-q").stdout)
    assert context["last_output"] == "Echo: a"
    (made / "inputs.json").write_text('{"style": "dry"}')
    done = shell("run", "made:first", "the moon", "--inputs", "@inputs.json", "-q")
    assert (done.returncode, "the moon" in done.stdout) == (0, True), done.stderr


def test_a_trace_is_written_and_replayed(shell: Shell, made: Path) -> None:
    """`--trace FILE` keeps the run, as `replay` prints it and the library reads it."""
    assert shell("run", "made:first", "the moon", "--trace", "t.json", "-q").returncode == 0
    result = ExecutionResult.from_dict(json.loads((made / "t.json").read_text()))
    assert result.value == "Echo: the moon"
    assert_events(result, "run_started", "model_call_finished", "run_finished")
    for arguments, given in ((["t.json", "--delay", "0.01"], ""), (["-"], (made / "t.json").read_text())):
        done = shell("replay", *arguments, given=given)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines()[0] == "   0.000s [first] started: the moon"


def test_the_trace_of_a_failed_run(shell: Shell, made: Path) -> None:
    """A run that fails has exit code 1, nothing on standard output, and a trace that ends with the failure."""
    done = shell("run", "made:failing", "x", "--trace", "t.json", "--context", "c.json", "-q")
    assert (done.returncode, done.stdout) == (1, "")
    assert "ZeroDivisionError" in done.stderr
    assert "Traceback" not in done.stderr
    assert_events(ExecutionResult.from_dict(json.loads((made / "t.json").read_text())), "run_started", "run_failed")
    assert "To go on: podwright run made:failing --inputs @c.json --resume-path 1\n" in done.stderr
    assert json.loads((made / "c.json").read_text())["first_output"] == "Echo: x"


def test_no_context_of_a_run_that_did_not_stop(shell: Shell, made: Path) -> None:
    """Where nothing is to go on, `--context FILE` leaves no file, and one that is there as it was."""
    (made / "old.json").write_text("{}")
    for name in ("new.json", "old.json"):
        done = shell("run", "made:gated", "x", "--resume-path", "2", "--context", name, "-q")
        assert done.returncode == 0, done.stderr
    assert not (made / "new.json").exists()
    assert (made / "old.json").read_text() == "{}"


def test_a_workflow_that_waits_goes_on_as_it_says(shell: Shell, made: Path) -> None:
    """A pause has exit code 3; the command that it prints approves, and repeats no step."""
    done = shell("run", "made:gated", "the moon", "--context", "state of it.json", "-q")
    assert (done.returncode, done.stdout) == (3, "")
    assert "approval_required" in done.stderr
    line = next(line for line in done.stderr.splitlines() if line.startswith("To go on: podwright "))
    import shlex

    again = shell(*shlex.split(line.removeprefix("To go on: podwright ")))
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["last_output"].endswith("first_output Echo: the moon")
    assert "[first]" not in again.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_cancels_the_run(command: Command, made: Path, number: signal.Signals) -> None:
    """An interrupted run says where it goes on, has exit code 130, and no traceback."""
    process = command("run", "made:waiting", "x", "--context", "c.json", cwd=made)
    assert process.stdout is not None
    while "asked" not in process.stdout.readline():
        pass
    process.send_signal(number)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 130, output
    assert "Traceback" not in output
    assert "--resume-path 1" in output
    assert json.loads((made / "c.json").read_text())["first_output"] == "Echo: x"


def test_the_limits_of_the_settings_hold(shell: Shell, made: Path) -> None:
    """`run` keeps to PODWRIGHT_RUN_…, as the service does."""
    done = shell("run", "made:first", "x", "-q", PODWRIGHT_RUN_MODEL_CALLS="0")
    assert done.returncode == 1
    assert "limit_exceeded" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["run", "made:frist", "x"], "The module 'made' has no 'frist'.\n  Suggestion: Did you mean 'first'?"),
        (["run", "made:first", "--inputs", "{"], "The inputs are not JSON"),
        (["run", "made:first", "--inputs", "[]"], "no JSON object"),
        (["run", "made:first", "--inputs", "@nowhere.json"], "Cannot read 'nowhere.json'"),
        (["run", "made:first", "x", "--inputs", '{"input": "y"}'], "The input is given twice."),
        (["run", "made:first", "x", "--resume-path", "1"], "'first' is no workflow"),
        (["run", "made:gated", "x", "--resume-path", "one"], "A resume path is numbers"),
        (["run", "made:gated", "x", "--resume-path", "9"], "resume_path_invalid"),
        (["run", "made:first", "x", "--trace", "no/where.json"], "Cannot write 'no/where.json'"),
        (["run", "made:first", "x", "--model", "offline/ecco"], "offline/echo"),
        (["run", "x" * 5000, "x"], "no component at"),
        (["replay", "made.py"], "'made.py' is not JSON"),
        (["replay", "nowhere.json"], "Cannot read 'nowhere.json'"),
        (["replay", "."], "Cannot read '.'"),
        (["replay", "-"], "is not JSON"),
    ],
)
def test_what_cannot_be_run(shell: Shell, made: Path, arguments: list[str], text: str) -> None:
    """A mistake is one readable error on standard error, with exit code 1."""
    done = shell(*arguments)
    assert (done.returncode, done.stdout) == (1, ""), done
    assert text in done.stderr
    assert done.stderr.count("Suggestion:") == 1
    assert "Traceback" not in done.stderr


def test_a_reader_who_leaves(command: Command, made: Path, shell: Shell) -> None:
    """`podwright … | head` ends without a complaint."""
    import os
    import sys

    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", "(podwright schema; echo code $? >&2) | head -c 10"],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
    )
    assert len(done.stdout) == 10
    assert "Traceback" not in done.stderr
    assert "Error" not in done.stderr
