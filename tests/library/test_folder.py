"""Component folders and files: what stands beside a blueprint is found, a file alone is only data."""

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.library.shapes import Json

from podwright import (
    Agent,
    BlueprintValidationError,
    Conductor,
    Pipeline,
    ScriptedModel,
    Workflow,
    blueprints,
    load,
)
from podwright.components.folder import Folder
from podwright.errors import ConfigurationError
from podwright.testing import events_of

Write = Callable[[Mapping[str, Any]], Path]

TOOL: Json = {
    "name": "look_up",
    "schema": {
        "type": "function",
        "function": {
            "name": "look_up",
            "parameters": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
        },
    },
}
LOOK_UP = "def look_up(word: str) -> str:\n    return f'{word}: WHERE'\n"


def agent(name: str, *tools: Json, **more: Any) -> Json:
    return {"name": name, "instructions": "", "config": {"model": "offline/echo"}, "tools": list(tools), **more}


def flow(name: str, *agents: str, **more: Any) -> Json:
    return {"name": name, "steps": [{"type": "agent_step", "agent": one, "name": one} for one in agents], **more}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write files below the test's folder: blueprints as dictionaries, code as text."""

    def made(files: Mapping[str, Any]) -> Path:
        for name, content in files.items():
            file = tmp_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            to_text = blueprints.to_json if file.suffix == ".json" else blueprints.to_yaml
            file.write_text(content if isinstance(content, str) else to_text(content), encoding="utf-8")
        return tmp_path

    return made


def refusal(source: Any, **given: Any) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        load(source, **given)
    assert caught.value.suggestion
    return caught.value


@pytest.mark.parametrize("name", ["blueprint.json", "blueprint.yaml", "blueprint.yml"])
def test_a_folder_has_a_blueprint_and_its_code(write: Write, name: str) -> None:
    """A folder loads with the functions of its tools.py and conditions.py, by path or by text."""
    root = write({
        f"guide/{name}": agent("guide", TOOL),
        "guide/tools.py": LOOK_UP.replace("WHERE", "found"),
    })  # fmt: skip
    for source in (root / "guide", str(root / "guide"), f"{root}/guide/"):
        guide = load(source)
        assert isinstance(guide, Agent)
        assert guide.run("moon") == "Echo: moon (found: moon: found)"
        assert guide.to_blueprint() == agent("guide", TOOL)


def test_each_folder_has_its_own_code(write: Write) -> None:
    """Folders whose names differ little, or in depth only, do not share their tools."""
    names = ("a-b", "a_b", "a.b", "a/b", "a b")
    root = write({
        key: value
        for name in names
        for key, value in {
            f"{name}/blueprint.json": agent("guide", TOOL),
            f"{name}/tools.py": LOOK_UP.replace("WHERE", name),
        }.items()
    })  # fmt: skip
    for name in names:
        assert load(root / name).run("x") == f"Echo: x (found: x: {name})"


def test_code_may_import_what_stands_beside_it(write: Write) -> None:
    """A tools.py imports modules of its folder, and leaves the import path as it was."""
    root = write({
        "guide/blueprint.json": agent("guide", TOOL),
        "guide/tools.py": "from words_of_test_folder import LOOK\n" + LOOK_UP.replace("WHERE", "{LOOK}"),
        "guide/words_of_test_folder.py": "LOOK = 'beside'\n",
    })  # fmt: skip
    before = list(sys.path)
    assert load(root / "guide").run("x") == "Echo: x (found: x: beside)"
    assert sys.path == before


CONDITION: Json = {
    "type": "condition_step",
    "name": "fork",
    "condition": {"name": "not", "args": {"condition": {"name": "is_short", "args": {"limit": 3}}}},
    "then": [{"type": "agent_step", "agent": "writer", "name": "write"}],
}


def test_conditions_are_found_wherever_they_are_named(write: Write) -> None:
    """A condition inside another's arguments comes from conditions.py too; built-in names need no file."""
    root = write({
        "flow/blueprint.json": {"name": "flow", "steps": [CONDITION]},
        "flow/conditions.py": "def is_short(context, limit):\n    return len(context['input']) < limit\n",
        "flow/agents/writer.json": agent("writer"),
    })  # fmt: skip
    made = load(root / "flow")
    assert isinstance(made, Workflow)
    assert set(made.conditions) == {"is_short"}
    assert "writer_output" in made.run("long enough")
    assert "writer_output" not in made.run("no")


