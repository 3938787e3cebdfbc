"""What templates and functions of a service know of their run: in each request, after a wait, in another process."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from tests.service.background_support import wait
from tests.service.support import Serve, check_problem, pointers

from podwright import (
    Agent,
    ApprovalRequired,
    ApprovalStep,
    FunctionModel,
    FunctionStep,
    RunContext,
    Workflow,
    run_attributes,
    tool,
)
from podwright.functions import run_start
from podwright.journal.kept import KEPT
from podwright.journal.saved_run import SAVED_RUN
from podwright.testing import ModelRequest, ToolCall
from podwright_service.saved_states import STATE

FIRST = 1_790_000_000.5
"""2026-09-21, 14:13:20 in UTC, and a half."""
LATER = FIRST + 86_400
ALL = "{run.date} {run.time} {run.user}/{run.session}/{run.metadata.tenant}"
FILLED = "2026-09-21 14:13:20Z ann/s1/acme"
SAID: dict[str, Any] = {
    "user": "ann",
    "session": "s1",
    "metadata": {"tenant": "acme"},
}
KEY = "k" * 32


async def repeat(request: ModelRequest) -> str:
    """Answer with the instructions."""
    return request.messages[0].text


ECHO = Agent("echo", ALL, FunctionModel(repeat))


def count(context: RunContext) -> int:
    """Count in the state of the run."""
    context.report(f"counted to {len(context.state)}")
    context.state["count"] = context.state.get("count", 0) + 1
    return context.state["count"]


@tool(approval=True)
def pay(context: RunContext) -> str:
    """Pay, once a person has approved."""
    return f"{context.user} paid {count(context)}"


async def clerk_model(request: ModelRequest) -> Any:
    done = [message for message in request.messages if message.role == "tool"]
    if len(done) == 2:
        return f"{request.messages[0].text} {done[-1].text}"
    return [ToolCall.of(("count", "pay")[len(done)])]


CLERK = Agent("clerk", ALL, FunctionModel(clerk_model), tools=[count, pay])
GATE = Workflow(
    "gate",
    [
        FunctionStep(count, name="before"),
        ApprovalStep("Go on at {run.time}?", "ask"),
        FunctionStep(count, output="after"),
        ECHO,
    ],
)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets the time at which runs begin."""

    def set_time(now: float) -> None:
        monkeypatch.setattr(run_start, "time", lambda: now)

    set_time(FIRST)
    return set_time


@pytest.fixture(params=["sealed", "kept"])
def database(request: pytest.FixtureRequest) -> str | None:
    """The database that keeps states; None if they are sealed."""
    if request.param == "sealed":
        return None
    return request.getfixturevalue("sqlite_database")


@pytest.mark.usefixtures("clock")
def test_each_route_fills_them_in(serve: Serve) -> None:
    """From what its body says."""
    client = serve(ECHO)
    assert client.post("/run", json={"input": "x", **SAID}).json()[
        "output"
    ] == (FILLED)
    body = {
        "model": "echo",
        "messages": [{"role": "user", "content": "x"}],
        "user": "ann",
        "metadata": {"session_id": "s1", "tenant": "acme"},
    }
    answer = client.post("/v1/chat/completions", json=body).json()
    assert answer["choices"][0]["message"]["content"] == FILLED


def test_missing_metadata_is_refused(serve: Serve) -> None:
    """The caller is told which entry, and nothing is asked of the model."""
    response = serve(ECHO).post("/run", json={"input": "x", "user": "ann"})
    problem = check_problem(response, 422, "context_invalid")
    assert "'run.metadata' has no field 'tenant'" in problem["detail"]


def test_an_example_has_no_input_of_that_name(serve: Serve) -> None:
    """OpenAPI's examples have the inputs of a caller, and the run is none."""
    document = serve(ECHO).get("/openapi.json").json()
    assert '"run":' not in json.dumps(document["paths"]["/run"])


def stopped(response: httpx.Response) -> dict[str, Any]:
    return check_problem(response, 409, "approval_required")


@pytest.mark.parametrize("approver", [{}, {"user": "bob", "session": "s2"}])
def test_a_run_that_waited_knows_its_start(
    serve: Serve, clock: Any, database: str | None, approver: Any
) -> None:
    """Another service lets it go on a day later, for another user: templates and functions know the first one."""
    settings = {"runs_database": database, "state_keys": KEY}
    for component, expected in (
        (CLERK, {"output": f"{FILLED} ann paid 2"}),
        (GATE, {"after": "2", "echo_output": FILLED}),
    ):
        clock(FIRST)
        first = serve(component, **settings)
        problem = stopped(first.post("/run", json={"input": "x", **SAID}))
        assert not [
            name
            for name in problem["context"]
            if name.startswith("_") and name != STATE
        ]
        clock(LATER)
        body = {
            "inputs": problem["context"],
            "resume_path": problem.get("resume_path"),
            **approver,
        }
        done = serve(component, **settings).post("/run", json=body)
        assert done.status_code == 200, done.text
        assert expected.items() <= done.json().items()


