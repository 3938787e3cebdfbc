"""Liveness and readiness: the one says that the process lives, the other that a run would be accepted."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import AsyncGenerator
from typing import Literal

from fastapi import FastAPI
from starlette.responses import Response

from podwright_service.problems import as_json

_YOUNG = 10_000
"""New objects after which the collector looks for cycles. A request makes hundreds and leaves none; with Python's own
700 it was looked at every second request, at a tenth of the processor's time."""


class Health:
    """Where the service is in its life."""

    def __init__(self) -> None:
        self.state: Literal["starting", "ready", "draining"] = "starting"

    @contextlib.asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncGenerator[None]:
        """Ready from when the app has started until it is told to stop."""
        # what was loaded until now stays: the collector need not look through it while runs wait, nor once before,
        # which would take longer than the little that imports leave behind is worth
        gc.freeze()
        before = gc.get_threshold()
        gc.set_threshold(_YOUNG, 20, 20)
        if self.state == "starting":  # and has not been told to stop before
            self.state = "ready"
        try:
            yield
        finally:
            self.drain()
            gc.set_threshold(*before)

    def drain(self) -> None:
        """No more runs are accepted from now on."""
        self.state = "draining"

    async def health(self) -> Response:
        """The process lives; this depends on nothing outside it."""
        return as_json({"status": "ok"})

    async def ready(self) -> Response:
        """Whether a run would be accepted."""
        # a full line does not count: under a load that is too much for all, every pod would leave at once, and the
        # few that were left would get it all; what is too much is refused request by request
        return as_json({"status": self.state}, 200 if self.state == "ready" else 503)
