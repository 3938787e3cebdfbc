"""What values add to the pods of a component: containers, variables, volumes, DNS, and keys of agents elsewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.helm.conftest import (
    CHART,
    SEEDS,
    Helm,
    Manifest,
    RenderError,
    by_name,
)
from tests.helm.test_chart import validate
from tests.helm.test_manifests import (
    AGENT,
    deployment,
    environment,
    mounted_keys,
    pod_of,
    volume,
)

from podwright_service.remotes import remotes_of
from podwright_service.settings import Settings

RUNS = {"store": "postgres", "postgres": {"secret": "db"}}
SECRET = {"secretKeyRef": {"name": "vendor", "key": "token"}}


def pods(helm: Helm, **component: Any) -> dict[str, Manifest]:
    """The pods of a component with a database by what they are for, each of which Kubernetes accepts."""
    values = {"components": {"x": {"runs": RUNS, **component}}}
    found: dict[str, Manifest] = {}
    for manifest in helm({**values, "apiKeys": SEEDS}):
        if manifest["kind"] in ("Deployment", "Job"):
            validate(manifest)
            pod = pod_of(manifest)
            found[pod["containers"][0]["name"]] = pod
    return found


def component_in(pod: Manifest) -> Manifest:
    (component,) = [
        each for each in pod["containers"] if each["name"] == "component"
    ]
    return component


def test_every_pod_has_the_fields_of_its_cluster(helm: Helm) -> None:
    """Runtime class, scheduler, DNS and host names are those of the values in the pods of tests and migrations too."""
    fields: Manifest = {
        "runtimeClassName": "gvisor",
        "schedulerName": "1e3",
        "dnsPolicy": "None",
        "dnsConfig": {
            "nameservers": ["192.0.2.53"],
            "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}],
        },
        "hostAliases": [{"ip": "192.0.2.7", "hostnames": ["models.example"]}],
    }
    changed = pods(helm, **fields)
    assert set(changed) == {"component", "migrate", "test"}
    plain = pods(helm)
    for kind, pod in changed.items():
        assert pod == plain[kind] | fields
        assert not set(fields) & set(plain[kind])


def test_a_new_pod_has_to_stay_ready(helm: Helm) -> None:
    """`minReadySeconds` is the Deployment's."""
    patient = deployment(helm, minReadySeconds=20)
    validate(patient)
    assert patient["spec"]["minReadySeconds"] == 20
    assert "minReadySeconds" not in deployment(helm)["spec"]


