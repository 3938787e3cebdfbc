"""One model call of a chat: limits, attempts, fallback models, usage and events."""

from __future__ import annotations

import asyncio
import logging
import math
from asyncio import CancelledError
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

from podwright import errors, events
from podwright.chats.recorded_call import error_details
from podwright.data.finish_reasons import FINISH_REASONS, ending_of, is_failure
from podwright.data.text import truncate
from podwright.messages.messages import Message, ModelRequest, ModelResponse
from podwright.messages.usage import NO_USAGE, Usage
from podwright.models import Model
from podwright.models.base import check_tool_calls, noted_attempt
from podwright.models.circuit_breaker import NO_ANSWER, circuits
from podwright.models.fallback import ChatModels
from podwright.models.provider_model import ProviderModel
from podwright.models.retries import with_retries
from podwright.run.accounts import milliseconds_since
from podwright.run.budget import CallReservation
from podwright.run.run import Run
from podwright.settings import current_settings

_log = logging.getLogger("podwright")


async def call_model(
    run: Run,
    models: ChatModels,
    request: ModelRequest,
    *,
    accepts_cut_text: bool = False,
) -> ModelResponse:
    """One model call within the limits of a run, with its events and its usage.

    Args:
        run: The run.
        models: The model, and those that may answer for it.
        request: The request to the first of them.
        accepts_cut_text: Whether a text that is cut off at `max_tokens` is an answer.

    Raises:
        LimitExceededError: The call does not fit the limits of the run.
        ModelError: The model failed, its answer was cut off, or it refused to give one.
    """
    answer = _replay_answer(run)
    if answer is None:
        # entered before limits are reserved: the journal may not let the call begin
        async with run.journal.call(in_tool=run.in_tool):
            answer = await _ModelCall(run, models, request).answer()
    is_structured = request.output is not None
    _check_end(
        run,
        answer,
        accepts_cut_text=accepts_cut_text and not is_structured,
        is_structured=is_structured,
    )
    check_tool_calls(answer.model, len(answer.response.tool_calls))
    return answer.response


class _ModelAnswer(NamedTuple):
    """The response of a model, and who gave it."""

    model: str
    """The model that answered, "<provider>/<model_name>"."""
    response: ModelResponse
    limit: str = ""
    """The limit of the run that left it fewer tokens than were asked for; empty if none did."""


def _replay_answer(run: Run) -> _ModelAnswer | None:
    """Count the answer that the next call had in an earlier attempt of the run, and return it; None if it had none."""
    recorded = run.recorded.answer(run.model_calls)
    if recorded is None:
        return None
    run.count_model_call()
    response = recorded.response
    usage = response.usage.as_call(recorded.model)
    run.count_usage(recorded.failed_usage + usage)
    return _ModelAnswer(recorded.model, response)


def _check_end(
    run: Run,
    answer: _ModelAnswer,
    *,
    accepts_cut_text: bool,
    is_structured: bool,
) -> None:
    """Check why the model stopped."""
    match answer.response.finish_reason:
        case "content_filter":
            raise errors.ContentFilterError(
                f"The content filter of '{answer.model}' stopped the answer."
            )
        case "refusal":
            _check_refusal(answer, is_structured=is_structured)
        case "length":
            _check_cut(answer, accepts_cut_text=accepts_cut_text)
        case "unknown":
            _check_unknown_end(answer, run)
        case _:
            pass


def _check_refusal(answer: _ModelAnswer, *, is_structured: bool) -> None:
    """Check that the words of a refusal are the answer, which they are only as a text, and as all of it."""
    model, response, _ = answer
    is_text = response.text != "" and response.text == response.refusal
    if is_structured or response.tool_calls or not is_text:
        raise errors.ModelRefusedError(
            f"'{model}' refused to answer.",
            refusal=response.refusal or response.text,
        )


