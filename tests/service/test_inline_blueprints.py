"""Inline blueprints: whatever a hostile one names, and however large it is, it is refused before any model call."""

from __future__ import annotations

import copy
import functools
import json
import socket
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tests.library.note_step import note, note_steps
from tests.library.shelf_tool import SCHEMA, find_book
from tests.service.support import Serve, check_problem, pointers

from podwright import Agent, FunctionModel, ScriptedModel, Workflow
from podwright import tool as as_tool
from podwright.blueprints.members import members_of
from podwright.blueprints.validation import with_types
from podwright.components import FunctionStep
from podwright.steps.registry import step_keys, walk_steps
from podwright.testing import ModelRequest

MODEL = "offline/counted"
VALID = {"valid": True, "errors": [], "warnings": []}


LOOKED_UP: list[str] = []
"""What the tool was called with; nothing if every blueprint is refused."""


def look_up(word: str) -> str:
    """Look a word up."""
    LOOKED_UP.append(word)
    return word


@as_tool(on_error="fail", timeout=5, approval=True)
def strict(word: str) -> str:
    """Look a word up that must be there."""
    raise LookupError(word)


def count(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


@pytest.fixture(scope="module")
def canary() -> Iterator[socket.socket]:
    """A server at the address that hostile blueprints name; no one may connect to it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        yield listening


class Counted(FunctionModel):
    """A model that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0
        super().__init__(self.answer, name=MODEL)

    def answer(self, request: ModelRequest) -> str:
        self.calls += 1
        return "yes"


@pytest.fixture(scope="module")
def model() -> Counted:
    return Counted()


@pytest.fixture(scope="module")
def client(
    served: Callable[..., Any], model: Counted
) -> Iterator[httpx.Client]:
    helper = Agent("helper", "Help.", model, tools=[look_up, strict])
    with served(
        Workflow(
            "flow",
            [helper, FunctionStep(count, {"text": "{input}"})],
            conditions={"is_late": lambda context: False},
        )
    ) as client:
        yield client


def agent(**changes: Any) -> dict[str, Any]:
    return {
        "name": "a",
        "instructions": "Do.",
        "config": {"model": MODEL, "max_loops": 3},
        "tools": [],
        **changes,
    }


def config(**changes: Any) -> dict[str, Any]:
    return agent(config={"model": MODEL, **changes})


def tool(name: str, **parameters: Any) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {"word": {"type": "string"}},
        "required": ["word"],
    }
    schema |= {"additionalProperties": False, **parameters}
    return {
        "name": name,
        "schema": {
            "type": "function",
            "function": {"name": name, "parameters": schema},
        },
    }


def flow(*steps: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"type": "Workflow", "name": "w", "steps": list(steps), **changes}


def step(**changes: Any) -> dict[str, Any]:
    return {"type": "agent_step", "agent": "helper", "name": "s", **changes}


def call(function: str, **arguments: Any) -> dict[str, Any]:
    return {
        "type": "function_step",
        "name": "f",
        "function": function,
        "arguments": arguments,
    }


def attempt(*steps: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"type": "try_step", "name": "t", "steps": list(steps), **changes}


def condition(**ref: Any) -> dict[str, Any]:
    return {
        "type": "condition_step",
        "name": "c",
        "condition": ref,
        "then": [step()],
    }


def nested(depth: int) -> dict[str, Any]:
    inner = step()
    for _ in range(depth - 1):
        inner = {
            "type": "loop_step",
            "name": "l",
            "steps": [inner],
            "until": {"name": "is_late"},
            "max_iterations": 1,
        }
    return inner


def line(*members: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"type": "Pipeline", "name": "p", "steps": list(members), **changes}


def team(*skills: dict[str, Any], **changes: Any) -> dict[str, Any]:
    whole = {
        "type": "Conductor",
        "name": "c",
        "instructions": "Lead.",
        "skills": list(skills),
    }
    return {**whole, "config": {"model": MODEL, **changes}}


def deep(levels: int) -> dict[str, Any]:
    """Objects in each other."""
    value: dict[str, Any] = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


MEMBER = {"type": "Agent", **agent()}

