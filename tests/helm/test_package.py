"""The chart as a package: what a registry and Artifact Hub have of it."""

from __future__ import annotations

import json
import re
import subprocess
import tarfile
import tomllib
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
from tests.helpers import ROOT, tool

from podwright import __version__
from podwright.errors import DOCS_URL

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
