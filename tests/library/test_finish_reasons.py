"""Why an answer ended: the words of providers, by each client, whole and streamed; and refusals."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.library import claude
from tests.library.model_clients import openai_compatible
from tests.library.upstream import (
    Part,
    Script,
    Upstream,
    call,
    completion,
    delta,
    reply,
    sse,
    streamed,
)

from podwright import (
    Agent,
    AgentStep,
    Conductor,
    FunctionModel,
    Pipeline,
    ScriptedModel,
    TryStep,
    Workflow,
    errors,
    tool,
)
from podwright.data.finish_reasons import FINISH_REASONS, ending_of
from podwright.events import (
    ErrorCaught,
    EventManager,
    ModelCallFinished,
    ModelCallStarted,
    RunFailed,
    RunFinished,
)
from podwright.messages.messages import ModelResponse, ToolCall
from podwright.models import Connection, Model
from podwright.models.litellm.model import LiteLLMModel
from podwright.models.protocols.anthropic import MessagesModel
from podwright.models.providers import ENDPOINTS
from podwright.models.replay import RecordingModel, ReplayModel
from podwright.models.retries import Retries
from podwright.run.result import ExecutionResult

# LiteLLM and what it imports warn about their own code
pytestmark = pytest.mark.filterwarnings("ignore")

TEXT = "Once upon a time"
NO = "I'm sorry, I cannot help with that."
VARIABLE = "PODWRIGHT_MODEL_UNKNOWN_FINISH_REASON"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"category": {"enum": ["refund", "question"]}},
    "required": ["category"],
    "additionalProperties": False,
}
SOON = Retries(tries=2, first_wait=0.001)

STOP = "stop"
UNKNOWN = "unknown"
CUT = errors.ModelError
FILTERED = errors.ContentFilterError
REFUSED = errors.ModelRefusedError
FAILED = (
    errors.ModelConnectionError,  # LiteLLM's word for errors of a stream
    errors.ModelUnavailableError,
    errors.ModelResponseError,
    errors.ModelToolCallError,
    errors.ModelTimeoutError,
)
REASONS: dict[str, Any] = {
    **dict.fromkeys(
        ("stop", "STOP", "Stop", "end_turn", "END_TURN", "stop_sequence", "COMPLETE", "STOP_SEQUENCE", "eos",
         "eos_token", "FINISHED", "STOP_CRITERIA_MET", "completed", "FinishReason.STOP", "REASON_STOP", "endTurn",
         "end-turn", "normal", "endoftext", "eosFound"),
        STOP,
    ),
    **dict.fromkeys(
        ("length", "LENGTH", "max_tokens", "MAX_TOKENS", "maxTokens", "model_length", "max_output_tokens",
         "model_context_window_exceeded", "REASON_MAX_LEN", "REASON_MAX_CONTEXT", "FinishReason.MAX_TOKENS",
         "token_limit", "contextLengthReached", "maximum_tokens"),
        CUT,
    ),
    **dict.fromkeys(
        ("content_filter", "CONTENT_FILTERED", "content_filtered", "SAFETY", "RECITATION", "BLOCKLIST",
         "PROHIBITED_CONTENT", "SPII", "LANGUAGE", "OTHER", "IMAGE_SAFETY", "guardrail_intervened", "ERROR_TOXIC",
         "sensitive", "content_filter: RECITATION"),
        FILTERED,
    ),
    **dict.fromkeys(("refusal", "REFUSAL"), REFUSED),
    **dict.fromkeys(
        ("error", "ERROR", "abort", "cancelled", "MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL",
         "MALFORMED_RESPONSE", "insufficient_system_resource", "FINISH_REASON_UNSPECIFIED", "network_error",
         "repetition", "REASON_TIME_LIMIT", "not_finished", "TOO_MANY_TOOL_CALLS", "userStopped"),
        FAILED,
    ),
    **dict.fromkeys(
        ("a_word_to_come", "Vorbei", "konec", "load", "x" * 500, "\x1b[31mred", "tool_calls", "tool_use",
         "function_call", "STOPPED_BY_MARTIANS"),
        UNKNOWN,
    ),
}  # fmt: skip
"""What words of providers mean for a text; the last ones are calls of tools that did not come."""


@dataclass(frozen=True)
class Client:
    """A client of a provider that answers as it is told."""

    make: Callable[[str], Model]
    whole: Callable[[str | None], Any]
    stream: Callable[[str | None], list[Part]]
    renames: bool = False
    """Whether a library between us and the provider may say another word, such as LiteLLM."""
    streams: bool = True
    """Whether that library hands on the words of a stream at all."""

    def script(self, reason: str | None, *, streaming: bool) -> Script:
        if streaming:
            return self.stream(reason)
        return [reply(self.whole(reason))]


def openai_whole(reason: str | None) -> Any:
    body = completion(TEXT)
    body["choices"][0]["finish_reason"] = reason
    return body


def openai_stream(reason: str | None) -> list[Part]:
    chunks = [delta(content=TEXT[:5]), delta(content=TEXT[5:])]
    return streamed(sse(*chunks, delta(reason)))


def claude_whole(reason: str | None) -> Any:
    answer = claude.message(claude.text(TEXT))
    return {**answer, "stop_reason": reason}


def claude_stream(reason: str | None) -> list[Part]:
    events = claude.events(claude_whole(reason))
    return streamed(*(claude.framed(event) for event in events))


def at(kind: Callable[[str, Connection], Model], name: str) -> Any:
    def make(url: str) -> Model:
        return kind(name, Connection("sk-a-key-of-a-test", url))

    return make


def claude_at(url: str) -> Model:
    return MessagesModel(
        f"anthropic/{claude.MODEL}",
        Connection("sk-ant-key", url),
        ENDPOINTS["anthropic"],
    )


CLIENTS = {
    "openai": Client(at(openai_compatible, "openai/m"), openai_whole, openai_stream),
    "mistral": Client(at(openai_compatible, "mistral/m"), openai_whole, openai_stream),
    "anthropic": Client(claude_at, claude_whole, claude_stream),
    "litellm-vllm": Client(at(LiteLLMModel, "hosted_vllm/m"), openai_whole, openai_stream, renames=True, streams=False),
    "litellm-openai": Client(at(LiteLLMModel, "openai/m"), openai_whole, openai_stream, renames=True),
}  # fmt: skip
streaming_or_not = pytest.mark.parametrize(
    "streaming", [False, True], ids=["whole", "streamed"]
)
by_client = pytest.mark.parametrize(
    ("client", "streaming"),
    [
        pytest.param(client, streaming, id=f"{name}-{streaming}")
        for name, client in CLIENTS.items()
        for streaming in (False, True)
        if client.streams or not streaming
    ],
)


async def run(
    model: Model, *, streaming: bool = False, **options: Any
) -> ExecutionResult:
    model.retries = SOON
    return await Agent("guide", "Help.", model).arun(
        "Go on.", stream=streaming, trace=True, **options
    )


def responses(result: ExecutionResult) -> Iterator[ModelResponse]:
    for event in result.events:
        if isinstance(event, ModelCallFinished):
            yield event.response


async def check(
    model: Model, word: str, *, streaming: bool, renames: bool = False
) -> None:
    """Check what becomes of an answer that ends with a word."""
    meaning = REASONS[word]
    if isinstance(meaning, str):
        result = await run(model, streaming=streaming)
        (response,) = responses(result)
        assert result.value == TEXT
        assert (response.finish_reason, result.finish_reason) == (
            meaning,
            meaning,
        )
        if meaning == UNKNOWN and not renames:
            kept = response.provider_finish_reason
            assert kept[:8] == word.replace("\x1b", "\ufffd")[:8]
            assert len(kept) <= 64
        if meaning == STOP:
            assert response.provider_finish_reason == ""
        return
    with pytest.raises(errors.ModelError) as caught:
        await run(model, streaming=streaming)
    assert isinstance(caught.value, meaning)
    if meaning not in (CUT, FAILED):
        assert type(caught.value) is meaning


@by_client
@pytest.mark.parametrize("word", REASONS)
async def test_a_word_of_a_provider(
    word: str, client: Client, streaming: bool, provider: Upstream
) -> None:
    """By every client, a word means the same, and one that is not known is no `stop`."""
    provider.answers(client.script(word, streaming=streaming))
    model = client.make(provider.url)
    await check(model, word, streaming=streaming, renames=client.renames)
    calls = 1
    # what a reader has seen is not repeated
    if REASONS[word] == FAILED and not streaming:
        calls = 2
    assert len(provider.requests) == calls


@pytest.mark.parametrize("word", REASONS)
async def test_a_word_of_a_model_of_ones_own(word: str) -> None:
    """The same holds for models that are not clients of ours, and for those that replay a recording of them."""
    model = FunctionModel(lambda _: ModelResponse(TEXT, finish_reason=word))
    await check(model, word, streaming=False)


@pytest.mark.parametrize("word", [word for word in REASONS if isinstance(REASONS[word], str)])  # fmt: skip
async def test_a_word_in_a_recording(
    word: str, provider: Upstream, tmp_path: Path
) -> None:
    """A recording has the end of an answer, with the provider's word."""
    file = tmp_path / "trace.json"
    provider.answers([reply(openai_whole(word))])
    recorded = await run(
        RecordingModel(CLIENTS["openai"].make(provider.url), file)
    )
    replayed = await run(ReplayModel(file))
    ends = [
        [(each.finish_reason, each.provider_finish_reason) for each in responses(result)]
        for result in (recorded, replayed, ExecutionResult.from_dict(recorded.to_dict()))
    ]  # fmt: skip
    assert ends[0] == ends[1] == ends[2]
    assert replayed.finish_reason == recorded.finish_reason == REASONS[word]


