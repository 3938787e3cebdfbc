"""A service of an agent that is a function: its models in metrics, spans and /info, streams, background runs."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import (
    InMemorySpanExporter,
)
from opentelemetry.trace import SpanKind
from tests.helpers import until
from tests.service.background_support import begin, wait
from tests.service.support import Serve, check_problem, sse_events

from podwright import (
    Agent,
    AgentStep,
    FunctionAgent,
    ParallelStep,
    Pipeline,
    RunContext,
    Workflow,
)
from podwright.errors import ModelError
from podwright.models import litellm_loader
from podwright.run.run import Task, execute
from podwright_service.observability.run_spans import RunSpans
from podwright_service.testing import Metrics

MODEL = "openai/gpt-4o-mini"


def work(task: str, context: RunContext) -> str:
    """Report a call of a known model, and one of a model that nobody named."""
    context.report_usage(
        MODEL,
        input_tokens=100,
        output_tokens=10,
        cached_input_tokens=40,
        reasoning_tokens=4,
        seconds=1000,
    )
    context.report_usage("acme/other", input_tokens=7, cost=0.5)
    return "done"


HELPER = FunctionAgent("helper", work, models=(MODEL,))


@pytest.mark.parametrize("is_part", [False, True])
def test_reported_calls_are_counted(serve: Serve, is_part: bool) -> None:
    """The metrics have what the function reports, with the models as labels that the agent names."""
    component: Any = HELPER
    if is_part:
        component = Pipeline("line", steps=[HELPER])
    client = serve(component)
    labels = {"component": "helper", "kind": "agent"}
    before = Metrics(client.get("/metrics").text)
    calls = "podwright_model_calls_total"
    assert before.get(calls, **labels, model=MODEL, status="ok") == 0
    response = client.post("/run", json={"input": "x"})
    assert response.headers["podwright-usage"].startswith(
        "input_tokens=107, output_tokens=10,"
    )
    metrics = Metrics(client.get("/metrics").text)
    for model, number in ((MODEL, 1), ("(unknown)", 1)):
        assert metrics.get(calls, **labels, model=model, status="ok") == number
    tokens = {"input": 100, "output": 10, "cached_input": 40, "reasoning": 4}
    for token_type, number in tokens.items():
        assert (
            metrics.get(
                "podwright_tokens_total",
                **labels,
                model=MODEL,
                type=token_type,
            )
            == number
        )
    cost = "podwright_cost_usd_total"
    assert metrics.get(cost, **labels, model="(unknown)") == 0.5
    assert metrics.get(cost, **labels, model=MODEL) > 0
    # the call without a duration is not one of 0 seconds
    duration = "podwright_model_call_duration_seconds"
    assert metrics.get(f"{duration}_count", **labels) == 1
    assert metrics.get(f"{duration}_sum", **labels) == 1000
    called = "podwright_tool_calls_total"
    assert metrics.get(called, **labels, tool="helper", status="ok") == 1


async def test_reported_calls_are_spans() -> None:
    """Each is a child of the call of the function, with the attributes of every model call, and as long as it took."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    def work_in_thread(task: str, context: RunContext) -> str:
        # a thread of a framework does not know of the run
        thread = threading.Thread(target=work, args=(task, context))
        thread.start()
        thread.join()
        return "done"

    for function in (work, work_in_thread):
        exporter.clear()
        await execute(
            FunctionAgent("helper", function),
            Task("x"),
            subscribers=[RunSpans(provider.get_tracer("test"))],
        )
        spans = {span.name: span for span in exporter.get_finished_spans()}
        call = spans["chat gpt-4o-mini"]
        tool = spans["execute_tool helper"]
        assert call.parent is not None
        assert tool.context is not None
        assert call.parent.span_id == tool.context.span_id
        assert call.kind is SpanKind.CLIENT
        attributes = dict(call.attributes or {})
        expected = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "gpt-4o-mini",
            "gen_ai.agent.name": "helper",
            "gen_ai.usage.input_tokens": 100,
            "gen_ai.usage.output_tokens": 10,
            "gen_ai.usage.cache_read.input_tokens": 40,
        }
        assert expected.items() <= attributes.items()
        assert call.start_time is not None
        assert call.end_time is not None
        seconds = (call.end_time - call.start_time) / 1e9
        assert seconds == pytest.approx(1000, abs=100)
        assert "chat other" in spans


