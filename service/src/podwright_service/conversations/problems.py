"""The problems of turns."""

from __future__ import annotations

from podwright.errors import Problem
from podwright_service.http.errors.problems import RequestError


def conversation_busy(seconds: float) -> RequestError:
    """Return the 503 for a turn whose time is over before its turn has come."""
    return RequestError(
        503,
        "conversation_busy",
        f"Earlier turns of the conversation did not end within {seconds:g} seconds.",
        "Try again after the seconds in the header 'Retry-After'; the conversation is as it was.",
        {"retry-after": "5"},
    )


def conversation_crowded(most: int) -> RequestError:
    """Return the 503 for a turn behind too many others.

    Args:
        most: How many may wait.
    """
    return RequestError(
        503,
        "conversation_busy",
        f"{most} turns of the conversation wait already.",
        "Try again after the seconds in the header 'Retry-After'; the conversation is as it was.",
        {"retry-after": "5"},
    )


def conversation_waiting(run_id: str) -> RequestError:
    """Return the 409 for a turn behind one that waits for a person.

    Args:
        run_id: The run that waits.
    """
    return RequestError(
        409,
        "conversation_waiting",
        f"The conversation waits for a person: its turn in run {run_id} has not ended.",
        "Decide about what that run waits for, or delete the conversation.",
    )


def conversation_changed() -> RequestError:
    """Return the 409 for a turn that goes on in a conversation that has gone on without it."""
    return RequestError(
        409,
        "conversation_changed",
        "The conversation has had other turns since this one began, or was deleted.",
        "Send the input again, as a new turn.",
    )


def conversation_full(limit: str) -> RequestError:
    """Return the 409 for a turn of a conversation that may not get longer.

    Args:
        limit: What it has, and the setting.
    """
    return RequestError(
        409,
        "conversation_full",
        f"The conversation has {limit}.",
        "Begin another session, or delete this one.",
    )


def own_history(pointer: str) -> RequestError:
    """Return the 422 for a turn whose caller sends the earlier ones.

    Args:
        pointer: Where they are in the body.
    """
    problem = Problem(
        pointer,
        "The service keeps the conversation of this session: send only the new message.",
    )
    return RequestError(
        422,
        "conversation_kept",
        problem.detail,
        "Leave the earlier messages out; or leave the session out, and send the whole conversation.",
        problems=[problem],
    )


def no_conversation() -> RequestError:
    """Return the 422 for a session with a component that gives no conversation."""
    return RequestError(
        422,
        "conversation_unsupported",
        "The component gives no conversation that could be kept.",
        "Leave the session out.",
        problems=[Problem("/session", "The component cannot converse.")],
    )


def turn_in_progress() -> RequestError:
    """Return the 409 for a repeated request whose first one has not ended."""
    return RequestError(
        409,
        "idempotency_in_progress",
        "The first request with this Idempotency-Key is still in progress.",
        "Send the same request again after the seconds in the header 'Retry-After'.",
        {"retry-after": "1"},
    )
