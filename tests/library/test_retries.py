"""What fails between an agent and a provider: the error, the attempts, and what is never shown."""

import asyncio
import json
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from email.utils import formatdate
from time import time
from typing import Any

import pytest
from tests.library.upstream import STORY, STREAM, Script, Upstream, call, chunk, completion, delta, reply, sse, streamed

from podwright import Agent, FunctionModel, RunLimits, errors
from podwright.models import Connection
from podwright.models.openai_compatible import MAX_RESPONSE, ChatModel
from podwright.models.providers import ENDPOINTS
from podwright.models.refusals import refusal
from podwright.models.retries import Retries, Timeouts, retry_after, with_retries

KEY = "sk-0123456789-top-secret"
VENDOR = "VENDOR-WORDS"
NAME = "openai/gpt-4o-mini"
LIMITS = Timeouts(first_byte=60.0, idle=60.0, total=600.0)
SHORT = Timeouts(first_byte=1.0, idle=0.3, total=600.0)
SOON = Retries(first_wait=0.001)


def model_at(url: str, timeouts: Timeouts = LIMITS, retries: Retries = SOON) -> ChatModel:
    model = ChatModel(NAME, Connection(KEY, url), ENDPOINTS["openai"])
    model.timeouts, model.retries = timeouts, retries
    return model


def agent_of(model: Any, recorder: Any, **options: Any) -> Agent:
    def look_up(word: str) -> str:
        """Look a word up."""
        return f"{word}: found"

    return Agent("guide", "Help.", model, tools=[look_up], event_manager=recorder.manager, **options)


def refused(status: int, code: str = "", **headers: str) -> Script:
    return [reply({"error": {"code": code, "message": f"{VENDOR} {KEY}"}}, status, zipped=False, **headers)]


def assert_discreet(recorder: Any, error: errors.PodwrightError | None, logged: str = "") -> None:
    """Nothing shows the key, and only the text of the error in Python the provider's words."""
    text = json.dumps([event.to_dict() for event in recorder.events]) + logged
    if error is not None:
        text += error.message + repr(error) + json.dumps(error.to_dict()) + str(error.__cause__)
    assert KEY not in text + str(error)
    assert VENDOR not in text


# --- the contract of refusals


REFUSALS: list[tuple[int, str, type[errors.ModelError], bool]] = [
    (400, "", errors.ModelRequestError, False),
    (401, "", errors.ModelAuthenticationError, False),
    (402, "", errors.ModelRateLimitError, False),
    (403, "", errors.ModelAuthenticationError, False),
    (404, "", errors.ModelRequestError, False),
    (408, "", errors.ModelTimeoutError, True),
    (409, "", errors.ModelUnavailableError, True),
    (413, "", errors.ContextWindowError, False),
    (418, "", errors.ModelRequestError, False),
    (422, "", errors.ModelRequestError, False),
    (425, "", errors.ModelUnavailableError, True),
    (429, "", errors.ModelRateLimitError, True),
    (429, "insufficient_quota", errors.ModelRateLimitError, False),
    (429, "context length", errors.ModelRateLimitError, True),
    (500, "", errors.ModelUnavailableError, True),
    (529, "", errors.ModelUnavailableError, True),
    (400, "context_length_exceeded", errors.ContextWindowError, False),
    (400, "content_filter", errors.ContentFilterError, False),
    (403, "Your input was flagged", errors.ContentFilterError, False),
    (307, "", errors.ModelResponseError, False),
    (204, "", errors.ModelResponseError, True),
]


@pytest.mark.parametrize(("status", "text", "kind", "transient"), REFUSALS)
def test_the_contract_of_refusals(status: int, text: str, kind: type[errors.ModelError], transient: bool) -> None:
    """Each status, with the provider's code, is one typed error, which says whether another attempt can help."""
    error = refusal("a/b", status, text, {"retry-after": "7"})
    assert (type(error), error.transient) == (kind, transient)
    assert error.retry_after == (7.0 if transient else None)
    assert "'a/b'" in error.message
    assert str(status) in error.message


# --- faults on the way, on real sockets


@dataclass
class Fault:
    plain: Script
    stream: Script
    error: type[errors.ModelError]
    repeated: bool
    timeouts: Timeouts = LIMITS


