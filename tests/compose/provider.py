"""A model provider in a container: a Chat Completions endpoint that responds to words in the conversation."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from aiohttp import web

USAGE = {
    "prompt_tokens": 40,
    "completion_tokens": 10,
    "total_tokens": 50,
    "prompt_tokens_details": {"cached_tokens": 8},
    "completion_tokens_details": {"reasoning_tokens": 4},
}


async def ready(request: web.Request) -> web.Response:
    return web.Response(text="ready")


async def complete(request: web.Request) -> web.Response:
    """Call a tool that was not called yet, else respond with a line."""
    body = await request.json()
    text = json.dumps(body)
    if "slow" in text:
        await asyncio.sleep(1.5)
    if "refused" in text:
        return web.json_response({"error": {"message": "Refused.", "type": "invalid_request_error"}}, status=400)
    message = message_for(body)
    reason = "tool_calls" if message.get("tool_calls") else "stop"
    head = {"id": "x", "model": body["model"], "created": 1}
    if not body.get("stream"):
        choice = {"index": 0, "message": message, "finish_reason": reason}
        return web.json_response({**head, "object": "chat.completion", "choices": [choice], "usage": USAGE})
    head["object"] = "chat.completion.chunk"
    chunks = [
        {**head, "choices": [{"index": 0, "delta": message, "finish_reason": None}]},
        {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
        {**head, "choices": [], "usage": USAGE},
    ]
    events = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)
    return web.Response(text=f"{events}data: [DONE]\n\n", content_type="text/event-stream")


def message_for(body: dict[str, Any]) -> dict[str, Any]:
    if body.get("response_format"):
        return {"role": "assistant", "content": json.dumps({"plan": "Write.", "steps": []})}
    tools = [tool["function"]["name"] for tool in body.get("tools", [])]
    if not tools or any(message["role"] == "tool" for message in body["messages"]):
        return {"role": "assistant", "content": "A line."}
    arguments = {"query": "moon"} if tools == ["search_archive"] else {"task": "the moon"}
    function = {"name": tools[0], "arguments": json.dumps(arguments)}
    call = {"index": 0, "id": "c1", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


if __name__ == "__main__":
    application = web.Application()
    application.router.add_post("/v1/chat/completions", complete)
    application.router.add_get("/ready", ready)
    web.run_app(application, port=8000, print=None)
