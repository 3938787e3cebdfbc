"""Functions before and after the work of agents, conductors and pipelines; what they refuse, and ask a model again."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.library.shapes import events

import podwright
from podwright import (
    Agent,
    AgentStep,
    BlueprintValidationError,
    Conductor,
    FunctionAgent,
    FunctionModel,
    FunctionStep,
    Pipeline,
    RunContext,
    ScriptedModel,
    TryStep,
    Workflow,
    tool,
)
from podwright.blueprints import problems
from podwright.blueprints.diff import blueprint_changes
from podwright.blueprints.flowchart import mermaid
from podwright.errors import (
    ConfigurationError,
    ContextError,
    ModelRetry,
    ModelUnavailableError,
    OutputError,
    Refusal,
    ToolDefinitionError,
    ToolError,
)
from podwright.events import Event, adapter
from podwright.journal.journal import Journal
from podwright.run.run import execute
from podwright.testing import ModelRequest, ModelResponse, ToolCall

RUN = "0" * 32
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlE"
    "QVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Order(BaseModel):
    number: int


def fetch(input: str) -> dict[str, Any]:
    """The customer whom an input is about."""
    return {"customer": "Ann", "input": input.strip()}


def guard(input: str, customer: str = "nobody") -> None:
    """Refuse what is not about orders."""
    if "poem" in input:
        raise Refusal("off_topic", f"Only orders, {customer}.")


def shout(output: str) -> dict[str, str]:
    """Another answer."""
    return {"output": output.upper()}


def check(output: str) -> None:
    """Ask for an answer with a number."""
    if not any(letter.isdigit() for letter in output):
        raise ModelRetry("Name the order by its number.")


FUNCTIONS = {
    function.__name__: function for function in (fetch, guard, shout, check)
}


@contextlib.contextmanager
def subscribed(seen: list[Event]) -> Iterator[None]:
    unsubscribe = podwright.subscribe(seen.append)
    try:
        yield
    finally:
        unsubscribe()


def pointers_of(source: Any, **options: Any) -> list[str]:
    """The places of the problems of a blueprint or a folder."""
    try:
        podwright.load(source, **options)
    except BlueprintValidationError as error:
        return [problem.pointer for problem in error.problems]
    return []


def texts(request: ModelRequest) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in request.messages]


# --- Before -----------------------------------------------------------------------------------------------------------


def test_values_before_the_work() -> None:
    """Templates and later functions read them; one named like an input replaces it; others the model is not sent."""

    def know(customer: str, language: str) -> dict[str, str]:
        return {"greeting": f"Dear {customer}", "language": language.title()}

    model = ScriptedModel("yes")
    agent = Agent("clerk", "Write: {greeting}.", model, before=[fetch, know])
    agent.run({"input": " Where? ", "language": "latin"})
    assert texts(model.requests[0]) == [
        ("system", "Write: Dear Ann."),
        ("user", "## input\nWhere?\n\n## language\nLatin"),
    ]


def test_the_last_message_of_a_conversation() -> None:
    """It is the `input`; functions are told the turns before, and the conversation has what the model was sent."""
    told: list[RunContext] = []

    def redact(input: str, context: RunContext) -> dict[str, str]:
        told.append(context)
        context.state["seen"] = True
        context.report("redacted")
        return {"input": input.replace("42", "…")}

    model = ScriptedModel("one", "two")
    agent = Agent("clerk", "Help.", model, before=redact)
    first = agent.run("I am 42.", trace=True)
    assert [event.text for event in events(first, "progress")] == ["redacted"]
    last = agent.run("42!", trace=True, messages=first.messages)
    contents = [message["content"] for message in last.messages]
    assert contents == ["I am ….", "one", "…!", "two"]
    assert told[1].inputs == {"input": "42!"}
    assert list(told[1].messages) == first.messages
    assert told[1].call_key


def test_an_image_stays_beside_another_text() -> None:
    """A function gets and replaces the text of an input with parts."""
    model = ScriptedModel("yes")
    image: Any = {"type": "image_url", "image_url": {"url": PIXEL}}
    agent = Agent("clerk", "Help.", model, before=fetch)
    agent.run([{"type": "text", "text": " What? "}, image])
    (message,) = model.requests[0].messages[1:]
    parts: Any = message.content
    assert [part["type"] for part in parts] == ["text", "image_url"]
    assert message.text == "What?"


def test_values_of_the_workflow_around() -> None:
    """An agent in a step has the context of its workflow in its functions too."""

    def know(draft_output: str) -> dict[str, str]:
        return {"length": str(len(draft_output))}

    model = ScriptedModel("abc", "yes")
    flow = Workflow(
        "flow",
        [
            Agent("draft", "Draft.", model),
            Agent("judge", "It has {length} letters.", model, before=know),
        ],
    )
    flow.run("x")
    assert model.requests[1].messages[0].text == "It has 3 letters."


def test_members_read_the_values_too() -> None:
    """Those of a conductor or a pipeline are values of its members, as its named inputs are."""
    model = ScriptedModel(ToolCall.of("writer", task="a letter"), "abc", "done")
    skill = Agent("writer", "Write to {customer}.", model)
    lead = Conductor("lead", "Lead.", model, [skill], before=fetch)
    assert lead.run(" x ") == "done"
    assert model.requests[1].messages[0].text == "Write to Ann."
    model = ScriptedModel("one", "two")
    line = Pipeline(
        "line",
        [
            Agent("first", "Write to {customer}.", model),
            Agent("second", "Ask {boss}.", model, before=[boss]),
        ],
        before=fetch,
    )
    assert line.run(" x ") == "two"
    assert [texts(request)[0][1] for request in model.requests] == [
        "Write to Ann.",
        "Ask Eve.",
    ]
    assert texts(model.requests[0])[1] == ("user", "x")


def boss() -> dict[str, str]:
    """Who decides."""
    return {"boss": "Eve"}


# --- After ------------------------------------------------------------------------------------------------------------


def test_another_answer() -> None:
    """It is the value, the event, the output of a step and the message of the conversation; None leaves the answer."""

    def see(output: str, customer: str) -> None:
        assert (output, customer) == ("yes", "Ann")

    agent = Agent(
        "clerk",
        "Help.",
        FunctionModel(lambda _: "yes"),
        before=fetch,
        after=[see, shout],
    )
    result = agent.run("x", trace=True)
    assert (result.value, result.data) == ("YES", None)
    assert result.messages[-1] == {"role": "assistant", "content": "YES"}
    assert result.events[-1].value == "YES"
    context = Workflow("flow", [agent]).run("x")
    assert context["clerk_output"] == "YES"


def test_a_structured_answer() -> None:
    """A function gets it as its type hint says, and what it returns fits the response model."""

    def next_one(output: Order) -> dict[str, Any]:
        return {"output": Order(number=output.number + 1)}

    agent = Agent(
        "clerk",
        "Help.",
        FunctionModel(lambda _: '{"number": 7}'),
        response_model=Order,
        after=[next_one, next_one],
    )
    result = agent.run("x", trace=True)
    assert (result.value, result.data) == (Order(number=9), {"number": 9})
    assert json.loads(result.messages[-1]["content"]) == {"number": 9}
    line = Pipeline("line", [agent], after=next_one)
    result = line.run("x", trace=True)
    assert result.data == {"number": 10}
    assert json.loads(result.messages[-1]["content"]) == {"number": 10}


@pytest.mark.parametrize("kind", ["agent", "conductor", "pipeline"])
@pytest.mark.parametrize("output", [{"number": "many"}, 7, None])
def test_an_answer_that_does_not_fit(kind: str, output: Any) -> None:
    """It is an error of the function: neither the model nor the caller gets it."""

    def wrong() -> dict[str, Any]:
        return {"output": output}

    for response_model in (Order, None):
        component = _component(kind, '{"number": 1}', response_model, wrong)
        with pytest.raises(ToolError, match="does not fit"):
            component.run("x")


def _component(
    kind: str, answer: str, response_model: Any, after: Any
) -> Agent | Conductor | Pipeline:
    model = FunctionModel(lambda _: answer)
    options: Any = {}
    if response_model is not None:
        options["response_model"] = response_model
    agent = Agent("clerk", "Help.", model, **options)
    if kind == "pipeline":
        return Pipeline("line", [agent], after=after)
    if kind == "conductor":
        skill = Agent("writer", "Write.", model)
        options["after"] = after
        return Conductor("lead", "Lead.", model, [skill], **options)
    return Agent("clerk", "Help.", model, after=after, **options)


@pytest.mark.parametrize("kind", ["agent", "conductor", "pipeline"])
def test_no_named_values(kind: str) -> None:
    """A function that returns something else has failed, and the error says which."""

    def wrong() -> str:
        return "YES"

    with pytest.raises(ToolError, match="'wrong' returned the string"):
        _component(kind, "yes", None, wrong).run("x")


def test_a_value_is_missing() -> None:
    """The caller is told which, before the model is called."""

    def know(customer: str) -> None:
        raise AssertionError

    model = ScriptedModel()
    agent = Agent("clerk", "Help.", model, before=know)
    with pytest.raises(ContextError, match="'know' of 'clerk' needs 'customer'") as caught:  # fmt: skip
        agent.run({"custmer": "Ann"})
    assert "Did you mean 'custmer'" in str(caught.value)
    assert not model.requests


def test_tokens_stream_as_they_come() -> None:
    """They are what the model wrote; the end of the run has the answer of the function."""
    agent = Agent("clerk", "Help.", ScriptedModel("yes it is"), after=shout)
    seen: list[Any] = list(agent.stream("x"))
    tokens = [event.text for event in seen if event.type == "token"]
    assert "".join(tokens) == "yes it is"
    assert seen[-1].value == "YES IT IS"


# --- Another answer of the model --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["agent", "conductor"])
def test_the_model_is_asked_again(kind: str) -> None:
    """It reads the sentence; the conversation has the accepted answer only."""
    model = ScriptedModel("soon", "order 7")
    skill = Agent("writer", "Write.", model)
    component: Agent | Conductor = Agent("x", "Help.", model, after=check)
    if kind == "conductor":
        component = Conductor("x", "Help.", model, [skill], after=check)
    result = component.run("Which?", trace=True)
    assert result.value == "order 7"
    assert texts(model.requests[1])[1:] == [
        ("user", "Which?"),
        ("assistant", "soon"),
        ("user", "Name the order by its number."),
    ]
    contents = [message["content"] for message in result.messages]
    assert contents == ["Which?", "order 7"]
    (failed,) = events(result, "tool_call_failed")
    assert failed.report == "Name the order by its number."


def test_retries_and_misfits_are_one_number() -> None:
    """`max_corrections` counts answers that do not fit the schema and those that functions do not accept."""

    def even(output: Order) -> None:
        if output.number % 2:
            raise ModelRetry("The number must be even.")

    def clerk(*answers: str, **options: Any) -> Agent:
        model = ScriptedModel(*answers)
        return Agent(
            "clerk", "", model, response_model=Order, after=even, **options
        )

    odd, wrong, right = '{"number": 1}', '{"number": "?"}', '{"number": 2}'
    assert clerk(odd, wrong, right).run("x") == Order(number=2)
    for answers in ([odd, wrong, odd], [wrong, odd, wrong]):
        with pytest.raises(OutputError, match="max_corrections=2"):
            clerk(*answers, right).run("x")
    with pytest.raises(OutputError, match=r"max_corrections=0.*must be even"):
        clerk(odd, max_corrections=0).run("x")
    with pytest.raises(OutputError, match=r"max_loops=1.*must be even"):
        clerk(odd, max_loops=1).run("x")


def test_a_result_at_which_the_run_stops() -> None:
    """It passes the functions as each answer does."""

    def look(word: str) -> str:
        return word

    model = ScriptedModel(ToolCall.of("look", word="soon"), "order 7")
    agent = Agent("x", "", model, tools=[look], stop_at="look", after=check)
    assert agent.run("x") == "order 7"


def test_nobody_can_answer_again() -> None:
    """A pipeline has no model of its own, and before the work there is no answer."""

    def again() -> None:
        raise ModelRetry("Again.")

    agent = Agent("clerk", "", FunctionModel(lambda _: "yes"))
    for component in (
        Pipeline("line", [agent], after=again),
        Pipeline("line", [agent], before=again),
        Agent("clerk", "", FunctionModel(lambda _: "yes"), before=again),
    ):
        with pytest.raises(ConfigurationError, match="'again' asks"):
            component.run("x")


def test_a_plan_is_no_answer() -> None:
    """The functions after the work are not asked about it."""
    plan = {"steps": [{"skill": "writer", "task": "write"}]}
    model = ScriptedModel(plan, "order 7")
    skill = Agent("writer", "Write.", model)
    lead = Conductor(
        "lead", "Lead.", model, [skill], planning=True, after=[check, shout]
    )
    result = lead.run("x", trace=True)
    assert result.value == "ORDER 7"
    assert len(events(result, "tool_call_finished")) == 2


def test_a_tool_tells_the_model() -> None:
    """`ModelRetry` of a tool is what the model is told of its call."""

    def look(word: str) -> str:
        raise ModelRetry("Look for a noun.")

    model = ScriptedModel(ToolCall.of("look", word="x"), "done")
    assert Agent("x", "", model, tools=[look]).run("x") == "done"
    assert model.requests[1].messages[-1].text == "Error: Look for a noun."


# --- Refusals ---------------------------------------------------------------------------------------------------------


def _refuse(input: str = "") -> str:
    raise Refusal("off_topic", "Only orders.")


def refusing_components() -> dict[str, tuple[Any, int]]:
    """Components that refuse, with the number of model calls before."""
    model = FunctionModel(_ask_for_tools)
    agent = Agent("clerk", "", model, tools=[refuse])
    before = Agent("clerk", "", model, before=refuse)
    after = Agent("clerk", "", FunctionModel(lambda _: "yes"), after=refuse)

    async def ask(word: str) -> str:
        return await before.arun(word)

    return {
        "before": (before, 0),
        "after": (after, 1),
        "tool": (agent, 1),
        "tool that runs it": (Agent("x", "", model, tools=[ask]), 1),
        "skill": (Conductor("lead", "", model, [before]), 1),
        "pipeline": (Pipeline("line", [after], before=refuse), 0),
        "end of a pipeline": (
            Pipeline("line", [FunctionAgent("a", _echo)], after=refuse),
            0,
        ),
        "member": (Pipeline("line", [after]), 1),
        "step": (Workflow("flow", [FunctionStep(refuse)]), 0),
        "agent step": (Workflow("flow", [before]), 0),
        "function agent": (FunctionAgent("x", _refuse), 0),
        "parallel": (Workflow("flow", [podwright.ParallelStep([[before]])]), 0),
    }


def refuse() -> None:
    """Refuse."""
    _refuse()


def _echo(task: str) -> str:
    return task


def _ask_for_tools(request: ModelRequest) -> Any:
    name = request.tools[0]["function"]["name"]
    arguments = {"ask": {"word": "x"}, "clerk": {"task": "x"}}
    return [ToolCall.of(name, **arguments.get(name, {}))]


@pytest.mark.parametrize("place", refusing_components())
def test_a_refusal(place: str) -> None:
    """It ends the run with its code and words, wherever it is raised; no model is told, and nothing is tried again."""
    component, calls = refusing_components()[place]
    seen: list[Event] = []
    with pytest.raises(Refusal) as caught, subscribed(seen):
        component.run("x")
    error = caught.value
    assert (error.code, error.message) == ("off_topic", "Only orders.")
    assert error.run_id
    failed = seen[-1]
    assert failed.type == "run_failed"
    assert failed.is_refusal
    assert failed.error["refusal"] == "Only orders."
    kinds = [event.type for event in seen]
    assert kinds.count("model_call_started") == calls
    outcomes = {event.outcome for event in seen if event.type == "step_finished"}  # fmt: skip
    assert "failed" not in outcomes


def test_no_fallback_is_asked() -> None:
    """The functions are no part of a model call: a refusal is the same whichever model answered."""
    calls: list[str] = []

    def answer(request: ModelRequest) -> str:
        calls.append(request.model)
        if request.model == "test/first":
            raise ModelUnavailableError("gone")
        return "yes"

    podwright.register_provider(
        "test", lambda name, _: FunctionModel(answer, name=f"test/{name}")
    )
    agent = Agent("x", "", "test/first", fallback=["test/second"], after=refuse)
    for _ in range(2):
        with pytest.raises(Refusal):
            agent.run("x")
    assert calls.count("test/second") == 2


@pytest.mark.parametrize(
    ("on", "caught"),
    [
        ([], True),
        (["off_topic"], True),
        (["refused"], True),
        (["output_invalid"], False),
    ],
)
def test_a_try_step(on: list[str], caught: bool) -> None:
    """It catches refusals by their own code, or all; it does not repeat them, in a later attempt of the run either."""
    calls: list[str] = []

    def refuse_once_more() -> None:
        calls.append("")
        _refuse()

    def tell(code: str) -> str:
        return code

    agent = Agent("clerk", "", ScriptedModel(), before=refuse_once_more)
    step = TryStep(
        [AgentStep(agent, "ask")],
        catch=[FunctionStep(tell, {"code": "{error.code}: {error.message}"})],
        retries=3,
        on=on,
    )
    flow = Workflow("flow", [step])
    if not caught:
        with pytest.raises(Refusal):
            flow.run("x")
    else:
        context = flow.run("x")
        assert context["tell_output"] == "off_topic: Only orders."
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("Off topic", "No."),
        ("x" * 65, "No."),
        ("limit_exceeded", "No."),
        ("model_x", "No."),
        ("off_topic", " "),
    ],
)
def test_refusals_that_nobody_could_name(code: str, words: str) -> None:
    """A code is a short name, and not one of Podwright; there are words for the user."""
    with pytest.raises(ValueError, match=r"code|words"):
        Refusal(code, words)


def test_words() -> None:
    """A refusal can be copied, as for another process; a request for another answer has a sentence."""
    error = copy.deepcopy(Refusal("off_topic", "No."))
    assert (error.code, error.message) == ("off_topic", "No.")
    with pytest.raises(ValueError, match="sentence"):
        ModelRetry("")


# --- Blueprints -------------------------------------------------------------------------------------------------------

HOOKS: dict[str, Any] = {"before": ["fetch", "guard"], "after": "shout"}
MEMBER = {"type": "Agent", "name": "writer", "instructions": "Write.", **HOOKS}
BLUEPRINTS: dict[str, dict[str, Any]] = {
    "agent": {
        "name": "clerk",
        "instructions": "Help {customer}.",
        "config": {"model": "offline/echo"},
        **HOOKS,
    },
    "conductor": {
        "type": "Conductor",
        "name": "lead",
        "instructions": "Lead.",
        "skills": [MEMBER],
        "config": {"model": "offline/echo"},
        **HOOKS,
    },
    "pipeline": {
        "type": "Pipeline",
        "name": "line",
        "steps": [MEMBER],
        "config": {"model": "offline/echo"},
        **HOOKS,
    },
}


@pytest.mark.parametrize("kind", BLUEPRINTS)
def test_a_blueprint_has_their_names(kind: str) -> None:
    """It comes back as it was, from blueprints and from Python, and the component does what it did."""
    blueprint = BLUEPRINTS[kind]
    component = podwright.load(blueprint, functions=FUNCTIONS)
    assert component.to_blueprint() == blueprint
    again = type(component).from_blueprint(blueprint, functions=FUNCTIONS)
    assert again.run(" order 7 ") == component.run(" order 7 ")
    assert str(component.run("a")).isupper()
    with pytest.raises(Refusal):
        component.run("a poem")
    model = ScriptedModel()
    agent = Agent("x", "", model, before=fetch, after=[shout, check])
    assert agent.to_blueprint()["before"] == "fetch"
    assert agent.to_blueprint()["after"] == ["shout", "check"]
    assert "before" not in Agent("x", "", model).to_blueprint()


@pytest.mark.parametrize("kind", BLUEPRINTS)
def test_a_function_is_missing(kind: str) -> None:
    """Each is a problem with its place; without validation it fails when it is needed."""
    blueprint = BLUEPRINTS[kind]
    given = {"guard": guard, "shoud": shout}
    with pytest.raises(BlueprintValidationError) as caught:
        podwright.load(blueprint, functions=given)
    found = {problem.pointer: problem for problem in caught.value.problems}
    own = {"/before/0", "/after"}
    inner = {
        f"/{key}/0{place}"
        for key in ("skills", "steps")
        if key in blueprint
        for place in own
    }
    assert found.keys() == own | inner
    assert "shoud" in found["/after"].suggestion
    loose = podwright.load(blueprint, functions=given, validate=False)
    with pytest.raises(ConfigurationError, match="'fetch'"):
        loose.run("x")


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        ([], "/before"),
        ([""], "/before/0"),
        ("a b", "/before"),
        ([{"name": "fetch"}], "/before/0"),
        (["fetch"] * 17, "/before"),
        ({"fetch": "x"}, "/before"),
        (None, "/before"),
    ],
)
def test_names_that_are_none(value: Any, pointer: str) -> None:
    """Nothing but a name of a function, or a short list of names."""
    blueprint = {**BLUEPRINTS["agent"], "before": value}
    pointers = {problem.pointer for problem in problems(blueprint)}
    assert {place.removesuffix("/0") for place in pointers} == {
        pointer.removesuffix("/0")
    }
    with pytest.raises(BlueprintValidationError):
        Agent.from_blueprint(blueprint, functions=FUNCTIONS)


def test_functions_that_cannot_be_called_here() -> None:
    """One that needs a person's approval, and one that has the name of another tool."""

    @tool(approval=True)
    def pay() -> None:
        raise AssertionError

    def other() -> str:
        return ""

    other.__name__ = "fetch"
    model = ScriptedModel()
    for make in (
        lambda: Agent("x", "", model, tools=[other], before=fetch),
        lambda: Agent("x", "", model, before=[fetch, other]),
        lambda: Conductor(
            "x", "", model, [Agent("a", "", model)], tools=[other], after=fetch
        ),
    ):
        with pytest.raises(ToolDefinitionError, match="called 'fetch'"):
            make()
    same = Agent("x", "", model, tools=[fetch], before=fetch)
    with pytest.raises(BlueprintValidationError) as caught:
        Agent.from_blueprint(
            {**same.to_blueprint(), "after": "pay"},
            tools=[other],
            functions={"fetch": fetch, "pay": pay},
            validate=True,
        )
    assert {"/before", "/after"} <= {
        problem.pointer for problem in caught.value.problems
    }


