"""The types that several shapes of blueprints share: names, texts, JSON Schemas, inputs, limits and conditions."""

from __future__ import annotations

from typing import Annotated, Required

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    TypeAdapter,
    ValidationError,
    with_config,
)
from pydantic.types import StringConstraints
from typing_extensions import TypedDict

from podwright.data.json_data import JsonObject
from podwright.data.names import INPUT_NAME, is_declarable
from podwright.data.text import short_repr
from podwright.messages.messages import CLOSED
from podwright.schemas.validation_errors import PATTERNS
from podwright.schemas.validator import SchemaValidator

VERSION = "1"
"""The schema version that this release writes; a blueprint without `version` has this one."""

VERSIONS = ("0", VERSION)
"""The schema versions that this release reads."""

_NAME = r"^[^\x00-\x1f\x7f{}/]+$"
_FUNCTION_NAME = r"^[A-Za-z_][A-Za-z0-9_]*$"
_SERVER_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
_INPUT_RULE = "a name of letters of any alphabet, digits, '_' and '-' that begins with a letter"
PATTERNS[_NAME] = "a name without control characters, braces and slashes"
PATTERNS[INPUT_NAME] = _INPUT_RULE
PATTERNS[_FUNCTION_NAME] = "the name of a Python function"
PATTERNS[_SERVER_NAME] = (
    "a name of letters a to z and A to Z, digits, '.', '_' and '-' that begins with a letter or digit, at most 64 "
    "characters"
)

Name = Annotated[str, StringConstraints(pattern=_NAME, max_length=100)]
"""A name for people, templates and metrics."""
_name_check: TypeAdapter[str] = TypeAdapter(Name)


def is_name(value: object) -> bool:
    """Whether a value may be a name."""
    try:
        _name_check.validate_python(value, strict=True)
    except ValidationError:
        return False
    return True


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

ServerName = Annotated[str, StringConstraints(pattern=_SERVER_NAME)]
"""An MCP server by the operator's name for it; never its address."""
ServerToolName = Annotated[str, Field(min_length=1, max_length=128)]
"""A tool as its MCP server calls it."""
Seconds = Annotated[float, Field(gt=0)]


@with_config(CLOSED)
class MCPFunction(TypedDict, total=False):
    """A tool of an MCP server that a step calls as a function."""

    server: Required[ServerName]
    tool: Required[ServerToolName]
    idempotent: bool
    """Whether a call may be repeated if its end is unknown; by default it may not."""
    timeout: Seconds
    """Seconds that a call may take; by default `PODWRIGHT_TOOL_TIMEOUT`."""


def _only_text(value: object) -> object:
    if isinstance(value, dict | list):
        raise ValueError(
            "Only a blueprint file may have a text as lines, or in another file; give the text itself"
        )
    return value


Prompt = Annotated[str, BeforeValidator(_only_text)]
"""A text for a model or a person; in a file it has further forms, see `podwright.blueprints.texts`."""


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


def _known_version(version: str) -> str:
    if version not in VERSIONS:
        raise ValueError(
            f"Unknown schema version {short_repr(version)}; this release reads {', '.join(VERSIONS)}"
        )
    return version


Version = Annotated[str, AfterValidator(_known_version)]


@with_config(CLOSED)
class Limits(TypedDict, total=False):
    """What a run may use at most; the operator's limits apply as well."""

    model_calls: Annotated[int, Field(ge=1)]
    tokens: Annotated[int, Field(ge=1)]
    cost: Annotated[float, Field(ge=0)]
    """USD."""
    seconds: Annotated[float, Field(gt=0)]


@with_config(CLOSED)
class Described(TypedDict, total=False):
    """The keys that the blueprints of all kinds of components may have."""

    version: Version
    description: str
    metadata: JsonObject
    inputs: Inputs
    limits: Limits


@with_config(CLOSED)
class ConditionRef(TypedDict, total=False):
    """A condition by name: the caller's callable, or a built-in one with JSON arguments."""

    name: Required[Annotated[str, Field(min_length=1)]]
    args: JsonObject
