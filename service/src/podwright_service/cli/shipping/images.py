"""The commands `build` and `inspect`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from podwright import blueprints
from podwright.data.json_data import as_array, as_object
from podwright.data.text import truncate
from podwright.errors import ConfigurationError
from podwright_service.authoring.export import component_folder
from podwright_service.cli.console import (
    print_json,
    print_progress,
    print_text,
    read_text,
    write_text,
)
from podwright_service.fleet.chart_values import (
    check_component,
    component_name,
    read_values,
    with_image,
)
from podwright_service.images.building import build
from podwright_service.images.docker import Docker
from podwright_service.images.labels import read_labels
from podwright_service.images.reference import (
    ImageReference,
    check_reference,
    parse_reference,
)
from podwright_service.source import names_module


@dataclass(frozen=True)
class Target:
    """Where an image goes."""

    image: str
    """Its reference."""
    push: bool = False
    """Whether to push it instead of loading it into the engine."""
    platforms: str = ""
    """For which platforms, separated by commas; by default the engine's."""
    onto: str | None = None
    """A file of chart values, in which it becomes the image of its component."""


def build_image(
    source: str,
    target: Target,
    base: str,
    *,
    locked: bool,
    docker: str | None,
    verbose: bool,
) -> None:
    """Build the image of a component, and print what it contains.

    Raises:
        PodwrightError: It cannot be built or pushed, or the values do not have the component.
    """
    image = target.image
    check_reference(image)  # before the search for a Docker client
    platforms: list[str] = []
    if target.platforms:
        parts = target.platforms.split(",")
        platforms = [part.strip() for part in parts]
    with component_folder(source, print_progress) as folder:
        name = folder.name
        _check_values(target, name)
        built = build(
            folder,
            image,
            base=base,
            locked=locked,
            docker=Docker(docker),
            verbose=verbose,
            report=print_progress,
            push=target.push,
            platforms=platforms,
        )
    if names_module(source) and built.lock_changed:
        print_progress(
            f"Note: the next build may install newer packages. A folder keeps a lock: `podwright export {source}`."
        )
    elif built.lock_changed:
        print_progress(
            "Wrote requirements.lock to the folder. Commit it, so that the next build installs the same."
        )
    if unserved := built.facts["unserved"]:
        print_progress(
            f"Note: {base} has no client for {', '.join(unserved)}. Build with --base podwright:full, or set "
            "PODWRIGHT_MODEL where the component runs."
        )
    files = truncate(", ".join(built.files), 300)
    facts = built.facts
    done = f"Built {image}"
    if built.image_digest:
        done = f"Pushed {image}@{built.image_digest}"
    print_text(
        f"{done}: {facts['kind']} '{facts['name']}', {facts['digest']}; {files}."
    )
    if target.onto:
        reference = parse_reference(image)
        pushed = replace(reference, digest=built.image_digest)
        _write_values(target.onto, name, pushed)


def _check_values(target: Target, name: str) -> None:
    """Check before the build what would fail after it."""
    if target.onto is None:
        return
    if not target.push:
        raise ConfigurationError(
            "Without --push, an image has no digest for the values.",
            suggestion="Add --push, or leave out --onto.",
        )
    check_component(read_values(read_text(target.onto)), name)


def _write_values(path: str, name: str, image: ImageReference) -> None:
    """Write a component's image into a file of values."""
    values = with_image(read_values(read_text(path)), name, image)
    write_text(path, blueprints.to_yaml(values))
    print_progress(
        f"Wrote the image of components.{component_name(name)} to {path}, without the comments that were there."
    )


def inspect_image(image: str, as_json: bool, docker: str | None) -> None:
    """Print what the labels of an image say about its component.

    Raises:
        PodwrightError: The image does not exist, or has no component.
    """
    data = Docker(docker).image(check_reference(image))
    if data is None:
        raise ConfigurationError(
            f"There is no image '{image}'.",
            suggestion="Build it, or `docker pull` it.",
        )
    facts = read_labels(data)
    if facts is None:
        raise ConfigurationError(
            f"The image '{image}' has no labels of a component.",
            suggestion="Build it with `podwright build`.",
        )
    facts["image"] = {
        "id": data["Id"],
        "created": data["Created"],
        "bytes": data["Size"],
        "platform": f"{data['Os']}/{data['Architecture']}",
        "user": data["Config"]["User"],
    }
    if as_json:
        print_json(facts)
        return
    for key, value in facts.items():
        text = _text(value)
        if text:
            print_text(f"{key:<12} {text}")


def _text(value: object) -> str:
    items = [str(item) for item in as_array(value)]
    for key, item in as_object(value).items():
        if item is not None:
            items.append(f"{key} {item}")
    if items:
        return ", ".join(items)
    if value in ({}, []):
        return ""
    return " ".join(str(value).split())
