"""What a real Prometheus makes of pods that come and go."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from tests.helpers import NO_AUTHORITIES, plain_http, tool, until
from tests.observability.support import TARGETS
from tests.service.support import Address, Command, Process, check_end

COMPONENT = """
from podwright import Agent, FunctionModel, Usage
from podwright.testing import ModelResponse


def answer(request):
    return ModelResponse("done", usage=Usage(2, 1, cost=3.0))


guide = Agent("guide", "Help.", FunctionModel(answer))
"""
COST = 3.0
"""USD for each run of this component."""


class Server:
    """A Prometheus that scrapes each second the pods of a list."""

    def __init__(self, folder: Path, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._targets = folder / "targets.json"
        self._pods: list[str] = []

    def scrape(self, *pods: str) -> None:
        """Scrape these pods from now on, and no others."""
        self._pods = [pod.removeprefix("http://") for pod in pods]
        labels = {"namespace": "prod", "job": "fleet-guide"}
        new = self._targets.with_suffix(".new")
        new.write_text(json.dumps([{"targets": self._pods, "labels": labels}]))
        new.replace(self._targets)

    def query(self, query: str) -> list[tuple[dict[str, str], float]]:
        response = plain_http.get(
            f"{self.url}/api/v1/query", params={"query": query}
        )
        response.raise_for_status()
        return [
            (result["metric"], float(result["value"][1]))
            for result in response.json()["data"]["result"]
        ]

    def value(self, query: str) -> float:
        """The only value of a query; 0 if it has none."""
        found = self.query(query)
        return found[0][1] if found else 0.0

    def has_scraped(self, query: str, value: float) -> Callable[[], bool]:
        return lambda: self.value(query) == value


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[Server]:
    """A Prometheus of this test."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = Server(tmp_path, port)
    server.scrape()
    job: dict[str, Any] = {
        "job_name": "pods",
        "file_sd_configs": [
            {
                "files": [str(tmp_path / "targets.json")],
                "refresh_interval": "1s",
            }
        ],
    }
    times = {"scrape_interval": "1s", "scrape_timeout": "1s"}
    (tmp_path / "prometheus.yml").write_text(
        yaml.safe_dump({"global": times, "scrape_configs": [job]})
    )
    process = subprocess.Popen(
        [
            tool("prometheus"),
            f"--config.file={tmp_path}/prometheus.yml",
            f"--storage.tsdb.path={tmp_path}/data",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def is_ready() -> bool:
        try:
            return plain_http.get(f"{server.url}/-/ready").status_code == 200
        except httpx.TransportError:
            return False

    until(is_ready)
    yield server
    process.terminate()
    process.wait()


@pytest.fixture
def pod(
    command: Command, address: Address, tmp_path: Path
) -> Callable[[], tuple[Process, str]]:
    """Starts a pod, which waits a little before it ends."""
    (tmp_path / "costly.py").write_text(COMPONENT)

    def start() -> tuple[Process, str]:
        process = command(
            "serve", "costly:guide", "--host", "127.0.0.1", "--port", "0",
            cwd=tmp_path, PYTHONPATH=str(tmp_path), PODWRIGHT_DRAIN_DELAY="3",
        )  # fmt: skip
        return process, address(process)

    return start


def run(url: str) -> None:
    with httpx.Client(verify=NO_AUTHORITIES, timeout=60) as client:
        assert client.post(f"{url}/run", json={"input": "x"}).status_code == 200


def test_pods_that_live_for_seconds(
    prometheus: Server, pod: Callable[[], tuple[Process, str]]
) -> None:
    """A pod that is scaled from zero, works and goes, and the one of the next rollout, have all of their cost counted.

    The first value of a series is 0, so that `increase()` sees the first call; its only error is what Prometheus adds
    for the time between the last scrape and the end of the window.
    """
    books = 0.0
    for runs in (1, 2):
        process, url = pod()
        prometheus.scrape(url)
        instance = url.removeprefix("http://")
        cost = f'sum(podwright_cost_usd_total{{instance="{instance}"}})'
        series = f'podwright_cost_usd_total{{instance="{instance}"}}'
        until(partial(prometheus.query, series))
        for _ in range(runs):
            run(url)
        books += runs * COST
        process.send_signal(signal.SIGTERM)
        until(prometheus.has_scraped(cost, runs * COST))
        check_end(process)
        prometheus.scrape()
    for metric, booked in (
        ("podwright_cost_usd_total", books),
        ("podwright_run_cost_usd_sum", books),
        ('podwright_tokens_total{type="input"}', 2 * books / COST),
        ('podwright_tokens_total{type="output"}', books / COST),
        ("podwright_runs_total", books / COST),
    ):
        counted = prometheus.value(f"sum(increase({metric}[10m]))")
        assert booked <= counted < 1.7 * booked, metric
        last = prometheus.value(f"sum(max_over_time({metric}[10m]))")
        assert last == booked, "the last scrapes have all of it"
    by_root = 'sum by (root, caller) (increase(podwright_cost_usd_total{component="guide"}[10m]))'
    assert [labels for labels, _ in prometheus.query(by_root)] == [
        {"root": "guide"}
    ]


def test_panels_after_a_rollout(
    prometheus: Server, pod: Callable[[], tuple[Process, str]]
) -> None:
    """The panels of cost and tokens show what both pods have used, also after the first one has gone."""
    first, url = pod()
    prometheus.scrape(url)
    until(lambda: prometheus.query("podwright_cost_usd_total"))
    run(url)
    second, other = pod()
    prometheus.scrape(url, other)
    until(
        lambda: (
            len(
                prometheus.query("sum by (instance) (podwright_cost_usd_total)")
            )
            == 2
        )
    )
    first.send_signal(signal.SIGTERM)
    until(prometheus.has_scraped("sum(podwright_cost_usd_total)", COST))
    check_end(first)
    prometheus.scrape(other)
    run(other)
    until(
        prometheus.has_scraped(
            f'podwright_cost_usd_total{{instance="{other.removeprefix("http://")}"}}',
            COST,
        )
    )
    for title, target in TARGETS.items():
        if (
            "cost_usd" not in target["expr"]
            or "answered" in target["expr"]
            or "runs_limit" in target["expr"]
        ):
            continue
        variables = {
            "namespace": ".*",
            "job": ".*",
            "component": ".*",
            "root": ".*",
        }
        query = (
            target["expr"]
            .replace("$__range", "5m")
            .replace("$__rate_interval", "5m")
        )
        for name, value in variables.items():
            query = query.replace(f"${name}", value)
        assert any(value > 0 for _, value in prometheus.query(query)), title
    second.send_signal(signal.SIGTERM)
    check_end(second)
