"""New attempts of a run: after any event of the first, the next one repeats nothing that had finished."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from podwright import (
    Agent,
    AgentStep,
    ApprovalRequired,
    ApprovalStep,
    Component,
    ConditionStep,
    Conductor,
    FunctionAgent,
    FunctionModel,
    FunctionStep,
    LoopStep,
    MapStep,
    ParallelStep,
    Pipeline,
    RunContext,
    RunLimits,
    ScriptedModel,
    TryStep,
    Workflow,
    WorkflowStep,
    call_key,
    events,
    tool,
)
from podwright.errors import (
    LimitExceededError,
    ModelError,
    OutputError,
    PodwrightError,
    ToolArgumentsError,
    ToolError,
)
from podwright.events import Event, EventManager, adapter
from podwright.journal.journal import Journal, JournalStore
from podwright.messages.approvals import ApprovalId, Decision
from podwright.messages.usage import Usage
from podwright.models.retries import Retries
from podwright.run.result import ExecutionResult
from podwright.run.run import Task, execute
from podwright.testing import ModelRequest, ModelResponse, ToolCall

RUN = "0" * 32
USAGE = Usage(10, 5, cost=0.25)
effects: Counter[str] = Counter()


@tool(idempotent=True)
def look(place: str) -> str:
    """Look somewhere."""
    effects[f"look {place}"] += 1
    return f"nothing in {place}"


def pay(amount: int) -> str:
    """Pay."""
    effects[f"pay {amount}"] += 1
    return f"paid {amount}"


async def ask(question: str) -> str:
    """Ask another agent."""
    return await Agent("expert", "Know.", MODEL).arun(question)


@tool(idempotent=True)
def order(number: int) -> dict[str, Any]:
    """Look an order up."""
    effects[f"order {number}"] += 1
    return {"id": number, "items": [1, 2]}


@tool(idempotent=True)
async def refuse(amount: int) -> None:
    """Always fail, after parallel steps have begun."""
    effects[f"refuse {amount}"] += 1
    for _ in range(20):
        await asyncio.sleep(0)
    raise OSError("refused")


async def respond(request: ModelRequest) -> Any:
    last = request.messages[-1]
    effects[f"model {request.component} {request.path} {last.text}"] += 1
    names = [entry["function"]["name"] for entry in request.tools]
    if request.output is not None:
        steps = [
            {"skill": "looker", "task": "one"},
            {"skill": "payer", "task": "two"},
        ]
        return ModelResponse(json.dumps({"steps": steps}), usage=USAGE)
    if last.role != "tool" and names:
        calls = {
            "look": [
                ToolCall.of("look", "1", place="x"),
                ToolCall.of("look", "1", place="y"),
            ],
            "pay": [
                ToolCall.of("pay", "1", amount="much"),
                ToolCall.of("pay", "2", amount=3),
            ],
            "ask": [
                ToolCall.of("ask", "1", question="why"),
                ToolCall.of("ask", "2", question="how"),
            ],
            "looker": [
                ToolCall.of("looker", "1", task="a"),
                ToolCall.of("payer", "2", task="b"),
            ],
        }[names[0]]
        return ModelResponse(
            tool_calls=tuple(calls), usage=USAGE, finish_reason="tool_calls"
        )
    return ModelResponse(f"{request.component}: {last.text[-20:]}", usage=USAGE)


MODEL = FunctionModel(respond)
looker = Agent("looker", "Look.", MODEL, tools=[look])
payer = Agent("payer", "Pay.", MODEL, tools=[pay])
asker = Agent("asker", "Ask.", MODEL, tools=[ask])
writer = Agent("writer", "Write.", MODEL)
checks = [0]


NEVER = {"name": "is_empty", "args": {"value": "x"}}


def odd(context: Any) -> bool:
    """A condition that an attempt cannot know: each check has another result than the one before."""
    checks[0] += 1
    return checks[0] % 2 == 0


def after(recorded: Sequence[Event]) -> None:
    """Begin to count effects, with the checks that are recorded made already."""
    effects.clear()
    checks[0] = sum(
        isinstance(event, events.ConditionChecked) and event.condition == "odd"
        for event in recorded
    )


async def investigate(task: str, context: RunContext) -> str:
    """The function of an agent: two model calls that it makes by itself."""
    effects["investigate"] += 1
    for _ in range(2):
        context.report_usage(
            "acme/model", input_tokens=10, output_tokens=5, cost=0.25
        )
    return "found"


COMPONENTS: list[Component] = [
    looker,
    payer,
    asker,
    Pipeline("line", steps=[looker, payer, writer]),
    Conductor("boss", "Lead.", model=MODEL, skills=[looker, payer]),
    Conductor(
        "planner", "Lead.", model=MODEL, skills=[looker, payer], planning=True
    ),
    Workflow(
        "flow",
        conditions={"odd": odd},
        steps=[
            ParallelStep(
                [
                    [AgentStep(looker, "left")],
                    [AgentStep(payer, "middle"), writer],
                    [asker],
                ],
                "both",
            ),
            LoopStep(
                [AgentStep(writer, "again")], until="odd", max_iterations=3
            ),
            LoopStep(
                [AgentStep(writer, "often", input="{iteration}")],
                until=NEVER,
                max_iterations=2,
            ),
            ConditionStep(
                "odd",
                then=[AgentStep(looker, "then")],
                else_=[AgentStep(payer, "else")],
            ),
            MapStep("items", "item", [AgentStep(writer, "each")]),
            WorkflowStep(Workflow("inner", steps=[AgentStep(writer, "in")])),
            AgentStep(
                Conductor("boss", "Lead.", model=MODEL, skills=[looker, payer]),
                "team",
            ),
        ],
    ),
    Workflow(
        "data",
        steps=[
            FunctionStep(order, {"number": 7}, output="order"),
            ParallelStep(
                [
                    [FunctionStep(ask, {"question": "why {order.id}"}, "left")],
                    [
                        FunctionStep(
                            ask,
                            {"question": "why"},
                            name="right",
                            output="why",
                        ),
                        FunctionStep(look, {"place": "{why}"}),
                    ],
                ]
            ),
            TryStep(
                [
                    AgentStep(writer, "tried"),
                    FunctionStep(refuse, {"amount": "{order.id}"}),
                    AgentStep(writer, "never"),
                ],
                catch=[AgentStep(writer, "caught", input="{error.code}")],
                retries=1,
            ),
            TryStep(
                [
                    ParallelStep(
                        [
                            [AgentStep(payer, "paid")],
                            [FunctionStep(refuse, {"amount": 1}, "refused")],
                        ]
                    )
                ],
                catch=[FunctionStep(pay, {"amount": 9}, "instead")],
            ),
            MapStep(
                "order.items",
                "item",
                [
                    FunctionStep(order, {"number": "{item}"}, output="each"),
                    TryStep(
                        [FunctionStep(refuse, {"amount": "{item}"})],
                        catch=[AgentStep(writer, "one", input="{each.id}")],
                    ),
                ],
            ),
        ],
    ),
]


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Workflow, "retries", Retries(first_wait=0))


async def attempt(
    component: Component, recorded: Sequence[Event], **options: Any
) -> tuple[Any, list[Event]]:
    """The result of an attempt, or its error, and the events of it that are new."""
    new: list[Event] = []
    task: Any = (
        {"input": "go", "items": "1\n2"}
        if isinstance(component, Workflow)
        else "go"
    )
    journal = Journal(stored(recorded), options.pop("decisions", None))
    try:
        prepared = (
            component.task(task)
            if isinstance(component, Workflow)
            else Task(task)
        )
        result: Any = await execute(
            component,
            prepared,
            subscribers=(new.append,),
            run_id=RUN,
            journal=journal,
            **options,
        )
    except PodwrightError as error:
        result = error
    return result, new


def stored(recorded: Sequence[Event]) -> list[Event]:
    """What a journal keeps of events: no tokens, no requests, and all of it as JSON."""
    kept = (
        event
        for event in recorded
        if not isinstance(event, events.Token | events.ModelCallStarted)
    )
    return [adapter().validate_python(event.to_dict()) for event in kept]


def ended(recorded: Sequence[Event]) -> Counter[tuple[Any, ...]]:
    """The calls, steps and runs that have finished, each with how often."""
    finished: Counter[tuple[Any, ...]] = Counter()
    for event in recorded:
        match event:
            case events.ModelCallFinished() | events.ToolCallFinished():
                finished[event.type, event.run_id, event.path, event.call] += 1
            case (
                events.StepFinished(outcome="ok" | "exhausted" | "caught")
                | events.LoopExhausted()
            ):
                finished[event.type, event.run_id, event.path, event.step] += 1
            case (
                events.RunFinished()
                | events.PlanMade()
                | events.ConditionChecked()
                | events.ErrorCaught()
            ):
                finished[
                    event.type, event.run_id, event.path, event.component
                ] += 1
            case _:
                pass
    return finished


@pytest.mark.parametrize(
    "component", COMPONENTS, ids=lambda component: component.name
)
async def test_a_new_attempt_repeats_nothing_that_had_finished(
    component: Component,
) -> None:
    """After each prefix of its events, a run ends as it would have, and each call, step and run finishes once."""
    after([])
    whole, all_events = await attempt(component, [])
    assert isinstance(whole, ExecutionResult)
    all_effects = effects.copy()
    for length in range(len(all_events)):
        after(all_events[:length])
        result, new = await attempt(component, all_events[:length])
        assert isinstance(result, ExecutionResult), result
        assert result.value == whole.value
        assert (result.usage, result.messages) == (whole.usage, whole.messages)
        assert ended([*all_events[:length], *new]) == ended(all_events)
        made = Counter(type(event) for event in new)
        assert made[events.ModelCallStarted] == made[events.ModelCallFinished]
        assert (
            sum(
                count
                for name, count in effects.items()
                if name.startswith("model")
            )
            == made[events.ModelCallFinished]
        )
        assert not effects - all_effects


async def test_attempts_after_attempts() -> None:
    """A run that is stopped again and again, after some events of each attempt, still repeats nothing."""
    component = COMPONENTS[-1]
    recorded = list[Event]()
    after([])
    whole, all_events = await attempt(component, [])
    after([])
    for _ in range(1000):
        result, new = await attempt(component, recorded)
        recorded += new[:25]
        if len(new) <= 25:
            break
        after(recorded)
    assert result.usage == whole.usage
    assert ended(recorded) == ended(all_events)


async def test_a_failed_run_goes_on_where_it_stood() -> None:
    """The calls before the failure are not repeated; the one that failed is."""
    broken = True

    async def fail_once(request: ModelRequest) -> Any:
        if request.messages[-1].role == "tool" and broken:
            raise ModelError("The provider is down.")
        return await respond(request)

    agent = Agent("looker", "Look.", FunctionModel(fail_once), tools=[look])
    error, recorded = await attempt(agent, [])
    assert isinstance(error, ModelError)
    effects.clear()
    broken = False
    result, new = await attempt(agent, recorded)
    assert result.value == "looker: nothing in y"
    assert [event.type for event in new] == [
        "run_started",
        "model_call_started",
        "model_call_finished",
        "run_finished",
    ]
    assert result.usage.model_calls == 2
    assert not [name for name in effects if name.startswith("look")]


async def test_an_answer_that_failed_a_run_is_asked_for_again() -> None:
    """A run whose last answer was the reason does not fail for the same answer again."""
    answers = iter(["not a number", "neither", '{"answer": 3}'])
    agent = Agent(
        "counter",
        "Count.",
        FunctionModel(lambda request: next(answers)),
        max_loops=2,
    )
    recorded: list[Event] = []
    with pytest.raises(OutputError):
        await execute(
            agent,
            Task("go", int),
            subscribers=(recorded.append,),
            run_id=RUN,
            journal=Journal(),
        )
    result = await execute(
        agent, Task("go", int), run_id=RUN, journal=Journal(stored(recorded))
    )
    assert result.value == 3
    assert result.usage.model_calls == 3, (
        "the answer that is not used was paid too"
    )


WRONG = ToolCall.of("pay", amount="much")
RIGHT = ToolCall.of("pay", amount=3)
MISTAKES: dict[str, tuple[list[Any], bool]] = {
    # the answers of the model, and whether the run fails after the last one; two wrong calls in a row are reported
    "two in a row": (
        [[WRONG], [WRONG], [RIGHT], [WRONG], [WRONG], "done"],
        False,
    ),
    "three in a row": ([[WRONG], [RIGHT], [WRONG], [WRONG], [WRONG]], True),
    "three in turns of several": (
        [[WRONG, RIGHT], [WRONG, WRONG], [WRONG], [WRONG]],
        True,
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
async def test_mistakes_of_the_model_count_over_all_attempts(name: str) -> None:
    """A new attempt counts the wrong calls of the earlier ones, and fails where the first one would have."""
    answers, fails = MISTAKES[name]

    async def answer(request: ModelRequest) -> Any:
        return answers[
            sum(message.role == "assistant" for message in request.messages)
        ]

    agent = Agent(
        "payer", "Pay.", FunctionModel(answer), tools=[pay], max_tool_retries=2
    )
    whole, all_events = await attempt(agent, [])
    assert isinstance(whole, ToolArgumentsError) == fails
    before_the_end = next(
        index
        for index, event in enumerate(all_events)
        if isinstance(event, events.RunFailed | events.RunFinished)
    )
    for length in range(before_the_end):
        result, new = await attempt(agent, all_events[:length])
        assert isinstance(result, ToolArgumentsError) == fails
        assert result.usage == whole.usage
        assert ended([*all_events[:length], *new]) == ended(all_events)


async def test_a_tool_that_failed_is_called_again() -> None:
    """The model's answer is kept, and so is the result of the other call of the turn."""
    is_full = True
    looked = asyncio.Event()

    async def look(place: str) -> str:
        """Look."""
        effects["look"] += 1
        return f"nothing in {place}"

    @tool(on_error="fail")
    async def save(text: str) -> str:
        """Save."""
        await looked.wait()
        if is_full:
            raise OSError("full")
        return "saved"

    manager = EventManager()
    manager.subscribe(lambda event: looked.set(), "tool_call_finished")

    async def answer(request: ModelRequest) -> Any:
        if request.messages[-1].role == "tool":
            return "done"
        return [
            ToolCall.of("look", "1", place="z"),
            ToolCall.of("save", "2", text="x"),
        ]

    agent = Agent(
        "saver",
        "Save.",
        FunctionModel(answer),
        tools=[look, save],
        event_manager=manager,
    )
    error, recorded = await attempt(agent, [])
    assert isinstance(error, ToolError)
    is_full = False
    result, _ = await attempt(agent, recorded)
    assert result.value == "done"
    assert effects["look"] == 1


