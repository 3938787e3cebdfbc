"""The chart's values: mistakes are named, and zero, false and null have a meaning."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import yaml
from tests.helm.conftest import CHART, Helm, Manifest, RenderError, by_name

from podwright_service.settings import Settings
from podwright_service.variables import LIBRARY

SOURCE: Manifest = {"valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}

INVALID_COMPONENTS: dict[str, tuple[Manifest, list[str]]] = {
    "an unknown key": ({"replica": 1}, ["replica"]),
    "an unknown key below": (
        {"probes": {"startup": {"path": "/"}}},
        ["startup", "path"],
    ),
    "a text for a number": ({"replicas": "two"}, ["replicas"]),
    "an unknown agent": ({"agents": ["y"]}, ["components.x.agents"]),
    "a duplicate agent": ({"agents": ["x", "x"]}, ["components.x.agents"]),
    "an agent of another release without seeds": (
        {"agents": [{"name": "y", "component": "y", "release": "other"}]},
        ["components.x.agents", "apiKeys.seeds"],
    ),
    "an invalid URL": (
        {"agents": [{"name": "y", "url": "y:80"}]},
        ["agents", "0"],
    ),
    "an unknown setting": (
        {"settings": {"max_run": 1}},
        ["settings", "max_run"],
    ),
    "an invalid setting": (
        {"settings": {"log_level": "loud"}},
        ["settings", "log_level"],
    ),
    "a variable of the service": (
        {"env": {"PODWRIGHT_PORT": 1}},
        ["env", "PODWRIGHT_PORT"],
    ),
    "a variable of the service that the chart sets": (
        {"env": {"PODWRIGHT_PORT": SOURCE}},
        ["components.x.env.PODWRIGHT_PORT"],
    ),
    "an unknown source of a variable": (
        {"env": {"A": {"valueFrom": {"secretRef": {"name": "s"}}}}},
        ["env", "A"],
    ),
    "two sources of a variable": (
        {
            "env": {
                "A": {
                    "valueFrom": {
                        **SOURCE["valueFrom"],
                        "fieldRef": {"fieldPath": "metadata.name"},
                    }
                }
            }
        },
        ["env", "A"],
    ),
    "a source of variables without a name": (
        {"envFrom": [{"configMapRef": {}}]},
        ["envFrom", "0"],
    ),
    "a container without an image": (
        {"initContainers": [{"name": "fetch"}]},
        ["initContainers", "0", "image"],
    ),
    "a second container with the component's name": (
        {"extraContainers": [{"name": "component", "image": "proxy"}]},
        ["extraContainers", "0", "name"],
    ),
    "an unknown DNS policy": ({"dnsPolicy": "None!"}, ["dnsPolicy"]),
    "an unknown DNS setting": (
        {"dnsConfig": {"ndots": 2}},
        ["dnsConfig", "ndots"],
    ),
    "an address without names": (
        {"hostAliases": [{"ip": "192.0.2.7"}]},
        ["hostAliases", "0", "hostnames"],
    ),
    "a mount without a path": (
        {"extraVolumeMounts": [{"name": "tmp"}]},
        ["extraVolumeMounts", "0", "mountPath"],
    ),
    "two keys of an agent": (
        {
            "agents": [
                {
                    "name": "y",
                    "url": "http://y",
                    "key": "k" * 16,
                    "keySecret": {"name": "y", "key": "k"},
                }
            ]
        },
        ["agents", "0"],
    ),
    "a key of an agent without its entry": (
        {
            "agents": [
                {"name": "y", "url": "http://y", "keySecret": {"name": "y"}}
            ]
        },
        ["agents", "0"],
    ),
    "a published metrics path": (
        {"ingress": {"paths": ["/metrics"]}},
        ["ingress", "paths", "0"],
    ),
    "a reserved volume name": (
        {"volumes": {"tmp": {"mountPath": "/t"}}},
        ["components.x.volumes.tmp"],
    ),
    "a hostPath volume": (
        {"volumes": {"h": {"mountPath": "/h", "hostPath": {}}}},
        ["volumes", "hostPath"],
    ),
    "root": ({"user": {"runAsUser": 0}}, ["user", "runAsUser"]),
    "an HPA to zero": (
        {"autoscaling": {"type": "hpa", "min": 0}},
        ["components.x.autoscaling.min"],
    ),
    "an HPA without a metric": (
        {"autoscaling": {"type": "hpa", "cpu": None}},
        ["components.x.autoscaling"],
    ),
    "KEDA without Prometheus": (
        {"autoscaling": {"type": "keda"}},
        ["components.x.autoscaling.keda.prometheus"],
    ),
    "KEDA to zero": (
        {
            "autoscaling": {
                "type": "keda",
                "min": 0,
                "keda": {"prometheus": "http://p"},
            }
        },
        ["components.x.autoscaling.keda.query"],
    ),
    "SQLite for two pods": (
        {"runs": {"store": "sqlite"}, "replicas": 2},
        ["components.x.runs.store"],
    ),
    "SQLite for scaled pods": (
        {"runs": {"store": "sqlite"}, "autoscaling": {"type": "hpa"}},
        ["components.x.runs.store"],
    ),
    "PostgreSQL without a Secret": (
        {"runs": {"store": "postgres"}},
        ["components.x.runs.postgres.secret"],
    ),
    "a webhook without background runs": (
        {"webhook": {"url": "https://h", "secret": "s"}},
        ["components.x.webhook.url"],
    ),
    "a webhook without a Secret": (
        {"runs": {"store": "sqlite"}, "webhook": {"url": "https://h"}},
        ["components.x.webhook.secret"],
    ),
    "a webhook with a password": (
        {"webhook": {"url": "https://user:password@h", "secret": "s"}},
        ["webhook", "url"],
    ),
    "an Ingress without a host": (
        {"ingress": {"enabled": True}},
        ["components.x.ingress.hosts"],
    ),
    "a route without a gateway": (
        {"httpRoute": {"enabled": True}},
        ["components.x.httpRoute.parentRefs"],
    ),
    "no secret store": (
        {"secrets": {"external": {"enabled": True}}},
        ["components.x.secrets.external"],
    ),
    "invalid JSON": (
        {"blueprint": {"inline": "{,"}},
        ["components.x.blueprint.inline"],
    ),
    "two sources": (
        {"blueprint": {"configMap": "c"}, "files": {"a": ""}},
        ["components.x.blueprint.configMap"],
    ),
    "files beside the image's": (
        {"filesFrom": ["tools"]},
        ["components.x.filesFrom"],
    ),
    "two paths with one key": (
        {"files": {"agents/y.json": "", "agents..y.json": ""}},
        ["agents..y.json"],
    ),
    "a path outside": (
        {"files": {"../etc/passwd": ""}},
        ["files", "../etc/passwd"],
    ),
    **{
        f"the API key {entry}": (
            {"apiKeys": {"accept": [entry]}},
            ["accept", "0"],
        )
        for entry in (
            "run:short",
            "rum:0123456789abcdef",
            ":0123456789abcdef",
            "run@:0123456789abcdef",
            "run@a b:0123456789abcdef",
            "run@alice@0123456789abcdef",
        )
    },
}
INVALID_VALUES: dict[str, tuple[Manifest, list[str]]] = {
    "an unknown key at the top": ({"component": {}}, ["component"]),
    "an unknown default": (
        {"defaults": {"imagePullPolicy": "Always"}},
        ["defaults", "imagePullPolicy"],
    ),
    "an invalid name": (
        {"components": {"Big_One": {}}},
        ["components", "Big_One"],
    ),
    "a long name": ({"components": {"x" * 60: {}}}, ["components.xxx", "63"]),
    "a short seed": ({"apiKeys": {"seeds": ["short"]}}, ["seeds", "0"]),
    **{
        name: ({"components": {"x": component}}, ["x", *path])
        for name, (component, path) in INVALID_COMPONENTS.items()
    },
}


@pytest.mark.parametrize(
    ("values", "path"), INVALID_VALUES.values(), ids=INVALID_VALUES
)
def test_an_invalid_value_is_named(
    helm: Helm, values: Manifest, path: list[str]
) -> None:
    """An invalid value fails the rendering, and the error has its path."""
    with pytest.raises(RenderError) as caught:
        helm(values)
    assert [part for part in path if part not in str(caught.value)] == [], (
        caught.value
    )


def test_keys_with_names(helm: Helm) -> None:
    """The entries that a component accepts have the forms of the service."""
    key = "0123456789abcdef"
    entries = [
        prefix + key
        for prefix in ("", "run:", "@alice:", "run+read@alice:", "alice@run:")
    ]
    keys = {"accept": entries}
    manifests = helm({"components": {"x": {"apiKeys": keys}}})
    (secret,) = (
        manifest
        for manifest in manifests
        if manifest["kind"] == "Secret" and "api-keys" in manifest["data"]
    )
    accepted = base64.b64decode(secret["data"]["api-keys"]).decode()
    assert accepted.splitlines()[-len(entries) :] == entries


def test_a_release_name_that_starts_with_a_digit(helm: Helm) -> None:
    """A Service's name must start with a letter, so the chart rejects such a release."""
    with pytest.raises(RenderError, match="letter"):
        helm({"components": {"x": {}}}, "7up")


