"""Workflows: what steps read and write, and the order in which they run."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from tests.library.shapes import EVERY_STEP, events, forecast

from podwright import Agent, RunLimits, Workflow, load
from podwright.components import (
    AgentStep,
    ApprovalStep,
    ConditionStep,
    LoopStep,
    MapStep,
    ParallelStep,
    WorkflowStep,
)
from podwright.errors import (
    ApprovalRequired,
    ConfigurationError,
    ContextError,
    LimitExceededError,
    LoopExhaustedError,
)
from podwright.testing import FunctionModel, ModelRequest, assert_events

NEVER = {"name": "is_empty", "args": {"value": "x"}}
ALWAYS = {"name": "is_empty", "args": {"value": ""}}


class Notes(FunctionModel):
    """Answers with the agent's name and the number of the call, and keeps what each agent was asked."""

    def __init__(self) -> None:
        super().__init__(self.answer)
        self.asked: list[tuple[str, str]] = []

    def answer(self, request: ModelRequest) -> str:
        self.asked.append((request.component, request.messages[-1].text))
        return f"{request.component}{len(self.of(request.component))}"

    def of(self, name: str) -> list[str]:
        return [
            content for component, content in self.asked if component == name
        ]

    def agent(self, name: str, instructions: str = "") -> Agent:
        return Agent(name, instructions, self)


@pytest.fixture
def notes() -> Notes:
    return Notes()


def test_each_step_reads_the_whole_context(notes: Notes) -> None:
    """The first agent gets the input; later ones the input and all outputs so far, with headings."""
    flow = Workflow(
        "flow", [notes.agent("one"), notes.agent("two"), notes.agent("three")]
    )
    assert flow.run("the moon") == {
        "input": "the moon", "one_output": "one1", "two_output": "two1", "three_output": "three1",
    }  # fmt: skip
    assert notes.asked == [
        ("one", "the moon"),
        ("two", "## input\nthe moon\n\n## one_output\none1"),
        (
            "three",
            "## input\nthe moon\n\n## one_output\none1\n\n## two_output\ntwo1",
        ),
    ]


def test_the_input_of_a_step_is_a_template(notes: Notes) -> None:
    """A step's input is filled from the context in one pass; `output` names where the answer is stored."""
    step = AgentStep(
        notes.agent("two"),
        input="{input} | {one_output} | {{input.x}}",
        output="draft",
    )
    flow = Workflow(
        "flow",
        [
            notes.agent("one"),
            step,
            AgentStep(notes.agent("three"), output="draft"),
        ],
    )
    assert flow.run("{one_output}") == {
        "input": "{one_output}",
        "one_output": "one1",
        "draft": "three1",
    }
    assert notes.of("two") == ["{one_output} | one1 | {input.x}"]


def test_named_inputs_fill_instructions_and_templates(notes: Notes) -> None:
    """Named inputs fill instructions and templates; an agent is shown those that its instructions do not name."""
    speaker = notes.agent("speaks", "Speak {language}.")
    flow = Workflow(
        "flow",
        [
            speaker,
            AgentStep(notes.agent("asks"), input="{query} in {language}"),
        ],
    )
    result = flow.run(
        {"query": "moon?", "language": "French", "style": "dry"}, trace=True
    )
    assert (
        events(result, "model_call_started")[0].request.messages[0].text
        == "Speak French."
    )
    assert notes.asked == [
        ("speaks", "## query\nmoon?\n\n## style\ndry"),
        ("asks", "moon? in French"),
    ]
    assert result.value == {
        "input": "## query\nmoon?\n\n## language\nFrench\n\n## style\ndry",
        "query": "moon?", "language": "French", "style": "dry",
        "speaks_output": "speaks1", "asks_output": "asks1",
    }  # fmt: skip
    assert (
        Workflow("flow", [notes.agent("a")]).run({"query": "moon?"})["input"]
        == "moon?"
    )
    assert notes.of("a") == ["moon?"], "a single input is shown once"


