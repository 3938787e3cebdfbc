"""The newsroom as it renders, for real: its pods run on podman, its workflow answers across them, nothing gets lost."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
import os
import re
import shutil
import subprocess
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any

import aiohttp
import httpx
import pytest
import yaml

from podwright import blueprints

from .conftest import CHART, ROOT, Manifest, helm4, missing, tool
from .podman import Pod, Podman

BASE = "python:3.13-slim-trixie"
KEY = "a-vendor-s-key"
CLIENTS = 12
PATIENCE = aiohttp.ClientTimeout(total=60)
"""Seconds that a client waits, who has its answer in one or two."""
VALUES: Manifest = {
    **yaml.safe_load((CHART / "examples" / "newsroom" / "values.yaml").read_text()),
    "defaults": {
        "image": {"repository": "localhost/component", "tag": "tested"},
        "env": {"OPENAI_BASE_URL": "http://vendor:8000/v1"},
        "secrets": {"existing": ["vendor"]},
        "drain": {"preStop": 1, "delay": 2, "timeout": 20, "margin": 5},
    },
    "apiKeys": {"seeds": ["a seed for tests, of 32 characters or more"]},
    "extraObjects": [
        {
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "vendor"},
            "data": {"OPENAI_API_KEY": base64.b64encode(KEY.encode()).decode()},
        }
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def image() -> Iterator[tuple[str, str]]:
    """Docker's client, and the image of components, built by it."""
    found = subprocess.run(["bash", ROOT / "deploy" / "engine.sh", "docker"], capture_output=True, text=True)
    docker, given = found.stdout.strip() or "docker", os.environ.get("COMPONENT_IMAGE")
    if not shutil.which(docker) or subprocess.run([docker, "inspect", given or BASE], capture_output=True).returncode:
        missing(f"a Docker engine that has {given or BASE}; `make engine` brings both")
    if given:
        yield docker, given
        return
    name = f"podwright-pods:{uuid.uuid4().hex[:8]}"
    command = [docker, "build", "--quiet", "--tag", name, "--build-arg", "FLAVOUR=slim", ROOT]
    subprocess.run(command, check=True, capture_output=True)
    yield docker, name
    subprocess.run([docker, "rmi", name], check=True, capture_output=True)


class Fleet:
    """The newsroom in pods: one of each component, two of the workflow."""

    def __init__(self, podman: Podman) -> None:
        self.podman = podman
        self.manifests = helm4(VALUES)
        podman.keep(self.manifests)
        podman.run("vendor", "vendor", options=("--env", f"KEY={KEY}", "--env", "DELAY=0.3"))
        for service in self.of("Service"):
            podman.serve(service)
        for deployment in self.of("Deployment"):
            podman.start(deployment)
        podman.start(self.deployment("newsroom"))
        self.url = podman.expose("fleet-newsroom")

    def of(self, kind: str) -> list[Manifest]:
        return [each for each in self.manifests if each["kind"] == kind]

    def deployment(self, component: str) -> Manifest:
        (found,) = [each for each in self.of("Deployment") if each["metadata"]["name"] == f"fleet-{component}"]
        return found

    def pods(self, component: str) -> list[Pod]:
        return self.podman.pods[f"fleet-{component}"]

    def key(self, component: str, which: str) -> str:
        (keys,) = [each for each in self.of("Secret") if each["metadata"]["name"] == f"fleet-{component}-keys"]
        return base64.b64decode(keys["data"][which]).decode()

    def upgrade(self, change: Manifest) -> list[str]:
        """Have the chart render changed components, and roll what that changes; gives the names of what it rolled."""
        values = copy.deepcopy(VALUES)
        for name, own in change.items():
            values["components"][name] |= own
        before = {each["metadata"]["name"]: each for each in self.of("Deployment")}
        self.manifests = helm4(values)
        self.podman.keep(self.manifests)
        rolled = [each for each in self.of("Deployment") if each != before[each["metadata"]["name"]]]
        for deployment in rolled:
            assert set(self.podman.roll(deployment)) == {0}
        return [each["metadata"]["name"] for each in rolled]

    def run(self) -> dict[str, Any]:
        given = {"authorization": f"Bearer {self.key('newsroom', 'admin')}"}
        answer = httpx.post(f"{self.url}/run", headers=given, json={"input": "the moon"}, timeout=60)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture(scope="module")
