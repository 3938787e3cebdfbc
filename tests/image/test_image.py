"""The image that the Dockerfile makes, in both flavours."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.image.conftest import BASE, ROOT
from tests.image.containers import Container, Engine, Layer, tool

from podwright import __version__

NEWSROOM = ROOT / "deploy" / "examples" / "newsroom"
HARDENED = (
    "--read-only --cap-drop ALL --security-opt no-new-privileges --user 65532 --network none --memory 256m "
    "--pids-limit 128"
).split()
OFFLINE = {"PODWRIGHT_MODEL": "offline/echo"}

Start = Callable[..., Container]


def mounted(folder: Path) -> str:
    return f"--volume={folder}:/component:ro"


@pytest.mark.parametrize(("flavour", "most"), [("direct", 90), ("full", 350)])
def test_size(engine: Engine, images: Callable[[str], str], flavour: str, most: int) -> None:
    """What a flavour adds to its base image is at most so many MB."""
    added = engine.image(images(flavour))["Size"] - engine.image(BASE)["Size"]
    assert added <= most * 1_000_000


def test_hardened(image: str, start: Start) -> None:
    """With no network, no capability and nothing to write to, it is healthy, answers, and drains with exit code 0."""
    container = start(image, *HARDENED, mounted(NEWSROOM / "researcher"), **OFFLINE).healthy()
    assert "the moon" in container.ask({"input": "the moon"})["output"]
    assert container.stop() == 0
    assert "Traceback" not in container.logs()


def test_any_user(direct: str, start: Start) -> None:
    """Under a user that nobody has heard of, as some clusters choose one, it works the same."""
    container = start(direct, *HARDENED, "--user", "1234567:0", mounted(NEWSROOM / "writer"), **OFFLINE).healthy()
    assert "the moon" in container.ask({"input": "the moon"})["output"]
    assert container.stop() == 0


def test_several_processes(direct: str, start: Start) -> None:
    """With WEB_CONCURRENCY=2 two workers serve one component under the same restrictions, and drain together."""
    container = start(
        direct, *HARDENED, mounted(NEWSROOM / "writer"), WEB_CONCURRENCY="2", **OFFLINE
    ).healthy()  # fmt: skip
    assert "the moon" in container.ask({"input": "the moon"})["output"]
    # the init, the master and its two workers
    running = container.engine("top", container.id, "-eo", "pid,args").splitlines()
    assert len([line for line in running if "podwright" in line]) == 4, running
    assert container.stop() == 0


def test_no_zombies(direct: str, start: Start, tmp_path: Path) -> None:
    """A process that a tool leaves behind is buried when it ends, by the first process of the container."""
    (tmp_path / "blueprint.json").write_text(
        json.dumps(
            {
                "name": "parent",
                "instructions": "Leave.",
                "config": {"model": "offline/echo"},
                "tools": [tool("leave")],
            }
        )
    )
    (tmp_path / "tools.py").write_text(
        "import subprocess\n\n"
        "def leave() -> str:\n"
        '    """Leave."""\n'
        "    subprocess.run(['sh', '-c', 'sleep 0.2 & sleep 0.3 & sleep 100 &'], check=True)\n"
        "    return 'left'\n"
    )
    tmp_path.chmod(0o755)
    container = start(direct, *HARDENED, mounted(tmp_path)).healthy()
    assert "left" in container.ask({"input": "go"})["output"]

    def orphans() -> list[str]:
        listed = container.engine("top", container.id, "-eo", "pid,stat,args").splitlines()
        return [line for line in listed if "sleep" in line or " Z" in line]

    container.until(lambda: len(orphans()) == 1 and "sleep 100" in orphans()[0], "buried")
    assert container.stop() == 0


def test_two_lines(engine: Engine, direct: str, start: Start, tag: str, tmp_path: Path) -> None:
    """A component is added by two lines, and needs no other."""
    (tmp_path / "Dockerfile").write_text(f"FROM {direct}\nCOPY writer /component\n")
    (tmp_path / "writer").mkdir()
    (tmp_path / "writer" / "blueprint.json").write_bytes((NEWSROOM / "writer" / "blueprint.json").read_bytes())
    engine("build", "--quiet", f"--tag={tag}", tmp_path)
    container = start(tag, "--publish=127.0.0.1::8000", **OFFLINE).healthy()
    with container.client() as client:
        assert client.post("/run", json={"input": "the moon"}).json()["output"].startswith("Echo")
    assert container.stop() == 0


def test_nothing_to_serve(engine: Engine, direct: str) -> None:
    """Without a component it says so, in words, and ends with exit code 1."""
    done = engine.says("run", "--rm", direct)
    assert done.returncode == 1
    assert "The folder 'component' has no blueprint" in done.stderr
    assert "Traceback" not in done.stderr


def test_labels(engine: Engine, direct: str) -> None:
    """The image says what it is, of what version and from what base, and runs as a user without a name."""
    config = engine.image(direct)["Config"]
    assert config["User"] == "65532:65532"
    assert config["Labels"]["org.opencontainers.image.version"] == "0"
    assert config["Labels"]["org.opencontainers.image.base.name"] == BASE
    assert engine("run", "--rm", direct, "--version").strip() == __version__


UNWANTED = re.compile(
    r"(^|/)s?bin/(pip3?|uv|uvx|npm|yarn|apk|apt|apt-get|dpkg|gcc|cc|ld|make|conda|poetry|hatchling)$"
    r"|(^|/)(pip|uv|hatchling|setuptools|ensurepip)(-[\d.]+\.dist-info)?/"
    r"|(^|/)\.(env|git|netrc|pypirc|aws|ssh|docker|cache|npm)(/|$)"
    r"|\.(key|p12|pfx)$|(^|/)id_(rsa|ed25519|ecdsa)$"
    r"|^(root|tmp|var/cache|var/lib/apt|var/tmp|wheels|source|tools)/."
    r"|\.(pth|egg-link|whl)$"
)
SECRET = re.compile(rb"BEGIN [A-Z ]*PRIVATE KEY|AKIA[0-9A-Z]{16}|ghp_[0-9A-Za-z]{36}|sk-[0-9A-Za-z]{40}")

MADE_UP = {
    "boto3/examples/cloudfront.rst",
    "botocore/data/iam/2010-05-08/examples-1.json",
    "botocore/data/sts/2011-06-15/examples-1.json",
    "litellm/policy_templates_backup.json",
    "litellm/proxy/_experimental/out/_next/static/chunks/2uhncywq69ed4.js",
    "litellm/proxy/public_endpoints/provider_create_fields.json",
}
"""Published files whose examples and forms show what a key looks like; another one is to be looked at first."""


def test_what_the_layers_hold(engine: Engine, image: str) -> None:
    """Our layers hold no installer, secret, cache or start-up hook, no setuid file and none that others may write."""
    layers = engine.layers(image, BASE)
    for layer in layers:
        gone = {path for path in layer.entries if "/.wh." in path}
        assert [path for path in layer.entries if path not in gone and UNWANTED.search(path)] == []
        assert [entry.name for entry in layer.files() if entry.mode & 0o6022] == []
        assert [path for path, entry in layer.entries.items() if path.startswith("opt/") and entry.uid] == []
        found = [path.rpartition("/site-packages/")[2] for path, text in layer.contents.items() if SECRET.search(text)]
        assert [path for path in found if path not in MADE_UP] == []
    config = json.dumps([engine.image(image)["Config"], engine("history", "--no-trunc", image)])
    assert not re.search(r"(KEY|TOKEN|SECRET|PASSWORD)=", config)


def test_the_base_is_tamed(engine: Engine, image: str) -> None:
    """In the image as a whole no file is setuid or setgid, no `.pth` file is there, and no installer answers."""
    look = "find / -xdev -type f \\( -perm /6000 -o -name '*.pth' \\) 2>/dev/null; command -v pip pip3 uv gcc cc make"
    assert engine.says("run", "--rm", "--user=0", "--entrypoint=sh", image, "-c", look).stdout == ""
    installers = "import importlib.util as i; print([n for n in ('pip', 'ensurepip', 'setuptools') if i.find_spec(n)])"
    for python in ("python", "/usr/bin/python3"):
        assert engine("run", "--rm", f"--entrypoint={python}", image, "-c", installers) == "[]\n"


def test_byte_code(engine: Engine, direct: str) -> None:
    """Every module is compiled, for a container that may not write would compile it at each start."""
    code = (
        "import importlib.util as i, pathlib, sysconfig as s;"
        "all = list(pathlib.Path(s.get_path('purelib')).rglob('*.py'));"
        "print(len(all), [str(one) for one in all if not pathlib.Path(i.cache_from_source(one)).exists()])"
    )
    number, missing = engine("run", "--rm", "--entrypoint=python", direct, "-c", code).split(maxsplit=1)
    assert int(number) > 1000
    assert missing == "[]\n"


def normal(layer: Layer) -> dict[str, tuple[object, ...]]:
    """A layer without the times of its deletions: the engine's own, which no Dockerfile can set."""
    return {
        path: ("deleted",)
        if "/.wh." in path
        else (entry.mtime, entry.mode, entry.size, entry.linkname, layer.contents.get(path))
        for path, entry in layer.entries.items()
    }


