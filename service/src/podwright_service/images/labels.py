"""What an image says of its component, in labels: whoever has the image can read them, and nothing needs to run."""

from __future__ import annotations

import json
from typing import Any, cast

from podwright.json_data import as_object

COMPONENT = "podwright.component"
"""The label with all of the facts, as JSON; the other ones are for those who look for one of them."""
BASE_NAME = "org.opencontainers.image.base.name"
VERSION = "org.opencontainers.image.version"


def of(facts: dict[str, Any]) -> dict[str, str]:
    """The labels for the facts of a component."""
    return {
        "org.opencontainers.image.title": facts["name"],
        "org.opencontainers.image.description": facts["description"] or "",
        "podwright.name": facts["name"],
        "podwright.kind": facts["kind"],
        "podwright.blueprint.digest": facts["digest"],
        COMPONENT: json.dumps(facts, separators=(",", ":")),
    }


def facts_in(image: dict[str, Any]) -> dict[str, Any] | None:
    """The facts in an image's labels; None if it holds no component."""
    try:
        facts = json.loads(label(image, COMPONENT) or "null")
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", facts) if isinstance(facts, dict) else None


def label(image: dict[str, Any], name: str) -> str | None:
    """One label of an image, as the engine knows it; None if it has none, or an empty one."""
    return as_object(as_object(image.get("Config")).get("Labels")).get(name) or None
