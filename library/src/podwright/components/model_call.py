"""One model call of a chat: limits, attempts, fallback models, usage and events."""

from __future__ import annotations

import asyncio
import math
from asyncio import CancelledError
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any, NamedTuple

from podwright import errors, events
from podwright.components.allowance import Allowance, CallSlot
from podwright.components.chat_messages import ChatMessages
from podwright.components.models_of_chat import ChatModels
from podwright.components.tool_calls import error_details
from podwright.messages import (
    Message,
    ModelRequest,
    ModelResponse,
    ModelSettings,
    OutputSchema,
    ToolSchema,
)
from podwright.models import Model
from podwright.models.base import check_tool_calls, noted_attempt
from podwright.models.circuit_breaker import circuits
from podwright.models.provider_model import ProviderModel
from podwright.models.retries import with_retries
from podwright.run import Run, milliseconds_since
from podwright.usage import NO_USAGE, Usage

_FALLS_BACK = (
    errors.ModelAuthenticationError,
    errors.ModelConnectionError,
    errors.ModelRateLimitError,
    errors.ModelResponseError,
    errors.ModelTimeoutError,
    errors.ModelUnavailableError,
)
"""After these the next model is asked; another model would refuse the same content or request as well."""


async def call_model(
    run: Run,
    models: ChatModels,
    messages: ChatMessages,
    settings: ModelSettings,
    *,
    tools: Sequence[ToolSchema] = (),
    output: OutputSchema | None = None,
    may_cut_off: bool = False,
) -> ModelResponse:
    """One model call within the limits of a run, with its events and its usage.

    Args:
        run: The run.
        models: The model, and those that may answer for it.
        messages: The messages of the chat.
        settings: The settings of the call.
        tools: The tools that the model may call.
        output: The schema that the answer must fit.
        may_cut_off: Whether a text that is cut off at `max_tokens` is an answer.

    Raises:
        LimitExceededError: The call does not fit the limits of the run.
        ModelError: The model failed, or its answer was cut off.
    """
    request = messages.request(
        run, models.first.name, tools=tuple(tools), settings=settings, output=output
    )
    answer = _replay_answer(run)
    if answer is None:
        # before: a call that may not begin holds nothing back
        async with run.journal.call(in_tool=run.in_tool):
            answer = await _ModelCall(run, models, request).answer()
    _check_end(answer, may_cut_off=may_cut_off and output is None)
    check_tool_calls(answer.model, len(answer.response.tool_calls))
    return answer.response


class _Answer(NamedTuple):
    """The response of a model."""

    model: str
    """Who answered, "<provider>/<model_name>"."""
    response: ModelResponse
    limit: str = ""
    """The limit of the run that left it fewer tokens than were asked for; empty if none did."""


def _replay_answer(run: Run) -> _Answer | None:
    """Count the answer that the next call had in an earlier attempt of the run, and return it; None if it had none."""
    recorded = run.journal.answer(run.id, run.calls)
    if recorded is None:
        return None
    run.calls += 1
    run.count_recorded_usage(
        recorded.failed_usage + recorded.response.usage.as_call(recorded.model)
    )
    return _Answer(recorded.model, recorded.response)


def _check_end(answer: _Answer, *, may_cut_off: bool) -> None:
    model, response, limit = answer
    if response.finish_reason == "content_filter":
        raise errors.ContentFilterError(
            f"The content filter of '{model}' stopped the answer."
        )
    if response.finish_reason != "length":
        return
    if limit:
        raise errors.LimitExceededError(
            f"The answer of '{model}' was cut off at the run's limits.", limit=limit
        )
    if not may_cut_off or response.tool_calls:
        raise errors.ModelError(
            f"The answer of '{model}' was cut off at its limit of output tokens.",
            suggestion="Raise max_tokens, or ask for a shorter answer.",
        )


