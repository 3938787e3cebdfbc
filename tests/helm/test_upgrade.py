"""Installations, upgrades and rollbacks by Helm, against an API server that stores objects."""

from __future__ import annotations

import copy
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import helm_python
import pytest
from tests.helm.cluster import Cluster
from tests.helm.conftest import CHART, Manifest, decoded, example_values
from tests.helpers import tool

FLEET: Manifest = {
    "components": {name: example_values("newsroom")["components"][name] for name in ("reviewer", "writer")}
}
"""Few components, because Helm requests one object after the other, and only a few per second."""


class Helm3:
    """The release `fleet`, by the program."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._options = ["--kube-apiserver", cluster.url, "--namespace", "prod"]
        self._variables = {**os.environ, "KUBECONFIG": os.devnull, "HELM_CACHE_HOME": str(folder)}

    def upgrade(self, values: Manifest) -> None:
        flags = ["--install", "--create-namespace", "--disable-openapi-validation", "--values", "-"]
        self._call("upgrade", "fleet", str(CHART), *flags, text=json.dumps(values))

    def rollback(self) -> None:
        self._call("rollback", "fleet")

    def _call(self, *arguments: str, text: str = "") -> None:
        command = [tool("helm3"), *arguments, *self._options]
        done = subprocess.run(command, input=text, env=self._variables, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


class Helm4:
    """The release `fleet`, by the library."""

    def __init__(self, cluster: Cluster, _: Path) -> None:
        # the other storage drivers write releases in protobuf, which the cluster does not read
        self._config = helm_python.Config(
            kube_apiserver=cluster.url, kubeconfig_path=os.devnull, namespace="prod", storage_driver="memory"
        )
        self._installed = False

    def upgrade(self, values: Manifest) -> None:
        if self._installed:
            self._config.upgrade(CHART, "fleet", values, namespace="prod")
        else:
            self._config.install(CHART, "fleet", values, namespace="prod", create_namespace=True)
        self._installed = True

    def rollback(self) -> None:
        self._config.rollback("fleet")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster
        cluster.shutdown()


@pytest.fixture(params=[Helm3, Helm4])
def release(request: pytest.FixtureRequest, cluster: Cluster, tmp_path: Path) -> Helm3 | Helm4:
    return request.param(cluster, tmp_path)


def templates(cluster: Cluster) -> dict[str, Manifest]:
    return {name: each["spec"]["template"] for name, each in cluster.all("Deployment").items()}


def secrets(cluster: Cluster) -> dict[str, dict[str, str]]:
    return {name: decoded(each) for name, each in cluster.all("Secret").items()}


def test_an_upgrade_keeps_the_keys(release: Helm3 | Helm4, cluster: Cluster) -> None:
    """The first installation makes a seed, from which each upgrade derives the same keys, until it is deleted."""
    release.upgrade(FLEET)
    keys, pods = secrets(cluster), templates(cluster)
    assert len(keys["fleet-seed"]["seed"]) == 48
    assert set(pods) == {"fleet-reviewer", "fleet-writer"}
    larger = copy.deepcopy(FLEET)
    larger["components"]["extra"] = {"agents": ["writer"]}
    release.upgrade(larger)
    assert keys.items() <= secrets(cluster).items()
    assert pods.items() <= templates(cluster).items()
    sent = json.loads(secrets(cluster)["fleet-extra-keys"]["agent-keys"])["writer"]
    assert f"run:{sent}" in keys["fleet-writer-keys"]["api-keys"]
    del cluster.objects["/api/v1/namespaces/prod/secrets/fleet-seed"]
    release.upgrade(FLEET)
    assert [name for name, secret in secrets(cluster).items() if secret == keys[name]] == []


def test_upgrade_and_rollback(release: Helm3 | Helm4, cluster: Cluster) -> None:
    """A changed blueprint changes the pods of its component only, and a rollback restores them."""
    release.upgrade(FLEET)
    keys, pods = secrets(cluster), templates(cluster)
    changed = copy.deepcopy(FLEET)
    changed["components"]["writer"]["blueprint"]["inline"]["instructions"] = "Write."
    release.upgrade(changed)
    assert {name for name, template in templates(cluster).items() if template != pods[name]} == {"fleet-writer"}
    assert '"instructions": "Write."' in cluster.all("ConfigMap")["fleet-writer-files"]["data"]["blueprint.json"]
    release.rollback()
    assert (templates(cluster), secrets(cluster)) == (pods, keys)
