"""What a pod finds in its volumes is a component, and what `helm test` runs works against a service."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

import podwright
from podwright import blueprints

from .conftest import CHART, Helm, Manifest

NEWSROOM = yaml.safe_load((CHART / "examples" / "newsroom" / "values.yaml").read_text())
SCRIPT = CHART / "files" / "run.py"


def mount(deployment: Manifest, manifests: list[Manifest], at: Path) -> None:
    """Lay a pod's component volume out as a kubelet does: the files in a folder of their time, and links to them."""
    pod = deployment["spec"]["template"]["spec"]
    (volume,) = [each["configMap"] for each in pod["volumes"] if each["name"] == "component"]
    (data,) = [
        each["data"] for each in manifests if each["kind"] == "ConfigMap" and each["metadata"]["name"] == volume["name"]
    ]
    (at / "..2026_11_21").mkdir(parents=True)
    (at / "..data").symlink_to("..2026_11_21")
    for item in volume["items"]:
        file = at / "..2026_11_21" / item["path"]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(data[item["key"]])
        top = Path(item["path"]).parts[0]
        if not (at / top).is_symlink():
            (at / top).symlink_to(Path("..data") / top)


def test_the_newsroom_s_folders_are_components(helm: Helm, tmp_path: Path) -> None:
    """Each component of the newsroom loads from its volume, answers, and has the digest that is annotated."""
    manifests = helm(NEWSROOM)
    deployments = {
        each["metadata"]["labels"]["app.kubernetes.io/component"]: each
        for each in manifests
        if each["kind"] == "Deployment"
    }
    agents: dict[str, Any] = {}
    for name in ("researcher", "reviewer", "writer", "newsroom", "desk"):
        mount(deployments[name], manifests, tmp_path / name)
        named = {agent: agents[agent] for agent in NEWSROOM["components"][name].get("agents", [])}
        component = podwright.load(tmp_path / name, agents=named, model="offline/echo")
        agents[name] = component
        annotations = deployments[name]["spec"]["template"]["metadata"]["annotations"]
        original = podwright.load(tmp_path / name, agents=named)
        assert annotations["podwright.dev/blueprint-digest"] == blueprints.digest(original.to_blueprint())
        assert component.run("the moon")
    assert "Apollo" in str(agents["researcher"].run("Apollo"))


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    """The address of the newsroom's writer."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder = CHART.parents[1] / "deploy" / "examples" / "newsroom" / "writer"
    environment = {**os.environ, "PODWRIGHT_MODEL": "offline/echo"}
    command = [sys.executable, "-c", "from podwright_service.cli import main; main()", "serve", folder]
    server = subprocess.Popen([*command, "--host", "127.0.0.1", "--port", str(port)], env=environment)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            try:
                if httpx.get(f"{address}/ready").status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.1)
        else:
            pytest.fail("the writer does not become ready")
        yield address
    finally:
        server.terminate()
        server.wait(30)


def run(url: str, text: str = "the moon") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "URL": url, "INPUT": text, "TIMEOUT": "60", "KEY": "a-key-that-nobody-asks-for"}
    return subprocess.run([sys.executable, "-W", "error", SCRIPT], env=environment, capture_output=True, text=True)


def test_helm_test_runs_a_component(served: str) -> None:
    """The test pod's script runs a component, and shows the answer."""
    done = run(f"{served}/run")
    assert done.returncode == 0, done.stderr
    assert '"output": ' in done.stdout
    assert "the moon" in done.stdout


def test_helm_test_tells_of_failures(served: str) -> None:
    """It fails, and says why, when the service refuses, and when there is none."""
    refused = run(f"{served}/nowhere")
    assert refused.returncode == 1
    assert "answered 404" in refused.stderr
    silent = run("http://127.0.0.1:1/run")
    assert silent.returncode == 1
    assert "did not answer" in silent.stderr
