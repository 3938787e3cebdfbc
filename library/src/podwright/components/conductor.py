"""The conductor: a model that works through skill agents, with a plan if it is told to (spec §2.3)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from typing_extensions import Unpack

from podwright.components.base import Component, ModelComponent
from podwright.components.chat import ChatSession, initial_messages, run_chat
from podwright.components.members import entries_of, parse_team
from podwright.components.options import AgentOptions, parse_arguments
from podwright.errors import ToolArgumentsError
from podwright.events import Kind, PlanMade, PlanStep
from podwright.messages import Message, ToolSchema
from podwright.models import Model
from podwright.run import Run, Task
from podwright.tools import Tool
from podwright.validation_errors import to_problems

REVISE_PLAN = "revise_plan"
"""Name of the tool by which the model replaces its plan."""


class Conductor(ModelComponent):
    """A model whose tools are agents.

    Args:
        name: Its name.
        instructions: System instructions. `{name}` is filled from the named inputs of a run.
        model: "<provider>/<model_name>", or a model object, of the conductor itself.
        skills: The agents that it may give tasks to.
        planning: Whether it makes a plan first, which it may revise.
        max_loops: Most model calls of its own in one run, after planning.
        **options: Model settings such as `temperature`, a `description`, `verbose`; see `AgentOptions`.

    Raises:
        BlueprintValidationError: An argument has a wrong type or value.
    """

    kind: ClassVar[Kind] = "conductor"

    def __init__(
        self,
        name: str,
        instructions: str,
        model: str | Model,
        skills: Sequence[Component],
        planning: bool = False,
        max_loops: int = 10,
        **options: Unpack[AgentOptions],
    ) -> None:
        fields = {
            "name": name,
            "instructions": instructions,
            "skills": entries_of(skills, "skill"),
            "config": {"model": model, "max_loops": max_loops, "planning": planning},
        }
        super().__init__(parse_arguments("conductor", fields, options))
        self._skills = _by_tool_name(skills)

    @classmethod
    def from_blueprint(
        cls,
        blueprint: Mapping[str, Any],
        tools: Sequence[Callable[..., Any]] = [],
        validate: bool = True,
        *,
        agents: Mapping[str, Component] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Rebuild a conductor.

        Args:
            blueprint: What `to_blueprint` returned.
            tools: The functions behind the tools of its skill agents.
            validate: If false, unknown keys are dropped, and missing tools and tools that no longer fit are allowed.
            agents: Components for the skills that are only names.
            **kwargs: Values that override the blueprint's, such as `planning` or `model`.

        Raises:
            BlueprintValidationError: The blueprint is invalid; with all problems.
            ConfigurationError: A keyword is unknown.
        """
        parsed, members = parse_team("conductor", blueprint, tools, validate, agents, kwargs)
        self = cls.__new__(cls)
        ModelComponent.__init__(self, parsed)
        self._skills = _by_tool_name(members)
        return self

    @property
    def skills(self) -> Sequence[Component]:
        """The agents that it may give tasks to."""
        return list(self._skills.values())

    @property
    def tool_names(self) -> Sequence[str]:
        """The names by which its model calls its skills, and revises its plan."""
        return [*self._skills, REVISE_PLAN]

    @property
    def planning(self) -> bool:
        """Whether it makes a plan first."""
        return self.config.get("planning", False)

    def members(self) -> Mapping[str, Component]:
        """Its skills by name."""
        return {skill.name: skill for skill in self._skills.values()}

    async def perform(self, run: Run, task: Task) -> Any:
        """Plan if told to, then chat with the skills as tools."""
        progress = _PlanProgress()
        messages = initial_messages(self.instructions, task.input)
        tools: dict[str, Tool] = {name: _SkillTool(name, skill, progress) for name, skill in self._skills.items()}
        if self.planning:
            plan = _plan_model(tuple(self._skills))
            messages += await self._plan(run, messages, plan, progress)
            tools[REVISE_PLAN] = _RevisePlanTool(plan, progress)
        session = ChatSession(self.model, self.settings, self.max_loops, tools)
        return await run_chat(run, session, messages, task.response_model)

    async def _plan(
        self, run: Run, messages: list[Message], plan_model: type[BaseModel], progress: _PlanProgress
    ) -> list[Message]:
        skills = "\n".join(f"- {name}: {_purpose(skill)}" for name, skill in self._skills.items())
        request = Message(
            "user",
            "First make a plan: the steps in order, each with the skill that does it and its task.\n"
            f"The skills are:\n{skills}",
        )
        with run.step("plan", "plan", run.path):
            session = ChatSession(self.model, self.settings, self.max_loops)
            plan = await run_chat(run, session, [*messages, request], plan_model)
            progress.replace(run, plan)
        order = f"Carry out the plan, one skill call per step; call {REVISE_PLAN} to change it. Then give the answer."
        return [Message("assistant", f"The plan:\n{progress.text()}"), Message("user", order)]


