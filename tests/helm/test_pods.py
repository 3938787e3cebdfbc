"""The newsroom's pods on podman: the workflow runs across them, and no request is lost while pods are replaced."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest
from tests.helm.conftest import CHART, SEEDS, Manifest, decoded, example_values, helm4
from tests.helm.podman import IMAGE, Pod, Podman
from tests.helpers import skip, tool, until
from tests.image_support import Docker

from podwright import blueprints
from podwright_service.testing import Metrics

KEY = "the-key-of-the-provider"
CLIENTS = 12
VALUES: Manifest = {
    **example_values("newsroom"),
    "defaults": {
        "image": {"repository": IMAGE, "tag": "tested"},
        "env": {"OPENAI_BASE_URL": "http://provider:8000/v1"},
        "secrets": {"existing": ["provider"]},
        "drain": {"preStop": 1, "delay": 2, "timeout": 20, "margin": 5},
    },
    "apiKeys": SEEDS,
    "extraObjects": [
        {
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "provider"},
            "data": {"OPENAI_API_KEY": base64.b64encode(KEY.encode()).decode()},
        }
    ],
}  # fmt: skip


class Fleet:
    """The newsroom in pods: one of each component, two of the workflow."""

    def __init__(self, podman: Podman) -> None:
        self.podman = podman
        self.manifests = helm4(VALUES)
        podman.store(self.manifests)
        podman.run("provider", "provider", options=("--env", f"KEY={KEY}", "--env", "DELAY=0.3"))
        for service in self.of("Service"):
            podman.serve(service)
        for deployment in self.of("Deployment"):
            podman.start(deployment)
        podman.start(self.deployment("newsroom"))
        self.url = podman.publish("fleet-newsroom")

    def of(self, kind: str) -> list[Manifest]:
        return [manifest for manifest in self.manifests if manifest["kind"] == kind]

    def deployment(self, component: str) -> Manifest:
        return next(each for each in self.of("Deployment") if each["metadata"]["name"] == f"fleet-{component}")

    def pods(self, component: str) -> list[Pod]:
        return self.podman.pods[f"fleet-{component}"]

    def key(self, component: str, entry: str) -> str:
        secret = next(each for each in self.of("Secret") if each["metadata"]["name"] == f"fleet-{component}-keys")
        return decoded(secret)[entry]

    def get(self, component: str, path: str) -> httpx.Response:
        """The response of a component's first pod."""
        headers = {"authorization": f"Bearer {self.key(component, 'metrics')}"}
        return httpx.get(f"{self.pods(component)[0].url}{path}", headers=headers)

    def runs(self, component: str) -> int:
        """The successful runs in a component's metrics."""
        return int(Metrics(self.get(component, "/metrics").text).get("podwright_runs_total", status="ok"))

    def upgrade(self, changes: Manifest) -> list[str]:
        """Change components, and replace the pods of the Deployments that change; returns their names."""
        values = copy.deepcopy(VALUES)
        for name, change in changes.items():
            values["components"][name] |= change
        before = self.of("Deployment")
        self.manifests = helm4(values)
        self.podman.store(self.manifests)
        changed = [deployment for deployment in self.of("Deployment") if deployment not in before]
        for deployment in changed:
            assert set(self.podman.roll(deployment)) == {0}
        return [deployment["metadata"]["name"] for deployment in changed]


@pytest.fixture(scope="module")
def fleet(docker: Docker, slim: str) -> Iterator[Fleet]:
    program = tool("podman")
    if os.geteuid():
        skip("podman needs root for these tests")
    podman = Podman(program)
    try:
        podman.load(docker.client, slim)
        yield Fleet(podman)
    finally:
        podman.close()


