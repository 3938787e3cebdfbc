"""Prometheus with its operator, Alertmanager, the OpenTelemetry Collector and Jaeger, in a namespace of their own."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import yaml
from tests.cluster.cluster import TIMEOUT, Cluster
from tests.helm.conftest import Manifest
from tests.helpers import ROOT, tool
from tests.image_support import build_program

NAMESPACE = "podwright-test-watchers"
PROGRAMS = (
    "alertmanager",
    "collector",
    "jaeger",
    "operator",
    "prometheus",
    "prometheus-config-reloader",
)
MANIFESTS = Path(__file__).parent / "watchers.yaml"


def image(program: str) -> str:
    return f"podwright/{program}:cluster"


class Watchers:
    """The programs, in a cluster that has the custom resources of the operator."""

    endpoint = f"http://collector.{NAMESPACE}:4318"
    """Of the Collector, for OTLP over HTTP."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.peer: Manifest = {
            "namespaceSelector": {
                "matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}
            }
        }
        """The network policy peer for Prometheus."""

    def start(self) -> bool:
        """Start them; returns whether they did not run before."""
        template = "--output=jsonpath={.status.phase}"
        phase = self._cluster.kubectl(
            "get", "namespace", NAMESPACE, "--ignore-not-found", template
        )
        if phase == "Active":
            return False
        if phase:  # they were stopped, and nobody has waited for their end
            self._cluster.kubectl(
                "wait",
                "--for=delete",
                f"--timeout={TIMEOUT}s",
                f"namespace/{NAMESPACE}",
            )
        for program in PROGRAMS:
            environment = (
                "ENV JAEGER_LISTEN_HOST=0.0.0.0" if program == "jaeger" else ""
            )
            build_program(
                Path(tool(program)), image(program), "scratch", environment
            )
        self._cluster.load(*map(image, PROGRAMS))
        text = string.Template(MANIFESTS.read_text()).substitute(
            namespace=NAMESPACE
        )
        manifests = list(yaml.safe_load_all(text))
        config = (
            ROOT / "deploy" / "observability" / "collector.yaml"
        ).read_text()
        metadata = {"name": "collector", "namespace": NAMESPACE}
        manifests.append(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": metadata,
                "data": {"config.yaml": config},
            }
        )
        self._cluster.apply(
            sorted(manifests, key=lambda each: each["kind"] != "Namespace")
        )
        for name in ("prometheus/main", "alertmanager/main"):
            self._wait("condition=Available", name)
        self._wait("condition=Available", "deployment", "--all")
        return True

    def _wait(self, condition: str, *objects: str) -> None:
        options = (
            f"--for={condition}",
            f"--timeout={TIMEOUT}s",
            f"--namespace={NAMESPACE}",
        )
        self._cluster.kubectl("wait", *options, *objects)

    def stop(self) -> None:
        """Delete them."""
        self._cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
        # the operator gives Prometheus ten minutes to end, and the next worker that starts them waits for that
        hurry = ("--grace-period=1", "--wait=false", "--ignore-not-found")
        self._cluster.kubectl(
            "delete", "pods", "--all", f"--namespace={NAMESPACE}", *hurry
        )
        self._cluster.kubectl("delete", "clusterrolebinding", NAMESPACE)
        self._cluster.unload(*map(image, PROGRAMS))

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """The labels and the value of each series of a PromQL query."""
        found = self.prometheus("query", query=expression)["result"]
        return [
            (series["metric"], float(series["value"][1])) for series in found
        ]

    def prometheus(self, path: str, **parameters: str) -> Any:
        """The data of a response of Prometheus' HTTP API."""
        response = self._cluster.ask(
            NAMESPACE,
            "prometheus-operated:9090",
            f"/api/v1/{path}",
            **parameters,
        )
        assert response["status"] == "success", response
        return response["data"]

    def alerts(self, namespace: str) -> list[Manifest]:
        """The alerts of a namespace that Alertmanager has and that are not resolved."""
        matcher = f'namespace="{namespace}"'
        return self._cluster.ask(
            NAMESPACE,
            "alertmanager-operated:9093",
            "/api/v2/alerts",
            filter=matcher,
        )

    def traces(self, service: str, **parameters: str) -> list[Manifest]:
        """The traces of a service, in the form of Jaeger's HTTP API."""
        response = self._cluster.ask(
            NAMESPACE,
            "jaeger:16686",
            "/api/traces",
            service=service,
            **parameters,
        )
        return response["data"] or []
