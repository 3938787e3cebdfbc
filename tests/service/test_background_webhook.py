"""The webhook of background runs: what it is told, how that is signed, and that it is told until it has accepted it."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import create_engine, select, update
from standardwebhooks import Webhook
from tests.helpers import NEWSROOM, NO_AUTHORITIES, until
from tests.ports import free_port
from tests.service.background_support import (
    ECHO,
    FLOW,
    MAX_TAKEOVERS,
    begin,
    opened_stores,
    runs_of,
    synchronous_url,
    wait,
)
from tests.service.support import (
    Address,
    Command,
    Gate,
    Serve,
    Served,
    check_problem,
    wait_for_line,
)

from podwright import Agent, ApprovalStep, FunctionModel, Workflow
from podwright.errors import ConfigurationError
from podwright_service.app import create_app
from podwright_service.background.delivery.outbox import CLAIM_SECONDS, Outbox
from podwright_service.background.delivery.webhook import WAITS, wait_after
from podwright_service.background.storage.database import database_url, migrate
from podwright_service.background.storage.tables import deliveries
from podwright_service.background.store import AttemptUpdate
from podwright_service.settings import Settings, read_settings
from podwright_service.testing import Metrics

POLL_INTERVAL = "podwright_service.background.delivery.webhook.POLL_INTERVAL"
ALL_WAITS = "podwright_service.background.delivery.webhook.WAITS"
KEYS = (b"k" * 24, b"l" * 32)
SECRETS = tuple(f"whsec_{base64.b64encode(key).decode()}" for key in KEYS)
CONTENT = {
    "waiting_for_approval": "approval",
    "succeeded": "result",
    "cancelled": "problem",
}
"""What the content of a notification is called, by the status of the run."""
FACTS = ("id", "component", "status", "attempt", "caller")
"""What each notification says of its run."""
RUN = {"id": "r", "component": "c", "digest": "d", "request": {}}


@dataclass
class Notification:
    """A request that the receiver got."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def sent_at(self) -> int:
        return int(self.headers["webhook-timestamp"])

    @property
    def payload(self) -> dict[str, Any]:
        return json.loads(self.body)

    def is_signed_by(self, key: bytes) -> bool:
        """Whether it has a signature of this key, as the specification computes it."""
        signed = f"{self.id}.{self.sent_at}.".encode() + self.body
        digest = hmac.new(key, signed, hashlib.sha256).digest()
        expected = f"v1,{base64.b64encode(digest).decode()}"
        return expected in self.headers["webhook-signature"].split(" ")


@dataclass
class Receiver:
    """A server that gets notifications, and keeps them."""

    port: int
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    """Statuses and headers of the first responses; those after them are 204."""
    received: list[Notification] = field(default_factory=list)
    hold: Callable[[Notification], object] = lambda _notification: None
    """Called before each response."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?team=news"

    def settings(self, database: str, **further: Any) -> dict[str, Any]:
        """The settings of a service that notifies it."""
        return {
            "runs_database": database,
            "webhook": self.url,
            "webhook_secret": SECRETS[0],
            **further,
        }

    def types(self) -> list[str]:
        return [each.payload["type"] for each in self.received]

    def respond(self, notification: Notification) -> tuple[int, dict[str, str]]:
        self.received.append(notification)
        answer: tuple[int, dict[str, str]] = (204, {})
        if self.answers:
            answer = self.answers.pop(0)
        self.hold(notification)
        return answer


@contextlib.contextmanager
def listening(receiver: Receiver) -> Iterator[None]:
    """Have a receiver listen."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["content-length"])
            names = {name.lower(): text for name, text in self.headers.items()}
            notification = Notification(
                self.path, names, self.rfile.read(length)
            )
            status, headers = receiver.respond(notification)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Write nothing."""

    with ThreadingHTTPServer(("127.0.0.1", receiver.port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield
        server.shutdown()
        thread.join()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver that listens."""
    receiver = Receiver(free_port())
    with listening(receiver):
        yield receiver


def pass_time(database: str) -> None:
    """Have all notifications be due, as if the time until then had passed."""
    engine = create_engine(synchronous_url(database))
    with engine.begin() as connection:
        connection.execute(update(deliveries).values(due_at=0.0))
    engine.dispose()


