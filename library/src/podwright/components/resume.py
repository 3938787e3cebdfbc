"""How far a workflow has come, as JSON data: what a stopped workflow saves, and what a resumed one starts from.

The data is a tree with a node for each level, changed in place while the workflow runs:

    sequence   {"step": i, "in": node}            the steps before i are finished; `in` is the progress inside step i
    condition  {"at": 0 or 1, "in": sequence}     0 is `then`, 1 is `else`
    loop       {"at": iteration, "in": sequence}
    parallel, map   {"at": k, "parts": {"k": {"set": {written names}, "in": sequence}}}
    workflow   {"in": sequence}
    an agent step whose agent is a workflow    {"context": {…}, "in": sequence}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, cast

from pydantic import Field, TypeAdapter, with_config
from typing_extensions import TypedDict

from podwright.components.base import Component
from podwright.components.steps import (
    AgentStep,
    ConditionStep,
    LoopStep,
    MapStep,
    ParallelStep,
    Step,
    WorkflowStep,
    resolved,
)
from podwright.errors import ResumePathError
from podwright.json_data import nested_deeper
from podwright.text import short_repr

KEY = "_resume"
"""Name in the context of a stopped workflow under which its progress is saved."""

MAX_ITEMS = 1_000
"""Most items of a map step: each has a context of its own."""

_MAX_INDEX = 10**9

Node = dict[str, Any]

_closed = with_config(extra="forbid")
_Index = Annotated[int, Field(strict=True, ge=0, lt=_MAX_INDEX)]
_Sequence = _closed(TypedDict("_Sequence", {"step": _Index, "in": "_Step"}, total=False))
_Step = _closed(
    TypedDict("_Step", {"at": _Index, "in": _Sequence, "parts": "dict[str, _Part]", "context": Node}, total=False)
)
_Part = _closed(TypedDict("_Part", {"set": Node, "in": _Sequence}, total=False))


@dataclass(frozen=True, slots=True)
class Level:
    """A sequence of steps and the agents that they may refer to."""

    steps: Sequence[Step]
    agents: Mapping[str, Component]

    def inside(self, steps: Sequence[Step | Component]) -> Level:
        """A sequence inside one of the steps."""
        return Level(resolved(steps), self.agents)

    def workflow_of(self, step: Step) -> Level | None:
        """The steps of the workflow that a step runs, if it runs one in this process."""
        if isinstance(step, WorkflowStep):
            return Level(step.workflow.steps, step.workflow.members())
        agent: Any = self.agents.get(cast("str", step.agent)) if isinstance(step, AgentStep) else None
        if agent is None or agent.kind != "workflow" or not hasattr(agent, "steps"):
            return None
        return Level(agent.steps, agent.members())


def path_of(sequence: Node) -> list[int]:
    """The resume path of a sequence's progress: indices, outermost first."""
    if "step" not in sequence:
        return []
    inner = cast("Node", sequence.get("in", {}))
    path = [cast("int", sequence["step"])]
    if "at" in inner:
        part = inner.get("parts", {}).get(str(inner["at"]), {}) if "parts" in inner else inner
        return [*path, inner["at"], *path_of(part.get("in", {}))]
    return [*path, *path_of(inner.get("in", {}))]


def initial_progress(level: Level, saved: object, start_step: object, resume_path: object) -> Node:
    """The progress that a run starts from.

    Args:
        level: The steps of the workflow.
        saved: What the context holds under `_resume`, if anything.
        start_step: Index of the first step to run.
        resume_path: Indices down to the step to run first; None starts at `start_step`.

    Raises:
        ResumePathError: They do not lead to a step, or contradict each other.
    """
    count = len(level.steps)
    if not _is_index(start_step):
        raise ResumePathError(f"start_step must be an integer, 0 or more, not {short_repr(start_step)}.")
    if resume_path is None:
        if cast("int", start_step) >= count:
            raise ResumePathError(f"start_step={short_repr(start_step)} is out of range: steps are 0 to {count - 1}.")
        return {"step": start_step}
    if not isinstance(resume_path, Sequence) or isinstance(resume_path, str | bytes) or not resume_path:
        raise ResumePathError(
            f"resume_path must be a list of step indices, not {short_repr(cast('object', resume_path))}."
        )
    path = list(cast("Sequence[Any]", resume_path))
    for index in path:
        if not _is_index(index):
            raise ResumePathError(
                f"resume_path={short_repr(path)} contains {short_repr(index)}, which is not an index."
            )
    if start_step not in (0, path[0]):
        raise ResumePathError(f"start_step={short_repr(start_step)} and resume_path={path} begin at different steps.")
    progress = _from_path(level, path, path)
    if path[0] >= count:
        raise ResumePathError(f"resume_path={path} leads past the last step, {count - 1}.")
    if saved is None:
        return progress
    try:
        if nested_deeper(saved):
            raise ValueError("nested too deeply")
        known = cast("Node", TypeAdapter(_Sequence).validate_python(saved))
    except ValueError as error:
        message = f"Invalid progress under '{KEY}' of the context: {short_repr(saved)}."
        raise ResumePathError(message) from error
    return known if path_of(known) == path else progress


def _is_index(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MAX_INDEX


def _from_path(level: Level, path: list[int], whole: list[int]) -> Node:
    if not path:
        return {}
    index, rest = path[0], path[1:]
    if index > len(level.steps) or (index == len(level.steps) and rest):
        raise ResumePathError(
            f"resume_path={whole}: index {index} is out of range; there are {len(level.steps)} steps."
        )
    if not rest:
        return {"step": index}
    return {"step": index, "in": _inside(level, level.steps[index], rest, whole)}


def _inside(level: Level, step: Step, path: list[int], whole: list[int]) -> Node:
    if workflow := level.workflow_of(step):
        return {"in": _from_path(workflow, path, whole)}
    choices = _sequences_inside(step)
    if choices is None:
        raise ResumePathError(f"resume_path={whole} leads into step '{step.name}', which has no steps inside.")
    at, rest = path[0], path[1:]
    if at >= len(choices):
        raise ResumePathError(f"resume_path={whole}: step '{step.name}' has no {at}, only 0 to {len(choices) - 1}.")
    inner = _from_path(level.inside(choices[at]), rest, whole)
    if isinstance(step, ParallelStep | MapStep):
        return {"at": at, "parts": {str(at): {"in": inner}}}
    return {"at": at, "in": inner}


def _sequences_inside(step: Step) -> Sequence[Sequence[Step | Component]] | None:
    """The sequences that the second index of a path chooses from: branches, iterations or items."""
    match step:
        case ConditionStep():
            return (step.then, step.else_)
        case LoopStep():
            return (step.steps,) * step.max_iterations
        case ParallelStep():
            return step.branches
        case MapStep():
            return (step.steps,) * MAX_ITEMS  # the number of items is known when the step runs
        case _:
            return None