def fleet(image: tuple[str, str]) -> Iterator[Fleet]:
    program = tool("podman")
    if os.geteuid():
        missing("podman: only root can run it so")
    podman = Podman(program)
    try:
        podman.load(*image)
        yield Fleet(podman)
    finally:
        podman.close()


class Load:
    """Clients on 127.0.0.1 who run the workflow all the time, each on a connection that it keeps."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._all()))
        self.answers: Counter[str] = Counter()

    def __enter__(self) -> Load:
        self._thread.start()
        self.until(CLIENTS)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def until(self, more: int) -> None:
        """Wait for some more answers."""
        wanted, end = self.answers.total() + more, time.monotonic() + 120
        while self.answers.total() < wanted:
            assert time.monotonic() < end, self.answers
            time.sleep(0.05)

    async def _all(self) -> None:
        await asyncio.gather(*(self._one() for _ in range(CLIENTS)))

    async def _one(self) -> None:
        key = self._fleet.key("newsroom", "admin")
        headers = {"authorization": f"Bearer {key}"}
        async with aiohttp.ClientSession(headers=headers, timeout=PATIENCE) as session:
            while not self._over.is_set():
                try:
                    async with session.post(f"{self._fleet.url}/run", json={"input": "the moon"}) as answer:
                        told = await answer.json()
                        self.answers["ok" if answer.status == 200 else f"{answer.status}: {told['detail']}"] += 1
                except (aiohttp.ClientError, TimeoutError) as error:
                    self.answers[repr(error)] += 1


def test_the_containers_are_as_rendered(fleet: Fleet) -> None:
    """Each container runs as its user without rights, on a read-only root, within its limits, with its files."""
    look = """
import json, os, pathlib
status = dict(line.split(':\\t', 1) for line in open('/proc/self/status') if ':\\t' in line)
def writable(folder):
    try:
        pathlib.Path(folder, 'x').write_text('')
    except OSError:
        return False
    return True
