"""The interface of a kind of workflow step: one class answers for its blueprint data and for its runs.

A kind is a frozen dataclass that extends `Step`; `podwright.steps` lists the kinds. Methods of the class take the step
as a valid blueprint has it (`data`); methods of an object are about a step of a workflow in Python.
"""

from __future__ import annotations

import keyword
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast

from podwright.data.json_data import JsonMapping, JsonObject

if TYPE_CHECKING:
    from podwright.blueprints.flowchart import Ends, Flowchart
    from podwright.errors import Problem
    from podwright.estimates.need import Need
    from podwright.estimates.sizes import Sizes
    from podwright.estimates.walk import Walk
    from podwright.events import Outcome
    from podwright.run.component import Component
    from podwright.workflows.frames import StepFrame
    from podwright.workflows.references import References
    from podwright.workflows.runner import StepRunner
    from podwright.workflows.template_names import NameCheck
    from podwright.workflows.workflow import Workflow

    Steps = Sequence["Step | Component"]
    """Steps as a caller gives them; a bare component is a step too."""

Known = dict[str, JsonMapping | None]
"""The names that are filled at some place, each with the JSON Schema of its value; None if that is not known."""

Operation = Literal["added", "removed", "changed"]
"""A change between two blueprints."""
Rules = Sequence[tuple[str, Sequence[Operation]]]
"""Patterns of JSON pointers, each with the changes there that break callers; the first one that fits decides."""
ANY_CHANGE: Sequence[Operation] = ("added", "changed", "removed")


@dataclass(frozen=True, slots=True)
class Write:
    """One step that writes a name to the context."""

    name: str
    step: JsonMapping
    pointer: str
    """The JSON pointer of the step."""
    kind: Literal["output", "decision", "edit"] = "output"
    is_certain: bool = True
    """Whether the step runs whenever the searched sequence runs."""
    gathered: Literal["", "map", "collect"] = ""
    """The step around it that makes a list of the values."""
    is_label: bool = False
    """Whether it is the name of a step that only asks, so that its decision is no part of the context."""


@dataclass(frozen=True, slots=True)
class AnsweringAgent:
    """An agent in a step whose answer is the output of the step as it is."""

    agent: str
    """The name of the agent."""
    position: tuple[int, ...] = ()
    """Where its run is, from the step or the sequence that was asked."""


class Builder:
    """Makes steps from valid blueprint data.

    Args:
        step: Makes the step of one entry.
        workflow: Makes the workflow of a nested blueprint.
    """

    def __init__(
        self,
        step: Callable[[JsonObject, Builder], Step],
        workflow: Callable[[JsonObject], Workflow],
    ) -> None:
        self._step = step
        self.workflow = workflow

    def steps(self, entries: Sequence[JsonObject]) -> tuple[Step, ...]:
        """Make the steps of a sequence."""
        return tuple(self._step(entry, self) for entry in entries)


