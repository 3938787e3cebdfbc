"""The network policies, evaluated for every pair of pods as a cluster would: what may call what, and nothing else."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import pytest
import yaml

from .conftest import CHART, Helm, Manifest, helm4

DNS = {"k8s-app": "kube-dns"}


@dataclass(frozen=True)
class Pod:
    name: str
    namespace: str = "prod"
    labels: dict[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Outside:
    """An address outside the cluster."""

    name: str


class Cluster:
    """What network policies let through (`networking.k8s.io/v1`), for pods with one policy engine between them."""

    def __init__(self, manifests: list[Manifest]) -> None:
        self._policies = [each for each in manifests if each["kind"] == "NetworkPolicy"]
        self._of: dict[tuple[str, Pod], list[Manifest]] = {}

    def lets(self, source: Pod | Outside, target: Pod | Outside, port: int, protocol: str = "TCP") -> bool:
        return self.sends(source, target, port, protocol) and self.takes(source, target, port, protocol)

    def sends(self, source: Pod | Outside, target: Pod | Outside, port: int, protocol: str = "TCP") -> bool:
        """Whether the caller's policies let it out."""
        return self._side("Egress", source, target, port, protocol)

    def takes(self, source: Pod | Outside, target: Pod | Outside, port: int, protocol: str = "TCP") -> bool:
        """Whether the policies of who is called let it in."""
        return self._side("Ingress", target, source, port, protocol)

    def _side(self, side: str, pod: Pod | Outside, peer: Pod | Outside, port: int, protocol: str) -> bool:
        if isinstance(pod, Outside):
            return True
        if (side, pod) not in self._of:
            self._of[side, pod] = [
                each["spec"]
                for each in self._policies
                if each["metadata"]["namespace"] == pod.namespace
                and side in each["spec"]["policyTypes"]
                and selects(each["spec"]["podSelector"], pod.labels)
            ]
        mine = self._of[side, pod]
        if not mine:
            return True
        peers = "to" if side == "Egress" else "from"
        return any(
            self._port(rule, port, protocol) and self._peer(rule.get(peers), peer, pod.namespace)
            for spec in mine
            for rule in spec.get(side.lower()) or []
        )

    @staticmethod
    def _port(rule: Manifest, port: int, protocol: str) -> bool:
        ports = rule.get("ports")
        return not ports or any(each["port"] == port and each.get("protocol", "TCP") == protocol for each in ports)

    @staticmethod
    def _peer(peers: list[Manifest] | None, peer: Pod | Outside, namespace: str) -> bool:
        if not peers:
            return True
        for each in peers:
            if isinstance(peer, Outside):
                if (block := each.get("ipBlock")) and within(peer.name, block["cidr"]):
                    return not any(within(peer.name, out) for out in block.get("except", []))
            elif "ipBlock" not in each:
                home = {"kubernetes.io/metadata.name": peer.namespace}
                spaces = each.get("namespaceSelector")
                in_space = peer.namespace == namespace if spaces is None else selects(spaces, home)
                if in_space and selects(each.get("podSelector") or {}, peer.labels):
                    return True
        return False


def within(address: str, block: str) -> bool:
    return ipaddress.ip_address(address) in ipaddress.ip_network(block)


def selects(selector: Manifest, labels: dict[str, str]) -> bool:
    assert set(selector) <= {"matchLabels"}
    return selector.get("matchLabels", {}).items() <= labels.items()


def pods_of(manifests: list[Manifest]) -> tuple[dict[str, Pod], dict[str, Pod]]:
    """The components' pods and the test pods, by component."""
    components, tests = {}, {}
    for each in manifests:
        if each["kind"] == "Deployment":
            labels = each["spec"]["template"]["metadata"]["labels"]
            components[labels["app.kubernetes.io/component"]] = Pod(each["metadata"]["name"], labels=labels)
        elif each["kind"] == "Pod":
            labels = each["metadata"]["labels"]
            tests[labels["app.kubernetes.io/component"]] = Pod(each["metadata"]["name"], labels=labels)
    return components, tests


def example(name: str) -> dict[str, Any]:
    return yaml.safe_load((CHART / "examples" / name / "values.yaml").read_text())


def edges(values: Manifest) -> set[tuple[str, str]]:
    """Who names whom as an agent."""
    return {
        (caller, agent if isinstance(agent, str) else agent["component"])
        for caller, component in values["components"].items()
        for agent in component.get("agents", [])
        if isinstance(agent, str) or "component" in agent
    }