def test_kinds_without_a_model_between() -> None:
    """Workflows and agents that are functions have steps and code for this: the options are unknown there."""
    before: Any = {"before": fetch}
    after: Any = {"after": shout}
    for make in (
        lambda: FunctionAgent("x", str, **before),
        lambda: Workflow("x", [FunctionStep(boss)], **after),
    ):
        with pytest.raises(ConfigurationError, match=r"before|after"):
            make()


def test_names_in_templates() -> None:
    """Functions before the work may add any name; without them, one that nothing fills is a problem."""
    inputs = {"topic": {"type": "string"}}

    def found(blueprint: dict[str, Any]) -> list[str]:
        return pointers_of(blueprint, functions=FUNCTIONS)

    plain = {**BLUEPRINTS["agent"], "inputs": inputs}
    assert found(plain) == []
    del plain["before"]
    assert found(plain) == ["/instructions"]
    line = {
        "type": "Pipeline",
        "name": "line",
        "inputs": inputs,
        "config": {"model": "offline/echo"},
        "steps": [
            {**MEMBER, "instructions": "{customer}"},
            {"type": "Agent", "name": "b", "instructions": "{customer}"},
        ],
    }
    assert found(line) == ["/steps/1/instructions"]
    assert found({**line, "before": "fetch"}) == []
    flow = Workflow(
        "flow",
        [Agent("clerk", "Help {customer}.", "offline/echo", before=fetch)],
        inputs=inputs,
    )
    assert flow.to_blueprint()["inputs"] == inputs


