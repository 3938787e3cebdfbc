"""Releases, installed and upgraded by Helm itself, against an API server that keeps what it is given."""

from __future__ import annotations

import base64
import copy
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import helm_python
import pytest
import yaml

from .cluster import Cluster
from .conftest import CHART, Manifest, tool

NEWSROOM: Manifest = yaml.safe_load((CHART / "examples" / "newsroom" / "values.yaml").read_text())
FLEET: Manifest = {"components": {name: NEWSROOM["components"][name] for name in ("reviewer", "writer")}}
"""Two of it, for Helm asks for one object after the other, and no more than a few in a second."""


class Helm3:
    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._program = tool("helm3")
        self._options = ["--kube-apiserver", cluster.url, "--namespace", "prod"]
        self._variables = {**os.environ, "KUBECONFIG": os.devnull, "HELM_CACHE_HOME": str(folder)}

    def upgrade(self, values: Manifest) -> None:
        flags = ["--install", "--create-namespace", "--disable-openapi-validation", "--values", "-"]
        self._call("upgrade", "fleet", str(CHART), *flags, given=json.dumps(values))

    def rollback(self) -> None:
        self._call("rollback", "fleet")

    def _call(self, *words: str, given: str = "") -> str:
        command = [self._program, *words, *self._options]
        done = subprocess.run(command, input=given, env=self._variables, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout


class Helm4:
    def __init__(self, cluster: Cluster, _: Path) -> None:
        # it would write its releases in protobuf, which the cluster does not know
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
    with Cluster() as started:
        yield started
        started.shutdown()


@pytest.fixture(params=[Helm3, Helm4])
def release(request: pytest.FixtureRequest, cluster: Cluster, tmp_path: Path) -> Helm3 | Helm4:
    return request.param(cluster, tmp_path)


def templates(cluster: Cluster) -> dict[str, Manifest]:
    return {name: each["spec"]["template"] for name, each in cluster.all("Deployment").items()}


def secrets(cluster: Cluster) -> dict[str, Manifest]:
    return {name: each["data"] for name, each in cluster.all("Secret").items()}


def test_keys_stay(release: Helm3 | Helm4, cluster: Cluster) -> None:
    """The seed that the first install makes, and so every key, is that of all upgrades; no pod is rolled for it."""
    release.upgrade(FLEET)
    keys, pods = secrets(cluster), templates(cluster)
    assert len(base64.b64decode(keys["fleet-seed"]["seed"])) == 48
    assert set(pods) == {f"fleet-{name}" for name in FLEET["components"]}
    release.upgrade(FLEET)
    assert secrets(cluster) == keys
    assert templates(cluster) == pods
    more = copy.deepcopy(FLEET)
    more["components"]["extra"] = {"agents": ["writer"]}
    release.upgrade(more)
    assert {name: each for name, each in secrets(cluster).items() if name != "fleet-extra-keys"} == keys
    sent = json.loads(base64.b64decode(secrets(cluster)["fleet-extra-keys"]["agent-keys"]))["writer"]
    assert f"run:{sent}" in base64.b64decode(keys["fleet-writer-keys"]["api-keys"]).decode()


def test_upgrade_and_rollback(release: Helm3 | Helm4, cluster: Cluster) -> None:
    """A changed blueprint changes the pods of its component and of no other, and a rollback brings back what was."""
    release.upgrade(FLEET)
    keys, pods = secrets(cluster), templates(cluster)
    changed = copy.deepcopy(FLEET)
    changed["components"]["writer"]["blueprint"]["inline"]["instructions"] = "Write."
    release.upgrade(changed)
    now = templates(cluster)
    assert {name for name in pods if now[name] != pods[name]} == {"fleet-writer"}
    assert '"instructions": "Write."' in cluster.all("ConfigMap")["fleet-writer-files"]["data"]["blueprint.json"]
    release.rollback()
    assert templates(cluster) == pods
    assert secrets(cluster) == keys


def test_two_installs_have_two_seeds(release: Helm3 | Helm4, cluster: Cluster) -> None:
    """Where the Secret with the seed is gone another one is made, and with it other keys."""
    release.upgrade(FLEET)
    keys = secrets(cluster)
    del cluster.objects["/api/v1/namespaces/prod/secrets/fleet-seed"]
    release.upgrade(FLEET)
    assert not [name for name, each in secrets(cluster).items() if each == keys[name]]
