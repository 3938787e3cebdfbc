"""The context of a run for tools, functions, conditions and rules of approval, and what a caller says of its runs."""

import asyncio
import functools
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from tests.helpers import until
from tests.library.shapes import Json, events, problems_of, says

import podwright
from podwright import (
    Agent,
    AgentStep,
    ApprovalRequired,
    ConditionStep,
    Conductor,
    FunctionStep,
    RunContext,
    RunLimits,
    ScriptedModel,
    Workflow,
    run_attributes,
    tool,
)
from podwright.conditions import holds
from podwright.errors import ConfigurationError, ToolDefinitionError
from podwright.functions.run_context import (
    MAX_IDENTITY,
    MAX_METADATA,
    MAX_METADATA_NAME,
    MAX_METADATA_VALUE,
    context_parameters,
)
from podwright.journal.journal import Journal
from podwright.run.run import execute
from podwright.testing import ToolCall
from podwright.tools.function_tool import to_tool

if TYPE_CHECKING:
    from collections.abc import Mapping as ForCheckers

MINE: Json = {"name": "mine"}
YES = Agent("yes", "Say yes.", says("yes"))


def calls(function: Any, **arguments: Any) -> Agent:
    """An agent whose model calls a tool once."""
    name = to_tool(function).name
    model = ScriptedModel(ToolCall.of(name, **arguments), "done")
    return Agent("caller", "Do.", model, tools=[function])


def first(context: RunContext, query: str) -> str:
    return f"{query} {context.run_id}"


def last(query: str, run: RunContext) -> str:
    return f"{query} {run.run_id}"


def by_name(query: str, *, context: RunContext) -> str:
    return f"{query} {context.run_id}"


def by_position(context: RunContext, /, query: str) -> str:
    return f"{query} {context.run_id}"


def optional(query: str, context: RunContext | None = None) -> str:
    assert context is not None
    return f"{query} {context.run_id}"


def described(query: str, context: Annotated[RunContext, "the run"]) -> str:
    return f"{query} {context.run_id}"


def in_quotes(query: "str", context: "RunContext | None" = None) -> "str":
    assert context is not None
    return f"{query} {context.run_id}"


def twice(context: RunContext, query: str, again: RunContext) -> str:
    assert context is again
    return f"{query} {context.run_id}"


async def later(query: str, context: RunContext) -> str:
    await asyncio.sleep(0)
    return f"{query} {context.run_id}"


def pieces(query: str, context: RunContext) -> Iterator[str]:
    yield f"{query} {context.run_id}"


@tool(timeout=60)
def with_options(context: RunContext, query: str) -> str:
    return f"{query} {context.run_id}"


def with_more(prefix: str, context: RunContext, query: str) -> str:
    assert prefix == "p"
    return f"{query} {context.run_id}"


@functools.wraps(first)
def wrapped(*args: Any, **kwargs: Any) -> str:
    return first(*args, **kwargs)


class Shop:
    def search(self, context: RunContext, query: str) -> str:
        return f"{query} {context.run_id}"

    @classmethod
    def search_all(cls, query: str, context: RunContext) -> str:
        return f"{query} {context.run_id}"

    def __call__(self, query: str, context: RunContext) -> str:
        return f"{query} {context.run_id}"


FUNCTIONS: list[Any] = [
    *(first, last, by_name, by_position, optional, described, in_quotes),
    *(twice, later, pieces, with_options, wrapped),
    functools.partial(with_more, "p"),
    functools.partial(with_more, prefix="p"),
    *(Shop().search, Shop.search_all, Shop()),
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=range(len(FUNCTIONS)))
def test_a_tool_is_given_the_context(function: Any) -> None:
    """In any parameter that is annotated so, which is no part of the schema that the model sees."""
    agent = calls(function, query="tea")
    parameters = agent.to_blueprint()["tools"][0]["schema"]["function"][
        "parameters"
    ]
    assert not {"context", "run", "again"} & set(parameters["properties"])
    trace = agent.run("x", trace=True)
    (finished,) = events(trace, "tool_call_finished")
    assert f"tea {finished.run_id}" in finished.output


