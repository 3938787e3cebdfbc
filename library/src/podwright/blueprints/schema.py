"""The shapes of blueprints, one typed dictionary each (spec §2), and their JSON Schema.

A blueprint stays JSON data: a component holds exactly what a file says, so an export cannot lose or add a key. `type`,
`version`, `description` and `metadata`, notes of its authors, are additions to the specification; each is optional.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Required

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    with_config,
)
from pydantic.types import StringConstraints
from typing_extensions import TypedDict

from podwright.blueprints.texts import text_forms, text_key
from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_object,
    copy_json,
    walk_json,
)
from podwright.data.tool_names import TOOL_NAME
from podwright.kinds import Kind
from podwright.messages.messages import (
    CLOSED,
    HistorySettings,
    ModelSettings,
    ToolFunction,
    ToolSchema,
)
from podwright.schemas.validation_errors import PATTERNS
from podwright.steps.blueprint_types import (
    ConditionRef,
    Described,
    FunctionName,
    Limits,
    MCPFunction,
    Name,
    Prompt,
    Schema,
    Seconds,
    ServerName,
    ServerToolName,
)
from podwright.steps.registry import Kinds, collect, kinds, step_class
from podwright.steps.workflow_step import WorkflowBlueprint

MAX_SERVER_TOOLS = 128
"""Tools of one MCP server that a component may name."""

_MODEL = r"^[^\s/]+/\S+$"
_PREFIX = r"^[a-zA-Z0-9_-]{1,40}$"
PATTERNS[_MODEL] = (
    "a model named '<provider>/<model_name>', for example 'openai/gpt-4o-mini'"
)
PATTERNS[TOOL_NAME.pattern] = (
    "a name of letters a to z and A to Z, digits, '_' and '-', at most 64 characters"
)
PATTERNS[_PREFIX] = (
    "the start of a name: letters a to z and A to Z, digits, '_' and '-', at most 40 characters"
)

_CONFIG = CLOSED | ConfigDict(json_schema_extra={"additionalProperties": True})
"""The pydantic configuration of `config`, whose unknown keys are judged in `validation`."""

ModelName = Annotated[str, StringConstraints(pattern=_MODEL, max_length=200)]
"""A model as "<provider>/<model_name>"."""
ToolName = Annotated[str, StringConstraints(pattern=TOOL_NAME.pattern)]
"""A name by which models call a tool."""


MaxLoops = Annotated[int, Field(ge=1, le=1000)]
MaxToolRetries = Annotated[int, Field(ge=0, le=1000)]
MaxCorrections = Annotated[int, Field(ge=0, le=1000)]
"""Answers of one run that may not fit the response schema, and are asked for again."""
Fallback = Annotated[list[ModelName], Field(max_length=8)]
"""Models that are asked in turn if those before them cannot answer."""
StopAt = Annotated[list[ToolName], Field(min_length=1, max_length=64)]
MaxHandoffs = Annotated[int, Field(ge=1, le=32)]
"""Handoffs of one run; each is a run inside the one before."""
HookNames = (
    FunctionName
    | Annotated[list[FunctionName], Field(min_length=1, max_length=16)]
)
"""Functions that are called in this order; a name stands for a list with it."""
FallbackWait = Annotated[float, Field(ge=0)]
"""Seconds that a model may ask to wait before the next one is asked."""


@with_config(_CONFIG)
class ChatConfig(ModelSettings, HistorySettings, total=False):
    """How a model works with its tools, in a component of any kind that has a model of its own."""

    response_schema: Schema
    max_loops: MaxLoops
    max_tool_retries: MaxToolRetries
    fallback: Fallback
    fallback_wait: FallbackWait
    max_corrections: MaxCorrections
    tool_choice: ToolName
    """Which tool the model calls first: `auto`, `required`, `none`, or the name of one."""
    stop_at: ToolName | StopAt
    """The tools whose results are the answer."""


@with_config(_CONFIG)
class AgentConfig(ChatConfig, total=False):
    """How an agent runs. Further keys are kept, but not used."""

    model: Required[ModelName]
    max_handoffs: MaxHandoffs


@with_config(_CONFIG)
class MemberConfig(ChatConfig, total=False):
    """How an agent inside a conductor or pipeline runs; `model` defaults to that of the whole."""

    model: ModelName
    max_handoffs: MaxHandoffs


@with_config(_CONFIG)
class ConductorConfig(ChatConfig, total=False):
    """How a conductor runs. Further keys are kept, but not used."""

    model: Required[ModelName]
    planning: bool


@with_config(_CONFIG)
class PipelineConfig(TypedDict, total=False):
    """How a pipeline runs. Further keys are kept, but not used."""

    model: ModelName


@with_config(CLOSED)
class ToolOptions(TypedDict, total=False):
    """How a tool is called, as its entry in a blueprint and `@tool` say; the entry takes precedence."""

    idempotent: bool
    """Whether a call may be repeated if its end is unknown; by default it may not."""
    on_error: Literal["report", "fail"]
    """Whether the model is told when the tool raises an error, the default, or the run fails."""
    timeout: Seconds
    """Seconds that a call may take; by default `PODWRIGHT_TOOL_TIMEOUT`."""
    approval: bool
    """Whether a person has to approve each call; by default nobody is asked."""
    max_result_tokens: Annotated[int, Field(ge=1)]
    """Estimated tokens after which a result is cut; by default `PODWRIGHT_MAX_RESULT_TOKENS`."""


@with_config(CLOSED)
class ToolEntry(ToolOptions):
    """A tool: its schema and how it is called, never its code (spec §2.1)."""

    name: ToolName
    schema: ToolSchema


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


Tools = Annotated[
    list[Annotated[ToolEntry, AfterValidator(_same_names)]],
    AfterValidator(_unique_names),
]


@with_config(CLOSED)
class MCPToolEntry(ToolOptions):
    """A tool of an MCP server and how it is called. Its schema is in the lock of the folder, not here."""

    name: ServerToolName


@with_config(CLOSED)
class MCPEntry(TypedDict, total=False):
    """Tools of one MCP server, whose address and keys are the operator's."""

    server: Required[ServerName]
    tools: Required[
        Annotated[
            list[ServerToolName | MCPToolEntry],
            Field(min_length=1, max_length=MAX_SERVER_TOOLS),
        ]
    ]
    """The tools by the server's names; there is no word for all of them."""
    prefix: Annotated[str, StringConstraints(pattern=_PREFIX)]
    """Begins the names by which the model calls them."""


