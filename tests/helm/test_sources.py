"""What a component serves: its image, its blueprint and its earlier blueprints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.component_values import SERVED, UNSERVED
from tests.helm.conftest import Helm, Manifest, RenderError, by_name
from tests.helm.test_chart import validate
from tests.helm.test_manifests import (
    AGENT,
    container_of,
    deployment,
    environment,
    objects,
    volume,
)

from podwright import __version__, blueprints

DIGEST = f"sha256:{'a' * 64}"
EARLIER = [
    {
        **AGENT,
        "instructions": text,
        "config": {"model": "offline/echo", "temperature": number},
    }
    for text, number in (("First: <b> & \u2028.", 1.0), ("Zweitens.\n", 0.25))
]


@pytest.mark.parametrize(
    ("image", "reference"),
    [
        ({}, f"podwright:{__version__}"),
        ({"tag": "full"}, "podwright:full"),
        ({"digest": DIGEST}, f"podwright@{DIGEST}"),
        ({"tag": "full", "digest": DIGEST}, f"podwright:full@{DIGEST}"),
        (
            {"repository": "registry.example:5000/team/x", "digest": DIGEST},
            f"registry.example:5000/team/x@{DIGEST}",
        ),
    ],
)
def test_the_reference_of_an_image(
    helm: Helm, image: Manifest, reference: str
) -> None:
    """A digest needs no tag, and without both the tag is the version of the chart."""
    rendered = deployment(helm, image=image, blueprint={"inline": AGENT})
    assert container_of(rendered)["image"] == reference


@pytest.mark.parametrize(("component", "defaults"), SERVED.values(), ids=SERVED)
def test_what_may_be_served(
    helm: Helm, component: Manifest, defaults: Manifest
) -> None:
    """A blueprint comes from the values, a ConfigMap, an image or a volume."""
    values = {"defaults": defaults, "components": {"x": component}}
    manifests = by_name(helm(values, complete=False))
    validate(manifests["Deployment", "fleet-x"])


@pytest.mark.parametrize(
    ("component", "defaults"), UNSERVED.values(), ids=UNSERVED
)
def test_a_component_that_serves_nothing(
    helm: Helm, component: Manifest, defaults: Manifest
) -> None:
    """A name that is misspelled is told before anything is installed, with the names that the fleet has."""
    components = {
        "writer": {"image": {"repository": "team/writer"}, "filesFrom": []},
        "writter": component,
    }
    values = {"defaults": defaults, "components": components}
    with pytest.raises(
        RenderError, match=r"components\.writter: no blueprint.*writer"
    ):
        helm(values, complete=False)


def test_files_that_are_null(helm: Helm) -> None:
    """Null means no files."""
    component = {"blueprint": {"inline": AGENT}, "files": None}
    data = objects(helm, **component)["ConfigMap", "fleet-x-files"]["data"]
    assert list(data) == ["blueprint.json"]


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
@pytest.mark.parametrize(
    ("repository", "tag"),
    [("podwright", "slim"), ("registry.example/podwright", "1.2.3-slim")],
)
def test_a_store_needs_the_full_image(
    helm: Helm, store: str, repository: str, tag: str
) -> None:
    """The image without the parts for background runs is told before a running pod stops."""
    component = {
        "blueprint": {"inline": AGENT},
        "runs": {"store": store, "postgres": {"secret": "database"}},
    }
    image = {"repository": repository, "tag": tag}
    with pytest.raises(RenderError, match=r"components\.x\.runs\.store.*full"):
        deployment(helm, **component, image=image)
    full = {"repository": repository, "tag": tag.replace("slim", "full")}
    own = {"repository": "team/slim", "tag": "slim"}
    for fitting in (full, own):
        validate(deployment(helm, **component, image=fitting))


@pytest.mark.parametrize("as_text", [False, True])
def test_earlier_blueprints(
    helm: Helm, tmp_path: Path, *, as_text: bool
) -> None:
    """They are files of a folder that the service knows, and have the digests that they had in the library."""
    previous: list[Manifest | str] = [*EARLIER]
    if as_text:
        previous = [
            blueprints.to_json(EARLIER[0]),
            blueprints.to_yaml(EARLIER[1]),
        ]
    component = {"blueprint": {"inline": AGENT}}
    manifests = objects(helm, **component, previous=previous)
    pods = manifests["Deployment", "fleet-x"]
    validate(pods)
    folder = environment(pods)["PODWRIGHT_PREVIOUS"]
    mounts = {
        mount["mountPath"]: mount["name"]
        for mount in container_of(pods)["volumeMounts"]
    }
    source = volume(pods, mounts[folder])["configMap"]["name"]
    data = manifests["ConfigMap", source]["data"]
    digests: dict[str, str] = {}
    for name, text in data.items():
        (tmp_path / name).write_text(text)
        blueprint = blueprints.read_file(tmp_path / name)
        digests[name] = blueprints.digest(blueprint)
    assert set(digests.values()) == {
        blueprints.digest(each) for each in EARLIER
    }
    for name, digest in digests.items():
        assert name == f"{digest.removeprefix('sha256:')[:12]}.json"
    fewer = deployment(helm, **component, previous=previous[1:])
    without = deployment(helm, **component)
    templates = [
        json.dumps(each["spec"]["template"]) for each in (pods, fewer, without)
    ]
    assert len(set(templates)) == 3
    assert "previous" not in templates[2]


@pytest.mark.parametrize("source", ["files", "inline", "previous"])
def test_what_does_not_fit_into_a_config_map(helm: Helm, source: str) -> None:
    """More than 1 MiB is refused when the chart is rendered, with the value; exactly 1 MiB is not."""

    def component(size: int) -> Manifest:
        text = "ü" * (size // 2)
        if source == "files":
            return {
                "blueprint": {"inline": AGENT},
                "files": {"notes.txt": text},
            }
        blueprint = {**AGENT, "instructions": text}
        if source == "inline":
            return {"blueprint": {"inline": blueprint}}
        return {"blueprint": {"inline": AGENT}, "previous": [blueprint]}

    value = "previous" if source == "previous" else "files"
    with pytest.raises(RenderError, match=rf"components\.x\.{value}: "):
        deployment(helm, **component(1024 * 1024 + 2))
    deployment(helm, **component(1024 * 1024 - 1000))


@pytest.mark.parametrize(
    "earlier", [{**AGENT, "name": "other"}, {"config": {}}, "- 1", "{", ""]
)
def test_earlier_blueprints_that_are_not_valid(
    helm: Helm, earlier: Manifest | str
) -> None:
    """The service would not start with the blueprint of another component, and the chart needs an object."""
    with pytest.raises(RenderError, match=r"components\.x\.previous"):
        deployment(helm, blueprint={"inline": AGENT}, previous=[earlier])
