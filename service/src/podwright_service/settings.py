"""The settings of a service: environment variables with the prefix `PODWRIGHT_`, and files of secrets."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Required

from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    PrivateAttr,
    SecretStr,
    ValidationError,
    with_config,
)
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict
from typing_extensions import TypedDict

from podwright.data.text import short_repr
from podwright.environment import PREFIX
from podwright.errors import DOCS_URL, ConfigurationError
from podwright.messages.conversation import MAX_MESSAGES
from podwright.messages.messages import CLOSED
from podwright.messages.usage import RunLimits
from podwright.models import EVERY
from podwright.models.http.proxies import invalid_proxies
from podwright.models.http.urls import is_request_url, join_url
from podwright.schemas.validation_errors import to_problems
from podwright.settings import current_settings, forget_settings
from podwright.steps.blueprint_types import ServerName
from podwright_service import variables

SECRETS_DIR = "/run/secrets"
"""The folder where Docker and Kubernetes mount secrets by convention."""
MIN_STATE_KEY = 32
"""Fewest characters of a key that seals states."""
MAX_WORKERS = max(8, 4 * (os.cpu_count() or 1))
"""Most server processes on this machine."""


def _split(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    parts = [part.strip() for part in re.split(r"[,\n]", value)]
    return [part for part in parts if part]


def _split_keys(value: Any) -> Any:
    keys = _split(value)
    # such as "$FIRST,$SECOND" with both variables unset
    if isinstance(value, str) and not keys:
        raise ValueError(
            "Expected at least one key; unset the variable to serve without keys"
        )
    return keys


def _parse_object(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise ValueError(
            f"Expected a JSON object of values by name: {error}"
        ) from None


def _to_lower(value: Any) -> Any:
    """The name of a header, in which upper and lower case are the same, in lower case."""
    if isinstance(value, str):
        return value.lower()
    return value


def _to_entry(value: Any) -> Any:
    """An MCP server of which only the URL is given, as an object."""
    if isinstance(value, str):
        return {"url": value}
    return value


def _ignore_service_link(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    # Kubernetes sets PODWRIGHT_PORT=tcp://… in pods beside a Service named "podwright"
    if variables.is_service_link("PODWRIGHT_PORT", value):
        return 8000
    return value


def _expect(is_valid: Callable[[Any], object], expected: str) -> AfterValidator:
    def check(value: Any) -> Any:
        if not is_valid(value):
            raise ValueError(f"Expected {expected}, got {value!r}")
        return value

    return AfterValidator(check)


def _check_webhook(url: str) -> str:
    # the message does not repeat it, because it may have a password
    if not is_request_url(url):
        raise ValueError(
            "Expected an http or https URL without a user (@), a fragment (#) and white space,"
            " such as https://example.com/podwright"
        )
    return url


def _check_server(url: str) -> str:
    # the message does not repeat it, because it may have a password
    if not is_request_url(url):
        raise ValueError(
            "Expected an http or https URL without a user (@), a fragment (#) and white space,"
            " such as https://files.example.com/mcp"
        )
    return url


def _check_webhook_secret(secret: SecretStr) -> SecretStr:
    prefix, _, encoded = secret.get_secret_value().partition("_")
    key = b""
    # its message may quote the secret
    with contextlib.suppress(ValueError):
        key = base64.b64decode(encoded, validate=True)
    if prefix != "whsec" or not 24 <= len(key) <= 64:
        raise ValueError(
            "Expected whsec_ and 24 to 64 random bytes as base64;"
            ' make one with: echo "whsec_$(openssl rand -base64 32)"'
        )
    return secret


def _check_state_key(key: SecretStr) -> SecretStr:
    if len(key.get_secret_value()) < MIN_STATE_KEY:
        raise ValueError(
            f"Expected at least {MIN_STATE_KEY} characters; make a key with: openssl rand -base64 32"
        )
    return key


def _models_in(text: str) -> dict[str, str]:
    """The models of `MODEL` and `NAME=MODEL`, separated by commas, by name.

    Raises:
        ValueError: An entry has no name or no model, or an agent has two.
    """
    models: dict[str, str] = {}
    for entry in _split(text):
        # the name of a model may have the character, too
        name, equals, _ = entry.partition("/")[0].partition("=")
        model = entry.removeprefix(f"{name}=").strip()
        name = name.strip()
        if not equals:
            name = EVERY
            model = entry
        if not name or not model:
            raise ValueError(
                f"Expected a model, or NAME=MODEL for one agent, got '{entry}'"
            )
        if name in models:
            raise ValueError(f"Expected one model for '{name}', got two")
        models[name] = model
    return models


def _check_models(text: str) -> str:
    _models_in(text)
    return text


def _without_brackets(host: object) -> object:
    """An IPv6 address as URLs have it, without its brackets."""
    if isinstance(host, str) and host.startswith("[") and host.endswith("]"):
        return host[1:-1]
    return host


_is_header = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]{1,100}").fullmatch
_is_host = re.compile(r"\*|(?![^:]*:[^:]*$)[\w.%:-]+").fullmatch
_is_host_pattern = re.compile(r"\*|(\*\.)?[\w.-]+|\[[\da-fA-F:.]+\]").fullmatch
_is_origin = re.compile(r"\*|[a-z-]+://[^/\sA-Z*]+").fullmatch
Host = Annotated[
    str,
    BeforeValidator(_without_brackets),
    _expect(
        _is_host,
        "*, a host name or an address without a port, such as 127.0.0.1",
    ),
]
HostPattern = Annotated[
    str,
    _expect(
        _is_host_pattern,
        "a host name without scheme or port, such as *.example.com",
    ),
]
Origin = Annotated[
    str,
    _expect(
        _is_origin,
        "* or a lower-case origin without a path, such as https://example.com",
    ),
]
_most_workers = f"at most {MAX_WORKERS} (4 for each core, or 8), because more only take memory"
Workers = Annotated[PositiveInt, _expect(MAX_WORKERS.__ge__, _most_workers)]
Names = Annotated[list[str], NoDecode, BeforeValidator(_split)]
"""A list of names, separated by commas in the environment."""
Finite = Annotated[NonNegativeFloat, Field(allow_inf_nan=False)]
Seconds = Annotated[PositiveFloat, Field(allow_inf_nan=False)]
ApiKeys = Annotated[
    tuple[SecretStr, ...], NoDecode, BeforeValidator(_split_keys)
]
TextByName = Annotated[dict[str, str], NoDecode, BeforeValidator(_parse_object)]
KeysByName = Annotated[
    dict[str, SecretStr], NoDecode, BeforeValidator(_parse_object)
]
HeaderName = Annotated[
    str,
    BeforeValidator(_to_lower),
    _expect(_is_header, "the name of a header, such as x-tenant"),
]


@with_config(CLOSED)
class MCPServerEntry(TypedDict, total=False):
    """An MCP server of the operator, as the setting `mcp_servers` has it."""

    url: Required[Annotated[str, AfterValidator(_check_server)]]
    timeout: Seconds
    """Seconds that one exchange may take."""
    headers_from_request: list[HeaderName]
    """Headers of the caller's request that the server is sent."""


