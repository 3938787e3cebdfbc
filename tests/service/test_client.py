"""The client of our own API, against real services and against servers that fail."""

import asyncio
import json
import pickle
import subprocess
import sys
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.helpers import environment
from tests.library.upstream import (
    STREAM,
    Script,
    Upstream,
    chunk,
    pass_time,
    reply,
    streamed,
    upstream,
)
from tests.service.support import Gate, Serve

import podwright.client
from podwright import (
    Agent,
    AgentStep,
    ApprovalStep,
    RunLimits,
    Workflow,
    errors,
)
from podwright.client import (
    AsyncClient,
    Client,
    ProblemError,
    asynchronous,
)
from podwright.errors import ConfigurationError
from podwright.events import RunFinished, Token
from podwright.models.retries import Retries
from podwright_service import client as former

ECHO = Agent("echo", "Repeat.", "offline/echo")
FLOW = Workflow("flow", [ApprovalStep("Go on?", name="ask"), AgentStep(ECHO)])


def url_of(served: Any) -> str:
    return str(served.base_url)


def connected(served: Any, **options: Any) -> Client:
    return Client(url_of(served), **options)


# --- runs


def test_a_run(serve: Serve) -> None:
    """A run has its value and usage; with a trace also its events, its usage by model and the conversation."""
    client = connected(serve(ECHO))
    result = client.run("hello")
    assert result.value == "Echo: hello"
    assert (result.events, result.messages) == ([], [])
    traced = client.run("hello", trace=True)
    assert traced.value == "Echo: hello"
    assert traced.usage.model_calls == 1
    assert traced.usage.total_tokens == result.usage.total_tokens > 0
    assert [event.type for event in traced.events][-1] == "run_finished"
    assert [message["role"] for message in traced.messages] == [
        "user",
        "assistant",
    ]


def test_named_inputs_and_options(serve: Serve) -> None:
    """A mapping is sent as named inputs, a list as content; limits, user and session are those of the run."""
    flow = connected(
        serve(Workflow("flow", [AgentStep(ECHO, input="{topic}!")]))
    )
    assert flow.run({"topic": "tides"}).value["echo_output"] == "Echo: tides!"
    client = connected(serve(ECHO))
    assert (
        client.run([{"type": "text", "text": "hello"}]).value == "Echo: hello"
    )
    with pytest.raises(ProblemError) as refused:
        client.run(
            "hello", limits=RunLimits(tokens=1), user="ada", session="s1"
        )
    assert (refused.value.code, refused.value.limit) == (
        "limit_exceeded",
        "tokens",
    )


def test_a_workflow_that_stopped_goes_on(serve: Serve) -> None:
    """The error has the context and where to resume; both are sent back."""
    client = connected(serve(FLOW))
    with pytest.raises(ProblemError) as stopped:
        client.run("the moon")
    error = stopped.value
    assert (error.status, error.code) == (409, "approval_required")
    assert error.context is not None
    assert error.resume_path is not None
    resumed = client.run(error.context, resume_path=error.resume_path)
    assert resumed.value["echo_output"].startswith("Echo: ")


def test_what_is_wrong_with_a_request(serve: Serve) -> None:
    """A refusal has the status, the code, the suggestion and each place of the problem document."""
    client = connected(serve(ECHO))
    with pytest.raises(ProblemError) as refused:
        client.request("POST", "/run", {"input": "x", "inptu": "y"})
    error = refused.value
    assert (error.status, error.code) == (422, "request_invalid")
    assert error.details() == [
        f"/inptu: {error.problem['errors'][0]['detail']}"
    ]
    assert "Did you mean 'input'?" in str(error)
    assert error.to_dict()["status"] == 422


def test_keys(serve: Serve) -> None:
    """A key that is missing or has too little scope is a problem; a valid one is sent with every request."""
    served = serve(ECHO, api_keys="run@shop:secret-of-the-shop-000000000000")
    with pytest.raises(ProblemError) as refused:
        connected(served).run("hello")
    assert refused.value.status == 401
    client = connected(served, api_key="secret-of-the-shop-000000000000")
    assert client.run("hello").value == "Echo: hello"
    with pytest.raises(ProblemError) as forbidden:
        client.info()
    assert forbidden.value.status == 403


