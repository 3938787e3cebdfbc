"""The bodies of Chat Completions and Responses requests, and the task in them.

What a client may send without effect is listed here; anything else that this service cannot do is refused by name.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue
from pydantic_core import PydanticCustomError

from podwright.blueprints import walk_steps
from podwright.components import Component, Workflow
from podwright.conversation import MAX_MESSAGES, parse_messages
from podwright.errors import MessagesError, Problem
from podwright.json_data import as_object, walk_json
from podwright.messages import Message, ModelSettings
from podwright.run import Task
from podwright.templates import names
from podwright_service.problems import RequestError
from podwright_service.schemas import Object, RequestModel


def _only_empty(reason: str) -> AfterValidator:
    """Refuses a parameter unless it is null, false or empty."""

    def check(value: object) -> object:
        if value:
            # a ValueError would keep its traceback, and with it the body, until the next garbage collection
            raise PydanticCustomError("value_error", cast("Any", reason))
        return value

    return AfterValidator(check)


NoTools = Annotated[JsonValue, _only_empty("Tools of the client are not supported: the component has its own")]
NotStored = Annotated[JsonValue, _only_empty("Responses are not stored: send the whole conversation as input")]
NotSupported = Annotated[JsonValue, _only_empty("This parameter is not supported")]
_Placed = tuple[str, Object]
"""A message and its JSON pointer in the request."""
Choice = Literal["auto", "none"]
Metadata = Annotated[dict[str, Annotated[str, Field(max_length=512)]], Field(max_length=16)]
Unit = Annotated[float, Field(ge=0, le=1)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]


class JSONSchemaFormat(RequestModel):
    """The JSON Schema that an answer must fit."""

    name: str = "answer"
    description: str | None = None
    schema_: Object | None = Field(default=None, alias="schema")
    strict: bool | None = None


class _Request(RequestModel, ABC):
    """What both protocols have."""

    model: str = Field(max_length=200)
    """The name of the component, as `/v1/models` has it."""
    stream: bool | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Unit | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    parallel_tool_calls: bool | None = None
    metadata: Metadata | None = None
    """Entries whose names are in the component's templates are named inputs."""
    user: str | None = None
    """Has no effect, like `safety_identifier`, `prompt_cache_key` and `service_tier`."""
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    service_tier: Literal["auto", "default"] | None = None
    store: NotStored = None
    tools: NoTools = None
    tool_choice: Choice | None = None
    top_logprobs: NotSupported = None

    def settings(self) -> ModelSettings:
        """The settings of model calls that the client has set."""
        shared = ("temperature", "top_p", "presence_penalty", "frequency_penalty", "parallel_tool_calls")
        values = {**{name: getattr(self, name) for name in shared}, **self.own_settings()}
        return cast("ModelSettings", {name: value for name, value in values.items() if value is not None})

    @abstractmethod
    def own_settings(self) -> Mapping[str, Any]:
        """The settings that the protocols name differently."""

    @abstractmethod
    def conversation(self) -> list[_Placed]:
        """The messages in the shape of the library, each with its pointer in the request."""

    @abstractmethod
    def response_model(self) -> Any:
        """The type that the answer must have; None is text."""

    def task(self, component: Component, may_set: bool) -> Task:
        """What the component is to do.

        Args:
            component: The served component.
            may_set: Whether clients may set `temperature` and the like.

        Raises:
            RequestError: The component cannot do this.
        """
        if self.model != component.name:
            raise RequestError(
                404, "model_not_found", f"There is no model '{self.model}' here.", f"Use '{component.name}'."
            )
        placed = self.conversation()
        earlier, question = _split(placed)
        settings = self.settings()
        if settings and not may_set:
            raise _refuse(next(iter(settings)), "The operator does not let clients set this parameter")
        value: Any = list(question.content) if not isinstance(question.content, str) else question.content
        if inputs := self._named_inputs(component):
            if not isinstance(value, str):
                raise _refuse("metadata", "A message with images cannot have named inputs")
            value = {"input": value, **inputs}
        if not component.keeps_conversation:
            if earlier:
                raise _refuse(placed[0][0].split("/")[1], f"A {component.kind} takes one message of a user")
            if settings:
                raise _refuse(next(iter(settings)), f"A {component.kind} takes no settings of model calls")
        response_model = self.response_model()
        if isinstance(component, Workflow):
            if response_model is not None:
                raise _refuse("response_format", "A workflow gives text")
            return component.task(value)
        return Task(value, response_model, earlier, settings)

    def _named_inputs(self, component: Component) -> dict[str, str]:
        if not self.metadata:
            return {}
        used = _template_names(component)
        return {name: value for name, value in self.metadata.items() if name in used and name != "input"}


