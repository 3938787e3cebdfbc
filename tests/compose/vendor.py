"""A model vendor in a container: Chat Completions, whole or streamed, as the words of the conversation ask for."""

from __future__ import annotations

import json
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

USAGE = {
    "prompt_tokens": 40,
    "completion_tokens": 10,
    "total_tokens": 50,
    "prompt_tokens_details": {"cached_tokens": 8},
    "completion_tokens_details": {"reasoning_tokens": 4},
}


class Vendor(BaseHTTPRequestHandler):
    """Answers with a tool call where there is a tool that was not called yet, and else with a line."""

    def do_GET(self) -> None:
        self.answer(200, "text/plain", b"ready")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        asked = json.loads(body)
        if b"slow" in body:
            time.sleep(1.5)
        if b"refused" in body:
            self.answer(
                400, "application/json", b'{"error": {"message": "I will not.", "type": "invalid_request_error"}}'
            )
            return
        message: dict[str, Any] = {"role": "assistant", "content": "A line."}
        tools = [tool["function"]["name"] for tool in asked.get("tools", [])]
        if tools and not any(one["role"] == "tool" for one in asked["messages"]):
            arguments = {"query": "moon"} if tools == ["search_archive"] else {"task": "the moon"}
            calls = [
                {
                    "index": 0,
                    "id": "c1",
                    "type": "function",
                    "function": {"name": name, "arguments": json.dumps(arguments)},
                }
                for name in tools[:1]
            ]
            message = {"role": "assistant", "content": None, "tool_calls": calls}
        if asked.get("response_format"):
            message = {"role": "assistant", "content": json.dumps({"plan": "Write.", "steps": []})}
        reason = "tool_calls" if message.get("tool_calls") else "stop"
        told = {"id": "x", "model": asked["model"], "created": 1}
        if not asked.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": reason}
            whole = {**told, "object": "chat.completion", "choices": [choice], "usage": USAGE}
            self.answer(200, "application/json", json.dumps(whole).encode())
            return
        told["object"] = "chat.completion.chunk"
        pieces = [
            {**told, "choices": [{"index": 0, "delta": message, "finish_reason": None}]},
            {**told, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
            {**told, "choices": [], "usage": USAGE},
        ]
        lines = "".join(f"data: {json.dumps(piece)}\n\n" for piece in pieces)
        self.answer(200, "text/event-stream", f"{lines}data: [DONE]\n\n".encode())

    def answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    ThreadingHTTPServer(("0.0.0.0", 8000), Vendor).serve_forever()  # noqa: S104 - in a container of its own
