"""Log lines for people: what happened, without the fields of structured lines."""

from __future__ import annotations

import time

from structlog.typing import EventDict

from podwright.data.json_data import JsonMapping

_LEVELS = ("debug", "info")
"""The levels that a line does not show."""
_NOT_OF_FUNCTIONS = {
    "component",
    "event",
    "exception",
    "level",
    "logger",
    "run_id",
    "span_id",
    "timestamp",
    "trace_id",
}
"""The fields of a function's line that the function has not given."""


def short_line(logger: object, method: str, event: EventDict) -> str:
    """A log event as a short line, such as `12:30:01 writer: ok, 1.2 s, 310 tokens, 0.0021 USD`.

    A processor for structlog; the time is the local one.
    """
    match event.get("logger"), event["event"]:
        case "podwright.run", "run":
            text = _run(event)
        case "podwright.run", "run started":
            text = f"{event['component']}: {event['input']}"
        case "podwright.request", "request":
            text = _request(event)
        case "podwright.functions", _:
            text = _of_function(event)
        case _:
            text = _other(event)
    line = f"{time.strftime('%H:%M:%S')} {text}"
    if "exception" in event:
        line += f"\n{event['exception']}"
    return line


def _run(event: JsonMapping) -> str:
    facts = [event["status"]]
    if event.get("code"):
        facts = [f"{event['status']} ({event['code']})"]
    if event.get("error"):
        facts.append(event["error"])
    facts.append(f"{event['duration_ms'] / 1000:.1f} s")
    tokens = event["input_tokens"] + event["output_tokens"]
    if tokens:
        facts.append(f"{tokens} tokens")
    if event["cost_usd"]:
        facts.append(f"{event['cost_usd']:.4f} USD")
    line = f"{event['component']}: {', '.join(facts)}"
    if "value" in event:
        line += f": {event['value']}"
    return line


def _request(event: JsonMapping) -> str:
    return f"{event['method']} {event['path']}: {event['status']}, {event['duration_ms']:.0f} ms"


def _of_function(event: JsonMapping) -> str:
    """A line of a function that a run calls, with the fields that it gives."""
    text = f"{event.get('component')}: {_other(event)}"
    for name, value in event.items():
        if name not in _NOT_OF_FUNCTIONS:
            text += f" {name}={value}"
    return text


def _other(event: JsonMapping) -> str:
    text = str(event["event"])
    if "tool" in event:
        text = f"{event.get('component')}: {text}: {event['tool']}"
    level = event.get("level")
    if level in _LEVELS:
        return text
    return f"{level}: {text}"
