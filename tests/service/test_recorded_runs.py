"""What an earlier release stored of runs: rows of its database, and states that it sealed."""

from __future__ import annotations

import time
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import create_engine, insert
from tests.recorded_runs import COMPONENTS, STATE_KEY, effects, read_data
from tests.service.background_support import synchronous_url, wait
from tests.service.support import Serve

from podwright_service.background.storage.database import database_url, migrate
from podwright_service.background.storage.tables import run_events, runs
from podwright_service.saved_states import STATE

STORED: dict[str, Any] = read_data("stored_runs.json")
"""Rows of background runs: of two that wait for a person, and of one whose process ended in a call."""
STOPPED: dict[str, Any] = read_data("stopped_runs.json")


@pytest.fixture(autouse=True)
def _no_effects() -> None:
    effects.clear()


def store(database: str, run: dict[str, Any]) -> str:
    """Store the rows of a run as if it had just been stored, and return its URL."""
    migrate(database_url(database))
    row: dict[str, Any] = run["row"]
    age = time.time() - row["created_at"]
    times = {
        name: value + age
        for name, value in row.items()
        if name.endswith("_at") and value is not None
    }
    events = [
        {"run_id": row["id"], "seq": seq, "event": event}
        for seq, event in run["events"]
    ]
    engine = create_engine(synchronous_url(database))
    with engine.begin() as connection:
        connection.execute(insert(runs).values({**row, **times}))
        connection.execute(insert(run_events), events)
    engine.dispose()
    return f"/runs/{row['id']}"


@pytest.mark.parametrize(
    ("name", "action", "expected"),
    [
        ("desk waits", "approve", {"give go": 1}),
        ("desk was interrupted", "resume", {"give go": 1}),
        (
            "boss waits",
            "approve",
            {"pay 5": 1, "clerk tool": 1, "boss tool": 1},
        ),
    ],
)
def test_a_stored_run_goes_on(
    serve: Serve,
    sqlite_database: str,
    name: str,
    action: str,
    expected: dict[str, int],
) -> None:
    """With what had not been done, to its result; what the earlier attempts used is counted."""
    stored = STORED[name]
    url = store(sqlite_database, stored)
    component = COMPONENTS[stored["row"]["component"]]
    client = serve(component, runs_database=sqlite_database)
    assert client.get(url).json()["status"] == stored["row"]["status"]
    assert client.post(f"{url}/{action}", json={}).status_code == 202
    run = wait(client, url)
    assert run["status"] == "succeeded", run
    assert effects == expected
    new_model_calls = sum(
        count for call, count in expected.items() if call.endswith("tool")
    )
    earlier = stored["row"]["usage"]["model_calls"]
    assert run["usage"]["model_calls"] == earlier + new_model_calls


@pytest.mark.parametrize("name", STOPPED)
def test_a_sealed_state_goes_on(serve: Serve, name: str) -> None:
    """The state of the earlier release is opened, and its run goes on from it once."""
    stopped = STOPPED[name]
    client = serve(COMPONENTS[name], state_keys=[SecretStr(STATE_KEY)])
    body: dict[str, Any] = {"inputs": {STATE: stopped["sealed"][STATE]}}
    if stopped["resume_path"]:
        body["resume_path"] = stopped["resume_path"]
    response = client.post("/run", json=body)
    assert response.status_code == 200, response.text
    before = type(effects)(stopped["effects"]["paused"])
    assert effects + before == stopped["effects"]["all"]
    assert client.post("/run", json=body).status_code == 409
