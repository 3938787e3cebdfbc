"""The workflow: steps over one context, which can stop anywhere and resume there (spec §§2.2, 4.4)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

from typing_extensions import Unpack

from podwright.blueprints import walk_steps
from podwright.blueprints.validation import Blueprint
from podwright.components.base import Component
from podwright.components.chat_messages import to_context
from podwright.components.options import (
    DescribedOptions,
    ParsedBlueprint,
    named_map,
    parse_arguments,
    parse_with_overrides,
)
from podwright.components.resume import (
    KEY,
    StepProgress,
    initial_progress,
    path_of,
)
from podwright.components.step_runner import (
    Path,
    Scope,
    StepRunner,
    WorkflowTask,
)
from podwright.components.steps import (
    References,
    Step,
    output_names,
    steps_from_data,
    steps_to_data,
)
from podwright.conditions import Conditions
from podwright.conditions import problems as condition_problems
from podwright.errors import ContextError, Problem
from podwright.events import Event, EventManager, Kind
from podwright.json_data import as_object, copy_json, to_text
from podwright.run import Checkpoint, Run, Task
from podwright.templates import sections, visible
from podwright.text import did_you_mean

Context = Mapping[str, Any] | str | None
"""A text, used as `input`, or named values."""
ResumePath = Sequence[int] | None
"""Indices down to a step."""


class Workflow(Component):
    """Steps that read and write one context.

    Args:
        name: Its name.
        steps: `AgentStep` and the other step classes; a bare agent is a step too.
        agents: Agents that steps name as strings.
        conditions: Conditions that steps name as strings.
        **options: A `description`, `verbose`; see `DescribedOptions`.

    Raises:
        BlueprintValidationError: An argument has a wrong type or value, or an agent or condition is missing.
    """

    kind: ClassVar[Kind] = "workflow"

    def __init__(
        self,
        name: str,
        steps: Sequence[Step | Component],
        agents: Mapping[str, Component] | None = None,
        conditions: Conditions | None = None,
        **options: Unpack[DescribedOptions],
    ) -> None:
        references = _references(agents, conditions)
        self._steps = references.resolve(steps)
        self._agents = references.agents
        self._conditions = references.conditions
        parsed = parse_arguments(
            "workflow",
            {"name": name, "steps": steps_to_data(self._steps)},
            options,
        )
        super().__init__(parsed, _reference_problems(parsed.data, references))

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
            **kwargs: Values that override the blueprint's, and `Options`.

        Raises:
            BlueprintValidationError: The blueprint is invalid; with all problems.
            ConfigurationError: A keyword is unknown.
        """
        references = _references(agents, conditions)
        parsed = parse_with_overrides(blueprint, "workflow", validate, kwargs)
        if event_manager is not None:
            parsed.options["event_manager"] = event_manager
        problems: list[Problem] = []
        if validate:
            problems = _reference_problems(parsed.data, references)
        return cls._build(parsed, references, problems)

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

        self = cls.__new__(cls)
        Component.__init__(self, parsed, problems)
        self._agents = references.agents
        self._conditions = references.conditions
        self._steps = steps_from_data(parsed.data["steps"], nested)
        return self

    @property
    def steps(self) -> Sequence[Step]:
        """Its steps; they refer to agents and conditions by name."""
        return self._steps

    @property
    def conditions(self) -> Conditions:
        """The conditions that its steps refer to, by name."""
        return self._conditions

    @property
    def output_names(self) -> Sequence[str]:
        """The names that its steps may write to the context, each once."""
        return output_names(self._steps)

    def members(self) -> Mapping[str, Component]:
        """Its agents by name."""
        return self._agents

    def text(self, value: Any) -> str:
        """The output that was written last, as input for the next component."""
        outputs = as_object(value)
        if outputs:
            value = next(reversed(outputs.values()))
        return to_text(value)

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
            trace: Whether to return an `ExecutionResult` instead of the context.
            resume_path: Indices down to the step to start from, as the error of a stopped run carries it. A path to
                an approval step approves it.
            **kwargs: Named inputs if no context is given, or updates to it.

        Returns:
            The context: `input` and an entry for each output, all strings; or an `ExecutionResult`.

        Raises:
            PodwrightError: With `context` and `resume_path` if the workflow can be resumed.
        """
        task = self._task_with_updates(
            context, start_step, resume_path, updates=kwargs
        )
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
        task = self._task_with_updates(
            context, start_step, resume_path, updates=kwargs
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
        task = self._task_with_updates(
            context, start_step, resume_path, updates=kwargs
        )
        return self._stream(task)

    def astream(
        self,
        context: Context = None,
        start_step: int = 0,
        resume_path: ResumePath = None,
        **kwargs: Any,
    ) -> AsyncGenerator[Event]:
        """As `stream`, from asynchronous code."""
        task = self._task_with_updates(
            context, start_step, resume_path, updates=kwargs
        )
        return self._astream(task)

    def task(
        self,
        context: object,
        start_step: object = 0,
        resume_path: object = None,
    ) -> WorkflowTask:
        """The task of a run with these arguments, for `podwright.run.execute`.

        Raises:
            InputError: The context, the start step or the resume path is wrong.
        """
        if context is None:
            context = {"input": ""}
        named = dict(to_context(context))
        progress = initial_progress(
            len(self._steps),
            saved=named.pop(KEY, None),
            start_step=start_step,
            resume_path=resume_path,
        )
        approved: Path | None = None
        if resume_path is not None:
            approved = tuple(path_of(progress))
        not_inputs = ("input", *self.output_names)
        inputs = {
            name: value
            for name, value in named.items()
            if name not in not_inputs
        }
        combined = sections(inputs)
        if "input" not in named:
            named = {"input": combined, **named}
        hidden: frozenset[str] = frozenset()
        if inputs and named["input"] == combined:
            # agents see the named inputs themselves, so an `input` that only combines them is not repeated
            hidden = frozenset({"input"})
        return WorkflowTask(
            input=visible(named),
            scope=Scope(named),
            progress=copy_json(progress),
            approved=approved,
            hidden=hidden,
        )

    def step_task(
        self, data: Any, progress: StepProgress, approved: Path | None
    ) -> WorkflowTask:
        """The task of a run as a step of another workflow, which saves its context and progress."""
        task = self.task(progress.get("context", data))
        # the same object: what steps write into it is saved
        progress["context"] = task.scope.context
        return replace(
            task,
            progress=progress.setdefault("in", {}),
            approved=approved,
            runs_as_step=True,
        )

    def _task_with_updates(
        self,
        context: object,
        start_step: object,
        resume_path: object,
        *,
        updates: Mapping[str, Any],
    ) -> WorkflowTask:
        names = _ARGUMENTS_OF_OTHER_KINDS & updates.keys()
        if names:
            raise ContextError(
                f"The run of a workflow has no argument '{min(names)}'.",
                suggestion="Choose another name for the input, or put it into `context`.",
            )
        if updates:
            inputs = dict(updates)
            if context is not None:
                inputs = {**to_context(context), **updates}
            context = inputs
        return self.task(context, start_step, resume_path)

    async def perform(self, run: Run, task: Task) -> Any:
        """Run the steps; if it is stopped, leave a checkpoint."""
        if not isinstance(task, WorkflowTask):
            task = self.task(task.input)
        context = task.scope.context
        progress = task.progress
        try:
            runner = StepRunner(run, task, self._agents, self._conditions)
            await runner.run_sequence(
                self._steps, task.scope, progress, run.path
            )
        except BaseException:
            if not task.runs_as_step:
                saved = copy_json({**context, KEY: progress})
                run.checkpoint = Checkpoint(saved, path_of(progress))
            raise
        return {key: to_text(value) for key, value in visible(context).items()}


_ARGUMENTS_OF_OTHER_KINDS = {
    "input_data",
    "response_model",
    "stream",
    "messages",
}
"""Arguments of `run` of the other kinds: a workflow would silently take them for named inputs."""


def _references(agents: object, conditions: object) -> References:
    references = References(conditions=named_map(conditions, "conditions"))
    for name, agent in named_map(agents, "agents").items():
        references.add_agent(name, agent)
    return references


def _reference_problems(
    blueprint: object, references: References
) -> list[Problem]:
    """Agents and conditions that a blueprint refers to and that were not given."""
    problems: list[Problem] = []
    for pointer, step in walk_steps(as_object(blueprint).get("steps")):
        agent = step.get("agent")
        if step.get("type") == "agent_step" and isinstance(agent, str):
            problems += _agent_problems(agent, f"{pointer}/agent", references)
        for key in ("condition", "until"):
            if key in step:
                problems += condition_problems(
                    step[key], f"{pointer}/{key}", references.conditions
                )
    return problems


def _agent_problems(
    agent: str, pointer: str, references: References
) -> list[Problem]:
    if agent in references.agents:
        return []
    hint = did_you_mean(agent, references.agents)
    if not hint:
        hint = f"Pass it in agents={{'{agent}': …}}."
    return [Problem(pointer, f"Missing agent '{agent}'.", hint)]
