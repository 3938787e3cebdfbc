"""`podwright build` and `podwright inspect`: from a folder to an image, and what the image tells."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.image.conftest import COMMAND, ROOT
from tests.image.containers import Container, Engine, tool

from podwright import blueprints

Shell = Callable[..., subprocess.CompletedProcess[str]]
Start = Callable[..., Container]

TOOLS = '''\
import inflect

def add_numbers(numbers: list[float]) -> str:
    """Add numbers up.

    Args:
        numbers: The numbers, in any order.
    """
    return inflect.engine().number_to_words(int(sum(numbers)))
'''


@pytest.fixture
def build(shell: Shell, engine: Engine, direct: str, tag: str) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Builds a folder on the small flavour."""

    def run(folder: Path | str, *options: str, **more: Any) -> subprocess.CompletedProcess[str]:
        return shell("build", str(folder), "--tag", tag, "--base", direct, "--docker", engine.client, *options, **more)

    return run


def agent(folder: Path, **changes: Any) -> Path:
    """A component folder without tools."""
    folder.mkdir(parents=True)
    blueprint = {"name": folder.name, "instructions": "Do.", "config": {"model": "offline/echo"}, **changes}
    (folder / "blueprint.json").write_text(json.dumps(blueprint))
    return folder


def unfolded(done: subprocess.CompletedProcess[str]) -> str:
    """What a command that fails says; it is an error in words."""
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    return done.stderr


def test_from_new_to_an_image(
    shell: Shell, engine: Engine, direct: str, tag: str, start: Start, tmp_path: Path
) -> None:
    """The packages that users install, outside of this repository, make an image of a component with a dependency of
    its own; its lock is written, it answers with its tool, and its labels tell of it.
    """  # fmt: skip
    wheels = tmp_path / "wheels"
    for one in ("library", "service"):
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", wheels],
            cwd=ROOT / one, check=True, capture_output=True,
        )  # fmt: skip
    for wheel in wheels.iterdir():
        subprocess.run([sys.executable, "-m", "zipfile", "-e", wheel, tmp_path / "site"], check=True)
    installed = (sys.executable, "-c", "from podwright_service.cli import main; main()")
    variables = {"PYTHONPATH": str(tmp_path / "site")}
    options = ("--base", direct, "--docker", engine.client)

    assert shell("new", "calculator", program=installed, **variables).returncode == 0
    folder = tmp_path / "calculator"
    (folder / "tools.py").write_text(TOOLS)
    (folder / "requirements.txt").write_text("inflect<8\norjson\npodwright\n")
    (folder / ".env").write_text("SECRET=1\n")
    done = shell("build", "calculator", "-t", tag, *options, program=installed, **variables)
    assert done.returncode == 0, done.stderr
    assert "blueprint.json" in done.stdout
    assert ".env" not in done.stdout
    lock = (folder / "requirements.lock").read_text()
    assert "inflect==7" in lock
    assert "--hash=sha256:" in lock
    assert "http" not in lock

    container = start(tag, "--read-only", "--cap-drop=ALL", "--network=none", "--user=65532").healthy()
    assert "one" in container.ask({"input": "What is 2 + 3?"})["output"]
    assert container.run("ls", "-A", "/component").split() == ["README.md", "blueprint.json", "tools.py"]
    digest = json.loads(container.run("podwright", "validate", "/component", "--json"))[0]["digest"]
    assert engine.image(tag)["Config"]["Labels"]["podwright.blueprint.digest"] == digest
    assert container.stop() == 0
    for layer in engine.layers(tag, direct):
        # what the image has already, such as orjson, is not installed again
        assert not [path for path in layer.entries if "orjson" in path or path.endswith((".pth", ".lock"))]

    shown = shell("inspect", tag, "--json", "--docker", engine.client)
    facts = json.loads(shown.stdout)
    assert (facts["name"], facts["kind"], facts["tools"]) == ("calculator", "agent", ["add_numbers"])
    assert facts["models"] == ["offline/echo"]
    assert facts["limits"]["max_loops"] == 5
    assert facts["digest"] == digest
    assert "calculator" in shell("inspect", tag, "--docker", engine.client).stdout

    assert shell("build", "calculator", "-t", tag, "--locked", *options).returncode == 0
    (folder / "requirements.txt").write_text("inflect<8\nsix\n")
    assert "is not up to date" in unfolded(shell("build", "calculator", "-t", tag, "--locked", *options))
    assert (folder / "requirements.lock").read_text() == lock


