"""The OpenAI-compatible routes, called by the clients that people have."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response
from pydantic import BaseModel, SecretStr
from tests.service import open_responses
from tests.service.support import Serve

from podwright import Agent, AgentStep, Conductor, FunctionModel, Pipeline, Usage, Workflow
from podwright.errors import ModelRateLimitError, ModelUnavailableError
from podwright.models.retries import Retries
from podwright.testing import ModelRequest, ModelResponse, ToolCall
from podwright_service.testing import Metrics

KEY = "a-key-of-a-client-0001"
USED = Usage(100, 10, 40, 4, cost=0.001, cache_write_tokens=20)


def search(query: str) -> str:
    """Search the archive."""
    return f"found {query}"


class City(BaseModel):
    """A city."""

    name: str
    country: str


def texts(request: ModelRequest) -> list[str]:
    return [message.text for message in request.messages if message.role == "user"]


class Clerk:
    """A model whose answer tells what it was asked."""

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []

    def __call__(self, request: ModelRequest) -> ModelResponse:
        self.requests.append(request)
        question = texts(request)[-1]
        if request.output:
            return ModelResponse('{"name": "Bern", "country": "Switzerland"}', usage=USED)
        if request.settings.get("max_tokens", 100) < 20:
            return ModelResponse("The answer", usage=USED, finish_reason="length")
        if question == "search" and request.messages[-1].role == "user":
            return ModelResponse("Let me look.", (ToolCall.of("search", query="moon"),), usage=USED)
        if question == "fail":
            raise ModelUnavailableError("The provider is down.")
        if question == "wait":
            raise ModelRateLimitError("Too many requests.")
        return ModelResponse(f"You said: {', '.join(texts(request))}", usage=USED)


@pytest.fixture
def clerk() -> Clerk:
    return Clerk()


@pytest.fixture
def service(serve: Serve, clerk: Clerk) -> httpx.Client:
    """A service with an API key, whose model answers as a clerk."""
    model = FunctionModel(clerk, name="offline/clerk")
    model.retries = Retries(tries=1)
    agent = Agent("helper", "Help in {language}.", model, tools=[search])
    return serve(agent, api_keys=[f"run+read:{KEY}"])


@pytest.fixture
def client(service: httpx.Client) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{service.base_url}/v1", api_key=KEY, max_retries=0) as client:
        yield client


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def sdk(service: httpx.Client) -> openai.OpenAI:
    """OpenAI's client of a service without keys."""
    return openai.OpenAI(base_url=f"{service.base_url}/v1", api_key="none", max_retries=0)


def counted(service: httpx.Client) -> Metrics:
    return Metrics(service.get("/metrics", headers={"authorization": f"Bearer {KEY}"}).text)


def events_of(response: httpx.Response) -> list[Any]:
    """The data of server-sent events."""
    lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def test_a_conversation(client: openai.OpenAI, clerk: Clerk) -> None:
    """Earlier turns reach the model; the system message stays the blueprint's, and a client's follows as a user's."""
    assert [model.id for model in client.models.list()] == ["helper"]
    messages: list[Any] = [{"role": "developer", "content": "Be brief."}, user("Hello")]
    first = client.chat.completions.create(model="helper", messages=messages, metadata={"language": "German"})
    assert first.choices[0].message.content == "You said: Be brief., Hello"
    messages += [first.choices[0].message, user("And then?")]
    second = client.chat.completions.create(model="helper", messages=messages)
    assert second.choices[0].message.content == "You said: Be brief., Hello, And then?"
    assert [request.messages[0].text for request in clerk.requests] == ["Help in German.", "Help in {language}."]
    assert [message.role for message in clerk.requests[1].messages] == ["system", "user", "user", "assistant", "user"]