MCPServersByName = Annotated[
    dict[ServerName, Annotated[MCPServerEntry, BeforeValidator(_to_entry)]],
    NoDecode,
    BeforeValidator(_parse_object),
]
"""MCP servers by the names that blueprints use."""
StateKeys = Annotated[
    tuple[Annotated[SecretStr, AfterValidator(_check_state_key)], ...],
    NoDecode,
    BeforeValidator(_split),
]
WebhookUrl = Annotated[str, AfterValidator(_check_webhook)]
WebhookSecrets = Annotated[
    tuple[Annotated[SecretStr, AfterValidator(_check_webhook_secret)], ...],
    NoDecode,
    BeforeValidator(_split),
]


class Settings(BaseSettings):
    """The settings of one service; `PODWRIGHT_PORT=8080` sets `port`. An empty variable counts as unset."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_ignore_empty=True,
        frozen=True,
        populate_by_name=True,
        use_attribute_docstrings=True,
    )

    component: str | None = None
    """The component to serve: a blueprint file, a component folder, or `module:attribute`."""
    model: Annotated[str, AfterValidator(_check_models)] | None = None
    """A model that replaces every model of the blueprints, or `writer=openai/gpt-5` for one agent; comma-separated."""
    host: Host = "*"
    """Address to listen on; `*` and `::` are all addresses, of IPv4 and of IPv6 where the kernel has it."""
    port: Annotated[int, BeforeValidator(_ignore_service_link)] = Field(
        default=8000, ge=0, le=65535
    )
    """Port to listen on; 0 selects a free one."""
    title: str | None = None
    """Title of the service and of its API page; by default the component's name."""
    workers: Workers = Field(
        default=1,
        validation_alias=AliasChoices("PODWRIGHT_WORKERS", "WEB_CONCURRENCY"),
    )
    """Number of server processes, at most four for each core (or 8). `WEB_CONCURRENCY` is an alias."""
    worker_max_requests: NonNegativeInt = 0
    """Requests after which a worker process is replaced; 0 means never."""
    drain_delay: Finite = 0.0
    """Seconds that the service still accepts requests after a stop signal, while `/ready` answers 503."""
    shutdown_timeout: PositiveInt = 30
    """Seconds that active runs may take to finish once the service accepts no more requests."""

    api_keys: ApiKeys = ()
    """API keys, separated by commas. `run+read:KEY` has these scopes, `run+read@alice:KEY` a name too."""
    api_keys_file: str | None = None
    """A file with API keys, one per line; it is read again when it changes."""
    allowed_hosts: Annotated[
        list[HostPattern], NoDecode, BeforeValidator(_split)
    ] = Field(default_factory=list[str])
    """Host names to accept besides local ones, such as `*.example.com`; `*` is any, as is the default with API keys."""
    cors_origins: Annotated[list[Origin], NoDecode, BeforeValidator(_split)] = (
        Field(default_factory=list[str])
    )
    """Origins whose web pages may call the service, or `*`; by default none."""
    secrets_dir: str = SECRETS_DIR
    """A folder of files that each hold one setting, named after its variable: `podwright_api_keys`. A variable only."""
    max_runs: PositiveInt = 64
    """Concurrent runs of each process."""
    max_waiting: NonNegativeInt = 256
    """Requests that may wait for a run to end; further ones are answered 503 with `Retry-After`."""
    max_wait: Finite = 10.0
    """Seconds that a request waits for a run to end before it is answered 503."""
    body_timeout: Seconds = 30.0
    """Seconds in which a client must have sent the body of a request."""
    idempotency_ttl: Finite = 3600.0
    """Seconds for which the response to a request with an `Idempotency-Key` is stored."""
    idempotency_entries: PositiveInt = 1000
    """Stored responses of each process."""
    idempotency_bytes: PositiveInt = 16 * 1024 * 1024
    """Total size in bytes of the stored responses of each process."""
    stream_buffer_bytes: PositiveInt = 1024 * 1024
    """Bytes of unread events that a stream buffers for a slow reader; beyond them the run is cancelled."""

    agents: TextByName = Field(default_factory=dict[str, str])
    """Remote components that this component uses: a JSON object of their URLs by name."""
    agents_file: str | None = None
    """A JSON file with such an object."""
    agent_keys: KeysByName = Field(default_factory=dict[str, SecretStr])
    """API keys of the remote components: a JSON object of keys by name."""
    agent_key_files: TextByName = Field(default_factory=dict[str, str])
    """Files with such a key each: a JSON object of paths by name. They are read again for each run."""
    agent_proxies: KeysByName = Field(default_factory=dict[str, SecretStr])
    """Proxies of the remote components, which use no other: a JSON object of URLs by name."""
    mcp_servers: MCPServersByName = Field(
        default_factory=dict[str, MCPServerEntry]
    )
    """MCP servers whose tools this component uses: a JSON object of URLs, or of objects with a `url`, by name."""
    mcp_servers_file: str | None = None
    """A JSON file with such an object."""
    mcp_keys: KeysByName = Field(default_factory=dict[str, SecretStr])
    """API keys of the MCP servers: a JSON object of keys by name."""
    mcp_key_files: TextByName = Field(default_factory=dict[str, str])
    """Files with such a key each: a JSON object of paths by name. One is read again when it changes."""
    max_hops: NonNegativeInt = 3
    """Further containers that a run may pass through."""

    state_keys: StateKeys = ()
    """Keys that seal what callers carry of stopped runs, newest first. Without them, a restart makes it unreadable."""
    state_ttl: Seconds = 86400.0
    """Seconds after which a stopped run can no longer go on from what its caller carries."""
    trust_contexts: bool = False
    """Whether callers may have a run begin at any step of a workflow, with a context of their own making."""

    mcp: bool = False
    """Whether MCP clients can call the component as a tool, at `/mcp`."""
    mcp_task_after: Finite = 30.0
    """Seconds after which a call is answered by a task, if its client takes tasks and there is a database."""
    openai_routes: bool = True
    """Whether the service has the OpenAI-compatible routes below `/v1`."""
    openai_settings: bool = True
    """Whether their clients may set `temperature`, `max_tokens` and the like; otherwise such requests are refused."""
    show_reasoning: bool = False
    """Whether their answers have the thoughts of the component's model, as far as its provider shows them."""

    runs_database: SecretStr | None = None
    """Database of background runs, such as `sqlite:////data/runs.db`; for several pods, PostgreSQL."""
    background_runs: PositiveInt = 16
    """Background runs that each process performs at once, besides those of requests."""
    runs_retention: Finite = 7 * 86400.0
    """Seconds for which a background run is kept after its end."""
    conversations: bool = False
    """Whether the service keeps the conversations of requests with a `session`, in that database."""
    conversations_retention: Finite = 30 * 86400.0
    """Seconds for which a conversation is kept after its last turn."""
    conversation_messages: int = Field(default=2000, ge=1, le=MAX_MESSAGES)
    """Messages of a kept conversation after which no turn begins."""
    conversation_bytes: PositiveInt = 8 * 1024 * 1024
    """Bytes of a kept conversation as JSON after which no turn begins."""
    previous: str | None = None
    """A folder of earlier blueprints of the component: background runs that began with one are performed with it."""
    unfinished_tool_calls: Literal["interrupt", "repeat"] = "interrupt"
    """What becomes of a background run whose process ended during a call of a tool that is not idempotent."""
    webhook: WebhookUrl | None = None
    """A URL that is notified when a background run waits for approval, ends or is interrupted."""
    webhook_secret: WebhookSecrets = ()
    """Secret `whsec_…` that signs these notifications; two, separated by commas, while it is replaced."""
    webhook_content: bool = False
    """Whether these notifications have the question of the approval, the result or the problem of the run."""

    baggage: Names = Field(default_factory=list[str])
    """Members of the header `baggage` that are put on spans and in log lines, such as `user.id` and `session.id`."""
    metric_callers: Names = Field(default_factory=list[str])
    """Names of API keys that metrics have in the label `caller`; others share an empty one."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level that is logged."""
    log_format: Literal["auto", "json", "console", "short"] = "auto"
    """Log format; `auto` is `console` on a terminal and `json` otherwise. `short` lines are for people."""
    log_content: bool = False
    """Whether inputs and outputs of runs are logged."""
    provider_errors: Literal["hide", "log", "show"] = "log"
    """Where the errors that model providers report are shown: nowhere, in the log, or in the log and to callers."""

    max_body_bytes: PositiveInt = 1024 * 1024
    """Largest request body in bytes."""
    max_blueprint_bytes: PositiveInt = 256 * 1024
    """Largest inline blueprint in bytes, as compact JSON and including its agents."""
    max_json_depth: int = Field(default=32, ge=1, le=60)
    """Deepest nesting of an inline blueprint's JSON."""

    max_steps: PositiveInt = 64
    """Most steps of an inline blueprint including its agents; also most agents, skills, and tools of one agent."""
    max_nesting: PositiveInt = 4
    """Deepest nesting of steps in an inline workflow, and of agents that use each other; 1 means no nesting."""
    max_branches: PositiveInt = 8
    """Most branches of an inline parallel step, and largest `max_concurrency` of a map step."""
    max_loops: PositiveInt = 10
    """Largest `max_loops`, `max_corrections`, `max_handoffs`, `max_iterations` and `retries` of inline blueprints."""
    allowed_models: Names | None = None
    """Models that inline blueprints may name; by default those of the served component, and `model`."""
    allowed_tools: Names | None = None
    """Tools and functions that inline blueprints may name; by default all those of the served component."""

    allowed_mcp: Names | None = None
    """MCP tools that inline blueprints may name, as `server` or `server/tool`; by default those of the component."""

    allowed_parameters: Names = Field(default_factory=list[str])
    """Parameters of providers that inline blueprints may set; by default none."""

    run_wall_time: Finite | None = 600.0
    """Seconds that a run may take."""
    run_tokens: NonNegativeInt | None = 200_000
    """Input and output tokens that a run may use."""
    run_model_calls: NonNegativeInt | None = 50
    """Model calls that a run may make."""
    run_cost: Finite | None = None
    """USD that a run may cost. Off by default: with it, a model without a known price is refused."""

    allow_unpriced_models: bool = False
    """Whether a component with a cost limit starts although a model has no known price; its calls are refused."""

    _options: dict[str, Any] = PrivateAttr(default_factory=dict[str, Any])
    """What `read_settings` was given."""

    @cached_property
    def models(self) -> dict[str, str]:
        """The models that replace those of the blueprints, by the name of an agent; `*` stands for all others."""
        return _models_in(self.model or "")

    @cached_property
    def run_limits(self) -> RunLimits:
        """The limits of each run."""
        return RunLimits(
            wall_time=self.run_wall_time,
            model_calls=self.run_model_calls,
            tokens=self.run_tokens,
            cost=self.run_cost,
        )

    def remember_options(self, options: Mapping[str, Any]) -> None:
        """Remember which settings are set by options, for `place_of`."""
        self._options.update(options)

    def place_of(self, name: str) -> str:
        """Where a setting is set, for messages: the option, the variable or the file."""
        return _place_of(name, self._options)


