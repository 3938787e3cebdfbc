"""`load`: component folders with their code and agents, and files, which are only data."""

import logging
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.helpers import write_files
from tests.library.shapes import Json, agent_step, events, problems_of

from podwright import (
    Agent,
    BlueprintValidationError,
    ScriptedModel,
    Workflow,
    load,
)
from podwright.errors import ConfigurationError, ToolDefinitionError
from podwright.folders.folder import Folder
from podwright.folders.loader import load_changed

Write = Callable[[Mapping[str, Any]], Path]
PARAMETERS: Json = {
    "type": "object",
    "properties": {"word": {"type": "string"}},
    "required": ["word"],
}
TOOL: Json = {
    "name": "look_up",
    "schema": {
        "type": "function",
        "function": {"name": "look_up", "parameters": PARAMETERS},
    },
}
FAILS = "raise RuntimeError('imported')"


def look_up(where: str) -> str:
    """The code of a tool that answers where it was found."""
    return f"def look_up(word: str) -> str:\n    return f'{{word}}: {where}'\n"


def agent(name: str, *tools: Json, **more: Any) -> Json:
    return {
        "name": name,
        "instructions": "",
        "config": {"model": "offline/echo"},
        "tools": list(tools),
        **more,
    }


def flow(name: str, *agents: str) -> Json:
    return {
        "name": name,
        "steps": [agent_step(agent, agent) for agent in agents],
    }


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes files below a folder: blueprints as dictionaries, code as text."""

    return partial(write_files, tmp_path)


def refusal(source: Any, **options: Any) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        load(source, **options)
    assert caught.value.suggestion
    return caught.value


@pytest.mark.parametrize(
    "name", ["blueprint.json", "blueprint.yaml", "blueprint.yml"]
)
def test_a_folder_loads_with_its_functions(write: Write, name: str) -> None:
    """A folder is a blueprint with the functions of its tools.py, which may import modules beside it."""
    root = write({
        f"guide/{name}": agent("guide", TOOL),
        "guide/tools.py": "from words_of_the_test import PLACE\n" + look_up("{PLACE}"),
        "guide/words_of_the_test.py": "PLACE = 'beside'\n",
    })  # fmt: skip
    path = list(sys.path)
    for source in (root / "guide", f"{root}/guide/"):
        guide = load(source)
        assert isinstance(guide, Agent)
        assert guide.run("moon") == "Echo: moon (found: moon: beside)"
        assert guide.to_blueprint() == agent("guide", TOOL)
    assert sys.path == path


PROVIDER = """
from podwright import FunctionModel, register_provider

register_provider(
    "{name}", lambda model, _: FunctionModel(lambda _: "{name}/" + model)
)
"""


def test_a_folder_registers_its_providers(write: Write) -> None:
    """The providers.py of a folder, and of an agent's folder, is imported though no blueprint names code."""
    here = {"config": {"model": "here/large"}}
    there = {"config": {"model": "there/small"}}
    root = write({
        "team/blueprint.json": flow("team", "local", "beside"),
        "team/agents/local.json": agent("local") | here,
        "team/providers.py": PROVIDER.format(name="here"),
        "beside/blueprint.json": agent("beside") | there,
        "beside/providers.py": PROVIDER.format(name="there"),
    })  # fmt: skip
    result = load(root / "team").run("x")
    assert result["local_output"] == "here/large"
    assert result["beside_output"] == "there/small"


def test_a_providers_file_that_fails(write: Write) -> None:
    """A providers.py that cannot be imported is an error that names it."""
    root = write({
        "guide/blueprint.json": agent("guide"),
        "guide/providers.py": FAILS,
    })  # fmt: skip
    assert "'providers.py' of 'guide'" in refusal(root / "guide").message


def test_each_folder_has_its_own_code(write: Write) -> None:
    """Folders with similar names do not share their tools."""
    names = ("a-b", "a_b", "a.b", "a/b", "a b")
    root = write(
        {f"{name}/blueprint.json": agent("guide", TOOL) for name in names}
    )
    write({f"{name}/tools.py": look_up(name) for name in names})
    for name in names:
        assert load(root / name).run("x") == f"Echo: x (found: x: {name})"


