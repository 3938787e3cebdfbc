"""The shape of suite files, as typed dictionaries, and its JSON Schema."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Required

from pydantic import (
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    with_config,
)
from typing_extensions import TypedDict

from podwright.data.json_data import JsonObject, as_object
from podwright.errors import Problem
from podwright.messages.messages import CLOSED
from podwright.schemas.response_schema import SchemaWithoutTitles
from podwright.schemas.validation_errors import (
    Location,
    resolve,
    to_problems,
)

MAX_VARIANTS = 64
"""Most combinations of a matrix."""
PLACE = r"^(.+?)\.(model|instructions|config\.[^.]+|tools\.[^.]+\.[^.]+)$"
"""A place in the blueprints of a component: the member, and what of it is changed."""
_Label = Annotated[
    str,
    Field(min_length=1, max_length=200, description="How reports call it."),
]
_Share = Annotated[float, Field(ge=0, le=1)]
_Times = Annotated[float, Field(gt=0)]
_Text = Annotated[str, Field(min_length=1)]
_UniqueName = Annotated[str, Field(min_length=1, max_length=200)]
_CLOSED = CLOSED | ConfigDict(use_attribute_docstrings=True)


@with_config(_CLOSED)
class ConditionCheck(TypedDict, total=False):
    """A condition of blueprints, a function of `checks.py`, or `matches`, `close_to` or `fits`."""

    name: Required[_Text]
    """The name of the condition."""
    args: JsonObject
    """Its arguments; texts are templates."""
    label: _Label


@with_config(_CLOSED)
class ExpectedCall(TypedDict, total=False):
    """A call of a tool with arguments."""

    tool: Required[_Text]
    """The name of the tool or function."""
    arguments: JsonObject
    """Arguments that the call has; it may have others."""


@with_config(_CLOSED)
class CallsCheck(TypedDict, total=False):
    """The calls of tools and functions that a run makes."""

    called: Required[list[_Text | ExpectedCall]]
    """The expected calls."""
    order: Literal["exact", "in order", "any"]
    """Whether they come one after the other, in this order with others between them, or in any order."""
    others: Literal["allowed", "refused"]
    """Whether the run may make other calls."""
    label: _Label


@with_config(_CLOSED)
class JudgeCheck(TypedDict, total=False):
    """What a judge, an agent of the folder `judges`, says of the output."""

    judge: Required[_Text]
    """The name of its file without the suffix."""
    input: JsonObject
    """Further inputs of the judge; texts are templates."""
    samples: Annotated[int, Field(ge=1, le=25)]
    """How often it is asked; the majority counts."""
    label: _Label


@with_config(_CLOSED)
class PreferenceCheck(TypedDict, total=False):
    """Which output a judge prefers, this one or the baseline's."""

    prefer: Required[_Text]
    """The name of the judge's file without the suffix."""
    input: JsonObject
    """Further inputs of the judge; texts are templates."""
    label: _Label


_CHECK_TAGS = {
    "name": "condition check",
    "called": "calls check",
    "judge": "judge check",
    "prefer": "preference check",
}
"""The key that says the form of a check, and how locations of errors call it."""


def _form_of_check(check: object) -> str | None:
    keys = as_object(check)
    for key, tag in _CHECK_TAGS.items():
        if key in keys:
            return tag
    return None


Check = Annotated[
    Annotated[ConditionCheck, Tag("condition check")]
    | Annotated[CallsCheck, Tag("calls check")]
    | Annotated[JudgeCheck, Tag("judge check")]
    | Annotated[PreferenceCheck, Tag("preference check")],
    Discriminator(
        _form_of_check,
        custom_error_type="form_of_check",
        custom_error_message="A check has the key 'name', 'called', 'judge' or 'prefer'",
    ),
]


@with_config(_CLOSED)
class DecisionShape(TypedDict, total=False):
    """What the person decides at a question."""

    decision: Required[_Text]
    """`approve`, `reject`, or another option of the question."""
    comment: str
    """What the person says."""
    values: JsonObject
    """What the person changes, by name."""


@with_config(_CLOSED)
class CaseShape(TypedDict, total=False):
    """A case: an input, and what must be true of its runs."""

    name: Required[_UniqueName]
    """Unique in the suite."""
    inputs: Required[str | JsonObject]
    """A text, or named inputs."""
    messages: list[JsonObject]
    """Earlier turns of the conversation."""
    checks: list[Check]
    """Checks of this case, after those of the suite."""
    decisions: list[DecisionShape]
    """What the person decides, in order, instead of the suite's decisions."""
    must: bool
    """Whether one failed run of it fails the evaluation."""
    expect_error: _Text
    """The code of the error with which the run has to end."""


@with_config(_CLOSED)
class CasesFile(TypedDict):
    """Cases of a file."""

    file: _Text
    """A file of JSON Lines, a case a line; its path from the suite's file."""


def _form_of_case(case: object) -> str:
    keys = as_object(case)
    if "file" in keys and "name" not in keys:
        return "file of cases"
    return "single case"


_CaseEntry = Annotated[
    Annotated[CaseShape, Tag("single case")]
    | Annotated[CasesFile, Tag("file of cases")],
    Discriminator(_form_of_case),
]


@with_config(_CLOSED)
class PassRateGate(TypedDict):
    """The least share of runs that pass."""

    at_least: _Share
    """From 0 to 1."""


