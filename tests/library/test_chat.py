"""The direct lane, on real sockets: requests as providers want them, and answers however they come."""

import asyncio
import gc
import json
import os
import subprocess
import sys
import textwrap
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.library.upstream import (
    STORY,
    STORY_TEXT,
    STREAM,
    USAGE,
    Upstream,
    call,
    chunk,
    completion,
    delta,
    reply,
    sse,
    streamed,
)

from podwright import Agent, errors, models
from podwright.messages import Message, ModelRequest, OutputSchema, ToolCall, ToolSchema
from podwright.models import Connection, pool, resolve
from podwright.models.chat_completions import Events
from podwright.models.offline import estimate_input, estimate_tokens
from podwright.models.openai_compatible import ChatModel
from podwright.models.providers import ANY, ENDPOINTS
from podwright.usage import Usage

ASK = ModelRequest("openai/m", (Message("system", "Help."), Message("user", "Hello?")))
TOOL: ToolSchema = {
    "type": "function",
    "function": {"name": "look_up", "parameters": {"type": "object", "properties": {"word": {"type": "string"}}}},
}


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """No provider's variable of this machine counts, and no model is remembered."""
    for variable in list(os.environ):
        if variable.startswith("PODWRIGHT_MODEL") or variable.endswith(("_API_KEY", "_API_BASE", "_BASE_URL")):
            monkeypatch.delenv(variable)
    monkeypatch.setattr(models, "_resolved", {})


def model_at(provider: Upstream, name: str = "openai/m") -> ChatModel:
    return ChatModel(name, Connection("key", provider.url), ENDPOINTS.get(name.partition("/")[0], ANY))


async def test_a_question_and_its_answer(provider: Upstream) -> None:
    """The request has what was asked and nothing else; the answer has text, usage, model and id."""
    provider.answers([reply(completion("Hello."))])
    response = await model_at(provider, "openai/gpt-4o").complete(ASK)
    assert (response.text, response.finish_reason, response.model, response.id) == ("Hello.", "stop", "m-1", "c1")
    assert (response.usage.input_tokens, response.usage.output_tokens) == (20, 4)
    assert provider.requests == [
        {
            "model": "gpt-4o",
            "messages": [{"role": "system", "content": "Help."}, {"role": "user", "content": "Hello?"}],
        }
    ]
    assert provider.headers[0][":line"] == "POST /v1/chat/completions HTTP/1.1"
    assert provider.headers[0]["authorization"] == "bearer key"


