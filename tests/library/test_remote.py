"""A component in another container: its events, usage and errors are those of a run here, whatever the wire does."""

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator, Callable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from tests.library.upstream import Part, Pass, Script, Upstream, chunk, reply, upstream

from podwright import (
    Agent,
    AgentStep,
    Conductor,
    Event,
    LimitExceededError,
    ParallelStep,
    Pipeline,
    Remote,
    RunLimits,
    ScriptedModel,
    Usage,
    Workflow,
    errors,
    load,
)
from podwright.budget import Budget, borrow
from podwright.components import exchange
from podwright.components import remote as module
from podwright.errors import ConfigurationError, PodwrightError
from podwright.models.retries import Retries, Timeouts
from podwright.testing import ModelResponse, ToolCall

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
USED = Usage(input_tokens=60, output_tokens=40, cost=0.001)


def look(word: str) -> str:
    """Look a word up."""
    return f"{word}: found"


def there() -> list[Event]:
    """The events of a run of an agent that calls a model twice and a tool once."""
    model = ScriptedModel(
        ModelResponse(tool_calls=(ToolCall.of("look", word="moon"),), usage=USED, finish_reason="tool_calls"),
        ModelResponse("It shines.", usage=USED),
    )
    return Agent("far", "Help.", model, tools=[look]).run("the moon", trace=True).events


def sse(name: str, data: Any) -> bytes:
    text = data if isinstance(data, str) else json.dumps(data)
    return f"event: {name}\ndata: {text}\n\n".encode()


def told(events: list[Event]) -> bytes:
    return b": ping\n\n" + b"".join(sse(event.type, event.to_dict()) for event in events)


def stream(*parts: bytes) -> list[Part]:
    return [HEAD, *(chunk(part) for part in parts), chunk(b"")]


def answered(events: list[Event], body: object) -> list[Part]:
    return stream(told(events), sse("result", body))


def problem(status: int, code: str, detail: str, **more: Any) -> dict[str, Any]:
    return {"type": "x", "status": status, "code": code, "detail": detail, "suggestion": "Do it otherwise.", **more}


WHOLE = answered(there(), {"output": "It shines."})


@pytest.fixture
async def server() -> AsyncGenerator[Upstream]:
    async with upstream() as serving:
        serving.answers(WHOLE)
        yield serving


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Remote, "retries", Retries(first_wait=0.001))


def far(server: Upstream, **options: Any) -> Remote:
    return Remote("writer", f"http://127.0.0.1:{server.port}", **options)


async def test_its_events_stand_in_the_trace_of_the_caller(server: Upstream, assert_sound: Callable[..., None]) -> None:
    """The remote's events are numbered on, nested in the run here, marked with its name; usage adds upward."""
    flow = Workflow("flow", [Agent("first", "Begin.", "offline/echo"), far(server)])
    result = await flow.arun("hello", trace=True)
    assert_sound(result.events)
    assert result.value["writer_output"] == "It shines."
    inner = [event for event in result.events if event.remote]
    assert {event.remote for event in inner} == {"writer"}
    assert {event.path for event in inner} == {(1,)}
    own = next(event for event in result.events if event.component == "writer")
    assert inner[0].parent_id == own.run_id
    assert [event.type for event in inner] == [event.type for event in there()]
    assert result.usage.tool_calls == 1
    assert result.usage.by_model["offline/scripted"].total_tokens == 200
    assert server.requests[0] == {"inputs": {"input": "hello", "first_output": "Echo: hello"}}


