"""What goes wrong on the way to a provider, on real sockets: the error, the tries, and what is never said."""

import asyncio
import json
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from email.utils import formatdate
from time import time
from typing import Any

import pytest
from tests.library.upstream import (
    STORY,
    STREAM,
    Pass,
    Script,
    Upstream,
    call,
    chunk,
    completion,
    delta,
    reply,
    sse,
    streamed,
)

from podwright import Agent, EventManager, FunctionModel, RunLimits, errors
from podwright.models import Connection
from podwright.models.openai_compatible import ChatModel
from podwright.models.providers import ENDPOINTS
from podwright.models.retries import LONGEST_ANSWER, Retries, Timeouts, retry_after, with_retries
from podwright.testing import events_of

KEY = "sk-0123456789-top-secret"
VENDOR = "VENDOR-WORDS"
NAME = "openai/gpt-4o-mini"
LIMITS = Timeouts(connect=60.0, first_byte=60.0, idle=60.0, total=600.0)
"""So long that a busy machine does not come to them; what is to be late lets the time pass."""
LATE = (Pass(90.0), "hang")
SOON = Retries(first_wait=0.01)


def of(heard: list[Any], *types: str) -> list[Any]:
    return events_of(heard, *types)


def model_at(url: str, timeouts: Timeouts = LIMITS, retries: Retries = SOON) -> ChatModel:
    model = ChatModel(NAME, Connection(KEY, url), ENDPOINTS["openai"])
    model.timeouts, model.retries = timeouts, retries
    return model


def agent_of(model: Any, heard: list[Any], **options: Any) -> Agent:
    def look_up(word: str) -> str:
        """Look a word up."""
        return f"{word}: found"

    manager = EventManager()
    manager.subscribe(heard.append)
    return Agent(name="guide", instructions="Help.", model=model, tools=[look_up], event_manager=manager, **options)


def refused(status: int, code: str = "", **headers: str) -> Script:
    body = {"error": {"code": code, "message": f"{VENDOR} {KEY}"}}
    return [reply(body, status, "application/json", zipped=False, **headers)]


def cut(plain: Script, stream: Script) -> Callable[[bool], Script]:
    return lambda streaming: stream if streaming else plain


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n"
HALF_CALL = sse(
    delta(tool_calls=[call(index=0, id="call_9", name="look_up", arguments='{"wo')]), {"note": VENDOR}, done=False
)
"""A tool call that has begun: nothing of it is handed out before its end."""
BEGUN = [STREAM, chunk(HALF_CALL)]
BOMB = b'{"choices": "' + b" " * (LONGEST_ANSWER + 1) + b'"}'


@dataclass
class Fault:
    script: Callable[[bool], Script]
    """What is sent, for a plain and for a streamed answer."""
    error: type[errors.ModelError]
    repeated: bool


def always(script: Script) -> Callable[[bool], Script]:
    return lambda streaming: script


