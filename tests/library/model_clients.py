"""The two model clients, and what the tests of their contract share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from tests.library.upstream import HOUR, Upstream

from podwright import errors
from podwright.messages.messages import Message, ModelRequest, ModelResponse
from podwright.models import Connection, Model
from podwright.models.litellm.model import LiteLLMModel
from podwright.models.protocols.openai_compatible import ChatModel
from podwright.models.providers import ANY, ENDPOINTS
from podwright.models.retries import Retries, Timeouts

KEY = "sk-0123456789-top-secret"
NO_LIMITS = Timeouts(
    connect=HOUR * 9, first_byte=HOUR * 9, idle=HOUR * 9, total=HOUR * 99
)
"""Longer than a test takes and than the hours which it lets pass."""
BROKEN = (
    errors.ModelResponseError,
    errors.ModelConnectionError,
    errors.ModelUnavailableError,
)
"""What LiteLLM reports broken connections and invalid responses as; all are repeated."""
SOON = Retries(first_wait=0.001)
QUESTION = (Message("system", "Help."), Message("user", "Hello?"))
LOOK_UP: Any = {
    "type": "function",
    "function": {
        "name": "look_up",
        "parameters": {
            "type": "object",
            "properties": {"word": {"type": "string"}},
        },
    },
}


def openai_compatible(name: str, connection: Connection) -> Model:
    return ChatModel(
        name, connection, ENDPOINTS.get(name.partition("/")[0], ANY)
    )


@dataclass(frozen=True)
class Client:
    """A client with the name of a model."""

    make: Callable[[str, Connection], Model]
    name: str

    def errors_for(
        self, error: type[errors.ModelError]
    ) -> tuple[type[errors.ModelError], ...]:
        """The errors that may stand for a fault: LiteLLM does not tell all of them apart."""
        return (
            BROKEN
            if self.make is LiteLLMModel and error in BROKEN
            else (error,)
        )

    def model_at(
        self, url: str, timeouts: Timeouts = NO_LIMITS, retries: Retries = SOON
    ) -> Model:
        model = self.make(self.name, Connection(KEY, url))
        model.timeouts = timeouts
        model.retries = retries
        return model

    async def ask(self, provider: Upstream, **fields: Any) -> ModelResponse:
        """The response to a request with these fields."""
        return await self.model_at(provider.url).complete(
            question(self.name, **fields)
        )

    async def stream(
        self, provider: Upstream, **fields: Any
    ) -> tuple[ModelResponse, list[str]]:
        """The response to a request with these fields, streamed, and the tokens that were handed out."""
        return await stream(
            self.model_at(provider.url), question(self.name, **fields)
        )


def question(name: str, **fields: Any) -> ModelRequest:
    return ModelRequest(name, **{"messages": QUESTION, **fields})


async def stream(
    model: Model, request: ModelRequest
) -> tuple[ModelResponse, list[str]]:
    tokens: list[str] = []
    response = await model.complete(request, tokens.append)
    return response, tokens


# LiteLLM and what it imports warn about their own code
_litellm = pytest.mark.filterwarnings("ignore")

OPENAI = pytest.param(
    Client(openai_compatible, "openai/gpt-4o-mini"), id="openai-compatible"
)
DEEPSEEK = pytest.param(
    Client(openai_compatible, "deepseek/deepseek-chat"), id="openai-compatible"
)
LITELLM_OPENAI = pytest.param(
    Client(LiteLLMModel, "openai/gpt-4o-mini"),
    id="litellm-openai",
    marks=_litellm,
)
LITELLM_VLLM = pytest.param(
    Client(LiteLLMModel, "hosted_vllm/qwen"), id="litellm-vllm", marks=_litellm
)
CLIENTS = [OPENAI, LITELLM_OPENAI, LITELLM_VLLM]
"""LiteLLM calls OpenAI through OpenAI's own package, and others itself."""
