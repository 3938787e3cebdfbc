"""What the service says of itself: lines of JSON, or for a person on a terminal, all made by one renderer.

A line holds facts: ids, names, counts. What was said to a model or by it is in none, unless `log_content` asks for it.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import orjson
from opentelemetry.trace import get_current_span

from podwright.events import RUN_ENDS, Event, RunFailed, RunFinished, RunStarted
from podwright_service.observability.plain_structlog import structlog
from podwright_service.observability.tracing import STATUS
from podwright_service.settings import Settings

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor

_MOST_LINES = 10_000
_GATHER = 0.02
_LAST = 1.0
THREAD = "podwright-logs"
"""The name of the thread that writes."""

_TAKEN_OVER = ("uvicorn", "uvicorn.error", "uvicorn.access", "gunicorn.error", "gunicorn.access")


class Writer:
    """Writes lines from a thread of its own, so that a pipe that nobody empties never holds up a run.

    Lines are gathered for some milliseconds and written together, which also costs less than writing each. Beyond
    10 000 unwritten lines further ones are lost, and how many is told when there is room again.
    """

    def __init__(self, file: BinaryIO) -> None:
        # the lock of a buffered file would be held for ever in a process that is forked while the thread writes
        with contextlib.suppress(OSError):  # io.BytesIO has no number, and no need
            number = file.fileno()
            file.flush()
            file = cast("BinaryIO", open(number, "wb", buffering=0, closefd=False))  # noqa: SIM115
        self._file = file
        self._process = 0
        atexit.register(self.flush)

    def write(self, line: bytes) -> None:
        """Take a line, without its end."""
        if self._process != os.getpid():
            self._begin()
        if len(self._lines) >= _MOST_LINES:
            self._lost += 1
            return
        self._lines.append(line)
        if not self._wake.is_set():
            self._wake.set()

    def flush(self, within: float = _LAST) -> None:
        """Wait until all is written, but no longer than some seconds."""
        end = time.monotonic() + within
        # in this order: lines are taken from there only while it writes
        while self._process == os.getpid() and (self._lines or self._writing) and time.monotonic() < end:
            time.sleep(_GATHER / 10)

    def _begin(self) -> None:
        # of a process that was forked, everything: its lines are the parent's to write, its thread did not come along
        self._process = os.getpid()
        self._lines: deque[bytes] = deque()
        self._lost = 0
        self._wake, self._writing = threading.Event(), False
        threading.Thread(target=self._work, daemon=True, name=THREAD).start()

    def _work(self) -> None:
        while True:
            self._wake.wait()
            time.sleep(_GATHER)
            self._wake.clear()
            self._writing = True
            try:
                self._drain()
            except (OSError, ValueError):  # the reader is gone, and there is nobody to tell
                self._lines.clear()
            self._writing = False

    def _drain(self) -> None:
        while self._lines:
            batch = [self._lines.popleft() for _ in range(min(len(self._lines), 500))]
            if self._lost:
                batch.append(orjson.dumps({"level": "warning", "event": "Log lines were lost.", "lines": self._lost}))
                self._lost = 0
            self._put(b"\n".join(batch) + b"\n")

    def _put(self, data: bytes) -> None:
        while data:
            written = cast("int | None", self._file.write(data))
            if written is None:  # a pipe that is full, and that somebody else has made non-blocking
                time.sleep(_GATHER)
            data = data[written or 0 :]


class _Logger:
    """What structlog hands rendered lines to."""

    def __init__(self, writer: Writer) -> None:
        self.debug = self.info = self.warning = self.error = self.critical = self.msg = writer.write


class _Handler(logging.Handler):
    """Renders what the standard library's loggers say as structlog's lines are rendered."""

    def __init__(self, formatter: structlog.stdlib.ProcessorFormatter, writer: Writer) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self._write = writer.write

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._write(self.format(record).encode())
        except Exception:  # noqa: BLE001 - as every handler does
            self.handleError(record)


def configure(settings: Settings, file: BinaryIO | None = None) -> Writer:
    """Have all that this process says go through one renderer, to standard output.

    Args:
        settings: Level and format.
        file: Where to in its place.
    """
    sys.stdout.flush()  # what was printed before stands above, and is not in the buffer of each worker
    out = file or sys.stdout.buffer
    on_terminal = settings.log_format == "console" or (settings.log_format == "auto" and out.isatty())
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _with_trace,
    ]
    ending: list[Processor] = [structlog.processors.format_exc_info]
    if on_terminal:
        ending += [_printable, structlog.dev.ConsoleRenderer(colors=out.isatty(), exception_formatter=_as_text)]
        ending.append(_as_bytes)
    else:
        ending.append(structlog.processors.JSONRenderer(serializer=_as_json))
    writer = Writer(out)
    structlog.configure(
        processors=[*shared, *ending],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: _Logger(writer),
        cache_logger_on_first_use=True,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _without_color, *ending, _as_str],
    )
    root = logging.getLogger()
    root.handlers[:] = [_Handler(formatter, writer)]
    root.setLevel(max(level, logging.INFO))  # what libraries say of themselves on `debug` may hold anything
    logging.getLogger("podwright").setLevel(level)
    for name in _TAKEN_OVER:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = not name.endswith(".access")  # there is a line for each request of our own
    for name in ("opentelemetry.baggage", "opentelemetry.trace"):  # what is wrong in callers' headers is theirs
        logging.getLogger(name).setLevel(logging.ERROR)
    logging.captureWarnings(True)
    return writer


def run_lines(settings: Settings) -> Callable[[Event], None]:
    """A subscriber that logs a line for each run."""
    log = structlog.get_logger("podwright.run").bind()

    def hear(event: Event) -> None:
        if event.parent_id is not None or event.remote is not None:
            return
        if isinstance(event, RunStarted) and settings.log_content:
            log.info("run started", run_id=event.run_id, component=event.component, input=event.input)
        if isinstance(event, RUN_ENDS):
            usage = event.usage
            facts: dict[str, Any] = {
                "run_id": event.run_id,
                "component": event.component,
                "kind": event.kind,
                "status": STATUS[type(event)],
                "duration_ms": event.duration_ms,
                "input_tokens": usage.input_tokens,
                "output_tokens": usage.output_tokens,
                "cost_usd": usage.cost,
            }
            if isinstance(event, RunFailed):
                facts["code"] = event.error.get("code")
                if settings.log_content:
                    facts["error"] = event.error.get("message")
            elif isinstance(event, RunFinished) and settings.log_content:
                facts["value"] = event.value
            (log.warning if isinstance(event, RunFailed) else log.info)("run", **facts)

    return hear


def _with_trace(logger: object, method: str, facts: EventDict) -> EventDict:
    context = get_current_span().get_span_context()
    if context.is_valid:
        facts["trace_id"] = f"{context.trace_id:032x}"
        facts["span_id"] = f"{context.span_id:016x}"
    return facts


def _without_color(logger: object, method: str, facts: EventDict) -> EventDict:
    facts.pop("color_message", None)  # uvicorn's, with the codes of a terminal
    return facts


def _as_json(facts: EventDict, **_: object) -> bytes:
    try:
        return orjson.dumps(facts, default=repr, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:  # half a surrogate pair, or a number of more than 64 bits
        return orjson.dumps({name: ascii(value) for name, value in facts.items()})


def _as_bytes(logger: object, method: str, line: Any) -> Any:
    return str(line).encode(errors="backslashreplace")


def _as_str(logger: object, method: str, line: Any) -> Any:
    return line.decode()  # which is what the standard library's formatters give


def _as_text(file: Any, error: Any) -> None:
    structlog.dev.plain_traceback(file, error)


def _printable(logger: object, method: str, facts: EventDict) -> EventDict:
    """Control characters as text: what came from outside must not steer a terminal."""
    for name, value in facts.items():
        if isinstance(value, str):
            kept = "\n" if name == "exception" else ""
            facts[name] = "".join(one if one.isprintable() or one in kept else ascii(one)[1:-1] for one in value)
    return facts
