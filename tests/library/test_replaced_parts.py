"""Models of a component that are wrapped, and tools that others take the place of."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pytest
from tests.library.mcp_server import ServerDouble, definition, lock_of
from tests.library.shelf_tool import ShelfTool, find_book

from podwright import (
    Agent,
    AgentStep,
    ApprovalRequired,
    Conductor,
    FunctionAgent,
    FunctionStep,
    Handoff,
    LoopStep,
    Pipeline,
    RunContext,
    TryStep,
    Workflow,
    WorkflowStep,
    register_provider,
    tool,
    use_model,
)
from podwright.errors import ConfigurationError, ModelUnavailableError
from podwright.events import (
    Event,
    ModelCallFinished,
    ModelCallStarted,
    ToolCallStarted,
)
from podwright.folders.walks import component_digest, models_of, walk
from podwright.mcp.entries import MCPSource
from podwright.messages.approvals import Decision
from podwright.models.base import TokenCallback, WrappingModel
from podwright.models.retries import Retries
from podwright.run.component import Component, ModelComponent
from podwright.testing import (
    EchoModel,
    Model,
    ModelRequest,
    ModelResponse,
    ScriptedModel,
    ToolCall,
)
from podwright.tools.fake import FakeTool

# --- Models -----------------------------------------------------------------------------------------------------------


class Unavailable(Model):
    """Never answers."""

    retries = Retries(tries=1)

    async def complete(
        self, request: ModelRequest, on_token: TokenCallback | None = None
    ) -> ModelResponse:
        raise ModelUnavailableError("Down.")


def _provider(name: str, _: object) -> Model:
    model: Model = Unavailable()
    if name == "echo":
        model = EchoModel()
    model.name = f"replaced/{name}"
    return model


register_provider("replaced", _provider)


class Wrapper:
    """Wraps models, and notes which, and what they are asked."""

    def __init__(self) -> None:
        self.wrapped: list[Model] = []
        self.requests: list[ModelRequest] = []

    def __call__(self, model: Model) -> Model:
        self.wrapped.append(model)
        return _Noting(model, self.requests)


class _Noting(WrappingModel):
    def __init__(self, model: Model, requests: list[ModelRequest]) -> None:
        super().__init__(model)
        self._requests = requests

    async def complete(
        self, request: ModelRequest, on_token: TokenCallback | None = None
    ) -> ModelResponse:
        self._requests.append(request)
        return await super().complete(request, on_token)


def wrap_all(component: Component) -> Wrapper:
    """Wrap the models of a component and its parts."""
    wrapper = Wrapper()
    for part in walk(component):
        if isinstance(part, ModelComponent):
            part.wrap_models(wrapper)
    return wrapper


PLAN = json.dumps({"steps": [{"skill": "search", "task": "find it"}]})


def desk() -> Component:
    """A conductor that plans."""
    search = Agent("search", "Search.", ScriptedModel("Found."))
    call = ToolCall.of("search", task="find it")
    model = ScriptedModel(PLAN, call, "Done.")
    return Conductor("desk", "Lead.", model, [search], planning=True)


def front() -> Component:
    """An agent that hands over."""
    expert = Agent("expert", "Answer.", ScriptedModel("42"))
    call = ToolCall.of("transfer_to_expert")
    model = ScriptedModel(call)
    return Agent("front", "Greet.", model, handoffs=[Handoff(expert)])


def corrected() -> Component:
    """An agent whose first answer does not fit."""
    model = ScriptedModel("many", "3")
    return Agent("count", "Count.", model, response_model=int)


def by_name() -> Component:
    """An agent of a blueprint that names its models, of which the first one is down."""
    return Agent("echo", "Echo.", "replaced/down", fallback=["replaced/echo"])


def pipeline() -> Component:
    """A pipeline whose blueprint has its agents."""
    blueprint = {
        "type": "Pipeline",
        "version": "1",
        "name": "line",
        "config": {"model": "replaced/echo"},
        "steps": [
            {"type": "Agent", "name": "one", "instructions": "One."},
            {"type": "Agent", "name": "two", "instructions": "Two."},
        ],
    }
    return Pipeline.from_blueprint(blueprint)


@pytest.mark.parametrize(
    "make",
    [desk, front, corrected, by_name, pipeline],
    ids=lambda f: f.__name__,
)
def test_every_model_call_is_wrapped(make: Any) -> None:
    """Plans, skills, handoffs, corrections, members and fallback models ask the wrapped models, each wrapped once."""
    component = make()
    wrapper = wrap_all(component)
    result = component.run("Hello", trace=True)
    started = [e for e in result.events if isinstance(e, ModelCallStarted)]
    finished = [e for e in result.events if isinstance(e, ModelCallFinished)]
    # a fallback model is asked in the same call
    fallbacks = [e for e in result.events if e.type == "model_call_fell_back"]
    assert len(wrapper.requests) == len(started) + len(fallbacks)
    assert len(started) == len(finished) > 0
    component_of = {request.component for request in wrapper.requests}
    assert component_of == {event.component for event in started}
    if make is not pipeline:
        assert len(wrapper.wrapped) == len(set(map(id, wrapper.wrapped)))
    assert wrap_all(make()).wrapped == []


def test_wrapped_models_are_the_same_over_calls() -> None:
    """Their order and identity stay, which tell fallback models from the first one."""
    component = by_name()
    wrapper = wrap_all(component)
    assert isinstance(component, ModelComponent)
    first, second = component.chat_models, component.chat_models
    assert first.first is second.first is component.model
    assert [model.name for model in first.all()] == [
        "replaced/down",
        "replaced/echo",
    ]
    assert models_of(component) == first.all()
    component.run("Hello")
    component.run("Hello")
    assert [model.name for model in wrapper.wrapped] == [
        "replaced/down",
        "replaced/echo",
    ]
    assert first.fallback[0] is component.chat_models.fallback[0]
    assert [request.model for request in wrapper.requests] == [
        "replaced/down",
        "replaced/echo",
    ] + ["replaced/echo"] * (len(wrapper.requests) - 2)


def test_the_model_of_a_block_of_code_is_wrapped() -> None:
    """`use_model` and `replace_model` choose what is wrapped."""
    agent = Agent("echo", "Echo.", "replaced/down", fallback=["replaced/echo"])
    wrapper = wrap_all(agent)
    with use_model(ScriptedModel("Hi.")):
        assert agent.run("Hello") == "Hi."
        assert len(agent.chat_models.all()) == 1
    agent.replace_model(ScriptedModel("Bye."))
    assert agent.run("Hello") == "Bye."
    assert len(wrapper.requests) == len(wrapper.wrapped) == 2


# --- Tools ------------------------------------------------------------------------------------------------------------

calls: list[Any] = []


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    calls.clear()
    ShelfTool.calls = ()


def send_letter(to: str, day: date = date(2026, 1, 1)) -> dict[str, Any]:
    """Send a letter.

    Args:
        to: The address.
        day: When.
    """
    calls.append(to)
    return {"sent": True}


def check_input(input: str) -> dict[str, str]:
    """Change the input."""
    calls.append(input)
    return {"input": input.upper()}


LETTER = ToolCall.of("send_letter", to="Ann")


def writer(*answers: object, **options: Any) -> Agent:
    model = ScriptedModel(*answers)
    return Agent("writer", "Write.", model, tools=[send_letter], **options)


def fake(component: Component, name: str, result: object) -> None:
    """Replace a tool by a fake."""
    component.replace_tool(name, FakeTool(component.own_tools()[name], result))


def results_in(result: Any) -> list[Any]:
    return [m["content"] for m in result.messages if m["role"] == "tool"]


def test_a_fake_is_called_in_place_of_the_tool() -> None:
    """The model is shown the same, the result is a copy each time, and the tool is never called."""
    model = ScriptedModel(LETTER, LETTER, "Done.")
    shown = Agent("writer", "Write.", EchoModel(), tools=[send_letter])
    agent = Agent("writer", "Write.", model, tools=[send_letter])
    value = {"sent": False}
    fake(agent, "send_letter", value)
    result = agent.run("Ann", trace=True)
    assert results_in(result) == ['{"sent": false}'] * 2
    assert calls == []
    assert agent.to_blueprint()["tools"] == shown.to_blueprint()["tools"]
    assert model.requests[0].tools[0] == shown.own_tools()["send_letter"].schema
    assert component_digest(agent) == component_digest(
        Agent("writer", "Write.", ScriptedModel(), tools=[send_letter])
    )


async def test_results_are_copies() -> None:
    """A caller who changes a result changes no other one."""
    found = FakeTool(find_book, {"titles": []})
    first = await found.call({"isbn": "7"})
    first["titles"].append("x")
    assert await found.call({"isbn": "7"}) == {"titles": []}
    assert ShelfTool.calls == ()


def test_a_fake_validates_arguments_as_the_tool_does() -> None:
    """Wrong arguments go back to the model, and values have the types that the function takes."""
    given: list[Any] = []

    def instead(day: date) -> str:
        given.append(day)
        return "noted"

    wrong = ToolCall.of("send_letter", id="1", address="Ann")
    right = ToolCall.of("send_letter", id="2", to="Ann", day="2026-02-03")
    agent = writer(wrong, right, "Done.")
    fake(agent, "send_letter", instead)
    first, second = results_in(agent.run("Ann", trace=True))
    assert "address" in first
    assert second == "noted"
    # only the arguments that it takes
    assert given == [date(2026, 2, 3)]


async def test_a_function_may_be_async_and_take_the_context() -> None:
    """It is called as a tool is, with all values if it takes any; what it raises is what a tool raises."""

    async def instead(run: RunContext, **values: Any) -> str:
        return f"{run.component}: {sorted(values)}"

    def fails(to: str) -> None:
        raise ValueError("No such street.")

    agent = writer(LETTER, "Done.")
    fake(agent, "send_letter", instead)
    assert agent.may_report_usage
    result = await agent.arun("Ann", trace=True)
    assert results_in(result) == ["writer: ['day', 'to']"]
    fake(agent, "send_letter", fails)
    assert not agent.may_report_usage
    agent.replace_model(ScriptedModel(LETTER, "Done."))
    [text] = results_in(await agent.arun("Ann", trace=True))
    assert "No such street" in text


def test_a_person_approves_a_fake() -> None:
    """A run stops at it as at the tool, by the rule of that, and the person sees all arguments."""

    def far(to: str) -> bool:
        return to == "Bob"

    def send(to: str, copies: int = 1) -> str:
        calls.append(to)
        return "sent"

    guarded = tool(approval=far)(send)
    bob = ToolCall.of("send", id="2", to="Bob")
    model = ScriptedModel(ToolCall.of("send", id="1", to="Ann"), bob, "Done.")
    agent = Agent("writer", "Write.", model, tools=[guarded])
    fake(agent, "send", "not sent")
    with pytest.raises(ApprovalRequired) as caught:
        agent.run("Write")
    question = caught.value.question
    assert question is not None
    values = {name: each["value"] for name, each in question.edit.items()}
    assert values == {"to": "Bob", "copies": 1}
    context = {**(caught.value.context or {}), "decision": Decision().to_dict()}
    result = agent.run(context, trace=True)
    assert results_in(result) == ["not sent", "not sent"]
    assert calls == []


def test_tools_and_hooks_of_a_conductor() -> None:
    """Its tools, and the functions before and after the work of each kind, can be replaced."""
    search = Agent("search", "Search.", ScriptedModel())
    model = ScriptedModel(LETTER, "Done.")
    conductor = Conductor(
        "desk",
        "Lead.",
        model,
        [search],
        tools=[send_letter],
        before=[check_input],
    )
    fake(conductor, "send_letter", "no")
    fake(conductor, "check_input", {"input": "faked"})
    result = conductor.run("Hello", trace=True)
    assert results_in(result) == ["no"]
    assert model.requests[0].messages[-1].text == "faked"
    line = Pipeline("line", [writer("Hi.")], before=[check_input])
    fake(line, "check_input", lambda input: {"input": input[::-1]})
    assert line.run("abc", trace=True).events
    assert calls == []


def steps_of(kind: str) -> Workflow:
    """A workflow that calls `send_letter` in its steps, made in Python or from its blueprint."""
    step = FunctionStep(send_letter, {"to": "{input}"}, output="letter")
    loop = LoopStep([step], until=never, max_iterations=1)
    inner = Workflow("inner", [TryStep([loop], retries=1)])
    whole = Workflow("outer", [step, WorkflowStep(inner)])
    if kind == "python":
        return whole
    return Workflow.from_blueprint(
        whole.to_blueprint(),
        conditions={"never": never},
        functions={"send_letter": send_letter},
    )


def never(context: Any) -> bool:
    return False


@pytest.mark.parametrize("kind", ["python", "blueprint"])
def test_functions_of_steps(kind: str) -> None:
    """Those of nested workflows are replaced too."""
    workflow = steps_of(kind)
    fake(workflow, "send_letter", "not sent")
    result = workflow.run("Ann", trace=True)
    assert result.value["letter"] == "not sent"
    assert calls == []
    # a second fake takes the place of the first one
    fake(workflow, "send_letter", "still not sent")
    assert workflow.run("Ann")["letter"] == "still not sent"


READ = definition("read_file")


def test_a_tool_of_an_mcp_server() -> None:
    """The server is not asked, and need not be given; arguments are checked by the locked definition."""
    server = ServerDouble(READ)
    blueprint = {
        "type": "Agent",
        "version": "1",
        "name": "reader",
        "instructions": "Read.",
        "config": {"model": "offline/echo"},
        "mcp": [{"server": "files", "tools": ["read_file"]}],
    }
    for servers in ({"files": server}, None):
        source = MCPSource(servers, lock_of("files", READ))
        agent = Agent.from_blueprint(
            blueprint,
            mcp=source,
            model=ScriptedModel(
                ToolCall.of("read_file", id="1", path=7),
                ToolCall.of("read_file", id="2", path="a.txt"),
                "Done.",
            ),
        )
        before = component_digest(agent)
        fake(agent, "read_file", "the text")
        result = agent.run("Hello", trace=True)
        first, second = results_in(result)
        assert "path" in first
        assert second == "the text"
        started = [e for e in result.events if isinstance(e, ToolCallStarted)]
        assert started[1].server == "files"
        assert component_digest(agent) == before
    assert server.calls == []
    assert server.lists == 0


def test_an_mcp_tool_of_a_step() -> None:
    """Steps call the fake, with the step's own options."""
    server = ServerDouble(READ)
    step: dict[str, Any] = {
        "type": "function_step",
        "name": "read",
        "mcp": {"server": "files", "tool": "read_file", "timeout": 5},
        "arguments": {"path": "{input}"},
        "output": "text",
    }
    blueprint = {
        "type": "Workflow",
        "version": "1",
        "name": "flow",
        "steps": [step],
    }
    workflow = Workflow.from_blueprint(
        blueprint, mcp=MCPSource({"files": server}, lock_of("files", READ))
    )
    fake(workflow, "read_file", lambda path: {"length": len(path)})
    assert workflow.run("a.txt")["text"] == '{"length": 5}'
    assert server.calls == []