def test_the_same_again(engine: Engine, direct: str, tag: str) -> None:
    """Built once more from nothing, what we install is the same to the byte, and its layer has the same digest."""
    engine(
        "build", "--quiet", "--no-cache", f"--tag={tag}", "--build-arg=FLAVOUR=direct", "--build-arg=VERSION=0", ROOT
    )
    once, again = engine.layers(direct, BASE), engine.layers(tag, BASE)
    assert [normal(layer) for layer in once] == [normal(layer) for layer in again]
    ours = [layer.digest for layer in once if "opt/podwright/bin/podwright" in layer.entries]
    assert len(ours) == 1
    assert ours[0] in {layer.digest for layer in again}


@pytest.mark.parametrize("folder", [".", "service/src/podwright_service/images"])
def test_checkov(folder: str) -> None:
    """The Dockerfiles pass every check that is not excused in one line with its reason."""
    found = subprocess.run([ROOT / "deploy" / "tools.sh", "checkov"], capture_output=True, text=True)
    if found.returncode:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"checkov cannot be had: {found.stderr}")
    file = ROOT / folder / "Dockerfile"
    done = subprocess.run(
        [found.stdout.strip(), "--framework=dockerfile", f"--file={file}", "--output=json", "--skip-download"],
        capture_output=True,
        text=True,
        cwd=file.parent,
    )
    report = json.loads(done.stdout)["results"]
    assert [check["check_id"] for check in report["failed_checks"]] == []
    assert len(report["passed_checks"]) > 20
    assert all(len(check["check_result"]["suppress_comment"]) > 20 for check in report["skipped_checks"])
