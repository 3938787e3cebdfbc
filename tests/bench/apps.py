"""The applications that are measured against each other: ours, and what one would write without it.

python apps.py NAME PORT UPSTREAM_PORT
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

NAME, PORT, UPSTREAM = sys.argv[1], int(sys.argv[2]), f"http://127.0.0.1:{sys.argv[3]}/v1"
MODEL = "gpt-4o-mini"
INSTRUCTIONS = "You are a guide."


class Body(BaseModel):
    input: str


def messages(text: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": text}]


def plain() -> FastAPI:
    """FastAPI and aiohttp, straight to the provider: the practical limit."""
    from aiohttp import ClientSession, TCPConnector

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with ClientSession(connector=TCPConnector(limit=0)) as app.state.session:
            yield

    app = FastAPI(lifespan=lifespan)

    def ask(text: str, **more: Any) -> Any:
        body = {"model": MODEL, "messages": messages(text), **more}
        return app.state.session.post(f"{UPSTREAM}/chat/completions", json=body, headers={"authorization": "Bearer x"})

    @app.post("/run")
    async def run(body: Body) -> dict[str, str]:
        async with ask(body.input) as answer:
            return {"output": (await answer.json())["choices"][0]["message"]["content"]}

    @app.post("/stream")
    async def stream(body: Body) -> StreamingResponse:
        async def tokens() -> AsyncIterator[bytes]:
            async with ask(body.input, stream=True) as answer:
                async for line in answer.content:
                    if line.startswith(b"data: {"):
                        for choice in json.loads(line[6:])["choices"]:
                            if text := choice["delta"].get("content"):
                                yield b"data: %s\n\n" % json.dumps({"text": text}).encode()

        return StreamingResponse(tokens(), media_type="text/event-stream")

    return app


def wide() -> FastAPI:
    """FastAPI and LiteLLM."""
    os.environ |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MODE": "PRODUCTION"}
    import litellm

    app = FastAPI()

    @app.post("/run")
    async def run(body: Body) -> dict[str, Any]:
        answer: Any = await litellm.acompletion(
            f"openai/{MODEL}", messages(body.input), api_base=UPSTREAM, api_key="x", num_retries=0
        )
        return {"output": answer.choices[0].message.content}

    return app


def get_weather(city: str) -> str:
    """Say what the weather is like."""
    return f"It is sunny in {city}."


async def get_weather_async(city: str) -> str:
    """Say what the weather is like."""
    return f"It is sunny in {city}."


get_weather_async.__name__ = "get_weather"


def ours() -> FastAPI:
    """Our service, on the direct lane, with its defaults; `/stream` is the library's own stream of events."""
    os.environ |= {"PODWRIGHT_MODEL_BASE_URL": UPSTREAM, "PODWRIGHT_MODEL_API_KEY": "x"}
    from podwright import Agent
    from podwright_service.app import create_app
    from podwright_service.settings import Settings

    tools = [get_weather_async] if NAME == "ours-tools" else [get_weather] if NAME == "ours-thread-tools" else []
    agent = Agent("guide", INSTRUCTIONS, f"openai/{MODEL}", tools=tools)
    app = create_app(Settings(max_runs=600), agent)  # with 500 connections, none may be refused

    @app.post("/stream")
    async def stream(body: Body) -> StreamingResponse:
        async def tokens() -> AsyncIterator[bytes]:
            async for event in agent.astream(body.input):
                if event.type == "token":
                    yield b"data: %s\n\n" % json.dumps({"text": event.text}).encode()

        return StreamingResponse(tokens(), media_type="text/event-stream")

    return app


def offline() -> FastAPI:
    """Our service with a model of its own: 200 ms for eight runs at once, or no time for as many as may."""
    from podwright import Agent, FunctionModel
    from podwright_service.app import create_app
    from podwright_service.settings import Settings

    async def answer(request: Any) -> str:
        if NAME == "slow":
            await asyncio.sleep(0.2)
        return "yes"

    settings = Settings(max_runs=8, max_waiting=16) if NAME == "slow" else Settings()
    return create_app(settings, Agent("guide", INSTRUCTIONS, FunctionModel(answer)))


def full() -> None:
    """Our service as `podwright serve` runs it, with a key, and with spans if the environment says so."""
    os.environ |= {"PODWRIGHT_MODEL_BASE_URL": UPSTREAM, "PODWRIGHT_MODEL_API_KEY": "x"}
    from podwright import Agent
    from podwright_service.server import serve
    from podwright_service.settings import read_settings

    places = {"max_runs": 2000} if NAME == "full-streams" else {}
    agent = Agent("guide", INSTRUCTIONS, f"openai/{MODEL}")
    serve(agent, read_settings(host="127.0.0.1", port=PORT, api_keys=os.environ["BENCH_KEY"], **places))


APPS = {
    "plain": plain,
    "wide": wide,
    "ours": ours,
    "ours-tools": ours,
    "ours-thread-tools": ours,
    "slow": offline,
    "instant": offline,
}

if __name__ == "__main__":
    if NAME.startswith("full"):
        full()
        sys.exit()
    uvicorn.run(APPS[NAME](), host="127.0.0.1", port=PORT, log_level="warning", access_log=False, backlog=2048)
