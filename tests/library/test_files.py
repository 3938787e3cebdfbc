"""Files and audio in inputs, conversations and results of tools: what each provider is sent, and what is refused."""

from __future__ import annotations

import base64
import io
import random
import wave
import zlib
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from tests.library.claude import Claude, message, tool_use
from tests.library.claude import text as claude_text
from tests.library.model_clients import KEY, SOON
from tests.library.upstream import Upstream, completion, reply, upstream

from podwright import Agent, RunLimits, ScriptedModel, errors, tool
from podwright.data.media import media_in, to_shown_text
from podwright.messages.conversation import parse_content
from podwright.messages.messages import Message, ModelRequest
from podwright.messages.usage import Usage
from podwright.models import Connection
from podwright.models.litellm.model import LiteLLMModel
from podwright.models.offline.media_tokens import (
    PAGE_TOKENS,
    audio_tokens,
    estimate_media,
)
from podwright.models.offline.offline import (
    estimate_input,
    estimate_input_audio,
)
from podwright.models.protocols import chat_completions
from podwright.models.protocols.openai_compatible import ChatModel
from podwright.models.providers import ANY, ENDPOINTS
from podwright.testing import ToolCall

PAGE = b"<</Type /Page /Parent 1 0 R>>"


def pdf(*objects: bytes) -> str:
    data = base64.b64encode(b"%PDF-1.7\n" + b"\n".join(objects)).decode()
    return f"data:application/pdf;base64,{data}"


PDF = pdf(PAGE)
PDF_DATA = PDF.partition(",")[2]
CSV = "data:text/csv;base64,bmFtZSxuCmEsMQo="
WORD = "data:application/vnd.openxmlformats-officedocument.wordprocessingml.document;base64,UEs="
LINK = "https://example.org/report.pdf"
AUDIO = {
    "type": "input_audio",
    "input_audio": {"data": "SUQz", "format": "mp3"},
}


QUESTION: Any = {"type": "text", "text": "What is in it?"}
CSV_AS_TEXT = {
    "type": "text",
    "text": '<file name="a.csv" type="text/csv">\nname,n\na,1\n\n</file>',
}


@pytest.fixture
async def claude() -> AsyncGenerator[Claude]:
    serving = Claude()
    async with upstream(serving=serving):
        yield serving


def file(data: str, filename: str = "") -> Any:
    part: dict[str, Any] = {"type": "file", "file": {"file_data": data}}
    if filename:
        part["file"]["filename"] = filename
    return part


def chat_model(name: str, url: str | None = None) -> ChatModel:
    endpoint = ENDPOINTS.get(name.partition("/")[0], ANY)
    model = ChatModel(name, Connection(KEY, url), endpoint)
    model.retries = SOON
    return model


async def sent_by(provider: Upstream, name: str, *parts: Any) -> list[Any]:
    """What a provider gets after the question."""
    provider.answers([reply(completion("Numbers."))])
    agent = Agent("reader", "", chat_model(name, provider.url))
    assert await agent.arun([QUESTION, *parts]) == "Numbers."
    question, *rest = provider.requests[0]["messages"][-1]["content"]
    assert question == QUESTION
    return rest


async def test_openai(provider: Upstream) -> None:
    """A PDF has a name, because OpenAI wants one, and a text is a text."""
    sent = await sent_by(
        provider,
        "openai/gpt-audio",
        file(PDF, "may.pdf"),
        file(PDF),
        file(CSV, "a.csv"),
        AUDIO,
    )
    assert sent == [
        file(PDF, "may.pdf"),
        file(PDF, "document.pdf"),
        CSV_AS_TEXT,
        AUDIO,
    ]


async def test_gemini(provider: Upstream) -> None:
    """Its endpoint of Chat Completions takes data of any type as an image."""
    sent = await sent_by(
        provider,
        "gemini/gemini-2.5-flash",
        file(PDF, "may.pdf"),
        file(CSV, "a.csv"),
        AUDIO,
    )
    assert sent == [
        {"type": "image_url", "image_url": {"url": PDF}},
        CSV_AS_TEXT,
        AUDIO,
    ]


