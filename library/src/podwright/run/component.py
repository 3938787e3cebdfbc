"""The base classes of components: a blueprint as their configuration, and the ways to run them."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import (
    AsyncGenerator,
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    Self,
    TypeVar,
    cast,
)

from podwright.blueprints.inputs import DeclaredInputs
from podwright.blueprints.members import handoffs_of
from podwright.blueprints.named_parts import Hook, hook_names
from podwright.conditions import Conditions
from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_object,
    copy_json,
    to_json_data,
    to_text,
)
from podwright.data.names import INPUT
from podwright.data.text import did_you_mean, truncate
from podwright.errors import (
    DECISION,
    ConfigurationError,
    InputError,
    Problem,
    RunCancelledError,
)
from podwright.events import Event, Subscriber
from podwright.journal.saved_run import SAVED_RUN, SavedRun
from podwright.kinds import TRAITS, Kind
from podwright.location import current
from podwright.messages.approvals import Decision
from podwright.messages.conversation import parse_messages
from podwright.messages.messages import (
    ContentPart,
    HistorySettings,
    Message,
    ModelSettings,
)
from podwright.messages.task_input import by_name
from podwright.messages.usage import (
    NO_USAGE,
    RunLimits,
    Usage,
    limits_of_blueprint,
)
from podwright.models import Connection, Model, resolve
from podwright.models.fallback import DEFAULT_FALLBACK_WAIT, ChatModels
from podwright.models.registry import model_object
from podwright.run.options import ParsedBlueprint, option_subscribers
from podwright.run.result import ExecutionResult
from podwright.run.run import Run, Task, execute
from podwright.run.sync import iterate_sync, run_sync
from podwright.threads import compute
from podwright.tools.tool import Tool

if TYPE_CHECKING:
    from podwright.estimates.walk import Forecast, Given, Walk
    from podwright.functions.run_start import RunStart
    from podwright.mcp.entries import MCPSource
    from podwright.mcp.server import MCPServer
    from podwright.workflows.frames import Decided
    from podwright.workflows.resume import StepProgress

AnyTask = TypeVar("AnyTask", bound=Task)

DEFAULT_MAX_LOOPS = 10
"""Most model calls of one chat, if a blueprint does not say."""
DEFAULT_MAX_TOOL_RETRIES = 3
"""Wrong or failed calls of one tool in a row that are reported to the model, if a blueprint does not say."""
DEFAULT_MAX_CORRECTIONS = 2
"""Answers of one chat that do not fit the response model and are asked for again, if a blueprint does not say."""

Input = str | Mapping[str, Any] | list[ContentPart]
"""A text, named inputs, or for agents and conductors texts, images and files."""
Position = tuple[int, ...]
"""Indices from the outside to the inside: the path of a run."""
Messages = Sequence[Mapping[str, Any]]
"""Earlier turns of a conversation: the `messages` of a result, or what `podwright.messages.conversation` describes."""


@dataclass(frozen=True, slots=True)
class TaskBody:
    """A request for a run, whatever the kind of component: see `Component.task_from`."""

    input: Any
    """A text, named inputs, texts, images and files, or the context of a stopped run."""
    messages: object = ()
    """Earlier turns as JSON data."""
    response_model: Any = None
    """The type of the answer; None is the component's own."""
    start_step: object = 0
    """Index of the step to start from."""
    resume_path: object = None
    """Indices down to the step to resume at."""


@dataclass(frozen=True, slots=True)
class Supplied:
    """Code and components for the names in a blueprint: see `assemble` of each kind."""

    tools: Sequence[Callable[..., Any]] = ()
    """The functions behind its tools."""
    agents: Mapping[str, Component] = field(
        default_factory=dict[str, "Component"]
    )
    """The agents that it names."""
    conditions: Conditions = field(
        default_factory=dict[str, Callable[..., Any]]
    )
    """The functions behind its conditions."""
    functions: Mapping[str, Callable[..., Any]] = field(
        default_factory=dict[str, Callable[..., Any]]
    )
    """The functions that its function steps call."""
    mcp: Mapping[str, MCPServer] | MCPSource | None = None
    """The MCP servers that it names, perhaps with the lock of their tools."""
    model: Model | None = None
    """The model in place of those that it names."""
    validate: bool = True
    """See `from_blueprint`."""

    def with_model(self, options: JsonMapping) -> JsonObject:
        """Return keyword arguments, and the model as one of them if there is one."""
        if self.model is None:
            return dict(options)
        return {**options, "model": self.model}


