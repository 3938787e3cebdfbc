"""The manifests of a component: pod, files, keys, scaling and routes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.helm.conftest import (
    SEEDS,
    Helm,
    Manifest,
    by_name,
    decoded,
    example_values,
    jobs_of,
)
from tests.helm.test_chart import validate

import podwright
from podwright import blueprints
from podwright_service.settings import Settings, read_settings
from podwright_service.variables import LIBRARY

AGENT: Manifest = {
    "type": "Agent", "name": "writer", "instructions": "Write.", "config": {"model": "offline/echo"}, "tools": [],
}  # fmt: skip


def objects(helm: Helm, **component: Any) -> dict[tuple[str, str], Manifest]:
    """The objects of the release `fleet` with one component, `x`."""
    return by_name(helm({"components": {"x": component}, "apiKeys": SEEDS}))


def deployment(helm: Helm, **component: Any) -> Manifest:
    return objects(helm, **component)["Deployment", "fleet-x"]


def pod_of(deployment: Manifest) -> Manifest:
    return deployment["spec"]["template"]["spec"]


def container_of(deployment: Manifest) -> Manifest:
    (container,) = pod_of(deployment)["containers"]
    return container


def environment(deployment: Manifest) -> dict[str, str]:
    """The variables with values; others have sources."""
    return {
        variable["name"]: variable["value"]
        for variable in container_of(deployment)["env"]
        if "value" in variable
    }


def volume(deployment: Manifest, name: str) -> Manifest:
    (volume,) = [
        each for each in pod_of(deployment)["volumes"] if each["name"] == name
    ]
    return volume


def test_the_service_accepts_its_environment(
    helm: Helm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The variables of each pod are valid settings of the service, with the addresses of its agents."""
    manifests = by_name(
        helm({**example_values("production"), "apiKeys": SEEDS})
    )
    for name in [name for kind, name in manifests if kind == "Deployment"]:
        variables = environment(manifests["Deployment", name])
        settings_of_pod = {
            key: text
            for key, text in variables.items()
            if key.startswith("PODWRIGHT_")
        }
        known = {f"PODWRIGHT_{name.upper()}" for name in Settings.model_fields}
        assert set(settings_of_pod) <= known | set(LIBRARY)
        with monkeypatch.context() as patch:
            for key, text in {
                **settings_of_pod,
                "PODWRIGHT_SECRETS_DIR": str(tmp_path),
            }.items():
                patch.setenv(key, text)
            settings = read_settings()
        assert (settings.port, settings.max_waiting) == (8000, 0)
        assert settings.api_keys_file == "/run/podwright/api-keys"
        assert settings.run_cost == (None if name == "fleet-reviewer" else 0.5)
        if name == "fleet-newsroom":
            assert settings.agents == {
                "researcher": "http://fleet-researcher.prod.svc:8000", "writer": "http://fleet-writer.prod.svc:8000",
                "critic": "http://fleet-reviewer.prod.svc:8000", "translator": "https://translator.example:8443",
            }  # fmt: skip


@pytest.mark.parametrize(
    "example", ["minimal", "newsroom", "openshift", "production"]
)
def test_pods_are_restricted(helm: Helm, example: str) -> None:
    """Every pod meets the Pod Security Standard `restricted`, and has no access to the API server."""
    manifests = helm(example_values(example))
    deployments = [each for each in manifests if each["kind"] == "Deployment"]
    pods = [
        pod_of(each)
        for each in manifests
        if each["kind"] in ("Deployment", "Job")
    ]
    assert len(pods) > len(deployments) > 0
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {
            "type": "RuntimeDefault"
        }
        assert (
            pod["automountServiceAccountToken"],
            pod["enableServiceLinks"],
        ) == (
            False,
            False,
        )
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
        (container,) = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        }  # fmt: skip
        assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"
        assert {"cpu", "memory"} <= set(
            container["resources"]["requests"]
        ) & set(container["resources"]["limits"])


