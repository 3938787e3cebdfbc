"""Background runs that began with an earlier blueprint: performed with it, shown, and moved to the present one."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr
from sqlalchemy import create_engine, delete, insert, select
from tests.helpers import until
from tests.library.mcp_server import definition, lock_of
from tests.library.note_step import note, note_steps
from tests.mcp_stub import MCPStub
from tests.service.background_support import (
    ECHO,
    LEASE_SECONDS,
    METRICS_INTERVAL,
    SERVED_SECONDS,
    begin,
    change_run,
    opened_stores,
    runs_of,
    synchronous_url,
    wait,
)
from tests.service.support import Serve, Served, Shell, check_problem, pointers

import podwright
from podwright import Agent, FunctionModel, blueprints, tool
from podwright.blueprints import digest
from podwright.errors import ConfigurationError, PodwrightError
from podwright.mcp.lock import LOCK_FILE, MCPLock
from podwright.messages.usage import RunLimits
from podwright.testing import ModelRequest, ToolCall
from podwright_service.app import create_app
from podwright_service.background.previous import load_previous
from podwright_service.background.storage.kept_blueprints import KeptBlueprints
from podwright_service.background.storage.tables import (
    kept_blueprints,
    run_events,
)
from podwright_service.background.store import AttemptUpdate
from podwright_service.mcp_servers import servers_of
from podwright_service.settings import Settings
from podwright_service.testing import Metrics

TOOLS = """
def look_up(order):
    "Look an order up."
    return f"order {order}"
"""
BLUEPRINT: dict[str, Any] = {
    "type": "Workflow",
    "name": "desk",
    "steps": [
        {"type": "function_step", "name": "find", "function": "look_up", "arguments": {"order": "{input}"}},
        {"type": "approval_step", "name": "ask", "message": "Answer about {input}?"},
        {"type": "function_step", "name": "answer", "function": "look_up", "arguments": {"order": "first"}},
    ],
}  # fmt: skip
"""A workflow that waits for approval between its two function calls."""


def look_up(order: str) -> str:
    """As in these tools."""
    return f"order {order}"


SEARCH_CODE = """
def search(query: str) -> str:
    "Search."
    return query
"""


def searching(parameter: str = "query") -> dict[str, Any]:
    """The blueprint of an agent with that tool."""
    parameters = {
        "type": "object",
        "properties": {parameter: {"type": "string"}},
        "required": [parameter],
    }
    function = {"name": "search", "parameters": parameters}
    schema = {"type": "function", "function": function}
    return {
        "type": "Agent",
        "name": "helper",
        "instructions": "Help.",
        "config": {"model": "offline/echo"},
        "tools": [{"name": "search", "schema": schema}],
    }


def changed(answer: str, question: str = "Answer?") -> dict[str, Any]:
    """The blueprint of a later release: with another question, and another last call."""
    blueprint = json.loads(json.dumps(BLUEPRINT))
    blueprint["steps"][1]["message"] = question
    blueprint["steps"][2]["arguments"]["order"] = answer
    return blueprint


def add_unfinished_call(database: str, url: str) -> None:
    """Add the start of a call of the first step, as a process has stored it that died during the call."""
    run_id = url.removeprefix("/runs/")
    columns = run_events.c
    engine = create_engine(synchronous_url(database))
    with engine.begin() as connection:
        query = select(columns.event).where(columns.run_id == run_id)
        stored = connection.execute(query).scalars()
        started = [e for e in stored if e["type"] == "tool_call_started"]
        event = {**started[0], "call": 9}
        connection.execute(
            insert(run_events).values(run_id=run_id, seq=99, event=event)
        )
    engine.dispose()


def notice_of(client: httpx.Client, url: str) -> str:
    """The notice of a run; empty if it has none."""
    return client.get(url).json()["notice"] or ""


class Releases:
    """The releases of one component folder on one database, of which one runs at a time."""

    def __init__(self, served: Served, root: Path, database: str) -> None:
        self._served = served
        self._root = root
        self.database = database
        self._count = 0
        self._running = contextlib.ExitStack()

    def upgrade(
        self,
        blueprint: dict[str, Any],
        *previous: dict[str, Any],
        tools: str = TOOLS,
        lock: MCPLock | None = None,
        **settings: Any,
    ) -> httpx.Client:
        """Stop the service, and serve a blueprint with earlier ones; each release has a folder, as in an image."""
        self.stop()
        self._count += 1
        folder = self._root / str(self._count) / "desk"
        folder.mkdir(parents=True)
        (folder / "blueprint.json").write_text(json.dumps(blueprint))
        (folder / "tools.py").write_text(tools)
        if lock is not None:
            lock.write_file(folder / LOCK_FILE)
        earlier = folder.parent / "previous"
        earlier.mkdir()
        for each in previous:
            name = digest(each).removeprefix("sha256:")[:12]
            (earlier / f"{name}.json").write_text(json.dumps(each))
        options = {"previous": str(earlier), **settings}
        servers = servers_of(Settings(**options))
        service = self._served(
            podwright.load(folder, mcp=servers),
            runs_database=self.database,
            component=str(folder),
            **options,
        )
        return self._running.enter_context(service)

    def beside(
        self, blueprint: dict[str, Any]
    ) -> contextlib.AbstractContextManager[httpx.Client]:
        """Serve a blueprint besides the service that runs, as while the pods of a release are replaced."""
        component = podwright.load(blueprint, functions={"look_up": look_up})
        return self._served(component, runs_database=self.database)

    def stop(self) -> None:
        """Stop the service."""
        self._running.close()


@pytest.fixture(autouse=True)
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is served is told often, and not forgotten in a test."""
    monkeypatch.setattr(METRICS_INTERVAL, 0.1)
    monkeypatch.setattr(SERVED_SECONDS, 3600.0)


