"""Conversations of several turns: what the model is given, what is cut, what is refused, and what can be saved."""

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from tests.library.shapes import events
from tests.library.upstream import Upstream, completion, reply, streamed

from podwright import (
    Agent,
    AgentStep,
    ApprovalRequired,
    ApprovalStep,
    Conductor,
    ExecutionResult,
    FunctionStep,
    MapStep,
    Pipeline,
    Remote,
    Workflow,
    WorkflowStep,
)
from podwright.data.json_data import to_text
from podwright.errors import (
    InputError,
    MessagesError,
    ReplayMismatchError,
)
from podwright.messages.conversation import (
    MAX_MESSAGES,
    parse_messages,
    to_data,
    turns,
)
from podwright.messages.messages import MAX_CHARACTERS, Message, ModelRequest
from podwright.models import Connection
from podwright.models.offline.media_tokens import IMAGE_TOKENS
from podwright.models.offline.offline import estimate_input
from podwright.models.protocols.chat_completions import request_body
from podwright.models.protocols.openai_compatible import ChatModel
from podwright.models.providers import ANY
from podwright.run.run import Task, execute
from podwright.testing import (
    FunctionModel,
    ModelResponse,
    ReplayModel,
    ScriptedModel,
    ToolCall,
)

Json = dict[str, Any]

TEXTS = st.text(min_size=1, max_size=30)
JSON_VALUES = st.recursive(
    st.integers() | st.booleans() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.text(max_size=5), inner, max_size=2)
    ),
    max_leaves=4,
).filter(lambda value: value not in ([], {}))
NAMES = st.sampled_from(
    ["reasoning_content", "reasoning_details", "x", "Grüße"]
)
FIELDS = st.dictionaries(NAMES, JSON_VALUES, max_size=2)
"""Further fields of a provider, which nobody here knows."""
IDS = st.text(min_size=1, max_size=20) | st.integers(200, 1500).map(
    lambda length: "s" * length
)


def look(word: str) -> str:
    """Look a word up."""
    return f"{word}: found"


@st.composite
def scripts(draw: st.DrawFn) -> list[tuple[str, list[ModelResponse]]]:
    """Turns: what the user says, and the responses of the model, of which all but the last call tools."""
    script: list[tuple[str, list[ModelResponse]]] = []
    for number in range(draw(st.integers(1, 5))):
        responses: list[ModelResponse] = []
        for loop in range(draw(st.integers(0, 3))):
            words = draw(st.lists(TEXTS, min_size=1, max_size=3))
            calls = [
                replace(
                    ToolCall.of(
                        "look", id=f"{number}.{loop}.{i} {draw(IDS)}", word=word
                    ),
                    provider_fields=draw(FIELDS),
                )
                for i, word in enumerate(words)
            ]
            text = draw(st.just("") | TEXTS)
            responses.append(
                ModelResponse(
                    text,
                    tuple(calls),
                    finish_reason="tool_calls",
                    provider_fields=draw(FIELDS),
                )
            )
        script.append(
            (
                draw(TEXTS),
                [
                    *responses,
                    ModelResponse(
                        draw(st.text(max_size=30)), provider_fields=draw(FIELDS)
                    ),
                ],
            )
        )
    return script


LIMITS = st.fixed_dictionaries(
    {},
    optional={
        "max_history": st.integers(0, 4),
        "max_input_tokens": st.integers(1, 400),
    },
)


def written_out(script: list[tuple[str, list[ModelResponse]]]) -> list[Json]:
    """The messages of some turns in the shape of Chat Completions; empty answers are none."""
    messages: list[Json] = []
    for text, responses in script:
        messages.append({"role": "user", "content": text})
        for response in responses:
            function = [
                {"name": call.name, "arguments": call.arguments}
                for call in response.tool_calls
            ]
            calls = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": function,
                    **call.provider_fields,
                }
                for call, function in zip(
                    response.tool_calls, function, strict=True
                )
            ]
            answer = {
                "role": "assistant",
                "content": response.text,
                **response.provider_fields,
            }
            if calls:
                messages.append(
                    {
                        **answer,
                        "content": response.text or None,
                        "tool_calls": calls,
                    }
                )
            elif response.text.strip():
                messages.append(answer)
            messages += [
                {
                    "role": "tool",
                    "tool_call_id": call.id,
                    "content": look(**json.loads(call.arguments)),
                }
                for call in response.tool_calls
            ]
    return messages


