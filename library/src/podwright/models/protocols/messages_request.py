"""Request bodies of Anthropic's Messages protocol.

Source: https://platform.claude.com/docs/en/api/messages/create
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, cast

from podwright.data.data_urls import parse_data_url
from podwright.data.json_data import JsonObject, as_array, as_object
from podwright.errors import ModelRequestError
from podwright.messages.messages import (
    TOOL_CHOICES,
    ContentPart,
    Message,
    ModelRequest,
    ModelSettings,
    ToolCall,
    ToolFunction,
)
from podwright.models.protocols.foreign_fields import (
    short_id,
    without_foreign_fields,
)
from podwright.models.protocols.media import check_content, sendable_result
from podwright.models.providers import MediaForms

_SETTINGS = (
    "temperature",
    "top_p",
    "max_tokens",
    "stop",
    "parallel_tool_calls",
    "reasoning_effort",
    "timeout",
    "parameters",
)
"""The model settings that the protocol has."""
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
_BUDGETS = {
    "minimal": 1024,
    "low": 2048,
    "medium": 8192,
    "high": 16384,
    "xhigh": 32768,
}
"""Tokens of thought by effort, for models that do not decide it themselves."""
_MIN_BUDGET = 1024
_MAX_OUTPUT = {(3, 0): 4096, (3, 5): 8192}
"""The most output tokens of the generations that have less than `_DEFAULT_MAX_OUTPUT`."""
_DEFAULT_MAX_OUTPUT = 32_000
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_FORMS = MediaForms(only_pdf=True, text_documents=True, audio=False)
"""Files are documents: PDFs, and texts."""
_IMAGE_TYPES = {"image/jpg": "image/jpeg"}
"""Media types that clients write, and what the protocol calls them."""
_CHOICES = dict(zip(TOOL_CHOICES, ("auto", "any", "none"), strict=True))
"""What the protocol calls the choices of tools."""
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
    _, _, rest = model.partition("claude")
    found = _VERSION.search(rest)
    if found is None:
        return _NEWEST
    major, minor = found.groups(default="0")
    return int(major), int(minor)


def request_body(
    request: ModelRequest, model: str, *, source: str, stream: bool
) -> JsonObject:
    """The body of a request.

    Args:
        request: The request.
        model: The model's name as the provider knows it.
        source: Who is asked, as `Message.provider` has it; what others have added to messages is left out.
        stream: Whether the response is to be streamed.

    Raises:
        ModelRequestError: The protocol has no such setting.
        ContentUnsupportedError: It has no such files, or audio.
    """
    _check_settings(request)
    settings = request.settings
    messages = without_foreign_fields(request.messages, source)
    instructions: list[str] = []
    others: list[Message] = []
    for message in messages:
        if message.role == "system":
            instructions.append(message.text)
        else:
            others.append(message)
            if message.role == "user":
                check_content(message, request.model, _FORMS)
    turns = _turns(others, source)
    body: JsonObject = {
        "model": model,
        "max_tokens": settings.get("max_tokens", max_output_tokens(model)),
        "messages": turns,
    }
    system = "\n\n".join(instructions)
    if system.strip():
        body["system"] = system
    if "temperature" in settings:
        body["temperature"] = settings["temperature"]
    if "top_p" in settings:
        body["top_p"] = settings["top_p"]
    if "stop" in settings:
        body["stop_sequences"] = _stop_sequences(settings["stop"])
    thinking = _thinking(settings, model, body["max_tokens"])
    if not _has_budget(thinking) or _may_think(turns):
        body.update(thinking)
    body.update(_tools(request, turns))
    if stream:
        body["stream"] = True
    body.update(settings.get("parameters", {}))
    return body


def _check_settings(request: ModelRequest) -> None:
    unknown = [
        f"'{name}'" for name in request.settings if name not in _SETTINGS
    ]
    if unknown:
        names = ", ".join(unknown)
        raise ModelRequestError(
            f"'{request.model}' does not support {names}.",
            suggestion="Remove it from the config.",
        )


def _stop_sequences(stop: str | list[str]) -> list[str]:
    if isinstance(stop, str):
        return [stop]
    return stop


def _thinking(
    settings: ModelSettings, model: str, max_tokens: int
) -> JsonObject:
    effort = settings.get("reasoning_effort")
    if effort is None:
        return {}
    if effort == "none":
        return _without_thinking(model)
    if _version(model) >= _ADAPTIVE:
        # without `display` the newest models show no thoughts
        thinking = {"type": "adaptive", "display": "summarized"}
        effort = _EFFORTS.get(effort, effort)
        return {"thinking": thinking, "output_config": {"effort": effort}}
    if max_tokens <= _MIN_BUDGET:
        message = f"'{model}' thinks with {_MIN_BUDGET} tokens at least, and its answer may have {max_tokens} in all."
        hint = "Raise max_tokens and the limits of the run, or remove reasoning_effort."
        raise ModelRequestError(message, suggestion=hint)
    budget = min(_BUDGETS[effort], max_tokens // 2)
    budget = max(_MIN_BUDGET, budget)
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _without_thinking(model: str) -> JsonObject:
    if _version(model) < _THINKS:
        return {}
    if _BETWEEN_TOOLS in model:
        return {"thinking": {"type": "between_tools"}}
    return {"thinking": {"type": "disabled"}}


def _has_budget(settings: JsonObject) -> bool:
    if "thinking" not in settings:
        return False
    return settings["thinking"]["type"] == "enabled"


def _may_think(turns: list[JsonObject]) -> bool:
    """Whether a model with a budget of thoughts may think: in a tool loop only if that began with a thought."""
    first = len(turns)
    while first > 1:
        results = turns[first - 1]
        if _first_type(results) != "tool_result":
            break
        first -= 2
    if first == len(turns):
        return True
    return _first_type(turns[first]) in _THOUGHTS


def _first_type(turn: JsonObject) -> str:
    blocks = turn["content"]
    return blocks[0]["type"]


def _tools(request: ModelRequest, turns: list[JsonObject]) -> JsonObject:
    tools = [_tool(tool["function"]) for tool in request.tools]
    if tools:
        return {"tools": tools, **_tool_choice(request)}
    used = _tools_used_in(turns)
    if used:
        # the protocol wants them declared; the agent has them no more
        return {"tools": used, "tool_choice": {"type": "none"}}
    return {}


def _tools_used_in(turns: list[JsonObject]) -> list[JsonObject]:
    tools: dict[str, JsonObject] = {}
    for turn in turns:
        for block in turn["content"]:
            if block["type"] != "tool_use":
                continue
            name = block["name"]
            schema = {"type": "object"}
            tools[name] = {"name": name, "input_schema": schema}
    return list(tools.values())


def _tool(function: ToolFunction) -> JsonObject:
    tool: JsonObject = {
        "name": function["name"],
        "input_schema": {"type": "object", **function["parameters"]},
    }
    description = function.get("description")
    if description:
        tool["description"] = description
    strict = function.get("strict")
    if strict:
        tool["strict"] = strict
    return tool


def _tool_choice(request: ModelRequest) -> JsonObject:
    # a tool is forced only where the caller asks for it: models that think refuse it
    choice: JsonObject = {"type": "auto"}
    if request.tool_choice in _CHOICES:
        choice = {"type": _CHOICES[request.tool_choice]}
    elif request.tool_choice is not None:
        choice = {"type": "tool", "name": request.tool_choice}
    if (
        choice["type"] != "none"
        and request.settings.get("parallel_tool_calls") is False
    ):
        choice["disable_parallel_tool_use"] = True
    if choice == {"type": "auto"}:
        return {}
    return {"tool_choice": choice}


class _CallIds:
    """Ids of tool calls in the characters that the protocol takes, each once in a request."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._of_turn: dict[str, str] = {}

    def begin(self, message: Message) -> None:
        """Give each call of an answer its id."""
        self._of_turn = {}
        for call in message.tool_calls:
            id_ = call.id
            if not _ID.fullmatch(id_):
                id_ = short_id(id_)
            if id_ in self._taken:  # some providers begin again in each turn
                number = len(self._taken)
                id_ = short_id(f"{number} {call.id}")
            self._taken.add(id_)
            self._of_turn[call.id] = id_

    def __getitem__(self, id_: str) -> str:
        return self._of_turn.get(id_, id_)


