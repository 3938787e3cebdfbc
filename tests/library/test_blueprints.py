"""Blueprints and components: the shapes of spec §2, the signatures of §4.4, overriding, and building without checks."""

import copy
import inspect
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.library.shapes import (
    AGENT,
    BY_NAME,
    CLASSES,
    EVERY_STEP,
    SHAPES,
    STAND_INS,
    TOOL,
    WORKFLOW,
    Json,
    edited,
    forecast,
    rebuilt,
    refused,
)

from podwright import (
    Agent,
    AgentStep,
    ApprovalStep,
    BlueprintValidationError,
    Conductor,
    ExecutionResult,
    Pipeline,
    ScriptedModel,
    Workflow,
)
from podwright.errors import ConfigurationError, Problem


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("ours", [False, True])
def test_the_shapes_of_the_spec_load(kind: str, ours: bool) -> None:
    """Each kind loads with just the fields of spec §2, and with our additive ones, and exports what it was given."""
    blueprint = copy.deepcopy(SHAPES[kind])
    if ours:
        blueprint |= {"type": kind.capitalize(), "version": "1", "description": "An example."}
    component = rebuilt(blueprint)
    assert isinstance(component, CLASSES[kind])
    assert component.name == blueprint["name"]
    assert component.description == ("An example." if ours else "")
    assert component.to_blueprint() == blueprint
    assert component.to_blueprint().keys() == blueprint.keys(), "no key is added"


def test_an_agent_exports_what_the_spec_lists() -> None:
    """An agent's blueprint has name, instructions, config with model and max_loops, and tool schemas (spec §2.1)."""
    agent = Agent("guide", "You are a guide.", "openai/gpt-4o-mini", [forecast], max_loops=5, temperature=0.5)
    exported = agent.to_blueprint()
    parameters = {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 1}},
        "required": ["city"],
        "additionalProperties": False,
    }
    function = {"name": "forecast", "description": "Say what the weather will be.", "parameters": parameters}
    assert exported == {
        "type": "Agent",
        "version": "1",
        "name": "guide",
        "instructions": "You are a guide.",
        "config": {"model": "openai/gpt-4o-mini", "max_loops": 5, "temperature": 0.5},
        "tools": [{"name": "forecast", "schema": {"type": "function", "function": function}}],
    }


def test_a_workflow_exports_what_the_spec_lists() -> None:
    """A workflow's blueprint has name and steps, with the type, the agent and the name of each (spec §2.2)."""
    flow = Workflow("newsroom", [STAND_INS["writer"], AgentStep("reviewer", name="check")], agents=STAND_INS)
    assert flow.to_blueprint() == {
        "type": "Workflow",
        "version": "1",
        "name": "newsroom",
        "steps": [
            {"type": "agent_step", "agent": "writer", "name": "writer"},
            {"type": "agent_step", "agent": "reviewer", "name": "check"},
        ],
    }


@pytest.mark.parametrize("kind", ["conductor", "pipeline"])
def test_a_team_exports_what_the_spec_lists(kind: str) -> None:
    """Conductors and pipelines export type, name, members with their further fields, and config (spec §§2.3, 2.4)."""
    writer = Agent("writer", "Write.", "a/b")
    if kind == "conductor":
        team: Any = Conductor("team", "Lead.", "c/d", [writer], planning=True)
        members, exported = team.to_blueprint()["skills"], team.to_blueprint()
        assert exported["instructions"] == "Lead."
        assert exported["config"]["planning"] is True
    else:
        team = Pipeline("team", [writer], model="c/d")
        members, exported = team.to_blueprint()["steps"], team.to_blueprint()
    assert exported["type"] == kind.capitalize()
    assert exported["name"] == "team"
    assert exported["config"]["model"] == "c/d"
    assert members == [writer.to_blueprint()]
    assert members[0]["type"] == "Agent"


SIGNATURES: list[tuple[Any, str]] = [
    (Agent.from_blueprint, "blueprint, tools=[], validate=True, **kwargs"),
    (Workflow.from_blueprint, "blueprint, agents={}, conditions={}, validate=True, event_manager=None, **kwargs"),
    (Conductor.from_blueprint, "blueprint, tools=[], validate=True, agents=None, **kwargs"),
    (Pipeline.from_blueprint, "blueprint, tools=[], validate=True, agents=None, **kwargs"),
    *[
        (way, "self, input_data, response_model=None, stream=False, trace=False")
        for kind in (Agent, Conductor, Pipeline)
        for way in (kind.run, kind.arun)
    ],
    (Workflow.run, "self, context=None, start_step=0, trace=False, resume_path=None, **kwargs"),
    (Workflow.arun, "self, context=None, start_step=0, trace=False, resume_path=None, **kwargs"),
    (ExecutionResult.replay, "self, delay=0.0, subscriber=None"),
    (ExecutionResult.to_dict, "self"),
    (Agent.to_blueprint, "self"),
]


