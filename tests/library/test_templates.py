"""Templates: `{name}` and `{name.field}`, replaced in one pass; literal braces; and values as text."""

import dataclasses
import datetime
import enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from podwright.data.json_data import to_json_data, to_text
from podwright.data.names import Expression
from podwright.errors import ContextError
from podwright.messages.templates import (
    expressions,
    fill,
    fill_data,
    names,
    sections,
    visible,
)

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
        (
            "{input!r} {number:.3f} {0} {} { input } {1st} {.x} {list.} {list..1}",
            None,
        ),
        (
            '{"input": 1} { } {{unknown.name}} {input {in\nput}',
            '{"input": 1} { } {unknown.name} {input {in\nput}',
        ),
        ("%(input)s $input ${input}", "%(input)s $input $the moon"),
    ],
)
def test_only_names_of_the_context_are_replaced(
    template: str, text: str | None
) -> None:
    """Each `{name}` that the context has is replaced once; attributes, formats, code and JSON stay as they are."""
    expected = template if text is None else text
    assert fill(template, CONTEXT, "Step 'write'") == expected


# Texts of reports where another framework read braces of a prompt as its own, or changed them.
NO_TEMPLATES = {
    # https://github.com/itlackey/akm/issues/925
    "nested JSON": 'Answer like {"finding": {"recommendation": "...", "confidence": "high"}}.',
    # https://github.com/FlowiseAI/Flowise/issues/968, https://github.com/langchain-ai/langchain/issues/1914
    "JSON on lines": 'In this format:\n{\n "label": "the label",\n "sizes": [{"a": {}}]\n}',
    # https://github.com/google/adk-go/issues/506
    "JavaScript": "test('x', async ({ page }) => { await page.goto('/'); });",
    "JSX": "<p style={{ color: 'red', margin: 0 }}>{ text }</p>",
    # https://github.com/langchain-ai/langchain/issues/2757
    "sets": "A = {1; 2; 3} and {}",
    "Jinja": "{{ page.title | upper }} {% if x %}{{ 'a' }}{% endif %} {{ \"b\" }}",
    "GitHub Actions": "echo ${{ secrets.TOKEN }}",
    "Go": "docker inspect --format '{{.State.ExitCode}}' c",
    "C++": 'std::map<std::string, int> m = {{"a", 1}, {"b", 2}};',
    "regular expression": r"^\d{4}-\d{2}$ and x{2,}",
    "single braces inside doubled ones": '{{"pattern": "a{2}"}}',
    "unclosed": '{{"a": 1} and {{"b": {{"c": 2',
}


@pytest.mark.parametrize("text", NO_TEMPLATES.values(), ids=NO_TEMPLATES)
def test_other_braces_stay_as_they_are(text: str) -> None:
    """JSON, code and formulas have no names and are not changed, whatever the context has."""
    assert names(text) == []
    assert (
        fill(
            text,
            {"text": 2, "a": 3, "x": 4, "label": 5},
            "Step 'write'",
        )
        == text
    )
    assert fill(text, {}, "Step 'write'") == text


@pytest.mark.parametrize(
    "text",
    [
        "Run echo ${HOME} > ${PATH}.",
        "echo `${page}`",
        "await page.goto(`/${page.id}`);",
        r"Simplify \frac{a}{b} and \sqrt[3]{x}, \sum_{i}^{n} x_{i} and 2^{n}.",
        r"\begin{align*} \textbf{bold} \end{align}",
    ],
)
def test_variables_of_shells_and_latex_need_no_value(text: str) -> None:
    """They stay as they are in a step too, unless the context has a value of that name."""
    assert fill(text, {"input": "x"}, "Step 'write'") == text
    assert (
        fill("${input} x^{input}", {"input": "x"}, "Step 'write'") == "$x x^x"
    )
    for template in (
        "{HOME}",
        "v{n} $ {n}",
        "file_{n}.txt",
        "https://x/{n}",
        f"{text} {{nothing}}",
    ):
        with pytest.raises(ContextError):
            fill(template, {}, "Step 'write'")