async def test_a_request_with_everything(provider: Upstream) -> None:
    """Settings, tools, the tool that must be called, the schema and a past tool call travel in the protocol's form."""
    provider.answers([reply(completion())])
    messages = (
        Message("user", "The sea?"),
        Message("assistant", "", (ToolCall("c9", "look_up", ""),)),
        Message("tool", "Salty.", tool_call_id="c9"),
    )
    settings: Any = {
        "temperature": 0.5, "top_p": 0.9, "max_tokens": 50, "seed": 7, "stop": ["END"], "timeout": 9.0,
        "presence_penalty": 0.1, "frequency_penalty": 0.2, "parallel_tool_calls": False, "reasoning_effort": "low",
    }  # fmt: skip
    schema = OutputSchema("answer", {"type": "object"})
    await model_at(provider).complete(ModelRequest("openai/m", messages, (TOOL,), settings, schema, "look_up"))
    (sent,) = provider.requests
    assert {key: sent[key] for key in settings if key != "timeout"} == {
        key: value for key, value in settings.items() if key != "timeout"
    }
    assert "timeout" not in sent
    assert sent["tools"] == [TOOL]
    assert sent["tool_choice"] == {"type": "function", "function": {"name": "look_up"}}
    assert sent["response_format"] == {
        "type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}},
    }  # fmt: skip
    call_sent = {"id": "c9", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
    assert sent["messages"][1] == {"role": "assistant", "content": None, "tool_calls": [call_sent]}
    assert sent["messages"][2] == {"role": "tool", "content": "Salty.", "tool_call_id": "c9"}


@pytest.mark.parametrize(
    ("name", "settings", "sent"),
    [
        ("openai/gpt-4o", {"max_tokens": 9}, {"max_tokens": 9}),
        ("openai/o3-mini", {"max_tokens": 9}, {"max_completion_tokens": 9}),
        ("openai/gpt-5-nano", {"max_tokens": 9}, {"max_completion_tokens": 9}),
        ("mistral/m", {"seed": 1}, {"random_seed": 1}),
        ("openai/m", {"parallel_tool_calls": True}, {}),
    ],
)
async def test_settings_that_some_models_call_differently(
    name: str, settings: Any, sent: dict[str, Any], provider: Upstream
) -> None:
    """A setting goes out under the name that the model knows it by, and only where it means something."""
    provider.answers([reply(completion())])
    await model_at(provider, name).complete(ModelRequest(name, ASK.messages, settings=settings))
    assert {key: value for key, value in provider.requests[0].items() if key not in ("model", "messages")} == sent


async def test_text_that_is_no_unicode_and_a_large_request(provider: Upstream) -> None:
    """Half a surrogate pair goes out as JSON all the same, and so does a megabyte."""
    provider.answers([reply(completion())])
    await model_at(provider).complete(ModelRequest("openai/m", (Message("user", "\ud83d" + "x" * 2**20),)))
    assert provider.requests[0]["messages"][0]["content"] == "\ud83d" + "x" * 2**20


async def stream(model: ChatModel, request: ModelRequest = ASK) -> tuple[list[str], Any]:
    tokens: list[str] = []
    return tokens, await model.complete(request, tokens.append)


async def test_a_stream_split_at_every_byte(provider: Upstream) -> None:
    """Wherever the network cuts a stream, in a character or between two line ends, tokens and text are the same."""
    whole = ["Grüße", ", ", "世界", " 🌍", "!\n"]
    model = model_at(provider)
    for end in ("\n", "\r\n", "\r"):
        story = sse(
            delta(role="assistant", content=""), *(delta(content=text) for text in whole), delta("stop"),
            {"choices": [], "usage": USAGE}, end=end,
        )  # fmt: skip
        for offset in range(1, len(story)):
            provider.answers(streamed(story, offset))
            tokens, response = await stream(model)
            assert (tokens, response.text) == (whole, STORY_TEXT), (end, offset)
            assert (response.usage.input_tokens, response.usage.output_tokens) == (20, 4), (end, offset)
    provider.answers(streamed(STORY, *range(1, len(STORY))))
    assert (await stream(model))[0] == whole
    assert provider.connections == 1
    assert provider.requests[0]["stream_options"] == {"include_usage": True}


async def test_tokens_reach_callbacks_as_they_come(provider: Upstream) -> None:
    """A token is handed out when it arrives, not when the answer ends."""
    first, second = sse(delta(content="one"), done=False), sse(delta(content=" two"), delta("stop"))
    provider.answers([STREAM, chunk(first), 0.2, chunk(second), chunk(b"")])
    times: list[float] = []
    loop = asyncio.get_running_loop()
    agent = Agent(name="a", instructions="", model=model_at(provider), on_token=lambda _: times.append(loop.time()))
    assert await agent.arun("Hello?", stream=True) == "one two"
    assert times[1] - times[0] > 0.1


def test_events_of_every_form() -> None:
    """Comments, other fields, many data lines, a byte order mark and a missing end are read as the standard says."""
    text = b"\xef\xbb\xbf: hi\r\nevent: x\nid: 3\ndata:a\ndata: b\rdata:  c\r\n\r\n\n\n: keep-alive\n\ndata\n\ndata: d"
    whole = Events()
    assert whole.feed(text) == [b"a\nb\n c"]
    assert whole.feed(b"") == [b"d"]
    for size in range(1, 9):
        events = Events()
        pieces = [text[start:stop] for start, stop in pairwise([*range(0, len(text), size), len(text)])]
        found = [data for piece in [*pieces, b""] for data in events.feed(piece)]
        assert found == [b"a\nb\n c", b"d"], size


CALLS = (
    ToolCall("call_a", "look_up", '{"word": "sea"}'),
    ToolCall("call_b", "look_up", '{"word": "sky"}'),
)


def pieces(*groups: Any) -> list[Any]:
    return [delta(tool_calls=list(group) if isinstance(group, tuple) else [group]) for group in groups]


IN_PIECES = {
    "as documented": pieces(
        call(index=0, id="call_a", type="function", name="look_up", arguments=""),
        call(index=0, arguments='{"word"'), call(index=0, arguments=': "sea"}'),
        call(index=1, id="call_b", type="function", name="look_up", arguments=""),
        call(index=1, arguments='{"word": "sky"}'),
    ),
    "interleaved": pieces(
        call(index=0, id="call_a", name="look_up"), call(index=1, id="call_b", name="look_up"),
        (call(index=1, arguments='{"word": '), call(index=0, arguments='{"word": ')),
        (call(index=0, arguments='"sea"}'), call(index=1, arguments='"sky"}')),
    ),
    "no index": pieces(
        call(id="call_a", name="look_up", arguments='{"word": '), call(arguments='"sea"}'),
        call(id="call_b", name="look_up", arguments='{"word": '), call(arguments='"sky"}'),
    ),
    "one index for all": pieces(
        call(index=0, id="call_a", name="look_up", arguments='{"word": "sea"}'),
        call(index=0, id="call_b", name="look_up", arguments='{"word": "sky"}'),
    ),
    "id and name in each piece": pieces(
        call(index=0, id="call_a", name="look_up", arguments='{"word": '),
        call(index=1, id="call_b", name="look_up", arguments='{"word": "sky"}'),
        call(index=0, id="call_a", name="look_up", arguments='"sea"}'),
    ),
    "name in pieces": pieces(
        call(index=0, id="call_a", name="look"), call(index=0, name="_up"), call(index=0, arguments='{"word": "sea"}'),
        call(index=1, id="call_b", name="look_up", arguments='{"word": "sky"}'),
    ),
    "nulls": pieces(
        call(index=0, id="call_a", name="look_up", arguments=None), call(index=0, id=None, name=None, arguments="{"),
        call(index=0, arguments='"word": "sea"}'),
        (call(index=1, id="call_b", name="look_up", arguments='{"word": "sky"}'),),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", IN_PIECES)
async def test_tool_calls_in_pieces(name: str, provider: Upstream) -> None:
    """Two parallel calls are put together from whatever pieces a vendor makes of them."""
    provider.answers(streamed(sse(delta(role="assistant", content=None), *IN_PIECES[name], delta("tool_calls"))))
    tokens, response = await stream(model_at(provider))
    assert response.tool_calls == CALLS
    assert (tokens, response.text, response.finish_reason) == ([], "", "tool_calls")


@pytest.mark.parametrize("arguments", ['{"word":"sea"}', {"word": "sea"}])
@pytest.mark.parametrize("streaming", [False, True])
async def test_tool_calls_without_ids(streaming: bool, arguments: Any, provider: Upstream) -> None:
    """A call without an id is given one of its own, and arguments that are an object become its text."""
    calls = [call(name="look_up", arguments=arguments), call(name="look_up", arguments=arguments)]
    provider.answers(
        streamed(sse(delta(tool_calls=calls), delta("stop"))) if streaming else [reply(completion(tool_calls=calls))]
    )
    model = model_at(provider)
    response = (await stream(model))[1] if streaming else await model.complete(ASK)
    assert [(one.name, one.arguments) for one in response.tool_calls] == [("look_up", '{"word":"sea"}')] * 2
    assert len({one.id for one in response.tool_calls} - {""}) == 2
    assert response.finish_reason == "tool_calls"


PLAIN = {
    "null content": (completion(None), ""),
    "extra fields": ({**completion("Hi."), "object": 1, "x": {"y": []}, "service_tier": None, "error": None}, "Hi."),
    "content in parts": (completion([{"type": "thinking", "thinking": []}, {"type": "text", "text": "Hi."}]), "Hi."),  # pyright: ignore[reportArgumentType]
    "a refusal": (completion(None, refusal="No."), "No."),
    "no reason": ({"choices": [{"message": {"content": "Hi."}}], "usage": USAGE}, "Hi."),
    "its own reason": ({"choices": [{"message": {"content": "Hi."}, "finish_reason": "eos"}], "usage": USAGE}, "Hi."),
    "null tool calls": (completion("Hi.", tool_calls=None, function_call=None, audio=None), "Hi."),
    "numbers for names": ({**completion("Hi."), "id": 7, "model": None}, "Hi."),
}  # fmt: skip


@pytest.mark.parametrize("name", PLAIN)
async def test_whole_answers_that_vendors_vary(name: str, provider: Upstream) -> None:
    """What a vendor leaves out or adds does not break an answer."""
    body, text = PLAIN[name]
    provider.answers([reply(b"\n \n" + json.dumps(body).encode())])
    response = await model_at(provider).complete(ASK)
    assert (response.text, response.finish_reason, response.usage.total_tokens) == (text, "stop", 24)


END = delta("stop")
STREAMS = {
    "no DONE": sse(delta(content="Hi."), END, done=False),
    "no last empty line": sse(delta(content="Hi."), END, done=False)[:-2],
    "DONE without an empty line": sse(delta(content="Hi."), END) [:-2],
    "comments": b": wait\n\n" + sse(delta(content="Hi."), done=False) + b":\n\n: OPENROUTER PROCESSING\n\n" + sse(END),
    "no reason but DONE": sse(delta(content="Hi.")),
    "a first piece without choices": sse({"choices": [], "prompt_filter_results": []}, delta(content="Hi."), END),
    "null choices and delta": sse({"choices": None}, delta(content="Hi."), {"choices": [{"delta": None}]}, END),
    "a message at the end": sse(delta(content="Hi."), {"choices": [{"message": {}, "finish_reason": "stop"}]}),
    "reason with the text": sse(delta("stop", content="Hi.")),
    "empty and null texts": sse(delta(content=""), delta(content="Hi."), delta(content=None), END),
    "reasoning beside the text": sse(delta(reasoning_content="Hm."), delta(content="Hi."), END),
    "after DONE": sse(delta(content="Hi."), END) + sse(delta(content="more")),
}  # fmt: skip


@pytest.mark.parametrize("name", STREAMS)
async def test_streams_that_vendors_vary(name: str, provider: Upstream) -> None:
    """What a vendor leaves out or adds does not break a stream."""
    provider.answers(streamed(STREAMS[name]))
    tokens, response = await stream(model_at(provider))
    assert (tokens, response.text, response.finish_reason) == (["Hi."], "Hi.", "stop")


async def test_a_stream_that_is_none(provider: Upstream) -> None:
    """A server that answers a request for a stream with a whole answer is understood."""
    provider.answers([reply(completion("Hi."))])
    tokens, response = await stream(model_at(provider))
    assert (tokens, response.text, response.usage.total_tokens) == (["Hi."], "Hi.", 24)


async def test_a_stream_that_lingers(provider: Upstream) -> None:
    """A connection that stays open after the last event does not hold the answer up."""
    provider.answers([STREAM, chunk(STORY), "hang"])
    async with asyncio.timeout(20):
        assert (await stream(model_at(provider)))[1].text == STORY_TEXT


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        {"prompt_tokens": None},
        {"prompt_tokens": "many"},
        {"prompt_tokens": -50, "completion_tokens": 4},
        {"prompt_tokens": 20, "completion_tokens": -5},
        {"prompt_tokens": 20, "completion_tokens": 10**30},
        "none",
    ],
)
async def test_missing_usage_is_estimated_and_has_no_price(usage: Any, streaming: bool, provider: Upstream) -> None:
    """Without counts, tokens are estimated, and the cost is unknown even where the price is known."""
    text = "Hello, you!"
    script = streamed(sse(delta(content=text), delta("stop"), {"choices": [], "usage": usage}))
    provider.answers(script if streaming else [reply(completion(text, usage))])
    agent = Agent(name="a", instructions="Help.", model=model_at(provider, "openai/gpt-4o"))
    result = await agent.arun("Hello?", stream=streaming, trace=True)
    sent = estimate_input(ModelRequest("openai/gpt-4o", ASK.messages))
    assert (result.usage.input_tokens, result.usage.output_tokens) == (sent, estimate_tokens(text))
    assert (result.usage.cost, result.usage.unpriced_model_calls) == (None, 1)


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("openai/m", {"prompt_tokens_details": {"cached_tokens": 8}}, Usage(20, 4, 8, cost=None)),
        ("openai/m", {"completion_tokens_details": {"reasoning_tokens": 3}}, Usage(20, 4, 0, 3, cost=None)),
        ("openai/m", {"prompt_tokens_details": {"cached_tokens": -8}}, Usage(20, 4, cost=None)),
        ("openai/m", {"completion_tokens_details": {"reasoning_tokens": -3}}, Usage(20, 4, cost=None)),
        ("openai/m", {"prompt_tokens_details": None, "completion_tokens_details": None}, Usage(20, 4, cost=None)),
        ("deepseek/m", {"prompt_cache_hit_tokens": 5, "prompt_cache_miss_tokens": 15}, Usage(20, 4, 5, cost=None)),
        ("xai/m", {"total_tokens": 33, "completion_tokens_details": {"reasoning_tokens": 9}},
         Usage(20, 13, 0, 9, cost=None)),
        ("openrouter/m", {"cost": 0.25}, Usage(20, 4, cost=0.25)),
        ("perplexity/m", {"cost": {"total_cost": 0.5}}, Usage(20, 4, cost=0.5)),
        ("openai/m", {"cost": 0.25}, Usage(20, 4, cost=None)),
        ("openrouter/m", {"cost": None}, Usage(20, 4, cost=None)),
    ],
)  # fmt: skip
async def test_usage_in_the_words_of_vendors(name: str, given: Any, expected: Usage, provider: Upstream) -> None:
    """Cached and reasoning tokens are read wherever they stand; a reported cost counts where it is in USD."""
    provider.answers([reply(completion(usage={**USAGE, **given}))])
    assert (await model_at(provider, name).complete(ASK)).usage == expected


