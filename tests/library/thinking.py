"""A provider whose model thinks, and that refuses a conversation without the thoughts that it gave."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Style:
    """How a provider writes thoughts."""

    model: str
    source: str
    """A report of what happens without them."""
    message: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further fields of a message."""
    call: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further fields of its tool call."""
    pieces: tuple[Mapping[str, Any], ...] = ()
    """The further fields of the message in the chunks of a stream; by default in one."""
    reasoning: str = ""
    """What of them is text for people."""


_DETAILS = [
    {
        "type": "reasoning.summary",
        "summary": "Look it up.",
        "format": "openai-responses-v1",
        "index": 0,
    },
    {
        "type": "reasoning.encrypted",
        "data": "gAAAAA==",
        "id": "rs_1",
        "format": "openai-responses-v1",
        "index": 1,
    },
]
_THINKING = {
    "type": "thinking",
    "thinking": [{"type": "text", "text": "Look it up."}],
}

STYLES = {
    "Moonshot": Style(
        "moonshot/kimi-k2.6",
        "https://github.com/continuedev/continue/issues/11527",
        {"reasoning_content": "Look it up."},
        pieces=({"reasoning_content": "Look "}, {"reasoning_content": "it up."}),
        reasoning="Look it up.",
    ),
    "DeepSeek": Style(
        "deepseek/deepseek-v4-pro",
        "https://github.com/crewAIInc/crewAI/issues/5878",
        {"reasoning_content": "Look it up."},
        reasoning="Look it up.",
    ),
    "vLLM": Style(
        "hosted_vllm/qwen3", "", {"reasoning": "Look it up."}, pieces=({"reasoning": "Look it"}, {"reasoning": " up."}),
        reasoning="Look it up.",
    ),
    "OpenRouter": Style(
        "openrouter/openai/gpt-5",
        "https://openrouter.ai/docs/use-cases/reasoning-tokens",
        {"reasoning": "Look it up.", "reasoning_details": _DETAILS},
        pieces=(
            {"reasoning": "Look ", "reasoning_details": [{**_DETAILS[0], "summary": "Look "}]},
            {"reasoning": "it up.", "reasoning_details": [{**_DETAILS[0], "summary": "it up."}]},
            {"reasoning": None, "reasoning_details": [_DETAILS[1]]},
        ),
        reasoning="Look it up.",
    ),
    "Gemini": Style(
        "openai/gemini-3-pro-preview",
        "https://github.com/securo-finance/securo/issues/884",
        call={"extra_content": {"google": {"thought_signature": "EjQKMg=="}}},
    ),
    "Vertex": Style(
        "openai/gemini-3-flash",
        "https://github.com/earendil-works/pi/issues/6733",
        {"extra_content": {"vertex": {"thought": True}}},
        {"extra_content": {"vertex": {"thought_signature": "AY89a1=="}}},
    ),
    "Mistral": Style(
        "mistral/magistral-medium",
        "https://docs.mistral.ai/capabilities/reasoning/",
        {"content": [_THINKING]},
        pieces=(
            {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Look it up."}]}]},
        ),
        reasoning="Look it up.",
    ),
    "a provider of tomorrow": Style(
        "hosted_vllm/next",
        "",
        {"state": {"kept": [1, {"x": None}], "text": "opaque"}, "seal": "s" * 2000},
        {"proof": "p" * 1500},
    ),
}  # fmt: skip


@dataclass
class ThinkingProvider:
    """Answers with a call of the tool `look` until it has been called `calls` times in a turn, and then with a text."""

    style: Style
    calls: int = 3
    books: list[Json] = field(default_factory=list[Json])
    """The messages that it has given, in their order."""

    def answer(self, body: Json) -> tuple[int, Any]:
        """Status and body (JSON data, or the events of a stream) for a request."""
        given = [
            message
            for message in body["messages"]
            if message["role"] == "assistant"
        ]
        expected = self._known(given)
        if given != expected:
            error = {
                "message": f"The thoughts are missing: {json.dumps(given)}",
                "type": "invalid_request_error",
            }
            return 400, {"error": error}
        made = 0
        for message in body["messages"]:
            made = (
                0
                if message["role"] == "user"
                else made + bool(message.get("tool_calls"))
            )
        message = self._message(len(self.books), asks=made < self.calls)
        self.books.append(message)
        return 200, self._chunks(message) if body.get(
            "stream"
        ) else self._completion(message)

    def _known(self, given: list[Json]) -> list[Json]:
        """The messages in the books that a request should have: as many as it has, found by their texts or ids."""
        by_key = {self._key(message): message for message in self.books}
        return [by_key.get(self._key(message), {}) for message in given]

    @staticmethod
    def _key(message: Json) -> str:
        calls = message.get("tool_calls")
        return calls[0]["id"] if calls else json.dumps(message.get("content"))

    def _message(self, number: int, *, asks: bool) -> Json:
        message: Json = {
            "role": "assistant",
            "content": None if asks else f"Answer {number}.",
            **self.style.message,
        }
        if not asks and isinstance(message["content"], list):
            message["content"] = [
                *message["content"],
                {"type": "text", "text": f"Answer {number}."},
            ]
        if asks:
            function = {
                "name": "look",
                "arguments": json.dumps({"word": f"w{number}"}),
            }
            call = {
                "id": f"call-{number}",
                "type": "function",
                "function": function,
                **self.style.call,
            }
            message["tool_calls"] = [call]
        return message

    @staticmethod
    def _completion(message: Json) -> Json:
        reason = "tool_calls" if message.get("tool_calls") else "stop"
        usage = {
            "prompt_tokens": 20,
            "completion_tokens": 4,
            "total_tokens": 24,
        }
        return {
            "id": "c",
            "choices": [
                {"index": 0, "message": message, "finish_reason": reason}
            ],
            "usage": usage,
        }

    def _chunks(self, message: Json) -> list[Json]:
        deltas: list[Json] = [
            {"role": "assistant"},
            *map(dict, self.style.pieces or (self.style.message,)),
        ]
        if not message.get("tool_calls"):
            deltas.append({"content": f"Answer {len(self.books) - 1}."})
        for call in message.get("tool_calls", ()):
            function = call["function"]
            deltas.append(
                {
                    "tool_calls": [
                        {
                            **call,
                            "index": 0,
                            "function": {**function, "arguments": ""},
                        }
                    ]
                }
            )
            deltas.append(
                {
                    "tool_calls": [
                        {
                            "index": 0,
                            "function": {"arguments": function["arguments"]},
                        }
                    ]
                }
            )
        end = {
            "index": 0,
            "delta": {},
            "finish_reason": "tool_calls"
            if message.get("tool_calls")
            else "stop",
        }
        chunks = [
            {
                "id": "c",
                "choices": [
                    {"index": 0, "delta": delta, "finish_reason": None}
                ],
            }
            for delta in deltas
        ]
        usage = {
            "prompt_tokens": 20,
            "completion_tokens": 4,
            "total_tokens": 24,
        }
        return [
            *chunks,
            {"id": "c", "choices": [end]},
            {"id": "c", "choices": [], "usage": usage},
        ]
