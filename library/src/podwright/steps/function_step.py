"""The step that calls a function, without a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Required

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict, override

from podwright.data.json_data import (
    JsonMapping,
    JsonObject,
    as_object,
    to_text,
)
from podwright.errors import ConfigurationError, Problem
from podwright.messages.messages import CLOSED
from podwright.messages.templates import fill_data
from podwright.steps.base import ANY_CHANGE, Rules, Step, Write, output_name
from podwright.steps.blueprint_types import FunctionName, MCPFunction, Name

if TYPE_CHECKING:
    from podwright.blueprints.flowchart import Ends, Flowchart
    from podwright.estimates.need import Need
    from podwright.estimates.sizes import Sizes
    from podwright.estimates.walk import Walk
    from podwright.events import Outcome
    from podwright.workflows.frames import StepFrame
    from podwright.workflows.references import References
    from podwright.workflows.runner import StepRunner
    from podwright.workflows.template_names import NameCheck


_ONE_FUNCTION = ConfigDict(
    json_schema_extra={
        "oneOf": [{"required": ["function"]}, {"required": ["mcp"]}]
    }
)


@with_config(CLOSED | _ONE_FUNCTION)
class FunctionStepBlueprint(TypedDict, total=False):
    """Calls a function, without a model: one in Python, or a tool of an MCP server."""

    type: Required[Literal["function_step"]]
    name: Required[Name]
    function: FunctionName
    mcp: MCPFunction
    arguments: JsonObject
    """Its arguments by name. A text is a template; one that is a single name becomes the value itself."""
    output: Name
    """Where its result is stored; by default `<function>_output`, or `<tool>_output`."""


@dataclass(frozen=True, slots=True)
class FunctionStep(Step):
    """Calls a function, and writes its result to the context: `FunctionStep(look_up, {"number": "{ticket.order}"})`.

    The function may be a tool of an MCP server: `FunctionStep(mcp={"server": "files", "tool": "read_file"})`.
    """

    step_type: ClassVar[str] = "function_step"
    shape: ClassVar[Any] = FunctionStepBlueprint
    own_keys: ClassVar[Sequence[str]] = ("function", "mcp")
    function_keys: ClassVar[Sequence[str]] = ("function",)
    template_keys: ClassVar[Sequence[str]] = ("arguments",)
    left_out: ClassVar[JsonMapping] = {"arguments": {}}
    same_as_absent: ClassVar[JsonMapping] = {"arguments": {}}
    keys_with_names: ClassVar[Sequence[str]] = ("arguments",)
    breaking: ClassVar[Rules] = (
        ("/function", ANY_CHANGE),
        ("/mcp/(?:server|tool)", ["changed"]),
        ("/mcp", ["added", "removed"]),
        ("/mcp/[^/]+", ()),
        ("/arguments/[^/]+", ["added", "removed"]),
        ("/arguments(/.*)?", ()),
        ("/output(/.*)?", ANY_CHANGE),
    )

    function: Callable[..., Any] | str | None = None
    """The function, or its name with `functions={…}` given to the workflow; None if `mcp` names a tool."""
    arguments: JsonMapping = field(default_factory=dict[str, Any])
    """Its arguments by name. A text is a template; one that is a single name becomes the value itself."""
    name: str | None = None
    """Name of the step; by default the function's."""
    output: str | None = None
    """Name under which the result is stored; by default `<function>_output`, or `<tool>_output`."""
    mcp: JsonMapping | None = None
    """The tool of an MCP server, as a blueprint has it; the workflow is given the server with `mcp={…}`."""

    @property
    def stored_as(self) -> str:
        """The name under which the result of a resolved step is stored."""
        return output_name(self.output, _called(self.function, self.mcp))

    @override
    def output_names(self) -> Iterator[str]:
        yield self.stored_as

    @override
    @classmethod
    def name_called(cls, data: JsonMapping) -> object:
        return _called(data.get("function"), data.get("mcp"))

    @override
    @classmethod
    def writes(
        cls,
        data: JsonMapping,
        pointer: str,
        inner: Mapping[str, Sequence[Write]],
    ) -> Iterator[Write]:
        called = _called(data.get("function"), data.get("mcp"))
        yield Write(output_name(data.get("output"), called), data, pointer)

    @override
    @classmethod
    def schema_of_value(
        cls, data: JsonMapping, check: NameCheck
    ) -> JsonMapping | None:
        """Return the schema of what the function says that it returns; that of an MCP tool is not known."""
        function = check.functions.get(str(data.get("function")))
        if function is None:
            return None
        return function.result_schema

    @override
    @classmethod
    def problems(
        cls,
        data: JsonMapping,
        pointer: str,
        inner: Mapping[str, Sequence[Write]],
    ) -> Iterator[Problem]:
        if ("function" in data) == ("mcp" in data):
            yield Problem(
                pointer,
                detail="A function step calls one thing: a function or a tool of an MCP server.",
                suggestion="Write either 'function' or 'mcp'.",
            )

    @override
    @classmethod
    def draw(cls, data: JsonMapping, chart: Flowchart, ends: Ends) -> Ends:
        function = f"function {data.get('function')}"
        tool = as_object(data.get("mcp"))
        if tool:
            function = f"{tool['tool']} of {tool['server']}"
        node = chart.node(data["name"], "hexagon", function)
        return chart.join(ends, node)

    @override
    def resolve_fields(self, references: References) -> JsonObject:
        name = self.function
        if name is None:
            if self.mcp is None:
                raise ConfigurationError(
                    "A FunctionStep calls nothing.",
                    suggestion="Give it a function, or mcp={'server': …, 'tool': …}.",
                )
            return {"name": self.name or _called(None, self.mcp)}
        if not isinstance(name, str):
            name = references.add_function(name)
        return {"function": name, "name": self.name or name}

    @override
    def need(self, walk: Walk, sizes: Sizes) -> Need:
        called = str(_called(self.function, self.mcp))
        need, result = walk.function(called)
        sizes.write(self.stored_as, result)
        return need

    @override
    async def run(self, runner: StepRunner, frame: StepFrame) -> Outcome:
        where = f"Step '{self.title}'"
        if self.mcp is None:
            function = runner.function(str(self.function), self.title)
        else:
            function = runner.mcp_tool(self.mcp, self.title)
        arguments = fill_data(dict(self.arguments), frame.scope.values, where)
        runner.count_text(len(to_text(arguments)))
        result = await runner.call_function(function, arguments, frame.path)
        frame.scope.write(self.stored_as, result)
        return "ok"


def _called(function: object, mcp: object) -> object:
    """Return the name of what a step calls: its function, or the tool of its MCP server."""
    return function or as_object(mcp).get("tool")
