"""What a background run costs beside a plain one, with PostgreSQL on the same machine."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any

import psycopg
from figures import Figure
from load import load
from servers import BODY, App, provider, serve, wait_for_response
from tests.postgresql import serve_postgresql

from podwright_service.background.storage.database import database_url, migrate

RUNS = 600
CONNECTIONS = 16
UNENDED = "SELECT count(*) FROM podwright_runs WHERE status <> 'succeeded'"


def wait_for_end(connection: psycopg.Connection[Any]) -> None:
    """Wait until no run is left."""
    while connection.execute(UNENDED).fetchone() != (0,):
        time.sleep(0.02)


async def figures(rounds: int) -> list[Figure]:
    """Runs of one call, plain and in the background in turns, until the last one has ended."""
    plain, background = list[float](), list[float]()
    with serve_postgresql() as postgresql, provider() as provider_port:
        url = postgresql.database()
        migrate(database_url(url))
        with (
            psycopg.connect(url, autocommit=True) as connection,
            serve(
                App("defaults", {"PODWRIGHT_RUNS_DATABASE": url}), provider_port
            ) as server,
        ):
            await wait_for_response(server.port)
            for round_ in range(rounds + 1):
                start = time.perf_counter()
                await load(server.port, "/run", BODY, RUNS, CONNECTIONS)
                middle = time.perf_counter()
                await load(server.port, "/runs", BODY, RUNS, CONNECTIONS)
                await asyncio.to_thread(wait_for_end, connection)
                if round_:  # the first one compiles statements
                    plain.append((middle - start) / RUNS * 1e3)
                    background.append(
                        (time.perf_counter() - middle) / RUNS * 1e3
                    )
    more = statistics.median(
        slow - fast for slow, fast in zip(background, plain, strict=True)
    )
    detail = f"{statistics.median(background):.2f} ms against {statistics.median(plain):.2f} ms, PostgreSQL included"
    return [
        Figure("a background run, above a plain one", more, "ms", detail, 3)
    ]
