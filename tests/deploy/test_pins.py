"""What workflows and releases take from elsewhere is pinned, and renewed by Dependabot."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from tests import image_support
from tests.helpers import ROOT

WORKFLOWS = [
    *sorted(ROOT.glob(".github/workflows/*.y*ml")),
    ROOT / "action.yml",
]
USES = re.compile(r"^\s*(?:-\s+)?uses:\s*(.*)$", re.MULTILINE)
PINNED_ACTION = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
PINNED_IMAGE = re.compile(r"([a-z/]+:[\w.-]+)@sha256:[0-9a-f]{64}")
BASE = ROOT / "deploy" / "base" / "Dockerfile"


def unpinned(workflow: str) -> list[str]:
    """The actions of a workflow, other than those of this repository, without a commit and its version."""
    return [
        action
        for action in USES.findall(workflow)
        if not action.startswith("./") and not PINNED_ACTION.fullmatch(action)
    ]


def pinned_base() -> str:
    """The base image of releases with its digest."""
    (image,) = re.findall(r"^FROM (.*)$", BASE.read_text(), re.MULTILINE)
    return image


@pytest.mark.parametrize(
    ("action", "is_pinned"),
    [
        (f"actions/checkout@{'0a' * 20} # v7.0.1", True),
        (f"github/codeql-action/init@{'0a' * 20} # v4.0.0", True),
        ("./.github/workflows/check.yml", True),
        (f"actions/checkout@{'0a' * 20}", False),
        (f"actions/checkout@{'0a' * 20} # main", False),
        ("actions/checkout@v7", False),
        ("actions/checkout@0a0a0a0 # v7.0.1", False),
        ("docker://alpine:3", False),
    ],
)
def test_what_counts_as_pinned(action: str, is_pinned: bool) -> None:
    """A tag can be moved; a commit cannot, and the version beside it lets Dependabot renew it."""
    for line in (f"      - uses: {action}\n", f"    uses: {action}\n"):
        assert (unpinned(line) == []) == is_pinned


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned(workflow: Path) -> None:
    """Each action of another repository is pinned by its commit."""
    text = workflow.read_text()
    assert USES.search(text)
    assert unpinned(text) == []


def test_the_base_image_is_pinned() -> None:
    """The base image of releases has a digest, and is the one that all Dockerfiles name."""
    match = PINNED_IMAGE.fullmatch(pinned_base())
    assert match is not None
    tag = match[1]
    assert f"ARG BASE_IMAGE={tag}\n" in (ROOT / "Dockerfile").read_text()
    components = "service/src/podwright_service/images/Dockerfile"
    assert f"ARG PYTHON={tag}\n" in (ROOT / components).read_text()
    assert tag == image_support.BASE


def test_pins_are_renewed() -> None:
    """Dependabot looks where the pins are, and waits as long as `make lock`."""
    config = yaml.safe_load((ROOT / ".github/dependabot.yml").read_text())
    folders: dict[str, str] = {}
    for update in config["updates"]:
        folders[update["package-ecosystem"]] = update["directory"]
        assert update["cooldown"]["default-days"] == 7
    assert folders == {
        "github-actions": "/",
        "docker": f"/{BASE.parent.relative_to(ROOT)}",
    }


CLIENT = """#!/bin/sh
case "$1 $2" in
    "compose version" | "buildx version") ;;
    "image inspect") echo "$DIGESTS"; test -n "$DIGESTS" ;;
    *) exit 1 ;;
esac
"""


@pytest.mark.parametrize(
    ("digests", "chosen", "expected"),
    [
        ("", "", "pinned"),
        ("[python@sha256:1]", "", "pinned"),
        ("[]", "", image_support.BASE),
        ("", "registry.example/python:3.13", "registry.example/python:3.13"),
    ],
    ids=["no image", "of a registry", "made here", "chosen"],
)
def test_the_base_image_to_build_with(
    tmp_path: Path, digests: str, chosen: str, expected: str
) -> None:
    """It has its digest, unless `make engine` made it, which no registry has, or another one is chosen."""
    client = tmp_path / "docker"
    client.write_text(CLIENT)
    client.chmod(0o755)
    variables = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "DIGESTS": digests,
        "BASE_IMAGE": chosen,
    }
    done = subprocess.run(
        [ROOT / "deploy/engine.sh", "base"],
        env=variables,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == expected.replace("pinned", pinned_base())
