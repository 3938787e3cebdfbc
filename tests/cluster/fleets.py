"""Large fleets, nodes for their pods, and what an installation costs."""

from __future__ import annotations

import contextlib
import random
import subprocess
import uuid
from collections.abc import Iterator
from typing import Any

from tests.cluster.cluster import MADE, TIMEOUT, Cluster, Namespace, go_modules
from tests.helm.conftest import Manifest
from tests.helpers import ROOT, tool

RATE = ("--qps=500", "--burst-limit=1000")
"""Options of Helm 4, whose default rate is made for releases with fewer objects."""
KINDS = "all,configmaps,secrets,serviceaccounts,networkpolicies,poddisruptionbudgets,endpointslices"
STAGES = (
    "node/fast/node-initialize",
    "node/heartbeat-with-lease/node-heartbeat-with-lease",
    "pod/fast/pod-ready",
)
"""What happens to nodes and pods: files of the module of KWOK. Its stage that deletes pods is `pod/fast/pod-delete`."""


def large_fleet(teams: int, members: int = 9) -> Manifest:
    """Values with a workflow over teams, each a workflow over agents with instructions of about 500 bytes."""
    words = (ROOT / "docs" / "components.md").read_text().split()
    source = random.Random(0)

    def agent(name: str) -> Manifest:
        text = " ".join(source.choices(words, k=80))
        config = {"model": "offline/echo", "max_loops": 2}
        return {
            "type": "Agent",
            "name": name,
            "instructions": text,
            "config": config,
            "tools": [],
        }

    def workflow(name: str, agents: list[str]) -> Manifest:
        steps = [
            {"type": "agent_step", "agent": agent, "name": agent}
            for agent in agents
        ]
        return {
            "blueprint": {
                "inline": {"type": "Workflow", "name": name, "steps": steps}
            },
            "agents": agents,
        }

    components: dict[str, Any] = {}
    for team in range(teams):
        agents = [f"agent-{team}-{number}" for number in range(members)]
        components |= {
            name: {"blueprint": {"inline": agent(name)}} for name in agents
        }
        components[f"team-{team}"] = workflow(f"team-{team}", agents)
    components["head"] = workflow(
        "head", [f"team-{team}" for team in range(teams)]
    )
    return {"components": components}


@contextlib.contextmanager
def fake_node(cluster: Cluster) -> Iterator[Manifest]:
    """A node of KWOK, whose pods are ready without running; gives the values for pods on it."""
    name = f"podwright-{uuid.uuid4().hex[:8]}"
    taint = {"key": "kwok.x-k8s.io/node", "value": name, "effect": "NoSchedule"}
    metadata = {
        "name": name,
        "annotations": {"kwok.x-k8s.io/node": name},
        "labels": {**MADE, "kubernetes.io/hostname": name},
    }
    cluster.apply(
        [
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": metadata,
                "spec": {"taints": [taint]},
            }
        ]
    )
    folder = (
        go_modules("extras", "sigs.k8s.io/kwok")["sigs.k8s.io/kwok"]
        / "kustomize"
        / "stage"
    )
    options = [
        f"--config={folder / stage}.yaml"
        for stage in (*STAGES, "pod/fast/pod-delete")
    ]
    # without a lease, the node is regarded as failed after 40 seconds
    options += [
        "--node-lease-duration-seconds=40",
        f"--kubeconfig={cluster.config}",
        "--cidr=10.245.0.0/16",
    ]
    selector = (
        f"--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node={name}"
    )
    process = subprocess.Popen(
        [tool("kwok"), *options, selector], stderr=subprocess.DEVNULL
    )
    try:
        cluster.kubectl(
            "wait",
            "--for=condition=Ready",
            f"--timeout={TIMEOUT}s",
            f"node/{name}",
        )
        tolerations = [
            {key: value for key, value in taint.items() if key != "effect"}
        ]
        yield {
            "nodeSelector": {"kubernetes.io/hostname": name},
            "tolerations": tolerations,
        }
    finally:
        cluster.kubectl("delete", "node", name, "--ignore-not-found")
        process.terminate()
        process.wait()


def release_size(namespace: Namespace, release: str) -> int:
    """The bytes in the Secret in which Helm stores the first revision of a release."""
    template = "--output=go-template={{len (base64decode .data.release)}}"
    return int(
        namespace.kubectl(
            "get", "secret", f"sh.helm.release.v1.{release}.v1", template
        )
    )


def objects_of(namespace: Namespace, release: str) -> list[str]:
    """The objects of a release, and those that Kubernetes made for them, by kind and name."""
    selector = f"--selector=app.kubernetes.io/instance={release}"
    return namespace.kubectl("get", KINDS, selector, "--output=name").split()
