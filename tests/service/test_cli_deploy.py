"""`podwright deploy`."""

from __future__ import annotations

import base64
import json
import random
import shutil
from pathlib import Path

import pytest
import yaml
from tests.service.support import AGENT, Shell

from podwright_service.fleet import chart_values
from podwright_service.fleet.releases import MAX_RELEASE_BYTES, split

NAMES = ("researcher", "reviewer", "writer", "newsroom")


@pytest.fixture
def running(newsroom: Path) -> str:
    """The output of `helm get values` for a release of the newsroom."""
    values = chart_values.render(newsroom / name for name in NAMES)
    values["components"]["writer"] |= {
        "replicas": 3,
        "agents": [{"name": "far", "url": "https://far.example"}],
    }
    return "USER-SUPPLIED VALUES:\n" + chart_values.write_values(
        {"defaults": {"model": "offline/echo"}, **values}
    )


def changed_copy(folder: Path, target: Path, old: str, new: str) -> str:
    """A copy of a component folder with one text in its blueprint replaced."""
    shutil.copytree(folder, target)
    text = (target / "blueprint.json").read_text()
    assert old in text
    (target / "blueprint.json").write_text(text.replace(old, new))
    return str(target)


def test_render(shell: Shell, newsroom: Path, tmp_path: Path) -> None:
    """Folders become values, on standard output or in a file, with code in block style."""
    folders = [str(newsroom / name) for name in NAMES]
    printed = shell("deploy", "render", *folders)
    assert (printed.returncode, printed.stderr) == (0, "")
    assert yaml.safe_load(printed.stdout) == chart_values.render(folders)
    assert "      tools.py: |\n" in printed.stdout
    written = shell("deploy", "render", *folders, "--output", "fleet.yaml")
    assert (written.returncode, written.stdout) == (
        0,
        "fleet.yaml: newsroom, researcher, reviewer, writer\n",
    )
    assert (tmp_path / "fleet.yaml").read_text() == printed.stdout


def test_render_onto_a_release(
    shell: Shell, newsroom: Path, running: str, tmp_path: Path
) -> None:
    """With `--onto`, a folder replaces its component's blueprint; all other values are kept."""
    folder = changed_copy(
        newsroom / "writer",
        tmp_path / "writer",
        "general newspaper",
        "local newspaper",
    )
    done = shell("deploy", "render", folder, "--onto", "-", stdin=running)
    assert done.returncode == 0, done.stderr
    before = chart_values.read_values(running)
    after = yaml.safe_load(done.stdout)
    assert (
        "local newspaper"
        in after["components"]["writer"]["blueprint"]["inline"]["instructions"]
    )
    assert after["components"]["writer"]["replicas"] == 3
    assert after["defaults"] == before["defaults"]
    others = ("researcher", "reviewer", "newsroom")
    assert all(
        after["components"][name] == before["components"][name]
        for name in others
    )


def test_render_fails(shell: Shell, newsroom: Path, tmp_path: Path) -> None:
    """A folder that the chart cannot deploy is an error, and nothing is written."""
    done = shell(
        "deploy", "render", str(newsroom / "newsroom"), "--output", "fleet.yaml"
    )
    assert (done.returncode, "'researcher'" in done.stderr) == (1, True)
    assert not (tmp_path / "fleet.yaml").exists()
    assert shell("deploy", "render").returncode == 2


def test_render_several_releases(
    shell: Shell, newsroom: Path, tmp_path: Path
) -> None:
    """With `--split`, each release has a file, which is named after it."""
    folders = [str(newsroom / name) for name in NAMES]
    done = shell(
        "deploy", "render", *folders, "--output", "fleet.yaml", "--split", "3"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        done.stdout
        == "fleet-1.yaml: newsroom, researcher, reviewer\nfleet-2.yaml: writer\n"
    )
    releases = split(chart_values.render(folders), "fleet", 3)
    assert {f"{name}.yaml" for name in releases} == {
        path.name for path in tmp_path.glob("*.yaml")
    }
    for name, values in releases.items():
        assert yaml.safe_load((tmp_path / f"{name}.yaml").read_text()) == values
    assert shell("deploy", "render", *folders, "--split", "3").returncode == 1