FAULTS = {
    "400": Fault(always(refused(400)), errors.ModelRequestError, False),
    "401": Fault(always(refused(401)), errors.ModelAuthenticationError, False),
    "402": Fault(always(refused(402)), errors.ModelRateLimitError, False),
    "403": Fault(always(refused(403)), errors.ModelAuthenticationError, False),
    "404": Fault(always(refused(404)), errors.ModelRequestError, False),
    "408": Fault(always(refused(408)), errors.ModelTimeoutError, True),
    "422": Fault(always(refused(422)), errors.ModelRequestError, False),
    "429": Fault(always(refused(429)), errors.ModelRateLimitError, True),
    "429 for a moment": Fault(always(refused(429, Retry_After="0.02")), errors.ModelRateLimitError, True),
    "429 for an hour": Fault(always(refused(429, Retry_After="3600")), errors.ModelRateLimitError, False),
    "429 until a date": Fault(
        always(refused(429, Retry_After=formatdate(time() + 3600, usegmt=True))), errors.ModelRateLimitError, False
    ),
    "429 without credit": Fault(always(refused(429, "insufficient_quota")), errors.ModelRateLimitError, False),
    "500": Fault(always(refused(500)), errors.ModelUnavailableError, True),
    "502 with a page": Fault(
        always([reply(f"<html>{VENDOR}".encode(), 502, "text/html")]), errors.ModelUnavailableError, True
    ),
    "503 for a moment": Fault(always(refused(503, Retry_After="0")), errors.ModelUnavailableError, True),
    "503 for an hour": Fault(always(refused(503, Retry_After="3600")), errors.ModelUnavailableError, False),
    "too long": Fault(always(refused(400, "context_length_exceeded")), errors.ContextWindowError, False),
    "filtered": Fault(always(refused(400, "content_filter")), errors.ContentFilterError, False),
    "redirect": Fault(
        always([reply(b"", 307, Location="http://127.0.0.1:9/elsewhere")]), errors.ModelResponseError, False
    ),
    "no first byte": Fault(always(LATE), errors.ModelTimeoutError, True),
    "nothing more": Fault(cut([HEAD, b'{"cho', *LATE], [*BEGUN, *LATE]), errors.ModelTimeoutError, True),
    "reset at once": Fault(always(["reset"]), errors.ModelConnectionError, True),
    "reset in the middle": Fault(
        cut([HEAD, b'{"cho', 0.01, "reset"], [*BEGUN, 0.01, "reset"]), errors.ModelResponseError, True
    ),
    "closed at once": Fault(always(["close"]), errors.ModelConnectionError, True),
    "truncated": Fault(cut([HEAD, b'{"cho', "close"], [*BEGUN, "close"]), errors.ModelResponseError, True),
    "ended in its middle": Fault(
        cut([reply(b'{"choices": [')], [*BEGUN, chunk(b"")]), errors.ModelResponseError, True
    ),
    "no JSON": Fault(
        cut([reply(VENDOR.encode())], streamed(f"data: {VENDOR}\n\n".encode())), errors.ModelResponseError, True
    ),
    "JSON of another kind": Fault(
        cut([reply([VENDOR])], streamed(sse([VENDOR]))), errors.ModelResponseError, True
    ),
    "no choices": Fault(
        cut([reply({"choices": []})], streamed(sse({"choices": []}))), errors.ModelResponseError, True
    ),
    "no HTTP": Fault(always([f"{VENDOR} {KEY}\r\n\r\n".encode(), "close"]), errors.ModelResponseError, True),
    "bad compression": Fault(
        always([reply(VENDOR.encode(), Content_Encoding="gzip")]), errors.ModelResponseError, True
    ),
    "too large": Fault(
        cut([reply(BOMB, zipped=True)], [reply(BOMB, content_type="text/event-stream", zipped=True)]),
        errors.ModelResponseError,
        False,
    ),
    "error in a 200": Fault(
        cut([reply({"error": {"message": VENDOR}})], streamed(HALF_CALL + sse({"error": {"message": VENDOR}}))),
        errors.ModelUnavailableError,
        True,
    ),
    "429 in a 200": Fault(
        cut([reply({"error": {"code": 429}})], streamed(sse({"error": {"code": "rate_limit_exceeded"}}))),
        errors.ModelRateLimitError,
        True,
    ),
}  # fmt: skip

TOOL_CALL = [call(id="call_1", type="function", name="look_up", arguments='{"word": "sea"}')]


def good(streaming: bool) -> Script:
    return streamed(STORY) if streaming else [reply(completion("Done."))]


def tool_turn(streaming: bool) -> Script:
    pieces = sse(delta(tool_calls=[{"index": 0, **TOOL_CALL[0]}]), delta("tool_calls"))
    return streamed(pieces) if streaming else [reply(completion(None, tool_calls=TOOL_CALL))]


def assert_discreet(heard: list[Any], error: errors.PodwrightError | None, logged: str) -> None:
    said = json.dumps([event.to_dict() for event in heard]) + logged
    if error is not None:
        said += str(error) + repr(error) + json.dumps(error.to_dict()) + str(error.__cause__)
    assert KEY not in said
    assert VENDOR not in said


@pytest.mark.parametrize("streaming", [False, True], ids=["plain", "streaming"])
@pytest.mark.parametrize("after_tool", [False, True], ids=["first call", "after a tool"])
@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_that_stays_is_told_by_its_type(
    name: str, after_tool: bool, streaming: bool, provider: Upstream, caplog: pytest.LogCaptureFixture
) -> None:
    """A fault that stays ends in its error, after three tries if they could help and one if not."""
    fault, heard = FAULTS[name], []
    caplog.set_level("DEBUG")
    first = [tool_turn(streaming)] if after_tool else []
    provider.answers(*first, fault.script(streaming))
    agent = agent_of(model_at(provider.url), heard)
    with pytest.raises(fault.error) as caught:
        await agent.arun("The sea?", stream=streaming)
    assert type(caught.value) is fault.error
    tries = 3 if fault.repeated else 1
    assert len(provider.requests) == len(first) + tries
    assert [event.tries for event in of(heard, "model_call_retried")] == list(range(1, tries))
    assert len(of(heard, "model_call_failed")) == 1
    assert len(of(heard, "tool_call_finished")) == len(first)
    assert_discreet(heard, caught.value, caplog.text)


