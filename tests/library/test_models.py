"""Models that need no network, how a name becomes a model, and the helpers for users' own tests."""

import asyncio
import datetime
import decimal
import enum
import json
import uuid
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, HttpUrl
from tests.library.shapes import Json

from podwright import Agent, Conductor, EchoModel, FunctionModel, Model, Pipeline, ScriptedModel, Usage
from podwright import models as providers
from podwright.errors import ConfigurationError, ModelError, UnknownModelError
from podwright.messages import OutputSchema
from podwright.models import DEFAULT, Connection, register_provider, resolve, use_model
from podwright.models.offline import estimate_tokens
from podwright.testing import (
    Message,
    ModelRequest,
    ModelResponse,
    ToolCall,
    assert_events,
    events_of,
    forbid_models,
)
from podwright.tools import to_tool


def request(*texts: str, **fields: Any) -> ModelRequest:
    return ModelRequest("offline/echo", tuple(Message("user", text) for text in texts), **fields)


async def pieces(model: Model, asked: ModelRequest) -> tuple[ModelResponse, list[str]]:
    """The answer, streamed, and its pieces."""
    heard: list[str] = []
    return await model.complete(asked, heard.append), heard


# --- offline/echo


@given(st.text())
def test_an_echo_is_the_same_each_time(text: str) -> None:
    """Whatever it is asked, the echo answers the same every time, streamed or not, with the same usage."""
    asked = request(text)
    first = asyncio.run(EchoModel().complete(asked))
    again, heard = asyncio.run(pieces(EchoModel(), asked))
    assert first == again
    assert first.text.startswith("Echo: ")
    assert "".join(heard) == first.text
    assert first.usage.output_tokens == estimate_tokens(first.text) > 0


async def test_an_echo_streams_word_by_word() -> None:
    """A streamed answer comes in several pieces that join to the text, white space included."""
    answer, heard = await pieces(EchoModel(), request("the dark  side\nof the moon"))
    assert answer.text == "Echo: the dark side of the moon"
    assert heard == ["Echo:", " the", " dark", " side", " of", " the", " moon"]
    scripted, heard = await pieces(ScriptedModel(" two\n\nlines \n"), request("x"))
    assert "".join(heard) == scripted.text == " two\n\nlines \n"


async def test_echoes_of_echoes_do_not_grow() -> None:
    """A long question is cut, so that a long row of agents stays readable."""
    answer = await EchoModel().complete(request("word " * 1000))
    assert len(answer.text) < 200
    line = Pipeline("line", [Agent(f"a{number}", "", "offline/echo") for number in range(30)])
    assert len(line.run("the moon " * 50)) < 200


async def test_token_counts_are_plausible() -> None:
    """Tokens are about a quarter of the bytes; more messages, tools and schemas mean more input tokens."""
    text = "The quick brown fox jumps over the lazy dog. " * 20
    used = (await EchoModel().complete(request(text))).usage
    assert len(text) / 6 < used.input_tokens < len(text) / 3
    more = (await EchoModel().complete(request(text, text))).usage
    assert more.input_tokens > 1.8 * used.input_tokens
    tools = (await EchoModel().complete(request(text, tools=(to_tool(takes_all).schema,)))).usage
    assert tools.input_tokens > used.input_tokens + 50
    assert tools.output_tokens > 0
    assert used.cost == 0.0
    assert EchoModel().price(Usage(input_tokens=10**9)) == 0.0


class Colour(enum.Enum):
    red = "red"
    blue = "blue"


class Place(BaseModel):
    city: str
    at: tuple[float, float]
    note: str = "none"


class Tree(BaseModel):
    name: str
    inner: list["Tree"]


class Link(BaseModel):
    name: str
    after: "Link | None"


TYPES: list[Any] = [
    str, int, float, bool, None, Any, list, dict, list[str], list[int], dict[str, int], tuple[int, str],
    tuple[int, ...], set[int], int | None, int | str, Literal["a", "b"], Literal[1, 2], Colour, list[Colour],
    Place, list[Place], dict[str, Place], Tree, Link, datetime.date,
    datetime.datetime, datetime.time, datetime.timedelta, uuid.UUID,
    decimal.Decimal, HttpUrl,
    Annotated[int, Field(ge=5)], Annotated[int, Field(le=0)], Annotated[int, Field(lt=-3)],
    Annotated[int, Field(gt=5, lt=7)], Annotated[float, Field(gt=0, lt=0.5)], Annotated[float, Field(gt=-2, lt=-1)],
    Annotated[int, Field(multiple_of=7)], Annotated[int, Field(ge=10, multiple_of=7)], Annotated[float, Field(ge=1.5)],
    Annotated[str, Field(min_length=300)], Annotated[str, Field(max_length=3)],
    Annotated[list[int], Field(min_length=3)], Annotated[list[int], Field(max_length=0)],
    Annotated[list[Colour], Field(max_length=1)],
]  # fmt: skip