@pytest.mark.parametrize("keeps_content", [False, True])
def test_a_background_run_goes_on_in_another_process(
    serve: Serve, clock: Any, sqlite_database: str, keeps_content: bool
) -> None:
    """After a failure: what has ended stays done, its state and its reports stay, and the start is the first one."""
    failures: list[str] = []

    def fail_once(context: RunContext) -> str:
        count(context)
        if not failures:
            failures.append(context.user)
            raise RuntimeError
        return f"{context.user} {count(context)}"

    flow = Workflow(
        "flow",
        [
            FunctionStep(count, output="one"),
            FunctionStep(fail_once, output="two"),
            ECHO,
        ],
    )
    settings = {
        "runs_database": sqlite_database,
        "log_content": keeps_content,
    }
    client = serve(flow, **settings)
    begun = client.post("/runs", json={"input": "x", **SAID})
    url = begun.headers["location"]
    assert wait(client, url)["status"] == "failed"
    clock(LATER)
    other = serve(flow, **settings)
    assert other.post(f"{url}/resume").status_code == 202
    run = wait(other, url)
    result = run["result"]
    assert result["one"] == "1"
    # the failed call has counted too
    assert result["two"] == "ann 4"
    assert result["echo_output"] == FILLED
    text = other.get(f"{url}/events").text
    assert text.count('"text":"counted to 0"') == 1
    assert text.count('"type":"progress"') == 4
    assert ('"tenant":"acme"' in text) is keeps_content


def test_a_background_run_that_waits_in_a_chat(
    serve: Serve, clock: Any, sqlite_database: str
) -> None:
    """Another process performs it once a person has approved."""
    client = serve(CLERK, runs_database=sqlite_database)
    begun = client.post("/runs", json={"input": "x", **SAID})
    url = begun.headers["location"]
    wait(client, url, "waiting_for_approval")
    clock(LATER)
    other = serve(CLERK, runs_database=sqlite_database)
    assert other.post(f"{url}/approve", json={}).status_code == 202
    run = wait(other, url, "succeeded")
    assert run["result"]["output"] == f"{FILLED} ann paid 2"


def test_a_stream_has_reports(serve: Serve) -> None:
    """As events of their own; their data is JSON."""
    flow = Workflow("flow", [FunctionStep(count)])
    text = serve(flow).post("/run/stream", json={"input": "x"}).text
    assert "event: progress\n" in text
    assert '"text":"counted to 0"' in text
    assert text.index("event: progress") < text.index("tool_call_finished")


def test_no_caller_chooses_what_is_kept(serve: Serve) -> None:
    """It is a name of the service's own, as all others with an underscore."""
    body = {"inputs": {"input": "x", "_kept": {"start": {"began": 0}}}}
    problem = check_problem(
        serve(GATE).post("/run", json=body), 422, "inputs_invalid"
    )
    assert pointers(problem) == ["/inputs/_kept"]


@pytest.mark.parametrize(
    "forged",
    [{"began": 1e300}, {"began": "nan"}, {"user": "x" * 500}],
    ids=["no date", "no number", "a long user"],
)
def test_a_forged_start_is_an_error_of_its_caller(
    serve: Serve, forged: dict[str, Any]
) -> None:
    """Where the operator trusts the contexts of callers."""
    for component in (CLERK, GATE):
        context, resume_path = paused(component)
        if KEPT in context:
            context[KEPT]["start"] |= forged
        else:
            context[SAVED_RUN]["events"][0] |= forged
        body = {"inputs": context, "resume_path": resume_path}
        response = serve(component, trust_contexts=True).post("/run", json=body)
        check_problem(response, 422, "input_invalid")


def test_a_forged_state_is_an_error_of_its_caller(serve: Serve) -> None:
    """Where the operator trusts the contexts of callers."""
    context, resume_path = paused(GATE)
    context[KEPT]["state"] = [[1, 2]]
    body = {"inputs": context, "resume_path": resume_path}
    response = serve(GATE, trust_contexts=True).post("/run", json=body)
    check_problem(response, 422, "input_invalid")


def paused(component: Agent | Workflow) -> tuple[dict[str, Any], Any]:
    """The context and the path of a run in this process that waits for a person."""
    with run_attributes(**SAID), pytest.raises(ApprovalRequired) as pause:
        component.run("x")
    assert pause.value.context is not None
    return dict(pause.value.context), pause.value.resume_path
