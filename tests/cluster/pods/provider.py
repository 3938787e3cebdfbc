"""A model provider: a Chat Completions endpoint whose model `down` fails, and whose models `slow-N` take N seconds.

The model `held` answers nobody before a `POST /release`; `GET /held` is the number of its calls.

A model calls its tool first, and then responds with a line.
"""

import asyncio
import json
from typing import Any

from aiohttp import web

USAGE = {
    "prompt_tokens": 40,
    "completion_tokens": 10,
    "total_tokens": 50,
    "prompt_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 6},
    "completion_tokens_details": {"reasoning_tokens": 4},
}


class Barrier:
    """Where calls wait until it is opened."""

    def __init__(self) -> None:
        self._opened = asyncio.Event()
        self._calls = 0

    async def pass_through(self) -> None:
        self._calls += 1
        await self._opened.wait()

    async def count(self, _: web.Request) -> web.Response:
        return web.json_response(self._calls)

    async def open(self, _: web.Request) -> web.Response:
        self._opened.set()
        return web.json_response(None)


held = Barrier()


async def complete(request: web.Request) -> web.Response:
    body = await request.json()
    if body["model"] == "down":
        return web.json_response(
            {"error": {"message": "The model is down."}}, status=503
        )
    name, _, seconds = body["model"].partition("-")
    if name == "slow":
        await asyncio.sleep(float(seconds))
    if name == "held":
        await held.pass_through()
    message = message_for(body)
    reason = "tool_calls" if message.get("tool_calls") else "stop"
    head = {"id": "x", "model": f"{body['model']}-2026-11-01", "created": 1}
    if not body.get("stream"):
        choice = {"index": 0, "message": message, "finish_reason": reason}
        return web.json_response(
            {
                **head,
                "object": "chat.completion",
                "choices": [choice],
                "usage": USAGE,
            }
        )
    head["object"] = "chat.completion.chunk"
    chunks = [
        {
            **head,
            "choices": [{"index": 0, "delta": message, "finish_reason": None}],
        },
        {
            **head,
            "choices": [{"index": 0, "delta": {}, "finish_reason": reason}],
        },
        {**head, "choices": [], "usage": USAGE},
    ]
    events = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)
    return web.Response(
        text=f"{events}data: [DONE]\n\n", content_type="text/event-stream"
    )


def message_for(body: dict[str, Any]) -> dict[str, Any]:
    tools = [tool["function"]["name"] for tool in body.get("tools", [])]
    if not tools or any(
        message["role"] == "tool" for message in body["messages"]
    ):
        return {"role": "assistant", "content": "A line."}
    function = {"name": tools[0], "arguments": json.dumps({"query": "moon"})}
    call = {"index": 0, "id": "c1", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


application = web.Application()
application.router.add_post("/v1/chat/completions", complete)
application.router.add_get("/held", held.count)
application.router.add_post("/release", held.open)
web.run_app(application, port=8000, print=None)
