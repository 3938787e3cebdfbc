"""From component folders to the values of the Helm chart, and what new values change in a running fleet.

Data in, data out: files are only read, and nothing is asked of a cluster.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from podwright import blueprints
from podwright.components.folder import Folder
from podwright.errors import BlueprintValidationError, ConfigurationError
from podwright.json_data import as_array, as_object
from podwright.text import os_error_reason, short_repr
from podwright_service.images.context import component_files, requirements

_CONFIG_MAP_BYTES = 900_000
"""Kubernetes takes 1 MiB, names and the blueprint included."""
_BLUEPRINTS = {f"blueprint{suffix}" for suffix in blueprints.SUFFIXES}
_IMAGE = "Build an image of the component, and give it that image in the values."
_HEADING = re.compile(r"\A(USER-SUPPLIED|COMPUTED) VALUES:\n")
"""Helm's, over values for people."""
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def render(folders: Iterable[str | Path]) -> dict[str, Any]:
    """The values that make a fleet of component folders: a component for each, in alphabetical order.

    An agent that a blueprint names is one of the other folders, or stands in its own folder, under `agents/`.

    Raises:
        ConfigurationError: A folder cannot be a component of a fleet as it is; the message says why.
    """
    return renew({}, folders)


def renew(running: Mapping[str, Any], folders: Iterable[str | Path]) -> dict[str, Any]:
    """The values of a release, with what component folders say put in place of what it had.

    What a folder does not say, such as replicas, stays. Its agents may also be components of the release, or elsewhere
    as the release has them.

    Args:
        running: The release's values.
        folders: The new or changed components.

    Raises:
        ConfigurationError: A folder cannot be a component of a fleet as it is; the message says why.
    """
    paths = [Path(one).resolve() for one in folders]
    names = {path.name: _component_name(path.name) for path in paths}
    if len(set(names.values())) < len(paths):
        raise ConfigurationError(
            f"Of the folders {', '.join(sorted(path.name for path in paths))}, two would be one component.",
            suggestion="Give them names that differ in more than case and underscores.",
        )
    before = as_object(running.get("components"))
    fleet = {**{name: name for name in before}, **names}
    components = dict(before)
    for path in paths:
        was = as_object(before.get(names[path.name]))
        kept = {key: value for key, value in was.items() if key not in ("blueprint", "files", "agents")}
        components[names[path.name]] = {**kept, **_component(path.name, Folder(path), fleet, _agents(was))}
    return {**running, "components": dict(sorted(components.items()))}


def _agents(component: Mapping[str, Any]) -> dict[str, Any]:
    """A component's agents by the names that its blueprint has for them."""
    given = as_array(component.get("agents"))
    return {one if isinstance(one, str) else str(as_object(one).get("name")): one for one in given}


def _component_name(folder: str) -> str:
    name = folder.lower().replace("_", "-").replace(".", "-")
    if not _LABEL.fullmatch(name):
        raise ConfigurationError(
            f"The folder '{folder}' cannot give a component its name.",
            suggestion="Name it with letters, digits and hyphens, 63 at most.",
        )
    return name


def _component(name: str, folder: Folder, names: Mapping[str, str], known: Mapping[str, Any]) -> dict[str, Any]:
    blueprint = folder.blueprint()
    blueprints.check(blueprint)
    component: dict[str, Any] = {"blueprint": {"inline": blueprint}}
    if files := _files(folder.path):
        component["files"] = files
    agents: list[Any] = []
    for agent in folder.agent_names(blueprint):
        if any(path.startswith((f"agents/{agent}/", f"agents/{agent}.")) for path in files):
            continue  # it comes along
        if agent in known:
            agents.append(known[agent])
            continue
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
    """The texts by path of the files that an image would have too, without the blueprint."""
    if packages := requirements(folder):
        raise ConfigurationError(
            f"The component '{folder.name}' has packages of its own ({packages}), which no ConfigMap can bring.",
            suggestion="Build an image of it, and give the component that image in the values.",
        )
    texts: dict[str, str] = {}
    try:
        paths = [path for path in component_files(folder) if str(path) not in _BLUEPRINTS]
        contents = {path.as_posix(): blueprints.read_bytes(folder / path) for path in paths}
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"The files of the component '{folder.name}' cannot be read: {os_error_reason(error)}.",
            suggestion="Let this user read them." if isinstance(error, OSError) else _IMAGE,
        ) from error
    for path, content in contents.items():
        try:
            texts[path] = content.decode()
        except UnicodeDecodeError:
            raise ConfigurationError(
                f"The file {path} of the component '{folder.name}' is no text.",
                suggestion=_IMAGE,
            ) from None
    if sum(len(text.encode()) for text in texts.values()) > _CONFIG_MAP_BYTES:
        raise ConfigurationError(
            f"The files of the component '{folder.name}' are too large for a ConfigMap.",
            suggestion=_IMAGE,
        )
    return texts


