"""Tool calls that a person has to approve: the run pauses before the call, and goes on as the person decides."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import date
from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, StringConstraints

from podwright import (
    Agent,
    AgentStep,
    ApprovalRequired,
    ApprovalStep,
    BlueprintValidationError,
    Conductor,
    FunctionModel,
    FunctionStep,
    ParallelStep,
    Pipeline,
    ScriptedModel,
    TryStep,
    Workflow,
    tool,
)
from podwright.errors import (
    InputError,
    InputsError,
    LoopLimitError,
    ModelError,
    OutputError,
    PodwrightError,
    ToolArgumentsError,
    ToolDefinitionError,
    ToolError,
)
from podwright.journal.journal import Journal, JournalStore
from podwright.journal.saved_run import SAVED_RUN
from podwright.messages.approvals import ApprovalId, Decision, digest_of_asked
from podwright.run.run import execute
from podwright.testing import ModelRequest, ToolCall

effects: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def _no_effects() -> None:
    effects.clear()


@tool(approval=True)
def pay(amount: int, to: str = "Ann") -> str:
    """Pay someone."""
    effects[f"pay {amount} to {to}"] += 1
    return f"paid {amount}"


@tool(approval=lambda amount: amount > 100)
def refund(amount: int, reason: str = "") -> str:
    """Refund."""
    effects[f"refund {amount}"] += 1
    return f"refunded {amount}"


def look(what: str) -> str:
    """Look something up."""
    effects[f"look {what}"] += 1
    return f"saw {what}"


def pause_of(component: Any, given: Any, **options: Any) -> ApprovalRequired:
    with pytest.raises(ApprovalRequired) as caught:
        component.run(given, **options)
    # whoever asks the person may be another process
    caught.value.context = json.loads(json.dumps(caught.value.context))
    return caught.value


def clerk(*answers: Any, name: str = "clerk") -> Agent:
    return Agent(
        name, "Work.", ScriptedModel(*answers), tools=[pay, refund, look]
    )


PAY = ToolCall.of("pay", "1", amount=5)


def test_a_call_waits_for_a_person() -> None:
    """The question shows the tool and the arguments; the call is made once it is approved, and nothing twice."""
    agent = clerk([ToolCall.of("look", "0", what="x"), PAY], "done")
    pause = pause_of(agent, "hi")
    assert effects == {"look x": 1}
    question = pause.question
    assert question is not None
    assert (question.tool, question.options) == ("pay", ("approve", "reject"))
    assert question.edit["amount"] == {
        "schema": {"type": "integer"},
        "value": 5,
    }
    assert '{"amount": 5}' in question.message
    result = agent.run(pause.decide("approve"), trace=True)
    assert result.value == "done"
    assert effects == {"look x": 1, "pay 5 to Ann": 1}
    assert result.usage.tool_calls == 2
    assert result.usage.model_calls == 2
    assert [message["role"] for message in result.messages] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
    ]


class Attempts:
    """The attempts of a background run: each replays what the ones before have recorded.

    Args:
        agent: What is run.
    """

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.recorded: list[Any] = []
        self.decisions: dict[ApprovalId, Decision] = {}

    async def perform(self) -> ApprovalRequired | PodwrightError | None:
        """Perform an attempt, and return what stopped it."""
        try:
            await execute(
                self.agent,
                self.agent.task("hi"),
                run_id="0" * 32,
                journal=Journal(self.recorded, self.decisions),
                subscribers=(self.recorded.append,),
            )
        except PodwrightError as error:
            return error
        return None

    async def approve(self) -> None:
        """Perform an attempt that asks, and approve."""
        pause = await self.perform()
        assert isinstance(pause, ApprovalRequired)
        assert pause.asked is not None
        assert pause.question is not None
        decision = Decision(about=pause.question.digest)
        self.decisions[pause.asked] = decision


def refunding(amount: int) -> ToolCall:
    return ToolCall.of("refund", amount=amount)


WRONG = ToolCall.of("refund", amount="much")
UNKNOWN = ToolCall.of("wipe", what="all")
TOO_MANY = [ToolCall.of("look", what=str(number)) for number in range(129)]
FAILS = ToolCall.of("fail", what="x")
STOPS: dict[str, tuple[list[Any], type[PodwrightError]]] = {
    # what the model says up to the failure, the first of it with a refund that is approved
    "the limit of loops": ([[refunding(500)]], LoopLimitError),
    "a wrong call after it": ([[refunding(500)], [WRONG]], ToolArgumentsError),
    "too many calls after it": ([[refunding(500)], TOO_MANY], ModelError),
    "a tool that fails the run": ([[refunding(500)], [FAILS]], ToolError),
    "a wrong answer": ([[refunding(500)], "no JSON"], OutputError),
    "a model that fails": (
        [[refunding(500)], ModelError("Down.")],
        ModelError,
    ),
}
"""Ways in which a run fails after its model's answer was recorded."""


