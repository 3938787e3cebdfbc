"""`podwright deploy`."""

from __future__ import annotations

import base64
import json
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.mcp_pod import searcher, tools_lock
from tests.service.support import AGENT, Shell

from podwright import load
from podwright.blueprints import digest, to_yaml
from podwright.folders.walks import component_digest
from podwright.mcp.lock import LOCK_FILE, MCPLock
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
    return "USER-SUPPLIED VALUES:\n" + to_yaml(
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
    assert printed.returncode == 0, printed.stderr
    assert printed.stderr.startswith("Not checked: code")
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
    assert (done.returncode, len(done.stderr.splitlines())) == (0, 1)
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
    assert split.returncode == 0
    assert str(MAX_RELEASE_BYTES) not in split.stderr


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


@pytest.fixture
def calculators(tmp_path: Path) -> Path:
    """A folder with `calculator`, which has dependencies, and `sums`, a workflow that uses it."""
    step = {"type": "agent_step", "agent": "calculator", "name": "first"}
    blueprints = {
        "calculator": {**AGENT, "name": "calculator"},
        "sums": {"type": "Workflow", "name": "sums", "steps": [step]},
    }
    for name, blueprint in blueprints.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "blueprint.json").write_text(json.dumps(blueprint))
    (tmp_path / "calculator" / "requirements.txt").write_text("numpy\n")
    return tmp_path


@pytest.mark.parametrize(
    ("reference", "image"),
    [
        ("team/x:1.0", {"repository": "team/x", "tag": "1.0"}),
        (
            "registry.example:5000/team/x:1.0",
            {"repository": "registry.example:5000/team/x", "tag": "1.0"},
        ),
        (
            f"localhost:5000/x@sha256:{'a' * 64}",
            {"repository": "localhost:5000/x", "digest": f"sha256:{'a' * 64}"},
        ),
        (
            f"x:a_B.c-1@sha256:{'0' * 64}",
            {
                "repository": "x",
                "tag": "a_B.c-1",
                "digest": f"sha256:{'0' * 64}",
            },
        ),
    ],
)
def test_a_component_in_an_image(
    shell: Shell, calculators: Path, reference: str, image: dict[str, str]
) -> None:
    """The error for a folder with dependencies has the option that solves it, with the folder or without."""
    refused = shell("deploy", "render", "sums", "calculator")
    assert refused.returncode == 1
    assert "podwright build calculator --tag" in refused.stderr
    assert "--image calculator=" in refused.stderr
    for folders in (["sums", "calculator"], ["sums"]):
        option = f"--image=calculator={reference}"
        done = shell("deploy", "render", *folders, option)
        assert done.returncode == 0, done.stderr
        components = yaml.safe_load(done.stdout)["components"]
        assert components["calculator"] == {"image": image}
        assert components["sums"]["agents"] == ["calculator"]
        assert done.stderr.splitlines()[1].endswith("images: calculator.")


def test_a_release_with_a_component_in_an_image(
    shell: Shell, calculators: Path
) -> None:
    """A component that the release has in an image stays there; one whose image is another flavour keeps its files."""
    image = {"repository": "registry.example/calculator", "tag": "1"}
    flavour = {"repository": "podwright", "tag": "full"}
    inline = {"type": "Workflow", "name": "old", "steps": []}
    running = {
        "components": {
            "calculator": {"image": image, "replicas": 2},
            "sums": {"image": flavour, "blueprint": {"inline": inline}},
        }
    }
    (calculators / "running.json").write_text(json.dumps(running))
    folders = ("sums", "calculator")
    onto = ("--onto", "running.json")
    done = shell("deploy", "render", *folders, *onto)
    assert done.returncode == 0, done.stderr
    components = yaml.safe_load(done.stdout)["components"]
    assert components["calculator"] == {"image": image, "replicas": 2}
    assert components["sums"]["image"] == flavour
    assert components["sums"]["blueprint"]["inline"]["name"] == "sums"
    done = shell(
        "deploy", "render", *folders, *onto, "--image=calculator=x/calculator:2"
    )
    changed = yaml.safe_load(done.stdout)["components"]["calculator"]
    assert changed["image"] == {"repository": "x/calculator", "tag": "2"}
    assert changed["replicas"] == 2


