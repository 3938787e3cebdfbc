"""A Kubernetes cluster with kubectl and Helm, and namespaces of it."""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import os
import shutil
import string
import subprocess
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import httpx
import yaml
from tests.helm.conftest import CHART, Manifest
from tests.helpers import NO_AUTHORITIES, ROOT, tool, until
from tests.image_support import build_postgresql

CLIENT = Path(__file__).parent / "pods" / "client.py"
LOAD = CLIENT.with_name("load.py")
DATABASE = Path(__file__).with_name("database.yaml")
SCRIPT = ROOT / "deploy" / "cluster.sh"
OWN = "/var/lib/podwright-cluster/kubeconfig"
"""The kubeconfig of the cluster that `make cluster` starts."""
MADE = {"app.kubernetes.io/managed-by": "podwright-test"}
"""The label of what the tests make outside of their namespaces, and of these."""
TIMEOUT = 180
"""Seconds until pods must be ready."""

Argument = TypeVar("Argument")
Result = TypeVar("Result")


def side_by_side(
    function: Callable[[Argument], Result], arguments: Iterable[Argument]
) -> list[Result]:
    """The results of a function that mostly waits, called for each argument at the same time."""
    with ThreadPoolExecutor(max_workers=16) as pool:
        return list(pool.map(function, arguments))


