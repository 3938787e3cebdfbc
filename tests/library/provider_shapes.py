"""What providers, and the gateways before them, really send: one row for each shape, with what is right for it.

A row names the provider, what comes, what is right, and the report or document that shows the shape. A row says so if
LiteLLM reads its shape otherwise, before we see it; such a row is not for that client.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.library.upstream import (
    STREAM,
    Script,
    call,
    chunk,
    completion,
    delta,
    reply,
    sse,
    streamed,
)

from podwright import errors

Json = dict[str, Any]
SSE = "text/event-stream; charset=utf-8"
OPENAI = "litellm-openai"
VLLM = "litellm-vllm"
LITELLM = (OPENAI, VLLM)


def not_with(reason: str, *clients: str) -> Mapping[str, str]:
    """Why a row is not for some clients, by default those of LiteLLM; `…-plain` and `…-streaming` are one way."""
    return dict.fromkeys(clients or LITELLM, reason)


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What every row has."""

    provider: str
    what: str
    """What comes, in a few words."""
    source: str
    """The report: `owner/repository#number` on GitHub, or the URL of a document."""
    without: Mapping[str, str] = field(default_factory=dict)
    """By client: why the row is not for it."""

    @property
    def id(self) -> str:
        return f"{self.provider}: {self.what}"


# --- thoughts and signatures, which go back as they came


@dataclass(frozen=True, kw_only=True)
class Thought(Shape):
    """An answer with a tool call and something that the provider wants back with it."""

    model: str
    message: Json
    """The assistant's message of a completion, which goes back."""
    deltas: tuple[Json, ...]
    """The same in a stream."""
    reasoning: str = ""
    """The thoughts as a text."""


LOOK_UP_SEA = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "look_up", "arguments": '{"word": "sea"}'},
}
SIGNATURE = "EqQBCkYIBxABGAIqQL8pT0" * 4
"""Signatures are long texts, which nobody can read."""


def thought(
    model: str,
    what: str,
    source: str,
    fields: Json,
    *pieces: Json,
    made: Json | None = None,
    **more: Any,
) -> Thought:
    """A row whose message has further fields; without `pieces`, a stream has them in one delta."""
    tool_call: Json = {**LOOK_UP_SEA, **(made or {})}
    return Thought(
        provider=model, what=what, source=source, model=model,
        message={"role": "assistant", "content": None, **fields, "tool_calls": [tool_call]},
        deltas=(*(pieces or (fields,)), {"tool_calls": [{"index": 0, **tool_call}]}), **more,
    )  # fmt: skip


def signed(
    what: str, source: str, extra: Json, *deltas: Json, **more: Any
) -> Thought:
    """A row whose tool call has further fields."""
    row = thought(
        "openai/gemini-3-pro-preview", what, source, {}, {}, made=extra, **more
    )
    return replace(row, deltas=deltas) if deltas else row


def detail(kind: str, index: int | None = 0, **fields: Any) -> Json:
    """An item of OpenRouter's `reasoning_details`."""
    return {
        "type": f"reasoning.{kind}",
        **fields,
        **({} if index is None else {"index": index}),
    }


CLAUDE: Json = {"format": "anthropic-claude-v1"}
BY_OPENAI: Json = {"format": "openai-responses-v1"}
THOUGHT = "The user wants a word. I should look it up."
HALVES: tuple[str, str] = (THOUGHT[:20], THOUGHT[20:])
VERTEX = {"extra_content": {"vertex": {"thought_signature": SIGNATURE}}}
GOOGLE = {"extra_content": {"google": {"thought_signature": SIGNATURE}}}
THINKING = {"type": "thinking", "thinking": [{"type": "text", "text": THOUGHT}]}
UNKNOWN = {
    "thought_token": {"kid": "k1", "parts": [{"index": 0, "sig": "abc"}]}
}
BLOCKS = [
    {"type": "thinking", "thinking": THOUGHT, "signature": SIGNATURE},
    {"type": "redacted_thinking", "data": "EmwKAhgBEgy3va3pzix"},
]

LOST = not_with(
    "LiteLLM drops the pieces of a stream that have nothing else",
    "litellm-streaming",
)
RENAMED = not_with(
    "LiteLLM sends it back as reasoning_content, which vLLM takes too",
    "litellm-streaming",
)
NOT_SENT = not_with("LiteLLM sends no thoughts back to Mistral", "litellm")
UNKNOWN_TO_US = not_with(
    "LiteLLM knows no such provider, or we do not know that it speaks this protocol",
    "litellm",
)