class _ModelCall:
    """One model call of a run: the models that are asked in turn, their attempts, and the events."""

    def __init__(self, run: Run, models: ChatModels, request: ModelRequest) -> None:
        self._run = run
        self._models = models
        self._request = request
        self._number: int | None = None
        """Its number in the run; None before it has begun."""
        self._started = 0.0
        self._first_token_ms: float | None = None
        self._failed = NO_USAGE
        """What the failed attempts used."""
        self._slot = CallSlot()

    async def answer(self) -> _Answer:
        """The response of the first model that answers; its usage is counted.

        Raises:
            LimitExceededError: The call does not fit the limits of the run.
            ModelError: That of the last model that was asked.
        """
        asked = self._models.first
        passed: list[str] = []
        try:
            models = self._candidates()
            for model in models:
                is_last = model is models[-1]
                asked = model
                try:
                    answer = await self._ask_within_limits(model, is_last=is_last)
                except errors.ModelError as error:
                    if is_last or not self._may_fall_back(error):
                        _tell_of(error, passed)
                        raise
                    passed.append(f"'{model.name}' ({error.code})")
                    self.emit(
                        events.ModelCallFellBack,
                        model=model.name,
                        error=error.to_dict(),
                    )
                else:
                    self._emit_finished(model, answer.response)
                    return answer
        except (CancelledError, errors.PodwrightError) as error:
            if self._number is not None:
                self._emit_failed(asked, error)
            raise
        raise AssertionError  # the last model answers or raises

    def _begin(self, request: ModelRequest) -> None:
        """Begin with the first request, once the limits allow it."""
        if self._number is None:
            self._number = self._run.calls
            self._run.calls += 1
            self._started = perf_counter()
            self.emit(events.ModelCallStarted, request=request)

    def _candidates(self) -> list[Model]:
        """The models to ask in turn."""
        models = self._models.all()
        if self._models.is_alone:
            return models
        # those that are passed over are better than none
        return sorted(models, key=circuits.is_open)

    def _may_fall_back(self, error: errors.ModelError) -> bool:
        return isinstance(error, _FALLS_BACK) and self._first_token_ms is None

    async def _ask_within_limits(self, model: Model, *, is_last: bool) -> _Answer:
        """The response of one model; its worst case is held back from the limits meanwhile."""
        request = self._models.request_to(model, self._request)
        allowance = Allowance(self._run.budgets, model, self._slot)
        try:
            request = await allowance.reserve(request)
            self._begin(request)
            allowance.begin()
            response = await self._ask_noted(model, request, allowance, is_last=is_last)
            allowance.use(response.usage)
            return _Answer(model.name, response, allowance.limit)
        finally:
            allowance.settle()

    async def _ask_noted(
        self,
        model: Model,
        request: ModelRequest,
        allowance: Allowance,
        *,
        is_last: bool,
    ) -> ModelResponse:
        """The response of a model, of whose end its circuit takes note if there are others."""
        if self._models.is_alone:
            return await self._ask(model, request, allowance, is_last=is_last)
        circuits.record_call(model)
        try:
            response = await self._ask(model, request, allowance, is_last=is_last)
        except errors.ModelError as error:
            if _is_due_to_request(error):
                circuits.record_cancellation(model)
            elif isinstance(error, _FALLS_BACK):
                circuits.record_failure(model)
            else:
                circuits.record_success(model)
            raise
        except BaseException:
            circuits.record_cancellation(model)
            raise
        circuits.record_success(model)
        return (
            response
            if response.provider
            else replace(response, provider=model.name.partition("/")[0])
        )

    async def _ask(
        self,
        model: Model,
        request: ModelRequest,
        allowance: Allowance,
        *,
        is_last: bool,
    ) -> ModelResponse:
        """The response of a model, which is retried where that can help; its usage is counted."""
        left = request.settings.get("timeout", model.timeouts.total) - (
            perf_counter() - self._started
        )
        # a model that does not begin to answer leaves the next ones a part of the time
        seconds = math.inf if is_last else left / 2
        attempts = _Attempts(
            self, model, request, allowance, is_last=is_last, seconds=seconds
        )
        response = await with_retries(
            attempts.next,
            max(0.0, left),
            model.retries,
            who=f"'{model.name}'",
            left=self._time_left,
            on_retry=attempts.on_retry,
            may_repeat=attempts.may_repeat,
        )
        self._run.add_usage(response.usage.as_call(model.name))
        return response

    def _time_left(self) -> float:
        return self._run.time_left

    def count_failed(self, model: Model, used: Usage) -> Usage:
        """Count what a failed attempt used, and return it with its cost."""
        usage = _with_cost(model, used).as_failed_call(model.name)
        self._failed += usage
        self._run.add_usage(usage)
        return usage

    def on_token(self, text: str) -> None:
        """Hand out a piece of the answer."""
        if self._first_token_ms is None:
            self._first_token_ms = milliseconds_since(self._started)
        self.emit(events.Token, text=text)

    def on_reasoning(self, text: str) -> None:
        """Hand out a piece of the thoughts."""
        self.emit(events.Reasoning, text=text)

    @property
    def has_shown_text(self) -> bool:
        """Whether a reader has seen a part of the answer, which another attempt would repeat."""
        return self._first_token_ms is not None

    @property
    def longest_wait(self) -> float:
        """Seconds that a model may ask to wait before the next one is asked."""
        return self._models.longest_wait

    @property
    def is_streamed(self) -> bool:
        """Whether the answer is handed out as it arrives."""
        return self._run.streaming

    def _emit_finished(self, model: Model, response: ModelResponse) -> None:
        self.emit(
            events.ModelCallFinished,
            model=model.name,
            response=response,
            duration_ms=milliseconds_since(self._started),
            first_token_ms=self._first_token_ms,
            failed_usage=self._failed,
        )

    def _emit_failed(self, model: Model, error: BaseException) -> None:
        self.emit(
            events.ModelCallFailed,
            model=model.name,
            error=error_details(error),
            duration_ms=milliseconds_since(self._started),
            usage=self._failed,
        )

    def emit(self, event: Callable[..., events.Event], **fields: Any) -> None:
        """Emit an event of the call."""
        self._run.emit(event(**self._run.stamp(), call=self._number, **fields))


