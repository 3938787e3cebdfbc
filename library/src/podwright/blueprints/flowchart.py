"""A blueprint as a Mermaid flowchart, which GitHub and many editors render."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from podwright.blueprints.validation import kind_of
from podwright.json_data import JsonMapping, as_array, as_object
from podwright.text import truncate

_MAX_LABEL_LENGTH = 80

_PLAIN = " .,-?!…'"
"""Characters besides letters and digits that are not markup."""

_RECTANGLE = "[{}]"
_STADIUM = "([{}])"
_SUBROUTINE = "[[{}]]"
_CIRCLE = "(({}))"
_ASYMMETRIC = ">{}]"
_HEXAGON = "{{{{{}}}}}"
_RHOMBUS = "{{{}}}"
_PARALLELOGRAM = "[/{}/]"
_TRAPEZOID = "[/{}\\]"
_INVERTED_TRAPEZOID = "[\\{}/]"
"""The shapes of nodes, as Mermaid names them."""

Ends = list[tuple[str, str]]
"""The last nodes of a sequence, each with the label of the arrow that leads on from it."""


def mermaid(blueprint: JsonMapping) -> str:
    """The flowchart of a valid blueprint of any kind; its texts are escaped."""
    chart = _Flowchart()
    match kind_of(blueprint):
        case "workflow":
            chart.workflow(blueprint)
        case "pipeline":
            chart.pipeline(blueprint)
        case "conductor":
            chart.conductor(blueprint)
        case "agent":
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


def _describe_condition(reference: object) -> str:
    """A condition as text: its name and the values of its arguments."""
    condition = as_object(reference)
    name = str(condition.get("name"))
    texts: list[str] = []
    for value in as_object(condition.get("args")).values():
        items = as_array(value) or [value]
        texts += map(_describe_argument, items)
    if not texts:
        return name
    return f"{name}({', '.join(texts)})"


def _describe_argument(value: object) -> str:
    if isinstance(value, dict):
        return _describe_condition(cast("object", value))
    return str(value)


class _Flowchart:
    """The nodes and the arrows of a chart; a method that draws something returns where the next part goes on."""

    def __init__(self) -> None:
        self._nodes: list[str] = []
        self._arrows: list[str] = []
        self._count = 0
        self._depth = 1

    def text(self) -> str:
        # arrows come last: an arrow inside a subgraph would move its other end into that subgraph
        lines = ["flowchart TD", *self._nodes, *self._arrows]
        return "\n".join(lines) + "\n"

    # --- Components ---------------------------------------------------------------------------------------------------

    def workflow(self, blueprint: JsonMapping) -> None:
        begin = self._node("input", _STADIUM)
        ends = self._steps(blueprint["steps"], _only(begin))
        end = self._node("context", _STADIUM)
        self._join(ends, end)

    def pipeline(self, blueprint: JsonMapping) -> None:
        begin = self._node("input", _STADIUM)
        ends = _only(begin)
        for member in blueprint["steps"]:
            agent = self.agent(member)
            ends = self._join(ends, agent)
        end = self._node("answer", _STADIUM)
        self._join(ends, end)

    def conductor(self, blueprint: JsonMapping) -> None:
        conductor = self.agent(blueprint, _SUBROUTINE)
        for member in blueprint["skills"]:
            skill = self.agent(member)
            self._arrow(conductor, skill, line="<-->")

    def agent(self, blueprint: JsonMapping, shape: str = _RECTANGLE) -> str:
        """An agent with its tools."""
        config = as_object(blueprint.get("config"))
        model = str(config.get("model", ""))
        agent = self._node(blueprint["name"], shape, model)
        for entry in as_array(blueprint.get("tools")):
            tool = self._node(entry["name"], _PARALLELOGRAM)
            self._arrow(agent, tool, line="-.->")
        return agent

    # --- Steps --------------------------------------------------------------------------------------------------------

    def _steps(self, steps: Iterable[JsonMapping], ends: Ends) -> Ends:
        """A sequence that follows on `ends`."""
        for step in steps:
            ends = self._step(step, ends)
        return ends

    def _step(self, step: JsonMapping, ends: Ends) -> Ends:
        match step["type"]:
            case "condition_step":
                return self._condition(step, ends)
            case "parallel_step":
                return self._parallel(step, ends)
            case "loop_step":
                return self._loop(step, ends)
            case "map_step":
                return self._map(step, ends)
            case "workflow_step":
                return self._nested_workflow(step, ends)
            case "approval_step":
                return self._approval(step, ends)
            case "function_step":
                return self._function(step, ends)
            case "try_step":
                return self._try(step, ends)
            case _:
                return self._agent_step(step, ends)

    def _condition(self, step: JsonMapping, ends: Ends) -> Ends:
        condition = _describe_condition(step["condition"])
        node = self._node(step["name"], _RHOMBUS, condition)
        self._join(ends, node)
        then_ends = self._steps(step["then"], [(node, "yes")])
        else_ends = self._steps(step.get("else", ()), [(node, "no")])
        return then_ends + else_ends

    def _parallel(self, step: JsonMapping, ends: Ends) -> Ends:
        begin = self._node(step["name"], _TRAPEZOID, "all at once")
        self._join(ends, begin)
        done: Ends = []
        for branch in step["branches"]:
            done += self._steps(branch, _only(begin))
        joined = "all done"
        if step.get("collect"):
            joined = "all done, outputs as lists"
        end = self._node(step["name"], _INVERTED_TRAPEZOID, joined)
        return self._join(done, end)

    def _loop(self, step: JsonMapping, ends: Ends) -> Ends:
        name = step["name"]
        title = f"{name}: at most {step['max_iterations']} times"
        if step.get("on_exhausted") == "fail":
            title += ", else the workflow fails"
        self._open(title)
        begin = self._node("again", _CIRCLE)
        self._join(ends, begin)
        done = self._steps(step["steps"], _only(begin))
        condition = _describe_condition(step["until"])
        until = self._node("done?", _RHOMBUS, condition)
        self._join(done, until)
        self._close()
        self._arrow(until, begin, "no")
        return [(until, "yes")]

    def _map(self, step: JsonMapping, ends: Ends) -> Ends:
        name = step["name"]
        title = f"{name}: for each {step['as']} of {step['over']}"
        return self._subgraph(title, step["steps"], ends)

    def _nested_workflow(self, step: JsonMapping, ends: Ends) -> Ends:
        name = step["name"]
        nested = step["workflow"]
        title = f"{name}: workflow {nested['name']}"
        return self._subgraph(title, nested["steps"], ends)

    def _approval(self, step: JsonMapping, ends: Ends) -> Ends:
        question = f"approval: {step['message']}"
        node = self._node(step["name"], _ASYMMETRIC, question)
        self._join(ends, node)
        if "on_reject" not in step:
            return _only(node)
        rejected = self._steps(step["on_reject"], [(node, "reject")])
        return [(node, ""), *rejected]

    def _function(self, step: JsonMapping, ends: Ends) -> Ends:
        function = f"function {step['function']}"
        node = self._node(step["name"], _HEXAGON, function)
        return self._join(ends, node)

    def _try(self, step: JsonMapping, ends: Ends) -> Ends:
        title = f"{step['name']}: try"
        retries = step.get("retries", 0)
        if retries == 1:
            title += ", 1 retry"
        elif retries:
            title += f", {retries} retries"
        codes = as_array(step.get("on"))
        if codes:
            title += f", on {', '.join(codes)}"
        tried = self._open(title)
        done = self._steps(step["steps"], ends)
        self._close()
        caught = step.get("catch", ())
        if not caught:
            return done
        return done + self._steps(caught, [(tried, "failed")])

    def _agent_step(self, step: JsonMapping, ends: Ends) -> Ends:
        agent = f"agent {step['agent']}"
        node = self._node(step["name"], second_line=agent)
        return self._join(ends, node)

    # --- Nodes and arrows ---------------------------------------------------------------------------------------------

    def _node(
        self, text: str, shape: str = _RECTANGLE, second_line: str = ""
    ) -> str:
        name = self._next_name()
        label = _escape(text)
        if second_line:
            label += f"<br/>{_escape(second_line)}"
        quoted = f'"{label}"'
        self._add(name + shape.format(quoted))
        return name

    def _arrow(
        self, start: str, end: str, label: str = "", line: str = "-->"
    ) -> None:
        if label:
            line += f'|"{_escape(label)}"|'
        self._arrows.append(f"    {start} {line} {end}")

    def _join(self, ends: Ends, node: str) -> Ends:
        """Lead all ends to a node, and return this as the only end."""
        for start, label in ends:
            self._arrow(start, node, label)
        return _only(node)

    def _subgraph(
        self, title: str, steps: Iterable[JsonMapping], ends: Ends
    ) -> Ends:
        self._open(title)
        ends = self._steps(steps, ends)
        self._close()
        return ends

    def _open(self, title: str) -> str:
        """Begin a subgraph, and return its name, from which an arrow may lead."""
        name = self._next_name()
        self._add(f'subgraph {name}["{_escape(title)}"]')
        self._depth += 1
        return name

    def _close(self) -> None:
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