def test_the_service_describes_itself(serve: Serve) -> None:
    """`info` is typed."""
    info = connected(serve(ECHO)).info()
    assert (info.name, info.kind) == ("echo", "agent")
    assert info.models["effective"] == ["offline/echo"]


def test_the_former_name_of_the_module() -> None:
    """Programs that import the client from the service's package have the same classes."""
    for name in podwright.client.__all__:
        assert getattr(former, name) is getattr(podwright.client, name)


def test_it_works_where_a_loop_runs_and_from_several_threads(
    serve: Serve,
) -> None:
    """The synchronous client blocks no loop of its own thread, as in a notebook, and threads share it."""
    client = connected(serve(ECHO))

    async def in_a_notebook() -> Any:
        return client.run("hello").value

    assert asyncio.run(in_a_notebook()) == "Echo: hello"
    with ThreadPoolExecutor(4) as threads:
        values = list(threads.map(lambda n: client.run(f"{n}").value, range(8)))
    assert values == [f"Echo: {n}" for n in range(8)]


EXITS = {
    "an open stream": "events = client.stream('x'); next(events)",
    "an open stream of background runs": "events = client.runs.events(client.runs.start('x').id); next(events)",
    "a run in a destructor": """
class Last:
    def __del__(self):
        try:
            client.run('x')
        except Exception as error:
            print(type(error).__name__)
last = Last(); last.itself = last
client.run('x')
""",
    "a child": """
client.run('x')
child = os.fork()
if child == 0:
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
client.run('x')
""",
    "a child that calls": """
client.run('x')
child = os.fork()
if child == 0:
    client.run('x')
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
client.run('x')
""",
}


@pytest.mark.parametrize("code", EXITS.values(), ids=EXITS)
def test_a_program_ends(serve: Serve, sqlite_database: str, code: str) -> None:
    """Neither what is open at its end nor a child of it keeps a program from ending, or from going on."""
    url = url_of(serve(ECHO, runs_database=sqlite_database))
    program = f"""
import os, sys
from podwright.client import Client
client = Client({url!r})
{code}
"""
    done = subprocess.run(
        # Python warns of forks beside threads
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment(),
    )
    assert (done.returncode, done.stderr) == (0, "")


# --- streams


def test_a_stream(serve: Serve) -> None:
    """The events come as they happen, tokens included; the last one has the value."""
    events = list(connected(serve(ECHO)).stream("hello there"))
    tokens = "".join(event.text for event in events if isinstance(event, Token))
    assert tokens == "Echo: hello there"
    assert isinstance(events[-1], RunFinished)
    assert events[-1].value == "Echo: hello there"


async def test_a_stream_leaves_its_connection_to_the_next_one(
    server: Upstream, client: AsyncClient
) -> None:
    """The response is read to its end, so that no connection is made for each run."""
    server.answers(WHOLE)
    for _ in range(2):
        assert [event.type async for event in client.stream("x")]
    assert len(server.requests) == 2
    assert server.connections == 1


def test_leaving_a_stream_cancels_the_run(serve: Serve) -> None:
    """A reader that closes the iterator ends the model call."""
    gate = Gate()
    events = connected(serve(gate.agent())).stream("hello")
    assert next(events).type == "run_started"
    gate.called.wait(60)
    events.close()  # pyright: ignore[reportAttributeAccessIssue] - it is a generator
    assert gate.cancelled.wait(60)


async def test_the_asynchronous_client(serve: Serve) -> None:
    """It has the same methods as coroutines and asynchronous iterators."""
    client = AsyncClient(url_of(serve(ECHO)))
    assert (await client.run("hello")).value == "Echo: hello"
    events = [event async for event in client.stream("hello")]
    assert events[-1].type == "run_finished"
    conversation = client.conversation()
    await conversation.send("one")
    turn = [event async for event in conversation.stream("two")]
    assert turn[-1].type == "run_finished"
    assert [message["content"] for message in conversation.messages] == [
        "one",
        "Echo: one",
        "two",
        "Echo: two",
    ]
    assert (await client.info()).name == "echo"


