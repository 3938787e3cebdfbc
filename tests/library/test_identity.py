"""Blueprint → component → blueprint is the identity, through every notation, and in another process."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.library.shapes import Json
from tests.library.strategies import CONDITIONS, TOOLS, add, is_late, is_urgent, rebuild, search, valid

from podwright import (
    Agent,
    AgentStep,
    ApprovalStep,
    ConditionStep,
    Conductor,
    ExecutionResult,
    LoopStep,
    MapStep,
    ParallelStep,
    Pipeline,
    Workflow,
    WorkflowStep,
    blueprints,
    load,
)

KINDS = list(valid)
moderate = settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("kind", KINDS)
@moderate
@given(data=st.data())
def test_a_component_exports_the_blueprint_it_was_made_from(kind: str, data: st.DataObject) -> None:
    """Whatever a valid blueprint says, its component says the same, key by key and in the same order."""
    blueprint = data.draw(valid[kind])
    before = json.dumps(blueprint)
    assert blueprints.problems(blueprint) == []
    component = rebuild(blueprint)
    assert component.kind == kind
    assert json.dumps(component.to_blueprint()) == before
    assert json.dumps(rebuild(component.to_blueprint()).to_blueprint()) == before
    assert json.dumps(blueprint) == before, "what was given is not changed"


@pytest.mark.parametrize("kind", KINDS)
@moderate
@given(data=st.data())
def test_every_notation_says_the_same(kind: str, data: st.DataObject, tmp_path: Path) -> None:
    """JSON, YAML, and files of each give back the same data, so the same digest, and no difference."""
    blueprint = data.draw(valid[kind])
    through_json = blueprints.from_json(blueprints.to_json(blueprint))
    through_yaml = blueprints.from_yaml(blueprints.to_yaml(blueprint))
    (tmp_path / "one.json").write_text(blueprints.to_json(blueprint), encoding="utf-8")
    (tmp_path / "one.yml").write_text(blueprints.to_yaml(through_json), encoding="utf-8")
    whole = json.dumps(blueprint)
    for other in (
        through_json,
        through_yaml,
        blueprints.from_json(blueprints.to_json(through_yaml)),
        blueprints.read_file(tmp_path / "one.json"),
        blueprints.read_file(str(tmp_path / "one.yml")),
    ):
        assert json.dumps(other) == whole
        assert blueprints.digest(other) == blueprints.digest(blueprint)
        assert blueprints.diff(blueprint, other) == []


@pytest.mark.parametrize("kind", KINDS)
def test_an_export_belongs_to_the_caller(kind: str) -> None:
    """Changing an exported blueprint, or the one a component was made from, changes no component."""
    component = COMPONENTS[kind]
    given_in = component.to_blueprint()
    again = rebuild(given_in)
    exported = again.to_blueprint()
    for mine in (given_in, exported):
        mine["name"] = "changed"
        for key in ("config", "steps", "skills", "tools"):
            if key in mine:
                mine[key].clear()
    assert again.to_blueprint() == component.to_blueprint()


writer = Agent("writer", "Write about {input}.", "offline/echo", temperature=0.5, description="Writes.")
researcher = Agent("researcher", "Find facts.", "offline/echo", tools=[search, add], max_loops=3, stop=["END"])
inner = Workflow("inner", [AgentStep(writer, input="{input}"), ApprovalStep("Fine?", name="ask")])
COMPONENTS: dict[str, Any] = {
    "agent": researcher,
    "workflow": Workflow(
        "newsroom",
        [
            researcher,
            ConditionStep(is_urgent, then=[writer], else_=[AgentStep("writer", name="slow", output="draft")]),
            ConditionStep({"name": "contains", "args": {"value": "{input}", "text": "a"}}, then=[writer], name="b"),
            ParallelStep([[writer], [AgentStep(researcher, name="again")]], name="both"),
            LoopStep([writer], until={"name": "not", "args": {"condition": {"name": "is_late"}}}, max_iterations=2),
            MapStep("input", "item", [AgentStep(writer, input="{item}", output="parts")], max_concurrency=2),
            WorkflowStep(inner),
        ],
        conditions={"is_late": is_late},
        description="All types of steps.",
    ),
    "conductor": Conductor("desk", "Lead.", "offline/echo", [researcher, writer], planning=True, seed=1),
    "pipeline": Pipeline("line", [researcher, writer], "offline/echo", description="In a row."),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_constructor_makes_can_be_rebuilt(kind: str) -> None:
    """The blueprint of a component put together in Python is valid, and rebuilds to the same blueprint."""
    made = COMPONENTS[kind].to_blueprint()
    assert blueprints.problems(made, COMPONENTS[kind].kind) == []
    members = COMPONENTS[kind].members() if kind == "workflow" else {}
    again = load(made, tools=TOOLS, agents=members, conditions=CONDITIONS)
    assert type(again) is type(COMPONENTS[kind])
    assert again.to_blueprint() == made


TOOL_FILE = '''
def look_up(word: str, limit: int = 2) -> str:
    """Look a word up."""
    return f"{word}: {limit} facts"
'''
CONDITION_FILE = """
def is_long(context):
    return len(context["input"]) > 5