@dataclass(slots=True)
class _PlanProgress:
    """The plan of one run, and which of its steps have begun."""

    revision: int = -1
    steps: list[PlanStep] = field(default_factory=list[PlanStep])
    begun: set[int] = field(default_factory=set[int])
    calls: int = 0

    def replace(self, run: Run, plan: BaseModel) -> None:
        """Replace the plan."""
        self.revision += 1
        self.steps = [PlanStep(step["skill"], step["task"]) for step in plan.model_dump()["steps"]]
        self.begun = set()
        run.emit(PlanMade(**run.stamp(), revision=self.revision, steps=tuple(self.steps)))

    def begin(self, skill: str) -> tuple[int, bool]:
        """The number of a skill call, and whether it is a step of the plan, which then has begun."""
        number, self.calls = self.calls, self.calls + 1
        for index, step in enumerate(self.steps):
            if step.skill == skill and index not in self.begun:
                self.begun.add(index)
                return number, True
        return number, False

    def text(self) -> str:
        """The plan as text."""
        return "\n".join(f"{number}. {step.skill}: {step.task}" for number, step in enumerate(self.steps, 1))


class _SkillTool:
    """A skill agent as a tool; each call is a nested run."""

    def __init__(self, name: str, skill: Component, progress: _PlanProgress) -> None:
        self.name = name
        self._skill = skill
        self._progress = progress
        parameters: dict[str, Any] = {
            "type": "object",
            "properties": {"task": {"type": "string", "description": "The task, with everything that it needs."}},
            "required": ["task"],
            "additionalProperties": False,
        }
        function: Any = {"name": name, "description": _purpose(skill), "parameters": parameters}
        self.schema: ToolSchema = {"type": "function", "function": function}

    async def call(self, run: Run, arguments: dict[str, Any]) -> Any:
        """Give the skill its task."""
        task = arguments.get("task")
        if not isinstance(task, str) or set(arguments) != {"task"}:
            raise ToolArgumentsError(f"Skill '{self.name}' takes one string, 'task', not {sorted(arguments)}.")
        number, planned = self._progress.begin(self.name)
        path = (*run.path, number)
        with run.step(self._skill.name, "plan_step" if planned else "skill_step", path):
            value = await run.child(self._skill, path).execute(self._skill, Task(task))
        return self._skill.text(value)


class _RevisePlanTool:
    """The tool by which the model replaces its plan."""

    name = REVISE_PLAN

    def __init__(self, plan: type[BaseModel], progress: _PlanProgress) -> None:
        self._plan = plan
        self._progress = progress
        function: Any = {
            "name": REVISE_PLAN,
            "description": "Replace the rest of the plan.",
            "parameters": plan.model_json_schema(),
        }
        self.schema: ToolSchema = {"type": "function", "function": function}

    async def call(self, run: Run, arguments: dict[str, Any]) -> Any:
        """Replace the plan."""
        try:
            plan = self._plan.model_validate(arguments)
        except ValidationError as error:
            problems = to_problems(error.errors(include_url=False), arguments)
            raise ToolArgumentsError(f"Invalid plan: {'; '.join(map(str, problems))}") from error
        self._progress.replace(run, plan)
        return f"The plan is now:\n{self._progress.text()}"


@lru_cache(maxsize=64)
def _plan_model(skills: tuple[str, ...]) -> type[BaseModel]:
    """The type of a plan over these skills; cached, because making a model class takes milliseconds."""
    closed = ConfigDict(extra="forbid")
    skill: Any = Literal[skills]  # pyright: ignore[reportInvalidTypeForm] - a type that is known at run time only
    step: Any = create_model("Step", __config__=closed, skill=skill, task=str)
    steps: Any = Annotated[list[step], Field(min_length=1, max_length=32)]
    return create_model("Plan", __config__=closed, steps=steps)


def _purpose(skill: Component) -> str:
    """What a skill is for, in one line."""
    instructions = skill.instructions if isinstance(skill, ModelComponent) else ""
    text = skill.description or instructions.strip() or f"The {skill.kind} '{skill.name}'."
    return text.splitlines()[0]


def _by_tool_name(skills: Sequence[Component]) -> dict[str, Component]:
    """Skills by the names that models call them by: letters, digits, `_` and `-`, at most 64."""
    names: dict[str, Component] = {}
    for skill in skills:
        base = name = re.sub(r"[^A-Za-z0-9_-]", "_", skill.name)[:60]
        number = 2
        while name in names or name == REVISE_PLAN:
            name, number = f"{base}_{number}", number + 1
        names[name] = skill
    return names