HOSTILE: dict[str, tuple[dict[str, Any], list[str]]] = {
    # what names code, or reaches out
    "a module": (agent(module="os"), ["/module"]),
    "a class": (agent(**{"class": "subprocess.Popen"}), ["/class"]),
    "a type-reviving marker": (
        agent(**{"py/object": "os.system"}),
        ["/py~1object"],
    ),
    "a tool's code": (
        agent(tools=[{**tool("look_up"), "code": "import os"}]),
        ["/tools/0/code"],
    ),
    "a tool's import path": (agent(tools=[tool("os.system")]), ["/tools/0"]),
    "a tool that is not allowed": (
        agent(tools=[tool("look_up"), tool("shell")]),
        ["/tools/1"],
    ),
    "a result that is too long": (
        agent(tools=[{**tool("look_up"), "max_result_tokens": 20_001}]),
        ["/tools/0/max_result_tokens"],
    ),
    "a call that may not be repeated": (
        agent(tools=[{**tool("look_up"), "idempotent": True}]),
        ["/tools/0/idempotent"],
    ),
    "an error that is to be hidden": (
        agent(tools=[{**tool("strict"), "on_error": "report"}]),
        ["/tools/0/on_error"],
    ),
    "a call that nobody approves": (
        agent(tools=[{**tool("strict"), "approval": False}]),
        ["/tools/0/approval"],
    ),
    "a function that a person approves": (
        flow(call("strict", word="x")),
        ["/steps/0/function"],
    ),
    "a call that takes too long": (
        agent(tools=[{**tool("strict"), "timeout": 5.5}]),
        ["/tools/0/timeout"],
    ),
    "a remote schema": (
        agent(
            tools=[
                tool("look_up", properties={"word": {"$ref": "http://evil/x"}})
            ]
        ),
        ["/tools/0/schema/function"],
    ),
    "a long sample": (
        agent(
            tools=[
                tool(
                    "look_up",
                    properties={
                        "word": {"type": "string", "minLength": 3_000_000_000}
                    },
                )
            ]
        ),
        ["/tools/0/schema/function"],
    ),
    "nothing to choose from": (
        agent(
            tools=[
                tool(
                    "look_up",
                    properties={"word": {"type": "string", "enum": []}},
                )
            ]
        ),
        ["/tools/0/schema/function"],
    ),
    "a description that is none": (
        agent(tools=[tool("look_up", description=[[]])]),
        ["/tools/0/schema/function"],
    ),
    "a number of 5000 digits for a version": (
        agent(version="1" * 5000),
        ["/version"],
    ),
    "a list for a type": (
        team({"type": [], "name": "a", "x": 1}),
        ["/skills/0", "/skills/0/type", "/skills/0/x"],
    ),
    "base_url": (agent(base_url="http://evil"), ["/base_url"]),
    "base_url in config": (
        config(base_url="http://evil"),
        ["/config/base_url"],
    ),
    "api_base in config": (
        config(api_base="http://evil"),
        ["/config/api_base"],
    ),
    "api_key in config": (
        config(api_key="os.environ/KEY"),
        ["/config/api_key"],
    ),
    "headers in config": (
        config(extra_headers={"a": "b"}),
        ["/config/extra_headers"],
    ),
    "extra_body in config": (
        config(extra_body={"api_base": "x"}),
        ["/config/extra_body"],
    ),
    "base_url far inside": (
        config(x=[{"y": {"base_url": "http://evil"}}]),
        ["/config/x/0/y/base_url"],
    ),
    "base_url in a skill": (
        team({**MEMBER, "config": {"model": MODEL, "base_url": "http://evil"}}),
        ["/skills/0/config/base_url"],
    ),
    "base_url in a step": (
        flow(step(base_url="http://evil")),
        ["/steps/0/base_url"],
    ),
    "base_url in a nested workflow": (
        flow(
            {
                "type": "workflow_step",
                "name": "n",
                "workflow": {**flow(step()), "config": {"base_url": "x"}},
            }
        ),
        ["/steps/0/workflow/config"],
    ),
    "a limit switched off": (config(limits=None), ["/config/limits"]),
    # what is not on a list
    "a model": (config(model="openai/gpt-4o"), ["/config/model"]),
    "a model that looks alike": (config(model=MODEL + " "), ["/config/model"]),
    "a fallback model": (
        config(fallback=[MODEL, "openai/gpt-4o"]),
        ["/config/fallback/1"],
    ),
    "a fallback model of a skill": (
        team(
            {
                **MEMBER,
                "config": {"model": MODEL, "fallback": ["openai/gpt-4o"]},
            }
        ),
        ["/skills/0/config/fallback/0"],
    ),
    "a model of a skill": (
        team(
            MEMBER, {**MEMBER, "name": "b", "config": {"model": "offline/echo"}}
        ),
        ["/skills/1/config/model"],
    ),
    "a model of a pipeline": (
        line(MEMBER, config={"model": "offline/echo"}),
        ["/config/model"],
    ),
    "a model of its step": (
        line({**MEMBER, "config": {"model": "offline/echo"}}),
        ["/steps/0/config/model"],
    ),
    "an agent": (flow(step(agent="root")), ["/steps/0/agent"]),
    "a condition": (
        flow(condition(name="__import__")),
        ["/steps/0/condition/name"],
    ),
    "an expression": (
        flow(condition(name="eval", args={"expression": "1"})),
        ["/steps/0/condition/name"],
    ),
    "a condition within": (
        flow(condition(name="all", args={"conditions": [{"name": "eval"}]})),
        ["/steps/0/condition/args/conditions/0/name"],
    ),
    "a function": (flow(call("shell")), ["/steps/0/function"]),
    "a function that is caught": (
        flow(attempt(step(), catch=[call("os.system")])),
        ["/steps/0/catch/0/function"],
    ),
    "an argument that a function does not take": (
        flow(call("count", text="{input}", file="x")),
        ["/steps/0/arguments/file"],
    ),
    "a regular expression of an input": (
        agent(inputs={"word": {"type": "string", "pattern": "(a+)+$"}}),
        ["/inputs/word"],
    ),
    "a regular expression of an answer": (
        config(response_schema={"properties": {"x": {"pattern": "(a+)+$"}}}),
        ["/config/response_schema"],
    ),
    "a regular expression of a key": (
        flow(step(response_schema={"patternProperties": {"(a+)+$": {}}})),
        ["/steps/0/response_schema"],
    ),
    "a regular expression of what may be changed": (
        flow(
            {
                "type": "approval_step",
                "name": "ask",
                "message": "Go?",
                "edit": {"input": {"type": "string", "pattern": "(a+)+$"}},
            }
        ),
        ["/steps/0/edit/input"],
    ),
    "a schema from elsewhere": (
        agent(inputs={"word": {"$ref": "http://evil/x"}}),
        ["/inputs/word"],
    ),
    # what is too large
    "11 retries": (
        flow(attempt(step(), retries=11)),
        ["/steps/0/retries"],
    ),
    "65 steps that are caught": (
        flow(attempt(step(), catch=[step()] * 63)),
        ["/steps"],
    ),
    "5 levels of caught steps": (
        flow(attempt(step(), catch=[nested(4)])),
        ["/steps/0/catch/0/steps/0/steps/0/steps/0"],
    ),
    "65 placeholders with fields": (
        flow(call("count", text="{input.text} " * 65)),
        ["/steps/0/arguments/text"],
    ),
    "33 levels of an input": (
        flow(step(input=deep(30))),
        [f"/steps/0/input{'/a' * 29}"],
    ),
    "33 levels of a schema": (
        agent(inputs={"word": {"default": deep(30)}}),
        [f"/inputs/word/default{'/a' * 29}"],
    ),
    "max_loops": (config(max_loops=11), ["/config/max_loops"]),
    "max_corrections": (
        config(max_corrections=11),
        ["/config/max_corrections"],
    ),
    "max_loops of a skill": (
        team({**MEMBER, "config": {"model": MODEL, "max_loops": 99}}),
        ["/skills/0/config/max_loops"],
    ),
    "65 steps": (flow(*[step(name=f"s{n}") for n in range(65)]), ["/steps"]),
    "65 tools": (agent(tools=[tool(f"t{n}") for n in range(65)]), ["/tools"]),
    "65 skills": (
        team(*[{**MEMBER, "name": f"a{n}"} for n in range(65)]),
        ["/skills"],
    ),
    "65 steps, nested": (
        flow({**nested(2), "steps": [step()] * 64}),
        ["/steps"],
    ),
    "5 levels of steps": (
        flow(nested(5)),
        ["/steps/0/steps/0/steps/0/steps/0/steps/0"],
    ),
    "9 branches": (
        flow(
            {"type": "parallel_step", "name": "p", "branches": [[step()]] * 9}
        ),
        ["/steps/0/branches"],
    ),
    "11 iterations": (
        flow({**nested(2), "max_iterations": 11}),
        ["/steps/0/max_iterations"],
    ),
    "9 at once": (
        flow(
            {
                "type": "map_step",
                "name": "m",
                "over": "input",
                "as": "x",
                "steps": [step()],
                "max_concurrency": 9,
            }
        ),
        ["/steps/0/max_concurrency"],
    ),
    "65 placeholders": (flow(step(input="{input} " * 65)), ["/steps/0/input"]),
    "33 levels": (
        flow(condition(name="equal", args=deep(29))),
        [f"/steps/0/condition/args{'/a' * 28}"],
    ),
    "33 levels in config": (config(x=deep(31)), [f"/config/x{'/a' * 30}"]),
    "33 levels of notes": (agent(metadata=deep(32)), [f"/metadata{'/a' * 31}"]),
    # all at once
    "all at once": (
        {
            "name": "x/y",
            "instructions": 5,
            "config": {"model": "a/b", "max_loops": 0, "api_key": "k"},
            "tools": [tool("shell")],
        },
        [
            "/name",
            "/instructions",
            "/config/model",
            "/config/max_loops",
            "/config/api_key",
            "/tools/0",
        ],
    ),
}


