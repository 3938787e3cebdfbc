"""The flowchart of a blueprint."""

import re
from typing import Any

import pytest
from tests.library.shapes import BLUEPRINTS, EVERY_STEP, Json, edited

from podwright.blueprints.flowchart import mermaid

WORKFLOW = r"""flowchart TD
    n1(["input"])
    n2["write<br/>agent writer"]
    n3{"check<br/>is#95;empty#40;#123;draft#125;#41;"}
    n4>"ask<br/>approval#58; Go on?"]
    n5["apology<br/>agent writer"]
    n6["again<br/>agent writer"]
    n7[/"both<br/>all at once"\]
    n8["w<br/>agent writer"]
    n9[\"both<br/>all done"/]
    subgraph n10["loop#58; at most 2 times"]
        n11(("again"))
        n12["w<br/>agent writer"]
        n13{"done?<br/>is#95;empty#40;#41;"}
    end
    subgraph n14["map#58; for each item of input"]
        n15["w<br/>agent writer"]
    end
    subgraph n16["nest#58; workflow inner"]
        n17["w<br/>agent writer"]
    end
    n18{{"call<br/>function forecast"}}
    subgraph n19["try#58; try, 2 retries"]
        n20["w<br/>agent writer"]
    end
    n21["mend<br/>agent writer"]
    n22(["context"])
"""
ARROWS = """
    n1 --> n2; n2 --> n3; n3 -->|"yes"| n4; n4 -->|"reject"| n5; n3 -->|"no"| n6; n4 --> n7; n5 --> n7; n6 --> n7;
    n7 --> n8; n8 --> n9; n9 --> n11; n11 --> n12; n12 --> n13; n13 -->|"no"| n11; n13 -->|"yes"| n15; n15 --> n17;
    n17 --> n18; n18 --> n20; n19 -->|"failed"| n21; n20 --> n22; n21 --> n22
"""
AGENT = 'n1["guide<br/>openai#47;gpt-4o-mini"] n2[/"forecast"/] n1 -.-> n2'
CONDUCTOR = 'n1[["desk<br/>openai#47;gpt-4o-mini"]] n2["writer"] n1 <--> n2'
PIPELINE = (
    'n1(["input"]) n2["writer"] n3["reviewer"] n4[/"forecast"/] n5(["answer"]) '
    "n1 --> n2 n3 -.-> n4 n2 --> n3 n3 --> n5"
)


def test_a_workflow_is_drawn_with_every_type_of_step() -> None:
    """Branches part and meet, conditions have a yes and a no, loops lead back, nested steps are in subgraphs.

    A failure leads from the tried steps to those that catch it.
    """
    arrows = [f"    {arrow.strip()}\n" for arrow in ARROWS.split(";")]
    assert mermaid(EVERY_STEP) == WORKFLOW + "".join(arrows)


def test_a_loop_that_may_fail_says_so() -> None:
    """The title of a loop has what happens after its maximum."""
    assert "else the workflow fails" not in mermaid(EVERY_STEP)
    assert "at most 2 times, else the workflow fails" in mermaid(
        edited(EVERY_STEP, "/steps/3/on_exhausted", "fail")
    )


@pytest.mark.parametrize(
    ("step", "title"),
    [
        ({"retries": 1}, "t#58; try, 1 retry"),
        ({"retries": 2}, "t#58; try, 2 retries"),
        (
            {"retries": 2, "on": ["model_timeout", "out_of_stock"]},
            "t#58; try, 2 retries, on model#95;timeout, out#95;of#95;stock",
        ),
        ({"catch": [{"type": "approval_step", "name": "a", "message": "?"}]}, "t#58; try"),
    ],
)  # fmt: skip
def test_a_try_step_says_how_often_it_tries(step: Json, title: str) -> None:
    """The title has the retries; only steps that catch the failure have an arrow for it."""
    call = {"type": "function_step", "name": "f", "function": "look"}
    tries = {"type": "try_step", "name": "t", "steps": [call], **step}
    chart = mermaid({"name": "w", "steps": [tries]})
    assert f'["{title}"]' in chart
    assert ("failed" in chart) == ("catch" in step)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("agent", AGENT), ("conductor", CONDUCTOR), ("pipeline", PIPELINE)],
)
def test_agents_and_teams_are_drawn_with_their_parts(
    kind: str, expected: str
) -> None:
    """Agents point to their tools, conductors to their skills; the steps of a pipeline are a line."""
    assert (
        mermaid(BLUEPRINTS[kind]).split() == f"flowchart TD {expected}".split()
    )


def workflow(name: str) -> Json:
    step = {"type": "agent_step", "agent": name, "name": name}
    loop: dict[str, Any] = {
        "type": "loop_step",
        "name": name,
        "steps": [step],
        "max_iterations": 1,
    }
    loop["until"] = {"name": name, "args": {name: name}}
    approval = {
        "type": "approval_step",
        "name": name,
        "message": name + "\n%% x\n" + name,
    }
    call = {"type": "function_step", "name": name, "function": "f"}
    tries = {"type": "try_step", "name": name, "steps": [call], "catch": [step]}
    return {"type": "Workflow", "name": name, "steps": [loop, approval, tries]}


@pytest.mark.parametrize(
    "name",
    ['"]; click n1 "javascript:alert(1)"', "<img src=x onerror=alert(1)>", "`**bold**`", "#quot;#35;", "end",
     "%%init: x%%", "a|b --> c", "\u202eright to left", "o" * 100, "&lt;b&gt;", "日本", "\u2028"],
)  # fmt: skip
def test_names_are_shown_as_text(name: str) -> None:
    """Whatever a step is called, the chart has the same lines, and the labels contain no markup."""
    label = re.compile(r'"([^"]*)"')
    lines = mermaid(workflow(name)).splitlines()
    assert [label.sub("", line) for line in lines] == [
        label.sub("", line) for line in mermaid(workflow("plain")).splitlines()
    ]
    for text in label.findall("".join(lines)):
        assert not re.search(
            r"[<>&`*_{}\[\]()|\\]", text.replace("<br/>", "")
        ), text
