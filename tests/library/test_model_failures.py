"""What both model clients do if a call fails: typed errors, attempts, time limits, and what is never shown."""

import asyncio
import json
import socket
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.library.model_clients import KEY, NO_LIMITS, Client
from tests.library.upstream import (
    HOUR,
    STORY,
    STREAM,
    Script,
    Upstream,
    call,
    chunk,
    close_clients_of_litellm,
    completion,
    delta,
    pass_time,
    reply,
    server_context,
    sse,
    streamed,
    upstream,
)

from podwright import Agent, errors

VENDOR = "VENDOR-WORDS"
HALF_AN_HOUR = replace(NO_LIMITS, first_byte=HOUR / 2, idle=HOUR / 2)
streaming_or_not = pytest.mark.parametrize(
    "streaming", [False, True], ids=["plain", "streaming"]
)


def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word}: found"


def refused(status: int, code: str | int = "", **headers: str) -> Script:
    return [
        reply(
            {"error": {"code": code, "message": f"{code} {VENDOR} {KEY}"}},
            status,
            zipped=False,
            **headers,
        )
    ]


def assert_discreet(
    recorder: Any, error: errors.PodwrightError | None, logged: str = ""
) -> None:
    """Nothing shows the key, and only the text of the error in Python the provider's words."""
    text = json.dumps([event.to_dict() for event in recorder.events]) + logged
    if error is not None:
        text += error.message + repr(error) + json.dumps(error.to_dict())
        text += str(error.__cause__) + str(error.__context__)
    assert KEY not in text + str(error)
    assert VENDOR not in text


# --- refusals

STATUSES: list[tuple[int, str | int, type[errors.ModelError], bool]] = [
    (400, "", errors.ModelRequestError, False),
    (400, "context_length_exceeded", errors.ContextWindowError, False),
    (400, "content_filter", errors.ContentFilterError, False),
    (401, "", errors.ModelAuthenticationError, False),
    (402, "", errors.ModelRateLimitError, False),
    (403, "", errors.ModelAuthenticationError, False),
    (403, "Your input was flagged", errors.ContentFilterError, False),
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
    (307, "", errors.ModelResponseError, False),
    (200, 429, errors.ModelRateLimitError, True),
]


@pytest.mark.parametrize(("status", "code", "kind", "transient"), STATUSES)
async def test_a_refusal_is_a_typed_error(
    client: Client,
    provider: Upstream,
    status: int,
    code: str | int,
    kind: type[errors.ModelError],
    transient: bool,
) -> None:
    """Each status, with the provider's code, is one typed error, which says whether another attempt can help."""
    provider.answers(refused(status, code, Retry_After="7"))
    with pytest.raises(errors.ModelError) as caught:
        await client.ask(provider)
    error = caught.value
    assert (type(error), error.transient) == (kind, transient)
    assert transient or error.retry_after is None
    assert client.name in error.message
    assert KEY not in str(error)


async def test_the_text_of_the_error_has_the_providers_words(
    client: Client, provider: Upstream
) -> None:
    """The error in Python says what the provider reported, without the key; its message and JSON data do not."""
    provider.answers(refused(400, "unsupported"))
    with pytest.raises(errors.ModelRequestError) as caught:
        await client.ask(provider)
    words = caught.value.provider_error or ""
    assert words.startswith("code: unsupported; ")
    assert VENDOR in words
    assert words in str(caught.value)
    assert KEY not in str(caught.value)
    assert VENDOR not in caught.value.message + json.dumps(
        caught.value.to_dict()
    )


# --- faults


@dataclass
class Fault:
    script: Script
    stream: Script
    error: type[errors.ModelError]
    repeated: bool = True


def lasting(
    script: Script, error: type[errors.ModelError], *, repeated: bool = True
) -> Fault:
    """A fault that is the same in a stream."""
    return Fault(script, script, error, repeated)


def invalid(body: Any, stream: Script) -> Fault:
    """A response that is no answer."""
    return Fault([reply(body)], stream, errors.ModelResponseError)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n"
HALF = [HEAD, b'{"cho']
NAMELESS = call(index=0, id="a", type="function", name="", arguments="{}")
HALF_CALL = sse(
    delta(
        tool_calls=[
            call(index=0, id="call_9", name="look_up", arguments='{"wo')
        ]
    ),
    {"note": VENDOR},
    done=False,
)
"""A tool call that has begun; none of it is handed out before its end."""
HALF_STREAM = [STREAM, chunk(HALF_CALL)]
SILENCE: Script = [pass_time, "hang"]