async def test_usage_in_the_last_piece_of_groq(provider: Upstream) -> None:
    """Usage that stands in a field of the vendor's own counts too."""
    provider.answers(streamed(sse(delta(content="Hi."), {**delta("stop"), "x_groq": {"usage": USAGE}})))
    assert (await stream(model_at(provider, "groq/m")))[1].usage.total_tokens == 24


@pytest.mark.parametrize(
    ("reason", "kind"), [("length", errors.ModelError), ("content_filter", errors.ContentFilterError)]
)
async def test_an_answer_that_was_stopped_fails_the_run_and_is_counted(
    reason: str, kind: type[Exception], provider: Upstream
) -> None:
    """An answer that was cut off or filtered is no success, and its tokens are counted."""
    body = completion("Half an ans")
    body["choices"][0]["finish_reason"] = reason
    provider.answers([reply(body)])
    agent = Agent(name="a", instructions="", model=model_at(provider))
    with pytest.raises(kind):
        await agent.arun("Hello?")
    assert agent.last_usage.total_tokens == 24
    assert len(provider.requests) == 1


class Place(BaseModel):
    name: str
    depth: int


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("name", ["openai/m", "deepseek/m"])
async def test_structured_output(name: str, streaming: bool, provider: Upstream) -> None:
    """A response model goes out as a JSON Schema, or as a tool where the provider takes none."""
    text = '{"name": "sea", "depth": 3}'
    by_tool = [call(id="c1", name="final_answer", arguments=text)]
    whole = completion(text) if name == "openai/m" else completion(None, tool_calls=by_tool)
    pieces = delta(content=text) if name == "openai/m" else delta(tool_calls=by_tool)
    provider.answers(streamed(sse(pieces, delta("stop"))) if streaming else [reply(whole)])
    agent = Agent(name="a", instructions="", model=model_at(provider, name))
    assert await agent.arun("The sea?", Place, stream=streaming) == Place(name="sea", depth=3)
    (sent,) = provider.requests
    if name == "openai/m":
        assert sent["response_format"]["json_schema"]["schema"]["required"] == ["name", "depth"]
    else:
        assert sent["tools"][0]["function"]["parameters"]["required"] == ["name", "depth"]


