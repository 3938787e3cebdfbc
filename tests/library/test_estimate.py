"""Estimates: what a run that succeeds needs at least, what it usually needs, and what no run exceeds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import Phase, given, reject, settings
from hypothesis import strategies as st
from typing_extensions import override

import podwright
from podwright import (
    Agent,
    AgentStep,
    ApprovalRequired,
    ApprovalStep,
    BlueprintValidationError,
    Component,
    ConditionStep,
    Conductor,
    Estimate,
    FunctionStep,
    LoopStep,
    MapStep,
    Model,
    ParallelStep,
    Pipeline,
    PodwrightError,
    RunLimits,
    TryStep,
    Usage,
    Workflow,
    WorkflowStep,
    register_provider,
    tool,
)
from podwright.errors import ModelUnavailableError
from podwright.models.offline.offline import estimate_input, estimate_tokens
from podwright.models.retries import Retries
from podwright.run.component import TaskBody
from podwright.run.run import Task, execute
from podwright.testing import ModelRequest, ModelResponse, ToolCall

REVIEW: dict[str, Any] = {
    "type": "object",
    "properties": {
        "good": {"type": "boolean"},
        "items": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["good", "items"],
    "additionalProperties": False,
}
DICE = Random()


class Rolled(Model):
    """A model that costs, and answers at random: texts, calls, answers that do not fit, errors."""

    def __init__(self, name: str, per_token: float) -> None:
        self.name = name
        self._per_token = per_token

    @override
    def cost(self, usage: Usage) -> float | None:
        plain = usage.input_tokens - usage.cached_input_tokens
        dearer = plain + usage.cache_write_tokens / 4
        return self._per_token * (
            dearer + usage.cached_input_tokens / 10 + usage.output_tokens * 4
        )

    @override
    async def complete(
        self, request: ModelRequest, on_token: Any = None
    ) -> ModelResponse:
        if DICE.random() < 0.02:
            error = ModelUnavailableError("Down.")
            error.transient = False
            raise error
        most = request.settings.get("max_tokens", 4096)
        text, calls = _roll(request, most)
        output = estimate_tokens(text) + sum(
            estimate_tokens(call.name + call.arguments) for call in calls
        )
        if output > most:
            text, calls = "word", []
            output = 1
        usage = Usage(estimate_input(request), output, cost=None)
        return ModelResponse(
            text,
            tuple(calls),
            usage=usage,
            finish_reason="tool_calls" if calls else "stop",
        )


def _roll(request: ModelRequest, most: int) -> tuple[str, list[ToolCall]]:
    if request.tools and DICE.random() < 0.5:
        names = [each["function"]["name"] for each in request.tools]
        number = DICE.randint(1, 3)
        return "", [
            _call(DICE.choice(names), f"call_{index}")
            for index in range(number)
        ]
    if request.output is None:
        return "w" * DICE.randint(1, 4 * most), []
    if DICE.random() < 0.3:
        return "no JSON", []
    if "steps" in request.output.schema["properties"]:
        plan = {"steps": [{"skill": "helper", "task": "do it"}]}
        return json.dumps(plan), []
    items = ["a", "b", "c"][: DICE.randint(0, 3)]
    return json.dumps({"good": DICE.random() < 0.4, "items": items}), []


def _call(name: str, call_id: str) -> ToolCall:
    if name == "find":
        return ToolCall.of(name, call_id, word="tea")
    if name == "revise_plan":
        steps = [{"skill": "helper", "task": "go"}]
        return ToolCall.of(name, call_id, steps=steps)
    return ToolCall.of(name, call_id, task="x" * DICE.randint(1, 40))


PRICES = {"small": 1e-6, "large": 5e-6}
register_provider(
    "rolled", lambda name, _: Rolled(f"rolled/{name}", PRICES[name])
)


@pytest.fixture(autouse=True, scope="module")
def _no_waits() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Workflow, "retries", Retries(first_wait=0))
        yield


@tool(max_result_tokens=400)
def find(word: str) -> str:
    """Find a word."""
    if DICE.random() < 0.1:
        raise LookupError("Nothing found.")
    return "found " * DICE.randint(0, 500)


def look_up(text: str) -> str:
    if DICE.random() < 0.2:
        raise LookupError("Nothing there.")
    return "fine " * DICE.randint(1, 100)


PLAIN = Agent("plain", "Say {input}.", "rolled/small", max_tokens=50)
WRITER = Agent(
    "writer", "Write.", "rolled/small", [find], max_loops=3, max_tokens=90
)
JUDGE = Agent(
    "judge",
    "Judge.",
    "rolled/small",
    max_loops=4,
    response_model=REVIEW,
    fallback=["rolled/large"],
    max_tokens=60,
)
HELPER = Agent("helper", "Help.", "rolled/large", max_tokens=30)
LEAD = Conductor(
    "lead",
    "Lead.",
    "rolled/small",
    [HELPER, PLAIN],
    planning=True,
    max_loops=3,
    tools=[find],
    conversation=["helper"],
    max_tokens=70,
)
LINE = Pipeline("line", [PLAIN, WRITER, HELPER])
INNER = Workflow("inner", [AgentStep(HELPER, output="helped"), PLAIN])
AGENTS: Sequence[Component] = (PLAIN, WRITER, JUDGE, HELPER, LEAD, LINE, INNER)
CONDITIONS = [
    {"name": "equals", "args": {"value": "{review.good}", "to": True}},
    {"name": "contains", "args": {"value": "{input}", "text": "moon"}},
    {"name": "is_empty", "args": {"value": "{draft}"}},
]
DECLARED: dict[str, Any] = {"draft": {}, "items": {}, "review": {}}
conditions = st.sampled_from(CONDITIONS)
inputs = st.sampled_from(
    [None, "{draft}", "On {input}: {draft} {draft}", "{items}", "{review}"]
)
outputs = st.sampled_from(["draft", "more", None])
leaves = st.one_of(
    st.builds(AgentStep, st.sampled_from(AGENTS), input=inputs, output=outputs),
    st.just(AgentStep(JUDGE, output="review", input="{draft}")),
    st.just(AgentStep(PLAIN, limits={"model_calls": 1, "tokens": 400})),
    st.just(FunctionStep(look_up, {"text": "{draft}"}, output="found")),
)


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(inner, min_size=1, max_size=2)
    return st.one_of(
        st.builds(ConditionStep, conditions, some, some),
        st.builds(ParallelStep, st.tuples(some), collect=st.just(False)),
        st.builds(
            lambda steps: ParallelStep([steps, steps], collect=True),
            st.just([AgentStep(PLAIN, output="both")]),
        ),
        st.builds(LoopStep, some, conditions, st.integers(1, 4)),
        st.builds(
            MapStep,
            st.sampled_from(["items", "review.items"]),
            st.just("item"),
            st.just([AgentStep(PLAIN, input="{item}", output="each")]),
        ),
        st.builds(TryStep, some, some, retries=st.integers(0, 2)),
        st.builds(
            lambda steps: WorkflowStep(
                Workflow("nested", steps, inputs=DECLARED)
            ),
            some,
        ),
        st.builds(
            lambda steps: ApprovalStep("Go on?", name="ask", on_reject=steps),
            some,
        ),
    )


steps = st.lists(
    st.recursive(leaves, _nested, max_leaves=4), min_size=1, max_size=4
)
GIVEN = {
    "input": "the moon",
    "draft": "A draft.",
    "items": ["one", "twenty", "three hundred"],
    "review": {"good": True, "items": ["a", "b"]},
}


async def used(
    component: Component, task: Task, limits: RunLimits | None
) -> tuple[Usage, bool]:
    """What a run used, and whether it succeeded; persons decide at random."""
    usage = Usage()
    while True:
        try:
            result = await execute(component, task, limits=limits)
        except ApprovalRequired as pause:
            usage += pause.usage or Usage()
            if limits is not None:
                # the rest has the limits anew
                return usage, False
            context = pause.decide(DICE.choice(["approve", "reject"]), "Why.")
            body = TaskBody(context, resume_path=pause.resume_path)
            task = component.task_from(body)
        except PodwrightError as error:
            return usage + (error.usage or Usage()), False
        else:
            return usage + result.usage, True


def check(found: Estimate, usage: Usage, succeeded: bool) -> None:
    """Check that a run lies within an estimate; one that failed may need less."""
    low = found.at_least.to_dict()
    high = found.at_most.to_dict()
    figures = {
        "model_calls": usage.model_calls,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "tokens": usage.total_tokens,
        "cost": usage.cost,
    }
    for name, amount in figures.items():
        assert amount is not None
        assert amount <= high[name] + 1e-9, (name, amount, high[name])
        if succeeded:
            assert amount >= low[name] - 1e-9, (name, amount, low[name])
        usual = found.usually.to_dict()[name]
        assert min(low[name], high[name]) <= usual <= high[name]


@settings(max_examples=400, phases=[Phase.generate])
@given(
    steps,
    st.integers(0, 2**32),
    st.sampled_from(
        [
            None,
            RunLimits(model_calls=3),
            RunLimits(tokens=900),
            RunLimits(cost=0.002),
        ]
    ),
)
async def test_runs_lie_within(
    made: list[Any], seed: int, limits: RunLimits | None
) -> None:
    """A run of any steps needs no more than the estimate says, and if it succeeds, no less."""
    DICE.seed(seed)
    try:
        workflow = Workflow("made", made, inputs=DECLARED)
    except BlueprintValidationError:
        # two branches write one name, or nothing fills another
        reject()
    found = podwright.estimate(workflow, GIVEN, limits=limits)
    for _ in range(3):
        usage, succeeded = await used(workflow, workflow.task(GIVEN), limits)
        check(found, usage, succeeded)
