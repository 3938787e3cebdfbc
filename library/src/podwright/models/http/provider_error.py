"""What a provider says about a refusal, without API keys and without text of the request."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from podwright.data.data_urls import parse_data_url
from podwright.data.text import printable, truncate
from podwright.messages.messages import Message, ModelRequest
from podwright.models.http.error_body import ErrorBody

_MAX_TEXT = 4000
"""Characters of an error that are read."""
_QUOTE = 16
_SHORT = 6
"""Characters in a row that quote the request; and those of a shorter text that is quoted whole, or a part of a key."""
_CUT = "[…]"
_KEY = re.compile(
    r"\*\*|(?<![A-Za-z0-9])([cg]?sk[-_]\w{3}|(?=[A-Za-z]*\d)[A-Za-z0-9]{24})",
    re.ASCII,
)
"""What a word has that is, or may be, an API key, masked or not."""
_CREDENTIAL = re.compile(
    r"(?<=bearer )\S+|(?<=//)[^/\s]+@|(?<=key=)[^&\s]+", re.IGNORECASE
)
_ESCAPED_CHARACTER = re.compile(r"\\u([0-9a-fA-F]{4})")
_ESCAPED_SPACE = re.compile(r"\\[nrt]")
_HIDDEN = re.compile("\0+")
"""Characters that are cut out."""
_SECRET_VARIABLE = re.compile(r"(KEYS?|TOKEN|SECRET|PASSWORD)$")


def provider_error(
    error: ErrorBody, request: ModelRequest, api_key: str = ""
) -> str | None:
    """Code, parameter and message of a provider's error, in at most 500 characters; None if it has none of them.

    Args:
        error: The error.
        request: The refused request. What the text quotes of its messages, media and tool arguments, 16 characters in a
            row or a shorter text as a whole, is cut out.
        api_key: The key of the request, cut out like secrets of the environment and what looks like a key.
    """
    text = _text_of(error)[:_MAX_TEXT]
    text = _plain(text)
    sent = list(_sent_texts(request))
    text = _without_quotes(text, "\n".join(sent), _QUOTE)
    for part in set(sent):
        if _SHORT <= len(part) < _QUOTE:
            text = text.replace(part, _CUT)
    text = _CREDENTIAL.sub(_CUT, text)
    secrets = map(_plain, _secrets(api_key))
    text = _without_quotes(text, "\n".join(secrets), _SHORT)
    text = printable(_without_keys(text))
    return truncate(text, 500) or None


def _text_of(error: ErrorBody) -> str:
    parts: list[str] = []
    if error.code:
        parts.append(f"code: {error.code}")
    if error.param:
        parts.append(f"param: {error.param}")
    if error.message:
        parts.append(error.message)
    return "; ".join(parts)


def _sent_texts(request: ModelRequest) -> Iterator[str]:
    for message in request.messages:
        yield from map(_plain, _texts(message))


def _texts(message: Message) -> Iterator[str]:
    yield message.text
    for call in message.tool_calls:
        yield call.arguments
    if isinstance(message.content, str):
        return
    for part in message.content:
        match part["type"]:
            case "image_url":
                yield part["image_url"]["url"]
            case "file":
                yield part["file"].get("filename", "")
                yield _text_of_file(part["file"]["file_data"])
            case "input_audio":
                yield part["input_audio"]["data"]
            case _:
                pass


def _text_of_file(url: str) -> str:
    """The text that a provider was sent of a file, else its data."""
    parsed = parse_data_url(url)
    if parsed is None or not parsed.is_text:
        return url
    return parsed.text()


def _secrets(api_key: str) -> Iterator[str]:
    yield api_key
    for name, value in os.environ.items():
        if _SECRET_VARIABLE.search(name):
            yield value


def _without_keys(text: str) -> str:
    """The words of the text without those that may be API keys."""
    words = text.split()
    for at, word in enumerate(words):
        if _KEY.search(word):
            words[at] = _CUT
    return " ".join(words)


def _plain(text: str) -> str:
    """The text in one line and without JSON's escapes, so that a quotation is equal to its source."""
    text = _ESCAPED_CHARACTER.sub(_unescaped, text)
    # two escapes may be one character
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    text = _ESCAPED_SPACE.sub(" ", text)
    text = text.replace("\\", "")
    return " ".join(text.split())


def _unescaped(escape: re.Match[str]) -> str:
    code = int(escape[1], 16)
    return chr(code)


def _without_quotes(text: str, source: str, length: int) -> str:
    """The text without its pieces of at least `length` characters that `source` has too; linear in both."""
    half = length // 2
    wholes = _pieces(text, length)
    halves = _pieces(text, half)
    quoted: set[str] = set()
    # a shared piece holds a whole block of `half` characters of the source, so only the surroundings of blocks count
    for start in range(0, len(source), half):
        block = source[start : start + half]
        if block in halves:
            first = max(0, start - half)
            last = start + length
            around = source[first:last]
            quoted |= wholes & _pieces(around, length)
    hidden: set[int] = set()
    for start in range(len(text)):
        end = start + length
        if text[start:end] in quoted:
            hidden.update(range(start, end))
    characters = list(text)
    for at in hidden:
        characters[at] = "\0"
    return _HIDDEN.sub(_CUT, "".join(characters))


def _pieces(text: str, length: int) -> set[str]:
    """All pieces of the text that have this length."""
    starts = range(len(text) - length + 1)
    return {text[start : start + length] for start in starts}
