"""Components and their blueprints: the fields and signatures of the specification, overrides, `validate=False`."""

import copy
import inspect
from collections.abc import Callable
from typing import Any

import pytest
from tests.library.shapes import (
    AGENT,
    AGENTS,
    BLUEPRINTS,
    CLASSES,
    EVERY_STEP,
    KINDS,
    TOOL,
    WORKFLOW,
    Json,
    agent_step,
    edited,
    forecast,
    load_example,
    problems_of,
)

from podwright import Agent, Conductor, ExecutionResult, Pipeline, Workflow
from podwright.components import AgentStep, ApprovalStep
from podwright.errors import ConfigurationError


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "added", [{}, {"version": "1", "description": "An example."}]
)
def test_the_examples_of_the_specification_load(kind: str, added: Json) -> None:
    """Each kind loads from the fields of spec §2 and the additional ones, and exports exactly those."""
    blueprint = {
        **BLUEPRINTS[kind],
        **added,
        **({"type": kind.capitalize()} if added else {}),
    }
    component = load_example(blueprint)
    assert isinstance(component, CLASSES[kind])
    assert (component.name, component.description) == (
        blueprint["name"],
        added.get("description", ""),
    )
    assert component.to_blueprint() == blueprint


def exported() -> dict[str, tuple[Any, Json]]:
    """A component of each kind, with the blueprint that it exports."""
    parameters = {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer", "default": 1},
        },
        "required": ["city"],
        "additionalProperties": False,
    }
    function = {
        "name": "forecast",
        "description": "Forecast the weather.",
        "parameters": parameters,
    }
    guide = Agent(
        "guide",
        "You are a guide.",
        "openai/gpt-4o-mini",
        [forecast],
        max_loops=5,
        temperature=0.5,
    )
    flow = Workflow(
        "newsroom",
        [AGENTS["writer"], AgentStep("reviewer", name="check")],
        agents=AGENTS,
    )
    writer = Agent("writer", "Write.", "a/b")
    member = {
        "type": "Agent", "version": "1", "name": "writer", "instructions": "Write.",
        "config": {"model": "a/b", "max_loops": 10}, "tools": [],
    }  # fmt: skip
    return {
        "agent": (guide, {
            "type": "Agent", "version": "1", "name": "guide", "instructions": "You are a guide.",
            "config": {"model": "openai/gpt-4o-mini", "max_loops": 5, "temperature": 0.5},
            "tools": [{"name": "forecast", "schema": {"type": "function", "function": function}}],
        }),
        "workflow": (flow, {
            "type": "Workflow", "version": "1", "name": "newsroom",
            "steps": [agent_step("writer"), agent_step("check", "reviewer")],
        }),
        "conductor": (Conductor("desk", "Lead.", "c/d", [writer], planning=True), {
            "type": "Conductor", "version": "1", "name": "desk", "instructions": "Lead.", "skills": [member],
            "config": {"model": "c/d", "max_loops": 10, "planning": True},
        }),
        "pipeline": (Pipeline("line", [writer], model="c/d"), {
            "type": "Pipeline", "version": "1", "name": "line", "steps": [member], "config": {"model": "c/d"},
        }),
    }  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_component_exports_the_fields_of_the_specification(kind: str) -> None:
    """A component exports exactly the fields of spec §2, and whole members."""
    component, blueprint = exported()[kind]
    assert component.to_blueprint() == blueprint


PROMPT = "self, input_data, response_model=None, stream=False, trace=False, messages=()"
TEAM = "blueprint, tools=[], validate=True, agents=None, **kwargs"
FLOW = (
    "self, context=None, start_step=0, trace=False, resume_path=None, **kwargs"
)
SIGNATURES: list[tuple[Any, str]] = [
    (Agent.from_blueprint, "blueprint, tools=[], validate=True, **kwargs"),
    (
        Workflow.from_blueprint,
        "blueprint, agents={}, conditions={}, validate=True, event_manager=None, **kwargs",
    ),
    (Conductor.from_blueprint, TEAM),
    (Pipeline.from_blueprint, TEAM),
    *[
        (method, PROMPT)
        for kind in (Agent, Conductor, Pipeline)
        for method in (kind.run, kind.arun)
    ],
    (Workflow.run, FLOW),
    (Workflow.arun, FLOW),
    (ExecutionResult.replay, "self, delay=0.0, subscriber=None"),
    (ExecutionResult.to_dict, "self"),
    (Agent.to_blueprint, "self"),
]


