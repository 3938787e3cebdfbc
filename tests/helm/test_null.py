"""Null in the values means the default, as if the key were not there, whoever writes it."""

from __future__ import annotations

import copy
import functools
import json
import pathlib
import shutil
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
    "blueprint": {"inline": '{"name": "x"}'},
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
    """Whether null removes a default here, or an entry of the user's, or empties a list or a map."""
    marks: Any = DEFAULTS["removable"]
    for part in key:
        marks = marks.get(part)
        if not isinstance(marks, dict):
            return marks is not None
    return False


def emptied(marks: Manifest, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """The paths of the lists and maps that null empties, with their kinds."""
    for name, mark in marks.items():
        if isinstance(mark, dict):
            yield from emptied(mark, (*path, name))
        elif isinstance(mark, str):
            yield (*path, name), mark


COMPONENT = SCHEMA["definitions"]["component"]
JOB_MAPS = {
    (job, name)
    for job in ("migration", "test")
    for name in ("affinity", "nodeSelector", "resources")
}


def default_paths(site: str, name: str, component: Manifest) -> list[Path]:
    """The paths in one value of a component where null means the default."""
    keys = [
        key
        for key in optional_paths(COMPONENT, component)
        if key[0] == name
        and not removes(("defaults", *key))
        # a Job's own map is there as soon as it has a key
        and not (len(key) > 2 and key[:2] in JOB_MAPS)
    ]
    if site == "defaults":
        # the chart takes a list as it is, from either place
        keys = [
            key for key in keys if all(isinstance(part, str) for part in key)
        ]
    return keys


CASES = [
    (site, name, component)
    for component, names in (
        (FULL, set(COMPONENT["properties"]) - {"settings"}),
        (KEDA, set(KEDA)),
    )
    for site in ("defaults", "component")
    for name in sorted(names)
    if default_paths(site, name, component)
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
    for key in default_paths(site, name, component):
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


def at(values: Any, path: Path) -> Any:
    for part in path:
        values = (values or {}).get(part)
    return values


def with_value(values: Manifest, path: Path, value: Any) -> Manifest:
    """A copy of the values with another value at the key."""
    copied = with_null(values, path)
    at(copied, path[:-1])[path[-1]] = value
    return copied


@pytest.mark.parametrize("site", ["defaults", "component"])
def test_null_empties_lists_and_maps(site: str) -> None:
    """Null at a list is an empty list, and at a map with keys of the user's, it is null at each of them."""
    shared = {**FULL, "nodeSelector": {"a": "b"}, "podLabels": {"a": "b"}}
    shared["affinity"] = {"nodeAffinity": {}}
    values: Manifest = {
        "apiKeys": SEEDS,
        "defaults": shared,
        "components": {"x": {}},
    }
    top: Path = ("defaults",)
    if site == "component":
        top = ("components", "x")
    changed: set[Path] = set()
    for key, kind in emptied(DEFAULTS["removable"]["defaults"]):
        empty: Any = []
        if kind == "map":
            names = {
                **(at(DEFAULTS["values"]["defaults"], key) or {}),
                **(at(shared, key) or {}),
            }
            empty = dict.fromkeys(names)
        result = outcome(json.dumps(with_null(values, (*top, *key))))
        expected = with_value(values, (*top, *key), empty)
        assert result == outcome(json.dumps(expected)), key
        if result != outcome(json.dumps(values)):
            changed.add(key)
    assert changed >= {
        ("affinity",),
        ("env",),
        ("networkPolicy", "models"),
        ("nodeSelector",),
        ("resources", "limits"),
        ("tolerations",),
        ("topologySpread",),
        ("user",),
        ("volumes",),
    }


def test_values_of_an_earlier_version_of_the_chart(
    helm: Helm, tmp_path: pathlib.Path
) -> None:
    """`--reuse-values` has the values of the earlier chart, where null has removed keys, and new keys are missing."""
    earlier = copy.deepcopy(DEFAULTS["values"])
    for key in (
        ("enabled",),
        ("commonLabels",),
        ("defaults", "migration"),
        ("defaults", "dnsConfig"),
        ("defaults", "networkPolicy", "extraModels"),
        ("defaults", "test", "resources"),
    ):
        earlier = without(earlier, key)
    x = {"blueprint": {"configMap": "x"}}
    plain = {"apiKeys": SEEDS, "components": {"x": x}}
    # of this chart, Helm takes no values then
    chart = tmp_path / "podwright"
    shutil.copytree(CHART, chart)
    (chart / "values.yaml").write_text("{}")
    assert helm({**earlier, **plain}, chart=chart) == helm(plain)
    removed = without(earlier, ("defaults", "networkPolicy", "models"))
    closed = {**plain, "defaults": {"networkPolicy": {"models": []}}}
    assert helm({**removed, **plain}, chart=chart) == helm(closed)


def all_null(schema: Manifest) -> Manifest:
    """Null at every key of an object."""
    return dict.fromkeys(resolve(schema, None)["properties"])


def test_null_everywhere(helm: Helm) -> None:
    """Null at every key of a component and the defaults empties and leaves what it should, in both versions of Helm."""
    empty: Manifest = {}
    for name, mark in DEFAULTS["removable"]["defaults"].items():
        if mark == "list":
            empty[name] = []
        if mark == "map":
            empty[name] = dict.fromkeys(DEFAULTS["values"]["defaults"][name])
    plain = {"apiKeys": SEEDS, "components": {"x": empty}}
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


@pytest.mark.parametrize("site", ["defaults", "component"])
def test_null_at_a_list_or_a_map_empties_it(helm: Helm, site: str) -> None:
    """Null closes the network to models, and leaves out limits, ids, spread constraints and a node selector."""
    nulls: Manifest = {
        "networkPolicy": {"models": None},
        "resources": {"limits": None},
        "user": None,
        "topologySpread": None,
        "nodeSelector": None,
    }
    shared: Manifest = {"nodeSelector": {"disk": "fast"}}
    values: Manifest = {"defaults": shared, "components": {"x": nulls}}
    if site == "defaults":
        values = {"defaults": nulls, "components": {"x": {}}}
    manifests = by_name(helm(values))
    policy = manifests["NetworkPolicy", "fleet-x"]["spec"]
    peers = [peer for rule in policy["egress"] for peer in rule["to"]]
    assert not [peer for peer in peers if "ipBlock" in peer]
    pod = manifests["Deployment", "fleet-x"]["spec"]["template"]["spec"]
    assert set(pod["securityContext"]) == {"runAsNonRoot", "seccompProfile"}
    assert not pod["containers"][0]["resources"].get("limits")
    assert "topologySpreadConstraints" not in pod
    assert "nodeSelector" not in pod


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