def test_keywords_are_inputs_and_updates(notes: Notes) -> None:
    """Keywords are the inputs if no context is given, and updates of the context otherwise."""
    flow = Workflow(
        "flow", [AgentStep(notes.agent("a"), input="{input}-{tone}")]
    )
    flow.run(tone="dry")
    flow.run("moon", tone="dry")
    flow.run({"input": "sun", "tone": "wet"}, tone="dry")
    assert notes.of("a") == ["dry-dry", "moon-dry", "sun-dry"]
    assert Workflow("flow", [notes.agent("b")]).run() == {
        "input": "",
        "b_output": "b1",
    }


@pytest.mark.parametrize("name", ["response_model", "stream", "input_data"])
def test_an_argument_of_other_kinds_is_not_an_input(
    name: str, notes: Notes
) -> None:
    """An argument that only the `run` of other kinds has is a ContextError."""
    with pytest.raises(ContextError, match=name):
        Workflow("w", [notes.agent("a")]).run("x", **{name: True})  # pyright: ignore[reportArgumentType]


def test_all_values_of_the_result_are_strings(notes: Notes) -> None:
    """Values are returned as strings, structured ones as JSON; the caller's context is not changed."""
    context = {
        "input": "x",
        "data": {"ä": [1, None]},
        "items": ["a"],
        "_secret": "s",
    }
    result = Workflow(
        "flow", [MapStep("items", "item", [notes.agent("a")])]
    ).run(context)
    assert result == {
        "input": "x",
        "data": '{"ä": [1, null]}',
        "items": '["a"]',
        "a_output": '["a1"]',
    }
    assert "_secret" not in notes.asked[0][1]
    assert context == {
        "input": "x",
        "data": {"ä": [1, None]},
        "items": ["a"],
        "_secret": "s",
    }


def test_a_condition_step_runs_one_of_two_sequences(notes: Notes) -> None:
    """A condition step runs `then` or `else`; without `else` it may do nothing."""

    async def urgent(context: Mapping[str, Any]) -> bool:
        return "urgent" in context["input"]

    triage = ConditionStep(
        urgent, [notes.agent("fast")], [notes.agent("slow")], name="triage"
    )
    flow = Workflow(
        "flow", [triage, ConditionStep(urgent, [notes.agent("page")])]
    )
    assert list(flow.run("urgent!")) == ["input", "fast_output", "page_output"]
    result = flow.run("calm", trace=True)
    assert list(result.value) == ["input", "slow_output"]
    first = [
        "step_started step=triage",
        "condition_checked step=triage condition=urgent result=false",
    ]
    assert_events(
        result,
        *first,
        "step_started step=slow",
        "step_finished step=triage outcome=ok",
    )
    assert next(
        event.path
        for event in events(result, "run_started")
        if event.component == "slow"
    ) == (0, 1, 0)


def test_a_loop_ends_by_its_condition_or_its_maximum(notes: Notes) -> None:
    """A loop checks its condition after each iteration, and runs at most `max_iterations` times."""
    until = {"name": "equals", "args": {"value": "{a_output}", "to": "a3"}}
    result = Workflow("flow", [LoopStep([notes.agent("a")], until)]).run(
        "x", trace=True
    )
    assert result.value["a_output"] == "a3"
    assert [event.result for event in events(result, "condition_checked")] == [
        False,
        False,
        True,
    ]
    assert [event.path for event in events(result, "run_started")] == [
        (),
        (0, 0, 0),
        (0, 1, 0),
        (0, 2, 0),
    ]
    assert events(result, "loop_exhausted") == []
    endless = Workflow(
        "flow",
        [
            LoopStep([notes.agent("b")], NEVER, max_iterations=4),
            notes.agent("c"),
        ],
    )
    result = endless.run("x", trace=True)
    assert list(result.value) == ["input", "b_output", "c_output"]
    assert (len(notes.of("b")), len(notes.of("c"))) == (4, 1)
    assert_events(
        result,
        "loop_exhausted step=loop iterations=4 path=[0]",
        "step_finished step=loop outcome=exhausted",
    )
    assert "on_exhausted" not in endless.to_blueprint()["steps"][0]


