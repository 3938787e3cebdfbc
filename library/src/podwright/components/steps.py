"""The steps of a workflow as Python objects, and their blueprint data.

A workflow runs step objects that refer to live agents and nested workflows; its blueprint refers to them by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, cast

from podwright.blueprints.outputs import shared
from podwright.blueprints.steps import SEQUENCES
from podwright.blueprints.validation import Blueprint
from podwright.components.agent_map import AgentMap
from podwright.components.base import Component
from podwright.components.options import response_schema_of
from podwright.errors import ConfigurationError
from podwright.json_data import JsonMapping, JsonObject
from podwright.tools import Tool, to_tool

if TYPE_CHECKING:
    from podwright.components.workflow import Workflow

ConditionLike = str | JsonMapping | Callable[..., Any]
"""A function of the context, the name of one, or `{"name": …, "args": {…}}` for a built-in condition."""


@dataclass(frozen=True, slots=True)
class AgentStep:
    """Runs an agent, and writes its answer to the context."""

    agent: Component | str
    """The agent, or its name with `agents={…}` given to the workflow."""
    name: str | None = None
    """Name of the step; by default the agent's."""
    input: str | JsonMapping | None = None
    """The agent's input: a template, or named inputs whose texts are templates; by default the whole context."""
    output: str | None = None
    """Name under which the answer is stored; by default `<agent_name>_output`."""
    response_schema: Any = None
    """The JSON Schema of the answer, or a type that has one, such as a pydantic model; by default the agent's own."""
    conversation: bool = False
    """Whether the agent is given the earlier turns of the conversation that the workflow is given."""
    limits: JsonMapping | None = None
    """What the agent may use: `{"model_calls": …, "tokens": …, "cost": USD, "seconds": …}`, each optional."""

    @property
    def stored_as(self) -> str:
        """The name under which the answer of a resolved step is stored."""
        return self.output or f"{self.agent}_output"


@dataclass(frozen=True, slots=True)
class FunctionStep:
    """Calls a function, and writes its result to the context: `FunctionStep(look_up, {"number": "{ticket.order}"})`."""

    function: Callable[..., Any] | str
    """The function, or its name with `functions={…}` given to the workflow."""
    arguments: JsonMapping = field(default_factory=dict[str, Any])
    """Its arguments by name. A text is a template; one that is a single name becomes the value itself."""
    name: str | None = None
    """Name of the step; by default the function's."""
    output: str | None = None
    """Name under which the result is stored; by default `<function>_output`."""

    @property
    def stored_as(self) -> str:
        """The name under which the result of a resolved step is stored."""
        return self.output or f"{self.function}_output"


@dataclass(frozen=True, slots=True)
class TryStep:
    """Runs steps, and others if one of them fails; `{error.code}` and `{error.message}` tell those why."""

    steps: Steps
    catch: Steps = ()
    """Run if the steps failed. Without them the workflow fails."""
    retries: int = 0
    """How often the steps are run again first."""
    name: str | None = None
    on: Sequence[str] = ()
    """The codes of the errors that it catches, such as `model_unavailable`; by default all that can be caught."""


@dataclass(frozen=True, slots=True)
class ConditionStep:
    """Runs one of two sequences of steps."""

    condition: ConditionLike
    then: Steps
    """Steps if the condition holds."""
    else_: Steps = ()
    """Steps if it does not."""
    name: str | None = None


@dataclass(frozen=True, slots=True)
class ParallelStep:
    """Runs several sequences at once, each on its own copy of the context; a failure cancels the others."""

    branches: Sequence[Steps]
    """Their outputs are merged in this order. Each has names of its own, unless they are collected."""
    name: str | None = None
    collect: bool = False
    """Whether a name that several branches write becomes the list of their values, in the order of the branches."""


@dataclass(frozen=True, slots=True)
class LoopStep:
    """Repeats its steps until a condition holds."""

    steps: Steps
    until: ConditionLike
    """Evaluated after each iteration."""
    max_iterations: int = 10
    """After so many iterations the loop ends in any case."""
    name: str | None = None
    on_exhausted: Literal["continue", "fail"] = "continue"
    """Whether the workflow goes on or fails if the condition does not hold after `max_iterations`."""


