"""What other providers have added to a conversation, which no provider takes from another one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b

from podwright.messages import Message, ToolCall


def without_foreign_fields(messages: Sequence[Message], source: str) -> list[Message]:
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
        if message.role == "assistant" and message.provider not in ("", source):
            renamed = {call.id: short_id(call.id) for call in message.tool_calls}
            calls = tuple(
                ToolCall(renamed[call.id], call.name, call.arguments)
                for call in message.tool_calls
            )
            own.append(Message("assistant", message.content, calls))
        elif message.role == "tool" and message.tool_call_id in renamed:
            own.append(replace(message, tool_call_id=renamed[message.tool_call_id]))
        else:
            own.append(message)
    return own


def short_id(id_: str) -> str:
    """An id for a tool call of another provider that every provider takes; Mistral wants 9 letters and digits."""
    return blake2b(id_.encode(), digest_size=5).hexdigest()[:9]
