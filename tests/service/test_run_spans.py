"""The spans of runs, exported by the OpenTelemetry SDK to memory."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import (
    InMemorySpanExporter,
)
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.semconv._incubating.attributes.gen_ai_attributes import (
    GEN_AI_USAGE_CACHE_CREATION_INPUT_TOKENS,
    GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS,
)
from opentelemetry.trace import SpanKind, StatusCode
from tests.library.handing_over import desk

from podwright import (
    Agent,
    AgentStep,
    ApprovalRequired,
    ApprovalStep,
    Conductor,
    FunctionModel,
    LoopStep,
    ParallelStep,
    RunContext,
    ScriptedModel,
    Workflow,
    tool,
)
from podwright.components import FunctionStep, TryStep
from podwright.errors import (
    ApprovalRejectedError,
    ModelError,
    ModelUnavailableError,
    PodwrightError,
    Refusal,
)
from podwright.models.retries import Retries
from podwright.run.run import Task, execute
from podwright.testing import ModelRequest, ModelResponse, ToolCall, Usage
from podwright_service.observability.run_spans import RunSpans

SECRET = "the secret cellar"


class Recorder:
    """Runs components with the subscriber and keeps the finished spans."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()

    async def run(
        self,
        component: Any,
        *,
        text: Any = "go",
        messages: Any = (),
        sampler: Sampler | None = None,
        **options: Any,
    ) -> None:
        """Run a component; errors of the run are expected."""
        task = Task(text)
        if messages:
            task = component.task(text, messages=messages)
        with contextlib.suppress(PodwrightError):
            await self.run_task(component, task, sampler, **options)

    async def run_task(
        self,
        component: Any,
        task: Task,
        sampler: Sampler | None = None,
        **options: Any,
    ) -> None:
        """Run a component."""
        provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        subscriber = RunSpans(provider.get_tracer("test"), **options)
        try:
            await execute(component, task, subscribers=[subscriber])
        finally:
            assert not trace.get_current_span().get_span_context().is_valid

    @property
    def spans(self) -> list[ReadableSpan]:
        """The finished spans, in the order of their ends."""
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> ReadableSpan:
        """The only span of this name."""
        (span,) = [span for span in self.spans if span.name == name]
        return span

    def parent(self, name: str) -> str:
        """The name of a span's parent."""
        context = self.named(name).parent
        assert context
        (parent,) = [
            span
            for span in self.spans
            if span.context and span.context.span_id == context.span_id
        ]
        return parent.name


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


def look(place: str) -> str:
    """Look somewhere."""
    with trace.get_tracer("tool").start_as_current_span("ignored"):
        return f"nothing in {place}"


def scripted(*script: Any) -> ScriptedModel:
    model = ScriptedModel(*script)
    model.retries = Retries(first_wait=0.0)
    return model


def looker() -> Agent:
    return Agent(
        "looker",
        "Look.",
        scripted(ToolCall.of("look", place=SECRET), "done"),
        tools=[look],
    )


def echo(name: str) -> Agent:
    return Agent(name, "Go.", model="offline/echo")


async def test_an_agent_with_a_tool(recorder: Recorder) -> None:
    """Model calls and tool calls are children of the run, with the attributes of the GenAI conventions."""
    await recorder.run(
        looker(), servers={"offline/scripted": ("models.test", 443)}
    )
    run = recorder.named("invoke_agent looker")
    tool = recorder.named("execute_tool look")
    chats = [span for span in recorder.spans if span.name == "chat scripted"]
    assert run.context
    assert [span.parent.span_id for span in (*chats, tool) if span.parent] == [
        run.context.span_id
    ] * 3
    assert [span.kind for span in (run, tool, *chats)] == [
        SpanKind.INTERNAL
    ] * 2 + [SpanKind.CLIENT] * 2
    chat = attributes(chats[0])
    assert chat["gen_ai.operation.name"] == "chat"
    assert (chat["gen_ai.provider.name"], chat["gen_ai.request.model"]) == (
        "offline",
        "scripted",
    )
    assert (chat["server.address"], chat["server.port"]) == ("models.test", 443)
    assert chat["gen_ai.usage.cost.currency"] == "USD"
    assert attributes(tool)["gen_ai.tool.name"] == "look"
    result = attributes(run)
    assert result["podwright.run.status"] == "ok"
    assert (
        result["podwright.run.model_calls"],
        result["podwright.run.tool_calls"],
    ) == (2, 1)
    for way in ("input", "output"):
        used = sum(
            attributes(span)[f"gen_ai.usage.{way}_tokens"] for span in chats
        )
        assert result[f"podwright.run.{way}_tokens"] == used
    assert not [name for name in result if name.startswith("gen_ai.usage.")], (
        "backends would count them twice"
    )


