"""A component whose tools are those of an MCP server in a pod, and which is a tool of MCP clients itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cluster.cluster import Client, Namespace
from tests.helm.conftest import Manifest
from tests.mcp_pod import SCRIPT, searcher, tools_lock

from podwright.mcp.lock import LOCK_FILE

PODS = Path(__file__).parent / "pods"
KEY = "the-key-of-the-tools"
PORT = 9000
"""The port of the server in its pod; its Service has another one."""


def start_server(namespace: Namespace, name: str) -> None:
    """Start a pod with the server of tools, behind a Service."""
    command = ["python", "-c", SCRIPT.read_text(), str(PORT), KEY]
    namespace.start(name, command, {"app": name})
    spec = {
        "selector": {"app": name},
        "ports": [{"port": 80, "targetPort": PORT}],
    }
    namespace.apply(
        [
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": name},
                "spec": spec,
            }
        ]
    )


def component(name: str, **server: Any) -> Manifest:
    """The values of a workflow that calls a tool of the server in the pod `tools`."""
    own = {
        "url": "http://tools/mcp",
        "port": PORT,
        "to": [{"podSelector": {"matchLabels": {"app": "tools"}}}],
    }
    return {
        "blueprint": {"inline": searcher(name)},
        "files": {LOCK_FILE: tools_lock().to_text()},
        "mcpServers": {"tools": own | server},
    }


def reached(namespace: Namespace, pod: str, *addresses: str) -> list[str]:
    """The addresses that a pod can connect to."""
    script = (PODS / "reach.py").read_text()
    found = namespace.exec(pod, "python", "-c", script, json.dumps(addresses))
    return json.loads(found)


def test_tools_of_a_server_in_a_pod(
    make_namespace: Callable[..., Namespace], loaded_full: str
) -> None:
    """A component calls its server with the key of a Secret, and reaches no other pod; an MCP client calls it."""
    namespace = make_namespace(loaded_full)
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "tools"},
        "stringData": {"api.key": KEY},
    }
    namespace.apply([secret])
    for name in ("tools", "other"):
        start_server(namespace, name)
    peers = [{"podSelector": {"matchLabels": {"app": "client"}}}]
    with_key = {"keySecret": {"name": "tools", "key": "api.key"}}
    values = {
        "defaults": {
            "test": {"enabled": False},
            "networkPolicy": {"from": peers},
        },
        "components": {
            "line": component("line", **with_key) | {"mcp": {"enabled": True}},
            "keyless": component("keyless"),
        },
    }
    namespace.install(values)
    client = Client.start(namespace)

    def run(name: str) -> Any:
        """What a run answers once its server is reached, which takes until the network policies know all pods."""
        key = namespace.key(name)

        def answer() -> Any:
            status, body = client.request(
                "POST", f"http://fleet-{name}:8000/run", key, {"input": "moon"}
            )
            is_early = status == 0 or "not reachable" in json.dumps(body)
            return None if is_early else (status, body)

        return namespace.until(answer)

    def info(name: str) -> Any:
        url = f"http://fleet-{name}:8000/info"
        return client.answer("GET", url, namespace.key(name))[1]["mcp"]

    assert info("line") == {"tools": None}
    status, body = run("line")
    assert (status, body["found"]) == (200, "Nothing about the moon."), body
    assert info("line") == {"tools": True}
    status, problem = run("keyless")
    assert status == 502, problem
    assert "401" in problem["detail"], problem

    addresses = ("tools:80", "other:80")
    assert reached(namespace, "client", *addresses) == list(addresses)
    (pod,) = namespace.pods("line")
    assert reached(namespace, pod, *addresses) == ["tools:80"]

    script = (PODS / "mcp_client.py").read_text()
    ask = ("exec", "client", "--", "python", "-c", script)
    url = "http://fleet-line:8000/mcp"
    said = namespace.kubectl(*ask, url, namespace.key("line"), "line")
    assert "Nothing about the moon." in said
    off = client.answer(
        "POST", "http://fleet-keyless:8000/mcp", namespace.key("keyless"), {}
    )
    assert off[0] == 404