def _check_unknown_end(answer: _ModelAnswer, run: Run) -> None:
    """Report that it is not known whether an answer is whole."""
    model, response, _ = answer
    said = "without a finish reason"
    if response.provider_finish_reason:
        said = f"with the finish reason {response.provider_finish_reason!r}"
    message = (
        f"The answer of '{model}' ended {said}, so it is not known to be whole."
    )
    if current_settings().model_unknown_finish_reason == "fail":
        raise errors.UnknownFinishReasonError(message)
    _log.warning("Run %s: %s", run.id, message)


def _check_cut(answer: _ModelAnswer, *, accepts_cut_text: bool) -> None:
    """Check that an answer may be cut off at its limit of tokens."""
    model, response, limit = answer
    if limit:
        raise errors.LimitExceededError(
            f"The answer of '{model}' was cut off at the run's limits.",
            limit=limit,
        )
    if not accepts_cut_text or response.tool_calls:
        raise errors.ModelError(
            f"The answer of '{model}' was cut off at its limit of output tokens.",
            suggestion="Raise max_tokens, or ask for a shorter answer.",
        )


class _ModelCall:
    """One model call of a run: the models that are asked in turn, their attempts, and the events."""

    _start_timeout: asyncio.Timeout
    """The time limit until the model begins to answer; each attempt has its own."""

    def __init__(
        self, run: Run, models: ChatModels, request: ModelRequest
    ) -> None:
        self._run = run
        self._models = models
        self._first_request = request
        """The request to the first model, from which the requests to the others are made."""
        self._reservation = CallReservation(run.budgets)
        self._number: int | None = None
        """Its number in the run; None before it has begun."""
        self._started = 0.0
        self._first_token_ms: float | None = None
        self._failed_usage = NO_USAGE
        """Usage of the failed attempts."""
        self._passed_over: list[str] = []
        """The models that were asked before, and how they failed."""
        self._model = models.first
        """The model that is asked now."""
        self._request = request
        """The next request to it."""
        self._is_last = True
        """Whether no other model is asked after it."""

    async def answer(self) -> _ModelAnswer:
        """Ask the models one after the other until one answers; its usage is counted.

        Raises:
            LimitExceededError: The call does not fit the limits of the run.
            ModelError: The error of the last model that was asked.
        """
        candidates = self._candidates()
        while True:
            self._model = candidates.pop(0)
            self._is_last = not candidates
            try:
                answer = await self._ask()
                break
            except (CancelledError, errors.PodwrightError) as error:
                if isinstance(error, NO_ANSWER) and self._may_pass_over():
                    self._pass_over(error)
                else:
                    self._end_with(error)
                    raise
        self._emit(
            events.ModelCallFinished,
            model=answer.model,
            response=answer.response,
            duration_ms=milliseconds_since(self._started),
            first_token_ms=self._first_token_ms,
            failed_usage=self._failed_usage,
        )
        return answer

    def _candidates(self) -> list[Model]:
        """The models to ask in turn."""
        models = self._models.all()
        if len(models) == 1:
            return models
        # those with an open circuit are better than none
        return sorted(models, key=circuits.is_open)

    def _may_pass_over(self) -> bool:
        """Whether another model may answer in place of the one that could not."""
        return not self._is_last and not self._has_shown_text

    def _pass_over(self, error: errors.ModelError) -> None:
        self._passed_over.append(f"'{self._model.name}' ({error.code})")
        self._emit(
            events.ModelCallFellBack,
            model=self._model.name,
            error=error.to_dict(),
        )

    def _end_with(self, error: BaseException) -> None:
        """Name the models that were asked before in the error of the call, and emit the event."""
        if isinstance(error, errors.ModelError) and self._passed_over:
            asked = ", ".join(self._passed_over)
            error.message = f"{error.message} Asked before: {asked}."
        if self._number is not None:
            self._emit(
                events.ModelCallFailed,
                model=self._model.name,
                error=error_details(error),
                duration_ms=milliseconds_since(self._started),
                usage=self._failed_usage,
            )

    async def _ask(self) -> _ModelAnswer:
        """Ask one model, again where that can help; the worst case is set aside meanwhile."""
        model = self._model
        request = self._models.request_to(model, self._first_request)
        async with self._reservation.hold(model, request) as self._request:
            if self._number is None:
                self._number = self._run.count_model_call()
                self._started = perf_counter()
                self._emit(events.ModelCallStarted, request=self._request)
            total = request.settings.get("timeout", model.timeouts.total)
            time_left = max(0.0, total - (perf_counter() - self._started))
            time_to_start: float | None = None
            retries = model.retries
            if not self._is_last:
                # a model that does not begin to answer leaves the next ones a part of the time
                if time_left < math.inf:
                    time_to_start = time_left / 2
                # and one that is not reached, all of it
                retries = replace(retries, connect_time=0.0)
            with self._record_outcome():
                response = await with_retries(
                    partial(self._attempt, time_to_start),
                    time_left,
                    retries,
                    who=f"'{model.name}'",
                    left=lambda: self._run.time_left,
                    on_retry=self._on_retry,
                    may_repeat=self._may_repeat,
                )
            self._run.add_usage(response.usage.as_call(model.name))
            self._reservation.use(response.usage)
        if not self._models.is_alone and not response.provider:
            # nothing else says which of the models has answered
            provider = model.name.partition("/")[0]
            response = replace(response, provider=provider)
        return _ModelAnswer(model.name, response, self._reservation.limit)

    def _record_outcome(self) -> AbstractContextManager[None]:
        """Record in the circuit of a model how its call ends, if there are others that may be asked instead."""
        if self._models.is_alone:
            return nullcontext()
        return circuits.record(self._model)

    async def _attempt(self, seconds: float | None) -> ModelResponse:
        """Ask the model once.

        Args:
            seconds: How long it may take until the model begins to answer; None for no limit.

        Raises:
            ModelError: The attempt failed. After a tool call that the provider could not read, the model is notified
                in the next attempt.
            LimitExceededError: The attempts before have used what the run may use.
        """
        model = self._model
        self._request = await self._reservation.renew(model, self._request)
        try:
            response = await self._send_request(seconds)
            response = _with_known_end(model, response)
            usage = model.with_cost(response.usage)
        except CancelledError as error:
            self._count_failed(noted_attempt(error))
            raise
        except errors.ModelError as error:
            self._count_failed(error.attempt_usage)
            if self._has_shown_text:
                error.transient = False  # so that `with_retries` raises it
            if isinstance(error, errors.ModelToolCallError):
                self._request = _with_notice(self._request, error)
            raise
        except errors.PodwrightError:
            raise
        except (Exception, SystemExit) as error:
            # a SystemExit would end the event loop of all runs
            raise _fault_of_model(model, error) from error
        if usage is response.usage:
            return response
        return replace(response, usage=usage)

    async def _send_request(self, seconds: float | None) -> ModelResponse:
        """Send the request to the model.

        Args:
            seconds: See `_attempt`.

        Raises:
            ModelTimeoutError: The model has not begun to answer in time.
        """
        model = self._model
        self._start_timeout = asyncio.timeout(seconds)
        try:
            async with self._start_timeout:
                if self._run.streaming:
                    return await model.stream(
                        self._request, self._on_token, self._on_reasoning
                    )
                return await model.complete(self._request)
        except TimeoutError as error:
            if seconds is None:
                raise
            half = f"{seconds:.3g} s, half of the time that was left"
            final = errors.ModelTimeoutError(
                f"'{model.name}' gave no answer within {half}."
            )
            final.transient = False
            final.is_limit_of_call = True
            cancellation = error.__cause__
            if isinstance(cancellation, CancelledError):
                final.attempt_usage = noted_attempt(cancellation)
            raise final from error

    def _count_failed(self, used: Usage | None) -> None:
        """Count what a failed attempt used, if the provider may bill it."""
        if used is None:
            return
        usage = self._model.with_cost(used).as_failed_call(self._model.name)
        self._failed_usage += usage
        self._run.add_usage(usage)
        self._reservation.use(usage)

    @property
    def _has_shown_text(self) -> bool:
        """Whether a reader has seen a part of the answer, which another attempt would repeat."""
        return self._first_token_ms is not None

    def _on_token(self, text: str) -> None:
        """Hand out a piece of the answer."""
        self._lift_time_limit()
        if self._first_token_ms is None:
            self._first_token_ms = milliseconds_since(self._started)
        self._emit(events.Token, text=text)

    def _on_reasoning(self, text: str) -> None:
        """Hand out a piece of the thoughts."""
        self._lift_time_limit()
        self._emit(events.Reasoning, text=text)

    def _lift_time_limit(self) -> None:
        """The model has begun to answer: it may take its time."""
        if self._start_timeout.when() is not None:
            self._start_timeout.reschedule(None)

    def _may_repeat(self, error: errors.ModelError) -> bool:
        """Whether the model is asked again after an error that may pass, and not the next one."""
        if self._is_last:
            return True
        if isinstance(error, errors.ModelTimeoutError):
            return False
        wait = error.retry_after or 0.0
        return wait <= self._models.longest_wait

    def _on_retry(
        self, tries: int, error: errors.ModelError, wait: float
    ) -> None:
        """Emit that the model is asked again."""
        self._emit(
            events.ModelCallRetried,
            tries=tries,
            error=error.to_dict(),
            wait_ms=round(wait * 1000, 3),
            model=self._model.name,
        )

    def _emit(
        self, event_class: Callable[..., events.Event], **fields: Any
    ) -> None:
        """Emit an event of the call."""
        event = event_class(**self._run.stamp(), call=self._number, **fields)
        self._run.emit(event)


