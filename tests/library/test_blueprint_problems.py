"""Every way in which a blueprint can be wrong: told all at once, each with its place and what to do; and versions."""

import copy
import json
from typing import Any

import pytest
from tests.library.shapes import (
    AGENT,
    CLASSES,
    CONDUCTOR,
    DROP,
    EVERY_STEP,
    PIPELINE,
    SHAPES,
    STAND_INS,
    TOOL,
    Json,
    edited,
    forecast,
    rebuilt,
    refused,
)

from podwright import (
    Agent,
    BlueprintValidationError,
    ConditionStep,
    Conductor,
    Pipeline,
    Workflow,
    blueprints,
    load,
)
from podwright.errors import Problem

PROBLEMS: list[tuple[str, str, Any, str, str]] = [
    # kind, place, value there, beginning of the problem, suggestion
    ("agent", "/name", DROP, ": the key 'name' is missing.", ""),
    ("agent", "/name", 5, "/name: expected a string, not the integer 5.", ""),
    ("agent", "/name", "", "/name: expected a name that is not empty", ""),
    ("agent", "/name", "a/b", "/name: expected a name without control", ""),
    ("agent", "/name", "a\n", "/name: expected a name without control", ""),
    ("agent", "/name", "{a}", "/name: expected a name without control", ""),
    ("agent", "/name", "x" * 101, "/name: expected at most 100 characters, not 101.", ""),
    ("agent", "/instructions", None, "/instructions: expected a string, not null.", ""),
    ("agent", "/config", DROP, ": the key 'config' is missing.", ""),
    ("agent", "/config", [], "/config: expected an object, not array.", ""),
    ("agent", "/config/model", DROP, "/config: the key 'model' is missing.", ""),
    ("agent", "/config/model", "gpt-4o", "/config/model: expected a model named '<provider>/<model_name>'", ""),
    ("agent", "/config/model", 1, "/config/model: expected a string, not the integer 1.", ""),
    ("agent", "/config/max_loops", 0, "/config/max_loops: expected greater than or equal to 1, not the integer 0.", ""),
    ("agent", "/config/max_loops", 1001, "/config/max_loops: expected less than or equal to 1000", ""),
    ("agent", "/config/max_loops", "5", "/config/max_loops: expected an integer, not the string '5'.", ""),
    ("agent", "/config/max_loops", True, "/config/max_loops: expected an integer, not the boolean True.", ""),
    ("agent", "/config/max_loops", 10**5000, "/config/max_loops: expected less than or equal to 1000", ""),
    ("agent", "/config/temperature", 3, "/config/temperature: expected less than or equal to 2", ""),
    ("agent", "/config/top_p", -0.1, "/config/top_p: expected greater than or equal to 0", ""),
    ("agent", "/config/timeout", 0, "/config/timeout: expected greater than 0", ""),
    ("agent", "/config/stop", 5, "/config/stop: expected a string or an array, not the integer 5.", ""),
    ("agent", "/config/stop", ["a", 1], "/config/stop/1: expected a string, not the integer 1.", ""),
    ("agent", "/config/reasoning_effort", "huge", "/config/reasoning_effort: expected 'none', 'minimal'", ""),
    ("agent", "/config/temprature", 1, "/config/temprature: unknown key", "Did you mean 'temperature'?"),
    ("agent", "/config/api_key", "sk", "/config/api_key: unknown key 'api_key'.", "Known names: frequency_penalty"),
    ("agent", "/config/a~1b", 1, "/config/a~01b: unknown key 'a~1b'.", "Known names: "),
    ("agent", "/instruction", "x", "/instruction: unknown key 'instruction'.", "Did you mean 'instructions'?"),
    ("agent", "/temperature", 1, "/temperature: unknown key", "'temperature' belongs under 'config'."),
    ("agent", "/type", "agent", "/type: no kind of component is called 'agent'.", "Did you mean 'Agent'?"),
    ("agent", "/type", 5, "/type: no kind of component is called 5.", "Known names: Agent, Workflow, Conductor"),
    ("agent", "/type", "Workflow", "/type: this is of the kind workflow where agent", "Use Workflow for it."),
    ("agent", "/version", "2", "/version: schema version '2' is newer than '1'", "Upgrade podwright."),
    ("agent", "/version", "one", "/version: schema version 'one' is unknown.", "Known names: '0', '1'."),
    ("agent", "/version", 1, "/version: schema version 1 is unknown.", "Write it in quotes: '1'."),
    ("agent", "/tools", {}, "/tools: expected an array, not object.", ""),
    ("agent", "/tools/0", "forecast", "/tools/0: expected an object, not the string 'forecast'.", ""),
    ("agent", "/tools/0/schema", DROP, "/tools/0: the key 'schema' is missing.", ""),
    ("agent", "/tools/0/code", "import os", "/tools/0/code: unknown key 'code'.", "Known names: name, schema."),
    ("agent", "/tools/0/schema/type", "x", "/tools/0/schema/type: expected 'function', not the string 'x'.", ""),
    ("agent", "/tools/0/schema/function/parameters", [], "/tools/0/schema/function/parameters: expected an object", ""),
    ("agent", "/tools/0/schema/function/name", "g", "/tools/0/schema/function/name: the tool is called 'forecast', but",
     "Use one name in both places."),
    ("agent", "/tools/1", TOOL, "/tools/1/name: duplicate tool name 'forecast'.", "Give each its own name."),
    ("agent", "/tools/0/schema/function/parameters/properties/city", {"$ref": "https://evil.example/x"},
     "/tools/0/schema/function/parameters/properties/city/$ref: a schema may refer only to itself", ""),
    ("workflow", "/steps", [], "/steps: expected at least 1 item, not 0.", ""),
    ("workflow", "/steps", DROP, ": the key 'steps' is missing.", ""),
    ("workflow", "/config", {}, "/config: unknown key 'config'.", "Known names: description, name, steps"),
    ("workflow", "/steps/0", "x", "/steps/0: expected an object, not the string 'x'.", ""),
    ("workflow", "/steps/0/type", "agentstep", "/steps/0/type: no type of step is", "Did you mean 'agent_step'"),
    ("workflow", "/steps/0/type", DROP, "/steps/0: the key 'type' is missing.", "Known names: agent_step"),
    ("workflow", "/steps/0/agent", DROP, "/steps/0: the key 'agent' is missing.", ""),
    ("workflow", "/steps/0/inputs", "x", "/steps/0/inputs: unknown key 'inputs'.", "Did you mean 'input'?"),
    ("workflow", "/steps/1/condition", "x", "/steps/1/condition: expected an object, not the string 'x'.", ""),
    ("workflow", "/steps/1/condition/arg", {}, "/steps/1/condition/arg: unknown key 'arg'.", "Did you mean 'args'?"),
    ("workflow", "/steps/1/then/0/mesage", "x", "/steps/1/then/0/mesage: unknown key", "Did you mean 'message'?"),
    ("workflow", "/steps/1/else/0/agent", 5, "/steps/1/else/0/agent: expected a string, not the integer 5.", ""),
    ("workflow", "/steps/2/branches", [], "/steps/2/branches: expected at least 1 item, not 0.", ""),
    ("workflow", "/steps/2/branches/0", [], "/steps/2/branches/0: expected at least 1 item, not 0.", ""),
    ("workflow", "/steps/2/branches/0/0/name", "/", "/steps/2/branches/0/0/name: expected a name", ""),
    ("workflow", "/steps/3/max_iterations", 0, "/steps/3/max_iterations: expected greater than or equal to 1", ""),
    ("workflow", "/steps/3/until", DROP, "/steps/3: the key 'until' is missing.", ""),
    ("workflow", "/steps/4/as", DROP, "/steps/4: the key 'as' is missing.", ""),
    ("workflow", "/steps/4/max_concurrency", 65, "/steps/4/max_concurrency: expected less than or equal to 64", ""),
    ("workflow", "/steps/5/workflow/stesp", [], "/steps/5/workflow/stesp: unknown key", "Did you mean 'steps'?"),
    ("workflow", "/steps/5/workflow/version", "9", "/steps/5/workflow/version: schema version '9' is newer", "Upgrade"),
    ("conductor", "/skills", [], "/skills: expected at least 1 item, not 0.", ""),
    ("conductor", "/skills/0/type", DROP, "/skills/0: the key 'type' is missing.", ""),
    ("conductor", "/skills/0/type", "agent", "/skills/0/type: expected 'Agent', not the string 'agent'.", ""),
    ("conductor", "/skills/1", {"type": "Agent", "name": "writer"}, "/skills/1/name: duplicate skill name 'writer'.",
     "Give each its own name."),
    ("conductor", "/skills/0/version", "7", "/skills/0/version: schema version '7' is newer", "Upgrade podwright."),
    ("conductor", "/skills/0/tools", [TOOL, TOOL], "/skills/0/tools/1/name: duplicate tool name", "Give each"),
    ("conductor", "/config/planing", True, "/config/planing: unknown key 'planing'.", "Did you mean 'planning'?"),
    ("conductor", "/config/planning", "yes", "/config/planning: expected a boolean, not the string 'yes'.", ""),
    ("conductor", "/skills/0/config", {"planning": True}, "/skills/0/config/planning: unknown key", "Known names"),
    ("pipeline", "/config/max_loops", 1, "/config/max_loops: unknown key 'max_loops'.", "Known names: model."),
    ("pipeline", "/steps/0/tols", [], "/steps/0/tols: unknown key 'tols'.", "Did you mean 'tools'?"),
    ("pipeline", "/steps/0/name", DROP, "/steps/0: the key 'name' is missing.", ""),
    ("pipeline", "/type", DROP, ": the key 'type' is missing.", ""),
    # what JSON does not know
    ("agent", "", "text", ": a blueprint is an object, not the string 'text'.", ""),
    ("agent", "", None, ": a blueprint is an object, not null.", ""),
    ("agent", "/config/temperature", float("nan"), "/config/temperature: nan is not a JSON number.", ""),
    ("agent", "/config/temperature", float("inf"), "/config/temperature: inf is not a JSON number.", ""),
    ("agent", "/instructions", "\ud800", "/instructions: the text holds half of a surrogate pair", ""),
    ("agent", "/\ud800", "x", ": a key holds half of a surrogate pair", ""),
    ("agent", "/config", {1: 2}, "/config: the key 1 is not a string.", "Put it in quotes."),
    ("agent", "/config/stop", ("a", "b"), "/config/stop: the tuple ('a', 'b') is not JSON.", "Write it as a string"),
    ("agent", "/instructions", b"x", "/instructions: the bytes b'x' is not JSON.", "Write it as a string or a number."),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "place", "value", "expected", "suggestion"),
    PROBLEMS,
    ids=[f"{number}-{row[0]}{row[1].encode('ascii', 'replace').decode()}" for number, row in enumerate(PROBLEMS)],
)
def test_each_problem_is_told_with_its_place(kind: Any, place: str, value: Any, expected: str, suggestion: str) -> None:
    """A wrong value is one problem: the JSON pointer of its place, what was expected, and what was probably meant."""
    base = EVERY_STEP if kind == "workflow" else SHAPES[kind]
    broken = edited(base, place, value)
    found = blueprints.problems(broken, kind)
    assert len(found) == 1, found
    (problem,) = found
    assert f"{problem.pointer}: {problem.detail}".startswith(expected)
    assert problem.suggestion.startswith(suggestion)
    assert bool(problem.suggestion) == bool(suggestion)
    assert problem in refused(lambda: CLASSES[kind].from_blueprint(broken))
    assert problem in refused(lambda: blueprints.check(broken, kind))