def test_a_model_cannot_choose_the_context() -> None:
    """An argument of its name is one that the tool does not have: the model is told, and the tool is not called."""
    agent = calls(first, query="tea", context={"user": "eve"})
    trace = agent.run("x", trace=True)
    (failed,) = events(trace, "tool_call_failed")
    assert failed.error["code"] == "tool_arguments_invalid"
    assert not events(trace, "tool_call_finished")


def test_a_blueprint_cannot_choose_the_context() -> None:
    """Nor can the arguments of a step."""
    step = FunctionStep(first, {"query": "tea", "context": {"user": "eve"}})
    (problem,) = problems_of(lambda: Workflow("flow", [step]))
    assert problem.pointer == "/steps/0/arguments/context"


@pytest.mark.parametrize("function", [first, later, Shop().search])
def test_a_function_of_a_step_is_given_the_context(function: Any) -> None:
    """Of the workflow's run."""
    step = FunctionStep(function, {"query": "tea"}, output="found")
    trace = Workflow("flow", [step]).run("x", trace=True)
    assert trace.value["found"] == f"tea {trace.events[0].run_id}"


def condition_first(run: RunContext, context: Json, least: int = 1) -> bool:
    return run.component == "flow" and context["input"] == "x" and least == 2


def condition_last(context: Json, least: int, run: RunContext) -> bool:
    return condition_first(run, context, least)


async def condition_by_name(
    context: Json, *, run: RunContext, least: int
) -> bool:
    return condition_first(run, context, least)


def condition_for_type_checkers(
    context: "ForCheckers[str, Any]",
    least: int,
    run: "RunContext | None" = None,
) -> bool:
    assert run is not None
    return condition_last(dict(context), least, run)


class Check:
    def __call__(self, context: Json, run: RunContext, least: int = 1) -> bool:
        return condition_last(context, least, run)

    async def method(self, run: RunContext, context: Json, least: int) -> bool:
        return condition_last(context, least, run)


@pytest.mark.parametrize(
    "condition",
    [
        condition_first,
        condition_last,
        condition_by_name,
        Check(),
        Check().method,
    ],
)
def test_a_condition_is_given_the_context(
    condition: Callable[..., Any],
) -> None:
    """Before or after the context of the workflow, and beside its own arguments."""
    step = ConditionStep(
        {"name": "mine", "args": {"least": 2}},
        [FunctionStep(by_name, {"query": "yes"}, output="answer")],
        [FunctionStep(by_name, {"query": "no"}, output="answer")],
    )
    flow = Workflow("flow", [step], conditions={"mine": condition})
    assert flow.run("x")["answer"].startswith("yes")


async def test_a_hint_for_type_checkers_is_known_by_its_text() -> None:
    """A condition may have hints that cannot be evaluated, because what they name is imported for type checkers."""
    mine = {"mine": condition_for_type_checkers}
    flow = Workflow(
        "flow",
        [ConditionStep({"name": "mine", "args": {"least": 2}}, [YES])],
        conditions=mine,
    )
    assert (await flow.arun("x"))["yes_output"] == "yes"


Renamed = RunContext


def takes_functions(make: Callable[[RunContext], str]) -> None: ...


def takes_functions_for_type_checkers(
    context: "ForCheckers[str, Any]", make: "Callable[[RunContext], str]"
) -> None: ...


def takes_unknown_functions(
    make: "Callable[[RunContext], ForCheckers[str, Any]]",
) -> None: ...


def renames(context: "ForCheckers[str, Any]", run: "Renamed") -> None: ...


def unites(
    make: Any, run: "podwright.RunContext | ForCheckers[str, Any] | None"
) -> None: ...


def describes(
    make: Any, run: "Annotated[RunContext | ForCheckers[str, Any], 'the run']"
) -> None: ...


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (takes_functions, []),
        (takes_functions_for_type_checkers, []),
        (takes_unknown_functions, []),
        (renames, ["run"]),
        (unites, ["run"]),
        (describes, ["run"]),
    ],
)
def test_hints_that_cannot_be_evaluated(
    function: Callable[..., Any], expected: list[str]
) -> None:
    """They change nothing for other parameters, and a function that takes a context is none."""
    found = context_parameters(function)
    assert [parameter.name for parameter in found] == expected


