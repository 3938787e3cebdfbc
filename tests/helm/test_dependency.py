"""The chart as a dependency of another chart: names of its own, values of the parent, and nothing shared."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.helm.conftest import (
    CHART,
    SEEDS,
    Helm,
    Manifest,
    RenderError,
    by_name,
    decoded,
    example_values,
    helm4,
)
from tests.helm.test_chart import notes
from tests.helm.test_manifests import container_of, environment, pod_of
from tests.helm.test_network import Policies, pods_of, selects

COMMON: Manifest = {
    "commonLabels": {"team": "news", "app.kubernetes.io/part-of": "platform"},
    "commonAnnotations": {"example.com/owner": "news@example.com"},
}
WORKLOADS = ("Deployment", "Job")
Umbrella = Callable[[Manifest, list[Manifest]], list[Manifest]]
"""Renders a parent chart with some values and dependencies, as the release `shop`."""


def write_parent(
    folder: Path, dependencies: list[Manifest], values: Manifest | None = None
) -> Path:
    """A chart `platform` with dependencies on this chart, and with values of its own."""
    chart = folder / "platform"
    shutil.copytree(
        CHART,
        chart / "charts" / "podwright",
        ignore=shutil.ignore_patterns("examples"),
        dirs_exist_ok=True,
    )
    own = yaml.safe_load((CHART / "Chart.yaml").read_text())
    entry = {"name": "podwright", "version": own["version"]}
    description = {
        "apiVersion": "v2",
        "name": "platform",
        "version": "1.0.0",
        "dependencies": [entry | dependency for dependency in dependencies],
    }
    (chart / "Chart.yaml").write_text(yaml.safe_dump(description))
    (chart / "values.yaml").write_text(yaml.safe_dump(values or {}))
    return chart


@pytest.fixture
def umbrella(helm: Helm, tmp_path: Path) -> Umbrella:
    def render(
        values: Manifest, dependencies: list[Manifest]
    ) -> list[Manifest]:
        return helm(
            values, "shop", "prod", write_parent(tmp_path, dependencies)
        )

    return render


def all_features() -> Manifest:
    return {
        **example_values("production"),
        "apiKeys": SEEDS,
        "extraObjects": [],
    }


def workload_labels(manifests: list[Manifest]) -> list[dict[str, str]]:
    """The labels of all pods of some manifests, those of Jobs and tests included."""
    return [
        manifest["spec"]["template"]["metadata"]["labels"]
        for manifest in manifests
        if manifest["kind"] in WORKLOADS
    ]


def selectors(manifests: list[Manifest]) -> list[Manifest]:
    """What selects pods: Services, Deployments, disruption budgets, policies and monitors."""
    found: list[Manifest] = []
    for manifest in manifests:
        spec = manifest.get("spec") or {}
        if manifest["kind"] == "Service":
            found.append({"matchLabels": spec["selector"]})
        else:
            found += [
                spec[key] for key in ("selector", "podSelector") if key in spec
            ]
    return found


def test_two_aliases_share_nothing(umbrella: Umbrella) -> None:
    """Two aliases with the same components share no name, no pod and no key, and cannot call each other."""
    aliases = ("agents", "tools")
    values = {alias: all_features() for alias in aliases}
    for own in values.values():
        del own["components"]["newsroom"]["extraObjects"]
    manifests = umbrella(values, [{"alias": alias} for alias in aliases])
    named = by_name(manifests)
    fleets = {
        alias: [
            manifest
            for manifest in manifests
            if manifest["metadata"]["labels"]["podwright.dev/fleet"]
            == f"shop-{alias}"
        ]
        for alias in aliases
    }
    agents, tools = fleets.values()
    assert len(agents) == len(tools) == len(named) / 2
    for one, other in ((agents, tools), (tools, agents)):
        for selector, labels in product(selectors(one), workload_labels(other)):
            assert not selects(selector, labels)
    keys = [
        {
            line
            for (kind, name), secret in by_name(fleet).items()
            if kind == "Secret" and name.endswith("-keys")
            for line in decoded(secret)["api-keys"].splitlines()
        }
        - {"run:not-a-real-key-0002"}
        for fleet in (agents, tools)
    ]
    assert len(keys[0]) == len(keys[1]) == 4 * 3
    assert not keys[0] & keys[1]
    policies = Policies(manifests)
    for one, other in product(
        pods_of(agents)[0].values(), pods_of(tools)[0].values()
    ):
        assert not policies.allow_side("Egress", one, other)


@pytest.mark.parametrize(
    ("dependency", "own", "fleet", "name"),
    [
        ({}, {}, "shop", "podwright"),
        ({"alias": "agents"}, {}, "shop-agents", "agents"),
        ({"alias": "shop"}, {}, "shop-shop", "shop"),
        ({}, {"nameOverride": "agents"}, "shop-agents", "agents"),
        ({"alias": "agents"}, {"nameOverride": "podwright"}, "shop", "podwright"),
        ({}, {"fullnameOverride": "agents"}, "agents", "podwright"),
        ({"alias": "tools"}, {"fullnameOverride": "agents"}, "agents", "tools"),
    ],
)  # fmt: skip
def test_the_name_of_a_fleet(
    umbrella: Umbrella,
    dependency: Manifest,
    own: Manifest,
    fleet: str,
    name: str,
) -> None:
    """A fleet is named after the release and the alias, or as the overrides say; its pods have the chart's name."""
    values = {**all_features(), **own}
    del values["components"]["newsroom"]["extraObjects"]
    key = dependency.get("alias", "podwright")
    manifests = umbrella({key: values}, [dependency])
    for manifest in manifests:
        assert manifest["metadata"]["name"].startswith(fleet), manifest
        labels = manifest["metadata"]["labels"]
        assert labels["podwright.dev/fleet"] == fleet
        assert labels["app.kubernetes.io/instance"] == "shop"
    selector = by_name(manifests)["Deployment", f"{fleet}-writer"]["spec"][
        "selector"
    ]
    assert selector["matchLabels"] == {
        "app.kubernetes.io/name": name,
        "app.kubernetes.io/instance": "shop",
        "app.kubernetes.io/component": "writer",
    }


