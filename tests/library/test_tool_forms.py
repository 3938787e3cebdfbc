"""A tool that is not a function goes wherever one goes: runs, events, approvals, the journal, blueprints."""

from __future__ import annotations

import asyncio
import copy
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.library.shelf_tool import SCHEMA, ShelfTool, find_book

from podwright import (
    Agent,
    AgentStep,
    ApprovalRequired,
    BlueprintValidationError,
    FunctionStep,
    ScriptedModel,
    Workflow,
    WorkflowStep,
    load,
)
from podwright.data.json_data import JsonObject
from podwright.errors import (
    ContextError,
    InputsError,
    Problem,
    ToolArgumentsError,
    ToolDefinitionError,
)
from podwright.events import Event, adapter
from podwright.folders.walks import check_decision_on, tools_of
from podwright.journal.journal import Journal
from podwright.messages.approvals import Decision
from podwright.run.run import Task, execute
from podwright.testing import ToolCall
from podwright.tools.decorator import tool as decorate
from podwright.tools.tool import Tool

RUN = "0" * 32
CALL = ToolCall.of("find_book", "1", isbn="7")


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    ShelfTool.calls = ()


def reader(*answers: object, tool: Tool = find_book) -> Agent:
    return Agent("reader", "Read.", ScriptedModel(*answers), tools=[tool])


async def test_a_run_calls_it() -> None:
    """The model is told of wrong arguments and of the result; the events are those of any tool."""
    wrong = ToolCall.of("find_book", "0", isbn="seven")
    recorded: list[Event] = []
    result = await execute(
        reader([wrong], [CALL], "done"),
        Task("hi"),
        subscribers=(recorded.append,),
    )
    assert ShelfTool.calls == ("7",)
    told = [
        message["content"]
        for message in result.messages
        if message["role"] == "tool"
    ]
    assert told[0].startswith("Error:")
    assert "/isbn" in told[0]
    assert told[1] == '{"title": "Book 7"}'
    assert [
        event.type for event in recorded if event.type.startswith("tool_")
    ] == [
        "tool_call_started",
        "tool_call_failed",
        "tool_call_started",
        "tool_call_finished",
    ]


class _Catalogue(ShelfTool):
    """A tool with names that its author would choose: those of the interface are others."""

    def __init__(self) -> None:
        super().__init__(SCHEMA, {"approval": True})
        self.server = "catalogue.example"

    def prepare(self, isbn: str) -> str:
        return isbn.strip()

    def check(self, isbn: str) -> bool:
        return isbn == self.prepare(isbn)


def test_a_tool_has_names_of_its_own() -> None:
    """A run leaves the attributes and methods alone that a tool has for itself."""
    agent = reader([CALL], "done", tool=_Catalogue())
    with pytest.raises(ApprovalRequired) as caught:
        agent.run("hi")
    assert agent.run(caught.value.decide("approve")) == "done"
    assert ShelfTool.calls == ("7",)


def test_a_person_approves_its_calls() -> None:
    """The question has its schema, its own check refuses a change, and the call is made as the person changed it."""
    tool = ShelfTool(SCHEMA, {"approval": True})
    agent = reader([CALL], "done", tool=tool)
    with pytest.raises(ApprovalRequired) as caught:
        agent.run("hi")
    pause = caught.value
    assert ShelfTool.calls == ()
    assert pause.question is not None
    assert pause.question.edit["isbn"]["value"] == "7"
    with pytest.raises(InputsError) as refused:
        check_decision_on(
            agent, pause.question, Decision("approve", values={"isbn": "x"})
        )
    assert [problem.pointer for problem in refused.value.problems] == [
        "/values/isbn"
    ]
    decided = pause.decide("approve", values={"isbn": "8"})
    assert agent.run(decided) == "done"
    assert ShelfTool.calls == ("8",)


