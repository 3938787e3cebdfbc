"""What values add to the pods of a component, in a namespace with the Pod Security Standard *restricted*."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cluster.cluster import Client, Namespace
from tests.helm.conftest import Manifest, example_values

BESIDE = Path(__file__).parent / "pods" / "beside.py"
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}
KEY = "a-key-of-the-far-component"


def beside(namespace: Namespace, name: str, *command: str) -> Manifest:
    """A container with the image under test."""
    return {
        "name": name,
        "image": namespace.image,
        "command": list(command),
        "securityContext": RESTRICTED,
        "resources": {"requests": {"cpu": "10m"}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }


def component(namespace: Namespace) -> Manifest:
    """A workflow over a component that has a key of its own, with containers beside it."""
    serve = ("python", "-m", "http.server", "9000", "--directory", "/data")
    make = ("python", "-c", "open('/data/made', 'w').write('before')")
    wait = ("python", "-c", "import signal; signal.pause()")
    proxy = beside(namespace, "proxy", *serve, "--bind", "127.0.0.1")
    step = {"type": "agent_step", "agent": "far", "name": "far"}
    return {
        "blueprint": {
            "inline": {"type": "Workflow", "name": "near", "steps": [step]}
        },
        "agents": [
            {
                "name": "far",
                "url": "http://fleet-far:8000",
                "keySecret": {"name": "far", "key": "api.key"},
                "to": [
                    {
                        "podSelector": {
                            "matchLabels": {
                                "app.kubernetes.io/component": "far"
                            }
                        }
                    }
                ],
            }
        ],
        "env": {
            "GREETING": "$(TOKEN) on $(NODE)",
            "NODE": {"valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            "TOKEN": {
                "valueFrom": {
                    "secretKeyRef": {"name": "vendor", "key": "token"}
                }
            },
        },
        "envFrom": [{"configMapRef": {"name": "flags"}, "prefix": "FLAG_"}],
        "volumes": {"data": {"mountPath": "/data", "emptyDir": {}}},
        "extraVolumeMounts": [
            {"name": "tmp", "mountPath": "/cache", "subPath": "cache"}
        ],
        "initContainers": [
            beside(namespace, "make", *make),
            {**proxy, "restartPolicy": "Always"},
        ],
        "extraContainers": [beside(namespace, "wait", *wait)],
        "minReadySeconds": 1,
        # Python as the first process ignores SIGTERM
        "drain": {"timeout": 1, "margin": 1},
        "hostAliases": [{"ip": "192.0.2.7", "hostnames": ["models.example"]}],
        "dnsConfig": {"options": [{"name": "ndots", "value": "2"}]},
    }


def config(kind: str, name: str, **entries: str) -> Manifest:
    """A ConfigMap, or a Secret."""
    field = {"ConfigMap": "data", "Secret": "stringData"}[kind]
    metadata = {"name": name}
    return {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": metadata,
        field: entries,
    }


def test_containers_variables_and_a_key_of_the_values(
    make_namespace: Callable[..., Namespace],
) -> None:
    """A component uses what is beside it, and a key that is replaced in its Secret is sent without a restart."""
    namespace = make_namespace()
    namespace.apply(
        [
            config("Secret", "vendor", token="t-1"),
            config("Secret", "far", **{"api.key": "the-key-before-it"}),
            config("ConfigMap", "flags", A="on"),
        ]
    )
    far = example_values("minimal")["components"]["greeter"]
    callers: dict[str, Any] = {
        "app.kubernetes.io/component": "near",
        "app": "client",
    }
    peers = [
        {"podSelector": {"matchLabels": {label: value}}}
        for label, value in callers.items()
    ]
    values = {
        "defaults": {
            "test": {"enabled": False},
            "networkPolicy": {"from": peers[1:]},
        },
        "components": {
            "near": component(namespace),
            "far": far
            | {
                "apiKeys": {"accept": [f"run:{KEY}"]},
                "networkPolicy": {"extraFrom": peers[:1]},
            },
        },
    }
    namespace.install(values)
    (pod,) = namespace.pods("near")
    found = json.loads(namespace.exec(pod, "python", "-c", BESIDE.read_text()))
    node = namespace.get("pod", pod)["spec"]["nodeName"]
    assert found == {
        "variables": {
            "NODE": node, "TOKEN": "t-1", "GREETING": f"t-1 on {node}", "FLAG_A": "on",
        },
        "made": "before",
        "served": "before",
        "cache": True,
    }  # fmt: skip

    client = Client.start(namespace)
    key = namespace.key("near")

    def run() -> tuple[int, Any]:
        return client.request(
            "POST", "http://fleet-near:8000/run", key, {"input": "moon"}
        )

    status, problem = namespace.until(lambda: (one := run())[0] and one)
    assert (status, problem["code"]) == (502, "remote_rejected"), problem
    namespace.apply([config("Secret", "far", **{"api.key": KEY})])
    # the kubelet brings the change into the pod within two minutes
    namespace.until(lambda: run()[0] == 200)
    assert namespace.pods("near") == [pod]
    statuses = namespace.get("pod", pod)["status"]["containerStatuses"]
    assert {each["name"] for each in statuses} == {"component", "wait"}
    assert [each["restartCount"] for each in statuses] == [0, 0]
