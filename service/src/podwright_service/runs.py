"""One run for one request: on the operator's model, within its limits, and no longer than the caller waits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast

from starlette.requests import ClientDisconnect, Request

from podwright.components import Component, Workflow
from podwright.errors import RunCancelledError
from podwright.events import Event, RunCancelled, RunFailed, RunFinished, RunPaused, Subscriber
from podwright.headers import format_usage
from podwright.models import use_model
from podwright.result import ExecutionResult
from podwright.run import Task, execute
from podwright.usage import NO_USAGE
from podwright_service.budgets import Granted
from podwright_service.schema import ComplexRun, SimpleRun, WorkflowRun
from podwright_service.settings import Settings

T = TypeVar("T")


class Watch:
    """A subscriber that knows, however a run ends, which run it was and what it used.

    Args:
        reader: Is told of each event too, tokens included.
    """

    others: tuple[Subscriber, ...] = ()
    """Who hears the run besides."""

    def __init__(self, reader: Subscriber | None = None) -> None:
        self.reader = reader
        self.run_id = ""
        self.usage = NO_USAGE

    def __call__(self, event: Event) -> None:
        """Hear one event."""
        self.run_id = self.run_id or event.run_id
        if event.parent_id is None and isinstance(event, RunFinished | RunFailed | RunPaused | RunCancelled):
            self.usage = event.usage
        if self.reader:
            self.reader(event)

    def headers(self) -> dict[str, str]:
        """The headers of the run's answer; none where the request was refused before a run began."""
        if not self.run_id:
            return {}
        return {"Podwright-Run-Id": self.run_id, "Podwright-Usage": format_usage(self.usage)}


async def perform(
    component: Component, body: SimpleRun | ComplexRun, settings: Settings, watch: Watch, trace: bool, allowed: Granted
) -> ExecutionResult:
    """Run a component on a request, within what is granted to it.

    Raises:
        PodwrightError: See `podwright.errors`.
    """
    given: Any = body.input if isinstance(body, SimpleRun) else body.inputs
    if isinstance(component, Workflow):
        start, path = (body.start_step, body.resume_path) if isinstance(body, WorkflowRun) else (0, None)
        task = component.task(given, start, path)
    else:
        task = Task(given)
    with use_model(settings.model) if settings.model else contextlib.nullcontext():
        try:
            return await execute(
                component,
                task,
                subscribers=(watch, *watch.others),
                limits=allowed.limits,
                stream=watch.reader is not None,
                trace=trace,
                hops=allowed.hops,
            )
        except asyncio.CancelledError as stop:
            if isinstance(stop.__cause__, RunCancelledError):  # it knows the run, and where a workflow goes on
                raise stop.__cause__ from None
            raise


class ActiveRuns:
    """The work that requests wait for."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def stop(self) -> None:
        """Cancel all of it: the time to finish in is over."""
        for task in self._tasks:
            task.cancel()

    async def unless_gone(self, request: Request, work: Coroutine[Any, Any, T]) -> T:
        """The outcome of some work, which is cancelled as soon as the client leaves. The body has been read.

        Raises:
            starlette.requests.ClientDisconnect: The client left.
            asyncio.CancelledError: The service stops, and the work does not say where it stood.
        """
        task, gone = cast("asyncio.Task[Any]", asyncio.current_task()), False
        before = task.cancelling()

        def left() -> None:
            nonlocal gone
            if not gone and task in self._tasks:  # a second time would disturb what the run still does to end
                gone = True
                task.cancel()

        tell = _teller(request)
        self._tasks.add(task)
        tell(left)
        try:
            result = await work
        except (Exception, asyncio.CancelledError):
            if not gone:
                raise
        else:
            if not gone:
                return result
        finally:
            tell(None)
            self._tasks.discard(task)
            while task.cancelling() > before:  # it goes on, with the answer
                task.uncancel()
        raise ClientDisconnect from None


Tell = Callable[[Callable[[], None] | None], None]


def _teller(request: Request) -> Tell:
    """Takes what to call when the client leaves, and None when it shall be called no more.

    Our server tells at once; under any other, a task waits for it.
    """
    extensions: dict[str, dict[str, Any]] = request.scope.get("extensions") or {}
    offered = extensions.get("podwright.gone")
    return offered["tell"] if offered else _waiting(request)


def _waiting(request: Request) -> Tell:
    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    waiting = asyncio.ensure_future(gone())

    def tell(left: Callable[[], None] | None) -> None:
        if left:
            waiting.add_done_callback(lambda one: None if one.cancelled() else left())
        else:
            waiting.cancel()

    return tell