class Cluster:
    """A cluster.

    As a context manager it runs `kubectl proxy`, so that a request to the API server needs no process of its own.

    Args:
        config: The path of its kubeconfig.
    """

    def __init__(self, config: str) -> None:
        self.config = config
        built = config == OWN or not shutil.which("kubectl")
        self.client = tool("kubectl") if built else "kubectl"
        # kubectl and Helm are programs in Go: with this, they collect less garbage, and need less CPU
        self._folder = tempfile.TemporaryDirectory()
        self.environment = {
            **os.environ,
            "KUBECONFIG": config,
            # and not in the home folder
            "KUBECACHEDIR": f"{self._folder.name}/cache",
            "GOGC": "400",
        }

    def __enter__(self) -> Cluster:
        socket = f"{self._folder.name}/socket"  # which only this user may open
        command = [
            self.client,
            "proxy",
            f"--unix-socket={socket}",
            "--append-server-path",
        ]
        self._proxy = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=self.environment
        )
        assert self._proxy.stdout is not None
        assert self._proxy.stdout.readline(), "kubectl proxy does not start"
        transport = httpx.HTTPTransport(uds=socket, verify=NO_AUTHORITIES)
        self.api = httpx.Client(
            base_url="http://localhost", transport=transport, timeout=120
        )
        """Sends requests to the API server."""
        return self

    def __exit__(self, *_: object) -> None:
        self.api.close()
        with self._proxy:
            self._proxy.terminate()
        self._folder.cleanup()

    def run(
        self, *command: str | Path, text: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end, with this cluster's kubeconfig."""
        return subprocess.run(
            command,
            input=text,
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=self.environment,
            timeout=900,
        )

    def check(self, *command: str | Path, text: str = "") -> str:
        """The standard output of a program that must succeed."""
        done = self.run(*command, text=text)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def kubectl(self, *arguments: str | Path, text: str = "") -> str:
        return self.check(self.client, *arguments, text=text)

    def helm(self, version: int, *arguments: str | Path, text: str = "") -> str:
        """Run Helm 3 or 4."""
        return self.check(self.find_helm(version), *arguments, text=text)

    @staticmethod
    def find_helm(version: int) -> str:
        return tool("helm3" if version == 3 else "helm")

    def apply(self, manifests: Iterable[Manifest], *options: str) -> None:
        """Create or change objects; unknown and duplicate fields are errors."""
        text = yaml.safe_dump_all(manifests)
        self.kubectl(
            "apply",
            "--server-side",
            "--force-conflicts",
            "--validate=strict",
            "--filename=-",
            *options,
            text=text,
        )

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """A response of the API server, which must be a success."""
        response = self.api.request(method, path, **options)
        assert response.is_success, (
            f"{method} {path}\n{response.status_code} {response.text}"
        )
        return response

    def get(self, path: str, **parameters: str) -> Any:
        """The JSON response of the API server to a GET request."""
        return self.request("GET", path, params=parameters or None).json()

    def ask(
        self, namespace: str, name: str, path: str, /, **parameters: str
    ) -> Any:
        """The JSON response of a Service, `name:port`, requested by the API server."""
        return self.get(
            f"/api/v1/namespaces/{namespace}/services/{name}/proxy{path}",
            **parameters,
        )

    @functools.cached_property
    def _resources(self) -> dict[str, tuple[str, Manifest]]:
        """The path of the group and version, and the description, of each resource by its singular and its plural."""
        accept = {
            "accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        }
        found: dict[str, tuple[str, Manifest]] = {}
        for root in ("/api", "/apis"):
            for group in self.request("GET", root, headers=accept).json()[
                "items"
            ]:
                name = group["metadata"].get("name", "")
                # the preferred one is the first
                for version in group["versions"]:
                    base = "/".join(
                        part
                        for part in (root, name, version["version"])
                        if part
                    )
                    for resource in version.get("resources", []):
                        for each in (
                            resource["resource"],
                            resource["singularResource"],
                        ):
                            found.setdefault(each, (base, resource))
        return found

    def path(self, kind: str, namespace: str) -> str:
        """The path of all objects of a kind, or resource, of a namespace unless they have none."""
        base, resource = self._resources[kind.lower()]
        place = (
            f"/namespaces/{namespace}"
            if resource["scope"] == "Namespaced"
            else ""
        )
        return f"{base}{place}/{resource['resource']}"

    def load(self, *images: str) -> None:
        """Copy images of the Docker engine into the cluster."""
        self.check(SCRIPT, "load", *images)

    def unload(self, *images: str) -> None:
        """Delete images from the cluster."""
        self.check(SCRIPT, "unload", *images)

    def clean(self) -> None:
        """Delete what the tests made in it, also in a run that was interrupted."""
        selector = ",".join(f"{name}={value}" for name, value in MADE.items())
        kinds = "namespaces,clusterrolebindings,nodes,customresourcedefinitions"
        self.kubectl(
            "delete", kinds, f"--selector={selector}", "--ignore-not-found"
        )

    def node_addresses(self) -> list[str]:
        """Return the IP addresses of its nodes, node by node."""
        # a kubelet registers its node with addresses; nodes that tests make have no kubelet, and at first no address
        selector = ",".join(f"{name}!={value}" for name, value in MADE.items())
        nodes = self.get("/api/v1/nodes", labelSelector=selector)
        return [
            address["address"]
            for node in nodes["items"]
            for address in node["status"]["addresses"]
            if address["type"] == "InternalIP"
        ]

    @contextlib.contextmanager
    def second_node(self, *images: str) -> Iterator[bool]:
        """Add a node that has some images for a while; False if the cluster was made elsewhere, whose nodes stay."""
        if self.config != OWN:
            yield False
            return
        try:
            self.check(SCRIPT, "add-node", *images)
            yield True
        finally:
            self.check(SCRIPT, "remove-node")


class Namespace:
    """A namespace that enforces the Pod Security Standard *restricted*.

    Args:
        cluster: Its cluster.
        image: The image of Podwright in the cluster.
    """

    def __init__(self, cluster: Cluster, image: str) -> None:
        self.cluster, self.image, self.name = (
            cluster,
            image,
            f"podwright-test-{uuid.uuid4().hex[:8]}",
        )
        labels = {**MADE, "pod-security.kubernetes.io/enforce": "restricted"}
        cluster.apply(
            [
                {
                    "apiVersion": "v1",
                    "kind": "Namespace",
                    "metadata": {"name": self.name, "labels": labels},
                }
            ]
        )

    def kubectl(self, *arguments: str | Path, text: str = "") -> str:
        return self.cluster.kubectl(
            f"--namespace={self.name}", *arguments, text=text
        )

    def helm(
        self, *arguments: str | Path, version: int = 4, text: str = ""
    ) -> str:
        return self.cluster.helm(
            version, *arguments, f"--namespace={self.name}", text=text
        )

    def values(self, values: Manifest) -> Manifest:
        """The values with the image under test, short delays when pods stop, and little CPU for each pod.

        With the chart's requests, the pods of several tests would not fit on a node of two cores.
        """
        repository, _, tag = self.image.partition(":")
        own = {
            "image": {"repository": repository, "tag": tag},
            "drain": {"preStop": 2, "delay": 2},
            "resources": {"requests": {"cpu": "20m"}},
        }
        return {**values, "defaults": {**own, **values.get("defaults", {})}}

    def install(
        self,
        values: Manifest,
        release: str = "fleet",
        *,
        version: int = 4,
        options: Iterable[str] = (),
    ) -> None:
        """Install or upgrade a release of the chart, and wait until its pods are ready."""
        text = yaml.safe_dump(self.values(values))
        waiting = ("--wait", f"--timeout={TIMEOUT}s")
        self.helm(
            "upgrade",
            "--install",
            release,
            CHART,
            "--values=-",
            *waiting,
            *options,
            version=version,
            text=text,
        )

    def key(
        self, component: str, entry: str = "admin", release: str = "fleet"
    ) -> str:
        """An entry of the Secret with the API keys of a component."""
        return base64.b64decode(
            self.get("secret", f"{release}-{component}-keys")["data"][entry]
        ).decode()

    def objects(self, kind: str, selector: str = "") -> list[Manifest]:
        return self.cluster.get(
            self.cluster.path(kind, self.name), labelSelector=selector
        )["items"]

    def pods(self, component: str, release: str = "fleet") -> list[str]:
        """The names of the pods of a component that are not about to stop."""
        labels = {
            "name": "podwright",
            "instance": release,
            "component": component,
        }
        selector = ",".join(
            f"app.kubernetes.io/{label}={value}"
            for label, value in labels.items()
        )
        found = [pod["metadata"] for pod in self.objects("pods", selector)]
        return [
            metadata["name"]
            for metadata in found
            if "deletionTimestamp" not in metadata
        ]

    def get(self, kind: str, name: str) -> Manifest:
        return self.cluster.get(f"{self.cluster.path(kind, self.name)}/{name}")

    def apply(self, manifests: Iterable[Manifest]) -> None:
        self.cluster.apply(
            [
                each
                | {"metadata": {**each["metadata"], "namespace": self.name}}
                for each in manifests
            ]
        )

    def wait(
        self, condition: str, *objects: str, seconds: int = TIMEOUT
    ) -> None:
        self.kubectl(
            "wait", f"--for={condition}", f"--timeout={seconds}s", *objects
        )

    def wait_for_rollouts(self) -> None:
        """Wait until all Deployments have new pods only, as many as they should have, and all of them are ready."""
        self.kubectl("rollout", "status", "deployment", f"--timeout={TIMEOUT}s")

    def start(
        self,
        name: str,
        command: list[str],
        labels: dict[str, str] | None = None,
        **changes: Any,
    ) -> None:
        """Start a pod with the image under test, and wait until it is ready.

        Args:
            name: The pod's name.
            command: The command of its container.
            labels: Its labels.
            **changes: Further fields of its spec.
        """
        security = {
            "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True,
            "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"},
        }  # fmt: skip
        container = {
            "name": "main", "image": self.image, "command": command, "securityContext": security,
            # a pod without a request gets no CPU while others start
            "resources": {"requests": {"cpu": "50m"}},
        }  # fmt: skip
        # the kernel may drop one of two DNS lookups that are sent at once, and by default a lookup has two attempts
        options = [
            {"name": "single-request-reopen"},
            {"name": "attempts", "value": "5"},
        ]
        spec = {
            "containers": [container], "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": False,
            "dnsConfig": {"options": options},
        }  # fmt: skip
        metadata = {"name": name, "labels": labels or {}}
        self.apply(
            [
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": metadata,
                    "spec": {**spec, **changes},
                }
            ]
        )
        self.wait("condition=Ready", f"pod/{name}")

    def serve(self, name: str, script: Path, port: int = 8000) -> None:
        """Start a pod that runs a script, behind a Service with its name."""
        self.start(name, ["python", "-c", script.read_text()], {"app": name})
        ports = [{"port": port, "targetPort": port}]
        spec = {"selector": {"app": name}, "ports": ports}
        self.apply(
            [
                {
                    "apiVersion": "v1",
                    "kind": "Service",
                    "metadata": {"name": name},
                    "spec": spec,
                }
            ]
        )

    def start_database(self) -> None:
        """Start PostgreSQL, with a Secret `database` that has the URL of its database."""
        text = string.Template(DATABASE.read_text()).substitute(
            image=build_postgresql()
        )
        self.apply(yaml.safe_load_all(text))
        self.wait("condition=Ready", "pod/database")

    def query(self, statement: str) -> list[str]:
        """The lines that PostgreSQL's client prints for a statement."""
        options = (
            "--username=podwright",
            "--tuples-only",
            "--no-align",
            "--command",
        )
        return self.exec("database", "psql", *options, statement).splitlines()

    def exec(self, pod: str, *command: str) -> str:
        return self.kubectl("exec", pod, "--", *command)

    def popen(self, *arguments: str) -> subprocess.Popen[str]:
        """Start kubectl, with pipes."""
        command = [self.cluster.client, f"--namespace={self.name}", *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command,
            stdin=pipe,
            stdout=pipe,
            text=True,
            env=self.cluster.environment,
        )

    def until(
        self, condition: Callable[[], Any], seconds: float = TIMEOUT
    ) -> Any:
        """Poll a condition; a failure reports the namespace's pods and events."""

        def report() -> str:
            events = self.kubectl("get", "events", "--sort-by=.lastTimestamp")
            return f"\n{self.kubectl('get', 'pods', '--output=wide')}\n{events[-4000:]}"

        return until(condition, seconds, report, pause=1)

    def delete(self) -> None:
        self.cluster.kubectl(
            "delete",
            "namespace",
            self.name,
            "--wait=false",
            "--ignore-not-found",
        )