RAISES = ToolCall.of("save", text="x")
SAVES = ToolCall.of("save", text="y")
FAILURES: dict[str, tuple[list[Any], bool]] = {
    # the answers of the model, and whether the run fails after the last one; two failures in a row are reported
    "reported": ([[RAISES], [RAISES], [SAVES], [RAISES], "done"], False),
    "too often": ([[RAISES, RAISES], [RAISES], [RAISES]], True),
    "of nested runs": ([[ToolCall.of("consult")], [SAVES], "done"], False),
}


@pytest.mark.parametrize("name", FAILURES)
async def test_failures_that_were_reported_are_not_repeated(name: str) -> None:
    """A new attempt tells the model the same without calling the tool, and fails where the first one would have."""
    answers, fails = FAILURES[name]

    async def save(text: str) -> str:
        """Save."""
        effects[f"save {text}"] += 1
        if text == "x":
            raise OSError(f"full after {effects.total()}")
        return "saved"

    async def mistake(_: ModelRequest) -> Any:
        return ModelResponse(
            tool_calls=(WRONG,), usage=USAGE, finish_reason="tool_calls"
        )

    async def consult() -> str:
        """Consult an agent that fails."""
        effects["consult"] += 1
        expert = Agent(
            "expert",
            "Know.",
            FunctionModel(mistake),
            tools=[pay],
            max_tool_retries=1,
        )
        return await expert.arun("?")

    async def answer(request: ModelRequest) -> Any:
        return answers[
            sum(message.role == "assistant" for message in request.messages)
        ]

    agent = Agent(
        "saver",
        "Save.",
        FunctionModel(answer),
        tools=[save, consult],
        max_tool_retries=2,
    )
    effects.clear()
    whole, all_events = await attempt(agent, [])
    assert isinstance(whole, ToolError) == fails
    before_the_end = max(
        index
        for index, event in enumerate(all_events)
        if isinstance(event, events.ToolCallStarted | events.RunFinished)
    )
    for length in range(before_the_end):
        recorded = all_events[:length]
        effects.clear()
        result, new = await attempt(agent, recorded)
        assert isinstance(result, ToolError) == fails
        # the answer that failed a nested run is asked for again until the model around it has been told
        is_between = recorded and isinstance(recorded[-1], events.RunFailed)
        if not is_between:
            assert result.usage == whole.usage
        assert len(answered(recorded)) + len(answered(new)) == len(
            answered(all_events)
        )
        if not fails:
            told = [message["content"] for message in result.messages]
            assert set(answered(recorded, "saver")) <= set(told)


