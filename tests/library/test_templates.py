"""Templates: `{name}` only, replaced in one pass; and values as text."""

import dataclasses
import datetime
import enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from podwright.errors import ContextError
from podwright.json_data import to_json_data, to_text
from podwright.templates import fill, fill_all, names, sections, visible

CONTEXT: dict[str, Any] = {
    "input": "the moon",
    "a-b": 3,
    "_hidden": "secret",
    "template": "{input}",
    "brace": "{",
    "number": 1.5,
    "list": ["x", 1],
    "none": None,
}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("no names", "no names"),
        ("On {input}{input}: {a-b} {_hidden}", "On the moonthe moon: 3 secret"),
        ("{number} {list} {none}", '1.5 ["x", 1] null'),
        ("{template}", "{input}"),
        ("{brace}input}", "{input}"),
        ("{{input}}", "{the moon}"),
        ("{input.__class__} {list[0]} {input!r} {number:.3f} {0} {} { input } {1st}", None),
        ('{"input": 1} { } {unknown} {input {in\nput}', None),
        ("%(input)s $input ${input}", "%(input)s $input $the moon"),
    ],
)
def test_only_names_of_the_context_are_replaced(template: str, text: str | None) -> None:
    """Each `{name}` that the context has is replaced once; attributes, formats, code and JSON stay as they are."""
    assert fill(template, CONTEXT) == (template if text is None else text)


@given(st.text(), st.text())
def test_a_value_is_never_expanded(value: str, other: str) -> None:
    """A value arrives unchanged, even if it looks like a template."""
    assert fill("{a}|{b}", {"a": value, "b": other}) == f"{value}|{other}"
    assert fill("<{a}>", {"a": "{b}{a}", "b": other}) == "<{b}{a}>"


def test_a_missing_name_is_an_error_with_a_suggestion() -> None:
    """`fill_all` needs every name; hidden names are not suggested."""
    assert names("{b} {a} {b} {c.d} {{e}} { f }") == ["b", "a", "e"]
    assert fill_all("{input}", CONTEXT, "Step 'write'") == "the moon"
    with pytest.raises(ContextError, match=r"'write'.*inputt") as caught:
        fill_all("{input} {inputt}", CONTEXT, "Step 'write'")
    assert caught.value.suggestion == "Did you mean 'input'?"
    with pytest.raises(ContextError) as caught:
        fill_all("{x}", {"_x": 1}, "Step 'write'")
    assert "_x" not in caught.value.suggestion


def test_a_filled_template_has_a_maximum_length() -> None:
    """A template that is too long, or repeats a long value, is a ContextError, before it fills the memory."""
    long = dict.fromkeys("abcde", "x" * 900000)
    assert len(fill("{a}{b}{c}{d}", long)) == 3_600_000
    for template in ("{a}{b}{c}{d}{e}", "{a}{a}", "{a}" * 1_000):
        with pytest.raises(ContextError):
            fill(template, long)
    assert len(fill("{a}" * 11, {"a": "x" * 10_000})) == 110_000


def test_a_context_is_shown_in_sections() -> None:
    """A single value is shown as it is, several under their names, hidden ones not at all."""
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


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ('{"a": 1}', '{"a": 1}'),
        (True, "true"),
        (None, "null"),
        (["é", 1.0], '["é", 1.0]'),
        (Point(x=1, on=datetime.date(2020, 1, 2)), '{"x": 1, "on": "2020-01-02"}'),
        (Pair(Point(x=1), (1, 2)), '{"a": {"x": 1, "on": null}, "b": [1, 2]}'),
        (Colour.red, '"r"'),
        ({"x": int}, '{"x": "<class \'int\'>"}'),
        ({"a": [float("nan"), -float("inf"), 0.5]}, '{"a": ["NaN", "-Infinity", 0.5]}'),
        (b"bytes", '"bytes"'),
    ],
)
def test_a_value_becomes_text(value: Any, text: str) -> None:
    """A string stays as it is; any other value becomes JSON text, objects included."""
    assert to_text(value) == text
    assert to_text(to_json_data(value)) == text or isinstance(to_json_data(value), str)
