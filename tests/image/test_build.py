"""`podwright build` and `podwright inspect`."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.docs.test_embedding import OWN_CODE, write
from tests.helpers import DESK, NEWSROOM, ROOT, until
from tests.image.conftest import Shell, Start
from tests.image.containers import layers, tool_entry
from tests.image_support import Docker
from tests.mcp_pod import SCRIPT, searcher, tools_lock

from podwright import blueprints, load
from podwright.errors import ConfigurationError
from podwright.folders.folder import Folder
from podwright.folders.walks import component_digest
from podwright.mcp.lock import LOCK_FILE
from podwright.models.prices import pricing
from podwright_service.images.context import stage
from podwright_service.testing import (
    ComponentContainer,
    ModelResponse,
    ModelStub,
    ToolCall,
    Usage,
)

FRAMEWORKS = ROOT / "deploy" / "examples" / "frameworks"
Build = Callable[..., subprocess.CompletedProcess[str]]

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
def build(shell: Shell, docker: Docker, slim: str, tag: str) -> Build:
    """Builds a folder from the flavour `slim`."""

    def run(
        folder: Path | str, *options: str, **more: Any
    ) -> subprocess.CompletedProcess[str]:
        return shell(
            "build",
            str(folder),
            "--tag",
            tag,
            "--base",
            slim,
            "--docker",
            docker.client,
            *options,
            **more,
        )

    return run


@pytest.fixture
def facts(
    shell: Shell, docker: Docker, tag: str
) -> Callable[[], dict[str, Any]]:
    """Returns what `podwright inspect --json` prints of the image that was built."""
    return lambda: json.loads(
        shell("inspect", tag, "--json", "--docker", docker.client).stdout
    )


def agent(folder: Path, **changes: Any) -> Path:
    """A component folder without tools."""
    folder.mkdir(parents=True)
    blueprint = {
        "name": folder.name,
        "instructions": "Do.",
        "config": {"model": "offline/echo"},
        **changes,
    }
    (folder / "blueprint.json").write_text(json.dumps(blueprint))
    return folder


def error_of(done: subprocess.CompletedProcess[str]) -> str:
    """The error message of a command that fails."""
    assert (done.returncode, done.stdout) == (1, ""), done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def test_from_a_new_folder_to_an_image(
    shell: Shell,
    docker: Docker,
    slim: str,
    tag: str,
    start: Start,
    tmp_path: Path,
) -> None:
    """The published packages, outside of this repository, build a component with a dependency: its lock is written, it
    runs with its tool, and its labels describe it.
    """
    wheels = tmp_path / "wheels"
    for package in ("library", "service"):
        command = [
            sys.executable,
            "-m",
            "hatchling",
            "build",
            "-t",
            "wheel",
            "-d",
            wheels,
        ]
        subprocess.run(
            command, cwd=ROOT / package, check=True, capture_output=True
        )
    for wheel in wheels.iterdir():
        subprocess.run(
            [sys.executable, "-m", "zipfile", "-e", wheel, tmp_path / "site"],
            check=True,
        )
    installed: Any = {
        "program": (
            sys.executable,
            "-c",
            "from podwright_service.cli import main; main()",
        ),
        "PYTHONPATH": str(tmp_path / "site"),
    }
    options = (
        "calculator",
        "-t",
        tag,
        "--base",
        slim,
        "--docker",
        docker.client,
    )

    assert shell("new", "calculator", **installed).returncode == 0
    folder = tmp_path / "calculator"
    (folder / "tools.py").write_text(TOOLS)
    (folder / "requirements.txt").write_text("inflect<8\norjson\npodwright\n")
    (folder / ".env").write_text("SECRET=1\n")
    done = shell("build", *options, **installed)
    assert done.returncode == 0, done.stderr
    assert "blueprint.json" in done.stdout
    assert ".env" not in done.stdout
    lock = (folder / "requirements.lock").read_text()
    assert "inflect==7" in lock
    assert "--hash=sha256:" in lock
    assert "http" not in lock

    container = start(
        tag, "--read-only", "--cap-drop=ALL", "--network=none", "--user=65532"
    ).healthy()
    assert "one" in container.post_run({"input": "What is 2 + 3?"})["output"]
    assert container.run("ls", "-A", "/component").split() == [
        "README.md",
        "blueprint.json",
        "tools.py",
    ]
    digest = json.loads(
        container.run("podwright", "validate", "/component", "--json")
    )[0]["digest"]
    assert (
        docker.inspect(tag)["Config"]["Labels"]["podwright.blueprint.digest"]
        == digest
    )
    assert container.stop() == 0
    for layer in layers(docker, tag, slim):
        # packages of the base image, such as orjson, are not installed again
        assert not [
            path
            for path in layer.entries
            if "orjson" in path or path.endswith((".pth", ".lock"))
        ]

    facts = json.loads(
        shell("inspect", tag, "--json", "--docker", docker.client).stdout
    )
    assert (facts["name"], facts["kind"], facts["tools"]) == (
        "calculator",
        "agent",
        ["add_numbers"],
    )
    assert (facts["models"], facts["limits"]["max_loops"], facts["digest"]) == (
        ["offline/echo"],
        5,
        digest,
    )
    assert (
        "calculator" in shell("inspect", tag, "--docker", docker.client).stdout
    )

    assert shell("build", *options, "--locked").returncode == 0
    (folder / "requirements.txt").write_text("inflect<8\nsix\n")
    assert "requirements.lock" in error_of(shell("build", *options, "--locked"))
    assert (folder / "requirements.lock").read_text() == lock


def test_dependencies_that_cannot_be_installed(
    build: Build, tmp_path: Path
) -> None:
    """A file with another hash than in the lock, and a package that does not exist, fail the build."""
    folder = agent(tmp_path / "locked")
    (folder / "requirements.txt").write_text("six\n")
    (folder / "requirements.lock").write_text(
        f"six==1.16.0 \\\n    --hash=sha256:{'0' * 64}\n"
    )
    assert "Hash mismatch for `six==1.16.0`" in error_of(build(folder))
    folder = agent(tmp_path / "missing")
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "missing"\nversion = "1"\ndependencies = ["podwright-has-no-such-requirement"]\n'
    )
    assert "podwright-has-no-such-requirement" in error_of(build(folder))
    assert not (folder / "requirements.lock").exists()


def test_tools_are_checked_in_the_build(build: Build, tmp_path: Path) -> None:
    """A missing tool, and code that fails without a network, fail the build."""
    folder = agent(tmp_path / "bird", tools=[tool_entry("fly")])
    (folder / "tools.py").write_text(
        "def walk() -> str:\n    '''Walk.'''\n    return 'walked'\n"
    )
    message = error_of(build(folder))
    assert "[blueprint_invalid]" in message
    assert "/tools/0" in message
    folder = agent(tmp_path / "caller", tools=[tool_entry("call")])
    (folder / "tools.py").write_text(
        "import os, socket\n"
        "assert os.getuid() == 65532\n"
        "socket.create_connection(('192.0.2.1', 9), 5)\n"
        "def call() -> str:\n    '''Call.'''\n    return 'called'\n"
    )
    message = error_of(build(folder))
    assert "'caller'" in message
    assert "unreachable" in message


def test_errors_before_the_build(shell: Shell, tmp_path: Path) -> None:
    """An invalid blueprint or image name is an error before an engine is needed."""
    folder = agent(tmp_path / "invalid", config={"model": 5, "max_loops": 0})
    message = error_of(
        shell("build", str(folder), "-t", "x", "--docker", "true")
    )
    assert "/config/model" in message
    assert "/config/max_loops" in message
    folder = agent(tmp_path / "valid")
    error_of(shell("build", str(folder), "--tag=$(id)", "--docker", "true"))
    error_of(
        shell("build", str(folder), "-t", "x", "--base=", "--docker", "true")
    )


def test_an_agent_of_another_framework(
    build: Build,
    facts: Callable[[], dict[str, Any]],
    tag: str,
    tmp_path: Path,
) -> None:
    """A recipe with its framework in an image: what its run reports is what the provider has billed."""
    folder = tmp_path / "assistant"
    shutil.copytree(FRAMEWORKS / "pydantic_ai", folder)
    done = build(folder)
    assert done.returncode == 0, done.stderr
    assert "pydantic-ai-slim==" in (folder / "requirements.lock").read_text()
    assert facts()["models"] == ["openai/gpt-5-mini"]
    bills = [
        Usage(100, 20, cached_input_tokens=40, reasoning_tokens=8),
        Usage(150, 30, cached_input_tokens=90, reasoning_tokens=2),
    ]
    call = ToolCall.of("price", product="tea")
    with ModelStub(
        ModelResponse(tool_calls=(call,), usage=bills[0]),
        ModelResponse("Tea costs 3 EUR.", usage=bills[1]),
    ) as stub:
        variables = {
            "OPENAI_API_KEY": "made-up",
            "OPENAI_BASE_URL": f"{stub.url_for_containers}/v1",
        }
        with ComponentContainer(tag, env=variables) as container:
            result = container.run("What does tea cost?", trace=True)
    assert result.value == "Tea costs 3 EUR."
    used = result.usage
    assert (used.model_calls, used.input_tokens) == (2, 250)
    assert (used.output_tokens, used.reasoning_tokens) == (50, 10)
    assert used.cached_input_tokens == 130
    costs = [pricing.lookup("openai/gpt-5-mini", bill) for bill in bills]
    assert used.cost == pytest.approx(
        sum(cost.amount for cost in costs if cost is not None)
    )


HOSTILE = '$(touch /pwned) `touch /pwned` ${PATH} "; RUN touch /pwned\nRUN touch /pwned\n# \\\nLABEL a=b\tü'


def test_text_is_not_code(
    build: Build,
    facts: Callable[[], dict[str, Any]],
    docker: Docker,
    tag: str,
    tmp_path: Path,
) -> None:
    """Text of a blueprint arrives in labels unchanged, and in no shell or Dockerfile; an unserved model is reported."""
    config = {"model": "bedrock/anthropic.claude"}
    folder = agent(
        tmp_path / "text",
        description=HOSTILE,
        instructions=HOSTILE,
        config=config,
    )
    (folder / "--help $(touch pwned); RUN x").write_text("kept")
    done = build(folder)
    assert done.returncode == 0, done.stderr
    assert "--base podwright:full" in done.stderr
    labels = docker.inspect(tag)["Config"]["Labels"]
    assert (
        labels["org.opencontainers.image.description"]
        == facts()["description"]
        == HOSTILE
    )
    assert "a" not in labels
    files = docker.shell(tag, "find / -xdev -name '*pwned*'", "--user=0")
    assert files.splitlines() == ["/component/--help $(touch pwned); RUN x"]


@pytest.mark.parametrize(
    "name", ["data.txt", "requirements.txt", "agents", "blueprint.json"]
)
def test_links_are_errors(tmp_path: Path, name: str) -> None:
    """A link in the folder is an error, because it may point to any file of the user who builds."""
    folder = agent(tmp_path / "linked")
    context = tmp_path / "context"
    context.mkdir()
    secret = tmp_path / "secret"
    secret.write_text((folder / "blueprint.json").read_text())
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(secret)
    with pytest.raises(ConfigurationError, match=f"'{name}'"):
        stage(Folder(folder), context, ())


def test_files_of_a_component(tmp_path: Path) -> None:
    """Hidden files, environments, byte code, tests and evaluations are left out; everyone may read all others."""
    folder = agent(tmp_path / "packed")
    context = tmp_path / "context"
    context.mkdir()
    excluded = [
        ".env",
        ".git/config",
        "venv/pyvenv.cfg",
        "venv/lib/x.py",
        "__pycache__/tools.pyc",
        "test_it.py",
        "evals/evals.yaml",
        "evals/.recorded/answers/1.json",
        "evals/prompts/short.md",
    ]
    included = ["data/evals/words.csv", "data/table.csv", "more/__init__.py"]
    for name in [*excluded, *included]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    (folder / "data" / "table.csv").chmod(0o600)
    files = stage(Folder(folder), context, ())
    assert files == ["blueprint.json", *included]
    assert {
        stat.S_IMODE((context / "component" / file).stat().st_mode)
        for file in files
    } == {0o644}


@pytest.mark.parametrize("name", [".prompts/a.md", "test_prompt.py", "./.a.md"])
def test_texts_are_files_of_a_component(tmp_path: Path, name: str) -> None:
    """A file with a text of a blueprint is in the image whatever its name, unlike others with such names."""
    folder = agent(tmp_path / "packed")
    file = agent(folder / "agents" / "inner") / "blueprint.json"
    blueprint = json.loads(file.read_text())
    blueprint["instructions"] = {"file": name}
    file.write_text(json.dumps(blueprint))
    prompt = file.parent / name
    prompt.parent.mkdir(exist_ok=True)
    prompt.write_text("Be brief.")
    prompt.with_name("test_other.py").write_text("x = 1")
    context = tmp_path / "context"
    context.mkdir()
    files = stage(Folder(folder), context, ())
    inside = prompt.relative_to(folder)
    assert files == sorted(
        [str(inside), "agents/inner/blueprint.json", "blueprint.json"]
    )
    inner = load(context / "component" / "agents" / "inner")
    assert inner.to_blueprint()["instructions"] == "Be brief."


AGENTS_PY = "def helper(task: str) -> str:\n    return task\n"


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    """The folder of a workflow with an agent `helper`."""
    folder = tmp_path / "flow"
    folder.mkdir()
    step = {"type": "agent_step", "agent": "helper", "name": "first"}
    workflow = {"type": "Workflow", "name": "flow", "steps": [step]}
    (folder / "blueprint.json").write_text(json.dumps(workflow))
    (tmp_path / "context").mkdir()
    return folder


def test_an_agent_in_code_replaces_one_beside(
    flow: Path, tmp_path: Path
) -> None:
    """A folder beside a component is not even read if `agents.py` supplies the agent."""
    (flow / "agents.py").write_text(AGENTS_PY)
    (tmp_path / "helper").mkdir()
    (tmp_path / "helper" / "blueprint.json").write_text("{")
    files = stage(Folder(flow), tmp_path / "context", ())
    assert files == ["agents.py", "blueprint.json"]


@pytest.mark.parametrize(
    "code",
    [AGENTS_PY.replace("helper", "other"), f"import of_images\n{AGENTS_PY}"],
)
def test_an_agent_that_code_may_not_replace(
    flow: Path, tmp_path: Path, code: str
) -> None:
    """A folder beside a component is copied if `agents.py` has another agent, or needs packages of the image."""
    (flow / "agents.py").write_text(code)
    agent(tmp_path / "helper")
    files = stage(Folder(flow), tmp_path / "context", ())
    assert "agents/helper/blueprint.json" in files


def team(folder: Path, name: str, *members: str) -> Path:
    """The folder of a pipeline that names its agents."""
    folder.mkdir(parents=True)
    steps = [{"type": "Agent", "name": member} for member in members]
    blueprint = {"type": "Pipeline", "name": name, "steps": steps}
    (folder / "blueprint.json").write_text(json.dumps(blueprint))
    return folder


def test_agents_of_an_agent_are_copied(flow: Path, tmp_path: Path) -> None:
    """What an agent in `agents/` needs beside the component is in its image, and is found there."""
    team(flow / "agents" / "helper", "helper", "writer", "critic")
    agent(tmp_path / "writer")
    agent(flow / "agents" / "critic")
    files = stage(Folder(flow), tmp_path / "context", ())
    assert files == [
        "agents/critic/blueprint.json",
        "agents/helper/blueprint.json",
        "agents/writer/blueprint.json",
        "blueprint.json",
    ]


def test_agents_that_an_image_cannot_have(flow: Path, tmp_path: Path) -> None:
    """A name that means two agents, and a file with the code of another component, are errors."""
    team(tmp_path / "helper", "helper", "critic")
    agent(tmp_path / "critic")
    agent(flow / "agents" / "critic")
    with pytest.raises(ConfigurationError) as ambiguous:
        stage(Folder(flow), tmp_path / "context", ())
    assert "'critic'" in ambiguous.value.message
    inner = team(flow / "agents" / "chief", "chief", "senior")
    (flow / "agents" / "senior.json").write_text("{}")
    with pytest.raises(ConfigurationError) as elsewhere:
        stage(Folder(inner), tmp_path / "context", ())
    assert "'flow'" in elsewhere.value.message


def test_shared_packages_of_a_component(tmp_path: Path) -> None:
    """A package that components share is in the image of each, also if only an agent of a component lists it."""
    folder = agent(tmp_path / "packed")
    inner = agent(folder / "agents" / "inner")
    listed = '[tool.podwright]\nshared = ["../../../words"]\n'
    (inner / "pyproject.toml").write_text(listed)
    for name in ("shared", "words"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "text.py").write_text("x = 1")
        (tmp_path / name / "test_text.py").write_text("x = 1")
    context = tmp_path / "context"
    context.mkdir()
    files = stage(Folder(folder), context, ())
    assert files == [
        "agents/inner/blueprint.json",
        "blueprint.json",
        "shared/text.py",
        "words/text.py",
    ]


def test_shared_packages_with_one_name(tmp_path: Path) -> None:
    """Two packages cannot have the same place in an image."""
    folder = agent(tmp_path / "packed")
    inner = agent(folder / "agents" / "inner")
    listed = '[tool.podwright]\nshared = ["../../../more/shared"]\n'
    (inner / "pyproject.toml").write_text(listed)
    for path in (tmp_path / "shared", tmp_path / "more" / "shared"):
        path.mkdir(parents=True)
        (path / "text.py").write_text("x = 1")
    with pytest.raises(ConfigurationError, match="called 'shared'"):
        stage(Folder(folder), tmp_path / "context", ())


def test_agents_in_the_folders_beside(
    build: Build, facts: Callable[[], dict[str, Any]], tag: str, start: Start
) -> None:
    """An image of a workflow has the agents of the folders beside it, and runs without a network."""
    done = build(NEWSROOM / "newsroom")
    assert done.returncode == 0, done.stderr
    assert "podwright:full" not in done.stderr
    described = facts()
    assert (described["kind"], described["remotes"]) == ("workflow", [])
    assert {"researcher", "writer", "reviewer"} <= set(described["agents"])
    container = start(
        tag, "--network=none", "--read-only", PODWRIGHT_MODEL="offline/echo"
    ).healthy()
    assert "writer_output" in container.post_run({"input": "the moon"})
    assert container.stop() == 0


def test_the_support_desk(build: Build, tag: str, start: Start) -> None:
    """An image of the desk has its functions, its tools and their files; a person decides over HTTP."""
    done = build(DESK)
    assert done.returncode == 0, done.stderr
    container = start(
        tag,
        "--network=none",
        "--read-only",
        "--tmpfs=/tmp",
        PODWRIGHT_MODEL="offline/echo",
    ).healthy()
    inputs = {"input": "My cup is broken.", "customer": "Ann"}
    problem = container.post_run({"inputs": inputs})
    assert problem["code"] == "approval_required"
    decided = {
        "inputs": problem["context"],
        "resume_path": problem["resume_path"],
        "decision": {"values": {"draft": "Dear Ann"}},
    }
    context = container.post_run(decided)
    assert context["draft"] == "Dear Ann"
    assert json.loads(context["receipt"])["letter"]
    assert container.stop() == 0


def test_a_component_and_a_model_of_ones_own(
    build: Build,
    facts: Callable[[], dict[str, Any]],
    tag: str,
    start: Start,
    tmp_path: Path,
) -> None:
    """The folder of docs/embedding.md is an image that needs no provider but its own."""
    folder = tmp_path / "desk"
    folder.mkdir()
    write(folder, *OWN_CODE)
    done = build(folder)
    assert done.returncode == 0, done.stderr
    assert facts()["models"] == ["acme/small", "acme/large"]
    container = start(tag, "--network=none", "--read-only").healthy()
    answer = container.post_run({"input": "Where is order number 7?"})
    assert answer["helper_output"] == "WHERE IS ORDER NUMBER 7?"
    assert container.stop() == 0


def test_remote_agents(
    build: Build,
    facts: Callable[[], dict[str, Any]],
    docker: Docker,
    tag: str,
    tmp_path: Path,
) -> None:
    """Remote agents are configured as for the service; their addresses are not in the image."""
    folder = tmp_path / "line"
    folder.mkdir()
    steps = [{"type": "agent_step", "name": "write", "agent": "writer"}]
    (folder / "blueprint.json").write_text(
        json.dumps({"name": "line", "steps": steps})
    )
    assert "writer" in error_of(build(folder))
    done = build(
        folder, PODWRIGHT_AGENTS='{"writer": "http://writer.internal:8000"}'
    )
    assert done.returncode == 0, done.stderr
    assert facts()["remotes"] == ["writer"]
    assert "writer.internal" not in json.dumps(docker.inspect(tag)) + docker(
        "history", "--no-trunc", tag
    )


def test_the_image_has_the_files_of_the_folder(
    build: Build,
    facts: Callable[[], dict[str, Any]],
    docker: Docker,
    tag: str,
    tmp_path: Path,
) -> None:
    """A changed file of the same size is a changed file, and the same files at another time give the same layers."""
    folders = [
        agent(tmp_path / place / "same")
        for place in ("first", "second", "third")
    ]
    (folders[1] / "blueprint.json").write_text(
        (folders[1] / "blueprint.json").read_text().replace("Do.", "Go.")
    )
    images: list[list[str]] = []
    for folder in folders:
        done = build(folder, "--verbose")
        assert done.returncode == 0, done.stderr
        images.append(docker.inspect(tag)["RootFS"]["Layers"])
        text = (folder / "blueprint.json").read_text()
        assert docker.shell(tag, "cat /component/blueprint.json") == text
        assert facts()["digest"] == blueprints.digest(json.loads(text))
    assert images[0] == images[2] != images[1]
    times = docker.shell(tag, "find /component -printf '%T@ '")
    assert {float(time) for time in times.split()} == {0.0}


def test_missing_parts(
    shell: Shell, docker: Docker, slim: str, tmp_path: Path
) -> None:
    """A missing client, engine, base image or component is an error that names it."""
    folder = str(agent(tmp_path / "alone"))
    client = ("--docker", docker.client)
    message = error_of(shell("build", folder, "-t", "x", PATH=str(tmp_path)))
    assert "make engine" in message
    error_of(
        shell(
            "inspect", "x", *client, DOCKER_HOST=f"unix://{tmp_path}/none.sock"
        )
    )
    assert "podwright:none" in error_of(
        shell("build", folder, "-t", "x", "--base", "podwright:none", *client)
    )
    absent = "127.0.0.1:9/none/such:1"
    assert absent in error_of(
        shell("build", folder, "-t", "x", "--base", absent, *client)
    )
    assert "podwright-no-such-image" in error_of(
        shell("inspect", "podwright-no-such-image", *client)
    )
    assert slim in error_of(shell("inspect", slim, *client))


@pytest.mark.parametrize("wanted", ["", "inflect==7.5.0\n"])
def test_tools_of_an_mcp_server(
    build: Build,
    facts: Callable[[], dict[str, Any]],
    full: str,
    tag: str,
    start: Start,
    tmp_path: Path,
    wanted: str,
) -> None:
    """A folder with MCP tools is built from `slim` without its server, with the package that calls one beside it."""
    folder = tmp_path / "line"
    folder.mkdir()
    blueprint = searcher("line")
    (folder / "blueprint.json").write_text(json.dumps(blueprint))
    tools_lock().write_file(folder / LOCK_FILE)
    if wanted:
        (folder / "requirements.txt").write_text(wanted)
    done = build(folder)
    assert done.returncode == 0, done.stderr
    described = facts()
    assert described["tools"] == ["search"]
    assert described["mcp"] == ["tools"]
    assert described["digest"] == component_digest(load(folder))
    assert described["digest"] != blueprints.digest(blueprint)
    names = {file.name for file in folder.iterdir()}
    assert ("requirements.lock" in names) is bool(wanted)
    if wanted:
        locked = (folder / "requirements.lock").read_text()
        assert "inflect==7.5.0" in locked
        assert "mcp==" not in locked
    server = start(
        full,
        "--network=none",
        "--entrypoint=python",
        command=("-c", SCRIPT.read_text(), "9000", "the-key"),
    )
    component = start(
        tag,
        f"--network=container:{server.id}",
        "--read-only",
        PODWRIGHT_MCP_SERVERS=json.dumps(
            {"tools": "http://127.0.0.1:9000/mcp"}
        ),
        PODWRIGHT_MCP_KEYS=json.dumps({"tools": "the-key"}),
    ).healthy()
    until(lambda: "running on" in server.logs(), 60, server.logs)
    answer = component.post_run({"input": "moon"})
    assert answer["found"] == "Nothing about the moon."
    assert component.stop() == 0