def test_differences() -> None:
    """A new function has to be supplied, which is breaking; a name is the same as a list with it."""

    def changes(old: Any, new: Any) -> list[str]:
        agent = BLUEPRINTS["agent"]
        plain = {key: agent[key] for key in ("name", "instructions", "config")}
        sides = [{**plain, **({"before": each} if each else {})} for each in (old, new)]  # fmt: skip
        return [str(change) for change in blueprint_changes(*sides)]

    assert changes("fetch", ["fetch"]) == []
    assert changes(None, "fetch") == ["breaking: /before/fetch added"]
    assert changes(["fetch"], ["fetch", "guard"]) == ["breaking: /before/guard added"]  # fmt: skip
    assert changes(["fetch", "guard"], "guard") == ["compatible: /before/fetch removed"]  # fmt: skip
    assert changes("fetch", None) == ["compatible: /before/fetch removed"]
    assert changes(["fetch", "guard"], ["guard", "fetch"]) == ["compatible: /before changed"]  # fmt: skip
    old, new = (
        {**BLUEPRINTS["pipeline"], "steps": [{**MEMBER, "after": name}]}
        for name in ("shout", "check")
    )
    assert [str(change) for change in blueprint_changes(old, new)] == [
        "compatible: /steps/writer/after/shout removed",
        "breaking: /steps/writer/after/check added",
    ]


