"""A collector of spans on a real socket: OTLP over HTTP, read with the protocol's own classes."""

from __future__ import annotations

import gzip
import socket
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


def _value(value: Any) -> Any:
    which = value.WhichOneof("value")
    if which == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, which) if which else None


class Span:
    """One received span."""

    def __init__(self, span: Any, resource: dict[str, Any]) -> None:
        self.name, self.kind, self.status = span.name, span.kind, span.status.code
        self.id, self.parent, self.trace = span.span_id.hex(), span.parent_span_id.hex(), span.trace_id.hex()
        self.attributes = {one.key: _value(one.value) for one in span.attributes}
        self.events = [event.name for event in span.events]
        self.links = [(link.trace_id.hex(), link.span_id.hex()) for link in span.links]
        self.resource = resource


class Collector:
    """What a collector has received."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.spans: list[Span] = []
        self.requests = 0
        self.url = ""

    def take(self, body: bytes) -> None:
        message = ExportTraceServiceRequest.FromString(body)
        for one in message.resource_spans:
            resource = {entry.key: _value(entry.value) for entry in one.resource.attributes}
            self.spans += [Span(span, resource) for scope in one.scope_spans for span in scope.spans]

    def wait(self, ready: Callable[[list[Span]], object], within: float = 30) -> list[Span]:
        deadline = time.monotonic() + within
        while not ready(self.spans):
            assert time.monotonic() < deadline, [span.name for span in self.spans]
            time.sleep(0.02)
        return self.spans

    def named(self, name: str) -> Span:
        return next(span for span in self.spans if span.name == name)


@contextmanager
def collector(status: int = 200) -> Generator[Collector]:
    """A collector that answers with this status."""
    made = Collector(status)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            made.requests += 1
            if made.status == 200:
                made.take(gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body)
            self.send_response(made.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        made.url = f"http://127.0.0.1:{server.server_address[1]}"
        yield made
        server.shutdown()
        thread.join()


@contextmanager
def silent() -> Generator[str]:
    """The address of something that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
