"""What functions tell of how far they have come: events of the run, in order, from any thread."""

from __future__ import annotations

import asyncio
import io
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.library.shapes import events

from podwright import (
    Agent,
    ApprovalRequired,
    ConditionStep,
    FunctionAgent,
    FunctionStep,
    RunContext,
    ScriptedModel,
    Workflow,
    tool,
)
from podwright.errors import ConfigurationError
from podwright.events import Event, Progress
from podwright.functions.run_context import MAX_REPORT, MAX_REPORT_DATA
from podwright.journal.journal import Journal
from podwright.run.function_context import MAX_REPORTS
from podwright.run.printer import Printer
from podwright.run.run import execute
from podwright.testing import ToolCall

PAGES = ["page 1", "page 2", "page 3"]


async def read(context: RunContext) -> str:
    """Read."""
    for number, page in enumerate(PAGES):
        context.report(page, {"done": number})
        await asyncio.sleep(0)
    return "read"


def read_blocking(context: RunContext) -> str:
    """Read in a thread."""
    for number, page in enumerate(PAGES):
        context.report(page, {"done": number})
    return "read"


def read_in_own_thread(context: RunContext) -> str:
    """Read in a thread that knows nothing of the run."""
    thread = threading.Thread(target=read_blocking, args=(context,))
    thread.start()
    thread.join()
    return "read"


def read_pieces(context: RunContext) -> Iterator[str]:
    """Read, piece by piece."""
    read_blocking(context)
    yield "read"


def caller(function: Any) -> Agent:
    model = ScriptedModel(ToolCall.of(function.__name__), "done")
    return Agent("caller", "Do.", model, tools=[function])


def reports(trace: Any) -> list[Progress]:
    return events(trace, "progress")


@pytest.mark.parametrize(
    "function", [read, read_blocking, read_in_own_thread, read_pieces]
)
def test_a_tool_reports(function: Any) -> None:
    """Between its start and its end, with the number of the call."""
    trace = caller(function).run("x", trace=True)
    types = [event.type for event in trace.events]
    start = types.index("tool_call_started")
    assert types[start + 1 : start + 5] == [
        *["progress"] * 3,
        "tool_call_finished",
    ]
    for number, event in enumerate(reports(trace)):
        assert (event.text, event.data) == (PAGES[number], {"done": number})
        assert (event.tool_call, event.component) == (0, "caller")


def test_functions_of_steps_agents_and_conditions_report() -> None:
    """At their place in the workflow; a condition is no call."""

    def check(context: dict[str, Any], run: RunContext) -> bool:
        run.report("checking")
        return True

    async def answer(task: str, context: RunContext) -> str:
        context.report("answering")
        return "done"

    flow = Workflow(
        "flow",
        [
            FunctionStep(read, name="read"),
            ConditionStep("check", [FunctionAgent("agent", answer)]),
        ],
        conditions={"check": check},
    )
    found = [
        (event.text, event.path, event.tool_call)
        for event in reports(flow.run("x", trace=True))
    ]
    assert found == [
        *((page, (0,), 0) for page in PAGES),
        ("checking", (), None),
        ("answering", (1, 0, 0), 0),
    ]


def tell(*arguments: Any) -> Agent:
    def report(context: RunContext) -> str:
        context.report(*arguments)
        return "told"

    return caller(report)


def test_a_long_text_is_cut() -> None:
    """And halves of characters are replaced, as in all that leaves a run."""
    (event,) = reports(tell("ü" * (MAX_REPORT + 1)).run("x", trace=True))
    assert event.text == "ü" * (MAX_REPORT - 1) + "…"
    (event,) = reports(tell("\ud83d").run("x", trace=True))
    assert event.text == "\ufffd"


def test_data_has_a_json_form() -> None:
    """As the result of a function has; of at most so many bytes."""
    data = "x" * (MAX_REPORT_DATA - 2)
    (event,) = reports(tell("told", data).run("x", trace=True))
    assert event.data == data
    (event,) = reports(tell("told", (1, 2)).run("x", trace=True))
    assert event.data == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((7,), "takes a text, not 7"),
        (("told", object()), "'told' is not JSON data"),
        (("told", "x" * MAX_REPORT_DATA), "10000 at most"),
    ],
)
def test_what_is_no_report(arguments: Any, message: str) -> None:
    """Is an error of the function, in a test of the function alone too."""
    with pytest.raises(ConfigurationError, match=message):
        RunContext().report(*arguments)
    with pytest.raises(Exception, match=message):
        flow_of_report(arguments).run("x")


