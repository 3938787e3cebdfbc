"""The settings of the library: environment variables with the prefix `PODWRIGHT_`.

They are read once, when the first of them is needed, and again when a model is made. A program that changes its
environment at another time calls `forget_settings`.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from podwright.environment import PREFIX, variables
from podwright.errors import DOCS_URL, ConfigurationError
from podwright.schemas.validation_errors import to_problems

ModelClient = Literal["auto", "openai", "litellm"]
"""By provider, always the OpenAI-compatible client, or always LiteLLM."""
_Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Wait = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=1)]


class LibrarySettings(BaseModel):
    """The values of the variables. A time-out or a retry that is None leaves the choice to the model's class."""

    model_config = ConfigDict(
        frozen=True,
        defer_build=True,
        use_attribute_docstrings=True,
        alias_generator=lambda name: PREFIX + name.upper(),
    )

    docs_url: str = DOCS_URL
    """Address of the documentation that errors link to."""
    model_client: ModelClient = "auto"
    """Client for model calls: `openai`, `litellm`, or `auto`, which chooses by provider."""
    model_base_url: str = Field(default="", repr=False)
    """Base URL for all models of the OpenAI-compatible client."""
    model_api_key: str = Field(default="", repr=False)
    """API key for that base URL."""
    model_connect_timeout: _Seconds | None = None
    """Seconds in which a connection to a model must be established."""
    model_first_byte_timeout: _Seconds | None = None
    """Seconds from a request to the first byte of a model's response."""
    model_idle_timeout: _Seconds | None = None
    """Seconds between two pieces of a model's response."""
    model_timeout: _Seconds | None = None
    """Seconds for a whole model call with its retries and waits."""
    model_tries: _Count | None = None
    """Most attempts of a model call, the first included."""
    model_first_wait: _Wait | None = None
    """Most seconds to wait after the first attempt; doubles with each further one."""
    model_longest_wait: _Wait | None = None
    """Most seconds that such a wait may grow to."""
    model_longest_retry_after: _Wait | None = None
    """Most seconds that a provider may ask to wait before another attempt."""
    model_unknown_finish_reason: Literal["warn", "fail"] = "warn"
    """`warn`, or `fail`: what an answer is that may not be whole."""
    max_result_tokens: _Count = 20_000
    """Estimated tokens after which the result of a tool is cut."""
    max_tool_calls: _Count = 128
    """Tool calls that one answer of a model may ask for."""
    mcp_drift: Literal["error", "warn"] = "error"
    """`error`, or `warn`: what a call is of a tool that its MCP server no longer defines as the lock does."""
    prices: str = Field(default="", repr=False)
    """A file with prices that take precedence over all others, or its content as JSON."""
    tool_threads: _Count = 64
    """Tools and conditions that are not asynchronous and run at once, in threads."""
    tool_timeout: _Seconds | None = None
    """Seconds that a call of a tool may take."""
    trust_env: bool = False
    """Whether calls to models and the webhook honour `HTTPS_PROXY` and `NO_PROXY`."""


@cache
def current_settings() -> LibrarySettings:
    """Return the settings, read when they are needed first.

    Raises:
        ConfigurationError: A variable is invalid; the message has a line for each of them.
    """
    texts = variables()
    try:
        return LibrarySettings.model_validate(texts)
    except ValidationError as error:
        problems = to_problems(error.errors(include_url=False), texts)
    lines: list[str] = []
    for problem in problems:
        variable = problem.pointer.removeprefix("/")
        lines.append(f"{variable}: {problem.detail}")
    error = ConfigurationError(
        "\n".join(lines), suggestion="Correct or unset it."
    )
    # the next call reads what was corrected
    variables.cache_clear()
    raise error


def forget_settings() -> None:
    """Have the environment read again when a setting is needed next."""
    variables.cache_clear()
    current_settings.cache_clear()
