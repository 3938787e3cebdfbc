"""The former name of `podwright.client`, for programs that were written for it."""

from podwright.client import (
    AsyncClient,
    AsyncConversation,
    AsyncRuns,
    BackgroundRun,
    Client,
    Conversation,
    Info,
    Input,
    ListedRun,
    MovedRun,
    ProblemError,
    RunContent,
    RunOptions,
    Runs,
    RunStatus,
)

__all__ = [
    "AsyncClient",
    "AsyncConversation",
    "AsyncRuns",
    "BackgroundRun",
    "Client",
    "Conversation",
    "Info",
    "Input",
    "ListedRun",
    "MovedRun",
    "ProblemError",
    "RunContent",
    "RunOptions",
    "RunStatus",
    "Runs",
]