"""


def look_up(word: str, limit: int = 2) -> str:
    """Look a word up."""
    return f"{word}: {limit} facts"


def is_long(context: Json) -> bool:
    """Whether there is much to do."""
    return len(context["input"]) > 5


def in_folders(root: Path) -> dict[str, tuple[Path, Any]]:
    """A component folder of each kind with all that it needs, and the same component made here."""
    clerk = Agent("clerk", "Look it up.", "offline/echo", tools=[look_up])
    poet = Agent("poet", "Write on {input}.", "offline/echo")
    made: dict[str, Any] = {
        "clerk": clerk,
        "flow": Workflow(
            "flow",
            [
                clerk,
                ConditionStep(is_long, then=[ParallelStep([[poet], [AgentStep(poet, output="second")]])]),
                LoopStep([AgentStep(poet, input="{clerk_output}")], until={"name": "is_empty", "args": {"value": ""}}),
            ],
        ),
        "desk": Conductor("desk", "Lead.", "offline/echo", [clerk, poet], planning=True),
        "line": Pipeline("line", [clerk, poet]),
    }
    found: dict[str, tuple[Path, Any]] = {}
    for name, component in made.items():
        folder = root / name
        (folder / "agents").mkdir(parents=True)
        (folder / "tools.py").write_text(TOOL_FILE)
        (folder / "conditions.py").write_text(CONDITION_FILE)
        (folder / "agents" / "poet.yaml").write_text(blueprints.to_yaml(poet.to_blueprint()))
        (folder / "blueprint.json").write_text(blueprints.to_json(component.to_blueprint()))
        found[component.kind] = (folder, component)
    return found


def told(result: ExecutionResult) -> Json:
    """What must be the same everywhere."""
    types = [[event.type, event.component, list(event.path)] for event in result.events]
    return {"value": result.value, "usage": result.usage.to_dict(), "events": types}


ELSEWHERE = textwrap.dedent("""
    import json, sys
    import podwright
    for path in sys.argv[1:]:
        result = podwright.load(path).run("the moon", trace=True)
        events = [[event.type, event.component, list(event.path)] for event in result.events]
        print(json.dumps({"value": result.value, "usage": result.usage.to_dict(), "events": events}))
""")


def test_another_process_does_the_same_from_the_files_alone(tmp_path: Path) -> None:
    """A component of each kind, rebuilt elsewhere from its folder, gives the same value, usage and events."""
    folders = in_folders(tmp_path)
    paths = [str(folder) for folder, _ in folders.values()]
    told_elsewhere = subprocess.run(
        [sys.executable, "-W", "error", "-c", ELSEWHERE, *paths], capture_output=True, text=True, check=True, cwd="/"
    ).stdout.splitlines()
    assert list(folders) == KINDS
    for line, (_, component) in zip(told_elsewhere, folders.values(), strict=True):
        here = told(component.run("the moon", trace=True))
        assert json.loads(line) == here
        assert here["usage"]["model_calls"] > 0
