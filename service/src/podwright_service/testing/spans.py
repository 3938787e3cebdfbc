"""A collector of spans: an OTLP over http/protobuf endpoint that keeps what it receives."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
)

from podwright_service.testing.server import BackgroundServer


@dataclass(frozen=True, slots=True)
class Span:
    """A received span; ids are hexadecimal."""

    name: str
    kind: int
    """The number in OTLP: 1 internal, 2 server, 3 client."""
    status: int
    """The number in OTLP: 0 unset, 1 ok, 2 error."""
    id: str
    parent: str
    """Id of the parent span; empty for a root span."""
    trace: str
    """Id of the trace."""
    attributes: Mapping[str, Any]
    events: list[str]
    """Names of the span events."""
    links: list[tuple[str, str]]
    """Trace id and span id of each link."""
    resource: Mapping[str, Any]
    """Resource attributes of the process, such as `service.name`."""


class SpanCollector(BackgroundServer):
    """Receives spans and keeps them.

    Args:
        status: The HTTP status of every response; spans are kept only if it is 200.
    """

    def __init__(self, status: int = 200) -> None:
        super().__init__()
        self.status = status
        self.spans: list[Span] = []
        """The spans, in order of arrival."""
        self.requests = 0
        """The number of requests, whatever their path."""

    def variables(self, url: str) -> dict[str, str]:
        """The environment variables of a service that exports its spans to this collector at `url`."""
        return {
            "OTEL_TRACES_EXPORTER": "otlp",
            "OTEL_EXPORTER_OTLP_ENDPOINT": url,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
        }

    def application(self) -> web.Application:
        """The OTLP endpoint, at any path."""
        application = web.Application(client_max_size=0)
        application.router.add_route("*", "/{path:.*}", self._export)
        return application

    async def _export(self, request: web.Request) -> web.Response:
        self.requests += 1
        body = await request.read()
        if self.status == 200:
            self.add(body)
        return web.Response(
            status=self.status, content_type="application/x-protobuf"
        )

    def add(self, body: bytes) -> None:
        """Keep the spans of an uncompressed export request."""
        message: Any = ExportTraceServiceRequest.FromString(body)
        for group in message.resource_spans:
            resource = _attributes(group.resource.attributes)
            for scope in group.scope_spans:
                for span in scope.spans:
                    self.spans.append(_span(span, resource))

    def wait(
        self, condition: Callable[[list[Span]], object], within: float = 30
    ) -> list[Span]:
        """Wait until a condition on the received spans holds.

        Args:
            condition: A function of all spans so far.
            within: Seconds to wait.

        Raises:
            AssertionError: It did not hold in time; with the spans that arrived.
        """
        deadline = time.monotonic() + within
        while not condition(self.spans):
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"Waited {within:g} s for spans. Received spans:\n{self.tree()}"
                )
            time.sleep(0.02)
        return self.spans

    def wait_for(self, name: str, within: float = 30) -> Span:
        """Wait for a span of this name whose trace is complete: no parent is missing.

        Raises:
            AssertionError: There is none after so many seconds.
        """

        def complete(spans: list[Span]) -> list[Span]:
            ids = {span.id for span in spans}
            incomplete: set[str] = set()
            for span in spans:
                if span.parent and span.parent not in ids:
                    incomplete.add(span.trace)
            named = [span for span in spans if span.name == name]
            return [span for span in named if span.trace not in incomplete]

        spans = complete(self.wait(complete, within))
        return spans[0]

    def named(self, name: str) -> Span:
        """The first span of this name.

        Raises:
            AssertionError: There is none.
        """
        for span in self.spans:
            if span.name == name:
                return span
        raise AssertionError(
            f"No span '{name}'. Received spans:\n{self.tree()}"
        )

    def path(self, span: Span) -> list[Span]:
        """The span and its received ancestors, outermost first."""
        by_id = {span.id: span for span in self.spans}
        path = [span]
        parent = by_id.get(span.parent)
        while parent is not None:
            path.insert(0, parent)
            parent = by_id.get(parent.parent)
        return path

    def tree(self, trace: str | None = None) -> str:
        """The names of the spans of one trace, or of all, on one line each, indented by depth."""
        paths = [
            self.path(span)
            for span in self.spans
            if trace in (None, span.trace)
        ]
        paths.sort(key=lambda path: [self.spans.index(span) for span in path])
        lines: list[str] = []
        for path in paths:
            indent = "  " * len(path)
            lines.append(indent + path[-1].name)
        return "\n".join(lines)


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    if not kind:
        return None
    return getattr(value, kind)


def _attributes(entries: Any) -> dict[str, Any]:
    return {entry.key: _value(entry.value) for entry in entries}


def _span(span: Any, resource: dict[str, Any]) -> Span:
    links = [(link.trace_id.hex(), link.span_id.hex()) for link in span.links]
    return Span(
        name=span.name,
        kind=span.kind,
        status=span.status.code,
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        trace=span.trace_id.hex(),
        attributes=_attributes(span.attributes),
        events=[event.name for event in span.events],
        links=links,
        resource=resource,
    )
