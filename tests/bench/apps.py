"""The applications that are compared: the service of Podwright, and what one would write without it.

python apps.py NAME PORT PROVIDER_PORT
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import json
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

NAME, PORT, PROVIDER = (
    sys.argv[1],
    int(sys.argv[2]),
    f"http://127.0.0.1:{sys.argv[3]}/v1",
)
MODEL = "gpt-4o-mini"
INSTRUCTIONS = "You are a guide."
SUBSCRIBERS = {"no-telemetry": 0, "metrics": 1}
"""How many of the service's subscribers (metrics, log line, spans) these applications keep."""
SLOW = 0.2
"""Seconds that the model of `slow` takes."""


class Body(BaseModel):
    input: str


def messages(text: str) -> list[dict[str, str]]:
    return [
        {"role": "system", "content": INSTRUCTIONS},
        {"role": "user", "content": text},
    ]


def plain() -> FastAPI:
    """FastAPI, with aiohttp to the provider."""
    from aiohttp import ClientSession, TCPConnector

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with ClientSession(
            connector=TCPConnector(limit=0)
        ) as app.state.session:
            yield

    app = FastAPI(lifespan=lifespan)

    def call(text: str, **options: Any) -> Any:
        body = {"model": MODEL, "messages": messages(text), **options}
        return app.state.session.post(
            f"{PROVIDER}/chat/completions",
            json=body,
            headers={"authorization": "Bearer x"},
        )

    @app.post("/run")
    async def run(body: Body) -> dict[str, str]:
        async with call(body.input) as response:
            return {
                "output": (await response.json())["choices"][0]["message"][
                    "content"
                ]
            }

    @app.post("/run/stream")
    async def stream(body: Body) -> StreamingResponse:
        async def tokens() -> AsyncIterator[bytes]:
            async with call(body.input, stream=True) as response:
                async for line in response.content:
                    if line.startswith(b"data: {"):
                        for choice in json.loads(line[6:])["choices"]:
                            if text := choice["delta"].get("content"):
                                yield (
                                    b"data: %s\n\n"
                                    % json.dumps({"text": text}).encode()
                                )

        return StreamingResponse(tokens(), media_type="text/event-stream")

    return app


def litellm() -> FastAPI:
    """FastAPI, with LiteLLM to the provider."""
    os.environ |= {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_MODE": "PRODUCTION",
    }
    import litellm

    app = FastAPI()

    @app.post("/run")
    async def run(body: Body) -> dict[str, Any]:
        response: Any = await litellm.acompletion(
            f"openai/{MODEL}",
            messages(body.input),
            api_base=PROVIDER,
            api_key="x",
            num_retries=0,
        )
        return {"output": response.choices[0].message.content}

    return app


def agent_in_fastapi() -> FastAPI:
    """FastAPI, with an agent of the library, and the service's settings of the garbage collector."""
    from podwright_service.serving.server import relax_garbage_collection

    agent, app = make_agent(), FastAPI()
    relax_garbage_collection()

    @app.post("/run")
    async def run(body: Body) -> dict[str, str]:
        return {"output": await agent.arun(body.input)}

    return app


async def get_weather(city: str) -> str:
    """Get the weather."""
    return f"It is sunny in {city}."


def make_agent() -> Any:
    from podwright import Agent, FunctionModel

    async def respond(request: Any) -> str:
        if NAME == "slow":
            await asyncio.sleep(SLOW)
        return "yes"

    models = {"slow": respond, "instant": respond, "hostile": echo_or_call}
    model = FunctionModel(models[NAME]) if NAME in models else f"openai/{MODEL}"
    return Agent(
        "guide",
        INSTRUCTIONS,
        model,
        tools=[get_weather] if NAME in ("tools", "hostile") else [],
    )


@functools.cache
def many_calls() -> Any:
    """An answer with 20 000 tool calls, made once."""
    from podwright.messages.messages import ModelResponse, ToolCall
    from podwright.messages.usage import Usage

    calls = (
        ToolCall(f"c{number}", "get_weather", '{"city": "Paris"}')
        for number in range(20_000)
    )
    return ModelResponse(
        tool_calls=tuple(calls),
        usage=Usage(20, 100_000, cost=0.0),
        finish_reason="tool_calls",
    )


async def echo_or_call(request: Any) -> Any:
    """An answer as the offline model gives it, or many tool calls."""
    from podwright import EchoModel

    if request.messages[-1].text == "tools":
        return many_calls()
    without_tools = dataclasses.replace(request, tools=())
    return await EchoModel().complete(without_tools)


def service() -> None:
    """The service, as `podwright serve` runs it, or with fewer subscribers."""
    from podwright_service.serving.server import relax_garbage_collection, serve
    from podwright_service.serving.uvicorn_options import uvicorn_options
    from podwright_service.settings import read_settings

    settings = read_settings(host="127.0.0.1", port=PORT)
    if NAME not in SUBSCRIBERS:
        serve(make_agent(), settings)
        return
    from podwright_service.app import create_app
    from podwright_service.observability import configure_logging

    configure_logging(settings)
    app = create_app(settings, make_agent())
    observability = app.state.runtime.observability
    observability.subscribers = observability.subscribers[: SUBSCRIBERS[NAME]]
    relax_garbage_collection()
    uvicorn.run(
        app, host=settings.host, port=settings.port, **uvicorn_options(settings)
    )


PLAIN_APPS = {"plain": plain, "litellm": litellm, "agent": agent_in_fastapi}

if __name__ == "__main__":
    os.environ |= {
        "PODWRIGHT_MODEL_BASE_URL": PROVIDER,
        "PODWRIGHT_MODEL_API_KEY": "x",
    }
    if NAME in PLAIN_APPS:
        app = PLAIN_APPS[NAME]()
        uvicorn.run(
            app,
            host="127.0.0.1",
            port=PORT,
            log_level="warning",
            access_log=False,
            backlog=2048,
        )
    else:
        service()