async def test_the_request(server: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    """It carries the input, the key, what is left of the limits, the hops, and what telemetry propagates."""
    monkeypatch.setattr(module, "PROPAGATORS", [lambda run: {"traceparent": f"00-{run.id}-1-01"}, lambda run: 1 / 0])
    limits = RunLimits(wall_time=100, model_calls=7, tokens=900, cost=0.5)
    assert await far(server, api_key="k-1", limits=limits).arun("the moon") == "It shines."
    headers = server.headers[0]
    assert headers[":line"] == "POST /run/stream HTTP/1.1"
    assert headers["authorization"] == "bearer k-1"
    assert headers["podwright-hops"] == "2"
    assert headers["traceparent"].startswith("00-")
    wall_time, *rest = headers["podwright-budget"].split(", ")
    assert 90 < float(wall_time.removeprefix("wall_time=")) <= 100
    assert rest == ["tokens=900", "model_calls=7", 'cost="0.5"']
    assert server.requests == [{"input": "the moon"}]


async def test_tokens_are_handed_on_if_asked_for(server: Upstream) -> None:
    """A streamed run has the remote's tokens; one that is not streamed leaves them out."""
    events = [event async for event in Agent("far", "Help.", "offline/echo").astream("the full moon")]
    server.answers(answered(events, {"output": "x"}))
    heard: list[str] = []
    remote = far(server, on_token=heard.append)
    assert await remote.arun("x", stream=True) == "x"
    assert "".join(heard) == "Echo: the full moon"
    await remote.arun("x")
    assert "".join(heard) == "Echo: the full moon"


async def test_every_kind_of_remote_in_every_kind(server: Upstream) -> None:
    """A remote workflow gives its context, and its last output as text, to steps, skills and pipelines alike."""
    inner = Workflow("far", [Agent("one", "Do.", ScriptedModel(ModelResponse("done", usage=USED)))])
    result = await inner.arun("go", trace=True)
    server.answers(answered(result.events, result.value))
    remote = far(server, kind="workflow", description="Writes.")
    assert await remote.arun("go") == {"input": "go", "one_output": "done"}
    assert (await Workflow("flow", [remote]).arun("go"))["writer_output"] == "done"
    assert await Pipeline("line", [remote, Agent("end", "End.", "offline/echo")]).arun("go") == "Echo: done"
    lead = Conductor("lead", "Lead.", ScriptedModel(ToolCall.of("writer", task="go"), "Well."), [remote])
    traced = await lead.arun("go", trace=True)
    assert traced.value == "Well."
    assert next(event.output for event in traced.events if event.type == "tool_call_finished") == "done"
    assert server.requests[-1] == {"input": "go"}


async def test_a_blueprint_names_it_only(server: Upstream) -> None:
    """The blueprint of what works with a remote has its name, never its URL or key, and is rebuilt with it."""
    remote = far(server, api_key="k-secret")
    for whole in (
        Workflow("flow", [remote]),
        Pipeline("line", [remote]),
        Conductor("lead", "Lead.", "offline/echo", [remote]),
    ):
        blueprint = whole.to_blueprint()
        text = json.dumps([blueprint, remote.to_blueprint(), repr(remote)])
        assert "127.0.0.1" not in text
        assert "k-secret" not in text
        again = load(blueprint, agents={"writer": remote})
        assert again.to_blueprint() == blueprint
        assert again.members() == {"writer": remote}
    assert (await load(Workflow("flow", [remote]).to_blueprint(), agents={"writer": remote}).arun("x"))["writer_output"]


async def test_a_response_model_is_refused(server: Upstream) -> None:
    """The type of an answer cannot be sent to a remote, which is said before it is called."""

    class Answer(BaseModel):
        text: str

    with pytest.raises(errors.InputError, match="response model"):
        await far(server).arun("x", response_model=Answer)
    assert server.requests == []


BEGUN = told(there()[:3])
NEGATIVE = BEGUN.replace(b'"input_tokens": 60', b'"input_tokens": -60')
STARTED = there()[0].to_dict()
ENDED = there()[-1].to_dict()


def calling(number: int, **usage: Any) -> bytes:
    """The events of a call to a model of its own."""
    request = {"model": f"m/{number}", "messages": []}
    common = {"run_id": STARTED["run_id"], "call": number}
    return sse("m", {**common, "type": "model_call_started", "request": request}) + sse(
        "m", {**common, "type": "model_call_finished", "response": {"usage": usage}}
    )


def nested(depth: int) -> bytes:
    """The starts of runs within each other."""
    ids = [STARTED["run_id"], *(f"{number:032x}" for number in range(depth))]
    return b"".join(
        sse("m", {**STARTED, "run_id": inner, "parent_id": outer}) for outer, inner in itertools.pairwise(ids)
    )


BEGINNING = told(there()[:1])
TOO_MUCH: dict[str, list[Part]] = {
    "a run within itself": stream(
        sse("m", {**STARTED, "parent_id": STARTED["run_id"]}), calling(0), sse("result", {"output": "x"})
    ),
    "a run that begins twice": stream(BEGINNING, BEGINNING),
    "a hundred runs within each other": stream(BEGINNING, nested(101)),
    "more tokens than 64 bits hold": stream(BEGINNING, calling(0, input_tokens=2**64)),
    "a number of 4000 digits": stream(
        BEGINNING, calling(0).replace(b'"usage": {}', b'"usage": {"output_tokens": %s}' % (b"9" * 4000))
    ),
    "more money than there is": stream(BEGINNING, calling(0, cost=1.7e308)),
    "a negative number of calls": stream(BEGINNING, sse("m", {**ENDED, "usage": {"model_calls": -1}})),
    "a hundred models": stream(BEGINNING, b"".join(calling(number) for number in range(101))),
    "a path of 1000 steps": stream(sse("m", {**STARTED, "path": [0] * 1000})),
    "a name of 1000 characters": stream(sse("m", {**STARTED, "component": "x" * 1000})),
    "a model of 1000 characters": stream(BEGINNING, calling(10**999)),
}
HTML = reply(b"<html>sk-canary</html>", 200, "text/html")
FAULTS: dict[str, tuple[Script, type[PodwrightError], str]] = {
    "reset after the head": ([HEAD, "reset"], errors.RemoteConnectionError, "lost"),
    "reset after an event": ([HEAD, chunk(BEGUN), "reset"], errors.RemoteConnectionError, "lost"),
    "no last event": (stream(BEGUN), errors.RemoteConnectionError, "ended before its run"),
    "401": (
        [reply(problem(401, "key_missing", "Send a key."), 401, "application/problem+json")],
        errors.RemoteRejectedError,
        "answered 401: Send a key",
    ),
    "403": ([reply(b"sk-canary", 403, "text/plain")], errors.RemoteRejectedError, "answered 403"),
    "404": ([reply({"detail": "sk-canary"}, 404)], errors.RemoteRejectedError, "answered 404"),
    "422": (
        [reply(problem(422, "request_invalid", "No input."), 422, "application/problem+json")],
        errors.RemoteRejectedError,
        "No input",
    ),
    "500": ([reply(b"sk-canary", 500, "text/plain")], errors.RemoteUnavailableError, "answered 500"),
    "503 without a time": ([reply(b"", 503)], errors.RemoteUnavailableError, "answered 503"),
    "a redirect": ([reply(b"", 307, Location="http://127.0.0.1:9/")], errors.RemoteResponseError, "redirect"),
    "html": ([HTML], errors.RemoteResponseError, "no stream of events"),
    "no HTTP": ([b"SSH-2.0-sk-canary\r\n\r\n", "close"], errors.RemoteResponseError, "no HTTP"),
    "malformed JSON": (stream(sse("run_started", "{sk-canary")), errors.RemoteResponseError, "an event that is none"),
    "a wrong field": (
        stream(sse("run_started", {**STARTED, "path": "sk-canary"})),
        errors.RemoteResponseError,
        "event that is none",
    ),
    "an end without a start": (stream(told(there()[3:4])), errors.RemoteResponseError, "event that is none"),
    "a negative usage": (stream(NEGATIVE), errors.RemoteResponseError, "event that is none"),
    "a result of nothing": (stream(BEGUN, sse("result", "[]")), errors.RemoteResponseError, "result that is none"),
    "a result without a run": (stream(sse("result", {"output": "x"})), errors.RemoteResponseError, "result"),
    **{name: (script, errors.RemoteResponseError, "an event that is none") for name, script in TOO_MUCH.items()},
    "a result nested too deep": (
        stream(BEGINNING, sse("result", '{"output":' + "[" * 300 + "]" * 300 + "}")),
        errors.RemoteResponseError,
        "result that is none",
    ),
    "silence": ([HEAD, chunk(BEGUN), "hang"], errors.RemoteTimeoutError, "silent"),
    "silence from the start": (["hang"], errors.RemoteTimeoutError, "silent"),
}


@pytest.mark.parametrize(("script", "kind", "said"), FAULTS.values(), ids=FAULTS)
async def test_faults(
    server: Upstream,
    monkeypatch: pytest.MonkeyPatch,
    assert_sound: Callable[..., None],
    heard: Any,
    script: Script,
    kind: type[PodwrightError],
    said: str,
) -> None:
    """Each fault is a typed error that shows nothing of a stranger's words; nothing is asked twice."""
    if "hang" in script:
        monkeypatch.setattr(Remote, "timeouts", Timeouts(first_byte=0.3, idle=0.3))
    server.answers(script)
    with pytest.raises(errors.RemoteError, match=said) as caught:
        await far(server, api_key="sk-canary", event_manager=heard.manager).arun("x")
    assert type(caught.value) is kind
    assert caught.value.remote == "writer"
    assert "sk-canary" not in json.dumps(caught.value.to_dict())
    assert len(server.requests) == 1
    assert_sound(heard.events)
    assert heard.events[-1].type == "run_failed"
    assert caught.value.usage == heard.events[-1].usage


async def test_what_was_used_before_a_loss_is_known(server: Upstream, heard: Any) -> None:
    """Of a run whose connection is lost, the model calls that were told of count; its open runs are ended."""
    server.answers([HEAD, chunk(told(there()[:-2])), "reset"])
    with pytest.raises(errors.RemoteConnectionError) as caught:
        await far(server, event_manager=heard.manager).arun("x")
    assert caught.value.usage
    assert caught.value.usage.total_tokens == 100 * len(heard.of("model_call_finished"))
    assert [event.type for event in heard.events if event.remote][-1] == "run_failed"
    assert len(heard.of("run_started")) == len(heard.of("run_failed")) == 2


def under_way() -> list[Event]:
    """The events of a run of a workflow that has steps, a tool call and a model call under way in turn."""
    model = ScriptedModel(ToolCall.of("look", word="moon"), "It shines.")
    agent = Agent("inner", "Help.", model, tools=[look])
    return Workflow("far", [ParallelStep([[AgentStep(agent, "a")]], "both")]).run("x", trace=True).events


CLOSING = {
    "run_started": ("run_failed", "run_cancelled"),
    "step_started": ("step_finished", "step_finished"),
    "model_call_started": ("model_call_failed", "model_call_failed"),
    "tool_call_started": ("tool_call_failed", "tool_call_failed"),
}


@pytest.mark.parametrize("cancelled", [False, True], ids=["lost", "cancelled"])
@pytest.mark.parametrize("after", ["tool_call_started", "model_call_started", "step_started"])
async def test_whatever_was_under_way_is_ended(
    server: Upstream, heard: Any, assert_sound: Callable[..., None], after: str, cancelled: bool
) -> None:
    """After a loss or a cancellation, all that the remote began gets its last event, the innermost first."""
    events = under_way()
    begun = events[: [event.type for event in events].index(after) + 1]
    server.answers([HEAD, chunk(told(begun)), "hang" if cancelled else "reset"])
    reached = asyncio.Event()
    heard.manager.subscribe(lambda event: reached.set() if event.remote else None, after)
    running = asyncio.create_task(far(server, event_manager=heard.manager).arun("x"))
    if cancelled:
        await reached.wait()
        running.cancel()
    with pytest.raises(asyncio.CancelledError if cancelled else errors.RemoteConnectionError):
        await running
    assert_sound(heard.events)
    inner = [event for event in heard.events if event.remote]
    still = [event for event in begun if event.type in CLOSING]
    still = [one for one in still if not any(_ends(event, one) for event in begun)]
    assert [event.type for event in inner[len(begun) :]] == [CLOSING[one.type][cancelled] for one in reversed(still)]
    for one, last in zip(still, reversed(inner), strict=False):
        assert (last.run_id, last.path) == (one.run_id, one.path)
        assert _ends(last, one)
        if last.type == "step_finished":
            assert last.outcome == ("cancelled" if cancelled else "failed")


def _ends(event: Event, first: Event) -> bool:
    same = event.run_id == first.run_id and not event.type.endswith("started")
    match first.type:
        case "step_started":
            return same and event.type == "step_finished" and (event.step, event.path) == (first.step, first.path)
        case "model_call_started":
            return same and event.type.startswith("model_call_f") and cast("Any", event).call == first.call
        case "tool_call_started":
            return same and event.type.startswith("tool_call_f") and cast("Any", event).call_id == first.call_id
        case _:
            return same and event.type in ("run_finished", "run_failed", "run_cancelled")


async def test_an_event_that_is_too_long(server: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event without an end, and a stream without one, are cut off at their size."""
    monkeypatch.setattr(exchange, "LONGEST_EVENT", 10_000)
    server.answers([HEAD, *[chunk(b"data: " + b"x" * 4000)] * 10, "hang"])
    with pytest.raises(errors.RemoteResponseError, match="more than is taken"):
        await far(server).arun("x")
    monkeypatch.setattr(exchange, "LONGEST_STREAM", 50_000)
    server.answers([HEAD, *[chunk(b": ping\n\n" * 1000)] * 20, "hang"])
    with pytest.raises(errors.RemoteResponseError, match="more than is taken"):
        await far(server).arun("x")


async def test_events_of_a_newer_release_are_passed_over(server: Upstream) -> None:
    """A type of events that is not known here is no fault, and neither is half a surrogate pair."""
    odd = told(there()).replace(b"the moon", b"the \\ud83d")
    server.answers(stream(sse("new_thing", {**STARTED, "type": "new_thing"}), odd, sse("result", {"output": "ok"})))
    result = await far(server).arun("x", trace=True)
    assert result.value == "ok"
    assert len(result.events) == len(there()) + 2
    assert result.events[1].input == "the ?"


async def test_only_what_began_no_run_is_sent_again(server: Upstream) -> None:
    """A 503 with Retry-After is tried three times in all; a refused connection too; the last error is told."""
    busy = reply(problem(503, "overloaded", "Full."), 503, "application/problem+json", Retry_After="0")
    server.answers([busy], [busy], WHOLE)
    assert await far(server).arun("x") == "It shines."
    assert len(server.requests) == 3
    server.answers([busy])
    with pytest.raises(errors.RemoteUnavailableError, match="Full") as caught:
        await far(server).arun("x")
    assert (caught.value.status, caught.value.remote_code, len(server.requests)) == (503, "overloaded", 3)
    later = reply(b"", 503, Retry_After="60")
    server.answers([later])
    with pytest.raises(errors.RemoteUnavailableError):
        await far(server, limits=RunLimits(wall_time=30)).arun("x")
    assert len(server.requests) == 1


IN_PROGRESS = reply(
    problem(409, "idempotency_in_progress", "Under way."), 409, "application/problem+json", Retry_After="0"
)


@pytest.mark.parametrize("lost", [["reset"], ["close"], [HEAD[:40], "close"]], ids=["reset", "closed", "half a head"])
async def test_a_request_that_is_lost_before_any_answer_is_sent_again(
    server: Upstream, assert_sound: Callable[..., None], heard: Any, lost: Script
) -> None:
    """It is sent again with its own key, and where the first try still runs, its end is waited for."""
    remote = far(server, limits=RunLimits(tokens=500, model_calls=5), event_manager=heard.manager)
    server.answers(WHOLE, lost, [IN_PROGRESS], WHOLE)
    assert [await remote.arun("x") for _ in range(2)] == ["It shines."] * 2
    first, *again = [headers["idempotency-key"] for headers in server.headers]
    assert len(again) == 3
    assert first not in again
    assert len(set(again)) == 1
    assert {headers["podwright-budget"] for headers in server.headers} == {"tokens=500, model_calls=5"}
    assert_sound(heard.events[len(heard.events) // 2 :])
    assert remote.last_usage.total_tokens == 200


@pytest.mark.parametrize("lost", [["reset"], ["close"]], ids=["reset", "closed"])
async def test_a_request_that_is_always_lost(server: Upstream, lost: Script) -> None:
    """After three tries the loss is told, and all that was lent counts as used."""
    server.answers(lost)
    run = Budget(RunLimits(tokens=900, model_calls=9))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "borrow", lambda _: borrow([run]))
        with pytest.raises(errors.RemoteConnectionError, match="connection was lost"):
            await far(server).arun("x")
    assert len({headers["idempotency-key"] for headers in server.headers}) == 1
    assert len(server.headers) == 3
    assert (run.tokens, run.calls) == (900, 9)


async def test_what_is_refused_after_a_loss_may_have_run(server: Upstream) -> None:
    """Where a try was lost and the next one is refused, all that was lent counts as used."""
    server.answers(["close"], [reply(problem(422, "request_invalid", "No."), 422, "application/problem+json")])
    run = Budget(RunLimits(tokens=900, model_calls=9))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "borrow", lambda _: borrow([run]))
        with pytest.raises(errors.RemoteRejectedError):
            await far(server).arun("x")
    assert len(server.requests) == 2
    assert (run.tokens, run.calls) == (900, 9)


async def test_nobody_listens() -> None:
    """A refused connection is tried again, and then a typed error."""
    tries: list[int] = []

    class Counted(Retries):
        def wait(self, error: Any, tries_: int) -> float:  # pyright: ignore[reportIncompatibleMethodOverride]
            tries.append(tries_)
            return 0.0

    async with upstream() as gone:
        remote = far(gone)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Remote, "retries", Counted())
        with pytest.raises(errors.RemoteConnectionError, match="no connection"):
            await remote.arun("x")
    assert tries == [1, 2, 3]


PROBLEMS: dict[str, tuple[dict[str, Any], type[PodwrightError], str]] = {
    "a failure": (
        problem(502, "model_failed", "The model is down.", component="far"),
        errors.RemoteError,
        "model_failed",
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
}


@pytest.mark.parametrize(("document", "kind", "code"), PROBLEMS.values(), ids=PROBLEMS)
async def test_problems_of_the_remote_run(
    server: Upstream, document: dict[str, Any], kind: type[PodwrightError], code: str
) -> None:
    """How a remote's run failed is told with its code, message and suggestion, and is not tried again."""
    server.answers(stream(told(there()), sse("problem", document)))
    with pytest.raises(kind, match=document["detail"]) as caught:
        await far(server).arun("x")
    error = caught.value
    assert type(error) is kind
    assert error.code == code
    assert "writer" in error.message
    assert error.usage
    assert error.usage.total_tokens == 200
    assert len(server.requests) == 1
    if isinstance(error, LimitExceededError):
        assert error.limit == "tokens"
    if isinstance(error, errors.RemotePausedError):
        assert (error.paused_context, error.paused_path) == ({"input": "x"}, [1])
    if code == "model_failed":
        assert (error.component, error.suggestion) == ("far", "Do it otherwise.")


async def test_cancelling_closes_the_connection(
    server: Upstream, heard: Any, assert_sound: Callable[..., None]
) -> None:
    """A caller who cancels closes the connection at once, and the trace tells of every run's end."""
    server.answers([HEAD, chunk(BEGUN), "hang"])
    begun = asyncio.Event()
    heard.manager.subscribe(lambda _: begun.set(), "model_call_finished")
    running = asyncio.create_task(far(server, event_manager=heard.manager).arun("x"))
    async with asyncio.timeout(20):
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await server.quiet()
    assert_sound(heard.events)
    assert len(heard.of("run_cancelled")) == 2


async def test_a_timeout_of_its_own(server: Upstream) -> None:
    """A run that takes longer than the remote's `timeout` ends with an error that says so."""
    server.answers([HEAD, chunk(BEGUN), Pass(25.0), "hang"])
    with pytest.raises(errors.RemoteTimeoutError, match=r"longer than 20 s"):
        await far(server, timeout=20.0).arun("x")
    assert server.headers[0]["podwright-budget"] == "wall_time=20.000"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "writer:8000",
        "ftp://writer",
        "http://",
        "http://u:sk-canary@w",
        "http://w/?k=sk-canary",
        "http://w#a",
        "http://w:x",
        7,
    ],
)
def test_a_url_that_is_none(url: Any) -> None:
    """A URL that no service has is refused when the remote is made, and not repeated."""
    with pytest.raises(ConfigurationError, match="is no http URL") as caught:
        Remote("writer", url)
    assert "sk-canary" not in str(caught.value)


