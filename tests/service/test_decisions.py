"""What people decide, over HTTP: options, changed values, rejections with steps after them, and tool calls."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from tests.service.background_support import ENDED, begin, wait
from tests.service.support import Serve, check_problem

from podwright import (
    Agent,
    ApprovalStep,
    FunctionStep,
    Pipeline,
    ScriptedModel,
    Workflow,
    tool,
)
from podwright.testing import ToolCall

PAID: list[int] = []


@pytest.fixture(autouse=True)
def _nothing_paid() -> None:
    PAID.clear()


@tool(approval=True)
def pay(amount: int) -> str:
    """Pay."""
    PAID.append(amount)
    return f"paid {amount}"


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
    for body, pointers in (
        ({"decision": "send"}, ["/decision"]),
        ({"values": {"draft": "x"}}, ["/values/draft"]),
        ({"values": {"input": "x"}}, ["/values/input"]),
    ):
        problem = check_problem(
            client.post(f"{url}/approve", json=body), 422, "inputs_invalid"
        )
        assert [entry["pointer"] for entry in problem["errors"]] == pointers
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


def resumed(problem: dict[str, Any], **keys: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"inputs": problem["context"], **keys}
    if "resume_path" in problem:
        body["resume_path"] = problem["resume_path"]
    return body


def test_a_run_that_nobody_stores_goes_on(serve: Serve) -> None:
    """The problem has the question and the context; they come back with the decision."""
    client = serve(letters())
    problem = check_problem(
        client.post("/run", json={"input": "x"}), 409, "approval_required"
    )
    assert problem["question"]["edit"]["draft"]["value"] == "Dear all"
    assert "approve, reject" in problem["suggestion"]
    wrong = resumed(problem, decision={"values": {"draft": ""}})
    again = check_problem(
        client.post("/run", json=wrong), 422, "inputs_invalid"
    )
    assert again["resume_path"] == problem["resume_path"]
    for decision, sent in (
        (None, "Dear all!"),
        ({"values": {"draft": "Dear Ann"}}, "Dear Ann!"),
        ({"decision": "reject", "comment": "Hello"}, "Hello!"),
    ):
        body = resumed(problem, decision=decision)
        assert client.post("/run", json=body).json()["sent"] == sent


def test_a_tool_call_in_a_run_that_nobody_stores(serve: Serve) -> None:
    """An agent's run goes on where it stood, under its own id, with the whole usage in its last response."""
    client = serve(clerk("done", "well", "done"))
    response = client.post("/run", json={"input": "x"})
    problem = check_problem(response, 409, "approval_required")
    assert "resume_path" not in problem
    assert problem["question"]["tool"] == "pay"
    done = client.post("/run", json=resumed(problem))
    assert done.json() == {"output": "done"}
    assert done.headers["podwright-run-id"] == problem["run_id"]
    assert PAID == [5]
    refused = client.post(
        "/run", json=resumed(problem, decision={"decision": "reject"})
    )
    assert refused.json() == {"output": "well"}
    assert PAID == [5]
    changed = {**problem["context"], "_run": {"run_id": "x"}}
    check_problem(
        client.post("/run", json={"inputs": changed}), 422, "input_invalid"
    )


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
