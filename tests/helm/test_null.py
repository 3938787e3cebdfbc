"""Null in the values means the default, as if the key were not there, whoever writes it."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import yaml
from tests.helm.conftest import (
    CHART,
    SEEDS,
    Helm,
    Manifest,
    RenderError,
    by_name,
    helm4,
)

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
DEFAULTS = json.loads((CHART / "files" / "defaults.json").read_text())
PEER = {
    "podSelector": {
        "matchLabels": {"app": "a"},
        "matchExpressions": [{"key": "app", "operator": "In", "values": ["a"]}],
    },
    "namespaceSelector": {},
}
BLOCK = {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}
SCALING: Manifest = {
    "selectPolicy": "Max",
    "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}],
}
FULL: Manifest = {
    "blueprint": {"inline": "{}"},
    "agents": [
        {"name": "near", "component": "x"},
        {"name": "far", "component": "b", "release": "other", "port": 80},
        {"name": "b", "url": "https://b.example", "key": "k" * 16, "to": [BLOCK]},
        {"name": "c", "url": "https://c.example", "keySecret": {"name": "c", "key": "key"}},
    ],
    "env": {
        "A": {"valueFrom": {"secretKeyRef": {"name": "a", "key": "b", "optional": True}}},
        "B": {"valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": 1, "containerName": "b"}}},
    },
    "envFrom": [{"prefix": "A_", "configMapRef": {"name": "a", "optional": True}}],
    "initContainers": [{"name": "a", "image": "b"}],
    "extraVolumeMounts": [
        {
            "name": "ca", "mountPath": "/more", "subPath": "a", "readOnly": True, "recursiveReadOnly": "Disabled",
            "mountPropagation": "None",
        }
    ],
    "dnsConfig": {"nameservers": ["192.0.2.1"], "searches": ["a"], "options": [{"name": "ndots", "value": "2"}]},
    "hostAliases": [{"ip": "192.0.2.1", "hostnames": ["a.example"]}],
    "secrets": {
        "external": {
            "enabled": True,
            "store": {"name": "vault"},
            "data": {"KEY": {"key": "a", "property": "b", "version": "1"}},
        }
    },
    "runs": {"store": "postgres", "postgres": {"secret": "db", "to": [PEER]}},
    "webhook": {"url": "https://h.example", "secret": "hook", "to": [BLOCK]},
    "autoscaling": {
        "type": "hpa",
        "runs": 4,
        "behavior": {"scaleUp": SCALING, "scaleDown": SCALING},
    },
    "imagePullSecrets": ["a", {"name": "b"}],
    "topologySpread": [
        {
            "topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "minDomains": 2,
            "matchLabelKeys": ["a"], "nodeAffinityPolicy": "Honor", "nodeTaintsPolicy": "Honor",
        }
    ],
    "tolerations": [
        {"key": "a", "operator": "Equal", "value": "b", "effect": "NoExecute", "tolerationSeconds": 1}
    ],
    "volumes": {"ca": {"mountPath": "/ca", "subPath": "a", "readOnly": False, "emptyDir": {}}},
    "ingress": {"enabled": True, "hosts": ["a.example"], "tlsSecret": "tls"},
    "httpRoute": {
        "enabled": True,
        "parentRefs": [{"name": "a", "namespace": "b", "port": 80}],
        "timeouts": {"request": "1s", "backendRequest": "1s"},
    },
    "networkPolicy": {
        "from": [PEER, BLOCK],
        "models": [{"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"], "ports": [443]}],
        "extraFrom": [PEER, BLOCK],
        "extraModels": [{"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"], "ports": [443]}],
    },
    "monitor": {"type": "service"},
}  # fmt: skip
"""A component with all features that can be combined, and with optional values in every list."""

KEDA: Manifest = {
    "autoscaling": {"type": "keda", "keda": {"prometheus": "http://p"}},
    "runs": {"store": "sqlite"},
    "monitor": {"type": "pod"},
}
TOP: Manifest = {
    "components": {"x": {}},
    "telemetry": {"endpoint": "http://c:4318", "to": [BLOCK]},
    "prometheusRule": {"enabled": True},
    "dashboard": {"enabled": True},
    "global": {"imageRegistry": "r.example", "imagePullSecrets": ["a"]},
    "apiKeys": SEEDS,
}
Path = tuple[str | int, ...]


def resolve(schema: Manifest, value: Any) -> Manifest:
    """The schema without a reference, and of several alternatives the one of the value."""
    if "$ref" in schema:
        schema = SCHEMA["definitions"][schema["$ref"].rpartition("/")[2]]
    for alternative in schema.get("anyOf", []):
        whole = {**alternative, "definitions": SCHEMA["definitions"]}
        if jsonschema.Draft7Validator(whole).is_valid(value):
            return resolve(alternative, value)
    return schema


def optional_paths(
    schema: Manifest, value: Any, path: Path = ()
) -> Iterator[Path]:
    """The paths of all optional keys, in the value's objects and, outside of lists, in those that it leaves out."""
    schema = resolve(schema, value)
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from optional_paths(schema["items"], item, (*path, number))
    if not isinstance(value, dict):
        return
    is_least = len(value) == schema.get("minProperties")
    for name, known in schema.get("properties", {}).items():
        if name not in schema.get("required", []) and not (
            is_least and name in value
        ):
            yield (*path, name)
        below = value.get(name)
        full = resolve(known, below)
        is_in_list = any(isinstance(part, int) for part in path)
        if below is None and "properties" in full and not is_in_list:
            below = {}
        yield from optional_paths(known, below, (*path, name))
    for name in set(value) - set(schema.get("properties", {})):
        for known in schema.get("patternProperties", {}).values():
            yield from optional_paths(known, value[name], (*path, name))