def variables_of(name: str) -> tuple[str, ...]:
    """The variables of a setting, in order of precedence."""
    alias = Settings.model_fields[name].validation_alias
    if isinstance(alias, AliasChoices):
        return tuple(str(choice) for choice in alias.choices)
    return (PREFIX + name.upper(),)


def read_settings(**options: Any) -> Settings:
    """Read the settings from options, the environment and the secret files, in this order of precedence.

    Args:
        **options: Settings by name; None counts as not given.

    Raises:
        ConfigurationError: Settings are wrong or unknown; the message lists all of them.
    """
    options = {
        name: value for name, value in options.items() if value is not None
    }
    folder = _secrets_dir()
    settings = None
    names: list[str] = []
    for field in Settings.model_fields:
        names += variables_of(field)
    try:
        mistakes = [
            *variables.unknown(names, folder),
            *_library_mistakes(folder),
        ]
        arguments: dict[str, Any] = {"_secrets_dir": None, **options}
        if folder.is_dir():
            arguments["_secrets_dir"] = folder
        try:
            settings = Settings(**arguments)
            settings.remember_options(options)
        except ValidationError as error:
            for details in error.errors(include_url=False):
                mistakes += _describe(details, options)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"The secrets in '{folder}' cannot be read: {error}.",
            suggestion="Let this user read UTF-8 files there.",
        ) from error
    if settings is None or mistakes:
        raise variables.failure(mistakes)
    return settings


