"""Running the steps of a workflow over one context, with progress that can be saved at any moment."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from podwright.approvals import DEFAULT_OPTIONS, ApprovalId, Decision, Question
from podwright.blueprints.outputs import shared
from podwright.callables import compute
from podwright.components.base import Component
from podwright.components.frames import (
    Decided,
    Path,
    Scope,
    SequenceFrame,
    StepFrame,
    edited_names,
)
from podwright.components.function_calls import call_recorded
from podwright.components.inputs import INPUT
from podwright.components.parts import Parts, items_of
from podwright.components.resume import SequenceProgress
from podwright.components.steps import (
    STEP_TYPES,
    AgentStep,
    ApprovalStep,
    ConditionStep,
    FunctionStep,
    LoopStep,
    MapStep,
    ParallelStep,
    Step,
    Steps,
    TryStep,
    WorkflowStep,
    assume_resolved,
    collected_names,
    output_names,
)
from podwright.components.tool_answers import one_line, parts_of
from podwright.conditions import Conditions, calls_function, holds
from podwright.errors import (
    ApprovalRejectedError,
    ApprovalRequired,
    ConfigurationError,
    ContextError,
    LoopExhaustedError,
    ModelRefusedError,
    PodwrightError,
    ResumePathError,
)
from podwright.events import (
    ConditionChecked,
    ErrorCaught,
    LoopExhausted,
    Outcome,
)
from podwright.images import parts_with_images
from podwright.json_data import JsonMapping, JsonObject, to_text
from podwright.messages import Message
from podwright.models.retries import Retries
from podwright.names import Expression
from podwright.run import Run, Task
from podwright.templates import fill, fill_data, value_of, visible
from podwright.text import did_you_mean, truncate
from podwright.tools import Tool
from podwright.usage import limits_of_blueprint

_THEN = 0
_ELSE = 1
"""How paths and the saved progress name the branches of a condition."""

_ON_REJECT = 0
"""How paths and the saved progress name the steps after a rejection."""

_MAX_MESSAGE = 10_000
"""Characters of the message of an approval: a map may keep one for each item."""

_StepWithCondition = ConditionStep | LoopStep


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowTask(Task):
    """The task of a workflow; its scope and progress change while the workflow runs."""

    scope: Scope
    progress: SequenceProgress
    """See `podwright.components.resume`."""
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
        retries: Retries,
    ) -> None:
        self._run = run
        self._retries = retries
        self._agents = agents
        self._conditions = conditions
        self._functions = functions
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
            step_type = STEP_TYPES[type(step)]
            inner = frame.step(index)
            # steps that never wait must not block other tasks and time limits
            await asyncio.sleep(0)
            with self._run.step(
                step.name or "", step_type, inner.path
            ) as result:
                result.outcome = await self._run_step(step, inner)
            progress["step"] = index + 1
            progress["in"] = {}

    async def _run_step(self, step: Step, frame: StepFrame) -> Outcome:
        """Run a step, and return how it ended."""
        match step:
            case AgentStep():
                await self._run_agent(step, frame)
            case FunctionStep():
                await self._run_function(step, frame)
            case ConditionStep():
                await self._run_condition(step, frame)
            case LoopStep():
                return await self._run_loop(step, frame)
            case TryStep():
                return await self._run_try(step, frame)
            case ParallelStep():
                await self._run_parallel(step, frame)
            case MapStep():
                await self._run_map(step, frame)
            case WorkflowStep():
                await self._run_workflow(step, frame)
            case ApprovalStep():
                await self._run_approval(step, frame)
        return "ok"

    # --- Agents, functions and people ---------------------------------------------------------------------------------

    async def _run_agent(self, step: AgentStep, frame: StepFrame) -> None:
        name = cast("str", step.agent)
        agent = self._agent_of(step, name)
        task = await agent.step_task(
            self._input_of(step, agent, frame.scope),
            dict(frame.scope.values),
            response_model=step.response_schema,
            messages=self._earlier_turns(step),
            progress=frame.progress,
            decided=self._decided_inside(frame.path),
        )
        run = self._run.child(
            agent, frame.path, limits=limits_of_blueprint(step.limits)
        )
        value = await run.execute(task)
        frame.scope.write(step.stored_as, agent.output(value, run.data))

    def _agent_of(self, step: AgentStep, name: str) -> Component:
        agent = self._agents.get(name)
        if agent is None:
            raise ConfigurationError(
                f"Step '{step.name}' needs the agent '{name}', which was not given.",
                suggestion=did_you_mean(name, self._agents) or None,
            )
        return agent

    def _input_of(self, step: AgentStep, agent: Component, scope: Scope) -> Any:
        """The input of an agent: its template or templates filled, or the context as far as the agent takes it."""
        if step.input is None:
            shown = visible(scope.shown, self._hidden)
            if not agent.inputs:
                return shown
            taken = (INPUT, *agent.inputs.schemas)
            return {name: shown[name] for name in taken if name in shown}
        where = f"Step '{step.name}'"
        if not isinstance(step.input, str):
            data: Any = fill_data(dict(step.input), scope.values, where)
        else:
            value = fill_data(step.input, scope.values, where)
            data = parts_with_images(value) or to_text(value)
        self._run.count_text(len(to_text(data)))
        return data

    def _earlier_turns(self, step: AgentStep) -> tuple[Message, ...]:
        if step.conversation:
            return self._messages
        return ()

    async def _run_function(self, step: FunctionStep, frame: StepFrame) -> None:
        name = cast("str", step.function)
        function = self._functions.get(name)
        if function is None:
            raise ConfigurationError(
                f"Step '{step.name}' needs the function '{name}', which was not given.",
                suggestion=did_you_mean(name, self._functions) or None,
            )
        where = f"Step '{step.name}'"
        arguments = fill_data(dict(step.arguments), frame.scope.values, where)
        self._run.count_text(len(to_text(arguments)))
        result = await call_recorded(
            self._run, function, arguments, path=frame.path
        )
        frame.scope.write(step.stored_as, result)

    async def _run_workflow(self, step: WorkflowStep, frame: StepFrame) -> None:
        await frame.scope.complete(step.workflow.inputs)
        task = WorkflowTask(
            input=visible(frame.scope.context),
            scope=frame.scope,
            progress=frame.progress.setdefault("in", {}),
            decided=self._decided_inside(frame.path),
            hidden=self._hidden,
            messages=self._messages,
            runs_as_step=True,
        )
        run = self._run.child(step.workflow, frame.path)
        await run.execute(task)

    def _decided_inside(self, path: Path) -> Decided | None:
        """The decision as seen from the workflow inside a step."""
        if self._decided is None:
            return None
        return self._decided.inside(path)

    async def _run_approval(self, step: ApprovalStep, frame: StepFrame) -> None:
        # once it is set, the decision is made and written
        if "at" not in frame.progress:
            decision = await self._apply_decision(step, frame)
            if not decision.is_rejection:
                return
            if step.on_reject is None:
                raise ApprovalRejectedError(
                    f"The approval '{step.name}' was rejected."
                )
            frame.progress["at"] = _ON_REJECT
        rejected = step.on_reject or ()
        await self.run_sequence(rejected, frame.sequence(_ON_REJECT))

    async def _apply_decision(
        self, step: ApprovalStep, frame: StepFrame
    ) -> Decision:
        """Write what a person has decided to the context, and return it.

        Raises:
            ApprovalRequired: Nobody has decided yet.
            InputsError: The decision does not fit the question.
        """
        asked = ApprovalId(self._run.id, frame.path)
        scope = frame.scope
        # a question that was answered is not asked again: its message may be new, and not fit the context
        question = _question_of(step, scope, message="")
        decision = await self._decision_on(asked, question)
        if decision is None:
            message = self._message_of(step, scope)
            raise ApprovalRequired(
                message,
                question=replace(question, message=message),
                asked=asked,
            )
        for name, value in decision.values.items():
            scope.edit(name, value)
        written = {"decision": decision.decision, "comment": decision.comment}
        scope.write_decision(
            step.name or "",
            written,
            is_shown=step.is_in_context,
        )
        return decision

    async def _decision_on(
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

    def _message_of(self, step: ApprovalStep, scope: Scope) -> str:
        # no more of a long text is read than the question shows
        message = fill(
            step.message,
            scope.values,
            f"Step '{step.name}'",
            longest=_MAX_MESSAGE,
        )
        self._run.count_text(len(message))
        return truncate(message, _MAX_MESSAGE)

    # --- Conditions and loops -----------------------------------------------------------------------------------------

    async def _replay_or_check_condition(
        self,
        step: _StepWithCondition,
        scope: Scope,
        path: Path,
        number: int = 0,
    ) -> bool:
        """Whether the condition of a step holds, which it has checked `number` times before."""
        recorded = self._run.journal.condition(self._run.id, path, number)
        if recorded is not None:
            return recorded
        reference = _condition_of(step)
        if not calls_function(reference, self._conditions):
            return await self._check_condition(step, scope, path)
        async with self._run.journal.call(in_tool=self._run.in_tool):
            return await self._check_condition(step, scope, path)

    async def _check_condition(
        self, step: _StepWithCondition, scope: Scope, path: Path
    ) -> bool:
        """Evaluate the condition of a step, and emit the result."""
        reference = _condition_of(step)
        result = await holds(
            reference,
            scope.shown,
            self._conditions,
            self._run.count_text,
            values=scope.values,
        )
        event = ConditionChecked(
            **self._run.stamp(path),
            step=step.name or "",
            condition=reference["name"],
            result=result,
        )
        self._run.emit(event)
        return result

    async def _run_condition(
        self, step: ConditionStep, frame: StepFrame
    ) -> None:
        branch = frame.progress.get("at")
        if branch is None:
            branch = _ELSE
            if await self._replay_or_check_condition(
                step, frame.scope, frame.path
            ):
                branch = _THEN
            frame.progress["at"] = branch
        chosen = step.else_
        if branch == _THEN:
            chosen = step.then
        await self.run_sequence(chosen, frame.sequence(branch))

    async def _run_loop(self, step: LoopStep, frame: StepFrame) -> Outcome:
        iteration = frame.progress.setdefault("at", 0)
        while True:
            scope = frame.scope.in_iteration(iteration + 1)
            await self.run_sequence(
                step.steps, frame.sequence(iteration, scope)
            )
            if await self._replay_or_check_condition(
                step, scope, frame.path, iteration
            ):
                return "ok"
            iteration += 1
            if iteration >= step.max_iterations:
                self._end_exhausted_loop(step, frame.path, iteration)
                return "exhausted"
            frame.progress["at"] = iteration
            frame.progress["in"] = {}

    def _end_exhausted_loop(
        self, step: LoopStep, path: Path, iterations: int
    ) -> None:
        """Tell that a loop ends although its condition does not hold.

        Raises:
            LoopExhaustedError: The run fails in this case.
        """
        event = LoopExhausted(
            **self._run.stamp(path), step=step.name or "", iterations=iterations
        )
        self._run.emit(event)
        if step.on_exhausted == "fail":
            condition = _condition_of(step)["name"]
            raise LoopExhaustedError(
                f"The condition '{condition}' of the loop '{step.name}' did not hold after {iterations} iterations."
            )

    # --- Failures -----------------------------------------------------------------------------------------------------

    async def _run_try(self, step: TryStep, frame: StepFrame) -> Outcome:
        progress = frame.progress
        attempt = progress.setdefault("at", 0)
        while attempt <= step.retries:
            error = self._replay_error(frame, attempt)
            if error is None:
                error = await self._try_once(step, frame, attempt)
            if error is None:
                return "ok"
            attempt += 1
            if error["code"] == ModelRefusedError.code:
                # the model would refuse the same request again
                attempt = step.retries + 1
            progress["at"] = attempt
            progress["error"] = error
            # what a failed attempt has written is dropped with it
            progress.pop("parts", None)
        scope = frame.scope.after_failure(progress.get("error", {}))
        await self.run_sequence(step.catch, frame.sequence(attempt, scope))
        return "caught"

    def _replay_error(
        self, frame: StepFrame, attempt: int
    ) -> JsonObject | None:
        """The error that an attempt of a try step had in an earlier attempt of the run, whose usage is counted."""
        path = (*frame.path, attempt)
        recorded = self._run.journal.caught(self._run.id, path)
        if recorded is None:
            return None
        self._run.count_caught_work(recorded)
        return dict(recorded.error)

    async def _try_once(
        self, step: TryStep, frame: StepFrame, attempt: int
    ) -> JsonObject | None:
        """Run the steps of a try step.

        Returns:
            What failed, if the step goes on; None if nothing did.
        """
        inner = frame.part(attempt, {})
        try:
            await self.run_sequence(step.steps, inner)
        except PodwrightError as error:
            is_refusal = isinstance(error, ModelRefusedError)
            is_last = is_refusal or attempt == step.retries
            if is_last and not step.catch:
                raise
            if step.on and error.code not in step.on:
                raise
            if self._is_ended_by(error):
                raise
            failure = self._describe(error)
            wait = 0.0
            if not is_last:
                wait = self._retries.wait(error, attempt + 1)
            event = ErrorCaught(
                **self._run.stamp((*frame.path, attempt)),
                step=step.name or "",
                attempt=attempt,
                error=failure,
                wait_ms=round(wait * 1000, 3),
            )
            self._run.emit(event)
        else:
            frame.scope.write_all(inner.scope.written)
            return None
        await asyncio.sleep(wait)
        return failure

    def _describe(self, error: PodwrightError) -> JsonObject:
        """What the steps that catch an error are told.

        The text of an exception of a step's own function is shown, as that of a tool is to a model; what failed inside
        a nested run is told as to the callers of that run.
        """
        details = error.to_dict()
        message = details["message"]
        if error.run_id is None:
            message = one_line(error.message)
        return {
            "code": details["code"],
            "message": message,
            "component": details.get("component", self._run.component_name),
        }

    def _is_ended_by(self, error: PodwrightError) -> bool:
        """Whether an error, or one that has caused it, ends the run: no step may catch it."""
        for part in parts_of(error):
            if isinstance(part, PodwrightError) and self._run.is_ended_by(part):
                return True
        return False

    # --- Several sequences at once ------------------------------------------------------------------------------------

    async def _run_parallel(self, step: ParallelStep, frame: StepFrame) -> None:
        parts = Parts(self.run_sequence, frame)
        for branch in step.branches:
            parts.add(branch, {})
        outputs = await parts.run(len(step.branches))
        collected = collected_names(step)
        _refuse_lost_values(step, outputs, collected)
        for written in outputs:
            frame.scope.write_all(written, leave_out=collected)
        for name in collected:
            # a name that no branch wrote belongs to steps not taken
            if any(name in written for written in outputs):
                values = [written.get(name) for written in outputs]
                frame.scope.write(name, values)

    async def _run_map(self, step: MapStep, frame: StepFrame) -> None:
        items = await items_of(step, frame.scope)
        first = frame.progress.get("at", 0)
        if first >= max(1, len(items)):
            raise ResumePathError(
                f"Step '{step.name}' has no item {first}, only {len(items)} items."
            )
        parts = Parts(self.run_sequence, frame)
        for item in items:
            parts.add(step.steps, {step.as_: item})
        outputs = await parts.run(step.max_concurrency)
        for key in output_names(assume_resolved(step.steps)):
            # a name that no item wrote belongs to a branch not taken; without items, later steps get empty lists
            if not outputs or any(key in written for written in outputs):
                values = [written.get(key) for written in outputs]
                frame.scope.write(key, _joined(values))


_NOT_COLLECTED = 'Give each a name of its own, or keep all values as a list: "collect": true in the step.'
_COLLECTED = "Let one branch change it, or do so before or after the step."


def _refuse_lost_values(
    step: ParallelStep,
    outputs: Sequence[JsonObject],
    collected: Collection[str],
) -> None:
    """Raise an error if two branches have written one name; the blueprint does not show it of steps under conditions.

    Args:
        step: The step.
        outputs: What each branch wrote.
        collected: The names of which the step makes lists. A branch may edit what it wrote itself.

    Raises:
        ContextError: A value would be lost.
    """
    if len(outputs) < 2:
        return
    names: list[set[str]] = []
    for branch, written in zip(step.branches, outputs, strict=True):
        own = written.keys() & output_names(assume_resolved(branch))
        names.append(
            (own | edited_names(written)) - own.intersection(collected)
        )
    for name in sorted(shared(names)):
        first, second = [
            number for number, branch in enumerate(names) if name in branch
        ][:2]
        raise ContextError(
            f"The branches {first} and {second} of step '{step.name}' both wrote '{name}', of which one would be lost.",
            suggestion=_COLLECTED if step.collect else _NOT_COLLECTED,
        )


def _joined(values: list[Any]) -> Any:
    """The outputs of all items of a map: a list if there is data among them, else its JSON text."""
    if any(not isinstance(value, str | None) for value in values):
        return values
    return to_text(values)


def _question_of(step: ApprovalStep, scope: Scope, message: str) -> Question:
    edit = {
        name: {
            "schema": schema,
            "value": value_of(
                Expression(name), scope.context, f"Step '{step.name}'"
            ),
        }
        for name, schema in step.edit.items()
    }
    return Question(
        message,
        options=tuple(step.options) or DEFAULT_OPTIONS,
        edit=edit,
        ends_on_reject=step.on_reject is None,
    )


def _condition_of(step: _StepWithCondition) -> JsonMapping:
    """The condition of a resolved step: its name, and its arguments if it is a built-in one."""
    if isinstance(step, ConditionStep):
        return cast("JsonMapping", step.condition)
    return cast("JsonMapping", step.until)