@pytest.fixture
def soon_forgotten(
    short_intervals: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a service has served is forgotten soon after its end."""
    monkeypatch.setattr(SERVED_SECONDS, 0.5)


@pytest.fixture
def releases(
    served: Served, tmp_path: Path, database: str
) -> Iterator[Releases]:
    """The releases of a component folder on a database."""
    with contextlib.ExitStack() as stack:
        releases = Releases(served, tmp_path, database)
        stack.callback(releases.stop)
        yield releases


def test_a_wait_lasts_through_two_upgrades(releases: Releases) -> None:
    """A run that waits is approved after two upgrades, and ends with the blueprint that it began with."""
    url = begin(releases.upgrade(BLUEPRINT), "7")
    second = changed("second")
    wait(releases.upgrade(second, BLUEPRINT), url, "waiting_for_approval")
    third = changed("third", "Answer now?")
    client = releases.upgrade(third, BLUEPRINT, second)
    assert wait(client, url, "waiting_for_approval")["notice"] is None
    client.post(f"{url}/approve", json={}).raise_for_status()
    run = wait(client, url)
    assert run["status"] == "succeeded"
    assert run["digest"] == digest(BLUEPRINT)
    assert run["result"]["look_up_output"] == "order first"
    # new runs have the present blueprint
    new = begin(client, "8")
    wait(client, new, "waiting_for_approval")
    client.post(f"{new}/approve", json={}).raise_for_status()
    run = wait(client, new)
    assert run["digest"] == digest(third)
    assert run["result"]["look_up_output"] == "order third"


@pytest.mark.usefixtures("soon_forgotten")
def test_a_run_that_had_other_mcp_tools(releases: Releases) -> None:
    """A run that began with another lock waits with a notice, and its tools are called once it is moved."""
    step = {
        "type": "function_step",
        "mcp": {"server": "files", "tool": "read_file"},
        "arguments": {"path": "{input}"},
    }
    blueprint: dict[str, Any] = {
        "type": "Workflow",
        "name": "desk",
        "steps": [
            {"type": "approval_step", "name": "ask", "message": "Read?"},
            {**step, "name": "read"},
        ],
    }
    first = definition("read_file")
    second = definition("read_file", description="Reads it all.")
    with MCPStub(tools=[first.to_data()]) as stub:
        settings: dict[str, Any] = {"mcp_servers": {"files": stub.url}}
        client = releases.upgrade(
            blueprint, lock=lock_of("files", first), **settings
        )
        url = begin(client, "7")
        wait(client, url, "waiting_for_approval")
        stub.change("read_file", **second.to_data())
        client = releases.upgrade(
            blueprint, blueprint, lock=lock_of("files", second), **settings
        )
        assert client.get(url).json()["status"] == "waiting_for_approval"
        until(lambda: notice_of(client, url) != "")
        client.post(f"{url}/move", json={}).raise_for_status()
        until(lambda: notice_of(client, url) == "")
        client.post(f"{url}/approve", json={}).raise_for_status()
        assert wait(client, url)["status"] == "succeeded"
        assert len(stub.calls) == 1


def test_runs_of_two_blueprints_at_once(releases: Releases) -> None:
    """A process performs runs of several blueprints, each with its own."""
    url = begin(releases.upgrade(BLUEPRINT), "7")
    second = changed("second")
    client = releases.upgrade(second, BLUEPRINT)
    assert client.get("/info").json()["previous"] == [digest(BLUEPRINT)]
    urls = [url, begin(client, "8")]
    for each in urls:
        wait(client, each, "waiting_for_approval")
        client.post(f"{each}/approve", json={}).raise_for_status()
    runs = [wait(client, each) for each in urls]
    assert [run["digest"] for run in runs] == [
        digest(BLUEPRINT),
        digest(second),
    ]
    assert [run["result"]["look_up_output"] for run in runs] == [
        "order first",
        "order second",
    ]


def test_a_rollback(releases: Releases) -> None:
    """After a rollback, the release before performs its runs, and those of the release after it that it is given."""
    first = releases.upgrade(BLUEPRINT)
    old = begin(first, "7")
    wait(first, old, "waiting_for_approval")
    second = changed("second")
    client = releases.upgrade(second, BLUEPRINT)
    new = begin(client, "8")
    wait(client, new, "waiting_for_approval")
    # the folder may have the present blueprint too
    client = releases.upgrade(BLUEPRINT, second, BLUEPRINT)
    for url in (old, new):
        client.post(f"{url}/approve", json={}).raise_for_status()
    assert wait(client, old)["result"]["look_up_output"] == "order first"
    assert wait(client, new)["result"]["look_up_output"] == "order second"


# --- Notices ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("soon_forgotten")
def test_a_run_that_nobody_can_perform_is_shown(releases: Releases) -> None:
    """Before anybody approves, its notice and a metric tell; the notice names what helps."""
    first = releases.upgrade(BLUEPRINT)
    url = begin(first, "7")
    assert wait(first, url, "waiting_for_approval")["notice"] is None
    client = releases.upgrade(changed("second"))
    until(lambda: "PODWRIGHT_PREVIOUS" in notice_of(client, url))
    notice = notice_of(client, url)
    assert digest(BLUEPRINT) in notice
    assert f"podwright runs move {url.removeprefix('/runs/')}" in notice
    name = "podwright_background_runs_unserved"
    labels = {"component": "desk", "status": "waiting_for_approval"}
    until(lambda: Metrics(client.get("/metrics").text).get(name, **labels) == 1)
    decided = client.post(f"{url}/approve", json={}).json()
    assert decided["status"] == "queued"
    assert "PODWRIGHT_PREVIOUS" in decided["notice"]


def test_a_blueprint_that_another_service_has(releases: Releases) -> None:
    """While a service with its blueprint runs, a run that waits has no notice, and no metric counts it."""
    first = releases.upgrade(BLUEPRINT)
    url = begin(first, "7")
    wait(first, url, "waiting_for_approval")
    with releases.beside(changed("second")) as second:
        name = "podwright_background_runs"
        labels = {"component": "desk", "status": "waiting_for_approval"}

        def counted(name: str) -> float:
            return Metrics(second.get("/metrics").text).get(name, **labels)

        until(lambda: counted(name) == 1)
        assert counted(f"{name}_unserved") == 0
        assert second.get(url).json()["notice"] is None


def test_a_blueprint_that_may_be_served(
    releases: Releases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the last service with a blueprint counts as running, a queued run's notice names what helps too."""
    monkeypatch.setattr(SERVED_SECONDS, 600.0)
    first = releases.upgrade(BLUEPRINT)
    url = begin(first, "7")
    wait(first, url, "waiting_for_approval")
    client = releases.upgrade(changed("second"))
    notice = client.post(f"{url}/approve", json={}).json()["notice"]
    assert notice.startswith("It waits for a service with the blueprint")
    assert "PODWRIGHT_PREVIOUS" in notice
    assert f"podwright runs move {url.removeprefix('/runs/')}" in notice


@pytest.mark.usefixtures("soon_forgotten")
def test_code_that_no_longer_fits(
    releases: Releases, caplog: pytest.LogCaptureFixture
) -> None:
    """An earlier blueprint whose tool has another schema is not performed; start, notice and log say why."""
    old = searching()
    first = releases.upgrade(old, tools=SEARCH_CODE)
    url = begin(first, "7")
    wait(first, url)
    code = SEARCH_CODE.replace("query", "words")
    client = releases.upgrade(searching("words"), old, tools=code)
    assert digest(old) in caplog.text
    assert "'query'" in caplog.text
    assert client.get("/info").json()["previous"] == []
    # the present blueprint is served
    assert client.post("/run", json={"input": "x"}).status_code == 200
    change_run(releases.database, url, status="queued")
    until(lambda: "'query'" in notice_of(client, url))
    notice = notice_of(client, url)
    assert "Correct the code, or move" in notice
    assert "podwright runs move" in notice


@pytest.mark.usefixtures("soon_forgotten")
def test_a_model_that_cannot_be_called(
    releases: Releases, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told as what it is: the code is not blamed for it."""
    old = {**searching(), "tools": []}
    url = begin(releases.upgrade(old), "7")
    new = {**old, "config": {"model": "offline/echo", "max_loops": 3}}
    gone = {**old, "config": {"model": "nowhere/model"}}
    client = releases.upgrade(new, gone)
    assert "cannot be performed" in caplog.text
    change_run(
        releases.database,
        url,
        status="queued",
        digest=digest(gone),
    )
    until(lambda: "nowhere" in notice_of(client, url))
    notice = notice_of(client, url)
    assert "code" not in notice
    assert "podwright runs move" in notice


def test_code_that_still_fits(releases: Releases) -> None:
    """A function that takes more than the stored schema has fits, so its runs are performed."""
    old = searching()
    releases.upgrade(old, tools=SEARCH_CODE)
    code = SEARCH_CODE.replace("query: str", "query: str, most: int = 3")
    new = {**old, "instructions": "Help now."}
    client = releases.upgrade(new, old, tools=code)
    assert client.get("/info").json()["previous"] == [digest(old)]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.json", "{", "a.json"),
        ("b.yaml", "[]", "b.yaml"),
        ("c.json", json.dumps(BLUEPRINT | {"steps": 1}), "c.json"),
        ("d.json", json.dumps(BLUEPRINT | {"name": "other"}), "'other'"),
        (
            "e.json",
            json.dumps(searching() | {"instructions": {"file": "a"}}),
            "podwright export",
        ),
    ],
)
def test_a_broken_file_stops_the_start(
    tmp_path: Path, sqlite_database: str, name: str, text: str, expected: str
) -> None:
    """A file that is no valid blueprint of the component is an error that names it."""
    component = podwright.load(BLUEPRINT, functions={"look_up": look_up})
    (tmp_path / name).write_text(text)
    settings = Settings(
        previous=str(tmp_path), runs_database=SecretStr(sqlite_database)
    )
    with pytest.raises(PodwrightError, match=expected):
        create_app(settings, component)


def test_a_missing_folder_stops_the_start(sqlite_database: str) -> None:
    """It is an error that names the folder."""
    component = podwright.load(BLUEPRINT, functions={"look_up": look_up})
    settings = Settings(
        previous="/nowhere/previous", runs_database=SecretStr(sqlite_database)
    )
    with pytest.raises(ConfigurationError, match="/nowhere/previous"):
        create_app(settings, component)


def test_files_that_are_no_blueprints_are_left_out(
    tmp_path: Path, sqlite_database: str
) -> None:
    """A folder as Kubernetes mounts it has hidden entries, and may have notes."""
    component = podwright.load(BLUEPRINT, functions={"look_up": look_up})
    data = tmp_path / "..data"
    data.mkdir()
    earlier = changed("earlier")
    (data / "a.json").write_text(json.dumps(earlier))
    (tmp_path / "a.json").symlink_to(data / "a.json")
    (tmp_path / "README.md").write_text("Notes.")
    (tmp_path / ".hidden.json").write_text("{")
    settings = Settings(
        previous=str(tmp_path), runs_database=SecretStr(sqlite_database)
    )
    previous = load_previous(settings, component, {})
    assert list(previous.components) == [digest(earlier)]


def test_the_agents_are_those_of_the_folder(tmp_path: Path) -> None:
    """An earlier blueprint has the agents that the folder has now, those in `agents/` included."""
    folder = tmp_path / "desk"
    inner = folder / "agents" / "critic"
    inner.mkdir(parents=True)
    step = {"type": "agent_step", "name": "judge", "agent": "critic"}
    blueprint = {"type": "Workflow", "name": "desk", "steps": [step]}
    earlier = {**blueprint, "steps": [step, {**step, "name": "again", "output": "again"}]}  # fmt: skip
    (folder / "blueprint.json").write_text(json.dumps(blueprint))
    critic = {**searching(), "name": "critic", "tools": []}
    (inner / "blueprint.json").write_text(json.dumps(critic))
    files = tmp_path / "previous"
    files.mkdir()
    (files / "a.yaml").write_text(blueprints.to_yaml(earlier))
    (files / "b.json").write_text(json.dumps({**earlier, "steps": [{**step, "agent": "gone"}]}))  # fmt: skip
    settings = Settings(
        component=str(folder),
        previous=str(files),
        runs_database=SecretStr("sqlite:////nowhere/runs.db"),
    )
    previous = load_previous(settings, podwright.load(folder), {})
    (component,) = previous.components.values()
    assert component.members()["critic"].to_blueprint() == critic
    (misfit,) = previous.misfits.values()
    assert "gone" in misfit.reason


# --- Moving -------------------------------------------------------------------------------------------------------


def test_a_run_is_moved(releases: Releases) -> None:
    """A run that waits goes on with the new blueprint; all that differs is told, and who moved it is kept."""
    first = releases.upgrade(BLUEPRINT)
    url = begin(first, "7")
    wait(first, url, "waiting_for_approval")
    second = changed("second", "Answer now?")
    key = "k" * 20
    client = releases.upgrade(second, api_keys=(f"ops@{key}",))
    client.headers["authorization"] = f"Bearer {key}"
    checked = client.post(f"{url}/move?check=true").json()
    assert checked["digest"] == digest(BLUEPRINT)
    assert checked["actions"] == []
    moved = client.post(f"{url}/move")
    assert moved.status_code == 200
    run = moved.json()
    assert run["changes"] == checked["changes"]
    assert [change["pointer"] for change in run["changes"]] == [
        "/steps/ask/message",
        "/steps/answer/arguments/order",
    ]
    assert (run["digest"], run["status"]) == (
        digest(second),
        "waiting_for_approval",
    )
    (move,) = run["actions"]
    assert move["action"] == "move"
    assert (move["caller"], move["old"], move["new"]) == (
        "ops",
        digest(BLUEPRINT),
        digest(second),
    )
    # a request that was lost is sent again
    again = client.post(f"{url}/move").json()
    assert (again["changes"], again["actions"]) == ([], run["actions"])
    client.post(f"{url}/approve", json={}).raise_for_status()
    run = wait(client, url)
    assert run["status"] == "succeeded"
    assert run["result"]["look_up_output"] == "order second"


@pytest.mark.parametrize(
    ("new", "pointer"),
    [
        ({"steps": BLUEPRINT["steps"][1:]}, "/steps/find"),
        ({"steps": [{**BLUEPRINT["steps"][0], "arguments": {"order": "8"}}, *BLUEPRINT["steps"][1:]]},
         "/steps/find/arguments/order"),
        ({"steps": [BLUEPRINT["steps"][0], {**BLUEPRINT["steps"][1], "name": "other"}, BLUEPRINT["steps"][2]]},
         "/steps/ask"),
        ({"steps": [BLUEPRINT["steps"][0], {**BLUEPRINT["steps"][1], "options": ["approve", "hold"]},
                    BLUEPRINT["steps"][2]]}, "/steps/ask/options/1"),
        ({"steps": [{**BLUEPRINT["steps"][0], "name": "new", "output": "new"}, *BLUEPRINT["steps"]]}, "/steps/ask"),
        ({"inputs": {"input": {"type": "string", "default": "8"}}}, "/inputs"),
    ],
    ids=["removed", "argument", "name", "options", "inserted", "inputs"],
)  # fmt: skip
def test_a_run_that_has_done_something_else(
    releases: Releases, new: dict[str, Any], pointer: str
) -> None:
    """A move is refused, and nothing changes, if what the run has done is different; the problem lists it."""
    first = releases.upgrade(BLUEPRINT)
    url = begin(first, "7")
    wait(first, url, "waiting_for_approval")
    client = releases.upgrade({**BLUEPRINT, **new})
    problem = check_problem(client.post(f"{url}/move"), 409, "run_not_movable")
    assert pointer in pointers(problem)
    run = client.get(url).json()
    assert (run["digest"], run["status"], run["actions"]) == (
        digest(BLUEPRINT),
        "waiting_for_approval",
        [],
    )


def test_a_run_that_failed_is_moved_and_resumed(releases: Releases) -> None:
    """The step that failed may be corrected; what had succeeded is not done again."""
    wrong = json.loads(json.dumps(BLUEPRINT))
    del wrong["steps"][1]
    wrong["steps"][1]["arguments"] = {"order": "{look_up_output.number}"}
    client = releases.upgrade(wrong)
    url = begin(client, "7")
    assert wait(client, url)["status"] == "failed"
    right = json.loads(json.dumps(wrong))
    right["steps"][1]["arguments"] = {"order": "{look_up_output}"}
    client = releases.upgrade(right)
    client.post(f"{url}/move").raise_for_status()
    client.post(f"{url}/resume").raise_for_status()
    run = wait(client, url)
    assert run["status"] == "succeeded"
    assert run["result"]["look_up_output"] == "order order 7"
    assert run["usage"]["tool_calls"] == 2


def test_a_run_of_an_agent(served: Served, sqlite_database: str) -> None:
    """An agent that has begun cannot be moved, except to one that is described or limited otherwise."""

    @tool(approval=True)
    def search(query: str) -> str:
        """Search."""
        return f"found {query}"

    def ask_and_answer(request: ModelRequest) -> str | ToolCall:
        if request.messages[-1].role == "tool":
            return request.messages[-1].text
        return ToolCall("1", "search", '{"query": "x"}')

    def helper(instructions: str, **options: Any) -> Agent:
        model = FunctionModel(ask_and_answer)
        return Agent("helper", instructions, model, tools=[search], **options)

    def serving(
        agent: Agent,
    ) -> contextlib.AbstractContextManager[httpx.Client]:
        return served(agent, runs_database=sqlite_database)

    with serving(helper("Help.")) as client:
        url = begin(client)
        wait(client, url, "waiting_for_approval")
    with serving(helper("Help in one word.")) as client:
        problem = check_problem(
            client.post(f"{url}/move"), 409, "run_not_movable"
        )
        assert pointers(problem) == ["/instructions"]
    described = helper(
        "Help.", description="It helps.", limits=RunLimits(wall_time=9)
    )
    with serving(described) as client:
        client.post(f"{url}/move").raise_for_status()
        client.post(f"{url}/approve", json={}).raise_for_status()
        assert wait(client, url)["result"] == {"output": "found x"}


def test_a_run_that_has_not_begun(releases: Releases) -> None:
    """It may go on with any blueprint that takes its input."""
    client = releases.upgrade(BLUEPRINT)
    url = begin(client, "7")
    wait(client, url, "waiting_for_approval")
    releases.stop()
    change_run(releases.database, url, status="queued", attempt=0, seq=0)
    engine = create_engine(synchronous_url(releases.database))
    with engine.begin() as connection:
        connection.execute(delete(run_events))
    engine.dispose()
    strict = {**BLUEPRINT, "inputs": {"order": {"type": "integer"}}}
    strict["steps"] = [BLUEPRINT["steps"][1]]
    client = releases.upgrade(strict)
    problem = check_problem(client.post(f"{url}/move"), 409, "run_not_movable")
    assert pointers(problem) == ["/inputs/order"]
    other = {**BLUEPRINT, "steps": [BLUEPRINT["steps"][2]]}
    client = releases.upgrade(other)
    client.post(f"{url}/move").raise_for_status()
    assert wait(client, url)["result"]["look_up_output"] == "order first"


def test_a_kind_of_step_says_what_may_change(releases: Releases) -> None:
    """A new kind of step is compared when a run is moved, except for the keys that it leaves out."""

    def release(remark: str, text: str = "seen {input}") -> dict[str, Any]:
        step = note(text, *BLUEPRINT["steps"], remark=remark)
        return {**BLUEPRINT, "steps": [step]}

    with note_steps():
        first = releases.upgrade(release("old"))
        url = begin(first, "7")
        wait(first, url, "waiting_for_approval")
        client = releases.upgrade(release("old", text="other {input}"))
        problem = check_problem(
            client.post(f"{url}/move"), 409, "run_not_movable"
        )
        assert pointers(problem) == ["/steps/memo/text"]
        client = releases.upgrade(release("new"))
        client.post(f"{url}/move").raise_for_status()
        client.post(f"{url}/approve", json={}).raise_for_status()
        run = wait(client, url)
        releases.stop()
    assert run["status"] == "succeeded"
    assert run["result"]["memo"] == "seen 7"
    assert run["result"]["look_up_output"] == "order first"


def test_what_cannot_be_moved(releases: Releases) -> None:
    """A run that has ended, and one whose blueprint nobody knows."""
    client = releases.upgrade(BLUEPRINT)
    url = begin(client, "7")
    wait(client, url, "waiting_for_approval")
    client = releases.upgrade(changed("second"))
    change_run(releases.database, url, digest="sha256:0")
    problem = check_problem(client.post(f"{url}/move"), 409, "run_not_movable")
    assert "PODWRIGHT_PREVIOUS" in problem["suggestion"]
    client.post(f"{url}/cancel").raise_for_status()
    check_problem(client.post(f"{url}/move"), 409, "run_state_conflict")
    check_problem(client.post("/runs/x/move"), 404, "run_not_found")


async def test_a_run_that_changes_while_it_is_compared(database: str) -> None:
    """It is not moved: what it has done since was not compared."""
    async with opened_stores(database, 1) as (store,):
        run = await store.add(
            {"id": "r", "component": "c", "digest": "old", "request": {}}
        )
        await store.claim("worker", "c", "old", 1)
        assert await runs_of(store).move(run, "new") is None
        stored = await runs_of(store).get("r")
        assert stored is not None
        assert stored["digest"] == "old"


def test_a_moved_decision(releases: Releases) -> None:
    """A question that was answered is not asked again, so its new message need not fit what the run has."""
    client = releases.upgrade(BLUEPRINT)
    url = begin(client, "7")
    wait(client, url, "waiting_for_approval")
    client = releases.upgrade(changed("second", "See {input.title}?"))
    client.post(f"{url}/move").raise_for_status()
    client.post(f"{url}/approve", json={}).raise_for_status()
    assert wait(client, url)["result"]["look_up_output"] == "order second"


FAILING_TOOLS = """
def look_up(order):
    "Look an order up."
    if order == "first":
        raise ValueError("no")
    return f"order {order}"
"""


def test_correcting_the_step_that_failed(releases: Releases) -> None:
    """A new attempt makes a call again that failed, so its step may be another one."""
    client = releases.upgrade(BLUEPRINT, tools=FAILING_TOOLS)
    url = begin(client, "7")
    wait(client, url, "waiting_for_approval")
    client.post(f"{url}/approve", json={}).raise_for_status()
    wait(client, url, "failed")
    client = releases.upgrade(changed("second"), tools=FAILING_TOOLS)
    client.post(f"{url}/move").raise_for_status()
    client.post(f"{url}/resume").raise_for_status()
    assert wait(client, url)["result"]["look_up_output"] == "order second"


async def test_a_lost_run_whose_blueprint_nobody_has(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits in the queue, from where it can be moved; one that was cancelled ends. Others are left alone."""
    async with opened_stores(database, 1) as (store,):
        # with a process that has renewed its lease, another one need not wait for such
        await store.renew("recent", "c")
        await store.join("new", "c")
        for run_id, run_digest in (
            ("lost", "old"),
            ("cancelled", "old"),
            ("served", "new"),
        ):
            run = {"id": run_id, "component": "c", "digest": run_digest}
            await store.add({**run, "request": {}}, "dead")
        await runs_of(store).cancel("cancelled")
        await store.blueprints.keep("c", {"old": {}, "new": {}})
        await store.requeue_unserved("c")
        assert await runs_of(store).status("lost") == "running"
        with monkeypatch.context() as patch:
            patch.setattr(SERVED_SECONDS, -1.0)
            await store.blueprints.keep("c", {"old": {}})
        # the process lives
        await store.renew("dead", "c")
        await store.requeue_unserved("c")
        assert await runs_of(store).status("lost") == "running"
        await store.release_lease("dead")
        await store.requeue_unserved("other")
        assert await runs_of(store).status("lost") == "running"
        await store.requeue_unserved("c")
        statuses = [
            await runs_of(store).status(each)
            for each in ("lost", "cancelled", "served")
        ]
        assert statuses == ["queued", "cancelled", "running"]
        late = AttemptUpdate("lost", 1, values={"status": "succeeded"})
        assert await store.write([late]) == {"lost"}


@pytest.mark.usefixtures("soon_forgotten")
def test_moving_a_run_whose_process_died(
    releases: Releases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an upgrade it is moved like one that waits; what its unfinished call did, a person has to find out."""
    client = releases.upgrade(BLUEPRINT)
    urls = [begin(client, text) for text in ("7", "8")]
    for url in urls:
        wait(client, url, "waiting_for_approval")
    releases.stop()
    for url in urls:
        change_run(releases.database, url, status="running", worker="dead")
    cut, _ = urls
    add_unfinished_call(releases.database, cut)
    monkeypatch.setattr(LEASE_SECONDS, 0.2)
    client = releases.upgrade(changed("second"))
    for url in urls:
        wait(client, url, "queued")
        client.post(f"{url}/move").raise_for_status()
    interrupted = wait(client, cut, "interrupted")
    assert interrupted["problem"]["code"] == "run_interrupted"
    wait(client, urls[1], "waiting_for_approval")


async def test_blueprints_are_kept_as_long_as_they_are_needed(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that no process has is deleted when its last run is; until then it can be compared."""
    monkeypatch.setattr(SERVED_SECONDS, -1.0)
    async with opened_stores(database, 1) as (store,):
        old = {"name": "c"}
        await store.blueprints.keep("c", {"old": old, "unused": {}})
        await store.add(
            {"id": "r", "component": "c", "digest": "old", "request": {}}
        )
        assert await store.blueprints.served("c") == set()
        await store.delete_ended("c", 0.0)
        assert await store.blueprints.get("old") == old
        assert await store.blueprints.get("unused") is None
        await runs_of(store).cancel("r")
        await store.delete_ended("c", 0.0)
        await store.delete_ended("c", 0.0)
        assert await store.blueprints.get("old") is None


@pytest.mark.usefixtures("soon_forgotten")
def test_moving_by_command(releases: Releases, shell: Shell) -> None:
    """`podwright runs move` prints what differs and the status; a refusal says why, and exits with 1."""
    first = releases.upgrade(BLUEPRINT)
    url = begin(first, "7")
    wait(first, url, "waiting_for_approval")
    run_id = url.removeprefix("/runs/")
    client = releases.upgrade(changed("second"))
    access = ("--url", str(client.base_url))
    checked = shell("runs", "move", run_id, "--check", *access)
    assert checked.stdout.splitlines() == [
        "compatible: /steps/ask/message changed: 'Answer about {input}?' -> 'Answer?'",
        "compatible: /steps/answer/arguments/order changed: 'first' -> 'second'",
    ]
    moved = shell("runs", "move", run_id, *access)
    assert moved.stdout == f"{checked.stdout}waiting_for_approval\n"
    client = releases.upgrade({**BLUEPRINT, "steps": BLUEPRINT["steps"][1:]})
    access = ("--url", str(client.base_url))
    refused = shell("runs", "move", run_id, *access)
    assert refused.returncode == 1
    assert refused.stderr.count("/steps/find") == 1
    assert "compatible" not in refused.stderr
    assert "breaking" not in refused.stderr
    until(lambda: "PODWRIGHT_PREVIOUS" in notice_of(client, url))
    shown = shell("runs", "approve", run_id, *access)
    assert shown.stdout == "queued\n"
    assert "PODWRIGHT_PREVIOUS" in shown.stderr


def test_a_blueprint_is_served_once_the_service_is_ready(
    serve: Serve, sqlite_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other process says meanwhile that nobody performs its runs."""
    keep = KeptBlueprints.keep

    async def keep_late(*arguments: Any) -> None:
        await asyncio.sleep(1)
        await keep(*arguments)

    monkeypatch.setattr(KeptBlueprints, "keep", keep_late)
    client = serve(ECHO, runs_database=sqlite_database)
    engine = create_engine(synchronous_url(sqlite_database))
    with engine.connect() as connection:
        kept = connection.scalars(select(kept_blueprints.c.digest)).all()
    engine.dispose()
    assert kept == [client.get("/info").json()["digest"]]
