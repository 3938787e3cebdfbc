"""The shapes of blueprints, one typed dictionary each (spec §2), and their JSON Schema.

A blueprint stays JSON data: a component holds exactly what a file says, so an export cannot lose or add a key. `type`,
`version`, `description` and `metadata`, notes of its authors, are additions to the specification; each is optional.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NotRequired, Required

from annotated_types import Ge, Le, MaxLen, MinLen
from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, with_config
from pydantic.types import StringConstraints
from typing_extensions import TypedDict

from podwright.events import Kind
from podwright.json_data import JsonMapping, JsonObject
from podwright.messages import (
    CLOSED,
    HistorySettings,
    ModelSettings,
    ToolFunction,
    ToolSchema,
)
from podwright.text import short_repr
from podwright.validation_errors import PATTERNS

VERSION = "1"
"""The schema version that this release writes; a blueprint without `version` has this one."""

VERSIONS = ("0", VERSION)
"""The schema versions that this release reads."""

_NAME = r"^[^\x00-\x1f\x7f{}/]+$"
_MODEL = r"^[^\s/]+/\S+$"
TOOL_NAME = re.compile(r"^[a-zA-Z0-9_-]{1,64}$")
"""The names of tools that OpenAI, Anthropic and most other providers take."""
PATTERNS[_NAME] = "a name without control characters, braces and slashes"
PATTERNS[_MODEL] = (
    "a model named '<provider>/<model_name>', for example 'openai/gpt-4o-mini'"
)
PATTERNS[TOOL_NAME.pattern] = (
    "a name of letters a to z and A to Z, digits, '_' and '-', at most 64 characters"
)

_CONFIG = CLOSED | ConfigDict(json_schema_extra={"additionalProperties": True})
"""The pydantic configuration of `config`, whose unknown keys are judged in `validation`."""

Name = Annotated[str, StringConstraints(pattern=_NAME, max_length=100)]
"""A name for people, templates and metrics."""
ModelName = Annotated[str, StringConstraints(pattern=_MODEL, max_length=200)]
"""A model as "<provider>/<model_name>"."""
ToolName = Annotated[str, StringConstraints(pattern=TOOL_NAME.pattern)]
"""A name by which models call a tool."""
MaxLoops = Annotated[int, Ge(1), Le(1000)]
MaxToolRetries = Annotated[int, Ge(0), Le(1000)]
Fallback = Annotated[list[ModelName], MaxLen(8)]
"""Models that are asked in turn if those before them cannot answer."""
FallbackWait = Annotated[float, Ge(0)]
"""Seconds that a model may ask to wait before the next one is asked."""


@with_config(_CONFIG)
class AgentConfig(ModelSettings, HistorySettings, total=False):
    """How an agent runs. Further keys are kept, but not used."""

    model: Required[ModelName]
    max_loops: MaxLoops
    max_tool_retries: MaxToolRetries
    fallback: Fallback
    fallback_wait: FallbackWait


@with_config(_CONFIG)
class MemberConfig(ModelSettings, HistorySettings, total=False):
    """How an agent inside a conductor or pipeline runs; `model` defaults to that of the whole. See `AgentConfig`."""

    model: ModelName
    max_loops: MaxLoops
    max_tool_retries: MaxToolRetries
    fallback: Fallback
    fallback_wait: FallbackWait


@with_config(_CONFIG)
class ConductorConfig(ModelSettings, HistorySettings, total=False):
    """How a conductor runs. Further keys are kept, but not used."""

    model: Required[ModelName]
    max_loops: MaxLoops
    max_tool_retries: MaxToolRetries
    fallback: Fallback
    fallback_wait: FallbackWait
    planning: bool


@with_config(_CONFIG)
class PipelineConfig(TypedDict, total=False):
    """How a pipeline runs. Further keys are kept, but not used."""

    model: ModelName


@with_config(CLOSED)
class ToolEntry(TypedDict):
    """A tool: its schema only, never its code (spec §2.1)."""

    name: ToolName
    schema: ToolSchema
    idempotent: NotRequired[bool]
    """Whether a call may be repeated if its end is unknown."""


def _same_names(entry: ToolEntry) -> ToolEntry:
    inner = entry["schema"]["function"]["name"]
    if entry["name"] != inner:
        raise ValueError(
            f"The tool is called '{entry['name']}', but its schema '{inner}'"
        )
    return entry


def _unique_names(entries: list[Any]) -> list[Any]:
    names = [entry["name"] for entry in entries]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"Duplicate name '{name}'")
    return entries


def _known_version(version: str) -> str:
    if version not in VERSIONS:
        raise ValueError(
            f"Unknown schema version {short_repr(version)}; this release reads {', '.join(VERSIONS)}"
        )
    return version


Version = Annotated[str, AfterValidator(_known_version)]
Tools = Annotated[
    list[Annotated[ToolEntry, AfterValidator(_same_names)]],
    AfterValidator(_unique_names),
]


@with_config(CLOSED)
class _Described(TypedDict, total=False):
    version: Version
    description: str
    metadata: JsonObject


@with_config(CLOSED)
class AgentBlueprint(_Described, total=False):
    """An agent (spec §2.1)."""

    type: Literal["Agent"]
    name: Required[Name]
    instructions: Required[str]
    config: Required[AgentConfig]
    tools: Tools


@with_config(CLOSED)
class MemberBlueprint(_Described, total=False):
    """An agent inside a conductor or a pipeline (spec §§2.3, 2.4).

    With nothing but `type` and `name` it stands for the agent of that name that the caller supplies.
    """

    type: Required[Literal["Agent"]]
    name: Required[Name]
    instructions: str
    config: MemberConfig
    tools: Tools


@with_config(CLOSED)
class ConductorBlueprint(_Described, total=False):
    """A conductor (spec §2.3)."""

    type: Required[Literal["Conductor"]]
    name: Required[Name]
    instructions: Required[str]
    skills: Required[
        Annotated[
            list[MemberBlueprint],
            MinLen(1),
            MaxLen(64),
            AfterValidator(_unique_names),
        ]
    ]
    config: Required[ConductorConfig]


@with_config(CLOSED)
class PipelineBlueprint(_Described, total=False):
    """A pipeline (spec §2.4)."""

    type: Required[Literal["Pipeline"]]
    name: Required[Name]
    steps: Required[Annotated[list[MemberBlueprint], MinLen(1), MaxLen(64)]]
    config: PipelineConfig


@with_config(CLOSED)
class ConditionRef(TypedDict, total=False):
    """A condition by name: the caller's callable, or a built-in one with JSON arguments."""

    name: Required[Annotated[str, MinLen(1)]]
    args: JsonObject


