"""docs/operations.md: its commands, run in the page's order in one shell, and what each of them does."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest
import yaml
from tests.cluster.cluster import Namespace, side_by_side
from tests.helm.conftest import Manifest, example_values
from tests.helpers import ROOT, environment
from tests.ports import free_port

from podwright import blueprints

PAGE = (ROOT / "docs" / "operations.md").read_text()
COMMANDS = [
    line
    for block in re.findall(
        r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL
    )
    for line in block.splitlines()
]
COMPONENTS = ("desk", "newsroom", "researcher", "reviewer", "writer")
ASK = """
import http.client, sys
connection = http.client.HTTPConnection("127.0.0.1:8000")
connection.request("GET", "/metrics", headers={"authorization": f"Bearer {sys.argv[1]}"})
print(connection.getresponse().status)
"""
"""Prints the status of a request that a component's pod sends to itself, with a key."""


class Shell:
    """A bash session."""

    def __init__(self, folder: Path, variables: dict[str, str]) -> None:
        command = ["timeout", "900", "bash"]
        pipe = subprocess.PIPE
        self._bash = subprocess.Popen(
            command,
            cwd=folder,
            env=variables,
            stdin=pipe,
            stdout=pipe,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, command: str) -> str:
        """The output of a command, which must succeed."""
        self._stream(self._bash.stdin).write(
            f'{command}\necho "exit code: $?"\n'
        )
        self._stream(self._bash.stdin).flush()
        output = ""
        for line in self._stream(self._bash.stdout):
            text, marker, code = line.partition("exit code: ")
            output += text
            if marker:
                assert code == "0\n", f"{command}\n{output}"
                return output
        raise AssertionError(f"The shell ended.\n{command}\n{output}")

    @staticmethod
    def _stream(stream: IO[str] | None) -> IO[str]:
        assert stream is not None
        return stream

    def close(self) -> None:
        self._bash.communicate("kill %1 2> /dev/null; exit\n")


class Walk:
    """A walk along the page; each check is called with the output of the command that begins as its key in `CHECKS`."""

    def __init__(
        self, namespace: Namespace, shell: Shell, folder: Path
    ) -> None:
        self.namespace = namespace
        self.shell = shell
        self.folder = folder
        self.pods: dict[str, Manifest] = {}
        self.keys: dict[str, str] = {}

    def deployment(self, component: str) -> Manifest:
        return self.namespace.get("deployment", f"fleet-{component}")

    def variables(self, component: str) -> dict[str, str]:
        container = self.deployment(component)["spec"]["template"]["spec"][
            "containers"
        ][0]
        return {
            each["name"]: each["value"]
            for each in container["env"]
            if "value" in each
        }

    def templates(self) -> dict[str, Manifest]:
        """The template of the pods of each component."""
        return {
            name: self.deployment(name)["spec"]["template"]
            for name in COMPONENTS
        }

    def current_keys(self) -> dict[str, str]:
        return {name: self.namespace.key(name) for name in COMPONENTS}

    def accepts(self, component: str, key: str) -> bool:
        """Whether a component accepts a key."""
        status = self.namespace.exec(
            self.namespace.pods(component)[0], "python", "-c", ASK, key
        ).strip()
        assert status in ("200", "401")
        return status == "200"


def rendered(walk: Walk, _: str) -> None:
    values = yaml.safe_load((walk.folder / "fleet.yaml").read_text())
    assert (
        values["components"].keys()
        == example_values("newsroom")["components"].keys()
    )


def manifests(_: Walk, output: str) -> None:
    kinds = [each["kind"] for each in yaml.safe_load_all(output) if each]
    assert kinds.count("Deployment") == len(COMPONENTS)


def installed(walk: Walk, _: str) -> None:
    walk.namespace.wait_for_rollouts()
    walk.keys = walk.current_keys()


def passed(_: Walk, output: str) -> None:
    assert output.count("Succeeded") == len(COMPONENTS)


def answered(_: Walk, output: str) -> None:
    (body,) = re.findall(r"^\{.*\}", output, re.MULTILINE)
    assert "the moon" in json.loads(body)["writer_output"]