@pytest.mark.parametrize(("blueprint", "places"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_blueprint_is_refused(
    client: httpx.Client,
    model: Counted,
    canary: socket.socket,
    blueprint: dict[str, Any],
    places: list[str],
) -> None:
    """It is a 422 that names each place, as the blueprint and as an agent of another.

    No model and no tool is called, and no connection is made to an address that it names.
    """
    blueprint = json.loads(
        json.dumps(blueprint).replace(
            "//evil", f"//127.0.0.1:{canary.getsockname()[1]}"
        )
    )
    kind = {
        "Workflow": "workflow",
        "Pipeline": "pipeline",
        "Conductor": "conductor",
    }.get(blueprint.get("type", ""))
    body = {"type": kind or "agent", "blueprint": blueprint, "input": "x"}
    problem = check_problem(
        client.post("/run-blueprint", json=body), 422, "blueprint_invalid"
    )
    assert {f"/blueprint{pointer}" for pointer in places} <= set(
        pointers(problem)
    ), problem
    report = client.post(
        "/validate-blueprint", json={"blueprint": blueprint}
    ).json()
    assert (report["valid"], report["errors"]) == (False, problem["errors"])

    outer = {
        "type": "workflow",
        "blueprint": flow(step(agent="in/ner")),
        "agents": {"in/ner": blueprint},
    }
    problem = check_problem(
        client.post("/run-blueprint", json={**outer, "input": "x"}),
        422,
        "blueprint_invalid",
    )
    assert {f"/agents/in~1ner{pointer}" for pointer in places} <= set(
        pointers(problem)
    ), problem
    assert model.calls == 0
    assert not LOOKED_UP
    with pytest.raises(BlockingIOError):
        canary.accept()


def without_types(blueprint: dict[str, Any]) -> dict[str, Any]:
    """The blueprint without the types that keys of steps and members say."""
    short = copy.deepcopy(blueprint)
    entries = [entry for _, entry in members_of(short)]
    if short.get("type") not in ("Conductor", "Pipeline"):
        entries = [entry for _, entry in walk_steps(short.get("steps"))]
    for entry in entries:
        known = entry.pop("type", None)
        if entry and with_types(short) != with_types(blueprint):
            # no key says this one
            entry["type"] = known
    return short


SHORT = {
    name: without_types(blueprint)
    for name, (blueprint, _) in HOSTILE.items()
    if len(json.dumps(blueprint)) < 10_000
}
SHORT = {
    name: blueprint
    for name, blueprint in SHORT.items()
    if blueprint != HOSTILE[name][0]
}


@pytest.mark.parametrize("name", SHORT)
def test_a_hostile_blueprint_without_types_is_refused(
    client: httpx.Client, name: str
) -> None:
    """What is refused does not depend on whether the types of steps and members are written, or left to their keys."""
    blueprint = HOSTILE[name][0]
    body = {"blueprint": blueprint, "agents": {"inner": blueprint}}
    whole = client.post("/validate-blueprint", json=body).json()
    body = {"blueprint": SHORT[name], "agents": {"inner": SHORT[name]}}
    short = client.post("/validate-blueprint", json=body).json()
    assert short == whole
    assert not short["valid"]


@pytest.mark.parametrize("kind", ["workflow", "conductor", "pipeline"])
def test_the_kind_must_be_that_of_the_blueprint(
    client: httpx.Client, model: Counted, kind: str
) -> None:
    """A blueprint of another kind than `type` says is refused."""
    body = {"type": kind, "blueprint": agent(type="Agent"), "input": "x"}
    response = client.post("/run-blueprint", json=body)
    assert response.status_code == 422
    assert response.json()["errors"][0]["pointer"] == "/blueprint/type"
    assert model.calls == 0


@pytest.mark.parametrize(
    "blueprint",
    [
        agent(),
        agent(tools=[tool("look_up")]),
        agent(tools=[tool("look_up", description="Else.")]),
        flow(step()),
        flow(condition(name="is_late")),
        flow(call("count", text="{input}")),
        flow(call("look_up", word="{input}"), step(input="{look_up_output}")),
        flow(attempt(step(), catch=[step(input="{error.code}")], retries=10)),
        flow(nested(4)),
        line(MEMBER, {"type": "Agent", "name": "helper"}),
        team(MEMBER),
        flow(
            {"agent": "helper"},
            {"function": "count", "arguments": {"text": "{helper_output}"}},
        ),
        line({"name": "helper"}),
    ],
    ids=[
        "agent",
        "tool",
        "tool's text",
        "served agent",
        "served condition",
        "served function",
        "tool as a function",
        "caught error",
        "4 levels",
        "pipeline",
        "conductor",
        "steps without types",
        "members without types",
    ],
)
def test_an_allowed_blueprint_is_valid(
    client: httpx.Client, blueprint: dict[str, Any]
) -> None:
    """What names only the served component's own models, tools, agents and conditions is valid."""
    assert (
        client.post("/validate-blueprint", json={"blueprint": blueprint}).json()
        == VALID
    )


def flows(*sizes: int) -> dict[str, Any]:
    """Workflows that each use the one before as often as its number says."""
    return {
        f"w{n}": flow(
            *[
                step(agent=f"w{n - 1}" if n else "helper", name=f"s{i}")
                for i in range(size)
            ]
        )
        for n, size in enumerate(sizes)
    }


def member(name: str) -> dict[str, Any]:
    return {"type": "Agent", "name": name}


@pytest.mark.parametrize(
    ("blueprint", "agents", "reasons"),
    [
        (line(member("a")), {"a": flow(step(agent="b")), "b": line(member("c")), "c": agent()}, []),
        (line(member("c")), {"a": flow(step(agent="b")), "b": team(member("a")), "c": agent()}, ["a → b → a"]),
        (flow(step(agent="w")), {}, ["w → w"]),
        (line(member("a")), {"a": line(member("p"))}, ["a → p → a"]),
        (line(member("helper")), {"helper": line(member("helper"))}, []),
        (line({"name": "a"}), {"a": flow({"agent": "b"}), "b": line({"name": "c"}), "c": agent()}, []),
        (line({"name": "c"}), {"a": flow({"agent": "b"}), "b": team({"name": "a"}), "c": agent()}, ["a → b → a"]),
        (flow(step(agent="w2")), flows(2, 3, 4), []),
        (line(member("a")), {**{x: line(member(y)) for x, y in ("ab", "bc", "cd", "de")}, "e": agent()}, ["5 levels"]),
    ],
    ids=["in any order", "circle", "itself", "itself through another", "the service's of its name",
         "in any order, without types", "circle without types", "4 levels",
         "5 levels"],
)  # fmt: skip
def test_blueprints_name_each_other_in_any_order_but_not_in_a_circle(
    client: httpx.Client,
    blueprint: dict[str, Any],
    agents: dict[str, Any],
    reasons: list[str],
) -> None:
    """Inline agents are built before those that name them; a circle, and too many levels, are the only problem."""
    errors = client.post(
        "/validate-blueprint", json={"blueprint": blueprint, "agents": agents}
    ).json()["errors"]
    assert [
        reason in error["detail"]
        for error, reason in zip(errors, reasons, strict=True)
    ] == [True] * len(reasons)


def test_options_of_tools_may_only_be_stricter(serve: Serve) -> None:
    """What an entry leaves open is as the operator's blueprint says, which takes precedence over the function."""

    def read(word: str) -> str:
        """Read."""
        return "z" * 100

    operated = Agent(
        "helper", "Help.", "offline/echo", tools=[read]
    ).to_blueprint()
    operated["tools"][0]["max_result_tokens"] = 3
    client = serve(Agent.from_blueprint(operated, [read]))
    for options, shown in (({}, 12), ({"max_result_tokens": 2}, 8)):
        inline = {
            **config(model="offline/echo"),
            "tools": [{**tool("read"), **options}],
        }
        body = {"type": "agent", "blueprint": inline, "input": "x"}
        answer = client.post("/run-blueprint", json=body).json()["output"]
        assert answer.count("z") == shown
    inline["tools"][0]["max_result_tokens"] = 4
    problem = check_problem(
        client.post("/run-blueprint", json=body), 422, "blueprint_invalid"
    )
    assert pointers(problem) == ["/blueprint/tools/0/max_result_tokens"]


@pytest.mark.parametrize("form", [{"file": "README.md"}, ["Do.", "This."]])
def test_texts_of_files_are_refused(client: httpx.Client, form: Any) -> None:
    """What only a file may have is a problem of a request, in an agent too, and no file is read."""
    agent = {"name": "a", "instructions": form, "config": {"model": MODEL}}
    step = {"type": "agent_step", "name": "s", "agent": "a"}
    for body, pointer in (
        ({"blueprint": agent}, "/blueprint/instructions"),
        (
            {
                "blueprint": {"name": "w", "steps": [step]},
                "agents": {"a": agent},
            },
            "/agents/a/instructions",
        ),
    ):
        response = client.post("/validate-blueprint", json=body)
        found = [error["pointer"] for error in response.json()["errors"]]
        assert found == [pointer]


def test_a_file_of_an_editor_may_be_sent(client: httpx.Client) -> None:
    """`$schema` is allowed at the top of an inline blueprint."""
    blueprint = {
        "$schema": "./.podwright/agent.schema.json",
        "name": "a",
        "instructions": "Do.",
        "config": {"model": MODEL},
    }
    body = {"blueprint": blueprint}
    assert client.post("/validate-blueprint", json=body).json() == VALID


def test_the_operator_sets_the_lists(serve: Serve) -> None:
    """The operator's lists take the place of the component's own."""
    served = Agent("helper", "Help.", Counted(), tools=[look_up])
    client = serve(
        served, allowed_models="offline/echo, offline/other", allowed_tools=""
    )
    assert client.get("/info").json()["accepts"]["models"] == [
        "offline/echo",
        "offline/other",
    ]
    body = {
        "type": "agent",
        "blueprint": config(model="offline/echo"),
        "input": "x",
    }
    assert client.post("/run-blueprint", json=body).json() == {
        "output": "Echo: x"
    }
    found = client.post(
        "/validate-blueprint",
        json={"blueprint": agent(tools=[tool("look_up")])},
    ).json()["errors"]
    assert {error["pointer"] for error in found} == {
        "/blueprint/config/model",
        "/blueprint/tools/0",
    }


def test_unknown_keys_of_config_are_warnings(serve: Serve) -> None:
    """Unknown keys of `config`, and notes, may be anything; the first 100 keys are warnings."""
    client = serve(Agent("helper", "Help.", "offline/echo"))
    notes = {
        "steps": [{}] * 99,
        "tools": [{"name": "shell"}],
        "config": {"model": "a/b"},
        "base_url": "http://evil",
    }
    free = agent(
        config={
            "model": "offline/echo",
            "top_k": 5,
            "x": {"model": "a/b", "tools": [{"name": "y"}]},
        },
        metadata=notes,
    )
    body = {
        "type": "workflow",
        "blueprint": flow(step(agent="free")),
        "agents": {"free": free},
    }
    assert client.post(
        "/run-blueprint", json={**body, "input": "x"}
    ).json() == {
        "input": "x",
        "free_output": "Echo: x",
    }
    report = client.post("/validate-blueprint", json=body).json()
    assert (report["valid"], report["errors"]) == (True, [])
    assert [entry["pointer"] for entry in report["warnings"]] == [
        "/agents/free/config/top_k",
        "/agents/free/config/x",
    ]
    agents = {
        f"a{n}": config(
            model="offline/echo", **{f"note{key}": 1 for key in range(80)}
        )
        for n in range(64)
    }
    report = client.post(
        "/validate-blueprint", json={"blueprint": free, "agents": agents}
    ).json()
    assert (report["valid"], len(report["warnings"])) == (True, 100)


TOPIC = {"topic": {"type": "string"}}
TICKET = {
    "type": "object",
    "properties": {"category": {"type": "string"}},
    "required": ["category"],
}
UNFILLED: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    # blueprint, agents, where names stand that nothing fills
    "misspelt": (
        flow(step(), step(input="{helper_ouptut} {{helper_ouptut}}")),
        {},
        ["/blueprint/steps/1/input"],
    ),
    "two in one text": (
        flow(step(input="{topic} {tipoc} {tone}"), inputs=TOPIC),
        {},
        ["/blueprint/steps/0/input", "/blueprint/steps/0/input"],
    ),
    "a field of a served agent's text": (
        flow(step(), step(input="{helper_output.x}")),
        {},
        ["/blueprint/steps/1/input"],
    ),
    "a misspelt field of an inline agent's answer": (
        flow(
            step(agent="w"),
            step(input="{w_output.category} {w_output.categry}"),
        ),
        {"w": config(response_schema=TICKET)},
        ["/blueprint/steps/1/input"],
    ),
    "an input that an inline agent does not take": (
        flow(step(agent="w", input={"topic": "{input}", "tone": "dry"})),
        {"w": agent(inputs=TOPIC)},
        ["/blueprint/steps/0/input/tone"],
    ),
    "in an inline agent": (
        flow(step(agent="w")),
        {"w": agent(instructions="Be {tone}.", inputs=TOPIC)},
        ["/agents/w/instructions"],
    ),
    "in a skill": (
        team({**MEMBER, "instructions": "Be {ipnut}."}),
        {},
        ["/blueprint/skills/0/instructions"],
    ),
    "a field of an invalid agent": (
        flow(step(agent="w"), step(input="{w_output.category}")),
        {"w": {**config(response_schema=TICKET), "x": 1}},
        ["/agents/w/x"],
    ),
}


@pytest.mark.parametrize(
    ("blueprint", "agents", "places"), UNFILLED.values(), ids=UNFILLED
)
def test_names_that_nothing_fills(
    client: httpx.Client,
    blueprint: dict[str, Any],
    agents: dict[str, Any],
    places: list[str],
) -> None:
    """They are found in steps and instructions, each once; what an invalid agent answers is not known."""
    body = {"blueprint": blueprint, "agents": agents}
    report = client.post("/validate-blueprint", json=body).json()
    assert (report["valid"], pointers(report)) == (False, places)


def test_a_name_that_hides_another_is_a_warning(client: httpx.Client) -> None:
    """A step that hides the number of the iteration can be run, in the blueprint and in an agent of it."""
    hides = flow({**nested(2), "steps": [step(output="iteration")]})
    body = {
        "blueprint": flow(nested(2), step(agent="w")),
        "agents": {"w": hides},
    }
    report = client.post("/validate-blueprint", json=body).json()
    assert (report["valid"], report["errors"]) == (True, [])
    assert [entry["pointer"] for entry in report["warnings"]] == [
        "/agents/w/steps/0/steps/0"
    ]


def test_a_function_that_is_not_allowed_has_a_suggestion(
    client: httpx.Client,
) -> None:
    """The names of tools and functions are one list, by which misspelt ones are corrected."""
    body = {"blueprint": flow(call("cuont", text="x"), call("lookup"))}
    report = client.post("/validate-blueprint", json=body).json()
    assert [
        (error["pointer"], hint in error["suggestion"])
        for error, hint in zip(
            report["errors"], ["'count'", "'look_up'"], strict=True
        )
    ] == [
        ("/blueprint/steps/0/function", True),
        ("/blueprint/steps/1/function", True),
    ]


def test_functions_of_inline_blueprints(serve: Serve) -> None:
    """They are those of the served steps, by the names there; a name of two functions is none, and a list restricts."""

    def look(word: str) -> dict[str, Any]:
        """Look."""
        return {"found": [word]}

    def other(word: str) -> str:
        """Look elsewhere."""
        return word

    reader = Agent("reader", "Read.", "offline/echo", tools=[other])
    served = Workflow(
        "flow",
        [
            reader,
            FunctionStep("find", {"word": "{input}"}),
            FunctionStep("other", {"word": "{input}"}),
        ],
        functions={"find": look, "other": look, "unused": other},
    )
    client = serve(served)
    info = client.get("/info").json()
    assert (info["tools"], info["accepts"]["tools"]) == (["find"], ["find"])
    steps = flow(
        call("find", word="{input}"),
        step(agent="reader", input="{find_output.found.0}!"),
    )
    body = {"type": "workflow", "blueprint": steps, "input": "x"}
    answer = client.post("/run-blueprint", json=body).json()
    assert answer["reader_output"].startswith("Echo: x!")
    reads = {**config(model="offline/echo"), "tools": [tool("find")]}
    inline = {"type": "agent", "blueprint": reads, "input": "x"}
    assert client.post("/run-blueprint", json=inline).status_code == 200
    restricted = serve(served, allowed_tools="")
    problem = check_problem(
        restricted.post("/run-blueprint", json=body), 422, "blueprint_invalid"
    )
    assert pointers(problem) == ["/blueprint/steps/0/function"]


def test_a_tool_that_is_not_a_function(serve: Serve) -> None:
    """An inline agent and an inline step may name it, with the parameters of its own schema."""
    helper = Agent("helper", "Help.", "offline/echo", tools=[find_book])
    client = serve(helper)
    assert client.get("/info").json()["accepts"]["tools"] == ["find_book"]
    entry = {"name": "find_book", "schema": SCHEMA}
    inline = {**config(model="offline/echo"), "tools": [entry]}
    body: dict[str, Any] = {"blueprint": inline}
    assert client.post("/validate-blueprint", json=body).json() == VALID
    steps = flow(call("find_book", isbn="{input}"))
    body = {"type": "workflow", "blueprint": steps, "input": "7"}
    answer = client.post("/run-blueprint", json=body).json()
    assert json.loads(answer["find_book_output"]) == {"title": "Book 7"}
    other = {**inline, "tools": [tool("find_book")]}
    body = {"type": "agent", "blueprint": other, "input": "x"}
    problem = check_problem(
        client.post("/run-blueprint", json=body), 422, "blueprint_invalid"
    )
    assert pointers(problem) == ["/blueprint/tools/0/schema/function"]


def test_the_operators_model_replaces_others(serve: Serve) -> None:
    """With `model` set, a posted blueprint runs on it, whatever allowed model it names."""
    client = serve(
        Agent("helper", "Help.", ScriptedModel("never")), model="offline/echo"
    )
    body = {
        "type": "agent",
        "blueprint": config(model="offline/scripted"),
        "input": "x",
    }
    assert client.post("/run-blueprint", json=body).json() == {
        "output": "Echo: x"
    }


def doubling(levels: int) -> dict[str, Any]:
    """A schema of a few lines that is 2 to the power of `levels` long when it is written out."""
    twice = [
        {"x": {"$ref": f"#/$defs/d{n}"}, "y": {"$ref": f"#/$defs/d{n}"}}
        for n in range(1, levels + 1)
    ]
    return {
        "properties": {"word": twice[0]},
        "$defs": {f"d{n}": one for n, one in enumerate(twice)},
    }


def chain(links: int) -> dict[str, Any]:
    """A schema in which each definition is the next one."""
    definitions: dict[str, Any] = {
        f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(links)
    }
    return {
        "properties": {"word": {"$ref": "#/$defs/d0"}},
        "$defs": definitions | {f"d{links}": {"type": "string"}},
    }


def fanned_out(levels: int) -> dict[str, Any]:
    """A schema whose check visits 2 to the power of `levels` parts."""
    definitions: dict[str, Any] = {
        f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2}
        for n in range(levels)
    }
    definitions[f"d{levels}"] = {"type": "integer"}
    return {"$ref": "#/$defs/d0", "$defs": definitions}


