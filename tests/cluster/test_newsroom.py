"""The newsroom in two releases: its network policies for every pair of pods, and a run as its watchers see it."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.cluster import Client, Namespace, side_by_side
from tests.cluster.watchers import Watchers
from tests.helm.conftest import SEEDS, Manifest, example_values

from podwright_service.fleet.releases import split

REACH = (Path(__file__).parent / "pods" / "reach.py").read_text()
STAFF = {"researcher", "reviewer", "writer"}
COMPONENTS = {"desk", "newsroom"} | STAFF
ALLOWED = dict.fromkeys(("desk", "newsroom"), STAFF) | {"friend": COMPONENTS}
"""The components that each pod may connect to."""
PODS = {"newsroom"} | STAFF
"""The components that take part in a run of the newsroom."""


class Newsroom:
    """The newsroom, which Prometheus scrapes every second, and pods beside it.

    A pod that its policies admit (`friend`), one of the same namespace, and one of another.
    """

    def __init__(
        self, namespace: Namespace, other: Namespace, watchers: Watchers
    ) -> None:
        self.namespace = namespace
        values = example_values("newsroom")
        values["telemetry"] = {"endpoint": watchers.endpoint}
        values["defaults"] |= {
            "monitor": {
                "type": "service",
                "interval": "1s",
                "scrapeTimeout": "1s",
            },
            "networkPolicy": {
                "from": [
                    watchers.peer,
                    {"podSelector": {"matchLabels": {"app": "friend"}}},
                ]
            },
        }
        self.releases = split({**values, "apiKeys": SEEDS}, "part", 3)
        side_by_side(
            lambda release: namespace.install(self.releases[release], release),
            self.releases,
        )
        self.pods = {
            "friend": Client.start(namespace, "friend"),
            "stranger": Client.start(namespace, "stranger"),
        }
        # with the labels of a component that may connect to others
        labels = {
            "app.kubernetes.io/name": "podwright",
            "app.kubernetes.io/instance": self.release("newsroom"),
        }
        labels |= {"app.kubernetes.io/component": "newsroom"}
        self.pods["impostor"] = Client.start(other, "impostor", labels=labels)
        self.addresses: dict[str, str] = {}
        """The addresses of each component by its Service and its pod, `host:port`, with the component's name."""
        for component in COMPONENTS:
            (pod,) = namespace.objects(
                "pods", f"app.kubernetes.io/component={component}"
            )
            self.pods[component] = Client(namespace, pod["metadata"]["name"])
            service = f"{self.release(component)}-{component}.{namespace.name}.svc.cluster.local"
            self.addresses |= {
                f"{host}:8000": component
                for host in (service, pod["status"]["podIP"])
            }

    def release(self, component: str) -> str:
        """The release that has a component."""
        [release] = [
            name
            for name, values in self.releases.items()
            if component in values["components"]
        ]
        return release

    def agents_of_newsroom(self) -> list[str | Manifest]:
        """Those of its own release are names."""
        return self.releases[self.release("newsroom")]["components"][
            "newsroom"
        ]["agents"]

    def reached(self, name: str, addresses: list[str]) -> set[str]:
        """Which of some addresses, `host:port`, a pod reaches."""
        pod = self.pods[name]
        return set(
            json.loads(
                pod.namespace.exec(
                    pod.name, "python", "-c", REACH, json.dumps(addresses)
                )
            )
        )

    def reached_by_all(self) -> dict[str, set[str]]:
        """The addresses of other components that each pod reaches; traffic to itself does not leave a pod."""
        with ThreadPoolExecutor(4) as pool:
            found = pool.map(
                lambda name: self.reached(name, list(self.addresses)), self.pods
            )
        return {
            name: {
                address
                for address in addresses
                if self.addresses[address] != name
            }
            for name, addresses in zip(self.pods, found, strict=True)
        }


@pytest.fixture(scope="module")
def newsroom(
    make_namespace: Callable[[], Namespace], watchers: Watchers
) -> Newsroom:
    return Newsroom(make_namespace(), make_namespace(), watchers)