def test_agents_are_files_folders_and_neighbours(write: Write) -> None:
    """An agent that a workflow names is a file or folder in agents/, or a folder beside it, in that order."""
    root = write({
        "fleet/flow/blueprint.yaml": flow("flow", "one", "two", "three", "four"),
        "fleet/flow/tools.py": LOOK_UP.replace("WHERE", "from the flow"),
        "fleet/flow/agents/one.json": agent("one", TOOL),
        "fleet/flow/agents/two.yaml": agent("two"),
        "fleet/flow/agents/three/blueprint.json": agent("three", TOOL),
        "fleet/flow/agents/three/tools.py": LOOK_UP.replace("WHERE", "its own"),
        "fleet/one/blueprint.json": "not even read",
        "fleet/four/blueprint.json": flow("four", "five"),
        "fleet/five/blueprint.json": agent("five", TOOL),
        "fleet/five/tools.py": LOOK_UP.replace("WHERE", "a neighbour"),
    })  # fmt: skip
    made = load(root / "fleet" / "flow")
    assert {name: one.kind for name, one in made.members().items()} == {
        "one": "agent",
        "two": "agent",
        "three": "agent",
        "four": "workflow",
    }
    found: list[Any] = events_of(made.run("x", trace=True), "tool_call_finished")
    assert [event.output.rpartition(": ")[2] for event in found] == ["from the flow", "its own", "a neighbour"]


@pytest.mark.parametrize(("kind", "key", "team"), [("Conductor", "skills", Conductor), ("Pipeline", "steps", Pipeline)])
def test_members_by_name_are_found(write: Write, kind: str, key: str, team: type) -> None:
    """A conductor's skill or a pipeline's step that is a name only is loaded from its folder; others are as written."""
    blueprint = {
        "type": kind,
        "name": "team",
        key: [{"type": "Agent", "name": "one"}, {"type": "Agent", "name": "two", "instructions": "", "tools": [TOOL]}],
        "config": {"model": "offline/echo"},
        **({"instructions": ""} if kind == "Conductor" else {}),
    }
    root = write({
        "team/blueprint.json": blueprint,
        "team/tools.py": LOOK_UP.replace("WHERE", "of the team"),
        "one/blueprint.json": agent("one", description="From its own folder."),
    })  # fmt: skip
    made = load(root / "team")
    assert isinstance(made, team)
    assert made.members()["one"].description == "From its own folder."
    assert made.to_blueprint() == blueprint
    assert "of the team" in str(made.run("x", trace=True).to_dict()["events"])


def test_what_the_caller_gives_comes_first(write: Write) -> None:
    """Tools, agents, conditions and a model given to `load` stand in for what the folder has."""
    root = write({
        "flow/blueprint.json": {"name": "flow", "steps": [CONDITION, *flow("", "reader")["steps"]]},
        "flow/conditions.py": "def is_short(context, limit):\n    return True\n",
        "flow/agents/writer.json": agent("writer"),
        "flow/agents/reader.json": agent("reader", TOOL),
    })  # fmt: skip

    def look_up(word: str) -> str:
        return f"{word}: given"

    made = load(
        root / "flow",
        tools=[look_up],
        agents={"writer": Agent("writer", "", ScriptedModel("given writer"))},
        conditions={"is_short": lambda context, limit: False},
        model="offline/echo",
    )
    value = made.run("x")
    assert value["writer_output"] == "given writer"
    assert ": given" in value["reader_output"]


def test_one_model_answers_for_all(write: Write) -> None:
    """A model given to `load`, by name or as an object, answers for every agent that is loaded."""
    files = {"flow/blueprint.json": flow("flow", "one", "two"), "one/blueprint.json": agent("one")}
    files["flow/agents/two.json"] = {**agent("two"), "config": {"model": "nowhere/model"}}
    files["one/blueprint.json"]["config"] = {"model": "nowhere/model"}
    root = write(files)
    assert load(root / "flow", model="offline/echo").run("x")["two_output"].startswith("Echo: ")
    scripted = ScriptedModel("first", "second")
    assert load(root / "flow", model=scripted).run("x")["two_output"] == "second"
    for source in (root / "one", root / "one" / "blueprint.json", agent("one")):
        assert load(source, model=ScriptedModel("by object")).run("x") == "by object"


def test_an_agent_of_itself_is_refused(write: Write) -> None:
    """Components that name each other in a circle are refused by name."""
    root = write({
        "a/blueprint.json": flow("a", "b"),
        "b/blueprint.json": flow("b", "a"),
        "self/blueprint.json": flow("self", "self"),
    })  # fmt: skip
    assert refusal(root / "a").message == "The component 'a' is an agent of itself."
    assert refusal(root / "self").message == "The component 'self' is an agent of itself."


