"""The shapes of blueprints, one typed dictionary each (spec §2), and their JSON Schema.

A blueprint stays JSON data: a component holds exactly what a file says, so an export cannot lose or add a key. `type`,
`version`, `description` and `metadata`, notes of its authors, are additions to the specification; each is optional.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NotRequired, Required

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    with_config,
)
from pydantic.types import StringConstraints
from typing_extensions import TypedDict

from podwright.blueprints.texts import text_forms, text_key
from podwright.errors import check_caught_code
from podwright.events import Kind
from podwright.json_data import JsonMapping, JsonObject, as_object, copy_json
from podwright.messages import (
    CLOSED,
    HistorySettings,
    ModelSettings,
    ToolFunction,
    ToolSchema,
)
from podwright.names import INPUT_NAME, is_declarable
from podwright.schema_validator import SchemaValidator
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
_FUNCTION_NAME = r"^[A-Za-z_][A-Za-z0-9_]*$"
_ERROR_CODE = r"^[a-z][a-z0-9_]*$"
PATTERNS[_NAME] = "a name without control characters, braces and slashes"
PATTERNS[_MODEL] = (
    "a model named '<provider>/<model_name>', for example 'openai/gpt-4o-mini'"
)
PATTERNS[_ERROR_CODE] = (
    "a code of lowercase letters, digits and '_', such as 'out_of_stock'"
)
_INPUT_RULE = "a name of letters of any alphabet, digits, '_' and '-' that begins with a letter"
PATTERNS[INPUT_NAME] = _INPUT_RULE
PATTERNS[_FUNCTION_NAME] = "the name of a Python function"
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


def _input_name(name: str) -> str:
    if not is_declarable(name):
        raise ValueError(f"Expected {_INPUT_RULE}, got {short_repr(name)}")
    return name


InputName = Annotated[
    str,
    StringConstraints(pattern=INPUT_NAME, max_length=100),
    AfterValidator(_input_name),
]
"""A name that templates can use without brackets: a Unicode identifier."""
FunctionName = Annotated[
    str, StringConstraints(pattern=_FUNCTION_NAME, max_length=100)
]
"""A function that the caller supplies under this name."""


def _only_text(value: object) -> object:
    if isinstance(value, dict | list):
        raise ValueError(
            "Only a blueprint file may have a text as lines, or in another file; give the text itself"
        )
    return value


Prompt = Annotated[str, BeforeValidator(_only_text)]
"""A text for a model or a person; in a file it has further forms, see `texts`."""
MaxLoops = Annotated[int, Field(ge=1, le=1000)]
MaxToolRetries = Annotated[int, Field(ge=0, le=1000)]
MaxCorrections = Annotated[int, Field(ge=0, le=1000)]
"""Answers of one run that may not fit the response schema, and are asked for again."""
Fallback = Annotated[list[ModelName], Field(max_length=8)]
"""Models that are asked in turn if those before them cannot answer."""
FallbackWait = Annotated[float, Field(ge=0)]
"""Seconds that a model may ask to wait before the next one is asked."""


def _valid_schema(schema: JsonObject) -> JsonObject:
    try:
        SchemaValidator(schema)
    except ValueError as error:
        reason = str(error).rstrip(".")
        raise ValueError(f"Invalid JSON Schema: {reason}") from None
    return schema


def _fitting_default(schema: JsonObject) -> JsonObject:
    if "default" not in schema:
        return schema
    problem = SchemaValidator(schema).problem(schema["default"])
    if problem is not None:
        place = f"The default{problem.pointer}"
        raise ValueError(f"{place} {problem.detail}")
    return schema


Schema = Annotated[JsonObject, AfterValidator(_valid_schema)]
"""A JSON Schema (draft 2020-12)."""
InputSchema = Annotated[Schema, AfterValidator(_fitting_default)]
"""The JSON Schema of an input; its `default` makes the input optional."""
Inputs = Annotated[dict[InputName, InputSchema], Field(max_length=64)]
"""The inputs that a component takes besides `input`."""


@with_config(CLOSED)
class Limits(TypedDict, total=False):
    """What a run may use at most; the operator's limits apply as well."""

    model_calls: Annotated[int, Field(ge=1)]
    tokens: Annotated[int, Field(ge=1)]
    cost: Annotated[float, Field(ge=0)]
    """USD."""
    seconds: Annotated[float, Field(gt=0)]