def test_an_exhausted_loop_may_fail_and_be_resumed(
    notes: Notes, recorder: Any
) -> None:
    """`on_exhausted="fail"` fails the run; it resumes with another context, or with more iterations."""

    def flow(most: int) -> Workflow:
        until = {"name": "equals", "args": {"value": "{a_output}", "to": "a3"}}
        loop = LoopStep(
            [notes.agent("a")], until, max_iterations=most, on_exhausted="fail"
        )
        return Workflow(
            "flow", [notes.agent("before"), loop, notes.agent("after")]
        )

    with pytest.raises(
        LoopExhaustedError, match=r"'equals'.*'loop'.*2"
    ) as caught:
        load(
            flow(2).to_blueprint(),
            agents=flow(2).members(),
            event_manager=recorder.manager,
        ).run("x")
    assert caught.value.resume_path == [1, 1, 1]
    assert_events(
        recorder.events,
        "loop_exhausted iterations=2",
        "step_finished step=loop outcome=failed",
        "run_failed",
    )
    saved = json.loads(json.dumps(caught.value.context))
    with pytest.raises(LoopExhaustedError):
        flow(2).run(saved, resume_path=[1, 1, 1])
    assert (
        flow(2).run({**saved, "a_output": "a3"}, resume_path=[1, 1, 1])[
            "after_output"
        ]
        == "after1"
    )
    assert flow(3).run(saved, resume_path=[1, 1, 1])["a_output"] == "a3"
    assert len(notes.of("before")) == 1


def test_templates_in_a_loop_know_the_number_of_the_iteration(
    notes: Notes,
) -> None:
    """Steps, conditions, approvals and instructions read `{iteration}`; the context and agents do not have it."""
    systems: list[str] = []

    def answer(request: ModelRequest) -> str:
        systems.append(request.messages[0].text)
        return notes.answer(request)

    shown: list[Mapping[str, Any]] = []

    def seen(context: Mapping[str, Any]) -> bool:
        shown.append(context)
        return False

    inner = LoopStep(
        [AgentStep(notes.agent("in"), input="in {iteration}")],
        NEVER,
        max_iterations=2,
    )
    each = MapStep(
        "items",
        "item",
        [AgentStep(notes.agent("each"), input="{item}{iteration}")],
    )
    steps = [
        Agent("a", "Round {iteration}.", FunctionModel(answer)),
        ParallelStep([[inner], [each]]),
        WorkflowStep(
            Workflow(
                "nested", [AgentStep(notes.agent("n"), input="n {iteration}")]
            )
        ),
        ConditionStep("seen", []),
    ]
    until = {
        "name": "any",
        "args": {
            "conditions": [
                {"name": "equals", "args": {"value": "{iteration}", "to": 2}}
            ]
        },
    }
    flow = Workflow(
        "flow",
        [LoopStep(steps, until), notes.agent("end")],
        conditions={"seen": seen},
    )
    result = flow.run({"input": "x", "items": ["i"]})
    assert systems == ["Round 1.", "Round 2."]
    assert notes.of("in") == ["in 1", "in 2"] * 2
    assert notes.of("each") == ["i1", "i2"]
    assert notes.of("n") == ["n 1", "n 2"]
    assert "iteration" not in {*result, *shown[0]}
    assert not any("iteration" in text for _, text in notes.asked)
    with pytest.raises(ContextError, match="iteration"):
        Workflow(
            "flow",
            [
                LoopStep([notes.agent("a")], ALWAYS),
                AgentStep(notes.agent("b"), input="{iteration}"),
            ],
        ).run()


