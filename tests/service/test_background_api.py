"""The routes of background runs, and the clients of these routes."""

from __future__ import annotations

import json
import logging
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.helpers import plain_http, until
from tests.service.background_support import (
    ECHO,
    FLOW,
    begin,
    change_run,
    wait,
)
from tests.service.support import (
    Address,
    Command,
    Gate,
    Serve,
    Shell,
    check_problem,
    pointers,
    sse_events,
)

from podwright import (
    Agent,
    AgentStep,
    ApprovalStep,
    EchoModel,
    FunctionModel,
    LoopStep,
    Workflow,
)
from podwright.errors import ModelError
from podwright.testing import ModelRequest, ToolCall
from podwright_service.observability import configure_logging
from podwright_service.settings import Settings
from podwright_service.testing import ComponentProcess, ProblemError

# --- Requests -----------------------------------------------------------------------------------------------------


def test_a_run(serve: Serve, sqlite_database: str) -> None:
    """It is accepted, performed, and has the result, the usage and the events that `/run` would have had."""
    client = serve(ECHO, runs_database=sqlite_database)
    response = client.post("/runs", json={"input": "hello"})
    assert response.status_code == 202
    assert (
        response.json() | {"status": "running", "attempt": 1, "decisions": []}
        == response.json()
    )
    url = response.headers["location"]
    run = wait(client, url)
    assert (run["status"], run["attempt"], run["result"]) == (
        "succeeded",
        1,
        {"output": "Echo: hello"},
    )
    assert run["usage"]["model_calls"] == 1
    assert run["created_at"] <= run["started_at"] <= run["ended_at"]
    with client.stream("GET", f"{url}/events") as stream:
        seen = list(sse_events(stream.iter_lines()))
    assert [name for _, name, _ in seen] == [
        "run_started",
        "model_call_finished",
        "run_finished",
        "result",
    ]
    assert [number for number, _, _ in seen] == ["0", "1", "2", ""]
    assert [data.get("seq") for _, _, data in seen] == [0, 1, 2, None]
    assert seen[-1][2] == {"output": "Echo: hello"}
    assert {data["run_id"] for _, _, data in seen[:-1]} == {run["id"]}


def test_a_wrong_request_is_refused_at_once(
    serve: Serve, sqlite_database: str
) -> None:
    """It stores no run; an unknown run is a 404."""
    client = serve(FLOW, runs_database=sqlite_database)
    check_problem(client.post("/runs", json={}), 422, "request_invalid")
    check_problem(
        client.post("/runs", json={"input": "x", "start_step": 9}),
        422,
        "resume_path_invalid",
    )
    check_problem(
        client.post(
            "/runs", json={"input": "x"}, headers={"podwright-budget": "?"}
        ),
        400,
        "header_invalid",
    )
    assert client.get("/runs").json() == {"runs": [], "next": None}
    for method, path in (
        ("GET", ""),
        ("GET", "/events"),
        ("POST", "/cancel"),
        ("POST", "/resume"),
        ("POST", "/move"),
    ):
        check_problem(
            client.request(method, f"/runs/{'0' * 32}{path}"),
            404,
            "run_not_found",
        )
    check_problem(client.post("/runs/x/approve", json={}), 404, "run_not_found")
    url = begin(client)
    for number in ("-2", "x", str(2**80)):
        refused = client.get(f"{url}/events", headers={"last-event-id": number})
        problem = check_problem(refused, 422, "request_invalid")
        assert f"Header 'last-event-id' is '{number}'" in problem["detail"]
    wrong_method = check_problem(
        client.delete("/runs"), 405, "method_not_allowed"
    )
    assert (
        wrong_method["suggestion"]
        == f"Use {client.delete('/runs').headers['allow']} here."
    )
    wrong_path = check_problem(
        client.post(f"{url}/aprove", json={}), 404, "not_found"
    )
    assert wrong_path["suggestion"] == "Did you mean '/runs/{run_id}/approve'?"


def test_without_a_database_there_are_no_routes(serve: Serve) -> None:
    """The problem says which setting is missing."""
    problem = check_problem(
        serve(ECHO).post("/runs", json={"input": "x"}), 404, "not_found"
    )
    assert "PODWRIGHT_RUNS_DATABASE" in problem["suggestion"]


