"""What a provider's refusal says: shown in the error in Python, without keys and without text of the request."""

import json
from typing import Any

import pytest

from podwright.messages.messages import Message, ModelRequest, ToolCall
from podwright.models.http.error_body import ErrorBody, read_error
from podwright.models.http.provider_error import provider_error

KEY = "sk-0123456789-top-secret"
PROMPT = 'Dear "Zoë",\n\tmeet me at the old mill at midnight — 世界 and bring C:\\new\\maps with you.'
CALL = ToolCall("c1", "look_up", '{"name": "Rumpelstiltskin the Second"}')
IMAGE = "https://example.org/private/scan.png?signature=b2xkIG1pbGw"
PICTURE = Message("user", ({"type": "image_url", "image_url": {"url": IMAGE}},))
MESSAGES = (
    Message("system", "Be brief."),
    Message("user", PROMPT),
    PICTURE,
    Message("assistant", "", (CALL,)),
)
REQUEST = ModelRequest(
    "m",
    (
        *MESSAGES,
        Message("tool", "a result that nobody may read", tool_call_id="c1"),
    ),
)
UNSUPPORTED = {
    "message": "Unsupported parameter: 'seed'.",
    "code": "unsupported",
    "param": "seed",
    "type": "x",
}
REASONS: dict[str, tuple[Any, str | None]] = {
    "fields": (UNSUPPORTED, "code: unsupported; param: seed; Unsupported parameter: 'seed'."),
    "a text": ("model 'x' not found", "model 'x' not found"),
    "problems": ({"detail": [{"loc": ["body", "seed"], "msg": "Unknown."}]}, "body.seed: Unknown."),
    "another name": ({"detail": "Not allowed."}, "Not allowed."),
    "a code alone": ({"code": 7, "type": "y"}, "code: 7"), "nothing": (None, None), "no field": ({"type": "x"}, None),
    "a long text": ("Wrong. " * 1000, ("Wrong. " * 100)[:499] + "…"),
    "control characters": ({"message": "a\x1b[2J\nb"}, "a\ufffd[2J b"),
}  # fmt: skip


@pytest.mark.parametrize("name", REASONS)
def test_the_reason_has_code_parameter_and_message(name: str) -> None:
    """Whatever the shape of the error object, its code, parameter and message are one line."""
    error, reason = REASONS[name]
    assert provider_error(read_error(error), REQUEST) == reason


QUOTED = {
    "whole": PROMPT, "a part": PROMPT[20:50], "in one line": " ".join(PROMPT.split()), "as Python": repr(PROMPT),
    "in JSON": json.dumps(PROMPT), "in JSON, twice": json.dumps(json.dumps(PROMPT)),
    "not escaped": json.dumps(PROMPT, ensure_ascii=False), "arguments": "Rumpelstiltskin the Second",
    "a result": "a result that nobody may read", "a short text as a whole": "Be brief.",
    "an image": IMAGE,
    "the key": KEY, "a part of the key": KEY[3:15], "a masked key": "sk-01*********cret", "another key": "gsk_abcDEF",
    "a random key": "f3a81b22c9d04e5f8a7b6c5d4e3f2a1b",
}  # fmt: skip


@pytest.mark.parametrize("name", QUOTED)
def test_keys_and_texts_of_the_request_are_cut_out(name: str) -> None:
    """What the provider quotes of the request, escaped or not, and what looks like a key, is not shown."""
    reason = (
        provider_error(
            ErrorBody(message=f"Invalid value: <{QUOTED[name]}> of seed."),
            REQUEST,
            KEY,
        )
        or ""
    )
    assert reason.startswith("Invalid value: ")
    assert reason.endswith(" of seed.")
    assert "[…]" in reason
    words = [
        word
        for source in (QUOTED[name], PROMPT)
        for word in source.split()
        if len(word) > 2
    ]
    assert not [word for word in words if word in reason]


@pytest.mark.parametrize(
    ("quoted", "shown"),
    [
        ("team-gateway", "[…]"), ("Bearer ab.cd", "Bearer […]"), ("x://me:pass@host/?key=abc", "x://[…]host/?key=[…]"),
        ("back\\slash\\key", "[…]"),
    ],
)  # fmt: skip
def test_secrets_are_cut_out(
    monkeypatch: pytest.MonkeyPatch, quoted: str, shown: str
) -> None:
    """Secrets of the environment, in a header and in a URL are not shown, and not a key with a backslash."""
    monkeypatch.setenv("ACME_API_KEY", "team-gateway")
    assert (
        provider_error(
            ErrorBody(message=f"Got {quoted} there"),
            REQUEST,
            "back\\slash\\key",
        )
        == f"Got {shown} there"
    )


@pytest.mark.parametrize(
    "prompt",
    [
        "a" * 2**20,
        "Unsupported parameter: 'seed' is wrong. " * 2**15,
        "\\" * 2**20,
    ],
)
def test_long_prompts_take_linear_time(prompt: str) -> None:
    """A megabyte that is like the message in every place is compared with it, which quadratic work would never end."""
    request = ModelRequest("m", (Message("user", prompt),))
    assert (provider_error(ErrorBody(message=prompt), request) or "…").strip(
        "\\"
    ) in (
        "[…]",
        "…",
    )