@dataclass(frozen=True, slots=True)
class Step(ABC):
    """A step of a workflow. Subclasses are the kinds; by itself it stands for a step of an unknown kind."""

    # --- What a blueprint of the kind has -----------------------------------------------------------------------------

    step_type: ClassVar[str] = ""
    """The `type` in a blueprint."""
    shape: ClassVar[Any] = None
    """The typed dictionary of its blueprint data."""
    own_keys: ClassVar[Sequence[str]] = ()
    """Keys that steps of no other kind have: with one of them, a blueprint may leave `type` and `name` out."""
    sequences: ClassVar[Sequence[str]] = ()
    """The JSON pointers of the sequences of steps in it, such as `/then`; `/branches/*` is each item of a list."""
    agent_keys: ClassVar[Sequence[str]] = ()
    """The keys that name an agent."""
    function_keys: ClassVar[Sequence[str]] = ()
    """The keys that name a function."""
    condition_keys: ClassVar[Sequence[str]] = ()
    """The keys that hold a condition."""
    template_keys: ClassVar[Sequence[str]] = ()
    """The keys that hold a template, or data with templates in it, which are filled before the step runs."""
    expression_keys: ClassVar[Sequence[str]] = ()
    """The keys that hold the name of a value in the context, perhaps with fields."""
    schemas: ClassVar[Sequence[str]] = ()
    """The JSON pointers of JSON Schemas in it: `/key`, or `/key/*` for each value of an object."""
    repeat_keys: ClassVar[Sequence[str]] = ()
    """The keys that say how often the steps in it may run."""
    concurrency_keys: ClassVar[Sequence[str]] = ()
    """The keys that say how many sequences of steps may run at once."""
    text_key: ClassVar[str] = ""
    """The key of its long text, which a blueprint file may have as a list of lines."""
    text_may_be_file: ClassVar[bool] = True
    """Whether a blueprint file may have the text in a file of its own; not if an object has another meaning there."""
    left_out: ClassVar[JsonMapping] = {}
    """Values that exports leave out, by key, because they mean the same as no value. None is left out in any case."""

    # --- How blueprints of the kind are compared ----------------------------------------------------------------------

    breaking: ClassVar[Rules] = ()
    """The changes that break callers, by JSON pointers from the step."""
    same_as_absent: ClassVar[JsonMapping] = {}
    """Values by key with which a blueprint means the same as without the key."""
    keys_with_names: ClassVar[Sequence[str]] = ()
    """The keys that hold an object whose keys are names."""
    keys_of_questions: ClassVar[Sequence[str]] = ()
    """The keys that may change although the step has been done."""

    # --- What is known of its blueprint data --------------------------------------------------------------------------

    is_loop: ClassVar[bool] = False
    """Whether the steps in it are repeated, and their templates may name the number of the iteration."""
    inner_names: ClassVar[Mapping[str, str]] = {}
    """Names that only templates inside it may use, each with where that is, such as "inside a loop"."""

    @classmethod
    def name_called(cls, data: JsonMapping) -> object:
        """Return the name of what the step calls, by default None: a step without a name is called like it."""
        return None

    @classmethod
    def writes(
        cls,
        data: JsonMapping,
        pointer: str,
        inner: Mapping[str, Sequence[Write]],
    ) -> Iterator[Write]:
        """Yield what the step writes to the context, steps inside it included.

        Args:
            data: The step.
            pointer: Its JSON pointer.
            inner: What the sequences in it write, by their JSON pointers from the step.
        """
        for writes in inner.values():
            yield from writes

    @classmethod
    def problems(
        cls,
        data: JsonMapping,
        pointer: str,
        inner: Mapping[str, Sequence[Write]],
    ) -> Iterator[Problem]:
        """Yield the problems of a step that fits its shape; the arguments are those of `writes`."""
        yield from ()

    @classmethod
    def own_names(cls, data: JsonMapping) -> Iterator[str]:
        """Yield the names that the step gives to values, for later steps or for the steps in it."""
        for write in cls.writes(data, "", {}):
            if write.kind != "edit":
                yield write.name

    @classmethod
    def schema_of_value(
        cls, data: JsonMapping, check: NameCheck
    ) -> JsonMapping | None:
        """Return the JSON Schema of what the step writes; None if it is not known.

        Args:
            data: The step.
            check: The check that asks; it has the agents and the functions that are known.
        """
        return None

    @classmethod
    def names_inside(
        cls, data: JsonMapping, sequence: str, known: Known, check: NameCheck
    ) -> Known:
        """Return the names that are filled for the steps in a sequence, besides those that are known before the step.

        Args:
            data: The step.
            sequence: The JSON pointer of the sequence from the step.
            known: The names that are filled before the step.
            check: The check that asks.
        """
        return {}

    @classmethod
    def check_names(
        cls, data: JsonMapping, pointer: str, known: Known, check: NameCheck
    ) -> None:
        """Check the names that the step itself uses, except for those under `template_keys`; by default, in conditions.

        Args:
            data: The step.
            pointer: Its JSON pointer.
            known: The names that are filled before the step.
            check: The check that asks; it has methods for templates, conditions and names.
        """
        for key in cls.condition_keys:
            check.condition(data.get(key), f"{pointer}/{key}", known)

    @classmethod
    def draw(cls, data: JsonMapping, chart: Flowchart, ends: Ends) -> Ends:
        """Draw the step after the nodes `ends`, and return where the next step goes on; by default a node."""
        node = chart.node(data["name"])
        return chart.join(ends, node)

    # --- A step in Python ---------------------------------------------------------------------------------------------

    @property
    def title(self) -> str:
        """The name of the step; empty before it is resolved, if it has none."""
        name: str | None = getattr(self, "name", None)
        return name or ""

    @abstractmethod
    async def run(self, runner: StepRunner, frame: StepFrame) -> Outcome:
        """Run the step, and return how it ended.

        Args:
            runner: Runs agents, functions and sequences of steps.
            frame: The context, the progress that is saved if the run stops, and the position of the step.
        """

    def need(self, walk: Walk, sizes: Sizes) -> Need:
        """Return what a resolved step needs, and write the sizes of what it writes; by default, nobody knows.

        Args:
            walk: The walk, which is about one bound, and walks sequences of steps.
            sizes: The context, by sizes.
        """
        return walk.unknown_step(self, sizes)

    def resolve(self, references: References) -> Self:
        """Return the step with names and defaults filled in; it refers to agents, functions and conditions by name.

        Args:
            references: Where the live objects go that it refers to.

        Raises:
            ConfigurationError: Something is not a step, or one name means two objects.
        """
        values = self._values()
        values["name"] = self.title or self.step_type.removesuffix("_step")
        self._convert_sequences(values, references.resolve)
        values.update(self.resolve_fields(references))
        return type(self)(**values)

    def resolve_fields(self, references: References) -> JsonObject:
        """Return the fields that `resolve` changes, besides the name and the steps inside."""
        return {}

    def to_data(self) -> JsonObject:
        """Return the blueprint data of a resolved step."""
        values = self._values()
        self._convert_sequences(values, steps_to_data)
        data: JsonObject = {"type": self.step_type, "name": values.pop("name")}
        for name, value in values.items():
            key = name.removesuffix("_")
            is_left_out = key in self.left_out and value == self.left_out[key]
            if value is not None and not is_left_out:
                data[key] = value
        return data

    @classmethod
    def from_data(cls, data: JsonMapping, builder: Builder) -> Self:
        """Make the step of blueprint data."""
        values = {
            _field_name(key): value
            for key, value in data.items()
            if key != "type"
        }
        cls._convert_sequences(values, builder.steps)
        return cls(**values)

    def inner(self) -> Iterator[Sequence[Step]]:
        """Yield the sequences of steps in a resolved step."""
        for name, is_list in self._sequence_fields():
            value = getattr(self, name) or ()
            if is_list:
                yield from value
            else:
                yield value

    def output_names(self) -> Iterator[str]:
        """Yield the names that a resolved step may write to the context; a name may come more than once."""
        for sequence in self.inner():
            for step in sequence:
                yield from step.output_names()

    def answering_agents(self) -> Iterator[AnsweringAgent]:
        """Yield the agents of which at most one runs, with its answer as the last output of a resolved step.

        No such run may be repeated, and nothing in the step may write an output after it. By default, there is none.
        """
        yield from ()

    def _values(self) -> JsonObject:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def _sequence_fields(cls) -> Iterator[tuple[str, bool]]:
        """Yield the fields that hold steps, and whether each holds a list of sequences."""
        for place in cls.sequences:
            key, _, item = place[1:].partition("/")
            yield _field_name(key), item == "*"

    @classmethod
    def _convert_sequences(
        cls, values: JsonObject, convert: Callable[[Any], object]
    ) -> None:
        """Convert each sequence of steps among the values of fields."""
        for name, is_list in cls._sequence_fields():
            value = values.get(name)
            if value is None:
                continue
            if is_list:
                values[name] = [convert(sequence) for sequence in value]
            else:
                values[name] = convert(value)


