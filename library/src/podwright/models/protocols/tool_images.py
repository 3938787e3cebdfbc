"""Images in results of tools, for protocols in which a result is a text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from podwright.data.images import to_shown_text
from podwright.messages.messages import ImagePart, Message, TextPart

_INTRODUCTION = "The images in the results of the tools, in their order:"


def with_images_after_results(messages: Iterable[Message]) -> Iterator[Message]:
    """Yield messages whose results of tools are texts; their images follow in a message of the user.

    That message comes after all results of a turn, which have to follow the answer that asked for them.
    """
    images: list[ImagePart] = []
    for message in messages:
        if message.role != "tool":
            if images:
                yield _message_of(images)
                images = []
            yield message
            continue
        if isinstance(message.content, str):
            yield message
            continue
        for part in message.content:
            if part["type"] == "image_url":
                images.append(part)
        text = to_shown_text(list(message.content))
        yield replace(message, content=text)
    if images:
        yield _message_of(images)


def _message_of(images: list[ImagePart]) -> Message:
    introduction: TextPart = {"type": "text", "text": _INTRODUCTION}
    return Message("user", (introduction, *images))
