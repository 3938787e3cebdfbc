"""The recipes of docs/frameworks.md, each with its real framework: what a run reports is what was billed."""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.helpers import ROOT

from podwright import RunLimits
from podwright.client import Client, ProblemError
from podwright.events import ModelCallFinished, RunFinished, Token
from podwright.models.prices import pricing
from podwright.testing import events_of
from podwright_service.testing import (
    ComponentProcess,
    Fault,
    ModelRequest,
    ModelResponse,
    ModelStub,
    SpanCollector,
    ToolCall,
    Usage,
    assert_spans,
)

RECIPES = sorted(
    path.parent
    for path in (ROOT / "deploy/examples/frameworks").glob("*/agents.py")
)
MODEL = "openai/gpt-5-mini"
ANSWER = "Tea costs 3 EUR."
REFUSED = "What the provider refuses."
CALLS = {"openai_sdk": 1}
"""Model calls of a run; two if nothing is said."""
WITHOUT_CONVERSATION = ("langgraph",)
"""Recipes that answer each task alone."""


class Provider:
    """A model that asks for a tool once, if it has one, and keeps books of what it bills for each task."""

    def __init__(self) -> None:
        self.books: defaultdict[str, list[Usage]] = defaultdict(list)
        self._lock = threading.Lock()

    def respond(self, request: ModelRequest) -> ModelResponse | Fault:
        """The response to a request, which is in the books."""
        users = [
            message.text
            for message in request.messages
            if message.role == "user"
        ]
        if users == [REFUSED]:
            return Fault(400)
        match = re.search(r"task (\d+)", " ".join(users))
        number = 0
        if match is not None:
            number = int(match[1])
        with self._lock:
            bills = self.books[f"task {number}"]
            usage = Usage(
                1000 + 10 * number + len(bills),
                200 + number,
                cached_input_tokens=300 + number,
                reasoning_tokens=50 + number,
            )
            bills.append(usage)
        if request.tools and request.messages[-1].role != "tool":
            call = ToolCall.of("price", "call_1", product="tea")
            return ModelResponse(
                tool_calls=(call,), usage=usage, finish_reason="tool_calls"
            )
        text = ANSWER
        if match is not None:
            text = f"{ANSWER} ({match[0]})"
        return ModelResponse(text, usage=usage)

    def billed(self, task: str) -> Usage:
        """What the calls of a task were billed, at the list prices."""
        total = Usage()
        for usage in self.books[task]:
            cost = pricing.lookup(MODEL, usage)
            assert cost is not None
            priced = Usage(
                usage.input_tokens,
                usage.output_tokens,
                cached_input_tokens=usage.cached_input_tokens,
                reasoning_tokens=usage.reasoning_tokens,
                cost=cost.amount,
            )
            total += priced.as_call(MODEL)
        return total


def amounts(usage: Usage) -> tuple[float | None, ...]:
    """What is on a bill."""
    return (
        usage.model_calls,
        usage.input_tokens,
        usage.cached_input_tokens,
        usage.output_tokens,
        usage.reasoning_tokens,
        usage.cost,
    )


@pytest.fixture(scope="module")
def provider() -> Provider:
    return Provider()


@pytest.fixture(scope="module")
def stub(provider: Provider) -> Iterator[ModelStub]:
    with ModelStub(provider.respond) as serving:
        yield serving


@pytest.fixture(scope="module")
def collector() -> Iterator[SpanCollector]:
    with SpanCollector() as serving:
        yield serving


@pytest.fixture(
    scope="module", params=RECIPES, ids=[path.name for path in RECIPES]
)
def recipe(
    request: pytest.FixtureRequest,
    frameworks: Path,
    stub: ModelStub,
    collector: SpanCollector,
) -> Iterator[ComponentProcess]:
    """The service of a recipe, whose framework calls the stub, and can reach nothing else."""
    source = [ROOT / "library/src", ROOT / "service/src"]
    variables = {
        "OPENAI_API_KEY": "made-up",
        "OPENAI_BASE_URL": f"{stub.url}/v1",
        "PYTHONPATH": ":".join(map(str, source)),
        "ALL_PROXY": "http://127.0.0.1:9",
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "NO_PROXY": "127.0.0.1",
    }
    with ComponentProcess(
        request.param, env=variables, python=frameworks, spans=collector
    ) as serving:
        yield serving


def name_of(recipe: ComponentProcess) -> str:
    """The name of the folder of a recipe."""
    return recipe.info().name.replace("-", "_")


