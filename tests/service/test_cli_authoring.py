"""`podwright export` and `sync`, and commands that take `module:attribute`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.helpers import NEWSROOM, write_files
from tests.library import shelf_tool
from tests.service.support import Shell

from podwright import blueprints

PROJECT = {
    "helpers/__init__.py": "",
    "helpers/text.py": "from helpers import table\ndef upper(text):\n    return text.upper() + table.END\n",
    "helpers/table.py": "END = '!'\n",
    "helpers/test_text.py": "raise RuntimeError('a test')\n",
    "unused.py": "raise RuntimeError('not needed')\n",
    "app.py": '''
from helpers.text import upper
from podwright import (
    Agent, AgentStep, Conductor, ConditionStep, FunctionAgent, FunctionStep, Pipeline, Remote, RunContext, Workflow,
)

def search(query: str) -> str:
    """Search the index.

    Args:
        query: What to search for.
    """
    return upper(query)

def fancy(task: str, context: RunContext) -> str:
    return f"{context.component}: {task}"

def is_long(context) -> bool:
    return len(context["input"]) > 3

def size(text: str = "abc") -> int:
    return len(text)

helper = Agent("helper", "Help.", "offline/echo", tools=[search])
fancy_agent = FunctionAgent("fancy", fancy)
team = Conductor("team", "Lead.", "offline/echo", skills=[helper, fancy_agent])
line = Pipeline("line", [helper, fancy_agent])
flow = Workflow(
    "My flow",
    [
        AgentStep(helper, name="first"),
        AgentStep(fancy_agent, name="second"),
        AgentStep(line, name="third"),
        FunctionStep(size, name="size"),
        ConditionStep("is_long", [AgentStep(helper, name="again")], name="check"),
    ],
    conditions={"is_long": is_long},
)
sizes = Workflow("sizes", [FunctionStep(size, name="size")])
afar = Pipeline("afar", [helper, Remote("far", "http://127.0.0.1:9")])

def hidden():
    def inner(query: str) -> str:
        return query
    return Agent("hidden", "Help.", "offline/echo", tools=[inner])

def count(input: str) -> dict[str, int]:
    return {"length": size(input)}

def shout(output: str) -> dict[str, str]:
    return {"output": upper(output)}

guarded = Agent(
    "guarded", "{length} letters.", "offline/echo", tools=[search, count], before=[count], after=shout,
)
guarded_line = Pipeline("guarded_line", [guarded, fancy_agent], before=count, after=[shout])

hidden_agent = hidden()
print("imported")
''',
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with components that were made in Python."""
    for name, text in PROJECT.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    "name",
    [
        *("helper", "fancy_agent", "team", "line", "flow", "sizes"),
        *("guarded", "guarded_line"),
    ],
)
def test_an_exported_component_is_the_same(
    shell: Shell, project: Path, name: str
) -> None:
    """A folder that `export` writes has the blueprint of the component and gives its answers, in another place too."""
    done = shell("export", f"app:{name}", "--output", "out")
    assert (done.returncode, done.stderr) == (0, "imported\n")
    place = project / "elsewhere"
    (project / "out").rename(place)
    (project / "app.py").rename(project / "moved.py")
    (project / "helpers").rename(project / "moved")
    here = shell("run", str(place), "some words", "--quiet")
    (project / "moved.py").rename(project / "app.py")
    (project / "moved").rename(project / "helpers")
    there = shell("run", f"app:{name}", "some words", "--quiet")
    assert (here.returncode, here.stdout) == (0, there.stdout)
    reports = json.loads(
        shell("validate", "--json", f"app:{name}", str(place)).stdout
    )
    [first, second] = [report.get("digest") for report in reports]
    assert first == second
    assert second in done.stdout


def test_a_blueprint_alone(shell: Shell, tmp_path: Path) -> None:
    """It has the texts that the component has in files, so it is the same wherever it is."""
    folder = tmp_path / "helper"
    folder.mkdir()
    (folder / "help.md").write_text("Help.")
    blueprint = {
        "type": "Agent",
        "name": "helper",
        "instructions": {"file": "help.md"},
        "config": {"model": "offline/echo"},
    }
    (folder / "blueprint.json").write_text(json.dumps(blueprint))
    done = shell("export", str(folder), "--output", "old.json")
    assert done.returncode == 0, done.stderr
    written = json.loads((tmp_path / "old.json").read_text())
    assert written["instructions"] == "Help."
    refused = shell("export", str(folder), "--output", "nowhere/old.json")
    assert refused.returncode == 1
    assert "nowhere" in refused.stderr


def test_what_is_exported(shell: Shell, project: Path) -> None:
    """The folder has the code that is needed, no tests, and each function under the name that the blueprint has."""
    done = shell("export", "app:flow")
    assert done.returncode == 0, done.stderr
    files = [
        "agents.py",
        "agents/helper/blueprint.json",
        "agents/helper/tools.py",
        "agents/line/agents.py",
        "agents/line/blueprint.json",
        "agents/line/tools.py",
        "app.py",
        "blueprint.json",
        "conditions.py",
        "functions.py",
        "helpers/__init__.py",
        "helpers/table.py",
        "helpers/text.py",
    ]
    folder = project / "my-flow"
    found = [path for path in folder.rglob("*") if path.is_file()]
    assert sorted(str(path.relative_to(folder)) for path in found) == files
    assert done.stdout.splitlines()[1:] == [f"  {file}" for file in files]


