"""What requests of Chat Completions and of Responses share: parameters, refusals, and the task in them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, NamedTuple, cast

from pydantic import Field, JsonValue

from podwright.chats.response_format import ClientSchema
from podwright.components import Component
from podwright.connection.schemas import Object
from podwright.data.names import INPUT
from podwright.data.text import short_repr
from podwright.errors import InputsError, MessagesError, Problem
from podwright.folders.walks import values_read, walk
from podwright.functions.run_context import metadata_problem
from podwright.messages.conversation import parse_messages
from podwright.messages.messages import Message, ModelSettings
from podwright.run.component import TaskBody
from podwright.run.run import Task
from podwright_service.execution import below
from podwright_service.http.errors.problems import RequestError
from podwright_service.openai_api.forced_tool import (
    ForcedTool,
    ToolChoice,
    UnsupportedToolsError,
    described_schema,
    forced_tool,
)
from podwright_service.openai_api.values import (
    NoEffect,
    NotSupported,
    Options,
    Penalty,
    Unit,
)
from podwright_service.origin import identity

_SESSION = "session_id"
"""The entry of the metadata that names the session, as other gateways take it."""


class JSONSchemaFormat(Options):
    """The JSON Schema that an answer must fit."""

    name: str = "answer"
    description: str | None = None
    schema_: Object | None = Field(default=None, alias="schema")
    strict: bool | None = None


class Setting(NamedTuple):
    """A setting of model calls in a request."""

    pointer: str
    """Where the client has set it."""
    name: str
    """What a blueprint calls it."""
    value: Any


class Placed(NamedTuple):
    """A message in the shape of the library, or a text."""

    pointer: str
    """Where it is in the request."""
    message: Any


class Conversation(NamedTuple):
    """What a client has sent to be answered."""

    instructions: list[Placed]
    """System and developer messages; `message` is their text."""
    messages: list[Placed]

    def add_instructions(self, pointer: str, text: str) -> None:
        """Add instructions, unless they are blank."""
        if text.strip():
            self.instructions.append(Placed(pointer, text))


class OpenAIRequest(Options, ABC):
    """What both protocols have."""

    format_pointer: ClassVar[str]
    """Where the protocol has the form of the answer."""

    model: str = Field(max_length=200)
    """The name of the component, as `/v1/models` has it."""
    stream: bool | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Unit | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    parallel_tool_calls: bool | None = None
    metadata: dict[str, JsonValue] | None = None
    """Entries whose names the component declares as inputs, or has in its templates, are named inputs. For a declared
    input that is not a text, a text is JSON: `"3"`, `"true"`, `"[1, 2]"`. The others are the metadata of the run."""
    user: JsonValue = None
    """For whom the run is, as `safety_identifier`. `service_tier` and `prompt_cache_key` with its options have no
    effect."""
    safety_identifier: JsonValue = None
    service_tier: NoEffect = None
    prompt_cache_key: NoEffect = None
    prompt_cache_options: NoEffect = None
    prompt_cache_retention: NoEffect = None
    tools: JsonValue = None
    """A single function that `tool_choice` forces is the form of the answer; other tools are refused."""
    tool_choice: ToolChoice = None
    top_logprobs: NotSupported = None

    @abstractmethod
    def own_settings(self) -> Sequence[Setting]:
        """The settings that only this protocol has, or names in its own way; None is not set."""

    def forced_tool(self) -> ForcedTool | None:
        """The client's function whose arguments are the answer; None if the answer is a message.

        Raises:
            RequestError: The client has other tools.
        """
        try:
            return forced_tool(self.tools, self.tool_choice)
        except UnsupportedToolsError as error:
            problem = Problem(error.pointer, error.reason)
            raise _unsupported_error([problem]) from None

    @abstractmethod
    def conversation(self) -> Conversation:
        """The messages."""

    @abstractmethod
    def response_model(self) -> Any:
        """The type that the answer must have; None is text."""

    def task(self, component: Component, may_set: bool) -> Task:
        """What the component is to do.

        Args:
            component: The served component.
            may_set: Whether clients may set `temperature` and the like.

        Raises:
            RequestError: The component cannot do this; with everything that it cannot.
        """
        check_model(self.model, component)
        conversation = self.conversation()
        tool = self.forced_tool()
        response_model = self.response_model()
        format_pointer = self.format_pointer
        messages: Sequence[Placed] = conversation.messages
        if tool is not None:
            response_model = ClientSchema(tool.answer_schema())
            format_pointer = "/tools"
            messages = _with_calls_as_answers(messages, tool.name)
        earlier, question = _split(messages)
        value: Any = question.content
        if not isinstance(value, str):
            value = list(value)
        inputs = self._named_inputs(component)
        settings = self._settings()
        refused = [
            *_refused_settings(settings, component, may_set),
            *_refused_instructions(conversation, component),
        ]
        if response_model and "response_model" not in component.body_keys:
            reason = f"A {component.kind} gives text"
            refused.append(Problem(format_pointer, reason))
        if refused:
            raise _unsupported_error(refused)
        if inputs:
            value = {INPUT: value, **inputs}
        try:
            task = component.task_from(
                TaskBody(value, response_model=response_model)
            )
        except InputsError as error:
            raise _inputs_error(error) from None
        instructions = [placed.message for placed in conversation.instructions]
        return replace(
            task,
            messages=earlier,
            instructions="\n\n".join(instructions),
            settings=_as_settings(settings),
        )

    def user_name(self) -> str:
        """See `Sender`."""
        for value in (self.user, self.safety_identifier):
            if isinstance(value, str):
                return identity(value)
        return ""

    def session_name(self) -> str:
        """See `Sender`."""
        metadata = self.metadata or {}
        value = metadata.get(_SESSION)
        if isinstance(value, str):
            return identity(value)
        return ""

    def metadata_values(self, component: Component) -> dict[str, str]:
        """See `Sender`: the texts of the metadata that are no named inputs, as far as they are few and short."""
        values: dict[str, str] = {}
        inputs = self._given_inputs(component)
        for name, value in (self.metadata or {}).items():
            if name == _SESSION or name in inputs:
                continue
            if isinstance(value, str) and not metadata_problem(
                {**values, name: value}
            ):
                values[name] = value
        return values

    def _settings(self) -> list[Setting]:
        """The settings of model calls that the client has set."""
        settings = [
            Setting("/temperature", "temperature", self.temperature),
            Setting("/top_p", "top_p", self.top_p),
            Setting(
                "/presence_penalty", "presence_penalty", self.presence_penalty
            ),
            Setting(
                "/frequency_penalty",
                "frequency_penalty",
                self.frequency_penalty,
            ),
        ]
        # true is the default, which clients without tools send too; it is about their tools if they have some
        if self.parallel_tool_calls is False and not self.tools:
            name = "parallel_tool_calls"
            settings.append(Setting(f"/{name}", name, value=False))
        settings += self.own_settings()
        return [setting for setting in settings if setting.value is not None]

    def _given_inputs(self, component: Component) -> dict[str, JsonValue]:
        """The metadata that are named inputs of a component, as they came."""
        given: dict[str, JsonValue] = {}
        for name, value in (self.metadata or {}).items():
            if value is not None and name != INPUT:
                given[name] = value
        if not given:
            return {}
        if component.inputs:
            # other entries are not for the component
            return component.inputs.select(given)
        used = {
            value.name
            for part in walk(component)
            for value in values_read(part.to_blueprint(), known=given)
        }
        for part in walk(component):
            used.update(part.inputs.schemas)
            used.update(part.hook_parameters)
        return {name: given[name] for name in given if name in used}

    def _named_inputs(self, component: Component) -> dict[str, JsonValue]:
        inputs = self._given_inputs(component)
        if component.inputs:
            return component.inputs.convert_texts(inputs)
        if not inputs:
            return {}
        for member in walk(component):
            inputs = member.inputs.convert_texts(inputs)
        return inputs

    def type_of_answer(self, kind: str, schema: JSONSchemaFormat | None) -> Any:
        """The response model for a form of the answer.

        Raises:
            RequestError: The schema is missing.
        """
        if kind == "text":
            return None
        if kind == "json_object":
            return dict[str, Any]
        if schema is None or schema.schema_ is None:
            raise _unsupported_error(
                [Problem(self.format_pointer, "The JSON Schema is missing")]
            )
        return ClientSchema(
            described_schema(
                schema.name, schema.description or "", schema.schema_
            )
        )


def check_model(name: str, component: Component) -> None:
    """Check that a model is the served component.

    Raises:
        RequestError: 404: a model of this name does not exist.
    """
    if name != component.name:
        detail = f"There is no model {short_repr(name)} here."
        raise RequestError(
            404, "model_not_found", detail, f"Use '{component.name}'."
        )


def _refused_settings(
    settings: Sequence[Setting], component: Component, may_set: bool
) -> Iterator[Problem]:
    if not may_set:
        reason = "The operator does not let clients set this parameter"
    elif not component.chats:
        reason = f"A {component.kind} takes no settings of model calls"
    else:
        return
    for setting in settings:
        yield Problem(setting.pointer, reason)


def _refused_instructions(
    conversation: Conversation, component: Component
) -> Iterator[Problem]:
    if component.chats:
        return
    reason = f"A {component.kind} takes no instructions"
    for placed in conversation.instructions:
        yield Problem(placed.pointer, reason)


def _as_settings(settings: Sequence[Setting]) -> ModelSettings:
    values: dict[str, Any] = {}
    for _, name, value in settings:
        if name in values:  # max_tokens has two names
            values[name] = min(value, values[name])
        else:
            values[name] = value
    return cast("ModelSettings", values)


def _unsupported_error(problems: Sequence[Problem]) -> RequestError:
    paths = [problem.pointer[1:].replace("/", ".") for problem in problems]
    parameters = ", ".join(f"'{path}'" for path in paths)
    reasons = "; ".join(dict.fromkeys(problem.detail for problem in problems))
    return RequestError(
        422,
        "request_invalid",
        f"{reasons}: {parameters}.",
        suggestion="Leave it out.",
        problems=problems,
    )


def _inputs_error(error: InputsError) -> RequestError:
    """The error in a request whose `metadata` are the inputs; clients show its message, but not the problems."""
    problems = below(error, "/metadata").problems
    details = " ".join(problem.detail for problem in problems)
    return RequestError(
        422,
        error.code,
        f"{error.message} {details}",
        suggestion="Give the inputs in 'metadata', by name; a text stands for other data, as JSON.",
        problems=problems,
    )


def _split(placed: Sequence[Placed]) -> tuple[tuple[Message, ...], Message]:
    """The earlier messages, and the last one, which is the user's.

    Raises:
        RequestError: A tool call and its result are not together, or the last message is not a user's.
    """
    try:
        messages = parse_messages([message for _, message in placed])
    except MessagesError as error:
        problems = [_of_message(placed, problem) for problem in error.problems]
        detail = problems[0].detail
        raise RequestError(
            422,
            "request_invalid",
            detail,
            suggestion=error.suggestion,
            problems=problems,
        ) from None
    if not messages or messages[-1].role != "user":
        raise _no_question_error(placed)
    return messages[:-1], messages[-1]


def _with_calls_as_answers(placed: Sequence[Placed], tool: str) -> list[Placed]:
    """Messages in which each call of a client's tool is an answer, and its result is a message of the user.

    The component has no such tool. A client that refuses the arguments sends the reason as the result, which the
    component has to answer.
    """
    messages: list[Placed] = []
    ids: set[str] = set()
    for pointer, message in placed:
        own = message
        if message["role"] == "assistant":
            calls: list[Object] = message.get("tool_calls") or []
            functions = [call["function"] for call in calls]
            ids.clear()
            if functions and all(
                called["name"] == tool for called in functions
            ):
                ids.update(call["id"] for call in calls)
                own = _with_arguments(message, functions)
        elif message.get("tool_call_id") in ids:
            own = {"role": "user", "content": message["content"]}
            if not own["content"]:
                continue
        messages.append(Placed(pointer, own))
    return messages


def _with_arguments(message: Object, functions: Sequence[Object]) -> Object:
    """An assistant's message with the arguments of functions as its last texts, instead of its tool calls."""
    texts: list[str] = [function["arguments"] for function in functions]
    content: Any = message.get("content") or ""
    if isinstance(content, str):
        content = "\n\n".join(filter(None, [content, *texts]))
    elif all(part.keys() == {"type", "text"} for part in content):
        content = [
            *content,
            *({"type": "text", "text": text} for text in texts),
        ]
    # the parts of a provider are the whole answer
    return {**message, "content": content, "tool_calls": []}


def _no_question_error(placed: Sequence[Placed]) -> RequestError:
    pointer = ""
    if placed:
        pointer = placed[-1].pointer
    problem = Problem(pointer, "The last message must be of a user.")
    return RequestError(
        422,
        "request_invalid",
        problem.detail,
        suggestion="Add the user's message.",
        problems=[problem],
    )


def _of_message(placed: Sequence[Placed], problem: Problem) -> Problem:
    """A problem inside the messages of the library, with the pointer of the message in the request."""
    _, *parts = problem.pointer.split("/")
    pointer = ""
    if parts:
        pointer = placed[int(parts[0])].pointer
    return Problem(pointer, problem.detail, problem.suggestion)
