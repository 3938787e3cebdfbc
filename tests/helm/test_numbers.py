"""Numbers of the values: Kubernetes gets each as it was written, and not as Go prints a large float."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.helm.conftest import (
    CHART,
    SEEDS,
    Helm,
    Manifest,
    RenderError,
    decoded,
)

LARGE = 1_000_680_001
"""A number that is printed with an exponent if it is taken for a float."""
BLUEPRINT: Manifest = {
    "type": "Agent", "name": "x", "instructions": "Answer.", "config": {"model": "offline/echo"}, "tools": [],
}  # fmt: skip
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
COMPONENT = SCHEMA["definitions"]["component"]
SECRET = {"secretName": "s", "defaultMode": LARGE}
OBJECT = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "m", "generation": LARGE},
}
NAME = "cpu"
"""A name that fits the pattern of each object with any names, such as quantities and labels."""


def largest(schema: Manifest) -> Any:
    """Values with the largest number at each place where a schema allows one; None if there is none."""
    if "$ref" in schema:
        return largest(SCHEMA["definitions"][schema["$ref"].split("/")[-1]])
    for choice in schema.get("anyOf", []):
        values = largest(choice)
        if values is not None:
            return values
    types = schema.get("type", [])
    if "integer" in types or "number" in types:
        return min(LARGE, schema.get("maximum", LARGE))
    if "items" in schema:
        item = largest(schema["items"])
        return None if item is None else [item]
    named = schema.get("properties", {})
    others = list(schema.get("patternProperties", {}).values())
    if isinstance(schema.get("additionalProperties"), dict):
        others.append(schema["additionalProperties"])
    found = {name: largest(below) for name, below in named.items()}
    found[NAME] = next(filter(None, map(largest, others)), None)
    values = {name: each for name, each in found.items() if each is not None}
    if not values or not set(schema.get("required", [])) <= values.keys():
        return None
    return values


def scalars(data: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The keys and values in JSON data that are no objects and no arrays, with their paths."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield path, key
            yield from scalars(value, f"{path}/{key}")
    elif isinstance(data, list):
        for number, value in enumerate(data):
            yield from scalars(value, f"{path}/{number}")
    else:
        yield path, data


def is_damaged(value: Any) -> bool:
    """Whether a number has become a float, or text has a number with an exponent."""
    return isinstance(value, float) or bool(
        re.search(r"\d[eE]\+\d", str(value))
    )


def texts(values: Any) -> Any:
    """Values with the texts of their numbers, as `--set-string` makes them."""
    if isinstance(values, dict):
        return {key: texts(value) for key, value in values.items()}
    if isinstance(values, list):
        return [texts(value) for value in values]
    return str(values)


def values(written: Callable[[Any], Any] = dict) -> Manifest:
    """Values with a number wherever one may be, and what makes the chart use each of them.

    Args:
        written: Returns the values with another form of numbers.
    """
    top = written(largest(SCHEMA))
    component = written(largest(COMPONENT))
    component |= {
        "agents": [{"name": "far", "url": "https://far.example:65535"}],
        "affinity": {"nodeAffinity": {"weight": LARGE}},
        "blueprint": {"inline": BLUEPRINT},
        "extraObjects": [OBJECT],
        "rollout": {"maxSurge": LARGE, "maxUnavailable": LARGE},
        "secrets": {"existing": ["s"]},
        "volumes": {"v": {"mountPath": "/v", "secret": SECRET}},
        "webhook": {"url": "https://h:65535", "secret": "s"},
    }
    component["runs"]["store"] = "postgres"
    component["runs"]["postgres"]["secret"] = "s"
    component["ingress"] |= {"enabled": True, "hosts": ["h"]}
    component["httpRoute"] = {
        "enabled": True,
        "parentRefs": [{"name": "g", "port": 65535}],
    }
    component["networkPolicy"] |= {
        "models": [{"cidr": "0.0.0.0/0", "ports": [65535]}],
        "egress": [{"ports": [{"port": LARGE}]}],
    }
    autoscaling = component["autoscaling"]
    autoscaling["keda"] |= {"prometheus": "http://p", "query": "q"}
    monitor = component["monitor"]
    changes = {
        "fixed": {"autoscaling": {"type": "none"}},
        "hpa": {"autoscaling": {**autoscaling, "type": "hpa"}},
        "keda": {"autoscaling": {**autoscaling, "type": "keda"}},
        "services": {"monitor": {**monitor, "type": "service"}},
        "pods": {"monitor": {**monitor, "type": "pod"}},
    }
    top["prometheusRule"]["enabled"] = True
    top["dashboard"]["enabled"] = True
    top["defaults"] = {}
    top["components"] = {
        name: {**component, **change} for name, change in changes.items()
    }
    return {**top, "apiKeys": SEEDS}


def test_numbers_may_be_texts(helm: Helm) -> None:
    """With `--set-string`, each number of the schema is the same number in the same object, apart from quantities."""
    pairs = zip(helm(values(texts)), helm(values()), strict=True)
    differences = [
        path
        for text, number in pairs
        for (path, one), (_, other) in zip(
            scalars(text), scalars(number), strict=True
        )
        if one != other
    ]
    # Kubernetes takes both forms of a quantity, and texts of labels
    either = re.compile("/resources/(limits|requests)|/tolerance|/matchLabels/")
    assert [path for path in differences if not either.search(path)] == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("replicas", "three"),
        ("replicas", "1.5"),
        ("service/port", "0"),
        ("settings/max_runs", "0"),
        ("settings/run_cost", "1e3"),
        ("rollout/maxSurge", "a quarter"),
        ("drain/timeout", ""),
    ],
)
def test_other_texts_are_not_numbers(helm: Helm, path: str, text: str) -> None:
    """A text that is not such a number is refused with its place."""
    component: Manifest = {"blueprint": {"inline": BLUEPRINT}}
    place = path.replace("/", "[./]")
    *parents, name = path.split("/")
    part = component
    for parent in parents:
        part = part.setdefault(parent, {})
    part[name] = text
    with pytest.raises(RenderError, match=rf"components[./]x[./]{place}"):
        helm({"components": {"x": component}})


def test_large_numbers_are_written_out(helm: Helm) -> None:
    """With a large number in every place that the schema has, no number of any object has an exponent or a fraction."""
    manifests = helm(values())
    kinds = {manifest["kind"] for manifest in manifests}
    assert kinds >= {"Deployment", "Job", "ScaledObject", "HTTPRoute"}
    found = [
        (f"{manifest['kind']}{path}", value)
        for manifest in manifests
        for path, value in scalars(
            decoded(manifest) if manifest["kind"] == "Secret" else manifest
        )
    ]
    assert [each for each in found if is_damaged(each[1])] == []
    assert sum(str(LARGE) in str(value) for _, value in found) > 200