def test_probes_and_the_end_of_a_pod(helm: Helm) -> None:
    """Probes request the routes without a key, and the grace period covers the whole drain."""
    rendered = deployment(
        helm, drain={"preStop": 3, "delay": 4, "timeout": 50, "margin": 6}
    )
    container = container_of(rendered)
    paths = [
        container[f"{name}Probe"]["httpGet"]["path"]
        for name in ("startup", "liveness", "readiness")
    ]
    assert paths == ["/ready", "/health", "/ready"]
    assert pod_of(rendered)["terminationGracePeriodSeconds"] == 63
    assert container["lifecycle"] == {"preStop": {"sleep": {"seconds": 3}}}
    variables = environment(rendered)
    assert (
        variables["PODWRIGHT_DRAIN_DELAY"],
        variables["PODWRIGHT_SHUTDOWN_TIMEOUT"],
    ) == (
        "4",
        "50",
    )
    assert rendered["spec"]["strategy"]["rollingUpdate"] == {
        "maxSurge": 1,
        "maxUnavailable": 0,
    }


def test_a_blueprint_rolls_the_pods(helm: Helm) -> None:
    """A changed blueprint or file changes an annotation of the pods; the digest is the library's."""
    blueprint = {
        **AGENT, "instructions": "Schreib <kurz> & «gut»: \u2028 1e3\n",
        "config": {"model": "offline/echo", "temperature": 0.7, "top_p": 1.0, "max_tokens": 1500000},
    }  # fmt: skip
    changed = {**blueprint, "instructions": "Write."}
    annotations = [
        deployment(helm, **component)["spec"]["template"]["metadata"][
            "annotations"
        ]
        for component in (
            {"blueprint": {"inline": blueprint}},
            {"blueprint": {"inline": blueprints.to_json(blueprint)}},
            {"blueprint": {"inline": {**blueprint, "$schema": "x"}}},
            {
                "blueprint": {
                    "inline": blueprints.to_yaml(blueprint),
                    "file": "blueprint.yaml",
                }
            },
            {
                "blueprint": {"inline": blueprint},
                "files": {"tools.py": "x = 1\n"},
            },
            {"blueprint": {"inline": changed}},
        )
    ]
    digests = [each["podwright.dev/blueprint-digest"] for each in annotations]
    assert digests == [blueprints.digest(blueprint)] * 5 + [
        blueprints.digest(changed)
    ]
    assert len({each["checksum/files"] for each in annotations}) == 6


def test_the_volume_has_the_component_folder(
    helm: Helm, tmp_path: Path
) -> None:
    """Blueprint and files are mounted under their paths, and the library loads them from there."""
    files = {
        "tools.py": "def f() -> str:\n    return '''\ttab'''\n\n",
        "agents/critic/blueprint.json": blueprints.to_json(AGENT),
        "a.txt": "",
    }
    manifests = objects(helm, blueprint={"inline": AGENT}, files=files)
    data = manifests["ConfigMap", "fleet-x-files"]["data"]
    source = volume(manifests["Deployment", "fleet-x"], "component")[
        "configMap"
    ]
    assert source["name"] == "fleet-x-files"
    for item in source["items"]:
        (tmp_path / item["path"]).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / item["path"]).write_text(data[item["key"]])
    assert {path: (tmp_path / path).read_text() for path in files} == files
    assert podwright.load(tmp_path).to_blueprint() == blueprints.read_file(
        tmp_path / "blueprint.json"
    )
    assert (
        environment(manifests["Deployment", "fleet-x"])["PODWRIGHT_COMPONENT"]
        == "/component"
    )


@pytest.mark.parametrize(
    ("blueprint", "source"),
    [({"inline": AGENT}, "fleet-x-files"), ({"configMap": "mine"}, "mine")],
)
def test_files_of_other_config_maps(
    helm: Helm, blueprint: Manifest, source: str
) -> None:
    """The entries of further ConfigMaps are in the folder too, beside the blueprint."""
    rendered = deployment(helm, blueprint=blueprint, filesFrom=["tools", "1e3"])
    validate(rendered)
    sources = [
        each["configMap"]["name"]
        for each in volume(rendered, "component")["projected"]["sources"]
    ]
    assert sources == [source, "tools", "1e3"]


