"""Splits the values of a large fleet into several releases of the chart, because Helm limits the size of a release."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from podwright.data.json_data import as_array, as_object
from podwright.errors import ConfigurationError
from podwright_service.fleet.component_values import components_of

MAX_RELEASE_BYTES = 1_048_576
"""Helm stores a release in a Secret, for which Kubernetes has this limit."""
_CHART_BYTES = 110_000
"""The chart's templates and documentation in such a Secret."""
_COMPONENT_BYTES = 720
"""The manifests of a component, without its blueprint and files."""


def release_bytes(values: Mapping[str, Any]) -> int:
    """About how large Helm's Secret for a release is: the chart, the values, and manifests, which repeat the values."""
    compressed = base64.b64encode(gzip.compress(orjson.dumps(values)))
    return (
        _CHART_BYTES
        + _COMPONENT_BYTES * len(as_object(values.get("components")))
        + 2 * len(compressed)
    )


def split(
    values: Mapping[str, Any], name: str, size: int
) -> dict[str, dict[str, Any]]:
    """The values of several releases by their names, NAME-1, NAME-2 and so on.

    Components that use each other stay in one release, unless they are too many. Then a caller names the release of its
    agent, and the network policy of the agent allows the caller.

    Args:
        values: The values of the fleet.
        name: How the names of the releases begin.
        size: The largest number of components in a release.

    Raises:
        ConfigurationError: The values name the fleet. Each release is a fleet of its own, named after the release.
    """
    for key in ("fullnameOverride", "nameOverride"):
        if values.get(key):
            raise ConfigurationError(
                f"{key}: a fleet of several releases cannot have it, because each release has a name of its own.",
                suggestion=f"Remove {key}.",
            )
    components = {
        component: dict(own) for component, own in components_of(values).items()
    }
    agents = {
        component: [_agent(entry) for entry in as_array(own.get("agents"))]
        for component, own in components.items()
    }
    callers = {
        component: [caller for caller in agents if component in agents[caller]]
        for component in components
    }
    parts: list[list[str]] = []
    for group in _groups(agents, callers):
        for piece in (
            group[start : start + size] for start in range(0, len(group), size)
        ):
            part = next(
                (part for part in parts if len(part) + len(piece) <= size), None
            )
            if part is None:
                parts.append(part := [])
            part += piece
    releases = {
        component: f"{name}-{number}"
        for number, part in enumerate(parts, 1)
        for component in part
    }
    shared_peers = as_object(
        as_object(values.get("defaults")).get("networkPolicy")
    ).get("from")
    for component, own in components.items():
        if agents[component]:
            own["agents"] = [
                _entry(entry, releases[component], releases, components)
                for entry in own["agents"]
            ]
        others = [
            caller
            for caller in callers[component]
            if releases[caller] != releases[component]
        ]
        if others:
            policy = as_object(own.get("networkPolicy"))
            peers = [_peer(releases[caller], caller) for caller in others]
            own["networkPolicy"] = {
                **policy,
                "from": [*as_array(policy.get("from", shared_peers)), *peers],
            }
    result: dict[str, dict[str, Any]] = {}
    for number, part in enumerate(parts, 1):
        release = dict(values)
        release["components"] = {
            name: components[name] for name in sorted(part)
        }
        if number > 1:
            # an object is part of one release only
            release.pop("extraObjects", None)
        result[f"{name}-{number}"] = release
    return result


def _agent(entry: Any) -> str:
    """The component of the same fleet that an entry of `agents` names, or an empty string."""
    if isinstance(entry, str):
        return entry
    if "release" in entry:
        return ""
    return as_object(entry).get("component", "")


def _entry(
    entry: Any,
    release: str,
    releases: Mapping[str, str],
    components: Mapping[str, Mapping[str, Any]],
) -> Any:
    """An entry of `agents` for a component in a release."""
    agent = _agent(entry)
    if releases.get(agent, release) == release:
        return entry
    name = entry
    if not isinstance(entry, str):
        name = entry["name"]
    remote = {
        "name": name,
        "component": agent,
        "release": releases[agent],
    }
    port = as_object(components[agent].get("service")).get("port")
    if port:
        remote["port"] = port
    return remote


def _peer(release: str, component: str) -> dict[str, Any]:
    """The network policy peer for the pods of a component."""
    labels = {
        "app.kubernetes.io/name": "podwright",
        "app.kubernetes.io/instance": release,
        "app.kubernetes.io/component": component,
    }
    return {"podSelector": {"matchLabels": labels}}


def _groups(
    agents: Mapping[str, list[str]], callers: Mapping[str, list[str]]
) -> Iterator[list[str]]:
    """The components that use each other, also through others; the agents of a component are next to each other."""
    seen: set[str] = set()
    for start in agents:
        group: list[str] = []
        pending = [start]
        while pending:
            component = pending.pop()
            if component in agents and component not in seen:
                seen.add(component)
                group.append(component)
                pending += [*callers[component], *reversed(agents[component])]
        if group:
            yield group