FAULTS = {
    "400": lasting(refused(400), errors.ModelRequestError, repeated=False),
    "429": lasting(refused(429), errors.ModelRateLimitError),
    "429 for a year": lasting(refused(429, Retry_After="31536000"), errors.ModelRateLimitError, repeated=False),
    "429 until 2100": lasting(
        refused(429, Retry_After="Fri, 31 Dec 2100 23:59:59 GMT"), errors.ModelRateLimitError, repeated=False
    ),
    "502 with a page": lasting([reply(f"<html>{VENDOR}".encode(), 502, "text/html")], errors.ModelUnavailableError),
    "503 that breaks off": lasting([HEAD.replace(b"200", b"503"), b"{", "close"], errors.ModelUnavailableError),
    "204": lasting([reply(b"", 204)], errors.ModelResponseError),
    "no first byte": lasting(SILENCE, errors.ModelTimeoutError),
    "headers alone": Fault([HEAD, *SILENCE], [STREAM, *SILENCE], errors.ModelTimeoutError),
    "no next byte": Fault([*HALF, *SILENCE], [*HALF_STREAM, *SILENCE], errors.ModelTimeoutError),
    "closed": lasting(["close"], errors.ModelConnectionError),
    "closed within the headers": lasting([HEAD[:30], "close"], errors.ModelConnectionError),
    "truncated": Fault([*HALF, "close"], [*HALF_STREAM, "close"], errors.ModelResponseError),
    "no HTTP": lasting([f"{VENDOR} {KEY}\r\n\r\n".encode(), "close"], errors.ModelResponseError),
    "bad compression": lasting([reply(VENDOR.encode(), Content_Encoding="gzip")], errors.ModelResponseError),
    "ended early": invalid(b'{"choices": [', [*HALF_STREAM, chunk(b"")]),
    "no JSON": invalid(VENDOR.encode(), streamed(f"data: {VENDOR}\n\n".encode())),
    "other JSON": invalid([VENDOR], streamed(sse([VENDOR]))),
    "no choices": invalid({"id": VENDOR, "choices": []}, streamed(sse({"choices": []}))),
    "no message": invalid(
        {"choices": [{"message": None}]}, streamed(sse({"choices": [{"message": None, "finish_reason": "stop"}]}))
    ),
    "no answer": invalid(completion(""), streamed(sse(delta("stop")))),
    "no name of a tool": invalid(
        completion(None, tool_calls=[NAMELESS]), streamed(sse(delta(tool_calls=[NAMELESS]), delta("tool_calls")))
    ),
}  # fmt: skip

TOOL_CALL = call(
    id="call_1", type="function", name="look_up", arguments='{"word": "sea"}'
)


def good(streaming: bool) -> Script:
    return streamed(STORY) if streaming else [reply(completion("Done."))]


def tool_turn(streaming: bool) -> Script:
    pieces = sse(
        delta(tool_calls=[{"index": 0, **TOOL_CALL}]), delta("tool_calls")
    )
    return (
        streamed(pieces)
        if streaming
        else [reply(completion(None, tool_calls=[TOOL_CALL]))]
    )


def agent_of(model: Any, recorder: Any, **options: Any) -> Agent:
    return Agent(
        "guide",
        "Help.",
        model,
        tools=[look_up],
        event_manager=recorder.manager,
        **options,
    )


