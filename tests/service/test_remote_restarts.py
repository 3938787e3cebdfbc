"""A remote agent that is restarted, in good order or not, while its callers go on."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.helpers import until
from tests.ports import free_port
from tests.service.support import Address, Command, discard_output
from tests.service.test_fleet import AGENT, Vendor

import podwright
from podwright import Remote, Workflow, errors
from podwright.models.retries import Retries
from podwright_service.testing import ModelStub

CALLERS = 16


@dataclass(frozen=True)
class Form:
    """How often the remote is restarted."""

    restarts: int
    between: int
    """Fewest runs between two restarts."""


FORMS = [
    pytest.param(Form(restarts=1, between=100), id="short"),
    pytest.param(
        Form(restarts=20, between=200), id="long", marks=pytest.mark.proof
    ),
]


@pytest.fixture
def vendor(request: pytest.FixtureRequest) -> Iterator[tuple[Vendor, str]]:
    """A provider and its URL; the parameter is its latency in seconds, by default such that runs are in all parts."""
    made = Vendor()
    with ModelStub(
        made.answer, latency=getattr(request, "param", 0.03)
    ) as stub:
        yield made, f"{stub.url}/v1"


class Callee:
    """One process on one port, started again and again."""

    def __init__(
        self,
        command: Command,
        address: Address,
        folder: Path,
        vendor: str,
        workers: str = "1",
    ) -> None:
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._command, self._address = command, address
        self._file = folder / "far.json"
        blueprint = {
            "version": podwright.blueprints.VERSION,
            "type": "Agent",
            "name": "far",
            **AGENT,
        }
        self._file.write_text(json.dumps(blueprint))
        vendor_at = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": vendor}
        self._variables = {
            **vendor_at,
            "PODWRIGHT_DRAIN_DELAY": "0.5",
            "WEB_CONCURRENCY": workers,
        }
        self._start()

    def _start(self) -> None:
        arguments = (
            "serve",
            str(self._file),
            "--host",
            "127.0.0.1",
            "--port",
            str(self._port),
        )
        self._process = self._command(*arguments, **self._variables)
        self._address(self._process)
        discard_output(self._process)

    def restart(
        self, number: signal.Signals, ready: Callable[[], object]
    ) -> None:
        """Wait until it is ready, end it by a signal, and start it again where it was."""
        ready()
        self._process.send_signal(number)
        assert self._process.wait(60) == (
            0 if number == signal.SIGTERM else -number
        )
        self._start()


async def restarted(
    callee: Callee,
    by: signal.Signals,
    form: Form,
    ready: Callable[[], object] = lambda: None,
) -> dict[str, errors.PodwrightError | None]:
    """How each run of a constant load ended, while the remote was restarted; `ready` waits for the right moment."""
    outcomes: dict[str, errors.PodwrightError | None] = {}
    flow = Workflow("flow", [Remote("far", callee.url)])
    over, ended = False, asyncio.Semaphore(0)

    async def caller(name: int) -> None:
        number = 0
        while not over:
            run = f"{name}x{number}"
            number += 1
            try:
                await flow.arun(f"run-{run}")
                outcomes[run] = None
            except errors.PodwrightError as error:
                outcomes[run] = error
            ended.release()

    async def more() -> None:
        nonlocal ended
        ended = asyncio.Semaphore(0)
        async with asyncio.timeout(120):
            for _ in range(form.between):
                await ended.acquire()

    async with asyncio.TaskGroup() as callers:
        for name in range(CALLERS):
            callers.create_task(caller(name))
        for _ in range(form.restarts):
            await more()
            await asyncio.to_thread(callee.restart, by, ready)
        await more()
        over = True
    return outcomes


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Callers that wait as long as a process takes to start, on a busy machine too."""
    monkeypatch.setattr(
        Remote, "retries", Retries(tries=200, first_wait=0.1, longest_wait=0.5)
    )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_restart_in_good_order_fails_no_run(
    command: Command,
    address: Address,
    tmp_path: Path,
    vendor: tuple[Vendor, str],
    workers: str,
    form: Form,
) -> None:
    """Under constant load no run fails, and none is run twice: what is lost on the way had not begun."""
    callee = Callee(command, address, tmp_path, vendor[1], workers)
    outcomes = asyncio.run(restarted(callee, signal.SIGTERM, form))
    failed = [error for error in outcomes.values() if error is not None]
    print(
        f"\nworkers: {workers}, restarts: {form.restarts}, runs: {len(outcomes)}, failed: {len(failed)}"
    )
    assert failed == []
    assert vendor[0].calls == Counter(dict.fromkeys(outcomes, 1))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("vendor", [0.3], indirect=True)
def test_a_crash_fails_only_the_runs_in_progress(
    command: Command,
    address: Address,
    tmp_path: Path,
    vendor: tuple[Vendor, str],
    form: Form,
) -> None:
    """Runs whose events had begun when the process was killed fail with a typed error; all others are run."""
    callee = Callee(command, address, tmp_path, vendor[1])

    def wait_for_a_run() -> None:
        """Wait for a call to the provider, which answers later than the process is killed."""
        before = len(vendor[0].calls)
        until(lambda: len(vendor[0].calls) > before, pause=0.01)

    outcomes = asyncio.run(
        restarted(callee, signal.SIGKILL, form, wait_for_a_run)
    )
    failed = {
        run: error for run, error in outcomes.items() if error is not None
    }
    print(
        f"\ncrashes: {form.restarts}, runs: {len(outcomes)}, failed: {len(failed)}"
    )
    assert failed
    assert len(failed) <= CALLERS * form.restarts
    assert {type(error) for error in failed.values()} == {
        errors.RemoteConnectionError
    }
    assert all(vendor[0].calls[run] for run in outcomes if run not in failed)
