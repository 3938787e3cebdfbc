"""The bodies of Chat Completions and Responses requests, and the task in them.

What a client may send without effect is listed here; anything else that this service cannot do is refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue
from pydantic_core import PydanticCustomError

from podwright.blueprints import walk_steps
from podwright.components import Component, Workflow
from podwright.conversation import MAX_MESSAGES, parse_messages
from podwright.errors import MessagesError, Problem
from podwright.json_data import as_array, as_object
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
Choice = Literal["auto", "none"]
Metadata = Annotated[dict[str, Annotated[str, Field(max_length=512)]], Field(max_length=16)]
Unit = Annotated[float, Field(ge=0, le=1)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]


class JSONSchemaFormat(RequestModel):
    """The JSON Schema that an answer must fit."""

    name: str = "answer"
    description: str | None = None
    schema_: Object = Field(alias="schema")
    strict: bool | None = None


class _Request(RequestModel):
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

    def own_settings(self) -> Mapping[str, Any]:
        """The settings that the protocols name differently."""
        raise NotImplementedError

    def conversation(self) -> tuple[str, list[Object]]:
        """The pointer of the messages, and the messages in the shape of the library."""
        raise NotImplementedError

    def response_model(self) -> Any:
        """The type that the answer must have; None is text."""
        raise NotImplementedError

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
        pointer, data = self.conversation()
        earlier, question = _split(pointer, data)
        settings = self.settings()
        if settings and not may_set:
            raise _refuse(next(iter(settings)), "The operator does not let clients set this parameter")
        value: Any = list(question.content) if not isinstance(question.content, str) else question.content
        if inputs := self._named_inputs(component):
            if not isinstance(value, str):
                raise _refuse("metadata", "A message with images cannot have named inputs")
            value = {"input": value, **inputs}
        if component.kind not in ("agent", "conductor"):
            if earlier:
                raise _refuse(pointer.strip("/"), f"A {component.kind} takes one message of a user")
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


def _split(pointer: str, data: Sequence[Object]) -> tuple[tuple[Message, ...], Message]:
    """The earlier messages, and the last one, which is the user's.

    Raises:
        RequestError: A message is invalid, or the last one is not a user's.
    """
    try:
        *earlier, question = parse_messages(data)
    except MessagesError as error:
        problems = [Problem(pointer + each.pointer, each.detail, each.suggestion) for each in error.problems]
        raise RequestError(422, error.code, problems[0].detail, error.suggestion, problems=problems) from None
    if question.role != "user":
        problem = Problem(f"{pointer}/{len(data) - 1}/role", "The last message must be of a user.")
        raise RequestError(422, "messages_invalid", problem.detail, "Add the user's message.", problems=[problem])
    return tuple(earlier), question


def _schema_of(value: JSONSchemaFormat | None) -> Any:
    return None if value is None else {"title": value.name, **value.schema_}


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
        match self.response_format:
            case ResponseFormat(type="json_schema", json_schema=JSONSchemaFormat() as schema):
                return _schema_of(schema)
            case ResponseFormat(type="json_schema"):
                raise _refuse("response_format", "The key 'json_schema' is missing")
            case ResponseFormat(type="json_object"):
                return dict[str, Any]
            case _:
                return None

    def conversation(self) -> tuple[str, list[Object]]:
        """See `_Request.conversation`."""
        return "/messages", [_chat_message(message) for message in self.messages]


def _chat_message(message: ChatMessage) -> Object:
    role = "user" if message.role in ("system", "developer") else message.role
    content: Any = message.content
    if role != "user" and message.content and not isinstance(message.content, str):
        content = _joined(message.content)
    data: Object = {"role": role, "content": content}
    if message.tool_calls:
        data["tool_calls"] = [
            {"id": call.get("id"), "function": _only(call.get("function"), "name", "arguments")}
            for call in message.tool_calls
        ]
    if role == "tool":
        data["tool_call_id"] = message.tool_call_id
    if role != "assistant" and content is None:
        data["content"] = ""
    return data


def _only(value: object, *keys: str) -> Object:
    return {key: part for key, part in as_object(value).items() if key in keys}


def _joined(parts: Sequence[Object]) -> str:
    return "\n".join(str(part.get("text") or part.get("refusal") or "") for part in parts)


class TextOptions(RequestModel):
    """The form of the answer."""

    format: ResponsesFormat | None = None


class ResponsesFormat(RequestModel):
    """The form of the answer."""

    type: Literal["text", "json_object", "json_schema"]
    name: str = "answer"
    description: str | None = None
    schema_: Object | None = Field(default=None, alias="schema")
    strict: bool | None = None


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
        match self.text and self.text.format:
            case ResponsesFormat(type="json_schema", schema_=dict() as schema) as form:
                return {"title": form.name, **schema}
            case ResponsesFormat(type="json_schema"):
                raise _refuse("text", "The key 'schema' is missing")
            case ResponsesFormat(type="json_object"):
                return dict[str, Any]
            case _:
                return None

    def conversation(self) -> tuple[str, list[Object]]:
        """See `_Request.conversation`."""
        messages: list[Object] = [{"role": "user", "content": self.instructions}] if self.instructions else []
        if isinstance(self.input, str):
            return "/input", [*messages, {"role": "user", "content": self.input}]
        for item in self.input:
            if item.type == "function_call":
                call = {"id": item.call_id, "function": {"name": item.name, "arguments": item.arguments}}
                if not (messages and messages[-1]["role"] == "assistant"):
                    messages.append({"role": "assistant", "content": None})
                messages[-1].setdefault("tool_calls", []).append(call)
            elif item.type == "function_call_output":
                output = item.output if isinstance(item.output, str) else _joined(item.output or [])
                messages.append({"role": "tool", "tool_call_id": item.call_id, "content": output})
            elif item.role == "assistant":
                content = item.content if isinstance(item.content, str) else _joined(item.content or [])
                messages.append({"role": "assistant", "content": content})
            else:
                content = [_part(part) for part in as_array(item.content)] or item.content or ""
                messages.append({"role": "user", "content": content})
        return "/input", messages


_PARTS: Mapping[str, Callable[[Object], Object]] = {
    "input_text": lambda part: {"type": "text", "text": part.get("text")},
    "input_image": lambda part: {
        "type": "image_url",
        "image_url": {"url": part.get("image_url"), "detail": part.get("detail") or "auto"},
    },
}


def _part(part: Object) -> Object:
    """A part of a user's message in the shape of the library; an unknown one stays, and is refused there."""
    translate = _PARTS.get(str(part.get("type")))
    return translate(part) if translate else part


TextOptions.model_rebuild()