CONDITION: Json = {
    "type": "condition_step",
    "name": "fork",
    "condition": {
        "name": "not",
        "args": {"condition": {"name": "is_short", "args": {"limit": 3}}},
    },
    "then": [agent_step("write")],
}


def test_conditions_are_found_inside_other_conditions(write: Write) -> None:
    """Conditions come from conditions.py, those in arguments of other conditions too."""
    root = write({
        "flow/blueprint.json": {"name": "flow", "steps": [CONDITION]},
        "flow/conditions.py": "def is_short(context, limit):\n    return len(context['input']) < limit\n",
        "flow/agents/writer.json": agent("writer"),
    })  # fmt: skip
    component = load(root / "flow")
    assert isinstance(component, Workflow)
    assert set(component.conditions) == {"is_short"}
    assert "writer_output" in component.run("long enough")
    assert "writer_output" not in component.run("no")


def test_agents_are_files_folders_and_neighbours(write: Write) -> None:
    """An agent is a file or folder in agents/, or a folder beside the component, in this order."""
    root = write({
        "flow/blueprint.yaml": flow("flow", "one", "two", "three", "four"),
        "flow/tools.py": look_up("the flow"),
        "flow/agents/one.json": agent("one", TOOL),
        "flow/agents/two.yaml": agent("two"),
        "flow/agents/three/blueprint.json": agent("three", TOOL),
        "flow/agents/three/tools.py": look_up("its own"),
        "one/blueprint.json": "is not read",
        "four/blueprint.json": flow("four", "five"),
        "five/blueprint.json": agent("five", TOOL),
        "five/tools.py": look_up("a neighbour"),
    })  # fmt: skip
    component = load(root / "flow")
    kinds = {name: member.kind for name, member in component.members().items()}
    assert kinds == {
        "one": "agent",
        "two": "agent",
        "three": "agent",
        "four": "workflow",
    }
    called = events(component.run("x", trace=True), "tool_call_finished")
    assert [event.output.rpartition(": ")[2] for event in called] == [
        "the flow",
        "its own",
        "a neighbour",
    ]


@pytest.mark.parametrize(
    ("kind", "key"), [("Conductor", "skills"), ("Pipeline", "steps")]
)
def test_members_that_are_only_names_come_from_their_folders(
    write: Write, kind: str, key: str
) -> None:
    """A member that is only a name is loaded from its folder; others are as written, with the folder's tools."""
    members = [
        {"type": "Agent", "name": "one"},
        {"type": "Agent", **agent("two", TOOL)},
    ]
    blueprint: Json = {
        "type": kind,
        "name": "team",
        key: members,
        "config": {"model": "offline/echo"},
    }
    if kind == "Conductor":
        blueprint["instructions"] = ""
    root = write({
        "team/blueprint.json": blueprint,
        "team/tools.py": look_up("the team"),
        "one/blueprint.json": agent("one", description="From its folder."),
    })  # fmt: skip
    team = load(root / "team")
    assert team.members()["one"].description == "From its folder."
    assert team.to_blueprint() == blueprint
    (called,) = [
        event
        for event in events(team.run("x", trace=True), "tool_call_finished")
        if event.tool == "look_up"
    ]
    assert "the team" in called.output


def test_what_the_caller_passes_replaces_what_the_folder_has(
    write: Write,
) -> None:
    """Tools, agents, conditions and a model given to `load` come before those of the folder."""
    reader = {**agent("reader", TOOL), "config": {"model": "nowhere/model"}}
    root = write({
        "flow/blueprint.json": {"name": "flow", "steps": [CONDITION, agent_step("read", "reader")]},
        "flow/conditions.py": "def is_short(context, limit):\n    return True\n",
        "flow/tools.py": FAILS,
        "flow/agents/writer.json": agent("writer"),
        "reader/blueprint.json": reader,
    })  # fmt: skip

    def look_up(word: str) -> str:
        return f"{word}: given"

    writer = Agent("writer", "", ScriptedModel("given writer"))
    options: Any = {
        "tools": [look_up],
        "agents": {"writer": writer},
        "model": "offline/echo",
    }
    result = load(
        root / "flow",
        **options,
        conditions={"is_short": lambda context, limit: False},
    ).run("x")
    assert result["writer_output"] == "given writer"
    assert ": given" in result["reader_output"]
    for source in (root / "reader", root / "reader" / "blueprint.json", reader):
        assert (
            load(source, tools=[look_up], model=ScriptedModel("by object")).run(
                "x"
            )
            == "by object"
        )


