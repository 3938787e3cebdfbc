"""Models that need no network, the registry of models, and the helpers for users' own tests."""

import asyncio
import datetime
import decimal
import enum
import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, HttpUrl

from podwright import (
    Agent,
    Conductor,
    EchoModel,
    FunctionModel,
    Model,
    Pipeline,
    ScriptedModel,
    Usage,
    Workflow,
    load,
)
from podwright.components import AgentStep
from podwright.errors import (
    ConfigurationError,
    ModelError,
    ModelUnavailableError,
    OutputError,
    UnknownModelError,
)
from podwright.folders.walks import walk
from podwright.messages.messages import OutputSchema
from podwright.models import Connection, register_provider, resolve, use_model
from podwright.models.offline.offline import estimate_tokens
from podwright.models.registry import DEFAULT
from podwright.models.retries import Retries
from podwright.run.component import ModelComponent
from podwright.testing import (
    Message,
    ModelRequest,
    ModelResponse,
    ToolCall,
    assert_events,
    events_of,
    forbid_models,
)
from podwright.tools.function_schema import function_schema
from podwright.tools.function_tool import to_tool


def request(*texts: str, **fields: Any) -> ModelRequest:
    return ModelRequest(
        "offline/echo", tuple(Message("user", text) for text in texts), **fields
    )


async def stream(
    model: Model, request: ModelRequest
) -> tuple[ModelResponse, list[str]]:
    """The response, streamed, and its pieces."""
    pieces: list[str] = []
    return await model.complete(request, pieces.append), pieces


# --- offline/echo


@given(st.text())
def test_an_echo_is_the_same_each_time(text: str) -> None:
    """The echo answers the same every time, streamed or not, with the same usage."""
    first = asyncio.run(EchoModel().complete(request(text)))
    again, pieces = asyncio.run(stream(EchoModel(), request(text)))
    assert first == again
    assert first.text.startswith("Echo: ")
    assert "".join(pieces) == first.text
    assert first.usage.output_tokens == estimate_tokens(first.text) > 0


async def test_an_echo_streams_word_by_word() -> None:
    """A streamed answer comes in several pieces that join to the text, white space included."""
    response, pieces = await stream(
        EchoModel(), request("the dark  side\nof the moon")
    )
    assert response.text == "Echo: the dark side of the moon"
    assert pieces == ["Echo:", " the", " dark", " side", " of", " the", " moon"]
    scripted, pieces = await stream(
        ScriptedModel(" two\n\nlines \n"), request("x")
    )
    assert "".join(pieces) == scripted.text == " two\n\nlines \n"


def test_echoes_of_echoes_do_not_grow() -> None:
    """A long question is shortened, so that a long row of agents stays readable."""
    line = Pipeline(
        "line",
        [Agent(f"a{number}", "", "offline/echo") for number in range(30)],
    )
    assert len(line.run("the moon " * 50)) < 200


async def test_token_estimates_are_plausible() -> None:
    """Tokens are about a quarter of the bytes; more messages, tools and schemas mean more input tokens."""
    text = "The quick brown fox jumps over the lazy dog. " * 20
    usage = (await EchoModel().complete(request(text))).usage
    assert len(text) / 6 < usage.input_tokens < len(text) / 3
    twice = (await EchoModel().complete(request(text, text))).usage
    assert twice.input_tokens > 1.8 * usage.input_tokens
    with_tool = (
        await EchoModel().complete(
            request(text, tools=(to_tool(takes_all).schema,))
        )
    ).usage
    assert with_tool.input_tokens > usage.input_tokens + 50
    assert usage.cost == 0.0
    assert EchoModel().cost(Usage(input_tokens=10**9)) == 0.0


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


class Expression(BaseModel):
    inner: "int | Expression"


class Left(BaseModel):
    inner: "Left | int"


class Sum(BaseModel):
    parts: tuple["Sum | Number", "Sum | Number"]


class Number(BaseModel):
    of: "Sum | int"


class Round(BaseModel):
    others: Annotated[list["Round | str"], Field(min_length=2)]
    by_name: dict[str, "Round"]