def open_objects(schema: Any, path: str = "") -> Iterator[str]:
    """The paths of objects that accept any key."""
    if isinstance(schema, dict):
        if (
            schema.get("type") in ("object", ["object", "null"])
            and "additionalProperties" not in schema
        ):
            yield path
        for key, below in schema.items():
            yield from open_objects(below, f"{path}/{key}")
    elif isinstance(schema, list):
        for number, below in enumerate(schema):
            yield from open_objects(below, f"{path}/{number}")


def test_the_schema_is_closed() -> None:
    """Objects accept known keys only, except those with a shape of Kubernetes, which Kubernetes checks."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    names = {
        path.rpartition("/properties/")[2].removesuffix("/items")
        for path in open_objects(schema)
    }
    assert names == {
        "/definitions/container", "configMap", "csi", "downwardAPI", "egress", "emptyDir", "ephemeral", "extraEgress",
        "extraObjects", "global", "image", "inputs", "nodeAffinity", "persistentVolumeClaim", "podAffinity",
        "podAntiAffinity", "projected", "secret", "tags",
    }  # fmt: skip
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(values) == set(schema["properties"]) - {"tags"}
    assert set(values["defaults"]) == set(
        schema["definitions"]["component"]["properties"]
    )


def test_the_settings_are_those_of_the_service() -> None:
    """The values accept every setting of the service, except those that the chart sets."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    settings = set(
        schema["definitions"]["component"]["properties"]["settings"][
            "properties"
        ]
    )
    set_by_the_chart = {
        "component", "model", "port", "drain_delay", "shutdown_timeout", "api_keys", "api_keys_file", "agents",
        "agents_file", "agent_keys", "agent_key_files", "agent_proxies", "mcp_servers", "mcp_servers_file", "mcp_keys",
        "mcp", "mcp_key_files", "previous", "secrets_dir", "state_keys",
        "webhook",
    }  # fmt: skip
    secret = {"model_api_key", "runs_database", "webhook_secret"}
    of_the_library = {
        variable.removeprefix("PODWRIGHT_").lower() for variable in LIBRARY
    }
    assert (
        settings
        == (set(Settings.model_fields) | of_the_library)
        - set_by_the_chart
        - secret
    )


