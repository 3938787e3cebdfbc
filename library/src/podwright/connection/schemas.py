"""The JSON documents that a service sends its callers: background runs, and what it says of itself.

The docstrings of the models and of their fields are the descriptions in the OpenAPI document.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from podwright.kinds import Kind
from podwright.messages.approvals import APPROVE, DEFAULT_OPTIONS

Object = dict[str, Any]

RunStatus = Literal[
    "queued",
    "running",
    "waiting_for_approval",
    "succeeded",
    "failed",
    "cancelled",
    "interrupted",
]

RESTING: tuple[RunStatus, ...] = (
    "waiting_for_approval",
    "succeeded",
    "failed",
    "cancelled",
    "interrupted",
)
"""The statuses that change only if a person acts, or not at all: a wait for a run ends at them."""
ENDED: tuple[RunStatus, ...] = (
    "succeeded",
    "failed",
    "cancelled",
    "interrupted",
)
"""The statuses of a run with a result or a problem: its stream ends, and it is deleted after the retention time."""
RESUMABLE: tuple[RunStatus, ...] = ("failed", "interrupted")
"""The statuses in `ENDED` from which a person may have the run go on."""
MOVABLE: tuple[RunStatus, ...] = ("queued", "waiting_for_approval", *RESUMABLE)
"""The statuses in which no process performs the run, and which may not be its last."""


class Edit(BaseModel):
    """A value that a person may change."""

    model_config = ConfigDict(
        use_attribute_docstrings=True, serialize_by_alias=True
    )

    json_schema: Object = Field(alias="schema")
    """Its JSON Schema."""
    value: JsonValue
    """What it is now."""


class Approval(BaseModel):
    """What a background run waits for: an approval step or a tool call, which may be in a nested run."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    message: str
    """The question to the person who approves."""
    run_id: str
    """Id of the run with the approval step."""
    path: list[int]
    """Position of the approval step, or of the run whose model calls a tool."""
    options: list[str] = list(DEFAULT_OPTIONS)
    """What may be decided."""
    edit: dict[str, Edit] = {}
    """What the person may change, by name: values of the context, or arguments of the tool."""
    ends_on_reject: bool = True
    """Whether a rejection ends the run."""
    tool: str | None = None
    """The tool that is to be called, with the values in `edit`; null for an approval step."""
    component: str | None = None
    """The component whose model calls the tool."""
    model_arguments: Object | None = None
    """The arguments as the model wrote them, if the tool is called with others: validated ones, and its defaults."""
    digest: str = ""
    """Digest of what is asked: a decision holds for a question with the same one."""
    tool_call: int | None = None
    """Number of the tool call in its run."""


class Decision(Approval):
    """What a person has decided."""

    approved: bool
    """Whether it was anything but a rejection."""
    decision: str = APPROVE
    """One of the options."""
    comment: str
    values: Object = {}
    """What the person has changed, by name."""
    attempt: int | None = None
    """The attempt that ended in the question."""
    caller: str | None = None
    """The name of the API key that it was decided with."""
    at: datetime


RunActionName = Literal["cancel", "resume", "move"]


class RunAction(BaseModel):
    """What a caller has done with a run, besides decisions."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    action: RunActionName
    caller: str | None = None
    """The name of the API key that it was done with."""
    at: datetime
    old: str | None = None
    """Of a move: digest of the blueprint that the run had."""
    new: str | None = None
    """Of a move: digest of the one that it has since."""


class RunFacts(BaseModel):
    """A background run without what it was given, asked and answered."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    id: str
    component: str
    status: RunStatus
    """`interrupted` waits for a person: how one of its tool calls ended is unknown."""
    digest: str = ""
    """Digest of the blueprint that it is performed with; empty from a service of an earlier release."""
    attempt: int
    """Number of the current or last attempt, from 1; 0 before the first."""
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    caller: str | None = None
    """The name of the API key that it was started with."""
    user: str | None = None
    """For whom it is."""
    session: str | None = None
    metadata: dict[str, str] = {}
    """What else its caller says of it."""
    usage: Object
    """What it has used so far, in all attempts."""
    notice: str | None = None
    """Set if it has not ended and no process goes on with it, with what helps; if it is queued for a service with
    another blueprint than this one's; and if it was cancelled too late."""


