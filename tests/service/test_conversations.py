"""Conversations that the service keeps: their turns, in order, and what they leave."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from tests.helpers import until
from tests.service.background_support import wait
from tests.service.support import (
    Gate,
    Serve,
    check_problem,
    pointers,
)

from podwright import (
    Agent,
    AgentStep,
    ApprovalStep,
    Conductor,
    EchoModel,
    FunctionAgent,
    FunctionModel,
    Pipeline,
    RunContext,
    Workflow,
    tool,
)
from podwright.components import Component
from podwright.errors import ConfigurationError
from podwright.messages.headers import REPLAYED, RUN_ID
from podwright.testing import ModelRequest, ToolCall
from podwright_service.app import create_app
from podwright_service.settings import Settings

KEYS = {"ann": "run@ann:" + "a" * 20, "bob": "run@bob:" + "b" * 20}


def said(request: ModelRequest) -> str:
    """All that the model was told by users."""
    texts = [each.text for each in request.messages if each.role == "user"]
    return " ".join(texts)


def failing(request: ModelRequest) -> str:
    """As `said`, but not of "bad"."""
    text = said(request)
    if text.endswith("bad"):
        raise RuntimeError("bad")
    return text


@tool
def count(context: RunContext) -> int:
    """Count the turns of the conversation."""
    context.state["turns"] = context.state.get("turns", 0) + 1
    return context.state["turns"]


@tool(approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def counting(request: ModelRequest) -> Any:
    if request.messages[-1].role == "tool":
        return request.messages[-1].text
    return [ToolCall.of("count")]


def paying(request: ModelRequest) -> Any:
    """Pay if it was asked for, and tell of all that was said and paid."""
    last = request.messages[-1]
    if last.role == "user" and last.text == "pay":
        return [ToolCall.of("pay", amount=5)]
    return " ".join(
        each.text for each in request.messages if each.role in ("user", "tool")
    )


def repeater() -> Agent:
    return Agent("repeater", "Repeat.", FunctionModel(failing))


def step() -> AgentStep:
    return AgentStep(repeater(), conversation=True)


def flow() -> Workflow:
    return Workflow("flow", [step()])


def headers(caller: str) -> dict[str, str]:
    _, _, key = KEYS[caller].rpartition(":")
    return {"authorization": f"Bearer {key}"}


def post(
    client: httpx.Client, text: str, session: str = "s", **more: Any
) -> httpx.Response:
    request_headers: dict[str, str] = more.pop("headers", {})
    body = {"input": text, "session": session, **more}
    return client.post("/run", json=body, headers=request_headers)


def send(
    client: httpx.Client, text: str, session: str = "s", **more: Any
) -> str:
    """The answer to a turn."""
    response = post(client, text, session, **more)
    assert response.status_code == 200, response.text
    return response.json()["output"]


def test_who_is_active_is_kept(serve: Serve, database: str) -> None:
    """After a handoff the next turn goes to the agent that went on, without anything from the client."""
    agent = Agent(
        "triage",
        "Sort.",
        FunctionModel(billed),
        handoffs=[Agent("billing", "Bill.", FunctionModel(billed))],
    )
    client = serve(agent, runs_database=database, conversations=True)
    assert send(client, "My invoice?") == "billing answers"
    assert send(client, "Sure?") == "billing answers"
    assert send(client, "Sure?", session="other") == "triage answers"


def billed(request: ModelRequest) -> Any:
    """Hand over what is about an invoice; say who speaks."""
    last = request.messages[-1]
    if request.component == "triage" and "invoice" in last.text:
        return [ToolCall.of("transfer_to_billing")]
    return f"{request.component} answers"


# --- One turn after the other -----------------------------------------------------------------------------------------


def test_a_session_is_a_conversation(serve: Serve, database: str) -> None:
    """Each turn has those before it in its session, and no other's."""
    client = serve(repeater(), runs_database=database, conversations=True)
    assert send(client, "one") == "one"
    assert send(client, "other", session="t") == "other"
    assert send(client, "two") == "one two"
    assert send(client, "three") == "one two three"
    assert send(client, "four", session="") == "four"


def test_without_the_setting_nothing_is_kept(
    serve: Serve, sqlite_database: str
) -> None:
    """A session is then no more than an attribute of runs."""
    client = serve(repeater(), runs_database=sqlite_database)
    assert send(client, "one") == "one"
    assert send(client, "two") == "two"


