"""docs/operations.md: its commands work, the objects that they name exist, and every alert has a section."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.helm.conftest import CHART, Manifest, by_name, example_values, helm4, read, rendered
from tests.helpers import ROOT, environment, tool
from tests.observability.support import RULES

from podwright.errors import DOCS_URL

PAGE = (ROOT / "docs" / "operations.md").read_text()
COMMANDS = [
    line for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL) for line in block.splitlines()
]
UPGRADES = [line for line in COMMANDS if line.startswith("helm upgrade")]
NEWSROOM = CHART / "examples" / "newsroom" / "values.yaml"
WITHOUT_VALUE = {"--install", "--create-namespace", "--wait", "--reset-then-reuse-values"}
VARIABLES = {"OLD": "o" * 48, "NEW": "n" * 64}


def upgraded(command: str) -> list[Manifest]:
    """The manifests after an upgrade of the newsroom; `template` has all flags except those about a cluster."""
    words = shlex.split(re.sub(r"\$(\w+)", lambda match: VARIABLES[match[1]], command))[2:]
    assert words[1:3] == ["fleet", "helm/podwright"]
    flags = [word for word in words[3:] if word not in WITHOUT_VALUE]
    if "--timeout" in flags:
        del flags[flags.index("--timeout") : flags.index("--timeout") + 2]
    values = [] if "--values" in flags else ["--values", str(NEWSROOM)]
    template = [tool("helm3"), "template", "fleet", "helm/podwright", "--kube-version", "1.30.0"]
    done = subprocess.run([*template, *values, *flags], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stderr}"
    return read([done.stdout])


def test_every_command_is_tested() -> None:
    """The page has only commands that a test below checks, or that only read from a cluster."""
    assert len(UPGRADES) >= 9
    checked = r"helm (upgrade|test|history|rollback|get)|podwright deploy|kubectl|OLD=\$\(kubectl|NEW=\$\(openssl"
    assert [line for line in COMMANDS if not re.match(checked, line)] == []


@pytest.mark.parametrize("command", UPGRADES)
def test_an_upgrade_renders(command: str) -> None:
    """Helm accepts the flags and values of the command, and the release changes."""
    objects = upgraded(command)
    assert {manifest["metadata"]["namespace"] for manifest in objects} == {"prod"}
    if "--values" not in command and "components.writer.blueprint.inline" not in command:
        assert by_name(objects) != by_name(rendered("newsroom"))


def test_the_deploy_commands_work(tmp_path: Path) -> None:
    """The commands that write and compare values files work in their order, and the chart accepts the values."""
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    (tmp_path / "running.yaml").write_text(NEWSROOM.read_text())
    commands = [line for line in COMMANDS if line.startswith("podwright deploy")]
    assert len(commands) == 3
    for line in commands:
        done = subprocess.run(["bash", "-c", line], cwd=tmp_path, env=environment(), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        if " diff " in line:
            assert done.stdout == ""  # the release is made of this folder
        else:
            values = yaml.safe_load((tmp_path / "fleet.yaml").read_text())
            assert set(values["components"]) == set(example_values("newsroom")["components"])
            assert helm4(values)


def test_the_objects_in_kubectl_commands_exist() -> None:
    """Objects, entries, labels and annotations in the kubectl commands are those of the newsroom's release."""
    objects = by_name(rendered("newsroom"))
    kubectl = "\n".join(line for line in COMMANDS if "kubectl" in line)
    for name, entry in re.findall(r"get secret (\S+) .*\.data\.([\w-]+)", kubectl):
        assert entry in objects["Secret", name]["data"]
    for name in re.findall(r"service/(\S+)", kubectl):
        assert ("Service", name) in objects
    template = objects["Deployment", "fleet-writer"]["spec"]["template"]["metadata"]
    for label, value in re.findall(r"(app\.kubernetes\.io/\w+)=(\w+)", kubectl):
        assert template["labels"][label] == value
    annotations = re.findall(r"annotations\.(\S+?)'", kubectl)
    assert annotations
    assert {name.replace("\\", "") for name in annotations} <= set(template["annotations"])


def test_every_alert_has_a_section() -> None:
    """Each alert links to a section with its name, in the order of the file, and there are no other sections."""
    alerts = [rule for rule in RULES if "alert" in rule]
    assert re.findall(r"^### (\w+)$", PAGE, re.MULTILINE) == [rule["alert"] for rule in alerts]
    for rule in alerts:
        assert rule["annotations"]["runbook_url"] == f"{DOCS_URL}/operations.html#{rule['alert'].lower()}"


def test_the_values_on_the_page_exist() -> None:
    """Settings and values in the page's text are those of the chart."""
    schema = (CHART / "values.schema.json").read_text()
    assert [name for name in set(re.findall(r"settings\.(\w+)", PAGE)) if f'"{name}"' not in schema] == []
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    paths = set(re.findall(r"`((?:apiKeys|prometheusRule|networkPolicy|drain|defaults)\.[\w.]+)`", PAGE))
    assert [path for path in paths if not has(values, path) and not has(values["defaults"], path)] == []


def has(values: Manifest, path: str) -> bool:
    """Whether a value exists, such as `drain.timeout`."""
    key, _, below = path.partition(".")
    return key in values and (not below or has(values[key], below))