def takes_all(text: str, number: int, colour: Colour, places: list[Place]) -> str:
    """Take a bit of everything."""
    return f"{text} {number} {colour.value} {places[0].city}"


@pytest.mark.parametrize("kind", TYPES, ids=range(len(TYPES)))
async def test_an_echo_calls_tools_as_their_schemas_say(kind: Any) -> None:
    """The arguments that the echo makes up fit the schema of a tool, and the tool takes them."""

    def tool(value: Any, other: int = 0) -> None: ...

    tool.__annotations__["value"] = kind
    made = to_tool(tool)
    answer = await EchoModel().complete(request("the moon", tools=(made.schema,)))
    (call,) = answer.tool_calls
    assert (call.name, answer.finish_reason, answer.text) == ("tool", "tool_calls", "")
    arguments = json.loads(call.arguments)
    jsonschema.Draft202012Validator(made.schema["function"]["parameters"]).validate(arguments)
    made.arguments.model_validate(arguments)


@pytest.mark.parametrize("kind", TYPES, ids=range(len(TYPES)))
def test_an_echo_answers_as_the_response_model_says(kind: Any) -> None:
    """Structured output of the echo is of the type that was asked for, at the first try."""
    agent = Agent("guide", "", "offline/echo", max_loops=1)
    result = agent.run("the moon", response_model=kind, trace=True)
    assert result.usage.model_calls == 1


def test_an_echo_fills_a_response_model() -> None:
    """The made-up instance has the question for its texts, and the defaults of the model."""
    assert Agent("guide", "", "offline/echo").run("the moon", response_model=Place) == Place(
        city="the moon", at=(1.0, 1.0), note="none"
    )


async def test_made_up_data_fits_foreign_schemas_too() -> None:
    """Schemas of other makers are understood as well: several types, one fixed value, one of several shapes."""
    schema: Json = {
        "type": "object",
        "required": ["a", "b", "c", "d"],
        "properties": {
            "a": {"type": ["integer", "null"]},
            "b": {"const": "fixed"},
            "c": {"oneOf": [{"type": "boolean"}, {"type": "string"}]},
            "d": {"type": "number", "default": 2.5},
        },
    }
    answer = await EchoModel().complete(request("x", output=OutputSchema("answer", schema)))
    assert json.loads(answer.text) == {"a": 1, "b": "fixed", "c": True, "d": 2.5}


def chain(length: int) -> Json:
    links: Json = {f"d{number}": {"$ref": f"#/$defs/d{number + 1}"} for number in range(length)}
    return {"$ref": "#/$defs/d0", "$defs": {**links, f"d{length}": {"type": "integer"}}}


def deep(length: int) -> Json:
    def link(number: int) -> Json:
        return {"type": "object", "required": ["next"], "properties": {"next": {"$ref": f"#/$defs/d{number}"}}}

    return {"$ref": "#/$defs/d0", "$defs": {f"d{number}": link(number + 1) for number in range(length)}}


def doubling(times: int) -> Json:
    def twice(number: int) -> Json:
        return {"type": "array", "prefixItems": [{"$ref": f"#/$defs/d{number}"}] * 2}

    return {"$ref": "#/$defs/d0", "$defs": {f"d{number}": twice(number + 1) for number in range(times)}}


BOMBS: dict[str, Json] = {
    "a type that doubles 40 times": doubling(40),
    "a chain of references": chain(5_000),
    "types inside types": deep(5_000),
    "a long text": {"type": "string", "minLength": 10**12},
    "arrays in arrays": {"items": {"items": {"items": {"items": {"type": "null"}, "minItems": 10**9, "type": "array"},
                         "minItems": 10**9, "type": "array"}, "minItems": 99, "type": "array"}, "minItems": 99,
                         "type": "array"},
    "long values many times": {"type": "array", "minItems": 64, "items": {"type": "array", "minItems": 64,
                               "items": {"const": "x" * 1_000_000}}},
    "a choice of many": {"type": "array", "maxItems": 10**9, "items": {"properties": {"a": {"enum": [1] * 9_999}}}},
    "no choice": {"enum": []},
    "alternatives that are none": {"anyOf": ["x"]},
    "nothing of its kind": {"type": 5, "properties": 5, "required": 5, "$defs": [], "items": [True], "format": []},
    "an object of none": {"type": "object", "properties": [], "required": [5, [], "a"]},
    "an array of none": {"type": "array", "items": True, "minItems": "x", "prefixItems": 5},
    "a text of none": {"type": "string", "minLength": None, "maxLength": -3},
    "numbers that are none": {"type": "integer", "minimum": "x", "multipleOf": 0, "maximum": float("inf")},
    "huge numbers": {"type": "number", "minimum": 10**400, "maximum": 1e308, "multipleOf": 1e-300},
}  # fmt: skip


