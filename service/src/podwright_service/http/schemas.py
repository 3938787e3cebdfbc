"""The JSON of requests and responses.

The docstrings of the models and of their fields are the descriptions in the OpenAPI document.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    RootModel,
    model_validator,
)
from pydantic_core import PydanticCustomError

from podwright.components import Component
from podwright.connection.schemas import Approval, ListedRun, Object, RunStatus
from podwright.functions.run_context import (
    MAX_IDENTITY,
    MAX_METADATA,
    MAX_METADATA_NAME,
    MAX_METADATA_VALUE,
)
from podwright.kinds import Kind
from podwright.messages.approvals import APPROVE
from podwright.messages.conversation import (
    ContentParts,
    Conversation,
    ConversationMessage,
)

AgentName = Annotated[str, Field(max_length=100)]
Identity = Annotated[str, Field(max_length=MAX_IDENTITY)]
MetadataName = Annotated[str, Field(max_length=MAX_METADATA_NAME)]
MetadataValue = Annotated[str, Field(max_length=MAX_METADATA_VALUE)]


class RequestModel(BaseModel):
    """A body: unknown keys are errors, and values are not converted."""

    model_config = ConfigDict(
        extra="forbid", strict=True, use_attribute_docstrings=True
    )


class RunDecision(RequestModel):
    """What a person has decided about the question at which a run paused."""

    decision: Annotated[str, Field(min_length=1, max_length=100)] = APPROVE
    """One of the options of the question."""
    comment: Annotated[str, Field(max_length=2000)] = ""
    """Why; a workflow can use it, and a model whose tool call is rejected is told."""
    values: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    """New values of what the question lets a person change, by name."""


class RunRequest(RequestModel):
    """Run the component on one of `input` and `inputs` (spec §4.2)."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [{"required": ["input"]}, {"required": ["inputs"]}]
        }
    )

    input: str | ContentParts = ""
    """A text, or a list of texts, images, files and audio."""
    inputs: dict[str, JsonValue] = Field(
        default_factory=dict[str, JsonValue],
        json_schema_extra={"minProperties": 1},
    )
    """Values by name, as the component declares them. They fill `{name}` in instructions and step inputs."""
    messages: Conversation = Field(default_factory=list[ConversationMessage])
    """Earlier turns of the conversation, oldest first, as `messages` of a trace has them."""
    start_step: int = Field(default=0, ge=0)
    """Workflows: index of the step to start from."""
    resume_path: Annotated[list[int], Field(max_length=64)] | None = None
    """Workflows: to resume, the `resume_path` of the problem, with its `context` as `inputs`."""
    decision: RunDecision | None = None
    """To let a run go on that waited for a person: what was decided, with the `context` of the problem as `inputs`; by
    default it is approved."""
    user: Identity | None = None
    """For whom the run is; its functions are told, and it is shown on spans, in the log and in the background run."""
    session: Identity | None = None
    """The session or conversation that the run is a part of; told and shown as `user` is."""
    metadata: (
        Annotated[
            dict[MetadataName, MetadataValue], Field(max_length=MAX_METADATA)
        ]
        | None
    ) = None
    """What else the functions of the run are to know; shown as `user` is, so it must have no secrets."""

    def user_name(self) -> str:
        """The user; empty if the request names none. For `Sender`, as the next methods."""
        return self.user or ""

    def session_name(self) -> str:
        """The session; empty if the request names none."""
        return self.session or ""

    def metadata_values(self, component: Component) -> Mapping[str, str]:
        """The metadata; the same for each component."""
        return self.metadata or {}

    _needs_input: ClassVar[bool] = False
    """Whether a body without any input is wrong, whatever the component."""

    @model_validator(mode="after")
    def _check_form(self) -> Self:
        names = self.model_fields_set & {"input", "inputs"}
        # of a component whose inputs all have defaults, a run needs none
        if len(names) == 2 or (self._needs_input and not names):
            # a ValueError would keep its traceback, and with it the body, until the next garbage collection
            raise PydanticCustomError(
                "value_error", "Expected exactly one of 'input' and 'inputs'"
            )
        return self


class InlineBlueprint(RequestModel):
    """Check a blueprint without running it."""

    type: Kind | None = None
    """The kind of the blueprint; by default the kind that it names itself."""
    blueprint: Object
    """A blueprint, as `podwright schema` describes it."""
    agents: dict[AgentName, Object] = Field(default_factory=dict[str, Object])
    """Blueprints of agents that the blueprint names; agents of the served component need none."""