@pytest.mark.parametrize(("function", "expected"), SIGNATURES, ids=range(len(SIGNATURES)))
def test_signatures_are_those_of_the_spec(function: Any, expected: str) -> None:
    """Names, order and defaults of the parameters are those of spec §4.4; what is ours comes after them."""
    shown: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        default = "" if parameter.default is parameter.empty else f"={parameter.default!r}"
        shown.append(("**" if parameter.kind is parameter.VAR_KEYWORD else "") + parameter.name + default)
    assert ", ".join(shown) == expected


# --- overriding values


@pytest.mark.parametrize(
    ("kind", "changes", "pointers"),
    [
        ("agent", {"name": "other"}, {"/name": "other"}),
        ("agent", {"instructions": "Else.", "description": "d"}, {"/instructions": "Else.", "/description": "d"}),
        ("agent", {"model": "a/b", "max_loops": 9}, {"/config/model": "a/b", "/config/max_loops": 9}),
        ("agent", {"temperature": 0, "stop": ["x"]}, {"/config/temperature": 0, "/config/stop": ["x"]}),
        ("agent", {"config": {"model": "a/b"}}, {"/config": {"model": "a/b"}}),
        ("agent", {"version": "1"}, {"/version": "1"}),
        ("workflow", {"name": "other", "description": "d"}, {"/name": "other", "/description": "d"}),
        ("workflow", {"steps": WORKFLOW["steps"][:1]}, {"/steps": WORKFLOW["steps"][:1]}),
        ("conductor", {"planning": False, "model": "a/b"}, {"/config/planning": False, "/config/model": "a/b"}),
        ("conductor", {"skills": [BY_NAME]}, {"/skills": [BY_NAME]}),
        ("pipeline", {"model": "a/b", "name": "other"}, {"/config/model": "a/b", "/name": "other"}),
    ],
)  # fmt: skip
def test_keywords_replace_values_of_the_blueprint(kind: str, changes: Json, pointers: Json) -> None:
    """Any value of a blueprint can be overridden by a keyword; the blueprint that was given stays as it was."""
    before = copy.deepcopy(SHAPES[kind])
    expected = before
    for pointer, value in pointers.items():
        expected = edited(expected, pointer, value)
    needs: Json = {"tools": [forecast]} if kind != "workflow" else {"agents": STAND_INS}
    if kind in ("conductor", "pipeline"):
        needs["agents"] = STAND_INS
    assert CLASSES[kind].from_blueprint(SHAPES[kind], **needs, **changes).to_blueprint() == expected
    assert SHAPES[kind] == before


def test_a_model_object_overrides_without_being_exported() -> None:
    """A model object answers in place of the blueprint's model, which the export keeps naming."""
    agent = Agent.from_blueprint(AGENT, [forecast], model=ScriptedModel("from the script"))
    assert agent.run("Hello") == "from the script"
    assert agent.to_blueprint() == AGENT


@pytest.mark.parametrize("kind", CLASSES)
def test_an_api_key_is_never_exported(kind: str) -> None:
    """`api_key` and `base_url` are accepted for every kind, and appear neither in the blueprint nor in the repr."""
    component = rebuilt(SHAPES[kind], api_key="sk-secret", base_url="http://hidden.example", verbose=False)
    shown = json.dumps(component.to_blueprint()) + repr(component)
    assert "sk-secret" not in shown
    assert "hidden" not in shown
    assert component.to_blueprint() == SHAPES[kind]


@pytest.mark.parametrize("kind", CLASSES)
def test_an_unknown_keyword_is_refused(kind: str) -> None:
    """A keyword that is no value of the kind is an error with a suggestion."""
    with pytest.raises(ConfigurationError, match=f"'descripton' of this {kind} to override") as caught:
        rebuilt(SHAPES[kind], descripton="x")
    assert caught.value.suggestion == "Did you mean 'description'?"


