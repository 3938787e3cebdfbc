"""The examples, installed, tested, upgraded, rolled back and uninstalled by Helm 3 and Helm 4."""

from __future__ import annotations

import contextlib
import functools
import json
import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.cluster import Client, Cluster, Namespace, side_by_side
from tests.cluster.fleets import fake_node
from tests.helm.conftest import (
    CHART,
    CUSTOM,
    Manifest,
    decoded,
    example_values,
    helm4,
)

AGENTS = ("researcher", "reviewer", "writer")
NEWSROOM = {"desk", "newsroom", *AGENTS}
TESTED = {"newsroom", "writer"}
"""The components of the newsroom that `helm test` runs."""
PROVIDER_KEY = "the-key-of-the-provider"
PRODUCTION = Path(__file__).with_name("production.yaml")
INSPECT = Path(__file__).parent / "pods" / "inspect_container.py"


def secret(name: str, **entries: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "stringData": entries,
    }


def newsroom() -> Manifest:
    values = example_values("newsroom")
    values["defaults"] |= {
        "secrets": {"existing": ["provider"]},
        "resources": {"requests": {"cpu": "10m"}},
        "networkPolicy": {
            "from": [{"podSelector": {"matchLabels": {"app": "client"}}}]
        },
    }
    for name in NEWSROOM - TESTED:
        values["components"][name]["test"] = {"enabled": False}
    # the test of the probes stops its process, and waits until the kubelet has killed it
    values["components"]["desk"]["drain"] = {
        "preStop": 0,
        "delay": 0,
        "timeout": 1,
        "margin": 1,
    }
    values["components"]["desk"]["probes"] = {
        "readiness": {"periodSeconds": 1, "failureThreshold": 3},
        "liveness": {"periodSeconds": 3},
    }
    return values


class Installed:
    """The examples, installed by one version of Helm: newsroom in a namespace, production and minimal in another.

    Minimal is the release `elsewhere`, whose agent production uses. With Helm 3, only minimal has running pods in the
    short form: what differs is what Helm does, and not the pods.
    """

    def __init__(
        self,
        version: int,
        make_namespace: Callable[[], Namespace],
        folder: Path,
        placement: Manifest,
    ) -> None:
        self.version = version
        self.placement = placement
        """Values for pods that do not run."""
        self.newsroom, self.production = make_namespace(), make_namespace()
        self._folder = folder

    def install_newsroom(self) -> None:
        self.newsroom.apply([secret("provider", OPENAI_API_KEY=PROVIDER_KEY)])
        self.upgrade(newsroom())

    def upgrade(self, values: Manifest) -> None:
        """Upgrade the newsroom, and wait until its pods are ready and the earlier ones are deleted."""
        values["defaults"] |= self.placement
        self.newsroom.install(values, version=self.version)
        # Helm 3 waits for the new pods only
        self.newsroom.wait_for_rollouts()

    def install_minimal(self) -> None:
        values = example_values("minimal")
        values["components"] = {"translator": values["components"]["greeter"]}
        caller = {
            "podSelector": {
                "matchLabels": {"app.kubernetes.io/component": "newsroom"}
            }
        }
        values["defaults"] = {
            "apiKeys": {"accept": ["run:not-a-real-key-0001"]},
            "networkPolicy": {"from": [caller]},
        }
        self.production.install(values, "elsewhere", version=self.version)

    def install_production(self) -> None:
        """Create what operators and the owner of the namespace provide, and install the example."""
        repository, _, tag = self.production.image.partition(":")
        adapted = self._folder / f"production-{self.version}.yaml"
        adapted.write_text(
            string.Template(PRODUCTION.read_text()).substitute(
                repository=repository, tag=tag
            )
        )
        blueprint = example_values("production")["components"]["researcher"][
            "blueprint"
        ]["inline"]
        config = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "writer-blueprint"},
        }
        self.production.apply(
            [
                config
                | {
                    "data": {
                        "blueprint.json": json.dumps(
                            blueprint | {"name": "writer"}
                        )
                    }
                },
                secret("openai", OPENAI_API_KEY=PROVIDER_KEY),
                secret("fleet-writer-env", OPENAI_API_KEY=PROVIDER_KEY),
            ]
        )
        values = example_values("production")
        # nothing provides storage
        del values["components"]["researcher"]["volumes"]
        values["defaults"] |= self.placement
        self.production.install(
            values, version=self.version, options=[f"--values={adapted}"]
        )

    def running(self) -> list[tuple[Namespace, str]]:
        """The releases whose pods run."""
        fleets = (
            []
            if self.placement
            else [(self.newsroom, "fleet"), (self.production, "fleet")]
        )
        return [*fleets, (self.production, "elsewhere")]