def test_usage_is_what_the_provider_billed(
    recipe: ComponentProcess, provider: Provider, collector: SpanCollector
) -> None:
    """Tokens, cached and reasoning ones included, calls and cost are the same in result, metrics, spans and books."""
    provider.books.clear()
    before = recipe.metrics()
    result = recipe.run("What is the price of tea?", trace=True)
    assert result.value == ANSWER
    billed = provider.billed("task 0")
    assert billed.model_calls == CALLS.get(name_of(recipe), 2)
    assert amounts(result.usage) == amounts(billed)
    assert result.usage.by_model.keys() == {MODEL}
    for event in events_of(result, "model_call_finished"):
        assert isinstance(event, ModelCallFinished)
        assert event.duration_ms > 0
    after = recipe.metrics()
    tokens = {
        "input": billed.input_tokens,
        "reasoning": billed.reasoning_tokens,
    }
    for token_type, number in tokens.items():
        labels = {"model": MODEL, "type": token_type}
        counted = after.get("podwright_tokens_total", **labels)
        assert (
            counted - before.get("podwright_tokens_total", **labels) == number
        )
    name = recipe.info().name
    path = f"POST /run > invoke_workflow {name} > execute_tool assistant > chat gpt-5-mini"
    (span,) = assert_spans(collector, path)
    assert span.attributes["gen_ai.usage.output_tokens"] == 200
    assert span.attributes["gen_ai.usage.cache_read.input_tokens"] == 300


def test_an_answer_is_streamed(
    recipe: ComponentProcess, provider: Provider
) -> None:
    """The words of the answer are tokens, and the usage is that of a run without a stream."""
    provider.books.clear()
    events = list(recipe.stream("What is the price of tea?"))
    pieces = [event.text for event in events if isinstance(event, Token)]
    assert pieces == ["Tea", " costs", " 3", " EUR."]
    assert isinstance(events[-1], RunFinished)
    assert amounts(events[-1].usage) == amounts(provider.billed("task 0"))


def test_parallel_runs_have_their_own_usage(
    recipe: ComponentProcess, provider: Provider
) -> None:
    """What runs at the same time is not mixed up: each run has its answer, and its part of the books."""
    provider.books.clear()
    tasks = [f"task {number}" for number in range(1, 7)]
    with ThreadPoolExecutor(len(tasks)) as threads:
        results = list(
            threads.map(lambda task: recipe.run(task, trace=True), tasks)
        )
    for task, result in zip(tasks, results, strict=True):
        assert result.value == f"{ANSWER} ({task})"
        assert amounts(result.usage) == amounts(provider.billed(task))


def test_a_limit_ends_the_run(
    recipe: ComponentProcess, provider: Provider
) -> None:
    """The first call beyond a limit is the last one, whatever the framework does with the error."""
    provider.books.clear()
    with pytest.raises(ProblemError) as caught:
        Client(recipe.url).run("tea", limits=RunLimits(tokens=500))
    assert caught.value.problem["code"] == "limit_exceeded"
    assert len(provider.books["task 0"]) == 1


def test_a_conversation_goes_on(
    recipe: ComponentProcess, stub: ModelStub
) -> None:
    """The model is given the earlier turns."""
    first = recipe.run("What is the price of tea?", trace=True)
    recipe.run("And of two?", messages=first.messages)
    texts = [message.text for message in stub.requests[-1].messages]
    is_given = "What is the price of tea?" in texts and ANSWER in texts
    assert is_given == (name_of(recipe) not in WITHOUT_CONVERSATION)


def test_a_failure_of_the_provider_is_a_problem(
    recipe: ComponentProcess,
) -> None:
    """An exception of the framework fails the run, and is no error of the service itself."""
    with pytest.raises(ProblemError) as caught:
        recipe.run(REFUSED)
    assert caught.value.problem["code"] == "tool_failed"


DECISIONS: dict[str, tuple[dict[str, Any], str]] = {
    "approve": ({"decision": "approve"}, ANSWER),
    "edit": (
        {
            "decision": "approve",
            "values": {"value": {"draft": "A better draft."}},
        },
        "A better draft.",
    ),
    "reject": ({"decision": "reject", "comment": "Too dear."}, "Too dear."),
}
"""What a person decides about a question of LangGraph, and a text that the next node then sends."""


@pytest.mark.parametrize(
    "recipe",
    [path for path in RECIPES if path.name == "langgraph"],
    ids=["langgraph"],
    indirect=True,
)
@pytest.mark.parametrize("decided", DECISIONS)
def test_an_interrupt_is_an_approval(
    recipe: ComponentProcess, stub: ModelStub, provider: Provider, decided: str
) -> None:
    """The run pauses with the value as question, and goes on with the decision; no node before it runs again."""
    provider.books.clear()
    client = Client(recipe.url)
    with pytest.raises(ProblemError) as pause:
        client.run("I want a refund.")
    problem = pause.value.problem
    assert (pause.value.status, problem["code"]) == (409, "approval_required")
    assert problem["question"]["edit"]["value"]["value"]["draft"] == ANSWER
    assert len(provider.books["task 0"]) == 1
    decision, sent = DECISIONS[decided]
    result = client.run(problem["context"], decision=decision, trace=True)
    assert result.value == ANSWER
    assert sent in stub.requests[-1].messages[-1].text
    assert len(provider.books["task 0"]) == 2
    assert amounts(result.usage) == amounts(provider.billed("task 0"))