def test_a_lock_is_kept_to(build: Callable[..., Any], tmp_path: Path) -> None:
    """What the lock names is what is installed: another file under the same name and version is refused."""
    folder = agent(tmp_path / "kept")
    (folder / "requirements.txt").write_text("six\n")
    (folder / "requirements.lock").write_text(f"six==1.16.0 \\\n    --hash=sha256:{'0' * 64}\n")
    said = unfolded(build(folder))
    assert "Hash mismatch for `six==1.16.0`" in said


def test_a_requirement_that_is_nowhere(build: Callable[..., Any], tmp_path: Path) -> None:
    """A dependency that does not exist fails the build, by its name."""
    folder = agent(tmp_path / "lost")
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "lost"\nversion = "1"\ndependencies = ["podwright-has-no-such-requirement"]\n'
    )
    assert "podwright-has-no-such-requirement" in unfolded(build(folder))
    assert not (folder / "requirements.lock").exists()


def test_a_tool_that_is_missing(build: Callable[..., Any], tmp_path: Path) -> None:
    """A tool that tools.py lacks fails the build, with its place in the blueprint and what to do."""
    folder = agent(tmp_path / "bird", tools=[tool("fly")])
    (folder / "tools.py").write_text("def walk() -> str:\n    '''Walk.'''\n    return 'walked'\n")
    said = unfolded(build(folder))
    assert "blueprint_invalid" in said
    assert "/tools/0" in said
    assert "def fly" in said


def test_code_that_fails(build: Callable[..., Any], tmp_path: Path) -> None:
    """A tools.py that cannot be imported fails the build with its error; there is no network for it to call."""
    folder = agent(tmp_path / "caller", tools=[tool("call")])
    (folder / "tools.py").write_text(
        "import os, socket\n"
        "assert os.getuid() == 65532\n"
        "socket.create_connection(('192.0.2.1', 9), 5)\n"
        "def call() -> str:\n    '''Call.'''\n    return 'called'\n"
    )
    said = unfolded(build(folder))
    assert "'tools.py' of 'caller' cannot be imported" in said
    assert "unreachable" in said


def test_a_blueprint_with_problems(shell: Shell, tmp_path: Path) -> None:
    """What is wrong with the data is told at once, all of it, and no engine is asked."""
    folder = agent(tmp_path / "wrong", config={"model": 5, "max_loops": 0})
    said = unfolded(shell("build", str(folder), "-t", "x", "--docker", "true"))
    assert "/config/model" in said
    assert "/config/max_loops" in said


HOSTILE = '$(touch /pwned) `touch /pwned` ${PATH} "; RUN touch /pwned\nRUN touch /pwned\n# \\\nLABEL a=b\tü'


def test_words_are_only_words(
    build: Callable[..., Any], shell: Shell, engine: Engine, tag: str, tmp_path: Path
) -> None:
    """What a blueprint says reaches labels as it is, and neither a shell nor the Dockerfile."""
    folder = agent(tmp_path / "words", description=HOSTILE, instructions=HOSTILE)
    (folder / "--help $(touch pwned); RUN x").write_text("kept")
    done = build(folder)
    assert done.returncode == 0, done.stderr
    labels = engine.image(tag)["Config"]["Labels"]
    assert labels["org.opencontainers.image.description"] == HOSTILE
    assert "a" not in labels
    assert json.loads(shell("inspect", tag, "--json", "--docker", engine.client).stdout)["description"] == HOSTILE
    find = engine("run", "--rm", "--user=0", "--entrypoint=find", tag, "/", "-xdev", "-name", "*pwned*")
    assert find.splitlines() == ["/component/--help $(touch pwned); RUN x"]


