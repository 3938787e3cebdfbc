"""Tools that fail, take too long, or return too much: what the model is told, and what ends the run."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.library.upstream import pass_time

from podwright import Agent, Conductor, RunLimits, tool
from podwright.blueprints import problems
from podwright.errors import (
    ApprovalRequired,
    ConfigurationError,
    LimitExceededError,
    ModelError,
    OutputError,
    PodwrightError,
    RemoteError,
    RemoteInterruptedError,
    RemotePausedError,
    RunCancelledError,
    ToolArgumentsError,
    ToolDefinitionError,
    ToolError,
)
from podwright.testing import ScriptedModel, ToolCall

Json = dict[str, Any]
CALL = ToolCall.of("work")
OTHER = ToolCall.of("rest")


class NoTextError(Exception):
    """Its message cannot be read."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def raising(error: BaseException) -> Callable[[], str]:
    def work() -> str:
        """Work."""
        raise error

    return work


def rest() -> str:
    """Rest."""
    return "rested"


async def wait() -> str:
    """Wait for ever, with a clock that goes fast."""
    pass_time()
    await asyncio.Event().wait()
    return ""


def told(model: ScriptedModel, request: int = 1) -> str:
    """What the model was told last in a request."""
    message = model.requests[request].messages[-1]
    assert message.role == "tool"
    return message.text


ERRORS: dict[str, tuple[BaseException, str]] = {
    # what the tool raises, and a part of what the model is told
    "a message": (LookupError("no order 5"), "LookupError: no order 5"),
    "no message": (ValueError(), "ValueError"),
    "a message that cannot be read": (NoTextError(), "NoTextError"),
    "braces": (ValueError("{input} {{x}} {"), "{input} {{x}} {"),
    "several lines": (ValueError("one\n  two\ttwo"), "one two two"),
    "control characters": (ValueError("a\x00b\udc80\x1b[31m"), "ValueError: a"),
    "megabytes": (ValueError("x" * 5_000_000), "ValueError: xxx"),
    "a group": (
        ExceptionGroup("both", [KeyError("a"), OSError("full")]),
        "OSError: full",
    ),
    "the end of the process": (SystemExit(3), "SystemExit"),
    "a time-out of its own": (TimeoutError("slow"), "TimeoutError: slow"),
    "a chain that ends in itself": (ValueError("loop"), "loop"),
}
ERRORS["a chain that ends in itself"][0].__cause__ = ERRORS[
    "a chain that ends in itself"
][0]


@pytest.mark.parametrize("name", ERRORS)
async def test_the_model_is_told_that_a_tool_raised(
    name: str, recorder: Any, assert_sound: Any
) -> None:
    """It gets one short line without a traceback, other calls of the turn go on, and the event has the same line."""
    error, part = ERRORS[name]
    calls = [ToolCall.of("work", "1"), ToolCall.of("rest", "2")]
    model = ScriptedModel(calls, "done")
    agent = Agent(
        "a",
        "Help.",
        model,
        tools=[raising(error), rest],
        event_manager=recorder.manager,
    )
    result = await agent.arun("?", trace=True)
    assert result.value == "done"
    failed, rested = model.requests[1].messages[-2:]
    assert (failed.tool_call_id, rested.text) == ("1", "rested")
    assert part in failed.text
    assert len(failed.text) < 1100
    assert failed.text.isprintable()
    assert "Traceback" not in failed.text
    (event,) = recorder.of("tool_call_failed")
    assert (event.error["code"], event.report) == ("tool_failed", failed.text)
    assert_sound(recorder.events)


TURNS: dict[str, tuple[int, list[Any], int | None]] = {
    # max_tool_retries, the answers of the model, and at which of them the run fails
    "none": (0, [CALL], 1),
    "one": (1, [CALL, CALL], 2),
    "in a row": (1, [CALL, OTHER, CALL], 3),
    "calls of one turn": (1, [[CALL, CALL, CALL], "done"], None),
    "with wrong calls": (2, [CALL, ToolCall.of("work", x=1), CALL], 3),
    "a success begins anew": (
        1,
        [CALL, ToolCall.of("work", fail=False), CALL, "done"],
        None,
    ),
}


