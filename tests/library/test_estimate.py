"""Estimates: what a run that succeeds needs at least, what it usually needs, and what no run exceeds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import Phase, given, reject, settings
from hypothesis import strategies as st
from tests.library.shapes import EVERY_STEP, load_example
from typing_extensions import TypedDict, override

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
    EventManager,
    ExecutionResult,
    FunctionAgent,
    FunctionStep,
    Handoff,
    LoopStep,
    MapStep,
    Model,
    ParallelStep,
    Pipeline,
    PodwrightError,
    Remote,
    RunLimits,
    TryStep,
    Usage,
    Workflow,
    WorkflowStep,
    register_provider,
    tool,
)
from podwright.errors import (
    ConfigurationError,
    ModelRetry,
    ModelUnavailableError,
    Refusal,
    TraceError,
)
from podwright.folders.loader import KINDS
from podwright.models.offline.offline import estimate_input, estimate_tokens
from podwright.models.retries import Retries
from podwright.run.component import TaskBody
from podwright.run.run import Task, execute
from podwright.steps import Step, registry
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


def prepare(input: str) -> dict[str, Any]:
    if DICE.random() < 0.1:
        raise Refusal("off_topic", "Only the moon.")
    values = {"input": "more " * DICE.randint(0, 400), "tone": "dry"}
    return {name: values[name] for name in values if DICE.random() < 0.5}


def judge(output: str) -> dict[str, Any] | None:
    if DICE.random() < 0.3:
        raise ModelRetry("Again, and " * DICE.randint(1, 500))
    if DICE.random() < 0.3:
        return {"output": "better " * DICE.randint(0, 300)}
    return None


def shorten(output: str) -> dict[str, Any]:
    return {"output": output[:3]}


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
HOOKED = Agent(
    "hooked",
    "Say {input}, {tone}.",
    "rolled/small",
    max_tokens=40,
    before=[prepare],
    after=[judge],
)
TONED = Agent(
    "toned",
    "Say it.",
    "rolled/small",
    max_tokens=20,
    inputs={"tone": {"type": "string", "default": "plain"}},
)
LINE_WITH_HOOKS = Pipeline(
    "hooked_line", [TONED, HOOKED], before=[prepare], after=[shorten]
)
LEAD_WITH_HOOKS = Conductor(
    "hooked_lead",
    "Lead {input}.",
    "rolled/small",
    [TONED, HELPER],
    max_loops=3,
    conversation=["toned"],
    before=[prepare],
    after=[judge],
    max_tokens=60,
)
FAQ = Agent(
    "faq",
    "You know {input}.",
    "rolled/large",
    handoffs=["desk", "billing"],
    before=[prepare],
    after=[judge],
    max_tokens=50,
    max_loops=2,
)
BILLING = Agent(
    "billing",
    "You bill.",
    "rolled/small",
    [find],
    handoffs=["desk", FAQ, LINE, LEAD_WITH_HOOKS],
    max_tokens=50,
    max_loops=2,
)
DESK = Agent(
    "desk",
    "You sort.",
    "rolled/small",
    handoffs=[Handoff(BILLING, when="About money."), Handoff(FAQ)],
    max_handoffs=3,
    max_tokens=30,
)
JUDGED_DESK = Agent(
    "judged_desk",
    "You sort {input}.",
    "rolled/small",
    handoffs=[JUDGE, LINE_WITH_HOOKS, PLAIN],
    after=[judge],
    max_handoffs=2,
    max_tokens=30,
    response_model=REVIEW,
)
INNER = Workflow("inner", [AgentStep(HELPER, output="helped"), PLAIN])
HANDING = (DESK, JUDGED_DESK)
WITH_HOOKS = (HOOKED, LINE_WITH_HOOKS, LEAD_WITH_HOOKS)
AGENTS: Sequence[Component] = (
    *(PLAIN, WRITER, JUDGE, HELPER, LEAD, LINE, INNER),
    *HANDING,
    *WITH_HOOKS,
)
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


@settings(max_examples=100, phases=[Phase.generate])
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


@settings(max_examples=100, phases=[Phase.generate])
@given(st.sampled_from([*HANDING, *WITH_HOOKS]), st.integers(0, 2**32))
async def test_turns_with_hooks_and_handoffs_lie_within(
    component: Component, seed: int
) -> None:
    """So do the turns of a conversation, whoever answers."""
    DICE.seed(seed)
    messages: list[Any] = []
    for words in ("the moon", "and the sun", [{"type": "text", "text": "x"}]):
        found = podwright.estimate(component, words, messages=messages)
        task = component.task_from(TaskBody(words, messages=messages))
        try:
            result = await execute(component, task)
        except PodwrightError as error:
            check(found, error.usage or Usage(), succeeded=False)
        else:
            check(found, result.usage, succeeded=True)
            messages = result.messages


def test_every_kind_answers_for_itself() -> None:
    """No kind of step or component of ours is unknown by default."""
    for kind in registry.kinds():
        assert kind.need is not Step.need, kind
    for component in KINDS.values():
        assert component.need is not Component.need, component
    workflow = load_example(EVERY_STEP)
    found = podwright.estimate(workflow, {"input": "[1, 2]"})
    assert found.at_least.model_calls == 7
    assert found.at_most.model_calls == 13
    assert found.at_most.tokens == found.limits["tokens"] == 10_000


# --- What is exact ----------------------------------------------------------------------------------------------------

IMAGE = {
    "type": "image_url",
    "image_url": {"url": "data:image/png;base64,aGk="},
}
EARLIER = [
    {"role": "user", "content": "Hello, who are you?"},
    {"role": "assistant", "content": "A clerk."},
] * 3


@pytest.mark.parametrize(
    ("instructions", "input_data", "messages"),
    [
        ("Help.", "the moon", []),
        ("", "the moon", []),
        ("Help with {input}.", "the môon", []),
        ("Help {customer}.", {"input": "hi", "customer": "Ann"}, []),
        ("Help {customer.name}.", {"customer": {"name": "Ann"}}, []),
        ("{{input}} {input} {input}", {"input": "hi", "b": [1, 2]}, []),
        ("Help.", {"a": "one", "b": {"c": "é"}}, []),
        ("Help.", [{"type": "text", "text": "What is it?"}, IMAGE], []),
        ("Help {a}.", {"a": "one", "b": [IMAGE]}, []),
        ("Help.", "the moon", EARLIER),
    ],
)
@pytest.mark.parametrize("config", [{}, {"max_history": 1}])
def test_one_call_is_exact(
    instructions: str,
    input_data: Any,
    messages: list[dict[str, Any]],
    config: dict[str, Any],
) -> None:
    """What a single call is sent is known to the token."""
    agent = Agent("a", instructions, "rolled/small", max_tokens=5, **config)
    found = podwright.estimate(agent, input_data, messages=messages)
    DICE.seed(4)
    used = agent.run(input_data, messages=messages, trace=True).usage
    assert found.at_least.input_tokens == used.input_tokens
    assert found.at_most.input_tokens == used.input_tokens
    assert found.at_most.output_tokens == 5
    assert (found.unknown, found.assumed) == ([], [])


def test_named_inputs_of_a_workflow_are_counted_once() -> None:
    """Agents are not shown the `input` that only combines the named inputs."""
    workflow = Workflow("w", [Agent("a", "Help.", "offline/echo")])
    inputs = {"customer": "Ann", "text": "long " * 50}
    found = podwright.estimate(workflow, inputs)
    used = workflow.run(inputs, trace=True).usage
    assert found.at_least.input_tokens == used.input_tokens
    assert found.at_most.input_tokens == used.input_tokens


@pytest.mark.parametrize(
    ("condition", "calls"),
    [
        ({"name": "equals", "args": {"value": "{tone}", "to": "dry"}}, (1, 1)),
        ({"name": "equals", "args": {"value": "{tone}", "to": "x"}}, (3, 3)),
        ({"name": "equals", "args": {"value": "{first}", "to": "x"}}, (1, 3)),
        ({"name": "is_own"}, (1, 3)),
        (
            {"name": "any", "args": {"conditions": [
                {"name": "is_own"},
                {"name": "contains", "args": {"value": "{tone}", "text": "D"}},
            ]}},
            (1, 1),
        ),
        (
            {"name": "all", "args": {"conditions": [
                {"name": "is_own"},
                {"name": "not", "args": {"condition": {
                    "name": "contains", "args": {"value": "{tone}", "text": "D"},
                }}},
            ]}},
            (3, 3),
        ),
    ],
)  # fmt: skip
def test_a_condition_on_inputs_is_decided(
    condition: dict[str, Any], calls: tuple[int, int]
) -> None:
    """One that reads an answer, or is a function, may hold or not."""
    other = [PLAIN, HELPER]
    workflow = Workflow(
        "w",
        [
            AgentStep(PLAIN, output="first"),
            ConditionStep(condition, [], other),
        ],
        conditions={"is_own": lambda context: True},
        inputs={"tone": {"type": "string"}},
    ).to_blueprint()
    workflow["steps"][1]["else"][0]["output"] = "second"
    loaded = podwright.load(
        workflow,
        agents={"plain": PLAIN, "helper": HELPER},
        conditions={"is_own": lambda context: True},
    )
    found = podwright.estimate(loaded, {"input": "hi", "tone": "dry"})
    assert found.at_least.model_calls == calls[0]
    assert found.at_most.model_calls == calls[1]


def test_an_output_hides_the_input_of_its_name() -> None:
    """A condition on a name that a step writes is about what the step writes."""
    condition = {"name": "equals", "args": {"value": "{tone}", "to": "dry"}}
    workflow = Workflow(
        "w",
        [AgentStep(PLAIN, output="tone"), ConditionStep(condition, [HELPER])],
        inputs={"tone": {"type": "string"}},
    )
    found = podwright.estimate(workflow, {"input": "hi", "tone": "dry"})
    assert found.at_least.model_calls == 1
    assert found.at_most.model_calls == 2


@pytest.mark.parametrize(
    ("items", "calls"),
    [(["a", "b", "c"], (3, 3)), ("1. a\n2. b", (2, 2)), ([], (0, 0))],
)
def test_items_of_a_given_list_are_counted(
    items: Any, calls: tuple[int, int]
) -> None:
    workflow = Workflow(
        "w", [MapStep("items", "item", [AgentStep(PLAIN, input="{item}")])]
    )
    found = podwright.estimate(workflow, {"items": items})
    assert found.at_least.model_calls == calls[0]
    assert found.at_most.model_calls == calls[1]


def test_items_of_an_answer_are_at_most_as_many_as_fit_in_it() -> None:
    lister = Agent("lister", "List.", "rolled/small", max_tokens=10)
    step = MapStep("lister_output", "item", [AgentStep(PLAIN, input="{item}")])
    found = podwright.estimate(Workflow("w", [lister, step]), "x")
    assert found.at_least.model_calls == 1
    assert found.at_most.model_calls == 1 + 10 * 4 // 2 + 1
    assert found.assumed == ["the number of items of 'lister_output'"]


# --- Limits -----------------------------------------------------------------------------------------------------------


def test_limits_lower_what_a_run_needs_at_most() -> None:
    """A limit of tokens bounds the cost too, and one of calls the tokens."""
    free = podwright.estimate(WRITER, "x").to_dict()["at_most"]
    tokens = podwright.estimate(WRITER, "x", limits=RunLimits(tokens=1000))
    assert tokens.at_most.tokens == 1000
    assert tokens.at_most.cost == pytest.approx(1000 * 4e-6)
    assert free["cost"] > 1000 * 4e-6
    assert tokens.limits == {"tokens": 1000}
    calls = podwright.estimate(WRITER, "x", limits=RunLimits(model_calls=1))
    assert calls.at_most.model_calls == 1
    assert calls.at_most.output_tokens == 90
    cost = podwright.estimate(WRITER, "x", limits=RunLimits(cost=0.001))
    assert cost.at_most.cost == 0.001
    time = podwright.estimate(WRITER, "x", limits=RunLimits(wall_time=7))
    assert time.at_most.seconds == 7
    assert time.limits == {"seconds": 7}


def test_limits_of_components_and_steps_hold_inside_them() -> None:
    limited = Agent(
        "limited",
        "Write.",
        "rolled/small",
        [find],
        max_tokens=90,
        limits=RunLimits(model_calls=2),
    )
    step = AgentStep(WRITER, limits={"model_calls": 1}, output="other")
    found = podwright.estimate(Workflow("w", [limited, step]), "x")
    assert found.at_most.model_calls == 3
    assert found.limits == {}


def test_a_limit_that_lets_no_run_succeed_is_named() -> None:
    workflow = Workflow("w", [PLAIN, HELPER])
    limits = RunLimits(model_calls=1)
    found = podwright.estimate(workflow, "x", limits=limits)
    assert "No run succeeds" in found.advice[0]
    assert "model calls" in found.advice[0]


def test_a_run_ends_after_its_last_allowed_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Loops inside each other multiply what they need, and not what the estimate does."""
    walked: list[object] = []
    need = Agent.need

    def counted(self: Agent, *args: Any) -> Any:
        walked.append(self)
        return need(self, *args)

    monkeypatch.setattr(Agent, "need", counted)
    until = {"name": "equals", "args": {"value": "{plain_output}", "to": "x"}}
    steps: Any = [PLAIN]
    for _ in range(16):
        steps = [LoopStep(steps, until, max_iterations=1000)]
    found = podwright.estimate(Workflow("w", steps), "x")
    assert found.at_least.model_calls == 1
    assert found.at_most.model_calls == 100_001
    assert found.limits == {"steps": 100_000}
    assert len(walked) < 50


