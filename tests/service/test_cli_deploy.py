"""`podwright deploy`, as a shell sees it."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from podwright.errors import ConfigurationError
from podwright_service import deploy

Shell = Callable[..., subprocess.CompletedProcess[str]]
NAMES = ("researcher", "reviewer", "writer", "newsroom")


@pytest.fixture
def running(newsroom: Path) -> str:
    """What `helm get values` prints of a release of the newsroom, with its heading for people."""
    values = deploy.render(newsroom / name for name in NAMES)
    values["components"]["writer"] |= {"replicas": 3, "agents": [{"name": "far", "url": "https://far.example"}]}
    return "USER-SUPPLIED VALUES:\n" + deploy.write_values({"defaults": {"model": "offline/echo"}, **values})


def changed(folder: Path, at: Path, old: str, new: str) -> str:
    """A copy of a component's folder with one text in its blueprint replaced."""
    shutil.copytree(folder, at)
    text = (at / "blueprint.json").read_text()
    assert old in text
    (at / "blueprint.json").write_text(text.replace(old, new))
    return str(at)


def test_render(shell: Shell, newsroom: Path, tmp_path: Path) -> None:
    """Folders become a values file, on standard output or in a file, with texts of several lines as blocks."""
    folders = [str(newsroom / name) for name in NAMES]
    printed = shell("deploy", "render", *folders)
    assert (printed.returncode, printed.stderr) == (0, "")
    assert yaml.safe_load(printed.stdout) == deploy.render(folders)
    assert "      tools.py: |\n" in printed.stdout
    written = shell("deploy", "render", *folders, "--output", "fleet.yaml")
    assert (written.returncode, written.stdout) == (0, "fleet.yaml: newsroom, researcher, reviewer, writer\n")
    assert (tmp_path / "fleet.yaml").read_text() == printed.stdout


def test_render_onto(shell: Shell, newsroom: Path, running: str, tmp_path: Path) -> None:
    """Put into a release's values, a folder renews its component's blueprint; all else stays as it was."""
    folder = changed(newsroom / "writer", tmp_path / "writer", "general newspaper", "local newspaper")
    done = shell("deploy", "render", folder, "--onto", "-", given=running)
    assert done.returncode == 0, done.stderr
    before, after = deploy.read_values(running), yaml.safe_load(done.stdout)
    assert "local newspaper" in after["components"]["writer"]["blueprint"]["inline"]["instructions"]
    assert after["components"]["writer"]["replicas"] == 3
    assert after["defaults"] == before["defaults"]
    assert {name: after["components"][name] for name in NAMES[:2]} == {
        name: before["components"][name] for name in NAMES[:2]
    }


def test_render_refuses(shell: Shell, newsroom: Path, tmp_path: Path) -> None:
    """A folder that cannot be a component is an error with its reason, and nothing is written."""
    done = shell("deploy", "render", str(newsroom / "newsroom"), "--output", "fleet.yaml")
    assert done.returncode == 1
    assert "works with 'researcher'" in done.stderr
    assert not (tmp_path / "fleet.yaml").exists()
    assert shell("deploy", "render").returncode == 2


def test_diff_of_a_folder(shell: Shell, newsroom: Path, running: str, tmp_path: Path) -> None:
    """A changed folder against a release tells what is compatible; what it does not say counts as unchanged."""
    folder = changed(newsroom / "newsroom", tmp_path / "newsroom", '"max_iterations": 3', '"max_iterations": 2')
    done = shell("deploy", "diff", "-", folder, "--exit-code", given=running)
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = done.stdout.splitlines()
    assert line.startswith("newsroom: compatible: /steps/")
    assert line.endswith("max_iterations changed: 3 -> 2")
    unchanged = shell("deploy", "diff", "-", str(newsroom / "reviewer"), given=running)
    assert (unchanged.returncode, unchanged.stdout) == (0, "")


def test_diff_that_breaks(shell: Shell, newsroom: Path, running: str, tmp_path: Path) -> None:
    """A breaking change is told of, and is exit code 1 where that was asked for."""
    (tmp_path / "running.yaml").write_text(running)
    folder = changed(newsroom / "researcher", tmp_path / "researcher", '"integer"', '"string"')
    done = shell("deploy", "diff", "running.yaml", folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("researcher: breaking: /tools/search_archive/")
    assert shell("deploy", "diff", "running.yaml", folder, "--exit-code").returncode == 1
    (told,) = json.loads(shell("deploy", "diff", "running.yaml", folder, "--json").stdout)
    assert (told["component"], told["what"], told["breaking"], told["values"]) == ("researcher", "changed", True, [])
    assert told["blueprint"][0]["breaking"] is True


def test_diff_of_values(shell: Shell, running: str, tmp_path: Path) -> None:
    """A whole values file is compared value by value, components that come and go included."""
    values = deploy.read_values(running)
    values["components"]["writer"]["replicas"] = 1
    values["components"]["writer"]["resources"] = {"limits": {"cpu": 2}}
    del values["components"]["newsroom"]
    values["components"]["fresh"] = {}
    values["defaults"]["model"] = "openai/gpt-4o-mini"
    (tmp_path / "new.json").write_text(json.dumps(values))
    done = shell("deploy", "diff", "-", "new.json", "--exit-code", given=running)
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "the fleet: value: defaults.model changed",
        "compatible: fresh added",
        "breaking: newsroom removed",
        "writer: value: replicas changed",
        "writer: value: resources.limits.cpu changed",
    ]


def test_diff_with_nothing(shell: Shell, newsroom: Path) -> None:
    """A release without values, as Helm prints it, has no component; what is no values is an error that says so."""
    for text in ("null\n", "USER-SUPPLIED VALUES:\nnull\n"):
        empty = shell("deploy", "diff", "-", str(newsroom / "writer"), given=text)
        assert (empty.returncode, empty.stdout) == (0, "compatible: writer added\n")
    refused = shell("deploy", "diff", "-", str(newsroom / "writer"), given="[1]")
    assert refused.returncode == 1
    assert "no values of the chart: no map" in refused.stderr
    for text in ((newsroom / "writer" / "blueprint.json").read_text(), "components: []", "a: ["):
        with pytest.raises(ConfigurationError, match="no values of the chart"):
            deploy.read_values(text)
