"""Everything that an operator can set, by environment variables with the prefix `PODWRIGHT_`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
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
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SecretsSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from podwright.blueprints import from_json
from podwright.errors import BlueprintValidationError, ConfigurationError
from podwright.models import MODEL_CLIENTS
from podwright.text import truncate
from podwright.usage import RunLimits
from podwright_service import variables

SECRETS = "/run/secrets"
"""Where Docker and Kubernetes put secrets, by custom."""


def _split(value: Any) -> Any:
    return [part.strip() for part in re.split(r"[,\n]", value) if part.strip()] if isinstance(value, str) else value


def _object(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        found = from_json(value)
    except BlueprintValidationError as error:
        raise ValueError(f"a JSON object of texts by name ({error.problems[0].detail.rstrip('.')})") from None
    if not isinstance(found, dict):
        raise ValueError("a JSON object of texts by name")
    return found  # pyright: ignore[reportUnknownVariableType] - pydantic looks into it


def _unless_link(value: Any) -> Any:
    # Kubernetes sets PODWRIGHT_PORT=tcp://… beside a Service named "podwright": nobody means to listen on that
    return 8000 if isinstance(value, str) and variables.is_link("PODWRIGHT_PORT", value) else value


def _host(value: str) -> str:
    if not re.fullmatch(r"[\w.%:-]+", value) or value.count(":") == 1:
        raise ValueError("a host name or an address without a port, such as 127.0.0.1")
    return value


def _split_keys(value: Any) -> Any:
    if not (found := _split(value)) and isinstance(value, str):  # such as "$ONE,$TWO", and neither is set
        raise ValueError("one key at least (it has no key; unset it to serve without keys)")
    return found


Names = Annotated[list[str], NoDecode, BeforeValidator(_split)]
"""A list of names; in the environment with commas between them."""


Finite = Annotated[NonNegativeFloat, Field(allow_inf_nan=False)]
Seconds = Annotated[PositiveFloat, Field(allow_inf_nan=False)]
ApiKeys = Annotated[tuple[SecretStr, ...], NoDecode, BeforeValidator(_split_keys)]
Addresses = Annotated[dict[str, str], NoDecode, BeforeValidator(_object)]
KeysByName = Annotated[dict[str, SecretStr], NoDecode, BeforeValidator(_object)]


class Settings(BaseSettings):
    """The settings of one service; `PODWRIGHT_PORT=8080` sets `port`, and so on. An empty variable is as none.

    What no argument and no variable gives may stand in a file of that name, in `secrets_dir`.
    """

    model_config = SettingsConfigDict(
        env_prefix=variables.PREFIX,
        env_ignore_empty=True,
        frozen=True,
        populate_by_name=True,
        use_attribute_docstrings=True,
    )

    component: str | None = None
    """What to serve: a blueprint file, a component folder, or `module:attribute`."""
    model: str | None = None
    """A model, "<provider>/<model_name>", that answers in place of all that the blueprints name."""
    host: Annotated[str, AfterValidator(_host)] = "0.0.0.0"  # noqa: S104 - a container is reached from outside (spec §4.1)
    """Address to listen on."""
    port: Annotated[int, BeforeValidator(_unless_link)] = Field(default=8000, ge=0, le=65535)
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
    secrets_dir: str = SECRETS
    """A folder of files that each hold one setting, by the name of its variable: `podwright_api_keys`."""
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

    agents: Addresses = Field(default_factory=dict[str, str])
    """Components in other containers that this one works with: a JSON object of their URLs by name."""
    agents_file: str | None = None
    """A JSON file of such an object."""
    agent_keys: KeysByName = Field(default_factory=dict[str, SecretStr])
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

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Where values come from; the first that has one counts."""
        folder = _secrets()
        files = (SecretsSettingsSource(settings_cls, folder),) if folder.is_dir() else ()
        return (init_settings, env_settings, *files)


def _secrets() -> Path:
    return Path(os.environ.get("PODWRIGHT_SECRETS_DIR") or SECRETS)


def variables_of(name: str) -> tuple[str, ...]:
    """The variables of a setting, the one that counts first."""
    alias = Settings.model_fields[name].validation_alias
    if isinstance(alias, AliasChoices):
        return tuple(str(choice) for choice in alias.choices)
    return (variables.PREFIX + name.upper(),)


def read_settings(**given: Any) -> Settings:
    """The settings of the environment, with those given in their place; None is not given.

    Raises:
        ConfigurationError: Some are wrong or misspelt; the message names them all.
    """
    given = {name: value for name, value in given.items() if value is not None}
    folder, settings, found = _secrets(), None, list[str]()
    try:
        found += list(variables.unknown((one for name in Settings.model_fields for one in variables_of(name)), folder))
        if os.environ.get("PODWRIGHT_SECRETS_DIR") and not folder.is_dir():
            found.append(f"PODWRIGHT_SECRETS_DIR must be a folder, not '{folder}'.")
        if (client := os.environ.get("PODWRIGHT_MODEL_CLIENT") or MODEL_CLIENTS[0]) not in MODEL_CLIENTS:
            found.append(
                f"PODWRIGHT_MODEL_CLIENT must be one of {', '.join(MODEL_CLIENTS)}, not '{truncate(client, 60)}'."
            )
        settings = Settings(**given)
    except ValidationError as error:
        found = [*found, *_told(error, given)]
    except (OSError, ValueError, SettingsError) as error:
        raise ConfigurationError(
            f"The secrets in '{folder}' cannot be read: {error}.", suggestion="Let this user read UTF-8 files there."
        ) from error
    if settings is None or found:
        raise variables.failure(found)
    return settings


def _told(error: ValidationError, given: dict[str, Any]) -> Iterator[str]:
    for one in error.errors(include_url=False):
        field = next((name for name in Settings.model_fields if one["loc"][0] in (name, *variables_of(name))), None)
        if field is None:
            yield f"There is no setting {one['loc'][0]}."
            continue
        source = source_of(field, given).partition(" ")
        place = variables_of(field)[0] if source[0] == "environment" and not source[2] else source[2] or field
        secret = "Secret" in str(Settings.model_fields[field].annotation)
        yield variables.wrong(one, place, secret)


def source_of(name: str, given: dict[str, Any]) -> str:
    """Where a setting's value came from; see `variables.origin`."""
    options = {"component": "PATH", **{one: f"--{one}" for one in ("host", "port", "title", "model")}}
    option = options.get(name, variables_of(name)[0]) if name in given else None  # the others come from Python
    return variables.origin(variables_of(name), option, _secrets())


def adopt_secrets() -> dict[str, Path]:
    """Give the library what it reads from the environment, where a secret file has it, and tell which files those are.

    Raises:
        ConfigurationError: Such a file cannot be read.
    """
    adopted: dict[str, Path] = {}
    for file in variables.secret_files(folder := _secrets()):
        name = file.upper()
        if name in variables.LIBRARY and not os.environ.get(name):
            try:
                os.environ[name] = (folder / file).read_text(encoding="utf-8").strip()
            except (OSError, ValueError) as error:
                raise ConfigurationError(
                    f"The file '{folder / file}' cannot be read: {error}.", suggestion="Let this user read it."
                ) from error
            adopted[name] = folder / file
    return adopted
