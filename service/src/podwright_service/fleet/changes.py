"""The changes between the values of a release and new ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from podwright import blueprints
from podwright.blueprints.diff import Change, blueprint_changes
from podwright.blueprints.mcp_tools import mcp_servers
from podwright.data.json_data import as_object
from podwright.folders.walks import locked_digest
from podwright.mcp.lock import MCPLock
from podwright_service.fleet.component_values import (
    components_of,
    earlier_blueprints,
    image_of,
    inline_blueprint,
    mcp_lock_of,
    place_of,
    stores_runs,
)

_Values = tuple[Mapping[str, Any], Mapping[str, Any]]
"""The values of a component, and those of `defaults`."""


@dataclass(frozen=True)
class ComponentChange:
    """What new values change in one component of a release."""

    component: str
    """Its name; empty for values of the whole fleet."""
    what: Literal["added", "removed", "changed"]
    blueprint: list[Change] = field(default_factory=list[Change])
    """The changes of its blueprint."""
    values: list[str] = field(default_factory=list[str])
    """The paths of its other values that change, such as `resources.limits.cpu`, sorted."""
    not_compared: str = ""
    """Why it is not known what changes in its blueprint; empty if that is known."""
    lost_blueprints: list[str] = field(default_factory=list[str])
    """The digests of blueprints that new values do not have, and with which runs that wait may have begun."""
    lost_definitions: list[str] = field(default_factory=list[str])
    """The digests of those that new values have with other definitions of MCP tools, which makes them others."""

    @property
    def breaking(self) -> bool:
        """Whether callers may break: the component is removed, or its blueprint has a breaking change."""
        if self.what == "removed":
            return True
        return any(change.breaking for change in self.blueprint)


class LockedBlueprint(NamedTuple):
    """A blueprint with the definitions of MCP tools beside it."""

    data: Mapping[str, Any]
    lock: MCPLock | None
    """None if it is not known."""

    @property
    def digest(self) -> str | None:
        """The digest of the component; None if it depends on a lock that is not known."""
        if not mcp_servers(self.data):
            return blueprints.digest(self.data)
        if self.lock is None:
            return None
        return locked_digest(self.data, self.lock.digests())


class _Blueprint(NamedTuple):
    """The blueprint of a component, as far as it is known."""

    place: str
    digest: str | None
    """None if it is not known."""


BlueprintDigest = Callable[[str], str | None]
"""Returns the digest of the blueprint in an image, by the reference of that; None if it is not known."""


def _unknown(reference: str) -> None:
    """No image is looked at."""


def diff(
    running: Mapping[str, Any],
    new: Mapping[str, Any],
    folders: Mapping[str, LockedBlueprint] | None = None,
    digest_in_image: BlueprintDigest = _unknown,
) -> list[ComponentChange]:
    """What new values change in a release: values of the whole fleet first, then by component.

    Args:
        running: The values of the release, as in `helm get values RELEASE --output json`.
        new: The new values.
        folders: The blueprints in the folders of components, which may be in no values.
        digest_in_image: Looks at an image, if a blueprint is in one.

    Raises:
        ConfigurationError: A blueprint or a lock in the values is invalid.
    """
    old_defaults = as_object(running.get("defaults"))
    new_defaults = as_object(new.get("defaults"))
    old_components = components_of(running)
    new_components = components_of(new)
    paths = _changed_paths(
        {**running, "components": None}, {**new, "components": None}
    )
    changes = [ComponentChange("", "changed", values=sorted(paths))]
    for name in sorted({*old_components, *new_components}):
        if name not in old_components:
            change = ComponentChange(name, "added")
        elif name not in new_components:
            change = ComponentChange(name, "removed")
        else:
            old_component = old_components[name]
            new_component = new_components[name]
            folder = (folders or {}).get(name)
            change = _diff_component(
                name,
                (old_component, old_defaults),
                (new_component, new_defaults),
                folder=folder,
                digest_in_image=digest_in_image,
            )
        changes.append(change)
    return [change for change in changes if not _is_empty(change)]


def digest_of(
    values: Mapping[str, Any], name: str, digest_in_image: BlueprintDigest
) -> str | None:
    """Return the digest of a component in the values of a release; None if it is not known.

    Args:
        values: The values.
        name: The component.
        digest_in_image: Looks at the image that has the component's folder, if one has.

    Raises:
        ConfigurationError: The blueprint or the lock in the values is invalid.
    """
    component = components_of(values)[name]
    defaults = as_object(values.get("defaults"))
    known = _in_values(name, component, defaults)
    return _blueprint(known, component, defaults, digest_in_image).digest


def _is_empty(change: ComponentChange) -> bool:
    if change.what != "changed":
        return False
    return not (change.blueprint or change.values or change.not_compared)


def _diff_component(
    name: str,
    running: _Values,
    changed: _Values,
    *,
    folder: LockedBlueprint | None,
    digest_in_image: BlueprintDigest,
) -> ComponentChange:
    old, old_defaults = running
    new, _ = changed
    old_blueprint = _in_values(name, *running)
    new_blueprint = _in_values(name, *changed) or folder
    paths = set(_changed_paths(_own_values(old), _own_values(new)))
    old_source = dict(as_object(old.get("blueprint")))
    new_source = dict(as_object(new.get("blueprint")))
    changes: list[Change] = []
    not_compared = ""
    if old_blueprint and new_blueprint:
        changes = blueprint_changes(old_blueprint.data, new_blueprint.data)
        # compared as data, whether the values have it as text or as an object
        for key in ("inline", "file"):
            old_source.pop(key, None)
            new_source.pop(key, None)
    elif new_blueprint is folder is not None or _source(*running) != _source(
        *changed
    ):
        not_compared = _not_compared(
            _blueprint(old_blueprint, *running, digest_in_image),
            _blueprint(new_blueprint, *changed, digest_in_image),
        )
    if old_source != new_source:
        paths.add("blueprint")
    lost_blueprints: list[str] = []
    lost_definitions: list[str] = []
    if stores_runs(old, old_defaults):
        kept = _digests(name, *changed)
        for digest, full in _digests(name, *running).items():
            if digest not in kept:
                lost_blueprints.append(full)
            elif full != kept[digest]:
                lost_definitions.append(full)
    return ComponentChange(
        name,
        "changed",
        blueprint=changes,
        values=sorted(paths),
        not_compared=not_compared,
        lost_blueprints=lost_blueprints,
        lost_definitions=lost_definitions,
    )


def _in_values(
    name: str, component: Mapping[str, Any], defaults: Mapping[str, Any]
) -> LockedBlueprint | None:
    """The blueprint in the values of a component; None if it is not there."""
    data = inline_blueprint(name, component)
    if data is None:
        return None
    return LockedBlueprint(data, mcp_lock_of(component, defaults))


def _source(
    component: Mapping[str, Any], defaults: Mapping[str, Any]
) -> tuple[Any, str | None]:
    """What decides which blueprint a component has."""
    return component.get("blueprint"), image_of(component, defaults)


def _blueprint(
    known: LockedBlueprint | None,
    component: Mapping[str, Any],
    defaults: Mapping[str, Any],
    digest_in_image: BlueprintDigest,
) -> _Blueprint:
    if known is not None:
        own = "the values"
        if inline_blueprint("", component) is None:
            own = "its folder"
        return _Blueprint(own, known.digest)
    image = image_of(component, defaults)
    digest = None
    if image is not None:
        digest = digest_in_image(image)
    return _Blueprint(place_of(component, defaults), digest)


def _not_compared(old: _Blueprint, new: _Blueprint) -> str:
    """Why two blueprints, of which one or both are not at hand, cannot be compared; empty if they are the same."""
    for each in (old, new):
        if each.digest is None:
            return f"the blueprint in {each.place} is not known"
    if old.digest == new.digest:
        return ""
    return f"the blueprint in {new.place} is another one than in {old.place}"


def _own_values(component: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a component besides its blueprint; no earlier blueprints equal an empty list of them."""
    values = dict(component)
    values.pop("blueprint", None)
    if not values.get("previous"):
        values.pop("previous", None)
    return values


def _digests(
    name: str, component: Mapping[str, Any], defaults: Mapping[str, Any]
) -> dict[str, str]:
    """The digests of all blueprints in the values of a component, and of the components that runs have of them."""
    known = earlier_blueprints(name, component)
    current = inline_blueprint(name, component)
    if current:
        known = {blueprints.digest(current): current, **known}
    lock = mcp_lock_of(component, defaults)
    return {
        digest: LockedBlueprint(blueprint, lock).digest or digest
        for digest, blueprint in known.items()
    }


def _changed_paths(
    old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = ""
) -> Iterator[str]:
    """The paths of values that differ; a missing object equals an empty one."""
    for key in {*old, *new}:
        path = f"{prefix}{key}"
        before = old.get(key)
        after = new.get(key)
        if before == after:
            continue
        if _may_be_object(before) and _may_be_object(after):
            yield from _changed_paths(
                as_object(before), as_object(after), f"{path}."
            )
        else:
            yield path


def _may_be_object(value: object) -> bool:
    return value is None or isinstance(value, dict)