@dataclass(frozen=True, slots=True)
class MapStep:
    """Runs its steps for each item of a list; each output becomes a JSON array of the items' outputs."""

    over: str
    """Name in the context: a list, or a text as models write it; see `podwright.components.map_items`."""
    as_: str
    """Name of the item for the steps."""
    steps: Steps
    max_concurrency: int = 8
    """Items worked on at once."""
    name: str | None = None


@dataclass(frozen=True, slots=True)
class WorkflowStep:
    """Runs a nested workflow on the same context."""

    workflow: Workflow
    name: str | None = None


@dataclass(frozen=True, slots=True)
class ApprovalStep:
    """Pauses the workflow until a person decides; `{name.decision}` and `{name.comment}` are the decision."""

    message: str
    """The question to that person; a template."""
    name: str | None = None
    options: Sequence[str] = ()
    """What may be decided; by default `approve` and `reject`."""
    edit: Mapping[str, JsonMapping] = field(
        default_factory=dict[str, JsonMapping]
    )
    """Names in the context that the person may change, with the JSON Schemas of their values."""
    on_reject: Steps | None = None
    """Run if the decision is `reject`, after which the workflow goes on; it may be empty. None ends the workflow."""

    @property
    def is_in_context(self) -> bool:
        """Whether its decision becomes a part of the context in any case."""
        goes_on = self.on_reject is not None
        return bool(self.options or self.edit or goes_on)


Step = (
    AgentStep
    | FunctionStep
    | TryStep
    | ConditionStep
    | ParallelStep
    | LoopStep
    | MapStep
    | WorkflowStep
    | ApprovalStep
)

Steps = Sequence[Step | Component]
"""Steps as a caller gives them; a bare component is a step too."""

STEP_TYPES: dict[type[Step], str] = {
    AgentStep: "agent_step",
    FunctionStep: "function_step",
    TryStep: "try_step",
    ConditionStep: "condition_step",
    ParallelStep: "parallel_step",
    LoopStep: "loop_step",
    MapStep: "map_step",
    WorkflowStep: "workflow_step",
    ApprovalStep: "approval_step",
}
"""The `type` of each class of steps in a blueprint."""

_CLASSES = {
    step_type: step_class for step_class, step_type in STEP_TYPES.items()
}

_RENAMED = {"as": "as_", "else": "else_"}
"""The fields of step classes whose keys in a blueprint are reserved words of Python."""

_SEQUENCES = tuple(_RENAMED.get(key, key) for key in SEQUENCES)
"""The fields of step classes that hold steps."""

_LEFT_OUT: JsonObject = {
    "else_": [],
    "catch": [],
    "collect": False,
    "conversation": False,
    "options": [],
    "edit": {},
    "retries": 0,
    "on": [],
    "arguments": {},
    "on_exhausted": "continue",
}
"""Values of optional fields that blueprints leave out, because they mean the same as no value. So does None."""


def assume_resolved(steps: Steps) -> Sequence[Step]:
    """The steps inside a resolved step, for type checkers: `References.resolve` has replaced bare components."""
    return cast("Sequence[Step]", steps)


def sequences_of(step: Step) -> list[Sequence[Step]]:
    """The sequences of steps inside a resolved step, without those of nested workflows."""
    sequences: list[Any] = [
        getattr(step, name, None) or () for name in _SEQUENCES
    ]
    if isinstance(step, ParallelStep):
        sequences += step.branches
    return sequences


def collected_names(step: ParallelStep) -> list[str]:
    """The names of which a resolved parallel step makes lists, in the order in which they are written first."""
    if not step.collect:
        return []
    branches = [output_names(assume_resolved(item)) for item in step.branches]
    names = shared(branches)
    every = dict.fromkeys(name for branch in branches for name in branch)
    return [name for name in every if name in names]


def output_names(steps: Iterable[Step]) -> list[str]:
    """The names that a sequence of resolved steps may write to the context, each once."""
    names = _output_names(steps)
    return list(dict.fromkeys(names))