def test_a_flowchart() -> None:
    """It has each function, in a pipeline in its place between input and answer."""
    assert mermaid(BLUEPRINTS["agent"]).count("{{") == 3
    chart = mermaid(BLUEPRINTS["pipeline"])
    assert 'n1(["input"])' in chart
    assert 'n2{{"fetch"}}' in chart
    assert "n1 --> n2" in chart
    assert chart.count("{{") == 6


def test_a_folder(tmp_path: Path) -> None:
    """Its functions.py has them, else its tools.py; a folder without one has a problem."""
    folder = tmp_path / "clerk"
    folder.mkdir()
    blueprint = {**BLUEPRINTS["agent"], "before": ["fetch", "note"]}
    (folder / "blueprint.json").write_text(json.dumps(blueprint))
    code = 'def fetch(input: str) -> dict[str, str]:\n    return {"customer": input}\n\n\n'  # fmt: skip
    code += 'def shout(output: str) -> dict[str, str]:\n    return {"output": output.upper()}\n'  # fmt: skip
    (folder / "functions.py").write_text(code)
    assert pointers_of(folder) == ["/before/1"]
    (folder / "tools.py").write_text("def note() -> None:\n    pass\n")
    assert podwright.load(folder).run("Ann") == "ECHO: ANN"


# --- Later attempts ---------------------------------------------------------------------------------------------------