LARGE = {
    "unknown keys": {f"instruction{n}": "{x}" for n in range(10_500)},
    "tools": agent(tools=[{"name": f"look_up{n}"} for n in range(9_000)]),
    "steps": flow(*[{"agent": "x"}] * 15_000),
    "conditions": flow(
        condition(name="all", args={"conditions": [{"name": "equal"}] * 14_000})
    ),
    "a doubling schema": agent(tools=[tool("look_up", **doubling(40))]),
    "fanned out schemas": agent(
        inputs={f"i{n}": {**fanned_out(12), "default": 1} for n in range(64)}
    ),
    "long defaults": agent(
        inputs={
            "word": {
                "items": {"allOf": [{"type": "integer"}] * 1_000},
                "default": [1] * 2_900,
            }
        }
    ),
    "a chain of definitions": agent(tools=[tool("look_up", **chain(3_000))]),
}


@pytest.mark.parametrize("blueprint", LARGE.values(), ids=LARGE)
def test_many_mistakes_are_found_quickly(
    client: httpx.Client, blueprint: dict[str, Any]
) -> None:
    """What is made to take long to check is refused before the client gives up."""
    assert len(json.dumps(blueprint, separators=(",", ":"))) <= 256 * 1024
    assert (
        client.post(
            "/validate-blueprint", json={"blueprint": blueprint}
        ).json()["valid"]
        is False
    )


