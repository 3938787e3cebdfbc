"""The network policies, evaluated for every pair of pods as a cluster does."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from itertools import product

import pytest
from tests.helm.conftest import (
    SEEDS,
    Helm,
    Manifest,
    by_name,
    example_values,
    helm4,
    jobs_of,
    rendered,
)

from podwright_service.fleet.releases import split


@dataclass(frozen=True)
class Pod:
    name: str
    namespace: str = "prod"
    labels: dict[str, str] = field(default_factory=dict, hash=False)


Peer = Pod | str
"""A pod, or an IP address outside of the cluster."""

DNS = Pod("dns", "kube-system", {"k8s-app": "kube-dns"})
PROVIDER = "203.0.113.9"
DATABASE = "198.51.100.20"
WEBHOOK = "198.51.100.30"


class Policies:
    """What the network policies (`networking.k8s.io/v1`) in some manifests allow."""

    def __init__(self, manifests: list[Manifest]) -> None:
        self._policies = [
            each for each in manifests if each["kind"] == "NetworkPolicy"
        ]
        self._selecting: dict[tuple[str, Pod], list[Manifest]] = {}

    def allow(
        self,
        source: Peer,
        target: Peer,
        port: int = 8000,
        protocol: str = "TCP",
    ) -> bool:
        """Whether a connection is allowed by the policies of both sides."""
        egress = self.allow_side("Egress", source, target, port, protocol)
        return egress and self.allow_side(
            "Ingress", target, source, port, protocol
        )

    def allow_side(
        self,
        side: str,
        pod: Peer,
        peer: Peer,
        port: int = 8000,
        protocol: str = "TCP",
    ) -> bool:
        """Whether the policies of a pod allow `Egress` to a peer, or `Ingress` from it."""
        if isinstance(pod, str):
            return True
        if (side, pod) not in self._selecting:
            self._selecting[side, pod] = [
                policy["spec"]
                for policy in self._policies
                if policy["metadata"]["namespace"] == pod.namespace
                and side in policy["spec"]["policyTypes"]
                and selects(policy["spec"]["podSelector"], pod.labels)
            ]
        rules = [
            rule
            for spec in self._selecting[side, pod]
            for rule in spec.get(side.lower()) or []
        ]
        peers = "to" if side == "Egress" else "from"
        return not self._selecting[side, pod] or any(
            has_port(rule, port, protocol)
            and has_peer(rule.get(peers), peer, pod.namespace)
            for rule in rules
        )


def has_port(rule: Manifest, port: int, protocol: str) -> bool:
    ports = rule.get("ports")
    return not ports or any(
        each["port"] == port and each.get("protocol", "TCP") == protocol
        for each in ports
    )


def has_peer(peers: list[Manifest] | None, peer: Peer, namespace: str) -> bool:
    return not peers or any(is_peer(each, peer, namespace) for each in peers)


def is_peer(rule: Manifest, peer: Peer, namespace: str) -> bool:
    block = rule.get("ipBlock")
    if isinstance(peer, str):
        return (
            block is not None
            and within(peer, block["cidr"])
            and not any(
                within(peer, excepted) for excepted in block.get("except", [])
            )
        )
    if block is not None:
        return False
    spaces = rule.get("namespaceSelector")
    name = {"kubernetes.io/metadata.name": peer.namespace}
    in_namespace = (
        peer.namespace == namespace if spaces is None else selects(spaces, name)
    )
    return in_namespace and selects(rule.get("podSelector") or {}, peer.labels)


def within(address: str, block: str) -> bool:
    return ipaddress.ip_address(address) in ipaddress.ip_network(block)


def selects(selector: Manifest, labels: dict[str, str]) -> bool:
    assert set(selector) <= {"matchLabels"}
    return selector.get("matchLabels", {}).items() <= labels.items()


def pods_of(manifests: list[Manifest]) -> tuple[dict[str, Pod], dict[str, Pod]]:
    """The pods of the components, and the pods of `helm test`, by component."""
    deployments = [each for each in manifests if each["kind"] == "Deployment"]
    components, tests = (
        {pod.labels["app.kubernetes.io/component"]: pod for pod in pods}
        for pods in (
            map(pod_of, deployments),
            map(pod_of, jobs_of(manifests, "test")),
        )
    )
    return components, tests


def pod_of(manifest: Manifest) -> Pod:
    """A pod that a Deployment or a Job creates."""
    labels = manifest["spec"]["template"]["metadata"]["labels"]
    return Pod(manifest["metadata"]["name"], labels=labels)


def edges(values: Manifest) -> set[tuple[str, str]]:
    """Each component with each of its agents in the release."""
    return {
        (caller, agent if isinstance(agent, str) else agent["component"])
        for caller, component in values["components"].items()
        for agent in component.get("agents", [])
        if isinstance(agent, str) or "component" in agent
    }


@pytest.mark.parametrize("example", ["minimal", "newsroom", "production"])
def test_a_component_may_call_its_agents_only(example: str) -> None:
    """By the policies of either side, a component may call its agents on their port, and no other component."""
    values = example_values(example)
    policies = Policies(rendered(example))
    components, _ = pods_of(rendered(example))
    pairs = list(product(components, repeat=2))
    sent = {
        (a, b)
        for a, b in pairs
        if policies.allow_side("Egress", components[a], components[b])
    }
    received = {
        (a, b)
        for a, b in pairs
        if policies.allow_side("Ingress", components[b], components[a])
    }
    assert sent == received == edges(values)
    assert len(components) == len(values["components"])
    for caller, called in edges(values):
        assert not policies.allow(components[caller], components[called], 8001)
        assert not policies.allow(
            components[caller], components[called], 8000, "UDP"
        )


def test_a_component_may_call_its_agents_in_other_releases() -> None:
    """In a fleet that is split, a component may call its agents in all releases, and no other component."""
    values = example_values("newsroom")
    parts = split({**values, "apiKeys": SEEDS}, "fleet", 2)
    manifests = [
        manifest
        for release, part in parts.items()
        for manifest in helm4(part, release)
    ]
    policies = Policies(manifests)
    (components, _) = pods_of(manifests)
    assert len(parts) > 1
    allowed = {
        (a, b)
        for a, b in product(components, repeat=2)
        if policies.allow(components[a], components[b])
    }
    assert allowed == edges(values)


def test_peers_outside_of_the_release(helm: Helm) -> None:
    """Prometheus, the ingress and a component's own test may call; DNS, providers and the collector can be called."""
    manifests = helm(example_values("production"))
    (components, tests) = pods_of(manifests)
    policies = Policies(manifests)
    prometheus = Pod(
        "prometheus", "monitoring", {"app.kubernetes.io/name": "prometheus"}
    )
    controller = Pod("nginx", "ingress", {"app.kubernetes.io/name": "nginx"})
    collector = Pod("collector", "observability")
    strangers: list[Peer] = [
        Pod("neighbour", "prod", {"app.kubernetes.io/name": "podwright"}),
        Pod("same-labels", "elsewhere", components["newsroom"].labels),
        Pod("grafana", "monitoring", {"app.kubernetes.io/name": "grafana"}),
        Pod("prometheus", "elsewhere", prometheus.labels),
        "192.0.2.1",
    ]
    for name, pod in components.items():
        assert policies.allow(prometheus, pod)
        assert policies.allow(controller, pod) is (name == "newsroom")
        assert {
            each for each, test in tests.items() if policies.allow(test, pod)
        } == {name} & set(tests)
        assert not [
            each
            for each in strangers
            if policies.allow(each, pod) or policies.allow(pod, each)
        ]
        assert all(
            policies.allow(pod, DNS, 53, protocol)
            for protocol in ("TCP", "UDP")
        )
        assert policies.allow(pod, collector, 4318)
        assert policies.allow(pod, PROVIDER, 443)
        assert policies.allow(pod, "198.51.100.7", 8443) is (name == "newsroom")
        assert policies.allow(pod, DATABASE, 5432) is (
            name in ("newsroom", "writer")
        )
        assert policies.allow(pod, WEBHOOK, 9443) is (name == "newsroom")
        others: list[tuple[Peer, int]] = [
            (Pod("other", "kube-system"), 53), (collector, 443), (Pod("other", "elsewhere"), 4318), (PROVIDER, 80),
            ("192.0.2.1", 443), *((test, 8000) for test in tests.values()),
        ]  # fmt: skip
        assert not [
            peer for peer, port in others if policies.allow(pod, peer, port)
        ]