def _library_mistakes(folder: Path) -> Iterator[str]:
    secrets_dir = os.environ.get("PODWRIGHT_SECRETS_DIR")
    if secrets_dir and not folder.is_dir():
        yield f"PODWRIGHT_SECRETS_DIR: Expected a folder, got '{secrets_dir}'."
    docs_url = os.environ.get("PODWRIGHT_DOCS_URL")
    if docs_url and not _takes_pages(docs_url):
        yield (
            f"PODWRIGHT_DOCS_URL: Expected a URL such as {DOCS_URL}, without a user (@), a query (?) and a fragment"
            f" (#), got {short_repr(variables.masked(docs_url))}."
        )
    forget_settings()
    try:
        current_settings()
    except ConfigurationError as error:
        yield from error.message.splitlines()
        return
    for name in invalid_proxies():
        # its text may have a password
        yield f"{name}: Expected the URL of a proxy; '#', '/' and '?' in its password are written %23, %2F and %3F."


def _takes_pages(docs_url: str) -> bool:
    """Whether the pages of the documentation can be below a URL, which errors show to all callers."""
    try:
        join_url(docs_url, "/errors.html")
    except ValueError:
        return False
    return True


_FLAGS = {
    "component": "PATH",
    "host": "--host",
    "port": "--port",
    "title": "--title",
    "model": "--model",
}
"""How settings are given on the command line."""