def test_tools_by_name_are_refused(write: Write) -> None:
    """Tools are a list, unlike functions, and the error says so instead of taking the names for functions."""
    path = write({"blueprint.json": agent("a", TOOL)})
    tools: Any = {"look_up": str.upper}
    with pytest.raises(ToolDefinitionError, match="a list of functions"):
        load(path, tools=tools)


def test_circular_references_are_refused(write: Write) -> None:
    """Components that are agents of each other are a ConfigurationError that names one of them."""
    root = write(
        {"a/blueprint.json": flow("a", "b"), "b/blueprint.json": flow("b", "a")}
    )
    write({"self/blueprint.json": flow("self", "self")})
    assert "'a'" in refusal(root / "a").message
    assert "'self'" in refusal(root / "self").message


@pytest.mark.parametrize(
    "name", ["..", ".", "../outside", "/outside", "agents", "x" * 99 + "é" * 80]
)
def test_the_name_of_an_agent_is_not_a_path(write: Write, name: str) -> None:
    """A name that is a path is a missing agent: nothing outside the fleet is read or imported."""
    root = write({
        "outside/blueprint.json": agent("outside", TOOL),
        "outside/tools.py": FAILS,
        "fleet/blueprint.json": agent("fleet", TOOL),
        "fleet/tools.py": FAILS,
        "fleet/flow/agents/one.json": agent("one"),
    })  # fmt: skip
    write(
        {
            "fleet/flow/blueprint.json": flow(
                "flow", name.replace("/outside", f"{root}/outside")
            )
        }
    )
    assert "imported" not in str(
        problems_of(lambda: load(root / "fleet" / "flow"))
    )


@pytest.mark.parametrize(
    ("code", "reason", "suggestion"),
    [
        ("raise RuntimeError('boom')", "RuntimeError: boom", "python tools.py"),
        ("def look_up(:", "SyntaxError", "python tools.py"),
        ("import sys\nsys.exit(3)", "SystemExit", "python tools.py"),
        (
            "import no_such_module_anywhere",
            "ModuleNotFoundError",
            "'no_such_module_anywhere'",
        ),
    ],
)
def test_code_that_cannot_be_imported_is_reported(
    write: Write, code: str, reason: str, suggestion: str
) -> None:
    """A tools.py that cannot be imported is named with the reason; after it is mended it loads."""
    root = write(
        {"guide/blueprint.json": agent("guide", TOOL), "guide/tools.py": code}
    )
    error = refusal(root / "guide")
    assert "'tools.py' of 'guide'" in error.message
    assert reason in error.message
    assert suggestion in error.suggestion
    assert error.__cause__ is not None
    write({"guide/tools.py": look_up("here")})
    assert load(root / "guide").name == "guide"


@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_a_file_is_only_data(write: Write, suffix: str) -> None:
    """Loading a blueprint file imports nothing, and looks for no agents."""
    root = write({
        f"blueprint.{suffix}": agent("guide", TOOL),
        f"flow.{suffix}": flow("flow", "guide"),
        "tools.py": FAILS,
        "conditions.py": FAILS,
        f"agents/guide.{suffix}": agent("guide"),
    })  # fmt: skip
    assert (
        problems_of(lambda: load(root / f"blueprint.{suffix}"))[0].pointer
        == "/tools/0"
    )
    assert (
        problems_of(lambda: load(root / f"flow.{suffix}"))[0].pointer
        == "/steps/0/agent"
    )