def test_every_pair(newsroom: Newsroom) -> None:
    """A pod reaches, by name and by address, the components that the policies allow, and no other."""
    expected = {
        name: {
            address
            for address, component in newsroom.addresses.items()
            if component in ALLOWED.get(name, set())
        }
        for name in newsroom.pods
    }
    newsroom.namespace.until(lambda: newsroom.reached_by_all() == expected)


def test_what_a_component_reaches_besides(newsroom: Newsroom) -> None:
    """A component reaches the cluster's DNS, but no API server, node, or other pod; a stranger does."""
    # the API server and the kubelet are reached at the first of the node's families
    (address, *_) = newsroom.namespace.cluster.node_addresses()
    targets = ["kubernetes.default.svc.cluster.local:443", f"{address}:10250"]
    assert newsroom.reached("stranger", targets) == set(targets)
    assert (
        side_by_side(
            lambda component: newsroom.reached(component, targets), COMPONENTS
        )
        == [set[str]()] * 5
    )
    dns = ["kube-dns.kube-system.svc.cluster.local:53"]
    assert newsroom.reached("writer", dns) == set(dns)


def tags(span: dict[str, Any]) -> dict[str, Any]:
    return {tag["key"]: tag["value"] for tag in span["tags"]}


def test_a_run_is_one_trace_and_counted_once(
    newsroom: Newsroom, watchers: Watchers
) -> None:
    """A run crosses four pods of two releases as one trace in Jaeger; response, spans and metrics have one usage."""
    assert {
        isinstance(agent, str) for agent in newsroom.agents_of_newsroom()
    } == {
        True,
        False,
    }
    namespace = newsroom.namespace
    client = newsroom.pods["friend"]
    release = newsroom.release("newsroom")
    selector = f'{{namespace="{namespace.name}"}}'
    namespace.until(
        lambda: len(watchers.query(f"up{selector} == 1")) == len(COMPONENTS)
    )
    url = f"http://{release}-newsroom:8000"
    # a new pod is refused until the network policies know it
    namespace.until(lambda: client.request("GET", f"{url}/health")[0] == 200)
    key = namespace.key("newsroom", release=release)
    status, result = client.answer(
        "POST", f"{url}/run?trace=true", key, {"input": "the moon"}
    )
    assert status == 200, result
    usage = result["usage"]

    run = json.dumps({"podwright.run.id": result["events"][0]["run_id"]})

    def calls_of(found: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            tags(span)
            for span in found["spans"]
            if span["operationName"].startswith("chat ")
        ]

    def trace() -> dict[str, Any]:
        """The trace, once the spans of all pods have arrived; a pod may send its own in parts."""
        found = watchers.traces("newsroom", tags=run)
        whole = [
            each
            for each in found
            if {p["serviceName"] for p in each["processes"].values()} == PODS
        ]
        is_whole = len(found) == len(whole) == 1 and has_root(whole[0])
        return (
            whole[0]
            if is_whole and len(calls_of(whole[0])) >= usage["model_calls"]
            else {}
        )

    calls = calls_of(namespace.until(trace))
    assert len(calls) == usage["model_calls"]
    for kind in ("input_tokens", "output_tokens"):
        assert (
            sum(call[f"gen_ai.usage.{kind}"] for call in calls) == usage[kind]
        )

    def counted(metric: str, label: str) -> dict[str, float]:
        series = watchers.query(f"sum by ({label}) ({metric}{selector}) > 0")
        return {labels[label]: value for labels, value in series}

    tokens = {"input": usage["input_tokens"], "output": usage["output_tokens"]}

    def is_counted() -> bool:
        """Whether all counts are complete: each query may see another scrape, and a late scrape lacks values."""
        runs = counted("podwright_runs_total", "component")
        return (
            tokens.items() <= counted("podwright_tokens_total", "type").items()
            and counted("podwright_model_calls_total", "namespace")
            == {namespace.name: usage["model_calls"]}
            and (runs.keys(), runs.get("newsroom")) == (PODS, 1)
        )

    namespace.until(is_counted)


def has_root(trace: dict[str, Any]) -> bool:
    """Whether a trace has the span without a parent, and every other parent."""
    parents = {
        reference["spanID"]
        for span in trace["spans"]
        for reference in span["references"]
    }
    ids = {span["spanID"] for span in trace["spans"]}
    return parents <= ids and any(
        not span["references"] for span in trace["spans"]
    )