@pytest.mark.parametrize(
    ("component", "file"),
    [
        (
            {
                "blueprint": {"inline": {}, "overlay": True},
                "files": {"a.txt": "a"},
            },
            "a.txt",
        ),
        (
            {"blueprint": {"configMap": "mine", "overlay": True}},
            "blueprint.json",
        ),
    ],
)
def test_an_overlay_keeps_the_files_of_the_image(
    helm: Helm, component: Manifest, file: str
) -> None:
    """With an overlay each file is mounted separately, so that the image's tools stay visible."""
    mounts = container_of(deployment(helm, **component))["volumeMounts"]
    assert [
        mount["mountPath"] for mount in mounts if mount["name"] == "component"
    ] == [f"/component/{file}"]


def mounted_keys(deployment: Manifest) -> dict[str, str]:
    """The files of a pod's volume of keys, by entry of the Secret."""
    volumes = pod_of(deployment)["volumes"]
    sources = [
        source["secret"]
        for each in volumes
        if each["name"] == "keys"
        for source in each["projected"]["sources"]
    ]
    return {
        item["key"]: item["path"]
        for source in sources
        for item in source["items"]
    }


def test_each_component_has_its_keys(helm: Helm) -> None:
    """A caller gets the key of its agent, which that agent accepts for runs only; an old seed's keys stay valid."""
    values = {
        "apiKeys": {
            "seeds": [
                *SEEDS["seeds"],
                "the previous seed, of 32 characters too",
            ]
        },
        "components": {
            "a": {"agents": ["b", {"name": "bee", "component": "b"}]},
            "b": {"apiKeys": {"accept": ["run@alice:a-key-from-outside"]}},
        },
    }
    before = by_name(
        helm({**values, "apiKeys": {"seeds": values["apiKeys"]["seeds"][1:]}})
    )
    after = by_name(helm(values))
    a, b = (decoded(after["Secret", f"fleet-{name}-keys"]) for name in "ab")
    sent = json.loads(a["agent-keys"])
    accepted = b["api-keys"].splitlines()
    assert sent["b"] == sent["bee"]
    assert {
        f"run+runs:relay:{sent['b']}",
        f"read:{b['metrics']}",
        b["admin"],
        "run@alice:a-key-from-outside",
    } <= set(accepted)
    assert len(accepted) == len(set(accepted)) == 7
    assert not set(a["api-keys"].splitlines()) & set(accepted)
    assert (
        f"run+runs:relay:{json.loads(decoded(before['Secret', 'fleet-a-keys'])['agent-keys'])['b']}"
        in accepted
    )
    checksums = {
        each["Deployment", "fleet-a"]["spec"]["template"]["metadata"][
            "annotations"
        ]["checksum/agent-keys"]
        for each in (before, after)
    }
    assert len(checksums) == 2
    assert mounted_keys(after["Deployment", "fleet-a"]) == {
        "api-keys": "api-keys", "agent-keys": "podwright_agent_keys",
    }  # fmt: skip
    assert mounted_keys(after["Deployment", "fleet-b"]) == {
        "api-keys": "api-keys"
    }


def test_the_pods_of_a_component_share_the_keys_of_states(helm: Helm) -> None:
    """Each component has its own, by its seeds; a new seed replaces pods, and the old one still opens states."""
    old = ["the previous seed, of 32 characters too"]
    seeds = [*SEEDS["seeds"], *old]
    components = {"a": {}, "b": {}, "c": {"apiKeys": {"existingSecret": "o"}}}
    before, after = (
        by_name(helm({"apiKeys": {"seeds": each}, "components": components}))
        for each in (old, seeds)
    )
    old_keys = decoded(before["Secret", "fleet-a-keys"])["state-keys"]
    keys = decoded(after["Secret", "fleet-a-keys"])["state-keys"].split(",")
    assert keys[1:] == [old_keys]
    others = decoded(after["Secret", "fleet-b-keys"])["state-keys"].split(",")
    assert not {*keys} & {*others}
    assert all(len(key) == 64 for key in keys)
    sources = {
        name: {
            entry["name"]: entry.get("valueFrom")
            for entry in container_of(after["Deployment", f"fleet-{name}"])[
                "env"
            ]
        }["PODWRIGHT_STATE_KEYS"]
        for name in components
    }
    own = {"name": "fleet-a-keys", "key": "state-keys"}
    assert sources["a"] == {"secretKeyRef": own}
    existing = {"name": "o", "key": "state-keys", "optional": True}
    assert sources["c"] == {"secretKeyRef": existing}
    checksums = {
        each["Deployment", "fleet-a"]["spec"]["template"]["metadata"][
            "annotations"
        ]["checksum/state-keys"]
        for each in (before, after)
    }
    assert len(checksums) == 2


