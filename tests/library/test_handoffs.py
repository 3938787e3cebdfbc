"""Agents that hand their conversation over to other agents."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.library.handing_over import PAID, desk, look, refund, route
from tests.library.shapes import AGENT, Json, events, problems_of

from podwright import (
    Agent,
    ApprovalRequired,
    Conductor,
    FunctionAgent,
    FunctionModel,
    LimitExceededError,
    Pipeline,
    ReplayModel,
    RunContext,
    RunLimits,
    ScriptedModel,
    Workflow,
    blueprints,
    load,
)
from podwright.blueprints.diff import blueprint_changes
from podwright.blueprints.flowchart import mermaid
from podwright.data.tool_names import TOOL_NAME, transfer_tool_names
from podwright.errors import (
    BlueprintValidationError,
    ConfigurationError,
    LoopLimitError,
    ModelRetry,
    Refusal,
    ToolError,
)
from podwright.events import Event, adapter
from podwright.folders.folder import Folder
from podwright.folders.walks import walk
from podwright.journal.journal import Journal
from podwright.messages.messages import Message
from podwright.run.result import ExecutionResult
from podwright.run.run import execute
from podwright.testing import ModelRequest, ToolCall, assert_events

RUN = "0" * 32


@pytest.fixture(autouse=True)
def _nothing_paid() -> None:
    PAID.clear()


async def attempt(
    component: Any,
    words: str,
    recorded: Sequence[Event] = (),
    number: int = 1,
    **options: Any,
) -> tuple[Any, list[Event]]:
    """The result of an attempt, and its events; what is recorded comes from JSON."""
    stored = [
        adapter().validate_python(json.loads(json.dumps(event.to_dict())))
        for event in recorded
    ]
    new: list[Event] = []
    result = await execute(
        component,
        component.task(words, **options),
        subscribers=(new.append,),
        run_id=RUN,
        journal=Journal(stored, attempt=number),
    )
    return result, new


# --- A handoff --------------------------------------------------------------------------------------------------------


def test_another_agent_goes_on_with_the_conversation() -> None:
    """With its own instructions and tools, all that was said, and in the same run: its answer is that of the run."""
    requests: list[ModelRequest] = []

    def note(request: ModelRequest) -> Any:
        requests.append(request)
        return route(request)

    earlier = [
        {"role": "user", "content": ""},
        {"role": "assistant", "content": "Hello."},
    ]
    agent = desk(FunctionModel(note))
    result = agent.run("billing", trace=True, messages=earlier)
    assert result.value == "billing answers"
    first, second = requests
    assert [each["function"]["name"] for each in first.tools] == [
        "look",
        "transfer_to_billing",
        "transfer_to_faq",
    ]
    assert first.tools[1]["function"].get("description") == (
        "Hand the conversation over to 'billing', who answers. Invoices and refunds. About money."
    )
    assert [each["function"]["name"] for each in second.tools] == [
        "refund",
        "transfer_to_triage",
        "transfer_to_faq",
    ]
    assert second.component == "billing"
    assert [(each.role, each.text) for each in second.messages] == [
        ("system", "You bill."),
        ("user", ""),
        ("assistant", "Hello."),
        ("user", "billing"),
        ("assistant", ""),
        ("tool", '{"transferred_to": "billing"}'),
    ]
    assert_events(
        result,
        "tool_call_finished component=triage tool=transfer_to_billing",
        "handoff component=triage from_agent=triage to_agent=billing",
        "step_started component=triage step=billing step_type=handoff_step",
        "run_started component=billing",
        "run_finished component=billing",
        "step_finished component=triage step=billing outcome=ok",
        "run_finished component=triage",
    )
    started = events(result, "run_started")
    assert started[1].parent_id == started[0].run_id
    assert [message["role"] for message in result.messages] == [
        *("user", "assistant", "user", "assistant", "tool", "assistant")
    ]


def test_the_active_agent_is_part_of_the_conversation() -> None:
    """The next turn goes to it without a model call of the first one, and it may hand back, and on."""
    agent = desk()
    first = agent.run("billing faq", trace=True)
    second = agent.run("", trace=True, messages=first.messages)
    assert (first.value, second.value) == ("faq answers", "faq answers")
    assert not events(second, "handoff")
    assert [each.component for each in events(second, "model_call_started")] == ["faq"]  # fmt: skip
    back = agent.run("triage", trace=True, messages=second.messages)
    assert back.value == "triage answers"
    assert agent.run("", messages=back.messages) == "triage answers"
    on = agent.run("billing", messages=back.messages)
    assert on == "billing answers"


def test_the_first_agent_answers_if_the_active_one_is_gone() -> None:
    """Also if an agent before it is still there."""
    talk = desk().run("billing faq", trace=True).messages
    model = FunctionModel(route)
    billing = Agent("billing", "You bill.", model)
    smaller = Agent("triage", "You sort.", model, handoffs=[billing])
    assert smaller.run("", messages=talk) == "triage answers"
    assert Agent("other", "", model).run("", messages=talk) == "other answers"


@pytest.mark.parametrize(
    ("name", "content", "active"),
    [
        ("transfer_to_faq", '{"transferred_to": "faq"}', "faq"),
        ("transfer_to_faq", '{"transferred_to": ["faq"]}', "triage"),
        ("transfer_to_faq", '{"transferred_to": "triage"}', "triage"),
        ("transfer_to_faq", '{"transferred_to": "nobody"}', "triage"),
        ("transfer_to_faq", "Error: it failed", "triage"),
        ("transfer_to_faq", "[" * 100_000, "triage"),
        ("look", '{"transferred_to": "faq"}', "triage"),
    ],
)
def test_what_a_conversation_says(name: str, content: str, active: str) -> None:
    """Only the result of a transfer counts, and only for an agent that the run may get to."""
    call = {
        "id": "a",
        "type": "function",
        "function": {"name": name, "arguments": "{}"},
    }
    talk = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": content},
        {"role": "assistant", "content": '{"transferred_to": "billing"}'},
    ]
    assert desk().run("", messages=talk) == f"{active} answers"


def test_the_first_transfer_of_a_response_counts() -> None:
    """The others have a result that says so; other tools of the response are called."""
    calls = [
        ToolCall.of("look", "1", word="fig"),
        ToolCall.of("transfer_to_faq", "2", reason="not a parameter"),
        ToolCall.of("transfer_to_billing", "3"),
    ]
    agent = desk(ScriptedModel(calls, "done"))
    result = agent.run("hi", trace=True)
    assert [event.to_agent for event in events(result, "handoff")] == ["faq"]
    contents = [
        each["content"] for each in result.messages if each["role"] == "tool"
    ]
    assert contents == [
        "fig: found",
        '{"transferred_to": "faq"}',
        "Not transferred: another transfer of this response counts, 'transfer_to_faq'.",
    ]
    next_turn = desk().run("", messages=result.messages)
    assert next_turn == "faq answers"


def test_a_transfer_that_cannot_be_read_is_corrected() -> None:
    wrong = ToolCall("1", "transfer_to_faq", "{")
    model = ScriptedModel([wrong], [ToolCall.of("transfer_to_faq", "2")], "ok")
    result = desk(model).run("hi", trace=True)
    assert [event.to_agent for event in events(result, "handoff")] == ["faq"]
    assert len(model.requests) == 3


def test_corrections_and_asides_stay_with_the_agent_that_was_told() -> None:
    """An answer that did not fit is nothing that the other one goes on from."""
    schema = {"type": "object", "properties": {}, "required": ["a"]}
    model = ScriptedModel(
        "no JSON", [ToolCall.of("transfer_to_faq")], '{"a": 1}'
    )
    result = desk(model, response_model=schema).run("hi", trace=True)
    assert [message.role for message in model.requests[-1].messages] == [
        *("system", "user", "assistant", "tool")
    ]
    assert result.data == {"a": 1}


# --- Limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("most", "options"), [(10, {}), (2, {"max_handoffs": 2})])  # fmt: skip
def test_the_number_of_handoffs_is_limited(most: int, options: Json) -> None:
    """By the agent that the run begins with, over all that follow."""
    words = ["billing", "triage"] * 10
    agent = desk(**options)
    allowed = " ".join(words[:most])
    assert agent.run(allowed) == "triage answers"
    with pytest.raises(LoopLimitError) as caught:
        agent.run(" ".join(words[: most + 1]))
    assert caught.value.message == (
        f"'triage' still handed over to 'billing' after {most} handoffs."
    )
    # each turn has its own
    talk = agent.run(allowed, trace=True).messages
    assert agent.run(allowed, messages=talk) == "triage answers"


def test_as_many_handoffs_as_a_blueprint_may_allow() -> None:
    agent = desk(max_handoffs=32)
    words = " ".join(["billing", "triage"] * 16)
    result = agent.run(words, trace=True)
    assert result.value == "triage answers"
    assert result.usage.model_calls == 33
    (problem,) = problems_of(lambda: desk(max_handoffs=33))
    assert problem.pointer == "/config/max_handoffs"


def test_limits_of_the_run_hold_over_all_agents() -> None:
    """And what they use is counted once."""
    with pytest.raises(LimitExceededError):
        desk(limits=RunLimits(model_calls=2)).run("billing faq")
    result = desk(limits=RunLimits(model_calls=3)).run("billing faq", trace=True)  # fmt: skip
    assert (result.usage.model_calls, result.usage.tool_calls) == (3, 2)
    ends = events(result, "run_finished")
    assert [each.usage.model_calls for each in ends] == [1, 2, 3]


# --- What goes on with it ---------------------------------------------------------------------------------------------


def test_an_answer_fits_the_schema_of_the_agent_that_is_asked() -> None:
    """Whoever gives it; an agent of its own schema answers in that if nobody asks for another."""
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}  # fmt: skip
    model = ScriptedModel([ToolCall.of("transfer_to_b")], '{"a": 1}', '{"a": 2}')  # fmt: skip
    texts = Agent("b", "", model)
    typed = Agent("first", "", model, handoffs=[texts], response_model=schema)
    first = typed.run("hi", trace=True)
    assert (first.value, first.data) == ({"a": 1}, {"a": 1})
    assert typed.run("hi", messages=first.messages) == {"a": 2}
    assert typed.streams_answer

    model = ScriptedModel([ToolCall.of("transfer_to_b")], '{"a": 1}')
    data = Agent("b", "", model, response_model=schema)
    untyped = Agent("first", "", model, handoffs=[data])
    assert untyped.run("hi", trace=True).data == {"a": 1}
    assert not untyped.streams_answer


def test_what_the_caller_asks_for_goes_on() -> None:
    """Inputs that the instructions of the other agent use, and files; settings have their own test of the service."""
    model = ScriptedModel([ToolCall.of("transfer_to_b")], "done", "done")
    inputs = {"tone": {"default": "kind"}, "language": {"type": "string"}}
    other = Agent("b", "Be {tone} in {language}.", model, inputs=inputs)
    first = Agent("first", "Speak {language}.", model, handoffs=[other])
    result = first.run({"input": "hi", "language": "Dutch"}, trace=True)
    assert model.requests[1].messages[0].text == "Be kind in Dutch."
    assert model.requests[1].messages[1].text == "hi"
    first.run({"input": "hi", "language": "Dutch", "tone": "brief"}, messages=result.messages)  # fmt: skip
    assert model.requests[2].messages[0].text == "Be brief in Dutch."


def test_the_thoughts_of_another_provider_are_marked() -> None:
    """What an answer carries for its provider is not sent to that of the next agent."""

    def think(request: ModelRequest) -> Any:
        del request
        return [ToolCall.of("transfer_to_b", "1")]

    model = ScriptedModel("done")
    other = Agent("b", "", model)
    earlier = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "Hello.", "thoughts": "secret"},
    ]
    first = Agent(
        "first",
        "",
        FunctionModel(think, name="offline/thinker"),
        handoffs=[other],
    )
    first.run("hi", messages=earlier)
    answers = [
        message
        for message in model.requests[0].messages
        if message.role == "assistant"
    ]
    assert [message.provider for message in answers] == ["offline", "offline"]


def test_a_conductor_or_a_function_goes_on() -> None:
    """A conductor with the whole turn; what has no chat of its own with its input. The conversation is the same."""
    skill = Agent("skill", "", ScriptedModel("done"))
    chief = Conductor("chief", "", ScriptedModel("chief", "again"), [skill])
    calls: list[str] = []

    async def count(task: str) -> dict[str, int]:
        calls.append(task)
        return {"calls": len(calls)}

    model = ScriptedModel("one", "two", "one", "two")
    member = Agent("member", "", model)
    for target, answers in (
        (chief, ["chief", "again"]),
        (Pipeline("chief", [member]), ["one", "two"]),
        (Workflow("chief", [member]), ["one", "two"]),
        (FunctionAgent("chief", count), [{"calls": 1}, {"calls": 2}]),
    ):
        transfer = ScriptedModel([ToolCall.of("transfer_to_chief", "1")])
        first = Agent("first", "", transfer, handoffs=[target])
        result = first.run("hi", trace=True)
        again = first.run("ho", trace=True, messages=result.messages)
        assert [result.value, again.value] == answers
        assert [each["role"] for each in again.messages] == [
            *("user", "assistant", "tool", "assistant", "user", "assistant")
        ]
    assert calls == ["hi", "ho"]
    asked = model.requests[0].messages
    assert [(each.role, each.text) for each in asked] == [
        ("user", "hi"),
        ("assistant", ""),
        ("tool", '{"transferred_to": "chief"}'),
        ("user", "hi"),
    ]


# --- Members, names, files --------------------------------------------------------------------------------------------


def test_a_member_of_other_components_hands_off() -> None:
    """In a workflow, a pipeline and a conductor, with its agents as those of the component."""
    chief = Conductor(
        "chief",
        "",
        ScriptedModel([ToolCall.of("triage", task="billing")], "done"),
        [desk()],
    )
    assert Workflow("flow", [desk()]).run("billing")["triage_output"] == "billing answers"  # fmt: skip
    last = Agent("last", "", ScriptedModel("last"))
    pipeline = Pipeline("line", [desk(), last])
    said = pipeline.run("billing", trace=True)
    assert [each.value for each in events(said, "run_finished")][:2] == ["billing answers"] * 2  # fmt: skip
    result = chief.run("hi", trace=True)
    assert [each.to_agent for each in events(result, "handoff")] == ["billing"]
    names = [part.name for part in walk(chief)]
    assert names == ["chief", "triage", "billing", "faq", "faq"]
    agents = desk().members()
    model = FunctionModel(route)
    for team in (chief, pipeline):
        blueprint = team.to_blueprint()
        again: Any = load(blueprint, tools=[refund, look], agents=agents, model=model)  # fmt: skip
        assert again.to_blueprint() == blueprint
    with pytest.raises(BlueprintValidationError) as caught:
        load(chief.to_blueprint(), tools=[refund, look], model=model)
    assert [(each.pointer, each.detail) for each in caught.value.problems] == [
        ("/skills/0/handoffs/0", "Missing agent 'billing'."),
        ("/skills/0/handoffs/1", "Missing agent 'faq'."),
    ]


def test_a_blueprint_names_the_agents() -> None:
    """It is the same after a component of it, and draws and compares them."""
    agent = desk(max_handoffs=3)
    blueprint = agent.to_blueprint()
    assert blueprint["handoffs"] == [
        {"agent": "billing", "when": "About money."},
        "faq",
    ]
    model = FunctionModel(route)
    again = Agent.from_blueprint(blueprint, [look], agents=agent.members(), model=model)  # fmt: skip
    assert again.to_blueprint() == blueprint
    assert again.members() == agent.members()
    assert again.run("billing faq triage") == "triage answers"
    assert mermaid(blueprint).endswith(
        '    n1 ==>|"About money."| n3\n    n1 ==> n4\n'
    )
    other = desk(max_handoffs=3)
    changed = other.to_blueprint()
    changed["handoffs"] = ["billing", {"agent": "refunds", "when": "?"}]
    assert [str(each) for each in blueprint_changes(blueprint, changed)] == [
        "compatible: /handoffs/billing/when removed",
        "compatible: /handoffs/faq removed",
        "breaking: /handoffs/refunds added",
    ]
    absent = {**blueprint, "handoffs": []}
    del changed["handoffs"]
    assert not blueprint_changes(absent, changed)


@pytest.mark.parametrize(
    ("changes", "problems"),
    [
        ({"handoffs": "billing"}, [("/handoffs", "Expected an array, got the string 'billing'.")]),
        (
            {"handoffs": ["guide"]},
            [("/handoffs/0", "The agent 'guide' cannot hand off to itself.")],
        ),
        (
            {"handoffs": ["a", {"agent": "a"}]},
            [("/handoffs", "Duplicate agent 'a'.")],
        ),
        (
            {"handoffs": [{"agent": "a", "why": "x"}]},
            [("/handoffs/0/why", "Unknown key 'why'.")],
        ),
        (
            {"handoffs": ["a"], "config": {"stop_at": "transfer_to_a"}},
            [("/config/stop_at", "The component has no tool 'transfer_to_a'.")],
        ),
        ({"handoffs": ["a"], "config": {"tool_choice": "transfer_to_a"}}, []),
        (
            {
                "handoffs": ["a"],
                "tools": [],
                "config": {"tool_choice": "required"},
            },
            [],
        ),
        (
            {"handoffs": ["a"], "config": {"tool_choice": "transfer_to_b"}},
            [
                (
                    "/config/tool_choice",
                    "The component has no tool 'transfer_to_b'.",
                )
            ],
        ),
    ],
)  # fmt: skip
def test_problems_of_a_blueprint(
    changes: Json, problems: list[tuple[str, str]]
) -> None:
    config = {**AGENT["config"], **changes.pop("config", {})}
    blueprint = {**AGENT, **changes, "config": config}
    found = blueprints.problems(blueprint)
    assert [(each.pointer, each.detail) for each in found] == problems


def test_a_choice_of_a_transfer_holds_for_the_first_call() -> None:
    model = ScriptedModel([ToolCall.of("transfer_to_b")], "done")
    other = Agent("b", "", model)
    first = Agent("first", "", model, handoffs=[other], tool_choice="transfer_to_b")  # fmt: skip
    assert first.run("hi") == "done"
    assert [each.tool_choice for each in model.requests] == ["transfer_to_b", None]  # fmt: skip


def test_names_of_transfers() -> None:
    """Each is one that providers take, and that no other tool of the agent has."""
    agents = ["Größe", "billing", "Billing", "客服", "x" * 100, "x" * 99]
    names = transfer_tool_names(agents, ["transfer_to_billing"])
    assert names[:4] == [
        "transfer_to_Grosse",
        "transfer_to_billing_2",
        "transfer_to_Billing",
        "transfer_to_agent_4",
    ]
    assert len(set(names)) == len(agents)
    assert all(map(TOOL_NAME.fullmatch, names))

    def transfer_to_b() -> str:
        """Mine."""
        return "mine"

    calls = [ToolCall.of("transfer_to_b", "1")], [ToolCall.of("transfer_to_b_2", "2")]  # fmt: skip
    model = ScriptedModel(*calls, "done")
    other = Agent("b", "", model)
    first = Agent("first", "", model, tools=[transfer_to_b], handoffs=[other])
    result = first.run("hi", trace=True)
    assert len(events(result, "handoff")) == 1
    assert first.tool_names == ["transfer_to_b", "transfer_to_b_2"]


def test_a_name_means_one_agent() -> None:
    """What is given is of one name; a name alone stands for one that the run reaches."""
    model = FunctionModel(route)
    one = Agent("faq", "One.", model)
    inner = Agent("billing", "", model, handoffs=[Agent("faq", "Two.", model)])
    with pytest.raises(ConfigurationError, match="Two agents are called 'faq'"):
        Agent("triage", "", model, handoffs=[one, inner])
    same = Agent("faq", "One.", model)
    twice = Agent("billing", "", model, handoffs=[same])
    assert Agent("triage", "", model, handoffs=[one, twice]).run("billing faq") == "faq answers"  # fmt: skip
    wrong: Any = 7
    with pytest.raises(ConfigurationError, match="Expected an agent, its name"):
        Agent("triage", "", model, handoffs=[wrong])
    alone = Agent("billing", "", model, handoffs=["triage"])
    with pytest.raises(ConfigurationError) as caught:
        alone.run("")
    assert caught.value.message == (
        "'billing' hands off to 'triage', which the run of 'billing' does not have."
    )


def files(folder: Path, contents: dict[str, Json]) -> Path:
    for name, blueprint in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(blueprint))
    return folder


def filed(name: str, *handoffs: Any, **more: Any) -> Json:
    config = {"model": "offline/echo"}
    return {
        "type": "Agent",
        "name": name,
        "instructions": f"You are {name}.",
        "config": config,
        "handoffs": list(handoffs),
        **more,
    }


CIRCLE = {
    "blueprint.json": filed("triage", "billing", {"agent": "faq", "when": "?"}),
    "agents/billing.json": filed("billing", "triage", "faq"),
    "agents/faq/blueprint.json": filed("faq", "billing", "refunds", "triage"),
    "agents/faq/agents/refunds.json": filed("refunds", "triage"),
}


@pytest.mark.parametrize("folder_name", ["triage", "image"])
def test_files_hand_off_in_circles(tmp_path: Path, folder_name: str) -> None:
    """Each is loaded once, from where the agent that names it would find it."""
    folder = files(tmp_path / folder_name, CIRCLE)
    agent: Any = load(folder, model=FunctionModel(route))
    assert list(agent.members()) == ["billing", "faq", "refunds"]
    assert [part.name for part in walk(agent)] == [
        *("triage", "billing", "faq", "refunds")
    ]
    words = "billing faq refunds triage faq billing"
    assert agent.run(words) == "billing answers"
    assert agent.to_blueprint() == CIRCLE["blueprint.json"]


@pytest.mark.parametrize("outer", ["Workflow", "Conductor"])
def test_files_of_other_components_hand_off_in_circles(
    tmp_path: Path, outer: str
) -> None:
    """Back to a member that the blueprint names, or defines itself."""
    member = {"type": "Agent", "name": "triage"}
    contents: dict[str, Json] = {
        "agents/billing.json": filed("billing", "triage", "faq"),
        "agents/faq.json": filed("faq", "triage", "billing"),
    }
    if outer == "Workflow":
        contents["agents/triage.json"] = filed("triage", "billing")
        contents["blueprint.json"] = {
            "type": "Workflow",
            "name": "flow",
            "steps": [{"type": "agent_step", "agent": "triage", "name": "s"}],
        }
    else:
        skill = {**member, **filed("triage", "billing")}
        contents["blueprint.json"] = {
            "type": "Conductor",
            "name": "flow",
            "instructions": "",
            "config": {"model": "offline/echo"},
            "skills": [skill],
        }
    folder = files(tmp_path / "flow", contents)
    component: Any = load(folder, model=FunctionModel(route))
    triage = component.members()["triage"]
    assert list(triage.members()) == ["billing", "faq"]
    assert triage.run("billing faq triage") == "triage answers"


def test_an_agent_that_a_file_names_is_missing(tmp_path: Path) -> None:
    """Whose file, and where it was looked for."""
    contents = {
        **CIRCLE,
        "agents/billing.json": filed("billing", "refunds", "triage"),
        "blueprint.json": filed("triage", "billing", "fax"),
    }
    del contents["agents/faq/blueprint.json"]
    del contents["agents/faq/agents/refunds.json"]
    with pytest.raises(BlueprintValidationError) as caught:
        load(files(tmp_path / "triage", contents))
    found = [(each.pointer, each.detail) for each in caught.value.problems]
    assert found == [
        ("/handoffs/1", "Missing agent 'fax'."),
        ("/handoffs", "Agent 'billing': Missing agent 'refunds'."),
    ]
    assert "agents/refunds.json" in caught.value.problems[1].suggestion


def test_models_of_single_agents(tmp_path: Path) -> None:
    """Those that are reached by handoffs are agents as others."""
    folder = files(tmp_path / "triage", CIRCLE)
    model = {"billing": FunctionModel(lambda _: "mine"), "*": FunctionModel(route)}  # fmt: skip
    agent: Any = load(folder, model=model)
    assert agent.run("billing") == "mine"
    assert agent.models() == ["offline/echo"]


# --- New attempts -----------------------------------------------------------------------------------------------------


async def test_a_new_attempt_goes_on_wherever_it_was_stopped() -> None:
    """At any event: the same answer and conversation, the same events together, and no call is made twice."""
    calls: list[str] = []

    def counted(request: ModelRequest) -> Any:
        calls.append(request.component)
        return route(request)

    words = "billing faq triage billing"
    first, recorded = await attempt(desk(FunctionModel(counted)), words)
    speakers = list(calls)
    assert speakers == ["triage", "billing", "faq", "triage", "billing"]
    assert first.value == "billing answers"
    for number in range(1, len(recorded)):
        calls.clear()
        part = recorded[:number]
        again, new = await attempt(desk(FunctionModel(counted)), words, part, 2)
        assert again.value == first.value
        assert again.messages == first.messages
        assert again.usage == first.usage
        answered = sum(
            event.type == "model_call_finished" for event in recorded[:number]
        )
        assert calls == speakers[answered:]
        moves = [
            event.to_agent for event in (*part, *new) if event.type == "handoff"
        ]
        assert moves == words.split()


async def test_attempts_of_a_turn_that_begins_with_another_agent() -> None:
    talk = desk().run("billing", trace=True).messages
    first, recorded = await attempt(desk(), "faq", messages=talk)
    assert first.value == "faq answers"
    for number in range(1, len(recorded)):
        part = recorded[:number]
        again, _ = await attempt(desk(), "faq", part, 2, messages=talk)
        assert (again.value, again.messages) == (first.value, first.messages)


def test_a_recorded_conversation_is_repeated() -> None:
    """Each agent repeats its own answers."""
    result = desk().run("billing faq triage", trace=True)
    again = desk(ReplayModel(result)).run("billing faq triage", trace=True)
    assert again.messages == result.messages
    assert again.value == "triage answers"


def test_all_that_a_run_knows_is_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """State, date, guard, progress and handoff: on a later day a recorded run is the same, also as data."""

    def guard(input: str, context: RunContext) -> dict[str, str]:
        context.state["guarded"] = input
        context.report("guarded", {"words": len(input.split())})
        return {"hint": f"of {context.state['guarded']}"}

    def sign(output: str, context: RunContext) -> dict[str, str]:
        return {"output": f"{output}: {context.state['guarded']}"}

    def reception(model: Any) -> Agent:
        return Agent(
            "reception",
            "It is {run.date}. {hint}",
            model,
            handoffs=[Agent("faq", "Since {run.date}.", model)],
            before=guard,
            after=sign,
        )

    seen: list[str] = []

    def answer(request: ModelRequest) -> Any:
        seen.append(request.messages[0].text)
        return route(request)

    result = reception(FunctionModel(answer)).run("faq", trace=True)
    assert result.value == "faq answers: faq"
    (day,) = {text.removesuffix(".").split()[-1] for text in seen[1:]}
    assert seen[0] == f"It is {day}. of faq"
    monkeypatch.setattr(
        "podwright.functions.run_start.time", lambda: time.time() + 1e7
    )
    stored = json.loads(json.dumps(result.to_dict()))
    for recorded in (result, ExecutionResult.from_dict(stored)):
        again = reception(ReplayModel(recorded)).run("faq", trace=True)
        assert again.value == result.value
        assert again.messages == result.messages
        kinds = [event.type for event in result.events]
        assert [event.type for event in again.events] == kinds
        (told,) = events(again, "progress")
        assert (told.text, told.data) == ("guarded", {"words": 1})


def decided(agent: Any, words: str, **options: Any) -> Any:
    with pytest.raises(ApprovalRequired) as pause:
        agent.run(words, **options)
    assert pause.value.component == "billing"
    context = json.loads(json.dumps(pause.value.context))
    assert not PAID
    return agent.run(context, trace=True)


def test_a_call_of_another_agent_waits_for_a_person() -> None:
    """It goes on in that agent, once; also if the turn begins with it, or it hands off afterwards."""
    agent = desk()
    result = decided(agent, "billing refund")
    assert (result.value, PAID) == ("billing answers", [5])
    PAID.clear()
    talk = agent.run("billing", trace=True).messages
    result = decided(agent, "refund faq", messages=talk)
    assert (result.value, PAID) == ("faq answers", [5])
    assert agent.run("", messages=result.messages) == "faq answers"


def test_a_run_in_a_tool_is_no_handoff() -> None:
    """An agent that a tool runs begins a conversation of its own."""
    inner = desk()

    async def ask(words: str) -> str:
        """Ask."""
        return await inner.arun(words)

    model = ScriptedModel([ToolCall.of("ask", words="billing")], "done")
    outer = Agent("billing", "", model, tools=[ask])
    result = outer.run("hi", trace=True)
    assert result.value == "done"
    assert [each.to_agent for each in events(result, "handoff")] == ["billing"]


def test_messages_of_a_transfer() -> None:
    """They have the form of other calls, so any client may keep them."""
    result = desk().run("faq", trace=True)
    call, answer = result.messages[1:3]
    assert call["tool_calls"][0]["function"]["name"] == "transfer_to_faq"
    assert answer == {
        "role": "tool",
        "tool_call_id": call["tool_calls"][0]["id"],
        "content": '{"transferred_to": "faq"}',
    }
    assert Message("tool", answer["content"]).text == answer["content"]


def test_what_a_folder_with_circles_needs_from_outside(tmp_path: Path) -> None:
    """The first agent is in it, whatever the folder is called; one beside it that only a file names is not."""
    contents = {
        **CIRCLE,
        "agents/billing.json": filed("billing", "triage", "far"),
    }
    folder = Folder(files(tmp_path / "image", contents))
    outside = list(folder.outside_agents(folder.blueprint()))
    assert [source.name for source in outside] == ["far"]


# --- Functions before and after the work ------------------------------------------------------------------------------


def guarded(calls: list[str]) -> Agent:
    """The desk, whose first agent has functions around its work, which note their calls."""

    def guard(input: str) -> dict[str, str]:
        calls.append(f"before {input}")
        if "poem" in input:
            raise Refusal("off_topic", "No poems.")
        return {"input": input.replace("please ", "")}

    def sign(output: str) -> dict[str, str]:
        calls.append(f"after {output}")
        return {"output": f"{output}, signed"}

    return desk(before=guard, after=sign)


def test_functions_of_the_agent_that_is_asked_see_each_turn() -> None:
    """Whoever answers, and also if the conversation says that another agent is active: nobody gets round a guard."""
    calls: list[str] = []
    agent = guarded(calls)
    first = agent.run("please billing", trace=True)
    assert first.value == "billing answers, signed"
    assert first.messages[0]["content"] == "billing"
    assert first.messages[-1]["content"] == "billing answers, signed"
    assert calls == ["before please billing", "after billing answers"]
    calls.clear()
    second = agent.run("faq", trace=True, messages=first.messages)
    assert second.value == "faq answers, signed"
    assert calls == ["before faq", "after faq answers"]
    with pytest.raises(Refusal) as caught:
        agent.run("a poem", messages=first.messages)
    assert caught.value.code == "off_topic"


def test_the_agent_that_answers_is_asked_again() -> None:
    """For an answer that the functions of both agents accept; its own are called first."""
    calls: list[str] = []

    def check(output: str) -> None:
        calls.append(output)
        if output == "SOON.":
            raise ModelRetry("Say when.")

    def shout(output: str) -> dict[str, str]:
        return {"output": output.upper()}

    model = ScriptedModel([ToolCall.of("transfer_to_clerk")], "Soon.", "At 5.")
    clerk = Agent("clerk", "You know.", model, after=shout)
    agent = Agent("desk", "You sort.", model, handoffs=[clerk], after=check)
    result = agent.run("When?", trace=True)
    assert result.value == "AT 5."
    assert calls == ["SOON.", "AT 5."]
    assert model.requests[-1].messages[-1].text == "Say when."


def test_functions_of_an_agent_that_hands_over_to_a_workflow() -> None:
    """They have the answer of what goes on, which is no chat of ours."""

    def frame(output: str) -> dict[str, str]:
        return {"output": f"<{output}>"}

    model = ScriptedModel([ToolCall.of("transfer_to_clerk")], "5")
    clerk = Workflow("clerk", [Agent("know", "You know.", model)])
    agent = Agent("desk", "You sort.", model, handoffs=[clerk], after=frame)
    result = agent.run("When?", trace=True)
    assert result.value == "<5>"
    assert result.messages[-1]["content"] == "<5>"


@pytest.mark.parametrize("is_chat", [True, False])
def test_a_changed_text_stays_a_text(is_chat: bool) -> None:
    """Whoever goes on, an answer that was a text cannot become data."""
    model = ScriptedModel([ToolCall.of("transfer_to_clerk")], "5")
    clerk: Any = FunctionAgent("clerk", lambda text: text)
    if is_chat:
        clerk = Agent("clerk", "You know.", model)

    def count(output: str) -> dict[str, int]:
        return {"output": len(output)}

    agent = Agent("desk", "You sort.", model, handoffs=[clerk], after=count)
    with pytest.raises(ToolError, match="expected a text"):
        agent.run("When?")


async def test_new_attempts_do_not_call_functions_again() -> None:
    """After every event of a turn that is handed over, those that have ended are not called again."""
    calls: list[str] = []
    agent = guarded(calls)
    whole, recorded = await attempt(agent, "please billing")
    assert whole.value == "billing answers, signed"
    for number in range(len(recorded)):
        calls.clear()
        stored = recorded[:number]
        result, _ = await attempt(agent, "please billing", stored, number=2)
        assert result.value == whole.value
        assert result.messages == whole.messages
        ended = events(stored, "tool_call_finished")
        names = [each.tool for each in ended]
        expected = [name for name in ("guard", "sign") if name not in names]
        assert len(calls) == len(expected)


def test_tools_with_names_of_transfers() -> None:
    """The result of a tool of the agent's own moves no conversation, whatever it says."""

    def transfer_to_bank() -> dict[str, str]:
        """Send money."""
        return {"transferred_to": "billing"}

    model = ScriptedModel([ToolCall.of("transfer_to_bank")], "sent", "again")
    agent = Agent(
        "triage",
        "You sort.",
        model,
        tools=[transfer_to_bank],
        handoffs=[Agent("billing", "You bill.", ScriptedModel())],
    )
    talk = agent.run("Send it.", trace=True).messages
    assert agent.run("Once more.", messages=talk) == "again"