def both(script: Script, error: type[errors.ModelError], repeated: bool, timeouts: Timeouts = LIMITS) -> Fault:
    return Fault(script, script, error, repeated, timeouts)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n"
HALF_CALL = sse(
    delta(tool_calls=[call(index=0, id="call_9", name="look_up", arguments='{"wo')]), {"note": VENDOR}, done=False
)
"""A tool call that has begun; none of it is handed out before its end."""
BEGUN = [STREAM, chunk(HALF_CALL)]
BOMB = b'{"choices": "' + b" " * (MAX_RESPONSE + 1) + b'"}'

FAULTS = {
    "400": both(refused(400), errors.ModelRequestError, False),
    "429": both(refused(429), errors.ModelRateLimitError, True),
    "429 for an hour": both(refused(429, Retry_After="3600"), errors.ModelRateLimitError, False),
    "429 until a date": both(
        refused(429, Retry_After=formatdate(time() + 3600, usegmt=True)), errors.ModelRateLimitError, False
    ),
    "502 with a page": both(
        [reply(f"<html>{VENDOR}".encode(), 502, "text/html")], errors.ModelUnavailableError, True
    ),
    "a refusal that breaks off": both(
        [HEAD.replace(b"200", b"503"), b"{", "close"], errors.ModelUnavailableError, True
    ),
    "503 for a moment": both(refused(503, Retry_After="0"), errors.ModelUnavailableError, True),
    "redirect": both(
        [reply(b"", 307, Location="http://127.0.0.1:9/elsewhere")], errors.ModelResponseError, False
    ),
    "no first byte": both(["hang"], errors.ModelTimeoutError, True, SHORT),
    "no next byte": Fault([HEAD, b'{"cho', "hang"], [*BEGUN, "hang"], errors.ModelTimeoutError, True, SHORT),
    "reset": both(["reset"], errors.ModelConnectionError, True),
    "closed": both(["close"], errors.ModelConnectionError, True),
    "truncated": Fault([HEAD, b'{"cho', "close"], [*BEGUN, "close"], errors.ModelResponseError, True),
    "ended early": Fault([reply(b'{"choices": [')], [*BEGUN, chunk(b"")], errors.ModelResponseError, True),
    "no JSON": Fault(
        [reply(VENDOR.encode())], streamed(f"data: {VENDOR}\n\n".encode()), errors.ModelResponseError, True
    ),
    "other JSON": Fault([reply([VENDOR])], streamed(sse([VENDOR])), errors.ModelResponseError, True),
    "no choices": Fault(
        [reply({"choices": []})], streamed(sse({"choices": []})), errors.ModelResponseError, True
    ),
    "no HTTP": both([f"{VENDOR} {KEY}\r\n\r\n".encode(), "close"], errors.ModelResponseError, True),
    "bad compression": both([reply(VENDOR.encode(), Content_Encoding="gzip")], errors.ModelResponseError, True),
    "too large": Fault(
        [reply(BOMB, zipped=True)], [reply(BOMB, 200, "text/event-stream", zipped=True)],
        errors.ModelResponseError, False,
    ),
    "no answer": Fault(
        [reply(completion(""))], streamed(sse({"choices": [{"message": None, "finish_reason": "tool_calls"}]})),
        errors.ModelResponseError, True,
    ),
    "error in a 200": Fault(
        [reply({"error": {"message": VENDOR}})], streamed(HALF_CALL + sse({"error": {"message": VENDOR}})),
        errors.ModelUnavailableError, True,
    ),
    "429 in a 200": Fault(
        [reply({"error": {"code": 429}})], streamed(sse({"error": {"code": "rate_limit_exceeded"}})),
        errors.ModelRateLimitError, True,
    ),
}  # fmt: skip

TOOL_CALL = call(id="call_1", type="function", name="look_up", arguments='{"word": "sea"}')


def good(streaming: bool) -> Script:
    return streamed(STORY) if streaming else [reply(completion("Done."))]


def tool_turn(streaming: bool) -> Script:
    pieces = sse(delta(tool_calls=[{"index": 0, **TOOL_CALL}]), delta("tool_calls"))
    return streamed(pieces) if streaming else [reply(completion(None, tool_calls=[TOOL_CALL]))]


