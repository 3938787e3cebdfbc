"""The output of the process of a service: the log has it to itself, and writes what code prints, a line each.

The log has a duplicate of the descriptor of standard output, so it does not depend on `sys.stdout`, which the code of a
component may close or replace. What this code, or a program that it starts, prints there becomes lines of the log:
otherwise half a line would be glued to the next line of JSON. So does what it writes to `sys.stderr`. The descriptor of
standard error stays as it is, for the last words of a process that crashes.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Literal, TextIO

from typing_extensions import Buffer, override

StreamName = Literal["stdout", "stderr"]
WriteLine = Callable[[StreamName, str], object]
"""Writes a line that was printed to the log."""

_DESCRIPTORS: dict[StreamName, int] = {"stdout": 1, "stderr": 2}
_LONGEST = 64 * 1024
"""Bytes of a line after which it is written although it goes on."""
_LINE_END = re.compile(rb"[\r\n]+")


@contextlib.contextmanager
def separate_log() -> Generator[None]:
    """Give the log a descriptor of its own, and have it write what is printed, in the process of a service.

    The streams of a program that has replaced them, as a notebook or a test does, are left alone, and so is a terminal,
    where code may ask its developer.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if _output.log or sys.stdout is not sys.__stdout__ or not is_main:
        yield
        return
    sys.stdout.flush()
    _output.log = os.fdopen(
        os.dup(sys.stdout.fileno()),
        "w",
        encoding="utf-8",
        errors="backslashreplace",
    )
    with contextlib.ExitStack() as stack:
        # its file stays open: lines may follow until the process ends
        stack.callback(setattr, _output, "log", None)
        if not sys.stdout.isatty():
            stack.callback(_output.streams.clear)
            stack.enter_context(
                contextlib.redirect_stdout(_text_stream("stdout"))
            )
            if sys.stderr is sys.__stderr__:
                stack.enter_context(
                    contextlib.redirect_stderr(_text_stream("stderr"))
                )
            begin_reading()
            stack.callback(end_reading)
        yield


def log_stream() -> TextIO:
    """Where log lines are written."""
    return _output.log or sys.stdout


def write_printed_with(write: WriteLine) -> None:
    """Have lines that are printed written by a function."""
    _output.write = write


def begin_reading() -> None:
    """Have the log write what comes to the descriptor of standard output; called in each process that serves."""
    if _output.streams and _output.pump is None:
        _output.pump = _Pump()


def end_reading() -> None:
    """Write all that was printed; the descriptor of standard output is that of the log again.

    Called at the end of each process, and before a fork: threads do not survive it, and halves of lines would be
    written by each process.
    """
    if _output.pump is not None:
        _output.pump.end()
    _output.pump = None
    for stream in _output.streams:
        stream.end()


class _PrintedLines(io.RawIOBase):
    """A stream whose lines the log writes. Half a line waits for its end, for a flush, or for the end of the process.

    It stays open when it is closed: the code that does so is not all code of the process.
    """

    def __init__(self, name: StreamName) -> None:
        super().__init__()
        self.name = f"<{name}>"
        self._stream: StreamName = name
        # by thread, because `print` writes a line in pieces
        self._halves: dict[int, bytes] = {}

    @override
    def writable(self) -> bool:
        return True

    @override
    def fileno(self) -> int:
        return _DESCRIPTORS[self._stream]

    @override
    def isatty(self) -> bool:
        return False

    @override
    def write(self, data: Buffer) -> int:
        thread = threading.get_ident()
        content = bytes(data)
        text = self._halves.pop(thread, b"") + content
        *lines, half = _LINE_END.split(text)
        if len(half) > _LONGEST:
            lines.append(half)
        elif half:
            self._halves[thread] = half
        for line in lines:
            self._write_line(line)
        return len(content)

    @override
    def flush(self) -> None:
        self._write_line(self._halves.pop(threading.get_ident(), b""))

    @override
    def close(self) -> None:
        self.flush()

    def end(self) -> None:
        """Write what has no end."""
        for thread in list(self._halves):
            self._write_line(self._halves.pop(thread, b""))

    def _write_line(self, line: bytes) -> None:
        text = line.decode(errors="backslashreplace")
        if not text.strip():
            return
        # a disk that is full is not an error of the code that prints
        with contextlib.suppress(OSError):
            _output.write(self._stream, text)


class _Pump:
    """Reads what programs and libraries write to the descriptor of standard output, in a thread."""

    def __init__(self) -> None:
        self._lines = _PrintedLines("stdout")
        self._read_end, write_end = os.pipe()
        os.dup2(write_end, _DESCRIPTORS["stdout"])
        os.close(write_end)
        self._thread = threading.Thread(
            target=self._read, name="podwright-stdout", daemon=True
        )
        self._thread.start()

    def end(self) -> None:
        """Give the descriptor back, and write what has come."""
        # the write end is closed, so the thread ends unless another program still has it
        os.dup2(log_stream().fileno(), _DESCRIPTORS["stdout"])
        self._thread.join(timeout=1)

    def _read(self) -> None:
        while data := os.read(self._read_end, _LONGEST):
            self._lines.write(data)
        self._lines.flush()


def _text_stream(name: StreamName) -> TextIO:
    lines = _PrintedLines(name)
    _output.streams.append(lines)
    return io.TextIOWrapper(
        lines, "utf-8", errors="backslashreplace", write_through=True
    )


def _write_plainly(stream: StreamName, line: str) -> None:
    """Write a line before the log is configured."""
    log_stream().write(f"{line}\n")


@dataclass
class _Output:
    """The output of this process."""

    log: TextIO | None = None
    """The log's own; None unless it is separate."""
    pump: _Pump | None = None
    streams: list[_PrintedLines] = field(default_factory=list[_PrintedLines])
    """Those in place of `sys.stdout` and `sys.stderr`."""
    write: WriteLine = _write_plainly


_output = _Output()