@tool(on_error="fail")
def fail(what: str) -> str:
    """Fail."""
    raise OSError(what)


@pytest.mark.parametrize(("answers", "error"), STOPS.values(), ids=STOPS)
async def test_a_decision_holds_for_what_was_shown(
    answers: list[Any], error: type[PodwrightError]
) -> None:
    """In later attempts, it lets no other call pass, and what it let pass is not done again."""
    model = ScriptedModel(*answers, *[[refunding(999_999)]] * 3)
    agent = Agent(
        "clerk",
        "Work.",
        model,
        tools=[refund, look, fail],
        max_loops=len(answers),
        max_tool_retries=0,
        response_model=int,
    )
    attempts = Attempts(agent)
    await attempts.approve()
    assert isinstance(await attempts.perform(), error)
    assert effects["refund 500"] == 1
    for _ in range(2):
        await attempts.perform()
        assert effects == {"refund 500": 1}


@pytest.mark.parametrize("wrong", [WRONG, UNKNOWN], ids=["wrong", "unknown"])
async def test_an_answer_with_a_wrong_call_is_kept(wrong: ToolCall) -> None:
    """A resumed run tells the model of the call that failed it, and asks about the other ones of the same answer."""
    model = ScriptedModel([wrong, refunding(500)], [refunding(999_999)])
    agent = Agent("clerk", "Work.", model, tools=[refund], max_tool_retries=0)
    attempts = Attempts(agent)
    assert isinstance(await attempts.perform(), ToolArgumentsError)
    await attempts.approve()
    assert isinstance(await attempts.perform(), ApprovalRequired)
    assert effects == {"refund 500": 1}
    told, result = model.requests[-1].messages[-2:]
    assert told.text.startswith("Error: ")
    assert result.text == "refunded 500"


async def test_another_question_at_the_same_place_is_asked() -> None:
    """A decision on other arguments, or on another tool, does not answer it; one on the same question does."""
    attempts = Attempts(clerk([refunding(500)], "done"))
    await attempts.approve()
    (asked,) = attempts.decisions
    approved = attempts.decisions[asked]
    for call in (refunding(501), ToolCall.of("pay", amount=500)):
        other = Attempts(clerk([call], "done"))
        other.decisions = {asked: approved}
        assert isinstance(await other.perform(), ApprovalRequired)
    same = Attempts(clerk([refunding(500)], "done"))
    same.decisions = {asked: approved}
    assert await same.perform() is None
    assert effects == {"refund 500": 1}


async def test_code_that_changes_the_arguments_asks_again() -> None:
    """What was shown is what the function is called with: an attempt that would call it with more asks again."""
    attempts = Attempts(clerk([refunding(500)], "done"))
    await attempts.approve()

    @tool(approval=True)
    def refund(amount: int, reason: str = "by default") -> str:
        """Refund."""
        raise AssertionError

    attempts.agent = Agent(
        "clerk", "Work.", ScriptedModel("done"), tools=[refund]
    )
    assert isinstance(await attempts.perform(), ApprovalRequired)


async def test_a_decision_of_an_older_release_is_taken() -> None:
    """Its question shows the arguments as the model wrote them, and has no digest."""
    older = {
        "message": "Call the tool 'pay' with {\"amount\": 5}?",
        "options": ["approve", "reject"],
        "ends_on_reject": False,
        "edit": {
            "amount": {"schema": {"type": "integer"}, "value": 5},
            "to": {"schema": {"type": "string"}, "value": None},
        },
        "tool": "pay",
    }
    for call, effect in ((PAY, 1), (ToolCall.of("pay", "1", amount=6), 0)):
        effects.clear()
        attempts = Attempts(clerk([call], "done"))
        decision = Decision(about=digest_of_asked(older))
        attempts.decisions = {ApprovalId("0" * 32, (), 0): decision}
        await attempts.perform()
        assert effects.total() == effect


