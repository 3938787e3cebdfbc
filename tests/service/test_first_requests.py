"""The first requests of a process, which find the event loop free: what they need is loaded before, or in threads."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.helpers import plain_http
from tests.service.support import Address, Command, Served, write

from podwright import Agent
from podwright.messages.messages import ModelResponse
from podwright.messages.usage import Usage
from podwright.models.prices import pricing
from podwright_service.app import create_app, lifespan
from podwright_service.settings import Settings
from podwright_service.testing import ModelStub

ASKED = "openai/gpt-4o-mini"
UNKNOWN = "gpt-4o-mini-2099-01-01"
"""A name with which a model answers, and that no price list has."""
WATCHED = """
import os, sys, threading, time
from pathlib import Path

log = os.open("watched", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
now = time.time
time.time = lambda: now() + 60 * Path("later").exists()

def watch(event, arguments):
    if event in ("import", "open") and threading.current_thread() is threading.main_thread():
        os.write(log, f"{event} {arguments[0]}\\n".encode())

sys.addaudithook(watch)
from podwright_service.cli import main
main()
"""
"""The command; what its main thread, and so its event loop, imports and opens is written to a file."""
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}
INLINE = {
    "name": "inline",
    "instructions": "Do.",
    "config": {"model": ASKED, "response_schema": SCHEMA},
    "tools": [],
}
CHAT = {"model": "guide", "messages": [{"role": "user", "content": "x"}]}
FORMAT = {
    "type": "json_schema",
    "json_schema": {"name": "n", "schema": SCHEMA, "strict": True},
}
REQUESTS: list[tuple[int, str, dict[str, Any] | None]] = [
    (404, "/nothing", None),
    (405, "/run", None),
    (422, "/run", {"nothing": 1}),
    (200, "/run?trace=true", {"input": "x"}),
    (200, "/run/stream", {"input": "x"}),
    (200, "/v1/chat/completions", CHAT),
    (200, "/v1/chat/completions", {**CHAT, "stream": True}),
    (200, "/v1/chat/completions", {**CHAT, "response_format": FORMAT}),
    (200, "/v1/responses", {"model": "guide", "input": "x"}),
    (200, "/v1/models", None),
    (
        200,
        "/run-blueprint",
        {"type": "agent", "blueprint": INLINE, "input": "x"},
    ),
    (200, "/validate-blueprint", {"type": "agent", "blueprint": INLINE}),
    (200, "/estimate", {"input": "x"}),
    (200, "/estimate-blueprint", {"type": "agent", "blueprint": INLINE}),
    (202, "/runs", {"input": "x"}),
    (200, "/runs", None),
    (404, f"/runs/{'0' * 32}/events", None),
    (200, "/info", None),
    (200, "/metrics", None),
    (200, "/openapi.json", None),
    (200, "/docs", None),
]
"""A request of each kind: the status of the response, the path, and the body of a POST."""


def send(url: str, path: str, body: dict[str, Any] | None) -> httpx.Response:
    if body is None:
        return plain_http.get(url + path)
    return plain_http.post(url + path, json=body)


@pytest.fixture
def stub() -> Iterator[ModelStub]:
    """A provider whose model answers with a name that no price list has."""
    with ModelStub(*[ModelResponse('{"a": 1}', model=UNKNOWN)] * 20) as stub:
        yield stub


@pytest.fixture
def component(tmp_path: Path) -> Path:
    """The folder of an agent with a tool."""
    agent = {**INLINE, "name": "guide", "config": {"model": ASKED}}
    agent["tools"] = Agent("a", "Do.", ASKED, tools=[find]).to_blueprint()[
        "tools"
    ]
    write(tmp_path / "guide" / "blueprint.json", agent)
    write(tmp_path / "guide" / "tools.py", inspect.getsource(find))
    return tmp_path / "guide"


def find(city: str) -> str:
    """Find a city."""
    return city


def test_first_requests_import_nothing(
    command: Command,
    address: Address,
    stub: ModelStub,
    component: Path,
    tmp_path: Path,
    sqlite_database: str,
) -> None:
    """No request of any kind imports a module on the event loop, whatever the model calls itself."""
    process = command(
        "serve",
        str(component),
        "--port",
        "0",
        code=WATCHED,
        cwd=tmp_path,
        PODWRIGHT_RUNS_DATABASE=sqlite_database,
        **stub.variables(stub.url),
    )
    url = address(process)
    assert plain_http.get(f"{url}/ready").status_code == 200
    watched = tmp_path / "watched"
    before = len(watched.read_text())
    for status, path, body in REQUESTS:
        response = send(url, path, body)
        assert response.status_code == status, response.text
        imported = [
            line
            for line in watched.read_text()[before:].splitlines()
            if line.startswith("import ")
        ]
        assert imported == [], path


def test_the_price_file_is_read_again_in_a_thread(
    command: Command,
    address: Address,
    stub: ModelStub,
    component: Path,
    tmp_path: Path,
) -> None:
    """A new price counts in the next minute; neither a run nor the metrics read the file on the event loop."""
    prices = write(tmp_path / "prices.json", {ASKED: {"input": 1, "output": 0}})
    variables = stub.variables(stub.url) | {"PODWRIGHT_PRICES": str(prices)}
    process = command(
        "serve",
        str(component),
        "--port",
        "0",
        code=WATCHED,
        cwd=tmp_path,
        **variables,
    )
    url = address(process)
    assert plain_http.get(f"{url}/ready").status_code == 200
    before = len((tmp_path / "watched").read_text())
    first = send(url, "/run?trace=true", {"input": "x"}).json()
    write(prices, {ASKED: {"input": 3, "output": 0}})
    (tmp_path / "later").touch()
    second = send(url, "/run?trace=true", {"input": "x"}).json()
    assert send(url, "/metrics", None).status_code == 200
    assert second["usage"]["cost"] == pytest.approx(3 * first["usage"]["cost"])
    watched = (tmp_path / "watched").read_text()[before:]
    assert str(prices) not in watched


def test_an_unknown_name_has_the_price_of_the_model_that_was_asked(
    stub: ModelStub, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So at a gateway with list prices, as at the vendor itself."""
    monkeypatch.setenv("PODWRIGHT_PRICES", '{"*": {"as": "*"}}')
    agent = Agent("a", "Do.", ASKED, api_key="k", base_url=f"{stub.url}/v1")
    with served(agent) as client:
        usage = client.post("/run?trace=true", json={"input": "x"}).json()[
            "usage"
        ]
    counted = Usage(usage["input_tokens"], usage["output_tokens"])
    expected = pricing.lookup(ASKED, counted)
    assert expected is not None
    assert usage["cost"] == pytest.approx(expected.amount)


async def test_the_openapi_document_is_made_in_a_thread() -> None:
    """It takes a while; the methods of a path, which a refusal names, are known without it."""
    app = create_app(Settings(), Agent("a", "Do.", "offline/echo"))
    build = app.openapi
    threads: list[threading.Thread] = []

    def openapi() -> dict[str, Any]:
        threads.append(threading.current_thread())
        return build()

    app.openapi = openapi
    transport = httpx.ASGITransport(app)
    async with (
        lifespan(app),
        httpx.AsyncClient(
            transport=transport, base_url="http://localhost"
        ) as client,
    ):
        refused = await client.get("/run")
        assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
        assert threads == []
        document = await client.get("/openapi.json")
        assert "/run" in document.json()["paths"]
    assert threads
    assert threading.current_thread() not in threads