def _turns(messages: Iterable[Message], source: str) -> list[JsonObject]:
    """The messages as turns of user and assistant; results of tools follow their calls, and so come first in a turn."""
    turns: list[JsonObject] = []
    ids = _CallIds()
    for message in messages:
        if message.role == "assistant":
            ids.begin(message)
            role = "assistant"
            is_own = message.provider == source
            blocks = _answer_blocks(message, ids, is_own=is_own)
        else:
            role = "user"
            blocks = _user_blocks(message, ids)
        if not blocks:
            continue
        if turns and turns[-1]["role"] == role:
            last = turns[-1]
            last["content"] += blocks
        else:
            turns.append({"role": role, "content": blocks})
    if turns and turns[0]["role"] == "assistant":
        start = {"role": "user", "content": [_text(_START)]}
        turns.insert(0, start)
    return turns


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _user_blocks(message: Message, ids: _CallIds) -> list[JsonObject]:
    if message.role == "tool":
        return [_tool_result(message, ids)]
    return _blocks(message) or [_text(_NOTHING)]


def _blocks(message: Message) -> list[JsonObject]:
    """The parts of a message, without texts of white space, which the protocol refuses."""
    if isinstance(message.content, str):
        parts = [_text(message.content)]
    else:
        content: Iterable[ContentPart] = message.content
        if message.role == "tool":
            content = sendable_result(content, _FORMS)
        parts = [_part(part) for part in content]
    return [part for part in parts if not _is_blank(part)]


