"""How background runs are performed: attempts, approvals, cancelling, capacity, and the end of processes."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.helpers import until
from tests.service.background_support import (
    ECHO,
    ENDED,
    FLOW,
    LEASE_SECONDS,
    MAX_TAKEOVERS,
    POLL_INTERVAL,
    RENEWAL_INTERVAL,
    begin,
    change_run,
    wait,
)
from tests.service.support import Gate, Serve, Served, check_problem

from podwright import (
    Agent,
    AgentStep,
    ApprovalStep,
    FunctionModel,
    ParallelStep,
    Pipeline,
    Workflow,
)
from podwright.components import Component
from podwright.errors import ModelError
from podwright.messages.usage import Usage
from podwright.testing import ModelRequest, ToolCall
from podwright_service.background.attempt import Attempt
from podwright_service.background.gate import Gate as CallGate
from podwright_service.background.store import RunStore
from podwright_service.background.worker import BackgroundWorker
from podwright_service.testing import ComponentProcess, SpanCollector


def hold_end(
    monkeypatch: pytest.MonkeyPatch, released: threading.Event
) -> threading.Event:
    """Keep the success of a run from being stored until the event; returns one that tells that it is to be."""
    write = RunStore.write
    ending = threading.Event()

    async def write_end_later(store: RunStore, updates: Any) -> Any:
        written = list(updates)
        if any(
            update.values.get("status") == "succeeded" for update in written
        ):
            ending.set()
            await asyncio.to_thread(until, released.is_set)
        return await write(store, written)

    monkeypatch.setattr(RunStore, "write", write_end_later)
    return ending


# --- Attempts -----------------------------------------------------------------------------------------------------


def test_a_failed_run_is_resumed(serve: Serve, sqlite_database: str) -> None:
    """It has the problem of `/run`; resumed, it goes on after what had finished."""
    calls: list[str] = []

    def fail_once(request: ModelRequest) -> str:
        calls.append(request.component)
        if calls == ["first", "second"]:
            raise ModelError("The provider is down.")
        return "fine"

    model = FunctionModel(fail_once)
    flow = Workflow(
        "flow",
        steps=[Agent("first", "Do.", model), Agent("second", "Do.", model)],
    )
    client = serve(flow, runs_database=sqlite_database)
    url = begin(client)
    run = wait(client, url)
    assert (
        run["status"],
        run["problem"]["code"],
        run["problem"]["component"],
    ) == (
        "failed",
        "model_failed",
        "second",
    )
    assert run["problem"]["instance"] == url
    assert "context" not in run["problem"]
    resumed = client.post(f"{url}/resume")
    assert (resumed.status_code, resumed.json()["problem"]) == (202, None)
    run = wait(client, url)
    assert (run["status"], run["attempt"]) == ("succeeded", 2)
    assert run["result"]["second_output"] == "fine"
    assert run["usage"]["model_calls"] == 2
    assert calls == ["first", "second", "second"]
    check_problem(client.post(f"{url}/resume"), 409, "run_state_conflict")


def test_a_tool_that_went_on_after_a_failure(
    serve: Serve, sqlite_database: str
) -> None:
    """A failed branch cancels the other, whose tool goes on in its thread: resuming asks a person first."""
    calls: list[str] = []
    called = threading.Event()
    done = threading.Event()
    works = threading.Event()

    def charge(amount: str) -> str:
        """Charge."""
        calls.append(amount)
        called.set()
        until(done.is_set)
        return "charged"

    def pay(request: ModelRequest) -> Any:
        return (
            "paid"
            if request.messages[-1].role == "tool"
            else ToolCall.of("charge", "c1", amount="5")
        )

    async def fail(request: ModelRequest) -> str:
        if not works.is_set():
            await asyncio.to_thread(until, called.is_set)
            raise ModelError("The provider is down.")
        return "fine"

    branches = [
        [Agent("payer", "Pay.", FunctionModel(pay), tools=[charge])],
        [Agent("failing", "Fail.", FunctionModel(fail))],
    ]
    client = serve(
        Workflow("flow", steps=[ParallelStep(branches)]),
        runs_database=sqlite_database,
    )
    url = begin(client)
    assert wait(client, url)["status"] == "failed"
    done.set()
    works.set()
    client.post(f"{url}/resume")
    run = wait(client, url)
    assert (run["status"], run["problem"]["code"]) == (
        "interrupted",
        "run_interrupted",
    )
    assert "'charge' of 'payer'" in run["problem"]["detail"]
    assert calls == ["5"]
    client.post(f"{url}/resume")
    assert wait(client, url)["status"] == "succeeded"
    assert calls == ["5", "5"]


def test_a_model_that_cancels_itself(
    serve: Serve, sqlite_database: str
) -> None:
    """The run fails, as with any unexpected error: it would end each attempt in this way."""

    async def cancel(request: ModelRequest) -> str:
        raise asyncio.CancelledError

    client = serve(
        Agent("helper", "Help.", FunctionModel(cancel)),
        runs_database=sqlite_database,
    )
    run = wait(client, begin(client))
    assert (run["status"], run["attempt"], run["problem"]["code"]) == (
        "failed",
        1,
        "internal_error",
    )


def test_a_run_whose_events_cannot_be_stored_is_taken_again(
    serve: Serve, sqlite_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that nobody expected ends the attempt, not the run, and the process goes on."""
    write = RunStore.write
    errors = [RuntimeError("unexpected")]

    async def fail_once(store: RunStore, updates: Any) -> set[str]:
        if errors:
            raise errors.pop()
        return await write(store, updates)

    monkeypatch.setattr(RunStore, "write", fail_once)
    monkeypatch.setattr(RENEWAL_INTERVAL, 0.2)
    client = serve(ECHO, runs_database=sqlite_database)
    run = wait(client, begin(client))
    assert (run["status"], run["attempt"]) == ("succeeded", 2)