def test_a_release_that_is_too_large(shell: Shell, tmp_path: Path) -> None:
    """A warning names each release that is larger than Helm's limit; the values are written nevertheless."""
    folders = [str(tmp_path / name) for name in ("first", "second")]
    for folder in folders:
        Path(folder).mkdir()
        (Path(folder) / "blueprint.json").write_text(
            json.dumps({**AGENT, "name": Path(folder).name})
        )
        (Path(folder) / "noise.txt").write_text(
            base64.b64encode(random.Random(folder).randbytes(300_000)).decode()
        )
    done = shell("deploy", "render", *folders, "--output", "fleet.yaml")
    assert (done.returncode, done.stdout) == (0, "fleet.yaml: first, second\n")
    assert done.stderr.startswith("fleet.yaml: ")
    assert str(MAX_RELEASE_BYTES) in done.stderr
    split = shell(
        "deploy", "render", *folders, "--output", "fleet.yaml", "--split", "1"
    )
    assert (split.returncode, split.stderr) == (0, "")


def test_the_difference_of_a_folder(
    shell: Shell, newsroom: Path, running: str, tmp_path: Path
) -> None:
    """A folder is compared with its component in the release; a breaking change is exit code 1 with `--exit-code`."""
    compatible = changed_copy(
        newsroom / "newsroom",
        tmp_path / "newsroom",
        '"max_iterations": 3',
        '"max_iterations": 2',
    )
    done = shell(
        "deploy",
        "diff",
        "-",
        compatible,
        str(newsroom / "reviewer"),
        "--exit-code",
        stdin=running,
    )
    assert (done.returncode, done.stderr) == (0, "")
    [line] = done.stdout.splitlines()
    assert line.startswith("newsroom: compatible: /steps/")
    (tmp_path / "running.yaml").write_text(running)
    breaking = changed_copy(
        newsroom / "researcher",
        tmp_path / "researcher",
        '"integer"',
        '"string"',
    )
    done = shell("deploy", "diff", "running.yaml", breaking, "--exit-code")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith(
        "researcher: breaking: /tools/search_archive/"
    )
    [change] = json.loads(
        shell("deploy", "diff", "running.yaml", breaking, "--json").stdout
    )
    assert (change["component"], change["what"], change["breaking"]) == (
        "researcher",
        "changed",
        True,
    )
    assert (change["values"], change["blueprint"][0]["breaking"]) == ([], True)


def test_a_file_of_values(shell: Shell, running: str, tmp_path: Path) -> None:
    """A file of values is compared as a whole: added and removed components, and other values by path."""
    values = chart_values.read_values(running)
    values["defaults"]["model"] = "openai/gpt-4o"
    values["components"]["fresh"] = values["components"].pop("newsroom")
    values["components"]["writer"] |= {
        "replicas": 4,
        "resources": {"limits": {"cpu": 2}},
    }
    (tmp_path / "new.json").write_text(json.dumps(values))
    done = shell(
        "deploy", "diff", "-", "new.json", "--exit-code", stdin=running
    )
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "the fleet: value: defaults.model changed",
        "compatible: fresh added",
        "breaking: newsroom removed",
        "writer: value: replicas changed",
        "writer: value: resources.limits.cpu changed",
    ]


def test_a_release_without_values(shell: Shell, newsroom: Path) -> None:
    """Helm prints null for a release without values; other data are an error."""
    done = shell(
        "deploy",
        "diff",
        "-",
        str(newsroom / "writer"),
        stdin="USER-SUPPLIED VALUES:\nnull\n",
    )
    assert (done.returncode, done.stdout) == (0, "compatible: writer added\n")
    done = shell("deploy", "diff", "-", str(newsroom / "writer"), stdin="[1]")
    assert (done.returncode, done.stdout) == (1, "")