@contextlib.contextmanager
def real_nodes(cluster: Cluster) -> Iterator[Manifest]:
    """The values for pods that run on the nodes of the cluster."""
    yield {}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(fake_node, id="short"),
        pytest.param(real_nodes, id="long", marks=pytest.mark.proof),
    ],
)
def installed(
    request: pytest.FixtureRequest,
    cluster: Cluster,
    make_namespace: Callable[[], Namespace],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[list[Installed]]:
    """The examples, installed by each version of Helm."""
    folder = tmp_path_factory.mktemp("values")
    with request.param(cluster) as placement:
        both = [
            Installed(3, make_namespace, folder, placement),
            Installed(4, make_namespace, folder, {}),
        ]
        steps = [each.install_newsroom for each in both]
        steps += [
            step
            for each in both
            for step in (each.install_production, each.install_minimal)
        ]
        side_by_side(lambda step: step(), steps)
        yield both


@pytest.fixture
def namespace(installed: list[Installed]) -> Namespace:
    """The namespace of a newsroom."""
    return installed[-1].newsroom


def pods(
    namespace: Namespace, components: Iterable[str] = NEWSROOM
) -> dict[str, list[str]]:
    """The names of the pods of each component of the release `fleet`."""
    return {name: namespace.pods(name) for name in components}


def keys(
    namespace: Namespace, release: str = "fleet"
) -> dict[str, dict[str, str]]:
    """The entries of the release's Secrets by name."""
    found = namespace.objects(
        "secrets", f"app.kubernetes.io/instance={release}"
    )
    return {each["metadata"]["name"]: decoded(each) for each in found}


def templates(namespace: Namespace) -> dict[str, Manifest]:
    return {
        each["metadata"]["name"]: each["spec"]["template"]
        for each in namespace.objects("deployments")
    }


def names(namespace: Namespace, kind: str) -> set[str]:
    return {each["metadata"]["name"] for each in namespace.objects(kind)}


def test_every_pod_is_ready(installed: list[Installed]) -> None:
    """In namespaces that enforce Pod Security *restricted*, each component of each example has ready pods."""
    for each in installed:
        assert all(pods(each.newsroom).values())
        assert all(pods(each.production, {"newsroom", *AGENTS}).values())
        for namespace in (each.newsroom, each.production):
            info = namespace.get("namespace", namespace.name)
            assert (
                info["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
                == "restricted"
            )
            namespace.until(functools.partial(are_ready, namespace))


def are_ready(namespace: Namespace) -> bool:
    """Whether each Deployment has the pods that it should have, and all of them are ready."""
    deployments = namespace.objects("deployments")
    return all(
        each["status"].get("readyReplicas", 0) == each["spec"]["replicas"] > 0
        for each in deployments
    )


def runs(namespace: Namespace) -> Counter[str]:
    """The runs that each agent of the newsroom has logged."""
    logs = {
        name: namespace.kubectl("logs", f"deployment/fleet-{name}")
        for name in AGENTS
    }
    return Counter(
        {name: text.count('"event":"run"') for name, text in logs.items()}
    )


def succeeded(output: str) -> set[str]:
    """The pods that succeeded, in the output of `helm test`; an earlier run's may be there too."""
    return set(
        re.findall(
            r"^TEST SUITE: +(\S+)\n.*\n.*\nPhase: +Succeeded$",
            output,
            re.MULTILINE,
        )
    )


def test_helm_test_runs_each_component(installed: list[Installed]) -> None:
    """`helm test` succeeds for each release, and the workflow in it reaches its agents by their Services and keys."""

    def check(release: tuple[Installed, Namespace, str]) -> None:
        each, namespace, name = release
        timeout = "--timeout=180s"
        if namespace is not each.newsroom:
            namespace.helm("test", name, timeout, version=each.version)
            return
        before = runs(namespace)
        output = namespace.helm(
            "test",
            name,
            "--filter=name=fleet-newsroom-test",
            timeout,
            version=each.version,
        )
        assert succeeded(output) == {"fleet-newsroom-test"}
        # the archive has nothing on the input of the test, so there is no draft to review
        wanted = Counter(AGENTS)
        namespace.until(
            lambda: (runs(namespace) - before).total() >= wanted.total()
        )
        assert runs(namespace) - before == wanted
        output = namespace.helm(
            "test",
            name,
            "--filter=!name=fleet-newsroom-test",
            timeout,
            version=each.version,
        )
        assert succeeded(output) >= {
            f"fleet-{name}-test" for name in TESTED - {"newsroom"}
        }

    side_by_side(
        check,
        [(each, *release) for each in installed for release in each.running()],
    )


def test_helm_test_reports_failures(namespace: Namespace) -> None:
    """`helm test` fails with the status of a rejected request, or with the URL of a component without pods."""
    greeter = example_values("minimal")["components"]["greeter"]
    fleet = {
        "absent": greeter | {"replicas": 0, "test": {"timeout": 5}},
        "locked": greeter | {"apiKeys": {"existingSecret": "locked"}},
    }
    locked = {
        "admin": "a-key-of-nobody",
        "agent-keys": "{}",
        "api-keys": "another-key-0001",
        "metrics": "x",
    }
    namespace.apply([secret("locked", **locked)])
    namespace.install({"components": fleet}, "faulty")

    url = f"http://faulty-absent.{namespace.name}.svc:8000/run"

    def check(case: tuple[str, int, str]) -> None:
        component, version, fault = case
        name = f"faulty-{component}-test"
        helm = (
            namespace.cluster.find_helm(version),
            "test",
            "faulty",
            f"--namespace={namespace.name}",
        )
        assert (
            namespace.cluster.run(*helm, f"--filter=name={name}").returncode
            != 0
        )
        assert fault in namespace.kubectl("logs", f"job/{name}")

    side_by_side(
        check,
        [
            ("absent", 3, f"{url} cannot be reached"),
            ("locked", 4, "answered 401"),
        ],
    )
    namespace.helm("uninstall", "faulty")


def test_containers_are_as_rendered(namespace: Namespace) -> None:
    """A container has its user, no capabilities, a read-only root, its limits, files, keys and variables."""

    def check(name: str) -> None:
        inside = json.loads(
            namespace.exec(
                namespace.pods(name)[0], "python", "-c", INSPECT.read_text()
            )
        )
        assert inside["ids"] == [65532, 65532]
        assert (inside["capabilities"], inside["restrictions"]) == (
            [0, 0, 0],
            [1, 2],
        )
        assert inside["writable"] == ["/tmp"]  # noqa: S108 - the container's
        assert (
            inside["component"]
            == namespace.get("configmap", f"fleet-{name}-files")["data"]
        )
        assert inside["keys"]["api-keys"] == namespace.key(name, "api-keys")
        assert inside["environment"]["OPENAI_API_KEY"] == PROVIDER_KEY
        container = namespace.get("deployment", f"fleet-{name}")["spec"][
            "template"
        ]["spec"]["containers"][0]
        state_keys = namespace.key(name, "state-keys")
        variables = {
            each["name"]: each.get("value", state_keys)
            for each in container["env"]
        }
        assert variables.items() <= inside["environment"].items()
        assert (inside["memory"], inside["cpus"]) == (512 << 20, 1.0)

    side_by_side(check, NEWSROOM)


def test_probes(namespace: Namespace) -> None:
    """While a component's process is stopped, its pod is not ready; then the kubelet restarts the container."""

    def status() -> Manifest:
        (pod,) = namespace.objects(
            "pods",
            "app.kubernetes.io/component=desk,app.kubernetes.io/name=podwright",
        )
        return pod["status"]["containerStatuses"][0]

    before = status()["restartCount"]
    stop = "import os; [os.kill(int(pid), 19) for pid in open('/proc/1/task/1/children').read().split()]"
    namespace.exec(namespace.pods("desk")[0], "python", "-c", stop)
    namespace.until(lambda: not status()["ready"])
    namespace.until(
        lambda: status()["restartCount"] > before and status()["ready"]
    )

    def is_reported() -> bool:
        # not of the reason Unhealthy: after 25 warnings about a pod, the kubelet drops further ones
        events = namespace.kubectl(
            "get", "events", "--field-selector=reason=Killing"
        )
        return "failed liveness probe" in events

    namespace.until(is_reported)  # the kubelet sends events in the background


def test_each_key_has_one_purpose(namespace: Namespace) -> None:
    """A caller's key may only run, the key of Prometheus may only read, and another component's key may do nothing."""
    client = Client.start(namespace)
    caller = json.loads(namespace.key("newsroom", "agent-keys"))["writer"]
    admin = namespace.key("writer", "admin")
    written = (
        caller,
        namespace.key("writer", "metrics"),
        admin,
        namespace.key("newsroom", "admin"),
        "",
    )

    def status(request: tuple[str, str, str, Any]) -> int:
        method, path, key, body = request
        return client.answer(
            method, f"http://fleet-writer:8000{path}", key, body
        )[0]

    namespace.until(lambda: status(("GET", "/health", "", None)) == 200)
    posts = [("POST", "/run", key, {"input": "the moon"}) for key in written]
    assert side_by_side(status, posts) == [200, 403, 200, 401, 401]
    assert side_by_side(
        status, [("GET", "/metrics", key, None) for key in written]
    ) == [
        403,
        200,
        200,
        401,
        401,
    ]


@pytest.fixture
def resources(namespace: Namespace) -> list[Manifest]:
    """The objects of the production example, which has one of each kind."""
    return helm4(example_values("production"), namespace=namespace.name)


def test_custom_resources(
    cluster: Cluster, installed: list[Installed], resources: list[Manifest]
) -> None:
    """The API server accepts every object of the production example, without unknown fields, and has them."""
    # as Helm 4, whose fields may be taken away: a Deployment of a component without SQLite has another strategy
    cluster.apply(resources, "--dry-run=server", "--field-manager=helm")
    custom = {
        (each["apiVersion"], each["kind"]): each
        for each in resources
        if each["apiVersion"] in CUSTOM
    }
    assert set(custom) == {
        (api, kind) for api, kinds in CUSTOM.items() for kind in kinds
    }
    for each in installed:
        # test_background.py has it
        for kind in {kind for _, kind in custom} - {"TriggerAuthentication"}:
            rendered = {
                one["metadata"]["name"]
                for one in resources
                if one["kind"] == kind
            }
            assert names(each.production, kind) == rendered


def test_the_validation_finds_faults(
    cluster: Cluster, resources: list[Manifest]
) -> None:
    """In each kind of custom resources, an unknown field and a field of the wrong type are errors."""
    custom = {
        each["kind"]: each for each in resources if each["apiVersion"] in CUSTOM
    }
    for manifest in custom.values():
        for field, value in (
            ("bogus", 1),
            (next(iter(manifest["spec"])), [[7]]),
        ):
            faulty = {**manifest, "spec": {**manifest["spec"], field: value}}
            with pytest.raises(AssertionError, match=rf"spec\.{field}"):
                cluster.apply([faulty], "--dry-run=server")


def test_an_upgrade_restarts_only_what_changes(
    installed: list[Installed],
) -> None:
    """A changed blueprint restarts the pods of its component only; a rollback restores them; the keys stay."""

    def check(each: Installed) -> None:
        namespace = each.newsroom
        before = (pods(namespace), templates(namespace), keys(namespace))
        files = namespace.get("configmap", "fleet-writer-files")["data"]
        values = newsroom()
        values["components"]["writer"]["blueprint"]["inline"][
            "instructions"
        ] = "Write."
        each.upgrade(values)
        after = pods(namespace)
        assert {
            name for name, ids in after.items() if ids != before[0][name]
        } == {"writer"}
        (writer,) = after["writer"]
        if not each.placement:
            assert '"instructions": "Write."' in namespace.exec(
                writer, "cat", "/component/blueprint.json"
            )
        assert keys(namespace) == before[2]
        namespace.helm(
            "rollback",
            "fleet",
            "--wait",
            "--timeout=180s",
            version=each.version,
        )
        namespace.wait_for_rollouts()
        assert (templates(namespace), keys(namespace)) == before[1:]
        assert namespace.get("configmap", "fleet-writer-files")["data"] == files
        assert {
            name for name, ids in pods(namespace).items() if ids != after[name]
        } == {"writer"}

    side_by_side(check, installed)


def test_an_upgrade_keeps_the_keys(
    installed: list[Installed], namespace: Namespace
) -> None:
    """The first installation makes a seed, from which each upgrade derives the same keys, until it is deleted."""
    before = (keys(namespace), templates(namespace), pods(namespace))
    assert len(before[0]["fleet-seed"]["seed"]) == 48
    larger = newsroom()
    larger["components"]["extra"] = {"agents": ["writer"], "replicas": 0}
    installed[-1].upgrade(larger)
    after = keys(namespace)
    assert before[0].items() <= after.items()
    assert before[1].items() <= templates(namespace).items()
    assert before[2] == pods(namespace)
    sent = json.loads(after["fleet-extra-keys"]["agent-keys"])["writer"]
    assert f":{sent}" in after["fleet-writer-keys"]["api-keys"]
    namespace.kubectl("delete", "secret", "fleet-seed")
    # without pods, which would get new keys
    namespace.helm(
        "upgrade", "fleet", CHART, "--reuse-values", "--set=defaults.replicas=0"
    )
    assert set(keys(namespace)) == set(after)
    assert [
        name
        for name, entries in keys(namespace).items()
        if entries == after[name]
    ] == []


def test_uninstall(installed: list[Installed]) -> None:
    """Uninstalling a release deletes all of its objects, and no other ones."""

    def check(each: Installed) -> None:
        namespace = each.production
        manifest = namespace.helm(
            "get", "manifest", "fleet", version=each.version
        )
        others = keys(namespace, "elsewhere")
        namespace.helm("uninstall", "fleet", version=each.version)
        namespace.until(
            lambda: (
                namespace.kubectl(
                    "get", "--filename=-", "--ignore-not-found", text=manifest
                )
                == ""
            )
        )
        assert keys(namespace, "elsewhere") == others
        assert {"fleet-writer-env", "openai"} <= names(namespace, "secrets")
        assert [
            name for name in names(namespace, "secrets") if "fleet.v" in name
        ] == []
        namespace.helm("status", "elsewhere", version=each.version)

    side_by_side(check, installed)
