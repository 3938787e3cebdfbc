"""The step that repeats its steps until a condition holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NotRequired

from pydantic import Field, with_config
from typing_extensions import TypedDict, override

from podwright.data.json_data import JsonMapping, JsonObject, as_object
from podwright.errors import LoopExhaustedError
from podwright.events import LoopExhausted
from podwright.messages.messages import CLOSED
from podwright.steps.base import ANY_CHANGE, Known, Rules, Step
from podwright.steps.blueprint_types import ConditionRef, Name
from podwright.steps.registry import StepsBlueprint

if TYPE_CHECKING:
    from podwright.blueprints.flowchart import Ends, Flowchart
    from podwright.estimates.need import Need
    from podwright.estimates.sizes import Sizes
    from podwright.estimates.walk import Walk
    from podwright.events import Outcome
    from podwright.steps.base import Steps
    from podwright.steps.condition_step import ConditionLike
    from podwright.workflows.frames import StepFrame
    from podwright.workflows.references import References
    from podwright.workflows.runner import StepRunner
    from podwright.workflows.template_names import NameCheck

ITERATION = "iteration"
"""Name of the number of the current iteration in the templates inside a loop, from 1."""


@with_config(CLOSED)
class LoopStepBlueprint(TypedDict):
    """Repeats a sequence until a condition holds, `max_iterations` times at most.

    If it does not hold then, the workflow goes on, or fails with `on_exhausted: "fail"`.
    """

    type: Literal["loop_step"]
    name: Name
    steps: StepsBlueprint
    until: ConditionRef
    max_iterations: Annotated[int, Field(ge=1, le=1000)]
    on_exhausted: NotRequired[Literal["continue", "fail"]]


@dataclass(frozen=True, slots=True)
class LoopStep(Step):
    """Repeats its steps until a condition holds."""

    step_type: ClassVar[str] = "loop_step"
    shape: ClassVar[Any] = LoopStepBlueprint
    own_keys: ClassVar[Sequence[str]] = ("until",)
    sequences: ClassVar[Sequence[str]] = ("/steps",)
    condition_keys: ClassVar[Sequence[str]] = ("until",)
    repeat_keys: ClassVar[Sequence[str]] = ("max_iterations",)
    left_out: ClassVar[JsonMapping] = {"on_exhausted": "continue"}
    breaking: ClassVar[Rules] = (("/(until|on_exhausted)(/.*)?", ANY_CHANGE),)
    is_loop: ClassVar[bool] = True
    inner_names: ClassVar[Mapping[str, str]] = {ITERATION: "inside a loop"}

    steps: Steps
    until: ConditionLike
    """Evaluated after each iteration."""
    max_iterations: int = 10
    """After so many iterations the loop ends in any case."""
    name: str | None = None
    on_exhausted: Literal["continue", "fail"] = "continue"
    """Whether the workflow goes on or fails if the condition does not hold after `max_iterations`."""

    @override
    @classmethod
    def names_inside(
        cls, data: JsonMapping, sequence: str, known: Known, check: NameCheck
    ) -> Known:
        # an iteration reads what the one before has written
        return {
            ITERATION: known.get(ITERATION),
            **dict(check.written_values([data])),
        }

    @override
    @classmethod
    def check_names(
        cls, data: JsonMapping, pointer: str, known: Known, check: NameCheck
    ) -> None:
        inside = {**known, **cls.names_inside(data, "/steps", known, check)}
        check.condition(data.get("until"), f"{pointer}/until", inside)

    @override
    @classmethod
    def draw(cls, data: JsonMapping, chart: Flowchart, ends: Ends) -> Ends:
        title = f"{data['name']}: at most {data['max_iterations']} times"
        if data.get("on_exhausted") == "fail":
            title += ", else the workflow fails"
        chart.open(title)
        begin = chart.node("again", "circle")
        done = chart.steps(data["steps"], chart.join(ends, begin))
        condition = chart.describe_condition(data["until"])
        until = chart.node("done?", "rhombus", condition)
        chart.join(done, until)
        chart.close()
        chart.arrow(until, begin, "no")
        return [(until, "yes")]

    @override
    def resolve_fields(self, references: References) -> JsonObject:
        return {"until": references.resolve_condition(self.until)}

    @override
    def need(self, walk: Walk, sizes: Sizes) -> Need:
        """Return what the iterations need: usually there is one, because nothing says how many are needed."""
        sizes.extra[ITERATION] = walk.digits(self.max_iterations)
        before = sizes.part()
        once = walk.steps(self.steps, sizes)
        # the steps may have overwritten what it reads
        result = walk.decide(self.until, sizes)
        if result:
            return once
        most = self.max_iterations
        number = most if result is False else walk.choose(1, 1, most)
        more = walk.repeated(self.steps, sizes, number - 1, once, before)
        return once + more

    @override
    async def run(self, runner: StepRunner, frame: StepFrame) -> Outcome:
        iteration = frame.progress.setdefault("at", 0)
        while True:
            scope = frame.scope.in_iteration(iteration + 1)
            await runner.run_sequence(
                self.steps, frame.sequence(iteration, scope)
            )
            if await runner.check_condition(
                self.until, self.title, scope, frame.path, iteration
            ):
                return "ok"
            iteration += 1
            if iteration >= self.max_iterations:
                runner.emit(
                    LoopExhausted,
                    frame.path,
                    step=self.title,
                    iterations=iteration,
                )
                self._end_exhausted(iteration)
                return "exhausted"
            frame.progress["at"] = iteration
            frame.progress["in"] = {}

    def _end_exhausted(self, iterations: int) -> None:
        """Raise `LoopExhaustedError` if the workflow fails in this case."""
        if self.on_exhausted == "fail":
            condition = as_object(self.until).get("name")
            raise LoopExhaustedError(
                f"The condition '{condition}' of the loop '{self.name}' did not hold "
                f"after {iterations} iterations."
            )