def _with_known_end(model: Model, response: ModelResponse) -> ModelResponse:
    """The response of any class of models with a finish reason of ours.

    Raises:
        ModelResponseError: The response says that it failed within.
    """
    if not isinstance(response, ModelResponse):  # pyright: ignore[reportUnnecessaryIsInstance] - a caller's model
        raise TypeError(
            f"complete() returned {type(response).__name__}, not ModelResponse"
        )
    reason = response.finish_reason
    calls = bool(response.tool_calls)
    is_new_refusal = response.refusal != "" and reason != "refusal"
    is_known = reason in FINISH_REASONS and (calls or reason != "tool_calls")
    if is_known and not is_new_refusal:
        return response
    if is_failure(reason):
        raise errors.ModelResponseError(
            f"'{model.name}' failed within its answer: {truncate(reason, 64)}."
        )
    ending = ending_of(reason, has_calls=calls, is_refused=is_new_refusal)
    return replace(
        response,
        text=response.text or response.refusal,
        finish_reason=ending.reason,
        provider_finish_reason=ending.word,
    )


def _with_notice(
    request: ModelRequest, error: errors.ModelToolCallError
) -> ModelRequest:
    """The request with a message about a tool call that the provider could not read."""
    text = "Error: your tool call was invalid, and was not executed."
    if error.provider_error:
        text += f" The reason: {error.provider_error}"
    if error.failed_generation:
        text += f" You wrote: {error.failed_generation}"
    notice = Message("user", f"{text} Correct the call.")
    return replace(request, messages=(*request.messages, notice))


def _fault_of_model(model: Model, cause: BaseException) -> errors.ModelError:
    """The error for an exception in the code of a model's class, which no provider is to blame for."""
    kind = type(model)
    class_name = f"{kind.__module__}.{kind.__qualname__}"
    subject = f"The class '{class_name}' of the model '{model.name}'"
    error = errors.error_from(errors.ModelError, subject, cause)
    if isinstance(model, ProviderModel):
        error.suggestion = "This is an error of Podwright, not of the provider. Please report it with its cause."
    else:
        error.suggestion = f"Correct '{kind.__qualname__}', or what it calls; its exception is the cause of this error."
    return error
