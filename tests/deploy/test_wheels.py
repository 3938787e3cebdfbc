"""The wheels of a release: what they say of themselves, and that what they require is enough."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from email.message import Message
from email.parser import Parser
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.helpers import ROOT, environment

from podwright import __version__
from podwright.errors import DOCS_URL
from podwright_service.testing import ModelStub, ToolCall

PACKAGES = {"podwright": "library", "podwright-service": "service"}
"""Their folders by name."""

AGENT = '''
import sys
import podwright
from podwright.testing import ToolCall

def add(first: int, second: int) -> int:
    """Add two numbers."""
    return first + second

def ask(model, **options):
    agent = podwright.Agent("adder", "Add.", model, tools=[add], **options)
    result = agent.run("What is 2 + 3?", trace=True)
    assert result.usage.tool_calls == 1, result.usage
    return result

call = ToolCall.of("add", first=2, second=3)
scripted = podwright.ScriptedModel(call, "5")
assert ask(scripted).value == "5"
ask("offline/echo")
result = ask("openai/gpt-4o-mini", base_url=sys.argv[1], api_key="made-up")
assert result.value == "It is 5.", result.value
for name in podwright.__all__:
    getattr(podwright, name)
print(podwright.__version__)
'''
"""A program that runs an agent with a tool: on a script, on the offline model, and on a provider."""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel of each package."""
    built: dict[str, Path] = {}
    for name, folder in PACKAGES.items():
        target = tmp_path_factory.mktemp(folder)
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
        subprocess.run(
            [*command, "-d", target],
            cwd=ROOT / folder,
            check=True,
            capture_output=True,
        )
        (built[name],) = target.iterdir()
    return built


def metadata(wheel: Path) -> Message:
    """The metadata in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [
            name
            for name in archive.namelist()
            if name.endswith(".dist-info/METADATA")
        ]
        return Parser().parsestr(archive.read(name).decode())


def requirements(fields: Message) -> Iterator[Requirement]:
    """What is installed with a package that is installed without extras."""
    for text in fields.get_all("Requires-Dist") or ():
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or marker.evaluate({"extra": ""}):
            yield requirement


@pytest.mark.parametrize("name", PACKAGES)
def test_a_wheel_describes_itself(wheels: dict[str, Path], name: str) -> None:
    """An index has a description, links, the licence, keywords and classifiers to show."""
    fields = metadata(wheels[name])
    assert (fields["Name"], fields["Version"]) == (name, __version__)
    assert fields["Summary"].endswith(".")
    assert fields["Requires-Python"] == ">=3.11"
    assert fields["License-Expression"] == "Apache-2.0"
    assert fields["License-File"] == "LICENSE"
    assert "agents" in fields["Keywords"].split(",")
    links = fields.get_all("Project-URL") or []
    assert len(links) > 1
    assert all(f", {DOCS_URL}" in link for link in links)
    classifiers = fields.get_all("Classifier") or []
    assert "Typing :: Typed" in classifiers
    assert fields["Description-Content-Type"] == "text/markdown"
    text = str(fields.get_payload())
    assert text.strip() == (ROOT / PACKAGES[name] / "README.md").read_text().strip()  # fmt: skip
    # an index does not have the other files
    targets = re.findall(r"\]\(([^)]*)\)", text)
    assert targets
    assert all(target.startswith(DOCS_URL) for target in targets)


def test_library_and_service_have_one_version(wheels: dict[str, Path]) -> None:
    """The service requires the library of its own release."""
    needed = {
        str(canonicalize_name(requirement.name)): str(requirement.specifier)
        for requirement in requirements(metadata(wheels["podwright-service"]))
    }
    assert needed["podwright"] == f"=={__version__}"


def test_the_library_needs_nothing_else(
    wheels: dict[str, Path], tmp_path: Path
) -> None:
    """With the packages that its wheel requires, and theirs, an agent runs, and all public names can be imported."""
    with zipfile.ZipFile(wheels["podwright"]) as archive:
        archive.extractall(tmp_path)
    missing = list(requirements(metadata(wheels["podwright"])))
    linked: set[str] = set()
    while missing:
        name = canonicalize_name(missing.pop().name)
        if name in linked:
            continue
        linked.add(name)
        package = distribution(name)
        for top in {Path(file).parts[0] for file in package.files or ()}:
            source = Path(str(package.locate_file(top)))
            if top != ".." and not (tmp_path / top).exists():
                (tmp_path / top).symlink_to(source)
        fields = Parser().parsestr(package.read_text("METADATA") or "")
        missing += requirements(fields)
    call = ToolCall.of("add", first=2, second=3)
    with ModelStub(call, "It is 5.") as stub:
        done = subprocess.run(
            # without the packages that are installed beside this Python
            [sys.executable, "-S", "-c", AGENT, f"{stub.url}/v1"],
            env=environment(PYTHONPATH=str(tmp_path)),
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == __version__


@pytest.mark.frameworks
@pytest.mark.parametrize("name", PACKAGES)
def test_a_wheel_is_installed(
    wheels: dict[str, Path], name: str, tmp_path: Path
) -> None:
    """In a new environment, the packages that an index has are installed, fit together, and run an agent."""
    uv = ROOT / "deploy" / "setup.sh"
    python = tmp_path / "venv" / "bin" / "python"
    variables = environment(PODWRIGHT_MODEL="offline/echo")

    def run(*command: str | Path) -> str:
        done = subprocess.run(
            command, cwd=tmp_path, env=variables, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(uv, "venv", "--python", sys.executable, python.parents[1])
    files = list(wheels.values())
    if name == "podwright":
        files = [wheels[name]]
    constraints = ROOT / "requirements.lock"
    run(uv, "pip", "install", "--python", python, "-c", constraints, *files)
    run(uv, "pip", "check", "--python", python)
    if name == "podwright":
        call = ToolCall.of("add", first=2, second=3)
        with ModelStub(call, "It is 5.") as stub:
            assert run(python, "-c", AGENT, f"{stub.url}/v1")
        return
    podwright = python.with_name("podwright")
    assert __version__ in run(podwright, "--version")
    run(podwright, "new", "calculator")
    assert run(podwright, "run", "calculator", "2 + 3", "--quiet").strip()
    report = json.loads(run(podwright, "validate", "calculator", "--json"))
    assert report[0]["valid"]
