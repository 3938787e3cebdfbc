"""The chart as a package: what a registry and Artifact Hub have of it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tarfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import helm_python
import pytest
import yaml
from tests.docs.test_docs import anchors
from tests.helm.conftest import (
    CHART,
    SEEDS,
    Helm,
    Manifest,
    by_name,
    example_values,
    read,
)
from tests.helpers import ROOT, environment, plain_http, tool
from tests.registry import running_registry

from podwright import __version__
from podwright.errors import DOCS_URL

WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"
METADATA = yaml.safe_load((CHART / "Chart.yaml").read_text())


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart, packaged by Helm 4."""
    folder = tmp_path_factory.mktemp("package")
    return Path(helm_python.package(CHART, destination=folder))


def test_the_package_has_what_an_installation_needs(package: Path) -> None:
    """It has templates, files, schema and README, and no examples, which would be stored with each release."""
    assert package.name == f"podwright-{__version__}.tgz"
    with tarfile.open(package) as archive:
        names = {Path(name).relative_to("podwright") for name in archive.getnames()}  # fmt: skip
    expected = {
        path.relative_to(CHART)
        for folder in ("files", "templates")
        for path in (CHART / folder).rglob("*")
        if path.is_file()
    }
    expected |= {
        Path(name)
        for name in (
            "Chart.yaml", "README.md", "values.yaml", "values.schema.json", ".helmignore",
        )
    }  # fmt: skip
    assert names == expected


def values() -> Manifest:
    return {**example_values("production"), "apiKeys": SEEDS}


def test_the_package_renders_as_the_folder(package: Path) -> None:
    """Helm 4 renders the package as the folder, and checks values with its schema."""
    with helm_python.Chart.load(package) as chart:
        rendered = chart.render(values(), name="fleet", namespace="prod")
        with pytest.raises(helm_python.HelmError, match="replica"):
            chart.render(
                {"defaults": {"replica": 1}}, name="fleet", namespace="prod"
            )
    with helm_python.Chart.load(CHART) as chart:
        assert rendered == chart.render(
            values(), name="fleet", namespace="prod"
        )


def test_helm_3_packages_it_too(helm3: Helm, tmp_path: Path) -> None:
    """The package of Helm 3, as in `make dist`, renders as the folder."""
    program = tool("helm3")
    subprocess.run(
        [program, "package", CHART, "--destination", tmp_path],
        check=True,
        capture_output=True,
    )
    done = subprocess.run(
        [
            program,
            "template",
            "fleet",
            tmp_path / f"podwright-{__version__}.tgz",
            "--namespace=prod",
            "--kube-version=1.30.0",
            "--values=-",
        ],
        input=json.dumps(values()),
        check=True,
        capture_output=True,
        text=True,
    )
    assert by_name(read([done.stdout])) == by_name(helm3(values()))


@pytest.fixture
def registry() -> Iterator[str]:
    """The address of a container registry on this machine."""
    with running_registry() as address:
        yield address


def test_a_release_pushes_the_package(
    package: Path, registry: str, tmp_path: Path
) -> None:
    """The workflow's script pushes the chart as it says, names its digest, and what is pulled is the package."""
    workflow = yaml.safe_load(WORKFLOW.read_text())
    steps = workflow["jobs"]["release"]["steps"]
    (script,) = [each["run"] for each in steps if each.get("id") == "chart"]
    (tmp_path / "dist").mkdir()
    shutil.copy(package, tmp_path / "dist")
    output = tmp_path / "output"
    # the registry has no TLS
    helm = tmp_path / "bin" / "helm"
    helm.parent.mkdir()
    helm.write_text(f'#!/bin/sh\nexec {tool("helm")} "$@" --plain-http\n')
    helm.chmod(0o755)
    variables = environment(
        PATH=f"{helm.parent}:{os.environ['PATH']}",
        GITHUB_OUTPUT=str(output),
        GITHUB_REPOSITORY_OWNER="Some-Owner",
        REGISTRY=registry,
        TAG=f"v{__version__}",
        HELM_CACHE_HOME=str(tmp_path / "cache"),
        HELM_CONFIG_HOME=str(tmp_path / "config"),
        DOCKER_CONFIG=str(tmp_path / "docker"),
    )
    done = subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    outputs = dict(
        line.split("=", 1) for line in output.read_text().splitlines()
    )
    assert outputs["name"] == f"{registry}/some-owner/charts/podwright"
    url = f"http://{registry}/v2/some-owner/charts/podwright"
    manifest = plain_http.get(
        f"{url}/manifests/{outputs['digest']}",
        headers={"accept": "application/vnd.oci.image.manifest.v1+json"},
    ).json()
    (layer,) = manifest["layers"]
    blob = plain_http.get(f"{url}/blobs/{layer['digest']}")
    assert blob.content == package.read_bytes()
    assert manifest["annotations"]["org.opencontainers.image.version"] == (
        __version__
    )


def test_what_artifact_hub_shows() -> None:
    """License, home page and links are those of the Python packages, and the README has no link into the repository."""
    project = tomllib.loads(
        (ROOT / "library" / "pyproject.toml").read_text()
    )["project"]  # fmt: skip
    annotations = METADATA["annotations"]
    assert annotations["artifacthub.io/license"] == project["license"]
    assert METADATA["home"] == project["urls"]["Documentation"] == DOCS_URL
    named = {
        link["name"]: link["url"]
        for link in yaml.safe_load(annotations["artifacthub.io/links"])
    }
    assert named["Changelog"] == project["urls"]["Changelog"]
    readme = CHART / "README.md"
    links = re.findall(r"\]\(([^)]+)\)", readme.read_text())
    assert links
    for link in (*links, named["Documentation"]):
        page, _, anchor = link.partition("#")
        file = readme
        if page:
            name = page.removeprefix(f"{DOCS_URL}/").removesuffix(".html")
            file = ROOT / "docs" / f"{name}.md"
        assert file.is_file(), link
        assert not anchor or anchor in anchors(file), link