def test_all_problems_are_told_at_once() -> None:
    """Shape, meaning, tools and drift: everything that is wrong is reported in one error, in its text too."""
    broken = copy.deepcopy(AGENT)
    broken["config"] = {"model": "nothing", "max_loops": 0, "temprature": 1}
    broken["tools"] = [edited(TOOL, "/schema/function/parameters/properties/city", {"type": "integer"}), TOOL]
    broken["tools"].append(json.loads(json.dumps(TOOL).replace("forecast", "forcast")))
    del broken["instructions"]
    with pytest.raises(BlueprintValidationError) as caught:
        Agent.from_blueprint(broken, [forecast])
    error = caught.value
    assert error.message == "The blueprint of agent 'guide' is invalid: 7 problems."
    assert [problem.pointer for problem in error.problems] == [
        "",
        "/config/model",
        "/config/max_loops",
        "/config/temprature",
        "/tools/1/name",
        "/tools/0/schema/function/parameters",
        "/tools/2",
    ]
    for problem in error.problems:
        assert str(problem) in str(error)
        assert {"pointer": problem.pointer, "detail": problem.detail, "suggestion": problem.suggestion} in (
            error.to_dict()["problems"]
        )


def test_what_the_caller_must_supply_is_told_with_the_rest() -> None:
    """Missing agents, conditions and tools are problems like any other, wherever they are named."""
    flow = edited(EVERY_STEP, "/steps/3/until", {"name": "is_emty"})
    flow = edited(flow, "/steps/0/inputs", "x")
    found = refused(lambda: Workflow.from_blueprint(flow, agents={"wrter": STAND_INS["writer"]}))
    missing = [one for one in found if one.detail == "no agent called 'writer' was given."]
    assert {one.pointer for one in missing} == {
        "/steps/0/agent",
        "/steps/1/else/0/agent",
        "/steps/2/branches/0/0/agent",
        "/steps/3/steps/0/agent",
        "/steps/4/steps/0/agent",
        "/steps/5/workflow/steps/0/agent",
    }
    assert {one.suggestion for one in missing} == {"Did you mean 'wrter'?"}
    hint = "Did you mean 'is_empty'?"
    assert (
        Problem("/steps/3/until/name", "no condition called 'is_emty' was given, nor is one built in.", hint) in found
    )
    assert "/steps/0/inputs" in [one.pointer for one in found]


