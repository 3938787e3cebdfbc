"""Calls of MCP clients as background runs: tasks, decisions about them, and keys of calls."""

from __future__ import annotations

import asyncio
import functools
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import MCPError
from mcp.shared.inbound import encode_header_value
from tests.helpers import until
from tests.service.background_support import ECHO, FLOW, change_run, wait
from tests.service.support import FaultyAgent, Gate, Serve, Served, connect
from tests.service.test_mcp_api import ERAS, connected, text_of

from podwright import (
    Agent,
    AgentStep,
    EchoModel,
    FunctionModel,
    FunctionStep,
    RunContext,
    Workflow,
    tool,
)
from podwright.errors import ModelError
from podwright.testing import ScriptedModel, ToolCall
from podwright_service.background.worker import BackgroundWorker
from podwright_service.mcp_api.tasks import Tasks
from podwright_service.testing import Metrics

VERSION = "2026-07-28"
TASKS = "io.modelcontextprotocol/tasks"
META = "io.modelcontextprotocol"
KEY = "podwright/idempotency-key"
ANN = "ann-0123456789abcdef"
BOB = "bob-0123456789abcdef"
BOSS = "boss-0123456789abcdef"
OPERATOR = "operator-0123456789abcdef"
KEYS = f"run@ann:{ANN}, run@bob:{BOB}, run+approve@ann:{BOSS}, read:{OPERATOR}"


