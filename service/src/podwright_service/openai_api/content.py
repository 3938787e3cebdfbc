"""Texts, images, files and audio of messages, as clients of both protocols write them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    JsonValue,
    model_validator,
)
from pydantic_core import PydanticCustomError

from podwright.connection.schemas import Object
from podwright.messages.conversation import MAX_PARTS
from podwright.messages.messages import (
    MAX_FILE_NAME,
    AudioData,
    FileLink,
    ImageLink,
)
from podwright_service.openai_api.values import Lenient, only_empty

_DATA_URL = re.compile(r"data:([^;,]+)(?:;[^;,]*)*;base64,", re.IGNORECASE)
MAX_ANSWER_PARTS = 1000
"""Parts of an answer, of which providers may make more than a user does."""


def _usual_link(value: object) -> object:
    """A link with the media type of its data in the usual spelling."""
    if not isinstance(value, str):
        return value
    match = _DATA_URL.match(value)
    if match is None:
        return value
    media_type = match[1].strip().lower()
    if media_type == "image/jpg":
        media_type = "image/jpeg"
    return f"data:{media_type};base64,{value[match.end() :]}"


def _as_json(arguments: object) -> object:
    if isinstance(arguments, dict):
        return json.dumps(arguments, ensure_ascii=False)
    return arguments


def _usual_detail(detail: str) -> str:
    if detail == "original":
        return "high"
    return detail


Link = Annotated[ImageLink, BeforeValidator(_usual_link)]
FileData = Annotated[FileLink, BeforeValidator(_usual_link)]
FileName = Annotated[str, Field(min_length=1, max_length=MAX_FILE_NAME)]
NotUploaded = Annotated[
    JsonValue,
    only_empty("No files are stored here: send the file itself as 'file_data'"),
]
Detail = Annotated[
    Literal["auto", "low", "high", "original"], AfterValidator(_usual_detail)
]
"""How closely the model looks at an image; `original` counts as `high`."""


class TextPart(Lenient):
    """A text."""

    type: Literal["text", "input_text", "output_text"]
    text: str


class ImageURL(Lenient):
    """Where an image is."""

    url: Link
    detail: Detail | None = None


class ImagePart(Lenient):
    """An image."""

    type: Literal["image_url", "input_image"]
    image_url: Link | ImageURL
    detail: Detail | None = None


class File(Lenient):
    """A file: its data, and its name."""

    file_id: NotUploaded = None
    file_data: FileData
    filename: FileName | None = None


class FilePart(Lenient):
    """A document, as Chat Completions has it."""

    type: Literal["file"]
    file: File


class InputFile(Lenient):
    """A document, as Responses has it: its data, or its URL."""

    type: Literal["input_file"]
    file_data: FileData | None = None
    file_url: FileData | None = None
    filename: FileName | None = None
    file_id: NotUploaded = None

    @model_validator(mode="after")
    def _check_data(self) -> Self:
        if (self.file_data is None) == (self.file_url is None):
            raise PydanticCustomError(
                "value_error",
                "Expected exactly one of 'file_data' and 'file_url'",
            )
        return self


class AudioPart(Lenient):
    """Audio."""

    type: Literal["input_audio"]
    input_audio: AudioData


class RefusalPart(Lenient):
    """A text by which a model refused to answer."""

    type: Literal["refusal"]
    refusal: str


UserPart = TextPart | ImagePart | FilePart | InputFile | AudioPart
UserParts = Annotated[
    list[Annotated[UserPart, Discriminator("type")]],
    Field(min_length=1, max_length=MAX_PARTS),
]
TextParts = Annotated[list[TextPart], Field(max_length=MAX_PARTS)]
Arguments = Annotated[
    str, BeforeValidator(_as_json, json_schema_input_type=str | dict[str, Any])
]
"""The arguments of a tool call as JSON text; some clients send the object itself."""


def text_of(content: str | Sequence[TextPart]) -> str:
    """A text, or several as one."""
    if isinstance(content, str):
        return content
    return "\n".join(part.text for part in content)


def part_data(part: UserPart | RefusalPart) -> Object:
    """A part in the shape of the library, which has no refusals."""
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case RefusalPart():
            return {"type": "text", "text": part.refusal}
        case ImagePart():
            return {"type": "image_url", "image_url": _image(part)}
        case FilePart():
            return _file(part.file.file_data, part.file.filename)
        case InputFile():
            return _file(part.file_data or part.file_url, part.filename)
        case AudioPart():
            return {"type": "input_audio", "input_audio": part.input_audio}


def _file(data: str | None, filename: str | None) -> Object:
    file: Object = {"file_data": data}
    if filename is not None:
        file["filename"] = filename
    return {"type": "file", "file": file}


def _image(part: ImagePart) -> dict[str, Any]:
    image = part.image_url
    if isinstance(image, str):
        image = ImageURL(url=image, detail=part.detail)
    return image.model_dump(exclude_none=True)


def content_data(
    content: str | Sequence[UserPart | RefusalPart],
) -> Any:
    """The content of a message in the shape of the library."""
    if isinstance(content, str):
        return content
    texts = {part.text for part in content if isinstance(part, TextPart)}
    return [
        part_data(part)
        for part in content
        # a refusal without a schema is sent in both forms
        if not (isinstance(part, RefusalPart) and part.refusal in texts)
    ]
