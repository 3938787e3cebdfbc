"""The values of a large fleet, split into several releases."""

from __future__ import annotations

from typing import Any

import pytest

from podwright.errors import ConfigurationError
from podwright_service.fleet.releases import split


def fleet(**components: Any) -> dict[str, Any]:
    """Values in which each component has the given agents, or the given values."""
    return {
        "defaults": {
            "replicas": 2,
            "networkPolicy": {"from": [{"namespaceSelector": {}}]},
        },
        "components": {
            name: {"agents": values} if isinstance(values, list) else values
            for name, values in components.items()
        },
    }


def names(releases: dict[str, dict[str, Any]]) -> dict[str, list[str]]:
    return {
        release: list(values["components"])
        for release, values in releases.items()
    }


def test_components_that_use_each_other_stay_together() -> None:
    """A release has at most the given number of components; those that use each other are unchanged in one release."""
    values = fleet(
        a=["x"],
        b=["y", {"name": "zed", "component": "z"}],
        c=["x"],
        w={},
        x={},
        y={},
        z={},
    )
    objects = [{"kind": "ConfigMap"}]
    releases = split({**values, "extraObjects": objects}, "big", 4)
    assert [release.get("extraObjects") for release in releases.values()] == [
        objects,
        None,
    ]
    assert names(releases) == {
        "big-1": ["a", "c", "w", "x"],
        "big-2": ["b", "y", "z"],
    }
    for release in releases.values():
        assert release["defaults"] == values["defaults"]
        assert all(
            values["components"][name] == own
            for name, own in release["components"].items()
        )


@pytest.mark.parametrize("size", [1, 2, 3])
def test_more_components_than_a_release_may_have(size: int) -> None:
    """A caller names its agent's release and port, and the agent's network policy allows it besides other peers."""
    outside = {"name": "far", "url": "https://far.example"}
    agent = {"service": {"port": 80}}
    policy = {"networkPolicy": {"enabled": True, "from": []}}
    values = fleet(
        a=["b", {"name": "sea", "component": "c"}, outside],
        b=agent,
        c=policy,
        d=["b"],
    )
    releases = split(values, "big", size)
    assert sorted(
        name for each in names(releases).values() for name in each
    ) == [
        "a",
        "b",
        "c",
        "d",
    ]
    assert max(map(len, names(releases).values())) == size
    release_of = {
        name: release
        for release, each in names(releases).items()
        for name in each
    }
    components = {
        name: own
        for values in releases.values()
        for name, own in values["components"].items()
    }
    b, c, far = components["a"]["agents"]
    assert far == outside
    separate = {
        "name": "b",
        "component": "b",
        "release": release_of["b"],
        "port": 80,
    }
    assert b == ("b" if release_of["a"] == release_of["b"] else separate)
    together = release_of["a"] == release_of["c"]
    assert c == {
        "name": "sea",
        "component": "c",
        **({} if together else {"release": release_of["c"]}),
    }
    for agent, callers, shared in (
        ("b", "ad", [{"namespaceSelector": {}}]),
        ("c", "a", []),
    ):
        peers = [
            {"podSelector": {"matchLabels": {
                "app.kubernetes.io/name": "podwright", "app.kubernetes.io/instance": release_of[caller],
                "app.kubernetes.io/component": caller,
            }}}
            for caller in callers if release_of[caller] != release_of[agent]
        ]  # fmt: skip
        if peers:
            assert components[agent]["networkPolicy"]["from"] == [
                *shared,
                *peers,
            ]
    again = split(releases["big-1"], "small", size)
    assert again == {"small-1": releases["big-1"]}


def test_a_component_that_is_left_out() -> None:
    """A component that is null is in no release, as in the chart."""
    assert names(split(fleet(a=[], b=None), "big", 1)) == {"big-1": ["a"]}


@pytest.mark.parametrize("key", ["fullnameOverride", "nameOverride"])
def test_a_fleet_with_a_name_of_its_own(key: str) -> None:
    """Several releases cannot have one name."""
    with pytest.raises(ConfigurationError, match=key):
        split({**fleet(a=[]), key: "agents"}, "big", 1)