def test_agents_in_another_release(helm: Helm) -> None:
    """A component has the address and the key of an agent in another release with the same seeds."""
    agents = ["near", {"name": "far", "component": "b", "release": "other"}]
    agents.append(
        {"name": "farther", "component": "b", "release": "other", "port": 80}
    )
    callers = by_name(
        helm(
            {
                "apiKeys": SEEDS,
                "components": {"a": {"agents": agents}, "near": {}},
            }
        )
    )
    other = by_name(helm({"apiKeys": SEEDS, "components": {"b": {}}}, "other"))
    addresses = json.loads(
        environment(callers["Deployment", "fleet-a"])["PODWRIGHT_AGENTS"]
    )
    assert addresses == {
        "near": "http://fleet-near.prod.svc:8000", "far": "http://other-b.prod.svc:8000",
        "farther": "http://other-b.prod.svc:80",
    }  # fmt: skip
    sent = json.loads(decoded(callers["Secret", "fleet-a-keys"])["agent-keys"])
    accepted = decoded(other["Secret", "other-b-keys"])["api-keys"].splitlines()
    assert {
        f"run+runs:relay:{sent['far']}",
        f"run+runs:relay:{sent['farther']}",
    } <= set(accepted)
    assert f"run+runs:relay:{sent['near']}" not in accepted


def test_the_proxy_of_an_agent(helm: Helm) -> None:
    """The proxy that is named for an agent elsewhere is that of this agent only."""
    agents = [
        "b",
        {
            "name": "far",
            "url": "https://far.example",
            "proxy": "http://proxy.example:3128",
        },
    ]
    manifests = by_name(
        helm({"components": {"a": {"agents": agents}, "b": {}}})
    )
    assert json.loads(
        environment(manifests["Deployment", "fleet-a"])[
            "PODWRIGHT_AGENT_PROXIES"
        ]
    ) == {"far": "http://proxy.example:3128"}
    assert "PODWRIGHT_AGENT_PROXIES" not in environment(
        manifests["Deployment", "fleet-b"]
    )


@pytest.mark.parametrize(
    ("env", "upper", "lower"),
    [
        ({}, None, None),
        ({"NO_PROXY": "10.0.0.1"}, "10.0.0.1", None),
        ({"HTTPS_PROXY": "http://p:1"}, ".prod.svc", ".prod.svc"),
        ({"http_proxy": "http://p:1"}, ".prod.svc", ".prod.svc"),
        (
            {"all_proxy": "http://p:1", "NO_PROXY": "a.example"},
            "a.example,.prod.svc",
            "a.example,.prod.svc",
        ),
        (
            {"HTTPS_PROXY": "http://p:1", "no_proxy": "b", "NO_PROXY": "a"},
            "a,.prod.svc",
            "b,.prod.svc",
        ),
        ({"HTTPS_PROXY": "http://p:1", "no_proxy": "*"}, "*", "*"),
    ],
)
def test_services_need_no_proxy(
    helm: Helm, env: dict[str, str], upper: str | None, lower: str | None
) -> None:
    """With a proxy, the Services of the namespace are added to what the values exclude, in both spellings."""
    manifests = by_name(helm({"components": {"a": {"env": env}}}))
    variables = environment(manifests["Deployment", "fleet-a"])
    assert variables.get("NO_PROXY") == upper
    assert variables.get("no_proxy") == lower


