"""What background runs need of their database, in SQLite and in PostgreSQL: tables, statements that differ, health."""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import math
import multiprocessing
import os
import re
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import (
    Engine,
    create_engine,
    event,
    insert,
    literal,
    select,
    text,
    update,
)
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import create_async_engine
from tests.helpers import NEWSROOM, NO_AUTHORITIES, until
from tests.pgbouncer import PgBouncer
from tests.postgresql import PostgreSQL
from tests.service.background_support import (
    ECHO,
    FLOW,
    LEASE_SECONDS,
    METRICS_INTERVAL,
    RETRY_INTERVAL,
    TRANSACTION_TIMEOUT,
    begin,
    change_run,
    opened_stores,
    runs_of,
    set_clock,
    synchronous_url,
    wait,
)
from tests.service.support import (
    Address,
    Command,
    Gate,
    Serve,
    Shell,
    check_problem,
)

from podwright import Agent, ApprovalStep, FunctionModel, Workflow
from podwright.testing import ModelRequest
from podwright_service.background.delivery.webhook import wait_after
from podwright_service.background.storage.database import (
    Database,
    DatabaseUnavailableError,
    database_url,
    migrate,
)
from podwright_service.background.storage.tables import metadata, runs, workers
from podwright_service.background.store import AttemptUpdate, RunStore
from podwright_service.testing import Metrics

PREPARED = "SELECT count(*) FROM pg_prepared_statements"

# --- Tables -------------------------------------------------------------------------------------------------------


def test_the_migrations_make_the_tables(database: str) -> None:
    """The tables that the migrations create are those that the code uses."""
    migrate(database_url(database))
    engine = create_engine(synchronous_url(database))
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": "podwright_migrations"}
        )
        changes = compare_metadata(context, metadata)
    engine.dispose()
    changes = [
        change
        for group in changes
        for change in (group if isinstance(group, list) else [group])
    ]
    # comments are for readers of the code
    assert [change for change in changes if change[0] != "modify_comment"] == []


def test_migrating_by_command(
    shell: Shell, postgresql: PostgreSQL, command: Command, address: Address
) -> None:
    """Without its tables a service says what to do; `podwright runs migrate` creates them, and may be repeated."""
    url = postgresql.database()
    variables = {
        "PODWRIGHT_RUNS_DATABASE": url,
        "PODWRIGHT_MODEL": "offline/echo",
    }
    process = command(
        "serve",
        str(NEWSROOM / "writer"),
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        **variables,
    )
    with httpx.Client(
        verify=NO_AUTHORITIES, base_url=address(process)
    ) as client:
        problem = check_problem(
            client.post("/runs", json={"input": "x"}), 503, "runs_unavailable"
        )
        assert "podwright runs migrate" in problem["suggestion"]
        for _ in range(2):
            done = shell("runs", "migrate", PODWRIGHT_RUNS_DATABASE=url)
            assert (done.returncode, done.stdout) == (
                0,
                "The tables are up to date.\n",
            )
        assert wait(client, begin(client))["status"] == "succeeded"


def test_migrating_without_a_database(shell: Shell) -> None:
    """The command names the setting that is missing or wrong, and repeats no password."""
    assert shell("runs", "migrate").returncode == 1
    assert (
        "PODWRIGHT_RUNS_DATABASE"
        in shell(
            "runs", "migrate", PODWRIGHT_RUNS_DATABASE="mysql://x/y"
        ).stderr
    )
    away = shell(
        "runs",
        "migrate",
        PODWRIGHT_RUNS_DATABASE="postgresql://user:secret@127.0.0.1:1/x",
    )
    assert away.returncode == 1
    assert "secret" not in away.stderr


