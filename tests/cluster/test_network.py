"""The network policies of the newsroom, as the cluster enforces them for every pair of pods."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.cluster.cluster import Client, Namespace
from tests.helm.conftest import example_values

REACH = (Path(__file__).parent / "pods" / "reach.py").read_text()
STAFF = {"researcher", "reviewer", "writer"}
COMPONENTS = {"desk", "newsroom"} | STAFF
ALLOWED = dict.fromkeys(("desk", "newsroom"), STAFF) | {"friend": COMPONENTS}
"""The components that each pod may connect to."""


class Network:
    """The newsroom, a pod that its policies admit (`friend`), one of the same namespace, and one of another."""

    def __init__(self, namespace: Namespace, other: Namespace) -> None:
        self.namespace = namespace
        values = example_values("newsroom")
        values["defaults"]["networkPolicy"] = {"from": [{"podSelector": {"matchLabels": {"app": "friend"}}}]}
        namespace.install(values)
        self.pods = {"friend": Client.start(namespace, "friend"), "stranger": Client.start(namespace, "stranger")}
        # with the labels of a component that may connect to others
        labels = {"app.kubernetes.io/name": "podwright", "app.kubernetes.io/instance": "fleet"}
        labels |= {"app.kubernetes.io/component": "newsroom"}
        self.pods["impostor"] = Client.start(other, "impostor", labels=labels)
        for component in COMPONENTS:
            (pod,) = namespace.objects("pods", f"app.kubernetes.io/component={component}")
            self.pods[component] = Client(namespace, pod["metadata"]["name"])

    def reached(self, name: str, addresses: list[str]) -> set[str]:
        """Which of some addresses, `host:port`, a pod reaches."""
        pod = self.pods[name]
        return set(json.loads(pod.namespace.exec(pod.name, "python", "-c", REACH, json.dumps(addresses))))


@pytest.fixture(scope="module")
def network(make_namespace: Callable[[], Namespace]) -> Network:
    return Network(make_namespace(), make_namespace())


def test_every_pair(network: Network) -> None:
    """A pod reaches, by name and by address, the components that the policies allow, and no other."""
    space = network.namespace
    hosts = {component: f"fleet-{component}.{space.name}.svc.cluster.local" for component in COMPONENTS}
    addresses = {f"{host}:8000": component for component, host in hosts.items()}
    for component in COMPONENTS:
        (pod,) = space.objects("pods", f"app.kubernetes.io/component={component}")
        addresses[f"{pod['status']['podIP']}:8000"] = component

    def reached() -> dict[str, set[str]]:
        with ThreadPoolExecutor(4) as pool:
            found = pool.map(lambda name: network.reached(name, list(addresses)), network.pods)
        return dict(zip(network.pods, found, strict=True))

    # a pod reaches itself, because the traffic does not leave it
    expected = {
        name: {address for address, component in addresses.items() if component in ALLOWED.get(name, set())}
        for name in network.pods
    }
    space.until(lambda: without_itself(reached(), addresses) == expected, 60)
    assert without_itself(reached(), addresses) == expected


def without_itself(reached: dict[str, set[str]], addresses: dict[str, str]) -> dict[str, set[str]]:
    return {name: {each for each in found if addresses[each] != name} for name, found in reached.items()}


def test_what_a_component_reaches_besides(network: Network) -> None:
    """A component reaches the cluster's DNS, but no API server, node, or other pod; a stranger does."""
    (node, *_) = network.namespace.objects("nodes")
    (address,) = [each["address"] for each in node["status"]["addresses"] if each["type"] == "InternalIP"]
    targets = ["kubernetes.default.svc.cluster.local:443", f"{address}:10250"]
    assert network.reached("stranger", targets) == set(targets)
    for component in COMPONENTS:
        assert network.reached(component, targets) == set()
    dns = ["kube-dns.kube-system.svc.cluster.local:53"]
    assert network.reached("writer", dns) == set(dns)
