"""Blueprint → component → blueprint is the identity, in every notation and in another process."""

import json
import multiprocessing
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.library.shapes import KINDS
from tests.library.strategies import (
    is_late,
    is_urgent,
    load_generated,
    search,
    valid,
)

from podwright import Agent, Conductor, Pipeline, Workflow, blueprints
from podwright.components import (
    AgentStep,
    ApprovalStep,
    ConditionStep,
    FunctionStep,
    LoopStep,
    MapStep,
    ParallelStep,
    TryStep,
    WorkflowStep,
)

moderate = settings(
    max_examples=40,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.function_scoped_fixture,
    ],
)


@pytest.mark.parametrize("kind", KINDS)
@moderate
@given(data=st.data())
def test_a_component_exports_the_blueprint_it_was_loaded_from(
    kind: str, data: st.DataObject
) -> None:
    """A component exports exactly its blueprint, with the keys in the same order."""
    blueprint = data.draw(valid[kind])
    before = json.dumps(blueprint)
    assert blueprints.problems(blueprint) == []
    component = load_generated(blueprint)
    assert component.kind == kind
    assert json.dumps(component.to_blueprint()) == before
    assert (
        json.dumps(load_generated(component.to_blueprint()).to_blueprint())
        == before
    )
    assert json.dumps(blueprint) == before, (
        "the caller's blueprint is not changed"
    )


@pytest.mark.parametrize("kind", KINDS)
@moderate
@given(data=st.data())
def test_json_and_yaml_contain_the_same_data(
    kind: str, data: st.DataObject, tmp_path: Path
) -> None:
    """JSON, YAML and files of both give back the same data with the same digest."""
    blueprint = data.draw(valid[kind])
    from_json = blueprints.from_json(blueprints.to_json(blueprint))
    from_yaml = blueprints.from_yaml(blueprints.to_yaml(blueprint))
    (tmp_path / "a.json").write_text(
        blueprints.to_json(from_yaml), encoding="utf-8"
    )
    (tmp_path / "a.yml").write_text(
        blueprints.to_yaml(from_json), encoding="utf-8"
    )
    for copy in (
        from_json,
        from_yaml,
        *(blueprints.read_file(path) for path in tmp_path.iterdir()),
    ):
        assert json.dumps(copy) == json.dumps(blueprint)
        assert blueprints.digest(copy) == blueprints.digest(blueprint)


ANSWER = {"type": "object", "properties": {"text": {"type": "string"}}}
TONE = {"tone": {"type": "string", "default": "dry"}}
writer = Agent(
    "writer",
    "Write of {input}.",
    "offline/echo",
    temperature=0.5,
    description="Writes.",
    metadata={"a": 1},
    inputs=TONE,
    response_model=ANSWER,
)
researcher = Agent(
    "researcher",
    "Find facts.",
    "offline/echo",
    tools=[search],
    max_loops=3,
    stop=["END"],
)
COMPONENTS: dict[str, Any] = {
    "agent": researcher,
    "workflow": Workflow(
        "newsroom",
        [
            researcher,
            ConditionStep(
                is_urgent,
                then=[writer],
                else_=[AgentStep("writer", name="slow", output="draft")],
            ),
            ConditionStep(
                {"name": "contains", "args": {"value": "{input}", "text": "a"}},
                then=[writer],
                name="b",
            ),
            ParallelStep(
                [[writer], [AgentStep(researcher, name="again")]], name="both"
            ),
            LoopStep(
                [writer],
                until={
                    "name": "not",
                    "args": {"condition": {"name": "is_late"}},
                },
                max_iterations=2,
            ),
            MapStep(
                "input",
                "item",
                [AgentStep(writer, input="{item}", output="parts")],
                max_concurrency=2,
            ),
            WorkflowStep(
                Workflow(
                    "inner",
                    [
                        AgentStep(writer, input="{input}"),
                        ApprovalStep("Fine?", name="ask"),
                    ],
                )
            ),
            TryStep(
                [
                    FunctionStep(
                        search, {"query": "{input}"}, "look", output="found"
                    ),
                ],
                catch=[
                    AgentStep(
                        writer,
                        input={"input": "{error.message}", "tone": "wry"},
                        response_schema=ANSWER,
                        limits={"cost": 0.5},
                    ),
                ],
                retries=2,
            ),
        ],
        conditions={"is_late": is_late},
        description="All types of steps.",
        inputs=TONE,
    ),
    "conductor": Conductor(
        "desk",
        "Lead.",
        "offline/echo",
        [researcher, writer],
        planning=True,
        seed=1,
        inputs=TONE,
        response_model=ANSWER,
    ),
    "pipeline": Pipeline(
        "line", [researcher, writer], "offline/echo", description="In a row."
    ),
}


