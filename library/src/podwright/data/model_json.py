"""JSON as models write it: one reader for structured answers, the arguments of tool calls and the lists of map steps.

What is certain is taken: one JSON value by itself, in a Markdown fence or between words, after a model's thoughts,
before an end mark, written twice, or encoded once more as JSON text. What is not certain is refused: two values that
differ, one that is cut off or invalid, and none. Nothing is repaired, and each text is read in a time that is
proportional to its length.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

from podwright.data.json_data import JsonObject, as_array, describe_value
from podwright.data.text import short_repr

MAX_DEPTH = 100
"""Most levels of objects and lists in one another."""
_MAX_ENCODINGS = 4
"""How often a value may be encoded as JSON text."""
_SHOWN_CHARS = 30
"""Characters of a text that an error shows."""

_THOUGHTS = r"<{}(?:think|thinking|thoughts?|reasoning)>|\[{}THINK\]|◁{}think▷"
_THOUGHTS_START = re.compile(
    rf"\s*+(?:{_THOUGHTS.format('', '', '')})", re.IGNORECASE
)
_THOUGHTS_END = re.compile(
    rf"{_THOUGHTS.format('/', '/', '/')}|<\|channel\|>final<\|message\|>",
    re.IGNORECASE,
)

_SPACES = (
    " \t\n\r\v\f\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff\u200b\u200c\u200d\u2060\u180e"
)
"""White space, and characters that are not seen, such as a byte order mark."""
_MARK = r"(?:<\|\w{1,40}\|>|</?s>|<(?:end_of_turn|eos|eot|pad)>|\[(?:DONE|EOS|/INST)\])"
"""A mark of a chat template, which some servers leave in the text."""
_MARKS_BEFORE = re.compile(rf"(?:[{_SPACES}]|{_MARK})*+")
_MARK_AT_END = re.compile(rf"{_MARK}\Z")
_MAX_MARKS = 8
"""Marks that are taken from the end of a text."""
_MAX_MARK_CHARS = 50

_FENCE = re.compile(r"(?<![`~])(`{3,}+|~{3,}+)[ \t]*+[\w+.#-]*+$")
"""The end of a line that opens a fenced block, perhaps with a language; words may stand before it."""
_FENCE_ON_ONE_LINE = re.compile(
    r"(?<!`)(`{3,}+)(?:json)?[ \t]*+([\[{\"][^`]*+)\1$"
)

_BRACKET = re.compile(
    r"""(?<![\w)\]\\$])\[(?=\s*+["'{\[\d\]tfn-]|[ \t]*+(?:$|//|/\*))"""
    r"""|(?<![\w)\]\\$])\{(?=\s*+["'}A-Za-z_])"""
    r"""|(?<=[\w)\]])\{(?=\s*+"[^"\n]*+"\s*+:)"""
    r"""|"(?=\s*+(?:\\[nrt]\s*+)*+[{\[]\s*+(?:\\[nrt]\s*+)*+\\")""",
    re.MULTILINE,
)
"""A bracket that may begin JSON, or the quote before one that is encoded once more.

It is not that of an index, a Markdown link or the argument of a command.
"""
_START = re.compile(r"""[\[{]\s*+["']|\[\s*+[{\[]""")
"""The start of an object, or of a list of texts, objects or lists."""
_START_ON_LINE = re.compile(
    r"\[[ \t]*+(?:$|//|/\*)|\{\s*+[A-Za-z_]\w*+\s*+:", re.MULTILINE
)
"""The start of a list or an object if nothing stands before it on its line."""
_START_OF_SCALARS = re.compile(
    r"\[\s*+(?:-?\d[\d.eE+-]*+|true|false|null)\s*+,"
)
SCALARS = re.compile(
    r"\[\s*+(?:(?:-?\d[\d.eE+-]*+|true|false|null)\s*+(?:,\s*+|(?=\])))*+\]|\{\s*+\}"
)
"""A list of numbers, or an empty list or object: people also write citations and boxes to tick in this way."""
CITATION = re.compile(r"\[\s*+\d*+\s*+\]|\{\s*+\}")
# U+FF1A is the colon of Chinese and Japanese
_INTRODUCTION = re.compile(r"[:\uff1a=][ \t`*_]*+$")
_NEARBY = 50
"""Characters before and after a list of numbers that tell whether it is a citation."""
_GOES_ON = re.compile(r"\s*+([\]}])")
_NEXT = re.compile(r"[\s,;]*+([\[{\"])")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,300})")
_FRACTION = re.compile(
    r"-?(?:0|[1-9]\d{0,300})(?:\.\d{1,300})?(?:[eE][+-]?\d{1,4})?"
)


