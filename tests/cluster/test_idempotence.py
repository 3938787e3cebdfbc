"""Tools that compare manifests with the cluster, as `kubectl diff` does, find no difference after an apply."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from tests.cluster.cluster import Cluster, Namespace
from tests.helm.conftest import EXAMPLES, SEEDS, example_values, helm4

NOWHERE = {"kubernetes.io/hostname": "nowhere"}
"""Pods that are not placed, whose objects soon change their status no more."""
ATTEMPTS = 30
"""How often, once a second, objects are compared whose status may still change."""
METHODS = ((), ("--server-side",))


@pytest.mark.parametrize("options", METHODS, ids=["client", "server"])
# `hundred` has the same objects as `newsroom`, more often
@pytest.mark.parametrize(
    "example", [name for name in EXAMPLES if name != "hundred"]
)
def test_nothing_differs_after_an_apply(
    make_namespace: Callable[[], Namespace],
    example: str,
    options: tuple[str, ...],
) -> None:
    """Applied by the client or the server, three times, the manifests are each time what the cluster has."""
    namespace = make_namespace()
    values: dict[str, Any] = {"apiKeys": SEEDS, **example_values(example)}
    defaults = values.setdefault("defaults", {})
    defaults["nodeSelector"] = NOWHERE
    text = yaml.safe_dump_all(helm4(values, namespace=namespace.name))
    for _ in range(3):
        namespace.kubectl("apply", "--filename=-", *options, text=text)
        assert lasting_difference(namespace, text, *options) == ""


def lasting_difference(namespace: Namespace, text: str, *options: str) -> str:
    """The difference that is left when the cluster's controllers have set the status of the objects."""
    found = ""
    for _ in range(ATTEMPTS):
        found = difference(namespace, text, *options)
        if not found:
            break
        time.sleep(1)
    return found


def difference(namespace: Namespace, text: str, *options: str) -> str:
    """The output of `kubectl diff`, whose exit code is 1 if there is a difference."""
    cluster: Cluster = namespace.cluster
    done = cluster.run(
        cluster.client,
        f"--namespace={namespace.name}",
        "diff",
        "--filename=-",
        *options,
        text=text,
    )
    assert done.returncode in (0, 1), done.stderr
    assert bool(done.stdout) is bool(done.returncode)
    return done.stdout