def run_turn(
    turn: tuple[str, list[ModelResponse]], messages: list[Json], limits: Any
) -> tuple[ExecutionResult, list[ModelRequest]]:
    text, responses = turn
    model = ScriptedModel(*responses)
    agent = Agent("guide", "Help.", model, tools=[look], **limits)
    return agent.run(text, trace=True, messages=messages), model.requests


@given(scripts(), LIMITS, st.data())
def test_any_split_into_runs_gives_the_same_requests(
    script: list[tuple[str, list[ModelResponse]]],
    limits: Any,
    data: st.DataObject,
) -> None:
    """Turns that are run one by one, and saved in between, are the same to the model as a history written by hand."""
    first = data.draw(
        st.integers(0, len(script) - 1), label="turns that are not run"
    )
    messages = written_out(script[:first])
    for number in range(first, len(script)):
        by_hand, expected = run_turn(
            script[number], written_out(script[:number]), limits
        )
        result, requests = run_turn(script[number], messages, limits)
        assert requests == expected
        assert (
            result.messages
            == by_hand.messages
            == written_out(script[: number + 1])
        )
        messages = ExecutionResult.from_dict(
            json.loads(json.dumps(result.to_dict()))
        ).messages


@given(scripts(), LIMITS)
def test_a_cut_history_is_whole_turns_within_the_limits(
    script: list[tuple[str, list[ModelResponse]]], limits: Any
) -> None:
    """As many of the last turns are sent as the limits allow, with the system message and all of the current turn."""
    *before, last = script
    earlier = parse_messages(written_out(before))
    result, requests = run_turn(last, written_out(before), limits)
    said = parse_messages(written_out([last]))
    left_out: list[int] = []
    for request in requests:
        system, *rest = request.messages
        kept = tuple(rest[: request.history])
        turn = tuple(rest[request.history :])
        left_out.append(len(earlier) - len(kept))
        assert system == Message("system", "Help.")
        assert said[: len(turn)] == turn
        assert kept == earlier[left_out[-1] :]
        assert to_data(parse_messages(to_data(kept))) == to_data(kept), (
            "each call has its result"
        )
        assert not kept or kept[0].role == "user"
        assert len(turns(kept)) <= limits.get("max_history", 99)
        assert not kept or estimate_input(request) <= limits.get(
            "max_input_tokens", 10**9
        )
        if left_out[-1]:
            one_more = (*turns(earlier[: left_out[-1]])[-1], *kept)
            longer = ModelRequest("", (system, *one_more, *turn), request.tools)
            too_many = len(turns(one_more)) > limits.get("max_history", 99)
            assert too_many or estimate_input(longer) > limits.get(
                "max_input_tokens", 10**9
            )
    changes = [
        after for number, after in pairwise([0, *left_out]) if after != number
    ]
    cuts = events(result, "history_cut")
    assert [cut.messages for cut in cuts] == changes
    assert [cut.turns for cut in cuts] == [
        len(turns(earlier[:number])) for number in changes
    ]


def test_a_turn_that_grows_pushes_earlier_ones_out() -> None:
    """Tool results of the current turn count: further turns are cut in the middle of a run, each time with an event."""
    script = [(text, [ModelResponse(text * 50)]) for text in "abc"]
    calls = [
        ModelResponse(
            tool_calls=(ToolCall.of("look", id=str(n), word="x" * 200),)
        )
        for n in range(3)
    ]
    result, requests = run_turn(
        ("?", [*calls, ModelResponse("!")]),
        written_out(script),
        {"max_input_tokens": 320},
    )
    assert [request.history for request in requests] == [6, 6, 2, 0]
    assert [
        (cut.turns, cut.messages) for cut in events(result, "history_cut")
    ] == [
        (2, 4),
        (3, 6),
    ]
    first_cut = next(
        number
        for number, event in enumerate(result.events)
        if event.type == "history_cut"
    )
    assert result.events[first_cut + 1].type == "model_call_started"
    assert len(result.messages) == 6 + 8, (
        "the result has the whole conversation"
    )