@pytest.mark.parametrize(
    "option",
    [
        "calculator",
        "=x:1",
        "calculator=",
        "calculator=x",
        "calculator=X:1",
        "calculator=x:",
        "calculator=x:1@sha256:12",
        "calculator=https://registry.example/x:1",
        f"calculator=x:{'a' * 129}",
        "$=x:1",
    ],
)
def test_images_that_are_not_valid(
    shell: Shell, calculators: Path, option: str
) -> None:
    """A name or a reference that is wrong is an error, and so is an image of which the chart would choose the tag."""
    done = shell("deploy", "render", "sums", f"--image={option}")
    assert (done.returncode, done.stdout) == (1, "")


@pytest.mark.parametrize("other", ["a_b=x:2", "a-b=x:2", "A.B=x:2"])
def test_two_images_for_one_component(
    shell: Shell, calculators: Path, other: str
) -> None:
    """One of them would be lost without a word."""
    images = ("--image=a_b=x:1", f"--image={other}")
    done = shell("deploy", "render", "sums", *images)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Suggestion: " in done.stderr


def test_an_image_that_has_the_tools(shell: Shell, calculators: Path) -> None:
    """With an overlay, the values have the blueprint of the folder and no files."""
    image = {"repository": "registry.example/calculator", "tag": "1"}
    source = {"inline": AGENT, "overlay": True, "file": "blueprint.yaml"}
    running = {
        "components": {"calculator": {"image": image, "blueprint": source}}
    }
    (calculators / "running.json").write_text(json.dumps(running))
    done = shell("deploy", "render", "calculator", "--onto", "running.json")
    assert done.returncode == 0, done.stderr
    component = yaml.safe_load(done.stdout)["components"]["calculator"]
    inline = json.loads((calculators / "calculator/blueprint.json").read_text())
    assert component == {
        "image": image,
        "blueprint": {**source, "inline": inline},
    }


def test_a_component_without_a_blueprint(
    shell: Shell, running: str, newsroom: Path
) -> None:
    """A name in the values that nothing serves is an error, which tells the name that was meant."""
    values = chart_values.read_values(running)
    values["components"]["writter"] = {"replicas": 3}
    text = to_yaml(values)
    folder = str(newsroom / "writer")
    done = shell("deploy", "render", folder, "--onto", "-", stdin=text)
    assert (done.returncode, done.stdout) == (1, "")
    assert "'writter'" in done.stderr
    assert "'writer'" in done.stderr


@pytest.fixture
def versions(tmp_path: Path) -> list[str]:
    """Folders of one component, `flow`, with different blueprints."""
    folders: list[str] = []
    for number in range(4):
        step = {
            "type": "approval_step",
            "name": "ok",
            "message": f"Version {number}?",
        }
        blueprint = {"type": "Workflow", "name": "flow", "steps": [step]}
        folder = tmp_path / str(number) / "flow"
        folder.mkdir(parents=True)
        (folder / "blueprint.json").write_text(json.dumps(blueprint))
        folders.append(str(folder))
    return folders