def test_a_tool_needs_its_hints() -> None:
    """A tool with such a hint is refused with the way out: its parameters are the schema that the model sees."""

    def search(query: "ForCheckers[str, str]") -> str:
        return query["x"]

    with pytest.raises(ToolDefinitionError) as caught:
        Agent("a", "Do.", says("x"), tools=[search])
    assert "'ForCheckers' is not defined" in caught.value.message
    assert "type checkers" in caught.value.suggestion


def test_another_librarys_context_is_an_argument() -> None:
    """Only this class is filled, not one with the same name."""
    other = type("RunContext", (), {})

    def check(context: Json, run: Any = None) -> bool:
        return run is None

    check.__annotations__["run"] = other
    flow = Workflow(
        "flow", [ConditionStep(MINE, [YES])], conditions={"mine": check}
    )
    assert flow.run("x")["yes_output"] == "yes"


def test_a_rule_of_approval_is_given_the_context() -> None:
    """A rule may ask for whom the run is, and has the key of the call that it is about."""
    keys: set[str | None] = set()

    def is_stranger(amount: int, context: RunContext) -> bool:
        keys.add(context.call_key)
        return context.user != "ann"

    @tool(approval=is_stranger)
    def pay(context: RunContext, amount: int) -> str:
        keys.add(context.call_key)
        return f"paid {amount}"

    with run_attributes(user="ann"):
        trace = calls(pay, amount=5).run("x", trace=True)
    (finished,) = events(trace, "tool_call_finished")
    assert finished.output == "paid 5"
    assert len(keys) == 1
    with run_attributes(user="bob"), pytest.raises(ApprovalRequired):
        calls(pay, amount=5).run("x")


def test_a_context_has_the_key_of_its_call() -> None:
    """The same as `call_key()`; a condition has none."""

    def keys(context: RunContext) -> list[str | None]:
        return [context.call_key, podwright.call_key()]

    def check(context: Json, run: RunContext) -> bool:
        return run.call_key is None

    step = FunctionStep(keys, output="keys")
    flow = Workflow(
        "flow",
        [step, ConditionStep(MINE, [YES])],
        conditions={"mine": check},
    )
    context = flow.run("x", trace=True).data
    assert context["yes_output"] == "yes"
    own, current = context["keys"]
    assert own is not None
    assert own == current


class Records:
    """What functions were told, by the place where they were."""

    def __init__(self) -> None:
        self.contexts: dict[str, RunContext] = {}

    def look(self, context: RunContext) -> str:
        self.contexts["tool"] = context
        return "seen"

    def step(self, context: RunContext) -> str:
        self.contexts["step"] = context
        return "done"

    def check(self, context: Json, run: RunContext) -> bool:
        self.contexts["condition"] = run
        return True


def test_each_nested_run_has_its_own_context() -> None:
    """An agent in a workflow in a conductor: each function is told of the innermost run, and all for whom it is."""
    records = Records()
    agent = Agent(
        "inner",
        "Do.",
        ScriptedModel(ToolCall.of("look"), "done"),
        tools=[records.look],
    )
    flow = Workflow(
        "flow",
        [
            FunctionStep(records.step),
            ConditionStep(MINE, [AgentStep(agent)]),
        ],
        conditions={"mine": records.check},
    )
    model = ScriptedModel(ToolCall.of("flow", task="x"), "done")
    conductor = Conductor("outer", "Lead.", model, [flow])
    with run_attributes(user="ann", metadata={"tenant": "acme"}):
        trace = conductor.run("x", trace=True)
    runs = {event.component: event.run_id for event in trace.events}
    told = {
        place: (context.component, context.run_id)
        for place, context in records.contexts.items()
    }
    assert told == {
        "tool": ("inner", runs["inner"]),
        "step": ("flow", runs["flow"]),
        "condition": ("flow", runs["flow"]),
    }
    for context in records.contexts.values():
        assert (context.user, context.session) == ("ann", "")
        assert context.metadata == {"tenant": "acme"}


def user_of(context: RunContext) -> str:
    return f"{context.user}/{context.session}/{dict(context.metadata)}"


def told() -> str:
    """What a function of a run that begins here is told of its caller."""
    flow = Workflow("flow", [FunctionStep(user_of, output="told")])
    return flow.run("x")["told"]