def test_a_value_called_iteration_comes_first(notes: Notes) -> None:
    """An input or an output of that name is what templates read, as outside of loops."""
    step = AgentStep(
        notes.agent("a", "Round {iteration}."), input="{iteration}"
    )
    flow = Workflow("flow", [LoopStep([step], NEVER, max_iterations=2)])
    result = flow.run({"input": "x", "iteration": "mine"}, trace=True)
    assert notes.of("a") == ["mine", "mine"]
    assert (
        events(result, "model_call_started")[0].request.messages[0].text
        == "Round mine."
    )
    assert result.value["iteration"] == "mine"


def test_an_approval_in_a_loop_resumes_in_its_iteration(notes: Notes) -> None:
    """The question and the steps after it have the number of the iteration, also in a resumed run."""
    steps = [
        ApprovalStep("Round {iteration}?"),
        AgentStep(notes.agent("a"), input="{iteration}"),
    ]
    flow = Workflow("flow", [LoopStep(steps, NEVER, max_iterations=2)])
    context: Any = "x"
    path = None
    questions: list[str] = []
    for _ in range(2):
        with pytest.raises(ApprovalRequired) as caught:
            flow.run(context, resume_path=path)
        questions.append(caught.value.message)
        context = json.loads(json.dumps(caught.value.context))
        path = caught.value.resume_path
    flow.run(context, resume_path=path)
    assert questions == ["Round 1?", "Round 2?"]
    assert notes.of("a") == ["1", "2"]


async def test_branches_run_concurrently_on_copies_of_the_context() -> None:
    """Branches run at the same time, do not see each other's outputs, and are merged in their order."""
    gate = asyncio.Barrier(2)
    right_ended = asyncio.Event()
    asked: dict[str, str] = {}

    async def answer(request: ModelRequest) -> str:
        asked[request.component] = request.messages[-1].text
        async with asyncio.timeout(60):
            if request.component in ("left", "right"):
                await gate.wait()
            if request.component == "l2":
                await right_ended.wait()
        if request.component == "r2":
            right_ended.set()
        return request.component

    def step(name: str, output: str | None = None) -> AgentStep:
        return AgentStep(Agent(name, "", FunctionModel(answer)), output=output)

    branches = [
        [step("left"), step("l2")],
        [step("right"), step("r2")],
    ]
    context = await Workflow(
        "flow", [ParallelStep(branches), step("last")]
    ).arun("x")
    assert list(context.items()) == [
        ("input", "x"), ("left_output", "left"), ("l2_output", "l2"), ("right_output", "right"),
        ("r2_output", "r2"), ("last_output", "last"),
    ]  # fmt: skip
    assert asked["l2"] == "## input\nx\n\n## left_output\nleft"
    assert asked["r2"] == "## input\nx\n\n## right_output\nright"
    assert "left_output" in asked["last"]
    assert "right_output" in asked["last"]


@pytest.mark.parametrize(
    "items",
    [
        ["a", "b"],
        '["a", "b"]',
        "a\n\n  b  \n",
        {"all": ["a", "b"]},
        'Here:\n```json\n{"all": ["a", "b"]}\n```',
    ],
    ids=["list", "json", "lines", "object", "fence"],
)
def test_a_map_runs_its_steps_for_each_item(items: Any, notes: Notes) -> None:
    """The items are a list, a JSON array or lines; each output becomes a JSON array in their order."""
    steps = [
        AgentStep(notes.agent("first"), input="{item}"),
        AgentStep(notes.agent("second"), input="{first_output}"),
    ]
    flow = Workflow(
        "flow",
        [
            MapStep("items", "item", steps, max_concurrency=1),
            notes.agent("last"),
        ],
    )
    context = flow.run({"input": "x", "items": items})
    assert notes.of("first") == ["a", "b"]
    assert json.loads(context["first_output"]) == ["first1", "first2"]
    assert "item" not in context
    assert '## second_output\n["second1", "second2"]' in notes.of("last")[0]


