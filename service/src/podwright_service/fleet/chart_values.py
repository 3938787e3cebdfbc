"""Values of the Helm chart: create them from component folders, and compare them with those of a release.

No cluster is contacted. Of the code only agents.py is imported, to see which agents it supplies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from podwright import blueprints
from podwright.blueprints.diff import Change, blueprint_changes
from podwright.components.folder import Folder
from podwright.errors import BlueprintValidationError, ConfigurationError
from podwright.json_data import as_array, as_object
from podwright.text import os_error_reason
from podwright_service.images.context import (
    component_files,
    requirements,
    shared_packages,
    texts_of,
)

_MAX_CONFIG_MAP_BYTES = 900_000
"""Kubernetes accepts 1 MiB, including names and the blueprint."""
_NEEDS_IMAGE = "Build an image of the component, and set it in the values."
_HEADING = re.compile(r"\A(USER-SUPPLIED|COMPUTED) VALUES:\n")
"""The first line of the table output of `helm get values`."""
_FILE = re.compile(r"[-_a-zA-Z0-9]+([./][-_a-zA-Z0-9]+)*")
"""The path of a file, as the schema of the values has it."""
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def render(folders: Iterable[str | Path]) -> dict[str, Any]:
    """The values for a fleet: a component for each folder, in alphabetical order.

    An agent that a blueprint names is another of the folders, or in `agents/` of its own folder.

    Raises:
        ConfigurationError: The chart cannot deploy a folder; the message says why.
    """
    return update({}, folders)


def update(
    running: Mapping[str, Any], folders: Iterable[str | Path]
) -> dict[str, Any]:
    """The values of a release, with the components of the folders added or replaced.

    Values of a component that its folder does not determine, such as replicas, are kept. Its agents may also be other
    components of the release, or remotes as the release has them.

    Args:
        running: The values of the release.
        folders: The new or changed components.

    Raises:
        ConfigurationError: The chart cannot deploy a folder; the message says why.
    """
    paths = [Path(folder).resolve() for folder in folders]
    names = {path.name: _component_name(path.name) for path in paths}
    if len(set(names.values())) < len(paths):
        folder_names = ", ".join(sorted(path.name for path in paths))
        raise ConfigurationError(
            f"Two of the folders {folder_names} would have the same component name.",
            suggestion="Use names that differ in more than case and underscores.",
        )
    components = dict(as_object(running.get("components")))
    names_by_agent = {name: name for name in components} | names
    for path in paths:
        name = names[path.name]
        component = dict(as_object(components.get(name)))
        agents = _agents_by_name(component)
        for key in ("blueprint", "files", "agents"):
            component.pop(key, None)
        component |= _component(path.name, Folder(path), names_by_agent, agents)
        components[name] = component
    return {**running, "components": dict(sorted(components.items()))}


def _agents_by_name(component: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of `agents` by the name in the blueprint."""
    agents: dict[str, Any] = {}
    for entry in as_array(component.get("agents")):
        if isinstance(entry, str):
            agents[entry] = entry
        else:
            name = str(as_object(entry).get("name"))
            agents[name] = entry
    return agents


def _component_name(folder: str) -> str:
    name = folder.lower().replace("_", "-").replace(".", "-")
    if not _LABEL.fullmatch(name):
        raise ConfigurationError(
            f"The name of the folder '{folder}' is not valid for a component of the chart.",
            suggestion="Use letters, digits and hyphens, 63 at most.",
        )
    return name


def _component(
    name: str,
    folder: Folder,
    names_by_agent: Mapping[str, str],
    known_agents: Mapping[str, Any],
) -> dict[str, Any]:
    blueprint = folder.blueprint()
    blueprints.check(blueprint)
    component: dict[str, Any] = {"blueprint": {"inline": blueprint}}
    files = _files(folder)
    if files:
        component["files"] = files
    agents: list[Any] = []
    for source in folder.agents(blueprint):
        if source.place not in ("beside", "missing"):
            continue
        agent = source.name
        if agent in known_agents:
            agents.append(known_agents[agent])
        elif agent not in names_by_agent:
            raise ConfigurationError(
                f"The component '{name}' needs the agent '{agent}', which is not among the folders.",
                suggestion=f"Give the folder of '{agent}' too.",
            )
        elif names_by_agent[agent] == agent:
            agents.append(agent)
        else:
            agents.append({"name": agent, "component": names_by_agent[agent]})
    if agents:
        component["agents"] = agents
    return component


def _files(component: Folder) -> dict[str, str]:
    """The texts of a component's files by path, with those of shared packages and without the blueprint."""
    folder = component.path
    dependencies = requirements(folder)
    if dependencies:
        raise _files_error(folder, f"it has dependencies in {dependencies}")
    contents = _contents(folder)
    for name, package in shared_packages([component]).items():
        for path, content in _contents(package).items():
            contents[f"{name}/{path}"] = content
    size = sum(len(content) for content in contents.values())
    if size > _MAX_CONFIG_MAP_BYTES:
        reason = f"they have more than {_MAX_CONFIG_MAP_BYTES} bytes"
        raise _files_error(folder, reason)
    in_blueprint = texts_of(component.blueprint_file())
    texts: dict[str, str] = {}
    for name, content in contents.items():
        if not _FILE.fullmatch(name):
            # the values have the text itself
            if folder / name in in_blueprint:
                continue
            reason = f"the chart cannot have the name '{name}'"
            raise _files_error(folder, reason)
        try:
            texts[name] = content.decode()
        except UnicodeDecodeError:
            raise _files_error(folder, f"'{name}' is not UTF-8 text") from None
    return texts


