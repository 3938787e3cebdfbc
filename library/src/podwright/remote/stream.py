"""The run of a remote component: its events, its value, and what it used."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

from podwright.connection.service_connection import Request, StreamEnd
from podwright.data.json_data import JsonObject
from podwright.events import (
    Event,
    ModelCallFailed,
    ModelCallFinished,
    ModelCallKey,
    ModelCallStarted,
    RunEnded,
    RunStarted,
    Token,
    model_call_key,
)
from podwright.kinds import Kind
from podwright.messages.usage import NO_USAGE, Usage
from podwright.models.offline.offline import estimate_input
from podwright.models.token_counts import as_uncounted
from podwright.remote.connection import RemoteConnection


class RemoteStream:
    """Relays the events of a remote run, and counts what they report.

    Args:
        connection: The connection of the run that calls the remote.
    """

    def __init__(self, connection: RemoteConnection) -> None:
        self._connection = connection
        self._outermost = ""
        self._kind: Kind | None = None
        self._reported: Usage | None = None
        """What the remote run used, as it has reported at its end."""
        self._counted = NO_USAGE
        """What the model calls used that have ended so far."""
        self._open: dict[ModelCallKey, ModelCallStarted] = {}
        """Model calls that have not ended."""
        self.calls = 0
        """Model calls that were started."""
        self.data: Any = None
        """The result of the remote run as data; see `Run.data`."""
        self.finish_reason = "stop"
        """How the answer of the remote run ended; see `ExecutionResult.finish_reason`."""

    @property
    def usage(self) -> Usage:
        """What the remote run used: its own report, before that what is known of its model calls so far."""
        if self._reported is not None:
            return self._reported
        usage = self._counted
        for event in self._open.values():
            input_tokens = estimate_input(event.request)
            uncounted = as_uncounted(Usage(input_tokens))
            usage += uncounted.as_failed_call(event.request.model)
        return usage

    async def read(self, request: Request) -> Any:
        """Send a request, read its response to the end, and return the value of the run.

        Raises:
            PodwrightError: The run failed or was refused, or the response is invalid.
        """
        value: Any = None
        async with aclosing(self._connection.stream(request)) as items:
            async for item in items:
                if not isinstance(item, StreamEnd):
                    self._relay(item)
                elif item.failed:
                    raise self._connection.failure(item.document)
                else:
                    value = self._value_of(item.document)
        return value

    def _relay(self, event: Event) -> None:
        self._count(event)
        run = self._connection.run
        if run.streaming or not isinstance(event, Token):
            run.relay(event, self._connection.remote)

    def _count(self, event: Event) -> None:
        match event:
            case RunStarted() if self._kind is None:
                self._outermost = event.run_id
                self._kind = event.kind
            case ModelCallStarted():
                self.calls += 1
                self._open[model_call_key(event)] = event
            case ModelCallFinished():
                self._open.pop(model_call_key(event), None)
                usage = event.response.usage.as_call(event.model)
                self._counted += event.failed_usage + usage
            case ModelCallFailed():
                self._open.pop(model_call_key(event), None)
                self._counted += event.usage
            case RunEnded() if event.run_id == self._outermost:
                self._reported = event.usage
                self.data = getattr(event, "data", None)
                self.finish_reason = getattr(event, "finish_reason", "stop")
            case _:
                pass

    def _value_of(self, result: JsonObject) -> Any:
        if self._kind == "workflow" and result:
            return result
        if "output" not in result:
            raise self._connection.invalid("an invalid result")
        value = result.get("data", result["output"])
        is_answer = self._kind in ("agent", "conductor")
        if is_answer and self.data is None and not isinstance(value, str):
            # a service of an older release, whose output was the data
            self.data = value
        return value
