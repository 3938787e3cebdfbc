"""What a service's process writes, read line by line."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, cast

import httpx

from podwright_service.observability.logging import Writer

Command = Callable[..., subprocess.Popen[str]]
Address = Callable[[subprocess.Popen[str]], str]
SECRET = "canary-7d1f"


def served(command: Command, address: Address, newsroom: Path, **variables: str) -> list[str]:
    process = command(
        "serve", str(newsroom / "writer"), "--host", "127.0.0.1", "--port", "0",
        PODWRIGHT_MODEL="offline/echo", **variables,
    )  # fmt: skip
    with httpx.Client(base_url=address(process), timeout=30) as client:
        trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        odd = {"baggage": f"{SECRET} {SECRET}", "traceparent": trace, "tracestate": f"{SECRET}=,{SECRET},a=b,a=b"}
        assert client.post("/run", json={"input": SECRET}, headers=odd).status_code == 200
        client.get("/health")
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return said.splitlines()


def test_a_run_is_one_line_of_facts(command: Command, address: Address, newsroom: Path) -> None:
    """On a pipe every line is JSON; that of a run says how it ended and what it used, not what was said."""
    lines: list[dict[str, Any]] = [json.loads(line) for line in served(command, address, newsroom)]
    runs = [line for line in lines if line["event"] == "run"]
    assert [(run["status"], run["component"], run["kind"], run["level"]) for run in runs] == [
        ("ok", "writer", "agent", "info")
    ]
    assert runs[0]["input_tokens"] > 0
    assert runs[0]["duration_ms"] > 0
    assert len(runs[0]["run_id"]) == 32
    assert SECRET not in json.dumps(lines)
    assert not [line for line in lines if line["event"] == "request"]


def test_requests_and_content_are_logged_when_asked_for(command: Command, address: Address, newsroom: Path) -> None:
    """`log_level=debug` adds a line for each request, `log_content` what was said."""
    variables = {"PODWRIGHT_LOG_LEVEL": "debug", "PODWRIGHT_LOG_CONTENT": "true"}
    lines = [json.loads(line) for line in served(command, address, newsroom, **variables)]
    requests = [(line["method"], line["path"], line["status"]) for line in lines if line["event"] == "request"]
    assert requests == [("POST", "/run", 200), ("GET", "/health", 200)]
    assert any(SECRET in str(line.get("value")) for line in lines)


def test_lines_for_people_are_no_json(command: Command, address: Address, newsroom: Path) -> None:
    """With `log_format=console` a run's line reads as words and facts."""
    lines = served(command, address, newsroom, PODWRIGHT_LOG_FORMAT="console")
    assert not any(line.startswith("{") for line in lines)
    assert any("status=ok" in line and "component=writer" in line for line in lines)


ODD = """
import logging, warnings
from podwright_service.observability import logging as logs
from podwright_service.settings import Settings
writer = logs.configure(Settings(log_format={format!r}))
logging.getLogger("podwright").warning("a\\x1b[2Jb\\nc\\udc80")
warnings.warn("careful")
try:
    raise ZeroDivisionError("c\\x1b[2Jd")
except ZeroDivisionError:
    logging.getLogger("asyncio").exception("broken")
writer.flush(30)
"""


def said_oddly(format_: str) -> str:
    process = subprocess.run(
        [sys.executable, "-c", ODD.format(format=format_)], capture_output=True, timeout=60, check=True
    )
    return process.stdout.decode()


def test_control_characters_steer_nothing() -> None:
    """An escape sequence, a line end and half a surrogate pair are text, in JSON and on a terminal."""
    lines = [json.loads(line) for line in said_oddly("json").splitlines()]
    assert len(lines) == 3
    assert "ZeroDivisionError" in lines[2]["exception"]
    assert "careful" in lines[1]["event"]
    text = said_oddly("console")
    assert "\x1b[2J" not in text
    assert r"a\x1b[2Jb\nc" in text


