"""The names that the steps of a workflow blueprint write, and those that branches would take from each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from podwright.blueprints.steps import inner_sequences, walk_steps
from podwright.errors import Problem
from podwright.json_data import (
    JsonMapping,
    as_array,
    as_object,
    json_pointer,
)
from podwright.names import normal_form

DECIDING = ("options", "edit", "on_reject")
"""The keys of an approval step whose decision is a part of the context."""


@dataclass(frozen=True, slots=True)
class Write:
    """One step that writes a name to the context."""

    name: str
    step: JsonMapping
    pointer: str
    """The JSON pointer of the step."""
    kind: Literal["output", "decision", "edit"]
    is_certain: bool = True
    """Whether the step runs whenever the searched sequence runs."""
    gathered: Literal["", "map", "collect"] = ""
    """The step around it that makes a list of the values."""


def writes_of(steps: object, at: str) -> Iterator[Write]:
    """What the steps of a sequence write, in their order, steps inside them included.

    Args:
        steps: The sequence, valid or not.
        at: Its JSON pointer.
    """
    for number, entry in enumerate(as_array(steps)):
        yield from _writes_of_step(as_object(entry), f"{at}/{number}")


def _writes_of_step(step: JsonMapping, pointer: str) -> Iterator[Write]:
    inner = [
        list(writes_of(sequence, pointer + place))
        for place, sequence in inner_sequences(step)
    ]
    match step.get("type"):
        case "agent_step" | "function_step":
            yield Write(output_of(step), step, pointer, "output")
        case "approval_step":
            name = str(step.get("name"))
            yield Write(name, step, pointer, "decision")
            for edited in as_object(step.get("edit")):
                place = f"{pointer}/edit{json_pointer(edited)}"
                yield Write(edited, step, place, "edit")
            yield from _uncertain(inner)
        case "condition_step":
            yield from _of_one(inner, alternatives=("then", "else"), step=step)
        case "try_step":
            yield from writes_of(step.get("steps"), f"{pointer}/steps")
            caught = writes_of(step.get("catch"), f"{pointer}/catch")
            yield from _uncertain([list(caught)])
        case "map_step":
            for write in _chain(inner):
                yield replace(write, gathered="map")
        case "parallel_step" if step.get("collect"):
            names = _collected_names(inner)
            for write in _chain(inner):
                if write.name in names and write.kind != "edit":
                    yield replace(write, gathered="collect")
                else:
                    yield write
        case _:
            yield from _chain(inner)


def output_of(step: JsonMapping) -> str:
    """The name under which an agent step or a function step stores its output."""
    source = step.get("agent", step.get("function"))
    return str(step.get("output") or f"{source}_output")


def _chain(sequences: Iterable[Sequence[Write]]) -> Iterator[Write]:
    for sequence in sequences:
        yield from sequence


def _uncertain(sequences: Iterable[Sequence[Write]]) -> Iterator[Write]:
    for write in _chain(sequences):
        yield replace(write, is_certain=False)


def _of_one(
    sequences: Sequence[Sequence[Write]],
    *,
    alternatives: Sequence[str],
    step: JsonMapping,
) -> Iterator[Write]:
    """What one of several sequences writes: a name is certain if all of them certainly write it."""
    is_complete = all(key in step for key in alternatives)
    certain = [
        {write.name for write in sequence if write.is_certain}
        for sequence in sequences
    ]
    for write in _chain(sequences):
        in_all = is_complete and all(write.name in names for names in certain)
        yield replace(write, is_certain=write.is_certain and in_all)


def _collected_names(branches: Sequence[Iterable[Write]]) -> set[str]:
    """The names of which a parallel step with `collect` makes lists, given what its branches write."""
    return shared(
        [
            [write.name for write in branch if _is_collected(write)]
            for branch in branches
        ]
    )


def _is_collected(write: Write) -> bool:
    return write.kind != "edit" and not _is_label(write)


def _is_label(write: Write) -> bool:
    """Whether it is the name of an approval step that only asks, so that its decision is no part of the context."""
    decides = any(key in write.step for key in DECIDING)
    return write.kind == "decision" and not decides


def shared(branches: Sequence[Iterable[str]]) -> set[str]:
    """The names that several branches of a parallel step have; if it has one branch only, all names of that."""
    if len(branches) == 1:
        return set(branches[0])
    seen = set[str]()
    several = set[str]()
    for branch in branches:
        names = set(branch)
        several |= seen & names
        seen |= names
    return several


def branch_problems(steps: object) -> list[Problem]:
    """The names that branches of a parallel step would take from each other, at the later step that writes them.

    Branches that both write a name under a condition may be alternatives; whether they are, only a run shows.

    Args:
        steps: The `steps` of a valid workflow blueprint.
    """
    problems: list[Problem] = []
    for pointer, step in walk_steps(steps):
        if step.get("type") == "parallel_step":
            problems += _problems_of(step, pointer)
    return problems


def _problems_of(step: JsonMapping, pointer: str) -> Iterator[Problem]:
    branches = [
        list(writes_of(branch, f"{pointer}/branches/{number}"))
        for number, branch in enumerate(as_array(step.get("branches")))
    ]
    collected = set[str]()
    if step.get("collect"):
        collected = _collected_names(branches)
        if not collected:
            yield Problem(
                f"{pointer}/collect",
                detail=f"The step '{step.get('name')}' has nothing to collect: no two branches write the same name.",
                suggestion="Give the steps whose outputs belong together the same 'output', or leave 'collect' out.",
            )
    earlier: dict[str, tuple[int, Write]] = {}
    for number, branch in enumerate(branches):
        own = _by_name(write for write in branch if not _is_label(write))
        for name, write in own.items():
            known = earlier.get(name)
            if known is None:
                earlier[name] = (number, write)
                continue
            _, other = known
            is_edit = "edit" in (write.kind, other.kind)
            is_list = write.name in collected and not is_edit
            if (write.is_certain or other.is_certain) and not is_list:
                yield _problem(known, (number, write), str(step.get("name")))
            if write.is_certain and not other.is_certain:
                earlier[name] = (number, write)


def _by_name(writes: Iterable[Write]) -> dict[str, Write]:
    """Return one write for each name: the first certain one, else the first."""
    found: dict[str, Write] = {}
    for write in writes:
        name = normal_form(write.name)
        known = found.get(name)
        if known is None or (write.is_certain and not known.is_certain):
            found[name] = write
    return found


def _problem(
    earlier: tuple[int, Write], later: tuple[int, Write], parallel: str
) -> Problem:
    """The problem of two writers, each with the number of its branch."""
    first_branch, first = earlier
    second_branch, second = later
    suggestion = (
        "Give each a name of its own with 'output', or keep all values as a list: "
        f"\"collect\": true in the step '{parallel}'."
    )
    if "edit" in (first.kind, second.kind):
        suggestion = "Let one branch change it, or do so before or after the parallel step."
    elif "decision" in (first.kind, second.kind):
        suggestion = "Give each step a name of its own."
    return Problem(
        second.pointer,
        detail=(
            f"The steps '{first.step.get('name')}' in branch {first_branch} and '{second.step.get('name')}' in branch "
            f"{second_branch} of '{parallel}' both write '{second.name}', so that one value would be lost."
        ),
        suggestion=suggestion,
    )
