"""Requests to models and their responses: frozen data, the same for every provider."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Required

from annotated_types import Ge, Gt, Le, MinLen
from pydantic import AfterValidator, ConfigDict, with_config
from typing_extensions import TypedDict

from podwright.json_data import walk_json
from podwright.text import short_repr
from podwright.usage import Usage

CLOSED = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
"""The pydantic configuration of all blueprint data: no unknown keys, no conversions."""

Role = Literal["system", "user", "assistant", "tool"]


def _without_remote_references(schema: dict[str, Any]) -> dict[str, Any]:
    for pointer, value, _ in walk_json(schema):
        if pointer.endswith("/$ref") and isinstance(value, str) and not value.startswith("#"):
            raise ValueError(f"A schema may refer only to itself ('#/…'), not to {short_repr(value)}")
    return schema


class ModelSettings(TypedDict, total=False):
    """Settings of a model call; absent is the provider's default."""

    temperature: Annotated[float, Ge(0), Le(2)]
    """0 to 2."""
    top_p: Annotated[float, Ge(0), Le(1)]
    """Nucleus sampling, 0 to 1."""
    max_tokens: Annotated[int, Ge(1)]
    """Most output tokens of one call."""
    seed: int
    """Seed for repeatable sampling, if the provider supports it."""
    stop: str | list[str]
    """Texts that end the output."""
    timeout: Annotated[float, Gt(0)]
    """Seconds for one whole model call, retries included."""
    presence_penalty: Annotated[float, Ge(-2), Le(2)]
    """-2 to 2."""
    frequency_penalty: Annotated[float, Ge(-2), Le(2)]
    """-2 to 2."""
    parallel_tool_calls: bool
    """Whether a model may call several tools in one turn."""
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"]
    """How long a reasoning model may think."""


@with_config(CLOSED)
class ToolFunction(TypedDict, total=False):
    """The function part of a tool schema (spec §2.1)."""

    name: Required[Annotated[str, MinLen(1)]]
    description: str
    parameters: Required[Annotated[dict[str, Any], AfterValidator(_without_remote_references)]]
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

    @classmethod
    def of(cls, name: str, /, id: str = "call_1", **arguments: Any) -> ToolCall:
        """A call with keyword arguments; for tests and scripted models."""
        return cls(id, name, json.dumps(arguments))


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a chat."""

    role: Role
    content: str = ""
    """The text; may be empty in a message that only calls tools."""
    tool_calls: tuple[ToolCall, ...] = ()
    """The tool calls of an assistant message."""
    tool_call_id: str | None = None
    """In a tool message: the call that it answers."""


@dataclass(frozen=True, slots=True)
class OutputSchema:
    """The JSON Schema that an answer must fit."""

    name: str
    schema: Mapping[str, Any]


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
    """The tool that the model must call; None leaves the choice to the model."""
    component: str = ""
    """The component that asks; not sent to the provider."""
    path: tuple[int, ...] = ()
    """The position of that component in a workflow; not sent to the provider."""


@dataclass(frozen=True, slots=True)
class ModelResponse:
    """The response of a model to one request."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = field(default_factory=lambda: Usage(cost=None))
    """Tokens of this call; `cost` in USD, None if the price is unknown."""
    finish_reason: str = "stop"
    """`stop`, `length`, `tool_calls` or `content_filter`."""
    model: str = ""
    """The model that answered, as the provider names it; may be empty."""
    id: str = ""
    """The provider's id of the response; may be empty."""
