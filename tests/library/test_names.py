"""Names of any alphabet: what may be a name can be filled wherever it is used, or is a problem or an error."""

from __future__ import annotations

import contextlib
import unicodedata
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwright import (
    Agent,
    AgentStep,
    ApprovalRequired,
    ApprovalStep,
    ConditionStep,
    FunctionStep,
    MapStep,
    ScriptedModel,
    Workflow,
)
from podwright.blueprints import json_schema, problems
from podwright.data.json_data import to_text
from podwright.data.names import (
    Expression,
    find_name,
    is_name,
    parse_expression,
    write_expression,
)
from podwright.errors import BlueprintValidationError, ContextError
from podwright.messages.templates import fill

DECOMPOSED = unicodedata.normalize("NFD", "größe")
IDENTIFIERS = [
    *("size", "a-b", "x1", "größe", DECOMPOSED, "naïve_count", "名称"),
    *("размер", "नाम", "اسم", "שם", "ขนาด", "x\u0661", "ﬁeld"),
    "می\u200cشود",
]
"""Names that need no brackets: letters of all alphabets, with combining marks, from right to left, in NFC and NFD."""
OTHERS = [
    *(
        "a key",
        "1st",
        "\u0663",
        "v1.2",
        "50%",
        "@id",
        "$ref",
        "it's",
        'say "x"',
    ),
    *("[0]", "🚀", "Straße nr. 5", "a:b", "f(x)", "\u200cx", "名 称", "-"),
]
"""Names and keys of data that need them."""
NAMES = [*IDENTIFIERS, *OTHERS]
VALUE = 7


def echo(value: Any) -> dict[str, Any]:
    return {"got": value}


# --- Where a name comes from: the steps before it is used, the inputs, and the expression -----------------------------

Place = Callable[[str], tuple[list[Any], dict[str, Any], tuple[str, ...]]]


def as_output_of_function(name: str) -> Any:
    return [FunctionStep(lambda_of(VALUE), output=name)], {}, (name,)


def as_output_of_agent(name: str) -> Any:
    agent = Agent("a", "", ScriptedModel({"n": VALUE}), response_model=SCHEMA)
    return [AgentStep(agent, output=name)], {}, (name, "n")


def as_name_of_agent(name: str) -> Any:
    agent = Agent(name, "", ScriptedModel({"n": VALUE}), response_model=SCHEMA)
    return [AgentStep(agent)], {}, (f"{name}_output", "n")


def as_input(name: str) -> Any:
    return [], {name: VALUE}, (name,)


def as_input_in_other_form(name: str) -> Any:
    return [], {unicodedata.normalize("NFD", name): VALUE}, (name,)


def as_field(name: str) -> Any:
    return [FunctionStep(lambda_of({name: VALUE}), output="o")], {}, ("o", name)


def as_field_of_item(name: str) -> Any:
    data = {"items": [0, {name: VALUE}]}
    return (
        [FunctionStep(lambda_of(data), output="o")],
        {},
        ("o", "items", "1", name),
    )


def as_field_of_answer(name: str) -> Any:
    schema = {"type": "object", "properties": {name: {"type": "integer"}}}
    model = ScriptedModel({name: VALUE})
    agent = Agent("a", "", model, response_model=schema)
    return [AgentStep(agent, output="o")], {}, ("o", name)


def lambda_of(value: Any) -> Callable[[], Any]:
    def source() -> Any:
        return value

    return source


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}
SOURCES: list[Place] = [
    as_output_of_function,
    as_output_of_agent,
    as_name_of_agent,
    as_input,
    as_input_in_other_form,
    as_field,
    as_field_of_item,
    as_field_of_answer,
]


# --- Where it is used: the steps that read it, which end with the output "r" ------------------------------------------


def in_input(text: str) -> list[Any]:
    return [
        AgentStep(
            Agent("b", "", "offline/echo"), input=f"{{{text}}}", output="r"
        )
    ]


def in_instructions(text: str) -> list[Any]:
    model = ScriptedModel(lambda request: request.messages[0].text)
    return [AgentStep(Agent("b", f"{{{text}}}", model), input="x", output="r")]