def test_the_pod_that_creates_the_tables(helm: Helm) -> None:
    """It may connect to the database and to DNS only, and nothing to it."""
    manifests = helm(example_values("production"))
    (components, _) = pods_of(manifests)
    policies = Policies(manifests)
    (job,) = jobs_of(manifests, "migration")
    pod = pod_of(job)
    assert policies.allow(pod, DATABASE, 5432)
    assert policies.allow(pod, DNS, 53)
    for peer in (*components.values(), PROVIDER, Pod("stranger", "elsewhere")):
        assert not policies.allow(pod, peer)
        assert not policies.allow(peer, pod)


def test_the_default_policies(helm: Helm) -> None:
    """By default only its test may call a component, which reaches HTTPS anywhere but in private networks."""
    manifests = helm(
        {"components": {"x": {}, "y": {"test": {"enabled": False}}}}
    )
    (components, tests) = pods_of(manifests)
    policies = Policies(manifests)
    stranger = Pod("stranger", "elsewhere")
    assert policies.allow(tests["x"], components["x"])
    for caller in (stranger, components["x"], tests["x"]):
        assert not policies.allow(caller, components["y"])
    assert policies.allow(components["x"], PROVIDER, 443)
    private = (
        "10.0.0.1",
        "172.16.3.4",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        stranger,
    )
    assert not [
        peer for peer in private if policies.allow(components["x"], peer, 443)
    ]
    assert not policies.allow(tests["x"], PROVIDER, 443)


