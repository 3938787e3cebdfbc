"""The chat of a model with its tools, which agents and conductors share."""

from __future__ import annotations

import asyncio
from asyncio import CancelledError
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

from podwright import errors, events
from podwright.budget import ASSUMED_OUTPUT_TOKENS, Reservation
from podwright.components.base import ModelComponent
from podwright.components.chat_messages import ChatMessages
from podwright.components.response_format import response_format
from podwright.components.tool_calls import ToolCaller, error_details
from podwright.messages import Message, ModelRequest, ModelResponse, ModelSettings, OutputSchema, ToolSchema
from podwright.models import Model
from podwright.models.base import check_tool_calls
from podwright.models.offline import estimate_input
from podwright.models.retries import with_retries
from podwright.run import Run, Task, milliseconds_since
from podwright.tools import Tool
from podwright.usage import NO_USAGE, Usage


@dataclass(frozen=True, slots=True)
class ChatConfig:
    """The model of a chat, its settings and its tools."""

    model: Model
    settings: ModelSettings
    max_loops: int
    """Most model calls."""
    tools: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    may_cut_off: bool = False
    """Whether an answer that is cut off at `max_tokens` is an answer."""

    @classmethod
    def of(cls, component: ModelComponent, task: Task, tools: Mapping[str, Tool]) -> ChatConfig:
        """The configuration of a component's chat for a task."""
        settings: ModelSettings = {**component.settings, **task.settings}
        limits = [each["max_tokens"] for each in (component.settings, task.settings) if "max_tokens" in each]
        if limits:
            settings["max_tokens"] = min(limits)
        return cls(component.model, settings, component.max_loops, tools, "max_tokens" in task.settings)


async def run_chat(run: Run, config: ChatConfig, messages: ChatMessages, response_model: Any = None) -> Any:
    """Call the model and the tools that it asks for, until it answers.

    Args:
        run: The run that this is the work of.
        config: Model, settings and tools.
        messages: The messages so far; the turn is extended, and at the end the run's `messages` are all of them.
        response_model: The type of the answer; None is text.

    Raises:
        LoopLimitError: The model still called tools in its last call.
        OutputError: Its last answer did not fit the response model.
        ModelError, ToolError, LimitExceededError: See `podwright.errors`.
    """
    output = await response_format(response_model)
    tools = [tool.schema for tool in config.tools.values()]
    tool_caller = ToolCaller(run, config.tools)
    reason = ""
    for _ in range(config.max_loops):
        response = await call_model(run, config, messages, tools, output.schema if output else None)
        answer = Message("assistant", response.text, response.tool_calls)
        check_tool_calls(config.model.name, len(response.tool_calls))
        if response.tool_calls:
            reason = ""
            messages.turn += [answer, *await tool_caller.call_all(response.tool_calls)]
            continue
        try:
            value = await output.read(response.text) if output else response.text
        except ValueError as error:
            reason = str(error)
            order = f"The answer does not fit the schema: {reason}. Answer again with JSON that fits."
            messages.add_asides(answer, order)
            await asyncio.sleep(0)  # a model that answers at once must not keep other runs from their turn
        else:
            messages.turn.append(answer)
            run.messages = messages.to_data()
            return value
    if reason:
        calls = f"max_loops={config.max_loops} calls"
        raise errors.OutputError(f"'{run.component}' gave no answer that fits the response model in {calls}: {reason}.")
    raise errors.LoopLimitError(f"'{run.component}' still called tools after {config.max_loops} model calls.")


async def call_model(
    run: Run,
    config: ChatConfig,
    messages: ChatMessages,
    tools: Sequence[ToolSchema] = (),
    output: OutputSchema | None = None,
) -> ModelResponse:
    """One model call within the limits of a run, with its events and its usage.

    Raises:
        LimitExceededError: The call does not fit the limits of the run.
        ModelError: The model failed, or its answer was cut off.
    """
    model, settings = config.model, config.settings
    request = messages.request(run, model.name, tools=tuple(tools), settings=settings, output=output)
    reservations: list[Reservation] = []
    response = _replay_response(run, model)
    if response is None:
        response = await _call_in_budgets(run, model, request, reservations)
    if response.finish_reason == "content_filter":
        raise errors.ContentFilterError(f"The content filter of '{model.name}' stopped the answer.")
    if response.finish_reason == "length":
        limit = next((reservation.limit for reservation in reversed(reservations) if reservation.limit), "")
        if limit:
            raise errors.LimitExceededError(
                f"The answer of '{model.name}' was cut off at the run's limits.", limit=limit
            )
        if config.may_cut_off and output is None and not response.tool_calls:
            return response
        raise errors.ModelError(
            f"The answer of '{model.name}' was cut off at its limit of output tokens.",
            suggestion="Raise max_tokens, or ask for a shorter answer.",
        )
    return response


