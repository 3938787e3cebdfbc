"""What checkov has to say about the renders of the examples."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import ModuleType

from .conftest import CHART, tool

EXAMPLES = sorted(path.parent.name for path in CHART.glob("examples/*/values.yaml"))
EXCEPTIONS = {
    ("CKV_K8S_8", "Pod"): "a pod of `helm test` runs once and ends: there is nothing to restart",
    ("CKV_K8S_9", "Pod"): "a pod of `helm test` takes no requests, so nobody asks whether it is ready",
    ("CKV_K8S_15", "Deployment"): "images are pinned by version or digest: pulling them again would bring the same",
    ("CKV_K8S_15", "Pod"): "as for the Deployment",
    ("CKV_K8S_35", "Deployment"): "keys of model vendors are read from the variables that the vendors' libraries name",
    (
        "CKV_K8S_43",
        "Deployment",
    ): "a digest is the user's to give, as `image.digest`: the chart cannot know his registry's",
    ("CKV_K8S_43", "Pod"): "as for the Deployment",
}
"""What checkov may find, by check and kind, with the reason why it stays."""


def found(folder: Path) -> tuple[int, set[tuple[str, str, str]]]:
    """How many checks passed, and check, kind and file of each that did not."""
    done = subprocess.run(
        [tool("checkov"), "--framework", "kubernetes", "--directory", folder, "--compact", "--quiet", "--skip-download",
         "--soft-fail", "--output", "json"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["summary"]["parsing_errors"] == 0
    failed = report["results"]["failed_checks"]
    return report["summary"]["passed"], {
        (each["check_id"], each["resource"].partition(".")[0], Path(each["file_path"]).stem) for each in failed
    }


def test_checkov_finds_what_is_known(tools: ModuleType, tmp_path: Path) -> None:
    """Of every example, all of checkov's Kubernetes checks pass, but for the exceptions; none of these is idle."""
    for example in EXAMPLES:
        (tmp_path / f"{example}.yaml").write_text(tools.rendered_example(example))
    bad = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "x"},
        "spec": {"hostNetwork": True, "containers": []},
    }
    (tmp_path / "bad.yaml").write_text(json.dumps(bad))
    passed, failed = found(tmp_path)
    assert passed > 1000
    assert ("CKV_K8S_19", "Pod", "bad") in failed
    assert {(check, kind) for check, kind, file in failed if file != "bad"} == set(EXCEPTIONS)
