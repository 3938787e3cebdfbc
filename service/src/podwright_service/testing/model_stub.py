"""A model provider for tests: a Chat Completions endpoint with scripted responses. Also a program for a container."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn, Self

from aiohttp import web
from pydantic import TypeAdapter

from podwright.data.json_data import as_object, to_json_bytes, to_json_data
from podwright.events import Event
from podwright.functions.callables import call_function
from podwright.messages.messages import ModelRequest, ModelResponse
from podwright.models import ScriptedModel
from podwright.models.offline.scripted import Condition
from podwright.run.result import ExecutionResult
from podwright_service.testing import chat_completions
from podwright_service.testing.script import (
    Fault,
    NoResponseError,
    Script,
    Structured,
    read_events,
    recorded_calls,
    to_response,
)
from podwright_service.testing.server import BackgroundServer

PORT = 8000
"""The port of the program."""
CONTROL_PATH = "/stub"
"""Where a stub in a container receives its script and reports its requests."""
SCRIPT = TypeAdapter(Script)
"""Reads and writes a script as JSON."""


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """An HTTP request that the stub received."""

    body: Mapping[str, Any]
    """The JSON body, unchanged."""
    headers: Mapping[str, str]
    """Values by lower-case name."""

    @property
    def request(self) -> ModelRequest:
        """The model request in the body."""
        return chat_completions.read_request(self.body)


_LIST_PRICES = '{"*": {"as": "*"}}'
"""List prices apply only at a vendor's own URL; this makes them apply at the URL of a stub."""
_CUT_CHUNKS = 2
"""Chunks that a stream lacks if it is cut: those with the finish reason and the usage."""
_CUT_BYTES = 20
"""Bytes that a body lacks if it is cut; without the last one already, it is not JSON."""


