"""A collector of spans: accepts OTLP over HTTP, and answers a GET with the number of spans that came to its path.

python collector.py PORT
"""

from __future__ import annotations

import sys
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
)

bodies: defaultdict[str, list[bytes]] = defaultdict(list)


def spans(body: bytes) -> int:
    request = ExportTraceServiceRequest.FromString(body)
    return sum(
        len(scope.spans)
        for resource in request.resource_spans
        for scope in resource.scope_spans
    )


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        bodies[self.path].append(
            self.rfile.read(int(self.headers["content-length"]))
        )
        self.respond(b"")

    def do_GET(self) -> None:
        self.respond(str(sum(map(spans, bodies[self.path]))).encode())

    def respond(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


if __name__ == "__main__":
    ThreadingHTTPServer(
        ("127.0.0.1", int(sys.argv[1])), Handler
    ).serve_forever()
