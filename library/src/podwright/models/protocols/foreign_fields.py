"""What other providers have added to a conversation, which no provider takes from another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b

from podwright.messages.messages import Message, ToolCall


def without_foreign_fields(
    messages: Sequence[Message], source: str
) -> list[Message]:
    """The messages with the further fields of one source only: those of others have their texts and tool calls.

    Args:
        messages: The messages of a request.
        source: The provider that is asked, as `Message.provider` has it.
    """
    own: list[Message] = []
    renamed: dict[str | None, str] = {}
    for message in messages:
        if message.role == "assistant":
            renamed = {}
            if message.provider not in ("", source):
                renamed = _short_ids(message)
                own.append(_without_fields(message, renamed))
            else:
                own.append(message)
        elif message.role == "tool" and message.tool_call_id in renamed:
            id_ = renamed[message.tool_call_id]
            own.append(replace(message, tool_call_id=id_))
        else:
            own.append(message)
    return own


def _short_ids(message: Message) -> dict[str | None, str]:
    ids: dict[str | None, str] = {}
    for call in message.tool_calls:
        ids[call.id] = short_id(call.id)
    return ids


def _without_fields(message: Message, ids: Mapping[str | None, str]) -> Message:
    """The text and the tool calls of an answer, the latter with other ids."""
    calls = [
        ToolCall(id=ids[call.id], name=call.name, arguments=call.arguments)
        for call in message.tool_calls
    ]
    return Message("assistant", message.content, tool_calls=tuple(calls))


def short_id(id_: str) -> str:
    """An id for a tool call of another provider that every provider takes; Mistral wants 9 letters and digits."""
    digest = blake2b(id_.encode(), digest_size=5)
    return digest.hexdigest()[:9]