async def test_a_new_attempt_does_not_repeat_a_finished_call() -> None:
    """The journal answers for it, as an agent's tool and as the function of a step."""
    flow = Workflow(
        "flow",
        [
            AgentStep(reader([CALL], "done")),
            FunctionStep(find_book, {"isbn": "9"}, output="book"),
        ],
    )
    recorded: list[Event] = []
    first = await execute(
        flow,
        Task("hi"),
        run_id=RUN,
        journal=Journal(),
        subscribers=(recorded.append,),
    )
    assert ShelfTool.calls == ("7", "9")
    # the attempt ended before the run did
    kept = [
        adapter().validate_python(event.to_dict())
        for event in recorded
        if event.type != "run_finished"
    ]
    second = await execute(flow, Task("hi"), run_id=RUN, journal=Journal(kept))
    assert second.value == first.value
    assert json.loads(second.value["book"]) == {"title": "Book 9"}
    assert ShelfTool.calls == ("7", "9")


async def test_a_step_with_wrong_arguments_fails() -> None:
    flow = Workflow("flow", [FunctionStep(find_book, {"isbn": "{input}"})])
    with pytest.raises(ToolArgumentsError) as caught:
        await flow.arun("seven")
    assert [problem.pointer for problem in caught.value.problems] == ["/isbn"]


def test_a_nested_workflow_has_it() -> None:
    """The same tool at two places is one."""
    inner = Workflow("inner", [FunctionStep(find_book, {"isbn": "1"})])
    outer = Workflow(
        "outer",
        [WorkflowStep(inner), FunctionStep(find_book, {"isbn": "2"}, "again")],
    )
    outer.run("hi")
    assert ShelfTool.calls == ("1", "2")
    assert tools_of(outer)["find_book"].is_same_as(find_book)


def test_its_blueprint_is_read_again() -> None:
    """An entry takes precedence over its options and its texts, and one that no longer fits is refused."""
    blueprint = reader([CALL], "done").to_blueprint()
    [entry] = blueprint["tools"]
    assert entry == {"name": "find_book", "schema": SCHEMA}
    entry["timeout"] = 3
    entry["schema"]["function"]["description"] = "Look for a book."
    model = ScriptedModel([CALL], "done")
    agent = Agent.from_blueprint(blueprint, [find_book], model=model)
    [tool] = agent.tools.values()
    assert (tool.timeout, tool.schema) == (3, entry["schema"])
    assert (tool.own_schema, find_book.schema) == (SCHEMA, SCHEMA)
    assert tool.is_same_as(find_book)
    assert agent.run("hi") == "done"
    assert ShelfTool.calls == ("7",)
    entry["schema"]["function"]["parameters"]["properties"]["isbn"] = {
        "type": "integer"
    }
    with pytest.raises(BlueprintValidationError) as caught:
        Agent.from_blueprint(blueprint, [find_book])
    assert [problem.pointer for problem in caught.value.problems] == [
        "/tools/0/schema/function/parameters/properties/isbn"
    ]


def test_another_name_leaves_a_tool_as_it_is() -> None:
    renamed = copy.copy(find_book.renamed("look_up"))
    assert (renamed.name, find_book.name) == ("look_up", "find_book")
    assert renamed.own_schema == SCHEMA


class _Strict(ShelfTool):
    """A tool whose own code fails for a call that a person may have to approve."""

    def validate(self, arguments: JsonObject) -> JsonObject:
        """Fail as a look-up in a table does."""
        if arguments.get("isbn") == "404":
            raise KeyError("404")
        return super().validate(arguments)

    async def apply_approval_rule(self, values: JsonObject) -> bool:
        """Fail with an error that means wrong arguments elsewhere."""
        raise self.arguments_error([Problem("/isbn", "No rule for it.")])


@pytest.mark.parametrize("isbn", ["7", "404"])
def test_a_call_whose_approval_is_unknown_is_not_made(
    isbn: str, recorder: Any
) -> None:
    """Whatever the tool's own code raises before a person is asked, the model is told and nothing is called."""
    tool = _Strict(SCHEMA, {"approval": True})
    agent = Agent(
        "reader",
        "Read.",
        ScriptedModel([ToolCall.of("find_book", "1", isbn=isbn)], "done"),
        tools=[tool],
        event_manager=recorder.manager,
    )
    assert agent.run("hi") == "done"
    assert ShelfTool.calls == ()
    failed = recorder.of("tool_call_started", "tool_call_failed")
    assert [event.type for event in failed] == [
        "tool_call_started",
        "tool_call_failed",
    ]