@pytest.mark.parametrize(
    ("changes", "reason", "advice"),
    [
        ({"host": "nowhere.invalid"}, "nowhere.invalid", "host"),
        ({"port": 1}, "refused", "server is up"),
        ({"username": "nobody"}, '"nobody"', "password"),
        ({"database": "none"}, '"none"', "name"),
        ({"username": "visitor"}, "schema", "GRANT"),
        ({"host": "a..b"}, "PODWRIGHT_RUNS_DATABASE", "postgresql://"),
    ],
)
def test_a_migration_that_fails(
    shell: Shell,
    postgresql: PostgreSQL,
    changes: dict[str, Any],
    reason: str,
    advice: str,
) -> None:
    """The command says in a line what failed and in another one what to do, for each cause, and has no traceback."""
    url = postgresql.database()
    engine = create_engine(synchronous_url(url))
    with engine.begin() as connection:
        connection.execute(text("REVOKE ALL ON SCHEMA public FROM public"))
        connection.execute(text("DROP ROLE IF EXISTS visitor"))
        connection.execute(text("CREATE ROLE visitor LOGIN"))
    engine.dispose()
    changed = make_url(url).set(**changes)
    done = shell(
        "runs",
        "migrate",
        PODWRIGHT_RUNS_DATABASE=changed.render_as_string(False),
    )
    assert done.returncode == 1
    failed, suggestion, help_page = done.stderr.splitlines()
    assert reason in failed
    assert advice in suggestion
    assert "configuration_invalid" in help_page