def at_most_50(amount: int) -> int:
    return min(amount, 50)


@tool(approval=True)
def ship(
    day: date,
    amount: Annotated[int, AfterValidator(at_most_50)] = 1,
    to: Literal["Ann", "Bob"] = "Ann",
    note: Annotated[str, StringConstraints(max_length=5)] = "",
) -> str:
    """Ship."""
    effects[f"ship {amount} on {day} to {to}{note}"] += 1
    return "shipped"


SHIP = ToolCall.of("ship", day="2026-01-05", amount=100)


def test_a_question_shows_what_will_be_executed() -> None:
    """Arguments as they are after validation, with the defaults of the function, beside those of the model."""
    agent = Agent("clerk", "Work.", ScriptedModel([SHIP], "done"), tools=[ship])
    pause = pause_of(agent, "hi")
    question = pause.question
    assert question is not None
    executed = {"day": "2026-01-05", "amount": 50, "to": "Ann", "note": ""}
    written = {"day": "2026-01-05", "amount": 100}
    assert json.dumps(executed) in question.message
    assert json.dumps(written) in question.message
    assert question.model_arguments == written
    shown = {name: edit["value"] for name, edit in question.edit.items()}
    assert shown == executed
    agent.run(pause.decide())
    assert effects == {"ship 50 on 2026-01-05 to Ann": 1}


@pytest.mark.parametrize(
    "values",
    [
        {"day": "05.01.2026"},
        {"day": "2026-02-30"},
        {"day": ""},
        {"day": 6},
        {"amount": 80},
        {"amount": "5"},
        {"to": "Eve"},
        {"note": "123456"},
        {"to": None},
        {"other": 1},
    ],
)
def test_an_edit_is_checked_by_the_tool(values: dict[str, Any]) -> None:
    """What the tool does not take, or would change, is refused; the question stays open, and nothing is done."""
    agent = Agent("clerk", "Work.", ScriptedModel([SHIP], "done"), tools=[ship])
    pause = pause_of(agent, "hi")
    with pytest.raises(InputsError) as caught:
        agent.run(pause.decide(values=values))
    (name,) = values
    assert caught.value.problems[0].pointer == f"/values/{name}"
    assert not effects
    agent.run(pause.decide(values={"day": "2026-01-06", "amount": 20}))
    assert effects == {"ship 20 on 2026-01-06 to Ann": 1}


async def test_a_stored_edit_that_does_not_fit_is_asked_again() -> None:
    """Whoever performs a background run has not decided: the question is asked again, and the run does not fail."""

    class Stored(JournalStore):
        asks_again = True

    agent = Agent("clerk", "Work.", ScriptedModel([SHIP]), tools=[ship])
    asked = ApprovalId("0" * 32, (), 0)
    decisions = {asked: Decision(values={"day": "05.01.2026"})}
    journal = Journal((), decisions, store=Stored())
    with pytest.raises(ApprovalRequired):
        await execute(agent, agent.task("hi"), run_id="0" * 32, journal=journal)
    assert not effects


def test_the_context_alone_approves() -> None:
    """As for an approval step, to go on without a decision is to approve."""
    agent = clerk([PAY], "done")
    pause = pause_of(agent, "hi")
    assert agent.run(pause.context or {}) == "done"
    assert effects == {"pay 5 to Ann": 1}


def test_a_person_may_change_arguments() -> None:
    """The tool gets them, and the model is told; what does not fit is refused, and can be decided again."""
    agent = clerk([PAY], "done")
    pause = pause_of(agent, "hi")
    for wrong in ({"amount": "much"}, {"sum": 3}):
        with pytest.raises(InputsError) as caught:
            agent.run(pause.decide(values=wrong))
        assert caught.value.problems[0].pointer.startswith("/values/")
    agent.run(pause.decide(values={"amount": 3, "to": "Bob"}))
    assert effects == {"pay 3 to Bob": 1}
    model: Any = agent.model
    told = model.requests[-1].messages[-1].text
    assert '"amount": 3' in told
    assert told.endswith("paid 3")