def test_info_has_the_reported_models(
    serve: Serve,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`/info` names them apart from those that the service calls, and a model without a price is warned of."""
    # it takes seconds to import, and does not know the price either
    monkeypatch.setattr(litellm_loader, "installed", lambda: False)
    models = (MODEL, "acme/secret")
    line = Pipeline(
        "line",
        steps=[
            Agent("first", "Do.", "offline/echo"),
            FunctionAgent("helper", work, models=models),
        ],
    )
    with caplog.at_level(logging.WARNING):
        info = serve(line).get("/info").json()
    assert info["models"] == {
        "named": ["offline/echo"],
        "effective": ["offline/echo"],
        "reported": list(models),
    }
    assert info["blueprint"]["steps"][1] == {"type": "Agent", "name": "helper"}
    unpriced = [line for line in caplog.messages if "price of" in line]
    assert len(unpriced) == 1
    assert "'acme/secret'" in unpriced[0]


def test_a_limit_is_a_problem(serve: Serve) -> None:
    """A report beyond a limit of the service is the problem that a model call beyond it is."""
    client = serve(HELPER, run_tokens=100)
    problem = check_problem(
        client.post("/run", json={"input": "x"}), 422, "limit_exceeded"
    )
    assert problem["limit"] == "tokens"
    assert problem["usage"]["input_tokens"] == 100


async def _pieces(task: str, context: RunContext) -> AsyncGenerator[str]:
    for piece in ("one ", "two ", "three"):
        yield piece
    context.report_usage(MODEL, input_tokens=3, output_tokens=3)


async def _others(task: str) -> AsyncGenerator[str]:
    yield "not "
    yield "this"


def test_pieces_are_streamed(serve: Serve) -> None:
    """The stream of events has the pieces of a generator as tokens, and then the response of `/run`."""
    client = serve(FunctionAgent("helper", _pieces, models=(MODEL,)))
    with client.stream("POST", "/run/stream", json={"input": "x"}) as response:
        received = list(sse_events(response.iter_lines()))
    tokens = [data["text"] for _, name, data in received if name == "token"]
    assert tokens == ["one ", "two ", "three"]
    _, name, result = received[-1]
    assert (name, result["output"]) == ("result", "one two three")


@pytest.mark.parametrize("is_part", [False, True])
def test_openai_clients_stream_it(serve: Serve, is_part: bool) -> None:
    """Chat Completions has the pieces as chunks, those of the last step of a pipeline only, and the reported tokens."""
    component: Any = FunctionAgent("helper", _pieces, models=(MODEL,))
    if is_part:
        first = Agent("first", "Do.", "offline/echo")
        inner = Pipeline(
            "inner", steps=[FunctionAgent("second", _others), component]
        )
        component = Pipeline("line", steps=[first, inner])
    client = serve(component)
    body = {
        "model": component.name,
        "messages": [{"role": "user", "content": "x"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    with client.stream("POST", "/v1/chat/completions", json=body) as response:
        lines = [line[6:] for line in response.iter_lines() if line]
    assert lines.pop() == "[DONE]"
    chunks = [json.loads(line) for line in lines]
    texts = [
        choice["delta"]["content"]
        for chunk in chunks
        for choice in chunk["choices"]
        if choice["delta"].get("content")
    ]
    assert texts == ["one ", "two ", "three"]
    used = chunks[-1]["usage"]["total_tokens"]
    assert (used > 6) == is_part


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_call_of_a_background_run_is_one_effect(
    serve: Serve, sqlite_database: str, idempotent: bool
) -> None:
    """A call that has ended is not repeated when the run is resumed; one that went on asks a person before."""
    calls: list[str] = []
    cut_off = threading.Event()
    released = threading.Event()
    works = threading.Event()

    def first(task: str) -> str:
        calls.append("first")
        return task

    def second(task: str, context: RunContext) -> str:
        calls.append("second")
        context.report_usage(MODEL, input_tokens=10)
        cut_off.set()
        until(released.is_set)
        return "done"

    def fail(task: str) -> str:
        until(cut_off.is_set)
        if not works.is_set():
            raise ModelError("The provider is down.")
        return "fine"

    branches = [
        [AgentStep(FunctionAgent("second", second, idempotent=idempotent))],
        [AgentStep(FunctionAgent("failing", fail, idempotent=True))],
    ]
    flow = Workflow(
        "flow",
        steps=[FunctionAgent("first", first), ParallelStep(branches)],
    )
    client = serve(flow, runs_database=sqlite_database)
    url = begin(client)
    assert wait(client, url)["status"] == "failed"
    released.set()
    works.set()
    client.post(f"{url}/resume")
    run = wait(client, url)
    if not idempotent:
        assert run["status"] == "interrupted"
        assert "'second' of 'second'" in run["problem"]["detail"]
        assert calls == ["first", "second"]
        client.post(f"{url}/resume")
        run = wait(client, url)
    assert run["status"] == "succeeded"
    assert calls == ["first", "second", "second"]
    assert run["usage"]["input_tokens"] == 20, "both calls were paid"