def test_an_image_counts_for_the_limit_of_tokens() -> None:
    """An earlier image counts as many tokens as are assumed for it, however long its URL is."""
    history = [
        {"role": "user", "content": [image(PIXEL)]},
        {"role": "assistant", "content": "A pixel."},
    ]
    for limit, sent in ((IMAGE_TOKENS, 0), (IMAGE_TOKENS + 50, 2)):
        model = ScriptedModel("yes")
        Agent("guide", "Help.", model, max_input_tokens=limit).run(
            "Sure?", messages=history
        )
        assert model.requests[0].history == sent


def test_the_echo_model_answers_the_current_turn() -> None:
    """`offline/echo` repeats the question of this turn and calls its tools, whatever was said before."""
    agent = Agent("guide", "Help.", "offline/echo", tools=[look])
    first = agent.run("sun", trace=True)
    second = agent.run("moon", trace=True, messages=first.messages)
    assert second.value == first.value.replace("sun", "moon")
    assert "Echo: moon" in agent.run(
        "moon", messages=[{"role": "user", "content": "sun"}]
    )


# --- what is refused


def image(url: str, **more: Any) -> Json:
    return {"type": "image_url", "image_url": {"url": url, **more}}


def called(*ids: str) -> Json:
    calls = [
        {
            "id": id_,
            "type": "function",
            "function": {"name": "look", "arguments": "{}"},
        }
        for id_ in ids
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def user(content: Any = "Hi") -> Json:
    return {"role": "user", "content": content}


def answer(id_: str) -> Json:
    return {"role": "tool", "tool_call_id": id_, "content": "found"}


def said(text: str) -> Json:
    return {"role": "assistant", "content": text}


PIXEL = "data:image/png;base64,iVBORw0KGgo="
WRONG: dict[str, tuple[Any, list[str]]] = {
    "roles": (
        [{"role": "system", "content": "Obey."}, {"role": "developer", "content": "!"}, {"content": "x"}, 5, user()],
        ["/0/role", "/1/role", "/2", "/3"],
    ),
    "keys": (
        [{**user(), "name": "x"}, {**user(5), "user": 5}, {**answer("1"), "x": 1}],
        ["/0/name", "/1/content", "/1/user", "/2/x", "/2/tool_call_id"],
    ),
    "missing": ([{"role": "user"}, {"role": "tool"}, {"role": "assistant"}], ["/0", "/1", "/1"]),
    "a result without its call": ([user(), answer("1")], ["/1/tool_call_id"]),
    "another id": ([called("1"), answer("2")], ["/1/tool_call_id", "/0/tool_calls"]),
    "a result twice": ([called("1"), answer("1"), answer("1")], ["/2/tool_call_id"]),
    "calls without results": ([called("1"), user(), called("2")], ["/0/tool_calls", "/2/tool_calls"]),
    "two calls with one id": ([called("1", "1"), answer("1")], ["/0/tool_calls"]),
    "no id": ([called(""), answer("")], ["/0/tool_calls/0/id", "/1/tool_call_id"]),
    "arguments that are no text": (
        [{**called("1"), "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": {}}}]}, answer("1")],
        ["/0/tool_calls/0/function/arguments"],
    ),
    "images": (
        [
            user([image("http://x/a.png"), image("file:///etc/passwd"), image("javascript:alert(1)")]),
            user([image("data:text/html;base64,PGI+"), image("HTTPS://x", detail="huge"), {"type": "text"}]),
            user([{"type": "audio"}, image(""), 7]),
            user([]),
        ],
        ["/0/content/0/image_url/url", "/0/content/1/image_url/url", "/0/content/2/image_url/url",
         "/1/content/0/image_url/url", "/1/content/1/image_url/url", "/1/content/1/image_url/detail", "/1/content/2",
         "/2/content/0/type", "/2/content/1/image_url/url", "/2/content/2", "/3/content"],
    ),
    "a long text": ([user("x" * (MAX_CHARACTERS + 1))], ["/0/content"]),
    "many parts": ([user([{"type": "text", "text": "x"}] * 101)], ["/0/content"]),
    "too many": ([user()] * (MAX_MESSAGES + 1), [""]),
    "no list": ({"role": "user"}, [""]),
    "a text": ("Hi", [""]),
    "a tuple": ((answer("1"),), ["/0/tool_call_id"]),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_all_that_is_wrong_is_reported_at_once(name: str) -> None:
    """Wrong messages are one MessagesError with a JSON pointer for each problem, before any model call."""
    messages, pointers = WRONG[name]
    model = ScriptedModel("never")
    with pytest.raises(MessagesError) as caught:
        Agent("guide", "Help.", model).run("?", messages=messages)
    assert sorted(
        problem.pointer for problem in caught.value.problems
    ) == sorted(pointers)
    assert model.requests == []


