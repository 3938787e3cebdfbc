"""The conversation of a background run: stored with its result, for the next run."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from sqlalchemy import null
from tests.service.background_support import begin, change_run, wait
from tests.service.support import Serve

from podwright import (
    Agent,
    AgentStep,
    ApprovalStep,
    FunctionModel,
    Workflow,
)
from podwright.client import Client
from podwright.errors import ModelError
from podwright.testing import ModelRequest, ToolCall

KEYS = {
    "run": "r" * 20,
    "approve": "a" * 20,
    "other": "o" * 20,
}


class Searcher:
    """A model that calls the tool, and answers with what it found; it keeps what it was sent."""

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []

    def __call__(self, request: ModelRequest) -> Any:
        self.requests.append(request)
        last = request.messages[-1]
        if last.text == "fail":
            raise ModelError("Down.")
        if last.role == "tool":
            return f"It is {last.text}."
        return [ToolCall.of("look", f"call {last.text}", word=last.text)]


def look(word: str) -> str:
    """Look a word up."""
    return f"{word} \x00 \ud800"


def guide(model: Searcher) -> Agent:
    return Agent("guide", "Help.", FunctionModel(model), tools=[look])


def roles(run: Any) -> list[str]:
    return [message["role"] for message in run["messages"]]


TURN = ["user", "assistant", "tool", "assistant"]


def test_it_is_that_of_run(serve: Serve, database: str) -> None:
    """The messages are those of `/run?trace=true`, and the next run takes them; nothing else is changed by them."""
    model = Searcher()
    client = serve(guide(model), runs_database=database)
    first = client.post("/runs", json={"input": "moon"})
    assert first.json()["messages"] is None
    url = first.headers["location"]
    run = wait(client, url)
    traced = client.post("/run?trace=true", json={"input": "moon"}).json()
    assert run["messages"] == traced["messages"]
    assert roles(run) == TURN
    assert run["result"] == {"output": traced["value"]}
    body = {"input": "sun", "messages": run["messages"]}
    second = client.post("/runs", json=body).headers["location"]
    later = wait(client, second)
    assert roles(later) == TURN * 2
    assert later["messages"][:4] == run["messages"]
    assert [message.role for message in model.requests[-1].messages] == [
        "system",
        *(TURN * 2)[:-1],
    ]
    # a repeated request is the same run, and a list has what is asked for
    (newest, oldest) = client.get("/runs?fields=messages").json()["runs"]
    assert newest["messages"] == later["messages"]
    assert oldest["messages"] == run["messages"]
    assert "result" not in newest
    assert "messages" not in client.get("/runs").json()["runs"][0]


def test_a_run_without_one(serve: Serve, sqlite_database: str) -> None:
    """One that failed has none, and neither has one that a service of an earlier release has performed."""
    client = serve(guide(Searcher()), runs_database=sqlite_database)
    failed = wait(client, begin(client, "fail"))
    assert (failed["status"], failed["messages"]) == ("failed", None)
    url = begin(client, "moon")
    wait(client, url)
    change_run(sqlite_database, url, messages=null())
    assert client.get(url).json()["messages"] is None
    listed = client.get("/runs?fields=messages").json()["runs"]
    assert [run["messages"] for run in listed] == [None, None]


@pytest.mark.parametrize("last", [False, True])
def test_a_workflow_that_waits(
    serve: Serve, sqlite_database: str, last: bool
) -> None:
    """The attempt after the approval knows what the agent did in the one before, and asks no model for it again."""
    model = Searcher()
    step = AgentStep(guide(model), conversation=True)
    approval = ApprovalStep("Go on?")
    steps = [step, approval] if last else [approval, step]
    client = serve(Workflow("flow", steps), runs_database=sqlite_database)
    earlier = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi"},
    ]
    body = {"inputs": {"input": "moon"}, "messages": earlier}
    url = client.post("/runs", json=body).headers["location"]
    assert wait(client, url, "waiting_for_approval")["messages"] is None
    client.post(f"{url}/approve", json={})
    run = wait(client, url)
    assert run["attempt"] == 2
    assert run["messages"][:2] == earlier
    assert roles(run)[2:] == TURN
    assert len(model.requests) == 2


def test_who_sees_it(serve: Serve, sqlite_database: str) -> None:
    """The caller whose run it is; who may only approve sees none of it, and neither does another caller."""
    client = serve(
        guide(Searcher()),
        runs_database=sqlite_database,
        api_keys=(
            f"run@ann:{KEYS['run']}",
            f"approve:{KEYS['approve']}",
            f"run+approve@bob:{KEYS['other']}",
        ),
    )

    def get(key: str, path: str) -> httpx.Response:
        headers = {"authorization": f"Bearer {KEYS[key]}"}
        return client.get(path, headers=headers)

    client.headers["authorization"] = f"Bearer {KEYS['run']}"
    url = begin(client, "moon")
    assert roles(wait(client, url)) == TURN
    assert get("approve", url).status_code == 403
    assert get("other", url).status_code == 404
    for key in ("approve", "other"):
        assert get(key, "/runs?fields=messages").json()["runs"] == []


def test_the_client_has_it(serve: Serve, sqlite_database: str) -> None:
    """The Python client goes on with it."""
    model = Searcher()
    service = serve(guide(model), runs_database=sqlite_database)
    client = Client(str(service.base_url))
    run = client.runs.wait(client.runs.start("moon").id)
    assert run.messages is not None
    second = client.runs.start("sun", messages=run.messages)
    later = client.runs.wait(second.id)
    assert later.messages is not None
    assert later.messages[:4] == run.messages
    (listed, _) = client.runs.list(fields=("messages",))
    assert listed.messages == later.messages