class Caller:
    """A client of one service that speaks the wire as it is, so that it may also send what no client does."""

    def __init__(
        self, served: httpx.Client, key: str = "", *, takes_tasks: bool = True
    ) -> None:
        self._served = served
        self._headers = {"authorization": f"Bearer {key}"} if key else {}
        self._capabilities: dict[str, Any] = {}
        if takes_tasks:
            self._capabilities = {"extensions": {TASKS: {}}}
        self.notified: list[dict[str, Any]] = []
        """The notifications before the last answer."""

    def request(
        self,
        method: str,
        mcp_name: str = "",
        meta: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
        **params: Any,
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """The body and the headers of a request."""
        sent = {
            f"{META}/protocolVersion": VERSION,
            f"{META}/clientInfo": {"name": "test", "version": "1"},
            f"{META}/clientCapabilities": self._capabilities,
            **(meta or {}),
        }
        body = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": method,
            "params": {"_meta": sent, **params},
        }
        return body, {
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": VERSION,
            "mcp-method": method,
            "mcp-name": mcp_name
            or str(params.get("name") or params.get("taskId", "")),
            **self._headers,
            **(headers or {}),
        }

    def send(self, method: str, **options: Any) -> dict[str, Any]:
        """The JSON-RPC answer to a request; see `request`."""
        body, headers = self.request(method, **options)
        response = self._served.post("/mcp", json=body, headers=headers)
        if response.headers["content-type"].startswith("text/event-stream"):
            lines = response.text.splitlines()
            messages = [
                json.loads(line.removeprefix("data: "))
                for line in lines
                if line.startswith("data: ")
            ]
            self.notified = messages[:-1]
            return messages[-1]
        return response.json()

    def result(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a request that is not refused."""
        answer = self.send(method, **params)
        assert "result" in answer, answer
        return answer["result"]

    def error(self, method: str, **params: Any) -> dict[str, Any]:
        """The error of a request that is refused."""
        answer = self.send(method, **params)
        assert "error" in answer, answer
        return answer["error"]

    def call(
        self,
        tool_name: str,
        text: str = "x",
        meta: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        """The result of a call of a tool with one text."""
        return self.result(
            "tools/call",
            name=tool_name,
            meta=meta,
            headers=headers,
            arguments={"input": text},
        )

    def get(self, task_id: str) -> dict[str, Any]:
        """A task."""
        return self.result("tasks/get", taskId=task_id)

    def wait(self, task_id: str, *statuses: str) -> dict[str, Any]:
        """A task, once it has one of the statuses."""
        task: dict[str, Any] = {}

        def has_status() -> bool:
            nonlocal task
            task = self.get(task_id)
            return task["status"] in statuses

        until(has_status, report=lambda: task)
        return task

    def decide(
        self, task: dict[str, Any], decision: str, **content: Any
    ) -> dict[str, Any]:
        """The JSON-RPC answer to a decision about what a task asks."""
        (key,) = task["inputRequests"]
        return self.send(
            "tasks/update", **answer_to(task, key, decision, **content)
        )


def answer_to(
    task: dict[str, Any], key: str, decision: str, **content: Any
) -> dict[str, Any]:
    """The parameters of a decision."""
    response = {
        "action": "accept",
        "content": {"decision": decision, **content},
    }
    return {"taskId": task["taskId"], "inputResponses": {key: response}}


def counted(served: httpx.Client, status: int, key: str = "") -> float:
    """The requests over MCP that telemetry counts with a status."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    metrics = Metrics(served.get("/metrics", headers=headers).text)
    return metrics.get(
        "podwright_http_requests_total", route="/mcp", status=str(status)
    )


def problem_in(result: dict[str, Any]) -> dict[str, Any]:
    """The problem in the result of a failed call."""
    assert result["isError"], result
    (content,) = result["content"]
    return json.loads(content["text"])


def waiting(caller: Caller) -> dict[str, Any]:
    """A task of the workflow with an approval, which waits for it."""
    task = caller.call("flow")
    assert task["resultType"] == "task", task
    return caller.wait(task["taskId"], "input_required")


def test_a_call_with_an_approval(serve: Serve, sqlite_database: str) -> None:
    """It is a task at once, which is a background run; a decision lets it go on, and its result is that of the call."""
    served = serve(FLOW, runs_database=sqlite_database, mcp=True)
    caller = Caller(served)
    discovered = caller.result("server/discover")
    assert TASKS in discovered["capabilities"]["extensions"]
    task = waiting(caller)
    run = served.get(f"/runs/{task['taskId']}").json()
    assert run["status"] == "waiting_for_approval"
    (request,) = task["inputRequests"].values()
    assert request["params"]["message"] == "Publish Echo: x?"
    schema = request["params"]["requestedSchema"]
    assert schema["properties"]["decision"]["enum"] == ["approve", "reject"]
    answer = caller.decide(task, "approve", comment="fine")
    assert answer["result"]["resultType"] == "complete"
    done = caller.wait(task["taskId"], "completed")
    content = json.loads(done["result"]["content"][0]["text"])
    assert "fine" in content["helper_output"]
    assert done["result"]["_meta"]["podwright/run-id"] == task["taskId"]
    assert done["ttlMs"] > 0
    run = served.get(f"/runs/{task['taskId']}").json()
    (decision,) = run["decisions"]
    assert (decision["approved"], decision["comment"]) == (True, "fine")


def test_a_rejection_and_what_is_no_decision(
    serve: Serve, sqlite_database: str
) -> None:
    """A rejection cancels the task; a form that is closed decides nothing, and what is no decision is refused."""
    caller = Caller(serve(FLOW, runs_database=sqlite_database, mcp=True))
    task = waiting(caller)
    (key,) = task["inputRequests"]
    for action in ("decline", "cancel"):
        params = {
            "taskId": task["taskId"],
            "inputResponses": {key: {"action": action}},
        }
        caller.result("tasks/update", **params)
        assert caller.get(task["taskId"])["status"] == "input_required"
    wrong: list[Any] = [
        3,
        {},
        {"action": "accept"},
        {"action": "accept", "content": {}},
        {"action": "accept", "content": {"decision": 3}},
        {"action": "accept", "content": {"decision": "approve", "more": 1}},
    ]
    for response in wrong:
        params = {
            "taskId": task["taskId"],
            "inputResponses": {key: response},
        }
        error = caller.error("tasks/update", **params)
        assert error["code"] == -32602, response
    unknown = caller.decide(task, "maybe")["error"]
    assert (unknown["code"], unknown["data"]["code"]) == (
        -32000,
        "inputs_invalid",
    )
    caller.decide(task, "reject")
    assert caller.wait(task["taskId"], "cancelled")["statusMessage"]


def test_a_decision_holds_for_what_was_shown(
    serve: Serve, sqlite_database: str
) -> None:
    """The key of another question, of another attempt, and one that nobody asked decide nothing."""

    @tool(approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    model = ScriptedModel(
        ToolCall.of("pay", amount=1), ToolCall.of("pay", amount=999), "done"
    )
    agent = Agent("clerk", "Work.", model, tools=[pay])
    caller = Caller(serve(agent, runs_database=sqlite_database, mcp=True))
    task_id = caller.call("clerk")["taskId"]
    first = caller.wait(task_id, "input_required")
    ((key, request),) = first["inputRequests"].items()
    assert '"amount": 1' in request["params"]["message"]
    forged = f"{key.rpartition('-')[0]}-{'0' * 16}"
    for other, code in [
        (forged, "run_state_conflict"),
        (key.replace("-1-", "-7-"), "run_state_conflict"),
    ]:
        params = answer_to(first, other, "approve")
        error = caller.error("tasks/update", **params)
        assert error["data"]["code"] == code, other
    for other in ("approval", "", "x" * 5000, "approval-1-"):
        caller.result("tasks/update", **answer_to(first, other, "approve"))
    assert caller.get(task_id)["status"] == "input_required"
    caller.decide(first, "approve")
    until(lambda: key not in caller.get(task_id).get("inputRequests", [key]))
    second = caller.get(task_id)
    (request,) = second["inputRequests"].values()
    assert '"amount": 999' in request["params"]["message"]
    # the same decision may be made again, and is about the first question
    assert "result" in caller.decide(first, "approve")
    contradicting = caller.decide(first, "reject")["error"]
    assert contradicting["data"]["code"] == "run_state_conflict"
    assert caller.get(task_id)["status"] == "input_required"
    caller.decide(second, "approve")
    assert caller.wait(task_id, "completed")["result"]["isError"] is False


def test_who_may_decide(serve: Serve, sqlite_database: str) -> None:
    """Without the scope `approve` a caller is told where to decide, and a task of another caller is unknown."""
    served = serve(FLOW, runs_database=sqlite_database, mcp=True, api_keys=KEYS)
    ann, bob, boss = (Caller(served, key) for key in (ANN, BOB, BOSS))
    task = waiting(ann)
    assert "scope 'approve'" in task["statusMessage"]
    refused = ann.decide(task, "approve")["error"]
    assert (refused["code"], refused["data"]["code"]) == (
        -32000,
        "scope_missing",
    )
    assert f"/runs/{task['taskId']}/approve" in refused["message"]
    assert counted(served, 403, OPERATOR) == 1
    (key,) = task["inputRequests"]
    update = answer_to(task, key, "approve")
    for method, params in [
        ("tasks/get", {"taskId": task["taskId"]}),
        ("tasks/cancel", {"taskId": task["taskId"]}),
        ("tasks/update", update),
    ]:
        error = bob.error(method, **params)
        assert error["code"] == -32602, method
        assert error["message"].startswith("Unknown task")
    assert ann.get(task["taskId"])["status"] == "input_required"
    assert "statusMessage" not in boss.get(task["taskId"])
    assert "result" in boss.decide(task, "approve")
    ann.wait(task["taskId"], "completed")


@pytest.mark.parametrize(
    "task_id",
    [
        "",
        "0" * 32,
        "0" * 31 + "\0",
        "'; drop table podwright_runs; --",
        "x" * 50_000,
        "ä" * 32,
        "../../runs",
    ],
)
def test_forged_ids(serve: Serve, sqlite_database: str, task_id: str) -> None:
    """An id that no task has is an unknown task, whatever its form."""
    caller = Caller(serve(ECHO, runs_database=sqlite_database, mcp=True))
    for method in ("tasks/get", "tasks/cancel", "tasks/update"):
        error = caller.error(
            method,
            mcp_name=encode_header_value(task_id),
            taskId=task_id,
            inputResponses={},
        )
        assert error["code"] == -32602, method
        assert error["message"].startswith("Unknown task")


def test_another_task_in_the_headers(
    serve: Serve, sqlite_database: str
) -> None:
    """A request whose headers name another task than its body, or none, is refused."""
    caller = Caller(serve(FLOW, runs_database=sqlite_database, mcp=True))
    task = waiting(caller)
    for method in ("tasks/get", "tasks/cancel", "tasks/update"):
        for headers in ({"mcp-name": "0" * 32}, {"mcp-name": ""}):
            error = caller.error(method, headers=headers, taskId=task["taskId"])
            assert error["code"] == -32020, method
    assert caller.get(task["taskId"])["status"] == "input_required"


def test_a_task_of_another_component(
    served: Served, sqlite_database: str
) -> None:
    """Two services with one database do not know each other's tasks."""
    other = Agent("other", "Help.", "offline/echo")
    with (
        served(FLOW, runs_database=sqlite_database, mcp=True) as first,
        served(other, runs_database=sqlite_database, mcp=True) as second,
    ):
        task = waiting(Caller(first))
        error = Caller(second).error("tasks/get", taskId=task["taskId"])
        assert (error["code"], error["message"][:12]) == (
            -32602,
            "Unknown task",
        )


def test_a_client_without_the_extension(
    serve: Serve, sqlite_database: str
) -> None:
    """It is told which capability the methods need; its call is a run of its request, which ends at the approval."""
    served = serve(FLOW, runs_database=sqlite_database, mcp=True)
    task = waiting(Caller(served))
    caller = Caller(served, takes_tasks=False)
    for method in ("tasks/get", "tasks/cancel", "tasks/update"):
        error = caller.error(method, taskId=task["taskId"])
        assert error["code"] == -32021
        assert error["data"] == {
            "requiredCapabilities": {"extensions": {TASKS: {}}}
        }
    problem = problem_in(caller.call("flow"))
    assert problem["code"] == "approval_required"
    assert problem["run_id"]
    assert len(served.get("/runs").json()["runs"]) == 1


@pytest.mark.parametrize("era", ERAS)
async def test_clients_that_take_no_tasks(
    serve: Serve, sqlite_database: str, era: str
) -> None:
    """In both eras a call without the extension ends at its approval with a problem, and is no background run."""
    served = serve(FLOW, runs_database=sqlite_database, mcp=True)
    async with connected(served, era) as client:
        result = await client.call_tool("flow", {"input": "x"})
        problem = json.loads(text_of(result))
        assert (result.is_error, problem["code"]) == (True, "approval_required")
    assert served.get("/runs").json()["runs"] == []


def test_without_a_database(serve: Serve) -> None:
    """The extension is not declared, its methods do not exist, and each call has its result."""
    caller = Caller(serve(ECHO, mcp=True))
    discovered = caller.result("server/discover")
    assert TASKS not in (discovered["capabilities"].get("extensions") or {})
    assert caller.error("tasks/get", taskId="0" * 32)["code"] == -32601
    assert caller.call("helper")["content"][0]["text"] == "Echo: x"


def test_a_long_call(serve: Serve, sqlite_database: str) -> None:
    """A call that ends soon has its result; one that takes longer is a task, which can be cancelled."""
    gate = Gate()
    caller = Caller(
        serve(
            gate.agent(),
            runs_database=sqlite_database,
            mcp=True,
            mcp_task_after=0.2,
        )
    )
    task = caller.call("helper")
    assert (task["resultType"], task["status"]) == ("task", "working")
    assert task["ttlMs"] is None
    assert caller.get(task["taskId"])["status"] == "working"
    caller.result("tasks/cancel", taskId=task["taskId"])
    assert caller.wait(task["taskId"], "cancelled")
    assert gate.cancelled.wait(60)
    # nothing is left to cancel
    caller.result("tasks/cancel", taskId=task["taskId"])
    task = caller.call("helper")
    gate.opened.set()
    done = caller.wait(task["taskId"], "completed")
    assert done["result"]["content"][0]["text"] == "done"


def test_a_call_that_ends_soon(serve: Serve, sqlite_database: str) -> None:
    """It is a background run, and its answer the result, or the problem with which it failed."""
    failing = Agent(
        "helper", "Help.", FunctionModel(lambda _: _raise(ModelError("no")))
    )
    served = serve(ECHO, runs_database=sqlite_database, mcp=True)
    result = Caller(served).call("helper", "hello")
    assert result["content"][0]["text"] == "Echo: hello"
    (run,) = served.get("/runs").json()["runs"]
    assert run["id"] == result["_meta"]["podwright/run-id"]
    caller = Caller(
        serve(failing, runs_database=f"{sqlite_database}.other", mcp=True)
    )
    problem = problem_in(caller.call("helper"))
    assert problem["code"] == "model_failed"
    assert problem_in(caller.get(problem["run_id"])["result"]) == problem


def test_a_bug_of_a_background_run(serve: Serve, sqlite_database: str) -> None:
    """It is an error of the protocol, as that of a run of a request, in the answer and in the task."""
    agent = FaultyAgent("helper", "Help.", EchoModel())
    served = serve(agent, runs_database=sqlite_database, mcp=True)
    caller = Caller(served)
    error = caller.error("tools/call", name="helper", arguments={"input": "x"})
    assert (error["code"], error["data"]["code"]) == (-32603, "internal_error")
    assert "secret" not in str(error)
    (run,) = served.get("/runs").json()["runs"]
    task = caller.get(run["id"])
    assert (task["status"], task["error"]) == ("failed", error)
    assert task["statusMessage"]
    assert "result" not in task


def _raise(error: Exception) -> str:
    raise error


def test_headers_that_go_on_to_servers(
    serve: Serve, sqlite_database: str
) -> None:
    """A call with one is a run of its request, because a background run would not have the header."""
    server = {
        "url": "https://files.example.com/mcp",
        "headers_from_request": ["x-tenant"],
    }
    served = serve(
        ECHO,
        runs_database=sqlite_database,
        mcp=True,
        mcp_servers={"files": server},
    )
    caller = Caller(served)
    caller.call("helper", headers={"x-tenant": "blue"})
    assert served.get("/runs").json()["runs"] == []
    caller.call("helper")
    assert len(served.get("/runs").json()["runs"]) == 1


def test_progress_of_a_background_run(
    serve: Serve, sqlite_database: str
) -> None:
    """A caller who waits for one is told of its steps and reports, in order and before the result."""

    def read(context: RunContext) -> str:
        context.report("page 1 of 1")
        return "read"

    flow = Workflow("flow", [AgentStep(ECHO, "first"), FunctionStep(read)])
    served = serve(flow, runs_database=sqlite_database, mcp=True)
    caller = Caller(served)
    result = caller.call("flow", meta={"progressToken": "p"})
    assert result["_meta"]["podwright/run-id"]
    told = [
        (message["params"]["progress"], message["params"]["message"])
        for message in caller.notified
    ]
    assert [number for number, _ in told] == [1, 2, 3, 4]
    assert [text.split()[0] for _, text in told] == [
        *("step", "step", "tool", "page"),
    ]
    assert len(served.get("/runs").json()["runs"]) == 1


def test_a_wrong_call_is_no_run(serve: Serve, sqlite_database: str) -> None:
    """What is wrong in the arguments is said at once, and nothing is stored."""
    served = serve(ECHO, runs_database=sqlite_database, mcp=True)
    result = Caller(served).result(
        "tools/call", name="helper", arguments={"input": 3}
    )
    assert problem_in(result)["errors"][0]["pointer"] == "/input"
    assert served.get("/runs").json()["runs"] == []


def test_an_interrupted_run_is_working(
    serve: Serve, sqlite_database: str
) -> None:
    """It goes on once a person resumes it, which its message says."""
    caller = Caller(serve(FLOW, runs_database=sqlite_database, mcp=True))
    task = waiting(caller)
    change_run(sqlite_database, f"/runs/{task['taskId']}", status="interrupted")
    shown = caller.get(task["taskId"])
    assert shown["status"] == "working"
    assert "resume" in shown["statusMessage"]


def test_a_bug_is_not_shown(serve: Serve, sqlite_database: str) -> None:
    """An exception that no caller expects, here of a damaged row, is an error without its text."""
    caller = Caller(serve(FLOW, runs_database=sqlite_database, mcp=True))
    task_id = waiting(caller)["taskId"]
    change_run(
        sqlite_database, f"/runs/{task_id}", status="succeeded", result={}
    )
    error = caller.error("tasks/get", taskId=task_id)
    assert (error["code"], error["message"]) == (-32603, "Internal error.")


def test_a_restart_between_call_and_get(
    served: Served, sqlite_database: str
) -> None:
    """The task is stored before the call is answered: the next process takes the decision and performs the rest."""
    with served(FLOW, runs_database=sqlite_database, mcp=True) as first:
        task_id = Caller(first).call("flow")["taskId"]
    with served(FLOW, runs_database=sqlite_database, mcp=True) as second:
        caller = Caller(second)
        task = caller.wait(task_id, "input_required")
        caller.decide(task, "approve")
        assert caller.wait(task_id, "completed")["result"]["content"]


def at_once(
    *requests: Callable[[], dict[str, Any]],
) -> list[dict[str, Any]]:
    """The answers to requests that are sent at the same moment."""
    barrier = threading.Barrier(len(requests))

    def send(request: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        barrier.wait(10)
        return request()

    with ThreadPoolExecutor(len(requests)) as threads:
        return list(threads.map(send, requests))


@pytest.mark.parametrize("trial", range(3))
@pytest.mark.parametrize("second", ["approve", "reject"])
def test_two_decisions_at_once(
    serve: Serve, sqlite_database: str, second: str, trial: int
) -> None:
    """One of two that differ holds, and the other caller is told so; the same decision is accepted twice."""
    served = serve(FLOW, runs_database=sqlite_database, mcp=True)
    caller = Caller(served)
    task = waiting(caller)
    decisions = ["approve", second]
    answers = at_once(
        *(functools.partial(caller.decide, task, each) for each in decisions)
    )
    accepted = [
        decision
        for decision, answer in zip(decisions, answers, strict=True)
        if "result" in answer
    ]
    refused = [answer["error"] for answer in answers if "error" in answer]
    if second == "approve":
        assert (len(accepted), refused) == (2, [])
    else:
        assert len(accepted) == 1
        (error,) = refused
        assert error["data"]["code"] == "run_state_conflict"
    done = caller.wait(task["taskId"], "completed", "cancelled")
    expected = {"approve": "completed", "reject": "cancelled"}
    assert done["status"] == expected[accepted[0]]
    run = served.get(f"/runs/{task['taskId']}").json()
    assert [each["decision"] for each in run["decisions"]] == accepted[:1]


def test_the_database_is_away(serve: Serve, tmp_path: Path) -> None:
    """Calls and requests for tasks are refused with the problem, and the service goes on."""
    folder = tmp_path / "database"
    folder.mkdir()
    database = f"sqlite:///{folder}/runs.db"
    served = serve(FLOW, runs_database=database, mcp=True)
    caller = Caller(served)
    task = waiting(caller)
    folder.rename(tmp_path / "moved")
    call = {"name": "flow", "arguments": {"input": "x"}}
    (key,) = task["inputRequests"]
    for method, params in [
        ("tools/call", call),
        ("tasks/get", {"taskId": task["taskId"]}),
        ("tasks/cancel", {"taskId": task["taskId"]}),
        ("tasks/update", answer_to(task, key, "approve")),
    ]:
        error = caller.error(method, **params)
        assert error["code"] == -32000, method
        assert error["data"]["code"] == "runs_unavailable", method
    (tmp_path / "moved").rename(folder)
    until(lambda: "result" in caller.send("tasks/get", taskId=task["taskId"]))


# --- Keys -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("takes_tasks", [True, False])
def test_a_key(serve: Serve, sqlite_database: str, takes_tasks: bool) -> None:
    """A call with a key is performed once, from the metadata or the header; another call with it is refused."""
    calls: list[str] = []

    def answer(request: Any) -> str:
        calls.append(request.messages[-1].text)
        return f"answer {len(calls)}"

    served = serve(
        Agent("helper", "Help.", FunctionModel(answer)),
        runs_database=sqlite_database,
        mcp=True,
    )
    caller = Caller(served, takes_tasks=takes_tasks)
    first = caller.call("helper", meta={KEY: "k1"})
    again = caller.call("helper", meta={KEY: "k1"})
    by_header = caller.call("helper", headers={"idempotency-key": '"k1"'})
    assert first["content"] == again["content"] == by_header["content"]
    assert (
        first["_meta"]["podwright/run-id"] == again["_meta"]["podwright/run-id"]
    )
    assert calls == ["x"]
    other = problem_in(caller.call("helper", "y", meta={KEY: "k1"}))
    assert other["code"] == "idempotency_key_reused"
    caller.call("helper", meta={KEY: "k2"})
    assert calls == ["x", "x"]
    for meta, headers in [
        ({KEY: 3}, {}),
        ({KEY: ""}, {}),
        ({KEY: "x" * 256}, {}),
        ({KEY: "a\nb"}, {}),
        ({KEY: "k1"}, {"idempotency-key": "k2"}),
    ]:
        wrong = problem_in(caller.call("helper", meta=meta, headers=headers))
        assert wrong["code"] == "idempotency_key_invalid", meta
    assert calls == ["x", "x"]


def test_keys_of_two_callers(serve: Serve) -> None:
    """The same key of another caller is another key."""
    served = serve(ECHO, mcp=True, api_keys=KEYS)
    one, two = (
        Caller(served, key, takes_tasks=False).call("helper", meta={KEY: "k"})
        for key in (ANN, BOB)
    )
    assert one["_meta"]["podwright/run-id"] != two["_meta"]["podwright/run-id"]


def test_a_failure_may_be_repeated(serve: Serve) -> None:
    """A call whose model failed runs again with the same key; one whose input was wrong does not hold the key."""
    answers = iter([ModelError("away"), "back"])

    def answer(_: Any) -> str:
        text = next(answers)
        if isinstance(text, Exception):
            raise text
        return text

    agent = Agent("helper", "Help.", FunctionModel(answer))
    served = serve(agent, mcp=True)
    caller = Caller(served, takes_tasks=False)
    meta = {KEY: "k"}
    wrong = caller.result("tools/call", name="helper", meta=meta, arguments={})
    assert problem_in(wrong)["code"] == "inputs_invalid"
    assert problem_in(caller.call("helper", meta=meta))["code"] == (
        "model_failed"
    )
    assert counted(served, 502) == 1
    assert caller.call("helper", meta=meta)["content"][0]["text"] == "back"


@pytest.mark.parametrize("era", ERAS)
async def test_a_key_in_progress(serve: Serve, era: str) -> None:
    """A call whose first one still runs is refused for now; the run of a caller who leaves ends, with a key too."""
    gate = Gate()
    served = serve(gate.agent(), mcp=True)
    meta: Any = {KEY: "k"}

    async def call() -> Any:
        async with connected(served, era) as client:
            return await client.call_tool("helper", {"input": "x"}, meta=meta)

    first = asyncio.create_task(call())
    assert await asyncio.to_thread(gate.called.wait, 60)
    async with connected(served, era) as client:
        with pytest.raises(MCPError, match="in progress") as refused:
            await client.call_tool("helper", {"input": "x"}, meta=meta)
    assert refused.value.error.data["code"] == "idempotency_in_progress"
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await asyncio.to_thread(gate.cancelled.wait, 60)
    gate.opened.set()
    assert text_of(await call()) == "done"
    assert len(gate.inputs) == 2


@pytest.mark.parametrize("has_key", [True, False])
def test_a_caller_who_leaves_before_the_answer(
    serve: Serve, sqlite_database: str, has_key: bool
) -> None:
    """The run of a call without a key is cancelled, because nobody knows its id; with a key it can be found again."""
    gate = Gate()
    served = serve(gate.agent(), runs_database=sqlite_database, mcp=True)
    meta = {KEY: "k"} if has_key else {}
    caller = Caller(served)
    body, headers = caller.request(
        "tools/call",
        meta=meta,
        name="helper",
        arguments={"input": "x"},
    )
    lines = [f"{name}: {value}" for name, value in headers.items()]
    with connect(served, "/mcp", json.dumps(body).encode(), *lines):
        assert gate.called.wait(60)
    if not has_key:
        assert gate.cancelled.wait(60)
        return
    gate.opened.set()
    assert caller.call("helper", meta=meta)["content"][0]["text"] == "done"
    assert len(gate.inputs) == 1
    assert not gate.cancelled.is_set()


def test_a_caller_who_leaves_while_the_run_is_stored(
    serve: Serve, sqlite_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run, which a slow database has already, is cancelled."""
    left = threading.Event()
    add_or_find = BackgroundWorker.add_or_find
    cancel_later = Tasks._cancel_later

    async def add_slowly(*args: Any) -> Any:
        run = await add_or_find(*args)
        await asyncio.to_thread(left.wait, 60)
        return run

    def note_and_cancel(*args: Any) -> None:
        cancel_later(*args)
        left.set()

    monkeypatch.setattr(BackgroundWorker, "add_or_find", add_slowly)
    monkeypatch.setattr(Tasks, "_cancel_later", note_and_cancel)
    gate = Gate()
    served = serve(gate.agent(), runs_database=sqlite_database, mcp=True)
    body, headers = Caller(served).request(
        "tools/call", name="helper", arguments={"input": "x"}
    )
    lines = [f"{name}: {value}" for name, value in headers.items()]
    with connect(served, "/mcp", json.dumps(body).encode(), *lines):
        assert gate.called.wait(60)
    assert left.wait(60)
    assert gate.cancelled.wait(60)
    (run,) = served.get("/runs").json()["runs"]
    wait(served, f"/runs/{run['id']}", "cancelled")