def _contents(folder: Path) -> dict[str, bytes]:
    blueprint_files = {f"blueprint{suffix}" for suffix in blueprints.SUFFIXES}
    contents: dict[str, bytes] = {}
    try:
        for file in component_files(folder):
            if str(file) not in blueprint_files:
                contents[file.as_posix()] = (folder / file).read_bytes()
    except OSError as error:
        reason = f"{os_error_reason(error)}: {error.filename}"
        suggestion = "Make it readable for this user."
        raise _files_error(folder, reason, suggestion) from error
    return contents


def _files_error(
    folder: Path, reason: str, suggestion: str = _NEEDS_IMAGE
) -> ConfigurationError:
    message = f"A ConfigMap cannot hold the files of the component '{folder.name}': {reason}."
    return ConfigurationError(message, suggestion=suggestion)


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

    @property
    def breaking(self) -> bool:
        """Whether callers may break: the component is removed, or its blueprint has a breaking change."""
        if self.what == "removed":
            return True
        return any(change.breaking for change in self.blueprint)


def diff(
    running: Mapping[str, Any], new: Mapping[str, Any]
) -> list[ComponentChange]:
    """What new values change in a release: values of the whole fleet first, then by component.

    Args:
        running: The values of the release, as in `helm get values RELEASE --output json`.
        new: The new values.

    Raises:
        ConfigurationError: A blueprint in the values is invalid.
    """
    old_components = as_object(running.get("components"))
    new_components = as_object(new.get("components"))
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
            old_component = as_object(old_components[name])
            new_component = as_object(new_components[name])
            change = _diff_component(name, old_component, new_component)
        changes.append(change)
    return [change for change in changes if not _is_empty(change)]


def _is_empty(change: ComponentChange) -> bool:
    if change.what != "changed":
        return False
    return not change.blueprint and not change.values


def _diff_component(
    name: str, old: Mapping[str, Any], new: Mapping[str, Any]
) -> ComponentChange:
    old_blueprint = _inline_blueprint(name, old)
    new_blueprint = _inline_blueprint(name, new)
    paths = set(
        _changed_paths({**old, "blueprint": None}, {**new, "blueprint": None})
    )
    old_source = dict(as_object(old.get("blueprint")))
    new_source = dict(as_object(new.get("blueprint")))
    changes: list[Change] = []
    if old_blueprint and new_blueprint:
        changes = blueprint_changes(old_blueprint, new_blueprint)
        # compared as data, whether the values have it as text or as an object
        for key in ("inline", "file"):
            old_source.pop(key, None)
            new_source.pop(key, None)
    if old_source != new_source:
        paths.add("blueprint")
    return ComponentChange(
        name,
        "changed",
        blueprint=changes,
        values=sorted(paths),
    )


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


def _inline_blueprint(
    name: str, component: Mapping[str, Any]
) -> dict[str, Any] | None:
    inline = as_object(component.get("blueprint")).get("inline")
    if inline is None:
        return None
    if isinstance(inline, str):
        inline = blueprints.from_yaml(inline)
    blueprint = as_object(inline)
    if not blueprint:
        raise ConfigurationError(
            f"The blueprint of the component '{name}' is not an object.",
            suggestion=f"Correct components.{name}.blueprint.inline.",
        )
    return blueprint


def read_values(text: str) -> dict[str, Any]:
    """The values in YAML or JSON text, such as the output of `helm get values`.

    Raises:
        ConfigurationError: The text is not values of the chart.
    """
    try:
        data = blueprints.from_yaml(_HEADING.sub("", text))
    except BlueprintValidationError as error:
        raise _invalid_values_error(error.problems[0].detail) from error
    values = as_object(data)
    # Helm prints null for a release without values
    if data is not None and not isinstance(data, dict):
        raise _invalid_values_error("not an object")
    if "type" in values or not isinstance(values.get("components", {}), dict):
        raise _invalid_values_error("no object `components`")
    return values


def _invalid_values_error(reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"Invalid chart values: {reason.rstrip('.')}.",
        suggestion="Give the output of `helm get values RELEASE`, or a file for `helm upgrade --values`.",
    )


def write_values(values: Mapping[str, Any]) -> str:
    """The values as YAML, with text of several lines in block style."""
    import yaml  # slow to import

    class Dumper(yaml.SafeDumper):
        pass

    def represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        style = None
        if "\n" in text:
            style = "|"
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)  # pyright: ignore[reportUnknownMemberType] - untyped in its stubs

    Dumper.add_representer(str, represent_text)
    return yaml.dump(
        dict(values),
        Dumper=Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=110,
    )
