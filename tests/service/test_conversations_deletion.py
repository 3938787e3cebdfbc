"""What is kept of conversations: who sees it, and that nothing of it is left once it is deleted or old."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from sqlalchemy import MetaData, create_engine, select
from tests.helpers import until
from tests.service.background_support import synchronous_url, wait
from tests.service.support import Gate, Serve, Shell, check_problem
from tests.service.test_conversations import (
    KEYS,
    asking_flow,
    begin_turn,
    headers,
    post,
    repeater,
    send,
)

from podwright_service.testing import Metrics

SECRET = "MARKER"
ERASER = "erase@officer:" + "e" * 20


def erasing() -> dict[str, str]:
    return {"authorization": f"Bearer {'e' * 20}"}


def dump(database: str) -> str:
    """All that all tables have."""
    engine = create_engine(synchronous_url(database))
    lines: list[str] = []
    known = MetaData()
    known.reflect(engine)
    with engine.connect() as connection:
        for table in known.sorted_tables:
            rows = connection.execute(select(table))
            lines += [json.dumps([*map(str, row)]) for row in rows]
    engine.dispose()
    return "\n".join(lines)


def fill(client: httpx.Client, session: str, user: str) -> None:
    """Have turns, failed ones, and one that waits for a person, of requests and of background runs."""
    more = {"user": user}
    for _ in range(2):
        problem = post(client, f"{SECRET} {user}", session, **more).json()
        body = {"inputs": problem["context"], **more, "session": session}
        body["resume_path"] = problem["resume_path"]
        assert client.post("/run", json=body).status_code == 200
    body = {"input": f"{SECRET} bad", "session": session, **more}
    url = client.post("/runs", json=body).headers["location"]
    wait(client, url, "waiting_for_approval")
    client.post(f"{url}/approve", json={})
    wait(client, url, "failed")
    failed = post(client, f"{SECRET} bad", session, **more).json()
    body = {"inputs": failed["context"], **more, "session": session}
    body["resume_path"] = failed["resume_path"]
    assert client.post("/run", json=body).status_code >= 500
    body = {"input": f"{SECRET} {user}", "session": session, **more}
    url = client.post("/runs", json=body).headers["location"]
    wait(client, url, "waiting_for_approval")


@pytest.mark.parametrize("by", ["session", "user"])
def test_a_deletion_leaves_nothing(
    serve: Serve, database: str, by: str
) -> None:
    """A scan of all tables finds no word of the conversation: turns, runs, events, states, notifications."""
    client = serve(
        asking_flow(),
        runs_database=database,
        conversations=True,
        webhook="http://127.0.0.1:9/hook",
        webhook_secret="whsec_" + "a" * 32,
        webhook_content=True,
    )
    fill(client, "gone", "eve")
    post(client, "other", "stays", user="ann")
    assert SECRET in dump(database)
    path = "/conversations/gone"
    if by == "user":
        path = "/conversations?user=eve"
    response = client.delete(path)
    assert response.json() == {"conversations": 1, "runs": 2}
    left = dump(database)
    assert not [word for word in (SECRET, "gone", "eve") if word in left]
    assert "other" in left
    check_problem(
        client.get("/conversations/gone"), 404, "conversation_not_found"
    )
    again = client.delete(path)
    if by == "session":
        check_problem(again, 404, "conversation_not_found")
    else:
        assert again.json() == {"conversations": 0, "runs": 0}


def test_a_deletion_during_a_turn(serve: Serve, database: str) -> None:
    """What is in progress is not stored: the request is refused, and the background run ends."""
    gate = Gate()
    client = serve(gate.agent(), runs_database=database, conversations=True)
    url = begin_turn(client, SECRET, session="gone")
    assert gate.called.wait(30)
    later = begin_turn(client, SECRET, session="gone")
    assert client.delete("/conversations/gone").json()["runs"] == 2
    assert gate.cancelled.wait(30)
    for each in (url, later):
        check_problem(client.get(each), 404, "run_not_found")
    gate.called.clear()
    with ThreadPoolExecutor(1) as pool:
        response = pool.submit(post, client, SECRET, "gone")
        assert gate.called.wait(30)
        assert client.delete("/conversations/gone").status_code == 200
        gate.opened.set()
        check_problem(response.result(), 409, "conversation_changed")
    until(lambda: SECRET not in dump(database))


def test_conversations_are_listed_and_read(serve: Serve, database: str) -> None:
    """In pages, the newest first, with their messages by session, whatever characters its name has."""
    client = serve(repeater(), runs_database=database, conversations=True)
    names = ["a", "b/c?d", "é ü"]
    for name in names:
        send(client, "one", name)
    send(client, "two", "a")
    page = client.get("/conversations?limit=2").json()
    assert [each["session"] for each in page["conversations"]] == ["a", "é ü"]
    rest = client.get(f"/conversations?limit=2&cursor={page['next']}").json()
    assert [each["session"] for each in rest["conversations"]] == ["b/c?d"]
    assert rest["next"] is None
    shown = client.get("/conversations/b%2Fc%3Fd").json()
    assert shown["messages"] == [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "one"},
    ]
    assert client.get("/conversations/a").json()["turns"] == 2
    wrong = client.get("/conversations?cursor=x")
    check_problem(wrong, 422, "request_invalid")


def test_callers_see_and_delete_their_own(
    serve: Serve, sqlite_database: str
) -> None:
    """Another key has no such conversation; the scope `erase` deletes by user, for all callers, and reads nothing."""
    client = serve(
        repeater(),
        runs_database=sqlite_database,
        conversations=True,
        api_keys=",".join([*KEYS.values(), ERASER]),
    )
    for caller in KEYS:
        send(client, caller, user="eve", headers=headers(caller))
        send(client, "x", caller, headers=headers(caller))

    def get(path: str, **sent: Any) -> httpx.Response:
        return client.get(f"/conversations{path}", headers=sent)

    def delete(path: str, **sent: Any) -> httpx.Response:
        return client.delete(f"/conversations{path}", headers=sent)

    listed = get("", **headers("ann")).json()["conversations"]
    assert {each["session"] for each in listed} == {"s", "ann"}
    check_problem(get("/bob", **headers("ann")), 404, "conversation_not_found")
    check_problem(
        delete("/bob", **headers("ann")), 404, "conversation_not_found"
    )
    shown = get("/s", **headers("bob")).json()
    assert shown["messages"][0]["content"] == "bob"
    check_problem(delete("?user=eve", **headers("ann")), 403, "scope_missing")
    for path in ("", "/s"):
        check_problem(get(path, **erasing()), 403, "scope_missing")
    check_problem(delete("/s", **erasing()), 403, "scope_missing")
    assert delete("?user=eve", **erasing()).json()["conversations"] == 2
    for caller in KEYS:
        listed = get("", **headers(caller)).json()["conversations"]
        assert [each["session"] for each in listed] == [caller]
    assert delete("/ann", **headers("ann")).status_code == 200


def test_old_conversations_are_deleted(serve: Serve, database: str) -> None:
    """Some time after their last turn; one that waits for a person is kept."""
    client = serve(asking_flow(), runs_database=database, conversations=True)
    problem = post(client, SECRET, "old").json()
    body = {
        "inputs": problem["context"],
        "resume_path": problem["resume_path"],
    }
    assert client.post("/run", json=body).status_code == 200
    post(client, "two", "waits")
    serve(
        asking_flow(),
        runs_database=database,
        conversations=True,
        conversations_retention=0,
        state_ttl=0.001,
    )
    until(lambda: '"old"' not in dump(database))
    assert '"waits"' in dump(database)


def test_the_routes_need_the_setting(
    serve: Serve, sqlite_database: str
) -> None:
    """Without it there are none, and the problem names it."""
    client = serve(repeater(), runs_database=sqlite_database)
    for response in (
        client.get("/conversations"),
        client.delete("/conversations/s"),
    ):
        problem = check_problem(response, 404, "not_found")
        assert "PODWRIGHT_CONVERSATIONS" in problem["suggestion"]


def test_the_commands(serve: Serve, sqlite_database: str, shell: Shell) -> None:
    """They list, show and delete."""
    client = serve(
        repeater(), runs_database=sqlite_database, conversations=True
    )
    send(client, "one", "a/b")
    send(client, "one", "c", user="eve")
    service = ("--url", str(client.base_url))
    listed = shell("conversations", "list", *service).stdout
    assert [line.split()[-1] for line in listed.splitlines()] == ["c", "a/b"]
    shown = shell("conversations", "show", "a/b", *service).stdout
    assert json.loads(shown)["messages"][0]["content"] == "one"
    deleted = shell("conversations", "delete", "a/b", *service)
    assert deleted.stdout == "1 conversations, 0 background runs\n"
    deleted = shell("conversations", "delete", "--user", "eve", *service)
    assert deleted.stdout.startswith("1 ")
    assert shell("conversations", "delete", *service).returncode != 0
    assert client.get("/conversations").json()["conversations"] == []


def test_turns_are_counted(serve: Serve, sqlite_database: str) -> None:
    """By what became of them, without a name of a session."""
    client = serve(
        asking_flow(), runs_database=sqlite_database, conversations=True
    )
    problem = post(client, "one").json()
    body = {
        "inputs": problem["context"],
        "resume_path": problem["resume_path"],
    }
    client.post("/run", json=body)
    counted = Metrics(client.get("/metrics").text)
    for outcome in ("paused", "kept"):
        assert (
            counted.get(
                "podwright_conversation_turns_total",
                component="asking",
                outcome=outcome,
            )
            == 1
        )
