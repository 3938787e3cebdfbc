"""Helpers for the tests of background runs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest
from sqlalchemy import create_engine, literal_column, update
from sqlalchemy.engine import URL
from tests.helpers import until

from podwright import Agent, AgentStep, ApprovalStep, EchoModel, Workflow
from podwright_service.background.caller_runs import Access, CallerRuns
from podwright_service.background.delivery.outbox import WebhookMode
from podwright_service.background.storage.database import database_url, migrate
from podwright_service.background.storage.tables import runs
from podwright_service.background.store import RunStore

ECHO = Agent("helper", "Help.", EchoModel())
FLOW = Workflow(
    "flow",
    steps=[
        ECHO,
        ApprovalStep("Publish {helper_output}?"),
        AgentStep(ECHO, "last"),
    ],
)
"""A workflow that waits for approval between its two calls."""
ENDED = ("succeeded", "failed", "cancelled", "interrupted")

LEASE_SECONDS = "podwright_service.background.store.LEASE_SECONDS"
MAX_TAKEOVERS = "podwright_service.background.attempt.MAX_TAKEOVERS"
METRICS_INTERVAL = "podwright_service.background.worker.METRICS_INTERVAL"
POLL_INTERVAL = "podwright_service.background.worker.POLL_INTERVAL"
RENEWAL_INTERVAL = "podwright_service.background.worker.RENEWAL_INTERVAL"
RETRY_INTERVAL = "podwright_service.background.worker.RETRY_INTERVAL"
SERVED_SECONDS = (
    "podwright_service.background.storage.kept_blueprints.SERVED_SECONDS"
)
CLOCK = "podwright_service.background.storage.database._CLOCK"
TRANSACTION_TIMEOUT = (
    "podwright_service.background.storage.database.TRANSACTION_TIMEOUT"
)
"""The constants that tests change."""


@contextlib.asynccontextmanager
async def opened_stores(
    database: str, count: int, webhook: WebhookMode | None = None
) -> AsyncGenerator[list[RunStore]]:
    """Stores of several processes on one database."""
    url = database_url(database)
    migrate(url)
    stores = [RunStore(url, webhook) for _ in range(count)]
    yield stores
    for store in stores:
        await store.close()


def runs_of(store: RunStore, component: str = "c") -> CallerRuns:
    """The runs of a component, of all callers."""
    return store.runs_of(Access(component))


def set_clock(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Set the clock of both databases by some seconds from what it really is."""
    monkeypatch.setattr(time, "time", lambda: _now() + seconds)
    clock = f"(extract(epoch from statement_timestamp()) + {seconds})"
    monkeypatch.setattr(CLOCK, literal_column(clock))


_now = time.time


def begin(client: httpx.Client, text: str = "x", **headers: str) -> str:
    """Start a run, and return its URL."""
    response = client.post("/runs", json={"input": text}, headers=headers)
    assert response.status_code == 202, response.text
    assert response.headers["location"] == f"/runs/{response.json()['id']}"
    return response.headers["location"]


def wait(client: httpx.Client, url: str, *statuses: str) -> dict[str, Any]:
    """The run, once it has one of the statuses; by default once it has ended."""
    run: dict[str, Any] = {}

    def has_status() -> bool:
        nonlocal run
        run = client.get(url).json()
        return run["status"] in (statuses or ENDED)

    until(has_status, report=lambda: run)
    return run


def synchronous_url(database: str) -> URL:
    """The URL of a database, with the driver for tests that are not asynchronous."""
    url = database_url(database)
    return url.set(drivername=url.drivername.replace("+aiosqlite", ""))


def change_run(database: str, url: str, **columns: Any) -> None:
    """Change the row of a run, as a process does that has since died."""
    engine = create_engine(synchronous_url(database))
    with engine.begin() as connection:
        connection.execute(
            update(runs)
            .where(runs.c.id == url.rpartition("/")[2])
            .values(**columns)
        )
    engine.dispose()