def test_a_missing_function_is_reported_with_the_most_similar_one(
    write: Write,
) -> None:
    """Suggestions are public functions that tools.py and conditions.py define themselves."""
    loop = {
        "type": "loop_step",
        "name": "l",
        "steps": [agent_step("s", "guide")],
        "max_iterations": 2,
    }
    root = write({
        "guide/blueprint.json": agent("guide", TOOL),
        "guide/tools.py": "from textwrap import fill as look_up2\ndef _look_up(): ...\ndef look_upp(): ...\n",
        "flow/blueprint.json": {"name": "flow", "steps": [{**loop, "until": {"name": "done"}}]},
        "flow/conditions.py": "def dome(context): ...\n",
        "flow/agents/guide.json": agent("guide"),
    })  # fmt: skip
    for name, suggestion in (
        ("guide", "Did you mean 'look_upp'?"),
        ("flow", "Did you mean 'dome'?"),
    ):
        assert [
            problem.suggestion
            for problem in problems_of(lambda name=name: load(root / name))
        ] == [suggestion]


def test_a_missing_file_or_folder_is_reported_with_a_suggestion(
    write: Write,
) -> None:
    """A misspelt path is a ConfigurationError with the most similar component, or with the allowed suffixes."""
    root = write(
        {
            "newsroom/blueprint.json": agent("newsroom"),
            "guide.json": agent("guide"),
            "notes.txt": "",
        }
    )
    assert (
        refusal(root / "giude.json").suggestion == "Did you mean 'guide.json'?"
    )
    assert refusal(root / "newsrom").suggestion == "Did you mean 'newsroom'?"
    assert "guide.json" in refusal(root / "nowhere" / "guide.json").message
    assert ".yaml" in refusal(root / "notes.txt").message


def test_a_folder_must_have_exactly_one_blueprint(write: Write) -> None:
    """A folder without a blueprint, or with two, is a ConfigurationError; components inside it are suggested."""
    root = write(
        {
            "two/blueprint.json": agent("two"),
            "two/blueprint.yaml": agent("two"),
            "none/notes.txt": "",
        }
    )
    (root / "none" / "blueprint.json").mkdir()
    assert "'none'" in refusal(root / "none").message
    assert "blueprint.json, blueprint.yaml" in refusal(root / "two").message
    assert "two" in refusal(root).suggestion


@pytest.mark.parametrize(
    "source", ["a\0.json", "a\0b", "x" * 5000, "x" * 5000 + ".json"]
)
def test_a_source_that_is_not_a_path_is_refused(source: str) -> None:
    """Only possible paths are loaded; the message of the error stays short."""
    assert len(refusal(source).message) < 400


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"name": 1}'])
@pytest.mark.parametrize(
    "name", ["guide.json", "guide/blueprint.yaml", "flow/agents/guide.json"]
)
def test_a_damaged_file_is_a_validation_error(
    write: Write, text: str, name: str
) -> None:
    """A file without a valid blueprint is a BlueprintValidationError, alone, in a folder and as an agent."""
    root = write({"flow/blueprint.json": flow("flow", "guide"), name: text})
    assert isinstance(
        refusal(root / (name if "/" not in name else name.partition("/")[0])),
        BlueprintValidationError,
    )


@pytest.mark.skipif(
    not hasattr(os, "mkfifo"), reason="there are no named pipes here"
)
def test_a_file_must_be_regular_and_of_at_most_16_mib(tmp_path: Path) -> None:
    """A named pipe is not waited for, and a larger file not read."""
    os.mkfifo(tmp_path / "pipe.json")
    assert "regular file" in refusal(tmp_path / "pipe.json").message
    with (tmp_path / "large.yaml").open("wb") as file:
        file.truncate(16 * 1024 * 1024 + 1)
    assert "16 MiB" in refusal(tmp_path / "large.yaml").message