def test_conversations_need_a_database() -> None:
    """Without one, the service does not start."""
    settings = Settings(conversations=True)
    with pytest.raises(ConfigurationError, match="PODWRIGHT_RUNS_DATABASE"):
        create_app(settings, repeater())


def stream(client: httpx.Client, text: str, session: str = "s") -> Any:
    """The data of the last event of a stream."""
    body = {"input": text, "session": session}
    response = client.post("/run/stream", json=body)
    assert response.status_code == 200, response.text
    return json.loads(response.text.split("data: ")[-1])


def test_a_stream_is_a_turn(serve: Serve, sqlite_database: str) -> None:
    """As a request that is answered at once."""
    client = serve(
        repeater(), runs_database=sqlite_database, conversations=True
    )
    assert send(client, "one") == "one"
    assert stream(client, "two")["output"] == "one two"
    assert send(client, "three") == "one two three"


COMPONENTS: dict[str, Component] = {
    "agent": repeater(),
    "pipeline": Pipeline("line", [repeater()]),
    "conductor": Conductor(
        "boss", "Lead.", FunctionModel(failing), [repeater()]
    ),
    "workflow": flow(),
}


@pytest.mark.parametrize("component", COMPONENTS.values(), ids=COMPONENTS)
def test_each_kind_of_component_converses(
    serve: Serve, sqlite_database: str, component: Component
) -> None:
    """Its second turn has the first."""
    client = serve(component, runs_database=sqlite_database, conversations=True)
    post(client, "one")
    response = post(client, "two")
    assert "one" in response.text
    assert "two" in response.text


def test_a_function_agent_converses(serve: Serve, sqlite_database: str) -> None:
    """Its function is given the earlier turns."""

    async def answer(task: str, context: RunContext) -> str:
        return f"{len(context.messages)} {task}"

    component = FunctionAgent("coded", answer)
    client = serve(component, runs_database=sqlite_database, conversations=True)
    assert send(client, "one") == "0 one"
    assert send(client, "two") == "2 two"


class Silent(Agent):
    """A component that gives no conversation."""

    async def perform(self, run: Any, task: Any) -> Any:
        return "done"


def test_a_component_without_a_conversation(
    serve: Serve, sqlite_database: str
) -> None:
    """It says so, and runs without a session."""
    component = Silent("silent", "Be silent.", EchoModel())
    client = serve(component, runs_database=sqlite_database, conversations=True)
    problem = check_problem(post(client, "x"), 422, "conversation_unsupported")
    assert pointers(problem) == ["/session"]
    assert send(client, "x", session="") == "done"
    run = wait(client, begin_turn(client, "x"))
    assert run["problem"]["code"] == "conversation_unsupported"


def begin_turn(client: httpx.Client, text: str, session: str = "s") -> str:
    """Start a background run that is a turn, and return its URL."""
    body = {"input": text, "session": session}
    response = client.post("/runs", json=body)
    assert response.status_code == 202, response.text
    return response.headers["location"]


def test_the_state_is_kept(serve: Serve, database: str) -> None:
    """What functions leave in it is there in the next turn of the session."""
    component = Agent(
        "counter", "Count.", FunctionModel(counting), tools=[count]
    )
    client = serve(component, runs_database=database, conversations=True)
    assert [send(client, "x") for _ in range(3)] == ["1", "2", "3"]
    assert send(client, "x", session="t") == "1"
    run = wait(client, begin_turn(client, "x"))
    assert run["result"]["output"] == "4"


def test_each_caller_has_sessions_of_their_own(
    serve: Serve, sqlite_database: str
) -> None:
    """The same name is another conversation with another key."""
    client = serve(
        repeater(),
        runs_database=sqlite_database,
        conversations=True,
        api_keys=",".join(KEYS.values()),
    )
    assert send(client, "ann", headers=headers("ann")) == "ann"
    assert send(client, "bob", headers=headers("bob")) == "bob"
    assert send(client, "ann", headers=headers("ann")) == "ann ann"


def test_two_components_share_no_session(
    serve: Serve, sqlite_database: str
) -> None:
    """Although they have one database."""
    first = serve(repeater(), runs_database=sqlite_database, conversations=True)
    second = serve(flow(), runs_database=sqlite_database, conversations=True)
    post(first, "one")
    assert "one" not in post(second, "two").text