@streaming_or_not
@pytest.mark.parametrize("name", FAULTS)
async def test_a_lasting_fault_is_a_typed_error(
    client: Client,
    name: str,
    streaming: bool,
    provider: Upstream,
    recorder: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A fault that lasts ends in its error, after three attempts if they can help, else after one."""
    fault = FAULTS[name]
    caplog.set_level("INFO")
    provider.answers(
        tool_turn(streaming), fault.stream if streaming else fault.script
    )
    agent = agent_of(client.model_at(provider.url, HALF_AN_HOUR), recorder)
    with pytest.raises(errors.ModelError) as caught:
        await agent.arun("The sea?", stream=streaming)
    tries = 3 if fault.repeated else 1
    assert type(caught.value) in client.errors_for(fault.error)
    assert len(provider.requests) == 1 + tries
    assert [event.tries for event in recorder.of("model_call_retried")] == list(
        range(1, tries)
    )
    assert len(recorder.of("model_call_failed")) == 1
    assert len(recorder.of("tool_call_finished")) == 1
    assert_discreet(recorder, caught.value, caplog.text)


@streaming_or_not
@pytest.mark.parametrize(
    "name", [name for name, fault in FAULTS.items() if fault.repeated]
)
async def test_a_passing_fault_is_survived(
    client: Client,
    name: str,
    streaming: bool,
    provider: Upstream,
    recorder: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A fault that passes costs an attempt and an event, and the answer is complete."""
    fault = FAULTS[name]
    caplog.set_level("INFO")
    provider.answers(
        fault.stream if streaming else fault.script, good(streaming)
    )
    result = await agent_of(
        client.model_at(provider.url, HALF_AN_HOUR), recorder
    ).arun("The sea?", stream=streaming, trace=True)
    assert result.value == ("Grüße, 世界 🌍!\n" if streaming else "Done.")
    if streaming:
        assert (
            "".join(event.text for event in recorder.of("token"))
            == result.value
        )
    assert provider.requests[0] == provider.requests[1]
    (retried,) = recorder.of("model_call_retried")
    assert retried.error["code"] in [
        error.code for error in client.errors_for(fault.error)
    ]
    assert result.usage.model_calls == 1
    assert_discreet(recorder, None, caplog.text)


BROKEN_OFF: dict[str, tuple[Script, type[errors.ModelError]]] = {
    "truncated": (["close"], errors.ModelResponseError),
    "ended": ([chunk(b"")], errors.ModelResponseError),
    "idle": ([pass_time, "hang"], errors.ModelTimeoutError),
    "error": (
        [chunk(sse({"error": {"message": VENDOR}})), chunk(b"")],
        errors.ModelUnavailableError,
    ),
    "no JSON": (
        [chunk(f"data: {VENDOR}\n\n".encode()), chunk(b"")],
        errors.ModelResponseError,
    ),
}


@pytest.mark.parametrize("name", BROKEN_OFF)
async def test_nothing_is_repeated_after_the_first_token(
    client: Client, name: str, provider: Upstream, recorder: Any
) -> None:
    """A stream that breaks off after a token was handed out is not begun again."""
    rest, kind = BROKEN_OFF[name]
    first_token = asyncio.Event()
    tokens: list[str] = []

    def on_token(token: str) -> None:
        tokens.append(token)
        first_token.set()

    provider.answers(
        [
            STREAM,
            chunk(sse(delta(content="Once "), done=False)),
            first_token,
            *rest,
        ],
        good(True),
    )
    model = client.model_at(provider.url, replace(NO_LIMITS, idle=HOUR / 2))
    with pytest.raises(errors.ModelError) as caught:
        await agent_of(model, recorder, on_token=on_token).arun(
            "A story!", stream=True
        )
    assert type(caught.value) in client.errors_for(kind)
    assert tokens == ["Once "]
    assert len(provider.requests) == 1
    assert_discreet(recorder, caught.value)


async def test_no_connection_is_tried_three_times(
    client: Client, recorder: Any
) -> None:
    """A closed port is an unreachable model after three attempts, if these have taken the time to connect."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        model = client.model_at(
            f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        )
        model.retries = replace(model.retries, connect_time=0.0)
        with pytest.raises(errors.ModelConnectionError):
            await agent_of(model, recorder).arun("Hello?")
    await close_clients_of_litellm()
    assert len(recorder.of("model_call_retried")) == 2


async def test_an_invalid_certificate_is_not_tried_again(
    client: Client, tmp_path: Path
) -> None:
    """A certificate that is not trusted is an error that names the setting, and is not repeated."""
    async with upstream(server_context(tmp_path)) as provider:
        with pytest.raises(errors.ModelConnectionError) as caught:
            await client.ask(provider)
    assert "SSL_CERT_FILE" in caught.value.suggestion
    assert not caught.value.transient


@pytest.mark.parametrize(
    "begun", [[], [STREAM, chunk(sse(delta(content="Once "), done=False))]]
)
async def test_cancelling_a_run_closes_the_connection(
    client: Client, begun: Script, provider: Upstream, recorder: Any
) -> None:
    """A caller who leaves ends the provider's work, whether it has begun to answer or not."""
    provider.answers([*begun, "hang"])
    token = asyncio.Event()
    agent = agent_of(
        client.model_at(provider.url), recorder, on_token=lambda _: token.set()
    )
    run = asyncio.create_task(agent.arun("Hello?", stream=True))
    async with asyncio.timeout(60):
        await (token if begun else provider.asked).wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        await provider.quiet()


# --- time


async def test_the_setting_timeout_replaces_the_limit_of_the_first_byte(
    client: Client, provider: Upstream, recorder: Any
) -> None:
    """A response that is not streamed may take as long as the setting says."""
    provider.answers([pass_time, *good(False)])
    model = client.model_at(provider.url, HALF_AN_HOUR)
    assert (
        await agent_of(model, recorder, timeout=2 * HOUR).arun("Hello?")
        == "Done."
    )


@streaming_or_not
async def test_the_setting_timeout_is_the_total_time(
    client: Client, streaming: bool, provider: Upstream, recorder: Any
) -> None:
    """A call that takes longer than the setting fails, and is not repeated."""
    provider.answers([pass_time, "hang"])
    with pytest.raises(errors.ModelTimeoutError):
        await agent_of(
            client.model_at(provider.url), recorder, timeout=HOUR / 2
        ).arun("Hello?", stream=streaming)
    assert len(provider.requests) == 1


@pytest.mark.parametrize("status", [408, 409, 429, 503])
async def test_a_provider_says_how_long_to_wait(
    client: Client, status: int, provider: Upstream, recorder: Any
) -> None:
    """The wait before the next attempt is that of `Retry-After`."""
    provider.answers(refused(status, Retry_After="0.02"), good(False))
    await agent_of(client.model_at(provider.url), recorder).arun("Hello?")
    (retried,) = recorder.of("model_call_retried")
    assert retried.wait_ms == 20.0