def pending(database: str) -> list[dict[str, Any]]:
    """The notifications that are not accepted yet."""
    engine = create_engine(synchronous_url(database))
    with engine.connect() as connection:
        rows = connection.execute(select(deliveries)).mappings().all()
    engine.dispose()
    return [dict(row) for row in rows]


def counted(client: httpx.Client, outcome: str) -> float:
    metrics = Metrics(client.get("/metrics").text)
    return metrics.get("podwright_webhook_deliveries_total", outcome=outcome)


# --- What it is told ----------------------------------------------------------------------------------------------


def test_a_pause_and_an_end(
    serve: Serve, database: str, receiver: Receiver
) -> None:
    """Both are notified at once, signed by the secret, and nothing of what the run is about is in them."""
    key = "a-key-of-the-tests"
    settings = receiver.settings(database, api_keys=f"@ann:{key}")
    client = serve(FLOW, **settings)
    client.headers["authorization"] = f"Bearer {key}"
    traceparent = f"00-{'ab' * 16}-{'cd' * 8}-01"
    url = begin(client, "the moon", traceparent=traceparent)
    until(lambda: receiver.received)
    run = wait(client, url, "waiting_for_approval")
    assert client.post(f"{url}/approve", json={}).status_code == 202
    until(lambda: len(receiver.received) == 2)
    until(lambda: counted(client, "delivered") == 2)
    facts = {"id": run["id"], "component": "flow", "caller": "ann"}
    paused, ended = receiver.received
    assert paused.payload["type"] == "run.waiting_for_approval"
    assert paused.payload["data"] == {
        **facts,
        "status": "waiting_for_approval",
        "attempt": 1,
    }
    assert ended.payload["type"] == "run.succeeded"
    assert ended.payload["data"] == {
        **facts,
        "status": "succeeded",
        "attempt": 2,
    }
    assert paused.id != ended.id
    for notification in receiver.received:
        assert notification.path == "/hook?team=news"
        assert notification.headers["content-type"] == "application/json"
        assert set(notification.payload) == {"type", "timestamp", "data"}
        assert notification.payload["timestamp"].endswith("+00:00")
        assert notification.is_signed_by(KEYS[0])
        assert not notification.is_signed_by(KEYS[1])
        Webhook(SECRETS[0]).verify(notification.body, notification.headers)
        assert abs(notification.sent_at - time.time()) < 300
        assert "." not in notification.id
        assert b"moon" not in notification.body
        assert "ab" * 16 in notification.headers["traceparent"]
    assert pending(database) == []


def test_ends_by_persons(
    serve: Serve, database: str, receiver: Receiver
) -> None:
    """A run that is rejected or cancelled while it waits is cancelled; the pod that was asked need have no webhook."""
    client = serve(FLOW, **receiver.settings(database))
    other = serve(FLOW, runs_database=database)
    for end in ("reject", "cancel"):
        url = begin(client)
        wait(client, url, "waiting_for_approval")
        asked = {"reject": client, "cancel": other}[end]
        assert asked.post(f"{url}/{end}", json={}).status_code == 202
    until(lambda: len(receiver.received) == 4)
    assert Counter(receiver.types()) == {
        "run.waiting_for_approval": 2,
        "run.cancelled": 2,
    }
    # a run without a webhook
    helper = serve(ECHO, runs_database=database)
    wait(helper, begin(helper))
    assert pending(database) == []


def test_a_cancelled_model_call(
    serve: Serve, sqlite_database: str, receiver: Receiver
) -> None:
    """A run that is cancelled while it is performed is notified once, when it has ended."""
    gate = Gate()
    client = serve(gate.agent(), **receiver.settings(sqlite_database))
    url = begin(client)
    until(gate.called.is_set)
    client.post(f"{url}/cancel")
    wait(client, url)
    until(lambda: receiver.received)
    assert receiver.types() == ["run.cancelled"]


