"""Failures that pass by themselves: status and `Retry-After` reach the outermost caller, whatever is between."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import httpx
import openai
import pytest
from tests.helpers import until
from tests.service.support import Serve, check_problem

from podwright import Agent, Remote, Workflow
from podwright.client import Client, ProblemError
from podwright.errors import (
    ModelError,
    ModelRateLimitError,
    ModelUnavailableError,
    RemoteError,
)
from podwright.models.retries import Retries
from podwright.testing import ScriptedModel


class OnceRemote(Remote):
    """A remote component that is asked once."""

    retries = Retries(tries=1)


def failing(error: ModelError) -> Agent:
    model = ScriptedModel(*[error] * 4)
    model.retries = Retries(tries=1)
    return Agent("writer", "Write.", model)


def asking(error: ModelError, seconds: float | None) -> ModelError:
    error.retry_after = seconds
    return error


def without_credit() -> ModelError:
    error = ModelRateLimitError("No credit.")
    error.transient = False
    return error


FAILURES: dict[str, tuple[Callable[[], ModelError], str | None]] = {
    "rate limit": (lambda: asking(ModelRateLimitError("Many."), 7.2), "8"),
    "rate limit, no time": (lambda: ModelRateLimitError("Many."), "1"),
    "rate limit, a day": (
        lambda: asking(ModelRateLimitError("Many."), 86_400.0),
        "3600",
    ),
    "rate limit, for ever": (
        lambda: asking(ModelRateLimitError("Many."), float("inf")),
        "3600",
    ),
    "unavailable": (lambda: asking(ModelUnavailableError("Down."), 30.0), "30"),
    "unavailable, no time": (lambda: ModelUnavailableError("Down."), None),
    "no credit": (without_credit, None),
    "refused": (lambda: asking(ModelError("No."), 5.0), None),
}
"""Errors of a model, and the seconds that a caller is told."""
CONTAINERS = (1, 2, 3)


def behind(serve: Serve, agent: Agent, containers: int) -> httpx.Client:
    """The outermost of some containers, of which the last has the agent."""
    client = serve(agent)
    for number in range(containers - 1):
        remote = OnceRemote("writer", str(client.base_url))
        client = serve(Workflow(f"flow{number}", [remote]))
    return client


@pytest.mark.parametrize("containers", CONTAINERS)
@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_behind_containers(
    serve: Serve, failure: str, containers: int
) -> None:
    """On each route, it is the same as at the innermost container."""
    make, seconds = FAILURES[failure]
    client = behind(serve, failing(make()), containers)
    status = 502 if seconds is None else 503
    number = None if seconds is None else int(seconds)
    code = make().code
    response = client.post("/run", json={"input": "x"})
    problem = check_problem(response, status, code)
    assert response.headers.get("retry-after") == seconds
    assert problem.get("retry_after") == number
    stream = client.post("/run/stream", json={"input": "x"})
    events = [
        json.loads(line.removeprefix("data: "))
        for line in stream.text.splitlines()
        if line.startswith("data: ")
    ]
    last = events[-1]
    assert (last["status"], last.get("retry_after")) == (status, number)
    message = {"role": "user", "content": "x"}
    name = client.get("/v1/models").json()["data"][0]["id"]
    chat = client.post(
        "/v1/chat/completions", json={"model": name, "messages": [message]}
    )
    assert chat.status_code == status
    error = chat.json()["error"]
    assert error["code"] == code
    assert error["type"] == "server_error"
    assert error.get("retry_after") == number
    assert chat.headers.get("retry-after") == seconds
    should_retry = chat.headers.get("x-should-retry")
    assert should_retry == ("false" if seconds is None else None)


@pytest.mark.parametrize("tries", [1, 2])
def test_openais_client_tries_again(serve: Serve, tries: int) -> None:
    """It repeats what may pass, as often as it is told."""
    model = ScriptedModel(
        *[asking(ModelRateLimitError("Many."), 0.5)] * (tries - 1), "done"
    )
    model.retries = Retries(tries=1)
    client = behind(serve, Agent("writer", "Write.", model), 2)
    with openai.OpenAI(
        base_url=f"{client.base_url}/v1",
        api_key="unused",
        max_retries=1,
    ) as caller:
        answer = caller.chat.completions.create(
            model="flow0", messages=[{"role": "user", "content": "x"}]
        )
    assert answer.choices[0].message.content == "done"
    assert len(model.requests) == tries


class Proxy:
    """A server that refuses every request, as a proxy in front of a component does."""

    def __init__(self, status: int, **headers: str) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers.get("content-length", 0))
                self.rfile.read(length)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Write nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = Thread(target=self._server.serve_forever)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Proxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def proxy(request: pytest.FixtureRequest) -> Iterator[Proxy]:
    status, headers = request.param
    with Proxy(status, **headers) as server:
        yield server


@pytest.mark.parametrize(
    ("proxy", "answered"),
    [
        ((429, {"Retry_After": "20"}), (503, "20")),
        ((429, {"Retry_After": "1000000"}), (503, "3600")),
        ((429, {"Retry_After": "0"}), (503, "1")),
        ((429, {"Retry_After": "soon"}), (502, None)),
        ((429, {}), (502, None)),
        ((503, {"Retry_After": "20"}), (503, "20")),
        ((503, {}), (502, None)),
        ((500, {"Retry_After": "20"}), (502, None)),
        ((403, {"Retry_After": "20"}), (502, None)),
    ],
    indirect=["proxy"],
)
def test_a_remote_that_refuses_the_request(
    serve: Serve, proxy: Proxy, answered: tuple[int, str | None]
) -> None:
    """Too many requests, or none now: the caller is told when to come again, if that is known."""
    flow = Workflow("flow", [OnceRemote("writer", proxy.url)])
    response = serve(flow).post("/run", json={"input": "x"})
    status, seconds = answered
    assert response.status_code == status
    assert response.headers.get("retry-after") == seconds


def test_a_stored_run_and_the_client_say_when(
    serve: Serve, sqlite_database: str
) -> None:
    """The problem of a background run, and the error of a stream that the client reads."""
    error = asking(ModelRateLimitError("Many."), 7.2)
    inner = serve(failing(error))
    flow = Workflow("flow", [OnceRemote("writer", str(inner.base_url))])
    outer = serve(flow, runs_database=sqlite_database)
    path = f"/runs/{outer.post('/runs', json={'input': 'x'}).json()['id']}"
    until(lambda: outer.get(path).json()["status"] == "failed")
    problem = outer.get(path).json()["problem"]
    assert (problem["status"], problem["retry_after"]) == (503, 8)
    with pytest.raises(ProblemError) as caught:
        list(Client(str(outer.base_url)).stream("x"))
    assert (caught.value.status, caught.value.retry_after) == (503, 8.0)


@pytest.mark.parametrize(
    "said", [-1, "7", True, None, 1e999, [7], {"seconds": 7}]
)
def test_what_is_no_number_of_seconds(said: Any) -> None:
    """It is not handed on."""
    error = ProblemError({"status": 502, "retry_after": said, "code": "x"})
    assert isinstance(error, RemoteError)
    assert error.retry_after is None
