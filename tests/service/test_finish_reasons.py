"""How answers end on each route: reasons and refusals, whole and streamed, with and without a schema."""

from __future__ import annotations

import json
import logging
from typing import Any

import httpx
import openai
import pytest
from tests.service import open_responses
from tests.service.background_support import begin, wait
from tests.service.openai_support import events_of, sdk, user
from tests.service.support import Serve, sse_events

from podwright import (
    Agent,
    AgentStep,
    FunctionModel,
    Pipeline,
    Remote,
    Workflow,
    errors,
)
from podwright.client import AsyncClient, ProblemError
from podwright.testing import ModelResponse
from podwright_service.testing import Metrics

TEXT = "Once upon a time"
NO = "I cannot help with that."
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"category": {"type": "string"}},
    "required": ["category"],
}
ENDS: dict[str, tuple[str, str, str]] = {
    # of the result, in Chat Completions, and in Responses
    "stop": ("stop", "stop", "completed"),
    "end_turn": ("stop", "stop", "completed"),
    "COMPLETE": ("stop", "stop", "completed"),
    "max_tokens": ("length", "length", "incomplete"),
    "MAX_TOKENS": ("length", "length", "incomplete"),
    "a_word_to_come": ("unknown", "unknown", "incomplete"),
    "tool_use": ("unknown", "unknown", "incomplete"),
    "pause_turn": ("unknown", "unknown", "incomplete"),
    "": ("unknown", "unknown", "incomplete"),
}
"""What becomes of words of providers for an answer with a text, of which a caller limits the tokens."""
ROUTES = ("/run", "/run/stream", "/v1/chat/completions", "chunks", "/v1/responses", "events")  # fmt: skip


class Ending(FunctionModel):
    """A model whose answers all end in the same way."""

    def __init__(self, response: ModelResponse) -> None:
        super().__init__(lambda _: response, name="offline/ending")


def guide(response: ModelResponse, **options: Any) -> Agent:
    return Agent("guide", "Help.", Ending(response), **options)


def request(service: httpx.Client, route: str) -> httpx.Response:
    """The response of a route to a question of which the answer may have 99 tokens."""
    chat = {"model": "guide", "messages": [user("Go on.")], "max_tokens": 99}
    responses = {"model": "guide", "input": "Go on.", "max_output_tokens": 99}
    bodies: dict[str, Any] = {
        "/v1/chat/completions": chat,
        "chunks": {**chat, "stream": True},
        "/v1/responses": responses,
        "events": {**responses, "stream": True},
    }
    paths = {"chunks": "/v1/chat/completions", "events": "/v1/responses"}
    body = bodies.get(route, {"input": "Go on."})
    return service.post(paths.get(route, route), json=body)


def events_of_run(response: httpx.Response) -> dict[str, Any]:
    """The last event of each name."""
    return {
        name: data
        for _, name, data in sse_events(iter([*response.text.splitlines(), ""]))
    }


def message_of(route: str, response: httpx.Response) -> dict[str, Any]:
    """Content, refusal and finish reason of an answer of Chat Completions."""
    if route != "chunks":
        choice = response.json()["choices"][0]
        return {**choice["message"], "finish_reason": choice["finish_reason"]}
    joined: dict[str, Any] = {"content": "", "refusal": None}
    for event in events_of(response):
        choice = event["choices"][0]
        for name in ("content", "refusal"):
            if choice["delta"].get(name):
                joined[name] = (joined[name] or "") + choice["delta"][name]
        joined["finish_reason"] = choice["finish_reason"]
    return {**joined, "content": joined["content"] or None}


def response_of(route: str, response: httpx.Response) -> dict[str, Any]:
    """The object of an answer of Responses, checked."""
    if route != "events":
        open_responses.check_response(response.json())
        return response.json()
    events = events_of(response)
    open_responses.check_events(events)
    return events[-1]["response"]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("word", ENDS)
