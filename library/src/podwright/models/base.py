"""The interface of models: one method."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from podwright.errors import ConfigurationError, ModelResponseError
from podwright.functions.run_start import RunStart
from podwright.messages.messages import ModelRequest, ModelResponse
from podwright.messages.usage import Usage
from podwright.models.prices import pricing
from podwright.models.retries import Retries, Timeouts
from podwright.settings import current_settings

KEY_ARGUMENT = "api_key"
"""The argument of components that gives the API key."""

TokenCallback = Callable[[str], None]
"""Called with each piece of the answer's text as it arrives, in order."""


@dataclass(frozen=True, slots=True)
class Connection:
    """How a component reaches its provider, in place of the environment; never part of a blueprint."""

    api_key: str | None = field(default=None, repr=False)
    """The API key; None takes that of the environment, an empty string sends none."""
    base_url: str | None = None
    """The base URL of the endpoint; None takes that of the environment or the provider's own."""
    key_source: str = KEY_ARGUMENT
    """The argument or the variable that gives the API key, for errors."""


class Model(ABC):
    """Answers requests. One instance serves many runs at once, so it keeps no state of a run."""

    name: str = "offline/model"
    """`<provider>/<model_name>`, as a blueprint writes it."""

    timeouts: Timeouts = Timeouts()
    """Time-outs; set on the class for all models, on an instance for one. For models that are given by name, what the
    environment sets takes precedence."""

    retries: Retries = Retries()
    """Retries after failed attempts; set like `timeouts`."""

    reports_cost: bool = False
    """Whether its responses say what they cost, whatever `cost` knows of it."""

    def recorded_start(self, component: str) -> RunStart | None:
        """The start of the next recorded run of a component that it repeats; None if it repeats none."""
        return None

    @abstractmethod
    async def complete(
        self, request: ModelRequest, on_token: TokenCallback | None = None
    ) -> ModelResponse:
        """Answer one request in one attempt; the caller repeats it with `podwright.models.retries.with_retries`.

        Args:
            request: The whole request.
            on_token: If given, the answer is streamed: called with each piece of its text.

        Returns:
            The whole answer, streamed or not, with its token counts.

        Raises:
            ModelError: The model gave no answer; repeated if it is `transient` and no token was handed out.
                Other exceptions are wrapped in one.
        """

    async def stream(
        self,
        request: ModelRequest,
        on_token: TokenCallback,
        on_reasoning: TokenCallback,
    ) -> ModelResponse:
        """As `complete`, and hand out the model's thoughts too; models that show none need not implement it.

        Args:
            request: The whole request.
            on_token: Called with each piece of the answer's text.
            on_reasoning: Called with each piece of the text of the thoughts.
        """
        return await self.complete(request, on_token)

    def check(self) -> None:
        """Check what calls need of the environment. Takes up to seconds: on an event loop, call it in a thread.

        Raises:
            ConfigurationError: The base URL is missing or invalid.
            ModelAuthenticationError: The API key is missing or invalid.
            UnknownModelError: The client does not know the provider.
        """
        return

    def load_prices(self) -> None:
        """Load what `cost` needs. Takes up to seconds: on an event loop, call it in a thread.

        Raises:
            ConfigurationError: The price file is wrong.
        """
        if self._has_price_of_file():
            pricing.load(self.name, at_vendor=False)

    async def prepare(self) -> None:
        """Load what a call and `cost` need, in a thread; awaited before each call. Errors are left to `complete`."""
        if self._has_price_of_file():
            with suppress(ConfigurationError):
                await pricing.prepare(self.name, at_vendor=False)

    def max_output_tokens(self) -> int | None:
        """The most output tokens of an answer to a request without `max_tokens`; None if that is not known.

        Limits of tokens and cost hold them back before a call.
        """
        return None

    def context_window(self) -> int | None:
        """The most tokens that a request and its answer may have together; None if that is not known."""
        return None

    def cost(self, usage: Usage) -> float | None:
        """The cost of `usage` with this model in USD, by default as the file of `PODWRIGHT_PRICES` says.

        None if the price is unknown. It is asked of calls whose usage has no cost.

        Raises:
            ConfigurationError: The price file is wrong.
        """
        return pricing.cost(self.name, usage, at_vendor=False)

    def with_cost(self, usage: Usage) -> Usage:
        """Return the usage of a call with its cost by `cost`; the same usage if that cannot tell more about the cost.

        Raises:
            ConfigurationError: The price file is wrong.
        """
        if usage.cost is not None or usage.unpriced_model_calls:
            # the cost is known, or the model has found that it is not, for example because the tokens are estimates
            return usage
        cost = self.cost(usage)
        if cost is None:
            return usage
        source = ""
        if self._has_price_of_file():
            source = "override"
        return replace(usage, cost=cost, cost_source=source)

    def has_price(self) -> bool:
        """Whether `cost` knows its price, or it has no `cost` of its own, because its responses say what they cost.

        Takes as long as `load_prices`.

        Raises:
            ConfigurationError: The price file is wrong.
        """
        self.load_prices()
        if self._has_price_of_file():
            return True
        return self.cost(Usage(input_tokens=1, output_tokens=1)) is not None

    def _has_price_of_file(self) -> bool:
        """Whether it has no `cost` of its own."""
        return type(self).cost is Model.cost

    def address(self) -> tuple[str, int] | None:
        """Host and port of its endpoint, for telemetry; None if it has none."""
        return None