@pytest.mark.parametrize(
    ("template", "text", "used"),
    [
        ("Use {{city}}, {city}.", "Use {city}, Rome.", ["city"]),
        ("{{{city}}} {{{{city}}}}", "{Rome} {{city}}", ["city"]),
        ("{{nothing}} ${{HOME}}", "{nothing} ${HOME}", []),
        ("https://x/{{owner}}/{city}.git", "https://x/{owner}/Rome.git", ["city"]),
        (r"\frac{{a}}{{b}} \sqrt{{{city}}}", r"\frac{a}{b} \sqrt{Rome}", ["city"]),
        ("f'{{city}}'", "f'{city}'", []),
        # braces of one side only belong to something around the name
        ('{"in": {"city": {city}}}', '{"in": {"city": Rome}}', ["city"]),
        ('{"in":{"city":"{city}"}}', '{"in":{"city":"Rome"}}', ["city"]),
        ("{{city} {city}}", "{Rome Rome}", ["city"]),
        # JSON with all braces doubled: https://github.com/langchain-ai/langchain/issues/1914
        ('{{"city": "{city}"}}', '{"city": "Rome"}', ["city"]),
        ('[{{"a": {{"b": {city}, "c": {{}}}}}}]', '[{"a": {"b": Rome, "c": {}}}]', ["city"]),
        ('{{"x": "{{y}}"}} or {{"x": 1}}', '{"x": "{y}"} or {"x": 1}', []),
        ('{{\n  "a": {{"{city}": 1}}\n}} {{ b }}', '{\n  "a": {"Rome": 1}\n} {{ b }}', ["city"]),
    ],
)  # fmt: skip
def test_doubled_braces_are_braces(
    template: str, text: str, used: list[str]
) -> None:
    """`{{name}}` is the text `{name}`, and so are the doubled braces of JSON that has no others."""
    assert names(template) == used
    assert fill(template, {"city": "Rome"}, "Step 'write'") == text
    # a value is inserted after the template was read: https://github.com/google/adk-js/issues/726
    braces = '{{city}} {{"a": 1}}'
    assert fill(template, {"city": braces}, "Step 'write'") == text.replace(
        "Rome", braces
    )


@given(st.text(alphabet='{}"ab: ', max_size=40))
def test_a_name_is_never_made_of_literal_braces(template: str) -> None:
    """What a template has no name for is the same with any context, and reading a text as JSON adds no name."""
    context = {name: f"<{name}>" for name in names(template)}
    filled = fill(template, context, "Step 'write'")
    assert all(f"<{name}>" in filled for name in names(template))
    assert filled.count("{") <= template.count("{")


@given(st.text(), st.text())
def test_a_value_is_never_expanded(value: str, other: str) -> None:
    """A value arrives unchanged, even if it looks like a template."""
    values = {"a": value, "b": other}
    assert fill("{a}|{b}", values, "Step 'write'") == f"{value}|{other}"
    looks_like_one = {"a": "{b}{a}", "b": other}
    assert fill("<{a}>", looks_like_one, "Step 'write'") == "<{b}{a}>"


def texts_of(found: list[Expression]) -> list[str]:
    return [expression.text for expression in found]


def test_a_missing_name_is_an_error_with_a_suggestion() -> None:
    """Every name needs a value; hidden names are not suggested."""
    text = "{b} {a} {b} {c.d} {c.0} {{e}} {{{f}}} { g }"
    assert names(text) == ["b", "a", "c", "f"]
    assert texts_of(expressions(text)) == ["b", "a", "c.d", "c.0", "f"]
    assert texts_of(expressions("${a} ${b}", known=["b"])) == ["b"]
    assert fill("{input}", CONTEXT, "Step 'write'") == "the moon"
    with pytest.raises(ContextError, match=r"'write'.*inputt") as caught:
        fill("{input} {inputt}", CONTEXT, "Step 'write'")
    assert caught.value.suggestion == "Did you mean 'input'?"
    with pytest.raises(ContextError) as caught:
        fill("{owner}", {"_x": 1}, "Step 'write'")
    assert "_x" not in caught.value.suggestion
    assert "{{owner}}" in caught.value.suggestion


def test_a_filled_template_has_a_maximum_length() -> None:
    """A template that is too long, or repeats a long value, is a ContextError, before it fills the memory."""
    long = dict.fromkeys("abcde", "x" * 900000)
    assert len(fill("{a}{b}{c}{d}", long, "Step 'write'")) == 3_600_000
    for template in ("{a}{b}{c}{d}{e}", "{a}{a}", "{a}" * 1_000):
        with pytest.raises(ContextError):
            fill(template, long, "Step 'write'")
    short = {"a": "x" * 10_000}
    assert len(fill("{a}" * 11, short, "Step 'write'")) == 110_000
    shortened = fill("{a}", {"a": "x" * 99}, "Step 'write'", longest=10)
    assert shortened == f"{'x' * 9}…"


