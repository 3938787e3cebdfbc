"""A model provider for measurements: answers Chat Completions at once, from bytes that are made beforehand.

    python upstream.py PORT [DELAY_MS]

A request that offers tools and has no tool's answer yet is answered with a tool call; one that asks for a stream gets
one. Hand-written on an asyncio protocol, for whatever it costs is taken from the core that measures.
"""

from __future__ import annotations

import asyncio
import json
import sys

USAGE = {"prompt_tokens": 20, "completion_tokens": 9, "total_tokens": 29}
HEAD = {"id": "chatcmpl-1", "created": 1, "model": "gpt-4o-mini-2024-07-18"}
TEXT = "The moon is a stone that keeps its distance."


def completion(message: dict[str, object], finish: str) -> bytes:
    choice = {
        "index": 0,
        "message": {"role": "assistant", **message},
        "finish_reason": finish,
        "logprobs": None,
    }
    return json.dumps(
        {
            **HEAD,
            "object": "chat.completion",
            "choices": [choice],
            "usage": USAGE,
        }
    ).encode()


def chunks() -> bytes:
    events: list[object] = []
    for piece in [
        {"role": "assistant", "content": ""},
        *({"content": f"{word} "} for word in TEXT.split()),
    ]:
        choice = {"index": 0, "delta": piece, "finish_reason": None}
        events.append(
            {
                **HEAD,
                "object": "chat.completion.chunk",
                "choices": [choice],
                "usage": None,
            }
        )
    last = {"index": 0, "delta": {}, "finish_reason": "stop"}
    events.append(
        {
            **HEAD,
            "object": "chat.completion.chunk",
            "choices": [last],
            "usage": None,
        }
    )
    events.append(
        {
            **HEAD,
            "object": "chat.completion.chunk",
            "choices": [],
            "usage": USAGE,
        }
    )
    return (
        b"".join(
            b"data: %s\n\n" % json.dumps(event).encode() for event in events
        )
        + b"data: [DONE]\n\n"
    )


def reply(body: bytes, content_type: bytes = b"application/json") -> bytes:
    return (
        b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n%s"
        % (
            content_type,
            len(body),
            body,
        )
    )


CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'},
}
PLAIN = reply(completion({"content": TEXT}, "stop"))
TOOL = reply(completion({"content": None, "tool_calls": [CALL]}, "tool_calls"))
STREAM = reply(chunks(), b"text/event-stream")


class Provider(asyncio.Protocol):
    delay = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.seen = b""

    def data_received(self, data: bytes) -> None:
        self.seen += data
        head, found, body = self.seen.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(
            head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
            or 0
        )
        if len(body) < length:
            return
        self.seen = body[length:]
        if b'"stream":true' in body.replace(b" ", b""):
            answer = STREAM
        else:
            answer = (
                TOOL
                if b'"tools"' in body and b'"tool_call_id"' not in body
                else PLAIN
            )
        asyncio.get_running_loop().call_later(
            self.delay, self.send, answer
        ) if self.delay else self.send(answer)

    def send(self, answer: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(answer)  # type: ignore[attr-defined]


async def main() -> None:
    Provider.delay = float(sys.argv[2]) / 1000 if len(sys.argv) > 2 else 0.0
    server = await asyncio.get_running_loop().create_server(
        Provider, "127.0.0.1", int(sys.argv[1]), backlog=2048
    )
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