async def test_mistral(provider: Upstream) -> None:
    sent = await sent_by(
        provider,
        "mistral/mistral-small-latest",
        file(PDF, "may.pdf"),
        file(LINK),
    )
    assert sent == [
        {
            "type": "document_url",
            "document_url": PDF,
            "document_name": "may.pdf",
        },
        {
            "type": "document_url",
            "document_url": LINK,
            "document_name": "document.pdf",
        },
    ]


@pytest.mark.parametrize(
    "name", ["openrouter/x/y", "house/llama", "openai/m", "deepseek/m"]
)
async def test_others_get_the_form_of_openai(
    provider: Upstream, name: str
) -> None:
    """So does a server of which nothing is known, whatever the file is; it may refuse it itself."""
    parts = [file(PDF, "a.pdf"), file(WORD, "a.docx"), file(LINK, "b.pdf")]
    assert await sent_by(provider, name, *parts, AUDIO) == [*parts, AUDIO]


async def test_claude(claude: Claude) -> None:
    """Files are documents: a PDF by its bytes or its URL, a text as it is."""
    await claude.agent().arun(
        [QUESTION, file(PDF, "may.pdf"), file(LINK), file(CSV, "a.csv")]
    )
    assert claude.requests[0]["messages"][0]["content"] == [
        QUESTION,
        {
            "type": "document",
            "source": {
                "type": "base64",
                "media_type": "application/pdf",
                "data": PDF_DATA,
            },
            "title": "may.pdf",
        },
        {"type": "document", "source": {"type": "url", "url": LINK}},
        {
            "type": "document",
            "source": {
                "type": "text",
                "media_type": "text/plain",
                "data": "name,n\na,1\n",
            },
            "title": "a.csv",
        },
    ]


async def test_an_empty_file(claude: Claude) -> None:
    """Claude takes no empty text."""
    await claude.agent().arun([file("data:text/plain;base64,")])
    [document] = claude.requests[0]["messages"][0]["content"]
    assert document["source"]["data"].strip()


async def test_gemini_through_litellm(provider: Upstream) -> None:
    """LiteLLM makes inline data of a PDF and of audio."""
    answer = {
        "candidates": [
            {
                "content": {"role": "model", "parts": [{"text": "Numbers."}]},
                "finishReason": "STOP",
            }
        ],
        "usageMetadata": {
            "promptTokenCount": 9,
            "candidatesTokenCount": 2,
            "totalTokenCount": 11,
        },
    }
    provider.answers([reply(answer)])
    model = LiteLLMModel(
        "gemini/gemini-2.5-flash", Connection(KEY, provider.url)
    )
    parts = [QUESTION, file(PDF), file(CSV, "a.csv"), AUDIO]
    assert await Agent("reader", "", model).arun(parts) == "Numbers."
    sent = provider.requests[0]["contents"][-1]["parts"]
    assert [part.get("text") for part in sent if "text" in part] == [
        QUESTION["text"],
        CSV_AS_TEXT["text"],
    ]
    inline = [part["inline_data"] for part in sent if "inline_data" in part]
    assert inline == [
        {"data": PDF_DATA, "mime_type": "application/pdf"},
        {"data": "SUQz", "mime_type": "audio/mp3"},
    ]


