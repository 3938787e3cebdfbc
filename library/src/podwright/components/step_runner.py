"""Running the steps of a workflow over one context, with progress that can be saved at any moment."""

from __future__ import annotations

import asyncio
import contextlib
from collections import ChainMap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from podwright.callables import compute
from podwright.components.base import Component
from podwright.components.map_items import (
    UnreadableItemsError,
    after_thoughts,
    read_items,
)
from podwright.components.resume import (
    MAX_ITEMS,
    PartProgress,
    SequenceProgress,
    StepProgress,
)
from podwright.components.steps import (
    STEP_TYPES,
    AgentStep,
    ApprovalStep,
    ConditionStep,
    LoopStep,
    MapStep,
    ParallelStep,
    Step,
    Steps,
    WorkflowStep,
    assume_resolved,
    output_names,
)
from podwright.conditions import Conditions, calls_function, holds
from podwright.errors import (
    ApprovalRequired,
    ConfigurationError,
    ContextError,
    LoopExhaustedError,
    ResumePathError,
)
from podwright.events import ConditionChecked, LoopExhausted, Outcome
from podwright.json_data import JsonMapping, JsonObject, to_text
from podwright.run import Run, Task, gather_or_cancel
from podwright.templates import fill, fill_all, names, visible
from podwright.text import did_you_mean, truncate

Path = tuple[int, ...]

ITERATION = "iteration"
"""Name of the number of the current iteration in the templates inside a loop, from 1."""

_THEN = 0
_ELSE = 1
"""How paths and the saved progress name the branches of a condition."""

_MAX_MESSAGE = 10_000
"""Characters of the message of an approval: a map may keep one for each item."""
_THREAD_FROM_CHARS = 20_000
"""The items of a longer text are read in a thread, so that the event loop stays free."""
_SHOWN_CHARS = 200
"""Characters that an error shows of a text whose items cannot be read for certain."""

_StepWithCondition = ConditionStep | LoopStep


class Scope:
    """The context as a sequence of steps sees it, and what the sequence wrote.

    Args:
        context: The context, which the sequence changes.
        written: What the sequence wrote; None if it is not needed.
        iteration: Number of the iteration of the innermost loop, from 1; None outside of loops.
    """

    def __init__(
        self,
        context: JsonObject,
        written: JsonObject | None = None,
        iteration: int | None = None,
    ) -> None:
        self.context = context
        self.written = written
        self.iteration = iteration

    @property
    def loop_values(self) -> JsonObject:
        """What only templates read: the number of the iteration."""
        if self.iteration is None or ITERATION in self.context:
            return {}
        return {ITERATION: self.iteration}

    @property
    def values(self) -> JsonMapping:
        """What templates read: the context, and the values of the loop for names that the context lacks."""
        return ChainMap(self.context, self.loop_values)

    def in_iteration(self, number: int) -> Scope:
        """The same context inside an iteration of a loop."""
        return Scope(self.context, self.written, number)

    def write(self, key: str, value: Any) -> None:
        """Put a value at the end of the context: the last one is the answer of the workflow."""
        _put_last(self.context, key, value)
        if self.written is not None:
            _put_last(self.written, key, value)