# --- Handoffs ---------------------------------------------------------------------------------------------------------


def transferred(agent: str) -> list[dict[str, Any]]:
    """A turn that has handed the conversation over."""
    call = {"name": f"transfer_to_{agent}", "arguments": "{}"}
    return [
        {"role": "user", "content": "Hello."},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c", "type": "function", "function": call}],
        },
        {
            "role": "tool",
            "tool_call_id": "c",
            "content": json.dumps({"transferred_to": agent}),
        },
        {"role": "assistant", "content": "Done."},
    ]


def line_of(most: int) -> Agent:
    """An agent that hands over to one which is dearer, and this one back."""
    dear = Agent(
        "dear",
        "You know.",
        "rolled/large",
        handoffs=["cheap"],
        max_tokens=50,
        max_loops=2,
    )
    return Agent(
        "cheap",
        "You sort.",
        "rolled/small",
        handoffs=[dear],
        max_tokens=5,
        max_loops=1,
        max_handoffs=most,
    )


@pytest.mark.parametrize(("most", "calls"), [(1, 3), (2, 4), (3, 6)])
def test_handoffs_are_counted_up_to_their_limit(most: int, calls: int) -> None:
    """At least and usually there are none; each agent has its own calls."""
    found = podwright.estimate(line_of(most), "x")
    assert found.at_least.model_calls == 1
    assert found.usually.model_calls == 1
    assert found.at_most.model_calls == calls
    assert {each.component for each in found.portions} == {"cheap", "dear"}
    assert (found.unknown, found.assumed) == ([], [])