OWN = """
from podwright import Agent, AgentStep, FunctionModel, Workflow, register_provider
from podwright.components import PromptComponent, own_blueprint

def acme(name, connection):
    return FunctionModel(lambda request: f"{name} answers", name=f"acme/{name}")

class First(PromptComponent):
    kind = "agent"

    def __init__(self, name, *members):
        super().__init__(own_blueprint("agent", name))
        self._members = {member.name: member for member in members}

    def members(self):
        return self._members

    async def perform(self, run, task):
        [member, *_] = self._members.values()
        return await run.child(member).execute(task)

register_provider("acme", acme)
first = First("first", Agent("clerk", "", "acme/small"))
expert = Agent("expert", "", "acme/large")
flow = Workflow("flow", [AgentStep(first, name="ask"), AgentStep(expert, name="check")])
"""


def test_components_and_models_of_ones_own(
    shell: Shell, tmp_path: Path
) -> None:
    """The folder registers the providers of the models, and has the components that are code."""
    (tmp_path / "own.py").write_text(OWN)
    done = shell("export", "own:flow", "--output", "out")
    assert (done.returncode, done.stderr) == (0, "")
    (tmp_path / "own.py").unlink()
    assert not (tmp_path / "out" / "agents" / "first").exists()
    done = shell("run", "out", "some words", "--quiet")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["first_output"] == "small answers"
    assert answer["expert_output"] == "large answers"


TEAM = """
from podwright import Agent, AgentStep, FunctionStep, Pipeline, Workflow
from functions import double
from tools import add, name

calculator = Agent("calculator", "Add.", "offline/echo", tools=[add])
namer = Agent("namer", "Name.", "offline/echo", tools=[add, name])
team = Workflow(
    "team",
    [
        AgentStep(calculator, name="first"),
        AgentStep(namer, name="second"),
        FunctionStep(double, name="double"),
    ],
)
line = Pipeline("line", [calculator])
nested = Workflow("nested", [AgentStep(line, name="first")])
deeper = Workflow("deeper", [AgentStep(nested, name="first")])

def other(x: int) -> int:
    return x

mixed = Agent("mixed", "Add.", "offline/echo", tools=[add, other])
"""