def _field_name(key: str) -> str:
    """Return the field for a key of a blueprint, which may be a reserved word of Python."""
    if keyword.iskeyword(key):
        return f"{key}_"
    return key


def output_name(output: object, source: object) -> str:
    """Return the name of what an agent or a function answers: the given one, or `<source>_output`."""
    return str(output or f"{source}_output")


def steps_to_data(steps: Sequence[Step]) -> list[JsonObject]:
    """Return the blueprint data of resolved steps."""
    return [step.to_data() for step in steps]


def output_names(steps: Iterable[Step]) -> list[str]:
    """Return the names that a sequence of resolved steps may write to the context, each once."""
    names = {name: None for step in steps for name in step.output_names()}
    return list(names)


def answering_in(steps: Steps, *place: int) -> Iterator[AnsweringAgent]:
    """Yield the agents whose answers are the last output of a sequence of resolved steps; see `Step.answering_agents`.

    Args:
        steps: The sequence.
        *place: Where it is in the step around it.
    """
    resolved = assume_resolved(steps)
    if resolved:
        last = len(resolved) - 1
        for each in resolved[last].answering_agents():
            yield replace(each, position=(*place, last, *each.position))


def assume_resolved(steps: Steps) -> Sequence[Step]:
    """Return the steps inside a resolved step, for type checkers: `resolve` has replaced bare components."""
    return cast("Sequence[Step]", steps)


def uncertain(writes: Iterable[Write]) -> Iterator[Write]:
    """Yield the writes of steps that may not run."""
    for write in writes:
        yield replace(write, is_certain=False)
