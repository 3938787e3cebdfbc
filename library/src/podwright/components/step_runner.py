"""Running the steps of a workflow over one context, with progress that can be saved at any moment."""

from __future__ import annotations

import asyncio
import contextlib
from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from podwright.callables import compute
from podwright.components import steps
from podwright.components.base import Component
from podwright.components.map_items import (
    UnreadableItemsError,
    after_thoughts,
    read_items,
)
from podwright.components.resume import MAX_ITEMS, Node
from podwright.components.steps import STEP_TYPES, Step, output_names, resolved
from podwright.conditions import Conditions, calls_function, holds
from podwright.errors import (
    ApprovalRequired,
    ConfigurationError,
    ContextError,
    LoopExhaustedError,
    ResumePathError,
)
from podwright.events import ConditionChecked, LoopExhausted, Outcome
from podwright.json_data import to_text
from podwright.run import Run, Task, gather_or_cancel
from podwright.templates import fill, fill_all, names, visible
from podwright.text import did_you_mean, truncate

Path = tuple[int, ...]

ITERATION = "iteration"
"""Name of the number of the current iteration in the templates inside a loop, from 1."""

_MAX_MESSAGE = 10_000
"""Characters of the message of an approval: a map may keep one for each item."""
_LARGE = 20_000
"""Characters of a text whose items are read on the event loop; those of a longer one are read in a thread."""
_SHOWN = 200
"""Characters that an error shows of a text without certain items."""