def in_named_input(text: str) -> list[Any]:
    named = {"v": f"{{{text}}}"}
    return [AgentStep(Agent("b", "", "offline/echo"), input=named, output="r")]


def in_arguments(text: str) -> list[Any]:
    return [FunctionStep(echo, {"value": f"{{{text}}}"}, output="r")]


def in_condition(text: str) -> list[Any]:
    args = {"value": f"{{{text}}}", "to": VALUE}
    found = FunctionStep(echo, {"value": VALUE}, output="r")
    missed = FunctionStep(echo, {"value": "unequal"}, output="r")
    return [ConditionStep({"name": "equals", "args": args}, [found], [missed])]


def in_message(text: str) -> list[Any]:
    return [ApprovalStep(f"{{{text}}}", name="ask")]


USES = [
    in_input,
    in_instructions,
    in_named_input,
    in_arguments,
    in_condition,
    in_message,
]


def result_of(
    source: Place, use: Callable[[str], list[Any]], name: str, text: str
) -> str:
    """What the value is where it is used, as text; the class of the error if there is none."""
    before, inputs, _ = source(name)
    try:
        flow = Workflow("flow", [*before, *use(text)])
        return to_text(flow.run({"input": "x", **inputs})["r"])
    except ApprovalRequired as pause:
        return str(pause)
    except (BlueprintValidationError, ContextError) as error:
        return type(error).__name__


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("source", SOURCES)
def test_every_name_can_be_filled(source: Place, use: Any) -> None:
    """Each name of each source is filled at each place, if its expression has brackets where they are needed."""
    for name in NAMES:
        _, _, path = source(name)
        text = write_expression(path[0], path[1:])
        assert str(VALUE) in result_of(source, use, name, text), text
        assert "[" not in text or not all(
            is_name(path[0]) and is_name(f"a{part}") for part in path
        )


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("source", SOURCES)
def test_no_name_is_left_in_silence(source: Place, use: Any) -> None:
    """A name that is written without brackets is filled, or it is a problem of the blueprint or an error of the run."""
    for name in NAMES:
        _, _, path = source(name)
        result = result_of(source, use, name, ".".join(path))
        if is_name(path[0]) and all(is_name(f"a{part}") for part in path):
            assert str(VALUE) in result, path
        refused = result in ("BlueprintValidationError", "ContextError")
        assert refused or str(VALUE) in result, (path, result)


@pytest.mark.parametrize("name", [*IDENTIFIERS, "a key", "1st", "v1.2"])
def test_the_item_of_a_map_and_what_it_runs_over(name: str) -> None:
    """`over` leads to a list by any name, and `as` may be any name of a step."""
    one = FunctionStep(lambda_of({name: [1, 2]}), output="o")
    item = write_expression(name)
    body = FunctionStep(echo, {"value": f"{{{item}}}"}, output="r")
    over = write_expression("o", [name])
    flow = Workflow("flow", [one, MapStep(over, name, [body])])
    result = flow.run("x", trace=True)
    assert result.data["r"] == [{"got": 1}, {"got": 2}]


@pytest.mark.parametrize("name", IDENTIFIERS)
def test_declared_inputs(name: str) -> None:
    """An input may have any name that needs no brackets, and may be given in another normal form."""
    agent = Agent(
        "a",
        f"Size {{{name}}}",
        ScriptedModel(lambda request: request.messages[0].text),
        inputs={name: {"type": "integer"}},
    )
    blueprint = agent.to_blueprint()
    assert jsonschema.Draft202012Validator(json_schema()["agent"]).is_valid(
        blueprint
    )
    composed = unicodedata.normalize("NFC", name)
    decomposed = unicodedata.normalize("NFD", name)
    for given_name in (composed, decomposed):
        assert agent.run({given_name: 7, "input": "x"}) == "Size 7"


