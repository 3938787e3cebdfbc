"""Routes of the conversations that the service keeps: they are read and deleted; turns are runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, cast

from fastapi import APIRouter, Query, Request, Response

from podwright.data.json_data import to_json_bytes
from podwright.errors import Problem
from podwright_service.background.kept.conversations import KeptConversations
from podwright_service.background.worker import BackgroundWorker
from podwright_service.conversations.values import Deleted, KeptConversation
from podwright_service.http.access.auth import owner_of
from podwright_service.http.errors.problems import RequestError
from podwright_service.http.query import CheckedRoute, invalid_query
from podwright_service.http.schemas import (
    ConversationPage,
    Deletion,
    Identity,
    ShownConversation,
)
from podwright_service.observability.logging import log_deletion
from podwright_service.origin import caller_of
from podwright_service.routes.responses import (
    CONVERSATION_PROBLEMS,
    DATABASE_PROBLEMS,
)
from podwright_service.runtime import get_runtime

router = APIRouter(
    tags=["conversations"], prefix="/conversations", route_class=CheckedRoute
)
_CURSOR = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)-([0-9a-f]{32})")
"""Time of the last turn and id of a conversation."""


@router.get("", response_model=ConversationPage, responses=DATABASE_PROBLEMS)
async def list_conversations(
    request: Request,
    limit: Annotated[int, Query(ge=1, le=200, description="How many.")] = 50,
    cursor: Annotated[
        str | None, Query(description="`next` of the page before.")
    ] = None,
) -> Response:
    """The caller's conversations without their messages, the one with the newest turn first."""
    before: tuple[float, str] | None = None
    if cursor is not None:
        match = _CURSOR.fullmatch(cursor)
        if match is None:
            problem = Problem(
                "",
                "Invalid query parameter 'cursor'.",
                "Use 'next' of the page before, or leave it out.",
            )
            raise invalid_query([problem])
        before = (float(match[1]), match[2])
    # one more, which shows whether there is another page
    page = await _kept(request).page(
        get_runtime(request).component.name,
        owner_of(request),
        before,
        limit + 1,
    )
    following = None
    if len(page) > limit:
        last = page[limit - 1]
        following = f"{last.updated_at!r}-{last.id}"
    shown = [_facts(conversation) for conversation in page[:limit]]
    return _response({"conversations": shown, "next": following})


@router.delete("", response_model=Deletion, responses=DATABASE_PROBLEMS)
async def delete_conversations(
    request: Request,
    user: Annotated[
        Identity,
        Query(min_length=1, description="The `user` of their turns."),
    ],
) -> Response:
    """Delete all conversations in which a user had a turn, of all callers, with all that is stored of their runs."""
    component = get_runtime(request).component.name
    deleted = await _kept(request).delete_user(component, user)
    return _deleted(request, deleted)


@router.get(
    "/{session:path}",
    response_model=ShownConversation,
    responses=CONVERSATION_PROBLEMS,
)
async def get_conversation(request: Request, session: str) -> Response:
    """A conversation of the caller, with its messages."""
    conversation = await _kept(request).get(
        get_runtime(request).component.name, owner_of(request), session
    )
    if conversation is None:
        raise _not_found()
    messages = conversation.messages
    return _response({**_facts(conversation), "messages": messages})


@router.delete(
    "/{session:path}", response_model=Deletion, responses=CONVERSATION_PROBLEMS
)
async def delete_conversation(request: Request, session: str) -> Response:
    """Delete a conversation of the caller, with all that is stored of its runs."""
    deleted = await _kept(request).delete_session(
        get_runtime(request).component.name, owner_of(request), session
    )
    if not any(deleted):
        raise _not_found()
    return _deleted(request, deleted)


def _kept(request: Request) -> KeptConversations:
    # these routes exist only with a worker
    worker = cast("BackgroundWorker", get_runtime(request).background)
    return worker.store.conversations


def _facts(conversation: KeptConversation) -> dict[str, Any]:
    return {
        "session": conversation.session,
        "turns": conversation.turns,
        "bytes": conversation.size,
        "created_at": _date(conversation.created_at),
        "updated_at": _date(conversation.updated_at),
    }


def _deleted(request: Request, deleted: Deleted) -> Response:
    component = get_runtime(request).component.name
    log_deletion(component, caller_of(request), deleted._asdict())
    return _response(deleted._asdict())


def _not_found() -> RequestError:
    return RequestError(
        404,
        "conversation_not_found",
        "There is no such conversation: it has had no turn, was deleted, or is another caller's.",
        "Use the `session` of a request of the same service, with the same API key.",
    )


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def _response(content: Mapping[str, Any] | Sequence[Any]) -> Response:
    return Response(to_json_bytes(content), media_type="application/json")