class UnreadableJsonError(ValueError):
    """A text has no JSON value for certain; the message says why, for a model."""


class Document(NamedTuple):
    """A JSON value in a text."""

    data: Any
    text: str
    """The JSON text of the value alone."""


def read_json(text: str) -> Document:
    """The only JSON value in a text; an object or a list if it stands between words.

    A whole text that is a JSON string is that string; see `open_text`.

    Raises:
        UnreadableJsonError: There is none, or not for certain one.
    """
    stripped = strip(text)
    if not stripped:
        raise UnreadableJsonError("the text is empty")
    try:
        return whole_document(stripped)
    except UnreadableJsonError:
        documents = find_documents(read_answer(stripped))
    if not documents:
        raise UnreadableJsonError(f"no JSON in {_shown(stripped)}")
    return only_document(documents)


def open_text(data: Any) -> Any:
    """The object or the list that JSON data is or, as JSON text that is encoded once more, contains.

    The same data if it is neither.
    """
    opened = data
    for _ in range(_MAX_ENCODINGS):
        if not isinstance(opened, str):
            break
        try:
            opened = read_json(opened).data
        except UnreadableJsonError:
            return data
    if isinstance(opened, dict | list):
        return cast("Any", opened)
    return data


def clean_arguments(text: str) -> str:
    """The arguments of a tool call as the JSON text of an object, if it is certain what they are; else as they came."""
    try:
        return _arguments(text).text
    except UnreadableJsonError:
        return text


def is_object(text: str) -> bool:
    """Whether a text is the JSON text of an object, perhaps encoded once more."""
    try:
        opened = _opened_document(whole_document(strip(text)))
    except UnreadableJsonError:
        return False
    return isinstance(opened.data, dict)


def read_arguments(text: str) -> JsonObject:
    """The arguments of a tool call.

    No arguments at all, `null` and `[]` are an empty object. Gateways put one of these before the arguments, and some
    models put the object into a list.

    Raises:
        UnreadableJsonError: They are not for certain one object.
    """
    return _arguments(text).data


def exact_number(text: str, *, is_integer: bool) -> int | float | None:
    """The number that a text is in JSON; None if it is none, or is not an integer where one is wanted."""
    if _NUMBER.fullmatch(text):
        return int(text)
    if is_integer or not _FRACTION.fullmatch(text):
        return None
    number = float(text)
    if math.isinf(number):
        return None
    return number


def after_thoughts(text: str) -> str:
    """What a text says after the thoughts of a model, `<think>…</think>`; the opening tag may be missing."""
    end = 0
    for match in _THOUGHTS_END.finditer(text):
        end = match.end()
    return text[end:]


def read_answer(text: str) -> str:
    """What a text says after the thoughts of a model.

    Raises:
        UnreadableJsonError: It ends within them.
    """
    answer = strip(after_thoughts(text))
    if _THOUGHTS_START.match(answer):
        raise UnreadableJsonError("the text ends within the thoughts")
    return answer


def strip(text: str) -> str:
    """A text without white space, characters that are not seen, and end marks such as `<|im_end|>` around it."""
    before = _MARKS_BEFORE.match(text)
    stripped = text[before.end() if before else 0 :].rstrip(_SPACES)
    for _ in range(_MAX_MARKS):
        start = max(0, len(stripped) - _MAX_MARK_CHARS)
        mark = _MARK_AT_END.search(stripped, start)
        if mark is None:
            break
        stripped = stripped[: mark.start()].rstrip(_SPACES)
    return stripped


def only_document(documents: Sequence[Document]) -> Document:
    """The only document, or the first of several that are equal.

    Raises:
        UnreadableJsonError: They differ.
    """
    first = documents[0]
    if len(documents) == 1:
        return first
    form = _canonical(first.data)
    for document in documents:
        if _canonical(document.data) != form:
            raise UnreadableJsonError(
                f"{len(documents)} JSON values that differ, {_shown(first.text)} and {_shown(document.text)}"
            )
    return first


def whole_document(text: str) -> Document:
    """The JSON value that a text is.

    Raises:
        UnreadableJsonError: It is none.
    """
    data, end = _decode(text, 0)
    if end < len(text):
        raise UnreadableJsonError(
            f"the JSON value goes on after its end with {_shown(text[end:])}"
        )
    return Document(data, text)


