"""Renders the chart, on Helm 4 as a library and on Helm 3 as a program."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn, Protocol

import helm_python
import pytest
import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "podwright"

Manifest = dict[str, Any]
Render = Callable[..., list[Manifest]]


class RefusedError(Exception):
    """Helm did not render; the text is Helm's."""


class _Loader(yaml.CSafeLoader):
    """Refuses a key that is there twice, as server-side apply does."""


def _mapping(loader: yaml.CSafeLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    keys = [loader.construct_object(key) for key, _ in node.value]
    assert len(keys) == len(set(keys)), f"a key is there twice: {keys}"
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


class Helm(Protocol):
    def __call__(self, values: Manifest, release: str = "fleet", namespace: str = "prod") -> list[Manifest]: ...


def read(texts: Iterable[str]) -> list[Manifest]:
    return [manifest for text in texts for manifest in yaml.load_all(text, _Loader) if manifest]


def missing(what: str) -> NoReturn:
    """Skip a test for want of something; in CI it must be there."""
    (pytest.fail if os.environ.get("CI") else pytest.skip)(f"NOT TESTED with {what}")


def tool(name: str) -> str:
    """The path of a tool, which is brought where it is missing."""
    done = subprocess.run([ROOT / "deploy" / "tools.sh", name], capture_output=True, text=True)
    if done.returncode:
        missing(f"{name}: {done.stderr.strip()}")
    return done.stdout.strip()


def helm4(values: Manifest, release: str = "fleet", namespace: str = "prod") -> list[Manifest]:
    with helm_python.Chart.load(CHART) as chart:
        try:
            rendered = chart.render(values, name=release, namespace=namespace)
        except helm_python.HelmError as error:
            raise RefusedError(str(error)) from None
    return read(text for template, text in rendered.items() if not template.endswith(".txt"))


def helm3(program: str) -> Helm:
    def render(values: Manifest, release: str = "fleet", namespace: str = "prod") -> list[Manifest]:
        command = [program, "template", release, CHART, "--namespace", namespace, "--values", "-"]
        done = subprocess.run(
            [*command, "--kube-version", "1.30.0"], input=json.dumps(values), capture_output=True, text=True
        )
        if done.returncode:
            raise RefusedError(done.stderr)
        return read([done.stdout])

    return render


@pytest.fixture(scope="session", params=["helm4", "helm3"])
def helm(request: pytest.FixtureRequest) -> Helm:
    return helm4 if request.param == "helm4" else helm3(tool("helm3"))


@pytest.fixture(scope="session")
def tools() -> ModuleType:
    """The script that makes what is derived in the chart."""
    spec = importlib.util.spec_from_file_location("chart_script", ROOT / "deploy" / "chart.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
