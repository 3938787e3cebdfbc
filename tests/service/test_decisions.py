"""What people decide, over HTTP: options, changed values, rejections with steps after them, and tool calls."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from typing import Annotated, Any

import httpx
import pytest
from pydantic import AfterValidator
from tests.service.background_support import ENDED, begin, wait
from tests.service.support import Serve, check_problem, pointers

from podwright import (
    Agent,
    ApprovalStep,
    Conductor,
    FunctionStep,
    Pipeline,
    ScriptedModel,
    Workflow,
    tool,
)
from podwright.testing import ToolCall
from podwright_service.testing import Metrics

PAID: list[int] = []


@pytest.fixture(autouse=True)
def _nothing_paid() -> None:
    PAID.clear()


@tool(approval=True)
def pay(amount: int) -> str:
    """Pay."""
    PAID.append(amount)
    return f"paid {amount}"


SHIPPED: list[str] = []


def at_most_50(amount: int) -> int:
    return min(amount, 50)


@tool(approval=True)
def ship(day: date, amount: Annotated[int, AfterValidator(at_most_50)]) -> str:
    """Ship."""
    SHIPPED.append(f"{amount} on {day}")
    return "shipped"


def show(text: str) -> str:
    """Return the text."""
    return text


def letters() -> Workflow:
    return Workflow(
        "letters",
        [
            FunctionStep(show, {"text": "Dear all"}, output="draft"),
            ApprovalStep(
                "Send '{draft}'?",
                "check",
                edit={"draft": {"type": "string", "minLength": 3}},
                on_reject=[
                    FunctionStep(
                        show, {"text": "{check.comment}"}, output="draft"
                    )
                ],
            ),
            FunctionStep(show, {"text": "{draft}!"}, output="sent"),
        ],
    )


def clerk(*answers: Any) -> Agent:
    model = ScriptedModel(ToolCall.of("pay", amount=5), *answers)
    return Agent("clerk", "Work.", model, tools=[pay])


def waiting(client: httpx.Client, url: str) -> dict[str, Any]:
    return wait(client, url, "waiting_for_approval")


def decide(client: httpx.Client, url: str, **body: Any) -> dict[str, Any]:
    response = client.post(f"{url}/approve", json=body)
    assert response.status_code == 202, response.text
    return wait(client, url, *ENDED, "waiting_for_approval")


def test_a_background_run_is_asked_and_answered(
    serve: Serve, sqlite_database: str
) -> None:
    """The question has what may be decided; the decision changes values and is kept; what does not fit is refused."""
    client = serve(letters(), runs_database=sqlite_database)
    url = begin(client)
    approval = waiting(client, url)["approval"]
    assert approval["message"] == "Send 'Dear all'?"
    assert approval["options"] == ["approve", "reject"]
    assert approval["ends_on_reject"] is False
    assert approval["edit"] == {
        "draft": {
            "schema": {"type": "string", "minLength": 3},
            "value": "Dear all",
        }
    }
    for body, places in (
        ({"decision": "send"}, ["/decision"]),
        ({"values": {"draft": "x"}}, ["/values/draft"]),
        ({"values": {"input": "x"}}, ["/values/input"]),
    ):
        problem = check_problem(
            client.post(f"{url}/approve", json=body), 422, "inputs_invalid"
        )
        assert pointers(problem) == places
    assert waiting(client, url)["attempt"] == 1
    run = decide(client, url, values={"draft": "Dear Ann"}, comment="Better.")
    assert run["status"] == "succeeded"
    assert run["result"]["sent"] == "Dear Ann!"
    (decision,) = run["decisions"]
    assert decision["decision"] == "approve"
    assert decision["values"] == {"draft": "Dear Ann"}


def test_a_rejection_with_steps_goes_on(
    serve: Serve, sqlite_database: str
) -> None:
    """Either route rejects; the same decision may be sent again; without such steps the run ends as cancelled."""
    client = serve(letters(), runs_database=sqlite_database)
    for route, body in (("approve", {"decision": "reject"}), ("reject", {})):
        url = begin(client)
        waiting(client, url)
        for _ in range(2):
            response = client.post(
                f"{url}/{route}", json={**body, "comment": "New one"}
            )
            assert response.status_code == 202
        run = wait(client, url)
        assert run["result"]["sent"] == "New one!"
        assert [each["approved"] for each in run["decisions"]] == [False]
    plain = serve(
        Workflow("plain", [ApprovalStep("Go?")]), runs_database=sqlite_database
    )
    url = begin(plain)
    waiting(plain, url)
    plain.post(f"{url}/approve", json={"decision": "reject"})
    assert wait(plain, url)["status"] == "cancelled"


@pytest.mark.parametrize("kind", ["agent", "pipeline"])
@pytest.mark.parametrize(
    ("body", "paid"),
    [
        ({}, [5]),
        ({"values": {"amount": 3}}, [3]),
        ({"decision": "reject", "comment": "No."}, []),
    ],
    ids=["approved", "changed", "rejected"],
)
def test_a_tool_call_of_a_background_run_waits(
    serve: Serve,
    sqlite_database: str,
    body: dict[str, Any],
    paid: list[int],
    kind: str,
) -> None:
    """It is made with the changed arguments, or not at all; nothing before it is repeated."""
    PAID.clear()
    agent = clerk("done")
    component = agent if kind == "agent" else Pipeline("line", [agent])
    client = serve(component, runs_database=sqlite_database)
    url = begin(client)
    approval = waiting(client, url)["approval"]
    assert (approval["tool"], approval["ends_on_reject"]) == ("pay", False)
    run = decide(client, url, **body)
    assert (run["status"], run["result"]) == ("succeeded", {"output": "done"})
    assert run["usage"]["model_calls"] == 2
    assert paid == PAID


def test_an_edit_is_checked_by_the_tool(
    serve: Serve, sqlite_database: str
) -> None:
    """What the tool would refuse or change is a 422 before the run goes on; the question shows what is executed."""
    agent = Agent(
        "shipper",
        "Ship.",
        ScriptedModel(
            ToolCall.of("ship", day="2026-01-05", amount=100), "done"
        ),
        tools=[ship],
    )
    line = Pipeline("line", [agent])
    client = serve(line, runs_database=sqlite_database)
    url = begin(client)
    approval = waiting(client, url)["approval"]
    assert approval["edit"]["amount"]["value"] == 50
    assert approval["model_arguments"] == {"day": "2026-01-05", "amount": 100}
    for values in ({"day": "05.01.2026"}, {"amount": 80}):
        problem = check_problem(
            client.post(f"{url}/approve", json={"values": values}),
            422,
            "inputs_invalid",
        )
        (name,) = values
        assert pointers(problem) == [f"/values/{name}"]
    run = decide(client, url, values={"day": "2026-01-06"})
    assert run["status"] == "succeeded"
    assert SHIPPED == ["50 on 2026-01-06"]


def test_a_resumed_run_asks_about_another_call(
    serve: Serve, sqlite_database: str
) -> None:
    """After a failure, an approval of one call lets no other one pass, and what is paid is not paid again."""
    model = ScriptedModel(
        ToolCall.of("pay", amount=5),
        "no JSON",
        *[ToolCall.of("pay", amount=999)] * 2,
    )
    agent = Agent(
        "clerk", "Work.", model, tools=[pay], max_loops=2, response_model=int
    )
    client = serve(agent, runs_database=sqlite_database)
    url = begin(client)
    waiting(client, url)
    assert decide(client, url)["status"] == "failed"
    client.post(f"{url}/resume").raise_for_status()
    approval = waiting(client, url)["approval"]
    assert approval["edit"]["amount"]["value"] == 999
    assert PAID == [5]


def at_once(*requests: Callable[[], httpx.Response]) -> list[httpx.Response]:
    """The responses to requests that are sent at the same moment."""
    barrier = threading.Barrier(len(requests))

    def send(request: Callable[[], httpx.Response]) -> httpx.Response:
        barrier.wait(10)
        return request()

    with ThreadPoolExecutor(len(requests)) as threads:
        return list(threads.map(send, requests))


@pytest.mark.parametrize("trial", range(3))
@pytest.mark.parametrize("second", ["reject", "approve 3", "approve 4"])
def test_two_decisions_at_once(
    serve: Serve, sqlite_database: str, second: str, trial: int
) -> None:
    """What is answered with 202 is performed, once, and is what the record says; a contradicting decision is a 409."""
    client = serve(clerk("done"), runs_database=sqlite_database)
    url = begin(client)
    waiting(client, url)
    bodies: dict[str, tuple[str, dict[str, Any]]] = {
        "reject": ("reject", {}),
        "approve 3": ("approve", {"values": {"amount": 3}}),
        "approve 4": ("approve", {"values": {"amount": 4}}),
    }
    decisions = [bodies["approve 3"], bodies[second]]
    responses = at_once(
        *(
            functools.partial(client.post, f"{url}/{route}", json=body)
            for route, body in decisions
        )
    )
    run = wait(client, url)
    assert run["status"] == "succeeded"
    assert run["attempt"] == 2
    (recorded,) = run["decisions"]
    accepted = [
        body.get("values", {})
        for (_, body), response in zip(decisions, responses, strict=True)
        if response.status_code == 202
    ]
    if second == "approve 3":
        assert len(accepted) == 2, "the same decision is the same answer"
    else:
        assert sorted(each.status_code for each in responses) == [202, 409]
    assert recorded["values"] == accepted[0]
    assert [
        values["amount"] for values in accepted[:1] if "amount" in values
    ] == PAID


def resumed(problem: dict[str, Any], **keys: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"inputs": problem["context"], **keys}
    if "resume_path" in problem:
        body["resume_path"] = problem["resume_path"]
    return body


def test_a_run_that_nobody_stores_goes_on(serve: Serve) -> None:
    """The problem has the question and the context; they come back with the decision."""
    client = serve(letters())
    for decision, sent in (
        (None, "Dear all!"),
        ({"values": {"draft": "Dear Ann"}}, "Dear Ann!"),
        ({"decision": "reject", "comment": "Hello"}, "Hello!"),
    ):
        problem = check_problem(
            client.post("/run", json={"input": "x"}), 409, "approval_required"
        )
        assert problem["question"]["edit"]["draft"]["value"] == "Dear all"
        assert "approve, reject" in problem["suggestion"]
        wrong = resumed(problem, decision={"values": {"draft": ""}})
        refused = check_problem(
            client.post("/run", json=wrong), 422, "inputs_invalid"
        )
        assert pointers(refused) == ["/decision/values/draft"]
        body = resumed(problem, decision=decision)
        assert client.post("/run", json=body).json()["sent"] == sent


def test_a_tool_call_in_a_run_that_nobody_stores(serve: Serve) -> None:
    """An agent's run goes on where it stood, under its own id, with the whole usage in its last response."""
    client = serve(clerk("done"))
    response = client.post("/run", json={"input": "x"})
    problem = check_problem(response, 409, "approval_required")
    assert "resume_path" not in problem
    assert problem["question"]["tool"] == "pay"
    done = client.post("/run", json=resumed(problem))
    assert done.json() == {"output": "done"}
    assert done.headers["podwright-run-id"] == problem["run_id"]
    assert PAID == [5]
    again = resumed(problem, decision={"decision": "reject"})
    check_problem(client.post("/run", json=again), 409, "state_used")
    changed = {**problem["context"], "_run": {"run_id": "x"}}
    check_problem(
        client.post("/run", json={"inputs": changed}), 422, "inputs_invalid"
    )
    assert PAID == [5]