@pytest.mark.parametrize("name", TURNS)
def test_a_tool_that_fails_too_often_fails_the_run(name: str) -> None:
    """Failures count like wrong calls; the one that is too many is the cause of the error."""
    retries, answers, failing = TURNS[name]
    error = LookupError("no")

    def work(fail: bool = True) -> str:
        """Work."""
        if fail:
            raise error
        return "worked"

    model = ScriptedModel(*answers)
    agent = Agent("a", "", model, tools=[work, rest], max_tool_retries=retries)
    if failing is None:
        assert agent.run("?") == "done"
    else:
        with pytest.raises(ToolError) as caught:
            agent.run("?")
        assert caught.value.code == "tool_failed"
        assert caught.value.__cause__ is error
    assert len(model.requests) == (failing or len(answers))


def wrapped(error: Exception) -> Exception:
    outer = ValueError("work failed")
    outer.__cause__ = error
    return outer


ENDING = {
    "a limit": LimitExceededError("limit", limit="tokens"),
    "an approval": ApprovalRequired("Sure?"),
    "an approval in a remote": RemotePausedError("waits"),
    "an unknown effect": RemoteInterruptedError("unknown"),
    "a cancellation": RunCancelledError("cancelled"),
    "a configuration": ConfigurationError("wrong"),
    "a limit inside a group": ExceptionGroup(
        "g", [ExceptionGroup("h", [LimitExceededError("x")]), ValueError()]
    ),
    "a limit as a cause": wrapped(LimitExceededError("x")),
}


@pytest.mark.parametrize("name", ENDING)
def test_what_is_not_for_the_model_ends_the_run(name: str) -> None:
    """Limits, pauses, cancellations, unknown effects and wrong configurations are never reported to a model."""
    model = ScriptedModel(CALL, "never")
    agent = Agent("a", "", model, tools=[raising(ENDING[name])])
    with pytest.raises(PodwrightError) as caught:
        agent.run("?")
    assert len(model.requests) == 1
    if isinstance(ENDING[name], PodwrightError):
        assert caught.value is ENDING[name]


