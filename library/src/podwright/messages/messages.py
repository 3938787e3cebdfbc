"""Requests to models and their responses: frozen data, the same for every provider."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, Literal, Required

from pydantic import (
    AfterValidator,
    ConfigDict,
    Discriminator,
    Field,
    with_config,
)
from typing_extensions import TypedDict

from podwright.data.data_urls import parse_data_url
from podwright.data.json_data import JsonMapping, JsonObject, walk_json
from podwright.data.text import short_repr
from podwright.messages.usage import Usage

CLOSED = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
"""The pydantic configuration of all blueprint data: no unknown keys, no conversions."""

MAX_CHARACTERS = 4_000_000
"""Characters of the longest text in a message; the data of images, files and audio are not limited here."""
MAX_FILE_NAME = 255
"""Characters of the longest name of a file."""

Text = Annotated[str, Field(max_length=MAX_CHARACTERS)]
"""A text in a message."""
TOOL_CHOICES = ("auto", "required", "none")
"""What a request may say in place of a tool's name: whether the model calls one is its choice, needed or excluded."""
Role = Literal["system", "user", "assistant", "tool"]


def _check_references(schema: JsonObject) -> JsonObject:
    for pointer, value, _ in walk_json(schema):
        if not pointer.endswith("/$ref") or not isinstance(value, str):
            continue
        if not value.startswith("#"):
            raise ValueError(
                f"A schema may refer only to itself ('#/…'), not to {short_repr(value)}"
            )
    return schema


_Penalty = Annotated[float, Field(ge=-2, le=2)]


class ModelSettings(TypedDict, total=False):
    """Settings of a model call; absent is the provider's default."""

    temperature: Annotated[float, Field(ge=0, le=2)]
    """0 to 2."""
    top_p: Annotated[float, Field(ge=0, le=1)]
    """Nucleus sampling, 0 to 1."""
    max_tokens: Annotated[int, Field(ge=1)]
    """Most output tokens of one call."""
    seed: int
    """Seed for repeatable sampling, if the provider supports it."""
    stop: str | list[str]
    """Texts that end the output."""
    timeout: Annotated[float, Field(gt=0)]
    """Seconds for one whole model call, retries included."""
    presence_penalty: _Penalty
    """-2 to 2."""
    frequency_penalty: _Penalty
    """-2 to 2."""
    parallel_tool_calls: bool
    """Whether a model may call several tools in one turn."""
    reasoning_effort: Literal[
        "none", "minimal", "low", "medium", "high", "xhigh"
    ]
    """How long a reasoning model may think."""
    parameters: JsonObject
    """Parameters that the provider has and are not named here, such as `top_k`; sent as they are."""


class HistorySettings(TypedDict, total=False):
    """How much of a long conversation a model is given; absent is all of it."""

    max_history: Annotated[int, Field(ge=0)]
    """Most earlier turns; a turn is a user message with what follows up to the next one."""
    max_input_tokens: Annotated[int, Field(ge=1)]
    """Estimated input tokens of a model call above which the oldest earlier turns are left out."""


@with_config(CLOSED)
class ToolFunction(TypedDict, total=False):
    """The function part of a tool schema (spec §2.1)."""

    name: Required[Annotated[str, Field(min_length=1)]]
    description: str
    parameters: Required[
        Annotated[JsonObject, AfterValidator(_check_references)]
    ]
    """JSON Schema of an object, one property a parameter."""
    strict: bool
    """Whether the provider must enforce the schema exactly."""