def test_a_service_logs_why_its_database_is_away(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """The cause and what to do are one log line, without a traceback, and without the password."""
    serve(ECHO, runs_database="postgresql://user:secret@127.0.0.1:1/x")
    records: list[logging.LogRecord] = []

    def is_logged() -> bool:
        records[:] = [
            record
            for record in caplog.records
            if record.name == "podwright.background"
        ]
        return bool(records)

    until(is_logged)
    line = records[0].getMessage()
    assert "refused" in line
    assert "PODWRIGHT_RUNS_DATABASE" in line
    assert "secret" not in line
    assert records[0].exc_info is None


def delete(path: Path) -> None:
    """Delete the file of a database and those beside it."""
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()


def replace_by_copy(path: Path) -> None:
    """Replace the file by an older copy, as one who restores a backup."""
    content = path.read_bytes()
    delete(path)
    path.write_bytes(content)


def truncate(path: Path) -> None:
    os.truncate(path, 0)


def overwrite(path: Path) -> None:
    path.write_bytes(os.urandom(path.stat().st_size))


@pytest.mark.parametrize(
    "change", [delete, Path.unlink, replace_by_copy, truncate, overwrite]
)
def test_a_file_that_is_changed_while_it_is_open(
    serve: Serve,
    sqlite_database: str,
    caplog: pytest.LogCaptureFixture,
    change: Callable[[Path], object],
) -> None:
    """No run is accepted that would be lost, and a log line says why; other runs go on."""
    client = serve(ECHO, runs_database=sqlite_database)
    wait(client, begin(client))
    path = Path(make_url(sqlite_database).database or "")
    change(path)
    for _ in range(2):
        answer = client.post("/runs", json={"input": "x"})
        check_problem(answer, 503, "runs_unavailable")
    until(lambda: f"the file '{path}'" in caplog.text)
    assert client.post("/run", json={"input": "x"}).status_code == 200
    assert client.get("/health").status_code == 200


def test_a_file_that_is_put_back(
    serve: Serve, sqlite_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a volume is away for a while: then runs go on, and what was accepted is there."""
    monkeypatch.setattr(RETRY_INTERVAL, 0.02)
    client = serve(ECHO, runs_database=sqlite_database)
    url = begin(client)
    wait(client, url)
    path = Path(make_url(sqlite_database).database or "")
    away = path.with_name("away")
    path.rename(away)
    check_problem(client.get(url), 503, "runs_unavailable")
    away.rename(path)
    assert wait(client, url)["status"] == "succeeded"
    later = begin(client)
    assert wait(client, later)["status"] == "succeeded"


async def test_a_file_that_changes_during_a_transaction(
    sqlite_database: str,
) -> None:
    """What is committed to a file that has been deleted meanwhile is not reported as stored."""
    path = Path(make_url(sqlite_database).database or "")

    async def commit_to(database: Database) -> None:
        async with database.transaction() as transaction:
            row = insert(workers).values(id="w", lease_until=1.0)
            await transaction.execute(row)
            path.unlink()

    migrate(database_url(sqlite_database))
    database = Database(database_url(sqlite_database))
    with pytest.raises(DatabaseUnavailableError):
        await commit_to(database)
    await database.close()


def test_a_full_disk(serve: Serve, sqlite_database: str) -> None:
    """A run for which there is no room is refused, and those that were accepted are there."""

    def limit_pages(connection: Any, _: object) -> None:
        cursor = connection.cursor()
        cursor.execute("PRAGMA max_page_count = 100")
        cursor.close()

    event.listen(Engine, "connect", limit_pages)
    try:
        client = serve(ECHO, runs_database=sqlite_database, shutdown_timeout=1)
        answers = [
            client.post("/runs", json={"input": "x" * 50_000})
            for _ in range(20)
        ]
        refused = [each for each in answers if each.status_code != 202]
        assert refused
        for answer in refused:
            check_problem(answer, 503, "runs_unavailable")
        accepted = [each for each in answers if each.status_code == 202]
        for answer in accepted:
            url = answer.headers["location"]
            assert client.get(url).status_code == 200
    finally:
        event.remove(Engine, "connect", limit_pages)


# --- Rows ---------------------------------------------------------------------------------------------------------


def test_characters_that_databases_refuse(serve: Serve, database: str) -> None:
    """In the conversation and the result they are kept, with images and earlier turns; in a path nothing is found."""
    requests: list[ModelRequest] = []

    def answer(request: ModelRequest) -> str:
        requests.append(request)
        return "odd \x00 \ud800 text"

    client = serve(
        Agent("helper", "Help.", FunctionModel(answer)), runs_database=database
    )
    earlier = [
        {"role": "user", "content": "Hi \x00"},
        {"role": "assistant", "content": "Hello"},
    ]
    image = {
        "type": "image_url",
        "image_url": {"url": "https://example.com/a.png"},
    }
    body = {
        "input": [{"type": "text", "text": "Look"}, image],
        "messages": earlier,
    }
    run = wait(client, client.post("/runs", json=body).headers["location"])
    assert run["status"] == "succeeded", run["problem"]
    assert run["result"]["output"].startswith("odd \x00 ")
    assert [message.text for message in requests[0].messages] == [
        "Help.",
        "Hi \x00",
        "Hello",
        "Look",
    ]
    assert client.get("/runs?caller=%00").status_code in (200, 422)
    assert client.get("/runs/%00").status_code in (404, 422)


def test_an_idempotency_key_lasts_as_long_as_the_run(
    serve: Serve, database: str
) -> None:
    """The same request with the same key is the same run, in another process too; another request is refused."""
    first = serve(ECHO, runs_database=database)
    second = serve(ECHO, runs_database=database)
    key = {"idempotency-key": "k1"}
    url = begin(first, "x", **key)
    again = second.post("/runs", json={"input": "x"}, headers=key)
    assert (again.status_code, again.headers["location"]) == (202, url)
    assert again.headers["idempotency-replayed"] == "true"
    check_problem(
        second.post("/runs", json={"input": "y"}, headers=key),
        422,
        "idempotency_key_reused",
    )
    assert wait(second, url)["status"] == "succeeded"
    assert (
        second.post("/runs", json={"input": "x"}, headers=key).json()["status"]
        == "succeeded"
    )
    assert len(first.get("/runs").json()["runs"]) == 1
    # another component has keys of its own
    other = serve(FLOW, runs_database=database)
    begin(other, "x", **key)
    assert len(other.get("/runs").json()["runs"]) == 1
    assert len(first.get("/runs").json()["runs"]) == 1


def test_pages_of_runs(serve: Serve, database: str) -> None:
    """Newest first, by status and caller, with a cursor from page to page."""
    client = serve(ECHO, runs_database=database)
    urls = [begin(client, str(number)) for number in range(5)]
    for url in urls:
        wait(client, url)
    seen: list[str] = []
    query = {"limit": "2"}
    while True:
        page = client.get("/runs", params=query).json()
        seen += [f"/runs/{run['id']}" for run in page["runs"]]
        if page["next"] is None:
            break
        query["cursor"] = page["next"]
    assert seen == urls[::-1]

    def count(query: str) -> int:
        return len(client.get(f"/runs?{query}").json()["runs"])

    assert (
        count("status=succeeded")
        == count("status=failed&status=succeeded")
        == 5
    )
    assert count("status=failed") == 0
    nobodys = f"@ann:{'a' * 20}"
    of_ann = serve(ECHO, runs_database=database, api_keys=nobodys)
    of_ann.headers["authorization"] = f"Bearer {'a' * 20}"
    assert wait(of_ann, begin(of_ann))["caller"] == "ann"
    assert count("caller=ann") == 1
    assert count("caller=ann&status=failed") == count("caller=bob") == 0
    infinite = f"cursor=inf-{'0' * 32}"
    for wrong in (
        "cursor=x",
        "cursor=nan-x",
        infinite,
        "status=gone",
        "limit=0",
    ):
        problem = check_problem(
            client.get(f"/runs?{wrong}"), 422, "request_invalid"
        )
        assert (
            f"uery parameter '{wrong.partition('=')[0]}'" in problem["detail"]
        )


def test_ended_runs_are_deleted(serve: Serve, database: str) -> None:
    """After the retention time of its component, neither the run nor its events are left."""
    client = serve(ECHO, runs_database=database)
    url = begin(client)
    wait(client, url)
    flow = serve(FLOW, runs_database=database)
    other = begin(flow)
    wait(flow, other, "waiting_for_approval")
    assert flow.post(f"{other}/cancel").status_code == 202
    serve(FLOW, runs_database=database, runs_retention=0)
    until(lambda: flow.get(other).status_code == 404)
    assert client.get(url).status_code == 200
    cleaner = serve(ECHO, runs_database=database, runs_retention=0)
    until(lambda: cleaner.get(url).status_code == 404)
    check_problem(client.get(f"{url}/events"), 404, "run_not_found")
    assert client.get("/runs").json()["runs"] == []


# --- Leases and races ---------------------------------------------------------------------------------------------


async def test_a_new_process_does_not_take_runs_over_at_once(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database may just be back, and the process that performs a run may not have renewed its lease yet."""
    run = {"id": "r", "component": "c", "digest": "d", "request": {}}
    async with opened_stores(database, 3) as (first, second, third):
        await first.add(run, "first")
        assert await second.claim_orphans("second", "c", ["d"], 9, ()) == []
        # the database has been reached for longer than a lease lasts
        monkeypatch.setattr(LEASE_SECONDS, -1.0)
        (claimed,) = await second.claim_orphans("second", "c", ["d"], 9, ())
        assert (claimed["attempt"], claimed["worker"]) == (2, "second")
        late = AttemptUpdate(
            "r", 1, [(0, {"type": "late"})], {"status": "succeeded"}
        )
        assert await first.write([late]) == {"r"}
        assert await first.events("r") == []

        await second.renew("second", "c")  # a lease that ended before it began
        monkeypatch.setattr(LEASE_SECONDS, 5.0)
        assert await third.claim_orphans("third", "c", ["d"], 9, ()) == []
        # another process has reached the database a moment ago, and is dead
        await third.join("third", "c")
        assert len(await third.claim_orphans("third", "c", ["d"], 9, ())) == 1


def lease(database: str, worker: str, until: float) -> None:
    """Store the lease of a process that has since died."""
    engine = create_engine(synchronous_url(database))
    with engine.begin() as connection:
        connection.execute(insert(workers).values(id=worker, lease_until=until))
    engine.dispose()


async def test_a_lease_of_a_clock_that_was_ahead(database: str) -> None:
    """It is over, as it is longer than any; that of a process that lives is not."""
    async with opened_stores(database, 2) as (alive, other):
        await alive.renew("alive", "c")
        lease(database, "dead", time.time() + 7200)
        for worker in ("alive", "dead"):
            run = {"component": "c", "digest": "d", "request": {}}
            await alive.add({**run, "id": worker}, worker)
        await other.join("other", "c")
        claimed = await other.claim_orphans("other", "c", ["d"], 9, ())
        assert [run["id"] for run in claimed] == ["dead"]


async def test_the_lease_of_another_clock_says_nothing_of_an_outage(
    database: str,
) -> None:
    """The database may just be back, although a lease ends in hours."""
    async with opened_stores(database, 1) as (store,):
        lease(database, "dead", time.time() + 7200)
        run = {"id": "r", "component": "c", "digest": "d", "request": {}}
        await store.add(run, "late")
        await store.join("other", "c")
        assert await store.claim_orphans("other", "c", ["d"], 9, ()) == []


@pytest.mark.parametrize("seconds", [7200, -7200])
async def test_a_clock_that_is_set(
    database: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    seconds: float,
) -> None:
    """Runs of processes that live are not taken over before these have renewed their leases, nor after."""
    async with opened_stores(database, 3) as (alive, other, third):
        await alive.renew("alive", "c")
        await alive.renew("dead", "c")
        for worker in ("alive", "dead"):
            run = {"component": "c", "digest": "d", "request": {}}
            await alive.add({**run, "id": worker}, worker)
        await other.join("other", "c")
        set_clock(monkeypatch, seconds)
        assert await other.claim_orphans("other", "c", ["d"], 9, ()) == []
        assert not caplog.records
        await other.renew("other", "c")
        assert f"was set by {seconds:+d} seconds" in caplog.text
        assert await other.claim_orphans("other", "c", ["d"], 9, ()) == []
        await alive.renew("alive", "c")
        await third.join("third", "c")
        claimed = await third.claim_orphans("third", "c", ["d"], 9, ())
        assert [run["id"] for run in claimed] == ["dead"]


async def test_a_blueprint_that_was_served_when_the_clock_was_ahead(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts as served no longer than others."""
    async with opened_stores(database, 1) as (store,):
        set_clock(monkeypatch, 7200)
        await store.blueprints.keep("c", {"d": {}})
        assert await store.blueprints.served("c") == {"d"}
        set_clock(monkeypatch, 0)
        assert await store.blueprints.served("c") == set()


async def test_runs_that_were_stored_when_the_clock_was_ahead(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their age is not negative, and they are deleted some time after the clock was corrected."""
    day = 86400.0
    run = {"component": "c", "digest": "d", "request": {}}
    async with opened_stores(database, 1) as (store,):
        await store.add({**run, "id": "old"})
        set_clock(monkeypatch, 3650 * day)
        await store.add({**run, "id": "new"})
        await runs_of(store).cancel("old")
        set_clock(monkeypatch, 0)
        assert (await store.counts("c"))["queued"].age == 0
        await runs_of(store).cancel("new")
        set_clock(monkeypatch, day + 60)
        await store.correct_times("c", day)
        assert await store.delete_ended("c", day) == 0
        set_clock(monkeypatch, 2 * day + 120)
        assert await store.delete_ended("c", day) == 2


async def test_notifications_that_were_stored_when_the_clock_was_ahead(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are sent when the clock has been corrected; one that waits after a failed request still waits."""
    run = {"component": "c", "digest": "d", "request": {}}
    async with opened_stores(database, 1, webhook="status") as (store,):
        await store.add({**run, "id": "usual"})
        await runs_of(store).cancel("usual")
        (usual,) = await store.outbox.claim("c", 9)
        await store.outbox.postpone(usual, wait_after(7, math.inf, lambda: 1.0))
        set_clock(monkeypatch, 7200)
        await store.add({**run, "id": "ahead"})
        await runs_of(store).cancel("ahead")
        set_clock(monkeypatch, 0)
        assert await store.outbox.claim("c", 9) == []
        await store.correct_times("c", 60)
        (due,) = await store.outbox.claim("c", 9)
        assert due["run_id"] == "ahead"
        assert due["created_at"] <= time.time()
        assert await store.outbox.claim("c", 9) == []


def test_a_service_corrects_times(serve: Serve, database: str) -> None:
    """A run that ended at a time to come is deleted after its retention all the same."""
    client = serve(ECHO, runs_database=database)
    url = begin(client)
    wait(client, url)
    ahead = time.time() + 7200
    change_run(database, url, created_at=ahead, ended_at=ahead)
    cleaner = serve(ECHO, runs_database=database, runs_retention=0)
    until(lambda: cleaner.get(url).status_code == 404)


async def test_cancelling_a_run_that_moves(postgresql_database: str) -> None:
    """A run that goes back to the queue while it is cancelled is cancelled."""
    engine = create_async_engine(database_url(postgresql_database))
    waits_for_lock = text(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    )
    async with opened_stores(postgresql_database, 1) as (store,):
        await store.add(
            {"id": "r", "component": "c", "digest": "d", "request": {}},
            "worker",
        )
        async with engine.connect() as observer, engine.begin() as mover:
            await mover.execute(update(runs).values(status="queued"))
            cancelling = asyncio.create_task(runs_of(store).cancel("r"))
            async with asyncio.timeout(60):
                while not await observer.scalar(waits_for_lock):
                    # a transaction sees the activity of its first look
                    await observer.rollback()
        changed = await cancelling
        assert changed is not None
        assert changed.run["status"] == "cancelled"
    await engine.dispose()


def test_a_cancelled_run_does_not_wait_for_approval(
    serve: Serve, database: str
) -> None:
    """If it pauses before its process sees that another one was asked to cancel it, it ends all the same."""
    gate = Gate()
    flow = Workflow("flow", steps=[gate.agent(), ApprovalStep("Sure?")])
    performer = serve(flow, runs_database=database)
    other = serve(flow, runs_database=database)
    url = begin(performer)
    until(gate.called.is_set)
    other.post(f"{url}/cancel")
    gate.opened.set()
    assert wait(other, url)["status"] == "cancelled"


# --- Connections --------------------------------------------------------------------------------------------------


class SQLiteConnection(sqlite3.Connection):
    """A connection that knows whether it was closed, of which Python warns only from version 3.13."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.is_closed = False

    def close(self) -> None:
        """Close it."""
        super().close()
        self.is_closed = True


@pytest.fixture
def sqlite_connections() -> Iterator[list[SQLiteConnection]]:
    """The connections to SQLite that the test opens."""
    opened: list[SQLiteConnection] = []

    def connect(*arguments: Any, **options: Any) -> SQLiteConnection:
        connection = SQLiteConnection(*arguments, **options)
        opened.append(connection)
        return connection

    def set_factory(
        dialect: Any, _: object, arguments: object, options: dict[str, Any]
    ) -> None:
        if dialect.name == "sqlite":
            options["factory"] = connect

    event.listen(Engine, "do_connect", set_factory)
    yield opened
    event.remove(Engine, "do_connect", set_factory)


Moment = Literal["waiting", "done"]
"""When a task is cancelled: while it waits, or when it has what it waited for and has not gone on yet."""


async def cancel_at(
    work: Coroutine[Any, Any, None], number: int, moment: Moment, times: int
) -> bool:
    """Cancel some work at one of its awaits, or at several; it ends as cancelled.

    Args:
        work: What is cancelled.
        number: The first await at which it is, counted over the tasks that belong to the work.
        moment: When, at each of them.
        times: How many there are.

    Returns:
        Whether there are so many awaits. If not, the work has succeeded.
    """
    loop = asyncio.get_running_loop()
    create_future = loop.create_future
    awaits = itertools.count()
    caller = asyncio.current_task()
    task = asyncio.create_task(work)

    def create_counted() -> asyncio.Future[Any]:
        future = create_future()
        if (
            asyncio.current_task() is not caller
            and number <= next(awaits) < number + times
        ):
            if moment == "done":
                future.add_done_callback(lambda _: task.cancel())
            else:
                loop.call_soon(task.cancel)
        return future

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "create_future", create_counted)
        async with asyncio.timeout(60):
            # also those that the work has left behind
            while others := asyncio.all_tasks() - {caller}:
                await asyncio.wait(others)
    was_reached = next(awaits) > number
    assert task.cancelled() == was_reached
    if not was_reached:
        task.result()
    return was_reached


@pytest.mark.parametrize("times", [1, 1000], ids=["once", "repeatedly"])
@pytest.mark.parametrize("moment", ["waiting", "done"])
async def test_a_cancelled_transaction(
    database: str,
    sqlite_connections: list[SQLiteConnection],
    moment: Moment,
    times: int,
) -> None:
    """Wherever it is cancelled, once or repeatedly as by anyio, no connection is lost, and it does all or nothing.

    Sources: https://github.com/omnilib/aiosqlite/issues/259, https://github.com/sqlalchemy/sqlalchemy/issues/8145
    """
    url = database_url(database)
    migrate(url)

    async def add_two(number: int) -> None:
        opened = Database(url)
        try:
            async with opened.transaction() as transaction:
                for name in ("first", "second"):
                    await transaction.execute(
                        insert(workers).values(
                            id=f"{number} {name}", lease_until=number
                        )
                    )
        finally:
            await opened.close()

    for number in itertools.count():
        if not await cancel_at(add_two(number), number, moment, times):
            break
    assert number > 10
    reader = Database(url)
    async with reader.transaction() as transaction:
        added = Counter(
            (await transaction.execute(select(workers.c.lease_until))).scalars()
        )
    await reader.close()
    assert set(added.values()) == {2}
    assert number in added
    assert [
        connection
        for connection in sqlite_connections
        if not connection.is_closed
    ] == []
    gc.collect()  # has those of PostgreSQL warn that were lost


async def test_closing_waits_for_transactions(
    database: str, sqlite_connections: list[SQLiteConnection]
) -> None:
    """A transaction in progress ends before the database is closed: its connection would be lost."""
    url = database_url(database)
    migrate(url)
    opened = Database(url)
    began = asyncio.Event()
    may_end = asyncio.Event()

    async def query() -> None:
        async with opened.transaction() as transaction:
            began.set()
            await may_end.wait()
            assert await transaction.scalar(select(literal(1))) == 1

    querying = asyncio.create_task(query())
    await began.wait()
    closing = asyncio.create_task(opened.close())
    await asyncio.sleep(0)
    may_end.set()
    await closing
    await querying
    assert [
        connection
        for connection in sqlite_connections
        if not connection.is_closed
    ] == []
    gc.collect()


async def test_a_transaction_that_takes_too_long(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction that waits for a lock fails in time, and the next one succeeds."""
    engine = create_engine(synchronous_url(database))
    async with opened_stores(database, 1) as (store,):
        await store.add(
            {"id": "r", "component": "c", "digest": "d", "request": {}}
        )
        with monkeypatch.context() as patch:
            patch.setattr(TRANSACTION_TIMEOUT, 0.2)
            hurried = RunStore(database_url(database))
            with engine.begin() as blocker:
                blocker.execute(update(runs).values(status="running"))
                with pytest.raises(DatabaseUnavailableError):
                    await asyncio.wait_for(runs_of(hurried).cancel("r"), 60)
        changed = await runs_of(hurried).cancel("r")
        await hurried.close()
        assert changed is not None
        assert changed.run["cancel_requested"]
    engine.dispose()


# --- Health -------------------------------------------------------------------------------------------------------


def test_metrics(
    serve: Serve, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Background runs are counted as runs, and by their status."""
    monkeypatch.setattr(METRICS_INTERVAL, 0.1)
    client = serve(FLOW, runs_database=database)
    wait(client, begin(client), "waiting_for_approval")
    labels = 'component="flow",kind="workflow"'
    waiting = f'podwright_background_runs{{{labels},status="waiting_for_approval"}} 1.0'
    until(lambda: waiting in client.get("/metrics").text)
    text = client.get("/metrics").text
    assert (
        f'podwright_background_attempts_total{{{labels},outcome="waiting_for_approval"}} 1.0'
        in text
    )
    assert (
        Metrics(text).get(
            "podwright_runs_total", component="flow", status="paused"
        )
        == 1
    )
    assert f"podwright_background_database_up{{{labels}}} 1.0" in text


def test_metrics_without_the_database(
    serve: Serve, sqlite_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The age of the queue grows while no process is free; a metric says whether the database is reached."""
    monkeypatch.setattr(METRICS_INTERVAL, 0.1)
    gate = Gate()
    labels = 'component="helper",kind="agent"'
    client = serve(
        gate.agent(), runs_database=sqlite_database, background_runs=1
    )
    begin(client)
    begin(client)

    def queue_age() -> float:
        found = re.search(
            rf"podwright_background_queue_age_seconds{{{labels}}} (.*)",
            client.get("/metrics").text,
        )
        return float(found[1]) if found else 0.0

    age = until(queue_age)
    until(lambda: queue_age() > age)

    async def fail(store: RunStore, component: str) -> Any:
        raise DatabaseUnavailableError("Away.", "Wait.")

    with monkeypatch.context() as patch:
        patch.setattr(RunStore, "counts", fail)
        until(
            lambda: (
                f"podwright_background_database_up{{{labels}}} 0.0"
                in client.get("/metrics").text
            )
        )
    until(
        lambda: (
            f"podwright_background_database_up{{{labels}}} 1.0"
            in client.get("/metrics").text
        )
    )
    gate.opened.set()


@pytest.mark.parametrize(
    "error",
    [DatabaseUnavailableError("Away.", "Wait."), RuntimeError("unexpected")],
    ids=["unavailable", "unexpected"],
)
def test_work_that_fails_is_repeated_at_intervals(
    serve: Serve,
    sqlite_database: str,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    """A process that cannot look for runs tries it again, without taking the CPU, and goes on when it can."""
    monkeypatch.setattr(RETRY_INTERVAL, 0.25)
    claim = RunStore.claim
    tries: list[float] = []
    works = threading.Event()

    async def fail(store: RunStore, *arguments: Any) -> Any:
        tries.append(asyncio.get_running_loop().time())
        if not works.is_set():
            raise error
        return await claim(store, *arguments)

    monkeypatch.setattr(RunStore, "claim", fail)
    gate = Gate()
    client = serve(
        gate.agent(), runs_database=sqlite_database, background_runs=1
    )
    until(lambda: len(tries) >= 3)
    assert tries[2] - tries[0] >= 0.4
    begin(client)
    # there is no room for it, so that it must be looked for
    waiting = begin(client)
    works.set()
    gate.opened.set()
    assert wait(client, waiting)["status"] == "succeeded"


def test_processes_that_start_at_once(sqlite_database: str) -> None:
    """The first one creates the tables, and the others wait for it."""
    url = database_url(sqlite_database)
    context = multiprocessing.get_context("fork")
    for _ in range(3):
        Path(str(url.database)).unlink(missing_ok=True)
        processes = [
            context.Process(target=migrate, args=(url,)) for _ in range(4)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join(60)
        assert [process.exitcode for process in processes] == [0] * 4


async def test_transactions_behind_a_pooler(pooled_database: str) -> None:
    """Services whose transactions take turns on one connection of the server do not disturb each other.

    Source: https://github.com/psycopg/psycopg/issues/1151
    """
    databases = [Database(database_url(pooled_database)) for _ in range(2)]
    counts = list[int]()
    # a statement is prepared after some uses
    for database in databases * 20:
        async with database.transaction() as transaction:
            counts.append(await transaction.scalar(text(PREPARED)))
    for database in databases:
        await database.close()
    assert counts == [0] * 40


def test_migrations_at_once_behind_a_pooler(
    shell: Shell, postgresql: PostgreSQL, pgbouncer: PgBouncer
) -> None:
    """The lock of a migration lasts as long as its transaction: the other ones wait, and leave no lock behind."""
    url = pgbouncer.pooled(postgresql.database())
    variables = {"PODWRIGHT_RUNS_DATABASE": url}
    with ThreadPoolExecutor() as pool:
        ends = list(
            pool.map(
                lambda _: shell("runs", "migrate", **variables).returncode,
                range(4),
            )
        )
    assert ends == [0] * 4
    assert shell("runs", "migrate", **variables).returncode == 0
