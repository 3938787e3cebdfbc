"""The chart's schema: mistakes in the values are found, with their path in Helm's message."""

from __future__ import annotations

from typing import Any

import pytest
from tests.helm.conftest import Helm, Manifest, RenderError

X = "components.x"
TYPOS: list[tuple[str, Any]] = [
    # misspelt keys
    ("component", {}),
    ("default", {}),
    ("apikeys", {"enabled": False}),
    ("fullNameOverride", "agents"),
    ("commonlabels", {"a": "b"}),
    ("telemetry.endpoints", "http://collector:4318"),
    ("prometheusRule.enable", True),
    ("dashboard.label", {}),
    ("defaults.imagePullPolicy", "Always"),
    ("defaults.image.pullpolicy", "Always"),
    ("defaults.setings", {}),
    ("defaults.settings.max_run", 1),
    (f"{X}.replica", 1),
    (f"{X}.image.name", "writer"),
    (f"{X}.blueprint.inlined", {}),
    (f"{X}.secrets.exist", ["keys"]),
    (f"{X}.secrets.external.store.namespace", "vault"),
    (f"{X}.secrets.external.data.KEY.prop", "api_key"),
    (f"{X}.runs.postgres.url", "postgresql://db/runs"),
    (f"{X}.resources.limit", {"cpu": 1}),
    (f"{X}.resources.limits.mem", "1Gi"),
    (f"{X}.probes.startup.path", "/"),
    (f"{X}.drain.prestop", 5),
    (f"{X}.autoscaling.minReplicas", 1),
    (f"{X}.autoscaling.behavior.scaleUP", {}),
    (f"{X}.autoscaling.keda.interval", 15),
    (f"{X}.affinity.podAntiAfinity", {}),
    (f"{X}.volumes.ca.hostPath", {"path": "/etc"}),
    (f"{X}.ingress.host", "a.example"),
    (f"{X}.networkPolicy.ingress", []),
    # wrong types
    ("apiKeys.enabled", "yes"),
    ("apiKeys.seeds", "a seed for tests, of 32 characters or more"),
    ("components", ["writer"]),
    (X, "writer"),
    (f"{X}.replicas", "two"),
    (f"{X}.replicas", 1.5),
    (f"{X}.image.tag", 1.0),
    (f"{X}.agents", "writer"),
    (f"{X}.env", [{"name": "A", "value": "b"}]),
    (f"{X}.files", ["tools.py"]),
    (f"{X}.podLabels.team", [7]),
    (f"{X}.settings.log_content", "true"),
    (f"{X}.service.port", "http"),
    (f"{X}.ingress.hosts", "a.example"),
    # quantities, sizes and durations
    (f"{X}.resources.limits.memory", "512MB"),
    (f"{X}.resources.limits.memory", "512 Mi"),
    (f"{X}.resources.requests.cpu", "100M1"),
    (f"{X}.resources.requests.cpu", -1),
    (f"{X}.tmpSize", "64mi"),
    (f"{X}.runs.sqlite.size", "1GB"),
    (f"{X}.monitor.interval", "30"),
    (f"{X}.secrets.external.refreshInterval", "1 hour"),
    (f"{X}.httpRoute.timeouts.request", "60"),
    (f"{X}.rollout.maxSurge", "25 %"),
    (f"{X}.podDisruptionBudget.maxUnavailable", "half"),
    (f"{X}.resources.limits.memory", "512m"),
    (f"{X}.tmpSize", "64000000m"),
    (f"{X}.runs.sqlite.size", "1u"),
    (f"{X}.minReadySeconds", 600),
    # addresses
    ("global.imageRegistry", "https://registry.example"),
    (f"{X}.hostAliases.0", {"ip": "models.example", "hostnames": ["a"]}),
    (f"{X}.networkPolicy.models.0", {"cidr": "10.0.0.0", "ports": [443]}),
    (f"{X}.networkPolicy.models.0", {"cidr": "10.0.0.256/8", "ports": [443]}),
    (f"{X}.networkPolicy.models.0", {"cidr": "2001:db8::/129", "ports": [1]}),
    (f"{X}.networkPolicy.from.0", {"ipBlok": {"cidr": "10.0.0.0/8"}}),
    (f"{X}.networkPolicy.from.0", {"podSelector": {"app": "gateway"}}),
    (f"{X}.networkPolicy.dns.0", {}),
    ("telemetry.to.0", {"ipBlock": {"cidr": "::/0", "except": ["fd00::"]}}),
    ("telemetry.endpoint", "collector:4318"),
    (f"{X}.webhook.url", "https://user:password@hooks.example"),
    (f"{X}.agents.0", {"name": "y", "url": "y:80"}),
    (f"{X}.service.port", 70000),
    # names
    ("components.Big_One", {}),
    ("fullnameOverride", "Agents"),
    ("nameOverride", "my_agents"),
    (f"{X}.runs.postgres.secret", "Database"),
    (f"{X}.filesFrom.0", "my_tools"),
    (f"{X}.ingress.hosts.0", "https://a.example"),
    (f"{X}.image.repository", "registry.example/writer:1.0"),
    (f"{X}.image.digest", "sha256:1234"),
    (f"{X}.image.tag", "v1 "),
    (f"{X}.env.MY-KEY", "a"),
    (f"{X}.podLabels.team", "a team"),
    ("commonLabels.-team", "a"),
    ("global.imagePullSecrets.0", {"secret": "registry"}),
    ("global.imagePullSecrets.0", "My_Registry"),
    (f"{X}.imagePullSecrets.0", {"name": "My_Registry"}),
    (f"{X}.agents.0", {"name": "y", "url": "http://y", "keySecret": {"name": "My_Key", "key": "k"}}),
    # values that are not among those allowed
    (f"{X}.tolerations.0.operator", "Gt"),
    (f"{X}.tolerations.0", {}),
    (f"{X}.image.pullPolicy", "always"),
    (f"{X}.runs.store", "postgresql"),
    (f"{X}.autoscaling.type", "HPA"),
    (f"{X}.monitor.type", "ServiceMonitor"),
    (f"{X}.service.type", "Loadbalancer"),
    (f"{X}.settings.log_level", "loud"),
    (f"{X}.ingress.paths.0", "/metrics"),
    (f"{X}.tolerations.0.effect", "NoExecution"),
    (f"{X}.user.runAsUser", 0),
    (f"{X}.blueprint.file", "blueprint.txt"),
    (f"{X}.files.{'../tools'}", "pass"),
    (f"{X}.model", "gpt-4o-mini"),
]  # fmt: skip


