"""Invalid blueprints: all problems at once, each with its JSON pointer and a suggestion; and schema versions."""

import copy
import json
from typing import Any

import pytest
from tests.library.shapes import (
    AGENT,
    AGENTS,
    BLUEPRINTS,
    CLASSES,
    CONDUCTOR,
    EVERY_STEP,
    PIPELINE,
    REMOVED,
    TOOL,
    Json,
    agent_step,
    edited,
    forecast,
    load_example,
    problems_of,
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
from podwright.blueprints.validation import MAX_DEPTH
from podwright.messages.messages import ToolCall
from podwright.models import FunctionModel

PARAMETERS = "/tools/0/schema/function/parameters"
BY_NAME: Json = {"type": "Agent", "name": "writer"}
PROBLEMS: list[tuple[str, str, Any, str, str, str]] = [
    # kind, what is changed there, pointer of the problem, words of its detail and of its suggestion
    ("agent", "/name", REMOVED, "", "Missing 'name'", ""),
    ("agent", "/name", 5, "/name", "string integer 5", ""),
    ("agent", "/name", "", "/name", "a name", ""),
    ("agent", "/name", "a/b", "/name", "slashes 'a/b'", ""),
    ("agent", "/name", "x" * 101, "/name", "100 characters", ""),
    (
        "agent",
        "/config/model",
        "gpt-4o",
        "/config/model",
        "<provider>/<model_name> 'gpt-4o'",
        "",
    ),
    ("agent", "/config/max_loops", 0, "/config/max_loops", "greater 1 0", ""),
    ("agent", "/config/max_loops", "5", "/config/max_loops", "integer '5'", ""),
    (
        "agent",
        "/config/max_loops",
        True,
        "/config/max_loops",
        "integer boolean",
        "",
    ),
    (
        "agent",
        "/config/temperature",
        float("nan"),
        "/config/temperature",
        "nan JSON",
        "",
    ),
    ("agent", "/config/stop", 5, "/config/stop", "string array 5", ""),
    ("agent", "/config/stop", ["a", 1], "/config/stop/1", "string 1", ""),
    ("agent", "/config/stop", ("a", "b"), "/config/stop", "tuple JSON", ""),
    (
        "agent",
        "/config/reasoning_effort",
        "hig",
        "/config/reasoning_effort",
        "'low' 'hig'",
        "mean 'high'",
    ),
    (
        "agent",
        "/config/temprature",
        1,
        "/config/temprature",
        "Unknown 'temprature'",
        "'temperature'",
    ),
    (
        "agent",
        "/config/max-tokens",
        1,
        "/config/max-tokens",
        "Unknown 'max-tokens'",
        "'max_tokens'",
    ),
    (
        "agent",
        "/config/modle",
        "a/b",
        "/config/modle",
        "Unknown 'modle'",
        "'model'",
    ),
    (
        "agent",
        "/config/planning",
        True,
        "/config/planning",
        "Unknown 'planning'",
        "max_loops",
    ),
    (
        "agent",
        "/config/api_key",
        "sk",
        "/config/api_key",
        "Unsafe",
        "environment",
    ),
    (
        "agent",
        "/config",
        {"model": "a/b", "a~/url": 1},
        "/config/a~0~1url",
        "Unsafe",
        "environment",
    ),
    (
        "agent",
        "/config/x",
        {"a": [{"baseUrl": 1}]},
        "/config/x/a/0/baseUrl",
        "Unsafe",
        "environment",
    ),
    ("agent", "/metadata", ["x"], "/metadata", "object array", ""),
    (
        "agent",
        "/config",
        {"model": "a/b", 1: 2},
        "/config",
        "1 string",
        "quotes",
    ),
    (
        "agent",
        "/instruction",
        "x",
        "/instruction",
        "Unknown 'instruction'",
        "'instructions'",
    ),
    (
        "agent",
        "/temperature",
        1,
        "/temperature",
        "Unknown 'temperature'",
        "config",
    ),
    ("agent", "/type", "agent", "/type", "Unknown 'agent'", "'Agent'"),
    ("agent", "/type", "Workflow", "/type", "agent workflow", "Workflow"),
    ("agent", "/version", "2", "/version", "'2' 0, 1", ""),
    (
        "agent",
        "/tools/0/schema/function/name",
        "g",
        "/tools/0",
        "'forecast' 'g'",
        "",
    ),
    (
        "agent",
        "/tools/0/name",
        "größe",
        "/tools/0/name",
        "letters 64 'größe'",
        "",
    ),
    ("agent", "/tools/0/name", "a.b", "/tools/0/name", "letters 64 'a.b'", ""),
    ("agent", "/tools/0/name", "x" * 65, "/tools/0/name", "letters 64", ""),
    (
        "pipeline",
        "/steps/1/tools/0/name",
        "",
        "/steps/1/tools/0/name",
        "letters 64",
        "",
    ),
    (
        "agent",
        "/config/max_tool_retries",
        -1,
        "/config/max_tool_retries",
        "greater 0 -1",
        "",
    ),
    (
        "agent",
        "/config/max_tool_retries",
        "3",
        "/config/max_tool_retries",
        "integer '3'",
        "",
    ),
    (
        "agent",
        "/config/max_corrections",
        -1,
        "/config/max_corrections",
        "greater 0 -1",
        "",
    ),
    (
        "conductor",
        "/config/max_correction",
        3,
        "/config/max_correction",
        "Unknown",
        "'max_corrections'",
    ),
    (
        "agent",
        "/config/max_tool_retry",
        3,
        "/config/max_tool_retry",
        "Unknown",
        "'max_tool_retries'",
    ),
    (
        "conductor",
        "/skills/0/config",
        {"max_tool_retries": 1001},
        "/skills/0/config/max_tool_retries",
        "less 1000",
        "",
    ),
    (
        "pipeline",
        "/config/max_tool_retries",
        1,
        "/config/max_tool_retries",
        "Unknown",
        "model",
    ),
    (
        "agent",
        "/tools/0/code",
        "import os",
        "/tools/0/code",
        "Unknown 'code'",
        "name, schema",
    ),
    ("agent", "/tools/1", TOOL, "/tools", "Duplicate 'forecast'", ""),
    (
        "agent",
        f"{PARAMETERS}/properties/city",
        {"$ref": "https://example.com"},
        PARAMETERS,
        "itself example.com",
        "",
    ),
    (
        "workflow",
        "/config",
        {},
        "/config",
        "Unknown 'config'",
        "description name steps",
    ),
    (
        "workflow",
        "/steps/0/type",
        "agentstep",
        "/steps/0/type",
        "Unknown 'agentstep'",
        "'agent_step'",
    ),
    ("workflow", "/steps/0/agent", REMOVED, "/steps/0", "Missing 'agent'", ""),
    (
        "workflow",
        "/steps/0",
        {"name": "x", "input": "y"},
        "/steps/0",
        "Missing 'type'",
        "'agent', 'branches', 'message'",
    ),
    (
        "workflow",
        "/steps/0",
        {"agent": "x", "branches": []},
        "/steps/0",
        "'agent' 'branches' different",
        "'type'",
    ),
    (
        "workflow",
        "/steps/0/inputs",
        "x",
        "/steps/0/inputs",
        "Unknown 'inputs'",
        "'input'",
    ),
    (
        "workflow",
        "/steps/1/then/0/mesage",
        "x",
        "/steps/1/then/0/mesage",
        "Unknown",
        "'message'",
    ),
    (
        "workflow",
        "/steps/2/branches/0",
        [],
        "/steps/2/branches/0",
        "at least 1 0",
        "",
    ),
    (
        "workflow",
        "/steps/5/workflow/stesp",
        [],
        "/steps/5/workflow/stesp",
        "Unknown",
        "'steps'",
    ),
    (
        "workflow",
        "/steps/6/arguement",
        {},
        "/steps/6/arguement",
        "Unknown",
        "'arguments'",
    ),
    (
        "workflow",
        "/steps/6/function",
        "os.system",
        "/steps/6/function",
        "function 'os.system'",
        "",
    ),
    (
        "workflow",
        "/steps/6/arguments",
        [],
        "/steps/6/arguments",
        "object array",
        "",
    ),
    (
        "workflow",
        "/steps/7/retrys",
        1,
        "/steps/7/retrys",
        "Unknown",
        "'retries'",
    ),
    ("workflow", "/steps/7/retries", 0, "/steps/7/retries", "greater 1 0", ""),
    ("workflow", "/steps/7/retries", 11, "/steps/7/retries", "less 10 11", ""),
    ("workflow", "/steps/7/catch", [], "/steps/7/catch", "at least 1 0", ""),
    (
        "workflow",
        "/steps/7",
        {"type": "try_step", "name": "t", "steps": [agent_step("w")]},
        "/steps/7",
        "catch retries",
        "",
    ),
    (
        "workflow",
        "/steps/7/catch/0/response_scheme",
        {},
        "/steps/7/catch/0/response_scheme",
        "Unknown",
        "'response_schema'",
    ),
    (
        "workflow",
        "/steps/7/catch/0/limits/token",
        1,
        "/steps/7/catch/0/limits/token",
        "Unknown",
        "'tokens'",
    ),
    ("workflow", "/input", {}, "/input", "Unknown", "'inputs'"),
    ("workflow", "/limit", {}, "/limit", "Unknown", "'limits'"),
    (
        "agent",
        "/config/limits",
        {"tokens": 1},
        "/config/limits",
        "Unsafe",
        "'limits'",
    ),
    (
        "agent",
        "/config/response_scheme",
        {},
        "/config/response_scheme",
        "Unknown",
        "'response_schema'",
    ),
    (
        "agent",
        "/config/response_schema",
        {"type": "objet"},
        "/config/response_schema",
        "JSON Schema /type",
        "",
    ),
    (
        "agent",
        "/config/response_schema",
        {"$ref": "http://x"},
        "/config/response_schema",
        "JSON Schema 'http://x'",
        "",
    ),
    (
        "agent",
        "/inputs",
        {"word": {"type": "string", "default": 5}},
        "/inputs/word",
        "default type 'string'",
        "",
    ),
    (
        "agent",
        "/inputs",
        {"a word": {}},
        "/inputs/a word",
        "letters 'a word'",
        "",
    ),
    ("agent", "/limits", {"tokens": 0}, "/limits/tokens", "greater 1 0", ""),
    ("agent", "/limits", {"cost": "1"}, "/limits/cost", "number '1'", ""),
    (
        "conductor",
        "/limits",
        {"second": 5},
        "/limits/second",
        "Unknown",
        "'seconds'",
    ),
    (
        "conductor",
        "/skills/0/type",
        "agent",
        "/skills/0/type",
        "'Agent' 'agent'",
        "mean 'Agent'",
    ),
    (
        "conductor",
        "/skills/0/config",
        {"x": {"hooks": 1}},
        "/skills/0/config/x/hooks",
        "Unsafe",
        "code",
    ),
    ("conductor", "/skills/1", BY_NAME, "/skills", "Duplicate 'writer'", ""),
    (
        "pipeline",
        "/config/max_loops",
        1,
        "/config/max_loops",
        "Unknown",
        "model",
    ),
    (
        "pipeline",
        "/config/extra_headers",
        {},
        "/config/extra_headers",
        "Unsafe",
        "environment",
    ),
    ("pipeline", "/steps/0/tols", [], "/steps/0/tols", "Unknown", "'tools'"),
    ("pipeline", "/type", REMOVED, "", "Missing 'type'", ""),
]


@pytest.mark.parametrize(
    ("kind", "place", "value", "pointer", "words", "suggestion"), PROBLEMS
)
def test_an_invalid_value_is_one_problem(
    kind: Any, place: str, value: Any, pointer: str, words: str, suggestion: str
) -> None:
    """A problem has the JSON pointer of the value, what was expected, and where possible what was meant."""
    broken = edited(
        EVERY_STEP if kind == "workflow" else BLUEPRINTS[kind], place, value
    )
    found = blueprints.problems(broken, kind)
    assert [problem.pointer for problem in found] == [pointer]
    assert [
        word for word in words.split(" ") if word not in found[0].detail
    ] == []
    assert [
        word
        for word in suggestion.split(" ")
        if word not in found[0].suggestion
    ] == []
    assert bool(found[0].suggestion) == bool(suggestion)
    assert found[0] in problems_of(lambda: CLASSES[kind].from_blueprint(broken))
    assert found == problems_of(lambda: blueprints.check(broken, kind))


@pytest.mark.parametrize("place", ["/config", "/skills/0/config"])
def test_unknown_keys_of_config_are_warnings(place: str) -> None:
    """Any key of `config` that is no mistake and no danger is kept, listed as a warning, and given to no model."""
    seen: list[Any] = []
    further = {
        "model": "a/b",
        "top_k": 5,
        "opts": True,
        "a/b": {"stop_token_ids": [None], "model": 5},
    }
    desk = edited(
        edited(CONDUCTOR, "/config", {"model": "a/b"}), place, further
    )
    assert blueprints.problems(desk) == []
    warnings = [f"{place}/{key}" for key in ("top_k", "opts", "a~1b")]
    assert [
        warning.pointer for warning in blueprints.warnings(desk)
    ] == warnings
    answers = [ToolCall.of("writer", task="Write."), "A text.", "Done."]
    component = load(
        desk,
        model=FunctionModel(
            lambda request: seen.append(request) or answers.pop(0)
        ),
    )
    assert component.to_blueprint() == desk
    assert component.run("Go.") == "Done."
    assert [request.settings for request in seen] == [{}, {}, {}]


def test_the_number_of_keys_is_limited() -> None:
    """An object with very many keys is one problem; of fewer unknown keys the first are listed as warnings."""
    config = {
        "model": "a/b",
        **{f"note{number}": number for number in range(2000)},
    }
    (problem,) = blueprints.problems({**AGENT, "config": config})
    assert problem.pointer == "/config"
    many = {**AGENT, "config": dict(list(config.items())[:500])}
    assert (blueprints.problems(many), len(blueprints.warnings(many))) == (
        [],
        100,
    )
    assert (
        blueprints.warnings({**AGENT, "type": "Robot"})
        == blueprints.warnings([])
        == []
    )


def test_all_problems_are_reported_at_once() -> None:
    """One error lists what is wrong with the shape, with the tools and with the functions behind them."""
    broken = edited(
        AGENT, "/config", {"model": "nothing", "max_loops": 0, "temprature": 1}
    )
    del broken["instructions"]
    broken["tools"] = [
        edited(
            TOOL,
            "/schema/function/parameters/properties/city",
            {"type": "integer"},
        ),
        TOOL,
    ]
    broken["tools"].append(
        json.loads(json.dumps(TOOL).replace("forecast", "forcast"))
    )
    with pytest.raises(BlueprintValidationError) as caught:
        Agent.from_blueprint(broken, [forecast])
    error = caught.value
    assert "'guide'" in error.message
    assert "7 problems" in error.message
    assert {problem.pointer for problem in error.problems} == {
        "", "/config/model", "/config/max_loops", "/config/temprature", "/tools",
        f"{PARAMETERS}/properties/city", "/tools/2",
    }  # fmt: skip
    for problem in error.problems:
        assert str(problem) in str(error)


def test_missing_agents_and_conditions_are_reported_with_the_other_problems() -> (
    None
):
    """Agents, conditions and functions that the caller does not supply are problems of each place that names them."""
    flow = edited(EVERY_STEP, "/steps/3/until", {"name": "is_emty"})
    flow = edited(flow, "/steps/0/inputs", "x")
    found = problems_of(
        lambda: Workflow.from_blueprint(
            flow, agents={"wrter": AGENTS["writer"]}
        )
    )
    by_pointer = {problem.pointer: problem.suggestion for problem in found}
    missing = {pointer for pointer in by_pointer if pointer.endswith("/agent")}
    steps = (
        "0",
        "1/then/0/on_reject/0",
        "1/else/0",
        "2/branches/0/0",
        "3/steps/0",
        "4/steps/0",
        "5/workflow/steps/0",
        "7/steps/0",
        "7/catch/0",
    )
    assert missing == {f"/steps/{step}/agent" for step in steps}
    for pointer in missing:
        assert by_pointer[pointer].startswith("Did you mean 'wrter'?")
    assert by_pointer.keys() - missing == {
        "/steps/0/inputs",
        "/steps/3/until/name",
        "/steps/6/function",
    }
    assert by_pointer["/steps/3/until/name"] == "Did you mean 'is_empty'?"


def test_a_missing_member_is_reported_with_a_suggestion() -> None:
    """A member that is only a name must be supplied, its tools too, and without a model anywhere it needs one."""
    line = {
        "type": "Pipeline",
        "name": "line",
        "steps": [{"type": "Agent", "name": "writr"}, PIPELINE["steps"][0]],
    }
    missing, without_model = problems_of(
        lambda: Pipeline.from_blueprint(line, agents=AGENTS)
    )
    assert missing.pointer == "/steps/0"
    assert missing.suggestion.startswith("Did you mean 'writer'?")
    assert without_model.pointer == "/steps/1"
    assert "model" in without_model.detail
    (tool,) = problems_of(lambda: Pipeline.from_blueprint(PIPELINE))
    assert tool.pointer == "/steps/1/tools/0"
    assert "tools=[" in tool.suggestion


@pytest.mark.parametrize("levels", [100, 5000])
@pytest.mark.parametrize("validate", [True, False])
def test_depth_is_limited(levels: int, validate: bool) -> None:
    """A blueprint that is nested too deeply has one problem, however deep it is and wherever the depth is."""
    deep: Json = {}
    steps: list[Any] = [{"type": "agent_step"}]
    condition: Json = {"name": "is_urgent"}
    for _ in range(levels):
        deep = {"x": deep}
        steps = [{"type": "loop_step", "name": "loop", "steps": steps}]
        condition = {"name": "not", "args": {"condition": condition}}
    tool = edited(TOOL, "/schema/function/parameters/properties/city", deep)
    step = {
        "type": "condition_step",
        "name": "c",
        "then": [],
        "condition": condition,
    }
    circle = copy.deepcopy(AGENT)
    circle["config"]["stop"] = [circle]
    for blueprint in (
        {**AGENT, "tools": [tool]},
        {**AGENT, "config": deep},
        {"name": "w", "steps": steps},
        {"name": "w", "steps": [step]},
        {
            **CONDUCTOR,
            "skills": [{"type": "Agent", "name": "a", "config": deep}],
        },
        circle,
    ):
        (problem,) = problems_of(
            lambda blueprint=blueprint: load_example(
                blueprint, validate=validate
            )
        )
        assert str(MAX_DEPTH) in problem.detail


def test_constructors_check_as_strictly_as_files() -> None:
    """A constructor refuses what a blueprint must not contain, so that every component can be exported."""
    writer = AGENTS["writer"]
    wrong = object()
    condition = {"name": "equals", "args": {"value": wrong, "to": "x"}}
    makers: list[tuple[Any, list[str]]] = [
        (
            lambda: Conductor(
                "desk", "", "a/b", [writer, Agent("writer", "", "a/b")]
            ),
            ["/skills"],
        ),
        (
            lambda: Workflow("w", [ConditionStep(condition, then=[writer])]),
            ["/steps/0/condition/args/value"],
        ),
        (
            lambda: Agent("a", "", "a/b", temperature=float("nan")),
            ["/config/temperature"],
        ),
        (lambda: Agent(5, 5, 5), ["/name", "/instructions", "/config/model"]),  # pyright: ignore[reportArgumentType]
        (lambda: Workflow("w", []), ["/steps"]),
        (lambda: Pipeline("p", []), ["/steps"]),
        (lambda: Conductor("c", "", "a/b", []), ["/skills"]),
    ]
    for make, pointers in makers:
        assert [problem.pointer for problem in problems_of(make)] == pointers


def test_an_older_version_is_migrated() -> None:
    """A blueprint of version 0 is read as one of version 1: conductors had no planning then (spec §9)."""
    old = {**CONDUCTOR, "version": "0", "config": {"model": "a/b"}}
    assert load(old).to_blueprint() == {
        **old,
        "version": "1",
        "config": {"planning": False, "model": "a/b"},
    }
    assert old["version"] == "0", "the caller's blueprint is not changed"
    assert load({**CONDUCTOR, "version": "0"}).to_blueprint() == {
        **CONDUCTOR,
        "version": "1",
    }
    assert load_example({**AGENT, "version": "0"}).to_blueprint() == {
        **AGENT,
        "version": "1",
    }


@pytest.mark.parametrize(
    "version", ["2", "", "-1", "1.0", "v1", "²", None, 1, True]
)
@pytest.mark.parametrize("validate", [True, False])
def test_an_unknown_version_is_refused(version: Any, validate: bool) -> None:
    """A version that this release does not read is one problem, with and without validation."""
    (problem,) = problems_of(
        lambda: load_example({**AGENT, "version": version}, validate=validate)
    )
    assert problem.pointer == "/version"