MCPTools = Annotated[list[MCPEntry], Field(max_length=64)]
"""The tools of MCP servers."""


@with_config(CLOSED)
class HandoffEntry(TypedDict, total=False):
    """An agent that may go on with the conversation, and when."""

    agent: Required[Name]
    when: Annotated[str, StringConstraints(max_length=2000)]
    """What to hand over, for the model."""


def _unique_agents(entries: list[Any]) -> list[Any]:
    names = [as_object(entry).get("agent", entry) for entry in entries]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"Duplicate agent '{name}'")
    return entries


Handoffs = Annotated[
    list[Name | HandoffEntry],
    Field(max_length=64),
    AfterValidator(_unique_agents),
]
"""The agents that may go on with the conversation: names, which the caller supplies."""


@with_config(CLOSED)
class Hooked(Described, total=False):
    """The keys of components that work between functions."""

    before: HookNames
    """The functions before the work, which may change or refuse the input."""
    after: HookNames
    """The functions after the work, which may change or refuse the answer."""


@with_config(CLOSED)
class AgentBlueprint(Hooked, total=False):
    """An agent (spec §2.1)."""

    type: Literal["Agent"]
    name: Required[Name]
    instructions: Required[Prompt]
    config: Required[AgentConfig]
    tools: Tools
    mcp: MCPTools
    handoffs: Handoffs


@with_config(CLOSED)
class MemberBlueprint(Hooked, total=False):
    """An agent inside a conductor or a pipeline (spec §§2.3, 2.4).

    With nothing but `type` and `name` it stands for the agent of that name that the caller supplies.
    """

    type: Required[Literal["Agent"]]
    name: Required[Name]
    instructions: Prompt
    config: MemberConfig
    tools: Tools
    mcp: MCPTools
    handoffs: Handoffs


@with_config(CLOSED)
class SkillBlueprint(MemberBlueprint, total=False):
    """An agent that the model of a conductor gives tasks to."""

    conversation: bool
    """Whether it is given the conversation before its task; by default it is not."""


@with_config(CLOSED)
class ConductorBlueprint(Hooked, total=False):
    """A conductor (spec §2.3)."""

    type: Required[Literal["Conductor"]]
    name: Required[Name]
    instructions: Required[Prompt]
    skills: Required[
        Annotated[
            list[SkillBlueprint],
            Field(min_length=1, max_length=64),
            AfterValidator(_unique_names),
        ]
    ]
    config: Required[ConductorConfig]
    tools: Tools
    """Tools of its own, besides its skills."""
    mcp: MCPTools


