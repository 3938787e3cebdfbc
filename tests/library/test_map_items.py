"""The items of a map step, as models write them. The comments link reports of people whom another framework failed."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwright.steps.map_items import UnreadableItemsError, read_items

CITIES = ["Paris", "Rome"]
ARRAY = '["Paris", "Rome"]'
FENCE = "```"

JSON_TEXTS = {
    "bare": ARRAY,
    "byte order mark": "\ufeff" + ARRAY,
    # https://github.com/agentscope-ai/agentscope/issues/268
    "fence": f"{FENCE}json\n{ARRAY}\n{FENCE}",
    "fence without a language": f"{FENCE}\n{ARRAY}\n{FENCE}",
    "fence in capitals, and CRLF": f"{FENCE}JSON\r\n{ARRAY}\r\n{FENCE}\r\n",
    "fence of tildes": f"~~~json\n{ARRAY}\n~~~",
    "long fence": f"````json\n{ARRAY}\n````",
    "fence on one line": f"{FENCE}json {ARRAY} {FENCE}",
    "fence after words on a line": f"Here it is: {FENCE}json\n{ARRAY}\n{FENCE}",
    "fence that ends behind the array": f"{FENCE}json\n{ARRAY}{FENCE}",
    "fence without an end": f"{FENCE}json\n{ARRAY}",
    # https://github.com/langgenius/dify/issues/42451
    "brackets after the fence": f"Sure!\n{FENCE}json\n{ARRAY}\n{FENCE}\nSee [docs](http://x), {{more}} and [1].",
    "code": f"{FENCE}python\ncities = {ARRAY}\n{FENCE}",
    "two equal arrays": f"{ARRAY}\n\n{FENCE}json\n{ARRAY}\n{FENCE}",
    "an incomplete example before the fence": f'As ["…", you asked:\n{FENCE}json\n{ARRAY}\n{FENCE}',
    # https://github.com/gettranslatebot/translatebot-django/pull/32
    "between words": f"The cities are {ARRAY}. Tell me if you want more.",
    # https://github.com/langchain4j/langchain4j/pull/3268, https://github.com/sakowicz/actual-ai/pull/439
    "after brackets of prose": f"I left [old ones] and {{others}} out [1]: {ARRAY}",
    "emphasized": f"**{ARRAY}**",
    "inline code": f"The answer: `{ARRAY}`",
    "XML": f"<answer>{ARRAY}</answer>",
    # https://github.com/HKUDS/DeepTutor/pull/675, https://github.com/langchain-ai/langchain/pull/35530
    "after thoughts": f'<think>Perhaps ["Bonn"] or {{"a": 1}}?</think>\n{ARRAY}',
    # https://github.com/confident-ai/deepeval/pull/2991
    "after thoughts without a start": f'Perhaps ["Bonn"]?</think>{ARRAY}',
    "after thoughts of other names": f"<thinking>Hm.</thinking>\n[THINK]Hm.[/THINK]\n{FENCE}json\n{ARRAY}\n{FENCE}",
    "object": f'{{"items": {ARRAY}}}',
    "object in a fence": f'{FENCE}json\n{{"cities": {ARRAY}}}\n{FENCE}',
    "objects in one another": f'{{"result": {{"items": {ARRAY}}}}}',
    "encoded twice": json.dumps(ARRAY),
}
MARKDOWN_TEXTS = {
    "lines": "Paris\n\n  Rome  \n",
    # https://github.com/langchain-ai/langchain/pull/40192
    "hyphens": "- Paris\n- Rome",
    "stars": "* Paris\n* Rome\n",
    "pluses": "+ Paris\n+ Rome",
    "dots": "• Paris\n• Rome",
    "boxes": "- [ ] Paris\n- [x] Rome",
    # https://github.com/yoheinakajima/babyagi/issues/22
    "numbers": "1. Paris\n2. Rome",
    "numbers in parentheses": "1) Paris\n\n2) Rome",
    "words around them": "Two cities:\n1. Paris\n2. Rome\n\nShall I go on?",
    "heading": "# Cities\n\n- Paris\n- Rome",
    "list after thoughts": "<think>\n- Bonn\n</think>\n- Paris\n- Rome",
    "lines in a fence": f"Here they are:\n{FENCE}\nParis\nRome\n{FENCE}\nBye!",
    "list in a fence": f"{FENCE}markdown\n- Paris\n- Rome\n{FENCE}",
}
OTHER_TEXTS: dict[str, list[Any]] = {
    "": [],
    "Paris": ["Paris"],
    "- Paris": ["Paris"],
    "[]": [],
    'Here: [1, "a", ["b"]]': [1, "a", ["b"]],
    "Nothing found: []": [],
    f"{FENCE}json\n[]\n{FENCE}": [],
    "The ids:\n[3, 5]": [3, 5],
    "The ids are: [3, 5].": [3, 5],
    '{"a": 1}\n{"a": 2}\n': [{"a": 1}, {"a": 2}],
    f'{FENCE}jsonl\n{{"a": 1}}\n{{"a": 2}}\n{FENCE}': [{"a": 1}, {"a": 2}],
    # https://github.com/langgenius/dify/issues/41958
    '[{"code": "use ```print``` and [x] {y}"}]': [
        {"code": "use ```print``` and [x] {y}"}
    ],
    'Use this:\n[\n  {"code": "```sh\\nls\\n```"}\n]': [
        {"code": "```sh\nls\n```"}
    ],
    '["</think> is a tag", "<think>"]': ["</think> is a tag", "<think>"],
    "- Paris\n  - Louvre\n  Seine\n- Rome": ["Paris\n- Louvre\nSeine", "Rome"],
    "1. **Paris**: old\n   and large\n2. Rome": [
        "**Paris**: old\nand large",
        "Rome",
    ],
    # what is not JSON and not one Markdown list: each line as it is
    "Buy milk\n- organic\nBuy bread": ["Buy milk", "- organic", "Buy bread"],
    "- a\n- b\n\nOthers:\n\n- c": ["- a", "- b", "Others:", "- c"],
    "2019. A year\n2020. Another": ["2019. A year", "2020. Another"],
    "-5\n-3": ["-5", "-3"],
    "Paris [1]\nRome [2]": ["Paris [1]", "Rome [2]"],
    "- Paris [1]\n- Rome [2, 3]": ["Paris [1]", "Rome [2, 3]"],
    "[1] Paris\n[2] Rome": ["[1] Paris", "[2] Rome"],
    "[Verse 1]\nla": ["[Verse 1]", "la"],
    "[a](http://a), [b](http://b)": ["[a](http://a), [b](http://b)"],
    'd["key"] is new\nitems[0] is old': ['d["key"] is new', "items[0] is old"],
    "Use {name}\nand ${HOME}\n\\frac{a}{b}": [
        "Use {name}",
        "and ${HOME}",
        "\\frac{a}{b}",
    ],
    "test('x', async ({ page }) => {});\nb": [
        "test('x', async ({ page }) => {});",
        "b",
    ],
}
UNREADABLE = {
    "cut off": '["Paris", "Ro',
    "cut off in a fence": f'{FENCE}json\n[\n  {{"n": 1}},\n  {{"n":',
    "cut off in an object": '{"items": ["Paris"',
    "cut off in thoughts": "<think>Perhaps Paris\nor Rome",
    "rest of an array": '"Paris", "Rome"]',
    "trailing comma": '["Paris", "Rome",]',
    "comment": '[\n  // cities\n  "Paris"\n]',
    "ellipsis": '["Paris", ...]',
    "single quotes": "['Paris', 'Rome']",
    "no quotes": "[Paris, Rome]",
    "no quotes after words": "Cities: [Paris, Rome]",
    "typographic quotes": "[“Paris”, “Rome”]",
    "keys without quotes": '{items: ["Paris"]}',
    "numbers in a sentence": "The ids are [3, 5, 8] today.",
    "two arrays": f'{ARRAY}\n["Bonn"]',
    "two arrays on a line": f'{ARRAY}, ["Bonn"]',
    # https://github.com/ConardLi/easy-dataset/pull/506
    "two fences": f'{FENCE}json\n{ARRAY}\n{FENCE}\n{FENCE}json\n["Bonn"]\n{FENCE}',
    "another array before the fence": f'I drop ["Bonn"].\n{FENCE}json\n{ARRAY}\n{FENCE}',
    "an object beside an array": f'For {{"country": "x"}}: {ARRAY}',
    "arrays in objects on lines": '{"items": ["a"]}\n{"items": ["b"]}',
    "object with two keys": f'{{"cities": {ARRAY}, "count": 2}}',
    "object with two keys after words": f'Result: {{"cities": {ARRAY}, "rivers": ["Seine"]}}',
    "object without an array": '{"city": "Paris"}',
    "array in an array that is not JSON": '[Bonn, ["Paris"]]',
    "number": "5",
    "null": "null",
    "text": '"Paris"',
    "depth": "[" * 100_000,
}


@pytest.mark.parametrize(
    "text",
    [*JSON_TEXTS.values(), *MARKDOWN_TEXTS.values()],
    ids=[*JSON_TEXTS, *MARKDOWN_TEXTS],
)
def test_a_list_is_read_from_what_models_write(text: str) -> None:
    """JSON is read by itself, in fences, between words and after thoughts; Markdown lists and lines without it."""
    assert read_items(text) == CITIES


@pytest.mark.parametrize(("text", "items"), OTHER_TEXTS.items())
def test_items_are_neither_lost_nor_invented(
    text: str, items: list[Any]
) -> None:
    """Items of any kind arrive as they are, and brackets of prose and code are not JSON."""
    assert read_items(text) == items


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE)
def test_what_is_not_certain_is_an_error(text: str) -> None:
    """A text that looks like JSON is not read as lines, nor is one of several lists chosen."""
    with pytest.raises(UnreadableItemsError):
        read_items(text)


def test_data_is_read_as_the_same_json(subtests: Any) -> None:
    """A list is its items, and so is the list of an object with one key; other data have none."""
    assert read_items([1, "[2]"]) == [1, "[2]"]
    assert read_items({"items": [1]}) == [1]
    for value in (5, None, True, {}, {"a": 1}, {"a": [1], "b": [2]}):
        with subtests.test(value=value), pytest.raises(UnreadableItemsError):
            read_items(value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(), inner, max_size=3)
    ),
    max_leaves=5,
)


@given(
    st.lists(json_values, min_size=1), st.sampled_from([None, 2]), st.booleans()
)
def test_any_list_in_a_fence_arrives_unchanged(
    items: list[Any], indent: int | None, ascii_only: bool
) -> None:
    """No item can end the fence, the thoughts or the words around the list."""
    text = json.dumps(items, indent=indent, ensure_ascii=ascii_only)
    assert (
        read_items(
            f"<think>\n[1</think>\nHere:\n{FENCE}json\n{text}\n{FENCE}\nBye."
        )
        == items
    )


@given(st.text(alphabet='[]{}",:`~ \n\\ab1-<>/think', max_size=60))
def test_any_text_has_items_or_is_an_error(text: str) -> None:
    """No text makes the reader fail in another way."""
    with contextlib.suppress(UnreadableItemsError):
        assert isinstance(read_items(text), list)
