"""The conductor: a model that works through skill agents and its own tools, with an optional plan (spec §2.3)."""

from __future__ import annotations

from collections.abc import (
    Callable,
    Collection,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, NotRequired, cast

from pydantic import Field, TypeAdapter, with_config
from typing_extensions import TypedDict, Unpack

from podwright.blueprints.inputs import DeclaredInputs
from podwright.chats.chat import Chat
from podwright.chats.chat_estimate import ChatEstimate, tool_turn
from podwright.chats.chat_messages import filled_instructions, inputs_of
from podwright.chats.hooks import before_work
from podwright.components.members import TeamComponent, entries_of
from podwright.data.json_data import JsonMapping, JsonObject, to_text
from podwright.data.names import INPUT
from podwright.data.text import did_you_mean, short_repr
from podwright.data.tool_names import REVISE_PLAN, skill_tool_names
from podwright.errors import ConfigurationError, ContextError, InputsError
from podwright.estimates.sizes import Earlier, Size, known_in
from podwright.estimates.walk import Forecast, Given, Walk
from podwright.events import PlanMade, PlanStep
from podwright.kinds import Kind
from podwright.messages.messages import CLOSED, Message, ToolSchema
from podwright.models import Model
from podwright.models.fallback import mark_provider
from podwright.models.offline.offline import MESSAGE_TOKENS
from podwright.run.component import DEFAULT_MAX_LOOPS, Component, ModelComponent
from podwright.run.options import AgentOptions, parse_arguments
from podwright.run.run import Run, Task
from podwright.tools.entries import HookFunctions, to_hooks, tools_by_name
from podwright.tools.function_tool import FunctionTool
from podwright.tools.tool import Tool, prepare_tools
from podwright.workflows.template_names import name_problems


class Conductor(TeamComponent, ModelComponent):
    """A model whose tools are agents.

    Args:
        name: Its name.
        instructions: System instructions. `{name}` is filled from the named inputs of a run.
        model: `<provider>/<model_name>`, or a model object, of the conductor itself.
        skills: The agents that it may give tasks to.
        planning: Whether it makes a plan first, which it may revise.
        max_loops: Most model calls of its own in one run, after planning.
        tools: Functions that it may call itself, as an agent does.
        conversation: The names of skills that are given the conversation before their task.
        before: Functions that are called before its work, with named values, which they may change or refuse.
        after: Functions that are called with its answer, which they may change, refuse or have the model give again.
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
        max_loops: int = DEFAULT_MAX_LOOPS,
        *,
        tools: Sequence[Callable[..., Any]] = (),
        conversation: Collection[str] = (),
        before: HookFunctions = (),
        after: HookFunctions = (),
        **options: Unpack[AgentOptions],
    ) -> None:
        own_tools = tools_by_name(tools)
        hooks = to_hooks(before, after, own_tools.values())
        fields: JsonObject = {
            "name": name,
            "instructions": instructions,
            "skills": _skill_entries(skills, conversation),
            "config": {
                "model": model,
                "max_loops": max_loops,
                "planning": planning,
            },
            **hooks.names,
        }
        if own_tools:
            fields["tools"] = [tool.entry() for tool in own_tools.values()]
        parsed = parse_arguments("conductor", fields, options)
        super().__init__(parsed, name_problems(parsed))
        self._set_members(skills)
        self._set_tools(own_tools)
        self._hook_functions = hooks.functions

    def _set_members(self, members: Sequence[Component]) -> None:
        self._skills = _by_tool_name(members)

    def _set_tools(self, tools: Mapping[str, Tool]) -> None:
        self._tools = tools

    @property
    def _in_conversation(self) -> Collection[str]:
        """Return the names of the skills that are given the conversation."""
        entries = self._blueprint["skills"]
        return {each["name"] for each in entries if each.get("conversation")}

    @property
    def skills(self) -> Sequence[Component]:
        """The agents that it may give tasks to."""
        return list(self._skills.values())

    @property
    def tool_names(self) -> Sequence[str]:
        """The names by which its model calls its skills and its own tools, and revises its plan."""
        return [*self._skills, REVISE_PLAN, *self.own_tools()]

    def own_tools(self) -> Mapping[str, Tool]:
        """Its tools, and the functions before and after its work, by name; its skills are members."""
        return {**self._hook_functions, **self._tools}

    def _put_tool(self, name: str, tool: Tool) -> None:
        super()._put_tool(name, tool)
        if name in self._tools:
            self._tools = {**self._tools, name: tool}

    @property
    def planning(self) -> bool:
        """Whether it makes a plan first."""
        return self.config.get("planning", False)

    def members(self) -> Mapping[str, Component]:
        """Its skills by name."""
        return {skill.name: skill for skill in self._skills.values()}

    def need(self, walk: Walk, given: Given) -> Forecast:
        """Return what its chat needs, and the runs of its skills: usually one of each."""
        certain = given.every_value
        before, given = before_work(walk, self, given)
        # a skill's tool has no parameters for the inputs that functions have given values
        values = walk.choose(given.every_value, certain, certain)
        purposes = {
            name: _likely_purpose(name, skill, walk, values)
            for name, skill in self._skills.items()
        }
        tools = [
            _skill_tool(
                skill,
                _not_called,
                name=name,
                description=purposes[name],
                values=values,
            )
            for name, skill in self._skills.items()
        ]
        plan_type = _plan_type(tuple(self._skills))
        if self.planning:
            tools.append(_revision_tool(plan_type, _not_called))
        tools += self._tools.values()
        chat = ChatEstimate(walk, self, given, [tool.schema for tool in tools])
        if self.planning:
            question = Size.of(_plan_request(purposes)).tokens
            plan = chat.ask(question, plan_type)
            order = Size.of(f"The plan:\n{_PLAN_ORDER}").tokens
            chat.add_aside(plan + order + MESSAGE_TOKENS)
        turn = chat.turn_of_runs(
            [
                walk.run(
                    skill, self._given_to(skill, chat, walk, given, values)
                )
                for skill in self._skills.values()
            ],
            tool_turn(walk, list(self._tools.values())),
        )
        answer = chat.answer(turn, usual_turns=len(self._skills))
        return Forecast(before + chat.need, answer)

    def _given_to(
        self,
        skill: Component,
        chat: ChatEstimate,
        walk: Walk,
        given: Given,
        certain: Mapping[str, Size],
    ) -> Given:
        """Return what a skill is given: a task, and perhaps inputs, that the model writes.

        Args:
            skill: The skill.
            chat: The chat of the conductor.
            walk: The walk.
            given: What the conductor is given, after the functions before its work.
            certain: The values of which the model writes none.
        """
        task = chat.written
        values = given.every_value
        inputs = {
            name: max(task, values.get(name, task), key=_bytes)
            for name in skill.inputs.required
            if name not in certain
        }
        earlier = Earlier()
        if skill.name in self._in_conversation:
            turn = given.turn_tokens(self.instructions)
            earlier = replace(
                given.earlier,
                further_tokens=given.earlier.further_tokens + turn,
                may_be_handed=given.earlier.may_be_handed
                or given.handed is not None,
            )
        return walk.given(
            skill,
            {INPUT: task, **inputs} if inputs else task,
            values,
            earlier=earlier,
        )

    async def perform(self, run: Run, task: Task) -> Any:
        """Make a plan if `planning` is set, then chat with the skills as tools."""
        chat = await Chat.begin(run, self, task)
        values = inputs_of(chat.task)
        # what came before, of unknown origin from this model as in a fallback, and what the user says now
        provider = self.model.name.partition("/")[0]
        talk = tuple(
            mark_provider(message, provider)
            for message in (*chat.messages.earlier, *chat.messages.turn)
        )
        state = _PlanState(run, values, talk, self._in_conversation)
        tools: dict[str, Tool] = {}
        for name, skill in self._skills.items():
            tools[name] = _skill_tool(
                skill,
                partial(state.call_skill, name, skill),
                name=name,
                description=_purpose(name, skill, values),
                values=values,
            )
        if self.planning:
            plan_type = _plan_type(tuple(self._skills))
            await self._make_plan(chat, plan_type, state)
            tools[REVISE_PLAN] = _revision_tool(plan_type, state.revise)
        tools.update(await prepare_tools(self._tools))
        return await chat.answer(tools)

    async def _make_plan(
        self, chat: Chat, plan_type: Any, state: _PlanState
    ) -> None:
        run = state.run
        purposes = {
            name: _purpose(name, skill, state.values)
            for name, skill in self._skills.items()
        }
        with run.step("plan", "plan", run.path):
            state.replace(await chat.ask(_plan_request(purposes), plan_type))
        chat.messages.add_asides(
            Message("assistant", f"The plan:\n{state.text()}"), _PLAN_ORDER
        )


def _plan_request(purposes: Mapping[str, str]) -> str:
    """Return the request for a plan, given what each skill is for."""
    skills = "\n".join(
        f"- {name}: {purpose}" for name, purpose in purposes.items()
    )
    return (
        "First make a plan: the steps in order, each with the skill that does it and its task.\n"
        f"The skills are:\n{skills}"
    )


_PLAN_ORDER = f"Carry out the plan, one skill call per step; call {REVISE_PLAN} to change it. Then give the answer."


@dataclass(slots=True)
class _PlanState:
    """The plan of one run, which of its steps have begun, and the functions behind the model's tools."""

    run: Run
    values: JsonMapping
    """The named inputs of the run, which the instructions of skills may use."""
    conversation: tuple[Message, ...]
    """The conversation up to the input of the run."""
    in_conversation: Collection[str]
    """The names of the skills that are given it."""
    revision: int = -1
    steps: list[PlanStep] = field(default_factory=list[PlanStep])
    begun: set[int] = field(default_factory=set[int])
    calls: int = 0

    def replace(self, plan: JsonMapping) -> None:
        """Replace the plan, and emit the new one."""
        self.revision += 1
        self.steps = [PlanStep(**step) for step in plan["steps"]]
        self.begun = set()
        event = PlanMade(
            **self.run.stamp(),
            revision=self.revision,
            steps=tuple(self.steps),
        )
        self.run.emit(event)

    def text(self) -> str:
        """The plan as text."""
        return "\n".join(
            f"{number}. {step.skill}: {step.task}"
            for number, step in enumerate(self.steps, 1)
        )

    async def revise(self, steps: list[dict[str, str]]) -> str:
        """Replace the plan for the model."""
        self.replace({"steps": steps})
        return f"The plan is now:\n{self.text()}"

    async def call_skill(
        self,
        name: str,
        skill: Component,
        task: Any,
        inputs: JsonMapping = MappingProxyType({}),
    ) -> str:
        """Give a skill a task and values for its inputs, as a nested run."""
        path = (*self.run.path, self.calls)
        self.calls += 1
        is_planned = self._begin_step(name)
        step_type = "plan_step" if is_planned else "skill_step"
        with self.run.step(skill.name, step_type, path):
            run = self.run.child(skill, path)
            data = {INPUT: to_text(task), **inputs} if inputs else task
            nested_task = await skill.nested_task(data, self.values)
            if skill.name in self.in_conversation:
                nested_task = replace(nested_task, messages=self.conversation)
            value = await run.execute(nested_task)
        return to_text(skill.output(value, run.data))

    def _begin_step(self, skill: str) -> bool:
        """Mark the first step of a skill that has not begun; false if the plan has no such step."""
        for index, step in enumerate(self.steps):
            if step.skill == skill and index not in self.begun:
                self.begun.add(index)
                return True
        return False


_LONGEST_PURPOSE = 100_000
"""Characters that stand for the purpose of a skill in an estimate."""
TASK = "task"
"""The argument of a skill's tool that has the task; a skill that declares an input of this name gets it there, too."""


@with_config(CLOSED)
class _SkillArguments(TypedDict):
    task: Annotated[
        str, Field(description="The task, with everything that it needs.")
    ]


_SKILL_ARGUMENTS: TypeAdapter[Any] = TypeAdapter(_SkillArguments)


class _RunTool(FunctionTool):
    """A tool whose calls are nested runs, or replace the plan."""

    is_performed_again = True


class _SkillTool(_RunTool):
    """The tool of a skill that declares inputs, whose values come from the run, and from the model with the task.

    Args:
        function: Runs the skill.
        schema: What the model is shown.
        arguments: The types of the task and the inputs.
        inputs: The inputs that the skill declares.
        known: Those that the run has values for.
    """

    validates_in_thread = True

    def __init__(
        self,
        function: Callable[..., Any],
        schema: ToolSchema,
        arguments: TypeAdapter[Any],
        *,
        inputs: DeclaredInputs,
        known: JsonMapping,
    ) -> None:
        super().__init__(function, schema, arguments)
        self._inputs = inputs
        self._known = known

    def validate(self, arguments: JsonObject) -> JsonObject:
        """Return the task and the inputs.

        Raises:
            ToolArgumentsError: An argument is missing, unknown or has a wrong value.
        """
        values = super().validate(arguments)
        task = values[TASK]
        if TASK not in self._inputs.schemas or TASK in self._known:
            del values[TASK]
        given = self._inputs.convert_texts(values)
        try:
            self._inputs.complete({**self._known, **given})
        except InputsError as error:
            raise self.arguments_error(error.problems) from error
        return {TASK: task, "inputs": given}


def _skill_tool(
    skill: Component,
    function: Callable[..., Any],
    *,
    name: str,
    description: str,
    values: JsonMapping,
) -> Tool:
    """Make the tool of a skill. Its parameters are a task, and the declared inputs that the run has no values for.

    Args:
        skill: The skill.
        function: Runs it.
        name: The name by which the model calls it.
        description: What it is for.
        values: The named inputs of the run.
    """
    if not skill.inputs:
        return _tool(
            name,
            description=description,
            arguments=_SKILL_ARGUMENTS,
            function=function,
        )
    parameters = skill.inputs.parameters(known={INPUT, *values})
    arguments = _arguments_with(tuple(parameters["properties"]))
    task = _json_schema(_SKILL_ARGUMENTS)["properties"]
    parameters["properties"] = {**task, **parameters["properties"]}
    required = [name for name in parameters["required"] if name != TASK]
    parameters["required"] = [TASK, *required]
    return _SkillTool(
        function,
        _schema(name, description, parameters),
        arguments,
        inputs=skill.inputs,
        known=skill.inputs.select(values),
    )


def _revision_tool(plan_type: Any, function: Callable[..., Any]) -> Tool:
    """Make the tool that replaces the plan."""
    return _tool(
        REVISE_PLAN,
        description="Replace the rest of the plan.",
        arguments=_adapter(plan_type),
        function=function,
    )


def _tool(
    name: str,
    *,
    description: str,
    arguments: TypeAdapter[Any],
    function: Callable[..., Any],
) -> Tool:
    schema = _schema(name, description, _json_schema(arguments))
    return _RunTool(function, schema, arguments)


def _schema(name: str, description: str, parameters: JsonObject) -> ToolSchema:
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": parameters,
        },
    }