def test_a_component_adds_to_the_defaults(helm: Helm) -> None:
    """Peers, models and egress rules that a component adds are allowed besides those of the defaults, for it alone."""
    team = {"podSelector": {"matchLabels": {"team": "news"}}}
    desk = {"podSelector": {"matchLabels": {"team": "desk"}}}
    defaults = {
        "from": [team],
        "models": [{"cidr": f"{PROVIDER}/32", "ports": [443]}],
        "egress": [{"to": [team], "ports": [{"port": 9000}]}],
    }
    added = {
        "extraFrom": [desk],
        "extraModels": [{"cidr": f"{DATABASE}/32", "ports": [8443]}],
        "extraEgress": [{"to": [desk], "ports": [{"port": 9001}]}],
    }
    manifests = helm(
        {
            "defaults": {"networkPolicy": defaults},
            "components": {
                "more": {"networkPolicy": added},
                "none": {
                    "networkPolicy": {"from": [], "models": [], "egress": []},
                    "test": {"enabled": False},
                },
                "plain": {},
            },
        }
    )
    (components, _) = pods_of(manifests)
    policies = Policies(manifests)
    news = Pod("news", labels={"team": "news"})
    boss = Pod("boss", labels={"team": "desk"})

    def allowed(pod: Pod) -> list[bool]:
        return [
            policies.allow(news, pod),
            policies.allow(pod, PROVIDER, 443),
            policies.allow(pod, news, 9000),
            policies.allow(boss, pod),
            policies.allow(pod, DATABASE, 8443),
            policies.allow(pod, boss, 9001),
        ]

    assert allowed(components["plain"]) == [True] * 3 + [False] * 3
    assert allowed(components["more"]) == [True] * 6
    assert allowed(components["none"]) == [False] * 6


