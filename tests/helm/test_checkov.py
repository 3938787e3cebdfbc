"""The findings of checkov in the renders of the examples."""

from __future__ import annotations

import json
from pathlib import Path

from tests.conftest import Checkov
from tests.helm.conftest import CHART

EXCEPTIONS = {
    (
        "CKV_K8S_15",
        "Deployment",
    ): "images have a version or a digest, so they need not be pulled again",
    ("CKV_K8S_15", "Job"): "as for the Deployment",
    (
        "CKV_K8S_35",
        "Deployment",
    ): "keys of model providers are read from the variables that their libraries name",
    (
        "CKV_K8S_40",
        "Deployment",
    ): "on OpenShift, the cluster chooses the user of each namespace",
    ("CKV_K8S_40", "Job"): "as for the Deployment",
    (
        "CKV_K8S_43",
        "Deployment",
    ): "the chart cannot know the digest in the user's registry: `image.digest`",
    ("CKV_K8S_43", "Job"): "as for the Deployment",
}
"""The accepted findings, by check and kind, with the reason."""


def test_checkov_finds_the_exceptions_only(
    tmp_path: Path, checkov: Checkov
) -> None:
    """All of checkov's Kubernetes checks pass for every example, except the exceptions, and each of these is found."""
    for file in CHART.glob("examples/*/rendered.yaml"):
        (tmp_path / f"{file.parent.name}.yaml").write_text(file.read_text())
    privileged = {
        "metadata": {"name": "x"},
        "spec": {"hostNetwork": True, "containers": []},
    }
    (tmp_path / "privileged.yaml").write_text(
        json.dumps({"apiVersion": "v1", "kind": "Pod", **privileged})
    )
    options = [
        "--framework=kubernetes",
        "--compact",
        "--quiet",
        "--skip-download",
        "--soft-fail",
        "--output=json",
    ]
    done = checkov(*options, "--directory", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["summary"]["parsing_errors"] == 0
    assert report["summary"]["passed"] > 1000
    failed = [
        (
            Path(check["file_path"]).stem,
            check["check_id"],
            check["resource"].partition(".")[0],
        )
        for check in report["results"]["failed_checks"]
    ]
    assert ("privileged", "CKV_K8S_19", "Pod") in failed
    assert {
        (check, kind) for file, check, kind in failed if file != "privileged"
    } == set(EXCEPTIONS)
