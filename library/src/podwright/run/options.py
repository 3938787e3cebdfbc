"""Keyword arguments of components: which belong into the blueprint, and which are options of the live object."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from typing_extensions import TypedDict

from podwright.blueprints.schema import CONFIG_KEYS, keys_of
from podwright.blueprints.validation import (
    Blueprint,
    invalid,
    parse,
    resembles_setting,
)
from podwright.data.json_data import JsonMapping, JsonObject, as_object
from podwright.data.text import did_you_mean, short_repr
from podwright.errors import ConfigurationError, Problem
from podwright.events import (
    Event,
    EventManager,
    Subscriber,
    Token,
    check_subscriber,
)
from podwright.kinds import TRAITS, Kind
from podwright.messages.messages import HistorySettings, ModelSettings
from podwright.messages.usage import RunLimits
from podwright.models import Model
from podwright.run.printer import Printer
from podwright.schemas.response_schema import response_schema_of
from podwright.steps.blueprint_types import VERSION


class Options(TypedDict, total=False):
    """What a component may be given besides its blueprint; never exported."""

    verbose: bool
    """Whether its steps are printed."""
    event_manager: EventManager | None
    """Subscribers of its runs; may be shared with other components."""
    on_token: Callable[[str], object] | None
    """Called with each piece of text of a streamed run."""
    limits: RunLimits | None
    """What each of its runs may use."""
    api_key: str | None
    """The provider's API key; by default from the environment."""
    base_url: str | None
    """The provider's base URL; by default from the environment."""


class DescribedOptions(Options, total=False):
    """Options, and further keys of the blueprint."""

    description: str
    """What the component is for, in a sentence."""
    metadata: JsonObject
    """Notes of its authors: any JSON object, kept and exported, but not used."""
    inputs: Mapping[str, JsonMapping]
    """The JSON Schemas of the inputs that it takes besides `input`, by name; a `default` makes one optional."""


class AgentOptions(
    ModelSettings, HistorySettings, DescribedOptions, total=False
):
    """Options, a description, and settings for the blueprint's `config`."""

    fallback: list[str]
    """Models that are asked in turn if those before them cannot answer, each as `<provider>/<model_name>`."""
    fallback_wait: float
    """Seconds that a model may ask to wait before the next one is asked."""
    response_model: Any
    """The type of its answers: a pydantic model, another type, or a JSON Schema; the blueprint has its schema."""
    max_tool_retries: int
    """Wrong or failed calls of one tool in a row that are reported to the model; the next one fails the run."""
    max_corrections: int
    """Answers that do not fit the response model and are asked for again; the next one fails the run."""
    tool_choice: str
    """Which tool the model calls first: `auto`, the default, `required` for any, `none`, or the name of one."""
    max_handoffs: int
    """Handoffs of one run that an agent begins."""
    stop_at: str | list[str]
    """The tools whose results are the answer of the run."""


_OPTION_KEYS = Options.__optional_keys__
_BLUEPRINT_KEYS = ("description", "metadata", "inputs")
"""Keyword arguments that are keys of the blueprint."""
_OPTION_TYPES: dict[str, type] = {
    "limits": RunLimits,
    "event_manager": EventManager,
}


def apply_options(
    blueprint: Blueprint, keywords: JsonMapping, settings: bool = True
) -> Options:
    """Move the keyword arguments of a constructor into the blueprint, and return those that are options.

    Args:
        blueprint: Is given the description and the model settings.
        keywords: The keyword arguments.
        settings: Whether the kind has model settings.

    Raises:
        ConfigurationError: A keyword is unknown.
    """
    kept = Options()
    for key, value in keywords.items():
        if key in _OPTION_KEYS:
            kept[key] = value
        elif key in _BLUEPRINT_KEYS:
            blueprint[key] = value
        elif key == "response_model" and settings:
            config = blueprint.setdefault("config", {})
            config["response_schema"] = response_schema_of(value)
        elif settings and resembles_setting(key):
            # a misspelled setting is reported with all other problems
            config = blueprint.setdefault("config", {})
            config[key] = value
        else:
            raise _unknown_option_error(
                key, blueprint["name"], settings=settings
            )
    return kept


def own_blueprint(
    kind: Kind, name: str, options: JsonMapping | None = None
) -> ParsedBlueprint:
    """The blueprint of a component whose work is code: nothing but its name and what describes it.

    Args:
        kind: The kind that it counts as, in events and metrics.
        name: Its name.
        options: Further keyword arguments of its constructor; see `DescribedOptions`.

    Raises:
        ConfigurationError: A keyword is unknown.
    """
    blueprint: Blueprint = {"type": "Agent", "name": name}
    kept = apply_options(blueprint, options or {}, settings=False)
    # what it has in common with an agent is validated as that of an agent
    agent = {
        **blueprint,
        "version": VERSION,
        "instructions": "",
        "config": {"model": "offline/echo"},
    }
    problems = parse(agent, "agent").problems
    return ParsedBlueprint(kind, blueprint, problems, options=kept)


def _unknown_option_error(
    key: str, component: str, *, settings: bool
) -> ConfigurationError:
    known = set(DescribedOptions.__optional_keys__)
    if settings:
        known |= CONFIG_KEYS
    hint = did_you_mean(key, sorted(known))
    if key == "tools":
        hint = "Pass the tools to its agents."
    elif key == "mcp":
        hint = "Name the tools in a blueprint, and pass the servers to its from_blueprint(blueprint, mcp={…})."
    return ConfigurationError(
        f"Unknown option '{key}' of '{component}'.", suggestion=hint
    )


