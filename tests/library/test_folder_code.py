"""The code of component folders: modules beside it, packages that folders share, and names that would clash."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.helpers import write_files
from tests.library.test_folder import TOOL, agent, flow

from podwright import blueprints, load
from podwright.errors import ConfigurationError
from podwright.folders.folder import Folder


@pytest.fixture(autouse=True)
def forget_modules(tmp_path: Path) -> Iterator[None]:
    """Let a test import modules that have the names of those of another test."""
    yield
    for name, module in list(sys.modules.items()):
        paths = [getattr(module, "__file__", None) or ""]
        paths += list(getattr(module, "__path__", ()))
        if any(str(path).startswith(str(tmp_path)) for path in paths):
            del sys.modules[name]


def guide(path: str, code: str) -> dict[str, str]:
    """The files of a folder with one agent and its tool."""
    blueprint = agent("guide", TOOL)
    return {
        f"{path}/blueprint.json": blueprints.to_json(blueprint),
        f"{path}/tools.py": code,
    }


LAZY = """
def look_up(word: str) -> str:
    from notes_of_the_test import text
    return text(word)
"""


def test_a_function_may_import_later(tmp_path: Path) -> None:
    """A module beside the code is found when a function imports it, without a change of Python's path."""
    path = list(sys.path)
    root = write_files(tmp_path, guide("guide", LAZY))
    write_files(
        root,
        {"guide/notes_of_the_test.py": "def text(word):\n    return word * 2"},
    )
    assert load(root / "guide").run("ab") == "Echo: ab (found: abab)"
    assert sys.path == path


SHARED = """
from {package}.words import double

def look_up(word: str) -> str:
    return double(word)
"""
DOUBLE = "def double(word):\n    return word * 2\n"


@pytest.mark.parametrize(
    ("place", "package"),
    [
        ("shared", "shared"),
        ("guide/shared", "shared"),
        ("code/our_words", "our_words"),
    ],
)
def test_shared_packages(tmp_path: Path, place: str, package: str) -> None:
    """Folders share a package `shared` beside them, or one that their pyproject.toml lists."""
    code = SHARED.format(package=package)
    root = write_files(tmp_path, guide("guide", code) | guide("other", code))
    write_files(root, {f"{place}/__init__.py": "", f"{place}/words.py": DOUBLE})
    if package == "our_words":
        listed = '[tool.podwright]\nshared = ["../code/our_words"]\n'
        write_files(
            root,
            {f"{name}/pyproject.toml": listed for name in ("guide", "other")},
        )
    names = ["guide", "other"]
    if place == "guide/shared":
        names = ["guide"]
    for name in names:
        assert load(root / name).run("ab") == "Echo: ab (found: abab)"


def test_a_clash_of_names_is_an_error(tmp_path: Path) -> None:
    """Of two modules with one name Python knows one; the other folder would run its code without a word."""
    lines = ["from helpers_of_the_test import PLACE"]
    lines += ["def look_up(word: str) -> str:", "    return PLACE"]
    code = "\n".join(lines)
    root = write_files(tmp_path, guide("one", code) | guide("two", code))
    for name in ("one", "two"):
        write_files(
            root, {f"{name}/helpers_of_the_test.py": f"PLACE = '{name}'"}
        )
    assert load(root / "one").run("x") == "Echo: x (found: one)"
    with pytest.raises(ConfigurationError) as caught:
        load(root / "two")
    assert str(caught.value).startswith(
        "'tools.py' of 'two' imports 'helpers_of_the_test', but that of 'one' is imported already."
    )
    # one import deeper
    write_files(root, {"two/between_of_the_test.py": code})
    (root / "two/tools.py").write_text(code.replace("helpers_of", "between_of"))
    with pytest.raises(ConfigurationError, match="'between_of_the_test"):
        load(root / "two")
    (root / "two/helpers_of_the_test.py").unlink()
    (root / "two/tools.py").write_text("def look_up(word: str) -> str: ...")
    load(root / "two")


