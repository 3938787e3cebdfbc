"""What all components share: a blueprint as their configuration, and the ways to run them."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from typing import Any, ClassVar, cast

from pydantic import ValidationError
from typing_extensions import TypedDict

from podwright import blueprints
from podwright._sync import iterate_sync, run_sync
from podwright.blueprints import Blueprint
from podwright.blueprints.schema import SHAPES, AgentConfig, adapter
from podwright.errors import ConfigurationError, RunCancelledError
from podwright.events import Event, EventManager, Kind, Subscriber
from podwright.json_data import as_object, copy_json, to_text
from podwright.messages import ModelSettings
from podwright.models import DEFAULT, Connection, Model, resolve
from podwright.printer import Printer, tokens_to
from podwright.run import Run, Task, current, execute
from podwright.text import did_you_mean, short_repr
from podwright.usage import NOTHING, RunLimits, Usage


class Options(TypedDict, total=False):
    """What a component may be given besides its blueprint; never exported."""

    verbose: bool
    """Whether its steps are printed."""
    event_manager: EventManager | None
    """Hears its runs; may be shared with other components."""
    on_token: Callable[[str], object] | None
    """Is given each piece of text of a streamed run."""
    limits: RunLimits | None
    """What each of its runs may use."""
    api_key: str | None
    """The provider's key; by default the environment says it."""
    base_url: str | None
    """The provider's endpoint; by default the environment says it."""


class DescribedOptions(Options, total=False):
    """A description, and what is never exported."""

    description: str
    """What it is for, in a sentence."""


class AgentOptions(ModelSettings, DescribedOptions, total=False):
    """Model settings, a description, and what is never exported."""


_UNHEARD: tuple[Subscriber, ...] = ()
_ANYWHERE = Options()


