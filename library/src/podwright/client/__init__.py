"""A client of served components: runs, streams, conversations and background runs.

    from podwright.client import Client

    client = Client("http://localhost:8000")
    print(client.run("the moon").value)
    for event in client.stream("the moon"):
        print(event.type)

    conversation = client.conversation()
    conversation.send("My name is Ada.")
    print(conversation.send("What is my name?").value)

    run = client.runs.start("the moon")
    print(client.runs.wait(run.id).status)

`AsyncClient` has the same methods as coroutines and asynchronous iterators. Neither needs to be closed: connections
belong to the event loop, as those of models do. A client may be used by several threads or tasks at once.
"""

from podwright.client.asynchronous import (
    AsyncClient,
    AsyncConversation,
    AsyncRuns,
)
from podwright.client.errors import ProblemError
from podwright.client.requests import Input, RunOptions
from podwright.client.synchronous import Client, Conversation, Runs
from podwright.connection.schemas import (
    BackgroundRun,
    Info,
    ListedRun,
    MovedRun,
    RunContent,
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
