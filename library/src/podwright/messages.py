"""What goes to a model and what comes back: plain frozen data, the same for every provider."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Required

from annotated_types import Ge, Gt, Le, MinLen
from typing_extensions import TypedDict

from podwright.usage import Usage

Role = Literal["system", "user", "assistant", "tool"]


class ModelSettings(TypedDict, total=False):
    """Sampling and time settings of a model call; absent is the provider's default."""

    temperature: Annotated[float, Ge(0), Le(2)]
    """0 to 2."""
    top_p: Annotated[float, Ge(0), Le(1)]
    """Nucleus sampling, 0 to 1."""
    max_tokens: Annotated[int, Ge(1)]
    """Most output tokens of one call."""
    seed: int
    """For repeatable sampling, where a provider has it."""
    stop: str | list[str]
    """Texts that end the output."""
    timeout: Annotated[float, Gt(0)]
    """Seconds for one whole model call."""
    presence_penalty: Annotated[float, Ge(-2), Le(2)]
    """-2 to 2."""
    frequency_penalty: Annotated[float, Ge(-2), Le(2)]
    """-2 to 2."""
    parallel_tool_calls: bool
    """Whether a model may call several tools in one turn."""
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"]
    """How long a reasoning model may think."""


class ToolFunction(TypedDict, total=False):
    """The function part of a tool schema (spec §2.1)."""

    name: Required[Annotated[str, MinLen(1)]]
    description: str
    parameters: Required[dict[str, Any]]
    """JSON Schema of an object, one property a parameter."""
    strict: bool
    """Whether a provider must hold the model to the schema exactly."""


class ToolSchema(TypedDict):
    """A function-calling schema: `{"type": "function", "function": {…}}` (spec §2.1)."""

    type: Literal["function"]
    function: ToolFunction


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A model's wish that a tool be called."""

    id: str
    """The model's name for this call; the answer carries it back."""
    name: str
    """The tool."""
    arguments: str
    """A JSON object as text, just as the model wrote it; it may be malformed."""

    @classmethod
    def of(cls, name: str, /, id: str = "call_1", **arguments: Any) -> ToolCall:
        """A call with arguments given as keywords; for tests and scripted models."""
        return cls(id, name, json.dumps(arguments))


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: Role
    content: str = ""
    """The text; may be empty in a turn that only calls tools."""
    tool_calls: tuple[ToolCall, ...] = ()
    """The tools that an assistant's turn calls."""
    tool_call_id: str | None = None
    """In a tool's turn: the call that it answers."""


@dataclass(frozen=True, slots=True)
class OutputSchema:
    """The JSON Schema that an answer must fit."""

    name: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One model call, whole: nothing that a model needs to know stands elsewhere."""

    model: str
    """As the blueprint names it, "<provider>/<model_name>"."""
    messages: tuple[Message, ...]
    tools: tuple[ToolSchema, ...] = ()
    settings: ModelSettings = field(default_factory=ModelSettings)
    output: OutputSchema | None = None
    """Set when the answer must be JSON of this schema, and the model supports that."""
    tool_choice: str | None = None
    """The one tool that the model must call; None leaves it the choice."""
    component: str = ""
    """Who asks; not sent to a provider."""
    path: tuple[int, ...] = ()
    """Where in a workflow the asker stands; not sent to a provider."""


@dataclass(frozen=True, slots=True)
class ModelResponse:
    """A model's whole answer to one request."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = field(default_factory=lambda: Usage(cost=None))
    """Tokens of this call; `cost` in USD, None if the price is unknown."""
    finish_reason: str = "stop"
    """`stop`, `length`, `tool_calls` or `content_filter`."""
    model: str = ""
    """The model that answered, in the provider's own words; may be empty."""
    id: str = ""
    """The provider's name for this answer; may be empty."""