_json_schema = lru_cache(maxsize=64)(TypeAdapter[Any].json_schema)
_adapter = lru_cache(maxsize=64)(TypeAdapter[Any])


@lru_cache(maxsize=64)
def _arguments_with(inputs: tuple[str, ...]) -> TypeAdapter[Any]:
    """Return the type of the arguments of a skill with inputs, whose values their own schemas check."""
    typed_dict: Any = TypedDict
    fields: JsonObject = {TASK: str, **dict.fromkeys(inputs, NotRequired[Any])}
    if TASK in inputs:
        fields[TASK] = Any
    shape = typed_dict("Arguments", fields)
    return TypeAdapter(with_config(CLOSED)(shape))


@lru_cache(maxsize=64)
def _plan_type(skills: tuple[str, ...]) -> Any:
    """The type of a plan over these skills; cached, because making its schema takes milliseconds."""
    typed_dict: Any = TypedDict  # its fields are known at run time only
    step = with_config(CLOSED)(
        typed_dict("Step", {"skill": Literal[skills], "task": str})
    )
    return with_config(CLOSED)(
        typed_dict(
            "Plan",
            {
                "steps": Annotated[
                    list[step], Field(min_length=1, max_length=32)
                ]
            },
        )
    )


def _purpose(name: str, skill: Component, values: JsonMapping) -> str:
    """What a skill is for, in one line; with its own name if the model calls it by another one.

    Raises:
        ContextError: Its instructions use a name that has no value in this run.
    """
    instructions = filled_instructions(skill, values)
    return _purpose_line(name, skill, skill.description or instructions.strip())