TICKET: dict[str, Any] = {
    "ticket": {
        "category": "refund",
        "order": {"number": 7, "items": ["cup", {"sku": "a-1"}]},
        "empty": {},
        "none": None,
        "2": "two",
    },
    "text": '{"category": "refund"}',
    "count": 3,
}


@pytest.mark.parametrize(
    ("template", "text", "data"),
    [
        ("{ticket.category}", "refund", "refund"),
        ("{ticket.order.number}", "7", 7),
        ("{ticket.order.items.1.sku}", "a-1", "a-1"),
        ("{ticket.order.items}", '["cup", {"sku": "a-1"}]', ["cup", {"sku": "a-1"}]),
        ("{ticket.2} {ticket.none}", "two null", "two null"),
        ("No {ticket.order.number}", "No 7", "No 7"),
        ("{{ticket.category}}", "{ticket.category}", "{ticket.category}"),
        ("{{{ticket.category}}}", "{refund}", "{refund}"),
        ("{count}", "3", 3),
        (" {count}", " 3", " 3"),
    ],
)  # fmt: skip
def test_fields_of_data(template: str, text: str, data: Any) -> None:
    """A name may lead into objects and lists; a text that is one name becomes the value itself in data."""
    assert fill(template, TICKET, "Step 'write'") == text
    filled = fill_data(
        {"deep": [template], "number": 1, "yes": True}, TICKET, "Step 'write'"
    )
    assert filled == {"deep": [data], "number": 1, "yes": True}


def test_filled_data_is_a_copy() -> None:
    """Who changes filled data does not change the context."""
    context = {"a": {"b": [1]}}
    filled = fill_data({"x": "{a}"}, context, "Step 'write'")
    filled["x"]["b"].append(2)
    assert context == {"a": {"b": [1]}}


@pytest.mark.parametrize(
    ("template", "hint"),
    [
        ("{ticket.categry}", "category"),
        ("{ticket.order.items.2}", "from 0"),
        ("{ticket.order.items.sku}", "from 0"),
        ("{ticket.category.x}", "response_schema"),
        ("{ticket.none.x}", "response_schema"),
        ("{count.x}", "response_schema"),
        ("{text.category}", "response_schema"),
        ("{ticket.empty.x}", "empty object"),
        ("{tickte.category}", "ticket"),
    ],
)
def test_a_missing_field_is_an_error(template: str, hint: str) -> None:
    """A field that the value does not have is as wrong as a name that the context lacks."""
    for fill_in in (fill, fill_data):
        with pytest.raises(ContextError) as caught:
            fill_in(template, TICKET, "Step 'write'")
        assert hint in caught.value.suggestion


def test_a_context_is_shown_in_sections() -> None:
    """A single value is shown as it is, several under their names, hidden ones not at all."""
    assert sections({"input": "x", "_resume": "no"}) == "x"
    assert sections({"input": "x", "n": 1}) == "## input\nx\n\n## n\n1"
    assert sections({"input": "x", "n": 1}, leave_out=["input"]) == "1"
    assert sections({}) == ""
    assert list(visible(CONTEXT)) == [
        name for name in CONTEXT if name != "_hidden"
    ]


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
        (
            Point(x=1, on=datetime.date(2020, 1, 2)),
            '{"x": 1, "on": "2020-01-02"}',
        ),
        (Pair(Point(x=1), (1, 2)), '{"a": {"x": 1, "on": null}, "b": [1, 2]}'),
        (Colour.red, '"r"'),
        (
            {"x": Colour},
            "{\"x\": \"(a value of the type 'EnumType', which has no JSON form; its text: <enum 'Colour'>)\"}",
        ),
        (
            {"a": [float("nan"), -float("inf"), 0.5]},
            '{"a": ["NaN", "-Infinity", 0.5]}',
        ),
        (b"bytes", '"bytes"'),
    ],
)
def test_a_value_becomes_text(value: Any, text: str) -> None:
    """A string stays as it is; any other value becomes JSON text, objects included."""
    assert to_text(value) == text
    assert to_text(to_json_data(value)) == text or isinstance(
        to_json_data(value), str
    )