def test_an_end_on_each_route(word: str, route: str, serve: Serve) -> None:
    """Each protocol says how an answer ended; one that may not be whole is nowhere a success without a word."""
    reason, in_chat, in_responses = ENDS[word]
    if reason == "length" and "/run" in route:
        reason = "failed"
    service = serve(guide(ModelResponse(TEXT, finish_reason=word)))
    response = request(service, route)
    if reason == "failed":
        assert "model_failed" in response.text
        return
    assert response.status_code == 200
    if route == "/run":
        shown = response.headers.get("podwright-finish-reason", "stop")
        assert (response.json(), shown) == ({"output": TEXT}, reason)
    elif route == "/run/stream":
        finished = events_of_run(response)["run_finished"]
        assert finished["finish_reason"] == reason
    elif route in ("/v1/chat/completions", "chunks"):
        message = message_of(route, response)
        assert (message["content"], message["refusal"]) == (TEXT, None)
        assert message["finish_reason"] == in_chat
    else:
        whole = response_of(route, response)
        assert whole["status"] == in_responses
        assert whole["output"][0]["content"][0]["text"] == TEXT
    counted = Metrics(service.get("/metrics").text)
    assert counted.get("podwright_model_call_finish_reasons_total", reason=reason) == 1  # fmt: skip
    assert counted.get("podwright_model_call_finish_reasons_total") == 1


