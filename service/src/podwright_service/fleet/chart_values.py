"""Values of the Helm chart, created from component folders.

No cluster is contacted. Of the code only agents.py is imported, to see which agents it supplies.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from podwright import blueprints
from podwright.blueprints.mcp_tools import mcp_servers
from podwright.data.json_data import as_array, as_object
from podwright.data.text import did_you_mean
from podwright.errors import BlueprintValidationError, ConfigurationError
from podwright.folders.folder import Folder
from podwright_service.fleet.component_values import (
    components_of,
    earlier_blueprints,
    has_folder,
    has_own_image,
    inline_blueprint,
    is_in_own_image,
    is_served,
    mcp_servers_of,
)
from podwright_service.fleet.files import (
    MAX_CONFIG_MAP_BYTES,
    files_of,
    files_with_credentials,
)
from podwright_service.images.reference import ImageReference

_HEADING = re.compile(r"\A(USER-SUPPLIED|COMPUTED) VALUES:\n")
"""The first line of the table output of `helm get values`."""
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_BY_FOLDER = ("blueprint", "files", "agents")
"""The values that a component's folder determines."""


def render(folders: Iterable[str | Path]) -> dict[str, Any]:
    """The values for a fleet: a component for each folder, in alphabetical order.

    An agent that a blueprint names is another of the folders, or in `agents/` of its own folder.

    Raises:
        ConfigurationError: The chart cannot deploy a folder; the message says why.
    """
    return update({}, folders)


def update(
    running: Mapping[str, Any],
    folders: Iterable[str | Path],
    images: Mapping[str, ImageReference] | None = None,
    *,
    keep: int | None = None,
) -> dict[str, Any]:
    """The values of a release, with the components of the folders added or replaced.

    Values of a component that its folder does not determine, such as replicas, are kept. Its agents may also be other
    components of the release, or remotes as the release has them. A component in an image of its own has neither
    blueprint nor files in the values: one of `images`, or one that the release has so.

    Args:
        running: The values of the release.
        folders: The new or changed components.
        images: Images that have the folders of components, by the names of these; a component needs no folder here.
        keep: How many earlier blueprints each component of the folders has at most; by default, those that it has.

    Raises:
        ConfigurationError: The chart cannot deploy a folder, or a component has nothing to serve; the message says why.
    """
    images = images or {}
    paths = [Path(folder).resolve() for folder in folders]
    names = _component_names([path.name for path in paths], "folders")
    defaults = as_object(running.get("defaults"))
    components = dict(as_object(running.get("components")))
    names_of_images = _component_names(images, "images")
    for name, image in images.items():
        component = as_object(components.get(names_of_images[name]))
        components[names_of_images[name]] = _in_image(component, image)
    names_by_agent = (
        {name: name for name in components_of({"components": components})}
        | names_of_images
        | names
    )
    for path in paths:
        name = names[path.name]
        before = as_object(components.get(name))
        component = _updated(
            path,
            before,
            names_by_agent,
            in_image=is_in_own_image(before, defaults),
        )
        _check_mcp_servers(Folder(path), component, defaults)
        if keep is not None:
            running_components = as_object(running.get("components"))
            earlier = as_object(running_components.get(name))
            component.pop("previous", None)
            previous = _kept(name, earlier, component, keep)
            if previous:
                component["previous"] = previous
        components[name] = component
    _check_served(components, defaults)
    return {**running, "components": dict(sorted(components.items()))}


def left_out_credentials(
    values: Mapping[str, Any], folders: Iterable[str | Path]
) -> list[str]:
    """The files with credentials that the values are without although they are in one of the folders.

    Raises:
        ConfigurationError: A file cannot be read.
    """
    components = components_of(values)
    left_out: list[str] = []
    for path in folders:
        folder = Folder(Path(path).resolve())
        source = as_object(
            components[component_name(folder.path.name)].get("blueprint")
        )
        # what is in an image comes from its build
        if source.get("inline") and not source.get("overlay"):
            files = files_with_credentials(folder)
            left_out += [f"{folder.path.name}/{file}" for file in files]
    return left_out