def test_a_team_names_the_members_that_it_lacks() -> None:
    """A member that is a name only must be supplied, and one without a model needs that of the whole."""
    line = {"type": "Pipeline", "name": "line", "steps": [{"type": "Agent", "name": "writr"}, PIPELINE["steps"][0]]}
    found = refused(lambda: Pipeline.from_blueprint(line, agents=STAND_INS))
    assert found == [
        Problem("/steps/0", "no agent called 'writr' was given.", "Did you mean 'writer'?"),
        Problem("/steps/1", "the agent 'writer' has no model.", "Add it under 'config'."),
    ]
    assert refused(lambda: Pipeline.from_blueprint(PIPELINE)) == [
        Problem("/steps/1/tools/0", "no callable was given for the tool 'forecast'.", "Give it in tools=[forecast].")
    ]


def nested(levels: int) -> Json:
    whole: Json = {}
    for _ in range(levels):
        whole = {"x": whole}
    return whole


@pytest.mark.parametrize("levels", [100, 5000])
@pytest.mark.parametrize("validate", [True, False])
def test_depth_is_limited(levels: int, validate: bool) -> None:
    """A blueprint nested deeper than the limit is refused by name, however deep, in every place and every text."""
    deep = nested(levels)
    steps: list[Any] = [{"type": "agent_step"}]
    condition: Json = {"name": "is_urgent"}
    for _ in range(levels):
        steps = [{"type": "loop_step", "name": "loop", "steps": steps}]
        condition = {"name": "not", "args": {"condition": condition}}
    tool = edited(TOOL, "/schema/function/parameters/properties/city", deep)
    step = {"type": "condition_step", "name": "c", "then": [], "condition": condition}
    for make in (
        lambda: Agent.from_blueprint({**AGENT, "tools": [tool]}, [forecast], validate),
        lambda: Agent.from_blueprint({**AGENT, "config": deep}, [forecast], validate),
        lambda: Workflow.from_blueprint({"name": "w", "steps": steps}, STAND_INS, validate=validate),
        lambda: Workflow.from_blueprint({"name": "w", "steps": [step]}, STAND_INS, validate=validate),
        lambda: load({**CONDUCTOR, "skills": [{"type": "Agent", "name": "a", "config": deep}]}, validate=validate),
    ):
        (problem,) = refused(make)
        assert problem.detail == f"nested deeper than {blueprints.MAX_DEPTH} levels."
    for text in ("[" * 100_000, '{"a":' * 100_000):
        assert "deep" in refused(lambda text=text: blueprints.from_json(text))[0].detail
    assert blueprints.problems({**AGENT, "config": nested(blueprints.MAX_DEPTH - 1)}), "just unknown keys"