def answered(recorded: Sequence[Event], component: str = "") -> list[str]:
    """What models were told of the tool calls that ended, by default those of all components."""
    told: list[str] = []
    for event in recorded:
        match event:
            case events.ToolCallFailed(report=str(text)):
                pass
            case events.ToolCallFinished(output=text):
                pass
            case _:
                continue
        if text and component in ("", event.component):
            told.append(text)
    return told


async def test_events_of_older_releases_report_wrong_calls_only() -> None:
    """Without the field that tells what the model was told, wrong calls are replayed, and errors are not."""
    whole, all_events = await attempt(payer, [])
    data = [event.to_dict() for event in stored(all_events)]
    for event in data:
        event.pop("output", None)
    # the results of finished calls have a field of this name too
    kept = [each for each in data if each["type"] != "tool_call_finished"]
    recorded = [adapter().validate_python(each) for each in kept]
    result, new = await attempt(payer, recorded)
    assert result.messages == whole.messages
    assert "tool_call_failed" not in [event.type for event in new]


async def test_limits_hold_over_all_attempts() -> None:
    """What earlier attempts used is not granted again."""
    limits = RunLimits(model_calls=3)
    line = Pipeline("line", steps=[looker, looker])
    error, recorded = await attempt(line, [], limits=limits)
    assert isinstance(error, LimitExceededError)
    effects.clear()
    error, _ = await attempt(line, recorded, limits=limits)
    assert isinstance(error, LimitExceededError)
    assert error.usage is not None
    assert error.usage.model_calls == 3
    assert not [name for name in effects if name.startswith("model")]