class Counted:
    """Components whose functions count their effects."""

    def __init__(self) -> None:
        self.effects: list[str] = []
        model = FunctionModel(self.answer)

        def begin(input: str, context: RunContext) -> dict[str, str]:
            self.effects.append("begin")
            context.state["began"] = True
            return {"customer": f"Ann {len(self.effects)}"}

        def judge(output: str, context: RunContext) -> dict[str, str] | None:
            self.effects.append(f"judge {output}")
            assert context.state["began"]
            if output == "1":
                raise ModelRetry("Not 1.")
            return {"output": f"{output}!"}

        def look(word: str) -> str:
            self.effects.append("look")
            return word

        agent = Agent(
            "clerk",
            "Help {customer}.",
            model,
            tools=[look],
            before=begin,
            after=judge,
        )
        self.line = Pipeline("line", [agent], before=begin, after=judge)

    def answer(self, request: ModelRequest) -> Any:
        self.effects.append("model")
        last = request.messages[-1]
        if last.role == "tool":
            return "1"
        if last.text == "Not 1.":
            return "2"
        return [ToolCall.of("look", word="x")]


async def attempt(
    component: Any, recorded: Sequence[Event] = (), number: int = 1
) -> tuple[Any, list[Event]]:
    """The result of an attempt, and its events; what is recorded comes from JSON."""
    stored = [
        adapter().validate_python(json.loads(json.dumps(event.to_dict())))
        for event in recorded
    ]
    new: list[Event] = []
    result = await execute(
        component,
        component.task("x"),
        subscribers=(new.append,),
        run_id=RUN,
        journal=Journal(stored, attempt=number),
    )
    return result, new


