"""The step that runs its steps for each item of a list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NotRequired

from pydantic import Field, with_config
from typing_extensions import TypedDict, override

from podwright.data.json_data import JsonMapping, to_text
from podwright.data.model_json import after_thoughts
from podwright.data.names import path_expression
from podwright.data.text import truncate
from podwright.errors import ContextError, ResumePathError
from podwright.messages.messages import CLOSED
from podwright.messages.templates import value_of
from podwright.steps.base import (
    ANY_CHANGE,
    Known,
    Rules,
    Step,
    Write,
    assume_resolved,
    output_names,
)
from podwright.steps.blueprint_types import Name
from podwright.steps.map_items import UnreadableItemsError, read_items
from podwright.steps.registry import StepsBlueprint
from podwright.threads import compute

if TYPE_CHECKING:
    from podwright.blueprints.flowchart import Ends, Flowchart
    from podwright.estimates.need import Need
    from podwright.estimates.sizes import Sizes
    from podwright.estimates.walk import Walk
    from podwright.events import Outcome
    from podwright.steps.base import Steps
    from podwright.workflows.frames import Scope, StepFrame
    from podwright.workflows.runner import StepRunner
    from podwright.workflows.template_names import NameCheck

MAX_ITEMS = 1_000
"""Most items: each has a context of its own."""
_THREAD_FROM_CHARS = 20_000
"""The items of a longer text are read in a thread, so that the event loop stays free."""
_SHOWN_CHARS = 200
"""Characters that an error shows of a text whose items cannot be read for certain."""

MapStepBlueprint = with_config(CLOSED)(
    TypedDict(
        "MapStepBlueprint",
        {
            "type": Literal["map_step"],
            "name": Name,
            "over": Name,
            "as": Name,
            "steps": StepsBlueprint,
            "max_concurrency": NotRequired[Annotated[int, Field(ge=1, le=64)]],
        },
    )
)
"""Runs a sequence for each item of a list in the context."""


@dataclass(frozen=True, slots=True)
class MapStep(Step):
    """Runs its steps for each item of a list; each output becomes a JSON array of the items' outputs."""

    step_type: ClassVar[str] = "map_step"
    shape: ClassVar[Any] = MapStepBlueprint
    own_keys: ClassVar[Sequence[str]] = ("over",)
    sequences: ClassVar[Sequence[str]] = ("/steps",)
    expression_keys: ClassVar[Sequence[str]] = ("over",)
    concurrency_keys: ClassVar[Sequence[str]] = ("max_concurrency",)
    breaking: ClassVar[Rules] = (("/(over|as)(/.*)?", ANY_CHANGE),)

    over: str
    """Name in the context: a list, or a text as models write it; see `podwright.steps.map_items`."""
    as_: str
    """Name of the item for the steps."""
    steps: Steps
    max_concurrency: int = 8
    """Items worked on at once."""
    name: str | None = None

    @override
    @classmethod
    def writes(
        cls,
        data: JsonMapping,
        pointer: str,
        inner: Mapping[str, Sequence[Write]],
    ) -> Iterator[Write]:
        for writes in inner.values():
            for write in writes:
                yield replace(write, gathered="map")

    @override
    @classmethod
    def own_names(cls, data: JsonMapping) -> Iterator[str]:
        yield str(data.get("as"))

    @override
    @classmethod
    def names_inside(
        cls, data: JsonMapping, sequence: str, known: Known, check: NameCheck
    ) -> Known:
        over = str(data.get("over"))
        return {str(data.get("as")): check.schema_of_items(over, known)}

    @override
    @classmethod
    def check_names(
        cls, data: JsonMapping, pointer: str, known: Known, check: NameCheck
    ) -> None:
        path = path_expression(str(data.get("over")))
        check.expression(path, f"'{path.text}'", f"{pointer}/over", known)

    @override
    @classmethod
    def draw(cls, data: JsonMapping, chart: Flowchart, ends: Ends) -> Ends:
        title = f"{data['name']}: for each {data['as']} of {data['over']}"
        return chart.subgraph(title, data["steps"], ends)

    @override
    def need(self, walk: Walk, sizes: Sizes) -> Need:
        number, item = walk.items(self.over, MAX_ITEMS, sizes)
        part = sizes.part()
        part.shown[self.as_] = item
        need = walk.steps(self.steps, part)
        for name in output_names(assume_resolved(self.steps)):
            if name in part.written:
                sizes.write(name, walk.listed(part.written[name], number))
        return walk.at_once(need, number, self.max_concurrency)

    @override
    async def run(self, runner: StepRunner, frame: StepFrame) -> Outcome:
        items = await self._items_in(frame.scope)
        first = frame.progress.get("at", 0)
        if first >= max(1, len(items)):
            raise ResumePathError(
                f"Step '{self.name}' has no item {first}, only {len(items)} items."
            )
        outputs = await runner.run_parts(
            [(self.steps, {self.as_: item}) for item in items],
            frame,
            concurrency=self.max_concurrency,
        )
        for key in output_names(assume_resolved(self.steps)):
            # a name that no item wrote belongs to a branch not taken; without items, later steps get empty lists
            if not outputs or any(key in written for written in outputs):
                values = [written.get(key) for written in outputs]
                frame.scope.write(key, _join_outputs(values))
        return "ok"

    async def _items_in(self, scope: Scope) -> list[object]:
        """Return the items, read without blocking the event loop; see `podwright.steps.map_items`.

        Raises:
            ContextError: The context lacks them, or they are not certain, or too many.
        """
        value = value_of(
            path_expression(self.over), scope.values, f"Step '{self.name}'"
        )
        if isinstance(value, str) and len(value) > _THREAD_FROM_CHARS:
            return await compute(self._checked_items, value)
        return self._checked_items(value)

    def _checked_items(self, value: object) -> list[object]:
        try:
            items = read_items(value)
        except UnreadableItemsError as error:
            whole = to_text(value)
            text = after_thoughts(whole).strip() or whole
            raise ContextError(
                f"Step '{self.name}' maps over '{self.over}', which {error}: {truncate(text, _SHOWN_CHARS)!r}.",
                suggestion="Let the step before it answer with one JSON array and nothing else.",
            ) from error
        if len(items) > MAX_ITEMS:
            raise ContextError(
                f"Step '{self.name}' maps over {len(items)} items of '{self.over}'; at most {MAX_ITEMS} are allowed.",
                suggestion="Let the step before it group them.",
            )
        return items


def _join_outputs(values: list[Any]) -> Any:
    """Return the outputs of all items: a list if there is data among them, else its JSON text."""
    if any(not isinstance(value, str | None) for value in values):
        return values
    return to_text(values)
