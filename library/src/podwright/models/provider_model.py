"""What the models of all providers have in common: one attempt serves both ways to ask, and prices go by the name."""

from __future__ import annotations

from abc import abstractmethod

from podwright.messages import ModelRequest, ModelResponse
from podwright.models import pricing
from podwright.models.base import Model, TokenCallback
from podwright.usage import Usage


class ProviderModel(Model):
    """A model of a provider, whichever client calls it."""

    @abstractmethod
    async def attempt(
        self, request: ModelRequest, on_token: TokenCallback | None, on_reasoning: TokenCallback | None
    ) -> ModelResponse:
        """Ask the provider once; a protocol may need several requests for that.

        Args:
            request: The whole request.
            on_token: Called with each piece of the answer's text; None if the answer is not streamed.
            on_reasoning: Called with each piece of the thoughts; None if nobody wants them.

        Raises:
            ModelError: See the table in `docs/models.md`.
            ConfigurationError: The base URL is missing or invalid.
            UnknownModelError: The client does not know the provider.
        """

    async def complete(self, request: ModelRequest, on_token: TokenCallback | None = None) -> ModelResponse:
        """See `Model.complete` and `attempt`."""
        return await self.attempt(request, on_token, None)

    async def stream(
        self, request: ModelRequest, on_token: TokenCallback, on_reasoning: TokenCallback
    ) -> ModelResponse:
        """See `Model.stream`."""
        return await self.attempt(request, on_token, on_reasoning)

    def cost(self, usage: Usage) -> float | None:
        """The cost of `usage` in USD; None if the price is unknown."""
        return pricing.cost(self.name, usage)