def _output_names(steps: Iterable[Step]) -> Iterator[str]:
    for step in steps:
        if isinstance(step, AgentStep | FunctionStep):
            yield step.stored_as
        elif isinstance(step, WorkflowStep):
            yield from _output_names(step.workflow.steps)
        else:
            for sequence in sequences_of(step):
                yield from _output_names(sequence)
        if isinstance(step, ApprovalStep) and step.is_in_context:
            yield step.name or ""


@dataclass(slots=True)
class References:
    """The live objects that the steps of a workflow refer to by name."""

    agents: AgentMap = field(default_factory=AgentMap)
    conditions: dict[str, Callable[..., Any]] = field(
        default_factory=dict[str, Callable[..., Any]]
    )
    functions: dict[str, Tool] = field(default_factory=dict[str, Tool])

    def add_agent(self, name: str, agent: object) -> None:
        """Add an agent under a name.

        Raises:
            ConfigurationError: It is not a component, or another one has that name.
        """
        if not isinstance(agent, Component):
            raise ConfigurationError(
                f"The agent '{name}' must be a component, not {agent!r}."
            )
        if self.agents.setdefault(name, agent) is not agent:
            raise ConfigurationError(
                f"Two agents are called '{name}'.",
                suggestion="Give each its own name.",
            )

    def add_condition(self, name: str, condition: Callable[..., Any]) -> None:
        """Add a condition under a name.

        Raises:
            ConfigurationError: Another one has that name.
        """
        if self.conditions.setdefault(name, condition) is not condition:
            raise ConfigurationError(
                f"Two conditions are called '{name}'.",
                suggestion="Rename one of them.",
            )

    def add_function(self, function: Callable[..., Any], name: str = "") -> str:
        """Add a function under a name, by default its own, and return the name.

        Raises:
            ConfigurationError: Another one has that name, or it cannot be called with JSON data.
        """
        tool = function
        if not isinstance(tool, Tool):
            tool = to_tool(function)
        name = name or tool.name
        known = self.functions.setdefault(name, tool.renamed(name))
        if known.function is not tool.function:
            raise ConfigurationError(
                f"Two functions are called '{name}'.",
                suggestion="Rename one of them.",
            )
        return name

    def resolve(self, steps: object) -> tuple[Step, ...]:
        """Steps as a caller gives them, with names and defaults filled in; they refer to agents by name.

        Raises:
            ConfigurationError: Something is not a step, or one name means two objects.
        """
        if isinstance(steps, str) or not isinstance(steps, Sequence):
            raise ConfigurationError(f"Steps must be a list, not {steps!r}.")
        entries = cast("Sequence[object]", steps)
        return tuple(map(self._resolve_step, entries))

    def _resolve_step(self, step: object) -> Step:
        if isinstance(step, Component):
            step = AgentStep(step)
        if not isinstance(step, Step):
            raise ConfigurationError(
                f"Expected a step such as AgentStep or LoopStep, not {step!r}."
            )
        if isinstance(step, AgentStep):
            return self._resolve_agent(step)
        if isinstance(step, FunctionStep):
            return self._resolve_function(step)
        if isinstance(step, WorkflowStep):
            return self._resolve_workflow(step)
        step_type = STEP_TYPES[type(step)]
        name = step.name or step_type.removesuffix("_step")
        match step:
            case ConditionStep():
                return replace(
                    step,
                    name=name,
                    then=self.resolve(step.then),
                    else_=self.resolve(step.else_),
                    condition=self._resolve_condition(step.condition),
                )
            case ParallelStep():
                branches = [self.resolve(branch) for branch in step.branches]
                return replace(step, name=name, branches=branches)
            case LoopStep():
                return replace(
                    step,
                    name=name,
                    steps=self.resolve(step.steps),
                    until=self._resolve_condition(step.until),
                )
            case MapStep():
                return replace(step, name=name, steps=self.resolve(step.steps))
            case TryStep():
                return self._resolve_try(step, name)
            case ApprovalStep():
                return self._resolve_approval(step, name)

    def _resolve_try(self, step: TryStep, name: str) -> TryStep:
        on = step.on
        if isinstance(on, tuple):
            # as blueprints have it; that of something else is a problem of the blueprint
            on = list(on)
        return replace(
            step,
            name=name,
            steps=self.resolve(step.steps),
            catch=self.resolve(step.catch),
            on=on,
        )

    def _resolve_approval(self, step: ApprovalStep, name: str) -> ApprovalStep:
        on_reject = step.on_reject
        if on_reject is not None:
            on_reject = self.resolve(on_reject)
        return replace(
            step,
            name=name,
            options=list(step.options),
            edit=dict(step.edit),
            on_reject=on_reject,
        )

    def _resolve_workflow(self, step: WorkflowStep) -> WorkflowStep:
        workflow = step.workflow
        # only workflows have both
        if not hasattr(workflow, "steps") or not hasattr(
            workflow, "conditions"
        ):
            raise ConfigurationError(
                f"WorkflowStep takes a workflow, not {workflow!r}.",
                suggestion="Put any other component into an AgentStep.",
            )
        for name, agent in workflow.members().items():
            self.add_agent(name, agent)
        for name, condition in workflow.conditions.items():
            self.add_condition(name, condition)
        for name, tool in workflow.functions.items():
            self.add_function(tool.function, name)
        return WorkflowStep(workflow, step.name or workflow.name)

    def _resolve_agent(self, step: AgentStep) -> AgentStep:
        agent = cast("object", step.agent)  # a caller may pass anything
        if isinstance(agent, Component):
            self.add_agent(agent.name, agent)
            agent = agent.name
        if not isinstance(agent, str):
            raise ConfigurationError(
                f"AgentStep takes an agent or its name, not {agent!r}."
            )
        schema = step.response_schema
        if schema is not None:
            schema = response_schema_of(schema)
        return replace(
            step, agent=agent, name=step.name or agent, response_schema=schema
        )

    def _resolve_function(self, step: FunctionStep) -> FunctionStep:
        name = step.function
        if not isinstance(name, str):
            name = self.add_function(name)
        return replace(step, function=name, name=step.name or name)

    def _resolve_condition(self, condition: ConditionLike) -> JsonMapping:
        if isinstance(condition, str):
            return {"name": condition}
        if isinstance(condition, Mapping):
            return dict(cast("JsonMapping", condition))
        name = getattr(condition, "__name__", "")
        if not callable(condition) or not name.isidentifier():
            raise ConfigurationError(
                f"A condition must be a named function, a name, or an object with a name, not {condition!r}.",
                suggestion="Write it as a `def` function; a blueprint refers to it by name.",
            )
        self.add_condition(name, condition)
        return {"name": name}


