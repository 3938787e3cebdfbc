"""The chart: what it renders, on both Helms, is what Kubernetes takes and what the values say."""

from __future__ import annotations

import base64
import functools
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import helm_python
import jsonschema
import kubernetes_validate
import pytest
import yaml
from kubernetes_validate.utils import all_versions, schema_contents
from packaging.version import Version
from referencing import Registry, Resource

from podwright import __version__, blueprints
from podwright_service.settings import Settings, read_settings

from .conftest import CHART, ROOT, Helm, Manifest, RefusedError, helm3, helm4, tool
from .test_custom_resources import KINDS as CUSTOM

EXAMPLES = sorted(path.parent.name for path in CHART.glob("examples/*/values.yaml"))
OLDEST = (yaml.safe_load((CHART / "Chart.yaml").read_text())["kubeVersion"]).removeprefix(">=").removesuffix(".0-0")
NEWEST = kubernetes_validate.latest_version().rpartition(".")[0]
SEEDS = {"seeds": ["a seed for tests, of 32 characters or more"]}

each_example = pytest.mark.parametrize("example", EXAMPLES)


@functools.cache
def rendered(example: str) -> list[Manifest]:
    """What an example renders to, which takes seconds for the largest; for tests that only look."""
    return helm4(values(example))


def values(example: str) -> Manifest:
    return yaml.safe_load((CHART / "examples" / example / "values.yaml").read_text())


def agent(name: str = "writer", **more: Any) -> Manifest:
    blueprint = {
        "type": "Agent", "name": name, "instructions": "Write.", "config": {"model": "offline/echo"}, "tools": [],
    }  # fmt: skip
    return {"blueprint": {"inline": blueprint}, **more}


def by_name(manifests: list[Manifest]) -> dict[tuple[str, str], Manifest]:
    found = {(one["kind"], one["metadata"]["name"]): one for one in manifests}
    assert len(found) == len(manifests), "two objects have one name"
    return found


def one(helm: Helm, kind: str, **component: Any) -> Manifest:
    """The object of a kind that a component renders to."""
    found = by_name(helm({"components": {"x": component}, "apiKeys": SEEDS}))
    return found[kind, "fleet-x"]


def environment(deployment: Manifest) -> dict[str, Any]:
    return {each["name"]: each["value"] for each in container(deployment)["env"]}


def container(deployment: Manifest) -> Manifest:
    return deployment["spec"]["template"]["spec"]["containers"][0]


def opened(secret: Manifest) -> dict[str, str]:
    return {key: base64.b64decode(text).decode() for key, text in secret["data"].items()}


def test_lint_helm4() -> None:
    """Helm 4 has nothing to say against the chart, with any example's values."""
    for example in EXAMPLES:
        report = helm_python.lint(CHART, values(example), strict=True, namespace="prod")
        assert [message for message in report["messages"] if message["severity"] > 1] == [], example
        assert report["errors"] == []