TYPES: list[Any] = [
    str, int, float, bool, None, Any, list, dict, list[str], list[int], dict[str, int], tuple[int, str],
    tuple[int, ...], set[int], int | None, int | str, Literal["a", "b"], Literal[1, 2], Colour, list[Colour],
    Place, list[Place], dict[str, Place], Tree, Link, Expression, Left, Sum, Number, Round, list[Sum], datetime.date,
    datetime.datetime, datetime.time, datetime.timedelta, uuid.UUID,
    decimal.Decimal, HttpUrl,
    Annotated[int, Field(ge=5)], Annotated[int, Field(le=0)], Annotated[int, Field(lt=-3)],
    Annotated[int, Field(gt=5, lt=7)], Annotated[int, Field(ge=2, lt=3)], Annotated[int, Field(gt=2, le=3)],
    Annotated[float, Field(gt=0, lt=0.5)], Annotated[float, Field(gt=-2, lt=-1)], Annotated[float, Field(ge=1.5)],
    Annotated[int, Field(multiple_of=7)], Annotated[int, Field(ge=10, multiple_of=7)],
    Annotated[str, Field(min_length=300)], Annotated[str, Field(max_length=3)],
    Annotated[list[int], Field(min_length=3)], Annotated[list[int], Field(max_length=0)],
    Annotated[list[Colour], Field(max_length=1)],
]  # fmt: skip


def takes_all(
    text: str, number: int, colour: Colour, places: list[Place]
) -> str:
    """Take a bit of everything."""
    return f"{text} {number} {colour.value} {places[0].city}"


@pytest.mark.parametrize("kind", TYPES, ids=range(len(TYPES)))
async def test_an_echo_calls_tools_with_valid_arguments(kind: Any) -> None:
    """The example arguments fit the schema of a tool, and the tool takes them."""

    def tool(value: Any, other: int = 0) -> None: ...

    tool.__annotations__["value"] = kind
    made = to_tool(tool)
    response = await EchoModel().complete(
        request("the moon", tools=(made.schema,))
    )
    (call,) = response.tool_calls
    assert (call.name, response.finish_reason, response.text) == (
        "tool",
        "tool_calls",
        "",
    )
    arguments = json.loads(call.arguments)
    jsonschema.Draft202012Validator(
        made.schema["function"]["parameters"]
    ).validate(arguments)
    function_schema(tool).arguments.validate_python(arguments)


@pytest.mark.parametrize("kind", TYPES, ids=range(len(TYPES)))
def test_an_echo_fits_the_response_model(kind: Any) -> None:
    """Structured output of the echo has the requested type at the first attempt."""
    agent = Agent("guide", "", "offline/echo", max_loops=1)
    assert (
        agent.run("the moon", response_model=kind, trace=True).usage.model_calls
        == 1
    )


def test_an_echo_fills_a_response_model() -> None:
    """The example has the question for its texts, and the defaults of the model."""
    place = Agent("guide", "", "offline/echo").run(
        "the moon", response_model=Place
    )
    assert place == Place(city="the moon", at=(1.0, 1.0), note="none")


async def test_examples_fit_foreign_schemas() -> None:
    """Several types, a fixed value, one of several shapes and a default are understood."""
    schema: dict[str, Any] = {
        "type": "object",
        "required": ["a", "b", "c", "d"],
        "properties": {
            "a": {"type": ["integer", "null"]},
            "b": {"const": "fixed"},
            "c": {"oneOf": [{"type": "boolean"}, {"type": "string"}]},
            "d": {"type": "number", "default": 2.5},
        },
    }
    response = await EchoModel().complete(
        request("x", output=OutputSchema("answer", schema))
    )
    assert json.loads(response.text) == {
        "a": 1,
        "b": "fixed",
        "c": True,
        "d": 2.5,
    }


def chain(
    length: int, link: Callable[[dict[str, Any]], dict[str, Any]]
) -> dict[str, Any]:
    """Definitions that each refer to the next one."""
    links = {
        f"d{number}": link({"$ref": f"#/$defs/d{number + 1}"})
        for number in range(length)
    }
    return {
        "$ref": "#/$defs/d0",
        "$defs": {**links, f"d{length}": {"type": "integer"}},
    }


ENDLESS: dict[str, dict[str, Any]] = {
    "a chain of references": chain(5_000, lambda inner: inner),
    "types in types": chain(
        5_000,
        lambda inner: {
            "type": "object",
            "required": ["next"],
            "properties": {"next": inner},
        },
    ),
    "a definition of itself": {
        "$ref": "#/$defs/a",
        "$defs": {"a": {"$ref": "#/$defs/a"}},
    },
}


