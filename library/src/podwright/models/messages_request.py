"""Request bodies of Anthropic's Messages protocol.

Source: https://platform.claude.com/docs/en/api/messages/create
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, cast

from podwright.errors import ModelRequestError
from podwright.json_data import as_array, as_object
from podwright.messages import (
    ContentPart,
    Message,
    ModelRequest,
    ModelSettings,
    ToolCall,
)
from podwright.models.foreign_fields import short_id, without_foreign_fields

_SETTINGS = (
    "temperature",
    "top_p",
    "max_tokens",
    "stop",
    "parallel_tool_calls",
    "reasoning_effort",
    "timeout",
)
"""The model settings that the protocol has."""
_SAME_NAME = ("temperature", "top_p")
_VERSION = re.compile(r"(\d+)(?:[-.](\d{1,2}))?(?!\d)")
"""The generation in the name of a Claude: `claude-sonnet-4-5-20250929`, `claude-3-7-sonnet-latest`."""
_NEWEST = (99, 0)
"""Stands for the generation of a model whose name does not say it."""
_ADAPTIVE = (4, 6)
"""From this generation on a model decides itself how long it thinks."""
_THINKS = (5, 0)
"""From this generation on a model thinks if a request does not say otherwise."""
_BETWEEN_TOOLS = "claude-sonnet-5-5"
"""The model that calls thinking as little as it can `between_tools`, and takes no `disabled`."""
_EFFORTS = {"minimal": "low"}
"""What the protocol calls the efforts that it has no name of."""
_BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16384, "xhigh": 32768}
"""Tokens of thought by effort, for models that do not decide it themselves."""
_MIN_BUDGET = 1024
_MAX_OUTPUT = {(3, 0): 4096, (3, 5): 8192}
"""The most output tokens of the generations that have less than `_DEFAULT_MAX_OUTPUT`."""
_DEFAULT_MAX_OUTPUT = 32_000
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_DATA_URL = re.compile(r"data:(image/[a-z0-9.+-]+);base64,(.*)", re.ASCII | re.DOTALL)
_IMAGE_TYPES = {"image/jpg": "image/jpeg"}
"""Media types that clients write, and what the protocol calls them."""
_THOUGHTS = ("thinking", "redacted_thinking")
_START = "(The conversation begins with the assistant.)"
_NOTHING = "(empty)"
"""Stands for a text of white space, which the protocol refuses."""


def max_output_tokens(model: str) -> int:
    """The output tokens that an answer may have if the request does not limit them; the protocol wants a number.

    Args:
        model: The model's name as the provider knows it.
    """
    return _MAX_OUTPUT.get(_version(model), _DEFAULT_MAX_OUTPUT)


def _version(model: str) -> tuple[int, int]:
    found = _VERSION.search(model.partition("claude")[2])
    if found is None:
        return _NEWEST
    return int(found[1]), int(found[2] or 0)


def request_body(
    request: ModelRequest, model: str, *, source: str, stream: bool
) -> dict[str, Any]:
    """The body of a request.

    Args:
        request: The request.
        model: The model's name as the provider knows it.
        source: Who is asked, as `Message.provider` has it; what others have added to messages is left out.
        stream: Whether the response is to be streamed.

    Raises:
        ModelRequestError: The protocol has no such setting.
    """
    settings = request.settings
    if unknown := [f"'{name}'" for name in settings if name not in _SETTINGS]:
        message = f"'{request.model}' does not support {', '.join(unknown)}."
        raise ModelRequestError(message, suggestion="Remove it from the config.")
    messages = without_foreign_fields(request.messages, source)
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": settings.get("max_tokens", max_output_tokens(model)),
        "messages": _turns(
            (message for message in messages if message.role != "system"), source
        ),
    }
    system = "\n\n".join(
        message.text for message in messages if message.role == "system"
    )
    if system.strip():
        body["system"] = system
    body.update((name, value) for name, value in settings.items() if name in _SAME_NAME)
    if "stop" in settings:
        stop = settings["stop"]
        body["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    thinking = _thinking(settings, model, body["max_tokens"])
    if thinking.get("thinking", {}).get("type") != "enabled" or _may_think(
        body["messages"]
    ):
        body.update(thinking)
    tools = [_tool(tool["function"]) for tool in request.tools]
    if tools:
        body["tools"] = tools
        body.update(_tool_choice(request))
    elif used := _tools_used_in(body["messages"]):
        # the protocol wants them declared; the agent has them no more
        body["tools"] = used
        body["tool_choice"] = {"type": "none"}
    if stream:
        body["stream"] = True
    return body


def _thinking(settings: ModelSettings, model: str, max_tokens: int) -> dict[str, Any]:
    effort = settings.get("reasoning_effort")
    version = _version(model)
    if effort is None:
        return {}
    if effort == "none":
        if version < _THINKS:
            return {}
        return {
            "thinking": {
                "type": "between_tools" if _BETWEEN_TOOLS in model else "disabled"
            }
        }
    if version >= _ADAPTIVE:
        # without `display` the newest models show no thoughts
        thinking = {"type": "adaptive", "display": "summarized"}
        return {
            "thinking": thinking,
            "output_config": {"effort": _EFFORTS.get(effort, effort)},
        }
    if max_tokens <= _MIN_BUDGET:
        message = f"'{model}' thinks with {_MIN_BUDGET} tokens at least, and its answer may have {max_tokens} in all."
        hint = "Raise max_tokens and the limits of the run, or remove reasoning_effort."
        raise ModelRequestError(message, suggestion=hint)
    budget = max(_MIN_BUDGET, min(_BUDGETS[effort], max_tokens // 2))
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _may_think(turns: list[dict[str, Any]]) -> bool:
    """Whether a model with a budget of thoughts may think: in a tool loop only if that began with a thought."""
    first = len(turns)
    while first > 1 and turns[first - 1]["content"][0]["type"] == "tool_result":
        first -= 2
    return first == len(turns) or turns[first]["content"][0]["type"] in _THOUGHTS


def _tools_used_in(turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    names = [
        block["name"]
        for turn in turns
        for block in turn["content"]
        if block["type"] == "tool_use"
    ]
    return [
        {"name": name, "input_schema": {"type": "object"}}
        for name in dict.fromkeys(names)
    ]


def _tool(function: Mapping[str, Any]) -> dict[str, Any]:
    tool: dict[str, Any] = {
        "name": function["name"],
        "input_schema": {"type": "object", **function["parameters"]},
    }
    for name in ("description", "strict"):
        if function.get(name):
            tool[name] = function[name]
    return tool


def _tool_choice(request: ModelRequest) -> dict[str, Any]:
    # a tool is forced only where the caller asks for it: models that think refuse it
    choice: dict[str, Any] = {"type": "auto"}
    if request.tool_choice is not None:
        choice = {"type": "tool", "name": request.tool_choice}
    if request.settings.get("parallel_tool_calls") is False:
        choice["disable_parallel_tool_use"] = True
    return {} if choice == {"type": "auto"} else {"tool_choice": choice}


class _CallIds:
    """Ids of tool calls in the characters that the protocol takes, each once in a request."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._of_turn: dict[str, str] = {}

    def begin(self, message: Message) -> None:
        """Give each call of an answer its id."""
        self._of_turn = {}
        for call in message.tool_calls:
            id_ = call.id if _ID.fullmatch(call.id) else short_id(call.id)
            if id_ in self._taken:  # some providers begin again in each turn
                id_ = short_id(f"{len(self._taken)} {call.id}")
            self._taken.add(id_)
            self._of_turn[call.id] = id_

    def __getitem__(self, id_: str) -> str:
        return self._of_turn.get(id_, id_)


