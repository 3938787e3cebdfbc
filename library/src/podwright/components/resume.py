"""How far a workflow has come, as JSON data: what a stopped one saves, and what a resumed one starts from.

A node for each level, changed in place as the workflow goes on: whatever stops it, the tree is the truth.

    sequence   {"step": i, "in": node}            steps before i are finished; `in` is how far step i has come
    condition  {"at": 0 or 1, "in": sequence}     0 is `then`, 1 is `else`
    loop       {"at": round, "in": sequence}
    parallel, map   {"at": k, "parts": {"k": {"set": {written names}, "in": sequence}}}
    workflow   {"in": sequence}
    an agent step whose agent is a workflow    {"context": {…}, "in": sequence}
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from podwright.blueprints import Blueprint
from podwright.errors import ResumePathError
from podwright.json_data import as_object
from podwright.text import short_repr

KEY = "_resume"
"""Where a stopped workflow's context holds its progress."""

MOST_ITEMS = 1_000
"""No map step goes over more: each item has a context of its own."""

_MOST_INDEX = 10**9

Node = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Route:
    """Where progress may lead: the steps of a workflow, and of the workflows among its agents."""

    steps: Sequence[Blueprint]
    into: Callable[[str], Route | None]
    """The route inside an agent; None for one that is no workflow."""

    def along(self, steps: Sequence[Blueprint]) -> Route:
        """The route of a sequence inside one of its steps."""
        return Route(steps, self.into)


def path_of(sequence: Node) -> list[int]:
    """The resume path that a sequence's progress stands at: indices, outermost first."""
    if "step" not in sequence:
        return []
    inner = cast("Node", sequence.get("in", {}))
    path = [cast("int", sequence["step"])]
    if "at" in inner:
        part = inner.get("parts", {}).get(str(inner["at"]), {}) if "parts" in inner else inner
        return [*path, inner["at"], *path_of(part.get("in", {}))]
    return [*path, *path_of(inner.get("in", {}))]


def restored(route: Route, saved: object, start_step: object, resume_path: object) -> Node:
    """The progress that a run starts from.

    Args:
        route: The workflow's steps, and what is inside them.
        saved: What the context holds under `_resume`, if anything.
        start_step: Index of the first step to run.
        resume_path: Indices down to the step to run first; None starts at `start_step`.

    Raises:
        ResumePathError: They do not lead to a step, or do not fit each other.
    """
    steps = route.steps
    if not isinstance(start_step, int) or isinstance(start_step, bool):
        raise ResumePathError(f"start_step is a whole number, not {short_repr(start_step)}.")
    if resume_path is None:
        if not 0 <= start_step < len(steps):
            raise ResumePathError(
                f"start_step={short_repr(start_step)} is no step: there are steps 0 to {len(steps) - 1}."
            )
        return {"step": start_step}
    if not isinstance(resume_path, Sequence) or isinstance(resume_path, str | bytes) or not resume_path:
        raise ResumePathError(f"resume_path is a list of step indices, not {short_repr(cast('object', resume_path))}.")
    path = list(cast("Sequence[Any]", resume_path))
    for index in path:
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < _MOST_INDEX:
            raise ResumePathError(f"resume_path={short_repr(path)} holds {short_repr(index)}, which is no index.")
    if start_step not in (0, path[0]):
        raise ResumePathError(f"start_step={short_repr(start_step)} and resume_path={path} begin at different steps.")
    built = _from_path(route, path, path)
    if path[0] >= len(steps):
        raise ResumePathError(f"resume_path={path} leads past the last step, {len(steps) - 1}.")
    if saved is None:
        return built
    _check_sequence(route, saved)
    return cast("Node", saved) if path_of(cast("Node", saved)) == path else built


def _from_path(route: Route, path: list[int], whole: list[int]) -> Node:
    if not path:
        return {}
    steps, index, rest = route.steps, path[0], path[1:]
    if index > len(steps) or (index == len(steps) and rest):
        place = len(whole) - len(path)
        raise ResumePathError(
            f"resume_path={whole}: index {index} at place {place} is too large; {len(steps)} steps are there."
        )
    if not rest:
        return {"step": index}
    return {"step": index, "in": _inside(route, steps[index], rest, whole)}