def _tool_result(message: Message, ids: _CallIds) -> JsonObject:
    result: JsonObject = {
        "type": "tool_result",
        "tool_use_id": ids[message.tool_call_id or ""],
    }
    if not isinstance(message.content, str):
        result["content"] = _blocks(message)
    elif message.content.strip():
        result["content"] = message.content
    return result


def _is_blank(block: JsonObject) -> bool:
    if block["type"] != "text":
        return False
    return not block["text"].strip()


def _part(part: ContentPart) -> JsonObject:
    match part:
        case {"type": "text", "text": text}:
            return _text(text)
        case {"type": "image_url", "image_url": image}:
            return {"type": "image", "source": _source(image["url"])}
        case {"type": "file", "file": file}:
            document = {
                "type": "document",
                "source": _source(file["file_data"]),
            }
            if "filename" in file:
                document["title"] = file["filename"]
            return document
        case _:
            raise ValueError("The protocol has no audio")


def _source(url: str) -> JsonObject:
    """Where the data of an image or a document are."""
    parsed = parse_data_url(url)
    if parsed is None:
        return {"type": "url", "url": url}
    if parsed.is_text:
        text = parsed.text()
        if not text.strip():
            text = _NOTHING
        # the protocol calls each text so
        return {"type": "text", "media_type": "text/plain", "data": text}
    media_type = _IMAGE_TYPES.get(parsed.media_type, parsed.media_type)
    return {"type": "base64", "media_type": media_type, "data": parsed.data}


def _answer_blocks(
    message: Message, ids: _CallIds, *, is_own: bool
) -> list[JsonObject]:
    """The content of an answer: as it came if that is kept, else its text and its tool calls.

    Args:
        message: The answer.
        ids: The ids of its calls.
        is_own: Whether it is certain that the content is of this protocol.
    """
    calls = {call.id: call for call in message.tool_calls}
    blocks: list[JsonObject] = []
    for block in _written_blocks(message):
        if block.get("type") == "tool_use":
            id_ = str(block.get("id"))
            call = calls.pop(id_, None)
            if call is not None:
                blocks.append(
                    block | {"id": ids[call.id], "input": _input(call)}
                )
        else:
            sendable = _sendable(block, is_own=is_own)
            if sendable is not None:
                blocks.append(sendable)
    blocks += [_tool_use(call, ids[call.id]) for call in calls.values()]
    return blocks


def _written_blocks(message: Message) -> list[JsonObject]:
    fields = message.provider_fields
    kept = as_array(fields.get("content"))
    if kept:
        return [as_object(block) for block in kept]
    # as LiteLLM has them
    thoughts = as_array(fields.get("thinking_blocks"))
    return [*map(as_object, thoughts), _text(message.text)]


def _sendable(block: JsonObject, *, is_own: bool) -> JsonObject | None:
    """A block of an answer as the protocol takes it; None if it does not."""
    kind = block.get("type")
    if kind == "text":
        text = str(block.get("text") or "")
        if not text.strip():
            return None
        if not is_own:
            return _text(text)
    elif not is_own and not _is_signed_thought(block):
        return None
    return dict(block)


def _is_signed_thought(block: JsonObject) -> bool:
    if block.get("type") not in _THOUGHTS:
        return False
    signature = block.get("signature") or block.get("data")
    return bool(signature)


def _tool_use(call: ToolCall, id_: str) -> JsonObject:
    return {
        "type": "tool_use",
        "id": id_,
        "name": call.name,
        "input": _input(call),
    }


def _input(call: ToolCall) -> JsonObject:
    """The arguments of a call as the object that the protocol wants, also if the model wrote none."""
    with suppress(ValueError, RecursionError):
        data: Any = json.loads(call.arguments or "{}")
        if isinstance(data, dict):
            return cast("JsonObject", data)
    return {"INVALID_JSON": call.arguments}