def without(values: Manifest, path: Path) -> Manifest:
    """A copy of the values with the objects above the key, but without the key."""
    copied = copy.deepcopy(values)
    at: Any = copied
    for part in path[:-1]:
        if isinstance(at, dict):
            at.setdefault(part, {})
        at = at[part]
    at.pop(path[-1], None)
    return copied


def has_key(values: Any, path: Path) -> bool:
    for part in path:
        if isinstance(values, dict) and part not in values:
            return False
        values = values[part]
    return True


def with_null(values: Manifest, path: Path) -> Manifest:
    """A copy of the values with null at the key."""
    copied = without(values, path)
    at: Any = copied
    for part in path[:-1]:
        at = at[part]
    at[path[-1]] = None
    return copied


def without_null(value: Any) -> Any:
    """The manifests without null, which Kubernetes takes for a field that is not there."""
    if isinstance(value, dict):
        return {
            key: without_null(below)
            for key, below in value.items()
            if below is not None
        }
    if isinstance(value, list):
        return [without_null(item) for item in value]
    return value


@functools.cache
def outcome(values: str) -> Any:
    """The manifests of values in JSON, or the error of a template."""
    try:
        return without_null(helm4(json.loads(values)))
    except RenderError as error:
        if "schema" in str(error):
            raise
        return str(error)


def check_null(values: Manifest, path: Path) -> None:
    """Null at a key renders what is rendered without the key."""
    missing = values
    if has_key(values, path):
        missing = without(values, path)
    assert outcome(json.dumps(with_null(values, path))) == outcome(
        json.dumps(missing)
    ), path


def removes(key: Path) -> bool:
    """Whether null removes a default here."""
    marks: Any = DEFAULTS["removable"]
    for part in key:
        if not isinstance(marks, dict):
            return False
        marks = marks.get(part)
    return marks is True


COMPONENT = SCHEMA["definitions"]["component"]
CASES = [
    *(
        (site, name, FULL)
        for site in ("defaults", "component")
        for name in COMPONENT["properties"]
        if name != "settings"
    ),
    *(
        (site, name, KEDA)
        for site in ("defaults", "component")
        for name in KEDA
    ),
]


@pytest.mark.parametrize(
    ("site", "name", "component"),
    CASES,
    ids=[
        f"{site}-{name}{'-keda' if base is KEDA else ''}"
        for site, name, base in CASES
    ],
)
def test_null_in_a_component(site: str, name: str, component: Manifest) -> None:
    """In `defaults` and in a component, null at every optional key renders what is rendered without the key."""
    path: Path = ("defaults",)
    values: Manifest = {"defaults": component, "components": {"x": {}}}
    if site == "component":
        path = ("components", "x")
        values = {"components": {"x": component}}
    values["apiKeys"] = SEEDS
    keys = [
        key
        for key in optional_paths(COMPONENT, component)
        if key[0] == name and not removes(("defaults", *key))
    ]
    if site == "defaults":
        # the chart takes a list as it is, from either place
        keys = [
            key for key in keys if all(isinstance(part, str) for part in key)
        ]
    assert keys
    for key in keys:
        check_null(values, (*path, *key))


