"""Pods without a cluster: podman runs what the chart renders, and this module does the work of a cluster around it.

It requests the probes and stops pods as a kubelet does, replaces them one by one as a Deployment does, and gives
Services names that lead to the pods that are ready. `adapt` lists what podman 4.3 cannot do.
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
from tests.helm.conftest import Manifest
from tests.helpers import until

SCRIPTS = Path(__file__).parent / "pods"
IMAGE = "localhost/component"
PROPAGATION = 0.5
"""Seconds until a Service stops sending connections to a pod that stops; about one in a cluster."""
CONFIGURATION = """
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=20000:20000"]
[network]
network_backend = "netavark"
"""


def adapt(
    spec: Manifest, name: str, secrets: dict[str, Manifest], services: dict[str, str]
) -> tuple[Manifest, dict[str, Manifest]]:
    """A pod's spec as podman can run it, and the entries of podman's store of secrets for it.

    - Podman's DNS loses entries while containers start and stop: Services are known to a pod by `hostAliases`.
    - Volume names are shared by all pods, and so would be `/tmp`: they get the pod's name as a prefix.
    - Secrets in volumes are written undecoded and without `items`, and those of the environment must be JSON: each goes
      into the store in the form that works. `optional` must be set.
    - Container ports would be published on all addresses of the machine, and pods have addresses: they are left out.
    - There is only a liveness probe, with `curl`, which the image does not have: `podwright check` replaces it. The
      other probes, and `preStop`, are done by `Pod` and `Podman`.
    """
    spec, store = copy.deepcopy(spec), dict[str, Manifest]()
    for volume in spec.get("volumes", []):
        volume["name"] = f"{name}-{volume['name']}"
        if source := volume.get("secret"):
            data = secrets[source["secretName"]]["data"]
            files = {item["path"]: base64.b64decode(data[item["key"]]).decode() for item in source.pop("items")}
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

    @property
    def url(self) -> str:
        return f"http://{self.address}:8000"

    def request_probe(self, name: str) -> bool:
        """Whether a request of a probe, such as `liveness`, succeeds."""
        probe = self.spec["containers"][0][f"{name}Probe"]
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"{self.url}{probe['httpGet']['path']}", timeout=probe["timeoutSeconds"]).is_success
        return False

    def passes(self, name: str) -> bool:
        """Whether a probe passes: it fails less often in a row than its threshold."""
        threshold = self.spec["containers"][0][f"{name}Probe"]["failureThreshold"]
        return any(self.request_probe(name) for _ in range(threshold))


class Podman:
    """One namespace on a network, with a store of images and containers of its own."""

    def __init__(self, program: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pods-"))  # short, because the paths of sockets are limited
        self.network = f"pods-{uuid.uuid4().hex[:8]}"
        (self.folder / "containers.conf").write_text(CONFIGURATION)
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
        """The pods of each Deployment that its Service sends connections to."""
        self("network", "create", "--disable-dns", self.network)

    def __call__(
        self, *arguments: str | Path, text: str = "", check: bool = True, stderr: int = subprocess.PIPE
    ) -> str:
        variables = {**os.environ, "CONTAINERS_CONF": f"{self.folder}/containers.conf"}
        done = subprocess.run(
            [*self._command, *arguments], input=text, stdout=subprocess.PIPE, stderr=stderr, text=True, env=variables
        )
        assert not check or done.returncode == 0, f"podman {arguments}\n{done.stdout}{done.stderr}"
        return done.stdout.strip()

    def load(self, docker: str, image: str) -> None:
        """Copy an image from Docker."""
        with subprocess.Popen([docker, "save", image], stdout=subprocess.PIPE) as saved:
            loaded = subprocess.run(
                [*self._command, "load", "--quiet"], stdin=saved.stdout, capture_output=True, text=True
            )
        assert (saved.returncode, loaded.returncode) == (0, 0), loaded.stderr
        self("tag", image, f"{IMAGE}:tested")

    def run(self, name: str, script: str, *arguments: str, options: tuple[str, ...] = ()) -> None:
        """Run one of the scripts in `pods/` under a name that later pods can resolve."""
        mounts = ["--volume", f"{SCRIPTS}:/scripts:ro", "--volume", f"{self.folder}/endpoints:/endpoints:ro"]
        self(
            "run", "--detach", "--name", name, "--network", self.network, *mounts, *options,
            "--entrypoint", "python", f"{IMAGE}:tested", f"/scripts/{script}.py", *arguments,
        )  # fmt: skip
        self._services[name] = self._address(name)
        self._fix_bridge()

    def store(self, manifests: list[Manifest]) -> None:
        """Store the ConfigMaps and Secrets for pods that start later."""
        for kind, stored in (("ConfigMap", self._configs), ("Secret", self._secrets)):
            stored |= {manifest["metadata"]["name"]: manifest for manifest in manifests if manifest["kind"] == kind}

    def _fix_bridge(self) -> None:
        """Give the network's bridge a constant hardware address.

        By default it has the lowest one of its ports, which changes when that pod stops; packets to this machine are
        then lost for minutes. Netavark does this itself since 2024 (containers/netavark#833).
        """
        bridge = json.loads(self("network", "inspect", self.network))[0]["network_interface"]
        number = self.network.removeprefix("pods-")
        address = "06:00:" + ":".join(number[at : at + 2] for at in range(0, 8, 2))
        subprocess.run(["ip", "link", "set", "dev", bridge, "address", address], check=True)

    def serve(self, service: Manifest) -> None:
        """Start a Service, which sends connections to the pods in `pods`."""
        name = service["metadata"]["name"]
        self.pods.setdefault(name, [])
        self._write_endpoints(name)
        self.run(name, "service", f"/endpoints/{name}", "0.0.0.0", "8000")  # noqa: S104 - in a container

    def publish(self, name: str) -> str:
        """Publish a Service on this machine, as an ingress does, and return its URL."""
        command = [sys.executable, SCRIPTS / "service.py", self.folder / "endpoints" / name, "127.0.0.1", "0"]
        self._ingress = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._ingress.stdout is not None
        return f"http://127.0.0.1:{self._ingress.stdout.readline().strip()}"

    def play(self, manifest: Manifest) -> Pod:
        """Start a pod of a Deployment, or a Pod."""
        name = f"{manifest['metadata']['name']}-{next(self._numbers)}"
        is_deployment = manifest["kind"] == "Deployment"
        rendered = manifest["spec"]["template"]["spec"] if is_deployment else manifest["spec"]
        spec, store = adapt(rendered, name, self._secrets, self._services)
        for secret, content in store.items():
            self("secret", "create", secret, "-", text=json.dumps(content))
        renamed = copy.deepcopy(manifest)
        renamed["metadata"]["name"] = name
        if is_deployment:
            renamed["spec"] |= {"replicas": 1, "template": {**renamed["spec"]["template"], "spec": spec}}
        else:
            renamed["spec"] = spec
        configs = [self._configs[each["configMap"]["name"]] for each in spec.get("volumes", []) if "configMap" in each]
        self("kube", "play", "--network", self.network, "-", text=yaml.safe_dump_all([*configs, renamed]))
        pod = f"{name}-pod-0" if is_deployment else name
        infra = json.loads(self("pod", "inspect", pod))["InfraContainerID"]
        return Pod(pod, f"{pod}-{spec['containers'][0]['name']}", self._address(infra), rendered)

    def start(self, deployment: Manifest) -> Pod:
        """Start a pod of a Deployment, wait until it is ready, and add it to its Service."""
        pod = self.play(deployment)
        probe = pod.spec["containers"][0]["startupProbe"]
        until(
            lambda: pod.request_probe("startup") and pod.request_probe("readiness"),
            probe["failureThreshold"] * probe["periodSeconds"],
            lambda: self.logs(pod),
        )
        name = deployment["metadata"]["name"]
        self.pods.setdefault(name, []).append(pod)
        self._write_endpoints(name)
        return pod

    def stop(self, deployment: str, pod: Pod) -> int:
        """Stop a pod as a kubelet does, while its Service removes it a moment later; returns the exit code."""
        lifecycle = pod.spec["containers"][0].get("lifecycle", {})
        delay = lifecycle.get("preStop", {}).get("sleep", {}).get("seconds", 0)
        removal = threading.Timer(PROPAGATION, self._remove, (deployment, pod))
        removal.start()
        time.sleep(delay)
        # the container, because stopping the pod would remove its network at once
        self("stop", "--time", str(pod.spec["terminationGracePeriodSeconds"] - delay), pod.container)
        code = self.state(pod)["ExitCode"]
        removal.join()
        self("pod", "stop", pod.name)
        return code

    def roll(self, deployment: Manifest) -> list[int]:
        """Replace a Deployment's pods one by one, and return the exit codes of the old ones."""
        name = deployment["metadata"]["name"]
        codes = []
        for old in list(self.pods[name]):
            self.start(deployment)
            codes.append(self.stop(name, old))
        return codes

    def logs(self, pod: Pod) -> str:
        """Standard output and standard error of a pod's container."""
        return self("logs", pod.container, stderr=subprocess.STDOUT)

    def _address(self, container: str) -> str:
        return json.loads(self("inspect", container))[0]["NetworkSettings"]["Networks"][self.network]["IPAddress"]

    def state(self, pod: Pod) -> dict[str, Any]:
        return json.loads(self("inspect", pod.container))[0]["State"]

    def _remove(self, deployment: str, pod: Pod) -> None:
        self.pods[deployment].remove(pod)
        self._write_endpoints(deployment)

    def _write_endpoints(self, deployment: str) -> None:
        file = self.folder / "endpoints" / deployment
        file.with_suffix(".new").write_text("\n".join(pod.address for pod in self.pods[deployment]))
        file.with_suffix(".new").replace(file)

    def close(self) -> None:
        """Remove all containers, images and files."""
        if self._ingress is not None:
            with self._ingress:
                self._ingress.terminate()
        self("kill", "--all", check=False)  # removing a pod would wait for its grace period
        self("pod", "rm", "--all", "--force", "--time", "0", check=False)
        self("rm", "--all", "--force", "--time", "0", check=False)
        self("network", "rm", "--force", self.network, check=False)
        self("rmi", "--all", "--force", check=False)
        subprocess.run(["umount", "--recursive", self.folder / "root" / "overlay"], capture_output=True)
        shutil.rmtree(self.folder)
