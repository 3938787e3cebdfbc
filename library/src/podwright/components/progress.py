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

from collections.abc import Mapping, Sequence
from typing import Any, cast

from podwright.blueprints import Blueprint, as_object
from podwright.errors import ResumePathError

KEY = "_resume"
"""Where a stopped workflow's context holds its progress."""

Node = dict[str, Any]


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


def restored(steps: Sequence[Blueprint], saved: object, start_step: object, resume_path: object) -> Node:
    """The progress that a run starts from.

    Args:
        steps: The workflow's steps.
        saved: What the context holds under `_resume`, if anything.
        start_step: Index of the first step to run.
        resume_path: Indices down to the step to run first; None starts at `start_step`.

    Raises:
        ResumePathError: They do not lead to a step, or do not fit each other.
    """
    if not isinstance(start_step, int) or isinstance(start_step, bool):
        raise ResumePathError(f"start_step is a whole number, not {start_step!r}.")
    if resume_path is None:
        if not 0 <= start_step < len(steps):
            raise ResumePathError(f"start_step={start_step} is no step: the workflow has steps 0 to {len(steps) - 1}.")
        return {"step": start_step}
    if not isinstance(resume_path, Sequence) or isinstance(resume_path, str | bytes) or not resume_path:
        raise ResumePathError(f"resume_path is a list of step indices, not {resume_path!r}.")
    path = list(cast("Sequence[Any]", resume_path))
    for index in path:
        if not isinstance(index, int) or isinstance(index, bool) or index < 0:
            raise ResumePathError(f"resume_path={path} holds {index!r}, which is no index.")
    if start_step not in (0, path[0]):
        raise ResumePathError(f"start_step={start_step} and resume_path={path} begin at different steps.")
    built = _from_path(steps, path, path)
    if path[0] >= len(steps):
        raise ResumePathError(f"resume_path={path} leads past the last step, {len(steps) - 1}.")
    if saved is None:
        return built
    _check_sequence(steps, saved)
    return cast("Node", saved) if path_of(cast("Node", saved)) == path else built


def _from_path(steps: Sequence[Blueprint], path: list[int], whole: list[int]) -> Node:
    if not path:
        return {}
    index, rest = path[0], path[1:]
    if index > len(steps) or (index == len(steps) and rest):
        place = len(whole) - len(path)
        raise ResumePathError(
            f"resume_path={whole}: index {index} at place {place} is too large; {len(steps)} steps are there."
        )
    if not rest:
        return {"step": index}
    return {"step": index, "in": _inside(steps[index], rest, whole)}


def _inside(step: Blueprint, path: list[int], whole: list[int]) -> Node:
    at, rest = path[0], path[1:]
    match step["type"]:
        case "workflow_step":
            return {"in": _from_path(step["workflow"]["steps"], path, whole)}
        case "condition_step" | "loop_step":
            choices = [step["then"], step.get("else", [])] if step["type"] == "condition_step" else None
            _within(step, at, len(choices) if choices else step["max_iterations"], whole)
            return {"at": at, "in": _from_path(choices[at] if choices else step["steps"], rest, whole)}
        case "parallel_step":
            _within(step, at, len(step["branches"]), whole)
            return {"at": at, "parts": {str(at): {"in": _from_path(step["branches"][at], rest, whole)}}}
        case "map_step":
            return {"at": at, "parts": {str(at): {"in": _from_path(step["steps"], rest, whole)}}}
        case _:
            raise ResumePathError(f"resume_path={whole} goes into step '{step['name']}', which has nothing inside.")


def _within(step: Blueprint, at: int, count: int, whole: list[int]) -> None:
    if at >= count:
        raise ResumePathError(f"resume_path={whole}: step '{step['name']}' has no {at}, only 0 to {count - 1}.")


def _check_sequence(steps: Sequence[Blueprint], node: object) -> None:
    """A context comes back from outside: what it says of progress is checked before it is believed."""
    if node == {}:
        return
    match node:
        case {"step": int(index)} if 0 <= index <= len(steps):
            inner = cast("Mapping[str, Any]", node).get("in", {})
        case _:
            raise _damaged(node)
    if inner != {} and (index == len(steps) or not isinstance(inner, dict)):
        raise _damaged(inner)
    if inner:
        _check_inside(steps[index], cast("Node", inner))


def _check_inside(step: Blueprint, node: Node) -> None:
    match step["type"], node:
        case "workflow_step", {"in": inner}:
            _check_sequence(step["workflow"]["steps"], inner)
        case "condition_step", {"at": 0 | 1 as at}:
            _check_sequence([step["then"], step.get("else", [])][at], node.get("in", {}))
        case "loop_step", {"at": int(at)} if 0 <= at < step["max_iterations"]:
            _check_sequence(step["steps"], node.get("in", {}))
        case "parallel_step" | "map_step", {"at": int(at), "parts": dict()} if at >= 0:
            for key, part in as_object(node["parts"]).items():
                choices = step.get("branches")
                known = as_object(part)
                if not key.isdecimal() or (choices and int(key) >= len(choices)) or known != part:
                    raise _damaged(part)
                if not isinstance(known.get("set", {}), dict):
                    raise _damaged(part)
                _check_sequence(choices[int(key)] if choices else step["steps"], known.get("in", {}))
        case "agent_step", {"context": dict()}:
            pass  # checked by the workflow that it belongs to, when it gets there
        case _:
            raise _damaged(node)


def _damaged(node: object) -> ResumePathError:
    return ResumePathError(f"The context's '{KEY}' does not fit this workflow: {str(node)[:80]}.")
