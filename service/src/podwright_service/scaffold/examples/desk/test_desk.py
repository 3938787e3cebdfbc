"""The support desk: a workflow on data, tested without a model."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from podwright import ApprovalRequired, ScriptedModel, Workflow, load
from podwright.errors import InputsError
from podwright.testing import ToolCall

DESK = Path(__file__).parent

LETTER = {"input": "My blue cup from order 7 is broken.", "customer": "Ann"}
TICKET = json.dumps({"category": "refund", "order": 7, "summary": "Broken."})
SEARCH = ToolCall.of("search_policies", topic="broken items")
GOOD = json.dumps({"good": True, "advice": ""})
BAD = json.dumps({"good": False, "advice": "Be shorter."})


@pytest.fixture
def letters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The letters that were sent, as customer, order and text."""
    path = tmp_path / "desk.db"
    monkeypatch.setenv("DESK_DATABASE", str(path))

    def sent() -> list[Any]:
        with closing(sqlite3.connect(path)) as connection:
            rows = connection.execute(
                "SELECT customer, number, text FROM letters"
            )
            return rows.fetchall()

    return sent


def desk(*answers: Any) -> tuple[Workflow, ScriptedModel]:
    model = ScriptedModel(*answers)
    flow = load(DESK, model=model)
    assert isinstance(flow, Workflow)
    return flow, model


def paused(flow: Workflow, given: Any, path: Any = None) -> ApprovalRequired:
    with pytest.raises(ApprovalRequired) as caught:
        flow.run(given, resume_path=path)
    return caught.value


def test_a_letter_is_answered(letters: Any) -> None:
    """Ticket, order, policies, draft and critic; a person changes the draft and approves; the letter is sent once."""
    flow, model = desk(TICKET, SEARCH, "long", BAD, SEARCH, "short", GOOD)
    pause = paused(flow, LETTER)
    assert pause.message == "Send this to Ann?\n\nshort"
    result = flow.run(
        pause.decide(values={"draft": "Dear Ann …"}),
        resume_path=pause.resume_path,
        trace=True,
    )
    assert letters() == [("Ann", 7, "Dear Ann …")]
    assert result.data["receipt"]["letter"]
    assert result.data["order"]["item"] == "a blue cup"
    policies = model.requests[2].messages[-1].text
    assert "refunded in full" in policies
    system = model.requests[1].messages[0].text
    assert "in a warm tone" in system
    assert "address Ann by name" in system
    assert "Be shorter." in model.requests[4].messages[1].text


def test_a_person_rejects_until_it_is_right(letters: Any) -> None:
    """The comment goes to the writer; after five rounds the run fails."""
    flow, model = desk(TICKET, "one", GOOD, "two", "three")
    pause = paused(flow, LETTER)
    for comment, draft in (("Too cold.", "two"), ("Too warm.", "three")):
        pause = paused(flow, pause.decide("reject", comment), pause.resume_path)
        assert pause.message.endswith(draft)
        assert comment in model.requests[-1].messages[1].text
    flow.run(pause.decide(), resume_path=pause.resume_path)
    assert letters() == [("Ann", 7, "three")]


def test_what_fails_has_a_fallback(letters: Any) -> None:
    """Without an order and without a model the customer gets the standard letter."""
    ticket = json.dumps({"category": "other", "order": None, "summary": "Hi"})
    flow, _ = desk(ticket, *[OSError("no model")] * 2)
    pause = paused(flow, LETTER)
    assert "thank you for your letter (other)" in pause.message
    flow.run(pause.context, resume_path=pause.resume_path)
    assert letters()[0][:2] == ("Ann", None)


def test_a_letter_needs_a_customer() -> None:
    """All wrong inputs are reported before anything is paid."""
    flow, model = desk()
    with pytest.raises(InputsError) as caught:
        flow.run({"input": "", "custmer": "Ann", "tone": "loud"})
    pointers = sorted(problem.pointer for problem in caught.value.problems)
    assert pointers == ["/custmer", "/customer", "/input", "/tone"]
    assert model.requests == []