@with_config(_CONFIG)
class AgentConfig(ModelSettings, HistorySettings, total=False):
    """How an agent runs. Further keys are kept, but not used."""

    model: Required[ModelName]
    response_schema: Schema
    max_loops: MaxLoops
    max_tool_retries: MaxToolRetries
    fallback: Fallback
    fallback_wait: FallbackWait
    max_corrections: MaxCorrections


@with_config(_CONFIG)
class MemberConfig(ModelSettings, HistorySettings, total=False):
    """How an agent inside a conductor or pipeline runs; `model` defaults to that of the whole. See `AgentConfig`."""

    model: ModelName
    response_schema: Schema
    max_loops: MaxLoops
    max_tool_retries: MaxToolRetries
    fallback: Fallback
    fallback_wait: FallbackWait
    max_corrections: MaxCorrections


@with_config(_CONFIG)
class ConductorConfig(ModelSettings, HistorySettings, total=False):
    """How a conductor runs. Further keys are kept, but not used."""

    model: Required[ModelName]
    response_schema: Schema
    max_loops: MaxLoops
    max_tool_retries: MaxToolRetries
    fallback: Fallback
    fallback_wait: FallbackWait
    planning: bool
    max_corrections: MaxCorrections


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
    timeout: Annotated[float, Field(gt=0)]
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


def _unique_texts(texts: list[str]) -> list[str]:
    for text in texts:
        if texts.count(text) > 1:
            raise ValueError(f"Duplicate name '{text}'")
    return texts


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
    inputs: Inputs
    limits: Limits


@with_config(CLOSED)
class AgentBlueprint(_Described, total=False):
    """An agent (spec §2.1)."""

    type: Literal["Agent"]
    name: Required[Name]
    instructions: Required[Prompt]
    config: Required[AgentConfig]
    tools: Tools


@with_config(CLOSED)
class MemberBlueprint(_Described, total=False):
    """An agent inside a conductor or a pipeline (spec §§2.3, 2.4).

    With nothing but `type` and `name` it stands for the agent of that name that the caller supplies.
    """

    type: Required[Literal["Agent"]]
    name: Required[Name]
    instructions: Prompt
    config: MemberConfig
    tools: Tools


@with_config(CLOSED)
class ConductorBlueprint(_Described, total=False):
    """A conductor (spec §2.3)."""

    type: Required[Literal["Conductor"]]
    name: Required[Name]
    instructions: Required[Prompt]
    skills: Required[
        Annotated[
            list[MemberBlueprint],
            Field(min_length=1, max_length=64),
            AfterValidator(_unique_names),
        ]
    ]
    config: Required[ConductorConfig]


@with_config(CLOSED)
class PipelineBlueprint(_Described, total=False):
    """A pipeline (spec §2.4)."""

    type: Required[Literal["Pipeline"]]
    name: Required[Name]
    steps: Required[
        Annotated[list[MemberBlueprint], Field(min_length=1, max_length=64)]
    ]
    config: PipelineConfig


@with_config(CLOSED)
class ConditionRef(TypedDict, total=False):
    """A condition by name: the caller's callable, or a built-in one with JSON arguments."""

    name: Required[Annotated[str, Field(min_length=1)]]
    args: JsonObject


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


@with_config(CLOSED)
class FunctionStepBlueprint(TypedDict, total=False):
    """Calls a function, without a model."""

    type: Required[Literal["function_step"]]
    name: Required[Name]
    function: Required[FunctionName]
    arguments: JsonObject
    """Its arguments by name. A text is a template; one that is a single name becomes the value itself."""
    output: Name
    """Where its result is stored; by default `<function>_output`."""


CaughtCode = Annotated[
    str,
    StringConstraints(pattern=_ERROR_CODE, max_length=64),
    AfterValidator(check_caught_code),
]
"""A code of errors, or one that functions give to errors of their own."""


@with_config(CLOSED)
class _TryStep(TypedDict, total=False):
    """Runs steps, and others if one of them fails."""

    type: Required[Literal["try_step"]]
    name: Required[Name]
    steps: Required[Steps]
    catch: Steps
    """Run if the steps failed. Without them the workflow fails."""
    retries: Annotated[int, Field(ge=1, le=10)]
    """How often the steps are run again first."""
    on: Annotated[list[CaughtCode], Field(min_length=1)]
    """The codes of the errors that it catches; without it, all that can be caught."""


def _with_consequence(step: _TryStep) -> _TryStep:
    if "catch" not in step and "retries" not in step:
        raise ValueError("A try step needs 'catch', 'retries' or both")
    return step