def test_a_circle_is_refused() -> None:
    """Data that holds itself is found to be too deep, and nothing hangs."""
    around = copy.deepcopy(AGENT)
    around["config"]["stop"] = [around]
    assert "nested deeper" in refused(lambda: Agent.from_blueprint(around))[0].detail


def test_constructors_check_as_closely_as_files() -> None:
    """What a constructor accepts can be exported and loaded again, so it refuses what a file may not say."""
    writer = STAND_INS["writer"]
    odd: Any = object()
    assert refused(lambda: Conductor("desk", "", "a/b", [writer, Agent("writer", "", "a/b")]))[0].pointer == (
        "/skills/1/name"
    )
    condition = {"name": "equals", "args": {"value": odd, "to": "x"}}
    assert refused(lambda: Workflow("w", [ConditionStep(condition, then=[writer])]))[0].pointer == (
        "/steps/0/condition/args/value"
    )
    assert refused(lambda: Agent("a", "\ud800", "a/b"))[0].pointer == "/instructions"
    assert refused(lambda: Agent("a", "", "a/b", temperature=float("nan")))[0].pointer == "/config/temperature"
    wrong: Any = 5
    assert [one.pointer for one in refused(lambda: Agent(wrong, wrong, wrong))] == [
        "/name",
        "/instructions",
        "/config/model",
    ]
    assert refused(lambda: Workflow("w", []))[0].pointer == "/steps"
    assert refused(lambda: Pipeline("p", []))[0].pointer == "/steps"