FAULTS = {
    "a model": ModelError("The provider is down."),
    "an answer": OutputError("No answer fits."),
    "a remote": RemoteError("The remote failed."),
    "wrong calls": ToolArgumentsError("The calls were wrong."),
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_model_is_told_that_a_nested_run_failed(name: str) -> None:
    """What a nested run fails by is a failure of its tool; in the end it is raised as it is."""
    helper = Agent("helper", "", ScriptedModel(FAULTS[name]))

    async def work() -> str:
        """Work."""
        return await helper.arun("?")

    model = ScriptedModel(CALL, "done")
    assert Agent("a", "", model, tools=[work]).run("?") == "done"
    assert FAULTS[name].args[0] in told(model)
    helper = Agent("helper", "", ScriptedModel(FAULTS[name]))
    with pytest.raises(type(FAULTS[name])) as caught:
        Agent(
            "a", "", ScriptedModel(CALL), tools=[work], max_tool_retries=0
        ).run("?")
    assert caught.value.component == "helper"


def test_a_nested_tool_keeps_its_text_to_itself() -> None:
    """The model around a run is told what callers of that run are told: no text of foreign exceptions."""
    helper = Agent(
        "helper",
        "",
        ScriptedModel(CALL),
        tools=[raising(LookupError("secret"))],
        max_tool_retries=0,
    )

    def ask() -> str:
        """Ask."""
        return helper.run("?")

    model = ScriptedModel(ToolCall.of("ask"), "done")
    assert Agent("a", "", model, tools=[ask]).run("?") == "done"
    assert "LookupError" in told(model)
    assert "secret" not in told(model)


def test_a_limit_of_a_nested_run_ends_both() -> None:
    """A tool does not swallow the limit of a run nested in it."""
    helper = Agent(
        "helper", "", ScriptedModel("x"), limits=RunLimits(model_calls=0)
    )

    def work() -> str:
        """Work."""
        return helper.run("?")

    with pytest.raises(LimitExceededError):
        Agent("a", "", ScriptedModel(CALL, "no"), tools=[work]).run("?")


def test_a_failing_skill_fails_its_conductor() -> None:
    """Skills are runs, not tools: their failure is not for the model."""
    helper = Agent("helper", "", ScriptedModel(ModelError("down")))
    model = ScriptedModel(ToolCall.of("helper", task="x"), "never")
    with pytest.raises(ModelError):
        Conductor("c", "", model, skills=[helper]).run("?")


async def test_a_slow_async_tool_is_cancelled(
    recorder: Any, assert_sound: Any
) -> None:
    """After its time-out it is cancelled, and the model is told."""
    ended: list[str] = []

    @tool(timeout=30)
    async def work() -> str:
        """Work."""
        try:
            return await wait()
        finally:
            ended.append("work")

    model = ScriptedModel(CALL, "done")
    agent = Agent("a", "", model, tools=[work], event_manager=recorder.manager)
    assert await agent.arun("?") == "done"
    assert ended == ["work"]
    assert "30 s" in told(model)
    (event,) = recorder.of("tool_call_failed")
    assert event.error["code"] == "tool_failed"
    assert_sound(recorder.events)


@pytest.mark.parametrize("way", ["option", "variable"])
async def test_a_slow_blocking_tool_keeps_its_thread_only(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run goes on, and the thread ends by itself; a time-out too many fails the run like any other error."""
    released = threading.Event()
    loop = asyncio.get_running_loop()

    def work() -> str:
        """Work."""
        loop.call_soon_threadsafe(pass_time)
        released.wait(60)
        return "late"

    function = work
    if way == "option":
        function = tool(timeout=2.5)(work)
    else:
        monkeypatch.setenv("PODWRIGHT_TOOL_TIMEOUT", "2.5")
    model = ScriptedModel(CALL, "done")
    assert await Agent("a", "", model, tools=[function]).arun("?") == "done"
    assert "2.5 s" in told(model)
    once = Agent(
        "a", "", ScriptedModel(CALL), tools=[function], max_tool_retries=0
    )
    with pytest.raises(ToolError) as caught:
        await once.arun("?")
    assert isinstance(caught.value.__cause__, TimeoutError)
    names = [thread.name for thread in threading.enumerate()]
    assert names.count("podwright-tool") >= 2
    released.set()


@pytest.mark.parametrize("way", ["sync", "async", "left behind"])
async def test_the_runs_of_a_slow_tool_are_cancelled(
    way: str, recorder: Any, assert_sound: Any
) -> None:
    """They end before the call does, also those that a thread waits for, which can start no further run."""
    refused: list[BaseException] = []
    released = threading.Event()
    left: list[asyncio.Task[Any]] = []

    def work() -> str:
        """Work."""
        for _ in range(2):
            try:
                helper.run("?")
            except PodwrightError as error:
                refused.append(error)
        released.set()
        return ""

    async def work_async() -> str:
        """Work."""
        return await helper.arun("?")

    async def leave() -> str:
        """Work, and fail while a run is left behind."""
        started = asyncio.Event()
        recorder.manager.subscribe(
            lambda event: event.component == "helper" and started.set(),
            "tool_call_started",
        )
        left.append(asyncio.create_task(helper.arun("?")))
        await started.wait()
        raise ValueError("left")

    function: Any = {"sync": work, "async": work_async, "left behind": leave}[
        way
    ]
    helper = Agent(
        "helper", "", ScriptedModel(*[ToolCall.of("wait")] * 3), tools=[wait]
    )
    outer = tool(timeout=30)(function)
    model = ScriptedModel(ToolCall.of(function.__name__), "done")
    agent = Agent("a", "", model, tools=[outer], event_manager=recorder.manager)
    assert await agent.arun("?") == "done"
    assert_sound(recorder.events)
    types = [(event.component, event.type) for event in recorder.events]
    end = types.index(("helper", "run_cancelled"))
    assert end < types.index(("a", "tool_call_failed"))
    assert types.count(("helper", "run_started")) == 1
    if way == "sync":
        await asyncio.to_thread(released.wait, 60)
        codes = {getattr(error, "code", "") for error in refused}
        assert (len(refused), codes) == (2, {"run_cancelled"})


RESULTS: dict[str, tuple[Any, str]] = {
    "text": ("x" * 100, "x" * 40),
    "letters of several bytes": ("€" * 100, "€" * 13),
    "data": ({"a": ["y" * 100]}, '{"a": ["' + "y" * 32),
}


@pytest.mark.parametrize("way", ["option", "variable"])
@pytest.mark.parametrize("name", RESULTS)
def test_a_long_result_is_cut(
    name: str, way: str, monkeypatch: pytest.MonkeyPatch, recorder: Any
) -> None:
    """The model gets its first part, and is told of the rest; so does the event."""
    value, kept = RESULTS[name]

    def work() -> Any:
        """Work."""
        return value

    function: Any = work
    if way == "option":
        function = tool(max_result_tokens=10)(work)
    else:
        monkeypatch.setenv("PODWRIGHT_MAX_RESULT_TOKENS", "10")
    model = ScriptedModel(CALL, "done")
    agent = Agent(
        "a", "", model, tools=[function], event_manager=recorder.manager
    )
    agent.run("?")
    head, _, sentence = told(model).partition("\n")
    assert head == kept
    assert "10" in sentence
    (event,) = recorder.of("tool_call_finished")
    assert event.output == told(model)


def test_a_result_of_the_limit_is_whole() -> None:
    """By default 20 000 tokens are not cut, and one more is."""
    texts = ["x" * 80_000, "x" * 80_001]

    def work(number: int) -> str:
        """Work."""
        return texts[number]

    calls = [
        ToolCall.of("work", str(number), number=number) for number in (0, 1)
    ]
    model = ScriptedModel(calls, "done")
    Agent("a", "", model, tools=[work]).run("?")
    whole, cut = [message.text for message in model.requests[1].messages[-2:]]
    assert whole == texts[0]
    assert cut != texts[1]


def decorated() -> Any:
    @tool(idempotent=True, on_error="fail", timeout=30, max_result_tokens=50)
    def work() -> str:
        """Work."""
        return "worked"

    return work


OPTIONS: Json = {
    "idempotent": True,
    "on_error": "fail",
    "timeout": 30,
    "max_result_tokens": 50,
}


def entry_of(agent: Agent) -> Json:
    entry = dict(agent.to_blueprint()["tools"][0])
    del entry["name"], entry["schema"]
    return entry


def test_options_are_part_of_the_entry() -> None:
    """They are exported if they are not the defaults, and the same after a round trip."""
    agent = Agent("a", "", "offline/echo", tools=[decorated()])
    assert entry_of(agent) == OPTIONS
    for changes in (
        {},
        OPTIONS,
        {"on_error": "report"},
        {"idempotent": False, "timeout": 0.5},
    ):
        blueprint = agent.to_blueprint()
        entry = {**blueprint["tools"][0], **changes}
        blueprint["tools"] = [entry]
        assert problems(blueprint) == []
        again = Agent.from_blueprint(blueprint, [decorated()])
        assert again.to_blueprint() == blueprint
    plain = tool(idempotent=False, on_error="report")(rest)
    assert entry_of(Agent("a", "", "offline/echo", tools=[plain])) == {}


def test_the_entry_takes_precedence_over_the_function() -> None:
    """Each key by itself; what the entry leaves open is as the function says."""
    agent = Agent("a", "", "offline/echo", tools=[decorated()])
    blueprint = agent.to_blueprint()
    entry = blueprint["tools"][0]
    for name in OPTIONS:
        del entry[name]
    served = Agent.from_blueprint(blueprint, [decorated()]).tools["work"]
    assert served.options == OPTIONS
    entry |= {"idempotent": False, "on_error": "report", "timeout": 1}
    served = Agent.from_blueprint(blueprint, [decorated()]).tools["work"]
    assert (served.idempotent, served.reports_errors) == (False, True)
    assert (served.timeout, served.max_result_tokens) == (1, 50)
    assert copy.copy(served).options == served.options


@pytest.mark.parametrize(
    "changes",
    [
        {"timeout": 0},
        {"timeout": "30"},
        {"timeout": float("inf")},
        {"max_result_tokens": 0},
        {"max_result_tokens": 1.5},
        {"on_error": "tell"},
        {"idempotent": 1},
        {"time_out": 3},
    ],
    ids=str,
)
def test_invalid_options_are_refused(changes: Json) -> None:
    """In the decorator and in the entry."""
    with pytest.raises(ToolDefinitionError):
        tool(**changes)
    blueprint = Agent("a", "", "offline/echo", tools=[rest]).to_blueprint()
    blueprint["tools"] = [{**blueprint["tools"][0], **changes}]
    assert problems(blueprint)