@pytest.mark.parametrize("bomb", BOMBS)
async def test_any_schema_has_a_small_example(bomb: str) -> None:
    """A schema that asks for too much, or makes no sense, is answered with something small."""
    answer = await EchoModel().complete(request("x", output=OutputSchema("answer", BOMBS[bomb])))
    assert len(answer.text) < 2_100_000
    json.loads(answer.text)


def test_an_echo_uses_each_tool_once() -> None:
    """The echo calls each tool once, then answers with what it found."""

    def first(word: str) -> str:
        return f"first {word}"

    def second(word: str) -> str:
        return f"second {word}"

    result = Agent("guide", "", "offline/echo", tools=[first, second]).run("moon", trace=True)
    assert result.value == "Echo: moon (found: first moon; second moon)"
    assert result.usage.tool_calls == 2
    assert_events(result, "tool_call_finished tool=first", "run_finished")


async def test_an_echo_obeys_a_tool_choice() -> None:
    """A tool that the request insists on is called, even if it was called before."""
    tools = (to_tool(takes_all).schema,)
    asked = ModelRequest(
        "offline/echo",
        (Message("user", "x"), Message("assistant", tool_calls=(ToolCall.of("takes_all"),))),
        tools=tools,
        tool_choice="takes_all",
    )
    answer = await EchoModel().complete(asked)
    assert [call.name for call in answer.tool_calls] == ["takes_all"]


def test_an_echo_plans() -> None:
    """The echo's plan names every skill once and is revised once, so a conductor can be shown with no model vendor."""
    skills = [Agent(name, "Help.", "offline/echo") for name in ("researcher", "writer", "reviewer")]
    result = Conductor("desk", "Lead.", "offline/echo", skills, planning=True).run("the moon", trace=True)
    plans: list[Any] = events_of(result, "plan_made")
    assert [plan.revision for plan in plans] == [0, 1]
    for plan in plans:
        assert [step.skill for step in plan.steps] == ["researcher", "writer", "reviewer"]


# --- scripted and function models


async def test_a_script_is_followed() -> None:
    """A scripted model gives texts, responses and tool calls in order, keeps what it was asked, and then fails."""
    one, two = ToolCall.of("look", id="1", word="a"), ToolCall.of("look", id="2", word="b")
    whole = ModelResponse("whole", usage=Usage(input_tokens=5, output_tokens=7, cost=0.5), model="vendor/model")
    model = ScriptedModel("text", whole, one, [one, two], name="offline/mine")
    answers = [await model.complete(request(str(number))) for number in range(4)]
    assert [answer.text for answer in answers] == ["text", "whole", "", ""]
    assert [answer.tool_calls for answer in answers] == [(), (), (one,), (one, two)]
    assert [answer.finish_reason for answer in answers] == ["stop", "stop", "tool_calls", "tool_calls"]
    assert answers[1] is whole
    assert answers[0].model == "offline/mine"
    assert [asked.messages[0].content for asked in model.requests] == ["0", "1", "2", "3"]
    with pytest.raises(ModelError, match="The script of 'offline/mine' has ended: call 5 has no answer") as caught:
        await model.complete(request("more"))
    assert "Add an answer" in caught.value.suggestion


async def test_a_script_may_raise() -> None:
    """An exception in a script is raised in its turn."""
    model = ScriptedModel(ValueError("broken"), "fine")
    with pytest.raises(ValueError, match="broken"):
        await model.complete(request("x"))
    assert (await model.complete(request("x"))).text == "fine"
    with pytest.raises(ModelError, match="Model 'offline/scripted' raised ValueError: broken") as caught:
        Agent("guide", "", ScriptedModel(ValueError("broken"))).run("x")
    assert isinstance(caught.value.__cause__, ValueError)


def plain_answer(asked: ModelRequest) -> Any:
    return f"{asked.component}: {asked.messages[-1].content}"