def test_a_full_pipe_holds_nothing_up() -> None:
    """Writing to a pipe that nobody reads returns at once, and loses lines rather than growing for ever."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as read, os.fdopen(writing, "wb") as write:
        writer = Writer(write)
        start = time.monotonic()
        for _ in range(30_000):
            writer.write(b"x" * 100)
        assert time.monotonic() - start < 5
        assert len(writer._lines) <= 10_000
        got = b""
        while b"Log lines were lost." not in got:
            got += read.read1(65536)
        while writer._lines or writer._writing:
            os.set_blocking(reading, False)
            read.read1(65536)
            time.sleep(0.001)


def test_all_is_written_at_the_end() -> None:
    """`flush` waits until the lines are there."""
    file = io.BytesIO()
    writer = Writer(file)
    for number in range(1000):
        writer.write(b"%d" % number)
    writer.flush(30)
    assert file.getvalue().split() == [b"%d" % number for number in range(1000)]


class Slow(io.RawIOBase):
    """A pipe that is full from time to time, and takes some bytes at a time."""

    def __init__(self) -> None:
        self.got, self.calls = b"", 0

    def write(self, data: Any, /) -> int | None:
        self.calls += 1
        time.sleep(0.01)
        if self.calls % 3 == 0:
            return None
        self.got += bytes(data[:10])
        return len(data[:10])


def test_what_is_being_written_is_waited_for() -> None:
    """A line that the thread has taken, and the pipe has not, is not yet written."""
    file = Slow()
    writer = Writer(cast("BinaryIO", file))
    writer.write(b"x" * 100)
    while not file.calls:
        time.sleep(0.001)
    writer.flush(30)
    assert file.got == b"x" * 100 + b"\n"


WHILE_WRITING = """
import os, select, sys, time
from podwright_service.observability import logging as logs
from podwright_service.settings import Settings
print("before")
writer = logs.configure(Settings())
writer.write(b"x" * 200_000)
while select.select([], [1], [], 0)[1]:  # until the pipe is full, and the thread waits in it
    time.sleep(0.01)
if not (child := os.fork()):
    sys.exit(0)
end = time.monotonic() + 20
while not (done := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < end:
    time.sleep(0.01)
sys.stderr.write("ended" if done[0] else "hangs")
sys.stderr.flush()
os._exit(0)
"""


def test_a_process_forked_while_a_line_is_written_ends() -> None:
    """It waits for no lock that the thread held in that moment: workers are forked while others write."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    process = subprocess.Popen(
        [sys.executable, "-c", WHILE_WRITING], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stderr.read() == b"ended"
        assert process.stdout.read().startswith(b"before\nxxx")


FORKING = """
import os, sys
from podwright_service.observability.logging import Writer
writer = Writer(sys.stdout.buffer)
writer.write(b"parent")
if not os.fork():  # the parent's line is not yet written
    writer.write(b"child")
    writer.flush(30)
    os._exit(0)
os.wait()
writer.flush(30)
"""


def test_a_forked_process_writes_its_own_lines() -> None:
    """A process forked while lines wait writes each of its own, and none of its parent's."""
    done = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, timeout=60, check=True)
    assert sorted(done.stdout.split()) == ["child", "parent"]


def test_every_worker_logs_its_runs(command: Command, address: Address, newsroom: Path) -> None:
    """With several processes, each run is one line, whichever process served it."""
    process = command(
        "serve", str(newsroom / "writer"), "--host", "127.0.0.1", "--port", "0",
        PODWRIGHT_MODEL="offline/echo", WEB_CONCURRENCY="3",
    )  # fmt: skip
    base = address(process)
    told = {httpx.post(f"{base}/run", json={"input": SECRET}).headers["Podwright-Run-Id"] for _ in range(30)}
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=60)
    runs = [line["run_id"] for line in map(json.loads, said.splitlines()) if line["event"] == "run"]
    assert len(told) == 30
    assert sorted(runs) == sorted(told)
