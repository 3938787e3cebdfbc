"""A blueprint as a picture: a Mermaid flowchart, which GitHub and many editors draw."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from podwright.blueprints.validation import kind_of
from podwright.json_data import as_array, as_object
from podwright.text import truncate

_LONGEST = 80

Ends = list[tuple[str, str]]
"""Where a sequence leaves off: nodes, each with the label of the arrow that leads on from it."""


def mermaid(blueprint: Mapping[str, Any]) -> str:
    """The flowchart of a valid blueprint of any kind.

    Whatever stands in the blueprint is text in the picture, and nothing else.
    """
    drawing = _Drawing()
    match kind_of(blueprint):
        case "workflow":
            ends = drawing.steps(blueprint["steps"], [(drawing.node("input", "([{}])"), "")])
            drawing.join(ends, drawing.node("context", "([{}])"))
        case "pipeline":
            ends: Ends = [(drawing.node("input", "([{}])"), "")]
            for member in blueprint["steps"]:
                ends = [(drawing.join(ends, drawing.agent(member)), "")]
            drawing.join(ends, drawing.node("answer", "([{}])"))
        case "conductor":
            lead = drawing.agent(blueprint, "[[{}]]")
            for member in blueprint["skills"]:
                drawing.arrow(lead, drawing.agent(member), "", "<-->")
        case "agent":
            drawing.agent(blueprint)
    return drawing.text()


def _label(text: str) -> str:
    """A text within double quotes, in which Mermaid finds no markup, no link and no end of the label."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    line = truncate(line, _LONGEST)
    safe = (char if char.isalnum() or char in " .,-?!…'" or ord(char) > 127 else f"#{ord(char)};" for char in line)
    return "".join(safe)


def _condition(ref: object) -> str:
    """A condition in words: its name, and its arguments' values."""
    known = as_object(ref)
    values: list[Any] = [one for value in as_object(known.get("args")).values() for one in as_array(value) or [value]]
    words = [_condition(cast("Any", one)) if isinstance(one, dict) else str(one) for one in values]
    return f"{known.get('name')}({', '.join(words)})" if words else str(known.get("name"))


class _Drawing:
    def __init__(self) -> None:
        self._nodes: list[str] = []
        self._arrows: list[str] = []
        self._count = 0
        self._depth = 1

    def text(self) -> str:
        # arrows come last: an arrow within a frame would draw its other end into that frame
        return "\n".join(["flowchart TD", *self._nodes, *self._arrows]) + "\n"

    def node(self, text: str, shape: str = "[{}]", second: str = "") -> str:
        name = self._name()
        label = _label(text) + (f"<br/>{_label(second)}" if second else "")
        self._write(name + shape.format(f'"{label}"'))
        return name

    def arrow(self, start: str, end: str, label: str = "", line: str = "-->") -> None:
        said = f'|"{_label(label)}"|' if label else ""
        self._arrows.append(f"    {start} {line}{said} {end}")

    def join(self, ends: Ends, node: str) -> str:
        for start, label in ends:
            self.arrow(start, node, label)
        return node

    def agent(self, blueprint: Mapping[str, Any], shape: str = "[{}]") -> str:
        """An agent with its tools."""
        name = self.node(blueprint["name"], shape, str(as_object(blueprint.get("config")).get("model", "")))
        for tool in as_array(blueprint.get("tools")):
            self.arrow(name, self.node(tool["name"], "[/{}/]"), "", "-.->")
        return name

    def steps(self, steps: Iterable[Mapping[str, Any]], ends: Ends) -> Ends:
        """Draw a sequence that begins where `ends` leave off."""
        for step in steps:
            ends = self._step(step, ends)
        return ends

    def _step(self, step: Mapping[str, Any], ends: Ends) -> Ends:
        name = step["name"]
        match step["type"]:
            case "condition_step":
                node = self.join(ends, self.node(name, "{{{}}}", _condition(step["condition"])))
                return self.steps(step["then"], [(node, "yes")]) + self.steps(step.get("else", ()), [(node, "no")])
            case "parallel_step":
                node = self.join(ends, self.node(name, "[/{}\\]", "all at once"))
                done = [end for branch in step["branches"] for end in self.steps(branch, [(node, "")])]
                return [(self.join(done, self.node(name, "[\\{}/]", "all done")), "")]
            case "loop_step":
                self._open(f"{name}: at most {step['max_iterations']} times")
                begin = self.join(ends, self.node("again", "(({}))"))
                inside = self.steps(step["steps"], [(begin, "")])
                until = self.join(inside, self.node("done?", "{{{}}}", _condition(step["until"])))
                self._close()
                self.arrow(until, begin, "no")
                return [(until, "yes")]
            case "map_step":
                self._open(f"{name}: for each {step['as']} of {step['over']}")
                ends = self.steps(step["steps"], ends)
                self._close()
                return ends
            case "workflow_step":
                self._open(f"{name}: workflow {step['workflow']['name']}")
                ends = self.steps(step["workflow"]["steps"], ends)
                self._close()
                return ends
            case "approval_step":
                return [(self.join(ends, self.node(name, ">{}]", f"approval: {step['message']}")), "")]
            case _:
                return [(self.join(ends, self.node(name, second=f"agent {step['agent']}")), "")]

    def _open(self, title: str) -> None:
        self._write(f'subgraph {self._name()}["{_label(title)}"]')
        self._depth += 1

    def _close(self) -> None:
        self._depth -= 1
        self._write("end")

    def _name(self) -> str:
        self._count += 1
        return f"n{self._count}"

    def _write(self, line: str) -> None:
        self._nodes.append("    " * self._depth + line)