@pytest.mark.parametrize("streaming", [False, True], ids=["plain", "streaming"])
@pytest.mark.parametrize("after_tool", [False, True], ids=["first call", "after a tool"])
@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if fault.repeated])
async def test_a_fault_that_passes_is_survived(
    name: str, after_tool: bool, streaming: bool, provider: Upstream, caplog: pytest.LogCaptureFixture
) -> None:
    """A fault that passes costs a try and an event, and the answer is whole."""
    fault, heard = FAULTS[name], []
    caplog.set_level("DEBUG")
    first = [tool_turn(streaming)] if after_tool else []
    provider.answers(*first, fault.script(streaming), good(streaming))
    result = await agent_of(model_at(provider.url), heard).arun("The sea?", stream=streaming, trace=True)
    assert result.value == ("Grüße, 世界 🌍!\n" if streaming else "Done.")
    if streaming:
        assert "".join(event.text for event in of(heard, "token")) == result.value
    assert len(provider.requests) == len(first) + 2
    assert provider.requests[-1] == provider.requests[-2]
    (retried,) = of(heard, "model_call_retried")
    assert retried.error["code"] == fault.error.code
    assert len(of(heard, "tool_call_finished")) == len(first)
    assert result.usage.model_calls == len(first) + 1
    assert_discreet(heard, None, caplog.text)


BROKEN_OFF = {
    "reset": ([0.01, "reset"], errors.ModelResponseError),
    "truncated": (["close"], errors.ModelResponseError),
    "ended": ([chunk(b"")], errors.ModelResponseError),
    "idle": (LATE, errors.ModelTimeoutError),
    "error": ([chunk(sse({"error": {"message": VENDOR}})), chunk(b"")], errors.ModelUnavailableError),
    "no JSON": ([chunk(f"data: {VENDOR}\n\n".encode()), chunk(b"")], errors.ModelResponseError),
}


@pytest.mark.parametrize("name", BROKEN_OFF)
async def test_nothing_is_repeated_once_tokens_were_handed_out(name: str, provider: Upstream) -> None:
    """A stream that breaks off after its first token is not begun again."""
    rest, kind = BROKEN_OFF[name]
    provider.answers([STREAM, chunk(sse(delta(content="Once "), done=False)), *rest], good(True))
    heard: list[Any] = []
    tokens: list[str] = []
    with pytest.raises(kind) as caught:
        await agent_of(model_at(provider.url), heard, on_token=tokens.append).arun("A story!", stream=True)
    assert tokens == ["Once "]
    assert len(provider.requests) == 1
    assert_discreet(heard, caught.value, "")


async def test_a_refused_connection_is_tried_three_times() -> None:
    """Where nobody listens, there are three tries and one error."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        heard: list[Any] = []
        with pytest.raises(errors.ModelConnectionError):
            await agent_of(model_at(f"http://127.0.0.1:{unused.getsockname()[1]}/v1"), heard).arun("Hello?")
    assert len(of(heard, "model_call_retried")) == 2


async def test_a_connection_that_does_not_come_about_times_out() -> None:
    """A host that does not answer the handshake costs the connect time-out, each time."""
    with socket.socket() as full, socket.socket() as one, socket.socket() as two:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for filler in (one, two):
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        heard: list[Any] = []
        model = model_at(f"http://127.0.0.1:{full.getsockname()[1]}/v1", replace(LIMITS, connect=0.3))
        with pytest.raises(errors.ModelTimeoutError, match=r"no connection within 0\.3 s"):
            await agent_of(model, heard).arun("Hello?")
    assert len(of(heard, "model_call_retried")) == 2


async def test_an_unknown_host_is_a_connection_error() -> None:
    """A name that nobody knows is not reached."""
    with pytest.raises(errors.ModelConnectionError):
        await agent_of(model_at("http://no-such-host.invalid/v1", LIMITS), []).arun("Hello?")


async def test_the_total_time_holds_over_all_tries(provider: Upstream) -> None:
    """Tries and waits together end at the total time-out, and nothing is tried after it."""
    provider.answers([Pass(120.0), *refused(500)])
    heard: list[Any] = []
    model = model_at(provider.url, replace(LIMITS, first_byte=200.0, total=300.0), Retries(tries=9, first_wait=0.0))
    with pytest.raises(errors.ModelTimeoutError, match=r"no whole answer within 300 s \(3 tries\)"):
        await agent_of(model, heard).arun("Hello?")
    assert len(provider.requests) == 3


async def test_the_setting_is_the_total_time_and_waits_for_a_whole_answer(provider: Upstream) -> None:
    """`timeout` replaces the total, and what a plain answer's first byte may take."""
    provider.answers([Pass(90.0), *good(False)])
    assert await agent_of(model_at(provider.url), [], timeout=200.0).arun("Hello?") == "Done."
    with pytest.raises(errors.ModelTimeoutError, match=r"within 50 s"):
        await agent_of(model_at(provider.url), [], timeout=50.0).arun("Hello?")


