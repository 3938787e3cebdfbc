"""The service of the conformance suite: `python mcp_conformance_service.py FILE` serves the tools of its scenarios.

Each tool is a component, served by an application of its own, as every component is; their background runs are in one
file. A request goes to the application whose tool or task it names; one that names none of them, to the first. It
listens on 127.0.0.1, at a port that the system chooses, and prints its address.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import sys
from collections.abc import AsyncGenerator, Callable
from typing import Any

import uvicorn
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount
from starlette.types import Message, Receive, Scope, Send

from podwright import (
    Agent,
    AgentStep,
    ApprovalStep,
    FunctionModel,
    FunctionStep,
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
SECONDS = {"seconds": {"type": "number"}, "label": {"type": "string"}}
SETTINGS: dict[str, Any] = {
    "mcp": True,
    "runs_database": f"sqlite:///{sys.argv[1]}",
}


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


class Faulty(Agent):
    """An agent with a bug."""

    async def perform(self, run: Any, task: Any) -> Any:
        raise RuntimeError("secret")


def greet(request: ModelRequest) -> str:
    return request.messages[0].text


async def compute(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return f"Computed for {seconds} seconds."


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
        Agent(
            "greet",
            "Hello, {name}!",
            FunctionModel(greet),
            inputs={"name": {"type": "string"}},
        ),
        Workflow(
            "confirm_delete",
            [ApprovalStep("Delete {filename}?", name="ask")],
            inputs={"filename": {"type": "string"}},
        ),
    ]


def slow_components() -> list[Component]:
    """The tools of the scenarios that are tasks at once, because their calls may take long."""
    computing = FunctionStep(compute, {"seconds": "{seconds}"})
    return [
        Workflow("slow_compute", [computing], inputs=SECONDS),
        agent("failing_job", fail),
        Faulty(
            "protocol_error_job", "Fail.", FunctionModel(say), inputs=INPUTS
        ),
    ]


def apps() -> dict[str, FastAPI]:
    """The applications by the names of their tools."""
    at_once = Settings(**SETTINGS, mcp_task_after=0)
    return {
        **{
            each.name: create_app(Settings(**SETTINGS), each)
            for each in components()
        },
        **{each.name: create_app(at_once, each) for each in slow_components()},
    }


APPS = apps()


def component_of(task_id: str) -> str:
    """The name of the component whose run a task is; empty if there is no such run."""
    query = "SELECT component FROM podwright_runs WHERE id = ?"
    with contextlib.closing(sqlite3.connect(sys.argv[1])) as connection:
        row = connection.execute(query, (task_id,)).fetchone()
    return row[0] if row else ""


def app_of(body: bytes) -> FastAPI:
    """The application of the tool that a request calls, or of the task that it is about."""
    try:
        params = json.loads(body)["params"]
        name = params.get("name") or component_of(params["taskId"])
        return APPS[name]
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
    options = uvicorn_options(Settings(**SETTINGS))
    del options["log_config"]  # uvicorn's own prints the address
    app = Starlette(routes=[Mount("/", route)], lifespan=all_lifespans)
    uvicorn.run(app, host="127.0.0.1", port=0, **options)
