"""A model provider whose Chat Completions take five seconds."""

import asyncio

from aiohttp import web


async def complete(request: web.Request) -> web.Response:
    body = await request.json()
    await asyncio.sleep(5)
    choice = {"index": 0, "message": {"role": "assistant", "content": "Done."}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}
    return web.json_response({"id": "1", "model": body["model"], "choices": [choice], "usage": usage})


app = web.Application()
app.router.add_post("/v1/chat/completions", complete)
web.run_app(app, port=8000)
