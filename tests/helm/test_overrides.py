"""What a component, or a user's label or annotation, replaces: images, sources, and entries that the chart sets too."""

from __future__ import annotations

from typing import Any

import pytest
from tests.helm.conftest import (
    CHART,
    Helm,
    Manifest,
    RenderError,
    by_name,
)
from tests.helm.test_dependency import Umbrella, umbrella
from tests.helm.test_manifests import container_of

from podwright import __version__

__all__ = ["umbrella"]

ONE, TWO = f"sha256:{'1' * 64}", f"sha256:{'2' * 64}"
SQLITE = {"runs": {"store": "sqlite"}, "image": {"tag": "full"}}


@pytest.mark.parametrize(
    ("own", "reference"),
    [
        ({}, f"mirror/podwright:1@{ONE}"),
        ({"repository": "mirror/podwright"}, f"mirror/podwright:1@{ONE}"),
        ({"repository": "team/w"}, f"team/w:{__version__}"),
        ({"repository": "team/w", "tag": "2"}, "team/w:2"),
        ({"repository": "team/w", "digest": TWO}, f"team/w@{TWO}"),
        ({"tag": "2"}, "mirror/podwright:2"),
        ({"digest": TWO}, f"mirror/podwright@{TWO}"),
    ],
)
def test_an_image_takes_no_part_of_another(
    helm: Helm, own: Manifest, reference: str
) -> None:
    """The tag and the digest of the defaults are those of one image, and no other has them."""
    image = {"repository": "mirror/podwright", "tag": "1", "digest": ONE}
    component = {"image": own, "blueprint": {"configMap": "x"}}
    values = {"defaults": {"image": image}, "components": {"x": component}}
    container = container_of(by_name(helm(values))["Deployment", "fleet-x"])
    assert container["image"] == reference


def test_a_source_is_replaced_as_a_whole(helm: Helm) -> None:
    """A variable or a volume of a component has its own source alone; a volume keeps its path."""
    field = {"valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    defaults = {
        "env": {
            "A": {"valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}
        },
        "volumes": {"ca": {"mountPath": "/ca", "configMap": {"name": "ca"}}},
    }
    component = {
        "env": {"A": field},
        "volumes": {"ca": {"secret": {"secretName": "ca"}}},
    }
    values = {"defaults": defaults, "components": {"x": component}}
    workload = by_name(helm(values))["Deployment", "fleet-x"]
    container = container_of(workload)
    assert {"name": "A", **field} in container["env"]
    volumes = workload["spec"]["template"]["spec"]["volumes"]
    assert {"name": "ca", "secret": {"secretName": "ca"}} in volumes
    mount = {"name": "ca", "mountPath": "/ca", "readOnly": True}
    assert mount in container["volumeMounts"]


def test_annotations_beside_those_of_the_chart(helm: Helm) -> None:
    """Each annotation is there once, as a text: the chart's where it needs it, and otherwise the user's."""
    container = "kubectl.kubernetes.io/default-container"
    policy = "helm.sh/resource-policy"
    weight = "helm.sh/hook-weight"
    common = {"cost": 42, "paid": True, policy: "none", weight: "9"}
    x = {**SQLITE, "podAnnotations": {container: "proxy"}}
    y = {"runs": {"store": "postgres", "postgres": {"secret": "db"}}}
    values = {"commonAnnotations": common, "components": {"x": x, "y": y}}
    manifests = helm(values)
    before: list[tuple[str, str]] = []
    for manifest in manifests:
        annotations = manifest["metadata"]["annotations"]
        assert annotations["cost"] == "42"
        assert annotations["paid"] == "true"
        if annotations.get("helm.sh/hook") == "pre-install,pre-upgrade":
            before.append((manifest["kind"], annotations[weight]))
    assert sorted(before) == [("Job", "9"), ("NetworkPolicy", "-1")]
    claim = by_name(manifests)["PersistentVolumeClaim", "fleet-x-runs"]
    assert claim["metadata"]["annotations"][policy] == "keep"
    workload = by_name(manifests)["Deployment", "fleet-x"]
    pod = workload["spec"]["template"]
    assert pod["metadata"]["annotations"][container] == "proxy"


@pytest.mark.parametrize(
    ("component", "value"),
    [
        ({"podAnnotations": {"checksum/files": "a"}}, "podAnnotations"),
        ({"podLabels": {"app.kubernetes.io/name": "a"}}, "podLabels"),
        ({"podLabels": {"podwright.dev/fleet": "a"}}, "podLabels"),
        (
            {"test": {"podLabels": {"app.kubernetes.io/name": "a"}}},
            "podLabels",
        ),
        ({"test": {"labels": {"helm.sh/chart": "a"}}}, "labels"),
        (
            {
                "monitor": {
                    "type": "pod",
                    "labels": {"podwright.dev/fleet": "a"},
                }
            },
            "labels",
        ),
    ],
)
def test_labels_and_annotations_of_the_chart(
    helm: Helm, component: Manifest, value: str
) -> None:
    """What the chart sets and needs is an error with its name."""
    with pytest.raises(RenderError, match=rf"{value}: the chart sets .*remove"):
        helm({"components": {"x": {**component, "files": {"blueprint.json": "{}"}}}})  # fmt: skip


@pytest.mark.parametrize(
    ("volume", "found"),
    [
        ({"mountPath": "/x"}, "none"),
        ({"configMap": {}, "secret": {}}, "configMap, secret"),
    ],
)
def test_a_volume_has_one_source(
    helm: Helm, volume: Manifest, found: str
) -> None:
    """A volume without a source, or with two, is an error that says which it has."""
    with pytest.raises(RenderError, match=rf"x\.volumes\.ca: .*has {found}"):
        helm({"components": {"x": {"volumes": {"ca": volume}}}})


def test_an_earlier_blueprint_has_a_text_as_its_name(helm: Helm) -> None:
    """A number there is an error of the chart, and not one of a comparison in it."""
    x: dict[str, Any] = {"previous": ['{"name": 5}']}
    x["blueprint"] = {"inline": {"name": "x"}}
    with pytest.raises(RenderError, match=r"x\.previous: .*with a name"):
        helm({"components": {"x": x}})


def test_a_shared_service_account_is_made_once(helm: Helm) -> None:
    """Two components with one service account have it once."""
    shared = {"serviceAccount": {"name": "agents"}}
    manifests = by_name(helm({"components": {"x": shared, "y": shared}}))
    assert ("ServiceAccount", "agents") in manifests


def test_components_of_two_fleets_with_one_full_name(
    umbrella: Umbrella,
) -> None:
    """The fleet `x` with `team-w` and the fleet `x-team` with `w` would share objects, which is an error."""
    values = {
        "agents": {"fullnameOverride": "x", "components": {"team-w": {}}},
        "tools": {"fullnameOverride": "x-team", "components": {"w": {}}},
    }
    with pytest.raises(
        RenderError,
        match=r"charts/\w+/templates and .*both have the name x-team-w; set fullnameOverride",
    ):
        umbrella(values, [{"alias": "agents"}, {"alias": "tools"}])


def test_the_notes_name_no_revision() -> None:
    """The revision before may have failed, so that its values are not those of the running pods."""
    notes = (CHART / "templates" / "NOTES.txt").read_text()
    assert "--revision REVISION)" in notes
    assert "helm history" in notes
