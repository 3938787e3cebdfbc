"""The wire: what requests and answers look like, and the check of what came in."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, JsonValue, RootModel, ValidationError

from podwright.errors import Problem
from podwright.events import Kind
from podwright_service.problems import MOST_ERRORS, RequestError
from podwright_service.wording import misspelt, named, worded

Object = dict[str, Any]
AgentName = Annotated[str, Field(max_length=100)]
Path = Annotated[list[int], Field(max_length=64)]


class Wire(BaseModel):
    """A body on the wire: closed, and taken as it is sent."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)


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


class Output(Wire):
    """The answer of an agent, a conductor or a pipeline (spec §4.3)."""

    output: JsonValue
    """A text, or JSON where the component answers with structured data."""


class Context(RootModel[dict[str, str]]):
    """The answer of a workflow (spec §4.3): its context, `input` and an `<agent_name>_output` for each agent."""


class Trace(Wire):
    """The answer with `?trace=true` (spec §2.5)."""

    format: str
    value: JsonValue
    """What the answer would be without the trace: the output, or the context."""
    events: list[Object]
    """What happened, in order."""
    duration_ms: float
    usage: Object


class ErrorEntry(Wire):
    """One thing that is wrong in a request."""

    pointer: str
    """JSON pointer (RFC 6901) into the request's body."""
    detail: str
    suggestion: str


class ProblemDetails(Wire):
    """An error (RFC 9457)."""

    type: str
    """Link to help."""
    title: str
    status: int
    detail: str
    """What failed, with the value that was wrong."""
    instance: str
    code: str
    """Stable identifier for programs."""
    suggestion: str
    """What to do about it."""
    run_id: str | None = None
    component: str | None = None
    """The innermost component that failed."""
    usage: Object | None = None
    """What the run had used."""
    limit: str | None = None
    """The limit that was reached."""
    errors: list[ErrorEntry] | None = None
    """Each thing that is wrong in the request."""
    context: Object | None = None
    """A stopped workflow's context; send it back as `inputs` to go on."""
    resume_path: list[int] | None = None
    """Where it goes on; send it back too."""


class Validation(Wire):
    """What is wrong with a blueprint."""

    valid: bool
    errors: list[ErrorEntry]


class Status(Wire):
    """How the service is."""

    status: Literal["ok", "ready", "starting", "draining"]


class Info(Wire):
    """What this service is."""

    name: str
    kind: Kind
    title: str
    description: str
    versions: dict[str, str]
    """Of `podwright`, the `blueprint` schema, and `python`."""
    blueprint: Object
    digest: str
    """Of the blueprint, over its canonical JSON."""
    models: dict[str, list[str]]
    """`named` by the blueprints, and `effective`: those that are called."""
    tools: list[str]
    agents: list[str]
    """Names of the components in other containers that it works with."""
    accepts: dict[str, list[str]]
    """`models`, `tools`, `agents` and `conditions` that a blueprint posted here may name."""
    limits: dict[str, float | None]


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
