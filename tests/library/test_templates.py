"""Templates: `{name}` only, replaced in one pass; and how values become text."""

import dataclasses
import datetime
import enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from podwright import Agent, AgentStep, ScriptedModel, Workflow
from podwright.errors import ContextError
from podwright.json_data import to_json_data, to_text
from podwright.templates import fill, fill_all, names, sections, visible

CONTEXT: dict[str, Any] = {
    "input": "the moon",
    "writer_output": "A poem.",
    "a-b": 3,
    "_hidden": "secret",
    "sly": "{input}",
    "brace": "{",
    "number": 1.5,
    "list": ["x", 1],
    "none": None,
    "true": True,
}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("", ""),
        ("no names", "no names"),
        ("{input}", "the moon"),
        ("{input}{input}", "the moonthe moon"),
        ("On {input}: {writer_output}", "On the moon: A poem."),
        ("{a-b}", "3"),
        ("{_hidden}", "secret"),
        # one pass: a value that looks like a template is text
        ("{sly}", "{input}"),
        ("{brace}input}", "{input}"),
        ("{{input}}", "{the moon}"),
        ("{{{input}}}", "{{the moon}}"),
        # neither attributes, indexes, conversions, format specs nor positions
        ("{input.__class__}", "{input.__class__}"),
        ("{list[0]}", "{list[0]}"),
        ("{input!r}", "{input!r}"),
        ("{number:.3f}", "{number:.3f}"),
        ("{0}", "{0}"),
        ("{}", "{}"),
        ("{ input }", "{ input }"),
        ("{1st}", "{1st}"),
        ("%(input)s $input ${input} {{ input }}", "%(input)s $input $the moon {{ input }}"),
        # JSON and code in instructions stay as they are
        ('{"input": 1}', '{"input": 1}'),
        ("{", "{"),
        ("}", "}"),
        ("{unknown}", "{unknown}"),
        ("{input", "{input"),
        ("{in\nput}", "{in\nput}"),
        # values that are no strings are written as JSON
        ("{number} {list} {none} {true}", '1.5 ["x", 1] null true'),
    ],
)
def test_a_template_knows_names_only(template: str, text: str) -> None:
    """Every `{name}` that the context has is replaced, once; all other braces are left alone."""
    assert fill(template, CONTEXT) == text


@given(st.text(), st.text())
def test_a_value_is_never_expanded(value: str, other: str) -> None:
    """Whatever a value says, it arrives as it is, and no other value gets into it."""
    assert fill("{a}|{b}", {"a": value, "b": other}) == f"{value}|{other}"
    assert fill("<{a}>", {"a": "{b}{a}", "b": other}) == "<{b}{a}>"


def test_names_are_found_in_order() -> None:
    """The names that a template asks for are told once each, in their order."""
    assert names("{b} {a} {b} {c.d} {{e}} { f }") == ["b", "a", "e"]


def test_a_name_that_is_missing_is_an_error() -> None:
    """Where every name is needed, a missing one is told with the nearest that is there."""
    assert fill_all("{input}", CONTEXT, "Step 'write'") == "the moon"
    with pytest.raises(ContextError) as caught:
        fill_all("{input} {writer_ouput}", CONTEXT, "Step 'write'")
    assert caught.value.message == "Step 'write' asks for '{writer_ouput}', which the context does not have."
    assert caught.value.suggestion == "Did you mean 'writer_output'?"
    with pytest.raises(ContextError) as caught:
        fill_all("{x}", {"_only": 1}, "Step 'write'")
    assert caught.value.suggestion == ContextError.default_suggestion, "hidden names are not offered"


def test_a_step_that_asks_for_too_much_stops_the_workflow() -> None:
    """A step's input that names what the context lacks fails before any model is asked."""
    model = ScriptedModel()
    flow = Workflow("flow", [AgentStep(Agent("writer", "", model), input="On {inputt}")])
    with pytest.raises(ContextError, match="Step 'writer' asks for") as caught:
        flow.run("the moon")
    assert caught.value.suggestion == "Did you mean 'input'?"
    assert model.requests == []


def test_instructions_are_filled_where_they_can_be() -> None:
    """Named inputs fill the instructions; braces that name none of them are the author's own."""
    model = ScriptedModel("ok")
    agent = Agent("poet", 'Write in {language} as {"form": "{form}"}, not {mood}.', model)
    agent.run({"language": "{form}", "form": "haiku", "topic": "the moon"})
    system, user = model.requests[0].messages
    assert system.content == 'Write in {form} as {"form": "haiku"}, not {mood}.'
    assert user.content == "the moon"


def test_a_context_is_shown_in_sections() -> None:
    """One value is shown bare, several under their names, hidden ones not at all."""
    assert sections({"input": "x", "_resume": "no"}) == "x"
    assert sections({"input": "x", "n": 1}) == "## input\nx\n\n## n\n1"
    assert sections({"input": "x", "n": 1}, leave_out=["input"]) == "1"
    assert sections({}) == ""
    assert list(visible(CONTEXT)) == [name for name in CONTEXT if name != "_hidden"]


class Colour(enum.Enum):
    red = "r"


class Point(BaseModel):
    x: int
    on: datetime.date | None = None


@dataclasses.dataclass
class Pair:
    a: Any
    b: Any = None


class Strange:
    def __str__(self) -> str:
        return "strange"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        ('{"a": 1}', '{"a": 1}'),
        (1, "1"),
        (True, "true"),
        (None, "null"),
        (["é", 1.0], '["é", 1.0]'),
        ({"a": (1, 2)}, '{"a": [1, 2]}'),
        (Point(x=1, on=datetime.date(2020, 1, 2)), '{"x": 1, "on": "2020-01-02"}'),
        (Pair(Point(x=1)), '{"a": {"x": 1, "on": null}, "b": null}'),
        (Colour.red, '"r"'),
        ({"x": Strange()}, '{"x": "strange"}'),
        (float("inf"), '"Infinity"'),
        (
            {"a": [float("nan"), 0.5], "b": Pair(-float("inf"))},
            '{"a": ["NaN", 0.5], "b": {"a": "-Infinity", "b": null}}',
        ),
        (b"bytes", '"bytes"'),
    ],
)
def test_values_become_text(value: Any, text: str) -> None:
    """A string stays as it is; anything else is JSON that people can read, objects included."""
    assert to_text(value) == text
    assert to_text(to_json_data(value)) == text or isinstance(to_json_data(value), str)


def test_a_text_has_a_largest_size() -> None:
    """A template that names a long value very often is refused before it fills the memory."""
    with pytest.raises(ContextError, match="more than 50000000 characters"):
        fill("{a}" * 1_000, {"a": "x" * 100_000})