def test_an_unknown_option_of_a_constructor_is_refused() -> None:
    """A misspelt option is named, with the right one, for kinds with model settings and for those without."""
    with pytest.raises(ConfigurationError) as caught:
        Workflow("flow", [ApprovalStep("Go on?")], verbos=True)  # pyright: ignore[reportCallIssue]
    assert caught.value.suggestion == "Did you mean 'verbose'?"
    found = refused(lambda: Agent("guide", "", "a/b", temprature=1))  # pyright: ignore[reportCallIssue]
    assert found == [Problem("/config/temprature", "unknown key 'temprature'.", "Did you mean 'temperature'?")]


def test_what_is_put_in_the_wrong_place_is_told_where_it_goes() -> None:
    """Tools of a conductor, and a step's name in the place of its agent, are refused with what to write."""
    agent = Agent("guide", "", "offline/echo")
    with pytest.raises(ConfigurationError, match="Unknown option 'tools'") as caught:
        Conductor("desk", "", "offline/echo", [agent], tools=[len])  # pyright: ignore[reportCallIssue]
    assert caught.value.suggestion == "Give the tools to its agents."
    with pytest.raises(ConfigurationError, match="the agent first") as caught:
        Workflow("flow", [AgentStep("write", agent)])  # pyright: ignore[reportArgumentType]
    assert caught.value.suggestion == "Write AgentStep(guide, 'write')."


# --- validate=False


def test_validation_can_be_switched_off() -> None:
    """With validate=False unknown keys are dropped, and missing tools, drift and duplicates are let pass."""
    loose = {**copy.deepcopy(AGENT), "colour": "red", "tools": [TOOL, TOOL, {**TOOL, "code": "x"}]}
    loose["config"]["top_k"] = 5
    assert len(refused(lambda: Agent.from_blueprint(loose))) >= 4
    agent = Agent.from_blueprint(loose, validate=False)
    assert agent.to_blueprint() == {**AGENT, "tools": [TOOL, TOOL, TOOL]}
    assert agent.tools == {}
    nested = edited(EVERY_STEP, "/steps/2/branches/0/0/colour", "red")
    assert Workflow.from_blueprint(nested, validate=False).to_blueprint() == EVERY_STEP


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("broken", [None, "text", 5, [], {}, [["name", "x"]], {1: 2}, {"name": 5, "config": 5}])
@pytest.mark.parametrize("validate", [True, False])
def test_what_cannot_be_built_from_is_always_refused(kind: str, broken: Any, validate: bool) -> None:
    """What is no blueprint at all is one clear error, with validation and without."""
    assert refused(lambda: CLASSES[kind].from_blueprint(broken, validate=validate))


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("name", [10**5000, [10**5000], "x" * 1_000_000], ids=["number", "list", "text"])
def test_a_name_that_cannot_be_shown_is_refused(kind: str, name: Any) -> None:
    """A name that Python does not write out, or of any length, is refused in a few words."""
    with pytest.raises(BlueprintValidationError) as caught:
        CLASSES[kind].from_blueprint({**SHAPES[kind], "name": name, "more": 1})
    assert len(caught.value.message) < 200


@pytest.mark.parametrize("kind", CLASSES)
def test_what_is_refused_stays_refused_when_overridden(kind: str) -> None:
    """Overriding a value of a broken blueprint reports what is broken, whatever it is."""
    broken = {**SHAPES[kind], "config": 5, "description": 7}
    keyword = {"description": None} if kind == "workflow" else {"model": 3}
    assert refused(lambda: CLASSES[kind].from_blueprint(broken, **keyword))


MADE_OF: dict[Any, Callable[[Any], Any]] = {
    Conductor: lambda skills: Conductor("x", "", "offline/echo", skills),
    Pipeline: lambda steps: Pipeline("x", steps),
    Workflow: lambda steps: Workflow("x", steps),
}


@pytest.mark.parametrize("kind", MADE_OF)
def test_agents_are_given_by_name(kind: Any) -> None:
    """Agents given as a list where a map is needed, or one alone where a list is, are one clear error."""
    agent = Agent("a", "", "offline/echo")
    with pytest.raises(ConfigurationError, match="agents is a map"):
        kind.from_blueprint(MADE_OF[kind]([agent]).to_blueprint(), agents=[agent])
    with pytest.raises(ConfigurationError, match="list"):
        MADE_OF[kind](agent)