# --- versions


def test_an_older_version_is_migrated() -> None:
    """A blueprint of version 0 is read as one of today: conductors knew no planning then (spec §9)."""
    old = {**CONDUCTOR, "version": "0", "config": {"model": "a/b"}}
    assert rebuilt(old).to_blueprint() == {**old, "version": "1", "config": {"planning": False, "model": "a/b"}}
    assert rebuilt({**AGENT, "version": "0"}).to_blueprint() == {**AGENT, "version": "1"}
    assert old["version"] == "0", "what was given is not changed"
    planned = {**CONDUCTOR, "version": "0"}
    assert rebuilt(planned).to_blueprint() == {**CONDUCTOR, "version": "1"}


def test_todays_version_is_left_alone() -> None:
    """An absent version means today's, and stays absent."""
    assert blueprints.migrate(AGENT) == AGENT
    assert blueprints.migrate({**AGENT, "version": blueprints.VERSION})["version"] == blueprints.VERSION


@pytest.mark.parametrize("version", ["2", "10", "99999999999999999999"])
def test_a_newer_version_is_refused_by_name(version: str) -> None:
    """A version that this release does not know yet is refused with the versions and the way out."""
    (problem,) = refused(lambda: rebuilt({**AGENT, "version": version}))
    assert problem.pointer == "/version"
    assert f"'{version}' is newer than '{blueprints.VERSION}'" in problem.detail
    assert problem.suggestion == "Upgrade podwright."


@pytest.mark.parametrize("version", ["", "-1", "1.0", "v1", "²", "01x", None, 1, [], True])
def test_an_unknown_version_is_refused(version: Any) -> None:
    """What is no version at all is refused with the known ones, with validation and without."""
    for validate in (True, False):
        (problem,) = refused(lambda validate=validate: rebuilt({**AGENT, "version": version}, validate=validate))
        assert problem.detail == f"schema version {version!r} is unknown."
        assert problem.suggestion == ("Write it in quotes: '1'." if type(version) is int else "Known names: '0', '1'.")
