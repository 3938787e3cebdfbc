"""Two operations on a run at the same moment: what comes of them is what comes of them one after the other.

Every pair of operations is tried in every status of a run, on both databases, in one process and in two. The outcome,
which is the two answers, the row of the run and its notifications, has to be one of the two serial outcomes. A claim or
a deletion may also leave out a run that another operation is about to change: it is repeated after a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import multiprocessing
import os
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Mapping,
)
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from typing import Any

import pytest
from sqlalchemy import create_engine, select
from tests.service.background_support import (
    opened_stores,
    runs_of,
    synchronous_url,
)

from podwright_service.background.caller_runs import RunChange
from podwright_service.background.storage.database import database_url
from podwright_service.background.storage.tables import deliveries, runs
from podwright_service.background.store import AttemptUpdate, RunStore

OLD = "sha256:old"
NEW = "sha256:new"
QUESTION = {"message": "Pay?", "run_id": "r", "path": [0], "tool_call": 1}

Operation = Callable[[RunStore, Mapping[str, Any]], Awaitable[Any]]
"""Does something with a run, given its row as it was before; returns the answer."""


def answer_of(change: RunChange | None) -> Any:
    """What a caller is told."""
    if change is None:
        return "refused"
    return change.run["status"], change.run["digest"], change.is_repeated


def decide(decision: str, **values: Any) -> Operation:
    stored = {
        "decision": decision,
        "approved": decision != "reject",
        "comment": "",
        "values": values,
        "caller": "digest of the key",
    }

    async def operation(store: RunStore, run: Mapping[str, Any]) -> Any:
        change = await runs_of(store, run["component"]).decide(
            run["id"],
            1,
            stored,
            goes_on=decision != "reject",
            caller="ann",
        )
        return answer_of(change)

    return operation


async def cancel(store: RunStore, run: Mapping[str, Any]) -> Any:
    return answer_of(
        await runs_of(store, run["component"]).cancel(run["id"], "ann")
    )


async def resume(store: RunStore, run: Mapping[str, Any]) -> Any:
    return answer_of(
        await runs_of(store, run["component"]).resume(run["id"], "ann")
    )


async def move(store: RunStore, run: Any) -> Any:
    return answer_of(
        await runs_of(store, run["component"]).move(run, NEW, "ann")
    )


async def delete(store: RunStore, run: Mapping[str, Any]) -> Any:
    return await store.delete_ended(run["component"], 0.0)


def claim(worker: str) -> Operation:
    async def operation(store: RunStore, run: Mapping[str, Any]) -> Any:
        claimed = await store.claim(worker, run["component"], OLD, 1)
        return [each["attempt"] for each in claimed]

    return operation


def end(status: str, **columns: Any) -> Operation:
    """The end of the first attempt."""

    async def operation(store: RunStore, run: Mapping[str, Any]) -> Any:
        attempt = AttemptUpdate(
            run["id"],
            attempt=1,
            events=[(0, {"type": "run_finished"})],
            values={"status": status, **columns},
        )
        return bool(await store.write([attempt]))

    return operation


OPERATIONS: dict[str, Operation] = {
    "approve 20": decide("approve", amount=20),
    "approve 30": decide("approve", amount=30),
    "reject": decide("reject"),
    "cancel": cancel,
    "resume": resume,
    "move": move,
    "delete": delete,
    "claim": claim("b"),
    "end": end("succeeded", result={"output": "x"}),
    "pause": end("waiting_for_approval", approval=QUESTION),
}
LEAVES_OUT: Mapping[str, Any] = {"claim": [], "delete": 0}
"""Operations that may leave a run out, and their answers then."""
PAIRS = list(itertools.combinations_with_replacement(OPERATIONS, 2))
PREPARED: dict[str, list[Operation]] = {
    "queued": [],
    "running": [claim("a")],
    "waiting_for_approval": [claim("a"), OPERATIONS["pause"]],
    "failed": [claim("a"), end("failed", problem={"code": "x"})],
    "interrupted": [claim("a"), end("interrupted", problem={"code": "x"})],
}
"""What brings a new run into each status."""


class Processes:
    """Where the operations of a pair are performed.

    Args:
        stores: The store of each operation.
        database: Their database, for what it has in the end.
    """

    def __init__(self, stores: list[RunStore], database: str) -> None:
        self.stores = stores
        self._engine = create_engine(synchronous_url(database))

    async def at_once(
        self, names: tuple[str, str], run: Mapping[str, Any]
    ) -> list[Any]:
        """The answers of two operations that are performed at the same moment."""
        return await asyncio.gather(
            *(
                OPERATIONS[name](store, run)
                for name, store in zip(names, self.stores, strict=True)
            )
        )

    async def prepared(self, status: str) -> Mapping[str, Any]:
        """A new run with a status; it is the only one of its component."""
        store = self.stores[0]
        run_id = os.urandom(16).hex()
        run = {
            "id": run_id,
            "component": run_id,
            "digest": OLD,
            "request": {"body": {"input": "x"}},
        }
        await store.add(run)
        for operation in PREPARED[status]:
            await operation(store, run)
        row = await runs_of(store, run_id).get(run_id)
        assert row is not None
        assert row["status"] == status
        return dict(row)

    def found(self, run: Mapping[str, Any]) -> Any:
        """What the database has of a run, without times."""
        with self._engine.connect() as connection:
            row = connection.execute(
                select(runs).where(runs.c.id == run["id"])
            ).one_or_none()
            told = connection.execute(
                select(deliveries.c.status, deliveries.c.attempt)
                .where(deliveries.c.run_id == run["id"])
                .order_by(deliveries.c.status, deliveries.c.attempt)
            ).all()
        if row is None:
            return None, told
        kept = row._asdict()
        for name in ("id", "component", "problem", *_TIMES):
            kept.pop(name)
        for name in ("decisions", "actions"):
            for entry in kept[name] or ():
                entry.pop("at")
        return kept, told

    def close(self) -> None:
        self._engine.dispose()


_TIMES = ("created_at", "queued_at", "started_at", "ended_at")


class TwoProcesses(Processes):
    """As `Processes`, with the second operation in a process of its own."""

    def __init__(self, stores: list[RunStore], database: str) -> None:
        super().__init__(stores, database)
        spawning = multiprocessing.get_context("spawn")
        self._barrier = spawning.Barrier(2)
        self._pipe, theirs = spawning.Pipe()
        self._process = spawning.Process(
            target=perform_here, args=(database, theirs, self._barrier)
        )
        self._process.start()

    async def at_once(
        self, names: tuple[str, str], run: Mapping[str, Any]
    ) -> list[Any]:
        """As the base class."""
        first, second = names
        self._pipe.send((second, run))
        await asyncio.to_thread(self._barrier.wait, 30)
        answer = await OPERATIONS[first](self.stores[0], run)
        return [answer, await asyncio.to_thread(self._pipe.recv)]

    def close(self) -> None:
        """End the process too."""
        super().close()
        self._pipe.send(None)
        self._process.join(30)
        assert self._process.exitcode == 0


def perform_here(database: str, pipe: Connection, barrier: Barrier) -> None:
    """Perform operations that another process names, each when it begins its own."""

    async def perform() -> None:
        store = RunStore(database_url(database), "status")
        while (task := pipe.recv()) is not None:
            name, run = task
            barrier.wait(30)
            pipe.send(await OPERATIONS[name](store, run))
        await store.close()

    asyncio.run(perform())


@contextlib.asynccontextmanager
async def opened(database: str, count: int) -> AsyncGenerator[Processes]:
    """The processes on a database: one, or two."""
    async with opened_stores(database, 2, "status") as stores:
        make = Processes
        if count == 2:
            make = TwoProcesses
        processes = make(stores, database)
        try:
            yield processes
        finally:
            processes.close()


async def serial_outcomes(
    processes: Processes, names: tuple[str, str], status: str
) -> list[Any]:
    """The answers and the end of each order, answers in the order of the names."""
    orders: list[tuple[int, ...]] = [(0, 1), (1, 0)]
    if names[0] in LEAVES_OUT:
        orders.append((1,))
    if names[1] in LEAVES_OUT:
        orders.append((0,))
    outcomes: list[Any] = []
    for order in orders:
        run = await processes.prepared(status)
        answers = [LEAVES_OUT.get(name) for name in names]
        for position in order:
            operation = OPERATIONS[names[position]]
            answers[position] = await operation(processes.stores[0], run)
        outcomes.append((answers, processes.found(run)))
    return outcomes


CONFIGURATIONS = [
    pytest.param("sqlite_database", 1, 1),
    pytest.param("sqlite_database", 2, 2, marks=pytest.mark.servers),
    pytest.param("postgresql_database", 1, 2, marks=pytest.mark.servers),
    pytest.param("postgresql_database", 2, 2, marks=pytest.mark.servers),
    pytest.param("sqlite_database", 1, 20, marks=pytest.mark.proof),
    pytest.param("sqlite_database", 2, 20, marks=pytest.mark.proof),
    pytest.param("postgresql_database", 1, 20, marks=pytest.mark.proof),
    pytest.param("postgresql_database", 2, 20, marks=pytest.mark.proof),
]


@pytest.mark.parametrize(
    ("database_name", "processes", "trials"), CONFIGURATIONS
)
async def test_every_pair(
    request: pytest.FixtureRequest,
    database_name: str,
    processes: int,
    trials: int,
) -> None:
    """No pair of operations has an outcome that it could not have one after the other, whoever comes first."""
    database: str = request.getfixturevalue(database_name)
    tried = 0
    wrong: list[str] = []
    async with opened(database, processes) as workers:
        for names, status in itertools.product(PAIRS, PREPARED):
            expected = await serial_outcomes(workers, names, status)
            for _ in range(trials):
                run = await workers.prepared(status)
                answers = await workers.at_once(names, run)
                outcome = (answers, workers.found(run))
                tried += 1
                if outcome not in expected:
                    wrong.append(
                        f"{names} of a run that is {status}: {outcome}"
                    )
    print(f"{tried} pairs at once, {len(wrong)} wrong")
    assert not wrong, wrong[:5]
