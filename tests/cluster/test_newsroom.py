"""A run of the newsroom across its pods, as its caller, Jaeger and Prometheus see it."""

from __future__ import annotations

import json
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
    """A run crosses four pods as one trace in Jaeger, and the usage in its response is that of spans and metrics."""
    selector = f'{{namespace="{namespace.name}"}}'
    namespace.until(lambda: len(watchers.query(f"up{selector} == 1")) == len(PODS | {"desk"}))
    client = Client.start(namespace)
    url = "http://fleet-newsroom:8000/run?trace=true"
    # a new pod is refused until the network policies know it
    namespace.until(lambda: client.request("GET", "http://fleet-newsroom:8000/health")[0] == 200)
    status, result = client.request("POST", url, namespace.key("newsroom"), {"input": "the moon"})
    assert status == 200, result
    usage = result["usage"]

    run = json.dumps({"podwright.run.id": result["events"][0]["run_id"]})

    def trace() -> dict[str, Any]:
        """The trace, once the spans of all pods have arrived."""
        found = watchers.traces("newsroom", tags=run)
        whole = [each for each in found if {p["serviceName"] for p in each["processes"].values()} == PODS]
        return whole[0] if whole and len(found) == 1 and has_root(whole[0]) else {}

    found = namespace.until(trace)
    calls = [tags(span) for span in found["spans"] if span["operationName"].startswith("chat ")]
    assert len(calls) == usage["model_calls"]
    for kind in ("input_tokens", "output_tokens"):
        assert sum(call[f"gen_ai.usage.{kind}"] for call in calls) == usage[kind]

    def counted(metric: str, label: str) -> dict[str, float]:
        series = watchers.query(f"sum by ({label}) ({metric}{selector}) > 0")
        return {labels[label]: value for labels, value in series}

    tokens = {"input": usage["input_tokens"], "output": usage["output_tokens"]}
    # each query sees other scrapes
    namespace.until(
        lambda: (
            tokens.items() <= counted("podwright_tokens_total", "type").items()
            and counted("podwright_model_calls_total", "namespace") == {namespace.name: usage["model_calls"]}
            and counted("podwright_runs_total", "component").keys() == PODS
        )
    )
    assert counted("podwright_runs_total", "component")["newsroom"] == 1


def has_root(trace: dict[str, Any]) -> bool:
    """Whether a trace has the span without a parent, and every other parent."""
    parents = {reference["spanID"] for span in trace["spans"] for reference in span["references"]}
    ids = {span["spanID"] for span in trace["spans"]}
    return parents <= ids and any(not span["references"] for span in trace["spans"])