async def test_an_approved_run_goes_on() -> None:
    """Each approval step is passed once its position is approved, and nothing before it is repeated."""
    flow = Workflow(
        "flow",
        steps=[
            writer,
            ApprovalStep("Publish?"),
            ApprovalStep("Sure?"),
            AgentStep(looker, "end"),
        ],
    )
    error, recorded = await attempt(flow, [])
    assert isinstance(error, ApprovalRequired)
    assert error.resume_path == [1]
    effects.clear()
    error, new = await attempt(
        flow, recorded, decisions={ApprovalId(RUN, (1,)): Decision()}
    )
    assert isinstance(error, ApprovalRequired)
    assert error.resume_path == [2]
    assert not effects
    result, _ = await attempt(
        flow,
        [*recorded, *new],
        decisions={ApprovalId(RUN, (at,)): Decision() for at in (1, 2)},
    )
    assert result.value["looker_output"] == "looker: nothing in y"


async def test_tool_calls_that_nobody_knows_the_end_of() -> None:
    """A call that had started and not ended is named, unless its tool is idempotent or is a nested run."""
    for component, named in (
        (payer, {"pay"}),
        (looker, set[str]()),
        (COMPONENTS[4], {"pay"}),
        (asker, {"ask"}),
    ):
        _, recorded = await attempt(component, [])
        found = {
            call.tool
            for length in range(len(recorded) + 1)
            for call in Journal(
                stored(recorded[:length])
            ).unfinished_tool_calls()
        }
        assert found == named
        assert not Journal(stored(recorded)).unfinished_tool_calls()