PROTOCOLS = {"chat/completions": {"messages": [user("x")]}, "responses": {"input": "x"}}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_an_answer_has_its_usage(service: httpx.Client, protocol: str, streamed: bool) -> None:
    """An answer of each route, or the last event of its stream, has the tokens of each type and the cost."""
    options = {"stream_options": {"include_usage": True}} if streamed and protocol == "chat/completions" else {}
    body = {"model": "helper", "stream": streamed, **PROTOCOLS[protocol], **options}
    response = service.post(f"/v1/{protocol}", json=body, headers={"authorization": f"Bearer {KEY}"})
    last = events_of(response)[-1] if streamed else response.json()
    usage = last.get("response", last)["usage"]
    sent, produced = ("prompt", "completion") if protocol == "chat/completions" else ("input", "output")
    assert usage[f"{sent}_tokens"] == USED.input_tokens
    assert usage[f"{produced}_tokens"] == USED.output_tokens
    assert usage[f"{sent}_tokens_details"]["cached_tokens"] == USED.cached_input_tokens
    assert usage[f"{produced}_tokens_details"]["reasoning_tokens"] == USED.reasoning_tokens
    assert usage["cost"] == USED.cost


def test_streams(client: openai.OpenAI, service: httpx.Client) -> None:
    """The pieces of a streamed answer, also what the model says before it calls a tool, arrive in order."""
    with client.chat.completions.stream(model="helper", messages=[user("search")]) as stream:
        pieces = [event.delta for event in stream if event.type == "content.delta"]
        content = stream.get_final_completion().choices[0].message.content
    assert "".join(pieces) == content == "Let me look.\n\nYou said: search"
    assert len(pieces) > 4
    with client.responses.stream(model="helper", input="search") as events:
        deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
        assert "".join(deltas) == content == events.get_final_response().output_text
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
    chat = client.chat.completions.parse(model="helper", messages=[user("?")], response_format=City)
    assert chat.choices[0].message.parsed == bern
    assert client.responses.parse(model="helper", input="?", text_format=City).output_parsed == bern
    with client.chat.completions.stream(model="helper", messages=[user("?")], response_format=City) as stream:
        assert stream.get_final_completion().choices[0].message.parsed == bern
    answer = client.chat.completions.create(
        model="helper", messages=[user("?")], response_format={"type": "json_object"}
    )
    assert json.loads(answer.choices[0].message.content or "") == bern.model_dump()
    choice = serve(Agent("choice", "", FunctionModel(lambda _: '{"answer": "yes"}')))
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"enum": ["yes", "no"]}}}
    body = {"model": "choice", "messages": [user("?")], "response_format": form}
    assert choice.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"] == '"yes"'


def test_settings_of_the_client(client: openai.OpenAI, clerk: Clerk, serve: Serve) -> None:
    """Settings reach the model within the blueprint's cap, and an answer that is cut off says so."""
    answer = client.chat.completions.create(
        model="helper", messages=[user("x")], temperature=0.5, seed=7, stop=["."], max_completion_tokens=15
    )
    assert clerk.requests[-1].settings == {"temperature": 0.5, "seed": 7, "stop": ["."], "max_tokens": 15}
    assert (answer.choices[0].finish_reason, answer.choices[0].message.content) == ("length", "The answer")
    cut = client.responses.create(model="helper", input="x", max_output_tokens=16, reasoning={"effort": "low"})
    assert (cut.status, cut.output_text) == ("incomplete", "The answer")
    assert clerk.requests[-1].settings == {"max_tokens": 16, "reasoning_effort": "low"}
    careful = Agent("careful", "", FunctionModel(clerk), max_tokens=50, temperature=0.1)
    with sdk(serve(careful)) as other:
        other.chat.completions.create(model="careful", messages=[user("x")], max_tokens=90, temperature=1)
        assert clerk.requests[-1].settings == {"max_tokens": 50, "temperature": 1}
        other.chat.completions.create(model="careful", messages=[user("x")], max_tokens=9, max_completion_tokens=40)
        assert clerk.requests[-1].settings.get("max_tokens") == 9
    service = serve(careful, openai_settings=False)
    body = {"model": "careful", "input": "x", "max_output_tokens": 9, "reasoning": {"effort": "low"}}
    error = service.post("/v1/responses", json=body).json()["error"]
    assert error["code"] == "request_invalid"
    assert [entry["pointer"] for entry in error["errors"]] == ["/max_output_tokens", "/reasoning/effort"]