class Load:
    """Clients that run the workflow continuously, each on a connection that is kept open."""

    def __init__(self, fleet: Fleet) -> None:
        self._url, self._key = f"{fleet.url}/run", fleet.key("newsroom", "admin")
        self._done = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run_all()))
        self.responses: Counter[str] = Counter()

    def __enter__(self) -> Load:
        self._thread.start()
        self.wait_for(CLIENTS)
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def wait_for(self, count: int) -> None:
        """Wait for so many more responses."""
        total = self.responses.total() + count
        until(lambda: self.responses.total() >= total, 120, lambda: self.responses)

    async def _run_all(self) -> None:
        await asyncio.gather(*(self._run() for _ in range(CLIENTS)))

    async def _run(self) -> None:
        headers = {"authorization": f"Bearer {self._key}"}
        timeout = aiohttp.ClientTimeout(total=60)
        async with aiohttp.ClientSession(headers=headers, timeout=timeout) as session:
            while not self._done.is_set():
                try:
                    async with session.post(self._url, json={"input": "the moon"}) as response:
                        body = await response.json()
                        outcome = "ok" if response.status == 200 else f"{response.status}: {body['detail']}"
                except (aiohttp.ClientError, TimeoutError) as error:
                    outcome = repr(error)
                self.responses[outcome] += 1


INSPECT = """
import json, os, pathlib
status = dict(line.split(':\\t', 1) for line in open('/proc/self/status') if ':\\t' in line)
def is_writable(folder):
    try:
        pathlib.Path(folder, 'x').write_text('')
    except OSError:
        return False
    return True
def files(folder):
    return {file.name: file.read_text() for file in pathlib.Path(folder).iterdir()}
print(json.dumps({
    'ids': [os.getuid(), os.getgid()],
    'capabilities': [int(status[name], 16) for name in ('CapEff', 'CapBnd', 'CapPrm')],
    'restrictions': [int(status['NoNewPrivs']), int(status['Seccomp'])],
    'writable': list(filter(is_writable, ('/', '/component', '/run/podwright', '/opt/podwright', '/tmp'))),
    'component': files('/component'), 'keys': files('/run/podwright'), 'environment': dict(os.environ),
}))
"""


@pytest.mark.parametrize("name", ["desk", "newsroom", "researcher", "reviewer", "writer"])
def test_containers_are_as_rendered(fleet: Fleet, name: str) -> None:
    """A container has its user, no capabilities, a read-only root, its limits, files, keys and variables."""
    pod = fleet.pods(name)[0]
    inside = json.loads(fleet.podman("exec", pod.container, "python", "-c", INSPECT))
    assert inside["ids"] == [65532, 65532]
    assert (inside["capabilities"], inside["restrictions"]) == ([0, 0, 0], [1, 2])
    assert inside["writable"] == ["/tmp"]  # noqa: S108 - the container's
    config = next(each for each in fleet.of("ConfigMap") if each["metadata"]["name"] == f"fleet-{name}-files")
    assert inside["component"] == config["data"]
    assert inside["keys"]["api-keys"] == fleet.key(name, "api-keys")
    assert inside["environment"]["OPENAI_API_KEY"] == KEY
    variables = {each["name"]: each["value"] for each in pod.spec["containers"][0]["env"]}
    assert variables.items() <= inside["environment"].items()
    host = json.loads(fleet.podman("inspect", pod.container))[0]["HostConfig"]
    assert (host["Memory"], host["NanoCpus"]) == (512 << 20, 1_000_000_000)


def test_probes(fleet: Fleet) -> None:
    """The three probes pass while a pod serves; the liveness probe fails while its process is stopped."""
    for pods in fleet.podman.pods.values():
        for pod in pods:
            assert [probe for probe in ("startup", "liveness", "readiness") if not pod.passes(probe)] == []
    (pod,) = fleet.pods("desk")
    signal = "import os; [os.kill(int(pid), {}) for pid in open('/proc/1/task/1/children').read().split()]"
    fleet.podman("exec", pod.container, "python", "-c", signal.format("19"))
    assert not pod.passes("liveness")
    fleet.podman("exec", pod.container, "python", "-c", signal.format("18"))
    assert pod.passes("liveness")
    fleet.podman("healthcheck", "run", pod.container)


