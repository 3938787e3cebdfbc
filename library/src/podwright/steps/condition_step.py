"""The step that runs one of two sequences of steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NotRequired

from pydantic import with_config
from typing_extensions import TypedDict, override

from podwright.data.json_data import JsonMapping, JsonObject
from podwright.messages.messages import CLOSED
from podwright.steps.base import (
    ANY_CHANGE,
    AnsweringAgent,
    Rules,
    Step,
    Write,
    answering_in,
)
from podwright.steps.blueprint_types import ConditionRef, Name
from podwright.steps.registry import StepBlueprint

if TYPE_CHECKING:
    from podwright.blueprints.flowchart import Ends, Flowchart
    from podwright.estimates.need import Need
    from podwright.estimates.sizes import Sizes
    from podwright.estimates.walk import Walk
    from podwright.events import Outcome
    from podwright.steps.base import Steps
    from podwright.workflows.frames import StepFrame
    from podwright.workflows.references import References
    from podwright.workflows.runner import StepRunner

_THEN = 0
_ELSE = 1
"""How paths and the saved progress name the branches."""

ConditionLike = str | JsonMapping | Callable[..., Any]
"""A function of the context, the name of one, or `{"name": …, "args": {…}}` for a built-in condition."""

ConditionStepBlueprint = with_config(CLOSED)(
    TypedDict(
        "ConditionStepBlueprint",
        {
            "type": Literal["condition_step"],
            "name": Name,
            "condition": ConditionRef,
            "then": list[StepBlueprint],
            "else": NotRequired[list[StepBlueprint]],
        },
    )
)
"""Runs one of two sequences."""


@dataclass(frozen=True, slots=True)
class ConditionStep(Step):
    """Runs one of two sequences of steps."""

    step_type: ClassVar[str] = "condition_step"
    shape: ClassVar[Any] = ConditionStepBlueprint
    own_keys: ClassVar[Sequence[str]] = ("condition",)
    sequences: ClassVar[Sequence[str]] = ("/then", "/else")
    condition_keys: ClassVar[Sequence[str]] = ("condition",)
    left_out: ClassVar[JsonMapping] = {"else": []}
    same_as_absent: ClassVar[JsonMapping] = {"else": []}
    breaking: ClassVar[Rules] = (("/condition(/.*)?", ANY_CHANGE),)

    condition: ConditionLike
    then: Steps
    """Steps if the condition holds."""
    else_: Steps = ()
    """Steps if it does not."""
    name: str | None = None

    @override
    @classmethod
    def writes(
        cls,
        data: JsonMapping,
        pointer: str,
        inner: Mapping[str, Sequence[Write]],
    ) -> Iterator[Write]:
        """Yield what one of the sequences writes: a name is certain if both certainly write it."""
        certain = [
            {write.name for write in inner.get(place, ()) if write.is_certain}
            for place in cls.sequences
        ]
        in_both = certain[0] & certain[1]
        for writes in inner.values():
            for write in writes:
                is_certain = write.is_certain and write.name in in_both
                yield replace(write, is_certain=is_certain)

    @override
    @classmethod
    def draw(cls, data: JsonMapping, chart: Flowchart, ends: Ends) -> Ends:
        condition = chart.describe_condition(data["condition"])
        node = chart.node(data["name"], "rhombus", condition)
        chart.join(ends, node)
        then_ends = chart.steps(data["then"], [(node, "yes")])
        else_ends = chart.steps(data.get("else", ()), [(node, "no")])
        return then_ends + else_ends

    @override
    def resolve_fields(self, references: References) -> JsonObject:
        return {"condition": references.resolve_condition(self.condition)}

    @override
    def answering_agents(self) -> Iterator[AnsweringAgent]:
        yield from answering_in(self.then, _THEN)
        yield from answering_in(self.else_, _ELSE)

    @override
    def need(self, walk: Walk, sizes: Sizes) -> Need:
        result = walk.decide(self.condition, sizes)
        if result is None:
            return walk.one_of([self.then, self.else_], sizes)
        return walk.steps(self.then if result else self.else_, sizes)

    @override
    async def run(self, runner: StepRunner, frame: StepFrame) -> Outcome:
        branch = frame.progress.get("at")
        if branch is None:
            branch = _ELSE
            if await runner.check_condition(
                self.condition, self.title, frame.scope, frame.path
            ):
                branch = _THEN
            frame.progress["at"] = branch
        chosen = self.else_
        if branch == _THEN:
            chosen = self.then
        await runner.run_sequence(chosen, frame.sequence(branch))
        return "ok"
