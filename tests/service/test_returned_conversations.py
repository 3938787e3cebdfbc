"""A conversation that was returned is one that is taken, on every route that takes one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from tests.library.test_history import look, scripts, written_out
from tests.service.support import Serve, Served, sse_events

from podwright import Agent, AgentStep, FunctionModel, ScriptedModel, Workflow
from podwright.client import Client
from podwright.messages.messages import ModelRequest, ModelResponse
from podwright.models import Model
from podwright.testing import ToolCall


class Listener(Model):
    """Answers with a text, and keeps what it was sent."""

    name = "offline/listener"

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []

    async def complete(
        self, request: ModelRequest, on_token: Any = None
    ) -> ModelResponse:
        self.requests.append(request)
        return ModelResponse("Yes.")


MODEL = Listener()


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[httpx.Client]:
    with served(Agent("guide", "Help.", MODEL, tools=[look])) as client:
        yield client


@settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.data_too_large,
        HealthCheck.too_slow,
    ],
)
@given(scripts())
def test_a_returned_conversation_is_taken(
    client: httpx.Client, script: list[tuple[str, list[ModelResponse]]]
) -> None:
    """Whatever ids, texts and further fields a provider made, the routes take it, and give it to the model."""
    messages: list[dict[str, Any]] = []
    for text, responses in script:
        agent = Agent("guide", "Help.", ScriptedModel(*responses), tools=[look])
        messages = agent.run(text, trace=True, messages=messages).messages
    assert messages == written_out(script)
    asked = [*messages, {"role": "user", "content": "And now?"}]
    native = {"input": "And now?", "messages": messages}
    sent: list[Any] = []
    for path, body in (
        ("/run", native),
        ("/run/stream", native),
        ("/v1/chat/completions", {"model": "guide", "messages": asked}),
    ):
        response = client.post(path, json=body)
        assert response.status_code == 200, response.text
        assert "event: problem" not in response.text
        sent.append(MODEL.requests[-1].messages)
    assert sent[0] == sent[1]
    assert [message.text for message in sent[2]] == [
        message.text for message in sent[0]
    ]
    assert [message.tool_calls for message in sent[2]] == [
        message.tool_calls for message in sent[0]
    ]


def _searching(request: ModelRequest) -> Any:
    """Call the tool with the question, and answer with its result."""
    last = request.messages[-1]
    if last.role == "tool":
        return f"It is {last.text}."
    return [ToolCall.of("look", f"call {last.text}", word=last.text)]


def test_a_workflow_in_a_conversation(serve: Serve) -> None:
    """Who may run it gets what its answering agent did, for the next turn, on each route; of the others, nothing."""
    key = "k" * 20
    guide = Agent("guide", "Help.", FunctionModel(_searching), tools=[look])
    inside = AgentStep(guide, "inside", input="secret")
    last = AgentStep(guide, "last", input="{input}", conversation=True)
    client = serve(Workflow("flow", [inside, last]), api_keys=f"run:{key}")
    client.headers["authorization"] = f"Bearer {key}"
    body = {"input": "moon"}
    traced = client.post("/run?trace=true", json=body).json()
    roles = [message["role"] for message in traced["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant"]
    assert traced["messages"][2]["content"] == "moon: found"
    # in the events, what steps are told stays hidden
    called = '{"word": "%s"}'
    assert called % "moon" in str(traced["messages"])
    assert called % "moon" not in str(traced["events"])
    assert called % "secret" not in str(traced)
    with client.stream("POST", "/run/stream?trace=true", json=body) as stream:
        *_, (_, name, streamed) = sse_events(stream.iter_lines())
    assert name == "result"
    assert streamed["messages"] == traced["messages"]
    chat = Client(str(client.base_url), api_key=key).conversation()
    for word in ("moon", "sun"):
        chat.send(word)
    assert [message["role"] for message in chat.messages] == roles * 2
    assert chat.messages[:4] == traced["messages"]