@pytest.mark.parametrize("name", ["a b", "--output=/tmp/x", "$(id)", "x;y", ""])
def test_names_of_images(shell: Shell, tmp_path: Path, name: str) -> None:
    """What can be no image's name is refused before anything is called."""
    folder = agent(tmp_path / "fine")
    assert "is no name of an image" in unfolded(shell("build", str(folder), f"--tag={name}", "--docker", "true"))
    assert "is no name of an image" in unfolded(
        shell("build", str(folder), "-t", "x", f"--base={name}", "--docker", "true")
    )


@pytest.mark.parametrize("inside", ["data.txt", "tools.py", "requirements.txt", "agents", "blueprint.json"])
def test_links(shell: Shell, engine: Engine, tmp_path: Path, inside: str) -> None:
    """A link in the folder is refused: it may lead to anything that whoever builds can read."""
    folder = agent(tmp_path / "linked")
    secret = tmp_path / "secret"
    secret.write_text((folder / "blueprint.json").read_text())
    (folder / inside).unlink(missing_ok=True)
    (folder / inside).symlink_to(secret)
    assert f"'{inside}' in 'linked' is a link" in unfolded(
        shell("build", str(folder), "-t", "x", "--docker", engine.client)
    )


def test_what_is_left_out(build: Callable[..., Any], engine: Engine, tag: str, tmp_path: Path) -> None:
    """Hidden files, environments, byte code and tests stay at home; all else comes along, readable for everyone."""
    folder = agent(tmp_path / "packed")
    out = [".env", ".git/config", "venv/pyvenv.cfg", "venv/lib/x.py", "__pycache__/tools.pyc", "test_it.py"]
    kept = ["data/table.csv", "more/__init__.py"]
    for name in [*out, *kept]:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("x")
    (folder / "data" / "table.csv").chmod(0o600)
    assert build(folder).returncode == 0
    found = engine("run", "--rm", "--entrypoint=find", tag, "/component", "-type", "f", "-perm", "0644").splitlines()
    assert sorted(found) == sorted(f"/component/{name}" for name in ["blueprint.json", *kept])


def test_agents_beside_it(
    build: Callable[..., Any], shell: Shell, engine: Engine, tag: str, start: Start, tmp_path: Path
) -> None:
    """A workflow brings the agents of the folders beside it along, and answers without a network."""
    done = build(ROOT / "deploy" / "examples" / "newsroom" / "newsroom")
    assert done.returncode == 0, done.stderr
    assert "podwright:full" not in done.stderr, "the models that it names are served by the small flavour"
    facts = json.loads(shell("inspect", tag, "--json", "--docker", engine.client).stdout)
    assert facts["kind"] == "workflow"
    assert {"researcher", "writer", "reviewer"} <= set(facts["agents"])
    assert facts["remotes"] == []
    container = start(tag, "--network=none", "--read-only", PODWRIGHT_MODEL="offline/echo").healthy()
    assert "writer_output" in container.ask({"input": "the moon"})
    assert container.stop() == 0


def test_agents_elsewhere(build: Callable[..., Any], shell: Shell, engine: Engine, tag: str, tmp_path: Path) -> None:
    """Agents that run in other containers are declared as they are in service; no address is in the image."""
    folder = tmp_path / "line"
    folder.mkdir()
    steps = [{"type": "agent_step", "name": "write", "agent": "writer"}]
    (folder / "blueprint.json").write_text(json.dumps({"name": "line", "steps": steps}))
    assert "writer" in unfolded(build(folder))
    done = build(folder, PODWRIGHT_AGENTS='{"writer": "http://writer.internal:8000"}')
    assert done.returncode == 0, done.stderr
    assert json.loads(shell("inspect", tag, "--json", "--docker", engine.client).stdout)["remotes"] == ["writer"]
    assert "writer.internal" not in json.dumps(engine.image(tag)) + engine("history", "--no-trunc", tag)


def test_a_model_that_nobody_there_provides(build: Callable[..., Any], tmp_path: Path) -> None:
    """A component whose model needs LiteLLM is told so when it is built without it."""
    done = build(agent(tmp_path / "wide", config={"model": "bedrock/anthropic.claude"}))
    assert done.returncode == 0
    assert "--base podwright:full" in done.stderr


