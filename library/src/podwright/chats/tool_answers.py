"""What a model is told of a tool call: why it failed, or its result, cut if it is too long."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Iterator
from typing import cast

from podwright.data.json_data import to_text
from podwright.data.json_forms import to_utf8_text
from podwright.data.media import parts_with_media, shown_part
from podwright.data.text import printable, truncate
from podwright.errors import (
    MCPServerError,
    ModelRetry,
    PodwrightError,
    Refusal,
)
from podwright.messages.conversation import as_content
from podwright.messages.messages import ContentPart
from podwright.models.offline.media_tokens import estimate_media
from podwright.models.offline.offline import (
    BYTES_PER_TOKEN,
    estimate_tokens,
)

MAX_REASON = 1_000
"""Characters of the reason of a failure: the text of an exception may be a whole response."""
Content = str | tuple[ContentPart, ...]
"""A result as a model gets it: a text, or texts, images, files and audio."""
_LEFT_OUT = "left out: the result is too long]"


def must_end_run(error: BaseException) -> bool:
    """Whether an error of a tool ends the run and is not for the model, for example because a limit is reached.

    So does an error that such a one has caused, and a group with one in it. A refusal is for the user.
    """
    return isinstance(error, Refusal) or any(
        isinstance(part, PodwrightError) and part.ends_run
        for part in parts_of(error)
    )


def parts_of(error: BaseException) -> Iterator[BaseException]:
    """An error, the errors in it if it is a group, and all their causes."""
    pending = [error]
    seen: set[int] = set()
    while pending:
        part = pending.pop()
        # a time-out is caused by a cancellation that is its own, not that of the run
        if id(part) in seen or isinstance(part, CancelledError):
            continue
        seen.add(id(part))
        yield part
        if isinstance(part, BaseExceptionGroup):
            group = cast("BaseExceptionGroup[BaseException]", part)
            pending += group.exceptions
        if part.__cause__ is not None:
            pending.append(part.__cause__)
        elif part.__context__ is not None and not part.__suppress_context__:
            pending.append(part.__context__)


def verdict_in(error: Exception) -> Refusal | ModelRetry | None:
    """Return what a function means by a group of errors, which a task group makes of one; None if it has failed.

    A refusal counts, whatever else has failed beside it.
    """
    if not isinstance(error, ExceptionGroup):
        return None
    parts = list(_leaves(cast("ExceptionGroup[Exception]", error)))
    for part in parts:
        if isinstance(part, Refusal):
            return part
    retries = [part for part in parts if isinstance(part, ModelRetry)]
    if len(retries) == len(parts):
        return retries[0]
    return None


def _leaves(group: ExceptionGroup[Exception]) -> Iterator[Exception]:
    for part in group.exceptions:
        if isinstance(part, ExceptionGroup):
            yield from _leaves(cast("ExceptionGroup[Exception]", part))
        else:
            yield part


def failure_text(tool: str, error: PodwrightError) -> str:
    """What the model is told when a call fails: one line without a traceback.

    Args:
        tool: The name of the tool.
        error: The error of the call; that of a run nested in the tool tells what callers of that run are told.
    """
    reason = error.message
    if error.run_id is not None:
        reason = f"Tool '{tool}' failed: {error.public_message or reason}"
    if isinstance(error, MCPServerError) and error.is_lasting:
        reason += " Do not call it again in this answer."
    return f"Error: {one_line(reason)}"


def one_line(reason: str) -> str:
    """The reason of a failure as one printable line of at most `MAX_REASON` characters."""
    # a text of megabytes is not worth splitting
    words = reason[: 10 * MAX_REASON].split()
    return truncate(printable(" ".join(words)), MAX_REASON)


def cut_result(text: str, most_tokens: int | None) -> str:
    """A result of at most so many estimated tokens; one that is cut ends with a sentence that says so."""
    if most_tokens is None:
        return text
    tokens = estimate_tokens(text)
    if tokens <= most_tokens:
        return text
    kept = text.encode("utf-8", "replace")[: most_tokens * BYTES_PER_TOKEN]
    shown = kept.decode("utf-8", "ignore")
    return f"{shown}\n[The result was cut: it has about {tokens} tokens, of which the first {most_tokens} are shown.]"


def result_content(value: object) -> Content:
    """A result as a model gets it: parts if it is an image, a file, audio or a list with one, else a text."""
    parts = parts_with_media(value)
    content: Content = ""
    if parts:
        content = as_content(parts)
    if isinstance(content, str):
        # nothing of that kind, or one that no provider takes
        return to_utf8_text(to_text(value))
    return content


def recorded_content(output: object) -> Content:
    """The content of a result that an event has."""
    if isinstance(output, list):
        return as_content(cast("object", output))
    return to_text(output)


def content_data(content: Content) -> str | list[ContentPart]:
    """A content as JSON data, for an event."""
    if isinstance(content, str):
        return content
    return list(content)


def cut_content(content: Content, most_tokens: int | None) -> Content:
    """A result of at most so many estimated tokens: its texts are cut, and what else does not fit is left out."""
    if isinstance(content, str):
        return cut_result(content, most_tokens)
    if most_tokens is None:
        return content
    left = most_tokens
    kept: list[ContentPart] = []
    for part in content:
        if part["type"] == "text":
            text = cut_result(part["text"], max(0, left))
            kept.append({"type": "text", "text": text})
            left -= estimate_tokens(part["text"])
            continue
        tokens = estimate_media(part)
        if left < tokens:
            shown = shown_part({**part}).removesuffix("]")
            kept.append({"type": "text", "text": f"{shown}, {_LEFT_OUT}"})
        else:
            kept.append(part)
            left -= tokens
    return tuple(kept)