def test_an_agent_goes_on_with_the_whole_conversation() -> None:
    """The turn of the agents before it is part of each further call."""
    one = podwright.estimate(line_of(2), "x")
    longer = podwright.estimate(line_of(2), "x" * 400)
    assert one.at_most.input_tokens is not None
    assert longer.at_most.input_tokens is not None
    calls = 4
    assert longer.at_most.input_tokens >= one.at_most.input_tokens + calls * 99


def test_the_active_agent_answers_first() -> None:
    """At least its chat is needed, and not that of the agent which is asked."""
    agent = line_of(1)
    found = podwright.estimate(agent, "x", messages=transferred("dear"))
    DICE.seed(2)
    used = agent.run("x", messages=transferred("dear"), trace=True).usage
    assert found.at_least.input_tokens is not None
    assert used.input_tokens >= found.at_least.input_tokens
    assert found.at_least.cost is not None
    assert found.at_least.cost >= found.at_least.input_tokens * 5e-6 / 10
    assert found.at_most.model_calls == 2 + 1
    unknown = podwright.estimate(agent, "x", messages=transferred("nobody"))
    assert unknown.at_most.model_calls == 1 + 2


# --- Functions before and after the work -----------------------------------------------------------------------------


def guard(input: str) -> None:
    """Refuse nothing."""


