"""A function of the client that is forced is the form of the answer; other tools of clients are refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletion
from openai.types.responses import Response
from tests.service import open_responses
from tests.service.openai_support import (
    City,
    Thinker,
    events_of,
    post,
    sdk,
    user,
)
from tests.service.support import Serve, Served

from podwright import Agent, AgentStep, FunctionModel, Pipeline, Workflow
from podwright.components import Component
from podwright.testing import ModelRequest

BERN = {"name": "Bern", "country": "Switzerland"}
SCHEMA = City.model_json_schema()
PROTOCOLS = ("chat", "responses")


class Recorder:
    """A model that answers with a city, or repeats the user, and keeps what it was asked."""

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []

    def __call__(self, request: ModelRequest) -> str:
        self.requests.append(request)
        if request.output is None:
            return "fine"
        return json.dumps(BERN)

    def said(self) -> list[tuple[str, str]]:
        """Role and text of each message of the last request, without the system message."""
        messages = self.requests[-1].messages[1:]
        return [(message.role, message.text) for message in messages]


@pytest.fixture(scope="module")
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture(scope="module")
def service(served: Served, recorder: Recorder) -> Iterator[httpx.Client]:
    with served(Agent("helper", "Help.", FunctionModel(recorder))) as client:
        yield client


def function(protocol: str, name: str = "city", **more: Any) -> dict[str, Any]:
    """A tool as a protocol has it."""
    described = {"name": name, "parameters": SCHEMA, **more}
    if protocol == "chat":
        return {"type": "function", "function": described}
    return {"type": "function", **described}


def choice(protocol: str, kind: str) -> Any:
    """A `tool_choice`: a word, or "named"."""
    if kind != "named":
        return kind
    if protocol == "chat":
        return {"type": "function", "function": {"name": "city"}}
    return {"type": "function", "name": "city"}


def forced(protocol: str, kind: str = "named", **more: Any) -> dict[str, Any]:
    return {
        "tools": [function(protocol)],
        "tool_choice": choice(protocol, kind),
        **more,
    }


ENDS = {"named": "stop", "required": "tool_calls", "any": "tool_calls"}
"""Finish reasons, which are those of OpenAI."""


@pytest.mark.parametrize("kind", ENDS)
def test_the_answer_is_a_call(
    service: httpx.Client, recorder: Recorder, kind: str
) -> None:
    """Of Chat Completions, whole and in chunks; the model is given a schema, and no tool."""
    body = forced("chat", kind)
    whole = post(service, "chat", body).json()
    (answer,) = ChatCompletion.model_validate(whole).choices
    assert answer.finish_reason == ENDS[kind]
    assert answer.message.content is None
    assert answer.message.tool_calls is not None
    (call,) = answer.message.tool_calls
    assert call.type == "function"
    assert call.function.name == "city"
    assert json.loads(call.function.arguments) == BERN
    request = recorder.requests[-1]
    assert request.tools == ()
    assert request.output is not None
    assert request.output.schema["properties"] == SCHEMA["properties"]
    chunks = events_of(post(service, "chat", {**body, "stream": True}))
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
    assert {call["index"] for call in calls} == {0}
    assert calls[0]["id"].startswith("call_")
    assert [call["function"].get("name") for call in calls] == [
        "city",
        *[None] * (len(calls) - 1),
    ]
    arguments = "".join(call["function"]["arguments"] for call in calls)
    assert json.loads(arguments) == BERN
    assert all(delta.get("content") is None for delta in deltas)
    assert chunks[-1]["choices"][0]["finish_reason"] == ENDS[kind]


@pytest.mark.parametrize("kind", ENDS)
def test_the_answer_is_an_item(service: httpx.Client, kind: str) -> None:
    """Of Responses, whole and as events, as the Open Responses specification has them."""
    body = forced("responses", kind)
    whole = post(service, "responses", body).json()
    open_responses.check_response(whole)
    Response.model_validate(whole)
    (item,) = whole["output"]
    assert (item["type"], item["name"]) == ("function_call", "city")
    assert json.loads(item["arguments"]) == BERN
    assert [tool["name"] for tool in whole["tools"]] == ["city"]
    expected = "required"
    if kind == "named":
        expected = choice("responses", kind)
    assert whole["tool_choice"] == expected
    events = events_of(post(service, "responses", {**body, "stream": True}))
    open_responses.check_events(events)
    names = [event["type"].removeprefix("response.") for event in events]
    assert names[2:-1] == [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
    ]
    (last,) = events[-1]["response"]["output"]
    assert json.loads(last["arguments"]) == BERN
    assert events[3]["delta"] == events[4]["arguments"] == last["arguments"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_thoughts_come_before_the_call(serve: Serve, protocol: str) -> None:
    """As before a message."""
    parameters = {"type": "object", "properties": {"a": {"type": "integer"}}}
    tool = function(protocol, parameters=parameters)
    service = serve(Agent("helper", "", Thinker()), show_reasoning=True)
    body = {"tools": [tool], "tool_choice": "required"}
    whole = post(service, protocol, body).json()
    streamed = events_of(post(service, protocol, {**body, "stream": True}))
    if protocol == "chat":
        message = whole["choices"][0]["message"]
        assert message["reasoning_content"] == "I should look."
        deltas = [chunk["choices"][0]["delta"] for chunk in streamed]
        kinds = [
            key
            for delta in deltas
            for key in ("reasoning_content", "tool_calls")
            if key in delta
        ]
        assert kinds == sorted(kinds)
        assert set(kinds) == {"reasoning_content", "tool_calls"}
    else:
        open_responses.check_events(streamed)
        for response in (whole, streamed[-1]["response"]):
            kinds = [item["type"] for item in response["output"]]
            assert kinds == ["reasoning", "function_call"]


def called(protocol: str, arguments: str = '{"name": "B"}') -> Any:
    """An answer of an earlier turn, as a client sends it back."""
    if protocol == "chat":
        call = {
            "id": "c1",
            "type": "function",
            "function": {"name": "city", "arguments": arguments},
        }
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    return {
        "type": "function_call",
        "call_id": "c1",
        "name": "city",
        "arguments": arguments,
    }


def result(protocol: str, text: str) -> Any:
    """What became of it."""
    if protocol == "chat":
        return {"role": "tool", "tool_call_id": "c1", "content": text}
    return {"type": "function_call_output", "call_id": "c1", "output": text}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_turns_with_calls(
    service: httpx.Client, recorder: Recorder, protocol: str
) -> None:
    """An earlier call is an answer of the component, and what the client says of it is a message of the user."""
    key = {"chat": "messages", "responses": "input"}[protocol]
    first = [user("x"), called(protocol)]
    turns: dict[str, tuple[list[Any], list[tuple[str, str]]]] = {
        "a wrong answer": (
            [*first, result(protocol, "Wrong.")],
            [("user", "x"), ("assistant", '{"name": "B"}'), ("user", "Wrong.")],
        ),
        "a further question": (
            [*first, result(protocol, "Taken."), user("y")],
            [
                ("user", "x"),
                ("assistant", '{"name": "B"}'),
                ("user", "Taken."),
                ("user", "y"),
            ],
        ),
        "an empty result": (
            [*first, result(protocol, ""), user("y")],
            [("user", "x"), ("assistant", '{"name": "B"}'), ("user", "y")],
        ),
        "several": (
            [
                *first,
                result(protocol, "Wrong."),
                called(protocol, '{"name": "C"}'),
                result(protocol, "Still."),
            ],
            [
                ("user", "x"),
                ("assistant", '{"name": "B"}'),
                ("user", "Wrong."),
                ("assistant", '{"name": "C"}'),
                ("user", "Still."),
            ],
        ),
    }
    for name, (messages, expected) in turns.items():
        body = {**forced(protocol), key: messages}
        response = post(service, protocol, body)
        assert response.status_code == 200, (name, response.text)
        assert recorder.said() == expected, name


def test_a_text_before_a_call(
    service: httpx.Client, recorder: Recorder
) -> None:
    """Is a part of the answer, also if it is in parts."""
    for content in ("Well:", [{"type": "text", "text": "Well:"}]):
        answer = {**called("chat"), "content": content}
        messages = [user("x"), answer, result("chat", "Wrong.")]
        body = {**forced("chat"), "messages": messages}
        assert post(service, "chat", body).status_code == 200
        _, (role, text), _ = recorder.said()
        assert role == "assistant"
        assert text.split() == ["Well:", *'{"name": "B"}'.split()]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_thoughts_of_a_call_go_back(serve: Serve, protocol: str) -> None:
    """With the call, to the provider that they are from."""
    thinker = Thinker()
    parameters = {"type": "object", "properties": {"a": {"type": "integer"}}}
    tool = function(protocol, parameters=parameters)
    service = serve(Agent("helper", "", thinker), show_reasoning=True)
    body: dict[str, Any] = {"tools": [tool], "tool_choice": "required"}
    key = {"chat": "messages", "responses": "input"}[protocol]
    if protocol == "responses":
        body["include"] = ["reasoning.encrypted_content"]
    first = post(service, protocol, body).json()
    if protocol == "chat":
        answers = [first["choices"][0]["message"]]
        call_id = answers[0]["tool_calls"][0]["id"]
        item = {"role": "tool", "tool_call_id": call_id, "content": "Wrong."}
    else:
        answers = first["output"]
        call_id = answers[-1]["call_id"]
        item = {"type": "function_call_output", "call_id": call_id}
        item["output"] = "Wrong."
    turn = [user("x"), *answers, item]
    second = post(service, protocol, {**body, key: turn})
    assert second.status_code == 200, second.text
    roles = [message.role for message in thinker.requests[-1].messages]
    assert roles[-3:] == ["user", "assistant", "user"]
    assert json.loads(thinker.requests[-1].messages[-2].text) == {"a": 1}
    if protocol == "chat":
        fields = thinker.requests[-1].messages[-2].provider_fields
        assert fields == {"reasoning_content": "I should look."}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_calls_of_other_tools_stay(
    service: httpx.Client, recorder: Recorder, protocol: str
) -> None:
    """Those of the component's own tools, for example."""
    key = {"chat": "messages", "responses": "input"}[protocol]
    turn = [user("x"), called(protocol), result(protocol, "Found."), user("y")]
    other = {
        "tools": [function(protocol, "town")],
        "tool_choice": "required",
        key: turn,
    }
    assert post(service, protocol, other).status_code == 200
    assert [role for role, _ in recorder.said()] == [
        "user",
        "assistant",
        "tool",
        "user",
    ]
    without_answer = post(service, protocol, {**other, key: turn[:-1]})
    assert without_answer.status_code == 400


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_settings_of_the_clients_tools(
    service: httpx.Client, recorder: Recorder, protocol: str
) -> None:
    """Whether its tools are called in parallel says nothing to the component; a schema of the answer gives way."""
    schema = {"name": "other", "schema": {"type": "object"}}
    form: dict[str, Any] = {
        "response_format": {"type": "json_schema", "json_schema": schema}
    }
    if protocol == "responses":
        form = {"text": {"format": {"type": "json_schema", **schema}}}
    body = forced(protocol, parallel_tool_calls=False, **form)
    assert post(service, protocol, body).status_code == 200
    request = recorder.requests[-1]
    assert request.settings == {}
    assert request.output is not None
    assert request.output.schema["properties"] == SCHEMA["properties"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", ["required", "any", "auto", "none"])
def test_a_choice_without_tools_has_no_effect(
    service: httpx.Client, protocol: str, kind: str
) -> None:
    """There is nothing to call."""
    response = post(service, protocol, {"tool_choice": kind})
    assert response.status_code == 200
    assert "fine" in response.text


OTHERS: dict[str, tuple[list[Any], Any, str]] = {
    # tools, tool_choice, place of the problem
    "not forced": (["city"], "auto", "tools"),
    "not said": (["city"], None, "tools"),
    "none of them": (["city"], "none", "tools"),
    "two": (["city", "town"], "required", "tools"),
    "one of two by name": (["city", "town"], "named", "tools"),
    "another name": (["town"], "named", "tool_choice"),
    "a name without tools": ([], "named", "tool_choice"),
    "a tool of the provider": ([{"type": "web_search"}], "required", "tools"),
    "without a name": ([{"type": "function"}], "required", "tools"),
    "an empty name": ([""], "required", "tools"),
    "no tool": (["city", 5], "required", "tools"),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("case", OTHERS)
def test_other_tools_are_refused(
    service: httpx.Client, recorder: Recorder, case: str, protocol: str
) -> None:
    """Before a model is called."""
    names, kind, param = OTHERS[case]
    tools = [
        function(protocol, name) if isinstance(name, str) else name
        for name in names
    ]
    body = {"tools": tools, "tool_choice": kind and choice(protocol, kind)}
    before = len(recorder.requests)
    response = post(service, protocol, body)
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["code"], error["param"]) == ("request_invalid", param)
    assert len(recorder.requests) == before


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ({"type": "string"}, "request_invalid"),
        ("text", "request_invalid"),
        ({"type": "object", "properties": 5}, "input_invalid"),
        ({"$ref": "#/$defs/none"}, "request_invalid"),
        ([], "request_invalid"),
        (
            {"$ref": "#/$defs/a", "$defs": {"a": {"type": "array"}}},
            "request_invalid",
        ),
        (
            {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
            "input_invalid",
        ),
    ],
)
def test_wrong_parameters(
    service: httpx.Client, protocol: str, parameters: Any, code: str
) -> None:
    """The JSON Schema of the arguments is checked as that of an answer."""
    tool = function(protocol, parameters=parameters)
    body = {"tools": [tool], "tool_choice": "required"}
    response = post(service, protocol, body)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == code


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "parameters",
    [
        None,
        {},
        {"properties": {"name": {"type": "string"}}},
        {"$ref": "#/$defs/c", "$defs": {"c": SCHEMA}},
    ],
)
def test_short_parameters(
    service: httpx.Client, protocol: str, parameters: Any
) -> None:
    """Without a type, the arguments are an object all the same."""
    tool = function(protocol, parameters=parameters)
    body = {"tools": [tool], "tool_choice": "required"}
    response = post(service, protocol, body)
    assert response.status_code == 200, response.text
    assert json.dumps(json.dumps(BERN)) in response.text


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_workflow_gives_text(serve: Serve, protocol: str) -> None:
    """So it cannot give the arguments of a function; a pipeline can, if its last step can."""
    agent = Agent("agent", "Help.", FunctionModel(Recorder()))
    flow = serve(Workflow("helper", [AgentStep(agent)]))
    response = post(flow, protocol, forced(protocol))
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "tools"
    line: Component = Pipeline("helper", [agent, agent])
    answered = post(serve(line), protocol, forced(protocol))
    assert answered.status_code == 200
    assert json.dumps(json.dumps(BERN)) in answered.text


def test_openais_client_parses_the_call(service: httpx.Client) -> None:
    """Whole and streamed, with the helper of its library."""
    tool = openai.pydantic_function_tool(City)
    with sdk(service) as client:
        answer = client.chat.completions.parse(
            model="helper",
            messages=[user("x")],
            tools=[tool],
            tool_choice="required",
        )
        with client.chat.completions.stream(
            model="helper",
            messages=[user("x")],
            tools=[tool],
            tool_choice="required",
        ) as stream:
            streamed = stream.get_final_completion()
    for message in (answer.choices[0].message, streamed.choices[0].message):
        assert message.tool_calls
        assert message.tool_calls[0].function.parsed_arguments == City(**BERN)