class Client:
    """A pod from which tests send requests.

    Args:
        namespace: The namespace of the pod.
        name: Its name.
    """

    def __init__(self, namespace: Namespace, name: str) -> None:
        self.namespace, self.name = namespace, name
        self._path = (
            f"/api/v1/namespaces/{namespace.name}/pods/{name}:8000/proxy/"
        )

    @classmethod
    def start(
        cls,
        namespace: Namespace,
        name: str = "client",
        labels: Manifest | None = None,
        **changes: Any,
    ) -> Client:
        """Start the pod, with the label `app` and further ones, and changes of its spec."""
        namespace.start(
            name,
            ["python", "-c", CLIENT.read_text()],
            {"app": name, **(labels or {})},
            **changes,
        )
        client, api = cls(namespace, name), namespace.cluster.api
        until(
            lambda: api.get(client._path).is_success,
            TIMEOUT,
            lambda: client._path,
            0.2,
        )
        return client

    def request(
        self,
        method: str,
        url: str,
        key: str = "",
        body: Any = None,
        timeout: float = 60,
        idempotency_key: str = "",
    ) -> tuple[int, Any]:
        """The status and the body of a response, which is JSON or text; the status is 0 if there was none."""
        headers = {
            name: value
            for name, value, given in (
                ("authorization", f"Bearer {key}", key),
                ("idempotency-key", idempotency_key, idempotency_key),
            )
            if given
        }
        ask = {
            "method": method,
            "url": url,
            "headers": headers,
            "body": body,
            "timeout": timeout,
        }
        status, response = self.namespace.cluster.request(
            "POST", self._path, json=ask
        ).json()
        return status, response

    def answer(
        self, method: str, url: str, key: str = "", body: Any = None
    ) -> tuple[int, Any]:
        """A response that says more than that there is none at present.

        In a busy cluster the name server, a Service or the database may be away for a moment. Clients try again then,
        with the same idempotency key, as the documentation tells them to.
        """
        idempotency_key = uuid.uuid4().hex

        def ask() -> tuple[int, Any] | None:
            status, response = self.request(
                method, url, key, body, idempotency_key=idempotency_key
            )
            return None if status in (0, 503) else (status, response)

        return self.namespace.until(ask)


