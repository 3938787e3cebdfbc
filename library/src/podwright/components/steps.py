"""The steps of a workflow as Python objects; a workflow turns them into its blueprint and keeps that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, assert_never, cast

from podwright.blueprints import Blueprint
from podwright.components.base import Component
from podwright.errors import ConfigurationError

if TYPE_CHECKING:
    from podwright.components.workflow import Workflow

ConditionLike = str | Mapping[str, Any] | Callable[..., Any]
"""A function of the context, the name of one, or `{"name": …, "args": {…}}` for a built-in condition."""


@dataclass(frozen=True, slots=True)
class AgentStep:
    """Runs an agent, and writes its answer to the context."""

    agent: Component | str
    """The agent, or its name with `agents={…}` given to the workflow."""
    name: str | None = None
    """Name of the step; by default the agent's."""
    input: str | None = None
    """A template for what the agent is given; by default the whole context."""
    output: str | None = None
    """Where the answer goes; by default `<agent_name>_output`."""


@dataclass(frozen=True, slots=True)
class ConditionStep:
    """Goes one of two ways."""

    condition: ConditionLike
    then: Sequence[Step | Component]
    """Steps for when it holds."""
    else_: Sequence[Step | Component] = ()
    """Steps for when it does not."""
    name: str | None = None


@dataclass(frozen=True, slots=True)
class ParallelStep:
    """Runs several sequences at once, each on its own copy of the context; a failure cancels the others."""

    branches: Sequence[Sequence[Step | Component]]
    """What they write is merged in their order."""
    name: str | None = None


@dataclass(frozen=True, slots=True)
class LoopStep:
    """Runs its steps, and again until a condition holds."""

    steps: Sequence[Step | Component]
    until: ConditionLike
    """Is asked after each round."""
    max_iterations: int = 10
    """The workflow goes on after so many rounds, whatever the condition says."""
    name: str | None = None


@dataclass(frozen=True, slots=True)
class MapStep:
    """Runs its steps for each item of a list; each output becomes a JSON array of the items' outputs."""

    over: str
    """Name in the context: a list, a JSON array as text, or text with an item a line."""
    as_: str
    """The name that the steps see the item under."""
    steps: Sequence[Step | Component]
    max_concurrency: int = 8
    """How many items are worked on at once."""
    name: str | None = None


@dataclass(frozen=True, slots=True)
class WorkflowStep:
    """Runs a nested workflow on the same context."""

    workflow: Workflow
    name: str | None = None


@dataclass(frozen=True, slots=True)
class ApprovalStep:
    """Pauses the workflow until a person approves."""

    message: str
    """What the person is asked; a template."""
    name: str | None = None


Step = AgentStep | ConditionStep | ParallelStep | LoopStep | MapStep | WorkflowStep | ApprovalStep


@dataclass(slots=True)
class Parts:
    """The live objects that a workflow's steps refer to by name."""

    agents: dict[str, Component] = field(default_factory=dict[str, Component])
    conditions: dict[str, Callable[..., Any]] = field(default_factory=dict[str, Callable[..., Any]])

    def lower(self, steps: Sequence[Step | Component]) -> list[Blueprint]:
        """The steps as blueprint data; their live objects are kept here.

        Raises:
            ConfigurationError: Something given is no step, or one name means two objects.
        """
        if not isinstance(steps, Sequence) or isinstance(steps, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"Steps are a list, not {steps!r}.")
        return [self._lower(step) for step in steps]

    def _lower(self, step: Step | Component) -> Blueprint:
        match step:
            case AgentStep() | Component():
                return self._agent(step if isinstance(step, AgentStep) else AgentStep(step))
            case ConditionStep():
                lowered = _named("condition_step", step.name)
                lowered |= {"condition": self._condition(step.condition), "then": self.lower(step.then)}
                return lowered | ({"else": self.lower(step.else_)} if step.else_ else {})
            case ParallelStep():
                return _named("parallel_step", step.name) | {"branches": [self.lower(one) for one in step.branches]}
            case LoopStep():
                lowered = _named("loop_step", step.name) | {"steps": self.lower(step.steps)}
                return lowered | {"until": self._condition(step.until), "max_iterations": step.max_iterations}
            case MapStep():
                lowered = _named("map_step", step.name) | {"over": step.over, "as": step.as_}
                return lowered | {"steps": self.lower(step.steps), "max_concurrency": step.max_concurrency}
            case WorkflowStep():
                return self._workflow(step)
            case ApprovalStep():
                return _named("approval_step", step.name) | {"message": step.message}
            case _:
                if TYPE_CHECKING:
                    assert_never(step)
                raise ConfigurationError(f"A step is an AgentStep, ConditionStep, …, not {step!r}.")

    def _agent(self, step: AgentStep) -> Blueprint:
        agent = step.agent
        if isinstance(agent, Component):
            self.add_agent(agent.name, agent)
            agent = agent.name
        elif not isinstance(agent, str):  # pyright: ignore[reportUnnecessaryIsInstance] - it comes from a caller
            raise ConfigurationError(f"An AgentStep takes an agent or its name, not {agent!r}.")
        if isinstance(step.name, Component):
            raise ConfigurationError(
                f"An AgentStep takes the agent first, then the step's name, not {step.name!r}.",
                suggestion=f"Write AgentStep({step.name.name}, {agent!r}).",
            )
        lowered: Blueprint = {"type": "agent_step", "agent": agent, "name": step.name or agent}
        given = {"input": step.input, "output": step.output}
        return lowered | {key: value for key, value in given.items() if value is not None}

    def _workflow(self, step: WorkflowStep) -> Blueprint:
        nested = step.workflow
        blueprint = nested.to_blueprint()
        for name, agent in nested.members().items():
            self.add_agent(name, agent)
        for name, condition in nested.conditions.items():
            self._add_condition(name, condition)
        return _named("workflow_step", step.name or nested.name) | {"workflow": blueprint}

    def add_agent(self, name: str, agent: Component) -> None:
        """Keep an agent under a name.

        Raises:
            ConfigurationError: It is no component, or another one has that name.
        """
        if not isinstance(agent, Component):  # pyright: ignore[reportUnnecessaryIsInstance] - it comes from a caller
            raise ConfigurationError(f"The agent '{name}' is {agent!r}, which is no component.")
        if self.agents.setdefault(name, agent) is not agent:
            raise ConfigurationError(f"Two different agents are called '{name}'.", suggestion="Give each its own name.")

    def _condition(self, condition: ConditionLike) -> Blueprint:
        if isinstance(condition, str):
            return {"name": condition}
        if isinstance(condition, Mapping):
            return dict(cast("Mapping[str, Any]", condition))
        name = getattr(condition, "__name__", "")
        if not callable(condition) or not name.isidentifier():
            raise ConfigurationError(
                f"A condition is a named function, a name, or an object with a name, not {condition!r}.",
                suggestion="Write it as a `def` function; a blueprint refers to it by its name.",
            )
        self._add_condition(name, condition)
        return {"name": name}

    def _add_condition(self, name: str, condition: Callable[..., Any]) -> None:
        if self.conditions.setdefault(name, condition) is not condition:
            raise ConfigurationError(f"Two different conditions are called '{name}'.", suggestion="Rename one.")


def _named(step_type: str, name: str | None) -> Blueprint:
    return {"type": step_type, "name": name or step_type.removesuffix("_step")}
