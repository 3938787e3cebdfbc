"""Sizes in place of the values of a run, in bytes of text: those of inputs are exact, the others are of one bound."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from podwright.data.json_data import JsonMapping, as_array
from podwright.data.media import media_in, to_shown_text
from podwright.messages.messages import ContentPart, Message
from podwright.models.offline.media_tokens import audio_tokens, estimate_media
from podwright.models.offline.offline import MESSAGE_TOKENS, tokens_of_bytes

LARGEST: Final = 16_000_000
"""Bytes of the longest text of a run: a template is filled with at most 4 million characters."""
_NOT_KNOWN: Final = object()


@dataclass(frozen=True, slots=True)
class Size:
    """The size of one value, and the value itself if it is known."""

    bytes: int
    """Bytes of its text in UTF-8."""
    media: int = 0
    """Tokens of its images, files and audio."""
    audio: int = 0
    """The part of `media` that is audio."""
    value: Any = field(default=_NOT_KNOWN, repr=False)

    @classmethod
    def of(cls, value: Any) -> Size:
        """Return the size of a value that is known."""
        parts = cast("list[ContentPart]", media_in(value))
        return cls(
            len(to_shown_text(value).encode("utf-8", "replace")),
            media=sum(map(estimate_media, parts)),
            audio=audio_tokens(parts),
            value=value,
        )

    @property
    def is_known(self) -> bool:
        """Whether the value is known."""
        return self.value is not _NOT_KNOWN

    @property
    def tokens(self) -> int:
        """The tokens of a message of nothing but the value."""
        if isinstance(self.value, str) or not self.is_known:
            return MESSAGE_TOKENS + tokens_of_bytes(self.bytes) + self.media
        parts = cast("tuple[ContentPart, ...]", tuple(as_array(self.value)))
        text = Message("user", parts).text
        size = len(text.encode("utf-8", "replace"))
        return MESSAGE_TOKENS + tokens_of_bytes(size) + self.media


def joined(sizes: Iterable[Size], *, escaped: int = 1) -> Size:
    """Return the size of the JSON of several values, such as a list.

    Args:
        sizes: Those of the values.
        escaped: How many bytes a byte of a text may become in it.
    """
    total = 2
    for size in sizes:
        total += size.bytes * escaped + 4
    return Size(min(total, LARGEST))


def section_bytes(named: Mapping[str, Size]) -> int:
    """Return the bytes of named inputs as a model gets them; see `podwright.messages.templates.sections`."""
    if len(named) == 1:
        return next(iter(named.values())).bytes
    headings = sum(len(f"## {name}\n".encode()) for name in named)
    texts = sum(size.bytes for size in named.values())
    return headings + texts + 2 * max(0, len(named) - 1)


@dataclass(frozen=True, slots=True)
class Earlier:
    """The earlier turns of a conversation."""

    messages: Sequence[Message] = ()
    """Those that are known."""
    further_tokens: int = 0
    """Tokens of others after them."""
    may_be_handed: bool = False
    """Whether the others may have handed the conversation over, nobody knows to whom."""


class Sizes:
    """The context of a workflow as a sequence of steps sees it, by sizes.

    Args:
        shown: The sizes by name, in the order of the context; they are changed.
        hidden: Names that agents are not shown.
        extra: What only templates read, such as the number of the iteration.
        earlier: The earlier turns of the conversation.
    """

    def __init__(
        self,
        shown: Mapping[str, Size],
        *,
        hidden: frozenset[str] = frozenset(),
        extra: Mapping[str, Size] | None = None,
        earlier: Earlier | None = None,
    ) -> None:
        self.shown = dict(shown)
        self.hidden = hidden
        self.extra = dict(extra or {})
        self.earlier = earlier or Earlier()
        self.written: dict[str, Size] = {}

    @property
    def values(self) -> Mapping[str, Size]:
        """The sizes that templates read."""
        return {**self.extra, **self.shown}

    @property
    def known(self) -> JsonMapping:
        """The values that are known, by name."""
        return known_in(self.values)

    def visible(self) -> Mapping[str, Size]:
        """Return what agents are shown."""
        return {
            name: size
            for name, size in self.shown.items()
            if name not in self.hidden
        }

    def write(self, name: str, size: Size) -> None:
        """Put a value at the end of the context."""
        for values in (self.shown, self.written):
            values.pop(name, None)
            values[name] = size

    def edit(self, name: str, size: Size) -> None:
        """Give a name of the context another size, in its place."""
        self.shown[name] = size
        self.written[name] = size

    def write_decision(self, name: str, size: Size, *, is_shown: bool) -> None:
        """Write a decision, which is in front of the context if agents are shown it."""
        self.extra[name] = size
        if is_shown:
            self.shown = {name: size, **self.shown}
            self.written[name] = size

    def part(self, **extra: Size) -> Sizes:
        """Return a copy for steps that may not run, that run at once with others, or that run again."""
        return Sizes(
            self.shown,
            hidden=self.hidden,
            extra={**self.extra, **extra},
            earlier=self.earlier,
        )

    def write_all(self, others: Sequence[Sizes], *, largest: bool) -> None:
        """Write what one of several parts has written, nobody knows which.

        Args:
            others: What may have been written.
            largest: Whether the largest size of a name counts, and else the smallest.
        """
        choose = max if largest else min
        names = {name: None for other in others for name in other.written}
        for name in names:
            found = [
                other.shown[name] for other in others if name in other.shown
            ]
            if len(found) == len(others) or largest:
                self.write(name, choose(found, key=lambda size: size.bytes))


def known_in(sizes: Mapping[str, Size]) -> JsonMapping:
    """Return the values that are known, by name."""
    return {name: size.value for name, size in sizes.items() if size.is_known}