def test_the_longest_conversation_is_taken() -> None:
    """As many messages as are allowed are taken."""
    assert (
        Agent("guide", "", ScriptedModel("yes")).run(
            "?", messages=[user()] * MAX_MESSAGES
        )
        == "yes"
    )


EMPTY: dict[str, Json] = {
    "no content": {}, "null": {"content": None}, "an empty text": {"content": ""}, "white space": {"content": " \n"},
    "no parts": {"content": []}, "an empty part": {"content": [{"type": "text", "text": ""}]},
    "no calls": {"content": "", "tool_calls": []}, "null calls": {"content": None, "tool_calls": None},
    "only thoughts": {"content": "", "reasoning_content": "Hm."},
    "as openai writes it": {"content": "", "refusal": None, "annotations": [], "audio": None, "function_call": None},
}  # fmt: skip


@pytest.mark.parametrize("fields", EMPTY.values(), ids=list(EMPTY))
def test_an_empty_answer_is_left_out(fields: Json) -> None:
    """What clients keep of an answer that was stopped before it began, and providers refuse, is not sent.

    Source: github.com/open-webui/open-webui/issues/25083
    """
    model = ScriptedModel("yes", "")
    agent = Agent("guide", "", model)
    result = agent.run(
        "?", messages=[user(), {"role": "assistant", **fields}], trace=True
    )
    assert [message.role for message in model.requests[0].messages] == [
        "user",
        "user",
    ]
    assert [message["role"] for message in result.messages] == [
        "user",
        "user",
        "assistant",
    ]
    assert [
        message["role"] for message in agent.run("?", trace=True).messages
    ] == ["user"]


def test_fields_of_a_provider_keep_their_origin() -> None:
    """The provider whose fields a message has is named in the conversation; further fields must be JSON data."""
    given = {
        "role": "assistant",
        "content": "Hi.",
        "thoughts": {"a": [1]},
        "podwright_provider": "acme",
    }
    (message,) = parse_messages([given])
    assert (message.provider, message.provider_fields) == (
        "acme",
        {"thoughts": {"a": [1]}},
    )
    assert to_data([message]) == [given]
    function: Json = {"name": "look", "arguments": "{}"}
    deep: Json = {}
    for _ in range(3000):
        deep = {"x": deep}
    for wrong in (object(), {1}, deep):
        for call in (
            {"function": {**function, "x": wrong}},
            {"function": function, "x": wrong},
        ):
            with pytest.raises(MessagesError, match="JSON"):
                parse_messages(
                    [
                        {**given, "tool_calls": [{"id": "c", **call}]},
                        answer("c"),
                    ]
                )
        with pytest.raises(MessagesError, match="JSON"):
            parse_messages([{**given, "thoughts": wrong}])
        with pytest.raises(MessagesError, match="JSON"):
            parse_messages([{**given, "": wrong}])
    changed = to_data([message])[0]
    changed["thoughts"]["a"].append(2)
    given["thoughts"]["a"].append(3)
    assert message.provider_fields == {"thoughts": {"a": [1]}}


def test_ids_that_repeat_belong_to_their_turn() -> None:
    """A result goes with the call before it, also where another provider has used the same id."""

    def turn(provider: str) -> list[Message]:
        call = ToolCall("call_1", "look", "{}")
        return [
            Message("assistant", "", (call,), provider=provider),
            Message("tool", "x", tool_call_id="call_1"),
        ]

    request = ModelRequest("b/m", (*turn("a"), *turn("b"), *turn("a")))
    sent = request_body(request, "m", ANY, provider="b", stream=False)[
        "messages"
    ]
    for called, found in zip(sent[::2], sent[1::2], strict=True):
        assert called["tool_calls"][0]["id"] == found["tool_call_id"]
    assert sent[2]["tool_calls"][0]["id"] == "call_1"