TryStepBlueprint = Annotated[_TryStep, AfterValidator(_with_consequence)]
"""Runs steps, and others if one of them fails."""


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
    branches: Annotated[list[Steps], Field(min_length=1, max_length=64)]
    collect: NotRequired[bool]
    """Whether a name that several branches write becomes the list of their values, in the order of the branches."""


@with_config(CLOSED)
class LoopStepBlueprint(TypedDict):
    """Repeats a sequence until a condition holds, `max_iterations` times at most.

    If it does not hold then, the workflow goes on, or fails with `on_exhausted: "fail"`.
    """

    type: Literal["loop_step"]
    name: Name
    steps: Steps
    until: ConditionRef
    max_iterations: Annotated[int, Field(ge=1, le=1000)]
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
            "max_concurrency": NotRequired[Annotated[int, Field(ge=1, le=64)]],
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
class _ApprovalStep(TypedDict, total=False):
    """Pauses the workflow until a person decides."""

    type: Required[Literal["approval_step"]]
    name: Required[Name]
    message: Required[Prompt]
    options: Annotated[
        list[Name],
        Field(min_length=1, max_length=16),
        AfterValidator(_unique_texts),
    ]
    """What may be decided; by default `approve` and `reject`."""
    edit: Annotated[dict[InputName, Schema], Field(min_length=1, max_length=64)]
    """Names in the context that the person may change, with the schemas of their values."""
    on_reject: list[StepBlueprint]
    """Run if the decision is `reject`, after which the workflow goes on; without this key a rejection ends it."""


def _with_option(step: _ApprovalStep) -> _ApprovalStep:
    if "on_reject" in step and "reject" not in step.get("options", ["reject"]):
        raise ValueError("'on_reject' needs the option 'reject'")
    return step


ApprovalStepBlueprint = Annotated[_ApprovalStep, AfterValidator(_with_option)]
"""Pauses the workflow until a person decides."""


StepBlueprint = Annotated[
    AgentStepBlueprint
    | FunctionStepBlueprint
    | TryStepBlueprint
    | ConditionStepBlueprint
    | ParallelStepBlueprint
    | LoopStepBlueprint
    | MapStepBlueprint
    | WorkflowStepBlueprint
    | ApprovalStepBlueprint,
    Field(discriminator="type"),
]
Steps = Annotated[list[StepBlueprint], Field(min_length=1)]


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
    "function_step": FunctionStepBlueprint,
    "try_step": _TryStep,
    "condition_step": ConditionStepBlueprint,
    "parallel_step": ParallelStepBlueprint,
    "loop_step": LoopStepBlueprint,
    "map_step": MapStepBlueprint,
    "workflow_step": WorkflowStepBlueprint,
    "approval_step": _ApprovalStep,
}
_SHAPES_BY_KEY: JsonObject = {
    "tools": ToolEntry,
    "schema": ToolSchema,
    "function": ToolFunction,
    "condition": ConditionRef,
    "until": ConditionRef,
    "skills": MemberBlueprint,
    "workflow": WorkflowBlueprint,
    "limits": Limits,
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


def file_schema() -> dict[str, JsonObject]:
    """The JSON Schema of blueprint files of each kind, for editors: as `json_schema`, with what only files may have.

    These are `$schema`, and texts as lists of lines or in files of their own.
    """
    schemas = json_schema()
    for schema in schemas.values():
        definitions = as_object(schema.get("$defs"))
        for shape in (schema, *definitions.values()):
            _allow_text_forms(as_object(shape.get("properties")))
        # a workflow is a reference to the definition that nested workflows have, where `$schema` is unknown
        reference = schema.pop("$ref", "")
        _, _, name = reference.rpartition("/")
        schema.update(copy_json(as_object(definitions.get(name))))
        schema["properties"]["$schema"] = {"type": "string"}
    return schemas


def _allow_text_forms(properties: JsonObject) -> None:
    """Allow what a text may be in a file, if a part with these properties has one."""
    kind = as_object(properties.get("type")).get("const")
    key = text_key(kind)
    if key in properties:
        own = as_object(properties[key])
        forms = own.get("anyOf", [own])
        properties[key] = {"anyOf": [*forms, *text_forms(key)]}


def json_schema() -> dict[str, JsonObject]:
    """The published JSON Schema (2020-12) of each kind: `{"agent": {…}, "workflow": {…}, …}`."""
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return {kind: {**dialect, **adapter(kind).json_schema()} for kind in SHAPES}