def _component_names(names: Collection[str], things: str) -> dict[str, str]:
    """The names of components by those of their folders or images, of which no two have one."""
    components = {name: component_name(name) for name in names}
    if len(set(components.values())) < len(names):
        raise ConfigurationError(
            f"Two of the {things} {', '.join(sorted(names))} would have the same component name.",
            suggestion="Use names that differ in more than case, dots and underscores.",
        )
    return components


def with_image(
    values: Mapping[str, Any], folder: str, image: ImageReference
) -> dict[str, Any]:
    """The values with another image of a component, which has its folder.

    Args:
        values: The values of the release.
        folder: The name of the component's folder.
        image: The image.

    Raises:
        ConfigurationError: The values do not have the component.
    """
    name = check_component(values, folder)
    components = as_object(values.get("components"))
    component = _in_image(as_object(components[name]), image)
    return {**values, "components": {**components, name: component}}


def check_component(values: Mapping[str, Any], folder: str) -> str:
    """Return the name of a folder's component, if the values have it.

    Raises:
        ConfigurationError: They do not.
    """
    name = component_name(folder)
    components = as_object(values.get("components"))
    if name not in components:
        names = ", ".join(sorted(components)) or "none"
        raise ConfigurationError(
            f"The values have no component '{name}', only: {names}.",
            suggestion="Add it first: `podwright deploy render PATH... --image NAME=REFERENCE --onto FILE`.",
        )
    return name


def _in_image(
    component: Mapping[str, Any], image: ImageReference
) -> dict[str, Any]:
    """The values of a component whose folder is in an image."""
    values = dict(component)
    values.pop("files", None)
    if not as_object(component.get("blueprint")).get("overlay"):
        values.pop("blueprint", None)
    own = as_object(component.get("image"))
    parts = {key: value for key, value in vars(image).items() if value}
    policy = own.get("pullPolicy")
    if policy:
        parts["pullPolicy"] = policy
    return {**values, "image": parts}


def components_in_images(values: Mapping[str, Any]) -> list[str]:
    """The names of the components whose folders are in their images."""
    defaults = as_object(values.get("defaults"))
    return [
        name
        for name, component in components_of(values).items()
        if has_own_image(component, defaults)
        and not has_folder(component, defaults)
    ]


def _updated(
    path: Path,
    before: Mapping[str, Any],
    names_by_agent: Mapping[str, str],
    *,
    in_image: bool,
) -> dict[str, Any]:
    """The values of a component after a change of its folder."""
    component = dict(before)
    agents = _agents_by_name(component)
    source = as_object(component.get("blueprint"))
    for key in _BY_FOLDER:
        component.pop(key, None)
    folder = Folder(path)
    blueprint = folder.blueprint()
    blueprints.check(blueprint)
    if source.get("overlay"):
        # the image has the files
        component["blueprint"] = {**source, "inline": blueprint}
        component["blueprint"].pop("configMap", None)
    elif not in_image:
        component["blueprint"] = {"inline": blueprint}
        files = files_of(folder)
        if files:
            component["files"] = files
    entries = _agents(
        folder,
        blueprint,
        names_by_agent,
        agents,
        may_have_agents=in_image,
    )
    if entries:
        component["agents"] = entries
    return component


def _check_mcp_servers(
    folder: Folder, component: Mapping[str, Any], defaults: Mapping[str, Any]
) -> None:
    """Check that the values say where the MCP servers are that the blueprints of a folder name.

    Raises:
        ConfigurationError: The values do not have one of them.
    """
    known = mcp_servers_of(component, defaults)
    if known is None:
        return
    for file in folder.blueprint_files():
        for server in mcp_servers(blueprints.read_source(file)):
            if server in known:
                continue
            name = component_name(folder.path.name)
            entry = (
                f"components.{name}.mcpServers: {{{server}: https://HOST/mcp}}"
            )
            raise ConfigurationError(
                f"The component '{folder.path.name}' needs the MCP server '{server}', which the values do not have.",
                suggestion=did_you_mean(server, known)
                or f"Write '{entry}' into a file of values, and give it with --onto.",
            )