def _purpose_line(name: str, skill: Component, text: str) -> str:
    if not text:
        text = f"The {skill.kind} '{skill.name}'."
    line = text.splitlines()[0]
    if name == skill.name:
        return line
    return f"{skill.name}: {line}"


def _likely_purpose(
    name: str, skill: Component, walk: Walk, values: Mapping[str, Size]
) -> str:
    """Return what a skill is for, or a text as long as that if not all is known that it says."""
    try:
        return _purpose(name, skill, known_in(values))
    except ContextError:
        instructions = cast("ModelComponent", skill).instructions.strip()
        size = walk.text(instructions.splitlines()[0], values).bytes
        text = skill.description or "x" * min(size, _LONGEST_PURPOSE)
        return _purpose_line(name, skill, text)


def _bytes(size: Size) -> int:
    return size.bytes


def _not_called(**arguments: Any) -> None:
    """Stand for the function of a tool whose schema is all that is asked of it."""


def _skill_entries(
    skills: Sequence[Component], conversation: Collection[str]
) -> list[JsonObject]:
    """Return the entries of skills in a blueprint.

    Raises:
        ConfigurationError: A skill is no component, or a name of `conversation` is that of no skill.
    """
    entries = entries_of(skills, "skill")
    names = [entry["name"] for entry in entries]
    for name in conversation:
        if name not in names:
            raise ConfigurationError(
                f"'conversation' names {short_repr(name)}, which is no skill.",
                suggestion=did_you_mean(name, names),
            )
    return [
        {**entry, "conversation": True}
        if entry["name"] in conversation
        else entry
        for entry in entries
    ]


def _by_tool_name(skills: Sequence[Component]) -> dict[str, Component]:
    """Skills, in their order, by the names that models call them by."""
    names = skill_tool_names([skill.name for skill in skills])
    return dict(zip(names, skills, strict=True))