@by_client
async def test_an_unknown_end_as_an_error(
    client: Client,
    streaming: bool,
    provider: Upstream,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If the setting says so, it is an error with a code, which is not repeated; its tokens are counted."""
    monkeypatch.setenv(VARIABLE, "fail")
    provider.answers(client.script("a_word_to_come", streaming=streaming))
    agent = Agent("guide", "Help.", client.make(provider.url))
    with pytest.raises(errors.UnknownFinishReasonError) as caught:
        await agent.arun("Go on.", stream=streaming)
    assert caught.value.code == "finish_reason_unknown"
    assert len(provider.requests) == 1
    assert agent.last_usage.total_tokens > 0


async def test_an_unknown_end_is_logged(
    provider: Upstream, caplog: pytest.LogCaptureFixture
) -> None:
    """By default it is a warning with the word, the model and the run, and without the answer; a known end is none."""
    provider.answers(
        [reply(openai_whole("a_word_to_come"))], [reply(openai_whole("stop"))]
    )
    model = CLIENTS["openai"].make(provider.url)
    with caplog.at_level(logging.WARNING, "podwright"):
        result = await run(model)
        await run(model)
    (record,) = caplog.records
    text = record.getMessage()
    for part in ("a_word_to_come", "openai/m", result.events[0].run_id):
        assert part in text
    assert TEXT not in text


async def test_a_wrong_value_of_the_setting(
    provider: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is an error that names the variable."""
    monkeypatch.setenv(VARIABLE, "ignore")
    provider.answers([reply(openai_whole("a_word_to_come"))])
    with pytest.raises(errors.ConfigurationError, match=VARIABLE):
        await run(CLIENTS["openai"].make(provider.url))


@pytest.mark.parametrize("absent", [None, "", "null", "NONE", "absent"])
async def test_no_word(absent: str | None, provider: Upstream) -> None:
    """A whole answer that does not say why it ended is not known to be whole; a stream without a reason was cut off."""
    body = openai_whole(absent)
    if absent == "absent":
        del body["choices"][0]["finish_reason"]
        absent = None
    provider.answers(
        [reply(body)], openai_stream(absent), openai_stream(absent)
    )
    model = CLIENTS["openai"].make(provider.url)
    (response,) = responses(await run(model))
    assert (response.finish_reason, response.provider_finish_reason) == (
        UNKNOWN,
        "",
    )
    with pytest.raises(errors.ModelResponseError):
        await run(model, streaming=True)


@tool
def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word} is known"


