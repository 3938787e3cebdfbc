"""The chart as a whole: both versions of Helm and Kubernetes accept it, and its generated files are up to date."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
from typing import Any

import helm_python
import jsonschema
import kubernetes_validate
import pytest
import yaml
from kubernetes_validate.utils import all_versions, schema_contents
from referencing import Registry, Resource
from tests.helm.conftest import (
    CHART,
    CUSTOM,
    EXAMPLES,
    SEEDS,
    Helm,
    Manifest,
    by_name,
    example_values,
    helm4,
    jobs_of,
    rendered,
    served,
)
from tests.helpers import ROOT

from podwright import __version__

OLDEST = (
    (yaml.safe_load((CHART / "Chart.yaml").read_text())["kubeVersion"])
    .removeprefix(">=")
    .removesuffix(".0-0")
)
NEWEST = kubernetes_validate.latest_version().rpartition(".")[0]

# `hundred` has 90 agents and 10 workflows like those of `newsroom`; a test of the cluster installs it
each_example = pytest.mark.parametrize(
    "example", [name for name in EXAMPLES if name != "hundred"]
)


@each_example
def test_lint(example: str) -> None:
    """Helm's linter has no warning and no error."""
    report = helm_python.lint(
        CHART, example_values(example), strict=True, namespace="prod"
    )
    assert (
        [message for message in report["messages"] if message["severity"] > 1]
        == report["errors"]
        == []
    )


@each_example
def test_both_helms_agree(example: str, helm3: Helm) -> None:
    """Helm 3 and Helm 4 render the same manifests."""
    values = {"apiKeys": SEEDS, **example_values(example)}
    assert by_name(helm3(values)) == by_name(helm4(values))


def test_generated_files_are_up_to_date() -> None:
    """README, copies of the observability files, generated examples and renders are what the script generates."""
    done = subprocess.run(
        [sys.executable, ROOT / "deploy" / "chart.py", "--check"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@functools.cache
def _validator(version: str, api: str, kind: str) -> Any:
    folder = f"kubernetes-json-schema/v{version}-local-strict"
    definitions = Resource.from_contents(
        schema_contents(f"{folder}/_definitions.json", version)
    )
    group = re.sub(r"(\.[^/]*)?/", "-", api)
    schema = Resource.from_contents(
        schema_contents(f"{folder}/{kind.lower()}-{group}.json", version)
    )
    registry = schema @ (definitions @ Registry())
    return jsonschema.Draft202012Validator(schema.contents, registry=registry)


def validate(manifest: Manifest, version: str = OLDEST) -> None:
    """Validate an object against the schema of a version of Kubernetes."""
    full = next(
        each for each in all_versions() if each.startswith(f"{version}.")
    )
    _validator(full, manifest["apiVersion"], manifest["kind"]).validate(
        manifest
    )


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@each_example
def test_kubernetes_accepts_every_object(example: str, version: str) -> None:
    """Every object is valid for the oldest and the newest version of Kubernetes, without unknown fields."""
    for manifest in rendered(example):
        if manifest["apiVersion"] not in CUSTOM:
            validate(manifest, version)
        assert manifest["metadata"]["namespace"] == "prod"


def test_the_validation_finds_faults() -> None:
    """The validation above rejects an unknown field."""
    manifest = next(
        each
        for each in helm4(example_values("minimal"))
        if each["kind"] == "Deployment"
    )
    manifest["spec"]["bogus"] = 1
    with pytest.raises(jsonschema.ValidationError, match="bogus"):
        validate(manifest)


def test_an_example_has_every_kind_of_object() -> None:
    """The production example renders every template of the chart, so that the tests of examples see each."""
    templates = [file.read_text() for file in CHART.glob("templates/**/*.yaml")]
    kinds = {
        kind
        for text in templates
        for kind in re.findall(r"^kind: (\S+)", text, re.MULTILINE)
    }
    assert kinds <= {manifest["kind"] for manifest in rendered("production")}


def test_the_examples_in_the_readme_render(helm: Helm) -> None:
    """The README's values are valid, and its versions of Kubernetes are those of these tests."""
    readme = (CHART / "README.md").read_text()
    blocks = re.findall(
        r"^```yaml\n(.*?)^```", readme, re.MULTILINE | re.DOTALL
    )
    assert f"{OLDEST} to {NEWEST}" in readme
    blocks = [block for block in blocks if block.startswith("defaults:")]
    assert blocks
    for block in blocks:
        kinds = {manifest["kind"] for manifest in helm(yaml.safe_load(block))}
        assert kinds >= {"Deployment", "ConfigMap", "NetworkPolicy"}


def test_names_that_look_like_other_yaml_types(helm: Helm) -> None:
    """Names and values that look like numbers, booleans or null stay strings."""
    component = {
        "env": {"NO": "off", "Y": "1e3"}, "agents": ["1e3"], "imagePullSecrets": ["123"], "priorityClassName": "null",
        "ingress": {"enabled": True, "className": "on", "tlsSecret": "0x1", "hosts": ["1.2"]},
        "secrets": {"existing": ["1e3"]}, "volumes": {"no": {"mountPath": "/no", "emptyDir": {}}},
        "apiKeys": {"existingSecret": "1.5"}, "serviceAccount": {"name": "10"}, "image": {"tag": "1.0"},
    }  # fmt: skip
    manifests = helm(
        {
            "components": {
                "no": component,
                "1e3": {"blueprint": {"configMap": "true"}},
            }
        },
        "y",
        "123",
    )
    for manifest in manifests:
        assert manifest["metadata"]["namespace"] == "123"
        validate(manifest)
    text = json.dumps(by_name(manifests)["Deployment", "y-no"])
    for name in (
        "NO",
        "off",
        "Y",
        "1e3",
        "123",
        "null",
        "no",
        "1.5",
        "10",
        "podwright:1.0",
    ):
        assert f'"{name}"' in text, name


def notes(values: Manifest) -> str:
    with helm_python.Chart.load(CHART) as chart:
        return chart.render(served(values), name="fleet", namespace="prod")[
            "podwright/templates/NOTES.txt"
        ]


def test_the_notes_name_addresses_and_commands() -> None:
    """The notes after an installation have each component's URL and the commands for a test, a key and a port."""
    text = notes(example_values("newsroom"))
    for line in (
        "writer: http://fleet-writer.prod.svc:8000", "helm test fleet --namespace prod", "get secret fleet-desk-keys",
        "port-forward service/fleet-desk 8000:8000",
    ):  # fmt: skip
        assert line in text, line
    assert "Warning" not in text
    assert "--no-hooks" not in text
    monitored = notes(
        {
            "components": {"x": {"monitor": {"type": "service"}}},
            "apiKeys": {"enabled": False},
        }
    )
    # the network policies do not let Prometheus in
    assert "Warning" in monitored
    assert "get secret" not in monitored
    assert "http://" not in notes({})


def test_the_notes_say_what_to_do_without_a_database() -> None:
    """They name the Job of each database, its log, and how to upgrade other components while the database is down."""
    values = example_values("production")
    (job,) = jobs_of(helm4(values), "migration")
    text = notes(values)
    assert text.count(job["metadata"]["name"]) == 2
    assert "runs-database" in text
    assert "--no-hooks" in text


def test_versions() -> None:
    """The default image has the version of the library."""
    (deployment,) = [
        each
        for each in helm4(
            {"components": {"x": {"blueprint": {"configMap": "x"}}}}
        )
        if each["kind"] == "Deployment"
    ]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"podwright:{__version__}"
