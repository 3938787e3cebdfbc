"""What requests of Chat Completions and of Responses share: parameters, refusals, and the task in them."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Annotated, Any, ClassVar, NamedTuple, cast

from pydantic import Field, JsonValue

from podwright.blueprints import walk_steps
from podwright.components import Component, Workflow
from podwright.conversation import parse_messages
from podwright.errors import MessagesError, Problem
from podwright.json_data import as_object, values_in
from podwright.json_schema import MAX_VALUES
from podwright.messages import Message, ModelSettings
from podwright.run import Task
from podwright.templates import names
from podwright.text import short_repr
from podwright_service.http.problems import RequestError
from podwright_service.http.schemas import Object
from podwright_service.openai_api.values import (
    NoEffect,
    NoTools,
    NotSupported,
    Options,
    Penalty,
    ToolChoice,
    Unit,
)


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
    """Entries whose names are in the component's templates are named inputs."""
    user: JsonValue = None
    """For whom the run is, as `safety_identifier`. `service_tier` and `prompt_cache_key` with its options have no
    effect."""
    safety_identifier: JsonValue = None
    service_tier: NoEffect = None
    prompt_cache_key: NoEffect = None
    prompt_cache_options: NoEffect = None
    prompt_cache_retention: NoEffect = None
    tools: NoTools = None
    tool_choice: ToolChoice | None = None
    top_logprobs: NotSupported = None

    @abstractmethod
    def own_settings(self) -> Sequence[Setting]:
        """The settings that only this protocol has, or names in its own way; None is not set."""

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
        response_model = self.response_model()
        earlier, question = _split(conversation.messages)
        value: Any = (
            list(question.content)
            if not isinstance(question.content, str)
            else question.content
        )
        inputs = self._named_inputs(component)
        settings = self._settings()
        refused: list[Problem] = []
        if settings and not may_set:
            refused += _problems(
                settings, "The operator does not let clients set this parameter"
            )
        elif settings and not component.keeps_conversation:
            refused += _problems(
                settings, f"A {component.kind} takes no settings of model calls"
            )
        if not component.keeps_conversation:
            more = [
                *conversation.instructions,
                *(conversation.messages[:-1] if earlier else ()),
            ]
            reason = (
                f"A {component.kind} takes one message of a user, and no instructions"
            )
            refused += [Problem(placed.pointer, reason) for placed in more]
        if inputs and not isinstance(value, str):
            refused.append(
                Problem("/metadata", "A message with images cannot have named inputs")
            )
        if response_model is not None and isinstance(component, Workflow):
            refused.append(Problem(self.format_pointer, "A workflow gives text"))
        if refused:
            raise _refusal(refused)
        if inputs:
            value = {"input": value, **inputs}
        if isinstance(component, Workflow):
            return component.task(value)
        instructions = "\n\n".join(
            placed.message for placed in conversation.instructions
        )
        return Task(
            value, response_model, earlier, instructions, _as_settings(settings)
        )

    def user_name(self) -> str:
        """See `Sender`."""
        return next(
            (
                value
                for value in (self.user, self.safety_identifier)
                if isinstance(value, str)
            ),
            "",
        )

    def session_name(self) -> str:
        """See `Sender`: `session_id` of the metadata, as other gateways take it."""
        value = (self.metadata or {}).get("session_id")
        return value if isinstance(value, str) else ""

    def _settings(self) -> list[Setting]:
        """The settings of model calls that the client has set."""
        shared = (
            "temperature",
            "top_p",
            "presence_penalty",
            "frequency_penalty",
            "parallel_tool_calls",
        )
        settings = [
            *(Setting(f"/{name}", name, getattr(self, name)) for name in shared),
            *self.own_settings(),
        ]
        return [
            setting
            for setting in settings
            if setting.value is not None and not _is_default(setting)
        ]

    def _named_inputs(self, component: Component) -> dict[str, JsonValue]:
        given = {
            name: value
            for name, value in (self.metadata or {}).items()
            if value is not None and name != "input"
        }
        if not given:
            return {}
        used = _template_names(component)
        return {name: value for name, value in given.items() if name in used}

    def type_of_answer(self, kind: str, schema: JSONSchemaFormat | None) -> Any:
        """The response model for a form of the answer.

        Raises:
            RequestError: There is no schema, or it has a regular expression, which a caller could make endless.
        """
        if kind != "json_schema":
            return dict[str, Any] if kind == "json_object" else None
        if schema is None or schema.schema_ is None:
            raise _refusal([Problem(self.format_pointer, "The JSON Schema is missing")])
        # a larger one is refused later
        for value in islice(values_in(schema.schema_), MAX_VALUES):
            part = as_object(value)
            if "patternProperties" in part or isinstance(part.get("pattern"), str):
                reason = "A JSON Schema of a client must have no regular expressions ('pattern')"
                raise _refusal([Problem(self.format_pointer, reason)])
        described = {"description": schema.description} if schema.description else {}
        return {"title": schema.name, **described, **schema.schema_}


def check_model(name: str, component: Component) -> None:
    """Check that a model is the served component.

    Raises:
        RequestError: 404: there is no model of this name.
    """
    if name != component.name:
        detail = f"There is no model {short_repr(name)} here."
        raise RequestError(404, "model_not_found", detail, f"Use '{component.name}'.")


def _is_default(setting: Setting) -> bool:
    """Whether it says what is so anyway; clients without tools send it too."""
    return setting.name == "parallel_tool_calls" and setting.value is True


def _as_settings(settings: Sequence[Setting]) -> ModelSettings:
    values: dict[str, Any] = {}
    for _, name, value in settings:
        # max_tokens has two names
        values[name] = min(value, values[name]) if name in values else value
    return cast("ModelSettings", values)


def _template_names(component: Component) -> set[str]:
    """The names that the templates and the map steps of a component and its members use."""
    blueprint = component.to_blueprint()
    lists = (
        step["over"] for _, step in walk_steps(blueprint.get("steps")) if "over" in step
    )
    inner = (_template_names(member) for member in component.members().values())
    return set(names(json.dumps(blueprint))).union(lists, *inner)


def _problems(settings: Sequence[Setting], reason: str) -> Iterator[Problem]:
    return (Problem(setting.pointer, reason) for setting in settings)


def _refusal(problems: Sequence[Problem]) -> RequestError:
    parameters = ", ".join(
        f"'{problem.pointer[1:].replace('/', '.')}'" for problem in problems
    )
    reasons = "; ".join(dict.fromkeys(problem.detail for problem in problems))
    return RequestError(
        422,
        "request_invalid",
        f"{reasons}: {parameters}.",
        "Leave it out.",
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
            422, "request_invalid", detail, error.suggestion, problems=problems
        ) from None
    if not messages or messages[-1].role != "user":
        problem = Problem(
            placed[-1].pointer if placed else "", "The last message must be of a user."
        )
        raise RequestError(
            422,
            "request_invalid",
            problem.detail,
            "Add the user's message.",
            problems=[problem],
        )
    return messages[:-1], messages[-1]


def _of_message(placed: Sequence[Placed], problem: Problem) -> Problem:
    """A problem inside the messages of the library, with the pointer of the message in the request."""
    _, *parts = problem.pointer.split("/")
    return Problem(
        placed[int(parts[0])].pointer if parts else "",
        problem.detail,
        problem.suggestion,
    )