async def async_answer(asked: ModelRequest) -> Any:
    await asyncio.sleep(0)
    return ModelResponse(plain_answer(asked))


@pytest.mark.parametrize("function", [plain_answer, async_answer])
def test_a_function_answers(function: Callable[[ModelRequest], Any]) -> None:
    """A function, blocking or async, is given the whole request, and its answer is counted."""
    model = FunctionModel(function, name="offline/mine")
    result = Agent("guide", "", model).run("the moon", trace=True)
    assert result.value == "guide: the moon"
    assert result.usage.by_model["offline/mine"].output_tokens == estimate_tokens(result.value)
    assert result.usage.cost == 0.0


def test_a_function_may_call_tools() -> None:
    """A function that returns tool calls has them done before it is asked again."""

    def answer(asked: ModelRequest) -> Any:
        last = asked.messages[-1]
        return f"It says {last.content}." if last.role == "tool" else [ToolCall.of("look", word="moon")]

    def look(word: str) -> str:
        return word.upper()

    assert Agent("guide", "", FunctionModel(answer), tools=[look]).run("?") == "It says MOON."


# --- names


@pytest.fixture
def clean_providers() -> Iterator[None]:
    """Providers that a test registers are forgotten after it."""
    known, resolved = dict(providers._providers), dict(providers._resolved)
    yield
    providers._providers.clear()
    providers._providers.update(known)
    providers._resolved.clear()
    providers._resolved.update(resolved)


@pytest.mark.usefixtures("clean_providers")
def test_a_provider_makes_models_by_name() -> None:
    """A registered provider is asked once for each model and connection, with the part behind the first slash."""
    asked: list[tuple[str, Connection]] = []

    def provider(name: str, connection: Connection) -> Model:
        asked.append((name, connection))
        return FunctionModel(lambda request: f"{name} answers", name=f"mine/{name}")

    register_provider("mine", provider)
    agents = [Agent("guide", "", "mine/deep/model:1") for _ in range(2)]
    assert [agent.run("x") for agent in agents] == ["deep/model:1 answers"] * 2
    assert asked == [("deep/model:1", DEFAULT)]
    assert Agent("guide", "", "mine/other", api_key="sk-1", base_url="http://x").run("x") == "other answers"
    assert asked[1:] == [("other", Connection("sk-1", "http://x"))]
    assert "sk-1" not in repr(asked)
    register_provider("mine", lambda name, connection: ScriptedModel("new"))
    assert agents[0].run("x") == "new", "one that is replaced is asked no more"


