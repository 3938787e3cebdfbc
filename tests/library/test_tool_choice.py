"""Which tool a model calls, where its work ends, and the parameters that only its provider has."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from tests.library.shapes import AGENT, CONDUCTOR, Json

from podwright import Agent, Conductor, tool
from podwright.blueprints import problems
from podwright.data.json_data import as_object
from podwright.errors import DECISION, ApprovalRequired
from podwright.messages.messages import Message, ModelRequest, OutputSchema
from podwright.models.base import Connection
from podwright.models.protocols.answer_tool import with_answer_tool
from podwright.models.protocols.anthropic import MessagesModel
from podwright.models.protocols.chat_completions import request_body
from podwright.models.providers import ANY, ENDPOINTS
from podwright.testing import ScriptedModel, ToolCall

LOOK = ToolCall.of("look", word="fig")
QUOTE = ToolCall.of("quote", "2", word="fig")


def look(word: str) -> str:
    """Look a word up."""
    return f"{word}: found"


def quote(word: str) -> str:
    """Give a price."""
    if word == "fog":
        raise LookupError(word)
    return f"{word}: 3 EUR"


def choices(model: ScriptedModel) -> list[str | None]:
    return [request.tool_choice for request in model.requests]


@pytest.mark.parametrize(
    ("choice", "first", "later"),
    [
        ("auto", None, None),
        ("required", "required", None),
        ("quote", "quote", None),
        ("none", "none", "none"),
    ],
)
def test_a_choice_holds_until_a_tool_was_called(
    choice: str, first: str | None, later: str | None
) -> None:
    model = ScriptedModel([LOOK], [QUOTE], "done")
    agent = Agent("a", "", model, tools=[look, quote], tool_choice=choice)
    assert agent.run("hi") == "done"
    assert choices(model) == [first, later, later]
    again = Agent.from_blueprint(agent.to_blueprint(), [look, quote])
    assert again.to_blueprint() == agent.to_blueprint()


def test_a_conductor_chooses_a_skill() -> None:
    skill = Agent("Größe", "", ScriptedModel("large"))
    model = ScriptedModel([ToolCall.of("Grosse", task="size")], "large")
    chief = Conductor("chief", "", model, [skill], tool_choice="Grosse")
    assert chief.run("hi") == "large"
    assert choices(model) == ["Grosse", None]


@pytest.mark.parametrize("stop", ["quote", ["quote"], ["look", "quote"]])
def test_the_result_of_a_tool_is_the_answer(stop: Any) -> None:
    model = ScriptedModel([QUOTE])
    agent = Agent("a", "", model, tools=[look, quote], stop_at=stop)
    result = agent.run("hi", trace=True)
    assert result.value == "fig: 3 EUR"
    assert result.finish_reason == "stop"
    assert [message["role"] for message in result.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert result.messages[-1]["content"] == "fig: 3 EUR"


def test_an_image_as_the_answer_is_named_in_its_text() -> None:
    """The answer is a text, and an empty one would say that there is nothing."""

    def draw() -> dict[str, Any]:
        """Draw."""
        return {"type": "image_url", "image_url": {"url": "https://x/y.png"}}

    model = ScriptedModel([ToolCall.of("draw")])
    agent = Agent("a", "", model, tools=[draw], stop_at="draw")
    assert agent.run("hi") == "[image]"


def test_only_a_result_is_an_answer() -> None:
    wrong = ToolCall.of("quote", word="fog")
    model = ScriptedModel([wrong], [ToolCall.of("quote", "3")], [QUOTE])
    agent = Agent("a", "", model, tools=[quote], stop_at="quote")
    assert agent.run("hi") == "fig: 3 EUR"
    assert len(model.requests) == 3


def test_a_rejected_call_is_no_answer() -> None:
    model = ScriptedModel([QUOTE], "It was rejected.")

    @tool(approval=True)
    def quote(word: str) -> str:
        """Give a price."""
        return f"{word}: 3 EUR"

    agent = Agent("a", "", model, tools=[quote], stop_at="quote")
    with pytest.raises(ApprovalRequired) as caught:
        agent.run("hi")
    rejected = {
        **as_object(caught.value.context),
        DECISION: {"decision": "reject"},
    }
    assert agent.run(rejected) == "It was rejected."


class Price(BaseModel):
    """A price."""

    amount: int


@pytest.mark.parametrize("again", [False, True], ids=["once", "replayed"])
def test_a_changed_call_is_an_answer(again: bool) -> None:
    """Its result is, without the sentence that the model is told beside it: also where a new attempt replays it."""

    @tool(approval=True)
    def price(amount: int) -> dict[str, Any]:
        """Give a price."""
        return {"amount": amount}

    @tool(approval=True)
    def send(to: str) -> str:
        """Send it."""
        return "sent"

    calls = [ToolCall.of("price", amount=2)]
    if again:
        calls.append(ToolCall.of("send", "2", to="Ada"))
    agent = Agent(
        "a",
        "",
        ScriptedModel(calls),
        tools=[price, send],
        stop_at="price",
        response_model=Price,
    )
    with pytest.raises(ApprovalRequired) as caught:
        agent.run("hi")
    decision: Json = {"decision": "approve", "values": {"amount": 3}}
    if again:
        changed = {**as_object(caught.value.context), DECISION: decision}
        with pytest.raises(ApprovalRequired) as caught:
            agent.run(changed)
        decision = {"decision": "approve"}
    approved = {**as_object(caught.value.context), DECISION: decision}
    result = agent.run(approved, trace=True)
    assert result.value == Price(amount=3)
    assert "changed" in result.messages[2]["content"]


def test_a_result_has_to_fit_the_schema_of_the_answer() -> None:
    def price(word: str) -> dict[str, Any]:
        """Give a price."""
        return {"amount": 3} if word == "fig" else {"sum": 3}

    calls = [[ToolCall.of("price", word=word)] for word in ("fog", "fig")]
    model = ScriptedModel(*calls)
    agent = Agent(
        "a", "", model, tools=[price], stop_at="price", response_model=Price
    )
    assert agent.run("hi") == Price(amount=3)
    last = model.requests[-1].messages[-1]
    assert last.role == "user"
    assert "does not fit the schema" in last.text


def with_config(blueprint: Json, **config: Any) -> Json:
    return {**blueprint, "config": {**blueprint["config"], **config}}


@pytest.mark.parametrize(
    ("blueprint", "config", "pointer", "hint"),
    [
        (AGENT, {"tool_choice": "forcast"}, "tool_choice", "'forecast'"),
        (AGENT, {"stop_at": ["forcast"]}, "stop_at/0", "'forecast'"),
        (AGENT, {"stop_at": "x"}, "stop_at", "forecast"),
        ({**AGENT, "tools": []}, {"tool_choice": "required"}, "tool_choice", ""),
        (CONDUCTOR, {"tool_choice": "writr"}, "tool_choice", "'writer'"),
        (AGENT, {"parameters": {"temperature": 1}}, "parameters/temperature", "beside"),
        (AGENT, {"parameters": {"messages": []}}, "parameters/messages", "Remove"),
        (AGENT, {"parameters": {"maxOutputTokens": 9}}, "parameters/maxOutputTokens", "Remove"),
        (AGENT, {"parameters": {"topP": 1}}, "parameters/topP", "beside"),
        (AGENT, {"parameters": {"api_base": "x"}}, "parameters/api_base", "environment"),
        (
            AGENT,
            {"parameters": {"extra_body": {"google": {"api_key": "x"}}}},
            "parameters/extra_body/google/api_key",
            "environment",
        ),
        (
            AGENT,
            {"parameters": {"extra_body": [{"model": "dear"}]}},
            "parameters/extra_body",
            "environment",
        ),
        (
            AGENT,
            {"parameters": {"extra_body": {"model": "dear"}}},
            "parameters/extra_body/model",
            "Remove",
        ),
    ],
)  # fmt: skip
def test_what_names_no_tool_or_no_parameter_is_a_problem(
    blueprint: Json, config: Json, pointer: str, hint: str
) -> None:
    (problem,) = problems(with_config(blueprint, **config))
    assert problem.pointer == f"/config/{pointer}"
    assert hint in problem.suggestion


@pytest.mark.parametrize(
    "blueprint",
    [
        with_config(AGENT, tool_choice="forecast", stop_at="forecast"),
        with_config(CONDUCTOR, tool_choice="revise_plan"),
        with_config(
            AGENT,
            parameters={
                "top_k": 3,
                "service_tier": "flex",
                "verbosity": "low",
                "safety_settings": [{"category": "x", "threshold": "y"}],
                "extra_body": {"google": {"thinking_config": {}}},
            },
        ),
    ],
)
def test_what_names_them_is_none(blueprint: Json) -> None:
    assert problems(blueprint) == []


def request(**fields: Any) -> ModelRequest:
    tools = (Agent("a", "", "offline/x", [look]).tools["look"].schema,)
    return ModelRequest(
        "x/m", (Message("user", "hi"),), **{"tools": tools, **fields}
    )


def bodies(request: ModelRequest) -> tuple[Json, Json]:
    """The bodies in OpenAI's protocol, and in Anthropic's."""
    claude = MessagesModel(
        "anthropic/claude-sonnet-4-5", Connection(), ENDPOINTS["anthropic"]
    )
    chat = request_body(request, "m", ANY, provider="x", stream=False)
    return chat, claude.body(request, stream=False)


@pytest.mark.parametrize(
    ("choice", "in_chat", "in_messages"),
    [
        ("required", "required", {"type": "any"}),
        ("none", "none", {"type": "none"}),
        (
            "look",
            {"type": "function", "function": {"name": "look"}},
            {"type": "tool", "name": "look"},
        ),
    ],
)
def test_each_protocol_has_its_words(
    choice: str, in_chat: Any, in_messages: Any
) -> None:
    chat, messages = bodies(request(tool_choice=choice))
    assert chat["tool_choice"] == in_chat
    assert messages["tool_choice"] == in_messages


def test_parameters_are_sent_as_they_are() -> None:
    parameters = {"top_k": 3, "service_tier": "flex"}
    for body in bodies(request(settings={"parameters": parameters})):
        assert body["top_k"] == 3
        assert body["service_tier"] == "flex"
        assert "parameters" not in body


def test_a_tool_that_must_be_called_comes_before_the_answer() -> None:
    agent = Agent("a", "", "offline/x", response_model=Price)
    schema = agent.to_blueprint()["config"]["response_schema"]
    output = OutputSchema("answer", schema)
    changed, name = with_answer_tool(
        request(output=output, tool_choice="required")
    )
    assert (len(changed.tools), changed.output, name) == (1, None, "")
    changed, name = with_answer_tool(request(output=output, tool_choice="none"))
    assert [tool["function"]["name"] for tool in changed.tools] == [name]
    assert changed.tool_choice is None


@pytest.mark.parametrize(
    ("provider", "strict", "expected"),
    [
        ("openai", None, True),
        ("openai", False, False),
        ("groq", None, None),
    ],
)
def test_tools_are_strict_where_that_means_the_same(
    provider: str, strict: bool | None, expected: bool | None
) -> None:
    schema = request().tools[0]
    if strict is not None:
        function = {**schema["function"], "strict": strict}
        schema = {"type": "function", "function": function}
    body = request_body(
        request(tools=(schema,)),
        "m",
        ENDPOINTS[provider],
        provider=provider,
        stream=False,
    )
    assert body["tools"][0]["function"].get("strict") == expected
