"""Admission: how many requests may be in progress, how many run at once, and how long a body may take."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Literal

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from podwright.data.text import short_repr
from podwright.threads import COMPUTING_THREADS
from podwright_service.http.errors.problems import (
    SMALLER_BODY,
    RequestError,
    too_large_detail,
)
from podwright_service.settings import Settings

Reason = Literal["full", "waited"]
MAX_HEAD = 64 * 1024
"""Bytes of the target and the headers of a request."""
_SMALL_BODY = 8 * 1024
"""Bytes of a body that costs little to check, unless its sender means it."""
_SEPARATORS = len(": \r\n")
_MAX_RETRY_AFTER = 60
_MEAN_OVER = 16
"""Runs over which their mean duration is taken, for `Retry-After`."""


class Admission:
    """Bounds the requests in progress and the concurrent runs. Requests wait for a run slot in the order of arrival."""

    def __init__(self, settings: Settings) -> None:
        self._max_runs = settings.max_runs
        self._max_wait = settings.max_wait
        self._max_in_progress = settings.max_runs + settings.max_waiting
        self._slots = asyncio.Semaphore(settings.max_runs)
        self._computing_slots = asyncio.Semaphore(COMPUTING_THREADS)
        # one thread is left for small requests
        self._large_computing_slots = asyncio.Semaphore(COMPUTING_THREADS - 1)
        self._mean_run_seconds = 1.0
        self._in_progress = 0
        self._rejected: dict[Reason, int] = {"full": 0, "waited": 0}
        self.waiting = 0
        """Requests that wait for a run slot."""
        self.on_change: Callable[[], object] | None = None
        """Called when `waiting` or `rejected` has changed."""

    @property
    def rejected(self) -> Mapping[Reason, int]:
        """Requests answered 503 so far, because the service was full or because they waited too long."""
        return self._rejected

    def enter(self) -> None:
        """Count one more request in progress: its body is read, it waits, or it runs.

        Raises:
            RequestError: 503: the service is full.
        """
        if self._in_progress >= self._max_in_progress:
            raise self._reject("full")
        self._in_progress += 1

    def leave(self) -> None:
        """Count one request less."""
        self._in_progress -= 1

    @contextlib.asynccontextmanager
    async def run_slot(self) -> AsyncGenerator[None]:
        """Hold a run slot within this context.

        Raises:
            RequestError: 503: no slot was free within `max_wait`.
        """
        if self._slots.locked():
            await self._wait_for_slot()
        else:
            await self._slots.acquire()
        started = time.monotonic()
        try:
            yield
        finally:
            self._mean_run_seconds += (
                time.monotonic() - started - self._mean_run_seconds
            ) / _MEAN_OVER
            self._slots.release()

    @contextlib.asynccontextmanager
    async def computing_slot(self, headers: Headers) -> AsyncGenerator[None]:
        """Compute something for a request within this context, before its run begins.

        Small requests do not wait for large ones.

        Args:
            headers: Those of the request.

        Raises:
            RequestError: 503: others have computed for `max_wait`.
        """
        slots = self._large_computing_slots
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) <= _SMALL_BODY:
            slots = self._computing_slots
        try:
            async with asyncio.timeout(self._max_wait):
                await slots.acquire()
        except TimeoutError:
            raise self._reject("waited") from None
        try:
            yield
        finally:
            slots.release()

    async def _wait_for_slot(self) -> None:
        self.waiting += 1
        self._changed()
        try:
            async with asyncio.timeout(self._max_wait):
                await self._slots.acquire()
        except TimeoutError:
            raise self._reject("waited") from None
        finally:
            self.waiting -= 1
            self._changed()

    def _reject(self, reason: Reason) -> RequestError:
        self._rejected[reason] += 1
        self._changed()
        seconds = math.ceil(
            self._mean_run_seconds * (self.waiting + 1) / self._max_runs
        )
        return RequestError(
            503,
            "overloaded",
            f"The service is at capacity: {self._in_progress} requests are active, {self.waiting} of them wait to run.",
            "Try again after the seconds in the header 'Retry-After'.",
            {"retry-after": str(min(max(seconds, 1), _MAX_RETRY_AFTER))},
        )

    def _changed(self) -> None:
        if self.on_change:
            self.on_change()


class AdmissionMiddleware:
    """ASGI middleware that refuses a request before its body is read, and bounds the time that the body may take."""

    def __init__(
        self, app: ASGIApp, admission: Admission, settings: Settings
    ) -> None:
        self._app = app
        self._admission = admission
        self._max_body_bytes = settings.max_body_bytes
        self._body_timeout = settings.body_timeout

    async def __call__(
        self, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Serve the request, or raise a 400, 413, 431 or 503."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        _check_size_of_head(scope)
        self._check_length(Headers(scope=scope))
        if posts := scope["method"] == "POST":
            self._admission.enter()
        try:
            await self._app(
                scope, _with_deadline(receive, self._body_timeout), send
            )
        finally:
            if posts:
                self._admission.leave()

    def _check_length(self, headers: Headers) -> None:
        # Starlette's RequestBodyLimitMiddleware, which counts bodies of unknown length, answers in plain text
        length = headers.get("content-length", "")
        if not length:
            _check_coding(headers)
        if length.isdecimal() and int(length) > self._max_body_bytes:
            raise RequestError(
                413,
                "body_too_large",
                too_large_detail(self._max_body_bytes),
                SMALLER_BODY,
                {"connection": "close"},
            )


def _check_coding(headers: Headers) -> None:
    coding = headers.get("transfer-encoding", "chunked").strip().lower()
    # servers take a body that is compressed, and then sent in chunks, for a plain one
    if coding != "chunked":
        raise RequestError(
            400,
            "header_invalid",
            f"Invalid header 'Transfer-Encoding': expected chunked, got {short_repr(coding)}.",
            "Send the body as it is.",
            {"connection": "close"},
        )


def _check_size_of_head(scope: Scope) -> None:
    size = len(scope["raw_path"]) + len(scope["query_string"])
    for name, value in scope["headers"]:
        size += len(name) + len(value) + _SEPARATORS
    if size > MAX_HEAD:
        raise RequestError(
            431,
            "headers_too_large",
            f"The headers are larger than {MAX_HEAD} bytes.",
            "Send fewer or shorter headers.",
            {"connection": "close"},
        )


def _with_deadline(receive: Receive, seconds: float) -> Receive:
    """`receive` that raises a 408 if the body is not complete within some seconds."""
    deadline = asyncio.get_running_loop().time() + seconds
    complete = False

    async def receive_in_time() -> Message:
        nonlocal complete
        if complete:
            return await receive()
        try:
            async with asyncio.timeout_at(deadline):
                message = await receive()
        except TimeoutError:
            detail = f"The body was not complete after {seconds:g} seconds."
            raise RequestError(
                408,
                "request_too_slow",
                detail,
                "Send the body without pauses.",
                {"connection": "close"},
            ) from None
        complete = not message.get("more_body", False)
        return message

    return receive_in_time
