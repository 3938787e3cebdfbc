"""Why an answer of a model ended: the words of providers, and what they mean here.

Every client reads a provider's word with `ending_of`, and the OpenAI-compatible routes write ours with `to_openai`. A
word that is not listed is never taken for the end of a whole answer. Only tool calls without any word are: they are
complete themselves.
"""

from __future__ import annotations

import functools
import re
from typing import Literal, NamedTuple, get_args

from podwright.data.text import printable, truncate

FinishReason = Literal[
    "stop", "length", "tool_calls", "content_filter", "refusal", "unknown"
]
FINISH_REASONS: tuple[FinishReason, ...] = get_args(FinishReason)
UNKNOWN: FinishReason = "unknown"
"""The finish reason of an answer that may be incomplete."""
MAY_BE_EMPTY: tuple[FinishReason, ...] = ("length", "content_filter", "refusal")
"""The ends of answers that may have neither text nor tool calls."""

_MAX_WORD = 64
"""Characters of a provider's word that are kept."""
_NOT_YET = ("", "null", "none", "undefined", "inprogress")
"""Stands for a finish reason where there is none yet."""
_PAUSED = ("pauseturn",)
"""The answer goes on in the next response, if it is sent back."""
_PREFIXES = re.compile(r"^(?:(?:finish|stop|done)?_?reason[._])+")
"""How the names of enumerations begin."""
_WORDS: dict[FinishReason, str] = {
    "stop": """
        stop end_turn stop_sequence complete completed eos eos_token eos_found endoftext end_of_text end_of_sequence
        finish finished done end normal success stop_criteria_met stop_string_found stop_token word
    """,
    "length": """
        length max_tokens max_length max_len max_context model_length max_output_tokens max_tokens_reached token_limit
        model_context_window_exceeded context_window_exceeded context_length context_length_reached
        context_length_exceeded max_predicted_tokens_reached maximum_tokens max_completion_tokens limit
    """,
    "tool_calls": "tool_calls tool_call tool_use function_call function_calls",
    "content_filter": """
        content_filter content_filtered content_filtering sensitive safety recitation prohibited_content
        guardrail_intervened guardrails error_toxic toxic blocklist spii language other moderation flagged
        escalation image_safety image_prohibited_content image_recitation image_other no_image
    """,
    "refusal": "refusal refused",
    "unknown": "unknown",
}
_FAILURES = tuple(
    """
    error abort cancel timeout timedout timelimit fail interrupt incomplete notfinished unspecified
    insufficientsystemresource malformed unexpectedtoolcall toomanytoolcalls missingthoughtsignature repetition
    userstopped unload
    """.split()
)
"""What words have in them that say that the response failed within; listed words come first, as `error_toxic`."""


# a response asks for its word several times, and a provider has few
@functools.lru_cache(maxsize=256)
def _key(word: str) -> str:
    """The part of a provider's word that is compared: Google writes `content_filter: RECITATION`."""
    word = word.strip().lower()
    if word.startswith("content_filter:"):
        return "contentfilter"
    # what is left of other dots and colons makes a word that is not listed
    return re.sub(r"[\s_-]", "", _PREFIXES.sub("", word))


_TABLE: dict[str, FinishReason] = {
    _key(word): reason
    for reason, words in _WORDS.items()
    for word in words.split()
}


class Ending(NamedTuple):
    """How an answer ended."""

    reason: FinishReason
    word: str = ""
    """The provider's word if the reason is `unknown`; empty if it gave none."""


def is_end(word: str) -> bool:
    """Whether the word says that an answer is over, and not that it goes on."""
    return _key(word) not in _NOT_YET


def is_pause(word: str) -> bool:
    """Whether the answer goes on in the next response, if it is sent back."""
    return _key(word) in _PAUSED


def is_failure(word: str) -> bool:
    """Whether the word says that the response failed within."""
    key = _key(word)
    if key in _TABLE:
        return False
    return any(failure in key for failure in _FAILURES)


def ending_of(
    word: str, *, has_calls: bool = False, is_refused: bool = False
) -> Ending:
    """How an answer ended.

    Args:
        word: The provider's word; empty if it gave none.
        has_calls: Whether the answer has tool calls. Providers end them with `stop` too. An answer that should have
            calls and has none is not known to be whole.
        is_refused: Whether the answer has words of a refusal, which providers end with `stop`.
    """
    if is_refused:
        return Ending("refusal")
    key = _key(word)
    reason = _TABLE.get(key, UNKNOWN)
    says_nothing = key in _NOT_YET or key == UNKNOWN
    if has_calls and (reason == "stop" or says_nothing):
        return Ending("tool_calls")
    if says_nothing:
        return Ending(UNKNOWN)
    if reason == UNKNOWN or (reason == "tool_calls" and not has_calls):
        return Ending(UNKNOWN, truncate(printable(word.strip()), _MAX_WORD))
    return Ending(reason)


def to_openai(reason: str) -> str:
    """The finish reason in Chat Completions, which ends a refusal with `stop`; `unknown` stays as it is."""
    if reason == "refusal":
        return "stop"
    return reason