def values_at(path: list[str], value: Any) -> Any:
    """Values with one entry; a number in the path is the index 0 of a list."""
    for key in reversed(path):
        if key == "0":
            value = [value]
        else:
            value = {key: value}
    return value


def parts_of(path: str) -> list[str]:
    head, found, file = path.partition(".files.")
    if found:
        return [*head.split("."), "files", file]
    return path.split(".")


def names_path(message: str, parts: list[str]) -> bool:
    """Whether Helm's message has the path, or the path of the object with the key."""
    for known in (parts, parts[:-1]):
        helm4 = "'" + "".join(f"/{part}" for part in known)
        helm3 = "- " + (".".join(known) or "(root)")
        if (helm4 in message or helm3 in message) and parts[-1] in message:
            return True
    return False


def test_the_table_is_large() -> None:
    """The table has at least 60 mistakes, each once."""
    assert len({f"{path}: {value}" for path, value in TYPOS}) >= 60


@pytest.mark.parametrize(
    ("path", "value"), TYPOS, ids=[f"{path}: {value}" for path, value in TYPOS]
)
def test_a_typo_is_found(helm: Helm, path: str, value: Any) -> None:
    """A mistake fails the rendering, and Helm's message has its path."""
    parts = parts_of(path)
    values: Manifest = values_at(parts, value)
    with pytest.raises(RenderError) as caught:
        helm(values)
    assert names_path(str(caught.value), parts), caught.value


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("tmpSize", "0.5Gi"),
        ("tmpSize", "1e9"),
        ("tmpSize", 67108864),
        ("runs.sqlite.size", "1.5Ti"),
        ("resources.limits.cpu", 0.5),
        ("resources.limits.cpu", "250m"),
        ("resources.limits.memory", "128974848"),
        ("resources.limits.hugepages-2Mi", "4Mi"),
        ("resources.limits.nvidia.com/gpu", 1),
        ("resources.requests.ephemeral-storage", ".5G"),
        ("rollout.maxSurge", "25%"),
        ("networkPolicy.models", [{"cidr": "2001:db8::/32", "ports": [443]}]),
        ("networkPolicy.models", [{"cidr": "::ffff:10.0.0.0/104", "ports": [1]}]),
        ("image.repository", "localhost:5000/team/writer"),
        ("image.repository", "registry.example.com/a/b-c_d/writer.x"),
        ("ingress.hosts", ["*.example.com"]),
        ("tolerations", [{"operator": "Exists"}]),
        ("podLabels", {"example.com/team": ""}),
        ("resources.claims", [{"name": "gpu"}]),
        ("resources.limits.cpu", "100000u"),
        ("probes.liveness.terminationGracePeriodSeconds", 60),
        ("probes.readiness.successThreshold", 2),
        ("volumes.model", {"mountPath": "/model", "image": {"reference": "team/model:1"}}),
        ("env", {"feature.on": "yes"}),
        ("imagePullSecrets", [""]),
    ],
)  # fmt: skip
def test_unusual_values_are_accepted(helm: Helm, path: str, value: Any) -> None:
    """What Kubernetes accepts, the schema does too."""
    head, found, name = path.partition("limits.")
    parts = head.rstrip(".").split(".")
    if found:
        parts += ["limits", name]
    assert helm({"components": {"x": values_at(parts, value)}})


@pytest.mark.parametrize(
    ("component", "message"),
    [
        ({"autoscaling": {"type": "hpa", "min": 5}}, "autoscaling.min: .*at most 4"),
        (
            {"autoscaling": {"type": "keda", "min": 5, "keda": {"prometheus": "http://p"}}},
            "autoscaling.min: .*at most 4",
        ),
        ({"rollout": {"maxSurge": 0}}, "rollout: .*no pod could be replaced"),
        ({"rollout": {"maxSurge": "0%", "maxUnavailable": "0%"}}, "rollout: .*no pod"),
        ({"service": {"ipFamilies": ["IPv6", "IPv4"]}}, "service.ipFamilies: .*DualStack"),
        (
            {"service": {"ipFamilies": ["IPv6", "IPv4"], "ipFamilyPolicy": "SingleStack"}},
            "service.ipFamilies: .*DualStack",
        ),
        ({"dnsPolicy": "None"}, "dnsConfig.nameservers: .*needs a name server"),
        ({"agents": [{"name": "y", "url": "http://y:70000"}]}, "http://y:70000: the port is not between"),
        (
            {
                "webhook": {"url": "http://y:70000", "secret": "w"},
                "runs": {"store": "postgres", "postgres": {"secret": "d"}},
            },
            "http://y:70000: the port is not between",
        ),
    ],
)  # fmt: skip
def test_what_kubernetes_refuses(
    helm: Helm, component: Manifest, message: str
) -> None:
    """Values that are valid alone and not together are errors that say what to change."""
    with pytest.raises(RenderError, match=message):
        helm({"components": {"x": component}})