def test_the_items_of_a_map_are_any_json(notes: Notes) -> None:
    """Items are shown as JSON text, no items give an empty array, and an item without output gives null."""
    flow = Workflow(
        "flow",
        [
            MapStep(
                "items", "item", [AgentStep(notes.agent("a"), input="{item}")]
            )
        ],
    )
    flow.run({"input": "x", "items": [{"n": 1}, 2]})
    assert notes.of("a") == ['{"n": 1}', "2"]
    assert flow.run({"input": "x", "items": []})["a_output"] == "[]"
    assert flow.run({"input": "x", "items": " \n "})["a_output"] == "[]"
    only_b = ConditionStep(
        {"name": "equals", "args": {"value": "{item}", "to": "b"}},
        [notes.agent("c")],
        [],
    )
    flow = Workflow("flow", [MapStep("items", "item", [only_b])])
    assert (
        flow.run({"input": "x", "items": ["a", "b"]})["c_output"]
        == '[null, "c1"]'
    )


@pytest.mark.parametrize(
    "items",
    [
        5,
        '{"a": 1}',
        ["x"] * 1001,
        '["x", "y',
        '["x"]\n["y"]',
        '["x",\n' * 10_000,
    ],
    ids=["number", "object", "too many", "cut off", "two lists", "large"],
)
def test_a_map_needs_a_list_of_at_most_1000_items(
    items: Any, notes: Notes
) -> None:
    """A map over anything else, or over a name that the context lacks, is a ContextError."""
    flow = Workflow("flow", [MapStep("items", "item", [notes.agent("a")])])
    with pytest.raises(ContextError, match="'items'"):
        flow.run({"input": "x", "items": items})
    with pytest.raises(ContextError) as caught:
        flow.run({"input": "x", "itmes": "a"})
    assert caught.value.suggestion == "Did you mean 'itmes'?"
    assert notes.asked == []


def test_an_error_shows_the_text_that_has_no_certain_items(
    notes: Notes,
) -> None:
    """The message has the beginning of what the model wrote, without its thoughts."""
    flow = Workflow("flow", [MapStep("items", "item", [notes.agent("a")])])
    with pytest.raises(ContextError) as caught:
        flow.run(
            {"input": "x", "items": '<think>Hm.</think>\nSure: ["one", "two'}
        )
    assert 'Sure: ["one", "two' in caught.value.message
    assert "Hm" not in caught.value.message
    assert caught.value.resume_path == [0]


async def test_a_map_works_on_max_concurrency_items_at_once() -> None:
    """As many items as allowed are in progress at the same time, and never more."""
    gate = asyncio.Barrier(3)
    running = 0
    most = 0

    async def answer(_: ModelRequest) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await gate.wait()
        running -= 1
        return "done"

    step = MapStep(
        "items",
        "item",
        [Agent("a", "", FunctionModel(answer))],
        max_concurrency=3,
    )
    async with asyncio.timeout(60):
        await Workflow("flow", [step]).arun(
            {"input": "x", "items": list(range(9))}
        )
    assert most == 3


def test_a_nested_workflow_shares_the_context(notes: Notes) -> None:
    """A workflow step works on the same context; it is a run of its own in the trace."""
    inner = Workflow("inner", [notes.agent("b")])
    result = Workflow(
        "flow", [notes.agent("a"), WorkflowStep(inner), notes.agent("c")]
    ).run("x", trace=True)
    assert list(result.value) == ["input", "a_output", "b_output", "c_output"]
    assert notes.of("b") == ["## input\nx\n\n## a_output\na1"]
    started = events(result, "run_started")
    assert [(event.component, event.path) for event in started] == [
        ("flow", ()), ("a", (0,)), ("inner", (1,)), ("b", (1, 0)), ("c", (2,)),
    ]  # fmt: skip
    assert started[3].parent_id == started[2].run_id