@pytest.fixture(params=["modules", "packages"])
def team(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A project whose modules, or packages, have the names of the files of a folder, and are used by agents."""
    code = {
        "tools": "def add(x: int, y: int) -> int:\n    return x + y\ndef name() -> str:\n    return 'sum'\n",
        "functions": "def double(text: str = 'ab') -> str:\n    return 2 * text\n",
    }
    (tmp_path / "team.py").write_text(TEAM)
    for module, text in code.items():
        file = tmp_path / f"{module}.py"
        if request.param == "packages":
            file = tmp_path / module / "__init__.py"
            file.parent.mkdir()
        file.write_text(text)
    return tmp_path


@pytest.mark.parametrize("name", ["team", "nested"])
def test_a_project_with_the_names_of_a_folder(
    shell: Shell, team: Path, name: str
) -> None:
    """Agents whose folder would hide the module that their functions are in are files, and have the same functions."""
    done = shell("export", f"team:{name}", "--output", "out")
    assert (done.returncode, done.stderr) == (0, "")
    agents = {path.name for path in (team / "out" / "agents").iterdir()}
    expected = {"calculator.json", "namer.json"}
    if name == "nested":
        expected = {"line.json"}
    assert agents == expected
    for path in list(team.iterdir()):
        if path.name != "out":
            path.rename(path.with_name(f"moved-{path.name}"))
    done = shell("run", "out", "some words", "--quiet")
    assert done.returncode == 0, done.stderr
    if name == "team":
        assert json.loads(done.stdout)["double_output"] == "abab"


@pytest.mark.parametrize("team", ["modules"], indirect=True)
@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "deeper",
            "'tools' has the name of a file that 'agents/nested' needs",
        ),
        (
            "mixed",
            "'tools' has the name of the file for the functions of the tools, and team.other is not in it",
        ),
    ],
)
def test_names_of_a_folder_that_clash(
    shell: Shell, team: Path, name: str, message: str
) -> None:
    done = shell("export", f"team:{name}", "--output", "out")
    assert done.returncode == 1
    assert message in done.stderr
    assert not (team / "out").exists()


PROVIDERS = {
    "lambda": """
from podwright import FunctionModel, register_provider
register_provider("acme", lambda name, _: FunctionModel(lambda request: "acme answers", name=name))
""",
    "closure": """
from podwright import FunctionModel, register_provider

def provider(answer):
    def acme(name, connection):
        return FunctionModel(lambda request: answer, name=name)
    return acme

register_provider("acme", provider("acme answers"))
""",
}


@pytest.mark.parametrize("kind", PROVIDERS)
def test_a_provider_without_a_name(
    shell: Shell, tmp_path: Path, kind: str
) -> None:
    """A provider of models need not be importable: the module that registers it is imported."""
    (tmp_path / "models.py").write_text(PROVIDERS[kind])
    lines = ["import models", "from podwright import Agent"]
    lines += ["agent = Agent('expert', '', 'acme/small')"]
    (tmp_path / "app.py").write_text("\n".join(lines))
    done = shell("export", "app:agent")
    assert (done.returncode, done.stderr) == (0, "")
    for name in ("models", "app"):
        (tmp_path / f"{name}.py").rename(tmp_path / f"{name}.txt")
    done = shell("run", "expert", "x", "--quiet")
    assert (done.returncode, done.stdout) == (0, "acme answers\n")


def test_a_provider_that_another_module_registers(
    shell: Shell, tmp_path: Path
) -> None:
    """A folder in which the provider would be missing is not written."""
    (tmp_path / "models.py").write_text("def acme(name, connection): ...\n")
    lines = ["from models import acme"]
    lines += ["from podwright import Agent, register_provider"]
    lines += ["register_provider('acme', acme)"]
    lines += ["agent = Agent('expert', '', 'acme/small')"]
    (tmp_path / "app.py").write_text("\n".join(lines))
    done = shell("export", "app:agent")
    assert done.returncode == 1
    assert "does not register the provider 'acme'" in done.stderr
    assert not (tmp_path / "expert").exists()


ISOLATED = {
    "what it prints at its end": (
        "import atexit, sys\natexit.register(print, 'bye')\n",
        None,
    ),
    "errors that it prints at its end": (
        "import atexit, sys\natexit.register(print, 'bye', file=sys.stderr)\nDATA = open('data.txt').read()\n",
        "package with it, which is copied",
    ),
    "another module": (
        "import importlib\nDATA = importlib.import_module('secret')\n",
        "No module named 'secret'",
    ),
    "another signature": (
        "from pathlib import Path\nif not Path('data.txt').exists():\n    def words(count: int, size: int): ...\n",
        "/tools/0/schema",
    ),
}


@pytest.mark.parametrize("case", ISOLATED)
def test_the_copy_is_loaded_for_itself(
    shell: Shell, tmp_path: Path, case: str
) -> None:
    """Neither what the code prints nor `PYTHONPATH` changes whether a copy is complete, and an error says why not."""
    code, message = ISOLATED[case]
    (tmp_path / "data.txt").write_text("data")
    (tmp_path / "secret.py").write_text("")
    lines = ["from podwright import Agent", "def words(count: int): ...", code]
    lines += ["agent = Agent('reader', '', 'offline/echo', tools=[words])"]
    (tmp_path / "reader.py").write_text("\n".join(lines))
    done = shell("export", "reader:agent", PYTHONPATH=str(tmp_path))
    if message is None:
        assert done.returncode == 0, done.stderr
    else:
        assert done.returncode == 1
        assert message in done.stderr
        assert "Traceback" not in done.stderr
    assert (tmp_path / "reader").exists() == (message is None)


def test_packages_of_the_code(shell: Shell, project: Path) -> None:
    """Installed packages that every image lacks are listed with their versions; what is not installed is said."""
    app = (project / "app.py").read_text()
    lines = ["import numpy_of_nobody_else", "import yaml", "import pytest", app]
    code = (
        "try:\n    " + "\n    ".join(lines[:1]) + "\nexcept ImportError: pass\n"
    )
    (project / "app.py").write_text(code + "\n".join(lines[1:]))
    done = shell("export", "app:helper", "--output", "out")
    assert done.returncode == 0, done.stderr
    assert "imports numpy_of_nobody_else, not installed here" in done.stderr
    listed = (project / "out" / "requirements.txt").read_text()
    assert listed == f"pytest=={pytest.__version__}\n"


@pytest.mark.parametrize("file", ["pyproject.toml", "requirements.txt"])
def test_packages_that_the_project_lists(
    shell: Shell, project: Path, file: str
) -> None:
    """A plug-in that no file imports is needed too; what is not installed, or in every image, is left out."""
    lines = ["Pytest>=8", "nothing-of-the-test", "podwright", "orjson; python_version > '3'"]  # fmt: skip
    text = "\n".join(["# plug-ins", "--pre", *lines])
    if file == "pyproject.toml":
        text = f"[project]\nname = 'x'\ndependencies = {json.dumps(lines)}\n"
    (project / file).write_text(text)
    (project / "src").mkdir()
    for name in ("app.py", "helpers"):
        (project / name).rename(project / "src" / name)
    done = shell("export", "app:helper", "--output", "out", PYTHONPATH="src")
    assert done.returncode == 0, done.stderr
    listed = (project / "out" / "requirements.txt").read_text()
    assert listed.lower() == f"pytest=={pytest.__version__}\n"


def test_a_folder_becomes_whole(shell: Shell, tmp_path: Path) -> None:
    """Of a folder in a fleet, the agents beside it are copied, and the copy is the same component."""
    source = NEWSROOM / "newsroom"
    done = shell("export", str(source), "--output", "out")
    assert (done.returncode, done.stderr) == (0, "")
    copied = {path.name for path in (tmp_path / "out" / "agents").iterdir()}
    assert {"researcher", "writer", "reviewer"} <= copied
    reports = json.loads(
        shell(
            "validate",
            "--json",
            str(source),
            "out",
            PODWRIGHT_MODEL="offline/echo",
        ).stdout
    )
    assert reports[0]["digest"] == reports[1]["digest"]


def test_remotes_are_named(shell: Shell, project: Path) -> None:
    done = shell("export", "app:afar", "--output", "out")
    assert done.returncode == 0
    assert "'far' runs elsewhere; name its address in PODWRIGHT_AGENTS" in (
        done.stderr
    )
    agents = json.dumps({"far": "http://127.0.0.1:9"})
    validated = shell("validate", "out", PODWRIGHT_AGENTS=agents)
    assert validated.returncode == 0, validated.stdout
    done = shell("export", "out", PODWRIGHT_AGENTS=agents)
    assert done.returncode == 0, done.stderr
    assert (project / "afar" / "blueprint.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("app:hidden_agent",),
            "The function 'inner' cannot be imported by a name",
        ),
        (("app:missing",), "has no attribute 'missing'"),
        (("app:helper", "--output", "helpers"), "'helpers' is not empty"),
        (("app:helper", "--output", "app.py"), "Cannot write 'app.py'"),
        (
            ("reader:agent",),
            "The component cannot be loaded from a folder: Cannot import 'tools.py'",
        ),
    ],
)
def test_what_cannot_be_exported(
    shell: Shell, project: Path, arguments: tuple[str, ...], message: str
) -> None:
    """An error says why, and nothing is written."""
    lines = ["from pathlib import Path", "from podwright import Agent"]
    lines += ["DATA = Path(__file__).with_name('data.txt').read_text()"]
    lines += ["def words(): return DATA"]
    lines += ["agent = Agent('reader', '', 'offline/echo', tools=[words])"]
    (project / "reader.py").write_text("\n".join(lines))
    (project / "data.txt").write_text("data")
    before = sorted(project.iterdir())
    done = shell("export", *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr
    assert "Suggestion: " in done.stderr
    after = [path for path in project.iterdir() if path.name != "__pycache__"]
    assert sorted(after) == before


def test_every_command_takes_a_module(shell: Shell, project: Path) -> None:
    """Commands that take the path of a component take `module:attribute` too."""
    assert shell("export", "app:flow").returncode == 0
    for command in (("validate",), ("graph",), ("deploy", "render")):  # fmt: skip
        done = shell(*command, "app:flow")
        assert done.returncode == 0, command
        # once, in this process
        assert done.stderr.splitlines().count("imported") == 1, command
    done = shell("inputs", "app:flow")
    assert (done.returncode, "declares no inputs" in done.stderr) == (0, True)
    values = yaml.safe_load(shell("deploy", "render", "app:flow").stdout)
    component = values["components"]["my-flow"]
    assert "agents" not in component
    assert component["files"]["helpers/table.py"] == "END = '!'\n"
    done = shell("diff", "my-flow", "app:flow")
    assert (done.returncode, done.stdout) == (0, "")
    done = shell("diff", "app:line", "app:flow")
    assert "breaking" in done.stdout
    (project / "values.yaml").write_text(yaml.safe_dump(values))
    done = shell("deploy", "diff", "values.yaml", "app:flow")
    assert (done.returncode, done.stdout) == (0, "")


TOOLS = '''
from typing import Annotated
from pydantic import BaseModel, Field
from podwright import tool

class Line(BaseModel):
    item: str
    count: int = 1

@tool(idempotent=True)
def order(lines: list[Line], note: str = "") -> str:
    """Order items."""
    return str(lines)

def cancel(number: int) -> str:
    """Cancel an order."""
    return str(number)
'''


@pytest.fixture
def shop(shell: Shell, tmp_path: Path) -> Path:
    """A folder with an agent with one tool, up to date."""
    folder = tmp_path / "shop"
    folder.mkdir()
    blueprint = {
        "name": "shop",
        "instructions": "Sell.",
        "config": {"model": "offline/echo"},
        "tools": [],
    }
    (folder / "blueprint.json").write_text(json.dumps(blueprint))
    (folder / "tools.py").write_text(TOOLS)
    assert shell("sync", "shop", "--add", "order").returncode == 0
    return folder


def tools_of(folder: Path) -> list[dict[str, Any]]:
    return blueprints.read_file(folder / "blueprint.json")["tools"]


def test_a_function_becomes_a_tool(shell: Shell, shop: Path) -> None:
    """`sync --add` writes the whole entry of a tool, once."""
    [entry] = tools_of(shop)
    assert entry["idempotent"] is True
    assert entry["schema"]["function"]["description"] == "Order items."
    names = ("order", "cancel", "cancel")
    added = [word for name in names for word in ("--add", name)]
    done = shell("sync", "shop", *added)
    assert done.returncode == 0, done.stderr
    assert [entry["name"] for entry in tools_of(shop)] == ["order", "cancel"]
    assert shell("validate", "shop").returncode == 0
    done = shell("sync", "shop", "--add", "ordr")
    assert (done.returncode, "Did you mean 'order'?" in done.stderr) == (
        1,
        True,
    )


def test_an_agent_of_a_workflow_is_given_a_tool(
    shell: Shell, shop: Path
) -> None:
    """`--to` names the file in `agents/` that gets the tool, because a workflow itself has none."""
    clerk = json.loads((shop / "blueprint.json").read_text())
    flow = {
        "type": "Workflow",
        "name": "flow",
        "steps": [{"type": "agent_step", "name": "ask", "agent": "clerk"}],
    }
    write_files(
        shop,
        {"blueprint.json": flow, "agents/clerk.json": {**clerk, "tools": []}},
    )
    done = shell("sync", "shop", "--add", "cancel")
    assert (done.returncode, "--to AGENT" in done.stderr) == (1, True)
    done = shell("sync", "shop", "--add", "cancel", "--to", "clrk")
    assert (done.returncode, "Did you mean 'clerk'?" in done.stderr) == (
        1,
        True,
    )
    done = shell("sync", "shop", "--add", "cancel", "--to", "clerk")
    assert done.returncode == 0, done.stderr
    agent = blueprints.read_file(shop / "agents" / "clerk.json")
    assert [entry["name"] for entry in agent["tools"]] == ["cancel"]
    assert blueprints.read_file(shop / "blueprint.json") == flow
    assert shell("sync", "shop", "--check").returncode == 0


def test_a_tool_that_is_not_a_function(shell: Shell, shop: Path) -> None:
    """`sync` writes its schema, the folder runs with it, and `export` takes it from the module that has it."""
    code = Path(shelf_tool.__file__).read_text()
    (shop / "tools.py").write_text(code + TOOLS)
    done = shell("sync", "shop", "--add", "find_book")
    assert done.returncode == 0, done.stderr
    assert tools_of(shop)[1] == {
        "name": "find_book",
        "schema": shelf_tool.SCHEMA,
    }
    assert shell("sync", "shop", "--check").returncode == 0
    assert shell("validate", "shop").returncode == 0
    (shop.parent / "shelf.py").write_text(code)
    (shop.parent / "app.py").write_text(
        "from podwright import FunctionStep, Workflow\n"
        "from shelf import find_book\n"
        "flow = Workflow('flow', [FunctionStep(find_book, {'isbn': '{input}'})])\n"
    )
    done = shell("export", "app:flow", "--output", "out")
    assert done.returncode == 0, done.stderr
    done = shell("run", "out", "7", "--quiet")
    assert "Book 7" in done.stdout, done.stderr


CHANGES = {
    "description": ('"""Order items."""', '"""Order all goods."""'),
    "new option": ('note: str = ""', 'note: str = "", gift: bool = False'),
    "nested type": ("count: int = 1", "count: float = 1"),
    "removed": (', note: str = ""', ""),
    "mark": ("@tool(idempotent=True)", "@tool(idempotent=True, timeout=3)"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_code(shell: Shell, shop: Path, change: str) -> None:
    """`sync --check` fails and shows what differs, `sync` writes it, and then nothing differs."""
    (shop / "tools.py").write_text(TOOLS.replace(*CHANGES[change]))
    before = (shop / "blueprint.json").read_text()
    done = shell("sync", "shop", "--check")
    assert (done.returncode, done.stderr) == (1, "")
    assert "blueprint.json: " in done.stdout
    assert (shop / "blueprint.json").read_text() == before
    done = shell("sync", "shop")
    assert done.returncode == 0
    assert "Updated shop/blueprint.json." in done.stdout
    assert shell("validate", "shop").returncode == 0
    done = shell("sync", "shop", "--check")
    assert (done.returncode, done.stdout) == (0, "Up to date.\n")


def test_what_only_the_blueprint_has_is_kept(shell: Shell, shop: Path) -> None:
    """Options and keys that the code does not have are the author's."""
    blueprint = blueprints.read_file(shop / "blueprint.json")
    entry = blueprint["tools"][0]
    entry["approval"] = True
    entry["schema"]["function"]["strict"] = True
    blueprint["metadata"] = {"team": "sales"}
    (shop / "blueprint.json").write_text(json.dumps(blueprint))
    changed = TOOLS.replace("Order items.", "Order all goods.")
    (shop / "tools.py").write_text(changed)
    done = shell("sync", "shop")
    assert done.returncode == 0
    assert "kept: /tools/0/approval" in done.stdout
    [new] = tools_of(shop)
    assert new["approval"] is True
    assert new["schema"]["function"]["strict"] is True
    assert new["schema"]["function"]["description"] == "Order all goods."


def test_yaml_and_agents_of_a_folder(shell: Shell, shop: Path) -> None:
    """Blueprints of agents in `agents/` are brought up to date too; YAML with comments below its top is refused."""
    text = (shop / "blueprint.json").read_text()
    (shop / "agents").mkdir()
    file = shop / "agents" / "seller.yaml"
    file.write_text(blueprints.to_yaml(blueprints.from_json(text)))
    (shop / "tools.py").write_text(
        TOOLS.replace("Order items.", "Order all goods.")
    )
    done = shell("sync", "shop")
    assert done.returncode == 0, done.stderr
    assert "Order all goods." in file.read_text()
    assert not file.read_text().startswith("{")
    (shop / "tools.py").write_text(
        TOOLS.replace("Order items.", "Order any ware of them.")
    )
    file.write_text(file.read_text() + "# ours\n")
    done = shell("sync", "shop")
    assert (done.returncode, "has comments" in done.stderr) == (1, True)
    assert "Order all goods." in file.read_text()


@pytest.mark.parametrize(
    ("text", "has_comment"),
    [
        ("instructions: 'Post to channel #general.'", False),
        ("instructions: Post to #general, or C#", True),
        ("instructions: Sell. # everything", True),
        ("instructions: |\n  Sell.\n  # Goods", False),
        ("instructions: |  # long\n  Sell.", True),
        ("instructions: |\n  Sell.\n# Goods", True),
        ('instructions: "Sell.\n\n  # Goods"', False),
    ],
)
def test_comments_of_yaml(
    shell: Shell, shop: Path, text: str, has_comment: bool
) -> None:
    """Only a comment is one, and not a sign in a text."""
    old = shop / "blueprint.json"
    data = blueprints.read_file(old)
    old.unlink()
    del data["instructions"]
    data["tools"][0]["schema"]["function"]["description"] = "Old."
    file = shop / "blueprint.yaml"
    file.write_text(f"{text}\n{blueprints.to_yaml(data)}")
    instructions = blueprints.read_file(file)["instructions"]
    done = shell("sync", "shop")
    assert "has comments" in done.stderr or not has_comment
    assert done.returncode == int(has_comment)
    new = blueprints.read_file(file)
    assert new["instructions"] == instructions
    [tool] = new["tools"]
    updated = tool["schema"]["function"]["description"] == "Order items."
    assert updated != has_comment


def test_folders_of_agents(shell: Shell, shop: Path) -> None:
    """`sync` brings agents up to date that are folders in the folder, and `validate` says whose the problem is."""
    team = shop.parent / "team"
    clerk = team / "agents" / "clerk"
    clerk.parent.mkdir(parents=True)
    shop.rename(clerk)
    steps = [{"type": "agent_step", "name": "ask", "agent": "clerk"}]
    (team / "blueprint.json").write_text(
        json.dumps({"type": "Workflow", "name": "team", "steps": steps})
    )
    assert shell("validate", "team").returncode == 0
    code = TOOLS.replace("lines: list[Line]", "articles: list[Line]")
    (clerk / "tools.py").write_text(code)
    [report] = json.loads(shell("validate", "--json", "team").stdout)
    assert report["problems"]
    for problem in report["problems"]:
        assert problem["pointer"].startswith("/tools/0/")
        assert "'clerk'" in problem["detail"]
    done = shell("sync", "team", "--check")
    assert done.returncode == 1
    assert "agents/clerk/blueprint.json: breaking: " in done.stdout
    done = shell("sync", "team")
    assert done.returncode == 0, done.stderr
    assert "Updated team/agents/clerk/blueprint.json." in done.stdout
    assert shell("validate", "team").returncode == 0


def test_a_missing_function_has_a_pointer(shell: Shell, shop: Path) -> None:
    (shop / "tools.py").write_text(TOOLS.replace("def order", "def orders"))
    done = shell("sync", "shop")
    assert done.returncode == 1
    assert "/tools/0" in done.stderr
    assert "Did you mean 'orders'?" in done.stderr


def test_validate_shows_texts_that_differ(shell: Shell, shop: Path) -> None:
    """A description that differs is a warning with its pointer, for `validate` and in the log of `run`."""
    (shop / "tools.py").write_text(
        TOOLS.replace("Order items.", "Order all goods.")
    )
    [report] = json.loads(shell("validate", "--json", "shop").stdout)
    assert report["valid"]
    [warning] = report["warnings"]
    assert warning["pointer"] == "/tools/0/schema/function/description"
    assert "sync" in warning["suggestion"]
    done = shell("run", "shop", "x")
    assert "/tools/0/schema/function/description" in done.stderr


def test_a_nested_parameter_has_its_pointer(shell: Shell, shop: Path) -> None:
    """A function that no longer fits is a problem where its schema differs."""
    code = TOOLS.replace("count: int = 1", "count: str = ''")
    (shop / "tools.py").write_text(code)
    [report] = json.loads(shell("validate", "--json", "shop").stdout)
    [problem] = report["problems"]
    assert problem["pointer"].endswith(
        "/parameters/$defs/Line/properties/count"
    )
    assert "'Line.count'" in problem["detail"]


@pytest.mark.parametrize("file_format", ["json", "yaml"])
def test_sync_keeps_what_is_written(
    shell: Shell, tmp_path: Path, file_format: str
) -> None:
    """The forms of texts, and what tells editors the schema, are in the file as before."""
    assert shell("new", "sums", "--format", file_format).returncode == 0
    folder = tmp_path / "sums"
    file = folder / f"blueprint.{file_format}"
    header = file.read_text().splitlines()[0] + "\n"
    source = blueprints.read_source(file)
    (folder / "prompt.md").write_text("Add.")
    (folder / "tools.py").write_text(
        'def add_numbers(x: int) -> int:\n    """New."""\n    return x\n'
    )
    for instructions in ({"file": "prompt.md"}, ["Add.", "Quickly."]):
        source["instructions"] = instructions
        source["tools"][0]["schema"]["function"]["description"] = "Old."
        if file_format == "yaml":
            file.write_text(header + blueprints.to_yaml(source))
        else:
            file.write_text(blueprints.to_json(source))
        done = shell("sync", str(folder))
        assert (done.returncode, done.stderr) == (0, "")
        written = blueprints.read_source(file)
        assert written["instructions"] == instructions
        described = written["tools"][0]["schema"]["function"]["description"]
        assert described == "New."
        assert file.read_text().startswith(header)
        assert shell("sync", str(folder), "--check").returncode == 0


def test_export_keeps_the_texts(shell: Shell, tmp_path: Path) -> None:
    """A copy of a folder has the files of its texts, and the same digest."""
    assert shell("new", "notes", "--kind", "workflow").returncode == 0
    done = shell("export", "notes", "--output", "copy")
    assert (done.returncode, done.stderr) == (0, "")
    done = shell("validate", "notes", "copy", "--json")
    assert done.returncode == 0, done.stdout
    [first, second] = json.loads(done.stdout)
    assert first["valid"]
    assert first["digest"] == second["digest"]
    assert (tmp_path / "copy" / "agents" / "writer.md").is_file()


def test_files_that_do_not_parse(shell: Shell, project: Path) -> None:
    """Code of the project that is not valid Python, such as a template, does not prevent an export."""
    (project / "helpers" / "template.py").write_text("class {{ name }}:\n")
    (project / "helpers" / "null.py").write_bytes(b"\0")
    done = shell("export", "app:helper", "--output", "out")
    assert done.returncode == 0, done.stderr
    assert (project / "out" / "helpers" / "template.py").exists()


def test_components_in_a_namespace_package(shell: Shell, project: Path) -> None:
    """Of a folder that is not a package, component folders are copied only if their code is imported."""
    source = project / "src"
    source.mkdir()
    (project / "app.py").rename(source / "app.py")
    (source / "app.py").write_text(
        "from src.used import words\nfrom src.acme import text\n"
        + (source / "app.py").read_text()
    )
    for name in ("used", "other", "acme/inside", "deep/other"):
        folder = source / name
        folder.mkdir(parents=True)
        (folder / "blueprint.json").write_text("{}")
        (folder / "words.py").write_text("")
    (source / "acme" / "__init__.py").write_text("")
    (source / "acme" / "text.py").write_text("")
    (source / "prompt.md").write_text("Help.")
    done = shell("export", "src.app:helper", "--output", "src/out")
    assert done.returncode == 0, done.stderr
    again = shell("export", "src.app:helper", "--output", "src/again")
    assert again.returncode == 0, again.stderr
    copied = source / "again" / "src"
    found = [path for path in copied.rglob("*") if path.is_file()]
    assert sorted(str(path.relative_to(copied)) for path in found) == [
        "acme/__init__.py",
        "acme/inside/blueprint.json",
        "acme/inside/words.py",
        "acme/text.py",
        "app.py",
        "prompt.md",
        "used/blueprint.json",
        "used/words.py",
    ]


def test_sync_of_what_is_not_json(shell: Shell, tmp_path: Path) -> None:
    """A date in YAML is a problem at its place."""
    (tmp_path / "blueprint.yaml").write_text(
        "type: Agent\nname: a\ninstructions: Help.\nmetadata: {day: 2020-01-01}\n"
        "config: {model: offline/echo}\n"
    )
    (tmp_path / "tools.py").write_text(
        "def add(a: int) -> int:\n    return a\n"
    )
    done = shell("sync", str(tmp_path), "--add", "add")
    assert done.returncode == 1
    assert "/metadata/day" in done.stderr
    assert "Traceback" not in done.stderr


def test_secrets_are_not_exported(shell: Shell, tmp_path: Path) -> None:
    """Files whose names are those of keys and passwords stay where they are."""
    folder = tmp_path / "writer"
    folder.mkdir()
    for name in ("prod.env", "server.pem", "a.key", "id_rsa", "id_ed25519.pub"):
        (folder / name).write_text("secret")
    (folder / "blueprint.json").write_text(
        blueprints.to_json(
            blueprints.read_file(NEWSROOM / "writer" / "blueprint.json")
        )
    )
    done = shell("export", "writer", "--output", "out")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (tmp_path / "out").iterdir()] == [
        "blueprint.json"
    ]