def test_a_component_with_tools_can_be_sent_to_another_process() -> None:
    """A component can be pickled if its functions can; what arrives does the same."""
    component = Pipeline(
        "line",
        [Agent("a", "Look.", "offline/echo", tools=[search], on_token=print)],
    )
    sender, receiver = multiprocessing.Pipe()
    sender.send(component)
    received = receiver.recv()
    assert received.to_blueprint() == component.to_blueprint()
    assert received.run("moon") == component.run("moon")


@pytest.mark.parametrize("kind", KINDS)
def test_changing_an_exported_blueprint_does_not_change_the_component(
    kind: str,
) -> None:
    """The blueprints that a component is loaded from and exports are copies."""
    blueprint = COMPONENTS[kind].to_blueprint()
    rebuilt = load_generated(blueprint)
    for copy in (blueprint, rebuilt.to_blueprint()):
        copy["name"] = "changed"
        for key in {"config", "steps", "skills", "tools"} & copy.keys():
            copy[key].clear()
    assert rebuilt.to_blueprint() == COMPONENTS[kind].to_blueprint()


CODE = '''
def look_up(word: str, limit: int = 2) -> str:
    """Look a word up."""
    return f"{word}: {limit} facts"

def count(text: str) -> dict:
    if "sun" in text:
        raise ValueError(text)
    return {"words": len(text.split())}

def is_long(context) -> bool:
    return len(context["input"]) > 5
'''
OTHER_PROCESS = """
import json, sys
import podwright
for path in sys.argv[1:]:
    result = podwright.load(path).run("the moon", trace=True)
    print(json.dumps([result.value, result.usage.to_dict(), [event.type for event in result.events]]))
"""


def test_another_process_does_the_same_from_the_files(tmp_path: Path) -> None:
    """A component of each kind, loaded from its folder in another process, has the same value, usage and events."""
    code: dict[str, Any] = {}
    exec(CODE, code)  # noqa: S102 - the text above
    clerk = Agent(
        "clerk", "Look it up.", "offline/echo", tools=[code["look_up"]]
    )
    poet = Agent("poet", "Write on {input}.", "offline/echo")
    always = {"name": "is_empty", "args": {"value": ""}}
    steps = [
        clerk,
        ConditionStep(
            code["is_long"],
            then=[ParallelStep([[poet], [AgentStep(poet, output="second")]])],
        ),
        LoopStep([AgentStep(poet, input="{clerk_output}")], until=always),
        FunctionStep(code["count"], {"text": "{input} is {tone}"}),
        TryStep(
            [FunctionStep(code["count"], {"text": "the sun"})],
            catch=[AgentStep(poet, input={"input": "{error.code}"})],
        ),
        AgentStep(poet, input="{count_output.words}"),
    ]
    desk = Conductor(
        "desk", "Lead.", "offline/echo", [clerk, poet], planning=True
    )
    components: list[Any] = [
        clerk,
        Workflow(
            "flow",
            steps,
            inputs={**TONE, "input": {"type": "string"}},
        ),
        desk,
        Pipeline("line", [clerk, poet]),
    ]
    paths = [tmp_path / component.name for component in components]
    for folder, component in zip(paths, components, strict=True):
        (folder / "agents").mkdir(parents=True)
        (folder / "tools.py").write_text(CODE)
        (folder / "functions.py").write_text(CODE)
        (folder / "conditions.py").write_text(CODE)
        (folder / "agents" / "poet.yaml").write_text(
            blueprints.to_yaml(poet.to_blueprint())
        )
        (folder / "blueprint.json").write_text(
            blueprints.to_json(component.to_blueprint())
        )
    command = [
        sys.executable,
        "-W",
        "error",
        "-c",
        OTHER_PROCESS,
        *map(str, paths),
    ]
    output = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd="/"
    ).stdout
    for line, component in zip(output.splitlines(), components, strict=True):
        result = component.run("the moon", trace=True)
        assert json.loads(line) == [
            result.value,
            result.usage.to_dict(),
            [event.type for event in result.events],
        ]
        assert result.usage.model_calls