@pytest.mark.parametrize(
    ("name", "part", "reason"),
    [
        ("openai/gpt-audio", file(WORD), "wordprocessingml"),
        ("openai/gpt-audio", file(LINK), "URLs"),
        ("openai/gpt-5", AUDIO, "no audio"),
        ("gemini/gemini-2.5-flash", file(LINK), "URLs"),
        ("deepseek/deepseek-chat", file(PDF), "no files"),
        ("deepseek/deepseek-chat", AUDIO, "no audio"),
        ("azure/mine", file(PDF), "no files"),
        ("ollama/llama", file(PDF), "no files"),
    ],
    ids=str,
)
async def test_what_a_provider_does_not_take(
    monkeypatch: pytest.MonkeyPatch, name: str, part: Any, reason: str
) -> None:
    """The error names the model and what it does not take, before anything is sent to the provider's own URL."""
    monkeypatch.setenv("AZURE_API_BASE", "https://mine.openai.azure.com")
    agent = Agent("reader", "", chat_model(name))
    with pytest.raises(errors.ContentUnsupportedError) as caught:
        await agent.arun([QUESTION, part])
    assert name in caught.value.message
    assert reason in caught.value.message


@pytest.mark.parametrize("part", [file(WORD), AUDIO], ids=str)
async def test_what_claude_does_not_take(claude: Claude, part: Any) -> None:
    """Neither in an input nor in an earlier message."""
    for turn in (
        {"input": [part]},
        {
            "input": "And?",
            "messages": [
                {"role": "user", "content": [part]},
                {"role": "assistant", "content": "Hm."},
            ],
        },
    ):
        with pytest.raises(errors.ContentUnsupportedError):
            await claude.agent().arun(
                turn["input"], messages=turn.get("messages", ())
            )
    assert not claude.requests


@pytest.mark.parametrize(
    ("part", "reason"),
    [(AUDIO, "no audio"), (file(LINK), "URLs"), (file(WORD), "wordproc")],
    ids=str,
)
async def test_what_litellm_does_not_translate(
    provider: Upstream, part: Any, reason: str
) -> None:
    """Audio that it would leave out, and files that it would fetch."""
    name = "anthropic/claude-haiku-4-5"
    model = LiteLLMModel(name, Connection(KEY, provider.url))
    with pytest.raises(errors.ContentUnsupportedError, match=reason):
        await Agent("reader", "", model).arun([QUESTION, part])
    assert provider.connections == 0


def test_a_text_is_taken_by_all() -> None:
    body = chat_completions.request_body(
        ModelRequest("m", (Message("user", (file(CSV, "a.csv"),)),)),
        "m",
        ENDPOINTS["deepseek"],
        provider="deepseek",
        stream=False,
    )
    assert body["messages"][0]["content"] == [CSV_AS_TEXT]


def test_results_of_tools_in_chat_completions() -> None:
    """A text is a part of the result; a PDF follows it, and what the model does not take is left out."""
    parts: Any = (file(PDF, "may.pdf"), file(CSV, "a.csv"), file(WORD), AUDIO)
    messages = (
        Message("user", "Read."),
        Message("assistant", "", (ToolCall.of("read", "1"),)),
        Message("tool", parts, tool_call_id="1"),
    )
    body = chat_completions.request_body(
        ModelRequest("openai/gpt-5", messages),
        "gpt-5",
        ENDPOINTS["openai"],
        provider="openai",
        stream=False,
    )
    told, media = body["messages"][2:]
    assert told["role"] == "tool"
    assert told["content"].startswith("[file: may.pdf]\n<file name=")
    assert "[file, not shown: " in told["content"]
    assert "[audio, not shown: the model takes no audio]" in told["content"]
    assert media["role"] == "user"
    assert media["content"][1:] == [file(PDF, "may.pdf")]


async def test_results_of_tools_with_claude(claude: Claude) -> None:
    """A document is a part of the result itself."""

    def read() -> Any:
        """Read the reports."""
        return [file(PDF), AUDIO]

    claude.says(
        message(tool_use("t1", "read"), stop="tool_use"),
        message(claude_text("Numbers.")),
    )
    await claude.agent(tools=[read]).arun("Read.")
    [result] = claude.requests[1]["messages"][-1]["content"]
    document, left_out = result["content"]
    assert document["type"] == "document"
    assert document["source"]["media_type"] == "application/pdf"
    assert left_out["text"] == "[audio, not shown: the model takes no audio]"


