"""The results of calls, as the messages of a chat have them."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from pydantic import TypeAdapter, ValidationError

from podwright.data.data_urls import PDF, parse_data_url
from podwright.data.json_data import JsonObject
from podwright.data.json_forms import to_utf8_data
from podwright.data.text import truncate
from podwright.mcp.definitions import clean
from podwright.mcp.results import MCPResult
from podwright.messages.messages import (
    AUDIO_FORMATS,
    MAX_FILE_NAME,
    ContentPart,
)

_PART: TypeAdapter[ContentPart] = TypeAdapter(ContentPart)
_MAX_LINK = 2048
"""Characters of each text of a link."""


def to_result(result: CallToolResult) -> MCPResult:
    """Return the result of a call."""
    return MCPResult(
        list(_parts(result.content)),
        to_utf8_data(result.structured_content),
        result.is_error,
    )


def _parts(blocks: Iterable[ContentBlock]) -> Iterable[JsonObject]:
    for block in blocks:
        if isinstance(block, TextContent):
            yield _text(block.text)
        elif isinstance(block, ImageContent | AudioContent):
            yield _media(block.mime_type, block.data)
        elif isinstance(block, ResourceLink):
            yield _link(block)
        else:
            yield _resource(block.resource)


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": to_utf8_data(text)}


def _media(mime_type: str, data: str, filename: str = "") -> JsonObject:
    """Return an image, audio or a file; a text in its place if messages have no such part."""
    media_type = mime_type.partition(";")[0].strip().lower()
    url = f"data:{media_type};base64,{data}"
    parsed = parse_data_url(url)
    part: JsonObject = {}
    if media_type.startswith("image/"):
        part = {"type": "image_url", "image_url": {"url": url}}
    elif media_type.startswith("audio/"):
        audio = {"data": data, "format": AUDIO_FORMATS.get(media_type)}
        part = {"type": "input_audio", "input_audio": audio}
    elif parsed is not None and (parsed.is_text or parsed.media_type == PDF):
        part = {"type": "file", "file": {"file_data": url}}
        if filename:
            part["file"]["filename"] = filename
    try:
        _PART.validate_python(part)
    except ValidationError:
        return _omission(mime_type)
    return part


def _omission(mime_type: str) -> JsonObject:
    """Return a note in place of data that models do not take."""
    return _text(f"[{truncate(clean(mime_type), 100)}, not shown]")


def _link(link: ResourceLink) -> JsonObject:
    """Return a link as a text, because it is never followed."""
    texts = [link.title or link.name, str(link.uri), link.description or ""]
    shown = [truncate(clean(text), _MAX_LINK) for text in texts if text]
    return _text(f"[resource: {', '.join(shown)}]")


def _resource(
    resource: TextResourceContents | BlobResourceContents,
) -> JsonObject:
    if isinstance(resource, TextResourceContents):
        return _text(resource.text)
    return _media(
        resource.mime_type or "application/octet-stream",
        resource.blob,
        _name_of(resource.uri),
    )


def _name_of(uri: object) -> str:
    """The last part of a resource's path, which is its name; empty if there is none."""
    path = urlsplit(str(uri)).path
    return clean(path.rpartition("/")[2])[:MAX_FILE_NAME]