class Load:
    """Clients in a pod that send a request again and again, from the start of the block to its end.

    Args:
        client: The pod.
        urls: Where to.
        key: The API key.
        body: The JSON body.
        clients: How many clients each URL has.
        pause: Seconds between a response and the next request of a client.
    """

    def __init__(
        self,
        client: Client,
        urls: list[str],
        key: str = "",
        body: Any = None,
        clients: int = 1,
        pause: float = 0.1,
    ) -> None:
        self._client = client
        self._ask = {
            "urls": urls,
            "key": key,
            "body": body,
            "clients": clients,
            "pause": pause,
        }
        self.outcomes: dict[str, int] = {}
        """The number of responses: `ok`, or what went wrong."""

    def __enter__(self) -> Load:
        command = (
            "exec",
            "--stdin",
            self._client.name,
            "--",
            "python",
            "-c",
            LOAD.read_text(),
            json.dumps(self._ask),
        )
        self._process = self._client.namespace.popen(*command)
        self._thread = threading.Thread(target=self._read)
        self._thread.start()
        self.wait_for(1)
        return self

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.outcomes = json.loads(line)

    def __exit__(self, *_: object) -> None:
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._thread.join()

    @property
    def total(self) -> int:
        return sum(self.outcomes.values())

    def wait_for(self, count: int) -> None:
        """Wait for so many more responses."""
        total = self.total + count
        seconds = 120 + count / 5
        until(
            lambda: self.total >= total or self._process.poll() is not None,
            seconds,
            lambda: self.outcomes,
            0.2,
        )
        assert self._process.poll() is None, "the clients ended"


def go_modules(name: str, *paths: str) -> dict[str, Path]:
    """The folders of Go modules by path: some or all of those that a module in `deploy/go` requires."""
    command = ["go", "mod", "download", "-json", *paths]
    # `make programs` has downloaded them, and with them the Go that the module needs
    variables = {**os.environ, "GOTOOLCHAIN": "auto", "GOPROXY": "off"}
    done = subprocess.run(
        command,
        cwd=ROOT / "deploy" / "go" / name,
        env=variables,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads("[" + done.stdout.replace("}\n{", "},{") + "]")
    return {module["Path"]: Path(module["Dir"]) for module in found}
