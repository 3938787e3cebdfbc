"""A component in another container: its events, usage and errors are those of a run here."""

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import BaseModel
from tests.library.upstream import (
    STREAM,
    Part,
    Script,
    Upstream,
    chunk,
    pass_time,
    reply,
    streamed,
    upstream,
)

from podwright import (
    Agent,
    AgentStep,
    Conductor,
    Event,
    LimitExceededError,
    Pipeline,
    Remote,
    RunLimits,
    ScriptedModel,
    Usage,
    Workflow,
    errors,
    load,
)
from podwright.connection import service_connection
from podwright.errors import ConfigurationError, PodwrightError
from podwright.events import (
    ModelCallFailed,
    ModelCallFinished,
    ModelCallStarted,
    RunStarted,
)
from podwright.messages.messages import Message, ModelRequest
from podwright.models.retries import Retries
from podwright.remote import remote as remote_module
from podwright.remote.connection import RemoteConnection
from podwright.testing import ModelResponse, ToolCall

USED = Usage(input_tokens=60, output_tokens=40, cost=0.001)
"""What each model call of the remote agent uses; its run makes two."""


def look(word: str) -> str:
    """Look a word up."""
    return f"{word}: found"


def remote_events() -> list[Event]:
    """The events of a run of an agent that calls a model twice and a tool once."""
    model = ScriptedModel(
        ModelResponse(
            tool_calls=(ToolCall.of("look", word="moon"),),
            usage=USED,
            finish_reason="tool_calls",
        ),
        ModelResponse("It shines.", usage=USED),
    )
    return (
        Agent("far", "Help.", model, tools=[look])
        .run("the moon", trace=True)
        .events
    )


EVENTS = remote_events()
STARTED = EVENTS[0].to_dict()


def sse(name: str, data: Any) -> bytes:
    text = data if isinstance(data, str) else json.dumps(data)
    return f"event: {name}\ndata: {text}\n\n".encode()


def as_sse(events: list[Event]) -> bytes:
    return b": ping\n\n" + b"".join(
        sse(event.type, event.to_dict()) for event in events
    )


def answered(events: list[Event], result: object) -> list[Part]:
    return streamed(as_sse(events), sse("result", result))


def problem(status: int, code: str, detail: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "x",
        "status": status,
        "code": code,
        "detail": detail,
        "suggestion": "Do it otherwise.",
        **more,
    }


def refused(status: int, code: str, detail: str, **headers: str) -> Script:
    return [
        reply(
            problem(status, code, detail),
            status,
            "application/problem+json",
            zipped=False,
            **headers,
        )
    ]


WHOLE = answered(EVENTS, {"output": "It shines."})


@pytest.fixture
async def server() -> AsyncGenerator[Upstream]:
    async with upstream() as serving:
        serving.answers(WHOLE)
        yield serving


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Remote, "retries", Retries(first_wait=0.001))


def writer(server: Upstream, **options: Any) -> Remote:
    return Remote("writer", f"http://127.0.0.1:{server.port}", **options)


# --- runs


async def test_its_events_are_in_the_callers_trace(
    server: Upstream, assert_sound: Any
) -> None:
    """The remote's events are numbered on, nested here, and marked with its name; its usage is added once."""
    flow = Workflow(
        "flow", [Agent("first", "Begin.", "offline/echo"), writer(server)]
    )
    result = await flow.arun("hello", trace=True)
    assert_sound(result.events)
    assert result.value["writer_output"] == "It shines."
    relayed = [event for event in result.events if event.remote]
    assert {event.remote for event in relayed} == {"writer"}
    assert {event.path for event in relayed} == {(1,)}
    own = next(event for event in result.events if event.component == "writer")
    assert relayed[0].parent_id == own.run_id
    assert [event.type for event in relayed] == [event.type for event in EVENTS]
    assert result.usage.tool_calls == 1
    assert result.usage.by_model["offline/scripted"].total_tokens == 200
    assert server.requests[0] == {
        "inputs": {"input": "hello", "first_output": "Echo: hello"}
    }


