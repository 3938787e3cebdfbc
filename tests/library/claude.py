"""A strict fake of Anthropic's Messages API: its documented rules for requests, and answers as it sends them.

Sources, in our words: https://platform.claude.com/docs/en/api/messages/create (requests),
/docs/en/build-with-claude/streaming (events), /docs/en/build-with-claude/thinking (thoughts and their signatures),
/docs/en/api/errors (errors), /docs/en/build-with-claude/prompt-caching (counts).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from tests.library.upstream import Part, Upstream, reply, streamed

from podwright import Agent
from podwright.models import Connection
from podwright.models.protocols.anthropic import MessagesModel
from podwright.models.providers import ENDPOINTS
from podwright.models.retries import Retries

Block = dict[str, Any]
MODEL = "claude-sonnet-4-5"
USAGE = {
    "input_tokens": 10,
    "cache_read_input_tokens": 0,
    "cache_creation_input_tokens": 0,
    "output_tokens": 7,
}


def text(words: str) -> Block:
    return {"type": "text", "text": words}


def tool_use(id_: str, name: str, /, **arguments: Any) -> Block:
    return {"type": "tool_use", "id": id_, "name": name, "input": arguments}


def thinking(words: str, signature: str = "sig-1") -> Block:
    return {"type": "thinking", "thinking": words, "signature": signature}


def message(
    *content: Block, stop: str = "end_turn", model: str = MODEL, **usage: Any
) -> dict[str, Any]:
    """A whole answer."""
    return {
        "id": "msg_01",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": list(content),
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {**USAGE, **usage},
    }


def events(answer: dict[str, Any], piece: int = 5) -> list[dict[str, Any]]:
    """The events of a streamed answer."""
    usage = answer["usage"]
    start = {
        **answer,
        "content": [],
        "stop_reason": None,
        "usage": {**usage, "output_tokens": 1},
    }
    found: list[dict[str, Any]] = [
        {"type": "message_start", "message": start},
        {"type": "ping"},
    ]
    for index, block in enumerate(answer["content"]):
        begun, deltas = _pieces(block, piece)
        found.append(
            {
                "type": "content_block_start",
                "index": index,
                "content_block": begun,
            }
        )
        found += [
            {"type": "content_block_delta", "index": index, "delta": delta}
            for delta in deltas
        ]
        found.append({"type": "content_block_stop", "index": index})
    end = {"stop_reason": answer["stop_reason"], "stop_sequence": None}
    counts = {
        key: usage[key]
        for key in ("output_tokens", "output_tokens_details")
        if key in usage
    }
    return [
        *found,
        {"type": "message_delta", "delta": end, "usage": counts},
        {"type": "message_stop"},
    ]


def _pieces(block: Block, length: int) -> tuple[Block, list[Block]]:
    def cut(words: str) -> Iterator[str]:
        return (words[at : at + length] for at in range(0, len(words), length))

    match block["type"]:
        case "text":
            return {**block, "text": ""}, [
                {"type": "text_delta", "text": part}
                for part in cut(block["text"])
            ]
        case "tool_use":
            written = json.dumps(block["input"]) if block["input"] else ""
            deltas = [
                {"type": "input_json_delta", "partial_json": part}
                for part in ("", *cut(written))
            ]
            return {**block, "input": {}}, deltas
        case "thinking":
            deltas = [
                {"type": "thinking_delta", "thinking": part}
                for part in cut(block["thinking"])
            ]
            deltas.append(
                {"type": "signature_delta", "signature": block["signature"]}
            )
            return {**block, "thinking": "", "signature": ""}, deltas
        case _:
            return block, []


def framed(*found: dict[str, Any]) -> bytes:
    """The bytes of events."""
    return "".join(
        f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
        for event in found
    ).encode()


def error(status: int, kind: str, words: str) -> bytes:
    """A refusal."""
    return reply(
        {
            "type": "error",
            "error": {"type": kind, "message": words},
            "request_id": "req_1",
        },
        status,
    )


class Claude(Upstream):
    """Answers requests that follow the rules, each with the next of its answers; the last one from then on."""

    def __init__(self) -> None:
        super().__init__()
        self.says(message(text("Ciao.")))

    def says(self, *answers: dict[str, Any] | Sequence[Part]) -> None:
        """The answers: messages, which are streamed if that was asked for, or scripts."""
        self.answers(
            *[
                self._script(answer) if isinstance(answer, dict) else answer
                for answer in answers
            ]
        )

    def _script(self, answer: dict[str, Any]) -> list[Part]:
        def respond() -> list[Any]:
            body = self.requests[-1]
            if broken := "; ".join(broken_rules(body)):
                return [error(400, "invalid_request_error", broken)]
            if body.get("stream"):
                return streamed(*(framed(event) for event in events(answer)))
            return [reply(answer)]

        return [respond]

    def model(self, name: str = MODEL) -> MessagesModel:
        model = MessagesModel(
            f"anthropic/{name}",
            Connection("sk-ant-key", self.url),
            ENDPOINTS["anthropic"],
        )
        model.retries = Retries(first_wait=0.001)
        return model

    def agent(self, name: str = MODEL, **options: Any) -> Agent:
        return Agent("guide", "Help.", self.model(name), **options)


def broken_rules(body: dict[str, Any]) -> Iterator[str]:
    """The rules of the protocol that a request breaks."""
    for name in ("model", "max_tokens", "messages"):
        if not body.get(name):
            yield f"{name}: Field required"
            return
    known = {
        "model", "max_tokens", "messages", "system", "temperature", "top_p", "stop_sequences", "stream", "tools",
        "tool_choice", "thinking", "output_config",
    }  # fmt: skip
    yield from (
        f"{name}: Extra inputs are not permitted"
        for name in body
        if name not in known
    )
    yield from _of_messages(body["messages"])
    yield from _of_tools(body)
    yield from _of_thinking(body)


def _of_messages(messages: list[dict[str, Any]]) -> Iterator[str]:
    if messages[0]["role"] != "user":
        yield "messages: first message must use the user role"
    waiting: list[str] = []
    seen: list[str] = []
    for number, turn in enumerate(messages):
        blocks: list[Block] = turn["content"]
        if not blocks:
            yield f"messages.{number}: content must not be empty"
        if any(
            block["type"] == "text" and not block["text"].strip()
            for block in blocks
        ):
            yield f"messages.{number}: text content blocks must contain non-whitespace text"
        results = [
            block["tool_use_id"]
            for block in blocks
            if block["type"] == "tool_result"
        ]
        if sorted(results) != sorted(waiting):
            yield f"messages.{number}: tool_use ids {waiting} and tool_result blocks {results} do not fit"
        if "tool_result" in [block["type"] for block in blocks][len(results) :]:
            yield f"messages.{number}: tool_result blocks must come first"
        waiting = [
            block["id"] for block in blocks if block["type"] == "tool_use"
        ]
        yield from _of_blocks(number, turn)
        seen += waiting
        if len(set(seen)) < len(seen):
            yield f"messages.{number}: `tool_use` ids must be unique"
        if not all(re.fullmatch(r"[a-zA-Z0-9_-]+", id_) for id_ in waiting):
            yield f"messages.{number}: tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
        if number and messages[number - 1]["role"] == turn["role"]:
            yield f"messages.{number}: roles must alternate"


def _of_blocks(number: int, turn: dict[str, Any]) -> Iterator[str]:
    known = (
        "text",
        "image",
        "document",
        "thinking",
        "redacted_thinking",
        "tool_use",
        "tool_result",
        "server_tool_use",
    )
    unknown = [
        block["type"] for block in turn["content"] if block["type"] not in known
    ]
    yield from (f"messages.{number}: {kind} unknown" for kind in unknown)
    if turn["role"] == "assistant" and turn["content"][-1]["type"] in (
        "thinking",
        "redacted_thinking",
    ):
        yield f"messages.{number}: The final block in an assistant message cannot be `thinking`"
    for block in turn["content"]:
        if block["type"] == "tool_use" and not isinstance(block["input"], dict):
            yield f"messages.{number}: tool_use.input: Input should be a valid dictionary"
        if block["type"] == "thinking" and not block.get("signature"):
            yield f"messages.{number}: thinking.signature: Field required"


def _of_tools(body: dict[str, Any]) -> Iterator[str]:
    used = any(
        block["type"] == "tool_use"
        for turn in body["messages"]
        for block in turn["content"]
    )
    tools = body.get("tools", [])
    if used and not tools:
        yield "Requests which include `tool_use` or `tool_result` blocks must define tools"
    if body.get("tool_choice") and not tools:
        yield "tool_choice may only be specified while providing tools"
    # an error with models that think
    if body.get("tool_choice", {}).get("type") in ("any", "tool"):
        yield "tool_choice forces tool use, which this model does not support"
    for tool in tools:
        if (
            not re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", tool["name"])
            or tool["input_schema"].get("type") != "object"
        ):
            yield f"tools: {tool['name']} is invalid"


def _of_thinking(body: dict[str, Any]) -> Iterator[str]:
    mode = body.get("thinking", {})
    if mode.get("type") == "enabled":
        if not 1024 <= mode["budget_tokens"] < body["max_tokens"]:
            yield "`max_tokens` must be greater than `thinking.budget_tokens`, which must be at least 1024"
        if body.get("temperature", 1) != 1:
            yield "`temperature` may only be set to 1 when thinking is enabled"