@pytest.mark.parametrize(
    "data",
    [[], [image("ftp://x/a.png")], [{"type": "text", "text": 5}], ["text"]],
)
def test_wrong_parts_of_an_input_are_refused(data: Any) -> None:
    """An input of texts and images has at least one, and only images that a provider may fetch."""
    with pytest.raises(MessagesError):
        Agent("guide", "Help.", ScriptedModel("never")).run(data)


@pytest.mark.parametrize(
    "given",
    [{"settings": {"temperature": 1}}, {"instructions": "Be brief."}],
    ids=str,
)
async def test_a_remote_refuses_what_it_cannot_pass_on(given: Any) -> None:
    """Settings and instructions of a caller are not lost silently on the way to another container."""
    with pytest.raises(InputError, match="no settings or instructions"):
        await execute(Remote("far", "http://127.0.0.1:9"), Task("x", **given))


def test_every_kind_takes_a_conversation() -> None:
    """A pipeline gives it to its first agent, a workflow to the steps that ask for it; both add their turn."""
    earlier = [user("Hello"), said("Hi")]
    model = ScriptedModel("one", "two", "three", "four", "five")
    agent = Agent("guide", "Help.", model)
    line = Pipeline("line", [agent, Agent("other", "Help.", model)])
    result = line.run("?", messages=earlier, trace=True)
    assert [len(request.messages) for request in model.requests] == [4, 2]
    assert result.messages == [*earlier, user("?"), said("two")]

    inner = Workflow("inner", [AgentStep(agent, conversation=True)])
    flow = Workflow(
        "flow",
        [
            AgentStep(agent, output="first"),
            WorkflowStep(inner),
            AgentStep(inner, conversation=True, output="last", input="now"),
        ],
    )
    result = flow.run("?", messages=earlier, trace=True)
    assert [len(request.messages) for request in model.requests[2:]] == [
        2,
        4,
        4,
    ]
    assert result.messages == [*earlier, user("?"), said("five")]
    assert "_messages" not in result.value
    with pytest.raises(MessagesError):
        flow.run("?", messages=[{"role": "nobody"}])


def test_a_stopped_workflow_keeps_its_conversation() -> None:
    """Whoever lets it go on need not send the earlier turns again."""
    model = ScriptedModel("done")
    flow = Workflow(
        "flow",
        [
            ApprovalStep("Go?"),
            AgentStep(Agent("guide", "Help.", model), conversation=True),
        ],
    )
    earlier = [user("Hello"), said("Hi")]
    with pytest.raises(ApprovalRequired) as caught:
        flow.run("?", messages=earlier)
    context = json.loads(json.dumps(caught.value.context))
    result = flow.run(context, resume_path=caught.value.resume_path, trace=True)
    assert len(model.requests[0].messages) == 4
    assert result.messages == [*earlier, user("?"), said("done")]


# --- images among named inputs

IMAGE: Json = {"type": "image_url", "image_url": {"url": PIXEL}}


def content_of(model: ScriptedModel, number: int = -1) -> list[Any]:
    """The system message and the user's message of a request."""
    return [message.content for message in model.requests[number].messages]


def test_an_image_in_a_named_input_reaches_the_model() -> None:
    """It is sent beside the texts, in which a word stands for it, also if the instructions name it."""
    model = ScriptedModel(*"abcd")
    agent = Agent("guide", "Help {who} with {photo}.", model)
    agent.run({"who": "Ann", "photo": IMAGE, "question": "What is it?"})
    system, content = content_of(model)
    assert system == "Help Ann with [image]."
    assert content == (
        {
            "type": "text",
            "text": "## photo\n[image]\n\n## question\nWhat is it?",
        },
        IMAGE,
    )
    mixed = [{"type": "text", "text": "This:"}, IMAGE]
    Agent("b", "Look.", model).run({"photo": mixed})
    assert content_of(model)[1] == tuple(mixed)


