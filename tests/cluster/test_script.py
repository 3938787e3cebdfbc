"""`deploy/cluster.sh` with a cluster that was made elsewhere."""

from __future__ import annotations

import os
import subprocess
import uuid
from pathlib import Path

import pytest
from tests.cluster.cluster import MADE, SCRIPT, Cluster

RECORDER = '#!/bin/sh\necho "$(basename "$0") $*" >> "$RECORD"\n'


def run(
    config: Path, folder: Path, *arguments: str, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run the script with the kubeconfig of a cluster, with programs in a folder, and with more variables."""
    variables = {
        **os.environ,
        **more,
        "PODWRIGHT_TEST_KUBECONFIG": str(config),
        "PATH": f"{folder}:{os.environ['PATH']}",
        "RECORD": str(folder / "record"),
    }
    return subprocess.run(
        [SCRIPT, *arguments], env=variables, capture_output=True, text=True
    )


@pytest.fixture
def folder(cluster: Cluster, tmp_path: Path) -> Path:
    """A folder with kubectl, and with `kind` and `k3d` that record their arguments."""
    (tmp_path / "kubectl").symlink_to(cluster.client)
    for name in ("kind", "k3d"):
        (tmp_path / name).write_text(RECORDER)
        (tmp_path / name).chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(
    ("context", "command"),
    [
        ("kind-dev", "kind load docker-image --name dev one two"),
        ("k3d-dev", "k3d image import --cluster dev one two"),
    ],
)
def test_images_for_kind_and_k3d(
    cluster: Cluster, folder: Path, context: str, command: str
) -> None:
    """The cluster stays as it is, and gets images by its own program, which the name of the context tells."""
    config = folder / "config"
    config.write_text(Path(cluster.config).read_text())
    (current,) = cluster.check(
        cluster.client, "config", "get-contexts", "--output=name"
    ).split()
    cluster.check(
        cluster.client,
        "config",
        "rename-context",
        current,
        context,
        f"--kubeconfig={config}",
    )
    assert run(
        config, folder, "up", PODWRIGHT_TEST_SHARED_CLUSTER="yes"
    ).stdout.strip() == str(config)
    loaded = run(config, folder, "load", "one", "two")
    assert loaded.returncode == 0, loaded.stderr
    assert (folder / "record").read_text().strip() == command
    assert run(config, folder, "add-node", "no-such-image").returncode == 0
    for action in ("remove-node", "down"):
        assert run(config, folder, action).returncode == 0
    cluster.request("GET", "/readyz")


def test_an_unusable_cluster(folder: Path) -> None:
    """A cluster that does not answer, and one that gets no images this way, are named."""
    missing = run(folder / "missing", folder, "up")
    assert missing.returncode == 1
    assert (
        f"the cluster of PODWRIGHT_TEST_KUBECONFIG ({folder / 'missing'}) does not answer"
        in missing.stderr
    )
    (folder / "config").write_text(
        "{apiVersion: v1, kind: Config, current-context: prod}"
    )
    unknown = run(folder / "config", folder, "load", "one")
    assert (
        "can load images into kind and k3d only, not into prod"
        in unknown.stderr
    )


def test_a_cluster_with_other_namespaces(
    cluster: Cluster, folder: Path
) -> None:
    """A cluster with a namespace that is not of Kubernetes or of the tests is refused, unless that is meant."""
    name = f"kube-somebody-{uuid.uuid4().hex[:8]}"
    cluster.apply(
        [
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": name, "labels": MADE},
            }
        ]
    )
    config = folder / "config"
    config.write_text(Path(cluster.config).read_text())
    try:
        refused = run(config, folder, "up")
        assert refused.returncode == 1
        assert name in refused.stderr
        assert "PODWRIGHT_TEST_SHARED_CLUSTER=yes" in refused.stderr
        assert (
            run(
                config, folder, "up", PODWRIGHT_TEST_SHARED_CLUSTER="yes"
            ).returncode
            == 0
        )
    finally:
        cluster.kubectl("delete", "namespace", name, "--wait=false")


def test_a_cluster_whose_namespaces_are_secret(folder: Path) -> None:
    """A cluster that answers, and does not list its namespaces, is refused."""
    (folder / "kubectl").unlink()
    (folder / "kubectl").write_text(
        '#!/bin/sh\ncase "$*" in *readyz*) ;; *) exit 1 ;; esac\n'
    )
    (folder / "kubectl").chmod(0o755)
    refused = run(folder / "config", folder, "up")
    assert refused.returncode == 1
    assert "cannot list the namespaces" in refused.stderr


def test_the_cluster_of_this_user_is_not_asked(
    cluster: Cluster, tmp_path: Path
) -> None:
    """With KUBECONFIG alone, the script uses its own cluster, and not the kubectl of this user."""
    (tmp_path / "kubectl").write_text(RECORDER)
    (tmp_path / "kubectl").chmod(0o755)
    variables = {
        "KUBECONFIG": str(tmp_path / "production"),
        "PODWRIGHT_TEST_KUBECONFIG": "",
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "RECORD": str(tmp_path / "record"),
    }
    up = subprocess.run(
        [SCRIPT, "up"],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )
    assert up.stdout.strip() == cluster.config
    assert not (tmp_path / "record").exists()