def test_a_run_that_fails_within_a_stream(serve: Serve) -> None:
    """Its events come first, then the problem."""
    events = connected(serve(FLOW)).stream("the moon")
    assert next(events).type == "run_started"
    with pytest.raises(ProblemError) as stopped:
        list(events)
    assert stopped.value.code == "approval_required"


# --- conversations


def test_a_conversation(serve: Serve) -> None:
    """Each turn has those before it; a turn that fails leaves them; they can be stored and taken up again."""
    client = connected(serve(ECHO))
    conversation = client.conversation()
    conversation.send("one")
    with pytest.raises(ProblemError):
        conversation.send("two", limits=RunLimits(tokens=1))
    list(conversation.stream("three"))
    assert conversation.last is not None
    assert conversation.last.value == "Echo: three"
    stored = json.loads(json.dumps(conversation.messages))
    again = client.conversation(stored)
    again.send("four")
    users = [m["content"] for m in again.messages if m["role"] == "user"]
    assert users == ["one", "three", "four"]


# --- background runs


def test_background_runs(serve: Serve, sqlite_database: str) -> None:
    """A run is started, listed, approved, waited for and followed."""
    key = "k" * 32
    served = serve(FLOW, runs_database=sqlite_database, api_keys=f"@bo:{key}")
    runs = connected(served, api_key=key).runs
    run = runs.start("the moon", user="ada")
    waiting = runs.wait(run.id, within=60)
    assert waiting.status == "waiting_for_approval"
    assert waiting.approval is not None
    assert waiting.approval.message == "Go on?"
    assert (waiting.caller, waiting.user) == ("bo", "ada")
    assert [each.id for each in runs.list("waiting_for_approval")] == [run.id]
    assert runs.list("failed") == []
    assert [each.id for each in runs.list(caller="bo")] == [run.id]
    assert runs.list(caller="cy") == []
    runs.approve(run.id, "Good.", waiting.attempt)
    done = runs.wait(run.id, within=60)
    assert done.status == "succeeded"
    (decision,) = done.decisions
    assert (decision.comment, decision.caller) == ("Good.", "bo")
    events = list(runs.events(run.id))
    assert events[-1].type == "run_finished"
    known = events[1].seq
    assert [e.seq for e in runs.events(run.id, known)] == [
        e.seq for e in events[2:]
    ]
    with pytest.raises(ProblemError) as late:
        runs.cancel(run.id)
    assert late.value.code == "run_state_conflict"


def test_a_list_of_runs_has_as_many_as_are_asked_for(
    serve: Serve, sqlite_database: str
) -> None:
    """Pages are read until there are enough runs, or no more."""
    runs = connected(serve(FLOW, runs_database=sqlite_database)).runs
    ids = [runs.start(f"{n}").id for n in range(3)]
    assert {run.id for run in runs.list(limit=500)} == set(ids)
    assert len(runs.list(limit=2)) == 2


def test_runs_that_end_otherwise(serve: Serve, sqlite_database: str) -> None:
    """A rejected and a cancelled run are waited for too; a run with another status is waited for in vain."""
    runs = connected(serve(FLOW, runs_database=sqlite_database)).runs
    first = runs.start("one")
    second = runs.start("two")
    for run in (first, second):
        runs.wait(run.id, "waiting_for_approval", within=60)
    with pytest.raises(TimeoutError, match="waiting_for_approval"):
        runs.wait(first.id, "succeeded", within=3)
    runs.reject(first.id, "No.")
    runs.cancel(second.id)
    for run in (first, second):
        assert runs.wait(run.id, "cancelled", within=60).problem is not None
    actions = [runs.get(run.id).actions for run in (first, second)]
    assert [[each.action for each in of_run] for of_run in actions] == [
        [],
        ["cancel"],
    ]
    with pytest.raises(ProblemError) as ended:
        runs.wait(first.id, "succeeded")
    assert ended.value.code == "approval_rejected"
    with pytest.raises(errors.InputError, match="Did you mean 'succeeded'"):
        runs.wait(first.id, "succeded")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ProblemError) as unknown:
        list(runs.events("0" * 32))
    assert unknown.value.code == "run_not_found"


