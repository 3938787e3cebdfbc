"""A run of the newsroom across its pods, as its caller, Jaeger and Prometheus see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.cluster.cluster import Client, Namespace
from tests.cluster.watchers import Watchers
from tests.helm.conftest import example_values

PODS = {"newsroom", "researcher", "writer", "reviewer"}


@pytest.fixture(scope="module")
def namespace(make_namespace: Callable[[], Namespace], watchers: Watchers) -> Namespace:
    """A namespace with the newsroom, which Prometheus scrapes every second."""
    namespace, values = make_namespace(), example_values("newsroom")
    values["telemetry"] = {"endpoint": watchers.endpoint}
    values["defaults"] |= {
        "monitor": {"type": "service", "interval": "1s", "scrapeTimeout": "1s"},
        "networkPolicy": {"from": [watchers.peer, {"podSelector": {"matchLabels": {"app": "client"}}}]},
    }
    namespace.install(values)
    return namespace


def tags(span: dict[str, Any]) -> dict[str, Any]:
    return {tag["key"]: tag["value"] for tag in span["tags"]}


def test_a_run_is_one_trace_and_counted_once(namespace: Namespace, watchers: Watchers) -> None:
    """A run across four pods is one trace in Jaeger; the usage in its response is that of the spans and the metrics."""
    selector = f'namespace="{namespace.name}"'
    namespace.until(lambda: len(watchers.query(f"up{{{selector}}} == 1")) == len(PODS | {"desk"}))
    client = Client.start(namespace)
    status, response = client.request(
        "POST", "http://fleet-newsroom:8000/run?details=true", namespace.key("newsroom"), {"input": "the moon"}
    )
    print(response)
    assert status == 200, response