@with_config(CLOSED)
class ToolSchema(TypedDict):
    """A function-calling schema: `{"type": "function", "function": {…}}` (spec §2.1)."""

    type: Literal["function"]
    function: ToolFunction


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call that a model asks for."""

    id: str
    """The id that the model gave to the call; the result refers to it."""
    name: str
    """The tool."""
    arguments: str
    """The arguments as JSON text, as the model wrote them; they may be malformed."""
    provider_fields: JsonMapping = field(default_factory=JsonObject, hash=False)
    """Further fields of the call as JSON data, such as a signature; see `Message.provider_fields`."""

    @classmethod
    def of(cls, name: str, /, id: str = "call_1", **arguments: Any) -> ToolCall:
        """A call with keyword arguments; for tests and scripted models."""
        return cls(id, name, json.dumps(arguments))


def _check_image_url(url: str) -> str:
    if url.startswith("https://"):
        return url
    parsed = parse_data_url(url)
    if parsed is not None and parsed.media_type.startswith("image/"):
        return url
    raise ValueError(
        "An image must be an https URL, or a data URL such as 'data:image/png;base64,…'"
    )


def _check_file_url(url: str) -> str:
    if url.startswith("https://"):
        return url
    parsed = parse_data_url(url)
    if parsed is None:
        raise ValueError(
            "A file must be a data URL such as 'data:application/pdf;base64,…', or an https URL"
        )
    if parsed.media_type.startswith("image/"):
        raise ValueError("An image must be a part of the type 'image_url'")
    if parsed.media_type.startswith("audio/"):
        raise ValueError("Audio must be a part of the type 'input_audio'")
    if parsed.is_text:
        try:
            parsed.text()
        except ValueError:
            raise ValueError(
                f"A file of the type '{parsed.media_type}' must be UTF-8, in base64"
            ) from None
    return url


def _check_audio(data: str) -> str:
    if data.startswith("data:"):
        raise ValueError("The data of audio must be base64 without 'data:…'")
    return data


ImageLink = Annotated[str, AfterValidator(_check_image_url)]
"""An https URL, which only the provider fetches, or a data URL with the image itself."""
FileLink = Annotated[str, AfterValidator(_check_file_url)]
"""A data URL with the file itself, or an https URL, which only the provider fetches."""
AudioBase64 = Annotated[str, Field(min_length=1), AfterValidator(_check_audio)]
"""The bytes of audio in base64."""
AudioFormat = Literal["wav", "mp3"]
AUDIO_FORMATS: Mapping[str, AudioFormat] = MappingProxyType(
    {
        "audio/wav": "wav",
        "audio/x-wav": "wav",
        "audio/wave": "wav",
        "audio/mpeg": "mp3",
        "audio/mp3": "mp3",
    }
)
"""The formats of audio in messages, by media type."""


@with_config(CLOSED)
class TextPart(TypedDict):
    """A text as part of a message."""

    type: Literal["text"]
    text: Text


@with_config(CLOSED)
class ImageURL(TypedDict, total=False):
    """Where an image is."""

    url: Required[ImageLink]
    detail: Literal["auto", "low", "high"]
    """How closely the model looks at it."""


@with_config(CLOSED)
class ImagePart(TypedDict):
    """An image as part of a message."""

    type: Literal["image_url"]
    image_url: ImageURL


@with_config(CLOSED)
class FileData(TypedDict, total=False):
    """A file: its data, and its name."""

    file_data: Required[FileLink]
    filename: Annotated[str, Field(min_length=1, max_length=MAX_FILE_NAME)]
    """What the model is told that it is called."""


@with_config(CLOSED)
class FilePart(TypedDict):
    """A document as part of a message, such as a PDF or a text in a file."""

    type: Literal["file"]
    file: FileData


@with_config(CLOSED)
class AudioData(TypedDict):
    """Audio: its data, and their format."""

    data: AudioBase64
    format: AudioFormat


@with_config(CLOSED)
class AudioPart(TypedDict):
    """Audio as part of a message."""

    type: Literal["input_audio"]
    input_audio: AudioData


ContentPart = Annotated[
    TextPart | ImagePart | FilePart | AudioPart, Discriminator("type")
]
"""A part of a user's message, or of a tool's result."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a chat."""

    role: Role
    content: str | tuple[ContentPart, ...] = ""
    """A text, or parts; may be empty in a message that only calls tools."""
    tool_calls: tuple[ToolCall, ...] = ()
    """The tool calls of an assistant message."""
    tool_call_id: str | None = None
    """In a tool message: the call that it answers."""
    provider_fields: JsonMapping = field(default_factory=JsonObject, hash=False)
    """What an assistant's message has besides text and tool calls, as JSON data: thoughts, signatures.

    It is neither read nor changed here. It is part of the conversation, and goes back to the provider that it is from.
    """
    provider: str = ""
    """The provider that an assistant's message came from, as in the name of a model; empty if that is not known."""

    @property
    def text(self) -> str:
        """The text of its content, without images, files and audio."""
        if isinstance(self.content, str):
            return self.content
        texts = [
            part["text"] for part in self.content if part["type"] == "text"
        ]
        return "\n".join(texts)


@dataclass(frozen=True, slots=True)
class OutputSchema:
    """The JSON Schema that an answer must fit."""

    name: str
    schema: JsonMapping


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """Everything that a model needs for one call."""

    model: str
    """The model as the blueprint names it, `<provider>/<model_name>`."""
    messages: tuple[Message, ...]
    tools: tuple[ToolSchema, ...] = ()
    settings: ModelSettings = field(default_factory=ModelSettings)
    output: OutputSchema | None = None
    """Set if the answer must be JSON of this schema and the model supports that."""
    tool_choice: str | None = None
    """The tool that the model must call, or one of `TOOL_CHOICES`; None leaves the choice to the model."""
    component: str = ""
    """The component that asks; not sent to the provider."""
    path: tuple[int, ...] = ()
    """The position of that component in a workflow; not sent to the provider."""
    history: int = 0
    """How many of the messages, after the system message, come before this run's turn; not sent to the provider."""


@dataclass(frozen=True, slots=True)
class ModelResponse:
    """The response of a model to one request."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = field(default_factory=lambda: Usage(cost=None))
    """Tokens of this call; `cost` in USD, None if the price is unknown."""
    finish_reason: str = "stop"
    """`stop`, `length`, `tool_calls`, `content_filter`, `refusal`, or `unknown` if it may not be whole; words of
    providers are in `podwright.data.finish_reasons`."""
    model: str = ""
    """The model that answered, as the provider names it; may be empty."""
    id: str = ""
    """The provider's id of the response; may be empty."""
    reasoning: str = ""
    """The text of the model's thoughts, if the provider shows it. It is not part of the answer."""
    provider_fields: JsonMapping = field(default_factory=JsonObject, hash=False)
    """Further fields of the message; see `Message.provider_fields`."""
    provider: str = ""
    """The provider that answered, the part of the model's name before the first slash; may be empty."""
    provider_finish_reason: str = ""
    """The provider's word for an `unknown` finish reason, at most 64 characters; empty if it gave none."""
    refusal: str = ""
    """The words by which the model refused, which are also the text; another text is what it had written before."""

    def message(self) -> Message:
        """The response as a message of the conversation."""
        return Message(
            "assistant",
            self.text,
            self.tool_calls,
            provider_fields=self.provider_fields,
            provider=self.provider,
        )