class Component(ABC):
    """Something that runs. Its blueprint is its configuration; it keeps nothing of a run but `last_usage`."""

    __slots__ = ("__weakref__", "_blueprint", "_listeners", "_options", "last_usage")

    kind: ClassVar[Kind]
    """"agent", "workflow", "conductor" or "pipeline"."""

    last_usage: Usage
    """What the run that ended last used; where runs overlap, read `ExecutionResult.usage`."""

    def __init__(self, blueprint: Blueprint, options: Options | None = None) -> None:
        self._blueprint = blueprint
        self._options = options or _ANYWHERE
        self.last_usage = NOTHING
        self._listeners = _listeners(options) if options else _UNHEARD

    @property
    def name(self) -> str:
        """Its name."""
        return self._blueprint["name"]

    @property
    def description(self) -> str:
        """What it is for; may be empty."""
        return self._blueprint.get("description", "")

    @property
    def subscribers(self) -> tuple[Subscriber, ...]:
        """Who hears every run of this component; looked up when a run starts."""
        manager = self._options.get("event_manager")
        return self._listeners + manager.subscribers if manager else self._listeners

    @property
    def limits(self) -> RunLimits | None:
        """What each of its runs may use; None is no limit."""
        return self._options.get("limits")

    @property
    def config(self) -> Mapping[str, Any]:
        """The `config` of its blueprint."""
        return self._blueprint.get("config", {})

    def to_blueprint(self) -> dict[str, Any]:
        """The blueprint, a dictionary of JSON data that `from_blueprint` reads (spec §4.4)."""
        return copy_json(self._blueprint)

    def members(self) -> Mapping[str, Component]:
        """The components inside this one, by name."""
        return {}

    def models(self) -> list[str]:
        """Names of the models that it and its members call, each once."""
        own = [self.config["model"]] if "model" in self.config else []
        inner = [name for member in self.members().values() for name in member.models()]
        return list(dict.fromkeys([*own, *inner]))

    def text(self, value: Any) -> str:
        """A value of this component's runs as text for the component that comes next."""
        return to_text(value)

    @abstractmethod
    async def perform(self, run: Run, task: Task) -> Any:
        """Do the task within a run: the only thing that a kind of component implements."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r})"

    async def _arun(self, task: Task, stream: bool, trace: bool) -> Any:
        result = await execute(self, task, stream=stream, trace=trace)
        return result if trace else result.value

    def _run(self, task: Task, stream: bool, trace: bool) -> Any:
        home = _home()
        return run_sync(self._arun(task, stream, trace), home)

    async def _astream(self, task: Task) -> AsyncGenerator[Event]:
        # the run is a task of its own: its context variables stay out of the reader, who may be any task
        queue: asyncio.Queue[Event | None] = asyncio.Queue()
        running = asyncio.create_task(execute(self, task, subscribers=(queue.put_nowait,), stream=True))
        running.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while (event := await queue.get()) is not None:
                yield event
            await running
        finally:
            if not running.done():
                running.cancel()
                await asyncio.wait([running])
            if not running.cancelled():
                running.exception()  # the reader who left has seen its event, or does not care

    def _stream(self, task: Task) -> Iterator[Event]:
        return iterate_sync(self._astream(task), _home())


class PromptComponent(Component):
    """A component that is asked and answers: agent, conductor and pipeline run alike (spec §4.4)."""

    __slots__ = ()

    def run(
        self,
        input_data: str | Mapping[str, Any],
        response_model: Any = None,
        stream: bool = False,
        trace: bool = False,
    ) -> Any:
        """Run to the answer, from synchronous code.

        Args:
            input_data: What to work on: a text, or named inputs. Inputs fill `{name}` in the instructions;
                those that nothing names are given to the model as labelled sections.
            response_model: A pydantic model, or any type, that the answer must have; None is text.
            stream: Whether tokens go to `on_token` and to the subscribers as they arrive.
            trace: Whether to return an `ExecutionResult` instead of the bare value.

        Returns:
            The answer, or an `ExecutionResult`.

        Raises:
            PodwrightError: See the classes of `podwright.errors`.
        """
        return self._run(Task(input_data, response_model), stream, trace)

    async def arun(
        self,
        input_data: str | Mapping[str, Any],
        response_model: Any = None,
        stream: bool = False,
        trace: bool = False,
    ) -> Any:
        """As `run`, from asynchronous code; cancelling it cancels the run."""
        return await self._arun(Task(input_data, response_model), stream, trace)

    def stream(self, input_data: str | Mapping[str, Any], response_model: Any = None) -> Iterator[Event]:
        """Run and yield each event as it happens, tokens too; leaving early cancels the run."""
        return self._stream(Task(input_data, response_model))

    def astream(self, input_data: str | Mapping[str, Any], response_model: Any = None) -> AsyncGenerator[Event]:
        """As `stream`, from asynchronous code."""
        return self._astream(Task(input_data, response_model))


class ModelComponent(PromptComponent):
    """A component with a model of its own: agent and conductor."""

    __slots__ = ("_model",)

    def __init__(self, blueprint: Blueprint, options: Options | None = None, model: Model | None = None) -> None:
        super().__init__(blueprint, options)
        self._model = model

    @property
    def instructions(self) -> str:
        """The system instructions, a template."""
        return self._blueprint["instructions"]

    @property
    def max_loops(self) -> int:
        """The most model calls of one run."""
        return self.config.get("max_loops", 10)

    @property
    def model(self) -> Model:
        """The model that answers now.

        Raises:
            UnknownModelError: Nobody here provides it.
        """
        options = self._options
        if "api_key" in options or "base_url" in options:
            connection = Connection(options.get("api_key"), options.get("base_url"))
        else:
            connection = DEFAULT
        return resolve(self.config["model"], self._model, connection)

    @property
    def settings(self) -> ModelSettings:
        """The model settings of the blueprint's `config`."""
        known = ModelSettings.__optional_keys__
        return cast("ModelSettings", {key: value for key, value in self.config.items() if key in known})


def _home() -> asyncio.AbstractEventLoop | None:
    """The event loop that a synchronous call belongs to: that of the run whose tool makes it, if any.

    Raises:
        RunCancelledError: That run is over; only the tool's thread goes on.
    """
    outer = current()
    if outer is not None and outer.over:
        raise RunCancelledError(f"The run of '{outer.component}' that this call is part of is over.")
    return outer.loop if outer else None