@pytest.mark.parametrize(
    ("tools", "override"),
    [
        ({"fullnameOverride": "shop-agents"}, "fullnameOverride"),
        ({"nameOverride": "agents", "fullnameOverride": "t"}, "nameOverride"),
    ],
)
def test_two_fleets_with_one_name(
    umbrella: Umbrella, tools: Manifest, override: str
) -> None:
    """Two dependencies that would have the same objects or labels are an error that names the value to change."""
    components = {"components": {"writer": {}}}
    values = {"agents": components, "tools": {**components, **tools}}
    with pytest.raises(RenderError, match=f"set {override}"):
        umbrella(values, [{"alias": "agents"}, {"alias": "tools"}])


def test_an_alias_that_cannot_be_part_of_a_name(umbrella: Umbrella) -> None:
    """Helm accepts an alias in camel case and Kubernetes does not, so that the error says what to set."""
    values: Manifest = {"theAgents": {"components": {"writer": {}}}}
    with pytest.raises(RenderError, match="fullnameOverride"):
        umbrella(values, [{"alias": "theAgents"}])
    values["theAgents"]["nameOverride"] = "agents"
    manifests = by_name(umbrella(values, [{"alias": "theAgents"}]))
    assert ("Service", "shop-agents-writer") in manifests


def test_an_agent_in_the_other_fleet(umbrella: Umbrella) -> None:
    """With the same seeds, a component has the address and the key of one in the other fleet, and may connect to it."""
    agent = {"name": "far", "component": "b", "release": "shop-tools"}
    caller = {"podSelector": {"matchLabels": {"podwright.dev/fleet": "shop-agents"}}}  # fmt: skip
    b = {"networkPolicy": {"from": [caller]}}
    values = {
        "agents": {"apiKeys": SEEDS, "components": {"a": {"agents": [agent]}}},
        "tools": {"apiKeys": SEEDS, "components": {"b": b, "c": b}},
    }
    manifests = umbrella(values, [{"alias": "agents"}, {"alias": "tools"}])
    named = by_name(manifests)
    addresses = environment(named["Deployment", "shop-agents-a"])[
        "PODWRIGHT_AGENTS"
    ]
    assert "shop-tools-b" in json.loads(addresses)["far"]
    sent = json.loads(
        decoded(named["Secret", "shop-agents-a-keys"])["agent-keys"]
    )
    accepted = decoded(named["Secret", "shop-tools-b-keys"])["api-keys"]
    assert f"run+runs:relay:{sent['far']}" in accepted.splitlines()
    pods, _ = pods_of(manifests)
    policies = Policies(manifests)
    assert policies.allow(pods["a"], pods["b"])
    assert not policies.allow(pods["a"], pods["c"])
    assert not policies.allow(pods["b"], pods["a"])


