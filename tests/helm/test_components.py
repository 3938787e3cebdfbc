"""What a pod finds in its volumes is a component, and what `helm test` runs works against a service."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from tests.ports import free_port

import podwright
from podwright import blueprints

from .conftest import CHART, Helm, Manifest, helm4

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


class Fleet:
    """The newsroom as processes: each with the environment, the files and the keys that its pod is given."""

    def __init__(self, manifests: list[Manifest], at: Path) -> None:
        self._secrets = {
            each["metadata"]["name"]: {key: base64.b64decode(text).decode() for key, text in each["data"].items()}
            for each in manifests
            if each["kind"] == "Secret"
        }
        deployments = [each for each in manifests if each["kind"] == "Deployment"]
        self.urls = {each["metadata"]["name"]: f"http://127.0.0.1:{free_port()}" for each in deployments}
        self._processes = [self._start(each, manifests, at / each["metadata"]["name"]) for each in deployments]

    def key(self, component: str, which: str) -> str:
        return self._secrets[f"fleet-{component}-keys"][which]

    def _start(self, deployment: Manifest, manifests: list[Manifest], at: Path) -> subprocess.Popen[bytes]:
        name = deployment["metadata"]["name"]
        mount(deployment, manifests, at / "component")
        pod = deployment["spec"]["template"]["spec"]
        (keys,) = [each["secret"] for each in pod["volumes"] if each["name"] == "keys"]
        (at / "keys").mkdir()
        for item in keys["items"]:
            (at / "keys" / item["path"]).write_text(self._secrets[keys["secretName"]][item["key"]])
        given = {key: text for key, text in os.environ.items() if not key.startswith("PODWRIGHT_")}
        given |= {
            each["name"]: each["value"].replace("/run/podwright", str(at / "keys"))
            for each in pod["containers"][0]["env"]
        }
        for service, url in self.urls.items():
            given["PODWRIGHT_AGENTS"] = given.get("PODWRIGHT_AGENTS", "{}").replace(f"http://{service}:8000", url)
        given |= {
            "PODWRIGHT_HOST": "127.0.0.1",
            "PODWRIGHT_PORT": self.urls[name].rpartition(":")[2],
            "PODWRIGHT_COMPONENT": str(at / "component"),
            "PODWRIGHT_DRAIN_DELAY": "0",
        }
        return subprocess.Popen(
            [sys.executable, "-c", "from podwright_service.cli import main; main()", "serve"], env=given
        )

    def ready(self) -> None:
        for url in self.urls.values():
            for _ in range(600):
                try:
                    if httpx.get(f"{url}/ready").status_code == 200:
                        break
                except httpx.TransportError:
                    time.sleep(0.1)
            else:
                pytest.fail(f"{url} does not become ready")

    def stop(self) -> None:
        for process in self._processes:
            process.terminate()
        assert [process.wait(60) for process in self._processes] == [0] * len(self._processes)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    values = {**NEWSROOM, "components": {name: one for name, one in NEWSROOM["components"].items() if name != "desk"}}
    started = Fleet(helm4(values), tmp_path_factory.mktemp("fleet"))
    try:
        started.ready()
        yield started
    finally:
        started.stop()


def run(url: str, key: str) -> subprocess.CompletedProcess[str]:
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(key)
        file.flush()
        given = {**os.environ, "URL": f"{url}/run", "INPUT": "the moon", "TIMEOUT": "60", "KEY_FILE": file.name}
        return subprocess.run([sys.executable, "-W", "error", SCRIPT], env=given, capture_output=True, text=True)


def test_the_fleet_answers(fleet: Fleet) -> None:
    """The workflow reaches its agents by the addresses and with the keys of the chart; `helm test` shows its answer."""
    done = run(fleet.urls["fleet-newsroom"], fleet.key("newsroom", "admin"))
    assert done.returncode == 0, done.stderr
    assert {"researcher_output", "reviewer_output", "writer_output"} <= set(json.loads(done.stdout.partition(":\n")[2]))
    for agent in ("researcher", "reviewer", "writer"):
        page = httpx.get(
            f"{fleet.urls[f'fleet-{agent}']}/metrics",
            headers={"authorization": f"Bearer {fleet.key(agent, 'metrics')}"},
        )
        assert re.search(rf'podwright_runs_total{{component="{agent}",kind="agent",status="ok"}} [1-9]', page.text)


def test_keys_open_what_they_are_for(fleet: Fleet) -> None:
    """A caller's key is for runs alone, Prometheus' for reading alone, another component's for nothing."""
    url = fleet.urls["fleet-writer"]

    def status(method: str, path: str, key: str) -> int:
        given = {"authorization": f"Bearer {key}"}
        body = {"input": "the moon"} if method == "POST" else None
        return httpx.request(method, f"{url}{path}", headers=given, timeout=60, json=body).status_code

    caller = json.loads(fleet.key("newsroom", "agent-keys"))["writer"]
    keys = (caller, fleet.key("writer", "metrics"), fleet.key("writer", "admin"), fleet.key("newsroom", "admin"))
    assert [status("POST", "/run", key) for key in keys] == [200, 403, 200, 401]
    assert [status("GET", "/metrics", key) for key in keys] == [403, 200, 200, 401]


def test_helm_test_tells_of_failures(fleet: Fleet) -> None:
    """The test pod fails, and says why, when the service refuses, and when there is none."""
    refused = run(fleet.urls["fleet-writer"], "a-key-that-nobody-knows")
    assert refused.returncode == 1
    assert "answered 401" in refused.stderr
    silent = run("http://127.0.0.1:1", "")
    assert silent.returncode == 1
    assert "cannot be reached" in silent.stderr
