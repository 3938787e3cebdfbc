"""The service of the conformance suite: `python mcp_conformance_service.py` serves the tools that its scenarios call.

Each tool is a component, served by an application of its own, as every component is. A request goes to the application
whose tool it names; one that names none of them, to the first. It listens on 127.0.0.1, at a port that the system
chooses, and prints its address.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator, Callable

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from podwright import (
    Agent,
    AgentStep,
    ApprovalStep,
    FunctionModel,
    Workflow,
)
from podwright.components import Component
from podwright.testing import ModelRequest
from podwright_service import create_app, lifespan
from podwright_service.serving.uvicorn_options import uvicorn_options
from podwright_service.settings import Settings

INPUTS = {
    "topic": {
        "type": "string",
        "default": "nothing",
        "x-mcp-header": "Topic",
    }
}
"""The scenarios call tools without arguments, and one looks for a parameter that is sent as a header too."""
SETTINGS = Settings(mcp=True)


def say(_: ModelRequest) -> str:
    return "This is a simple text response for testing."


def fail(_: ModelRequest) -> str:
    raise ValueError("This tool intentionally returns an error for testing")


def agent(name: str, model: Callable[[ModelRequest], str] = say) -> Agent:
    return Agent(
        name,
        "Do what the scenario says.",
        FunctionModel(model),
        inputs=INPUTS,
        description=f"The tool {name} of the scenarios.",
    )


def components() -> list[Component]:
    """The tools of the scenarios that components can be."""
    steps = [AgentStep(agent(name)) for name in ("first", "second", "third")]
    question = ApprovalStep("Go on?", name="ask")
    return [
        agent("test_simple_text"),
        agent("test_error_handling", fail),
        agent("test_logging_tool"),
        Workflow("test_tool_with_progress", steps, inputs=INPUTS),
        Workflow("test_streaming_elicitation", [question], inputs=INPUTS),
    ]


APPS = {
    component.name: create_app(SETTINGS, component)
    for component in components()
}


def app_of(body: bytes) -> ASGIApp:
    """The application of the tool that a request calls."""
    try:
        return APPS[json.loads(body)["params"]["name"]]
    except (ValueError, LookupError, TypeError):
        return APPS["test_simple_text"]


async def route(scope: Scope, receive: Receive, send: Send) -> None:
    """Give a request to the application of its tool."""
    body = await Request(scope, receive).body()
    messages: list[Message] = [{"type": "http.request", "body": body}]

    async def receive_again() -> Message:
        return messages.pop() if messages else await receive()

    await app_of(body)(scope, receive_again, send)


@contextlib.asynccontextmanager
async def all_lifespans(_: Starlette) -> AsyncGenerator[None]:
    async with contextlib.AsyncExitStack() as stack:
        for app in APPS.values():
            await stack.enter_async_context(lifespan(app))
        yield


if __name__ == "__main__":
    options = uvicorn_options(SETTINGS)
    del options["log_config"]  # uvicorn's own prints the address
    app = Starlette(routes=[Mount("/", route)], lifespan=all_lifespans)
    uvicorn.run(app, host="127.0.0.1", port=0, **options)