def test_a_rejection_is_told_to_the_model() -> None:
    """The run goes on without the call, as often as it is rejected."""
    agent = clerk([PAY], [PAY], [PAY], [PAY], [PAY], "well")
    pause = pause_of(agent, "hi")
    for _ in range(4):
        pause = pause_of(agent, pause.decide("reject", "Too much."))
    result = agent.run(pause.decide("reject", "Too much."), trace=True)
    assert result.value == "well"
    assert effects == {}
    model: Any = agent.model
    assert "Too much." in model.requests[-1].messages[-1].text
    failed = [e for e in result.events if e.type == "tool_call_failed"]
    assert failed[-1].error["code"] == "approval_rejected"


def test_a_rule_decides_by_the_arguments() -> None:
    """Calls that the rule lets pass are made at once; wrong arguments are told to the model, not to a person."""
    agent = clerk(
        [ToolCall.of("refund", "1", amount="x")],
        [ToolCall.of("refund", "2", amount=50)],
        [ToolCall.of("refund", "3", amount=500)],
        "done",
    )
    pause = pause_of(agent, "hi")
    assert effects == {"refund 50": 1}
    assert '"amount": 500' in pause.message
    assert agent.run(pause.context or {}) == "done"
    assert effects == {"refund 50": 1, "refund 500": 1}


LIMITS: dict[str, int] = {}


def no_database(amount: int) -> bool:
    raise LookupError("no database")


@pytest.mark.parametrize(
    "rule", [no_database, lambda amount: amount > LIMITS["max"]]
)
@pytest.mark.parametrize("on_error", ["report", "fail"])
def test_a_rule_that_fails_lets_nothing_pass(
    rule: Callable[..., bool], on_error: Literal["report", "fail"]
) -> None:
    """Without an answer of its rule a tool is not called: the model is told, or the run fails."""
    called: list[int] = []

    @tool(approval=rule, on_error=on_error)
    def refund_all(amount: int) -> str:
        called.append(amount)
        return "done"

    model = ScriptedModel(ToolCall.of("refund_all", amount=5), "sorry")
    agent = Agent("clerk", "", model, tools=[refund_all])
    if on_error == "fail":
        with pytest.raises(
            ToolError, match="approval rule of tool 'refund_all'"
        ):
            agent.run("hi")
    else:
        assert agent.run("hi") == "sorry"
        told = model.requests[-1].messages[-1].text
        assert "approval rule of tool 'refund_all'" in told
    assert called == []


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (lambda amnt: amnt > 1, "needs 'amnt'"),
        (lambda amount, ctx: ctx.user != "", "needs 'ctx'"),
    ],
)
def test_a_rule_needs_only_what_there_is(
    rule: Callable[..., bool], message: str
) -> None:
    """A parameter that nothing fills is an error when the tool is made."""

    @tool(approval=rule)
    def refund_all(amount: int) -> str:
        return "done"

    with pytest.raises(ToolDefinitionError, match=message) as caught:
        Agent("clerk", "", "offline/echo", tools=[refund_all])
    assert caught.value.suggestion


def test_two_questions_in_one_turn_are_asked_one_by_one() -> None:
    """Each has its own decision; the calls beside them are made once."""
    calls = [
        ToolCall.of("pay", "1", amount=1),
        ToolCall.of("look", "2", what="x"),
        ToolCall.of("pay", "3", amount=3),
    ]
    agent = clerk(calls, "done")
    pause = pause_of(agent, "hi")
    assert '"amount": 1' in pause.message
    pause = pause_of(agent, pause.decide("reject"))
    assert '"amount": 3' in pause.message
    assert agent.run(pause.decide("approve")) == "done"
    assert effects == {"look x": 1, "pay 3 to Ann": 1}


def components() -> list[Any]:
    return [
        Pipeline("line", [clerk([PAY], "one"), clerk("two", name="b")]),
        Conductor(
            "boss",
            "Lead.",
            ScriptedModel(ToolCall.of("clerk", task="pay"), "two"),
            [clerk([PAY], "one")],
        ),
        Workflow("flow", [clerk([PAY], "one"), clerk("two", name="b")]),
        Workflow(
            "flow",
            [
                ParallelStep([[clerk([PAY], "one")], [clerk("x", name="b")]]),
                TryStep(
                    [clerk([PAY], "two", name="c")],
                    catch=[clerk("never", name="d")],
                ),
                AgentStep(Workflow("inner", [clerk([PAY], "one", name="e")])),
            ],
        ),
    ]


