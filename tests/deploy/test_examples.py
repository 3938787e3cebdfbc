"""The examples: each loads, is what its file says, and runs with no model vendor."""

from __future__ import annotations

from pathlib import Path

import pytest

from podwright import Pipeline, Workflow, blueprints, load
from podwright.components import Component
from podwright.testing import assert_events, events_of

NEWSROOM = Path(__file__).parents[2] / "deploy" / "examples" / "newsroom"
FOLDERS = sorted(path.parent.name for path in NEWSROOM.glob("*/blueprint.*"))

each_example = pytest.mark.parametrize("name", FOLDERS)


def test_every_kind_is_there() -> None:
    """The examples are three agents and one component of each other kind, one of them in YAML."""
    assert FOLDERS == ["desk", "newsroom", "press", "researcher", "reviewer", "writer"]
    assert {load(NEWSROOM / name).kind for name in FOLDERS} == {"agent", "workflow", "conductor", "pipeline"}
    assert isinstance(load(NEWSROOM / "press" / "blueprint.yaml", agents=staff()), Pipeline)


def staff() -> dict[str, Component]:
    return {name: load(NEWSROOM / name) for name in ("researcher", "writer", "reviewer")}


@each_example
def test_a_blueprint_goes_through_a_component_unchanged(name: str) -> None:
    """File to component to blueprint is the identity, through JSON and through YAML."""
    (file,) = (NEWSROOM / name).glob("blueprint.*")
    written = blueprints.read_file(file)
    exported = load(NEWSROOM / name).to_blueprint()
    assert exported == written
    assert blueprints.from_yaml(blueprints.to_yaml(exported)) == exported
    assert blueprints.from_json(blueprints.to_json(exported)) == exported
    assert exported["description"]


@each_example
def test_it_runs_on_the_echo_model(name: str) -> None:
    """Each example answers offline, the same each time."""
    first, second = (load(NEWSROOM / name, model="offline/echo").run("the moon") for _ in range(2))
    assert first
    assert first == second


def test_the_researcher_finds_notes() -> None:
    """The search tool returns notes that bear on the question, and says so when there are none."""
    researcher = load(NEWSROOM / "researcher", model="offline/echo")
    trace = researcher.run("When did the Eiffel Tower open?", trace=True)
    (finished,) = events_of(trace, "tool_call_finished")
    assert finished.output.startswith("The Eiffel Tower opens\n")  # pyright: ignore[reportAttributeAccessIssue]
    assert "NOTHING FOUND" in researcher.run("zebra crossings")


def test_the_workflow_has_a_branch_a_loop_and_parallel_steps() -> None:
    """The newsroom drafts until approved, at most three times, or declines where there are no facts."""
    newsroom = load(NEWSROOM / "newsroom", model="offline/echo")
    assert isinstance(newsroom, Workflow)
    trace = newsroom.run("the moon", trace=True)
    assert_events(
        trace,
        "step_started step_type=parallel_step",
        "condition_checked result=false",
        "step_started step_type=loop_step",
        "condition_checked condition=starts_with result=false",
        "run_finished component=newsroom",
    )
    drafts = [
        e for e in events_of(newsroom.run("the moon", trace=True), "step_started") if e.to_dict()["step"] == "draft"
    ]
    assert len(drafts) == 3
    declined = newsroom.run("zebra crossings")
    assert list(declined) == ["input", "researcher_output", "reviewer_output", "writer_output"]