def add_tone(input: str) -> Tone:
    return {"tone": "dry"}


class Tone(TypedDict):
    tone: str


def test_a_function_that_returns_nothing_changes_nothing() -> None:
    """What a single call is sent is still known to the token, though not what the function runs."""
    agent = Agent(
        "a", "Say {input}.", "rolled/small", before=[guard], max_tokens=5
    )
    found = podwright.estimate(agent, "the moon")
    assert found.at_least.input_tokens == found.at_most.input_tokens
    assert found.unknown == ["what the function 'guard' runs or reports"]
    assert found.assumed == []
    assert found.at_most.seconds is None


def test_a_function_may_change_the_inputs() -> None:
    """Any of them, unless its annotation says which values it returns."""
    options: dict[str, Any] = {"model": "rolled/small", "max_tokens": 5}
    plain = podwright.estimate(Agent("a", "{tone}", **options), "y" * 400)
    any_name = podwright.estimate(
        Agent("a", "{tone}", before=[prepare], **options), "y" * 400
    )
    tone = podwright.estimate(
        Agent("a", "{tone}", before=[add_tone], **options), "y" * 400
    )
    for found, least in ((plain, 100), (tone, 100), (any_name, 0)):
        tokens = found.at_least.input_tokens
        assert tokens is not None
        assert tokens - least in range(3, 20)
    assert any_name.at_most.input_tokens is not None
    assert any_name.at_most.input_tokens > 3_900
    assert tone.assumed == ["the result of the function 'add_tone'"]