EFFECTS = ["begin", "begin", "model", "look", "model", "judge 1", "model", "judge 2", "judge 2!"]  # fmt: skip


async def test_a_stop_at_every_event() -> None:
    """What a function has returned, or asked the model, is not called for again in the next attempt."""
    whole = Counted()
    first, recorded = await attempt(whole.line)
    assert first.value == "2!!"
    assert whole.effects == EFFECTS
    for cut in range(1, len(recorded)):
        counted = Counted()
        again, new = await attempt(counted.line, recorded[:cut], 2)
        ended = [
            event
            for event in recorded[:cut]
            if event.type
            in ("model_call_finished", "tool_call_finished", "tool_call_failed")
        ]
        assert len(counted.effects) == len(EFFECTS) - len(ended)
        assert again.messages == first.messages
        assert again.value == "2!!"
        assert again.usage.tool_calls == first.usage.tool_calls
        assert new[-1].type == "run_finished"


async def test_an_answer_that_is_asked_for_again() -> None:
    """If no answer was accepted, a new attempt asks the model again, and the function about that answer."""
    asked: list[str] = []

    def judge(output: str) -> None:
        asked.append(output)
        if output != "3":
            raise ModelRetry("Not that.")

    answers = iter(["1", "2", "3"])
    agent = Agent(
        "clerk",
        "",
        FunctionModel(lambda _: next(answers)),
        after=judge,
        max_corrections=1,
    )
    recorded: list[Event] = []
    with pytest.raises(OutputError), subscribed(recorded):
        await attempt(agent)
    result, _ = await attempt(agent, recorded, 2)
    assert result.value == "3"
    assert asked == ["1", "2", "3"]