async def test_parallel_branches_have_their_own_parents(
    recorder: Recorder,
) -> None:
    """Each branch's run is a child of its own step, and its model call of that run."""
    branches = [[AgentStep(echo("left"), "l")], [AgentStep(echo("right"), "r")]]
    await recorder.run(
        Workflow("forked", steps=[ParallelStep(branches, "both")])
    )
    assert recorder.parent("invoke_agent left") == "step l"
    assert recorder.parent("invoke_agent right") == "step r"
    assert recorder.parent("step l") == recorder.parent("step r") == "step both"
    assert recorder.parent("step both") == "invoke_workflow forked"
    runs = [
        recorder.named(f"invoke_agent {name}").context
        for name in ("left", "right")
    ]
    parents = {
        span.parent.span_id
        for span in recorder.spans
        if span.name == "chat echo" and span.parent
    }
    assert parents == {context.span_id for context in runs if context}


async def test_a_run_that_a_tool_starts_in_its_thread_is_its_child(
    recorder: Recorder,
) -> None:
    """A tool that runs another component has that run below its call, in the same trace."""

    def consult(topic: str) -> str:
        """Ask another agent."""
        return echo("consulted").run(topic)

    model = scripted(ToolCall.of("consult", topic="x"), "done")
    await recorder.run(Agent("asking", "Ask.", model, tools=[consult]))
    assert recorder.parent("invoke_agent consulted") == "execute_tool consult"
    assert recorder.parent("chat echo") == "invoke_agent consulted"


async def test_a_plan_is_a_span_with_its_model_call(recorder: Recorder) -> None:
    """The planning of a conductor has an operation of its own."""
    plan = json.dumps({"steps": [{"skill": "left", "task": "go"}]})
    model = scripted(plan, ToolCall.of("left", task="go"), "done")
    await recorder.run(
        Conductor(
            "boss", "Lead.", model=model, skills=[echo("left")], planning=True
        )
    )
    planning = recorder.named("plan boss")
    assert planning.context
    assert attributes(planning)["gen_ai.operation.name"] == "plan"
    assert recorder.parent("plan boss") == "invoke_agent boss"
    parents = [
        span.parent.span_id
        for span in recorder.spans
        if span.name == "chat scripted" and span.parent
    ]
    assert parents.count(planning.context.span_id) == 1


async def test_one_span_covers_a_model_call_with_its_retries(
    recorder: Recorder,
) -> None:
    """A call that succeeds at the second try is one span with one event."""
    await recorder.run(
        Agent("retrying", "Try.", scripted(ModelUnavailableError("down"), "up"))
    )
    span = recorder.named("chat scripted")
    assert [event.name for event in span.events] == [
        "podwright.model_call.retry"
    ]
    assert (
        dict(span.events[0].attributes or {})["podwright.model_call.tries"] == 1
    )
    assert span.status.status_code is StatusCode.UNSET


async def test_content_is_off_by_default(recorder: Recorder) -> None:
    """Messages, tool arguments, tool results and error texts are in no span."""
    await recorder.run(looker(), text=SECRET)
    await recorder.run(
        Agent("failing", "Fail.", scripted(ModelError(SECRET))), text=SECRET
    )
    assert len(recorder.spans) == 6
    assert not [
        span.name for span in recorder.spans if SECRET in span.to_json()
    ]