@pytest.mark.parametrize(
    ("config", "calls"),
    [({}, 3), ({"max_corrections": 4}, 5), ({"max_loops": 2}, 2)],
)
def test_a_function_may_ask_for_another_answer(
    config: dict[str, Any], calls: int
) -> None:
    """At most as often as an answer may be corrected, by whichever agent."""
    agent = Agent(
        "a", "Do.", "rolled/small", after=[judge], max_tokens=5, **config
    )
    found = podwright.estimate(agent, "x")
    assert found.at_least.model_calls == 1
    assert found.usually.model_calls == 1
    assert found.at_most.model_calls == calls
    assert found.unknown == ["what the function 'judge' runs or reports"]


def test_the_answer_after_a_function_may_be_another_one() -> None:
    """It is what the next agent is given."""
    first = Agent("a", "Do.", "rolled/small", max_tokens=5)
    second = Agent("b", "Do.", "rolled/small", max_tokens=5)
    inner = Pipeline("inner", [first], after=[shorten])
    plain = podwright.estimate(Pipeline("p", [first, second]), "x")
    found = podwright.estimate(Pipeline("p", [inner, second]), "x")
    assert plain.at_most.input_tokens is not None
    assert found.at_most.input_tokens is not None
    assert found.at_most.input_tokens > plain.at_most.input_tokens + 1_900
    assert found.at_most.model_calls == 2


# --- What nobody knows ------------------------------------------------------------------------------------------------


async def answer(task: str) -> str:
    return task