def test_limits_are_those_of_the_request(
    serve: Serve, sqlite_database: str
) -> None:
    """`Podwright-Budget` of `POST /runs` holds for the run, also in several lines, and in all attempts."""
    client = serve(FLOW, runs_database=sqlite_database)
    one_line = [("podwright-budget", "model_calls=1")]
    two_lines = [("podwright-budget", "tokens=1000"), *one_line]
    for headers in (one_line, two_lines):
        url = client.post(
            "/runs", json={"input": "x"}, headers=headers
        ).headers["location"]
        wait(client, url, "waiting_for_approval")
        client.post(f"{url}/approve", json={})
        run = wait(client, url)
        assert run["status"] == "failed"
        assert (run["problem"]["code"], run["problem"]["limit"]) == (
            "limit_exceeded",
            "model_calls",
        )


# --- Decisions ----------------------------------------------------------------------------------------------------


def test_an_approval(serve: Serve, sqlite_database: str) -> None:
    """The run waits with the question; approved, it goes on; the state is the stored one."""
    client = serve(FLOW, runs_database=sqlite_database)
    url = begin(client)
    run = wait(client, url, "waiting_for_approval")
    question = {
        "message": "Publish Echo: x?",
        "run_id": run["id"],
        "path": [1],
        "options": ["approve", "reject"],
        "ends_on_reject": True,
        "digest": run["approval"]["digest"],
        "tool_call": None,
    }
    assert run["approval"] == question
    with_context = client.post(
        f"{url}/approve", json={"context": {"helper_output": "!"}}
    )
    assert pointers(check_problem(with_context, 422, "request_invalid")) == [
        "/context"
    ]
    check_problem(
        client.post(f"{url}/approve", json={"attempt": 7}),
        409,
        "run_state_conflict",
    )
    approved = client.post(
        f"{url}/approve", json={"comment": "Good.", "attempt": run["attempt"]}
    )
    assert approved.status_code == 202
    run = wait(client, url)
    assert (run["status"], run["attempt"], run["usage"]["model_calls"]) == (
        "succeeded",
        2,
        2,
    )
    (decision,) = run["decisions"]
    assert decision | {"at": ""} == {
        **question,
        "approved": True,
        "decision": "approve",
        "comment": "Good.",
        "values": {},
        "attempt": 1,
        "caller": None,
        "at": "",
    }


def test_a_rejection(serve: Serve, sqlite_database: str) -> None:
    """The run ends, with the comment as its problem, and is not resumed."""
    client = serve(FLOW, runs_database=sqlite_database)
    url = begin(client)
    wait(client, url, "waiting_for_approval")
    run = client.post(f"{url}/reject", json={"comment": "Too dull."}).json()
    assert (run["status"], run["problem"]["code"]) == (
        "cancelled",
        "approval_rejected",
    )
    assert "Too dull." in run["problem"]["detail"]
    check_problem(client.post(f"{url}/resume"), 409, "run_state_conflict")


@pytest.mark.parametrize(
    ("action", "other"), [("approve", "reject"), ("reject", "approve")]
)
def test_a_decision_whose_answer_was_lost(
    serve: Serve, sqlite_database: str, action: str, other: str
) -> None:
    """The same decision of the same key is the same answer; another one, or that of another key, is a conflict.

    Another key with the same name, too: who has a name may change.
    """
    keys = (f"@ann:{'a' * 20}", f"@ann:{'b' * 20}")
    client = serve(FLOW, runs_database=sqlite_database, api_keys=keys)
    client.headers["authorization"] = f"Bearer {'a' * 20}"
    url = begin(client)
    attempt = wait(client, url, "waiting_for_approval")["attempt"]
    decision = {"comment": "So be it."}
    named = {**decision, "attempt": attempt}
    assert client.post(f"{url}/{action}", json=named).status_code == 202
    for repeated in (named, decision):
        again = client.post(f"{url}/{action}", json=repeated)
        assert again.status_code == 202
        assert len(again.json()["decisions"]) == 1
    ended = wait(client, url)
    assert (
        client.post(f"{url}/{action}", json=decision).json()["status"]
        == ended["status"]
    )
    check_problem(
        client.post(f"{url}/{action}", json={"comment": "?"}),
        409,
        "run_state_conflict",
    )
    check_problem(
        client.post(f"{url}/{other}", json=decision), 409, "run_state_conflict"
    )
    other_key = {"authorization": f"Bearer {'b' * 20}"}
    check_problem(
        client.post(f"{url}/{action}", json=decision, headers=other_key),
        409,
        "run_state_conflict",
    )


