"""The shapes of blueprints, one typed dictionary each (spec §2), and the JSON Schema made from them.

A blueprint is JSON data, so its type is a dictionary: what a file says is what a component holds, and an
export cannot lose or add a key. `type`, `version` and `description` are Podwright's additions; each is optional.
"""

from __future__ import annotations

import functools
from typing import Annotated, Any, Literal, NotRequired, Required

from annotated_types import Ge, Le, MaxLen, MinLen
from pydantic import ConfigDict, Field, TypeAdapter
from pydantic.types import StringConstraints
from typing_extensions import TypedDict

from podwright.events import Kind
from podwright.messages import ModelSettings, ToolFunction, ToolSchema

VERSION = "1"
"""The schema version that this release writes; an absent `version` means this one."""

_CLOSED = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

Name = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f{}/]+$", max_length=100)]
"""A name for people, templates and metrics: no control characters, braces or slashes."""
Text = Annotated[str, MinLen(0)]
"""Any Unicode text. The bound makes pydantic look into it, and refuse half a surrogate pair."""
ModelName = Annotated[str, StringConstraints(pattern=r"^[^\s/]+/\S+$", max_length=200)]
"""A model as "<provider>/<model_name>"."""
MaxLoops = Annotated[int, Ge(1), Le(1000)]


class AgentConfig(ModelSettings, total=False):
    """How an agent runs."""

    model: Required[ModelName]
    max_loops: MaxLoops


class MemberConfig(ModelSettings, total=False):
    """How an agent inside a conductor or pipeline runs; without `model`, on the model of the whole."""

    model: ModelName
    max_loops: MaxLoops


class TeamConfig(ModelSettings, total=False):
    """How a conductor runs."""

    model: Required[ModelName]
    max_loops: MaxLoops
    planning: bool


class LineConfig(TypedDict, total=False):
    """How a pipeline runs."""

    model: ModelName


class ToolEntry(TypedDict):
    """A tool: its schema only, never its code (spec §2.1)."""

    name: Name
    schema: ToolSchema


class _Described(TypedDict, total=False):
    version: str
    description: Text


class AgentBlueprint(_Described, total=False):
    """An agent (spec §2.1)."""

    type: Literal["Agent"]
    name: Required[Name]
    instructions: Required[Text]
    config: Required[AgentConfig]
    tools: list[ToolEntry]


class MemberBlueprint(TypedDict, total=False):
    """An agent inside a conductor or a pipeline (spec §§2.3, 2.4).

    With nothing but `type` and `name` it stands for the agent of that name that the caller supplies.
    """

    type: Required[Literal["Agent"]]
    name: Required[Name]
    description: Text
    version: str
    instructions: Text
    config: MemberConfig
    tools: list[ToolEntry]


class ConductorBlueprint(_Described, total=False):
    """A conductor (spec §2.3)."""

    type: Required[Literal["Conductor"]]
    name: Required[Name]
    instructions: Required[Text]
    skills: Required[Annotated[list[MemberBlueprint], MinLen(1), MaxLen(64)]]
    config: Required[TeamConfig]


class PipelineBlueprint(_Described, total=False):
    """A pipeline (spec §2.4)."""

    type: Required[Literal["Pipeline"]]
    name: Required[Name]
    steps: Required[Annotated[list[MemberBlueprint], MinLen(1), MaxLen(64)]]
    config: LineConfig


class ConditionRef(TypedDict, total=False):
    """A condition by name: the caller's callable, or a built-in one with JSON arguments."""

    name: Required[Annotated[str, MinLen(1)]]
    args: dict[str, Any]


class AgentStepBlueprint(TypedDict, total=False):
    """Runs an agent (spec §2.2)."""

    type: Required[Literal["agent_step"]]
    agent: Required[Name]
    name: Required[Name]
    input: str
    output: Name


