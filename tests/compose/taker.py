"""Stands for the Collector or for Jaeger in a container: takes spans over OTLP/HTTP.

The Collector does as its configuration says: it listens where its receiver should, and hands on to where its
exporter points what it got. Jaeger keeps what it is sent, and gives it out again on the port of its page.
"""

from __future__ import annotations

import base64
import json
import signal
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import yaml

kept: list[dict[str, str]] = []


class Taker(BaseHTTPRequestHandler):
    """Takes spans."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.take(
            body, {name: self.headers[name] for name in ("content-type", "content-encoding") if self.headers[name]}
        )
        self.answer(b"")

    def take(self, body: bytes, headers: dict[str, str]) -> None:
        assert self.path == "/v1/traces", self.path
        kept.append({"encoding": headers.get("content-encoding", ""), "body": base64.b64encode(body).decode()})

    def answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Page(Taker):
    """Gives out what was taken."""

    def do_GET(self) -> None:
        self.answer(json.dumps(kept).encode())


def handing_on(url: str) -> type[Taker]:
    class Handing(Taker):
        def take(self, body: bytes, headers: dict[str, str]) -> None:
            with urllib.request.urlopen(urllib.request.Request(url + self.path, body, headers)):  # noqa: S310 - http
                pass

    return Handing


def serve(place: str, handler: type[BaseHTTPRequestHandler]) -> None:
    host, port = place.rsplit(":", 1)
    ThreadingHTTPServer((host, int(port)), handler).serve_forever()


def collector(option: str) -> None:
    with open(option.removeprefix("--config="), encoding="utf-8") as file:  # noqa: PTH123 - as short as it gets
        config: dict[str, Any] = yaml.safe_load(file)
    (pipeline,) = config["service"]["pipelines"].values()
    (receiver,), (exporter,) = pipeline["receivers"], pipeline["exporters"]
    listening = config["receivers"][receiver]["protocols"]["http"]["endpoint"]
    serve(listening, handing_on(config["exporters"][exporter]["endpoint"]))


def jaeger() -> None:
    threading.Thread(target=serve, args=("0.0.0.0:16686", Page), daemon=True).start()
    serve("0.0.0.0:4318", Taker)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # the first process of a container has no default for it
    {"collector": collector, "jaeger": jaeger}[sys.argv[1]](*sys.argv[2:])
