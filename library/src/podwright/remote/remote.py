"""A component in another container, used like one that runs here.

It calls `/run/stream` of a Podwright service. The remote's events become part of this run's trace, its usage is added
to this run's, and what is left of the limits is sent with the request.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

from pydantic import TypeAdapter, ValidationError
from typing_extensions import Unpack

from podwright.chats.chat_messages import one_turn
from podwright.connection.service_connection import Request, service_url
from podwright.data.json_data import (
    as_object,
    to_json_data,
    to_request_bytes,
    to_text,
)
from podwright.errors import (
    ConfigurationError,
    InputError,
    RemoteHopsError,
    RemoteTimeoutError,
)
from podwright.estimates.walk import Forecast, Given, Walk
from podwright.functions.run_context import RunAttributes
from podwright.kinds import Kind
from podwright.messages import headers
from podwright.messages.conversation import to_data
from podwright.messages.usage import RunLimits
from podwright.models.http.key_files import ReplaceableKey, read_key_file
from podwright.models.http.proxies import is_proxy
from podwright.models.retries import Retries, Timeouts
from podwright.remote.connection import RemoteConnection
from podwright.remote.stream import RemoteStream
from podwright.run.budget import borrow
from podwright.run.component import PromptComponent
from podwright.run.options import DescribedOptions, own_blueprint
from podwright.run.run import Run, Task
from podwright.steps.blueprint_types import Name

PROPAGATORS: list[Callable[[Run], Mapping[str, str]]] = []
"""Functions that return headers for the request of a run, such as `traceparent`."""

_log = logging.getLogger("podwright")


class Remote(PromptComponent):
    """A component that runs in another container.

    Args:
        name: Its name here, which blueprints and steps use; its output in a workflow is `<name>_output`.
        url: Base URL of its service, such as "http://writer:8000"; never part of a blueprint.
        kind: The kind of the component, for the events of its runs.
        timeout: Seconds that a run may take; by default what is left of the run around it.
        proxy: URL of the proxy for its requests, such as "http://proxy:3128"; that of the environment is not used.
        api_key_file: A file with its API key, which is read again for each run.
        **options: A `description`, its `api_key`, `limits`, `verbose`; see `DescribedOptions`.

    Raises:
        ConfigurationError: Invalid name, URL, key, time-out, proxy or option; a key and a file; a file that cannot be
            read.
    """

    is_remote: ClassVar[bool] = True
    timeouts: Timeouts = Timeouts(connect=5.0, first_byte=60.0, idle=45.0)
    """Seconds to connect, to the first byte, and between two bytes (three missed heartbeats). Set on the class."""
    retries: Retries = Retries()
    """Retries of requests that started no run, or were lost before any response. Set on the class."""

    def __init__(
        self,
        name: str,
        url: str,
        kind: Kind = "agent",
        timeout: float | None = None,
        proxy: str | None = None,
        api_key_file: str | Path | None = None,
        **options: Unpack[DescribedOptions],
    ) -> None:
        parsed = own_blueprint(kind, _check_name(name), options)
        if "base_url" in options:
            raise ConfigurationError(
                f"The remote component '{name}' takes a url, not a base_url."
            )
        super().__init__(parsed)
        self.kind = kind  # pyright: ignore[reportAttributeAccessIssue] - the only component whose instances differ in it
        if timeout is not None and not timeout >= 0:
            raise ConfigurationError(
                f"The timeout of the remote component '{name}' must be 0 seconds or more."
            )
        self._timeout = timeout
        self._url = service_url(url, f"the remote component '{name}'")
        self._proxy = _check_proxy(name, proxy)
        self._headers = {
            "Accept": "text/event-stream",
            "Content-Type": "application/json",
        }
        self._api_key = ReplaceableKey(
            _whose(name), options.get("api_key"), api_key_file
        )

    def need(self, walk: Walk, given: Given) -> Forecast:
        """Return that only its own service knows what it needs."""
        return walk.unknown_run(f"the remote component '{self.name}'")

    def text(self, value: Any) -> str:
        """The last output of a remote workflow; the value of any other component."""
        return to_text(self.output(value, None))

    def output(self, value: Any, data: Any) -> Any:
        """The last output of a remote workflow; the value of any other component."""
        if data is None:
            data = value
        elif data == value:
            # a structured answer, which has no outputs
            return data
        outputs = list(as_object(data).values())
        if outputs:
            return outputs[-1]
        return data

    async def perform(self, run: Run, task: Task) -> Any:
        """Run the remote component, and relay its events."""
        finished = run.recorded.end or run.recorded.remote_call.end
        if finished is not None:
            run.count_usage(finished.usage)
            value = finished.value
            run.data = finished.data
            run.finish_reason = finished.finish_reason
        else:
            value = await self._call(run, task)
        answer = to_text(self.output(value, run.data))
        run.messages = one_turn(
            task.messages, task.parsed_input.message(), answer
        )
        return value

    async def _call(self, run: Run, task: Task) -> Any:
        """Call the remote component with a part of what is left of the limits."""
        connection = RemoteConnection(
            url=self._url,
            remote=self.name,
            timeouts=self.timeouts,
            retries=self.retries,
            proxy=self._proxy,
            run=run,
        )
        self._check(run, task, connection)
        body = to_request_bytes(_request_body(task, run.attributes))
        stream = RemoteStream(connection)
        # before: a call that may not begin holds nothing back
        async with run.journal.call(in_tool=run.in_tool):
            loan = await borrow(run.budgets)
            deadline = asyncio.timeout(self._timeout)
            try:
                request = self._request(run, body, loan.limits)
                async with deadline:
                    value = await stream.read(request)
                run.data = stream.data
                run.finish_reason = stream.finish_reason
                return value
            except TimeoutError as error:
                if not deadline.expired():
                    raise
                raise connection.error(
                    RemoteTimeoutError, f"took longer than {self._timeout:g} s."
                ) from error
            finally:
                run.add_usage(stream.usage)
                loan.settle(stream.usage, stream.calls)

    def _check(
        self, run: Run, task: Task, connection: RemoteConnection
    ) -> None:
        if task.response_model not in (None, str):
            raise InputError(
                f"The remote component '{self.name}' does not take a response model.",
                suggestion="Give the answer to an agent that runs here, and that one the response model.",
            )
        if task.settings or task.instructions:
            raise InputError(
                f"The remote component '{self.name}' takes no settings or instructions of a caller.",
                suggestion="Leave them out, or call its own service.",
            )
        if run.hops < 1:
            raise connection.error(
                RemoteHopsError,
                "was not called: the run may pass no further container.",
            )

    def _request(self, run: Run, body: bytes, limits: RunLimits) -> Request:
        own_headers = {
            **self._headers,
            **self._authorization(),
            headers.IDEMPOTENCY_KEY: _idempotency_key(run, body),
            headers.ROOT: quote(run.outermost.component_name),
        }
        unfinished_calls = run.recorded.unfinished_remote_calls()
        if unfinished_calls:
            own_headers[headers.UNFINISHED_CALLS] = unfinished_calls

        def attempt_headers() -> dict[str, str]:
            granted = self._granted(run, limits)
            return {**own_headers, **_propagated(run), **granted}

        # the key makes it safe to repeat
        return Request(
            "POST", "/run/stream", body, attempt_headers, may_repeat=True
        )

    def _authorization(self) -> dict[str, str]:
        """The header with the API key."""
        key = self._api_key.read(_whose(self.name))
        if not key:
            return {}
        return {"Authorization": f"Bearer {key}"}

    def _granted(self, run: Run, limits: RunLimits) -> dict[str, str]:
        """The headers with what the remote run may use, and how many more containers it may pass."""
        time_left = run.time_left
        if self._timeout is not None:
            time_left = min(time_left, self._timeout)
        wall_time: float | None = None
        if time_left < math.inf:
            wall_time = max(0.0, time_left)
        granted = {headers.HOPS: str(run.hops - 1)}
        budget = headers.format_budget(replace(limits, wall_time=wall_time))
        if budget:
            granted[headers.BUDGET] = budget
        return granted


def read_api_key(name: str, path: str | Path) -> str:
    """The API key of a remote component in a file.

    Args:
        name: The component, for messages.
        path: The file.

    Raises:
        ConfigurationError: The file cannot be read, or has no valid key. The message does not have the key.
    """
    return read_key_file(_whose(name), path)


def _whose(name: str) -> str:
    return f"the remote component '{name}'"


def _request_body(task: Task, attributes: RunAttributes) -> dict[str, Any]:
    given = task.parsed_input
    body: dict[str, Any] = {"input": given.content}
    if given.content is None:
        body = {"inputs": to_json_data(given.named)}
    if task.messages:
        body["messages"] = to_data(task.messages)
    return {**body, **attributes.to_dict()}


def _idempotency_key(run: Run, body: bytes) -> str:
    """The same in each attempt of the run, so that a remote that has answered it does not perform it again.

    Another one after a failure, which the remote would repeat too.
    """
    request = f"{run.idempotency_key} {run.recorded.failures} "
    return blake2b(request.encode() + body, digest_size=16).hexdigest()


def _propagated(run: Run) -> dict[str, str]:
    result: dict[str, str] = {}
    for propagate in PROPAGATORS:
        try:
            result |= propagate(run)
        except Exception:  # noqa: BLE001 - telemetry must not end a run
            _log.exception("A propagator of run %s raised.", run.id)
    return result


def _check_name(name: str) -> str:
    try:
        return TypeAdapter(Name).validate_python(name)
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        reason = details[0]["msg"]
        raise ConfigurationError(
            f"Invalid name of a remote component {name!r}: {reason}."
        ) from error


def _check_proxy(name: str, proxy: str | None) -> str | None:
    if proxy is None or is_proxy(proxy):
        return proxy
    # it is not repeated, because it may hold a password
    raise ConfigurationError(
        f"Invalid proxy of the remote component '{name}'.",
        suggestion="Write it as http://host:port or http://user:password@host:port.",
    )
