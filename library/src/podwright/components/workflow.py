"""The workflow: steps over one context, stopped anywhere and resumed there (spec §§2.2, 4.4)."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, cast

from typing_extensions import Unpack

from podwright import blueprints
from podwright.blueprints import Blueprint
from podwright.components.base import Component, DescribedOptions, Options, by_name, checked, described, overridden
from podwright.components.chat import to_context
from podwright.components.resume import KEY, MOST_ITEMS, Node, Route, path_of, restored
from podwright.components.steps import Parts, Step
from podwright.conditions import Conditions, holds
from podwright.conditions import problems as condition_problems
from podwright.errors import ApprovalRequired, ConfigurationError, ContextError, Problem, ResumePathError
from podwright.events import ConditionChecked, Event, EventManager, Kind
from podwright.json_data import as_object, copy_json, to_text
from podwright.run import Checkpoint, Run, Task, gather_or_cancel
from podwright.templates import fill, fill_all, sections, visible
from podwright.text import did_you_mean, short_repr


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

    __slots__ = ("_agents", "_conditions")
    kind: ClassVar[Kind] = "workflow"

    def __init__(
        self,
        name: str,
        steps: Sequence[Step | Component],
        agents: Mapping[str, Component] | None = None,
        conditions: Conditions | None = None,
        **options: Unpack[DescribedOptions],
    ) -> None:
        parts = Parts(conditions=by_name(conditions, "conditions"))
        for key, agent in by_name(agents, "agents").items():
            parts.add_agent(key, agent)
        blueprint: Blueprint = {"type": "Workflow", "version": blueprints.VERSION, "name": name}
        blueprint["steps"] = parts.lower(steps)
        kept = described(blueprint, options, settings=False)
        blueprint = checked(blueprint, "workflow")
        if found := list(_problems(blueprint, parts.agents, parts.conditions)):
            raise blueprints.invalid(found, f"The workflow '{name}'")
        self._assemble(blueprint, parts.agents, parts.conditions, kept)

    def _assemble(
        self,
        blueprint: Blueprint,
        agents: Mapping[str, Component],
        conditions: Conditions,
        options: Options | None,
    ) -> None:
        super().__init__(blueprint, options)
        self._agents = agents
        self._conditions = conditions

    @classmethod
    def from_blueprint(
        cls,
        blueprint: Mapping[str, Any],
        agents: Mapping[str, Component] = {},
        conditions: Conditions = {},  # noqa: B006 - as above
        validate: bool = True,
        event_manager: EventManager | None = None,
        **kwargs: Any,
    ) -> Self:
        """Rebuild a workflow (spec §4.4).

        Args:
            blueprint: What `to_blueprint` gave.
            agents: The agents by the names that its steps use.
            conditions: The functions by the names that its steps use; built-in ones need none.
            validate: If false, unknown keys are dropped, and missing agents and conditions fail when they are reached.
            event_manager: Hears every run, nested ones too.
            **kwargs: Values that replace the blueprint's, and see `Options`.

        Raises:
            BlueprintValidationError: The blueprint is invalid; all problems at once.
            ConfigurationError: A keyword is no value of a workflow.
        """
        whole, options, _ = overridden(blueprint, "workflow", kwargs)
        if event_manager is not None:
            options["event_manager"] = event_manager
        parts = Parts(conditions=by_name(conditions, "conditions"))
        for key, agent in by_name(agents, "agents").items():
            parts.add_agent(key, agent)
        if validate:
            found = [*blueprints.problems(whole, "workflow"), *_problems(whole, parts.agents, parts.conditions)]
            if found:
                raise blueprints.invalid(found, f"The blueprint of workflow {short_repr(whole.get('name'))}")
        return cls.from_parts(
            blueprints.check(whole, "workflow", validate), parts.agents, parts.conditions, options or None
        )

    @classmethod
    def from_parts(
        cls,
        blueprint: Blueprint,
        agents: Mapping[str, Component],
        conditions: Conditions,
        options: Options | None = None,
    ) -> Self:
        """A workflow of a blueprint that is known to be sound, and that is not copied."""
        self = cls.__new__(cls)
        self._assemble(blueprint, agents, conditions, options)
        return self

    @property
    def steps(self) -> Sequence[Blueprint]:
        """Its steps as blueprint data."""
        return self._blueprint["steps"]

    @property
    def conditions(self) -> Conditions:
        """The functions that its steps name."""
        return self._conditions

    def members(self) -> Mapping[str, Component]:
        """Its agents by name."""
        return self._agents

    def text(self, value: Any) -> str:
        """What was written last: a workflow's answer to the component that comes next."""
        written = as_object(value)
        return to_text(next(reversed(written.values())) if written else value)

    def run(
        self,
        context: Mapping[str, Any] | str | None = None,
        start_step: int = 0,
        trace: bool = False,
        resume_path: Sequence[int] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Run to the end, from synchronous code (spec §4.4).

        Args:
            context: A text, used as `input`, or a whole context, such as that of an error that stopped a run.
            start_step: Index of the step to start from.
            trace: Whether to return an `ExecutionResult` instead of the context.
            resume_path: Indices down to the step to start from, as a stopped run's error carries it. A path
                to an approval step approves it.
            **kwargs: Named inputs when no context is given, or updates to it.

        Returns:
            The context, `input` and an entry for each output, all strings; or an `ExecutionResult`.

        Raises:
            PodwrightError: With `context` and `resume_path`, if the workflow can go on from there.
        """
        return self._run(self._task(context, start_step, resume_path, kwargs), False, trace)

    async def arun(
        self,
        context: Mapping[str, Any] | str | None = None,
        start_step: int = 0,
        trace: bool = False,
        resume_path: Sequence[int] | None = None,
        **kwargs: Any,
    ) -> Any:
        """As `run`, from asynchronous code; cancelling it cancels the run."""
        return await self._arun(self._task(context, start_step, resume_path, kwargs), False, trace)

    def stream(
        self,
        context: Mapping[str, Any] | str | None = None,
        start_step: int = 0,
        resume_path: Sequence[int] | None = None,
        **kwargs: Any,
    ) -> Iterator[Event]:
        """Run and yield each event as it happens, tokens too; leaving early cancels the run."""
        return self._stream(self._task(context, start_step, resume_path, kwargs))

    def astream(
        self,
        context: Mapping[str, Any] | str | None = None,
        start_step: int = 0,
        resume_path: Sequence[int] | None = None,
        **kwargs: Any,
    ) -> AsyncGenerator[Event]:
        """As `stream`, from asynchronous code."""
        return self._astream(self._task(context, start_step, resume_path, kwargs))

    def task(self, context: object, start_step: object = 0, resume_path: object = None) -> Task:
        """What `run` would do with these arguments, checked; for callers of `podwright.run.execute`.

        Raises:
            InputError: The context, the start step or the resume path is wrong.
        """
        given = dict(to_context({"input": ""} if context is None else context))
        progress = restored(_route(self), given.pop(KEY, None), start_step, resume_path)
        outputs = outputs_of(self.steps)
        inputs = {key: value for key, value in given.items() if key not in ("input", *outputs)}
        whole = sections(inputs)
        if "input" not in given:
            given = {"input": whole, **given}
        # an `input` that was only put together from the named inputs would tell an agent everything twice
        hidden = frozenset({"input"}) if inputs and given["input"] == whole else frozenset[str]()
        approved = tuple(path_of(progress)) if resume_path is not None else None
        return Task(_Walk(_Scope(given), copy_json(progress), approved, hidden))

    def _task(self, context: object, start_step: object, resume_path: object, updates: Mapping[str, Any]) -> Task:
        for name in _OF_OTHER_KINDS & updates.keys():
            raise ContextError(
                f"A workflow's run takes no '{name}'.",
                suggestion="Named inputs may have any other name; an input of that name goes into `context`.",
            )
        if updates:
            context = {**({} if context is None else to_context(context)), **updates}
        return self.task(context, start_step, resume_path)

    async def perform(self, run: Run, task: Task) -> Any:
        """Walk the steps; when stopped, leave where and with what to go on."""
        walk = task.input if isinstance(task.input, _Walk) else cast("_Walk", self.task(task.input).input)
        context = walk.scope.context
        try:
            await _Walker(self, run, walk).sequence(self.steps, walk.scope, walk.progress, run.path)
        except BaseException:
            if not walk.inner:
                saved = copy_json({**context, KEY: walk.progress})
                run.checkpoint = Checkpoint(saved, path_of(walk.progress))
            raise
        return {key: to_text(context[key]) for key in visible(context)}


_OF_OTHER_KINDS = {"input_data", "response_model", "stream"}
"""What the other kinds' `run` takes: here it would become an input, which nobody means."""


class _Scope:
    """The context as a sequence sees it, and what it wrote."""

    __slots__ = ("context", "written")

    def __init__(self, context: dict[str, Any], written: dict[str, Any] | None = None) -> None:
        self.context = context
        self.written = written

    def write(self, key: str, value: Any) -> None:
        """Put a value at the end of the context: what was written last is the workflow's answer."""
        for target in (self.context, self.written):
            if target is not None:
                target.pop(key, None)
                target[key] = value


@dataclass(slots=True)
class _Walk:
    """One walk through a workflow; its scope and progress are changed in place."""

    scope: _Scope
    progress: Node
    approved: tuple[int, ...] | None
    """Path to the approval step that a person has approved, from this workflow's own first step."""
    hidden: frozenset[str] = frozenset()
    """Names of the context that agents are not shown."""
    inner: bool = False
    """Whether the workflow around it keeps the progress."""

    @property
    def shown_input(self) -> dict[str, Any]:
        """What the trace shows as the run's input."""
        return {key: self.scope.context[key] for key in visible(self.scope.context)}


class _Walker:
    """Does the steps of one walk."""

    def __init__(self, workflow: Workflow, run: Run, walk: _Walk) -> None:
        self._agents = workflow.members()
        self._conditions = workflow.conditions
        self._run = run
        self._approved = (*run.path, *walk.approved) if walk.approved is not None else None
        self._hidden = walk.hidden

    async def sequence(self, steps: Sequence[Blueprint], scope: _Scope, node: Node, path: tuple[int, ...]) -> None:
        """Do the steps that are not finished, one after the other."""
        node.setdefault("step", 0)
        while (index := cast("int", node["step"])) < len(steps):
            step, here = steps[index], (*path, index)
            await asyncio.sleep(0)  # steps that wait for nothing must not keep others, and time limits, from their turn
            with self._run.step(step["name"], step["type"], here):
                await self._step(step, scope, node.setdefault("in", {}), here)
            node["step"], node["in"] = index + 1, {}

    async def _step(self, step: Blueprint, scope: _Scope, node: Node, here: tuple[int, ...]) -> None:
        match step["type"]:
            case "agent_step":
                await self._agent(step, scope, node, here)
            case "condition_step":
                if "at" not in node:
                    node["at"] = 0 if await self._holds(step, step["condition"], scope, here) else 1
                chosen = step["then"] if node["at"] == 0 else step.get("else", [])
                await self.sequence(chosen, scope, node.setdefault("in", {}), (*here, node["at"]))
            case "loop_step":
                await self._loop(step, scope, node, here)
            case "parallel_step":
                await self._parallel(step, scope, node, here)
            case "map_step":
                await self._map(step, scope, node, here)
            case "workflow_step":
                nested = Workflow.from_parts(step["workflow"], self._agents, self._conditions)
                walk = _Walk(scope, node.setdefault("in", {}), self._approved_in(here), self._hidden, inner=True)
                await self._run.child(nested, here).execute(nested, Task(walk))
            case _:
                if self._approved != here:
                    raise ApprovalRequired(fill(step["message"], scope.context))

    async def _agent(self, step: Blueprint, scope: _Scope, node: Node, here: tuple[int, ...]) -> None:
        name = step["agent"]
        agent = self._agents.get(name)
        if agent is None:
            hint = did_you_mean(name, self._agents) or None
            raise ConfigurationError(
                f"Step '{step['name']}' needs the agent '{name}', which was not given.", suggestion=hint
            )
        given: Any = {key: value for key, value in scope.context.items() if key not in self._hidden and key[:1] != "_"}
        if "input" in step:
            given = fill_all(step["input"], scope.context, f"Step '{step['name']}'")
        task = Task(given)
        if isinstance(agent, Workflow):
            walk = cast("_Walk", agent.task(node.get("context", given)).input)
            walk.inner, walk.approved, walk.progress = (
                True,
                self._approved_in(here),
                node.setdefault("in", {}),
            )
            node["context"] = walk.scope.context
            task = Task(walk)
        value = await self._run.child(agent, here).execute(agent, task)
        scope.write(step.get("output") or f"{name}_output", agent.text(value))

    def _approved_in(self, here: tuple[int, ...]) -> tuple[int, ...] | None:
        """The approved path as the workflow inside a step counts it."""
        inside = self._approved is not None and self._approved[: len(here)] == here
        return self._approved[len(here) :] if self._approved is not None and inside else None

    async def _holds(self, step: Blueprint, condition: Blueprint, scope: _Scope, here: tuple[int, ...]) -> bool:
        result = await holds(condition, scope.context, self._conditions)
        self._run.emit(ConditionChecked(step=step["name"], condition=condition["name"], result=result), here)
        return result

    async def _loop(self, step: Blueprint, scope: _Scope, node: Node, here: tuple[int, ...]) -> None:
        node.setdefault("at", 0)
        while True:
            await self.sequence(step["steps"], scope, node.setdefault("in", {}), (*here, node["at"]))
            done = await self._holds(step, step["until"], scope, here)
            if done or node["at"] + 1 >= step["max_iterations"]:
                return
            node["at"], node["in"] = node["at"] + 1, {}

    async def _parallel(self, step: Blueprint, scope: _Scope, node: Node, here: tuple[int, ...]) -> None:
        branches = step["branches"]
        await self._fan_out(branches, [dict[str, Any]()] * len(branches), len(branches), scope, node, here)
        for number in range(len(branches)):
            for key, value in node["parts"][str(number)]["set"].items():
                scope.write(key, value)

    async def _map(self, step: Blueprint, scope: _Scope, node: Node, here: tuple[int, ...]) -> None:
        items = _items(step, scope.context)
        if node.get("at", 0) >= max(1, len(items)):
            raise ResumePathError(f"Step '{step['name']}' has no item {node['at']}, only {len(items)} items.")
        locals_ = [{step["as"]: item} for item in items]
        await self._fan_out([step["steps"]] * len(items), locals_, step.get("max_concurrency", 8), scope, node, here)
        parts = [node["parts"][str(number)]["set"] for number in range(len(items))]
        for key in outputs_of(step["steps"]):
            if not parts or any(key in part for part in parts):
                scope.write(key, to_text([part.get(key) for part in parts]))

    async def _fan_out(
        self,
        sequences: Sequence[Sequence[Blueprint]],
        extras: Sequence[Mapping[str, Any]],
        limit: int,
        scope: _Scope,
        node: Node,
        here: tuple[int, ...],
    ) -> None:
        """Do several sequences at once, each on its own copy of the context.

        A failure cancels the others; a pause lets them go on to their own end or pause.
        """
        node.setdefault("at", 0)
        parts: dict[str, Node] = node.setdefault("parts", {})
        waiting = iter(range(len(sequences)))
        finished: set[int] = set()
        stopped: dict[int, Exception] = {}

        async def work() -> None:
            for number in waiting:
                try:
                    part = parts.setdefault(str(number), {})
                    written = part.setdefault("set", {})
                    inner = _Scope({**scope.context, **extras[number], **written}, written)
                    await self.sequence(sequences[number], inner, part.setdefault("in", {}), (*here, number))
                    finished.add(number)
                except ApprovalRequired as pause:
                    stopped[number] = pause
                except Exception as error:
                    stopped[number] = error
                    raise

        try:
            with contextlib.suppress(Exception):  # it is in `stopped`, perhaps with others
                await gather_or_cancel(work() for _ in range(min(limit, len(sequences))))
        finally:
            node["at"] = next((number for number in range(len(sequences)) if number not in finished), 0)
        for number in sorted(stopped, key=lambda one: (isinstance(stopped[one], ApprovalRequired), one)):
            node["at"] = number
            raise stopped[number]


def _route(workflow: Workflow) -> Route:
    def into(agent: str) -> Route | None:
        member = workflow.members().get(agent)
        return _route(member) if isinstance(member, Workflow) else None

    return Route(workflow.steps, into)


def outputs_of(steps: Sequence[Blueprint]) -> list[str]:
    """The names that a sequence of steps may write, each once."""
    found = [
        step.get("output") or f"{step['agent']}_output"
        for _, step in blueprints.walk_steps(list(steps))
        if step["type"] == "agent_step"
    ]
    return list(dict.fromkeys(found))


def _items(step: Blueprint, context: Mapping[str, Any]) -> list[Any]:
    """What a map step goes over: a list, a JSON array as text, or the lines of a text that are not empty."""
    name = step["over"]
    if name not in context:
        hint = did_you_mean(name, visible(context)) or None
        raise ContextError(
            f"Step '{step['name']}' goes over '{name}', which the context does not have.", suggestion=hint
        )
    value = context[name]
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = [line.strip() for line in value.splitlines() if line.strip()]
    if not isinstance(value, list):
        raise ContextError(f"Step '{step['name']}' goes over '{name}', which is no list: {to_text(value)[:60]!r}.")
    items = cast("list[Any]", value)
    if len(items) > MOST_ITEMS:
        raise ContextError(
            f"Step '{step['name']}' goes over '{name}', which has {len(items)} items; {MOST_ITEMS} are allowed.",
            suggestion="Have the step before it group them.",
        )
    return items


def _problems(
    blueprint: Mapping[str, Any], agents: Mapping[str, Component], conditions: Conditions
) -> Iterator[Problem]:
    """What a workflow needs from its caller and did not get, and what its conditions have wrong."""
    for at, step in blueprints.walk_steps(blueprint.get("steps")):
        agent = step.get("agent")
        if step.get("type") == "agent_step" and isinstance(agent, str) and agent not in agents:
            hint = did_you_mean(agent, agents) or f"Give it in agents={{'{agent}': …}}."
            yield Problem(f"{at}/agent", f"no agent called '{agent}' was given.", hint)
        for key in ("condition", "until"):
            if key in step:
                yield from condition_problems(step[key], f"{at}/{key}", conditions)