def test_helm_test_runs_the_workflow_across_pods(fleet: Fleet) -> None:
    """The pod of `helm test` reaches the workflow, and the workflow its agents, by their Services and keys."""
    agents = ("researcher", "reviewer", "writer")
    before = Counter({name: fleet.runs(name) for name in agents})
    test = next(each for each in fleet.of("Pod") if each["metadata"]["name"] == "fleet-newsroom-test")
    pod = fleet.podman.play(test)
    code, output = fleet.podman("wait", pod.container), fleet.podman.logs(pod)
    assert code == "0", output
    value = json.loads(output.partition(":\n")[2])
    assert value["writer_output"].startswith("APPROVED: You write for a general newspaper")
    after = Counter({name: fleet.runs(name) for name in agents})
    assert after - before == {"researcher": 1, "reviewer": 2, "writer": 1}


@pytest.mark.parametrize("fault", ["401", "127.0.0.1:1"])
def test_helm_test_reports_failures(fleet: Fleet, tmp_path: Path, fault: str) -> None:
    """The script of `helm test` fails with the status of a rejected request, or with the URL of a missing service."""
    (tmp_path / "key").write_text("an-unknown-key-of-a-caller")
    url = f"{fleet.url}/run" if fault == "401" else "http://127.0.0.1:1/run"
    variables = {"URL": url, "INPUT": "x", "TIMEOUT": "60", "KEY_FILE": str(tmp_path / "key")}
    command = [sys.executable, "-W", "error", CHART / "files" / "run.py"]
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True)
    assert done.returncode == 1
    assert fault in done.stderr


def test_each_key_has_one_purpose(fleet: Fleet) -> None:
    """A caller's key may only run, the key of Prometheus may only read, and another component's key may do nothing."""

    def status(method: str, path: str, key: str, body: Any = None) -> int:
        url = f"{fleet.pods('writer')[0].url}{path}"
        return httpx.request(method, url, headers={"authorization": f"Bearer {key}"}, json=body).status_code

    caller = json.loads(fleet.key("newsroom", "agent-keys"))["writer"]
    keys = (caller, fleet.key("writer", "metrics"), fleet.key("writer", "admin"), fleet.key("newsroom", "admin"))
    assert [status("POST", "/run", key, {"input": "the moon"}) for key in keys] == [200, 403, 200, 401]
    assert [status("GET", "/metrics", key) for key in keys] == [403, 200, 200, 401]


def test_a_changed_blueprint_rolls_out(fleet: Fleet) -> None:
    """A changed blueprint replaces the pods of its component only, and no run under load is lost."""
    blueprint = copy.deepcopy(VALUES["components"]["writer"]["blueprint"]["inline"])
    blueprint["instructions"] = "You write for a local newspaper."
    (old,) = fleet.pods("writer")
    with Load(fleet) as load:
        assert fleet.upgrade({"writer": {"blueprint": {"inline": blueprint}}}) == ["fleet-writer"]
        load.wait_for(2 * CLIENTS)
    assert set(load.responses) == {"ok"}, load.responses
    assert fleet.podman.state(old)["Running"] is False
    info = fleet.get("writer", "/info").json()
    annotations = fleet.deployment("writer")["spec"]["template"]["metadata"]["annotations"]
    assert info["digest"] == annotations["podwright.dev/blueprint-digest"] == blueprints.digest(blueprint)
    assert info["blueprint"]["instructions"] == blueprint["instructions"]


def test_a_drain_loses_no_request(fleet: Fleet) -> None:
    """While both pods of the workflow are replaced under load, every request succeeds."""
    before = [pod.name for pod in fleet.pods("newsroom")]
    with Load(fleet) as load:
        codes = fleet.podman.roll(fleet.deployment("newsroom"))
        load.wait_for(2 * CLIENTS)
    assert codes == [0, 0]
    assert set(load.responses) == {"ok"}, load.responses
    assert load.responses.total() >= 5 * CLIENTS
    assert not set(before) & {pod.name for pod in fleet.pods("newsroom")}