print(json.dumps({
    'ids': [os.getuid(), os.getgid()], 'rights': [int(status[name], 16) for name in ('CapEff', 'CapBnd', 'CapPrm')],
    'closed': [int(status['NoNewPrivs']), int(status['Seccomp'])],
    'writable': list(filter(writable, ('/', '/component', '/run/podwright', '/opt/podwright', '/tmp'))),
    'component': {each.name: each.read_text() for each in pathlib.Path('/component').iterdir()},
    'keys': {each.name: each.read_text() for each in pathlib.Path('/run/podwright').iterdir()},
    'environment': dict(os.environ),
}))
"""
    for name in ("desk", "newsroom", "researcher", "reviewer", "writer"):
        (pod, *_) = fleet.pods(name)
        (container,) = pod.spec["containers"]
        inside = json.loads(fleet.podman("exec", pod.container, "python", "-c", look))
        assert (inside["ids"], inside["rights"], inside["closed"]) == ([65532, 65532], [0, 0, 0], [1, 2])
        assert inside["writable"] == ["/tmp"]  # noqa: S108 - the container's
        (files,) = [each for each in fleet.of("ConfigMap") if each["metadata"]["name"] == f"fleet-{name}-files"]
        assert inside["component"] == files["data"]
        assert inside["keys"]["api-keys"] == fleet.key(name, "api-keys")
        assert inside["environment"]["OPENAI_API_KEY"] == KEY
        assert {each["name"]: each["value"] for each in container["env"]}.items() <= inside["environment"].items()
        host = json.loads(fleet.podman("inspect", pod.container))[0]["HostConfig"]
        assert (host["Memory"], host["NanoCpus"]) == (512 << 20, 1_000_000_000)


def test_probes(fleet: Fleet) -> None:
    """The three probes pass on a pod that serves; of one that hangs, the liveness probe fails."""
    for pods in fleet.podman.pods.values():
        for pod in pods:
            assert [probe for probe in ("startup", "liveness", "readiness") if not pod.passes(probe)] == []
    (pod,) = fleet.pods("desk")
    fleet.podman("healthcheck", "run", pod.container)  # the liveness probe, from within
    signal = "import os; [os.kill(int(one), {}) for one in open('/proc/1/task/1/children').read().split()]"
    fleet.podman("exec", pod.container, "python", "-c", signal.format("19"))
    assert not pod.passes("liveness")
    fleet.podman("exec", pod.container, "python", "-c", signal.format("18"))
    assert pod.passes("liveness")


def test_the_workflow_answers_across_pods(fleet: Fleet) -> None:
    """The pod of `helm test` reaches the workflow by its Service, and that its agents by theirs, with their keys."""
    before = {name: runs(fleet, name) for name in ("researcher", "reviewer", "writer")}
    (test,) = [each for each in fleet.of("Pod") if each["metadata"]["name"] == "fleet-newsroom-test"]
    pod = fleet.podman.play(test)
    code = fleet.podman("wait", pod.container)
    said = fleet.podman.logs(pod)
    assert code == "0", said
    assert said.startswith("http://fleet-newsroom:8000/run completed run ")
    answer = json.loads(said.partition(":\n")[2])
    assert answer["writer_output"].startswith("APPROVED: You write for a general newspaper")
    assert {name: runs(fleet, name) - was for name, was in before.items()} == {
        "researcher": 1, "reviewer": 2, "writer": 1,
    }  # fmt: skip


def runs(fleet: Fleet, component: str) -> int:
    """How many runs of a component went well, by its own count."""
    total = 0
    for pod in fleet.pods(component):
        given = {"authorization": f"Bearer {fleet.key(component, 'metrics')}"}
        page = httpx.get(f"http://{pod.address}:8000/metrics", headers=given).text
        total += sum(int(float(each)) for each in re.findall(r'podwright_runs_total\{.*status="ok"\} (\S+)', page))
    return total


def test_a_changed_blueprint_rolls_out(fleet: Fleet) -> None:
    """A changed blueprint replaces the pods of its component and of no other; of a constant load no run is lost."""
    blueprint = copy.deepcopy(VALUES["components"]["writer"]["blueprint"]["inline"])
    blueprint["instructions"] = "You write for a local newspaper."
    (old,) = fleet.pods("writer")
    with Load(fleet) as load:
        assert fleet.upgrade({"writer": {"blueprint": {"inline": blueprint}}}) == ["fleet-writer"]
        load.until(2 * CLIENTS)
    print(f"{load.answers.total()} runs while a blueprint was rolled out")
    assert set(load.answers) == {"ok"}, load.answers
    assert fleet.podman.state(old)["Running"] is False
    (new,) = fleet.pods("writer")
    given = {"authorization": f"Bearer {fleet.key('writer', 'metrics')}"}
    info = httpx.get(f"http://{new.address}:8000/info", headers=given).json()
    template = fleet.deployment("writer")["spec"]["template"]["metadata"]
    assert info["digest"] == template["annotations"]["podwright.dev/blueprint-digest"] == blueprints.digest(blueprint)
    assert fleet.run()["writer_output"] == "APPROVED: You write for a local newspaper."


def test_a_drain_loses_nothing(fleet: Fleet) -> None:
    """While both pods of the workflow are replaced, with runs under way in each, every request is answered."""
    before = [pod.name for pod in fleet.pods("newsroom")]
    with Load(fleet) as load:
        codes = fleet.podman.roll(fleet.deployment("newsroom"))
        load.until(2 * CLIENTS)
    print(f"{load.answers.total()} runs while 2 pods were replaced")
    assert codes == [0, 0]
    assert set(load.answers) == {"ok"}, load.answers
    assert load.answers.total() >= 5 * CLIENTS
    assert not set(before) & {pod.name for pod in fleet.pods("newsroom")}
