"""The results of calls, as the messages of a chat have them."""

from __future__ import annotations

from collections.abc import Iterable

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

from podwright.data.json_data import JsonObject
from podwright.data.json_forms import to_utf8_data
from podwright.data.text import truncate
from podwright.mcp.definitions import clean
from podwright.mcp.results import MCPResult
from podwright.messages.messages import ImageLink

_IMAGE = TypeAdapter[str](ImageLink)
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
        elif isinstance(block, ImageContent):
            yield _image(block.mime_type, block.data)
        elif isinstance(block, AudioContent):
            yield _omission(block.mime_type)
        elif isinstance(block, ResourceLink):
            yield _link(block)
        else:
            yield _resource(block.resource)


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": to_utf8_data(text)}


def _image(mime_type: str, data: str) -> JsonObject:
    url = f"data:{mime_type.lower()};base64,{data}"
    try:
        _IMAGE.validate_python(url)
    except ValidationError:
        return _omission(mime_type)
    return {"type": "image_url", "image_url": {"url": url}}


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
    return _image(
        resource.mime_type or "application/octet-stream", resource.blob
    )
