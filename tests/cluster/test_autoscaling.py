"""The number of a component's pods follows its load."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
import yaml
from tests.cluster.cluster import (
    TIMEOUT,
    Client,
    Cluster,
    Load,
    Namespace,
    go_modules,
)
from tests.cluster.fleets import fake_node
from tests.cluster.watchers import Watchers
from tests.helm.conftest import Manifest
from tests.helpers import tool
from tests.image_support import build_program, shared

KEY = "a-key-of-a-caller-outside-of-the-fleet"
METRICS_SERVER = "sigs.k8s.io/metrics-server"
APISERVICE = "apiservice/v1beta1.metrics.k8s.io"
IMAGE = "podwright/metrics-server:cluster"
BLUEPRINT = {
    "type": "Agent", "name": "echo", "instructions": "Answer.", "tools": [],
    "config": {"model": "offline/echo", "max_loops": 1},
}  # fmt: skip


def values(**changes: object) -> Manifest:
    """A component that accepts requests of the pod `client` with the key."""
    component: Manifest = {
        "blueprint": {"inline": BLUEPRINT},
        "apiKeys": {"accept": [f"run:{KEY}"]},
        "networkPolicy": {
            "from": [{"podSelector": {"matchLabels": {"app": "client"}}}]
        },
    }
    return {"components": {"echo": {**component, **changes}}}


@pytest.fixture(scope="module")
def metrics_server(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """The metrics server, unless the cluster has one."""
    folder = (
        go_modules("extras", METRICS_SERVER)[METRICS_SERVER]
        / "manifests"
        / "base"
    )

    def wait() -> None:
        cluster.kubectl(
            "wait",
            "--for=condition=Available",
            APISERVICE,
            f"--timeout={TIMEOUT}s",
        )

    def start() -> bool:
        if cluster.kubectl("get", APISERVICE, "--ignore-not-found"):
            wait()
            return False
        build_program(Path(tool("metrics-server")), IMAGE)
        cluster.load(IMAGE)
        manifests = list(
            yaml.safe_load_all(cluster.kubectl("kustomize", folder))
        )
        (deployment,) = [
            each for each in manifests if each["kind"] == "Deployment"
        ]
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        container["image"] = IMAGE
        container["args"] += [
            "--kubelet-insecure-tls",
            "--kubelet-request-timeout=5s",
            "--metric-resolution=10s",
        ]
        container["readinessProbe"]["initialDelaySeconds"] = 1
        cluster.apply(manifests)
        wait()
        return True

    def stop() -> None:
        cluster.kubectl("delete", "--ignore-not-found", f"--kustomize={folder}")
        cluster.unload(IMAGE)

    with shared(tmp_path_factory, "metrics-server", start, stop):
        yield


def test_an_autoscaler_on_cpu(
    make_namespace: Callable[[], Namespace], metrics_server: None
) -> None:
    """A HorizontalPodAutoscaler adds pods while a component is loaded, which get requests, and removes them after."""
    space = make_namespace()
    now = {
        "stabilizationWindowSeconds": 0,
        "policies": [{"type": "Pods", "value": 4, "periodSeconds": 5}],
    }
    autoscaling = {
        "type": "hpa",
        "cpu": 25,
        "max": 3,
        "behavior": {"scaleUp": now, "scaleDown": now},
    }
    space.install(
        values(autoscaling=autoscaling, resources={"requests": {"cpu": "100m"}})
    )
    client = Client.start(space)

    def ready() -> int:
        return space.get("deployment", "fleet-echo")["status"].get(
            "readyReplicas", 0
        )

    with Load(
        client, ["http://fleet-echo:8000/run"], KEY, {"input": "x"}, clients=8
    ) as load:
        space.until(lambda: ready() == 3)
        load.wait_for(100)
    assert set(load.outcomes) == {"ok"}
    space.until(lambda: ready() == 1)
    assert space.get("deployment", "fleet-echo")["spec"]["replicas"] == 1


@pytest.fixture
def node(cluster: Cluster) -> Iterator[Manifest]:
    """Values for pods that are ready without running, because the number of pods is all that counts."""
    with fake_node(cluster) as placement:
        yield placement


class Numbers:
    """The numbers of pods that a Deployment should have, one after the other, while the block lasts."""

    def __init__(self, space: Namespace, name: str) -> None:
        output = "--output=jsonpath={.spec.replicas}{'\\n'}"
        self._process = space.popen("get", "deployment", name, "--watch", output)  # fmt: skip
        self.seen: list[int] = []

    def __enter__(self) -> Numbers:
        self._thread = threading.Thread(target=self._read)
        self._thread.start()
        return self

    def _read(self) -> None:
        assert self._process.stdout is not None
        self.seen += map(int, filter(str.strip, self._process.stdout))

    def __exit__(self, *_: object) -> None:
        with self._process:
            self._process.terminate()
            self._thread.join()


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("scaler", ["hpa", "keda"])
def test_an_upgrade_keeps_the_number_of_pods(
    make_namespace: Callable[[], Namespace],
    node: Manifest,
    scaler: str,
    version: int,
) -> None:
    """The number never falls when autoscaling starts, nor in later upgrades; afterwards, `replicas` counts again."""
    space = make_namespace()
    keda = {"prometheus": "http://prometheus.monitoring:9090"}
    autoscaling = {"type": scaler, "max": 9, "keda": keda}

    def install(options: Iterable[str] = (), **changes: object) -> int:
        space.install(
            {"defaults": node, **values(**changes)},
            version=version,
            options=options,
        )
        return space.get("deployment", "fleet-echo")["spec"]["replicas"]

    def scale(number: int) -> None:
        """What an autoscaler does."""
        space.kubectl("scale", "deployment/fleet-echo", f"--replicas={number}")

    assert install(replicas=4) == 4
    with Numbers(space, "fleet-echo") as numbers:
        assert install(autoscaling=autoscaling) == 4
        assert install(autoscaling=autoscaling, podLabels={"a": "b"}) == 4
        scale(6)
        assert install(autoscaling=autoscaling) == 6
        scale(7)
        assert install(autoscaling=autoscaling, podLabels={"c": "d"}) == 7
    assert min(numbers.seen) >= 4
    assert numbers.seen == sorted(numbers.seen)
    # with server-side apply, the autoscaler has the field too
    force = ["--force-conflicts"] if version == 4 else []
    assert install(force, replicas=2) == 2


def test_a_fleet_that_begins_with_an_autoscaler(
    make_namespace: Callable[[], Namespace], node: Manifest
) -> None:
    """Its manifests never have a number of pods, which belongs to the autoscaler alone."""
    space = make_namespace()
    for version, release in ((3, "third"), (4, "fourth")):
        fleet = {"defaults": node, **values(autoscaling={"type": "hpa"})}
        for _ in range(2):
            space.install(fleet, release, version=version)
            space.kubectl("scale", f"deployment/{release}-echo", "--replicas=3")
        manifest = space.helm("get", "manifest", release, version=version)
        assert "\n  replicas:" not in manifest


def test_the_query_of_keda(
    make_namespace: Callable[[], Namespace], watchers: Watchers
) -> None:
    """The query of the ScaledObject has, on Prometheus, the number of active and waiting runs of all pods."""
    space = make_namespace()
    keda = {"prometheus": "http://prometheus.monitoring:9090"}
    monitored = values(
        autoscaling={"type": "keda", "keda": keda},
        settings={"max_runs": 2},
        env={
            "OPENAI_BASE_URL": "http://provider:8000/v1",
            "OPENAI_API_KEY": "x",
        },
        model="openai/slow-0.5",
        monitor={"type": "service", "interval": "1s", "scrapeTimeout": "1s"},
    )
    component = monitored["components"]["echo"]
    component["networkPolicy"]["from"].append(watchers.peer)
    component["networkPolicy"]["egress"] = [
        {"to": [{"podSelector": {"matchLabels": {"app": "provider"}}}]}
    ]
    space.serve("provider", Path(__file__).parent / "pods" / "provider.py")
    space.install(monitored)
    (trigger,) = space.get("scaledobject", "fleet-echo")["spec"]["triggers"]
    query = trigger["metadata"]["query"]
    space.until(lambda: [value for _, value in watchers.query(query)] == [0])
    client = Client.start(space)
    with Load(
        client,
        ["http://fleet-echo:8000/run"],
        KEY,
        {"input": "x"},
        clients=5,
        pause=0,
    ):
        space.until(
            lambda: [value for _, value in watchers.query(query)] == [5]
        )
    space.until(lambda: [value for _, value in watchers.query(query)] == [0])
    assert json.dumps(trigger["metadata"]["threshold"]) == '"8"'
