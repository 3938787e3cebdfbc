"""Fleets of hundreds of components, whose pods are on a node that only pretends to run them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml
from tests.cluster.cluster import Cluster, Namespace
from tests.cluster.fleets import (
    RATE,
    fake_node,
    large_fleet,
    objects_of,
    release_size,
)
from tests.helm.conftest import CHART, SEEDS, Manifest, example_values

from podwright_service.fleet.releases import (
    MAX_RELEASE_BYTES,
    release_bytes,
    split,
)


@pytest.fixture(scope="module")
def fake(cluster: Cluster) -> Iterator[Manifest]:
    """Values for pods on a node that does not run them, and so without network policies."""
    with fake_node(cluster) as values:
        yield {**values, "networkPolicy": {"enabled": False}}


def assert_size(namespace: Namespace, release: str, values: Manifest) -> None:
    """The release is below the limit, and the estimate of its size was right to a sixth."""
    size = release_size(namespace, release)
    assert size < MAX_RELEASE_BYTES
    assert release_bytes(values) == pytest.approx(size, rel=1 / 6)


def test_a_hundred_components(
    make_namespace: Callable[[], Namespace], fake: Manifest
) -> None:
    """A hundred components become ready in one release; after its removal, none of its objects is left."""
    namespace = make_namespace()
    values = {**example_values("hundred"), "defaults": fake}
    namespace.install(values, options=RATE)
    ready = [pod for pod in namespace.objects("pods") if any(
        condition["type"] == "Ready" and condition["status"] == "True" for condition in pod["status"]["conditions"]
    )]  # fmt: skip
    assert len(ready) == len(values["components"]) == 100
    assert_size(namespace, "fleet", values)
    namespace.helm("uninstall", "fleet", *RATE)
    namespace.until(lambda: not objects_of(namespace, "fleet"))
    assert namespace.kubectl("get", "secrets", "--output=name") == ""


def test_a_fleet_of_several_releases(
    make_namespace: Callable[[], Namespace], fake: Manifest
) -> None:
    """A fleet that is split is installed as several releases, and callers have the keys of agents in the others."""
    namespace = make_namespace()
    values = {
        **large_fleet(3),
        "defaults": {**fake, "replicas": 0},
        "apiKeys": SEEDS,
    }
    releases = split(values, "fleet", 12)

    def install(release: str) -> None:
        text = yaml.safe_dump(namespace.values(releases[release]))
        namespace.helm(
            "install", release, CHART, "--values=-", *RATE, text=text
        )
        assert_size(namespace, release, releases[release])

    with ThreadPoolExecutor() as pool:
        list(pool.map(install, releases))
    assert len(releases) == 3
    assert (
        len(namespace.objects("deployments")) == len(values["components"]) == 31
    )
    [caller] = [
        release
        for release, part in releases.items()
        if "head" in part["components"]
    ]
    agents = [
        agent
        for agent in releases[caller]["components"]["head"]["agents"]
        if not isinstance(agent, str)
    ]
    assert agents
    sent = json.loads(namespace.key("head", "agent-keys", caller))
    for agent in agents:
        assert f":{sent[agent['name']]}" in namespace.key(
            agent["component"], "api-keys", agent["release"]
        )


def test_a_release_that_is_too_large(
    make_namespace: Callable[[], Namespace],
) -> None:
    """Helm rejects a release that is larger than its limit, before it creates an object."""
    namespace = make_namespace()
    noise = random.Random(0)
    files = {"notes.txt": noise.randbytes(300_000).hex()}
    components = {name: {"files": files, "replicas": 0} for name in ("a", "b")}
    assert release_bytes({"components": components}) > MAX_RELEASE_BYTES
    text = yaml.safe_dump(namespace.values({"components": components}))
    helm = namespace.cluster.find_helm(4)
    command = (
        helm,
        "install",
        "fleet",
        CHART,
        "--values=-",
        f"--namespace={namespace.name}",
    )
    done = namespace.cluster.run(*command, text=text)
    assert done.returncode != 0
    assert f"{MAX_RELEASE_BYTES} bytes" in done.stderr
    assert objects_of(namespace, "fleet") == []
