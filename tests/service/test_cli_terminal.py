"""What the commands let through to a person's terminal, and what they do with files that are none."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Shell = Callable[..., subprocess.CompletedProcess[str]]

STEERING = "\x1b]0;stolen\x07\x1b[2J\x9b31m"
"""Sets a terminal's title, clears it and turns it red."""

AGENT = {"name": "a", "instructions": "Do.", "config": {"model": "offline/echo"}}


def on_terminal(*arguments: str, cwd: Path, **variables: str) -> str:
    """Runs `podwright` on a terminal of its own, and gives all that this is sent."""
    command = str(Path(sys.executable).with_name("podwright"))
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as screen:
        process = subprocess.Popen(
            [command, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, cwd=cwd, env={**os.environ, **variables}
        )
        os.close(theirs)
        shown = b""
        try:
            while piece := screen.read(65536):
                shown += piece
        except OSError:  # the other side is closed
            pass
    process.wait(timeout=60)
    return shown.decode(errors="replace")


SAID: dict[str, tuple[list[str], dict[str, str]]] = {
    "a name": (["run", "named.json", "x"], {}),
    "an input": (["run", "a.json", STEERING], {}),
    "a key": (["graph", "key.json"], {}),
    "a change": (["diff", "a.json", "named.json"], {}),
    "a problem": (["validate", "key.json"], {}),
    "a trace": (["replay", "trace.json"], {}),
    "a file": (["replay", STEERING], {}),
    "a kind": (["schema", STEERING], {}),
    "a model": (["run", "a.json", "x", "--model", f"offline/{STEERING}"], {}),
    "an address": (["check", f"http://{STEERING}/"], {}),
    "a setting": (["settings"], {"PODWRIGHT_TITLE": STEERING}),
    "a wrong setting": (["settings"], {"PODWRIGHT_LOG_LEVEL": STEERING}),
    "a misspelt variable": (["settings"], {f"PODWRIGHT_{STEERING}": "x"}),
}


@pytest.mark.parametrize(("arguments", "variables"), SAID.values(), ids=SAID)
def test_nothing_steers_the_terminal(
    shell: Shell, tmp_path: Path, arguments: list[str], variables: dict[str, str]
) -> None:
    """Words from blueprints, traces, settings and arguments are shown, without the codes that are in them."""
    for name, blueprint in (
        ("a", AGENT),
        ("named", {**AGENT, "name": f"a{STEERING}", "instructions": STEERING}),
        ("key", {**AGENT, STEERING: 1}),
    ):
        (tmp_path / f"{name}.json").write_text(json.dumps(blueprint))
    assert shell("run", "a.json", STEERING, "-q", "--trace", "trace.json").returncode == 0
    shown = on_terminal(*arguments, cwd=tmp_path, **variables)
    assert shown
    for code in ("\x1b]", "\x07", "\x1b[2J", "\x9b"):
        assert code not in shown, shown


def test_a_trace_that_cannot_be_written(shell: Shell, tmp_path: Path) -> None:
    """A folder is refused before the run; where the disk is full, the answer is printed all the same."""
    (tmp_path / "a.json").write_text(json.dumps(AGENT))
    done = shell("run", "a.json", "x", "--trace", str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert "Is a directory" in done.stderr
    assert "started" not in done.stderr
    done = shell("run", "a.json", "x", "--trace", "/dev/full")
    assert (done.returncode, done.stdout) == (1, "Echo: x\n")
    assert "No space left on device" in done.stderr


DAMAGED = {
    "deep arrays": "[" * 100_000 + "]" * 100_000,
    "deep objects": '{"a":' * 100_000 + "1" + "}" * 100_000,
    "no trace": '{"events": {}}',
    "no number": '{"format": "podwright.trace/1", "duration_ms": NaN}',
    "a NUL": "\0",
    "nothing": "",
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
@pytest.mark.parametrize("command", ["replay", "validate"])
def test_a_hostile_file_is_refused_in_words(shell: Shell, tmp_path: Path, command: str, text: str) -> None:
    """Exit code 1 and a short message, whatever stands in a file."""
    (tmp_path / "a.json").write_text(text)
    done = shell(command, "a.json")
    said = done.stdout + done.stderr
    assert (done.returncode, "Traceback" in said) == (1, False), said
    assert 0 < len(said) < 2000


@pytest.mark.parametrize("inputs", ['{"input": NaN}', '{"input": "a", "input": "b"}', "[" * 9999, "{", "[]"])
def test_inputs_that_are_none(shell: Shell, tmp_path: Path, inputs: str) -> None:
    """What is no JSON object, or an ambiguous one, is refused before the run, as the service would."""
    (tmp_path / "a.json").write_text(json.dumps(AGENT))
    done = shell("run", "a.json", "--inputs", inputs)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("InputError [input_invalid]: The inputs are n")


def test_a_device_that_never_ends(shell: Shell) -> None:
    """What is longer than any trace is not read to its end."""
    done = shell("replay", "/dev/zero")
    assert (done.returncode, "has more than 256 Mi characters" in done.stderr) == (1, True)
