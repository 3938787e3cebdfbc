"""From component folders to the values of the Helm chart, and what new values change in a running fleet.

Data in, data out: files are only read, and nothing is asked of a cluster.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from podwright import blueprints
from podwright.components.folder import Folder
from podwright.errors import ConfigurationError

_CONFIG_MAP_BYTES = 900_000
"""Kubernetes takes 1 MiB, names and the blueprint included."""
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def render(folders: Iterable[str | Path]) -> dict[str, Any]:
    """The values that make a fleet of component folders: a component for each, in alphabetical order.

    An agent that a blueprint names is one of the other folders, or stands in its own folder, under `agents/`.

    Raises:
        ConfigurationError: A folder cannot be a component of a fleet as it is; the message says why.
    """
    found = {path.name: Folder(path) for path in (Path(one).resolve() for one in folders)}
    names = {folder: _component_name(folder) for folder in found}
    if len(set(names.values())) < len(names):
        raise ConfigurationError(
            f"Of the folders {', '.join(sorted(found))}, two would be one component.",
            suggestion="Give them names that differ in more than case and underscores.",
        )
    components = {names[folder]: _component(folder, found[folder], names) for folder in found}
    return {"components": dict(sorted(components.items()))}


def _component_name(folder: str) -> str:
    name = folder.lower().replace("_", "-").replace(".", "-")
    if not _LABEL.fullmatch(name):
        raise ConfigurationError(
            f"The folder '{folder}' cannot give a component its name.",
            suggestion="Name it with letters, digits and hyphens, 63 at most.",
        )
    return name


def _component(name: str, folder: Folder, names: Mapping[str, str]) -> dict[str, Any]:
    blueprint = folder.blueprint()
    blueprints.check(blueprint)
    component: dict[str, Any] = {"blueprint": {"inline": blueprint}}
    if files := _files(folder.path):
        component["files"] = files
    agents: list[str | dict[str, str]] = []
    for agent in folder.agent_names(blueprint):
        if any(path.startswith((f"agents/{agent}/", f"agents/{agent}.")) for path in files):
            continue  # it comes along
        if agent not in names:
            raise ConfigurationError(
                f"The component '{name}' works with '{agent}', which is not among the folders.",
                suggestion=f"Give the folder of '{agent}' too.",
            )
        agents.append(agent if names[agent] == agent else {"name": agent, "component": names[agent]})
    if agents:
        component["agents"] = agents
    return component


def _files(folder: Path) -> dict[str, str]:
    """The texts of a folder by path, without its blueprint and what is hidden or compiled."""
    texts: dict[str, str] = {}
    for file in sorted(folder.rglob("*")):
        path = file.relative_to(folder)
        if any(part.startswith(".") or part == "__pycache__" for part in path.parts) or not file.is_file():
            continue
        if len(path.parts) == 1 and path.stem == "blueprint":
            continue
        if str(path) in ("requirements.txt", "pyproject.toml"):
            raise ConfigurationError(
                f"The component '{folder.name}' has packages of its own ({path}), which no ConfigMap can bring.",
                suggestion="Build an image of it, and give the component that image in the values.",
            )
        try:
            texts[path.as_posix()] = file.read_bytes().decode()
        except UnicodeDecodeError:
            raise ConfigurationError(
                f"The file {path} of the component '{folder.name}' is no text.",
                suggestion="Build an image of the component, and give it that image in the values.",
            ) from None
    if sum(len(text.encode()) for text in texts.values()) > _CONFIG_MAP_BYTES:
        raise ConfigurationError(
            f"The files of the component '{folder.name}' are too large for a ConfigMap.",
            suggestion="Build an image of the component, and give it that image in the values.",
        )
    return texts


@dataclass(frozen=True)
class ComponentChange:
    """What new values change in one component of a fleet."""

    component: str
    """Its name."""
    what: str
    """`added`, `removed` or `changed`."""
    blueprint: list[blueprints.Change] = field(default_factory=list[blueprints.Change])
    """The changes of its blueprint."""
    values: list[str] = field(default_factory=list[str])
    """Its other values that change, sorted."""

    @property
    def breaking(self) -> bool:
        """Whether callers may be let down: the component goes, or its blueprint changes in a way that breaks."""
        return self.what == "removed" or any(change.breaking for change in self.blueprint)


def diff(running: Mapping[str, Any], new: Mapping[str, Any]) -> list[ComponentChange]:
    """What new values change in a running release, component by component.

    Args:
        running: The release's values, as `helm get values RELEASE --output json` tells them.
        new: The values to come.
    """
    before, after = (dict(values.get("components") or {}) for values in (running, new))
    return [
        change
        for name in sorted({*before, *after})
        if (change := _component_change(name, before.get(name), after.get(name))) is not None
    ]


def _component_change(name: str, old: Any, new: Any) -> ComponentChange | None:
    if old is None or new is None:
        return ComponentChange(name, "added" if old is None else "removed")
    was, now = _blueprint(name, old), _blueprint(name, new)
    values = {key for key in {*old, *new} - {"blueprint"} if old.get(key) != new.get(key)}
    if was is None or now is None:
        changes: list[blueprints.Change] = []
        values |= {"blueprint"} if old.get("blueprint") != new.get("blueprint") else set()
    else:
        changes = blueprints.diff(was, now)
    return ComponentChange(name, "changed", changes, sorted(values)) if changes or values else None


def _blueprint(name: str, component: Mapping[str, Any]) -> dict[str, Any] | None:
    given = blueprints.as_object(component.get("blueprint")).get("inline")
    if given is None:
        return None
    blueprint = blueprints.as_object(blueprints.from_yaml(given) if isinstance(given, str) else given)
    if not blueprint:
        raise ConfigurationError(
            f"The blueprint of the component '{name}' is no object.",
            suggestion=f"Correct components.{name}.blueprint.inline.",
        )
    return blueprint
