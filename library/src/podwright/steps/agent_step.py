"""The step that runs an agent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Required

from pydantic import with_config
from typing_extensions import TypedDict, override

from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_object,
    json_pointer,
    to_text,
)
from podwright.data.media import parts_with_media
from podwright.data.names import INPUT, find_name
from podwright.data.text import did_you_mean
from podwright.errors import Problem
from podwright.messages.messages import CLOSED
from podwright.messages.templates import fill_data
from podwright.messages.usage import limits_of_blueprint
from podwright.schemas.response_schema import response_schema_of
from podwright.steps.base import (
    ANY_CHANGE,
    AnsweringAgent,
    Known,
    Rules,
    Step,
    Write,
    output_name,
)
from podwright.steps.blueprint_types import Limits, Name, Schema

if TYPE_CHECKING:
    from podwright.blueprints.flowchart import Ends, Flowchart
    from podwright.estimates.need import Need
    from podwright.estimates.sizes import Size, Sizes
    from podwright.estimates.walk import Walk
    from podwright.events import Outcome
    from podwright.run.component import Component
    from podwright.workflows.frames import Scope, StepFrame
    from podwright.workflows.references import References
    from podwright.workflows.runner import StepRunner
    from podwright.workflows.template_names import NameCheck

_TEXT: JsonMapping = {"type": "string"}


@with_config(CLOSED)
class AgentStepBlueprint(TypedDict, total=False):
    """Runs an agent (spec §2.2)."""

    type: Required[Literal["agent_step"]]
    agent: Required[Name]
    name: Required[Name]
    input: str | JsonObject
    """The agent's input: a template, or named inputs whose texts are templates. By default the whole context."""
    output: Name
    response_schema: Schema
    """The schema that the answer must have, instead of the agent's own."""
    conversation: bool
    """Whether the agent is given the earlier turns that the workflow is given."""
    limits: Limits


@dataclass(frozen=True, slots=True)
class AgentStep(Step):
    """Runs an agent, and writes its answer to the context."""

    step_type: ClassVar[str] = "agent_step"
    shape: ClassVar[Any] = AgentStepBlueprint
    own_keys: ClassVar[Sequence[str]] = ("agent",)
    agent_keys: ClassVar[Sequence[str]] = ("agent",)
    template_keys: ClassVar[Sequence[str]] = ("input",)
    schemas: ClassVar[Sequence[str]] = ("/response_schema",)
    text_key: ClassVar[str] = "input"
    # an object there is the named inputs
    text_may_be_file: ClassVar[bool] = False
    left_out: ClassVar[JsonMapping] = {"conversation": False}
    breaking: ClassVar[Rules] = (
        ("/input(/.*)?", ()),
        ("/(agent|output)(/.*)?", ANY_CHANGE),
    )

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
        return output_name(self.output, self.agent)

    @override
    def output_names(self) -> Iterator[str]:
        yield self.stored_as

    @override
    def answering_agents(self) -> Iterator[AnsweringAgent]:
        # data may be corrected
        if self.response_schema is None:
            yield AnsweringAgent(str(self.agent))

    @override
    @classmethod
    def name_called(cls, data: JsonMapping) -> object:
        return data.get("agent")

    @override
    @classmethod
    def writes(
        cls,
        data: JsonMapping,
        pointer: str,
        inner: Mapping[str, Sequence[Write]],
    ) -> Iterator[Write]:
        name = output_name(data.get("output"), data.get("agent"))
        yield Write(name, data, pointer)

    @override
    @classmethod
    def schema_of_value(
        cls, data: JsonMapping, check: NameCheck
    ) -> JsonMapping | None:
        own = data.get("response_schema")
        if own is not None:
            return as_object(own)
        agent = check.agents.get(str(data.get("agent")), {})
        if "instructions" not in agent:
            return None
        config = as_object(agent.get("config"))
        return config.get("response_schema", _TEXT)

    @override
    @classmethod
    def check_names(
        cls, data: JsonMapping, pointer: str, known: Known, check: NameCheck
    ) -> None:
        """Check the inputs that the agent is given, and the instructions that they fill."""
        name = str(data.get("agent"))
        agent = check.agents.get(name, {})
        declared = as_object(agent.get("inputs"))
        named = as_object(data.get("input"))
        for key in named:
            is_known = key == INPUT or find_name(key, declared) is not None
            if declared and not is_known:
                problem = Problem(
                    f"{pointer}/input{json_pointer(key)}",
                    detail=f"The agent '{name}' has no input '{key}'.",
                    suggestion=did_you_mean(key, declared),
                )
                check.findings.problems.append(problem)
        check.inside(agent).template(
            agent.get("instructions", ""),
            f"{pointer}/agent",
            {**known, **declared, **dict.fromkeys(named)},
            place=f" in the instructions of '{name}'",
        )

    @override
    @classmethod
    def draw(cls, data: JsonMapping, chart: Flowchart, ends: Ends) -> Ends:
        agent = f"agent {data['agent']}"
        node = chart.node(data["name"], second_line=agent)
        return chart.join(ends, node)

    @override
    def resolve_fields(self, references: References) -> JsonObject:
        agent = references.name_of_agent(self.agent)
        schema = self.response_schema
        if schema is not None:
            schema = response_schema_of(schema)
        return {
            "agent": agent,
            "name": self.name or agent,
            "response_schema": schema,
        }

    @override
    def need(self, walk: Walk, sizes: Sizes) -> Need:
        agent = walk.agent(self.agent)
        given = walk.given(
            agent,
            self._size_for(agent, walk, sizes),
            sizes.values,
            earlier=sizes.earlier if self.conversation else None,
            response_model=self.response_schema,
        )
        limits = limits_of_blueprint(self.limits)
        forecast = walk.run(agent, given, [limits] if limits else ())
        sizes.write(self.stored_as, forecast.answer)
        return forecast.need

    def _size_for(
        self, agent: Component, walk: Walk, sizes: Sizes
    ) -> Size | Mapping[str, Size]:
        """Return the sizes of `_input_for`."""
        if self.input is None:
            shown = sizes.visible()
            if not agent.inputs:
                return shown
            taken = (INPUT, *agent.inputs.schemas)
            return {name: shown[name] for name in taken if name in shown}
        if isinstance(self.input, str):
            return walk.input(self.input, sizes.values)
        return {
            name: walk.data(value, sizes.values)
            for name, value in self.input.items()
        }

    @override
    async def run(self, runner: StepRunner, frame: StepFrame) -> Outcome:
        agent = runner.agent(str(self.agent), self.title)
        answer = await runner.run_agent(
            agent,
            self._input_for(agent, runner, frame.scope),
            frame,
            response_model=self.response_schema,
            with_messages=self.conversation,
            limits=self.limits,
        )
        frame.scope.write_answer(self.stored_as, answer)
        return "ok"

    def _input_for(
        self, agent: Component, runner: StepRunner, scope: Scope
    ) -> Any:
        """Return the input of the agent: its templates filled, or the context as far as the agent takes it."""
        if self.input is None:
            shown = runner.visible(scope)
            if not agent.inputs:
                return shown
            taken = (INPUT, *agent.inputs.schemas)
            return {name: shown[name] for name in taken if name in shown}
        where = f"Step '{self.title}'"
        if not isinstance(self.input, str):
            data: Any = fill_data(dict(self.input), scope.values, where)
        else:
            value = fill_data(self.input, scope.values, where)
            data = parts_with_media(value) or to_text(value)
        runner.count_text(len(to_text(data)))
        return data
