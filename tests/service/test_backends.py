"""Spans as backends of traces read them: the rules are those of their sources, which the tests name.

Langfuse: `packages/shared/src/server/otel/OtelIngestionProcessor.ts` of August 2026. Phoenix 20:
`phoenix/trace/gen_ai/conversion.py`, and the names of OpenInference.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import (
    InMemorySpanExporter,
)
from tests.helpers import until
from tests.service.support import Serve

from podwright import (
    Agent,
    AgentStep,
    FunctionModel,
    ParallelStep,
    Usage,
    Workflow,
)
from podwright.testing import ModelRequest, ModelResponse, ToolCall
from podwright_service.observability import exporters, span_content

USED = Usage(
    1000, 100, 400, 20, cost=0.5, cache_write_tokens=300, cost_source="override"
)


def look() -> str:
    """Look."""
    return "seen"


def model(request: ModelRequest) -> ModelResponse:
    if request.tools and request.messages[-1].role == "user":
        return ModelResponse(
            tool_calls=(ToolCall.of("look"),),
            usage=USED,
            finish_reason="tool_calls",
        )
    return ModelResponse("The answer.", usage=USED, model="function-2026-01-01")


@pytest.fixture
def trace(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[ReadableSpan]]:
    """The spans of one request to a workflow with parallel branches, with content."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(
        exporters, "create_tracer_provider", lambda *_: provider
    )
    monkeypatch.setenv(
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_ONLY"
    )
    agents = [
        Agent(name, "Help.", FunctionModel(model), tools=[look])
        for name in ("one", "two")
    ]
    branches = [[AgentStep("one")], [AgentStep("two")]]
    flow = Workflow(
        "flow",
        [ParallelStep(branches, "both")],
        agents={agent.name: agent for agent in agents},
    )
    client = serve(flow)
    body = {"input": "The question?", "user": "u1", "session": "s1"}
    assert client.post("/run", json=body).status_code == 200
    until(
        lambda: any(
            span.name == "POST /run" for span in exporter.get_finished_spans()
        )
    )
    yield list(exporter.get_finished_spans())
    provider.shutdown()


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def langfuse_usage(attributes: dict[str, Any]) -> dict[str, float]:
    """What Langfuse takes for counts of tokens: every number below `gen_ai.usage.` and `llm.token_count.`."""
    prefixes = ("gen_ai.usage.", "llm.token_count.")
    counts = {
        key: value
        for key, value in attributes.items()
        if key.startswith(prefixes)
    }
    counts.pop("gen_ai.usage.cost", None)
    return {
        key: float(value)
        for key, value in counts.items()
        if not isinstance(value, str)
    }


def test_langfuse_counts_each_token_once(trace: list[ReadableSpan]) -> None:
    """It adds up the spans of a trace: four calls are in it, and nothing but tokens among their counts."""
    usages = [
        usage
        for span in trace
        if (usage := langfuse_usage(attributes_of(span)))
    ]
    assert len(usages) == 4
    assert sum(usage["gen_ai.usage.input_tokens"] for usage in usages) == 4000
    assert sum(usage["gen_ai.usage.output_tokens"] for usage in usages) == 400
    for usage in usages:
        assert all(value == int(value) for value in usage.values()), (
            "its database has whole numbers"
        )
        # the name of v0.1.0 besides would count these tokens twice
        assert "gen_ai.usage.cache_write.input_tokens" not in usage
        parts = (
            "cache_read.input_tokens",
            "cache_creation.input_tokens",
            "reasoning.output_tokens",
        )
        assert [usage[f"gen_ai.usage.{part}"] for part in parts] == [
            400,
            300,
            20,
        ]


def test_langfuse_has_the_cost(trace: list[ReadableSpan]) -> None:
    """Its total of a span is `gen_ai.usage.cost`."""
    costs = [attributes_of(span).get("gen_ai.usage.cost") for span in trace]
    assert sum(cost for cost in costs if cost) == 2.0


def test_lists_of_traces_are_not_blank(trace: list[ReadableSpan]) -> None:
    """Both show input and output of the root span, and for whom it was; Phoenix only spans of a kind that it knows."""
    (root,) = [
        attributes_of(span) for span in trace if span.name == "POST /run"
    ]
    assert root["input.value"] == "The question?"
    assert json.loads(root["output.value"])["one_output"] == "The answer."
    assert (root["user.id"], root["session.id"]) == ("u1", "s1")
    assert root["openinference.span.kind"] == "CHAIN"
    kinds = {
        span.name: attributes_of(span).get("openinference.span.kind")
        for span in trace
    }
    assert (kinds["invoke_workflow flow"], kinds["invoke_agent one"]) == (
        "CHAIN",
        "AGENT",
    )


def test_phoenix_reads_the_messages(trace: list[ReadableSpan]) -> None:
    """They are JSON in the schema of the conventions, which it checks."""
    for span in trace:
        for name in ("gen_ai.input.messages", "gen_ai.output.messages"):
            for message in json.loads(attributes_of(span).get(name, "[]")):
                assert message["role"] in (
                    "system",
                    "user",
                    "assistant",
                    "tool",
                )
                assert {part["type"] for part in message["parts"]} <= {
                    "text",
                    "tool_call",
                    "tool_call_response",
                }


def test_both_models_are_on_the_span(trace: list[ReadableSpan]) -> None:
    """The one that was asked, and the one that answered."""
    chats = [
        attributes_of(span) for span in trace if span.name == "chat function"
    ]
    models = {
        (chat["gen_ai.request.model"], chat.get("gen_ai.response.model"))
        for chat in chats
    }
    assert ("function", "function-2026-01-01") in models
    assert {chat["gen_ai.usage.cost.source"] for chat in chats} == {"local"}
    assert {chat["podwright.model_call.price_list"] for chat in chats} == {
        "override"
    }


MESSAGES = [
    {"role": "user", "parts": [{"type": "text", "content": "x" * 500}]},
    {
        "role": "assistant",
        "parts": [{"type": "text", "content": 'a "quoted" \n text ' * 30}],
    },
]


@pytest.mark.parametrize("limit", [2000, 700, 300, 180, 90, 20, 2])
@pytest.mark.parametrize(
    "data",
    [
        MESSAGES,
        MESSAGES[:1],
        {"place": "y" * 999, "tags": ["z" * 99] * 9},
        "w" * 999,
    ],
)
def test_content_is_cut_inside_its_texts(
    data: Any, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is too long for the operator's limit is shortened, and still JSON."""
    monkeypatch.setenv("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", str(limit))
    text = span_content.to_json(data)
    assert len(text) <= limit
    assert type(json.loads(text)) in (type(data), dict)
    assert len(span_content.cut("x" * 999)) == min(999, limit)


def test_short_content_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a limit, or within it, nothing is cut."""
    assert json.loads(span_content.to_json(MESSAGES)) == MESSAGES
    monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "100000")
    monkeypatch.setenv("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "10")
    assert json.loads(span_content.to_json(MESSAGES)) == MESSAGES
