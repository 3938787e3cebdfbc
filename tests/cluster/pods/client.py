"""Sends the request that each POST describes in JSON, and responds with its status and body as JSON.

So tests send requests from inside the cluster, through its API server, without starting a process in a pod for each.
"""

import json

import aiohttp
from aiohttp import web


async def send(request: web.Request) -> web.Response:
    ask = await request.json()
    timeout = aiohttp.ClientTimeout(total=ask["timeout"])
    try:
        async with aiohttp.request(
            ask["method"],
            ask["url"],
            json=ask["body"],
            headers=ask["headers"],
            timeout=timeout,
        ) as response:
            status = response.status
            text = await response.text()
    except (aiohttp.ClientError, TimeoutError) as error:
        status = 0
        text = repr(error)
    try:
        body = json.loads(text)
    except ValueError:
        body = text
    return web.json_response([status, body])


async def is_ready(_: web.Request) -> web.Response:
    return web.Response()


app = web.Application()
app.add_routes([web.post("/", send), web.get("/", is_ready)])
web.run_app(app, port=8000, print=None, access_log=None)
