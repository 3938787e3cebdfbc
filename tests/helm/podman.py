"""Pods without a cluster: `podman kube play` runs what the chart renders, and this does what a cluster does around it.

A kubelet asks the probes and ends pods, a Deployment replaces them one by one, and Services have names and lead to the
pods that are ready. All that podman leaves out, and what has to be changed for it, is in `adapted`.
"""

from __future__ import annotations

import base64
import contextlib
import copy
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from .conftest import Manifest

SCRIPTS = Path(__file__).parent / "pods"
NEWS = 0.5
"""Seconds until a Service has heard that a pod ends; in a cluster it is about one."""
SETTINGS = """
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=20000:20000"]
[network]
network_backend = "netavark"
"""


def adapted(
    spec: Manifest, name: str, secrets: dict[str, Manifest], services: dict[str, str]
) -> tuple[Manifest, dict[str, Manifest]]:
    """A pod's spec as podman 4.3 can run it, and what its store of secrets is to hold.

    - Its DNS forgets what it was asked while containers come and go: Services are known to a pod by `hostAliases`.
    - It names volumes across pods, and would share `/tmp` among them: each gets the pod's name in front.
    - It cannot read a Secret that it has played: where that is a volume it writes the entries undecoded and knows no
      `items`, and for the environment it looks for JSON. So they go into its store in the form that each of the two
      takes. It also falls over a volume that does not say whether its secret is `optional`.
    - It publishes a container's ports on all of the machine's addresses: they are left out, for pods have addresses.
    - It knows the liveness probe only, and asks it with `curl`, which the image does not have: `podwright check` asks.
      The other two, and what comes before SIGTERM, are done here.
    """
    spec, store = copy.deepcopy(spec), dict[str, Manifest]()
    for volume in spec.get("volumes", []):
        volume["name"] = f"{name}-{volume['name']}"
        if source := volume.get("secret"):
            data = secrets[source["secretName"]]["data"]
            files = {each["path"]: base64.b64decode(data[each["key"]]).decode() for each in source.pop("items")}
            source |= {"secretName": f"{name}-{source['secretName']}", "optional": False}
            store[source["secretName"]] = {"kind": "Secret", "data": files}
    for container in spec["containers"]:
        for mount in container.get("volumeMounts", []):
            mount["name"] = f"{name}-{mount['name']}"
        for source in container.get("envFrom", []):
            data = secrets[source["secretRef"]["name"]]["data"]
            source["secretRef"] = {"name": f"{name}-{source['secretRef']['name']}-env"}
            store[source["secretRef"]["name"]] = data
        container.pop("ports", None)
        if probe := container.get("livenessProbe"):
            path = probe.pop("httpGet")["path"]
            probe["exec"] = {"command": ["podwright", "check", f"http://127.0.0.1:8000{path}"]}
    spec["hostAliases"] = [{"ip": address, "hostnames": [service]} for service, address in services.items()]
    return spec, store


@dataclass
class Pod:
    """A pod that runs, or has run."""

    name: str
    container: str
    address: str
    spec: Manifest
    """As the chart renders it."""

    def asked(self, probe: str) -> bool:
        """What one of the container's probes says, asked once, as a kubelet asks it."""
        given = self.spec["containers"][0][f"{probe}Probe"]
        with contextlib.suppress(httpx.TransportError):
            url = f"http://{self.address}:8000{given['httpGet']['path']}"
            return httpx.get(url, timeout=given["timeoutSeconds"]).is_success
        return False

    def passes(self, probe: str) -> bool:
        """Whether a probe passes: it does not fail as often in a row as it may not."""
        return any(self.asked(probe) for _ in range(self.spec["containers"][0][f"{probe}Probe"]["failureThreshold"]))