def has_secret(walk: Walk, _: str) -> None:
    assert walk.namespace.get("secret", "openai")["data"].keys() == {
        "OPENAI_API_KEY"
    }


def uses_providers(walk: Walk, _: str) -> None:
    assert "PODWRIGHT_MODEL" not in walk.variables("writer")
    template = walk.deployment("writer")["spec"]["template"]["spec"]
    assert template["containers"][0]["envFrom"] == [
        {"secretRef": {"name": "openai"}}
    ]
    walk.pods = walk.templates()


def upgraded(walk: Walk, _: str) -> None:
    walk.namespace.wait_for_rollouts()
    assert {
        name
        for name, pods in walk.templates().items()
        if pods != walk.pods[name]
    } == {"writer"}
    assert walk.variables("writer").get("PODWRIGHT_MODEL") is None
    assert walk.current_keys() == walk.keys
    (pod,) = walk.namespace.pods("writer")
    assert "OPENAI_API_KEY=the-key-of-the-provider\n" in walk.namespace.exec(
        pod, "env"
    )


def has_history(_: Walk, output: str) -> None:
    assert [line.split()[0] for line in output.splitlines()[1:]] == [
        "1",
        "2",
        "3",
    ]


def rolled_back(walk: Walk, _: str) -> None:
    walk.namespace.wait_for_rollouts()
    assert walk.templates() == walk.pods


def read_values(walk: Walk, _: str) -> None:
    assert (
        yaml.safe_load((walk.folder / "running.yaml").read_text())["defaults"][
            "model"
        ]
        == ""
    )


def compared(_: Walk, output: str) -> None:
    assert output == ""  # the release is made of this folder


def updated(walk: Walk, _: str) -> None:
    values = yaml.safe_load((walk.folder / "fleet.yaml").read_text())
    assert values == yaml.safe_load((walk.folder / "running.yaml").read_text())


def listed(_: Walk, output: str) -> None:
    components = example_values("newsroom")["components"]
    digests = {
        name: blueprints.digest(components[name]["blueprint"]["inline"])
        for name in COMPONENTS
    }
    found = [line.split() for line in output.splitlines()[1:]]
    assert {pod.split("-")[1]: digest for pod, digest in found} == digests


def scaled(walk: Walk, _: str) -> None:
    walk.namespace.wait_for_rollouts()
    assert walk.deployment("writer")["spec"]["replicas"] == 3


def has_autoscaler(walk: Walk, _: str) -> None:
    spec = walk.namespace.get("horizontalpodautoscaler", "fleet-writer")["spec"]
    assert (spec["minReplicas"], spec["maxReplicas"]) == (1, 10)
    assert walk.deployment("writer")["spec"]["replicas"] == 3


def has_scaled_object(walk: Walk, _: str) -> None:
    (trigger,) = walk.namespace.get("scaledobject", "fleet-writer")["spec"][
        "triggers"
    ]
    assert (trigger["type"], trigger["metadata"]["threshold"]) == (
        "prometheus",
        "8",
    )
    assert walk.namespace.objects("horizontalpodautoscalers") == []
    assert walk.deployment("writer")["spec"]["replicas"] == 3


def accepts_both(walk: Walk, _: str) -> None:
    """Pods that were not restarted read the changed Secret within a minute or two."""
    walk.namespace.wait_for_rollouts()
    keys = walk.current_keys()

    def check(name: str) -> None:
        walk.namespace.until(lambda: walk.accepts(name, keys[name]))
        assert walk.accepts(name, walk.keys[name])

    side_by_side(check, COMPONENTS)


def rotated(walk: Walk, _: str) -> None:
    walk.namespace.wait_for_rollouts()
    keys = walk.current_keys()

    def check(name: str) -> None:
        walk.namespace.until(lambda: not walk.accepts(name, walk.keys[name]))
        assert walk.accepts(name, keys[name])

    side_by_side(check, COMPONENTS)


