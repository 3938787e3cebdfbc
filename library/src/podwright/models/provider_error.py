"""What a provider says about a refusal, without API keys and without text of the request."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from podwright.messages import Message, ModelRequest
from podwright.models.error_body import ErrorBody
from podwright.text import printable, truncate

_QUOTE = 16
_SHORT = 6
"""Characters in a row that quote the request; and those of a shorter text that is quoted whole, or a part of a key."""
_CUT = "[…]"
_KEY = re.compile(
    r"\*\*|(?<![A-Za-z0-9])([cg]?sk[-_]\w{3}|(?=[A-Za-z]*\d)[A-Za-z0-9]{24})", re.ASCII
)
"""What a word has that is, or may be, an API key, masked or not."""
_CREDENTIAL = re.compile(
    r"(?<=bearer )\S+|(?<=//)[^/\s]+@|(?<=key=)[^&\s]+", re.IGNORECASE
)
_SECRET_VARIABLE = re.compile(r"(KEYS?|TOKEN|SECRET|PASSWORD)$")


def provider_error(
    error: ErrorBody, request: ModelRequest, api_key: str = ""
) -> str | None:
    """Code, parameter and message of a provider's error, in at most 500 characters; None if it has none of them.

    Args:
        error: The error.
        request: The refused request. What the text quotes of its messages, image URLs and tool arguments, 16 characters
            in a row or a shorter text as a whole, is cut out.
        api_key: The key of the request, cut out like secrets of the environment and what looks like a key.
    """
    names = [
        f"{name}: {value}"
        for name, value in (("code", error.code), ("param", error.param))
        if value
    ]
    reasons = [error.message] if error.message else []
    text = _plain("; ".join([*names, *reasons])[:4000])
    sent = [_plain(text) for message in request.messages for text in _texts(message)]
    text = _without_quotes(text, "\n".join(sent), _QUOTE)
    for short in {part for part in sent if _SHORT <= len(part) < _QUOTE}:
        text = text.replace(short, _CUT)
    secrets = [
        api_key,
        *(value for name, value in os.environ.items() if _SECRET_VARIABLE.search(name)),
    ]
    text = _without_quotes(
        _CREDENTIAL.sub(_CUT, text), "\n".join(map(_plain, secrets)), _SHORT
    )
    return (
        truncate(
            printable(
                " ".join(_CUT if _KEY.search(word) else word for word in text.split())
            ),
            500,
        )
        or None
    )


def _texts(message: Message) -> Iterator[str]:
    yield message.text
    yield from (call.arguments for call in message.tool_calls)
    if not isinstance(message.content, str):
        yield from (
            part["image_url"]["url"]
            for part in message.content
            if part["type"] == "image_url"
        )


def _plain(text: str) -> str:
    """The text in one line and without JSON's escapes, so that a quotation is equal to its source."""
    text = re.sub(r"\\u([0-9a-fA-F]{4})", lambda match: chr(int(match[1], 16)), text)
    # two escapes may be one character
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return " ".join(re.sub(r"\\[nrt]", " ", text).replace("\\", "").split())


def _without_quotes(text: str, source: str, length: int) -> str:
    """The text without its pieces of at least `length` characters that `source` has too; linear in both."""
    half = length // 2
    halves = {text[at : at + half] for at in range(len(text) - half + 1)}
    wholes = {text[at : at + length] for at in range(len(text) - length + 1)}
    # a shared piece holds a whole block of `half` characters of the source, so only the surroundings of blocks count
    hits = (
        at for at in range(0, len(source), half) if source[at : at + half] in halves
    )
    around = {source[max(0, at - half) : at + length] for at in hits}
    quoted = {
        piece
        for part in around
        for at in range(half + 1)
        if (piece := part[at : at + length]) in wholes
    }
    starts = (at for at in range(len(text)) if text[at : at + length] in quoted)
    hidden = {at for start in starts for at in range(start, start + length)}
    return re.sub(
        "\0+",
        _CUT,
        "".join("\0" if at in hidden else char for at, char in enumerate(text)),
    )