@with_config(CLOSED)
class AgentStepBlueprint(TypedDict, total=False):
    """Runs an agent (spec §2.2)."""

    type: Required[Literal["agent_step"]]
    agent: Required[Name]
    name: Required[Name]
    input: str
    output: Name


ConditionStepBlueprint = with_config(CLOSED)(
    TypedDict(
        "ConditionStepBlueprint",
        {
            "type": Literal["condition_step"],
            "name": Name,
            "condition": ConditionRef,
            "then": "list[StepBlueprint]",
            "else": NotRequired["list[StepBlueprint]"],
        },
    )
)
"""Runs one of two sequences."""


@with_config(CLOSED)
class ParallelStepBlueprint(TypedDict):
    """Runs several sequences at once; the first failure cancels the others."""

    type: Literal["parallel_step"]
    name: Name
    branches: Annotated[list[Steps], MinLen(1), MaxLen(64)]


@with_config(CLOSED)
class LoopStepBlueprint(TypedDict):
    """Repeats a sequence until a condition holds, `max_iterations` times at most.

    If it does not hold then, the workflow goes on, or fails with `on_exhausted: "fail"`.
    """

    type: Literal["loop_step"]
    name: Name
    steps: Steps
    until: ConditionRef
    max_iterations: Annotated[int, Ge(1), Le(1000)]
    on_exhausted: NotRequired[Literal["continue", "fail"]]


MapStepBlueprint = with_config(CLOSED)(
    TypedDict(
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
)
"""Runs a sequence for each item of a list in the context."""


@with_config(CLOSED)
class WorkflowStepBlueprint(TypedDict, total=False):
    """Runs a nested workflow on the same context."""

    type: Required[Literal["workflow_step"]]
    name: Required[Name]
    workflow: Required[WorkflowBlueprint]


@with_config(CLOSED)
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


@with_config(CLOSED)
class WorkflowBlueprint(_Described, total=False):
    """A workflow (spec §2.2)."""

    type: Literal["Workflow"]
    name: Required[Name]
    steps: Required[Steps]


SHAPES: dict[Kind, type] = {
    "agent": AgentBlueprint,
    "workflow": WorkflowBlueprint,
    "conductor": ConductorBlueprint,
    "pipeline": PipelineBlueprint,
}
STEP_SHAPES: JsonObject = {
    "agent_step": AgentStepBlueprint,
    "condition_step": ConditionStepBlueprint,
    "parallel_step": ParallelStepBlueprint,
    "loop_step": LoopStepBlueprint,
    "map_step": MapStepBlueprint,
    "workflow_step": WorkflowStepBlueprint,
    "approval_step": ApprovalStepBlueprint,
}
_SHAPES_BY_KEY: JsonObject = {
    "tools": ToolEntry,
    "schema": ToolSchema,
    "function": ToolFunction,
    "condition": ConditionRef,
    "until": ConditionRef,
    "skills": MemberBlueprint,
    "workflow": WorkflowBlueprint,
}
_CONFIGS: dict[Kind, Any] = {
    "agent": AgentConfig,
    "conductor": ConductorConfig,
    "pipeline": PipelineConfig,
}


def _keys(shape: Any) -> frozenset[str]:
    return shape.__required_keys__ | shape.__optional_keys__


CONFIG_KEYS = _keys(ConductorConfig)
"""All keys that the `config` of any kind may have."""


def keys_of(kind: Kind) -> frozenset[str]:
    """The top-level keys of a kind's blueprints."""
    return _keys(SHAPES[kind])


def allowed_keys(
    kind: Kind, location: Sequence[str | int], value: JsonMapping
) -> list[str]:
    """The keys that the object at a location of a blueprint may have, for suggestions."""
    names = [part for part in location if isinstance(part, str)]
    if not names:
        return sorted(keys_of(kind))
    if names == ["config"]:
        return sorted(_keys(_CONFIGS.get(kind, AgentConfig)))
    if names[-1] == "config":
        return sorted(_keys(MemberConfig))
    step_type = value.get("type")
    if (
        kind == "workflow"
        and isinstance(step_type, str)
        and step_type in STEP_SHAPES
    ):
        return sorted(_keys(STEP_SHAPES[step_type]))
    return sorted(_keys(_SHAPES_BY_KEY.get(names[-1], MemberBlueprint)))


@functools.cache
def adapter(kind: Kind) -> TypeAdapter[Any]:
    """The pydantic adapter of a kind's blueprints."""
    return TypeAdapter(SHAPES[kind])


def json_schema() -> dict[str, JsonObject]:
    """The published JSON Schema (2020-12) of each kind: `{"agent": {…}, "workflow": {…}, …}`."""
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return {kind: {**dialect, **adapter(kind).json_schema()} for kind in SHAPES}