def find_documents(text: str, *, json_lines: bool = False) -> list[Document]:
    """The objects and the lists in a text: those of its fenced blocks and around them, or those between its words.

    Args:
        text: The text, without thoughts.
        json_lines: Whether JSON Lines, an object on each line, are one list.

    Raises:
        UnreadableJsonError: A part of the text looks like JSON, but is cut off or invalid.
    """
    blocks, words = split_blocks(text)
    if not any(map(_begins_like_json, blocks)):
        return _documents(text, json_lines=json_lines)
    documents: list[Document] = []
    for block in blocks:
        if not _begins_like_json(block):
            continue
        found = _documents(block, json_lines=json_lines)
        if not found and strip(block).startswith(("[", "{")):
            raise UnreadableJsonError(f"invalid JSON in {_shown(block)}")
        documents += found
    # an incomplete example between the words does not make the block less certain
    with contextlib.suppress(UnreadableJsonError):
        documents += _documents(words, json_lines=json_lines)
    return documents


def split_blocks(text: str) -> tuple[list[str], str]:
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


def stripped_lines(text: str) -> list[str]:
    """The lines of a text without the white space around them, and without the blank ones."""
    stripped = map(str.strip, text.split("\n"))
    return [line for line in stripped if line]


def _ends_block(line: str, fence: str) -> bool:
    """Whether a line ends a fenced block: it is the fence alone, or the end of JSON with the fence."""
    if not line.endswith(fence):
        return False
    content = line.rstrip(fence[0]).strip()
    return not content or content.endswith(("]", "}", '}"', ']"'))


def _begins_like_json(block: str) -> bool:
    return strip(block).startswith(("[", "{", '"{', '"[', '"\\n'))


def _documents(text: str, *, json_lines: bool) -> list[Document]:
    if json_lines:
        objects = _json_lines(text)
        if objects is not None:
            return [Document(objects, text)]
    return list(_documents_between_words(text))


def _json_lines(text: str) -> list[Any] | None:
    """The objects of JSON Lines; None if the text is anything else, or if one of the objects holds a list."""
    lines = stripped_lines(text)
    if len(lines) < 2:
        return None
    if not all(line.startswith("{") and line.endswith("}") for line in lines):
        return None
    try:
        objects = [whole_document(line).data for line in lines]
    except UnreadableJsonError:
        return None
    if any(isinstance(only_value(each), list) for each in objects):
        return None
    return objects


def only_value(value: Any) -> Any:
    """The value inside objects of one key in one another; the value itself if it is no such object."""
    inner = value
    while isinstance(inner, dict):
        values = list(cast("JsonObject", inner).values())
        if len(values) != 1:
            break
        inner = values[0]
    return cast("Any", inner)


def _documents_between_words(text: str) -> Iterator[Document]:
    """Each list and each object in a text, but not the brackets of prose, such as citations."""
    is_one_line = "\n" not in text.strip()
    end = 0
    start = _next_start(text, 0, is_one_line=is_one_line)
    while start is not None:
        if _is_inside_brackets(text, end, start):
            raise UnreadableJsonError(f"invalid JSON in {_shown(text[end:])}")
        data, end = _decode(text, start)
        if closing := _GOES_ON.match(text, end):
            raise UnreadableJsonError(
                f"the JSON value ends before {closing[1]!r} at character {closing.start(1)}"
            )
        if isinstance(data, str):
            yield read_json(data)
        else:
            yield Document(data, text[start:end])
        start = _next_start(text, end, is_one_line=is_one_line)


def _next_start(text: str, end: int, *, is_one_line: bool) -> int | None:
    """Where the next JSON value begins after the end of one."""
    following = _NEXT.match(text, end)
    if end and following and _START.match(text, following.start(1)):
        return following.start(1)
    for bracket in _BRACKET.finditer(text, end):
        start = bracket.start()
        if _begins_document(text, start, is_one_line=is_one_line):
            return start
    return None


def _begins_document(text: str, start: int, *, is_one_line: bool) -> bool:
    """Whether the bracket at a position begins JSON, and is not one of prose."""
    if text[start] == '"':
        return True
    nearby = text[max(0, start - _NEARBY) : start]
    before = nearby.rpartition("\n")[2]
    is_first = not before.strip(" \t`*_")
    is_introduced = _INTRODUCTION.search(before) is not None
    scalars = SCALARS.match(text, start)
    if scalars:
        if is_first and _is_last_on_line(text, scalars.end()):
            return True
        is_certain = is_one_line or not CITATION.fullmatch(scalars[0])
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


