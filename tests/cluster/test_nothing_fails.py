"""Under steady load, no run fails while the pods of a fleet are replaced in each way that a cluster has."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator

import pytest
from tests.cluster.cluster import Client, Load, Namespace
from tests.helm.conftest import Manifest, example_values

CLIENTS = 2
RUNS = 50_000 if os.environ.get("PROOF") else 5_000
KEY = "a-key-of-a-caller-outside-of-the-fleet"
OLD, NEW = "the old seed of the keys, 32 characters or more", "the new seed of the keys, 32 characters or more"
COMPONENTS = ("newsroom", "researcher", "writer", "reviewer")


class Fleet:
    """The newsroom with two pods of each component, so that a node can be drained."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        nodes = namespace.objects("nodes")
        self._nodes = [node["metadata"]["name"] for node in nodes if "taints" not in node["spec"]]
        self.values: Manifest = example_values("newsroom")
        del self.values["components"]["desk"]
        self.values["apiKeys"] = {"seeds": [OLD]}
        self.values["defaults"] |= {
            "replicas": 2,
            "drain": {"preStop": 5, "delay": 5},
            "apiKeys": {"accept": [f"run:{KEY}"]},
            "podLabels": {"podwright-test": namespace.name},
            "networkPolicy": {"from": [{"podSelector": {"matchLabels": {"app": "client"}}}]},
            "resources": {"requests": {"cpu": "10m", "memory": "100Mi"}, "limits": {"memory": "512Mi"}},
        }
        namespace.install(self.values)
        self.client = Client.start(namespace, nodeName=self._nodes[0])

    def pods(self, component: str = "") -> set[str]:
        """The names of the pods that are not stopping."""
        selector = f"podwright-test={self.namespace.name}" + (component and f",app.kubernetes.io/component={component}")
        pods = [pod["metadata"] for pod in self.namespace.objects("pods", selector)]
        return {metadata["name"] for metadata in pods if "deletionTimestamp" not in metadata}

    def wait(self) -> None:
        """Wait until the pods of all Deployments are replaced and the old ones are gone."""
        self.namespace.kubectl("rollout", "status", "deployment", "--timeout=180s")
        selector = f"podwright-test={self.namespace.name}"
        self.namespace.until(
            lambda: all("deletionTimestamp" not in pod["metadata"] for pod in self.namespace.objects("pods", selector))
        )

    def roll_out_a_blueprint(self) -> None:
        values = copy.deepcopy(self.values)
        values["components"]["writer"]["blueprint"]["inline"]["instructions"] += " Be brief."
        before = {name: self.pods(name) for name in COMPONENTS}
        self.namespace.install(values)
        self.values = values
        assert [name for name in COMPONENTS if self.pods(name) != before[name]] == ["writer"]

    def stop_pods(self) -> None:
        """One of each component at once."""
        stopped = [min(self.pods(name)) for name in COMPONENTS]
        self.namespace.kubectl("delete", "pod", *stopped)
        self.wait()
        assert not self.pods() & set(stopped)

    def drain_a_node(self) -> None:
        """Only of the pods of this fleet; the disruption budgets allow one pod of each component at a time."""
        if len(self._nodes) == 1:
            return
        node, selector = self._nodes[1], f"--pod-selector=podwright-test={self.namespace.name}"
        try:
            self.namespace.kubectl("drain", node, selector, "--delete-emptydir-data", "--timeout=180s")
            self.wait()
            pods = self.namespace.objects("pods", selector.partition("=")[2])
            assert node not in {pod["spec"]["nodeName"] for pod in pods}
        finally:
            self.namespace.kubectl("uncordon", node)

    def restart(self) -> None:
        before = self.pods()
        self.namespace.kubectl("rollout", "restart", "deployment")
        self.wait()
        assert not self.pods() & before

    def rotate_keys(self) -> None:
        before = self.namespace.key("writer")
        for seeds in ([OLD, NEW], [NEW, OLD], [NEW]):
            self.values["apiKeys"]["seeds"] = seeds
            self.namespace.install(self.values)
            self.wait()
        assert self.namespace.key("writer") != before


@pytest.fixture(scope="module")
def fleet(make_namespace: Callable[[], Namespace]) -> Fleet:
    return Fleet(make_namespace())


@pytest.fixture(scope="module")
def load(fleet: Fleet) -> Iterator[Load]:
    urls = [f"http://fleet-{name}:8000/run" for name in COMPONENTS]

    def answer() -> bool:
        return all(fleet.client.request("POST", url, KEY, {"input": "x"})[0] == 200 for url in urls for _ in range(4))

    fleet.namespace.until(answer)  # the nodes learn later than Helm that the pods are ready
    with Load(fleet.client, urls, KEY, {"input": "the moon"}, CLIENTS) as load:
        yield load


@pytest.mark.parametrize(
    "change",
    [Fleet.roll_out_a_blueprint, Fleet.stop_pods, Fleet.drain_a_node, Fleet.restart, Fleet.rotate_keys],
    ids=lambda change: change.__name__,
)
def test_no_run_fails(fleet: Fleet, load: Load, change: Callable[[Fleet], None]) -> None:
    """While pods are replaced, and for a moment after, every run succeeds, without a caller that retries."""
    load.wait_for(80)
    change(fleet)
    load.wait_for(80)
    assert set(load.outcomes) == {"ok"}, load.outcomes


def test_there_were_enough_runs(load: Load) -> None:
    """The figure that these tests stand for."""
    load.wait_for(max(RUNS - load.total, 1))
    assert set(load.outcomes) == {"ok"}, load.outcomes
    print(f"{load.total} runs, 0 failed")