MANY_AGENTS: dict[str, tuple[dict[str, Any], str]] = {
    "many agents": ({f"a{n}": {} for n in range(20_000)}, "/agents"),
    "many workflows": ({f"a{n}": flow(step()) for n in range(64)}, "/agents"),
    "much text": (
        {f"a{n}": agent(instructions="x" * 50_000) for n in range(6)},
        "/blueprint",
    ),
    "deep": (flows(1, 1, 1, 1, 1), "/agents/w4"),
    "a long name": ({"n" * 101: agent()}, f"/agents/{'n' * 101}"),
}


@pytest.mark.parametrize(
    ("agents", "pointer"), MANY_AGENTS.values(), ids=MANY_AGENTS
)
def test_sizes_include_the_agents(
    client: httpx.Client, model: Counted, agents: dict[str, Any], pointer: str
) -> None:
    """The sizes include the agents of the request, and how deep they use each other."""
    body = {
        "type": "workflow",
        "blueprint": flow(step(agent=list(agents)[-1])),
        "agents": agents,
        "input": "x",
    }
    response = client.post("/run-blueprint", json=body)
    assert response.status_code == 422, response.text
    assert any(
        error["pointer"].startswith(pointer)
        for error in response.json()["errors"]
    ), response.text
    assert model.calls == 0