@pytest.mark.parametrize(
    "part",
    [
        file("http://example.org/a.pdf"),
        file("file:///etc/passwd"),
        file("JVBERi0xLjc="),
        file("data:image/png;base64,aGk="),
        file("data:audio/wav;base64,aGk="),
        file("data:text/plain;base64,/w=="),
        file("data:text/plain;base64,?"),
        {"type": "file", "file": {"file_data": PDF, "file_id": "f"}},
        {"type": "file", "file": {"file_data": PDF, "filename": ""}},
        {"type": "input_audio", "input_audio": {"data": "SUQz"}},
        {
            "type": "input_audio",
            "input_audio": {"data": "SUQz", "format": "flac"},
        },
        {
            "type": "input_audio",
            "input_audio": {"data": "data:audio/mp3;base64,A", "format": "mp3"},
        },
    ],
    ids=str,
)
def test_invalid_parts(part: Any) -> None:
    """URLs have the same rule as those of images; a text can be read, and each kind has its own type of part."""
    with pytest.raises(errors.MessagesError):
        Agent("reader", "", ScriptedModel("x")).run([QUESTION, part])


def test_a_conversation_round_trip() -> None:
    """A run takes the messages that a run has returned."""
    agent = Agent("reader", "", ScriptedModel("One.", "Two."))
    content = [QUESTION, file(PDF, "a.pdf"), AUDIO]
    first = agent.run(content, trace=True)
    assert first.messages[0]["content"] == content
    second = agent.run("And?", messages=first.messages, trace=True)
    assert second.messages[:2] == first.messages


def test_a_named_input() -> None:
    """The model gets the file beside the texts, where its name stands for it."""
    model = ScriptedModel("Numbers.")
    agent = Agent("reader", "Read {report}.", model)
    agent.run({"report": file(PDF, "may.pdf"), "note": "Soon."})
    system, user = model.requests[0].messages
    assert system.text == "Read [file: may.pdf]."
    assert file(PDF, "may.pdf") in user.content
    assert "Soon." in user.text


@pytest.mark.parametrize(
    "data",
    [
        {"type": "file", "file": {"path": "a"}},
        {"type": "file", "file": "a"},
        {"type": "input_audio", "input_audio": {}},
        {"type": ["file"], "file": {"file_data": PDF}},
        [{"type": "file"}, {"type": "text", "text": "x"}],
    ],
    ids=str,
)
def test_data_that_look_like_parts(data: Any) -> None:
    """They stay data."""
    assert not media_in(data)
    assert to_shown_text(data).startswith(("{", "["))


# --- estimates


def tokens_of(part: Any) -> int:
    [parsed] = parse_content([part])
    assert not isinstance(parsed, str)
    return estimate_media(parsed)


COMPRESSED = zlib.compress(b"<</Type/Page>> <</Type/Page>> <</Type/Pages>>")
HEX = random.Random(1).randbytes(40_000).hex().encode()
LONG = zlib.compress(b"<</Type/Page>>" + HEX + b"<</Type/Page>>")


@pytest.mark.parametrize(
    ("document", "pages"),
    [
        (pdf(b"<</Type/Pages/Count 2>>", PAGE, PAGE), 2),
        (
            pdf(
                b"<</Type/ObjStm/N 3/Filter/FlateDecode>>stream\r\n"
                + COMPRESSED
                + b"\nendstream"
            ),
            2,
        ),
        (pdf(PAGE, b"<</Type/ObjStm/N 3>>stream\nnot compressed"), 1),
        (pdf(b"<</Type/ObjStm/N 3>>stream\n" + LONG), 2),
        (pdf(b"<</Type/ObjStm/N 3>>stream\n" + LONG[:-100] + b"x" * 500), 1),
        (pdf(b"nothing to see"), 4),
        ("data:application/pdf;base64,A", 4),
        (LINK, 4),
    ],
    ids=[
        "plain",
        "compressed",
        "broken",
        "long",
        "broken at its end",
        "unseen",
        "no base64",
        "a URL",
    ],
)
def test_pages(document: str, pages: int) -> None:
    """The tokens of a PDF are those of its pages, as far as they can be seen."""
    assert tokens_of(file(document)) == pages * PAGE_TOKENS