def test_the_address_families_of_a_service(helm: Helm) -> None:
    """A Service has the families of the values, and by default those that the cluster chooses."""
    service = {
        "ipFamilyPolicy": "RequireDualStack",
        "ipFamilies": ["IPv6", "IPv4"],
    }
    manifests = by_name(
        helm({"components": {"a": {"service": service}, "b": {}}})
    )
    spec = manifests["Service", "fleet-a"]["spec"]
    assert {name: spec[name] for name in service} == service
    assert not set(service) & set(manifests["Service", "fleet-b"]["spec"])


@pytest.mark.parametrize("host", ["*", "::", "[::]", "10.0.0.7", "2001:db8::7"])
def test_the_listening_address(helm: Helm, host: str) -> None:
    """The address to listen on is a setting like others, and the service takes what the chart takes."""
    manifests = by_name(
        helm({"components": {"a": {"settings": {"host": host}}}})
    )
    given = environment(manifests["Deployment", "fleet-a"])["PODWRIGHT_HOST"]
    assert given == host
    assert Settings(host=given).host == host.strip("[]")


def test_without_keys(helm: Helm) -> None:
    """With keys disabled, only a caller of a component outside of the release has one."""
    outside = {
        "name": "far",
        "url": "https://far.example",
        "key": "a-key-for-far-away",
    }
    components = {"a": {"agents": ["b", outside]}, "b": {}}
    manifests = by_name(
        helm({"apiKeys": {"enabled": False}, "components": components})
    )
    assert [name for kind, name in manifests if kind == "Secret"] == [
        "fleet-a-keys"
    ]
    keys = decoded(manifests["Secret", "fleet-a-keys"])
    assert {name: json.loads(text) for name, text in keys.items()} == {
        "agent-keys": {"far": "a-key-for-far-away"}
    }
    assert mounted_keys(manifests["Deployment", "fleet-a"]) == {
        "agent-keys": "podwright_agent_keys"
    }
    assert mounted_keys(manifests["Deployment", "fleet-b"]) == {}
    assert "PODWRIGHT_API_KEYS_FILE" not in environment(
        manifests["Deployment", "fleet-a"]
    )


def test_two_releases_share_nothing(helm: Helm) -> None:
    """Two releases in one namespace have different names and seeds, and each Service selects its own pods."""
    values = {**example_values("production"), "apiKeys": {}}
    for component in values["components"].values():
        component.pop("extraObjects", None)
    blue, green = (
        by_name(helm(values, release)) for release in ("blue", "green")
    )
    assert not set(blue) & set(green)
    assert (
        blue["Secret", "blue-seed"]["data"]
        != green["Secret", "green-seed"]["data"]
    )
    labels = {
        name: manifest["spec"]["template"]["metadata"]["labels"]
        for (kind, name), manifest in (blue | green).items()
        if kind in ("Deployment", "Job")
    }
    for (kind, service), manifest in blue.items():
        if kind == "Service":
            selector = manifest["spec"]["selector"].items()
            assert [
                name for name in labels if selector <= labels[name].items()
            ] == [service]


@pytest.mark.parametrize(
    ("kind", "replicas", "scalers"),
    [
        ("none", 1, []),
        ("hpa", None, ["HorizontalPodAutoscaler"]),
        ("keda", None, ["ScaledObject"]),
    ],
)
def test_one_object_sets_the_number_of_pods(
    helm: Helm, kind: str, replicas: int | None, scalers: list[str]
) -> None:
    """A Deployment whose pods are scaled has no number of its own, and one object scales them."""
    scaling = {"type": kind, "runs": 5, "keda": {"prometheus": "http://p:9090"}}
    manifests = objects(helm, autoscaling=scaling)
    kinds = [
        each
        for each, _ in manifests
        if each in ("HorizontalPodAutoscaler", "ScaledObject")
    ]
    assert kinds == scalers
    assert (
        manifests["Deployment", "fleet-x"]["spec"].get("replicas") == replicas
    )
    if kind == "hpa":
        scaler = manifests["HorizontalPodAutoscaler", "fleet-x"]
        validate(scaler)
        cpu, runs = scaler["spec"]["metrics"]
        # not that of a sidecar
        assert cpu["containerResource"]["container"] == "component"
        assert runs["pods"]["target"]["averageValue"] == "5"
    if kind == "keda":
        (trigger,) = manifests["ScaledObject", "fleet-x"]["spec"]["triggers"]
        assert trigger["metadata"]["threshold"] == "5"
        assert (
            'podwright_runs_in_progress{namespace="prod",job="fleet-x"}'
            in trigger["metadata"]["query"]
        )


