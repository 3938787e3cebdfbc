"""Kept conversations on the OpenAI-compatible routes: sessions, and responses that others go on from."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest
from tests.service.support import Serve
from tests.service.test_conversations import (
    KEYS,
    Silent,
    count,
    counting,
    headers,
    repeater,
)

from podwright import Agent, EchoModel, FunctionModel


@pytest.fixture
def client(serve: Serve, sqlite_database: str) -> httpx.Client:
    return serve(repeater(), runs_database=sqlite_database, conversations=True)


@pytest.fixture
def library(client: httpx.Client) -> Iterator[openai.OpenAI]:
    """OpenAI's own client."""
    with openai.OpenAI(
        base_url=f"{client.base_url}/v1", api_key="unused", max_retries=0
    ) as library:
        yield library


def respond(client: httpx.Client, text: Any, **more: Any) -> dict[str, Any]:
    response = client.post(
        "/v1/responses", json={"model": "repeater", "input": text, **more}
    )
    assert response.status_code == 200, response.text
    return response.json()


def text_of(response: dict[str, Any]) -> str:
    return response["output"][-1]["content"][0]["text"]


def error_of(response: httpx.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    return response.json()["error"]


def test_a_session_of_chat_completions(client: httpx.Client) -> None:
    """The client sends the new message, and the service has those before it; a whole conversation is refused."""
    body = {"model": "repeater", "metadata": {"session_id": "s"}}

    def complete(*texts: str) -> httpx.Response:
        messages = [{"role": "user", "content": text} for text in texts]
        return client.post(
            "/v1/chat/completions", json={**body, "messages": messages}
        )

    for text, answer in (("one", "one"), ("two", "one two")):
        message = complete(text).json()["choices"][0]["message"]
        assert message["content"] == answer
    error = error_of(complete("one", "two"), 400)
    assert (error["code"], error["param"]) == ("conversation_kept", "messages")
    assert client.post("/run", json={"input": "x", "session": "s"}).json() == {
        "output": "one two x"
    }


def test_a_response_goes_on_from_another(library: openai.OpenAI) -> None:
    """By its id, streamed or not; the response says that it is stored."""
    first = library.responses.create(model="repeater", input="one")
    assert first.model_dump()["store"]
    second = library.responses.create(
        model="repeater", input="two", previous_response_id=first.id
    )
    assert second.output_text == "one two"
    assert second.previous_response_id == first.id
    with library.responses.stream(
        model="repeater", input="three", previous_response_id=second.id
    ) as stream:
        third = stream.get_final_response()
    assert third.output_text == "one two three"
    fourth = library.responses.create(
        model="repeater",
        input=[
            {"role": "user", "content": "and"},
            {"role": "assistant", "content": "yes"},
            {"role": "user", "content": "four"},
        ],
        previous_response_id=third.id,
    )
    assert fourth.output_text == "one two three and four"


def test_a_response_that_is_not_stored(client: httpx.Client) -> None:
    """Nothing goes on from it, and the one that it goes on from is still the last of its conversation."""
    first = respond(client, "one")
    aside = respond(
        client, "aside", previous_response_id=first["id"], store=False
    )
    assert text_of(aside) == "one aside"
    assert not aside["store"]
    body = {"model": "repeater", "input": "x"}
    response = client.post(
        "/v1/responses", json={**body, "previous_response_id": aside["id"]}
    )
    error_of(response, 400)
    second = respond(client, "two", previous_response_id=first["id"])
    assert text_of(second) == "one two"


@pytest.mark.parametrize(
    "unknown", ["resp_1", "resp_" + "0" * 32, 7, "", ["x"]]
)
def test_an_unknown_response(client: httpx.Client, unknown: Any) -> None:
    """It is refused as OpenAI does; an empty id is none."""
    response = client.post(
        "/v1/responses",
        json={
            "model": "repeater",
            "input": "x",
            "previous_response_id": unknown,
        },
    )
    if not unknown:
        assert response.status_code == 200
        return
    error = error_of(response, 400)
    assert error["code"] == "previous_response_not_found"
    assert error["type"] == "invalid_request_error"
    assert error["param"] == "previous_response_id"
    if isinstance(unknown, str):
        assert (
            error["message"]
            == f"Previous response with id '{unknown}' not found."
        )


def test_a_response_that_is_not_the_last(client: httpx.Client) -> None:
    """Of two that go on from it at once, one does."""
    first = respond(client, "one")

    def go_on(text: str) -> httpx.Response:
        body = {"previous_response_id": first["id"], "input": text}
        return client.post("/v1/responses", json={"model": "repeater", **body})

    with ThreadPoolExecutor(2) as pool:
        responses = sorted(
            pool.map(go_on, ("two", "three")),
            key=lambda response: response.status_code,
        )
    assert responses[0].status_code == 200
    error = error_of(responses[1], 409)
    assert error["code"] == "conversation_changed"


def test_a_response_of_another_caller(
    serve: Serve, sqlite_database: str
) -> None:
    """It is as one that does not exist."""
    client = serve(
        repeater(),
        runs_database=sqlite_database,
        conversations=True,
        api_keys=",".join(KEYS.values()),
    )
    body = {"model": "repeater", "input": "one"}
    first = client.post("/v1/responses", json=body, headers=headers("ann"))
    body["previous_response_id"] = first.json()["id"]
    other = client.post("/v1/responses", json=body, headers=headers("bob"))
    assert error_of(other, 400)["code"] == "previous_response_not_found"
    own = client.post("/v1/responses", json=body, headers=headers("ann"))
    assert text_of(own.json()) == "one one"


def test_a_session_of_responses(client: httpx.Client) -> None:
    """It is the conversation; the client sends the new message alone, and may go on from its last response."""
    session = {"metadata": {"session_id": "s"}}
    assert text_of(respond(client, "one", **session)) == "one"
    second = respond(client, "two", **session)
    assert text_of(second) == "one two"
    earlier = [
        {"role": "user", "content": "zero"},
        {"role": "user", "content": "three"},
    ]
    response = client.post(
        "/v1/responses",
        json={"model": "repeater", "input": earlier, **session},
    )
    error = error_of(response, 400)
    assert (error["code"], error["param"]) == ("conversation_kept", "input")
    third = respond(client, "three", previous_response_id=second["id"])
    assert text_of(third) == "one two three"


def test_a_repeated_request_of_responses(
    serve: Serve, sqlite_database: str
) -> None:
    """Another process answers as the first one did."""
    clients = [
        serve(repeater(), runs_database=sqlite_database, conversations=True)
        for _ in range(2)
    ]
    body = {"model": "repeater", "input": "one"}
    answers = [
        client.post(
            "/v1/responses", json=body, headers={"idempotency-key": "k"}
        ).json()
        for client in clients
    ]
    for answer in answers:
        answer.pop("created_at")
        answer.pop("completed_at")
    assert answers[0] == answers[1]
    second = respond(clients[1], "two", previous_response_id=answers[0]["id"])
    assert text_of(second) == "one two"


def test_the_state_of_responses(serve: Serve, sqlite_database: str) -> None:
    """The next response has it, and one that is not stored leaves it."""
    component = Agent(
        "repeater", "Count.", FunctionModel(counting), tools=[count]
    )
    client = serve(component, runs_database=sqlite_database, conversations=True)
    first = respond(client, "x")
    for _ in range(2):
        aside = respond(
            client, "x", previous_response_id=first["id"], store=False
        )
        assert text_of(aside) == "2"
    second = respond(client, "x", previous_response_id=first["id"])
    assert [text_of(first), text_of(second)] == ["1", "2"]


def test_a_component_without_a_conversation(
    serve: Serve, sqlite_database: str
) -> None:
    """It answers, and nothing goes on from the response."""
    component = Silent("repeater", "Be silent.", EchoModel())
    client = serve(component, runs_database=sqlite_database, conversations=True)
    first = respond(client, "x")
    assert text_of(first) == "done"
    response = client.post(
        "/v1/responses",
        json={
            "model": "repeater",
            "input": "x",
            "previous_response_id": first["id"],
        },
    )
    assert error_of(response, 400)["code"] == "previous_response_not_found"
