"""The compose file as compose reads it: what holds for every service, and the effect of variables."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.compose.composed import COMPONENTS, STAFF
from tests.helpers import ROOT
from tests.image_support import Docker

OBSERVERS = ["collector", "grafana", "jaeger", "prometheus"]
BACKGROUND = ["background", "database"]
FOLDER = ROOT / "deploy" / "observability"


def config(docker: Docker, *options: str, **variables: str) -> dict[str, Any]:
    command = (
        "compose",
        "--file",
        str(ROOT / "compose.yaml"),
        *options,
        "config",
        "--format",
        "json",
    )
    return json.loads(docker(*command, **variables))["services"]


@pytest.fixture(scope="module")
def services(docker: Docker) -> dict[str, Any]:
    """All services, with and without a profile."""
    return config(docker, "--profile", "*")


def mounts(service: dict[str, Any]) -> dict[str, Path]:
    volumes = service.get("volumes", [])
    return {
        volume["target"]: Path(volume["source"])
        for volume in volumes
        if volume["type"] == "bind"
    }


def test_services(docker: Docker, services: dict[str, Any]) -> None:
    """The fleet has three agents and two callers; others come with their profile only, with pinned images."""
    assert sorted(config(docker)) == COMPONENTS
    assert sorted(config(docker, "--profile", "background")) == sorted(
        [*COMPONENTS, *BACKGROUND]
    )
    assert sorted(services) == sorted([*COMPONENTS, *BACKGROUND, *OBSERVERS])
    for name in (*OBSERVERS, "database"):
        assert re.fullmatch(
            r"[a-z/-]+:v?\d+(\.\d+)+(-busybox)?", services[name]["image"]
        ), name


def test_hardened(services: dict[str, Any]) -> None:
    """Each service has a numeric user that is not root, a read-only root, no capabilities, and limits."""
    for name, service in services.items():
        assert re.fullmatch(r"[1-9]\d*:\d+", service["user"]), name
        assert (service["read_only"], service["restart"]) == (
            True,
            "unless-stopped",
        ), name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert int(service["mem_limit"]) <= 2**30, name
        assert service["pids_limit"] <= 256, name
        assert not {
            "privileged",
            "network_mode",
            "pid",
            "ipc",
            "cap_add",
            "devices",
        } & set(service), name
        volumes = [
            volume
            for volume in service.get("volumes", [])
            if volume["type"] == "bind"
        ]
        assert all(volume["read_only"] for volume in volumes), name


def test_ports(services: dict[str, Any]) -> None:
    """Ports are published on the loopback address; agents, the collector and the database publish none."""
    published = {
        name: service["ports"]
        for name, service in services.items()
        if service.get("ports")
    }
    assert sorted(published) == [
        "background",
        "desk",
        "grafana",
        "jaeger",
        "newsroom",
        "prometheus",
    ]
    ports = [port for ports in published.values() for port in ports]
    assert {port["host_ip"] for port in ports} == {"127.0.0.1"}
    assert len({port["published"] for port in ports}) == len(ports)


def test_variables(docker: Docker) -> None:
    """By default the model is offline; variables set another one, a provider's key, the fleet's key and a collector."""
    default = config(docker)
    blueprints = config(docker, OPENAI_API_KEY="k", PODWRIGHT_MODEL="")
    other = config(
        docker, PODWRIGHT_MODEL="openai/gpt-4.1", FLEET_KEY="0123456789abcdef",
        OTEL_EXPORTER_OTLP_ENDPOINT="http://there:4318",
    )  # fmt: skip
    for name in COMPONENTS:
        assert default[name]["environment"]["PODWRIGHT_MODEL"] == "offline/echo"
        assert not default[name]["environment"]["OPENAI_API_KEY"]
        assert not default[name]["environment"]["OTEL_EXPORTER_OTLP_ENDPOINT"]
        assert not blueprints[name]["environment"]["PODWRIGHT_MODEL"]
        assert blueprints[name]["environment"]["OPENAI_API_KEY"] == "k"
        assert other[name]["environment"]["PODWRIGHT_MODEL"] == "openai/gpt-4.1"
        assert (
            other[name]["environment"]["PODWRIGHT_API_KEYS"]
            == "0123456789abcdef"
        )
        assert (
            other[name]["environment"]["OTEL_EXPORTER_OTLP_ENDPOINT"]
            == "http://there:4318"
        )
    for name in ("newsroom", "desk"):
        keys = json.loads(other[name]["environment"]["PODWRIGHT_AGENT_KEYS"])
        assert keys == dict.fromkeys(STAFF, "0123456789abcdef")
    observed = config(docker, "--profile", "*", FLEET_KEY="0123456789abcdef")
    assert (
        observed["prometheus"]["environment"]["FLEET_KEY"] == "0123456789abcdef"
    )


def test_prometheus_scrapes_all(services: dict[str, Any]) -> None:
    """Prometheus looks up the components, and finds the rules and the API key."""
    files = mounts(services["prometheus"])
    prometheus = yaml.safe_load(
        files["/etc/prometheus/prometheus.yaml"].read_text()
    )
    [scrape] = prometheus["scrape_configs"]
    [lookup] = scrape["dns_sd_configs"]
    assert sorted(lookup["names"]) == ["background", *COMPONENTS]
    assert files["/etc/prometheus/alerts.yaml"] == FOLDER / "alerts.yaml"
    assert prometheus["rule_files"] == ["alerts.yaml"]
    assert scrape["authorization"]["credentials_file"] in " ".join(
        services["prometheus"]["entrypoint"]
    )


def test_grafana_is_provisioned(services: dict[str, Any]) -> None:
    """Grafana finds Prometheus, Jaeger, the dashboard, and the trace of an exemplar."""
    files = mounts(services["grafana"])
    provisioning = "/etc/grafana/provisioning"
    sources = yaml.safe_load(
        files[f"{provisioning}/datasources/podwright.yaml"].read_text()
    )["datasources"]
    assert {source["type"]: source["url"] for source in sources} == {
        "prometheus": "http://prometheus:9090",
        "jaeger": "http://jaeger:16686",
    }
    [default] = [source for source in sources if source.get("isDefault")]
    assert default["type"] == "prometheus"
    prometheus = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())
    assert (
        default["jsonData"]["timeInterval"]
        == prometheus["global"]["scrape_interval"]
    )
    [exemplar] = default["jsonData"]["exemplarTraceIdDestinations"]
    [jaeger] = [source for source in sources if source["type"] == "jaeger"]
    assert exemplar == {"name": "trace_id", "datasourceUid": jaeger["uid"]}
    [provider] = yaml.safe_load(
        files[f"{provisioning}/dashboards/podwright.yaml"].read_text()
    )["providers"]
    dashboard = f"{provider['options']['path']}/dashboard.json"
    assert files[dashboard] == FOLDER / "dashboard.json"
    assert (
        services["grafana"]["environment"][
            "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"
        ]
        == dashboard
    )
    variables = json.loads(files[dashboard].read_text())["templating"]["list"]
    [variable] = [
        variable for variable in variables if variable["type"] == "datasource"
    ]
    assert variable["query"] == default["type"]
    assert all(file.is_file() for file in files.values())
