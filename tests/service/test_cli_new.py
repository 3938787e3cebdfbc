"""`podwright new`: what it writes is valid, runs, and passes its own tests."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from tests.helpers import DESK, environment
from tests.service.support import Shell

from podwright import blueprints
from podwright.evaluation.suite_schema import suite_schema
from podwright.folders.folder import Folder
from podwright_service.cli.developing.new import create_component
from podwright_service.fleet import chart_values
from podwright_service.images.context import component_files, stage

CREATED = {
    "agent": ["tools.py"],
    "workflow": ["agents", "functions.py"],
    "conductor": [],
    "pipeline": [],
}
"""What a new component of each kind has besides blueprint, README, tests and schemas."""
KINDS = pytest.mark.parametrize("kind", CREATED)


def run_tests(folder: Path) -> str:
    """Run the tests of a folder that need no container, and return the last line."""
    options = ["-q", "-p", "no:cacheprovider", "-k", "not container"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(folder)],
        capture_output=True,
        text=True,
        cwd=folder.parent,
        env=environment(),
    )
    assert done.returncode == 0, done.stdout
    return done.stdout.splitlines()[-1]


@KINDS
@pytest.mark.parametrize("file_format", ["json", "yaml"])
def test_a_new_component(
    shell: Shell, tmp_path: Path, kind: str, file_format: str
) -> None:
    """A new component of each kind is valid, up to date with its code, and does what `new` suggests."""
    done = shell("new", "some/my sums", "--kind", kind, "--format", file_format)
    assert (done.returncode, done.stderr) == (0, "")
    folder = tmp_path / "some" / "my sums"
    file = f"blueprint.{file_format}"
    names = {path.name for path in folder.iterdir()}
    others = {"README.md", "test_my_sums.py", ".podwright", file}
    assert names == {*others, *CREATED[kind]}
    readme = (folder / "README.md").read_text()
    assert not re.search(r"\b(NAME|MODEL|TEST|BLUEPRINT)\b", readme)
    assert file in readme
    assert shell("validate", str(folder)).returncode == 0
    if kind == "agent":
        assert shell("sync", str(folder), "--check").returncode == 0
    suggested = done.stdout.rpartition("Next: podwright ")[2]
    run = shell(*shlex.split(suggested))
    assert run.returncode == 0
    assert "Echo: " in run.stdout


@pytest.mark.parametrize("folder", [".", "./", "./."])
def test_the_folder_that_a_person_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    """However it is written, the component has its name."""
    here = tmp_path / "sums"
    here.mkdir()
    monkeypatch.chdir(here)
    create_component(folder)
    blueprint = json.loads((here / "blueprint.json").read_text())
    assert blueprint["name"] == "sums"


@KINDS
def test_its_tests_pass(tmp_path: Path, kind: str) -> None:
    """The tests of a new component pass without a model, in Python and in a process."""
    folder = tmp_path / "my sums"
    create_component(str(folder), kind=kind)
    assert "2 passed, 1 deselected" in run_tests(folder)


@KINDS
def test_what_is_built_and_deployed(tmp_path: Path, kind: str) -> None:
    """An image and the values of the chart have the texts of all prompts, and no schemas for editors."""
    folder = tmp_path / "sums"
    create_component(str(folder), kind=kind)
    context = tmp_path / "context"
    context.mkdir()
    files = stage(Folder(folder), context, ())
    assert "blueprint.json" in files
    assert not any("schema" in file for file in files)
    values = chart_values.render([folder])
    [component] = values["components"].values()
    inline = component["blueprint"]["inline"]
    assert inline == Folder(folder).blueprint()
    assert "$schema" not in inline
    if kind == "workflow":
        staged = Folder(context / "component")
        [agent] = staged.agent_files()
        assert "Answer with" in blueprints.read_file(agent)["instructions"]
        assert "agents/writer.md" in component["files"]


@KINDS
@pytest.mark.parametrize("file_format", ["json", "yaml"])
def test_editors_find_the_schema(
    tmp_path: Path, kind: str, file_format: str
) -> None:
    """Each blueprint names the schema of its kind by a path relative to itself, and fits it; suites have one, too."""
    folder = tmp_path / "sums"
    create_component(str(folder), kind=kind, file_format=file_format)
    files = [Folder(folder).blueprint_file(), *Folder(folder).agent_files()]
    assert len(files) == 1 + (kind == "workflow")
    for file in files:
        path = _schema_of(file)
        # language servers take other relative paths for names
        assert path.startswith(("./", "../"))
        schema = json.loads((file.parent / path).read_text())
        source = blueprints.read_source(file)
        assert schema == blueprints.file_schema()[blueprints.kind_of(source)]
        jsonschema.validate(source, schema)
    suites = folder / ".podwright" / "evals.schema.json"
    assert json.loads(suites.read_text()) == suite_schema()


def _schema_of(file: Path) -> str:
    if file.suffix == ".json":
        return blueprints.read_source(file)["$schema"]
    first = file.read_text().splitlines()[0]
    return first.removeprefix("# yaml-language-server: $schema=")


def test_the_readme_of_an_agent(shell: Shell, tmp_path: Path) -> None:
    """Its command makes a function a tool, and keeps the schema of the editor."""
    shell("new", "sums")
    folder = tmp_path / "sums"
    with (folder / "tools.py").open("a") as tools:
        tools.write(
            '\n\ndef multiply(x: int) -> int:\n    """Double."""\n    return 2 * x\n'
        )
    readme = (folder / "README.md").read_text()
    _, _, command = readme.partition("podwright sync . ")
    options = command.splitlines()[0].split()
    assert shell("sync", str(folder), *options).returncode == 0
    source = blueprints.read_source(folder / "blueprint.json")
    assert [tool["name"] for tool in source["tools"]] == [
        "add_numbers",
        "multiply",
    ]
    assert source["$schema"] == "./.podwright/agent.schema.json"


def test_the_desk(shell: Shell, tmp_path: Path) -> None:
    """The example is copied as it is, and its tests pass there."""
    done = shell("new", "desk", "--example", "desk")
    assert (done.returncode, done.stderr) == (0, "")
    copied = tmp_path / "desk"
    for file in (*component_files(DESK), Path("test_desk.py")):
        assert (copied / file).read_bytes() == (DESK / file).read_bytes()
    offline = {"PODWRIGHT_MODEL": "offline/echo"}
    assert shell("validate", str(copied), **offline).returncode == 0
    assert "passed" in run_tests(copied)


def test_nothing_is_overwritten(shell: Shell, tmp_path: Path) -> None:
    """A folder with files is an error."""
    file = tmp_path / "sums" / "tools.py"
    file.parent.mkdir()
    file.write_text("mine")
    for options in ([], ["--example", "desk"]):
        assert shell("new", "sums", *options).returncode == 1
    assert [path.name for path in file.parent.iterdir()] == ["tools.py"]


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        (["--kind", "agnet"], "'agent'"),
        (["--format", "jsn"], "'json'"),
        (["--example", "dsk"], "'desk'"),
        (["--example", "desk", "--model", "a/b"], "run --model"),
    ],
)
def test_wrong_options(
    shell: Shell, tmp_path: Path, options: list[str], hint: str
) -> None:
    """A wrong choice is an error with a suggestion, and nothing is written."""
    done = shell("new", "sums", *options)
    assert (done.returncode, hint in done.stderr) == (1, True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "{name}", "file/inside"])
def test_folders_that_cannot_be_created(
    shell: Shell, tmp_path: Path, name: str
) -> None:
    """An invalid name is an error, and nothing is written."""
    (tmp_path / "file").write_text("")
    done = shell("new", name)
    assert (done.returncode, done.stdout, "Traceback" in done.stderr) == (
        1,
        "",
        False,
    )
    assert [file.name for file in tmp_path.iterdir()] == ["file"]