class ModelStub(BackgroundServer):
    """A model provider that responds as the test says: each response once, in order.

    Args:
        *responses: Texts, tool calls, structured answers, responses with their `usage`, faults, or functions of the
            request, which may be async; see `StubResponse`.
        name: The model, "<provider>/<model_name>", that a component uses in place of every model in its blueprint.
            By default it uses those of the blueprint, which decides the price of a call; offline models then stay.
        latency: Seconds from a request to the first byte of the response.
        pace: Seconds between two chunks of a streamed response.
    """

    def __init__(
        self,
        *responses: Any,
        name: str | None = None,
        latency: float = 0.0,
        pace: float = 0.0,
    ) -> None:
        super().__init__()
        self.name = name
        self.received: list[ReceivedRequest] = []
        """The requests, in order."""
        self.unanswered: list[str] = []
        """For each request without a response, the reason."""
        self.script = Script(
            list(map(to_response, responses)), latency=latency, pace=pace
        )

    @classmethod
    def from_trace(
        cls,
        trace: str | Path | ExecutionResult | Iterable[Event],
        **options: Any,
    ) -> Self:
        """A stub that responds as the models of a recorded run did.

        A request is matched by its content, not by its order, so branches may run concurrently. One that is not in
        the trace gets an error, and `verify` reports its first difference from the most similar recorded request.

        Args:
            trace: A file that `podwright run --trace` or `/run?trace=true` wrote, such a result, or its events.
            **options: Options of the class.

        Raises:
            TraceError: It is not a trace.
        """
        stub = cls(**options)
        stub.script.recorded = recorded_calls(read_events(trace))
        return stub

    def respond_with(self, *responses: Any) -> Self:
        """Replace the script by these responses, and forget the requests so far."""
        self._load(
            Script(
                list(map(to_response, responses)),
                latency=self.script.latency,
                pace=self.script.pace,
            )
        )
        return self

    def when(self, condition: Condition, *responses: Any) -> Self:
        """Respond with these to the requests that meet a condition, before the other responses.

        Args:
            condition: A text in one of the messages, such as part of the instructions; or a function of the
                `ModelRequest` that returns whether it is meant.
            *responses: See the class.
        """
        self.script.when.append((condition, list(map(to_response, responses))))
        return self

    @property
    def requests(self) -> list[ModelRequest]:
        """The model requests, in order."""
        return [received.request for received in self.received]

    @property
    def missing(self) -> list[ModelRequest]:
        """Recorded requests that have not been made; empty after a run that repeats the trace."""
        calls = [
            call
            for call in self.script.recorded
            if call.required and not call.used
        ]
        return [
            replace(call.request, component=call.component) for call in calls
        ]

    def verify(self) -> None:
        """Assert that every request got a response, and that every recorded request was made.

        Raises:
            AssertionError: With each that was not.
        """
        missing = [
            f"The trace has a model call of '{request.component}' that was not made."
            for request in self.missing
        ]
        problems = [*self.unanswered, *missing]
        if problems:
            raise AssertionError("\n".join(problems))

    def variables(self, url: str) -> dict[str, str]:
        """The environment variables of a component that uses this stub at `url`, at the vendors' list prices."""
        variables = {
            "PODWRIGHT_MODEL_BASE_URL": f"{url}/v1",
            "PODWRIGHT_PRICES": _LIST_PRICES,
        }
        if self.name:
            variables["PODWRIGHT_MODEL"] = self.name
        return variables

    def application(self) -> web.Application:
        """The Chat Completions endpoint, and the one that controls a stub in a container."""
        application = web.Application(client_max_size=0)
        application.router.add_post("/v1/chat/completions", self._complete)
        application.router.add_get(CONTROL_PATH, self._report)
        application.router.add_put(CONTROL_PATH, self._replace_script)
        return application

    def _load(self, script: Script) -> None:
        self.script = script
        self.received = []
        self.unanswered = []

    async def _report(self, request: web.Request) -> web.Response:
        used = [call.used for call in self.script.recorded]
        report = {
            "received": to_json_data(self.received),
            "unanswered": self.unanswered,
            "used": used,
        }
        return web.Response(
            body=to_json_bytes(report), content_type="application/json"
        )

    async def _replace_script(self, request: web.Request) -> web.Response:
        self._load(SCRIPT.validate_json(await request.read()))
        return web.Response()

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        headers = {
            name.lower(): value for name, value in request.headers.items()
        }
        received = ReceivedRequest(await request.json(), headers)
        self.received.append(received)
        response = await self._choose(received.request)
        await asyncio.sleep(self.script.latency)
        if isinstance(response, Fault):
            return await self._fail(request, received, response)
        if received.body.get("stream"):
            chunks = [*_chunks(received, response), b"[DONE]"]
            return await self._stream(request, chunks)
        body = to_json_bytes(
            chat_completions.completion(received.request, response)
        )
        return web.Response(body=body, content_type="application/json")

    async def _choose(self, request: ModelRequest) -> ModelResponse | Fault:
        try:
            response = self.script.choose(request)
        except NoResponseError as error:
            self.unanswered.append(str(error))
            return Fault(400, str(error))
        while callable(response):
            # a function of the test that is not async may block
            response = await call_function(response, request)
        if isinstance(response, Fault):
            return response
        if isinstance(response, Structured):
            response = response.value
        return await ScriptedModel(response, name=request.model).complete(
            request
        )

    async def _stream(
        self, request: web.Request, chunks: Iterable[bytes]
    ) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={"content-type": "text/event-stream"}
        )
        await response.prepare(request)
        for number, chunk in enumerate(chunks):
            if number:
                await asyncio.sleep(self.script.pace)
            await response.write(b"data: " + chunk + b"\n\n")
        return response

    async def _fail(
        self, request: web.Request, received: ReceivedRequest, fault: Fault
    ) -> web.StreamResponse:
        match fault.kind:
            case int(status):
                headers: dict[str, str] = {}
                if fault.retry_after is not None:
                    headers["retry-after"] = str(fault.retry_after)
                return web.json_response(
                    chat_completions.error_body(fault.text),
                    status=status,
                    headers=headers,
                )
            case "malformed":
                return web.Response(
                    body=b'{"choices": [', content_type="application/json"
                )
            case "silence":
                return await _wait_until_cancelled()
            case "cut" | "reset":
                response = await self._start_response(
                    request, received, ModelResponse(fault.text)
                )
                _disconnect(request, reset=fault.kind == "reset")
                return response

    async def _start_response(
        self,
        request: web.Request,
        received: ReceivedRequest,
        partial: ModelResponse,
    ) -> web.StreamResponse:
        if received.body.get("stream"):
            chunks = _chunks(received, partial)
            return await self._stream(request, chunks[:-_CUT_CHUNKS])
        response = web.StreamResponse(
            headers={"content-type": "application/json"}
        )
        if partial.text:
            body = to_json_bytes(
                chat_completions.completion(received.request, partial)
            )
            response.content_length = len(body)
            await response.prepare(request)
            await response.write(body[:-_CUT_BYTES])
        return response


def _chunks(received: ReceivedRequest, response: ModelResponse) -> list[bytes]:
    options = as_object(received.body.get("stream_options"))
    chunks = chat_completions.completion_chunks(
        received.request,
        response,
        with_usage=bool(options.get("include_usage")),
    )
    return [to_json_bytes(chunk) for chunk in chunks]


async def _wait_until_cancelled() -> NoReturn:
    """Wait until the client disconnects or the stub stops."""
    while True:
        await asyncio.Event().wait()


def _disconnect(request: web.Request, reset: bool) -> None:
    if request.transport is None:
        return
    if reset:
        # so that closing sends RST instead of FIN
        linger = struct.pack("ii", 1, 0)
        connection = request.transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        request.transport.abort()
    else:
        request.transport.close()


if __name__ == "__main__":
    web.run_app(
        ModelStub().application(),
        port=PORT,
        print=None,
        handler_cancellation=True,
        shutdown_timeout=1,
    )