def test_a_nested_workflow_keeps_its_limits(notes: Notes) -> None:
    """The limits of a workflow given to a WorkflowStep hold for its part of the run, in each pass anew."""
    inner = Workflow(
        "inner",
        [notes.agent("a"), notes.agent("b")],
        limits=RunLimits(model_calls=1),
    )
    flow = Workflow(
        "flow",
        [notes.agent("before"), WorkflowStep(inner), notes.agent("after")],
    )
    with pytest.raises(LimitExceededError) as caught:
        flow.run("x")
    assert (
        caught.value.limit,
        caught.value.component,
        caught.value.resume_path,
    ) == (
        "model_calls",
        "b",
        [1, 1],
    )
    assert (
        flow.run(caught.value.context, resume_path=[1, 1])["after_output"]
        == "after1"
    )
    enough = Workflow(
        "inner", [notes.agent("c")], limits=RunLimits(model_calls=1)
    )
    Workflow(
        "flow", [LoopStep([WorkflowStep(enough)], NEVER, max_iterations=3)]
    ).run("x")
    assert len(notes.of("c")) == 3


def test_a_nested_workflow_keeps_its_event_manager_and_verbose(
    notes: Notes, recorder: Any, capsys: Any
) -> None:
    """They get the events of its part of the run, and each event once if the outer workflow has them too."""
    inner = Workflow(
        "inner",
        [notes.agent("b")],
        event_manager=recorder.manager,
        verbose=True,
    )
    Workflow(
        "flow", [notes.agent("a"), WorkflowStep(inner), notes.agent("c")]
    ).run("x")
    assert [event.component for event in recorder.of("run_started")] == [
        "inner",
        "b",
    ]
    printed = capsys.readouterr().out
    assert "[b] thinking" in printed
    assert "[a]" not in printed
    recorder.events.clear()
    Workflow(
        "flow",
        [WorkflowStep(inner)],
        event_manager=recorder.manager,
        verbose=True,
    ).run("x")
    assert [event.component for event in recorder.of("run_started")] == [
        "flow",
        "inner",
        "b",
    ]
    assert capsys.readouterr().out.count("[b] thinking") == 1


def test_a_workflow_as_an_agent_has_its_own_context(notes: Notes) -> None:
    """A workflow in an agent step has a context of its own, and answers with its last output."""
    inner = Workflow("inner", [notes.agent("b"), notes.agent("c")])
    flow = Workflow(
        "flow",
        [
            notes.agent("a"),
            AgentStep(inner, input="{a_output}"),
            notes.agent("d"),
        ],
    )
    assert flow.run("x") == {
        "input": "x",
        "a_output": "a1",
        "inner_output": "c1",
        "d_output": "d1",
    }
    assert notes.of("b") == ["a1"]
    assert notes.of("c") == ["## input\na1\n\n## b_output\nb1"]


def test_every_step_is_in_the_trace(notes: Notes) -> None:
    """Each step starts and finishes in the trace with its name, type and path."""
    flow = Workflow.from_blueprint(
        EVERY_STEP,
        {"writer": notes.agent("writer")},
        functions={"forecast": forecast},
    )
    result = flow.run("x", trace=True)
    started = {
        (event.step, event.step_type, event.path)
        for event in events(result, "step_started")
    }
    assert started == {
        (event.step, event.step_type, event.path)
        for event in events(result, "step_finished")
    }
    assert started == {
        ("write", "agent_step", (0,)), ("check", "condition_step", (1,)), ("again", "agent_step", (1, 1, 0)),
        ("both", "parallel_step", (2,)), ("w", "agent_step", (2, 0, 0)),
        ("loop", "loop_step", (3,)), ("w", "agent_step", (3, 0, 0)),
        ("map", "map_step", (4,)), ("w", "agent_step", (4, 0, 0)),
        ("nest", "workflow_step", (5,)), ("w", "agent_step", (5, 0)),
        ("call", "function_step", (6,)), ("try", "try_step", (7,)), ("w", "agent_step", (7, 0, 0)),
    }  # fmt: skip