async def test_the_request(
    server: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the input, the key, what is left of the limits, the hops, and the headers of telemetry."""
    propagators = [
        lambda run: {"traceparent": f"00-{run.id}-1-01"},
        lambda run: 1 / 0,
    ]
    monkeypatch.setattr(remote_module, "PROPAGATORS", propagators)
    limits = RunLimits(wall_time=10_000, model_calls=7, tokens=900, cost=0.5)
    assert (
        await writer(server, api_key="k-1", limits=limits).arun("the moon")
        == "It shines."
    )
    headers = server.headers[0]
    assert headers[":line"] == "POST /run/stream HTTP/1.1"
    assert headers["authorization"] == "Bearer k-1"
    assert headers["podwright-hops"] == "2"
    assert headers["traceparent"].startswith("00-")
    wall_time, *rest = headers["podwright-budget"].split(", ")
    assert 9_000 < float(wall_time.removeprefix("wall_time=")) <= 10_000
    assert rest == ["model_calls=7", "tokens=900", 'cost="0.5"']
    assert server.requests == [{"input": "the moon"}]


async def test_tokens_are_relayed_to_streamed_runs(server: Upstream) -> None:
    """A streamed run has the remote's tokens; another one does not."""
    events = [
        event
        async for event in Agent("far", "Help.", "offline/echo").astream(
            "the full moon"
        )
    ]
    server.answers(answered(events, {"output": "x"}))
    tokens: list[str] = []
    remote = writer(server, on_token=tokens.append)
    assert await remote.arun("x", stream=True) == "x"
    assert "".join(tokens) == "Echo: the full moon"
    await remote.arun("x")
    assert "".join(tokens) == "Echo: the full moon"


async def test_a_remote_workflow_in_every_kind(server: Upstream) -> None:
    """A remote workflow returns its context, and its last output as text to steps, skills and pipelines."""
    inner = Workflow(
        "far",
        [Agent("one", "Do.", ScriptedModel(ModelResponse("done", usage=USED)))],
    )
    result = await inner.arun("go", trace=True)
    server.answers(answered(result.events, result.value))
    remote = writer(server, kind="workflow", description="Writes.")
    assert await remote.arun("go") == {"input": "go", "one_output": "done"}
    assert (await Workflow("flow", [remote]).arun("go"))[
        "writer_output"
    ] == "done"
    assert (
        await Pipeline(
            "line", [remote, Agent("end", "End.", "offline/echo")]
        ).arun("go")
        == "Echo: done"
    )
    lead = Conductor(
        "lead",
        "Lead.",
        ScriptedModel(ToolCall.of("writer", task="go"), "Well."),
        [remote],
    )
    traced = await lead.arun("go", trace=True)
    assert traced.value == "Well."
    assert (
        next(
            cast("Any", event).output
            for event in traced.events
            if event.type == "tool_call_finished"
        )
        == "done"
    )
    assert server.requests[-1] == {"input": "go"}


async def test_the_key_in_a_file_is_replaced(
    server: Upstream, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each run sends the key that the file has then; without a valid one, the key before, which is logged once."""
    file = tmp_path / "key"
    file.write_text("k-1\n")
    remote = writer(server, api_key_file=file)
    await remote.arun("x")
    file.write_text("k-2\n")
    await remote.arun("x")
    assert caplog.records == []
    for damage in (b"", b"\xff", b"k-3\r\nx: y", None):
        if damage is None:
            file.unlink()
        else:
            file.write_bytes(damage)
        for _ in range(2):
            await remote.arun("x")
    messages = [record.getMessage() for record in caplog.records]
    # one for each reason: none, invalid, gone
    assert len(set(messages)) == len(messages) == 3
    for message in messages:
        assert str(file) in message
        assert "k-" not in message
    file.write_text("k-4")
    await remote.arun("x")
    sent = [headers["authorization"] for headers in server.headers]
    assert sent == [f"Bearer k-{key}" for key in (1, *[2] * 9, 4)]
    file.unlink()
    caplog.clear()
    await remote.arun("x")
    assert len(caplog.records) == 1


async def test_blueprints_have_its_name_only(server: Upstream) -> None:
    """A blueprint has the remote's name, never its URL or key, and is loaded again with the remote."""
    remote = writer(server, api_key="k-secret")
    for component in (
        Workflow("flow", [remote]),
        Pipeline("line", [remote]),
        Conductor("lead", "Lead.", "offline/echo", [remote]),
    ):
        blueprint = component.to_blueprint()
        text = json.dumps([blueprint, remote.to_blueprint(), repr(remote)])
        assert "127.0.0.1" not in text
        assert "k-secret" not in text
        again = load(blueprint, agents={"writer": remote})
        assert again.to_blueprint() == blueprint
        assert again.members() == {"writer": remote}


async def test_a_response_model_is_refused(server: Upstream) -> None:
    """The type of an answer cannot be sent to a remote, so there is no request."""

    class Answer(BaseModel):
        text: str

    with pytest.raises(errors.InputError):
        await writer(server).arun("x", response_model=Answer)
    assert server.requests == []


@pytest.mark.parametrize("release", ["this", "older"])
async def test_a_structured_answer(server: Upstream, release: str) -> None:
    """The answer is data, as of a component here; a service of an older release has it as the output."""
    answer = {"category": "refund", "urgency": 2}
    schema = {"type": "object", "properties": {"category": {}, "urgency": {}}}
    model = ScriptedModel(json.dumps(answer))
    far = Agent("far", "Classify.", model, response_model=schema)
    events = far.run("x", trace=True).events
    result = {"output": json.dumps(answer), "data": answer}
    if release == "older":
        last = events.pop()
        result = {"output": answer}
        finished = {**last.to_dict(), "data": None}
        server.answers(
            streamed(
                as_sse(events),
                sse("run_finished", finished),
                sse("result", result),
            )
        )
    else:
        server.answers(answered(events, result))
    remote = writer(server)
    traced = await remote.arun("x", trace=True)
    assert (traced.value, traced.data) == (answer, answer)
    assert json.loads(traced.messages[-1]["content"]) == answer
    echo = Agent("echo", "Repeat.", "offline/echo")
    flow = Workflow(
        "flow",
        [
            AgentStep(remote),
            AgentStep(echo, input="{writer_output.category}"),
        ],
    )
    context = await flow.arun("x")
    assert context["echo_output"] == "Echo: refund"


async def test_events_of_a_newer_release_are_skipped(server: Upstream) -> None:
    """An event of an unknown type is not an error."""
    newer = sse("new_thing", {**STARTED, "type": "new_thing"})
    server.answers(
        streamed(newer, as_sse(EVENTS), sse("result", {"output": "ok"}))
    )
    result = await writer(server).arun("x", trace=True)
    assert result.value == "ok"
    assert len(result.events) == len(EVENTS) + 2


# --- limits and usage


async def test_limits_are_lent_and_come_back(server: Upstream) -> None:
    """What is left is lent to the remote run; what it did not use is there for the next one."""
    remote = writer(server)
    limits = RunLimits(model_calls=18, tokens=4000)
    flow = Workflow(
        "flow",
        [AgentStep(remote), AgentStep(remote, output="last")],
        limits=limits,
    )
    result = await flow.arun("x", trace=True)
    budgets = [headers["podwright-budget"] for headers in server.headers]
    assert budgets == [
        "model_calls=18, tokens=4000",
        "model_calls=16, tokens=3800",
    ]
    assert result.usage.total_tokens == 400


async def test_a_failed_run_is_settled_too(server: Upstream) -> None:
    """What a failed remote run used is charged, and the rest can be used by the next component."""
    broken: list[Part] = [STREAM, chunk(as_sse(EVENTS[:3])), "close"]
    server.answers(broken, WHOLE)
    remote = writer(server)

    async def careful(word: str) -> str:
        """Try the remote twice."""
        try:
            return await remote.arun(word)
        except errors.RemoteConnectionError:
            return await remote.arun(word)

    model = ScriptedModel(ToolCall.of("careful", word="x"), "done")
    lead = Agent(
        "lead", "Lead.", model, tools=[careful], limits=RunLimits(model_calls=9)
    )
    result = await lead.arun("x", trace=True)
    assert [headers["podwright-budget"] for headers in server.headers] == [
        "model_calls=8",
        "model_calls=7",
    ]
    assert result.usage.by_model["offline/scripted"].model_calls == 2 + 1 + 2


async def test_the_usage_is_the_remotes_own_report(server: Upstream) -> None:
    """Usage is what the outermost remote run reports at its end, counted once."""
    reported = {
        **EVENTS[-1].to_dict(),
        "usage": {"input_tokens": 7, "output_tokens": 3, "cost": 0.5},
    }
    server.answers(
        streamed(
            as_sse(EVENTS[:-1]),
            sse("run_finished", reported),
            sse("result", {"output": "x"}),
        )
    )
    result = await writer(server).arun("x", trace=True)
    assert (result.usage.total_tokens, result.usage.cost) == (10, 0.5)


async def test_the_usage_of_a_lost_run_is_that_of_its_events(
    server: Upstream, recorder: Any
) -> None:
    """If the stream breaks off, the model calls so far count."""
    server.answers([STREAM, chunk(as_sse(EVENTS[:-1])), "close"])
    with pytest.raises(errors.RemoteConnectionError) as caught:
        await writer(server, event_manager=recorder.manager).arun("x")
    assert caught.value.usage
    assert caught.value.usage.total_tokens == 200
    assert caught.value.usage == recorder.events[-1].usage


# --- retries


BUSY = refused(503, "overloaded", "Full.", Retry_After="0")
IN_PROGRESS = refused(
    409, "idempotency_in_progress", "Running.", Retry_After="0"
)


async def test_a_busy_remote_is_asked_again(server: Upstream) -> None:
    """A 503 with Retry-After is repeated, three attempts in all, unless the wait does not fit the run."""
    server.answers(BUSY, BUSY, WHOLE)
    assert await writer(server).arun("x") == "It shines."
    assert len(server.requests) == 3
    server.answers(BUSY)
    with pytest.raises(errors.RemoteUnavailableError, match="Full") as caught:
        await writer(server).arun("x")
    assert (
        caught.value.status,
        caught.value.remote_code,
        len(server.requests),
    ) == (
        503,
        "overloaded",
        3,
    )
    server.answers([reply(b"", 503, Retry_After="60")])
    with pytest.raises(errors.RemoteUnavailableError):
        await writer(server, limits=RunLimits(wall_time=30)).arun("x")
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "lost",
    [["reset"], ["close"], [STREAM[:40], "close"]],
    ids=["reset", "closed", "half a head"],
)
async def test_a_request_without_any_response_is_sent_again(
    server: Upstream, assert_sound: Any, recorder: Any, lost: Script
) -> None:
    """It is sent with the same key, so it runs once; the end of the lost attempt's run is waited for."""
    remote = writer(
        server,
        limits=RunLimits(model_calls=5, tokens=500),
        event_manager=recorder.manager,
    )
    server.answers(WHOLE, lost, IN_PROGRESS, WHOLE)
    assert [await remote.arun("x") for _ in range(2)] == ["It shines."] * 2
    first, *again = [headers["idempotency-key"] for headers in server.headers]
    assert len(again) == 3
    assert first not in again
    assert len(set(again)) == 1
    assert {headers["podwright-budget"] for headers in server.headers} == {
        "model_calls=5, tokens=500"
    }
    assert_sound(recorder.events[len(recorder.events) // 2 :])
    assert remote.last_usage.total_tokens == 200


async def test_no_connection_is_tried_three_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A closed port is a typed error after three attempts, if these have taken the time to connect."""
    attempts: list[int] = []

    class Counted(Retries):
        def next_wait(
            self, error: Any, tries: int, passed: float
        ) -> float | None:
            attempts.append(tries)
            return super().next_wait(error, tries, passed)

    monkeypatch.setattr(
        Remote, "retries", Counted(first_wait=0.0, connect_time=0.0)
    )
    async with upstream() as closed:
        remote = writer(closed)
    with pytest.raises(errors.RemoteConnectionError):
        await remote.arun("x")
    assert attempts == [1, 2, 3]


# --- errors


BEGUN = as_sse(EVENTS[:3])
HTML = reply(b"<html>sk-canary</html>", 200, "text/html")
FAULTS: dict[str, tuple[Script, type[PodwrightError]]] = {
    "closed after an event": (
        [STREAM, chunk(BEGUN), "close"],
        errors.RemoteConnectionError,
    ),
    "ended early": (streamed(BEGUN), errors.RemoteConnectionError),
    "401": (
        refused(401, "key_missing", "Send a key."),
        errors.RemoteRejectedError,
    ),
    "403": (
        [reply(b"sk-canary", 403, "text/plain")],
        errors.RemoteRejectedError,
    ),
    "404": ([reply({"detail": "sk-canary"}, 404)], errors.RemoteRejectedError),
    "422": (
        refused(422, "request_invalid", "No input."),
        errors.RemoteRejectedError,
    ),
    "500": (
        [reply(b"sk-canary", 500, "text/plain")],
        errors.RemoteUnavailableError,
    ),
    "503 without a time": ([reply(b"", 503)], errors.RemoteUnavailableError),
    "a redirect": (
        [reply(b"", 307, Location="http://127.0.0.1:9/")],
        errors.RemoteResponseError,
    ),
    "html": ([HTML], errors.RemoteResponseError),
    "no HTTP": (
        [b"SSH-2.0-sk-canary\r\n\r\n", "close"],
        errors.RemoteResponseError,
    ),
    "malformed JSON": (
        streamed(sse("run_started", "{sk-canary")),
        errors.RemoteResponseError,
    ),
    "a wrong field": (
        streamed(sse("run_started", {**STARTED, "path": "sk-canary"})),
        errors.RemoteResponseError,
    ),
    "an invalid result": (
        streamed(BEGUN, sse("result", "[]")),
        errors.RemoteResponseError,
    ),
    "a result that is no JSON": (
        streamed(BEGUN, sse("result", "{sk-canary")),
        errors.RemoteResponseError,
    ),
    "silence": (
        [STREAM, chunk(BEGUN), pass_time, "hang"],
        errors.RemoteTimeoutError,
    ),
    "silence from the start": ([pass_time, "hang"], errors.RemoteTimeoutError),
}


@pytest.mark.parametrize(("script", "kind"), FAULTS.values(), ids=FAULTS)
async def test_faults_are_typed_errors(
    server: Upstream, recorder: Any, script: Script, kind: type[PodwrightError]
) -> None:
    """Each fault is a typed error that quotes problem documents only; none is repeated."""
    server.answers(script)
    with pytest.raises(errors.RemoteError) as caught:
        await writer(
            server, api_key="sk-canary", event_manager=recorder.manager
        ).arun("x")
    assert type(caught.value) is kind
    assert caught.value.remote == "writer"
    assert "sk-canary" not in json.dumps(caught.value.to_dict())
    assert len(server.requests) == 1
    assert recorder.events[-1].type == "run_failed"


PROBLEMS: dict[str, tuple[dict[str, Any], type[PodwrightError], str]] = {
    "a failure": (
        problem(502, "model_failed", "The model is down.", component="far"), errors.RemoteError, "model_failed",
    ),
    "a limit": (problem(422, "limit_exceeded", "Used up.", limit="tokens"), LimitExceededError, "limit_exceeded"),
    "hops": (problem(502, "remote_hops_exceeded", "Too far."), errors.RemoteHopsError, "remote_hops_exceeded"),
    "a stop": (problem(503, "run_cancelled", "Stopping."), errors.RemoteUnavailableError, "remote_unavailable"),
    "a pause": (
        problem(409, "approval_required", "Publish?", context={"input": "x"}, resume_path=[1]),
        errors.RemotePausedError,
        "remote_paused",
    ),
    "a strange code": (problem(500, "Sk-Canary!", "Odd."), errors.RemoteError, "remote_failed"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("document", "kind", "code"), PROBLEMS.values(), ids=PROBLEMS
)
async def test_a_failed_remote_run_is_a_typed_error(
    server: Upstream,
    document: dict[str, Any],
    kind: type[PodwrightError],
    code: str,
) -> None:
    """The error has the code, detail and suggestion of the remote's problem document, and is not repeated."""
    server.answers(streamed(as_sse(EVENTS), sse("problem", document)))
    with pytest.raises(kind, match=document["detail"]) as caught:
        await writer(server).arun("x")
    error = caught.value
    assert (type(error), error.code) == (kind, code)
    assert "writer" in error.message
    assert error.usage
    assert error.usage.total_tokens == 200
    assert len(server.requests) == 1
    if isinstance(error, LimitExceededError):
        assert error.limit == "tokens"
    if isinstance(error, errors.RemotePausedError):
        assert (error.paused_context, error.paused_path) == (
            {"input": "x"},
            [1],
        )
    if code == "model_failed":
        assert (error.component, error.suggestion) == (
            "far",
            "Do it otherwise.",
        )


@pytest.mark.parametrize(
    ("code", "detail", "expected"),
    [
        ("off_topic", "Only orders.", "off_topic"),
        ("refused", "Only orders.", "refused"),
        ("off_topic", " ", "off_topic"),
        ("model_failed", "Down.", "model_failed"),
        ("model_odd", "Odd.", "model_odd"),
        ("Sk-Canary!", "Odd.", "remote_failed"),
    ],
)
async def test_a_refusal_of_a_remote(
    server: Upstream, code: str, detail: str, expected: str
) -> None:
    """It is one here too; a problem that no function could have made is a failure of the remote."""
    document = problem(422, code, detail, refusal=detail)
    server.answers(streamed(as_sse(EVENTS), sse("problem", document)))
    with pytest.raises(PodwrightError) as caught:
        await writer(server).arun("x")
    error = caught.value
    assert error.code == expected
    is_refusal = detail == "Only orders."
    assert isinstance(error, errors.Refusal) == is_refusal
    assert isinstance(error, errors.RemoteError) != is_refusal
    assert len(server.requests) == 1
    if is_refusal:
        assert error.message == "Only orders."


async def test_the_size_is_limited(
    server: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event without an end, and a stream without one, are cut off."""
    monkeypatch.setattr(RemoteConnection, "max_event", 10_000)
    server.answers([STREAM, *[chunk(b"data: " + b"x" * 4000)] * 10, "hang"])
    with pytest.raises(errors.RemoteResponseError):
        await writer(server).arun("x")
    monkeypatch.setattr(service_connection, "MAX_RESPONSE", 50_000)
    server.answers([STREAM, *[chunk(b": ping\n\n" * 1000)] * 20, "hang"])
    with pytest.raises(errors.RemoteResponseError):
        await writer(server).arun("x")


async def test_cancelling_closes_the_connection(
    server: Upstream, recorder: Any
) -> None:
    """A caller who cancels closes the connection at once, and what was used counts."""
    server.answers([STREAM, chunk(BEGUN), "hang"])
    begun = asyncio.Event()
    recorder.manager.subscribe(lambda _: begun.set(), "model_call_finished")
    running = asyncio.create_task(
        writer(server, event_manager=recorder.manager).arun("x")
    )
    async with asyncio.timeout(60):
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await server.quiet()
    assert recorder.events[-1].type == "run_cancelled"
    assert recorder.events[-1].usage.total_tokens == 100


async def test_a_timeout_of_its_own(server: Upstream) -> None:
    """A run that takes longer than the remote's `timeout` ends with an error, and the remote knows the time."""
    server.answers([STREAM, chunk(BEGUN), pass_time, "hang"])
    with pytest.raises(errors.RemoteTimeoutError):
        await writer(server, timeout=60.0).arun("x")
    assert server.headers[0]["podwright-budget"] == "wall_time=60.0"


WRONG_OPTIONS: list[dict[str, Any]] = [
    {"url": ""}, {"url": "writer:8000"}, {"url": "http://u:sk-canary@w"}, {"url": "http://w/?k=sk-canary"}, {"url": 7},
    {"name": "a/b"}, {"api_key": "sk-canary\r\nx: y"}, {"base_url": "http://x"}, {"topic": 1}, {"timeout": -1},
    {"api_key_file": "/nowhere/key"}, {"api_key_file": "/dev/null"}, {"api_key": "sk-canary", "api_key_file": __file__},
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG_OPTIONS, ids=str)
def test_invalid_options_are_refused(wrong: dict[str, Any]) -> None:
    """What is no URL, no name of a blueprint or no option is refused, and the error shows no secret."""
    with pytest.raises(ConfigurationError) as caught:
        Remote(
            **cast(
                "Any", {"name": "writer", "url": "http://writer:8000", **wrong}
            )
        )
    assert "sk-canary" not in str(caught.value)


async def test_hops_are_limited(server: Upstream) -> None:
    """A run that may pass no further container does not call the remote."""
    from podwright.run.run import Task, execute

    with pytest.raises(errors.RemoteHopsError):
        await execute(cast("Any", writer(server)), Task("x"), hops=0)
    assert server.requests == []


async def test_a_remote_that_breaks_off(server: Upstream) -> None:
    """What failed calls there have used counts, and a call that was not seen to end is one of unknown cost."""
    own: dict[str, Any] = {"run_id": "r", "component": "far", "kind": "agent"}
    failed = Usage(7, 3, cost=0.5).as_failed_call("a/b")
    events: list[Event] = [
        RunStarted(**own),
        ModelCallStarted(**own),
        ModelCallFinished(
            **own,
            model="a/b",
            response=ModelResponse("x", usage=USED),
            failed_usage=failed,
        ),
        ModelCallStarted(**own, call=1),
        ModelCallFailed(**own, call=1, model="a/b", usage=failed),
        ModelCallStarted(
            **own,
            call=2,
            request=ModelRequest("a/b", (Message("user", "the moon"),)),
        ),
    ]
    server.answers([STREAM, chunk(as_sse(events)), "close"])
    remote = writer(server)
    with pytest.raises(errors.RemoteConnectionError):
        await remote.arun("x")
    usage = remote.last_usage
    assert usage
    assert usage.known_cost == pytest.approx(1.0 + (USED.cost or 0))
    assert (usage.cost, usage.uncounted_model_calls) == (None, 1)
    assert usage.by_model["a/b"].unpriced_model_calls == 1
