"""Background runs in containers, with a PostgreSQL server."""

from __future__ import annotations

from typing import Any

import httpx
from tests.compose.conftest import MakeFleet
from tests.helpers import until
from tests.image_support import build_postgresql


def test_runs_are_kept(make_fleet: MakeFleet, full: str) -> None:
    """A run that was started before all containers are restarted has its result afterwards."""
    fleet = make_fleet(
        {"database": {"image": build_postgresql()}},
        BACKGROUND_IMAGE=full,
        COMPOSE_PROFILES="background",
    )
    fleet.up("background")

    def request(method: str, path: str, **options: Any) -> Any:
        with fleet.client("background") as client:
            return (
                client.request(method, path, **options)
                .raise_for_status()
                .json()
            )

    run = request("POST", "/runs", json={"input": "the moon"})
    fleet("restart", "background", "database")

    def has_succeeded() -> bool:
        try:
            return request("GET", f"/runs/{run['id']}")["status"] == "succeeded"
        except httpx.HTTPError:  # it is starting
            return False

    until(has_succeeded)
    ended = request("GET", f"/runs/{run['id']}")
    assert "the moon" in str(ended["result"])
    (listed,) = request("GET", "/runs")["runs"]
    assert listed["id"] == ended["id"]
    assert "result" not in listed
