"""A server of Chat Completions that answers what a test says it shall; also a program, for a container of its own."""

from __future__ import annotations

import json
import signal
import socket
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pydantic import TypeAdapter

from podwright.events import Event
from podwright.json_data import as_object, to_json_data
from podwright.messages import ModelRequest, ModelResponse
from podwright.result import ExecutionResult
from podwright_service.testing.answers import (
    Answer,
    Fault,
    as_json,
    as_said,
    completion,
    pieces,
    read_request,
    refusal,
)
from podwright_service.testing.script import NoAnswerError, Script, Turn, read_events, recorded_calls
from podwright_service.testing.serving import LocalServer, Request, reply, reset

PORT = 8000
"""Where the program listens."""
CONTROL = "/stub"
"""Where a stub in a container is given its script, and tells what it was asked."""
SCRIPT = TypeAdapter(Script)
"""Reads and writes a script as JSON."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that came."""

    body: Mapping[str, Any]
    """As it was sent."""
    headers: Mapping[str, str]
    """By name in lower case."""

    @property
    def request(self) -> ModelRequest:
        """What it means."""
        return read_request(self.body)


class ModelStub(LocalServer):
    """A model provider that says what it is told to: each answer once, in order.

    Args:
        *answers: Texts, tool calls, responses with their `usage`, faults, or functions of the request; see `Answer`.
        name: The model, "<provider>/<model_name>", that a component is told to ask in place of all that its blueprint
            names. By default it asks for those, which decides what a call costs; offline models are not replaced then.
        latency: Seconds from a request to the first byte of its answer.
        pace: Seconds between two pieces of a streamed answer.
    """

    def __init__(self, *answers: Answer, name: str | None = None, latency: float = 0.0, pace: float = 0.0) -> None:
        super().__init__()
        self.name = name
        self.asked: list[Asked] = []
        """The requests that came, in order."""
        self.complaints: list[str] = []
        """What it had no answer for."""
        self.script = Script([_turn(one) for one in answers], latency=latency, pace=pace)
        self._choosing = threading.Lock()

    @classmethod
    def from_trace(cls, trace: str | Path | ExecutionResult | Iterable[Event], **options: Any) -> Self:
        """A stub that answers as the models of a recorded run did, so that an image is tested with no model.

        A request is answered by what it says, not by when it comes, so branches may run at once. One that the trace
        does not have is refused, and its first difference from the nearest one is told by `verify`.

        Args:
            trace: A file that `podwright run --trace` or `/run?trace=true` gave, such a result, or its events.
            **options: As of the class.

        Raises:
            TraceError: It is no trace.
        """
        stub = cls(**options)
        stub.script.recorded = recorded_calls(read_events(trace))
        return stub

    def answers(self, *answers: Answer) -> Self:
        """Say this from now on, and forget all else: what was to be said, and what was asked."""
        with self._choosing:
            self.script = Script([_turn(one) for one in answers], latency=self.script.latency, pace=self.script.pace)
            self.asked, self.complaints = [], []
        return self

    def when(self, text: str, *answers: Answer) -> Self:
        """Say this to requests that have a text in one of their messages, such as a part of an agent's instructions."""
        self.script.when.append((text, [_turn(one) for one in answers]))
        return self

    @property
    def requests(self) -> list[ModelRequest]:
        """The requests that came, in order."""
        return [one.request for one in self.asked]

    @property
    def left(self) -> list[ModelRequest]:
        """Recorded requests that have not been asked for; empty after a faithful run."""
        return [one.request for one in self.script.recorded if one.needed and not one.asked]

    def verify(self) -> None:
        """Assert that every request had its answer, and every recorded answer its request.

        Raises:
            AssertionError: With each that had not.
        """
        never = [f"The trace has a model call of '{one.component}' that was not made." for one in self.left]
        if found := [*self.complaints, *never]:
            raise AssertionError("\n".join(found))

    def variables(self, url: str) -> dict[str, str]:
        """The environment of a component that is to ask this stub, where it answers at `url`."""
        return {"PODWRIGHT_MODEL_BASE_URL": f"{url}/v1", **({"PODWRIGHT_MODEL": self.name} if self.name else {})}

    def respond(self, request: Request, connection: socket.socket) -> bool:
        """Answer a request for a completion, or one of whoever controls a stub in a container."""
        match request.method, request.path:
            case "POST", "/v1/chat/completions":
                return self._complete(request, connection)
            case "GET", path if path == CONTROL:
                recorded = [one.asked for one in self.script.recorded]
                told = {"asked": to_json_data(self.asked), "complaints": self.complaints, "recorded": recorded}
                connection.sendall(reply(as_json(told)))
            case "PUT", path if path == CONTROL:
                self.answers().script = SCRIPT.validate_json(request.body)
                connection.sendall(reply(b"{}"))
            case _:
                connection.sendall(reply(as_json(refusal(Fault(404, "unknown_url"))), 404))
        return True

    def _complete(self, request: Request, connection: socket.socket) -> bool:
        asked = Asked(json.loads(request.body), request.headers)
        with self._choosing:
            self.asked.append(asked)
            try:
                turn = self.script.choose(asked.request)
            except NoAnswerError as error:
                self.complaints.append(str(error))
                turn = Fault(400, str(error))
        said = as_said(turn(asked.request)) if callable(turn) else turn
        self.over.wait(self.script.latency)
        if isinstance(said, Fault):
            return self._fail(asked, said, connection)
        if asked.body.get("stream"):
            self._stream(asked, said, connection)
            connection.sendall(_chunk(b"data: [DONE]\n\n") + _chunk(b""))
        else:
            connection.sendall(reply(as_json(completion(asked.request, said))))
        return True

    def _stream(self, asked: Asked, said: ModelResponse, connection: socket.socket, last: int | None = None) -> None:
        connection.sendall(_STREAM)
        with_usage = bool(as_object(asked.body.get("stream_options")).get("include_usage"))
        for number, piece in enumerate([*pieces(asked.request, said, with_usage)][:last]):
            if number:
                self.over.wait(self.script.pace)
            connection.sendall(_chunk(b"data: " + as_json(piece) + b"\n\n"))

    def _fail(self, asked: Asked, fault: Fault, connection: socket.socket) -> bool:
        match fault.what:
            case int(status):
                wait = {} if fault.retry_after is None else {"retry-after": fault.retry_after}
                connection.sendall(reply(as_json(refusal(fault)), status, headers=wait))
                return True
            case "malformed":
                connection.sendall(reply(b'{"choices": ['))
                return True
            case "silence":
                connection.recv(1)  # until the caller leaves, or the stub stops
            case "cut" | "reset":
                if asked.body.get("stream"):
                    self._stream(asked, ModelResponse(fault.text), connection, last=-2)  # its end and its usage not
                elif fault.text:
                    connection.sendall(reply(as_json(completion(asked.request, ModelResponse(fault.text))))[:-20])
                if fault.what == "reset":
                    self.over.wait(0.05)  # what was sent arrives first
                    reset(connection)
        return False


_STREAM = b"HTTP/1.1 200 -\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def _turn(answer: Answer) -> Turn:
    return answer if callable(answer) else as_said(answer)


if __name__ == "__main__":
    ends = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    with ModelStub().start("0.0.0.0", PORT):  # noqa: S104 - a container is reached from outside
        signal.sigwait(ends)