class BackgroundRun(RunFacts):
    """A background run."""

    result: JsonValue = None
    """Of a run that succeeded: the response of `/run`; with `?data=true` that of `/run?data=true`."""
    messages: list[Object] | None = None
    """Of a run that succeeded: the conversation, with its turn, for the `messages` of the next run; null of a run that
    a service of an earlier release has performed."""
    problem: Object | None = None
    """Of a run that failed, was cancelled or interrupted: the problem."""
    approval: Approval | None = None
    """Of a run that waits for approval: the question."""
    decisions: list[Decision]
    actions: list[RunAction] = []
    """Who cancelled, resumed or moved it, and when."""
    input: str | list[Object] | Object | None = None
    """With `?inputs=true`: what it was asked. A text, or a list of texts, images, files and audio, was the `input` of
    its request, an object its `inputs`. Null of a run that goes on from a stopped one, or began at a later step."""
    input_messages: list[Object] | None = None
    """With `?inputs=true`: the `messages` of its request, which are earlier turns. Null if it had none; the turns of a
    conversation that the service keeps are not among them."""
    input_cut: bool = False
    """Whether `input_messages`, or `input` too, are left out because together they are larger than 1 MiB."""


RunContent = Literal[
    "result", "messages", "problem", "approval", "decisions", "actions"
]
RUN_CONTENTS: tuple[RunContent, ...] = get_args(RunContent)
"""The fields of a run that may be large, which a list has only if they are asked for."""


class ListedRun(RunFacts):
    """A background run in a list. What may be large is there only if `fields` names it; see `BackgroundRun`."""

    code: str | None = None
    """Of a run with a problem: the code of that."""
    result: JsonValue = None
    messages: list[Object] | None = None
    problem: Object | None = None
    approval: Approval | None = None
    decisions: list[Decision] | None = None
    actions: list[RunAction] | None = None


class BlueprintChange(BaseModel):
    """One difference between two blueprints."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    pointer: str
    """JSON pointer; an entry of a list of named entries is addressed by its name."""
    op: Literal["added", "removed", "changed"]
    old: JsonValue
    """The value before; null if it was added."""
    new: JsonValue
    """The value after; null if it was removed."""
    breaking: bool
    """Whether those who call or deploy the old component may fail with the new one."""


class MovedRun(BackgroundRun):
    """A background run that was moved to the served blueprint, or with `check` may be."""

    changes: list[BlueprintChange]
    """What is different in the served blueprint, from the one that the run had."""


class ModelClient(BaseModel):
    """The client that calls a model."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    client: str
    """`openai`, `anthropic`, `litellm`, or `own` for a registered provider."""
    reason: str
    """Why this one."""


class Info(BaseModel):
    """A description of the service."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    name: str
    kind: Kind
    title: str
    description: str
    versions: dict[str, str]
    """Versions of `podwright`, the `blueprint` schema, `python`, and the price lists: `genai-prices`, `litellm`."""
    blueprint: Object
    inputs: dict[str, Object] = {}
    """The JSON Schemas of the inputs that the component declares, by name; a `default` makes one optional."""
    response_schema: Object | None = None
    """The JSON Schema of its answers; null if they are texts. A workflow has none."""
    digest: str
    """Digest of the blueprint's canonical JSON."""
    previous: list[str] = []
    """Digests of the earlier blueprints with which background runs are performed that began with them."""
    models: dict[str, list[str]]
    """The models that the blueprints have `named`, those that are `effective`, and those that functions call by
    themselves, which are `reported`."""
    clients: dict[str, ModelClient]
    """How each of the effective models is called."""
    tools: list[str]
    agents: list[str]
    """Names of the remote components that the served component uses."""
    mcp: dict[str, bool | None] = {}
    """Whether the MCP servers answered when this process called them last, by name; null if it has not called one."""
    accepts: dict[str, list[str]]
    """The `models`, `tools`, `agents`, `mcp` and `conditions` that an inline blueprint may name; these agents are parts
    of the served component, and remote components of the settings, and `mcp` has tools as `server/tool`, or `server`
    for all tools of one."""
    openai: bool
    """Whether the service has the OpenAI-compatible routes below `/v1`."""
    limits: dict[str, int | float | None]