@pytest.mark.parametrize(
    ("component", "hint"),
    [
        (writer(), "send_letter"),
        (steps_of("python"), "send_letter"),
        (FunctionAgent("plain", str.upper), "no tools"),
    ],
    ids=["agent", "workflow", "function"],
)
def test_an_unknown_tool(component: Component, hint: str) -> None:
    """A name without a tool is an error that suggests one."""
    with pytest.raises(ConfigurationError, match="'send_leter'") as caught:
        component.replace_tool("send_leter", FakeTool(find_book, 1))
    assert hint in str(caught.value)


def test_another_tool_keeps_the_name() -> None:
    """Any tool may take the place of one, under its name."""
    call = ToolCall.of("send_letter", isbn="7")
    agent = writer(call, "Done.")
    agent.replace_tool("send_letter", find_book)
    events: list[Event] = agent.run("Hello", trace=True).events
    assert any(isinstance(event, ToolCallStarted) for event in events)
    assert ShelfTool.calls == ("7",)
    assert calls == []


def test_members_keep_their_tools() -> None:
    """Only the component's own tools are replaced."""
    first, second = writer(LETTER, "A."), writer(LETTER, "B.")
    second = Agent(
        "other", "Write.", ScriptedModel(LETTER, "B."), [send_letter]
    )
    flow = Workflow("flow", [AgentStep(first), AgentStep(second)])
    fake(first, "send_letter", "no")
    flow.run("Hello")
    assert calls == ["Ann"]