APPROVED_COMPONENT = """
from podwright import Agent, ApprovalStep, Workflow

first, last = (Agent(name, "Do.", "offline/echo") for name in ("first", "last"))
flow = Workflow("flow", steps=[first, ApprovalStep("Sure?"), last])
"""


@pytest.mark.servers
def test_the_spans_of_attempts(tmp_path: Path, sqlite_database: str) -> None:
    """All attempts are in the trace of the request; each links to the one before, and has only its own calls."""
    (tmp_path / "component.py").write_text(APPROVED_COMPONENT)
    env = {
        "PODWRIGHT_RUNS_DATABASE": sqlite_database,
        "PYTHONPATH": str(tmp_path),
    }
    with (
        SpanCollector() as spans,
        ComponentProcess("component:flow", env=env, spans=spans) as component,
    ):
        run = component.runs.start("x")
        component.runs.wait(run.id, "waiting_for_approval")
        component.runs.approve(run.id)
        component.runs.wait(run.id, "succeeded")
        component.stop()
        attempts = [
            span for span in spans.spans if span.name == "invoke_workflow flow"
        ]
        request = next(
            span for span in spans.spans if span.name == "POST /runs"
        )
        assert [span.parent for span in attempts] == [request.id, request.id]
        assert [[link for _, link in span.links] for span in attempts] == [
            [],
            [attempts[0].id],
        ]
        assert {span.attributes["podwright.run.id"] for span in attempts} == {
            run.id
        }
        assert sum(span.name.startswith("chat") for span in spans.spans) == 2
        assert (
            sum(span.name.startswith("step first") for span in spans.spans) == 1
        )


# --- Approvals ----------------------------------------------------------------------------------------------------

INSIDE = Workflow(
    "inside", steps=[ECHO, ApprovalStep("Sure?"), AgentStep(ECHO, "last")]
)


async def run_inside(text: str) -> str:
    """Run the workflow."""
    return str(await INSIDE.arun({"input": text}))


def ask_inside(request: ModelRequest) -> Any:
    """Call the tool once."""
    return (
        "done"
        if request.messages[-1].role == "tool"
        else ToolCall.of("run_inside", "c1", text="x")
    )