def _template_names(component: Component) -> set[str]:
    """The names that the templates and the map steps of a component and its members use."""
    blueprint = component.to_blueprint()
    lists = (step["over"] for _, step in walk_steps(blueprint.get("steps")) if "over" in step)
    inner = (_template_names(member) for member in component.members().values())
    return set(names(json.dumps(blueprint))).union(lists, *inner)


def _refuse(parameter: str, reason: str) -> RequestError:
    return RequestError(
        422,
        "request_invalid",
        f"{reason}: '{parameter}'.",
        "Leave it out.",
        problems=[Problem(f"/{parameter}", reason)],
    )


def _split(placed: Sequence[_Placed]) -> tuple[tuple[Message, ...], Message]:
    """The earlier messages, and the last one, which is the user's.

    Raises:
        RequestError: A message is invalid, or the last one is not a user's.
    """
    try:
        *earlier, question = parse_messages([message for _, message in placed])
    except MessagesError as error:
        problems = [_placed_problem(placed, problem) for problem in error.problems]
        raise RequestError(422, error.code, problems[0].detail, error.suggestion, problems=problems) from None
    if question.role != "user":
        problem = Problem(f"{placed[-1][0]}/role", "The last message must be of a user.")
        raise RequestError(422, "messages_invalid", problem.detail, "Add the user's message.", problems=[problem])
    return tuple(earlier), question


def _placed_problem(placed: Sequence[_Placed], problem: Problem) -> Problem:
    """A problem of a message, or of all messages, with its pointer in the request."""
    index, *inside = problem.pointer.split("/")[1:] or [""]
    above = placed[int(index)][0] if index else "/" + placed[-1][0].split("/")[1]
    return replace(problem, pointer="/".join([above, *inside]))


def _response_model(kind: str, schema: JSONSchemaFormat | None, parameter: str) -> Any:
    """The type of an answer in one of the protocols' forms.

    Raises:
        RequestError: There is no schema, or it has a regular expression, which a caller could make endless.
    """
    if kind != "json_schema":
        return dict[str, Any] if kind == "json_object" else None
    if schema is None or schema.schema_ is None:
        raise _refuse(parameter, "The JSON Schema is missing")
    if any(_is_pattern(pointer, value) for pointer, value, _ in walk_json(schema.schema_)):
        raise _refuse(parameter, "A JSON Schema of a client must have no regular expressions ('pattern')")
    return {"title": schema.name, **schema.schema_}


def _is_pattern(pointer: str, value: object) -> bool:
    *_, above, key = ["", *pointer.split("/")]
    named = above == "properties"  # a property of this name
    return (key == "pattern" and isinstance(value, str)) or (key == "patternProperties" and not named)


def _content(content: str | list[Object] | None) -> Any:
    """A content in the shape of the library, which refuses parts of other types."""
    return [_part(part) for part in content] if isinstance(content, list) else content


def _part(part: Object) -> Object:
    match part:
        case {"type": "input_text" | "output_text" | "refusal" as kind}:
            return {"type": "text", "text": part.get("refusal" if kind == "refusal" else "text")}
        case {"type": "input_image"}:
            image = {"url": part.get("image_url"), "detail": part.get("detail") or "auto"}
            return {"type": "image_url", "image_url": image}
        case _:
            return part


class _Lenient(BaseModel):
    """A part of a conversation; clients send back answers with further keys that have no meaning here."""

    model_config = ConfigDict(extra="ignore", strict=True, use_attribute_docstrings=True)


class ChatMessage(_Lenient):
    """A message of Chat Completions. Messages of the roles system and developer are passed on as a user's."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[Object] | None = None
    """A text, or parts of the types `text` and `image_url`."""
    tool_calls: list[Object] | None = None
    tool_call_id: str | None = None


class ResponseFormat(RequestModel):
    """The form of the answer."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JSONSchemaFormat | None = None


class StreamOptions(RequestModel):
    """What a stream has besides the answer."""

    include_usage: bool = False
    include_obfuscation: bool = False
    """Has no effect."""


