"""Everything that an operator can set, by environment variables with the prefix `PODWRIGHT_`."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import (
    AliasChoices,
    BeforeValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    SecretStr,
    ValidationError,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from podwright.errors import ConfigurationError
from podwright.usage import RunLimits


def _split(value: Any) -> Any:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _split_keys(value: Any) -> Any:
    if not (found := _split(value)) and isinstance(value, str):  # such as "$ONE,$TWO", and neither is set
        raise ValueError("it has no key; unset it to serve without keys")
    return found


Names = Annotated[list[str], NoDecode, BeforeValidator(_split)]
"""A list of names; in the environment with commas between them."""


Finite = Annotated[NonNegativeFloat, Field(allow_inf_nan=False)]
Seconds = Annotated[PositiveFloat, Field(allow_inf_nan=False)]
ApiKeys = Annotated[tuple[SecretStr, ...], NoDecode, BeforeValidator(_split_keys)]


class Settings(BaseSettings):
    """The settings of one service; `PODWRIGHT_PORT=8080` sets `port`, and so on. An empty variable is as none."""

    model_config = SettingsConfigDict(
        env_prefix="PODWRIGHT_", env_ignore_empty=True, frozen=True, use_attribute_docstrings=True
    )

    component: str | None = None
    """What to serve: a blueprint file, a component folder, or `module:attribute`."""
    model: str | None = None
    """A model, "<provider>/<model_name>", that answers in place of all that the blueprints name."""
    host: str = "0.0.0.0"  # noqa: S104 - a container is reached from outside (spec §4.1)
    """Address to listen on."""
    port: int = Field(default=8000, ge=0, le=65535)
    """Port to listen on; 0 takes a free one."""
    title: str | None = None
    """Title of the service and of its API page; by default the component's name."""
    workers: PositiveInt = Field(default=1, validation_alias=AliasChoices("PODWRIGHT_WORKERS", "WEB_CONCURRENCY"))
    """Processes that serve; more than one need a master that keeps them. `WEB_CONCURRENCY` says the same."""
    worker_max_requests: NonNegativeInt = 0
    """Requests after which a worker is replaced by a new one; 0 is never."""
    drain_delay: Finite = 0.0
    """Seconds that the service still accepts requests after it was told to stop, while `/ready` says 503."""
    shutdown_timeout: PositiveInt = 30
    """Seconds that runs have to finish once the service accepts no more."""

    api_keys: ApiKeys = ()
    """Keys that callers must send one of, with commas between; `run+read:KEY` is a key for these scopes only."""
    api_keys_file: str | None = None
    """A file with such keys, one in a line; it is read again when it changes."""
    max_runs: PositiveInt = 64
    """Runs under way at once, in each process."""
    max_waiting: NonNegativeInt = 256
    """Requests that may wait for a run to end; one more is told to come again."""
    max_wait: Finite = 10.0
    """Seconds that a request waits before it is told to come again."""
    header_timeout: Seconds = 10.0
    """Seconds in which a client must have sent a request's headers."""
    body_timeout: Seconds = 30.0
    """Seconds in which a client must have sent a request's body."""
    idempotency_ttl: Finite = 3600.0
    """Seconds that the answer to a request with an `Idempotency-Key` is kept."""
    idempotency_entries: PositiveInt = 1000
    """Most answers kept, in each process."""
    idempotency_bytes: PositiveInt = 16 * 1024 * 1024
    """Most bytes of answers kept, in each process."""
    stream_heartbeat: Finite = 15.0
    """Seconds of silence after which a stream says that it lives."""
    stream_buffer_bytes: PositiveInt = 1024 * 1024
    """Most bytes of events kept for a reader of a stream who is slow; then the run is cancelled."""

    agents: dict[str, str] = Field(default_factory=dict[str, str])
    """Components in other containers that this one works with: a JSON object of their URLs by name."""
    agents_file: str | None = None
    """A JSON file of such an object."""
    agent_keys: dict[str, SecretStr] = Field(default_factory=dict[str, SecretStr])
    """API keys to send to those components: a JSON object of keys by name."""
    max_hops: NonNegativeInt = 3
    """Containers that a run may pass through after this one."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least level of a line that is logged."""
    log_format: Literal["auto", "json", "console"] = "auto"
    """How lines are logged; `auto` is for people on a terminal and JSON otherwise."""
    log_content: bool = False
    """Whether inputs and outputs of runs are logged."""

    max_body_bytes: PositiveInt = 1024 * 1024
    """Largest request body."""
    max_blueprint_bytes: PositiveInt = 256 * 1024
    """Largest blueprint in a request, with the agents that it names, as JSON without white space."""
    max_json_depth: int = Field(default=32, ge=1, le=60)
    """Deepest nesting of a request's JSON."""
    max_json_values: PositiveInt = 50_000
    """Most values in a request's JSON."""

    max_steps: PositiveInt = 64
    """Most steps of a posted blueprint, with those of its agents; also most agents, skills, and tools of an agent."""
    max_nesting: PositiveInt = 4
    """How deep steps of a posted workflow may stand in each other, and agents name each other; 1 is no nesting."""
    max_branches: PositiveInt = 8
    """Most branches of a posted parallel step, and the largest `max_concurrency` of a map step."""
    max_loops: PositiveInt = 10
    """Largest `max_loops` of a posted agent, and the largest `max_iterations` of a loop step."""
    allowed_models: Names | None = None
    """Models that a posted blueprint may name; by default those of the served component, and `model`."""
    allowed_tools: Names | None = None
    """Tools that a posted blueprint may name, of those that the served component has; by default all of them."""

    run_wall_time: Finite | None = 600.0
    """Seconds that a run may take."""
    run_tokens: NonNegativeInt | None = 200_000
    """Input and output tokens that a run may use."""
    run_model_calls: NonNegativeInt | None = 50
    """Model calls that a run may make."""
    run_cost: Finite | None = None
    """USD that a run may cost. Off by default: with it, a model whose price is unknown is refused."""

    @cached_property
    def run_limits(self) -> RunLimits:
        """What each run may use."""
        return RunLimits(self.run_wall_time, self.run_model_calls, self.run_tokens, self.run_cost)


def read_settings(**given: Any) -> Settings:
    """The settings of the environment, with those given in their place; None is not given.

    Raises:
        ConfigurationError: One has a wrong value; the message names it.
    """
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = f"PODWRIGHT_{str(first['loc'][0]).upper()}"
        raise ConfigurationError(
            f"The setting {name} is {first['input']!r}: {first['msg']}.", suggestion=f"Correct or unset {name}."
        ) from error