@pytest.mark.parametrize("streaming", [False, True], ids=["plain", "streaming"])
@pytest.mark.parametrize("name", FAULTS)
async def test_a_lasting_fault_is_a_typed_error(
    name: str, streaming: bool, provider: Upstream, recorder: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A fault that lasts ends in its error, after three attempts if they can help, else after one."""
    fault = FAULTS[name]
    caplog.set_level("DEBUG")
    provider.answers(tool_turn(streaming), fault.stream if streaming else fault.plain)
    agent = agent_of(model_at(provider.url, fault.timeouts), recorder)
    with pytest.raises(fault.error) as caught:
        await agent.arun("The sea?", stream=streaming)
    assert type(caught.value) is fault.error
    tries = 3 if fault.repeated else 1
    assert len(provider.requests) == 1 + tries
    assert [event.tries for event in recorder.of("model_call_retried")] == list(range(1, tries))
    assert len(recorder.of("model_call_failed")) == 1
    assert len(recorder.of("tool_call_finished")) == 1
    assert_discreet(recorder, caught.value, caplog.text)


@pytest.mark.parametrize("streaming", [False, True], ids=["plain", "streaming"])
@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if fault.repeated])
async def test_a_passing_fault_is_survived(
    name: str, streaming: bool, provider: Upstream, recorder: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A fault that passes costs an attempt and an event, and the answer is complete."""
    fault = FAULTS[name]
    caplog.set_level("DEBUG")
    provider.answers(fault.stream if streaming else fault.plain, good(streaming))
    timeouts = replace(fault.timeouts, first_byte=max(fault.timeouts.first_byte, 1.0))
    result = await agent_of(model_at(provider.url, timeouts), recorder).arun("The sea?", stream=streaming, trace=True)
    assert result.value == ("Grüße, 世界 🌍!\n" if streaming else "Done.")
    if streaming:
        assert "".join(event.text for event in recorder.of("token")) == result.value
    assert provider.requests[0] == provider.requests[1]
    (retried,) = recorder.of("model_call_retried")
    assert retried.error["code"] == fault.error.code
    assert result.usage.model_calls == 1
    assert_discreet(recorder, None, caplog.text)


BROKEN_OFF: dict[str, tuple[Script, type[errors.ModelError]]] = {
    "truncated": (["close"], errors.ModelResponseError),
    "ended": ([chunk(b"")], errors.ModelResponseError),
    "idle": (["hang"], errors.ModelTimeoutError),
    "error": ([chunk(sse({"error": {"message": VENDOR}})), chunk(b"")], errors.ModelUnavailableError),
    "no JSON": ([chunk(f"data: {VENDOR}\n\n".encode()), chunk(b"")], errors.ModelResponseError),
}


@pytest.mark.parametrize("name", BROKEN_OFF)
async def test_nothing_is_repeated_after_the_first_token(name: str, provider: Upstream, recorder: Any) -> None:
    """A stream that breaks off after a token was handed out is not begun again."""
    rest, kind = BROKEN_OFF[name]
    provider.answers([STREAM, chunk(sse(delta(content="Once "), done=False)), *rest], good(True))
    tokens: list[str] = []
    model = model_at(provider.url, Timeouts(idle=0.1))
    with pytest.raises(kind) as caught:
        await agent_of(model, recorder, on_token=tokens.append).arun("A story!", stream=True)
    assert tokens == ["Once "]
    assert len(provider.requests) == 1
    assert_discreet(recorder, caught.value)


async def test_no_connection_is_tried_three_times(recorder: Any) -> None:
    """A closed port is an unreachable model after three attempts."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(errors.ModelConnectionError):
            await agent_of(model_at(f"http://127.0.0.1:{unused.getsockname()[1]}/v1"), recorder).arun("Hello?")
    assert len(recorder.of("model_call_retried")) == 2


@pytest.mark.parametrize("before", [["hang"], [STREAM, chunk(sse(delta(content="Once "), done=False)), "hang"]])
async def test_cancelling_a_run_closes_the_connection(before: Script, provider: Upstream, recorder: Any) -> None:
    """A caller who leaves ends the provider's work, whether it has begun to answer or not."""
    provider.answers(before)
    token = asyncio.Event()
    agent = agent_of(model_at(provider.url), recorder, on_token=lambda _: token.set())
    run = asyncio.create_task(agent.arun("Hello?", stream=True))
    async with asyncio.timeout(30):
        await (provider.asked if before == ["hang"] else token).wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        await provider.quiet()


# --- time


async def test_the_total_time_is_that_of_all_attempts(
    provider: Upstream, recorder: Any, outlast: Callable[[], Any]
) -> None:
    """Attempts and waits together end at the total time-out; nothing is repeated after it."""
    answers: list[Any] = [errors.ModelUnavailableError("Busy.")] * 2

    async def answer(_: Any) -> Any:
        if answers:
            raise answers.pop()
        await outlast()

    model = FunctionModel(answer)
    model.timeouts, model.retries = Timeouts(total=300.0), Retries(tries=9, first_wait=0.0)
    with pytest.raises(errors.ModelTimeoutError, match=r"300 s \(tries: 3\)") as caught:
        await agent_of(model, recorder).arun("Hello?")
    assert not caught.value.transient


async def test_the_setting_timeout_is_the_total_time(provider: Upstream, recorder: Any) -> None:
    """`timeout` replaces the total time-out, and the first byte's of a response that is not streamed."""
    slow = asyncio.Event()
    asyncio.get_running_loop().call_later(0.5, slow.set)
    provider.answers([slow, *good(False)])
    too_short = Timeouts(first_byte=0.1)
    assert await agent_of(model_at(provider.url, too_short), recorder, timeout=200.0).arun("Hello?") == "Done."
    provider.answers(["hang"])
    with pytest.raises(errors.ModelTimeoutError):
        await agent_of(model_at(provider.url), recorder, timeout=1.0).arun("Hello?")
    assert len(provider.requests) == 1


async def test_a_wait_longer_than_the_run_is_not_begun(provider: Upstream, recorder: Any) -> None:
    """`Retry-After` beyond the run's own time ends the call at once, with its own error."""
    provider.answers(refused(429, Retry_After="3600"), good(False))
    agent = agent_of(model_at(provider.url, Timeouts(total=9000.0)), recorder, limits=RunLimits(wall_time=600.0))
    with pytest.raises(errors.ModelRateLimitError) as caught:
        await agent.arun("Hello?")
    assert caught.value.retry_after == 3600.0


async def test_retry_after_is_obeyed(provider: Upstream, recorder: Any) -> None:
    """A wait that fits is as long as the provider asks."""
    provider.answers(refused(429, Retry_After="0.2"), good(False))
    await agent_of(model_at(provider.url), recorder).arun("Hello?")
    started, retried, ended = recorder.of("model_call_started", "model_call_retried", "model_call_finished")
    assert retried.wait_ms == 200.0
    assert ended.at - started.at >= 0.2


async def test_any_model_is_repeated(recorder: Any) -> None:
    """A model of the user's own that raises a transient error is called again; after another error it is not."""
    answers: list[Any] = [errors.ModelUnavailableError("Busy."), "Here."]

    def answer(_: Any) -> Any:
        next_answer = answers.pop(0)
        if isinstance(next_answer, Exception):
            raise next_answer
        return next_answer

    model = FunctionModel(answer)
    model.retries = SOON
    assert await agent_of(model, recorder).arun("Hello?") == "Here."
    answers[:] = [errors.ModelError("Broken."), "Never."]
    with pytest.raises(errors.ModelError, match="Broken"):
        await agent_of(model, recorder).arun("Hello?")


async def test_waits_grow_and_are_spread() -> None:
    """The wait is random below a ceiling that doubles up to a maximum; the provider's wait comes first."""
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


async def test_a_timeout_of_an_attempt_is_its_own() -> None:
    """A TimeoutError that an attempt raises is not taken for the total time-out."""

    async def fail() -> None:
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        await with_retries(fail, 9.0, SOON)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("3", 3.0), (" 0.5 ", 0.5), ("-1", 0.0), ("", None), ("soon", None), ("nan", None), ("inf", None)],
)
def test_retry_after_in_seconds(value: str, seconds: float | None) -> None:
    """Only a finite number counts."""
    assert retry_after({"retry-after": value}) == seconds


def test_retry_after_as_a_date() -> None:
    """A date is as far away as the clock says, and one that has passed is now."""
    seconds = retry_after({"retry-after": formatdate(time() + 30, usegmt=True)})
    assert seconds is not None
    assert 28 <= seconds <= 30
    assert retry_after({"retry-after": formatdate(time() - 30, usegmt=True)}) == 0.0