@pytest.mark.parametrize(
    ("has_keys", "listed", "expected"),
    [
        (False, None, "fleet-x.prod,a.example.com,*.example.org"),
        (
            False,
            ["b.example.com"],
            "fleet-x.prod,a.example.com,*.example.org,b.example.com",
        ),
        (
            True,
            ["b.example.com"],
            "fleet-x.prod,a.example.com,*.example.org,b.example.com",
        ),
        (True, None, None),
    ],
)
def test_host_names(
    helm: Helm, has_keys: bool, listed: list[str] | None, expected: str | None
) -> None:
    """The names of the Service and of what publishes it are allowed; with keys and without a list any name is."""
    component = {
        "settings": {"allowed_hosts": listed},
        "ingress": {"enabled": True, "hosts": ["a.example.com"]},
        "httpRoute": {
            "enabled": True,
            "parentRefs": [{"name": "gateway"}],
            "hostnames": ["*.example.org"],
        },
    }
    manifests = by_name(
        helm({"apiKeys": {"enabled": has_keys}, "components": {"x": component}})
    )
    (container,) = manifests["Deployment", "fleet-x"]["spec"]["template"][
        "spec"
    ]["containers"]
    assert {
        entry["name"]: entry.get("value") for entry in container["env"]
    }.get("PODWRIGHT_ALLOWED_HOSTS") == expected


