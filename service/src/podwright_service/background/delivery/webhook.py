"""The webhook of a process: it sends the notifications of runs, signed according to Standard Webhooks.

Source: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import structlog
from standardwebhooks import Webhook as Signer

from podwright import __version__
from podwright.connection.schemas import RunStatus
from podwright.data.json_data import to_json_bytes
from podwright.models.http.client import Response, TransportError, send
from podwright.models.retries import Timeouts, retry_after
from podwright_service.background.delivery.outbox import Delivery, Outbox
from podwright_service.background.storage.database import (
    DatabaseUnavailableError,
)
from podwright_service.execution import context_as_texts
from podwright_service.observability import Observability
from podwright_service.settings import Settings

POLL_INTERVAL = 1.0
"""Seconds between two queries for notifications that are due."""
REQUEST_SECONDS = 20.0
"""Seconds in which the webhook must respond; less than those for which a notification is claimed."""
WAITS = (5.0, 300.0, 1800.0, 7200.0, 18000.0, 36000.0, 50400.0)
"""Seconds after each failed request until the next one, the example of the specification: 31.6 hours together."""
MAX_REQUESTS = 8
"""Requests of each process at once, so that a slow response does not hold up the others."""

_JITTER = 0.1
"""By which part of itself a wait is at most longer or shorter, so that not all requests come at once."""
_MAX_RESPONSE = 64 * 1024
"""Bytes of a response that are read, so that its connection can be used again."""
_GONE = 410
_CONTENT_NAMES: Mapping[RunStatus, str] = {
    "waiting_for_approval": "approval",
    "succeeded": "result",
    "failed": "problem",
    "cancelled": "problem",
    "interrupted": "problem",
}
"""What the content of a notification is called, as in a run that is read."""

_log = structlog.get_logger()


class _Failure(NamedTuple):
    """Why a request failed."""

    reason: str
    suggestion: str | None = None
    retry_after: float = 0.0
    """Seconds that the webhook asks to wait."""
    is_final: bool = False
    """Whether the webhook wants this notification no more."""


class Webhook:
    """Sends the notifications of a component's runs.

    Args:
        url: Where they are sent.
        settings: The secrets that sign them, and whether they have content.
        component: The name of the component.
        outbox: The notifications.
        observability: Counts the requests.
    """

    def __init__(
        self,
        url: str,
        settings: Settings,
        component: str,
        *,
        outbox: Outbox,
        observability: Observability,
    ) -> None:
        self._url = url
        self._signers = [
            Signer(secret.get_secret_value())
            for secret in settings.webhook_secret
        ]
        self._with_content = settings.webhook_content
        self._component = component
        self._outbox = outbox
        self._metrics = observability.metrics
        self._wake = asyncio.Event()
        self.sending: set[asyncio.Task[None]] = set()
        """The requests in progress."""

    def wake(self) -> None:
        """Look for notifications now: one may have been added."""
        self._wake.set()

    async def send_due(self) -> None:
        """Begin to send what is due; then wait for `wake` or `POLL_INTERVAL`, unless more may be due.

        Raises:
            DatabaseUnavailableError: The database cannot be reached.
        """
        self._wake.clear()
        room = MAX_REQUESTS - len(self.sending)
        if room > 0:
            claimed = await self._outbox.claim(self._component, room)
            for delivery in claimed:
                self._begin(delivery)
            if len(claimed) == room:
                return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(POLL_INTERVAL):
                await self._wake.wait()

    def _begin(self, delivery: Delivery) -> None:
        task = asyncio.create_task(self._send(delivery))
        self.sending.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        """Make room for another request."""
        self.sending.discard(task)
        self.wake()
        if not task.cancelled() and task.exception() is not None:
            logging.getLogger("podwright.background").error(
                "A notification could not be sent.", exc_info=task.exception()
            )

    async def _send(self, delivery: Delivery) -> None:
        """Send a notification once, and note how that ended; if it cannot be noted, it is sent again."""
        # `send_due` meets the same error, which is logged
        with contextlib.suppress(DatabaseUnavailableError):
            await self._send_and_note(delivery)

    async def _send_and_note(self, delivery: Delivery) -> None:
        failure = await self._request(delivery)
        # before they are counted and logged, so that metrics and log never say what is not yet so
        if failure is None:
            await self._outbox.remove(delivery)
            self._metrics.count_delivery("delivered")
            return
        requests: int = delivery["requests"]
        fields = {
            "logger": "podwright.background",
            "run_id": delivery["run_id"],
            "component": delivery["component"],
            "status": delivery["status"],
            "webhook_id": delivery["id"],
            "requests": requests,
            "reason": failure.reason,
        }
        if failure.suggestion:
            fields["suggestion"] = failure.suggestion
        if failure.is_final or requests > len(WAITS):
            await self._outbox.remove(delivery)
            self._metrics.count_delivery("given_up")
            _log.error("webhook notification given up", **fields)
            return
        wait = wait_after(requests, failure.retry_after)
        await self._outbox.postpone(delivery, wait)
        self._metrics.count_delivery("failed")
        _log.warning("webhook request failed", **fields, retry_in=round(wait))

    async def _request(self, delivery: Delivery) -> _Failure | None:
        """Make one request; why it failed, or None if the notification was accepted."""
        body = to_json_bytes(self._payload(delivery))
        try:
            async with send(
                self._url,
                body,
                self._headers(delivery, body),
                Timeouts(),
                first_byte=REQUEST_SECONDS,
                max_bytes=_MAX_RESPONSE,
            ) as response:
                await response.drain()
                return _failure_of(response)
        except TransportError as error:
            return _Failure(str(error), error.suggestion)

    def _payload(self, delivery: Delivery) -> dict[str, Any]:
        data: dict[str, Any] = {
            "id": delivery["run_id"],
            "component": delivery["component"],
            "status": delivery["status"],
            "attempt": delivery["attempt"],
            "caller": delivery["caller"],
        }
        content = delivery["content"]
        if self._with_content and content is not None:
            if delivery["status"] == "succeeded":
                content = context_as_texts(content)
            data[_CONTENT_NAMES[delivery["status"]]] = content
        created_at = datetime.fromtimestamp(delivery["created_at"], UTC)
        return {
            "type": f"run.{delivery['status']}",
            "timestamp": created_at.isoformat(),
            "data": data,
        }

    def _headers(self, delivery: Delivery, body: bytes) -> dict[str, str]:
        # of this request, because receivers refuse old ones
        now = datetime.now(UTC)
        text = body.decode()
        signatures = [
            signer.sign(delivery["id"], now, text) for signer in self._signers
        ]
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"podwright/{__version__}",
            "webhook-id": delivery["id"],
            "webhook-timestamp": str(int(now.timestamp())),
            "webhook-signature": " ".join(signatures),
        }
        if delivery["traceparent"]:
            headers["traceparent"] = delivery["traceparent"]
        return headers


def _failure_of(response: Response) -> _Failure | None:
    """What a response says; None if it accepts the notification."""
    status = response.status
    if 200 <= status < 300:
        return None
    suggestion = None
    if 300 <= status < 400:
        suggestion = "Redirects are not followed: set PODWRIGHT_WEBHOOK to the URL that it leads to."
    return _Failure(
        f"HTTP {status}{response.via}",
        suggestion,
        retry_after=retry_after(response.headers) or 0.0,
        is_final=status == _GONE,
    )


def wait_after(
    requests: int, asked: float, jitter: Callable[[], float] = random.random
) -> float:
    """Seconds until the next request.

    Args:
        requests: How many have failed.
        asked: Seconds that the webhook asks to wait; at most the longest wait counts.
        jitter: Returns a number from 0 to 1, which spreads the requests that failed together.
    """
    spread = 1.0 + _JITTER * (2 * jitter() - 1)
    wait = WAITS[requests - 1] * spread
    return max(wait, min(asked, WAITS[-1]))
