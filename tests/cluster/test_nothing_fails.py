"""Under steady load, no run fails while the pods of a fleet are replaced in each way that a cluster has."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from tests.cluster.cluster import Client, Load, Namespace
from tests.helm.conftest import Manifest

CLIENTS = 4
KEY = "a-key-of-a-caller-outside-of-the-fleet"
OLD, NEW = (
    "the old seed of the keys, 32 characters or more",
    "the new seed of the keys, 32 characters or more",
)
COMPONENTS = ("desk", "writer")


def writer(instructions: str) -> Manifest:
    config = {"model": "offline/echo", "max_loops": 1}
    agent = {
        "type": "Agent",
        "name": "writer",
        "instructions": instructions,
        "config": config,
        "tools": [],
    }
    return {"blueprint": {"inline": agent}}


def desk() -> Manifest:
    """A workflow whose only step is a run of the writer."""
    steps = [{"type": "agent_step", "name": "write", "agent": "writer"}]
    return {
        "blueprint": {
            "inline": {"type": "Workflow", "name": "desk", "steps": steps}
        },
        "agents": ["writer"],
    }


@dataclass(frozen=True)
class Form:
    """How many runs there are."""

    runs: int
    pause: float
    """Seconds between two requests of a client: the pods that start need the CPU, too."""


class Fleet:
    """A workflow and its agent, with two pods each."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self._selector = f"podwright-test={namespace.name}"
        defaults = {
            "replicas": 2,
            "drain": {"preStop": 5, "delay": 5},
            "apiKeys": {"accept": [f"run:{KEY}"]},
            "podLabels": {"podwright-test": namespace.name},
            "networkPolicy": {
                "from": [{"podSelector": {"matchLabels": {"app": "client"}}}]
            },
            "resources": {
                "requests": {"cpu": "10m", "memory": "100Mi"},
                "limits": {"memory": "512Mi"},
            },
            "tolerations": [{"key": "second-node", "operator": "Exists"}],
        }
        components = {"desk": desk(), "writer": writer("Write a line.")}
        self.values: Manifest = {
            "apiKeys": {"seeds": [OLD]},
            "defaults": defaults,
            "components": components,
        }
        namespace.install(self.values)
        self.client = Client.start(namespace)

    def all_pods(self) -> list[Manifest]:
        """The fleet's pods, also those that are stopping."""
        return self.namespace.objects("pods", self._selector)

    def pods(self) -> dict[str, set[str]]:
        """The names of the pods of each component that are not stopping."""
        return {name: set(self.namespace.pods(name)) for name in COMPONENTS}

    def wait(self) -> None:
        """Wait until the pods of all Deployments are replaced and the old ones are gone."""
        self.namespace.wait_for_rollouts()
        self.namespace.until(
            lambda: all(
                "deletionTimestamp" not in pod["metadata"]
                for pod in self.all_pods()
            )
        )

    def roll_out_a_blueprint(self) -> None:
        before = self.pods()
        self.values["components"]["writer"] = writer("Write two lines.")
        self.namespace.install(self.values)
        after = self.pods()
        assert (after["desk"], after["writer"] & before["writer"]) == (
            before["desk"],
            set(),
        )

    def stop_pods(self) -> None:
        """One of each component at once."""
        stopped = {min(pods) for pods in self.pods().values()}
        self.namespace.kubectl("delete", "pod", *stopped)
        self.wait()
        assert not set[str]().union(*self.pods().values()) & stopped

    def restart_and_drain_a_node(self) -> None:
        """The restart spreads the pods over two nodes, of which one is drained.

        The disruption budgets allow one pod of each component at a time. Pods of other tests stay. A cluster that was
        made elsewhere keeps its nodes as they are.
        """
        with self.namespace.cluster.second_node(
            self.namespace.image
        ) as is_added:
            self._restart()
            if is_added:
                self._drain()

    def _drain(self) -> None:
        client_node = self.namespace.get("pod", self.client.name)["spec"][
            "nodeName"
        ]
        node = min(
            {pod["spec"]["nodeName"] for pod in self.all_pods()} - {client_node}
        )
        try:
            options = (
                f"--pod-selector={self._selector}",
                "--delete-emptydir-data",
                "--timeout=180s",
            )
            self.namespace.kubectl("drain", node, *options)
            self.wait()
            assert node not in {
                pod["spec"]["nodeName"] for pod in self.all_pods()
            }
        finally:
            self.namespace.kubectl("uncordon", node)

    def _restart(self) -> None:
        before = self.pods()
        self.namespace.kubectl("rollout", "restart", "deployment")
        self.wait()
        assert not any(
            pods & before[name] for name, pods in self.pods().items()
        )

    def rotate_keys(self) -> None:
        before = self.namespace.key("writer")
        for seeds in ([OLD, NEW], [NEW, OLD], [NEW]):
            self.values["apiKeys"]["seeds"] = seeds
            self.namespace.install(self.values)
            self.wait()
            self.namespace.until(self._have_read_their_keys)
        assert self.namespace.key("writer") != before

    def _have_read_their_keys(self) -> bool:
        """Whether the Secrets in the pods are those of the namespace."""
        return all(
            self.namespace.exec(pod, "cat", "/run/podwright/api-keys")
            == self.namespace.key(name, "api-keys")
            for name, pods in self.pods().items()
            for pod in pods
        )


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(Form(runs=5_000, pause=0.2), id="short"),
        pytest.param(
            Form(runs=50_000, pause=0), id="long", marks=pytest.mark.proof
        ),
    ],
)
def form(request: pytest.FixtureRequest) -> Form:
    return request.param


@pytest.fixture(scope="module")
def fleet(make_namespace: Callable[[], Namespace], form: Form) -> Fleet:
    """A fleet of each form's own, because its keys are rotated once."""
    return Fleet(make_namespace())


@pytest.fixture(scope="module")
def load(fleet: Fleet, form: Form) -> Iterator[Load]:
    urls = [f"http://fleet-{name}:8000/run" for name in COMPONENTS]

    def answer() -> bool:
        return all(
            fleet.client.request("POST", url, KEY, {"input": "x"})[0] == 200
            for url in urls * 20
        )

    # the nodes and the network policies learn later than Helm of the pods, of which a Service chooses one at random
    fleet.namespace.until(answer)
    with Load(
        fleet.client, urls, KEY, {"input": "the moon"}, CLIENTS, form.pause
    ) as load:
        yield load


@pytest.mark.parametrize(
    "change",
    [
        Fleet.roll_out_a_blueprint,
        Fleet.stop_pods,
        Fleet.restart_and_drain_a_node,
        Fleet.rotate_keys,
    ],
    ids=lambda change: change.__name__,
)
def test_no_run_fails(
    fleet: Fleet, load: Load, change: Callable[[Fleet], None]
) -> None:
    """While pods are replaced, and for a moment after, every run succeeds, without a caller that retries."""
    load.wait_for(80)
    change(fleet)
    load.wait_for(80)
    assert set(load.outcomes) == {"ok"}, json.dumps(load.outcomes)


def test_there_were_enough_runs(load: Load, form: Form) -> None:
    """The figure that these tests stand for."""
    load.wait_for(max(form.runs - load.total, 1))
    assert set(load.outcomes) == {"ok"}, json.dumps(load.outcomes)
    print(f"{load.total} runs, 0 failed")