def _replay_response(run: Run, model: Model) -> ModelResponse | None:
    """Count the answer that the next call had in an earlier attempt of the run, and return it; None if it had none."""
    response = run.journal.answer(run.id, run.calls)
    if response is not None:
        run.calls += 1
        run.count_recorded_usage(response.usage.as_call(model.name))
    return response


async def _call_in_budgets(
    run: Run, model: Model, request: ModelRequest, reservations: list[Reservation]
) -> ModelResponse:
    """The model's answer within the limits of the run; what was reserved is added to `reservations`, and settled."""
    used: Usage | None = None
    async with run.journal.call(in_tool=run.in_tool):  # before: a call that may not begin holds nothing back
        try:
            if run.budgets:
                await model.prepare()
                request = await _reserve(run, model, request, reservations)
            used = NO_USAGE
            response = await _ModelCall(run, model, request).response()
            used = response.usage
            return response
        finally:
            for budget, reservation in zip(run.budgets, reservations, strict=False):
                budget.settle(reservation, used)


async def _reserve(run: Run, model: Model, request: ModelRequest, reservations: list[Reservation]) -> ModelRequest:
    """Reserve the worst case in every budget; the tightest decides how long the answer may be."""
    wanted = request.settings.get("max_tokens") or ASSUMED_OUTPUT_TOKENS
    allowed, input_tokens = wanted, estimate_input(request)
    for budget in run.budgets:
        reservation = await budget.reserve(input_tokens, allowed, model.cost)
        reservations.append(reservation)
        allowed = reservation.output_tokens
    if allowed == wanted:
        return request
    settings: ModelSettings = {**request.settings, "max_tokens": allowed}
    return replace(request, settings=settings)


class _ModelCall:
    """One model call of a run: its attempts and its events."""

    def __init__(self, run: Run, model: Model, request: ModelRequest) -> None:
        self._run, self._model, self._request = run, model, request
        self._number, run.calls = run.calls, run.calls + 1
        self._started = perf_counter()
        self._first_token_ms: float | None = None

    async def response(self) -> ModelResponse:
        """The response of the model, which is retried where that can help; its usage is counted."""
        run, model = self._run, self._model
        total, who = self._request.settings.get("timeout", model.timeouts.total), f"'{model.name}'"
        self._emit(events.ModelCallStarted, request=self._request)
        try:
            response = await with_retries(
                self._attempt, total, model.retries, who=who, left=lambda: run.time_left, on_retry=self._on_retry
            )
        except (CancelledError, errors.PodwrightError) as error:
            details, duration = error_details(error), milliseconds_since(self._started)
            self._emit(events.ModelCallFailed, model=model.name, error=details, duration_ms=duration)
            raise
        run.add_usage(response.usage.as_call(model.name))
        first, duration = self._first_token_ms, milliseconds_since(self._started)
        self._emit(
            events.ModelCallFinished, model=model.name, response=response, duration_ms=duration, first_token_ms=first
        )
        return response

    async def _attempt(self) -> ModelResponse:
        try:
            response = await self._model.complete(self._request, self._on_token if self._run.streaming else None)
            if not isinstance(response, ModelResponse):  # pyright: ignore[reportUnnecessaryIsInstance] - a caller's model
                raise TypeError(f"complete() returned {type(response).__name__}, not ModelResponse")
            return _with_cost(self._model, response)
        except errors.PodwrightError as error:
            if isinstance(error, errors.ModelError) and self._first_token_ms is not None:
                error.transient = False  # a reader has seen tokens, which a retry would repeat
            raise
        except (Exception, SystemExit) as error:  # a SystemExit would end the event loop of all runs
            raise errors.error_from(errors.ModelError, f"Model '{self._model.name}'", error) from error

    def _on_retry(self, tries: int, error: errors.ModelError, wait: float) -> None:
        self._emit(events.ModelCallRetried, tries=tries, error=error.to_dict(), wait_ms=round(wait * 1000, 3))

    def _on_token(self, text: str) -> None:
        if self._first_token_ms is None:
            self._first_token_ms = milliseconds_since(self._started)
        self._emit(events.Token, text=text)

    def _emit(self, event: Callable[..., events.Event], **fields: Any) -> None:
        self._run.emit(event(**self._run.stamp(), call=self._number, **fields))


def _with_cost(model: Model, response: ModelResponse) -> ModelResponse:
    """The response with its cost, unless it has one or its tokens are only estimated."""
    if response.usage.cost is not None or response.usage.unpriced_model_calls:
        return response
    cost = model.cost(response.usage)
    return response if cost is None else replace(response, usage=replace(response.usage, cost=cost))
