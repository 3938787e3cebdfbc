"""A kind of step that only tests have: it is one module, as each kind is."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NotRequired

from pydantic import with_config
from typing_extensions import TypedDict, override

from podwright.data.json_data import JsonMapping
from podwright.messages.messages import CLOSED
from podwright.messages.templates import fill
from podwright.steps import Step
from podwright.steps.base import ANY_CHANGE, Known, Rules, Write
from podwright.steps.blueprint_types import Name, Prompt
from podwright.steps.registry import StepBlueprint, register

if TYPE_CHECKING:
    from podwright.blueprints.flowchart import Ends, Flowchart
    from podwright.estimates.need import Need
    from podwright.estimates.sizes import Sizes
    from podwright.estimates.walk import Walk
    from podwright.events import Outcome
    from podwright.steps.base import Steps
    from podwright.workflows.frames import StepFrame
    from podwright.workflows.runner import StepRunner
    from podwright.workflows.template_names import NameCheck

_TEXT: JsonMapping = {"type": "string"}
_DETAILS = 0
"""How paths and the saved progress name the steps after the text."""


@with_config(CLOSED)
class NoteStepBlueprint(TypedDict):
    """Writes a text, and runs further steps."""

    type: Literal["note_step"]
    name: Name
    text: Prompt
    remark: NotRequired[str]
    details: NotRequired[list[StepBlueprint]]


@dataclass(frozen=True, slots=True)
class NoteStep(Step):
    """Writes a text to the context, and runs further steps."""

    step_type: ClassVar[str] = "note_step"
    shape: ClassVar[Any] = NoteStepBlueprint
    sequences: ClassVar[Sequence[str]] = ("/details",)
    template_keys: ClassVar[Sequence[str]] = ("text",)
    text_key: ClassVar[str] = "text"
    left_out: ClassVar[JsonMapping] = {"details": []}
    same_as_absent: ClassVar[JsonMapping] = {"details": []}
    keys_of_questions: ClassVar[Sequence[str]] = ("remark",)
    breaking: ClassVar[Rules] = (("/text", ANY_CHANGE),)

    text: str
    name: str | None = None
    details: Steps = ()
    remark: str | None = None

    @override
    @classmethod
    def writes(
        cls,
        data: JsonMapping,
        pointer: str,
        inner: Mapping[str, Sequence[Write]],
    ) -> Iterator[Write]:
        yield Write(str(data.get("name")), data, pointer)
        for writes in inner.values():
            yield from writes

    @override
    @classmethod
    def schema_of_value(
        cls, data: JsonMapping, check: NameCheck
    ) -> JsonMapping | None:
        return _TEXT

    @override
    @classmethod
    def names_inside(
        cls, data: JsonMapping, sequence: str, known: Known, check: NameCheck
    ) -> Known:
        return {str(data.get("name")): _TEXT}

    @override
    @classmethod
    def draw(cls, data: JsonMapping, chart: Flowchart, ends: Ends) -> Ends:
        node = chart.node(data["name"], "stadium", "note")
        return chart.steps(data.get("details", ()), chart.join(ends, node))

    @override
    def output_names(self) -> Iterator[str]:
        yield self.title
        for sequence in self.inner():
            for step in sequence:
                yield from step.output_names()

    @override
    def need(self, walk: Walk, sizes: Sizes) -> Need:
        sizes.write(self.title, walk.text(self.text, sizes.values))
        return walk.steps(self.details, sizes)

    @override
    async def run(self, runner: StepRunner, frame: StepFrame) -> Outcome:
        if "at" not in frame.progress:
            text = fill(self.text, frame.scope.values, f"Step '{self.title}'")
            frame.scope.write(self.title, text)
            frame.progress["at"] = _DETAILS
        await runner.run_sequence(self.details, frame.sequence(_DETAILS))
        return "ok"


@contextlib.contextmanager
def note_steps() -> Iterator[None]:
    """Add the kind for as long as a `with` block lasts."""
    take_away = register(NoteStep)
    try:
        yield
    finally:
        take_away()


def note(text: Any, *details: dict[str, Any], **further: Any) -> dict[str, Any]:
    """The blueprint of a step of this kind."""
    step = {"type": "note_step", "name": "memo", "text": text, **further}
    if details:
        step["details"] = list(details)
    return step
