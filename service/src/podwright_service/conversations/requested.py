"""The turn of a kept conversation that the run of a request is."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace

from starlette.requests import Request

from podwright.components import Component
from podwright.run.run import Task
from podwright_service.conversations.problems import own_history
from podwright_service.conversations.turns import Turn
from podwright_service.conversations.values import (
    AskedTurn,
    NewTurn,
    SavedTurn,
    StoredTurn,
)
from podwright_service.http.access.auth import owner_of
from podwright_service.http.idempotency import (
    check_fingerprint,
    idempotent_request,
)
from podwright_service.origin import Origin
from podwright_service.runtime import Runtime, get_runtime
from podwright_service.saved_states import SavedState


@dataclass(frozen=True, slots=True)
class RequestedTurn:
    """The turn that a request asks for."""

    new: NewTurn
    saved: SavedTurn | None
    """That of the stopped run that goes on; None for a new run."""


def keeps_conversations(runtime: Runtime) -> bool:
    """Whether a service keeps conversations."""
    return runtime.settings.conversations and runtime.background is not None


def requested_turn(
    request: Request,
    component: Component,
    origin: Origin,
    task: Task,
    *,
    run_id: str,
    asked: AskedTurn,
    state: SavedState | None,
) -> RequestedTurn | None:
    """Return the turn that the run of a request is; None if it is none.

    Args:
        request: The request.
        component: What runs. Conversations of inline blueprints are not kept.
        origin: Where the run comes from. One that another container asks for is a part of that one's turn.
        task: What the run is to do.
        run_id: The run.
        asked: What the route knows of it.
        state: The state from which the run goes on.

    Raises:
        RequestError: 422: the caller sends the earlier messages, too.
    """
    runtime = get_runtime(request)
    saved: SavedTurn | None = None
    if state is not None:
        # one that began without a conversation goes on without one
        if state.turn is None or runtime.background is None:
            return None
        saved = SavedTurn(**state.turn)
    elif not keeps_conversations(runtime) or not asked.is_kept:
        return None
    if component is not runtime.component or origin.root:
        return None
    session = origin.attributes.session or asked.session
    if not (session or saved or asked.previous):
        return None
    is_named = session != asked.session
    is_new = saved is None and asked.previous is None
    if is_new and is_named and task.messages:
        raise own_history(asked.messages)
    new = NewTurn(
        component.name,
        owner_of(request),
        session,
        run_id,
        user=origin.attributes.user,
        is_named=is_named or not is_new,
    )
    return RequestedTurn(_placed(request, new, asked, saved), saved)


def _placed(
    request: Request,
    new: NewTurn,
    asked: AskedTurn,
    saved: SavedTurn | None,
) -> NewTurn:
    """Return a turn with the key of its request, and the one after which alone it can be taken."""
    idempotent = idempotent_request(request)
    if idempotent is not None:
        new = replace(
            new, key=idempotent.key, fingerprint=idempotent.fingerprint
        )
    if saved is not None:
        return replace(
            new,
            conversation=saved.conversation,
            after=saved.after,
            user=new.user or saved.user,
        )
    if asked.previous is not None:
        return replace(
            new,
            conversation=asked.previous.conversation,
            after=asked.previous.number,
        )
    return new


@contextlib.asynccontextmanager
async def taken_turn(
    request: Request, requested: RequestedTurn | None, seconds: float | None
) -> AsyncGenerator[Turn | None]:
    """Take the turn of a request within this context; see `Turns.turn`.

    Args:
        request: The request.
        requested: Its turn; None if it has none.
        seconds: For how long it may wait for earlier ones.
    """
    background = get_runtime(request).background
    if requested is None or background is None:
        yield None
        return
    try:
        async with background.turns.turn(
            requested.new, seconds, requested.saved
        ) as turn:
            yield turn
    finally:
        # the next turn may be a background run
        background.wake()


async def repeated_turn(
    request: Request, component: Component
) -> StoredTurn | None:
    """Return the turn that an earlier request with the same key has ended, perhaps in another process.

    Args:
        request: The request.
        component: What runs.

    Raises:
        RequestError: 422: that was another request.
    """
    runtime = get_runtime(request)
    idempotent = idempotent_request(request)
    if (
        not keeps_conversations(runtime)
        or runtime.background is None
        or idempotent is None
        or component is not runtime.component
    ):
        return None
    turn = await runtime.background.store.conversations.find_repeated(
        component.name, owner_of(request), idempotent.key
    )
    if turn is not None:
        check_fingerprint(turn.fingerprint or "", idempotent.fingerprint)
    return turn
