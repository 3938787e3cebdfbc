"""The wire: what requests look like, and the check of what came in."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from podwright.errors import Problem
from podwright.events import Kind
from podwright_service.problems import MOST_ERRORS, RequestError
from podwright_service.wording import misspelt, named, worded

Object = dict[str, Any]
AgentName = Annotated[str, Field(max_length=100)]
Path = Annotated[list[int], Field(max_length=64)]


class Wire(BaseModel):
    """A body on the wire: closed, and taken as it is sent."""

    # a start needs none of their checkers, which take milliseconds
    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True, defer_build=True)


class SimpleRun(Wire):
    """Run on a text (spec §4.2)."""

    input: str
    """What to work on."""


class ComplexRun(Wire):
    """Run on named inputs (spec §4.2)."""

    inputs: dict[str, JsonValue] = Field(min_length=1)
    """Values by name. They fill `{name}` in instructions and step inputs."""


class WorkflowRun(ComplexRun):
    """Run a workflow on named inputs, or go on with one that was stopped."""

    start_step: int = Field(default=0, ge=0)
    """Index of the step to start from."""
    resume_path: Path | None = None
    """To go on: the problem's `resume_path`, with its `context` as `inputs`."""


class Posted(Wire):
    """A blueprint, and those of the agents that it names."""

    blueprint: Object
    """A blueprint of the kind that `type` names, as `podwright schema` and `json_schema()` describe it."""
    agents: dict[AgentName, Object] = Field(default_factory=dict[str, Object])
    """Blueprints of agents that it names; agents of the served component need none."""


class PostedRun(Posted):
    """Run a blueprint (spec §4.2), on `input` or on `inputs`."""

    type: Kind
    """Its kind."""
    input: str | None = None
    """What to work on."""
    inputs: dict[str, JsonValue] | None = Field(default=None, min_length=1)
    """Or values by name."""
    start_step: int = Field(default=0, ge=0)
    """Workflows: index of the step to start from."""
    resume_path: Path | None = None
    """Workflows: to go on, the problem's `resume_path`, with its `context` as `inputs`."""


class PostedCheck(Posted):
    """Check a blueprint; nothing is run."""

    type: Kind | None = None
    """Its kind; by default the one that it says."""


Shape = TypeVar("Shape", bound=Wire)


def read_run(data: object, kind: Kind) -> SimpleRun | ComplexRun | WorkflowRun:
    """The body of a run, in its simple or its complex form.

    Raises:
        RequestError: It is neither.
    """
    form = WorkflowRun if kind == "workflow" else ComplexRun
    _one_form(data, form)
    steps = [name for name in ("start_step", "resume_path") if name in _object(data)]
    if kind != "workflow":
        _refuse([Problem(f"/{name}", f"'{name}' is for workflows, and not for this {kind}.") for name in steps])
    elif "input" in _object(data):
        hint = "Send the problem's 'context' as 'inputs', and its 'resume_path'."
        _refuse([Problem(f"/{name}", f"'{name}' goes with 'inputs', not with 'input'.", hint) for name in steps])
    return read(SimpleRun if "input" in _object(data) else form, data)


def read_posted_run(data: object) -> PostedRun:
    """The body of a run of a posted blueprint.

    Raises:
        RequestError: It does not have the shape.
    """
    _one_form(data, PostedRun)
    posted = read(PostedRun, data)
    if posted.type != "workflow":
        steps = [name for name in ("start_step", "resume_path") if name in posted.model_fields_set]
        _refuse([Problem(f"/{name}", f"the key '{name}' is for workflows.", "Leave it out.") for name in steps])
    return posted


def read(shape: type[Shape], data: object) -> Shape:
    """A body of the wire.

    Raises:
        RequestError: It does not have the shape; all reasons at once.
    """
    try:
        return shape.model_validate(data)
    except ValidationError as error:
        # the first are enough: to guess what was meant by thousands of keys takes seconds
        _refuse([worded(one, shape.model_fields) for one in error.errors(include_url=False)[:MOST_ERRORS]])
        raise


def _one_form(data: object, shape: type[Wire]) -> None:
    if not (keys := _object(data)) and data != {}:
        _refuse([Problem("", f"the body is {named(data)}, not an object.", 'Send {"input": "…"}.')])
    given = [name for name in ("input", "inputs") if name in keys]
    if len(given) != 1:
        what = "both are there" if given else "neither is there"
        hint = "" if given else misspelt(keys, ["input", *shape.model_fields])
        _refuse([Problem("", f"give one of 'input' (a text) and 'inputs' (an object); {what}.", hint)])


def _refuse(found: list[Problem]) -> None:
    if found:
        raise RequestError(422, "request_invalid", f"The body does not fit: {found[0].detail}", problems=found)


def _object(data: object) -> Object:
    return cast("Object", data) if isinstance(data, dict) else {}
