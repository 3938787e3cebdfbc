"""The compose file, as compose reads it: what holds for every service, and what the variables change."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.compose.composed import COMPONENTS, ROOT, STAFF, Engine

OBSERVERS = ["collector", "grafana", "jaeger", "prometheus"]
FOLDER = ROOT / "deploy" / "observability"


def services(engine: Engine, *arguments: str, **variables: str) -> dict[str, Any]:
    place = ("--file", str(ROOT / "compose.yaml"), *arguments)
    return json.loads(engine("compose", *place, "config", "--format", "json", check=True, **variables))["services"]


@pytest.fixture(scope="module")
def every(engine: Engine) -> dict[str, Any]:
    return services(engine, "--profile", "*")


def mounts(service: dict[str, Any]) -> dict[str, Path]:
    return {one["target"]: Path(one["source"]) for one in service.get("volumes", []) if one["type"] == "bind"}


def test_what_there_is(engine: Engine, every: dict[str, Any]) -> None:
    """The fleet is the three agents and their two callers; what watches it comes with the profile only."""
    assert sorted(services(engine)) == COMPONENTS
    assert sorted(every) == sorted([*COMPONENTS, *OBSERVERS])


def test_hardened(every: dict[str, Any]) -> None:
    """Each service runs as a numeric user other than root, read-only, without rights, and within bounds."""
    for name, service in every.items():
        assert re.fullmatch(r"[1-9]\d*:\d+", service["user"]), name
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert int(service["mem_limit"]) <= 2**30, name
        assert service["pids_limit"] <= 256, name
        assert not {"privileged", "network_mode", "pid", "ipc", "cap_add", "devices"} & set(service), name
        assert all(one["read_only"] for one in service.get("volumes", []) if one["type"] == "bind"), name


def test_ports_of_this_machine_only(every: dict[str, Any]) -> None:
    """What is published is so on the loopback address; agents, and the Collector, are not published at all."""
    published = {name: service["ports"] for name, service in every.items() if service.get("ports")}
    assert sorted(published) == ["desk", "grafana", "jaeger", "newsroom", "prometheus"]
    assert {port["host_ip"] for ports in published.values() for port in ports} == {"127.0.0.1"}
    assert len({port["published"] for ports in published.values() for port in ports}) == len(published)


def test_images_are_pinned(every: dict[str, Any]) -> None:
    """Each vendor's image has a version, and none is to be had from a named host."""
    for name in OBSERVERS:
        assert re.fullmatch(r"[a-z]+/[a-z-]+:v?\d+\.\d+\.\d+(-busybox)?", every[name]["image"]), name


def test_offline_unless_told(engine: Engine) -> None:
    """Without a variable every model is the echo; two of them give the blueprints' models, or another, and a key."""
    usual = services(engine)
    real = services(engine, OPENAI_API_KEY="k", PODWRIGHT_MODEL="")
    other = services(engine, OPENAI_API_KEY="k", PODWRIGHT_MODEL="openai/gpt-4.1")
    for name in COMPONENTS:
        assert usual[name]["environment"]["PODWRIGHT_MODEL"] == "offline/echo"
        assert not usual[name]["environment"]["OPENAI_API_KEY"]
        assert not usual[name]["environment"]["OTEL_EXPORTER_OTLP_ENDPOINT"]
        assert not real[name]["environment"]["PODWRIGHT_MODEL"]
        assert other[name]["environment"]["PODWRIGHT_MODEL"] == "openai/gpt-4.1"
        assert real[name]["environment"]["OPENAI_API_KEY"] == "k"


def test_one_key_for_the_fleet(engine: Engine) -> None:
    """The key is asked for by all components, sent by the callers to the agents, and read by Prometheus."""
    keyed = services(engine, "--profile", "*", FLEET_KEY="0123456789abcdef")
    for name in COMPONENTS:
        assert keyed[name]["environment"]["PODWRIGHT_API_KEYS"] == "0123456789abcdef"
    for name in ("newsroom", "desk"):
        sent = json.loads(keyed[name]["environment"]["PODWRIGHT_AGENT_KEYS"])
        assert sent == dict.fromkeys(STAFF, "0123456789abcdef")
    assert keyed["prometheus"]["environment"]["FLEET_KEY"] == "0123456789abcdef"


