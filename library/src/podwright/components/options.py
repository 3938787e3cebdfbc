"""Keyword arguments of components: which belong into the blueprint, and which are options of the live object."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from typing_extensions import TypedDict

from podwright.blueprints.schema import CONFIG_KEYS, VERSION, keys_of
from podwright.blueprints.validation import Blueprint, invalid, parse, resembles_setting
from podwright.errors import ConfigurationError, Problem
from podwright.events import (
    Event,
    EventManager,
    Kind,
    Subscriber,
    Token,
    check_subscriber,
)
from podwright.json_data import as_object
from podwright.messages import HistorySettings, ModelSettings
from podwright.models import Model
from podwright.printer import Printer
from podwright.text import did_you_mean, short_repr
from podwright.usage import RunLimits


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
    metadata: dict[str, Any]
    """Notes of its authors: any JSON object, kept and exported, but not used."""


class AgentOptions(ModelSettings, HistorySettings, DescribedOptions, total=False):
    """Options, a description, and settings for the blueprint's `config`."""

    fallback: list[str]
    """Models that are asked in turn if those before them cannot answer, each as `<provider>/<model_name>`."""
    fallback_wait: float
    """Seconds that a model may ask to wait before the next one is asked."""
    max_tool_retries: int
    """Wrong calls of one tool in a row that are reported to the model; the next one fails the run."""


_OPTION_KEYS = Options.__optional_keys__


def apply_options(
    blueprint: Blueprint, options: Mapping[str, Any], settings: bool = True
) -> Options:
    """Move the keyword arguments of a constructor into the blueprint, and return those that are options.

    Args:
        blueprint: Is given the description and the model settings.
        options: The keyword arguments.
        settings: Whether the kind has model settings.

    Raises:
        ConfigurationError: A keyword is unknown.
    """
    kept = Options()
    for key, value in options.items():
        if key in _OPTION_KEYS:
            kept[key] = value
        elif key in ("description", "metadata"):
            blueprint[key] = value
        elif settings and resembles_setting(key):
            # a misspelt setting is reported with all other problems
            blueprint.setdefault("config", {})[key] = value
        else:
            known = sorted(
                DescribedOptions.__optional_keys__
                | (CONFIG_KEYS if settings else set[str]())
            )
            hint = (
                "Pass the tools to its agents."
                if key == "tools"
                else did_you_mean(key, known)
            )
            raise ConfigurationError(
                f"Unknown option '{key}' of '{blueprint['name']}'.", suggestion=hint
            )
    return kept


@dataclass(slots=True)
class ParsedBlueprint:
    """A blueprint with overrides applied, and what was found in it."""

    kind: Kind
    data: Blueprint
    """The blueprint, to be used only without problems; only its name if it is not JSON data."""
    problems: Sequence[Problem] = ()
    options: Options = field(default_factory=Options)
    model: Model | None = None
    """The model, if it was given as an object."""

    def check(self, further: Sequence[Problem] = ()) -> None:
        """Raise an error with all problems, the further ones included, if there are any.

        Raises:
            BlueprintValidationError: The blueprint is invalid.
        """
        if problems := [*self.problems, *further]:
            raise invalid(
                problems, f"The {self.kind} {short_repr(self.data.get('name'))}"
            )


def parse_arguments(
    kind: Kind, fields: Mapping[str, Any], options: Mapping[str, Any]
) -> ParsedBlueprint:
    """Parse the arguments of a constructor.

    Args:
        kind: The kind of the component.
        fields: Keys of its blueprint; the `model` in its `config` may be an object.
        options: The further keyword arguments.

    Raises:
        ConfigurationError: A keyword is unknown.
    """
    blueprint: Blueprint = {"type": kind.capitalize(), "version": VERSION, **fields}
    model = as_object(blueprint.get("config")).get("model")
    if isinstance(model, Model):
        blueprint["config"] = {**blueprint["config"], "model": model.name}
    kept = apply_options(blueprint, options, settings=kind in ("agent", "conductor"))
    data, problems = parse(blueprint, kind)
    named = data or {"name": blueprint["name"]}
    return ParsedBlueprint(
        kind, named, problems, kept, model if isinstance(model, Model) else None
    )


def parse_with_overrides(
    blueprint: object, kind: Kind, validate: bool, overrides: Mapping[str, Any]
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
    config_keys = CONFIG_KEYS if "config" in top else frozenset[str]()
    changed = dict(as_object(blueprint))
    options = Options()
    model = None
    for key, value in overrides.items():
        if key in _OPTION_KEYS:
            options[key] = value
        elif key == "model" and isinstance(value, Model):
            model = value
        elif key in config_keys:
            changed["config"] = {**as_object(changed.get("config")), key: value}
        elif key in top:
            changed[key] = value
        else:
            hint = did_you_mean(key, sorted(top | config_keys | _OPTION_KEYS))
            raise ConfigurationError(
                f"Unknown keyword '{key}' for a blueprint of kind {kind}.",
                suggestion=hint,
            )
    data, problems = parse(
        changed if isinstance(blueprint, dict) else blueprint, kind, validate
    )
    return ParsedBlueprint(
        kind, data or {"name": changed.get("name")}, problems, options, model
    )


def option_subscribers(options: Options) -> tuple[Subscriber, ...]:
    """The subscribers that `verbose` and `on_token` ask for.

    Raises:
        ConfigurationError: `limits` or `event_manager` has a wrong type, or `on_token` is async.
    """
    for name, expected in (("limits", RunLimits), ("event_manager", EventManager)):
        value = options.get(name)
        if value is not None and not isinstance(value, expected):
            raise ConfigurationError(
                f"'{name}' must be of type {expected.__name__}, not {short_repr(value)}."
            )
    subscribers: list[Subscriber] = []
    if options.get("verbose"):
        subscribers.append(Printer())
    if on_token := options.get("on_token"):
        check_subscriber(on_token, "on_token")
        subscribers.append(partial(_pass_token, on_token))
    return tuple(subscribers)


def _pass_token(on_token: Callable[[str], object], event: Event) -> None:
    if isinstance(event, Token):
        on_token(event.text)


def named_map(value: object, what: str) -> dict[str, Any]:
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
    return dict(cast("Mapping[str, Any]", value))