@pytest.mark.parametrize("name", ["minimal", "newsroom", "production", "hundred"])
def test_exactly_the_edges_of_the_graph(name: str) -> None:
    """One component may call another if it names it as its agent, and not otherwise, by the policies of either side."""
    values = example(name)
    manifests = helm4(values)
    components, _ = pods_of(manifests)
    cluster = Cluster(manifests)
    for side in (cluster.sends, cluster.takes):
        pairs = {
            (caller, called)
            for caller, called in product(components, repeat=2)
            if side(components[caller], components[called], 8000)
        }
        assert pairs == edges(values)
    assert len(components) == len(values["components"])
    for caller, called in edges(values):
        assert not cluster.lets(components[caller], components[called], 8001)
        assert not cluster.lets(components[caller], components[called], 8000, "UDP")


def test_the_outside_world(helm: Helm) -> None:
    """Strangers cannot call, the test pods can; DNS, models, agents elsewhere and the collector can be called."""
    values = example("production")
    manifests = helm(values)
    components, tests = pods_of(manifests)
    cluster = Cluster(manifests)
    prometheus = Pod("prometheus", "monitoring", {"app.kubernetes.io/name": "prometheus"})
    controller = Pod("nginx", "ingress", {"app.kubernetes.io/name": "nginx"})
    strangers = [
        Pod("neighbour", "prod", {"app.kubernetes.io/name": "podwright"}),
        Pod("impostor", "elsewhere", components["newsroom"].labels),
        Pod("grafana", "monitoring", {"app.kubernetes.io/name": "grafana"}),
        Pod("prometheus", "elsewhere", {"app.kubernetes.io/name": "prometheus"}),
    ]
    dns = Pod("dns", "kube-system", DNS)
    collector = Pod("collector", "observability", {})
    for name, pod in components.items():
        assert cluster.lets(prometheus, pod, 8000)
        assert cluster.lets(controller, pod, 8000) is (name == "newsroom")
        assert not [each.name for each in strangers if cluster.lets(each, pod, 8000) or cluster.lets(pod, each, 8000)]
        assert not cluster.lets(Outside("192.0.2.1"), pod, 8000)
        assert {each for each, test in tests.items() if cluster.lets(test, pod, 8000)} == {name} & set(tests)
        assert not [each.name for each in tests.values() if cluster.lets(pod, each, 8000)]
        assert cluster.lets(pod, dns, 53)
        assert cluster.lets(pod, dns, 53, "UDP")
        assert not cluster.lets(pod, Pod("no-dns", "kube-system"), 53)
        assert cluster.lets(pod, collector, 4318)
        assert not cluster.lets(pod, collector, 443)
        assert not cluster.lets(pod, Pod("other", "elsewhere"), 4318)
        assert cluster.lets(pod, Outside("203.0.113.9"), 443)
        assert not cluster.lets(pod, Outside("203.0.113.9"), 80)
        assert not cluster.lets(pod, Outside("192.0.2.1"), 443)
        assert cluster.lets(pod, Outside("198.51.100.7"), 8443) is (name == "newsroom")


def test_by_default_models_are_public(helm: Helm) -> None:
    """Without settings a component reaches HTTPS anywhere but in private networks and at the cloud's metadata."""
    manifests = helm({"components": {"x": {}}})
    (pod,) = pods_of(manifests)[0].values()
    cluster = Cluster(manifests)
    assert cluster.lets(pod, Outside("192.0.2.1"), 443)
    (test,) = pods_of(manifests)[1].values()
    assert cluster.lets(test, pod, 8000)
    assert not cluster.lets(test, Outside("192.0.2.1"), 443)
    for address in ("10.0.0.1", "172.16.3.4", "192.168.1.1", "169.254.169.254", "100.64.0.1"):
        assert not cluster.lets(pod, Outside(address), 443), address
    assert not cluster.lets(pod, Pod("vault", "elsewhere"), 443)


def test_nobody_may_call(helm: Helm) -> None:
    """A component that nobody names and nothing tests lets nobody in, not everybody."""
    manifests = helm({"components": {"x": {"test": {"enabled": False}}, "y": {}}})
    components, tests = pods_of(manifests)
    cluster = Cluster(manifests)
    assert not cluster.lets(components["y"], components["x"], 8000)
    assert not cluster.lets(tests["y"], components["x"], 8000)
    assert not cluster.lets(Pod("other", "elsewhere"), components["x"], 8000)


def test_two_releases_are_apart(helm: Helm) -> None:
    """Components of one release cannot call those of another, though they have the same names."""
    values = example("newsroom")
    blue, green = helm(values, "blue"), helm(values, "green")
    cluster = Cluster(blue + green)
    for caller, called in product(pods_of(blue)[0].values(), pods_of(green)[0].values()):
        assert not cluster.lets(caller, called, 8000)
        assert not cluster.lets(called, caller, 8000)