UNBOUNDED: dict[str, dict[str, Any]] = {
    "a long text": {"type": "string", "minLength": 10**9},
    "many items": {"type": "array", "items": {"type": "string"}, "minItems": 10**9},
    "many items in items": {
        "type": "array", "minItems": 400, "items": {"type": "array", "minItems": 400, "items": {"type": "integer"}},
    },
    "references": chain(
        12, lambda inner: {"type": "object", "required": ["a", "b"], "properties": dict.fromkeys("ab", inner)}
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "schema",
    [*ENDLESS.values(), *UNBOUNDED.values()],
    ids=[*ENDLESS, *UNBOUNDED],
)
async def test_an_example_is_bounded(schema: dict[str, Any]) -> None:
    """A type that contains itself ends after some levels; one that wants more than fits into memory is cut off."""
    response = await EchoModel().complete(
        request("x", output=OutputSchema("answer", schema))
    )
    assert len(response.text) < 100_000


def test_an_echo_calls_each_tool_once() -> None:
    """The echo calls each tool once, then answers with what they returned."""

    def first(word: str) -> str:
        return f"first {word}"

    def second(word: str) -> str:
        return f"second {word}"

    result = Agent("guide", "", "offline/echo", tools=[first, second]).run(
        "moon", trace=True
    )
    assert result.value == "Echo: moon (found: first moon; second moon)"
    assert result.usage.tool_calls == 2


async def test_an_echo_obeys_a_tool_choice() -> None:
    """A tool that the request insists on is called, even if it was called before."""
    messages = (
        Message("user", "x"),
        Message("assistant", tool_calls=(ToolCall.of("takes_all"),)),
    )
    tools = (to_tool(takes_all).schema,)
    response = await EchoModel().complete(
        ModelRequest("offline/echo", messages, tools, tool_choice="takes_all")
    )
    assert [call.name for call in response.tool_calls] == ["takes_all"]


def test_an_echo_plans() -> None:
    """The echo's plan names every skill once and is revised once, so a conductor can be shown without a provider."""
    skills = [
        Agent(name, "Help.", "offline/echo")
        for name in ("researcher", "writer", "reviewer")
    ]
    result = Conductor(
        "desk", "Lead.", "offline/echo", skills, planning=True
    ).run("the moon", trace=True)
    plans: list[Any] = events_of(result, "plan_made")
    assert [plan.revision for plan in plans] == [0, 1]
    assert {tuple(step.skill for step in plan.steps) for plan in plans} == {
        ("researcher", "writer", "reviewer")
    }


# --- scripted and function models


async def test_a_script_is_followed() -> None:
    """A scripted model gives texts, responses and tool calls in order, keeps the requests, and then fails."""
    first = ToolCall.of("look", id="1", word="a")
    second = ToolCall.of("look", id="2", word="b")
    whole = ModelResponse(
        "whole",
        usage=Usage(input_tokens=5, output_tokens=7, cost=0.5),
        model="vendor/model",
    )
    model = ScriptedModel(
        "text", whole, first, [first, second], name="offline/mine"
    )
    responses = [
        await model.complete(request(str(number))) for number in range(4)
    ]
    assert [response.text for response in responses] == [
        "text",
        "whole",
        "",
        "",
    ]
    assert [response.tool_calls for response in responses] == [
        (),
        (),
        (first,),
        (first, second),
    ]
    assert [response.finish_reason for response in responses] == [
        "stop",
        "stop",
        "tool_calls",
        "tool_calls",
    ]
    assert responses[1] is whole
    assert responses[0].model == "offline/mine"
    assert [request.messages[0].text for request in model.requests] == [
        "0",
        "1",
        "2",
        "3",
    ]
    with pytest.raises(
        ModelError, match="'offline/mine' has no answer for call 5"
    ):
        await model.complete(request("more"))


async def test_a_script_may_raise() -> None:
    """An exception in a script is raised in its turn; a run wraps one that is no error of ours."""
    model = ScriptedModel(ValueError("broken"), "fine")
    with pytest.raises(ValueError, match="broken"):
        await model.complete(request("x"))
    assert (await model.complete(request("x"))).text == "fine"
    with pytest.raises(ModelError, match="ValueError: broken") as caught:
        await Agent("guide", "", ScriptedModel(ValueError("broken"))).arun("x")
    assert isinstance(caught.value.__cause__, ValueError)


class Weather(BaseModel):
    """A structured answer."""

    city: str
    days: int = 1


ROME = Weather(city="Rome")


@pytest.mark.parametrize(
    ("answer", "response_model", "value"),
    [
        (ROME, Weather, ROME),
        ({"city": "Rome"}, Weather, ROME),
        (lambda request: {"city": "Rome"}, Weather, ROME),
        ([ROME, {"city": "Rome"}], list[Weather], [ROME, ROME]),
        ([], list[str], []),
        (5, int, 5),
        (None, int | None, None),
        (False, bool, False),
        ({"answer": "yes"}, str | int, "yes"),
        ({"answer": 3}, dict[str, int], {"answer": 3}),
        ('{"city": "Rome"}', Weather, ROME),
    ],
)
def test_plain_values_are_structured_answers(
    answer: Any, response_model: Any, value: Any
) -> None:
    """Data and pydantic models become the JSON that the request asks for, wrapped or not; a text is sent as it is."""
    for model in (ScriptedModel(answer), FunctionModel(lambda _: answer)):
        agent = Agent("guide", "", model)
        assert agent.run("x", response_model=response_model) == value


def test_a_plain_value_without_a_schema_is_its_json() -> None:
    """Without a response model, data is given as JSON text."""
    assert Agent("a", "", ScriptedModel({"n": [1]})).run("x") == '{"n": [1]}'


def test_answers_by_condition() -> None:
    """An answer goes to the requests with a text, or to those that a function means; then the script goes on."""
    model = (
        ScriptedModel("plain", "plain again")
        .when("You review", "good", "better")
        .when(lambda request: request.component == "boss", lambda _: "do it")
    )
    reviewer = Agent("reviewer", "You review.", model)
    other = Agent("other", "You write.", model)
    boss = Agent("boss", "You lead.", model)
    assert [
        agent.run("x")
        for agent in (other, boss, reviewer, boss, reviewer, reviewer)
    ] == ["plain", "do it", "good", "do it", "better", "plain again"]


def test_functions_in_a_script_answer_all_further_requests() -> None:
    """A function, also an async one, is not used up."""

    async def shout(request: ModelRequest) -> str:
        return request.messages[-1].text.upper()

    agent = Agent("guide", "", ScriptedModel("first", shout))
    assert [agent.run(text) for text in "abc"] == ["first", "B", "C"]


def double(number: int) -> int:
    """Double a number."""
    return 2 * number


@pytest.mark.parametrize(
    ("answer", "response_model", "reason", "shown"),
    [
        (
            {"town": "Rome"},
            Weather,
            "does not fit the schema",
            '{"town": "Rome"}',
        ),
        ("Rome", Weather, "invalid JSON", "'Rome'"),
        (
            ToolCall.of("double", number="x"),
            None,
            "number",
            'double({"number": "x"})',
        ),
        (ToolCall.of("dubble", number=1), None, "dubble", "dubble("),
        ([ToolCall.of("double", number=2)], None, "4", "double("),
        (ModelResponse("Rome"), Weather, "invalid JSON", "'Rome'"),
        (lambda _: "Rome", Weather, None, ""),
    ],
    ids=["data", "text", "arguments", "tool", "tools", "response", "function"],
)
def test_the_end_of_a_script_says_what_came_last(
    answer: Any, response_model: Any, reason: str | None, shown: str
) -> None:
    """The error has the calls before and the last message, which says why an answer was refused."""
    model = ScriptedModel(answer)
    agent = Agent("guide", "Help.", model, tools=[double], max_loops=3)
    if reason is None:
        with pytest.raises(OutputError):
            agent.run("x", response_model=response_model)
        assert len(model.requests) == 3
        return
    with pytest.raises(ModelError) as ended:
        agent.run("x", response_model=response_model)
    first, *calls = ended.value.message.splitlines()
    assert "no answer for call 2 of 'guide'" in first
    assert reason in first
    assert len(calls) == 1
    assert "call 1 of 'guide'" in calls[0]
    assert shown in calls[0]


def test_the_end_of_a_long_script_is_short() -> None:
    """The error shows the last ten calls, each in a line."""
    model = ScriptedModel(*["long " * 200] * 15)
    agent = Agent("guide", "", model)
    for _ in range(15):
        agent.run("x")
    with pytest.raises(ModelError) as ended:
        agent.run("x")
    lines = ended.value.message.splitlines()
    assert [line.split()[2] for line in lines[1:]] == [
        str(number) for number in range(6, 16)
    ]
    assert max(map(len, lines)) < 400


def plain_answer(request: ModelRequest) -> Any:
    return f"{request.component}: {request.messages[-1].text}"


async def async_answer(request: ModelRequest) -> Any:
    return ModelResponse(plain_answer(request))


@pytest.mark.parametrize("function", [plain_answer, async_answer])
def test_a_function_answers(function: Callable[[ModelRequest], Any]) -> None:
    """A function, plain or async, gets the whole request, and its answer is counted."""
    result = Agent(
        "guide", "", FunctionModel(function, name="offline/mine")
    ).run("the moon", trace=True)
    assert result.value == "guide: the moon"
    assert result.usage.by_model[
        "offline/mine"
    ].output_tokens == estimate_tokens(result.value)
    assert result.usage.cost == 0.0


# --- errors in a caller's own model


class Careless(Model):
    """A caller's model with an error in one of its methods."""

    name = "acme/careless"

    def __init__(self, fault: str) -> None:
        self._fault = fault

    async def complete(
        self, request: ModelRequest, on_token: Any = None
    ) -> ModelResponse:
        if self._fault == "raises":
            raise LookupError("no such row")
        if self._fault == "exits":
            raise SystemExit(3)
        if self._fault == "returns":
            wrong: Any = None
            return wrong
        return ModelResponse("fine")

    def cost(self, usage: Usage) -> float | None:
        return len(self._fault) / 0


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("raises", "LookupError: no such row"),
        ("exits", "SystemExit: 3"),
        ("returns", "NoneType, not ModelResponse"),
        ("costs", "ZeroDivisionError"),
    ],
)
@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streaming"])
def test_an_error_in_a_callers_model_names_its_class(
    fault: str, reason: str, stream: bool
) -> None:
    """An exception of a caller's model class is a model error that names the class; the text is not for callers."""
    with pytest.raises(ModelError, match=reason) as caught:
        Agent("guide", "", Careless(fault)).run("x", stream=stream)
    error = caught.value
    assert type(error) is ModelError
    assert error.__cause__ is not None
    for text in (error.message, error.to_dict()["message"]):
        assert f"{__name__}.Careless' of the model 'acme/careless'" in text
    assert "Careless" in error.suggestion
    assert "provider" not in error.message + error.suggestion
    assert "no such row" not in json.dumps(error.to_dict())


