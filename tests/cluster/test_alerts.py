"""The alerts and the dashboard on a release in which everything goes wrong, and the end of the alerts."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.cluster import TIMEOUT, Client, Load, Namespace
from tests.cluster.watchers import Watchers
from tests.helm.conftest import Manifest
from tests.helpers import ROOT, until
from tests.mcp_pod import SCRIPT, searcher, tools_lock
from tests.observability.support import ALERTS, TARGETS

from podwright.mcp.lock import LOCK_FILE

PODS = Path(__file__).parent / "pods"
FAILING = {"PodwrightFailingFast", "PodwrightFailingSlowly"}
EXPECTED = {
    "failing": {"PodwrightModelFailing", "PodwrightRetries"} | FAILING,
    "limited": {"PodwrightBudgetStops"} | FAILING,
    "costly": {"PodwrightCostPerHour"},
    "unpriced": {"PodwrightUnpricedModelCalls"},
    "full": {"PodwrightWaiting", "PodwrightRejecting"} | FAILING,
    "crashing": {"PodwrightDown"},
    "toolless": {"PodwrightMCPServerDown", "PodwrightToolFailing"} | FAILING,
    "stranded": {"PodwrightRunsDatabaseDown"},
    "queued": {"PodwrightRunsQueued"},
    "interrupted": {
        "PodwrightRunsInterrupted",
        "PodwrightRunsWithoutBlueprint",
    },
}
"""The alerts of each component."""
ELSEWHERE = {
    "PodwrightBudgetBurn", "PodwrightCostSpike", "PodwrightInvalidPriceFile", "PodwrightSlow", "PodwrightSpansDropped",
    "PodwrightWebhookFailing",
}  # fmt: skip
"""Alerts that only the tests of the rules have: their causes take a day, or a failure of something else."""
PRICES = {
    "openai/good": 1,
    "openai/down": 1,
    "openai/slow-0.5": 1,
    "openai/costly": 100_000,
}
"""USD per million tokens."""
CALLERS = [
    "failing/run", "failing/run", "limited/run", "costly/run", "costly/run/stream", "unpriced/run", *["full/run"] * 8,
    "queued/runs", "queued/runs", "toolless/run",
]  # fmt: skip
"""Requests that are sent again and again."""
TALKING = "http://fleet-talking:8000/run"
TURN = {"input": "the moon", "session": "s"}
"""A turn of a conversation, and where it is sent to."""
TOOLS = '''
def search(query: str) -> str:
    """Search the archive."""
    return "Nothing found."
'''
LOST_RUN = "00000000000000000000000000000000"
ADD_LOST_RUN = """
    INSERT INTO podwright_runs SELECT (jsonb_populate_record(run, '{
        "id": "00000000000000000000000000000000", "status": "waiting_for_approval", "digest": "of another blueprint"
    }')).* FROM podwright_runs AS run WHERE component = 'interrupted' LIMIT 1
"""
"""A statement that adds a run of a blueprint that no pod has."""
DEADLY = '''
import os
import signal


def search(query: str) -> str:
    """Search the archive, which ends the process."""
    os.kill(os.getpid(), signal.SIGKILL)
'''
STORED: Manifest = {"store": "postgres", "postgres": {"secret": "database"}}
"""The values of a component whose background runs are stored."""


def component(
    name: str, model: str, files: Manifest, **settings: Any
) -> Manifest:
    parameters = {
        "type": "object",
        "properties": {"query": {"type": "string"}},
        "required": ["query"],
    }
    function = {
        "name": "search",
        "description": "Search the archive.",
        "parameters": parameters,
    }
    blueprint = {
        "type": "Agent", "version": "1", "name": name, "instructions": "Write a line.",
        "config": {"model": f"openai/{model}", "max_loops": 3},
        "tools": [{"name": "search", "schema": {"type": "function", "function": function}}],
    }  # fmt: skip
    return {
        "blueprint": {"inline": blueprint},
        "files": files,
        "settings": settings,
    }


def toolless(host: str) -> Manifest:
    """A component that calls the tool of an MCP server at a host."""
    return {
        "blueprint": {"inline": searcher("toolless")},
        "files": {LOCK_FILE: tools_lock().to_text()},
        "mcpServers": {"tools": f"http://{host}:8000/mcp"},
    }


def prices(models: Mapping[str, float]) -> dict[str, str]:
    return {
        "prices.yaml": json.dumps(
            {
                model: {"input": price, "output": price}
                for model, price in models.items()
            }
        )
    }


def broken(watchers: Watchers) -> Manifest:
    """The values of a release whose components each have a cause of alerts."""
    unreachable = {
        "store": "postgres",
        "postgres": {"secret": "unreachable", "migrate": False},
    }
    files = {"tools.py": TOOLS}
    peers = [watchers.peer, {"podSelector": {"matchLabels": {"app": "client"}}}]
    return {
        "apiKeys": {"enabled": False},
        "prometheusRule": {"enabled": True},
        "defaults": {
            "env": {
                "OPENAI_BASE_URL": "http://provider:8000/v1",
                "OPENAI_API_KEY": "k",
            },
            "files": prices(PRICES),
            "settings": {"prices": "/component/prices.yaml"},
            "monitor": {
                "type": "service",
                "interval": "1s",
                "scrapeTimeout": "1s",
            },
            "networkPolicy": {
                "from": peers,
                "egress": [{"to": [{"podSelector": {}}]}],
            },
        },
        "components": {
            "failing": component("failing", "down", files),
            "limited": component(
                "limited", "good", files, run_tokens=10, run_cost=1000
            ),
            "costly": component("costly", "costly", files),
            "unpriced": component("unpriced", "unheard-of", files),
            "full": component(
                "full", "slow-0.5", files, max_runs=1, max_waiting=3
            ),
            "crashing": component("crashing", "good", {}),
            "toolless": toolless("absent"),
            "stranded": component("stranded", "good", files)
            | {"runs": unreachable},
            "queued": component("queued", "slow-0.5", files, background_runs=1)
            | {"runs": STORED},
            "talking": component("talking", "good", files, conversations=True)
            | {"runs": STORED},
            "interrupted": component(
                "interrupted", "good", {"tools.py": DEADLY}
            )
            | {"runs": STORED},
        },
    }


def mended(values: Manifest) -> Manifest:
    """These values, with what the runbooks advise, and without the rules."""
    values = copy.deepcopy(values) | {"prometheusRule": {"enabled": False}}
    components: dict[str, Manifest] = values["components"]
    for name in ("failing", "costly"):
        components[name]["blueprint"]["inline"]["config"]["model"] = (
            "openai/good"
        )
    components["limited"]["settings"]["run_tokens"] = 100_000
    values["defaults"]["files"] = prices(PRICES | {"openai/unheard-of": 1})
    components["full"]["settings"]["max_runs"] = 16
    for name in ("crashing", "interrupted"):
        components[name]["files"] = {"tools.py": TOOLS}
    components["toolless"] = toolless("tools")
    components["stranded"]["runs"] = STORED
    components["queued"]["settings"]["background_runs"] = 16
    return values


def hastened(rule: Manifest) -> Manifest:
    """A PrometheusRule with minutes instead of hours, and seconds instead of minutes."""
    spec = re.sub(
        r"(?<=\d)[hm]\b",
        lambda unit: {"h": "m", "m": "s"}[unit[0]],
        json.dumps(rule["spec"]),
    )
    spec = spec.replace("> 600", "> 10")  # seconds that background runs wait
    return {**rule, "metadata": {"name": "hastened"}, "spec": json.loads(spec)}


@pytest.fixture(scope="module")
def values(watchers: Watchers) -> Manifest:
    return broken(watchers)


@pytest.fixture(scope="module")
def namespace(
    make_namespace: Callable[..., Namespace], loaded_full: str, values: Manifest
) -> Iterator[Namespace]:
    """A namespace with the release, its hastened alerts, and a pod that sends requests to its components."""
    namespace = make_namespace(loaded_full)
    with ThreadPoolExecutor() as executor:
        provider = executor.submit(
            namespace.serve, "provider", PODS / "provider.py"
        )
        tools = executor.submit(namespace.serve, "tools", SCRIPT)
        client = executor.submit(Client.start, namespace)
        namespace.start_database()
        url = {"url": "postgresql://podwright@provider/podwright"}
        namespace.apply(
            [
                {
                    "apiVersion": "v1",
                    "kind": "Secret",
                    "metadata": {"name": "unreachable"},
                    "stringData": url,
                }
            ]
        )
        namespace.install(values, options=["--wait=hookOnly"])
        rule = namespace.get("prometheusrule", "fleet-alerts")
        # its own alerts would end after hours
        namespace.kubectl("delete", "prometheusrule", "fleet-alerts")
        namespace.apply([hastened(rule)])
        provider.result()
        tools.result()
    namespace.until(
        lambda: (
            interrupted(
                client.result(), "POST", "/runs", {"input": "the moon"}
            )[0]
            == 202
        )
    )
    namespace.query(ADD_LOST_RUN)
    urls = [
        f"http://fleet-{caller.replace('/', ':8000/', 1)}" for caller in CALLERS
    ]
    with (
        Load(client.result(), urls, body={"input": "the moon"}, pause=1),
        Load(client.result(), [TALKING], body=TURN, pause=1),
    ):
        yield namespace


def interrupted(
    client: Client, method: str, path: str, body: Manifest | None = None
) -> tuple[int, Any]:
    """A response of the component whose background runs are interrupted."""
    return client.request(
        method, f"http://fleet-interrupted:8000{path}", body=body
    )


def firing(namespace: Namespace, watchers: Watchers) -> set[tuple[str, str]]:
    """The jobs and names of the alerts that Alertmanager has."""
    return {
        (alert["labels"]["job"], alert["labels"]["alertname"])
        for alert in watchers.alerts(namespace.name)
    }


def wait(
    namespace: Namespace, watchers: Watchers, expected: set[tuple[str, str]]
) -> None:
    """Wait until exactly these alerts fire; a failure reports the difference."""
    until(
        lambda: firing(namespace, watchers) == expected,
        TIMEOUT,
        lambda: firing(namespace, watchers) ^ expected,
        1,
    )


def test_each_alert_fires(namespace: Namespace, watchers: Watchers) -> None:
    """Alertmanager gets each alert for its cause, and no other, with a link to its section of the runbook."""
    assert set[str]().union(*EXPECTED.values()) == ALERTS - ELSEWHERE
    wait(
        namespace,
        watchers,
        {
            (f"fleet-{name}", alert)
            for name, alerts in EXPECTED.items()
            for alert in alerts
        },
    )
    sections = re.findall(
        "^### (.*)$",
        (ROOT / "docs" / "operations.md").read_text(),
        re.MULTILINE,
    )
    links = [
        alert["annotations"]["runbook_url"].rpartition("/")[2]
        for alert in watchers.alerts(namespace.name)
    ]
    assert set(links) <= {
        f"operations.html#{section.lower()}" for section in sections
    }


def fill(expression: str, namespace: str) -> str:
    """The expression as Grafana sends it with all jobs and components of a namespace selected."""
    variables = {
        "namespace": namespace,
        "job": ".*",
        "component": ".*",
        "root": ".*",
        "__range": "1m",
        "__rate_interval": "10s",
    }
    for name, value in variables.items():
        expression = expression.replace(f"${name}", value)
    assert "$" not in expression, expression
    return expression


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_each_query_of_the_dashboard_has_data(
    namespace: Namespace, watchers: Watchers, target: dict[str, str]
) -> None:
    """Each query returns numbers, with the labels of its legend."""
    query = fill(target["expr"], namespace.name)

    def labels() -> list[dict[str, str]]:
        return [
            labels
            for labels, value in watchers.query(query)
            if math.isfinite(value)
        ]

    for each in namespace.until(labels):
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= set(
            each
        ), each


def test_the_alerts_end(
    namespace: Namespace, watchers: Watchers, values: Manifest
) -> None:
    """After an upgrade that mends the causes, and under the same load, all alerts are resolved."""
    namespace.install(mended(values))
    client = Client(namespace, "client")

    def is_lost_run_cancelled() -> bool:
        path = f"/runs/{LOST_RUN}/cancel"
        return interrupted(client, "POST", path)[0] in (200, 202)

    namespace.until(is_lost_run_cancelled)

    def have_ended() -> bool:
        status, found = interrupted(client, "GET", "/runs?status=interrupted")
        # a new pod is refused until the network policies know it
        if status != 200:
            return False
        # a pod that is about to stop may take a resumed run, and interrupt it once more
        statuses = {
            interrupted(client, "POST", f"/runs/{run['id']}/resume")[0]
            for run in found["runs"]
        }
        return statuses <= {202} and not firing(namespace, watchers)

    until(
        have_ended,
        2 * TIMEOUT,
        lambda: (firing(namespace, watchers), namespace.kubectl("get", "pods")),
        1,
    )