def test_the_same_image_again(build: Callable[..., Any], engine: Engine, tag: str, tmp_path: Path) -> None:
    """Built again from the same files, wherever and whenever they were written, a component's layer is the same."""
    made: list[list[str]] = []
    for place in ("here", "there"):
        done = build(agent(tmp_path / place / "same"), "--verbose")
        assert done.returncode == 0
        made.append(engine.image(tag)["RootFS"]["Layers"])
    assert made[0] == made[1]
    times = engine("run", "--rm", "--entrypoint=find", tag, "/component", "-printf", "%T@ ")
    assert {float(one) for one in times.split()} == {0.0}


def test_what_is_built_is_what_is_there(
    build: Callable[..., Any], shell: Shell, engine: Engine, tag: str, tmp_path: Path
) -> None:
    """A file that changes and stays as long as it was is a changed file, also where two folders follow each other."""
    one, other = agent(tmp_path / "first", instructions="Do this."), agent(tmp_path / "other", instructions="Do that.")

    def built(folder: Path) -> tuple[str, str, str]:
        done = build(folder)
        assert done.returncode == 0, done.stderr
        digest = json.loads(shell("inspect", tag, "--json", "--docker", engine.client).stdout)["digest"]
        inside = engine(
            "run", "--rm", "--entrypoint=sh", tag, "-c", "cat /component/blueprint.json /component/notes.txt"
        )
        return inside, digest, blueprints.digest(json.loads((folder / "blueprint.json").read_text()))

    for number, folder in enumerate((one, one, other, one)):
        text = (folder / "blueprint.json").read_text().replace("Do th", f"{number}o th")
        (folder / "blueprint.json").write_text(text)
        (folder / "notes.txt").write_text(f"The {number}th note.")
        inside, digest, own = built(folder)
        assert inside == text + f"The {number}th note."
        assert digest == own


def test_where_there_is_no_base(engine: Engine, tmp_path: Path, shell: Shell) -> None:
    """Without the base image, an installed podwright says how to build it; one of another name is looked for afar."""
    client = tmp_path / "docker"
    client.write_text(
        "#!/bin/sh\n"
        'if [ "$1$2" = imageinspect ]; then echo "Error: No such image: $3" >&2; exit 1; fi\n'
        f'exec "{engine.client}" "$@"\n'
    )
    client.chmod(0o755)
    folder = agent(tmp_path / "baseless")
    code = (
        "import pathlib, podwright_service.images.building as b; b._CHECKOUT = pathlib.Path('/nowhere');"
        "from podwright_service.cli import main; main()"
    )
    said = unfolded(
        shell("build", str(folder), "-t", "x", "--docker", str(client), program=(sys.executable, "-c", code))
    )
    assert "There is no image 'podwright:direct' here." in said
    assert "docker build -t podwright:direct --build-arg FLAVOUR=direct ." in said
    said = unfolded(
        shell("build", str(folder), "-t", "x", "--base", "127.0.0.1:9/none/such:1", "--docker", engine.client)
    )
    assert "There is no image '127.0.0.1:9/none/such:1', here or in its registry." in said


def test_without_an_engine(shell: Shell, tmp_path: Path) -> None:
    """Without a Docker client, or with one that no engine answers, the error says what to do."""
    folder = agent(tmp_path / "alone")
    said = unfolded(shell("build", str(folder), "-t", "x", program=(sys.executable, str(COMMAND)), PATH=str(tmp_path)))
    assert "There is no Docker client on the PATH with buildx." in said
    assert "make engine" in said


def test_an_engine_that_does_not_answer(shell: Shell, engine: Engine, tmp_path: Path) -> None:
    """A client whose engine is down is told from an image that is not there."""
    options = ("--docker", engine.client)
    said = unfolded(shell("inspect", "x", *options, DOCKER_HOST=f"unix://{tmp_path}/none.sock"))
    assert "The Docker engine does not answer" in said
    assert "There is no image 'podwright-no-such-image' here." in unfolded(
        shell("inspect", "podwright-no-such-image", *options)
    )


def test_an_image_without_a_component(shell: Shell, engine: Engine, direct: str) -> None:
    """An image that holds no component, as the base does not, says nothing of one."""
    assert "does not say what component it holds" in unfolded(shell("inspect", direct, "--docker", engine.client))
