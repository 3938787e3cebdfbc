"""A Kubernetes API server that stores objects and runs nothing: as much of it as Helm uses."""

from __future__ import annotations

import copy
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml
from tests.helm.conftest import Manifest

KINDS = {
    "v1": ["Namespace", "ConfigMap", "Pod", "Secret", "Service", "ServiceAccount"],
    "apps/v1": ["Deployment", "ReplicaSet"],
    "networking.k8s.io/v1": ["NetworkPolicy"],
    "policy/v1": ["PodDisruptionBudget"],
}
VERBS = ["create", "delete", "get", "list", "patch", "update"]


def plural(kind: str) -> str:
    return f"{kind.lower().removesuffix('y')}ies" if kind.endswith("y") else f"{kind.lower()}s"


def _discovery() -> dict[str, Manifest]:
    """The documents that list groups, versions and kinds, by path."""
    groups = []
    documents: dict[str, Manifest] = {
        "/version": {"major": "1", "minor": "34", "gitVersion": "v1.34.0"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups},
    }
    for api, kinds in KINDS.items():
        group, _, version = api.rpartition("/")
        if group:
            served = {"groupVersion": api, "version": version}
            groups.append({"name": group, "versions": [served], "preferredVersion": served})
        resources = [
            {"name": plural(kind), "singularName": kind.lower(), "kind": kind, "namespaced": kind != "Namespace"}
            | {"verbs": VERBS}
            for kind in kinds
        ]
        documents[f"/api{'s' if group else ''}/{api}"] = {
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api, "resources": resources,
        }  # fmt: skip
    return documents


DISCOVERY = _discovery()


def merge(old: Any, patch: Any) -> Any:
    """Apply a merge patch (RFC 7396). Lists are replaced, although a strategic merge patch merges some by name."""
    if not isinstance(patch, dict):
        return patch
    new = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        elif not key.startswith("$"):
            new[key] = merge(new.get(key), value)
    return new


class Cluster(ThreadingHTTPServer):
    """Listens on the loopback address; `objects` are the stored objects by path."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.objects: dict[str, Manifest] = {}
        self.writes = 0
        self.lock = threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def all(self, kind: str, namespace: str = "prod") -> dict[str, Manifest]:
        """The objects of a kind by name, without the Secrets in which Helm stores releases."""
        folder = f"/namespaces/{namespace}/{plural(kind)}/"
        objects = copy.deepcopy([manifest for path, manifest in self.objects.items() if folder in path])
        return {each["metadata"]["name"]: each for each in objects if each.get("type") != "helm.sh/release.v1"}


class Handler(BaseHTTPRequestHandler):
    """Handles the requests to a `Cluster`."""

    protocol_version = "HTTP/1.1"
    server: Cluster  # pyright: ignore[reportIncompatibleVariableOverride] - it handles no other server's requests

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if url.path == "/openapi/v2":
            return self._send(200, b"")  # an empty document in protobuf
        with self.server.lock:
            if document := DISCOVERY.get(url.path) or self.server.objects.get(url.path):
                return self._respond(200, document)
            collection = url.path.rpartition("/")[2]
            kinds = {plural(kind): (kind, api) for api in KINDS for kind in KINDS[api]}
            if collection not in kinds:
                return self._fail(404, "NotFound")
            kind, api = kinds[collection]
            selector = parse_qs(url.query).get("labelSelector", [""])[0]
            labels = dict(label.split("=", 1) for label in selector.split(",") if label)
            items = [
                manifest
                for path, manifest in self.server.objects.items()
                if path.rpartition("/")[0] == url.path and labels.items() <= manifest["metadata"]["labels"].items()
            ]
        return self._respond(200, {"kind": f"{kind}List", "apiVersion": api, "metadata": {}, "items": items})

    def do_POST(self) -> None:
        body = self._body()
        path = f"{urlsplit(self.path).path}/{body['metadata']['name']}"
        if path in self.server.objects:
            return self._fail(409, "AlreadyExists")
        return self._store(path, body, 201)

    def do_PUT(self) -> None:
        self._store(urlsplit(self.path).path, self._body(), 200)

    def do_PATCH(self) -> None:
        path, body = urlsplit(self.path).path, self._body()
        server_side_apply = "apply-patch" in self.headers["content-type"]
        old = self.server.objects.get(path)
        if old is None and not server_side_apply:
            return self._fail(404, "NotFound")
        return self._store(path, body if server_side_apply else merge(old, body), 200)

    def do_DELETE(self) -> None:
        self._body()
        if self.server.objects.pop(urlsplit(self.path).path, None) is None:
            return self._fail(404, "NotFound")
        return self._respond(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})

    def _store(self, path: str, manifest: Manifest, status: int) -> None:
        with self.server.lock:
            self.server.writes += 1
            manifest["metadata"].setdefault("uid", f"uid-{self.server.writes}")
            manifest["metadata"].setdefault("labels", {})
            manifest["metadata"]["resourceVersion"] = str(self.server.writes)
            self.server.objects[path] = manifest
        self._respond(status, manifest)

    def _body(self) -> Any:
        return yaml.safe_load(self.rfile.read(int(self.headers.get("content-length") or 0)))

    def _fail(self, status: int, reason: str) -> None:
        failure = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": status}
        self._respond(status, failure)

    def _respond(self, status: int, data: Manifest) -> None:
        self._send(status, json.dumps(data).encode())

    def _send(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json" if content else "application/octet-stream")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass
