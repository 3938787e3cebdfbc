"""Structured answers over HTTP: as text and as data, on each route, in background runs and for clients."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator
from tests.service.background_support import begin, wait
from tests.service.openai_support import events_of, sdk, user
from tests.service.support import Serve, Served, sse_events

from podwright import (
    Agent,
    AgentStep,
    EchoModel,
    FunctionModel,
    Pipeline,
    Workflow,
)
from podwright.client import Client
from podwright.components import Component
from podwright.testing import ModelRequest

TICKET: dict[str, Any] = {
    "type": "object",
    "properties": {
        "category": {"type": "string"},
        "urgency": {"type": "integer"},
    },
    "required": ["category", "urgency"],
}
DATA = {"category": "refund", "urgency": 2}
TEXT = json.dumps(DATA)


def respond(request: ModelRequest) -> str:
    """A ticket, without spaces so that its text is not that of the answer; else the color that is asked for."""
    if request.output is None:
        return "Thanks."
    if "color" in request.output.schema["properties"]:
        return '{"color":"red"}'
    return json.dumps(DATA, separators=(",", ":"))


def triage() -> Agent:
    return Agent(
        "triage", "Classify.", FunctionModel(respond), response_model=TICKET
    )


def flow() -> Workflow:
    """A workflow with a text and an output that is data, which is its last."""
    echo = Agent("echo", "Repeat.", EchoModel())
    return Workflow("flow", [AgentStep(echo), AgentStep(triage())])


TEXTS = {
    "input": "hello",
    "echo_output": "Echo: hello",
    "triage_output": TEXT,
}
CONTEXT = {**TEXTS, "triage_output": DATA}
ANSWER = {"output": TEXT, "data": DATA}
ANSWERS: dict[str, tuple[Component, str, Any]] = {
    # component, query, response
    "an agent": (triage(), "", ANSWER),
    "an agent, as data": (triage(), "?data=true", ANSWER),
    "a pipeline": (Pipeline("line", [triage()]), "", ANSWER),
    "a workflow": (flow(), "", TEXTS),
    "a workflow, as data": (flow(), "?data=true", CONTEXT),
    "a text": (
        Agent("echo", "Repeat.", EchoModel()),
        "?data=true",
        {"output": "Echo: hello"},
    ),
}


def blueprint_of(component: Component) -> dict[str, Any]:
    agents = {
        name: member.to_blueprint()
        for name, member in component.members().items()
    }
    if not isinstance(component, Workflow):
        agents = {}
    return {
        "type": component.kind,
        "blueprint": component.to_blueprint(),
        "agents": agents,
    }


@pytest.mark.parametrize(
    ("component", "query", "answer"), ANSWERS.values(), ids=ANSWERS
)
def test_an_answer_is_text_and_data(
    serve: Serve, component: Component, query: str, answer: Any
) -> None:
    """The response is as the document says; the last event of a stream, and the trace, have the same."""
    client = serve(component)
    body = {"input": "hello"}
    response = client.post(f"/run{query}", json=body).json()
    assert response == answer
    document = client.get("/openapi.json").json()
    documented = document["paths"]["/run"]["post"]["responses"]["200"]
    schema = documented["content"]["application/json"]["schema"]
    validator = Draft202012Validator(
        {**schema, "components": document["components"]}
    )
    validator.validate(response)
    streamed = client.post(f"/run/stream{query}", json=body)
    *_, (_, name, data) = sse_events(streamed.iter_lines())
    assert (name, data) == ("result", answer)
    trace = client.post("/run?trace=true", json=body).json()
    validator.validate(trace)
    if isinstance(component, Workflow):
        assert (trace["value"], trace["data"]) == (TEXTS, CONTEXT)
    else:
        assert trace.get("data") == answer.get("data")


def test_an_inline_blueprint_has_a_structured_answer(serve: Serve) -> None:
    """Its response has the same forms."""
    client = serve(flow(), model="offline/echo")
    for component in (triage(), flow()):
        inline = blueprint_of(component)
        model = "offline/echo"
        for blueprint in (inline["blueprint"], *inline["agents"].values()):
            if "config" in blueprint:
                blueprint["config"]["model"] = model
        body = {"input": "hello", **inline}
        texts = client.post("/run-blueprint", json=body).json()
        data = client.post("/run-blueprint?data=true", json=body).json()
        assert all(
            isinstance(texts[name], str) for name in texts.keys() - {"data"}
        )
        ticket = data.get("data", data.get("triage_output"))
        Draft202012Validator(TICKET).validate(ticket)


@pytest.mark.parametrize("kind", ["agent", "workflow"])
def test_a_background_run_has_both_forms(
    serve: Serve, sqlite_database: str, kind: str
) -> None:
    """The result is the response of `/run`, also in lists and at the end of the events; on request as data."""
    component, texts, data = {
        "agent": (triage(), ANSWER, ANSWER),
        "workflow": (flow(), TEXTS, CONTEXT),
    }[kind]
    client = serve(component, runs_database=sqlite_database)
    url = begin(client, "hello")
    assert wait(client, url)["result"] == texts
    assert client.get(f"{url}?data=true").json()["result"] == data
    for query, expected in (("", texts), ("?data=true", data)):
        listing = {"fields": "result", "data": str(bool(query))}
        (listed,) = client.get("/runs", params=listing).json()["runs"]
        assert listed["result"] == expected
        *_, (_, name, ended) = sse_events(
            client.get(f"{url}/events{query}").iter_lines()
        )
        assert (name, ended) == ("result", expected)
    runs = Client(str(client.base_url)).runs
    run_id = url.rpartition("/")[2]
    assert runs.wait(run_id).result == texts
    assert runs.get(run_id, data=True).result == data
    assert runs.wait(run_id, data=True).result == data


def test_the_service_says_what_it_answers(serve: Serve) -> None:
    """`/info` has the schema of the answers, also of the last agent of a pipeline; the document has an example."""
    for component in (triage(), Pipeline("line", [triage()])):
        client = serve(component)
        assert client.get("/info").json()["response_schema"] == TICKET
        document = client.get("/openapi.json").json()
        documented = document["paths"]["/run"]["post"]["responses"]["200"]
        (example,) = documented["content"]["application/json"][
            "examples"
        ].values()
        Draft202012Validator(TICKET).validate(example["value"]["data"])
        assert (
            json.loads(example["value"]["output"]) == example["value"]["data"]
        )
    assert serve(flow()).get("/info").json()["response_schema"] is None


def test_the_client_has_the_data(serve: Serve) -> None:
    """A result has its data like one of a run in this process; the value of a workflow is texts."""
    agent = Client(str(serve(triage()).base_url))
    result = agent.run("hello")
    assert (result.value, result.data) == (DATA, DATA)
    traced = agent.run("hello", trace=True)
    assert (traced.value, traced.data) == (DATA, DATA)
    *_, last = agent.stream("hello")
    assert last.to_dict()["data"] == DATA
    workflow = Client(str(serve(flow()).base_url))
    for result in (workflow.run("hello"), workflow.run("hello", trace=True)):
        assert (result.value, result.data) == (TEXTS, CONTEXT)
    echo = Client(str(serve(Agent("echo", "Repeat.", EchoModel())).base_url))
    result = echo.run("hello")
    assert (result.value, result.data) == ("Echo: hello", None)


@pytest.fixture(scope="module")
def chat(served: Served) -> Iterator[httpx.Client]:
    with served(triage()) as client:
        yield client


def test_openai_clients_read_json(chat: httpx.Client) -> None:
    """The content is the JSON text of the answer, whole and streamed, in both protocols."""
    with sdk(chat) as client:
        answer = client.chat.completions.create(
            model="triage", messages=[user("hello")]
        )
        assert answer.choices[0].message.content == TEXT
        response = client.responses.create(model="triage", input="hello")
        assert response.output_text == TEXT
        with client.chat.completions.stream(
            model="triage", messages=[user("hello")]
        ) as stream:
            final = stream.get_final_completion()
        assert final.choices[0].message.content == TEXT
        with client.responses.stream(model="triage", input="hello") as events:
            assert events.get_final_response().output_text == TEXT


def test_the_format_of_a_request_comes_first(chat: httpx.Client) -> None:
    """A JSON Schema takes the place of the component's own; `text`, which clients send by default, does not."""
    color = {
        "type": "object",
        "properties": {"color": {"type": "string"}},
        "required": ["color"],
    }
    forms = {
        '{"color": "red"}': {
            "type": "json_schema",
            "json_schema": {"name": "color", "schema": color},
        },
        TEXT: {"type": "text"},
    }
    for expected, form in forms.items():
        body = {
            "model": "triage",
            "messages": [user("hello")],
            "response_format": form,
        }
        answer = chat.post("/v1/chat/completions", json=body).json()
        assert answer["choices"][0]["message"]["content"] == expected


def test_the_last_output_of_a_workflow_may_be_data(serve: Serve) -> None:
    """Then the content is its JSON text."""
    body = {"model": "flow", "messages": [user("hello")]}
    client = serve(flow())
    answer = client.post("/v1/chat/completions", json=body).json()
    assert answer["choices"][0]["message"]["content"] == TEXT
    streamed = client.post("/v1/chat/completions", json=body | {"stream": True})
    deltas = [
        choice["delta"].get("content") or ""
        for event in events_of(streamed)
        for choice in event["choices"]
    ]
    assert "".join(deltas) == TEXT