def test_instructions_of_the_client(clerk: Clerk, serve: Serve) -> None:
    """A client's instructions, wherever they are, follow the component's own, and are not cut with old turns."""
    with sdk(serve(Agent("helper", "Help.", FunctionModel(clerk), max_history=1))) as client:
        system: Any = {"role": "system", "content": "Be brief."}
        late: Any = {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]}
        answer: Any = {"role": "assistant", "content": "z"}
        messages: list[Any] = [system, user("a"), answer, user("b"), answer, user("c"), late]
        client.chat.completions.create(model="helper", messages=messages)
        late = {"role": "developer", "content": [{"type": "input_text", "text": "Be kind."}]}
        items: list[Any] = [user("a"), answer, user("b"), answer, late, user("c")]
        client.responses.create(model="helper", instructions="Be brief.", input=items)
    for request in clerk.requests:
        assert [message.text for message in request.messages] == ["Help.", "Be brief.\n\nBe kind.", "b", "z", "c"]


def json_schema(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object", **schema}}}


REFUSED: dict[str, tuple[str, dict[str, Any], int, str, str | None]] = {
    "tools": ("chat", {"tools": [{"type": "function", "function": {"name": "f"}}]}, 400, "request_invalid", "tools"),
    "functions": ("chat", {"functions": [{"name": "f"}]}, 400, "request_invalid", "functions"),
    "choices": ("chat", {"n": 2}, 400, "request_invalid", "n"),
    "range": ("chat", {"temperature": 3}, 400, "request_invalid", "temperature"),
    "unknown": ("chat", {"verbosity": "low"}, 400, "request_invalid", "verbosity"),
    "log probabilities": ("chat", {"logprobs": True}, 400, "request_invalid", "logprobs"),
    "model": ("chat", {"model": "gpt-4o"}, 404, "model_not_found", None),
    "no message": ("chat", {"messages": []}, 400, "request_invalid", "messages"),
    "last message": ("chat", {"messages": [{"role": "assistant", "content": "x"}]}, 400, "request_invalid",
                     "messages[0]"),
    "audio": ("chat", {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, 400, "request_invalid",
              "messages[0].content[0].type"),
    "tool result": ("chat", {"messages": [{"role": "tool", "tool_call_id": "c", "content": "x"}, user("x")]}, 400,
                    "request_invalid", "messages[0]"),
    "call without arguments": ("chat", {"messages": [user("x"), {"role": "assistant", "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "f", "arguments": {}}}]}, user("x")]}, 400,
        "request_invalid", "messages[1].tool_calls[0].function.arguments"),
    "many results": ("chat", {"messages": [
        *({"role": "tool", "tool_call_id": f"c{number}", "content": "x"} for number in range(150)), user("x")]}, 400,
        "request_invalid", "messages[0]"),
    "key of a part": ("chat", {"messages": [{"role": "user", "content": [{"type": "text", "text": "x", "a": 1}]}]}, 400,
                      "request_invalid", "messages[0].content[0].a"),
    "many parts": ("chat", {"messages": [{"role": "assistant", "content": [0] * 40_000}, user("x")]}, 400,
                   "request_invalid", "messages[0].content"),
    "no tools": ("chat", {"tool_choice": "none"}, 400, "request_invalid", "tool_choice"),
    "schema": ("chat", {"response_format": {"type": "json_schema"}}, 400, "request_invalid", "response_format"),
    "pattern": ("chat", {"response_format": json_schema({"properties": {"a": {"pattern": "(a+)+$"}}})}, 400,
                "request_invalid", "response_format"),
    "endless schema": ("chat", {"response_format": json_schema({"$ref": "#"})}, 400, "input_invalid", None),
    "patterns by name": ("chat", {"response_format": json_schema({"properties": {"properties": {
        "patternProperties": {"(a+)+$": {}}}}})}, 400, "request_invalid", "response_format"),
    "no content": ("chat", {"messages": [{"role": "user"}]}, 400, "request_invalid", "messages[0]"),
    "image of a tool": ("responses", {"input": [
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image", "image_url": "https://x"}]},
        user("x"),
    ]}, 400, "request_invalid", "input[1].output[0].type"),
    "after instructions": ("responses", {"instructions": "i", "input": [user("x"), {"role": "user"}]}, 400,
                           "request_invalid", "input[1]"),
    "instructions only": ("responses", {"input": [{"role": "system", "content": "i"}]}, 400, "request_invalid", None),
    "call alone": ("responses", {"instructions": "i", "input": [user("x"), {
        "type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}, user("x")]}, 400, "request_invalid",
        "input[1]"),
    "too many": ("responses", {"input": [user("x")] * 2001}, 400, "request_invalid", "input"),
    "schema of Responses": ("responses", {"text": {"format": {"type": "json_schema"}}}, 400, "request_invalid",
                            "text.format"),
    "previous response": ("responses", {"previous_response_id": "r"}, 400, "request_invalid", "previous_response_id"),
    "store": ("responses", {"store": True}, 400, "request_invalid", "store"),
    "background": ("responses", {"background": True}, 400, "request_invalid", "background"),
    "stored conversation": ("responses", {"conversation": "c"}, 400, "request_invalid", "conversation"),
    "hosted tool": ("responses", {"tools": [{"type": "web_search"}]}, 400, "request_invalid", "tools"),
    "item": ("responses", {"input": [{"type": "reasoning", "summary": []}]}, 400, "request_invalid", "input[0]"),
    "image": ("responses", {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "http://x"}]}]},
              400, "request_invalid", "input[0].content[0].image_url"),
}  # fmt: skip


@pytest.fixture(scope="module")
def echo(served: Any) -> Iterator[httpx.Client]:
    with served(Agent("helper", "Help.", "offline/echo")) as client:
        yield client


@pytest.mark.parametrize(("protocol", "change", "status", "code", "parameter"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_done_is_refused_by_name(
    echo: httpx.Client, protocol: str, change: dict[str, Any], status: int, code: str, parameter: str | None
) -> None:
    """Nothing that would change the answer is ignored: the error names the parameter, and no model is called."""
    path, body = (
        ("chat/completions", {"messages": [user("x")]}) if protocol == "chat" else ("responses", {"input": "x"})
    )
    response = echo.post(f"/v1/{path}", json={"model": "helper", **body, **change})
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (status, code, parameter), error
    assert error["message"]
    assert error["suggestion"]
    assert ("podwright-run-id" in response.headers) == (code == "input_invalid")


def test_errors_are_those_of_the_client_library(client: openai.OpenAI, service: httpx.Client) -> None:
    """Each error is the class that the client has for it; a run that failed is not repeated by the client."""
    chat = client.chat.completions
    with pytest.raises(openai.BadRequestError):
        chat.create(model="helper", messages=[user("x")], n=2)
    with pytest.raises(openai.NotFoundError, match="no model 'gpt'"):
        chat.create(model="gpt", messages=[user("x")])
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="a-wrong-key-0123456789").models.list()
    with pytest.raises(openai.InternalServerError) as caught:
        client.with_options(max_retries=2).chat.completions.create(model="helper", messages=[user("fail")])
    assert (caught.value.status_code, caught.value.code) == (502, "model_unavailable")
    assert caught.value.response.headers["podwright-run-id"]
    assert counted(service).get("podwright_runs_total", status="failed") == 1
    with pytest.raises(openai.InternalServerError) as limited:
        chat.create(model="helper", messages=[user("wait")])
    assert (limited.value.status_code, limited.value.response.headers["retry-after"]) == (503, "1")
    with pytest.raises(openai.APIError, match="provider is down") as late:
        list(chat.create(model="helper", messages=[user("fail")], stream=True))
    assert late.value.code == "model_unavailable"
    events = list(client.responses.create(model="helper", input="fail", stream=True))
    assert events[-1].type == "response.failed"
    assert events[-1].response.error is not None
    assert events[-1].response.error.code == "model_unavailable"
    assert events[-1].response.usage is not None
    response = service.get("/v1/responses", headers={"authorization": f"Bearer {KEY}", "upgrade": "websocket"})
    assert (response.status_code, response.headers["allow"]) == (405, "POST")
    assert "WebSocket" in response.json()["error"]["message"]


def test_the_published_schema(client: openai.OpenAI, service: httpx.Client) -> None:
    """Each response and each streamed event of Responses is as the Open Responses specification says."""
    headers = {"authorization": f"Bearer {KEY}"}
    schema = {"type": "json_schema", "name": "city", "schema": City.model_json_schema(), "strict": True}
    bodies: list[dict[str, Any]] = [
        {"input": "x", "instructions": "Be brief.", "metadata": {"team": "a"}, "temperature": 0.5},
        {"input": [user("x"), {"role": "assistant", "content": "y"}, {"type": "message", **user("search")}]},
        {"input": "?", "text": {"format": schema}},
        {"input": "?", "text": {"format": {"type": "json_object"}}},
        {"input": "x", "max_output_tokens": 16, "reasoning": {"effort": "low"}},
        {"input": "fail"},
    ]
    for body in bodies:
        whole = service.post("/v1/responses", json={"model": "helper", **body}, headers=headers)
        if body["input"] != "fail":
            open_responses.check_response(whole.json())
            if body.get("text") != {"format": schema}:  # where the specification and OpenAI's types differ
                Response.model_validate(whole.json())
        streamed = service.post("/v1/responses", json={"model": "helper", "stream": True, **body}, headers=headers)
        open_responses.check_events(events_of(streamed))
        assert streamed.text.endswith("\ndata: [DONE]\n\n")
    chat = {"model": "helper", "messages": [user("x")]}
    ChatCompletion.model_validate(service.post("/v1/chat/completions", json=chat, headers=headers).json())


def test_items_of_a_conversation(client: openai.OpenAI, clerk: Clerk) -> None:
    """Function calls and their outputs, texts and images of earlier items reach the model."""
    image = "data:image/png;base64,AAAA"
    items: list[Any] = [
        user("search"),
        {"type": "function_call", "call_id": "c1", "name": "search", "arguments": "{}"},
        {"type": "function_call", "call_id": "c2", "name": "search", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "one"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "two"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Both.", "annotations": []}]},
        {
            "role": "user",
            "content": [{"type": "input_text", "text": "See"}, {"type": "input_image", "image_url": image}],
        },
    ]
    client.responses.create(model="helper", input=items)
    _, *messages = clerk.requests[0].messages
    assert [message.role for message in messages] == ["user", "assistant", "tool", "tool", "assistant", "user"]
    assert [call.id for call in messages[1].tool_calls] == ["c1", "c2"]
    assert [message.text for message in messages] == ["search", "", "one", "two", "Both.", "See"]
    part: Any = messages[-1].content[1]
    assert part["image_url"]["url"] == image
    content: Any = [{"type": "text", "text": "See"}, {"type": "image_url", "image_url": {"url": image}}]
    client.chat.completions.create(model="helper", messages=[{"role": "user", "content": content}])
    assert clerk.requests[1].messages[-1].content == tuple(content)


def test_other_kinds(serve: Serve, clerk: Clerk) -> None:
    """A workflow answers with its last output and takes named inputs; a conductor answers without its plan."""
    writer = Agent("writer", "Write about {topic}.", FunctionModel(clerk))
    flow = Workflow("flow", [AgentStep(writer, "first"), AgentStep(writer, "second", input="again")])
    with sdk(serve(flow)) as client:
        answer = client.chat.completions.create(
            model="flow", messages=[user("go")], metadata={"topic": "moon", "trace": "t"}
        )
        assert answer.choices[0].message.content == "You said: again"
        assert clerk.requests[0].messages[0].text == "Write about moon."
        assert "trace" not in clerk.requests[0].messages[-1].text
        with client.responses.stream(model="flow", input="go") as events:
            assert events.get_final_response().output_text == "You said: again"
        with pytest.raises(openai.BadRequestError, match="one message"):
            client.chat.completions.create(
                model="flow", messages=[user("a"), {"role": "assistant", "content": "b"}, user("c")]
            )
        with pytest.raises(openai.BadRequestError, match="temperature"):
            client.chat.completions.create(model="flow", messages=[user("a")], temperature=1)
        with pytest.raises(openai.BadRequestError, match="'instructions'"):
            client.responses.create(model="flow", input="a", instructions="Be brief.")
        with pytest.raises(openai.BadRequestError, match=r"'text\.format'"):
            client.responses.parse(model="flow", input="a", text_format=City)
    line = Pipeline("line", [writer, writer])
    with sdk(serve(line)) as client:
        assert client.responses.create(model="line", input="go").output_text == "You said: You said: go"
    service = serve(Conductor("lead", "Lead.", "offline/echo", [writer], planning=True))
    body = {"model": "lead", "messages": [user("go")], "stream": True}
    chunks = events_of(service.post("/v1/chat/completions", json=body))
    text = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)
    assert text.startswith("Echo: go")


def test_a_service_without_these_routes(serve: Serve) -> None:
    """The routes can be turned off."""
    service = serve(Agent("helper", "", "offline/echo"), openai_routes=False)
    assert service.get("/v1/models").status_code == 404
    assert not [path for path in service.get("/openapi.json").json()["paths"] if path.startswith("/v1")]
    assert service.get("/info").json()["openai"] is False


def test_langchain(service: httpx.Client, clerk: Clerk) -> None:
    """LangChain's ChatOpenAI holds a conversation, streams, and gets structured output and usage."""
    # imported here, because each process of a test run imports this file, and these take seconds
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
    from langchain_openai import ChatOpenAI

    chat = ChatOpenAI(model="helper", base_url=f"{service.base_url}/v1", api_key=SecretStr(KEY), max_retries=0)
    conversation = [SystemMessage("Be brief."), HumanMessage("Hello"), AIMessage("Yes?"), HumanMessage("And?")]
    answer = chat.invoke(conversation)
    assert answer.content == "You said: Be brief., Hello, And?"
    assert answer.usage_metadata is not None
    assert (answer.usage_metadata["input_tokens"], answer.usage_metadata["output_tokens"]) == (100, 10)
    chunks = list(chat.stream("search", stream_usage=True))
    assert "".join(str(chunk.content) for chunk in chunks) == "Let me look.\n\nYou said: search"
    assert chat.with_structured_output(City).invoke("?") == City(name="Bern", country="Switzerland")
    with pytest.raises(openai.BadRequestError):
        chat.bind_tools([search]).invoke("x")


@pytest.mark.parametrize("protocol", ["chat", "responses"])
def test_the_agents_sdk(service: httpx.Client, protocol: str) -> None:
    """An agent of openai-agents has the service as its model, over several turns, streamed too."""
    import agents  # here, because it takes seconds

    async def talk() -> None:
        async with openai.AsyncOpenAI(base_url=f"{service.base_url}/v1", api_key=KEY, max_retries=0) as client:
            kind = agents.OpenAIChatCompletionsModel if protocol == "chat" else agents.OpenAIResponsesModel
            agent = agents.Agent(name="outer", instructions="Be brief.", model=kind("helper", client))
            config = agents.RunConfig(tracing_disabled=True)
            first = await agents.Runner.run(agent, "Hello", run_config=config)
            assert first.final_output == "You said: Be brief., Hello"
            again = [*first.to_input_list(), user("And?")]
            second = await agents.Runner.run(agent, again, run_config=config)
            assert second.final_output == "You said: Be brief., Hello, And?"
            assert second.context_wrapper.usage.input_tokens == 100
            streamed = agents.Runner.run_streamed(agent, "Hello", run_config=config)
            deltas = [
                event.data.delta
                async for event in streamed.stream_events()
                if event.type == "raw_response_event" and event.data.type == "response.output_text.delta"
            ]
            assert "".join(deltas) == streamed.final_output == "You said: Be brief., Hello"
            with pytest.raises(openai.InternalServerError):
                await agents.Runner.run(agent, "fail", run_config=config)

    asyncio.run(talk())


def test_a_service_is_a_model_of_another(serve: Serve, service: httpx.Client, clerk: Clerk) -> None:
    """`openai/NAME` with the base URL of a service works as the model of an agent, cached tokens and writes counted."""
    agent = Agent("outer", "Ask.", "openai/helper", api_key=KEY, base_url=f"{service.base_url}/v1")
    result = agent.run("Hello", trace=True)
    assert result.value == "You said: Ask., Hello"
    used = result.usage
    assert (used.input_tokens, used.cached_input_tokens, used.cache_write_tokens, used.reasoning_tokens) == (
        100,
        40,
        20,
        4,
    )
    assert "".join(event.text for event in agent.stream("Hello") if event.type == "token") == result.value
