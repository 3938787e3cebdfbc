"""Whose background runs a service shows: those of its own component and its caller, on a database with others."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from sqlalchemy import create_engine, update
from tests.service.background_support import begin, synchronous_url, wait
from tests.service.support import Serve, check_problem

from podwright import Agent, ApprovalStep, EchoModel, Workflow
from podwright_service.background.storage.tables import runs

KEYS = {
    "ann": "run@ann:" + "a" * 20,
    "bob": "run@bob:" + "b" * 20,
    "nameless": "run:" + "c" * 20,
    "another": "run:" + "d" * 20,
    "boss": "run+runs:all@boss:" + "e" * 20,
    "approver": "approve@eve:" + "f" * 20,
    "both": "run+approve@fay:" + "g" * 20,
}
CALLERS = ("ann", "bob", "nameless", "another", "both")
"""Those who see their own runs only."""
COMPONENTS = ("triage", "pay")
READ = [("GET", ""), ("GET", "/events")]
CHANGE = [
    ("POST", "/cancel"),
    ("POST", "/resume"),
    ("POST", "/move"),
    ("POST", "/move?check=true"),
]
DECIDE = [("POST", "/approve"), ("POST", "/reject")]


def headers(caller: str) -> dict[str, str]:
    _, _, key = KEYS[caller].rpartition(":")
    return {"authorization": f"Bearer {key}"}


def component(name: str) -> Workflow:
    agent = Agent(f"{name}_agent", "Help.", EchoModel())
    return Workflow(name, [agent, ApprovalStep("Go on?")])


@pytest.fixture
def services(serve: Serve, database: str) -> dict[str, httpx.Client]:
    """The services of two components on one database, by component."""
    keys = tuple(KEYS.values())
    return {
        name: serve(component(name), runs_database=database, api_keys=keys)
        for name in COMPONENTS
    }


def ask(
    client: httpx.Client, caller: str, method: str, path: str
) -> httpx.Response:
    body: Any = None
    if path.endswith(("/approve", "/reject")):
        body = {}
    return client.request(method, path, headers=headers(caller), json=body)


def listed(client: httpx.Client, caller: str) -> set[str]:
    page = client.get("/runs", headers=headers(caller)).json()
    return {f"/runs/{run['id']}" for run in page["runs"]}


def begun(services: dict[str, httpx.Client]) -> dict[tuple[str, str], str]:
    """A run of each component for each caller, that waits, by component and caller."""
    urls: dict[tuple[str, str], str] = {}
    for name, owner in itertools.product(services, CALLERS):
        client = services[name]
        urls[name, owner] = begin(client, "x", **headers(owner))
    for (name, owner), url in urls.items():
        client = services[name]
        client.headers.update(headers(owner))
        wait(client, url, "waiting_for_approval")
        del client.headers["authorization"]
    return urls


def requests_for_others() -> Iterator[tuple[str, str, str, str, str, str]]:
    """Service and caller, component and owner of a run that is not theirs, and the request for it."""
    everybody = (*CALLERS, "boss", "approver")
    for name, caller, other, owner in itertools.product(
        COMPONENTS, everybody, COMPONENTS, CALLERS
    ):
        is_theirs = name == other and caller in (owner, "boss")
        asked: list[tuple[str, str]] = []
        if caller != "approver" and not is_theirs:
            asked += [*READ, *CHANGE]
        if caller in ("approver", "both"):
            if name != other:
                asked += DECIDE
            elif not is_theirs and caller == "both":
                # they see the question while it waits
                asked.remove(("GET", ""))
        for method, path in asked:
            yield name, caller, other, owner, method, path


def test_nobody_sees_what_is_not_theirs(
    services: dict[str, httpx.Client],
) -> None:
    """Every route of runs, of every caller, for the runs of every other caller and component, is a 404."""
    urls = begun(services)
    tried = 0
    for name, caller, other, owner, method, path in requests_for_others():
        url = urls[other, owner] + path
        response = ask(services[name], caller, method, url)
        check_problem(response, 404, "run_not_found")
        tried += 1
    assert tried > 400
    for name, client in services.items():
        own = {owner: urls[name, owner] for owner in CALLERS}
        for caller in ("ann", "bob", "nameless", "another"):
            assert listed(client, caller) == {own[caller]}
        for caller in ("boss", "approver", "both"):
            assert listed(client, caller) == {*own.values()}


def test_what_one_may_see_of_another_ones_run(
    services: dict[str, httpx.Client],
) -> None:
    """Who may run and approve sees their own runs whole, and of others the question while they wait."""
    client = services["pay"]
    own = begin(client, **headers("both"))
    others = begin(client, **headers("ann"))
    client.headers.update(headers("both"))
    for url in (own, others):
        wait(client, url, "waiting_for_approval")
    assert "usage" in client.get(own).json()
    shown = client.get(others).json()
    assert shown["approval"]["message"] == "Go on?"
    assert "usage" not in shown
    assert "result" not in shown
    page = client.get("/runs").json()["runs"]
    assert ["usage" in run for run in page] == [False, True]
    for _ in range(2):
        decided = client.post(f"{others}/approve", json={})
        assert decided.status_code == 202, "it may be sent again"
        assert "usage" not in decided.json()
    check_problem(client.get(others), 404, "run_not_found")
    client.headers.update(headers("boss"))
    assert wait(client, others)["status"] == "succeeded"
    assert client.post(f"{own}/cancel").status_code == 202


def test_runs_of_older_releases(
    services: dict[str, httpx.Client], database: str
) -> None:
    """Their owner is known by the name of its key; without one, only who has all of them sees them."""
    client = services["pay"]
    urls = {owner: begin(client, **headers(owner)) for owner in CALLERS}
    engine = create_engine(synchronous_url(database))
    with engine.begin() as connection:
        connection.execute(update(runs).values(owner=None))
    engine.dispose()
    for caller in ("ann", "bob"):
        assert listed(client, caller) == {urls[caller]}
        for other, url in urls.items():
            status = ask(client, caller, "GET", url).status_code
            assert status == (200 if other == caller else 404)
    for caller in ("nameless", "another"):
        assert not listed(client, caller)
    assert listed(client, "boss") == {*urls.values()}


def test_without_keys_all_runs_of_the_component_are_seen(
    serve: Serve, sqlite_database: str
) -> None:
    """As on a laptop; but not those of another component."""
    pay = serve(component("pay"), runs_database=sqlite_database)
    triage = serve(component("triage"), runs_database=sqlite_database)
    url = begin(pay)
    wait(pay, url, "waiting_for_approval")
    assert [run["component"] for run in pay.get("/runs").json()["runs"]] == [
        "pay"
    ]
    assert triage.get("/runs").json()["runs"] == []
    check_problem(triage.get(url), 404, "run_not_found")
    check_problem(triage.post(f"{url}/cancel"), 404, "run_not_found")
