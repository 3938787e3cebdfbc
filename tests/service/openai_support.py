"""What the tests of the OpenAI-compatible routes share: a model whose answer tells what it was asked, and a client."""

from __future__ import annotations

import json
from typing import Any

import httpx
import openai
from pydantic import BaseModel

from podwright import Agent, FunctionModel, Usage
from podwright.errors import ModelRateLimitError, ModelUnavailableError
from podwright.models.retries import Retries
from podwright.testing import ModelRequest, ModelResponse, ToolCall

KEY = "a-key-of-a-client-0001"
USED = Usage(100, 10, 40, 4, cost=0.001, cache_write_tokens=20)


def search(query: str) -> str:
    """Search the archive."""
    return f"found {query}"


class City(BaseModel):
    """A city."""

    name: str
    country: str


def texts(request: ModelRequest) -> list[str]:
    return [
        message.text for message in request.messages if message.role == "user"
    ]


class Clerk:
    """A model whose answer tells what it was asked."""

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []

    def __call__(self, request: ModelRequest) -> ModelResponse:
        self.requests.append(request)
        question = texts(request)[-1]
        if request.output:
            return ModelResponse(
                '{"name": "Bern", "country": "Switzerland"}', usage=USED
            )
        if request.settings.get("max_tokens", 100) < 20:
            return ModelResponse(
                "The answer", usage=USED, finish_reason="length"
            )
        if question == "search" and request.messages[-1].role == "user":
            return ModelResponse(
                "Let me look.",
                (ToolCall.of("search", query="moon"),),
                usage=USED,
            )
        if question == "fail":
            raise ModelUnavailableError("The provider is down.")
        if question == "wait":
            raise ModelRateLimitError("Too many requests.")
        return ModelResponse(
            f"You said: {', '.join(texts(request))}", usage=USED
        )


def helper(clerk: Clerk) -> Agent:
    """An agent with a tool, whose model answers as a clerk."""
    model = FunctionModel(clerk, name="offline/clerk")
    model.retries = Retries(tries=1)
    return Agent(
        "helper",
        "Help in {language}.",
        model,
        tools=[search],
        inputs={"language": {"type": "string", "default": "English"}},
    )


SIGNED = [{"type": "reasoning.encrypted", "data": "gAAAA", "index": 0}]


class Thinker(FunctionModel):
    """A model that thinks before each of its answers; it wants its thoughts back unchanged."""

    def __init__(self) -> None:
        super().__init__(self._answer, name="offline/thinker")
        self.requests: list[ModelRequest] = []

    async def stream(
        self, request: ModelRequest, on_token: Any, on_reasoning: Any
    ) -> ModelResponse:
        on_reasoning("I should ")
        on_reasoning(
            "look." if request.messages[-1].role == "user" else "answer."
        )
        return await self.complete(request, on_token)

    def _answer(self, request: ModelRequest) -> ModelResponse:
        self.requests.append(request)
        if request.output:
            return ModelResponse('{"a": 1}', reasoning="I should look.")
        if request.messages[-1].text == "quiet":
            return ModelResponse(
                "",
                (ToolCall.of("search", query="moon"),),
                reasoning="I should look.",
            )
        if request.messages[-1].text == "search":
            return ModelResponse(
                "Let me look.",
                (ToolCall.of("search", query="moon"),),
                reasoning="I should look.",
            )
        return ModelResponse(
            "Found.",
            reasoning="I should answer.",
            provider="offline",
            provider_fields={"reasoning_details": SIGNED},
        )


def user(text: Any) -> Any:
    return {"role": "user", "content": text}


def sdk(service: httpx.Client) -> openai.OpenAI:
    """OpenAI's client of a service without keys."""
    return openai.OpenAI(
        base_url=f"{service.base_url}/v1", api_key="none", max_retries=0
    )


def events_of(response: httpx.Response) -> list[Any]:
    """The data of server-sent events."""
    lines = [
        line.removeprefix("data: ")
        for line in response.text.splitlines()
        if line.startswith("data: ")
    ]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def post(
    service: httpx.Client, protocol: str, change: dict[str, Any]
) -> httpx.Response:
    """Send a request of a protocol, "chat" or "responses", with changes."""
    if protocol == "chat":
        return service.post(
            "/v1/chat/completions",
            json={"model": "helper", "messages": [user("x")], **change},
        )
    return service.post(
        "/v1/responses", json={"model": "helper", "input": "x", **change}
    )
