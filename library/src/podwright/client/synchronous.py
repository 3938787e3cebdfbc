"""The synchronous client: that of `asynchronous`, on the event loop of a background thread."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from typing_extensions import Unpack

from podwright.client.asynchronous import (
    DEFAULT_RETRIES,
    DEFAULT_URL,
    AsyncClient,
    AsyncConversation,
    AsyncRuns,
)
from podwright.client.requests import Input, RunOptions
from podwright.connection.schemas import (
    BackgroundRun,
    Info,
    ListedRun,
    MovedRun,
    RunContent,
    RunStatus,
)
from podwright.events import Event
from podwright.models.retries import Retries
from podwright.run.result import ExecutionResult
from podwright.run.sync import iterate_sync, run_sync


class Client:
    """A client of the service of one component; its methods block. See `AsyncClient` for the arguments and errors."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        timeout: float = math.inf,
        retries: Retries = DEFAULT_RETRIES,
    ) -> None:
        self._client = AsyncClient(
            url, api_key=api_key, timeout=timeout, retries=retries
        )
        self.runs = Runs(self._client.runs)
        """The background runs of the service."""

    def run(
        self,
        input_data: Input,
        *,
        trace: bool = False,
        **options: Unpack[RunOptions],
    ) -> ExecutionResult:
        """Run the component and wait for its result; see `AsyncClient.run`."""
        return run_sync(self._client.run(input_data, trace=trace, **options))

    def stream(
        self, input_data: Input, **options: Unpack[RunOptions]
    ) -> Iterator[Event]:
        """Run the component and yield its events as they happen; see `AsyncClient.stream`."""
        return iterate_sync(self._client.stream(input_data, **options))

    def conversation(
        self, messages: Sequence[Mapping[str, Any]] = ()
    ) -> Conversation:
        """A conversation with an agent or a conductor; see `AsyncClient.conversation`."""
        return Conversation(self._client.conversation(messages))

    def info(self) -> Info:
        """What the service says of itself; see `AsyncClient.info`."""
        return run_sync(self._client.info())

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON of a response, for routes that have no method here; see `AsyncClient.request`."""
        return run_sync(self._client.request(method, path, body))


class Conversation:
    """A conversation; see `AsyncConversation`."""

    def __init__(self, conversation: AsyncConversation) -> None:
        self._conversation = conversation

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The turns so far; JSON data that can be stored, and given to `Client.conversation` later."""
        return self._conversation.messages

    @property
    def last(self) -> ExecutionResult | None:
        """The result of the last turn that succeeded, with its events."""
        return self._conversation.last

    def send(
        self, input_data: Input, **options: Unpack[RunOptions]
    ) -> ExecutionResult:
        """Take a turn and return its result; see `AsyncConversation.send`."""
        return run_sync(self._conversation.send(input_data, **options))

    def stream(
        self, input_data: Input, **options: Unpack[RunOptions]
    ) -> Iterator[Event]:
        """Take a turn and yield its events as they happen; see `AsyncConversation.stream`."""
        return iterate_sync(self._conversation.stream(input_data, **options))


class Runs:
    """The background runs of a service; see `AsyncRuns`."""

    def __init__(self, asynchronous: AsyncRuns) -> None:
        self.asynchronous = asynchronous
        """The same as coroutines."""

    def start(
        self, input_data: Input, **options: Unpack[RunOptions]
    ) -> BackgroundRun:
        """Start a run; see `AsyncRuns.start`."""
        return run_sync(self.asynchronous.start(input_data, **options))

    def get(
        self, run_id: str, *, data: bool = False, inputs: bool = False
    ) -> BackgroundRun:
        """A run; see `AsyncRuns.get`."""
        return run_sync(self.asynchronous.get(run_id, data=data, inputs=inputs))

    def list(
        self,
        *statuses: RunStatus,
        caller: str | None = None,
        limit: int = 50,
        fields: Collection[RunContent] = (),
    ) -> Sequence[ListedRun]:
        """The newest runs; see `AsyncRuns.list`."""
        return run_sync(
            self.asynchronous.list(
                *statuses, caller=caller, limit=limit, fields=fields
            )
        )

    def wait(
        self,
        run_id: str,
        *statuses: RunStatus,
        within: float = math.inf,
        data: bool = False,
    ) -> BackgroundRun:
        """The run, once it has one of the statuses; see `AsyncRuns.wait`."""
        return run_sync(
            self.asynchronous.wait(run_id, *statuses, within=within, data=data)
        )

    def events(self, run_id: str, last_event_id: int = -1) -> Iterator[Event]:
        """The events of a run as they happen, to its end; see `AsyncRuns.events`."""
        return iterate_sync(self.asynchronous.events(run_id, last_event_id))

    def cancel(self, run_id: str) -> BackgroundRun:
        """Cancel a run."""
        return run_sync(self.asynchronous.cancel(run_id))

    def resume(self, run_id: str) -> BackgroundRun:
        """Have a run that failed or was interrupted go on."""
        return run_sync(self.asynchronous.resume(run_id))

    def move(self, run_id: str, *, check: bool = False) -> MovedRun:
        """Have a run go on with the blueprint of the service; see `AsyncRuns.move`."""
        return run_sync(self.asynchronous.move(run_id, check=check))

    def approve(
        self,
        run_id: str,
        comment: str = "",
        attempt: int | None = None,
        *,
        decision: str = "approve",
        values: Mapping[str, Any] | None = None,
    ) -> BackgroundRun:
        """Approve what a run waits for, or decide otherwise; see `AsyncRuns.approve`."""
        deciding = self.asynchronous.approve(
            run_id, comment, attempt, decision=decision, values=values
        )
        return run_sync(deciding)

    def reject(
        self, run_id: str, comment: str = "", attempt: int | None = None
    ) -> BackgroundRun:
        """Reject what a run waits for; see `AsyncRuns.reject`."""
        return run_sync(self.asynchronous.reject(run_id, comment, attempt))