@pytest.mark.parametrize("before", [["hang"], [STREAM, chunk(sse(delta(content="Once "), done=False)), "hang"]])
async def test_cancelling_closes_the_connection_at_once(before: Any, provider: Upstream) -> None:
    """A caller who leaves ends the provider's work within a moment, whether it has begun to answer or not."""
    provider.answers(before)
    agent = Agent(name="a", instructions="", model=model_at(provider))
    run = asyncio.create_task(agent.arun("Hello?", stream=True))
    async with asyncio.timeout(30):
        while not provider.requests:  # noqa: ASYNC110 - it is told by no event
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    assert provider.open == 1
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    async with asyncio.timeout(30):
        await provider.quiet()


async def test_two_hundred_calls_at_once(provider: Upstream) -> None:
    """Calls do not wait for each other, each gets its own answer, and connections are used again."""
    provider.answers([asyncio.Barrier(200), reply(completion())])
    model = model_at(provider)
    async with asyncio.timeout(60):
        for _ in range(2):
            answers = await asyncio.gather(*(model.complete(ASK) for _ in range(200)))
            assert [one.text for one in answers] == ["Hi."] * 200
    assert len(provider.requests) == 400
    assert provider.connections == 200


async def test_no_redirect_cookie_or_proxy_is_followed(provider: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the base URL says where a request goes, and nothing of one answer goes into the next request."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    provider.answers([reply(completion(), Set_Cookie="who=you; Path=/")])
    model = model_at(provider)
    for _ in range(2):
        await model.complete(ASK)
    assert all("cookie" not in headers for headers in provider.headers)


def in_a_process(code: str, *flags: str, **environment: str) -> str:
    run = subprocess.run(
        [sys.executable, *flags, "-c", textwrap.dedent(code)],
        capture_output=True, text=True, timeout=20, env={**os.environ, **environment},
    )  # fmt: skip
    assert run.stderr == ""
    assert run.returncode == 0
    return run.stdout.strip()


SERVED = """
    import asyncio, gc, os, sys, threading, time
    from tests.library.upstream import *
    from podwright import Agent
    from podwright.messages import *
    started = threading.Event()
    served = {}
    async def serve():
        async with upstream() as serving:
            serving.answers([reply(completion())])
            served["at"] = serving
            started.set()
            await asyncio.sleep(60)
    threading.Thread(target=lambda: asyncio.run(serve()), daemon=True).start()
    started.wait()
    agent = Agent(name="a", instructions="", model="openai/gpt-4o", api_key="k", base_url=served["at"].url)
"""


def test_connections_end_with_their_loops() -> None:
    """Each loop has its own connections, which are closed with it; nothing is left to complain about at the end."""
    code = """
    from podwright.models import pool
    for _ in range(3):
        assert asyncio.run(agent.arun("Hello?")) == "Hi."
        assert not pool._pools and not pool._keepers
    assert agent.run("Hello?") == "Hi." == agent.run("Hello?")
    gc.collect()
    print(served["at"].connections)
    """
    assert in_a_process(SERVED + code, "-W", "error") == "4"


def test_loops_that_are_not_shut_down_leave_nothing_behind() -> None:
    """A loop that was closed without its generators, or not at all, costs no socket and no complaint."""
    code = """
    from podwright.models import pool
    for _ in range(5):
        loop = asyncio.new_event_loop()
        assert loop.run_until_complete(agent.arun("Hello?")) == "Hi."
        loop.close()
        del loop
        gc.collect()
    assert len(pool._pools) == 1
    open_files = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc") else 0
    for _ in range(5):
        loop = asyncio.new_event_loop()
        assert loop.run_until_complete(agent.arun("Hello?")) == "Hi."
        loop.close()
        del loop
        gc.collect()
    # the other end is in this process too, and its loop learns a moment later that a connection is closed
    for _ in range(200):
        if open_files == 0 or (now := len(os.listdir("/proc/self/fd"))) <= open_files:
            break
        time.sleep(0.05)
    else:
        raise AssertionError(f"{now} files are open, {open_files} were")
    loop = asyncio.new_event_loop()
    assert loop.run_until_complete(agent.arun("Hello?")) == "Hi."
    """
    in_a_process(SERVED + code)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_has_connections_of_its_own() -> None:
    """After a fork, parent and child both go on, and neither disturbs the other's connections."""
    code = """
    assert agent.run("Hello?") == "Hi."
    child = os.fork()
    if not child:
        os._exit(0 if agent.run("Hello?") == "Hi." else 1)
    assert agent.run("Hello?") == "Hi."
    assert os.waitpid(child, 0)[1] == 0
    assert agent.run("Hello?") == "Hi."
    print(served["at"].connections)
    """
    assert in_a_process(SERVED + code) == "2"


def test_importing_the_library_imports_no_client() -> None:
    """What speaks to providers is imported when a model of that lane is first named."""
    code = """
    import sys
    import podwright
    agent = podwright.Agent(name="a", instructions="", model="offline/echo")
    agent.run("Hello?")
    assert not {"httptools", "orjson", "litellm", "genai_prices"} & set(sys.modules)
    podwright.Agent(name="a", instructions="", model="openai/gpt-4o").model
    assert "httptools" in sys.modules and not {"aiohttp", "litellm"} & set(sys.modules)
    """
    in_a_process(code)


@pytest.mark.parametrize("name", ENDPOINTS)
async def test_every_provider_by_its_variables(name: str, provider: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each provider's own variables say its key and its base URL; without a key its own endpoint is not asked."""
    endpoint = ENDPOINTS[name]
    if endpoint.url.startswith("https://"):
        with pytest.raises(errors.ModelAuthenticationError, match=endpoint.keys[0]):
            await resolve(f"{name}/m").complete(ASK)
    elif not endpoint.url:
        with pytest.raises(errors.ConfigurationError, match=endpoint.urls[0]):
            await resolve(f"{name}/m").complete(ASK)
    assert resolve(f"{name}/m").json_output is endpoint.json_schema
    provider.answers([reply(completion())])
    for key, url in zip(endpoint.keys, endpoint.urls * 4, strict=False):
        models._resolved.clear()
        monkeypatch.setenv(key, f"key-of-{name}\n")
        monkeypatch.setenv(url, provider.url.removesuffix(endpoint.suffix) + "/")
        assert (await resolve(f"{name}/m").complete(ASK)).text == "Hi."
        assert provider.headers[-1]["authorization"] == f"bearer key-of-{name}"
        assert provider.headers[-1][":line"] == "POST /v1/chat/completions HTTP/1.1"
        assert provider.requests[-1]["model"] == f"{endpoint.model_prefix}m"
        monkeypatch.delenv(key)


async def test_one_endpoint_for_all(provider: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    """PODWRIGHT_MODEL_BASE_URL takes every model of the network there, with its own key and no other."""
    monkeypatch.setenv("PODWRIGHT_MODEL_BASE_URL", provider.url)
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-openai")
    provider.answers([reply(completion())])
    for name in ("openai/m", "anthropic/m", "mistral/m", "nobody/m"):
        model = resolve(name)
        assert isinstance(model, ChatModel)
        await model.complete(ASK)
        assert "authorization" not in provider.headers[-1]
        assert provider.requests[-1]["model"] == "m"
    models._resolved.clear()
    monkeypatch.setenv("PODWRIGHT_MODEL_API_KEY", "key-for-all")
    await resolve("anthropic/m").complete(ASK)
    assert provider.headers[-1]["authorization"] == "bearer key-for-all"
    await resolve("anthropic/m", None, Connection("my-own")).complete(ASK)
    assert provider.headers[-1]["authorization"] == "bearer my-own"
    assert resolve("offline/echo").name == "offline/echo"


async def test_a_component_says_where_before_the_environment_does(
    provider: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`api_key` and `base_url` of a component win."""
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-openai")
    for variable in ("OPENAI_BASE_URL", "PODWRIGHT_MODEL_BASE_URL"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9/v1")
    provider.answers([reply(completion())])
    agent = Agent(name="a", instructions="", model="openai/gpt-4o", api_key="mine", base_url=provider.url)
    assert await agent.arun("Hello?") == "Hi."
    assert provider.headers[-1]["authorization"] == "bearer mine"


def test_the_lane_is_chosen_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """`direct` refuses what it has not, and a wrong lane is one clear error."""
    monkeypatch.setenv("PODWRIGHT_MODEL_LANE", "direct")
    assert isinstance(resolve("openai/m"), ChatModel)
    with pytest.raises(errors.UnknownModelError, match=r"'opneai'.*\n.*'openai'"):
        resolve("opneai/m")
    assert isinstance(resolve("opneai/m", None, Connection(None, "http://localhost")), ChatModel)
    monkeypatch.setenv("PODWRIGHT_MODEL_LANE", "fast")
    with pytest.raises(errors.ConfigurationError, match=r"'fast'.*\n.*auto, direct, wide"):
        resolve("groq/m")
    for name in ("m", "/m", "openai/", ""):
        with pytest.raises(errors.UnknownModelError):
            resolve(name)


@pytest.mark.parametrize(
    "url",
    [
        "api.openai.com/v1",
        "ftp://host/v1",
        "https://",
        "https://me:pass@host/v1",
        "http://[/",
        "https://host/v1?key=pass",
    ],
)
async def test_a_base_url_that_is_none_is_refused_and_not_shown(url: str) -> None:
    """A base URL must be one, and have no password in it."""
    with pytest.raises(errors.ConfigurationError) as caught:
        await ChatModel("openai/m", Connection("key", url)).complete(ASK)
    assert "pass" not in str(caught.value)


def test_a_base_url_for_all_models_is_looked_at_before_the_first_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a service with a wrong one does not start."""
    for lane in ("direct", "wide"):
        monkeypatch.setenv("PODWRIGHT_MODEL_LANE", lane)
        monkeypatch.setenv("PODWRIGHT_MODEL_BASE_URL", "me:pass@vendor/v1")
        with pytest.raises(errors.ConfigurationError, match="PODWRIGHT_MODEL_BASE_URL is no URL") as caught:
            resolve(f"openai/looked-at-{lane}")
        assert "pass" not in str(caught.value)
        own = Connection("key", "http://localhost/v1")
        assert resolve(f"openai/looked-at-{lane}", None, own).name == f"openai/looked-at-{lane}"


async def test_a_key_that_is_none_is_refused_and_not_shown(provider: Upstream) -> None:
    """A key with a line break inside never reaches a header."""
    with pytest.raises(errors.ModelAuthenticationError) as caught:
        await ChatModel("openai/m", Connection("key\r\nX: y", provider.url)).complete(ASK)
    assert "X: y" not in str(caught.value)
    assert "key\r" not in repr(Connection("key\r\nX: y"))


def test_no_pool_outlives_its_loop() -> None:
    """After a test's loop has ended, its connections are gone."""
    gc.collect()
    assert not pool._pools


def test_the_reference_has_every_provider() -> None:
    """The table in the reference is the one in the code."""
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text()
    for name, endpoint in ENDPOINTS.items():
        keys, urls = (", ".join(f"`{one}`" for one in variables) for variables in (endpoint.keys, endpoint.urls))
        assert f"| `{name}` | {keys} | {urls} | {endpoint.url or '(none)'} |" in page