@pytest.mark.parametrize("idempotent", [False, True])
async def test_the_call_of_a_function_agent_is_one_effect(
    idempotent: bool,
) -> None:
    """A call that has ended is not repeated. One that was cut off is: a person is asked unless it is idempotent, and
    what it has reported still counts.
    """
    investigator = FunctionAgent(
        "investigator", investigate, idempotent=idempotent
    )
    line = Pipeline("line", steps=[writer, investigator, writer])
    whole, all_events = await attempt(line, [])
    for length in range(len(all_events)):
        recorded = all_events[:length]
        before = Counter(event.type for event in recorded)
        begun = before["tool_call_started"] == 1
        has_ended = before["tool_call_finished"] == 1
        unfinished = Journal(stored(recorded)).unfinished_tool_calls()
        assert len(unfinished) == int(
            begun and not has_ended and not idempotent
        )
        after(recorded)
        result, new = await attempt(line, recorded)
        assert result.value == whole.value
        assert effects["investigate"] == int(not has_ended)
        lost = Usage()
        for event in recorded:
            match event:
                case events.ModelCallFinished(tool_call=0) if not has_ended:
                    lost += event.response.usage.as_call(event.model)
                case _:
                    pass
        assert result.usage == whole.usage + lost
        assert ended([*recorded, *new])["run_finished", RUN, (), "line"] == 1