TYPES = '''
from pydantic import BaseModel, Field

class Order(BaseModel):
    """What a customer buys."""

    item: str
    count: int = Field(default=1, ge=1)

Prices = list[float]
'''


def test_a_type_writes_the_schemas_that_name_it(
    shell: Shell, shop: Path
) -> None:
    """`sync` writes schemas from their types and keeps them: `--check` fails and says which ones differ."""
    (shop / "schemas.py").write_text(TYPES)
    blueprint = blueprints.read_file(shop / "blueprint.json")
    blueprint["config"]["response_schema"] = {"title": "Order"}
    blueprint["inputs"] = {"prices": {"title": "Prices", "default": [1.5]}}
    agent = {
        "name": "clerk",
        "instructions": "Note.",
        "config": {
            "model": "offline/echo",
            "response_schema": {"title": "Order"},
        },
    }
    (shop / "agents").mkdir()
    (shop / "agents" / "clerk.json").write_text(json.dumps(agent))
    (shop / "blueprint.json").write_text(json.dumps(blueprint))
    refused = shell("validate", "shop")
    assert refused.returncode == 1
    assert "/config/response_schema" in refused.stdout
    assert "podwright sync" in refused.stdout
    done = shell("sync", "shop")
    assert (done.returncode, done.stderr) == (0, "")
    written = blueprints.read_file(shop / "blueprint.json")
    order = {
        "title": "Order",
        "description": "What a customer buys.",
        "properties": {
            "count": {"default": 1, "minimum": 1, "type": "integer"},
            "item": {"type": "string"},
        },
        "required": ["item"],
        "type": "object",
    }
    assert written["config"]["response_schema"] == order
    assert written["inputs"]["prices"] == {
        "title": "Prices",
        "default": [1.5],
        "items": {"type": "number"},
        "type": "array",
    }
    clerk = blueprints.read_file(shop / "agents" / "clerk.json")
    assert clerk["config"]["response_schema"] == order
    valid = shell("validate", "shop")
    assert (valid.returncode, "warning" in valid.stdout) == (0, False)
    done = shell("sync", "shop", "--check")
    assert (done.returncode, done.stdout) == (0, "Up to date.\n")
    (shop / "schemas.py").write_text(TYPES.replace("item: str", "item: int"))
    before = (shop / "blueprint.json").read_text()
    done = shell("sync", "shop", "--check")
    assert (done.returncode, done.stderr) == (1, "")
    for place in ("blueprint.json", "agents/clerk.json"):
        changed = f"{place}: breaking: /config/response_schema/properties/item/type changed: 'string' -> 'integer'"
        assert changed in done.stdout
    assert (shop / "blueprint.json").read_text() == before
    warned = shell("validate", "shop")
    assert warned.returncode == 0
    assert (
        "warning: The schema is not that of the type 'Order'" in warned.stdout
    )
    assert shell("sync", "shop").returncode == 0
    assert shell("sync", "shop", "--check").returncode == 0