def _turns(messages: Iterable[Message], source: str) -> list[dict[str, Any]]:
    """The messages as turns of user and assistant; results of tools follow their calls, and so come first in a turn."""
    turns: list[dict[str, Any]] = []
    ids = _CallIds()
    for message in messages:
        if message.role == "assistant":
            ids.begin(message)
            role = "assistant"
            blocks = _answer_blocks(message, ids, is_own=message.provider == source)
        else:
            role = "user"
            blocks = _user_blocks(message, ids)
        if not blocks:
            continue
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": role, "content": blocks})
    if turns and turns[0]["role"] == "assistant":
        turns.insert(0, {"role": "user", "content": [_text(_START)]})
    return turns


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _user_blocks(message: Message, ids: _CallIds) -> list[dict[str, Any]]:
    if message.role == "tool":
        result: dict[str, Any] = {
            "type": "tool_result",
            "tool_use_id": ids[message.tool_call_id or ""],
        }
        if message.text.strip():
            result["content"] = message.text
        return [result]
    parts = (
        [_text(message.content)]
        if isinstance(message.content, str)
        else list(map(_part, message.content))
    )
    blocks = [part for part in parts if part["type"] != "text" or part["text"].strip()]
    return blocks or [_text(_NOTHING)]


def _part(part: ContentPart) -> dict[str, Any]:
    if part["type"] == "text":
        return _text(part["text"])
    url = part["image_url"]["url"]
    data = _DATA_URL.match(url)
    if data is None:
        return {"type": "image", "source": {"type": "url", "url": url}}
    media_type = _IMAGE_TYPES.get(data[1], data[1])
    return {
        "type": "image",
        "source": {"type": "base64", "media_type": media_type, "data": data[2]},
    }


def _answer_blocks(
    message: Message, ids: _CallIds, *, is_own: bool
) -> list[dict[str, Any]]:
    """The content of an answer: as it came if that is kept, else its text and its tool calls.

    Args:
        message: The answer.
        ids: The ids of its calls.
        is_own: Whether it is certain that the content is of this protocol.
    """
    calls = {call.id: call for call in message.tool_calls}
    blocks: list[dict[str, Any]] = []
    kept = [
        as_object(block) for block in as_array(message.provider_fields.get("content"))
    ]
    # as LiteLLM has them
    thoughts = [
        as_object(block)
        for block in as_array(message.provider_fields.get("thinking_blocks"))
    ]
    for block in kept or [*thoughts, _text(message.text)]:
        kind = block.get("type")
        if kind == "tool_use":
            call = calls.pop(str(block.get("id")), None)
            if call is not None:
                blocks.append({**block, "id": ids[call.id], "input": _input(call)})
        elif kind == "text":
            if str(block.get("text") or "").strip():
                blocks.append(dict(block) if is_own else _text(str(block["text"])))
        elif is_own or (
            kind in _THOUGHTS and (block.get("signature") or block.get("data"))
        ):
            blocks.append(dict(block))
    blocks += [_tool_use(call, ids[call.id]) for call in calls.values()]
    return blocks


def _tool_use(call: ToolCall, id_: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": id_, "name": call.name, "input": _input(call)}


def _input(call: ToolCall) -> dict[str, Any]:
    """The arguments of a call as the object that the protocol wants, also if the model wrote none."""
    with suppress(ValueError, RecursionError):
        data: Any = json.loads(call.arguments or "{}")
        if isinstance(data, dict):
            return cast("dict[str, Any]", data)
    return {"INVALID_JSON": call.arguments}