class _Attempts:
    """The attempts of a call with one model."""

    def __init__(
        self,
        call: _ModelCall,
        model: Model,
        request: ModelRequest,
        allowance: Allowance,
        *,
        is_last: bool,
        seconds: float,
    ) -> None:
        self._call = call
        self._model = model
        self._request = request
        self._allowance = allowance
        self._was_billed = False
        """Whether the last attempt has used something in vain."""
        self._is_last = is_last
        self._seconds = seconds
        """How long it may take until the model begins to answer."""
        self._until = asyncio.timeout(None)

    async def next(self) -> ModelResponse:
        """The response to one attempt.

        Raises:
            ModelError: The attempt failed. After a tool call that the provider could not read, the model is told so
                in the next attempt.
            LimitExceededError: The attempts before have used what the run may use.
        """
        if self._was_billed:
            self._request = await self._allowance.renew(self._request)
            self._allowance.begin()
            self._was_billed = False
        try:
            response = await self._begin_in_time()
            if not isinstance(response, ModelResponse):  # pyright: ignore[reportUnnecessaryIsInstance] - a caller's model
                raise TypeError(
                    f"complete() returned {type(response).__name__}, not ModelResponse"
                )
        except CancelledError as error:
            self._count_failed(noted_attempt(error))
            raise
        except errors.ModelError as error:
            self._count_failed(error.attempt_usage)
            if self._call.has_shown_text:
                error.transient = False
            if isinstance(error, errors.ModelToolCallError):
                self._request = _with_notice(self._request, error)
            raise
        except errors.PodwrightError:
            raise
        except (Exception, SystemExit) as error:
            # a SystemExit would end the event loop of all runs
            raise errors.error_from(
                errors.ModelError, f"Model '{self._model.name}'", error
            ) from error
        usage = _with_cost(self._model, response.usage)
        return response if usage is response.usage else replace(response, usage=usage)

    def _count_failed(self, used: Usage | None) -> None:
        """Count what a failed attempt used, if the provider may bill it."""
        if used is not None:
            self._was_billed = True
            self._allowance.use(self._call.count_failed(self._model, used))

    async def _begin_in_time(self) -> ModelResponse:
        """The response to an attempt, which must begin in time if other models can answer."""
        if self._seconds == math.inf:
            return await self._complete()
        try:
            async with asyncio.timeout(self._seconds) as self._until:
                return await self._complete()
        except TimeoutError as error:
            cancellation = error.__cause__
            half = f"{self._seconds:.3g} s, half of the time that was left"
            reason = f"'{self._model.name}' gave no answer within {half}."
            final = errors.ModelTimeoutError(reason)
            final.transient = False
            if isinstance(cancellation, CancelledError):
                final.attempt_usage = noted_attempt(cancellation)
            raise final from error

    def _on_token(self, text: str) -> None:
        self._has_begun()
        self._call.on_token(text)

    def _on_reasoning(self, text: str) -> None:
        self._has_begun()
        self._call.on_reasoning(text)

    def _has_begun(self) -> None:
        if self._until.when() is not None:
            self._until.reschedule(None)

    def may_repeat(self, error: errors.ModelError) -> bool:
        """Whether the model is asked again after an error that may pass, and not the next one."""
        is_slow = isinstance(error, errors.ModelTimeoutError)
        return self._is_last or not (
            is_slow or (error.retry_after or 0.0) > self._call.longest_wait
        )

    def on_retry(self, tries: int, error: errors.ModelError, wait: float) -> None:
        """Tell that the model is asked again."""
        wait_ms = round(wait * 1000, 3)
        self._call.emit(
            events.ModelCallRetried,
            tries=tries,
            error=error.to_dict(),
            wait_ms=wait_ms,
            model=self._model.name,
        )

    async def _complete(self) -> ModelResponse:
        if not self._call.is_streamed:
            return await self._model.complete(self._request)
        return await self._model.stream(
            self._request, self._on_token, self._on_reasoning
        )