@pytest.fixture
def without_litellm(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where LiteLLM is not there to know more providers."""
    monkeypatch.setenv("PODWRIGHT_MODEL_LANE", "direct")


def test_a_misspelt_provider_is_told_at_once() -> None:
    """A name that is nearly a known one is not handed on to LiteLLM, which takes seconds to say no."""
    with pytest.raises(UnknownModelError, match="Did you mean 'offline'"):
        resolve("ofline/echo")


@pytest.mark.usefixtures("clean_providers")
@pytest.mark.parametrize("name", ["", "mine/too"])
def test_a_provider_has_a_name_that_can_be_named(name: str) -> None:
    """A provider's name is what stands before the first slash, so it has none, and is not empty."""
    with pytest.raises(ConfigurationError, match="A provider cannot be called"):
        register_provider(name, lambda model, connection: ScriptedModel())


@pytest.mark.usefixtures("clean_providers")
def test_a_provider_makes_models() -> None:
    """A provider that makes something else is one clear error; a model without a name takes the one it was asked by."""
    register_provider("mine", lambda name, connection: None)  # type: ignore[arg-type,return-value]
    with pytest.raises(ConfigurationError, match="which is no Model"):
        resolve("mine/a")

    class Nameless(Model):
        async def complete(self, request: ModelRequest, on_token: Any = None) -> Any:
            return ModelResponse("yes") if request.messages[-1].content == "good" else "a text"

    register_provider("mine", lambda name, connection: Nameless())
    agent = Agent("guide", "", "mine/a")
    result = agent.run("good", trace=True)
    assert list(result.usage.by_model) == ["mine/a"]
    assert (result.usage.cost, result.usage.unpriced_model_calls) == (None, 1), "what is not said is not free"
    with pytest.raises(ModelError, match="returned str, no ModelResponse"):
        agent.run("bad")


@pytest.mark.parametrize(
    ("name", "message", "suggestion"),
    [
        ("ofline/echo", "Unknown model provider 'ofline' in 'ofline/echo'.", "Did you mean 'offline'? Or make yours"),
        ("zzz/model", "Unknown model provider 'zzz' in 'zzz/model'.", "Known names: "),
        ("echo", "The model 'echo' has no provider.", "Write it as '<provider>/echo'"),
        ("offline/eco", "Unknown offline model 'offline/eco'.", "Use 'offline/echo'"),
        ("", "The model '' has no provider.", "Write it as '<provider>/'"),
    ],
)
@pytest.mark.usefixtures("clean_providers", "without_litellm")
def test_an_unknown_model_is_told_with_the_known_ones(name: str, message: str, suggestion: str) -> None:
    """A name that nobody provides is an error with what is known, or nearest."""
    for known in [known for known in providers._providers if known != "offline"]:
        del providers._providers[known]
    with pytest.raises(UnknownModelError) as caught:
        resolve(name)
    assert caught.value.message == message
    assert caught.value.suggestion.startswith(suggestion)


def test_a_url_is_no_model() -> None:
    """Where LiteLLM takes any name, one that no provider could have is refused all the same."""
    with pytest.raises(UnknownModelError, match="'http:'"):
        resolve("http://elsewhere.example/v1")


@pytest.mark.usefixtures("without_litellm")
def test_a_component_with_an_unknown_model_can_be_made() -> None:
    """The model is looked up when it is asked, so a blueprint can be loaded where its model is not to be had."""
    agent = Agent("guide", "", "nowhere/model")
    with pytest.raises(UnknownModelError, match="'nowhere'") as caught:
        agent.run("x")
    assert caught.value.component == "guide"
    assert agent.models() == ["nowhere/model"]


@pytest.mark.usefixtures("without_litellm")
async def test_a_model_may_stand_in_for_all() -> None:
    """Within `use_model` one model answers for every component, whatever it names; the innermost counts."""
    agent = Agent("guide", "", "nowhere/model")
    with use_model("offline/echo") as chosen:
        assert isinstance(chosen, EchoModel)
        assert await agent.arun("x") == "Echo: x"
        with use_model(ScriptedModel("inner")):
            assert await agent.arun("x") == "inner"
            with use_model("offline/echo"):
                assert await agent.arun("x") == "Echo: x"
        assert await agent.arun("x") == "Echo: x"
    with pytest.raises(UnknownModelError):
        await agent.arun("x")
    with pytest.raises(UnknownModelError), use_model("nowhere/model"):
        pass


def test_a_stand_in_holds_for_synchronous_runs_too() -> None:
    """`use_model` reaches runs that are driven on the background loop."""
    line = Pipeline("line", [Agent("a", "", "nowhere/a"), Agent("b", "", ScriptedModel())])
    with use_model(FunctionModel(plain_answer)):
        assert line.run("x") == "b: a: x"


# --- podwright.testing


def test_forbidden_models_are_not_called() -> None:
    """Within `forbid_models` every model call is an error that names who asked; an inner stand-in is allowed."""
    agent = Agent("guide", "", "offline/echo")
    with forbid_models():
        with pytest.raises(ModelError, match="The test called the model of 'guide', which is forbidden here"):
            agent.run("x")
        with use_model("offline/echo"):
            assert agent.run("x") == "Echo: x"
    assert agent.run("x") == "Echo: x"


def test_events_can_be_asserted() -> None:
    """`assert_events` takes events in their order with gaps, checks fields, and says what happened instead."""
    result = Agent("guide", "", "offline/echo", tools=[len_of]).run("moon", trace=True)
    assert_events(result, "run_started", "tool_call_started tool=len_of", "tool_call_finished output=4", "run_finished")
    assert_events(result.events, "model_call_finished call=0", "model_call_finished call=1")
    assert_events(result)
    for wrong in (
        ["run_finished", "run_started"],
        ["tool_call_finished output=5"],
        ["tool_call_started tool=len_of", "tool_call_started tool=len_of"],
        ["step_started"],
        ["run_started nothing=1"],
    ):
        with pytest.raises(AssertionError, match=f"'{wrong[-1]}' did not happen in its turn") as caught:
            assert_events(result, *wrong)
        assert "  run_started (guide)" in str(caught.value)


def len_of(word: str) -> int:
    return len(word)


def test_events_can_be_picked() -> None:
    """`events_of` gives the events of some types, or all."""
    result = Agent("guide", "", "offline/echo").run("moon", trace=True)
    assert [event.type for event in events_of(result)] == [event.type for event in result.events]
    assert [event.type for event in events_of(result.events, "run_finished", "run_started")] == [
        "run_started",
        "run_finished",
    ]