def test_lint_helm3() -> None:
    """Helm 3 has nothing to say against it either."""
    program = tool("helm3")
    for example in EXAMPLES:
        file = CHART / "examples" / example / "values.yaml"
        done = subprocess.run([program, "lint", "--strict", CHART, "--values", file], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout
        assert "[WARNING]" not in done.stdout + done.stderr


@each_example
def test_both_helms_agree(example: str) -> None:
    """Helm 3 and Helm 4 render the same."""
    given = {"apiKeys": SEEDS, **values(example)}
    assert by_name(helm3(tool("helm3"))(given)) == by_name(helm4(given))


def test_what_is_made_is_up_to_date() -> None:
    """The README, the copies of the observability files, the made examples and the renders are those of today."""
    done = subprocess.run([sys.executable, ROOT / "deploy" / "chart.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@functools.cache
def _validator(version: str, api: str, kind: str) -> Any:
    group = re.sub(r"(\.[^/]*)?/", "-", api)
    folder = f"kubernetes-json-schema/v{version}-local-strict"
    definitions = Resource.from_contents(_definitions(version))
    schema = Resource.from_contents(schema_contents(f"{folder}/{kind.lower()}-{group}.json", version))
    registry = schema @ (definitions @ Registry())
    return jsonschema.Draft202012Validator(schema.contents, registry=registry)


@functools.cache
def _definitions(version: str) -> Any:
    return schema_contents(f"kubernetes-json-schema/v{version}-local-strict/_definitions.json", version)


def validate(manifest: Manifest, version: str) -> None:
    name = next(each for each in all_versions() if each.startswith(f"{version}."))
    _validator(name, manifest["apiVersion"], manifest["kind"]).validate(manifest)


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@each_example
def test_kubernetes_takes_it(example: str, version: str) -> None:
    """Every object of every example is valid for the oldest and the newest Kubernetes, unknown fields refused."""
    assert Version(version) >= Version("1.30")
    manifests = rendered(example)
    assert manifests
    for manifest in manifests:
        if manifest["apiVersion"] not in CUSTOM:
            validate(manifest, version)
        assert manifest["metadata"]["namespace"] == "prod"


def test_the_validation_sees_faults() -> None:
    """A field that does not exist is found."""
    manifest = one(helm4, "Deployment")
    validate(manifest, OLDEST)
    manifest["spec"]["bogus"] = 1
    with pytest.raises(jsonschema.ValidationError, match="bogus"):
        validate(manifest, OLDEST)


def test_custom_resources_are_all_shown() -> None:
    """The production example has an object of every kind that the chart can render."""
    shown = {each["kind"] for each in rendered("production")}
    able = {
        line.split()[1]
        for file in CHART.glob("templates/**/*.yaml")
        for line in file.read_text().splitlines()
        if line.startswith("kind: ")
    }
    assert able <= shown


def test_an_older_kubernetes_is_refused() -> None:
    """A cluster without the `sleep` of preStop is told of before anything is installed."""
    done = subprocess.run(
        [tool("helm3"), "template", "fleet", CHART, "--kube-version", "1.29.0"], capture_output=True, text=True
    )
    assert done.returncode != 0
    assert "kubeVersion: >=1.30.0-0" in done.stderr


BAD = {
    "unknown key": ({"components": {"x": {"replica": 1}}}, ["x", "replica"]),
    "unknown key below": ({"components": {"x": {"probes": {"startup": {"path": "/"}}}}}, ["startup", "path"]),
    "unknown at the top": ({"component": {}}, ["component"]),
    "unknown in defaults": ({"defaults": {"imagePullPolicy": "Always"}}, ["defaults", "imagePullPolicy"]),
    "text for a number": ({"components": {"x": {"replicas": "2"}}}, ["x", "replicas"]),
    "negative": ({"components": {"x": {"replicas": -1}}}, ["x", "replicas"]),
    "no list": ({"components": {"x": {"agents": "y"}}}, ["x", "agents"]),
    "no such agent": ({"components": {"x": {"agents": ["y"]}}}, ["x.agents", "unknown component y", "has x"]),
    "agent twice": ({"components": {"x": {"agents": ["x", "x"]}}}, ["components.x.agents", "twice"]),
    "agent by no URL": ({"components": {"x": {"agents": [{"name": "y", "url": "y:80"}]}}}, ["x", "agents", "0"]),
    "name": ({"components": {"Big_One": {}}}, ["components", "Big_One"]),
    "long name": ({"components": {"x" * 60: {}}}, ["components.xxx", "63"]),
    "setting": ({"components": {"x": {"settings": {"max_run": 1}}}}, ["settings", "max_run"]),
    "setting's value": ({"components": {"x": {"settings": {"log_level": "loud"}}}}, ["settings", "log_level"]),
    "service's variable": ({"components": {"x": {"env": {"PODWRIGHT_PORT": 1}}}}, ["env", "PODWRIGHT_PORT"]),
    "metrics outside": ({"components": {"x": {"ingress": {"paths": ["/metrics"]}}}}, ["ingress", "paths", "0"]),
    "volume's name": ({"components": {"x": {"volumes": {"tmp": {"mountPath": "/t"}}}}}, ["components.x.volumes.tmp"]),
    "hostPath": (
        {"components": {"x": {"volumes": {"h": {"mountPath": "/h", "hostPath": {}}}}}},
        ["volumes", "hostPath"],
    ),
    "root": ({"components": {"x": {"user": {"runAsUser": 0}}}}, ["user", "runAsUser"]),
    "scaling": ({"components": {"x": {"autoscaling": {"type": "both"}}}}, ["autoscaling", "type"]),
    "hpa to zero": (
        {"components": {"x": {"autoscaling": {"type": "hpa", "min": 0}}}},
        ["components.x.autoscaling.min"],
    ),
    "hpa by nothing": (
        {"components": {"x": {"autoscaling": {"type": "hpa", "cpu": None}}}},
        ["components.x.autoscaling"],
    ),
    "keda without": (
        {"components": {"x": {"autoscaling": {"type": "keda"}}}},
        ["components.x.autoscaling.keda.prometheus"],
    ),
    "keda to zero": (
        {"components": {"x": {"autoscaling": {"type": "keda", "min": 0, "keda": {"prometheus": "http://p"}}}}},
        ["components.x.autoscaling.keda.query"],
    ),
    "ingress": ({"components": {"x": {"ingress": {"enabled": True}}}}, ["components.x.ingress.hosts"]),
    "route": ({"components": {"x": {"httpRoute": {"enabled": True}}}}, ["components.x.httpRoute.parentRefs"]),
    "store": ({"components": {"x": {"secrets": {"external": {"enabled": True}}}}}, ["components.x.secrets.external"]),
    "no JSON": ({"components": {"x": {"blueprint": {"inline": "{,"}}}}, ["components.x.blueprint.inline"]),
    "two sources": (
        {"components": {"x": {"blueprint": {"configMap": "c"}, "files": {"tools.py": ""}}}},
        ["components.x.blueprint.configMap"],
    ),
    "files beside an image's": ({"components": {"x": {"filesFrom": ["tools"]}}}, ["components.x.filesFrom"]),
    "a path that is another's key": (
        {"components": {"x": {"files": {"agents/y.json": "", "agents..y.json": ""}}}},
        ["files", "agents..y.json"],
    ),
    "path outside": ({"components": {"x": {"files": {"../etc/passwd": ""}}}}, ["files", "../etc/passwd"]),
    "short seed": ({"apiKeys": {"seeds": ["short"]}}, ["seeds", "0"]),
    "short key": ({"components": {"x": {"apiKeys": {"accept": ["run:short"]}}}}, ["accept", "0"]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_values_are_named(helm: Helm, case: str) -> None:
    """A wrong value stops the rendering, and the error names it."""
    given, said = BAD[case]
    with pytest.raises(RefusedError) as caught:
        helm(given)
    assert [words for words in said if words not in str(caught.value)] == [], caught.value


def test_a_release_that_begins_with_a_digit(helm: Helm) -> None:
    """A Service's name begins with a letter, so such a release is refused before a cluster does it."""
    with pytest.raises(RefusedError, match="does not begin with a letter"):
        helm({"components": {"x": {}}}, "7up")


def closed(schema: Any, at: str = "") -> Iterator[str]:
    """The places of objects that take any key."""
    if isinstance(schema, dict):
        if schema.get("type") in ("object", ["object", "null"]) and "additionalProperties" not in schema:
            yield at
        for key, below in schema.items():
            yield from closed(below, f"{at}/{key}")
    elif isinstance(schema, list):
        for number, below in enumerate(schema):
            yield from closed(below, f"{at}/{number}")


def test_the_schema_is_closed() -> None:
    """Objects take known keys only; those of Kubernetes' own shapes are Kubernetes' to check."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    free = {place.rpartition("/properties/")[2].removesuffix("/items") for place in closed(schema)}
    assert free == {
        "affinity", "behavior", "configMap", "dns", "egress", "emptyDir", "extraObjects", "from", "global",
        "parentRefs", "persistentVolumeClaim", "projected", "secret", "to", "tolerations",
    }  # fmt: skip
    written = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(written) == set(schema["properties"]) - {"global"}
    assert set(written["defaults"]) == set(schema["definitions"]["component"]["properties"])


def test_settings_are_the_service_s() -> None:
    """Every setting of the service can be given, but those that the chart gives itself."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    known = set(schema["definitions"]["component"]["properties"]["settings"]["properties"])
    own = {
        "component", "model", "host", "port", "drain_delay", "shutdown_timeout", "api_keys", "api_keys_file", "agents",
        "agents_file", "agent_keys", "secrets_dir",
    }  # fmt: skip
    of_the_library = {"model_client", "model_base_url", "prices", "trust_env"}
    assert known == set(Settings.model_fields) - own | of_the_library


def test_zero_and_false_stay(helm: Helm) -> None:
    """0, false and an empty list in a component overrule the defaults, and large numbers are written out."""
    manifests = helm(
        {
            "defaults": {"settings": {"max_runs": 7, "log_content": True, "run_cost": 1}, "env": {"A": "a", "B": "b"}},
            "apiKeys": {"enabled": False},
            "components": {
                "x": {
                    "replicas": 0,
                    "settings": {
                        "max_waiting": 0, "log_content": False, "run_cost": 0, "max_runs": None,
                        "max_body_bytes": 1048576, "run_wall_time": 0.5, "allowed_models": ["a/b", "c/d"],
                    },
                    "env": {"A": None, "ZERO": 0, "NO": False, "EMPTY": "", "MANY": 100000000},
                    "drain": {"preStop": 0, "delay": 0, "margin": 0},
                    "podDisruptionBudget": {"maxUnavailable": 0},
                    "probes": {"startup": {"initialDelaySeconds": 0}},
                    "networkPolicy": {"models": []},
                    "topologySpread": [],
                    "resources": {"limits": {"cpu": None}},
                    "test": {"enabled": False},
                }
            },
        }
    )  # fmt: skip
    found = by_name(manifests)
    deployment = found["Deployment", "fleet-x"]
    pod = deployment["spec"]["template"]["spec"]
    assert deployment["spec"]["replicas"] == 0
    assert environment(deployment) == {
        "B": "b", "ZERO": "0", "NO": "false", "EMPTY": "", "MANY": "100000000",
        "PODWRIGHT_PORT": "8000", "PODWRIGHT_DRAIN_DELAY": "0", "PODWRIGHT_SHUTDOWN_TIMEOUT": "30",
        "PODWRIGHT_MAX_WAITING": "0", "PODWRIGHT_LOG_CONTENT": "false", "PODWRIGHT_RUN_COST": "0",
        "PODWRIGHT_MAX_BODY_BYTES": "1048576", "PODWRIGHT_RUN_WALL_TIME": "0.5", "PODWRIGHT_ALLOWED_MODELS": "a/b,c/d",
    }  # fmt: skip
    assert pod["terminationGracePeriodSeconds"] == 30
    assert "lifecycle" not in container(deployment)
    assert container(deployment)["startupProbe"]["initialDelaySeconds"] == 0
    assert container(deployment)["resources"]["limits"] == {"memory": "512Mi"}
    assert "topologySpreadConstraints" not in pod
    assert found["PodDisruptionBudget", "fleet-x"]["spec"]["maxUnavailable"] == 0
    assert not [rule for rule in found["NetworkPolicy", "fleet-x"]["spec"]["egress"] if "ipBlock" in str(rule)]
    assert {kind for kind, _ in found} == {
        "Deployment", "NetworkPolicy", "PodDisruptionBudget", "Service", "ServiceAccount",
    }  # fmt: skip


def test_the_service_takes_its_environment(helm: Helm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What the pods are given are settings that the service understands."""
    given = values("production")
    for name, deployment in by_name(helm({**given, "apiKeys": SEEDS})).items():
        if name[0] != "Deployment":
            continue
        with monkeypatch.context() as patch:
            told = {key: text for key, text in environment(deployment).items() if key.startswith("PODWRIGHT_")}
            for key, text in told.items():
                patch.setenv(key, str(tmp_path) if key == "PODWRIGHT_SECRETS_DIR" else text)
            settings = read_settings()
        assert {key.removeprefix("PODWRIGHT_").lower() for key in told} <= {*Settings.model_fields, "trust_env"}
        assert settings.port == 8000
        assert settings.max_waiting == 0
        assert settings.api_keys_file == "/run/podwright/api-keys"
        assert settings.run_cost == (None if name[1] == "fleet-reviewer" else 0.5)
        if name[1] == "fleet-newsroom":
            assert settings.agents == {
                "researcher": "http://fleet-researcher:8000", "writer": "http://fleet-writer:8000",
                "critic": "http://fleet-reviewer:8000", "translator": "https://translator.example:8443",
            }  # fmt: skip


def test_pods_are_restricted(helm: Helm) -> None:
    """Every pod of every example keeps to the Pod Security Standard restricted, and more."""
    pods = 0
    for example in ("minimal", "newsroom", "production"):
        for manifest in helm(values(example)):
            if manifest["kind"] not in ("Deployment", "Pod"):
                continue
            pods += 1
            pod = manifest["spec"]["template"]["spec"] if manifest["kind"] == "Deployment" else manifest["spec"]
            assert pod["securityContext"]["runAsNonRoot"] is True
            assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
            assert pod["automountServiceAccountToken"] is False
            assert pod["enableServiceLinks"] is False
            assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
            for volume in pod.get("volumes", []):
                assert set(volume) & {"configMap", "emptyDir", "persistentVolumeClaim", "projected", "secret"}, volume
            (only,) = pod["containers"]
            assert only["securityContext"] == {
                "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
            }  # fmt: skip
            assert {"cpu", "memory"} <= set(only["resources"]["requests"]) & set(only["resources"]["limits"])
            assert not {port.get("hostPort") for port in only.get("ports", [])} - {None}
    assert pods == 2 + 10 + 7


def test_the_cluster_may_choose_the_user(helm: Helm) -> None:
    """With null for its numbers a pod says nothing of who it runs as, but that it is not root."""
    deployment = one(helm, "Deployment", user={"runAsUser": None, "runAsGroup": None, "fsGroup": None})
    assert deployment["spec"]["template"]["spec"]["securityContext"] == {
        "runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"},
    }  # fmt: skip


def test_probes_and_the_end_of_a_pod(helm: Helm) -> None:
    """Probes ask the routes that are open, and the grace period holds all that happens before the end."""
    drain = {"preStop": 3, "delay": 4, "timeout": 50, "margin": 6}
    deployment = one(helm, "Deployment", drain=drain)
    probes = {
        name: container(deployment)[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")
    }
    assert probes == {"startup": "/ready", "liveness": "/health", "readiness": "/ready"}
    assert deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 63
    assert container(deployment)["lifecycle"] == {"preStop": {"sleep": {"seconds": 3}}}
    assert environment(deployment)["PODWRIGHT_DRAIN_DELAY"] == "4"
    assert environment(deployment)["PODWRIGHT_SHUTDOWN_TIMEOUT"] == "50"
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_a_blueprint_rolls_the_pods(helm: Helm) -> None:
    """A changed blueprint or file changes an annotation of the pods; the digest is the library's."""
    blueprint = {
        "type": "Agent", "name": "writer", "instructions": "Schreib <kurz> & «gut»: \u2028 1e3\n", "tools": [],
        "config": {"model": "offline/echo", "temperature": 0.7, "top_p": 1.0, "max_tokens": 1500000},
    }  # fmt: skip
    annotations = [
        one(helm, "Deployment", **component)["spec"]["template"]["metadata"]["annotations"]
        for component in (
            {"blueprint": {"inline": blueprint}},
            {"blueprint": {"inline": blueprints.to_json(blueprint)}},
            {"blueprint": {"inline": blueprints.to_yaml(blueprint), "file": "blueprint.yaml"}},
            {"blueprint": {"inline": {**blueprint, "instructions": "Write."}}},
            {"blueprint": {"inline": blueprint}, "files": {"tools.py": "x = 1\n"}},
        )
    ]
    digests = [each["podwright.dev/blueprint-digest"] for each in annotations]
    assert digests[0] == digests[1] == digests[2] == digests[4] == blueprints.digest(blueprint)
    assert digests[3] == blueprints.digest({**blueprint, "instructions": "Write."})
    assert len({each["checksum/files"] for each in annotations}) == 5


def test_the_files_arrive(helm: Helm) -> None:
    """The blueprint and the files of a component folder are mounted as they are in the folder."""
    files = {
        "tools.py": "def f() -> str:\n    return '''\ttab'''\n\n",
        "agents/critic/blueprint.json": "{}\n",
        "a.txt": "",
    }
    component = agent(files=files)
    found = by_name(helm({"components": {"x": component}, "apiKeys": SEEDS}))
    data = found["ConfigMap", "fleet-x-files"]["data"]
    pod = found["Deployment", "fleet-x"]["spec"]["template"]["spec"]
    (volume,) = [each["configMap"] for each in pod["volumes"] if each["name"] == "component"]
    mounted = {item["path"]: data[item["key"]] for item in volume["items"]}
    assert volume["name"] == "fleet-x-files"
    assert {path: text for path, text in mounted.items() if path != "blueprint.json"} == files
    assert json.loads(mounted["blueprint.json"]) == component["blueprint"]["inline"]
    assert environment(found["Deployment", "fleet-x"])["PODWRIGHT_COMPONENT"] == "/component"


def test_files_from_elsewhere_lie_beside(helm: Helm) -> None:
    """The entries of other ConfigMaps are in the folder too, beside a blueprint in the values or in a ConfigMap."""
    for component, first in ((agent(), "fleet-x-files"), ({"blueprint": {"configMap": "mine"}}, "mine")):
        deployment = one(helm, "Deployment", **component, filesFrom=["tools", "1e3"])
        validate(deployment, OLDEST)
        (volume,) = [each for each in deployment["spec"]["template"]["spec"]["volumes"] if each["name"] == "component"]
        names = [source["configMap"]["name"] for source in volume["projected"]["sources"]]
        assert names == [first, "tools", "1e3"]
        items = [item["path"] for item in volume["projected"]["sources"][0]["configMap"].get("items", [])]
        assert items == (["blueprint.json"] if first == "fleet-x-files" else [])


def test_an_overlay_leaves_the_image_s_files(helm: Helm) -> None:
    """With an overlay each file is mounted on its own, so that the tools in the image stay."""
    deployment = one(helm, "Deployment", **agent(files={"a.txt": "a"}) | {"blueprint": {"inline": {}, "overlay": True}})
    mounts = [each for each in container(deployment)["volumeMounts"] if each["name"] == "component"]
    assert [(each["mountPath"], each["subPath"]) for each in mounts] == [("/component/a.txt", "a.txt")]
    deployment = one(helm, "Deployment", blueprint={"configMap": "mine", "overlay": True})
    mounts = [each for each in container(deployment)["volumeMounts"] if each["name"] == "component"]
    assert [each["mountPath"] for each in mounts] == ["/component/blueprint.json"]


def test_each_has_its_keys(helm: Helm) -> None:
    """A caller is given the key of its agent, which that agent accepts for runs only; no two keys are alike."""
    given = {
        "apiKeys": {"seeds": [*SEEDS["seeds"], "the seed of yesterday, of 32 characters too"]},
        "components": {
            "a": {"agents": ["b", {"name": "bee", "component": "b"}]},
            "b": {"apiKeys": {"accept": ["run:a-key-from-outside"]}},
        },
    }
    found = by_name(helm(given))
    a, b = (opened(found["Secret", f"fleet-{name}-keys"]) for name in "ab")
    sent = json.loads(a["agent-keys"])
    accepted = b["api-keys"].splitlines()
    assert sent["b"] == sent["bee"]
    assert f"run:{sent['b']}" in accepted
    assert f"read:{b['metrics']}" in accepted
    assert b["admin"] in accepted
    assert len(accepted) == len(set(accepted)) == 7
    assert "run:a-key-from-outside" in accepted
    assert json.loads(b["agent-keys"]) == {}
    assert not set(a["api-keys"].splitlines()) & set(accepted)
    before = by_name(helm({**given, "apiKeys": {"seeds": given["apiKeys"]["seeds"][1:]}}))
    assert f"run:{json.loads(opened(before['Secret', 'fleet-a-keys'])['agent-keys'])['b']}" in accepted
    deployments = [
        each["Deployment", "fleet-a"]["spec"]["template"]["metadata"]["annotations"] for each in (found, before)
    ]
    assert deployments[0]["checksum/agent-keys"] != deployments[1]["checksum/agent-keys"]
    assert mounted_keys(found["Deployment", "fleet-a"]) == {
        "api-keys": "api-keys",
        "agent-keys": "podwright_agent_keys",
    }
    assert mounted_keys(found["Deployment", "fleet-b"]) == {"api-keys": "api-keys"}
    assert environment(found["Deployment", "fleet-a"])["PODWRIGHT_SECRETS_DIR"] == "/run/podwright"


def mounted_keys(deployment: Manifest) -> dict[str, str]:
    volumes = deployment["spec"]["template"]["spec"]["volumes"]
    return {item["key"]: item["path"] for each in volumes if each["name"] == "keys" for item in each["secret"]["items"]}


def test_without_keys_there_are_none(helm: Helm) -> None:
    """Where components ask for no keys nothing has one, but who calls a component elsewhere that does."""
    elsewhere = {"name": "far", "url": "https://far.example", "key": "a-key-for-far-away"}
    given = {"apiKeys": {"enabled": False}, "components": {"a": {"agents": ["b", elsewhere]}, "b": {}}}
    found = by_name(helm(given))
    assert [name for kind, name in found if kind == "Secret"] == ["fleet-a-keys"]
    assert {key: json.loads(text) for key, text in opened(found["Secret", "fleet-a-keys"]).items()} == {
        "agent-keys": {"far": "a-key-for-far-away"}
    }
    assert mounted_keys(found["Deployment", "fleet-a"]) == {"agent-keys": "podwright_agent_keys"}
    assert mounted_keys(found["Deployment", "fleet-b"]) == {}
    assert "PODWRIGHT_API_KEYS_FILE" not in environment(found["Deployment", "fleet-a"])


def test_a_seed_is_made(helm: Helm) -> None:
    """Without a seed one is made, the same for all of a rendering, another for the next."""
    found, other = (by_name(helm({"components": {"a": {"agents": ["b"]}, "b": {}}})) for _ in range(2))
    sent = json.loads(opened(found["Secret", "fleet-a-keys"])["agent-keys"])["b"]
    assert f"run:{sent}" in opened(found["Secret", "fleet-b-keys"])["api-keys"]
    assert len(opened(found["Secret", "fleet-seed"])["seed"]) == 48
    assert found["Secret", "fleet-seed"] != other["Secret", "fleet-seed"]
    kept = by_name(
        helm({"components": {"a": {}}, "apiKeys": {"seeds": [opened(found["Secret", "fleet-seed"])["seed"]]}})
    )
    assert opened(kept["Secret", "fleet-a-keys"])["admin"] == opened(found["Secret", "fleet-a-keys"])["admin"]


def test_two_releases_share_nothing(helm: Helm) -> None:
    """Two releases of one fleet in one namespace have no name in common, and no Service reaches the other's pods."""
    given = {**values("production"), "apiKeys": {}}
    for component in given["components"].values():
        component.pop("extraObjects", None)
    first, second = (by_name(helm(given, release)) for release in ("blue", "green"))
    assert not set(first) & set(second)
    seeds = [opened(each["Secret", f"{release}-seed"]) for each, release in ((first, "blue"), (second, "green"))]
    assert seeds[0] != seeds[1]
    for (kind, name), manifest in first.items():
        if kind == "Service":
            selector = manifest["spec"]["selector"]
            reached = {
                other
                for release in (first, second)
                for (workload, other), each in release.items()
                if workload in ("Deployment", "Pod")
                and selector.items() <= (each["spec"].get("template") or each)["metadata"]["labels"].items()
            }
            assert reached == {name}


def test_who_scales_owns_the_number(helm: Helm) -> None:
    """Where something scales the pods, the Deployment says nothing of their number; and only one thing scales them."""
    scaled = {"none": (1, 0, 0), "hpa": (None, 1, 0), "keda": (None, 0, 1)}
    for how, (replicas, hpas, objects) in scaled.items():
        given = {"type": how, "runs": 5, "keda": {"prometheus": "http://p:9090"}}
        manifests = helm({"components": {"x": {"autoscaling": given}}})
        kinds = [each["kind"] for each in manifests]
        assert (kinds.count("HorizontalPodAutoscaler"), kinds.count("ScaledObject")) == (hpas, objects)
        (deployment,) = [each for each in manifests if each["kind"] == "Deployment"]
        assert deployment["spec"].get("replicas") == replicas
        if how == "keda":
            (scaler,) = [each["spec"] for each in manifests if each["kind"] == "ScaledObject"]
            (trigger,) = scaler["triggers"]
            assert trigger["metadata"]["threshold"] == "5"
            assert 'podwright_runs_in_progress{namespace="prod",job="fleet-x"}' in trigger["metadata"]["query"]


def test_metrics_stay_inside(helm: Helm) -> None:
    """Neither an Ingress nor an HTTPRoute lets metrics or probes out, and each path is exact."""
    found = by_name(helm(values("production")))
    (rule,) = found["Ingress", "fleet-newsroom"]["spec"]["rules"]
    assert {(path["path"], path["pathType"]) for path in rule["http"]["paths"]} == {
        (path, "Exact") for path in ("/run", "/run/stream", "/docs", "/openapi.json")
    }
    (rule,) = found["HTTPRoute", "fleet-newsroom"]["spec"]["rules"]
    assert [match["path"] for match in rule["matches"]] == [
        {"type": "Exact", "value": path} for path in ("/run", "/run/stream")
    ]


def test_names_that_yaml_takes_for_something_else(helm: Helm) -> None:
    """Names of components, variables, secrets and classes that look like numbers or truth values stay texts."""
    odd = {
        "env": {"NO": "off", "Y": "1e3"}, "agents": ["1e3"], "imagePullSecrets": ["123"], "priorityClassName": "null",
        "ingress": {"enabled": True, "className": "on", "tlsSecret": "0x1", "hosts": ["1.2"]},
        "secrets": {"existing": ["1e3"]}, "volumes": {"no": {"mountPath": "/no", "emptyDir": {}}},
        "apiKeys": {"existingSecret": "~"}, "serviceAccount": {"name": "1_0"}, "image": {"tag": "1.0"},
    }  # fmt: skip
    manifests = helm({"components": {"no": odd, "1e3": {"blueprint": {"configMap": "true"}}}}, "y", "123")
    for manifest in manifests:
        assert manifest["metadata"]["namespace"] == "123"
        validate(manifest, OLDEST)
    text = json.dumps(by_name(manifests)["Deployment", "y-no"])
    for name in ("NO", "off", "Y", "1e3", "123", "null", "no", "~", "1_0", "podwright:1.0"):
        assert f'"{name}"' in text, name


def test_the_readme_s_fleet_renders(helm: Helm) -> None:
    """The values that the README shows are values that the chart takes, and the versions are those of the tests."""
    blocks = re.findall(r"^```yaml\n(.*?)^```", (CHART / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert blocks
    assert f"for Kubernetes {OLDEST} to {NEWEST}" in (CHART / "README.md").read_text()
    for block in blocks:
        assert {each["kind"] for each in helm(yaml.safe_load(block))} >= {"Deployment", "ConfigMap", "NetworkPolicy"}


def test_the_version_is_the_library_s() -> None:
    """Chart, image tag and library have one version."""
    assert container(one(helm4, "Deployment"))["image"] == f"podwright:{__version__}"


def test_hundred_components(helm: Helm) -> None:
    """A hundred components render within ten seconds."""
    given = values("hundred")
    took, manifests = [], []
    while not took or (took[-1] >= 10 and len(took) < 3):  # the machine may have been busy with something else
        began = time.monotonic()
        manifests = helm(given)
        took.append(time.monotonic() - began)
    assert min(took) < 10
    kinds = [each["kind"] for each in manifests]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {
        "ConfigMap": 100, "Deployment": 100, "NetworkPolicy": 101, "Pod": 100, "PodDisruptionBudget": 100,
        "Secret": 101, "Service": 100, "ServiceAccount": 100,
    }  # fmt: skip


def notes(values: Manifest) -> str:
    with helm_python.Chart.load(CHART) as chart:
        return chart.render(values, name="fleet", namespace="prod")["podwright/templates/NOTES.txt"]


def test_the_notes_say_how_to_try_it() -> None:
    """The notes of an install have the addresses, the command for a key, and a warning about network policies."""
    text = notes(values("newsroom"))
    for words in (
        "5 components", "writer: http://fleet-writer.prod:8000", "helm test fleet --namespace prod",
        "get secret fleet-desk-keys", "{{.data.admin | base64decode}}", "port-forward service/fleet-desk 8000:8000",
    ):  # fmt: skip
        assert words in text, words
    assert "Warning" not in text
    monitored = notes({"components": {"x": {"monitor": {"type": "service"}}}, "apiKeys": {"enabled": False}})
    assert "Warning: x has an ingress, a gateway route or a monitor" in monitored
    assert "API keys are off" in monitored
    assert "get secret" not in monitored
    assert "has no components" in notes({})