def _is_due_to_request(error: errors.ModelError) -> bool:
    """Whether an error may be due to the request, such as an answer that cannot be read, or a short time limit."""
    is_own_limit = isinstance(error, errors.ModelTimeoutError) and not error.transient
    return is_own_limit or isinstance(error, errors.ModelResponseError)


def _tell_of(error: errors.ModelError, passed: Sequence[str]) -> None:
    """Add the models to an error that were asked before."""
    if passed:
        error.message = f"{error.message} Asked before: {', '.join(passed)}."


def _with_notice(
    request: ModelRequest, error: errors.ModelToolCallError
) -> ModelRequest:
    """The request with a message about a tool call that the provider could not read."""
    wrote = f" You wrote: {error.failed_generation}" if error.failed_generation else ""
    reason = f" The reason: {error.provider_error}" if error.provider_error else ""
    text = f"Error: your tool call was invalid, and was not executed.{reason}{wrote} Correct the call."
    return replace(request, messages=(*request.messages, Message("user", text)))


def _with_cost(model: Model, usage: Usage) -> Usage:
    """The usage with its cost, unless it has one or its tokens are only estimated."""
    if (
        usage.cost is not None
        or usage.unpriced_model_calls
        or isinstance(model, ProviderModel)
    ):
        return usage  # which knows its price, or that there is none
    cost = model.cost(usage)
    return usage if cost is None else replace(usage, cost=cost)
