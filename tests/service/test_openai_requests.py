"""What clients send: what they send by default works, and what cannot be done is refused with what to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from openai.types.chat import completion_create_params
from openai.types.responses import response_create_params
from tests.service.openai_support import post, user
from tests.service.support import Serve, Served

from podwright import Agent, AgentStep, FunctionModel, Workflow
from podwright.testing import ModelRequest


class Recorder:
    """A model that keeps what it was asked."""

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []

    def __call__(self, request: ModelRequest) -> str:
        self.requests.append(request)
        return "fine"

    def said(self) -> list[tuple[str, str]]:
        """Role and text of each message of the last request, without the system message."""
        return [
            (message.role, message.text)
            for message in self.requests[-1].messages[1:]
        ]


@pytest.fixture(scope="module")
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture(scope="module")
def service(served: Served, recorder: Recorder) -> Iterator[httpx.Client]:
    with served(Agent("helper", "Help.", FunctionModel(recorder))) as client:
        yield client


GITHUB = "https://github.com"
N8N = (
    f"{GITHUB}/n8n-io/n8n/blob/master/packages/@n8n/nodes-langchain/nodes/vendors/OpenAi/v2/actions/text/helpers/"
    "responses.ts"
)
SPRING_AI = (
    f"{GITHUB}/spring-projects/spring-ai/blob/main/models/spring-ai-openai/src/main/java/org/springframework/ai/"
    "openai/OpenAiChatModel.java"
)
TEXT = [{"type": "input_text", "text": "x"}]
SHELL = {"type": "function", "name": "shell", "parameters": {}}

CLIENTS: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "Open WebUI, chat": (
        f"{GITHUB}/open-webui/open-webui/blob/main/backend/open_webui/routers/openai.py", "chat",
        {"stream": True, "stream_options": {"include_usage": True}}, "",
    ),
    "Open WebUI, title of a chat": (
        f"{GITHUB}/open-webui/open-webui/blob/main/backend/open_webui/routers/tasks.py", "chat",
        {"stream": False, "max_completion_tokens": 1000}, "",
    ),
    "LibreChat, custom endpoint": (
        f"{GITHUB}/danny-avila/LibreChat/blob/main/packages/api/src/endpoints/openai/llm.ts", "chat",
        {"stream": True, "stream_options": {"include_usage": True}, "user": "66f1", "temperature": 1, "top_p": 1,
         "presence_penalty": 0, "frequency_penalty": 0, "messages": [{"role": "system", "content": ""}, user("x")]}, "",
    ),
    "n8n, OpenAI node": (
        N8N, "responses",
        {"input": [{"role": "user", "content": TEXT}], "parallel_tool_calls": True, "store": True,
         "background": False}, "",
    ),
    "n8n, OpenAI node with options": (
        N8N, "responses",
        {"input": [{"role": "system", "content": TEXT}, {"role": "user", "content": TEXT}], "store": True,
         "truncation": "auto", "include": ["message.output_text.logprobs"], "service_tier": "auto",
         "reasoning": {"effort": "medium", "summary": "auto"}, "text": {"verbosity": "medium",
         "format": {"type": "text"}}, "metadata": {"workflow": 7}}, "",
    ),
    "n8n, second turn by id": (
        N8N, "responses", {"previous_response_id": "resp_1", "store": True}, "store: false",
    ),
    "Vercel's AI SDK, second turn of Responses": (
        f"{GITHUB}/vercel/ai/blob/main/packages/openai/src/responses/convert-to-openai-responses-input.ts", "responses",
        {"input": [{"role": "user", "content": TEXT}, {"type": "item_reference", "id": "msg_1"},
                   {"role": "user", "content": TEXT}]}, "store: false",
    ),
    "Vercel's AI SDK, the same with store: false": (
        f"{GITHUB}/vercel/ai/blob/main/packages/openai/src/responses/convert-to-openai-responses-input.ts", "responses",
        {"store": False, "include": ["reasoning.encrypted_content"],
         "input": [{"role": "user", "content": TEXT},
                   {"type": "reasoning", "id": "rs_1", "encrypted_content": None, "summary": []},
                   {"role": "assistant", "id": "msg_1", "content": [{"type": "output_text", "text": "y"}]},
                   {"role": "user", "content": TEXT}]}, "",
    ),
    "Vercel's AI SDK, openai-compatible": (
        f"{GITHUB}/vercel/ai/blob/main/packages/openai-compatible/src/chat/openai-compatible-chat-language-model.ts",
        "chat", {"messages": [user("x"), {"role": "assistant", "content": "y", "reasoning_content": "hm"}, user("z")]},
        "",
    ),
    "LangChain for JavaScript, Responses": (
        f"{GITHUB}/langchain-ai/langchainjs/blob/main/libs/providers/langchain-openai/src/chat_models/responses.ts",
        "responses",
        {"stream": True, "text": {}, "input": [{"type": "message", "role": "user", "content": "x"},
         {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "y", "annotations": []}]},
         {"type": "message", "role": "user", "content": "z"}]}, "",
    ),
    "LangChain for Python, answers of a reasoning model sent back": (
        f"{GITHUB}/langchain-ai/langchain/blob/master/libs/partners/openai/langchain_openai/chat_models/base.py",
        "responses",
        {"input": [user("x"), {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]},
         {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "y",
          "annotations": []}]}, user("z")]}, "",
    ),
    "Spring AI, stream": (
        SPRING_AI, "chat",
        {"stream": True, "stream_options": {"include_usage": True},
         "messages": [user("x"), {"role": "assistant", "content": "y", "reasoning_content": "hm"}, user("z")]}, "",
    ),
    "LiteLLM's proxy, Responses": (
        f"{GITHUB}/BerriAI/litellm/issues/35780", "responses",
        {"metadata": {}, "store": False, "instructions": None, "text": None, "max_output_tokens": None}, "",
    ),
    "LiteLLM's proxy, health check": (
        f"{GITHUB}/BerriAI/litellm/blob/main/litellm/proxy/health_check.py", "chat", {"max_tokens": 1}, "",
    ),
    "Continue, chat": (
        f"{GITHUB}/continuedev/continue/blob/main/core/llm/openaiTypeConverters.ts", "chat",
        {"stream": True, "max_tokens": 2048, "stop": ["```"], "messages": [{"role": "system", "content": "Be brief."},
         user("x"), {"role": "assistant", "content": " "}, {"role": "user", "content": [{"type": "text", "text": "z"},
         {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "auto"}}]}]}, "",
    ),
    "Continue, Responses": (
        f"{GITHUB}/continuedev/continue/blob/main/core/llm/llms/OpenAI.ts", "responses",
        {"stream": True, "temperature": None, "top_p": None, "reasoning": {"effort": "medium", "summary": "auto"},
         "include": ["reasoning.encrypted_content"], "max_output_tokens": 4096,
         "input": [{"role": "developer", "content": ""}, user("x")]}, "",
    ),
    "opencode": (
        f"{GITHUB}/anomalyco/opencode/issues/42613", "responses",
        {"input": [user("x"), {"role": "assistant", "content": [{"type": "output_text", "text": "y"}]}, user("z")]}, "",
    ),
    "Codex": (
        f"{GITHUB}/openai/codex/issues/8829", "responses",
        {"tools": [SHELL], "tool_choice": "auto", "store": False, "stream": True}, "the component has its own",
    ),
}  # fmt: skip
"""A client: the source, the protocol, what it sends, and the words of the refusal, if there is one."""


@pytest.mark.parametrize(
    ("source", "protocol", "change", "words"), CLIENTS.values(), ids=CLIENTS
)
def test_what_clients_send(
    service: httpx.Client,
    source: str,
    protocol: str,
    change: dict[str, Any],
    words: str,
) -> None:
    """What a client sends without being told otherwise works, or is refused with what to change."""
    response = post(service, protocol, change)
    if not words:
        assert response.status_code == 200, (source, response.text)
        assert "fine" in response.text
        assert "response.failed" not in response.text
    else:
        assert response.status_code == 400
        assert words in response.json()["error"]["message"]


PARAMETERS = {
    "chat": completion_create_params.CompletionCreateParamsBase.__annotations__,
    "responses": response_create_params.ResponseCreateParamsBase.__annotations__,
}
UNKNOWN = (
    "top_k",
    "include_reasoning",
    "thinking",
    "extra_body",
    "chat_template_kwargs",
    "best_of",
    "suffix",
)


@pytest.mark.parametrize("protocol", PARAMETERS)
def test_null_is_unset(
    service: httpx.Client, recorder: Recorder, protocol: str
) -> None:
    """Null for every parameter that OpenAI's client knows, and for others, is the same as leaving them out."""
    sent = (
        {"model", "messages", "input"}
        if protocol == "chat"
        else {"model", "input"}
    )
    nulls = dict.fromkeys(
        [
            name
            for name in (*PARAMETERS[protocol], "stream", *UNKNOWN)
            if name not in sent
        ]
    )
    response = post(service, protocol, nulls)
    assert response.status_code == 200, response.text
    assert recorder.requests[-1].settings == {}
    empty = {
        "extra_body": {},
        "plugins": [],
        "suffix": "",
        "tools": [],
        "metadata": {},
        "stop": [],
    }
    taken = (
        empty
        if protocol == "chat"
        else {name: value for name, value in empty.items() if name != "stop"}
    )
    assert post(service, protocol, taken).status_code == 200


def test_a_number_may_be_written_with_a_fraction(
    service: httpx.Client, recorder: Recorder
) -> None:
    """512.0 is 512, and -1 is no limit; settings reach the model as the whole numbers that providers want."""
    assert (
        post(
            service, "chat", {"max_tokens": 512.0, "seed": 42.0, "n": 1.0}
        ).status_code
        == 200
    )
    assert (
        str(recorder.requests[-1].settings) == "{'seed': 42, 'max_tokens': 512}"
    )
    assert (
        post(service, "chat", {"max_tokens": -1, "stop": ""}).status_code == 200
    )
    assert recorder.requests[-1].settings == {}
    assert (
        post(service, "responses", {"max_output_tokens": 64.0}).status_code
        == 200
    )
    assert recorder.requests[-1].settings == {"max_tokens": 64}


NO_EFFECT: dict[str, tuple[str, dict[str, Any]]] = {
    "verbosity": ("chat", {"verbosity": "low"}),
    "prediction": ("chat", {"prediction": {"type": "content", "content": "x"}}),
    "cache": (
        "chat",
        {
            "prompt_cache_retention": "24h",
            "prompt_cache_key": "k",
            "prompt_cache_options": {"ttl": 5},
        },
    ),
    "no tools": (
        "chat",
        {"tools": [], "tool_choice": "none", "parallel_tool_calls": True},
    ),
    "stream options": (
        "chat",
        {
            "stream_options": {
                "include_usage": None,
                "continuous_usage_stats": True,
            }
        },
    ),
    "metadata": (
        "chat",
        {
            "metadata": {
                "session": 7,
                "tags": ["a"],
                "nothing": None,
                "long": "x" * 1000,
            }
        },
    ),
    "user as a number": ("chat", {"user": 17}),
    "user as an object": (
        "responses",
        {"user": {"id": "u1"}, "safety_identifier": 4},
    ),
    "service tier": ("responses", {"service_tier": "flex"}),
    "truncation": (
        "responses",
        {"truncation": "auto", "text": {"verbosity": "low", "format": None}},
    ),
    "include": (
        "responses",
        {
            "include": ["web_search_call.action.sources"],
            "store": True,
            "background": False,
        },
    ),
    "summary": (
        "responses",
        {
            "reasoning": {
                "summary": "detailed",
                "generate_summary": "auto",
                "effort": None,
            }
        },
    ),
}


