"""The step that runs a nested workflow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Required

from pydantic import with_config
from typing_extensions import TypedDict, override

from podwright.data.json_data import JsonMapping, JsonObject, as_object
from podwright.errors import ConfigurationError
from podwright.messages.messages import CLOSED
from podwright.steps.base import (
    ANY_CHANGE,
    AnsweringAgent,
    Builder,
    Known,
    Rules,
    Step,
    answering_in,
)
from podwright.steps.blueprint_types import Described, Name
from podwright.steps.registry import StepsBlueprint

if TYPE_CHECKING:
    from podwright.blueprints.flowchart import Ends, Flowchart
    from podwright.estimates.need import Need
    from podwright.estimates.sizes import Sizes
    from podwright.estimates.walk import Walk
    from podwright.events import Outcome
    from podwright.workflows.frames import StepFrame
    from podwright.workflows.references import References
    from podwright.workflows.runner import StepRunner
    from podwright.workflows.template_names import NameCheck
    from podwright.workflows.workflow import Workflow


@with_config(CLOSED)
class WorkflowBlueprint(Described, total=False):
    """A workflow (spec §2.2)."""

    type: Literal["Workflow"]
    name: Required[Name]
    steps: Required[StepsBlueprint]


@with_config(CLOSED)
class WorkflowStepBlueprint(TypedDict, total=False):
    """Runs a nested workflow on the same context."""

    type: Required[Literal["workflow_step"]]
    name: Required[Name]
    workflow: Required[WorkflowBlueprint]


@dataclass(frozen=True, slots=True)
class WorkflowStep(Step):
    """Runs a nested workflow on the same context."""

    step_type: ClassVar[str] = "workflow_step"
    shape: ClassVar[Any] = WorkflowStepBlueprint
    own_keys: ClassVar[Sequence[str]] = ("workflow",)
    sequences: ClassVar[Sequence[str]] = ("/workflow/steps",)
    breaking: ClassVar[Rules] = (("/workflow(/.*)?", ANY_CHANGE),)

    workflow: Workflow
    name: str | None = None

    @override
    @classmethod
    def names_inside(
        cls, data: JsonMapping, sequence: str, known: Known, check: NameCheck
    ) -> Known:
        workflow = as_object(data.get("workflow"))
        return as_object(workflow.get("inputs"))

    @override
    @classmethod
    def draw(cls, data: JsonMapping, chart: Flowchart, ends: Ends) -> Ends:
        nested = data["workflow"]
        title = f"{data['name']}: workflow {nested['name']}"
        return chart.subgraph(title, nested["steps"], ends)

    @override
    def resolve(self, references: References) -> WorkflowStep:
        workflow = self.workflow
        # only workflows have both
        if not hasattr(workflow, "steps") or not hasattr(
            workflow, "conditions"
        ):
            raise ConfigurationError(
                f"WorkflowStep takes a workflow, not {workflow!r}.",
                suggestion="Put any other component into an AgentStep.",
            )
        for name, agent in workflow.members().items():
            references.add_agent(name, agent)
        for name, condition in workflow.conditions.items():
            references.add_condition(name, condition)
        for name, tool in workflow.functions.items():
            references.add_function(tool, name)
        for tool in workflow.mcp_functions:
            references.add_mcp_function(tool)
        return WorkflowStep(workflow, self.name or workflow.name)

    @override
    def to_data(self) -> JsonObject:
        return {
            "type": self.step_type,
            "name": self.name,
            "workflow": self.workflow.to_blueprint(),
        }

    @override
    @classmethod
    def from_data(cls, data: JsonMapping, builder: Builder) -> WorkflowStep:
        return cls(builder.workflow(data["workflow"]), data["name"])

    @override
    def inner(self) -> Iterator[Sequence[Step]]:
        yield self.workflow.steps

    @override
    def answering_agents(self) -> Iterator[AnsweringAgent]:
        yield from answering_in(self.workflow.steps)

    @override
    def need(self, walk: Walk, sizes: Sizes) -> Need:
        return walk.run_workflow(self.workflow, sizes)

    @override
    async def run(self, runner: StepRunner, frame: StepFrame) -> Outcome:
        await frame.scope.complete(self.workflow.inputs)
        await runner.run_workflow(self.workflow, frame)
        return "ok"