def test_an_inline_blueprint_has_no_conversation(
    serve: Serve, sqlite_database: str
) -> None:
    """A session is then no more than an attribute of runs."""
    client = serve(
        Agent("echo", "Echo.", "offline/echo"),
        runs_database=sqlite_database,
        conversations=True,
    )
    body = {
        "type": "agent",
        "blueprint": {
            "name": "echo",
            "instructions": "Echo.",
            "config": {"model": "offline/echo"},
        },
        "input": "one",
        "session": "s",
        "messages": [
            {"role": "user", "content": "zero"},
            {"role": "assistant", "content": "zero"},
        ],
    }
    assert client.post("/run-blueprint", json=body).status_code == 200
    send(client, "two")


def test_a_run_of_another_container_is_no_turn(
    serve: Serve, sqlite_database: str
) -> None:
    """The outermost service keeps the conversation, and sends its messages."""
    client = serve(
        repeater(), runs_database=sqlite_database, conversations=True
    )
    nested = {"podwright-root": "outer"}
    assert send(client, "one", headers=nested) == "one"
    earlier = [
        {"role": "user", "content": "zero"},
        {"role": "assistant", "content": "0"},
    ]
    assert send(client, "two", headers=nested, messages=earlier) == "zero two"


# --- What a turn refuses ----------------------------------------------------------------------------------------------


def test_the_caller_sends_the_new_message_alone(
    serve: Serve, sqlite_database: str
) -> None:
    """Earlier messages beside a session are refused before the run; without a session they are the conversation."""
    client = serve(
        repeater(), runs_database=sqlite_database, conversations=True
    )
    earlier = [
        {"role": "user", "content": "zero"},
        {"role": "assistant", "content": "0"},
    ]
    for route in ("/run", "/run/stream", "/runs"):
        body = {"input": "one", "session": "s", "messages": earlier}
        response = client.post(route, json=body)
        problem = check_problem(response, 422, "conversation_kept")
        assert pointers(problem) == ["/messages"]
    assert send(client, "one") == "one"
    assert send(client, "one", session="", messages=earlier) == "zero one"


@pytest.mark.parametrize(
    ("limits", "name"),
    [
        ({"conversation_messages": 4}, "PODWRIGHT_CONVERSATION_MESSAGES"),
        ({"conversation_bytes": 100}, "PODWRIGHT_CONVERSATION_BYTES"),
    ],
)
def test_a_conversation_has_an_end(
    serve: Serve, database: str, limits: dict[str, int], name: str
) -> None:
    """No turn begins in one that has reached a limit; another session goes on."""
    client = serve(
        repeater(), runs_database=database, conversations=True, **limits
    )
    send(client, "one")
    send(client, "two")
    for route in ("/run", "/runs"):
        body = {"input": "three", "session": "s"}
        response = client.post(route, json=body)
        problem = check_problem(response, 409, "conversation_full")
        assert name in problem["detail"]
    assert send(client, "one", session="t") == "one"


def test_a_turn_that_fails_leaves_the_conversation(
    serve: Serve, database: str
) -> None:
    """It is as if the turn had not been asked for, whatever the route."""
    client = serve(repeater(), runs_database=database, conversations=True)
    send(client, "one")
    assert post(client, "bad").status_code >= 500
    assert stream(client, "bad")["status"] >= 500
    assert wait(client, begin_turn(client, "bad"))["status"] == "failed"
    assert send(client, "two") == "one two"


# --- Several at once --------------------------------------------------------------------------------------------------


def check_order(answers: list[str], texts: list[str]) -> None:
    """Check that each answer has all turns before it, that none is missing, and that none is there twice."""
    words = [answer.split() for answer in answers]
    words.sort(key=len)
    assert [len(each) for each in words] == [*range(1, len(texts) + 1)]
    assert sorted(words[-1]) == sorted(texts)
    for number, each in enumerate(words, 1):
        assert each == words[-1][:number]


def test_turns_at_once_come_one_after_the_other(
    serve: Serve, database: str
) -> None:
    """In two services on one database: none is lost, none is mixed with another session's, and none comes twice."""
    clients = [
        serve(repeater(), runs_database=database, conversations=True)
        for _ in range(2)
    ]
    sessions = ("s", "t", "u")
    jobs = [
        (clients[number % 2], f"{session}{number}", session)
        for number in range(8)
        for session in sessions
    ]
    with ThreadPoolExecutor(len(jobs)) as pool:
        answers = list(pool.map(lambda job: send(*job), jobs))
    for session in sessions:
        mine = [job[1] for job in jobs if job[2] == session]
        check_order(
            [
                answer
                for job, answer in zip(jobs, answers, strict=True)
                if job[2] == session
            ],
            mine,
        )


