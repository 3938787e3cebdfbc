"""Log lines on standard output, as JSON or as text for a terminal: written by structlog.

The loggers of the standard library write through structlog's formatter. Those of structlog, such as the one of runs,
write directly, which takes a third of the time.

Lines hold ids, names and counts. Inputs and outputs of runs are logged only with the setting `log_content`.
"""

from __future__ import annotations

import json
import logging
import logging.config
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

import orjson
import structlog
from opentelemetry.trace import get_current_span
from structlog.typing import EventDict, Processor
from typing_extensions import override

from podwright.data.json_data import JsonObject, as_object
from podwright.data.media import media_in, parts_with_media, shown_output
from podwright.data.text import printable, truncate
from podwright.events import (
    Event,
    RunEnded,
    RunEvent,
    RunFailed,
    RunFinished,
    RunStarted,
    Subscriber,
    ToolCallFailed,
)
from podwright.functions.run_context import FUNCTION_LOGGER
from podwright.models import litellm_loader
from podwright_service.observability.library_loggers import (
    AT_WARNING,
    is_of_library,
)
from podwright_service.observability.output import (
    StreamName,
    WriteLine,
    log_stream,
    write_printed_with,
)
from podwright_service.observability.semconv import run_status
from podwright_service.observability.short_lines import short_line
from podwright_service.observability.tracebacks import (
    error_of_own_code,
    traceback_of,
    without_secrets,
)
from podwright_service.origin import current_origin
from podwright_service.settings import Settings

_QUIET = (
    "opentelemetry.baggage",
    "opentelemetry.trace",
    "opentelemetry.util.re",
)
"""Loggers that repeat request headers, or the collector's headers with their keys."""
_RUN_LOGGER = "podwright.run"
_request_fields = structlog.stdlib.ExtraAdder(
    ("method", "path", "status", "duration_ms", "caller")
)
_all_fields = structlog.stdlib.ExtraAdder()


def configure_logging(settings: Settings) -> None:
    """Send the log lines of this process, and of structlog loggers in tools, to standard output."""
    # a forked process must not write buffered text a second time
    log_stream().flush()
    logging.config.dictConfig(logging_config(settings))
    logging.captureWarnings(True)
    structlog.configure(
        processors=[*_COMMON, *_renderers(settings)],
        wrapper_class=structlog.make_filtering_bound_logger(
            _library_level(settings)
        ),
        logger_factory=_make_logger,
        cache_logger_on_first_use=True,
    )
    write_printed_with(_printed_logger(settings))


def _make_logger(*_: object) -> structlog.WriteLogger:
    """Make the logger of a module when it is first used: a program may have another output by then."""
    return structlog.WriteLogger(log_stream())


def _printed_logger(settings: Settings) -> WriteLine:
    """A function that writes printed lines, whatever the code of a component makes of structlog and `logging`."""
    logger = structlog.wrap_logger(
        structlog.WriteLogger(log_stream()),
        processors=[*_COMMON, *_renderers(settings)],
        wrapper_class=structlog.make_filtering_bound_logger(
            _library_level(settings)
        ),
    )
    levels = {"stdout": logging.INFO, "stderr": logging.WARNING}

    def write(stream: StreamName, line: str) -> None:
        logger.log(levels[stream], line, logger=f"podwright.{stream}")

    return write


def logging_config(settings: Settings) -> dict[str, Any]:
    """The configuration for `logging.config.dictConfig`, and for gunicorn's `logconfig_dict`."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "structlog": {
                "()": structlog.stdlib.ProcessorFormatter,
                "foreign_pre_chain": [
                    structlog.stdlib.add_logger_name,
                    _add_fields,
                    _hide_secrets_of_libraries,
                    *_COMMON,
                ],
                "processors": [
                    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                    *_renderers(settings),
                ],
            }
        },
        "handlers": {
            "stdout": {
                "()": _StandardOutput,
                "stream": log_stream(),
                "formatter": "structlog",
            }
        },
        "root": {"handlers": ["stdout"], "level": _library_level(settings)},
        "loggers": {
            "podwright": {"level": settings.log_level.upper()},
            # gunicorn's workers copy the handlers of this logger to uvicorn's.
            "gunicorn.error": {"handlers": ["stdout"], "propagate": False},
            "alembic": {"level": "WARNING"},  # else it lists its own plug-ins
            **_levels_of_libraries(settings),
        },
    }


def _levels_of_libraries(settings: Settings) -> dict[str, Any]:
    """The loggers of libraries whose lines begin at a higher level than others."""
    levels: dict[str, str] = {}
    if settings.log_format == "short":
        # the start and the end of the server say nothing to people
        levels["uvicorn.error"] = "WARNING"
    if settings.log_level == "info":
        levels |= dict.fromkeys(AT_WARNING, "WARNING")
    levels |= dict.fromkeys(_QUIET, "CRITICAL")
    if litellm_loader.is_silent():
        levels |= dict.fromkeys(litellm_loader.LOGGERS, "CRITICAL")
    return {name: {"level": level} for name, level in levels.items()}


class _StandardOutput(logging.StreamHandler[TextIO]):
    @override
    def format(self, record: logging.LogRecord) -> str:
        """The line of a record; a plain one if its fields cannot be had, so that no error is without a line."""
        try:
            return super().format(record)
        except Exception:  # noqa: BLE001 - whatever a field is, the record must not be lost
            return plain_line(record)

    @override
    def handleError(self, record: logging.LogRecord) -> None:
        """Drop a line that cannot be written, as on a full disk: the service goes on."""


def plain_line(record: logging.LogRecord) -> str:
    """A record as a line of JSON, made of nothing but its text and its traceback."""
    fields = {
        "event": str(record.msg),
        "logger": record.name,
        "level": record.levelname.lower(),
        "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(),
    }
    if record.exc_info and record.exc_info[1] is not None:
        fields["exception"] = traceback_of(record.exc_info[1])
    return json.dumps(fields)


def _library_level(settings: Settings) -> str:
    """The level of other loggers than Podwright's: debug lines of libraries may hold prompts and keys."""
    level = settings.log_level.upper()
    if level == "DEBUG":
        return "INFO"
    return level