class WrappingModel(Model):
    """A model around another one: what a subclass does not change is the other's.

    Args:
        model: The model to ask.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self.name = model.name
        self.timeouts = model.timeouts
        self.retries = model.retries
        self.reports_cost = model.reports_cost

    def recorded_start(self, component: str) -> RunStart | None:
        """See `Model.recorded_start`."""
        return self._model.recorded_start(component)

    async def complete(
        self, request: ModelRequest, on_token: TokenCallback | None = None
    ) -> ModelResponse:
        """See `Model.complete`."""
        return await self._model.complete(request, on_token)

    async def stream(
        self,
        request: ModelRequest,
        on_token: TokenCallback,
        on_reasoning: TokenCallback,
    ) -> ModelResponse:
        """See `Model.stream`."""
        return await self._model.stream(request, on_token, on_reasoning)

    def check(self) -> None:
        """See `Model.check`."""
        self._model.check()

    def load_prices(self) -> None:
        """See `Model.load_prices`."""
        self._model.load_prices()

    async def prepare(self) -> None:
        """See `Model.prepare`."""
        await self._model.prepare()

    def max_output_tokens(self) -> int | None:
        """See `Model.max_output_tokens`."""
        return self._model.max_output_tokens()

    def context_window(self) -> int | None:
        """See `Model.context_window`."""
        return self._model.context_window()

    def cost(self, usage: Usage) -> float | None:
        """See `Model.cost`."""
        return self._model.cost(usage)

    def with_cost(self, usage: Usage) -> Usage:
        """See `Model.with_cost`."""
        return self._model.with_cost(usage)

    def has_price(self) -> bool:
        """See `Model.has_price`."""
        return self._model.has_price()

    def address(self) -> tuple[str, int] | None:
        """See `Model.address`."""
        return self._model.address()


def check_tool_calls(model: str, count: int) -> None:
    """Check that an answer does not ask for more tool calls than are allowed.

    Args:
        model: The model's name.
        count: The tool calls that it has asked for so far.

    Raises:
        ModelResponseError: There are more than `PODWRIGHT_MAX_TOOL_CALLS`.
    """
    most = current_settings().max_tool_calls
    if count > most:
        error = ModelResponseError(
            f"The answer of '{model}' asks for more than {most} tool calls.",
            suggestion="Let the instructions ask for fewer at once, or raise PODWRIGHT_MAX_TOOL_CALLS.",
        )
        error.transient = False
        raise error


def note_attempt(error: asyncio.CancelledError, usage: Usage | None) -> None:
    """Note on a cancellation what the attempt used that it ends, so that it is counted; see `noted_attempt`."""
    vars(error)["attempt_usage"] = usage


def noted_attempt(error: asyncio.CancelledError) -> Usage | None:
    """What the attempt used that a cancellation has ended; None if nothing was sent."""
    return vars(error).get("attempt_usage")
