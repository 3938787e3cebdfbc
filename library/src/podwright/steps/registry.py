"""The kinds of steps by their types, and what is asked of all of them: `podwright.steps` fills the registry."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema

from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_array,
    as_object,
)
from podwright.errors import Problem
from podwright.steps.base import Builder, Step, Write
from podwright.steps.blueprint_types import is_name

if TYPE_CHECKING:
    from podwright.workflows.workflow import Workflow

Kinds = tuple[type[Step], ...]

_kinds: dict[str, type[Step]] = {}


def register(kind: type[Step]) -> Callable[[], None]:
    """Add a kind of step, which blueprints may have from now on.

    Returns:
        A function that takes it away.
    """
    _kinds[kind.step_type] = kind

    def take_away() -> None:
        del _kinds[kind.step_type]

    return take_away


def kinds() -> Kinds:
    """Return the kinds of steps, in the order of the published schema."""
    return tuple(_kinds.values())


def step_class(data: JsonMapping) -> type[Step]:
    """Return the kind of a step in a blueprint, valid or not; `Step` itself if the kind is unknown."""
    if "type" in data:
        return _kinds.get(str(data["type"]), Step)
    by_keys = {_kinds_by_key()[key] for key in _own_keys_in(data)}
    if len(by_keys) == 1:
        return by_keys.pop()
    return Step


def fill_type_in(step: JsonObject) -> None:
    """Write the type and the name of a step into it, as far as it lacks them and its keys say them."""
    kind = step_class(step)
    if not kind.own_keys or {"type", "name"} <= step.keys():
        return
    name = kind.name_called(step)
    if not is_name(name):
        name = kind.step_type.removesuffix("_step")
    whole = {"type": kind.step_type, "name": name, **step}
    step.clear()
    step.update(whole)


def missing_type_problem(step: JsonMapping, pointer: str) -> Problem:
    """Return the problem of a step without a type whose keys do not say it either."""
    keys = [f"'{key}'" for key in _own_keys_in(step)]
    if keys:
        return Problem(
            pointer,
            detail=f"The keys {' and '.join(keys)} are those of different kinds of steps.",
            suggestion="Remove one, or write the 'type' of the step.",
        )
    known = ", ".join(f"'{key}'" for key in _kinds_by_key())
    return Problem(
        pointer,
        detail="Missing key 'type'.",
        suggestion=f"A step without it is known by one of the keys {known}.",
    )


def _own_keys_in(step: JsonMapping) -> list[str]:
    return [key for key in _kinds_by_key() if key in step]


def _kinds_by_key() -> Mapping[str, type[Step]]:
    return _kinds_by_key_of(kinds())


@functools.lru_cache(maxsize=4)
def _kinds_by_key_of(of: Kinds) -> Mapping[str, type[Step]]:
    return {key: kind for kind in of for key in kind.own_keys}


class _ShapesOfKinds:
    """Has pydantic look the shapes of all kinds up when it builds a validator, since they contain each other."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        union, *shapes = [kind.shape for kind in kinds()]
        for shape in shapes:
            union |= shape
        return handler.generate_schema(
            Annotated[union, Field(discriminator="type")]
        )


StepBlueprint = Annotated[JsonObject, _ShapesOfKinds()]
"""A step of any kind in a blueprint."""
StepsBlueprint = Annotated[list[StepBlueprint], Field(min_length=1)]


def walk_steps(
    steps: object, at: str = "/steps"
) -> Iterator[tuple[str, JsonObject]]:
    """Every step of a list of steps, nested ones too, with its JSON pointer; anything that is not an object is skipped.

    Args:
        steps: The `steps` of a workflow blueprint, valid or not.
        at: The JSON pointer of the list.
    """
    for index, entry in enumerate(as_array(steps)):
        here = f"{at}/{index}"
        step = as_object(entry)
        if step:
            yield here, step
        for pointer, inner in inner_sequences(step):
            yield from walk_steps(inner, here + pointer)


def inner_sequences(step: JsonMapping) -> Iterator[tuple[str, list[Any]]]:
    """Yield the sequences of steps directly inside a step, with their JSON pointers from there.

    Args:
        step: A step of a workflow blueprint, valid or not: a key that holds steps in one kind is searched in each.
    """
    for place in sequence_places():
        yield from _sequences_at(step, place[1:].split("/"), "")


def _sequences_at(
    value: object, keys: Sequence[str], pointer: str
) -> Iterator[tuple[str, list[Any]]]:
    if not keys:
        yield pointer, as_array(value)
        return
    key, *rest = keys
    if key == "*":
        for number, item in enumerate(as_array(value)):
            yield from _sequences_at(item, rest, f"{pointer}/{number}")
        return
    fields = as_object(value)
    if key in fields:
        yield from _sequences_at(fields[key], rest, f"{pointer}/{key}")


def collect(of: Callable[[type[Step]], Iterable[str]]) -> Sequence[str]:
    """Return what the kinds have, each text once: `collect(lambda kind: kind.condition_keys)`."""
    return list(dict.fromkeys(text for kind in kinds() for text in of(kind)))


def sequence_places() -> Sequence[str]:
    """Return the JSON pointers of sequences of steps in a step of any kind; `*` stands for each item of a list."""
    return _sequence_places(kinds())


@functools.lru_cache(maxsize=4)
def _sequence_places(_: Kinds) -> Sequence[str]:
    return collect(lambda kind: kind.sequences)


def step_keys() -> Sequence[str]:
    """Return the keys under which steps stand, in lists or in lists of lists."""
    keys = [
        place.removesuffix("/*").rpartition("/")[2]
        for place in sequence_places()
    ]
    return list(dict.fromkeys(keys))


def writes_of(steps: object, at: str) -> Iterator[Write]:
    """Yield what the steps of a sequence write, in their order, steps inside them included.

    Args:
        steps: The sequence.
        at: Its JSON pointer.
    """
    for number, entry in enumerate(as_array(steps)):
        step = as_object(entry)
        pointer = f"{at}/{number}"
        inner = _inner_writes(step, pointer)
        yield from step_class(step).writes(step, pointer, inner)


def _inner_writes(
    step: JsonMapping, pointer: str
) -> Mapping[str, Sequence[Write]]:
    return {
        place: list(writes_of(sequence, pointer + place))
        for place, sequence in inner_sequences(step)
    }


def step_problems(steps: object) -> Iterator[Problem]:
    """Yield the problems of steps that fit their shapes, such as names that branches would take from each other.

    Args:
        steps: The `steps` of a valid workflow blueprint.
    """
    for pointer, step in walk_steps(steps):
        inner = _inner_writes(step, pointer)
        yield from step_class(step).problems(step, pointer, inner)


def steps_from_data(
    entries: Sequence[JsonObject],
    make_workflow: Callable[[JsonObject], Workflow],
) -> tuple[Step, ...]:
    """Make the steps of valid blueprint data.

    Args:
        entries: The `steps` of a blueprint.
        make_workflow: Makes the workflow of a nested blueprint.
    """
    return Builder(_make_step, make_workflow).steps(entries)


def _make_step(data: JsonObject, builder: Builder) -> Step:
    return step_class(data).from_data(data, builder)