def test_an_installed_package_named_as_a_file_of_every_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`import agents` in agents.py is the package of that name, as openai-agents has it."""
    installed = write_files(tmp_path / "installed", {"agents/__init__.py": "WHO = 'package'"})  # fmt: skip
    monkeypatch.syspath_prepend(installed)  # pyright: ignore[reportUnknownMemberType]
    root = write_files(tmp_path, {"one/blueprint.json": blueprints.to_json(flow("flow", "writer"))})  # fmt: skip
    code = "import agents\ndef writer(task: str) -> str:\n    return agents.WHO"
    write_files(root, {"one/agents.py": code})
    context = load(root / "one").run("x")
    assert context == {"input": "x", "writer_output": "package"}


@pytest.mark.parametrize(
    ("project", "message"),
    [
        (
            '[tool.podwright]\nshared = ["../shard"]',
            "The shared folder 'shard' of 'guide' does not exist.\n  Suggestion: Did you mean 'shared'?",
        ),
        (
            '[tool.podwright]\nshared = "../shared"',
            "[tool.podwright] shared in 'pyproject.toml' of 'guide' is not a list of paths.",
        ),
        (
            "[tool.podwright]\nshared = [1]",
            "[tool.podwright] shared in 'pyproject.toml' of 'guide' is not a list of paths.",
        ),
        (
            '[tool.podwright]\nshared = ["../a\\u0000b"]',
            "Invalid path in [tool.podwright] shared of 'guide'",
        ),
        (
            '[tool.podwright]\nshared = ["../no-name"]',
            "The shared folder 'no-name' of 'guide' has no name that can be imported.",
        ),
        ("[", "Invalid TOML in 'pyproject.toml' of 'guide'"),
    ],
)
def test_a_wrong_list(tmp_path: Path, project: str, message: str) -> None:
    root = write_files(
        tmp_path, guide("guide", "def look_up(word: str) -> str: ...")
    )
    write_files(root, {"guide/pyproject.toml": project})
    write_files(root, {"shared/words.py": DOUBLE, "no-name/words.py": DOUBLE})
    with pytest.raises(ConfigurationError) as caught:
        load(root / "guide")
    assert str(caught.value).startswith(message)


def test_a_project_without_a_list(tmp_path: Path) -> None:
    """Other settings of tools in a pyproject.toml do not matter."""
    root = write_files(
        tmp_path, guide("guide", SHARED.format(package="shared"))
    )
    write_files(root, {"guide/pyproject.toml": "[tool.ruff]\nline-length = 80"})
    write_files(root, {"shared/words.py": DOUBLE})
    assert load(root / "guide").run("ab") == "Echo: ab (found: abab)"
    assert Folder(root / "guide").shared_packages() == {
        "shared": root / "shared"
    }


def test_an_agent_in_a_folder_uses_its_modules(tmp_path: Path) -> None:
    """Code of an agent in `agents/` may import what lies in the folder around it."""
    code = SHARED.format(package="words_around")
    root = write_files(tmp_path, guide("flow/agents/guide", code))
    write_files(root, {"flow/words_around/words.py": DOUBLE})
    blueprint = blueprints.to_json(flow("flow", "guide"))
    write_files(root, {"flow/blueprint.json": blueprint})
    context = load(root / "flow").run("ab")
    assert context["guide_output"] == "Echo: ab (found: abab)"


def test_what_was_saved_last_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code that was saved in the same second with the same size is the new code, as in a script that edits and runs."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    answers: list[str] = []
    for value in ("one", "two"):
        code = f"def look_up(word: str) -> str:\n    return '{value}'"
        root = write_files(tmp_path, guide("guide", code))
        os.utime(root / "guide" / "tools.py", (1, 1))
        answers.append(str(load(root / "guide").run("x")))
        for name in list(sys.modules):
            if name.startswith("podwright_component_tools"):
                del sys.modules[name]
    assert answers == ["Echo: x (found: one)", "Echo: x (found: two)"]
