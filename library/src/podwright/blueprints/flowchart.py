"""A blueprint as a Mermaid flowchart, which GitHub and many editors render."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, cast

from podwright.blueprints.mcp_tools import mcp_tools
from podwright.blueprints.members import handoffs_of
from podwright.blueprints.named_parts import HOOKS, hook_names
from podwright.blueprints.validation import kind_of, with_types
from podwright.data.json_data import JsonMapping, as_array, as_object
from podwright.data.text import truncate
from podwright.steps.registry import step_class

_MAX_LABEL_LENGTH = 80

_PLAIN = " .,-?!…'"
"""Characters besides letters and digits that are not markup."""

Shape = Literal[
    "rectangle",
    "stadium",
    "subroutine",
    "circle",
    "asymmetric",
    "hexagon",
    "rhombus",
    "parallelogram",
    "trapezoid",
    "inverted trapezoid",
]
"""The shapes of nodes, as Mermaid names them."""
_SHAPES: Mapping[Shape, str] = {
    "rectangle": "[{}]",
    "stadium": "([{}])",
    "subroutine": "[[{}]]",
    "circle": "(({}))",
    "asymmetric": ">{}]",
    "hexagon": "{{{{{}}}}}",
    "rhombus": "{{{}}}",
    "parallelogram": "[/{}/]",
    "trapezoid": "[/{}\\]",
    "inverted trapezoid": "[\\{}/]",
}

Ends = list[tuple[str, str]]
"""The last nodes of a sequence, each with the label of the arrow that leads on from it."""


def mermaid(blueprint: JsonMapping) -> str:
    """The flowchart of a valid blueprint of any kind; its texts are escaped."""
    chart = Flowchart()
    blueprint = with_types(blueprint)
    match kind_of(blueprint):
        case "workflow":
            chart.workflow(blueprint)
        case "pipeline":
            chart.pipeline(blueprint)
        case "conductor":
            chart.conductor(blueprint)
        case _:
            chart.agent(blueprint)
    return chart.text()


def _escape(text: str) -> str:
    """A text for a label in double quotes, in which Mermaid finds no markup."""
    printable = "".join(map(_printable, text))
    line = " ".join(printable.split())
    shown = truncate(line, _MAX_LABEL_LENGTH)
    return "".join(map(_escape_character, shown))


def _printable(character: str) -> str:
    if character.isprintable():
        return character
    return " "


def _escape_character(character: str) -> str:
    number = ord(character)
    if character.isalnum() or character in _PLAIN or number > 127:
        return character
    return f"#{number};"


def _describe_argument(value: object) -> str:
    if isinstance(value, dict):
        return Flowchart.describe_condition(cast("object", value))
    return str(value)


class Flowchart:
    """The nodes and the arrows of a chart; a method that draws something returns where the next part goes on."""

    def __init__(self) -> None:
        self._nodes: list[str] = []
        self._arrows: list[str] = []
        self._count = 0
        self._depth = 1

    def text(self) -> str:
        """Return the chart."""
        # arrows come last: an arrow inside a subgraph would move its other end into that subgraph
        lines = ["flowchart TD", *self._nodes, *self._arrows]
        return "\n".join(lines) + "\n"

    # --- Components ---------------------------------------------------------------------------------------------------

    def workflow(self, blueprint: JsonMapping) -> None:
        """Draw a workflow."""
        begin = self.node("input", "stadium")
        ends = self.steps(blueprint["steps"], _only(begin))
        end = self.node("context", "stadium")
        self.join(ends, end)

    def pipeline(self, blueprint: JsonMapping) -> None:
        """Draw a pipeline."""
        begin = self.node("input", "stadium")
        ends = _only(begin)
        for _, name in hook_names(blueprint, ["before"]):
            ends = self.join(ends, self.node(name, "hexagon"))
        for member in blueprint["steps"]:
            agent = self.agent(member)
            ends = self.join(ends, agent)
        for _, name in hook_names(blueprint, ["after"]):
            ends = self.join(ends, self.node(name, "hexagon"))
        end = self.node("answer", "stadium")
        self.join(ends, end)

    def conductor(self, blueprint: JsonMapping) -> None:
        """Draw a conductor."""
        conductor = self.agent(blueprint, "subroutine")
        for member in blueprint["skills"]:
            skill = self.agent(member)
            self.arrow(conductor, skill, line="<-->")

    def agent(self, blueprint: JsonMapping, shape: Shape = "rectangle") -> str:
        """An agent with its tools, and the agents that it hands off to."""
        config = as_object(blueprint.get("config"))
        model = str(config.get("model", ""))
        agent = self.node(blueprint["name"], shape, model)
        for entry in as_array(blueprint.get("tools")):
            tool = self.node(entry["name"], "parallelogram")
            self.arrow(agent, tool, line="-.->")
        for server_tool in mcp_tools(blueprint):
            tool = self.node(
                server_tool.name, "parallelogram", f"of {server_tool.server}"
            )
            self.arrow(agent, tool, line="-.->")
        for name, when in handoffs_of(blueprint).items():
            other = self.node(name, "subroutine")
            self.arrow(agent, other, when, line="==>")
        for key in HOOKS:
            for _, name in hook_names(blueprint, [key]):
                function = self.node(name, "hexagon")
                self.arrow(agent, function, label=key, line="-.->")
        return agent

    def steps(self, steps: Iterable[JsonMapping], ends: Ends) -> Ends:
        """Draw a sequence that follows on `ends`."""
        for step in steps:
            ends = step_class(step).draw(step, self, ends)
        return ends

    def subgraph(
        self, title: str, steps: Iterable[JsonMapping], ends: Ends
    ) -> Ends:
        """Draw a sequence in a box."""
        self.open(title)
        ends = self.steps(steps, ends)
        self.close()
        return ends

    @staticmethod
    def describe_condition(reference: object) -> str:
        """Return a condition as text: its name and the values of its arguments."""
        condition = as_object(reference)
        name = str(condition.get("name"))
        texts: list[str] = []
        for value in as_object(condition.get("args")).values():
            items = as_array(value) or [value]
            texts += map(_describe_argument, items)
        if not texts:
            return name
        return f"{name}({', '.join(texts)})"

    # --- Nodes and arrows ---------------------------------------------------------------------------------------------

    def node(
        self, text: str, shape: Shape = "rectangle", second_line: str = ""
    ) -> str:
        """Draw a node, and return its name for arrows."""
        name = self._next_name()
        label = _escape(text)
        if second_line:
            label += f"<br/>{_escape(second_line)}"
        quoted = f'"{label}"'
        self._add(name + _SHAPES[shape].format(quoted))
        return name

    def arrow(
        self, start: str, end: str, label: str = "", line: str = "-->"
    ) -> None:
        """Draw an arrow between two nodes."""
        if label:
            line += f'|"{_escape(label)}"|'
        self._arrows.append(f"    {start} {line} {end}")

    def join(self, ends: Ends, node: str) -> Ends:
        """Lead all ends to a node, and return this as the only end."""
        for start, label in ends:
            self.arrow(start, node, label)
        return _only(node)

    def open(self, title: str) -> str:
        """Begin a subgraph, and return its name, from which an arrow may lead."""
        name = self._next_name()
        self._add(f'subgraph {name}["{_escape(title)}"]')
        self._depth += 1
        return name

    def close(self) -> None:
        """End the subgraph that was begun last."""
        self._depth -= 1
        self._add("end")

    def _next_name(self) -> str:
        self._count += 1
        return f"n{self._count}"

    def _add(self, line: str) -> None:
        indent = "    " * self._depth
        self._nodes.append(indent + line)


def _only(node: str) -> Ends:
    """The end of a sequence that ends with one node, without a label."""
    return [(node, "")]
