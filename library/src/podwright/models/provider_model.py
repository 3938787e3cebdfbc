"""What the models of all providers have in common: one attempt serves both ways to ask, and prices go by the name."""

from __future__ import annotations

import time
from abc import abstractmethod
from dataclasses import replace
from typing import Protocol

from podwright.messages.messages import ModelRequest, ModelResponse
from podwright.messages.usage import Usage
from podwright.models.base import Model, TokenCallback
from podwright.models.offline.offline import estimate_input
from podwright.models.prices import pricing
from podwright.models.providers import Endpoint
from podwright.models.token_counts import as_uncounted


class Answer(Protocol):
    """An answer that arrives, as far as it tells what it costs."""

    def usage_so_far(self, request: ModelRequest) -> Usage | None:
        """The usage of what has arrived; None if the answer has not begun."""
        ...

    @property
    def reported_cost(self) -> float | None:
        """The cost in USD that the response reports."""
        ...

    def terms(self) -> pricing.Terms:
        """What the price depends on besides the tokens."""
        ...


class Bill:
    """What one attempt costs, whatever becomes of it.

    Args:
        model: The model that is asked.
        answer: Its answer.
        request: The request.
        endpoint: What is known of the provider.
    """

    def __init__(
        self,
        model: ProviderModel,
        answer: Answer,
        request: ModelRequest,
        endpoint: Endpoint,
    ) -> None:
        self._model = model
        self._answer = answer
        self._request = request
        self._began = time.time()
        self._reports_cost = endpoint.reports_cost
        self.cost_header: float | None = None
        """The cost in USD that a header of the response has."""
        self.may_be_billed = False
        """Whether the provider may bill the request, though it has not been counted."""

    def begin(self) -> None:
        """Note that the request is sent."""
        self.may_be_billed = True

    def of(self, response: ModelResponse) -> ModelResponse:
        """The response of the attempt, with its cost."""
        return replace(response, usage=self._priced(response.usage))

    def of_failure(self) -> Usage | None:
        """What an attempt has used that failed; an estimate without a price if the provider has not counted it."""
        usage = self._answer.usage_so_far(self._request)
        if usage is not None:
            return self._priced(usage)
        if not self.may_be_billed:
            return None
        estimate = Usage(input_tokens=estimate_input(self._request))
        return as_uncounted(estimate)

    def _priced(self, usage: Usage) -> Usage:
        reported = self._reported()
        if reported is not None:
            return self._at_reported_cost(usage, reported)
        if usage.uncounted_model_calls:
            return usage
        cost = self._model.price(usage, self._answer.terms(), self._began)
        if cost is None:
            return usage
        return _with_cost(usage, cost)

    def _reported(self) -> float | None:
        """The cost that the provider reports, in USD."""
        if not self._reports_cost:
            return None
        if self._answer.reported_cost is not None:
            return self._answer.reported_cost
        # in a header, 0 may also mean that the provider does not know
        return self.cost_header or None

    def _at_reported_cost(self, usage: Usage, reported: float) -> Usage:
        """The usage at the cost that the provider reports, unless the operator's file has the price of its tokens."""
        if not usage.uncounted_model_calls:
            own = pricing.own_price(
                self._model.name, usage, self._answer.terms(), at=self._began
            )
            if own is not None:
                return _with_cost(usage, own)
        counted = replace(
            usage, unpriced_model_calls=0, uncounted_model_calls=0
        )
        return replace(counted, cost=reported, cost_source="provider")


def _with_cost(usage: Usage, cost: pricing.Cost) -> Usage:
    """The usage with its cost, or with that of a part of it."""
    if cost.is_complete:
        return replace(usage, cost=cost.amount, cost_source=cost.source)
    return replace(
        usage,
        known_cost=cost.amount,
        cost_source=cost.source,
        unpriced_model_calls=1,
        incomplete_model_calls=1,
    )


class ProviderModel(Model):
    """A model of a provider, whichever client calls it."""

    is_at_vendor = True
    """Whether the vendor itself is called, for which list prices hold; known once the prices are loaded."""

    @abstractmethod
    async def attempt(
        self,
        request: ModelRequest,
        on_token: TokenCallback | None,
        on_reasoning: TokenCallback | None,
    ) -> ModelResponse:
        """Ask the provider once; a protocol may need several requests for that.

        Args:
            request: The whole request.
            on_token: Called with each piece of the answer's text; None if the answer is not streamed.
            on_reasoning: Called with each piece of the thoughts; None if they are not wanted.

        Raises:
            ModelError: See the table in `docs/models.md`.
            ConfigurationError: The base URL is missing or invalid.
            UnknownModelError: The client does not know the provider.
        """

    async def complete(
        self, request: ModelRequest, on_token: TokenCallback | None = None
    ) -> ModelResponse:
        """See `Model.complete` and `attempt`."""
        return await self.attempt(request, on_token, None)

    async def stream(
        self,
        request: ModelRequest,
        on_token: TokenCallback,
        on_reasoning: TokenCallback,
    ) -> ModelResponse:
        """See `Model.stream`."""
        return await self.attempt(request, on_token, on_reasoning)

    def context_window(self) -> int | None:
        """See `Model.context_window`."""
        return pricing.context_window(self.name)

    def cost(self, usage: Usage) -> float | None:
        """The cost of `usage` in USD at the usual price; None if the price is unknown."""
        return pricing.cost(self.name, usage, at_vendor=self.is_at_vendor)

    def with_cost(self, usage: Usage) -> Usage:
        """Return the usage as it is: an attempt has looked up its price already, by the terms of the answer."""
        return usage

    def price(
        self,
        usage: Usage,
        terms: pricing.Terms,
        began: float,
    ) -> pricing.Cost | None:
        """What an attempt costs, by the operator's file and the lists; None if they do not know.

        Args:
            usage: The tokens.
            terms: What else the price depends on.
            began: When the attempt began, as Unix time in seconds.
        """
        return pricing.lookup(
            self.name, usage, terms, at_vendor=self.is_at_vendor, at=began
        )