def _put_last(values: JsonObject, key: str, value: Any) -> None:
    values.pop(key, None)
    values[key] = value


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowTask(Task):
    """The task of a workflow; its scope and progress change while the workflow runs."""

    scope: Scope
    progress: SequenceProgress
    """See `podwright.components.resume`."""
    approved: Path | None = None
    """Path to the approval step that a person has approved, from this workflow's own first step."""
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
    """

    def __init__(
        self,
        run: Run,
        task: WorkflowTask,
        agents: Mapping[str, Component],
        conditions: Conditions,
    ) -> None:
        self._run = run
        self._agents = agents
        self._conditions = conditions
        self._hidden = task.hidden
        self._approved: Path | None = None
        """Path to the approved step in the outermost workflow."""
        if task.approved is not None:
            self._approved = (*run.path, *task.approved)

    async def run_sequence(
        self,
        sequence: Steps,
        scope: Scope,
        progress: SequenceProgress,
        path: Path,
    ) -> None:
        """Run the steps of a sequence that are not finished, one after the other.

        Args:
            sequence: The resolved steps.
            scope: Their context.
            progress: The progress of the sequence, updated in place.
            path: The position of the sequence.
        """
        resolved = assume_resolved(sequence)
        first = progress.setdefault("step", 0)
        if first > len(resolved):
            raise ResumePathError(
                f"The saved progress has no step {first} at {list(path)}; the workflow differs."
            )
        for index in range(first, len(resolved)):
            step = resolved[index]
            step_type = STEP_TYPES[type(step)]
            here = (*path, index)
            # steps that never wait must not block other tasks and time limits
            await asyncio.sleep(0)
            with self._run.step(step.name or "", step_type, here) as result:
                inner = progress.setdefault("in", {})
                result.outcome = await self._run_step(step, scope, inner, here)
            progress["step"] = index + 1
            progress["in"] = {}

    async def _run_step(
        self, step: Step, scope: Scope, progress: StepProgress, path: Path
    ) -> Outcome:
        """Run a step, and return how it ended."""
        match step:
            case AgentStep():
                await self._run_agent(step, scope, progress, path)
            case ConditionStep():
                await self._run_condition(step, scope, progress, path)
            case LoopStep():
                return await self._run_loop(step, scope, progress, path)
            case ParallelStep():
                await self._run_parallel(step, scope, progress, path)
            case MapStep():
                await self._run_map(step, scope, progress, path)
            case WorkflowStep():
                await self._run_workflow(step, scope, progress, path)
            case ApprovalStep():
                self._pause_unless_approved(step, scope, path)
        return "ok"

    def _pause_unless_approved(
        self, step: ApprovalStep, scope: Scope, path: Path
    ) -> None:
        approval_step = (self._run.id, path)
        is_approved = approval_step in self._run.journal.approved
        if is_approved or self._approved == path:
            return
        pause = ApprovalRequired(self._fill_message(step, scope))
        pause.step = approval_step
        raise pause

    def _fill_message(self, step: ApprovalStep, scope: Scope) -> str:
        """The question of an approval; no more of a long text is read than it shows."""
        values = scope.values
        shown: dict[str, str] = {}
        for name in names(step.message):
            if name in values:
                shown[name] = truncate(to_text(values[name]), _MAX_MESSAGE)
        message = fill(step.message, shown)
        self._run.count_text(len(message))
        return truncate(message, _MAX_MESSAGE)

    async def _run_agent(
        self, step: AgentStep, scope: Scope, progress: StepProgress, path: Path
    ) -> None:
        name = cast("str", step.agent)
        agent = self._agent_of(step, name)
        data: Any = visible(scope.context, self._hidden)
        if step.input is not None:
            where = f"Step '{step.name}'"
            data = fill_all(step.input, scope.values, where)
            self._run.count_text(len(data))
        task = agent.step_task(data, progress, self._approved_inside(path))
        task = replace(task, values=scope.loop_values)
        run = self._run.child(agent, path)
        value = await run.execute(task)
        output = step.output or f"{name}_output"
        scope.write(output, agent.text(value))

    def _agent_of(self, step: AgentStep, name: str) -> Component:
        agent = self._agents.get(name)
        if agent is None:
            raise ConfigurationError(
                f"Step '{step.name}' needs the agent '{name}', which was not given.",
                suggestion=did_you_mean(name, self._agents) or None,
            )
        return agent

    async def _run_workflow(
        self,
        step: WorkflowStep,
        scope: Scope,
        progress: StepProgress,
        path: Path,
    ) -> None:
        task = WorkflowTask(
            input=visible(scope.context),
            scope=scope,
            progress=progress.setdefault("in", {}),
            approved=self._approved_inside(path),
            hidden=self._hidden,
            runs_as_step=True,
        )
        run = self._run.child(step.workflow, path)
        await run.execute(task)

    def _approved_inside(self, path: Path) -> Path | None:
        """The approved path as seen from the workflow inside a step."""
        if self._approved is None or self._approved[: len(path)] != path:
            return None
        return self._approved[len(path) :]

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
            scope.context,
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
        self,
        step: ConditionStep,
        scope: Scope,
        progress: StepProgress,
        path: Path,
    ) -> None:
        branch = progress.get("at")
        if branch is None:
            branch = _ELSE
            if await self._replay_or_check_condition(step, scope, path):
                branch = _THEN
            progress["at"] = branch
        chosen = step.else_
        if branch == _THEN:
            chosen = step.then
        inner = progress.setdefault("in", {})
        await self.run_sequence(chosen, scope, inner, (*path, branch))

    async def _run_loop(
        self, step: LoopStep, scope: Scope, progress: StepProgress, path: Path
    ) -> Outcome:
        iteration = progress.setdefault("at", 0)
        while True:
            inner_scope = scope.in_iteration(iteration + 1)
            inner = progress.setdefault("in", {})
            await self.run_sequence(
                step.steps, inner_scope, inner, (*path, iteration)
            )
            if await self._replay_or_check_condition(
                step, inner_scope, path, iteration
            ):
                return "ok"
            iteration += 1
            if iteration >= step.max_iterations:
                self._end_exhausted_loop(step, path, iteration)
                return "exhausted"
            progress["at"] = iteration
            progress["in"] = {}

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

    async def _run_parallel(
        self,
        step: ParallelStep,
        scope: Scope,
        progress: StepProgress,
        path: Path,
    ) -> None:
        parts = _Parts(self, scope, path)
        for branch in step.branches:
            parts.add(branch, {})
        for written in await parts.run(progress, len(step.branches)):
            for key, value in written.items():
                scope.write(key, value)

    async def _run_map(
        self, step: MapStep, scope: Scope, progress: StepProgress, path: Path
    ) -> None:
        items = await _items_of(step, scope.context)
        first = progress.get("at", 0)
        if first >= max(1, len(items)):
            raise ResumePathError(
                f"Step '{step.name}' has no item {first}, only {len(items)} items."
            )
        parts = _Parts(self, scope, path)
        for item in items:
            parts.add(step.steps, {step.as_: item})
        outputs = await parts.run(progress, step.max_concurrency)
        for key in output_names(assume_resolved(step.steps)):
            # a name that no item wrote belongs to a branch not taken; without items, later steps get empty lists
            if not outputs or any(key in written for written in outputs):
                values = [written.get(key) for written in outputs]
                scope.write(key, to_text(values))


class _Parts:
    """Sequences of steps that run at once, each on its own copy of the context.

    A failure cancels the others; an approval step lets them go on to their own end or pause.

    Args:
        runner: Runs the steps.
        scope: The context, which is not changed.
        path: The position of the step that they are parts of.
    """

    def __init__(self, runner: StepRunner, scope: Scope, path: Path) -> None:
        self._runner = runner
        self._scope = scope
        self._path = path
        self._sequences: list[Steps] = []
        self._own_values: list[JsonMapping] = []
        self._written: dict[int, JsonObject] = {}
        self._finished: set[int] = set()
        self._failed: dict[int, Exception] = {}
        self._paused: dict[int, ApprovalRequired] = {}
        """The first pause: its message may be long, and the others are asked later."""

    def add(self, sequence: Steps, own_values: JsonMapping) -> None:
        """Add a sequence, and the values that only its steps see."""
        self._sequences.append(sequence)
        self._own_values.append(own_values)

    async def run(
        self, progress: StepProgress, concurrency: int
    ) -> list[JsonObject]:
        """Run the sequences.

        Args:
            progress: The progress of the step that they are parts of, updated in place.
            concurrency: How many run at once.

        Returns:
            What each of them wrote.
        """
        progress.setdefault("at", 0)
        parts = progress.setdefault("parts", {})
        numbers = range(len(self._sequences))
        waiting = iter(numbers)
        workers = min(concurrency, len(numbers))
        try:
            # each error is in `_failed`: that of the first sequence is raised below
            with contextlib.suppress(Exception):
                await gather_or_cancel(
                    self._work(waiting, parts) for _ in range(workers)
                )
        finally:
            progress["at"] = self._first_unfinished()
        stopped = self._failed or self._paused
        if stopped:
            first = min(stopped)
            progress["at"] = first
            raise stopped[first]
        return [self._written[number] for number in numbers]

    async def _work(
        self, waiting: Iterator[int], parts: dict[str, PartProgress]
    ) -> None:
        for number in waiting:
            part = parts.setdefault(str(number), {})
            try:
                await self._run_part(number, part)
                self._finished.add(number)
            except ApprovalRequired as pause:
                self._keep_first_pause(number, pause)
            except Exception as error:
                self._failed[number] = error
                raise

    async def _run_part(self, number: int, part: PartProgress) -> None:
        written = part.setdefault("set", {})
        self._written[number] = written
        context = {**self._scope.context, **self._own_values[number], **written}
        scope = Scope(context, written, self._scope.iteration)
        sequence = self._sequences[number]
        inner = part.setdefault("in", {})
        await self._runner.run_sequence(
            sequence, scope, inner, (*self._path, number)
        )

    def _keep_first_pause(self, number: int, pause: ApprovalRequired) -> None:
        if not self._paused or number < min(self._paused):
            self._paused = {number: pause}

    def _first_unfinished(self) -> int:
        """The number of the first sequence that has not finished; 0 if all have."""
        for number in range(len(self._sequences)):
            if number not in self._finished:
                return number
        return 0


def _condition_of(step: _StepWithCondition) -> JsonMapping:
    """The condition of a resolved step: its name, and its arguments if it is a built-in one."""
    if isinstance(step, ConditionStep):
        return cast("JsonMapping", step.condition)
    return cast("JsonMapping", step.until)


async def _items_of(step: MapStep, context: JsonMapping) -> list[Any]:
    """As `_checked_items`, without blocking the event loop."""
    value = context.get(step.over)
    if isinstance(value, str) and len(value) > _THREAD_FROM_CHARS:
        return await compute(_checked_items, step, context)
    return _checked_items(step, context)


def _checked_items(step: MapStep, context: JsonMapping) -> list[Any]:
    """The items of a map step; see `podwright.components.map_items`.

    Raises:
        ContextError: The context lacks them, or they are not certain, or too many.
    """
    name = step.over
    if name not in context:
        raise ContextError(
            f"Step '{step.name}' maps over '{name}', which is not in the context.",
            suggestion=did_you_mean(name, visible(context)) or None,
        )
    value = context[name]
    try:
        items = read_items(value)
    except UnreadableItemsError as error:
        whole = to_text(value)
        text = after_thoughts(whole).strip() or whole
        raise ContextError(
            f"Step '{step.name}' maps over '{name}', which {error}: {truncate(text, _SHOWN_CHARS)!r}.",
            suggestion="Let the step before it answer with one JSON array and nothing else.",
        ) from error
    if len(items) > MAX_ITEMS:
        raise ContextError(
            f"Step '{step.name}' maps over {len(items)} items of '{name}'; at most {MAX_ITEMS} are allowed.",
            suggestion="Let the step before it group them.",
        )
    return items