def _inside(route: Route, step: Blueprint, path: list[int], whole: list[int]) -> Node:
    at, rest = path[0], path[1:]
    match step["type"]:
        case "workflow_step":
            return {"in": _from_path(route.along(step["workflow"]["steps"]), path, whole)}
        case "condition_step" | "loop_step":
            choices = [step["then"], step.get("else", [])] if step["type"] == "condition_step" else None
            _within(step, at, len(choices) if choices else step["max_iterations"], whole)
            return {"at": at, "in": _from_path(route.along(choices[at] if choices else step["steps"]), rest, whole)}
        case "parallel_step":
            _within(step, at, len(step["branches"]), whole)
            return {"at": at, "parts": {str(at): {"in": _from_path(route.along(step["branches"][at]), rest, whole)}}}
        case "map_step":
            return {"at": at, "parts": {str(at): {"in": _from_path(route.along(step["steps"]), rest, whole)}}}
        case "agent_step" if inner := route.into(step["agent"]):
            return {"in": _from_path(inner, path, whole)}
        case _:
            raise ResumePathError(f"resume_path={whole} goes into step '{step['name']}', which has nothing inside.")


def _within(step: Blueprint, at: int, count: int, whole: list[int]) -> None:
    if at >= count:
        raise ResumePathError(f"resume_path={whole}: step '{step['name']}' has no {at}, only 0 to {count - 1}.")


def _check_sequence(route: Route, node: object) -> None:
    """A context comes back from outside: what it says of progress is checked before it is believed."""
    known = _known(node, "step", "in")
    if not known:
        return
    index, inner = _number(known, "step", len(route.steps) + 1), known.get("in", {})
    if inner == {}:
        return
    if index == len(route.steps):
        raise _damaged(inner)
    _check_inside(route, route.steps[index], inner)


def _check_inside(route: Route, step: Blueprint, node: object) -> None:
    match step["type"]:
        case "workflow_step":
            _check_sequence(route.along(step["workflow"]["steps"]), _known(node, "in")["in"])
        case "condition_step":
            known = _known(node, "at", "in")
            chosen = (step["then"], step.get("else", []))[_number(known, "at", 2)]
            _check_sequence(route.along(chosen), known.get("in", {}))
        case "loop_step":
            known = _known(node, "at", "in")
            _number(known, "at", step["max_iterations"])
            _check_sequence(route.along(step["steps"]), known.get("in", {}))
        case "parallel_step" | "map_step":
            _check_parts(route, step, _known(node, "at", "parts"))
        case "agent_step" if inside := route.into(step["agent"]):
            known = _known(node, "context", "in")
            if "input" not in as_object(known.get("context")):
                raise _damaged(node)
            _check_sequence(inside, known.get("in", {}))
        case _:
            raise _damaged(node)


def _check_parts(route: Route, step: Blueprint, node: Node) -> None:
    branches: Sequence[Sequence[Blueprint]] | None = step.get("branches")
    count = len(branches) if branches else MOST_ITEMS  # how many items a map has is known when it gets there
    _number(node, "at", count)
    if not isinstance(node.get("parts"), dict):
        raise _damaged(node)
    for key, part in as_object(node["parts"]).items():
        number = int(key) if str(key).isdecimal() and len(key) < len(str(MOST_ITEMS)) else count
        known = _known(part, "set", "in")
        if number >= count or not isinstance(known.get("set", {}), dict):
            raise _damaged(part)
        _check_sequence(route.along(branches[number] if branches else step["steps"]), known.get("in", {}))


def _known(node: object, *keys: str) -> Node:
    """A node that has these keys at most."""
    known = as_object(node)
    if known != node or not known.keys() <= set(keys):
        raise _damaged(node)
    return known


def _number(node: Node, key: str, count: int) -> int:
    """The whole number below `count` that a node has under a key."""
    value = node.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < count:
        raise _damaged(node)
    return value


def _damaged(node: object) -> ResumePathError:
    return ResumePathError(f"The context's '{KEY}' does not fit this workflow: {short_repr(node)}.")
