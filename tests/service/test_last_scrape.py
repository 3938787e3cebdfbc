"""The figures of runs that end while their process drains: they are scraped before it exits."""

from __future__ import annotations

import asyncio
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from tests.helpers import plain_http, until
from tests.service.support import (
    Address,
    Command,
    Process,
    check_end,
    check_problem,
    wait_for_line,
)

from podwright_service.http.scrapes import Scrapes
from podwright_service.testing import Metrics

COMPONENT = """
import asyncio
from pathlib import Path
from podwright import Agent, FunctionModel

async def answer(request):
    file = Path(request.messages[-1].text)
    if file.name == "open":
        print("called", flush=True)
        while not file.exists():
            await asyncio.sleep(0.01)
    return "done"

agent = Agent("helper", "Help.", FunctionModel(answer))
"""


@pytest.fixture
def process(command: Command, tmp_path: Path) -> Process:
    """A service of which a run waits for the file `open`."""
    (tmp_path / "made.py").write_text(COMPONENT)
    return command(
        "serve", "made:agent", "--host", "127.0.0.1", "--port", "0",
        cwd=tmp_path,
    )  # fmt: skip


def post(url: str, text: str) -> httpx.Response:
    return plain_http.post(f"{url}/run", json={"input": text})


def finished_runs(url: str) -> float:
    text = plain_http.get(f"{url}/metrics").text
    return Metrics(text).get("podwright_runs_total", status="ok")


def is_refusing(url: str) -> bool:
    return post(url, "x").status_code == 503


def test_the_last_scrape_has_the_last_run(
    process: Process, address: Address, tmp_path: Path
) -> None:
    """Metrics are served during the drain, runs are not, and the process ends once the last run was scraped."""
    url = address(process)
    assert (finished_runs(url), finished_runs(url)) == (0, 0)
    with ThreadPoolExecutor() as pool:
        active = pool.submit(post, url, "open")
        wait_for_line(process, "called")
        process.send_signal(signal.SIGTERM)
        until(lambda: is_refusing(url))
        refused = post(url, "x")
        check_problem(refused, 503, "run_cancelled")
        assert refused.headers["retry-after"] == "1"
        assert plain_http.get(f"{url}/health").status_code == 200
        before = finished_runs(url)
        (tmp_path / "open").touch()
        assert active.result().status_code == 200
        assert finished_runs(url) == before + 1
    check_end(process)


@pytest.mark.parametrize("scrapes", [0, 1])
def test_a_process_that_nobody_scrapes(
    process: Process, address: Address, scrapes: int
) -> None:
    """It ends at once, also if a person has looked at the metrics."""
    url = address(process)
    for _ in range(scrapes):
        finished_runs(url)
    assert post(url, "x").status_code == 200
    process.send_signal(signal.SIGTERM)
    check_end(process)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_further_signal_ends_the_wait(
    process: Process, address: Address, tmp_path: Path, number: signal.Signals
) -> None:
    """The active run still finishes."""
    url = address(process)
    for _ in range(2):
        finished_runs(url)
    with ThreadPoolExecutor() as pool:
        active = pool.submit(post, url, "open")
        wait_for_line(process, "called")
        process.send_signal(signal.SIGTERM)
        until(lambda: is_refusing(url))
        process.send_signal(number)

        def is_closed() -> bool:
            try:
                plain_http.get(f"{url}/health")
            except httpx.TransportError:
                return True
            return False

        until(is_closed)
        (tmp_path / "open").touch()
        assert active.result().status_code == 200
    check_end(process)


class Clock:
    """A clock that a test sets."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("scraped_at", "news_at", "now", "patience"),
    [
        ([], 10, 10, 0),
        ([10], 11, 12, 0),
        ([10, 40], None, 41, 0),
        ([10, 40], 39, 41, 0),
        ([10, 40], 41, 41, 59),
        ([10, 40], 41, 99, 1),
        ([10, 40], 41, 100, 0),
        ([10, 40], 41, 500, 0),
        ([10, 10.1], 11, 11, 4.1),
        ([0, 100, 101], 102, 102, 199),
        ([0, 300, 330, 360, 390, 420], 421, 421, 59),
    ],
)
def test_how_long_a_scrape_is_waited_for(
    scraped_at: list[float], news_at: float | None, now: float, patience: float
) -> None:
    """Two intervals from the last one, if anything is new; not for a single look at the metrics."""
    clock = Clock()
    scrapes = Scrapes(clock)
    moments = [(moment, scrapes.note_scrape) for moment in scraped_at]
    if news_at is not None:
        moments.append((news_at, scrapes.note_news))
    for moment, note in sorted(moments, key=lambda each: each[0]):
        clock.now = moment
        note()
    clock.now = now
    assert scrapes.patience == pytest.approx(patience)


async def test_waiting_ends_with_a_scrape() -> None:
    """Of what was counted until then."""
    scrapes = Scrapes()
    scrapes.note_scrape()
    scrapes.note_scrape()
    await scrapes.wait_for_last()
    scrapes.note_news()
    waiting = asyncio.create_task(scrapes.wait_for_last())
    await asyncio.sleep(0)
    assert not waiting.done()
    scrapes.note_scrape()
    await waiting
