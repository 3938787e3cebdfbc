"""The support desk in the background: its process is killed, and nothing that had finished is done again."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import threading
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.helpers import DESK, until
from tests.service.support import Address, Command

from podwright.client import Client
from podwright.testing import ModelRequest, ToolCall
from podwright_service.testing import ModelStub

TAKEN_OVER = 120
"""Seconds after which another process has surely taken the run over."""

pytestmark = pytest.mark.servers


class Vendor:
    """Answers for all agents of the desk; the second draft waits until it is released."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.released = threading.Event()
        self.is_writing = threading.Event()

    def answer(self, request: ModelRequest) -> Any:
        if request.output is not None:
            return self._data(request)
        if request.messages[-1].role == "user":
            self.asked["search"] += 1
            return ToolCall.of("search_policies", topic="broken items")
        number = self.asked["draft"]
        self.asked["draft"] += 1
        if number == 1:
            self.is_writing.set()
            until(self.released.is_set)
        return f"Draft {number}"

    def _data(self, request: ModelRequest) -> str:
        assert request.output is not None
        name = request.output.name
        self.asked[name] += 1
        if name == "Ticket":
            return json.dumps(
                {"category": "refund", "order": 7, "summary": "Broken."}
            )
        is_good = self.asked[name] > 1
        return json.dumps({"good": is_good, "advice": "Shorter."})


def test_a_killed_desk_goes_on(
    command: Command, address: Address, tmp_path: Path
) -> None:
    """Only the call that was in progress is made again; the person is asked once, and one letter is sent."""
    vendor = Vendor()
    letters = tmp_path / "desk.db"
    with ModelStub(vendor.answer) as stub:
        variables = {
            "OPENAI_BASE_URL": f"{stub.url}/v1",
            "OPENAI_API_KEY": "k",
            "DESK_DATABASE": str(letters),
            "PODWRIGHT_RUNS_DATABASE": f"sqlite:///{tmp_path}/runs.db",
        }
        options = ("serve", str(DESK), "--host", "127.0.0.1", "--port", "0")
        first = command(*options, **variables)
        client = Client(address(first))
        inputs = {"input": "My cup is broken.", "customer": "Ann"}
        run = client.runs.start(inputs)
        until(vendor.is_writing.is_set)
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        before = vendor.asked.copy()
        vendor.released.set()

        client = Client(address(command(*options, **variables)))
        waiting = client.runs.wait(
            run.id, "waiting_for_approval", within=TAKEN_OVER
        )
        assert waiting.approval is not None
        # the call that was cut off is made again, and the critic is content then
        assert vendor.asked - before == Counter(draft=1, Review=1)
        values = {"draft": "Dear Ann …"}
        client.runs.approve(run.id, values=values)
        ended = client.runs.wait(run.id, within=60)
    assert ended.status == "succeeded", ended.problem
    assert ended.attempt == 3
    with closing(sqlite3.connect(letters)) as connection:
        sent = connection.execute(
            "SELECT customer, number, text FROM letters"
        ).fetchall()
    assert sent == [("Ann", 7, "Dear Ann …")]