def test_spans_go_to_the_collector_and_on(engine: Engine) -> None:
    """With the profile, spans go where the Collector listens, and from there to Jaeger; another place can be named."""
    watched = services(engine, COMPOSE_PROFILES="observability")
    config = yaml.safe_load(mounts(watched["collector"])["/etc/otelcol/config.yaml"].read_text())
    port = config["receivers"]["otlp"]["protocols"]["http"]["endpoint"].rsplit(":", 1)[1]
    for name in COMPONENTS:
        assert watched[name]["environment"]["OTEL_EXPORTER_OTLP_ENDPOINT"] == f"http://collector:{port}"
    assert config["exporters"]["otlp_http"]["endpoint"] == "http://jaeger:4318"
    elsewhere = services(engine, OTEL_EXPORTER_OTLP_ENDPOINT="http://there:4318")
    assert elsewhere["desk"]["environment"]["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://there:4318"


def test_the_collectors_pipeline_is_whole() -> None:
    """Each part that the Collector's pipeline names is configured, and none is configured that no pipeline names."""
    config = yaml.safe_load((FOLDER / "collector.yaml").read_text())
    (pipeline,) = config["service"]["pipelines"].values()
    assert set(config) == {"service", *pipeline}
    for kind, names in pipeline.items():
        assert set(config[kind]) == set(names), kind
    limiter = config["processors"]["memory_limiter"]
    assert limiter["spike_limit_percentage"] < limiter["limit_percentage"] < 100
    assert pipeline["processors"][0] == "memory_limiter"


def test_prometheus_is_told_of_all(every: dict[str, Any]) -> None:
    """The addresses that Prometheus looks up are those of the five components, and the rules are where it looks."""
    files = mounts(every["prometheus"])
    config = yaml.safe_load(files["/etc/prometheus/prometheus.yaml"].read_text())
    (scrape,) = config["scrape_configs"]
    (lookup,) = scrape["dns_sd_configs"]
    assert sorted(lookup["names"]) == COMPONENTS
    assert files["/etc/prometheus/alerts.yaml"] == FOLDER / "alerts.yaml"
    assert config["rule_files"] == ["alerts.yaml"]
    assert scrape["authorization"]["credentials_file"] in " ".join(every["prometheus"]["entrypoint"])


def test_grafana_is_provisioned(every: dict[str, Any]) -> None:
    """Grafana finds Prometheus and Jaeger by their services, the dashboard's file, and the trace of an exemplar."""
    files = mounts(every["grafana"])
    provisioning = "/etc/grafana/provisioning"
    sources = yaml.safe_load(files[f"{provisioning}/datasources/podwright.yaml"].read_text())["datasources"]
    assert {one["type"]: one["url"] for one in sources} == {
        "prometheus": "http://prometheus:9090",
        "jaeger": "http://jaeger:16686",
    }
    (default,) = [one for one in sources if one.get("isDefault")]
    assert default["type"] == "prometheus"
    config = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())
    assert default["jsonData"]["timeInterval"] == config["global"]["scrape_interval"]
    (exemplar,) = default["jsonData"]["exemplarTraceIdDestinations"]
    assert exemplar == {"name": "trace_id", "datasourceUid": next(s["uid"] for s in sources if s["type"] == "jaeger")}
    (provider,) = yaml.safe_load(files[f"{provisioning}/dashboards/podwright.yaml"].read_text())["providers"]
    shown = f"{provider['options']['path']}/dashboard.json"
    assert files[shown] == FOLDER / "dashboard.json"
    assert every["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] == shown
    (variable,) = [v for v in json.loads(files[shown].read_text())["templating"]["list"] if v["type"] == "datasource"]
    assert variable["query"] == default["type"]
    assert all(file.is_file() for file in files.values())
