"""The asynchronous client."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from typing import Any, TypeVar, get_args
from urllib.parse import quote, urlencode

from pydantic import BaseModel, ValidationError
from typing_extensions import Unpack

from podwright.client.errors import ProblemError
from podwright.client.requests import (
    ClientConnection,
    Input,
    RunOptions,
    run_request,
)
from podwright.connection.schemas import (
    RESTING,
    BackgroundRun,
    Info,
    ListedRun,
    MovedRun,
    RunContent,
    RunStatus,
)
from podwright.connection.service_connection import StreamEnd
from podwright.data.json_data import as_object, to_text
from podwright.data.text import did_you_mean, short_repr
from podwright.errors import (
    InputError,
    RemoteConnectionError,
    RemoteError,
    TraceError,
)
from podwright.events import Event
from podwright.messages.headers import FINISH_REASON, USAGE, parse_usage
from podwright.messages.usage import Usage
from podwright.models.http.client import Fault, TransportError
from podwright.models.retries import Retries
from podwright.run.result import ExecutionResult

T = TypeVar("T")
ModelT = TypeVar("ModelT", bound=BaseModel)

DEFAULT_URL = "http://127.0.0.1:8000"
DEFAULT_RETRIES = Retries()

_RECONNECT = 1.0
"""Seconds before a service that did not answer is asked again for a background run."""
_FIRST_CONTACT = 30.0
"""Seconds that a service may not answer at first: it may be starting, or the address may be wrong."""
_LONGEST_OUTAGE = 120.0
"""Seconds that it may not answer later, as during a rollout."""
_STABLE = 10.0
"""Seconds after which a stream was not one of an outage, although it had no event: a run may wait for days."""
_LASTING: tuple[Fault, ...] = ("tls", "not_http", "too_large")
"""What is wrong with a service, or with what answers in its place, and not over in a moment."""
_FIRST_POLL = 0.1
_LONGEST_POLL = 2.0
"""Seconds between two looks at a run that is waited for."""
_PAGE = 200
"""Most runs of one page."""


class AsyncClient:
    """A client of the service of one component.

    Args:
        url: Address of the service.
        api_key: An API key that the service accepts.
        timeout: Seconds from a request to its response, for `run` the time of the whole run. By default a run takes as
            long as it takes; a proxy on the way may have a time-out of its own, which a stream does not reach.
        retries: How often a request is repeated whose connection failed, or that came at a bad time.

    Raises:
        ConfigurationError: The address or the key is invalid.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        timeout: float = math.inf,
        retries: Retries = DEFAULT_RETRIES,
    ) -> None:
        self._connection = ClientConnection(url, api_key, timeout, retries)
        self.runs = AsyncRuns(self._connection)
        """The background runs of the service."""

    async def run(
        self,
        input_data: Input,
        *,
        trace: bool = False,
        **options: Unpack[RunOptions],
    ) -> ExecutionResult:
        """Run the component and wait for its result.

        Args:
            input_data: A text, named inputs, or for agents and conductors texts, images and files.
            trace: Whether the result has the events, the conversation (`messages`) and the usage by model.
            **options: See `RunOptions`.

        Raises:
            ProblemError: The service refused the request, or the run failed.
            RemoteError: The service could not be reached, or the connection was lost.
        """
        return await _run(self._connection, input_data, options, trace=trace)

    async def stream(
        self, input_data: Input, **options: Unpack[RunOptions]
    ) -> AsyncGenerator[Event]:
        """Run the component and yield its events as they happen, tokens included; leaving early cancels the run.

        The last event of a run that succeeded is its `RunFinished`, with its `value` and its `usage`.

        Args:
            input_data: See `run`.
            **options: See `RunOptions`.

        Raises:
            ProblemError: The service refused the request, or the run failed, after its events.
            RemoteError: The service could not be reached, or the connection was lost.
        """
        async with aclosing(
            _stream(self._connection, input_data, options, trace=False)
        ) as items:
            async for item in items:
                if not isinstance(item, ExecutionResult):
                    yield item

    def conversation(
        self, messages: Sequence[Mapping[str, Any]] = ()
    ) -> AsyncConversation:
        """A conversation with an agent or a conductor.

        Args:
            messages: Earlier turns, as `AsyncConversation.messages` has them.
        """
        return AsyncConversation(self._connection, messages)

    async def info(self) -> Info:
        """What the service says of itself: component, blueprint, models, tools, limits.

        Raises:
            ProblemError: The API key lacks the scope `read`.
            RemoteError: The service could not be reached.
        """
        data, _ = await self._connection.json("GET", "/info")
        return _parse(self._connection, Info, data)

    async def request(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON of a response, for routes that have no method here, such as `POST /validate-blueprint`.

        Args:
            method: An HTTP method.
            path: The path, with its query.
            body: JSON data.

        Raises:
            ProblemError: The service refused the request.
            RemoteError: The service could not be reached.
        """
        data, _ = await self._connection.json(method, path, body)
        return data


class AsyncConversation:
    """A conversation: each turn has those before as its `messages`. A turn that fails leaves them as they were.

    Args:
        connection: The connection to the service.
        messages: Earlier turns.
    """

    def __init__(
        self,
        connection: ClientConnection,
        messages: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self._connection = connection
        self.messages: list[dict[str, Any]] = [
            dict(message) for message in messages
        ]
        """The turns so far; JSON data that can be stored, and given to `Client.conversation` later."""
        self.last: ExecutionResult | None = None
        """The result of the last turn that succeeded, with its events."""

    async def send(
        self, input_data: Input, **options: Unpack[RunOptions]
    ) -> ExecutionResult:
        """Take a turn and return its result.

        Raises:
            ProblemError, RemoteError: See `AsyncClient.run`.
        """
        options["messages"] = self.messages
        result = await _run(self._connection, input_data, options, trace=True)
        return self._keep(result)

    async def stream(
        self, input_data: Input, **options: Unpack[RunOptions]
    ) -> AsyncGenerator[Event]:
        """Take a turn and yield its events as they happen.

        Raises:
            ProblemError, RemoteError: See `AsyncClient.stream`.
        """
        options["messages"] = self.messages
        items = _stream(self._connection, input_data, options, trace=True)
        async with aclosing(items):
            async for item in items:
                if isinstance(item, ExecutionResult):
                    self._keep(item)
                else:
                    yield item

    def _keep(self, result: ExecutionResult) -> ExecutionResult:
        self.last = result
        self.messages = result.messages
        return result


class AsyncRuns:
    """The background runs of a service with a database; `AsyncClient.runs`.

    All methods raise `ProblemError` if the service refuses, and another `RemoteError` if it cannot be reached. With a
    key that may only approve, a run has no `usage` and no `decisions`.
    """

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    async def start(
        self, input_data: Input, **options: Unpack[RunOptions]
    ) -> BackgroundRun:
        """Start a run.

        Args:
            input_data: See `AsyncClient.run`.
            **options: See `RunOptions`.
        """
        body, headers = run_request(input_data, options)
        return await self._request_run("POST", "/runs", body, headers)

    async def get(
        self, run_id: str, *, data: bool = False, inputs: bool = False
    ) -> BackgroundRun:
        """A run.

        Args:
            run_id: The run.
            data: Whether the `result` of a workflow has data where its outputs are data, instead of texts.
            inputs: Whether the run has `input` and `input_messages`: what it was asked.
        """
        path = _path(run_id)
        options = {"data": data, "inputs": inputs}
        query = "&".join(f"{name}=true" for name in options if options[name])
        if query:
            path = f"{path}?{query}"
        return await self._request_run("GET", path)

    async def list(
        self,
        *statuses: RunStatus,
        caller: str | None = None,
        limit: int = 50,
        fields: Collection[RunContent] = (),
    ) -> Sequence[ListedRun]:
        """The newest runs.

        Args:
            *statuses: Only runs with one of these; by default with any.
            caller: Only runs that a key with this name started.
            limit: How many at most.
            fields: Further fields of each run: `result`, `messages`, `problem`, `approval`, `decisions`, `actions`.
        """
        query: dict[str, Any] = {"status": statuses}
        if fields:
            query["fields"] = ",".join(fields)
        if caller is not None:
            query["caller"] = caller
        runs: list[ListedRun] = []
        while len(runs) < limit:
            query["limit"] = min(limit - len(runs), _PAGE)
            path = f"/runs?{urlencode(query, doseq=True)}"
            page, _ = await self._connection.json("GET", path)
            if not isinstance(page.get("runs"), list):
                raise self._connection.invalid("no list of runs")
            runs += [
                _parse(
                    self._connection, ListedRun, {**_UNSEEN, **as_object(run)}
                )
                for run in page["runs"]
            ]
            query["cursor"] = page.get("next")
            if query["cursor"] is None:
                break
        return runs

    async def wait(
        self,
        run_id: str,
        *statuses: RunStatus,
        within: float = math.inf,
        data: bool = False,
    ) -> BackgroundRun:
        """The run, once it has one of the statuses.

        A service that cannot be reached for a moment, as during a rollout, does not end the wait.

        Args:
            run_id: The run.
            *statuses: The statuses to wait for; by default those in which nothing more happens by itself.
            within: Seconds to wait.
            data: See `get`.

        Raises:
            ProblemError: It failed, was cancelled or interrupted, and that is not waited for.
            TimeoutError: It has another status after that time, or has succeeded and that is not waited for.
            InputError: A status does not exist.
        """
        for status in statuses:
            if status not in get_args(RunStatus):
                hint = did_you_mean(status, get_args(RunStatus))
                raise InputError(
                    f"Unknown status {short_repr(status)}.", suggestion=hint
                )
        wanted = statuses or RESTING
        status = "unknown"
        seconds = None
        if within < math.inf:
            seconds = within
        try:
            async with asyncio.timeout(seconds):
                async for run in self._look_again(run_id, data):
                    status = run.status
                    if status in wanted:
                        return run
                    if run.problem is not None:
                        raise ProblemError(run.problem)
                    if status == "succeeded":
                        break
        except TimeoutError:
            message = f"The run '{run_id}' is '{status}' after {within:g} s."
            raise TimeoutError(message) from None
        raise TimeoutError(f"The run '{run_id}' is '{status}', and stays so.")

    async def _look_again(
        self, run_id: str, data: bool
    ) -> AsyncGenerator[BackgroundRun]:
        """A run again and again; a service that cannot answer for a moment is asked later."""
        yield await self._get_patiently(run_id, _FIRST_CONTACT, data=data)
        pause = _FIRST_POLL
        while True:
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_POLL)
            yield await self._get_patiently(run_id, _LONGEST_OUTAGE, data=data)

    async def _get_patiently(
        self, run_id: str, seconds: float, *, data: bool = False
    ) -> BackgroundRun:
        """A run of a service that may not answer for some seconds."""
        until = time.monotonic() + seconds
        while True:
            try:
                return await self.get(run_id, data=data)
            except RemoteError as error:
                if not _is_temporary(error) or time.monotonic() > until:
                    raise
            await asyncio.sleep(_RECONNECT)

    async def events(
        self, run_id: str, last_event_id: int = -1
    ) -> AsyncGenerator[Event]:
        """The events of a run as they happen, to its end; a lost stream is opened again where it was.

        Args:
            run_id: The run.
            last_event_id: Number (`seq`) of the last event that is known.
        """
        await self._get_patiently(run_id, _FIRST_CONTACT)
        path = _path(run_id, "events")
        until = math.inf
        while True:
            opened = time.monotonic()
            headers = {"Last-Event-ID": str(last_event_id)}
            request = self._connection.request("GET", path, headers=headers)
            source = _in_own_task(self._connection.stream(request))
            try:
                async with aclosing(source) as events:
                    async for event in events:
                        if isinstance(event, StreamEnd):
                            return
                        # one that is known comes again if a service ignores where the stream was
                        if event.seq > last_event_id:
                            until = math.inf
                            last_event_id = event.seq
                            yield event
            except RemoteError as error:
                if not _is_temporary(error):
                    raise
                now = time.monotonic()
                if until == math.inf or now - opened > _STABLE:
                    until = now + _LONGEST_OUTAGE
                if now >= until:
                    raise
            await asyncio.sleep(_RECONNECT)

    async def cancel(self, run_id: str) -> BackgroundRun:
        """Cancel a run."""
        return await self._request_run("POST", _path(run_id, "cancel"))

    async def resume(self, run_id: str) -> BackgroundRun:
        """Have a run that failed or was interrupted go on."""
        return await self._request_run("POST", _path(run_id, "resume"))

    async def move(self, run_id: str, *, check: bool = False) -> MovedRun:
        """Have a run go on with the blueprint of the service, instead of the one that it began with.

        Args:
            run_id: The run, which waits, failed or was interrupted.
            check: Whether to find out only what differs.

        Returns:
            The run, with the `changes` of the blueprint.

        Raises:
            ProblemError: `run_not_movable`: the changes are in what the run has done already.
        """
        path = _path(run_id, "move")
        if check:
            path = f"{path}?check=true"
        data, _ = await self._connection.json("POST", path)
        return _parse(self._connection, MovedRun, data)

    async def approve(
        self,
        run_id: str,
        comment: str = "",
        attempt: int | None = None,
        *,
        decision: str = "approve",
        values: Mapping[str, Any] | None = None,
    ) -> BackgroundRun:
        """Approve what a run waits for, or decide otherwise.

        Args:
            run_id: The run.
            comment: Why; it is kept with the run.
            attempt: The `attempt` of the run whose question was read, so that a later question is not answered.
            decision: One of the `options` of the run's `approval`.
            values: New values of what its `edit` names.
        """
        return await self._decide(
            run_id,
            "approve",
            comment=comment,
            attempt=attempt,
            decision=decision,
            values=dict(values or {}),
        )

    async def reject(
        self, run_id: str, comment: str = "", attempt: int | None = None
    ) -> BackgroundRun:
        """Reject what a run waits for, which ends it unless `ends_on_reject` of its `approval` is false.

        The arguments are those of `approve`.
        """
        return await self._decide(
            run_id, "reject", comment=comment, attempt=attempt
        )

    async def _decide(
        self, run_id: str, action: str, **body: Any
    ) -> BackgroundRun:
        return await self._request_run("POST", _path(run_id, action), body)

    async def _request_run(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> BackgroundRun:
        data, _ = await self._connection.json(method, path, body, headers)
        return _parse_run(self._connection, data)


async def _run(
    connection: ClientConnection,
    input_data: Input,
    options: RunOptions,
    *,
    trace: bool,
) -> ExecutionResult:
    body, headers = run_request(input_data, options)
    path = "/run?data=true"
    if trace:
        path = "/run?trace=true"
    started = time.monotonic()
    data, response_headers = await connection.json("POST", path, body, headers)
    if trace:
        return _parse_result(connection, data)
    if not data:
        raise connection.invalid("an empty result")
    duration_ms = (time.monotonic() - started) * 1000
    usage = parse_usage(response_headers.get(USAGE, ""))
    result = _result_of(data, duration_ms, usage)
    result.finish_reason = response_headers.get(FINISH_REASON, "stop")
    return result


async def _stream(
    connection: ClientConnection,
    input_data: Input,
    options: RunOptions,
    *,
    trace: bool,
) -> AsyncGenerator[Event | ExecutionResult]:
    """The events of a run; with `trace`, the result comes last."""
    body, headers = run_request(input_data, options)
    path = "/run/stream"
    if trace:
        path = "/run/stream?trace=true"
    request = connection.request("POST", path, body, headers)
    source = _in_own_task(connection.stream(request))
    async with aclosing(source) as events:
        async for event in events:
            if not isinstance(event, StreamEnd):
                yield event
            elif event.failed:
                raise ProblemError(event.document)
            elif trace:
                yield _parse_result(connection, event.document)


async def _in_own_task(items: AsyncGenerator[T]) -> AsyncGenerator[T]:
    """The items of a generator that runs in a task of its own.

    Its time-outs cancel the task in which it began, and a reader may read each item in another one.
    """
    queue: asyncio.Queue[T | None] = asyncio.Queue()

    async def read() -> None:
        async with aclosing(items):
            async for item in items:
                queue.put_nowait(item)

    reading = asyncio.create_task(read())
    reading.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        while (item := await queue.get()) is not None:
            yield item
        await reading
    finally:
        if not reading.done():
            reading.cancel()
            await asyncio.wait([reading])


def _result_of(
    content: dict[str, Any], duration_ms: float, usage: Usage
) -> ExecutionResult:
    """The result in the response of `/run?data=true`: an answer, or the context of a workflow, as data where it is."""
    data: Any = None
    # a workflow has an `input` too
    if content.keys() <= {"output", "data"}:
        value = content.get("data", content.get("output"))
        if "data" in content or not isinstance(value, str):
            data = value
    else:
        value = {name: to_text(item) for name, item in content.items()}
        if value != content:
            data = content
    return ExecutionResult(value, [], duration_ms, usage, data=data)


def _parse_result(
    connection: ClientConnection, data: dict[str, Any]
) -> ExecutionResult:
    try:
        return ExecutionResult.from_dict(data)
    except TraceError as error:
        raise connection.invalid("an invalid result") from error


_UNSEEN: Mapping[str, Any] = {"usage": {}}
"""What a key that may only approve is not shown."""


def _parse_run(
    connection: ClientConnection, data: dict[str, Any]
) -> BackgroundRun:
    return _parse(
        connection, BackgroundRun, {**_UNSEEN, "decisions": [], **data}
    )


def _parse(
    connection: ClientConnection, model: type[ModelT], data: Any
) -> ModelT:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise connection.invalid(f"an invalid {model.__name__}") from error


def _is_temporary(error: RemoteError) -> bool:
    """Whether it may be over soon: the connection was lost, or the service cannot answer now."""
    if isinstance(error, ProblemError):
        return error.status in (502, 503, 504)
    cause = error.__cause__
    if isinstance(cause, TransportError):
        return cause.fault not in _LASTING
    # a stream without an end: the pod that sent it has stopped
    return isinstance(error, RemoteConnectionError)


def _path(run_id: str, action: str = "") -> str:
    path = f"/runs/{quote(run_id, safe='')}"
    if action:
        return f"{path}/{action}"
    return path
