"""Whether background runs slow down with the runs that were, and how many a machine can carry."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from figures import Figure, ratio
from load import load
from servers import (
    BODY,
    CPUS,
    App,
    Server,
    cpu_seconds,
    serve,
    wait_for_response,
)
from sqlalchemy import Engine, create_engine, func, select
from tests.postgresql import PostgreSQL, serve_postgresql

from podwright_service.background.storage.database import database_url, migrate
from podwright_service.background.storage.tables import is_open, runs

RUNS = 300_000
STEP = 10_000
"""Runs of which a rate is the mean."""
PAIRS = 3
CONNECTIONS = 16
CAPACITIES = (
    (1, 1, "instant"),
    (1, 4, "instant"),
    (1, 16, "instant"),
    (1, 64, "instant"),
    (2, 16, "instant"),
    (4, 16, "instant"),
    (1, 1, "slow"),
    (1, 4, "slow"),
    (1, 16, "slow"),
    (1, 64, "slow"),
    (2, 64, "slow"),
    (4, 64, "slow"),
)
"""Processes, the runs that each performs at once, and a model that answers at once or after 200 ms."""
CAPACITY_SECONDS = 10.0
"""How long the runs of a row of the table take, about."""


@dataclass(frozen=True)
class Runner:
    """A service that performs background runs with a model that needs no provider."""

    server: Server
    database: Engine

    async def perform(self, number: int) -> float:
        """Start runs, and wait until all have ended; returns how many a second."""
        start = time.perf_counter()
        await load(self.server.port, "/runs", BODY, number, CONNECTIONS)
        await asyncio.to_thread(self._wait_for_end)
        return number / (time.perf_counter() - start)

    def _wait_for_end(self) -> None:
        left = select(func.count()).select_from(runs).where(is_open)
        while True:
            with self.database.connect() as connection:
                if not connection.scalar(left):
                    return
            time.sleep(0.02)


@contextlib.asynccontextmanager
async def runner(
    url: str, processes: int = 2, at_once: int = 16, model: str = "instant"
) -> AsyncGenerator[Runner]:
    """A service on an empty database, warmed up. It may use all cores."""
    driver = database_url(url)
    migrate(driver)
    engine = create_engine(
        driver.set(drivername=driver.drivername.replace("+aiosqlite", ""))
    )
    variables = {
        "PODWRIGHT_RUNS_DATABASE": url,
        "PODWRIGHT_WORKERS": str(processes),
        "PODWRIGHT_BACKGROUND_RUNS": str(at_once),
    }
    with serve(App(model, variables), cpus=CPUS) as server:
        await wait_for_response(server.port)
        found = Runner(server, engine)
        await found.perform(16 * processes)
        yield found
    engine.dispose()


async def growth(title: str, urls: tuple[str, str]) -> list[Figure]:
    """Fill a database; compare its first and last runs, and the last ones with those of a new database in turns."""
    grown_url, new_url = urls
    grown, new = list[float](), list[float]()
    async with runner(grown_url) as old:
        await old.perform(1000)
        rates = [await old.perform(STEP) for _ in range(RUNS // STEP)]
        print(title, *(f"{rate:.0f}" for rate in rates), flush=True)
        async with runner(new_url) as fresh:
            await fresh.perform(1000)
            for _ in range(PAIRS):
                grown.append(await old.perform(STEP // 2))
                new.append(await fresh.perform(STEP // 2))
    detail = f"{rates[-1]:.0f}/s against {rates[0]:.0f}/s, the slowest {min(rates):.0f}/s"
    return [
        Figure(
            f"{title}: the last {STEP} of {RUNS} runs, against the first",
            rates[-1] / rates[0],
            "×",
            detail,
            0.9,
            "≥",
        ),
        ratio(
            f"{title}: then, against a new database", grown, new, "/s", 0.9, "≥"
        ),
    ]


async def capacity(
    postgresql: PostgreSQL, processes: int, at_once: int, model: str
) -> str:
    """A row of the table of capacities."""
    most = processes * at_once / 0.2 if model == "slow" else 400
    async with runner(
        postgresql.database(), processes, at_once, model
    ) as found:
        number = int(min(most, 400) * CAPACITY_SECONDS)
        service, database = (
            found.server.cpu_seconds,
            cpu_seconds(postgresql.pid),
        )
        rate = await found.perform(number)
        service = (found.server.cpu_seconds - service) / number * 1e3
        database = (cpu_seconds(postgresql.pid) - database) / number * 1e3
    takes = "200 ms" if model == "slow" else "nothing"
    return f"| {processes} | {at_once} | {takes} | {rate:.0f} | {service:.1f} ms | {database:.1f} ms |"


async def measure() -> tuple[list[Figure], str]:
    """The figures of growth, and the table of capacities."""
    with serve_postgresql() as postgresql:
        header = "| processes | runs at once in each | a model takes | runs/s | CPU of the service | of PostgreSQL |"
        rows = [await capacity(postgresql, *row) for row in CAPACITIES]
        table = "\n".join([header, "|--:|--:|---|--:|--:|--:|", *rows])
        print(table, flush=True)
        figures = await growth(
            "PostgreSQL", (postgresql.database(), postgresql.database())
        )
    with tempfile.TemporaryDirectory() as path:
        return [
            *figures,
            *await growth(
                "SQLite",
                (f"sqlite:///{path}/grown.db", f"sqlite:///{path}/new.db"),
            ),
        ], table