@with_config(CLOSED)
class PipelineBlueprint(Hooked, total=False):
    """A pipeline (spec §2.4)."""

    type: Required[Literal["Pipeline"]]
    name: Required[Name]
    steps: Required[
        Annotated[list[MemberBlueprint], Field(min_length=1, max_length=64)]
    ]
    config: PipelineConfig


SHAPES: dict[Kind, type] = {
    "agent": AgentBlueprint,
    "workflow": WorkflowBlueprint,
    "conductor": ConductorBlueprint,
    "pipeline": PipelineBlueprint,
}
_SHAPES_BY_KEY: JsonObject = {
    "tools": ToolEntry,
    "schema": ToolSchema,
    "function": ToolFunction,
    "skills": SkillBlueprint,
    "workflow": WorkflowBlueprint,
    "limits": Limits,
    "mcp": MCPEntry,
    "handoffs": HandoffEntry,
}
_CONFIGS: dict[Kind, Any] = {
    "agent": AgentConfig,
    "conductor": ConductorConfig,
    "pipeline": PipelineConfig,
}


def _keys(shape: Any) -> frozenset[str]:
    # a shape with a validator is wrapped by `Annotated`
    typed_dict = getattr(shape, "__origin__", shape)
    return typed_dict.__required_keys__ | typed_dict.__optional_keys__


CONFIG_KEYS = _keys(ConductorConfig) | _keys(AgentConfig)
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
    if names[-2:] == ["mcp", "tools"]:
        return sorted(_keys(MCPToolEntry))
    if kind == "workflow" and names[-1] == "mcp":
        return sorted(_keys(MCPFunction))
    step_shape = step_class(value).shape
    if kind == "workflow" and step_shape is not None:
        return sorted(_keys(step_shape))
    if names[-1] in collect(lambda kind: kind.condition_keys):
        return sorted(_keys(ConditionRef))
    return sorted(_keys(_SHAPES_BY_KEY.get(names[-1], MemberBlueprint)))


def adapter(kind: Kind) -> TypeAdapter[Any]:
    """The pydantic adapter of a kind's blueprints."""
    return _adapter(kind, kinds())


@functools.lru_cache(maxsize=2 * len(SHAPES))
def _adapter(kind: Kind, _: Kinds) -> TypeAdapter[Any]:
    return TypeAdapter(SHAPES[kind])


def file_schema() -> dict[str, JsonObject]:
    """The JSON Schema of blueprint files of each kind, for editors: as `json_schema`, with what only files may have.

    These are `$schema`, texts as lists of lines or in files of their own, and steps and members without the `type` that
    their keys say.
    """
    schemas = json_schema()
    for schema in schemas.values():
        definitions = as_object(schema.get("$defs"))
        for shape in (schema, *definitions.values()):
            _allow_text_forms(as_object(shape.get("properties")))
            _allow_no_type(shape)
        for _, part, _ in walk_json(schema):
            if "oneOf" in as_object(part):
                # it would need the type
                as_object(part).pop("discriminator", None)
        # a workflow is a reference to the definition that nested workflows have, where `$schema` is unknown
        reference = schema.pop("$ref", "")
        _, _, name = reference.rpartition("/")
        schema.update(copy_json(as_object(definitions.get(name))))
        schema["properties"]["$schema"] = {"type": "string"}
    return schemas


def _allow_text_forms(properties: JsonObject) -> None:
    """Allow what a text may be in a file, if a part with these properties has one."""
    part = {"type": as_object(properties.get("type")).get("const")}
    key = text_key(part)
    if key in properties:
        own = as_object(properties[key])
        forms = own.get("anyOf", [own])
        properties[key] = {"anyOf": [*forms, *text_forms(part)]}


def _allow_no_type(shape: JsonObject) -> None:
    """Require no key of a shape that its other keys say."""
    properties = as_object(shape.get("properties"))
    name = as_object(properties.get("type")).get("const")
    implied: set[str] = set()
    if name == "Agent":
        implied = {"type"}
    elif step_class({"type": name}).own_keys:
        implied = {"type", "name"}
    required = [key for key in shape.get("required", ()) if key not in implied]
    if "required" in shape:
        shape["required"] = required


def json_schema() -> dict[str, JsonObject]:
    """The published JSON Schema (2020-12) of each kind: `{"agent": {…}, "workflow": {…}, …}`."""
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return {kind: {**dialect, **adapter(kind).json_schema()} for kind in SHAPES}