@pytest.mark.parametrize("wrong", [{"name": "a/b"}, {"api_key": "k\r\nx: y"}, {"base_url": "http://x"}, {"topic": 1}])
def test_what_cannot_be_a_remote(wrong: dict[str, Any]) -> None:
    """A name that blueprints cannot have, a key with a line break, and options of other kinds are refused."""
    with pytest.raises(ConfigurationError):
        Remote(**cast("Any", {"name": "writer", "url": "http://writer:8000", **wrong}))


async def test_siblings_share_evenly(server: Upstream) -> None:
    """Remotes that begin in the same moment are lent equal parts; one that runs alone is lent all that is left."""
    remotes = [Remote(f"w{number}", f"http://127.0.0.1:{server.port}") for number in range(4)]
    flow = Workflow(
        "flow",
        [ParallelStep([[AgentStep(one)] for one in remotes]), AgentStep(remotes[0], output="last")],
        limits=RunLimits(tokens=4000, model_calls=18),
    )
    await flow.arun("x")
    budgets = [headers["podwright-budget"] for headers in server.headers]
    assert sorted(budgets[:4]) == ["tokens=1000, model_calls=4"] * 2 + ["tokens=1000, model_calls=5"] * 2
    assert budgets[4] == "tokens=3200, model_calls=10"