@pytest.mark.parametrize("number", range(4))
def test_any_component_goes_on(number: int) -> None:
    """A call may wait inside teams and workflows; what has been done is not done again."""
    component = components()[number]
    given: Any = {"input": "hi"}
    path = None
    pauses = 0
    result: Any = None
    for _ in range(5):
        options: Any = {}
        if isinstance(component, Workflow):
            options["resume_path"] = path
        try:
            result = component.run(given, trace=True, **options)
            break
        except ApprovalRequired as pause:
            pauses += 1
            given = json.loads(json.dumps(pause.decide()))
            path = pause.resume_path
    assert effects == {"pay 5 to Ann": pauses}
    assert pauses == (3 if number == 3 else 1)
    assert result.usage.tool_calls == pauses + (number == 1)


def test_steps_before_and_after_a_call_that_waits() -> None:
    """A workflow that was resumed at an approval step may pause in a tool after it, and the other way round."""
    flow = Workflow(
        "flow",
        [
            clerk("draft", name="a"),
            ApprovalStep("Go?", "go"),
            clerk([PAY], "paid", name="b"),
            ApprovalStep("Done?", "done"),
            clerk("end", name="c"),
        ],
    )
    given: Any = "hi"
    path = None
    questions: list[str] = []
    for _ in range(3):
        pause = pause_of(flow, given, resume_path=path)
        questions.append(pause.message.split("?")[0][:4])
        given = pause.decide("approve", "")
        path = pause.resume_path
    assert questions == ["Go", "Call", "Done"]
    result = flow.run(given, resume_path=path)
    assert result == {
        "input": "hi",
        "a_output": "draft",
        "b_output": "paid",
        "c_output": "end",
    }
    assert effects == {"pay 5 to Ann": 1}


async def test_a_journal_decides() -> None:
    """In a background run the decisions come from its journal, and the context is not needed."""
    agent = clerk([PAY], "done")
    run_id = "0" * 32
    recorded: list[Any] = []
    with pytest.raises(ApprovalRequired) as caught:
        await execute(
            agent,
            agent.task("hi"),
            run_id=run_id,
            journal=Journal(),
            subscribers=(recorded.append,),
        )
    asked = ApprovalId(run_id, (), 0)
    assert caught.value.asked == asked
    assert caught.value.context is None
    for decision in (Decision("reject"), Decision(values={"amount": 1})):
        agent = clerk("done")
        result = await execute(
            agent,
            agent.task("hi"),
            run_id=run_id,
            journal=Journal(recorded, {asked: decision}),
        )
        assert result.value == "done"
    assert effects == {"pay 1 to Ann": 1}


def test_entries_of_blueprints() -> None:
    """`approval` of an entry survives the round trip, and decides over that of the function."""
    agent = clerk([PAY], "done")
    blueprint = agent.to_blueprint()
    marks = [entry.get("approval") for entry in blueprint["tools"]]
    assert marks == [True, True, None]
    for mark, pauses in ((True, True), (False, False)):
        blueprint["tools"][2]["approval"] = mark
        model = ScriptedModel([ToolCall.of("look", "1", what="x")], "done")
        again = Agent.from_blueprint(
            blueprint, [pay, refund, look], model=model
        )
        assert again.to_blueprint() == blueprint
        if pauses:
            pause_of(again, "hi")
        else:
            assert again.run("hi") == "done"


def test_wrong_marks_and_states_are_refused() -> None:
    """`approval` is a truth value or a function; a paused run that was changed is an error."""
    for wrong in ({"approvl": True}, {"approval": "yes"}):
        options: Any = wrong
        with pytest.raises(ToolDefinitionError):
            tool(**options)
    agent = clerk([PAY], "done")
    pause = pause_of(agent, "hi")
    whole = (pause.context or {})[SAVED_RUN]
    for saved in ("x", {}, {**whole, "asked": {}}, {**whole, "asked": "x"}):
        with pytest.raises(InputError):
            agent.run({SAVED_RUN: saved})


def test_a_conversation_goes_on_after_a_call_that_waited() -> None:
    """The earlier turns are given again with the decision."""
    earlier = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi"},
    ]
    seen: list[int] = []

    async def respond(request: ModelRequest) -> Any:
        seen.append(len(request.messages))
        if request.messages[-1].role == "tool":
            return "done"
        return [PAY]

    agent = Agent("clerk", "Work.", FunctionModel(respond), tools=[pay])
    pause = pause_of(agent, "hi", messages=earlier)
    result = agent.run(pause.decide(), messages=earlier, trace=True)
    assert len(result.messages) == 6
    assert seen == [4, 6]


