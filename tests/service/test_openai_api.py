"""The OpenAI-compatible routes, called by the clients that people have."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response
from tests.service import open_responses
from tests.service.openai_support import (
    KEY,
    USED,
    City,
    Clerk,
    events_of,
    helper,
    sdk,
    user,
)
from tests.service.support import Serve

from podwright import (
    Agent,
    AgentStep,
    Conductor,
    FunctionModel,
    Pipeline,
    Workflow,
)
from podwright_service.testing import Metrics


@pytest.fixture
def clerk() -> Clerk:
    return Clerk()


@pytest.fixture
def service(serve: Serve, clerk: Clerk) -> httpx.Client:
    """A service with an API key, whose model answers as a clerk."""
    return serve(helper(clerk), api_keys=[f"run+read:{KEY}"])


@pytest.fixture
def client(service: httpx.Client) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{service.base_url}/v1", api_key=KEY, max_retries=0
    ) as client:
        yield client


def counted(service: httpx.Client) -> Metrics:
    return Metrics(
        service.get("/metrics", headers={"authorization": f"Bearer {KEY}"}).text
    )


def test_a_conversation(client: openai.OpenAI, clerk: Clerk) -> None:
    """Earlier turns reach the model; the system message stays the blueprint's, and a client's follows as a user's."""
    assert [model.id for model in client.models.list()] == ["helper"]
    messages: list[Any] = [
        {"role": "developer", "content": "Be brief."},
        user("Hello"),
    ]
    first = client.chat.completions.create(
        model="helper", messages=messages, metadata={"language": "German"}
    )
    assert first.choices[0].message.content == "You said: Be brief., Hello"
    messages += [first.choices[0].message, user("And then?")]
    second = client.chat.completions.create(model="helper", messages=messages)
    assert (
        second.choices[0].message.content
        == "You said: Be brief., Hello, And then?"
    )
    assert [request.messages[0].text for request in clerk.requests] == [
        "Help in German.",
        "Help in English.",
    ]
    assert [message.role for message in clerk.requests[1].messages] == [
        "system",
        "user",
        "user",
        "assistant",
        "user",
    ]