def flow_of_report(arguments: Any) -> Workflow:
    def report(context: RunContext) -> None:
        context.report(*arguments)

    return Workflow("flow", [FunctionStep(report, name="report")])


def test_a_call_reports_so_often() -> None:
    """Further reports are dropped; the next call begins anew."""

    def report(context: RunContext) -> str:
        for number in range(MAX_REPORTS + 5):
            context.report(str(number))
        return "told"

    steps = [
        FunctionStep(report, name=name, output=name) for name in ("one", "two")
    ]
    found = reports(Workflow("flow", steps).run("x", trace=True))
    numbers = [str(number) for number in range(MAX_REPORTS)]
    assert [event.text for event in found] == numbers * 2


async def test_further_reports_cost_the_event_loop_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thread reports faster than the loop emits, so what will be dropped must not wait there."""
    loop = asyncio.get_running_loop()
    schedule = loop.call_soon_threadsafe
    scheduled = 0

    def count(*args: Any, **kwargs: Any) -> Any:
        nonlocal scheduled
        scheduled += 1
        return schedule(*args, **kwargs)

    def report(context: RunContext) -> str:
        for _ in range(2 * MAX_REPORTS):
            context.report("x")
        return "told"

    flow = Workflow("flow", [FunctionStep(report, name="report")])
    monkeypatch.setattr(loop, "call_soon_threadsafe", count)
    result = await flow.arun("x", trace=True)
    assert len(reports(result)) == MAX_REPORTS
    assert scheduled < MAX_REPORTS + 10


def test_nobody_is_told_after_the_call() -> None:
    """Of a function that goes on in its thread after its time-out, although the run goes on, too."""
    over = threading.Event()
    reported = threading.Event()

    @tool(timeout=0.05)
    def report(context: RunContext) -> str:
        over.wait(30)
        context.report("late")
        reported.set()
        return "told"

    def go_on(context: RunContext) -> str:
        over.set()
        assert reported.wait(30)
        context.report("in time")
        return "gone on"

    model = ScriptedModel(ToolCall.of("report"), ToolCall.of("go_on"), "done")
    agent = Agent("caller", "Do.", model, tools=[report, go_on])
    found = reports(agent.run("x", trace=True))
    assert [event.text for event in found] == ["in time"]


async def test_a_replayed_call_reports_nothing() -> None:
    """A call that has ended is not made again; one that was cut off is, and reports again."""
    flow = Workflow("flow", [FunctionStep(read, name="read")])
    recorded: list[Event] = []
    await execute(
        flow, flow.task("x"), subscribers=(recorded.append,), run_id="0" * 32
    )
    (end,) = [
        number
        for number, event in enumerate(recorded)
        if event.type == "tool_call_finished"
    ]
    for cut, expected in ((end + 1, 0), (end, len(PAGES))):
        new: list[Event] = []
        await execute(
            flow,
            flow.task("x"),
            subscribers=(new.append,),
            run_id="0" * 32,
            journal=Journal(recorded[:cut], attempt=2),
        )
        assert sum(event.type == "progress" for event in new) == expected


@tool(approval=True)
def pay() -> str:
    """Pay."""
    return "paid"


def test_a_waiting_run_carries_no_reports() -> None:
    """A new attempt does not need them."""
    model = ScriptedModel(ToolCall.of("read"), ToolCall.of("pay"), "done")
    agent = Agent("caller", "Do.", model, tools=[read, pay])
    with pytest.raises(ApprovalRequired) as pause:
        agent.run("x")
    carried = json.dumps(pause.value.context)
    assert "tool_call_finished" in carried
    assert PAGES[0] not in carried


def test_the_printer_shows_it() -> None:
    """In a line of its own."""
    file = io.StringIO()
    trace = caller(read).run("x", trace=True)
    for event in trace.events:
        Printer(file=file)(event)
    assert "[caller] page 2\n" in file.getvalue()


async def test_a_stream_has_it_at_once() -> None:
    """Before the function has returned."""
    seen = asyncio.Event()

    async def wait(context: RunContext) -> str:
        context.report("waiting")
        await asyncio.wait_for(seen.wait(), 30)
        return "seen"

    async for event in caller(wait).astream("x"):
        if event.type == "progress":
            seen.set()
    assert seen.is_set()