@pytest.mark.parametrize(
    ("action", "status"), [("approve", "succeeded"), ("reject", "cancelled")]
)
def test_the_examples_of_the_document_work(
    serve: Serve, sqlite_database: str, action: str, status: str
) -> None:
    """A run is started and decided as the API page shows it."""
    client = serve(FLOW, runs_database=sqlite_database)
    document = client.get("/openapi.json").json()

    def examples(path: str) -> list[Any]:
        content = document["paths"][path]["post"]["requestBody"]["content"][
            "application/json"
        ]
        return [named["value"] for named in content["examples"].values()]

    (decision,) = examples(f"/runs/{{run_id}}/{action}")
    for body in examples("/runs"):
        url = client.post("/runs", json=body).headers["location"]
        wait(client, url, "waiting_for_approval")
        assert client.post(f"{url}/{action}", json=decision).status_code == 202
        assert wait(client, url)["status"] == status


def test_approval_has_a_scope_of_its_own(
    serve: Serve, sqlite_database: str
) -> None:
    """A key that may run may not approve; one that may approve reads what it decides about, and nothing else."""
    keys = ("run:" + "r" * 20, "approve:" + "a" * 20)
    client = serve(FLOW, runs_database=sqlite_database, api_keys=keys)
    runner = {"authorization": f"Bearer {'r' * 20}"}
    approver = {"authorization": f"Bearer {'a' * 20}"}
    client.headers.update(runner)
    url = begin(client)
    ended = begin(client)
    for each in (url, ended):
        wait(client, each, "waiting_for_approval")
    client.post(f"{ended}/cancel")
    for path in ("approve", "reject"):
        check_problem(
            client.post(f"{url}/{path}", json={}), 403, "scope_missing"
        )
    whole = client.get(url).json()
    shown = client.get(url, headers=approver).json()
    assert shown == {
        name: whole[name]
        for name in (
            "id",
            "component",
            "status",
            "attempt",
            "created_at",
            "caller",
            "approval",
            "notice",
        )
    }
    assert client.get("/runs?fields=approval", headers=approver).json() == {
        "runs": [shown],
        "next": None,
    }
    # what the key may not read, it does not get by asking
    everything = "result,problem,approval,decisions,actions"
    assert client.get(
        f"/runs?status=waiting_for_approval&fields={everything}",
        headers=approver,
    ).json()["runs"] == [shown]
    del shown["approval"]
    assert client.get(
        "/runs?status=waiting_for_approval", headers=approver
    ).json()["runs"] == [shown]
    for path in (
        f"{url}/events",
        ended,
        "/runs?status=cancelled",
        "/runs?status=waiting_for_approval&status=failed",
    ):
        check_problem(client.get(path, headers=approver), 403, "scope_missing")
    for path in (
        "/runs",
        f"{url}/cancel",
        f"{url}/resume",
        f"{url}/move",
    ):
        check_problem(
            client.post(path, json={"input": "x"}, headers=approver),
            403,
            "scope_missing",
        )
    decided = client.post(f"{url}/approve", json={}, headers=approver)
    assert decided.status_code == 202
    assert decided.json() == shown | {"status": "queued", "approval": None}
    del client.headers["authorization"]
    check_problem(client.get(url), 401, "key_required")