def test_keys_that_are_not_used_are_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each key of `config` that is not used has one warning in a process, however often its blueprint is loaded."""
    config = {"model": "offline/echo", "top_k": 1, "note": 2}
    team = {
        "type": "Pipeline",
        "name": "unusual-team",
        "steps": [{**agent("writer"), "type": "Agent", "config": config}],
    }
    writer = {**agent("unusual-writer"), "config": config}
    with caplog.at_level(logging.WARNING, "podwright"):
        for _ in range(2):
            load(writer)
            load(team)
        Agent.from_blueprint({**writer, "name": "from-a-request"})
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 4
    for line, name, pointer in zip(
        lines,
        ["unusual-writer", "unusual-writer", "unusual-team", "unusual-team"],
        [
            "/config/top_k",
            "/config/note",
            "/steps/0/config/top_k",
            "/steps/0/config/note",
        ],
        strict=True,
    ):
        assert f"'{name}'" in line
        assert f" {pointer}:" in line


# --- Agents in Python ---------------------------------------------------------------------------------------------

AGENTS = '''\
from podwright import FunctionAgent, Pipeline, RunContext


def helper(task: str, context: RunContext) -> str:
    """Help with a task.

    A second paragraph, which is for readers of the code.
    """
    return f"{context.component} helps"


_named = FunctionAgent("a named one", lambda task: "named")
other = Pipeline("another", steps=[FunctionAgent("inner", helper)])
number = 3
'''
"""A module with agents: a function, and components, of which one has another name than the variable."""


def members_of(kind: str, *names: str, team: str = "team") -> Json:
    """A blueprint of a kind that refers to agents by name."""
    if kind == "Workflow":
        return flow(team, *names)
    entries = [{"type": "Agent", "name": name} for name in names]
    if kind == "Pipeline":
        return {"type": kind, "name": team, "steps": entries}
    config = {"model": "offline/echo"}
    return {"type": kind, "name": team, "instructions": "", "skills": entries, "config": config}  # fmt: skip


@pytest.mark.parametrize("kind", ["Workflow", "Pipeline", "Conductor"])
def test_agents_in_python(write: Write, kind: str) -> None:
    """A blueprint names the functions and components of `agents.py`; a function has the first words of its text."""
    blueprint = members_of(kind, "helper", "a named one", "another")
    root = write({
        "team/blueprint.json": blueprint,
        "team/agents.py": AGENTS,
        # what is in Python comes first
        "team/agents/helper.json": agent("helper"),
    })  # fmt: skip
    team = load(root / "team")
    members: Mapping[str, Any] = team.members()
    assert members["helper"].description == "Help with a task."
    assert members["helper"].run("x") == "helper helps"
    assert members["a named one"].run("x") == "named"
    assert members["another"].run("x") == "inner helps"
    assert [
        entry["name"] for entry in team.to_blueprint().get("skills", [])
    ] == (list(members) if kind == "Conductor" else [])
    given = Agent("helper", "", "offline/echo")
    assert load(root / "team", agents={"helper": given}).members()["helper"] is given  # fmt: skip


def test_a_folder_whose_agent_is_a_function(write: Write) -> None:
    """A pipeline of one reference is the agent: its answer, its data and its conversation."""
    code = "def helper(task):\n    return {'task': task}\n"
    root = write({
        "team/blueprint.json": members_of("Pipeline", "helper"),
        "team/agents.py": code,
    })  # fmt: skip
    result = load(root / "team").run("x", trace=True)
    assert result.value == {"task": "x"}
    assert result.data == {"task": "x"}
    assert result.messages[-1]["content"] == '{"task": "x"}'


@pytest.mark.parametrize(
    ("name", "code", "reason"),
    [
        ("number", AGENTS, "number"),
        ("helper", "helper = object()", "helper"),
        ("helper", "class helper: ...", "helper"),
        ("helper", "import no_such_module_anywhere", "no_such_module_anywhere"),
        ("helper", "def helper(): ...", "helper"),
    ],
    ids=["number", "object", "class", "import", "parameters"],
)
def test_what_is_no_agent_is_reported(
    write: Write, name: str, code: str, reason: str
) -> None:
    """A name of `agents.py` that is neither a function of a task nor a component is an error that names it."""
    root = write({
        "team/blueprint.json": members_of("Pipeline", name),
        "team/agents.py": code,
    })  # fmt: skip
    error = refusal(root / "team")
    assert reason in error.message + error.suggestion


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("other", "whose name is 'another'"),
        ("_named", "whose name is 'a named one'"),
        ("missing", "Missing agent"),
        ("FunctionAgent", "FunctionAgent"),
    ],
)
def test_other_names_of_the_module_are_no_agents(
    write: Write, name: str, expected: str
) -> None:
    """A variable of a component is not its name, which the error tells; what the module imports is no agent."""
    root = write({
        "team/blueprint.json": members_of("Pipeline", name),
        "team/agents.py": AGENTS,
    })  # fmt: skip
    error = refusal(root / "team")
    assert f"'{name}'" in str(error)
    assert expected in str(error)


PLACES: dict[str, Any] = {
    "flow/agents.py": "def coded(task: str) -> str:\n    return task\n",
    "flow/agents/coded.json": agent("coded"),
    "flow/agents/filed.json": agent("filed"),
    "flow/agents/filed/blueprint.json": agent("filed"),
    "flow/agents/inner/blueprint.json": agent("inner"),
    "inner/blueprint.json": agent("inner"),
    "sibling/blueprint.json": agent("sibling"),
}


def test_where_the_agents_of_a_folder_come_from(write: Write) -> None:
    """Code comes before files, files before folders, folders inside before those beside."""
    folder = Folder(write(PLACES) / "flow")
    named = ["coded", "filed", "inner", "sibling", "nowhere", "../sibling"]
    blueprint = flow("flow", *named, "given")
    sources = list(folder.agents(blueprint, without=["given"]))
    assert [source.name for source in sources] == named
    assert [source.place for source in sources] == [
        "python",
        "file",
        "inside",
        "beside",
        "missing",
        "missing",
    ]
    values = [source.value for source in sources]
    folders = [each.path for each in values if isinstance(each, Folder)]
    parent = folder.path.parent
    assert values[1] == folder.path / "agents" / "filed.json"
    assert folders == [
        folder.path / "agents" / "inner",
        parent / "sibling",
        parent / "nowhere",
    ]
    assert values[-1] is None
    [source, *_] = folder.agents(blueprint, import_code=False)
    assert source.place == "file"


def test_the_component_folders_inside_a_folder(write: Write) -> None:
    """Folders in `agents/` without a blueprint are none of components."""
    files = {**PLACES, "flow/agents/texts/prompt.json": "{}"}
    folder = Folder(write(files) / "flow")
    names = [each.path.name for each in folder.agent_folders()]
    assert names == ["filed", "inner"]


# --- Agents that agents name --------------------------------------------------------------------------------------

KINDS = ("Workflow", "Pipeline", "Conductor")
CHIEFS = {
    "file": "game/agents/chief.json",
    "folder": "game/agents/chief/blueprint.json",
}
"""Where a component with members may be that another component has in its `agents/`."""
SENIORS: dict[str, tuple[str, Any]] = {
    "file": ("game/agents/senior.json", agent("senior")),
    "yaml": ("game/agents/senior.yaml", agent("senior")),
    "folder": ("game/agents/senior/blueprint.json", agent("senior")),
    "python": ("game/agents.py", "def senior(task: str) -> str:\n    return task\n"),
    "beside": ("senior/blueprint.json", agent("senior")),
}  # fmt: skip
"""Where the member of that component may be."""


@pytest.mark.parametrize("place", SENIORS)
@pytest.mark.parametrize("form", CHIEFS)
@pytest.mark.parametrize("inner", KINDS)
@pytest.mark.parametrize("outer", KINDS)
def test_agents_find_each_other(
    write: Write, outer: str, inner: str, form: str, place: str
) -> None:
    """An agent in `agents/` that has members finds them where the component around it finds its own."""
    file, senior = SENIORS[place]
    root = write({
        "game/blueprint.json": members_of(outer, "chief", team="game"),
        CHIEFS[form]: members_of(inner, "senior", team="chief"),
        file: senior,
    })  # fmt: skip
    chief: Any = load(root / "game").members()["chief"]
    assert list(chief.members()) == ["senior"]
    assert "x" in chief.members()["senior"].run("x")
    if form == "folder":
        assert list(load(root / "game" / "agents" / "chief").members()) == [
            "senior"
        ]


async def test_the_code_of_the_folder_around(write: Write) -> None:
    """A member in a file has the tools of the folder around it, also if a folder in `agents/` names it."""
    root = write({
        "game/blueprint.json": members_of("Workflow", "chief", team="game"),
        "game/tools.py": look_up("the game"),
        "game/agents/chief/blueprint.json": members_of("Conductor", "senior", team="chief"),
        "game/agents/chief/tools.py": look_up("the chief"),
        "game/agents/senior.json": agent("senior", TOOL),
    })  # fmt: skip
    chief: Any = load(root / "game").members()["chief"]
    tool = chief.members()["senior"].tools["look_up"]
    assert await tool.call({"word": "word"}) == "word: the game"


def test_an_own_agent_comes_before_one_of_the_folder_around(
    write: Write,
) -> None:
    """A folder in `agents/` looks in itself first."""
    root = write({
        "game/blueprint.json": members_of("Workflow", "chief", team="game"),
        "game/agents.py": "def senior(task: str) -> str:\n    return 'around'\n",
        "game/agents/senior.json": agent("senior"),
        "game/agents/chief/blueprint.json": members_of("Pipeline", "senior", team="chief"),
        "game/agents/chief/agents.py": "def senior(task: str) -> str:\n    return 'own'\n",
    })  # fmt: skip
    assert load(root / "game").run("x")["chief_output"] == "own"


@pytest.mark.parametrize("form", CHIEFS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_agent_says_where_it_was_looked_up(
    write: Write, kind: str, form: str
) -> None:
    """The problem has the places, relative to the component, and the name that was probably meant."""
    root = write({
        "game/blueprint.json": members_of("Workflow", "chief", team="game"),
        CHIEFS[form]: members_of(kind, "senior", team="chief"),
        "game/agents/senoir.json": agent("senoir"),
    })  # fmt: skip
    with pytest.raises(BlueprintValidationError) as refused:
        load(root / "game")
    [problem] = refused.value.problems
    for place in (
        "agents.py",
        "agents/senior.json",
        "agents/senior,",
        "../senior/",
    ):
        assert place in problem.suggestion
    assert ("agents/chief/agents.py" in problem.suggestion) == (
        form == "folder"
    )
    assert "'senoir'" in problem.suggestion
    assert str(root) not in str(refused.value)


def test_a_folder_beside_that_cannot_be_read_is_no_component(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an image, the folders of the system are beside the component."""
    root = write({
        "game/blueprint.json": members_of("Workflow", "senior", team="game"),
        "private/blueprint.json": agent("senoir"),
    })  # fmt: skip
    is_file = Path.is_file

    def is_readable_file(path: Path) -> bool:
        if path.parent.name == "private":
            raise PermissionError(13, "Permission denied", str(path))
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", is_readable_file)
    with pytest.raises(BlueprintValidationError, match="senior") as refused:
        load(root / "game")
    assert "private" not in str(refused.value)