@pytest.mark.parametrize(
    "component",
    [
        pytest.param(Pipeline("line", steps=[ECHO, INSIDE]), id="pipeline"),
        pytest.param(
            Workflow(
                "outer",
                steps=[
                    AgentStep(Pipeline("line", steps=[ECHO, INSIDE]), "line")
                ],
            ),
            id="pipeline in a workflow",
        ),
        pytest.param(
            Agent(
                "caller", "Call.", FunctionModel(ask_inside), tools=[run_inside]
            ),
            id="tool",
        ),
    ],
)
def test_an_approval_inside_other_components(
    serve: Serve, sqlite_database: str, component: Component
) -> None:
    """It is asked for once, wherever the workflow with the step is; a run that waits is cancelled at once."""
    client = serve(
        component, runs_database=sqlite_database, unfinished_tool_calls="repeat"
    )
    url = begin(client)
    other = begin(client)
    for each in (url, other):
        wait(client, each, "waiting_for_approval")
    assert client.post(f"{url}/approve", json={}).status_code == 202
    assert (
        wait(client, url, *ENDED, "waiting_for_approval")["status"]
        == "succeeded"
    )
    assert client.post(f"{other}/cancel").json()["status"] == "cancelled"


# --- Cancelling ---------------------------------------------------------------------------------------------------