async def test_a_caught_refusal_in_a_new_attempt() -> None:
    """What an attempt has caught is not tried again."""
    calls: list[str] = []

    def refuse_and_count() -> None:
        calls.append("")
        _refuse()

    agent = Agent("clerk", "", ScriptedModel(), before=refuse_and_count)
    flow = Workflow(
        "flow",
        [TryStep([agent], catch=[FunctionStep(boss)], retries=2)],
    )
    _, recorded = await attempt(flow)
    cut = [event.type for event in recorded].index("error_caught") + 1
    result, _ = await attempt(flow, recorded[:cut], 2)
    assert result.data["boss_output"] == {"boss": "Eve"}
    assert len(calls) == 1


async def test_a_response_of_a_refusing_model_that_is_changed() -> None:
    """An answer of a function is no refusal of the model."""
    model = ScriptedModel(ModelResponse(refusal="No."))
    result = Agent("x", "", model, after=shout).run("x", trace=True)
    assert (result.value, result.finish_reason) == ("NO.", "stop")


# --- Groups of errors -------------------------------------------------------------------------------------------------


async def _at_once(*errors: Exception) -> None:
    """Raise errors as checks do that a task group makes at once."""

    async def fail(error: Exception) -> None:
        raise error

    async with asyncio.TaskGroup() as outer, asyncio.TaskGroup() as inner:
        for error in errors:
            inner.create_task(fail(error))
        outer.create_task(asyncio.sleep(0))


