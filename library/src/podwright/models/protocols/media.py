"""Images, files and audio in messages, as protocols and providers take them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from xml.sax.saxutils import quoteattr

from podwright.data.data_urls import PDF, parse_data_url
from podwright.data.json_data import JsonObject
from podwright.data.media import shown_part
from podwright.errors import ContentUnsupportedError
from podwright.messages.messages import (
    ContentPart,
    Message,
    TextPart,
)
from podwright.models.providers import MediaForms

_INTRODUCTION = (
    "The images, files and audio in the results of the tools, in their order:"
)
_FILE_NAME = "document.pdf"
"""The name of a file that has none, because OpenAI wants one."""


def with_media_after_results(
    messages: Iterable[Message], forms: MediaForms
) -> Iterator[Message]:
    """Yield messages whose results of tools are texts; their images, files and audio follow in a message of the user.

    That message comes after all results of a turn, which have to follow the answer that asked for them.

    Args:
        messages: The messages.
        forms: What the provider takes; what it does not take is left out of results, which say so.
    """
    media: list[ContentPart] = []
    for message in messages:
        if message.role != "tool":
            if media:
                yield _message_of(media)
                media = []
            yield message
            continue
        if isinstance(message.content, str):
            yield message
            continue
        texts: list[str] = []
        for part in sendable_result(message.content, forms):
            if part["type"] == "text":
                texts.append(part["text"])
            else:
                texts.append(shown_part({**part}))
                media.append(part)
        yield replace(message, content="\n".join(texts))
    if media:
        yield _message_of(media)


def _message_of(media: Sequence[ContentPart]) -> Message:
    return Message("user", (_text(_INTRODUCTION), *media))


def sendable_result(
    parts: Iterable[ContentPart], forms: MediaForms
) -> Iterator[ContentPart]:
    """Yield the parts of a tool's result: a text stands for what the provider does not take.

    The result of a tool is not the caller's fault, and the model can do without a part of it.
    """
    for part in parts:
        reason = _refusal_reason(part, forms)
        if reason:
            shown = shown_part({**part}).removesuffix("]")
            yield _text(f"{shown}, not shown: the model takes {reason}]")
        else:
            yield with_file_as_text(part, forms)


def check_content(message: Message, model: str, forms: MediaForms) -> None:
    """Check that a provider takes the content of a user's message, as far as that is known.

    Raises:
        ContentUnsupportedError: It does not.
    """
    if isinstance(message.content, str):
        return
    for part in message.content:
        reason = _refusal_reason(part, forms)
        if reason:
            raise ContentUnsupportedError(f"'{model}' takes {reason}.")


def _refusal_reason(part: ContentPart, forms: MediaForms) -> str:
    """What is to be said of a provider that does not take a part; empty if it does, or if that is not known."""
    if part["type"] == "input_audio" and not forms.audio:
        return "no audio"
    if part["type"] != "file":
        return ""
    parsed = parse_data_url(part["file"]["file_data"])
    if parsed is not None and parsed.is_text:
        return ""
    if not forms.documents:
        return "no files, except texts"
    if parsed is None:
        return "" if forms.document_urls else "no URLs of files, only data URLs"
    if forms.only_pdf and parsed.media_type != PDF:
        return (
            f"no files of the type '{parsed.media_type}', only PDFs and texts"
        )
    return ""


def with_file_as_text(part: ContentPart, forms: MediaForms) -> ContentPart:
    """Return a file that is a text as a text, with its name and type; any other part as it is."""
    if part["type"] != "file" or forms.text_documents:
        return part
    parsed = parse_data_url(part["file"]["file_data"])
    if parsed is None or not parsed.is_text:
        return part
    attributes = f"type={quoteattr(parsed.media_type)}"
    if "filename" in part["file"]:
        attributes = f"name={quoteattr(part['file']['filename'])} {attributes}"
    return _text(f"<file {attributes}>\n{parsed.text()}\n</file>")


def to_chat_part(part: ContentPart, forms: MediaForms) -> JsonObject:
    """Return a part as an endpoint of Chat Completions takes it."""
    part = with_file_as_text(part, forms)
    if part["type"] != "file":
        return {**part}
    url = part["file"]["file_data"]
    name = part["file"].get("filename", _FILE_NAME)
    match forms.documents:
        case "image_url":
            return {"type": "image_url", "image_url": {"url": url}}
        case "document_url":
            return {
                "type": "document_url",
                "document_url": url,
                "document_name": name,
            }
        case _:
            file = {"filename": name, "file_data": url}
            return {"type": "file", "file": file}


def _text(text: str) -> TextPart:
    return {"type": "text", "text": text}