def log_runs(settings: Settings) -> Subscriber:
    """A subscriber that writes one line for each run, and one with a traceback for each tool that raises an error.

    In a program that does not use structlog, they are records of the standard library's logger.
    """
    structured = structlog.get_logger()
    standard = _standard_logger()

    def log(
        level: int, line: str, event: RunEvent, fields: dict[str, Any]
    ) -> None:
        logger = standard
        if structlog.is_configured():
            logger = structured
        common = {
            "logger": _RUN_LOGGER,
            "run_id": event.run_id,
            "component": event.component,
        }
        logger.log(level, line, **(common | fields))

    def handle(event: Event) -> None:
        match event:
            case ToolCallFailed() if "run_id" not in event.error:
                error = error_of_own_code(event)
                if error is not None:
                    fault = {"tool": event.tool, "exc_info": error}
                    log(logging.WARNING, "tool failed", event, fault)
            case RunStarted(parent_id=None, remote=None):
                if settings.log_content:
                    content = {"input": _without_media(event.input)}
                    log(logging.INFO, "run started", event, content)
            case RunEnded(parent_id=None, remote=None):
                level = logging.INFO
                if run_status(event) == "failed":
                    level = logging.WARNING
                log(level, "run", event, _fields(event, settings.log_content))
            case _:
                pass

    return handle


def log_deletion(
    component: str, caller: str, deleted: Mapping[str, int]
) -> None:
    """Write a line for conversations that a caller has deleted, without their names.

    Args:
        component: Their component.
        caller: The name of the API key; empty if it has none.
        deleted: How much was deleted, by kind.
    """
    log = _standard_logger()
    if structlog.is_configured():
        log = structlog.get_logger()
    fields: dict[str, Any] = {
        "logger": _RUN_LOGGER,
        "component": component,
        **deleted,
    }
    if caller:
        fields["caller"] = caller
    log.info("conversations deleted", **fields)


def log_action(event: str, run_id: str, component: str, caller: str) -> None:
    """Write a line for what a caller does with a background run; its line `run` has only who started it.

    Args:
        event: What happened, such as `run approved`.
        run_id: The run.
        component: Its component.
        caller: The name of the API key; empty if it has none.
    """
    log = _standard_logger()
    if structlog.is_configured():
        log = structlog.get_logger()
    fields = {"logger": _RUN_LOGGER, "run_id": run_id, "component": component}
    if caller:
        fields["caller"] = caller
    log.info(event, **fields)


class WithoutSecrets(logging.Filter):
    """Has the handlers of a program write the traceback of a record without what may be secret in URLs."""

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info and record.exc_info[1] is not None:
            # formatters take this text instead of making one
            record.exc_text = traceback_of(record.exc_info[1]).rstrip("\n")
        return True


_without_secrets = WithoutSecrets()


def _standard_logger() -> structlog.stdlib.BoundLogger:
    """The logger of lines about runs in a program that does not use structlog."""
    logger = logging.getLogger(_RUN_LOGGER)
    logger.addFilter(_without_secrets)
    return structlog.wrap_logger(
        logger,
        processors=[_to_record],
        wrapper_class=structlog.stdlib.BoundLogger,
    )


def _without_media(data: Any) -> Any:
    """An input in which the data of images, files and audio are cut short."""
    parts = parts_with_media(data)
    if parts:
        return list(map(_cut_part, parts))
    named = as_object(data)
    shown = {
        name: _without_media(value)
        for name, value in named.items()
        if media_in(value)
    }
    return named | shown or data