def test_one_tool_with_two_options_is_a_mistake() -> None:
    """Otherwise the last one would decide whether a person is asked."""
    careful = find_book.with_options({"approval": True})
    reader(tool=careful)
    with pytest.raises(ToolDefinitionError):
        Agent("a", "Read.", ScriptedModel(), tools=[careful, find_book])


async def test_a_saved_run_does_not_go_on_within_another() -> None:
    """It has a journal of its own; without it, what it has done would be done again."""
    agent = reader([CALL], "done", tool=ShelfTool(SCHEMA, {"approval": True}))
    with pytest.raises(ApprovalRequired) as caught:
        await agent.arun("hi")
    decided = caught.value.decide("approve")

    async def resume() -> str:
        return await agent.arun(decided)

    around = Workflow("around", [FunctionStep(resume)])
    with pytest.raises(ContextError):
        await around.arun("hi")
    assert ShelfTool.calls == ()
    assert await agent.arun(decided) == "done"
    assert ShelfTool.calls == ("7",)


class _Rough(ShelfTool):
    """A tool whose own code does what a program of its own may do."""

    async def perform(self, values: JsonObject, seconds: float | None) -> Any:
        """End as the number of the book says, after it has used its arguments up."""
        isbn = values.pop("isbn")
        if isbn == "1":
            sys.exit(3)
        if isbn == "2":
            raise asyncio.CancelledError
        return isbn


@pytest.mark.parametrize("isbn", ["1", "2"])
async def test_its_code_ends_neither_the_process_nor_the_run(isbn: str) -> None:
    """An exit, or a cancellation that nobody asked for, is a failed call."""
    call = ToolCall.of("find_book", "1", isbn=isbn)
    agent = reader([call], "done", tool=_Rough(SCHEMA))
    result = await execute(agent, Task("hi"), trace=True)
    assert result.value == "done"
    types = [event.type for event in result.events]
    assert "tool_call_failed" in types


async def test_it_may_change_the_arguments_that_it_is_called_with() -> None:
    """The record of the run keeps those of the model."""
    agent = reader([CALL], "done", tool=_Rough(SCHEMA))
    result = await execute(agent, Task("hi"), trace=True)
    (started,) = [e for e in result.events if e.type == "tool_call_started"]
    assert started.to_dict()["arguments"] == {"isbn": "7"}


class _Fresh(ShelfTool):
    """A tool that knows a book only from its second look on."""

    looks = 0

    def validate(self, arguments: JsonObject) -> JsonObject:
        """Refuse the first time."""
        self.looks += 1
        if self.looks == 1:
            raise self.arguments_error([Problem("/isbn", "Unknown.")])
        return super().validate(arguments)


async def test_arguments_that_fit_only_later_are_not_called_unasked() -> None:
    agent = reader([CALL], "done", tool=_Fresh(SCHEMA, {"approval": True}))
    assert await agent.arun("hi") == "done"
    assert ShelfTool.calls == ()


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "function", "function": {"name": "find_book"}},
        {"type": "function", "function": {"name": "", "parameters": {}}},
        {"type": "function", "function": {"name": "b", "parameters": []}},
        {
            "type": "function",
            "function": {"name": "b", "parameters": {"enum": [object()]}},
        },
    ],
)
def test_a_malformed_schema_is_refused(schema: Any) -> None:
    with pytest.raises(ToolDefinitionError):
        ShelfTool(schema)


def test_its_schema_is_its_own() -> None:
    """The caller may go on to use the data that it was made from."""
    schema = copy.deepcopy(SCHEMA)
    made = ShelfTool(schema)
    schema["function"]["name"] = "other"
    assert made.name == "find_book"


def test_the_decorator_refuses_it() -> None:
    """It would say nothing of the tool, though it names an approval."""
    with pytest.raises(ToolDefinitionError):
        decorate(approval=True)(find_book)


def test_a_folder_finds_it_by_the_name_that_models_use(tmp_path: Path) -> None:
    blueprint = {
        "type": "Agent",
        "name": "reader",
        "instructions": "Read.",
        "config": {"model": "offline/echo"},
        "tools": [find_book.entry()],
    }
    (tmp_path / "blueprint.json").write_text(json.dumps(blueprint))
    (tmp_path / "tools.py").write_text(
        "from tests.library.shelf_tool import find_book as lookup"
    )
    assert "find_book" in tools_of(load(tmp_path))