def test_earlier_blueprints_are_kept(
    shell: Shell, versions: list[str], tmp_path: Path
) -> None:
    """With `--keep N`, the last N are in the values, newest first, each once and without the current one."""
    release = tmp_path / "release.yaml"
    assert (
        shell("deploy", "render", versions[0], "-o", str(release)).returncode
        == 0
    )

    def upgrade(number: int, keep: int, *, as_text: bool = False) -> list[str]:
        values = yaml.safe_load(release.read_text())
        if as_text:
            source = values["components"]["flow"]["blueprint"]
            source["inline"] = json.dumps(source["inline"])
            release.write_text(yaml.safe_dump(values))
        done = shell(
            "deploy", "render", versions[number], "--onto", str(release),
            "--keep", str(keep), "--output", str(release),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        component = yaml.safe_load(release.read_text())["components"]["flow"]
        return [
            blueprint["steps"][0]["message"]
            for blueprint in component.get("previous", [])
        ]

    assert upgrade(1, 2) == ["Version 0?"]
    assert upgrade(1, 2) == ["Version 0?"]
    assert upgrade(2, 2, as_text=True) == ["Version 1?", "Version 0?"]
    assert upgrade(3, 2) == ["Version 2?", "Version 1?"]
    assert upgrade(2, 2) == ["Version 3?", "Version 1?"]
    assert upgrade(2, 0) == []
    alone = shell("deploy", "render", versions[0], "--keep", "1")
    assert (alone.returncode, alone.stdout) == (1, "")


def test_earlier_blueprints_of_another_name(
    shell: Shell, versions: list[str], tmp_path: Path
) -> None:
    """They are not kept, because the service performs no runs of another component."""
    file = Path(versions[0]) / "blueprint.json"
    shell("deploy", "render", versions[0], "--output", "release.yaml")
    file.write_text(file.read_text().replace('"flow"', '"renamed"'))
    done = shell(
        "deploy", "render", versions[0], "--onto", "release.yaml", "--keep=3"
    )
    assert done.returncode == 0, done.stderr
    component = yaml.safe_load(done.stdout)["components"]["flow"]
    assert "previous" not in component


def test_a_component_that_is_left_out(
    shell: Shell, running: str, newsroom: Path, tmp_path: Path
) -> None:
    """A component that is null is left out: it needs nothing to serve, and is removed from a release."""
    values = chart_values.read_values(running)
    values["components"]["writer"] = None
    (tmp_path / "values.yaml").write_text(to_yaml(values))
    folder = str(newsroom / "reviewer")
    done = shell(
        "deploy", "render", folder, "--onto", "values.yaml", "--keep=3"
    )
    assert done.returncode == 0, done.stderr
    rendered = yaml.safe_load(done.stdout)
    assert rendered["components"]["writer"] is None
    assert "previous" not in rendered["components"]["reviewer"]
    changed = shell("deploy", "diff", "-", "values.yaml", stdin=running)
    assert changed.stdout == "breaking: writer removed\n"


def test_values_of_a_chart_with_fleets(
    shell: Shell, running: str, newsroom: Path, tmp_path: Path
) -> None:
    """A warning tells where the components are in values of a chart that has this one as a dependency."""
    values = chart_values.read_values(running)
    parent = {"global": {"imageRegistry": "mirror.example"}, "desk": values}
    (tmp_path / "parent.yaml").write_text(to_yaml(parent))
    folder = str(newsroom / "writer")
    for command in (
        ("render", folder, "--onto", "parent.yaml"),
        ("diff", "parent.yaml", folder),
    ):
        done = shell("deploy", *command)
        assert done.returncode == 0, done.stderr
        assert "parent.yaml: warning: " in done.stderr
        assert "below: desk." in done.stderr
    done = shell("deploy", "diff", "-", folder, stdin=running)
    assert "warning" not in done.stderr


def test_agents_in_the_image_of_a_component(
    shell: Shell, calculators: Path
) -> None:
    """An image may have the agents of its component, so the values need not know them."""
    done = shell("deploy", "render", "sums", "--image=sums=team/sums:1")
    assert done.returncode == 0, done.stderr
    image = {"repository": "team/sums", "tag": "1"}
    components = yaml.safe_load(done.stdout)["components"]
    assert components == {"sums": {"image": image}}


def test_earlier_blueprints_that_are_too_large(
    shell: Shell, versions: list[str], tmp_path: Path
) -> None:
    """A ConfigMap must be able to hold them."""
    inline = {**AGENT, "name": "flow", "instructions": "x" * 900_000}
    values = {"components": {"flow": {"blueprint": {"inline": inline}}}}
    (tmp_path / "release.json").write_text(json.dumps(values))
    done = shell(
        "deploy", "render", versions[0], "--onto", "release.json", "--keep=1"
    )
    assert (done.returncode, "ConfigMap" in done.stderr) == (1, True)


@pytest.mark.parametrize("shared", [True, False])
def test_the_difference_for_runs_that_wait(
    shell: Shell, versions: list[str], tmp_path: Path, *, shared: bool
) -> None:
    """Where runs are stored, a blueprint that the new values lose is told with the command that keeps it."""
    release = tmp_path / "release.yaml"
    shell("deploy", "render", versions[0], "--output", str(release))
    values = yaml.safe_load(release.read_text())
    place = values["components"]["flow"]
    if shared:
        place = values.setdefault("defaults", {})
    compared = ("deploy", "diff", "release.yaml", versions[1])
    assert "--keep" not in shell(*compared).stdout
    place["runs"] = {"store": "sqlite"}
    release.write_text(yaml.safe_dump(values))
    warned = shell(*compared, "--exit-code")
    assert warned.returncode == 0, warned.stderr
    *_, line = warned.stdout.splitlines()
    assert line.startswith("flow: warning: ")
    command = line.split("`")[1].split()
    assert command[0] == "podwright"
    [change] = json.loads(shell(*compared, "--json").stdout)
    inline = values["components"]["flow"]["blueprint"]["inline"]
    assert change["lost_blueprints"] == [digest(inline)]
    kept = shell(*command[1:], "--output", "new.yaml")
    assert kept.returncode == 0, kept.stderr
    after = shell("deploy", "diff", "release.yaml", "new.yaml").stdout
    assert "flow: compatible: " in after
    assert "warning" not in after


DOCKER = """#!/usr/bin/env python3
import json, sys
if sys.argv[1:3] == ["buildx", "version"]:
    sys.exit(0)
known = json.load(open(__file__ + ".json"))
if sys.argv[1:4] == ["buildx", "imagetools", "inspect"]:
    reference = sys.argv[4]
    if reference in known["registry"]:
        print(json.dumps(known["registry"][reference]))
        sys.exit(0)
    sys.exit("ERROR: failed to do request")
if sys.argv[1:3] == ["image", "inspect"]:
    reference = sys.argv[3]
    if reference in known["engine"]:
        print(json.dumps([{"Config": known["engine"][reference]}]))
        sys.exit(0)
    sys.exit("Error: No such image")
sys.exit("unexpected: " + " ".join(sys.argv))
"""
"""A Docker client that knows the images of a file beside it."""
PLACES: dict[str, Callable[..., Any]] = {
    "in the registry": lambda own, other: ({"config": own}, None),
    "for two platforms": lambda own, other: (
        {"linux/amd64": {"config": own}, "linux/arm64": {"config": own}},
        None,
    ),
    "in the engine": lambda own, other: (None, own),
    "of another in the engine": lambda own, other: ({"config": own}, other),
}
"""What the registry and the engine have, by their two configurations of an image."""
UNKNOWN_PLACES: dict[str, Callable[..., Any]] = {
    "nowhere": lambda own, other: (None, None),
    "without labels": lambda own, other: ({"config": {}}, {}),
    "that differs by platform": lambda own, other: (
        {"linux/amd64": {"config": own}, "linux/arm64": {"config": other}},
        None,
    ),
}


@pytest.fixture
def images(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Makes a Docker client, and returns the variables with which it is found."""

    def make(**images: Any) -> dict[str, str]:
        program = tmp_path / "programs" / "docker"
        program.parent.mkdir(exist_ok=True)
        program.write_text(DOCKER)
        program.chmod(0o755)
        registry = {name: each[0] for name, each in images.items() if each[0]}
        engine = {
            name: each[1]
            for name, each in images.items()
            if each[1] is not None
        }
        known = {"registry": registry, "engine": engine}
        program.with_name("docker.json").write_text(json.dumps(known))
        return {"PATH": f"{program.parent}:{os.environ['PATH']}"}

    return make


def labelled(blueprint: dict[str, Any]) -> dict[str, Any]:
    return {"Labels": {"podwright.blueprint.digest": digest(blueprint)}}


def in_image(**parts: str) -> dict[str, Any]:
    image = {"repository": "registry.example/calculator", **parts}
    return {"components": {"calculator": {"image": image}}}


@pytest.mark.parametrize("place", [*PLACES, *UNKNOWN_PLACES])
@pytest.mark.parametrize("is_changed", [False, True])
def test_the_difference_to_an_image(
    shell: Shell,
    calculators: Path,
    images: Callable[..., dict[str, str]],
    place: str,
    is_changed: bool,
) -> None:
    """A folder is compared with the label of its component's image: what is not known to be the same is not passed."""
    blueprint = {**AGENT, "name": "calculator"}
    other = {**blueprint, "instructions": "Add."}
    own, changed = labelled(blueprint), labelled(other)
    if is_changed:
        own, changed = changed, own
    make = {**PLACES, **UNKNOWN_PLACES}[place]
    variables = images(**{"registry.example/calculator:1": make(own, changed)})
    (calculators / "running.json").write_text(json.dumps(in_image(tag="1")))
    done = shell(
        "deploy", "diff", "running.json", "calculator", "--exit-code",
        **variables,
    )  # fmt: skip
    if place in PLACES and not is_changed:
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        return
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("calculator: not compared: ")
    shown = shell(
        "deploy", "diff", "running.json", "calculator", "--json", **variables
    )
    assert shown.returncode == 0
    [change] = json.loads(shown.stdout)
    assert change["not_compared"]
    assert not change["breaking"]


@pytest.fixture
def line(tmp_path: Path) -> Path:
    """The folder of a component with a tool of an MCP server, and its lock."""
    folder = tmp_path / "line"
    folder.mkdir()
    (folder / "blueprint.json").write_text(json.dumps(searcher("line")))
    tools_lock().write_file(folder / LOCK_FILE)
    return folder


def describe_otherwise(folder: Path) -> None:
    """Lock another description of the folder's tool."""
    locked = tools_lock().servers["tools"]["search"]
    other = replace(locked, description="Search.")
    MCPLock({"tools": {"search": other}}).write_file(folder / LOCK_FILE)


@pytest.mark.parametrize("is_changed", [False, True])
def test_the_difference_of_mcp_tools_to_an_image(
    shell: Shell,
    line: Path,
    images: Callable[..., dict[str, str]],
    tmp_path: Path,
    *,
    is_changed: bool,
) -> None:
    """The label of an image has the digest with the locked tools, and a folder with other ones is another component."""
    config = {
        "Labels": {"podwright.blueprint.digest": component_digest(load(line))}
    }
    variables = images(**{"team/line:1": ({"config": config}, None)})
    component = {
        "image": {"repository": "team/line", "tag": "1"},
        "mcpServers": {"tools": "http://tools/mcp"},
    }
    running = {"components": {"line": component}}
    (tmp_path / "running.json").write_text(json.dumps(running))
    if is_changed:
        describe_otherwise(line)
    done = shell(
        "deploy", "diff", "running.json", "line", "--exit-code", **variables
    )
    if is_changed:
        assert done.returncode == 1, done.stderr
        assert done.stdout.startswith("line: not compared: ")
    else:
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
    # the values have the folder instead, perhaps with a lock that only a ConfigMap has
    inside = shell(
        "deploy",
        "render",
        "line",
        "--onto",
        "-",
        stdin=json.dumps(
            {"components": {"line": {"mcpServers": component["mcpServers"]}}}
        ),
    )
    assert inside.returncode == 0, inside.stderr
    values = yaml.safe_load(inside.stdout)
    for has_lock in (True, False):
        if not has_lock:
            values["components"]["line"]["filesFrom"] = [{"name": "lock"}]
            del values["components"]["line"]["files"]
        (tmp_path / "new.json").write_text(json.dumps(values))
        done = shell("deploy", "diff", "running.json", "new.json", **variables)
        assert done.returncode == 0, done.stderr
        is_same = has_lock and not is_changed
        assert ("not compared" in done.stdout) is not is_same


def test_runs_that_wait_had_other_mcp_tools(
    shell: Shell, line: Path, tmp_path: Path
) -> None:
    """Where runs are stored, a changed lock is told: no earlier blueprint keeps what it says."""
    began_with = component_digest(load(line))
    component = {
        "mcpServers": {"tools": "http://tools/mcp"},
        "runs": {"store": "sqlite"},
    }
    stdin = json.dumps({"components": {"line": component}})
    render = ("deploy", "render", "line", "--onto", "-")
    (tmp_path / "running.yaml").write_text(shell(*render, stdin=stdin).stdout)
    compared = ("deploy", "diff", "running.yaml", "line")
    assert shell(*compared).stdout == ""
    describe_otherwise(line)
    lines = shell(*compared).stdout.splitlines()
    assert f"line: value: files.{LOCK_FILE} changed" in lines
    assert began_with[:19] in lines[-1]
    assert "--keep" not in lines[-1]
    [change] = json.loads(shell(*compared, "--json").stdout)
    assert change["lost_definitions"] == [began_with]
    assert change["lost_blueprints"] == []
    # a blueprint that is lost too has the digest that its runs have
    blueprint = {**searcher("line"), "description": "Search."}
    (line / "blueprint.json").write_text(json.dumps(blueprint))
    [change] = json.loads(shell(*compared, "--json").stdout)
    assert change["lost_blueprints"] == [began_with]


def test_the_difference_of_a_folder_and_an_image_without_docker(
    shell: Shell, calculators: Path
) -> None:
    """Without a client, the label cannot be read."""
    (calculators / "running.json").write_text(json.dumps(in_image(tag="1")))
    done = shell(
        "deploy", "diff", "running.json", "calculator", "--exit-code", PATH=""
    )
    assert done.returncode == 1
    assert done.stdout.startswith("calculator: not compared: ")


@pytest.mark.parametrize("is_changed", [False, True])
@pytest.mark.parametrize("was_in_values", [False, True])
def test_the_difference_of_two_images(
    shell: Shell,
    tmp_path: Path,
    images: Callable[..., dict[str, str]],
    is_changed: bool,
    was_in_values: bool,
) -> None:
    """Values with another image are compared by the labels, and an image with a blueprint in the values too."""
    blueprint = {**AGENT, "name": "calculator"}
    new = blueprint
    if is_changed:
        new = {**blueprint, "instructions": "Add."}
    variables = images(
        **{
            "registry.example/calculator:1": (
                {"config": labelled(blueprint)},
                None,
            ),
            "registry.example/calculator:2": (
                {"config": labelled(new)},
                None,
            ),
        }
    )
    running: dict[str, Any] = in_image(tag="1")
    if was_in_values:
        source = {"blueprint": {"inline": blueprint}}
        running = {"components": {"calculator": source}}
    (tmp_path / "running.json").write_text(json.dumps(running))
    (tmp_path / "new.json").write_text(json.dumps(in_image(tag="2")))
    done = shell(
        "deploy", "diff", "running.json", "new.json", "--exit-code",
        **variables,
    )  # fmt: skip
    assert done.returncode == int(is_changed), done.stderr
    assert ("not compared" in done.stdout) is is_changed
    same = shell(
        "deploy", "diff", "new.json", "new.json", "--exit-code", PATH=""
    )
    assert (same.returncode, same.stdout) == (0, "")
