"""The workflow: steps over one context, which can stop anywhere and resume there (spec §§2.2, 4.4)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import (
    AsyncGenerator,
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast

from typing_extensions import Unpack

from podwright.blueprints import walk_steps
from podwright.blueprints.named_parts import step_function_names
from podwright.blueprints.validation import Blueprint
from podwright.conditions import Conditions
from podwright.conditions import problems as condition_problems
from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_object,
    copy_json,
    to_json_data,
    to_text,
)
from podwright.data.names import INPUT
from podwright.data.text import truncate
from podwright.errors import DECISION, ContextError, InputError, Problem
from podwright.estimates.sizes import (
    Size,
    Sizes,
    known_in,
    section_bytes,
)
from podwright.estimates.walk import Forecast, Given, Walk
from podwright.events import Event, EventManager
from podwright.journal.kept import KEPT, Kept
from podwright.kinds import Kind
from podwright.messages.approvals import Decision
from podwright.messages.conversation import (
    as_content,
    parse_content,
    parse_messages,
    to_data,
)
from podwright.messages.messages import ContentPart, Message
from podwright.messages.task_input import by_name, to_context
from podwright.messages.templates import sections, visible
from podwright.models.retries import Retries
from podwright.run.component import (
    Component,
    Position,
    Supplied,
    TaskBody,
    nothing_to_decide,
    saved_run_in,
)
from podwright.run.end import Checkpoint
from podwright.run.options import (
    DescribedOptions,
    ParsedBlueprint,
    named_map,
    parse_arguments,
    parse_with_overrides,
)
from podwright.run.result import ExecutionResult
from podwright.run.run import Run, Task
from podwright.steps import WorkflowStep
from podwright.steps.base import (
    Step,
    answering_in,
    output_names,
    steps_to_data,
)
from podwright.steps.loop_step import ITERATION
from podwright.steps.registry import collect, step_class, steps_from_data
from podwright.tools.entries import missing_function
from podwright.tools.tool import Tool
from podwright.workflows.agent_map import AgentMap, agent_map
from podwright.workflows.frames import DECISIONS, Decided, Scope, SequenceFrame
from podwright.workflows.references import References, argument_problems
from podwright.workflows.resume import (
    PROGRESS,
    StepProgress,
    initial_progress,
    path_of,
)
from podwright.workflows.runner import StepRunner, WorkflowTask
from podwright.workflows.template_names import name_problems
from podwright.workflows.turn import TURN, answer_of, check_turn

if TYPE_CHECKING:
    from podwright.mcp.entries import MCPSource
    from podwright.mcp.server import MCPServer

LONGEST_REPEATED_INPUT = 1000
"""Most characters of the `input` in a result if it only repeats the named inputs."""
Functions = Mapping[str, Callable[..., Any]]
"""Functions by the names that steps use."""
Context = Mapping[str, Any] | list[ContentPart] | str | None
"""A text, or texts, images and files, used as `input`; or named values."""
ResumePath = Sequence[int] | None
"""Indices down to a step."""


class Workflow(Component):
    """Steps that read and write one context.

    Args:
        name: Its name.
        steps: `AgentStep` and the other step classes; a bare agent is a step too.
        agents: Agents that steps name as strings.
        conditions: Conditions that steps name as strings.
        functions: Functions that steps name as strings.
        mcp: The MCP servers by the names that steps use.
        **options: A `description`, `verbose`; see `DescribedOptions`.

    Raises:
        BlueprintValidationError: An argument has a wrong type or value, or an agent or condition is missing.
    """

    kind: ClassVar[Kind] = "workflow"
    body_keys: ClassVar[frozenset[str]] = frozenset(
        {"start_step", "resume_path"}
    )
    retries: Retries = Retries()
    """The waits between the attempts of a try step, which says how many they are. Set on the class."""

    def __init__(
        self,
        name: str,
        steps: Sequence[Step | Component],
        agents: Mapping[str, Component] | None = None,
        conditions: Conditions | None = None,
        *,
        functions: Functions | None = None,
        mcp: Mapping[str, MCPServer] | None = None,
        **options: Unpack[DescribedOptions],
    ) -> None:
        references = _references(agents, conditions, functions, mcp)
        self._steps = references.resolve(steps)
        self._references = references
        parsed = parse_arguments(
            "workflow",
            {"name": name, "steps": steps_to_data(self._steps)},
            options,
        )
        problems = _reference_problems(parsed.data, references)
        problems += name_problems(
            parsed, references.agents, references.functions
        )
        super().__init__(parsed, problems)

    @classmethod
    def from_blueprint(
        cls,
        blueprint: Mapping[str, Any],
        agents: Mapping[str, Component] = {},
        conditions: Conditions = {},  # noqa: B006 - read only; the default is the specification's
        validate: bool = True,
        event_manager: EventManager | None = None,
        **kwargs: Any,
    ) -> Self:
        """Rebuild a workflow (spec §4.4).

        Args:
            blueprint: What `to_blueprint` returned.
            agents: The agents by the names that its steps use.
            conditions: The functions by the names that its steps use; built-in conditions need none.
            validate: If false, unknown keys are dropped, and missing agents and conditions fail when they are needed.
            event_manager: Subscribers of every run, nested ones included.
            **kwargs: `functions`, those that its steps call, by name; `mcp`, the MCP servers that they name; values
                that override the blueprint's; `Options`.

        Raises:
            BlueprintValidationError: The blueprint is invalid; with all problems.
            ConfigurationError: A keyword is unknown.
        """
        functions = kwargs.pop("functions", None)
        mcp = kwargs.pop("mcp", None)
        references = _references(agents, conditions, functions, mcp)
        parsed = parse_with_overrides(blueprint, "workflow", validate, kwargs)
        if event_manager is not None:
            parsed.options["event_manager"] = event_manager
        problems: list[Problem] = []
        if validate:
            problems = _reference_problems(parsed.data, references)
            problems += name_problems(
                parsed, references.agents, references.functions
            )
        else:
            # what is missing fails when it is needed
            references.add_mcp_functions(parsed.data)
        return cls._build(parsed, references, problems)

    @classmethod
    def assemble(
        cls, blueprint: JsonMapping, supplied: Supplied, **options: Any
    ) -> Self:
        """Rebuild a workflow with what is supplied for any kind; see `from_blueprint`. Its agents have the models."""
        return cls.from_blueprint(
            blueprint,
            supplied.agents,
            supplied.conditions,
            supplied.validate,
            functions=supplied.functions,
            mcp=supplied.mcp,
            **options,
        )

    @classmethod
    def _build(
        cls,
        parsed: ParsedBlueprint,
        references: References,
        problems: Sequence[Problem] = (),
    ) -> Self:
        def nested(blueprint: Blueprint) -> Workflow:
            return Workflow._build(
                ParsedBlueprint("workflow", blueprint), references
            )

        self = cls._from_parsed(parsed, problems)
        self._references = references
        self._steps = steps_from_data(parsed.data["steps"], nested)
        return self

    @property
    def steps(self) -> Sequence[Step]:
        """Its steps; they refer to agents and conditions by name."""
        return self._steps

    @property
    def conditions(self) -> Conditions:
        """The conditions that its steps refer to, by name."""
        return self._references.conditions

    @property
    def functions(self) -> Mapping[str, Tool]:
        """The functions that its steps call, by name."""
        return self._references.functions

    @property
    def mcp_functions(self) -> Collection[Tool]:
        """The tools of MCP servers that its steps call."""
        return self._references.mcp_functions.values()

    def file_of(self, tool: str) -> Literal["tools", "functions"]:
        """See `Component.file_of`."""
        return "functions"

    def own_tools(self) -> Mapping[str, Tool]:
        """The functions that the function steps of its blueprint call, by name.

        A tool of an MCP server that has the name of another one has that of its server before it.
        """
        called = step_function_names(self._blueprint)
        functions: dict[str, Tool] = {
            name: tool
            for name, tool in self.functions.items()
            if name in called
        }
        for tool in self.mcp_functions:
            name = tool.name
            if name in functions:
                name = f"{tool.mcp_server}/{name}"
            functions[name] = tool
        return functions

    def _put_tool(self, name: str, tool: Tool) -> None:
        original = self.own_tools()[name]
        self._references.replace_function(name, original, tool)
        # one that was made in Python has functions of its own
        for workflow in _nested_workflows(self._steps):
            for inner_name, inner in workflow.own_tools().items():
                has_name = inner.name == original.name
                if has_name and inner.is_same_as(original):
                    workflow.replace_tool(inner_name, tool)

    @property
    def written_names(self) -> Collection[str]:
        """The names that its steps write to the context, or give to the steps inside them."""
        items = [
            step["as"]
            for _, step in walk_steps(self._blueprint["steps"])
            if "as" in step
        ]
        return {*self.output_names, *items, ITERATION}

    @property
    def output_names(self) -> Sequence[str]:
        """The names that its steps may write to the context, each once."""
        return output_names(self._steps)

    @property
    def _edit_schemas(self) -> Mapping[str, Sequence[JsonMapping]]:
        """The JSON Schemas of what persons may change, by name."""
        schemas: defaultdict[str, list[JsonMapping]] = defaultdict(list)
        for _, step in walk_steps(self._blueprint["steps"]):
            for name, schema in as_object(step.get("edit")).items():
                schemas[name].append(schema)
        return schemas

    def members(self) -> Mapping[str, Component]:
        """Its agents by name."""
        return self._references.agents

    def answering_parts(self) -> Iterator[tuple[Position, Component]]:
        """Yield the agents whose answers are its last output, whatever else its steps do; see `Component`."""
        for place in answering_in(self._steps):
            agent = self.members().get(place.agent)
            if agent is not None:
                for position, part in agent.answering_parts():
                    yield (*place.position, *position), part

    def text(self, value: Any) -> str:
        """The output that was written last, as text."""
        return to_text(self.output(value, None))

    def output(self, value: Any, data: Any) -> Any:
        """The output that was written last, as input for the next component."""
        if data is None:
            data = value
        outputs = as_object(data)
        if not outputs:
            return data
        return next(reversed(outputs.values()))

    def run(
        self,
        context: Context = None,
        start_step: int = 0,
        trace: bool = False,
        resume_path: ResumePath = None,
        **kwargs: Any,
    ) -> Any:
        """Run to the end, from synchronous code (spec §4.4).

        Args:
            context: A text, used as `input`, or a whole context, such as that of an error that stopped a run.
            start_step: Index of the step to start from.
            trace: Whether to return an `ExecutionResult` instead of the context; an error then has the `events`.
            resume_path: Indices down to the step to start from, as the error of a stopped run carries it. A path to
                an approval step approves it.
            **kwargs: Named inputs if no context is given, or updates to it. `messages` are the earlier turns of a
                conversation: those of the last `ExecutionResult`.

        Returns:
            The context: `input` and an entry for each output, all strings; or an `ExecutionResult`.

        Raises:
            PodwrightError: With `context` and `resume_path` if the workflow can be resumed.
        """
        task = self._task_with_updates(context, start_step, resume_path, kwargs)
        return self._run(task, stream=False, trace=trace)

    async def arun(
        self,
        context: Context = None,
        start_step: int = 0,
        trace: bool = False,
        resume_path: ResumePath = None,
        **kwargs: Any,
    ) -> Any:
        """As `run`, from asynchronous code; cancelling it cancels the run."""
        task = await self._make_task(
            self._task_with_updates, context, start_step, resume_path, kwargs
        )
        return await self._arun(task, stream=False, trace=trace)

    def stream(
        self,
        context: Context = None,
        start_step: int = 0,
        resume_path: ResumePath = None,
        **kwargs: Any,
    ) -> Iterator[Event]:
        """Run and yield each event as it happens, tokens included; leaving early cancels the run."""
        task = self._task_with_updates(context, start_step, resume_path, kwargs)
        return self._stream(task)

    def astream(
        self,
        context: Context = None,
        start_step: int = 0,
        resume_path: ResumePath = None,
        **kwargs: Any,
    ) -> AsyncGenerator[Event]:
        """As `stream`, from asynchronous code; errors of the context come with the first event."""
        return self._astream(
            self._task_with_updates, context, start_step, resume_path, kwargs
        )

    def task_from(self, body: TaskBody) -> WorkflowTask:
        """Return the task that a request asks for; see `Component.task_from`."""
        return self.task(
            body.input, body.start_step, body.resume_path, body.messages
        )

    def task(
        self,
        context: object,
        start_step: object = 0,
        resume_path: object = None,
        messages: object = (),
    ) -> WorkflowTask:
        """The task of a run with these arguments, for `podwright.run.run.execute`.

        Args:
            context: A text, texts, images and files, or a whole context.
            start_step: See `run`.
            resume_path: See `run`.
            messages: Earlier turns as JSON data; by default those of the stopped run whose context it is.

        Raises:
            InputError: The context, the start step or the resume path is wrong.
            MessagesError: The messages are invalid.
        """
        if context is None or (self.inputs and context == {}):
            context = {"input": self.inputs.defaults.get("input", "")}
        saved_run = saved_run_in(context)
        if saved_run is not None:
            task = self.task(
                saved_run.given.get("context"),
                saved_run.given.get("start_step", 0),
                saved_run.given.get("resume_path"),
            )
            return replace(task, saved=saved_run)
        if isinstance(context, list):
            parts = cast("object", context)
            parse_content(parts)
            context = {"input": parts}
        named = dict(to_context(context))
        if messages:
            named[MESSAGES] = to_json_data(messages)
        given = {
            "context": dict(named),
            "start_step": start_step,
            "resume_path": resume_path,
        }
        saved = named.pop(PROGRESS, None)
        kept: Kept | None = None
        if KEPT in named:
            kept = Kept.from_dict(named.pop(KEPT))
        earlier = parse_messages(named.get(MESSAGES, ()))
        check_turn(named)
        decision = Decision()
        if DECISION in named:
            decision = Decision.from_dict(named.pop(DECISION))
            if resume_path is None:
                raise nothing_to_decide()
        progress = initial_progress(
            len(self._steps),
            saved=saved,
            start_step=start_step,
            resume_path=resume_path,
        )
        if saved is None or resume_path is None:
            known = (*self.output_names, MESSAGES, DECISIONS, TURN)
            named = dict(self.inputs.complete(named, known))
        else:
            # it has added names since, and persons may have changed inputs
            self.inputs.check_values(named, self._edit_schemas)
        decided: Decided | None = None
        if resume_path is not None:
            decided = Decided(tuple(path_of(progress)), decision)
        combined = self._combined_inputs(named)
        if "input" not in named:
            named = {"input": combined, **named}
        hidden: frozenset[str] = frozenset()
        if combined and named["input"] in (combined, _shortened(combined)):
            named = {**named, "input": combined}
            # agents see the named inputs themselves, so an `input` that only combines them is not repeated
            hidden = frozenset({"input"})
        return WorkflowTask(
            input=visible(named),
            scope=Scope(named),
            progress=copy_json(progress),
            decided=decided,
            hidden=hidden,
            messages=earlier,
            given=given,
            kept=kept,
        )

    def _combined_inputs(self, context: JsonMapping) -> str:
        """Return the text of all named inputs, which is the `input` of a run that has only those; empty without any."""
        return sections(context, ("input", *self.output_names))

    def content_of(
        self, result: ExecutionResult, *, as_data: bool = False
    ) -> JsonObject:
        """Return the context of a result for a caller, who does not need long named inputs a second time.

        An `input` that only combines the named inputs is cut to `LONGEST_REPEATED_INPUT` characters; a run that is
        given this context has all of it again.

        Args:
            result: The result of one of its runs.
            as_data: Whether the context has data, where outputs are data, instead of texts.
        """
        texts: JsonObject = to_json_data(result.value)
        data = texts if result.data is None else result.data
        content = dict(data if as_data else texts)
        combined = self._combined_inputs(data)
        if combined and content["input"] == combined:
            content["input"] = _shortened(combined)
        return content

    async def nested_task(
        self, data: Any, values: JsonMapping, response_model: Any = None
    ) -> WorkflowTask:
        """The task of a run inside another run; a workflow has a context of its own."""
        if response_model is not None:
            raise InputError(
                f"The workflow '{self.name}' takes no response model.",
                suggestion="Give it to the agent whose answer is the result.",
            )
        if self.inputs:
            data = {**self.inputs.select(values), **by_name(data)}
        return await self._make_task(self.task, data)

    async def step_task(
        self,
        data: Any,
        values: JsonMapping,
        *,
        response_model: Any = None,
        messages: tuple[Message, ...] = (),
        progress: StepProgress,
        decided: Decided | None,
    ) -> WorkflowTask:
        """The task of a run as a step of another workflow, which saves its context and progress."""
        if "context" in progress:
            task = await self._make_task(self.task, progress["context"])
        else:
            task = await self.nested_task(data, values, response_model)
        # the same object: what steps write into it is saved
        progress["context"] = task.scope.context
        return replace(
            task,
            messages=messages,
            progress=progress.setdefault("in", {}),
            decided=decided,
            runs_as_step=True,
        )

    def _task_with_updates(
        self,
        context: object,
        start_step: object,
        resume_path: object,
        updates: Mapping[str, Any],
    ) -> WorkflowTask:
        named = dict(updates)
        messages: object = named.pop("messages", ())
        names = _ARGUMENTS_OF_OTHER_KINDS & named.keys()
        if names:
            raise ContextError(
                f"The run of a workflow has no argument '{min(names)}'.",
                suggestion="Choose another name for the input, or put it into `context`.",
            )
        if named:
            inputs = named
            if context is not None:
                inputs = {**to_context(context), **named}
            context = inputs
        return self.task(context, start_step, resume_path, messages)

    def need(self, walk: Walk, given: Given) -> Forecast:
        """Return what its steps need."""
        named = visible(given.named)
        for name, value in self.inputs.defaults.items():
            named.setdefault(name, Size.of(value))
        # see `task`
        hidden: frozenset[str] = frozenset()
        if INPUT not in named:
            combined = visible(named, self.output_names)
            named = {INPUT: Size(section_bytes(combined)), **named}
            hidden = frozenset({INPUT})
        elif named[INPUT].is_known and len(named) > 1:
            known = known_in(named)
            if known[INPUT] == self._combined_inputs(known):
                hidden = frozenset({INPUT})
        sizes = Sizes(named, hidden=hidden, earlier=given.earlier)
        need = walk.steps(self._steps, sizes)
        written = [
            size
            for name, size in sizes.shown.items()
            if name in self.output_names
        ] or [sizes.shown[INPUT]]
        smallest = min(written, key=lambda size: size.bytes)
        largest = max(written, key=lambda size: size.bytes)
        return Forecast(need, walk.choose(smallest, written[-1], largest))

    async def perform(self, run: Run, task: Task) -> Any:
        """Run the steps; if it is stopped, leave a checkpoint."""
        if not isinstance(task, WorkflowTask):
            task = await self._make_task(self.task, task.input)
        context = task.scope.context
        progress = task.progress
        try:
            references = self._references
            runner = StepRunner(
                run,
                task,
                references.agents,
                conditions=references.conditions,
                functions=references.functions,
                mcp_functions=references.mcp_functions,
                retries=self.retries,
            )
            await runner.run_sequence(
                self._steps, SequenceFrame(task.scope, progress, run.path)
            )
        except BaseException:
            if not task.runs_as_step:
                saved = copy_json(
                    {
                        **context,
                        PROGRESS: progress,
                        KEPT: run.kept().to_dict(),
                    }
                )
                run.checkpoint = Checkpoint(saved, path_of(progress))
            raise
        shown = visible(context)
        if any(not isinstance(value, str) for value in shown.values()):
            run.data = copy_json(shown)
        question = Message("user", as_content(shown.get(INPUT, "")))
        name = next(reversed(shown), "")
        text = to_text(self.output(shown, None))
        answer = answer_of(context, name, text)
        run.messages = to_data((*task.messages, question)) + answer.messages
        run.finish_reason = answer.finish_reason
        return {key: to_text(value) for key, value in shown.items()}


MESSAGES = "_messages"
"""Name in the context of a stopped workflow under which its earlier turns are kept."""
_ARGUMENTS_OF_OTHER_KINDS = {
    "input_data",
    "response_model",
    "stream",
}
"""Arguments of `run` of the other kinds: a workflow would silently take them for named inputs."""


def _nested_workflows(steps: Sequence[Step]) -> Iterator[Workflow]:
    """Yield the workflows in resolved steps, without those in them."""
    for step in steps:
        if isinstance(step, WorkflowStep):
            yield step.workflow
            continue
        for sequence in step.inner():
            yield from _nested_workflows(sequence)


def _references(
    agents: object,
    conditions: object,
    functions: object,
    mcp: Mapping[str, MCPServer] | MCPSource | None,
) -> References:
    given = agent_map(agents)
    references = References(
        agents=AgentMap({}, given.lookups),
        conditions=named_map(conditions, "conditions"),
        mcp=mcp,
    )
    for name, agent in given.items():
        references.add_agent(name, agent)
    for name, function in named_map(functions, "functions").items():
        references.add_function(function, name)
    return references


def _reference_problems(
    blueprint: object, references: References
) -> list[Problem]:
    """Agents, functions and conditions that a blueprint refers to and that were not given, or do not fit."""
    problems: list[Problem] = []
    condition_keys = collect(lambda kind: kind.condition_keys)
    for pointer, step in walk_steps(as_object(blueprint).get("steps")):
        kind = step_class(step)
        for key in kind.agent_keys:
            agent = step.get(key)
            if isinstance(agent, str):
                problems += references.agents.missing(agent, f"{pointer}/{key}")
        for key in kind.function_keys:
            function = step.get(key)
            if isinstance(function, str):
                problems += _function_problems(
                    function, step, pointer, references
                )
        for key in condition_keys:
            if key in step:
                problems += condition_problems(
                    step[key], f"{pointer}/{key}", references.conditions
                )
    problems += references.add_mcp_functions(as_object(blueprint))
    return problems


def _function_problems(
    function: str, step: JsonMapping, pointer: str, references: References
) -> Iterator[Problem]:
    tool = references.functions.get(function)
    if tool is None:
        yield missing_function(
            function, references.functions, f"{pointer}/function"
        )
        return
    if tool.may_need_approval:
        yield Problem(
            f"{pointer}/function",
            detail=f"The calls of the function '{function}' need approval, for which a function step does not ask.",
            suggestion="Let an agent call it as a tool, or put an approval step before a function without that mark.",
        )
    yield from argument_problems(tool.renamed(function), step, pointer)


def _shortened(combined: str) -> str:
    return truncate(combined, LONGEST_REPEATED_INPUT)
