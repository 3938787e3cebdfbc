"""Components with IPv6 addresses: their Services and pods."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.cluster.cluster import Client, Cluster, Namespace
from tests.helm.conftest import Manifest

WRITER = {
    "type": "Agent",
    "name": "writer",
    "instructions": "Write.",
    "config": {"model": "offline/echo"},
    "tools": [],
}
DESK = {
    "type": "Workflow",
    "name": "desk",
    "steps": [{"type": "agent_step", "agent": "writer", "name": "writer"}],
}
FRIEND = {"podSelector": {"matchLabels": {"app": "friend"}}}
IPV6_ONLY = {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv6"]}


def values() -> Manifest:
    """A workflow and its agent, whose Services have IPv6 addresses only."""
    return {
        "defaults": {
            "service": IPV6_ONLY,
            "networkPolicy": {"from": [FRIEND]},
        },
        "components": {
            "writer": {"blueprint": {"inline": WRITER}},
            "desk": {"blueprint": {"inline": DESK}, "agents": ["writer"]},
        },
    }


@pytest.fixture(scope="module")
def namespace(
    cluster: Cluster, make_namespace: Callable[..., Namespace]
) -> Namespace:
    """The fleet, on a cluster with IPv6."""
    if not any(":" in address for address in cluster.node_addresses()):
        pytest.skip("The cluster has no IPv6: its kernel has none.")
    namespace = make_namespace()
    namespace.install(values())
    return namespace


def ipv6_addresses(namespace: Namespace, component: str) -> list[str]:
    """The IPv6 addresses of a component's pods."""
    pods = [namespace.get("pod", name) for name in namespace.pods(component)]
    return [
        address["ip"]
        for pod in pods
        for address in pod["status"]["podIPs"]
        if ":" in address["ip"]
    ]


def test_services_and_pods(namespace: Namespace) -> None:
    """A component is reached by an IPv6-only Service and by the IPv6 address of its pod, and `helm test` passes."""
    friend = Client.start(namespace, "friend")
    key = namespace.key("desk")
    service = namespace.get("service", "fleet-desk")["spec"]
    assert service["ipFamilies"] == ["IPv6"]
    assert all(":" in address for address in service["clusterIPs"])
    (address,) = ipv6_addresses(namespace, "desk")
    for host in (f"fleet-desk.{namespace.name}.svc", f"[{address}]"):
        url = f"http://{host}:8000/run"
        namespace.until(lambda url=url: friend.request("GET", url)[0])
        status, body = friend.answer("POST", url, key, {"input": "the moon"})
        assert (status, "the moon" in str(body)) == (200, True), body
    assert "Succeeded" in namespace.helm("test", "fleet")