@pytest.mark.parametrize("name", ["..", ".", "../outside", "/outside", "agents", "x" * 99 + "é" * 80])
def test_an_agents_name_does_not_lead_out_of_the_fleet(write: Write, name: str) -> None:
    """A name that is a path is an agent that nobody gave: nothing outside is read, and nothing imported."""
    root = write({
        "outside/blueprint.json": agent("outside", TOOL),
        "outside/tools.py": "raise RuntimeError('imported')",
        "fleet/blueprint.json": agent("fleet", TOOL),
        "fleet/tools.py": "raise RuntimeError('imported')",
        "fleet/flow/blueprint.json": flow("flow", name.replace("/outside", f"{write({})}/outside")),
        "fleet/flow/agents/one.json": agent("one"),
    })  # fmt: skip
    error = refusal(root / "fleet" / "flow")
    assert "imported" not in str(error)
    assert isinstance(error, BlueprintValidationError)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("raise RuntimeError('boom')", "RuntimeError: boom"),
        ("def look_up(:", "SyntaxError: "),
        ("import sys\nsys.exit(3)", "SystemExit: 3"),
        ("class E(Exception):\n    def __str__(self): return 1 / 0\nraise E", "E"),
        ("import no_such_module_anywhere", "ModuleNotFoundError: No module named"),
    ],
)
def test_broken_code_is_told_with_its_file(write: Write, code: str, reason: str) -> None:
    """A tools.py that cannot be imported is named with the reason, which is the cause; it is tried again next time."""
    root = write({"guide/blueprint.json": agent("guide", TOOL), "guide/tools.py": code})
    error = refusal(root / "guide")
    assert error.message.startswith(f"'tools.py' of 'guide' cannot be imported: {reason}")
    assert error.__cause__ is not None
    missing = "Install the package that has 'no_such_module_anywhere', and name it in requirements.txt beside tools.py."
    assert error.suggestion == (missing if "no_such" in code else "Try `python tools.py` in that folder.")
    write({"guide/tools.py": LOOK_UP})
    assert load(root / "guide").name == "guide"


def test_code_that_nobody_needs_is_not_imported(write: Write) -> None:
    """A folder's tools.py and conditions.py are imported only for tools and conditions that the blueprint names."""
    broken = "raise RuntimeError('imported')"
    root = write({
        "guide/blueprint.json": agent("guide"), "guide/tools.py": broken, "guide/conditions.py": broken
    })  # fmt: skip
    assert load(root / "guide").name == "guide"


@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_a_file_is_only_data(write: Write, suffix: str) -> None:
    """Loading a blueprint file imports nothing that stands beside it, and looks for no agents there."""
    broken = "raise RuntimeError('imported')"
    root = write({
        f"guide/blueprint.{suffix}": agent("guide", TOOL),
        f"guide/flow.{suffix}": flow("flow", "guide"),
        "guide/tools.py": broken,
        "guide/conditions.py": broken,
        f"guide/agents/guide.{suffix}": agent("guide"),
    })  # fmt: skip
    error = refusal(root / "guide" / f"blueprint.{suffix}")
    assert isinstance(error, BlueprintValidationError)
    assert [one.detail for one in error.problems] == ["no callable was given for the tool 'look_up'."]
    error = refusal(root / "guide" / f"flow.{suffix}")
    assert isinstance(error, BlueprintValidationError)
    assert [one.detail for one in error.problems] == ["no agent called 'guide' was given."]

    def look_up(word: str) -> str:
        return "given"

    made = load(str(root / "guide" / f"blueprint.{suffix}"), tools=[look_up])
    assert made.run("x") == "Echo: x (found: given)"


def test_a_tool_that_the_code_lacks_is_asked_for(write: Write) -> None:
    """Functions that tools.py does not have are problems of the blueprint."""
    root = write({"guide/blueprint.json": agent("guide", TOOL), "guide/tools.py": "look_up = 5\n"})
    error = refusal(root / "guide")
    assert isinstance(error, BlueprintValidationError)
    assert error.problems[0].detail == "no callable was given for the tool 'look_up'."
    assert error.problems[0].suggestion == "Give it in tools=[look_up]."


def test_a_misspelt_function_is_told_with_the_nearest(write: Write) -> None:
    """Of the functions that tools.py and conditions.py define for others."""
    code = "from textwrap import fill as look_up2\ndef _look_up(): ...\ndef look_upp(): ...\ndef other(): ...\n"
    step = {"type": "agent_step", "agent": "guide", "name": "s"}
    loop = {"type": "loop_step", "name": "l", "steps": [step], "until": {"name": "done"}, "max_iterations": 2}
    root = write({
        "guide/blueprint.json": agent("guide", TOOL),
        "guide/tools.py": code,
        "flow/blueprint.json": {"type": "Workflow", "name": "flow", "steps": [loop]},
        "flow/conditions.py": "def dome(context): ...\n",
        "flow/agents/guide.json": agent("guide"),
    })  # fmt: skip
    for name, nearest in (("guide", "look_upp"), ("flow", "dome")):
        error = refusal(root / name)
        assert isinstance(error, BlueprintValidationError)
        assert [one.suggestion for one in error.problems] == [f"Did you mean '{nearest}'?"]