def test_containers_beside_the_component(helm: Helm) -> None:
    """Containers of the values are in the component's pods as they are, and nowhere else; its own is as before."""
    fetch = {
        "name": "fetch",
        "image": "tools:1",
        "command": ["fetch", "{{ braces }}"],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    proxy = {
        "name": "proxy",
        "image": "proxy:1",
        "restartPolicy": "Always",
        "ports": [{"containerPort": 5432}],
    }
    sidecar = {"name": "sidecar", "image": "sidecar:1", "args": ["on"]}
    volumes = {
        "data": {"emptyDir": {}},
        "model": {"mountPath": "/model", "emptyDir": {}, "subPath": "1e3", "readOnly": False},
    }  # fmt: skip
    own = pods(
        helm,
        initContainers=[fetch, proxy],
        extraContainers=[sidecar],
        volumes=volumes,
    )
    pod = own["component"]
    assert pod["initContainers"] == [fetch, proxy]
    assert [each["name"] for each in pod["containers"]] == [
        "component",
        "sidecar",
    ]
    assert pod["containers"][1] == sidecar
    assert {"name": "data", "emptyDir": {}} in pod["volumes"]
    mounts = component_in(pod)["volumeMounts"]
    assert mounts[-1] == {
        "name": "model", "mountPath": "/model", "subPath": "1e3", "readOnly": False,
    }  # fmt: skip
    assert "data" not in {each["name"] for each in mounts}
    component = component_in(pods(helm, volumes=volumes)["component"])
    assert component_in(pod) == component
    for kind in ("migrate", "test"):
        assert "initContainers" not in own[kind]
        assert len(own[kind]["containers"]) == 1


def test_further_mounts(helm: Helm) -> None:
    """A volume is mounted in several places; the migration has those of its own volumes, without claims and drivers."""
    volumes: Manifest = {
        "ca": {"mountPath": "/ca", "secret": {"secretName": "ca"}},
        "claim": {"persistentVolumeClaim": {"claimName": "claim"}},
        "cache": {"ephemeral": {"volumeClaimTemplate": {"spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
        }}}},
        "vault": {"csi": {"driver": "secrets-store.csi.k8s.io", "readOnly": True}},
        "about": {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
    }  # fmt: skip
    mounts = [
        {"name": name, "mountPath": f"/more/{name}", "subPath": "part"}
        for name in ("tmp", *volumes)
    ]
    own = pods(helm, volumes=volumes, extraVolumeMounts=mounts)
    in_component = component_in(own["component"])["volumeMounts"]
    assert in_component[-len(mounts) :] == mounts
    (migration,) = own["migrate"]["containers"]
    further = [each for each in migration["volumeMounts"] if each in mounts]
    assert {each["name"] for each in further} == {"tmp", "ca", "about"}
    names = {each["name"] for each in own["migrate"]["volumes"]}
    assert names == {"tmp", "keys", "ca", "about"}


@pytest.mark.parametrize("path", ["/run/podwright/", "/data"])
@pytest.mark.parametrize("is_own", [True, False])
def test_two_volumes_at_one_path(
    helm: Helm, path: str, *, is_own: bool
) -> None:
    """Kubernetes would refuse the pod; the error names the value and what has the path."""
    volumes: Manifest = {"data": {"emptyDir": {}, "mountPath": "/data"}}
    component: Manifest = {"volumes": volumes}
    if is_own:
        volumes["own"] = {"emptyDir": {}, "mountPath": path}
        value = r"volumes\.own"
    else:
        mount = {"name": "data", "mountPath": path, "subPath": "part"}
        component["extraVolumeMounts"] = [mount]
        value = r"extraVolumeMounts\[0\]"
    owner = "the chart"
    if path == "/data":
        owner = r"volumes\.data"
    message = rf"components\.x\.{value}.*: {path.rstrip('/')} .*{owner}"
    with pytest.raises(RenderError, match=message):
        pods(helm, **component)


@pytest.mark.parametrize(
    ("path", "component"),
    [
        ("/previous", {"previous": [AGENT]}),
        ("/component", {"files": {"tools.py": ""}}),
        (
            "/component/blueprint.json",
            {"blueprint": {"inline": AGENT, "overlay": True}},
        ),
        ("/runs", {"runs": {"store": "sqlite"}}),
    ],
)
def test_a_path_that_the_chart_has(
    helm: Helm, path: str, component: Manifest
) -> None:
    """A path of the chart is free where the component does not need it."""
    volumes = {"own": {"emptyDir": {}, "mountPath": path}}
    with pytest.raises(RenderError, match=r"volumes\.own\.mountPath: /"):
        pods(helm, **component, volumes=volumes)
    mounts = component_in(pods(helm, volumes=volumes)["component"])
    assert {"name": "own", "mountPath": path, "readOnly": True} in mounts[
        "volumeMounts"
    ]


def test_variables_with_sources(helm: Helm) -> None:
    """Sources are before the values that name them, in the migration too; Secrets and ConfigMaps are added up."""
    env: Manifest = {
        "A_URL": "http://$(Z_TOKEN)@vendor",
        "MANY": 1048576,
        "PODWRIGHT_MODEL_API_KEY": {"valueFrom": SECRET},
        "Z_TOKEN": {"valueFrom": SECRET},
        "NODE": {"valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        "CPUS": {"valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        "FLAG": {
            "valueFrom": {
                "configMapKeyRef": {"name": "f", "key": "k", "optional": True}
            }
        },
    }
    further = [
        {"configMapRef": {"name": "1e3"}, "prefix": "FLAG_"},
        {"secretRef": {"name": "tools", "optional": True}},
    ]
    own = pods(
        helm, env=env, envFrom=further, secrets={"existing": ["provider"]}
    )
    sources = {name for name, value in env.items() if isinstance(value, dict)}
    for container in (*own["component"]["containers"], *own["migrate"]["containers"]):  # fmt: skip
        entries = [
            each
            for each in container["env"]
            if each["name"] != "PODWRIGHT_STATE_KEYS"
        ]
        assert {each["name"] for each in entries[: len(sources)]} == sources
        by_variable = {each.pop("name"): each for each in entries}
        assert {name: by_variable[name] for name in sources} == {
            name: env[name] for name in sources
        }
        assert by_variable["A_URL"] == {"value": env["A_URL"]}
        assert by_variable["MANY"] == {"value": "1048576"}
    assert component_in(own["component"])["envFrom"] == [
        {"secretRef": {"name": "provider"}},
        *further,
    ]
    assert "envFrom" not in own["migrate"]["containers"][0]


def test_exceptions_of_a_proxy_with_a_source(helm: Helm) -> None:
    """The chart adds nothing to hosts that it does not know, and both spellings have them."""
    env = {"HTTPS_PROXY": {"valueFrom": SECRET}, "no_proxy": {"valueFrom": SECRET}}  # fmt: skip
    entries = component_in(pods(helm, env=env)["component"])["env"]
    sources = {each["name"] for each in entries if "valueFrom" in each}
    sources.remove("PODWRIGHT_STATE_KEYS")
    assert sources == {"HTTPS_PROXY", "NO_PROXY", "no_proxy"}


@pytest.mark.parametrize("has_keys", [True, False])
def test_the_key_of_an_agent_elsewhere(
    helm: Helm, has_keys: bool, tmp_path: Path
) -> None:
    """The key in a Secret of the user is a file in the pod, which the service reads; no object of the chart has it."""
    agents: list[Manifest] = [
        {"name": "my far", "url": "https://far.example", "keySecret": {"name": "far", "key": "api.key"}},
        {"name": "near", "url": "https://near.example", "key": "a-key-of-the-values"},
        {"name": "open", "url": "https://open.example"},
    ]  # fmt: skip
    values = {"components": {"x": {"agents": agents[::2]}, "y": {"agents": agents}}}  # fmt: skip
    manifests = by_name(
        helm({**values, "apiKeys": {"enabled": has_keys, **SEEDS}})
    )
    for name in "xy":
        rendered = manifests["Deployment", f"fleet-{name}"]
        validate(rendered)
        assert mounted_keys(rendered)["api.key"] == "agents/my far"
        assert volume(rendered, "keys")["projected"]["sources"][-1] == {
            "secret": {
                "name": "far",
                "items": [{"key": "api.key", "path": "agents/my far"}],
            }
        }
    rendered = manifests["Deployment", "fleet-y"]
    assert mounted_keys(rendered)["agent-keys"] == "podwright_agent_keys"
    variables = environment(rendered)
    files = json.loads(variables["PODWRIGHT_AGENT_KEY_FILES"])
    assert files == {"my far": "/run/podwright/agents/my far"}
    (tmp_path / "my far").write_text("a-key-of-the-secret\n")
    remotes = remotes_of(
        Settings(
            agents=json.loads(variables["PODWRIGHT_AGENTS"]),
            agent_key_files={
                name: file.replace("/run/podwright/agents", str(tmp_path))
                for name, file in files.items()
            },
        )
    )
    assert set(remotes) == {"my far", "near", "open"}


def test_models_by_host_name(helm: Helm) -> None:
    """The README's policy for Cilium selects the pods of all components and no others, and replaces the addresses."""
    readme = (CHART / "README.md").read_text()
    (block,) = [
        block
        for block in re.findall(r"```yaml\n(.*?)```", readme, re.DOTALL)
        if "CiliumNetworkPolicy" in block
    ]
    manifests = helm({**yaml.safe_load(block), "apiKeys": SEEDS})
    (policy,) = [
        each for each in manifests if each["kind"] == "CiliumNetworkPolicy"
    ]
    selector = policy["spec"]["endpointSelector"]["matchLabels"].items()
    for manifest in manifests:
        if manifest["kind"] in ("Deployment", "Job"):
            labels = manifest["spec"]["template"]["metadata"]["labels"]
            is_component = manifest["kind"] == "Deployment"
            assert (selector <= labels.items()) == is_component
        if manifest["kind"] == "NetworkPolicy":
            assert "ipBlock" not in str(manifest["spec"]["egress"])
    assert {"toFQDNs", "toEndpoints"} <= {
        key for rule in policy["spec"]["egress"] for key in rule
    }
