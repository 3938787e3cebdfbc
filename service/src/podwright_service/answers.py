"""The wire: what answers look like. For the OpenAPI document alone, so that a start without it does without them."""

from __future__ import annotations

from typing import Literal

from pydantic import JsonValue, RootModel

from podwright.events import Kind
from podwright_service.schema import Object, Wire


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
