"""What the code of a component does with standard output neither silences the log nor breaks its lines."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.helpers import plain_http
from tests.service.support import Address, Command, check_end

COMPONENT = """
import contextlib, io, logging, multiprocessing, os, subprocess, sys, threading
from podwright import FunctionAgent

print("while it is imported", end="")

def fail():
    raise LookupError("in a thread")

def start(target, *args):
    thread = threading.Thread(target=target, args=args)
    thread.start()
    thread.join()

def ask():
    with contextlib.suppress(EOFError):
        input("name? ")

def fork():
    process = multiprocessing.get_context("fork").Process(target=print, args=("half",), kwargs={"end": ""})
    process.start()
    process.join()

def replace_structlog():
    import structlog
    structlog.configure()
    structlog.get_logger().info("half")

USES = {
    "nothing": lambda: None,
    "print": lambda: print("half", end=""),
    "print to standard error": lambda: print("half", end="", file=sys.stderr),
    "write bytes": lambda: sys.stdout.buffer.write(b"half"),
    "ask": ask,
    "close": lambda: (sys.stdout.close(), sys.stderr.close(), print("half", end="")),
    "close the first stream": lambda: sys.__stdout__.close(),
    "write to the first stream": lambda: print("half", end="", file=sys.__stdout__, flush=True),
    "replace": lambda: setattr(sys, "stdout", io.StringIO()),
    "remove": lambda: setattr(sys, "stdout", None),
    "detach": lambda: sys.stdout.detach(),
    "write to the descriptor": lambda: os.write(1, b"half"),
    "close the descriptor": lambda: os.close(1),
    "replace the descriptor": lambda: os.dup2(os.open(os.devnull, os.O_WRONLY), 1),
    "start a program": lambda: subprocess.run(["printf", "half"]),
    "start it with the streams": lambda: subprocess.run(["printf", "half"], stdout=sys.stdout, stderr=sys.stderr),
    "fork": fork,
    "log by basicConfig": lambda: (logging.basicConfig(force=True, stream=sys.stdout), logging.warning("half")),
    "add a handler": lambda: (logging.getLogger().addHandler(logging.StreamHandler()), logging.warning("half")),
    "configure structlog": replace_structlog,
    "fail in a thread": lambda: start(fail),
    "print half a surrogate": lambda: print("half \\ud800"),
    "print without an end": lambda: print("half " * 50_000, end=""),
}

def do(text):
    USES[text]()
    return "done"

guide = FunctionAgent("guide", do)
"""
USES = [
    line.split('"')[1]
    for line in COMPONENT.splitlines()
    if line.startswith('    "')
]
SHOWN = {
    "print": "stdout",
    "print to standard error": "stderr",
    "write bytes": "stdout",
    "write to the first stream": "stdout",
    "write to the descriptor": "stdout",
    "start a program": "stdout",
    "start it with the streams": "stdout",
    "print half a surrogate": "stdout",
    "print without an end": "stdout",
}
"""Uses that write `half` to a stream."""
SERVE = "from podwright_service.cli import main; main()"


def log_of(
    command: Command,
    address: Address,
    folder: Path,
    use: str,
    **variables: str,
) -> list[dict[str, Any]]:
    """The lines of a service in which one run does something with standard output, and two others do not."""
    (folder / "made.py").write_text(COMPONENT)
    process = command(
        "serve", "made:guide", "--host", "127.0.0.1", "--port", "0",
        code=SERVE, cwd=folder, PODWRIGHT_LOG_FORMAT="json", **variables,
    )  # fmt: skip
    url = address(process)
    for text in (use, "nothing", "nothing"):
        response = plain_http.post(f"{url}/run", json={"input": text})
        assert response.status_code == 200, response.text
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    return [json.loads(line) for line in output.splitlines()]


@pytest.mark.parametrize("use", USES)
def test_each_line_is_json(
    command: Command, address: Address, tmp_path: Path, use: str
) -> None:
    """Each run has its line, and what is printed has lines of its own."""
    lines = log_of(command, address, tmp_path, use)
    assert sum(line["event"] == "run" for line in lines) == 3
    printed = {
        line.get("logger", "").removeprefix("podwright."): line["event"]
        for line in lines
        if "half" in line["event"]
    }
    if use in SHOWN:
        assert SHOWN[use] in printed


def test_workers_write_what_is_printed(
    command: Command, address: Address, tmp_path: Path
) -> None:
    """With several processes too, each half of a line once."""
    lines = log_of(
        command, address, tmp_path, "start a program", WEB_CONCURRENCY="2"
    )
    events = [line["event"] for line in lines]
    assert events.count("run") == 3
    assert events.count("half") == 1
    # which was written before the processes were forked
    assert "while it is imported" not in events


def test_the_answer_of_a_run_is_printed_as_it_is(
    command: Command, tmp_path: Path
) -> None:
    """The output of `podwright run` is that of the component, whatever this prints."""
    (tmp_path / "made.py").write_text(COMPONENT)
    process = command(
        "run", "made:guide", "print", "--quiet", code=SERVE, cwd=tmp_path
    )
    assert check_end(process).endswith("halfdone\n")
