"""Renders the chart with Helm 4 as a library and with Helm 3 as a program."""

from __future__ import annotations

import base64
import functools
import json
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import helm_python
import pytest
import yaml
from tests.helpers import ROOT, tool

CHART = ROOT / "helm" / "podwright"
EXAMPLES = sorted(
    path.parent.name for path in CHART.glob("examples/*/values.yaml")
)
SEEDS = {"seeds": ["a seed for tests, of 32 characters or more"]}
CUSTOM = {
    "external-secrets.io/v1": {"ExternalSecret"},
    "gateway.networking.k8s.io/v1": {"HTTPRoute"},
    "keda.sh/v1alpha1": {"ScaledObject", "TriggerAuthentication"},
    "monitoring.coreos.com/v1": {
        "PodMonitor",
        "PrometheusRule",
        "ServiceMonitor",
    },
}
"""The kinds of custom resources that the chart can create, by API."""

Manifest = dict[str, Any]
Helm = Callable[..., list[Manifest]]
"""Renders values, optionally for a release and a namespace, and as a dependency of another chart.

The values are those of `served`, unless `complete` is false.
"""


class RenderError(Exception):
    """Helm did not render the chart; the text is Helm's error message."""


class _Loader(yaml.CSafeLoader):
    """Rejects duplicate keys, as server-side apply does."""


def _mapping(
    loader: yaml.CSafeLoader, node: yaml.MappingNode
) -> dict[Any, Any]:
    keys = [loader.construct_object(key) for key, _ in node.value]
    assert len(keys) == len(set(keys)), f"duplicate key: {keys}"
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


def read(texts: Iterable[str]) -> list[Manifest]:
    """The manifests in YAML documents."""
    return [
        manifest
        for text in texts
        for manifest in yaml.load_all(text, _Loader)
        if manifest
    ]


def served(values: Manifest) -> Manifest:
    """Values in which each component has something to serve: those that say nothing of it have an image of their own.

    The values of charts that this one is a dependency of are completed too.
    """
    complete: Manifest = {}
    for key, value in values.items():
        complete[key] = value
        if key != "components" and isinstance(value, dict):
            complete[key] = served(value)
    components = values.get("components")
    if isinstance(components, dict):
        shared = values.get("defaults") or {}
        complete["components"] = {
            name: _served(name, component, shared)
            for name, component in components.items()
        }
    return complete


def _served(name: str, component: Any, shared: Manifest) -> Any:
    if not isinstance(component, dict):
        return component
    for values in (component, shared):
        source = values.get("blueprint") or {}
        image = values.get("image") or {}
        keys = ("repository", "tag", "digest")
        if values.get("files") or any(source.values()):
            return component
        if any(image.get(key) for key in keys):
            return component
    image = {**(component.get("image") or {}), "repository": f"team/{name}"}
    return {**component, "image": image}


def helm4(
    values: Manifest,
    release: str = "fleet",
    namespace: str = "prod",
    chart: Path = CHART,
    *,
    complete: bool = True,
) -> list[Manifest]:
    if complete:
        values = served(values)
    with helm_python.Chart.load(chart) as loaded:
        try:
            rendered = loaded.render(values, name=release, namespace=namespace)
        except helm_python.HelmError as error:
            raise RenderError(str(error)) from None
    return read(
        text
        for template, text in rendered.items()
        if not template.endswith(".txt")
    )


@pytest.fixture(scope="session")
def helm3() -> Helm:
    program = tool("helm3")

    def render(
        values: Manifest,
        release: str = "fleet",
        namespace: str = "prod",
        chart: Path = CHART,
        *,
        complete: bool = True,
    ) -> list[Manifest]:
        if complete:
            values = served(values)
        options = [
            "--namespace",
            namespace,
            "--kube-version",
            "1.30.0",
            "--values",
            "-",
        ]
        command = [program, "template", release, chart, *options]
        done = subprocess.run(
            command,
            input=json.dumps(values),
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RenderError(done.stderr)
        return read([done.stdout])

    return render


@pytest.fixture(scope="session", params=["helm4", "helm3"])
def helm(request: pytest.FixtureRequest) -> Helm:
    return (
        helm4
        if request.param == "helm4"
        else request.getfixturevalue(request.param)
    )


def example_values(example: str) -> Manifest:
    return yaml.safe_load(
        (CHART / "examples" / example / "values.yaml").read_text()
    )


@functools.cache
def rendered(example: str) -> list[Manifest]:
    """The manifests of an example, which must not be changed: a large one takes seconds to render."""
    return helm4(example_values(example))


def by_name(manifests: list[Manifest]) -> dict[tuple[str, str], Manifest]:
    """The manifests by kind and name."""
    named = {
        (manifest["kind"], manifest["metadata"]["name"]): manifest
        for manifest in manifests
    }
    assert len(named) == len(manifests), "two objects have the same name"
    return named


def jobs_of(manifests: Iterable[Manifest], purpose: str) -> list[Manifest]:
    """The Jobs whose pods are for a purpose, `migration` or `test`."""
    name = f"podwright-{purpose}"
    return [
        manifest
        for manifest in manifests
        if manifest["kind"] == "Job"
        and manifest["spec"]["template"]["metadata"]["labels"][
            "app.kubernetes.io/name"
        ]
        == name
    ]


def decoded(secret: Manifest) -> dict[str, str]:
    """The entries of a Secret."""
    return {
        key: base64.b64decode(text).decode()
        for key, text in secret["data"].items()
    }