def source_of(name: str, options: dict[str, Any]) -> str:
    """Where a setting's value comes from; see `variables.origin`."""
    names = variables_of(name)
    option = None
    if name in options:
        option = _FLAGS.get(name, names[0])
    return variables.origin(names, option, _secrets_dir())


def adopt_secrets() -> dict[str, Path]:
    """Set the library's variables that are unset from their secret files, and return these files by variable.

    Raises:
        ConfigurationError: A file cannot be read.
    """
    adopted: dict[str, Path] = {}
    for file in variables.secret_files(_secrets_dir()):
        name = file.name.upper()
        if name not in variables.LIBRARY or os.environ.get(name):
            continue
        try:
            text = file.read_text(encoding="utf-8")
            os.environ[name] = text.strip()
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"The file '{file}' cannot be read: {error}.",
                suggestion="Let this user read it.",
            ) from error
        adopted[name] = file
    forget_settings()
    return adopted


def _secrets_dir() -> Path:
    return Path(os.environ.get("PODWRIGHT_SECRETS_DIR") or SECRETS_DIR)


def _place_of(name: str, options: dict[str, Any]) -> str:
    kind, _, place = source_of(name, options).partition(" ")
    if place:
        return place
    if kind == "environment":
        return variables_of(name)[0]
    return name


def _describe(details: ErrorDetails, options: dict[str, Any]) -> Iterator[str]:
    """A validation error of a setting, with the option, variable or file that the value comes from."""
    name = str(details["loc"][0])
    field = _field_of(name)
    if field is None:
        yield f"Unknown setting '{name}'."
        return
    place = _place_of(field, options)
    if "Secret" in str(Settings.model_fields[field].annotation):
        data: Any = variables.MASK
    else:
        data = variables.masked(details["input"])
    for part in reversed(details["loc"]):
        data = {part: data}
    for problem in to_problems([details], data):
        inner = problem.pointer.removeprefix(f"/{name}")
        line = f"{place}{inner}: {problem.detail}"
        if problem.suggestion:
            line += f" {problem.suggestion}"
        yield line


def _field_of(name: str) -> str | None:
    """The setting that has a name, or that is set by the variable of this name."""
    for field in Settings.model_fields:
        if name == field or name in variables_of(field):
            return field
    return None