def test_a_small_pdf_that_would_inflate_to_much() -> None:
    """Only so much of it is looked at."""
    head = b"<</Type/ObjStm>>stream\n"
    bomb = head + zlib.compress(b"<</Type/Page>>" * 1_000_000)
    pages = tokens_of(file(pdf(*[bomb] * 50))) / PAGE_TOKENS
    assert pages < 1_000_000


def test_the_data_of_a_text_count_as_the_text() -> None:
    data = base64.b64encode(b"word " * 4000).decode()
    tokens = tokens_of(file(f"data:text/plain;base64,{data}"))
    assert 5000 <= tokens <= 5001


def test_audio() -> None:
    """A WAV says how long it is; an MP3 is taken for one of a low quality."""
    sound = io.BytesIO()
    with wave.open(sound, "wb") as writer:
        writer.setnchannels(2)
        writer.setsampwidth(2)
        writer.setframerate(44_100)
        writer.writeframes(b"\0" * 4 * 44_100)
    data = base64.b64encode(sound.getvalue()).decode()
    second: Any = {
        "type": "input_audio",
        "input_audio": {"data": data, "format": "wav"},
    }
    assert 32 <= audio_tokens([second]) <= 33
    broken: Any = {
        "type": "input_audio",
        "input_audio": {"data": "AAAA" * 4000, "format": "wav"},
    }
    assert audio_tokens([broken]) == 48
    longer = b"RIFF\x10\0\0\0WAVELIST\0\xff\0\0" + b"\0" * 8_000
    broken["input_audio"]["data"] = base64.b64encode(longer).decode()
    assert audio_tokens([broken]) == 33
    speech: Any = {
        "type": "input_audio",
        "input_audio": {"data": "AAAA" * 4000, "format": "mp3"},
    }
    assert audio_tokens([speech]) == 96
    request = ModelRequest("m", (Message("user", (second, speech)),))
    assert estimate_input_audio(request) >= 32 + 96
    assert estimate_input(request) > estimate_input_audio(request)


class PricedByAudio(ScriptedModel):
    """A model whose audio costs ten times as much as text."""

    def cost(self, usage: Usage) -> float | None:
        plain = usage.input_tokens - usage.input_audio_tokens
        return (plain + 10 * usage.input_audio_tokens) / 1000


def test_the_cost_of_audio_is_reserved() -> None:
    """At the price of audio: a limit that would do for as many tokens of text is not enough."""
    speech: Any = {
        "type": "input_audio",
        "input_audio": {"data": "AAAA" * 4000, "format": "mp3"},
    }

    def listener(cost: float) -> Agent:
        limits = RunLimits(cost=cost)
        return Agent("a", "", PricedByAudio("Hello."), limits=limits)

    with pytest.raises(errors.LimitExceededError):
        listener(0.5).run([speech])
    assert listener(2.0).run([speech]) == "Hello."


def test_a_long_file_in_a_result_is_left_out() -> None:
    """The result says so, and the rest of it is kept."""

    @tool(max_result_tokens=PAGE_TOKENS)
    def read() -> Any:
        """Read the reports."""
        return [file(pdf(PAGE, PAGE), "long.pdf"), file(PDF, "short.pdf")]

    model = ScriptedModel([ToolCall.of("read")], "done")
    Agent("reader", "", model, tools=[read]).run("Read.")
    long, short = model.requests[1].messages[-1].content
    assert isinstance(long, dict)
    assert long["type"] == "text"
    assert long["text"].startswith("[file: long.pdf, left out")
    assert short == file(PDF, "short.pdf")