async def test_content_is_captured_on_request(recorder: Recorder) -> None:
    """Messages, tool arguments and results, and input and output of runs follow the schema of the conventions."""
    await recorder.run(looker(), text="the moon", capture_content=True)
    await recorder.run(
        Workflow("flow", [echo("last")]), text="the moon", capture_content=True
    )
    first, second = (
        attributes(span)
        for span in recorder.spans
        if span.name == "chat scripted"
    )
    assert "the moon" in first["gen_ai.input.messages"]
    assert json.loads(second["gen_ai.output.messages"]) == [
        {
            "role": "assistant",
            "parts": [{"type": "text", "content": "done"}],
            "finish_reason": "stop",
        }
    ]
    response = json.loads(second["gen_ai.input.messages"])[-1]["parts"][0]
    assert (response["type"], response["response"]) == (
        "tool_call_response",
        f"nothing in {SECRET}",
    )
    tool = attributes(recorder.named("execute_tool look"))
    assert json.loads(tool["gen_ai.tool.call.arguments"]) == {"place": SECRET}
    assert tool["gen_ai.tool.call.result"] == f"nothing in {SECRET}"
    run = attributes(recorder.named("invoke_agent looker"))
    flow = attributes(recorder.named("invoke_workflow flow"))
    message = {
        "role": "user",
        "parts": [{"type": "text", "content": "the moon"}],
    }
    assert (
        json.loads(run["gen_ai.input.messages"])
        == json.loads(flow["gen_ai.input.messages"])
        == [message]
    )
    assert run["gen_ai.output.messages"] == second["gen_ai.output.messages"]
    context = json.loads(
        json.loads(flow["gen_ai.output.messages"])[0]["parts"][0]["content"]
    )
    assert context == {"input": "the moon", "last_output": "Echo: the moon"}


async def test_captured_files_and_audio_are_addresses_or_types(
    recorder: Recorder,
) -> None:
    """As of images, without the data; in a text, a word stands for them."""
    secret = "c2VjcmV0"
    data = [
        {
            "type": "file",
            "file": {"file_data": f"data:text/csv;base64,{secret}"},
        },
        {"type": "file", "file": {"file_data": "https://example.org/a.pdf"}},
        {
            "type": "input_audio",
            "input_audio": {"data": secret, "format": "wav"},
        },
    ]

    def read() -> Any:
        """Read."""
        return data

    await recorder.run(
        Agent("guide", "Help.", "offline/echo", tools=[read]),
        text=data,
        capture_content=True,
    )
    run = attributes(recorder.named("invoke_agent guide"))
    assert json.loads(run["gen_ai.input.messages"])[0]["parts"] == [
        {
            "type": "blob",
            "modality": "document",
            "mime_type": "text/csv",
            "content": "",
        },
        {
            "type": "uri",
            "modality": "document",
            "uri": "https://example.org/a.pdf",
        },
        {
            "type": "blob",
            "modality": "audio",
            "mime_type": "audio/wav",
            "content": "",
        },
    ]
    tool = attributes(recorder.named("execute_tool read"))
    assert tool["gen_ai.tool.call.result"] == "[file]\n[file]\n[audio]"
    await recorder.run(
        Agent("other", "Help.", "offline/echo"),
        text={"report": data, "note": "Soon."},
        capture_content=True,
    )
    named = attributes(recorder.named("invoke_agent other"))
    assert "[file]" in named["gen_ai.input.messages"]
    step = AgentStep(Agent("reader", "Help.", "offline/echo"), output="text")
    await recorder.run(
        Workflow("flow", [step]), text={"report": data}, capture_content=True
    )
    context = attributes(recorder.named("invoke_workflow flow"))
    assert "[file]" in context["gen_ai.output.messages"]
    assert secret not in json.dumps(context)
    assert "Soon." in named["gen_ai.input.messages"]
    assert not [
        span.name for span in recorder.spans if secret in span.to_json()
    ]


