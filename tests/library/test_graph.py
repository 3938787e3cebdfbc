"""The flowchart of a blueprint."""

import html
import re
from collections.abc import Mapping
from typing import Any

import pytest

from podwright import (
    Agent,
    AgentStep,
    ApprovalStep,
    ConditionStep,
    Conductor,
    LoopStep,
    MapStep,
    ParallelStep,
    Pipeline,
    Workflow,
    WorkflowStep,
)
from podwright.blueprints import mermaid

NODE = re.compile(r' +(n\d+)(?:\(\[|\[\[|\(\(|\[/|\[\\|\{|\[|>)"([^"]*)"(?:\]\)|\]\]|\)\)|/\]|\\\]|\}|\])')
SUBGRAPH = re.compile(r' +subgraph (n\d+)\["([^"]*)"\]')
ARROW = re.compile(r'    (n\d+) (?:-->|<-->|-\.->)(?:\|"([^"]*)"\|)? (n\d+)')


class Graph:
    """A flowchart, parsed by the grammar of the parts of Mermaid that it may use."""

    def __init__(self, blueprint: Mapping[str, Any]) -> None:
        self.labels: dict[str, str] = {}
        self.inside: dict[str, tuple[str, ...]] = {}
        self.arrows: set[tuple[str, str, str]] = set()
        first, *lines = mermaid(blueprint).splitlines()
        assert first == "flowchart TD"
        subgraphs: list[str] = []
        for line in lines:
            if line.strip() == "end":
                subgraphs.pop()
            elif match := SUBGRAPH.fullmatch(line):
                subgraphs.append(self.label(*match.groups()))
            elif match := NODE.fullmatch(line):
                self.inside[self.label(*match.groups())] = tuple(subgraphs)
            else:
                match = ARROW.fullmatch(line)
                assert match, f"not a part of a flowchart: {line}"
                start, label, end = match.groups()
                self.arrows.add((self.labels[start], label or "", self.labels[end]))
        assert not subgraphs

    def label(self, key: str, text: str) -> str:
        assert not re.search(r"""[<>&`*_{}\[\]()|\\"]""", text.replace("<br/>", "")), text
        self.labels[key] = html.unescape(re.sub(r"#(\d+);", r"&#\1;", text.replace("<br/>", " / ")))
        return self.labels[key]


def agent(name: str, **more: Any) -> Agent:
    return Agent(name, "Do.", "offline/echo", **more)


def look_up(word: str) -> str:
    return word


def test_agents_conductors_and_pipelines_are_drawn_with_their_parts() -> None:
    """Agents point to their tools, conductors to their skills; the steps of a pipeline are a line."""
    finder = agent("finder", tools=[look_up])
    assert Graph(finder.to_blueprint()).arrows == {("finder / offline/echo", "", "look_up")}
    desk = Conductor("desk", "Lead.", "offline/echo", [agent("writer"), finder])
    line = Pipeline("press", [agent("one"), agent("two")])
    for component, expected in (
        (desk, {("desk", "writer"), ("desk", "finder"), ("finder", "look_up")}),
        (line, {("input", "one"), ("one", "two"), ("two", "answer")}),
    ):
        arrows = Graph(component.to_blueprint()).arrows
        assert {(start.split(" / ")[0], end.split(" / ")[0]) for start, _, end in arrows} == expected


def test_a_workflow_is_drawn_with_every_type_of_step() -> None:
    """Branches part and meet, conditions have a yes and a no, loops lead back, nested steps are in subgraphs."""
    a, b = agent("a"), agent("b")
    until = {"name": "not", "args": {"condition": {"name": "equals", "args": {"value": "{x}", "to": 1}}}}
    each = MapStep("lines", "line", [AgentStep(b, "each")], name="map")
    flow = Workflow(
        "flow",
        [
            ParallelStep([[AgentStep(a, "left")], [AgentStep(b, "right")]], name="both"),
            ConditionStep({"name": "is_empty", "args": {"value": "{a_output}"}}, [AgentStep(a, "retry")], name="none?"),
            LoopStep([each], until, max_iterations=3, name="loop"),
            WorkflowStep(Workflow("inner", [AgentStep(a, "deep")]), name="nested"),
            ApprovalStep("Publish?", "ask"),
        ],
    )
    graph = Graph(flow.to_blueprint())
    both, done, fork = "both / all at once", "both / all done", "none? / is_empty({a_output})"
    check = "done? / not(equals({x}, 1))"
    assert graph.arrows == {
        ("input", "", both),
        (both, "", "left / agent a"),
        (both, "", "right / agent b"),
        ("left / agent a", "", done),
        ("right / agent b", "", done),
        (done, "", fork),
        (fork, "yes", "retry / agent a"),
        ("retry / agent a", "", "again"),
        (fork, "no", "again"),
        ("again", "", "each / agent b"),
        ("each / agent b", "", check),
        (check, "no", "again"),
        (check, "yes", "deep / agent a"),
        ("deep / agent a", "", "ask / approval: Publish?"),
        ("ask / approval: Publish?", "", "context"),
    }
    assert graph.inside["each / agent b"] == ("loop: at most 3 times", "map: for each line of lines")
    assert graph.inside["deep / agent a"] == ("nested: workflow inner",)
    assert graph.inside["context"] == ()


@pytest.mark.parametrize(
    "name",
    ['"]; click n1 "javascript:alert(1)"', "<img src=x onerror=alert(1)>", "`**bold**`", "#quot;#35;", "end",
     "%%init: x%%", "a|b --> c", "\u202eright to left", "o" * 100, "&lt;b&gt;", "日本", "\u2028"],
)  # fmt: skip
def test_names_are_shown_as_text(name: str) -> None:
    """Whatever a step is called, the chart has the same nodes and arrows, and shows the beginning of the name."""
    step = {"type": "agent_step", "agent": name, "name": name}
    loop: dict[str, Any] = {"type": "loop_step", "name": name, "steps": [step], "max_iterations": 1}
    loop["until"] = {"name": name, "args": {name: name}}
    approval = {"type": "approval_step", "name": name, "message": name + "\n%% x\n" + name}
    graph = Graph({"type": "Workflow", "name": name, "steps": [loop, approval]})
    assert (len(graph.labels), len(graph.arrows)) == (7, 6)
    shown = " ".join("".join(char if char.isprintable() else " " for char in name).split())
    assert any(label.startswith(shown[:70]) for label in graph.labels.values())