@pytest.mark.parametrize(
    "component",
    [
        Remote("far", "http://127.0.0.1:9"),
        FunctionAgent("own", answer),
    ],
)
def test_what_other_code_needs_is_unknown(component: Component) -> None:
    """Nothing is taken for free; a limit of the run bounds it."""
    workflow = Workflow("w", [PLAIN, component])
    found = podwright.estimate(workflow, "x")
    assert found.at_least.model_calls == 1
    for amounts in (found.usually, found.at_most):
        assert amounts.model_calls is None
        assert amounts.tokens is None
        assert amounts.cost is None
        assert amounts.seconds is None
    assert len(found.unknown) == 1
    limits = RunLimits(cost=0.5, tokens=100, model_calls=4, wall_time=3)
    limited = podwright.estimate(workflow, "x", limits=limits).at_most
    assert limited.to_dict() == {
        "model_calls": 4,
        "input_tokens": 100,
        "output_tokens": 100,
        "tokens": 100,
        "cost": 0.5,
        "seconds": 3,
    }


def test_a_model_without_a_price_is_never_free() -> None:
    agent = Agent("a", "Do.", "hosted_vllm/own", max_tokens=5)
    found = podwright.estimate(agent, "x")
    assert found.at_least.cost is None
    assert found.usually.cost is None
    assert found.at_most.cost is None
    assert found.at_most.tokens is not None
    assert found.unknown == ["the price of 'hosted_vllm/own'"]


def test_tools_and_functions_are_named() -> None:
    """What they start or report is not in the numbers, and how long they take is not known without a time-out."""
    step = FunctionStep(look_up, {"text": "x"})
    found = podwright.estimate(Workflow("w", [step, WRITER]), "x")
    assert found.unknown == [
        "what the function 'look_up' runs or reports",
        "what the tool 'find' runs or reports",
    ]
    assert found.at_most.seconds is None


def test_an_input_that_is_not_known_is_assumed() -> None:
    found = podwright.estimate(PLAIN)
    known = podwright.estimate(PLAIN, "x")
    assert found.assumed == ["the input"]
    assert found.at_least.input_tokens is not None
    assert known.at_least.input_tokens is not None
    assert found.at_least.input_tokens < known.at_least.input_tokens


def test_declared_inputs_that_are_not_known_have_their_defaults() -> None:
    inputs = {"tone": {"type": "string", "default": "dry"}}
    agent = Agent("a", "Be {tone}.", "offline/echo", inputs=inputs)
    unknown = podwright.estimate(agent).at_least.input_tokens
    known = podwright.estimate(agent, "1234").at_least.input_tokens
    assert unknown is not None
    assert known == unknown + 1


# --- Models -----------------------------------------------------------------------------------------------------------


def test_any_model_of_a_chain_may_answer() -> None:
    """At least it is the cheapest, usually the first, at most the dearest."""
    options: dict[str, Any] = {"max_tokens": 10, "fallback": ["rolled/small"]}
    agent = Agent("a", "Do.", "rolled/large", **options)
    cheap = podwright.estimate(
        Agent("a", "Do.", "rolled/small", max_tokens=10), "x"
    )
    dear = podwright.estimate(
        Agent("a", "Do.", "rolled/large", max_tokens=10), "x"
    )
    found = podwright.estimate(agent, "x")
    assert found.at_least.cost == cheap.at_least.cost
    assert found.usually.cost == dear.usually.cost
    assert found.at_most.cost == dear.at_most.cost


def test_a_request_is_no_longer_than_its_model_takes() -> None:
    """Results of tools are cut by the window of the model, where it is known."""
    agent = Agent("a", "Do.", "openai/gpt-4o-mini", [search], max_loops=2)
    found = podwright.estimate(agent, "x")
    assert found.at_least.input_tokens is not None
    assert found.at_most.input_tokens == found.at_least.input_tokens + 128_000


def search(word: str) -> str:
    """Search."""
    return word


def test_use_model_replaces_the_models() -> None:
    with podwright.use_model("rolled/large"):
        replaced = podwright.estimate(PLAIN, "x")
    own = podwright.estimate(PLAIN, "x")
    assert own.at_most.cost is not None
    assert replaced.at_most.cost == pytest.approx(5 * own.at_most.cost)