@dataclass(slots=True)
class ParsedBlueprint:
    """A blueprint with overrides applied, and what was found in it."""

    kind: Kind
    data: Blueprint
    """The blueprint, to be used only without problems; only its name if it is not JSON data."""
    problems: Sequence[Problem] = ()
    warnings: Sequence[Problem] = ()
    """See `blueprints.warnings`."""
    options: Options = field(default_factory=Options)
    model: Model | None = None
    """The model, if it was given as an object."""
    response_model: Any = None
    """The type of the answers, if it was given as a Python type."""

    def check(self, further: Sequence[Problem] = ()) -> None:
        """Raise an error with all problems, the further ones included, if there are any.

        Raises:
            BlueprintValidationError: The blueprint is invalid.
        """
        problems = [*self.problems, *further]
        if problems:
            name = self.data.get("name")
            raise invalid(problems, f"The {self.kind} {short_repr(name)}")


def parse_arguments(
    kind: Kind, fields: JsonMapping, options: JsonMapping
) -> ParsedBlueprint:
    """Parse the arguments of a constructor.

    Args:
        kind: The kind of the component.
        fields: Keys of its blueprint; the `model` in its `config` may be an object.
        options: The further keyword arguments.

    Raises:
        ConfigurationError: A keyword is unknown.
    """
    blueprint: Blueprint = {
        "type": kind.capitalize(),
        "version": VERSION,
        **fields,
    }
    model = as_object(blueprint.get("config")).get("model")
    model_object: Model | None = None
    if isinstance(model, Model):
        model_object = model
        blueprint["config"] = {**blueprint["config"], "model": model.name}
    has_settings = TRAITS[kind].chats
    kept = apply_options(blueprint, options, settings=has_settings)
    parsed = parse(blueprint, kind)
    return ParsedBlueprint(
        kind,
        data=parsed.data or {"name": blueprint["name"]},
        problems=parsed.problems,
        warnings=parsed.warnings,
        options=kept,
        model=model_object,
        response_model=_live_type(options.get("response_model")),
    )


def parse_with_overrides(
    blueprint: object, kind: Kind, validate: bool, overrides: JsonMapping
) -> ParsedBlueprint:
    """Parse a blueprint whose values are overridden by keyword arguments.

    Args:
        blueprint: Data of any type.
        kind: The kind that it must have.
        validate: See `blueprints.check`.
        overrides: Top-level keys, keys of `config`, options, or a `model` object.

    Raises:
        ConfigurationError: A keyword is unknown.
    """
    top = keys_of(kind)
    config_keys: frozenset[str] = frozenset()
    if "config" in top:
        config_keys = CONFIG_KEYS
    changed = dict(as_object(blueprint))
    options = Options()
    model: Model | None = None
    for key, value in overrides.items():
        if key == "response_model" and TRAITS[kind].chats:
            config = as_object(changed.get("config"))
            schema = response_schema_of(value)
            changed["config"] = {**config, "response_schema": schema}
        elif key in _OPTION_KEYS:
            options[key] = value
        elif key == "model" and isinstance(value, Model):
            model = value
        elif key in config_keys:
            config = as_object(changed.get("config"))
            changed["config"] = {**config, key: value}
        elif key in top:
            changed[key] = value
        else:
            known = top | config_keys | _OPTION_KEYS
            raise ConfigurationError(
                f"Unknown keyword '{key}' for a blueprint of kind {kind}.",
                suggestion=did_you_mean(key, sorted(known)),
            )
    if isinstance(blueprint, dict):
        blueprint = changed
    parsed = parse(blueprint, kind, validate)
    return ParsedBlueprint(
        kind,
        data=parsed.data or {"name": changed.get("name")},
        problems=parsed.problems,
        warnings=parsed.warnings,
        options=options,
        model=model,
        response_model=_live_type(overrides.get("response_model")),
    )


def _live_type(response_model: Any) -> Any:
    """A `response_model` that is a Python type; None for a JSON Schema, which the blueprint has."""
    if isinstance(response_model, Mapping):
        return None
    return response_model


def _check_option_types(options: Options) -> None:
    for name, expected in _OPTION_TYPES.items():
        value = options.get(name)
        if value is None or isinstance(value, expected):
            continue
        shown = short_repr(value)
        raise ConfigurationError(
            f"'{name}' must be of type {expected.__name__}, not {shown}."
        )


def option_subscribers(options: Options) -> tuple[Subscriber, ...]:
    """The subscribers that `verbose` and `on_token` ask for.

    Raises:
        ConfigurationError: `limits` or `event_manager` has a wrong type, or `on_token` is async.
    """
    _check_option_types(options)
    subscribers: list[Subscriber] = []
    if options.get("verbose"):
        subscribers.append(Printer())
    on_token = options.get("on_token")
    if on_token:
        check_subscriber(on_token, "on_token")
        subscribers.append(partial(_pass_token, on_token))
    return tuple(subscribers)


def _pass_token(on_token: Callable[[str], object], event: Event) -> None:
    if isinstance(event, Token):
        on_token(event.text)


def named_map(value: object, what: str) -> JsonObject:
    """A caller's map of agents or conditions by name, as a copy.

    Raises:
        ConfigurationError: It is not a map.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigurationError(
            f"'{what}' must map names to {what}, not {short_repr(value)}."
        )
    return dict(cast("JsonMapping", value))