@pytest.mark.parametrize("kind", ["tool", "function", "pipeline"])
def test_a_pause_below_a_function_goes_on(kind: str) -> None:
    """A person may be asked by an agent that a function runs, or by a workflow in a team; each answer is kept."""

    async def respond(request: ModelRequest) -> Any:
        if request.messages[-1].role == "tool":
            return "paid"
        return PAY

    payer = Agent("payer", "Pay.", FunctionModel(respond), tools=[pay])

    async def ask(question: str) -> str:
        """Ask an agent that pays."""
        return str(await payer.arun(question))

    if kind == "tool":
        model = ScriptedModel(ToolCall.of("ask", question="x"), "done")
        component: Any = Agent("asker", "Ask.", model, tools=[ask])
    elif kind == "function":
        step = FunctionStep(ask, {"question": "{input}"})
        component = Workflow("flow", [step, ApprovalStep("Sure?")])
    else:
        flow = Workflow("flow", [ApprovalStep("Go?"), clerk([PAY], "paid")])
        component = Pipeline("line", [flow, clerk("done", name="last")])
    given: Any = "hi"
    path = None
    asked: list[str] = []
    for _ in range(5):
        options: Any = {}
        if isinstance(component, Workflow):
            options["resume_path"] = path
        try:
            component.run(given, **options)
            break
        except ApprovalRequired as pause:
            asked.append(pause.message[:4])
            given = json.loads(json.dumps(pause.decide()))
            path = pause.resume_path
    assert effects == {"pay 5 to Ann": 1}
    expected = {
        "tool": ["Call"],
        "function": ["Call", "Sure"],
        "pipeline": ["Go?", "Call"],
    }
    assert asked == expected[kind]


@pytest.mark.parametrize("asks_first", [0, 1])
def test_a_branch_that_asks_beside_a_tool_call(asks_first: int) -> None:
    """What the agent of the other branch has done is not done again, whichever question is asked first."""
    agent = clerk([ToolCall.of("look", "0", what="x")], [PAY], "done")
    branches = [[ApprovalStep("A?", "a")], [AgentStep(agent)]]
    if not asks_first:
        branches.reverse()
    flow = Workflow("flow", [ParallelStep(branches)])
    pause = pause_of(flow, "hi")
    pause = pause_of(
        flow, pause.decide("approve"), resume_path=pause.resume_path
    )
    result = flow.run(pause.decide("approve"), resume_path=pause.resume_path)
    assert result["clerk_output"] == "done"
    assert effects == {"look x": 1, "pay 5 to Ann": 1}
    model: Any = agent.model
    assert len(model.requests) == 3


def test_a_step_calls_no_function_that_needs_approval() -> None:
    """A function step does not ask, so its function may not need approval."""
    with pytest.raises(BlueprintValidationError) as caught:
        Workflow("flow", [FunctionStep(pay, {"amount": 7})])
    (problem,) = caught.value.problems
    assert problem.pointer == "/steps/0/function"
    assert "approval" in problem.detail


def test_a_wrong_decision_is_no_failure_of_a_tool() -> None:
    """No step catches it: the person decides again."""
    agent = clerk([PAY], "done")
    flow = Workflow(
        "flow",
        [TryStep([AgentStep(agent)], catch=[AgentStep(agent)], retries=1)],
    )
    pause = pause_of(flow, "hi")
    with pytest.raises(InputsError):
        flow.run(
            pause.decide(values={"amount": "x"}), resume_path=pause.resume_path
        )
    flow.run(pause.decide(), resume_path=pause.resume_path)
    assert effects == {"pay 5 to Ann": 1}


def test_arguments_may_come_back_as_they_are_shown() -> None:
    """A form sends all of them: what it shows is what the tool is called with, and no change."""
    agent = clerk([ToolCall.of("pay", "1", amount="5")], "done")
    pause = pause_of(agent, "hi")
    assert pause.question is not None
    shown = {name: e["value"] for name, e in pause.question.edit.items()}
    assert shown == {"amount": 5, "to": "Ann"}
    assert pause.question.model_arguments == {"amount": "5"}
    agent.run(pause.decide(values=shown))
    assert effects == {"pay 5 to Ann": 1}
    model: Any = agent.model
    assert model.requests[-1].messages[-1].text == "paid 5"