@streaming_or_not
@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("tool_calls", "tool_calls"),
        ("function_call", "tool_calls"),
        ("stop", "tool_calls"),
        ("STOP", "tool_calls"),
        ("a_word_to_come", "unknown"),
    ],
)
async def test_tool_calls(
    word: str, reason: str, streaming: bool, provider: Upstream
) -> None:
    """Calls are executed whatever the provider calls their end; an unknown end of theirs stays one."""
    calls = [
        call(index=0, id="call_1", name="look_up", arguments='{"word": "sea"}')
    ]
    body = completion(None, tool_calls=calls)
    body["choices"][0]["finish_reason"] = word
    first: Script = [reply(body)]
    if streaming:
        first = streamed(sse(delta(tool_calls=calls), delta(word)))
    provider.answers(
        first, CLIENTS["openai"].script("stop", streaming=streaming)
    )
    agent = Agent(
        "guide", "Help.", CLIENTS["openai"].make(provider.url), tools=[look_up]
    )
    result = await agent.arun("Go on.", stream=streaming, trace=True)
    assert (result.value, result.usage.tool_calls) == (TEXT, 1)
    ends = [response.finish_reason for response in responses(result)]
    assert ends == [reason, "stop"]


@pytest.mark.parametrize("text", ["Half a st", ""])
async def test_a_refused_part_of_an_answer(text: str) -> None:
    """An answer that the provider's end calls a refusal is none, with a text and without one."""
    model = FunctionModel(
        lambda _: ModelResponse(text, finish_reason="refusal")
    )
    with pytest.raises(errors.ModelRefusedError) as caught:
        await run(model)
    assert caught.value.refusal == text