class Scope:
    """The context as a sequence of steps sees it, and what the sequence wrote.

    Args:
        context: The context, which the sequence changes.
        written: What the sequence wrote; None if nobody asks.
        iteration: Number of the iteration of the innermost loop, from 1; None outside of loops.
    """

    def __init__(
        self,
        context: dict[str, Any],
        written: dict[str, Any] | None = None,
        iteration: int | None = None,
    ) -> None:
        self.context = context
        self.written = written
        self.iteration = iteration

    @property
    def loop_values(self) -> dict[str, Any]:
        """What only templates read: the number of the iteration."""
        if self.iteration is None or ITERATION in self.context:
            return {}
        return {ITERATION: self.iteration}

    @property
    def values(self) -> Mapping[str, Any]:
        """What templates read: the context, and what it has no value for from the loop."""
        return ChainMap(self.context, self.loop_values)

    def in_iteration(self, number: int) -> Scope:
        """The same context inside an iteration of a loop."""
        return Scope(self.context, self.written, number)

    def write(self, key: str, value: Any) -> None:
        """Put a value at the end of the context: the last one is the answer of the workflow."""
        for target in (self.context, self.written):
            if target is not None:
                target.pop(key, None)
                target[key] = value


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowTask(Task):
    """The task of a workflow; its scope and progress change while the workflow runs."""

    scope: Scope
    progress: Node
    """See `podwright.components.resume`."""
    approved: Path | None = None
    """Path to the approval step that a person has approved, from this workflow's own first step."""
    hidden: frozenset[str] = frozenset()
    """Names of the context that agents are not shown."""
    nested: bool = False
    """Whether the workflow around it saves the progress."""


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
        self._approved = None if task.approved is None else (*run.path, *task.approved)
        self._hidden = task.hidden

    async def run_sequence(
        self, sequence: Sequence[Step | Component], scope: Scope, node: Node, path: Path
    ) -> None:
        """Run the steps of a sequence that are not finished, one after the other.

        Args:
            sequence: The resolved steps.
            scope: Their context.
            node: The progress of the sequence, updated in place.
            path: The position of the sequence.
        """
        if node.setdefault("step", 0) > len(sequence):
            raise ResumePathError(
                f"The saved progress has no step {node['step']} at {list(path)}; the workflow differs."
            )
        while (index := cast("int", node["step"])) < len(sequence):
            step = resolved(sequence)[index]
            here = (*path, index)
            # steps that never wait must not block other tasks and time limits
            await asyncio.sleep(0)
            with self._run.step(
                step.name or "", STEP_TYPES[type(step)], here
            ) as result:
                result.outcome = await self._run_step(
                    step, scope, node.setdefault("in", {}), here
                )
            node["step"] = index + 1
            node["in"] = {}

    async def _run_step(
        self, step: Step, scope: Scope, node: Node, path: Path
    ) -> Outcome:
        """Run a step, and return how it ended."""
        match step:
            case steps.AgentStep():
                await self._run_agent(step, scope, node, path)
            case steps.ConditionStep():
                await self._run_condition(step, scope, node, path)
            case steps.LoopStep():
                return await self._run_loop(step, scope, node, path)
            case steps.ParallelStep():
                await self._run_parallel(step, scope, node, path)
            case steps.MapStep():
                await self._run_map(step, scope, node, path)
            case steps.WorkflowStep():
                await self._run_workflow(step, scope, node, path)
            case steps.ApprovalStep():
                place = (self._run.id, path)
                if self._approved != path and place not in self._run.journal.approved:
                    pause = ApprovalRequired(self._message(step, scope))
                    pause.step = place
                    raise pause
        return "ok"

    def _message(self, step: steps.ApprovalStep, scope: Scope) -> str:
        """The question of an approval; no more of a long text is read than it shows."""
        values = scope.values
        used = {name: values[name] for name in names(step.message) if name in values}
        message = fill(
            step.message,
            {
                name: truncate(to_text(value), _MAX_MESSAGE)
                for name, value in used.items()
            },
        )
        self._run.count_text(len(message))
        return truncate(message, _MAX_MESSAGE)

    async def _run_agent(
        self, step: steps.AgentStep, scope: Scope, node: Node, path: Path
    ) -> None:
        name = cast("str", step.agent)
        agent = self._agents.get(name)
        if agent is None:
            message = (
                f"Step '{step.name}' needs the agent '{name}', which was not given."
            )
            raise ConfigurationError(
                message, suggestion=did_you_mean(name, self._agents) or None
            )
        data: Any = visible(scope.context, self._hidden)
        if step.input is not None:
            data = fill_all(step.input, scope.values, f"Step '{step.name}'")
            self._run.count_text(len(data))
        task = replace(
            agent.step_task(data, node, self._approved_inside(path)),
            values=scope.loop_values,
        )
        value = await self._run.child(agent, path).execute(agent, task)
        scope.write(step.output or f"{name}_output", agent.text(value))

    async def _run_workflow(
        self, step: steps.WorkflowStep, scope: Scope, node: Node, path: Path
    ) -> None:
        task = WorkflowTask(
            input=visible(scope.context),
            scope=scope,
            progress=node.setdefault("in", {}),
            approved=self._approved_inside(path),
            hidden=self._hidden,
            nested=True,
        )
        await self._run.child(step.workflow, path).execute(step.workflow, task)

    def _approved_inside(self, path: Path) -> Path | None:
        """The approved path as seen from the workflow inside a step."""
        if self._approved is None or self._approved[: len(path)] != path:
            return None
        return self._approved[len(path) :]

    async def _holds(
        self,
        step: steps.ConditionStep | steps.LoopStep,
        scope: Scope,
        path: Path,
        number: int = 0,
    ) -> bool:
        """Whether the condition of a step holds, which it has checked `number` times before."""
        reference = cast(
            "Mapping[str, Any]",
            step.condition if isinstance(step, steps.ConditionStep) else step.until,
        )
        recorded = self._run.journal.condition(self._run.id, path, number)
        if recorded is not None:
            return recorded
        if not calls_function(reference, self._conditions):
            return await self._check(step, reference, scope, path)
        async with self._run.journal.call(in_tool=self._run.in_tool):
            return await self._check(step, reference, scope, path)

    async def _check(
        self, step: Step, reference: Mapping[str, Any], scope: Scope, path: Path
    ) -> bool:
        result = await holds(
            reference,
            scope.context,
            self._conditions,
            self._run.count_text,
            values=scope.values,
        )
        names: dict[str, Any] = {
            "step": step.name or "",
            "condition": reference["name"],
        }
        self._run.emit(
            ConditionChecked(**self._run.stamp(path), **names, result=result)
        )
        return result

    async def _run_condition(
        self, step: steps.ConditionStep, scope: Scope, node: Node, path: Path
    ) -> None:
        if "at" not in node:
            node["at"] = 0 if await self._holds(step, scope, path) else 1
        chosen = step.then if node["at"] == 0 else step.else_
        await self.run_sequence(
            chosen, scope, node.setdefault("in", {}), (*path, node["at"])
        )

    async def _run_loop(
        self, step: steps.LoopStep, scope: Scope, node: Node, path: Path
    ) -> Outcome:
        node.setdefault("at", 0)
        while True:
            inner = scope.in_iteration(node["at"] + 1)
            await self.run_sequence(
                step.steps, inner, node.setdefault("in", {}), (*path, node["at"])
            )
            if await self._holds(step, inner, path, node["at"]):
                return "ok"
            if node["at"] + 1 >= step.max_iterations:
                self._exhaust(step, path, node["at"] + 1)
                return "exhausted"
            node["at"] = node["at"] + 1
            node["in"] = {}

    def _exhaust(self, step: steps.LoopStep, path: Path, iterations: int) -> None:
        """Tell that a loop ends although its condition does not hold.

        Raises:
            LoopExhaustedError: The run fails in this case.
        """
        self._run.emit(
            LoopExhausted(
                **self._run.stamp(path), step=step.name or "", iterations=iterations
            )
        )
        if step.on_exhausted == "fail":
            condition = cast("Mapping[str, Any]", step.until)["name"]
            raise LoopExhaustedError(
                f"The condition '{condition}' of the loop '{step.name}' did not hold after {iterations} iterations."
            )

    async def _run_parallel(
        self, step: steps.ParallelStep, scope: Scope, node: Node, path: Path
    ) -> None:
        contexts: list[Mapping[str, Any]] = [{}] * len(step.branches)
        for written in await self._run_all(
            step.branches, contexts, len(contexts), scope, node, path
        ):
            for key, value in written.items():
                scope.write(key, value)

    async def _run_map(
        self, step: steps.MapStep, scope: Scope, node: Node, path: Path
    ) -> None:
        value = scope.context.get(step.over)
        is_large = isinstance(value, str) and len(value) > _LARGE
        items = (
            await compute(_items, step, scope.context)
            if is_large
            else _items(step, scope.context)
        )
        if node.get("at", 0) >= max(1, len(items)):
            raise ResumePathError(
                f"Step '{step.name}' has no item {node['at']}, only {len(items)} items."
            )
        contexts = [{step.as_: item} for item in items]
        sequences = [step.steps] * len(items)
        outputs = await self._run_all(
            sequences, contexts, step.max_concurrency, scope, node, path
        )
        for key in output_names(resolved(step.steps)):
            if not outputs or any(key in written for written in outputs):
                scope.write(key, to_text([written.get(key) for written in outputs]))

    async def _run_all(
        self,
        sequences: Sequence[Sequence[Step | Component]],
        contexts: Sequence[Mapping[str, Any]],
        concurrency: int,
        scope: Scope,
        node: Node,
        path: Path,
    ) -> list[dict[str, Any]]:
        """Run several sequences at once, each on its own copy of the context.

        A failure cancels the others; an approval step lets them go on to their own end or pause.

        Returns:
            What each of them wrote.
        """
        node.setdefault("at", 0)
        parts: dict[str, Node] = node.setdefault("parts", {})
        waiting = iter(range(len(sequences)))
        finished: set[int] = set()
        failed: dict[int, Exception] = {}
        paused: dict[int, ApprovalRequired] = {}
        """The first pause: its message may be long, and the others are asked later."""

        async def work() -> None:
            for number in waiting:
                part = parts.setdefault(str(number), {})
                written = part.setdefault("set", {})
                inner = Scope(
                    {**scope.context, **contexts[number], **written},
                    written,
                    scope.iteration,
                )
                try:
                    await self.run_sequence(
                        sequences[number],
                        inner,
                        part.setdefault("in", {}),
                        (*path, number),
                    )
                    finished.add(number)
                except ApprovalRequired as pause:
                    if not paused or number < min(paused):
                        paused.clear()
                        paused[number] = pause
                except Exception as error:
                    failed[number] = error
                    raise

        try:
            # it is in `failed`, perhaps with others
            with contextlib.suppress(Exception):
                await gather_or_cancel(
                    work() for _ in range(min(concurrency, len(sequences)))
                )
        finally:
            node["at"] = next(
                (number for number in range(len(sequences)) if number not in finished),
                0,
            )
        if stopped := failed or paused:
            node["at"] = min(stopped)
            raise stopped[node["at"]]
        return [parts[str(number)]["set"] for number in range(len(sequences))]


def _items(step: steps.MapStep, context: Mapping[str, Any]) -> list[Any]:
    """The items of a map step; see `podwright.components.map_items`.

    Raises:
        ContextError: The context lacks them, or they are not certain, or too many.
    """
    name = step.over
    if name not in context:
        message = f"Step '{step.name}' maps over '{name}', which is not in the context."
        raise ContextError(
            message, suggestion=did_you_mean(name, visible(context)) or None
        )
    value = context[name]
    try:
        items = read_items(value)
    except UnreadableItemsError as error:
        text = after_thoughts(to_text(value)).strip() or to_text(value)
        raise ContextError(
            f"Step '{step.name}' maps over '{name}', which {error}: {truncate(text, _SHOWN)!r}.",
            suggestion="Let the step before it answer with one JSON array and nothing else.",
        ) from error
    if len(items) > MAX_ITEMS:
        raise ContextError(
            f"Step '{step.name}' maps over {len(items)} items of '{name}'; at most {MAX_ITEMS} are allowed.",
            suggestion="Let the step before it group them.",
        )
    return items