def test_zero_false_and_null(helm: Helm) -> None:
    """0, false and an empty list override the defaults, null removes one, and large numbers are written out."""
    component = {
        "replicas": 0,
        "settings": {
            "max_waiting": 0, "log_content": False, "run_cost": 0, "max_runs": None, "max_body_bytes": 1048576,
            "run_wall_time": 0.5, "allowed_models": ["a/b", "c/d"],
        },
        "env": {"A": None, "ZERO": 0, "NO": False, "EMPTY": "", "MANY": 100000000},
        "drain": {"preStop": 0, "delay": 0, "margin": 0},
        "podDisruptionBudget": {"maxUnavailable": 0},
        "probes": {"startup": {"initialDelaySeconds": 0}},
        "networkPolicy": {"models": []},
        "topologySpread": [],
        "resources": {"limits": {"cpu": None}},
        "user": {"runAsUser": None, "runAsGroup": None, "fsGroup": None},
        "test": {"enabled": False},
    }  # fmt: skip
    defaults = {
        "settings": {"max_runs": 7, "log_content": True, "run_cost": 1},
        "env": {"A": "a", "B": "b"},
    }
    manifests = by_name(
        helm(
            {
                "defaults": defaults,
                "apiKeys": {"enabled": False},
                "components": {"x": component},
            }
        )
    )
    deployment = manifests["Deployment", "fleet-x"]
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert deployment["spec"]["replicas"] == 0
    assert {variable["name"]: variable["value"] for variable in container["env"]} == {
        "B": "b", "ZERO": "0", "NO": "false", "EMPTY": "", "MANY": "100000000",
        "PODWRIGHT_PORT": "8000", "PODWRIGHT_DRAIN_DELAY": "0", "PODWRIGHT_SHUTDOWN_TIMEOUT": "30",
        "PODWRIGHT_MAX_WAITING": "0", "PODWRIGHT_LOG_CONTENT": "false", "PODWRIGHT_RUN_COST": "0",
        "PODWRIGHT_MAX_BODY_BYTES": "1048576", "PODWRIGHT_RUN_WALL_TIME": "0.5", "PODWRIGHT_ALLOWED_MODELS": "a/b,c/d",
        "PODWRIGHT_ALLOWED_HOSTS": "fleet-x.prod",
    }  # fmt: skip
    assert pod["terminationGracePeriodSeconds"] == 30
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container["startupProbe"]["initialDelaySeconds"] == 0
    assert container["resources"]["limits"] == {"memory": "512Mi"}
    assert not {"topologySpreadConstraints", "lifecycle"} & {*pod, *container}
    assert (
        manifests["PodDisruptionBudget", "fleet-x"]["spec"]["maxUnavailable"]
        == 0
    )
    assert "ipBlock" not in str(
        manifests["NetworkPolicy", "fleet-x"]["spec"]["egress"]
    )
    assert {kind for kind, _ in manifests} == {
        "Deployment", "NetworkPolicy", "PodDisruptionBudget", "Service", "ServiceAccount",
    }  # fmt: skip
