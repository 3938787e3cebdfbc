"""The examples load, match their files, and run with an offline model."""

from __future__ import annotations

from pathlib import Path

import pytest

from podwright import Pipeline, blueprints, load
from podwright.components import Component
from podwright.testing import assert_events, events_of

NEWSROOM = Path(__file__).parents[2] / "deploy" / "examples" / "newsroom"
FOLDERS = sorted(path.parent.name for path in NEWSROOM.glob("*/blueprint.*"))

each_example = pytest.mark.parametrize("name", FOLDERS)


def test_every_kind_has_an_example() -> None:
    """There are three agents and one component of each other kind, one of them in YAML."""
    assert FOLDERS == ["desk", "newsroom", "press", "researcher", "reviewer", "writer"]
    assert {load(NEWSROOM / name).kind for name in FOLDERS} == {"agent", "workflow", "conductor", "pipeline"}
    staff: dict[str, Component] = {name: load(NEWSROOM / name) for name in ("researcher", "writer", "reviewer")}
    assert isinstance(load(NEWSROOM / "press" / "blueprint.yaml", agents=staff), Pipeline)


@each_example
def test_a_component_exports_its_blueprint_unchanged(name: str) -> None:
    """A component exports the blueprint of its file, which JSON and YAML keep unchanged."""
    [file] = (NEWSROOM / name).glob("blueprint.*")
    exported = load(NEWSROOM / name).to_blueprint()
    assert exported == blueprints.read_file(file)
    assert blueprints.from_yaml(blueprints.to_yaml(exported)) == exported
    assert blueprints.from_json(blueprints.to_json(exported)) == exported
    assert exported["description"]


@each_example
def test_it_runs_offline(name: str) -> None:
    """Each example has an output with the echo model, the same every time."""
    first, second = (load(NEWSROOM / name, model="offline/echo").run("the moon") for _ in range(2))
    assert first
    assert first == second


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
    steps = [event.to_dict()["step"] for event in events_of(trace, "step_started")]
    assert steps.count("draft") == 3
    declined = newsroom.run("zebra crossings")
    assert list(declined) == ["input", "researcher_output", "reviewer_output", "writer_output"]
