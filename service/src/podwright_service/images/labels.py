"""The description of a component in the labels of its image, which can be read without running it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from podwright.data.json_data import as_object

DIGEST = "podwright.blueprint.digest"
"""The label with the digest of the component's blueprint."""
COMPONENT = "podwright.component"
"""The label with the whole description, as JSON; the other labels are for queries."""
BASE_NAME = "org.opencontainers.image.base.name"
VERSION = "org.opencontainers.image.version"
FLAVOUR = "podwright.flavour"
"""The label of a base image with its flavour, `slim` or `full`, which images based on it inherit."""


def to_labels(facts: dict[str, Any]) -> dict[str, str]:
    """The labels for a description of a component."""
    return {
        "org.opencontainers.image.title": facts["name"],
        "org.opencontainers.image.description": facts["description"] or "",
        "podwright.name": facts["name"],
        "podwright.kind": facts["kind"],
        DIGEST: facts["digest"],
        COMPONENT: json.dumps(facts, separators=(",", ":")),
    }


def read_labels(image: dict[str, Any]) -> dict[str, Any] | None:
    """The description in an image's labels; None if there is none."""
    text = label(image, COMPONENT)
    if text is None:
        return None
    try:
        data = json.loads(text)
    except ValueError:
        return None
    return as_object(data) or None


def blueprint_digest(configs: Sequence[Mapping[str, Any]]) -> str | None:
    """The digest of the blueprint in an image; None if it is not the same on all of its platforms.

    Args:
        configs: The configuration of the image for each platform.
    """
    digests = {label({"Config": config}, DIGEST) for config in configs}
    if len(digests) != 1:
        return None
    return digests.pop()


def label(image: dict[str, Any], name: str) -> str | None:
    """A label of an image, as `docker image inspect` returns it; None if it is missing or empty."""
    config = as_object(image.get("Config"))
    labels = as_object(config.get("Labels"))
    return labels.get(name) or None