def test_pods_of_an_earlier_version_of_the_chart() -> None:
    """A component may connect to agents of a release whose pods do not have the label of their fleet yet."""
    agent = {"name": "b", "component": "b", "release": "other"}
    manifests = helm4({"apiKeys": SEEDS, "components": {"a": {"agents": [agent]}}})  # fmt: skip
    other = helm4({"components": {"b": {}}}, "other")
    pods, _ = pods_of(manifests + other)
    del pods["b"].labels["podwright.dev/fleet"]
    assert Policies(manifests).allow_side("Egress", pods["a"], pods["b"])


@pytest.mark.parametrize("alias", ["podwright", "agents"])
def test_a_condition_in_the_values_of_the_chart(
    umbrella: Umbrella, alias: str
) -> None:
    """A parent switches the chart on and off with a condition in its values."""
    dependency = {"alias": alias, "condition": f"{alias}.enabled"}
    own = {"components": {"x": {}}}
    for enabled in (True, False):
        values = {alias: {**own, "enabled": enabled}}
        assert bool(umbrella(values, [dependency])) == enabled


def test_tags_and_anchors(umbrella: Umbrella) -> None:
    """A parent's tags work, and keys that begin with `x-` are for YAML anchors."""
    own = {"x-writer": {"replicas": 2}, "components": {"x": {"replicas": 2}}}
    dependency = {"tags": ["ai"]}
    assert umbrella({"tags": {"ai": True}, "podwright": own}, [dependency])
    assert not umbrella({"tags": {"ai": False}, "podwright": own}, [dependency])


def test_enabled_is_false(helm: Helm) -> None:
    """`enabled: false` renders nothing, whatever the other values are, and the notes say so."""
    values = {**example_values("production"), "enabled": False}
    assert helm(values) == []
    assert "enabled" in notes(values)
    assert helm({**values, "enabled": None, "apiKeys": SEEDS})


@pytest.mark.parametrize(
    ("registry", "repository", "expected"),
    [
        (None, "podwright", "podwright"),
        ("", "podwright", "podwright"),
        ("mirror.example", "podwright", "mirror.example/podwright"),
        ("mirror.example:5000/hub/", "team/a", "mirror.example:5000/hub/team/a"),
        ("mirror.example", "registry.example/a", "registry.example/a"),
        ("mirror.example", "localhost/a", "localhost/a"),
        ("mirror.example", "registry:5000/a", "registry:5000/a"),
    ],
)  # fmt: skip
def test_the_registry_of_all_charts(
    umbrella: Umbrella, registry: str | None, repository: str, expected: str
) -> None:
    """`global.imageRegistry` is the registry of every image whose repository names none."""
    image = {"repository": repository, "tag": "1"}
    runs = {"store": "postgres", "postgres": {"secret": "database"}}
    component = {"image": image, "runs": runs}
    values = {
        "global": {"imageRegistry": registry, "environment": {"name": "test"}},
        "podwright": {"components": {"x": component}},
    }
    pods = [
        pod_of(each)
        for each in umbrella(values, [{}])
        if each["kind"] in WORKLOADS
    ]
    assert len(pods) == 3
    for pod in pods:
        (container,) = pod["containers"]
        assert container["image"] == f"{expected}:1"


def test_the_pull_secrets_of_all_charts(umbrella: Umbrella) -> None:
    """`global.imagePullSecrets` are added to those of a component, as names or as objects."""
    values = {
        "global": {"imagePullSecrets": ["a", {"name": "b"}]},
        "podwright": {
            "components": {"x": {"imagePullSecrets": [{"name": "a"}, "c"]}}
        },
    }
    manifests = by_name(umbrella(values, [{}]))
    expected = [{"name": "a"}, {"name": "b"}, {"name": "c"}]
    pod = pod_of(manifests["Deployment", "shop-x"])
    assert pod["imagePullSecrets"] == expected
    test = pod_of(manifests["Job", "shop-x-test"])
    assert test["imagePullSecrets"] == expected


def test_common_labels_and_annotations(helm: Helm) -> None:
    """Every object has the common labels and annotations, pods have the labels, and no selector has them."""
    values = all_features()
    del values["components"]["newsroom"]["extraObjects"]
    plain = by_name(helm(values))
    manifests = by_name(helm({**values, **COMMON}))
    assert set(manifests) == set(plain)
    for key, manifest in manifests.items():
        metadata = manifest["metadata"]
        assert COMMON["commonLabels"].items() <= metadata["labels"].items()
        annotations = metadata["annotations"]
        assert COMMON["commonAnnotations"].items() <= annotations.items()
        before = plain[key]["metadata"]
        assert before["labels"].items() <= metadata["labels"].items()
        assert before.get("annotations", {}).items() <= annotations.items()
    for labels in workload_labels(list(manifests.values())):
        assert labels["app.kubernetes.io/part-of"] == "platform"
        assert labels["team"] == "news"
    assert selectors(list(manifests.values())) == selectors(
        list(plain.values())
    )


