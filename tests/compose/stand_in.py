"""Stands in for the OpenTelemetry Collector, or for Jaeger, whose images need a registry.

The collector listens where its configuration says, and forwards requests to its exporter. Jaeger keeps the requests,
and returns them on the port of its user interface.
"""

from __future__ import annotations

import asyncio
import base64
import sys
from typing import Any

import yaml
from aiohttp import ClientSession, web


async def serve(application: web.Application, *addresses: tuple[str, int]) -> None:
    runner = web.AppRunner(application)
    await runner.setup()
    for host, port in addresses:
        await web.TCPSite(runner, host, port).start()
    await asyncio.Event().wait()


async def collector(option: str) -> None:
    with open(option.removeprefix("--config="), encoding="utf-8") as file:  # noqa: PTH123 - before the server starts
        config: dict[str, Any] = yaml.safe_load(file)
    [pipeline] = config["service"]["pipelines"].values()
    [receiver], [exporter] = pipeline["receivers"], pipeline["exporters"]
    target = config["exporters"][exporter]["endpoint"] + "/v1/traces"

    async def forward(request: web.Request) -> web.Response:
        headers = {"content-type": request.headers["content-type"]}
        body = await request.read()  # decompressed
        async with ClientSession() as session, session.post(target, data=body, headers=headers) as response:
            return web.Response(status=response.status)

    application = web.Application()
    application.router.add_post("/v1/traces", forward)
    host, port = config["receivers"][receiver]["protocols"]["http"]["endpoint"].rsplit(":", 1)
    await serve(application, (host, int(port)))


async def jaeger() -> None:
    received: list[str] = []

    async def keep(request: web.Request) -> web.Response:
        received.append(base64.b64encode(await request.read()).decode())
        return web.Response()

    async def list_received(request: web.Request) -> web.Response:
        return web.json_response(received)

    application = web.Application()
    application.router.add_post("/v1/traces", keep)
    application.router.add_get("/", list_received)
    await serve(application, ("0.0.0.0", 4318), ("0.0.0.0", 16686))  # noqa: S104 - in a container of its own


if __name__ == "__main__":
    asyncio.run({"collector": collector, "jaeger": jaeger}[sys.argv[1]](*sys.argv[2:]))