def test_turns_of_requests_and_background_runs_wait_for_each_other(
    serve: Serve, database: str
) -> None:
    """In the order in which they were asked for."""
    gate = Gate()

    async def answer(request: ModelRequest) -> str:
        await gate(request)
        return said(request)

    component = Agent("helper", "Help.", FunctionModel(answer))
    client = serve(component, runs_database=database, conversations=True)
    url = begin_turn(client, "one")
    assert gate.called.wait(30)
    later = begin_turn(client, "two")
    with ThreadPoolExecutor(1) as pool:
        response = pool.submit(post, client, "three")
        last = begin_turn(client, "other", session="t")
        until(lambda: len(gate.inputs) == 2)
        assert gate.inputs == ["one", "other"]
        assert client.get(later).json()["status"] == "queued"
        gate.opened.set()
        assert response.result().json()["output"] == "one two three"
    for each, output in ((url, "one"), (later, "one two"), (last, "other")):
        assert wait(client, each)["result"]["output"] == output


def test_a_turn_that_waits_too_long(serve: Serve, database: str) -> None:
    """It is refused within the time of its run, and the conversation goes on without it."""
    gate = Gate()
    client = serve(gate.agent(), runs_database=database, conversations=True)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(post, client, "one")
        assert gate.called.wait(30)
        budget = {"podwright-budget": "wall_time=0.2"}
        late = post(client, "two", headers=budget)
        check_problem(late, 503, "conversation_busy")
        assert int(late.headers["retry-after"]) > 0
        gate.opened.set()
        assert first.result().status_code == 200
    send(client, "three")
    assert gate.inputs == ["one", "three"]


# --- Persons ----------------------------------------------------------------------------------------------------------


def clerk() -> Agent:
    return Agent("clerk", "Work.", FunctionModel(paying), tools=[pay])


def asking_flow() -> Workflow:
    return Workflow(
        "asking",
        [ApprovalStep("Repeat {input}?", "ask"), step()],
    )


def going_on(problem: dict[str, Any], **more: Any) -> dict[str, Any]:
    body = {"inputs": problem["context"], **more}
    if "resume_path" in problem:
        body["resume_path"] = problem["resume_path"]
    return body


def test_a_turn_waits_for_a_person(serve: Serve, database: str) -> None:
    """It holds its place: other turns are refused until its run has gone on, whose messages it adds."""
    client = serve(clerk(), runs_database=database, conversations=True)
    send(client, "one")
    problem = check_problem(post(client, "pay"), 409, "approval_required")
    for route in ("/run", "/runs"):
        body = {"input": "two", "session": "s"}
        refused = client.post(route, json=body)
        check_problem(refused, 409, "conversation_waiting")
    assert problem["run_id"] in refused.json()["detail"]
    send(client, "other", session="t")
    response = client.post("/run", json=going_on(problem))
    assert response.json()["output"] == "one pay paid 5"
    assert send(client, "two") == "one pay paid 5 two"
    again = client.post("/run", json=going_on(problem))
    check_problem(again, 409, "state_used")
    assert send(client, "three") == "one pay paid 5 two three"


def test_a_turn_that_a_person_rejects(serve: Serve, database: str) -> None:
    """A workflow ends with it, and leaves the conversation; a chat goes on."""
    client = serve(asking_flow(), runs_database=database, conversations=True)
    problem = check_problem(post(client, "one"), 409, "approval_required")
    rejected = client.post(
        "/run", json=going_on(problem, decision={"decision": "reject"})
    )
    check_problem(rejected, 403, "approval_rejected")
    problem = check_problem(post(client, "two"), 409, "approval_required")
    response = client.post("/run", json=going_on(problem))
    assert response.json()["repeater_output"] == "two"
    problem = check_problem(post(client, "three"), 409, "approval_required")
    response = client.post("/run", json=going_on(problem))
    assert response.json()["repeater_output"] == "two three"


def test_a_background_turn_waits_for_a_person(
    serve: Serve, database: str
) -> None:
    """As that of a request; a rejected one leaves the conversation."""
    client = serve(asking_flow(), runs_database=database, conversations=True)
    url = begin_turn(client, "one")
    wait(client, url, "waiting_for_approval")
    check_problem(post(client, "two"), 409, "conversation_waiting")
    assert client.post(f"{url}/reject", json={}).status_code == 202
    url = begin_turn(client, "two")
    wait(client, url, "waiting_for_approval")
    client.post(f"{url}/approve", json={})
    result = wait(client, url)["result"]
    assert result["repeater_output"] == "two"
    url = begin_turn(client, "three")
    wait(client, url, "waiting_for_approval")
    client.post(f"{url}/approve", json={})
    assert wait(client, url)["result"]["repeater_output"] == "two three"