@pytest.mark.parametrize("site", ["defaults", "component"])
def test_null_in_the_settings(site: str) -> None:
    """So it does for all settings, which the chart treats alike."""
    settings = {"settings": all_null(COMPONENT["properties"]["settings"])}
    plain: Manifest = {"apiKeys": SEEDS, "components": {"x": {}}}
    values = {**plain, "components": {"x": settings}}
    if site == "defaults":
        values = {**plain, "defaults": settings}
    assert helm4(values) == helm4(plain)


def test_null_at_the_top() -> None:
    """So it does outside of components."""
    keys = [
        key
        for key in optional_paths(SCHEMA, TOP)
        if key[0] not in ("defaults", "components") or len(key) == 1
    ]
    assert {key[0] for key in keys} == set(SCHEMA["properties"])
    for key in keys:
        # without seeds, each rendering has a new one
        if not removes(key) and key not in (("apiKeys",), ("apiKeys", "seeds")):
            check_null(TOP, key)


def all_null(schema: Manifest) -> Manifest:
    """Null at every key of an object."""
    return dict.fromkeys(resolve(schema, None)["properties"])


def test_null_everywhere(helm: Helm) -> None:
    """A component and the defaults with null at every key are those without any key, in both versions of Helm."""
    plain = {"apiKeys": SEEDS, "components": {"x": {}}}
    nulls = {
        **all_null(SCHEMA),
        "apiKeys": SEEDS,
        "components": {"x": all_null(COMPONENT), "left-out": None},
        "defaults": all_null(COMPONENT),
    }
    assert by_name(helm(nulls)) == by_name(helm(plain))


def test_null_keeps_the_defaults_of_the_fleet(helm: Helm) -> None:
    """A component's null means the value of `defaults`, not that of the chart."""
    values = {
        "defaults": {"replicas": 3, "drain": {"margin": 20}},
        "components": {"x": {"replicas": None, "drain": {"margin": None}}},
    }
    spec = by_name(helm(values))["Deployment", "fleet-x"]["spec"]
    assert spec["replicas"] == 3
    pod = spec["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == 60


@pytest.mark.parametrize("site", ["defaults", "component"])
def test_null_removes_what_has_another_meaning_without_it(
    helm: Helm, site: str
) -> None:
    """Null removes the user (OpenShift), a limit and the CPU target, in `defaults` and in a component."""
    component = {
        "user": dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup")),
        "resources": {"limits": {"cpu": None}},
        "autoscaling": {"type": "hpa", "cpu": None, "runs": 2},
    }
    values: Manifest = {"components": {"x": component}}
    if site == "defaults":
        values = {"defaults": component, "components": {"x": {}}}
    manifests = by_name(helm(values))
    pod = manifests["Deployment", "fleet-x"]["spec"]["template"]["spec"]
    assert set(pod["securityContext"]) == {"runAsNonRoot", "seccompProfile"}
    (container,) = pod["containers"]
    assert container["resources"]["limits"] == {"memory": "512Mi"}
    metrics = manifests["HorizontalPodAutoscaler", "fleet-x"]["spec"]["metrics"]
    assert [metric["type"] for metric in metrics] == ["Pods"]


def test_null_in_a_blueprint_is_data(helm: Helm) -> None:
    """Null in a blueprint is a part of it, and so it is in further objects."""
    inline = {"name": "x", "config": {"seed": None}}
    extra = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "e"}, "data": None}  # fmt: skip
    component = {"blueprint": {"inline": inline}, "extraObjects": [extra]}
    manifests = by_name(helm({"components": {"x": component}}))
    files = manifests["ConfigMap", "fleet-x-files"]["data"]
    assert json.loads(files["blueprint.json"]) == inline
    assert manifests["ConfigMap", "e"] == extra


def test_the_defaults_of_the_templates_are_the_values() -> None:
    """The templates' copy of the defaults is that of Helm, and every template fills them in first."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert DEFAULTS["values"] == values
    for template in CHART.glob("templates/**/*"):
        if template.is_file() and template.suffix != ".tpl":
            first, *_ = template.read_text().splitlines()
            assert first == '{{- include "podwright.init" . }}', template
