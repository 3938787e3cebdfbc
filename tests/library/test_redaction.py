"""URLs in texts for logs and people, without what may be secret."""

from __future__ import annotations

import pytest

from podwright.data.redaction import shown_url, without_url_secrets

DOCS = "https://podwright.readthedocs.io/errors.html#"
TEXTS = {
    "httpx": (
        "HTTP Request: POST https://api.example.com/v1/search?q=SECRET&key=SECRET \"HTTP/1.1 200 OK\"",
        'HTTP Request: POST https://api.example.com/v1/search?… "HTTP/1.1 200 OK"',
    ),
    "httpx, error": (
        "Client error '404 Not Found' for url 'https://api.example.com/p?q=it's&key=SECRET'\nFor more: https://docs.example/404",
        "Client error '404 Not Found' for url 'https://api.example.com/p?…'\nFor more: https://docs.example/404",
    ),
    "urllib3": (
        "Retrying (Retry(total=2)) after connection broken by 'NewConnectionError('x: failed')': /search?q=SECRET",
        "Retrying (Retry(total=2)) after connection broken by 'NewConnectionError('x: failed')': /search?…",
    ),
    "requests": (
        "404 Client Error: Not Found for url: https://ann:SECRET@api.example.com/p?q=it's&key=SECRET",
        "404 Client Error: Not Found for url: https://…@api.example.com/p?…",
    ),
    "requests, no connection": (
        "HTTPSConnectionPool(host='a', port=443): Max retries exceeded with url: /p?key=SECRET (Caused by X('y'))",
        "HTTPSConnectionPool(host='a', port=443): Max retries exceeded with url: /p?… (Caused by X('y'))",
    ),
    "aiohttp": (
        "404, message='Not Found', url=URL('https://api.example.com/p?key=SECRET')",
        "404, message='Not Found', url=URL('https://api.example.com/p?…')",
    ),
    "access log": (
        '127.0.0.1 - - "GET /path?key=SECRET HTTP/1.1" 200 12',
        '127.0.0.1 - - "GET /path?… HTTP/1.1" 200 12',
    ),
    "spaces in quotation marks": (
        "URL can't contain control characters. '/search?q=SECRET question&key=SECRET' (found at least ' ')",
        "URL can't contain control characters. '/search?…' (found at least ' ')",
    ),
    "spaces": (
        "cannot open https://api.example.com/p?q=a SECRET question&key=SECRET now",
        "cannot open https://api.example.com/p?… now",
    ),
    "JSON": (
        '{"url":"https://api.example.com/p?q=SECRET","status":200,"next":"/x?SECRET"}',
        '{"url":"https://api.example.com/p?…","status":200,"next":"/x?…"}',
    ),
    "JSON with escaped slashes": (
        r'{"url":"https:\/\/ann:SECRET@api.example.com\/p?q=SECRET","status":200}',
        r'{"url":"https:\/\/…@api.example.com\/p?…","status":200}',
    ),
    "a URL in a query": (
        "GET /redirect?to=https://api.example.com/p",
        "GET /redirect?…",
    ),
    "without a scheme": (
        "api.example.com/search?key=SECRET failed, and so did search?key=SECRET",
        "api.example.com/search?… failed, and so did search?…",
    ),
    "a fragment": (
        "see https://example.com/page#access_token=SECRET now",
        "see https://example.com/page#… now",
    ),
    "a database": (
        "postgresql://ann:SECRET@host:5432/db refuses",
        "postgresql://…@host:5432/db refuses",
    ),
    "a password that is not escaped": (
        "postgresql://ann:p/SECRET@host/db and redis://:p#SECRET@host:6379",
        "postgresql://…@host/db and redis://…@host:6379",
    ),
    "a URL that was taken for a path": (
        "Cannot read 'https:/ann:SECRET@example.com/prices?key=SECRET': No such file",
        "Cannot read 'https:/…@example.com/prices?…': No such file",
    ),
    "a proxy without a scheme": (
        "proxy ann:SECRET@proxy:3128 refuses",
        "proxy …@proxy:3128 refuses",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "shown"), TEXTS.values(), ids=TEXTS)
def test_secrets_in_urls_are_left_out(text: str, shown: str) -> None:
    """User, password, query and fragment are cut, whatever library has written the text; the rest stays."""
    assert "SECRET" not in shown
    assert without_url_secrets(text) == shown
    assert without_url_secrets(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "Is this a question? C# and/or F#? Issue #3, x=a?b:c, 2 // 1  # why?",
        "https://example.com/@me and http://[::1]:8000/ready, http://host:80 at ann@example.com",
        "python:3.13-slim@sha256:0123456789ab",
        'File "/component/tools.py", line 3, in search',
        "",
    ],
)
def test_other_texts_stay(text: str) -> None:
    """A text without a secret part of a URL is not changed."""
    assert without_url_secrets(text) == text


def test_urls_that_are_kept() -> None:
    """URLs with a known start are whole; others beside them are not."""
    text = f"Help: {DOCS}tool_failed, not https://example.com/#tool_failed"
    shown = f"Help: {DOCS}tool_failed, not https://example.com/#…"
    assert without_url_secrets(text, keep=DOCS) == shown


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://example.com/hook?token=a b", "https://example.com/hook?…"),
        ("https://ann:b@example.com/#c", "https://…@example.com/#…"),
        ("http://writer:8000/", "http://writer:8000/"),
    ],
)
def test_a_url_alone(url: str, shown: str) -> None:
    """Of a text that is a URL, everything from the query on is cut, spaces included."""
    assert shown_url(url) == shown