def test_background_runs_in_postgresql(helm: Helm) -> None:
    """Pods have the URL as a file, one Job for each database creates its tables first, and KEDA counts the runs."""
    runs = {"store": "postgres", "postgres": {"secret": "db", "port": 6432}}
    defaults = {
        "volumes": {
            "certificates": {
                "mountPath": "/certificates",
                "secret": {"secretName": "authority"},
            },
            "data": {
                "mountPath": "/data",
                "persistentVolumeClaim": {"claimName": "data"},
            },
        },
        "env": {"PGSSLROOTCERT": "/certificates/ca.crt"},
        "podAnnotations": {"sidecar.istio.io/inject": "false"},
        "podLabels": {"team": "news"},
    }
    components = {
        "x": {"blueprint": {"inline": AGENT | {"name": "o'neil"}}, "runs": runs,
              "settings": {"background_runs": 4, "workers": 2}, "autoscaling": {"type": "keda", "max": 9}},
        "y": {"runs": runs},
        "z": {"blueprint": {"configMap": "z"}, "runs": {**runs, "postgres": {"secret": "other"}}},
    }  # fmt: skip
    manifests = by_name(
        helm(
            {
                "defaults": defaults,
                "components": components,
                "apiKeys": {"enabled": False},
            }
        )
    )
    assert mounted_keys(manifests["Deployment", "fleet-x"]) == {
        "url": "podwright_runs_database"
    }
    assert (
        environment(manifests["Deployment", "fleet-x"])["PODWRIGHT_SECRETS_DIR"]
        == "/run/podwright"
    )
    jobs = jobs_of(manifests.values(), "migration")
    assert [volume(job, "keys")["secret"]["secretName"] for job in jobs] == [
        "db",
        "other",
    ]
    for job in jobs:
        validate(job)
        assert container_of(job)["args"] == ["runs", "migrate"]
        assert (
            job["metadata"]["annotations"]["helm.sh/hook"]
            == "pre-install,pre-upgrade"
        )
        assert volume(job, "certificates") == volume(
            manifests["Deployment", "fleet-x"], "certificates"
        )
        assert environment(job)["PGSSLROOTCERT"] == "/certificates/ca.crt"
        assert not [
            each
            for each in pod_of(job)["volumes"]
            if "persistentVolumeClaim" in each
        ]
        metadata = job["spec"]["template"]["metadata"]
        assert metadata["annotations"] == defaults["podAnnotations"]
        assert metadata["labels"]["team"] == "news"
    (trigger,) = manifests["ScaledObject", "fleet-x"]["spec"]["triggers"]
    assert (
        "component = 'o''neil' AND status IN ('queued', 'running')"
        in trigger["metadata"]["query"]
    )
    assert trigger["metadata"]["targetQueryValue"] == "8"
    reference = manifests[
        "TriggerAuthentication", trigger["authenticationRef"]["name"]
    ]["spec"]["secretTargetRef"]
    assert reference == [
        {"parameter": "connection", "name": "db", "key": "url"}
    ]
    pooled = objects(
        helm,
        runs=runs,
        autoscaling={"type": "keda", "keda": {"databaseEntry": "keda"}},
    )
    reference = pooled["TriggerAuthentication", "fleet-x"]["spec"]
    assert reference["secretTargetRef"][0]["key"] == "keda"
    both = objects(
        helm,
        runs=runs,
        autoscaling={"type": "keda", "keda": {"prometheus": "http://p:9090"}},
    )
    assert [
        each["type"]
        for each in both["ScaledObject", "fleet-x"]["spec"]["triggers"]
    ] == [
        "prometheus",
        "postgresql",
    ]


