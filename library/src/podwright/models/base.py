"""The seam to models: one method. Everything that a provider is sits behind it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

from podwright.messages import ModelRequest, ModelResponse
from podwright.models.retries import Retries, Timeouts
from podwright.usage import Usage

ANSWER_TOOL = "final_answer"
"""The tool through which a model without JSON output gives structured answers."""

TokenCallback = Callable[[str], None]
"""Is given each piece of the answer's text as it arrives, in order."""


@dataclass(frozen=True, slots=True)
class Connection:
    """How a component reaches its provider, where the environment does not say; never part of a blueprint."""

    api_key: str | None = field(default=None, repr=False)
    """The key to present; None is what the environment says, the empty string is none."""
    base_url: str | None = None
    """The endpoint to talk to."""


class Model(ABC):
    """Answers requests. One instance serves many runs at once, so it keeps nothing of a run."""

    name: str = "offline/model"
    """"<provider>/<model_name>", as a blueprint writes it."""

    json_output: bool = True
    """Whether it obeys `ModelRequest.output`; if not, structured output goes through a call of `ANSWER_TOOL`."""

    timeouts: Timeouts = Timeouts()
    """How long it may take; set on the class for all models, on an instance for one."""

    retries: Retries = Retries()
    """How often a failed try is repeated; set likewise."""

    @abstractmethod
    async def complete(self, request: ModelRequest, on_token: TokenCallback | None = None) -> ModelResponse:
        """Answer one request, in one try: whoever asks repeats it, with `podwright.models.retries.with_retries`.

        Args:
            request: The whole request.
            on_token: If given, the answer is streamed: called with each piece of its text.

        Returns:
            The whole answer, streamed or not, with the tokens that it took.

        Raises:
            ModelError: The model gave no answer; repeated if it is `transient` and no token was handed out.
                Other exceptions are reported as one.
        """

    def price(self, usage: Usage) -> float | None:
        """What `usage` would cost with this model, in USD; None if the price is unknown."""
        return None

    def address(self) -> tuple[str, int] | None:
        """The host and port that it is asked at, for telemetry; None if it does not say."""
        return None