def test_an_error_in_a_providers_function_names_the_provider(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An exception of the function behind `register_provider` is a configuration error with its type and text."""
    monkeypatch.setattr("podwright.models.registry._providers", {})

    def make(model_name: str, connection: Connection) -> Model:
        raise LookupError(f"no {model_name}")

    register_provider("acme", make)
    with pytest.raises(
        ConfigurationError, match="'acme/big' raised LookupError: no big"
    ) as caught:
        Agent("guide", "", "acme/big").run("x")
    assert isinstance(caught.value.__cause__, LookupError)


# --- the registry


@pytest.fixture(autouse=True)
def without_litellm(monkeypatch: pytest.MonkeyPatch) -> None:
    """LiteLLM provides no names."""
    monkeypatch.setenv("PODWRIGHT_MODEL_CLIENT", "openai")


def test_a_provider_makes_models_by_name() -> None:
    """A provider is called once for each model and connection, with the part behind the first slash."""
    calls: list[tuple[str, Connection]] = []

    def provider(name: str, connection: Connection) -> Model:
        calls.append((name, connection))
        return FunctionModel(
            lambda request: f"{name} answers", name=f"mine/{name}"
        )

    register_provider("mine", provider)
    agents = [Agent("guide", "", "mine/deep/model:1") for _ in range(2)]
    assert [agent.run("x") for agent in agents] == ["deep/model:1 answers"] * 2
    assert calls == [("deep/model:1", DEFAULT)]
    assert (
        Agent(
            "guide", "", "mine/other", api_key="sk-1", base_url="http://x"
        ).run("x")
        == "other answers"
    )
    assert calls[1:] == [("other", Connection("sk-1", "http://x"))]
    assert "sk-1" not in repr(calls)
    register_provider("mine", lambda name, connection: ScriptedModel("new"))
    assert agents[0].run("x") == "new", (
        "a provider that was replaced is not called"
    )


class Counted(Model):
    """A model that has used the same in each call."""

    def __init__(self, name: str, used: Usage) -> None:
        self.name = name
        self._used = used

    async def complete(
        self, request: ModelRequest, on_token: Any = None
    ) -> ModelResponse:
        return ModelResponse("yes", usage=self._used)


@pytest.mark.parametrize(
    ("prices", "cost", "source"),
    [
        ('{"mine/*": {"input": 2, "output": 10}}', 18e-6, "override"),
        ('{"other/*": {"input": 2, "output": 10}}', None, ""),
    ],
)
def test_the_price_of_ones_own_model(
    monkeypatch: pytest.MonkeyPatch,
    prices: str,
    cost: float | None,
    source: str,
) -> None:
    """The operator's file prices the calls of a registered provider; without a price the cost is unknown."""
    monkeypatch.setenv("PODWRIGHT_PRICES", prices)
    used = Usage(input_tokens=4, output_tokens=1, cost=None)
    register_provider("mine", lambda name, _: Counted(f"mine/{name}", used))
    usage = Agent("guide", "", "mine/a").run("?", trace=True).usage
    assert (usage.cost, usage.cost_source) == (cost, source)
    assert usage.unpriced_model_calls == int(cost is None)


def test_a_model_that_computes_its_cost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A model's own method `cost` counts, and not the file."""
    monkeypatch.setenv(
        "PODWRIGHT_PRICES", '{"mine/*": {"input": 2, "output": 10}}'
    )

    class Priced(Counted):
        def cost(self, usage: Usage) -> float | None:
            return usage.input_tokens * 0.5

    used = Usage(input_tokens=4, cost=None)
    register_provider("mine", lambda name, _: Priced(f"mine/{name}", used))
    usage = Agent("guide", "", "mine/a").run("?", trace=True).usage
    assert (usage.cost, usage.cost_source) == (2.0, "")


@pytest.mark.parametrize("name", ["", "mine/too"])
def test_invalid_provider_names(name: str) -> None:
    """A provider's name is the part before the first slash, so it has none and is not empty."""
    with pytest.raises(ConfigurationError):
        register_provider(name, lambda model, connection: ScriptedModel())


def test_a_provider_must_return_models() -> None:
    """A provider that returns something else is an error; a model without a name gets the one it was resolved by."""
    register_provider("mine", lambda name, connection: None)  # type: ignore[arg-type,return-value]
    with pytest.raises(ConfigurationError, match="not a Model"):
        resolve("mine/a")

    class Nameless(Model):
        async def complete(
            self, request: ModelRequest, on_token: Any = None
        ) -> Any:
            return (
                ModelResponse("yes")
                if request.messages[-1].text == "good"
                else "a text"
            )

    register_provider("mine", lambda name, connection: Nameless())
    agent = Agent("guide", "", "mine/a")
    result = agent.run("good", trace=True)
    assert list(result.usage.by_model) == ["mine/a"]
    assert (result.usage.cost, result.usage.unpriced_model_calls) == (
        None,
        1,
    ), "an unknown price is not free"
    with pytest.raises(ModelError, match="str"):
        agent.run("bad")


@pytest.mark.parametrize(
    ("name", "message", "suggestion"),
    [
        ("ofline/echo", "'ofline' in 'ofline/echo'", "Did you mean 'offline'?"),
        ("zzz/model", "'zzz' in 'zzz/model'", "Known names: "),
        ("echo", "'echo' has no provider", "'<provider>/echo'"),
        ("offline/eco", "'offline/eco'", "'offline/echo'"),
        ("", "'' has no provider", "'<provider>/'"),
        ("/m", "'/m'", "Known names: "),
        ("openai/", "'openai/'", "Did you mean 'openai'?"),
        ("google/gemini-2.0-flash", "'google'", "'gemini/…' or 'vertex_ai/…'"),
        ("http://elsewhere.example/v1", "'http:'", "Known names: "),
    ],
)
def test_an_unknown_model_is_an_error(
    name: str, message: str, suggestion: str
) -> None:
    """An unknown name is an error with the nearest known one."""
    with pytest.raises(UnknownModelError) as caught:
        resolve(name)
    assert message in caught.value.message
    assert suggestion in caught.value.suggestion


def test_litellm_is_not_asked_for_a_misspelt_provider(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A name that is nearly a known one is refused at once: LiteLLM takes seconds to refuse it."""
    monkeypatch.setenv("PODWRIGHT_MODEL_CLIENT", "auto")
    with pytest.raises(UnknownModelError):
        resolve("ofline/echo")


def test_a_component_with_an_unknown_model_can_be_made() -> None:
    """The model is resolved when it is called, so a blueprint can be loaded where its model is not available."""
    agent = Agent("guide", "", "nowhere/model")
    with pytest.raises(UnknownModelError, match="'nowhere'") as caught:
        agent.run("x")
    assert caught.value.component == "guide"
    assert agent.models() == ["nowhere/model"]


async def test_one_model_in_place_of_all() -> None:
    """Within `use_model` one model answers for every component; the innermost counts."""
    agent = Agent("guide", "", "nowhere/model")
    with use_model("offline/echo") as chosen:
        assert isinstance(chosen, EchoModel)
        assert await agent.arun("x") == "Echo: x"
        with use_model(ScriptedModel("inner")):
            assert await agent.arun("x") == "inner"
        assert await agent.arun("x") == "Echo: x"
    with pytest.raises(UnknownModelError):
        await agent.arun("x")
    with pytest.raises(UnknownModelError), use_model("nowhere/model"):
        pass


def named(name: str) -> ScriptedModel:
    """A model that answers with its name."""
    return ScriptedModel(lambda _: name, name=f"me/{name}")


def newsroom() -> Workflow:
    """Agents in every kind of component."""
    helper = Agent("helper", "Help.", named("own"))
    desk = Conductor("desk", "Lead.", named("own"), [helper])
    line = Pipeline("line", [Agent("editor", "Edit.", named("own"))])
    writer = Agent("writer", "Write.", named("own"))
    steps = [AgentStep(part, input="{input}") for part in (writer, line, desk)]
    return Workflow("newsroom", steps)


def answers_of(flow: Workflow) -> list[str]:
    """What writer, editor and desk answer."""
    context = flow.run("x")
    return [context[f"{name}_output"] for name in ("writer", "line", "desk")]


@pytest.mark.parametrize(
    ("models", "answers"),
    [
        ({"writer": "w"}, ["w", "own", "own"]),
        ({"editor": "e", "desk": "d"}, ["own", "e", "d"]),
        ({"*": "all"}, ["all", "all", "all"]),
        ({"*": "all", "desk": "d"}, ["all", "all", "d"]),
        ({}, ["own", "own", "own"]),
        ({"line": "l", "nobody": "n"}, ["own", "own", "own"]),
    ],
)
def test_models_in_place_of_those_of_agents(
    models: dict[str, str], answers: list[str]
) -> None:
    """`use_model` takes models by the names of agents, in every kind of component; `*` stands for all others."""
    choice = {name: named(model) for name, model in models.items()}
    with use_model(choice):
        assert answers_of(newsroom()) == answers
    assert answers_of(newsroom()) == ["own", "own", "own"]


def test_choices_of_models_are_combined() -> None:
    """Inside another choice, names add to it, and one model takes the place of all."""
    with use_model({"writer": named("w"), "*": named("all")}):
        with use_model({"desk": named("d"), "writer": named("v")}) as every:
            assert every is not None
            assert every.name == "me/all"
            assert answers_of(newsroom()) == ["v", "all", "d"]
        with use_model(named("one")), use_model(None):
            assert answers_of(newsroom()) == ["one", "one", "one"]
        assert answers_of(newsroom()) == ["w", "all", "all"]


def test_fallback_models_are_replaced_with_their_agent() -> None:
    """The model of an agent takes the place of its fallback models too, in `use_model` and in `load`."""
    failing = FunctionModel(lambda _: ModelUnavailableError("down"))
    failing.retries = Retries(tries=1)
    blueprint = {
        **Agent("writer", "", "openai/m").to_blueprint(),
        "config": {"model": "openai/m", "fallback": ["openai/n"]},
    }
    with use_model({"writer": failing}), pytest.raises(ModelUnavailableError):
        load(blueprint).run("x")
    with pytest.raises(ModelUnavailableError):
        load(blueprint, model={"writer": failing}).run("x")


LOADED: list[tuple[str, dict[str, Any]]] = [
    (
        "agent",
        {
            "name": "writer",
            "instructions": "",
            "config": {"model": "openai/m"},
            "tools": [],
        },
    ),
    (
        "conductor",
        {
            "name": "desk",
            "type": "Conductor",
            "instructions": "",
            "skills": [
                {"type": "Agent", "name": "writer", "instructions": "a"},
                {"type": "Agent", "name": "critic", "instructions": "b"},
            ],
            "config": {"model": "openai/m"},
        },
    ),
    (
        "pipeline",
        {
            "name": "line",
            "type": "Pipeline",
            "steps": [
                {"type": "Agent", "name": "writer", "instructions": "a"},
                {"type": "Agent", "name": "critic", "instructions": "b"},
            ],
            "config": {"model": "openai/m"},
        },
    ),
]


@pytest.mark.parametrize(("kind", "blueprint"), LOADED)
def test_load_replaces_the_model_of_one_agent(
    kind: str, blueprint: dict[str, Any]
) -> None:
    """`load(model={…})` gives single agents other models, without a change of the blueprint."""
    component = load(blueprint, model={"writer": named("w"), "*": named("all")})
    models = {
        part.name: part.model.name
        for part in walk(component)
        if isinstance(part, ModelComponent)
    }
    assert models.pop("writer") == "me/w"
    assert set(models.values()) <= {"me/all"}
    assert component.to_blueprint()["config"] == blueprint["config"]
    only = load(blueprint, model={"writer": named("w")})
    named_models = {
        part.name: part.model.name
        for part in walk(only)
        if isinstance(part, ModelComponent)
    }
    assert named_models.pop("writer") == "me/w"
    assert set(named_models.values()) <= {"openai/m"}


def test_load_replaces_the_models_of_a_folder(tmp_path: Path) -> None:
    """Agents in files and folders beside a workflow have their names; those that are passed keep their models."""
    steps = [
        {"type": "agent_step", "agent": name, "name": name}
        for name in ("writer", "critic", "given")
    ]
    flow = {"name": "flow", "steps": steps}
    (tmp_path / "flow" / "agents").mkdir(parents=True)
    (tmp_path / "flow" / "blueprint.json").write_text(json.dumps(flow))
    for name, path in {
        "writer": tmp_path / "flow" / "agents" / "writer.json",
        "critic": tmp_path / "critic" / "blueprint.json",
    }.items():
        path.parent.mkdir(exist_ok=True)
        blueprint = Agent(name, "", "openai/m").to_blueprint()
        path.write_text(json.dumps(blueprint))
    given = {"given": Agent("given", "", named("mine"))}
    flow = load(
        tmp_path / "flow",
        agents=given,
        model={"writer": named("w"), "*": named("all")},
    )
    context = flow.run("x")
    assert [
        context[f"{name}_output"] for name in ("writer", "critic", "given")
    ] == ["w", "all", "mine"]
    with pytest.raises(ConfigurationError, match="'given'") as unknown:
        load(tmp_path / "flow", agents=given, model={"given": named("w")})
    assert "critic, writer" in unknown.value.suggestion


@pytest.mark.parametrize("name", ["wrtier", "flow", ""])
def test_load_refuses_a_model_for_an_agent_that_does_not_exist(
    name: str,
) -> None:
    """The error names the agents that exist."""
    blueprint = LOADED[1][1]
    with pytest.raises(ConfigurationError, match=f"'{name}'") as unknown:
        load(blueprint, model={name: named("w")})
    assert "writer" in unknown.value.suggestion


def test_use_model_reaches_synchronous_runs() -> None:
    """`use_model` holds for runs on the background loop."""
    line = Pipeline(
        "line", [Agent("a", "", "nowhere/a"), Agent("b", "", ScriptedModel())]
    )
    with use_model(FunctionModel(plain_answer)):
        assert line.run("x") == "b: a: x"


# --- podwright.testing


def test_forbidden_models_are_not_called() -> None:
    """Within `forbid_models` every model call is an error that names the component; an inner `use_model` is allowed."""
    agent = Agent("guide", "", "offline/echo")
    with forbid_models():
        with pytest.raises(ModelError, match="'guide'"):
            agent.run("x")
        with use_model("offline/echo"):
            assert agent.run("x") == "Echo: x"
    assert agent.run("x") == "Echo: x"


def len_of(word: str) -> int:
    return len(word)


def test_events_can_be_asserted() -> None:
    """`assert_events` takes events in order with gaps, checks fields, and shows what happened instead."""
    result = Agent("guide", "", "offline/echo", tools=[len_of]).run(
        "moon", trace=True
    )
    assert_events(
        result,
        "run_started",
        "tool_call_started tool=len_of",
        "tool_call_finished output=4",
        "run_finished",
    )
    assert_events(
        result.events,
        "model_call_finished call=0",
        "model_call_finished call=1",
    )
    assert_events(result)
    for wrong in (
        ["run_finished", "run_started"],
        ["tool_call_finished output=5"],
        ["tool_call_started tool=len_of", "tool_call_started tool=len_of"],
        ["run_started nothing=1"],
    ):
        with pytest.raises(AssertionError) as caught:
            assert_events(result, *wrong)
        assert wrong[-1] in str(caught.value)
        assert "run_started (guide)" in str(caught.value)


def test_events_can_be_picked() -> None:
    """`events_of` gives the events of some types, or all."""
    result = Agent("guide", "", "offline/echo").run("moon", trace=True)
    assert events_of(result) == result.events
    picked = events_of(result.events, "run_finished", "run_started")
    assert [event.type for event in picked] == ["run_started", "run_finished"]