@pytest.mark.parametrize(
    ("protocol", "change"), NO_EFFECT.values(), ids=NO_EFFECT
)
def test_what_has_no_effect(
    service: httpx.Client,
    recorder: Recorder,
    protocol: str,
    change: dict[str, Any],
) -> None:
    """A parameter that changes nothing here is taken, and the response says what was done."""
    response = post(service, protocol, change)
    assert response.status_code == 200, response.text
    assert recorder.requests[-1].settings == {}
    if protocol == "responses":
        said = response.json()
        assert (said["store"], said["background"], said["truncation"]) == (
            False,
            False,
            "disabled",
        )
        assert said["user"] is None


EMPTY: dict[str, dict[str, Any]] = {
    "text": {"content": ""},
    "null": {"content": None},
    "nulls": {"content": None, "tool_calls": None},
    "missing": {},
    "no parts": {"content": []},
    "a part without text": {"content": [{"type": "text", "text": ""}]},
    "white space": {"content": "\n\n"},
    "no calls": {"content": "", "tool_calls": []},
    "as OpenAI's client dumps it": {"content": "", "refusal": None, "annotations": [], "audio": None,
                                    "function_call": None, "tool_calls": None},
    "only thoughts": {"content": None, "reasoning_content": "Hm."},
}  # fmt: skip
"""Assistant messages of turns that were stopped before their first token.

https://github.com/open-webui/open-webui/issues/25083, https://github.com/vellum-ai/vellum-assistant/issues/40690
"""