@pytest.mark.parametrize(
    ("name", "agents", "setting"),
    [
        ("11 iterations", {}, "MAX_LOOPS"),
        ("9 at once", {}, "MAX_BRANCHES"),
        ("9 branches", {}, "MAX_BRANCHES"),
        ("65 skills", {}, "MAX_STEPS"),
        ("65 steps, nested", {}, "MAX_STEPS"),
        ("5 levels of steps", {}, "MAX_NESTING"),
        ("33 levels", {}, "MAX_JSON_DEPTH"),
        ("65 tools", MANY_AGENTS["many agents"][0], "MAX_STEPS"),
        ("65 tools", MANY_AGENTS["many workflows"][0], "MAX_STEPS"),
        ("65 tools", MANY_AGENTS["much text"][0], "MAX_BLUEPRINT_BYTES"),
        ("65 tools", MANY_AGENTS["deep"][0], "MAX_NESTING"),
    ],
)
def test_a_limit_names_its_variable(
    client: httpx.Client, name: str, agents: dict[str, Any], setting: str
) -> None:
    """A blueprint that is too large is told which setting of the operator's bounds it."""
    blueprint = HOSTILE[name][0]
    if agents:
        blueprint = flow(step(agent=list(agents)[-1]))
    body = {"blueprint": blueprint, "agents": agents}
    report = client.post("/validate-blueprint", json=body).json()
    assert any(
        f"PODWRIGHT_{setting}" in error["suggestion"]
        for error in report["errors"]
    ), report


