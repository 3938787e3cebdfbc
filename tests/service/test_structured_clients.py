"""Clients that want data: what their libraries send for it by default, and the schemas of zod and pydantic.

LangChain is called itself; Vercel's AI SDK is in `test_openai_node.py`, pydantic-ai in `tests/frameworks`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import httpx
import pytest
from pydantic import BaseModel, Field, SecretStr, StringConstraints
from tests.service.openai_support import events_of, post, user
from tests.service.support import Served

from podwright import Agent, FunctionModel
from podwright.testing import ModelRequest

EMAIL = "^[^@]+@[^@]+$"
WRONG = '{"name": "bern", "email": "a@b.co"}'


class Contact(BaseModel):
    """A contact."""

    name: str
    email: Annotated[str, Field(pattern=EMAIL)]


CONTACT = {"name": "Bern", "email": "a@b.co"}
PROPERTIES = {
    "name": {"title": "Name", "type": "string"},
    "email": {"pattern": EMAIL, "title": "Email", "type": "string"},
}
UNTITLED = {
    "name": {"type": "string"},
    "email": {"pattern": EMAIL, "type": "string"},
}
REQUIRED = ["name", "email"]


class Recorder:
    """A model that answers with what it is told, and keeps what it was asked."""

    def __init__(self) -> None:
        self.answer: Any = CONTACT
        self.requests: list[ModelRequest] = []

    def __call__(self, request: ModelRequest) -> str:
        self.requests.append(request)
        return json.dumps(self.answer)


@pytest.fixture(scope="module")
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture(scope="module")
def service(served: Served, recorder: Recorder) -> Iterator[httpx.Client]:
    with served(Agent("helper", "Help.", FunctionModel(recorder))) as client:
        yield client


def tool(name: str, **function: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **function}}


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


# --- What clients send ---------------------------------------------------------------------------

INSTRUCTOR = {
    "tool_choice": named("Contact"),
    "tools": [
        tool(
            "Contact",
            description="Correctly extracted `Contact` with all the required parameters with correct "
            "types",
            parameters={
                "properties": PROPERTIES,
                "required": ["email", "name"],
                "type": "object",
            },
        )
    ],
}
PYDANTIC_AI = {
    "properties": UNTITLED,
    "required": REQUIRED,
    "type": "object",
    "additionalProperties": False,
}
PYDANTIC_AI_CHAT = {
    "tool_choice": "required",
    "tools": [
        tool(
            "final_result",
            description="A contact.",
            parameters=PYDANTIC_AI,
            strict=True,
        )
    ],
}
PYDANTIC_AI_RESPONSES = {
    "tool_choice": "required",
    "tools": [
        {
            "name": "final_result",
            "parameters": PYDANTIC_AI,
            "type": "function",
            "description": "A contact.",
            "strict": True,
        }
    ],
}
LANGCHAIN = {"properties": UNTITLED, "required": REQUIRED, "type": "object"}
TITLED = {
    "description": "A contact.",
    "properties": PROPERTIES,
    "required": REQUIRED,
    "title": "Contact",
    "type": "object",
    "additionalProperties": False,
}
AI = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": UNTITLED,
    "required": REQUIRED,
    "additionalProperties": False,
}


def corrected(name: str, reason: str, /, **more: Any) -> list[dict[str, Any]]:
    """The messages after an answer that the client did not take."""
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": name, "arguments": WRONG},
    }
    return [
        user("x"),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": reason, **more},
    ]


CLIENTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    # where the answer is, protocol, request
    "instructor, tools": ("call", "chat", INSTRUCTOR),
    "instructor, tools, corrected": ("call", "chat", {**INSTRUCTOR, "messages": corrected(
        "Contact", "Validation Error found:\n1 validation error for Contact\nRecall the function correctly, fix the "
        "errors", name="Contact")}),
    "instructor, tools, partial": ("call", "chat", {**INSTRUCTOR, "stream": True}),
    "instructor, Responses": ("call", "responses", {
        "text": {"format": {"type": "json_schema", "name": "Contact", "strict": True, "schema": TITLED}},
        "tool_choice": {"type": "function", "name": "Contact"},
        "tools": [{"type": "function", "name": "Contact", "parameters": TITLED, "description": "A contact."}]}),
    "pydantic-ai, output tool": ("call", "chat", {**PYDANTIC_AI_CHAT, "stream": False}),
    "pydantic-ai, output tool, streamed": ("call", "chat", {
        **PYDANTIC_AI_CHAT, "stream": True, "stream_options": {"include_usage": True}}),
    "pydantic-ai, output tool, corrected": ("call", "chat", {
        **PYDANTIC_AI_CHAT, "messages": corrected("final_result", '{"error":"not upper"}')}),
    "pydantic-ai, output tool, next question": ("call", "chat", {**PYDANTIC_AI_CHAT, "messages": [
        *corrected("final_result", "Final result processed."), user("again")]}),
    "pydantic-ai, Responses": ("call", "responses", {**PYDANTIC_AI_RESPONSES, "input": [user("x")]}),
    "pydantic-ai, Responses, corrected": ("call", "responses", {**PYDANTIC_AI_RESPONSES, "input": [
        user("x"), {"name": "final_result", "arguments": WRONG, "call_id": "call_1", "type": "function_call"},
        {"type": "function_call_output", "call_id": "call_1", "output": '{"error":"not upper"}'}]}),
    "LangChain, function_calling": ("call", "chat", {
        "parallel_tool_calls": False, "tool_choice": named("Contact"),
        "tools": [tool("Contact", description="A contact.", parameters=LANGCHAIN)]}),
    "LangChain, json_schema": ("text", "chat", {
        "response_format": {"type": "json_schema", "json_schema": {"schema": TITLED, "name": "Contact",
                                                                   "strict": True}}}),
    "LangChain, json_mode": ("text", "chat", {"response_format": {"type": "json_object"}}),
    "LangChain, agent": ("call", "chat", {
        "tool_choice": "required", "tools": [tool("Contact", description="A contact.", parameters=LANGCHAIN)]}),
    "LlamaIndex": ("text", "chat", {
        "temperature": 0.1, "tool_choice": "required", "messages": [user(
            f"x\n\n\nHere's a JSON schema to follow:\n{json.dumps(TITLED)}\n\nOutput a valid JSON object but do not "
            "repeat the schema.\n")]}),
    "LlamaIndex, functions": ("call", "chat", {
        "parallel_tool_calls": False, "temperature": 0.1, "tool_choice": "required",
        "tools": [tool("Contact", description="A contact.", parameters={
            "properties": PROPERTIES, "required": REQUIRED, "type": "object", "additionalProperties": False},
            strict=False)]}),
    "Vercel's AI SDK, object": ("text", "chat", {"response_format": {"type": "json_schema", "json_schema": {
        "schema": AI, "strict": True, "name": "response"}}}),
    "Vercel's AI SDK, object, Responses": ("text", "responses", {"text": {"format": {
        "type": "json_schema", "strict": True, "name": "response", "schema": AI}}}),
    "Vercel's AI SDK, tool": ("call", "chat", {"tool_choice": named("contact"), "tools": [tool(
        "contact", description="A contact", parameters=AI)]}),
    "openai-agents, output_type": ("text", "responses", {"include": [], "text": {"format": {
        "type": "json_schema", "name": "final_output", "schema": TITLED, "strict": True}}}),
}  # fmt: skip
"""What they send for `Contact`; recorded from instructor 1.17, pydantic-ai 2.68, langchain-openai 1.7,
llama-index-llms-openai-like 0.8, ai 7 and openai-agents 0.24."""


@pytest.mark.parametrize(
    ("place", "protocol", "request_body"), CLIENTS.values(), ids=CLIENTS
)
def test_what_clients_send(
    service: httpx.Client,
    recorder: Recorder,
    place: str,
    protocol: str,
    request_body: dict[str, Any],
) -> None:
    """The answer is where the client looks for it, after one call of the model."""
    before = len(recorder.requests)
    recorder.answer = CONTACT
    response = post(service, protocol, request_body)
    assert response.status_code == 200, response.text
    if request_body.get("stream"):
        deltas = [
            choice["delta"]
            for chunk in events_of(response)
            for choice in chunk["choices"]
        ]
        pieces = [
            call["function"]["arguments"]
            for delta in deltas
            for call in delta.get("tool_calls", ())
        ]
        assert json.loads("".join(pieces)) == CONTACT
    else:
        assert json.loads(answered(response, protocol, place)) == CONTACT
    assert len(recorder.requests) == before + 1
    output = recorder.requests[-1].output
    if output is not None and "properties" in output.schema:
        assert output.schema["properties"]["email"]["pattern"] == EMAIL


def answered(response: httpx.Response, protocol: str, place: str) -> str:
    """The JSON text of an answer: that of a message, or the arguments of a call."""
    body = response.json()
    if protocol == "chat":
        (choice,) = body["choices"]
        if place == "text":
            return choice["message"]["content"]
        (call,) = choice["message"]["tool_calls"]
        return call["function"]["arguments"]
    (item,) = body["output"]
    if place == "text":
        return item["content"][0]["text"]
    return item["arguments"]


# --- Schemas -------------------------------------------------------------------------------------


class Money(BaseModel):
    """With the constraints that pydantic writes as patterns."""

    code: Annotated[str, Field(pattern="^[A-Z]{3}$")]
    kind: Literal["cash"] = "cash"
    tags: dict[Annotated[str, StringConstraints(pattern="^x")], int]


SCHEMAS: dict[str, tuple[dict[str, Any], Any]] = {
    **json.loads((Path(__file__).parent / "zod_schemas.json").read_text()),
    "pydantic": (
        Money.model_json_schema(),
        {"code": "CHF", "kind": "cash", "tags": {"x1": 1}},
    ),
    "endless": ({"type": "string", "pattern": "^(a+)+$"}, "a" * 100 + "b"),
}
"""JSON Schemas, as zod 4.6 writes them for its types, with a value that fits."""


@pytest.mark.parametrize("protocol", ["chat", "responses"])
@pytest.mark.parametrize("form", ["schema", "tool"])
@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas_with_patterns(
    service: httpx.Client,
    recorder: Recorder,
    name: str,
    form: str,
    protocol: str,
) -> None:
    """They reach the model whole, and its answer is the client's."""
    field, value = SCHEMAS[name]
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"field": field},
        "required": ["field"],
        "additionalProperties": False,
    }
    recorder.answer = {"field": value}
    body: dict[str, Any] = {
        "tool_choice": "required",
        "tools": [tool("f", parameters=schema)],
    }
    if form == "schema" and protocol == "chat":
        described = {"name": "s", "schema": schema}
        body = {
            "response_format": {"type": "json_schema", "json_schema": described}
        }
    elif form == "schema":
        described = {"type": "json_schema", "name": "s", "schema": schema}
        body = {"text": {"format": described}}
    elif protocol == "responses":
        described = {"type": "function", "name": "f", "parameters": schema}
        body["tools"] = [described]
    response = post(service, protocol, body)
    assert response.status_code == 200, response.text
    place = {"schema": "text", "tool": "call"}[form]
    text = answered(response, protocol, place)
    assert json.loads(text) == recorder.answer
    output = recorder.requests[-1].output
    assert output is not None
    assert output.schema["properties"] == schema["properties"]


# --- LangChain -----------------------------------------------------------------------------------


# LangChain warns of its own message with the parsed answer
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize("responses", [False, True])
@pytest.mark.parametrize(
    "method", ["function_calling", "json_schema", "json_mode"]
)
def test_langchain(
    service: httpx.Client,
    recorder: Recorder,
    method: Literal["function_calling", "json_schema", "json_mode"],
    responses: bool,
) -> None:
    """`with_structured_output`, whole and streamed."""
    from langchain_openai import ChatOpenAI

    recorder.answer = CONTACT
    chat = ChatOpenAI(
        model="helper",
        base_url=f"{service.base_url}/v1",
        api_key=SecretStr("none"),
        max_retries=0,
        use_responses_api=responses,
    )
    structured = chat.with_structured_output(Contact, method=method)
    assert structured.invoke("x") == Contact(**CONTACT)
    assert list(structured.stream("x"))[-1] == Contact(**CONTACT)
