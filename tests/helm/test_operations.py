"""The page on operations: its commands are taken by Helm, name what is there, and every alert has its entry."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import CHART, ROOT, Manifest, helm4, read, tool

PAGE = (ROOT / "docs" / "operations.md").read_text()
COMMANDS = [
    line for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL) for line in block.splitlines()
]
UPGRADES = [line for line in COMMANDS if line.startswith("helm upgrade")]
NEWSROOM = CHART / "examples" / "newsroom" / "values.yaml"
WITHOUT_VALUE = {"--install", "--create-namespace", "--wait", "--reset-then-reuse-values"}
VARIABLES = {"OLD": "o" * 48, "NEW": "n" * 64}


def rendered(command: str) -> list[Manifest]:
    """What an upgrade would install over the newsroom; `template` takes all flags but those about a cluster."""
    words = shlex.split(re.sub(r"\$(\w+)", lambda match: VARIABLES[match[1]], command))[2:]
    assert words[1:3] == ["fleet", "helm/podwright"]
    flags = [word for word in words[3:] if word not in WITHOUT_VALUE]
    if "--timeout" in flags:
        del flags[flags.index("--timeout") : flags.index("--timeout") + 2]
    given = [] if "--values" in flags else ["--values", str(NEWSROOM)]
    done = subprocess.run(
        [tool("helm3"), "template", "fleet", "helm/podwright", "--kube-version", "1.30.0", *given, *flags],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stderr}"
    return read([done.stdout])


def test_there_are_commands() -> None:
    """Every command of the page is one that a test below looks at."""
    assert len(UPGRADES) >= 9
    for line in COMMANDS:
        known = r"helm (upgrade|test|history|rollback|get)|podwright deploy|kubectl|OLD=\$\(kubectl|NEW=\$\(openssl"
        assert re.match(known, line), line


def test_values_files_are_made(tmp_path: Path) -> None:
    """The commands that make and compare values files work, one after the other; the chart takes what they make."""
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PODWRIGHT_")}
    given = {**kept, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    made = [line for line in COMMANDS if line.startswith("podwright deploy")]
    assert len(made) == 3
    for line in made:
        (tmp_path / "running.yaml").write_text(NEWSROOM.read_text())
        done = subprocess.run(["bash", "-c", line], cwd=tmp_path, env=given, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        if " diff " in line:
            assert done.stdout == ""  # the example is that very folder
        else:
            values = yaml.safe_load((tmp_path / "fleet.yaml").read_text())
            assert set(values["components"]) == {"desk", "newsroom", "researcher", "reviewer", "writer"}
            assert helm4(values)


@pytest.mark.parametrize("command", UPGRADES)
def test_upgrades_render(command: str) -> None:
    """Helm takes the flags and values of every upgrade, and it changes what the values install."""
    plain = helm4(yaml.safe_load(NEWSROOM.read_text()))
    changed = rendered(command)
    names = [
        [(each["kind"], each["metadata"]["name"], str(each.get("spec"))) for each in side] for side in (plain, changed)
    ]
    if "--values" not in command and "components.writer.blueprint.inline" not in command:
        assert sorted(names[0]) != sorted(names[1])
    assert {each["metadata"]["namespace"] for each in changed} == {"prod"}


def test_kubectl_names_what_is_there() -> None:
    """The objects, entries, labels and annotations that kubectl is asked for are those of the newsroom's release."""
    values: dict[str, Any] = yaml.safe_load(NEWSROOM.read_text())
    objects = {(each["kind"].lower(), each["metadata"]["name"]): each for each in helm4(values)}
    asked = [line for line in COMMANDS if "kubectl" in line]
    for line in asked:
        for kind, name, entry in re.findall(r"get (secret) (\S+) .*\.data\.([\w-]+)", line):
            assert entry in objects[kind, name]["data"], line
        for kind, name in re.findall(r"(service)/(\S+)", line):
            assert (kind, name) in objects
    (pods,) = [line for line in asked if "get pods" in line]
    template = objects["deployment", "fleet-writer"]["spec"]["template"]["metadata"]
    assert "app.kubernetes.io/instance=fleet" in pods
    assert template["labels"]["app.kubernetes.io/instance"] == "fleet"
    annotation = re.search(r"annotations\.(\S+?)'", pods)
    assert annotation is not None
    assert annotation[1].replace("\\", "") in template["annotations"]


def test_every_alert_has_its_entry() -> None:
    """Each alert has a heading of its name, which it links to, and no other heading looks like one."""
    groups = yaml.safe_load((Path(ROOT) / "deploy" / "observability" / "alerts.yaml").read_text())["groups"]
    alerts = [rule for group in groups for rule in group["rules"] if "alert" in rule]
    assert re.findall(r"^### (\w+)$", PAGE, re.MULTILINE) == [rule["alert"] for rule in alerts]
    for rule in alerts:
        assert rule["annotations"]["runbook_url"].partition("/operations#")[2] == rule["alert"].lower()


def test_values_that_the_page_names_are_there() -> None:
    """Settings and values in the page's text are those of the chart."""
    schema = (CHART / "values.schema.json").read_text()
    for setting in set(re.findall(r"settings\.(\w+)", PAGE)):
        assert f'"{setting}"' in schema, setting
    written = yaml.safe_load((CHART / "values.yaml").read_text())
    for path in set(re.findall(r"`((?:apiKeys|prometheusRule|networkPolicy|drain|defaults)\.[\w.]+)`", PAGE)):
        at: Any = None
        for place in (written, written["defaults"]):
            at = place
            for part in path.split("."):
                at = at.get(part, "missing") if isinstance(at, dict) else "missing"
            if at != "missing":
                break
        assert at != "missing", path
