"""The examples load, match their files, and run with an offline model."""

from __future__ import annotations

from pathlib import Path

from podwright import load
from podwright.testing import assert_events, events_of

NEWSROOM = Path(__file__).parents[2] / "deploy" / "examples" / "newsroom"


def test_the_researcher_finds_notes() -> None:
    """The search tool returns notes about the question, or that there are none."""
    researcher = load(NEWSROOM / "researcher", model="offline/echo")
    trace = researcher.run("When did the Eiffel Tower open?", trace=True)
    [finished] = events_of(trace, "tool_call_finished")
    assert finished.to_dict()["output"].startswith("The Eiffel Tower opens\n")
    assert "NOTHING FOUND" in researcher.run("zebra crossings")


def test_the_workflow_has_a_branch_a_loop_and_parallel_steps() -> None:
    """The newsroom drafts at most three times until approved, or declines without facts."""
    newsroom = load(NEWSROOM / "newsroom", model="offline/echo")
    trace = newsroom.run("the moon", trace=True)
    assert_events(
        trace,
        "step_started step_type=parallel_step",
        "condition_checked result=false",
        "step_started step_type=loop_step",
        "condition_checked condition=starts_with result=false",
        "run_finished component=newsroom",
    )
    steps = [
        event.to_dict()["step"] for event in events_of(trace, "step_started")
    ]
    assert steps.count("draft") == 3
    declined = newsroom.run("zebra crossings")
    assert list(declined) == [
        "input",
        "researcher_output",
        "reviewer_output",
        "writer_output",
    ]