ConditionStepBlueprint = TypedDict(
    "ConditionStepBlueprint",
    {
        "type": Literal["condition_step"],
        "name": Name,
        "condition": ConditionRef,
        "then": "list[StepBlueprint]",
        "else": NotRequired["list[StepBlueprint]"],
    },
)
"""Goes one of two ways."""


class ParallelStepBlueprint(TypedDict):
    """Runs several sequences at once; the first failure cancels the others."""

    type: Literal["parallel_step"]
    name: Name
    branches: Annotated[list[Steps], MinLen(1), MaxLen(64)]


class LoopStepBlueprint(TypedDict):
    """Repeats a sequence until a condition holds, `max_iterations` times at most."""

    type: Literal["loop_step"]
    name: Name
    steps: Steps
    until: ConditionRef
    max_iterations: Annotated[int, Ge(1), Le(1000)]


MapStepBlueprint = TypedDict(
    "MapStepBlueprint",
    {
        "type": Literal["map_step"],
        "name": Name,
        "over": Name,
        "as": Name,
        "steps": "Steps",
        "max_concurrency": NotRequired[Annotated[int, Ge(1), Le(64)]],
    },
)
"""Runs a sequence for each item of a list in the context."""


class WorkflowStepBlueprint(TypedDict, total=False):
    """Runs a nested workflow on the same context."""

    type: Required[Literal["workflow_step"]]
    name: Required[Name]
    workflow: Required[WorkflowBlueprint]


class ApprovalStepBlueprint(TypedDict):
    """Pauses the workflow until a person approves."""

    type: Literal["approval_step"]
    name: Name
    message: str


StepBlueprint = Annotated[
    AgentStepBlueprint
    | ConditionStepBlueprint
    | ParallelStepBlueprint
    | LoopStepBlueprint
    | MapStepBlueprint
    | WorkflowStepBlueprint
    | ApprovalStepBlueprint,
    Field(discriminator="type"),
]
Steps = Annotated[list[StepBlueprint], MinLen(1)]


class WorkflowBlueprint(_Described, total=False):
    """A workflow (spec §2.2)."""

    type: Literal["Workflow"]
    name: Required[Name]
    steps: Required[Steps]


AnyBlueprint = AgentBlueprint | WorkflowBlueprint | ConductorBlueprint | PipelineBlueprint

SHAPES: dict[Kind, type] = {
    "agent": AgentBlueprint,
    "workflow": WorkflowBlueprint,
    "conductor": ConductorBlueprint,
    "pipeline": PipelineBlueprint,
}
STEP_SHAPES: dict[str, Any] = {
    "agent_step": AgentStepBlueprint,
    "condition_step": ConditionStepBlueprint,
    "parallel_step": ParallelStepBlueprint,
    "loop_step": LoopStepBlueprint,
    "map_step": MapStepBlueprint,
    "workflow_step": WorkflowStepBlueprint,
    "approval_step": ApprovalStepBlueprint,
}
PLACES: dict[str, Any] = {
    "tools": ToolEntry,
    "schema": ToolSchema,
    "function": ToolFunction,
    "condition": ConditionRef,
    "until": ConditionRef,
    "skills": MemberBlueprint,
    "workflow": WorkflowBlueprint,
}
"""What stands under a key, for suggestions."""

for _shape in (
    *SHAPES.values(),
    *STEP_SHAPES.values(),
    *PLACES.values(),
    AgentConfig,
    MemberConfig,
    TeamConfig,
    LineConfig,
):
    setattr(_shape, "__pydantic_config__", _CLOSED)  # noqa: B010 - a typed dictionary may not declare it in its body


@functools.cache
def adapter(kind: Kind) -> TypeAdapter[Any]:
    """The checker of one kind's blueprints; built on first use, for it takes some milliseconds."""
    return TypeAdapter(SHAPES[kind])


def json_schema() -> dict[str, dict[str, Any]]:
    """The published JSON Schema (2020-12) of each kind: `{"agent": {…}, "workflow": {…}, …}`."""
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return {kind: {**dialect, **adapter(kind).json_schema()} for kind in SHAPES}
