"""A blueprint as a Mermaid flowchart, which GitHub and many editors render."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from podwright.blueprints.validation import kind_of
from podwright.json_data import as_array, as_object
from podwright.text import truncate

_MAX_LABEL_LENGTH = 80

Ends = list[tuple[str, str]]
"""The last nodes of a sequence, each with the label of the arrow that leads on from it."""


def mermaid(blueprint: Mapping[str, Any]) -> str:
    """The flowchart of a valid blueprint of any kind; its texts are escaped."""
    chart = _Flowchart()
    match kind_of(blueprint):
        case "workflow":
            ends = chart.steps(
                blueprint["steps"], [(chart.node("input", "([{}])"), "")]
            )
            chart.join(ends, chart.node("context", "([{}])"))
        case "pipeline":
            ends: Ends = [(chart.node("input", "([{}])"), "")]
            for member in blueprint["steps"]:
                ends = [(chart.join(ends, chart.agent(member)), "")]
            chart.join(ends, chart.node("answer", "([{}])"))
        case "conductor":
            conductor = chart.agent(blueprint, "[[{}]]")
            for member in blueprint["skills"]:
                chart.arrow(conductor, chart.agent(member), "", "<-->")
        case "agent":
            chart.agent(blueprint)
    return chart.text()


def _escape(text: str) -> str:
    """A text for a label in double quotes, in which Mermaid finds no markup."""
    line = truncate(
        " ".join("".join(char if char.isprintable() else " " for char in text).split()),
        _MAX_LABEL_LENGTH,
    )
    plain = " .,-?!…'"
    return "".join(
        char if char.isalnum() or char in plain or ord(char) > 127 else f"#{ord(char)};"
        for char in line
    )


def _describe_condition(reference: object) -> str:
    """A condition as text: its name and the values of its arguments."""
    known = as_object(reference)
    values: list[Any] = [
        item
        for value in as_object(known.get("args")).values()
        for item in as_array(value) or [value]
    ]
    texts = [
        _describe_condition(cast("Any", item)) if isinstance(item, dict) else str(item)
        for item in values
    ]
    return (
        f"{known.get('name')}({', '.join(texts)})" if texts else str(known.get("name"))
    )


class _Flowchart:
    def __init__(self) -> None:
        self._nodes: list[str] = []
        self._arrows: list[str] = []
        self._count = 0
        self._depth = 1

    def text(self) -> str:
        # arrows come last: an arrow inside a subgraph would move its other end into that subgraph
        return "\n".join(["flowchart TD", *self._nodes, *self._arrows]) + "\n"

    def node(self, text: str, shape: str = "[{}]", second_line: str = "") -> str:
        name = self._next_name()
        label = _escape(text) + (f"<br/>{_escape(second_line)}" if second_line else "")
        self._add(name + shape.format(f'"{label}"'))
        return name

    def arrow(self, start: str, end: str, label: str = "", line: str = "-->") -> None:
        text = f'|"{_escape(label)}"|' if label else ""
        self._arrows.append(f"    {start} {line}{text} {end}")

    def join(self, ends: Ends, node: str) -> str:
        for start, label in ends:
            self.arrow(start, node, label)
        return node

    def agent(self, blueprint: Mapping[str, Any], shape: str = "[{}]") -> str:
        """An agent with its tools."""
        name = self.node(
            blueprint["name"],
            shape,
            str(as_object(blueprint.get("config")).get("model", "")),
        )
        for tool in as_array(blueprint.get("tools")):
            self.arrow(name, self.node(tool["name"], "[/{}/]"), "", "-.->")
        return name

    def steps(self, steps: Iterable[Mapping[str, Any]], ends: Ends) -> Ends:
        """A sequence that follows on `ends`."""
        for step in steps:
            ends = self._step(step, ends)
        return ends

    def _step(self, step: Mapping[str, Any], ends: Ends) -> Ends:
        name = step["name"]
        match step["type"]:
            case "condition_step":
                node = self.join(
                    ends,
                    self.node(name, "{{{}}}", _describe_condition(step["condition"])),
                )
                return self.steps(step["then"], [(node, "yes")]) + self.steps(
                    step.get("else", ()), [(node, "no")]
                )
            case "parallel_step":
                node = self.join(ends, self.node(name, "[/{}\\]", "all at once"))
                done = [
                    end
                    for branch in step["branches"]
                    for end in self.steps(branch, [(node, "")])
                ]
                return [(self.join(done, self.node(name, "[\\{}/]", "all done")), "")]
            case "loop_step":
                otherwise = (
                    ", else the workflow fails"
                    if step.get("on_exhausted") == "fail"
                    else ""
                )
                self._open(f"{name}: at most {step['max_iterations']} times{otherwise}")
                begin = self.join(ends, self.node("again", "(({}))"))
                inside = self.steps(step["steps"], [(begin, "")])
                until = self.join(
                    inside,
                    self.node("done?", "{{{}}}", _describe_condition(step["until"])),
                )
                self._close()
                self.arrow(until, begin, "no")
                return [(until, "yes")]
            case "map_step":
                return self._subgraph(
                    f"{name}: for each {step['as']} of {step['over']}",
                    step["steps"],
                    ends,
                )
            case "workflow_step":
                nested = step["workflow"]
                return self._subgraph(
                    f"{name}: workflow {nested['name']}", nested["steps"], ends
                )
            case "approval_step":
                return [
                    (
                        self.join(
                            ends,
                            self.node(name, ">{}]", f"approval: {step['message']}"),
                        ),
                        "",
                    )
                ]
            case _:
                return [
                    (
                        self.join(
                            ends, self.node(name, second_line=f"agent {step['agent']}")
                        ),
                        "",
                    )
                ]

    def _subgraph(
        self, title: str, steps: Iterable[Mapping[str, Any]], ends: Ends
    ) -> Ends:
        self._open(title)
        ends = self.steps(steps, ends)
        self._close()
        return ends

    def _open(self, title: str) -> None:
        self._add(f'subgraph {self._next_name()}["{_escape(title)}"]')
        self._depth += 1

    def _close(self) -> None:
        self._depth -= 1
        self._add("end")

    def _next_name(self) -> str:
        self._count += 1
        return f"n{self._count}"

    def _add(self, line: str) -> None:
        self._nodes.append("    " * self._depth + line)
