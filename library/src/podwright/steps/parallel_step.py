"""The step that runs several sequences of steps at once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NotRequired

from pydantic import Field, with_config
from typing_extensions import TypedDict, override

from podwright.data.json_data import JsonMapping, JsonObject
from podwright.data.names import normal_form
from podwright.errors import ContextError, Problem
from podwright.messages.messages import CLOSED
from podwright.steps.base import (
    ANY_CHANGE,
    Rules,
    Step,
    Write,
    assume_resolved,
    output_names,
)
from podwright.steps.blueprint_types import Name
from podwright.steps.registry import StepsBlueprint

if TYPE_CHECKING:
    from podwright.blueprints.flowchart import Ends, Flowchart
    from podwright.estimates.need import Need
    from podwright.estimates.sizes import Sizes
    from podwright.estimates.walk import Walk
    from podwright.events import Outcome
    from podwright.steps.base import Steps
    from podwright.workflows.frames import StepFrame
    from podwright.workflows.runner import StepRunner

_NOT_COLLECTED = 'Give each a name of its own, or keep all values as a list: "collect": true in the step.'
_COLLECTED = "Let one branch change it, or do so before or after the step."


@with_config(CLOSED)
class ParallelStepBlueprint(TypedDict):
    """Runs several sequences at once; the first failure cancels the others."""

    type: Literal["parallel_step"]
    name: Name
    branches: Annotated[
        list[StepsBlueprint], Field(min_length=1, max_length=64)
    ]
    collect: NotRequired[bool]
    """Whether a name that several branches write becomes the list of their values, in the order of the branches."""


@dataclass(frozen=True, slots=True)
class ParallelStep(Step):
    """Runs several sequences at once, each on its own copy of the context; a failure cancels the others."""

    step_type: ClassVar[str] = "parallel_step"
    shape: ClassVar[Any] = ParallelStepBlueprint
    own_keys: ClassVar[Sequence[str]] = ("branches",)
    sequences: ClassVar[Sequence[str]] = ("/branches/*",)
    left_out: ClassVar[JsonMapping] = {"collect": False}
    same_as_absent: ClassVar[JsonMapping] = {"collect": False}
    breaking: ClassVar[Rules] = (("/collect(/.*)?", ANY_CHANGE),)

    branches: Sequence[Steps]
    """Their outputs are merged in this order. Each has names of its own, unless they are collected."""
    name: str | None = None
    collect: bool = False
    """Whether a name that several branches write becomes the list of their values, in the order of the branches."""

    @override
    @classmethod
    def writes(
        cls,
        data: JsonMapping,
        pointer: str,
        inner: Mapping[str, Sequence[Write]],
    ) -> Iterator[Write]:
        collected = _collected_writes(data, inner)
        for writes in inner.values():
            for write in writes:
                if write.name in collected and write.kind != "edit":
                    yield replace(write, gathered="collect")
                else:
                    yield write

    @override
    @classmethod
    def problems(
        cls,
        data: JsonMapping,
        pointer: str,
        inner: Mapping[str, Sequence[Write]],
    ) -> Iterator[Problem]:
        """Yield the names that branches would take from each other, at the later step that writes them.

        Branches that both write a name under a condition may be alternatives; whether they are, only a run shows.
        """
        collected = _collected_writes(data, inner)
        if data.get("collect") and not collected:
            yield Problem(
                f"{pointer}/collect",
                detail=f"The step '{data.get('name')}' has nothing to collect: no two branches write the same name.",
                suggestion="Give the steps whose outputs belong together the same 'output', or leave 'collect' out.",
            )
        earlier: dict[str, tuple[int, Write]] = {}
        for number, branch in enumerate(inner.values()):
            own = _by_name(write for write in branch if not write.is_label)
            for name, write in own.items():
                known = earlier.get(name)
                if known is None:
                    earlier[name] = (number, write)
                    continue
                _, other = known
                is_edit = "edit" in (write.kind, other.kind)
                is_list = write.name in collected and not is_edit
                if (write.is_certain or other.is_certain) and not is_list:
                    yield _problem(
                        known, (number, write), str(data.get("name"))
                    )
                if write.is_certain and not other.is_certain:
                    earlier[name] = (number, write)

    @override
    @classmethod
    def draw(cls, data: JsonMapping, chart: Flowchart, ends: Ends) -> Ends:
        begin = chart.node(data["name"], "trapezoid", "all at once")
        started = chart.join(ends, begin)
        done: Ends = []
        for branch in data["branches"]:
            done += chart.steps(branch, started)
        joined = "all done"
        if data.get("collect"):
            joined = "all done, outputs as lists"
        end = chart.node(data["name"], "inverted trapezoid", joined)
        return chart.join(done, end)

    @override
    def need(self, walk: Walk, sizes: Sizes) -> Need:
        needs: list[Need] = []
        parts: list[Sizes] = []
        for branch in self.branches:
            part = sizes.part()
            needs.append(walk.steps(branch, part))
            parts.append(part)
        collected = self._collected_names()
        for part in parts:
            for name, size in part.written.items():
                if name not in collected:
                    sizes.write(name, size)
        for name in collected:
            written = [
                part.written[name] for part in parts if name in part.written
            ]
            if written:
                sizes.write(name, walk.json(written))
        return walk.all_at_once(needs)

    @override
    async def run(self, runner: StepRunner, frame: StepFrame) -> Outcome:
        outputs = await runner.run_parts(
            [(branch, {}) for branch in self.branches],
            frame,
            concurrency=len(self.branches),
        )
        collected = self._collected_names()
        self._refuse_lost_values(frame, outputs, collected)
        for written in outputs:
            frame.scope.write_all(written, leave_out=collected)
        for name in collected:
            # a name that no branch wrote belongs to steps not taken
            if any(name in written for written in outputs):
                values = [written.get(name) for written in outputs]
                frame.scope.write(name, values)
        return "ok"

    def _collected_names(self) -> Sequence[str]:
        """Return the names of which the step makes lists, in the order in which they are written first."""
        if not self.collect:
            return []
        branches = [
            output_names(assume_resolved(branch)) for branch in self.branches
        ]
        names = _shared(branches)
        every = dict.fromkeys(name for branch in branches for name in branch)
        return [name for name in every if name in names]

    def _refuse_lost_values(
        self,
        frame: StepFrame,
        outputs: Sequence[JsonObject],
        collected: Collection[str],
    ) -> None:
        """Raise an error if two branches wrote one name; of steps under conditions, the blueprint does not show it.

        Args:
            frame: Where the step stands.
            outputs: What each branch wrote.
            collected: The names of which the step makes lists. A branch may edit what it wrote itself.

        Raises:
            ContextError: A value would be lost.
        """
        if len(outputs) < 2:
            return
        names: list[set[str]] = []
        for branch, written in zip(self.branches, outputs, strict=True):
            own = written.keys() & output_names(assume_resolved(branch))
            edited = frame.scope.edited_names(written)
            names.append((own | edited) - own.intersection(collected))
        for name in sorted(_shared(names)):
            first, second = [
                number for number, branch in enumerate(names) if name in branch
            ][:2]
            raise ContextError(
                f"The branches {first} and {second} of step '{self.name}' both wrote '{name}', "
                "of which one would be lost.",
                suggestion=_COLLECTED if self.collect else _NOT_COLLECTED,
            )


def _collected_writes(
    data: JsonMapping, inner: Mapping[str, Sequence[Write]]
) -> Collection[str]:
    """Return the names of which a step makes lists, given what its branches write."""
    if not data.get("collect"):
        return ()
    return _shared(
        [
            [
                write.name
                for write in writes
                if write.kind != "edit" and not write.is_label
            ]
            for writes in inner.values()
        ]
    )


def _shared(branches: Sequence[Iterable[str]]) -> set[str]:
    """Return the names that several branches have; if there is one branch only, all names of that."""
    if len(branches) == 1:
        return set(branches[0])
    seen = set[str]()
    several = set[str]()
    for branch in branches:
        names = set(branch)
        several |= seen & names
        seen |= names
    return several


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
    """Return the problem of two writers, each with the number of its branch."""
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