class Component(ABC):
    """Something that runs. Its blueprint is its configuration; of its runs it keeps only `last_usage`.

    One that is code has a blueprint of `own_blueprint`, and as `kind` that of the components that it resembles.
    """

    kind: ClassVar[Kind]
    """The key of its entry in `podwright.kinds.TRAITS`."""
    body_keys: ClassVar[frozenset[str]] = frozenset()
    """The keys of a `TaskBody` that its runs take besides `input` and `messages`."""
    _hook_functions: Mapping[str, Tool] = MappingProxyType({})
    """The functions before and after its work, by name."""
    is_remote: ClassVar[bool] = False
    """Whether it runs in another container."""

    last_usage: Usage
    """Usage of the run that ended last; where runs overlap, use `ExecutionResult.usage`."""

    def __init__(
        self, parsed: ParsedBlueprint, problems: Sequence[Problem] = ()
    ) -> None:
        self._configure(parsed, problems)

    @classmethod
    def _from_parsed(
        cls, parsed: ParsedBlueprint, problems: Sequence[Problem] = ()
    ) -> Self:
        """Return a component of a blueprint; `__init__` of a kind makes the blueprint from its arguments."""
        self = cls.__new__(cls)
        self._configure(parsed, problems)
        return self

    def _configure(
        self, parsed: ParsedBlueprint, problems: Sequence[Problem]
    ) -> None:
        parsed.check(problems)
        self._blueprint = parsed.data
        self.warnings = parsed.warnings
        """The keys of `config` in its blueprint that are not used; see `blueprints.warnings`."""
        self._options = parsed.options
        self._subscribers = option_subscribers(self._options)
        self.inputs = DeclaredInputs(
            self._blueprint["name"], self._blueprint.get("inputs", {})
        )
        """The inputs that it declares."""
        self.last_usage = NO_USAGE

    @property
    def name(self) -> str:
        """Its name."""
        return self._blueprint["name"]

    @property
    def description(self) -> str:
        """What it is for; may be empty."""
        return self._blueprint.get("description", "")

    @property
    def chats(self) -> bool:
        """Whether it answers with a model of its own, which a caller may give settings."""
        return TRAITS[self.kind].chats

    @property
    def streams_answer(self) -> bool:
        """Whether the tokens of its own run are its answer, so that they can be passed on before its end."""
        return self.chats

    @property
    def subscribers(self) -> tuple[Subscriber, ...]:
        """Subscribers of its runs; read when a run starts."""
        manager = self._options.get("event_manager")
        if not manager:
            return self._subscribers
        return self._subscribers + manager.subscribers

    @property
    def limits(self) -> RunLimits | None:
        """What each of its runs may use, as it was given besides the blueprint; None for no limit."""
        return self._options.get("limits")

    @cached_property
    def all_limits(self) -> Sequence[RunLimits]:
        """The limits of each of its runs: those of its blueprint, and those that it was given besides."""
        of_blueprint = limits_of_blueprint(self._blueprint.get("limits"))
        both = (of_blueprint, self.limits)
        return [limits for limits in both if limits is not None]

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """The `config` of its blueprint."""
        return self._blueprint.get("config", {})

    def to_blueprint(self) -> dict[str, Any]:
        """The blueprint: JSON data that `from_blueprint` reads (spec §4.4)."""
        return copy_json(self._blueprint)

    def members(self) -> Mapping[str, Component]:
        """The components inside this one, by name."""
        return {}

    @property
    def handoffs(self) -> Mapping[str, str]:
        """The names of the agents that its model may hand the conversation over to, each with when."""
        return handoffs_of(self._blueprint)

    def hooks(self, key: Hook) -> list[Tool]:
        """Return the functions before or after its work, in the order of their calls.

        Raises:
            ConfigurationError: One was not given.
        """
        names = [name for _, name in hook_names(self._blueprint, [key])]
        for name in names:
            if name not in self._hook_functions:
                raise ConfigurationError(
                    f"'{self.name}' needs the function '{name}', which was not given."
                )
        return [self._hook_functions[name] for name in names]

    @property
    def hook_parameters(self) -> Collection[str]:
        """The names of the values that the functions before and after its work take."""
        functions = self._hook_functions.values()
        return {name for each in functions for name in each.parameters}

    def own_tools(self) -> Mapping[str, Tool]:
        """Its tools, and the functions before and after its work, without those of its members, by name."""
        return self._hook_functions

    def replace_tool(self, name: str, tool: Tool) -> None:
        """Call another tool in place of one of `own_tools`, which keeps its name.

        Args:
            name: The name in `own_tools`.
            tool: The other tool, such as a `podwright.tools.fake.FakeTool`.

        Raises:
            ConfigurationError: It has no such tool.
        """
        tools = self.own_tools()
        if name not in tools:
            hint = did_you_mean(name, tools)
            raise ConfigurationError(
                f"'{self.name}' has no tool '{truncate(name, 100)}'.",
                suggestion=hint or "It has no tools of its own.",
            )
        self._put_tool(name, tool.renamed(tools[name].name))

    def _put_tool(self, name: str, tool: Tool) -> None:
        """Put a tool in the place of the one of this name."""
        if name in self._hook_functions:
            self._hook_functions = {**self._hook_functions, name: tool}

    def file_of(self, tool: str) -> Literal["tools", "functions"]:
        """The module of a component folder that defines one of `own_tools`."""
        entries = self._blueprint.get("tools", ())
        is_tool = any(entry["name"] == tool for entry in entries)
        # a function that tools.py has is found there, too
        if tool in self._hook_functions and not is_tool:
            return "functions"
        return "tools"

    @property
    def changes_answer(self) -> bool:
        """Whether functions after its work may change what its model or its last member has answered."""
        return "after" in self._blueprint

    @property
    def tool_names(self) -> Collection[str]:
        """The names of the tools in the events of its own runs."""
        return self.own_tools()

    @property
    def conditions(self) -> Conditions:
        """The conditions that it refers to, by name."""
        return {}

    @property
    def written_names(self) -> Collection[str]:
        """The names that its templates may use without an input of that name, because its runs write them."""
        return ()

    @property
    def answering_step(self) -> tuple[int, Component] | None:
        """The index of the member whose answer is its answer, and that member; None if it answers itself."""
        return None

    def answering_parts(self) -> Iterator[tuple[Position, Component]]:
        """Yield the parts of which at most one runs, with its answer as that of the component, and their positions.

        No run of such a part is repeated, and nothing that runs after it gives another answer. It is the component
        itself if that answers itself.
        """
        if self.changes_answer:
            return
        if self.answering_step is None:
            yield (), self
            return
        index, member = self.answering_step
        for position, part in member.answering_parts():
            yield (index, *position), part

    @property
    def response_schema(self) -> JsonObject | None:
        """The JSON Schema of its answers; None if they are texts, or if that is not known."""
        if self.answering_step is not None:
            return self.answering_step[1].response_schema
        return self.config.get("response_schema")

    @property
    def may_report_usage(self) -> bool:
        """Whether its own functions may report the models that they call; see `RunContext.report_usage`."""
        return any(tool.may_report_usage for tool in self.own_tools().values())

    def own_models(self) -> list[str]:
        """Names of the models that its own `config` has."""
        names: list[str] = []
        if "model" in self.config:
            names.append(self.config["model"])
        names += self.config.get("fallback", ())
        return names

    def models(self) -> list[str]:
        """Names of the models that it and its members call, each once."""
        names = self.own_models()
        for member in self.members().values():
            names += member.models()
        return list(dict.fromkeys(names))

    def recorded_start(self, component: str) -> RunStart | None:
        """The start of the next recorded run of a component that its models and those of its members repeat, if any."""
        for member in self.members().values():
            start = member.recorded_start(component)
            if start is not None:
                return start
        return None

    @property
    def reported_models(self) -> Sequence[str]:
        """Names of the models that its functions call by themselves, and report; see `RunContext.report_usage`."""
        return ()

    def text(self, value: Any) -> str:
        """A result of this component as text, for a caller who expects one."""
        return to_text(value)

    def output(self, value: Any, data: Any) -> Any:
        """A result of this component as the input of the next one.

        Args:
            value: What its run returned.
            data: The same as JSON data; None if it is only text. See `Run.data`.
        """
        if data is None:
            return self.text(value)
        return data

    @abstractmethod
    def task_from(self, body: TaskBody) -> Task:
        """Return the task that a request asks for.

        Args:
            body: The request; the keys that are not in `body_keys` have no effect.

        Raises:
            InputError: The input or the start is wrong.
            InputsError: The inputs do not fit those that it declares; with everything that is wrong.
            MessagesError: The messages are invalid; with everything that is wrong.
        """

    def content_of(
        self, result: ExecutionResult, *, as_data: bool = False
    ) -> JsonObject:
        """Return the content of a result for a caller, as JSON data: the `output`, and its `data` if it is not a text.

        Args:
            result: The result of one of its runs.
            as_data: Whether a content that is a whole context has data, where outputs are data, instead of texts.
        """
        value = to_json_data(result.value)
        data = result.data
        if data is None and not isinstance(value, str):
            data = value
        content: JsonObject = {"output": to_text(value)}
        if data is not None:
            content["data"] = data
        return content

    async def nested_task(
        self, data: Any, values: JsonMapping, response_model: Any = None
    ) -> Task:
        """The task of a run inside another run; the event loop stays free while declared inputs are checked.

        Args:
            data: The input: a text, named inputs, or texts, images and files.
            values: Values of the run around it, which templates and declared inputs may use.
            response_model: The type of the answer; None is the component's own.

        Raises:
            InputsError: The inputs do not fit those that it declares.
        """
        if self.inputs:
            named = by_name(data)
            declared = self.inputs.select(values)
            data = await self.inputs.complete_in_thread({**declared, **named})
        return Task(data, response_model, values=values)

    async def step_task(
        self,
        data: Any,
        values: JsonMapping,
        *,
        response_model: Any = None,
        messages: tuple[Message, ...] = (),
        progress: StepProgress,
        decided: Decided | None,
    ) -> Task:
        """The task of a run of this component as a step of a workflow.

        Args:
            data: See `nested_task`.
            values: See `nested_task`.
            response_model: See `nested_task`.
            messages: Earlier turns of the conversation.
            progress: The progress of that step, which a nested workflow updates.
            decided: What a person has decided on a step inside a nested workflow.
        """
        task = await self.nested_task(data, values, response_model)
        return replace(task, messages=messages)

    def need(self, walk: Walk, given: Given) -> Forecast:
        """Return what a run needs, and the size of its answer; by default nobody knows.

        Args:
            walk: The walk, which is about one bound.
            given: What the run is given, by sizes.
        """
        return walk.unknown_run(f"the {self.kind} '{self.name}'")

    @abstractmethod
    async def perform(self, run: Run, task: Task) -> Any:
        """Do the task within a run: the one method that a kind of component implements."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r})"

    async def _make_task(
        self, make: Callable[..., AnyTask], /, *args: Any
    ) -> AnyTask:
        """The task that a function makes; the event loop stays free while it checks declared inputs."""
        if self.inputs:
            return await compute(make, *args)
        return make(*args)

    async def _arun(self, task: Task, stream: bool, trace: bool) -> Any:
        result = await execute(self, task, stream=stream, trace=trace)
        if trace:
            return result
        return result.value

    def _run(self, task: Task, stream: bool, trace: bool) -> Any:
        loop = _loop_of_outer_run()

        async def run() -> Any:
            # it may have ended before the event loop came to this
            _check_outer_run()
            return await self._arun(task, stream, trace)

        return run_sync(run(), loop)

    async def _astream(
        self, make: Callable[..., Task], /, *args: Any
    ) -> AsyncGenerator[Event]:
        """Run the task that a function makes, and yield the events."""
        task = await self._make_task(make, *args)
        # the run is a task of its own, so that its context variables do not leak into the reader
        queue: asyncio.Queue[Event | None] = asyncio.Queue()
        execution = execute(
            self, task, subscribers=(queue.put_nowait,), stream=True
        )
        running = asyncio.create_task(execution)
        running.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while (event := await queue.get()) is not None:
                yield event
            await running
        finally:
            if not running.done():
                running.cancel()
                await asyncio.wait([running])
            if not running.cancelled():
                # marks it as retrieved: the reader has seen the event, or has left
                running.exception()

    def _stream(self, task: Task) -> Iterator[Event]:
        events = self._astream(lambda: task)
        return iterate_sync(events, _loop_of_outer_run())


class PromptComponent(Component):
    """A component that takes a prompt and answers: agent, conductor and pipeline (spec §4.4)."""

    body_keys: ClassVar[frozenset[str]] = frozenset({"response_model"})

    def run(
        self,
        input_data: Input,
        response_model: Any = None,
        stream: bool = False,
        trace: bool = False,
        *,
        messages: Messages = (),
    ) -> Any:
        """Run to the answer, from synchronous code.

        Args:
            input_data: A text, or named inputs. Inputs fill `{name}` in the instructions; the others are given to the
                model as labelled sections.
            response_model: A pydantic model, or any type, that the answer must have; by default that of the component,
                which is text if it names none.
            stream: Whether models stream: tokens go to `on_token` and to the subscribers.
            trace: Whether to return an `ExecutionResult` instead of the value; an error then has the `events`.
            messages: Earlier turns: the `messages` of the last `ExecutionResult`.

        Returns:
            The answer, or an `ExecutionResult`.

        Raises:
            PodwrightError: See `podwright.errors`.
        """
        task = self.task(input_data, response_model, messages)
        return self._run(task, stream, trace)

    async def arun(
        self,
        input_data: Input,
        response_model: Any = None,
        stream: bool = False,
        trace: bool = False,
        *,
        messages: Messages = (),
    ) -> Any:
        """As `run`, from asynchronous code; cancelling it cancels the run."""
        task = await self._make_task(
            self.task, input_data, response_model, messages
        )
        return await self._arun(task, stream, trace)

    def stream(
        self,
        input_data: Input,
        response_model: Any = None,
        *,
        messages: Messages = (),
    ) -> Iterator[Event]:
        """Run and yield each event as it happens, tokens included; leaving early cancels the run."""
        task = self.task(input_data, response_model, messages)
        return self._stream(task)

    def astream(
        self,
        input_data: Input,
        response_model: Any = None,
        *,
        messages: Messages = (),
    ) -> AsyncGenerator[Event]:
        """As `stream`, from asynchronous code; errors of the input come with the first event."""
        return self._astream(self.task, input_data, response_model, messages)

    def task_from(self, body: TaskBody) -> Task:
        """Return the task that a request asks for; see `Component.task_from`."""
        return self.task(body.input, body.response_model, body.messages)

    def task(
        self, data: Any, response_model: Any = None, messages: object = ()
    ) -> Task:
        """The task of a run.

        Args:
            data: A text, named inputs, or texts, images and files.
            response_model: The type of the answer; None is text.
            messages: Earlier turns as JSON data.

        Raises:
            InputsError: The inputs do not fit those that it declares; with everything that is wrong.
            MessagesError: The messages are invalid; with everything that is wrong.
        """
        saved = saved_run_in(data)
        if saved is not None:
            data = saved.given.get("data")
            # states of older releases have none
            messages = saved.given.get("messages", messages)
        elif DECISION in as_object(data):
            raise nothing_to_decide()
        given = {"data": data, "messages": messages}
        values: JsonMapping = {}
        if self.inputs:
            named = self.inputs.complete(by_name(data))
            if isinstance(data, list):
                # texts, images and files, beside which only templates have inputs
                values = named
            elif named != {INPUT: data}:
                data = named
        return Task(
            data,
            response_model,
            messages=parse_messages(messages),
            values=values,
            given=given,
            saved=saved,
        )


class ModelComponent(PromptComponent):
    """A component with a model of its own: agent and conductor."""

    _wrap: Callable[[Model], Model] | None = None
    """See `wrap_models`."""
    _wrapped: Mapping[Model, Model] = MappingProxyType({})
    """What it has returned, by the models that it was given."""

    def _configure(
        self, parsed: ParsedBlueprint, problems: Sequence[Problem]
    ) -> None:
        super()._configure(parsed, problems)
        self._model = parsed.model
        self._response_model = parsed.response_model
        self._connection = Connection(
            api_key=self._options.get("api_key"),
            base_url=self._options.get("base_url"),
        )

    @property
    def instructions(self) -> str:
        """The system instructions, a template."""
        return self._blueprint["instructions"]

    @property
    def response_model(self) -> Any:
        """The type of its answers if the caller names none: a Python type, or a JSON Schema; None is text."""
        if self._response_model is not None:
            return self._response_model
        return self.config.get("response_schema")

    @property
    def max_loops(self) -> int:
        """Most model calls of one chat; planning is a chat of its own."""
        return self.config.get("max_loops", DEFAULT_MAX_LOOPS)

    @property
    def max_tool_retries(self) -> int:
        """Wrong or failed calls of one tool in a row that are reported to the model; the next one fails the run."""
        return self.config.get("max_tool_retries", DEFAULT_MAX_TOOL_RETRIES)

    @property
    def max_corrections(self) -> int:
        """Answers of one run that do not fit the response model and are asked for again."""
        return self.config.get("max_corrections", DEFAULT_MAX_CORRECTIONS)

    @property
    def tool_choice(self) -> str | None:
        """Which tool its model calls first, as a request has it; None leaves the choice to the model."""
        choice = self.config.get("tool_choice", "auto")
        return None if choice == "auto" else choice

    @property
    def stop_at(self) -> Sequence[str]:
        """The names of the tools whose results are its answer."""
        names = self.config.get("stop_at", ())
        return [names] if isinstance(names, str) else names

    @property
    def model(self) -> Model:
        """The model that answers.

        Raises:
            UnknownModelError: No provider serves it.
        """
        model = resolve(
            self.config["model"],
            self._model,
            self._connection,
            component=self.name,
        )
        return self._in_wrapping(model)

    def wrap_models(self, wrap: Callable[[Model], Model]) -> None:
        """Ask what a function returns of each model in place of the model, and of each fallback model.

        It holds for the models that the blueprint names, for a model object, and for those of `use_model`. A second
        call takes the place of the first one. Members have models of their own.

        Args:
            wrap: Called once with each model, when that is needed first; the name of what it returns should be the
                model's.
        """
        self._wrap = wrap
        self._wrapped = {}

    def _in_wrapping(self, model: Model) -> Model:
        """Return what is asked in place of a model: always the same, because calls compare models by identity."""
        if self._wrap is None:
            return model
        if model not in self._wrapped:
            self._wrapped = {**self._wrapped, model: self._wrap(model)}
        return self._wrapped[model]

    def recorded_start(self, component: str) -> RunStart | None:
        """See `Component.recorded_start`."""
        model = model_object(self._model, self.name)
        start = None
        if model is not None:
            start = self._in_wrapping(model).recorded_start(component)
        return start or super().recorded_start(component)

    def replace_model(self, model: Model) -> None:
        """Let a model object answer in place of the one that the blueprint names, and of its fallback models."""
        self._model = model

    @property
    def chat_models(self) -> ChatModels:
        """Its model and its fallback models, with the providers' own keys and URLs; a model object has no fallback.

        Raises:
            UnknownModelError: No provider serves one of them.
        """
        first = self.model
        names: Sequence[str] = ()
        if self._model is None:
            names = self.config.get("fallback", ())
        fallback = [
            self._in_wrapping(resolve(name, component=self.name))
            for name in names
        ]
        return ChatModels(
            first,
            fallback,
            longest_wait=self.config.get(
                "fallback_wait", DEFAULT_FALLBACK_WAIT
            ),
        )

    @property
    def history_settings(self) -> HistorySettings:
        """How much of a conversation its model is given."""
        settings = self._config_of(HistorySettings.__optional_keys__)
        return cast("HistorySettings", settings)

    @property
    def settings(self) -> ModelSettings:
        """The model settings in the blueprint's `config`."""
        settings = self._config_of(ModelSettings.__optional_keys__)
        return cast("ModelSettings", settings)

    def _config_of(self, keys: frozenset[str]) -> dict[str, Any]:
        """The part of `config` with these keys."""
        return {key: value for key, value in self.config.items() if key in keys}