def test_cancelling(
    serve: Serve, sqlite_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run is cancelled wherever it is performed, its model call included."""
    monkeypatch.setattr(RENEWAL_INTERVAL, 0.2)
    gate = Gate()
    performer = serve(gate.agent(), runs_database=sqlite_database)
    other = serve(gate.agent(), runs_database=sqlite_database)
    url = begin(performer)
    until(gate.called.is_set)
    other.post(f"{url}/cancel")
    until(gate.cancelled.is_set)
    run = wait(other, url)
    assert (run["status"], run["problem"]["code"]) == (
        "cancelled",
        "run_cancelled",
    )
    check_problem(other.post(f"{url}/cancel"), 409, "run_state_conflict")


def test_a_cancel_that_came_too_late(
    serve: Serve, sqlite_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that had ended when it was cancelled, but for its end being stored, succeeds and says so."""
    cancelled = threading.Event()
    ending = hold_end(monkeypatch, cancelled)
    client = serve(ECHO, runs_database=sqlite_database)
    url = begin(client)
    until(ending.is_set)
    assert client.post(f"{url}/cancel").status_code == 202
    cancelled.set()
    run = wait(client, url)
    assert (run["status"], run["result"]) == (
        "succeeded",
        {"output": "Echo: x"},
    )
    assert "too late" in run["notice"]


def test_a_cancelled_run_keeps_the_usage_of_the_attempts_before(
    serve: Serve, sqlite_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt that is cancelled before it has read what was used does not say that nothing was."""
    reading = threading.Event()

    async def never(store: RunStore, *arguments: Any) -> Any:
        reading.set()
        await asyncio.Event().wait()

    gate = Gate()
    client = serve(
        gate.agent(), runs_database=sqlite_database, background_runs=1
    )
    begin(client)
    until(gate.called.is_set)
    url = begin(client)
    monkeypatch.setattr(RunStore, "events", never)
    change_run(
        sqlite_database,
        url,
        attempt=1,
        usage=Usage(7, 1).to_dict() | {"model_calls": 3},
    )
    gate.opened.set()
    until(reading.is_set)
    assert client.post(f"{url}/cancel").status_code == 202
    assert wait(client, url, "cancelled")["usage"]["model_calls"] == 3


# --- Which process performs a run ---------------------------------------------------------------------------------


def test_no_more_runs_than_allowed(
    serve: Serve, sqlite_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even if one is added while the process looks for others; that one begins at once, and each is performed once.

    The process ends its look for others once a caller adds a run.
    """
    add = BackgroundWorker.add_or_find
    claim = RunStore.claim
    looking = threading.Event()
    adding = threading.Event()

    async def note_add(worker: BackgroundWorker, *arguments: Any) -> Any:
        adding.set()
        return await add(worker, *arguments)

    async def claim_slowly(store: RunStore, *arguments: Any) -> Any:
        looking.set()
        await asyncio.to_thread(until, adding.is_set)
        return await claim(store, *arguments)

    monkeypatch.setattr(BackgroundWorker, "add_or_find", note_add)
    monkeypatch.setattr(RunStore, "claim", claim_slowly)
    gate = Gate()
    client = serve(
        gate.agent(), runs_database=sqlite_database, background_runs=1
    )
    until(looking.is_set)
    urls = [begin(client, str(number)) for number in range(3)]
    assert [client.get(url).json()["status"] for url in urls] == [
        "running",
        "queued",
        "queued",
    ]
    gate.opened.set()
    for url in urls:
        run = wait(client, url)
        assert (run["status"], run["attempt"]) == ("succeeded", 1)
    assert gate.inputs == ["0", "1", "2"]


def test_a_run_waits_for_its_blueprint(
    serve: Serve, sqlite_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service with another blueprint does not perform it, and says what it waits for."""
    gate = Gate()
    old = serve(gate.agent(), runs_database=sqlite_database, background_runs=1)
    blocking = begin(old)
    url = begin(old)
    until(gate.called.is_set)
    claim = RunStore.claim
    claims: list[str] = []

    async def count(
        store: RunStore, worker: str, component: str, digest: str, most: int
    ) -> Any:
        claims.append(digest)
        return await claim(store, worker, component, digest, most)

    monkeypatch.setattr(RunStore, "claim", count)
    other = serve(ECHO, runs_database=sqlite_database)
    digest = other.get("/info").json()["digest"]
    until(lambda: claims.count(digest) >= 2)
    run = other.get(url).json()
    assert run["status"] == "queued"
    assert (
        f"a service with the blueprint {old.get('/info').json()['digest']}"
        in run["notice"]
    )
    gate.opened.set()
    assert (
        wait(other, url)["status"]
        == wait(other, blocking)["status"]
        == "succeeded"
    )


def test_a_process_does_not_take_its_own_runs_over(
    serve: Serve, sqlite_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although it could not renew its lease for a while, for example because its machine slept."""
    monkeypatch.setattr(LEASE_SECONDS, -1.0)
    monkeypatch.setattr(POLL_INTERVAL, 0.05)
    monkeypatch.setattr(RENEWAL_INTERVAL, 0.2)
    claim_orphans = RunStore.claim_orphans
    renew = RunStore.renew
    work: list[str] = []

    async def note_claim(store: RunStore, *arguments: Any) -> Any:
        orphans = await claim_orphans(store, *arguments)
        work.append("claim")
        return orphans

    async def note_renewal(store: RunStore, *arguments: Any) -> Any:
        held = await renew(store, *arguments)
        work.append("renewal")
        return held

    monkeypatch.setattr(RunStore, "claim_orphans", note_claim)
    monkeypatch.setattr(RunStore, "renew", note_renewal)
    gate = Gate()
    client = serve(gate.agent(), runs_database=sqlite_database)
    url = begin(client)
    until(gate.called.is_set)
    work.clear()
    until(lambda: work.count("claim") > 2 and work.count("renewal") > 2)
    gate.opened.set()
    run = wait(client, url)
    assert (run["status"], run["attempt"]) == ("succeeded", 1)


def test_runs_of_dead_processes_come_before_those_that_wait(
    serve: Serve, sqlite_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While more runs wait than a process can perform, those of a dead process are taken over all the same."""
    monkeypatch.setattr(LEASE_SECONDS, -1.0)
    monkeypatch.setattr(POLL_INTERVAL, 0.01)
    gate = Gate()
    client = serve(
        gate.agent(), runs_database=sqlite_database, background_runs=1
    )
    urls = [begin(client, str(number)) for number in range(4)]
    change_run(
        sqlite_database, urls[3], status="running", attempt=1, worker="dead"
    )
    gate.opened.set()
    for url in urls:
        assert wait(client, url)["status"] == "succeeded"
    assert gate.inputs == ["0", "3", "1", "2"]


def test_a_run_that_ends_its_processes_waits_for_a_person(
    serve: Serve, sqlite_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After so many processes that ended during a run, it is interrupted; resumed, it has as many again.

    A person who does not want it to go on cancels it.
    """
    gate = Gate()
    client = serve(gate.agent(), runs_database=sqlite_database)
    url = begin(client)
    other = begin(client)
    until(lambda: len(gate.inputs) == 2)
    monkeypatch.setattr(LEASE_SECONDS, -1.0)
    monkeypatch.setattr(MAX_TAKEOVERS, 2)
    others = [
        serve(gate.agent(), runs_database=sqlite_database) for _ in range(2)
    ]
    for each in (url, other):
        run = wait(client, each, "interrupted")
        assert run["problem"]["code"] == "run_interrupted"
        assert "2 processes ended" in run["problem"]["detail"]
    assert client.post(f"{other}/cancel").json()["status"] == "cancelled"
    check_problem(client.post(f"{other}/cancel"), 409, "run_state_conflict")
    monkeypatch.undo()
    gate.opened.set()
    others[0].post(f"{url}/resume")
    assert wait(client, url)["status"] == "succeeded"


# --- Shutdown -----------------------------------------------------------------------------------------------------


@pytest.fixture
def draining(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Is set when a process begins to drain."""
    begun = threading.Event()
    drain = BackgroundWorker.drain

    def note(worker: BackgroundWorker) -> None:
        begun.set()
        drain(worker)

    monkeypatch.setattr(BackgroundWorker, "drain", note)
    return begun


def test_a_shutdown_while_the_end_is_stored(
    served: Served,
    sqlite_database: str,
    monkeypatch: pytest.MonkeyPatch,
    draining: threading.Event,
) -> None:
    """A run that is at its end ends, instead of moving to a process that makes its calls again."""
    ending = hold_end(monkeypatch, draining)
    with served(ECHO, runs_database=sqlite_database) as client:
        url = begin(client)
        until(ending.is_set)
    with served(ECHO, runs_database=sqlite_database) as client:
        run = client.get(url).json()
        assert (run["status"], run["attempt"]) == ("succeeded", 1)


def test_a_shutdown_while_a_run_is_taken_up(
    served: Served,
    sqlite_database: str,
    monkeypatch: pytest.MonkeyPatch,
    draining: threading.Event,
) -> None:
    """A process that has not begun a run yet gives it back, and does not wait for the shutdown time-out."""
    read = RunStore.events
    cut_off = Attempt.cut_off
    reading = threading.Event()
    cuts: list[Attempt] = []

    async def read_while_draining(
        store: RunStore, run_id: str, *arguments: Any
    ) -> Any:
        reading.set()
        await asyncio.to_thread(until, draining.is_set)
        return await read(store, run_id, *arguments)

    def note_cut(attempt: Attempt) -> None:
        cuts.append(attempt)
        cut_off(attempt)

    monkeypatch.setattr(Attempt, "cut_off", note_cut)
    with served(FLOW, runs_database=sqlite_database) as client:
        url = begin(client)
        wait(client, url, "waiting_for_approval")
        monkeypatch.setattr(RunStore, "events", read_while_draining)
        client.post(f"{url}/approve", json={})
        until(reading.is_set)
    assert cuts == []
    with served(FLOW, runs_database=sqlite_database) as client:
        run = wait(client, url)
        assert (run["status"], run["attempt"]) == ("succeeded", 3)


@pytest.mark.parametrize(
    ("is_caught", "error"),
    [(False, ValueError), (True, asyncio.CancelledError)],
    ids=["raised", "caught"],
)
@pytest.mark.parametrize(
    "is_at_once", [False, True], ids=["later", "in the same turn"]
)
async def test_a_failure_ends_the_run_although_another_call_waits(
    is_caught: bool, error: type[BaseException], is_at_once: bool
) -> None:
    """While a process drains, a call that fails is not taken for one that was stopped, unless the run goes on."""
    gate = CallGate()
    begun = asyncio.Event()
    drained = asyncio.Event()
    waiting = asyncio.Event()
    failing = asyncio.Event()

    async def fail() -> None:
        async with gate.call(in_tool=False):
            begun.set()
            await failing.wait()
            raise ValueError("failed")

    async def fail_in_a_group() -> None:
        await asyncio.gather(fail(), return_exceptions=is_caught)

    async def wait_for_the_gate() -> None:
        await drained.wait()
        if is_at_once:
            failing.set()
        waiting.set()
        async with gate.call(in_tool=False):
            pytest.fail("it began")

    async def both() -> None:
        await asyncio.gather(fail_in_a_group(), wait_for_the_gate())

    task = asyncio.create_task(both())
    gate.guard(task)
    await begun.wait()
    gate.drain()
    drained.set()
    await waiting.wait()
    failing.set()
    with pytest.raises(error):
        await asyncio.wait_for(task, 60)