@pytest.mark.parametrize("made", ["plain", "letters"])
def test_a_rejection_is_no_failure(serve: Serve, made: str) -> None:
    """A rejected run has a status of its own, below 500, and is counted as rejected."""
    plain = Workflow("plain", [ApprovalStep("Go?")])
    client = serve(letters() if made == "letters" else plain)
    problem = client.post("/run", json={"input": "x"}).json()
    reject = resumed(problem, decision={"decision": "reject"})
    response = client.post("/run", json=reject)
    metrics = Metrics(client.get("/metrics").text)
    rejected = metrics.get("podwright_runs_total", status="rejected")
    assert metrics.get("podwright_run_failures_total") == 0
    if made == "letters":
        assert response.status_code == 200, "it has steps for that"
        assert rejected == 0
    else:
        check_problem(response, 403, "approval_rejected")
        assert rejected == 1


def test_chat_completions_tell_what_may_be_decided(serve: Serve) -> None:
    """A client of OpenAI sees the question, and how to decide."""
    client = serve(letters())
    response = client.post(
        "/v1/chat/completions",
        json={
            "model": "letters",
            "messages": [{"role": "user", "content": "x"}],
        },
    )
    assert response.status_code == 409
    message = response.json()["error"]["message"]
    assert "Send 'Dear all'?" in message
    assert "approve, reject. Start it with /run or /runs" in message


def test_a_pause_is_no_failed_call(serve: Serve) -> None:
    """The call in which a member of a conductor waits for a person counts as paused."""
    model = ScriptedModel(ToolCall.of("clerk", task="Pay."))
    chief = Conductor("chief", "Lead.", model, skills=[clerk()])
    client = serve(chief)
    problem = client.post("/run", json={"input": "x"})
    check_problem(problem, 409, "approval_required")
    metrics = Metrics(client.get("/metrics").text)
    calls = {
        status: metrics.get(
            "podwright_tool_calls_total", tool="clerk", status=status
        )
        for status in ("failed", "paused")
    }
    assert calls == {"failed": 0, "paused": 1}


def test_a_background_rejection_is_counted_once(
    serve: Serve, sqlite_database: str
) -> None:
    """However often it is sent."""
    plain = Workflow("plain", [ApprovalStep("Go?")])
    client = serve(plain, runs_database=sqlite_database)
    url = begin(client)
    waiting(client, url)
    for _ in range(2):
        assert client.post(f"{url}/reject", json={}).status_code == 202
    metrics = Metrics(client.get("/metrics").text)
    assert metrics.get("podwright_runs_total", status="rejected") == 1