@pytest.mark.parametrize("name", [*OTHERS, "_x", "“x”", "a\u00a0b", "a\u200fb"])
def test_other_inputs_are_refused(name: str) -> None:
    """An input that could be filled with brackets only is a problem of the blueprint."""
    blueprint = {
        "type": "Agent",
        "name": "a",
        "instructions": "x",
        "config": {"model": "offline/echo"},
        "inputs": {name: {}},
    }
    [problem] = problems(blueprint)
    assert problem.pointer.startswith("/inputs/")


# --- The rule itself --------------------------------------------------------------------------------------------------


@given(
    st.text(min_size=1, max_size=12), st.lists(st.text(max_size=12), max_size=3)
)
def test_an_expression_is_read_as_it_was_written(
    name: str, fields: list[str]
) -> None:
    """Each name and each key has an expression, which leads to its value."""
    text = write_expression(name, fields)
    read = parse_expression(text)
    assert read == Expression(name, tuple(fields), text)
    value: Any = "found"
    for key in reversed(fields):
        value = {key: value}
    assert fill(f"<{{{text}}}>", {name: value}, "Step 'a'") == "<found>"


@given(
    st.text(st.characters(exclude_characters="{}\n"), min_size=1, max_size=12)
)
def test_a_key_after_a_dot_is_filled_or_an_error(key: str) -> None:
    """Whatever the key of a value is, it does not stay in the text."""
    for context, template in (
        ({"o": {key: "found"}}, f"{{o.{key}}}"),
        ({key: "found"}, f"{{{key}}}"),
    ):
        result = "found"
        with contextlib.suppress(ContextError):
            result = fill(template, context, "Step 'a'")
        assert result == "found"


@pytest.mark.parametrize(
    "text",
    [
        "{ größe }",
        "{größe, breite}",
        "{größe: 1}",
        "{größe!r} {größe:.2f}",
        '{"größe": 1}',
        "{1} {\u0663}",
        "{“größe”}",
        "{row['x']} {row[0]} f'{row[\"a key\"]}'",
        "{o.map(f)} {o[0:1]} {o[i]} {o.x = 1}",
        "{{ größe }} ${{ größe.x }}",
    ],
)
def test_code_stays_as_it_is(text: str) -> None:
    """Braces around something else than a name are text, and so is an index of what is not known."""
    context = {"größe": 1, "o": {"x": 1}}
    assert fill(text, context, "Step 'a'") == text


@pytest.mark.parametrize(
    ("template", "suggestion"),
    [
        ("{o.a key}", '{o["a key"]}'),
        ("{o.list of items[0]}", '{o["list of items"]["0"]}'),
        ("{my answer}", '{["my answer"]}'),
        ("{my answer.x}", '{["my answer"].x}'),
        ("{\u200fo.größe}", "{o.größe}"),
        ("{o.größe\u200e}", "{o.größe}"),
    ],
)
def test_the_suggestion_is_the_right_form(
    template: str, suggestion: str
) -> None:
    context = {"o": {"größe": 1}, "my answer": {"x": 1}}
    with pytest.raises(ContextError) as caught:
        fill(template, context, "Step 'a'")
    assert suggestion.replace('["0"]', ".0") in caught.value.suggestion


def test_doubled_braces_are_text_in_any_alphabet() -> None:
    values = {"名称": 1, "o": {"a key": 2}}
    text = '{{名称}} {{{名称}}} {{o["a key"]}} {{"名": "{名称}"}}'
    expected = '{名称} {1} {o["a key"]} {"名": "1"}'
    assert fill(text, values, "Step 'a'") == expected


def test_the_exact_spelling_comes_first() -> None:
    """Two spellings of one name that are both given stay apart."""
    both = {"größe": "C", DECOMPOSED: "D"}
    assert fill(f"{{größe}}{{{DECOMPOSED}}}", both, "Step 'a'") == "CD"
    assert find_name(DECOMPOSED, ["größe"]) == "größe"
    assert find_name("grosse", ["größe"]) is None


def test_a_long_key_is_filled() -> None:
    """What is written for a key is read again, however long the key is."""
    key = "long " * 100
    name = write_expression("o", [key])
    assert fill(f"{{{name}}}", {"o": {key: "found"}}, "A step") == "found"