def approval(*steps: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "approval_step",
        "name": "ask",
        "message": "Go on?",
        "on_reject": list(steps),
    }


def branch(*steps: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "parallel_step",
        "name": "both",
        "branches": [[step(output="other")], list(steps)],
    }


def inner_workflow(*steps: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "workflow_step",
        "name": "nest",
        "workflow": flow(*steps),
    }


def loop(*steps: dict[str, Any]) -> dict[str, Any]:
    return {**nested(2), "steps": list(steps)}


def choice(key: str, *steps: dict[str, Any]) -> dict[str, Any]:
    return {**condition(name="is_late"), key: list(steps)}


HOLDERS: dict[str, Callable[..., dict[str, Any]]] = {
    "then": functools.partial(choice, "then"),
    "else": functools.partial(choice, "else"),
    "steps": loop,
    "catch": lambda *steps: attempt(step(), catch=list(steps)),
    "on_reject": approval,
    "branches": branch,
    "workflow": inner_workflow,
}
"""A step that has steps, by the key under which it has them."""


def test_all_keys_are_tried() -> None:
    """There is a step here for each key that holds steps."""
    assert HOLDERS.keys() == {*step_keys(), "workflow"}


@pytest.mark.parametrize("make", HOLDERS.values(), ids=HOLDERS)
def test_steps_are_limited_wherever_they_stand(
    serve: Serve, make: Callable[..., dict[str, Any]]
) -> None:
    """Neither their number nor how deep they are nested depends on the key."""
    check_limits(serve, make)


def test_steps_in_a_new_kind_of_step_are_limited(serve: Serve) -> None:
    """A key that holds steps in a kind that is added later counts like the others."""
    with note_steps():
        check_limits(serve, functools.partial(note, "x"))