def test_background_runs_in_sqlite(helm: Helm) -> None:
    """The only pod has a volume that outlives the release, and stops before its successor starts."""
    manifests = objects(
        helm,
        runs={
            "store": "sqlite",
            "sqlite": {"size": "2Gi", "storageClass": "fast"},
        },
    )
    claim = manifests["PersistentVolumeClaim", "fleet-x-runs"]
    validate(claim)
    assert claim["metadata"]["annotations"] == {
        "helm.sh/resource-policy": "keep"
    }
    assert claim["spec"]["storageClassName"] == "fast"
    assert claim["spec"]["resources"] == {"requests": {"storage": "2Gi"}}
    rendered = manifests["Deployment", "fleet-x"]
    assert rendered["spec"]["strategy"] == {"type": "Recreate"}
    assert volume(rendered, "runs")["persistentVolumeClaim"] == {
        "claimName": "fleet-x-runs"
    }
    assert (
        environment(rendered)["PODWRIGHT_RUNS_DATABASE"]
        == "sqlite:////runs/runs.db"
    )
    own = objects(
        helm, runs={"store": "sqlite", "sqlite": {"existingClaim": "mine"}}
    )
    assert volume(own["Deployment", "fleet-x"], "runs")[
        "persistentVolumeClaim"
    ] == {"claimName": "mine"}
    assert ("PersistentVolumeClaim", "fleet-x-runs") not in own


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_webhook(helm: Helm, store: str) -> None:
    """Pods have its URL, and its secret as a file; a component without one has neither."""
    runs = {"store": store, "postgres": {"secret": "db"}}
    webhook = {"url": "https://desk.example/runs", "secret": "signing"}
    deployment = objects(helm, runs=runs, webhook=webhook)[
        "Deployment", "fleet-x"
    ]
    variables = environment(deployment)
    assert variables["PODWRIGHT_WEBHOOK"] == webhook["url"]
    assert variables["PODWRIGHT_SECRETS_DIR"] == "/run/podwright"
    names = mounted_keys(deployment)
    assert names["secret"] == "podwright_webhook_secret"
    sources = volume(deployment, "keys")["projected"]["sources"]
    assert sources[-1]["secret"]["name"] == "signing"
    plain = objects(helm, runs=runs)["Deployment", "fleet-x"]
    assert "PODWRIGHT_WEBHOOK" not in environment(plain)
    assert "secret" not in mounted_keys(plain)


def test_metrics_are_not_published(helm: Helm) -> None:
    """Ingress and HTTPRoute publish exact paths only, without metrics and probes."""
    manifests = by_name(helm(example_values("production")))
    (rule,) = manifests["Ingress", "fleet-newsroom"]["spec"]["rules"]
    assert {
        (path["path"], path["pathType"]) for path in rule["http"]["paths"]
    } == {
        (path, "Exact")
        for path in ("/run", "/run/stream", "/docs", "/openapi.json")
    }
    (rule,) = manifests["HTTPRoute", "fleet-newsroom"]["spec"]["rules"]
    assert [match["path"] for match in rule["matches"]] == [
        {"type": "Exact", "value": path} for path in ("/run", "/run/stream")
    ]


def test_paths_with_names_below_them_are_published(helm: Helm) -> None:
    """Background runs and models, with all paths below, which have the ids of runs and the name of the model."""
    published = {"enabled": True, "paths": ["/run", "/runs", "/v1/models"]}
    route = {**published, "parentRefs": [{"name": "gateway"}]}
    manifests = objects(
        helm, ingress={**published, "hosts": ["example.com"]}, httpRoute=route
    )
    (rule,) = manifests["Ingress", "fleet-x"]["spec"]["rules"]
    assert [path["pathType"] for path in rule["http"]["paths"]] == [
        "Exact",
        "Prefix",
        "Prefix",
    ]
    (rule,) = manifests["HTTPRoute", "fleet-x"]["spec"]["rules"]
    assert [match["path"]["type"] for match in rule["matches"]] == [
        "Exact",
        "PathPrefix",
        "PathPrefix",
    ]