def test_the_default_policies_for_ipv6(helm: Helm) -> None:
    """A provider, a database, a webhook and a component elsewhere may have IPv6 addresses; private networks not."""
    component = {
        "agents": [
            {"name": "near", "url": "http://[2001:db8::9]:8443"},
            {"name": "port-80", "url": "http://[2001:db8::10]"},
            {
                "name": "far",
                "url": "https://far.example",
                "proxy": "http://proxy.example:3128",
            },
        ],
        "runs": {"store": "postgres", "postgres": {"secret": "database"}},
        "webhook": {
            "url": "https://hooks.example:9443/podwright",
            "secret": "webhook",
        },
    }
    manifests = helm({"components": {"x": component}})
    (components, _) = pods_of(manifests)
    policies = Policies(manifests)
    for port in (443, 5432, 9443, 8443, 80, 3128):
        assert policies.allow(components["x"], "2001:db8::9", port)
        assert policies.allow(components["x"], PROVIDER, port)
    assert not policies.allow(components["x"], "2001:db8::9", 8000)
    private = ("fd00:ec2::254", "fc00::1", "fe80::1", "64:ff9b:1::a00:1")
    assert not [
        peer for peer in private if policies.allow(components["x"], peer, 443)
    ]


def test_two_releases_cannot_call_each_other(helm: Helm) -> None:
    """Components of one release cannot call those of another, although they have the same names."""
    values = example_values("newsroom")
    blue = helm(values, "blue")
    green = helm(values, "green")
    policies = Policies(blue + green)
    for one, other in product(
        pods_of(blue)[0].values(), pods_of(green)[0].values()
    ):
        assert not policies.allow(one, other)
        assert not policies.allow(other, one)


OPENSHIFT = Pod(
    "dns",
    "openshift-dns",
    {"dns.operator.openshift.io/daemonset-dns": "default"},
)
OWN = Pod("dns", "resolvers", {"app": "resolver"})


def in_namespace(name: str) -> Manifest:
    """A network policy peer: the pods of a namespace."""
    labels = {"kubernetes.io/metadata.name": name}
    return {"namespaceSelector": {"matchLabels": labels}}


@pytest.mark.parametrize(
    ("dns", "reached"),
    [
        (None, {(DNS, 53), (OPENSHIFT, 5353)}),
        (
            [in_namespace("openshift-dns")],
            {(OPENSHIFT, 53), (OPENSHIFT, 5353)},
        ),
        (
            [
                {**in_namespace("resolvers"), "ports": [1053]},
                {**in_namespace("kube-system"), "ports": [53]},
            ],
            {(OWN, 1053), (DNS, 53)},
        ),
    ],
    ids=["default", "a peer", "peers with ports"],
)
def test_where_dns_is(
    helm: Helm, dns: object, reached: set[tuple[Pod, int]]
) -> None:
    """Components, their tests and migrations reach the pods of DNS at their ports, by UDP and TCP, and nothing else."""
    policy = {} if dns is None else {"networkPolicy": {"dns": dns}}
    runs = {"store": "postgres", "postgres": {"secret": "db"}}
    manifests = helm(
        {"defaults": {**policy, "runs": runs}, "components": {"x": {}}}
    )
    policies = Policies(manifests)
    jobs = jobs_of(manifests, "test") + jobs_of(manifests, "migration")
    (deployment,) = [each for each in manifests if each["kind"] == "Deployment"]
    assert len(jobs) == 2
    places = list(product((DNS, OPENSHIFT, OWN), (53, 1053, 5353)))
    for pod in map(pod_of, [deployment, *jobs]):
        for protocol in ("UDP", "TCP"):
            found = {
                (peer, port)
                for peer, port in places
                if policies.allow(pod, peer, port, protocol)
            }
            assert found == reached


def test_dns_of_a_component_is_that_of_its_test(helm: Helm) -> None:
    """The pods of `helm test` may ask the DNS of a component with another one, and so they find it."""
    dns = [{"ipBlock": {"cidr": "169.254.20.10/32"}, "ports": [53]}]
    components = {"x": {"networkPolicy": {"dns": dns}}, "y": {}}
    manifests = by_name(helm({"components": components}))
    rules = manifests["NetworkPolicy", "fleet.test"]["spec"]["egress"]
    peers = [peer for rule in rules for peer in rule["to"]]
    assert {"ipBlock": {"cidr": "169.254.20.10/32"}} in peers
    assert len(rules) == 4