PROTOCOLS = {
    "chat/completions": {"messages": [user("x")]},
    "responses": {"input": "x"},
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_an_answer_has_its_usage(
    service: httpx.Client, protocol: str, streamed: bool
) -> None:
    """An answer of each route, or the last event of its stream, has the tokens of each type and the cost."""
    options = (
        {"stream_options": {"include_usage": True}}
        if streamed and protocol == "chat/completions"
        else {}
    )
    body = {
        "model": "helper",
        "stream": streamed,
        **PROTOCOLS[protocol],
        **options,
    }
    response = service.post(
        f"/v1/{protocol}", json=body, headers={"authorization": f"Bearer {KEY}"}
    )
    last = events_of(response)[-1] if streamed else response.json()
    usage = last.get("response", last)["usage"]
    sent, produced = (
        ("prompt", "completion")
        if protocol == "chat/completions"
        else ("input", "output")
    )
    assert usage[f"{sent}_tokens"] == USED.input_tokens
    assert usage[f"{produced}_tokens"] == USED.output_tokens
    assert (
        usage[f"{sent}_tokens_details"]["cached_tokens"]
        == USED.cached_input_tokens
    )
    assert (
        usage[f"{produced}_tokens_details"]["reasoning_tokens"]
        == USED.reasoning_tokens
    )
    assert usage["cost"] == USED.cost


def test_streams(client: openai.OpenAI, service: httpx.Client) -> None:
    """The pieces of a streamed answer, also what the model says before it calls a tool, arrive in order."""
    with client.chat.completions.stream(
        model="helper", messages=[user("search")]
    ) as stream:
        pieces = [
            event.delta for event in stream if event.type == "content.delta"
        ]
        content = stream.get_final_completion().choices[0].message.content
    assert "".join(pieces) == content == "Let me look.\n\nYou said: search"
    assert len(pieces) > 4
    with client.responses.stream(model="helper", input="search") as events:
        deltas = [
            event.delta
            for event in events
            if event.type == "response.output_text.delta"
        ]
        assert (
            "".join(deltas)
            == content
            == events.get_final_response().output_text
        )
    response = service.post(
        "/v1/chat/completions",
        json={"model": "helper", "messages": [user("x")], "stream": True},
        headers={"authorization": f"Bearer {KEY}"},
    )
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.text.endswith("data: [DONE]\n\n")
    for chunk in events_of(response):
        ChatCompletionChunk.model_validate(chunk)
        assert chunk["id"] == f"chatcmpl-{response.headers['podwright-run-id']}"


def test_structured_output(client: openai.OpenAI, serve: Serve) -> None:
    """A JSON Schema is the response model; streamed too, the answer is JSON that fits, also if it is only a string."""
    bern = City(name="Bern", country="Switzerland")
    chat = client.chat.completions.parse(
        model="helper", messages=[user("?")], response_format=City
    )
    assert chat.choices[0].message.parsed == bern
    assert (
        client.responses.parse(
            model="helper", input="?", text_format=City
        ).output_parsed
        == bern
    )
    with client.chat.completions.stream(
        model="helper", messages=[user("?")], response_format=City
    ) as stream:
        assert stream.get_final_completion().choices[0].message.parsed == bern
    answer = client.chat.completions.create(
        model="helper",
        messages=[user("?")],
        response_format={"type": "json_object"},
    )
    assert (
        json.loads(answer.choices[0].message.content or "") == bern.model_dump()
    )
    choice = serve(
        Agent("choice", "", FunctionModel(lambda _: '{"answer": "yes"}'))
    )
    form = {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": {"enum": ["yes", "no"]}},
    }
    body = {"model": "choice", "messages": [user("?")], "response_format": form}
    assert (
        choice.post("/v1/chat/completions", json=body).json()["choices"][0][
            "message"
        ]["content"]
        == '"yes"'
    )


def test_settings_of_the_client(
    client: openai.OpenAI, clerk: Clerk, serve: Serve
) -> None:
    """Settings reach the model within the blueprint's cap, and an answer that is cut off says so."""
    answer = client.chat.completions.create(
        model="helper",
        messages=[user("x")],
        temperature=0.5,
        seed=7,
        stop=["."],
        max_completion_tokens=15,
    )
    assert clerk.requests[-1].settings == {
        "temperature": 0.5,
        "seed": 7,
        "stop": ["."],
        "max_tokens": 15,
    }
    assert (
        answer.choices[0].finish_reason,
        answer.choices[0].message.content,
    ) == (
        "length",
        "The answer",
    )
    cut = client.responses.create(
        model="helper",
        input="x",
        max_output_tokens=16,
        reasoning={"effort": "low"},
    )
    assert (cut.status, cut.output_text) == ("incomplete", "The answer")
    assert clerk.requests[-1].settings == {
        "max_tokens": 16,
        "reasoning_effort": "low",
    }
    careful = Agent(
        "careful", "", FunctionModel(clerk), max_tokens=50, temperature=0.1
    )
    with sdk(serve(careful)) as other:
        other.chat.completions.create(
            model="careful", messages=[user("x")], max_tokens=90, temperature=1
        )
        assert clerk.requests[-1].settings == {
            "max_tokens": 50,
            "temperature": 1,
        }
        other.chat.completions.create(
            model="careful",
            messages=[user("x")],
            max_tokens=9,
            max_completion_tokens=40,
        )
        assert clerk.requests[-1].settings.get("max_tokens") == 9
    service = serve(careful, openai_settings=False)
    body = {
        "model": "careful",
        "input": "x",
        "max_output_tokens": 9,
        "reasoning": {"effort": "low"},
    }
    error = service.post("/v1/responses", json=body).json()["error"]
    assert error["code"] == "request_invalid"
    assert [entry["pointer"] for entry in error["errors"]] == [
        "/max_output_tokens",
        "/reasoning/effort",
    ]


def test_instructions_of_the_client(clerk: Clerk, serve: Serve) -> None:
    """A client's instructions, wherever they are, follow the component's own, and are not cut with old turns."""
    with sdk(
        serve(Agent("helper", "Help.", FunctionModel(clerk), max_history=1))
    ) as client:
        system: Any = {"role": "system", "content": "Be brief."}
        late: Any = {
            "role": "developer",
            "content": [{"type": "text", "text": "Be kind."}],
        }
        answer: Any = {"role": "assistant", "content": "z"}
        messages: list[Any] = [
            system,
            user("a"),
            answer,
            user("b"),
            answer,
            user("c"),
            late,
        ]
        client.chat.completions.create(model="helper", messages=messages)
        late = {
            "role": "developer",
            "content": [{"type": "input_text", "text": "Be kind."}],
        }
        items: list[Any] = [
            user("a"),
            answer,
            user("b"),
            answer,
            late,
            user("c"),
        ]
        client.responses.create(
            model="helper", instructions="Be brief.", input=items
        )
    for request in clerk.requests:
        assert [message.text for message in request.messages] == [
            "Help.",
            "Be brief.\n\nBe kind.",
            "b",
            "z",
            "c",
        ]


def test_errors_are_those_of_the_client_library(
    client: openai.OpenAI, service: httpx.Client
) -> None:
    """Each error is the class that the client has for it; a run that failed is not repeated by the client."""
    chat = client.chat.completions
    with pytest.raises(openai.BadRequestError):
        chat.create(model="helper", messages=[user("x")], n=2)
    with pytest.raises(openai.NotFoundError, match="no model 'gpt'"):
        chat.create(model="gpt", messages=[user("x")])
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="a-wrong-key-0123456789").models.list()
    with pytest.raises(openai.InternalServerError) as caught:
        client.with_options(max_retries=2).chat.completions.create(
            model="helper", messages=[user("fail")]
        )
    assert (caught.value.status_code, caught.value.code) == (
        502,
        "model_unavailable",
    )
    assert caught.value.response.headers["podwright-run-id"]
    assert counted(service).get("podwright_runs_total", status="failed") == 1
    with pytest.raises(openai.InternalServerError) as limited:
        chat.create(model="helper", messages=[user("wait")])
    assert (
        limited.value.status_code,
        limited.value.response.headers["retry-after"],
    ) == (503, "1")
    with pytest.raises(openai.APIError, match="provider is down") as late:
        list(chat.create(model="helper", messages=[user("fail")], stream=True))
    assert late.value.code == "model_unavailable"
    events = list(
        client.responses.create(model="helper", input="fail", stream=True)
    )
    assert events[-1].type == "response.failed"
    assert events[-1].response.error is not None
    assert events[-1].response.error.code == "model_unavailable"
    assert events[-1].response.usage is not None
    response = service.get(
        "/v1/responses",
        headers={"authorization": f"Bearer {KEY}", "upgrade": "websocket"},
    )
    assert (response.status_code, response.headers["allow"]) == (405, "POST")
    assert "WebSocket" in response.json()["error"]["message"]


