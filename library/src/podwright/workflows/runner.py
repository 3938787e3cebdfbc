"""Running the steps of a workflow over one context, with progress that can be saved at any moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from podwright.chats.function_calls import call_recorded
from podwright.chats.tool_answers import one_line, parts_of
from podwright.conditions import Conditions, calls_function, holds
from podwright.data.json_data import JsonMapping, JsonObject, as_object
from podwright.data.text import did_you_mean
from podwright.errors import (
    ConditionError,
    ConfigurationError,
    PodwrightError,
    Refusal,
    ResumePathError,
)
from podwright.events import ConditionChecked, Event
from podwright.location import ToolCallId
from podwright.messages.approvals import ApprovalId, Decision, Question
from podwright.messages.messages import Message
from podwright.messages.shared_state import SharedState, StateChange
from podwright.messages.templates import visible
from podwright.messages.usage import limits_of_blueprint
from podwright.models.retries import Retries
from podwright.run.component import Component
from podwright.run.run import Run, Task
from podwright.steps.base import assume_resolved
from podwright.steps.condition_step import ConditionLike
from podwright.threads import compute
from podwright.tools.tool import Tool
from podwright.workflows.frames import (
    Decided,
    Path,
    Scope,
    SequenceFrame,
    StepFrame,
)
from podwright.workflows.parts import Parts
from podwright.workflows.resume import SequenceProgress
from podwright.workflows.turn import AgentAnswer

if TYPE_CHECKING:
    from podwright.blueprints.schema import ToolOptions
    from podwright.steps.base import Steps
    from podwright.workflows.workflow import Workflow


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowTask(Task):
    """The task of a workflow; its scope and progress change while the workflow runs."""

    scope: Scope
    progress: SequenceProgress
    """See `podwright.workflows.resume`."""
    decided: Decided | None = None
    """What a person has decided who lets a stopped run go on, by its path from this workflow's own first step."""
    hidden: frozenset[str] = frozenset()
    """Names of the context that agents are not shown."""
    runs_as_step: bool = False
    """Whether it is a step of another workflow, which saves the progress."""