def test_signatures_are_those_of_the_specification() -> None:
    """Names, order and defaults of parameters are those of spec §4.4; additional ones come last."""
    for function, expected in SIGNATURES:
        parameters: list[str] = []
        for parameter in inspect.signature(function).parameters.values():
            default = (
                ""
                if parameter.default is parameter.empty
                else f"={parameter.default!r}"
            )
            parameters.append(
                ("**" if parameter.kind is parameter.VAR_KEYWORD else "")
                + parameter.name
                + default
            )
        assert ", ".join(parameters) == expected


@pytest.mark.parametrize(
    ("kind", "overrides", "expected"),
    [
        (
            "agent",
            {"name": "other", "description": "d"},
            {"/name": "other", "/description": "d"},
        ),
        (
            "agent",
            {"model": "a/b", "stop": ["x"]},
            {"/config/model": "a/b", "/config/stop": ["x"]},
        ),
        ("agent", {"config": {"model": "a/b"}}, {"/config": {"model": "a/b"}}),
        (
            "workflow",
            {"steps": WORKFLOW["steps"][:1]},
            {"/steps": WORKFLOW["steps"][:1]},
        ),
        (
            "conductor",
            {"planning": False, "model": "a/b"},
            {"/config/planning": False, "/config/model": "a/b"},
        ),
        (
            "pipeline",
            {"model": "a/b", "name": "other"},
            {"/config/model": "a/b", "/name": "other"},
        ),
    ],
)
def test_keywords_override_values_of_the_blueprint(
    kind: str, overrides: Json, expected: Json
) -> None:
    """A keyword overrides a value of the blueprint or of its config; the caller's blueprint does not change."""
    before = copy.deepcopy(BLUEPRINTS[kind])
    blueprint = before
    for pointer, value in expected.items():
        blueprint = edited(blueprint, pointer, value)
    needed: Json = (
        {"tools": [forecast]} if kind != "workflow" else {"agents": AGENTS}
    )
    assert (
        CLASSES[kind]
        .from_blueprint(BLUEPRINTS[kind], **needed, **overrides)
        .to_blueprint()
        == blueprint
    )
    assert BLUEPRINTS[kind] == before


def test_an_overridden_value_is_checked_in_place_of_the_blueprint_s() -> None:
    """Missing tools, agents and members are those of the override, not of the value that it replaces."""
    assert Workflow.from_blueprint(WORKFLOW, steps=[ASK]).to_blueprint()[
        "steps"
    ] == [ASK]
    flow = {"name": "flow", "steps": [ASK]}
    assert (
        problems_of(
            lambda: Workflow.from_blueprint(flow, steps=WORKFLOW["steps"])
        )[0].pointer
        == "/steps/0/agent"
    )
    line = BLUEPRINTS["pipeline"]
    assert Pipeline.from_blueprint(
        line, agents=AGENTS, steps=[MEMBER]
    ).steps == [AGENTS["writer"]]
    assert (
        problems_of(lambda: Pipeline.from_blueprint(line, steps=[MEMBER]))[
            0
        ].pointer
        == "/steps/0"
    )


ASK: Json = {"type": "approval_step", "name": "ask", "message": "Go on?"}
MEMBER: Json = {"type": "Agent", "name": "writer"}


@pytest.mark.parametrize("kind", KINDS)
def test_an_api_key_is_never_exported(kind: str) -> None:
    """Every kind takes `api_key` and `base_url`, and shows them neither in its blueprint nor in its repr."""
    component = load_example(
        BLUEPRINTS[kind],
        api_key="sk-secret",
        base_url="http://hidden.example",
        verbose=False,
    )
    assert "sk-secret" not in repr(component)
    assert "hidden" not in repr(component)
    assert component.to_blueprint() == BLUEPRINTS[kind]


