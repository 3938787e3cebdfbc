"""What a background run was asked: shown to who may see its result, so that the run can be made again."""

from __future__ import annotations

from typing import Any

import pytest
from tests.service.background_support import ECHO, FLOW, begin, wait
from tests.service.support import Serve, check_problem
from tests.service.test_saved_states import gate, going_on, stopped

from podwright import Agent, FunctionModel
from podwright.client import Client
from podwright.errors import ModelError
from podwright.testing import ModelRequest

LIMIT = "podwright_service.routes.background.MAX_INPUT_BYTES"
TURNS = [
    {"role": "user", "content": "My name is Ada."},
    {"role": "assistant", "content": "Hello, Ada."},
]
PICTURE = {
    "type": "image_url",
    "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="},
}
INPUTS: dict[str, Any] = {
    "text": {"input": "the moon"},
    "conversation": {"input": "Who am I?", "messages": TURNS},
    "parts": {"input": [{"type": "text", "text": "What is it?"}, PICTURE]},
    "named inputs": {"inputs": {"input": "x", "count": 3, "unused": [None]}},
}


class Failing:
    """A model that fails, and keeps what it was sent."""

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []

    def __call__(self, request: ModelRequest) -> str:
        self.requests.append(request)
        raise ModelError("Down.")


@pytest.mark.parametrize("log_content", [False, True])
def test_a_run_is_made_again(
    serve: Serve, database: str, log_content: bool
) -> None:
    """What a failed run was asked makes the same model call again, whatever the setting of the log."""
    model = Failing()
    agent = Agent("guide", "Help.", FunctionModel(model))
    served = serve(agent, runs_database=database, log_content=log_content)
    runs = Client(str(served.base_url)).runs
    for body in INPUTS.values():
        url = served.post("/runs", json=body).headers["location"]
        wait(served, url, "failed")
        plain = served.get(url).json()
        assert not [name for name in plain if name.startswith("input")]
        run = runs.get(plain["id"], inputs=True)
        assert run.input is not None
        assert run.input == body.get("input", body.get("inputs"))
        assert run.input_messages == body.get("messages")
        assert not run.input_cut
        again = runs.start(run.input, messages=run.input_messages or ())
        wait(served, f"/runs/{again.id}", "failed")
        first, second = model.requests
        assert first.messages == second.messages
        model.requests.clear()


@pytest.mark.parametrize(
    ("limit", "has_input", "has_messages"),
    [(10, False, False), (40, True, False), (1000, True, True)],
)
def test_what_is_too_large_is_left_out_whole(
    serve: Serve,
    sqlite_database: str,
    monkeypatch: pytest.MonkeyPatch,
    limit: int,
    has_input: bool,
    has_messages: bool,
) -> None:
    """The earlier turns first; `input_cut` says so."""
    monkeypatch.setattr(LIMIT, limit)
    client = serve(ECHO, runs_database=sqlite_database)
    body = {"input": "n" * 20, "messages": TURNS}
    url = client.post("/runs", json=body).headers["location"]
    run = client.get(f"{url}?inputs=true").json()
    assert (run["input"] is not None) == has_input
    assert (run["input_messages"] is not None) == has_messages
    assert run["input_cut"] == (not has_messages)


def test_a_run_without_an_input_has_no_named_ones(
    serve: Serve, sqlite_database: str
) -> None:
    """An empty request is one of no named inputs; a run of an agent that declares a default takes them."""
    inputs = {"word": {"type": "string", "default": "moon"}}
    agent = Agent("guide", "Say {word}.", "offline/echo", inputs=inputs)
    client = serve(agent, runs_database=sqlite_database)
    url = client.post("/runs", json={}).headers["location"]
    assert client.get(f"{url}?inputs=true").json()["input"] == {}


def test_a_run_that_goes_on_has_none(
    serve: Serve, sqlite_database: str
) -> None:
    """The context of a stopped run has what its caller does not see, and is no input of a whole run."""
    client = serve(gate(), runs_database=sqlite_database)
    body = going_on(stopped(client))
    url = client.post("/runs", json=body).headers["location"]
    run = client.get(f"{url}?inputs=true").json()
    assert (run["input"], run["input_messages"]) == (None, None)
    assert not run["input_cut"]


def test_a_run_that_begins_at_a_later_step_has_none(
    serve: Serve, sqlite_database: str
) -> None:
    """Its inputs alone would make another run."""
    client = serve(FLOW, runs_database=sqlite_database, trust_contexts=True)
    body = {"input": "x", "start_step": 2}
    url = client.post("/runs", json=body).headers["location"]
    assert client.get(f"{url}?inputs=true").json()["input"] is None


def test_who_may_see_it(serve: Serve, sqlite_database: str) -> None:
    """Who may see the result; not who may only approve, and no other caller."""
    scopes = {"r": "run@ann", "a": "approve@eve", "b": "run+approve@bob"}
    keys = tuple(f"{name}:{key * 20}" for key, name in scopes.items())
    client = serve(FLOW, runs_database=sqlite_database, api_keys=keys)

    def ask(key: str) -> Any:
        client.headers["authorization"] = f"Bearer {key * 20}"
        return client.get(f"{url}?inputs=true")

    client.headers["authorization"] = f"Bearer {'r' * 20}"
    url = begin(client, "secret")
    wait(client, url, "waiting_for_approval")
    assert ask("r").json()["input"] == "secret"
    for key in "ab":
        shown = ask(key).json()
        assert shown["status"] == "waiting_for_approval"
        assert "input" not in shown
    client.headers["authorization"] = f"Bearer {'a' * 20}"
    client.post(f"{url}/approve", json={})
    client.headers["authorization"] = f"Bearer {'r' * 20}"
    wait(client, url, "succeeded")
    check_problem(ask("a"), 403, "scope_missing")
    check_problem(ask("b"), 404, "run_not_found")
