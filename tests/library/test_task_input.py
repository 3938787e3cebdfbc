"""The input of a task as a value."""

from typing import Any

import pytest

from podwright import Agent
from podwright.errors import ContextError, MessagesError, PodwrightError
from podwright.messages.task_input import TaskInput

TEXT = {"type": "text", "text": "Look."}
IMAGE = {"type": "image_url", "image_url": {"url": "https://x.test/a.png"}}


@pytest.mark.parametrize(
    ("data", "content", "named"),
    [
        ("Hello.", "Hello.", {"input": "Hello."}),
        ({"a": 1, "b": [2]}, None, {"a": 1, "b": [2]}),
        ([TEXT, TEXT], "Look.\nLook.", {"input": "Look.\nLook."}),
        ([TEXT, IMAGE], (TEXT, IMAGE), {"input": "Look."}),
    ],
)
def test_an_input_is_a_text_named_inputs_or_texts_and_images(
    data: Any, content: object, named: object
) -> None:
    """Each has a content or none, and the values that templates read."""
    given = TaskInput.parse(data)
    assert given.content == content
    assert given.named == named


def test_named_inputs_that_the_instructions_use_are_not_repeated() -> None:
    """Images are, because instructions have none."""
    given = TaskInput.parse({"tone": "dry", "topic": "tea", "photo": [IMAGE]})
    message = given.message("Be {tone} about {photo}.")
    assert "dry" not in message.text
    assert "tea" in message.text
    assert IMAGE in list(message.content)


def test_a_text_is_the_message_though_the_instructions_use_it() -> None:
    """A chat needs a message of the user."""
    given = TaskInput.parse("tea")
    assert given.message("Write about {input}.").content == "tea"


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (5, ContextError),
        ({}, ContextError),
        ({1: "x"}, ContextError),
        ({"x": b"\xff"}, ContextError),
        ("\ud800", ContextError),
        ([{"type": "video"}], MessagesError),
    ],
)
def test_a_wrong_input_fails_the_run(
    recorder: Any, data: Any, error: type[PodwrightError]
) -> None:
    """The error is one of a run that has started, so that it is observed."""
    agent = Agent(
        "guide", "Guide.", "offline/echo", event_manager=recorder.manager
    )
    with pytest.raises(error):
        agent.run(data)
    assert recorder.types() == ["run_started", "run_failed"]