async def test_captured_images_are_addresses_or_types(
    recorder: Recorder,
) -> None:
    """Of an image, a span has the URL, or the type of its data but not the data; wrong parts are captured as text."""
    pixel = "iVBORw0KGgo="
    images = [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{pixel}", "detail": "low"}},
              {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]  # fmt: skip
    data = [{"type": "text", "text": "What is this?"}, *images]
    await recorder.run(
        Agent("guide", "Help.", "offline/echo"), text=data, capture_content=True
    )
    message = {
        "role": "user",
        "parts": [
            {"type": "text", "content": "What is this?"},
            {
                "type": "blob",
                "modality": "image",
                "mime_type": "image/png",
                "content": "",
            },
            {
                "type": "uri",
                "modality": "image",
                "uri": "https://example.org/a.png",
            },
        ],
    }
    run = attributes(recorder.named("invoke_agent guide"))
    chat = attributes(recorder.named("chat echo"))
    assert json.loads(run["gen_ai.input.messages"]) == [message]
    assert json.loads(chat["gen_ai.input.messages"])[1:] == [message]
    assert not [span.name for span in recorder.spans if pixel in span.to_json()]
    await recorder.run(
        Agent("other", "Help.", "offline/echo"),
        text=[{"type": "video"}],
        capture_content=True,
    )
    assert (
        "video"
        in attributes(recorder.named("invoke_agent other"))[
            "gen_ai.input.messages"
        ]
    )


async def test_a_cut_history_ends_no_span(recorder: Recorder) -> None:
    """A run whose earlier turns are cut has the same spans as any other, and its messages are those that were sent."""
    agent = Agent("guide", "Help.", "offline/echo", max_history=1)
    history = [
        {"role": "user", "content": text} for text in ("one", "two", "three")
    ]
    await recorder.run(agent, text="go", messages=history, capture_content=True)
    assert [span.name for span in recorder.spans] == [
        "chat echo",
        "invoke_agent guide",
    ]
    assert recorder.parent("chat echo") == "invoke_agent guide"
    sent = json.loads(
        attributes(recorder.named("chat echo"))["gen_ai.input.messages"]
    )
    assert [message["parts"][0]["content"] for message in sent] == [
        "Help.",
        "three",
        "go",
    ]


async def test_each_agent_of_a_conversation_has_a_span(
    recorder: Recorder,
) -> None:
    """The handoff is an event of the one that hands over, and what the other one does is below it."""
    await recorder.run(desk(), text="billing")
    first = recorder.named("invoke_agent triage")
    (event,) = first.events
    assert event.name == "podwright.handoff"
    assert event.attributes == {
        "podwright.handoff.from": "triage",
        "podwright.handoff.to": "billing",
    }
    step = recorder.named("step billing")
    second = recorder.named("invoke_agent billing")
    assert first.context
    assert step.context
    assert step.parent
    assert second.parent
    assert step.parent.span_id == first.context.span_id
    assert second.parent.span_id == step.context.span_id
    assert attributes(first)["podwright.run.model_calls"] == 2
    assert attributes(second)["podwright.run.model_calls"] == 1


async def test_cached_tokens_are_on_the_span_of_the_call(
    recorder: Recorder,
) -> None:
    """Tokens read from the provider's cache, and those written to it, have attributes of the conventions."""
    usage = Usage(100, 10, 30, 0, cost=None, cache_write_tokens=40)
    await recorder.run(
        Agent("guide", "Help.", scripted(ModelResponse("done", usage=usage)))
    )
    chat = attributes(recorder.named("chat scripted"))
    assert chat[GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS] == 30
    assert chat[GEN_AI_USAGE_CACHE_CREATION_INPUT_TOKENS] == 40


async def test_a_failure_marks_each_span_that_it_ends(
    recorder: Recorder,
) -> None:
    """The model call, the runs and the step have the error's code and an error status."""
    failing = Agent("failing", "Fail.", scripted(ModelError("no")))
    await recorder.run(Workflow("flow", steps=[AgentStep(failing, "first")]))
    codes = {
        span.name: attributes(span)["error.type"] for span in recorder.spans
    }
    assert codes == {
        "chat scripted": "model_failed",
        "invoke_agent failing": "model_failed",
        "step first": "step_failed",
        "invoke_workflow flow": "model_failed",
    }
    assert {span.status.status_code for span in recorder.spans} == {
        StatusCode.ERROR
    }


async def test_the_exception_of_a_tool_is_on_its_span_and_on_that_of_the_run(
    recorder: Recorder,
) -> None:
    """Both have an exception event with the traceback, without what is secret in URLs.

    A failed model call has none, because it may quote a prompt.
    """

    def broken(place: str) -> str:
        """Look somewhere."""
        raise LookupError(place)

    place = "https://ann:SECRET@example.com/moon?key=SECRET"
    await recorder.run(
        Agent(
            "a",
            "Look.",
            scripted(ToolCall.of("broken", place=place)),
            tools=[broken],
            max_tool_retries=0,
        )
    )
    await recorder.run(Agent("b", "Look.", scripted(ModelError("no"))))
    found = {
        span.name: dict(event.attributes or {})
        for span in recorder.spans
        for event in span.events
    }
    assert list(found) == ["execute_tool broken", "invoke_agent a"]
    for attributes_ in found.values():
        assert attributes_["exception.type"] == "podwright.errors.ToolError"
        shown = "LookupError: https://…@example.com/moon?…"
        assert shown in str(attributes_["exception.stacktrace"])
        assert shown in str(attributes_["exception.message"])
        assert "SECRET" not in str(attributes_)


async def test_a_cancelled_run_ends_its_spans(recorder: Recorder) -> None:
    """A cancellation inside a model call closes all open spans; the run is cancelled, not failed."""
    entered = asyncio.Event()

    async def respond(_: ModelRequest) -> ModelResponse:
        entered.set()
        await asyncio.Event().wait()
        return ModelResponse("never")

    slow = Agent("slow", "Wait.", FunctionModel(respond))
    task = asyncio.create_task(
        recorder.run(Workflow("flow", steps=[AgentStep(slow, "first")]))
    )
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    run = recorder.named("invoke_workflow flow")
    assert len(recorder.spans) == 4
    assert attributes(run)["podwright.run.status"] == "cancelled"
    assert attributes(run)["error.type"] == "run_cancelled"
    assert run.status.status_code is StatusCode.UNSET


async def test_a_paused_run_is_no_error(recorder: Recorder) -> None:
    """A workflow that waits for approval ends its span with the status `paused`."""
    await recorder.run(
        Workflow("halting", steps=[ApprovalStep("Go on?", "ok")])
    )
    run = recorder.named("invoke_workflow halting")
    assert attributes(run)["podwright.run.status"] == "paused"
    assert run.status.status_code is StatusCode.UNSET
    assert (
        attributes(recorder.named("step ok"))["podwright.step.outcome"]
        == "paused"
    )


async def test_a_rejection_is_no_error(recorder: Recorder) -> None:
    """What a person rejects is decided: neither its run nor its step or its tool call is an error."""

    @tool(approval=True)
    def pay() -> str:
        """Pay."""
        raise AssertionError

    clerk = Agent("clerk", "Pay.", scripted(ToolCall.of("pay"), "done"), [pay])
    gate = Workflow("gate", steps=[AgentStep(clerk), ApprovalStep("?", "ok")])
    pauses: list[ApprovalRequired] = []
    for _ in range(3):
        context: Any = "go"
        path = None
        if pauses:
            context = pauses[-1].decide("reject")
            path = pauses[-1].resume_path
        try:
            await recorder.run_task(gate, gate.task(context, 0, path))
        except ApprovalRequired as pause:
            pauses.append(pause)
        except ApprovalRejectedError:
            break
    run = recorder.spans[-1]
    assert run.name == "invoke_workflow gate"
    assert attributes(run)["podwright.run.status"] == "rejected"
    assert attributes(recorder.named("execute_tool pay"))
    steps = [span for span in recorder.spans if span.name == "step ok"]
    assert attributes(steps[-1])["podwright.step.outcome"] == "rejected"
    for span in recorder.spans:
        assert span.status.status_code is StatusCode.UNSET
        assert "error.type" not in attributes(span)


async def test_a_refusal_is_no_error_of_a_span(recorder: Recorder) -> None:
    """The spans of the call, the run and the step have its code, and neither an error nor its words."""

    def refuse() -> None:
        raise Refusal("off_topic", "Only orders.")

    clerk = Agent("clerk", "Help.", scripted(), before=refuse)
    await recorder.run(Workflow("flow", [clerk]))
    for name in ("execute_tool refuse", "invoke_agent clerk", "invoke_workflow flow"):  # fmt: skip
        assert attributes(recorder.named(name))["podwright.refusal.code"] == "off_topic"  # fmt: skip
    run = attributes(recorder.named("invoke_workflow flow"))
    assert run["podwright.run.status"] == "refused"
    step = attributes(recorder.named("step clerk"))
    assert step["podwright.step.outcome"] == "refused"
    for span in recorder.spans:
        assert span.status.status_code is StatusCode.UNSET
        assert "error.type" not in attributes(span)
        assert "Only orders." not in span.to_json()


async def test_an_exhausted_loop_is_seen_in_its_span(
    recorder: Recorder,
) -> None:
    """The step of a loop that ends by its maximum has the outcome `exhausted`, and is an error only if it fails."""
    never = {"name": "is_empty", "args": {"value": "x"}}
    agent = Agent("again", "Repeat.", "offline/echo")
    loops = [
        LoopStep([agent], never, max_iterations=2, name="goes on"),
        LoopStep(
            [agent], never, max_iterations=2, name="fails", on_exhausted="fail"
        ),
    ]
    await recorder.run(Workflow("flow", loops))
    assert (
        attributes(recorder.named("step goes on"))["podwright.step.outcome"]
        == "exhausted"
    )
    assert recorder.named("step goes on").status.status_code is StatusCode.UNSET
    assert (
        attributes(recorder.named("step fails"))["podwright.step.outcome"]
        == "failed"
    )
    assert (
        attributes(recorder.named("invoke_workflow flow"))["error.type"]
        == "loop_exhausted"
    )


async def test_a_function_of_a_step_is_called_in_its_span(
    recorder: Recorder,
) -> None:
    """It is a tool call of the workflow without an id; its result is JSON if it is not a text."""

    def count(text: str) -> dict[str, int]:
        """Count the words of a text."""
        return {"words": len(text.split())}

    steps = [
        FunctionStep(count, {"text": "{input}"}, name="size"),
        FunctionStep(look, {"place": "room {count_output.words}"}, name="see"),
    ]
    await recorder.run(
        Workflow("flow", steps), text="the moon", capture_content=True
    )
    call = attributes(recorder.named("execute_tool count"))
    assert recorder.parent("execute_tool count") == "step size"
    assert recorder.parent("execute_tool look") == "step see"
    assert call["gen_ai.agent.name"] == "flow"
    assert "gen_ai.tool.call.id" not in call
    assert json.loads(call["gen_ai.tool.call.arguments"]) == {
        "text": "the moon"
    }
    assert json.loads(call["gen_ai.tool.call.result"]) == {"words": 2}
    seen = attributes(recorder.named("execute_tool look"))
    assert seen["gen_ai.tool.call.result"] == "nothing in room 2"


@pytest.mark.parametrize("capture_content", [False, True])
async def test_reports_are_events_of_the_call(
    recorder: Recorder, capture_content: bool
) -> None:
    """Those of a function in a thread too; their text is content, and their data is in no span."""

    def read(context: RunContext) -> str:
        context.report("page 1", {"page": 1})
        return "read"

    flow = Workflow("flow", [FunctionStep(read)])
    await recorder.run(flow, capture_content=capture_content)
    (event,) = recorder.named("execute_tool read").events
    expected = {}
    if capture_content:
        expected["podwright.progress.text"] = "page 1"
    assert event.name == "podwright.progress"
    assert dict(event.attributes or {}) == expected


async def test_caught_errors_are_events_of_the_step(recorder: Recorder) -> None:
    """Each attempt that failed is an event; the step has the outcome `caught`, and it and the run are no errors."""
    tries = TryStep(
        [Agent("a", "Go.", scripted(ModelError("no"), ModelError("no")))],
        catch=[echo("b")],
        retries=1,
        name="try",
    )
    await recorder.run(Workflow("flow", [tries]))
    span = recorder.named("step try")
    assert attributes(span)["podwright.step.outcome"] == "caught"
    assert span.status.status_code is StatusCode.UNSET
    caught = [dict(event.attributes or {}) for event in span.events]
    assert {event.name for event in span.events} == {
        "podwright.step.error_caught"
    }
    assert [
        (event["error.type"], event["podwright.step.attempt"])
        for event in caught
    ] == [("model_failed", 0), ("model_failed", 1)]
    assert caught[1]["podwright.step.wait"] == 0
    run = recorder.named("invoke_workflow flow")
    assert attributes(run)["podwright.run.status"] == "ok"
    assert [
        each.status.status_code
        for each in recorder.spans
        if each.name == "invoke_agent a"
    ] == [StatusCode.ERROR] * 2


async def test_unknown_costs_are_not_0(recorder: Recorder) -> None:
    """A call without a known price has no cost, and says why; its run has what is known, and how many calls are not."""

    class Unpriced(FunctionModel):
        def cost(self, usage: Usage) -> float | None:
            return None

    unpriced = Unpriced(
        lambda _: ModelResponse("done", usage=Usage(10, 5, cost=None))
    )
    await recorder.run(Agent("agent", "Go.", unpriced))
    chat = attributes(recorder.named("chat function"))
    assert {key: chat[key] for key in chat if "cost" in key} == {
        "podwright.model_call.known_cost.usd": 0.0
    }
    assert chat["podwright.model_call.unpriced"] == "price"
    run = attributes(recorder.named("invoke_agent agent"))
    assert {key: run[key] for key in run if "cost" in key} == {
        "podwright.run.known_cost.usd": 0.0
    }
    assert run["podwright.run.unpriced_model_calls"] == 1


class RecordingSampler(Sampler):
    """Drops every span, and records the attributes that it gets."""

    def __init__(self) -> None:
        self.attributes: dict[str, dict[str, Any]] = {}

    def should_sample(
        self,
        parent_context,
        trace_id,
        name,
        kind=None,
        attributes=None,
        *_,
        **__,
    ) -> SamplingResult:
        self.attributes[name] = dict(attributes or {})
        return SamplingResult(Decision.DROP)

    def get_description(self) -> str:
        return "recording"


async def test_a_sampler_gets_the_attributes(recorder: Recorder) -> None:
    """Operation, names and model are set when a span is created; dropped spans are not exported."""
    sampler = RecordingSampler()
    await recorder.run(looker(), sampler=sampler)
    assert (
        sampler.attributes["invoke_agent looker"]["gen_ai.agent.name"]
        == "looker"
    )
    assert (
        sampler.attributes["chat scripted"]["gen_ai.request.model"]
        == "scripted"
    )
    assert sampler.attributes["execute_tool look"]["gen_ai.tool.name"] == "look"
    operations = {
        attributes["gen_ai.operation.name"]
        for attributes in sampler.attributes.values()
    }
    assert operations == {"invoke_agent", "chat", "execute_tool"}
    assert recorder.spans == []


@pytest.mark.parametrize("content", [False, True])
async def test_how_an_answer_ended(recorder: Recorder, content: bool) -> None:
    """The span of a call has our value and the provider's unknown word; the words of a refusal only with contents."""
    answers = [
        ModelResponse("Once upon", finish_reason="a_word_to_come"),
        ModelResponse(refusal=SECRET),
    ]
    for answer in answers:
        await recorder.run(
            Agent("guide", "Help.", scripted(answer)), capture_content=content
        )
    unknown, refused = (
        span for span in recorder.spans if span.name.startswith("chat ")
    )
    name = "gen_ai.response.finish_reasons"
    word = "podwright.model_call.provider_finish_reason"
    assert attributes(unknown)[name] == ("unknown",)
    assert attributes(unknown)[word] == "a_word_to_come"
    assert attributes(refused)[name] == ("refusal",)
    assert word not in attributes(refused)
    await recorder.run(
        Agent(
            "guide",
            "Help.",
            scripted(ModelResponse(refusal=SECRET)),
            response_model={"type": "object"},
        ),
        capture_content=content,
    )
    shown = any(SECRET in span.to_json() for span in recorder.spans)
    assert shown == content