@pytest.mark.parametrize("place", ["before", "after", "tools"])
def test_a_refusal_in_a_group(place: str) -> None:
    """It is one of the run, whatever fails beside it: no failure, and nothing that a model may pass over."""

    async def guard_all() -> None:
        await _at_once(ValueError("broken"), Refusal("off_topic", "No poems."))

    said: list[Any] = ["yes"]
    if place == "tools":
        said = [[ToolCall.of("guard_all")], "yes"]
    options: dict[str, Any] = {place: [guard_all]}
    agent = Agent("clerk", "Help.", ScriptedModel(*said), **options)
    with pytest.raises(Refusal) as caught:
        agent.run("A poem.")
    assert (caught.value.code, caught.value.message) == ("off_topic", "No poems.")  # fmt: skip


def test_another_try_in_a_group() -> None:
    """The model is asked again, unless something has failed, too."""
    broken: list[Exception] = []

    async def check_all(output: str) -> None:
        if output == "first":
            await _at_once(ModelRetry("Say more."), *broken)

    model = ScriptedModel("first", "second", "first")
    agent = Agent("clerk", "Help.", model, after=check_all)
    assert agent.run("Hi.") == "second"
    assert model.requests[1].messages[-1].text == "Say more."
    broken.append(ValueError("broken"))
    with pytest.raises(ToolError):
        agent.run("Hi.")


def test_a_refusal_by_a_rule_of_approval() -> None:
    """It ends the run like one of the tool; another error of the rule is told to the model."""

    def rule(amount: int) -> bool:
        if amount > 9:
            raise Refusal("too_much", "At most 9.")
        raise ValueError("broken")

    @tool(approval=rule)
    def pay(amount: int) -> str:
        raise AssertionError

    def clerk(amount: int) -> Agent:
        model = ScriptedModel([ToolCall.of("pay", amount=amount)], "not paid")
        return Agent("clerk", "Help.", model, tools=[pay])

    assert clerk(1).run("Pay.") == "not paid"
    with pytest.raises(Refusal) as caught:
        clerk(10).run("Pay.")
    assert caught.value.code == "too_much"