def test_a_missing_file_is_told_with_the_nearest(write: Write) -> None:
    """A misspelt file or folder is told with the one that is there."""
    root = write({
        "fleet/newsroom/blueprint.json": agent("newsroom"),
        "fleet/guide.json": agent("guide"),
        "fleet/notes.txt": "",
    })  # fmt: skip
    error = refusal(root / "fleet" / "giude.json")
    assert error.message.startswith("Cannot read '")
    assert error.message.endswith("giude.json': No such file or directory.")
    assert error.suggestion == "Did you mean 'guide.json'?"
    error = refusal(root / "fleet" / "newsrom")
    assert error.message == f"There is no '{root}/fleet/newsrom'."
    assert error.suggestion == "Did you mean 'newsroom'?"
    assert refusal(root / "nowhere" / "guide.json").message.endswith("No such file or directory.")
    error = refusal(root / "fleet" / "notes.txt")
    assert error.message.endswith("is not a blueprint file: its name ends in '.txt'.")
    assert error.suggestion == "Name it one of *.json, *.yaml, *.yml."


def test_a_missing_folder_is_told_with_the_nearest(write: Write) -> None:
    """A folder that is not there is told as that, and not as one without a blueprint; so is a file in its place."""
    root = write({"newsroom/blueprint.json": agent("newsroom"), ".newsrooms/notes.txt": "", "notes.txt": ""})
    for name, hint in (("newsrom", "Did you mean 'newsroom'?"), ("notes.txt", "Known names: newsroom.")):
        with pytest.raises(ConfigurationError) as caught:
            Folder(root / name).blueprint()
        assert (caught.value.message, caught.value.suggestion) == (f"There is no folder '{name}'.", hint)


def test_a_folder_has_one_blueprint(write: Write) -> None:
    """A folder without a blueprint, or with two, is refused by its name."""
    root = write({
        "none/notes.txt": "",
        "two/blueprint.json": agent("two"),
        "two/blueprint.yaml": agent("two"),
    })  # fmt: skip
    assert refusal(root / "none").message == "The folder 'none' has no blueprint."
    assert refusal(root / "two").message == (
        "The folder 'two' has more than one blueprint: blueprint.json, blueprint.yaml."
    )
    assert refusal(root).suggestion == "Name one of the components in it: two."
    (root / "none" / "blueprint.json").mkdir()
    assert refusal(root / "none").message == "The folder 'none' has no blueprint."


@pytest.mark.parametrize("source", [None, 5, [], b"guide.json", object()])
def test_only_paths_and_dictionaries_are_loaded(source: Any) -> None:
    """What is neither a path nor a dictionary is refused."""
    assert refusal(source).message.startswith("A component is loaded from a path or a dictionary, not from ")


@pytest.mark.parametrize(
    "source", ["a\0.json", "a\0b", "x" * 5000, "x" * 5000 + ".json", json.dumps(agent("guide")) * 20, "~nobody/x.yaml"]
)
def test_a_text_that_is_no_path_is_refused(source: str) -> None:
    """A text that can be no path, such as a blueprint's own JSON, is one clear error, cut to a length."""
    assert len(refusal(source).message) < 400


@pytest.mark.parametrize("text", ["", "{", "[]", "5", "null", '{"name": 1}', '{"a": 1, "a": 2}', "\x00"])
@pytest.mark.parametrize("name", ["guide.json", "guide.yaml", "guide/blueprint.json", "guide/blueprint.yaml"])
def test_a_damaged_file_is_one_error(write: Write, text: str, name: str) -> None:
    """A file that holds no blueprint is a validation error, alone and in a folder."""
    root = write({name: text})
    source = root / name if "/" not in name else root / "guide"
    assert isinstance(refusal(source), BlueprintValidationError)


def test_a_damaged_agent_of_a_folder_is_one_error(write: Write) -> None:
    """A blueprint in agents/ that is wrong is told by its own name."""
    root = write({"flow/blueprint.json": flow("flow", "one"), "flow/agents/one.json": {**agent("one"), "confg": {}}})
    error = refusal(root / "flow")
    assert error.message == "The blueprint of agent 'one' is invalid: 1 problem."
    (root / "flow" / "agents" / "one.json").write_text("[]")
    assert "one.json' is invalid" in refusal(root / "flow").message


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_is_no_blueprint(tmp_path: Path) -> None:
    """A named pipe in a blueprint's place is refused, and not waited for."""
    os.mkfifo(tmp_path / "pipe.json")
    assert "no regular file" in refusal(tmp_path / "pipe.json").message


def test_a_file_has_a_largest_size(tmp_path: Path) -> None:
    """A file of more than 16 MiB is refused before it is read to its end."""
    with (tmp_path / "large.yaml").open("wb") as file:
        file.truncate(16 * 1024 * 1024 + 1)
    assert "more than 16 MiB" in refusal(tmp_path / "large.yaml").message
