"""The items of a map step, read from what models write.

A text is read as JSON: a JSON document by itself, in a Markdown fence or between words, after a model's thoughts. It is
read as lines only if nothing in it looks like JSON. What looks like JSON and cannot be read for certain is an error,
because each item may cost model calls.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

_THOUGHTS = r"<{}(?:think|thinking|thoughts?|reasoning)>|\[{}THINK\]|◁{}think▷"
_THOUGHTS_START = re.compile(
    rf"\s*+(?:{_THOUGHTS.format('', '', '')})", re.IGNORECASE
)
_THOUGHTS_END = re.compile(_THOUGHTS.format("/", "/", "/"), re.IGNORECASE)

_FENCE = re.compile(r"(?<![`~])(`{3,}+|~{3,}+)[ \t]*+[\w+.#-]*+$")
"""The end of a line that opens a fenced block, perhaps with a language; words may stand before it."""
_FENCE_ON_ONE_LINE = re.compile(
    r"(?<!`)(`{3,}+)(?:json)?[ \t]*+([\[{][^`]*+)\1$"
)

_BRACKET = re.compile(r"(?<![\w)\]\\$])[\[{]")
"""A bracket that may begin JSON: not that of an index, a Markdown link or the argument of a command."""
_START = re.compile(r"""[\[{]\s*+["']|\[\s*+[{\[]""")
"""The start of an object, or of a list of texts, objects or lists."""
_START_ON_LINE = re.compile(
    r"\[[ \t]*+(?:$|//|/\*)|\{\s*+[A-Za-z_]\w*+\s*+:", re.MULTILINE
)
"""The start of a list or an object if nothing stands before it on its line."""
_START_OF_SCALARS = re.compile(
    r"\[\s*+(?:-?\d[\d.eE+-]*+|true|false|null)\s*+,"
)
_SCALARS = re.compile(
    r"\[\s*+(?:(?:-?\d[\d.eE+-]*+|true|false|null)\s*+(?:,\s*+|(?=\])))*+\]|\{\s*+\}"
)
"""A list of numbers, or an empty list or object: people also write citations and boxes to tick in this way."""
_CITATION = re.compile(r"\[\s*+\d*+\s*+\]|\{\s*+\}")
_BRACKETED = re.compile(r"\s*+(?:\[[^\[\]]*+\]|\{[^{}]*+\})\s*+")
_END_OF_LINE_IN_BRACKETS = re.compile(
    r"(?:^|[:\uff1a=])[ \t`*_]*+\[([^\[\]\n]*+)\][ \t.`*_]*+$", re.MULTILINE
)
_REST_OF_LIST = re.compile(r'["}\]]\s*+\]\s*+$')
# U+FF1A is the colon of Chinese and Japanese
_INTRODUCTION = re.compile(r"[:\uff1a=][ \t`*_]*+$")
_NEARBY = 50
"""Characters before and after a list of numbers that tell whether it is a citation."""

_BULLET = re.compile(r"([ \t]*+)[-*+•][ \t]++(?:\[[ xX]\][ \t]++)?(?=\S)")
"""The bullet of an item of a Markdown list, with its box to tick if it has one."""
_NUMBER = re.compile(r"([ \t]*+)(\d{1,4})[.)][ \t]++(?=\S)")

_DECODER = json.JSONDecoder()


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


def after_thoughts(text: str) -> str:
    """What a text says after the thoughts of a model, `<think>…</think>`; the opening tag may be missing."""
    end = 0
    for match in _THOUGHTS_END.finditer(text):
        end = match.end()
    return text[end:]


def _items_of_text(text: str) -> list[Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return _items_of_answer(after_thoughts(text))
    if isinstance(document, str):  # perhaps it was encoded twice
        document = _whole_document(document.strip())
    return _list_in(document)


def _items_of_answer(answer: str) -> list[Any]:
    """The items of a text that is not a JSON document by itself."""
    if _THOUGHTS_START.match(answer):
        raise UnreadableItemsError("ends within the thoughts of the model")
    blocks, words = _split_blocks(answer)
    if any(_begins_like_json(block) for block in blocks):
        return _only_list(_documents_of_blocks(blocks, words))
    documents = _documents(answer)
    if documents:
        return _only_list(documents)
    list_text = answer
    if len(blocks) == 1:
        list_text = blocks[0]
    lines = list_text.splitlines()
    items = _markdown_items(lines)
    if items is not None:
        return items
    if _looks_like_json(answer):
        raise UnreadableItemsError("looks like JSON, but is not")
    return _stripped_lines(lines)


def _stripped_lines(lines: Iterable[str]) -> list[str]:
    """Lines without the white space around them, and without the blank ones."""
    stripped = map(str.strip, lines)
    return [line for line in stripped if line]


def _only_list(documents: Sequence[object]) -> list[Any]:
    """The items of the only document, or of several that are equal."""
    first = documents[0]
    for document in documents:
        if document != first:
            raise UnreadableItemsError(f"has {len(documents)} JSON documents")
    return _list_in(first)


def _list_in(value: object) -> list[Any]:
    """The list that a value is, or that is inside objects with one key."""
    while isinstance(value, dict):
        value = _only_value(cast("dict[str, object]", value))
    if not isinstance(value, list):
        raise UnreadableItemsError("is not a list")
    return cast("list[Any]", value)


def _only_value(value: Mapping[str, object]) -> object:
    if len(value) != 1:
        raise UnreadableItemsError(
            f"is not a list, but an object with {len(value)} keys"
        )
    return next(iter(value.values()))


def _split_blocks(text: str) -> tuple[list[str], str]:
    """The fenced blocks of a Markdown text, and the words around them; the last block may lack its end."""
    blocks: list[str] = []
    words: list[str] = []
    content: list[str] = []
    fence = ""
    for line in text.split("\n"):
        stripped = line.rstrip()
        if fence and _ends_block(stripped, fence):
            content.append(stripped.rstrip(fence[0]))
            blocks.append("\n".join(content))
            fence = ""
        elif fence:
            content.append(line)
        elif opening := _FENCE.search(stripped):
            fence = opening[1]
            content = []
            words.append(line[: opening.start()])
        elif block := _FENCE_ON_ONE_LINE.search(stripped):
            blocks.append(block[2])
            words.append(line[: block.start()])
        else:
            words.append(line)
    if fence:
        blocks.append("\n".join(content))
    return blocks, "\n".join(words)


def _ends_block(line: str, fence: str) -> bool:
    """Whether a line ends a fenced block: it is the fence alone, or the end of JSON with the fence."""
    if not line.endswith(fence):
        return False
    content = line.rstrip(fence[0]).strip()
    if not content:
        return True
    return content.endswith(("]", "}"))


def _begins_like_json(block: str) -> bool:
    return block.lstrip().startswith(("[", "{"))


def _documents_of_blocks(blocks: Sequence[str], words: str) -> list[object]:
    """The documents of the fenced blocks that begin as JSON does, and the complete ones around them."""
    documents: list[object] = []
    for block in blocks:
        if not _begins_like_json(block):
            continue
        found = _documents(block)
        if not found:
            raise UnreadableItemsError(
                "has a block that looks like JSON, but is not"
            )
        documents += found
    # an incomplete example between the words does not make the block less certain
    with contextlib.suppress(UnreadableItemsError):
        documents += _documents(words)
    return documents


def _documents(text: str) -> list[object]:
    """The JSON documents in a text; JSON Lines, an object on each line, are one list."""
    objects = _json_lines(text)
    if objects is not None:
        return [objects]
    return list(_documents_between_words(text))


def _json_lines(text: str) -> list[object] | None:
    """The objects of JSON Lines; None if the text is anything else, or if one of the objects holds a list."""
    lines = _stripped_lines(text.split("\n"))
    if len(lines) < 2:
        return None
    if not all(line.startswith("{") and line.endswith("}") for line in lines):
        return None
    try:
        objects = [_whole_document(line) for line in lines]
    except UnreadableItemsError:
        return None
    if any(_holds_list(each) for each in objects):
        return None
    return objects


def _holds_list(value: object) -> bool:
    try:
        _list_in(value)
    except UnreadableItemsError:
        return False
    return True


def _documents_between_words(text: str) -> Iterator[object]:
    """Each list and each object in a text, but not the brackets of prose, such as citations."""
    is_one_line = "\n" not in text.strip()
    end = 0
    for bracket in _BRACKET.finditer(text):
        start = bracket.start()
        if start < end:
            continue
        if not _begins_document(text, start, is_one_line=is_one_line):
            continue
        if _is_inside_brackets(text[end:start]):
            raise UnreadableItemsError("looks like JSON, but is invalid")
        document, end = _decode(text, start)
        yield document


def _begins_document(text: str, start: int, *, is_one_line: bool) -> bool:
    """Whether the bracket at a position begins JSON, and is not one of prose."""
    nearby = text[max(0, start - _NEARBY) : start]
    before = nearby.rpartition("\n")[2]
    is_first = not before.strip(" \t`*_")
    is_introduced = _INTRODUCTION.search(before) is not None
    scalars = _SCALARS.match(text, start)
    if scalars:
        if is_first and _is_last_on_line(text, scalars.end()):
            return True
        is_certain = is_one_line or not _CITATION.fullmatch(scalars[0])
        return is_introduced and is_certain
    if _START.match(text, start) or _START_OF_SCALARS.match(text, start):
        return True
    if is_first or is_introduced:
        return _START_ON_LINE.match(text, start) is not None
    return False


def _is_last_on_line(text: str, end: int) -> bool:
    """Whether nothing but punctuation stands between a position and the end of its line."""
    nearby = text[end : end + _NEARBY]
    after = nearby.partition("\n")[0]
    return not after.strip(" \t`*_.,;")


def _is_inside_brackets(before: str) -> bool:
    """Whether a bracket before is not closed."""
    opened = before.count("[") + before.count("{")
    closed = before.count("]") + before.count("}")
    return opened > closed


def _decode(text: str, start: int) -> tuple[object, int]:
    """The JSON document at a position, and where it ends."""
    try:
        return _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        raise UnreadableItemsError(
            "looks like JSON, but is cut off or invalid"
        ) from None


def _whole_document(text: str) -> object:
    """The JSON document that a text is."""
    document, end = _decode(text, 0)
    if end < len(text):
        raise UnreadableItemsError("looks like JSON, but goes on after its end")
    return document


def _looks_like_json(text: str) -> bool:
    """Whether a text without a JSON document has a list of another kind, or the rest of one."""
    if _BRACKETED.fullmatch(text):
        return True
    if "[" not in text and _REST_OF_LIST.search(text):
        return True
    for end in _END_OF_LINE_IN_BRACKETS.finditer(text):
        if "," in end[1]:
            return True
    lists = _SCALARS.finditer(text)
    return any(not _CITATION.fullmatch(scalars[0]) for scalars in lists)


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