def test_an_interruption_and_what_follows(
    serve: Serve,
    database: str,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An interrupted run is notified, and so is its end after a person has resumed it."""
    client = serve(ECHO, **receiver.settings(database))
    with monkeypatch.context() as patch:
        patch.setattr(MAX_TAKEOVERS, 0)
        url = begin(client)
        wait(client, url, "interrupted")
    client.post(f"{url}/resume")
    until(lambda: len(receiver.received) == 2)
    assert Counter(receiver.types()) == {
        "run.interrupted": 1,
        "run.succeeded": 1,
    }


def test_content_is_sent_if_the_operator_asks_for_it(
    serve: Serve, database: str, receiver: Receiver
) -> None:
    """Then notifications have the question, the result and the problem as the run has them, odd characters too."""
    odd = Agent("odd", "Answer.", FunctionModel(lambda _: "\x00 \ud800 ü"))
    question = ApprovalStep("Publish {odd_output}?")
    count = Agent(
        "count",
        "Count.",
        FunctionModel(lambda _: '{"n": 1}'),
        response_model={"type": "object"},
    )
    flow = Workflow("flow", steps=[count, odd, question])
    client = serve(flow, **receiver.settings(database, webhook_content=True))
    expected: list[Any] = []
    for decision in ("approve", "reject"):
        url = begin(client)
        expected.append(wait(client, url, "waiting_for_approval")["approval"])
        client.post(f"{url}/{decision}", json={"comment": "secret"})
        run = wait(client, url)
        expected.append(run["result"] or run["problem"])
    until(lambda: len(receiver.received) == 4)
    received: list[Any] = []
    for notification in receiver.received:
        assert notification.is_signed_by(KEYS[0])
        data = notification.payload["data"]
        (name,) = set(data) - set(FACTS)
        assert name == CONTENT[data["status"]]
        received.append(data[name])
    assert len(received) == len(expected)
    assert all(content in expected for content in received)


def test_a_caller_cannot_choose_the_receiver(
    serve: Serve, sqlite_database: str, receiver: Receiver
) -> None:
    """A request with a URL for notifications is refused."""
    client = serve(ECHO, **receiver.settings(sqlite_database))
    for name in ("webhook", "webhook_url", "callback_url"):
        body = {"input": "x", name: "http://169.254.169.254/"}
        problem = check_problem(
            client.post("/runs", json=body), 422, "request_invalid"
        )
        assert f"/{name}" in {each["pointer"] for each in problem["errors"]}
    assert receiver.received == []


def test_two_secrets(
    serve: Serve, sqlite_database: str, receiver: Receiver
) -> None:
    """While a secret is replaced, receivers with either of them accept a notification."""
    secrets = ",".join(SECRETS)
    settings = receiver.settings(sqlite_database, webhook_secret=secrets)
    begin(serve(ECHO, **settings))
    until(lambda: receiver.received)
    (notification,) = receiver.received
    assert all(notification.is_signed_by(key) for key in KEYS)


# --- Until it is accepted -----------------------------------------------------------------------------------------


def test_failures_are_repeated(
    serve: Serve,
    database: str,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever fails is sent again, with the same id and body, and with the time and signature of that request."""
    monkeypatch.setattr(ALL_WAITS, (0.0,) * len(WAITS))
    monkeypatch.setattr(POLL_INTERVAL, 0.02)
    statuses = (500, 401, 404, 429, 302)
    receiver.answers = [(status, {}) for status in statuses]
    client = serve(ECHO, **receiver.settings(database))
    wait(client, begin(client))
    until(lambda: counted(client, "delivered") == 1)
    assert len(receiver.received) == len(statuses) + 1
    assert counted(client, "failed") == len(statuses)
    assert counted(client, "given_up") == 0
    assert len({each.id for each in receiver.received}) == 1
    assert len({each.body for each in receiver.received}) == 1
    assert all(each.is_signed_by(KEYS[0]) for each in receiver.received)
    assert pending(database) == []


def test_the_time_of_a_request_is_its_own(
    serve: Serve, sqlite_database: str, receiver: Receiver
) -> None:
    """A notification of long ago has a new time in its header, because receivers refuse old ones.

    Source: https://github.com/argilla-io/argilla/pull/5521
    """
    receiver.answers = [(503, {})]
    client = serve(ECHO, **receiver.settings(sqlite_database))
    begin(client)
    until(lambda: counted(client, "failed") == 1)
    engine = create_engine(synchronous_url(sqlite_database))
    with engine.begin() as connection:
        connection.execute(
            update(deliveries).values(created_at=1e9, due_at=0.0)
        )
    engine.dispose()
    until(lambda: len(receiver.received) == 2)
    again = receiver.received[1]
    assert again.payload["timestamp"].startswith("2001-09-09")
    assert abs(again.sent_at - time.time()) < 300


def test_redirects_are_not_followed(
    serve: Serve,
    sqlite_database: str,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is sent to the place that a response names."""
    monkeypatch.setattr(ALL_WAITS, (0.0,) * len(WAITS))
    elsewhere = {"location": f"http://127.0.0.1:{receiver.port}/elsewhere"}
    receiver.answers = [(301, elsewhere), (307, elsewhere)]
    client = serve(ECHO, **receiver.settings(sqlite_database))
    begin(client)
    until(lambda: counted(client, "delivered") == 1)
    assert {each.path for each in receiver.received} == {"/hook?team=news"}


@pytest.mark.parametrize("reason", ["gone", "waits"])
def test_giving_up(
    serve: Serve,
    database: str,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
    reason: str,
) -> None:
    """After the last wait, or a 410, a notification is not sent again; the next one is sent all the same."""
    monkeypatch.setattr(POLL_INTERVAL, 0.02)
    monkeypatch.setattr(ALL_WAITS, (0.0, 0.0))
    statuses = {"gone": [410], "waits": [500, 500, 500]}[reason]
    receiver.answers = [(status, {}) for status in statuses]
    client = serve(ECHO, **receiver.settings(database))
    begin(client)
    until(lambda: counted(client, "given_up") == 1)
    assert pending(database) == []
    assert len(receiver.received) == len(statuses)
    begin(client)
    until(lambda: counted(client, "delivered") == 1)
    assert len(receiver.received) == len(statuses) + 1


def test_the_waits() -> None:
    """They are those of Standard Webhooks for some more than a day, spread, and at least what the webhook asks for."""
    numbers = range(1, len(WAITS) + 1)
    shortest = [wait_after(number, 0.0, lambda: 0.0) for number in numbers]
    longest = [wait_after(number, 0.0, lambda: 1.0) for number in numbers]
    assert 24 < sum(shortest) / 3600 < sum(longest) / 3600 < 48
    assert shortest == pytest.approx([0.9 * wait for wait in WAITS])
    assert longest == pytest.approx([1.1 * wait for wait in WAITS])
    assert wait_after(1, 3600.0) == 3600.0
    assert wait_after(1, 1e9) == max(WAITS)


def test_what_the_webhook_asks_to_wait(
    serve: Serve, sqlite_database: str, receiver: Receiver
) -> None:
    """The header `Retry-After` of a response is honoured."""
    receiver.answers = [(429, {"retry-after": "1000"})]
    client = serve(ECHO, **receiver.settings(sqlite_database))
    begin(client)
    until(lambda: counted(client, "failed") == 1)
    assert pending(sqlite_database)[0]["due_at"] > time.time() + 900


def test_a_slow_response_holds_up_no_other(
    serve: Serve, sqlite_database: str, receiver: Receiver
) -> None:
    """While a request waits for its response, other notifications are sent.

    Source: https://github.com/rmyndharis/OpenWA/pull/511
    """
    may_respond = threading.Event()

    def hold(notification: Notification) -> None:
        if notification is receiver.received[0]:
            assert may_respond.wait(60)

    receiver.hold = hold
    client = serve(ECHO, **receiver.settings(sqlite_database))
    begin(client)
    until(lambda: receiver.received)
    begin(client)
    until(lambda: counted(client, "delivered") == 1)
    assert counted(client, "delivered") == 1
    may_respond.set()
    until(lambda: counted(client, "delivered") == 2)


def test_two_processes_send_each_notification_once(
    serve: Serve, database: str, receiver: Receiver
) -> None:
    """Many runs of two processes are each notified once.

    Source: https://github.com/LepistaBioinformatics/mycelium/issues/192
    """
    settings = receiver.settings(database)
    clients = [serve(ECHO, **settings) for _ in range(2)]
    runs = [begin(clients[number % 2]) for number in range(20)]
    for url in runs:
        wait(clients[0], url)
    until(lambda: sum(counted(each, "delivered") for each in clients) == 20)
    assert pending(database) == []
    sent = Counter(each.payload["data"]["id"] for each in receiver.received)
    assert sent == {url.rpartition("/")[2]: 1 for url in runs}


def test_a_receiver_that_was_down(
    served: Served, sqlite_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be sent is sent when the receiver is back, after the service has been restarted meanwhile."""
    monkeypatch.setattr(POLL_INTERVAL, 0.05)
    receiver = Receiver(free_port())
    settings = receiver.settings(sqlite_database)
    with served(ECHO, **settings) as client:
        wait(client, begin(client))
        until(lambda: counted(client, "failed") == 1)
    (kept,) = pending(sqlite_database)
    assert kept["requests"] == 1
    pass_time(sqlite_database)
    with listening(receiver), served(ECHO, **settings) as client:
        until(lambda: counted(client, "delivered") == 1)
    (notification,) = receiver.received
    assert notification.id == kept["id"]
    assert notification.payload["type"] == "run.succeeded"


def test_a_killed_process(
    command: Command, address: Address, sqlite_database: str
) -> None:
    """A notification whose process is killed during its request is sent by the next one; a failure is a log line."""
    receiver = Receiver(free_port())
    may_respond = threading.Event()
    receiver.answers = [(200, {}), (500, {})]
    receiver.hold = lambda _: may_respond.wait(60)
    variables = {
        "PODWRIGHT_RUNS_DATABASE": sqlite_database,
        "PODWRIGHT_WEBHOOK": receiver.url,
        "PODWRIGHT_WEBHOOK_SECRET": SECRETS[0],
        "PODWRIGHT_MODEL": "offline/echo",
        "PODWRIGHT_LOG_FORMAT": "json",
    }
    arguments = (
        "serve", str(NEWSROOM / "writer"), "--host", "127.0.0.1", "--port", "0",
    )  # fmt: skip
    with listening(receiver):
        first = command(*arguments, **variables)
        with httpx.Client(
            verify=NO_AUTHORITIES, base_url=address(first)
        ) as client:
            begin(client)
            until(lambda: receiver.received)
        os.kill(first.pid, signal.SIGKILL)
        may_respond.set()
        second = command(*arguments, **variables)
        address(second)
        (claimed,) = pending(sqlite_database)
        assert claimed["due_at"] > time.time()
        pass_time(sqlite_database)
        until(lambda: len(receiver.received) == 2)
        wait_for_line(second, "webhook request failed")
        pass_time(sqlite_database)
        until(lambda: pending(sqlite_database) == [])
    assert len({each.id for each in receiver.received}) == 1
    assert len({each.body for each in receiver.received}) == 1


# --- The outbox ---------------------------------------------------------------------------------------------------


async def test_a_claim_ends(database: str) -> None:
    """A notification that is claimed is nobody else's until its process must be dead, which can then change no more."""
    async with opened_stores(database, 2, "status") as (first, second):
        await first.add(RUN, "worker")
        await first.write([AttemptUpdate("r", 1, (), {"status": "failed"})])
        (claimed,) = await first.outbox.claim("c", 9)
        assert CLAIM_SECONDS > 20
        assert claimed["due_at"] - claimed["created_at"] >= CLAIM_SECONDS
        assert await second.outbox.claim("c", 9) == []
        pass_time(database)
        assert await second.outbox.claim("other", 9) == []
        (again,) = await second.outbox.claim("c", 9)
        assert (again["id"], again["requests"]) == (claimed["id"], 2)
        await first.outbox.postpone(claimed, 0.0)
        assert await first.outbox.claim("c", 9) == []
        await second.outbox.postpone(again, 0.0)
        (last,) = await first.outbox.claim("c", 9)
        assert last["requests"] == 3
        await first.outbox.remove(last)
    assert pending(database) == []


async def test_a_notification_is_part_of_the_change(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It exists if the status has changed, and only then: not if the run was lost, and not if the change failed."""
    ended = {"status": "succeeded", "result": {"output": "x"}}
    async with opened_stores(database, 1, "status") as (store,):
        await store.add(RUN, "worker")
        late = AttemptUpdate("r", 2, (), ended)
        assert await store.write([late]) == {"r"}
        assert pending(database) == []

        add = Outbox.add

        async def fail(*arguments: Any) -> None:
            await add(*arguments)
            raise RuntimeError("the process is killed")

        with monkeypatch.context() as patch:
            patch.setattr(Outbox, "add", fail)
            with pytest.raises(RuntimeError):
                await store.write([AttemptUpdate("r", 1, (), ended)])
        assert pending(database) == []
        assert await runs_of(store).status("r") == "running"

        # the second time, as if the response of the database to the first had been lost
        for _ in range(2):
            await store.write([AttemptUpdate("r", 1, (), ended)])
        assert [each["status"] for each in pending(database)] == ["succeeded"]


async def test_a_run_that_is_cancelled_as_it_pauses(database: str) -> None:
    """A run that goes back to the queue instead of waiting is not notified."""
    async with opened_stores(database, 1, "status") as (store,):
        await store.add(RUN, "worker")
        await runs_of(store).cancel("r")
        paused = {"status": "waiting_for_approval", "approval": {}}
        await store.write([AttemptUpdate("r", 1, (), paused)])
        assert await runs_of(store).status("r") == "queued"
    assert pending(database) == []


async def test_a_deleted_run(database: str) -> None:
    """What a notification has of a run is deleted with it; that it ended is sent all the same."""
    ended = {"status": "succeeded", "result": {"output": "secret"}}
    async with opened_stores(database, 1, "content") as (store,):
        await store.add(RUN, "worker")
        await store.write([AttemptUpdate("r", 1, (), ended)])
        assert pending(database)[0]["content"] == {"output": "secret"}
        assert await store.delete_ended("c", -1.0) == 1
        (kept,) = pending(database)
        assert (kept["status"], kept["content"]) == ("succeeded", None)


async def test_what_nobody_sends(database: str) -> None:
    """A notification that no process has sent for a week is deleted."""
    async with opened_stores(database, 1, "status") as (store,):
        await store.add(RUN, "worker")
        await store.write([AttemptUpdate("r", 1, (), {"status": "failed"})])
        await store.delete_ended("c", 1e6)
        assert len(pending(database)) == 1
        engine = create_engine(synchronous_url(database))
        with engine.begin() as connection:
            week = 7 * 86400
            old = deliveries.c.created_at - week
            connection.execute(update(deliveries).values(created_at=old))
        engine.dispose()
        await store.delete_ended("other", 1e6)
        assert len(pending(database)) == 1
        await store.delete_ended("c", 1e6)
    assert pending(database) == []


async def test_a_run_of_the_release_before(database: str) -> None:
    """A run that was begun without a webhook is notified once a process with one has claimed it."""
    migrate(database_url(database))
    async with opened_stores(database, 1) as (without,):
        await without.add(RUN)
    async with opened_stores(database, 1, "status") as (store,):
        await store.claim("worker", "c", "d", 1)
        await store.write([AttemptUpdate("r", 1, (), {"status": "failed"})])
    assert [each["status"] for each in pending(database)] == ["failed"]


# --- Settings -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "example.com/hook",
        "ftp://example.com/hook",
        "https://user:pa55@example.com/hook",
        "https://example.com/a hook",
        "https://example.com/hook\n",
        "https://example.com/hook#part",
        "https://",
        "https://example.com:0/",
        "http://[::1/",
    ],
)
def test_an_invalid_url(url: str) -> None:
    """It stops the start with an error that names the setting, and no password."""
    with pytest.raises(ConfigurationError) as caught:
        read_settings(webhook=url)
    assert "PODWRIGHT_WEBHOOK" in caught.value.message
    assert "https://example.com/podwright" in caught.value.message
    assert "pa55" not in caught.value.message


@pytest.mark.parametrize(
    "secret",
    [
        SECRETS[0].removeprefix("whsec_"),
        # Source: https://github.com/standard-webhooks/standard-webhooks/issues/235
        f"v1,{SECRETS[0]}",
        # Source: https://github.com/openai/openai-node/pull/1887
        "whsec_notatall!",
        f"{SECRETS[0]}!",
        f"whsec_{base64.b64encode(b'too short').decode()}",
        f"whsec_{base64.b64encode(b'l' * 65).decode()}",
    ],
)
def test_an_invalid_secret(secret: str) -> None:
    """It stops the start with an error that says how to make one, and does not repeat it."""
    with pytest.raises(ConfigurationError) as caught:
        read_settings(webhook_secret=secret)
    assert "openssl rand" in caught.value.message
    assert secret not in caught.value.message


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"webhook_secret": SECRETS[0]}, "PODWRIGHT_RUNS_DATABASE"),
        ({"runs_database": "sqlite:///{}"}, "PODWRIGHT_WEBHOOK_SECRET"),
    ],
)
def test_what_a_webhook_needs(
    settings: dict[str, str], named: str, tmp_path: Path
) -> None:
    """Without a database of runs, or without a secret, the service does not start."""
    database = settings.get("runs_database", "").format(tmp_path / "runs.db")
    options: dict[str, Any] = {
        **settings,
        "webhook": "https://example.com/hook",
    }
    if database:
        options["runs_database"] = database
    with pytest.raises(ConfigurationError) as caught:
        create_app(Settings(**options), ECHO)
    assert named in caught.value.suggestion
