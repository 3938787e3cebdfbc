"""Who hears a run: subscribers, event managers, the verbose printer, the token callback."""

import asyncio
import logging
from typing import Any

import pytest

from podwright import (
    Agent,
    Event,
    EventManager,
    FunctionModel,
    ScriptedModel,
    Workflow,
)
from podwright.errors import (
    ConfigurationError,
    ToolError,
)
from podwright.testing import ToolCall, events_of


def picked(trace: Any, *types: str) -> list[Any]:
    """The events of these types; a type checker cannot know which they are."""
    return events_of(trace, *types)


def says(text: str) -> FunctionModel:
    return FunctionModel(lambda _: text)


def test_a_subscriber_that_raises_is_dropped_for_the_run(caplog: pytest.LogCaptureFixture) -> None:
    """A subscriber that raises is logged once and hears no more of that run; the run and the others go on."""
    calls: list[str] = []
    others: list[Event] = []

    def broken(event: Event) -> None:
        calls.append(event.type)
        raise ValueError("broken")

    manager = EventManager()
    manager.subscribe(broken)
    manager.subscribe(others.append)
    agent = Agent("a", "Help.", says("yes"), event_manager=manager)
    with caplog.at_level(logging.ERROR, logger="podwright"):
        assert agent.run("?") == "yes"
    assert calls == ["run_started"]
    assert [event.type for event in others] == [
        "run_started", "model_call_started", "model_call_finished", "run_finished",
    ]  # fmt: skip
    assert len(caplog.records) == 1
    assert others[0].run_id in caplog.records[0].getMessage()
    agent.run("?")
    assert calls == ["run_started", "run_started"]


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit(), asyncio.CancelledError()], ids=repr)
def test_whatever_a_subscriber_raises_it_is_dropped(error: BaseException) -> None:
    """No exception of a subscriber ends a run, or the event loop that later runs need."""

    def broken(event: Event) -> None:
        raise error

    manager = EventManager()
    manager.subscribe(broken)
    for _ in range(2):
        assert Agent("a", "Help.", FunctionModel(lambda _: "yes"), event_manager=manager).run("?") == "yes"


def test_an_event_manager_is_shared(heard: Any) -> None:
    """A manager that a workflow and its agents share hears each event once."""
    one = Agent("one", "Help.", says("1"), event_manager=heard.manager)
    two = Agent("two", "Help.", says("2"), event_manager=heard.manager)
    flow = Workflow("flow", [one, two], event_manager=heard.manager)
    flow.run("?")
    assert [event.component for event in heard.of("run_started")] == ["flow", "one", "two"]
    assert [event.seq for event in heard.events] == list(range(len(heard.events)))
    one.run("?")
    assert [event.component for event in heard.of("run_started")] == ["flow", "one", "two", "one"]


def test_subscriptions_end_and_choose() -> None:
    """A subscription may name event types, and ends when it is told to; a run keeps those it began with."""
    manager, heard, ends = EventManager(), list[str](), list[str]()
    unsubscribe = manager.subscribe(lambda event: heard.append(event.type), "run_started", "run_finished")

    def once(event: Event) -> None:
        ends.append(event.type)
        unsubscribe()

    end_once = manager.subscribe(once)
    agent = Agent("a", "Help.", says("yes"), event_manager=manager)
    agent.run("?")
    assert heard == ["run_started", "run_finished"]
    assert len(ends) == 4
    agent.run("?")
    assert heard == ["run_started", "run_finished"]
    end_once()
    end_once()
    agent.run("?")
    assert len(ends) == 8
    assert manager.subscribers == ()


def test_verbose_prints_the_steps(capsys: pytest.CaptureFixture[str]) -> None:
    """`verbose` prints started, thinking and the final answer, a line each."""
    Agent("guide", "Help.", says("Sunny."), verbose=True).run("Weather?")
    started, thinking, answer = capsys.readouterr().out.splitlines()
    assert started == "[guide] started: Weather?"
    assert thinking == "[guide] thinking (offline/function)"
    assert answer.startswith("[guide] final answer (")
    assert answer.endswith("): Sunny.")


def test_verbose_twice_prints_once(capsys: pytest.CaptureFixture[str]) -> None:
    """A verbose component in a verbose one is printed once."""
    agent = Agent("inner", "Help.", says("yes"), verbose=True)
    Workflow("outer", [agent], verbose=True).run("?")
    lines = capsys.readouterr().out.splitlines()
    assert lines.count("  [inner] thinking (offline/function)") == 1
    assert len(lines) == 6


def test_verbose_tells_of_all_that_happens(capsys: pytest.CaptureFixture[str]) -> None:
    """Tool calls, failures and tokens are printed too, and control characters do not reach the terminal."""

    def fail() -> str:
        """Fail."""
        raise ValueError("broken\x1b[31m")

    agent = Agent("a", "Help.", ScriptedModel(ToolCall.of("fail"), "end"), tools=[fail], verbose=True)
    with pytest.raises(ToolError):
        agent.run("?")
    Agent("b", "Help.", says("one\x07 two"), verbose=True).run("?", stream=True)
    printed = capsys.readouterr().out
    assert "[a] calls fail()" in printed
    assert "[a] fail failed: Tool 'fail' raised ValueError: broken\ufffd[31m" in printed
    assert "[a] failed: Tool 'fail' raised" in printed
    assert "\none\ufffd two\n" in printed


@pytest.mark.parametrize("way", ["run", "arun", "stream", "astream"])
def test_tokens_arrive_in_order(way: str) -> None:
    """A streamed run gives each piece of text to `on_token`, in order; together they are the answer."""
    texts: list[str] = []
    agent = Agent("a", "Help.", says("one two  three"), on_token=texts.append)

    async def read() -> None:
        async for _ in agent.astream("?"):
            pass

    match way:
        case "run":
            agent.run("?", stream=True)
        case "arun":
            asyncio.run(agent.arun("?", stream=True))
        case "stream":
            list(agent.stream("?"))
        case _:
            asyncio.run(read())
    assert texts == ["one", " two", "  three"]
    texts.clear()
    agent.run("?")
    assert texts == []


def test_a_misspelt_event_type_is_told() -> None:
    """A subscription to events that do not exist would never be called, so it is an error with the nearest type."""
    with pytest.raises(ConfigurationError, match="Did you mean 'token'"):
        EventManager().subscribe(print, "tokn")