def test_a_key_that_may_only_approve(
    serve: Serve, sqlite_database: str
) -> None:
    """It reads the runs that wait, without their usage."""
    keys = "run:" + "r" * 32, "approve:" + "a" * 32
    served = serve(FLOW, runs_database=sqlite_database, api_keys=",".join(keys))
    run = connected(served, api_key="r" * 32).runs.start("the moon")
    approver = connected(served, api_key="a" * 32).runs
    connected(served, api_key="r" * 32).runs.wait(run.id, within=60)
    (waiting,) = approver.list()
    assert (waiting.id, waiting.usage, waiting.approval) == (run.id, {}, None)
    (asked,) = approver.list(fields=("approval",))
    assert asked.approval == approver.get(run.id).approval
    assert approver.reject(run.id).id == run.id


# --- servers that fail


def sse(name: str, data: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


EVENTS = ECHO.run("x", trace=True).events
STARTED = EVENTS[0].to_dict()
FINISHED = EVENTS[-1].to_dict()
BEGUN = sse("run_started", STARTED)
WHOLE = streamed(
    BEGUN,
    sse("of_a_newer_service", {"type": "of_a_newer_service", "seq": 1}),
    sse("run_finished", FINISHED),
    sse("result", {"output": "Done."}),
)
PROBLEM = {
    "status": 503,
    "code": "at_capacity",
    "detail": "The service is full.",
}
BUSY = reply(PROBLEM, 503, "application/problem+json", Retry_After="0")
IN_PROGRESS = reply(
    PROBLEM | {"status": 409, "code": "idempotency_in_progress"},
    409,
    "application/problem+json",
    Retry_After="0",
)
RUN = {
    "id": "r",
    "component": "far",
    "status": "running",
    "attempt": 1,
    "created_at": "2026-01-01T00:00:00Z",
    "usage": {},
    "decisions": [],
}


@pytest.fixture
async def server() -> AsyncGenerator[Upstream]:
    async with upstream() as serving:
        yield serving


@pytest.fixture
def client(server: Upstream) -> AsyncClient:
    retries = Retries(first_wait=0.001)
    return AsyncClient(f"http://127.0.0.1:{server.port}", retries=retries)


@pytest.mark.parametrize(
    ("script", "error", "text"),
    [
        pytest.param(
            streamed(BEGUN),
            errors.RemoteConnectionError,
            "before the end",
            id="clean end",
        ),
        pytest.param(
            [STREAM, chunk(BEGUN), "close"],
            errors.RemoteConnectionError,
            "truncated",
            id="cut off",
        ),
        pytest.param(
            streamed(BEGUN, sse("problem", PROBLEM)),
            ProblemError,
            "full",
            id="problem",
        ),
        pytest.param(
            [reply(b"<h1>Bad Gateway</h1>", 502, "text/html")],
            ProblemError,
            "answered 502",
            id="gateway",
        ),
        pytest.param(
            [reply(b"", 302, Location="http://127.0.0.1:1/")],
            ProblemError,
            "answered 302",
            id="redirect",
        ),
        pytest.param(
            [reply({"hello": "world"})],
            errors.RemoteResponseError,
            "not a Podwright service",
            id="another service",
        ),
        pytest.param(
            streamed(b"event: run_started\ndata: {\n\n"),
            errors.RemoteResponseError,
            "invalid event",
            id="invalid event",
        ),
        pytest.param(
            ["reset"], errors.RemoteConnectionError, "not answer", id="reset"
        ),
    ],
)
async def test_a_stream_that_is_not_whole_is_an_error(
    server: Upstream,
    client: AsyncClient,
    script: Script,
    error: type[errors.RemoteError],
    text: str,
) -> None:
    """A stream counts as ended only with its last event: a proxy may end one without an error."""
    server.answers(script)
    with pytest.raises(error, match=text):
        async for _ in client.stream("x"):
            pass


@pytest.mark.parametrize("first", [["reset"], [BUSY], [IN_PROGRESS]])
async def test_a_run_is_asked_for_again_with_the_same_key(
    server: Upstream, client: AsyncClient, first: Script
) -> None:
    """The service runs it once: the key of the first request is sent again."""
    server.answers(first, WHOLE)
    events = [event.type async for event in client.stream("x")]
    assert events == ["run_started", "run_finished"]
    keys = [headers["idempotency-key"] for headers in server.headers]
    assert len(keys) == 2
    assert len(set(keys)) == 1


async def test_a_key_of_the_callers_own(
    server: Upstream, client: AsyncClient
) -> None:
    """It is sent as it is, so that the caller may repeat the run later."""
    server.answers([reply({"output": "Done."})])
    assert (await client.run("x", idempotency_key="order-7")).value == "Done."
    assert server.headers[0]["idempotency-key"] == "order-7"


async def test_what_changes_something_is_not_repeated(
    server: Upstream, client: AsyncClient
) -> None:
    """A decision whose answer was lost may have been taken: the caller looks at the run."""
    server.answers(["reset"])
    with pytest.raises(errors.RemoteConnectionError):
        await client.runs.cancel("r")
    assert len(server.requests) == 1


async def test_a_lost_stream_of_a_background_run_is_opened_again(
    server: Upstream, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on after the last event that was read, also if the connection ended without an error."""
    monkeypatch.setattr(asynchronous, "_RECONNECT", 0.0)
    server.answers(
        [reply(RUN)],
        streamed(BEGUN),
        [STREAM, chunk(b": ping\n\n"), "close"],
        [BUSY],
        streamed(
            sse("run_finished", FINISHED), sse("result", {"output": "Done."})
        ),
    )
    events = [event.type async for event in client.runs.events("r")]
    assert events == ["run_started", "run_finished"]
    asked = [headers.get("last-event-id") for headers in server.headers]
    assert asked == [None, "-1", "0", "0", "0"]


async def test_a_wait_outlives_a_restart(
    server: Upstream, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service that cannot answer for a moment does not end a wait, nor keep it from beginning; a lasting one does."""
    server.answers(
        [BUSY],
        [reply(RUN)],
        *[[BUSY]] * 4,
        ["reset"],
        [reply(RUN | {"status": "succeeded"})],
    )
    assert (await client.runs.wait("r")).status == "succeeded"
    monkeypatch.setattr(asynchronous, "_FIRST_CONTACT", 0.0)
    server.answers([BUSY])
    with pytest.raises(ProblemError, match="full"):
        await client.runs.wait("r")


async def test_a_wait_ends_in_time(
    server: Upstream, client: AsyncClient
) -> None:
    """Also if the service does not answer, or asks for patience."""
    server.answers([reply(RUN)], ["hang"])
    with pytest.raises(TimeoutError, match=r"'running' after 2 s"):
        await client.runs.wait("r", within=2)
    server.answers([reply(PROBLEM, 503, Retry_After="20")])
    with pytest.raises(TimeoutError):
        await client.runs.wait("r", within=2)


@pytest.mark.parametrize("wait", ["61", "Fri, 01 Jan 2100 00:00:00 GMT"])
async def test_a_service_that_asks_for_too_much_patience(
    server: Upstream, client: AsyncClient, wait: str
) -> None:
    """It is not waited for."""
    server.answers([reply(PROBLEM, 503, Retry_After=wait)])
    with pytest.raises(ProblemError, match="full"):
        await client.info()


async def test_known_events_are_not_yielded_again(
    server: Upstream, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service that ignores where the stream was does not begin it anew, and is given up."""
    monkeypatch.setattr(asynchronous, "_RECONNECT", 0.0)
    monkeypatch.setattr(asynchronous, "_LONGEST_OUTAGE", 0.0)
    server.answers([reply(RUN)], streamed(BEGUN))
    seen: list[str] = []
    with pytest.raises(errors.RemoteConnectionError):  # noqa: PT012 - what was seen before counts
        async for event in client.runs.events("r"):
            seen.append(event.type)  # noqa: PERF401
    assert seen == ["run_started"]


@pytest.mark.parametrize(
    "body",
    [None, [], 5, "x", {}, {"runs": 5}, {"runs": [5]}, {"runs": [{"id": 1}]}],
)
async def test_a_response_of_another_shape(
    server: Upstream, client: AsyncClient, body: Any
) -> None:
    """It is an error that names the address, whatever was asked."""
    server.answers([reply(body)])
    calls = [client.runs.list(), client.runs.get("r"), client.info()]
    if not body or not isinstance(body, dict):
        calls.append(client.run("x"))
    calls.append(client.run("x", trace=True))
    calls.append(client.conversation().send("x"))
    for call in calls:
        with pytest.raises(errors.RemoteResponseError, match=str(server.port)):
            await call


@pytest.mark.parametrize("data", ["null", "[1]", "{", "5", ""])
@pytest.mark.parametrize("name", ["result", "problem", "run_started"])
async def test_an_event_of_another_shape(
    server: Upstream, client: AsyncClient, name: str, data: str
) -> None:
    """A stream with it is not a success."""
    server.answers(streamed(BEGUN, f"event: {name}\ndata: {data}\n\n".encode()))
    with pytest.raises(errors.RemoteError):
        async for _ in client.stream("x"):
            pass


async def test_the_key_goes_to_the_service_only(
    server: Upstream, client: AsyncClient
) -> None:
    """A path cannot name another host, and a refusal does not repeat the key."""
    with pytest.raises(errors.InputError):
        await client.request("GET", f":{server.port}/x")
    assert server.requests == []
    key = "key-of-a-caller-0000"
    server.answers([reply(PROBLEM | {"detail": f"Unknown key {key}."}, 401)])
    with pytest.raises(ProblemError, match=r"Unknown key \*\*\*") as refused:
        await AsyncClient(f"http://127.0.0.1:{server.port}", api_key=key).run(
            "x"
        )
    assert key not in json.dumps(refused.value.problem)


@pytest.mark.parametrize(
    "given",
    [
        {"input_data": {"x": {1}}},
        {"input_data": {"x": object()}},
        {"input_data": "x", "idempotency_key": "line\nbreak"},
        {"input_data": "x", "headers": {"x-name": "ö"}},
    ],
)
async def test_what_cannot_be_sent(client: AsyncClient, given: Any) -> None:
    """It is refused before a request, and never sent as something else."""
    with pytest.raises(errors.InputError):
        await client.run(**given)


def test_an_error_passes_between_processes() -> None:
    """It is pickled with all that it says."""
    problem = PROBLEM | {
        "run_id": "r",
        "limit": "tokens",
        "context": {"a": "b"},
    }
    error = pickle.loads(pickle.dumps(ProblemError(problem)))  # noqa: S301 - our own
    assert (error.status, error.run_id, error.limit) == (503, "r", "tokens")
    assert (error.context, error.problem) == ({"a": "b"}, problem)


async def test_a_response_that_is_late(server: Upstream) -> None:
    """The time-out is that of the response; without one a run may take as long as it takes."""
    server.answers([pass_time, "hang"])
    client = AsyncClient(f"http://127.0.0.1:{server.port}", timeout=60)
    with pytest.raises(errors.RemoteTimeoutError):
        await client.run("x")


async def test_a_service_that_is_not_there() -> None:
    """The error says what did not answer."""
    client = AsyncClient("http://127.0.0.1:1", retries=Retries(tries=1))
    with pytest.raises(errors.RemoteConnectionError, match=r"127\.0\.0\.1:1"):
        await client.run("x")


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("localhost:8000", None),
        ("ftp://localhost", None),
        ("http://user:secret@localhost", None),
        ("http://localhost?x=1", None),
        ("http://localhost", "secret\nsecret"),
    ],
)
def test_a_wrong_address_or_key(url: str, key: str | None) -> None:
    """It is refused at once, and not repeated in the message."""
    with pytest.raises(ConfigurationError) as refused:
        Client(url, api_key=key)
    with pytest.raises(ConfigurationError):
        Client(timeout=0)
    assert "secret" not in str(refused.value)