def test_steps_may_name_agents_and_conditions(notes: Notes) -> None:
    """Agents and conditions may be given by name, apart from the steps."""
    flow = Workflow(
        "flow",
        [
            AgentStep("writer"),
            ConditionStep("done", [AgentStep("editor", "edit")]),
        ],
        agents={
            "writer": notes.agent("someone"),
            "editor": notes.agent("other"),
        },
        conditions={"done": lambda context: True},
    )
    assert flow.run("x") == {
        "input": "x",
        "writer_output": "someone1",
        "editor_output": "other1",
    }


WRONG_STEPS: dict[str, Any] = {
    "two agents of one name": [Agent("a", "", "a/b"), Agent("a", "", "a/b")],
    "two nested agents of one name": [
        Agent("a", "", "a/b"),
        WorkflowStep(Workflow("i", [Agent("a", "", "a/b")])),
    ],
    "a number": 5,
    "a text": "steps",
    "a number as a step": [5],
    "a number as an agent": [AgentStep(5)],  # pyright: ignore[reportArgumentType]
    "an agent as a workflow": [WorkflowStep(Agent("a", "", "a/b"))],  # pyright: ignore[reportArgumentType]
    "an agent as a list of steps": [LoopStep(Agent("a", "", "a/b"), ALWAYS)],  # pyright: ignore[reportArgumentType]
    "agents as branches": [ParallelStep([Agent("a", "", "a/b")])],  # pyright: ignore[reportArgumentType]
}


@pytest.mark.parametrize("steps", WRONG_STEPS.values(), ids=list(WRONG_STEPS))
def test_wrong_steps_are_a_configuration_error(steps: Any) -> None:
    """Steps, agents and nested workflows of the wrong type, and a name for two agents, are ConfigurationErrors."""
    with pytest.raises(ConfigurationError):
        Workflow("flow", steps)


def test_a_missing_agent_fails_when_it_is_needed(notes: Notes) -> None:
    """Without validation an agent may be missing until its step; the workflow resumes from there."""
    whole = Workflow("flow", [notes.agent("a"), notes.agent("b")])
    partial = Workflow.from_blueprint(
        whole.to_blueprint(), {"a": whole.members()["a"]}, validate=False
    )
    with pytest.raises(ConfigurationError, match="'b'") as caught:
        partial.run("x")
    assert caught.value.resume_path == [1]
    whole.run(caught.value.context, resume_path=[1])
    assert [name for name, _ in notes.asked] == ["a", "b"]


def test_an_event_manager_given_to_from_blueprint_gets_all_events(
    notes: Notes, recorder: Any
) -> None:
    """The events of all steps, nested ones included, reach the event manager (spec §4.4)."""
    flow = Workflow(
        "flow",
        [notes.agent("a"), WorkflowStep(Workflow("inner", [notes.agent("b")]))],
    )
    Workflow.from_blueprint(
        flow.to_blueprint(), flow.members(), event_manager=recorder.manager
    ).run("x")
    assert [event.component for event in recorder.of("run_started")] == [
        "flow",
        "a",
        "inner",
        "b",
    ]


def test_a_run_has_a_maximum_of_steps(
    notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nested steps count together; beyond the maximum the run stops, and can be resumed."""
    monkeypatch.setattr("podwright.run.accounts.MAX_STEPS_PER_RUN", 20)
    inner = Workflow("inner", [LoopStep([notes.agent("a")], NEVER, 5)])
    flow = Workflow("w", [MapStep("items", "item", [inner], max_concurrency=2)])
    with pytest.raises(LimitExceededError) as caught:
        flow.run({"items": ["x", "y", "z", "u"]})
    assert caught.value.limit == "steps"
    assert flow.run(caught.value.context, resume_path=caught.value.resume_path)
    assert len(notes.asked) == 20
