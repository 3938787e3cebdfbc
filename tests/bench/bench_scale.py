"""What the installation of large fleets costs, with pods that are not run. It needs a cluster: see `make cluster`."""

from __future__ import annotations

import re
import subprocess
import time
from typing import Any

from figures import Figure
from tests.cluster.cluster import Cluster, Namespace
from tests.cluster.fleets import (
    RATE,
    fake_node,
    large_fleet,
    objects_of,
    release_size,
)
from tests.helm.conftest import SEEDS, example_values
from tests.helpers import ROOT

from podwright_service.fleet.releases import MAX_RELEASE_BYTES, split

KIB = 1024
LARGEST = MAX_RELEASE_BYTES // KIB


def figures() -> list[Figure]:
    script = [ROOT / "deploy" / "cluster.sh", "up"]
    config = subprocess.run(
        script, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()
    thousand = large_fleet(100) | {"apiKeys": SEEDS}
    fleets: dict[str, dict[str, Any]] = {
        "`hundred`": {"fleet": example_values("hundred")},
        "701 components": {"fleet": large_fleet(70)},
        "1 001 components": split(thousand, "fleet", 200),
    }
    rows: list[Figure] = []
    with Cluster(config) as cluster, fake_node(cluster) as defaults:
        for title, releases in fleets.items():
            values = {
                release: {**part, "defaults": defaults}
                for release, part in releases.items()
            }
            rows += install(cluster, title, values)
    return rows


def install(
    cluster: Cluster, title: str, releases: dict[str, dict[str, Any]]
) -> list[Figure]:
    """Install the releases of a fleet one after another, in a namespace that is deleted afterwards."""
    namespace, before = (
        Namespace(cluster, "podwright:slim"),
        server_memory(cluster),
    )
    number = (
        "one release" if len(releases) == 1 else f"{len(releases)} releases"
    )
    try:
        start = time.monotonic()
        for release, values in releases.items():
            namespace.install(
                values, release, options=(*RATE, "--timeout=900s")
            )
        seconds, after = time.monotonic() - start, server_memory(cluster)
        objects = sum(
            len(objects_of(namespace, release)) for release in releases
        )
        size = (
            max(release_size(namespace, release) for release in releases) / KIB
        )
    finally:
        namespace.delete()
    return [
        Figure(
            f"{title}, {number}: time until all pods are ready",
            seconds,
            "s",
            f"{objects} objects",
        ),
        Figure(
            "size of the largest release",
            size,
            "KiB",
            "Helm's Secret, compressed",
            LARGEST,
        ),
        Figure(
            "memory of the API server",
            after - before,
            "MiB",
            f"more than before, then {after:.0f} MiB",
        ),
    ]


def server_memory(cluster: Cluster) -> float:
    """The resident memory of the API server in MiB."""
    [line] = re.findall(
        r"^process_resident_memory_bytes (.+)$",
        cluster.request("GET", "/metrics").text,
        re.MULTILINE,
    )
    return float(line) / KIB**2