def test_own_labels_take_precedence(helm: Helm) -> None:
    """Labels and annotations of an object or a pod replace common ones of the same name."""
    own = {"example.com/owner": "x@example.com"}
    component = {
        "podLabels": {"team": "sports"},
        "service": {"annotations": own},
        "monitor": {"type": "service", "labels": {"team": "observers"}},
    }
    manifests = by_name(helm({**COMMON, "components": {"x": component}}))
    template = manifests["Deployment", "fleet-x"]["spec"]["template"]
    assert template["metadata"]["labels"]["team"] == "sports"
    monitor = manifests["ServiceMonitor", "fleet-x"]["metadata"]
    assert monitor["labels"]["team"] == "observers"
    service = manifests["Service", "fleet-x"]["metadata"]
    assert service["annotations"] == own
    assert service["labels"]["team"] == "news"


@pytest.mark.parametrize(
    "label", ["app.kubernetes.io/name", "helm.sh/chart", "podwright.dev/fleet"]
)
def test_labels_of_the_chart(helm: Helm, label: str) -> None:
    """A common label that the chart sets itself is an error."""
    values: dict[str, Any] = {"commonLabels": {label: "a"}}
    with pytest.raises(RenderError, match=label):
        helm({**values, "components": {"x": {}}})


def test_null_in_the_values_of_a_parent_chart(
    helm: Helm, tmp_path: Path
) -> None:
    """Null in the values.yaml of a parent chart, or in values for it, means the default."""
    nulls = {
        "telemetry": None,
        "apiKeys": {"seeds": SEEDS["seeds"], "enabled": None},
        "defaults": {"resources": None, "networkPolicy": {"dns": None}},
        "components": {
            "x": {
                "blueprint": {"configMap": "x"},
                "agents": None,
                "service": {"port": None},
            }
        },
    }
    x = {"blueprint": {"configMap": "x"}}
    plain = {"apiKeys": SEEDS, "components": {"x": x}}
    aliases = ("agents", "tools", "plain")
    chart = write_parent(
        tmp_path,
        [{"alias": alias} for alias in aliases],
        {"agents": nulls, "plain": plain},
    )
    manifests = by_name(helm({"tools": nulls}, "shop", "prod", chart))
    containers = [
        container_of(manifests["Deployment", f"shop-{alias}-x"])
        for alias in aliases
    ]
    for container in containers[:-1]:
        assert container["resources"] == containers[-1]["resources"]
    policies = [
        manifests["NetworkPolicy", f"shop-{alias}-x"]["spec"]["egress"]
        for alias in aliases
    ]
    assert policies[0] == policies[1] == policies[2]


def test_the_example_in_the_readme(umbrella: Umbrella) -> None:
    """The README's parent chart is valid, and its desk may connect to the search of the other fleet."""
    text = (CHART / "README.md").read_text()
    _, _, section = text.partition("## As a dependency of another chart\n")
    blocks = re.findall(
        r"^```yaml\n(.*?)^```", section, re.MULTILINE | re.DOTALL
    )
    description, values = map(yaml.safe_load, blocks[:2])
    manifests = umbrella(values, description["dependencies"])
    fleets = {
        manifest["metadata"]["labels"]["podwright.dev/fleet"]
        for manifest in manifests
    }
    assert fleets == {"shop-agents", "shop-tools"}
    pods, _ = pods_of(manifests)
    policies = Policies(manifests)
    assert policies.allow(pods["desk"], pods["search"])
    assert not policies.allow(pods["search"], pods["desk"])
    container = container_of(
        by_name(manifests)["Deployment", "shop-agents-desk"]
    )
    assert container["image"].startswith("mirror.example/podwright:")


@pytest.mark.parametrize(
    "user", [None, dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"))]
)
def test_null_of_the_release_removes_a_default(
    umbrella: Umbrella, user: Manifest | None
) -> None:
    """In the values of a release, null under a component removes the user in a dependency too."""
    values = {"podwright": {"components": {"x": {"user": user}}}}
    manifests = by_name(umbrella(values, [{}]))
    context = pod_of(manifests["Deployment", "shop-x"])["securityContext"]
    assert set(context) == {"runAsNonRoot", "seccompProfile"}
