"""Images that tools return: the model gets them as images, by each protocol in its own way."""

from __future__ import annotations

from typing import Any

import pytest
from tests.library.mcp_server import IMAGE, PIXEL, text

from podwright import Agent, ScriptedModel
from podwright.events import Event, ToolCallFinished, adapter
from podwright.journal.journal import Journal
from podwright.messages.messages import Message, ModelRequest
from podwright.models.offline.media_tokens import IMAGE_TOKENS
from podwright.models.offline.offline import estimate_message
from podwright.models.protocols import chat_completions, messages_request
from podwright.models.providers import Endpoint
from podwright.run.run import Task, execute
from podwright.testing import ToolCall

RUN = "0" * 32
LINK = {"type": "image_url", "image_url": {"url": "https://a.example/x.png"}}
CALLS = (ToolCall.of("draw", "1"), ToolCall.of("draw", "2"))
CONTENT: Any = (text("A pixel:"), IMAGE)
MESSAGES = (
    Message("user", "Draw."),
    Message("assistant", "", CALLS),
    Message("tool", CONTENT, tool_call_id="1"),
    Message("tool", "No image.", tool_call_id="2"),
)


def agent_with(result: object, *answers: object) -> Agent:
    """An agent with a tool that returns a result."""

    def draw() -> Any:
        """Draw something."""
        return result

    return Agent("artist", "Draw.", ScriptedModel(*answers), tools=[draw])


def contents(messages: Any) -> list[Any]:
    """What the model was told of its tool calls."""
    return [each["content"] for each in messages if each["role"] == "tool"]


@pytest.mark.parametrize(
    ("result", "content"),
    [
        (IMAGE, [IMAGE]),
        ([text("A pixel:"), IMAGE, LINK], [text("A pixel:"), IMAGE, LINK]),
        ([text("one"), text("two")], None),
        ({"type": "image_url", "image_url": {"url": "http://a/x.png"}}, None),
        ({"type": "image_url", "image_url": {"url": "file:///etc/x"}}, None),
        ([IMAGE, 7], None),
        ([IMAGE] * 101, None),
        ({"image": IMAGE}, None),
    ],
    ids=[
        "an image",
        "texts and images",
        "texts",
        "http",
        "a file",
        "another value",
        "too many",
        "inside data",
    ],
)
def test_a_python_tool(result: Any, content: Any) -> None:
    """An image, and a list of texts and images, reach the model as such; everything else is a text, as before."""
    agent = agent_with(result, [ToolCall.of("draw", "1")], "done")
    [told] = contents(agent.run("hi", trace=True).messages)
    if content is None:
        assert isinstance(told, str)
    else:
        assert told == content


async def test_it_is_recorded_and_replayed() -> None:
    """The event has the parts, and a new attempt gives the model the same ones."""
    agent = agent_with(
        [text("A pixel:"), IMAGE], [ToolCall.of("draw", "1")], "x"
    )
    recorded: list[Event] = []
    first = await execute(
        agent,
        Task("hi"),
        run_id=RUN,
        journal=Journal(),
        subscribers=(recorded.append,),
    )
    [end] = [each for each in recorded if isinstance(each, ToolCallFinished)]
    assert end.output == list(CONTENT)
    kept = [adapter().validate_python(each.to_dict()) for each in recorded]
    again = agent_with("not called", "x")
    index = kept.index(adapter().validate_python(end.to_dict()))
    second = await execute(
        again, Task("hi"), run_id=RUN, journal=Journal(kept[: index + 1])
    )
    assert contents(second.messages) == contents(first.messages)


def test_an_image_has_the_tokens_of_an_image() -> None:
    """Its data do not count as a text."""
    large = {"type": "image_url", "image_url": {"url": PIXEL + "A" * 400_000}}
    parts: Any = (large,)
    message = Message("tool", parts, tool_call_id="1")
    assert estimate_message(message) < 2 * IMAGE_TOKENS


def test_chat_completions() -> None:
    """The results are texts, right after their calls; the images follow in a message of the user."""
    body = chat_completions.request_body(
        ModelRequest("openai/gpt-5", (*MESSAGES, Message("user", "And?"))),
        "gpt-5",
        Endpoint(),
        provider="openai",
        stream=False,
    )
    roles = [each["role"] for each in body["messages"]]
    assert roles == ["user", "assistant", "tool", "tool", "user", "user"]
    first, second, images = body["messages"][2:5]
    assert first["content"].startswith("A pixel:")
    assert PIXEL not in first["content"]
    assert first["tool_call_id"] == "1"
    assert second["content"] == "No image."
    assert images["content"][-1] == IMAGE
    assert images["content"][0]["type"] == "text"


def test_chat_completions_at_the_end_of_the_messages() -> None:
    body = chat_completions.request_body(
        ModelRequest("openai/gpt-5", MESSAGES),
        "gpt-5",
        Endpoint(),
        provider="openai",
        stream=False,
    )
    assert body["messages"][-1]["role"] == "user"
    assert body["messages"][-1]["content"][-1] == IMAGE


def test_messages_of_anthropic() -> None:
    """The image is a part of the result itself."""
    body = messages_request.request_body(
        ModelRequest("anthropic/claude-sonnet-5", MESSAGES),
        "claude-sonnet-5",
        source="anthropic",
        stream=False,
    )
    results = body["messages"][-1]["content"]
    assert [each["type"] for each in results] == ["tool_result"] * 2
    assert results[0]["content"] == [
        {"type": "text", "text": "A pixel:"},
        {
            "type": "image",
            "source": {
                "type": "base64",
                "media_type": "image/png",
                "data": "iVBORw0KGgo=",
            },
        },
    ]
    assert results[1]["content"] == "No image."