class ChatRequest(_Request):
    """A request of Chat Completions."""

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MAX_MESSAGES)]
    """The conversation, of which the last message is the user's."""
    stream_options: StreamOptions | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """Most output tokens of a model call; it can only lower the component's own."""
    seed: int | None = None
    stop: str | list[str] | None = None
    reasoning_effort: Effort | None = None
    response_format: ResponseFormat | None = None
    n: Literal[1] | None = None
    modalities: list[Literal["text"]] | None = None
    logprobs: NotSupported = None
    logit_bias: NotSupported = None
    functions: NoTools = None
    function_call: NoTools = None

    def own_settings(self) -> Mapping[str, Any]:
        """The settings that Chat Completions names as a blueprint does."""
        own = {name: getattr(self, name) for name in ("seed", "stop", "reasoning_effort")}
        return {**own, "max_tokens": self.max_completion_tokens or self.max_tokens}

    def response_model(self) -> Any:
        """See `_Request.response_model`."""
        form = self.response_format
        return _response_model(form.type, form.json_schema, "response_format") if form else None

    def conversation(self) -> list[_Placed]:
        """See `_Request.conversation`."""
        return [(f"/messages/{index}", _chat_message(message)) for index, message in enumerate(self.messages)]


def _chat_message(message: ChatMessage) -> Object:
    role = "user" if message.role in ("system", "developer") else message.role
    data: Object = {"role": role, "content": _content(message.content)}
    if message.tool_calls:
        data["tool_calls"] = [
            {"id": call.get("id"), "function": _only(call.get("function"), "name", "arguments")}
            for call in message.tool_calls
        ]
    if role == "tool":
        data["tool_call_id"] = message.tool_call_id
    return data


def _only(value: object, *keys: str) -> Object:
    return {key: part for key, part in as_object(value).items() if key in keys}


class ResponsesFormat(JSONSchemaFormat):
    """The form of the answer."""

    type: Literal["text", "json_object", "json_schema"]


class TextOptions(RequestModel):
    """The form of the answer."""

    format: ResponsesFormat | None = None


class Reasoning(RequestModel):
    """How a reasoning model thinks."""

    effort: Effort | None = None
    summary: NotSupported = None


class InputItem(_Lenient):
    """An item of a conversation: a message, a function call or its output."""

    type: Literal["message", "function_call", "function_call_output"] = "message"
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: str | list[Object] | None = None
    """A text, or parts of the types `input_text`, `output_text` and `input_image`."""
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | list[Object] | None = None


class ResponsesRequest(_Request):
    """A request of Responses, of which nothing is stored."""

    input: str | Annotated[list[InputItem], Field(min_length=1, max_length=MAX_MESSAGES)]
    """The user's message, or the conversation, of which the last item is the user's message."""
    instructions: str | None = None
    """Passed on as a message of the user, because the system message is the blueprint's."""
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    """Most output tokens of a model call; it can only lower the component's own."""
    reasoning: Reasoning | None = None
    text: TextOptions | None = None
    truncation: Literal["disabled"] | None = None
    include: Annotated[list[Literal["reasoning.encrypted_content"]], Field(max_length=1)] | None = None
    """Has no effect: no reasoning is returned."""
    stream_options: StreamOptions | None = None
    max_tool_calls: NotSupported = None
    previous_response_id: NotStored = None
    conversation_: NotStored = Field(default=None, alias="conversation")
    background: NotSupported = None
    prompt: NotSupported = None

    def own_settings(self) -> Mapping[str, Any]:
        """The settings that Responses names differently."""
        effort = self.reasoning.effort if self.reasoning else None
        return {"max_tokens": self.max_output_tokens, "reasoning_effort": effort}

    def response_model(self) -> Any:
        """See `_Request.response_model`."""
        form = self.text.format if self.text else None
        return _response_model(form.type, form, "text") if form else None

    def conversation(self) -> list[_Placed]:
        """See `_Request.conversation`."""
        placed: list[_Placed] = []
        if self.instructions:
            placed.append(("/instructions", {"role": "user", "content": self.instructions}))
        if isinstance(self.input, str):
            return [*placed, ("/input", {"role": "user", "content": self.input})]
        for index, item in enumerate(self.input):
            if item.type == "function_call" and placed and placed[-1][1]["role"] == "assistant":
                placed[-1][1].setdefault("tool_calls", []).append(_function_call(item))
            else:
                placed.append((f"/input/{index}", _message_of(item)))
        return placed


def _message_of(item: InputItem) -> Object:
    if item.type == "function_call":
        return {"role": "assistant", "content": None, "tool_calls": [_function_call(item)]}
    if item.type == "function_call_output":
        return {"role": "tool", "tool_call_id": item.call_id, "content": _content(item.output)}
    role = "user" if item.role in ("system", "developer") else item.role
    return {"role": role, "content": _content(item.content)}


def _function_call(item: InputItem) -> Object:
    return {"id": item.call_id, "function": {"name": item.name, "arguments": item.arguments}}
