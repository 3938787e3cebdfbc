"""A Kubernetes cluster, which is started if there is none, and the programs that watch the pods of all namespaces."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator

import pytest
from tests.cluster.cluster import (
    MADE,
    OWN,
    SCRIPT,
    Cluster,
    Namespace,
    go_modules,
)
from tests.cluster.watchers import Watchers
from tests.helpers import skip
from tests.image_support import Docker, build_postgresql, shared

DEFINITIONS = (
    "external-secrets.io_externalsecrets", "external-secrets.io_secretstores", "gateway.networking.k8s.io_httproutes",
    "keda.sh_scaledobjects", "keda.sh_triggerauthentications",
    "monitoring.coreos.com_alertmanagerconfigs", "monitoring.coreos.com_alertmanagers",
    "monitoring.coreos.com_podmonitors", "monitoring.coreos.com_probes", "monitoring.coreos.com_prometheuses",
    "monitoring.coreos.com_prometheusrules", "monitoring.coreos.com_servicemonitors",
)  # fmt: skip
"""The names of the files whose custom resources are defined: those that the chart creates, or the operator needs."""


@pytest.fixture(scope="package")
def cluster(
    docker: Docker, slim: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """The cluster of `deploy/cluster.sh`, with the image under test and the custom resources.

    What the tests make in it is deleted at the end, and so is the cluster, unless it was named.
    """
    is_own = not os.environ.get("PODWRIGHT_TEST_KUBECONFIG")
    if is_own and os.geteuid():
        skip(
            "A cluster is missing: run the tests as root on Linux, or set PODWRIGHT_TEST_KUBECONFIG."
        )

    def start() -> bool:
        if (
            is_own
            and not subprocess.run(
                [SCRIPT, "is-up"], capture_output=True
            ).returncode
        ):
            skip(
                f"A cluster is there: `make cluster-down` deletes it, or set PODWRIGHT_TEST_KUBECONFIG={OWN}."
            )
        done = subprocess.run([SCRIPT, "up"], capture_output=True, text=True)
        if done.returncode:
            skip(f"A cluster is missing: {done.stderr.strip()}")
        return is_own

    def stop() -> None:
        subprocess.run([SCRIPT, "down"], check=True, capture_output=True)

    with shared(tmp_path_factory, "cluster", start, stop):
        config = subprocess.run(
            [SCRIPT, "up"], capture_output=True, text=True, check=True
        ).stdout.strip()
        with Cluster(config) as cluster:

            def fill() -> None:
                cluster.load(slim)
                define(cluster)

            def empty() -> None:
                cluster.clean()
                cluster.unload(slim)

            with shared(tmp_path_factory, "cluster-content", fill, empty):
                yield cluster


def define(cluster: Cluster) -> None:
    """Define the custom resources that the chart can create, unless an operator in the cluster has done so."""
    existing = cluster.kubectl(
        "get", "customresourcedefinitions", "--output=name"
    )
    files = {
        file.stem: file
        for folder in go_modules("resources").values()
        for file in sorted(folder.glob("**/*crd*/**/*.yaml"))
    }
    names = {name: ".".join(reversed(name.split("_"))) for name in DEFINITIONS}
    missing = [
        files[name]
        for name, definition in names.items()
        if f"/{definition}\n" not in existing
    ]
    if missing:
        chosen = [f"--filename={file}" for file in missing]
        cluster.kubectl("apply", "--server-side", *chosen)
        cluster.kubectl(
            "label",
            "--overwrite",
            *chosen,
            *(f"{name}={value}" for name, value in MADE.items()),
        )
    cluster.kubectl(
        "wait",
        "--for=condition=Established",
        "--timeout=60s",
        "customresourcedefinitions",
        "--all",
    )


@pytest.fixture(scope="package")
def loaded_full(
    cluster: Cluster, full: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The image of the flavour `full`, which background runs need, in the cluster, which also has PostgreSQL's."""
    images = (full, build_postgresql())
    with shared(
        tmp_path_factory,
        "loaded-full",
        lambda: cluster.load(*images),
        lambda: cluster.unload(*images),
    ):
        yield full


@pytest.fixture(scope="module")
def make_namespace(
    cluster: Cluster, slim: str
) -> Iterator[Callable[..., Namespace]]:
    """Makes a namespace for an image, by default `slim`, which is deleted after the module's tests."""
    made: list[Namespace] = []

    def make(image: str = slim) -> Namespace:
        made.append(Namespace(cluster, image))
        return made[-1]

    yield make
    for namespace in made:
        namespace.delete()


@pytest.fixture(scope="package")
def watchers(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Watchers]:
    """Prometheus with its operator, Alertmanager, the Collector and Jaeger."""
    watchers = Watchers(cluster)
    with shared(tmp_path_factory, "watchers", watchers.start, watchers.stop):
        yield watchers