def _is_inside_brackets(text: str, end: int, start: int) -> bool:
    """Whether a bracket between two positions is not closed."""
    opened = text.count("[", end, start) + text.count("{", end, start)
    closed = text.count("]", end, start) + text.count("}", end, start)
    return opened > closed


def _arguments(text: str) -> Document:
    """The object that the arguments of a tool call are, and its text."""
    stripped = strip(text)
    documents = _documents_in_row(stripped)
    if documents is None:
        documents = [read_json(stripped)]
    objects: list[Document] = []
    for document in documents:
        opened = _opened_document(document)
        if opened.data not in (None, "", [], {}):
            objects.append(opened)
    if not objects:
        return Document({}, "{}")
    return _object_in(only_document(objects))


def _documents_in_row(text: str) -> list[Document] | None:
    """The JSON values of a text that has nothing else; None if it has."""
    documents: list[Document] = []
    end = 0
    try:
        while end < len(text):
            data, next_end = _decode(text, end)
            documents.append(Document(data, text[end:next_end]))
            end = next_end
            while end < len(text) and text[end] in _SPACES:
                end += 1
    except UnreadableJsonError:
        return None
    return documents


def _opened_document(document: Document) -> Document:
    """The object or the list that is encoded in a text; the document itself if it is none, or has none."""
    opened = document
    for _ in range(_MAX_ENCODINGS):
        if not isinstance(opened.data, str):
            return opened
        if not strip(opened.data):
            return Document(None, "null")
        opened = read_json(opened.data)
    return opened


def _object_in(document: Document) -> Document:
    """The object that a value is, or that is the only one in a list.

    Raises:
        UnreadableJsonError: It is none.
    """
    if isinstance(document.data, dict):
        return document
    items = as_array(document.data)
    if len(items) == 1 and isinstance(items[0], dict):
        return Document(items[0], json.dumps(items[0]))
    raise UnreadableJsonError(
        f"expected an object, got {describe_value(document.data)}"
    )


def _decode(text: str, start: int) -> tuple[Any, int]:
    """The JSON value at a position, and where it ends."""
    try:
        data, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise UnreadableJsonError(_describe(text, error)) from None
    except RecursionError:
        raise _too_deep_error() from None
    except ValueError as error:
        raise UnreadableJsonError(str(error)) from None
    if _is_deep(data):
        raise _too_deep_error()
    return data, end


def _describe(text: str, error: json.JSONDecodeError) -> str:
    """What is wrong with a text, where, and what is found there."""
    found = "the end of the text"
    if text[error.pos :].strip():
        found = _shown(text[error.pos :])
    return f"{error}, found {found}"


def _too_deep_error() -> UnreadableJsonError:
    return UnreadableJsonError(f"it is nested deeper than {MAX_DEPTH} levels")


def _is_deep(data: Any) -> bool:
    """Whether data has more levels than are taken."""
    level: list[Any] = [data]
    for _ in range(MAX_DEPTH + 1):
        level = [inner for value in level for inner in _containers_in(value)]
        if not level:
            return False
    return True


def _containers_in(value: Any) -> list[Any]:
    """The objects and lists that are directly inside a value."""
    values: Any = ()
    if isinstance(value, dict):
        values = cast("JsonObject", value).values()
    elif isinstance(value, list):
        values = cast("list[Any]", value)
    return [inner for inner in values if isinstance(inner, dict | list)]


def _canonical(data: Any) -> str:
    """A text that is the same for data that is equal in JSON, where 1 is not true."""
    return json.dumps(data, sort_keys=True)


def _shown(text: str) -> str:
    return short_repr(text[:_SHOWN_CHARS])


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:_SHOWN_CHARS]} is too large a number")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> JsonObject:
    """An object; the value of a key that is written twice must be the same."""
    data = dict(pairs)
    if len(data) == len(pairs):
        return data
    for key, value in pairs:
        last = data[key]
        if value is not last and _canonical(value) != _canonical(last):
            raise ValueError(f"two values for the key {_shown(key)}")
    return data


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique,
    parse_constant=_refuse_constant,
    parse_float=_finite,
)