def nothing_to_decide() -> InputError:
    """The error about a decision without a run that waits for it."""
    return InputError(
        "There is nothing to decide: the input is not the context of a run that waits.",
        suggestion="Give the `context` and the `resume_path` of the error that paused the run.",
    )


def saved_run_in(data: object) -> SavedRun | None:
    """The stopped run in the context of an error; if it waits, with the decision of a person, by default to approve.

    Raises:
        InputError: It cannot be read, or a decision comes with one that does not wait.
    """
    context = as_object(data)
    if SAVED_RUN not in context:
        return None
    saved = SavedRun.from_dict(context[SAVED_RUN])
    decision = Decision()
    if DECISION in context:
        if saved.asked is None:
            raise nothing_to_decide()
        decision = Decision.from_dict(context[DECISION])
    return saved.with_decision(decision)


def _loop_of_outer_run() -> asyncio.AbstractEventLoop | None:
    """The event loop of the run whose tool makes a synchronous call, if any.

    Raises:
        RunCancelledError: That run is over, and only the thread of its tool goes on.
    """
    _check_outer_run()
    outer = current()
    if outer is None:
        return None
    return outer.loop


def _check_outer_run() -> None:
    """Refuse a synchronous call that is part of a run which is over, and of which only the thread of a tool goes on.

    Raises:
        RunCancelledError: It is.
    """
    outer = current()
    if outer is not None and outer.is_closed:
        raise RunCancelledError(
            f"The run of '{outer.component_name}', which this call is part of, is over."
        )
