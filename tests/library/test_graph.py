"""The flowchart of a blueprint."""

from __future__ import annotations

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
FRAME = re.compile(r' +subgraph (n\d+)\["([^"]*)"\]')
ARROW = re.compile(r'    (n\d+) (?:-->|<-->|-\.->)(?:\|"([^"]*)"\|)? (n\d+)')


class Graph:
    """A flowchart, read back by the grammar of those parts of Mermaid that it may consist of."""

    def __init__(self, text: str) -> None:
        self.labels: dict[str, str] = {}
        self.inside: dict[str, tuple[str, ...]] = {}
        self.arrows: set[tuple[str, str, str]] = set()
        first, *lines = text.splitlines()
        assert first == "flowchart TD"
        open_frames: list[str] = []
        for line in lines:
            if line.strip() == "end":
                open_frames.pop()
            elif found := FRAME.fullmatch(line):
                open_frames.append(self.name(*found.groups()))
            elif found := NODE.fullmatch(line):
                self.inside[self.name(*found.groups())] = tuple(open_frames)
            else:
                found = ARROW.fullmatch(line)
                assert found, f"no part of a flowchart: {line}"
                start, label, end = found.groups()
                self.arrows.add((self.labels[start], label or "", self.labels[end]))
        assert not open_frames

    def name(self, key: str, label: str) -> str:
        assert not re.search(r"""[<>&`*_{}\[\]()|\\"]""", label.replace("<br/>", "")), label
        self.labels[key] = html.unescape(re.sub(r"#(\d+);", r"&#\1;", label.replace("<br/>", " / ")))
        return self.labels[key]


def agent(name: str, **more: Any) -> Agent:
    return Agent(name, "Do.", "offline/echo", **more)


def graph(blueprint: Mapping[str, Any]) -> Graph:
    return Graph(mermaid(blueprint))


def look_up(word: str) -> str:
    """Look a word up."""
    return word


def test_an_agent_has_its_tools() -> None:
    """An agent is a node with its model, and an arrow to each tool."""
    drawn = graph(agent("guide", tools=[look_up]).to_blueprint())
    assert drawn.arrows == {("guide / offline/echo", "", "look_up")}


def test_a_conductor_has_its_skills() -> None:
    """A conductor stands in the middle of its skills; theirs are the tools."""
    team = Conductor("desk", "Lead.", "offline/echo", [agent("writer"), agent("finder", tools=[look_up])])
    arrows = graph(team.to_blueprint()).arrows
    assert {(start.split(" / ")[0], end.split(" / ")[0]) for start, _, end in arrows} == {
        ("desk", "writer"), ("desk", "finder"), ("finder", "look_up")
    }  # fmt: skip


def test_a_pipeline_is_a_line() -> None:
    """From the input through each step to the answer."""
    arrows = graph(Pipeline("press", [agent("one"), agent("two")]).to_blueprint()).arrows
    assert {(start.split(" / ")[0], end.split(" / ")[0]) for start, _, end in arrows} == {
        ("input", "one"), ("one", "two"), ("two", "answer")
    }  # fmt: skip


def test_a_workflow_with_all_kinds_of_steps() -> None:
    """Branches part and meet, conditions have a yes and a no, loops lead back, and nested steps stand in frames."""
    a, b = agent("a"), agent("b")
    flow = Workflow(
        "flow",
        [
            ParallelStep([[AgentStep(a, "left")], [AgentStep(b, "right")]], name="both"),
            ConditionStep({"name": "is_empty", "args": {"value": "{a_output}"}}, [AgentStep(a, "retry")], name="none?"),
            LoopStep(
                [MapStep("lines", "line", [AgentStep(b, "each")], name="map")],
                {"name": "not", "args": {"condition": {"name": "equals", "args": {"value": "{x}", "to": 1}}}},
                max_iterations=3,
                name="loop",
            ),
            WorkflowStep(Workflow("inner", [AgentStep(a, "deep")]), name="nested"),
            ApprovalStep("Publish?", "ask"),
        ],
    )
    drawn = graph(flow.to_blueprint())
    both, done = "both / all at once", "both / all done"
    asked, again, until = "none? / is_empty({a_output})", "again", "done? / not(equals({x}, 1))"
    assert drawn.arrows == {
        ("input", "", both),
        (both, "", "left / agent a"),
        (both, "", "right / agent b"),
        ("left / agent a", "", done),
        ("right / agent b", "", done),
        (done, "", asked),
        (asked, "yes", "retry / agent a"),
        ("retry / agent a", "", again),
        (asked, "no", again),
        (again, "", "each / agent b"),
        ("each / agent b", "", until),
        (until, "no", again),
        (until, "yes", "deep / agent a"),
        ("deep / agent a", "", "ask / approval: Publish?"),
        ("ask / approval: Publish?", "", "context"),
    }
    assert drawn.inside["each / agent b"] == ("loop: at most 3 times", "map: for each line of lines")
    assert drawn.inside["deep / agent a"] == ("nested: workflow inner",)
    assert drawn.inside["context"] == ()


@pytest.mark.parametrize(
    "name",
    ['"]; click n1 "javascript:alert(1)"', "<img src=x onerror=alert(1)>", "`**bold**`", "#quot;#35;", "end",
     "%%init: x%%", "a|b", "x --> y", "\u202eright to left", "o" * 100, "---", "&lt;b&gt;", "日本", "\u2028"],
)  # fmt: skip
def test_names_are_text_and_nothing_else(name: str) -> None:
    """Whatever a step is called, the picture has the same nodes and arrows, and shows the name's beginning."""
    name = name.replace("/", "-")
    step: dict[str, Any] = {"type": "agent_step", "agent": name, "name": name}
    loop: dict[str, Any] = {"type": "loop_step", "name": name, "steps": [step], "max_iterations": 1}
    loop["until"] = {"name": name, "args": {name: name}}
    approval = {"type": "approval_step", "name": name, "message": name + "\n%% x\n" + name}
    drawn = graph({"type": "Workflow", "name": name, "steps": [loop, approval]})
    assert len(drawn.labels) == 7
    assert len(drawn.arrows) == 6
    shown = " ".join("".join(char if char.isprintable() else " " for char in name).split())
    assert any(label.startswith(shown[:70]) for label in drawn.labels.values())