@pytest.mark.parametrize("kind", ["agent", "pipeline", "workflow"])
@pytest.mark.parametrize("route", ROUTES)
def test_a_refusal_in_a_schema(
    route: str, kind: str, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """It is 422 with the words on our routes, and an answer with them and without a text on OpenAI's."""
    agent = guide(ModelResponse(refusal=NO), response_model=SCHEMA, max_loops=5)
    component: Any = agent
    if kind == "pipeline":
        component = Pipeline("guide", [agent])
    if kind == "workflow":
        component = Workflow("guide", [AgentStep(agent)])
    service = serve(component)
    with caplog.at_level(logging.DEBUG):
        if kind == "agent" or "run" in route:
            response = request(service, route)
        else:
            # only agents take settings
            response = service.post(
                "/v1/chat/completions",
                json={
                    "model": "guide",
                    "messages": [user("Go on.")],
                    "stream": route in ("chunks", "events"),
                },
            )
            route = {"/v1/responses": "/v1/chat/completions", "events": "chunks"}.get(route, route)  # fmt: skip
    assert NO not in caplog.text
    problem: dict[str, Any] = {}
    if route == "/run":
        assert response.status_code == 422
        problem = response.json()
    elif route == "/run/stream":
        problem = events_of_run(response)["problem"]
    if problem:
        assert (problem["status"], problem["code"]) == (422, "model_refused")
        assert problem["refusal"] == NO
        assert NO not in problem["detail"]
    elif route in ("/v1/chat/completions", "chunks"):
        assert response.status_code == 200
        message = message_of(route, response)
        assert (message["content"], message["refusal"]) == (None, NO)
        assert message["finish_reason"] == "stop"
    else:
        assert response.status_code == 200
        whole = response_of(route, response)
        part = {"type": "refusal", "refusal": NO}
        assert whole["output"][0]["content"] == [part]
        assert whole["status"] == "completed"
    counted = Metrics(service.get("/metrics").text)
    assert counted.get("podwright_model_calls_total") == 1
    assert counted.get("podwright_model_call_finish_reasons_total", reason="refusal") == 1  # fmt: skip
    assert counted.get("podwright_run_failures_total", code="model_refused") >= 1  # fmt: skip


@pytest.mark.parametrize("route", ROUTES)
def test_a_refusal_as_a_text(route: str, serve: Serve) -> None:
    """Without a schema its words are the answer, and each protocol says that it is a refusal."""
    response = request(serve(guide(ModelResponse(refusal=NO))), route)
    assert response.status_code == 200
    if route == "/run":
        assert response.json() == {"output": NO}
        assert response.headers["podwright-finish-reason"] == "refusal"
    elif route == "/run/stream":
        events = events_of_run(response)
        assert events["result"] == {"output": NO}
        assert events["run_finished"]["finish_reason"] == "refusal"
    elif route in ("/v1/chat/completions", "chunks"):
        message = message_of(route, response)
        assert (message["content"], message["refusal"]) == (NO, NO)
    else:
        (item,) = response_of(route, response)["output"]
        assert [part["type"] for part in item["content"]] == [
            "output_text",
            "refusal",
        ]


def test_the_client_of_openai(serve: Serve) -> None:
    """OpenAI's own client finds a refusal where it looks for it, and may send it back."""
    seen: list[Any] = []

    def answer(asked: Any) -> ModelResponse:
        seen.append(asked)
        return ModelResponse(refusal=NO)

    agent = Agent(
        "guide", "Help.", FunctionModel(answer), response_model=SCHEMA
    )
    with sdk(serve(agent)) as client:
        message = client.chat.completions.create(
            model="guide", messages=[user("Go on.")]
        ).choices[0].message  # fmt: skip
        assert (message.content, message.refusal) == (None, NO)
        turns: Any = [user("Go on."), message.to_dict(), user("Why?")]
        client.chat.completions.create(model="guide", messages=turns)
        assert [turn.text for turn in seen[-1].messages[1:]] == [
            "Go on.",
            NO,
            "Why?",
        ]
        item: Any = client.responses.create(model="guide", input="Go on.").output[0]  # fmt: skip
        assert item.content[0].refusal == NO
        with client.chat.completions.stream(
            model="guide", messages=[user("Go on.")]
        ) as stream:
            done = [e for e in stream if e.type == "refusal.done"]
        assert [event.refusal for event in done] == [NO]
    assert isinstance(client, openai.OpenAI)


def test_both_forms_of_a_refusal_are_one_text(serve: Serve) -> None:
    """A client that sends both parts of a refusal back does not double it."""
    seen: list[Any] = []

    def answer(asked: Any) -> ModelResponse:
        seen.append(asked)
        return ModelResponse(refusal=NO)

    service = serve(Agent("guide", "Help.", FunctionModel(answer)))
    first = service.post(
        "/v1/responses", json={"model": "guide", "input": "Go on."}
    ).json()
    service.post(
        "/v1/responses",
        json={
            "model": "guide",
            "input": [user("Go on."), *first["output"], user("Why?")],
        },
    )
    assert [turn.text for turn in seen[-1].messages[1:]] == ["Go on.", NO, "Why?"]  # fmt: skip


def test_a_refusal_in_a_background_run(
    serve: Serve, sqlite_database: str
) -> None:
    """The run fails once, with the words in its problem."""
    agent = guide(ModelResponse(refusal=NO), response_model=SCHEMA)
    client = serve(agent, runs_database=sqlite_database)
    run = wait(client, begin(client))
    assert run["status"] == "failed"
    assert run["problem"]["code"] == "model_refused"
    assert run["problem"]["refusal"] == NO


@pytest.mark.parametrize("schema", [None, SCHEMA])
async def test_a_refusal_of_a_remote_component(
    schema: Any, serve: Serve
) -> None:
    """It stays a refusal, with its words, through another container and for our client."""
    options = {} if schema is None else {"response_model": schema}
    service = serve(guide(ModelResponse(refusal=NO), **options))
    remote = Remote("guide", str(service.base_url))
    client = AsyncClient(str(service.base_url))
    if schema is None:
        result = await remote.arun("Go on.", trace=True)
        assert (result.value, result.finish_reason) == (NO, "refusal")
        assert (await client.run("Go on.")).finish_reason == "refusal"
        return
    with pytest.raises(errors.ModelRefusedError) as caught:
        await remote.arun("Go on.")
    assert caught.value.refusal == NO
    with pytest.raises(ProblemError) as problem:
        await client.run("Go on.")
    assert problem.value.remote_code == "model_refused"


def test_an_unknown_end_as_an_error(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the setting `fail` it is a 502 with a code and the word."""
    monkeypatch.setenv("PODWRIGHT_MODEL_UNKNOWN_FINISH_REASON", "fail")
    service = serve(guide(ModelResponse(TEXT, finish_reason="over")))
    problem = request(service, "/run").json()
    assert (problem["status"], problem["code"]) == (
        502,
        "finish_reason_unknown",
    )
    assert "over" in problem["detail"]
    assert TEXT not in json.dumps(problem)
