"""The context that a run gives to the functions that it calls, and what they report to it."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from contextvars import copy_context
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from podwright import events
from podwright.data.finish_reasons import UNKNOWN
from podwright.errors import ConfigurationError, LimitExceededError
from podwright.functions.run_context import (
    RunContext,
    RunLogger,
    moment_after,
    run_logger,
)
from podwright.location import ToolCallId, call_key, location
from podwright.messages.messages import ModelRequest, ModelResponse
from podwright.messages.usage import Usage
from podwright.models.prices import pricing
from podwright.models.token_counts import as_uncounted

if TYPE_CHECKING:
    from podwright.run.run import Run

MAX_REPORTS = 1_000
"""Reports of progress of one call that are emitted; further ones are dropped."""
_PATIENCE = 1.0
"""Seconds after which a thread that reports no longer waits for the event loop of the run."""


async def make_context(run: Run, is_over: Callable[[], bool]) -> RunContext:
    """Return the context for a function that is called here.

    Args:
        run: The run that calls it.
        is_over: Tells whether nobody waits for the function any more.
    """
    # a function reports where nothing can wait for the price lists, as on the event loop
    with suppress(ConfigurationError):
        await pricing.prepare()
    attributes = run.attributes
    call = location.get().tool_call
    log = run_logger(run_id=run.id, component=run.component_name)
    return RunContext(
        run_id=run.id,
        component=run.component_name,
        attempt=run.journal.attempt,
        user=attributes.user,
        session=attributes.session,
        # a copy, so that a function cannot change what others are told
        metadata=dict(attributes.metadata),
        deadline=moment_after(run.time_left),
        state=run.state.values,
        call_key=call_key(),
        log=log,
        _is_cancelled=lambda: is_over() or run.is_closed,
        _report_usage=_Reports(run, call, log).add,
        _report=_Progress(run, call, is_over).report,
        **run.context_fields,
    )


class _Progress:
    """What one function tells of how far it has come.

    Args:
        run: The run that calls it.
        call: The call of a tool that it is part of; None for a condition.
        is_over: Tells whether nobody waits for it any more.
    """

    def __init__(
        self, run: Run, call: ToolCallId | None, is_over: Callable[[], bool]
    ) -> None:
        self._run = run
        self._call = call
        self._is_over = is_over
        self._numbers = itertools.count()
        self._context = copy_context()
        """Where the function is called, as in `_Reports`."""

    def report(self, text: str, data: Any) -> None:
        """Emit an event; this may be another thread than that of the run."""
        # counted here, because a thread may report faster than the event loop emits
        if next(self._numbers) >= MAX_REPORTS:
            return
        loop = self._run.loop
        if _is_running(loop):
            self._emit_in_context(text, data)
            return
        # nobody follows a run whose loop is closed
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(self._emit_in_context, text, data)

    def _emit_in_context(self, text: str, data: Any) -> None:
        # a context cannot be entered a second time while it is in use
        self._context.copy().run(self._emit, text, data)

    def _emit(self, text: str, data: Any) -> None:
        run = self._run
        if run.is_closed or self._is_over():
            return
        path = run.path
        tool_call: int | None = None
        if self._call is not None:
            path = self._call.path
            tool_call = self._call.number
        progress = events.Progress(
            **run.stamp(path), text=text, data=data, tool_call=tool_call
        )
        run.emit(progress)


class _Reports:
    """The model calls that one function has made by itself, and reports."""

    def __init__(
        self, run: Run, call: ToolCallId | None, log: RunLogger
    ) -> None:
        self._run = run
        self._call = call
        self._log = log
        self._number = 0
        self._context = copy_context()
        """Where the function is called: a framework may report from a thread or a task that does not know."""

    def add(self, model: str, usage: Usage, seconds: float) -> None:
        """Count a model call; this may be another thread than that of the run.

        Raises:
            LimitExceededError: The run has used more than it may.
        """
        priced = _with_price(model, usage)

        def count() -> None:
            # a context cannot be entered a second time while it is in use
            context = self._context.copy()
            context.run(self._count, model, priced, seconds)

        loop = self._run.loop
        if _is_running(loop):
            count()
            return
        claim = threading.Lock()
        counted: Future[None] = Future()

        def count_there() -> None:
            if not claim.acquire(blocking=False):
                return
            try:
                count()
            except LimitExceededError as error:
                counted.set_exception(error)
            else:
                counted.set_result(None)

        try:
            loop.call_soon_threadsafe(count_there)
        except RuntimeError:  # the loop is closed
            self._warn_that_it_ended(model)
            return
        wait([counted], timeout=_PATIENCE)
        if not claim.acquire(blocking=False):
            counted.result()
        elif loop.is_closed():
            # it drops what it has not begun
            self._warn_that_it_ended(model)
        else:
            # the function may have the loop wait for this thread
            count()

    def _warn_that_it_ended(self, model: str) -> None:
        self._log.warning(
            "A call of '%s' is not counted: the run had ended before it was reported.",
            model,
        )

    def _count(self, model: str, usage: Usage, seconds: float) -> None:
        run = self._run
        if run.is_closed:
            self._warn_that_it_ended(model)
            return
        call = usage.as_call(model)
        run.count_usage(call)
        self._emit(model, usage, seconds)
        try:
            for budget in run.budgets:
                budget.check(call)
        except LimitExceededError as error:
            # the function may catch it, as frameworks do with errors of their hooks
            run.exceeded = error
            raise

    def _emit(self, model: str, usage: Usage, seconds: float) -> None:
        """Emit the events of a model call."""
        run = self._run
        path = run.path
        tool_call: int | None = None
        number = self._number
        self._number += 1
        if self._call is not None:
            path = self._call.path
            tool_call = self._call.number
        else:
            number = run.count_model_call()
        stamp = run.stamp(path)
        stamp["at"] -= seconds
        started = events.ModelCallStarted(
            **stamp,
            call=number,
            request=ModelRequest(model, ()),
            tool_call=tool_call,
        )
        run.emit(started)
        finished = events.ModelCallFinished(
            **run.stamp(path),
            call=number,
            model=model,
            response=ModelResponse(usage=usage, finish_reason=UNKNOWN),
            duration_ms=seconds * 1000,
            tool_call=tool_call,
        )
        run.emit(finished)


def _is_running(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether this code runs on this event loop."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def _with_price(model: str, usage: Usage) -> Usage:
    """The usage with its cost, if the price of the model is known; one without tokens was not counted."""
    if usage.cost is not None:
        return usage
    if usage.total_tokens == 0:
        return as_uncounted(usage)
    cost = pricing.lookup(model, usage)
    if cost is None:
        return usage
    return replace(usage, cost=cost.amount, cost_source=cost.source)