async def test_a_lost_run_may_have_used_all_that_it_was_lent(server: Upstream) -> None:
    """What a lost remote still uses nobody knows, so nothing of its share is given out again."""
    server.answers([HEAD, chunk(BEGUN), "reset"])
    remote, after = far(server), Agent("after", "Go on.", "offline/echo")

    async def careful(word: str) -> str:
        """Try the remote, and then another way."""
        try:
            return await remote.arun(word)
        except errors.RemoteConnectionError:
            return await after.arun(word)

    model = ScriptedModel(ToolCall.of("careful", word="x"), "done")
    with pytest.raises(LimitExceededError):
        await Agent("lead", "Lead.", model, tools=[careful], limits=RunLimits(model_calls=9)).arun("x")


@given(
    limits=st.builds(
        RunLimits,
        tokens=st.none() | st.integers(0, 3000),
        model_calls=st.none() | st.integers(0, 30),
        cost=st.none() | st.floats(0, 0.01),
    ),
    parts=st.lists(
        st.tuples(st.booleans(), st.booleans(), st.floats(0, 1), st.integers(0, 5), st.integers(0, 4)),
        min_size=1,
        max_size=100,
    ),
)
def test_no_share_exceeds_the_limits(limits: RunLimits, parts: list[tuple[bool, bool, float, int, int]]) -> None:
    """Whatever borrows, calls, loses its connection and gives back at once: no limit is exceeded, and all end."""
    outer, inner = Budget(limits), Budget(RunLimits(tokens=2000, model_calls=20))
    free = 1e-9

    def within() -> None:
        for budget in (outer, inner):
            own = budget.limits
            held = budget._holds
            assert own.tokens is None or budget.tokens + sum(one.tokens for one in held) <= own.tokens
            assert own.model_calls is None or budget.calls <= own.model_calls
            assert own.cost is None or budget.cost + sum(one.cost for one in held) <= own.cost + free

    async def remote(nested: bool, lost: bool, share: float, turns: int, calls: int) -> None:
        loan = await borrow([outer, inner] if nested else [outer])
        within()
        for _ in range(turns):
            await asyncio.sleep(0)
        lent = loan.limits
        used = Usage(int((lent.tokens or 0) * share), cost=(lent.cost or 0.0) * share)
        made = calls if lent.model_calls is None else min(calls, lent.model_calls)
        if lost:
            loan.keep(used, made)
        else:
            loan.settle(used, made)
        within()

    async def local(turns: int) -> None:
        hold, allowed = await outer.reserve(10, 50, lambda usage: usage.total_tokens * 1e-6)
        within()
        for _ in range(turns):
            await asyncio.sleep(0)
        outer.settle(hold, Usage(10, allowed // 2, cost=(10 + allowed // 2) * 1e-6))
        within()

    async def everything() -> list[Any]:
        work = [
            local(turns) if here else remote(nested, share > 0.9, share, turns, calls)
            for here, nested, share, turns, calls in parts
        ]
        async with asyncio.timeout(60):
            return await asyncio.gather(*work, return_exceptions=True)

    for outcome in asyncio.run(everything()):
        assert outcome is None or isinstance(outcome, LimitExceededError), repr(outcome)
    assert not outer._holds
    assert not inner._holds
    assert not outer._wishes