def _cut_part(part: JsonObject) -> JsonObject:
    kind = part["type"]
    content = as_object(part[kind])
    if not content:
        return part
    shown = {
        key: truncate(value, 60) if isinstance(value, str) else value
        for key, value in content.items()
    }
    return {**part, kind: shown}


def _fields(event: RunEnded, content: bool) -> dict[str, Any]:
    usage = event.usage
    fields: dict[str, Any] = {
        "kind": event.kind,
        "status": run_status(event),
        "duration_ms": event.duration_ms,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cost_usd": usage.cost,
    }
    if usage.cost is None:
        fields["known_cost_usd"] = usage.known_cost
    origin = current_origin.get()
    fields |= origin.members
    named = origin.to_dict()
    named.pop("members", None)
    if origin.via:
        named["via"] = origin.via
    metadata = origin.attributes.metadata
    if metadata:
        fields["metadata"] = dict(metadata)
    fields |= named
    if isinstance(event, RunFinished) and event.finish_reason != "stop":
        fields["finish_reason"] = event.finish_reason
    if isinstance(event, RunFailed):
        fields["code"] = event.error.get("code")
        if content:
            fields["error"] = event.error.get("message")
    elif isinstance(event, RunFinished) and content:
        fields["value"] = shown_output(event.value, event.data)
    return fields


def _renderers(settings: Settings) -> list[Processor]:
    terminal = log_stream().isatty()
    log_format = settings.log_format
    if log_format == "auto" and not terminal:
        log_format = "json"
    if log_format == "json":
        return [
            structlog.processors.format_exc_info,
            _hide_secrets_of_exceptions,
            structlog.processors.JSONRenderer(_to_json),
        ]
    return [
        structlog.processors.format_exc_info,
        _hide_secrets_of_exceptions,
        _escape_control_characters,
        _lines_for_people(log_format, terminal),
    ]


def _to_record(
    logger: object, method: str, event: EventDict
) -> tuple[tuple[str], dict[str, Any]]:
    """The arguments of a standard logger: the fields are in the message, and in `podwright` of the record."""
    message = event.pop("event")
    error = event.pop("exc_info", None)
    del event["logger"]
    # a representation has no line breaks, which would look like lines of their own
    fields = [f"{name}={value!r}" for name, value in event.items()]
    text = " ".join([message, *fields])
    extra = {"podwright": dict(event)}
    return (text,), {"exc_info": error, "extra": extra}


def _lines_for_people(log_format: str, terminal: bool) -> Processor:
    if log_format == "short":
        return short_line
    return structlog.dev.ConsoleRenderer(
        colors=terminal, exception_formatter=structlog.dev.plain_traceback
    )


def _to_json(event: EventDict, default: Callable[[Any], Any]) -> str:
    try:
        return orjson.dumps(event, default).decode()
    except TypeError:  # lone surrogates and integers beyond 64 bits
        return json.dumps(event, default=default)


def _add_fields(logger: Any, method: str, event: EventDict) -> EventDict:
    """Add the extra fields of a log record: those of requests, and all that a function gives its line.

    Other libraries may put anything in theirs.
    """
    record: logging.LogRecord = event["_record"]
    if record.name == FUNCTION_LOGGER:
        return _all_fields(logger, method, event)
    return _request_fields(logger, method, event)


def _hide_secrets_of_libraries(
    logger: object, method: str, event: EventDict
) -> EventDict:
    """Leave out of URLs in a line of a library what may be secret; the lines of a component's own code stay."""
    if is_of_library(event["_record"]):
        event["event"] = without_secrets(event["event"])
    return event


def _hide_secrets_of_exceptions(
    logger: object, method: str, event: EventDict
) -> EventDict:
    """Leave out of URLs in a traceback what may be secret: most exceptions are those of libraries."""
    if "exception" in event:
        event["exception"] = without_secrets(event["exception"])
    return event


def _add_trace_ids(logger: object, method: str, event: EventDict) -> EventDict:
    try:
        context = get_current_span().get_span_context()
    except (
        AttributeError
    ):  # the code of a component has attached a context that is none
        return event
    if context.is_valid:
        event["trace_id"] = f"{context.trace_id:032x}"
        event["span_id"] = f"{context.span_id:016x}"
    return event


def _escape_control_characters(
    logger: object, method: str, event: EventDict
) -> EventDict:
    """Keep text from outside from controlling a terminal, or from looking like another line."""
    for name, value in event.items():
        if not isinstance(value, str):
            continue
        if name == "exception":  # a traceback has lines
            event[name] = printable(value)
        else:
            event[name] = printable(value.replace("\n", "\\n"))
    return event


_COMMON: list[Processor] = [
    structlog.processors.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    _add_trace_ids,
]
