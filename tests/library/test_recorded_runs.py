"""Runs that an earlier release recorded: their events are read, and their saved contexts and journals go on."""

from __future__ import annotations

from typing import Any

import pytest
from tests.recorded_runs import COMPONENTS, effects, read_data

from podwright import Component, Workflow
from podwright.components import PromptComponent
from podwright.events import Event, adapter
from podwright.journal.journal import Journal
from podwright.messages.approvals import ApprovalId, Decision
from podwright.run.run import Task, execute

STOPPED: dict[str, Any] = read_data("stopped_runs.json")
"""By component: the events and the context of a run that waits for a person, and of the run that went on from it."""

NEW_COUNTS = ("input_audio_tokens", "output_audio_tokens")


@pytest.fixture(autouse=True)
def _no_effects() -> None:
    effects.clear()


def read_events(stored: list[dict[str, Any]]) -> list[Event]:
    return [adapter().validate_python(event) for event in stored]


def without_new_counts(data: Any) -> Any:
    """Data without the counts that the release did not have, which are 0."""
    if isinstance(data, list):
        return list(map(without_new_counts, data))
    if not isinstance(data, dict):
        return data
    return {
        key: without_new_counts(value)
        for key, value in data.items()
        if key not in NEW_COUNTS or value != 0
    }


def task_of(component: Component, data: Any, *resume_path: Any) -> Task:
    """A task as a caller makes it, with the path of the error if the component has steps."""
    if isinstance(component, Workflow):
        return component.task(data, 0, *resume_path)
    assert isinstance(component, PromptComponent)
    return component.task(data)


@pytest.mark.parametrize("name", STOPPED)
def test_events_are_read_and_written_as_before(name: str) -> None:
    """Every event, of each kind of component, is the same JSON data after a round trip, but for counts that are new."""
    for part in ("paused", "resumed"):
        stored = STOPPED[name][part]
        written = [event.to_dict() for event in read_events(stored)]
        assert without_new_counts(written) == stored


@pytest.mark.parametrize("name", STOPPED)
async def test_a_saved_context_goes_on(name: str) -> None:
    """The context of the error that stopped a run goes on with what had not been done, to the same result."""
    recorded = STOPPED[name]
    component = COMPONENTS[name]
    task = task_of(component, recorded["context"], recorded["resume_path"])
    result = await execute(component, task)
    assert component.output(result.value, result.data) == recorded["result"]
    assert effects + _count(recorded, "paused") == _count(recorded, "all")


@pytest.mark.parametrize("name", STOPPED)
async def test_a_journal_goes_on(name: str) -> None:
    """The events of the first attempt, and the decision, let a second one repeat nothing."""
    recorded = STOPPED[name]
    component = COMPONENTS[name]
    decisions = {ApprovalId.from_dict(recorded["asked"]): Decision()}
    result = await execute(
        component,
        task_of(component, "go"),
        run_id=recorded["run_id"],
        journal=Journal(read_events(recorded["paused"]), decisions),
    )
    assert component.output(result.value, result.data) == recorded["result"]
    assert effects + _count(recorded, "paused") == _count(recorded, "all")


@pytest.mark.parametrize("name", sorted(STOPPED.keys() - {"desk"}))
async def test_the_events_of_a_whole_run_replay_it(name: str) -> None:
    """All events of both attempts of a replay give the result without a call."""
    recorded = STOPPED[name]
    component = COMPONENTS[name]
    stored = [*recorded["paused"], *recorded["resumed"]]
    decisions = {ApprovalId.from_dict(recorded["asked"]): Decision()}
    result = await execute(
        component,
        task_of(component, "go"),
        run_id=recorded["run_id"],
        journal=Journal(read_events(stored), decisions),
    )
    assert component.output(result.value, result.data) == recorded["result"]
    assert not effects


def _count(recorded: dict[str, Any], part: str) -> Any:
    return type(effects)(recorded["effects"][part])