def test_attributes_may_be_nested() -> None:
    """What an inner context does not say stays, its metadata is added, and all of it ends with the context."""
    assert told() == "//{}"
    with run_attributes(
        user="ann", session="s1", metadata={"a": "1", "b": "2"}
    ):
        with run_attributes(user="", metadata={"b": "3"}):
            assert told() == "/s1/{'a': '1', 'b': '3'}"
        assert told() == "ann/s1/{'a': '1', 'b': '2'}"
        with pytest.raises(RuntimeError), run_attributes(session="s2"):
            raise RuntimeError
        assert told() == "ann/s1/{'a': '1', 'b': '2'}"
    assert told() == "//{}"


async def test_each_task_and_thread_has_its_own_attributes() -> None:
    """Runs at once do not see each other's; threads of `asyncio.to_thread` have those of their caller."""

    async def run_for(user: str) -> str:
        with run_attributes(user=user):
            await asyncio.sleep(0)
            return await asyncio.to_thread(told)

    users = ("ann", "bob", "eve")
    found = await asyncio.gather(*map(run_for, users))
    assert found == [f"{user}//{{}}" for user in users]


async def test_a_stream_has_the_attributes_of_its_reader() -> None:
    """As of the task that asks for its first event."""
    agent = calls(user_of)
    with run_attributes(user="ann"):
        found = [event async for event in agent.astream("x")]
    (finished,) = [
        event for event in found if event.type == "tool_call_finished"
    ]
    assert finished.output == "ann//{}"


def test_a_tool_may_say_more_of_the_runs_in_it() -> None:
    """A run that a tool starts is told what the tool says besides what its caller said."""
    inner = calls(user_of)

    def ask(context: RunContext) -> str:
        with run_attributes(session="s2"):
            inner.run("x")
        return context.session

    with run_attributes(user="ann", session="s1"):
        trace = calls(ask).run("x", trace=True)
    outputs = [event.output for event in events(trace, "tool_call_finished")]
    assert outputs == ["ann/s2/{}", "s1"]


def test_a_function_changes_nothing_for_others() -> None:
    """Each has metadata of its own."""

    def change(context: RunContext) -> str:
        metadata: Any = context.metadata
        metadata["tenant"] = "evil"
        return "changed"

    flow = Workflow(
        "flow", [FunctionStep(change), FunctionStep(user_of, output="told")]
    )
    with run_attributes(metadata={"tenant": "acme"}):
        assert flow.run("x")["told"] == "//{'tenant': 'acme'}"


LARGEST = {
    f"{number:0>{MAX_METADATA_NAME}}": "x" * MAX_METADATA_VALUE
    for number in range(MAX_METADATA)
}
INVALID: list[tuple[dict[str, Any], str]] = [
    ({"metadata": {**LARGEST, "one more": "x"}}, "17 entries"),
    ({"metadata": {"x" * (MAX_METADATA_NAME + 1): "x"}}, "64 characters"),
    ({"metadata": {"name": "x" * (MAX_METADATA_VALUE + 1)}}, "512 characters"),
    ({"metadata": {"name": 7}}, "'name' in the metadata is not a text"),
    ({"metadata": {7: "x"}}, "7 in the metadata is not a text"),
    ({"user": "x" * (MAX_IDENTITY + 1)}, "the user"),
    ({"session": "x" * (MAX_IDENTITY + 1)}, "the session"),
]


def test_the_largest_metadata_is_taken() -> None:
    """The limits are those of OpenAI's interface."""
    with run_attributes(metadata=LARGEST) as attributes:
        assert attributes.metadata == LARGEST


@pytest.mark.parametrize(("attributes", "message"), INVALID)
def test_attributes_are_bounded(
    attributes: dict[str, Any], message: str
) -> None:
    """The error says which text is wrong, and why."""
    with (
        pytest.raises(ConfigurationError) as caught,
        run_attributes(**attributes),
    ):
        pass
    assert message in caught.value.message


def test_nested_metadata_is_bounded_together() -> None:
    """A run has no more entries than one context may have."""
    with (
        run_attributes(metadata=LARGEST),
        pytest.raises(ConfigurationError),
        run_attributes(metadata={"one more": "x"}),
    ):
        pass