UNKNOWN: dict[str, tuple[Callable[[], object], str, str]] = {
    # what is made, the keyword that it does not have, and the one that is suggested
    **{kind: (lambda kind=kind: load_example(BLUEPRINTS[kind], descripton="x"), "descripton", "'description'")
       for kind in KINDS},
    "a misspelt option": (lambda: Workflow("flow", [ApprovalStep("?")], verbos=True), "verbos", "'verbose'"),  # pyright: ignore[reportCallIssue]
    "an option of another kind": (
        lambda: Pipeline("line", [AGENTS["writer"]], tools=[len]), "tools", "agents",  # pyright: ignore[reportCallIssue]
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("make", "keyword", "suggestion"), UNKNOWN.values(), ids=UNKNOWN
)
def test_an_unknown_keyword_is_refused_with_a_suggestion(
    make: Callable[[], object], keyword: str, suggestion: str
) -> None:
    """A keyword that neither the constructor nor the blueprint has is a ConfigurationError."""
    with pytest.raises(ConfigurationError, match=f"'{keyword}'") as caught:
        make()
    assert suggestion in caught.value.suggestion


def test_without_validation_unknown_keys_are_dropped_and_missing_tools_allowed() -> (
    None
):
    """With validate=False unknown keys are dropped at any depth, and tools may be missing."""
    loose: Any = {
        **copy.deepcopy(AGENT),
        "colour": "red",
        "tools": [{**TOOL, "code": "x"}],
    }
    loose["config"]["temprature"] = loose["config"]["api_key"] = 5
    assert len(problems_of(lambda: Agent.from_blueprint(loose))) == 5
    agent = Agent.from_blueprint(loose, validate=False)
    assert (agent.to_blueprint(), agent.tools) == (AGENT, {})
    nested = edited(EVERY_STEP, "/steps/2/branches/0/0/colour", "red")
    assert (
        Workflow.from_blueprint(nested, validate=False).to_blueprint()
        == EVERY_STEP
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "blueprint", [None, "text", [], {}, {1: 2}, {"name": 5, "config": 5}]
)
@pytest.mark.parametrize("validate", [True, False])
def test_data_that_is_not_a_blueprint_is_refused(
    kind: str, blueprint: Any, validate: bool
) -> None:
    """What cannot be built from is a BlueprintValidationError, with validation and without."""
    assert problems_of(
        lambda: CLASSES[kind].from_blueprint(blueprint, validate=validate)
    )
    keyword = {"description": None} if kind == "workflow" else {"model": 3}
    assert problems_of(
        lambda: CLASSES[kind].from_blueprint(
            blueprint, validate=validate, **keyword
        )
    )


@pytest.mark.parametrize("kind", ["workflow", "conductor", "pipeline"])
def test_agents_are_a_map_and_members_a_list(kind: Any) -> None:
    """A list for the map of agents, and a single agent for a list of members, are ConfigurationErrors."""
    agent = AGENTS["writer"]
    with pytest.raises(ConfigurationError, match="agents"):
        CLASSES[kind].from_blueprint(BLUEPRINTS[kind], agents=[agent])
    arguments: list[Any] = (
        ["", "a/b", agent] if kind == "conductor" else [agent]
    )
    with pytest.raises(ConfigurationError, match="list"):
        CLASSES[kind]("x", *arguments)


@pytest.mark.parametrize(
    "make",
    [
        lambda members: Conductor("x", "", "a/b", members),
        lambda members: Pipeline("x", members),
    ],
    ids=["conductor", "pipeline"],
)
def test_a_member_must_be_a_component(make: Callable[[Any], object]) -> None:
    """Anything but a component among the members is a ConfigurationError."""
    with pytest.raises(ConfigurationError, match="component"):
        make(["writer"])
