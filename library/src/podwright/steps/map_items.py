"""The items of a map step, read from what models write.

A text is read as JSON, see `podwright.data.model_json`, and as lines only if nothing in it looks like JSON. What looks
like JSON and cannot be read for certain is an error, because each item may cost model calls.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from podwright.data.model_json import (
    CITATION,
    SCALARS,
    UnreadableJsonError,
    after_thoughts,
    find_documents,
    only_document,
    only_value,
    open_text,
    read_answer,
    split_blocks,
    strip,
    whole_document,
)

_BRACKETED = re.compile(r"\s*+(?:\[[^\[\]]*+\]|\{[^{}]*+\})\s*+")
_END_OF_LINE_IN_BRACKETS = re.compile(
    r"(?:^|[:\uff1a=])[ \t`*_]*+\[([^\[\]\n]*+)\][ \t.`*_]*+$", re.MULTILINE
)
_REST_OF_LIST = re.compile(r'["}\]]\s*+\]\s*+$')
_BULLET = re.compile(r"([ \t]*+)[-*+•][ \t]++(?:\[[ xX]\][ \t]++)?(?=\S)")
"""The bullet of an item of a Markdown list, with its box to tick if it has one."""
_NUMBER = re.compile(r"([ \t]*+)(\d{1,4})[.)][ \t]++(?=\S)")


class UnreadableItemsError(ValueError):
    """A value is not a list, or a text looks like JSON but cannot be read for certain.

    Args:
        reason: What is wrong, as the end of a sentence: "is not a list".
    """


def read_items(value: object) -> list[Any]:
    """The items of a list, of an object whose only key holds a list, or of a text.

    Args:
        value: JSON data, or a text as a model writes it.

    Raises:
        UnreadableItemsError: The items are not certain.
    """
    if isinstance(value, str):
        return _items_of_text(value)
    return _list_in(value)


def _items_of_text(text: str) -> list[Any]:
    try:
        try:
            document = whole_document(strip(text)).data
        except UnreadableJsonError:
            return _items_of_answer(text)
    except UnreadableJsonError as error:
        raise UnreadableItemsError(
            f"looks like JSON, but cannot be read for certain: {error}"
        ) from error
    return _list_in(open_text(document))


def _items_of_answer(text: str) -> list[Any]:
    """The items of a text that is not a JSON document by itself.

    Raises:
        UnreadableJsonError: A part of it looks like JSON, but cannot be read for certain.
    """
    documents = find_documents(read_answer(text), json_lines=True)
    if documents:
        return _list_in(only_document(documents).data)
    answer = after_thoughts(text)
    blocks, _ = split_blocks(answer)
    list_text = answer
    if len(blocks) == 1:
        list_text = blocks[0]
    lines = list_text.splitlines()
    items = _markdown_items(lines)
    if items is not None:
        return items
    if _looks_like_json(answer):
        raise UnreadableItemsError("looks like JSON, but is not")
    return [line for line in map(str.strip, lines) if line]


def _list_in(value: object) -> list[Any]:
    """The list that a value is, or that is inside objects with one key."""
    inner = only_value(value)
    if isinstance(inner, list):
        return cast("list[Any]", inner)
    if isinstance(inner, dict):
        number = len(cast("dict[str, object]", inner))
        raise UnreadableItemsError(
            f"is not a list, but an object with {number} keys"
        )
    raise UnreadableItemsError("is not a list")


def _looks_like_json(text: str) -> bool:
    """Whether a text without a JSON document has a list of another kind, or the rest of one."""
    if _BRACKETED.fullmatch(text):
        return True
    if "[" not in text and _REST_OF_LIST.search(text):
        return True
    for end in _END_OF_LINE_IN_BRACKETS.finditer(text):
        if "," in end[1]:
            return True
    lists = SCALARS.finditer(text)
    return any(not CITATION.fullmatch(scalars[0]) for scalars in lists)


def _markdown_items(lines: Sequence[str]) -> list[str] | None:
    """The items of a Markdown list, without their bullets or numbers; None if the lines are not one list.

    What is indented below an item is part of it. Words before and after the list are not part of it.
    """
    marker = _first_marker(lines)
    if marker is None:
        return None
    starts = _starts_of_items(lines, marker)
    if marker is _NUMBER and not _counts_up(list(starts.values())):
        return None
    first = min(starts)
    items, end = _collect_items(lines, first, starts)
    if end <= max(starts):
        return None
    before = [line.strip() for line in lines[:first]]
    after = lines[end:]
    has_words_before = any(before)
    if has_words_before and not _introduces_list(before[-1]):
        return None
    if len(items) == 1 and (has_words_before or after):
        return None
    return items


def _first_marker(lines: Sequence[str]) -> re.Pattern[str] | None:
    """What the items of the first list begin with: bullets or numbers."""
    for line in lines:
        for marker in (_BULLET, _NUMBER):
            if marker.match(line):
                return marker
    return None


def _starts_of_items(
    lines: Sequence[str], marker: re.Pattern[str]
) -> dict[int, re.Match[str]]:
    """The bullets or numbers that are indented like the first one, by the indices of their lines."""
    starts: dict[int, re.Match[str]] = {}
    level: str | None = None
    for index, line in enumerate(lines):
        match = marker.match(line)
        if match is None:
            continue
        if level is None:
            level = match[1]
        if match[1] == level:
            starts[index] = match
    return starts


def _collect_items(
    lines: Sequence[str], first: int, starts: Mapping[int, re.Match[str]]
) -> tuple[list[str], int]:
    """The items of a list from its first line on, and the index of the line after the list."""
    level = starts[first][1]
    items: list[str] = []
    indented = (f"{level} ", f"{level}\t")
    for index, line in enumerate(lines[first:], first):
        start = starts.get(index)
        text = line.strip()
        if start:
            content = line[start.end() :]
            items.append(content.strip())
        elif not text:
            continue
        elif line.startswith(indented):
            items[-1] += f"\n{text}"
        else:
            return items, index
    return items, len(lines)


def _introduces_list(line: str) -> bool:
    """Whether a list may follow a line: it is blank, or ends in a colon."""
    if not line:
        return True
    return line.strip("*_").endswith((":", "\uff1a"))


def _counts_up(matches: Sequence[re.Match[str]]) -> bool:
    """Whether the numbers of a list begin with 0 or 1 and have no gap."""
    expected = int(matches[0][2])
    if expected > 1:
        return False
    for match in matches:
        if int(match[2]) != expected:
            return False
        expected += 1
    return True
