"""An API server of Kubernetes' kind, as far as Helm talks to one: it keeps objects, and runs nothing."""

from __future__ import annotations

import copy
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from .conftest import Manifest

KINDS = {
    "v1": ["Namespace", "ConfigMap", "Pod", "Secret", "Service", "ServiceAccount"],
    "apps/v1": ["Deployment", "ReplicaSet"],
    "networking.k8s.io/v1": ["NetworkPolicy"],
    "policy/v1": ["PodDisruptionBudget"],
}
VERSION = {"major": "1", "minor": "34", "gitVersion": "v1.34.0"}


def plural(kind: str) -> str:
    return f"{kind.lower().removesuffix('y')}ies" if kind.endswith("y") else f"{kind.lower()}s"


def discovery(path: str) -> Manifest | None:
    """What the API server tells of itself, by path."""
    groups = {api: dict(zip(("name", "version"), api.split("/"), strict=True)) for api in KINDS if "/" in api}
    pages: dict[str, Manifest] = {
        "/version": VERSION,
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [
            {"name": one["name"], "versions": [version], "preferredVersion": version}
            for api, one in groups.items()
            for version in [{"groupVersion": api, "version": one["version"]}]
        ]},
    }  # fmt: skip
    for api, kinds in KINDS.items():
        resources = [
            {"name": plural(kind), "singularName": kind.lower(), "kind": kind, "namespaced": kind != "Namespace"}
            | {"verbs": ["create", "delete", "get", "list", "patch", "update"]}
            for kind in kinds
        ]
        pages[f"/api{'s' if '/' in api else ''}/{api}"] = {
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api,
            "resources": resources,
        }  # fmt: skip
    return pages.get(path)


def merged(old: Any, patch: Any) -> Any:
    """A merge patch (RFC 7396); of lists, which other patches merge by name, it takes the new one."""
    if not isinstance(patch, dict):
        return patch
    new = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        elif not key.startswith("$"):
            new[key] = merged(new.get(key), value)
    return new


class Cluster(ThreadingHTTPServer):
    """Listens on this machine alone; `objects` are what it keeps, by path, and `written` what was asked of it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.objects: dict[str, Manifest] = {}
        self.written: list[tuple[str, str]] = []
        self.lock = threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def all(self, kind: str, namespace: str = "prod") -> dict[str, Manifest]:
        """The objects of a kind by name, but for what Helm keeps of its own."""
        found = [each for path, each in self.objects.items() if f"/namespaces/{namespace}/{plural(kind)}/" in path]
        return {
            each["metadata"]["name"]: each for each in copy.deepcopy(found) if each.get("type") != "helm.sh/release.v1"
        }


class Handler(BaseHTTPRequestHandler):
    """Answers for a `Cluster`."""

    protocol_version = "HTTP/1.1"
    server: Cluster  # pyright: ignore[reportIncompatibleVariableOverride] - it answers for no other

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if url.path == "/openapi/v2":
            return self._say(200, b"")  # a Swagger document without a schema, in protobuf
        if page := discovery(url.path):
            return self._answer(200, page)
        with self.server.lock:
            if url.path in self.server.objects:
                return self._answer(200, self.server.objects[url.path])
            if (kind := self._kind(url.path)) is None:
                return self._missing()
            wanted = dict(
                one.split("=", 1) for one in parse_qs(url.query).get("labelSelector", [""])[0].split(",") if one
            )
            items = [
                each
                for path, each in self.server.objects.items()
                if path.rpartition("/")[0] == url.path and wanted.items() <= each["metadata"].get("labels", {}).items()
            ]
        return self._answer(200, {"kind": f"{kind[1]}List", "apiVersion": kind[0], "metadata": {}, "items": items})

    def do_POST(self) -> None:
        body, collection = self._body(), urlsplit(self.path).path
        self._keep("POST", f"{collection}/{body['metadata']['name']}", body, 201)

    def do_PUT(self) -> None:
        self._keep("PUT", urlsplit(self.path).path, self._body(), 200)

    def do_PATCH(self) -> None:
        path, body = urlsplit(self.path).path, self._body()
        applied = "apply-patch" in self.headers["content-type"]
        old = self.server.objects.get(path)
        if old is None and not applied:
            return self._missing()
        return self._keep("PATCH", path, body if applied else merged(old, body), 200)

    def do_DELETE(self) -> None:
        self._body()
        path = urlsplit(self.path).path
        with self.server.lock:
            self.server.written.append(("DELETE", path))
            if self.server.objects.pop(path, None) is None:
                return self._missing()
        return self._answer(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})

    def _keep(self, method: str, path: str, body: Manifest, status: int) -> None:
        with self.server.lock:
            self.server.written.append((method, path))
            if method == "POST" and path in self.server.objects:
                self._answer(
                    409,
                    {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "AlreadyExists", "code": 409},
                )
                return
            body["metadata"].setdefault("uid", f"uid-{len(self.server.written)}")
            body["metadata"]["resourceVersion"] = str(len(self.server.written))
            self.server.objects[path] = body
        self._answer(status, body)

    def _kind(self, path: str) -> tuple[str, str] | None:
        last = path.rpartition("/")[2]
        return next(((api, kind) for api, kinds in KINDS.items() for kind in kinds if plural(kind) == last), None)

    def _body(self) -> Any:
        return yaml.safe_load(self.rfile.read(int(self.headers.get("content-length") or 0)))

    def _missing(self) -> None:
        self._answer(
            404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
        )

    def _answer(self, status: int, data: Manifest) -> None:
        self._say(status, json.dumps(data).encode())

    def _say(self, status: int, text: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json" if text else "application/octet-stream")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *words: object) -> None:
        pass
