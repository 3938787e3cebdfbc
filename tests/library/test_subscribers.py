"""Subscribers of runs: event managers, the verbose printer, the token callback."""

import asyncio
import logging
from typing import Any

import pytest
from tests.library.shapes import says

from podwright import (
    Agent,
    Conductor,
    Event,
    EventManager,
    ScriptedModel,
    subscribe,
)
from podwright.errors import ConfigurationError, ToolError
from podwright.run.run import Task, execute
from podwright.testing import ToolCall


def test_a_subscriber_that_raises_gets_no_more_events_of_the_run(
    recorder: Any, caplog: Any
) -> None:
    """The error is logged once; the run, other subscribers and later runs are not affected."""
    received: list[str] = []

    def broken(event: Event) -> None:
        received.append(event.type)
        raise ValueError("broken")

    recorder.manager.subscribe(broken)
    agent = Agent("a", "Help.", says("yes"), event_manager=recorder.manager)
    with caplog.at_level(logging.ERROR, logger="podwright"):
        assert agent.run("?") == "yes"
    assert received == ["run_started"]
    assert recorder.types() == [
        "run_started",
        "model_call_started",
        "model_call_finished",
        "run_finished",
    ]
    assert len(caplog.records) == 1
    assert recorder.events[0].run_id in caplog.records[0].getMessage()
    agent.run("?")
    assert received == ["run_started", "run_started"]


def test_a_subscription_can_choose_types_and_end(recorder: Any) -> None:
    """A subscription may name event types; a run keeps the subscribers that it started with."""
    chosen: list[str] = []
    unsubscribe = recorder.manager.subscribe(
        lambda event: chosen.append(event.type), "run_started", "run_finished"
    )
    recorder.manager.subscribe(lambda event: unsubscribe())
    agent = Agent("a", "Help.", says("yes"), event_manager=recorder.manager)
    agent.run("?")
    agent.run("?")
    assert chosen == ["run_started", "run_finished"]
    assert len(recorder.events) == 8
    assert len(recorder.manager.subscribers) == 2


def test_a_subscriber_of_all_runs(recorder: Any) -> None:
    """It gets each event once, those of nested runs included, of runs that begin until the subscription ends."""
    received: list[Event] = []
    model = ScriptedModel(ToolCall.of("inner", task="?"), "yes")
    inner = Agent("inner", "Help.", says("no"))
    outer = Conductor("outer", "Help.", model, [inner])
    unsubscribe = subscribe(received.append, "run_started", "run_finished")
    try:
        outer.run("?")
        Agent("alone", "Help.", says("yes")).run("?")
    finally:
        unsubscribe()
    Agent("late", "Help.", says("yes")).run("?")
    assert [(event.type, event.component) for event in received] == [
        ("run_started", "outer"),
        ("run_started", "inner"),
        ("run_finished", "inner"),
        ("run_finished", "outer"),
        ("run_started", "alone"),
        ("run_finished", "alone"),
    ]


def test_an_async_subscriber_is_refused() -> None:
    """What would have to be awaited is a ConfigurationError when it is given."""

    async def receive(event: Any) -> None: ...

    with pytest.raises(ConfigurationError, match="'on_token'"):
        Agent("a", "Help.", "offline/echo", on_token=receive)
    with pytest.raises(ConfigurationError, match="'subscriber'"):
        EventManager().subscribe(receive, "token")
    with pytest.raises(ConfigurationError, match="'subscriber'"):
        Agent("a", "Help.", "offline/echo").run("?", trace=True).replay(
            subscriber=receive
        )


def test_an_unknown_event_type_is_refused_with_a_suggestion() -> None:
    """A subscription to a misspelt event type is a ConfigurationError."""
    with pytest.raises(ConfigurationError, match="'tokn'") as caught:
        EventManager().subscribe(print, "tokn")
    assert caught.value.suggestion == "Did you mean 'token'?"


def test_verbose_prints_tools_failures_and_tokens(capsys: Any) -> None:
    """Tool calls, failures and tokens are printed without control characters, which could change the terminal."""

    def fail(word: str) -> str:
        """Fail."""
        raise ValueError("broken\x1b[31m")

    model = ScriptedModel(ToolCall.of("fail", word="x"))
    with pytest.raises(ToolError):
        Agent(
            "a",
            "Help.",
            model,
            tools=[fail],
            max_tool_retries=0,
            verbose=True,
        ).run("?")
    Agent("b", "Help.", says("one\x07 two"), verbose=True).run("?", stream=True)
    printed = capsys.readouterr().out
    assert '[a] calling fail({"word": "x"})' in printed
    assert "raised ValueError." in printed
    assert "[a] failed: " in printed
    assert "\none\ufffd two\n" in printed
    assert not {"\x1b", "\x07"} & set(printed)


def test_a_subscriber_is_called_once_for_an_event() -> None:
    """However often a run, its component and the runs around it name the subscriber."""
    received: list[str] = []

    def receive(event: Event) -> None:
        received.append(event.type)

    manager = EventManager()
    manager.subscribe(receive)
    agent = Agent("a", "Help.", says("yes"), event_manager=manager)
    asyncio.run(execute(agent, Task("hi"), subscribers=(receive, receive)))
    assert received.count("run_started") == 1
