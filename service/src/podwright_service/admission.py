"""How many requests are let in: beyond what can be served in time, the rest are told to come again, at once."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Literal, TypeVar

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from podwright_service.problems import RequestError, answer
from podwright_service.settings import Settings

T = TypeVar("T")
Reason = Literal["full", "waited"]
_LONGEST_RETRY = 60


class Admission:
    """A number of places for runs, and a line of those that wait for one: first come, first served.

    The counts are for whoever watches; nothing else may set them.
    """

    def __init__(self, settings: Settings) -> None:
        self._max_runs, self._max_wait = settings.max_runs, settings.max_wait
        self.most = settings.max_runs + settings.max_waiting
        """Most requests inside."""
        self._line: deque[asyncio.Future[None]] = deque()
        self._mean = 1.0
        self.inside = 0
        """Requests that were let in: their bodies are being read, they wait, or run."""
        self.running = 0
        """Runs under way."""
        self.rejected: dict[Reason, int] = {"full": 0, "waited": 0}
        """Requests that were told to come again, by reason: as many as may were inside, or a run took too long to
        end."""
        self.on_change: Callable[[], object] | None = None
        """Is called when others wait than before, or one more was refused."""

    def refused_now(self, scope: Scope) -> RequestError | None:
        """Why a request is refused before its body is read, if it is."""
        return self.refusal("full") if self.inside >= self.most and scope["method"] == "POST" else None

    @property
    def waiting(self) -> int:
        """Requests in the line."""
        return len(self._line)

    async def admitted(self, work: Callable[[], Awaitable[T]]) -> T:
        """The outcome of some work, done as soon as there is a place. Who is cancelled leaves the line at once.

        Raises:
            RequestError: 503: there was none in time.
        """
        if self.running < self._max_runs:
            self.running += 1
        else:
            await self._turn()
        start = time.monotonic()
        try:
            return await work()
        finally:
            self._mean += (time.monotonic() - start - self._mean) / 16
            self._give_up()

    async def _turn(self) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        try:
            self._notify()
            async with asyncio.timeout(self._max_wait):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():  # the turn came in the very moment
                self._give_up()
            else:
                with contextlib.suppress(ValueError):
                    self._line.remove(turn)
                self._notify()
            if isinstance(error, TimeoutError):
                raise self.refusal("waited") from None
            raise

    def _notify(self) -> None:
        if self.on_change is not None:
            self.on_change()

    def _give_up(self) -> None:
        """Hand a place to the next who still wants it."""
        while self._line:
            turn = self._line.popleft()
            if not turn.done():
                turn.set_result(None)
                self._notify()
                return
        self.running -= 1

    def refusal(self, reason: Reason) -> RequestError:
        """The answer to who cannot be served, with an estimate of when the line will have moved on."""
        self.rejected[reason] += 1
        self._notify()
        seconds = self._mean * (self.waiting + 1) / self._max_runs
        return RequestError(
            503,
            "overloaded",
            f"The service has as much to do as it can: {self.running} runs, and {self.waiting} that wait.",
            "Try again after as many seconds as the header 'Retry-After' says.",
            {"retry-after": str(min(max(math.ceil(seconds), 1), _LONGEST_RETRY))},
        )


class AdmissionMiddleware:
    """ASGI middleware that counts those inside, and refuses one more before its body is read.

    A body that is still on its way counts: so the memory that bodies take is bounded as well.
    """

    def __init__(self, app: ASGIApp, admission: Admission) -> None:
        self._app, self._admission = app, admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve, or refuse."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        admission = self._admission
        if (refusal := admission.refused_now(scope)) is not None:
            await answer(Request(scope), refusal)(scope, receive, send)
            return
        admission.inside += 1
        try:
            await self._app(scope, receive, send)
        finally:
            admission.inside -= 1
