"""The names of spans, metrics, attributes and statuses, in one module because the GenAI conventions still change.

Source: open-telemetry/semantic-conventions-genai v0.1.0 (all of `gen_ai.*` and `mcp.*` is in development), but for
`CACHE_WRITE_TOKENS`. Cost has no settled convention: the amount has the name that Langfuse and others read, the
currency and the source those of the open proposal, whose name of the amount Langfuse would count as a kind of tokens.
`input.value` and the like are names of OpenInference, by which Phoenix and Langfuse fill their lists of traces.
`podwright.*` is used where no convention has a name. The HTTP attributes of server spans are FastAPI's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from podwright import events
from podwright.kinds import TRAITS, Kind

OPERATION: Final = "gen_ai.operation.name"
CHAT: Final = "chat"
INVOKE_AGENT: Final = "invoke_agent"
INVOKE_WORKFLOW: Final = "invoke_workflow"
EXECUTE_TOOL: Final = "execute_tool"
PLAN: Final = "plan"

AGENT_NAME: Final = "gen_ai.agent.name"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"

MCP_METHOD: Final = "mcp.method.name"
MCP_CALL: Final = "tools/call"
MCP_PROTOCOL: Final = "mcp.protocol.version"
MCP_DURATION: Final = "mcp.client.operation.duration"
MCP_SERVER: Final = "podwright.mcp.server"

PROVIDER: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_STREAM: Final = "gen_ai.request.stream"
REQUEST_SETTINGS: Final = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "max_tokens": "gen_ai.request.max_tokens",
    "seed": "gen_ai.request.seed",
    "stop": "gen_ai.request.stop_sequences",
}
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
RESPONSE_MODEL: Final = "gen_ai.response.model"
RESPONSE_ID: Final = "gen_ai.response.id"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"

INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHED_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS: Final = "gen_ai.usage.cache_creation.input_tokens"
"""The name before v0.1.0: Langfuse and Phoenix (August 2026) read only this one, and would count both."""
REASONING_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
COST: Final = "gen_ai.usage.cost"
COST_CURRENCY: Final = "gen_ai.usage.cost.currency"
COST_SOURCE: Final = "gen_ai.usage.cost.source"

SPAN_KIND: Final = "openinference.span.kind"
INPUT_VALUE: Final = "input.value"
OUTPUT_VALUE: Final = "output.value"
USER: Final = "user.id"
SESSION: Final = "session.id"
METADATA: Final = "metadata"

INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"

ERROR: Final = "error.type"
EXCEPTION_MESSAGE: Final = "exception.message"
EXCEPTION_TRACEBACK: Final = "exception.stacktrace"

COMPONENT_KIND: Final = "podwright.component.kind"
BLUEPRINT_DIGEST: Final = "podwright.blueprint.digest"
RUN_ID: Final = "podwright.run.id"
RUN_STATUS: Final = "podwright.run.status"
RUN_COST: Final = "podwright.run.cost.usd"
RUN_KNOWN_COST: Final = "podwright.run.known_cost.usd"
RUN_INPUT_TOKENS: Final = "podwright.run.input_tokens"
RUN_OUTPUT_TOKENS: Final = "podwright.run.output_tokens"
UNPRICED_CALLS: Final = "podwright.run.unpriced_model_calls"
PROVIDER_FINISH_REASON: Final = "podwright.model_call.provider_finish_reason"
PRICE_LIST: Final = "podwright.model_call.price_list"
KNOWN_COST: Final = "podwright.model_call.known_cost.usd"
UNPRICED: Final = "podwright.model_call.unpriced"
ROOT: Final = "podwright.root"
CALLER: Final = "podwright.caller"
VIA: Final = "podwright.via"
MODEL_CALLS: Final = "podwright.run.model_calls"
TOOL_CALLS: Final = "podwright.run.tool_calls"
STEP_NAME: Final = "podwright.step.name"
STEP_TYPE: Final = "podwright.step.type"
STEP_PATH: Final = "podwright.step.path"
STEP_OUTCOME: Final = "podwright.step.outcome"
CAUGHT: Final = "podwright.step.error_caught"
CAUGHT_ATTEMPT: Final = "podwright.step.attempt"
CAUGHT_WAIT: Final = "podwright.step.wait"
RETRY: Final = "podwright.model_call.retry"
RETRY_TRIES: Final = "podwright.model_call.tries"
RETRY_WAIT: Final = "podwright.model_call.wait"
FALLBACK: Final = "podwright.model_call.fallback"
FALLBACK_MODEL: Final = "podwright.model_call.failed_model"
REFUSAL: Final = "podwright.refusal.code"
RESUMES: Final = "podwright.resumes"
PROGRESS: Final = "podwright.progress"
PROGRESS_TEXT: Final = "podwright.progress.text"
HISTORY_CUT: Final = "podwright.history.cut"
HISTORY_MESSAGES: Final = "podwright.history.messages"
HISTORY_TURNS: Final = "podwright.history.turns"
HANDOFF: Final = "podwright.handoff"
HANDOFF_FROM: Final = "podwright.handoff.from"
HANDOFF_TO: Final = "podwright.handoff.to"

INFERENCE_DURATION: Final = "gen_ai.client.inference.duration"
INFERENCE_FIRST_CHUNK: Final = "gen_ai.client.inference.time_to_first_chunk"
INFERENCE_CHUNK: Final = "gen_ai.client.inference.time_per_output_chunk"
INFERENCE_INPUT_TOKENS: Final = "gen_ai.client.inference.usage.input_tokens"
INFERENCE_OUTPUT_TOKENS: Final = "gen_ai.client.inference.usage.output_tokens"
INFERENCE_CACHE_READ_TOKENS: Final = (
    "gen_ai.client.inference.usage.cache_read.input_tokens"
)
INFERENCE_CACHE_WRITE_TOKENS: Final = (
    "gen_ai.client.inference.usage.cache_write.input_tokens"
)
INFERENCE_REASONING_TOKENS: Final = (
    "gen_ai.client.inference.usage.reasoning.output_tokens"
)
INFERENCE_CALL_INPUT_TOKENS: Final = (
    "gen_ai.client.inference.operation.input_tokens"
)
INFERENCE_CALL_OUTPUT_TOKENS: Final = (
    "gen_ai.client.inference.operation.output_tokens"
)
EXECUTE_TOOL_DURATION: Final = "gen_ai.execute_tool.duration"
INVOKE_AGENT_DURATION: Final = "gen_ai.invoke_agent.duration"
INVOKE_AGENT_INFERENCE_CALLS: Final = "gen_ai.invoke_agent.inference_calls"
INVOKE_AGENT_TOOL_CALLS: Final = "gen_ai.invoke_agent.tool_calls"
MODALITY: Final = "gen_ai.token.modality"

PROVIDERS: Final = {
    "azure": "azure.ai.openai",
    "azure_ai": "azure.ai.inference",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "vertex_ai": "gcp.vertex_ai",
    "watsonx": "ibm.watsonx.ai",
    "xai": "x_ai",
}
"""The conventions' names of providers, where they differ from the prefix of a model's name."""

RUN_STATUSES: Final = (
    "ok",
    "failed",
    "rejected",
    "refused",
    "cancelled",
    "paused",
)
"""The statuses of runs in spans, metrics and log lines."""


def operation_of(kind: Kind) -> str:
    """Return the conventions' operation of a run of a component."""
    if TRAITS[kind].chats:
        return INVOKE_AGENT
    return INVOKE_WORKFLOW


def span_kind(kind: Kind) -> str:
    """The kind of span in OpenInference for the runs of a kind of component."""
    if TRAITS[kind].chats:
        return "AGENT"
    return "CHAIN"


def run_status(event: events.RunEnded) -> str:
    """The status of a run after its last event."""
    match event:
        case events.RunFailed(is_rejection=True):
            return "rejected"
        case events.RunFailed(is_refusal=True):
            return "refused"
        case events.RunFailed():
            return "failed"
        case events.RunCancelled():
            return "cancelled"
        case events.RunPaused():
            return "paused"
        case _:
            return "ok"


SpanOutcome = Literal["ended", "exported", "failed"]
"""What becomes of spans: some of those that ended may wait, or be dropped because too many wait."""
CountSpans = Callable[[SpanOutcome, int], object]
"""Counts this many spans."""