THOUGHTS = [
    thought(
        "moonshot/kimi-k2.6", "reasoning_content", "MoonshotAI/kimi-agent-sdk#169", {"reasoning_content": THOUGHT},
        *({"reasoning_content": half} for half in HALVES), reasoning=THOUGHT,
    ),
    thought(
        "deepseek/deepseek-v4-pro", "reasoning_content", "the-open-agent/openagent#2206",
        {"reasoning_content": THOUGHT}, *({"reasoning_content": half, "content": None} for half in HALVES),
        reasoning=THOUGHT,
    ),
    thought(
        "deepseek/deepseek-v4-pro", "thoughts beside a text", "QwenLM/qwen-code#3724",
        {"reasoning_content": THOUGHT, "content": "Let me see."},
        {"reasoning_content": THOUGHT}, {"content": "Let me "}, {"content": "see."}, reasoning=THOUGHT,
    ),
    thought(
        "hosted_vllm/qwen3", "reasoning", "vllm-project/vllm#50624", {"reasoning": THOUGHT},
        *({"reasoning": half} for half in HALVES), reasoning=THOUGHT,
        without=RENAMED,
    ),
    thought(
        "openrouter/anthropic/claude-sonnet-4.5", "text in pieces, the signature in a piece of its own",
        "agno-agi/agno#8794",
        {"reasoning": "Let me compute 17 * 23.",
         "reasoning_details": [detail("text", text="Let me compute 17 * 23.", signature="Et8BCmUIDxgC", **CLAUDE)]},
        {"reasoning": "Let", "reasoning_details": [detail("text", text="Let", **CLAUDE)]},
        {"reasoning": " me compute 17 * 23.",
         "reasoning_details": [detail("text", text=" me compute 17 * 23.", **CLAUDE)]},
        {"reasoning_details": [detail("text", signature="Et8BCmUIDxgC", **CLAUDE)]},
        reasoning="Let me compute 17 * 23.",
        without=LOST,
    ),
    thought(
        "openrouter/google/gemini-3-pro-preview", "encrypted", "agentjido/req_llm#300",
        {"reasoning_details": [detail("encrypted", data=SIGNATURE, id="rs_1", format="google-gemini-v1")]},
        without=LOST,
    ),
    thought(
        "openrouter/openai/gpt-5.2", "a summary in pieces and an encrypted item, numbered by type", "vercel/ai#7014",
        {"reasoning_details": [
            detail("summary", summary=THOUGHT, **BY_OPENAI),
            detail("encrypted", data="gAAAAB", id="rs_1", **BY_OPENAI),
        ]},
        *({"reasoning_details": [detail("summary", summary=half, **BY_OPENAI)]} for half in HALVES),
        {"reasoning_details": [detail("encrypted", data="gAAAAB", id="rs_1", **BY_OPENAI)]},
        reasoning=THOUGHT,
        without=LOST,
    ),
    thought(
        "openrouter/anthropic/claude-sonnet-4.5", "two blocks that alternate", "0xPlaygrounds/rig#1391",
        {"reasoning_details": [detail("text", 0, text="One.", signature="s1"),
                               detail("text", 1, text="Two.", signature="s2")]},
        {"reasoning_details": [detail("text", 0, text="On"), detail("text", 1, text="Tw")]},
        {"reasoning_details": [detail("text", 1, text="o.", signature="s2")]},
        {"reasoning_details": [detail("text", 0, text="e.", signature="s1")]},
        without=LOST,
    ),
    thought(
        "openrouter/google/gemini-3-pro-preview", "whole items without an index", "pailat/adk-llm-bridge#82",
        {"reasoning_details": [detail("encrypted", None, data="a", id="x"), detail("encrypted", None, data="b")]},
        {"reasoning_details": [detail("encrypted", None, data="a", id="x")]},
        {"reasoning_details": [detail("encrypted", None, data="b")]},
        without=LOST,
    ),
    thought(
        "minimax/MiniMax-M2.7", "details in pieces", "MiniMax-AI/MiniMax-M2#95",
        {"reasoning_details": [detail("text", text=THOUGHT, id="reasoning-text-1", format="MiniMax-response-v1")]},
        *({"reasoning_details": [detail("text", text=half, id="reasoning-text-1", format="MiniMax-response-v1")]}
          for half in HALVES),
        reasoning=THOUGHT,
        without=UNKNOWN_TO_US,
    ),
    thought(
        "mistral/magistral-medium-2509", "thoughts in the content", "BerriAI/litellm#16272",
        {"content": [THINKING, {"type": "text", "text": "Let me see."}]},
        *({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": half}]}]} for half in HALVES),
        {"content": "Let me "}, {"content": "see."},
        reasoning=THOUGHT,
        without=NOT_SENT,
    ),
    thought(
        "mistral/mistral-medium-2604", "nothing but thoughts in the content", "agentjido/req_llm#742",
        {"content": [THINKING]},
        *({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": half}]}]} for half in HALVES),
        reasoning=THOUGHT,
        without=NOT_SENT,
    ),
    thought(
        "litellm_proxy/claude", "blocks of Anthropic in pieces", "openai/openai-agents-python#4155",
        {"reasoning_content": THOUGHT, "thinking_blocks": BLOCKS},
        *({"reasoning_content": half,
           "thinking_blocks": [{"type": "thinking", "thinking": half, "signature": ""}]} for half in HALVES),
        {"thinking_blocks": [{"type": "thinking", "thinking": "", "signature": SIGNATURE}]},
        {"thinking_blocks": [BLOCKS[1]]},
        reasoning=THOUGHT,
        without=LOST,
    ),
    thought(
        "anyone/model", "a field that nobody knows yet", "https://platform.openai.com/docs/api-reference/chat", UNKNOWN,
        {"thought_token": {"kid": "k1", "parts": [{"index": 0, "sig": "a"}]}},
        {"thought_token": {"parts": [{"index": 0, "sig": "bc"}]}},
        made=UNKNOWN,
        without=UNKNOWN_TO_US,
    ),
    signed("a signed tool call", "openai/openai-python#2758", GOOGLE),
    signed("a signed tool call of Vertex", "earendil-works/pi#6733", VERTEX),
    signed(
        "a signature in a later piece than the name", "tinyhumansai/openhuman#3548", GOOGLE,
        {"tool_calls": [{"index": 0, **LOOK_UP_SEA}]}, {"tool_calls": [{"index": 0, **GOOGLE}]}, without=LOST,
    ),
    signed(
        "a signature that each piece repeats", "crmne/ruby_llm#588", GOOGLE,
        {"tool_calls": [{"index": 0, **GOOGLE, **call(id="call_1", name="look_up", arguments="")}]},
        {"tool_calls": [{"index": 0, **GOOGLE, **call(arguments='{"word": "sea"}')}]},
    ),
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class NativeThought(Shape):
    """The same in a protocol of the provider's own, which LiteLLM speaks."""

    model: str
    path: str
    """What of the request has the message that goes back."""
    parts: list[Json]
    """The parts of the message, and what goes back."""
    stream: Script
    body: Json


def of_anthropic(
    what: str, source: str, *blocks: Json, streams: bool = True
) -> NativeThought:
    """A row of Anthropic's Messages."""
    parts = [
        *blocks,
        {
            "type": "tool_use",
            "id": "call_1",
            "name": "look_up",
            "input": {"word": "sea"},
        },
    ]
    message: Json = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-haiku-4-5", "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 6},
    }  # fmt: skip
    events: list[Json] = [
        {
            "type": "message_start",
            "message": {**message, "content": [], "stop_reason": None},
        }
    ]
    for index, block in enumerate(parts):
        begun, *deltas = _block_in_pieces(block)
        events.append(
            {
                "type": "content_block_start",
                "index": index,
                "content_block": begun,
            }
        )
        events += [
            {"type": "content_block_delta", "index": index, "delta": piece}
            for piece in deltas
        ]
        events.append({"type": "content_block_stop", "index": index})
    end = {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use"},
        "usage": {"output_tokens": 6},
    }
    events += [end, {"type": "message_stop"}]
    text = "".join(
        f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
        for event in events
    )
    return NativeThought(
        provider="Anthropic", what=what, source=source, model="anthropic/claude-haiku-4-5", path="messages",
        parts=parts, stream=streamed(text.encode()), body={**message, "content": parts, "stop_reason": "tool_use"},
    )  # fmt: skip


def _block_in_pieces(block: Json) -> list[Json]:
    match block["type"]:
        case "thinking":
            half = len(block["thinking"]) // 2
            halves = filter(
                None, (block["thinking"][:half], block["thinking"][half:])
            )
            pieces = [
                {"type": "thinking_delta", "thinking": text} for text in halves
            ]
            end = {"type": "signature_delta", "signature": block["signature"]}
            return [
                {"type": "thinking", "thinking": "", "signature": ""},
                *pieces,
                end,
            ]
        case "tool_use":
            written = {
                "type": "input_json_delta",
                "partial_json": json.dumps(block["input"]),
            }
            return [{**block, "input": {}}, written]
        case _:
            return [block]


def of_gemini(what: str, source: str, *parts: Json) -> NativeThought:
    """A row of Gemini's `generateContent`."""
    used = {
        "promptTokenCount": 10,
        "candidatesTokenCount": 6,
        "totalTokenCount": 16,
    }
    candidate = {
        "content": {"role": "model", "parts": list(parts)},
        "finishReason": "STOP",
        "index": 0,
    }
    body = {
        "candidates": [candidate],
        "usageMetadata": used,
        "modelVersion": "gemini-3-pro-preview",
    }
    return NativeThought(
        provider="Gemini", what=what, source=source, model="gemini/gemini-3-pro-preview", path="contents",
        parts=list(parts), stream=streamed(sse(body, done=False)), body=body,
    )  # fmt: skip


FIND_SEA = {"functionCall": {"name": "look_up", "args": {"word": "sea"}}}
NATIVE_THOUGHTS = [
    of_anthropic("a thought", "NousResearch/hermes-agent#4626", BLOCKS[0]),
    of_anthropic(
        "a thought and a redacted one", "anomalyco/opencode#38614", *BLOCKS
    ),
    of_anthropic("a redacted thought alone", "dcdpr/jp#136", BLOCKS[1]),
    of_anthropic(
        "two thoughts",
        "0xPlaygrounds/rig#1391",
        BLOCKS[0],
        {**BLOCKS[0], "thinking": "Once more."},
    ),
    of_gemini(
        "a signed call",
        "JetBrains/koog#1148",
        {**FIND_SEA, "thoughtSignature": SIGNATURE},
    ),
]


# --- the end of an answer


@dataclass(frozen=True, kw_only=True)
class End(Shape):
    """A stream, or a completion, and whether it is an answer."""

    stream: Script
    plain: Script | None = None
    error: type[errors.ModelError] | None = None
    """The error of the run; None if there is an answer, which is "Hi."."""
    tokens: int | None = None
    """Input and output tokens that are counted, if the provider counts them."""


HI = delta(content="Hi.")
FIRST_CALL = delta(tool_calls=[{"index": 0, **LOOK_UP_SEA}])
USED = {"prompt_tokens": 20, "completion_tokens": 4, "total_tokens": 24}
FAULT = {
    "error": {"message": "TimeoutError", "type": "GatewayTimeout", "code": 504}
}
DONE_IS_AN_END = not_with(
    "LiteLLM takes [DONE] for a finish reason (BerriAI/litellm#40578)", VLLM
)
OTHER_REASON = not_with(
    'LiteLLM makes it "stop", and does not say what it was', f"{VLLM}-streaming"
)


def finished(
    reason: Any, *, text: str = "Half", **more: Any
) -> tuple[Script, Script]:
    """A completion and a stream that end for a reason."""
    body = completion(text)
    body["choices"][0]["finish_reason"] = reason
    ends = {**delta(reason), **more}
    return [reply({**body, **more})], streamed(sse(delta(content=text), ends))


def ended(
    reason: str,
    error: type[errors.ModelError],
    source: str,
    provider: str,
    **more: Any,
) -> End:
    """A row of a finish reason that is no answer's end."""
    plain, stream = finished(reason)
    return End(
        provider=provider, what=f"finish reason {reason}", source=source, plain=plain, stream=stream, error=error,
        **more,
    )  # fmt: skip


TRUNCATED = errors.ModelResponseError
UNAVAILABLE = errors.ModelUnavailableError
ENDS = [
    End(
        provider="gateway", what="cut off after a text", source="vercel/ai#19165",
        stream=streamed(sse(HI, done=False)), error=TRUNCATED,
    ),
    End(
        provider="gateway", what="cut off after a text, then DONE", source="vercel/ai#19165",
        stream=streamed(sse(HI)), error=TRUNCATED, without=DONE_IS_AN_END,
    ),
    End(
        provider="gateway", what="cut off before a text", source="earendil-works/pi#8460",
        stream=streamed(sse(delta(role="assistant", content=""), done=False)), error=TRUNCATED,
    ),
    End(
        provider="gateway", what="cut off before a text, then DONE", source="earendil-works/pi#8460",
        stream=streamed(sse(delta(role="assistant", content=""))), error=TRUNCATED,
    ),
    End(
        provider="gateway", what="cut off between two tool calls", source="pydantic/pydantic-ai#6610",
        stream=streamed(sse(FIRST_CALL, done=False)), error=TRUNCATED,
    ),
    End(
        provider="gateway", what="cut off between two tool calls, then DONE", source="pydantic/pydantic-ai#6610",
        stream=streamed(sse(FIRST_CALL)), error=TRUNCATED, without=DONE_IS_AN_END,
    ),
    End(
        provider="gateway", what="cut off within the arguments, then DONE", source="14790897/MiqroForge-Desktop#1100",
        stream=streamed(sse(delta(tool_calls=[call(index=0, id="a", name="look_up", arguments='{"wo')]))),
        error=TRUNCATED, without=DONE_IS_AN_END,
    ),
    End(
        provider="gateway", what="only thoughts so far", source="griffinwork40/agent-afk#635",
        stream=streamed(sse(delta(reasoning_content="Hm."), done=False)), error=TRUNCATED,
    ),
    End(
        provider="gateway", what="only thoughts so far, then DONE", source="griffinwork40/agent-afk#635",
        stream=streamed(sse(delta(reasoning_content="Hm."))), error=TRUNCATED,
    ),
    End(
        provider="gateway", what="counts, but no finish reason", source="vllm-project/aibrix#2540",
        stream=streamed(sse(HI, {"choices": [], "usage": USED})), error=TRUNCATED, tokens=24, without=DONE_IS_AN_END,
    ),
    End(
        provider="gateway", what="a finish reason, then the connection ends", source="earendil-works/pi#8460",
        stream=[STREAM, chunk(sse(HI, delta("stop"), done=False)), "close"],
    ),
    End(
        provider="gateway", what="a finish reason without DONE", source="earendil-works/pi#8460",
        stream=streamed(sse(HI, delta("stop"), done=False)),
    ),
    End(
        provider="Ollama", what="a completion without a finish reason", source="pydantic/pydantic-ai#2996",
        plain=finished(None, text="Hi.")[0], stream=streamed(sse(HI, delta("stop"))),
    ),
    End(
        provider="vLLM", what="an error after a text", source="vllm-project/guidellm#743",
        stream=streamed(sse(HI, FAULT)), error=UNAVAILABLE,
    ),
    End(
        provider="vLLM", what="an error without the key error after a text", source="vllm-project/guidellm#743",
        stream=streamed(sse(HI, {"object": "error", "message": "EngineDeadError", "code": 500})), error=UNAVAILABLE,
        without=DONE_IS_AN_END,
    ),
    End(
        provider="vLLM", what="an error within a tool call", source="BerriAI/litellm#40578",
        stream=streamed(sse(FIRST_CALL, FAULT)), error=UNAVAILABLE,
    ),
    End(
        provider="gateway", what="an error after the finish reason", source="BerriAI/litellm#40578",
        stream=streamed(sse(HI, delta("stop"), FAULT)), error=UNAVAILABLE,
    ),
    End(
        provider="gateway", what="a text that is no JSON after a text", source="tenstorrent/tt-studio#936",
        stream=streamed(sse(HI, "upstream timed out")), error=TRUNCATED,
        without=DONE_IS_AN_END,
    ),
    End(
        provider="OpenRouter", what="an error beside a finish reason", source="gethouston/houston#1211",
        stream=streamed(sse(HI, {**delta("error", content=""), "error": {"code": 502, "message": "Died."}})),
        error=UNAVAILABLE,
    ),
    ended(
        "error", UNAVAILABLE, "maximhq/bifrost#5425", "OpenRouter",
        without=OTHER_REASON,
    ),
    ended(
        "abort", UNAVAILABLE, "vllm-project/vllm#57082", "vLLM",
        without=OTHER_REASON,
    ),
    ended(
        "network_error", UNAVAILABLE, "promptfoo/promptfoo#9905", "Z.ai",
        without=OTHER_REASON,
    ),
    ended(
        "insufficient_system_resource", UNAVAILABLE, "https://api-docs.deepseek.com/api/create-chat-completion",
        "DeepSeek", without=OTHER_REASON,
    ),
    ended(
        "sensitive", errors.ContentFilterError, "langgenius/dify#7559", "Zhipu",
    ),
    ended("model_context_window_exceeded", errors.ModelError, "mozilla-ai/any-llm#1200", "Z.ai",
        without=OTHER_REASON,
    ),
    ended(
        "MALFORMED_FUNCTION_CALL", errors.ModelToolCallError, "google-gemini/gemini-cli#12674", "Gemini",
        without=OTHER_REASON,
    ),
]  # fmt: skip


# --- errors


@dataclass(frozen=True, kw_only=True)
class Refusal(Shape):
    """An error, and what is found in it."""

    body: bytes
    status: int = 400
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    error: type[errors.ModelError] = errors.ModelRequestError
    transient: bool = False
    words: tuple[str, ...] = ()
    """What `provider_error` has."""
    retry_after: float | None = None
    generation: str = ""
    """What the model wrote, if that is what the provider refuses."""


def refusal(
    provider: str,
    what: str,
    source: str,
    body: object,
    status: int = 400,
    **more: Any,
) -> Refusal:
    """A row of an error; the body is bytes, or JSON data."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Refusal(
        provider=provider,
        what=what,
        source=source,
        body=data,
        status=status,
        **more,
    )


def in_stream(
    provider: str, what: str, source: str, *events: object, **more: Any
) -> Refusal:
    """A row of an error in a response with status 200 that is a stream."""
    return refusal(
        provider, what, source, sse(*events), 200, content_type=SSE, **more
    )


TOO_LONG = (
    "The request exceeds the model's maximum context length of 196608 tokens."
)
CONTEXT: Json = {"error": errors.ContextWindowError}
NO_CREDIT: Json = {"error": errors.ModelRateLimitError}
BUSY: Json = {"error": errors.ModelRateLimitError, "transient": True}
DOWN: Json = {"error": errors.ModelUnavailableError, "transient": True}
BAD_KEY: Json = {"error": errors.ModelAuthenticationError}
BAD_CALL: Json = {"error": errors.ModelToolCallError, "transient": True}
EXHAUSTED = {
    "code": 429,
    "message": "Quota exceeded.",
    "status": "RESOURCE_EXHAUSTED",
}
RETRY_INFO = {
    "@type": "type.googleapis.com/google.rpc.RetryInfo",
    "retryDelay": "34.4s",
}
KEY_REASON = {
    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
    "reason": "API_KEY_INVALID",
}
UPSTREAM = "z-ai/glm-5.3-flash is temporarily rate-limited upstream."
GENERATION = '<function=look_up={"word": "sea"}</function>'
EVENT_OF_ERROR = b'event: error\ndata: {"message": "upstream connect error", "code": 503}\n\n'
PAGE = b"<html><head><style>p {color: red}</style><title>502</title></head><body><h1>Bad Gateway</h1></body></html>"
NO_REASON = not_with("LiteLLM drops its code and its words")
LIST = not_with("LiteLLM reads no list")
MISFRAMED = "LiteLLM reads no error that has the wrong framing"

REFUSALS = [
    # objects
    refusal(
        "OpenAI", "an object", "https://platform.openai.com/docs/guides/error-codes",
        {"error": {"message": "Unsupported value.", "type": "invalid_request_error", "param": "seed", "code": "unsup"}},
        words=("code: unsup", "param: seed", "Unsupported value."),
    ),
    refusal(
        "Moonshot", "a type that is no type, and one around it", "MoonshotAI/kimi-agent-sdk#169",
        {"error": {"type": "<nil>", "message": "reasoning_content is missing."}, "type": "error"},
        words=("reasoning_content is missing.",),
    ),
    refusal(
        "gateway", "a code that is a text", "suyiiyii/AutoGLM-GUI#396",
        {"error": {"code": "400", "message": "Param Incorrect", "param": "It must be passed back.", "type": ""}},
        words=("code: 400", "param: It must be passed back.", "Param Incorrect"),
    ),
    refusal(
        "openclaude", "429 as a text", "Gitlawb/openclaude#1549",
        {"error": {"message": "Rate limit exceeded.", "type": "rate_limit_error", "code": "429"}}, 429, **BUSY,
        words=("code: 429",),
    ),
    refusal(
        "Anthropic", "overloaded", "https://docs.claude.com/en/api/errors",
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, 529, **DOWN,
        words=("Overloaded",),
    ),
    refusal(
        "Azure", "a content filter", "https://learn.microsoft.com/azure/ai-foundry/openai/concepts/content-filter",
        {"error": {"message": "The response was stopped.", "param": "prompt", "code": "X", "status": 400,
                   "innererror": {"code": "ResponsibleAIPolicyViolation"}}},
        error=errors.ContentFilterError, words=("param: prompt",),
    ),
    refusal(
        "DashScope", "an object without the key error", "JetBrains/koog#2096",
        {"code": "InvalidParameter", "message": "The arguments must be in JSON format.", "request_id": "r"},
        words=("code: InvalidParameter", "must be in JSON format"),
    ),
    refusal(
        "SiliconFlow", "a code of its own, without the key error", "agentscope-ai/QwenPaw#433",
        {"code": 20015, "message": "reasoning_content is missing", "data": None},
        words=("code: 20015", "reasoning_content is missing"),
    ),
    refusal(
        "Ollama", "a text under the key error", "https://docs.ollama.com/api/errors",
        {"error": "model 'x' not found"}, 404, words=("model 'x' not found",),
    ),
    refusal(
        "TGI", "overloaded", "https://huggingface.co/docs/text-generation-inference",
        {"error": "Model is overloaded", "error_type": "overloaded"}, 429, **BUSY, words=("Model is overloaded",),
    ),
    refusal(
        "FastAPI", "problems", "hiyouga/LlamaFactory#2644",
        {"detail": [{"loc": ["body", "messages", 2, "content"], "msg": "none is not allowed", "type": "type_error"}]},
        422, words=("body.messages.2.content: none is not allowed",),
    ),
    refusal(
        "FastAPI", "a text", "etalab-ia/OpenGateLLM#104", {"detail": "Invalid JSON body (line 5)"},
        words=("Invalid JSON body (line 5)",),
    ),
    refusal(
        "FastAPI", "an object in the detail", "basketikun/chatgpt2api#171",
        {"detail": {"error": {"message": "No such model.", "code": "model_not_found"}}}, 404,
        words=("code: model_not_found", "No such model."),
    ),
    refusal(
        "Cloudflare", "a list of errors", "https://developers.cloudflare.com/fundamentals/api/reference/errors",
        {"success": False, "errors": [{"code": 10000, "message": "Authentication error"}], "result": None}, 403,
        **BAD_KEY, words=("code: 10000", "Authentication error"),
    ),
    refusal(
        "NestJS", "a name under the key error", "https://docs.nestjs.com/exception-filters",
        {"statusCode": 401, "message": "Invalid key", "error": "Unauthorized"}, 401, **BAD_KEY,
        words=("code: 401", "Invalid key"),
    ),
    refusal(
        "nginx", "a page", "https://nginx.org/en/docs/http/ngx_http_core_module.html", PAGE, 502,
        content_type="text/html", **DOWN, words=("Bad Gateway",),
    ),
    refusal(
        "proxy", "a text", "https://www.rfc-editor.org/rfc/rfc6585", b"slow down", 429, content_type="text/plain",
        **BUSY, words=("slow down",),
    ),
    refusal("proxy", "nothing", "https://www.rfc-editor.org/rfc/rfc9110", b"", 503, **DOWN),
    refusal(
        "gateway", "a server-sent event with status 400", "jgravelle/jmunch-mcp#5",
        sse({"error": {"message": "No such tool.", "code": "bad_tool"}}), content_type=SSE,
        words=("code: bad_tool", "No such tool."),
    ),
    # lists
    refusal(
        "Google", "a list", "openai/openai-python#2758",
        [{"error": {"code": 400, "message": "Function call is missing a thought_signature.",
                    "status": "INVALID_ARGUMENT"}}],
        words=("code: 400", "missing a thought_signature"),
    ),
    refusal(
        "Google", "a list, and errors within", "vybestack/llxprt-code#148",
        [{"error": {"code": 429, "message": "Quota exceeded.", "status": "RESOURCE_EXHAUSTED",
                    "errors": [{"message": "Other.", "reason": "rateLimit"}], "details": [RETRY_INFO]}}], 429, **BUSY,
        retry_after=34.4, words=("code: 429", "Quota exceeded."),
    ),
    refusal(
        "Google", "a list with an invalid key", "cyberchitta/openai_ex#126",
        [{"error": {"code": 400, "message": "Please pass a valid API key.", "status": "INVALID_ARGUMENT",
                    "details": [KEY_REASON]}}],
        **BAD_KEY, words=("Please pass a valid API key.",),
    ),
    refusal(
        "Google", "a list, overloaded", "cyberchitta/openai_ex#126",
        [{"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}], 503, **DOWN,
        words=("The model is overloaded.",),
    ),
    refusal(
        "Google", "a list with status 200", "cyberchitta/openai_ex#126", [{"error": EXHAUSTED}], 200, **BUSY,
        words=("code: 429", "Quota exceeded."), without=LIST,
    ),
    refusal(
        "Google", "an object", "vercel/ai#18627", {"error": {**EXHAUSTED, "details": [RETRY_INFO]}}, 429, **BUSY,
        retry_after=34.4, words=("code: 429",),
    ),
    # too long
    refusal(
        "llama.cpp", "too long, with status 200", "oobabooga/textgen#7257",
        {"error": {"code": 400, "message": "the request exceeds the available context size.",
                   "type": "exceed_context_size_error", "n_prompt_tokens": 14429, "n_ctx": 8192}}, 200, **CONTEXT,
        words=("exceeds the available context size",), without=not_with(MISFRAMED, f"{OPENAI}-streaming"),
    ),
    refusal(
        "llama.cpp", "too long, with status 500", "ggml-org/llama.cpp#15780",
        {"error": {"code": 500, "message": "the request exceeds the available context size.",
                   "type": "exceed_context_size_error", "n_prompt_tokens": 1407, "n_ctx": 256}}, 500, **CONTEXT,
    ),
    in_stream(
        "llama.cpp", "too long, in a stream", "ggml-org/llama.cpp#14566",
        {"error": {"code": 400, "message": TOO_LONG, "type": "exceed_context_size_error"}}, **CONTEXT,
    ),
    refusal(
        "ds4", "too long", "antirez/ds4#150",
        {"error": {"message": "Prompt tokens (9) exceeds context size (8)", "type": "context_exceeded"}}, **CONTEXT,
    ),
    in_stream(
        "sglang", "too long, in a stream", "sgl-project/sglang#22785",
        {"error": {"object": "error", "message": TOO_LONG, "type": "BadRequestError", "param": None, "code": 400}},
        **CONTEXT, words=("code: 400",),
    ),
    in_stream(
        "FastChat", "too long, without the key error, in a stream", "BerriAI/litellm#25492",
        {"object": "error", "message": TOO_LONG, "type": "BadRequestError", "param": None, "code": 400},
        **CONTEXT, words=("code: 400",),
        without=not_with("LiteLLM drops it: the stream is cut off", f"{OPENAI}-streaming", f"{VLLM}-streaming"),
    ),
    # no credit
    refusal(
        "DeepSeek", "no credit", "continuedev/continue#9853", {"error": {"message": "Insufficient Balance"}}, 402,
        **NO_CREDIT,
    ),
    refusal(
        "Anthropic", "no credit", "anthropics/claude-code#4684",
        {"type": "error", "error": {"type": "invalid_request_error", "message": "Your credit balance is too low."}},
        **NO_CREDIT, words=("Your credit balance is too low.",),
    ),
    refusal(
        "MiniMax", "no credit, with status 500", "MiniMax-AI/MiniMax-M2#62",
        {"type": "error", "error": {"type": "api_error", "message": "insufficient balance (1008)"}}, 500, **NO_CREDIT,
    ),
    refusal(
        "ModelScope", "no credit, with status 429", "modelscope/modelscope#1691",
        {"error": {"http_code": "429", "message": "1008", "type": "insufficient_balance_error"}, "request_id": "r"},
        429, **NO_CREDIT, words=("code: 429",),
    ),
    refusal(
        "sub2api", "no credit, with status 403", "Wei-Shaw/sub2api#890",
        {"code": "INSUFFICIENT_BALANCE", "message": "See your account."}, 403, **NO_CREDIT,
        words=("code: INSUFFICIENT_BALANCE",),
    ),
    refusal(
        "MiniMax", "no credit, beside no choices", "archestra-ai/archestra#2527",
        {"id": "c1", "choices": None, "base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}}, 200,
        **NO_CREDIT, words=("code: 1008", "insufficient balance"), without=NO_REASON,
    ),
    # with status 200
    refusal(
        "gateway", "an object with status 200", "xsigoking/chatgpt-free-api#11",
        {"status": False, "error": {"message": "error decoding", "type": "invalid_request_error"}}, 200,
        words=("error decoding",), without=not_with(MISFRAMED, f"{OPENAI}-streaming", f"{VLLM}-streaming"),
    ),
    in_stream(
        "gateway", "words alone, in a stream", "apache/rocketmq-dashboard#2178",
        {"error": {"message": "quota exceeded"}}, **DOWN, words=("quota exceeded",),
    ),
    in_stream(
        "exo", "a code, in a stream", "exo-explore/exo#1758",
        {"error": {"message": "out of memory", "type": "InternalServerError", "code": 500}}, **DOWN,
        words=("code: 500", "out of memory"),
    ),
    in_stream(
        "gateway", "a code with words alone, in a stream", "BerriAI/litellm#40578",
        {"error": {"message": "Queue full.", "code": "rate_limit_exceeded"}}, **BUSY, words=("Queue full.",),
        without=not_with("LiteLLM drops its code", f"{VLLM}-streaming"),
    ),
    in_stream(
        "Anthropic", "a type, in a stream", "https://docs.claude.com/en/api/errors",
        {"error": {"type": "authentication_error", "message": "invalid x-api-key"}}, **BAD_KEY,
        words=("invalid x-api-key",), without=not_with("LiteLLM drops its type"),
    ),
    refusal(
        "gateway", "an event named error", "https://html.spec.whatwg.org/multipage/server-sent-events.html",
        EVENT_OF_ERROR, 200, content_type=SSE, **DOWN, words=("code: 503", "upstream connect error"),
        without=not_with(MISFRAMED, f"{OPENAI}-streaming", f"{VLLM}-streaming"),
    ),
    refusal(
        "Google", "JSON with the type of a stream", "comet-ml/opik#1138",
        {"code": 429, "message": "Resource has been exhausted.", "details": "RESOURCE_EXHAUSTED"}, 200,
        content_type=SSE, **BUSY, words=("code: 429", "Resource has been exhausted."),
        without=not_with(MISFRAMED),
    ),
    refusal(
        "llm_wiki", "an object with the type of a stream", "nashsu/llm_wiki#619",
        {"error": {"message": "model not loaded", "type": "server_error"}}, 200, content_type=SSE, **DOWN,
        words=("model not loaded",), without=not_with(MISFRAMED, OPENAI, f"{VLLM}-plain"),
    ),
    # how long to wait
    refusal(
        "OpenRouter", "the words of the provider behind it", "open-webui/computer#293",
        {"error": {"message": "Provider returned error", "code": 429,
                   "metadata": {"raw": UPSTREAM, "provider_name": "BaseTen"}}}, 429, **BUSY,
        words=("Provider returned error", UPSTREAM),
    ),
    refusal(
        "OpenRouter", "JSON of the provider behind it", "open-webui/computer#293",
        {"error": {"message": "Provider returned error", "code": 400,
                   "metadata": {"raw": json.dumps({"error": {"message": TOO_LONG}})}}}, **CONTEXT,
        words=("Provider returned error", TOO_LONG),
    ),
    refusal(
        "OpenRouter", "headers in the body", "Gitlawb/openclaude#936",
        {"error": {"message": "Rate limit exceeded: free-models-per-day.", "code": 429, "metadata": {"headers": {
            "X-RateLimit-Limit": "50", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1741305600000"}}}}, 429,
        **BUSY, retry_after=0.0,
    ),
    refusal(
        "Azure", "milliseconds in a header", "Azure/azure-openai-benchmark#31", {"error": {"code": "429"}}, 429, **BUSY,
        headers={"retry-after-ms": "1500"}, retry_after=1.5,
    ),
    refusal(
        "Azure", "x-rate-limit-reset-tokens", "openai/openai-python#937", {"error": {"code": "429"}}, 429, **BUSY,
        headers={"x-rate-limit-reset-tokens": "55"}, retry_after=55.0,
    ),
    refusal(
        "Azure", "a reset of nothing", "openai/openai-dotnet#838", {"error": {"code": "429"}}, 429, **BUSY,
        headers={"x-ratelimit-remaining-tokens": "-1", "x-ratelimit-reset-tokens": "0"},
    ),
    refusal(
        "Groq", "the reset of what is exhausted", "groq/groq-typescript#28", {"error": {"code": "429"}}, 429, **BUSY,
        headers={
            "x-ratelimit-remaining-requests": "14399", "x-ratelimit-remaining-tokens": "0",
            "x-ratelimit-reset-requests": "6m", "x-ratelimit-reset-tokens": "1.57s",
        }, retry_after=1.57,
    ),
    refusal(
        "Anthropic", "the time of what is exhausted", "anthropics/anthropic-sdk-typescript#357",
        {"type": "error", "error": {"type": "rate_limit_error", "message": "Slow down."}}, 429, **BUSY,
        headers={
            "anthropic-ratelimit-requests-remaining": "0",
            "anthropic-ratelimit-requests-reset": "2024-03-26T20:00:00Z",
            "anthropic-ratelimit-tokens-remaining": "16000",
            "anthropic-ratelimit-tokens-reset": "2999-03-26T20:00:00Z",
        }, retry_after=0.0,
    ),
    # tool calls of its own model
    refusal(
        "Groq", "a tool call that it cannot read", "groq/groq-typescript#28",
        {"error": {"message": "Failed to call a function. See 'failed_generation'.", "type": "invalid_request_error",
                   "code": "tool_use_failed", "failed_generation": GENERATION}}, **BAD_CALL, generation=GENERATION,
        words=("code: tool_use_failed",),
    ),
    refusal(
        "Groq", "a tool call that does not fit", "HunorLaczko/ha-groq-cloud-api#20",
        {"error": {"message": "tool call validation failed: [`/domain`: expected array, but got string]",
                   "type": "invalid_request_error", "param": "", "code": "tool_use_failed"}, "request_id": "r"},
        **BAD_CALL, words=("expected array, but got string",),
    ),
]  # fmt: skip


# --- framings


@dataclass(frozen=True, kw_only=True)
class Framing(Shape):
    """A body, the answer in it, and what is said of one that cannot be read."""

    script: Script
    streaming: tuple[bool, ...] = (False, True)
    """Whether a stream was asked for."""
    text: str | None = "Fine."
    """The answer; None if it cannot be read."""
    words: tuple[str, ...] = ()
    """What is said of one that cannot be read."""


FINE = [
    delta(role="assistant", content="Fi"), delta(content="ne."), delta("stop"), {"choices": [], "usage": USED},
]  # fmt: skip
WHOLE = completion("Fine.")
OF_FINE = sse(*FINE)
COMMENTS = b": OPENROUTER PROCESSING\n\n"
EMPTY = b"data: \n\n"


def framing(
    provider: str,
    what: str,
    source: str,
    body: bytes,
    content_type: str = SSE,
    **more: Any,
) -> Framing:
    """A row of a whole body."""
    return Framing(
        provider=provider,
        what=what,
        source=source,
        script=[reply(body, 200, content_type)],
        **more,
    )


def in_chunks(
    provider: str, what: str, source: str, *pieces: bytes, **more: Any
) -> Framing:
    """A row of a stream whose pieces the network delivers one by one."""
    more = {"streaming": (True,), **more}
    return Framing(
        provider=provider,
        what=what,
        source=source,
        script=streamed(*pieces),
        **more,
    )


def split_at(body: bytes, mark: bytes) -> list[bytes]:
    """The body in pieces that end after the first byte of each mark."""
    first, *rest = body.split(mark)
    pieces = [
        first + mark[:1],
        *(mark[1:] + part + mark[:1] for part in rest[:-1]),
        mark[1:] + rest[-1],
    ]
    assert b"".join(pieces) == body
    return pieces


NO_STREAM = not_with(
    "LiteLLM reads a stream only where it asked for one",
    f"{OPENAI}-plain",
    f"{VLLM}-plain",
)
NO_ANSWER = "LiteLLM reads an answer without the framing of events only where it asked for none"
NO_COMPLETION = not_with(NO_ANSWER, f"{OPENAI}-streaming", f"{VLLM}-streaming")
CRLF = OF_FINE.replace(b"\n", b"\r\n")

FRAMINGS = [
    framing("gateway", "a stream where none was asked for", "rohitg00/agentmemory#526", OF_FINE, without=NO_STREAM),
    framing(
        "gateway", "a completion where a stream was asked for", "MiniMax-AI/MiniMax-M3#22", json.dumps(WHOLE).encode(),
        "application/json", without=NO_COMPLETION,
    ),
    framing(
        "gateway", "a completion with the type of a stream", "MiniMax-AI/MiniMax-M3#22", json.dumps(WHOLE).encode(),
        without=NO_COMPLETION,
    ),
    framing(
        "9router", "a completion with DONE after it", "decolua/9router#3492",
        json.dumps(WHOLE).encode() + b"\n\ndata: [DONE]\n\n", without=not_with(NO_ANSWER),
    ),
    framing("proxy", "a stream as text/plain", "BYK/loreai#605", OF_FINE, "text/plain", without=NO_STREAM),
    framing(
        "proxy", "a stream as application/octet-stream", "BYK/loreai#605", OF_FINE, "application/octet-stream",
        without=NO_STREAM,
    ),
    framing("proxy", "a stream as application/json", "BYK/loreai#605", OF_FINE, "application/json", without=NO_STREAM),
    framing("sse-starlette", "CRLF", "hey-api/hey-api#3054", CRLF, streaming=(True,)),
    in_chunks(
        "sse-starlette", "CRLF that the network splits", "rexxars/eventsource-parser#17", *split_at(CRLF, b"\r\n"),
    ),
    framing("server", "CR", "whatwg/html#4411", OF_FINE.replace(b"\n", b"\r"), streaming=(True,)),
    framing(
        "server", "CRLF and LF", "Effect-TS/effect#7670", CRLF[:40] + OF_FINE[len(CRLF[:40].replace(b"\r", b"")) :],
        streaming=(True,),
    ),
    framing("proxy", "a byte order mark", "agentic-os-org/ANOLISA#2209", b"\xef\xbb\xbf" + OF_FINE, streaming=(True,),
            without=not_with("LiteLLM loses the first event")),
    framing(
        "proxy", "a byte order mark before JSON", "agentic-os-org/ANOLISA#2209",
        b"\xef\xbb\xbf" + json.dumps(WHOLE).encode(), "application/json", streaming=(False,),
    ),
    framing(
        "server", "no space after the colon", "praxis-proxy/praxis#739", OF_FINE.replace(b"data: ", b"data:"),
        streaming=(True,),
    ),
    in_chunks(
        "server", "each byte for itself", "praxis-proxy/praxis#739", *(OF_FINE[at : at + 1] for at in range(300)),
        OF_FINE[300:],
    ),
    framing("OpenRouter", "comments", "https://openrouter.ai/docs/api-reference/streaming",
            COMMENTS + sse(*FINE[:2], done=False) + b": keep-alive\n\n" + sse(*FINE[2:]), streaming=(True,)),
    framing("proxy", "an event without data", "https://html.spec.whatwg.org/multipage/server-sent-events.html",
            EMPTY + sse(FINE[0], done=False) + EMPTY + sse(*FINE[1:]), streaming=(True,),
            without=not_with("LiteLLM reads no empty event", OPENAI)),
    framing("Anthropic", "a ping", "tensorzero/tensorzero#5481",
            b'event: ping\ndata: {"type": "ping"}\n\n' + OF_FINE, streaming=(True,)),
    framing("gateway", "a ping without a name", "tensorzero/tensorzero#5481",
            b'data: {"type": "ping"}\n\n' + OF_FINE, streaming=(True,)),
    framing("server", "id and retry fields", "https://html.spec.whatwg.org/multipage/server-sent-events.html",
            b"retry: 10000\nid: 1\n" + OF_FINE, streaming=(True,)),
    framing("server", "chunks without the framing of events", "https://jsonlines.org",
            b"\n".join(json.dumps(each).encode() for each in FINE), "application/x-ndjson",
            without=not_with(NO_ANSWER, OPENAI, f"{VLLM}-plain")),
    framing("server", "no blank line at the end", "zavora-ai/adk-rust#645", sse(*FINE, done=False).rstrip(),
            streaming=(True,)),
    framing("foundry-local", "a message beside each delta", "microsoft/foundry-local#144",
            sse(*({**each, "choices": [{**choice, "message": choice["delta"]} for choice in each["choices"]]}
                  for each in FINE)), streaming=(True,)),
    framing("MiniMax", "the whole message at the end", "cline/cline#9215",
            sse(*FINE[:2], {**WHOLE, "choices": [{"index": 0, "finish_reason": "stop", "message": {
                "role": "assistant", "content": "Fine."}}]}), streaming=(True,)),
    framing("MiniMax", "an empty role", "MiniMax-AI/MiniMax-M2.5#2",
            sse(*({**each, "base_resp": {"status_code": 0, "status_msg": ""}} for each in FINE)), streaming=(True,)),
    framing("ingress", "a page with status 200", "zeitlings/ayai-gpt-nexus#15", PAGE, "text/html", text=None,
            words=("status 200", "text/html", "Bad Gateway")),
    framing("proxy", "nothing", "openai/openai-node#115", b"", "application/json", text=None,
            words=("status 200", "application/json")),
    framing("proxy", "a text", "openai/openai-node#115", b"no healthy upstream", "text/plain", text=None,
            words=("status 200", "text/plain", "no healthy upstream")),
    framing("CLIProxyAPI", "an object without anything", "router-for-me/CLIProxyAPI#2190",
            b'{"id": "", "object": "", "model": "", "usage": {"prompt_tokens": 0}}', "application/json", text=None,
            words=("status 200", "application/json")),
    framing("gateway", "nothing but DONE", "decolua/9router#2231", b"data: [DONE]\n\n", text=None,
            words=("status 200", "text/event-stream")),
]  # fmt: skip


# --- tool calls in pieces


@dataclass(frozen=True, kw_only=True)
class Calls(Shape):
    """The pieces of tool calls, one chunk each, and the calls that they are."""

    pieces: tuple[Any, ...]
    """A piece, or those of one chunk."""
    calls: tuple[tuple[str, Json], ...] = (
        ("add", {"a": 1, "b": 2}),
        ("add", {"a": 3, "b": 4}),
    )
    """Name and arguments."""
    reason: str = "tool_calls"

    @property
    def script(self) -> Script:
        groups = [
            list(each) if isinstance(each, tuple) else [each]
            for each in self.pieces
        ]
        chunks = [delta(tool_calls=group) for group in groups]
        return streamed(
            sse(
                delta(role="assistant", content=None),
                *chunks,
                delta(self.reason),
            )
        )


def calls(
    provider: str, what: str, source: str, *pieces: Any, **more: Any
) -> Calls:
    return Calls(
        provider=provider, what=what, source=source, pieces=pieces, **more
    )


def at(
    index: int | None,
    id_: str | None = "",
    name: str | None = "",
    arguments: Any = None,
    **more: Any,
) -> Json:
    """A piece of a tool call; an empty id or name is left out."""
    piece = call(
        index=index,
        **({"id": id_} if id_ != "" else {}),
        arguments=arguments,
        type="function",
        **more,
    )
    if name != "":
        piece["function"]["name"] = name
    return piece


def unnumbered(*args: Any) -> Json:
    """A piece without an index."""
    piece = at(None, *args)
    del piece["index"]
    return piece


def no_arguments(what: str, source: str, *pieces: Any, **more: Any) -> Calls:
    """A row of a call of a tool without parameters."""
    return calls(
        "any",
        f"no arguments: {what}",
        source,
        *pieces,
        calls=(("now", {}),),
        **more,
    )


ONE = '{"a": 1, "b": 2}'
TWO = '{"a": 3, "b": 4}'
ONE_IN_TWO = ('{"a": 1,', ' "b": 2}')
TWO_IN_TWO = ('{"a": 3,', ' "b": 4}')
HEADS = (at(0, "c1", "add", ""), at(1, "c2", "add", ""))
AGNO = "agno-agi/agno#8880"
BEDROCK = "openai/openai-agents-js#712"
OLLAMA = "vercel/ai#14277"
UNSLOTH = "unslothai/unsloth#10275"
POOLSIDE = "poolsideai/pool#9"
MLX = "cubist38/mlx-openai-server#216"
NULL = "langchain-ai/langchain#34242"

CALLS = [
    calls("OpenAI", "as documented", "https://platform.openai.com/docs/guides/function-calling",
          at(0, "c1", "add", ""), at(0, arguments=ONE_IN_TWO[0]), at(0, arguments=ONE_IN_TWO[1]),
          at(1, "c2", "add", ""), at(1, arguments=TWO)),
    calls("gateway", "interleaved", "continuedev/continue#13223", *HEADS,
          at(0, arguments=ONE_IN_TWO[0]), at(1, arguments=TWO_IN_TWO[0]),
          at(0, arguments=ONE_IN_TWO[1]), at(1, arguments=TWO_IN_TWO[1])),
    calls("gateway", "interleaved in one chunk", "continuedev/continue#13223", HEADS,
          (at(0, arguments=ONE), at(1, arguments=TWO))),
    calls("vLLM", "two pieces of one call in the first chunk", "openai/openai-python#3201",
          (at(0, "c1", "add", ""), at(0, arguments='{"a": ')), at(0, arguments='1, "b": 2}'),
          (at(1, "c2", "add", ""), at(1, arguments=TWO))),
    # indices that are wrong
    calls("gateway", "the tail of the second under another index", AGNO,
          HEADS[0], at(0, arguments=ONE), at(0, "c2", "add", ""), at(1, arguments=TWO)),
    calls("gateway", "that tail in two pieces", AGNO,
          HEADS[0], at(0, arguments=ONE), at(0, "c2", "add", ""),
          at(1, arguments=TWO_IN_TWO[0]), at(1, arguments=TWO_IN_TWO[1])),
    calls("gateway", "that tail with the id of the head", AGNO,
          HEADS[0], at(0, "c1", arguments=ONE), at(0, "c2", "add", ""), at(1, "c2", arguments=TWO)),
    calls("Nebius", "an index that grows with each piece", "dirac-run/dirac#215",
          at(0, "c1", "add", ""), at(1, arguments=ONE_IN_TWO[0]), at(2, arguments=ONE_IN_TWO[1]),
          at(3, "c2", "add", ""), at(4, arguments=TWO)),
    calls("Ollama", "whole calls, all with index 0", OLLAMA, at(0, "c1", "add", ONE), at(0, "c2", "add", TWO)),
    calls("Ollama", "whole calls in one chunk, all with index 0", OLLAMA,
          (at(0, "c1", "add", ONE), at(0, "c2", "add", TWO))),
    calls("Dynamo", "pieces, all with index 0", "ai-dynamo/dynamo#4723",
          at(0, "c1", "add", ""), at(0, arguments=ONE_IN_TWO[0]), at(0, arguments=ONE_IN_TWO[1]),
          at(0, "c2", "add", ""), at(0, arguments=TWO_IN_TWO[0]), at(0, arguments=TWO_IN_TWO[1])),
    calls("smolagents", "whole calls with index 0 and no ids", "huggingface/smolagents#1958",
          at(0, name="add", arguments=ONE), at(0, name="add", arguments=TWO)),
    calls("gateway", "no index, whole calls", "BerriAI/litellm#33678",
          unnumbered("c1", "add", ONE), unnumbered("c2", "add", TWO), reason="stop"),
    calls("gateway", "no index and no ids, whole calls", "BerriAI/litellm#33678",
          unnumbered("", "add", ONE), unnumbered("", "add", TWO)),
    calls("gateway", "no index, pieces", "BerriAI/litellm#33678",
          unnumbered("c1", "add", ONE_IN_TWO[0]), unnumbered("", "", ONE_IN_TWO[1]),
          unnumbered("c2", "add", TWO_IN_TWO[0]), unnumbered("", "", TWO_IN_TWO[1])),
    calls("gateway", "an index that is null", "BerriAI/litellm#33678",
          at(None, "c1", "add", ONE), at(None, "c2", "add", TWO)),
    calls("Bedrock", "indices from 1", "BerriAI/litellm#11407", at(1, "c1", "add", ONE), at(2, "c2", "add", TWO)),
    # ids
    calls("LiteLLM", "id and name in each piece", "BerriAI/litellm#20480",
          at(0, "c1", "add", ONE_IN_TWO[0]), at(0, "c1", "add", ONE_IN_TWO[1]),
          at(1, "c2", "add", TWO_IN_TWO[0]), at(1, "c2", "add", TWO_IN_TWO[1])),
    calls("LiteLLM", "the whole call once more, encoded twice", "BerriAI/litellm#20480",
          at(0, "c1", "add", ONE_IN_TWO[0]), at(0, "c1", arguments=ONE_IN_TWO[1]),
          at(0, "c1", "add", json.dumps(ONE)), at(1, "c2", "add", TWO)),
    calls("gateway", "the whole call once more", "BerriAI/litellm#20480",
          at(0, "c1", "add", ONE_IN_TWO[0]), at(0, "c1", arguments=ONE_IN_TWO[1]), at(0, "c1", "add", ONE),
          at(1, "c2", "add", TWO)),
    calls("mlx-openai-server", "a new id in each piece", MLX,
          at(0, "c1", "add", ONE_IN_TWO[0]), at(0, "c2", arguments=ONE_IN_TWO[1]),
          at(1, "c3", "add", TWO_IN_TWO[0]), at(1, "c4", arguments=TWO_IN_TWO[1])),
    calls("mlx-openai-server", "a new id and the name in each piece", MLX,
          at(0, "c1", "add", ONE_IN_TWO[0]), at(0, "c2", "add", ONE_IN_TWO[1]),
          at(1, "c3", "add", TWO_IN_TWO[0]), at(1, "c4", "add", TWO_IN_TWO[1])),
    calls("mlx-openai-server", "a new id and the name in each piece, no index", MLX,
          unnumbered("c1", "add", ONE_IN_TWO[0]), unnumbered("c2", "add", ONE_IN_TWO[1]),
          unnumbered("c3", "add", TWO_IN_TWO[0]), unnumbered("c4", "add", TWO_IN_TWO[1])),
    calls("Poolside", "one id for the head and one for the rest", POOLSIDE,
          at(0, "c1", "add", ""), at(0, "x1", arguments=ONE_IN_TWO[0]), at(0, "x1", arguments=ONE_IN_TWO[1]),
          at(1, "c2", "add", ""), at(1, "x2", arguments=TWO)),
    calls("gateway", "the id in the second piece", "QwenLM/Qwen-Agent#943",
          at(0, name="add", arguments=""), at(0, "c1", arguments=ONE),
          at(1, name="add", arguments=""), at(1, "c2", arguments=TWO)),
    calls("gateway", "an empty id and a null name in later pieces", "huggingface/text-generation-inference#1782",
          at(0, "c1", "add", ""), {**at(0, None, None, ONE), "id": ""},
          at(1, "c2", "add", ""), {**at(1, None, None, TWO), "id": ""}),
    calls("vLLM", "no ids", "vllm-project/vllm#18412", at(0, name="add", arguments=ONE),
          at(1, name="add", arguments=TWO)),
    # names
    calls("gateway", "a name in two pieces", "NousResearch/hermes-agent#3468",
          at(0, "c1", "ad", ""), at(0, name="d", arguments=ONE), at(1, "c2", "add", TWO)),
    calls("mlx-lm", "a line break after the name", "ml-explore/mlx-lm#1756",
          at(0, "c1", "add\n", ONE), at(1, "c2", "add\n", TWO)),
    calls("local model", "white space around the name", "code-yeongyu/oh-my-openagent#1568",
          at(0, "c1", " add", ONE), at(1, "c2", "add ", TWO)),
    calls("mlx-lm", "a name that each piece repeats without its line break", "ml-explore/mlx-lm#1612",
          at(0, "c1", "add\n", ""), at(0, "c1", "add", ONE), at(1, "c2", "add\n", TWO)),
    calls("gateway", "empty names in later pieces", "NousResearch/hermes-agent#3468",
          at(0, "c1", "add", ""), {"index": 0, "function": {"name": "", "arguments": ONE}},
          at(1, "c2", "add", ""), {"index": 1, "function": {"name": " ", "arguments": TWO}}),
    # arguments
    calls("Bedrock", "an empty object first", BEDROCK, at(0, "c1", "add", "{}"), at(0, arguments=ONE),
          at(1, "c2", "add", "{}"), at(1, arguments=TWO)),
    calls("Bedrock", "an empty object first, then pieces", BEDROCK, at(0, "c1", "add", "{}"),
          at(0, arguments=ONE_IN_TWO[0]), at(0, arguments=ONE_IN_TWO[1]), at(1, "c2", "add", "{}"),
          at(1, arguments=TWO)),
    calls("Bedrock", "an empty object in several pieces", BEDROCK, at(0, "c1", "add", "{}"), at(0, "c1", "add", "{}"),
          at(0, arguments="{}"), at(0, arguments=ONE), at(1, "c2", "add", "{"), at(1, arguments="}"),
          at(1, arguments=TWO)),
    calls("gateway", "an empty object first, all with index 0", BEDROCK, at(0, "c1", "add", "{}"), at(0, arguments=ONE),
          at(0, "c2", "add", "{}"), at(0, arguments=TWO)),
    calls("gateway", "null first", NULL, at(0, "c1", "add", "null"), at(0, arguments=ONE), at(1, "c2", "add", TWO)),
    calls("gateway", "the arguments twice", UNSLOTH, at(0, "c1", "add", ONE), at(0, arguments=ONE),
          at(1, "c2", "add", TWO), at(1, arguments=TWO)),
    calls("Unsloth", "objects", UNSLOTH, at(0, "c1", "add", json.loads(ONE)), at(1, "c2", "add", json.loads(TWO))),
    calls("Unsloth", "an empty object that is no text, then texts", UNSLOTH, at(0, "c1", "add", {}),
          at(0, arguments=ONE), at(1, "c2", "add", TWO)),
    calls("Granite", "encoded twice", "i-am-bee/beeai-framework#1239",
          at(0, "c1", "add", json.dumps(ONE)), at(1, "c2", "add", json.dumps(TWO))),
    calls("Qwen", "encoded twice, in pieces", "FoundationAgents/OpenManus#989",
          at(0, "c1", "add", json.dumps(ONE)[:9]), at(0, arguments=json.dumps(ONE)[9:]),
          at(1, "c2", "add", json.dumps(TWO))),
    calls("gateway", "encoded twice, after an empty object", "quarkiverse/quarkus-langchain4j#2642",
          at(0, "c1", "add", "{}"), at(0, arguments=json.dumps(ONE)), at(1, "c2", "add", json.dumps(TWO))),
    calls("gateway", "encoded twice, all with index 0 and no ids", "quarkiverse/quarkus-langchain4j#2642",
          at(0, name="add", arguments=json.dumps(ONE)), at(0, name="add", arguments=json.dumps(TWO))),
    calls("gateway", "white space around the arguments", "MoonshotAI/kimi-cli#2572",
          at(0, "c1", "add", "\n "), at(0, arguments=ONE + "\n"), at(1, "c2", "add", " " + TWO)),
    no_arguments("null", NULL, at(0, "c1", "now", None)),
    no_arguments("an empty text", "sigoden/aichat#1217", at(0, "c1", "now", "")),
    no_arguments("the text null", NULL, at(0, "c1", "now", "null")),
    no_arguments("white space", "cheshire-cat-ai/core#1140", at(0, "c1", "now", " \n")),
    no_arguments("an empty list", NULL, at(0, "c1", "now", "[]")),
    no_arguments("nothing at all", "vercel/ai#6687", {"index": 0, "id": "c1", "function": {"name": "now"}}),
    no_arguments("an empty object in pieces", "co-l/openfox#80", at(0, "c1", "now", ""), at(0, arguments="{"),
                 at(0, arguments="}")),
    no_arguments("an empty object, twice", UNSLOTH, at(0, "c1", "now", "{}"), at(0, arguments="{}")),
]  # fmt: skip


# --- token counts


@dataclass(frozen=True, kw_only=True)
class Counts(Shape):
    """The counts of a response, and what is counted."""

    chunks: tuple[Json, ...]
    """What the chunks of a stream have, each for itself; a completion has them all."""
    input: int | None = 20
    """None is an estimate."""
    output: int | None = 4
    cached: int = 0
    reasoning: int = 0
    priced: bool = True
    """Whether the price is known."""
    streams: bool = False
    """Whether only streams have it."""


def counts(
    provider: str, what: str, source: str, *usages: Any, **more: Any
) -> Counts:
    """A row of a usage, or of those of several chunks."""
    chunks = tuple({"usage": usage} for usage in usages)
    return Counts(
        provider=provider,
        what=what,
        source=source,
        chunks=chunks,
        streams=len(usages) > 1,
        **more,
    )


ZEROS = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
BY_NAME = not_with("LiteLLM knows no other places of counts")

COUNTS = [
    counts("OpenAI", "as documented", "https://platform.openai.com/docs/api-reference/chat/object", USED),
    counts("vLLM", "counts that grow in each chunk", "pydantic/pydantic-ai#4056",
           {"prompt_tokens": 20, "completion_tokens": 1, "total_tokens": 21},
           {"prompt_tokens": 20, "completion_tokens": 3, "total_tokens": 23}, USED),
    counts("gateway", "zeros before the counts", "router-for-me/CLIProxyAPI#4053", ZEROS, USED),
    counts("gateway", "zeros after the counts", "router-for-me/CLIProxyAPI#4053", USED, ZEROS),
    counts("xAI", "null after the counts", "openai/openai-agents-python#2126", USED, None),
    counts("MiMo", "null before the counts", "jeremychone/rust-genai#242", None, USED),
    counts("gateway", "input in the first chunk, output in the last", "tensorzero/tensorzero#5481",
           {"prompt_tokens": 20, "completion_tokens": 0}, {"prompt_tokens": 0, "completion_tokens": 4}),
    counts("mlx-vlm", "input_tokens and output_tokens", "earendil-works/pi#2326",
           {"input_tokens": 20, "output_tokens": 4, "total_tokens": 24, "prompt_tps": 21.55}),
    Counts(provider="Moonshot", what="in the choice", source="higress-group/higress#1568",
           chunks=({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": USED}]},), streams=True,
           without=BY_NAME),
    Counts(provider="Groq", what="in x_groq", source="vercel/ai#1651", chunks=({"x_groq": {"id": "r", "usage": USED}},),
           streams=True, without=BY_NAME),
    Counts(provider="Groq", what="in x_groq and in a chunk of their own", source="Portkey-AI/gateway#1338",
           chunks=({"x_groq": {"usage": USED}}, {"choices": [], "usage": USED}), streams=True),
    counts("Gemini", "a total that is more than its parts", "mozilla-ai/any-llm#1290",
           {"prompt_tokens": 20, "completion_tokens": 198, "total_tokens": 623}, output=603, reasoning=405,
           ),
    counts("xAI", "thoughts beside the output", "BerriAI/litellm#17136",
           {**USED, "total_tokens": 33, "completion_tokens_details": {"reasoning_tokens": 9}}, output=13, reasoning=9,
           ),
    counts("OpenAI", "thoughts within the output", "https://platform.openai.com/docs/guides/reasoning",
           {**USED, "completion_tokens_details": {"reasoning_tokens": 3}}, reasoning=3),
    counts("Moonshot", "cached tokens beside the counts", "AstrBotDevs/AstrBot#6614",
           {**USED, "cached_tokens": 16}, cached=16),
    counts("Moonshot", "cached tokens in two places", "Bike4Mind/bike4mind#1089",
           {**USED, "cached_tokens": 16, "prompt_tokens_details": {"cached_tokens": 16}}, cached=16),
    counts("DeepSeek", "cache hits and misses", "https://api-docs.deepseek.com/guides/kv_cache",
           {**USED, "prompt_cache_hit_tokens": 5, "prompt_cache_miss_tokens": 15}, cached=5),
    counts("gateway", "more cached tokens than input", "crewAIInc/crewAI#5699",
           {**USED, "prompt_tokens_details": {"cached_tokens": 99}}, cached=20),
    counts("gateway", "the total alone", "simstudioai/sim#3039", {"total_tokens": 24}, input=None, output=None,
           priced=False),
    counts("MiniMax", "a total of zero", "MiniMax-AI/MiniMax-M2.5#2", {"total_tokens": 0, "total_characters": 0},
           input=None, output=None, priced=False),
    counts("gateway", "output without input, and a total", "raullenchai/Rapid-MLX#721",
           {"prompt_tokens": 0, "completion_tokens": 4, "total_tokens": 24}, priced=False),
    counts("Rapid-MLX", "output without input", "raullenchai/Rapid-MLX#721",
           {"prompt_tokens": 0, "completion_tokens": 4, "total_tokens": 4}, input=None, priced=False),
    counts("gateway", "input without output", "router-for-me/CLIProxyAPI#5743",
           {"prompt_tokens": 20, "completion_tokens": 0, "total_tokens": 20}, output=None, priced=False),
    counts("gateway", "input and a total", "router-for-me/CLIProxyAPI#5743",
           {"prompt_tokens": 20, "completion_tokens": None, "total_tokens": 24}),
    counts("OpenRouter", "nulls and a total of zero", "maximhq/bifrost#5425",
           {"prompt_tokens": None, "completion_tokens": None, "total_tokens": 0}, input=None, output=None,
           priced=False),
    counts("gateway", "whole numbers as floats", "https://www.rfc-editor.org/rfc/rfc8259#section-6",
           {"prompt_tokens": 20.0, "completion_tokens": 4.0, "total_tokens": 24.0}),
    counts("gateway", "texts", "https://www.rfc-editor.org/rfc/rfc8259#section-6",
           {"prompt_tokens": "20", "completion_tokens": "4", "total_tokens": "24"}),
    counts("gateway", "what is no number", "https://www.rfc-editor.org/rfc/rfc8259#section-6",
           {"prompt_tokens": "many", "completion_tokens": {}, "total_tokens": []}, input=None, output=None,
           priced=False, without=not_with("LiteLLM fails")),
    counts("gateway", "negative and impossible numbers", "openai/openai-dotnet#838",
           {"prompt_tokens": -1, "completion_tokens": 10**30, "total_tokens": -1}, input=None, output=None,
           priced=False),
    counts("gateway", "none", "NorthlandPositronics/Cogtrix#2376", None, input=None, output=None, priced=False),
]  # fmt: skip