class StepRunner:
    """Runs the steps of one run of a workflow.

    Args:
        run: The run of the workflow.
        task: What it works on.
        agents: The agents by name.
        conditions: The conditions by name.
        functions: The functions by name.
        mcp_functions: The tools of MCP servers that steps call, by server and tool.
        retries: The waits between the attempts of a try step.
    """

    def __init__(
        self,
        run: Run,
        task: WorkflowTask,
        agents: Mapping[str, Component],
        *,
        conditions: Conditions,
        functions: Mapping[str, Tool],
        mcp_functions: Mapping[tuple[str, str], Tool],
        retries: Retries,
    ) -> None:
        self._run = run
        self.retries = retries
        self.count_text = run.count_text
        self._agents = agents
        self._conditions = conditions
        self._functions = functions
        self._mcp_functions = mcp_functions
        self._hidden = task.hidden
        self._messages = task.messages
        self._decided: Decided | None = None
        """The decision of a person who lets the run go on, by its path in the outermost workflow."""
        if task.decided is not None:
            self._decided = task.decided.below(run.path)

    async def run_sequence(self, sequence: Steps, frame: SequenceFrame) -> None:
        """Run the steps of a sequence that are not finished, one after the other.

        Args:
            sequence: The resolved steps.
            frame: Where the sequence stands.
        """
        resolved = assume_resolved(sequence)
        progress = frame.progress
        first = progress.setdefault("step", 0)
        if first > len(resolved):
            raise ResumePathError(
                f"The saved progress has no step {first} at {list(frame.path)}; the workflow differs."
            )
        for index in range(first, len(resolved)):
            step = resolved[index]
            inner = frame.step(index)
            # steps that never wait must not block other tasks and time limits
            await asyncio.sleep(0)
            with self._run.step(
                step.title, step.step_type, inner.path
            ) as result:
                result.outcome = await step.run(self, inner)
            progress["step"] = index + 1
            progress["in"] = {}

    async def run_parts(
        self,
        sequences: Sequence[tuple[Steps, JsonMapping]],
        frame: StepFrame,
        *,
        concurrency: int,
    ) -> list[JsonObject]:
        """Run several sequences at once, each on its own copy of the context.

        Args:
            sequences: The sequences, each with the values that only its steps see.
            frame: The step that they are parts of; its context is not changed.
            concurrency: How many run at once.

        Returns:
            What each of them wrote.
        """
        parts = Parts(self.run_sequence, frame)
        for sequence, own_values in sequences:
            parts.add(sequence, own_values)
        return await parts.run(concurrency)

    def emit(
        self, event_class: Callable[..., Event], path: Path, **fields: Any
    ) -> None:
        """Emit an event of the run at a position."""
        self._run.emit(event_class(**self._run.stamp(path), **fields))

    # --- Agents, functions and people ---------------------------------------------------------------------------------

    def agent(self, name: str, step: str) -> Component:
        """Return an agent.

        Args:
            name: Its name.
            step: The name of the step that runs it.

        Raises:
            ConfigurationError: It was not given.
        """
        agent = self._agents.get(name)
        if agent is None:
            raise ConfigurationError(
                f"Step '{step}' needs the agent '{name}', which was not given.",
                suggestion=did_you_mean(name, self._agents) or None,
            )
        return agent

    def visible(self, scope: Scope) -> dict[str, Any]:
        """Return what agents are shown of the context."""
        return visible(scope.shown, self._hidden)

    async def run_agent(
        self,
        agent: Component,
        data: Any,
        frame: StepFrame,
        *,
        response_model: Any = None,
        with_messages: bool = False,
        limits: JsonMapping | None = None,
    ) -> AgentAnswer:
        """Run an agent as the step of a frame, and return its answer.

        Args:
            agent: The agent.
            data: Its input.
            frame: Where the step stands.
            response_model: The JSON Schema that its answer must have; by default its own.
            with_messages: Whether it is given the earlier turns that the workflow is given.
            limits: What it may use, as a blueprint has it.
        """
        messages: tuple[Message, ...] = ()
        if with_messages:
            messages = self._messages
        task = await agent.step_task(
            data,
            dict(frame.scope.values),
            response_model=response_model,
            messages=messages,
            progress=frame.progress,
            decided=self._decided_inside(frame.path),
        )
        run = self._run.child(
            agent, frame.path, limits=limits_of_blueprint(limits)
        )
        value = await run.execute(task)
        turn: list[JsonObject] = []
        if with_messages:
            # after the earlier messages and its input
            turn = run.messages[len(messages) + 1 :]
        return AgentAnswer(
            agent.output(value, run.data), turn, run.finish_reason
        )

    def function(self, name: str, step: str) -> Tool:
        """Return a function.

        Args:
            name: Its name.
            step: The name of the step that calls it.

        Raises:
            ConfigurationError: It was not given.
        """
        function = self._functions.get(name)
        if function is None:
            raise ConfigurationError(
                f"Step '{step}' needs the function '{name}', which was not given.",
                suggestion=did_you_mean(name, self._functions) or None,
            )
        return function

    def mcp_tool(self, reference: JsonMapping, step: str) -> Tool:
        """Return a tool of an MCP server, with what a step says of its calls.

        Args:
            reference: The `mcp` of the step.
            step: The name of the step that calls it.

        Raises:
            ConfigurationError: The server was not given, or the tool has no definition.
        """
        options = dict(reference)
        server = str(options.pop("server"))
        name = str(options.pop("tool"))
        tool = self._mcp_functions.get((server, name))
        if tool is None:
            raise ConfigurationError(
                f"Step '{step}' needs the tool '{name}' of the MCP server '{server}', which was not given.",
                suggestion=f"Pass the server in mcp={{'{server}': MCPServer(…)}}, and run `podwright sync`.",
            )
        return tool.with_options(cast("ToolOptions", options))

    async def call_function(
        self, function: Tool, arguments: JsonObject, path: Path
    ) -> Any:
        """Call a function once for the step at a position, and return its result."""
        call_id = ToolCallId(path, number=0)
        return await call_recorded(self._run, function, arguments, call_id)

    async def run_workflow(self, workflow: Workflow, frame: StepFrame) -> None:
        """Run a nested workflow on the context of a frame."""
        task = WorkflowTask(
            input=visible(frame.scope.context),
            scope=frame.scope,
            progress=frame.progress.setdefault("in", {}),
            decided=self._decided_inside(frame.path),
            hidden=self._hidden,
            messages=self._messages,
            runs_as_step=True,
        )
        run = self._run.child(workflow, frame.path)
        await run.execute(task)

    def _decided_inside(self, path: Path) -> Decided | None:
        """The decision as seen from the workflow inside a step."""
        if self._decided is None:
            return None
        return self._decided.inside(path)

    def approval_id(self, path: Path) -> ApprovalId:
        """Return the identity of the question that the step at a position asks."""
        return ApprovalId(self._run.id, path)

    async def decision_on(
        self, asked: ApprovalId, question: Question
    ) -> Decision | None:
        """What a person has decided, which is stored with the run, or comes with the context of a stopped one."""

        async def check(decision: Decision) -> Decision:
            await compute(question.check, decision)
            return decision

        decision = await self._run.journal.decision_on(asked, question, check)
        if decision is None and self._decided is not None:
            decision = self._decided.on(asked.path)
            if decision is not None:
                await check(decision)
        return decision

    # --- Conditions ---------------------------------------------------------------------------------------------------

    async def check_condition(
        self,
        condition: ConditionLike,
        step: str,
        scope: Scope,
        path: Path,
        number: int = 0,
    ) -> bool:
        """Check whether a condition holds, or replay the result.

        Args:
            condition: The condition of a resolved step.
            step: The name of the step.
            scope: The context.
            path: The position of the step.
            number: How often the step has checked it before.
        """
        recorded = self._run.recorded.condition(path, number)
        if recorded is not None:
            return recorded
        reference = as_object(condition)
        if not calls_function(reference, self._conditions):
            return await self._check_condition(reference, step, scope, path)
        async with self._run.journal.call(in_tool=self._run.in_tool):
            return await self._check_condition(
                reference, step, scope, path, self._run.state
            )

    async def _check_condition(
        self,
        reference: JsonMapping,
        step: str,
        scope: Scope,
        path: Path,
        state: SharedState | None = None,
    ) -> bool:
        """Evaluate a condition, and emit the result."""
        result = await holds(
            reference,
            scope.shown,
            self._conditions,
            self._run.count_text,
            values=scope.values,
        )
        change: StateChange | None = None
        if state is not None:
            if problem := state.settle():
                raise ConditionError(
                    f"Condition '{reference['name']}': {problem}."
                )
            change = state.take_change()
        self.emit(
            ConditionChecked,
            path,
            step=step,
            condition=reference["name"],
            result=result,
            state=change,
        )
        return result

    # --- Failures -----------------------------------------------------------------------------------------------------

    def replay_error(self, path: Path, attempt: int) -> JsonObject | None:
        """Return the error of a try step's attempt that an earlier attempt of the run recorded; charge its usage."""
        recorded = self._run.recorded.caught((*path, attempt))
        if recorded is None:
            return None
        self._run.count_usage(recorded.usage, recorded.failed_calls)
        return dict(recorded.error)

    def describe_error(self, error: PodwrightError) -> JsonObject:
        """What the steps that catch an error are told.

        The text of an exception of a step's own function is shown, as that of a tool is to a model; what failed inside
        a nested run is told as to the callers of that run.
        """
        details = error.to_dict()
        message = details["message"]
        if error.run_id is None:
            message = one_line(error.message)
        described = {
            "code": details["code"],
            "message": message,
            "component": details.get("component", self._run.component_name),
        }
        if isinstance(error, Refusal):
            described["refusal"] = error.message
        return described

    def is_ended_by(self, error: PodwrightError) -> bool:
        """Whether an error, or one that has caused it, ends the run: no step may catch it."""
        for part in parts_of(error):
            if isinstance(part, PodwrightError) and self._run.is_ended_by(part):
                return True
        return False