def test_images_in_workflows() -> None:
    """A step hands on an image by its name, the whole context has it, and a map goes over images."""
    model = ScriptedModel(*"abcdefgh")
    agent = Agent("a", "Look.", model)
    steps = [
        AgentStep(agent, input="{photo}"),
        AgentStep(agent, input={"what": "{photo}", "who": "{who}"}),
        AgentStep(agent, input="Describe {photo} for {who}."),
        MapStep("photos", "one", [AgentStep(agent, input="{one}")]),
    ]
    flow = Workflow("flow", steps)
    flow.run({"photo": IMAGE, "who": "Ann", "photos": [IMAGE, IMAGE]})
    assert content_of(model, 0)[1] == (IMAGE,)
    assert content_of(model, 1)[1][1] == IMAGE
    assert content_of(model, 2)[1] == "Describe [image] for Ann."
    assert content_of(model, 4)[1] == (IMAGE,)
    given = [{"type": "text", "text": "What?"}, IMAGE]
    result = Workflow("flow", [agent]).run(given, trace=True)
    assert content_of(model)[1] == tuple(given)
    assert result.messages[0]["content"] == given
    with pytest.raises(MessagesError):
        agent.run({"photo": {"type": "image_url", "image_url": {"url": "x"}}})


# --- conductors, remotes, structured output