def test_a_file_by_itself_names_no_other_file(write: Write) -> None:
    """The problem says which folder to load instead."""
    team = members_of("Conductor", "senior", team="chief")
    root = write({
        "chief.json": team,
        "game/blueprint.json": members_of("Workflow", "chief", team="game"),
        "game/agents/chief.json": team,
        "game/agents/senior.json": agent("senior"),
    })  # fmt: skip
    for file, hint in (
        ("chief.json", "agents/senior.json"),
        ("game/agents/chief.json", "'game'"),
    ):
        with pytest.raises(BlueprintValidationError) as refused:
            load(root / file)
        [problem] = refused.value.problems
        assert hint in problem.suggestion


CIRCLES: dict[str, dict[str, Json]] = {
    "itself": {"chief": members_of("Conductor", "chief", team="chief")},
    "each other": {
        "chief": members_of("Conductor", "senior", team="chief"),
        "senior": members_of("Conductor", "chief", team="senior"),
    },
    "in a circle": {
        "chief": members_of("Conductor", "senior", team="chief"),
        "senior": members_of("Pipeline", "junior", team="senior"),
        "junior": members_of("Workflow", "chief", team="junior"),
    },
}


@pytest.mark.parametrize("as_folders", [(), ("chief",), ("senior",), ("chief", "senior", "junior")])  # fmt: skip
@pytest.mark.parametrize("circle", CIRCLES)
def test_components_that_contain_themselves(
    write: Write, circle: str, as_folders: tuple[str, ...]
) -> None:
    """A component that names itself, directly or through others, is an error that names the circle."""
    files: dict[str, Any] = {
        "game/blueprint.json": members_of("Workflow", "chief", team="game")
    }
    for name, blueprint in CIRCLES[circle].items():
        ending = ".json"
        if name in as_folders:
            ending = "/blueprint.json"
        files[f"game/agents/{name}{ending}"] = blueprint
    error = refusal(write(files) / "game")
    names = [*CIRCLES[circle], "chief"]
    assert " → ".join(names) in error.message