@with_config(_CLOSED)
class BaselineGate(TypedDict, total=False):
    """By how much a variant may be worse than the baseline."""

    pass_rate_drop: _Share
    """By how much the share of runs that pass may be lower, from 0 to 1."""
    cost_ratio: _Times
    """How many times as much a run may cost."""
    p95_ratio: _Times
    """How many times as long the 95th percentile of the seconds of a run may be."""


@with_config(_CLOSED)
class GatesShape(TypedDict, total=False):
    """What decides whether the evaluation succeeds."""

    pass_rate: PassRateGate
    against_baseline: BaselineGate


_VARIANT_KEYS: JsonObject = {
    "blueprint": {
        "type": "string",
        "description": "A blueprint file or a component folder in place of the suite's own; its path from the "
        "component's folder.",
    },
    "image": {
        "type": "string",
        "description": "An image whose container answers.",
    },
    "url": {"type": "string", "description": "A service that answers."},
    "api_key_file": {
        "type": "string",
        "description": "A file with the API key of that service; its path from the suite's file.",
    },
}
VARIANT_KEYS = tuple(_VARIANT_KEYS)
"""The keys of variants that are not places."""
_VARIANT_SCHEMA: JsonObject = {
    "type": ["object", "null"],
    "properties": _VARIANT_KEYS,
    "patternProperties": {
        PLACE: {
            "description": "A value in place of the blueprint's, or null to leave it; a text may be {file: …}."
        }
    },
    "additionalProperties": False,
}
_MATRIX_SCHEMA: JsonObject = {
    "type": "object",
    "description": "Values by place; the variants are all combinations.",
    "patternProperties": {
        PLACE: {
            "description": "The values: a list, or by name; null leaves what the blueprint has.",
            "anyOf": [
                {"type": "array", "minItems": 1},
                {"type": "object", "minProperties": 1},
            ],
        }
    },
    "additionalProperties": False,
}


@with_config(_CLOSED)
class SuiteShape(TypedDict, total=False):
    """The cases, variants, checks and gates of a component."""

    component: _Text
    """The component's folder, as a path from this file; by default the folder around that of this file."""
    matrix: Annotated[
        dict[str, list[Any] | dict[str, Any]], WithJsonSchema(_MATRIX_SCHEMA)
    ]
    """Values by place; the variants are all combinations."""
    variants: Annotated[
        dict[
            _UniqueName,
            Annotated[JsonObject | None, WithJsonSchema(_VARIANT_SCHEMA)],
        ],
        Field(min_length=1, max_length=MAX_VARIANTS),
    ]
    """Configurations by name: values by place, or another component."""
    baseline: _Text | JsonObject
    """The variant with which the others are compared: its name, or a choice for each key of the matrix."""
    repeat: Annotated[int, Field(ge=1, le=100)]
    """How often each case is run with each variant."""
    decisions: list[DecisionShape]
    """What the person decides, in order; without a further one, the run ends at the question."""
    fakes: JsonObject
    """Results in place of tools and functions, by name; `{from: fakes.py}` is the function of that name there."""
    checks: list[Check]
    """Checks of every case."""
    cases: Required[Annotated[list[_CaseEntry], Field(min_length=1)]]
    """Cases, and files of cases."""
    gates: GatesShape


_CHECK_SHAPES: Mapping[str | None, type] = {
    "condition check": ConditionCheck,
    "calls check": CallsCheck,
    "judge check": JudgeCheck,
    "preference check": PreferenceCheck,
}
_SHAPES_BY_KEY: Mapping[str, type] = {
    "cases": CaseShape,
    "decisions": DecisionShape,
    "called": ExpectedCall,
    "gates": GatesShape,
    "pass_rate": PassRateGate,
    "against_baseline": BaselineGate,
}


@functools.cache
def _suite_adapter() -> TypeAdapter[Any]:
    return TypeAdapter(SuiteShape)


@functools.cache
def _case_adapter() -> TypeAdapter[Any]:
    return TypeAdapter(CaseShape)


def suite_schema() -> JsonObject:
    """Return the JSON Schema (2020-12) of suite files, for editors."""
    schema = _suite_adapter().json_schema(schema_generator=SchemaWithoutTitles)
    schema["properties"]["$schema"] = {"type": "string"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "Suite",
    }


def shape_problems(data: object) -> list[Problem]:
    """Return the unknown keys and the wrong types in the data of a suite file, without `$schema`."""
    return _problems(_suite_adapter(), data, SuiteShape)


def case_problems(data: object) -> list[Problem]:
    """Return the unknown keys and the wrong types in the data of one case of a file of cases."""
    return _problems(_case_adapter(), data, CaseShape)


def _problems(
    adapter: TypeAdapter[Any], data: object, whole: type
) -> list[Problem]:
    def allowed_keys(location: Location) -> list[str]:
        _, value = resolve(data, location)
        names = [part for part in location if isinstance(part, str)]
        if not names:
            return sorted(whole.__annotations__)
        if names[-1] == "checks":
            shape = _CHECK_SHAPES.get(_form_of_check(value))
        else:
            shape = _SHAPES_BY_KEY.get(names[-1])
        return sorted(getattr(shape, "__annotations__", ()))

    try:
        adapter.validate_python(data)
    except ValidationError as error:
        errors = error.errors(include_url=False)
        return to_problems(errors, data, allowed_keys)
    return []