def test_the_published_schema(
    client: openai.OpenAI, service: httpx.Client
) -> None:
    """Each response and each streamed event of Responses is as the Open Responses specification says."""
    headers = {"authorization": f"Bearer {KEY}"}
    schema = {
        "type": "json_schema",
        "name": "city",
        "schema": City.model_json_schema(),
        "strict": True,
    }
    bodies: list[dict[str, Any]] = [
        {
            "input": "x",
            "instructions": "Be brief.",
            "metadata": {"team": "a"},
            "temperature": 0.5,
        },
        {
            "input": [
                user("x"),
                {"role": "assistant", "content": "y"},
                {"type": "message", **user("search")},
            ]
        },
        {"input": "?", "text": {"format": schema}},
        {"input": "?", "text": {"format": {"type": "json_object"}}},
        {"input": "x", "max_output_tokens": 16, "reasoning": {"effort": "low"}},
        {"input": "fail"},
    ]
    for body in bodies:
        whole = service.post(
            "/v1/responses", json={"model": "helper", **body}, headers=headers
        )
        if body["input"] != "fail":
            open_responses.check_response(whole.json())
            # where the specification and OpenAI's types differ
            if body.get("text") != {"format": schema}:
                Response.model_validate(whole.json())
        streamed = service.post(
            "/v1/responses",
            json={"model": "helper", "stream": True, **body},
            headers=headers,
        )
        open_responses.check_events(events_of(streamed))
        assert streamed.text.endswith("\ndata: [DONE]\n\n")
    chat = {"model": "helper", "messages": [user("x")]}
    ChatCompletion.model_validate(
        service.post("/v1/chat/completions", json=chat, headers=headers).json()
    )


