"""How far a workflow has come, as JSON data: what a stopped workflow saves, and what a resumed one starts from.

The data is a tree with a node for each level, changed in place while the workflow runs:

    sequence   {"step": i, "in": node}            the steps before i are finished; `in` is the progress inside step i
    condition  {"at": 0 or 1, "in": sequence}     0 is `then`, 1 is `else`
    loop       {"at": iteration, "in": sequence}
    try        {"at": attempt, "parts": {"attempt": {…}}}; in `catch` {"at": attempts, "in": sequence, "error": {…}}
    approval   {"at": 0, "in": sequence}          after a rejection, in `on_reject`
    parallel, map   {"at": k, "parts": {"k": {"set": {written names}, "in": sequence}}}
    workflow   {"in": sequence}
    an agent step whose agent is a workflow    {"context": {…}, "in": sequence}
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, TypeAdapter, with_config
from typing_extensions import TypedDict

from podwright.data.json_data import nested_deeper
from podwright.data.text import short_repr
from podwright.errors import ResumePathError

PROGRESS = "_resume"
"""Name in the context of a stopped workflow under which its progress is saved."""

_Values = dict[str, Any]
_Index = Annotated[int, Field(strict=True, ge=0, lt=10**9)]

SequenceProgress = TypedDict(
    "SequenceProgress",
    {"step": _Index, "in": "StepProgress"},
    total=False,
)
"""How far a sequence of steps has come."""
StepProgress = TypedDict(
    "StepProgress",
    {
        "at": _Index,
        "in": SequenceProgress,
        "parts": "dict[str, PartProgress]",
        "context": _Values,
        "error": _Values,
    },
    total=False,
)
"""How far a step that contains other steps has come.

`at` of a condition is the branch: 0 for `then`, 1 for `else`. `at` of a loop is the iteration, from 0. `at` of a try
step is the attempt, from 0, and after the last one `catch`; `error` is that of the attempt before. `at` of a
parallel or map step is the part that the resume path leads into: the first that has failed or paused, else the first
that has not finished.
"""
PartProgress = TypedDict(
    "PartProgress",
    {"set": _Values, "in": SequenceProgress},
    total=False,
)
"""How far one sequence of a parallel or map step has come, and what it wrote."""

# not where they are made, because type checkers would not see then that they are types
_forbid_others = with_config(extra="forbid")
_forbid_others(SequenceProgress)
_forbid_others(StepProgress)
_forbid_others(PartProgress)

_Path = Annotated[list[_Index], Field(min_length=1)]

_INDEX = TypeAdapter(_Index)
_PATH = TypeAdapter(_Path)
_SEQUENCE = TypeAdapter(SequenceProgress)


def path_of(sequence: SequenceProgress) -> list[int]:
    """The resume path of a sequence's progress: indices, outermost first."""
    path: list[int] = []
    current = sequence
    while "step" in current:
        path.append(current["step"])
        step = current.get("in", {})
        if "at" in step:
            path.append(step["at"])
        current = _inner_sequence(step)
    return path


def _inner_sequence(step: StepProgress) -> SequenceProgress:
    """The sequence inside a step, in the part that stopped if it has several."""
    if "at" in step and "parts" in step:
        number = str(step["at"])
        part = step["parts"].get(number, {})
        return part.get("in", {})
    return step.get("in", {})


def initial_progress(
    steps: int, saved: object, start_step: object, resume_path: object
) -> SequenceProgress:
    """The progress that a run starts from.

    Args:
        steps: Number of steps of the workflow.
        saved: The progress in the context of a stopped run, if any.
        start_step: Index of the step to run first.
        resume_path: Path of the step to run first; None starts at `start_step`. A path into a step needs the saved
            progress of the run that stopped there.

    Raises:
        ResumePathError: They do not lead to a step, or contradict each other.
    """
    start: int = _validated(
        _INDEX, start_step, "start_step must be an integer, 0 or more"
    )
    path = [start]
    if resume_path is not None:
        path = _validated(
            _PATH,
            resume_path,
            "resume_path must be a list of indices, each 0 or more",
        )
        if start not in (0, path[0]):
            raise ResumePathError(
                f"start_step={start} and resume_path={path} begin at different steps."
            )
    if path[0] >= steps:
        raise ResumePathError(
            f"Step {path[0]} is out of range: the steps are 0 to {steps - 1}."
        )
    if saved is not None and resume_path is not None:
        progress: SequenceProgress = _validated(
            _SEQUENCE,
            saved,
            f"Expected the progress of a stopped run under '{PROGRESS}' of the context",
        )
        if path_of(progress) == path:
            return progress
    if len(path) > 1:
        raise ResumePathError(
            f"resume_path={path} leads into a step, but the context is not that of a run that stopped there."
        )
    return {"step": path[0]}


def _validated(expected: TypeAdapter[Any], value: object, message: str) -> Any:
    try:
        if nested_deeper(value):
            raise ValueError("nested too deeply")
        return expected.validate_python(value)
    except ValueError as error:
        raise ResumePathError(f"{message}, not {short_repr(value)}.") from error