class InlineRunRequest(RunRequest):
    """Run a blueprint (spec §4.2) on one of `input` and `inputs`."""

    _needs_input: ClassVar[bool] = True

    type: Kind
    """The kind of the blueprint."""
    blueprint: Object
    """A blueprint of this kind, as `podwright schema` describes it."""
    agents: dict[AgentName, Object] = Field(default_factory=dict[str, Object])
    """Blueprints of agents that the blueprint names; agents of the served component need none."""


NumberOfRuns = Annotated[int, Field(ge=1, le=1_000_000_000)]
_NOT_BOTH = ConfigDict(
    json_schema_extra={"not": {"required": ["input", "inputs"]}}
)


class EstimateRequest(RunRequest):
    """Estimate runs of the component on one of `input` and `inputs`; without both, on an input that is not known."""

    model_config = _NOT_BOTH

    runs: NumberOfRuns = 1
    """How many runs there are."""


class InlineEstimateRequest(InlineRunRequest):
    """Estimate runs of a blueprint on one of `input` and `inputs`; without both, on an input that is not known."""

    model_config = _NOT_BOTH
    _needs_input: ClassVar[bool] = False

    runs: NumberOfRuns = 1
    """How many runs there are."""


class RunOutput(BaseModel):
    """The response of an agent, a conductor or a pipeline (spec §4.3)."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    output: str
    """The answer as text; JSON if it is structured."""
    data: JsonValue = None
    """A structured answer as data; missing if the answer is only a text."""


class WorkflowContext(RootModel[dict[str, str]]):
    """The response of a workflow (spec §4.3): its context, `input` and an `<agent_name>_output` for each agent."""


class WorkflowData(RootModel[dict[str, JsonValue]]):
    """The response of a workflow with `?data=true`: its context, in which the outputs that are data are not texts."""


class Trace(BaseModel):
    """The response with `?trace=true`: an execution result (spec §2.5)."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    format: str
    value: JsonValue
    """What the response is without the trace: the output, or the context."""
    events: list[Object]
    """What happened, in order."""
    duration_ms: float
    usage: Object
    messages: list[Object] = []
    """The conversation after the run, to be sent with the next input."""
    data: JsonValue = None
    """The result as data if it is more than texts: a structured answer, or the context of a workflow with data."""


class RunToApprove(BaseModel):
    """A background run as it is shown to a caller whose API key has the scope `approve` but not `run`."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="forbid")

    id: str
    component: str
    status: RunStatus
    attempt: int
    created_at: datetime
    caller: str | None = None
    """The name of the API key that it was started with."""
    approval: Approval | None = None
    """The question; null once it is answered. In a list only if `fields` names it."""
    notice: str | None = None
    """Set if it has not ended and no process goes on with it, with what helps; if it is queued for a service with
    another blueprint than this one's; and if it was cancelled too late."""


class BackgroundRunPage(BaseModel):
    """A page of background runs, newest first."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    runs: list[ListedRun | RunToApprove]
    next: str | None
    """The `cursor` of the next page; null on the last one."""


class ListedConversation(BaseModel):
    """A conversation that the service keeps."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    session: str
    """The caller's name of it; of responses that go on from each other, the id of the first one."""
    turns: int
    bytes: int
    """The size of its messages as JSON."""
    created_at: datetime
    updated_at: datetime
    """When its last turn ended."""


class ShownConversation(ListedConversation):
    """A conversation with its messages."""

    messages: list[Object]
    """The messages of its turns, oldest first, as `messages` of a trace has them."""


class ConversationPage(BaseModel):
    """A page of conversations, the one with the newest turn first."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    conversations: list[ListedConversation]
    next: str | None
    """The `cursor` of the next page; null on the last one."""


class Deletion(BaseModel):
    """What was deleted."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    conversations: int
    runs: int
    """Background runs."""


class DecisionRequest(RunDecision):
    """Decide about what a run waits for."""

    attempt: int | None = None
    """The `attempt` of the run whose question was read; another question is then not answered by mistake."""


class Status(BaseModel):
    """The state of the service."""

    status: Literal["ok", "ready", "starting", "draining"]


REQUEST_BODIES: Mapping[str, type[BaseModel]] = {
    "/run": RunRequest,
    "/run/stream": RunRequest,
    "/estimate": EstimateRequest,
    "/estimate-blueprint": InlineEstimateRequest,
    "/run-blueprint": InlineRunRequest,
    "/runs": RunRequest,
    "/runs/{run_id}/approve": DecisionRequest,
    "/runs/{run_id}/reject": DecisionRequest,
    "/validate-blueprint": InlineBlueprint,
}
"""The bodies of the routes whose unknown keys get a suggestion."""