def test_idempotent_tools_in_blueprints() -> None:
    """The mark is part of the blueprint, and never sent to a model."""
    entry = looker.to_blueprint()["tools"][0]
    assert entry["idempotent"] is True
    assert "idempotent" not in json.dumps(entry["schema"])
    rebuilt = Agent.from_blueprint(looker.to_blueprint(), tools=[look])
    assert rebuilt.tools["look"].idempotent
    assert "idempotent" not in payer.to_blueprint()["tools"][0]


async def test_a_bare_mark_changes_nothing() -> None:
    """`@tool` without arguments returns the function as it is."""

    @tool
    def plain(word: str) -> str:
        """Repeat."""
        return word

    assert plain("x") == "x"
    assert not Agent("a", "Do.", MODEL, tools=[plain]).tools["plain"].idempotent


async def test_the_time_of_earlier_attempts_counts() -> None:
    """A run that has had its time in earlier attempts gets no more."""

    async def hang(request: ModelRequest) -> str:
        await asyncio.Event().wait()
        return "never"

    agent = Agent("expert", "Know.", FunctionModel(hang))
    with pytest.raises(LimitExceededError) as caught:
        await execute(
            agent,
            Task("x"),
            limits=RunLimits(wall_time=3600),
            run_id=RUN,
            journal=Journal(seconds=3600.0),
        )
    assert caught.value.limit == "wall_time"


async def test_what_failed_calls_used_is_not_forgotten() -> None:
    """A new attempt has used what the failed calls of the one before have, and its limits know of these calls."""
    failed = ModelError("no")
    failed.transient = False
    failed.attempt_usage = Usage(10, 5, cost=0.25)
    answers: list[Any] = [failed, "done"]

    def respond(_: ModelRequest) -> str:
        answer = answers.pop(0)
        if isinstance(answer, ModelError):
            raise answer
        return answer

    agent = Agent("a", "Do.", FunctionModel(respond))
    recorded: list[Event] = []
    with pytest.raises(ModelError):
        await execute(
            agent,
            Task("go"),
            subscribers=(recorded.append,),
            run_id=RUN,
            journal=Journal(),
        )
    journal = Journal(stored(recorded))
    with pytest.raises(LimitExceededError):
        await execute(
            agent,
            Task("go"),
            run_id=RUN,
            journal=journal,
            limits=RunLimits(model_calls=1),
        )
    result = await execute(
        agent, Task("go"), run_id=RUN, journal=Journal(stored(recorded))
    )
    assert result.value == "done"
    assert result.usage.known_cost == 0.25
    assert result.usage.input_tokens > 10


async def test_the_key_of_a_call_is_the_same_in_each_attempt() -> None:
    """A tool and a step's function can tell a repeated call from another one."""
    keys: list[str | None] = []

    async def note(text: str) -> str:
        """Note a key."""
        keys.append(call_key())
        return text

    def make() -> Workflow:
        calls = [
            ToolCall.of("note", str(number), text="x") for number in (1, 2)
        ]
        agent = Agent("a", "", ScriptedModel(calls, "done"), tools=[note])
        steps = [
            MapStep("items", "item", [FunctionStep(note, {"text": "{item}"})]),
            agent,
        ]
        return Workflow("flow", steps)

    for _ in range(2):
        await attempt(make(), [])
    assert call_key() is None
    assert len(keys) == 8
    assert Counter(keys) == Counter(dict.fromkeys(keys[:4], 2))
    assert len(set(keys)) == 4


async def test_a_store_keeps_what_the_next_attempt_needs() -> None:
    """A store gets every event before the tool that it is about begins, and its events are the next journal."""

    class Memory(JournalStore):
        def __init__(self) -> None:
            self.kept: list[Event] = []
            self.at_effects: list[str] = []

        def add(self, event: Event) -> None:
            self.kept.append(event)

        async def before_effect(self) -> None:
            self.at_effects.append(self.kept[-1].type)

    effects.clear()
    memory = Memory()
    first = await execute(
        payer, Task("go"), run_id=RUN, journal=Journal(store=memory)
    )
    assert memory.at_effects == ["tool_call_started"] * 2
    done = Counter(effects)
    journal = Journal(stored(memory.kept))
    second = await execute(payer, Task("go"), run_id=RUN, journal=journal)
    assert (second.value, second.usage) == (first.value, first.usage)
    assert effects == done
    assert journal.of(RUN).end is not None
    assert journal.of("f" * 32).end is None