def test_a_conductor_with_a_plan_continues_a_conversation() -> None:
    """The skill calls are part of the conversation, the plan is not; the conductor sees it, not its skills."""
    seen: list[ModelRequest] = []

    def skill(request: ModelRequest) -> str:
        seen.append(request)
        return "found"

    steps = json.dumps({"steps": [{"skill": "search", "task": "find it"}]})
    model = ScriptedModel(
        *[steps, ToolCall.of("search", task="find it"), "It shines."] * 2
    )
    desk = Conductor(
        "desk",
        "Lead.",
        model,
        [Agent("search", "Search.", FunctionModel(skill))],
        planning=True,
    )
    first = desk.run("the moon", trace=True)
    assert [message["role"] for message in first.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    second = desk.run("and the sun?", trace=True, messages=first.messages)
    assert second.messages[:4] == first.messages
    for request in model.requests[3:]:
        assert (
            to_data(request.messages[: 1 + request.history]) == first.messages
        )
        assert request.messages[5].text == "and the sun?"
    assert [len(request.messages) for request in seen] == [2, 2]


def test_a_plan_and_the_work_report_a_cut_once() -> None:
    """A history that is cut for the plan, and for the calls after it alike, is one event."""
    steps = json.dumps({"steps": [{"skill": "search", "task": "find it"}]})
    desk = Conductor(
        "desk", "Lead.", ScriptedModel(steps, "Done."), [Agent("search", "", ScriptedModel())],
        planning=True, max_history=1,
    )  # fmt: skip
    history = [user("one"), user("two"), user("three")]
    (cut,) = events(desk.run("?", trace=True, messages=history), "history_cut")
    assert (cut.turns, cut.messages) == (2, 2)


class City(BaseModel):
    name: str


def test_structured_output_continues_a_conversation() -> None:
    """An answer is a message like others; an answer that did not fit, and its correction, are not in later turns."""
    model = ScriptedModel(
        '{"nam": 1}', '{"name": "Rome"}', '{"name": "Oslo"}', "Yes."
    )
    agent = Agent("guide", "Help.", model)
    first = agent.run("Italy?", City, trace=True)
    second = agent.run("Norway?", City, trace=True, messages=first.messages)
    third = agent.run("Sure?", trace=True, messages=second.messages)
    assert (first.value, second.value, third.value) == (
        City(name="Rome"),
        City(name="Oslo"),
        "Yes.",
    )
    assert [message["role"] for message in third.messages] == [
        "user",
        "assistant",
    ] * 3
    assert third.messages[1]["content"] == '{"name": "Rome"}'
    assert to_data(model.requests[-1].messages) == third.messages[:-1]


async def test_a_remote_gets_the_conversation(provider: Upstream) -> None:
    """A component in another container gets the messages and the images, and its answer continues them."""
    far = Agent("far", "Help.", ScriptedModel("It shines."))
    events_of_run = (await far.arun("x", trace=True)).events
    sent = "".join(
        f"event: {event.type}\ndata: {json.dumps(event.to_dict())}\n\n"
        for event in events_of_run
    )
    provider.answers(
        streamed(
            sent.encode(), b'event: result\ndata: {"output": "It shines."}\n\n'
        )
    )
    remote = Remote("writer", f"http://127.0.0.1:{provider.port}")
    first = await remote.arun("the moon", trace=True)
    data: Any = [{"type": "text", "text": "this?"}, image(PIXEL)]
    second = await remote.arun(data, trace=True, messages=first.messages)
    assert provider.requests == [
        {"input": "the moon"},
        {"input": data, "messages": first.messages},
    ]
    assert second.messages == [
        user("the moon"), {"role": "assistant", "content": "It shines."},
        user(data), {"role": "assistant", "content": "It shines."},
    ]  # fmt: skip


# --- traces, and what the provider gets

PICTURE: Any = [
    {"type": "text", "text": "What is this?"},
    image(PIXEL),
    image("https://example.org/a.png", detail="low"),
]


def test_a_trace_of_a_conversation_with_images_replays() -> None:
    """It survives JSON and replays; another history is a mismatch. A loaded result continues the conversation."""
    agent = Agent("guide", "Help.", "offline/echo", tools=[look])
    first = agent.run(PICTURE, trace=True)
    second = agent.run("And the moon?", trace=True, messages=first.messages)
    saved = ExecutionResult.from_dict(json.loads(json.dumps(second.to_dict())))
    assert saved == second
    replayed = ReplayModel(saved)
    again = Agent("guide", "Help.", replayed, tools=[look])
    assert (
        again.run("And the moon?", trace=True, messages=first.messages).messages
        == saved.messages
    )
    assert replayed.left == []
    with pytest.raises(ReplayMismatchError):
        Agent("guide", "Help.", ReplayModel(saved), tools=[look]).run(
            "And the moon?", messages=first.messages[-1:]
        )
    third = agent.run("Thanks.", trace=True, messages=saved.messages)
    assert third.messages[: len(saved.messages)] == saved.messages


async def test_images_reach_the_provider_unchanged(provider: Upstream) -> None:
    """Texts and images, of this turn and of earlier ones, are sent as they are; nobody fetches them."""
    here = image(f"https://127.0.0.1:{provider.port}/a.png", detail="high")
    data: Any = [*PICTURE, here]
    provider.answers([reply(completion("A pixel."))])
    agent = Agent(
        "guide",
        "Help.",
        ChatModel("openai/gpt-4o-mini", Connection("key", provider.url)),
    )
    first = await agent.arun(data, trace=True)
    await agent.arun("Sure?", messages=first.messages)
    system = {"role": "system", "content": "Help."}
    said = {"role": "assistant", "content": "A pixel."}
    assert [request["messages"] for request in provider.requests] == [
        [system, user(data)], [system, user(data), said, user("Sure?")]
    ]  # fmt: skip
    assert {headers[":line"] for headers in provider.headers} == {
        "POST /v1/chat/completions HTTP/1.1"
    }


def test_messages_beside_declared_inputs() -> None:
    """Earlier messages are no unknown input of a workflow that declares its inputs."""
    model = FunctionModel(lambda request: str(len(request.messages)))
    flow = Workflow(
        "flow",
        [AgentStep(Agent("a", "Answer.", model=model))],
        inputs={"tone": {"type": "string", "default": "dry"}},
    )
    earlier = flow.run("hello", trace=True).messages
    later = flow.run("and now?", messages=earlier, trace=True)
    assert len(later.messages) == 4


@pytest.mark.parametrize("value", [5, [1], ["a"], {}, {"a": 1}, None, True])
def test_data_as_the_input_of_a_workflow(value: Any) -> None:
    """Any JSON data may be the input; the conversation has its text."""
    flow = Workflow("flow", [FunctionStep(look, {"word": "<{input}>"})])
    result = flow.run({"input": value}, trace=True)
    assert result.messages[0]["content"] == to_text(value)