def _kept(
    name: str, before: Mapping[str, Any], after: Mapping[str, Any], number: int
) -> list[dict[str, Any]]:
    """The earlier blueprints of a component, the newest first."""
    kept: dict[str, dict[str, Any]] = {}
    running = inline_blueprint(name, before)
    if running:
        kept[blueprints.digest(running)] = running
    kept |= earlier_blueprints(name, before)
    earlier = list(kept.values())
    current = inline_blueprint(name, after)
    if current:
        kept.pop(blueprints.digest(current), None)
        # a component with another name cannot perform the runs
        earlier = [
            blueprint
            for blueprint in kept.values()
            if blueprint.get("name") == current["name"]
        ]
    newest = earlier[:number]
    size = sum(len(blueprints.to_json(blueprint)) for blueprint in newest)
    if size > MAX_CONFIG_MAP_BYTES:
        raise ConfigurationError(
            f"A ConfigMap cannot hold {len(newest)} earlier blueprints of the component '{name}': "
            f"they have more than {MAX_CONFIG_MAP_BYTES} bytes.",
            suggestion="Keep fewer.",
        )
    return newest


def _check_served(
    components: Mapping[str, Any], defaults: Mapping[str, Any]
) -> None:
    for name, component in components_of({"components": components}).items():
        if not is_served(component, defaults):
            others = [other for other in components if other != name]
            hint = did_you_mean(name, others)
            advice = (
                f"Give its folder or its image, or remove components.{name}."
            )
            raise ConfigurationError(
                f"The component '{name}' has no blueprint and no image of its own.",
                suggestion=f"{hint} {advice}".strip(),
            )


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


def component_name(folder: str) -> str:
    """The name of a folder's component in the values.

    Raises:
        ConfigurationError: There is none.
    """
    name = folder.lower().replace("_", "-").replace(".", "-")
    if not _LABEL.fullmatch(name):
        raise ConfigurationError(
            f"The name of the folder '{folder}' is not valid for a component of the chart.",
            suggestion="Use letters, digits and hyphens, 63 at most.",
        )
    return name


def _agents(
    folder: Folder,
    blueprint: dict[str, Any],
    names_by_agent: Mapping[str, str],
    known_agents: Mapping[str, Any],
    *,
    may_have_agents: bool,
) -> list[Any]:
    """The entries of `agents` for a component, whose image may have the agents that are nowhere else."""
    agents: list[Any] = []
    for source in folder.outside_agents(blueprint):
        agent = source.name
        if agent in known_agents:
            agents.append(known_agents[agent])
        elif agent not in names_by_agent and may_have_agents:
            continue
        elif agent not in names_by_agent:
            raise ConfigurationError(
                f"The component '{folder.path.name}' needs the agent '{agent}', which is not among the folders.",
                suggestion=(
                    f"Give the folder of '{agent}' too, or its image; or a remote, in the values of --onto: "
                    f"components.{component_name(folder.path.name)}.agents: [{{name: {agent}, url: https://HOST}}]."
                ),
            )
        elif names_by_agent[agent] == agent:
            agents.append(agent)
        else:
            agents.append({"name": agent, "component": names_by_agent[agent]})
    return agents


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


def fleets_below(values: Mapping[str, Any]) -> list[str]:
    """The keys with the values of fleets, if the values are of a chart that has this one as a dependency."""
    if "components" in values:
        return []
    return [key for key in values if "components" in as_object(values[key])]


def _invalid_values_error(reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"Invalid chart values: {reason.rstrip('.')}.",
        suggestion="Give the output of `helm get values RELEASE`, or a file for `helm upgrade --values`.",
    )
