"""A collector of spans: OTLP over http/protobuf on a real socket, decoded with the protocol's own classes."""

from __future__ import annotations

import gzip
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from podwright_service.testing.serving import LocalServer, Request, reply


@dataclass(frozen=True, slots=True)
class Span:
    """One received span; ids are in hexadecimal."""

    name: str
    kind: int
    """OTLP's number: 1 internal, 2 server, 3 client."""
    status: int
    """OTLP's number: 0 unset, 1 ok, 2 error."""
    id: str
    parent: str
    """Id of the span that it is in; empty for a root."""
    trace: str
    attributes: Mapping[str, Any]
    events: list[str]
    """Names of its events."""
    links: list[tuple[str, str]]
    """Trace and span that it is linked to."""
    resource: Mapping[str, Any]
    """Attributes of the process that made it, such as `service.name`."""


class SpanCollector(LocalServer):
    """Takes spans and keeps them.

    Args:
        status: What it answers; spans of requests that are answered otherwise than with 200 are not kept.
    """

    def __init__(self, status: int = 200) -> None:
        super().__init__()
        self.status = status
        self.spans: list[Span] = []
        """What has arrived, in that order."""
        self.requests = 0
        """How often something was sent."""

    def variables(self, url: str) -> dict[str, str]:
        """The environment of a service that sends its spans here, soon after they end."""
        return {
            "OTEL_TRACES_EXPORTER": "otlp",
            "OTEL_EXPORTER_OTLP_ENDPOINT": url,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
        }

    def respond(self, request: Request, connection: socket.socket) -> bool:
        """Take what was sent."""
        self.requests += 1
        if self.status == 200:
            zipped = request.headers.get("content-encoding") == "gzip"
            self.take(gzip.decompress(request.body) if zipped else request.body)
        connection.sendall(reply(b"", self.status, "application/x-protobuf"))
        return True

    def take(self, body: bytes) -> None:
        """Keep the spans of one export request."""
        message: Any = ExportTraceServiceRequest.FromString(body)
        for one in message.resource_spans:
            resource = _attributes(one.resource.attributes)
            self.spans += [_span(span, resource) for scope in one.scope_spans for span in scope.spans]

    def wait(self, ready: Callable[[list[Span]], object], within: float = 30) -> list[Span]:
        """Wait until something holds of what has arrived.

        Raises:
            AssertionError: It does not, after so many seconds; with what did arrive.
        """
        deadline = time.monotonic() + within
        while not ready(self.spans):
            if time.monotonic() > deadline:
                raise AssertionError(f"Waited {within:g} s for spans. What arrived:\n{self.tree()}")
            time.sleep(0.02)
        return self.spans

    def wait_for(self, name: str, within: float = 30) -> Span:
        """The first span of this name whose trace is whole: its root is there, and every parent that is named.

        Raises:
            AssertionError: None has come in so many seconds.
        """

        def whole(spans: list[Span]) -> list[Span]:
            missing = {span.trace for span in spans if span.parent and span.parent not in {one.id for one in spans}}
            rooted = {span.trace for span in spans if not span.parent} - missing
            return [span for span in spans if span.name == name and span.trace in rooted]

        self.wait(whole, within)
        return whole(self.spans)[0]

    def named(self, name: str) -> Span:
        """The first span of this name.

        Raises:
            AssertionError: There is none.
        """
        for span in self.spans:
            if span.name == name:
                return span
        raise AssertionError(f"There is no span '{name}'. What arrived:\n{self.tree()}")

    def path(self, span: Span) -> list[Span]:
        """A span and all that it is in, outermost first, as far as they have arrived."""
        by_id = {one.id: one for one in self.spans}
        found = [span]
        while (outer := by_id.get(found[0].parent)) is not None:
            found.insert(0, outer)
        return found

    def tree(self, trace: str | None = None) -> str:
        """The spans of a trace, or of all, a line each, indented by what they are in."""
        chosen = [span for span in self.spans if trace in (None, span.trace)]
        lines = sorted((self.path(span) for span in chosen), key=lambda path: [self.spans.index(one) for one in path])
        return "\n".join("  " * len(path) + path[-1].name for path in lines)


def _value(value: Any) -> Any:
    which = value.WhichOneof("value")
    if which == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, which) if which else None


def _attributes(entries: Any) -> dict[str, Any]:
    return {entry.key: _value(entry.value) for entry in entries}


def _span(span: Any, resource: dict[str, Any]) -> Span:
    links = [(link.trace_id.hex(), link.span_id.hex()) for link in span.links]
    ids = span.span_id.hex(), span.parent_span_id.hex(), span.trace_id.hex()
    events = [event.name for event in span.events]
    return Span(span.name, span.kind, span.status.code, *ids, _attributes(span.attributes), events, links, resource)