async def test_a_wait_that_does_not_fit_the_run_is_not_begun(provider: Upstream) -> None:
    """`Retry-After` beyond the run's own time ends the call at once, with its own error."""
    provider.answers(refused(429, Retry_After="3600"), good(False))
    agent = agent_of(model_at(provider.url), [], limits=RunLimits(wall_time=600.0))
    with pytest.raises(errors.ModelRateLimitError) as caught:
        await asyncio.wait_for(agent.arun("Hello?"), 60)
    assert caught.value.retry_after == 3600.0


async def test_a_wait_that_fits_is_as_long_as_asked(provider: Upstream) -> None:
    """`Retry-After` is obeyed to the full."""
    provider.answers(refused(429, Retry_After="0.2"), good(False))
    heard: list[Any] = []
    await agent_of(model_at(provider.url), heard).arun("Hello?")
    started, retried, ended = of(heard, "model_call_started", "model_call_retried", "model_call_finished")
    assert retried.wait_ms == 200.0
    assert ended.at - started.at >= 0.2


async def test_models_of_any_make_are_repeated() -> None:
    """A model of one's own that raises a transient error is tried again; one that raises another is not."""
    answers: list[Any] = [errors.ModelUnavailableError("Busy."), "Here."]

    def answer(request: Any) -> Any:
        given = answers.pop(0)
        if isinstance(given, Exception):
            raise given
        return given

    model = FunctionModel(answer)
    model.retries = SOON
    assert await agent_of(model, []).arun("Hello?") == "Here."
    answers[:] = [errors.ModelError("Broken."), "Never."]
    with pytest.raises(errors.ModelError, match="Broken"):
        await agent_of(model, []).arun("Hello?")


async def test_waits_grow_and_are_spread() -> None:
    """The wait is random below a ceiling that doubles up to a limit; the provider's wish comes first."""
    waits: list[float] = []

    async def fail() -> None:
        raise errors.ModelUnavailableError("No.")

    policy = Retries(tries=5, first_wait=0.01, longest_wait=0.03, chance=lambda: 1.0)
    with pytest.raises(errors.ModelUnavailableError):
        await with_retries(fail, 9.0, policy, on_retry=lambda _tries, _error, wait: waits.append(wait))
    assert waits == [0.01, 0.02, 0.03, 0.03]
    assert replace(policy, chance=lambda: 0.0).wait(errors.ModelUnavailableError("No."), 1) == 0.0
    busy = errors.ModelRateLimitError("No.")
    busy.retry_after = 7.0
    assert policy.wait(busy, 1) == 7.0


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("3", 3.0),
        (" 0.5 ", 0.5),
        ("-1", 0.0),
        ("", None),
        ("soon", None),
        ("nan", None),
        ("inf", None),
        ("1e999", None),
    ],
)
def test_retry_after_in_seconds(value: str, seconds: float | None) -> None:
    """Only a number that is one counts."""
    assert retry_after({"retry-after": value}) == seconds


def test_retry_after_as_a_date() -> None:
    """A date is as far away as the clock says, and one that has passed is now."""
    soon = retry_after({"retry-after": formatdate(time() + 30, usegmt=True)})
    assert soon is not None
    assert 28 <= soon <= 30
    assert retry_after({"retry-after": formatdate(time() - 30, usegmt=True)}) == 0.0