def check_limits(serve: Serve, make: Callable[..., dict[str, Any]]) -> None:
    """Check that a step with other steps in it does not hide how many they are, and how deep."""
    helper = Agent("helper", "Help.", "offline/echo")
    flow_of_helper = Workflow(
        "flow", [helper], conditions={"is_late": lambda context: True}
    )
    client = serve(flow_of_helper, max_steps=20, max_nesting=4)
    nested_steps = step()
    for _ in range(4):
        nested_steps = make(nested_steps)
    for steps in (make(*[step()] * 20), nested_steps):
        body = {"type": "workflow", "blueprint": flow(steps)}
        problem = check_problem(
            client.post("/run-blueprint", json={**body, "input": "x"}),
            422,
            "blueprint_invalid",
        )
        report = client.post("/validate-blueprint", json=body).json()
        assert (report["valid"], report["errors"]) == (False, problem["errors"])
    body = {"type": "workflow", "blueprint": flow(make(step()))}
    report = client.post("/validate-blueprint", json=body)
    assert report.json()["valid"] is True, report.text


_PLACES = st.integers(0, 10_000)
_JUNK = st.sampled_from(
    [None, True, -1, 1.5, 10**30, "", "{x}", [], {}, [[]], [None], {"name": "x"}, {"type": []}, {"type": "Agent"},
     [{"name": 1}], {"name": "all", "args": {"conditions": 1}}, {"$ref": 5}, [{"type": "agent_step"}]]
)  # fmt: skip


def all_places(value: Any) -> list[tuple[Any, Any]]:
    """Every place in JSON data: what holds it, and its key or index there."""
    keys = (
        list(value)
        if isinstance(value, dict)
        else range(len(value))
        if isinstance(value, list)
        else []
    )
    return [
        place
        for key in keys
        for place in [(value, key), *all_places(value[key])]
    ]


@hypothesis_settings(max_examples=150, deadline=None, derandomize=True)
@given(
    st.integers(0, 4),
    st.lists(st.tuples(_PLACES, _JUNK), min_size=1, max_size=3),
)
def test_a_mangled_blueprint_is_no_server_error(
    client: httpx.Client, number: int, changes: list[tuple[int, Any]]
) -> None:
    """Whatever stands in the place of any part of a blueprint, the answer is a 200 with what was found."""
    deep = flow(
        nested(3),
        condition(name="not", args={"condition": {"name": "is_late"}}),
    )
    whole = [
        agent(tools=[tool("look_up")]),
        flow(step()),
        deep,
        line(MEMBER),
        team(MEMBER),
    ][number]
    mangled = json.loads(json.dumps(whole))
    for place, junk in changes:
        if found := all_places(mangled):
            holder, key = found[place % len(found)]
            holder[key] = json.loads(json.dumps(junk))
    response = client.post("/validate-blueprint", json={"blueprint": mangled})
    assert response.status_code == 200, response.text


def test_large_comparisons_do_not_outlast_the_time_limit(serve: Serve) -> None:
    """Conditions over large values give way to the time limit of the run and to other requests."""
    comparison = {
        "name": "contains",
        "args": {"value": "{big}", "text": "{big}b"},
    }
    condition = {"name": "any", "args": {"conditions": [comparison] * 1000}}
    pause = {"type": "approval_step", "name": "p", "message": "?"}
    step = {
        "type": "condition_step",
        "name": "c",
        "condition": condition,
        "then": [pause],
    }
    body = {
        "type": "workflow",
        "blueprint": {"name": "w", "steps": [step]},
        "inputs": {"big": "a" * 40_000},
    }
    client = serve(Agent("helper", "Help.", "offline/echo"), run_wall_time=0.02)
    check_problem(
        client.post("/run-blueprint", json=body), 504, "limit_exceeded"
    )


def test_a_run_fills_templates_within_a_limit(serve: Serve) -> None:
    """A long text that is compared for each item of a map ends the run, long before all its time is over."""
    comparison = {"name": "contains", "args": {"value": "{long}", "text": "b"}}
    check = {"type": "condition_step", "name": "c", "condition": comparison, "then": [
        {"type": "approval_step", "name": "p", "message": "?"}
    ]}  # fmt: skip
    step = {
        "type": "map_step",
        "name": "m",
        "over": "items",
        "as": "item",
        "steps": [check],
    }
    inputs = {"items": "\n".join(["x"] * 1000), "long": "a" * 900_000}
    body = {
        "type": "workflow",
        "blueprint": {"name": "w", "steps": [step]},
        "inputs": inputs,
    }
    problem = check_problem(
        serve(Agent("helper", "Help.", "offline/echo")).post(
            "/run-blueprint", json=body
        ),
        422,
        "limit_exceeded",
    )
    assert problem["limit"] == "text"


def test_parameters_of_providers_are_on_a_list(serve: Serve) -> None:
    """An inline blueprint may set those that the operator names, by default none; `/info` lists them."""
    agent = Agent("helper", "Help.", "offline/echo")
    blueprint = agent.to_blueprint()
    blueprint["config"]["parameters"] = {"top_k": 3, "service_tier": "flex"}
    body = {"type": "agent", "input": "?", "blueprint": blueprint}
    closed = serve(agent)
    assert closed.get("/info").json()["accepts"]["parameters"] == []
    problem = closed.post("/run-blueprint", json=body)
    at = "/blueprint/config/parameters"
    assert pointers(problem.json()) == [f"{at}/top_k", f"{at}/service_tier"]
    some = serve(agent, allowed_parameters=["top_k"])
    assert some.get("/info").json()["accepts"]["parameters"] == ["top_k"]
    problem = some.post("/run-blueprint", json=body)
    assert pointers(problem.json()) == [f"{at}/service_tier"]
    both = serve(agent, allowed_parameters=["top_k", "service_tier"])
    assert both.post("/run-blueprint", json=body).status_code == 200
