"""The step that runs steps, and others if one of them fails."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Required

from pydantic import AfterValidator, Field, with_config
from pydantic.types import StringConstraints
from typing_extensions import TypedDict, override

from podwright.data.json_data import JsonMapping, JsonObject, as_array
from podwright.errors import (
    ModelRefusedError,
    PodwrightError,
    Refusal,
    check_caught_code,
)
from podwright.events import ErrorCaught
from podwright.messages.messages import CLOSED
from podwright.schemas.validation_errors import PATTERNS
from podwright.steps.base import (
    ANY_CHANGE,
    AnsweringAgent,
    Known,
    Rules,
    Step,
    Write,
    answering_in,
    uncertain,
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
    from podwright.workflows.references import References
    from podwright.workflows.runner import StepRunner
    from podwright.workflows.template_names import NameCheck

ERROR = "error"
"""Name of what failed, inside `catch`: an object with `code`, `message` and `component`."""
_ERROR_SCHEMA: JsonMapping = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        key: {"type": "string"} for key in ("code", "message", "component")
    },
}
_ERROR_CODE = r"^[a-z][a-z0-9_]*$"
PATTERNS[_ERROR_CODE] = (
    "a code of lowercase letters, digits and '_', such as 'out_of_stock'"
)

CaughtCode = Annotated[
    str,
    StringConstraints(pattern=_ERROR_CODE, max_length=64),
    AfterValidator(check_caught_code),
]
"""A code of errors, or one that functions give to errors of their own."""


@with_config(CLOSED)
class _TryStep(TypedDict, total=False):
    """Runs steps, and others if one of them fails."""

    type: Required[Literal["try_step"]]
    name: Required[Name]
    steps: Required[StepsBlueprint]
    catch: StepsBlueprint
    """Run if the steps failed. Without them the workflow fails."""
    retries: Annotated[int, Field(ge=1, le=10)]
    """How often the steps are run again first."""
    on: Annotated[list[CaughtCode], Field(min_length=1)]
    """The codes of the errors that it catches; without it, all that can be caught."""


def _with_consequence(step: _TryStep) -> _TryStep:
    if "catch" not in step and "retries" not in step:
        raise ValueError("A try step needs 'catch', 'retries' or both")
    return step


@dataclass(frozen=True, slots=True)
class TryStep(Step):
    """Runs steps, and others if one of them fails; `{error.code}` and `{error.message}` tell those why."""

    step_type: ClassVar[str] = "try_step"
    shape: ClassVar[Any] = Annotated[
        _TryStep, AfterValidator(_with_consequence)
    ]
    own_keys: ClassVar[Sequence[str]] = ("catch", "retries")
    sequences: ClassVar[Sequence[str]] = ("/steps", "/catch")
    repeat_keys: ClassVar[Sequence[str]] = ("retries",)
    left_out: ClassVar[JsonMapping] = {"catch": [], "retries": 0, "on": []}
    same_as_absent: ClassVar[JsonMapping] = {"catch": []}
    breaking: ClassVar[Rules] = (("/on(/.*)?", ANY_CHANGE),)
    inner_names: ClassVar[Mapping[str, str]] = {ERROR: "in 'catch'"}

    steps: Steps
    catch: Steps = ()
    """Run if the steps failed. Without them the workflow fails."""
    retries: int = 0
    """How often the steps are run again first."""
    name: str | None = None
    on: Sequence[str] = ()
    """The codes of the errors that it catches, such as `model_unavailable`; by default all that can be caught."""

    @override
    @classmethod
    def writes(
        cls,
        data: JsonMapping,
        pointer: str,
        inner: Mapping[str, Sequence[Write]],
    ) -> Iterator[Write]:
        yield from inner.get("/steps", ())
        yield from uncertain(inner.get("/catch", ()))

    @override
    @classmethod
    def names_inside(
        cls, data: JsonMapping, sequence: str, known: Known, check: NameCheck
    ) -> Known:
        if sequence == "/catch":
            return {ERROR: _ERROR_SCHEMA}
        return {}

    @override
    @classmethod
    def draw(cls, data: JsonMapping, chart: Flowchart, ends: Ends) -> Ends:
        title = f"{data['name']}: try"
        retries = data.get("retries", 0)
        if retries == 1:
            title += ", 1 retry"
        elif retries:
            title += f", {retries} retries"
        codes = as_array(data.get("on"))
        if codes:
            title += f", on {', '.join(codes)}"
        tried = chart.open(title)
        done = chart.steps(data["steps"], ends)
        chart.close()
        caught = data.get("catch", ())
        if not caught:
            return done
        return done + chart.steps(caught, [(tried, "failed")])

    @override
    def resolve_fields(self, references: References) -> JsonObject:
        if isinstance(self.on, tuple):
            # as blueprints have it; that of something else is a problem of the blueprint
            return {"on": list(self.on)}
        return {}

    @override
    def answering_agents(self) -> Iterator[AnsweringAgent]:
        """Yield the agents of `catch`, or without it those of the last attempt: nothing is tried after them."""
        if self.catch:
            yield from answering_in(self.catch, self.retries + 1)
        else:
            yield from answering_in(self.steps, self.retries)

    @override
    def need(self, walk: Walk, sizes: Sizes) -> Need:
        """Return what the attempts need: at least those of the steps that fail at once, and of the others."""
        tried = sizes.part()
        caught = sizes.part()
        caught.shown[ERROR] = walk.caught_error()
        once = walk.steps(self.steps, tried)
        needs = [once]
        parts = [tried]
        if self.catch:
            needs.append(walk.steps(self.catch, caught))
            parts.append(caught)
        is_usual = walk.bound == "usual"
        sizes.write_all(
            parts[:1] if is_usual else parts, largest=walk.bound == "most"
        )
        every = once.times(self.retries)
        for need in needs:
            every += need
        return walk.choose(walk.one_of_needs(needs), once, every)

    @override
    async def run(self, runner: StepRunner, frame: StepFrame) -> Outcome:
        progress = frame.progress
        attempt = progress.setdefault("at", 0)
        while attempt <= self.retries:
            error = runner.replay_error(frame.path, attempt)
            if error is None:
                error = await self._try_once(runner, frame, attempt)
            if error is None:
                return "ok"
            attempt += 1
            if "refusal" in error or error["code"] == ModelRefusedError.code:
                # the same request would be refused again
                attempt = self.retries + 1
            progress["at"] = attempt
            progress["error"] = error
            # what a failed attempt has written is dropped with it
            progress.pop("parts", None)
        scope = frame.scope.after_failure(progress.get("error", {}))
        await runner.run_sequence(self.catch, frame.sequence(attempt, scope))
        return "caught"

    def _names(self, error: PodwrightError) -> bool:
        """Whether `on` has the code of an error; `refused` stands for all refusals of functions."""
        if isinstance(error, Refusal) and Refusal.code in self.on:
            return True
        return error.code in self.on

    async def _try_once(
        self, runner: StepRunner, frame: StepFrame, attempt: int
    ) -> JsonObject | None:
        """Run the steps.

        Returns:
            The error, if the step goes on; None if nothing failed.
        """
        inner = frame.part(attempt, {})
        try:
            await runner.run_sequence(self.steps, inner)
        except PodwrightError as error:
            is_refusal = isinstance(error, ModelRefusedError | Refusal)
            is_last = is_refusal or attempt == self.retries
            if is_last and not self.catch:
                raise
            if self.on and not self._names(error):
                raise
            if runner.is_ended_by(error):
                raise
            failure = runner.describe_error(error)
            wait = 0.0
            if not is_last:
                wait = runner.retries.wait(error, attempt + 1)
            runner.emit(
                ErrorCaught,
                (*frame.path, attempt),
                step=self.title,
                attempt=attempt,
                error=failure,
                wait_ms=round(wait * 1000, 3),
            )
        else:
            frame.scope.write_all(inner.scope.written)
            return None
        await asyncio.sleep(wait)
        return failure
