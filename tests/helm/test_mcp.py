"""MCP servers of components, and components as MCP servers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.helm.conftest import SEEDS, Helm, Manifest, RenderError, by_name
from tests.helm.test_chart import validate
from tests.helm.test_manifests import environment, mounted_keys
from tests.helm.test_network import Pod, Policies, pods_of

from podwright_service.mcp_servers import servers_of
from podwright_service.settings import Settings

FILES = {
    "url": "https://files.example:8443/mcp",
    "timeout": 20,
    "headersFromRequest": ["x-tenant"],
    "keySecret": {"name": "files", "key": "api.key"},
    "to": [{"podSelector": {"matchLabels": {"app": "files"}}}],
}


def rendered(
    helm: Helm, component: Manifest, **defaults: Any
) -> dict[tuple[str, str], Manifest]:
    """The manifests of a release with this component, by kind and name."""
    values = {
        "defaults": defaults,
        "components": {"x": component, "y": {}},
        "apiKeys": SEEDS,
    }
    return by_name(helm(values))


def test_the_servers_of_a_component(helm: Helm, tmp_path: Path) -> None:
    """The service reads its servers from the environment, and their keys from files of the user's Secrets."""
    servers = {"files": FILES, "search": "http://search.tools:8080/mcp"}
    manifests = rendered(helm, {"mcpServers": servers})
    deployment = manifests["Deployment", "fleet-x"]
    validate(deployment)
    assert mounted_keys(deployment)["api.key"] == "mcp/files"
    variables = environment(deployment)
    files = json.loads(variables["PODWRIGHT_MCP_KEY_FILES"])
    assert files == {"files": "/run/podwright/mcp/files"}
    (tmp_path / "files").write_text("a-key-of-the-secret\n")
    read = servers_of(
        Settings(
            mcp_servers=json.loads(variables["PODWRIGHT_MCP_SERVERS"]),
            mcp_key_files={"files": str(tmp_path / "files")},
        )
    )
    assert set(read) == {"files", "search"}
    assert read["files"].timeout == 20
    assert tuple(read["files"].headers_from_request) == ("x-tenant",)
    others = environment(manifests["Deployment", "fleet-y"])
    assert not [name for name in others if "MCP" in name]


def test_only_its_servers_are_reached(helm: Helm) -> None:
    """The network policy of a component allows its servers at their ports; that of another one does not."""
    manifests = rendered(helm, {"mcpServers": {"files": FILES}})
    policies = Policies(list(manifests.values()))
    components, _ = pods_of(list(manifests.values()))
    files = Pod("files", "prod", {"app": "files"})
    assert policies.allow_side("Egress", components["x"], files, 8443)
    assert not policies.allow_side("Egress", components["x"], files, 8000)
    assert not policies.allow_side("Egress", components["y"], files, 8443)
    behind = rendered(helm, {"mcpServers": {"files": {**FILES, "port": 8000}}})
    policies = Policies(list(behind.values()))
    assert policies.allow_side("Egress", components["x"], files, 8000)


def test_defaults(helm: Helm) -> None:
    """A component's own server replaces one of the defaults as a whole, with its key; null removes it."""
    both = {"files": FILES, "search": "http://search.tools:8080/mcp"}
    own = {"files": {"url": "https://other.example/mcp"}, "search": None}
    manifests = rendered(helm, {"mcpServers": own}, mcpServers=both)
    variables = environment(manifests["Deployment", "fleet-x"])
    assert json.loads(variables["PODWRIGHT_MCP_SERVERS"]) == {
        "files": {"url": "https://other.example/mcp"}
    }
    assert "PODWRIGHT_MCP_KEY_FILES" not in variables
    inherited = environment(manifests["Deployment", "fleet-y"])
    assert set(json.loads(inherited["PODWRIGHT_MCP_SERVERS"])) == set(both)
    none = rendered(helm, {"mcpServers": None}, mcpServers=both)
    assert "PODWRIGHT_MCP_SERVERS" not in environment(
        none["Deployment", "fleet-x"]
    )


def test_a_component_as_a_server(helm: Helm) -> None:
    """The value turns the route on, and the ingress and the route have its path."""
    outside = {
        "ingress": {"enabled": True, "hosts": ["x.example"]},
        "httpRoute": {"enabled": True, "parentRefs": [{"name": "gateway"}]},
    }
    on = rendered(helm, {"mcp": {"enabled": True}, **outside})
    assert environment(on["Deployment", "fleet-x"])["PODWRIGHT_MCP"] == "true"
    assert "/mcp" in json.dumps(on["Ingress", "fleet-x"])
    assert "/mcp" in json.dumps(on["HTTPRoute", "fleet-x"])
    off = rendered(helm, outside)
    assert "PODWRIGHT_MCP" not in environment(off["Deployment", "fleet-x"])
    assert "/mcp" not in json.dumps(off["Ingress", "fleet-x"])


@pytest.mark.parametrize(
    "component",
    [
        {"mcpServers": {"files": "http://files/mcp"}},
        {"mcp": {"enabled": True}},
    ],
)
def test_an_image_without_the_package(helm: Helm, component: Manifest) -> None:
    """A component with MCP and the image `slim` is refused."""
    with pytest.raises(RenderError, match="flavour full"):
        rendered(helm, {**component, "image": {"tag": "slim"}})


@pytest.mark.parametrize(
    "server",
    [
        "files:8080",
        "https://user@files/mcp",
        {"timeout": 3},
        {"url": "http://files/mcp", "timeout": 0},
        {"url": "http://files/mcp", "header": "x"},
        {"url": "http://files/mcp", "headersFromRequest": ["a b"]},
    ],
)
def test_invalid_servers(helm: Helm, server: object) -> None:
    """What is not a server is refused by the schema."""
    with pytest.raises(RenderError, match="mcpServers"):
        rendered(helm, {"mcpServers": {"files": server}})