def test_every_value_is_in_the_table() -> None:
    """Each value of ours is read as itself, so that a response may be read twice."""
    for reason in FINISH_REASONS:
        calls = reason == "tool_calls"
        assert ending_of(reason, has_calls=calls).reason == reason


# --- refusals


def refusal_whole(_: str | None = None) -> Any:
    return completion(None, refusal=NO)


def refusal_stream() -> list[Part]:
    pieces = [delta(role="assistant", content=None), delta(refusal=NO[:9])]
    return streamed(sse(*pieces, delta(refusal=NO[9:]), delta("stop")))


def refusal_parts() -> Any:
    return completion([{"type": "refusal", "refusal": NO}])


def claude_refusal(*, streaming: bool) -> Script:
    answer = {**claude.message(claude.text(NO)), "stop_reason": "refusal"}
    if streaming:
        return streamed(
            *(claude.framed(event) for event in claude.events(answer))
        )
    return [reply(answer)]


def refuses(name: str, provider: Upstream, *, streaming: bool) -> Model:
    """A model that refuses, by each client."""
    if name == "anthropic":
        provider.answers(claude_refusal(streaming=streaming))
        return CLIENTS[name].make(provider.url)
    if name == "parts":
        provider.answers([reply(refusal_parts())])
        return CLIENTS["openai"].make(provider.url)
    if name == "scripted":
        return ScriptedModel(*[ModelResponse(refusal=NO)] * 9)
    script: Script = [reply(refusal_whole())]
    if streaming:
        script = refusal_stream()
    provider.answers(script)
    return CLIENTS[name].make(provider.url)


REFUSING = (*CLIENTS, "parts", "scripted")


def refusing(*names: str) -> Any:
    return pytest.mark.parametrize(
        ("name", "streaming"),
        [
            pytest.param(name, streaming, id=f"{name}-{streaming}")
            for name in names
            for streaming in (False, True)
            # no provider streams parts of a content, and LiteLLM drops the words of a stream
            if not (streaming and (name == "parts" or "litellm" in name))
        ],
    )


@refusing(*REFUSING)
async def test_a_refusal_in_a_schema(
    name: str, streaming: bool, provider: Upstream
) -> None:
    """It is one call and an error of its own, with the words of the model, also in the events."""
    model = refuses(name, provider, streaming=streaming)
    model.retries = SOON
    seen: list[Any] = []
    manager = EventManager()
    manager.subscribe(seen.append)
    agent = Agent("guide", "Help.", model, max_loops=5, event_manager=manager)
    with pytest.raises(errors.ModelRefusedError) as caught:
        await agent.arun("Go on.", response_model=SCHEMA, stream=streaming)
    error = caught.value
    assert (error.code, error.refusal) == ("model_refused", NO)
    assert error.to_dict()["refusal"] == NO
    assert NO not in str(error)
    assert sum(isinstance(event, ModelCallStarted) for event in seen) == 1
    (finished,) = (e for e in seen if isinstance(e, ModelCallFinished))
    assert finished.response.finish_reason == "refusal"
    (failed,) = (e for e in seen if isinstance(e, RunFailed))
    assert failed.error["refusal"] == NO
    assert agent.last_usage.model_calls == 1


@refusing(*(name for name in REFUSING if name != "anthropic"))
async def test_a_refusal_as_a_text(
    name: str, streaming: bool, provider: Upstream
) -> None:
    """Without a schema the words are the answer, and the result says that it is a refusal."""
    result = await run(
        refuses(name, provider, streaming=streaming), streaming=streaming
    )
    assert (result.value, result.finish_reason) == (NO, "refusal")
    finished = result.events[-1]
    assert isinstance(finished, RunFinished)
    assert finished.finish_reason == "refusal"
    assert (
        ExecutionResult.from_dict(result.to_dict()).finish_reason == "refusal"
    )
    # the conversation goes on with it
    assert NO in json.dumps(result.messages[-1]["content"])


async def test_the_explanation_of_a_refusal(provider: Upstream) -> None:
    """Anthropic explains a refusal beside the answer; the words of the answer are not given as those of the model's."""
    details = {"type": "refusal", "category": "cyber", "explanation": NO}
    answer = {
        **claude.message(claude.text("First, take")),
        "stop_reason": "refusal",
        "stop_details": details,
    }
    provider.answers([reply(answer)])
    with pytest.raises(errors.ModelRefusedError) as caught:
        await run(CLIENTS["anthropic"].make(provider.url))
    assert caught.value.refusal == NO


