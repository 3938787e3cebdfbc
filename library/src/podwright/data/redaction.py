"""URLs for logs and people: without user and password, query and fragment, which may be secret.

It imports the standard library alone, because the health check needs it.
"""

from __future__ import annotations

import re

_CUT = "…"
"""What stands in the place of what is left out."""
_MOST = 4096
"""Characters to search for the end of a quoted URL, or of a password."""
_PIECE = re.compile(r"[^\s'\"`<>]+")
"""A text between white space, quotation marks and angle brackets."""
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\\?/\\?/")
"""The start of a URL; in JSON, its slashes may be escaped."""
_PARAMETER = re.compile(r"\?[\w.~%$+\[\]-]+=")
"""The start of a query with names and values."""
_WORD = re.compile(r"\S*")
_MORE_PARAMETERS = re.compile(r"(?:(?!://)[^\n]){0,200}?&[\w.~%$+\[\]-]+=\S*")
"""Parameters after a space that is not escaped."""
_NEAR = 200
"""Characters to search for such parameters."""
_AFTER_QUOTE = re.compile(r"[,;:.!?)\]}>\\]*(?:[\s'\"`]|$)")
"""What follows the mark that ends a quotation, and not one inside of it."""
_USERS = re.compile(
    rf"""
    (?P<slashes>\\?/\\?/|(?<=[a-z]{{3}}:)/)   # a path of a file has one slash left
    (?:
        [^\s/?\#"<>]{{0,{_MOST}}}       # as in RFC 3986
        # a password whose special characters are not escaped, which is no port
        | [^\s/@:"<>\[\]]{{0,256}}:(?!\d*(?:[/?\#\s'"<>]|$))[^\s"<>]{{0,256}}
    )@
    |
    # without a scheme, as some proxies are written
    (?P<before>^|[\s'"(=,\[])
    [^\s/?\#@'"<>:=(,\[]{{1,256}}:[^\s/@'"<>]{{1,256}}@(?=[\w\[])(?!sha256:)
    """,
    re.VERBOSE,
)


def shown_url(url: str) -> str:
    """A URL without what may be secret in it: `https://…@example.com/path?…`."""
    shown = _without_users(url)
    for position, character in enumerate(shown):
        if character in "?#" and position + 1 < len(shown):
            return shown[: position + 1] + _CUT
    return shown


def without_url_secrets(text: str, keep: str = "") -> str:
    """A text whose URLs, and targets of requests such as `/search?q=tea`, are without what may be secret in them.

    Args:
        text: The text, such as a log line.
        keep: How URLs begin that stay as they are; by default there are none.
    """
    if not any(mark in text for mark in "?#@"):
        return text
    text = _without_users(text)
    shown: list[str] = []
    position = 0
    while piece := _PIECE.search(text, position):
        end = piece.end()
        tail = _tail_in(piece[0])
        if tail is None or (keep and keep in piece[0]):
            shown.append(text[position:end])
        else:
            tail += piece.start()
            shown.append(text[position : tail + 1] + _CUT)
            quote = text[piece.start() - 1 : piece.start()]
            end = _end_of_tail(text, tail, quote)
        position = end
    shown.append(text[position:])
    return "".join(shown)


def _without_users(text: str) -> str:
    return _USERS.sub(_without_user, text)


def _without_user(match: re.Match[str]) -> str:
    start = match["slashes"] or match["before"] or ""
    return f"{start}{_CUT}@"


def _tail_in(piece: str) -> int | None:
    """Where the query or the fragment of a URL begins; None if there is none."""
    fragment = -1
    url = _URL.search(piece)
    if url is not None:
        fragment = piece.find("#", url.end())
    query = piece.find("?")
    if "/" not in piece[: max(query, 0)]:
        query = -1
        parameter = _PARAMETER.search(piece)
        if parameter is not None:
            query = parameter.start()
    tails = [
        position
        for position in (fragment, query)
        # a question mark at the end of a sentence begins nothing
        if position >= 0 and piece[position + 1 :].strip(").,;:!?]}")
    ]
    return min(tails, default=None)


def _end_of_tail(text: str, start: int, quote: str) -> int:
    """Where a query or a fragment ends: at the closing quotation mark, or else at the next white space."""
    if quote and quote in "'\"`":
        end = _end_of_quotation(text, start, quote)
        if end is not None:
            return end
    end = _end_of_match(_WORD, text, start)
    while text.find("&", end, end + _NEAR) >= 0:
        more = _MORE_PARAMETERS.match(text, end)
        if more is None:
            break
        end = more.end()
    return end


def _end_of_match(pattern: re.Pattern[str], text: str, start: int) -> int:
    match = pattern.match(text, start)
    if match is None:
        return start
    return match.end()


def _end_of_quotation(text: str, start: int, quote: str) -> int | None:
    """Where the quotation around a position ends in this line; None if it does not."""
    last = min(len(text), start + _MOST)
    newline = text.find("\n", start, last)
    if newline >= 0:
        last = newline
    end = text.find(quote, start, last)
    while end >= 0:
        if _AFTER_QUOTE.match(text, end + 1):
            return end
        end = text.find(quote, end + 1, last)
    return None
