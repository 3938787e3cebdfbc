"""The items of a map step, read from what models write.

A text is read as JSON: a JSON document by itself, in a Markdown fence or between words, after a model's thoughts. It is
read as lines only if nothing in it looks like JSON. What looks like JSON and cannot be read for certain is an error,
because each item may cost model calls.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

_THOUGHTS = r"<{}(?:think|thinking|thoughts?|reasoning)>|\[{}THINK\]|◁{}think▷"
_THOUGHTS_START = re.compile(rf"\s*+(?:{_THOUGHTS.format('', '', '')})", re.IGNORECASE)
_THOUGHTS_END = re.compile(_THOUGHTS.format("/", "/", "/"), re.IGNORECASE)

_FENCE = re.compile(r"(?<![`~])(`{3,}+|~{3,}+)[ \t]*+([\w+.#-]*+)$")
"""The end of a line that opens a fenced block, perhaps with a language; words may stand before it."""
_FENCE_ON_ONE_LINE = re.compile(r"(?<!`)(`{3,}+)(?:json)?[ \t]*+([\[{][^`]*+)\1$")

_BRACKET = re.compile(r"(?<![\w)\]\\$])[\[{]")
"""A bracket that may begin JSON: not that of an index, a Markdown link or the argument of a command."""
_START = re.compile(r"""[\[{]\s*+["']|\[\s*+[{\[]""")
"""The start of an object, or of a list of texts, objects or lists."""
_START_ON_LINE = re.compile(
    r"\[[ \t]*+(?:$|//|/\*)|\{\s*+[A-Za-z_]\w*+\s*+:", re.MULTILINE
)
"""The start of a list or an object if nothing stands before it on its line."""
_START_OF_SCALARS = re.compile(r"\[\s*+(?:-?\d[\d.eE+-]*+|true|false|null)\s*+,")
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
    return _items_of_text(value) if isinstance(value, str) else _list_in(value)


def after_thoughts(text: str) -> str:
    """What a text says after the thoughts of a model, `<think>…</think>`; the opening tag may be missing."""
    ends = [match.end() for match in _THOUGHTS_END.finditer(text)]
    return text[ends[-1] :] if ends else text


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
    fences, words = _split_fences(answer)
    if any(fence.is_json for fence in fences):
        return _only_list(_fenced_documents(fences, words))
    if documents := _documents(answer):
        return _only_list(documents)
    lines = (fences[0].content if len(fences) == 1 else answer).splitlines()
    items = _markdown_items(lines)
    if items is not None:
        return items
    if _looks_like_json(answer):
        raise UnreadableItemsError("looks like JSON, but is not")
    return [line.strip() for line in lines if line.strip()]


def _only_list(documents: Sequence[object]) -> list[Any]:
    """The items of the only document, or of several that are equal."""
    if any(document != documents[0] for document in documents):
        raise UnreadableItemsError(f"has {len(documents)} JSON documents")
    return _list_in(documents[0])


def _list_in(value: object) -> list[Any]:
    """The list that a value is, or that is inside objects with one key."""
    while isinstance(value, dict):
        values = list(cast("dict[str, object]", value).values())
        if len(values) != 1:
            raise UnreadableItemsError(
                f"is not a list, but an object with {len(values)} keys"
            )
        value = values[0]
    if not isinstance(value, list):
        raise UnreadableItemsError("is not a list")
    return cast("list[Any]", value)


@dataclass(frozen=True, slots=True)
class _Fence:
    """A fenced block of a Markdown text."""

    language: str
    content: str

    @property
    def is_json(self) -> bool:
        """Whether it begins as JSON does."""
        return self.content.lstrip().startswith(("[", "{"))


def _split_fences(text: str) -> tuple[list[_Fence], str]:
    """The fenced blocks of a text, and the words around them; the last block may lack its end."""
    fences: list[_Fence] = []
    words: list[str] = []
    content: list[str] = []
    mark = ""
    language = ""
    for line in text.split("\n"):
        stripped = line.rstrip()
        if mark and _ends_fence(stripped, mark):
            content.append(stripped.rstrip(mark[0]))
            fences.append(_Fence(language, "\n".join(content)))
            mark = ""
        elif mark:
            content.append(line)
        elif opening := _FENCE.search(stripped):
            mark, language = opening.groups()
            content = []
            words.append(line[: opening.start()])
        elif block := _FENCE_ON_ONE_LINE.search(stripped):
            fences.append(_Fence("json", block[2]))
            words.append(line[: block.start()])
        else:
            words.append(line)
    if mark:
        fences.append(_Fence(language, "\n".join(content)))
    return fences, "\n".join(words)


def _ends_fence(line: str, mark: str) -> bool:
    """Whether a line ends a fenced block: it is the fence alone, or the end of JSON with the fence."""
    content = line.rstrip(mark[0]).strip()
    return line.endswith(mark) and (not content or content.endswith(("]", "}")))


def _fenced_documents(fences: Sequence[_Fence], words: str) -> list[object]:
    """The documents of the fenced blocks that begin as JSON does, and the complete ones around them."""
    documents: list[object] = []
    for fence in fences:
        if not fence.is_json:
            continue
        found = _documents(fence.content)
        if not found:
            raise UnreadableItemsError("has a block that looks like JSON, but is not")
        documents += found
    # an incomplete example between the words does not make the block less certain
    with contextlib.suppress(UnreadableItemsError):
        documents += _documents(words)
    return documents


def _documents(text: str) -> list[object]:
    """The JSON documents in a text; JSON Lines, an object on each line, are one list."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    if len(lines) > 1 and all(
        line.startswith("{") and line.endswith("}") for line in lines
    ):
        with contextlib.suppress(UnreadableItemsError):
            objects = [_whole_document(line) for line in lines]
            if not any(_is_list_in_object(each) for each in objects):
                return [objects]
    return list(_documents_between_words(text))


def _is_list_in_object(value: object) -> bool:
    with contextlib.suppress(UnreadableItemsError):
        _list_in(value)
        return True
    return False


def _documents_between_words(text: str) -> Iterator[object]:
    """Each list and each object in a text, but not the brackets of prose, such as citations."""
    is_one_line = "\n" not in text.strip()
    end = 0
    for bracket in _BRACKET.finditer(text):
        start = bracket.start()
        if start < end:
            continue
        before = text[max(0, start - _NEARBY) : start].rpartition("\n")[2]
        is_first = not before.strip(" \t`*_")
        is_introduced = _INTRODUCTION.search(before) is not None
        is_document = _START.match(text, start) is not None
        if is_first or is_introduced:
            is_document = is_document or _START_ON_LINE.match(text, start) is not None
        if _START_OF_SCALARS.match(text, start):
            is_document = True
        if scalars := _SCALARS.match(text, start):
            after = text[scalars.end() : scalars.end() + _NEARBY].partition("\n")[0]
            is_last = not after.strip(" \t`*_.,;")
            may_be_citation = (
                not is_one_line and _CITATION.fullmatch(scalars[0]) is not None
            )
            is_document = (is_first and is_last) or (
                is_introduced and not may_be_citation
            )
        if not is_document:
            continue
        if _is_inside_brackets(text[end:start]):
            raise UnreadableItemsError("looks like JSON, but is invalid")
        document, end = _decode(text, start)
        yield document


def _is_inside_brackets(before: str) -> bool:
    """Whether a bracket before is not closed."""
    opened = before.count("[") + before.count("{")
    return opened > before.count("]") + before.count("}")


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
    if _BRACKETED.fullmatch(text) or any(
        "," in end[1] for end in _END_OF_LINE_IN_BRACKETS.finditer(text)
    ):
        return True
    if "[" not in text and _REST_OF_LIST.search(text):
        return True
    return any(
        not _CITATION.fullmatch(scalars[0]) for scalars in _SCALARS.finditer(text)
    )


def _markdown_items(lines: Sequence[str]) -> list[str] | None:
    """The items of a Markdown list, without their bullets or numbers; None if the lines are not one list.

    What is indented below an item is part of it. Words before and after the list are not part of it.
    """
    marker = next(
        (each for line in lines for each in (_BULLET, _NUMBER) if each.match(line)),
        None,
    )
    if marker is None:
        return None
    markers = {
        number: match
        for number, line in enumerate(lines)
        if (match := marker.match(line))
    }
    first = min(markers)
    level = markers[first][1]
    starts = {number: match for number, match in markers.items() if match[1] == level}
    if marker is _NUMBER and not _counts_up(
        [int(match[2]) for match in starts.values()]
    ):
        return None
    items: list[str] = []
    end = first
    for number, line in enumerate(lines[first:], first):
        if match := starts.get(number):
            items.append(line[match.end() :].strip())
        elif line.strip() and not line.startswith((f"{level} ", f"{level}\t")):
            break
        elif line.strip():
            items[-1] = f"{items[-1]}\n{line.strip()}"
        end = number
    before = [line.strip() for line in lines[:first]]
    after = lines[end + 1 :]
    is_introduced = (
        not any(before)
        or not before[-1]
        or before[-1].strip("*_").endswith((":", "\uff1a"))
    )
    is_concluded = not after or not lines[end].strip() or len(items) > 1
    has_words = any(before) or bool(after)
    is_whole = end >= max(starts) and (len(items) > 1 or not has_words)
    return items if is_whole and is_introduced and is_concluded else None


def _counts_up(numbers: Sequence[int]) -> bool:
    """Whether the numbers of a list begin with 0 or 1 and have no gap."""
    return numbers[0] in (0, 1) and list(numbers) == list(
        range(numbers[0], numbers[0] + len(numbers))
    )
