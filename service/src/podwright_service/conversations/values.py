"""The values of kept conversations, and where they are stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from podwright.data.json_data import JsonObject
from podwright_service.settings import Settings

OPENING = -1
"""The number of the last turn of a conversation without turns."""


class ConversationLimits(NamedTuple):
    """How long a conversation may get: no turn begins in a longer one."""

    messages: int = 2000
    size: int = 8 * 1024 * 1024
    """Bytes of its messages as JSON."""
    key_seconds: float = 3600.0
    """For how long after a turn its request is known by its idempotency key."""

    @classmethod
    def of(cls, settings: Settings) -> ConversationLimits:
        """The limits that the settings have."""
        return cls(
            settings.conversation_messages,
            settings.conversation_bytes,
            settings.idempotency_ttl,
        )


DEFAULT_LIMITS = ConversationLimits()


class Place(NamedTuple):
    """The place of a turn in the queue of its conversation."""

    conversation: str
    """The id of the conversation."""
    number: int


@dataclass(frozen=True, slots=True)
class AskedTurn:
    """What a route knows of the turn that the run of a request is, besides the session."""

    session: str = ""
    """The session that the service makes up if the request names none."""
    previous: Place | None = None
    """The turn after which alone it can be taken."""
    is_kept: bool = True
    """Whether it is one if there is a session."""
    messages: str = "/messages"
    """Where the body has earlier messages, which only a request without a session of its own may have."""


TURN_OF_SESSION = AskedTurn()
"""A turn of which a route knows no more than the session."""


@dataclass(frozen=True, slots=True)
class NewTurn:
    """A turn that somebody asks for."""

    component: str
    owner: str
    """What identifies the caller; empty without API keys."""
    session: str
    """The caller's name of the conversation."""
    run_id: str
    user: str = ""
    worker: str = ""
    """The process that performs it; empty for a background run, which any process may perform."""
    key: str | None = None
    """Digest of the idempotency key of its request."""
    fingerprint: str | None = None
    """Digest of a request with a key."""
    conversation: str | None = None
    """The id of the conversation, if it has to exist; else the session names it, and it begins if it is new."""
    after: int | None = None
    """The number of the turn after which alone it can be taken; None for any."""
    is_named: bool = True
    """Whether its caller has named the session or the turn before; else it is dropped if there is nothing to keep."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """What the earlier turns of a conversation have left."""

    messages: Sequence[JsonObject]
    state: JsonObject
    last: int = OPENING
    """The number of the last of them."""


NOTHING = Earlier((), {})


@dataclass(frozen=True, slots=True)
class EndedTurn:
    """What a turn adds to its conversation."""

    place: Place
    messages: Sequence[JsonObject]
    """Its own messages."""
    state: Mapping[str, Any]
    """The state of the conversation after it."""
    result: JsonObject | None = None
    """The result of its run for a repeated request; None without an idempotency key."""


class StoredTurn(NamedTuple):
    """A turn that has ended."""

    place: Place
    run_id: str
    fingerprint: str | None
    result: JsonObject | None


class SavedTurn(NamedTuple):
    """The turn of a run that has stopped, as the run's saved state has it."""

    conversation: str
    number: int | None
    """Its place, which it holds while it waits for a person; None if its run has failed."""
    after: int
    """The number of the turn before it."""
    user: str = ""


@dataclass(frozen=True, slots=True)
class KeptConversation:
    """A conversation as its caller sees it."""

    id: str
    session: str
    created_at: float
    updated_at: float
    turns: int
    size: int
    """Bytes of its messages as JSON."""
    messages: Sequence[JsonObject] = field(default_factory=list[JsonObject])


class Deleted(NamedTuple):
    """How much was deleted."""

    conversations: int
    runs: int
    """Background runs."""


class TurnStore(Protocol):
    """Stores the turns of conversations."""

    async def join(self, turn: NewTurn) -> Place:
        """Add a turn to the queue of its conversation.

        Raises:
            RequestError: 409: it cannot be taken, or is a repeated one; 422: its key is of another request; 503: too
                many wait already.
        """
        ...

    async def begin(
        self, place: Place, after: int | None, *, waits_for_persons: bool
    ) -> Earlier | None:
        """Begin a turn whose turn it is; None if it is not.

        Args:
            place: Its place.
            after: The number of the turn after which alone it can be taken.
            waits_for_persons: Whether it also waits for a turn that waits for a person.

        Raises:
            RequestError: 409: it can no longer be taken.
        """
        ...

    async def end(self, turn: EndedTurn) -> None:
        """Add a turn to its conversation.

        Raises:
            RequestError: 409: it has lost its place.
        """
        ...

    async def leave(
        self, run_id: str, place: Place | None, *, may_go_on: bool
    ) -> None:
        """Give up the place of a turn that has not ended.

        Args:
            run_id: Its run.
            place: The place; None if it is not known, of a run that can have no more than one.
            may_go_on: Whether the run may go on later, in a conversation that is empty until then.
        """
        ...

    async def pause(self, place: Place, until: float) -> None:
        """Hold the place of a turn that waits for a person, until a time.

        Raises:
            RequestError: 409: it has lost its place.
        """
        ...

    async def go_on(self, place: Place, run_id: str, worker: str) -> None:
        """Let a turn go on that has waited for a person.

        Raises:
            RequestError: 409: it has lost its place.
        """
        ...