def test_who_did_it(
    serve: Serve, sqlite_database: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """A run says who started it, decided about it, cancelled and resumed it, and so does the log."""
    configure_logging(Settings(log_format="json"))
    keys = {name: name * 7 for name in ("ann", "bob", "cyd")}
    calls: list[ModelRequest] = []

    def fail_once(request: ModelRequest) -> str:
        calls.append(request)
        if len(calls) == 1:
            raise ModelError("down")
        return "fine"

    model = FunctionModel(fail_once)
    flow = Workflow(
        "flow", steps=[Agent("helper", "Help.", model), ApprovalStep("Sure?")]
    )
    client = serve(
        flow,
        runs_database=sqlite_database,
        api_keys=(
            f"run+runs:all@ann:{keys['ann']}",
            f"approve@bob:{keys['bob']}",
            keys["cyd"],
        ),
    )
    ann, bob, nameless = (
        {"authorization": f"Bearer {key}"} for key in keys.values()
    )
    client.headers.update(ann)
    approved = begin(client)
    wait(client, approved, "failed")
    assert client.post(f"{approved}/resume").status_code == 202
    wait(client, approved, "waiting_for_approval")
    decided = client.post(f"{approved}/approve", json={}, headers=bob)
    assert decided.json()["caller"] == "ann"
    cancelled = begin(client, **nameless)
    wait(client, cancelled, "waiting_for_approval")
    assert client.post(f"{cancelled}/cancel").status_code == 202
    of_nobody = begin(client)
    wait(client, of_nobody, "waiting_for_approval")
    ended = client.post(f"{of_nobody}/cancel", headers=nameless)
    assert ended.status_code == 202

    shown = {url: wait(client, url) for url in (approved, cancelled, of_nobody)}
    assert [run["caller"] for run in shown.values()] == ["ann", None, "ann"]
    (decision,) = shown[approved]["decisions"]
    assert (decision["approved"], decision["caller"]) == (True, "bob")
    actions = [run["actions"] for run in shown.values()]
    assert [
        [(each["action"], each["caller"]) for each in of_run]
        for of_run in actions
    ] == [[("resume", "ann")], [("cancel", "ann")], [("cancel", None)]]
    assert actions[0][0]["at"] >= shown[approved]["created_at"]
    assert not any(key in json.dumps(shown) for key in keys.values())
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [
        (line["event"], line["run_id"], line["component"], line.get("caller"))
        for line in lines
        if line["event"].startswith("run ")
    ] == [
        ("run resumed", shown[approved]["id"], "flow", "ann"),
        ("run approved", shown[approved]["id"], "flow", "bob"),
        ("run cancelled", shown[cancelled]["id"], "flow", "ann"),
        ("run cancelled", shown[of_nobody]["id"], "flow", None),
    ]


def test_a_run_that_is_cancelled_twice(
    serve: Serve, sqlite_database: str
) -> None:
    """Until its process has seen it, it may be cancelled again, which the record does not repeat."""
    gate = Gate()
    client = serve(gate.agent(), runs_database=sqlite_database)
    url = begin(client)
    until(gate.called.is_set)
    change_run(sqlite_database, url, cancel_requested=True, actions=[])
    assert client.post(f"{url}/cancel").status_code == 202
    assert wait(client, url)["actions"] == []


@pytest.mark.usefixtures("plain_logging")
def test_a_line_for_each_change(
    serve: Serve, sqlite_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The log tells what a request has changed, and nothing of one that is repeated."""
    caplog.set_level(logging.INFO, "podwright.run")
    gate = Gate()
    flow = Workflow("flow", steps=[ApprovalStep("Go on?"), gate.agent()])
    client = serve(flow, runs_database=sqlite_database)
    url = begin(client)
    wait(client, url, "waiting_for_approval")
    # it has the served blueprint already
    for path in ("move", "approve", "approve"):
        assert client.post(f"{url}/{path}", json={}).is_success
    until(gate.called.is_set)
    change_run(sqlite_database, url, cancel_requested=True)
    assert client.post(f"{url}/cancel").is_success
    wait(client, url, "cancelled")

    gate.called.clear()
    url = begin(client)
    wait(client, url, "waiting_for_approval")
    for path in ("approve", "cancel"):
        until(lambda path=path: path == "approve" or gate.called.is_set())
        assert client.post(f"{url}/{path}", json={}).is_success
    wait(client, url, "cancelled")
    changes = "approved|rejected|resumed|moved|cancelled|cancel requested"
    lines = [
        match[1]
        for record in caplog.records
        if (match := re.match(f"run ({changes}) ", record.getMessage()))
    ]
    assert lines == ["approved", "approved", "cancel requested"]


# --- Events -------------------------------------------------------------------------------------------------------


def test_a_reader_that_connects_again_misses_nothing(
    serve: Serve, sqlite_database: str
) -> None:
    """Fifty readers after each other, on two services, see each event once while the run goes on."""

    def answer(request: ModelRequest) -> Any:
        turn = sum(message.role == "tool" for message in request.messages)
        return (
            ToolCall.of("look", f"c{turn}", place=f"p{turn}")
            if turn < 30
            else "done"
        )

    def look(place: str) -> str:
        """Look."""
        return f"nothing in {place}"

    agent = Agent(
        "looker", "Look.", FunctionModel(answer), tools=[look], max_loops=40
    )
    clients = [serve(agent, runs_database=sqlite_database) for _ in range(2)]
    url = begin(clients[0])
    seen: list[int] = []
    connections = 0
    while not seen or seen[-1] != -1:
        last = {"last-event-id": str(seen[-1])} if seen else {}
        with clients[connections % 2].stream(
            "GET", f"{url}/events", headers=last
        ) as stream:
            for number, (_, name, data) in enumerate(
                sse_events(stream.iter_lines())
            ):
                seen.append(-1 if name == "result" else data["seq"])
                if number == 1:
                    break
        connections += 1
    assert connections >= 47
    assert seen[:-1] == list(range(len(seen) - 1))
    run = wait(clients[0], url)
    assert len(seen) - 1 == 2 + 31 + 60
    assert run["usage"]["tool_calls"] == 30


def test_a_reader_that_leaves_is_not_an_error(
    serve: Serve, sqlite_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that closes its connection during the events leaves no error in the log."""
    gate = Gate()
    never = {"name": "is_empty", "args": {"value": "x"}}
    loop = LoopStep(
        [Agent("echo", "Help.", EchoModel())],
        until=never,
        max_iterations=40,
        name="loop",
    )
    flow = Workflow("flow", steps=[loop, AgentStep(gate.agent(), "wait")])
    client = serve(flow, runs_database=sqlite_database, run_model_calls=100)
    url = begin(client)
    until(gate.called.is_set)
    for length in (1, 3000, 20_000) * 5:
        with client.stream("GET", f"{url}/events") as stream:
            read = 0
            for chunk in stream.iter_raw():
                read += len(chunk)
                if read >= length:
                    break
    gate.opened.set()
    assert wait(client, url)["status"] == "succeeded"
    assert [
        record.getMessage()
        for record in caplog.records
        if record.levelname == "ERROR"
    ] == []


# --- Clients ------------------------------------------------------------------------------------------------------


def test_the_command_line(
    serve: Serve, shell: Shell, sqlite_database: str
) -> None:
    """`podwright runs` starts, lists, shows, follows, approves, rejects, cancels and resumes."""
    keys = (f"@ann:{'k' * 20}",)
    client = serve(FLOW, runs_database=sqlite_database, api_keys=keys)
    client.headers["authorization"] = f"Bearer {'k' * 20}"
    access = ("--url", str(client.base_url), "--api-key", "k" * 20)

    def runs(*arguments: str) -> str:
        done = shell("runs", *arguments, *access)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    first = runs("start", "hello")
    second = runs("start", "--inputs", '{"topic": "x"}')
    third = runs("start", "z")
    for run_id in (first, second, third):
        wait(client, f"/runs/{run_id}", "waiting_for_approval")
    assert (
        json.loads(runs("show", first))["approval"]["message"]
        == "Publish Echo: hello?"
    )
    listed = runs("list", "--status", "waiting_for_approval").splitlines()
    assert [line.split()[0] for line in listed] == [third, second, first]
    assert [line.split()[-1] for line in listed] == ["ann"] * 3
    assert runs("list", "--caller", "ann").splitlines() == listed
    assert runs("list", "--caller", "bob") == ""
    later = shell("runs", "approve", first, "--attempt", "2", *access)
    assert (later.returncode, "in attempt 1" in later.stderr) == (1, True)
    assert (
        runs("approve", first, "--comment", "Good.", "--attempt", "1")
        == "queued"
    )
    assert runs("reject", second) == "cancelled"
    assert runs("cancel", third) == "cancelled"
    followed = shell("runs", "follow", first, *access)
    assert followed.returncode == 0
    assert (
        json.loads(followed.stdout)["helper_output"]
        == json.loads(runs("show", first))["result"]["helper_output"]
    )
    assert "waiting for approval: Publish Echo: hello?" in followed.stderr
    assert "null" not in followed.stderr  # inputs are not stored
    rejected = shell("runs", "follow", second, *access)
    assert (rejected.returncode, "rejected" in rejected.stderr) == (1, True)
    refused = shell("runs", "resume", second, *access)
    assert (
        refused.returncode,
        "failed or was interrupted" in refused.stderr,
    ) == (
        1,
        True,
    )
    assert len(json.loads(runs("list", "--json"))) == 3
    wrong_key = shell(
        "runs", "list", "--url", str(client.base_url), "--api-key", "wrong"
    )
    assert (wrong_key.returncode, "Unknown API key" in wrong_key.stderr) == (
        1,
        True,
    )
    away = shell("runs", "list", "--url", "http://127.0.0.1:1")
    assert (away.returncode, "cannot be reached" in away.stderr) == (1, True)


WAITING_COMPONENT = """
import asyncio
from pathlib import Path
from podwright import Agent, FunctionModel, Workflow

async def answer(request):
    Path("called").touch()
    while not Path("opened").exists():
        await asyncio.sleep(0.01)
    return "Echo"

flow = Workflow("flow", steps=[Agent(f"a{number}", "Do.", FunctionModel(answer)) for number in range(6)])
"""
"""A workflow whose calls end once there is a file `opened`."""


def test_following_goes_on_when_the_connection_is_lost(
    command: Command,
    address: Address,
    shell: Shell,
    tmp_path: Path,
    sqlite_database: str,
) -> None:
    """`podwright runs follow` connects to the restarted service, and shows each step once."""
    (tmp_path / "component.py").write_text(WAITING_COMPONENT)
    variables = {"PODWRIGHT_RUNS_DATABASE": sqlite_database}
    arguments = ("serve", "component:flow", "--host", "127.0.0.1", "--port")
    service = command(*arguments, "0", cwd=tmp_path, **variables)
    url = address(service)
    run_id = shell("runs", "start", "x", "--url", url).stdout.strip()
    follower = command("runs", "follow", run_id, "--url", url)
    until((tmp_path / "called").exists)
    service.send_signal(signal.SIGTERM)
    (tmp_path / "opened").touch()
    assert service.wait(60) == 0
    address(
        command(*arguments, url.rpartition(":")[2], cwd=tmp_path, **variables)
    )
    output, _ = follower.communicate(timeout=60)
    assert follower.returncode == 0, output
    assert [
        output.count(f"[a{number}] final answer") for number in range(6)
    ] == [1] * 6
    assert json.loads(output[output.index("\n{") :])["a5_output"].startswith(
        "Echo"
    )
    assert plain_http.get(f"{url}/runs/{run_id}").json()["attempt"] == 2


ECHO_COMPONENT = """
from podwright import Agent

helper = Agent("helper", "Help.", "offline/echo")
"""


@pytest.mark.servers
def test_the_testing_kit(tmp_path: Path, sqlite_database: str) -> None:
    """`component.runs` of the testing kit has the same operations."""
    (tmp_path / "component.py").write_text(ECHO_COMPONENT)
    env = {
        "PODWRIGHT_RUNS_DATABASE": sqlite_database,
        "PYTHONPATH": str(tmp_path),
    }
    with ComponentProcess("component:helper", env=env) as component:
        run = component.runs.start("x", headers={"idempotency-key": "k"})
        assert (
            component.runs.start("x", headers={"idempotency-key": "k"}).id
            == run.id
        )
        assert component.runs.wait(run.id).result == {"output": "Echo: x"}
        assert [found.id for found in component.runs.list("succeeded")] == [
            run.id
        ]
        seen = list(component.runs.events(run.id))
        assert [event.type for event in seen] == [
            "run_started",
            "model_call_finished",
            "run_finished",
        ]
        assert [event.seq for event in component.runs.events(run.id, 0)] == [
            1,
            2,
        ]
        for action in (
            component.runs.cancel,
            component.runs.resume,
            component.runs.approve,
            component.runs.reject,
        ):
            with pytest.raises(ProblemError, match="run_state_conflict"):
                action(run.id)
        with pytest.raises(ProblemError, match="run_not_found"):
            list(component.runs.events("x"))
        with pytest.raises(TimeoutError):
            component.runs.wait(run.id, "failed", within=0.1)