def test_items_of_a_conversation(client: openai.OpenAI, clerk: Clerk) -> None:
    """Function calls and their outputs, texts and images of earlier items reach the model."""
    image = "data:image/png;base64,AAAA"
    items: list[Any] = [
        user("search"),
        {
            "type": "function_call",
            "call_id": "c1",
            "name": "search",
            "arguments": "{}",
        },
        {
            "type": "function_call",
            "call_id": "c2",
            "name": "search",
            "arguments": "{}",
        },
        {"type": "function_call_output", "call_id": "c1", "output": "one"},
        {
            "type": "function_call_output",
            "call_id": "c2",
            "output": [{"type": "input_text", "text": "two"}],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "output_text", "text": "Both.", "annotations": []}
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "See"},
                {"type": "input_image", "image_url": image},
            ],
        },
    ]
    client.responses.create(model="helper", input=items)
    _, *messages = clerk.requests[0].messages
    assert [message.role for message in messages] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
        "user",
    ]
    assert [call.id for call in messages[1].tool_calls] == ["c1", "c2"]
    assert [message.text for message in messages] == [
        "search",
        "",
        "one",
        "two",
        "Both.",
        "See",
    ]
    part: Any = messages[-1].content[1]
    assert part["image_url"]["url"] == image
    content: Any = [
        {"type": "text", "text": "See"},
        {"type": "image_url", "image_url": {"url": image}},
    ]
    client.chat.completions.create(
        model="helper", messages=[{"role": "user", "content": content}]
    )
    assert clerk.requests[1].messages[-1].content == tuple(content)


def test_other_kinds(serve: Serve, clerk: Clerk) -> None:
    """A workflow answers with its last output and takes named inputs; a conductor answers without its plan."""
    writer = Agent(
        "writer",
        "Write about {topic}.",
        FunctionModel(clerk),
        inputs={"topic": {"type": "string", "default": "the sun"}},
    )
    flow = Workflow(
        "flow",
        [
            AgentStep(writer, "first", conversation=True),
            AgentStep(writer, "second", input="again"),
        ],
    )
    with sdk(serve(flow)) as client:
        answer = client.chat.completions.create(
            model="flow",
            messages=[user("go")],
            metadata={"topic": "moon", "trace": "t"},
        )
        assert answer.choices[0].message.content == "You said: again"
        assert clerk.requests[0].messages[0].text == "Write about moon."
        assert "trace" not in clerk.requests[0].messages[-1].text
        with client.responses.stream(model="flow", input="go") as events:
            assert events.get_final_response().output_text == "You said: again"
        clerk.requests.clear()
        client.chat.completions.create(
            model="flow",
            messages=[
                user("a"),
                {"role": "assistant", "content": "b"},
                user("c"),
            ],
        )
        assert [len(request.messages) for request in clerk.requests] == [4, 2]
        with pytest.raises(openai.BadRequestError, match="temperature"):
            client.chat.completions.create(
                model="flow", messages=[user("a")], temperature=1
            )
        with pytest.raises(openai.BadRequestError, match="'instructions'"):
            client.responses.create(
                model="flow", input="a", instructions="Be brief."
            )
        with pytest.raises(openai.BadRequestError, match=r"'text\.format'"):
            client.responses.parse(model="flow", input="a", text_format=City)
    line = Pipeline("line", [writer, writer])
    with sdk(serve(line)) as client:
        assert (
            client.responses.create(model="line", input="go").output_text
            == "You said: You said: go"
        )
    service = serve(
        Conductor("lead", "Lead.", "offline/echo", [writer], planning=True)
    )
    body = {"model": "lead", "messages": [user("go")], "stream": True}
    chunks = events_of(service.post("/v1/chat/completions", json=body))
    text = "".join(
        chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks
    )
    assert text.startswith("Echo: go")


def test_a_service_without_these_routes(serve: Serve) -> None:
    """The routes can be turned off."""
    service = serve(Agent("helper", "", "offline/echo"), openai_routes=False)
    assert service.get("/v1/models").status_code == 404
    assert not [
        path
        for path in service.get("/openapi.json").json()["paths"]
        if path.startswith("/v1")
    ]
    assert service.get("/info").json()["openai"] is False