@pytest.mark.parametrize("message", EMPTY.values(), ids=EMPTY)
def test_an_empty_answer_is_left_out(
    service: httpx.Client, recorder: Recorder, message: dict[str, Any]
) -> None:
    """An assistant's turn without text and tool calls is not sent to a provider, which would refuse it."""
    conversation = [user("a"), {"role": "assistant", **message}, user("b")]
    assert post(service, "chat", {"messages": conversation}).status_code == 200
    assert recorder.said() == [("user", "a"), ("user", "b")]
    assert (
        post(service, "chat", {"messages": conversation[:2]}).status_code == 200
    )
    assert recorder.said() == [("user", "a")]
    if message.keys() <= {"content"} and message.get("content") != [
        {"type": "text", "text": ""}
    ]:
        assert (
            post(service, "responses", {"input": conversation}).status_code
            == 200
        )
        assert recorder.said() == [("user", "a"), ("user", "b")]


PIXEL = "iVBORw0KGgo="
CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "f", "arguments": "{}"},
}
HISTORIES: dict[str, tuple[str, list[dict[str, Any]], list[tuple[str, str]]]] = {
    "greeting": ("chat", [{"role": "assistant", "content": "Hi."}, user("x")], [("assistant", "Hi."), ("user", "x")]),
    "instructions without text": ("chat", [{"role": "system", "content": None}, {"role": "developer"}, user("x")],
                                  [("user", "x")]),
    "keys of the client": ("chat", [{**user("x"), "id": 194, "name": None, "cache_control": {"type": "ephemeral"}}],
                           [("user", "x")]),
    "marked part": ("chat", [user([{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"},
                                    "image_url": None}])], [("user", "x")]),
    "result without text": ("chat", [user("x"), {"role": "assistant", "content": None, "tool_calls": [CALL]},
                                     {"role": "tool", "tool_call_id": "c1", "content": None}, user("y")],
                            [("user", "x"), ("assistant", ""), ("tool", ""), ("user", "y")]),
    "a refusal": ("chat", [user("x"), {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
                           user("y")], [("user", "x"), ("assistant", "No."), ("user", "y")]),
    "types of the other side": ("responses", [
        {"role": "user", "content": [{"type": "output_text", "text": "x"}]},
        {"role": "assistant", "content": [{"type": "input_text", "text": "y"}]}, user("z")],
        [("user", "x"), ("assistant", "y"), ("user", "z")]),
    "a call without result text": ("responses", [
        user("x"), {"type": "function_call", "call_id": "c", "name": "f", "arguments": None, "id": None},
        {"type": "function_call_output", "call_id": "c", "output": None}, user("y")],
        [("user", "x"), ("assistant", ""), ("tool", ""), ("user", "y")]),
}  # fmt: skip


@pytest.mark.parametrize(
    ("protocol", "messages", "said"), HISTORIES.values(), ids=HISTORIES
)
def test_messages_as_clients_write_them(
    service: httpx.Client,
    recorder: Recorder,
    protocol: str,
    messages: Any,
    said: list[tuple[str, str]],
) -> None:
    """Nulls, keys of the client and the types of the other protocol leave a message as it is meant."""
    response = post(
        service,
        protocol,
        {"messages" if protocol == "chat" else "input": messages},
    )
    assert response.status_code == 200, response.text
    assert recorder.said() == said


def test_arguments_of_a_call(service: httpx.Client, recorder: Recorder) -> None:
    """The arguments of an earlier call may be the object itself, as Ollama's clients have it, or be left out."""
    for arguments, text in (
        ({"a": 1}, '{"a": 1}'),
        (None, ""),
        ('{"a": 2}', '{"a": 2}'),
    ):
        call = {"id": "c", "function": {"name": "f", "arguments": arguments}}
        messages = [
            user("x"),
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c"},
        ]
        assert (
            post(
                service, "chat", {"messages": [*messages, user("y")]}
            ).status_code
            == 200
        )
        assert recorder.requests[-1].messages[2].tool_calls[0].arguments == text


IMAGES: dict[str, tuple[str, Any, dict[str, str]]] = {
    "a text": (
        "chat",
        f"data:image/png;base64,{PIXEL}",
        {"url": f"data:image/png;base64,{PIXEL}"},
    ),
    "upper case": (
        "chat",
        {"url": f"data:image/PNG;base64,{PIXEL}"},
        {"url": f"data:image/png;base64,{PIXEL}"},
    ),
    "jpg": (
        "chat",
        {"url": f"data:image/jpg;base64,{PIXEL}"},
        {"url": f"data:image/jpeg;base64,{PIXEL}"},
    ),
    "named": (
        "chat",
        {"url": f"data:image/png;name=a.png;base64,{PIXEL}"},
        {"url": f"data:image/png;base64,{PIXEL}"},
    ),
    "detail": (
        "chat",
        {"url": "https://x/y", "detail": "low"},
        {"url": "https://x/y", "detail": "low"},
    ),
    "no detail": (
        "chat",
        {"url": "https://x/y", "detail": None},
        {"url": "https://x/y"},
    ),
    "original": (
        "chat",
        {"url": "https://x/y", "detail": "original"},
        {"url": "https://x/y", "detail": "high"},
    ),
    "Responses": (
        "responses",
        "https://x/y",
        {"url": "https://x/y", "detail": "auto"},
    ),
}


@pytest.mark.parametrize(
    ("protocol", "image", "wanted"), IMAGES.values(), ids=IMAGES
)
def test_images_as_clients_write_them(
    service: httpx.Client,
    recorder: Recorder,
    protocol: str,
    image: Any,
    wanted: dict[str, str],
) -> None:
    """A link may be a text or an object, and its media type in any spelling."""
    if protocol == "chat":
        parts = [
            {"type": "text", "text": "x"},
            {"type": "image_url", "image_url": image},
        ]
        change = {"messages": [{"role": "user", "content": parts}]}
    else:
        part = {
            "type": "input_image",
            "image_url": image,
            "file_id": None,
            "detail": "auto",
        }
        change = {
            "input": [
                {
                    "role": "user",
                    "content": [{"type": "input_text", "text": "x"}, part],
                }
            ]
        }
    response = post(service, protocol, change)
    assert response.status_code == 200, response.text
    part = recorder.requests[-1].messages[-1].content[1]
    assert part == {"type": "image_url", "image_url": wanted}


PDF = "data:application/pdf;base64,JVBERi0="
FILES: dict[str, tuple[str, Any, Any]] = {
    "chat": (
        "chat",
        {"type": "file", "file": {"filename": "a.pdf", "file_data": PDF}},
        {"filename": "a.pdf", "file_data": PDF},
    ),
    "no name": (
        "chat",
        {"type": "file", "file": {"file_data": PDF, "file_id": None}},
        {"file_data": PDF},
    ),
    "charset": (
        "chat",
        {
            "type": "file",
            "file": {"file_data": "data:Text/CSV;charset=utf-8;base64,YQ=="},
        },
        {"file_data": "data:text/csv;base64,YQ=="},
    ),
    "Responses": (
        "responses",
        {
            "type": "input_file",
            "filename": "a.pdf",
            "file_data": PDF,
            "file_id": None,
        },
        {"filename": "a.pdf", "file_data": PDF},
    ),
    "Responses, a URL": (
        "responses",
        {"type": "input_file", "file_url": "https://x/a.pdf"},
        {"file_data": "https://x/a.pdf"},
    ),
}


def asked_with(protocol: str, part: Any) -> dict[str, Any]:
    """A request whose last message has a text and a part."""
    kind = "text" if protocol == "chat" else "input_text"
    message = {
        "role": "user",
        "content": [{"type": kind, "text": "x"}, part],
    }
    return {"messages" if protocol == "chat" else "input": [message]}


@pytest.mark.parametrize(
    ("protocol", "part", "wanted"), FILES.values(), ids=FILES
)
def test_files_as_clients_write_them(
    service: httpx.Client,
    recorder: Recorder,
    protocol: str,
    part: Any,
    wanted: dict[str, str],
) -> None:
    """Both protocols lead to the same part, and its media type may be in any spelling."""
    response = post(service, protocol, asked_with(protocol, part))
    assert response.status_code == 200, response.text
    part = recorder.requests[-1].messages[-1].content[1]
    assert part == {"type": "file", "file": wanted}


def test_audio_as_clients_write_it(
    service: httpx.Client, recorder: Recorder
) -> None:
    audio = {
        "type": "input_audio",
        "input_audio": {"data": "SUQz", "format": "mp3"},
    }
    for protocol in ("chat", "responses"):
        response = post(service, protocol, asked_with(protocol, audio))
        assert response.status_code == 200, response.text
        assert recorder.requests[-1].messages[-1].content[1] == audio


def test_a_workflow_takes_what_clients_send(
    serve: Serve, recorder: Recorder
) -> None:
    """Defaults and empty turns are no settings and no conversation; a named input may be a number."""
    writer = Agent("writer", "Write {count} lines.", FunctionModel(recorder))
    service = serve(Workflow("flow", [AgentStep(writer)]))
    messages = [
        {"role": "system", "content": ""},
        user("go"),
        {"role": "assistant", "content": None},
    ]
    change = {
        "model": "flow",
        "messages": messages,
        "parallel_tool_calls": True,
        "metadata": {"count": 3},
    }
    response = post(service, "chat", change)
    assert response.status_code == 200, response.text
    assert recorder.requests[-1].messages[0].text == "Write 3 lines."
    error = post(
        service, "chat", {**change, "parallel_tool_calls": False}
    ).json()["error"]
    assert error["param"] == "parallel_tool_calls"


@pytest.mark.parametrize("name", ["helper", "travel guide"])
def test_a_model_by_its_id(serve: Serve, name: str) -> None:
    """A client finds the model by its id, with or without a slash at the end of the URL, and no other one."""
    service = serve(
        Agent(name, "", "offline/echo"),
        api_keys=["read:a-key-of-a-reader-0001", "a-key-of-a-client-0001"],
    )
    with openai.OpenAI(
        base_url=f"{service.base_url}/v1",
        api_key="a-key-of-a-client-0001",
        max_retries=0,
    ) as client:
        model = client.models.retrieve(name)
        assert (model.id, model.object, model.owned_by) == (
            name,
            "model",
            "podwright",
        )
        for other in ("other", "team/guide", "https://example.com/x"):
            with pytest.raises(openai.NotFoundError) as caught:
                client.models.retrieve(other)
            assert caught.value.code == "model_not_found"
            assert f"Use '{name}'." in str(caught.value)
    headers = {"authorization": "Bearer a-key-of-a-client-0001"}
    listed = service.get("/v1/models", headers=headers).json()
    assert listed["data"] == [model.model_dump(exclude_none=True)]
    assert service.get("/v1/models/", headers=headers).json() == listed
    assert (
        service.get(f"/v1/models/{name}/", headers=headers).json()
        == listed["data"][0]
    )
    for path in ("/v1/models", f"/v1/models/{name}"):
        assert service.head(path, headers=headers).status_code == 200
    for path in ("/v1/models/", f"/v1/models/{name}", f"/v1/models/{name}/"):
        denied = service.get(
            path, headers={"authorization": "Bearer a-key-of-a-reader-0001"}
        )
        assert (denied.status_code, denied.json()["error"]["code"]) == (
            403,
            "scope_missing",
        )
    for path, body in (
        ("chat/completions", {"messages": [user("x")]}),
        ("responses", {"input": "x"}),
    ):
        response = service.post(
            f"/v1/{path}/", json={"model": name, **body}, headers=headers
        )
        assert response.status_code == 200
