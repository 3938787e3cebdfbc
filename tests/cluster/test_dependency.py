"""A parent chart with two fleets of the same components, installed, tested and upgraded by Helm 3 and Helm 4."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from tests.cluster.cluster import TIMEOUT, Namespace
from tests.helm.conftest import CHART, Manifest
from tests.helm.test_dependency import write_parent

ALIASES = ("agents", "tools")


def agent(name: str) -> Manifest:
    config = {"model": "offline/echo"}
    return {"type": "Agent", "name": name, "instructions": "Write.", "config": config, "tools": []}  # fmt: skip


COMPONENTS: Manifest = {
    "writer": {"blueprint": {"inline": agent("writer")}},
    "newsroom": {
        "agents": ["writer"],
        "blueprint": {
            "inline": {
                "type": "Workflow",
                "name": "newsroom",
                "steps": [{"type": "agent_step", "agent": "writer", "name": "draft"}],
            }
        },
    },
}  # fmt: skip


def upgrade(
    namespace: Namespace, chart: Path, values: Manifest, version: int
) -> None:
    """Install or upgrade the release `shop`, and wait until its pods are ready."""
    namespace.helm(
        "upgrade",
        "--install",
        "shop",
        chart,
        "--values=-",
        "--wait",
        f"--timeout={TIMEOUT}s",
        version=version,
        text=yaml.safe_dump(values),
    )


def secrets(namespace: Namespace) -> dict[str, Manifest]:
    """The data of the Secrets of the fleets by name."""
    return {
        secret["metadata"]["name"]: secret["data"]
        for secret in namespace.objects("secrets", "podwright.dev/fleet")
    }


@pytest.mark.parametrize("version", [3, 4])
def test_two_fleets_in_one_release(
    make_namespace: Callable[[], Namespace], tmp_path: Path, version: int
) -> None:
    """Two aliases with the same components run side by side, and an upgrade without a change keeps every key."""
    namespace = make_namespace()
    dependencies = [{"alias": alias} for alias in ALIASES]
    chart = write_parent(tmp_path, dependencies)
    fleet = namespace.values({"components": COMPONENTS})
    values: Manifest = dict.fromkeys(ALIASES, fleet)
    upgrade(namespace, chart, values, version)
    deployments = namespace.objects("deployments", "podwright.dev/fleet")
    assert {each["metadata"]["name"] for each in deployments} == {
        f"shop-{alias}-{name}" for alias in ALIASES for name in COMPONENTS
    }
    output = namespace.helm(
        "test", "shop", f"--timeout={TIMEOUT}s", version=version
    )
    assert output.count("Succeeded") == len(deployments)
    before = secrets(namespace)
    seeds = {before[f"shop-{alias}-seed"]["seed"] for alias in ALIASES}
    assert len(seeds) == len(ALIASES)
    upgrade(namespace, chart, values, version)
    assert secrets(namespace) == before


def test_the_seed_belongs_to_a_fleet(
    make_namespace: Callable[[], Namespace],
) -> None:
    """The seed of a fleet from an earlier version of the chart is kept; that of somebody else is not taken."""
    namespace = make_namespace()
    writer = COMPONENTS["writer"]
    values = {"components": {"writer": {**writer, "replicas": 0}}}
    namespace.install(values)
    before = secrets(namespace)
    for name in before:
        namespace.kubectl("label", "secret", name, "podwright.dev/fleet-")
    namespace.install(values)
    assert secrets(namespace) == before
    seed = base64.b64encode(b"a seed of somebody else, which is 45 letters").decode()  # fmt: skip
    foreign = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "other-seed"},
        "data": {"seed": seed},
    }
    namespace.apply([foreign])
    program = namespace.cluster.find_helm(4)
    done = namespace.cluster.run(
        program,
        "install",
        "other",
        CHART,
        "--values=-",
        f"--namespace={namespace.name}",
        text=yaml.safe_dump(values),
    )
    assert done.returncode != 0
    for part in ("other-seed", "another fleet", "apiKeys.seeds"):
        assert part in done.stderr
    assert namespace.get("secrets", "other-seed")["data"] == {"seed": seed}