def test_a_type_that_is_missing(shell: Shell, shop: Path) -> None:
    """A type that was renamed is an error of `sync` and of `sync --check`, which suggests the new name."""
    (shop / "schemas.py").write_text(TYPES.replace("Order", "Orders"))
    blueprint = blueprints.read_file(shop / "blueprint.json")
    blueprint["config"]["response_schema"] = {
        "title": "Order",
        "type": "object",
    }
    (shop / "blueprint.json").write_text(json.dumps(blueprint))
    for options in ([], ["--check"]):
        done = shell("sync", "shop", *options)
        assert done.returncode == 1
        assert "schemas.py has no type 'Order'" in done.stderr
        assert "Did you mean 'Orders'?" in done.stderr
    (shop / "schemas.py").write_text("import nothing_of_that_name\n")
    done = shell("sync", "shop")
    assert (done.returncode, "requirements.txt" in done.stderr) == (1, True)


CIRCLE = """
from podwright import Agent, Conductor, Handoff

def look(word: str) -> str:
    return word

model = "offline/echo"
refunds = Agent("refunds", "Refund.", model, handoffs=["triage"])
billing = Agent("billing", "Bill.", model, tools=[look], handoffs=["triage", "faq", refunds])
faq = Agent("faq", "Know.", model, handoffs=[billing])
triage = Agent("triage", "Sort.", model, tools=[look], handoffs=[Handoff(billing, "money"), faq])
lead = Conductor("lead", "Lead.", model, [triage])
"""


@pytest.mark.parametrize("name", ["triage", "lead"])
def test_agents_that_hand_off_in_circles_are_exported(
    shell: Shell, tmp_path: Path, name: str
) -> None:
    """Each becomes a blueprint that names the others, and their flowchart is that of the component."""
    (tmp_path / "circle.py").write_text(CIRCLE)
    done = shell("export", f"circle:{name}", "--output", "out")
    assert done.returncode == 0, done.stderr
    reports = json.loads(
        shell("validate", "--json", f"circle:{name}", "out").stdout
    )
    [first, second] = [report.get("digest") for report in reports]
    assert first == second is not None
    agents = {path.stem for path in (tmp_path / "out" / "agents").iterdir()}
    assert agents == {"billing", "faq", "refunds"}
    drawn = shell("graph", "out").stdout
    assert drawn == shell("graph", f"circle:{name}").stdout
    here = shell("run", "out", "some words", "--quiet")
    there = shell("run", f"circle:{name}", "some words", "--quiet")
    assert (here.returncode, here.stdout) == (0, there.stdout)
    assert "transferred_to" in here.stdout