def test_a_budget_lets_calls_wait_for_each_other() -> None:
    """Parts that run at once may take as long as one after the other if they share tokens."""
    agents = [
        Agent(name, "Do.", "rolled/small", max_tokens=5, timeout=10)
        for name in ("a", "b")
    ]
    workflow = Workflow("w", [ParallelStep([[agent] for agent in agents])])
    assert podwright.estimate(workflow, "x").at_most.seconds == 10
    limits = RunLimits(tokens=10_000)
    limited = podwright.estimate(workflow, "x", limits=limits)
    assert limited.at_most.seconds == 20


def test_what_dominates_and_what_helps() -> None:
    workflow = Workflow("w", [PLAIN, WRITER])
    found = podwright.estimate(workflow, "x")
    first, second = found.portions
    assert (first.component, first.cause) == ("writer", "results of tools")
    assert (second.component, second.cause) == ("plain", "answers")
    assert first.share is not None
    assert second.share is not None
    assert first.share + second.share == pytest.approx(1)
    assert "max_result_tokens" in found.advice[0]
    assert "'writer'" in found.advice[0]


# --- Several runs, and recorded ones ----------------------------------------------------------------------------------


def test_several_runs() -> None:
    one = podwright.estimate(PLAIN, "x")
    ten = podwright.estimate(PLAIN, "x", runs=10)
    assert ten.runs == 10
    assert one.at_most.tokens is not None
    assert ten.at_most.tokens == 10 * one.at_most.tokens
    longer = podwright.estimate(PLAIN, "x" * 400)
    both = one + longer
    assert both.runs == 2
    assert longer.at_most.tokens is not None
    assert both.at_most.tokens == one.at_most.tokens + longer.at_most.tokens


@pytest.mark.parametrize("runs", [0, -1, 10**10])
def test_an_impossible_number_of_runs(runs: int) -> None:
    with pytest.raises(ConfigurationError):
        podwright.estimate(PLAIN, "x", runs=runs)


def trace_of(output: int, succeeds: bool = True) -> ExecutionResult:
    usage = Usage(10, output, cost=None)
    answers: list[Any] = [ModelResponse("x", usage=usage)]
    if not succeeds:
        down = ModelUnavailableError("Down.")
        down.transient = False
        answers = [down]
    manager = EventManager()
    events: list[Any] = []
    manager.subscribe(events.append)
    agent = Agent("plain", "Do.", Priced(*answers), event_manager=manager)
    if succeeds:
        return agent.run("x", trace=True)
    with pytest.raises(ModelUnavailableError):
        agent.run("x")
    return ExecutionResult(None, events, 1.0, Usage())


class Priced(podwright.ScriptedModel):
    @override
    def cost(self, usage: Usage) -> float | None:
        return usage.output_tokens * 1e-6


def test_recorded_runs_say_what_is_usual() -> None:
    """The median and the ninth decile of those that succeeded."""
    traces = [trace_of(number) for number in range(1, 11)]
    traces.append(trace_of(0, succeeds=False))
    found = podwright.estimate(PLAIN, "x", traces=traces)
    assert found.recorded_runs == 10
    assert found.usually.output_tokens == 5
    assert found.nine_of_ten is not None
    assert found.nine_of_ten.output_tokens == 9
    assert found.usually.model_calls == 1
    data = found.to_dict()
    assert data["nine_of_ten"]["output_tokens"] == 9
    json.dumps(data, allow_nan=False)


def test_traces_of_others_are_refused() -> None:
    with pytest.raises(TraceError, match="'plain', not of 'helper'"):
        podwright.estimate(HELPER, "x", traces=[trace_of(1)])
    empty = ExecutionResult("x", [], 1.0, Usage())
    with pytest.raises(TraceError, match="no events"):
        podwright.estimate(PLAIN, "x", traces=[empty])
