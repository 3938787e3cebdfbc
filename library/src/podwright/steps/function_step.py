"""The step that calls a function, without a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Required

from pydantic import with_config
from typing_extensions import TypedDict, override

from podwright.data.json_data import JsonMapping, JsonObject, to_text
from podwright.messages.messages import CLOSED
from podwright.messages.templates import fill_data
from podwright.steps.base import ANY_CHANGE, Rules, Step, Write, output_name
from podwright.steps.blueprint_types import FunctionName, Name

if TYPE_CHECKING:
    from podwright.blueprints.flowchart import Ends, Flowchart
    from podwright.events import Outcome
    from podwright.workflows.frames import StepFrame
    from podwright.workflows.references import References
    from podwright.workflows.runner import StepRunner


@with_config(CLOSED)
class FunctionStepBlueprint(TypedDict, total=False):
    """Calls a function, without a model."""

    type: Required[Literal["function_step"]]
    name: Required[Name]
    function: Required[FunctionName]
    arguments: JsonObject
    """Its arguments by name. A text is a template; one that is a single name becomes the value itself."""
    output: Name
    """Where its result is stored; by default `<function>_output`."""


@dataclass(frozen=True, slots=True)
class FunctionStep(Step):
    """Calls a function, and writes its result to the context: `FunctionStep(look_up, {"number": "{ticket.order}"})`."""

    step_type: ClassVar[str] = "function_step"
    shape: ClassVar[Any] = FunctionStepBlueprint
    function_keys: ClassVar[Sequence[str]] = ("function",)
    template_keys: ClassVar[Sequence[str]] = ("arguments",)
    left_out: ClassVar[JsonMapping] = {"arguments": {}}
    same_as_absent: ClassVar[JsonMapping] = {"arguments": {}}
    keys_with_names: ClassVar[Sequence[str]] = ("arguments",)
    breaking: ClassVar[Rules] = (
        ("/function", ["changed"]),
        ("/arguments/[^/]+", ["added", "removed"]),
        ("/arguments(/.*)?", ()),
        ("/output(/.*)?", ANY_CHANGE),
    )

    function: Callable[..., Any] | str
    """The function, or its name with `functions={…}` given to the workflow."""
    arguments: JsonMapping = field(default_factory=dict[str, Any])
    """Its arguments by name. A text is a template; one that is a single name becomes the value itself."""
    name: str | None = None
    """Name of the step; by default the function's."""
    output: str | None = None
    """Name under which the result is stored; by default `<function>_output`."""

    @property
    def stored_as(self) -> str:
        """The name under which the result of a resolved step is stored."""
        return output_name(self.output, self.function)

    @override
    def output_names(self) -> Iterator[str]:
        yield self.stored_as

    @override
    @classmethod
    def writes(
        cls,
        data: JsonMapping,
        pointer: str,
        inner: Mapping[str, Sequence[Write]],
    ) -> Iterator[Write]:
        name = output_name(data.get("output"), data.get("function"))
        yield Write(name, data, pointer)

    @override
    @classmethod
    def draw(cls, data: JsonMapping, chart: Flowchart, ends: Ends) -> Ends:
        function = f"function {data['function']}"
        node = chart.node(data["name"], "hexagon", function)
        return chart.join(ends, node)

    @override
    def resolve_fields(self, references: References) -> JsonObject:
        name = self.function
        if not isinstance(name, str):
            name = references.add_function(name)
        return {"function": name, "name": self.name or name}

    @override
    async def run(self, runner: StepRunner, frame: StepFrame) -> Outcome:
        where = f"Step '{self.title}'"
        function = runner.function(str(self.function), self.title)
        arguments = fill_data(dict(self.arguments), frame.scope.values, where)
        runner.count_text(len(to_text(arguments)))
        result = await runner.call_function(function, arguments, frame.path)
        frame.scope.write(self.stored_as, result)
        return "ok"