def test_a_stopped_request_goes_on_as_a_background_run(
    serve: Serve, database: str
) -> None:
    """It takes the turn's place with it."""
    client = serve(asking_flow(), runs_database=database, conversations=True)
    problem = check_problem(post(client, "one"), 409, "approval_required")
    response = client.post("/runs", json=going_on(problem))
    assert response.status_code == 202, response.text
    url = response.headers["location"]
    assert wait(client, url)["result"]["repeater_output"] == "one"
    problem = check_problem(post(client, "two"), 409, "approval_required")
    response = client.post("/run", json=going_on(problem))
    assert response.json()["repeater_output"] == "one two"


class Breaking:
    """A model that fails until it is mended, and then repeats what it was told."""

    def __init__(self) -> None:
        self.mended = threading.Event()

    def __call__(self, request: ModelRequest) -> str:
        if request.messages[-1].text != "one" and not self.mended.is_set():
            raise RuntimeError("broken")
        return said(request)


def test_a_failed_turn_goes_on(serve: Serve, database: str) -> None:
    """A stopped workflow may go on while no other turn has come after it; then it cannot."""
    model = Breaking()
    agent = Agent("repeater", "Repeat.", FunctionModel(model))
    component = Workflow("flow", [AgentStep(agent, conversation=True)])
    client = serve(component, runs_database=database, conversations=True)
    post(client, "one")
    first = post(client, "two").json()
    second = post(client, "three").json()
    failed = begin_turn(client, "four")
    assert wait(client, failed)["status"] == "failed"
    model.mended.set()
    response = client.post("/run", json=going_on(first))
    assert response.json()["repeater_output"] == "one two"
    late = client.post("/run", json=going_on(second))
    check_problem(late, 409, "conversation_changed")
    client.post(f"{failed}/resume")
    run = wait(client, failed)
    assert run["problem"]["code"] == "conversation_changed"
    response = post(client, "five")
    assert response.json()["repeater_output"] == "one two five"


def test_a_failed_background_turn_goes_on(serve: Serve, database: str) -> None:
    """While no other turn has come after it."""
    model = Breaking()
    component = Agent("repeater", "Repeat.", FunctionModel(model))
    client = serve(component, runs_database=database, conversations=True)
    send(client, "one")
    url = begin_turn(client, "two")
    assert wait(client, url)["status"] == "failed"
    model.mended.set()
    client.post(f"{url}/resume")
    assert wait(client, url)["result"]["output"] == "one two"
    assert send(client, "three") == "one two three"


# --- Repeated requests ------------------------------------------------------------------------------------------------


def test_a_repeated_request_is_no_second_turn(
    serve: Serve, database: str
) -> None:
    """Another process, which has not stored the response, answers as the first one did."""
    clients = [
        serve(repeater(), runs_database=database, conversations=True)
        for _ in range(2)
    ]
    key = {"idempotency-key": "k"}
    first, second = (post(client, "one", headers=key) for client in clients)
    assert second.json() == first.json() == {"output": "one"}
    assert second.headers[RUN_ID] == first.headers[RUN_ID]
    assert second.headers[REPLAYED] == "true"
    body = {"input": "one", "session": "s"}
    other = clients[1].post("/run", json={**body, "input": "x"}, headers=key)
    check_problem(other, 422, "idempotency_key_reused")
    assert send(clients[1], "two") == "one two"
    started = [
        client.post("/runs", json=body, headers={"idempotency-key": "b"})
        for client in clients
    ]
    assert len({response.json()["id"] for response in started}) == 1
    wait(clients[0], started[0].headers["location"])
    assert send(clients[0], "four") == "one two one four"


def test_a_repeated_request_during_the_first(
    serve: Serve, database: str
) -> None:
    """It is told to come again, also by another process."""
    gate = Gate()
    clients = [
        serve(gate.agent(), runs_database=database, conversations=True)
        for _ in range(2)
    ]
    key = {"idempotency-key": "k"}
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(post, clients[0], "one", headers=key)
        assert gate.called.wait(30)
        again = post(clients[1], "one", headers=key)
        check_problem(again, 409, "idempotency_in_progress")
        gate.opened.set()
        assert first.result().status_code == 200
    assert post(clients[1], "one", headers=key).json() == {"output": "done"}
    assert gate.inputs == ["one"]