def is_monitored(walk: Walk, _: str) -> None:
    monitors = walk.namespace.objects("servicemonitors")
    assert [each["metadata"]["name"] for each in monitors] == [
        f"fleet-{name}" for name in COMPONENTS
    ]
    (rules,) = walk.namespace.objects("prometheusrules")
    (dashboard,) = walk.namespace.objects("configmaps", "grafana_dashboard=1")
    alerts = {
        rule["alert"]
        for group in rules["spec"]["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }
    assert alerts == set(re.findall(r"^### (\w+)$", PAGE, re.MULTILINE))
    assert json.loads(next(iter(dashboard["data"].values())))["panels"]
    for name in COMPONENTS:
        assert (
            walk.variables(name)["OTEL_EXPORTER_OTLP_ENDPOINT"]
            == "http://collector.observability:4318"
        )


UPGRADE = "helm upgrade --install fleet helm/podwright --namespace prod"
SET = f"{UPGRADE} --reset-then-reuse-values --set"
CHECKS: dict[str, Callable[[Walk, str], None] | None] = {
    "podwright deploy render deploy/examples/newsroom/{": rendered,
    "helm template": manifests,
    f"{UPGRADE} --create-namespace": installed,
    "helm test": passed,
    "kubectl port-forward": None,
    "KEY=": None,
    "curl": answered,
    "kill": None,
    "kubectl create secret": has_secret,
    f"{SET} defaults.model= ": uses_providers,
    f"{SET}-file components.writer.blueprint.inline": upgraded,
    "helm history": has_history,
    "helm rollback": rolled_back,
    "helm get values": read_values,
    "podwright deploy diff": compared,
    "podwright deploy render deploy/examples/newsroom/writer --onto": updated,
    "kubectl get pods": listed,
    f"{SET} components.writer.replicas=3": scaled,
    f"{SET} components.writer.autoscaling.type=hpa": has_autoscaler,
    f"{SET} components.writer.autoscaling.type=keda": has_scaled_object,
    "OLD=": None,
    "NEW=": None,
    f'{SET} "apiKeys.seeds={{$OLD,$NEW}}"': accepts_both,
    f'{SET} "apiKeys.seeds={{$NEW,$OLD}}"': accepts_both,
    f'{SET} "apiKeys.seeds={{$NEW}}"': rotated,
    f"{SET} defaults.monitor.type=service": is_monitored,
}
"""What is checked after the command that begins so; the commands after those without a check depend on them."""


@pytest.fixture
def walk(
    make_namespace: Callable[[], Namespace], tmp_path: Path
) -> Iterator[Walk]:
    """A walk in a folder with what the commands use of this repository."""
    namespace = make_namespace()
    for name in ("deploy", "helm"):
        (tmp_path / name).symlink_to(ROOT / name)
    cluster = namespace.cluster
    repository, _, tag = namespace.image.partition(":")
    programs = [
        str(Path(program).parent)
        for program in (cluster.client, cluster.find_helm(4))
        if "/" in program
    ]
    variables = environment(
        KUBECONFIG=cluster.config,
        REPOSITORY=repository,
        TAG=tag,
        OPENAI_API_KEY="the-key-of-the-provider",
    )
    shell = Shell(
        tmp_path,
        {**variables, "PATH": ":".join([*programs, variables["PATH"]])},
    )
    try:
        yield Walk(namespace, shell, tmp_path)
    finally:
        shell.close()


def test_the_commands_work(walk: Walk) -> None:
    """Each command of the page works where it stands; only the namespace and the port of this machine are others."""
    checks = list(CHECKS.items())
    port = str(free_port())
    assert len(COMMANDS) == len(checks)
    for command, (beginning, check) in zip(COMMANDS, checks, strict=True):
        assert command.startswith(beginning)
        here = command.replace(
            "--namespace prod", f"--namespace {walk.namespace.name}"
        )
        output = walk.shell.run(
            re.sub(
                r"\b8000:|(?<=localhost:)8000",
                lambda each: each[0].replace("8000", port),
                here,
            )
        )
        if check:
            check(walk, output)