@dataclass(frozen=True)
class ComponentChange:
    """What new values change in one component of a fleet."""

    component: str
    """Its name; empty for what holds for the whole fleet."""
    what: Literal["added", "removed", "changed"]
    """What becomes of it."""
    blueprint: list[blueprints.Change] = field(default_factory=list[blueprints.Change])
    """The changes of its blueprint."""
    values: list[str] = field(default_factory=list[str])
    """Its other values that change, such as `resources.limits.cpu`, sorted."""

    @property
    def breaking(self) -> bool:
        """Whether callers may be let down: the component goes, or its blueprint changes in a way that breaks."""
        return self.what == "removed" or any(change.breaking for change in self.blueprint)

    def __str__(self) -> str:
        name = self.component or "the fleet"
        if self.what != "changed":
            return f"{'breaking' if self.breaking else 'compatible'}: {name} {self.what}"
        lines = [f"{change}{_told(change)}" for change in self.blueprint]
        lines += [f"value: {place} changed" for place in self.values]
        return "\n".join(f"{name}: {line}" for line in lines)


def _told(change: blueprints.Change) -> str:
    was, now = short_repr(change.old), short_repr(change.new)
    return {"added": f": {now}", "removed": f": {was}", "changed": f": {was} -> {now}"}[change.op]


def diff(running: Mapping[str, Any], new: Mapping[str, Any]) -> list[ComponentChange]:
    """What new values change in a running release: for the whole fleet, then component by component.

    Args:
        running: The release's values, as `helm get values RELEASE --output json` tells them.
        new: The values to come.

    Raises:
        ConfigurationError: A blueprint in the values is none.
    """
    before, after = (as_object(values.get("components")) for values in (running, new))
    was, now = ({key: value for key, value in values.items() if key != "components"} for values in (running, new))
    places = sorted(_changed(was, now))
    changes = [_component_change(name, before.get(name), after.get(name)) for name in sorted({*before, *after})]
    whole = [ComponentChange("", "changed", values=places)] if places else []
    return whole + [change for change in changes if change is not None]


def _component_change(name: str, old: Any, new: Any) -> ComponentChange | None:
    if old is None or new is None:
        return ComponentChange(name, "added" if old is None else "removed")
    before, after = as_object(old), as_object(new)
    was, now = _blueprint(name, before), _blueprint(name, after)
    changes = blueprints.diff(was, now) if was and now else []
    told = ("inline", "file") if was and now else ()  # by the changes, whether it stands there as data or as text
    sources = [
        {key: value for key, value in as_object(side.get("blueprint")).items() if key not in told}
        for side in (before, after)
    ]
    places = [place for place in _changed(before, after) if not place.startswith("blueprint.")]
    places += ["blueprint"] if sources[0] != sources[1] else []
    return ComponentChange(name, "changed", changes, sorted(places)) if changes or places else None


def _changed(old: Mapping[str, Any], new: Mapping[str, Any], at: str = "") -> Iterator[str]:
    """The paths of values that differ; a map is as good as an empty one where there is none."""
    for key in {*old, *new}:
        was, now = old.get(key), new.get(key)
        if was == now:
            continue
        if all(side is None or isinstance(side, dict) for side in (was, now)):
            yield from _changed(as_object(was), as_object(now), f"{at}{key}.")
        else:
            yield f"{at}{key}"


def _blueprint(name: str, component: Mapping[str, Any]) -> dict[str, Any] | None:
    given = as_object(component.get("blueprint")).get("inline")
    if given is None:
        return None
    blueprint = as_object(blueprints.from_yaml(given) if isinstance(given, str) else given)
    if not blueprint:
        raise ConfigurationError(
            f"The blueprint of the component '{name}' is no object.",
            suggestion=f"Correct components.{name}.blueprint.inline.",
        )
    return blueprint


def read_values(text: str) -> dict[str, Any]:
    """The values in a text, YAML or JSON, such as `helm get values` prints them.

    Raises:
        ConfigurationError: The text is no values.
    """
    try:
        data = blueprints.from_yaml(_HEADING.sub("", text))
    except BlueprintValidationError as error:
        raise _no_values(error.problems[0].detail) from error
    values = as_object(data)
    if data is not None and not isinstance(data, dict):  # none is what Helm prints of a release without values
        raise _no_values("no map")
    if "type" in values or not isinstance(values.get("components", {}), dict):
        raise _no_values("no map with `components`")
    return values


def _no_values(what: str) -> ConfigurationError:
    return ConfigurationError(
        f"These are no values of the chart: {what}.",
        suggestion="Give what `helm get values RELEASE` prints, or a file for `helm upgrade --values`.",
    )


def write_values(values: Mapping[str, Any]) -> str:
    """The values as YAML, texts of several lines as blocks."""
    import yaml  # only this needs it

    class Dumper(yaml.SafeDumper):
        pass

    def text(dumper: yaml.SafeDumper, given: str) -> yaml.ScalarNode:
        style = "|" if "\n" in given else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", given, style)  # pyright: ignore[reportUnknownMemberType] - untyped in its stubs

    Dumper.add_representer(str, text)
    return yaml.dump(dict(values), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=110)