def _listeners(options: Options) -> tuple[Subscriber, ...]:
    for name, wanted in (("limits", RunLimits), ("event_manager", EventManager)):
        value = options.get(name)
        if value is not None and not isinstance(value, wanted):
            raise ConfigurationError(f"'{name}' takes an object of class {wanted.__name__}, not {short_repr(value)}.")
    found: list[Subscriber] = []
    if options.get("verbose"):
        found.append(Printer())
    if on_token := options.get("on_token"):
        found.append(tokens_to(on_token))
    return tuple(found)


def checked(blueprint: Blueprint, kind: Kind) -> Blueprint:
    """A blueprint that was put together by a constructor, checked.

    Raises:
        BlueprintValidationError: With every problem found.
    """
    what = f"This {kind}"
    if kind == "agent":  # made often; what its shape cannot say, its making has made sure
        try:
            adapter(kind).validate_python(blueprint)
        except ValidationError:
            raise blueprints.invalid(blueprints.problems(blueprint, kind), what) from None
    elif found := blueprints.problems(blueprint, kind):
        raise blueprints.invalid(found, what)
    return blueprint


_CONFIG = AgentConfig.__required_keys__ | AgentConfig.__optional_keys__ | {"planning"}
_OPTIONS = Options.__optional_keys__


def overridden(
    blueprint: Mapping[str, Any], kind: Kind, changes: Mapping[str, Any]
) -> tuple[Blueprint, Options, Model | None]:
    """A blueprint with values replaced by keywords: top-level ones, those of `config`, and options.

    Returns:
        The new blueprint, the options, and the model if it was given as an object.

    Raises:
        BlueprintValidationError: The blueprint is no object of JSON data.
        ConfigurationError: A keyword is none of these.
    """
    if found := blueprints.unreadable(blueprint):
        raise blueprints.invalid(found)
    shape: Any = SHAPES[kind]
    top = shape.__required_keys__ | shape.__optional_keys__
    config = _CONFIG if "config" in top else frozenset[str]()
    new, options, model = dict(blueprint), Options(), None
    for key, value in changes.items():
        if key in _OPTIONS:
            options[key] = value
        elif key == "model" and isinstance(value, Model):
            model = value
        elif key in config:
            new["config"] = {**as_object(new.get("config")), key: value}
        elif key in top:
            new[key] = value
        else:
            hint = did_you_mean(key, sorted(top | config | _OPTIONS))
            raise ConfigurationError(f"There is no value '{key}' of this {kind} to override.", suggestion=hint)
    return new, options, model


def described(blueprint: Blueprint, options: Mapping[str, Any], settings: bool = True) -> Options | None:
    """Put a constructor's keywords where they belong: into the blueprint, or into the options.

    Args:
        blueprint: Is given the description and the settings.
        options: The keywords.
        settings: Whether the kind has model settings.

    Raises:
        ConfigurationError: It has none, and a keyword is nothing else either.
    """
    kept = Options()
    for key, value in options.items():
        if key in _OPTIONS:
            kept[key] = value
        elif key == "description":
            blueprint["description"] = value
        elif settings and (key in _CONFIG or isinstance(value, str | int | float)):
            # what is misspelt is told of with all else that is wrong
            blueprint.setdefault("config", {})[key] = value
        else:
            names = sorted(DescribedOptions.__optional_keys__ | (_CONFIG if settings else frozenset[str]()))
            hint = "Give the tools to its agents." if key == "tools" else did_you_mean(key, names)
            raise ConfigurationError(f"Unknown option '{key}' of '{blueprint['name']}'.", suggestion=hint)
    return kept or None


def by_name(given: object, what: str) -> dict[str, Any]:
    """A caller's map from names to agents or conditions, as a copy.

    Raises:
        ConfigurationError: It is no map.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ConfigurationError(
            f"{what} is a map from names to {what}, not {short_repr(given)}.",
            suggestion=f"Write {what}={{'name': …}}.",
        )
    return dict(cast("Mapping[str, Any]", given))