def steps_to_data(steps: Sequence[Step]) -> list[Blueprint]:
    """The blueprint data of resolved steps."""
    return list(map(_to_data, steps))


def _to_data(step: Step) -> Blueprint:
    data: Blueprint = {"type": STEP_TYPES[type(step)], "name": step.name}
    for field_ in fields(step):
        name = field_.name
        value = getattr(step, name)
        if value is None:
            continue
        if name in _SEQUENCES:
            value = steps_to_data(value)
        elif name == "branches":
            value = list(map(steps_to_data, value))
        elif name == "workflow":
            value = value.to_blueprint()
        if name not in _LEFT_OUT or value != _LEFT_OUT[name]:
            key = name.removesuffix("_")
            data[key] = value
    return data


def steps_from_data(
    entries: Sequence[Blueprint], make_workflow: Callable[[Blueprint], Workflow]
) -> tuple[Step, ...]:
    """The steps of valid blueprint data.

    Args:
        entries: The `steps` of a blueprint.
        make_workflow: Makes the workflow of a nested blueprint.
    """
    return tuple(_from_data(entry, make_workflow) for entry in entries)


def _from_data(
    entry: Blueprint, make_workflow: Callable[[Blueprint], Workflow]
) -> Step:
    values = dict(entry)
    step_class = _CLASSES[values.pop("type")]
    for key, name in _RENAMED.items():
        if key in values:
            values[name] = values.pop(key)
    for name in _SEQUENCES:
        if name in values:
            values[name] = steps_from_data(values[name], make_workflow)
    if "branches" in values:
        values["branches"] = [
            steps_from_data(branch, make_workflow)
            for branch in values["branches"]
        ]
    if "workflow" in values:
        values["workflow"] = make_workflow(values["workflow"])
    return step_class(**values)