async def test_another_model_is_not_asked(provider: Upstream) -> None:
    """A refusal is an answer: neither the same model nor its fallback is asked again."""
    provider.answers([reply(refusal_whole())])
    agent = Agent(
        "guide",
        "Help.",
        "openai/m",
        api_key="sk-a-key-of-a-test",
        base_url=provider.url,
        fallback=["offline/echo"],
    )
    with pytest.raises(errors.ModelRefusedError):
        await agent.arun("Go on.", response_model=SCHEMA)
    assert len(provider.requests) == 1


def refusing_agent(counted: list[Any], name: str = "guide") -> Agent:
    def answer(request: Any) -> ModelResponse:
        counted.append(request)
        return ModelResponse(refusal=NO)

    return Agent(name, "Help.", FunctionModel(answer), response_model=SCHEMA)


async def test_a_try_step_does_not_repeat_a_refusal() -> None:
    """It goes on with its `catch` at once, which is told the code; without one the refusal ends the run."""
    counted: list[Any] = []
    caught = ScriptedModel("Sorry.")
    step = TryStep(
        [AgentStep(refusing_agent(counted))],
        retries=3,
        catch=[
            AgentStep(Agent("clerk", "", caught), input="Say: {error.code}")
        ],
    )
    result = await Workflow("flow", [step]).arun("Go on.", trace=True)
    assert len(counted) == 1
    (event,) = (e for e in result.events if isinstance(e, ErrorCaught))
    assert (event.error["code"], event.wait_ms) == ("model_refused", 0)
    assert caught.requests[0].messages[-1].text == "Say: model_refused"

    counted.clear()
    bare = TryStep([AgentStep(refusing_agent(counted))], retries=3)
    with pytest.raises(errors.ModelRefusedError):
        await Workflow("flow", [bare]).arun("Go on.")
    assert len(counted) == 1


async def test_the_end_of_a_pipeline_and_of_a_conductor() -> None:
    """The result of a pipeline has the end of its last answer; a conductor that refuses its plan is asked once."""

    def refuse(name: str) -> Agent:
        return Agent(name, "Help.", ScriptedModel(ModelResponse(refusal=NO)))

    fine = Agent("fine", "Help.", ScriptedModel("Fine."))
    last = await Pipeline("line", [fine, refuse("b")]).arun("x", trace=True)
    assert (last.value, last.finish_reason) == (NO, "refusal")
    fine = Agent("fine", "Help.", ScriptedModel("Fine."))
    first = await Pipeline("line", [refuse("a"), fine]).arun("x", trace=True)
    assert (first.value, first.finish_reason) == ("Fine.", "stop")

    model = ScriptedModel(ModelResponse(refusal=NO))
    chief = Conductor("chief", "Plan.", model, skills=[fine], planning=True)
    with pytest.raises(errors.ModelRefusedError):
        await chief.arun("x")
    assert len(model.requests) == 1


async def test_a_refusal_with_tool_calls() -> None:
    """The calls of an answer that is a refusal are not executed."""
    made = ToolCall.of("look_up", word="sea")
    model = ScriptedModel(ModelResponse(tool_calls=(made,), refusal=NO))
    agent = Agent("guide", "Help.", model, tools=[look_up])
    with pytest.raises(errors.ModelRefusedError):
        await agent.arun("Go on.")
    assert agent.last_usage.tool_calls == 0


@pytest.mark.parametrize(
    "word", ["stop: maybe not", "foo.stop", "stop.length", "not:stop"]
)
def test_a_word_in_another_is_not_that_word(word: str) -> None:
    """Only prefixes of enumerations and the reasons of Google's filter are taken off."""
    assert ending_of(word).reason == "unknown"
    assert ending_of("FinishReason.FINISH_REASON_MAX_TOKENS").reason == "length"
    assert ending_of("content_filter: RECITATION").reason == "content_filter"


@pytest.mark.parametrize("refusal", [["no"], {"x": 1}, 5, True])
async def test_a_refusal_that_is_no_text(
    refusal: Any, provider: Upstream
) -> None:
    """It is no answer of ours: what it says is not known."""
    answer = refusal_whole()
    answer["choices"][0]["message"]["refusal"] = refusal
    provider.answers([reply(answer)])
    with pytest.raises(errors.ModelResponseError):
        await run(CLIENTS["openai"].make(provider.url))