class Podman:
    """A store of its own for images and containers, a network, and one namespace on it."""

    def __init__(self, program: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pods-"))  # short: sockets lie in it
        self.network = f"pods-{uuid.uuid4().hex[:8]}"
        (self.folder / "containers.conf").write_text(SETTINGS)
        (self.folder / "endpoints").mkdir()
        self._command = [
            program, "--root", f"{self.folder}/root", "--runroot", f"{self.folder}/run", "--cgroup-manager=cgroupfs",
            "--runtime", shutil.which("runc") or "crun", "--network-config-dir", f"{self.folder}/networks",
        ]  # fmt: skip
        self._numbers = itertools.count(1)
        self._configs: dict[str, Manifest] = {}
        self._secrets: dict[str, Manifest] = {}
        self._services: dict[str, str] = {}
        self._ingress: subprocess.Popen[str] | None = None
        self.pods: dict[str, list[Pod]] = {}
        """The pods of each Deployment that requests are sent to."""
        self("network", "create", "--disable-dns", self.network)

    def __call__(self, *words: str | Path, given: str = "", check: bool = True, errors: int = subprocess.PIPE) -> str:
        variables = {**os.environ, "CONTAINERS_CONF": f"{self.folder}/containers.conf"}
        done = subprocess.run(
            [*self._command, *words], input=given, stdout=subprocess.PIPE, stderr=errors, text=True, env=variables
        )
        assert not check or done.returncode == 0, f"podman {' '.join(map(str, words))}\n{done.stdout}{done.stderr}"
        return done.stdout.strip()

    def load(self, docker: str, image: str) -> str:
        """Bring an image from Docker, and give its name here."""
        with subprocess.Popen([docker, "save", image], stdout=subprocess.PIPE) as saved:
            loaded = subprocess.run(
                [*self._command, "load", "--quiet"], stdin=saved.stdout, capture_output=True, text=True
            )
        assert (saved.returncode, loaded.returncode) == (0, 0), loaded.stderr
        self("tag", image, "localhost/component:tested")
        return "localhost/component"

    def run(self, name: str, script: str, *arguments: str, options: tuple[str, ...] = ()) -> None:
        """Run one of the scripts beside this file, under a name that the pods to come know."""
        mounts = ["--volume", f"{SCRIPTS}:/scripts:ro", "--volume", f"{self.folder}/endpoints:/endpoints:ro"]
        self(
            "run", "--detach", "--name", name, "--network", self.network, *mounts, *options,
            "--entrypoint", "python", "localhost/component:tested", f"/scripts/{script}.py", *arguments,
        )  # fmt: skip
        self._services[name] = self._address(name)
        self._fix_bridge()

    def keep(self, manifests: list[Manifest]) -> None:
        """Take the ConfigMaps and Secrets, which pods that start from now on have."""
        for kind, kept in (("ConfigMap", self._configs), ("Secret", self._secrets)):
            kept |= {each["metadata"]["name"]: each for each in manifests if each["kind"] == kind}

    def _fix_bridge(self) -> None:
        """Give the network's bridge an address that stays.

        By default it has the lowest of its ports' addresses, and another one as soon as that pod is gone; what the
        others send to this machine is lost until they ask for it anew, and until TCP tries again: minutes. A netavark
        from 2024 on does this itself (containers/netavark#833).
        """
        bridge = json.loads(self("network", "inspect", self.network))[0]["network_interface"]
        number = self.network.removeprefix("pods-")
        address = "06:00:" + ":".join(number[at : at + 2] for at in range(0, 8, 2))
        subprocess.run(["ip", "link", "set", "dev", bridge, "address", address], check=True)

    def serve(self, service: Manifest) -> None:
        """Give a Service its name; it leads to the pods in `pods`."""
        name = service["metadata"]["name"]
        self.pods.setdefault(name, [])
        self._tell(name)
        self.run(name, "service", f"/endpoints/{name}", "0.0.0.0", "8000")  # noqa: S104 - in a container

    def expose(self, name: str) -> str:
        """Have a Service answer on this machine too, as an ingress does; gives its URL."""
        command = [sys.executable, SCRIPTS / "service.py", self.folder / "endpoints" / name, "127.0.0.1", "0"]
        self._ingress = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._ingress.stdout is not None
        return f"http://127.0.0.1:{self._ingress.stdout.readline().strip()}"

    def play(self, manifest: Manifest) -> Pod:
        """Start a Deployment's pod, or a Pod."""
        name = f"{manifest['metadata']['name']}-{next(self._numbers)}"
        deployment = manifest["kind"] == "Deployment"
        rendered = manifest["spec"]["template"]["spec"] if deployment else manifest["spec"]
        spec, store = adapted(rendered, name, self._secrets, self._services)
        for secret, content in store.items():
            self("secret", "create", secret, "-", given=json.dumps(content))
        named = copy.deepcopy(manifest)
        named["metadata"]["name"] = name
        if deployment:
            named["spec"] |= {"replicas": 1, "template": {**named["spec"]["template"], "spec": spec}}
        else:
            named["spec"] = spec
        used = [self._configs[each["configMap"]["name"]] for each in spec.get("volumes", []) if "configMap" in each]
        self("kube", "play", "--network", self.network, "-", given=yaml.safe_dump_all([*used, named]))
        pod = f"{name}-pod-0" if deployment else name
        infra = json.loads(self("pod", "inspect", pod))["InfraContainerID"]
        return Pod(pod, f"{pod}-{spec['containers'][0]['name']}", self._address(infra), rendered)

    def start(self, deployment: Manifest) -> Pod:
        """Start a pod of a Deployment, wait for its probes, and have its Service know it."""
        pod = self.play(deployment)
        given = pod.spec["containers"][0]["startupProbe"]
        end = time.monotonic() + given["failureThreshold"] * given["periodSeconds"]
        while not (pod.asked("startup") and pod.asked("readiness")):
            assert time.monotonic() < end, f"{pod.name} does not become ready:\n{self.logs(pod)}"
            time.sleep(0.2)
        name = deployment["metadata"]["name"]
        self.pods.setdefault(name, []).append(pod)
        self._tell(name)
        return pod

    def end(self, deployment: str, pod: Pod) -> int:
        """End a pod as a kubelet does, with a Service that hears of it a little later; gives the exit code."""
        lifecycle = pod.spec["containers"][0].get("lifecycle", {})
        before = lifecycle.get("preStop", {}).get("sleep", {}).get("seconds", 0)
        news = threading.Timer(NEWS, self._forget, (deployment, pod))
        news.start()
        time.sleep(before)
        # not the pod: that would take the network away at the same moment
        self("stop", "--time", str(pod.spec["terminationGracePeriodSeconds"] - before), pod.container)
        code = self.state(pod)["ExitCode"]
        news.join()
        self("pod", "stop", pod.name)
        return code

    def roll(self, deployment: Manifest) -> list[int]:
        """Replace a Deployment's pods one by one, a new one first; gives the exit codes of the old ones."""
        name = deployment["metadata"]["name"]
        codes = []
        for old in list(self.pods[name]):
            self.start(deployment)
            codes.append(self.end(name, old))
        return codes

    def logs(self, pod: Pod) -> str:
        """What a pod's container has said, on both its outputs."""
        return self("logs", pod.container, errors=subprocess.STDOUT)

    def _address(self, container: str) -> str:
        return json.loads(self("inspect", container))[0]["NetworkSettings"]["Networks"][self.network]["IPAddress"]

    def state(self, pod: Pod) -> dict[str, Any]:
        return json.loads(self("inspect", pod.container))[0]["State"]

    def _forget(self, deployment: str, pod: Pod) -> None:
        self.pods[deployment].remove(pod)
        self._tell(deployment)

    def _tell(self, deployment: str) -> None:
        file = self.folder / "endpoints" / deployment
        file.with_suffix(".new").write_text("\n".join(pod.address for pod in self.pods[deployment]))
        file.with_suffix(".new").replace(file)

    def close(self) -> None:
        """Take all away."""
        if self._ingress is not None:
            with self._ingress:
                self._ingress.terminate()
        self("kill", "--all", check=False)  # a pod that is removed is given its time first
        self("pod", "rm", "--all", "--force", "--time", "0", check=False)
        self("rm", "--all", "--force", "--time", "0", check=False)
        self("network", "rm", "--force", self.network, check=False)
        self("rmi", "--all", "--force", check=False)
        subprocess.run(["umount", "--recursive", self.folder / "root" / "overlay"], capture_output=True)
        shutil.rmtree(self.folder)