@pytest.mark.parametrize(
    ("timeout", "wall_time", "expected"),
    [
        (None, None, None),
        (None, 500.0, 500.0),
        (50.0, 500.0, 50.0),
        (500.0, 50.0, 50.0),
        (50.0, None, 50.0),
        (None, 1e15, None),
    ],
)
def test_a_deadline(
    timeout: float | None, wall_time: float | None, expected: float | None
) -> None:
    """The first of the time limit of the run and the time-out of the tool, or none."""
    found: list[RunContext] = []

    def look(context: RunContext) -> str:
        found.append(context)
        return "x"

    if timeout is not None:
        tool(timeout=timeout)(look)
    agent = calls(look)
    asyncio.run(
        execute(agent, agent.task("x"), limits=RunLimits(wall_time=wall_time))
    )
    (context,) = found
    if expected is None:
        assert (context.deadline, context.time_left) == (None, None)
        return
    left = context.time_left
    assert left is not None
    assert 0 < left <= expected


class Blocking:
    """A blocking tool that ends only once nobody waits for it."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.ended = threading.Event()
        self.was_cancelled = False
        """Whether nobody waited for it when it began."""

    def block(self, context: RunContext) -> str:
        self.was_cancelled = context.is_cancelled
        self.begun.set()
        until(lambda: context.is_cancelled)
        self.ended.set()
        return "late"


async def test_a_blocking_function_learns_of_its_time_out() -> None:
    """The run goes on, and the thread that nobody waits for can end."""
    tools = Blocking()

    @tool(timeout=0.05)
    def block(context: RunContext) -> str:
        return tools.block(context)

    assert await calls(block).arun("x") == "done"
    assert await asyncio.to_thread(tools.ended.wait, 30)


async def test_a_blocking_function_learns_of_a_cancellation() -> None:
    """Of its run, though a thread cannot be cancelled."""
    tools = Blocking()
    run = asyncio.create_task(calls(tools.block).arun("x"))
    assert await asyncio.to_thread(tools.begun.wait, 30)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert await asyncio.to_thread(tools.ended.wait, 30)
    assert not tools.was_cancelled


def test_a_context_is_cancelled_after_its_call() -> None:
    """A context that a function has kept tells that its call is over."""
    records = Records()
    calls(records.look).run("x")
    assert records.contexts["tool"].is_cancelled


def test_lines_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """They have the id and the component of the run, beside the fields of the call."""

    def look(context: RunContext) -> str:
        context.log.warning("looking for %s", "tea", extra={"shelf": 7})
        return context.run_id

    trace = calls(look).run("x", trace=True)
    (record,) = [
        record
        for record in caplog.records
        if record.name == "podwright.functions"
    ]
    assert record.getMessage() == "looking for tea"
    fields = vars(record)
    assert fields["run_id"] == trace.events[0].run_id
    assert fields["component"] == "caller"
    assert fields["shelf"] == 7


async def test_the_attempt_is_that_of_the_journal() -> None:
    """1, unless a background run is at a later one."""

    def attempt(context: RunContext) -> int:
        return context.attempt

    flow = Workflow("flow", [FunctionStep(attempt, output="attempt")])
    assert (await flow.arun("x", trace=True)).data["attempt"] == 1
    result = await execute(flow, flow.task("x"), journal=Journal(attempt=3))
    assert result.data["attempt"] == 3


async def test_a_function_can_be_called_alone() -> None:
    """In a test, with a context that the test makes; nothing has to be known of a run."""
    assert user_of(RunContext(user="ann")) == "ann//{}"
    context = RunContext()
    context.log.warning("x")
    context.report_usage("openai/gpt-5", input_tokens=1)
    assert (context.attempt, context.is_cancelled) == (1, False)
    assert (context.deadline, context.time_left, context.call_key) == (
        None,
        None,
        None,
    )

    def check(context: Json, run: RunContext) -> bool:
        return run.run_id == ""

    assert await holds(MINE, {}, {"mine": check})


async def test_the_object_of_a_method_is_not_kept() -> None:
    """What is known of the parameters of methods does not hold their objects."""
    check = Check()
    alive = weakref.ref(check)
    mine = {"name": "mine", "args": {"least": 2}}
    assert not await holds(mine, {}, {"mine": check.method})
    del check
    gc.collect()
    assert alive() is None