def test_the_agents_outside_of_a_folder(write: Write) -> None:
    """They are those that the component and the agents in it need, each once, and that are not in the folder."""
    root = write({
        **PLACES,
        "flow/blueprint.json": flow("flow", "filed", "inner"),
        "flow/agents/filed.json": members_of("Conductor", "sibling", "inner", "filed"),
        "flow/agents/inner/blueprint.json": members_of("Pipeline", "sibling", "nowhere", "coded"),
    })  # fmt: skip
    folder = Folder(root / "flow")
    sources = list(folder.outside_agents(folder.blueprint()))
    assert [(source.name, source.place) for source in sources] == [
        ("sibling", "beside"),
        ("nowhere", "missing"),
    ]


def test_changed_blueprints(write: Write) -> None:
    """Each blueprint that is read is changed before it is validated; agents in Python have none."""
    root = write({
        "team/blueprint.json": flow("team", "local", "inside", "beside", "code"),
        "team/agents/local.json": agent("local", TOOL),
        "team/agents/inside/blueprint.yaml": flow("inside", "local"),
        "team/agents.py": "def code(text: str) -> str:\n    return text\n",
        "team/tools.py": look_up("team"),
        "beside/blueprint.json": agent("beside") | {"config": {}},
    })  # fmt: skip
    seen: list[str] = []

    def change(blueprint: Json) -> Json:
        seen.append(blueprint["name"])
        if "steps" in blueprint:
            return blueprint
        description = f"A changed {blueprint['name']}"
        config = {"model": "offline/echo", "temperature": 0.5}
        return {**blueprint, "description": description, "config": config}

    # without the change, one is not valid
    assert "beside" in str(refusal(root / "team"))
    team = load_changed(root / "team", change, model=ScriptedModel("Hi."))
    assert sorted(seen) == ["beside", "inside", "local", "local", "team"]
    for name in ("local", "beside"):
        part = team.members()[name]
        assert part.description == f"A changed {name}"
        assert part.config["temperature"] == 0.5
    inside = team.members()["inside"].members()["local"]
    assert inside.description == "A changed local"
    assert team.members()["code"].description == ""


def test_a_changed_blueprint_or_file(write: Write) -> None:
    """A blueprint by itself is changed too, and what the change returns decides about the kind and the agents."""
    root = write({"guide.json": agent("guide")})
    blueprint = agent("guide")
    for source in (blueprint, root / "guide.json"):
        changed = load_changed(
            source,
            lambda blueprint: flow(blueprint["name"], "other"),
            agents={"other": Agent("other", "", ScriptedModel("Hi."))},
        )
        assert isinstance(changed, Workflow)
        assert changed.run("x")["other_output"] == "Hi."
    assert blueprint == agent("guide")
    with pytest.raises(BlueprintValidationError) as caught:
        load_changed(blueprint, lambda blueprint: {**blueprint, "tolls": []})
    assert [problem.pointer for problem in caught.value.problems] == ["/tolls"]
